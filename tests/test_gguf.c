/* GGUF files: what is read, and that every malformed file is refused with its own clear line.
 *
 * Files are built in memory; each is handed over in an allocation of its exact size, so that a byte
 * read past its end is seen by AddressSanitizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "gguf_builder.h"
#include "support.h"

/* A file in memory that ends where its bytes end. */
struct opened {
	uint8_t *bytes;
	struct gguf *g;
	enum lap_status status;
	struct lap_error err;
};

static struct opened open_bytes(const void *bytes, size_t n)
{
	struct opened o = {.bytes = malloc(n ? n : 1)};
	cr_assert(o.bytes);
	if (n)
		memcpy(o.bytes, bytes, n);
	o.status = gguf_open(o.bytes, n, "x.gguf", &o.g, &o.err);
	cr_expect_eq(o.status == LAP_OK, o.g != NULL);
	return o;
}

static struct opened open_builder(struct builder *b)
{
	struct text file = builder_file(b);
	struct opened o = open_bytes(file.data, file.n);
	text_free(&file);
	builder_free(b);
	return o;
}

static void close_file(struct opened *o)
{
	gguf_close(o->g);
	free(o->bytes);
}

/* LAP_BAD_MODEL with `words` in a line that starts with the path. */
static void expect_refused(struct opened *o, const char *words)
{
	cr_expect_eq(
		o->status, LAP_BAD_MODEL, "status %d, expected a refusal: %s", o->status, words);
	if (o->status) {
		cr_expect(
			strstr(o->err.text, words), "\"%s\" is not in \"%s\"", words, o->err.text);
		cr_expect_eq(strncmp(o->err.text, "x.gguf: ", 8), 0, "%s", o->err.text);
		cr_expect_null(strchr(o->err.text, '\n'));
	}
	close_file(o);
}

static void expect_bytes_refused(const void *bytes, size_t n, const char *words)
{
	struct opened o = open_bytes(bytes, n);
	expect_refused(&o, words);
}

static struct builder *new_builder(void)
{
	static struct builder b;
	builder_free(&b);
	return &b;
}

/* Two keys and two tensors, a few hundred bytes. */
static struct builder *small_builder(void)
{
	struct builder *b = new_builder();
	builder_u32(b, "some.number", 42);
	builder_strings(b, "some.words", (const char *const[]){"one", "", "three"}, 3);
	builder_noise(b, "a", 2, 3, 1);
	builder_noise(b, "b", 0, 5, 2);
	return b;
}

/* ---- reading ----------------------------------------------------------------------------------- */

Test(gguf, reads_what_was_written)
{
	struct builder *b = small_builder();
	builder_f32(b, "some.float", -2.5f);
	builder_bool(b, "some.bool", true);
	builder_i32s(b, "some.integers", (const int32_t[]){-1, 2, INT32_MAX}, 3);
	builder_f32s(b, "some.floats", (const float[]){0.5f, -1.25f}, 2);
	struct opened o = open_builder(b);
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	cr_expect_str_eq(o.g->path, "x.gguf");
	cr_expect_eq(o.g->version, 3);
	cr_expect_eq(o.g->alignment, 32);
	cr_expect_eq(o.g->n_kv, 6);
	cr_expect_eq(o.g->n_tensors, 2);
	cr_expect_str_eq(o.g->kv[0].key, "some.number", "in the order of the file");
	cr_expect_null(gguf_find(o.g, "some"));
	cr_expect_null(gguf_find_tensor(o.g, "c"));

	const struct gguf_kv *words = gguf_find(o.g, "some.words");
	cr_assert(words && words->type == GGUF_ARRAY && words->element == GGUF_STRING);
	cr_assert_eq(words->n, 3);
	cr_expect(words->strings[0].n == 3 && memcmp(words->strings[0].data, "one", 3) == 0);
	cr_expect_eq(words->strings[1].n, 0);
	cr_expect(words->strings[2].n == 5 && memcmp(words->strings[2].data, "three", 5) == 0);

	const struct gguf_kv *integers = gguf_find(o.g, "some.integers");
	cr_assert(integers && integers->n == 3);
	cr_expect_eq(gguf_number(integers, 0), -1);
	cr_expect_eq(gguf_number(integers, 2), INT32_MAX);
	cr_expect_eq(gguf_number(gguf_find(o.g, "some.floats"), 1), -1.25);
	cr_expect_eq(gguf_number(gguf_find(o.g, "some.float"), 0), -2.5);

	const struct gguf_tensor *a = gguf_find_tensor(o.g, "a");
	cr_assert(a);
	cr_expect_eq(a->n_dims, 2);
	cr_expect(a->dims[0] == 3 && a->dims[1] == 2 && a->dims[2] == 1 && a->dims[3] == 1);
	cr_expect_eq(a->weight, WEIGHT_f32);
	cr_expect(a->n_weights == 6 && a->n_bytes == 24);
	const struct gguf_tensor *vector = gguf_find_tensor(o.g, "b");
	cr_assert(vector);
	cr_expect(vector->n_dims == 1 && vector->dims[0] == 5 && vector->dims[1] == 1);
	for (int i = 0; i < 5; i++)
		cr_expect_eq(memcmp(vector->data + 4 * i, "\0\0\x80\x3F", 4), 0, "1.0f");
	cr_expect_eq((vector->data - o.bytes) % 32, 0);
	close_file(&o);
}

