/* The forward pass of a decoder-only transformer, in the order of the paper: see forward.h. */
#include "forward.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

struct qkv_layout qkv_layout(const struct hparams *h)
{
	struct qkv_layout l;
	l.k = ROW_STRIDE(h->n_head * h->head_dim);
	l.v = l.k + ROW_STRIDE(h->n_head_kv * h->head_dim);
	l.stride = l.v + ROW_STRIDE(h->n_head_kv * h->head_dim);
	return l;
}

static struct rows shape(uint32_t n)
{
	return (struct rows){.n = n, .stride = ROW_STRIDE(n)};
}

void activations_shape(struct activations *a, const struct hparams *h)
{
	a->x = a->mid = a->norm = shape(h->n_embd);
	a->qkv = shape(qkv_layout(h).stride);
	a->q = a->attn = shape(h->n_head * h->head_dim);
	a->gate = a->up = a->ff = shape(h->n_ff);
	a->logits = shape(h->n_vocab);
}

/* Columns of qkv as rows of their own. */
static struct rows part(struct rows qkv, uint32_t first, uint32_t n)
{
	struct rows r = {.view = qkv.view, .n = n, .stride = qkv.stride};
	r.view.offset += (uint64_t)first * sizeof(float);
	r.view.n_bytes -= (uint64_t)first * sizeof(float);
	return r;
}

void forward(struct plan *p, const struct model *m, const struct model_weights *w,
	const struct activations *a, const struct kv_cache *kv, struct view partial,
	struct view rope_table, bool with_logits)
{
	const struct hparams *h = &m->h;
	const struct rows none = {0};
	const uint32_t n_q = h->n_head * h->head_dim, n_kv = h->n_head_kv * h->head_dim;
	const struct qkv_layout at = qkv_layout(h);
	const float scale = 1.0f / sqrtf((float)h->head_dim);

	p->layer = -1;
	plan_embed(p, a->x, &w->token_embd);

	for (uint32_t il = 0; il < h->n_layer; il++) {
		const struct layer_weights *l = &w->layers[il];
		const struct kv_layer *cache = &kv->layers[il];
		p->layer = (int32_t)il;

		/* attention */
		plan_rmsnorm(p, a->norm, a->x, &l->attn_norm, h->rms_eps);
		plan_matmul(p, part(a->qkv, 0, n_q), &l->attn_q, a->norm, &l->attn_q_bias, none);
		plan_matmul(
			p, part(a->qkv, at.k, n_kv), &l->attn_k, a->norm, &l->attn_k_bias, none);
		plan_matmul(
			p, part(a->qkv, at.v, n_kv), &l->attn_v, a->norm, &l->attn_v_bias, none);
		plan_rope_kv(p, a->q, cache, &kv->shape, a->qkv, at.k, at.v, rope_table, h->n_rot,
			m->arch->rope_neox);
		plan_attention(p, a->attn, a->q, cache, &kv->shape, scale, partial);
		plan_matmul(p, a->mid, &l->attn_output, a->attn, &l->attn_output_bias, a->x);

		/* feed-forward */
		plan_rmsnorm(p, a->norm, a->mid, &l->ffn_norm, h->rms_eps);
		plan_matmul(p, a->gate, &l->ffn_gate, a->norm, &l->ffn_gate_bias, none);
		plan_matmul(p, a->up, &l->ffn_up, a->norm, &l->ffn_up_bias, none);
		plan_glu(p, a->ff, a->gate, a->up);
		plan_matmul(p, a->x, &l->ffn_down, a->ff, &l->ffn_down_bias, a->mid);
	}

	/* logits */
	p->layer = -1;
	if (with_logits) {
		plan_rmsnorm(p, a->norm, a->x, &w->output_norm, h->rms_eps);
		plan_matmul(p, a->logits, &w->output, a->norm, NULL, none);
	}
}

/* YaRN: the pair whose wavelength makes `turns` turns over the training context. */
static double yarn_pair(const struct hparams *h, double turns)
{
	return h->n_rot * log((double)h->rope_ctx_train / (turns * 2 * PI)) /
		(2 * log((double)h->rope_theta));
}

/* Radians per position of pair i. */
static double rope_frequency(const struct model *m, uint32_t i)
{
	const struct hparams *h = &m->h;
	double frequency = pow((double)h->rope_theta, -2.0 * i / h->n_rot);
	if (m->rope_freqs.data) {
		float divisor;
		memcpy(&divisor, m->rope_freqs.data + i * sizeof divisor, sizeof divisor);
		frequency /= (double)divisor;
	}
	if (h->rope_scaling == ROPE_SCALING_NONE)
		return frequency;
	double stretched = frequency / (double)h->rope_scale;
	if (h->rope_scaling == ROPE_SCALING_LINEAR)
		return stretched;
	double low = fmax(0, floor(yarn_pair(h, (double)h->yarn_beta_fast)));
	double high = fmin(h->n_rot - 1, ceil(yarn_pair(h, (double)h->yarn_beta_slow)));
	double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
	return stretched * ramp + frequency * (1 - ramp);
}

void rope_table(const struct model *m, uint32_t n_ctx, float *table)
{
	const struct hparams *h = &m->h;
	const uint32_t n_pairs = h->n_rot / 2;
	double magnitude = (double)h->rope_attn_factor;
	if (h->rope_scaling == ROPE_SCALING_YARN)
		magnitude *= 1 + 0.1 * log((double)h->rope_scale);
	for (uint32_t i = 0; i < n_pairs; i++) {
		double frequency = rope_frequency(m, i);
		for (uint32_t pos = 0; pos < n_ctx; pos++) {
			float *pair = table + ((uint64_t)pos * n_pairs + i) * 2;
			pair[0] = (float)(magnitude * cos(pos * frequency));
			pair[1] = (float)(magnitude * sin(pos * frequency));
		}
	}
}
