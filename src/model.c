/* Hyperparameters and tensors read from a GGUF file and checked: see model.h, rows in model.def. */
#include "model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"

#define MAX_NAME 128 /* bytes of a key or tensor name that we look up */
/* What no layer does without: q, k and v in one, its output, and two matrices of its FFN.  So a count of
 * layers, for which memory is taken before they are read, cannot be much larger than the file. */
#define MIN_LAYER_TENSORS 4

struct reader {
	const struct gguf *g;
	const struct arch *arch;
	struct hparams *h;
	bool *used; /* [n_tensors]: some field took it, or a part of it */
	struct lap_error *err;
};

#define BAD(r, format, ...) fail((r)->err, LAP_BAD_MODEL, "%s: " format, (r)->g->path, __VA_ARGS__)

typedef unsigned long long ull; /* what printf's %llu takes */

/* ---- hyperparameters --------------------------------------------------------------------------- */

/* An array with an integer for each layer; *out is the largest. */
static enum lap_status read_array(const struct reader *r, const struct gguf_kv *kv, uint32_t *out)
{
	bool integers = kv->element != GGUF_F32 && kv->element != GGUF_F64 &&
		kv->element != GGUF_BOOL && kv->element != GGUF_STRING;
	if (!integers || kv->n == 0 || kv->n != r->h->n_layer)
		return BAD(r,
			"%s is an array of %llu %s, expected an integer, or one for each layer",
			kv->key, (ull)kv->n, integers ? "integers" : "values that are no integers");
	*out = 0;
	for (uint64_t i = 0; i < kv->n; i++) {
		double value = gguf_number(kv, i);
		if (value < 0 || value > UINT32_MAX)
			return BAD(r, "%s is %.0f, expected 0 to %u", kv->key, value, UINT32_MAX);
		if (value > *out)
			*out = (uint32_t)value;
	}
	return LAP_OK;
}

static enum lap_status read_layers(const struct reader *r, const char *key, uint32_t *out)
{
	const struct gguf_kv *kv = gguf_find(r->g, key);
	if (kv && kv->type == GGUF_ARRAY)
		return read_array(r, kv, out);
	return gguf_u32(r->g, key, out, r->err);
}

/* What no layer may have for itself. */
static enum lap_status read_u32(const struct reader *r, const char *key, uint32_t *out)
{
	const struct gguf_kv *kv = gguf_find(r->g, key);
	enum lap_status status = read_layers(r, key, out);
	for (uint64_t i = 1; kv && kv->type == GGUF_ARRAY && i < kv->n && !status; i++)
		if (gguf_number(kv, i) != gguf_number(kv, 0))
			status = BAD(r,
				"%s is %.0f for layer 0 and %.0f for layer %llu: layers that "
				"differ in it are not supported yet",
				key, gguf_number(kv, 0), gguf_number(kv, i), (ull)i);
	return status;
}

/* A number; or for each layer whether it has a window, and *out stays as it was. */
static enum lap_status read_pattern(const struct reader *r, const char *key, uint32_t *out)
{
	const struct gguf_kv *kv = gguf_find(r->g, key);
	if (!kv || kv->type != GGUF_ARRAY)
		return gguf_u32(r->g, key, out, r->err);
	if (kv->element == GGUF_BOOL && kv->n == r->h->n_layer)
		return LAP_OK;
	return BAD(r, "%s is an array of %llu %s, expected a bool for each of the %u layers", key,
		(ull)kv->n, kv->element == GGUF_BOOL ? "bools" : "values that are no bools",
		r->h->n_layer);
}

static enum lap_status read_f32(const struct reader *r, const char *key, float *out)
{
	return gguf_f32(r->g, key, out, r->err);
}

static void make_key(const struct reader *r, char key[MAX_NAME], const char *name)
{
	snprintf(key, MAX_NAME, "%s.%s", r->arch->name, name);
}

static enum lap_status check_present(const struct reader *r, const char *key)
{
	return gguf_find(r->g, key) ? LAP_OK : BAD(r, "the key %s is missing", key);
}

