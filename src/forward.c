/* The forward pass of decoder-only transformers, in the order of the papers: see forward.h.
 *
 * What differs between architectures is read from flags, hyperparameters and the presence of
 * tensors; a new function appears only where a new operation does. */
#include "forward.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* Layers' own inputs are a sum of two, which is kept at the length of one. */
#define LAYER_INPUT_SCALE 0.70710678118654752440f

static_assert((int)ARCH_ACTIVATION_SILU == ACTIVATION_SILU &&
		(int)ARCH_ACTIVATION_GELU == ACTIVATION_GELU &&
		(int)ARCH_ACTIVATION_SWIGLU == ACTIVATION_SWIGLU,
	"kernels number activations as architectures do");

struct qkv_layout qkv_layout(const struct hparams *h, const struct layer *l)
{
	struct qkv_layout at;
	at.k = ROW_STRIDE(q_rows(h, l));
	at.v = at.k + ROW_STRIDE(n_kv(l));
	at.stride = at.v + ROW_STRIDE(n_kv(l));
	return at;
}

struct merged_parts merged_parts(const struct layer *l, enum merged which)
{
	switch (which) {
#define MERGED(field, a, b, c) \
	case MERGED_##field:   \
		return (struct merged_parts){#field, {&l->a, &l->b, &l->c}};
#include "model.def"
	case N_MERGED:
		break;
	}
	assert(false);
	return (struct merged_parts){NULL, {&l->none, &l->none, &l->none}};
}

/* Matrices of one format whose outputs begin where a buffer may be bound: one product computes them all. */
static bool same_product(const struct merged_parts *p)
{
	const struct tensor *first = p->parts[0];
	for (size_t i = 0; i < ARRAY_COUNT(p->parts) && p->parts[i]->data; i++)
		if (p->parts[i]->weight != first->weight || p->parts[i]->n_cols != first->n_cols ||
			p->parts[i]->n_rows % ROW_ALIGN)
			return false;
	return first->data != NULL;
}

/* Norms of each head, which rope_kv computes; wider ones are ops of their own. */
static bool has_head_norms(const struct arch *arch)
{
	return (arch->flags & ARCH_QK_NORM) && !(arch->flags & ARCH_QK_NORM_WIDE) &&
		arch->norm == ARCH_NORM_RMS;
}

bool layer_merges(const struct model *m, const struct layer *l, enum merged which, bool copies)
{
	const struct merged_parts parts = merged_parts(l, which);
	const int n_bias = (l->attn_q_bias.data != NULL) + (l->attn_k_bias.data != NULL) +
		(l->attn_v_bias.data != NULL);
	const bool wide_norms = (m->arch->flags & ARCH_QK_NORM) && !has_head_norms(m->arch);
	switch (which) {
	case MERGED_attn_qkv:
		return copies && l->attn_k.data && same_product(&parts) && n_bias % 3 == 0 &&
			!wide_norms;
	case MERGED_attn_qkv_bias:
		return n_bias == 3 && layer_merges(m, l, MERGED_attn_qkv, copies);
	case MERGED_attn_qk_norm:
		return has_head_norms(m->arch) && l->attn_q_norm.data;
	case MERGED_ffn_gate_up:
		return copies && l->ffn_gate.data && same_product(&parts) &&
			!l->ffn_gate_bias.data && !l->ffn_up_bias.data;
	case MERGED_delta_qkv_z:
		return copies && same_product(&parts);
	case MERGED_delta_gates: /* their outputs are found by a number, not bound */
		return copies && l->delta_alpha.data &&
			l->delta_alpha.weight == l->delta_beta.weight;
	case MERGED_delta_dt_a:
		return l->delta_dt.data != NULL;
	case N_MERGED:
		break;
	}
	return false;
}

/* ---- recurrent layers: their shapes ---- */

static struct conv conv_of(const struct hparams *h, const struct layer *l)
{
	if (l->mixer == MIXER_CONV)
		return (struct conv){.n_channels = h->n_embd,
			.n_taps = h->conv_taps,
			.x = 2 * h->n_embd,
			.gate_in = 0,
			.gate_out = h->n_embd};
	return (struct conv){.n_channels = delta_channels(h),
		.n_taps = h->delta_taps,
		.gate_in = CONV_NONE,
		.gate_out = CONV_NONE,
		.silu = true};
}

static struct delta delta_of(const struct hparams *h)
{
	return (struct delta){.n_group = h->delta_groups,
		.n_head = h->delta_heads,
		.dk = h->delta_dim,
		.dv = delta_dim_v(h),
		.eps = h->rms_eps};
}

struct layer_state_bytes layer_state_bytes(const struct model *m, uint32_t il)
{
	const struct layer *l = &m->layers[il];
	struct layer_state_bytes n = {0};
	if (l->mixer == MIXER_ATTENTION)
		return n;
	const struct conv conv = conv_of(&m->h, l);
	const struct delta delta = delta_of(&m->h);
	n.conv = conv_block_bytes(conv.n_channels, conv.n_taps);
	n.start = (uint64_t)(conv.n_taps - 1) * conv.n_channels * sizeof(float);
	if (l->mixer == MIXER_DELTA) {
		n.delta = delta_block_bytes(&delta);
		n.start += (uint64_t)delta.n_head * delta.dk * delta.dv * sizeof(float);
	}
	return n;
}

static bool has_mixer(const struct model *m, enum mixer mixer)
{
	for (uint32_t il = 0; il < m->h.n_layer; il++)
		if (m->layers[il].mixer == mixer)
			return true;
	return false;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t q8_columns(const struct tensor *t)
{
	return t->data && !t->n_experts && weight_format(t->weight)->integers ? t->n_cols : 0;
}

uint32_t forward_q8_columns(const struct model *m)
{
	uint32_t n = larger(q8_columns(&m->output), q8_columns(&m->layer_proj));
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
		const struct layer *l = &m->layers[il];
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) n = larger(n, q8_columns(&l->field));
#include "model.def"
	}
	return n;
}

