/* Weight formats: names, block sizes, and the plain C decoder of each.
 *
 * One row of shaders/weights.def per format; every size in the project derives from that row.
 * Knows bytes, not files or models.  Formats as in the GGUF specification and ggml's block layouts. */
#ifndef LAPILLI_WEIGHT_H
#define LAPILLI_WEIGHT_H

#include "base.h"

enum weight {
#define WEIGHT(name, id, label, n, bytes, integers) WEIGHT_##name,
#include "weights.def"
#undef WEIGHT
	N_WEIGHTS
};

struct weight_format {
	const char *name;  /* "q8_0": of the shader file and of the C decoder */
	const char *label; /* "Q8_0": as GGUF tools print it */
	uint32_t gguf_type;
	uint32_t block_weights; /* weights in a block */
	uint32_t block_bytes;
	bool integers; /* products take x in 8 bits where asked: see weights.def */
	/* n weights (a multiple of block_weights) from consecutive blocks, exactly as the format
	 * defines them in float32 (subnormal scales included). */
	void (*decode)(const uint8_t *blocks, uint64_t n, float *out);
};

const struct weight_format *weight_format(enum weight weight);

/* The format with that GGUF type id, or NULL. */
const struct weight_format *weight_find(uint32_t gguf_type, enum weight *weight);

/* GGUF's name of any type id it defines, known to us or not ("IQ3_S"); NULL for others. */
const char *weight_gguf_name(uint32_t gguf_type);

/* "F32 F16 ...": the formats this build reads, for messages and for README's table. */
const char *weight_list(void);

/* Bytes of a row of n_cols weights; false when n_cols is no multiple of the block or it overflows. */
bool weight_row_bytes(enum weight weight, uint64_t n_cols, uint64_t *n_bytes);

/* How many of n weights (a multiple of block_weights) from consecutive blocks decode to a NaN or an
 * infinity.  When there are some: the index of the first in *first, what it is in *value. */
uint64_t weight_not_finite(
	enum weight weight, const uint8_t *blocks, uint64_t n, uint64_t *first, float *value);

float half_to_float(uint16_t h);
uint16_t float_to_half(float f); /* round to nearest even, as GLSL's packHalf2x16 on IEEE devices */

#endif
