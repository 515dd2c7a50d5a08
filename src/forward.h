/* The forward pass: hyperparameters and weights become a plan.  Written once, for every backend and
 * every shape of a step. */
#ifndef LAPILLI_FORWARD_H
#define LAPILLI_FORWARD_H

#include "model.h"
#include "plan.h"

/* The weights where the backend holds them: one field per tensor of model.def. */
struct layer_weights {
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) struct weights field;
#include "model.def"
};

struct model_weights {
	struct layer_weights *layers; /* [n_layer] */
#define TENSOR(field, name, n_rows, n_cols, needed) struct weights field;
#include "model.def"
};

/* What a step works on.  Activations have room for the plan's max_rows; see activations_each. */
struct activations {
	struct rows x,
		mid; /* residual stream: at the start of a layer, between attention and FFN */
	struct rows norm, qkv, q, attn, gate, up, ff, logits;
};

struct kv_cache {
	struct kv_shape shape;
	struct kv_layer *layers; /* [n_layer] */
};

/* Where k and v begin in a row of qkv, and its length, in floats. */
struct qkv_layout {
	uint32_t k, v, stride;
};

struct qkv_layout qkv_layout(const struct hparams *h);

/* Sets n and stride of each activation from the model; the views are the caller's to fill. */
void activations_shape(struct activations *a, const struct hparams *h);

/* Appends one step.  with_logits: also the final norm and the output matrix, for every row. */
void forward(struct plan *p, const struct model *m, const struct model_weights *w,
	const struct activations *a, const struct kv_cache *kv, struct view partial,
	struct view rope_table, bool with_logits);

/* table[n_ctx][n_rot / 2][2] = cosine and sine of each position's angles, with linear or YaRN
 * scaling (Peng et al. 2023), rope_freqs divisors and the attention factor in them.  Computed in
 * double: drivers' sine is not good enough at large angles. */
void rope_table(const struct model *m, uint32_t n_ctx, float *table);

#endif
