/* Models in several files: any part opens the whole, and what does not fit together is said (OB-12). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_builder.h"
#include "lapilli.h"
#include "split.h"
#include "support.h"

enum { N_PARTS = 3, N_TOKENS = 5, N_VOCAB = 264 };

/* A folder of this test's own; paths of it below. */
static char folder[512];

static void setup(void)
{
	snprintf(folder, sizeof folder, "%s", scratch_path(""));
	size_t n = strlen(folder);
	snprintf(folder + n, sizeof folder - n, "split-%ld", (long)getpid());
	cr_assert_eq(mkdir(folder, 0700), 0);
}

TestSuite(split, .init = setup);

static const char *at(const char *name)
{
	static char paths[8][1024];
	static unsigned turn;
	char *path = paths[turn++ % 8];
	snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	return path;
}

static const char *part_name(unsigned number, unsigned count)
{
	static char names[8][64];
	static unsigned turn;
	char *name = names[turn++ % 8];
	snprintf(name, sizeof names[0], "tiny-%05u-of-%05u.gguf", number, count);
	return name;
}

static const char *part(unsigned number)
{
	return at(part_name(number, N_PARTS));
}

static void write_file(const char *path, const void *bytes, size_t n)
{
	struct lap_error err;
	cr_assert_eq(file_write(path, bytes, n, &err), LAP_OK, "%s", err.text);
}

static void write_builder(const struct builder *b, const char *path)
{
	struct text file = builder_file(b);
	write_file(path, file.data, file.n);
	text_free(&file);
}

static struct builder *tiny_llama(void)
{
	static struct builder whole;
	builder_free(&whole);
	builder_tiny_llama(&whole);
	return &whole;
}

/* Part `index` of the whole: the keys are in the first alone, tensor i in part i * N_PARTS / n, or the
 * other way round where `reversed`. */
static struct builder *make_part(const struct builder *whole, unsigned index, bool reversed)
{
	static struct builder parts[N_PARTS];
	struct builder *b = &parts[index];
	builder_free(b);
	for (uint32_t i = 0; i < whole->n_kv && index == 0; i++)
		builder_bytes(&builder_add(b, whole->kv[i].key.data, whole->kv[i].type)->value,
			whole->kv[i].value.data, whole->kv[i].value.n);
	builder_int(b, "split.no", GGUF_U16, index);
	builder_int(b, "split.count", GGUF_U16, N_PARTS);
	builder_int(b, "split.tensors.count", GGUF_I32, whole->n_tensors);
	for (uint32_t i = 0; i < whole->n_tensors; i++) {
		uint32_t k = reversed ? whole->n_tensors - 1 - i : i;
		const struct builder_tensor *t = &whole->tensors[k];
		if (i * N_PARTS / whole->n_tensors == index)
			builder_tensor(b, t->name.data, t->type, t->n_dims == 1 ? 0 : t->dims[1],
				t->dims[0], t->data.data, t->data.n);
	}
	return b;
}

static void write_parts(bool reversed)
{
	const struct builder *whole = tiny_llama();
	write_builder(whole, at("whole.gguf"));
	for (unsigned i = 0; i < N_PARTS; i++)
		write_builder(make_part(whole, i, reversed), part(i + 1));
}

/* The logits behind each of N_TOKENS tokens, and what the model says of its files. */
static float *logits_of(const char *path, uint32_t n_files)
{
	static const int32_t tokens[N_TOKENS] = {1, 70, 71, 262, 80};
	float *logits = malloc(N_TOKENS * N_VOCAB * sizeof *logits);
	struct lap_model *model;
	struct lap_session *session;
	struct lap_error err;
	cr_assert(logits);
	cr_assert_eq(
		lap_model_open(path, &(struct lap_model_options){.device = "cpu"}, &model, &err),
		LAP_OK, "%s", err.text);
	cr_expect_eq(lap_model_info(model)->n_files, n_files);
	cr_expect_str_eq(lap_model_info(model)->path, path);
	cr_assert_eq(lap_model_info(model)->n_vocab, N_VOCAB);
	cr_assert_eq(
		lap_session_create(model,
			&(struct lap_session_options){
				.type_k = LAP_KV_F32, .type_v = LAP_KV_F32, .logits_all = true},
			&session, &err),
		LAP_OK, "%s", err.text);
	cr_assert_eq(lap_session_logits(session, tokens, N_TOKENS, logits, &err), LAP_OK, "%s",
		err.text);
	lap_session_destroy(session);
	lap_model_close(model);
	return logits;
}

/* Opening that path gives bit for bit the logits of the whole file. */
static void expect_whole(const char *path)
{
	float *expected = logits_of(at("whole.gguf"), 1), *found = logits_of(path, N_PARTS);
	cr_expect(expected[0] != expected[1] && expected[0] != expected[N_VOCAB]);
	cr_expect_arr_eq(found, expected, N_TOKENS * N_VOCAB * sizeof *expected, "%s", path);
	free(expected);
	free(found);
}

