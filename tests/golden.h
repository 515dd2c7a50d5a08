/* Golden runs: models with logits that another engine computed, in tests/vectors/golden/ and, where
 * it is there, in the shared folder.  Used by test_golden.c (CPU reference) and test_vk_golden.c. */
#ifndef LAPILLI_TESTS_GOLDEN_H
#define LAPILLI_TESTS_GOLDEN_H

#include "models.h"

struct golden {
	char name[128];      /* case and run, for messages */
	struct lap_model *m; /* open, on the device asked for */
	uint32_t n_ctx, n, n_vocab;
	int32_t *tokens; /* [n] */
	float *logits;   /* [n][n_vocab] */
	int32_t greedy[64];
	double greedy_gap[64];
	uint32_t n_greedy;
};

typedef void golden_fn(const struct golden *run);

/* True when this build reads the architecture and every format of a case. */
static bool golden_supported(json_t *entry)
{
	const char *arch = json_string_value(json_object_get(entry, "arch"));
	size_t i;
	json_t *type;
	bool known = arch_find(arch, strlen(arch)) != NULL;
	json_array_foreach (json_object_get(entry, "types"), i, type) {
		char padded[32], list[1024];
		snprintf(padded, sizeof(padded), " %s ", json_string_value(type));
		snprintf(list, sizeof(list), " %s ", weight_list());
		known = known && strstr(list, padded);
	}
	return known;
}

static void golden_run(struct lap_model *m, json_t *entry, json_t *json,
	const char *(*where)(const char *), golden_fn *fn)
{
	struct golden run = {.m = m};
	size_t i, n_bytes;
	json_t *value;
	char path[256];
	snprintf(path, sizeof(path), "golden/%s",
		json_string_value(json_object_get(json, "logits")));
	run.n_ctx = (uint32_t)json_integer_value(json_object_get(json, "n_ctx"));
	json_t *tokens = json_object_get(json, "tokens");
	run.n = (uint32_t)json_array_size(tokens);
	run.tokens = malloc(run.n * sizeof(*run.tokens));
	json_array_foreach (tokens, i, value)
		run.tokens[i] = (int32_t)json_integer_value(value);
	run.logits = (float *)read_text(where(path), &n_bytes);
	run.n_vocab = (uint32_t)(n_bytes / sizeof(float) / run.n);
	json_array_foreach (json_object_get(json, "greedy"), i, value)
		run.greedy[run.n_greedy++] = (int32_t)json_integer_value(value);
	json_array_foreach (json_object_get(json, "greedy_gap"), i, value)
		run.greedy_gap[i] = json_number_value(value);
	snprintf(run.name, sizeof(run.name), "%s.%u",
		json_string_value(json_object_get(entry, "name")), run.n);
	fn(&run);
	free(run.tokens);
	free(run.logits);
}

/* Calls fn for every run of every supported case of the index there (of the shared folder's, one case
 * in eight on a slow device); returns how many. */
static uint32_t golden_each(const char *(*where)(const char *), golden_fn *fn, const char *device)
{
	json_error_t error;
	json_t *index = json_load_file(where("golden/index.json"), 0, &error);
	cr_assert(index, "index.json: %s", error.text);
	uint32_t n = 0;
	size_t i, j;
	json_t *entry, *run;
	json_array_foreach (json_object_get(index, "cases"), i, entry) {
		if (!golden_supported(entry) ||
			(test_small() && i % 8 != 0 && where == shared_path))
			continue;
		char path[256];
		snprintf(path, sizeof(path), "golden/%s",
			json_string_value(json_object_get(entry, "model")));
		struct lap_model *m = open_model(where(path), device);
		json_array_foreach (json_object_get(entry, "runs"), j, run) {
			golden_run(m, entry, run, where, fn);
			n++;
		}
		lap_model_close(m);
	}
	json_decref(index);
	return n;
}

/* Normalised mean square error: sum (a - b)^2 / sum b^2. */
static double nmse(const float *a, const float *b, size_t n)
{
	double error = 0, norm = 0;
	for (size_t i = 0; i < n; i++) {
		double d = (double)a[i] - (double)b[i];
		error += d * d;
		norm += (double)b[i] * (double)b[i];
	}
	return isnan(error) ? INFINITY : error / norm;
}

/* The limits of the set's README by KV type, for a whole prompt in the prefill role and token by
 * token in the decode role. */
static void golden_logits_by(const struct golden *run, enum lap_activations activations,
	enum lap_kv_type kv, uint32_t n_batch, double limit)
{
	struct lap_model *m = run->m;
	cr_assert_eq(lap_model_info(m)->n_vocab, run->n_vocab, "%s", run->name);
	struct lap_session_options options = {
		.n_ctx = run->n_ctx,
		.n_batch = n_batch,
		.type_k = kv,
		.type_v = kv,
		.activations = activations,
		.logits_all = true,
	};
	struct lap_session *s = open_session(m, &options);
	size_t n = (size_t)run->n * run->n_vocab;
	float *logits = malloc(n * sizeof(float));
	struct lap_error err = {0};
	cr_assert_eq(lap_session_logits(s, run->tokens, run->n, logits, &err), LAP_OK, "%s: %s",
		run->name, err.text);
	double error = nmse(logits, run->logits, n);
	cr_expect(error < limit, "%s, prefill: NMSE %.2e, expected below %.0e", run->name, error,
		limit);

	lap_session_clear(s);
	for (uint32_t i = 0; i < run->n; i++)
		cr_assert_eq(
			session_step(s, run->tokens[i], logits + (size_t)i * run->n_vocab, &err),
			LAP_OK, "%s: %s", run->name, err.text);
	error = nmse(logits, run->logits, n);
	cr_expect(error < limit, "%s, decode: NMSE %.2e, expected below %.0e", run->name, error,
		limit);
	free(logits);
	lap_session_destroy(s);
}

static void golden_logits(
	const struct golden *run, enum lap_kv_type kv, uint32_t n_batch, double limit)
{
	golden_logits_by(run, LAP_ACTIVATIONS_F32, kv, n_batch, limit);
}

/* The greedy continuation, as long as the golden gap is wider than `margin`. */
static void golden_greedy(const struct golden *run, enum lap_kv_type kv, double margin)
{
	struct lap_model *m = run->m;
	struct lap_session_options options = {.n_ctx = run->n_ctx, .type_k = kv, .type_v = kv};
	struct lap_session *s = open_session(m, &options);
	struct lap_generate_options generate = {
		.sampling = lap_sampling_default(),
		.n_predict = run->n_greedy,
		.ignore_eos = true,
	};
	generate.sampling.temperature = 0;
	struct collected c = {0};
	struct lap_error err = {0};
	cr_assert_eq(lap_generate(s, run->tokens, run->n, &generate, collect, &c, NULL, &err),
		LAP_OK, "%s: %s", run->name, err.text);
	cr_assert_eq(c.n, run->n_greedy);
	for (uint32_t i = 0; i < run->n_greedy && run->greedy_gap[i] > margin; i++)
		cr_assert_eq(c.ids[i], run->greedy[i], "%s: greedy token %u is %d, expected %d",
			run->name, (unsigned)i, (int)c.ids[i], (int)run->greedy[i]);
	lap_session_destroy(s);
}

#endif
