/* Models: defaults, optional parts, and that each thing a step relies on is checked with its own line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_builder.h"
#include "model.h"
#include "support.h"

struct opened {
	struct text file;
	struct gguf *g;
	struct model *m;
	enum lap_status status;
	struct lap_error err;
};

static struct builder *new_builder(void)
{
	static struct builder b;
	builder_free(&b);
	builder_tiny_llama(&b);
	return &b;
}

static struct opened open_builder(struct builder *b)
{
	struct opened o = {.file = builder_file(b)};
	o.status = gguf_open(o.file.data, o.file.n, "x.gguf", &o.g, &o.err);
	cr_assert_eq(o.status, LAP_OK, "the file itself is fine: %s", o.err.text);
	o.status = model_create(o.g, &o.m, &o.err);
	cr_expect_eq(o.status == LAP_OK, o.m != NULL);
	return o;
}

static struct opened open_good(struct builder *b)
{
	struct opened o = open_builder(b);
	cr_assert_eq(o.status, LAP_OK, "%s", o.err.text);
	return o;
}

static void close_model(struct opened *o)
{
	model_destroy(o->m);
	gguf_close(o->g);
	text_free(&o->file);
}

static void expect_refused(struct builder *b, const char *words)
{
	struct opened o = open_builder(b);
	cr_expect_eq(o.status, LAP_BAD_MODEL, "status %d, expected a refusal: %s", o.status, words);
	cr_expect(strstr(o.err.text, words), "\"%s\" is not in \"%s\"", words, o.err.text);
	cr_expect(strncmp(o.err.text, "x.gguf: ", 8) == 0 && !strchr(o.err.text, '\n'));
	close_model(&o);
}

/* Replaces a tensor by one of another shape (n_rows 0: one-dimensional). */
static void reshape(struct builder *b, const char *name, uint64_t n_rows, uint64_t n_cols)
{
	builder_drop_tensor(b, name);
	builder_noise(b, name, n_rows, n_cols, 1);
}

/* ---- files that are no language model ------------------------------------------------------------ */

