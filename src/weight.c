/* Plain C decoders of the weight formats, and their table: see weight.h.
 *
 * Each decoder follows the block layout published with ggml (ggml-common.h) in float32, one rounding
 * per operation in the order that defines the format (the build forbids contraction). */
#include "weight.h"

#include <string.h>

#include "weight_iq.h"

/* ---- numbers ----------------------------------------------------------------------------------- */

static float bits_to_float(uint32_t bits)
{
	const union {
		uint32_t bits;
		float f;
	} number = {bits};
	return number.f;
}

float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1F,
		 fraction = h & 0x3FF;
	if (exponent == 0x1F)
		return bits_to_float(sign | 0x7F800000 | fraction << 13);
	if (exponent == 0) {
		float magnitude = (float)fraction * 0x1p-24f;
		return sign ? -magnitude : magnitude;
	}
	return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t float_to_half(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
	if (magnitude > 0x7F800000) /* NaN: quiet, the upper bits of its payload kept */
		return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
	if (magnitude >= 0x477FF000) /* 65520 and above round to infinity */
		return (uint16_t)(sign | 0x7C00);
	if (magnitude <
		0x38800000) { /* below 2^-14: the sum's last place is 2^-24, a subnormal's */
		float sum = bits_to_float(magnitude) + 0.5f;
		memcpy(&bits, &sum, sizeof bits);
		return (uint16_t)(sign | (bits - 0x3F000000));
	}
	uint32_t odd = magnitude >> 13 & 1;
	return (uint16_t)(sign | (magnitude - (112u << 23) + 0xFFF + odd) >> 13);
}

/* ---- decoders ---------------------------------------------------------------------------------- */

static void decode_f32(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = bits_to_float(load_u32(b + 4 * i));
}

static void decode_f16(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = load_half(b + 2 * i);
}

static void decode_bf16(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = bits_to_float((uint32_t)load_u16(b + 2 * i) << 16);
}

/* f16 scale; 32 signed bytes. */
static void decode_q8_0(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 34) {
		float d = load_half(b);
		for (unsigned j = 0; j < 32; j++)
			out[i + j] = (float)(int8_t)b[2 + j] * d;
	}
}

/* f16 scale; 32 nibbles, of value 8 too much. */
static void decode_q4_0(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 18) {
		float d = load_half(b);
		for (unsigned j = 0; j < 32; j++)
			out[i + j] = (float)((int)nibble(b + 2, j) - 8) * d;
	}
}

/* f16 scale, f16 minimum; 32 nibbles. */
static void decode_q4_1(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 20) {
		float d = load_half(b), m = load_half(b + 2);
		for (unsigned j = 0; j < 32; j++)
			out[i + j] = (float)nibble(b + 4, j) * d + m;
	}
}

/* f16 scale; bit j of 32 is the fifth bit of weight j; 32 nibbles; of value 16 too much. */
static void decode_q5_0(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 22) {
		float d = load_half(b);
		uint32_t high = load_u32(b + 2);
		for (unsigned j = 0; j < 32; j++) {
			unsigned q = nibble(b + 6, j) | (high >> j & 1) << 4;
			out[i + j] = (float)((int)q - 16) * d;
		}
	}
}

/* f16 scale, f16 minimum; fifth bits; 32 nibbles. */
static void decode_q5_1(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 24) {
		float d = load_half(b), m = load_half(b + 2);
		uint32_t high = load_u32(b + 4);
		for (unsigned j = 0; j < 32; j++) {
			unsigned q = nibble(b + 8, j) | (high >> j & 1) << 4;
			out[i + j] = (float)q * d + m;
		}
	}
}

/* Six-bit scale and minimum of group g of 8, from 12 bytes: groups 0 to 3 have bytes of their own,
 * groups 4 to 7 split theirs between a byte's nibbles and the upper bits of those bytes. */
static void scale_min_k4(const uint8_t *s, unsigned g, unsigned *scale, unsigned *min)
{
	if (g < 4) {
		*scale = s[g] & 63u;
		*min = s[g + 4] & 63u;
	} else {
		*scale = (s[g + 4] & 15u) | (s[g - 4] & 0xC0u) >> 2;
		*min = (unsigned)s[g + 4] >> 4 | (s[g] & 0xC0u) >> 2;
	}
}

/* f16 scale of scales, f16 scale of minimums; 12 bytes of those; 256 nibbles, each run of 32 bytes
 * holding group 2 r in the low halves and group 2 r + 1 in the high halves. */
