/* Encoders of the weight formats: floats to blocks, the other direction of weight.h's decoders.
 *
 * A block's scale is searched for, not taken from its largest weight alone (weight_fit.h); what is decoded
 * from blocks that were made so is encoded to the same weights again in F32, F16, BF16, Q8_0 (where a code
 * is 127 or -127) and Q4_0. Knows bytes, not files or models. */
#ifndef LAPILLI_WEIGHT_ENCODE_H
#define LAPILLI_WEIGHT_ENCODE_H

#include "weight.h"

/* n finite weights (a multiple of block_weights) to consecutive blocks. Numbers beyond a format's range
 * become infinite: weight_not_finite finds them. */
typedef void weight_encode_fn(const float *x, uint64_t n, uint8_t *blocks);

/* NULL: weights of this format are only read. */
weight_encode_fn *weight_encoder(enum weight weight);

/* For the table alone: see weight_encode_k.c. */
void encode_q4_k(const float *x, uint64_t n, uint8_t *b);
void encode_q5_k(const float *x, uint64_t n, uint8_t *b);
void encode_q6_k(const float *x, uint64_t n, uint8_t *b);

/* Little-endian, wherever it stands. */
static inline void store_u16(uint8_t *p, uint32_t value)
{
	p[0] = (uint8_t)value;
	p[1] = (uint8_t)(value >> 8);
}

static inline void store_u32(uint8_t *p, uint32_t value)
{
	store_u16(p, value & 0xFFFF);
	store_u16(p + 2, value >> 16);
}

/* Writes a float as a half and returns what a decoder will read. */
static inline float store_half(uint8_t *p, float value)
{
	const uint16_t half = float_to_half(value);
	store_u16(p, half);
	return half_to_float(half);
}

#endif
