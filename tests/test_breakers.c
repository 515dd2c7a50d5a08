/* DRY's breakers: which sequences of tokens spell a text, and what they keep apart. */
#include "breakers.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { MAX_FOUND = 400 };

struct found {
	uint32_t tokens[MAX_FOUND][20], n_tokens[MAX_FOUND];
	uint32_t n;
};

static enum lap_status keep(void *user, const uint32_t *tokens, uint32_t n, struct lap_error *err)
{
	struct found *f = user;
	(void)err;
	cr_assert(n >= 1 && n <= 20);
	cr_assert_lt(f->n, MAX_FOUND);
	memcpy(f->tokens[f->n], tokens, n * sizeof *tokens);
	f->n_tokens[f->n++] = n;
	return LAP_OK;
}

static struct tokenizer *open_tokenizer(const char *relative)
{
	struct mapped_file file;
	struct gguf *gguf;
	struct tokenizer *t;
	struct lap_error err = {0};
	cr_assert_eq(file_map(vector_path(relative), &file, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(
		gguf_open(file.data, file.n_bytes, relative, &gguf, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(tokenizer_create(gguf, &t, &err), LAP_OK, "%s", err.text);
	gguf_close(gguf);
	file_unmap(&file);
	return t;
}

static void find(const struct tokenizer *t, const char *text, struct found *f)
{
	struct lap_error err = {0};
	f->n = 0;
	cr_assert_eq(breakers_find(t, text, keep, f, &err), LAP_OK, "%s", err.text);
}

/* True when a sequence is among those found. */
static bool has(const struct found *f, uint32_t a, uint32_t b, uint32_t n)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (f->n_tokens[i] == n && f->tokens[i][0] == a && (n == 1 || f->tokens[i][1] == b))
			return true;
	return false;
}

/* Each sequence spells the text, which begins in its first token and ends in its last. */
static void check_spelling(const struct tokenizer *t, const char *text, const struct found *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		struct text spelled = {0};
		size_t n_first = 0, n_last = 0;
		for (uint32_t j = 0; j < f->n_tokens[i]; j++) {
			const char *piece =
				tokenizer_piece(t, (int32_t)f->tokens[i][j], true, &n_last);
			n_first = j == 0 ? n_last : n_first;
			cr_assert(text_append(&spelled, piece, n_last));
		}
		const char *at = strstr(spelled.data, text);
		cr_assert(at, "\"%s\" is not in \"%s\"", text, spelled.data);
		cr_expect_lt((size_t)(at - spelled.data), n_first);
		cr_expect_gt((size_t)(at - spelled.data) + strlen(text), spelled.n - n_last);
		text_free(&spelled);
	}
}

Test(breakers, byte_level)
{
	struct tokenizer *t = open_tokenizer("golden/qwen2-plain.gguf");
	struct found f;
	find(t, ":", &f);
	cr_expect_eq(f.n, 1);
	cr_expect(has(&f, 58, 0, 1));
	find(t, "the", &f); /* " the"; t, " t", at before he: */
	check_spelling(t, "the", &f);
	cr_expect(has(&f, 316, 0, 1));
	cr_expect(has(&f, 116, 260, 2));
	cr_expect(has(&f, 304, 260, 2));
	cr_expect(has(&f, 321, 260, 2));
	cr_expect_eq(f.n, 4, "%u sequences", f.n);
	find(t, "", &f);
	cr_expect_eq(f.n, 0);
	find(t, "a very long text that no token of this vocabulary holds, cut to its beginning",
		&f);
	cr_expect_gt(f.n, 0);
	tokenizer_destroy(t);
}

Test(breakers, space_prefix)
{
	struct tokenizer *t = open_tokenizer("golden/llama-freqs.gguf");
	struct found f;
	find(t, "ace",
		&f); /* a, its byte token, " a", ba, ca before ce, which is 318 and no " c" e */
	check_spelling(t, "ace", &f);
	cr_expect(has(&f, 286, 318, 2));
	cr_expect(has(&f, 312, 318, 2));
	cr_expect(has(&f, 317, 318, 2));
	cr_expect_eq(f.n, 5, "%u sequences", f.n);
	find(t, "\n", &f);
	check_spelling(t, "\n", &f);
	cr_expect_eq(f.n, 1);
	tokenizer_destroy(t);
}

/* The logit that DRY leaves of token 5 behind 6 7 8 5 : 6 7 8, where 58 is ":". */
static float logit_behind(const struct tokenizer *t, const char *const *breakers, size_t n)
{
	const uint32_t history[] = {6, 7, 8, 5, 58, 6, 7, 8};
	struct lap_sampling p = {.temperature = 1,
		.top_p = 1,
		.dry_multiplier = 1,
		.dry_base = 2,
		.dry_penalty_last_n = -1,
		.dry_breakers = breakers,
		.n_dry_breakers = n};
	uint32_t n_vocab = tokenizer_info(t)->n_vocab;
	float *logits = calloc(n_vocab, sizeof *logits);
	struct sampler_chain *chain;
	struct candidates c = {0};
	struct lap_error err = {0};
	cr_assert_eq(sampler_chain_create(&p, n_vocab, 64, &chain, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(breakers_add(chain, t, &p, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(sampler_chain_apply(chain, logits, history, 8, 7, NULL, &c, &err), LAP_OK);
	float logit = c.items[5].logit;
	candidates_free(&c);
	sampler_chain_destroy(chain);
	free(logits);
	return logit;
}

Test(breakers, keep_repetitions_apart)
{
	/* 6 7 8 again: three tokens, 1 * 2^(3 - 2).  A breaker "'(" is 6 7 ("'" and "(" of the byte
	 * alphabet): behind it 8 alone is left. */
	struct tokenizer *t = open_tokenizer("golden/qwen2-plain.gguf");
	size_t n_piece;
	char text[8] = {0};
	for (uint32_t i = 6; i <= 7; i++) {
		const char *piece = tokenizer_piece(t, (int32_t)i, false, &n_piece);
		cr_assert_eq(n_piece, 1);
		text[i - 6] = piece[0];
	}
	const char *const pair[] = {text}, *const last[] = {text, ":"};
	cr_expect_eq(logit_behind(t, pair, 0), -2, "none at all");
	cr_expect_eq(logit_behind(t, NULL, 0), -2, "the usual ones: : stands before all three");
	cr_expect_eq(logit_behind(t, pair, 1), 0);
	cr_expect_eq(logit_behind(t, last, 2), 0);
	cr_expect_eq(logit_behind(t, last + 1, 1), -2);
	tokenizer_destroy(t);
}
