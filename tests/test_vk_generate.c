/* Generation on Vulkan: equal to the CPU reference, and equal to itself whatever the chunk size and
 * the steps per submit; recordings and submits counted. */
#include "generation.h"

Test(vk_generate, stories)
{
	SKIP_WITHOUT("models/stories260K.expected.json");
	expected_models("stories260K", NULL);
}

Test(vk_generate, micro_lm)
{
	SKIP_WITHOUT("models/micro-lm-pro.expected.json");
	expected_models("micro-lm-pro", NULL);
}

Test(vk_generate, demo)
{
	expected_demo(NULL);
}

static void same_as_cpu(const char *path, const char *const *prompts)
{
	const struct lap_sampling samplings[] = {greedy(), warm()};
	const struct lap_session_options full = {.type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	const int64_t n_of[] = {N_GENERATED, 96};
	size_t n_prompts = test_small() ? 2 : N_PROMPTS;
	struct lap_model *vk_model = open_model(path, NULL), *cpu_model = open_model(path, "cpu");
	struct lap_session *vk = open_session(vk_model, &full),
			   *cpu = open_session(cpu_model, &full);
	for (size_t i = 0; i < n_prompts; i++)
		for (size_t j = 0; j < ARRAY_COUNT(samplings); j++) {
			struct collected a = {0}, b = {0};
			const int64_t n = test_small() ? 32 : n_of[j];
			generate(vk, prompts[i], n, &samplings[j], &a);
			generate(cpu, prompts[i], n, &samplings[j], &b);
			expect_same(&a, &b, j ? "sampled" : "greedy", prompts[i]);
		}
	lap_session_destroy(vk);
	lap_session_destroy(cpu);
	lap_model_close(vk_model);
	lap_model_close(cpu_model);
}

Test(vk_generate, same_as_cpu_demo)
{
	same_as_cpu(source_path("models/austen.gguf"), austen_prompts);
}

Test(vk_generate, same_as_cpu_stories)
{
	SKIP_WITHOUT("models/stories260K-F32.gguf");
	same_as_cpu(shared_path("models/stories260K-F32.gguf"), story_prompts);
}

/* A prompt of many tokens, so that chunks of every size divide it differently. */
static void long_prompt(char *text, size_t n, const char *const *prompts)
{
	text[0] = '\0';
	for (size_t i = 0; i < N_PROMPTS; i++) {
		strncat(text, prompts[i], n - strlen(text) - 1);
		strncat(text, " ", n - strlen(text) - 1);
	}
}

static void same_in_every_way(const char *path, const char *const *prompts)
{
	static const uint32_t batches[] = {1, 7, 64, 512}, steps[] = {0, 1, 3, 16};
	const struct lap_sampling samplings[] = {greedy(), warm()};
	int64_t n = test_small() ? 16 : 96;
	char text[1024];
	long_prompt(text, sizeof(text), prompts);
	struct lap_model *m = open_model(path, NULL);
	struct collected expected[2] = {0};
	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < 2; j++) {
			struct lap_session_options options = {
				.n_batch = batches[i], .steps_per_submit = steps[i]};
			struct lap_session *s = open_session(m, &options);
			struct collected c = {0};
			generate(s, text, n, &samplings[j], &c);
			if (i == 0)
				expected[j] = c;
			char what[64];
			snprintf(what, sizeof(what), "batch %u, %u steps a submit",
				(unsigned)batches[i], (unsigned)steps[i]);
			expect_same(&c, &expected[j], what, text);
			lap_session_destroy(s);
		}
	lap_model_close(m);
}

Test(vk_generate, same_in_every_way_demo)
{
	same_in_every_way(source_path("models/austen.gguf"), austen_prompts);
}

Test(vk_generate, same_in_every_way_stories)
{
	SKIP_WITHOUT("models/stories260K-F16.gguf");
	same_in_every_way(shared_path("models/stories260K-F16.gguf"), story_prompts);
}

/* The decode step is recorded once; 200 tokens at k = 16 take at most 16 submits. */
Test(vk_generate, recordings)
{
	struct lap_model *m = open_model(source_path("models/austen.gguf"), NULL);
	struct lap_session_options options = {.steps_per_submit = 16};
	struct lap_session *s = open_session(m, &options);
	struct lap_sampling sampling = greedy();
	struct collected c = {0};
	struct lap_generation r;
	for (int i = 0; i < 2; i++) {
		r = generate(s, austen_prompts[i], 200, &sampling, &c);
		cr_expect_eq(c.n, 200);
		cr_expect_eq(r.prefill_recordings, 1);
		cr_expect_eq(r.decode_recordings, 1);
		cr_expect_leq(r.decode_submits, 16);
		cr_expect_geq(r.decode_submits, 13);
		cr_expect_eq(r.submits, r.decode_submits + r.prefill_submits);
	}
	lap_session_destroy(s);
	lap_model_close(m);
}

/* An end in the middle of a submit ends the work there: what was queued behind it does nothing. */
Test(vk_generate, end_in_the_middle)
{
	char *bytes;
	struct lap_model *m = open_model_that_ends(&bytes, NULL);
	struct lap_session_options options = {.steps_per_submit = 16};
	struct lap_session *s = open_session(m, &options);
	struct lap_generate_options generate_options = {.sampling = greedy(), .n_predict = 96};
	struct lap_generation r;
	struct lap_error err = {0};
	struct collected c = {0};
	const int32_t prompt[] = {
		1114, 364, 258, 1880, 470, 105, 1168, 552, 1759, 728, 787, 44, 332};
	cr_assert_eq(lap_generate(s, prompt, ARRAY_COUNT(prompt), &generate_options, collect, &c,
			     &r, &err),
		LAP_OK, "%s", err.text);
	cr_expect_eq(r.finish, LAP_FINISH_STOP);
	cr_expect_eq(c.n, 17); /* the first of the second submit's 16 */
	cr_expect_eq(c.ids[16], END_TOKEN);
	cr_expect_eq(s->decode[STEP_DRAW][0].step->done, 1);
	cr_expect_eq(s->sequences->n_left, 96 - 17, "no step ran behind the end");
	cr_expect_eq(s->ring[17].step, 0, "nothing stands behind the end in the ring");
	lap_session_destroy(s);
	lap_model_close(m);
	free(bytes);
}

/* Where 512 rows of the widest activation cannot be bound at once, a prefill takes fewer. */
Test(vk_generate, small_bindings)
{
	struct lap_model *m;
	struct lap_error err = {0};
	const struct lap_model_options small = {
		.max_chunk_bytes = 1 << 20, .no_pipeline_cache = true};
	struct lap_sampling sampling = greedy();
	struct collected expected = {0}, c = {0};
	cr_assert_eq(lap_model_open(source_path("models/austen.gguf"), &small, &m, &err), LAP_OK,
		"%s", err.text);
	struct lap_session *s = open_session(m, NULL);
	cr_expect_lt(s->n_batch, 512);
	cr_expect_geq(s->n_batch, 128);
	generate(s, austen_prompts[4], 16, &sampling, &c);
	lap_session_destroy(s);
	lap_model_close(m);
	m = open_model(source_path("models/austen.gguf"), NULL);
	s = open_session(m, NULL);
	generate(s, austen_prompts[4], 16, &sampling, &expected);
	expect_same(&c, &expected, "1 MiB bindings", austen_prompts[4]);
	lap_session_destroy(s);
	lap_model_close(m);
}