Test(model, other_kinds_are_named)
{
	static const struct {
		const char *key, *value, *words;
	} cases[] = {
		{"general.type", "mmproj",
			"this is the part of a model that sees or hears (mmproj)"},
		{"general.architecture", "clip", "sees or hears (mmproj), expected the language"},
		{"general.type", "adapter",
			"this is an adapter (LoRA), expected the language model"},
		{"general.architecture", "controlvector", "this is a control vector"},
		{"general.type", "imatrix", "this is an importance matrix (imatrix)"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct builder *b = new_builder();
		builder_string(b, cases[i].key, cases[i].value);
		expect_refused(b, cases[i].words);
	}
	struct builder *b = new_builder();
	builder_drop(b, "general.architecture");
	builder_string(b, "general.type", "imatrix");
	expect_refused(b, "this is an importance matrix");
	b = new_builder();
	builder_string(b, "general.type", "model");
	struct opened o = open_good(b);
	close_model(&o);
	b = new_builder();
	while (b->n_tensors)
		builder_drop_tensor(b, b->tensors[0].name.data);
	expect_refused(b, "this is a vocabulary alone");
	builder_drop(b, "tokenizer.ggml.model");
	expect_refused(b, "block_count is 2, but the file has 0 tensors");
}

/* ---- what is read ------------------------------------------------------------------------------ */

Test(model, reads_a_llama)
{
	struct opened o = open_good(new_builder());
	const struct hparams *h = &o.m->h;
	cr_expect_str_eq(o.m->arch->name, "llama");
	cr_expect(o.m->arch->rope == ARCH_ROPE_NORMAL && o.m->arch->flags == 0);
	cr_expect_eq(h->n_layer, 2);
	cr_expect_eq(h->n_embd, 32);
	cr_expect_eq(h->n_ff, 64);
	cr_expect_eq(h->n_head, 4);
	cr_expect_eq(h->n_head_kv, 2);
	cr_expect_eq(h->head_dim, 8);
	cr_expect_eq(h->n_rot, 8);
	cr_expect_eq(h->n_vocab, 264);
	cr_expect_eq(h->n_ctx_train, 64);
	cr_expect_eq(h->rms_eps, 1e-5f);
	cr_expect_eq(h->rope_theta, 10000.0f);
	cr_expect_eq(h->rope_scaling, ROPE_SCALING_NONE);
	cr_expect_eq(h->rope_scale, 1.0f);
	cr_expect_not(o.m->tied_output);
	cr_expect_str_eq(o.m->output.name, "output.weight");
	cr_expect_null(o.m->rope_freqs.data);
	for (uint32_t il = 0; il < h->n_layer; il++) {
		const struct layer *l = &o.m->layers[il];
		cr_expect(l->attn_k.n_rows == 16 && l->attn_k.n_cols == 32);
		cr_expect(l->ffn_down.n_rows == 32 && l->ffn_down.n_cols == 64);
		cr_expect(l->attn_norm.n_rows == 1 && l->attn_norm.n_cols == 32);
		cr_expect_eq(l->ffn_down.n_bytes, 32 * 64 * 4);
		cr_expect_eq(l->ffn_down.weight, WEIGHT_f32);
		cr_expect_null(l->attn_q_bias.data);
		cr_expect_null(l->ffn_down_bias.data);
	}
	cr_expect_str_eq(o.m->layers[1].attn_q.name, "blk.1.attn_q.weight");
	cr_expect_neq(o.m->layers[0].attn_q.data, o.m->layers[1].attn_q.data);
	close_model(&o);
	model_destroy(NULL);
}

/* OB-13: the values that files may leave out. */
Test(model, defaults)
{
	struct builder *b = new_builder();
	static const char *const keys[] = {"llama.context_length", "llama.attention.head_count_kv",
		"llama.rope.dimension_count", "llama.rope.freq_base",
		"llama.attention.layer_norm_rms_epsilon"};
	for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
		builder_drop(b, keys[i]);
	for (int il = 0; il < 2; il++)
		for (int k = 0; k < 2; k++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%d.attn_%c.weight", il, "kv"[k]);
			reshape(b, name, 32, 32);
		}
	struct opened o = open_good(b);
	cr_expect_eq(o.m->h.n_head_kv, 4, "as many as n_head");
	cr_expect_eq(o.m->h.n_rot, 8, "n_embd / n_head");
	cr_expect_eq(o.m->h.rope_theta, 10000.0f);
	cr_expect_eq(o.m->h.rms_eps, 1e-5f);
	cr_expect_eq(o.m->h.n_ctx_train, 2048);
	cr_expect_eq(o.m->h.rope_ctx_train, 2048);
	cr_expect_eq(o.m->h.rope_attn_factor, 1.0f);
	cr_expect_eq(o.m->h.yarn_beta_fast, 32.0f);
	cr_expect_eq(o.m->h.yarn_beta_slow, 1.0f);
	close_model(&o);
}

Test(model, tied_output)
{
	struct builder *b = new_builder();
	builder_drop_tensor(b, "output.weight");
	struct opened o = open_good(b);
	cr_expect(o.m->tied_output);
	cr_expect_eq(o.m->output.data, o.m->token_embd.data);
	cr_expect_eq(o.m->output.n_rows, 264);
	close_model(&o);
}

Test(model, extras_are_used_or_ignored)
{
	struct builder *b = new_builder();
	builder_noise(b, "rope_freqs.weight", 0, 4, 1);
	builder_noise(b, "blk.1.attn_output.bias", 0, 32, 1);
	builder_noise(b, "blk.0.ffn_up.bias", 0, 64, 1);
	builder_noise(b, "blk.0.never_heard_of.weight", 3, 5, 1);
	builder_noise(b, "blk.2.attn_q.weight", 3, 5, 1); /* of a layer beyond block_count */
	builder_f64(b, "x.y.z", 2.5);
	struct opened o = open_good(b);
	cr_expect(o.m->rope_freqs.data && o.m->rope_freqs.n_cols == 4);
	cr_expect_null(o.m->layers[0].attn_output_bias.data);
	cr_expect(o.m->layers[1].attn_output_bias.data);
	cr_expect(o.m->layers[0].ffn_up_bias.data && o.m->layers[0].ffn_up_bias.n_cols == 64);
	close_model(&o);
}

Test(model, one_value_for_each_layer)
{
	struct builder *b = new_builder();
	builder_i32s(b, "llama.attention.head_count_kv", (const int32_t[]){2, 2}, 2);
	struct opened o = open_good(b);
	cr_expect_eq(o.m->h.n_head_kv, 2);
	close_model(&o);

	b = new_builder();
	builder_i32s(b, "llama.attention.head_count_kv", (const int32_t[]){2, 4}, 2);
	expect_refused(b, "blk.1.attn_k.weight is [16, 32], expected [32, 32]");
	b = new_builder();
	builder_i32s(b, "llama.attention.head_count_kv", (const int32_t[]){2, 0}, 2);
	expect_refused(b, "head_count_kv is 0, expected a divisor of the 4 heads");
	b = new_builder();
	builder_i32s(b, "llama.feed_forward_length", (const int32_t[]){64, 96}, 2);
	expect_refused(b, "blk.1.ffn_gate.weight is [64, 32], expected [96, 32]");
	b = new_builder();
	builder_i32s(b, "llama.feed_forward_length", (const int32_t[]){64, 0}, 2);
	expect_refused(b, "feed_forward_length is 0 for layer 1, expected at least 1");
	b = new_builder();
	builder_i32s(b, "llama.attention.head_count", (const int32_t[]){4, 8}, 2);
	expect_refused(b, "head_count is 4 for layer 0 and 8 for layer 1");
	b = new_builder();
	builder_i32s(b, "llama.attention.head_count_kv", (const int32_t[]){2, 2, 2}, 3);
	expect_refused(b, "head_count_kv is an array of 3 integers");
	b = new_builder();
	builder_i32s(b, "llama.attention.head_count_kv", (const int32_t[]){-2, -2}, 2);
	expect_refused(b, "head_count_kv is -2");
	b = new_builder();
	builder_f32s(b, "llama.attention.head_count_kv", (const float[]){2, 2}, 2);
	expect_refused(b, "values that are no integers");
	b = new_builder();
	builder_strings(b, "llama.attention.head_count_kv", (const char *const[]){"2", "2"}, 2);
	expect_refused(b, "values that are no integers");
	b = new_builder();
	builder_array(b, "llama.block_count", GGUF_U32, 0);
	expect_refused(b, "llama.block_count is an array of 0");
}

Test(model, explicit_head_dim)
{
	struct builder *b = new_builder();
	builder_u32(b, "llama.attention.key_length", 12);
	builder_u32(b, "llama.attention.value_length", 12);
	for (int il = 0; il < 2; il++) {
		static const struct {
			const char *name;
			uint32_t n_rows, n_cols;
		} parts[] = {{"attn_q", 48, 32}, {"attn_k", 24, 32}, {"attn_v", 24, 32},
			{"attn_output", 32, 48}};
		for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%d.%s.weight", il, parts[i].name);
			reshape(b, name, parts[i].n_rows, parts[i].n_cols);
		}
	}
	struct opened o = open_good(b);
	cr_expect_eq(o.m->h.head_dim, 12);
	cr_expect_eq(o.m->h.n_rot, 8, "the file's own: only part of a head turns");
	close_model(&o);
}

