/* Text to tokens and back: other engines' ids for real vocabularies, hand-made vocabularies whose
 * right ids follow from the definition, and the plain form of the merge algorithm as an oracle. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_builder.h"
#include "support.h"
#include "tokenizer.h"
#include "tokenizer_vectors.h"

/* ---- helpers --------------------------------------------------------------------------------- */

/* A tokenizer that must exist, from the bytes of a GGUF. */
static struct tokenizer *tokenizer_of(const void *bytes, size_t n_bytes, const char *name)
{
	struct lap_error err = {0};
	struct gguf *gguf;
	struct tokenizer *t = NULL;
	cr_assert_eq(gguf_open(bytes, n_bytes, name, &gguf, &err), LAP_OK, "%s", err.text);
	double start = clock_cpu_seconds();
	cr_assert_eq(tokenizer_create(gguf, &t, &err), LAP_OK, "%s", err.text);
	double seconds = clock_cpu_seconds() - start;
	cr_expect_lt(seconds, 2.0, "%s: loaded in %g s", name, seconds); /* 0.2 when optimised */
	gguf_close(gguf);
	return t;
}

static struct tokenizer *open_file(const char *path)
{
	size_t n;
	char *bytes = read_text(path, &n);
	struct tokenizer *t = tokenizer_of(bytes, n, path);
	free(bytes);
	return t;
}

/* The vocabulary of a file in tokenizers/ of the shared data. */
static struct tokenizer *open_shared(const char *file)
{
	char relative[512];
	snprintf(relative, sizeof relative, "tokenizers/%s", file);
	struct text bytes = read_shared(relative);
	struct tokenizer *t = tokenizer_of(bytes.data, bytes.n, file);
	text_free(&bytes);
	return t;
}

static struct ids encode_bytes(
	const struct tokenizer *t, const char *text, size_t n, bool add_special, bool parse_special)
{
	struct ids ids;
	struct lap_error err = {0};
	enum lap_status status =
		tokenizer_encode(t, text, n, add_special, parse_special, &ids.at, &ids.n, &err);
	cr_assert_eq(status, LAP_OK, "%s", err.text);
	cr_assert_not_null(ids.at);
	return ids;
}

/* Decodes token by token and checks that no step hands out half a character of valid text. */
static struct text decode(const struct tokenizer *t, struct ids ids, bool special)
{
	struct decoder d = {.special = special};
	struct text out = {0};
	cr_assert(text_append(&out, "", 0));
	for (size_t i = 0; i < ids.n; i++)
		cr_assert(decoder_add(t, &d, ids.at[i], &out));
	cr_assert(decoder_finish(&d, &out));
	return out;
}

static bool is_utf8(const char *s, size_t n)
{
	uint32_t code;
	for (unsigned length; n > 0; s += length, n -= length)
		if ((length = utf8_decode(s, n, &code)) == 0)
			return false;
	return true;
}

/* Readable ids, in one of a few buffers. */
static const char *show(struct ids ids)
{
	static char buffers[4][1024];
	static unsigned turn;
	char *s = buffers[turn++ % 4];
	size_t at = 0;
	s[0] = '\0';
	for (size_t i = 0; i < ids.n && at + 16 < sizeof buffers[0]; i++)
		at += (size_t)snprintf(s + at, 16, "%s%d", i ? " " : "", ids.at[i]);
	return s;
}

static void expect_bytes(const struct tokenizer *t, const char *text, size_t n, bool add_special,
	bool parse_special, const char *expected)
{
	struct ids ids = encode_bytes(t, text, n, add_special, parse_special);
	cr_expect_str_eq(show(ids), expected, "\"%s\": %s, expected %s", text, show(ids), expected);
	free(ids.at);
}

/* Ids of a string as text "1 2 3", with special tokens parsed and without BOS. */
static void expect_ids(const struct tokenizer *t, const char *text, const char *expected)
{
	expect_bytes(t, text, strlen(text), false, true, expected);
}

static void expect_round_trip(const struct tokenizer *t, const char *text, size_t n, bool parse)
{
	struct ids ids = encode_bytes(t, text, n, false, parse);
	struct text out = decode(t, ids, true);
	cr_expect(
		out.n == n && memcmp(out.data, text, n) == 0, "%.*s -> %s", (int)n, text, out.data);
	/* Streamed: what comes out is whole characters, and in sum the same. */
	struct decoder d = {.special = true};
	struct text streamed = {0};
	for (size_t i = 0; i < ids.n; i++) {
		size_t before = streamed.n;
		cr_assert(decoder_add(t, &d, ids.at[i], &streamed));
		if (is_utf8(text, n) && streamed.n > before)
			cr_expect(is_utf8(streamed.data + before, streamed.n - before));
	}
	cr_assert(decoder_finish(&d, &streamed));
	cr_expect(streamed.n == out.n && (out.n == 0 || !memcmp(streamed.data, out.data, out.n)));
	text_free(&streamed);
	text_free(&out);
	free(ids.at);
}

/* WordPiece loses capitals and spaces, but what it decodes to has the same tokens again. */
static void expect_same_again(const struct tokenizer *t, const char *text, size_t n, bool parse)
{
	struct ids ids = encode_bytes(t, text, n, false, parse);
	struct text out = decode(t, ids, true);
	struct ids again = encode_bytes(t, out.data, out.n, false, true);
	cr_expect(again.n == ids.n && memcmp(again.at, ids.at, ids.n * sizeof *ids.at) == 0,
		"%.*s -> %s: %s, expected %s", (int)n, text, out.data, show(again), show(ids));
	free(again.at);
	text_free(&out);
	free(ids.at);
}

/* ---- vectors of other engines ---------------------------------------------------------------- */

/* True when the vocabulary has each byte: Falcon's lacks some. */
static bool is_spelled(const struct tokenizer *t, const char *s, size_t n)
{
	bool spelled = true;
	for (size_t i = 0; i < n && strcmp(tokenizer_info(t)->model, "gpt2") == 0; i++) {
		struct ids ids = encode_bytes(t, s + i, 1, false, false);
		spelled = spelled && ids.n > 0;
		free(ids.at);
	}
	return spelled;
}

static void check_vector(void *user, const struct vector *v)
{
	const struct tokenizer *t = user;
	struct ids ids = encode_bytes(t, v->text, v->n, false, v->parse_special);
	bool same = ids.n == v->ids.n && memcmp(ids.at, v->ids.at, ids.n * sizeof *ids.at) == 0;
	cr_expect(same, "\"%.*s\" parse_special %d: %s, expected %s", (int)v->n, v->text,
		v->parse_special, show(ids), show(v->ids));
	free(ids.at);
	/* SPM writes a literal U+2581 as a space, and adds one behind each special token. */
	bool is_spm = strcmp(tokenizer_info(t)->model, "llama") == 0;
	bool exact = !is_spm ||
		(!strstr(v->text, "\xE2\x96\x81") && !(v->parse_special && v->has_special));
	if (strcmp(tokenizer_info(t)->model, "bert") == 0)
		expect_same_again(t, v->text, v->n, v->parse_special);
	else if (exact && is_spelled(t, v->text, v->n))
		expect_round_trip(t, v->text, v->n, v->parse_special);
}

static void check_inp_out(struct tokenizer *t, const char *name, size_t expected)
{
	size_t n = vectors_of_inp(name, check_vector, t);
	cr_expect_eq(n, expected, "%s: %zu texts", name, n);
}

static void check_jsonl(struct tokenizer *t, const char *name, size_t expected)
{
	size_t n = vectors_of_jsonl(name, check_vector, t);
	cr_expect_eq(n, expected, "%s: %zu lines", name, n);
}

/* ---- round trip of every token --------------------------------------------------------------- */

/* Any tokens, streamed: the bytes of all of them in order, never half of a character, control tokens only
 * where they are asked for. */
