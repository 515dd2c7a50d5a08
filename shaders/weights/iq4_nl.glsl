/* IQ4_NL: 18 bytes, an f16 scale and 32 nibbles that a table gives values; byte j holds weights j (low)
 * and j + 16 (high).  A block begins at any even byte. */
#include "codebooks.h"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[6];
	load_two_quads(row_byte + 18 * unit, q);
	float d = half_to_float(q[0]);
	const uvec4 table = uvec4(NIBBLES_IQ4);
	for (uint i = 0; i < 4; i++) {
		uint nibbles = q[i] >> 16 | q[i + 1] << 16;
		w[i] = nibble_values(table, nibbles) * d;
		w[i + 4] = nibble_values(table, nibbles >> 4) * d;
	}
}