static enum lap_status read_required(const struct reader *r)
{
	struct hparams *h = r->h;
	enum lap_status status = LAP_OK;
	char key[MAX_NAME];
#define REQUIRED(field, kind, name)                      \
	if (!status) {                                   \
		make_key(r, key, name);                  \
		status = check_present(r, key);          \
	}                                                \
	if (!status)                                     \
		status = read_##kind(r, key, &h->field); \
	if (!status && h->field == 0)                    \
		status = BAD(r, "%s is 0, expected at least 1", key);
#include "model.def"
	return status;
}

/* 1 / sqrt(head_dim); the 27B models of gemma2 (46 layers) and gemma3 (62) take the width of the
 * embedding by head instead, which no key says. */
static float default_attn_scale(const struct arch *arch, const struct hparams *h)
{
	if (arch->flags & ARCH_ATTN_UNSCALED)
		return 1;
	bool by_width = arch->flags & ARCH_EMBD_SQRT && arch->flags & ARCH_POST_NORM &&
		(h->n_layer == 46 || h->n_layer == 62);
	return 1 / sqrtf(by_width ? (float)(h->n_embd / h->n_head) : (float)h->head_dim);
}

/* Needs the required ones, none of them 0. */
static enum lap_status read_optional(const struct reader *r)
{
	const struct arch *arch = r->arch;
	struct hparams *h = r->h;
	enum lap_status status = LAP_OK;
	char key[MAX_NAME];
#define OPTIONAL(field, kind, name, fallback)            \
	if (!status) {                                   \
		make_key(r, key, name);                  \
		h->field = fallback;                     \
		status = read_##kind(r, key, &h->field); \
	}
#include "model.def"
	return status;
}

static bool string_is(struct gguf_string s, const char *word)
{
	return s.n == strlen(word) && memcmp(s.data, word, (size_t)s.n) == 0;
}

/* Files without a type but with a factor mean linear scaling; so do old files, by another key. */
static enum lap_status read_rope_scaling(const struct reader *r)
{
	static const char *const names[] = {[ROPE_SCALING_NONE] = "none",
		[ROPE_SCALING_LINEAR] = "linear",
		[ROPE_SCALING_YARN] = "yarn",
		[ROPE_SCALING_LONG] = "longrope"};
	struct hparams *h = r->h;
	char key[MAX_NAME], shown[GGUF_SHOW_BYTES];
	make_key(r, key, "rope.scaling.factor");
	bool has_factor = gguf_find(r->g, key);
	enum lap_status status = LAP_OK;
	if (!has_factor) {
		make_key(r, key, "rope.scale_linear");
		status = gguf_f32(r->g, key, &h->rope_scale, r->err);
	}
	if (status)
		return status;
	if (h->rope_scale == 0) /* written by converters for "no scaling" */
		h->rope_scale = 1;
	struct gguf_string type = {"linear", strlen("linear")};
	make_key(r, key, "rope.scaling.type");
	status = gguf_string(r->g, key, &type, r->err);
	if (status)
		return status;
	size_t i = 0;
	while (i < ARRAY_COUNT(names) && !string_is(type, names[i]))
		i++;
	if (i == ARRAY_COUNT(names))
		return BAD(r, "%s is \"%s\", supported are none, linear, yarn and longrope", key,
			gguf_show(type, shown));
	h->rope_scaling = (enum rope_scaling)i;
	if (h->rope_scaling == ROPE_SCALING_LINEAR && h->rope_scale == 1)
		h->rope_scaling = ROPE_SCALING_NONE;
	if (h->rope_scaling == ROPE_SCALING_NONE &&
		gguf_find_tensor(r->g, "rope_factors_long.weight")) /* files that name no type */
		h->rope_scaling = ROPE_SCALING_LONG;
	if (h->rope_scaling == ROPE_SCALING_NONE || h->rope_scaling == ROPE_SCALING_LONG)
		h->rope_scale = 1;
	return LAP_OK;
}

/* A float that is divided by, or multiplied with, all the way through. */
static enum lap_status check_positive(const struct reader *r, const char *name, float value)
{
	if (isfinite(value) && value > 0)
		return LAP_OK;
	return BAD(r, "%s.%s is %g, expected a number above 0", r->arch->name, name, (double)value);
}