Test(gguf, versions_and_alignment)
{
	for (uint32_t version = 2; version <= 3; version++)
		for (uint32_t alignment = 8; alignment <= 65536; alignment *= 2) {
			struct builder *b = small_builder();
			b->version = version;
			b->alignment = alignment;
			builder_u32(b, "general.alignment", alignment);
			struct opened o = open_builder(b);
			cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
			cr_expect_eq(o.g->version, version);
			cr_expect_eq(o.g->alignment, alignment);
			cr_expect_eq(
				memcmp(gguf_find_tensor(o.g, "b")->data, "\0\0\x80\x3F", 4), 0);
			close_file(&o);
		}
}

Test(gguf, no_keys_and_no_tensors)
{
	struct opened o = open_builder(new_builder());
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	cr_expect_null(gguf_find(o.g, "general.architecture"));
	cr_expect_null(gguf_find_tensor(o.g, "token_embd.weight"));
	close_file(&o);
	gguf_close(NULL);
}

Test(gguf, typed_reads)
{
	struct builder *b = new_builder();
	static const enum gguf_type integers[] = {
		GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64};
	char key[32];
	for (size_t i = 0; i < ARRAY_COUNT(integers); i++) {
		snprintf(key, sizeof key, "integer.%d", integers[i]);
		builder_int(b, key, integers[i], 100 + i);
	}
	builder_int(b, "negative", GGUF_I8, (uint64_t)-3);
	builder_int(b, "large", GGUF_U64, UINT64_C(1) << 32);
	builder_int(b, "largest", GGUF_U64, UINT32_MAX);
	builder_f64(b, "double", 0.1);
	builder_f64(b, "huge", 1e300);
	builder_string(b, "word", "llama");
	builder_bool(b, "no", false);
	builder_u32(b, "number", 1);
	builder_i32s(b, "array", (const int32_t[]){1}, 1);
	struct opened o = open_builder(b);
	struct lap_error err = {0};
	uint32_t n = 7;
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	for (size_t i = 0; i < ARRAY_COUNT(integers); i++) {
		snprintf(key, sizeof key, "integer.%d", integers[i]);
		cr_expect_eq(gguf_u32(o.g, key, &n, &err), LAP_OK, "%s", err.text);
		cr_expect_eq(n, 100 + i);
	}
	cr_expect_eq(gguf_u32(o.g, "largest", &n, &err), LAP_OK);
	cr_expect_eq(n, UINT32_MAX);
	n = 7;
	cr_expect_eq(gguf_u32(o.g, "absent", &n, &err), LAP_OK);
	static const struct {
		const char *key, *words;
	} bad[] = {{"negative", "negative is -3"}, {"large", "large is 4294967296"},
		{"double", "double is of type f64, expected an integer"},
		{"word", "word is of type string"}, {"no", "no is of type bool"},
		{"array", "array is an array of 1 i32"}};
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
		cr_expect_eq(gguf_u32(o.g, bad[i].key, &n, &err), LAP_BAD_MODEL, "%s", bad[i].key);
		cr_expect(strstr(err.text, bad[i].words), "%s", err.text);
	}
	cr_expect_eq(n, 7, "left as it was");

	float f = 7;
	cr_expect_eq(gguf_f32(o.g, "double", &f, &err), LAP_OK);
	cr_expect_eq(f, 0.1f);
	f = 7;
	cr_expect_eq(gguf_f32(o.g, "absent", &f, &err), LAP_OK);
	cr_expect_eq(gguf_f32(o.g, "huge", &f, &err), LAP_BAD_MODEL);
	cr_expect_eq(gguf_f32(o.g, "number", &f, &err), LAP_BAD_MODEL);
	cr_expect_eq(f, 7);

	bool flag = true;
	cr_expect_eq(gguf_bool(o.g, "absent", &flag, &err), LAP_OK);
	cr_expect(flag);
	cr_expect_eq(gguf_bool(o.g, "no", &flag, &err), LAP_OK);
	cr_expect_not(flag);
	cr_expect_eq(gguf_bool(o.g, "number", &flag, &err), LAP_BAD_MODEL);

	struct gguf_string s = {0};
	cr_expect_eq(gguf_string(o.g, "word", &s, &err), LAP_OK);
	cr_expect(s.n == 5 && memcmp(s.data, "llama", 5) == 0);
	cr_expect_eq(gguf_string(o.g, "number", &s, &err), LAP_BAD_MODEL);
	close_file(&o);
}