void activations_shape(
	struct activations *a, const struct model *m, struct activation_shape list[N_ACTIVATIONS])
{
	const struct hparams *h = &m->h;
	const uint32_t flags = m->arch->flags;
	uint32_t n_qkv = 0, n_q_max = 0, n_ff = 0;
	for (uint32_t il = 0; il < h->n_layer; il++) {
		const struct layer *l = &m->layers[il];
		n_qkv = larger(n_qkv, qkv_layout(h, l).stride);
		n_q_max = larger(n_q_max, n_q(h, l));
		n_ff = larger(n_ff, l->ffn_down.data ? l->n_ff : 0);
	}
	const bool conv = has_mixer(m, MIXER_CONV), delta = has_mixer(m, MIXER_DELTA);
	const uint32_t n_inner = delta ? h->delta_inner : 0;
	const uint32_t n_channels = conv ? h->n_embd : delta ? delta_channels(h) : 0;
	const uint32_t n_mix = conv ? 3 * h->n_embd : delta ? ROW_STRIDE(n_channels) + n_inner : 0;
	const uint32_t n_ff_exps = h->n_expert ? h->n_ff_expert : 0;
	const uint32_t n_ff_shexp = h->n_expert ? h->n_ff_shared : 0, n_used = h->n_expert_used;
	const bool shared = n_ff_shexp || (h->n_expert && flags & ARCH_DENSE_BESIDE);
	const uint32_t n_own = h->n_embd_layer, n_layer_in = h->n_layer * n_own;
	const struct {
		struct rows *rows;
		uint32_t n, per_row;
		const char *name;
	} all[N_ACTIVATIONS] = {
		{&a->x, h->n_embd, 1, "x"},
		{&a->mid, h->n_embd, 1, "mid"},
		{&a->late, n_own ? h->n_embd : 0, 1, "late"},
		{&a->norm, h->n_embd, 1, "norm"},
		{&a->raw, flags & ARCH_QK_NORM && !has_head_norms(m->arch) ? n_qkv : 0, 1, "raw"},
		{&a->qkv, n_qkv, 1, "qkv"},
		{&a->q, n_q_max, 1, "q"},
		{&a->attn, n_q_max, 1, "attn"},
		{&a->mix, n_mix, 1, "mix"},
		{&a->mixed, n_channels, 1, "mixed"},
		{&a->gates, delta ? ROW_STRIDE(h->delta_heads) + h->delta_heads : 0, 1, "gates"},
		{&a->rule, n_inner, 1, "rule"},
		{&a->gated, n_inner, 1, "gated"},
		{&a->proj, flags & ARCH_POST_NORM || n_own ? h->n_embd : 0, 1, "proj"},
		{&a->gate_up, flags & ARCH_UNGATED ? n_ff : ROW_STRIDE(n_ff) + n_ff, 1, "gate_up"},
		{&a->ff, n_ff, 1, "ff"},
		{&a->router, h->n_expert, 1, "router"},
		{&a->gate_up_exps, n_ff_exps ? ROW_STRIDE(n_ff_exps) + n_ff_exps : 0, n_used,
			"gate_up_exps"},
		{&a->ff_exps, n_ff_exps, n_used, "ff_exps"},
		{&a->down_exps, n_ff_exps ? h->n_embd : 0, n_used, "down_exps"},
		{&a->gate_shexp, n_ff_shexp, 1, "gate_shexp"},
		{&a->up_shexp, n_ff_shexp, 1, "up_shexp"},
		{&a->ff_shexp, n_ff_shexp, 1, "ff_shexp"},
		{&a->shared, shared ? h->n_embd : 0, 1, "shared"},
		{&a->shared_gate, n_ff_shexp ? 1 : 0, 1, "shared_gate"},
		{&a->layer_in, n_layer_in, 1, "layer_in"},
		{&a->layer_raw, n_layer_in, 1, "layer_raw"},
		{&a->own_gate, n_own, 1, "own_gate"},
		{&a->own_ff, n_own, 1, "own_ff"},
		{&a->logits, h->n_vocab, 1, "logits"},
	};
	for (size_t i = 0; i < N_ACTIVATIONS; i++) {
		*all[i].rows = (struct rows){.n = all[i].n, .stride = ROW_STRIDE(all[i].n)};
		list[i] = (struct activation_shape){all[i].rows, all[i].per_row, all[i].name};
	}
}