static enum lap_status check_floats(const struct reader *r)
{
	const struct hparams *h = r->h;
	const struct {
		const char *name;
		float value;
	} floats[] = {
		{"attention.layer_norm_rms_epsilon", h->rms_eps},
		{"attention.layer_norm_epsilon", h->norm_eps},
		{"attention.scale", h->attn_scale},
		{"embedding_scale", h->embd_scale},
		{"residual_scale", h->residual_scale},
		{"logit_scale", h->logit_scale},
		{"rope.freq_base", h->rope_theta},
		{"rope.freq_base_swa", h->rope_theta_swa},
		{"rope.scaling.factor", h->rope_scale},
		{"rope.scaling.attn_factor", h->rope_attn_factor},
		{"rope.scaling.yarn_beta_fast", h->yarn_beta_fast},
		{"rope.scaling.yarn_beta_slow", h->yarn_beta_slow},
	};
	const struct {
		const char *name;
		float value;
	} optional[] = {
		{"attn_logit_softcapping", h->attn_softcap},
		{"final_logit_softcapping", h->logit_softcap},
		{"attention.temperature_scale", h->q_scale},
	};
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(floats) && !status; i++)
		status = check_positive(r, floats[i].name, floats[i].value);
	for (size_t i = 0; i < ARRAY_COUNT(optional) && !status; i++)
		if (optional[i].value != 0) /* 0: off */
			status = check_positive(r, optional[i].name, optional[i].value);
	return status;
}

static enum lap_status check_experts(const struct reader *r)
{
	const struct hparams *h = r->h;
	const char *arch = r->arch->name;
	if (h->n_expert == 0)
		return LAP_OK;
	if (h->n_expert > MAX_EXPERTS)
		return BAD(r, "%s.expert_count is %u, expected at most %d", arch, h->n_expert,
			MAX_EXPERTS);
	uint32_t most = h->n_expert < MAX_EXPERTS_USED ? h->n_expert : MAX_EXPERTS_USED;
	if (h->n_expert_used == 0 || h->n_expert_used > most)
		return BAD(r, "%s.expert_used_count is %u, expected 1 to %u", arch,
			h->n_expert_used, most);
	if (h->n_ff_expert == 0)
		return BAD(r, "%s.expert_feed_forward_length is 0, expected at least 1", arch);
	return LAP_OK;
}

/* The heads of layers with a window, or of those without. */
static enum lap_status check_heads(const struct reader *r, bool window)
{
	const struct hparams *h = r->h;
	const char *arch = r->arch->name, *suffix = window ? "_swa" : "";
	const uint32_t head_dim = window ? h->head_dim_swa : h->head_dim;
	const uint32_t head_dim_v = window ? h->head_dim_v_swa : h->head_dim_v;
	const uint32_t n_rot = window ? h->n_rot_swa : h->n_rot;
	if (head_dim == 0 || head_dim % 2 || head_dim > MAX_HEAD_DIM)
		return BAD(r, "heads have %u elements, expected an even number from 2 to %d",
			head_dim, MAX_HEAD_DIM);
	if (head_dim_v != head_dim)
		return BAD(r,
			"%s.attention.value_length%s is %u, expected %u as for keys: others are "
			"not supported yet",
			arch, suffix, head_dim_v, head_dim);
	if (n_rot == 0 || n_rot % 2 || n_rot > head_dim)
		return BAD(r,
			"%s.rope.dimension_count%s is %u, expected an even number from 2 to %u",
			arch, suffix, n_rot, head_dim);
	if (h->n_head > UINT32_MAX / head_dim)
		return BAD(r, "%u heads of %u elements, expected a product below 2^32", h->n_head,
			head_dim);
	return LAP_OK;
}

static enum lap_status check_taps(const struct reader *r, const char *name, uint32_t n_taps)
{
	if (n_taps >= 2 && n_taps <= MAX_TAPS)
		return LAP_OK;
	return BAD(r, "%s.%s is %u, expected 2 to %d", r->arch->name, name, n_taps, MAX_TAPS);
}