Test(gguf, shows_strings_safely)
{
	char out[GGUF_SHOW_BYTES], many[200];
	cr_expect_str_eq(gguf_show((struct gguf_string){"a\033[1m\n\xC3\xA9", 8}, out), "a?[1m???");
	memset(many, 'x', sizeof many);
	cr_expect_eq(strlen(gguf_show((struct gguf_string){many, sizeof many}, out)),
		GGUF_SHOW_BYTES - 1);
}

/* ---- other files ------------------------------------------------------------------------------- */

#define BYTES(literal) (literal), sizeof(literal) - 1

Test(gguf, other_kinds_of_file_are_named)
{
	expect_bytes_refused(BYTES(""), "the file is empty");
	expect_bytes_refused(BYTES("GG"), "the file has 2 bytes");
	expect_bytes_refused(BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:0"),
		"a Git LFS pointer, not the model itself: fetch it");
	expect_bytes_refused(BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
				   "size 4683074240\n"),
		"a Git LFS pointer to 4683074240 bytes, not the model itself: fetch it");
	expect_bytes_refused(BYTES("version https://git-lfs.github.com/spec/v1\nsize "
				   "99999999999999999999999\n"),
		"a Git LFS pointer, not");
	expect_bytes_refused(BYTES("<!DOCTYPE html><html>"), "a web page");
	expect_bytes_refused(BYTES("\n\n <HTML lang=en>"), "a web page");
	expect_bytes_refused(BYTES("\x40\0\0\0\0\0\0\0{\"weight\":"), "a safetensors file");
	expect_bytes_refused(BYTES("PK\x03\x04....."), "a zip archive");
	expect_bytes_refused(BYTES("\x80\x02}q"), "a Python pickle");
	expect_bytes_refused(BYTES("\x80\x04\x95\0"), "a Python pickle");
	expect_bytes_refused(BYTES("tjgg\x03\0\0\0"), "from before GGUF");
	expect_bytes_refused(BYTES("lmgg\0\x7D\0\0"), "from before GGUF");
	expect_bytes_refused(BYTES("fmgg\x01\0\0\0"), "from before GGUF");
	expect_bytes_refused(BYTES("algg\x01\0\0\0"), "a LoRA adapter from before GGUF");
	expect_bytes_refused(BYTES("\x89HDF\r\n\x1A\n"), "an HDF5 file");
	expect_bytes_refused(BYTES("\x02\0\0\0\x13\0\0\0blk.0.attn_k.weight\x08\0\0\0"),
		"an importance matrix (imatrix)");
	expect_bytes_refused(BYTES("\x02\0\0\0\x14\0\0\0blk.0.attn_k.weight\x08\0\0\0"),
		"02 00 00 00, expected \"GGUF\"");
	expect_bytes_refused(BYTES("\0\0\0\0\0\0\0\0"), "a file of zeros");
	expect_bytes_refused(BYTES("\0\0\0\0\0\0\0\x01"), "00 00 00 00, expected \"GGUF\"");
	expect_bytes_refused(BYTES("Entry not found"), "a short text, not the model itself");
	expect_bytes_refused(BYTES("{\"error\": \"Repository not found\"}"), "a short text");
	expect_bytes_refused(BYTES("\xFD\x37zXZ\0"), "compressed with xz");
	expect_bytes_refused(BYTES("FUGG\0\0\0\x03"), "a big-endian GGUF file");
	expect_bytes_refused(BYTES("GGUF\0\0\0\x03\0\0\0\0"), "a big-endian GGUF file");
	expect_bytes_refused(BYTES("GGUF\x01\0\0\0\0\0\0\0\0\0\0\0"),
		"GGUF version 1, expected 2 or 3: convert");
	expect_bytes_refused(
		BYTES("GGUF\x04\0\0\0\0\0\0\0\0\0\0\0"), "GGUF version 4, expected 2 or 3");
	expect_bytes_refused(BYTES("GGUF\0\0\0\0\0\0\0\0\0\0\0\0"), "GGUF version 0");
	expect_bytes_refused(BYTES("GGUX\x03\0\0\0"), "47 47 55 58, expected \"GGUF\"");
}