static void expect_refused(const char *path, enum lap_status status, const char *words)
{
	struct split split;
	struct lap_error err = {0};
	cr_expect_eq(split_open(path, &split, &err), status, "%s: %s", path, err.text);
	cr_expect(strstr(err.text, words), "\"%s\" is not in \"%s\"", words, err.text);
	cr_expect(!strchr(err.text, '\n') && !split.gguf && !split.files && !split.n_files);
	split_close(&split);
	cr_expect_eq(split_open(path, &split, NULL), status, "nobody needs the message");
}

/* ---- what opens -------------------------------------------------------------------------------- */

Test(split, any_part_opens_the_whole)
{
	write_parts(false);
	for (unsigned i = 1; i <= N_PARTS; i++)
		expect_whole(part(i));
	cr_assert_eq(chdir(folder), 0);
	expect_whole(part_name(2, N_PARTS));
	struct split split;
	struct stat st;
	uint64_t n_bytes = 0;
	for (unsigned i = 1; i <= N_PARTS; i++) {
		cr_assert_eq(stat(part(i), &st), 0);
		n_bytes += (uint64_t)st.st_size;
	}
	cr_assert_eq(split_open(part(3), &split, NULL), LAP_OK);
	cr_expect_eq(split.gguf->n_file_bytes, n_bytes);
	cr_expect_str_eq(split.gguf->path, part(1), "messages name the part with the keys");
	split_close(&split);
}

Test(split, tensors_in_another_order)
{
	write_parts(true);
	expect_whole(part(1));
	expect_whole(part(3));
}

Test(split, first_part_without_tensors)
{
	write_parts(false);
	struct builder *whole = tiny_llama();
	struct builder *first = make_part(whole, 0, false), *second = make_part(whole, 1, false);
	while (first->n_tensors) {
		struct builder_tensor *t = &first->tensors[0];
		builder_tensor(second, t->name.data, t->type, t->n_dims == 1 ? 0 : t->dims[1],
			t->dims[0], t->data.data, t->data.n);
		builder_drop_tensor(first, t->name.data);
	}
	write_builder(first, part(1));
	write_builder(second, part(2));
	expect_whole(part(1));
	expect_whole(part(2));
}

Test(split, alone_as_one_of_one)
{
	struct builder *b = tiny_llama();
	write_builder(b, at("whole.gguf"));
	builder_int(b, "split.no", GGUF_U16, 0);
	builder_int(b, "split.count", GGUF_U16, 1);
	builder_int(b, "split.tensors.count", GGUF_I32, b->n_tensors);
	write_builder(b, at(part_name(1, 1)));
	free(logits_of(at(part_name(1, 1)), 1));
	write_builder(b, at("renamed.gguf"));
	free(logits_of(at("renamed.gguf"), 1));
}

/* A cache of links: names with numbers in one folder, files called by their hash in another. */
Test(split, links)
{
	write_parts(false);
	cr_assert(mkdir(at("blobs"), 0700) == 0 && mkdir(at("snapshot"), 0700) == 0);
	for (unsigned i = 1; i <= N_PARTS; i++) {
		char blob[64], target[128], link[128];
		snprintf(blob, sizeof blob, "blobs/%u%u%u", i * 7, i, i * 3);
		snprintf(target, sizeof target, "../%s", blob);
		snprintf(link, sizeof link, "snapshot/%s", part_name(i, N_PARTS));
		cr_assert_eq(rename(part(i), at(blob)), 0);
		cr_assert_eq(symlink(target, at(link)), 0);
	}
	for (unsigned i = 1; i <= N_PARTS; i++) {
		char link[128];
		snprintf(link, sizeof link, "snapshot/%s", part_name(i, N_PARTS));
		expect_whole(at(link));
	}
	/* One link to the link, from where there are no siblings, by the same name and by another. */
	char target[1024];
	snprintf(target, sizeof target, "../snapshot/%s", part_name(2, N_PARTS));
	cr_assert_eq(mkdir(at("mine"), 0700), 0);
	cr_assert_eq(symlink(target, at("mine/model.gguf")), 0);
	expect_whole(at("mine/model.gguf"));
	snprintf(target, sizeof target, "%s/mine/model.gguf", folder);
	cr_assert_eq(symlink(target, at("tiny-00002-of-00003.gguf")), 0);
	expect_whole(at("tiny-00002-of-00003.gguf"));
	/* A link to itself ends. */
	cr_assert_eq(symlink("loop", at("loop")), 0);
	expect_refused(at("loop"), LAP_IO, "cannot open");
}

/* ---- what does not ----------------------------------------------------------------------------- */

