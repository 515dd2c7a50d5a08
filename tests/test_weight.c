/* Weight formats: names and sizes, half floats in both directions, decoders against known blocks. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "weight.h"

static uint32_t bits_of(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

/* ---- half floats ------------------------------------------------------------------------------- */

#define HALF_INFINITY 0x7C00u

/* By the definition: (-1)^sign * 2^(exponent - 15) * 1.fraction, or 2^-14 * 0.fraction. */
static double half_value(uint16_t h)
{
	int exponent = h >> 10 & 0x1F, fraction = h & 0x3FF;
	double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
	return h & 0x8000 ? -magnitude : magnitude;
}

static bool half_is_nan(uint16_t h)
{
	return (h & 0x7FFF) > HALF_INFINITY;
}

Test(half, every_value_and_back)
{
	for (uint32_t i = 0; i <= UINT16_MAX; i++) {
		uint16_t h = (uint16_t)i;
		float f = half_to_float(h);
		if (half_is_nan(h)) {
			cr_expect(isnan(f) && half_is_nan(float_to_half(f)), "0x%04X", h);
			cr_expect_eq(float_to_half(f) & 0x8000, h & 0x8000, "sign of 0x%04X", h);
			continue;
		}
		if ((h & 0x7FFF) == HALF_INFINITY)
			cr_expect(isinf(f) && (f < 0) == (h >> 15), "0x%04X is %g", h, (double)f);
		else
			cr_expect((double)f == half_value(h) && !signbit(f) == !(h & 0x8000),
				"0x%04X is %.9g, expected %.9g", h, (double)f, half_value(h));
		cr_expect_eq(
			float_to_half(f), h, "0x%04X comes back as 0x%04X", h, float_to_half(f));
	}
}

/* Between each two neighbours: the middle goes to the even one, a float nearer goes to its own. */
Test(half, rounds_to_nearest_even)
{
	for (uint16_t low = 0; low < HALF_INFINITY; low++) {
		uint16_t high = (uint16_t)(low + 1), even = low % 2 ? high : low;
		double above = high == HALF_INFINITY ? 65536.0 : half_value(high);
		float middle = (float)((half_value(low) + above) / 2);
		float below = nextafterf(middle, 0), beyond = nextafterf(middle, INFINITY);
		for (int sign = 0; sign < 2; sign++) {
			uint16_t s = sign ? 0x8000 : 0;
			float factor = sign ? -1.0f : 1.0f;
			cr_expect_eq(
				float_to_half(factor * middle), s | even, "middle of 0x%04X", low);
			cr_expect_eq(float_to_half(factor * below), s | low, "below 0x%04X", low);
			cr_expect_eq(
				float_to_half(factor * beyond), s | high, "beyond 0x%04X", low);
		}
	}
}

Test(half, ends_of_the_range)
{
	cr_expect_eq(float_to_half(65519.996f), 0x7BFF);
	cr_expect_eq(float_to_half(65520.0f), 0x7C00);
	cr_expect_eq(float_to_half(3e38f), 0x7C00);
	cr_expect_eq(float_to_half(-INFINITY), 0xFC00);
	cr_expect_eq(float_to_half(0x1p-149f), 0);
	cr_expect_eq(float_to_half(-0x1p-149f), 0x8000);
	cr_expect_eq(float_to_half(0x1p-25f), 0);
	cr_expect_eq(float_to_half(0x1.000002p-25f), 1);
	cr_expect_eq(float_to_half(0x1.ffep-15f), 0x3FF + 1, "rounds up into the normal numbers");
}

/* ---- the table --------------------------------------------------------------------------------- */

Test(weight, table_agrees_with_gguf)
{
	cr_assert_eq(WEIGHT_f32, 0, "F32 comes first");
	for (unsigned i = 0; i < N_WEIGHTS; i++) {
		const struct weight_format *f = weight_format((enum weight)i);
		enum weight found = N_WEIGHTS;
		cr_expect_str_eq(weight_gguf_name(f->gguf_type), f->label);
		cr_expect_eq(weight_find(f->gguf_type, &found), f);
		cr_expect_eq(found, (enum weight)i);
		cr_expect(strstr(weight_list(), f->label), "%s is not in %s", f->label,
			weight_list());
	}
}

Test(weight, names_of_types_we_cannot_read)
{
	enum weight weight;
	cr_expect_str_eq(weight_gguf_name(9), "Q8_1");
	cr_expect_str_eq(weight_gguf_name(40), "NVFP4");
	cr_expect_null(weight_gguf_name(250));
	cr_expect_null(weight_gguf_name(UINT32_MAX));
	cr_expect_null(weight_find(40, &weight));
	cr_expect_null(weight_find(250, &weight));
}

Test(weight, row_bytes)
{
	uint64_t n_bytes = 7;
	cr_expect(weight_row_bytes(WEIGHT_q8_0, 96, &n_bytes));
	cr_expect_eq(n_bytes, 3 * 34);
	cr_expect(weight_row_bytes(WEIGHT_q6_k, 512, &n_bytes));
	cr_expect_eq(n_bytes, 2 * 210);
	cr_expect(weight_row_bytes(WEIGHT_f16, 0, &n_bytes));
	cr_expect_eq(n_bytes, 0);
	n_bytes = 7;
	cr_expect_not(weight_row_bytes(WEIGHT_q8_0, 33, &n_bytes));
	cr_expect_not(weight_row_bytes(WEIGHT_q4_k, 288, &n_bytes));
	cr_expect_not(weight_row_bytes(WEIGHT_f32, UINT64_C(1) << 62, &n_bytes));
	cr_expect_eq(n_bytes, 7, "left alone on failure");
}