/* Two files in one, whatever lies between the two; a word that only looks like a second file is none. */
Test(gguf, a_second_file_behind_the_first)
{
	struct text one = builder_file(new_builder());
	char words[64];
	for (size_t gap = 0; gap <= 4096; gap = gap * 4 + 1) {
		static const char zeros[4096];
		struct text two = {0};
		cr_assert(text_append(&two, one.data, one.n) && text_append(&two, zeros, gap));
		snprintf(words, sizeof words, "a second GGUF file begins at byte %zu of", two.n);
		cr_assert(text_append(&two, one.data, one.n));
		expect_bytes_refused(two.data, two.n, words);
		two.data[one.n + gap + 4] = 4; /* a version that nobody wrote */
		struct gguf *g;
		cr_expect_eq(gguf_open(two.data, two.n, "x", &g, NULL), LAP_OK);
		gguf_close(g);
		text_free(&two);
	}
	text_free(&one);
}

Test(gguf, nobody_needs_the_message)
{
	struct gguf *g;
	cr_expect_eq(gguf_open("GGUX", 4, NULL, &g, NULL), LAP_BAD_MODEL);
	cr_expect_null(g);
}

/* ---- header numbers (OB-11) -------------------------------------------------------------------- */

Test(gguf, alignment_rules)
{
	static const uint32_t bad[] = {0, 1, 3, 7, 12, 33, 1u << 17, 1u << 30, UINT32_MAX};
	char words[64];
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
		struct builder *b = new_builder();
		builder_u32(b, "general.alignment", bad[i]);
		snprintf(words, sizeof words, "general.alignment is %u, expected a power of two",
			bad[i]);
		struct opened o = open_builder(b);
		expect_refused(&o, words);
	}
	struct builder *b = new_builder();
	builder_int(b, "general.alignment", GGUF_U64, 32);
	struct opened o = open_builder(b);
	expect_refused(&o, "general.alignment is of type u64, expected u32");
	b = new_builder();
	builder_string(b, "general.alignment", "32");
	o = open_builder(b);
	expect_refused(&o, "general.alignment is of type string, expected u32");
}

/* The report's file: 57 bytes, nothing but the key. */
Test(gguf, alignment_zero_in_57_bytes)
{
	static const char file[] = "GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
				   "\x11\0\0\0\0\0\0\0general.alignment\x04\0\0\0\0\0\0\0";
	cr_assert_eq(sizeof file - 1, 57);
	expect_bytes_refused(BYTES(file), "general.alignment is 0");
}

Test(gguf, numbers_of_dimensions)
{
	static const uint32_t bad[] = {0, 5, 9, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
		struct builder *b = small_builder();
		struct builder_tensor *t = builder_get_tensor(b, "a");
		t->n_dims = bad[i];
		for (size_t j = 2; j < ARRAY_COUNT(t->dims); j++)
			t->dims[j] = 1;
		struct opened o = open_builder(b);
		expect_refused(&o, "dimensions, expected 1 to 4");
	}
}