/* What kernels of recurrent layers rely on; rows are read in fours. */
static enum lap_status check_recurrent(const struct reader *r)
{
	const struct hparams *h = r->h;
	const char *arch = r->arch->name;
	if (r->arch->flags & ARCH_SHORT_CONV) {
		if (h->n_embd % 4 || h->n_embd > UINT32_MAX / 4)
			return BAD(r,
				"%s.embedding_length is %u, expected a multiple of 4 below 2^30",
				arch, h->n_embd);
		return check_taps(r, "shortconv.l_cache", h->conv_taps);
	}
	if (!(r->arch->flags & ARCH_DELTA_NET))
		return LAP_OK;
	if (h->full_attn_every == 0)
		return BAD(r, "%s.full_attention_interval is %u, expected at least 1", arch, 0);
	if (h->delta_groups == 0 || h->delta_heads == 0 || h->delta_heads % h->delta_groups)
		return BAD(r,
			"%s.ssm.time_step_rank is %u, expected a multiple of the %u groups of "
			"%s.ssm.group_count",
			arch, h->delta_heads, h->delta_groups, arch);
	if (h->delta_dim == 0 || h->delta_dim % 4 || h->delta_dim > MAX_STATE_DIM)
		return BAD(r, "%s.ssm.state_size is %u, expected a multiple of 4 from 4 to %d",
			arch, h->delta_dim, MAX_STATE_DIM);
	const uint32_t dim_v = h->delta_inner / h->delta_heads;
	if (h->delta_inner % h->delta_heads || dim_v == 0 || dim_v % 4 || dim_v > MAX_STATE_DIM)
		return BAD(r,
			"%s.ssm.inner_size is %u, expected for each of the %u heads a multiple of "
			"4 from 4 to %d",
			arch, h->delta_inner, h->delta_heads, MAX_STATE_DIM);
	if (h->delta_heads > UINT32_MAX / (4 * MAX_STATE_DIM))
		return BAD(r, "%s.ssm.time_step_rank is %u, expected at most %u", arch,
			h->delta_heads, UINT32_MAX / (4 * MAX_STATE_DIM));
	return check_taps(r, "ssm.conv_kernel", h->delta_taps);
}

static enum lap_status check_hparams(const struct reader *r)
{
	const struct hparams *h = r->h;
	const char *arch = r->arch->name;
	if (h->n_layer > r->g->n_tensors / MIN_LAYER_TENSORS)
		return BAD(r,
			"%s.block_count is %u, but the file has %llu tensors for them all, "
			"expected "
			"at least %d for each",
			arch, h->n_layer, (ull)r->g->n_tensors, MIN_LAYER_TENSORS);
	if (h->n_ctx_train == 0 || h->rope_ctx_train == 0)
		return BAD(r, "%s.%s is 0, expected at least 1", arch,
			h->n_ctx_train ? "rope.scaling.original_context_length" : "context_length");
	if (h->n_kv_shared >= h->n_layer)
		return BAD(r, "%s.attention.shared_kv_layers is %u, expected less than %u layers",
			arch, h->n_kv_shared, h->n_layer);
	if (h->n_embd_layer > UINT32_MAX / h->n_layer)
		return BAD(r, "%s.embedding_length_per_layer_input is %u for %u layers", arch,
			h->n_embd_layer, h->n_layer);
	if (r->arch->full_every && h->n_swa && h->full_every == 0)
		return BAD(r, "%s.attention.sliding_window_pattern is %u, expected at least 1",
			arch, 0);
	enum lap_status status = check_heads(r, false);
	if (!status)
		status = check_heads(r, true);
	if (!status)
		status = check_experts(r);
	if (!status)
		status = check_recurrent(r);
	return status ? status : check_floats(r);
}

/* block_count counts layers that guess further tokens (multi-token prediction, DeepSeek-AI 2024); they stand
 * behind the others and no step needs them. */
static enum lap_status leave_out_nextn(const struct reader *r)
{
	struct hparams *h = r->h;
	if (h->n_nextn >= h->n_layer)
		return BAD(r, "%s.nextn_predict_layers is %u, expected less than the %u layers",
			r->arch->name, h->n_nextn, h->n_layer);
	h->n_layer -= h->n_nextn;
	return LAP_OK;
}

static enum lap_status read_hparams(const struct reader *r)
{
	enum lap_status status = read_required(r);
	if (!status)
		status = read_optional(r);
	if (!status)
		status = leave_out_nextn(r);
	if (!status)
		status = read_rope_scaling(r);
	if (!status)
		status = check_hparams(r);
	return status;
}

/* ---- layers ------------------------------------------------------------------------------------ */