/* The keys of the tiny llama under another architecture's prefix. */
static void rename_arch(struct builder *b, const char *arch)
{
	builder_string(b, "general.architecture", arch);
	for (uint32_t i = 0; i < b->n_kv; i++) {
		struct text renamed = {0};
		if (strncmp(b->kv[i].key.data, "llama.", 6) != 0)
			continue;
		cr_assert(text_printf(&renamed, "%s.%s", arch, b->kv[i].key.data + 6));
		text_free(&b->kv[i].key);
		b->kv[i].key = renamed;
	}
}

Test(model, qwen2_needs_its_biases)
{
	struct builder *b = new_builder();
	rename_arch(b, "qwen2");
	expect_refused(b, "the tensor blk.0.attn_q.bias is missing");
	b = new_builder();
	rename_arch(b, "qwen2");
	for (int il = 0; il < 2; il++)
		for (int k = 0; k < 3; k++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%d.attn_%c.bias", il, "qkv"[k]);
			builder_noise(b, name, 0, k ? 16 : 32, 1);
		}
	struct opened o = open_good(b);
	cr_expect(o.m->arch->rope == ARCH_ROPE_NEOX && o.m->arch->flags & ARCH_QKV_BIAS);
	cr_expect_eq(o.m->layers[1].attn_v_bias.n_cols, 16);
	close_model(&o);
}

/* ---- rope -------------------------------------------------------------------------------------- */

Test(model, rope_scaling)
{
	struct builder *b = new_builder();
	builder_string(b, "llama.rope.scaling.type", "yarn");
	builder_f32(b, "llama.rope.scaling.factor", 4);
	builder_u32(b, "llama.rope.scaling.original_context_length", 16);
	struct opened o = open_good(b);
	cr_expect_eq(o.m->h.rope_scaling, ROPE_SCALING_YARN);
	cr_expect_eq(o.m->h.rope_scale, 4.0f);
	cr_expect_eq(o.m->h.rope_ctx_train, 16);
	close_model(&o);

	b = new_builder();
	builder_string(b, "llama.rope.scaling.type", "linear");
	builder_f32(b, "llama.rope.scaling.factor", 2);
	o = open_good(b);
	cr_expect_eq(o.m->h.rope_scaling, ROPE_SCALING_LINEAR);
	cr_expect_eq(o.m->h.rope_scale, 2.0f);
	close_model(&o);

	b = new_builder(); /* old files */
	builder_f32(b, "llama.rope.scale_linear", 8);
	o = open_good(b);
	cr_expect_eq(o.m->h.rope_scaling, ROPE_SCALING_LINEAR);
	cr_expect_eq(o.m->h.rope_scale, 8.0f);
	close_model(&o);

	b = new_builder(); /* the newer key wins */
	builder_f32(b, "llama.rope.scaling.factor", 2);
	builder_f32(b, "llama.rope.scale_linear", 8);
	o = open_good(b);
	cr_expect_eq(o.m->h.rope_scale, 2.0f);
	close_model(&o);

	b = new_builder();
	builder_string(b, "llama.rope.scaling.type", "none");
	builder_f32(b, "llama.rope.scaling.factor", 8);
	o = open_good(b);
	cr_expect_eq(o.m->h.rope_scaling, ROPE_SCALING_NONE);
	cr_expect_eq(o.m->h.rope_scale, 1.0f);
	close_model(&o);

	b = new_builder();
	builder_f32(b, "llama.rope.scaling.factor", 0);
	o = open_good(b);
	cr_expect_eq(o.m->h.rope_scaling, ROPE_SCALING_NONE);
	cr_expect_eq(o.m->h.rope_scale, 1.0f);
	close_model(&o);

	b = new_builder();
	builder_string(b, "llama.rope.scaling.type", "longrope");
	expect_refused(b, "the tensor rope_factors_long.weight is missing");

	b = new_builder();
	builder_string(b, "llama.rope.scaling.type", "dynamic");
	expect_refused(b,
		"rope.scaling.type is \"dynamic\", supported are none, linear, yarn and longrope");
}

