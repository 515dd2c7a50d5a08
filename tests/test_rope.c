/* The table of angles, where short prompts would hide a mistake. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"
#include "support.h"

#define PI 3.14159265358979323846

/* What converters put into rope_freqs for Llama 3.1 and later: pairs that turn faster than `high` times
 * over the old context keep their speed, those slower than `low` times are divided by `factor`. */
static double llama3_divisor(double frequency, double factor)
{
	const double old_context = 8192, low = 1, high = 4;
	double turns = old_context * frequency / (2 * PI);
	if (turns > high)
		return 1;
	if (turns < low)
		return factor;
	double smooth = (turns - low) / (high - low);
	return 1 / ((1 - smooth) / factor + smooth);
}

/* OB-23.  `middle` are the divisors from pair `first` on that are neither 1 nor `factor`. */
static void check_llama3(
	uint32_t head_dim, double factor, uint32_t first, uint32_t n_middle, const double *middle)
{
	enum { N_CTX = 9001 };
	const double theta = 500000;
	const uint32_t n_pairs = head_dim / 2, positions[] = {0, 20, N_CTX - 1};
	float divisors[64], *table = array_alloc(N_CTX, head_dim * sizeof(float));
	cr_assert(table && n_pairs <= ARRAY_COUNT(divisors));
	for (uint32_t i = 0; i < n_pairs; i++) {
		double d = llama3_divisor(pow(theta, -2.0 * i / head_dim), factor);
		double expected = i < first ? 1 : i < first + n_middle ? middle[i - first] : factor;
		cr_expect_float_eq(d, expected, 1e-5 * expected, "pair %u: %.6f", i, d);
		divisors[i] = (float)d;
	}
	struct model m = {
		.h = {.n_rot = head_dim,
			.rope_theta = (float)theta,
			.rope_scale = 1,
			.rope_attn_factor = 1},
		.rope_freqs = {.data = (const uint8_t *)divisors, .n_rows = 1, .n_cols = n_pairs},
	};
	rope_table(&m, N_CTX, false, table);
	double without = 0; /* what the divisors change, far from the start */
	for (size_t k = 0; k < ARRAY_COUNT(positions); k++)
		for (uint32_t i = 0; i < n_pairs; i++) {
			const float *pair = table + ((size_t)positions[k] * n_pairs + i) * 2;
			double plain = positions[k] * pow(theta, -2.0 * i / head_dim);
			double angle = plain / (double)divisors[i];
			cr_expect_float_eq((double)pair[0], cos(angle), 1e-6,
				"position %u, pair %u", positions[k], i);
			cr_expect_float_eq((double)pair[1], sin(angle), 1e-6,
				"position %u, pair %u", positions[k], i);
			without = fmax(without, fabs((double)pair[1] - sin(plain)));
		}
	cr_expect_gt(without, 0.5, "the divisors are seen");
	free(table);
}

Test(rope, llama3_divisors)
{
	const double d64[] = {1.65133, 3.29226, 9.66673};
	const double d128[] = {1.20748, 1.55341, 2.02631, 2.69453, 3.68425, 5.25733};
	check_llama3(64, 32, 15, ARRAY_COUNT(d64), d64);
	check_llama3(128, 8, 29, ARRAY_COUNT(d128), d128);
}
