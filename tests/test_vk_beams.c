/* Beam search on Vulkan: the beams of the CPU reference, and of each the bits it would have alone. */
#include "beams.h"

static const char *demo(void)
{
	return source_path("models/austen.gguf");
}

static const struct lap_session_options shape = {
	.n_seq = 5, .n_top = 16, .n_ctx = 512, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};

Test(vk_beams, same_as_cpu)
{
	struct lap_model *vk = open_model(demo(), NULL), *cpu = open_model(demo(), "cpu");
	struct lap_session *on_vk = open_session(vk, &shape), *on_cpu = open_session(cpu, &shape);
	int32_t end_tokens[6];
	const size_t n_ends = some_ends(vk, end_tokens, ARRAY_COUNT(end_tokens));
	for (size_t i = 0; i < (test_small() ? 1 : ARRAY_COUNT(beam_kinds)); i++) {
		struct lap_beam_options o = beam_kinds[i];
		struct lap_beam *a, *b;
		size_t n_a, n_b;
		o.stop_tokens = end_tokens;
		o.n_stop_tokens = n_ends;
		o.ignore_eos = true;
		search_beams(on_vk, &o, &a, &n_a);
		search_beams(on_cpu, &o, &b, &n_b);
		cr_assert_eq(n_a, n_b);
		for (size_t j = 0; j < n_a; j++) {
			cr_assert_eq(a[j].n, b[j].n, "%zu: beam %zu", i, j);
			cr_assert_arr_eq(a[j].tokens, b[j].tokens, a[j].n * sizeof(int32_t),
				"%zu: beam %zu", i, j);
			cr_expect_float_eq(a[j].log_prob, b[j].log_prob, 1e-3);
			cr_expect_float_eq(a[j].score, b[j].score, 1e-3);
			cr_expect_eq(a[j].finish, b[j].finish);
		}
		lap_free(a);
		lap_free(b);
	}
	lap_session_destroy(on_vk);
	lap_session_destroy(on_cpu);
	lap_model_close(vk);
	lap_model_close(cpu);
}

Test(vk_beams, same_bits_as_alone)
{
	struct lap_model *m = open_model(demo(), NULL);
	struct lap_session *s = open_session(m, &shape);
	const struct lap_beam_options o = {.n_beams = 4,
		.n_return = 4,
		.n_predict = test_small() ? 8 : 40,
		.length_penalty = 1,
		.ignore_eos = true};
	struct lap_beam *beams;
	size_t n;
	struct lap_generation r = search_beams(s, &o, &beams, &n);
	cr_assert_eq(n, 4);
	cr_expect_eq(r.decode_submits, o.n_predict, "one submit for a step");
	cr_expect_eq(r.decode_recordings, 2, "of one row and of four");
	for (size_t i = 0; i < n; i++)
		cr_expect_eq(beams[i].log_prob, score_alone(m, &shape, &beams[i]), "beam %zu", i);
	lap_free(beams);
	/* Again, from the prompt that is there. */
	r = search_beams(s, &o, &beams, &n);
	cr_expect_eq(r.n_reused, N_BEAM_PROMPT - 1);
	cr_expect_eq(r.decode_recordings, 2, "nothing is recorded again");
	for (size_t i = 0; i < n; i++)
		cr_expect_eq(beams[i].log_prob, score_alone(m, &shape, &beams[i]), "beam %zu", i);
	lap_free(beams);
	lap_session_destroy(s);
	lap_model_close(m);
}