static void check_stream(const struct tokenizer *t, uint32_t seed, bool special)
{
	struct decoder d = {.special = special, .started = true};
	struct text whole = {0}, streamed = {0};
	size_t ends[64], n_shown;
	for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
		seed = seed * 1664525u + 1013904223u;
		/* Half of them among the first ids, where bytes and control tokens are. */
		uint32_t n_vocab = tokenizer_info(t)->n_vocab, n = seed >> 31 ? n_vocab : 300;
		int32_t id = (int32_t)((seed >> 8) % (n < n_vocab ? n : n_vocab));
		const char *piece = tokenizer_piece(t, id, special, &n_shown);
		cr_assert(text_append(&whole, piece, n_shown));
		cr_assert(decoder_add(t, &d, id, &streamed));
		ends[i] = streamed.n;
	}
	cr_assert(decoder_finish(&d, &streamed));
	cr_expect(streamed.n == whole.n && !memcmp(streamed.data, whole.data, whole.n), "seed %u",
		seed);
	size_t i = 0, at = 0;
	while (at < whole.n) {
		uint32_t code;
		unsigned n = utf8_decode(whole.data + at, whole.n - at, &code);
		for (; i < ARRAY_COUNT(ends) && ends[i] < at + (n ? n : 1); i++)
			cr_expect_leq(ends[i], at, "half a character at %zu", at);
		at += n ? n : 1;
	}
	text_free(&whole);
	text_free(&streamed);
}

/* What hides a control token shows nothing of it; what shows it shows its name. */
static void check_control_tokens(const struct tokenizer *t)
{
	const int32_t ids[] = {tokenizer_info(t)->bos, tokenizer_info(t)->eos};
	for (size_t i = 0; i < ARRAY_COUNT(ids); i++) {
		if (ids[i] < 0)
			continue;
		struct ids one = {(int32_t[]){ids[i]}, 1};
		struct text hidden = decode(t, one, false), shown = decode(t, one, true);
		cr_expect_eq(hidden.n, 0, "token %d shows %s", ids[i], hidden.data);
		cr_expect_gt(shown.n, 0, "token %d", ids[i]);
		text_free(&hidden);
		text_free(&shown);
	}
}

static void check_streams(const struct tokenizer *t)
{
	for (uint32_t seed = 1; seed <= 400; seed++)
		check_stream(t, seed, seed % 2);
	check_control_tokens(t);
}

/* The rule: what a token decodes to has tokens that decode to the same; a control token is found
 * again itself.  (WordPiece: the decoded text of those tokens has the same tokens.) */
static void check_every_token(struct tokenizer *t)
{
	bool is_bert = strcmp(tokenizer_info(t)->model, "bert") == 0;
	check_streams(t);
	for (int32_t id = 0; id < (int32_t)tokenizer_info(t)->n_vocab; id++) {
		struct text text = decode(t, (struct ids){&id, 1}, true);
		struct ids ids = encode_bytes(t, text.data, text.n, false, true);
		struct text again = decode(t, ids, true);
		size_t n_shown, n;
		tokenizer_piece(t, id, false, &n_shown);
		tokenizer_piece(t, id, true, &n);
		if (is_bert)
			expect_same_again(t, text.data, text.n, true);
		else
			cr_expect(again.n == text.n && memcmp(again.data, text.data, text.n) == 0,
				"token %d: \"%s\" -> %s -> \"%s\"", id, text.data, show(ids),
				again.data);
		if (n > 0 && n_shown == 0)
			cr_expect(ids.n == 1 && ids.at[0] == id, "token %d: \"%s\" -> %s", id,
				text.data, show(ids));
		text_free(&again);
		text_free(&text);
		free(ids.at);
	}
}

/* The vocabularies of which only the vectors matter. */
static void check_vectors(const char *name, size_t expected_lines)
{
	char file[256];
	snprintf(file, sizeof file, "ggml-vocab-%s.gguf", name);
	struct tokenizer *t = open_shared(file);
	check_inp_out(t, file, 46);
	check_jsonl(t, name, expected_lines);
	check_every_token(t);
	tokenizer_destroy(t);
}

Test(tokenizer, deepseek_coder)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-deepseek-coder.gguf");
	check_vectors("deepseek-coder", 149);
}

Test(tokenizer, deepseek_llm)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-deepseek-llm.gguf");
	check_vectors("deepseek-llm", 153);
}

Test(tokenizer, falcon)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-falcon.gguf");
	check_vectors("falcon", 149);
}

Test(tokenizer, mpt)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-mpt.gguf");
	check_vectors("mpt", 149);
}

Test(tokenizer, refact)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-refact.gguf");
	check_vectors("refact", 149);
}

Test(tokenizer, starcoder)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-starcoder.gguf");
	check_vectors("starcoder", 153);
}

Test(tokenizer, bert)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-bert-bge.gguf");
	struct tokenizer *t = open_shared("ggml-vocab-bert-bge.gguf");
	check_inp_out(t, "ggml-vocab-bert-bge.gguf", 46);
	check_jsonl(t, "bert-bge", 149);
	check_every_token(t);
	expect_bytes(t, "Hello", 5, true, true, "101 7592 102");
	expect_ids(t, "[CLS] [MASK]x", "101 103 1060");
	expect_bytes(t, "[MASK]", 6, false, false, "1031 7308 1033");
	tokenizer_destroy(t);
}

Test(tokenizer, gpt_oss)
{
	SKIP_WITHOUT("tokenizers/vocab-gpt-oss.gguf.xz");
	struct tokenizer *t = open_shared("vocab-gpt-oss.gguf.xz");
	check_jsonl(t, "gpt-oss", 161);
	check_every_token(t);
	tokenizer_destroy(t);
}

Test(tokenizer, llama_spm)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-llama-spm.gguf");
	struct tokenizer *t = open_shared("ggml-vocab-llama-spm.gguf");
	check_inp_out(t, "ggml-vocab-llama-spm.gguf", 46);
	check_jsonl(t, "llama-spm", 157);
	check_every_token(t);
	cr_expect_eq(tokenizer_info(t)->n_vocab, 32000);
	cr_expect(tokenizer_info(t)->add_bos && !tokenizer_info(t)->add_eos);
	tokenizer_destroy(t);
}

Test(tokenizer, phi3)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-phi-3.gguf");
	struct tokenizer *t = open_shared("ggml-vocab-phi-3.gguf");
	check_inp_out(t, "ggml-vocab-phi-3.gguf", 46);
	check_jsonl(t, "phi-3", 149);
	check_every_token(t);
	tokenizer_destroy(t);
}

Test(tokenizer, gpt2)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-gpt-2.gguf");
	struct tokenizer *t = open_shared("ggml-vocab-gpt-2.gguf");
	check_inp_out(t, "ggml-vocab-gpt-2.gguf", 46);
	check_jsonl(t, "gpt-2", 153);
	check_every_token(t);
	cr_expect(!tokenizer_info(t)->add_bos);
	tokenizer_destroy(t);
}

Test(tokenizer, llama3)
{
	SKIP_WITHOUT("tokenizers/vocab-llama3.gguf.xz");
	struct tokenizer *t = open_shared("vocab-llama3.gguf.xz");
	check_inp_out(t, "ggml-vocab-llama-bpe.gguf", 46);
	check_jsonl(t, "llama3", 161);
	check_every_token(t);
	expect_bytes(t, "Hi", 2, true, true, "128000 13347");
	size_t n;
	const int32_t *ends = tokenizer_ends(t, &n);
	cr_expect(n == 2 && ends[0] == 128001 && ends[1] == 128009);
	tokenizer_destroy(t);
}

