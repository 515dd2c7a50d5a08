/* Encoders of weights: what a format can hold comes back, what it cannot is as near as it can be. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "weight_encode.h"
#include "weight_fit.h"

static uint32_t state = 1;

static uint32_t draw(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)n * (state >> 8) >> 24);
}

static float draw_uniform(void) /* -1 to 1 */
{
	return (float)draw(1u << 24) * 0x1p-23f - 1;
}

static float draw_normal(void)
{
	float sum = 0;
	for (int i = 0; i < 12; i++) /* of variance 1/3 each */
		sum += draw_uniform();
	return sum * 0.5f;
}

/* Encoded and decoded again. */
static void round_trip(enum weight weight, const float *x, uint64_t n, float *out)
{
	uint8_t blocks[4096];
	const struct weight_format *f = weight_format(weight);
	cr_assert_leq(n / f->block_weights * f->block_bytes, sizeof blocks);
	weight_encoder(weight)(x, n, blocks);
	f->decode(blocks, n, out);
}

static double squared_error(const float *a, const float *b, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
	return sum;
}

static void expect_same_bits(const float *a, const float *b, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		cr_assert(a[i] == b[i], "%s: weight %zu is %.9g, expected %.9g", what, i,
			(double)b[i], (double)a[i]);
}

/* ---- what a format can hold -------------------------------------------------------------------- */

Test(weight_encode, whole_numbers)
{
	static const float values[] = {0, -0.0f, 1, -2, 65504, 0x1p-24f, 1.5f, -0x1.004p0f};
	static const enum weight whole[] = {WEIGHT_f32, WEIGHT_f16};
	float out[ARRAY_COUNT(values)];
	for (size_t i = 0; i < ARRAY_COUNT(whole); i++) {
		round_trip(whole[i], values, ARRAY_COUNT(values), out);
		cr_expect(
			memcmp(out, values, sizeof out) == 0, "%s", weight_format(whole[i])->label);
	}
	/* to the nearest of 8 bits, ties to even */
	const float fine[] = {0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, -0x1.01p0f, 3.4e38f};
	const float near[] = {0x1p0f, 0x1.04p0f, 0x1.02p0f, -0x1p0f, INFINITY};
	round_trip(WEIGHT_bf16, fine, 5, out);
	expect_same_bits(near, out, 5, "BF16");
}

/* Every block that a Q4_0 decoder can give but for those with a scale of 0, and Q8_0's whose largest code is
 * 127, come back bit for bit. */
Test(weight_encode, blocks_come_back)
{
	for (int i = 0; i < 400; i++) {
		float x[32], out[32];
		const float d = half_to_float((uint16_t)(draw(0x7000) + 0x400)); /* normal */
		const int most = (int)draw(8) + 1;                               /* code */
		for (int j = 0; j < 32; j++)
			x[j] = d * (float)((int)draw((uint32_t)most * 2) - most);
		x[draw(32)] = -d * (float)most;
		round_trip(WEIGHT_q4_0, x, 32, out);
		expect_same_bits(x, out, 32, "Q4_0");
		for (int j = 0; j < 32; j++)
			x[j] = d * (float)((int)draw(255) - 127);
		x[draw(32)] = draw(2) ? d * 127 : d * -127;
		if (d * 127 > 3e38f)
			continue;
		round_trip(WEIGHT_q8_0, x, 32, out);
		expect_same_bits(x, out, 32, "Q8_0");
	}
}

Test(weight_encode, zeros_and_equal_weights)
{
	static const float values[] = {0, 0.25f, -0.25f, 1e-30f};
	for (unsigned w = 0; w < N_WEIGHTS; w++) {
		const struct weight_format *f = weight_format((enum weight)w);
		if (!weight_encoder((enum weight)w))
			continue;
		for (size_t v = 0; v < ARRAY_COUNT(values); v++) {
			float x[256], out[256];
			for (int i = 0; i < 256; i++)
				x[i] = values[v];
			round_trip((enum weight)w, x, 256, out);
			for (int i = 0; i < 256; i++)
				cr_assert_float_eq((double)out[i], (double)values[v],
					fabs((double)values[v]) * 0x1p-8 + 1e-8, "%s: %g as %g",
					f->label, (double)values[v], (double)out[i]);
		}
	}
}

/* ---- what it cannot ---------------------------------------------------------------------------- */

/* Weights that are uniform over a range are best kept by equal steps over it, from end to end: with n steps the
 * mean square error is (range / n)^2 / 12.  A search does better, as the range of 32 or 16 weights is smaller, and
 * steps can be laid so that they are met; a format loses a little by scales that are rounded, and by codes that do not lie evenly
 * about 0 (Q4_0 has -8 to 7). */
