/* Generations to compare: the same prompts on two backends, or with two ways of submitting.  Used by
 * test_generate.c (CPU reference) and test_vk_generate.c. */
#ifndef LAPILLI_TESTS_GENERATION_H
#define LAPILLI_TESTS_GENERATION_H

#include "models.h"

static const char *const story_prompts[] = {
	"Once upon a time",
	"The little dog was very happy because",
	"Lily and Tom went to the park. They saw a big tree and",
	"One day, a boy named Tim found a red ball",
	"There was a king who had a",
};

static const char *const austen_prompts[] = {
	"It is a truth universally acknowledged, that",
	"She had been walking for an hour when the rain began, and",
	"Mr. Darcy said nothing",
	"\"My dear Emma,\" said he, \"you must allow me to",
	"The family of Dashwood had long been settled in Sussex. Their estate was large, and",
};

#define N_PROMPTS   5
#define N_GENERATED 160
#define END_TOKEN   46

/* The demo model with another end token, so that generations end early: the file names 46, a full
 * stop.  The bytes must stay until the model is closed. */
static inline struct lap_model *open_model_that_ends(char **bytes, const char *device)
{
	static const char key[] = "tokenizer.ggml.eos_token_id";
	static const uint32_t end = END_TOKEN;
	size_t n, at = 0;
	struct lap_model *m;
	struct lap_error err = {0};
	struct lap_model_options options = {.device = device, .no_pipeline_cache = true};
	*bytes = read_text(source_path("models/austen.gguf"), &n);
	while (at + sizeof(key) + 7 < n && memcmp(*bytes + at, key, sizeof(key) - 1) != 0)
		at++;
	memcpy(*bytes + at + sizeof(key) - 1 + 4, &end, sizeof(end)); /* behind the type */
	cr_assert_eq(lap_model_open_memory(*bytes, n, "demo", &options, &m, &err), LAP_OK, "%s",
		err.text);
	cr_assert_eq(lap_model_info(m)->eos, END_TOKEN);
	return m;
}

/* Generates n tokens after the text; the result and every id. */
static inline struct lap_generation generate(struct lap_session *s, const char *prompt, int64_t n,
	const struct lap_sampling *sampling, struct collected *c)
{
	struct lap_error err = {0};
	struct lap_generate_options options = {
		.sampling = *sampling, .n_predict = n, .ignore_eos = true};
	int32_t *tokens;
	size_t n_tokens;
	struct lap_generation result;
	cr_assert_eq(
		lap_tokenize(s->m, prompt, strlen(prompt), true, true, &tokens, &n_tokens, &err),
		LAP_OK, "%s", err.text);
	c->n = c->n_text = 0;
	enum lap_status status =
		lap_generate(s, tokens, n_tokens, &options, collect, c, &result, &err);
	cr_assert_eq(status, LAP_OK, "%s", err.text);
	lap_free(tokens);
	return result;
}

static void expect_same(
	const struct collected *a, const struct collected *b, const char *what, const char *prompt)
{
	cr_assert_eq(a->n, b->n, "%s, \"%s\": %zu tokens, expected %zu", what, prompt, a->n, b->n);
	for (size_t i = 0; i < a->n; i++)
		cr_assert_eq(a->ids[i], b->ids[i], "%s, \"%s\": token %zu is %d, expected %d", what,
			prompt, i, (int)a->ids[i], (int)b->ids[i]);
}

static struct lap_sampling greedy(void)
{
	struct lap_sampling s = lap_sampling_default();
	s.temperature = 0;
	return s;
}

static struct lap_sampling warm(void) /* as the command's --temp 0.8 --top-p 0.9 -s 42 */
{
	struct lap_sampling s = lap_sampling_default();
	s.top_p = 0.9f;
	s.seed = 42;
	return s;
}

/* Prompt ids, greedy ids and logits of an expected.json of trained models, as its note says. */
static inline void expected_case(
	struct lap_model *m, json_t *json, bool exact_ids, double logit_limit, const char *name)
{
	struct lap_error err = {0};
	const char *prompt = json_string_value(json_object_get(json, "prompt"));
	int32_t *tokens;
	size_t n, i;
	json_t *value, *ids = json_object_get(json, "prompt_ids");
	cr_assert_eq(
		lap_tokenize(m, prompt, strlen(prompt), true, true, &tokens, &n, &err), LAP_OK);
	cr_assert_eq(n, json_array_size(ids), "%s, \"%s\": %zu tokens", name, prompt, n);
	json_array_foreach (ids, i, value)
		cr_assert_eq(tokens[i], json_integer_value(value), "%s: prompt id %zu", name, i);

	struct lap_session_options full = {
		.type_k = LAP_KV_F32, .type_v = LAP_KV_F32, .logits_all = true};
	struct lap_session *s = open_session(m, &full);
	uint32_t n_vocab = lap_model_info(m)->n_vocab;
	float *logits = malloc(n * n_vocab * sizeof(float));
	cr_assert_eq(lap_session_logits(s, tokens, n, logits, &err), LAP_OK, "%s", err.text);
	double worst = 0;
	json_array_foreach (json_object_get(json, "last_prompt_logits"), i, value)
		worst = fmax(worst,
			fabs((double)logits[(n - 1) * n_vocab + i] - json_number_value(value)));
	cr_expect(worst < logit_limit, "%s, \"%s\": logits differ by %.2e, expected below %.0e",
		name, prompt, worst, logit_limit);
	free(logits);
	lap_free(tokens);

	struct collected c = {0};
	struct lap_sampling sampling = greedy();
	json_t *greedy_ids = json_object_get(json, "greedy_ids");
	generate(s, prompt, (int64_t)json_array_size(greedy_ids), &sampling, &c);
	if (exact_ids)
		json_array_foreach (greedy_ids, i, value)
			cr_assert_eq(c.ids[i], json_integer_value(value),
				"%s, \"%s\": greedy id %zu", name, prompt, i);
	lap_session_destroy(s);
}

/* Every trained file of a family in the shared folder: "stories260K" (llama, legacy formats),
 * "micro-lm-pro" (starcoder2, K formats). */
static inline void expected_models(const char *family, const char *device)
{
	json_error_t error;
	char list[128];
	snprintf(list, sizeof(list), "models/%s.expected.json", family);
	json_t *all = json_load_file(shared_path(list), 0, &error);
	cr_assert(all, "%s", error.text);
	const char *name;
	json_t *entry, *json;
	json_object_foreach (json_object_get(all, "models"), name, entry) {
		char path[128];
		snprintf(path, sizeof(path), "models/%s", name);
		struct lap_model *m = open_model(shared_path(path), device);
		size_t i;
		json_array_foreach (json_object_get(entry, "cases"), i, json)
			if (i == 0 || !test_small())
				expected_case(m, json, true, 1e-3, name);
		lap_model_close(m);
	}
	json_decref(all);
}

/* The demo model that the repository carries. */
static inline void expected_demo(const char *device)
{
	json_error_t error;
	json_t *all = json_load_file(source_path("models/austen.expected.json"), 0, &error);
	cr_assert(all, "%s", error.text);
	struct lap_model *m = open_model(source_path("models/austen.gguf"), device);
	size_t i;
	json_t *json;
	json_array_foreach (json_object_get(all, "cases"), i, json)
		if (i < 2 || !test_small())
			expected_case(m, json, true, 1e-3, "austen");
	lap_model_close(m);
	json_decref(all);
}

#endif
