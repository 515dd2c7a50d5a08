/* The engine: an open model, its tokenizer, and the backend that holds its weights.
 *
 * Immutable once open; sessions (session.h) are the timelines on it. */
#ifndef LAPILLI_ENGINE_H
#define LAPILLI_ENGINE_H

#include "backend.h"
#include "forward.h"
#include "gguf.h"
#include "model.h"
#include "tokenizer.h"

struct lap_model {
	struct mapped_file file; /* empty when the caller's bytes were given */
	struct gguf *gguf;
	struct tokenizer *tokenizer; /* NULL when the file names none */
	struct model *model;         /* NULL with vocab_only, as all below */
	struct backend *backend;
	struct model_weights weights;
	struct buffer **buffers; /* that hold the weights */
	uint32_t n_buffers, capacity;
	struct log log;
	struct lap_model_info info;
	char *strings[6]; /* copies that info points to */
	uint32_t n_strings;
	struct lap_tensor_info *tensors;
};

/* The tokenizer, or LAP_BAD_MODEL when the file has none. */
enum lap_status engine_tokenizer(
	const struct lap_model *m, const struct tokenizer **tokenizer, struct lap_error *err);

#endif
