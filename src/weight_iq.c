/* Plain C decoders of the formats that look their values up in codebooks.h: see weight_iq.h.
 *
 * In the IQ1, IQ2 and IQ3 formats a block of 256 weights is 8 groups of 32, a group 4 runs of 8 weights,
 * and a run is one grid entry (IQ3: two) with a sign for each weight (IQ1: none). */
#include "weight_iq.h"

#include <string.h>

#include "codebooks.h"

/* ---- lookups ----------------------------------------------------------------------------------- */

/* Bits 2 i and 2 i + 1 of an entry of 16 bits. */
static unsigned grid_code(const uint32_t *grid, unsigned entry, unsigned i)
{
	return grid[entry / 2] >> (16 * (entry % 2) + 2 * i) & 3;
}

static float with_sign(float value, unsigned signs, unsigned i)
{
	return signs >> i & 1 ? -value : value;
}

/* Seven signs in 7 bits; the eighth makes the number of minus signs even. */
static unsigned eight_signs(unsigned seven)
{
	unsigned parity = seven ^ seven >> 4;
	parity ^= parity >> 2;
	parity ^= parity >> 1;
	return seven | (parity & 1) << 7;
}

static void iq2_run(const uint32_t *grid, unsigned entry, unsigned signs, float d, float *out)
{
	static const float values[] = {8, 25, 43};
	for (unsigned i = 0; i < 8; i++)
		out[i] = with_sign(d * values[grid_code(grid, entry, i)], signs, i);
}

/* The two entries of a run, each for 4 weights. */
static void iq3_run(uint32_t first, uint32_t second, unsigned signs, float d, float *out)
{
	for (unsigned i = 0; i < 8; i++) {
		uint32_t entry = i < 4 ? first : second;
		out[i] = with_sign(d * (float)(entry >> 8 * (i % 4) & 0xFF), signs, i);
	}
}

static void iq1_run(unsigned entry, float delta, float d, float *out)
{
	for (unsigned i = 0; i < 8; i++)
		out[i] = d * ((float)((int)grid_code(grid_iq1, entry, i) - 1) + delta);
}

static float nibble_value(const uint32_t *values, unsigned i)
{
	return (float)(int8_t)(values[i / 4] >> 8 * (i % 4));
}

/* ---- IQ1 --------------------------------------------------------------------------------------- */

/* f16 scale; 32 low bytes of entries; a 16-bit word per group: upper 3 bits of its 4 entries, 3 bits of
 * scale, the sign of its delta. */
void decode_iq1_s(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 50)
		for (unsigned g = 0; g < 8; g++) {
			unsigned high = load_u16(b + 34 + 2 * g);
			float d = load_half(b) * (float)(2 * (high >> 12 & 7) + 1);
			float delta = high & 0x8000 ? -IQ1_DELTA : IQ1_DELTA;
			for (unsigned r = 0; r < 4; r++) {
				unsigned entry = b[2 + 4 * g + r] | (high >> 3 * r & 7) << 8;
				iq1_run(entry, delta, d, out + i + 32 * g + 8 * r);
			}
		}
}

/* 32 low bytes of entries; a nibble per run: upper 3 bits of the entry, the sign of its delta; four
 * 16-bit words, each with 3 bits of scale for 4 half groups and a nibble of the block's f16 scale. */
void decode_iq1_m(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 56) {
		unsigned half = 0;
		for (unsigned k = 0; k < 4; k++)
			half |= (unsigned)load_u16(b + 48 + 2 * k) >> 12 << 4 * k;
		for (unsigned run = 0; run < 32; run++) {
			unsigned scales = load_u16(b + 48 + 2 * (run / 8));
			unsigned scale = scales >> 3 * (run / 2 % 4) & 7;
			unsigned high = (unsigned)b[32 + run / 2] >> 4 * (run % 2);
			float d = half_to_float((uint16_t)half) * (float)(2 * scale + 1);
			float delta = high & 8 ? -IQ1_DELTA : IQ1_DELTA;
			iq1_run(b[run] | (high & 7) << 8, delta, d, out + i + 8 * run);
		}
	}
}

/* ---- IQ2 --------------------------------------------------------------------------------------- */

/* f16 scale; per group 4 entries of 8 bits, then a word of 4 times 7 signs and 4 bits of scale. */
void decode_iq2_xxs(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 66)
		for (unsigned g = 0; g < 8; g++) {
			const uint8_t *entries = b + 2 + 8 * g;
			uint32_t word = load_u32(entries + 4);
			float d = load_half(b) * (0.5f + (float)(word >> 28)) * 0.25f;
			for (unsigned r = 0; r < 4; r++)
				iq2_run(grid_iq2_xxs, entries[r], eight_signs(word >> 7 * r & 127),
					d, out + i + 32 * g + 8 * r);
		}
}

