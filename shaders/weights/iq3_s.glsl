/* IQ3_S: 110 bytes for 256 weights: f16 scale; 64 low bytes of entries, each 4 weights; per unit a byte
 * with their ninth bits; 32 bytes of signs; per unit a nibble of scale.  A block begins at any even
 * byte. */
#define CODEBOOK 512
#define CODEBOOK_IQ3_S
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 110 * (unit / 8), u = unit % 8, at = block + 2 + 8 * u;
	uint entries[6], signs = word_at(block + 74 + 4 * u);
	load_two_quads(at, entries);
	uint high = byte_at(block + 66 + u), scale = byte_at(block + 106 + u / 2) >> 4 * (u & 1u) & 15u;
	precise float d = half_to_float(half_at(block)) * float(1 + 2 * scale);
	for (uint i = 0; i < 8; i++) {
		uint entry = entries[i / 4] >> 8 * (i % 4) & 0xFFu | (high >> i & 1u) << 8;
		w[i] = with_signs(bytes(codebook[entry]) * d, signs >> 4 * i);
	}
}
