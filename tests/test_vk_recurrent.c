/* Models with recurrent layers on Vulkan: their states keep the promises that a KV cache keeps, however the
 * work is cut, shared, guessed at, taken back or kept in files. */
#include "batch.h"
#include "beams.h"
#include "prompt_cache.h"
#include "speculation.h"

static const char *const models[] = {"golden/lfm2-plain.gguf", "golden/qwen35-plain.gguf"};

#define N_LONGEST 110 /* tokens of a prompt here */
#define N_NEXT    40  /* and behind it */

static const int32_t *prompt_of(struct lap_model *m)
{
	static int32_t prompt[N_LONGEST];
	make_prompt(prompt, N_LONGEST, (int32_t)lap_model_info(m)->n_vocab);
	return prompt;
}

/* Greedy tokens behind n of the prompt; how many of these were there. */
static size_t go_on(struct lap_session *s, const int32_t *prompt, size_t n, struct collected *c)
{
	const struct lap_generate_options o = {
		.sampling = greedy(), .n_predict = N_NEXT, .ignore_eos = true};
	struct lap_generation r;
	struct lap_error err = {0};
	c->n = c->n_text = 0;
	cr_assert_eq(lap_generate(s, prompt, n, &o, collect, c, &r, &err), LAP_OK, "%s", err.text);
	return r.n_reused;
}

static void expect_bits(
	const struct collected *a, const struct collected *b, const char *path, size_t number)
{
	cr_assert_eq(a->n, b->n, "%s, %zu", path, number);
	cr_expect_arr_eq(a->ids, b->ids, a->n * sizeof(*a->ids), "%s, %zu", path, number);
	cr_expect_eq(a->log_prob, b->log_prob, "%s, %zu: the last log-probability", path, number);
}

/* Chunks of a prompt, steps of a submit; of the other families whose layers differ, too. */
Test(vk_recurrent, any_cut)
{
	static const char *const all[] = {"golden/lfm2-plain.gguf", "golden/qwen35-plain.gguf",
		"golden/qwen35moe-plain.gguf", "golden/gemma4-e.gguf", "golden/gemma4-moe.gguf"};
	static const uint32_t batches[] = {96, 1, 7, 32}, steps[] = {1, 4, 16};
	static struct collected first, c;
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
		struct lap_model *m = open_model(shared_path(all[i]), NULL);
		for (size_t j = 0; j < ARRAY_COUNT(batches) * ARRAY_COUNT(steps); j++) {
			const struct lap_session_options so = {.n_ctx = 200,
				.n_batch = batches[j / ARRAY_COUNT(steps)],
				.steps_per_submit = steps[j % ARRAY_COUNT(steps)],
				.n_top = 1};
			struct lap_session *s = open_session(m, &so);
			go_on(s, prompt_of(m), 97, j ? &c : &first);
			if (j)
				expect_bits(&c, &first, all[i], j);
			lap_session_destroy(s);
		}
		lap_model_close(m);
	}
}

/* A prompt that shares its beginning with what was computed starts at a checkpoint, and goes on as in a fresh
 * session; what lay in the memory of the states does not matter. */
Test(vk_recurrent, goes_back)
{
	static const size_t lengths[] = {100, 110, 70, 100, 33, 17, 16, 90, 15, 2, 90};
	static struct collected expected, c;
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		struct lap_model *m = open_model(shared_path(models[i]), NULL);
		const struct lap_session_options so = {.n_ctx = 200, .n_batch = 40, .n_top = 1};
		struct lap_session *s = open_session(m, &so);
		const struct backend_ops *ops = m->backend->ops;
		for (uint32_t il = 0; il < m->model->h.n_layer; il++)
			for (int which = 0; which < 2; which++) {
				const struct layer_state *state = &s->kv.states[il];
				const struct view v = which ? state->delta : state->conv;
				struct lap_error err;
				uint8_t *nan = malloc(v.n_bytes + 1);
				memset(nan, 0xff, v.n_bytes);
				if (v.n_bytes)
					cr_assert_eq(
						ops->write(m->backend, v, nan, v.n_bytes, &err),
						LAP_OK);
				free(nan);
			}
		size_t n_reused = 0;
		for (size_t j = 0; j < ARRAY_COUNT(lengths); j++) {
			struct lap_session *fresh = open_session(m, &so);
			go_on(fresh, prompt_of(m), lengths[j], &expected);
			lap_session_destroy(fresh);
			size_t n = go_on(s, prompt_of(m), lengths[j], &c);
			expect_bits(&c, &expected, models[i], j);
			if (j == 1) /* the longer prompt goes on where the last one ended */
				cr_expect_eq(n, 99, "%s: %zu", models[i], n);
			n_reused += n;
		}
		cr_expect_gt(n_reused, 99 + 110, "%s: %zu were reused", models[i], n_reused);
		lap_session_clear(s);
		cr_expect_eq(s->states.n_free, s->states.n_blocks, "no block is lost");
		lap_session_destroy(s);
		lap_model_close(m);
	}
}

Test(vk_recurrent, batches)
{
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	batch_equals_alone(shared_path("golden/qwen35-plain.gguf"), NULL);
}

Test(vk_recurrent, guesses)
{
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(models); i++)
		wrong_guesses_change_nothing(shared_path(models[i]), NULL, 60);
}

Test(vk_recurrent, beams)
{
	static const struct lap_session_options shape = {.n_seq = 4, .n_top = 8, .n_ctx = 128};
	const struct lap_beam_options o = {.n_beams = 4,
		.n_return = 4,
		.n_predict = 24,
		.length_penalty = 1,
		.ignore_eos = true};
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		struct lap_model *m = open_model(shared_path(models[i]), NULL);
		struct lap_session *s = open_session(m, &shape);
		struct lap_beam *beams;
		size_t n;
		search_beams(s, &o, &beams, &n);
		cr_assert_eq(n, 4);
		for (size_t j = 0; j < n; j++)
			cr_expect_eq(beams[j].log_prob, score_alone(m, &shape, &beams[j]),
				"%s, beam %zu", models[i], j);
		lap_free(beams);
		lap_session_destroy(s);
		lap_model_close(m);
	}
}

Test(vk_recurrent, files)
{
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		struct lap_model *m = open_model(shared_path(models[i]), NULL);
		struct lap_session_options o = {.n_ctx = 512, .n_batch = 64};
		round_trip(m, &o, 90, 100, 89, models[i]);
		o.n_seq = 3;
		round_trip(m, &o, 82, 100, 81, models[i]);
		lap_model_close(m);
	}
}