/* Everything a layer's functions need. */
struct pass {
	struct plan *p;
	const struct model *m;
	const struct hparams *h;
	const struct activations *a;
	const struct kv_cache *kv;
	const struct step_buffers *b;
	const struct layer *layer;
	const struct layer_weights *l;
	const struct layer_state *state;
};

static const struct rows none;

/* Columns of x as rows of their own. */
static struct rows part(struct rows x, uint32_t first, uint32_t n)
{
	struct rows r = {.view = x.view, .n = n, .stride = x.stride};
	r.view.offset += (uint64_t)first * sizeof(float);
	r.view.n_bytes -= (uint64_t)first * sizeof(float);
	return r;
}

static void norm(const struct pass *f, struct rows out, struct rows x, const struct weights *weight,
	const struct weights *bias, struct rows residual)
{
	bool rms = f->m->arch->norm == ARCH_NORM_RMS;
	plan_norm(f->p, rms ? NORM_RMS : NORM_LAYER, out, x, weight, bias,
		rms ? f->h->rms_eps : f->h->norm_eps, residual);
}

/* out = scale * (norm(x) + residual) */
static void norm_scaled(const struct pass *f, struct rows out, struct rows x,
	const struct weights *weight, struct rows residual, float scale)
{
	if (scale == 1)
		norm(f, out, x, weight, NULL, residual);
	else
		plan_norm_scaled(f->p, out, x, weight, f->h->rms_eps, residual, scale);
}

/* Element i of a tensor of factors; 1 where the model has none. */
static float factor(const struct tensor *t, uint32_t i)
{
	float value = 1;
	if (t->data)
		memcpy(&value, t->data + i * sizeof value, sizeof value);
	return value;
}

static bool flag(const struct pass *f, uint32_t flags)
{
	return (f->m->arch->flags & flags) != 0;
}

/* ---- attention ---- */

static struct kv_shape shape_of(const struct pass *f)
{
	struct kv_shape shape = f->layer->window ? f->kv->window : f->kv->full;
	shape.n_head_kv = f->layer->n_head_kv;
	shape.head_dim = f->layer->head_dim;
	return shape;
}

