/* The forward pass: hyperparameters and weights become a plan.  Written once, for every backend,
 * every architecture and every shape of a step. */
#ifndef LAPILLI_FORWARD_H
#define LAPILLI_FORWARD_H

#include "model.h"
#include "plan.h"

/* The weights where the backend holds them: one field per tensor of model.def, and one per MERGED row, which
 * stands in place of its parts where the rule of the row allows (layer_merges). */
struct layer_weights {
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) struct weights field;
#define MERGED(field, a, b, c)                            struct weights field;
#include "model.def"
};

enum merged {
#define MERGED(field, a, b, c) MERGED_##field,
#include "model.def"
	N_MERGED
};

/* The parts of a merged tensor in a layer, in order; they end at the first without data. */
struct merged_parts {
	const char *name;
	const struct tensor *parts[3];
};

struct merged_parts merged_parts(const struct layer *l, enum merged which);

/* Whether the layer has it in place of its parts.  copies: weights are copied to where they are used, so that
 * merging costs nothing; small ones are merged anyway. */
bool layer_merges(const struct model *m, const struct layer *l, enum merged which, bool copies);

struct model_weights {
	struct layer_weights *layers; /* [n_layer] */
#define TENSOR(field, name, n_rows, n_cols, needed) struct weights field;
#include "model.def"
};

/* Columns of the widest matrix whose products can take x in 8 bits; 0: none can. */
uint32_t forward_q8_columns(const struct model *m);

/* What a step works on: a row per row of the step, or one per expert used (the fields in _exps).  n 0:
 * the model has no use for it. */
struct activations {
	struct rows x, mid,
		late; /* residual stream: at the start of a layer, between attention and FFN,
			 between FFN and the layer's own input */
	struct rows norm;
	struct rows raw, qkv; /* raw: q and k before norms over their whole width */
	struct rows q, attn;
	struct rows mix, mixed; /* of recurrent layers: what a convolution takes, and gives */
	struct rows gates, rule,
		gated;           /* of delta nets: of the rule; what it gives; normed, gated */
	struct rows proj;        /* what attention or FFN give, before post norms */
	struct rows gate_up, ff; /* gate_up: the gate, where there is one, then up */
	struct rows router, gate_up_exps, ff_exps, down_exps;
	struct rows gate_shexp, up_shexp, ff_shexp, shared, shared_gate;
	struct rows layer_in, layer_raw; /* inputs of all layers of their own; what they begin as */
	struct rows own_gate, own_ff;    /* of a layer's own input */
	struct rows logits;
};

#define N_ACTIVATIONS (sizeof(struct activations) / sizeof(struct rows))

/* What the buffer of one of them must hold. */
struct activation_shape {
	struct rows *rows; /* n and stride are set, the view is the caller's to fill */
	uint32_t per_row;  /* rows per row of the step */
	const char *name;
};

/* Where k and v begin in a row of qkv, and its length, in floats. */
struct qkv_layout {
	uint32_t k, v, stride;
};

struct qkv_layout qkv_layout(const struct hparams *h, const struct layer *l);

/* Shapes of all activations of a model, in *a and as a list; where layers differ, of the largest. */
void activations_shape(
	struct activations *a, const struct model *m, struct activation_shape list[N_ACTIVATIONS]);

/* Where a recurrent layer keeps its state: blocks of what its convolution and its delta rule need (args.h);
 * n_bytes 0: it has no such thing. */
struct layer_state {
	struct view conv, delta;
};

/* Bytes of one block of each, and of the state at its start alone, which every step reads. */
struct layer_state_bytes {
	uint64_t conv, delta;
	uint64_t start;
};

struct layer_state_bytes layer_state_bytes(const struct model *m, uint32_t il);

/* KV caches: layers with a window have a block table of their own, which may reuse the blocks that
 * the window has left behind.  Heads of keys are each layer's own. */
struct kv_cache {
	struct kv_shape full, window; /* n_head_kv and head_dim are 0 */
	struct kv_layer *layers;      /* [n_layer] */
	struct state_shape state;
	struct layer_state *states; /* [n_layer] */
};

/* Buffers of a step beside the activations. */
struct step_buffers {
	struct view partial;          /* of attention in decode, for the layer that needs most */
	struct view rope, rope_local; /* tables; rope_local is unused without window layers */
	struct view routes, tiles;    /* of experts */
	struct view q8;               /* x in 8 bits; n_bytes 0: products take f32 */
	struct view parts;            /* see struct plan */
};

/* Appends one step.  with_logits: also the final norm and the output matrix, for every row. */
void forward(struct plan *p, const struct model *m, const struct model_weights *w,
	const struct activations *a, const struct kv_cache *kv, const struct step_buffers *b,
	bool with_logits);

/* Appends one kv_copy for each layer that has a cache of its own. */
void forward_copy(struct plan *p, const struct model *m, const struct kv_cache *kv);

/* Appends one kv_shift for each such layer; no layer has a window. */
void forward_shift(struct plan *p, const struct model *m, const struct kv_cache *kv,
	const struct step_buffers *b);

/* table[n_ctx][n_rot / 2][2] = cosine and sine of each position's angles, with linear, YaRN or
 * LongRoPE scaling, rope_freqs divisors and the attention factor in them.  `local`: that of window
 * layers with a base of their own.  Computed in double: drivers' sine is not good enough at large
 * angles.  n_ctx chooses LongRoPE's divisors. */
void rope_table(const struct model *m, uint32_t n_ctx, bool local, float *table);

#endif