Test(gguf, dimensions_that_overflow)
{
	static const struct {
		uint64_t dims[4];
		uint32_t n_dims;
		const char *words;
	} cases[] = {
		{{UINT64_C(1) << 32, UINT64_C(1) << 32}, 2, "expected a size below 2^64"},
		{{UINT64_C(1) << 62, 1}, 2, "expected a size below 2^64"},
		{{3, UINT64_C(1) << 63}, 2, "expected a size below 2^64"},
		{{2, UINT64_C(1) << 61}, 2, "expected a size below 2^64"}, /* 2^64 bytes */
		{{2, UINT64_C(1) << 21, UINT64_C(1) << 21, UINT64_C(1) << 21}, 4, "below 2^64"},
		{{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, 4, "below 2^64"},
		{{1, UINT64_C(1) << 61}, 2, "of 9223372036854776"},
		{{3, 0}, 2, "dimension 1 of a is 0"},
		{{0, 3}, 2, "dimension 0 of a is 0"},
		{{3, 2, 1, 0}, 4, "dimension 3 of a is 0"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct builder *b = small_builder();
		struct builder_tensor *t = builder_get_tensor(b, "a");
		memcpy(t->dims, cases[i].dims, sizeof cases[i].dims);
		t->n_dims = cases[i].n_dims;
		struct opened o = open_builder(b);
		expect_refused(&o, cases[i].words);
	}
}

Test(gguf, tensor_types)
{
	struct builder *b = small_builder();
	builder_get_tensor(b, "a")->type = 40;
	struct opened o = open_builder(b);
	cr_expect(strstr(o.err.text, weight_list()), "%s", o.err.text);
	expect_refused(&o, "a has type NVFP4 (40), supported are ");
	b = small_builder();
	builder_get_tensor(b, "a")->type = 250;
	o = open_builder(b);
	expect_refused(&o, "a has type unknown (250)");
	b = small_builder();
	builder_get_tensor(b, "a")->type = 8;
	o = open_builder(b);
	expect_refused(&o, "rows of a have 3 weights, expected a multiple of 32 for Q8_0");
}

Test(gguf, offsets)
{
	static const struct {
		uint64_t offset;
		const char *words;
	} cases[] = {
		{36, "b is at offset 36, expected a multiple of 32"},
		{UINT64_C(1) << 40, "1099511627"},
		{UINT64_MAX - 31, "b has 20 bytes at offset 18446744073709551584"},
		{0, "the data of a and b overlap"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct builder *b = small_builder();
		struct builder_tensor *t = builder_get_tensor(b, "b");
		t->has_offset = true;
		t->offset = cases[i].offset;
		struct opened o = open_builder(b);
		expect_refused(&o, cases[i].words);
	}
}

/* Their data may lie in any order. */
Test(gguf, tensors_out_of_order)
{
	struct builder *b = small_builder();
	builder_get_tensor(b, "a")->has_offset = builder_get_tensor(b, "b")->has_offset = true;
	builder_get_tensor(b, "a")->offset = 32;
	struct opened o = open_builder(b);
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	cr_expect_eq(gguf_find_tensor(o.g, "a")->data - gguf_find_tensor(o.g, "b")->data, 32);
	close_file(&o);
}

/* ---- counts and lengths ------------------------------------------------------------------------ */

Test(gguf, announced_counts)
{
	static const struct {
		uint64_t n_kv, n_tensors;
	} counts[] = {{UINT64_C(1) << 60, 2}, {2, UINT64_C(1) << 63}, {UINT64_MAX, UINT64_MAX},
		{UINT64_C(0x666666666666667), 2}, {1000, 2}, {2, 1000}};
	for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
		struct builder *b = small_builder();
		b->has_counts = true;
		b->n_kv_announced = counts[i].n_kv;
		b->n_tensors_announced = counts[i].n_tensors;
		struct opened o = open_builder(b);
		expect_refused(&o, "that its header announces");
	}
	struct builder *b = small_builder();
	b->has_counts = true;
	b->n_kv_announced = 2;
	b->n_tensors_announced = 3;
	struct opened o = open_builder(b);
	expect_refused(&o, "");
}

Test(gguf, array_lengths)
{
	static const uint64_t counts[] = {
		5, (UINT64_C(1) << 62) + 1, UINT64_C(1) << 61, UINT64_MAX};
	static const enum gguf_type elements[] = {GGUF_U32, GGUF_STRING, GGUF_BOOL, GGUF_F64};
	for (size_t i = 0; i < ARRAY_COUNT(counts); i++)
		for (size_t j = 0; j < ARRAY_COUNT(elements); j++) {
			struct builder *b = new_builder();
			builder_array(b, "an.array", elements[j], counts[i]);
			struct text file = builder_file(b);
			size_t n = 24 + 8 + 8 + 4 + 12; /* without the padding: the array is last */
			expect_bytes_refused(file.data, n, "an.array announces");
			text_free(&file);
		}
	struct builder *b = new_builder();
	builder_array(b, "an.array", GGUF_STRING, 0);
	builder_array(b, "another", GGUF_F64, 0);
	struct opened o = open_builder(b);
	cr_expect_eq(o.status, LAP_OK, "empty arrays are fine: %s", o.err.text);
	close_file(&o);
}

Test(gguf, string_lengths)
{
	static const uint64_t lengths[] = {6, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 7};
	for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
		struct builder *b = new_builder();
		struct text *value = builder_set(b, "a.word", GGUF_STRING);
		builder_number(value, lengths[i], 8);
		struct text file = builder_file(b);
		expect_bytes_refused(
			file.data, 24 + 8 + 6 + 4 + 8, "ends inside the value of a.word");
		text_free(&file);
		builder_free(b);
	}
}

Test(gguf, value_types)
{
	struct builder *b = new_builder();
	builder_number(builder_set(b, "a.key", 77), 1, 4);
	struct opened o = open_builder(b);
	expect_refused(&o, "a.key has value type 77");
	b = new_builder();
	builder_number(builder_array(b, "a.key", 13, 1), 1, 8);
	o = open_builder(b);
	expect_refused(&o, "a.key has elements of type 13");
	b = new_builder();
	builder_int(b, "a.key", GGUF_BOOL, 2);
	o = open_builder(b);
	expect_refused(&o, "a.key has the bool 2, expected 0 or 1");
	b = new_builder();
	builder_number(builder_array(b, "a.key", GGUF_BOOL, 3), 0x020100, 3);
	o = open_builder(b);
	expect_refused(&o, "a.key has the bool 2");
}

Test(gguf, nested_arrays)
{
	struct builder *b = new_builder();
	struct text *value = builder_set(b, "a.key", GGUF_ARRAY);
	for (int depth = 0; depth < 10000; depth++) {
		builder_number(value, GGUF_ARRAY, 4);
		builder_number(value, 1, 8);
	}
	struct opened o = open_builder(b);
	expect_refused(&o, "a.key is an array of arrays");
}

/* ---- names ------------------------------------------------------------------------------------- */

Test(gguf, duplicates)
{
	struct builder *b = small_builder();
	builder_number(&builder_add(b, "some.number", GGUF_U32)->value, 1, 4);
	struct opened o = open_builder(b);
	expect_refused(&o, "the key some.number is there twice");
	b = small_builder();
	builder_noise(b, "a", 1, 1, 3);
	o = open_builder(b);
	expect_refused(&o, "the tensor a is there twice");
}

Test(gguf, bad_names)
{
	struct builder *b = new_builder();
	builder_u32(b, "", 1);
	struct opened o = open_builder(b);
	expect_refused(&o, "key 0 has a name of 0 bytes");
	static const char *const names[] = {"a\nb", "a\033[31m", "a\x7F", "a\xFF", "a\xC3"};
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		b = new_builder();
		builder_u32(b, names[i], 1);
		o = open_builder(b);
		expect_refused(&o, "expected printable UTF-8");
		b = new_builder();
		builder_noise(b, names[i], 1, 1, 1);
		o = open_builder(b);
		expect_refused(&o, "expected printable UTF-8");
	}
	b = new_builder();
	builder_bytes(&builder_add(b, "a", GGUF_U32)->key, "\0b", 2);
	builder_number(&b->kv[0].value, 1, 4);
	o = open_builder(b);
	expect_refused(&o, "has the byte 0x00");
	b = new_builder();
	struct builder_kv *kv = builder_add(b, "k", GGUF_U8);
	for (int i = 0; i < 65535; i++)
		builder_bytes(&kv->key, "k", 1);
	builder_number(&kv->value, 1, 1);
	o = open_builder(b);
	expect_refused(&o, "has a name of 65536 bytes");
}