static struct rope rope_of(const struct pass *f)
{
	enum layer_rope kind = f->layer->rope;
	return (struct rope){
		.table = kind == LAYER_ROPE_LOCAL ? f->b->rope_local : f->b->rope,
		.n_rot = kind == LAYER_ROPE_NONE ? 0 : f->layer->n_rot,
		.neox = f->m->arch->rope == ARCH_ROPE_NEOX,
		.q_scale = f->h->q_scale,
		.q_scale_ctx = f->h->q_scale_ctx,
	};
}

/* mid = x + w y (+ bias), with the factors and norms that some models have between them */
static void project(
	const struct pass *f, const struct weights *w, const struct weights *bias, struct rows y)
{
	const struct activations *a = f->a;
	struct epilogue e = {.bias = bias, .scale = f->h->residual_scale};
	if (flag(f, ARCH_POST_NORM)) {
		plan_matmul(f->p, a->proj, w, y, e);
		norm(f, a->mid, a->proj, &f->l->attn_post_norm, NULL, a->x);
	} else {
		e.residual = a->x;
		plan_matmul(f->p, a->mid, w, y, e);
	}
}

/* mid = x + attention(x) */
static void attention(const struct pass *f, struct rows x)
{
	const struct activations *a = f->a;
	const struct hparams *h = f->h;
	const struct layer_weights *l = f->l;
	const uint32_t n_k = n_kv(f->layer);
	const struct qkv_layout at = qkv_layout(h, f->layer);
	const struct kv_shape shape = shape_of(f);
	const struct kv_layer *cache = &f->kv->layers[f->layer->kv_layer];
	const bool wide_norms = l->attn_q_norm.n_rows != 0;
	const bool own_kv = f->layer->attn_k.data, own_v = f->layer->attn_v.data;
	const struct rows qkv = part(a->qkv, 0, at.stride), v = part(qkv, at.v, n_k);
	const struct rows q = part(qkv, 0, q_rows(h, f->layer)), k = part(qkv, at.k, n_k);
	const uint32_t n = n_q(h, f->layer);
	const struct rows turned = part(a->q, 0, n), attn = part(a->attn, 0, n);
	const struct rows raw_q = wide_norms ? part(a->raw, 0, q.n) : q;
	const struct rows raw_k = wide_norms ? part(a->raw, at.k, n_k) : k;
	struct rope rope = rope_of(f);
	rope.norms = &l->attn_qk_norm;
	rope.v_norm = flag(f, ARCH_V_NORM);
	rope.q_only = !own_kv;
	rope.q_gated = f->layer->q_gated;
	rope.eps = h->rms_eps;

	/* queries, keys, values */
	if (l->attn_qkv.n_rows)
		plan_matmul(f->p, part(qkv, 0, l->attn_qkv.n_rows), &l->attn_qkv, x,
			(struct epilogue){.bias = &l->attn_qkv_bias});
	else {
		plan_matmul(f->p, raw_q, &l->attn_q, x, (struct epilogue){.bias = &l->attn_q_bias});
		if (own_kv)
			plan_matmul(f->p, raw_k, &l->attn_k, x,
				(struct epilogue){.bias = &l->attn_k_bias});
		if (own_v)
			plan_matmul(
				f->p, v, &l->attn_v, x, (struct epilogue){.bias = &l->attn_v_bias});
	}
	if (wide_norms) {
		norm(f, q, raw_q, &l->attn_q_norm, NULL, none);
		norm(f, k, raw_k, &l->attn_k_norm, NULL, none);
	}
	plan_rope_kv(f->p, turned, cache, &shape, qkv, at.k, own_v ? at.v : at.k, &rope);

	/* scores and values */
	plan_attention(f->p, attn, turned, cache, &shape,
		&(struct attention){
			.scale = h->attn_scale,
			.softcap = h->attn_softcap,
			.window = f->layer->window,
			.sinks = &l->attn_sinks,
			.partial = f->b->partial,
		});

	struct rows y = attn;
	if (f->layer->q_gated) {
		y = turned; /* the queries have done their work */
		plan_gate_heads(f->p, y, qkv, attn, f->layer->head_dim);
	}
	project(f, &l->attn_output, &l->attn_output_bias, y);
}

/* ---- recurrent layers ---- */

