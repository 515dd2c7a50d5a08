/* Generation on the CPU reference: ids of trained models, limits, cancellation, streaming. */
#include <pthread.h>

#include "generation.h"

#include "tokenizer.h"

Test(generate, stories)
{
	SKIP_WITHOUT("models/stories260K.expected.json");
	expected_models("stories260K", "cpu");
}

Test(generate, micro_lm)
{
	SKIP_WITHOUT("models/micro-lm-pro.expected.json");
	expected_models("micro-lm-pro", "cpu");
}

Test(generate, demo)
{
	expected_demo("cpu");
}

static struct lap_session *demo_session(const struct lap_session_options *options)
{
	return open_session(open_model(source_path("models/austen.gguf"), "cpu"), options);
}

static void close_session(struct lap_session *s)
{
	struct lap_model *m = s->m;
	lap_session_destroy(s);
	lap_model_close(m);
}

/* OB-21: how many tokens fit. */
Test(generate, limits)
{
	struct lap_session_options options = {.n_ctx = 64};
	struct lap_session *s = demo_session(&options);
	struct lap_generate_options generate = {.sampling = greedy(), .ignore_eos = true};
	struct lap_generation r;
	struct lap_error err = {0};
	int32_t prompt[66];
	for (size_t i = 0; i < ARRAY_COUNT(prompt); i++)
		prompt[i] = (int32_t)(300 + i);
	const struct {
		size_t n_prompt;
		int64_t n_predict;
		enum lap_status status;
		size_t n_generated;
	} cases[] = {
		{4, 0, LAP_OK, 0}, {4, 1, LAP_OK, 1}, {4, 7, LAP_OK, 7}, {4, -1, LAP_OK, 60},
		{4, 1000, LAP_OK, 60}, {63, -1, LAP_OK, 1}, {64, 5, LAP_USAGE, 0},
		{65, 5, LAP_USAGE, 0}, {0, 5, LAP_USAGE, 0}, {4, -2, LAP_OK, 60},
		{4, -3, LAP_USAGE, 0}, {4, 3, LAP_OK, 3}, /* an error leaves the session whole */
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct collected c = {0};
		generate.n_predict = cases[i].n_predict;
		enum lap_status status = lap_generate(
			s, prompt, cases[i].n_prompt, &generate, collect, &c, &r, &err);
		cr_expect_eq(status, cases[i].status, "case %zu: %s", i, err.text);
		cr_expect_eq(c.n, cases[i].n_generated, "case %zu: %zu tokens", i, c.n);
		cr_expect_eq(r.n_generated, c.n);
		if (!status)
			cr_expect_eq(r.finish, LAP_FINISH_LENGTH);
	}
	prompt[1] = 1 << 30;
	cr_expect_eq(lap_generate(s, prompt, 4, &generate, NULL, NULL, &r, &err), LAP_USAGE);
	close_session(s);
}

/* OB-20: an end token stops, prints nothing, and its id comes from the file; ignore_eos goes on. */
Test(generate, stop)
{
	char *bytes;
	struct lap_model *m = open_model_that_ends(&bytes, "cpu");
	struct lap_session *s = open_session(m, NULL);
	struct lap_generate_options options = {.sampling = greedy(), .n_predict = 96};
	struct lap_generation r;
	struct lap_error err = {0};
	struct collected c = {0};
	const int32_t prompt[] = {
		1114, 364, 258, 1880, 470, 105, 1168, 552, 1759, 728, 787, 44, 332};
	cr_assert_eq(lap_generate(s, prompt, ARRAY_COUNT(prompt), &options, collect, &c, &r, &err),
		LAP_OK, "%s", err.text);
	cr_expect_eq(r.finish, LAP_FINISH_STOP);
	cr_expect_eq(c.n, 17); /* austen.expected.json: the first 46 */
	cr_expect_eq(c.ids[16], END_TOKEN);
	cr_expect_eq(c.n_bytes_last, 0);
	for (size_t i = 0; i < c.n; i++)
		cr_expect_eq(lap_token_is_end(m, c.ids[i]), i == 16);

	options.ignore_eos = true;
	c.n = 0;
	cr_assert_eq(lap_generate(s, prompt, ARRAY_COUNT(prompt), &options, collect, &c, &r, &err),
		LAP_OK, "%s", err.text);
	cr_expect_eq(r.finish, LAP_FINISH_LENGTH);
	cr_expect_eq(c.n, 96);
	cr_expect_eq(c.n_bytes_last > 0, true);
	lap_session_destroy(s);
	lap_model_close(m);
	free(bytes);
}

static bool cancel_at_five(void *user, const struct lap_token *token)
{
	size_t *n = user;
	return token->id < 0 || ++*n < 5;
}

