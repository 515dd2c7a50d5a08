/* Least squares for blocks of weights: see weight_fit.h. */
#include "weight_fit.h"

#include <assert.h>
#include <float.h>
#include <math.h>

enum { ROUNDS = 3, LANES = 4 };

/* Added and taken away it leaves the nearest whole number, ties to even, of what is below 2^22. */
static const float rounder = 0x1.8p23f;

float fit_inverse(float scale)
{
	const float inverse = scale != 0 ? 1 / scale : 0;
	return isfinite(inverse) ? inverse : 0;
}

void fit_codes(const float *x, unsigned n, float inverse_scale, float low, float high, float *codes)
{
	for (unsigned i = 0; i < n; i++) {
		float q = x[i] * inverse_scale;
		q = q < low ? low : q > high ? high : q;
		codes[i] = (q + rounder) - rounder;
	}
}

/* Sum of a b, in lanes so that additions do not wait for each other. */
static float sum_of_products(const float *a, const float *b, unsigned n)
{
	float lanes[LANES] = {0};
	for (unsigned i = 0; i < n; i += LANES)
		for (unsigned k = 0; k < LANES; k++)
			lanes[k] += a[i + k] * b[i + k];
	return lanes[0] + lanes[1] + (lanes[2] + lanes[3]);
}

static float sum_of(const float *a, unsigned n)
{
	float lanes[LANES] = {0};
	for (unsigned i = 0; i < n; i += LANES)
		for (unsigned k = 0; k < LANES; k++)
			lanes[k] += a[i + k];
	return lanes[0] + lanes[1] + (lanes[2] + lanes[3]);
}

float fit_error(const float *x, unsigned n, float scale, float minimum, float low, float high)
{
	float codes[FIT_MOST], off[FIT_MOST];
	for (unsigned i = 0; i < n; i++)
		off[i] = x[i] - minimum;
	fit_codes(off, n, fit_inverse(scale), low, high, codes);
	for (unsigned i = 0; i < n; i++)
		off[i] -= scale * codes[i];
	return sum_of_products(off, off, n);
}

/* ---- one number ------------------------------------------------------------------------------ */

/* From that start on. The error is the sum of x^2 less *gain = (sum of x q)^2 / (sum of q^2). */
static float improve_scale(
	const float *x, unsigned n, float start, float low, float high, float *gain)
{
	float codes[FIT_MOST], best = 0;
	*gain = -1;
	for (unsigned round = 0; round < ROUNDS; round++) {
		fit_codes(x, n, fit_inverse(start), low, high, codes);
		const float xq = sum_of_products(x, codes, n);
		const float qq = sum_of_products(codes, codes, n);
		if (!(qq > 0) || !(xq * xq / qq > *gain))
			break;
		*gain = xq * xq / qq;
		best = start = xq / qq;
	}
	return best;
}

float fit_scale(const float *x, unsigned n, float low, float high)
{
	enum { STARTS = 8 }; /* on either side: all codes that the extreme can have in four bits */
	/* Of scales that do as well the largest, which comes later: codes 1 and 2 may be 2 and 4. */
	const float tie = 1e-6f;
	float extreme = 0, best = 0, most = -1;
	assert(n <= FIT_MOST && n % LANES == 0);
	for (unsigned i = 0; i < n; i++)
		extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
	for (int i = 0; extreme != 0 && i < 2 * STARTS; i++) {
		const float code = i < STARTS ? low + (float)i : high + (float)(STARTS - i);
		float gain;
		if (code == 0)
			continue;
		const float scale = improve_scale(x, n, extreme / code, low, high, &gain);
		if (gain >= most * (1 - tie)) {
			most = gain;
			best = scale;
		}
	}
	return best;
}

/* ---- two numbers ----------------------------------------------------------------------------- */

/* Regression of x on the codes. False: there is none, all codes are equal. */
static bool regress(const float *x, const float *codes, unsigned n, float max_minimum, float *scale,
	float *minimum)
{
	const float q = sum_of(codes, n), qq = sum_of_products(codes, codes, n);
	const float sum = sum_of(x, n), xq = sum_of_products(x, codes, n);
	const float determinant = (float)n * qq - q * q; /* exact: sums of small whole numbers */
	if (!(determinant > 0))
		return false;
	*scale = ((float)n * xq - sum * q) / determinant;
	*minimum = (qq * sum - q * xq) / determinant;
	if (*minimum > max_minimum) {
		*minimum = max_minimum;
		*scale = (xq - max_minimum * q) / qq;
	}
	return *scale > 0;
}

void fit_scale_and_minimum(
	const float *x, unsigned n, float high, float max_minimum, float *scale, float *minimum)
{
	/* Steps by which the ends of the range lie inside the extremes. */
	static const float starts[] = {0, 0.15f, 0.3f, 0.45f, 0.6f, 0.8f};
	float smallest = x[0], largest = x[0], least = FLT_MAX;
	assert(n <= FIT_MOST && n % LANES == 0);
	for (unsigned i = 1; i < n; i++) {
		smallest = x[i] < smallest ? x[i] : smallest;
		largest = x[i] > largest ? x[i] : largest;
	}
	smallest = smallest < max_minimum ? smallest : max_minimum;
	largest = largest > smallest ? largest : smallest;
	*scale = 0;
	*minimum = smallest;
	for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++) {
		const float step = (largest - smallest) / high;
		float d = (largest - smallest - 2 * starts[i] * step) / high;
		float m = smallest + starts[i] * step;
		m = m < max_minimum ? m : max_minimum;
		for (unsigned round = 0; round < ROUNDS; round++) {
			float off[FIT_MOST], codes[FIT_MOST];
			const float error = fit_error(x, n, d, m, 0, high);
			if (error < least) {
				least = error;
				*scale = d;
				*minimum = m;
			}
			for (unsigned k = 0; k < n; k++)
				off[k] = x[k] - m;
			fit_codes(off, n, fit_inverse(d), 0, high, codes);
			if (!regress(x, codes, n, max_minimum, &d, &m))
				break;
		}
	}
}
