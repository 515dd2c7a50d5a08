/* Rows of weights and their products, as all reference kernels take them: decoded piece by piece,
 * summed in double. */
#ifndef LAPILLI_CPU_PRODUCTS_H
#define LAPILLI_CPU_PRODUCTS_H

#include "plan.h"

#define PIECE 256 /* weights decoded at a time: a multiple of every format's block */

/* Weights first .. (at most PIECE of them, a row has n); `first` is a multiple of PIECE.  Returns how
 * many there are. */
u32 cpu_decode_piece(const struct weight_format *f, const uint8_t *row, u32 first, u32 n, float *w);

/* sums[t] = row . x[t] for n_rows rows of n floats; each piece of the weights is decoded once. */
typedef void cpu_row_products_fn(const struct weight_format *f, const uint8_t *row, u32 n,
	const float *const *x, u32 n_rows, double *sums);

cpu_row_products_fn cpu_row_products;

/* The same for rows of x in 8 bits (struct quantize_args): their products with weights, which are
 * integers times a scale themselves, in double. */
cpu_row_products_fn cpu_row_products_q8;

/* KV_UNIT elements of x as Q8_WORDS words. */
void cpu_quantize_unit(const float *x, uint32_t *words);

#endif
