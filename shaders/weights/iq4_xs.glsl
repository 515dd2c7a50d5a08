/* IQ4_XS: 136 bytes for 256 weights: f16 scale, 16 bits with the upper 2 of each unit's scale, 4 bytes
 * with the lower 4; of value 32 too much.  Then units of 32 nibbles as in IQ4_NL.  Blocks are whole
 * words. */
#include "codebooks.h"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint at = (row_byte >> 2) + 34 * (unit / 8), u = unit % 8, head = word(at), q[6];
	uint scale = word(at + 1) >> 4 * u & 15u | (head >> 16 + 2 * u & 3u) << 4;
	precise float d = half_to_float(head) * (float(scale) - 32);
	const uvec4 table = uvec4(NIBBLES_IQ4);
	load_two_quads(4 * (at + 2 + 4 * u), q);
	for (uint i = 0; i < 4; i++) {
		w[i] = nibble_values(table, q[i]) * d;
		w[i + 4] = nibble_values(table, q[i] >> 4) * d;
	}
}
