/* Sequences on Vulkan: batches equal to each request alone, and to the CPU reference. */
#include "batch.h"

static const char *demo(void)
{
	return source_path("models/austen.gguf");
}

Test(vk_batch, equals_alone)
{
	batch_equals_alone(demo(), NULL);
}

Test(vk_batch, runs_out)
{
	batch_runs_out(demo(), NULL);
}

/* A batch on the device gives what the reference gives. */
Test(vk_batch, same_as_cpu)
{
	static struct mixed a, b;
	struct lap_model *vk = open_model(demo(), NULL), *cpu = open_model(demo(), "cpu");
	const size_t n = test_small() ? 5 : N_MIXED;
	const struct lap_session_options so = {
		.n_seq = 5, .n_ctx = 1024, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	struct lap_session *on_vk = open_session(vk, &so), *on_cpu = open_session(cpu, &so);
	mixed_create(&a, vk, 40);
	mixed_create(&b, cpu, 40);
	mixed_run(&a, on_vk, n);
	mixed_run(&b, on_cpu, n);
	for (size_t i = 0; i < n; i++)
		expect_same(&a.collected[i], &b.collected[i], "batch of 5", "");
	lap_session_destroy(on_vk);
	lap_session_destroy(on_cpu);
	mixed_release(&a);
	mixed_release(&b);
	lap_model_close(vk);
	lap_model_close(cpu);
}

Test(vk_batch, overflow_same_as_cpu)
{
	static const enum lap_overflow how[] = {LAP_OVERFLOW_SHIFT, LAP_OVERFLOW_CROP};
	static struct collected a, b;
	struct lap_generation ra, rb;
	for (size_t i = 0; i < ARRAY_COUNT(how); i++) {
		overflow(demo(), NULL, LAP_KV_F32, how[i], 4, &a, &ra);
		overflow(demo(), "cpu", LAP_KV_F32, how[i], 4, &b, &rb);
		expect_same(&a, &b, i ? "crop" : "shift", "");
		cr_expect_eq(ra.n_shifts, rb.n_shifts);
	}
}
