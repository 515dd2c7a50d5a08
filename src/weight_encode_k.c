/* Encoders of the formats whose blocks of 256 have groups with scales of their own: see weight_encode.h. */
#include <math.h>
#include <string.h>

#include "weight_encode.h"
#include "weight_fit.h"

enum {
	BLOCK = 256,
	GROUP = 32, /* of Q4_K and Q5_K */
	N_GROUPS = BLOCK / GROUP,
	GROUP_6 = 16, /* of Q6_K */
	N_GROUPS_6 = BLOCK / GROUP_6,
	MOST_SCALE = 63,
	MOST_SCALE_6 = 127
};

/* Whole numbers from 0 to 63. */
static int scale_code(float x)
{
	return x < 0 ? 0 : x > MOST_SCALE ? MOST_SCALE : (int)(x + 0.5f);
}

/* Six bits of scale and minimum of each group: decoded by scale_min_k4 of weight.c. */
static void store_scales(uint8_t s[12], const int scales[N_GROUPS], const int mins[N_GROUPS])
{
	for (unsigned g = 0; g < 4; g++) {
		s[g] = (uint8_t)(scales[g] | scales[g + 4] >> 4 << 6);
		s[g + 4] = (uint8_t)(mins[g] | mins[g + 4] >> 4 << 6);
		s[g + 8] = (uint8_t)((scales[g + 4] & 15) | (mins[g + 4] & 15) << 4);
	}
}

/* Scale and minimum of a group in whole units of the block's: the nearest ones, or those beside them where
 * together they do better. */
static void choose_scale(
	const float *x, float d, float dmin, float high, float scale, float minimum, int *s, int *m)
{
	const int near_s = scale_code(scale * fit_inverse(d));
	const int near_m = scale_code(minimum * fit_inverse(dmin));
	float least = INFINITY;
	*s = near_s;
	*m = near_m;
	for (int i = near_s - 1; i <= near_s + 1; i++)
		for (int k = near_m - 1; k <= near_m + 1; k++) {
			if (i < 0 || i > MOST_SCALE || k < 0 || k > MOST_SCALE)
				continue;
			const float error =
				fit_error(x, GROUP, d * (float)i, -dmin * (float)k, 0, high);
			if (error < least) {
				least = error;
				*s = i;
				*m = k;
			}
		}
}

/* The block's head, 16 bytes, and the codes of its weights: x ~ d s q - dmin m. */
static void encode_groups(const float *x, float high, uint8_t *b, float codes[BLOCK])
{
	float scales[N_GROUPS], minimums[N_GROUPS], most_scale = 0, most_minimum = 0;
	int s[N_GROUPS], m[N_GROUPS];
	for (unsigned g = 0; g < N_GROUPS; g++) {
		float minimum;
		fit_scale_and_minimum(x + g * GROUP, GROUP, high, 0, &scales[g], &minimum);
		minimums[g] = -minimum;
		most_scale = fmaxf(most_scale, scales[g]);
		most_minimum = fmaxf(most_minimum, minimums[g]);
	}
	const float d = store_half(b, most_scale / MOST_SCALE);
	const float dmin = store_half(b + 2, most_minimum / MOST_SCALE);
	for (unsigned g = 0; g < N_GROUPS; g++) {
		float off[GROUP];
		choose_scale(x + g * GROUP, d, dmin, high, scales[g], minimums[g], &s[g], &m[g]);
		for (unsigned j = 0; j < GROUP; j++)
			off[j] = x[g * GROUP + j] + dmin * (float)m[g];
		fit_codes(off, GROUP, fit_inverse(d * (float)s[g]), 0, high, codes + g * GROUP);
	}
	store_scales(b + 4, s, m);
}

/* Nibbles of two groups in each run of 32 bytes. */
static void store_nibbles(const float codes[BLOCK], uint8_t *q)
{
	for (unsigned pair = 0; pair < N_GROUPS / 2; pair++)
		for (unsigned j = 0; j < GROUP; j++) {
			const unsigned low = (unsigned)codes[2 * pair * GROUP + j] & 15;
			const unsigned high = (unsigned)codes[(2 * pair + 1) * GROUP + j] & 15;
			q[pair * GROUP + j] = (uint8_t)(low | high << 4);
		}
}

void encode_q4_k(const float *x, uint64_t n, uint8_t *b)
{
	float codes[BLOCK];
	for (uint64_t i = 0; i < n; i += BLOCK, b += 144) {
		encode_groups(x + i, 15, b, codes);
		store_nibbles(codes, b + 16);
	}
}

void encode_q5_k(const float *x, uint64_t n, uint8_t *b)
{
	float codes[BLOCK];
	for (uint64_t i = 0; i < n; i += BLOCK, b += 176) {
		encode_groups(x + i, 31, b, codes);
		memset(b + 16, 0, GROUP);
		for (unsigned w = 0; w < BLOCK; w++)
			b[16 + w % GROUP] |= (uint8_t)((unsigned)codes[w] >> 4 << w / GROUP);
		store_nibbles(codes, b + 48);
	}
}

/* The whole number of the block's units nearest to a group's scale, or the one beside it that does better. */
static int choose_scale_6(const float *x, float d, float scale)
{
	const float exact = scale * fit_inverse(d);
	const int near = (int)lrintf(fmaxf(-MOST_SCALE_6, fminf(MOST_SCALE_6, exact)));
	float least = INFINITY;
	int best = near;
	for (int i = near - 1; i <= near + 1; i++) {
		const float error = i < -MOST_SCALE_6 || i > MOST_SCALE_6
			? INFINITY
			: fit_error(x, GROUP_6, d * (float)i, 0, -32, 31);
		if (error < least) {
			least = error;
			best = i;
		}
	}
	return best;
}

void encode_q6_k(const float *x, uint64_t n, uint8_t *b)
{
	for (uint64_t i = 0; i < n; i += BLOCK, b += 210) {
		float scales[N_GROUPS_6], codes[BLOCK], most = 0;
		for (unsigned g = 0; g < N_GROUPS_6; g++) {
			scales[g] = fit_scale(x + i + g * GROUP_6, GROUP_6, -32, 31);
			most = fmaxf(most, fabsf(scales[g]));
		}
		const float d = store_half(b + 208, most / MOST_SCALE_6);
		for (unsigned g = 0; g < N_GROUPS_6; g++) {
			const float *group = x + i + g * GROUP_6;
			const int s = choose_scale_6(group, d, scales[g]);
			fit_codes(group, GROUP_6, fit_inverse(d * (float)s), -32, 31,
				codes + g * GROUP_6);
			b[192 + g] = (uint8_t)(int8_t)s;
		}
		memset(b, 0, 192);
		for (unsigned w = 0; w < BLOCK; w++) {
			const unsigned half = w / 128, r = w % 128 / 32, j = w % 32;
			const unsigned q = (unsigned)((int)codes[w] + 32);
			b[64 * half + 32 * (r % 2) + j] |= (uint8_t)((q & 15) << (r < 2 ? 0 : 4));
			b[128 + 32 * half + j] |= (uint8_t)(q >> 4 << 2 * r);
		}
	}
}
