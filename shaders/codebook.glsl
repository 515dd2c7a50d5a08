/* The grid of an IQ format in shared memory, and what such formats share.
 *
 * A format defines CODEBOOK, the words of its grid, and CODEBOOK_<GRID>, and includes this.  The module's
 * main, which shaders/CMakeLists.txt writes, calls codebook_load before the kernel's. */
shared uint codebook[CODEBOOK];

#include "codebooks.h"

/* An entry of 16 bits. */
uint grid_entry(uint entry)
{
	return codebook[entry >> 1] >> 16 * (entry & 1u) & 0xFFFFu;
}

/* Seven signs in the lower 7 bits; the eighth makes the number of minus signs even. */
uint eight_signs(uint bits)
{
	bits &= 127u;
	return bits | (bitCount(bits) & 1u) << 7;
}

/* Bit i of the lower 4 negates component i. */
vec4 with_signs(vec4 v, uint bits)
{
	uvec4 signs = uvec4(bits << 31, bits << 30, bits << 29, bits << 28) & 0x80000000u;
	return uintBitsToFloat(floatBitsToUint(v) ^ signs);
}

/* A run of 8 weights from an IQ2 entry. */
void iq2_run(uint entry, uint signs, float d, out vec4 low, out vec4 high)
{
	uint codes = grid_entry(entry);
	uvec2 c = uvec2(spread_pairs(codes & 0xFFu), spread_pairs(codes >> 8));
	c = 0x08080808u + c * 17u + (c >> 1 & 0x01010101u); /* 0, 1, 2: 8, 25, 43 */
	low = with_signs(bytes(c.x) * d, signs);
	high = with_signs(bytes(c.y) * d, signs >> 4);
}

/* A run of 8 weights from an IQ1 entry. */
void iq1_run(uint entry, float delta, float d, out vec4 low, out vec4 high)
{
	uint codes = grid_entry(entry);
	low = (bytes(spread_pairs(codes & 0xFFu)) + (delta - 1)) * d; /* exact but for the product */
	high = (bytes(spread_pairs(codes >> 8)) + (delta - 1)) * d;
}
