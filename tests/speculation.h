/* Generations with guesses, beside the same without.  Used by test_draft.c (CPU reference) and
 * test_vk_draft.c. */
#ifndef LAPILLI_TESTS_SPECULATION_H
#define LAPILLI_TESTS_SPECULATION_H

#include "draft.h"
#include "generation.h"

/* A text that repeats itself, so that n-grams find something: four tokens, again and again. */
#define N_PROMPT 26
static const int32_t *repeating_prompt(void)
{
	static int32_t prompt[N_PROMPT];
	for (int32_t i = 0; i < N_PROMPT; i++)
		prompt[i] = 20 + i % 4 * 61 + i / 20;
	return prompt;
}

static inline struct lap_generation speculate(
	struct lap_session *s, const struct lap_generate_options *options, struct collected *c)
{
	struct lap_generation r;
	struct lap_error err = {0};
	c->n = c->n_text = 0;
	cr_assert_eq(lap_generate(s, repeating_prompt(), N_PROMPT, options, collect, c, &r, &err),
		LAP_OK, "%s", err.text);
	cr_assert_leq(r.n_accepted, r.n_drafted);
	return r;
}

/* Greedy tokens of `target` without guesses and with 1, 2, 5 and 15 of the text, of the same model, and of
 * another one. */
static inline void greedy_equals_plain(
	const char *target, const char *other, const char *device, int64_t n, size_t n_sizes)
{
	static const uint32_t sizes[] = {1, 2, 5, 15};
	static struct collected plain, guessed;
	const struct lap_session_options so = {.n_ctx = 192, .n_draft = 15}, own = {.n_ctx = 192},
					 small = {.n_ctx = 100};
	struct lap_model *m = open_model(target, device), *d = open_model(other, device);
	struct lap_session *s = open_session(m, &so), *same = open_session(m, &own),
			   *differs = open_session(d, &small);
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = n, .ignore_eos = true};
	speculate(s, &o, &plain);
	cr_assert_eq(plain.n, (size_t)n);
	for (size_t i = 0; i < n_sizes; i++)
		for (int how = 0; how < 4; how++) {
			char what[64];
			o.n_draft = sizes[i];
			o.draft_ngram = how == 0 || how == 3;
			o.draft = how == 1 ? same : how >= 2 ? differs : NULL;
			snprintf(what, sizeof(what), "%u guesses, way %d", (unsigned)sizes[i], how);
			struct lap_generation r = speculate(s, &o, &guessed);
			expect_same(&guessed, &plain, what, "");
			cr_expect_gt(r.n_drafted, 0, "%s", what);
			cr_expect(r.on_host);
			if (how ==
				1) { /* all but the first token, a bonus token behind each draft */
				cr_expect_eq(r.n_accepted, r.n_drafted, "%s: %zu of %zu", what,
					r.n_accepted, r.n_drafted);
				cr_expect_eq(r.n_drafted,
					(size_t)(n - 1) -
						((size_t)n - 1 + sizes[i]) / (sizes[i] + 1),
					"%s: %zu", what, r.n_drafted);
			}
			if (how == 2)
				cr_expect_lt(r.n_accepted, r.n_drafted, "%s", what);
		}
	cr_expect_eq(
		same->counts.decode_recordings, 1, "greedy guesses are many steps of one kind");
	cr_expect_eq(
		same->counts.prefill_submits, n_sizes, "the prompt, or what a reused one lacks");
	lap_session_destroy(s);
	lap_session_destroy(same);
	lap_session_destroy(differs);
	lap_model_close(m);
	lap_model_close(d);
}

#define N_TOGETHER 5

/* Requests with different drafts in one batch give what each gives alone and without. */
static inline void drafts_in_a_batch(
	const char *target, const char *other, const char *device, int64_t n)
{
	static struct collected plain[N_TOGETHER], together[N_TOGETHER];
	struct lap_model *m = open_model(target, device), *d = open_model(other, device);
	const struct lap_session_options so = {.n_seq = 3, .n_ctx = 512, .n_draft = 7},
					 own = {.n_seq = 4, .n_ctx = 512}, alone = {.n_ctx = 0};
	struct lap_session *s = open_session(m, &so), *draft = open_session(d, &own),
			   *same = open_session(m, &own), *one = open_session(m, &alone);
	struct lap_generate_options o[N_TOGETHER];
	struct lap_request requests[N_TOGETHER];
	struct lap_error err = {0};
	for (size_t i = 0; i < N_TOGETHER; i++) {
		o[i] = (struct lap_generate_options){.sampling = i == 3 ? warm() : greedy(),
			.n_predict = n - (int64_t)i * 3,
			.ignore_eos = true};
		if (i == 2)
			o[i].sampling.repeat_penalty = 1.3f;
		requests[i] = (struct lap_request){.prompt = repeating_prompt() + i,
			.n = N_PROMPT - i,
			.options = &o[i],
			.on_token = collect,
			.user = &together[i]};
		plain[i].n = together[i].n = plain[i].n_text = together[i].n_text = 0;
		cr_assert_eq(lap_generate(one, requests[i].prompt, requests[i].n, &o[i], collect,
				     &plain[i], NULL, &err),
			LAP_OK, "%s", err.text);
		o[i].n_draft = i == 4 ? 0 : 7 - (uint32_t)i;
		o[i].draft_ngram = i == 0 || i == 3;
		o[i].draft = i == 1 ? draft : i == 2 ? same : NULL;
	}
	cr_assert_eq(lap_generate_batch(s, requests, N_TOGETHER, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < N_TOGETHER; i++) {
		cr_assert_eq(requests[i].status, LAP_OK, "%s", requests[i].error.text);
		expect_same(&together[i], &plain[i], "in a batch", i == 3 ? "drawn" : "greedy");
		cr_expect_eq(requests[i].result.n_drafted > 0, i < 4, "request %zu", i);
	}
	cr_expect_gt(requests[2].result.n_accepted, 0);
	for (uint32_t i = 0; i < draft->n_seq; i++)
		cr_expect(!draft->timelines[i].busy && !same->timelines[i].busy);
	lap_session_destroy(s);
	lap_session_destroy(draft);
	lap_session_destroy(same);
	lap_session_destroy(one);
	lap_model_close(m);
	lap_model_close(d);
}

/* Guesses of the model itself, too hot to be often right, so that rows are written and given up all the
 * time, change no greedy token: layers with windows, experts, other orders of positions. */
static inline void wrong_guesses_change_nothing(const char *path, const char *device, int64_t n)
{
	static struct collected plain, guessed;
	const struct lap_session_options so = {.n_ctx = 160, .n_draft = 7};
	const struct lap_sampling hot = {.temperature = 1.5f, .top_p = 1, .top_k = 4};
	struct lap_model *m = open_model(path, device);
	struct lap_session *s = open_session(m, &so), *draft = open_session(m, &so);
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = n, .ignore_eos = true};
	speculate(s, &o, &plain);
	o.n_draft = 7;
	o.draft = draft;
	o.draft_sampling = &hot;
	struct lap_generation r = speculate(s, &o, &guessed);
	expect_same(&guessed, &plain, path, "");
	cr_expect(r.n_accepted > 0 && r.n_accepted < r.n_drafted, "%s: %zu of %zu", path,
		r.n_accepted, r.n_drafted);
	lap_session_destroy(s);
	lap_session_destroy(draft);
	lap_model_close(m);
}

#endif
