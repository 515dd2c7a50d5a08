/* Devices that are short of something: large blocks of memory, subgroup arithmetic. */
#include "models.h"
#include "rates.h"
#include "vk/alloc.h"
#include "vk/memory.h"

static const char *demo(void)
{
	return source_path("models/austen.gguf");
}

/* OB-10: a failed try of a large block does not end the run where smaller ones do. */
Test(vk_memory, smaller_blocks_will_do)
{
	struct lap_error err = {0};
	vk_fail_allocation_above(1 << 20);
	struct lap_model *m = open_model(demo(), NULL); /* no tensor is larger */
	struct lap_session_options options = {.n_batch = 32};
	struct lap_session *s = open_session(m, &options);
	uint32_t n_blocks = 0;
	(void)collect;
	cr_assert_gt(m->backend->device_bytes, 4 << 20, "several blocks");
	struct buffer *buffer;
	for (; n_blocks < 3; n_blocks++) {
		cr_assert_eq(m->backend->ops->buffer_create(m->backend, (1 << 20) + 1,
				     MEMORY_DEVICE, "a large one", &buffer, &err),
			LAP_NO_MEMORY);
		cr_expect(strstr(err.text, "a large one") && strstr(err.text, "1.0 MiB"), "%s",
			err.text);
	}
	float *logits = malloc(lap_model_info(m)->n_vocab * sizeof(float));
	cr_expect_eq(session_step(s, 1, logits, &err), LAP_OK, "%s", err.text);
	free(logits);
	lap_session_destroy(s);
	lap_model_close(m);
}

Test(vk_memory, a_session_that_does_not_fit)
{
	struct lap_error err = {0};
	struct lap_session *s;
	if (getenv("LAPILLI_MAX_CHUNK"))
		skip_test("small bindings leave a session fewer rows, which fit");
	vk_fail_allocation_above(1 << 20); /* the weights fit, a prompt's activations do not */
	struct lap_model *m = open_model(demo(), NULL);
	uint64_t before = m->backend->device_bytes;
	struct lap_session_options options = {.n_batch = 512, .type_k = LAP_KV_F32};
	cr_expect_eq(lap_session_create(m, &options, &s, &err), LAP_NO_MEMORY);
	cr_expect(!s && strstr(err.text, "a context of 512 tokens needs") &&
			strstr(err.text, "the weights 4.5 MiB") && strstr(err.text, "-ctk q8_0"),
		"%s", err.text);
	cr_expect_eq(m->backend->device_bytes, before, "nothing is left behind");
	vk_fail_allocation_above(0);
	s = open_session(m, &options);
	lap_session_destroy(s);

	/* more than can be bound at once */
	options.n_ctx = 5000000;
	cr_expect_eq(lap_session_create(m, &options, &s, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "what fits: -c ") && strstr(err.text, "with -ctk q4_0"), "%s",
		err.text);
	lap_model_close(m);
}

Test(vk_memory, a_model_that_does_not_fit)
{
	struct lap_error err = {0};
	struct lap_model *m;
	struct lap_model_options options = {.no_pipeline_cache = true};
	vk_fail_allocation_above(1 << 18);
	cr_expect_eq(lap_model_open(demo(), &options, &m, &err), LAP_NO_MEMORY);
	cr_expect(!m && strstr(err.text, "token_embd.weight") &&
			strstr(err.text, "all weights need 4.5 MiB"),
		"%s", err.text);
}

Test(vk_memory, a_driver_says_what_may_be_used)
{
	struct lap_model *m = open_model(demo(), NULL);
	uint64_t available = m->backend->ops->available(m->backend);
	cr_expect_geq(available, m->backend->device_bytes);
	cr_expect_geq(available, 64 << 20);
	lap_model_close(m);
}

/* OB-09: the baseline asks for no 16-bit or 8-bit types, no 16-bit floats and, here, no subgroups: its
 * logits are those of the variants. */
static float *prompt_logits(const char *model, bool *subgroup, size_t *n)
{
	static const int32_t tokens[] = {1, 5, 9, 200, 17, 33, 4, 2, 80, 7};
	struct lap_model *m = open_model(model, NULL);
	struct lap_session_options options = {.n_ctx = 64, .logits_all = true};
	struct lap_session *s = open_session(m, &options);
	struct lap_error err = {0};
	*subgroup = ((struct vk *)m->backend)->subgroup;
	uint32_t n_vocab = lap_model_info(m)->n_vocab;
	*n = 2 * ARRAY_COUNT(tokens) * n_vocab;
	float *logits = malloc(*n * sizeof(float));
	cr_assert_eq(lap_session_logits(s, tokens, ARRAY_COUNT(tokens), logits, &err), LAP_OK, "%s",
		err.text);
	lap_session_clear(s);
	for (size_t i = 0; i < ARRAY_COUNT(tokens); i++)
		cr_assert_eq(session_step(s, tokens[i],
				     logits + (ARRAY_COUNT(tokens) + i) * n_vocab, &err),
			LAP_OK, "%s", err.text);
	lap_session_destroy(s);
	lap_model_close(m);
	return logits;
}

Test(vk_memory, the_baseline_gives_the_same_logits)
{
	static const char *const models[] = {"golden/llama-freqs.gguf", "golden/mix-q4_k_m.gguf"};
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		bool with, without;
		size_t n;
		unsetenv("LAPILLI_NO_SUBGROUP");
		float *a = prompt_logits(vector_path(models[i]), &with, &n);
		setenv("LAPILLI_NO_SUBGROUP", "1", 1);
		float *b = prompt_logits(vector_path(models[i]), &without, &n);
		cr_expect_not(without);
		if (!with)
			skip_test("this device has no subgroup variants to compare with");
		for (size_t k = 0; k < n; k++)
			cr_assert_float_eq(a[k], b[k], 1e-3, "%s: logit %zu", models[i], k);
		free(a);
		free(b);
	}
}

/* What bandwidth is measured with is larger than one binding of this driver. */
Test(vk_memory, rates_in_chunks)
{
	struct backend *b;
	struct rates rates;
	struct lap_error err = {0};
	if (test_small())
		skip_test("a quarter of a GiB on a slow device");
	cr_assert_eq(vk_open(&(struct vk_options){0}, &b, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(rates_measure(b, &rates, &err), LAP_OK, "%s", err.text);
	cr_expect_gt(rates.n_bytes, b->max_buffer_bytes);
	cr_expect_gt(rates.bytes_per_second, 0);
	cr_expect_gt(rates.flops_per_second, 0);
	b->ops->close(b);
}
