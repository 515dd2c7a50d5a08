/* Models in other formats: which tensor gets which, what a file keeps, and what is refused. */
#include <math.h>
#include <unistd.h>

#include "command.h"
#include "gguf_builder.h"
#include "models.h"
#include "quantize_recipe.h"
#include "split.h"
#include "weight_encode.h"

/* ---- recipes --------------------------------------------------------------------------------- */

enum { N_LAYERS = 16 };

/* Shapes alone matter: tensors of zeros, [rows][cols]. */
static void add_zeros(struct builder *b, const char *name, uint64_t rows, uint64_t cols)
{
	float *zeros = calloc((size_t)(rows ? rows * cols : cols), sizeof *zeros);
	builder_tensor(
		b, name, 0, rows, cols, zeros, (size_t)(rows ? rows * cols : cols) * sizeof *zeros);
	free(zeros);
}

static struct gguf *open_built(struct builder *b, struct text *file)
{
	struct gguf *g;
	struct lap_error err = {0};
	*file = builder_file(b);
	cr_assert_eq(gguf_open(file->data, file->n, "built", &g, &err), LAP_OK, "%s", err.text);
	return g;
}

static struct builder *many_layers(bool tied, uint32_t n_expert)
{
	static const struct {
		const char *name;
		uint64_t rows, cols;
	} parts[] = {{"attn_norm.weight", 0, 256}, {"attn_q.weight", 2, 256},
		{"attn_q.bias", 0, 256}, {"attn_k.weight", 2, 256}, {"attn_v.weight", 2, 256},
		{"attn_output.weight", 2, 256}, {"ffn_gate_inp.weight", 2, 256},
		{"ffn_down.weight", 2, 512}, {"ffn_up.weight", 2, 256}};
	struct builder *b = calloc(1, sizeof *b);
	builder_string(b, "general.architecture", "llama");
	if (n_expert)
		builder_u32(b, "llama.expert_count", n_expert);
	add_zeros(b, "token_embd.weight", 4, 256);
	if (!tied)
		add_zeros(b, "output.weight", 4, 256);
	for (int il = 0; il < N_LAYERS; il++)
		for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%d.%s", il, parts[i].name);
			add_zeros(b, name, parts[i].rows, parts[i].cols);
		}
	return b;
}

static void expect_format(const struct gguf *g, const char *recipe, bool pure, const char *name,
	enum weight expected, bool fell_back)
{
	bool fallback;
	const struct gguf_tensor *t = gguf_find_tensor(g, name);
	cr_assert(t, "%s", name);
	const enum weight found = recipe_choose(recipe_find(recipe), pure, g, t, &fallback);
	cr_expect_eq(found, expected, "%s, %s: %s, expected %s", recipe, name,
		weight_format(found)->label, weight_format(expected)->label);
	cr_expect_eq(fallback, fell_back, "%s, %s", recipe, name);
}