/* The layer's value of a key that may be an array; `value` where it is none. */
static uint32_t of_layer(const struct reader *r, const char *name, uint32_t il, uint32_t value)
{
	char key[MAX_NAME];
	make_key(r, key, name);
	const struct gguf_kv *kv = gguf_find(r->g, key);
	return kv && kv->type == GGUF_ARRAY ? (uint32_t)gguf_number(kv, il) : value;
}

static bool has_window(const struct reader *r, uint32_t il)
{
	if (!r->arch->full_every || !r->h->n_swa)
		return false;
	bool by_number = r->h->full_every && (il + 1) % r->h->full_every != 0;
	return of_layer(r, "attention.sliding_window_pattern", il, by_number);
}

/* What mixes the layer's positions; the one place that decides it. */
static enum mixer layer_mixer(const struct reader *r, uint32_t il)
{
	const uint32_t flags = r->arch->flags;
	if (flags & ARCH_SHORT_CONV &&
		of_layer(r, "attention.head_count_kv", il, r->h->n_head_kv) == 0)
		return MIXER_CONV;
	const bool by_number = (il + 1) % r->h->full_attn_every != 0;
	if (flags & ARCH_DELTA_NET && of_layer(r, "attention.recurrent_layers", il, by_number))
		return MIXER_DELTA;
	return MIXER_ATTENTION;
}

/* Windows, ropes, and what else changes from layer to layer. */
static enum lap_status shape_layer(const struct reader *r, uint32_t il, struct layer *l)
{
	const struct hparams *h = r->h;
	const struct arch *arch = r->arch;
	const bool window = has_window(r, il);
	const bool local = window && arch->flags & ARCH_LOCAL_ROPE;
	const bool turns = arch->rope != ARCH_ROPE_NONE &&
		!(arch->no_rope_every && (il + 1) % arch->no_rope_every == 0);
	l->mixer = layer_mixer(r, il);
	l->kv_layer = il;
	l->window = window ? h->n_swa : 0;
	l->rope = !turns ? LAYER_ROPE_NONE : local ? LAYER_ROPE_LOCAL : LAYER_ROPE_MODEL;
	l->n_head_kv = of_layer(r, "attention.head_count_kv", il, h->n_head_kv);
	l->head_dim = window ? h->head_dim_swa : h->head_dim;
	l->n_rot = local ? h->n_rot_swa : h->n_rot;
	l->n_ff = of_layer(r, "feed_forward_length", il, h->n_ff);
	if (l->n_ff == 0)
		return BAD(r, "%s.feed_forward_length is 0 for layer %u, expected at least 1",
			arch->name, il);
	if (!attends(l)) {
		l->kv_layer = UINT32_MAX;
		l->rope = LAYER_ROPE_NONE;
		l->n_head_kv = l->head_dim = l->n_rot = 0;
		return LAP_OK;
	}
	l->q_gated = arch->flags & ARCH_Q_GATE;
	if (l->n_head_kv == 0 || h->n_head % l->n_head_kv)
		return BAD(r,
			"%s.attention.head_count_kv is %u, expected a divisor of the %u heads",
			arch->name, l->n_head_kv, h->n_head);
	if (l->n_rot > l->head_dim)
		return BAD(r,
			"%s.rope.dimension_count is %u, but heads of layer %u have %u elements",
			arch->name, l->n_rot, il, l->head_dim);
	return LAP_OK;
}

/* The last n_kv_shared layers look at the keys and values of the last layer before them that has a window
 * as they have, or none as they have. */
static enum lap_status share_kv(const struct reader *r, struct layer *layers, uint32_t il)
{
	uint32_t from = r->h->n_layer - r->h->n_kv_shared;
	while (from > 0 &&
		(!attends(&layers[from - 1]) || layers[from - 1].window != layers[il].window))
		from--;
	if (from == 0)
		return BAD(r,
			"layer %u looks at the keys of an earlier layer %s a window, but none of "
			"the first %u is one",
			il, layers[il].window ? "with" : "without",
			r->h->n_layer - r->h->n_kv_shared);
	layers[il].kv_layer = from - 1;
	if (layers[il].n_head_kv != layers[from - 1].n_head_kv)
		return BAD(r, "layer %u has %u KV heads, but looks at the %u of layer %u", il,
			layers[il].n_head_kv, layers[from - 1].n_head_kv, from - 1);
	return LAP_OK;
}