Test(weight_encode, error_of_uniform_weights)
{
	static const struct {
		enum weight weight;
		double n_steps;
	} cases[] = {{WEIGHT_q8_0, 254}, {WEIGHT_q5_0, 31}, {WEIGHT_q5_1, 31}, {WEIGHT_q4_0, 15},
		{WEIGHT_q4_1, 15}, {WEIGHT_q6_k, 63}, {WEIGHT_q5_k, 31}, {WEIGHT_q4_k, 15}};
	enum { N = 512, TIMES = 20 };
	for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
		float x[N], out[N];
		double sum = 0;
		for (int i = 0; i < TIMES; i++) {
			for (int k = 0; k < N; k++)
				x[k] = draw_uniform();
			round_trip(cases[c].weight, x, N, out);
			sum += squared_error(x, out, N);
		}
		const double best = pow(2 / cases[c].n_steps, 2) / 12;
		const double ratio = sum / (N * TIMES) / best;
		cr_expect(ratio > 0.5 && ratio < 1.08, "%s: %.3f times the error of equal steps",
			weight_format(cases[c].weight)->label, ratio);
	}
}

/* The least error that any scale gives, found by trying 4000 of them. */
static double best_scale_error(const float *x, unsigned n, float low, float high)
{
	float most = 0;
	double least = DBL_MAX;
	for (unsigned i = 0; i < n; i++)
		most = fmaxf(most, fabsf(x[i]));
	for (int i = -2000; i <= 2000; i++) {
		const float d = most / -low * 1.5f * (float)i / 2000;
		least = fmin(least, (double)fit_error(x, n, d, 0, low, high));
	}
	return least;
}

static double best_affine_error(const float *x, unsigned n, float high)
{
	float smallest = x[0], largest = x[0];
	double least = DBL_MAX;
	for (unsigned i = 1; i < n; i++) {
		smallest = fminf(smallest, x[i]);
		largest = fmaxf(largest, x[i]);
	}
	const float step = (largest - smallest) / high;
	for (int i = -20; i <= 100; i++)
		for (int k = -20; k <= 100; k++) {
			const float m = smallest + step * 0.02f * (float)i;
			const float d = (largest - step * 0.02f * (float)k - m) / high;
			least = fmin(least, (double)fit_error(x, n, d, m, 0, high));
		}
	return least;
}

/* The search looks at a few of the places where the best could be. */
Test(weight_encode, search_finds_almost_the_best)
{
	double found = 0, best = 0, affine_found = 0, affine_best = 0;
	for (int i = 0; i < 60; i++) {
		float x[32], d, m;
		for (int k = 0; k < 32; k++)
			x[k] = draw_normal() * (draw(40) ? 1 : 4); /* a few far out */
		found += (double)fit_error(x, 32, fit_scale(x, 32, -8, 7), 0, -8, 7);
		best += best_scale_error(x, 32, -8, 7);
		fit_scale_and_minimum(x, 32, 15, INFINITY, &d, &m);
		cr_expect_gt(d, 0);
		affine_found += (double)fit_error(x, 32, d, m, 0, 15);
		affine_best += best_affine_error(x, 32, 15);
	}
	cr_expect_leq(found, 1.03 * best, "%g, and %g is possible", found, best);
	cr_expect_leq(affine_found, 1.08 * affine_best, "%g, and %g is possible", affine_found,
		affine_best);
}

/* Groups with a minimum above 0 have none: the K formats subtract. */
Test(weight_encode, a_minimum_is_not_above_its_limit)
{
	float x[32], d, m;
	for (int i = 0; i < 32; i++)
		x[i] = 2 + 0.01f * (float)i;
	fit_scale_and_minimum(x, 32, 15, 0, &d, &m);
	cr_expect_eq(m, 0);
	cr_expect_float_eq(d, 2.155f / 15, 0.01f);
	fit_scale_and_minimum(x, 32, 15, INFINITY, &d, &m);
	cr_expect_float_eq(m, 2, 0.02f);
	for (int i = 0; i < 32; i++)
		x[i] = -2 - 0.01f * (float)i;
	fit_scale_and_minimum(x, 32, 15, 0, &d, &m);
	cr_expect_float_eq(m, -2.31f, 0.02f);
}

/* Groups of very different sizes in one block: the smallest keep what their scale can say. */
Test(weight_encode, groups_of_different_sizes)
{
	static const enum weight formats[] = {WEIGHT_q4_k, WEIGHT_q5_k, WEIGHT_q6_k};
	static const double steps[] = {15, 31, 63};
	for (size_t f = 0; f < ARRAY_COUNT(formats); f++) {
		float x[256], out[256];
		for (int i = 0; i < 256; i++)
			x[i] = draw_uniform() / (float)(1 << (i / 32 % 5));
		round_trip(formats[f], x, 256, out);
		for (int g = 0; g < 8; g++) {
			const double range = 2.0 / (1 << g % 5);
			const double rms = sqrt(squared_error(x + 32 * g, out + 32 * g, 32) / 32);
			cr_expect(rms < 1.35 * range / steps[f] / sqrt(12), "%s, group %d: %g",
				weight_format(formats[f])->label, g, rms);
		}
	}
}