/* Of 16 layers the first and last two, and every third between: 4, 7, 10 and 13. */
Test(recipe, layers_that_get_more)
{
	static const bool third[N_LAYERS] = {[0] = true,
		[1] = true,
		[4] = true,
		[7] = true,
		[10] = true,
		[13] = true,
		[14] = true,
		[15] = true};
	struct builder *b = many_layers(false, 0);
	struct text file;
	struct gguf *g = open_built(b, &file);
	for (int il = 0; il < N_LAYERS; il++) {
		char v[64], down[64], up[64];
		snprintf(v, sizeof v, "blk.%d.attn_v.weight", il);
		snprintf(down, sizeof down, "blk.%d.ffn_down.weight", il);
		snprintf(up, sizeof up, "blk.%d.ffn_up.weight", il);
		const enum weight more = third[il] ? WEIGHT_q6_k : WEIGHT_q4_k;
		expect_format(g, "Q4_K_M", false, v, more, false);
		expect_format(g, "q4_k", false, down, more, false);
		expect_format(g, "Q4_K_M", false, up, WEIGHT_q4_k, false);
		expect_format(g, "Q4_K_M", true, v, WEIGHT_q4_k, false);
		expect_format(
			g, "Q5_K_M", false, down, third[il] ? WEIGHT_q6_k : WEIGHT_q5_k, false);
		expect_format(g, "Q4_K_S", false, v, il < 4 ? WEIGHT_q5_k : WEIGHT_q4_k, false);
		expect_format(g, "Q4_K_S", false, down, il < 2 ? WEIGHT_q5_k : WEIGHT_q4_k, false);
		expect_format(g, "Q4_0", false, v, WEIGHT_q4_0, false);
	}
	expect_format(g, "Q4_K_M", false, "output.weight", WEIGHT_q6_k, false);
	expect_format(g, "Q4_K_M", true, "output.weight", WEIGHT_q4_k, false);
	expect_format(g, "Q4_0", false, "output.weight", WEIGHT_q6_k, false);
	expect_format(g, "Q8_0", false, "output.weight", WEIGHT_q8_0, false);
	expect_format(g, "F16", false, "output.weight", WEIGHT_f16, false);
	expect_format(g, "Q4_K_M", false, "token_embd.weight", WEIGHT_q4_k, false);
	static const char *const kept[] = {
		"blk.3.attn_norm.weight", "blk.3.attn_q.bias", "blk.3.ffn_gate_inp.weight"};
	for (size_t i = 0; i < ARRAY_COUNT(kept); i++) {
		expect_format(g, "Q4_K_M", false, kept[i], WEIGHT_f32, false);
		expect_format(g, "F16", true, kept[i], WEIGHT_f32, false);
	}
	gguf_close(g);
	text_free(&file);
	builder_free(b);
	free(b);
}

Test(recipe, models_of_other_kinds)
{
	struct builder *b = many_layers(true, 8);
	add_zeros(b, "blk.16.attn_v.weight", 2, 96);
	add_zeros(b, "blk.16.attn_qkv.weight", 2, 256);
	add_zeros(b, "blk.16.ffn_up.weight", 2, 96);
	add_zeros(b, "blk.16.ffn_gate.weight", 2, 100);
	struct text file;
	struct gguf *g = open_built(b, &file);
	expect_format(g, "Q4_K_M", false, "token_embd.weight", WEIGHT_q6_k, false);
	expect_format(g, "Q4_K_M", false, "blk.5.attn_v.weight", WEIGHT_q8_0, false);
	expect_format(g, "Q4_K_M", false, "blk.5.attn_k.weight", WEIGHT_q8_0, false);
	expect_format(g, "Q4_K_M", false, "blk.5.attn_output.weight", WEIGHT_q5_k, false);
	expect_format(g, "Q4_K_M", false, "blk.16.attn_qkv.weight", WEIGHT_q5_k, false);
	expect_format(g, "Q5_K_M", false, "blk.16.attn_qkv.weight", WEIGHT_q6_k, false);
	expect_format(g, "Q4_K_M", false, "blk.16.ffn_up.weight", WEIGHT_q5_0, true);
	expect_format(g, "Q5_K_S", false, "blk.16.ffn_up.weight", WEIGHT_q5_1, true);
	expect_format(g, "Q6_K", false, "blk.16.ffn_up.weight", WEIGHT_q8_0, true);
	expect_format(g, "Q4_0", false, "blk.16.ffn_up.weight", WEIGHT_q4_0, false);
	expect_format(g, "Q4_K_M", false, "blk.16.ffn_gate.weight", WEIGHT_f16, true);
	expect_format(g, "Q8_0", true, "blk.16.ffn_gate.weight", WEIGHT_f16, true);
	gguf_close(g);
	text_free(&file);
	builder_free(b);
	free(b);
}

