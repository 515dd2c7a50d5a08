/* Sequences in files, from Vulkan's buffers and back. */
#include "prompt_cache.h"

Test(vk_prompt_cache, same_bits_as_a_fresh_run)
{
	struct lap_model *m = open_model(vector_path("golden/llama-freqs.gguf"), NULL);
	struct lap_session_options o = {.n_ctx = 512, .n_batch = 64};
	round_trip(m, &o, 90, 100, 89, "longer");
	o.n_seq = 3;
	o.type_k = o.type_v = LAP_KV_F32;
	round_trip(m, &o, 90, 40, 39, "shorter");

	/* The reference computes other numbers, if not by much. */
	struct lap_model *cpu = open_model(vector_path("golden/llama-freqs.gguf"), "cpu");
	struct lap_session *s = open_session(cpu, &o);
	struct lap_error err;
	cr_expect_eq(lap_session_load(s, own_path("prompt.cache"), &err), LAP_USAGE);
	cr_expect(strstr(err.text, "by cpu the numbers would differ"), "%s", err.text);
	lap_session_destroy(s);
	lap_model_close(cpu);
	lap_model_close(m);
}
