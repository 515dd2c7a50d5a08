/* See products.h. */
#include "products.h"

#define PIECE 256 /* weights decoded at a time: a multiple of every format's block */

/* Four running sums, so that one need not wait for the other. */
double cpu_dot(const float *w, const float *x, u32 n)
{
	double sums[4] = {0};
	u32 i = 0;
	for (; i + 4 <= n; i += 4)
		for (u32 k = 0; k < 4; k++)
			sums[k] += (double)w[i + k] * (double)x[i + k];
	for (; i < n; i++)
		sums[0] += (double)w[i] * (double)x[i];
	return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void cpu_row_products(const struct weight_format *f, const uint8_t *weights, u32 n,
	const float *const *x, u32 n_rows, double *sums)
{
	float w[PIECE];
	for (u32 t = 0; t < n_rows; t++)
		sums[t] = 0;
	for (u32 i = 0; i < n; i += PIECE) {
		u32 n_piece = n - i < PIECE ? n - i : PIECE;
		f->decode(weights + (size_t)(i / f->block_weights) * f->block_bytes, n_piece, w);
		for (u32 t = 0; t < n_rows; t++)
			sums[t] += cpu_dot(w, x[t] + i, n_piece);
	}
}