static void decode_q4_k(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 144) {
		float d = load_half(b), dmin = load_half(b + 2);
		for (unsigned g = 0; g < 8; g++) {
			unsigned scale, min;
			scale_min_k4(b + 4, g, &scale, &min);
			float ds = d * (float)scale, m = dmin * (float)min;
			const uint8_t *q = b + 16 + 32 * (g / 2);
			for (unsigned j = 0; j < 32; j++) {
				float value = ds * (float)(g % 2 ? q[j] >> 4 : q[j] & 15);
				out[i + 32 * g + j] = value - m;
			}
		}
	}
}

/* As Q4_K, with 32 bytes of fifth bits, bit g of byte j for group g, before the nibbles. */
static void decode_q5_k(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 176) {
		float d = load_half(b), dmin = load_half(b + 2);
		for (unsigned g = 0; g < 8; g++) {
			unsigned scale, min;
			scale_min_k4(b + 4, g, &scale, &min);
			float ds = d * (float)scale, m = dmin * (float)min;
			const uint8_t *q = b + 48 + 32 * (g / 2);
			for (unsigned j = 0; j < 32; j++) {
				unsigned low = g % 2 ? q[j] >> 4 : q[j] & 15u;
				float value = ds * (float)(low | (b[16 + j] >> g & 1u) << 4);
				out[i + 32 * g + j] = value - m;
			}
		}
	}
}

/* 16 bytes, each a nibble of scale (low) and one of minimum for 16 weights; 64 bytes of bit pairs; f16
 * scale of scales, f16 scale of minimums.  In each half of 128 weights, weight 32 r + j is pair r of
 * byte j. */
static void decode_q2_k(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 84) {
		float d = load_half(b + 80), dmin = load_half(b + 82);
		for (unsigned w = 0; w < 256; w++) {
			unsigned half = w / 128, r = w % 128 / 32, j = w % 32;
			unsigned q = b[16 + 32 * half + j] >> 2 * r & 3;
			float ds = d * (float)(b[w / 16] & 15), m = dmin * (float)(b[w / 16] >> 4);
			float value = ds * (float)q;
			out[i + w] = value - m;
		}
	}
}

/* 32 bytes of third bits, bit g of byte j for weight 32 g + j, of value 4 too much; 64 bytes of bit pairs
 * as in Q2_K; 16 scales of 6 bits, of value 32 too much, in 12 bytes: low nibbles of scales 0 to 7 and
 * (upper half) 8 to 15, then pair k / 4 of byte k % 4; f16 scale of scales. */
static void decode_q3_k(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 110) {
		float d = load_half(b + 108);
		const uint8_t *s = b + 96;
		for (unsigned w = 0; w < 256; w++) {
			unsigned half = w / 128, r = w % 128 / 32, j = w % 32, k = w / 16;
			unsigned scale = (k < 8 ? s[k] & 15u : s[k - 8] >> 4u) |
				((unsigned)s[8 + k % 4] >> 2 * (k / 4) & 3u) << 4;
			unsigned q =
				(b[32 + 32 * half + j] >> 2 * r & 3u) | (b[j] >> w / 32 & 1u) << 2;
			float ds = d * (float)((int)scale - 32);
			out[i + w] = ds * (float)((int)q - 4);
		}
	}
}

/* 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, f16 scale; of value 32 too much.
 * In each half of 128 weights, weight 32 r + j has its low bits in byte 32 (r % 2) + j, and its high
 * bits in pair r of byte j. */
static void decode_q6_k(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 210) {
		float d = load_half(b + 208);
		for (unsigned w = 0; w < 256; w++) {
			unsigned half = w / 128, r = w % 128 / 32, j = w % 32;
			unsigned low = b[64 * half + 32 * (r % 2) + j],
				 high = b[128 + 32 * half + j];
			unsigned q = (low >> (r < 2 ? 0 : 4) & 15) | (high >> 2 * r & 3) << 4;
			float ds = d * (float)(int8_t)b[192 + w / 16];
			out[i + w] = ds * (float)((int)q - 32);
		}
	}
}

/* Digit k of a byte that holds 5 ternary digits as a fraction of 256, rounded up: digits are taken from
 * the top by multiplication. */
static unsigned ternary_digit(uint8_t byte, unsigned k)
{
	static const uint8_t powers[] = {1, 3, 9, 27, 81};
	return (uint8_t)(byte * powers[k]) * 3u >> 8;
}