/* mid = x + out(C * conv(B * x')); B, C and x' are three products of x. */
static void short_conv(const struct pass *f, struct rows x)
{
	const struct activations *a = f->a;
	const struct conv conv = conv_of(f->h, f->layer);
	plan_matmul(f->p, a->mix, &f->l->conv_in, x, (struct epilogue){0});
	plan_conv(f->p, a->mixed, a->mix, &f->l->conv, f->state->conv, &f->kv->state, &conv);
	project(f, &f->l->conv_out, NULL, a->mixed);
}

/* mid = x + out(norm(rule(conv(q, k, v))) * silu(z)) */
static void delta_net(const struct pass *f, struct rows x)
{
	const struct activations *a = f->a;
	const struct layer_weights *l = f->l;
	const struct conv conv = conv_of(f->h, f->layer);
	struct delta delta = delta_of(f->h);
	const uint32_t n_inner = f->h->delta_inner;
	const struct rows qkv = part(a->mix, 0, conv.n_channels);
	const struct rows z = part(a->mix, ROW_STRIDE(conv.n_channels), n_inner);

	if (l->delta_qkv_z.n_rows)
		plan_matmul(f->p, part(a->mix, 0, conv.n_channels + n_inner), &l->delta_qkv_z, x,
			(struct epilogue){0});
	else {
		plan_matmul(f->p, qkv, &l->delta_qkv, x, (struct epilogue){0});
		plan_matmul(f->p, z, &l->delta_z, x, (struct epilogue){0});
	}
	delta.beta = delta.n_head;
	if (l->delta_gates.n_rows)
		plan_matmul(f->p, part(a->gates, 0, 2 * delta.n_head), &l->delta_gates, x,
			(struct epilogue){0});
	else {
		delta.beta = ROW_STRIDE(delta.n_head);
		plan_matmul(f->p, part(a->gates, 0, delta.n_head), &l->delta_alpha, x,
			(struct epilogue){0});
		plan_matmul(f->p, part(a->gates, delta.beta, delta.n_head), &l->delta_beta, x,
			(struct epilogue){0});
	}
	plan_conv(f->p, a->mixed, qkv, &l->delta_conv, f->state->conv, &f->kv->state, &conv);
	plan_delta(f->p, a->rule, a->mixed, a->gates, &l->delta_dt_a, f->state->delta,
		&f->kv->state, &delta);
	plan_norm_gated(f->p, a->gated, a->rule, &l->delta_norm, f->h->rms_eps, z);
	project(f, &l->delta_out, NULL, a->gated);
}

/* ---- feed-forward ---- */

/* out = down(activation(gate x) * up x) */
static void dense(const struct pass *f, struct rows out, struct rows x, struct epilogue e)
{
	const struct activations *a = f->a;
	const struct layer_weights *l = f->l;
	const uint32_t activation = (uint32_t)f->m->arch->activation;
	const bool ungated = flag(f, ARCH_UNGATED);
	const uint32_t n_ff = f->layer->n_ff, first_up = ungated ? 0 : ROW_STRIDE(n_ff);
	const struct rows ff = part(a->ff, 0, n_ff), gate_up = part(a->gate_up, 0, first_up + n_ff);
	const struct rows gate = ungated ? none : part(gate_up, 0, n_ff);
	const struct rows up = part(gate_up, first_up, n_ff);
	const bool one_op = f->p->role == ROLE_DECODE && l->ffn_gate_up.n_chunks == 1;
	if (l->ffn_gate_up.n_rows)
		plan_matmul(f->p, one_op ? ff : gate_up, &l->ffn_gate_up, x,
			(struct epilogue){.gated = one_op ? 1 + activation : 0});
	else {
		if (gate.n)
			plan_matmul(f->p, gate, &l->ffn_gate, x,
				(struct epilogue){.bias = &l->ffn_gate_bias});
		plan_matmul(f->p, up, &l->ffn_up, x, (struct epilogue){.bias = &l->ffn_up_bias});
	}
	if (!one_op)
		plan_glu(f->p, ff, gate, up, activation, 1);
	e.bias = &l->ffn_down_bias;
	plan_matmul(f->p, out, &l->ffn_down, ff, e);
}

static struct routing routing_of(const struct pass *f)
{
	return (struct routing){f->b->routes, f->b->tiles, f->h->n_expert_used};
}

