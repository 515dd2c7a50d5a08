/* See products.h. */
#include "products.h"

#include <math.h>
#include <string.h>

#include "kv.h"

u32 cpu_decode_piece(const struct weight_format *f, const uint8_t *row, u32 first, u32 n, float *w)
{
	u32 n_piece = n - first < PIECE ? n - first : PIECE;
	f->decode(row + (size_t)(first / f->block_weights) * f->block_bytes, n_piece, w);
	return n_piece;
}

/* Four running sums, so that one need not wait for the other; each has a name, for sanitizers watch an array. */
static double dot(const float *w, const float *x, u32 n)
{
	double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
	u32 i = 0;
	for (; i + 4 <= n; i += 4) {
		sum0 += (double)w[i] * (double)x[i];
		sum1 += (double)w[i + 1] * (double)x[i + 1];
		sum2 += (double)w[i + 2] * (double)x[i + 2];
		sum3 += (double)w[i + 3] * (double)x[i + 3];
	}
	for (; i < n; i++)
		sum0 += (double)w[i] * (double)x[i];
	return (sum0 + sum1) + (sum2 + sum3);
}

void cpu_row_products(const struct weight_format *f, const uint8_t *row, u32 n,
	const float *const *x, u32 n_rows, double *sums)
{
	float w[PIECE];
	for (u32 t = 0; t < n_rows; t++)
		sums[t] = 0;
	for (u32 i = 0; i < n; i += PIECE) {
		u32 n_piece = cpu_decode_piece(f, row, i, n, w);
		for (u32 t = 0; t < n_rows; t++)
			sums[t] += dot(w, x[t] + i, n_piece);
	}
}

/* Elements first .. first + n - 1 of a row. */
static void decode_x(const float *row, u32 first, u32 n, float *x)
{
	const uint32_t *words = (const uint32_t *)(const void *)row + first / KV_UNIT * Q8_WORDS;
	for (u32 i = 0; i < n; i += KV_UNIT, words += Q8_WORDS)
		kv_load(KV_Q8_0, words, 0, KV_UNIT, x + i);
}

void cpu_row_products_q8(const struct weight_format *f, const uint8_t *row, u32 n,
	const float *const *x, u32 n_rows, double *sums)
{
	float w[PIECE], piece[PIECE];
	for (u32 t = 0; t < n_rows; t++)
		sums[t] = 0;
	for (u32 i = 0; i < n; i += PIECE) {
		u32 n_piece = cpu_decode_piece(f, row, i, n, w);
		for (u32 t = 0; t < n_rows; t++) {
			decode_x(x[t], i, n_piece, piece);
			sums[t] += dot(w, piece, n_piece);
		}
	}
}

void cpu_quantize_unit(const float *x, uint32_t *words)
{
	float sums[2] = {0};
	kv_store(KV_Q8_0, words, 0, KV_UNIT, x);
	for (u32 i = 0; i < KV_UNIT; i++) {
		sums[i / 16] += (float)(int8_t)(words[1 + i / 4] >> i % 4 * 8);
		if (isnan(x[i]))
			memcpy(words, &x[i], sizeof x[i]);
	}
	memcpy(words + KV_Q8_0_WORDS, sums, sizeof sums);
	words[Q8_WORDS - 1] = 0;
}
