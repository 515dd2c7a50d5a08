/* Names and rules of the mixes: see quantize_recipe.h. */
#include "quantize_recipe.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define EVERY(w) .attn_qkv = (w), .attn_output8 = (w)

static const struct recipe recipes[] = {
	{"F32", 0, WEIGHT_f32, EVERY(WEIGHT_f32)},
	{"F16", 1, WEIGHT_f16, EVERY(WEIGHT_f16)},
	{"BF16", 32, WEIGHT_bf16, EVERY(WEIGHT_bf16)},
	{"Q8_0", 7, WEIGHT_q8_0, EVERY(WEIGHT_q8_0)},
	{"Q6_K", 18, WEIGHT_q6_k, EVERY(WEIGHT_q6_k)},
	{"Q5_K_M", 17, WEIGHT_q5_k, {LAYERS_THIRD, WEIGHT_q6_k}, {LAYERS_THIRD, WEIGHT_q6_k},
		WEIGHT_q6_k, WEIGHT_q5_k},
	{"Q5_K_S", 16, WEIGHT_q5_k, EVERY(WEIGHT_q5_k)},
	{"Q4_K_M", 15, WEIGHT_q4_k, {LAYERS_THIRD, WEIGHT_q6_k}, {LAYERS_THIRD, WEIGHT_q6_k},
		WEIGHT_q5_k, WEIGHT_q5_k},
	{"Q4_K_S", 14, WEIGHT_q4_k, {LAYERS_FIRST_FOUR, WEIGHT_q5_k},
		{LAYERS_FIRST_EIGHTH, WEIGHT_q5_k}, WEIGHT_q4_k, WEIGHT_q5_k},
	{"Q5_1", 9, WEIGHT_q5_1, EVERY(WEIGHT_q5_1)},
	{"Q5_0", 8, WEIGHT_q5_0, EVERY(WEIGHT_q5_0)},
	{"Q4_1", 3, WEIGHT_q4_1, EVERY(WEIGHT_q4_1)},
	{"Q4_0", 2, WEIGHT_q4_0, EVERY(WEIGHT_q4_0)},
};

const struct recipe *recipe_find(const char *name)
{
	static const char *const short_names[][2] = {{"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
	for (size_t i = 0; i < ARRAY_COUNT(short_names); i++)
		if (strcasecmp(name, short_names[i][0]) == 0)
			name = short_names[i][1];
	for (size_t i = 0; i < ARRAY_COUNT(recipes); i++)
		if (strcasecmp(name, recipes[i].name) == 0)
			return &recipes[i];
	return NULL;
}

const char *recipe_names(void)
{
	return "F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q4_K_M Q4_K_S Q5_1 Q5_0 Q4_1 Q4_0";
}

/* ---- tensors by their names ------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *ending)
{
	const size_t n = strlen(name), n_ending = strlen(ending);
	return n >= n_ending && strcmp(name + n - n_ending, ending) == 0;
}

static uint32_t layer_of(const char *name)
{
	uint32_t layer = 0;
	return sscanf(name, "blk.%9u.", &layer) == 1 ? layer : 0;
}

/* Tables, not factors: norms, biases, positions, filters, and the routers of experts, whose few weights
 * decide much. */
static bool is_quantised(const struct gguf_tensor *t)
{
	static const char *const kept[] = {"_norm.weight", "ffn_gate_inp", "position_embd.weight",
		"token_types.weight", "ssm_conv1d.weight", "shortconv.conv.weight", "altup",
		"laurel", "per_layer_model_proj"};
	if (!ends_with(t->name, ".weight") || t->n_weights == t->dims[0])
		return false;
	for (size_t i = 0; i < ARRAY_COUNT(kept); i++)
		if (strstr(t->name, kept[i]))
			return false;
	return true;
}

/* Whether a rule is for the layer of this tensor, among the layers that have one. */
static bool is_for(enum recipe_layers layers, const struct gguf *g, const struct gguf_tensor *t)
{
	const char *kind = strrchr(t->name, '.'); /* ".weight", and before it "attn_v" */
	while (kind > t->name && kind[-1] != '.')
		kind--;
	uint64_t i = 0, n = 0;
	for (uint64_t k = 0; k < g->n_tensors; k++)
		if (ends_with(g->tensors[k].name, kind)) {
			n++;
			i += layer_of(g->tensors[k].name) < layer_of(t->name);
		}
	switch (layers) {
	case LAYERS_NONE:
		break;
	case LAYERS_FIRST_FOUR:
		return i < 4;
	case LAYERS_FIRST_EIGHTH:
		return i < n / 8;
	case LAYERS_THIRD:
		return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
	}
	return false;
}

static bool has_eight_experts(const struct gguf *g)
{
	uint32_t n = 0;
	char key[128];
	struct gguf_string arch = {"", 0};
	if (gguf_string(g, "general.architecture", &arch, NULL) || arch.n > 64)
		return false;
	snprintf(key, sizeof key, "%.*s.expert_count", (int)arch.n, arch.data);
	return !gguf_u32(g, key, &n, NULL) && n == 8;
}

/* Of matrices that make the logits six bits are kept. */
static bool makes_logits(const struct gguf *g, const struct gguf_tensor *t)
{
	const char *name =
		gguf_find_tensor(g, "output.weight") ? "output.weight" : "token_embd.weight";
	return strcmp(t->name, name) == 0;
}

static enum weight mixed(const struct recipe *r, const struct gguf *g, const struct gguf_tensor *t)
{
	const char *name = t->name;
	if (makes_logits(g, t))
		return r->base == WEIGHT_q8_0 ? WEIGHT_q8_0 : WEIGHT_q6_k;
	if (ends_with(name, ".attn_v.weight") || ends_with(name, ".attn_k.weight")) {
		const bool is_v = ends_with(name, "v.weight");
		if (has_eight_experts(g)) /* small beside the experts */
			return WEIGHT_q8_0;
		return is_v && is_for(r->attn_v.layers, g, t) ? r->attn_v.format : r->base;
	}
	if (ends_with(name, ".ffn_down.weight") || ends_with(name, ".ffn_down_exps.weight"))
		return is_for(r->ffn_down.layers, g, t) ? r->ffn_down.format : r->base;
	if (ends_with(name, ".attn_qkv.weight"))
		return r->attn_qkv;
	if (ends_with(name, ".attn_output.weight") && has_eight_experts(g))
		return r->attn_output8;
	return r->base;
}

/* The next best for rows that are no whole blocks. */
static enum weight without(enum weight format)
{
	switch (format) {
	case WEIGHT_q4_k:
		return WEIGHT_q5_0;
	case WEIGHT_q5_k:
		return WEIGHT_q5_1;
	case WEIGHT_q6_k:
		return WEIGHT_q8_0;
	default:
		return WEIGHT_f16;
	}
}

enum weight recipe_choose(const struct recipe *r, bool pure, const struct gguf *g,
	const struct gguf_tensor *t, bool *fallback)
{
	*fallback = false;
	if (!is_quantised(t))
		return t->weight;
	const bool whole = weight_format(r->base)->block_weights == 1;
	enum weight format = pure || whole ? r->base : mixed(r, g, t);
	while (t->dims[0] % weight_format(format)->block_weights) {
		format = without(format);
		*fallback = true;
	}
	return format;
}
