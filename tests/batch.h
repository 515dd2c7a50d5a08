/* Many requests in one session: equal to each alone, whatever joins and leaves.  Used by test_batch.c (CPU
 * reference) and test_vk_batch.c. */
#ifndef LAPILLI_TESTS_BATCH_H
#define LAPILLI_TESTS_BATCH_H

#include "generation.h"

#define N_MIXED 20 /* requests */

struct mixed {
	struct lap_generate_options options[N_MIXED];
	struct lap_request requests[N_MIXED];
	struct collected collected[N_MIXED];
	int32_t *prompts[N_MIXED];
};

/* Prompts of different lengths, some with a beginning in common; greedy and sampled, with and without
 * penalties; different limits. */
static void mixed_create(struct mixed *x, struct lap_model *m, int64_t longest)
{
	const int32_t n_vocab = (int32_t)lap_model_info(m)->n_vocab;
	*x = (struct mixed){0};
	for (size_t i = 0; i < N_MIXED; i++) {
		const size_t n = 4 + i * 13 % 50;
		struct lap_generate_options *o = &x->options[i];
		x->prompts[i] = calloc(n, sizeof(int32_t));
		for (size_t j = 0; j < n; j++)
			x->prompts[i][j] =
				(int32_t)(5 + j * 37 + (j > 20 ? i % 4 : i % 2) * 11) % n_vocab;
		*o = (struct lap_generate_options){.sampling = i % 2 ? warm() : greedy()};
		o->sampling.seed = i / 4;
		o->n_predict = longest - (int64_t)(i * 7 % 20);
		o->ignore_eos = true;
		if (i % 5 == 3) {
			o->sampling.repeat_penalty = 1.2f;
			o->sampling.frequency_penalty = 0.1f;
		}
		if (i % 7 == 2)
			o->sampling.temperature = 1.3f;
		if (i % 6 == 5) /* drawn on the host, and the others meanwhile */
			o->sampling.typical_p = 0.9f;
		x->requests[i] = (struct lap_request){.prompt = x->prompts[i],
			.n = n,
			.options = o,
			.on_token = collect,
			.user = &x->collected[i]};
	}
}

static void mixed_release(struct mixed *x)
{
	for (size_t i = 0; i < N_MIXED; i++)
		free(x->prompts[i]);
}