/* ---- damage (more of it: test_gguf_untrusted.c) --------------------------------------------------- */

/* Cut at every length: refused at each but the full one, and never read past its end. */
Test(gguf, cut_anywhere)
{
	struct builder *b = small_builder();
	struct text file = builder_file(b);
	size_t end = file.n - 12; /* b has 20 bytes, then padding that may be missing */
	for (size_t n = 0; n < end; n++) {
		struct opened o = open_bytes(file.data, n);
		cr_expect_eq(o.status, LAP_BAD_MODEL, "cut to %zu of %zu bytes", n, end);
		close_file(&o);
	}
	for (size_t n = end; n <= file.n; n++) {
		struct opened o = open_bytes(file.data, n);
		cr_expect_eq(o.status, LAP_OK, "%s", o.err.text);
		close_file(&o);
	}
	char words[64];
	snprintf(words, sizeof words, "the file has %zu of %zu bytes", end - 1, end);
	expect_bytes_refused(file.data, end - 1, words);
	text_free(&file);
	builder_free(b);
}

/* ---- keys from the outside --------------------------------------------------------------------- */

Test(gguf, overrides_set_and_add_keys)
{
	struct builder b = {0};
	builder_u32(&b, "x.there", 5);
	struct opened o = open_builder(&b);
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	static const char *const texts[] = {"x.there=int:7", "x.new=float:-2.5e-1",
		"x.on=bool:true", "x.off=bool:false", "x.name=str:a=b:c",
		"x.none=str:", "x.there=int:9"};
	cr_assert_eq(
		gguf_override(o.g, texts, ARRAY_COUNT(texts), &o.err), LAP_OK, "%s", o.err.text);
	uint32_t there = 0;
	float number = 0;
	bool on = false, off = true;
	struct gguf_string name = {0}, none = {"x", 1};
	cr_expect_eq(gguf_u32(o.g, "x.there", &there, &o.err), LAP_OK);
	cr_expect_eq(there, 9, "the last counts");
	cr_expect_eq(gguf_f32(o.g, "x.new", &number, &o.err), LAP_OK);
	cr_expect(number == -0.25f);
	cr_expect_eq(gguf_bool(o.g, "x.on", &on, &o.err), LAP_OK);
	cr_expect_eq(gguf_bool(o.g, "x.off", &off, &o.err), LAP_OK);
	cr_expect(on && !off);
	cr_expect_eq(gguf_string(o.g, "x.name", &name, &o.err), LAP_OK);
	cr_expect(name.n == 5 && memcmp(name.data, "a=b:c", 5) == 0);
	cr_expect_eq(gguf_string(o.g, "x.none", &none, &o.err), LAP_OK);
	cr_expect_eq(none.n, 0);
	cr_expect_eq(o.g->n_kv, 6);
	static const char *const negative[] = {"x.there=int:-1"};
	cr_assert_eq(gguf_override(o.g, negative, 1, &o.err), LAP_OK);
	cr_expect_eq(gguf_u32(o.g, "x.there", &there, &o.err), LAP_BAD_MODEL, "found %u", there);
	close_file(&o);
}