/* Which experts take each row, by scale * (router x). */
static void route(const struct pass *f, struct rows x, float scale)
{
	const struct layer_weights *l = f->l;
	const struct routing routing = routing_of(f);
	plan_matmul(f->p, f->a->router, &l->ffn_gate_inp, x,
		(struct epilogue){.bias = &l->ffn_gate_inp_bias, .scale = scale});
	plan_route(f->p, routing.routes, f->a->router, routing.n_used,
		!flag(f, ARCH_ROUTE_OVER_ALL), &l->ffn_down_exps_scale);
	if (f->p->role == ROLE_PREFILL)
		plan_tiles(f->p, routing.tiles, routing.routes, f->h->n_expert, routing.n_used);
}

/* out = residual + scale * (the chosen experts, weighted, and the shared one)
 * (Shazeer et al. 2017; Fedus et al. 2021). */
static void experts(
	const struct pass *f, struct rows out, struct rows x, struct rows residual, float scale)
{
	const struct activations *a = f->a;
	const struct hparams *h = f->h;
	const struct layer_weights *l = f->l;
	const uint32_t activation = (uint32_t)f->m->arch->activation;
	const struct routing routing = routing_of(f);
	const bool fused = l->ffn_gate_up_exps.n_rows != 0;
	const uint32_t n_ff = h->n_ff_expert, first_up = fused ? n_ff : ROW_STRIDE(n_ff);
	const struct rows gate = part(a->gate_up_exps, 0, n_ff);
	const struct rows up = part(a->gate_up_exps, first_up, n_ff);
	const bool has_shared = l->ffn_up_shexp.n_rows != 0;
	const bool gated_shared = l->ffn_gate_inp_shexp.n_rows != 0;

	if (fused)
		plan_expert_matmul(f->p, part(a->gate_up_exps, 0, 2 * n_ff), &l->ffn_gate_up_exps,
			x, NULL, &routing, false);
	else {
		plan_expert_matmul(
			f->p, gate, &l->ffn_gate_exps, x, &l->ffn_gate_exps_bias, &routing, false);
		plan_expert_matmul(
			f->p, up, &l->ffn_up_exps, x, &l->ffn_up_exps_bias, &routing, false);
	}
	plan_glu(f->p, a->ff_exps, gate, up, activation, h->n_expert_used);
	plan_expert_matmul(f->p, a->down_exps, &l->ffn_down_exps, a->ff_exps,
		&l->ffn_down_exps_bias, &routing, true);
	if (has_shared) {
		plan_matmul(f->p, a->gate_shexp, &l->ffn_gate_shexp, x, (struct epilogue){0});
		plan_matmul(f->p, a->up_shexp, &l->ffn_up_shexp, x, (struct epilogue){0});
		plan_glu(f->p, a->ff_shexp, a->gate_shexp, a->up_shexp, activation, 1);
		plan_matmul(f->p, a->shared, &l->ffn_down_shexp, a->ff_shexp, (struct epilogue){0});
	}
	if (gated_shared)
		plan_matmul(f->p, a->shared_gate, &l->ffn_gate_inp_shexp, x, (struct epilogue){0});
	plan_expert_sum(f->p, out, a->down_exps, routing.routes, h->n_expert_used, residual, scale,
		has_shared ? a->shared : none, gated_shared ? a->shared_gate : none);
}

/* norm = the dense FFN and the experts of mid, each between norms of its own; the router has one, too. */
static void dense_and_experts(const struct pass *f)
{
	const struct activations *a = f->a;
	const struct layer_weights *l = f->l;
	norm(f, a->norm, a->mid, &l->ffn_norm, NULL, none);
	dense(f, a->proj, a->norm, (struct epilogue){0});
	norm(f, a->shared, a->proj, &l->ffn_post_norm_1, NULL, none);

	norm(f, a->norm, a->mid, &l->ffn_gate_inp_scale, NULL, none);
	route(f, a->norm, 1 / sqrtf((float)f->h->n_embd));
	norm(f, a->norm, a->mid, &l->ffn_pre_norm_2, NULL, none);
	experts(f, a->proj, a->norm, none, 1);
	norm(f, a->norm, a->proj, &l->ffn_post_norm_2, NULL, a->shared);
}