static inline void mixed_run(struct mixed *x, struct lap_session *s, size_t n)
{
	struct lap_error err = {0};
	for (size_t i = 0; i < n; i++)
		x->collected[i].n = x->collected[i].n_text = 0;
	cr_assert_eq(lap_generate_batch(s, x->requests, n, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < n; i++) {
		cr_assert_eq(x->requests[i].status, LAP_OK, "%s", x->requests[i].error.text);
		cr_assert_eq(x->collected[i].n, (size_t)x->options[i].n_predict, "request %zu", i);
	}
}

/* Each request alone in a fresh session, then all of them in sessions of several shapes. */
static inline void batch_equals_alone(const char *path, const char *device)
{
	static const struct lap_session_options shapes[] = {
		{.n_seq = 1, .n_ctx = 256},
		{.n_seq = 4, .n_ctx = 512, .steps_per_submit = 3},
		{.n_seq = 8, .n_ctx = 1024, .n_batch = 7},
		{.n_seq = 20, .n_ctx = 2048},
	};
	const size_t n = test_small() ? 8 : N_MIXED;
	struct lap_model *m = open_model(path, device);
	static struct mixed alone, together;
	mixed_create(&alone, m, 24);
	mixed_create(&together, m, 24);
	for (size_t i = 0; i < n; i++) {
		struct lap_session *s = open_session(m, NULL);
		struct lap_error err = {0};
		cr_assert_eq(lap_generate(s, alone.requests[i].prompt, alone.requests[i].n,
				     &alone.options[i], collect, &alone.collected[i], NULL, &err),
			LAP_OK, "%s", err.text);
		lap_session_destroy(s);
	}
	for (size_t shape = 0; shape < ARRAY_COUNT(shapes); shape++) {
		struct lap_session *s = open_session(m, &shapes[shape]);
		for (int run = 0; run < (test_small() || shape != 2 ? 1 : 3); run++) {
			mixed_run(&together, s, n);
			for (size_t i = 0; i < n; i++) {
				char what[64];
				snprintf(what, sizeof(what), "%u sequences, run %d, request %zu",
					(unsigned)shapes[shape].n_seq, run, i);
				expect_same(&together.collected[i], &alone.collected[i], what, "");
				cr_assert_str_eq(together.collected[i].text,
					alone.collected[i].text, "%s", what);
			}
		}
		uint32_t n_buckets = 1;
		while (1u << (n_buckets - 1) < shapes[shape].n_seq)
			n_buckets++;
		cr_expect_leq(s->counts.decode_recordings, N_STEP_KINDS * n_buckets,
			"each number of rows is recorded once");
		cr_expect_eq(s->counts.prefill_recordings, 1);
		lap_session_destroy(s);
	}
	mixed_release(&alone);
	mixed_release(&together);
	lap_model_close(m);
}

/* With room for some of them only, those that find none fail alone, and say so. */
static inline void batch_runs_out(const char *path, const char *device)
{
	struct lap_model *m = open_model(path, device);
	static struct mixed alone, together;
	mixed_create(&alone, m, 60);
	mixed_create(&together, m, 60);
	const struct lap_session_options roomy = {.n_seq = 4, .n_ctx = 512},
					 tight = {.n_seq = 4, .n_ctx = 128};
	struct lap_session *s = open_session(m, &roomy);
	struct lap_error err = {0};
	mixed_run(&alone, s, 4);
	lap_session_destroy(s);
	s = open_session(m, &tight);
	for (int run = 0; run < 2; run++) {
		size_t n_failed = 0;
		for (size_t i = 0; i < 4; i++)
			together.collected[i].n = 0;
		cr_assert_eq(
			lap_generate_batch(s, together.requests, 4, &err), LAP_OK, "%s", err.text);
		for (size_t i = 0; i < 4; i++) {
			const struct lap_request *r = &together.requests[i];
			n_failed += r->status != LAP_OK;
			if (r->status) {
				cr_expect_eq(r->status, LAP_USAGE);
				cr_expect(strstr(r->error.text, "KV cache of 128 tokens is full"),
					"%s", r->error.text);
			}
			cr_expect_eq(together.collected[i].n, r->result.n_generated);
			for (size_t j = 0; j < together.collected[i].n; j++)
				cr_assert_eq(
					together.collected[i].ids[j], alone.collected[i].ids[j]);
			if (!r->status)
				cr_expect_eq(together.collected[i].n, alone.collected[i].n);
		}
		cr_expect(n_failed > 0 && n_failed < 4, "%zu failed", n_failed);
		cr_expect_eq(s->full.n_free + s->timelines[0].full.n + s->timelines[1].full.n +
				s->timelines[2].full.n + s->timelines[3].full.n,
			s->full.n_blocks, "no block is lost or counted twice");
	}
	lap_session_destroy(s);
	mixed_release(&alone);
	mixed_release(&together);
	lap_model_close(m);
}

#define N_CROPPED 70 /* of which 12 see the last 64 tokens alone */

/* 300 tokens in a context of 64. */
static inline void overflow(const char *path, const char *device, enum lap_kv_type kv,
	enum lap_overflow how, uint32_t n_keep, struct collected *c, struct lap_generation *r)
{
	struct lap_model *m = open_model(path, device);
	const struct lap_session_options so = {.n_ctx = 64, .type_k = kv, .type_v = kv};
	struct lap_session *s = open_session(m, &so);
	struct lap_error err = {0};
	const struct lap_generate_options o = {.sampling = greedy(),
		.n_predict = how == LAP_OVERFLOW_CROP ? N_CROPPED : 300,
		.ignore_eos = true,
		.overflow = how,
		.n_keep = n_keep};
	const int32_t prompt[] = {114, 64, 258, 188, 270, 105, 168};
	c->n = 0;
	cr_assert_eq(lap_generate(s, prompt, ARRAY_COUNT(prompt), &o, collect, c, r, &err), LAP_OK,
		"%s", err.text);
	cr_expect_eq(r->finish, LAP_FINISH_LENGTH);
	if (how == LAP_OVERFLOW_SHIFT)
		for (uint32_t i = 0; i < n_keep; i++)
			cr_expect_eq(s->timelines[0].tokens[i], prompt[i], "token %u is kept", i);
	lap_session_destroy(s);
	lap_model_close(m);
}

#endif