/* 32 bytes of 5 digits, 16 bytes of 5, 4 bytes of 4, f16 scale; of value 1 too much.  Each array gives
 * the first digits of all its bytes, then the second ones. */
static void decode_tq1_0(const uint8_t *b, uint64_t n, float *out)
{
	static const struct {
		unsigned first, n_bytes, n_digits;
	} arrays[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
	for (uint64_t i = 0; i < n; b += 54) {
		float d = load_half(b + 52);
		for (unsigned a = 0; a < ARRAY_COUNT(arrays); a++)
			for (unsigned k = 0; k < arrays[a].n_digits; k++)
				for (unsigned j = 0; j < arrays[a].n_bytes; j++) {
					unsigned q = ternary_digit(b[arrays[a].first + j], k);
					out[i++] = (float)((int)q - 1) * d;
				}
	}
}

/* 64 bytes of bit pairs, f16 scale; of value 1 too much.  In each half of 128 weights, weight 32 r + j is
 * pair r of byte j. */
static void decode_tq2_0(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 66) {
		float d = load_half(b + 64);
		for (unsigned w = 0; w < 256; w++) {
			unsigned q = b[32 * (w / 128) + w % 32] >> 2 * (w % 128 / 32) & 3;
			out[i + w] = (float)((int)q - 1) * d;
		}
	}
}

/* ---- the table --------------------------------------------------------------------------------- */

static const struct weight_format formats[N_WEIGHTS] = {
#define WEIGHT(name, id, label, n, bytes, integers) \
	{#name, label, id, n, bytes, INTEGERS_##integers, decode_##name},
#define INTEGERS_YES true
#define INTEGERS_NO  false
#include "weights.def"
#undef WEIGHT
};

const struct weight_format *weight_format(enum weight weight)
{
	return &formats[weight];
}

const struct weight_format *weight_find(uint32_t gguf_type, enum weight *weight)
{
	for (unsigned i = 0; i < N_WEIGHTS; i++)
		if (formats[i].gguf_type == gguf_type) {
			*weight = (enum weight)i;
			return &formats[i];
		}
	return NULL;
}

const char *weight_gguf_name(uint32_t gguf_type)
{
	/* 4, 5, 31 to 33 and 36 to 38 were withdrawn by ggml; files with them exist. */
	static const char *const names[] = {"F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0",
		"Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS",
		"IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16",
		"I32", "I64", "F64", "IQ1_M", "BF16", "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
		"TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4", "NVFP4", "Q1_0",
		"Q2_0"};
	return gguf_type < ARRAY_COUNT(names) ? names[gguf_type] : NULL;
}

const char *weight_list(void)
{
#define WEIGHT(name, id, label, n, bytes, integers) " " label
	static const char list[] =
#include "weights.def"
		;
#undef WEIGHT
	return list + 1;
}

bool weight_row_bytes(enum weight weight, uint64_t n_cols, uint64_t *n_bytes)
{
	const struct weight_format *f = &formats[weight];
	return n_cols % f->block_weights == 0 &&
		size_mul(n_cols / f->block_weights, f->block_bytes, n_bytes);
}

/* ---- damage ------------------------------------------------------------------------------------ */

/* NaNs and infinities: their exponents are all ones. */
static unsigned count_not_finite(const float *values, unsigned n)
{
	unsigned found = 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &values[i], sizeof bits);
		found += (bits & 0x7F800000) == 0x7F800000;
	}
	return found;
}

uint64_t weight_not_finite(
	enum weight weight, const uint8_t *blocks, uint64_t n, uint64_t *first, float *value)
{
	enum { N_VALUES = 2048 }; /* whole blocks of every format; they stay in the first cache */
	const struct weight_format *f = &formats[weight];
	float values[N_VALUES];
	uint64_t found = 0;
	for (uint64_t i = 0; i < n; i += N_VALUES) {
		unsigned n_values = n - i < N_VALUES ? (unsigned)(n - i) : N_VALUES;
		f->decode(blocks + i / f->block_weights * f->block_bytes, n_values, values);
		unsigned more = count_not_finite(values, n_values);
		if (more && !found) {
			unsigned at = 0;
			while (!count_not_finite(&values[at], 1))
				at++;
			*first = i + at;
			*value = values[at];
		}
		found += more;
	}
	return found;
}