/* Every name finds its recipe, and llama.cpp's numbers for the files are right. */
Test(recipe, names)
{
	static const uint32_t file_types[] = {0, 1, 32, 7, 18, 17, 16, 15, 14, 9, 8, 3, 2};
	char names[256];
	size_t n = 0;
	char *rest = NULL;
	snprintf(names, sizeof names, "%s", lap_quantize_types());
	for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
		const struct recipe *r = recipe_find(name);
		cr_assert(r && n < ARRAY_COUNT(file_types), "%s", name);
		cr_expect_eq(r->file_type, file_types[n++], "%s", name);
	}
	cr_expect_eq(n, ARRAY_COUNT(file_types));
	cr_expect_null(recipe_find("Q4"));
	cr_expect_null(recipe_find(""));
}

/* ---- files ----------------------------------------------------------------------------------- */

static const struct lap_quantize_options two_threads = {.n_threads = 2};

static void quantize(const char *in, const char *out, const char *type,
	const struct lap_quantize_options *options)
{
	struct lap_error err = {0};
	cr_assert_eq(lap_quantize(in, out, type, options, NULL, &err), LAP_OK, "%s", err.text);
}

static struct split open_split(const char *path)
{
	struct split s;
	struct lap_error err = {0};
	cr_assert_eq(split_open(path, &s, &err), LAP_OK, "%s", err.text);
	return s;
}

static bool same_value(const struct gguf_kv *a, const struct gguf_kv *b)
{
	bool same = a->type == b->type && a->n == b->n &&
		(a->type != GGUF_ARRAY || a->element == b->element);
	const enum gguf_type type = a->type == GGUF_ARRAY ? a->element : a->type;
	if (same && type != GGUF_STRING)
		return memcmp(a->data, b->data, a->n * gguf_type_bytes(type)) == 0;
	for (uint64_t i = 0; same && i < a->n; i++)
		same = a->strings[i].n == b->strings[i].n &&
			memcmp(a->strings[i].data, b->strings[i].data, a->strings[i].n) == 0;
	return same;
}

/* All keys as they were, in their order; the two that say what the file is as they should be. */
static void expect_keys(const struct gguf *from, const struct gguf *to, uint32_t file_type)
{
	uint32_t value = UINT32_MAX;
	uint64_t k = 0;
	for (uint64_t i = 0; i < from->n_kv; i++) {
		const struct gguf_kv *kv = &from->kv[i];
		if (strncmp(kv->key, "split.", 6) == 0)
			continue;
		cr_assert_lt(k, to->n_kv);
		cr_expect_str_eq(to->kv[k].key, kv->key);
		if (strcmp(kv->key, "general.file_type") != 0)
			cr_expect(same_value(kv, &to->kv[k]), "%s", kv->key);
		k++;
	}
	gguf_u32(to, "general.file_type", &value, NULL);
	cr_expect_eq(value, file_type);
	gguf_u32(to, "general.quantization_version", &value, NULL);
	cr_expect_eq(value, 2);
}

static void expect_tensors(const struct gguf *from, const struct gguf *to)
{
	cr_assert_eq(from->n_tensors, to->n_tensors);
	for (uint64_t i = 0; i < from->n_tensors; i++) {
		const struct gguf_tensor *a = &from->tensors[i], *b = &to->tensors[i];
		cr_expect_str_eq(a->name, b->name);
		cr_expect(a->n_dims == b->n_dims && memcmp(a->dims, b->dims, sizeof a->dims) == 0);
		if (a->weight == b->weight) {
			cr_expect(memcmp(a->data, b->data, a->n_bytes) == 0, "%s", a->name);
			continue;
		}
		float *x = malloc(a->n_weights * sizeof *x);
		uint8_t *blocks = malloc(b->n_bytes);
		weight_format(a->weight)->decode(a->data, a->n_weights, x);
		weight_encoder(b->weight)(x, a->n_weights, blocks);
		cr_expect(memcmp(blocks, b->data, b->n_bytes) == 0, "%s: %s", a->name,
			weight_format(b->weight)->label);
		free(blocks);
		free(x);
	}
}