Test(gguf, malformed_overrides)
{
	static const struct {
		const char *text, *found, *expected;
	} cases[] = {
		{"", "\"\"", "KEY=TYPE:VALUE"},
		{"a.b", "a.b", "KEY=TYPE:VALUE"},
		{"a.b=3", "a.b=3", "KEY=TYPE:VALUE"},
		{"=int:3", "=int:3", "KEY=TYPE:VALUE"},
		{"a.b=u32:3", "\"u32\"", "int, float, bool or str"},
		{"a.b=in:3", "\"in\"", "int, float, bool or str"},
		{"a.b=:3", "\"\"", "int, float, bool or str"},
		{"a.b=int:", "\"\"", "a whole number"},
		{"a.b=int:3x", "\"3x\"", "a whole number"},
		{"a.b=int: 3", "\" 3\"", "a whole number"},
		{"a.b=int:9223372036854775808", "9223372036854775808", "a whole number"},
		{"a.b=float:", "\"\"", "a number"},
		{"a.b=float:nan", "\"nan\"", "a number"},
		{"a.b=float:1e999", "1e999", "a number"},
		{"a.b=bool:1", "\"1\"", "true or false"},
		{"general.alignment=int:8", "general.alignment", "another one"},
	};
	struct builder b = {0};
	builder_u32(&b, "x.there", 5);
	struct opened o = open_builder(&b);
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const char *const texts[] = {"x.there=int:6", cases[i].text};
		cr_expect_eq(gguf_override(o.g, texts, 2, &o.err), LAP_USAGE, "%s", cases[i].text);
		cr_expect(strstr(o.err.text, cases[i].found), "%s", o.err.text);
		cr_expect(strstr(o.err.text, cases[i].expected), "%s", o.err.text);
		uint32_t there = 0;
		cr_expect_eq(gguf_u32(o.g, "x.there", &there, &o.err), LAP_OK);
		cr_expect(there == 5 && o.g->n_kv == 1, "the gguf is as it was");
	}
	close_file(&o);
}