/* ---- decoders ---------------------------------------------------------------------------------- */

static uint8_t *parse_hex(const char *hex, size_t *n_bytes)
{
	*n_bytes = strlen(hex) / 2;
	uint8_t *bytes = malloc(*n_bytes ? *n_bytes : 1);
	cr_assert(bytes);
	for (size_t i = 0; i < *n_bytes; i++) {
		unsigned byte;
		cr_assert_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		bytes[i] = (uint8_t)byte;
	}
	return bytes;
}

/* Bit for bit, so that -0, subnormal scales and the order of operations count. */
static void check_blocks(const struct weight_format *f, json_t *entry)
{
	cr_assert(entry, "no blocks of %s", f->label);
	cr_expect_eq(json_integer_value(json_object_get(entry, "type")), f->gguf_type);
	cr_expect_eq(
		json_integer_value(json_object_get(entry, "values_per_block")), f->block_weights);
	cr_expect_eq(json_integer_value(json_object_get(entry, "bytes_per_block")), f->block_bytes);
	size_t n_bytes;
	uint8_t *blocks = parse_hex(json_string_value(json_object_get(entry, "hex")), &n_bytes);
	json_t *values = json_object_get(entry, "values");
	size_t n = json_array_size(values), n_wrong = 0;
	cr_assert_gt(n, 0);
	cr_assert_eq(n / f->block_weights * f->block_bytes, n_bytes);
	float *out = calloc(n, sizeof *out);
	cr_assert(out);
	f->decode(blocks, n, out);
	for (size_t i = 0; i < n; i++) {
		float expected = (float)json_number_value(json_array_get(values, i));
		if (bits_of(out[i]) != bits_of(expected) && n_wrong++ == 0)
			cr_expect(false, "%s: weight %zu is %.9g, expected %.9g", f->label, i,
				(double)out[i], (double)expected);
	}
	cr_expect_eq(n_wrong, 0, "%s: %zu of %zu weights are wrong", f->label, n_wrong, n);
	free(out);
	free(blocks);
}

Test(weight, decodes_known_blocks)
{
	json_t *root = json_load_file(vector_path("blocks.json"), 0, NULL);
	cr_assert(root);
	for (unsigned i = 0; i < N_WEIGHTS; i++) {
		const struct weight_format *f = weight_format((enum weight)i);
		check_blocks(f, json_object_get(root, f->label));
	}
	json_decref(root);
}

/* A scale of 2^-24, the smallest half, in each format that has one: nothing is flushed to zero. */
Test(weight, subnormal_scales)
{
	float out[256];
	uint8_t q8_0[34] = {1, 0, 3}, q4_0[18] = {1, 0, 9}, q4_1[20] = {1, 0, 2, 0, 3};
	weight_format(WEIGHT_q8_0)->decode(q8_0, 32, out);
	cr_expect_eq(out[0], 3 * 0x1p-24f);
	weight_format(WEIGHT_q4_0)->decode(q4_0, 32, out);
	cr_expect_eq(out[0], 0x1p-24f);
	cr_expect_eq(out[16], -8 * 0x1p-24f);
	weight_format(WEIGHT_q4_1)->decode(q4_1, 32, out);
	cr_expect_eq(out[0], 5 * 0x1p-24f);
	uint8_t q6_k[210] = {0};
	q6_k[192] = 0xFF; /* scale -1 of the first 16 */
	q6_k[208] = 1;
	weight_format(WEIGHT_q6_k)->decode(q6_k, 256, out);
	cr_expect_eq(out[0], 32 * 0x1p-24f);
	uint8_t q4_k[144] = {1, 0, 1, 0, 63};
	q4_k[4 + 4] = 2; /* minimum of group 0 */
	q4_k[16] = 5;
	weight_format(WEIGHT_q4_k)->decode(q4_k, 256, out);
	cr_expect_eq(out[0], (5 * 63 - 2) * 0x1p-24f);
}

/* E8M0 exponents 0 and 1, whose weights are subnormal floats, and the last one. */
Test(weight, mxfp4_exponents)
{
	float out[32];
	uint8_t block[17] = {0, 0x91, 0xF7};
	weight_format(WEIGHT_mxfp4)->decode(block, 32, out);
	cr_expect_eq(out[0], 0x1p-128f);
	cr_expect_eq(out[16], -0x1p-128f);
	cr_expect_eq(out[1], 12 * 0x1p-128f);
	cr_expect_eq(out[17], -12 * 0x1p-128f);
	block[0] = 1;
	weight_format(WEIGHT_mxfp4)->decode(block, 32, out);
	cr_expect_eq(out[0], 0x1p-127f);
	block[0] = 255;
	weight_format(WEIGHT_mxfp4)->decode(block, 32, out);
	cr_expect_eq(out[0], 0x1p127f);
}