/* f16 scale; per run 9 bits of entry and 7 signs; per group two nibbles of scale, each for 2 runs. */
void decode_iq2_xs(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 74)
		for (unsigned run = 0; run < 32; run++) {
			unsigned word = load_u16(b + 2 + 2 * run);
			unsigned scale = (unsigned)b[66 + run / 4] >> 4 * (run / 2 % 2) & 15u;
			float d = load_half(b) * (0.5f + (float)scale) * 0.25f;
			iq2_run(grid_iq2_xs, word & 511, eight_signs(word >> 9), d,
				out + i + 8 * run);
		}
}

/* f16 scale; per run a low byte of entry; 32 bytes of signs; per group a byte with the upper 2 bits of
 * its 4 entries; scales as IQ2_XS. */
void decode_iq2_s(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 82)
		for (unsigned run = 0; run < 32; run++) {
			unsigned high = (unsigned)b[66 + run / 4] >> 2 * (run % 4) & 3u;
			unsigned scale = (unsigned)b[74 + run / 4] >> 4 * (run / 2 % 2) & 15u;
			float d = load_half(b) * (0.5f + (float)scale) * 0.25f;
			iq2_run(grid_iq2_s, b[2 + run] | high << 8, b[34 + run], d,
				out + i + 8 * run);
		}
}

/* ---- IQ3 --------------------------------------------------------------------------------------- */

/* f16 scale; 64 entries of 8 bits; per group a word of 4 times 7 signs and 4 bits of scale. */
void decode_iq3_xxs(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 98)
		for (unsigned g = 0; g < 8; g++) {
			const uint8_t *entries = b + 2 + 8 * g;
			uint32_t word = load_u32(b + 66 + 4 * g);
			float d = load_half(b) * (0.5f + (float)(word >> 28)) * 0.5f;
			for (unsigned r = 0; r < 4; r++)
				iq3_run(grid_iq3_xxs[entries[2 * r]],
					grid_iq3_xxs[entries[2 * r + 1]],
					eight_signs(word >> 7 * r & 127), d,
					out + i + 32 * g + 8 * r);
		}
}

/* f16 scale; 64 low bytes of entries; per group a byte with their ninth bits; 32 bytes of signs; per
 * group a nibble of scale. */
void decode_iq3_s(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 110)
		for (unsigned g = 0; g < 8; g++) {
			const uint8_t *entries = b + 2 + 8 * g;
			unsigned high = b[66 + g],
				 scale = (unsigned)b[106 + g / 2] >> 4 * (g % 2) & 15u;
			float d = load_half(b) * (float)(1 + 2 * scale);
			for (unsigned r = 0; r < 4; r++) {
				unsigned first = entries[2 * r] | (high >> 2 * r & 1) << 8;
				unsigned second =
					entries[2 * r + 1] | (high >> (2 * r + 1) & 1) << 8;
				iq3_run(grid_iq3_s[first], grid_iq3_s[second], b[74 + 4 * g + r], d,
					out + i + 32 * g + 8 * r);
			}
		}
}

/* ---- nibbles with a table ---------------------------------------------------------------------- */

static const uint32_t iq4_values[] = {NIBBLES_IQ4}, mxfp4_values[] = {NIBBLES_MXFP4};

/* f16 scale; 32 nibbles. */
void decode_iq4_nl(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 18) {
		float d = load_half(b);
		for (unsigned j = 0; j < 32; j++)
			out[i + j] = d * nibble_value(iq4_values, nibble(b + 2, j));
	}
}

/* f16 scale; per group 6 bits of scale, of value 32 too much: the upper 2 in a 16-bit word, the lower 4
 * in nibbles; 8 times 32 nibbles. */
void decode_iq4_xs(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 256, b += 136)
		for (unsigned g = 0; g < 8; g++) {
			unsigned low = (unsigned)b[4 + g / 2] >> 4 * (g % 2) & 15u;
			unsigned high = (unsigned)load_u16(b + 2) >> 2 * g & 3u;
			float d = load_half(b) * (float)((int)(low | high << 4) - 32);
			for (unsigned j = 0; j < 32; j++)
				out[i + 32 * g + j] =
					d * nibble_value(iq4_values, nibble(b + 8 + 16 * g, j));
		}
}

/* Half of 2^(exponent - 127), for the table holds doubled values.  Subnormal for exponents 0 and 1. */
static float e8m0_half(uint8_t exponent)
{
	uint32_t bits = exponent < 2 ? UINT32_C(0x200000) << exponent : (exponent - 1u) << 23;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* E8M0 scale; 32 nibbles of E2M1 (OCP Microscaling Formats 1.0). */
void decode_mxfp4(const uint8_t *b, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += 32, b += 17) {
		float d = e8m0_half(b[0]);
		for (unsigned j = 0; j < 32; j++)
			out[i + j] = nibble_value(mxfp4_values, nibble(b + 1, j)) * d;
	}
}