static enum lap_status shape_layers(const struct reader *r, struct model *m)
{
	enum lap_status status = LAP_OK;
	m->layers = array_alloc(m->h.n_layer, sizeof *m->layers);
	if (!m->layers)
		return fail_memory(r->err, "layers", m->h.n_layer * (uint64_t)sizeof *m->layers);
	for (uint32_t il = 0; il < m->h.n_layer && !status; il++)
		status = shape_layer(r, il, &m->layers[il]);
	for (uint32_t il = m->h.n_layer - m->h.n_kv_shared; il < m->h.n_layer && !status; il++)
		status = share_kv(r, m->layers, il);
	return status;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

/* What a row of model.def asks for. */
struct wanted {
	const char *
		name; /* with a dot it is whole ("attn_q.bias"; one at its end is no part of it), else
		         it stands for its ".weight" */
	uint32_t n_rows, n_cols;
	uint32_t n_experts; /* 0: a matrix, or a vector where n_rows is 1 */
	bool needed;
};

/* Rows (of a vector: elements) of another tensor that a field may be. */
struct part {
	size_t field; /* offset in struct layer */
	const char *holder;
	uint32_t first, total;
	bool when;
};

static void make_name(char name[MAX_NAME], const char *prefix, const char *row)
{
	const size_t n = strlen(row);
	const bool bare = n && row[n - 1] == '.';
	snprintf(name, MAX_NAME, "%s%.*s%s", prefix, (int)(bare ? n - 1 : n), row,
		strchr(row, '.') ? "" : ".weight");
}

static const struct gguf_tensor *use_tensor(const struct reader *r, const char *name)
{
	const struct gguf_tensor *t = gguf_find_tensor(r->g, name);
	if (t)
		r->used[t - r->g->tensors] = true;
	return t;
}

static enum lap_status refuse_shape(
	const struct reader *r, const struct gguf_tensor *t, const struct wanted *w)
{
	char found[128] = "", expected[128];
	for (uint32_t i = t->n_dims; i-- > 0;)
		snprintf(found + strlen(found), sizeof found - strlen(found), "%s%llu",
			i + 1 == t->n_dims ? "" : ", ", (ull)t->dims[i]);
	if (w->n_experts)
		snprintf(expected, sizeof expected, "%u, %u, %u", w->n_experts, w->n_rows,
			w->n_cols);
	else if (w->n_rows == 1)
		snprintf(expected, sizeof expected, "%u", w->n_cols);
	else
		snprintf(expected, sizeof expected, "%u, %u", w->n_rows, w->n_cols);
	return BAD(r, "%s is [%s], expected [%s]", t->name, found, expected);
}

static enum lap_status read_tensor(
	const struct reader *r, const char *prefix, const struct wanted *w, struct tensor *out)
{
	char name[MAX_NAME];
	make_name(name, prefix, w->name);
	const struct gguf_tensor *t = use_tensor(r, name);
	if (!t)
		return w->needed ? BAD(r, "the tensor %s is missing", name) : LAP_OK;
	uint64_t n_experts = w->n_experts ? w->n_experts : 1, n_rows;
	if (t->dims[0] != w->n_cols || t->dims[1] != w->n_rows || t->dims[2] != n_experts ||
		t->dims[3] != 1)
		return refuse_shape(r, t, w);
	if (!size_mul(n_experts, w->n_rows, &n_rows) || n_rows > UINT32_MAX)
		return BAD(r, "%s has %llu rows, expected less than 2^32", name, (ull)n_rows);
	if ((n_rows == 1 || w->n_cols <= MAX_TAPS) && t->weight != WEIGHT_f32)
		return BAD(r, "%s is %s, expected F32, as all vectors and filters", name,
			weight_format(t->weight)->label);
	*out = (struct tensor){.name = t->name,
		.weight = t->weight,
		.n_rows = (uint32_t)n_rows,
		.n_cols = w->n_cols,
		.n_experts = w->n_experts,
		.data = t->data,
		.n_bytes = t->n_bytes};
	return LAP_OK;
}

/* True when the holder is there in the size that holds the field as a part: *out is that part. */
static bool read_part(const struct reader *r, const char *prefix, const struct wanted *w,
	const struct part *part, struct tensor *out)
{
	char name[MAX_NAME];
	make_name(name, prefix, part->holder);
	const struct gguf_tensor *t = part->when ? gguf_find_tensor(r->g, name) : NULL;
	bool vector = w->n_rows == 1;
	if (!t || t->dims[2] != 1 || t->dims[vector ? 0 : 1] != part->total ||
		(vector ? t->n_dims != 1 || t->weight != WEIGHT_f32 : t->dims[0] != w->n_cols))
		return false;
	uint64_t unit = vector ? sizeof(float) : t->n_bytes / part->total;
	use_tensor(r, name);
	*out = (struct tensor){.name = t->name,
		.weight = t->weight,
		.n_rows = w->n_rows,
		.n_cols = w->n_cols,
		.data = t->data + part->first * unit,
		.n_bytes = (vector ? w->n_cols : w->n_rows) * unit};
	return true;
}

/* The embedding has the last word on the size of the vocabulary; the tokens must agree with it. */
static enum lap_status read_n_vocab(const struct reader *r)
{
	static const char tokens_key[] = "tokenizer.ggml.tokens";
	const struct gguf_tensor *embd = gguf_find_tensor(r->g, "token_embd.weight");
	const struct gguf_kv *tokens = gguf_find(r->g, tokens_key);
	if (!embd)
		return BAD(r, "the tensor %s is missing", "token_embd.weight");
	if (embd->dims[1] > INT32_MAX)
		return BAD(r, "%s has %llu rows, expected at most %d", embd->name,
			(ull)embd->dims[1], INT32_MAX);
	r->h->n_vocab = (uint32_t)embd->dims[1];
	if (tokens && tokens->n != r->h->n_vocab)
		return BAD(r, "%s has %llu tokens, expected %u, the rows of %s", tokens_key,
			(ull)tokens->n, r->h->n_vocab, embd->name);
	return LAP_OK;
}

/* The parts of model.def for this layer. */
static size_t list_parts(const struct reader *r, const struct layer *l, struct part parts[16])
{
	const struct hparams *h = r->h;
	const struct arch *arch = r->arch;
	size_t n = 0;
#define PART(field, holder, first, total, when) \
	parts[n++] =                            \
		(struct part){offsetof(struct layer, field), holder, first, total, (when) != 0};
#include "model.def"
	(void)h, (void)arch;
	return n;
}

static enum lap_status read_layer_tensor(const struct reader *r, const char *prefix,
	const struct wanted *w, struct layer *l, size_t field)
{
	struct part parts[16];
	struct tensor *out = (struct tensor *)(void *)((char *)l + field);
	if (!w->name)
		return LAP_OK;
	size_t n = list_parts(r, l, parts);
	for (size_t i = 0; i < n; i++)
		if (parts[i].field == field && read_part(r, prefix, w, &parts[i], out))
			return LAP_OK;
	return read_tensor(r, prefix, w, out);
}

/* Layers whose experts, if any, are not all of its FFN. */
static bool has_dense(const struct arch *arch, const struct layer *l)
{
	return !l->ffn_gate_inp.data || arch->flags & ARCH_DENSE_BESIDE;
}

static enum lap_status read_layer(const struct reader *r, uint32_t il, struct layer *l)
{
	const struct hparams *h = r->h;
	const struct arch *arch = r->arch;
	enum lap_status status = LAP_OK;
	char prefix[32];
	snprintf(prefix, sizeof prefix, "blk.%u.", il);
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed)                                    \
	if (!status) {                                                                       \
		struct wanted w = {name, n_rows, n_cols, 0, (needed) != 0};                  \
		status = read_layer_tensor(r, prefix, &w, l, offsetof(struct layer, field)); \
	}
#define LAYER_EXPERTS(field, name, n_rows, n_cols, needed)                                   \
	if (!status) {                                                                       \
		struct wanted w = {name, n_rows, n_cols, h->n_expert, (needed) != 0};        \
		status = read_layer_tensor(r, prefix, &w, l, offsetof(struct layer, field)); \
	}
#include "model.def"
	l->experts = l->ffn_gate_inp.data != NULL;
	if (l->kv_layer != il) /* some files have them all the same */
		l->attn_k = l->attn_v = l->attn_k_norm = l->none;
	return status;
}