/* ---- what is refused ---------------------------------------------------------------------------- */

Test(model, architectures)
{
	struct builder *b = new_builder();
	builder_drop(b, "general.architecture");
	expect_refused(b, "the key general.architecture is missing");
	b = new_builder();
	builder_u32(b, "general.architecture", 1);
	expect_refused(b, "general.architecture is of type u32, expected a string");
	b = new_builder();
	builder_string(b, "general.architecture", "frob\033ni\ncator");
	expect_refused(b, "\"frob?ni?cator\" is not supported, supported are llama mistral3 qwen2");
	b = new_builder();
	builder_string(b, "general.architecture", "llam");
	expect_refused(b, "\"llam\" is not supported");
	b = new_builder();
	builder_string(b, "general.architecture", "");
	expect_refused(b, "\"\" is not supported");
}

Test(model, every_listed_architecture_is_found)
{
	char *list = strdup(arch_list());
	size_t n = 0;
	for (char *name = strtok(list, " "); name; name = strtok(NULL, " "), n++)
		cr_expect(arch_find(name, strlen(name)), "%s", name);
	cr_expect_geq(n, 2);
	free(list);
}

Test(model, required_keys)
{
	static const char *const keys[] = {"llama.block_count", "llama.embedding_length",
		"llama.feed_forward_length", "llama.attention.head_count"};
	char words[96];
	for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
		struct builder *b = new_builder();
		builder_drop(b, keys[i]);
		snprintf(words, sizeof words, "the key %s is missing", keys[i]);
		expect_refused(b, words);
		b = new_builder();
		builder_u32(b, keys[i], 0);
		snprintf(words, sizeof words, "%s is 0, expected at least 1", keys[i]);
		expect_refused(b, words);
		b = new_builder();
		builder_string(b, keys[i], "2");
		snprintf(words, sizeof words, "%s is of type string", keys[i]);
		expect_refused(b, words);
	}
}