Test(tokenizer, qwen3)
{
	SKIP_WITHOUT("tokenizers/vocab-qwen3.gguf.xz");
	struct tokenizer *t = open_shared("vocab-qwen3.gguf.xz");
	check_inp_out(t, "ggml-vocab-qwen2.gguf", 46);
	check_jsonl(t, "qwen3", 160);
	check_every_token(t);
	cr_expect(tokenizer_is_end(t, 151645) && tokenizer_is_end(t, 151643));
	cr_expect(!tokenizer_is_end(t, 151644) && !tokenizer_is_end(t, -1));
	cr_expect_eq(tokenizer_info(t)->eot, 151645);
	tokenizer_destroy(t);
}

Test(tokenizer, gemma3)
{
	SKIP_WITHOUT("tokenizers/vocab-gemma3.gguf.xz");
	struct tokenizer *t = open_shared("vocab-gemma3.gguf.xz");
	check_jsonl(t, "gemma3", 160);
	check_every_token(t);
	cr_expect(!tokenizer_info(t)->add_space_prefix);
	cr_expect(tokenizer_is_end(t, 106) && tokenizer_is_end(t, 1));
	tokenizer_destroy(t);
}

/* ---- hand-made vocabularies ------------------------------------------------------------------ */

struct piece {
	const char *text;
	int32_t type;
	float score;
};

static void builder_pieces(
	struct builder *b, const char *model, const struct piece *pieces, size_t n)
{
	const char **texts = calloc(n, sizeof *texts);
	int32_t *types = calloc(n, sizeof *types);
	float *scores = calloc(n, sizeof *scores);
	for (size_t i = 0; i < n; i++) {
		texts[i] = pieces[i].text;
		types[i] = pieces[i].type;
		scores[i] = pieces[i].score;
	}
	builder_string(b, "general.architecture", "llama");
	builder_string(b, "tokenizer.ggml.model", model);
	builder_strings(b, "tokenizer.ggml.tokens", texts, n);
	builder_i32s(b, "tokenizer.ggml.token_type", types, n);
	if (strcmp(model, "llama") == 0)
		builder_f32s(b, "tokenizer.ggml.scores", scores, n);
	free(texts);
	free(types);
	free(scores);
}

static enum lap_status builder_try(struct builder *b, struct tokenizer **t, struct lap_error *err)
{
	struct text file = builder_file(b);
	struct gguf *gguf;
	cr_assert_eq(
		gguf_open(file.data, file.n, "made.gguf", &gguf, err), LAP_OK, "%s", err->text);
	enum lap_status status = tokenizer_create(gguf, t, err);
	gguf_close(gguf);
	text_free(&file);
	return status;
}

/* The tokenizer of a builder's keys, which are let go. */
static struct tokenizer *builder_tokenizer(struct builder *b)
{
	struct tokenizer *t;
	struct lap_error err = {0};
	cr_assert_eq(builder_try(b, &t, &err), LAP_OK, "%s", err.text);
	builder_free(b);
	return t;
}

static void expect_decoded(
	const struct tokenizer *t, const char *text, bool special, const char *expected)
{
	struct ids ids = encode_bytes(t, text, strlen(text), false, true);
	struct text out = decode(t, ids, special);
	cr_expect_str_eq(out.data, expected, "\"%s\" -> \"%s\"", text, out.data);
	text_free(&out);
	free(ids.at);
}

static struct builder b; /* too large for the stack */

/* The pieces of OB-14, scored as the llama-2 family does: runs of spaces come last. */
static const struct piece space_pieces[] = {
	{"<unk>", 2, 0},
	{"<s>", 3, 0},
	{"</s>", 3, 0},
	{"X", 3, 0},
	{"\u2581\u2581", 1, -1e9f},
	{"\u2581hi", 1, -2},
	{"hi", 1, -1},
	{"\u2581", 1, -3},
};

Test(tokenizer, space_prefix)
{
	builder_pieces(&b, "llama", space_pieces, ARRAY_COUNT(space_pieces));
	struct tokenizer *t = builder_tokenizer(&b);
	cr_expect(tokenizer_info(t)->add_space_prefix);
	expect_ids(t, "hi", "5");
	expect_ids(t, " hi", "7 5");
	expect_ids(t, "", "");
	expect_ids(t, " ", "4");
	expect_ids(t, "X hi", "3 7 5");
	expect_ids(t, "Xhi", "3 5");
	expect_ids(t, "X", "3");
	expect_ids(t, "hi X hi", "5 7 3 7 5");
	expect_decoded(t, "hi", true, "hi");
	expect_decoded(t, " hi", true, " hi");
	expect_decoded(t, "", true, "");
	expect_decoded(t, "Xhi", false, "hi");
	expect_decoded(t, "Xhi", true, "X hi");
	expect_decoded(t, "X hi", true, "X  hi");
	expect_decoded(t, "X hi", false, " hi");
	expect_decoded(t, "hihi", true, "hihi");
	expect_decoded(t, "hi X hi", true, "hi X  hi");
	/* Without parsing, X is a character that this vocabulary does not have. */
	expect_bytes(t, "X hi", 4, false, false, "7 0 5");
	expect_bytes(t, "hi", 2, true, true, "1 5");
	expect_bytes(t, "", 0, true, true, "1");
	/* Going on behind a prompt keeps the space. */
	struct decoder d = {.started = true};
	struct text out = {0};
	cr_assert(decoder_add(t, &d, 5, &out));
	cr_expect_str_eq(out.data, " hi");
	text_free(&out);
	tokenizer_destroy(t);
}

Test(tokenizer, no_space_prefix)
{
	builder_pieces(&b, "llama", space_pieces, ARRAY_COUNT(space_pieces));
	builder_bool(&b, "tokenizer.ggml.add_space_prefix", false);
	builder_bool(&b, "tokenizer.ggml.add_bos_token", false);
	builder_bool(&b, "tokenizer.ggml.add_eos_token", true);
	struct tokenizer *t = builder_tokenizer(&b);
	expect_ids(t, "hi", "6");
	expect_ids(t, " hi", "5");
	expect_ids(t, "", "");
	expect_ids(t, "X hi", "3 5");
	expect_ids(t, "Xhi", "3 6");
	expect_ids(t, "hi X hi", "6 7 3 5");
	expect_decoded(t, "hi", true, "hi");
	expect_decoded(t, " hi", true, " hi");
	expect_decoded(t, "", true, "");
	expect_decoded(t, "X hi", true, "X hi");
	expect_decoded(t, "Xhi", true, "Xhi");
	expect_decoded(t, "hi X hi", true, "hi X hi");
	expect_bytes(t, "hi", 2, true, true, "6 2");
	tokenizer_destroy(t);
}

Test(tokenizer, extra_spaces_removed)
{
	builder_pieces(&b, "llama", space_pieces, ARRAY_COUNT(space_pieces));
	builder_bool(&b, "tokenizer.ggml.remove_extra_whitespaces", true);
	struct tokenizer *t = builder_tokenizer(&b);
	expect_ids(t, "  hi   hi  ", "5 5");
	expect_ids(t, "   ", "");
	expect_ids(t, " hiX hi", "5 3 5");
	tokenizer_destroy(t);
}

/* The higher score first, the left one of equals, and 0 and -0 are equal. */
Test(tokenizer, score_order)
{
	static const struct {
		float ab, bc;
		const char *ids;
	} cases[] = {{2, 1, "3 2"}, {1, 2, "0 4"}, {1, -1, "3 2"}, {-1, 1, "0 4"}, {-2, -1, "0 4"},
		{-1, -2, "3 2"}, {-1, -1, "3 2"}, {0, -0.0f, "3 2"}, {-0.0f, 0, "3 2"},
		{-0.0f, 1, "0 4"}, {-1e9f, -1, "0 4"}, {1e-40f, 0, "3 2"}, {0, 1e-40f, "0 4"}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const struct piece pieces[] = {{"a", 1, 0}, {"b", 1, 0}, {"c", 1, 0},
			{"ab", 1, cases[i].ab}, {"bc", 1, cases[i].bc}};
		builder_pieces(&b, "llama", pieces, ARRAY_COUNT(pieces));
		builder_bool(&b, "tokenizer.ggml.add_space_prefix", false);
		struct tokenizer *t = builder_tokenizer(&b);
		expect_ids(t, "abc", cases[i].ids);
		tokenizer_destroy(t);
	}
}

