/* Encoders of formats without groups inside their blocks, and the table of all: see weight_encode.h. */
#include "weight_encode.h"

#include <math.h>
#include <string.h>

#include "weight_fit.h"

enum { BLOCK = 32 };

static void encode_f32(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		store_u32(b + 4 * i, bits);
	}
}

static void encode_f16(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i++)
		store_u16(b + 2 * i, float_to_half(x[i]));
}

/* The upper half of a float, rounded to nearest, ties to even. */
static void encode_bf16(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		store_u16(b + 2 * i, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
	}
}

/* With 255 codes the extreme is as good an end as any: the error is a quarter of a percent of it. */
static void encode_q8_0(const float *x, uint64_t n, uint8_t *b)
{
	float codes[BLOCK];
	for (uint64_t i = 0; i < n; i += BLOCK, b += 34) {
		float most = 0;
		for (unsigned j = 0; j < BLOCK; j++)
			most = fmaxf(most, fabsf(x[i + j]));
		const float d = store_half(b, most / 127);
		fit_codes(x + i, BLOCK, fit_inverse(d), -127, 127, codes);
		for (unsigned j = 0; j < BLOCK; j++)
			b[2 + j] = (uint8_t)(int8_t)codes[j];
	}
}

/* Codes 0 to 31: four bits of each in nibbles, and the fifth ones, which are returned. */
static uint32_t store_codes(const float *codes, float first, uint8_t *nibbles)
{
	uint32_t high = 0;
	for (unsigned j = 0; j < BLOCK / 2; j++) {
		const unsigned low_code = (unsigned)(codes[j] - first);
		const unsigned high_code = (unsigned)(codes[j + BLOCK / 2] - first);
		nibbles[j] = (uint8_t)((low_code & 15) | (high_code & 15) << 4);
		high |= low_code >> 4 << j | high_code >> 4 << (j + BLOCK / 2);
	}
	return high;
}

/* x ~ d q, q from low on: the formats of a scale alone. */
static uint32_t encode_scaled(const float *x, float low, uint8_t *scale, uint8_t *nibbles)
{
	float codes[BLOCK];
	const float high = -1 - low;
	const float d = store_half(scale, fit_scale(x, BLOCK, low, high));
	fit_codes(x, BLOCK, fit_inverse(d), low, high, codes);
	return store_codes(codes, low, nibbles);
}

/* x ~ d q + m, q from 0 to high. */
static uint32_t encode_affine(const float *x, float high, uint8_t *scale, uint8_t *nibbles)
{
	float codes[BLOCK], off[BLOCK], d, m;
	fit_scale_and_minimum(x, BLOCK, high, INFINITY, &d, &m);
	d = store_half(scale, d);
	m = store_half(scale + 2, m);
	for (unsigned j = 0; j < BLOCK; j++)
		off[j] = x[j] - m;
	fit_codes(off, BLOCK, fit_inverse(d), 0, high, codes);
	return store_codes(codes, 0, nibbles);
}

static void encode_q4_0(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i += BLOCK, b += 18)
		encode_scaled(x + i, -8, b, b + 2);
}

static void encode_q4_1(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i += BLOCK, b += 20)
		encode_affine(x + i, 15, b, b + 4);
}

static void encode_q5_0(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i += BLOCK, b += 22)
		store_u32(b + 2, encode_scaled(x + i, -16, b, b + 6));
}

static void encode_q5_1(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i += BLOCK, b += 24)
		store_u32(b + 4, encode_affine(x + i, 31, b, b + 8));
}

/* ---- the table --------------------------------------------------------------------------------- */

static weight_encode_fn *const encoders[N_WEIGHTS] = {
	[WEIGHT_f32] = encode_f32,
	[WEIGHT_f16] = encode_f16,
	[WEIGHT_bf16] = encode_bf16,
	[WEIGHT_q8_0] = encode_q8_0,
	[WEIGHT_q4_0] = encode_q4_0,
	[WEIGHT_q4_1] = encode_q4_1,
	[WEIGHT_q5_0] = encode_q5_0,
	[WEIGHT_q5_1] = encode_q5_1,
	[WEIGHT_q4_k] = encode_q4_k,
	[WEIGHT_q5_k] = encode_q5_k,
	[WEIGHT_q6_k] = encode_q6_k,
};

weight_encode_fn *weight_encoder(enum weight weight)
{
	return encoders[weight];
}