Test(split, missing_parts_are_named)
{
	char words[1200];
	write_parts(false);
	for (unsigned missing = 1; missing <= N_PARTS; missing++) {
		cr_assert_eq(rename(part(missing), at("away")), 0);
		snprintf(words, sizeof words, "cannot open %s: it is missing, part %u of 3",
			part(missing), missing);
		for (unsigned i = 1; i <= N_PARTS; i++)
			if (i != missing)
				expect_refused(part(i), LAP_IO, words);
		cr_assert_eq(rename(at("away"), part(missing)), 0);
	}
	cr_assert_eq(rename(part(3), at("tiny-00003-of-00003.gguf.part")), 0);
	expect_refused(part(1), LAP_IO, "its download is not finished, there is");
	expect_refused(at("tiny-00003-of-00003.gguf.part"), LAP_BAD_MODEL,
		"a download that is not finished, by the .part of its name");
}

Test(split, renamed_parts)
{
	write_parts(false);
	cr_assert_eq(link(part(2), at("mine.gguf")), 0);
	expect_refused(at("mine.gguf"), LAP_BAD_MODEL,
		"part 2 of a model split into 3: the others are found by its name, expected "
		"NAME-00002-of-00003.gguf");
	static const char *const no_pattern[] = {"-00002-of-00003.gguf", "tiny-00000-of-00003.gguf",
		"tiny-00004-of-00003.gguf", "tiny-0002-of-0003.gguf", "tiny-00002-of-00003.GGUF"};
	for (size_t i = 0; i < ARRAY_COUNT(no_pattern); i++) {
		cr_assert_eq(link(part(2), at(no_pattern[i])), 0);
		expect_refused(
			at(no_pattern[i]), LAP_BAD_MODEL, "expected NAME-00002-of-00003.gguf");
	}
	cr_assert_eq(link(part(2), at("other-00001-of-00003.gguf")), 0);
	expect_refused(at("other-00001-of-00003.gguf"), LAP_BAD_MODEL,
		"its name says part 1, but split.no is 1 (counted from 0), which is part 2");
	cr_assert(rename(part(3), at("swap")) == 0 && rename(part(2), part(3)) == 0);
	cr_assert_eq(rename(at("swap"), part(2)), 0);
	expect_refused(part(1), LAP_BAD_MODEL,
		"tiny-00002-of-00003.gguf: its name says part 2, but split.no is 2");
}

Test(split, counts_that_disagree)
{
	write_parts(false);
	for (unsigned i = 1; i <= N_PARTS; i++)
		cr_assert_eq(link(part(i), at(part_name(i, 4))), 0);
	cr_assert_eq(link(part(3), at(part_name(4, 4))), 0);
	expect_refused(
		at(part_name(1, 4)), LAP_BAD_MODEL, "its name says 4 parts, but split.count is 3");

	struct builder *b = make_part(tiny_llama(), 1, false);
	builder_int(b, "split.count", GGUF_U16, 2);
	write_builder(b, part(2));
	expect_refused(part(1), LAP_BAD_MODEL,
		"tiny-00002-of-00003.gguf: its name says 3 parts, but split.count is 2");
	builder_int(b, "split.count", GGUF_U16, 3);
	builder_drop(b, "split.no");
	write_builder(b, part(2));
	expect_refused(part(1), LAP_BAD_MODEL, "split.no is missing");
	expect_refused(part(2), LAP_BAD_MODEL, "split.no is missing");
	builder_string(b, "split.no", "1");
	write_builder(b, part(2));
	expect_refused(part(1), LAP_BAD_MODEL, "split.no is of type string, expected an integer");
	builder_int(b, "split.no", GGUF_U32, UINT32_MAX);
	write_builder(b, part(2));
	expect_refused(part(2), LAP_BAD_MODEL, "split.no is 4294967295");
	builder_int(b, "split.no", GGUF_U16, 1);
	builder_int(b, "split.tensors.count", GGUF_I32, 99);
	write_builder(b, part(2));
	expect_refused(part(1), LAP_BAD_MODEL,
		"tiny-00002-of-00003.gguf: split.tensors.count is 99, but the 3 parts have 21 "
		"tensors");
}

Test(split, parts_that_are_not_of_one_model)
{
	write_parts(false);
	struct builder *b = make_part(tiny_llama(), 2, false);
	b->version = 2;
	write_builder(b, part(3));
	expect_refused(part(1), LAP_BAD_MODEL, "tiny-00003-of-00003.gguf: GGUF version 2, but");
	b->version = 0;
	builder_noise(b, "token_embd.weight", 264, 32, 1);
	write_builder(b, part(3));
	expect_refused(part(1), LAP_BAD_MODEL, "the tensor token_embd.weight is in");
	expect_refused(part(3), LAP_BAD_MODEL, "tiny-00001-of-00003.gguf too, expected once");
	write_file(part(3), "<!doctype html>", 15);
	expect_refused(part(1), LAP_BAD_MODEL, "tiny-00003-of-00003.gguf: this is a web page");
	cr_assert(unlink(part(3)) == 0 && mkdir(part(3), 0700) == 0);
	expect_refused(part(1), LAP_IO, "tiny-00003-of-00003.gguf: it is a directory");
}