Test(generate, cancelled_by_callback)
{
	struct lap_session *s = demo_session(NULL);
	struct lap_generate_options options = {
		.sampling = greedy(), .n_predict = 100, .ignore_eos = true};
	struct lap_generation r;
	struct lap_error err = {0};
	int32_t prompt[] = {319, 364, 313};
	size_t n = 0;
	cr_assert_eq(lap_generate(s, prompt, 3, &options, cancel_at_five, &n, &r, &err), LAP_OK);
	cr_expect_eq(r.finish, LAP_FINISH_CANCELLED);
	cr_expect_eq(r.n_generated, 5);
	struct collected c = {0};
	cr_assert_eq(lap_generate(s, prompt, 3, &options, collect, &c, &r, &err), LAP_OK);
	cr_expect_eq(c.n, 100, "the session works on");
	close_session(s);
}

struct told {
	size_t done, n, n_calls, most_calls;
	bool rises;
};

static bool told_of_prompt(void *user, size_t n_done, size_t n)
{
	struct told *t = user;
	t->rises = (t->n_calls == 0 || t->rises) && n_done > t->done && n_done <= n;
	t->done = n_done;
	t->n = n;
	return ++t->n_calls < t->most_calls;
}

/* What is computed of a prompt is told, chunk by chunk, without what was there before. */
Test(generate, prompt_in_progress)
{
	struct lap_session_options options = {.n_ctx = 256, .n_batch = 32};
	struct lap_session *s = demo_session(&options);
	struct lap_generate_options o = {.sampling = greedy(), .on_prompt = told_of_prompt};
	struct lap_generation r;
	struct lap_error err = {0};
	struct told t = {.most_calls = 100};
	int32_t prompt[201];
	for (size_t i = 0; i < ARRAY_COUNT(prompt); i++)
		prompt[i] = (int32_t)(300 + i);
	cr_assert_eq(lap_generate(s, prompt, 41, &o, NULL, &t, &r, &err), LAP_OK, "%s", err.text);
	cr_expect(t.rises && t.n_calls > 1 && t.n == 40 && t.done == 40);
	t = (struct told){.most_calls = 2};
	cr_assert_eq(lap_generate(s, prompt, 201, &o, NULL, &t, &r, &err), LAP_OK);
	cr_expect(t.rises && t.n_calls == 2 && t.n == 160 && t.done <= 64);
	cr_expect_eq(r.finish, LAP_FINISH_CANCELLED, "told to stop");
	close_session(s);
}

/* A prompt that shares a prefix with what the session holds gives what a fresh session gives. */
Test(generate, prefix_reuse)
{
	struct lap_session *s = demo_session(NULL);
	struct lap_sampling sampling = warm();
	struct collected fresh = {0}, reused = {0};
	generate(s, "The carriage came to the door, and Elizabeth", 40, &sampling, &fresh);
	generate(s, "The carriage came to the door, but", 40, &sampling, &reused);
	struct lap_generation r =
		generate(s, "The carriage came to the door, and Elizabeth", 40, &sampling, &reused);
	cr_expect_gt(r.n_reused, 4);
	expect_same(&reused, &fresh, "reused prefix", "The carriage");
	close_session(s);
}

static void generate_ids(struct lap_session *s, const int32_t *prompt, size_t n, int64_t n_predict,
	struct collected *c)
{
	const struct lap_generate_options options = {
		.sampling = greedy(), .n_predict = n_predict, .ignore_eos = true};
	struct lap_error err = {0};
	c->n = 0;
	cr_assert_eq(lap_generate(s, prompt, n, &options, collect, c, NULL, &err), LAP_OK, "%s",
		err.text);
}

/* Layers with a window go round in few blocks: what they have left behind cannot be gone back to, and a
 * reused session says the same as a fresh one all the same. */
Test(generate, prefix_reuse_behind_a_window)
{
	SKIP_WITHOUT("golden/gemma2-plain.gguf");
	struct lap_model *m = open_model(shared_path("golden/gemma2-plain.gguf"), "cpu");
	const struct lap_session_options options = {.n_ctx = 256, .n_batch = 16};
	struct lap_session *reused = open_session(m, &options);
	cr_assert_eq(reused->n_window_blocks, 6, "a window of 8 and 128 positions ahead");
	int32_t prompt[60];
	for (int32_t i = 0; i < 60; i++)
		prompt[i] = 20 + i * 37 % 280;
	struct collected a = {0}, b = {0};
	static const struct {
		size_t n, changed; /* tokens of the prompt, and the first that differs */
		int64_t n_predict;
	} steps[] = {
		{40, 40, 150}, {40, 40, 5}, {60, 55, 60}, {60, 20, 10}, {30, 30, 10}, {31, 31, 1}};
	for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
		for (size_t j = steps[i].changed; j < 60; j++)
			prompt[j] = (prompt[j] + 11) % 300 + 4;
		struct lap_session *fresh = open_session(m, &options);
		generate_ids(fresh, prompt, steps[i].n, steps[i].n_predict, &a);
		generate_ids(reused, prompt, steps[i].n, steps[i].n_predict, &b);
		expect_same(&b, &a, "behind a window", "ids");
		lap_session_destroy(fresh);
	}
	close_session(reused);
}