/* A model with keys of every type, an alignment of its own, and a tensor that threads share. */
static struct text full_model(void)
{
	struct builder *b = calloc(1, sizeof *b);
	builder_tiny_llama(b);
	builder_u32(b, "general.alignment", 64);
	builder_u32(b, "general.file_type", 0);
	builder_f64(b, "test.f64", 0.1);
	builder_bool(b, "test.bool", true);
	builder_int(b, "test.i8", GGUF_I8, 0x80);
	builder_int(b, "test.u64", GGUF_U64, UINT64_MAX);
	builder_array(b, "test.empty", GGUF_F32, 0);
	builder_string(b, "test.no_text", "");
	builder_noise(b, "test.large.weight", 600, 256, 99);
	b->alignment = 64;
	struct text file = builder_file(b);
	builder_free(b);
	free(b);
	return file;
}

Test(quantize, keys_and_tensors)
{
	char in[512], out[512], again[512];
	struct text file = full_model();
	snprintf(in, sizeof in, "%s", write_scratch("full.gguf", file.data, file.n));
	snprintf(out, sizeof out, "%s", scratch("full-q.gguf"));
	snprintf(again, sizeof again, "%s", scratch("again.gguf"));
	static const char *const types[] = {"Q4_K_M", "Q8_0", "BF16", "Q4_0"};
	for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
		quantize(in, out, types[i], &two_threads);
		struct split from = open_split(in), to = open_split(out);
		expect_keys(from.gguf, to.gguf, recipe_find(types[i])->file_type);
		expect_tensors(from.gguf, to.gguf);
		cr_expect_eq(to.gguf->alignment, 64);
		split_close(&from);
		split_close(&to);
		/* however many threads there are */
		quantize(in, again, types[i], &(struct lap_quantize_options){.n_threads = 5});
		size_t n, n_again;
		char *a = read_text(out, &n), *b = read_text(again, &n_again);
		cr_expect(n == n_again && memcmp(a, b, n) == 0);
		free(a);
		free(b);
		lap_model_close(open_model(out, "cpu"));
	}
	text_free(&file);
}

/* Of a split model (github.com/ggml-org/llama.cpp, issue 6836) one file is made. */
Test(quantize, split_models)
{
	char path[512], out[512];
	const char *names[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};
	struct text whole = full_model();
	struct gguf *g;
	struct lap_error err = {0};
	cr_assert_eq(gguf_open(whole.data, whole.n, "whole", &g, &err), LAP_OK);
	for (uint32_t part = 0; part < 2; part++) {
		struct builder *b = calloc(1, sizeof *b);
		if (part == 0) {
			builder_string(b, "general.architecture", "llama");
			builder_string(b, "general.name", "parts");
		}
		builder_int(b, "split.no", GGUF_U16, part);
		builder_int(b, "split.count", GGUF_U16, 2);
		builder_u32(b, "split.tensors.count", 4);
		for (uint64_t i = 2 * part; i < 2 * part + 2; i++) {
			const struct gguf_tensor *t = &g->tensors[i];
			builder_tensor(b, t->name, 0, t->n_dims > 1 ? t->dims[1] : 0, t->dims[0],
				t->data, t->n_bytes);
		}
		struct text file = builder_file(b);
		const char *written = scratch_path(names[part]);
		cr_assert_eq(file_write(written, file.data, file.n, &err), LAP_OK);
		snprintf(path, sizeof path, "%s", written);
		text_free(&file);
		builder_free(b);
		free(b);
	}
	snprintf(out, sizeof out, "%s", scratch("joined.gguf"));
	quantize(path, out, "Q8_0", &two_threads); /* by its last part */
	struct split from = open_split(path), to = open_split(out);
	cr_expect_eq(to.n_files, 1);
	cr_expect_null(gguf_find(to.gguf, "split.count"));
	expect_keys(from.gguf, to.gguf, 7);
	expect_tensors(from.gguf, to.gguf);
	cr_expect_eq(to.gguf->n_tensors, 4);
	split_close(&from);
	split_close(&to);
	gguf_close(g);
	text_free(&whole);
}