/* OB-15 (a): only llama-bpe looks the whole word up first. */
Test(tokenizer, whole_word_first)
{
	static const struct piece pieces[] = {
		{"a", 1, 0}, {"b", 1, 0}, {"c", 1, 0}, {"ab", 1, 0}, {"abc", 1, 0}};
	static const char *const merges[] = {"a b"};
	static const struct {
		const char *pre, *ids;
	} cases[] = {{"llama-bpe", "4"}, {"llama3", "4"}, {"llama-v3", "4"}, {"gpt-2", "3 2"},
		{"default", "3 2"}, {"qwen2", "3 2"}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		builder_pieces(&b, "gpt2", pieces, ARRAY_COUNT(pieces));
		builder_strings(&b, "tokenizer.ggml.merges", merges, ARRAY_COUNT(merges));
		builder_string(&b, "tokenizer.ggml.pre", cases[i].pre);
		struct tokenizer *t = builder_tokenizer(&b);
		expect_ids(t, "abc", cases[i].ids);
		cr_expect_eq(tokenizer_info(t)->add_bos, i < 3, "%s", cases[i].pre);
		cr_expect_str_eq(tokenizer_info(t)->pre, cases[i].pre);
		expect_ids(t, "adab", "0 3"); /* neither the byte nor an unknown token: left out */
		tokenizer_destroy(t);
	}
}

/* OB-16: what is no UTF-8 goes to byte tokens and comes back. */
static const struct {
	const char *bytes;
	size_t n;
} invalid[] = {{"\xE6\xAD", 2}, {"\xE2\x80", 2}, {"\xFF", 1}, {"\xC0\x80", 2}, {"\xED\xA0\x80", 3},
	{"\xF4\x90\x80\x80", 4}, {"a\0b", 3}, {"\0", 1}, {"\0\0\xFF\0", 4},
	{" \xE6\xAD ab \xF0\x9F\x98", 10}, {"ab\x80\x80\x80", 5}};

Test(tokenizer, invalid_utf8)
{
	builder_tiny_vocab(&b);
	struct tokenizer *spm = builder_tokenizer(&b);
	struct tokenizer *bpe = open_file(source_path("models/austen.gguf"));
	for (size_t i = 0; i < ARRAY_COUNT(invalid); i++) {
		expect_round_trip(spm, invalid[i].bytes, invalid[i].n, true);
		expect_round_trip(bpe, invalid[i].bytes, invalid[i].n, true);
	}
	expect_ids(spm, "\xE6\xAD", "259 233 176"); /* the space prefix, 3 + 0xE6, 3 + 0xAD */
	expect_bytes(spm, "ab\0b", 4, false, true, "262 261 3 261");
	expect_ids(bpe, "\xE6\xAD", "230 173"); /* the first 256 tokens are the bytes */
	expect_bytes(bpe, "a\0b", 3, false, true, "97 0 98");
	tokenizer_destroy(spm);
	tokenizer_destroy(bpe);

	/* A byte-level vocabulary may have learnt half a character. */
	static const struct piece pieces[] = {
		{"\u00E6", 1, 0}, {"\u0143", 1, 0}, {"\u00E6\u0143", 1, 0}, {"a", 1, 0}};
	static const char *const merges[] = {"\u00E6 \u0143"};
	builder_pieces(&b, "gpt2", pieces, ARRAY_COUNT(pieces));
	builder_strings(&b, "tokenizer.ggml.merges", merges, 1);
	struct tokenizer *t = builder_tokenizer(&b);
	expect_ids(t,
		"a\xE6\xAD"
		"a",
		"3 2 3");
	tokenizer_destroy(t);
}

/* Neither the character, nor its bytes, nor an unknown token: refused, with the byte. */
Test(tokenizer, no_unknown_token)
{
	static const struct piece pieces[] = {{"a", 1, 0}, {"\u2581", 1, 0}};
	static const char *const models[] = {"llama", "gemma4"};
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		builder_pieces(&b, models[i], pieces, ARRAY_COUNT(pieces));
		builder_strings(&b, "tokenizer.ggml.merges", NULL, 0);
		struct tokenizer *t = builder_tokenizer(&b);
		struct lap_error err = {0};
		int32_t *ids;
		size_t n;
		cr_expect_eq(tokenizer_encode(t, "ad", 2, true, true, &ids, &n, &err), LAP_USAGE);
		cr_expect_not_null(strstr(err.text, "0x64"), "%s", err.text);
		cr_expect_null(ids);
		tokenizer_destroy(t);
	}
}

/* gemma4: merges go from characters, by their place in the file, never into or out of a run of newlines;
 * the keys that would put a space in front, leave out BOS or name a pre-tokenizer say nothing. */
