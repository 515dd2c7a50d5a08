/* IQ4_NL: 18 bytes, an f16 scale and 32 nibbles that a table gives values; byte j holds weights j (low)
 * and j + 16 (high).  A block begins at any even byte. */
#include "codebooks.h"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint byte = row_byte + 18 * unit;
	float d = half_to_float(half_at(byte));
	const uvec4 table = uvec4(NIBBLES_IQ4);
	for (uint i = 0; i < 4; i++) {
		uint q = word_at(byte + 2 + 4 * i);
		w[i] = nibble_values(table, q) * d;
		w[i + 4] = nibble_values(table, q >> 4) * d;
	}
}
