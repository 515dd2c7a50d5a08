/* What a model is: hyperparameters and tensors, every shape verified.
 *
 * Owns the reading of hyperparameters from GGUF keys and the check of each tensor's type and shape
 * (src/model.def holds one row per hyperparameter and per tensor).  Refuses to know what is done
 * with them: no plans, no devices, no text. */
#ifndef LAPILLI_MODEL_H
#define LAPILLI_MODEL_H

#include "arch.h"
#include "gguf.h"

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN };

/* Hyperparameters.  One field per REQUIRED and OPTIONAL row of model.def, of these kinds. */
typedef uint32_t hparam_u32;
typedef float hparam_f32;

struct hparams {
#define REQUIRED(field, kind, key)           hparam_##kind field;
#define OPTIONAL(field, kind, key, fallback) hparam_##kind field;
#include "model.def"
	uint32_t n_vocab; /* rows of token_embd */
	enum rope_scaling rope_scaling;
};

/* A matrix [n_rows][n_cols] row-major, or a vector (n_rows 1).  data NULL: the file has none. */
struct tensor {
	const char *name;
	enum weight weight;
	uint32_t n_rows, n_cols;
	const uint8_t *data;
	uint64_t n_bytes;
};

/* One field per TENSOR row (whole model) and LAYER_TENSOR row (each layer) of model.def. */
struct layer {
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) struct tensor field;
#include "model.def"
};

struct model {
	const struct arch *arch;
	struct hparams h;
	struct layer *layers; /* [h.n_layer] */
	bool tied_output;     /* output is token_embd */
#define TENSOR(field, name, n_rows, n_cols, needed) struct tensor field;
#include "model.def"
};

/* Checks everything a step relies on.  LAP_BAD_MODEL: unsupported architecture (with the list of
 * supported ones), missing key or tensor, wrong type or shape, each named with what was found and
 * what was expected.  The gguf must outlive the model. */
enum lap_status model_create(const struct gguf *gguf, struct model **model, struct lap_error *err);
void model_destroy(struct model *m); /* NULL is allowed */

#endif
