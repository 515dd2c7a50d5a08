/* Sums of products, as all reference kernels form them: in double, weights decoded piece by piece. */
#ifndef LAPILLI_CPU_PRODUCTS_H
#define LAPILLI_CPU_PRODUCTS_H

#include "plan.h"

/* sum of w[i] * x[i] */
double cpu_dot(const float *w, const float *x, u32 n);

/* sums[t] = weights . x[t] for n_rows rows of n floats; each piece of the weights is decoded once. */
void cpu_row_products(const struct weight_format *f, const uint8_t *weights, u32 n,
	const float *const *x, u32 n_rows, double *sums);

#endif