/* x = scale * (late + norm(proj(activation(gate late) * the layer's own input))) */
static void own_input(const struct pass *f, float scale)
{
	const struct activations *a = f->a;
	const struct layer_weights *l = f->l;
	const uint32_t n = f->h->n_embd_layer, il = (uint32_t)(f->layer - f->m->layers);
	plan_matmul(f->p, a->own_gate, &l->own_gate, a->late, (struct epilogue){0});
	plan_glu(f->p, a->own_ff, a->own_gate, part(a->layer_in, il * n, n),
		(uint32_t)f->m->arch->activation, 1);
	plan_matmul(f->p, a->proj, &l->own_proj, a->own_ff,
		(struct epilogue){.scale = LAYER_INPUT_SCALE});
	norm_scaled(f, a->x, a->proj, &l->own_post_norm, a->late, scale);
}

/* x = mid + ffn(normed mid), and what the layer's own input adds; attn_in is what attention took. */
static void feed_forward(const struct pass *f, struct rows attn_in)
{
	const struct activations *a = f->a;
	const struct layer_weights *l = f->l;
	const float scale = f->h->residual_scale, out_scale = factor(&f->layer->output_scale, 0);
	const bool post = flag(f, ARCH_POST_NORM), own = l->own_gate.n_rows;
	const struct rows end = own ? a->late : a->x;
	const struct rows out = post ? a->proj : end, residual = post ? none : a->mid;
	struct rows x = flag(f, ARCH_PARALLEL) ? attn_in : a->mid, y = a->proj;
	if (f->layer->experts && flag(f, ARCH_DENSE_BESIDE)) {
		dense_and_experts(f);
		y = a->norm;
	} else {
		if (l->ffn_norm.n_rows) {
			norm(f, a->norm, a->mid, &l->ffn_norm, &l->ffn_norm_bias, none);
			x = a->norm;
		}
		if (f->layer->experts) {
			route(f, x, 1);
			experts(f, out, x, residual, scale);
		} else
			dense(f, out, x, (struct epilogue){.residual = residual, .scale = scale});
	}
	if (post)
		norm_scaled(f, end, y, &l->ffn_post_norm, a->mid, own ? 1 : out_scale);
	if (own)
		own_input(f, out_scale);
}

/* ---- the pass ---- */

static void embed(const struct pass *f, const struct model_weights *w)
{
	const struct activations *a = f->a;
	if (w->position_embd.n_rows) {
		plan_embed(f->p, a->mid, &w->token_embd, f->h->embd_scale, false, none);
		plan_embed(f->p, a->x, &w->position_embd, 1, true, a->mid);
	} else
		plan_embed(f->p, a->x, &w->token_embd, f->h->embd_scale, false, none);
}

/* layer_in = what each layer adds by itself, over LAYER_INPUT_SCALE: of the token, and a projection of x. */
static void embed_layers(const struct pass *f, const struct model_weights *w)
{
	const struct activations *a = f->a;
	plan_matmul(f->p, a->layer_in, &w->layer_proj, a->x,
		(struct epilogue){.scale = 1 / sqrtf((float)f->h->n_embd)});
	norm(f, a->layer_raw, a->layer_in, &w->layer_proj_norm, NULL, none);
	plan_embed(f->p, a->layer_in, &w->layer_embd, sqrtf((float)f->h->n_embd_layer), false,
		a->layer_raw);
}

void forward(struct plan *p, const struct model *m, const struct model_weights *w,
	const struct activations *a, const struct kv_cache *kv, const struct step_buffers *b,
	bool with_logits)
{
	const struct hparams *h = &m->h;
	struct pass f = {.p = p, .m = m, .h = h, .a = a, .kv = kv, .b = b};

	p->layer = -1;
	embed(&f, w);
	if (w->layer_embd.n_rows)
		embed_layers(&f, w);

	for (uint32_t il = 0; il < h->n_layer; il++) {
		struct rows x = a->x;
		f.layer = &m->layers[il];
		f.l = &w->layers[il];
		p->layer = (int32_t)il;
		if (f.l->attn_norm.n_rows) {
			norm(&f, a->norm, a->x, &f.l->attn_norm, &f.l->attn_norm_bias, none);
			x = a->norm;
		}
		f.state = &kv->states[il];
		switch (f.layer->mixer) {
		case MIXER_ATTENTION:
			attention(&f, x);
			break;
		case MIXER_CONV:
			short_conv(&f, x);
			break;
		case MIXER_DELTA:
			delta_net(&f, x);
			break;
		}
		feed_forward(&f, x);
	}

	p->layer = -1;
	if (with_logits) {
		norm(&f, a->norm, a->x, &w->output_norm, &w->output_norm_bias, none);
		plan_matmul(p, a->logits, &w->output, a->norm,
			(struct epilogue){
				.scale = 1 / h->logit_scale, .softcap = h->logit_softcap});
	}
}