static enum lap_status read_tensors(const struct reader *r, struct model *m)
{
	const struct hparams *h = r->h;
	const struct arch *arch = r->arch;
	enum lap_status status = read_n_vocab(r);
#define TENSOR(field, name, n_rows, n_cols, needed)                         \
	if (!status) {                                                      \
		struct wanted w = {name, n_rows, n_cols, 0, (needed) != 0}; \
		status = read_tensor(r, "", &w, &m->field);                 \
	}
#include "model.def"
	if (status)
		return status;
	m->tied_output = !m->output.data;
	if (m->tied_output)
		m->output = m->token_embd;
	for (uint32_t il = 0; il < h->n_layer && !status; il++)
		status = read_layer(r, il, &m->layers[il]);
	return status;
}

/* ---- the model --------------------------------------------------------------------------------- */

enum lap_status model_check_kind(const struct gguf *g, struct lap_error *err)
{
	static const struct {
		const char *key, *value, *kind;
	} kinds[] = {
		{"general.type", "mmproj",
			"the part of a model that sees or hears (mmproj), expected the language "
			"model "
			"beside it"},
		{"general.architecture", "clip",
			"the part of a model that sees or hears (mmproj), expected the language "
			"model "
			"beside it"},
		{"general.type", "adapter",
			"an adapter (LoRA), expected the language model that it changes: merge the "
			"two, adapters are not supported yet"},
		{"general.architecture", "controlvector",
			"a control vector, expected the language model that it steers"},
		{"general.type", "imatrix",
			"an importance matrix (imatrix), expected the language model that it was "
			"measured on"},
	};
	const struct reader r = {.g = g, .err = err};
	for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
		struct gguf_string value = {0};
		if (!gguf_string(g, kinds[i].key, &value, NULL) && string_is(value, kinds[i].value))
			return BAD(&r, "this is %s", kinds[i].kind);
	}
	return LAP_OK;
}