Test(tokenizer, characters)
{
	builder_characters_vocab(&b);
	builder_string(&b, "tokenizer.ggml.pre", "anything");
	builder_bool(&b, "tokenizer.ggml.add_space_prefix", true);
	builder_bool(&b, "tokenizer.ggml.remove_extra_whitespaces", true);
	builder_bool(&b, "tokenizer.ggml.add_bos_token", false);
	struct tokenizer *t = builder_tokenizer(&b);
	static const struct {
		const char *text, *ids;
	} cases[] = {
		{"", ""},
		{"abc", "264 268"}, /* though it is a token: the merges decide */
		{"abab", "267 267"},
		{" ab", "263 267"},
		{" a a", "269 269"},
		{"  a", "263 269"},
		{"   ", "271 263"},
		{"\u2581a", "269"},
		{"\n", "272"},
		{"\n\n\n", "274"}, /* though no merge leads there */
		{"\n\n\n\n", "273 273"},
		{"\n\n\n\n\n", "273 273 272"},
		{"b\n", "265 272"},
		{"b\n\nb\n b", "265 273 265 272 263 265"},
		{"\u00E9a\u00E9", "277 275"},
		{"d\u00F1", "100 195 177"},
		{"a\xC3", "264 195"},
		{"\xA9"
		 "a",
			"169 264"},
		{"</s>", "60 47 115 62"},
		{"a<turn|>\n", "264 259 272"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		expect_ids(t, cases[i].text, cases[i].ids);
		if (!strstr(cases[i].text, "\u2581"))
			expect_round_trip(t, cases[i].text, strlen(cases[i].text), true);
	}
	expect_bytes(t, "a\0b", 3, true, true, "257 264 0 265");
	expect_bytes(t, "<|channel>a<eos>", 16, false, false, "261 264 60 101 111 115 62");
	const struct tokenizer_info *info = tokenizer_info(t);
	cr_expect_str_eq(info->model, "gemma4");
	cr_expect_str_eq(info->pre, "");
	cr_expect(info->bos == 257 && info->add_bos && !info->add_eos && !info->add_space_prefix);
	tokenizer_destroy(t);
}

Test(tokenizer, characters_ends)
{
	builder_characters_vocab(&b);
	struct tokenizer *t = builder_tokenizer(&b);
	size_t n;
	const int32_t *ends = tokenizer_ends(t, &n);
	/* <eos>, <turn|> and <|tool_response>; </s> is text of a web page. */
	cr_expect(n == 3 && ends[0] == 258 && ends[1] == 259 && ends[2] == 260, "%zu", n);
	cr_expect_eq(tokenizer_info(t)->eot, 259);
	expect_decoded(t, "a<|tool_response><|channel>b<turn|>", false, "a<|channel>b");
	tokenizer_destroy(t);
}

Test(tokenizer, characters_bytes)
{
	builder_characters_vocab(&b);
	struct tokenizer *t = builder_tokenizer(&b);
	char all[256];
	for (int i = 0; i < 256; i++) {
		all[i] = (char)i;
		expect_round_trip(t, &all[i], 1, true);
	}
	expect_round_trip(t, all, sizeof all, false);
	for (size_t i = 0; i < ARRAY_COUNT(invalid); i++)
		expect_round_trip(t, invalid[i].bytes, invalid[i].n, true);
	check_streams(t);
	/* Byte tokens are held back until a character is whole. */
	struct decoder d = {0};
	struct text out = {0};
	cr_assert(decoder_add(t, &d, 0xC3, &out));
	cr_expect_eq(out.n, 0);
	cr_assert(decoder_add(t, &d, 0xB1, &out));
	cr_expect_str_eq(out.data, "\u00F1");
	text_free(&out);
	tokenizer_destroy(t);

	/* A file without types: byte tokens are known by their names. */
	builder_characters_vocab(&b);
	builder_drop(&b, "tokenizer.ggml.token_type");
	t = builder_tokenizer(&b);
	expect_ids(t, "ad", "264 100");
	tokenizer_destroy(t);
}

/* SPM's keys say nothing about a byte-level vocabulary. */
Test(tokenizer, space_prefix_of_gpt2)
{
	static const struct piece pieces[] = {{"a", 1, 0}, {"\u0120", 1, 0}, {"\u0120a", 1, 0}};
	static const char *const merges[] = {"\u0120 a"};
	builder_pieces(&b, "gpt2", pieces, ARRAY_COUNT(pieces));
	builder_strings(&b, "tokenizer.ggml.merges", merges, 1);
	builder_bool(&b, "tokenizer.ggml.add_space_prefix", true);
	builder_bool(&b, "tokenizer.ggml.remove_extra_whitespaces", true);
	struct tokenizer *t = builder_tokenizer(&b);
	expect_ids(t, "a", "0");
	expect_ids(t, " a  a", "2 1 2");
	expect_decoded(t, " a  a", true, " a  a");
	cr_expect(!tokenizer_info(t)->add_space_prefix);
	tokenizer_destroy(t);
}

Test(tokenizer, special_tokens)
{
	static const struct piece pieces[] = {
		{"<unk>", 2, 0},          /* 0 */
		{"a", 1, 0},              /* 1 */
		{"b", 1, 0},              /* 2 */
		{"<|x|>", 3, 0},          /* 3 */
		{"<|x|>y", 3, 0},         /* 4: the longer wins */
		{"ab", 4, 0},             /* 5: user-defined, in every mode */
		{"abab", 3, 0},           /* 6 */
		{"<|fim_prefix|>", 4, 0}, /* 7: a control token by its name */
		{"<|im_end|>", 1, 0},     /* 8: the same */
		{"</s>", 1, 0},           /* 9: this name is no proof */
		{"", 3, 0},               /* 10: never found */
		{"[PAD11]", 5, 0},        /* 11: unused */
		{"ab", 4, 0},             /* 12: of equal ones the first */
	};
	builder_pieces(&b, "gpt2", pieces, ARRAY_COUNT(pieces));
	builder_strings(&b, "tokenizer.ggml.merges", NULL, 0);
	builder_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
	builder_u32(&b, "tokenizer.ggml.eom_token_id", 4);
	struct tokenizer *t = builder_tokenizer(&b);
	expect_ids(t, "a<|x|>b", "1 3 2");
	expect_ids(t, "<|x|>y<|x|><|x", "4 3 0");
	expect_ids(t, "aab", "1 5");
	expect_ids(t, "ababab", "6 5");
	expect_ids(t, "aba", "5 1");
	expect_ids(t, "<unk>a", "0 1");
	expect_bytes(t, "ababab", 6, false, false, "5 5 5");
	expect_bytes(t, "a<|x|>b", 7, false, false, "1 0 2");
	expect_ids(t, "a<|fim_prefix|><|im_end|>", "1 7 8");
	expect_bytes(t, "a<|fim_prefix|>b", 16, false, false, "1 0 2");
	expect_decoded(t, "a<|x|>b", false, "ab");
	expect_decoded(t, "a<|x|>b", true, "a<|x|>b");
	size_t n;
	const int32_t *ends = tokenizer_ends(t, &n);
	cr_expect(n == 2 && ends[0] == 4 && ends[1] == 8);
	cr_expect_eq(tokenizer_info(t)->eot, 8);
	cr_expect(tokenizer_is_end(t, 4) && tokenizer_is_end(t, 8) && !tokenizer_is_end(t, 9));
	tokenizer_piece(t, 11, false, &n);
	cr_expect_eq(n, 0);
	cr_expect(memcmp(tokenizer_piece(t, 11, true, &n), "[PAD11]", 7) == 0 && n == 7);
	tokenizer_piece(t, 13, true, &n);
	cr_expect_eq(n, 0);
	tokenizer_piece(t, -1, true, &n);
	cr_expect_eq(n, 0);
	tokenizer_destroy(t);
}

/* 6,000 special tokens that share a beginning, in a text of beginnings. */
Test(tokenizer, many_special_tokens)
{
	enum { n_pieces = 6001, n_repeats = 100000 };
	static char texts[n_pieces][24];
	static struct piece pieces[n_pieces];
	pieces[0] = (struct piece){"<unk>", 2, 0};
	for (int i = 1; i < n_pieces; i++) {
		snprintf(texts[i], sizeof texts[i], "<unused%d>", i);
		pieces[i] = (struct piece){texts[i], 4, 0};
	}
	builder_pieces(&b, "llama", pieces, n_pieces);
	struct tokenizer *t = builder_tokenizer(&b);
	expect_ids(t, "<unused6000><unused1>", "6000 1");
	struct text text = {0};
	for (int i = 0; i < n_repeats; i++)
		cr_assert(text_append(&text, "<unused600", 10));
	cr_assert(text_append(&text, ">", 1));
	double start = clock_cpu_seconds();
	struct ids ids = encode_bytes(t, text.data, text.n, false, false);
	cr_expect_lt(clock_cpu_seconds() - start, 2.0);
	cr_expect_str_eq(show(ids), "0 600"); /* one unknown token for the whole run */
	free(ids.at);
	text_free(&text);
	tokenizer_destroy(t);
}

/* Two messages in one: <|end|> closes a part where <|return|> closes the whole. */
Test(tokenizer, end_tokens)
{
	static const struct piece pieces[] = {
		{"a", 1, 0}, {"<|end|>", 3, 0}, {"<|call|>", 3, 0}, {"<|return|>", 3, 0}};
	for (size_t n_pieces = 3; n_pieces <= 4; n_pieces++) {
		builder_pieces(&b, "gpt2", pieces, n_pieces);
		builder_strings(&b, "tokenizer.ggml.merges", NULL, 0);
		struct tokenizer *t = builder_tokenizer(&b);
		cr_expect_eq(tokenizer_is_end(t, 1), n_pieces == 3);
		cr_expect(tokenizer_is_end(t, 2));
		cr_expect_eq(tokenizer_is_end(t, 3), n_pieces == 4);
		cr_expect_eq(tokenizer_info(t)->eot, n_pieces == 3 ? 1 : -1);
		cr_expect_eq(tokenizer_info(t)->bos, -1);
		cr_expect_eq(tokenizer_info(t)->eos, -1);
		/* No BOS to add: nothing is added, even when the file asks for it. */
		expect_bytes(t, "a", 1, true, true, "0");
		tokenizer_destroy(t);
	}
}

/* Characters come out whole; what can never become one passes at once. */
Test(tokenizer, streaming)
{
	builder_tiny_vocab(&b);
	struct tokenizer *t = builder_tokenizer(&b);
	static const struct {
		const char *bytes;   /* one token each */
		const char *lengths; /* that have come out after each */
	} cases[] = {
		{"\xE2\x82\xAC", "003"},
		{"\xF0\x9F\x98\x80"
		 "a",
			"00045"},
		{"\xC3\xA9", "02"},
		{"\xF0\x9F"
		 "a",
			"003"},
		{"\xE2\x82\xE2\x82\xAC", "00225"},
		{"\xFF\x80", "12"},
		{"\xC0\x80", "12"},
		{"\xED\xA0\x80", "023"},
		{"\xE0\x80", "02"},
		{"\xF4\x90", "02"},
		{"\xF0\x80", "02"},
		{"\xF5", "1"},
		{"\xE2\x82", "00"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct decoder d = {0};
		struct text out = {0};
		size_t n = strlen(cases[i].bytes);
		for (size_t j = 0; j < n; j++) {
			cr_assert(decoder_add(
				t, &d, 3 + (int32_t)(unsigned char)cases[i].bytes[j], &out));
			cr_expect_eq(out.n, (size_t)(cases[i].lengths[j] - '0'),
				"case %zu byte %zu: %zu bytes", i, j, out.n);
		}
		cr_assert(decoder_finish(&d, &out));
		cr_expect(out.n == n && memcmp(out.data, cases[i].bytes, n) == 0, "case %zu", i);
		text_free(&out);
	}
	tokenizer_destroy(t);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void expect_refused(struct builder *made, const char *words)
{
	struct lap_error err = {0};
	struct tokenizer *t;
	enum lap_status status = builder_try(made, &t, &err);
	cr_expect_eq(status, LAP_BAD_MODEL, "%s: status %d %s", words, status, err.text);
	cr_expect_not_null(strstr(err.text, words), "\"%s\" lacks \"%s\"", err.text, words);
	cr_expect_null(t);
	builder_free(made);
}

Test(tokenizer, refused)
{
	builder_string(&b, "general.architecture", "llama");
	expect_refused(&b, "tokenizer.ggml.model is missing");
	builder_tiny_vocab(&b);
	builder_string(&b, "tokenizer.ggml.model", "t5");
	expect_refused(&b, "\"t5\" is not supported; supported: llama gpt2 bert gemma4");
	builder_tiny_vocab(&b);
	builder_drop(&b, "tokenizer.ggml.tokens");
	expect_refused(&b, "tokenizer.ggml.tokens is missing");
	builder_tiny_vocab(&b);
	builder_u32(&b, "tokenizer.ggml.tokens", 264);
	expect_refused(&b, "tokens is not an array of strings");
	builder_tiny_vocab(&b);
	builder_strings(&b, "tokenizer.ggml.tokens", NULL, 0);
	expect_refused(&b, "tokens has 0 elements");
	builder_tiny_vocab(&b);
	builder_drop(&b, "tokenizer.ggml.scores");
	expect_refused(&b, "scores is missing");
	builder_tiny_vocab(&b);
	builder_f32s(&b, "tokenizer.ggml.scores", (const float[]){0, 1}, 2);
	expect_refused(&b, "scores has 2 elements, expected 264");
	builder_tiny_vocab(&b);
	builder_i32s(&b, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1}, 3);
	expect_refused(&b, "token_type has 3 elements, expected 264");
	builder_tiny_vocab(&b);
	builder_strings(&b, "tokenizer.ggml.token_type", (const char *const[]){"1"}, 1);
	expect_refused(&b, "token_type is not an array of numbers");
	builder_tiny_vocab(&b);
	builder_u32(&b, "tokenizer.ggml.eos_token_id", 264);
	expect_refused(&b, "eos_token_id is 264, expected less than 264");
	builder_tiny_vocab(&b);
	builder_string(&b, "tokenizer.ggml.add_bos_token", "yes");
	expect_refused(&b, "add_bos_token");

	struct piece pieces[] = {{"a", 1, 0}, {"<0x0G>", 6, 0}};
	builder_pieces(&b, "llama", pieces, 2);
	expect_refused(&b, "token 1 is spelled \"<0x0G>\"");
	pieces[1] = (struct piece){"b", 7, 0};
	builder_pieces(&b, "llama", pieces, 2);
	expect_refused(&b, "token 1 has type 7");
	pieces[1] = (struct piece){"b", 1, __builtin_nanf("")};
	builder_pieces(&b, "llama", pieces, 2);
	expect_refused(&b, "token 1 has type 1 and score");

	static const struct piece bpe[] = {{"a", 1, 0}, {"b", 1, 0}, {"ab", 1, 0}, {"c", 3, 0}};
	static const char *const merged[] = {"gpt2", "gemma4"};
	for (size_t j = 0; j < ARRAY_COUNT(merged); j++) {
		builder_pieces(&b, merged[j], bpe, 4);
		expect_refused(&b, "tokenizer.ggml.merges is missing");
		static const char *const merges[] = {
			"b a", "ab", "ab ", " ab", "a  b", "a c", "", "\xFF a"};
		for (size_t i = 0; i < ARRAY_COUNT(merges); i++) {
			const char *const list[] = {"a b", merges[i]};
			builder_pieces(&b, merged[j], bpe, 4);
			builder_strings(&b, "tokenizer.ggml.merges", list, 2);
			expect_refused(&b, "merge 1 is");
		}
	}
	builder_pieces(&b, "gpt2", bpe, 4);
	builder_strings(&b, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
	builder_string(&b, "tokenizer.ggml.pre", "qwen9");
	expect_refused(&b,
		"made.gguf: pre-tokenizer \"qwen9\" is not supported; supported: gpt-2 mpt olmo");
}

/* ---- files of the repository ----------------------------------------------------------------- */

Test(tokenizer, demo_model)
{
	struct tokenizer *t = open_file(source_path("models/austen.gguf"));
	json_error_t error;
	json_t *root =
		json_load_file(source_path("models/austen.expected.json"), JSON_ALLOW_NUL, &error);
	cr_assert_not_null(root, "%s", error.text);
	json_t *cases = json_object_get(root, "cases"), *expected, *id;
	cr_expect_eq(json_array_size(cases), 6);
	size_t i, j;
	json_array_foreach (cases, i, expected) {
		const char *prompt = json_string_value(json_object_get(expected, "prompt"));
		json_t *prompt_ids = json_object_get(expected, "prompt_ids");
		struct ids ids = encode_bytes(t, prompt, strlen(prompt), true, true);
		cr_expect_eq(ids.n, json_array_size(prompt_ids), "%s", prompt);
		json_array_foreach (prompt_ids, j, id)
			cr_expect(j < ids.n && ids.at[j] == json_integer_value(id), "%s", prompt);
		free(ids.at);

		json_t *greedy_ids = json_object_get(expected, "greedy_ids");
		struct ids greedy = {calloc(json_array_size(greedy_ids) + 1, sizeof(int32_t)), 0};
		json_array_foreach (greedy_ids, j, id)
			greedy.at[greedy.n++] = (int32_t)json_integer_value(id);
		struct text text = decode(t, greedy, false);
		cr_expect_str_eq(
			text.data, json_string_value(json_object_get(expected, "greedy_text")));
		text_free(&text);
		free(greedy.at);
	}
	json_decref(root);
	cr_expect(tokenizer_is_end(t, 2047));
	tokenizer_destroy(t);
}

/* The prompts of a file in models/ of the shared data, against the ids listed beside it. */
static void check_prompts(const char *model, const char *list, size_t expected_cases)
{
	struct tokenizer *t = open_file(shared_path(model));
	json_error_t error;
	json_t *root = json_load_file(shared_path(list), JSON_ALLOW_NUL, &error), *expected, *id;
	cr_assert_not_null(root, "%s", error.text);
	json_t *entry = json_object_get(json_object_get(root, "models"), strchr(model, '/') + 1);
	json_t *cases = json_object_get(entry, "cases");
	cr_expect_eq(json_array_size(cases), expected_cases, "%zu", json_array_size(cases));
	size_t i, j;
	json_array_foreach (cases, i, expected) {
		const char *prompt = json_string_value(json_object_get(expected, "prompt"));
		json_t *prompt_ids = json_object_get(expected, "prompt_ids");
		struct ids ids = encode_bytes(t, prompt, strlen(prompt), true, true);
		cr_expect_eq(ids.n, json_array_size(prompt_ids), "%s", prompt);
		json_array_foreach (prompt_ids, j, id)
			cr_expect(j < ids.n && ids.at[j] == json_integer_value(id), "%s", prompt);
		free(ids.at);
	}
	json_decref(root);
	tokenizer_destroy(t);
}

Test(tokenizer, stories260K)
{
	SKIP_WITHOUT("models/stories260K-F32.gguf");
	SKIP_WITHOUT("models/stories260K.expected.json");
	check_prompts("models/stories260K-F32.gguf", "models/stories260K.expected.json", 6);
}

/* A vocabulary without byte tokens, BOS, EOS and unknown token. */
Test(tokenizer, micro_lm)
{
	SKIP_WITHOUT("models/micro-lm-pro-Q4_0.gguf");
	SKIP_WITHOUT("models/micro-lm-pro.expected.json");
	check_prompts("models/micro-lm-pro-Q4_0.gguf", "models/micro-lm-pro.expected.json", 6);
}

static const char *const texts[] = {
	"It is a truth universally acknowledged, that a single man in possession of a fortune,",
	"  two spaces, a\ttab,\n\n\nthree newlines \r\n and an end   ",
	"I'M sure they'll don't WE'VE 'tis 's",
	"123 4567,89 1e-5 0x1F",
	"na\u00EFve \u4F60\u597D\u4E16\u754C \U0001F600\U0001F9D1\u200D\U0001F680 \u0301\u0301",
	"nbsp\u00A0 em\u2003space \u3000 line\u2028sep \xC2\x85nel \u180Evowel",
	"<|endoftext|><s>x</s><|endoftext",
	"",
	" ",
};

Test(tokenizer, round_trips)
{
	static const char *const files[] = {"models/austen.gguf",
		"tests/vectors/golden/qwen2-plain.gguf", "tests/vectors/golden/llama-freqs.gguf"};
	for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
		struct tokenizer *t = open_file(source_path(files[i]));
		for (size_t j = 0; j < ARRAY_COUNT(texts); j++) {
			expect_round_trip(t, texts[j], strlen(texts[j]), false);
			if (strcmp(tokenizer_info(t)->model, "gpt2") == 0)
				expect_round_trip(t, texts[j], strlen(texts[j]), true);
		}
		tokenizer_destroy(t);
	}
}

/* ---- the plain algorithm as an oracle -------------------------------------------------------- */

/* A vocabulary as the file spells it, with nothing of tokenizer.c in between. */
struct plain {
	char *bytes;
	struct gguf *gguf;
	const struct gguf_kv *tokens, *scores, *merges;
};

static struct plain plain_open(const char *path)
{
	struct plain p;
	struct lap_error err = {0};
	size_t n;
	p.bytes = read_text(path, &n);
	cr_assert_eq(gguf_open(p.bytes, n, path, &p.gguf, &err), LAP_OK, "%s", err.text);
	p.tokens = gguf_find(p.gguf, "tokenizer.ggml.tokens");
	p.scores = gguf_find(p.gguf, "tokenizer.ggml.scores");
	p.merges = gguf_find(p.gguf, "tokenizer.ggml.merges");
	return p;
}

static void plain_close(struct plain *p)
{
	gguf_close(p->gguf);
	free(p->bytes);
}

static int32_t plain_find(const struct plain *p, const char *s, size_t n)
{
	for (uint64_t i = 0; i < p->tokens->n; i++)
		if (p->tokens->strings[i].n == n && memcmp(p->tokens->strings[i].data, s, n) == 0)
			return (int32_t)i;
	return -1;
}

/* What joining two neighbouring strings is worth: lower is better, -1: not allowed. */
static double plain_worth(
	const struct plain *p, const char *a, size_t n_a, const char *c, size_t n_c)
{
	char pair[256];
	int n = snprintf(
		pair, sizeof pair, "%.*s%s%.*s", (int)n_a, a, p->merges ? " " : "", (int)n_c, c);
	if (!p->merges) {
		int32_t id = plain_find(p, pair, (size_t)n);
		return id < 0 ? -1 : 1e6 - gguf_number(p->scores, (uint64_t)id);
	}
	for (uint64_t i = 0; i < p->merges->n; i++)
		if (p->merges->strings[i].n == (size_t)n &&
			memcmp(p->merges->strings[i].data, pair, (size_t)n) == 0)
			return (double)i;
	return -1;
}

/* The same of two neighbours by where they and the next one start. */
static double plain_pair(const struct plain *p, const char *word, const size_t starts[3])
{
	return plain_worth(p, word + starts[0], starts[1] - starts[0], word + starts[1],
		starts[2] - starts[1]);
}

/* Ids of a word (ASCII, or underlines): looks through all pairs again after each join. */
static struct ids plain_encode(const struct plain *p, const char *word)
{
	size_t n = 0, n_bytes = strlen(word), *starts = calloc(n_bytes + 2, sizeof *starts);
	double *worths = calloc(n_bytes + 1, sizeof *worths); /* of each with its right neighbour */
	cr_assert(starts && worths);
	for (size_t i = 0; word[i]; i++)
		if (((unsigned char)word[i] & 0xC0) != 0x80)
			starts[n++] = i;
	starts[n] = n_bytes;
	for (size_t i = 0; i + 1 < n; i++)
		worths[i] = plain_pair(p, word, starts + i);
	for (;;) {
		size_t best = n;
		for (size_t i = 0; i + 1 < n; i++)
			if (worths[i] >= 0 && (best == n || worths[i] < worths[best]))
				best = i;
		if (best == n)
			break;
		memmove(&starts[best + 1], &starts[best + 2], (n - best - 1) * sizeof *starts);
		memmove(&worths[best], &worths[best + 1], (n - best - 1) * sizeof *worths);
		n--;
		if (best + 1 < n)
			worths[best] = plain_pair(p, word, starts + best);
		if (best > 0)
			worths[best - 1] = plain_pair(p, word, starts + best - 1);
	}
	struct ids ids = {calloc(n + 1, sizeof(int32_t)), n};
	for (size_t i = 0; i < n; i++)
		ids.at[i] = plain_find(p, word + starts[i], starts[i + 1] - starts[i]);
	free(starts);
	free(worths);
	return ids;
}

/* Letters from the first `n_letters` of a list, always the same for a seed. */
static char *random_word(size_t n, unsigned n_letters, uint32_t seed)
{
	static const char letters[] = "etaoinshrdlucmfw";
	char *word = calloc(n + 1, 1);
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		word[i] = letters[(seed >> 16) % n_letters];
	}
	return word;
}

static void check_plain(const char *path, const char *prefix)
{
	struct plain p = plain_open(path);
	struct tokenizer *t = open_file(path);
	for (uint32_t seed = 1; seed <= 13; seed++) {
		/* The last as long as in OB-15 (b). */
		size_t n = seed <= 12 ? 1 + seed * 6 : 11035;
		char *word = random_word(n, 1 + seed % 16, seed);
		struct text spelled = {0};
		cr_assert(text_printf(&spelled, "%s%s", prefix, word));
		struct ids expected = plain_encode(&p, spelled.data);
		struct ids ids = encode_bytes(t, word, strlen(word), false, false);
		cr_expect(ids.n == expected.n && !memcmp(ids.at, expected.at, ids.n * 4),
			"%s: %s, expected %s", word, show(ids), show(expected));
		free(ids.at);
		free(expected.at);
		text_free(&spelled);
		free(word);
	}
	tokenizer_destroy(t);
	plain_close(&p);
}

Test(tokenizer, plain_bpe)
{
	check_plain(source_path("models/austen.gguf"), "");
	check_plain(source_path("tests/vectors/golden/qwen2-plain.gguf"), "");
}

Test(tokenizer, plain_spm)
{
	check_plain(source_path("tests/vectors/golden/llama-freqs.gguf"), "\u2581");
	/* Few letters ever stand side by side in a piece, so that a text falls into parts. */
	static const char *const parts[] = {"\u2581", "e", "t", "a", "o", "i", "n", "s", "h", "r",
		"d", "l", "u", "c", "m", "f", "w", "et", "ta", "eta", "oe", "oet", "aa", "aaa",
		"taoe", "ao", "\u2581t", "\u2581o", "sh", "she"};
	struct piece pieces[ARRAY_COUNT(parts)];
	for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
		pieces[i] = (struct piece){parts[i], 1, -(float)(i * 7 % 19)};
	builder_pieces(&b, "llama", pieces, ARRAY_COUNT(parts));
	struct text file = builder_file(&b);
	builder_free(&b);
	struct lap_error err = {0};
	const char *path = scratch_path("parts.gguf");
	cr_assert_eq(file_write(path, file.data, file.n, &err), LAP_OK, "%s", err.text);
	text_free(&file);
	check_plain(path, "\u2581");
}

/* A file of gemma4 with a few merges, of which some lead to one piece on two ways. */
static const char *characters_path(void)
{
	static const struct piece pieces[] = {{"\u2581", 1, 0}, {"e", 1, 0}, {"t", 1, 0},
		{"a", 1, 0}, {"o", 1, 0}, {"i", 1, 0}, {"n", 1, 0}, {"s", 1, 0}, {"h", 1, 0},
		{"r", 1, 0}, {"d", 1, 0}, {"l", 1, 0}, {"u", 1, 0}, {"c", 1, 0}, {"m", 1, 0},
		{"f", 1, 0}, {"w", 1, 0}, {"et", 1, 0}, {"ta", 1, 0}, {"eta", 1, 0}, {"oe", 1, 0},
		{"oet", 1, 0}, {"aa", 1, 0}, {"aaa", 1, 0}, {"taoe", 1, 0}, {"sh", 1, 0},
		{"she", 1, 0}, {"\u2581t", 1, 0}};
	static const char *const merges[] = {"e ta", "sh e", "t a", "a a", "o e", "e t", "ta oe",
		"et a", "aa a", "oe t", "s h", "\u2581 t", "a aa"};
	builder_pieces(&b, "gemma4", pieces, ARRAY_COUNT(pieces));
	builder_strings(&b, "tokenizer.ggml.merges", merges, ARRAY_COUNT(merges));
	struct text file = builder_file(&b);
	builder_free(&b);
	struct lap_error err = {0};
	const char *path = scratch_path("characters.gguf");
	cr_assert_eq(file_write(path, file.data, file.n, &err), LAP_OK, "%s", err.text);
	text_free(&file);
	return path;
}

Test(tokenizer, plain_characters)
{
	check_plain(characters_path(), "");
}

/* Words that come again, in parts long enough for their tokens to be kept: the same as word by word. */
static void check_repeated_words(const char *path, const char *between)
{
	struct tokenizer *t = open_file(path);
	struct text text = {0};
	struct ids expected = {calloc(200000, sizeof(int32_t)), 0};
	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t seed = i % 7 ? i % 100 : i;
		char *word = random_word(1 + seed % 40, 1 + seed % 16, seed);
		struct text piece = {0};
		cr_assert(text_printf(&piece, "%s%s", i ? between : "", word));
		cr_assert(text_append(&text, " ", i && !*between));
		cr_assert(text_append(&text, piece.data, piece.n));
		struct ids ids = encode_bytes(t, piece.data, piece.n, false, false);
		cr_assert_leq(expected.n + ids.n, 200000);
		memcpy(expected.at + expected.n, ids.at, ids.n * sizeof *ids.at);
		expected.n += ids.n;
		free(ids.at);
		text_free(&piece);
		free(word);
	}
	struct ids ids = encode_bytes(t, text.data, text.n, false, false);
	cr_expect(ids.n == expected.n && !memcmp(ids.at, expected.at, ids.n * sizeof *ids.at), "%s",
		path);
	free(ids.at);
	free(expected.at);
	text_free(&text);
	tokenizer_destroy(t);
}