Test(model, integers_out_of_range)
{
	static const struct {
		const char *key;
		uint32_t value;
		const char *words;
	} cases[] = {
		{"llama.block_count", 4, "the tensor blk.2.attn_norm.weight is missing"},
		{"llama.block_count", 5, "the tensor blk.2.attn_norm.weight is missing"},
		{"llama.block_count", 6,
			"block_count is 6, but the file has 21 tensors for them all, expected at "
			"least 4 for each"},
		{"llama.block_count", 22, "block_count is 22, but the file has 21 tensors"},
		{"llama.block_count", UINT32_MAX, "block_count is 4294967295"},
		{"llama.context_length", 0, "context_length is 0"},
		{"llama.rope.scaling.original_context_length", 0, "original_context_length is 0"},
		{"llama.attention.head_count_kv", 0, "head_count_kv is 0, expected a divisor"},
		{"llama.attention.head_count_kv", 3,
			"head_count_kv is 3, expected a divisor of the 4"},
		{"llama.attention.head_count_kv", 8, "head_count_kv is 8"},
		{"llama.attention.head_count", 64, "heads have 0 elements"},
		{"llama.attention.key_length", 0, "heads have 0 elements"},
		{"llama.attention.key_length", 7, "heads have 7 elements, expected an even number"},
		{"llama.attention.key_length", 514,
			"heads have 514 elements, expected an even number from 2 to 512"},
		{"llama.attention.value_length", 4, "value_length is 4, expected 8"},
		{"llama.rope.dimension_count", 0, "dimension_count is 0"},
		{"llama.rope.dimension_count", 7, "dimension_count is 7"},
		{"llama.rope.dimension_count", 10,
			"dimension_count is 10, expected an even number"},
		{"llama.expert_count", 8, "llama.expert_used_count is 0, expected 1 to 8"},
		{"llama.expert_count", 513, "expert_count is 513, expected at most 512"},
		{"llama.embedding_length", 48,
			"token_embd.weight is [264, 32], expected [264, 48]"},
		{"llama.feed_forward_length", 65, "ffn_gate.weight is [64, 32], expected [65, 32]"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct builder *b = new_builder();
		builder_u32(b, cases[i].key, cases[i].value);
		expect_refused(b, cases[i].words);
	}
	struct builder *b = new_builder();
	builder_u32(b, "llama.context_length", 0);
	builder_u32(b, "llama.rope.scaling.original_context_length", 16);
	expect_refused(b, "llama.context_length is 0");
	b = new_builder();
	builder_u32(b, "llama.attention.head_count", 1u << 31);
	builder_u32(b, "llama.attention.head_count_kv", 1u << 31);
	builder_u32(b, "llama.attention.key_length", 2);
	builder_u32(b, "llama.rope.dimension_count", 2);
	expect_refused(b, "2147483648 heads of 2 elements");
}

Test(model, floats_out_of_range)
{
	static const char *const keys[] = {"attention.layer_norm_rms_epsilon", "rope.freq_base",
		"rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
		"rope.scaling.yarn_beta_slow"};
	static const float values[] = {0, -1, INFINITY, NAN};
	char key[96], words[128];
	for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
		for (size_t j = 0; j < ARRAY_COUNT(values); j++) {
			struct builder *b = new_builder();
			snprintf(key, sizeof key, "llama.%s", keys[i]);
			builder_f32(b, key, values[j]);
			snprintf(words, sizeof words, "%s is ", key);
			expect_refused(b, words);
		}
	for (size_t j = 1; j < ARRAY_COUNT(values); j++) {
		struct builder *b = new_builder();
		builder_f32(b, "llama.rope.scaling.factor", values[j]);
		expect_refused(b, "llama.rope.scaling.factor is ");
	}
}

/* Each tensor of the last layer, and those of the whole, missing or with one row too many. */
Test(model, missing_and_misshapen_tensors)
{
	static const struct {
		const char *name, *expected;
		uint32_t n_rows, n_cols;
	} tensors[] = {
		{"token_embd.weight", "[264, 32]", 264, 32},
		{"output_norm.weight", "[32]", 0, 32},
		{"blk.1.attn_norm.weight", "[32]", 0, 32},
		{"blk.1.attn_q.weight", "[32, 32]", 32, 32},
		{"blk.1.attn_k.weight", "[16, 32]", 16, 32},
		{"blk.1.attn_v.weight", "[16, 32]", 16, 32},
		{"blk.1.attn_output.weight", "[32, 32]", 32, 32},
		{"blk.1.ffn_norm.weight", "[32]", 0, 32},
		{"blk.1.ffn_gate.weight", "[64, 32]", 64, 32},
		{"blk.1.ffn_up.weight", "[64, 32]", 64, 32},
		{"blk.1.ffn_down.weight", "[32, 64]", 32, 64},
	};
	char words[128];
	for (size_t i = 0; i < ARRAY_COUNT(tensors); i++) {
		struct builder *b = new_builder();
		builder_drop_tensor(b, tensors[i].name);
		snprintf(words, sizeof words, "the tensor %s is missing", tensors[i].name);
		expect_refused(b, words);
		b = new_builder();
		reshape(b, tensors[i].name, tensors[i].n_rows, tensors[i].n_cols + 1);
		snprintf(words, sizeof words, "%s is [", tensors[i].name);
		expect_refused(b, words);
		if (i == 0) /* its rows are the vocabulary */
			continue;
		b = new_builder();
		reshape(b, tensors[i].name, tensors[i].n_rows + 2, tensors[i].n_cols);
		snprintf(words, sizeof words, "], expected %s", tensors[i].expected);
		expect_refused(b, words);
	}
}

Test(model, other_shapes)
{
	struct builder *b = new_builder();
	reshape(b, "output.weight", 263, 32);
	expect_refused(b, "output.weight is [263, 32], expected [264, 32]");
	b = new_builder();
	builder_noise(b, "rope_freqs.weight", 0, 5, 1);
	expect_refused(b, "rope_freqs.weight is [5], expected [4]");
	b = new_builder();
	builder_noise(b, "blk.0.attn_q.bias", 0, 16, 1);
	expect_refused(b, "blk.0.attn_q.bias is [16], expected [32]");
	b = new_builder();
	struct builder_tensor *t = builder_get_tensor(b, "blk.0.ffn_up.weight");
	t->n_dims = 3;
	t->dims[2] = 2;
	static const uint8_t second[64 * 32 * 4];
	builder_bytes(&t->data, second, sizeof second);
	expect_refused(b, "blk.0.ffn_up.weight is [2, 64, 32], expected [64, 32]");
	b = new_builder();
	t = builder_get_tensor(b, "blk.0.ffn_up.weight");
	t->n_dims = 4; /* written with trailing ones: the same shape */
	t->dims[2] = t->dims[3] = 1;
	struct opened o = open_good(b);
	close_model(&o);
}

Test(model, vectors_are_f32)
{
	struct builder *b = new_builder();
	uint8_t halves[64] = {0};
	builder_drop_tensor(b, "blk.0.attn_norm.weight");
	builder_tensor(b, "blk.0.attn_norm.weight", 1, 0, 32, halves, sizeof halves);
	expect_refused(b, "blk.0.attn_norm.weight is F16, expected F32");
	b = new_builder();
	static const uint8_t blocks[32 * 34];
	builder_drop_tensor(b, "blk.0.attn_q.weight");
	builder_tensor(b, "blk.0.attn_q.weight", 8, 32, 32, blocks, sizeof blocks);
	struct opened o = open_good(b);
	cr_expect_eq(o.m->layers[0].attn_q.weight, WEIGHT_q8_0, "matrices may be anything");
	close_model(&o);
}

Test(model, vocabularies_agree)
{
	struct builder *b = new_builder();
	builder_strings(b, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
	expect_refused(b, "tokenizer.ggml.tokens has 2 tokens, expected 264");
	b = new_builder();
	builder_drop(b, "tokenizer.ggml.tokens");
	struct opened o = open_good(b);
	close_model(&o);
}

/* ---- real files -------------------------------------------------------------------------------- */

static struct mapped_file map(const char *path)
{
	struct mapped_file file;
	struct lap_error err = {0};
	cr_assert_eq(file_map(path, &file, &err), LAP_OK, "%s", err.text);
	return file;
}

Test(model, committed_golden_models)
{
	static const struct {
		const char *file, *arch;
		uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab;
		enum rope_scaling scaling;
		bool tied, freqs;
		enum weight embd;
	} cases[] = {
		{"mix-q4_k_m", "llama", 3, 256, 4, 2, 32, 256, 320, ROPE_SCALING_NONE, true, false,
			WEIGHT_q6_k},
		{"llama-freqs", "llama", 2, 96, 4, 1, 64, 96, 320, ROPE_SCALING_NONE, true, true,
			WEIGHT_f16},
		{"llama-yarn", "llama", 2, 96, 2, 1, 64, 128, 320, ROPE_SCALING_YARN, false, false,
			WEIGHT_f16},
		{"qwen2-plain", "qwen2", 2, 224, 7, 1, 32, 64, 331, ROPE_SCALING_NONE, true, false,
			WEIGHT_f16},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_error err = {0};
		struct gguf *g;
		struct model *m;
		struct text name = {0};
		cr_assert(text_printf(&name, "golden/%s.gguf", cases[i].file));
		struct mapped_file file = map(vector_path(name.data));
		cr_assert_eq(gguf_open(file.data, file.n_bytes, name.data, &g, &err), LAP_OK, "%s",
			err.text);
		cr_assert_eq(model_create(g, &m, &err), LAP_OK, "%s", err.text);
		const struct hparams *h = &m->h;
		cr_expect_str_eq(m->arch->name, cases[i].arch);
		cr_expect(h->n_layer == cases[i].n_layer && h->n_embd == cases[i].n_embd, "%s",
			name.data);
		cr_expect(h->n_head == cases[i].n_head && h->n_head_kv == cases[i].n_head_kv, "%s",
			name.data);
		cr_expect(h->head_dim == cases[i].head_dim && h->n_ff == cases[i].n_ff, "%s",
			name.data);
		cr_expect_eq(h->n_vocab, cases[i].n_vocab, "%s", name.data);
		cr_expect_eq(h->rope_scaling, cases[i].scaling, "%s", name.data);
		cr_expect_eq(m->tied_output, cases[i].tied, "%s", name.data);
		cr_expect_eq(m->rope_freqs.data != NULL, cases[i].freqs, "%s", name.data);
		cr_expect_eq(m->token_embd.weight, cases[i].embd, "%s", name.data);
		model_destroy(m);
		gguf_close(g);
		file_unmap(&file);
		text_free(&name);
	}
}

struct golden_model {
	struct mapped_file file;
	struct gguf *g;
	struct model *m;
};

static struct golden_model open_golden(const char *path)
{
	struct golden_model o = {0};
	struct lap_error err = {0};
	o.file = map(shared_path(path));
	cr_assert_eq(
		gguf_open(o.file.data, o.file.n_bytes, path, &o.g, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(model_create(o.g, &o.m, &err), LAP_OK, "%s", err.text);
	return o;
}

static void close_golden(struct golden_model *o)
{
	model_destroy(o->m);
	gguf_close(o->g);
	file_unmap(&o->file);
}

/* OB-13: what nothing asks for is ignored, and noted. */
Test(model, unused_tensors)
{
	struct builder *b = new_builder();
	builder_noise(b, "blk.1.mystery.weight", 0, 32, 1);
	builder_noise(b, "rotary.inv_freq", 0, 16, 1);
	struct opened o = open_good(b);
	cr_expect_eq(o.m->n_unused, 2);
	cr_expect_str_eq(o.m->unused, "blk.1.mystery.weight");
	close_model(&o);
	o = open_good(new_builder());
	cr_expect(o.m->n_unused == 0 && !o.m->unused);
	close_model(&o);
}

/* Which layers look back how far and turn by which table. */
Test(model, kinds_of_layers)
{
	static const struct {
		const char *path;
		uint32_t windows[7];
		enum layer_rope ropes[7];
	} cases[] = {
		{"golden/gemma2-plain.gguf", {8, 0, 8, 0}, {1, 1, 1, 1}},
		{"golden/gemma3-plain.gguf", {8, 8, 8, 8, 8, 0, 8}, {2, 2, 2, 2, 2, 1, 2}},
		{"golden/gemma3-hd256.gguf", {16, 0, 16}, {2, 1, 2}},
		{"golden/gpt-oss-plain.gguf", {8, 0, 8, 0}, {1, 1, 1, 1}},
		{"golden/smollm3-plain.gguf", {0}, {1, 1, 1, 0, 1}},
		{"golden/gpt2-plain.gguf", {0}, {0, 0}},
		{"golden/llama-plain.gguf", {0}, {1, 1}},
	};
	SKIP_WITHOUT("golden/gemma2-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct golden_model o = open_golden(cases[i].path);
		for (uint32_t il = 0; il < o.m->h.n_layer; il++) {
			cr_expect_eq(o.m->layers[il].window, cases[i].windows[il], "%s, layer %u",
				cases[i].path, il);
			cr_expect_eq(o.m->layers[il].rope, cases[i].ropes[il], "%s, layer %u",
				cases[i].path, il);
			cr_expect_eq(o.m->layers[il].kv_layer, il);
		}
		close_golden(&o);
	}
}

/* Layers that differ in heads, and that look at another's keys: theirs are not kept. */
Test(model, layers_that_differ)
{
	static const struct {
		const char *path;
		uint32_t kv_layers[6], head_dims[6], n_head_kv[6];
	} cases[] = {
		{"golden/gemma4-e.gguf", {0, 1, 2, 1, 1, 2}, {32, 32, 64, 32, 32, 64},
			{1, 1, 1, 1, 1, 1}},
		{"golden/gemma4-moe.gguf", {0, 1, 2}, {32, 32, 64}, {2, 2, 1}},
	};
	SKIP_WITHOUT("golden/gemma4-e.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct golden_model o = open_golden(cases[i].path);
		for (uint32_t il = 0; il < o.m->h.n_layer; il++) {
			const struct layer *l = &o.m->layers[il];
			cr_expect_eq(l->kv_layer, cases[i].kv_layers[il]);
			cr_expect_eq(l->head_dim, cases[i].head_dims[il]);
			cr_expect_eq(l->n_rot, cases[i].head_dims[il]);
			cr_expect_eq(l->n_head_kv, cases[i].n_head_kv[il]);
			cr_expect_eq(!l->attn_k.data, l->kv_layer != il);
		}
		cr_expect_eq(o.m->n_unused, 0);
		close_golden(&o);
	}
}

/* Fused tensors are parts of one holder, behind each other and of its row length. */
Test(model, parts_of_fused_tensors)
{
	SKIP_WITHOUT("golden/phi3-plain.gguf");
	struct golden_model o = open_golden("golden/phi3-plain.gguf");
	const struct layer *l = &o.m->layers[1];
	const struct gguf_tensor *qkv = gguf_find_tensor(o.g, "blk.1.attn_qkv.weight");
	const struct gguf_tensor *up = gguf_find_tensor(o.g, "blk.1.ffn_up.weight");
	cr_assert(qkv && up);
	cr_expect_eq(o.m->n_unused, 0);
	cr_expect_eq(l->attn_q.data, qkv->data);
	cr_expect_eq(l->attn_k.data, l->attn_q.data + l->attn_q.n_bytes);
	cr_expect_eq(l->attn_v.data, l->attn_k.data + l->attn_k.n_bytes);
	cr_expect_eq(l->attn_v.data + l->attn_v.n_bytes, qkv->data + qkv->n_bytes);
	cr_expect(l->attn_q.n_rows == 192 && l->attn_k.n_rows == 96 && l->attn_v.n_rows == 96);
	cr_expect_eq(l->ffn_gate.data, up->data);
	cr_expect_eq(l->ffn_up.data, up->data + up->n_bytes / 2);
	cr_expect(l->ffn_gate.n_rows == 64 && l->ffn_up.n_rows == 64);
	close_golden(&o);

	o = open_golden("golden/gpt2-plain.gguf");
	const struct gguf_tensor *bias = gguf_find_tensor(o.g, "blk.0.attn_qkv.bias");
	cr_expect_eq(o.m->layers[0].attn_v_bias.data, bias->data + 2 * 96 * sizeof(float));
	cr_expect(!o.m->layers[0].ffn_gate.data && o.m->position_embd.data);
	close_golden(&o);

	o = open_golden("golden/gpt-oss-plain.gguf");
	const struct gguf_tensor *renamed =
		gguf_find_tensor(o.g, "blk.2.post_attention_norm.weight");
	cr_expect_eq(o.m->layers[2].ffn_norm.data, renamed->data);
	cr_expect(o.m->layers[2].experts);
	cr_expect_eq(o.m->layers[2].ffn_up_exps.n_experts, 4);
	cr_expect_eq(o.m->layers[2].ffn_up_exps.n_rows, 4 * 64);
	close_golden(&o);
}

/* Layers that guess tokens are counted by the file and left alone. */
Test(model, layers_of_multi_token_prediction)
{
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	static const char *const overrides[] = {
		"qwen35.nextn_predict_layers=int:1", "qwen35.nextn_predict_layers=int:4"};
	for (size_t i = 0; i < ARRAY_COUNT(overrides); i++) {
		struct lap_error err = {0};
		struct gguf *g = NULL;
		struct model *m = NULL;
		struct mapped_file file = map(shared_path("golden/qwen35-plain.gguf"));
		cr_assert_eq(gguf_open(file.data, file.n_bytes, "m", &g, &err), LAP_OK);
		cr_assert_eq(gguf_override(g, &overrides[i], 1, &err), LAP_OK, "%s", err.text);
		enum lap_status status = model_create(g, &m, &err);
		cr_expect_eq(status, i ? LAP_BAD_MODEL : LAP_OK, "%s", err.text);
		if (i)
			cr_expect_str_eq(err.text,
				"m: qwen35.nextn_predict_layers is 4, expected "
				"less than the 4 layers");
		else
			cr_expect(m->h.n_layer == 3 && m->n_unused > 8, "%u layers, %u unused",
				(unsigned)m->h.n_layer, (unsigned)m->n_unused);
		model_destroy(m);
		gguf_close(g);
		file_unmap(&file);
	}
}

/* Keys of recurrent layers, and of layers that differ, that no kernel could follow. */
Test(model, layers_of_strange_sizes)
{
	static const struct {
		const char *path, *override, *words;
	} cases[] = {
		{"golden/lfm2-plain.gguf", "lfm2.shortconv.l_cache=int:1",
			"lfm2.shortconv.l_cache is 1, expected 2 to 8"},
		{"golden/lfm2-plain.gguf", "lfm2.shortconv.l_cache=int:4",
			"blk.0.shortconv.conv.weight is [96, 3], expected [96, 4]"},
		{"golden/qwen35-plain.gguf", "qwen35.ssm.conv_kernel=int:9",
			"qwen35.ssm.conv_kernel is 9, expected 2 to 8"},
		{"golden/qwen35-plain.gguf", "qwen35.ssm.time_step_rank=int:5",
			"qwen35.ssm.time_step_rank is 5, expected a multiple of the 2 groups"},
		{"golden/qwen35-plain.gguf", "qwen35.ssm.group_count=int:0", "the 0 groups"},
		{"golden/qwen35-plain.gguf", "qwen35.ssm.inner_size=int:130",
			"qwen35.ssm.inner_size is 130, expected for each of the 4 heads"},
		{"golden/qwen35-plain.gguf", "qwen35.full_attention_interval=int:0",
			"qwen35.full_attention_interval is 0, expected at least 1"},
		{"golden/qwen35-plain.gguf", "qwen35.full_attention_interval=int:3",
			"the tensor blk.2.attn_q.weight is missing"},
		{"golden/gemma4-e.gguf", "gemma4.attention.shared_kv_layers=int:6",
			"shared_kv_layers is 6, expected less than 6 layers"},
		{"golden/gemma4-e.gguf", "gemma4.attention.shared_kv_layers=int:4",
			"layer 2 looks at the keys of an earlier layer without a window, but none "
			"of the first 2 is one"},
		{"golden/gemma4-e.gguf", "gemma4.attention.shared_kv_layers=int:2",
			"the tensor blk.3.attn_k.weight is missing"},
		{"golden/gemma4-e.gguf", "gemma4.embedding_length_per_layer_input=int:17",
			"per_layer_token_embd.weight is [320, 96], expected [320, 102]"},
		{"golden/gemma4-e.gguf", "gemma4.embedding_length_per_layer_input=int:1000000000",
			"embedding_length_per_layer_input is 1000000000 for 6 layers"},
		{"golden/gemma4-moe.gguf", "gemma4.attention.key_length_swa=int:64",
			"value_length_swa is 32, expected 64 as for keys"},
		{"golden/gemma4-moe.gguf", "gemma4.attention.shared_kv_layers=int:1",
			"layer 2 looks at the keys of an earlier layer without a window"},
	};
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_error err = {0};
		struct gguf *g = NULL;
		struct model *m = NULL;
		struct mapped_file file = map(shared_path(cases[i].path));
		cr_assert_eq(gguf_open(file.data, file.n_bytes, cases[i].path, &g, &err), LAP_OK);
		cr_assert_eq(gguf_override(g, &cases[i].override, 1, &err), LAP_OK, "%s", err.text);
		cr_expect_eq(model_create(g, &m, &err), LAP_BAD_MODEL, "%s", cases[i].words);
		cr_expect(strstr(err.text, cases[i].words), "\"%s\" is not in \"%s\"",
			cases[i].words, err.text);
		model_destroy(m);
		gguf_close(g);
		file_unmap(&file);
	}
}
