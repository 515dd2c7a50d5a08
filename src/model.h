/* What a model is: hyperparameters and tensors, every shape verified.
 *
 * Owns the reading of hyperparameters from GGUF keys and the check of each tensor's type and shape
 * (src/model.def holds one row per hyperparameter and per tensor).  Refuses to know what is done
 * with them: no plans, no devices, no text. */
#ifndef LAPILLI_MODEL_H
#define LAPILLI_MODEL_H

#include "arch.h"
#include "gguf.h"

enum rope_scaling {
	ROPE_SCALING_NONE,
	ROPE_SCALING_LINEAR,
	ROPE_SCALING_YARN, /* Peng et al. 2023 */
	ROPE_SCALING_LONG, /* LongRoPE, Ding et al. 2024: divisors for short and for long contexts */
};

/* Hyperparameters.  One field per REQUIRED and OPTIONAL row of model.def, of these kinds.  What may differ
 * from layer to layer (kind `layers`, and the rows ending in _swa) is read from struct layer; here n_ff
 * and n_head_kv are the largest, head_dim and n_rot those of layers without a window. */
typedef uint32_t hparam_u32;
typedef uint32_t hparam_layers;  /* the file has one number, or one for each layer */
typedef uint32_t hparam_pattern; /* likewise; of each layer whether it is of a kind */
typedef float hparam_f32;

struct hparams {
#define REQUIRED(field, kind, key)           hparam_##kind field;
#define OPTIONAL(field, kind, key, fallback) hparam_##kind field;
#include "model.def"
	uint32_t n_vocab; /* rows of token_embd */
	enum rope_scaling rope_scaling;
};

/* Of a gated delta net: values of a head; q, k and v side by side. */
static inline uint32_t delta_dim_v(const struct hparams *h)
{
	return h->delta_inner / h->delta_heads;
}

static inline uint32_t delta_channels(const struct hparams *h)
{
	return 2 * h->delta_groups * h->delta_dim + h->delta_inner;
}

/* A matrix [n_rows][n_cols] row-major, or a vector (n_rows 1).  data NULL: the file has none.
 * Experts: n_experts matrices one behind the other, n_rows counts the rows of them all. */
struct tensor {
	const char *name;
	enum weight weight;
	uint32_t n_rows, n_cols;
	uint32_t n_experts; /* 0: a matrix */
	const uint8_t *data;
	uint64_t n_bytes;
};

/* What mixes a layer's positions.  All but attention are recurrent: they have a state per sequence, and no keys
 * and values. */
enum mixer {
	MIXER_ATTENTION,
	MIXER_CONV,  /* a short convolution between two gates (LFM2) */
	MIXER_DELTA, /* a gated delta net (Yang et al. 2024) */
};

/* Which table turns a layer's queries and keys. */
enum layer_rope { LAYER_ROPE_NONE, LAYER_ROPE_MODEL, LAYER_ROPE_LOCAL };

/* What a layer is made of, and one field per LAYER_TENSOR row of model.def. */
struct layer {
	enum mixer mixer;
	enum layer_rope rope;
	uint32_t
		kv_layer; /* whose keys and values it attends to: its own number, or an earlier one; a
		             recurrent layer has UINT32_MAX */
	uint32_t window;              /* positions it sees, itself among them; 0: all before it */
	uint32_t n_head_kv, head_dim; /* 0 in a recurrent layer */
	bool q_gated;                 /* attn_q has behind the query of each head its gate */
	uint32_t n_rot;               /* dimensions of a head that turn */
	uint32_t n_ff;
	bool experts; /* its FFN is a mixture of experts */
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) struct tensor field;
#include "model.def"
	struct tensor none; /* no tensor: ends the shorter lists of MERGED rows */
};

/* Rows of q, and of k or v, that a layer's attention works on. */
static inline uint32_t n_q(const struct hparams *h, const struct layer *l)
{
	return h->n_head * l->head_dim;
}

static inline uint32_t n_kv(const struct layer *l)
{
	return l->n_head_kv * l->head_dim;
}

/* Rows of attn_q. */
static inline uint32_t q_rows(const struct hparams *h, const struct layer *l)
{
	return n_q(h, l) * (l->q_gated ? 2 : 1);
}

static inline bool attends(const struct layer *l)
{
	return l->mixer == MIXER_ATTENTION;
}

struct model {
	const struct arch *arch;
	struct hparams h;
	struct layer *layers; /* [h.n_layer] */
	bool tied_output;     /* output is token_embd */
	uint64_t n_unused;    /* tensors of the file that nothing here asked for ... */
	const char *unused;   /* ... and the name of the first; NULL when there is none */
#define TENSOR(field, name, n_rows, n_cols, needed) struct tensor field;
#include "model.def"
};

/* LAP_BAD_MODEL when the file belongs to a language model but is none (mmproj, LoRA adapter, control
 * vector, importance matrix), called by its name. */
enum lap_status model_check_kind(const struct gguf *gguf, struct lap_error *err);

/* Checks everything a step relies on.  LAP_BAD_MODEL: unsupported architecture (with the list of
 * supported ones), missing key or tensor, wrong type or shape, each named with what was found and
 * what was expected.  The gguf must outlive the model. */
enum lap_status model_create(const struct gguf *gguf, struct model **model, struct lap_error *err);
void model_destroy(struct model *m); /* NULL is allowed */

#endif