Test(tokenizer, repeated_words)
{
	check_repeated_words(source_path("models/austen.gguf"), " ");
	check_repeated_words(source_path("tests/vectors/golden/llama-freqs.gguf"), "");
	check_repeated_words(characters_path(), " ");
}

/* A run of unknown characters is one token, also where its words were seen before; and a piece may
 * reach across a space. */
Test(tokenizer, words_that_are_not_alone)
{
	static const struct piece pieces[] = {{"<unk>", 2, 0}, {"a", 1, 0}, {"> ", 1, -1},
		{"> <", 1, 0}, {">", 1, 0}, {"<", 1, 0}, {"\u2581", 1, -2}};
	enum { n_spaceless = 6, n_repeats = 3000 };
	static const char *const units[] = {"?? ?", "a? ?a", "> <", "a> < "};
	static const char *const expected[2][ARRAY_COUNT(units)] = {
		{"0", "1 0 1", "3", "1 3 0"}, {"0 6 0", "1 0 6 0 1", "3", "1 3 6"}};
	for (int with_space = 0; with_space < 2; with_space++) {
		builder_pieces(&b, "llama", pieces, n_spaceless + (size_t)with_space);
		builder_bool(&b, "tokenizer.ggml.add_space_prefix", false);
		struct tokenizer *t = builder_tokenizer(&b);
		for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
			expect_ids(t, units[i], expected[with_space][i]);
			struct ids one = encode_bytes(t, units[i], strlen(units[i]), false, false);
			struct text text = {0};
			for (int j = 0; j < n_repeats; j++)
				cr_assert(text_printf(&text, "%s", units[i]));
			struct ids ids = encode_bytes(t, text.data, text.n, false, false);
			/* Only where a unit begins and ends with it does a run go on. */
			bool joins = one.at[0] == 0 && one.at[one.n - 1] == 0;
			size_t n_unit = one.n - joins;
			cr_expect_eq(
				ids.n, n_unit * n_repeats + joins, "%s: %zu ids", units[i], ids.n);
			for (size_t j = 0; j < ids.n; j++)
				cr_assert_eq(ids.at[j], one.at[n_unit ? j % n_unit : 0],
					"%s: id %zu is %d", units[i], j, ids.at[j]);
			text_free(&text);
			free(ids.at);
			free(one.at);
		}
		tokenizer_destroy(t);
	}
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* OB-15 (b): CPU seconds for one word of n letters; and the ids of its first part are not lost. */
static double long_word_seconds(const struct tokenizer *t, size_t n)
{
	char *word = random_word(n, 16, 1);
	double start = clock_cpu_seconds();
	struct ids ids = encode_bytes(t, word, n, false, true);
	double seconds = clock_cpu_seconds() - start;
	struct text out = decode(t, ids, true);
	cr_expect(out.n == n && memcmp(out.data, word, n) == 0);
	text_free(&out);
	free(ids.at);
	free(word);
	return seconds;
}

Test(tokenizer, long_words)
{
	static const char *const files[] = {"models/austen.gguf",
		"tests/vectors/golden/qwen2-plain.gguf", "tests/vectors/golden/llama-freqs.gguf"};
	for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
		struct tokenizer *t = open_file(source_path(files[i]));
		cr_expect_lt(long_word_seconds(t, 11035), 0.3, "%s", files[i]);
		cr_expect_lt(long_word_seconds(t, 100000), 1.0, "%s", files[i]);
		cr_expect_lt(long_word_seconds(t, 1000000), 30.0, "%s", files[i]);
		tokenizer_destroy(t);
	}
}