/* ---- quality --------------------------------------------------------------------------------- */

/* The text of the story under a model: its loss. */
static double loss(const char *path)
{
	static const char text[] = "Once upon a time, there was a little dog named Max. Max liked "
				   "to run and play in the big park. One day, Max saw a red ball "
				   "under a tree. He wanted to play with the ball.";
	struct lap_model *m = open_model(path, "cpu");
	struct lap_session *s =
		open_session(m, &(struct lap_session_options){.n_ctx = 128, .logits_all = true});
	struct lap_error err = {0};
	int32_t *tokens;
	size_t n;
	float log_probs[128];
	double sum = 0;
	cr_assert_eq(lap_tokenize(m, text, strlen(text), true, false, &tokens, &n, &err), LAP_OK);
	cr_assert_eq(lap_session_score(s, tokens, n, log_probs, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i + 1 < n; i++)
		sum -= (double)log_probs[i];
	lap_free(tokens);
	lap_session_destroy(s);
	lap_model_close(m);
	return sum / (double)(n - 1);
}

Test(quantize, stories_stay_as_likely)
{
	SKIP_WITHOUT("models/stories260K-F32.gguf");
	static const struct {
		const char *type;
		double most; /* change of the loss */
	} cases[] = {{"F16", 0.001}, {"Q8_0", 0.01}, {"Q5_0", 0.05}, {"Q4_1", 0.1}, {"Q4_0", 0.1}};
	char in[512], out[512];
	snprintf(in, sizeof in, "%s", shared_path("models/stories260K-F32.gguf"));
	snprintf(out, sizeof out, "%s", scratch("stories.gguf"));
	const double before = loss(in);
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		quantize(in, out, cases[i].type, NULL);
		const double change = fabs(loss(out) - before);
		cr_expect(change > 0 && change < cases[i].most, "%s: %.4f", cases[i].type, change);
	}
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refusal(const char *in, const char *type, enum lap_status status,
	const char *words, const struct lap_quantize_options *options)
{
	char out[512];
	struct lap_error err = {0};
	snprintf(out, sizeof out, "%s", scratch("refused.gguf"));
	cr_expect_eq(lap_quantize(in, out, type, options, NULL, &err), status, "%s", err.text);
	cr_expect(strstr(err.text, words), "\"%s\" is not in: %s", words, err.text);
	cr_expect_neq(access(out, F_OK), 0, "%s is there", out);
}

static bool stop_halfway(void *user, const struct lap_quantize_step *step)
{
	unsigned *n_calls = user;
	++*n_calls;
	cr_expect(step->done_bytes <= step->total_bytes && step->tensor && step->from && step->to);
	return step->done_bytes < step->total_bytes / 2;
}

Test(quantize, mistakes_and_damage)
{
	char in[512];
	struct builder *b = calloc(1, sizeof *b);
	builder_tiny_llama(b);
	float *weight = (float *)(void *)builder_get_tensor(b, "blk.1.ffn_up.weight")->data.data;
	static const struct {
		float value;
		const char *type, *words;
		enum lap_status status;
	} cases[] = {
		{NAN, "Q8_0", "weight 77 of blk.1.ffn_up.weight is nan", LAP_BAD_MODEL},
		{-INFINITY, "F16", "weight 77 of blk.1.ffn_up.weight is -inf", LAP_BAD_MODEL},
		{1e6f, "F16", "is 1e+06, which is too large for F16", LAP_USAGE},
		{1e30f, "Q4_0", "of blk.1.ffn_up.weight is ", LAP_USAGE},
		{3.4e38f, "BF16", "is 3.4e+38, which is too large for BF16", LAP_USAGE},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		weight[77] = cases[i].value;
		struct text file = builder_file(b);
		expect_refusal(write_scratch("bad.gguf", file.data, file.n), cases[i].type,
			cases[i].status, cases[i].words, NULL);
		text_free(&file);
	}
	weight[77] = 1e6f;
	struct text file = builder_file(b);
	unsigned n_calls = 0;
	const struct lap_quantize_options stopping = {.progress = stop_halfway, .user = &n_calls};
	snprintf(in, sizeof in, "%s", write_scratch("large.gguf", file.data, file.n));
	expect_refusal(in, "Q9_0", LAP_USAGE, "expected one of F32 F16 BF16 Q8_0", NULL);
	expect_refusal(in, "Q8_0", LAP_ERROR, "stopped", &stopping);
	cr_expect_gt(n_calls, 2);
	expect_refusal(scratch("missing.gguf"), "Q8_0", LAP_IO, "missing.gguf", NULL);
	expect_refusal(vector_path("golden/mix-q4_k_m.gguf"), "Q8_0", LAP_USAGE,
		"token_embd.weight is Q6_K already", NULL);
	struct lap_error err = {0};
	cr_expect_eq(lap_quantize(in, in, "Q8_0", NULL, NULL, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "are one file"), "%s", err.text);
	cr_expect_eq(lap_quantize(in, "/nowhere/x.gguf", "BF16", NULL, NULL, &err), LAP_IO);
	cr_expect(strstr(err.text, "/nowhere/x.gguf"), "%s", err.text);
	quantize(vector_path("golden/mix-q4_k_m.gguf"), scratch("re.gguf"), "Q8_0",
		&(struct lap_quantize_options){.allow_requantize = true});
	text_free(&file);
	builder_free(b);
	free(b);
}

/* ---- the command ----------------------------------------------------------------------------- */

Test(quantize, command)
{
	char in[512], out[512];
	struct text file = full_model();
	snprintf(in, sizeof in, "%s", write_scratch("command.gguf", file.data, file.n));
	snprintf(out, sizeof out, "%s", scratch("command-q.gguf"));
	struct result r = run("quantize", in, out, "q4_k_m", "2", "--json");
	json_t *json = parse_json(&r);
	cr_expect_str_eq(json_string_value(json_object_get(json, "output")), out);
	cr_expect_eq(number_at(json, "fallbacks", NULL), 16); /* rows of 32 and 64 */
	struct split to = open_split(out);
	uint64_t n_bytes = 0, n_weights = 0;
	for (uint64_t i = 0; i < to.gguf->n_tensors; i++) {
		n_bytes += to.gguf->tensors[i].n_bytes;
		n_weights += to.gguf->tensors[i].n_weights;
	}
	cr_expect_eq(number_at(json, "bytes", NULL), (json_int_t)n_bytes);
	cr_expect_float_eq(json_real_value(json_object_get(json, "bits_per_weight")),
		8.0 * (double)n_bytes / (double)n_weights, 1e-6);
	split_close(&to);
	json_decref(json);
	release(&r);

	r = run("quantize", "-v", in, "--type", "Q8_0", "-o", out);
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_eq(r.n_out, 0);
	cr_expect(strstr(r.err, "blk.0.attn_q.weight") && strstr(r.err, "bits a weight"), "%s",
		r.err);
	release(&r);
	expect_failure(run("quantize", in, out), 2, "needs IN OUT TYPE");
	expect_failure(run("quantize", in, out, "Q4"), 2, "\"Q4\" is no type");
	expect_failure(run("quantize", in, out, "Q8_0", "2", "8"), 2, "unexpected argument \"8\"");
	expect_failure(run("quantize", in, out, "Q8_0", "no"), 2, "N: found \"no\"");
	expect_failure(run("info", in, out), 2, "unexpected argument");
	expect_failure(run("bench", in), 2, "unexpected argument");
	text_free(&file);
}
