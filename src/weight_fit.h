/* The numbers of a block of quantised weights: the scale, or scale and minimum, that keep the squared error
 * least.
 *
 * With the codes q given, the best scale is a linear regression; with the scale given, the best codes are the
 * nearest. The two are taken in turns (as in Lloyd 1982) from a few starts, and the best end counts. A room
 * of weight_encode.c alone. */
#ifndef LAPILLI_WEIGHT_FIT_H
#define LAPILLI_WEIGHT_FIT_H

#include <stdbool.h>

#define FIT_MOST 32 /* weights fitted together; their number is a multiple of 4 */

/* The nearest of the whole numbers low .. high to each x * inverse_scale. */
void fit_codes(
	const float *x, unsigned n, float inverse_scale, float low, float high, float *codes);

/* Scale d, of either sign, of x ~ d q with q from low < 0 to high; 0 where all x are 0. */
float fit_scale(const float *x, unsigned n, float low, float high);

/* Scale d >= 0 and minimum m of x ~ d q + m with q from 0 to high. max_minimum: m is not above that. */
void fit_scale_and_minimum(
	const float *x, unsigned n, float high, float max_minimum, float *scale, float *minimum);

/* Sum of (x - d q)^2, or with a minimum of (x - d q - m)^2, q being the nearest codes. */
float fit_error(const float *x, unsigned n, float scale, float minimum, float low, float high);

/* 1 / d, or 0 where that is no number: codes are 0 then. */
float fit_inverse(float scale);

#endif
