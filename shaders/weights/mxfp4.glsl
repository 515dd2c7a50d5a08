/* MXFP4: 17 bytes, an E8M0 scale and 32 nibbles of E2M1 (OCP Microscaling Formats 1.0); byte j holds
 * weights j (low) and j + 16 (high).  A block begins at any byte. */
#include "codebooks.h"

#define WEIGHT_IS_WIDE /* beyond halves */

/* Multiples of 2^-149 below 2^-126, from the integer: a driver may flush subnormal floats to zero. */
vec4 tiny_values(ivec4 doubled, uint exponent)
{
	uvec4 magnitude = uvec4(abs(doubled)) << 21 + exponent; /* in units of 2^-149 */
	uvec4 float_bits = floatBitsToUint(vec4(abs(doubled))) + (exponent - 128u << 23);
	uvec4 bits = mix(float_bits, magnitude, lessThan(magnitude, uvec4(0x800000u)));
	return uintBitsToFloat(bits | uvec4(doubled) & 0x80000000u);
}

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[6];
	load_two_quads(row_byte + 17 * unit, q);
	uint exponent = q[0] & 0xFFu;
	float d = uintBitsToFloat(exponent - 1u << 23); /* half, for the table is doubled */
	const uvec4 table = uvec4(NIBBLES_MXFP4);
	for (uint i = 0; i < 4; i++) {
		uint nibbles = q[i] >> 8 | q[i + 1] << 24;
		w[i] = nibble_values(table, nibbles);
		w[i + 4] = nibble_values(table, nibbles >> 4);
	}
	bool tiny = exponent < 2;
	for (uint i = 0; i < 8; i++)
		w[i] *= tiny ? 1.0 : d;
	/* A loop, for lavapipe goes through the code of every branch. */
	[[dont_unroll]] for (; tiny; tiny = false)
		for (uint i = 0; i < 8; i++)
			w[i] = tiny_values(ivec4(w[i]), exponent);
}
