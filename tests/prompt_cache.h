/* Sequences saved and loaded: what a session gives from a file, beside what a fresh one gives.  Used by
 * test_prompt_cache.c (CPU reference) and test_vk_prompt_cache.c. */
#ifndef LAPILLI_TESTS_PROMPT_CACHE_H
#define LAPILLI_TESTS_PROMPT_CACHE_H

#include <stdio.h>
#include <unistd.h>

#include "models.h"

#define N_DRAWN 16

struct drawn {
	int32_t ids[N_DRAWN];
	float log_probs[N_DRAWN];
	size_t n;
};

static inline bool keep_drawn(void *user, const struct lap_token *token)
{
	struct drawn *d = user;
	if (token->id >= 0 && d->n < N_DRAWN) {
		d->ids[d->n] = token->id;
		d->log_probs[d->n++] = token->log_prob;
	}
	return true;
}

static inline void make_prompt(int32_t *prompt, int32_t n, int32_t n_vocab)
{
	for (int32_t i = 0; i < n; i++)
		prompt[i] = (5 + i * 37) % n_vocab;
}

/* Draws N_DRAWN tokens behind n of a prompt; how many of the prompt's were there. */
static inline size_t draw(struct lap_session *s, size_t n, struct drawn *d)
{
	const struct lap_generate_options o = {
		.sampling = {.temperature = 1, .top_p = 1, .seed = 7},
		.n_predict = N_DRAWN,
		.ignore_eos = true};
	int32_t prompt[512];
	struct lap_generation r;
	struct lap_error err = {0};
	cr_assert_leq(n, ARRAY_COUNT(prompt));
	make_prompt(prompt, (int32_t)n, (int32_t)lap_model_info(s->m)->n_vocab);
	d->n = 0;
	cr_assert_eq(
		lap_generate(s, prompt, n, &o, keep_drawn, d, &r, &err), LAP_OK, "%s", err.text);
	return r.n_reused;
}

static inline void expect_same_bits(const struct drawn *a, const struct drawn *b, const char *what)
{
	cr_assert_eq(a->n, b->n, "%s", what);
	cr_expect_arr_eq(a->ids, b->ids, sizeof(a->ids), "%s: ids", what);
	cr_expect_arr_eq(
		a->log_probs, b->log_probs, sizeof(a->log_probs), "%s: log-probabilities", what);
}

static inline void save(struct lap_session *s, const char *path)
{
	struct lap_error err = {0};
	cr_assert_eq(lap_session_save(s, path, &err), LAP_OK, "%s", err.text);
}

static inline void load(struct lap_session *s, const char *path)
{
	struct lap_error err = {0};
	cr_assert_eq(lap_session_load(s, path, &err), LAP_OK, "%s", err.text);
}

/* A file of this test's own: tests of a suite run beside each other. */
static inline const char *own_path(const char *name)
{
	char own[64];
	snprintf(own, sizeof(own), "%d-%s", (int)getpid(), name);
	return scratch_path(own);
}

/* Saves a prompt of n_saved tokens and continues it by n_more in another session, whose blocks lie in
 * another order; n_reused: of the prompt that the file has. */
static inline void round_trip(struct lap_model *m, const struct lap_session_options *o,
	size_t n_saved, size_t n_prompt, size_t n_reused, const char *what)
{
	struct drawn expected, got;
	const char *path = own_path("prompt.cache");
	struct lap_session *s = open_session(m, o);
	draw(s, n_saved, &got);
	save(s, path);
	lap_session_destroy(s);

	s = open_session(m, o);
	draw(s, n_prompt, &expected);
	lap_session_destroy(s);

	s = open_session(m, o);
	draw(s, 70, &got); /* so that blocks are not taken in order */
	for (uint32_t i = 1; i < s->n_seq; i++)
		timeline_fork(s, &s->timelines[i], &s->timelines[0], 40 - i);
	load(s, path);
	cr_expect_eq(s->timelines[0].n_past, n_saved - 1, "%s", what);
	cr_expect_eq(draw(s, n_prompt, &got), n_reused, "%s", what);
	expect_same_bits(&got, &expected, what);
	lap_session_clear(s);
	cr_expect_eq(s->full.n_free, s->full.n_blocks, "%s: no block is lost", what);
	cr_expect_eq(s->window.n_free, s->window.n_blocks, "%s: no block is lost", what);
	cr_expect_eq(s->states.n_free, s->states.n_blocks, "%s: no block is lost", what);
	lap_session_destroy(s);
}

#endif