static enum lap_status check_weights(const struct reader *r)
{
	if (r->g->n_tensors == 0 && gguf_find(r->g, "tokenizer.ggml.model"))
		return BAD(r, "%s",
			"this is a vocabulary alone: text can be turned into tokens with it, but "
			"it "
			"has no weights");
	return LAP_OK;
}

static enum lap_status read_arch(struct reader *r)
{
	static const char key[] = "general.architecture";
	struct gguf_string name = {0};
	char shown[GGUF_SHOW_BYTES];
	enum lap_status status = model_check_kind(r->g, r->err);
	if (!status)
		status = check_weights(r);
	if (!status)
		status = check_present(r, key);
	if (!status)
		status = gguf_string(r->g, key, &name, r->err);
	if (status)
		return status;
	r->arch = arch_find(name.data, (size_t)name.n);
	if (!r->arch)
		return BAD(r, "the architecture \"%s\" is not supported, supported are %s",
			gguf_show(name, shown), arch_list());
	return LAP_OK;
}

static void note_unused(const struct reader *r, struct model *m)
{
	for (uint64_t i = r->g->n_tensors; i-- > 0;)
		if (!r->used[i]) {
			m->n_unused++;
			m->unused = r->g->tensors[i].name;
		}
}

enum lap_status model_create(const struct gguf *gguf, struct model **model, struct lap_error *err)
{
	*model = NULL;
	struct model *m = array_alloc(1, sizeof *m);
	if (!m)
		return fail_memory(err, "a model", sizeof *m);
	struct reader r = {.g = gguf, .h = &m->h, .err = err};
	r.used = array_alloc(gguf->n_tensors, sizeof *r.used);
	enum lap_status status =
		r.used ? read_arch(&r) : fail_memory(err, "tensors", gguf->n_tensors);
	m->arch = r.arch;
	if (!status)
		status = read_hparams(&r);
	if (!status)
		status = shape_layers(&r, m);
	if (!status)
		status = read_tensors(&r, m);
	if (status)
		model_destroy(m);
	else {
		note_unused(&r, m);
		*model = m;
	}
	free(r.used);
	return status;
}

void model_destroy(struct model *m)
{
	if (!m)
		return;
	free(m->layers);
	free(m);
}