/* ---- moving what the cache holds ---- */

/* Length of the pairs of a rope table. */
static double rope_magnitude(const struct model *m, bool local)
{
	double magnitude = local ? 1 : (double)m->h.rope_attn_factor;
	if (m->h.rope_scaling == ROPE_SCALING_YARN && !local)
		magnitude *= 1 + 0.1 * log((double)m->h.rope_scale);
	return magnitude;
}

void forward_copy(struct plan *p, const struct model *m, const struct kv_cache *kv)
{
	struct pass f = {.p = p, .m = m, .h = &m->h, .kv = kv};
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
		f.layer = &m->layers[il];
		p->layer = (int32_t)il;
		const struct kv_shape shape = shape_of(&f);
		const struct layer_state_bytes n = layer_state_bytes(m, il);
		if (n.conv)
			plan_state_copy(
				p, kv->states[il].conv, n.conv, kv->states[il].delta, n.delta);
		else if (f.layer->kv_layer == il)
			plan_kv_copy(p, &kv->layers[il], &shape, f.layer->window != 0);
	}
}

void forward_shift(struct plan *p, const struct model *m, const struct kv_cache *kv,
	const struct step_buffers *b)
{
	struct pass f = {.p = p, .m = m, .h = &m->h, .kv = kv, .b = b};
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
		f.layer = &m->layers[il];
		p->layer = (int32_t)il;
		const struct rope rope = rope_of(&f);
		const struct kv_shape shape = shape_of(&f);
		if (f.layer->kv_layer == il)
			plan_kv_shift(p, &kv->layers[il], &shape, &rope,
				(float)rope_magnitude(m, f.layer->rope == LAYER_ROPE_LOCAL));
	}
}

/* ---- rope ---- */

/* YaRN: the pair whose wavelength makes `turns` turns over the training context. */
static double yarn_pair(const struct hparams *h, double turns)
{
	return h->n_rot * log((double)h->rope_ctx_train / (turns * 2 * PI)) /
		(2 * log((double)h->rope_theta));
}

/* Radians per position of pair i. */
static double rope_frequency(const struct model *m, uint32_t n_ctx, uint32_t i)
{
	const struct hparams *h = &m->h;
	double frequency = pow((double)h->rope_theta, -2.0 * i / h->n_rot);
	frequency /= (double)factor(&m->rope_freqs, i);
	if (h->rope_scaling == ROPE_SCALING_LONG)
		frequency /= (double)factor(
			n_ctx > h->rope_ctx_train ? &m->rope_long : &m->rope_short, i);
	double stretched = frequency / (double)h->rope_scale;
	if (h->rope_scaling != ROPE_SCALING_YARN)
		return stretched;
	double low = fmax(0, floor(yarn_pair(h, (double)h->yarn_beta_fast)));
	double high = fmin(h->n_rot - 1, ceil(yarn_pair(h, (double)h->yarn_beta_slow)));
	double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
	return stretched * ramp + frequency * (1 - ramp);
}

void rope_table(const struct model *m, uint32_t n_ctx, bool local, float *table)
{
	const struct hparams *h = &m->h;
	const uint32_t n_rot = local ? h->n_rot_swa : h->n_rot, n_pairs = n_rot / 2;
	const double magnitude = rope_magnitude(m, local);
	for (uint32_t i = 0; i < n_pairs; i++) {
		double frequency = local ? pow((double)h->rope_theta_swa, -2.0 * i / n_rot)
					 : rope_frequency(m, n_ctx, i);
		for (uint32_t pos = 0; pos < n_ctx; pos++) {
			float *pair = table + ((uint64_t)pos * n_pairs + i) * 2;
			pair[0] = (float)(magnitude * cos(pos * frequency));
			pair[1] = (float)(magnitude * sin(pos * frequency));
		}
	}
}
