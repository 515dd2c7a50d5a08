/* Scores of given tokens on the CPU reference: log-probabilities, logits in pieces, and where rows lie. */
#include "models.h"
#include "score.h"

/* A text in /shared, its loss by float64 arithmetic on the stored weights, and how many tokens were
 * scored. */
static const struct {
	const char *file;
	double tolerance; /* F16 keeps less of K and V than float64 does */
} known[] = {{"stories260K-F32.gguf", 2e-5}, {"stories260K-Q4_0.gguf", 2e-5}};

static const struct lap_session_options exact = {
	.n_ctx = 256, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32, .logits_all = true};

Test(score, loss_of_a_known_text)
{
	SKIP_WITHOUT("models/stories260K.expected.json");
	json_t *expected = json_load_file(shared_path("models/stories260K.expected.json"), 0, NULL);
	const char *text = json_string_value(json_object_get(expected, "nll_text"));
	for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
		char path[128];
		snprintf(path, sizeof path, "models/%s", known[i].file);
		SKIP_WITHOUT("models/stories260K-Q4_0.gguf");
		struct lap_model *m = open_model(shared_path(path), "cpu");
		struct lap_session *s = open_session(m, &exact);
		struct lap_error err = {0};
		int32_t *tokens;
		size_t n;
		float log_probs[256];
		cr_assert_eq(lap_tokenize(m, text, strlen(text), true, false, &tokens, &n, &err),
			LAP_OK, "%s", err.text);
		cr_assert_eq(
			lap_session_score(s, tokens, n, log_probs, &err), LAP_OK, "%s", err.text);
		double sum = 0;
		for (size_t k = 0; k + 1 < n; k++)
			sum -= (double)log_probs[k];
		const json_t *model =
			json_object_get(json_object_get(expected, "models"), known[i].file);
		cr_expect_eq(
			(json_int_t)n, json_integer_value(json_object_get(model, "nll_tokens")));
		cr_expect_float_eq(sum / (double)(n - 1),
			json_real_value(json_object_get(model, "nll")), known[i].tolerance,
			"%s: %.7f", known[i].file, sum / (double)(n - 1));
		lap_free(tokens);
		lap_session_destroy(s);
		lap_model_close(m);
	}
	json_decref(expected);
}

enum { N = 150, FIRST = 70 }; /* more than two pieces, from the middle of one on */

struct pieces {
	const float *all; /* [N][n_vocab] */
	uint32_t n_vocab;
	size_t next, stop;
	unsigned n_calls;
};

static bool take_piece(void *user, size_t first, size_t n, const float *logits)
{
	struct pieces *p = user;
	cr_expect_eq(first, p->next);
	cr_expect(n > 0 && n <= 64);
	cr_expect(!memcmp(logits, p->all + first * p->n_vocab, n * p->n_vocab * sizeof *logits),
		"rows %zu to %zu differ", first, first + n - 1);
	p->next = first + n;
	p->n_calls++;
	return p->next < p->stop;
}

/* Pieces are the rows of lap_session_logits bit for bit, and a log-probability is that of its row. */
Test(score, pieces_are_the_whole)
{
	struct lap_model *m = open_model(vector_path("golden/llama-freqs.gguf"), "cpu");
	struct lap_session *s = open_session(m, &exact);
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	float *all = malloc(N * n_vocab * sizeof *all), log_probs[N];
	int32_t tokens[N];
	struct lap_error err = {0};
	for (int32_t i = 0; i < N; i++)
		tokens[i] = (i * 37 + i / 7) % (int32_t)n_vocab;
	cr_assert_eq(lap_session_logits(s, tokens, N, all, &err), LAP_OK, "%s", err.text);

	struct pieces p = {all, n_vocab, FIRST, N, 0};
	lap_session_clear(s);
	cr_assert_eq(lap_session_each_logits(s, tokens, N, FIRST, take_piece, &p, &err), LAP_OK);
	cr_expect_eq(p.next, N);
	cr_expect_geq(p.n_calls, 2);
	p = (struct pieces){all, n_vocab, 0, 1, 0};
	lap_session_clear(s);
	cr_assert_eq(lap_session_each_logits(s, tokens, N, 0, take_piece, &p, &err), LAP_OK);
	cr_expect_eq(p.n_calls, 1, "it was told to stop");

	lap_session_clear(s);
	cr_assert_eq(lap_session_score(s, tokens, N, log_probs, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i + 1 < N; i++) {
		const float *row = all + i * n_vocab;
		double sum = 0;
		for (uint32_t k = 0; k < n_vocab; k++)
			sum += exp((double)row[k]);
		cr_expect_float_eq((double)log_probs[i], (double)row[tokens[i + 1]] - log(sum),
			1e-5, "token %zu", i + 1);
	}
	cr_expect_eq(lap_session_score(s, tokens, N, log_probs, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "150 tokens do not fit"), "%s", err.text);
	lap_session_clear(s);
	tokens[3] = (int32_t)n_vocab;
	cr_expect_eq(lap_session_score(s, tokens, N, log_probs, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "not in the vocabulary"), "%s", err.text);
	free(all);
	lap_session_destroy(s);
	lap_model_close(m);
}

Test(score, a_session_without_logits)
{
	struct lap_model *m = open_model(vector_path("golden/llama-freqs.gguf"), "cpu");
	struct lap_session *s = open_session(m, &(struct lap_session_options){.n_ctx = 32});
	const int32_t tokens[] = {1, 2};
	float log_prob;
	struct lap_error err = {0};
	cr_expect_eq(lap_session_score(s, tokens, 2, &log_prob, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "without logits_all"), "%s", err.text);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* Rows beyond 2^31 floats (github.com/ggml-org/llama.cpp, PRs 9783, 23496 and 23623). */
Test(score, rows_beyond_31_bits)
{
	cr_expect_eq(logits_offset(152064, 14242), UINT64_C(2165695488));
	cr_expect_eq(logits_offset(248320, 12031), UINT64_C(2987537920));
	cr_expect_eq(logits_offset(262144, 8192), UINT64_C(1) << 31);
	cr_expect_eq(logits_offset(131076, 16384), UINT64_C(2147549184));
}

Test(score, log_sums)
{
	const float equal[] = {5, 5, 5, 5}, large[] = {1000, 999}, none[] = {-INFINITY, -INFINITY};
	const float forbidden[] = {-INFINITY, 2}, bad[] = {1, NAN}, infinite[] = {1, INFINITY};
	cr_expect_float_eq(logits_log_sum(equal, 4), 5 + log(4), 1e-12);
	cr_expect_float_eq(logits_log_sum(large, 2), 1000 + log1p(exp(-1)), 1e-6);
	cr_expect_float_eq(logits_log_sum(forbidden, 2), 2, 1e-12);
	cr_expect(isnan(logits_log_sum(none, 2)));
	cr_expect(isnan(logits_log_sum(bad, 2)));
	cr_expect(isnan(logits_log_sum(infinite, 2)));
}