Test(split, joined_as_with_cat)
{
	struct text joined = {0};
	char words[64];
	write_parts(false);
	for (unsigned i = 0; i < N_PARTS; i++) {
		struct text file = builder_file(make_part(tiny_llama(), i, false));
		if (i == 1)
			snprintf(words, sizeof words, "a second GGUF file begins at byte %zu of",
				joined.n);
		cr_assert(text_append(&joined, file.data, file.n));
		text_free(&file);
	}
	write_file(at("joined.gguf"), joined.data, joined.n);
	expect_refused(at("joined.gguf"), LAP_BAD_MODEL, words);
	write_file(at(part_name(1, 1)), joined.data, joined.n);
	expect_refused(at(part_name(1, 1)), LAP_BAD_MODEL, words);
	text_free(&joined);

	/* Bytes behind the data that are no GGUF are nobody's business. */
	struct text file = builder_file(tiny_llama());
	cr_assert(text_append(&file, "GGUF is the format\0\0\0\0\0", 24));
	write_file(at("tail.gguf"), file.data, file.n);
	text_free(&file);
	free(logits_of(at("tail.gguf"), 1));
}

Test(split, pieces_and_halves)
{
	struct text file = builder_file(tiny_llama());
	static const char *const pieces[] = {"m.gguf.part1of2", "m.gguf-split-a"};
	for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
		write_file(at(pieces[i]), file.data, file.n / 2);
		expect_refused(at(pieces[i]), LAP_BAD_MODEL, "join the pieces in their order");
	}
	static const char *const halves[] = {"m.gguf.incomplete", "m.gguf.part",
		"m.gguf.downloadInProgress", "m.gguf.crdownload"};
	for (size_t i = 0; i < ARRAY_COUNT(halves); i++) {
		write_file(at(halves[i]), file.data, file.n / (1 + i % 2));
		expect_refused(at(halves[i]), LAP_BAD_MODEL, "a download that is not finished");
	}
	text_free(&file);
}

Test(split, in_memory)
{
	struct split split;
	struct lap_error err;
	struct text file = builder_file(make_part(tiny_llama(), 1, false));
	cr_expect_eq(split_open_memory(file.data, file.n, "bytes", &split, &err), LAP_BAD_MODEL);
	cr_expect(strstr(err.text, "bytes: one part of a model split into 3"), "%s", err.text);
	cr_expect(!split.gguf && !split.files);
	text_free(&file);
	file = builder_file(tiny_llama());
	cr_assert_eq(split_open_memory(file.data, file.n, "bytes", &split, &err), LAP_OK, "%s",
		err.text);
	cr_expect(split.n_files == 1 && split.gguf->n_tensors == 21);
	split_close(&split);
	split_close(&split);
	text_free(&file);
}

/* The tensors of a mixed file, in three parts, are the same bytes. */
Test(split, golden_model)
{
	SKIP_WITHOUT("golden/mix-q4_k_m.gguf");
	struct split whole, parts;
	struct lap_error err;
	const char *path = shared_path("golden/mix-q4_k_m.gguf");
	cr_assert_eq(split_open(path, &whole, &err), LAP_OK, "%s", err.text);
	static struct builder all;
	for (uint64_t i = 0; i < whole.gguf->n_tensors; i++) {
		const struct gguf_tensor *t = &whole.gguf->tensors[i];
		builder_tensor(&all, t->name, weight_format(t->weight)->gguf_type,
			t->n_dims == 1 ? 0 : t->dims[1], t->dims[0], t->data, (size_t)t->n_bytes);
	}
	for (unsigned i = 0; i < N_PARTS; i++)
		write_builder(make_part(&all, i, true), part(i + 1));
	cr_assert_eq(split_open(part(2), &parts, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(parts.gguf->n_tensors, whole.gguf->n_tensors);
	for (uint64_t i = 0; i < whole.gguf->n_tensors; i++) {
		const struct gguf_tensor *t = &whole.gguf->tensors[i];
		const struct gguf_tensor *p = gguf_find_tensor(parts.gguf, t->name);
		cr_assert(p, "%s", t->name);
		cr_expect(p->weight == t->weight && p->n_bytes == t->n_bytes);
		cr_expect_arr_eq(p->data, t->data, t->n_bytes, "%s", t->name);
	}
	split_close(&parts);
	split_close(&whole);
	builder_free(&all);
}
