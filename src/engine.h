/* The engine: an open model, its tokenizer, and the backend that holds its weights.
 *
 * Immutable once open; sessions (session.h) are the timelines on it. */
#ifndef LAPILLI_ENGINE_H
#define LAPILLI_ENGINE_H

#include "backend.h"
#include "forward.h"
#include "gguf.h"
#include "model.h"
#include "split.h"
#include "tokenizer.h"

struct lap_model {
	struct split split;          /* the files */
	struct gguf *gguf;           /* that of split */
	struct tokenizer *tokenizer; /* NULL when the file names none */
	struct model *model;         /* NULL with vocab_only, as all below */
	struct backend *backend;
	struct model_weights weights;
	bool merges;             /* weights are laid out as on a device: see layer_merges */
	struct buffer **buffers; /* that hold the weights */
	uint32_t n_buffers, capacity;
	struct log log;
	enum lap_tune tune; /* what its sessions do */
	struct lap_model_info info;
	char *strings[6]; /* copies that info points to */
	uint32_t n_strings;
	struct lap_tensor_info *tensors;
};

/* Bytes that the weights take on the device, there or not yet. */
uint64_t engine_weight_bytes(const struct lap_model *m);

/* Before anything is uploaded: a warning in the log when weights and a small session are more than the
 * device's memory; LAP_NO_MEMORY when the weights alone are, unless the device is the CPU, whose
 * drivers name a size that they do not keep to. */
enum lap_status engine_check_memory(struct lap_model *m, struct lap_error *err);

/* The tokenizer, or LAP_BAD_MODEL when the file has none. */
enum lap_status engine_tokenizer(
	const struct lap_model *m, const struct tokenizer **tokenizer, struct lap_error *err);

#endif