/* Two seeds differ, one seed repeats, a random seed is reported and repeats when given. */
Test(generate, seeds)
{
	struct lap_session *s = demo_session(NULL);
	struct lap_sampling sampling = lap_sampling_default();
	struct collected a = {0}, b = {0};
	struct lap_generation r = generate(s, "She", 30, &sampling, &a);
	sampling.seed = r.seed;
	generate(s, "She", 30, &sampling, &b);
	expect_same(&b, &a, "the reported seed", "She");
	sampling.seed = r.seed + 1;
	generate(s, "She", 30, &sampling, &b);
	cr_expect_arr_neq(a.ids, b.ids, sizeof(int32_t) * 30);
	close_session(s);
}

/* Damaged weights are an error, never token 0. */
Test(generate, nan_logits)
{
	struct lap_session *s = demo_session(NULL);
	struct backend *b = s->m->backend;
	struct lap_error err = {0};
	struct lap_generate_options options = {.sampling = greedy(), .n_predict = 4};
	int32_t prompt[] = {319, 364, 313};
	float nan_row[2] = {NAN, NAN};
	cr_assert_eq(
		b->ops->write(b, s->step_buffers.rope, nan_row, sizeof(nan_row), &err), LAP_OK);
	cr_expect_eq(lap_generate(s, prompt, 3, &options, NULL, NULL, NULL, &err), LAP_ERROR);
	cr_expect(strstr(err.text, "not numbers"), "%s", err.text);
	close_session(s);
}

/* Zeroed sampling parameters are greedy without penalties, as the header says of zeroed options. */
Test(generate, zeroed_options)
{
	struct lap_session *s = demo_session(NULL);
	const struct lap_generate_options zeroed = {.n_predict = 12};
	const struct lap_generate_options spelled = {
		.sampling = {.top_p = 1, .repeat_penalty = 1}, .n_predict = 12};
	struct collected a = {0}, b = {0};
	struct lap_error err = {0};
	int32_t prompt[] = {319, 364, 313};
	cr_assert_eq(lap_generate(s, prompt, 3, &zeroed, collect, &a, NULL, &err), LAP_OK, "%s",
		err.text);
	cr_assert_eq(lap_generate(s, prompt, 3, &spelled, collect, &b, NULL, &err), LAP_OK, "%s",
		err.text);
	cr_expect_eq(a.n, 12);
	expect_same(&a, &b, "zeroed options", "three tokens");
	close_session(s);
}

struct first {
	struct lap_session *s;
	uint32_t n_submits; /* of decode, when the first token came */
};

static bool note_submits(void *user, const struct lap_token *token)
{
	struct first *first = user;
	(void)token;
	if (!first->n_submits)
		first->n_submits = first->s->counts.decode_submits;
	return true;
}

/* The first token waits for its own step only: here a submit returns when it is done. */
Test(generate, first_token_comes_first)
{
	struct lap_session *s = demo_session(NULL);
	struct lap_generate_options options = {.sampling = greedy(), .n_predict = 8};
	struct lap_error err = {0};
	struct first first = {s, 0};
	int32_t prompt[] = {319, 364, 313};
	cr_assert_eq(lap_generate(s, prompt, 3, &options, note_submits, &first, NULL, &err), LAP_OK,
		"%s", err.text);
	cr_expect_eq(first.n_submits, 1);
	close_session(s);
}

static void *generate_alone(void *model)
{
	struct collected *c = calloc(1, sizeof(*c));
	struct lap_sampling sampling = greedy();
	for (int i = 0; c && i < 20; i++) {
		struct lap_session *s = open_session(model, NULL);
		generate(s, austen_prompts[2], 4, &sampling, c);
		lap_session_destroy(s);
	}
	return c;
}

/* A model is shared between threads, a session belongs to one: same ids, no memory miscounted. */
Test(generate, sessions_in_threads)
{
	struct lap_model *m = open_model(source_path("models/austen.gguf"), "cpu");
	uint64_t n_bytes = m->backend->device_bytes;
	pthread_t threads[3];
	struct collected *c[3] = {NULL};
	for (int i = 0; i < 3; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, generate_alone, m), 0);
	for (int i = 0; i < 3; i++) {
		void *result;
		cr_assert_eq(pthread_join(threads[i], &result), 0);
		c[i] = result;
	}
	for (int i = 0; i < 3; i++) {
		cr_assert(c[i]);
		expect_same(c[i], c[0], "a thread of its own", austen_prompts[2]);
	}
	cr_expect_eq(m->backend->device_bytes, n_bytes);
	for (int i = 0; i < 3; i++)
		free(c[i]);
	lap_model_close(m);
}
