/* IQ3_XXS: 98 bytes for 256 weights: f16 scale; 64 entries of 8 bits, each 4 weights; per unit a word of 4
 * times 7 signs and 4 bits of scale.  A block begins at any even byte. */
#define CODEBOOK 256
#define CODEBOOK_IQ3_XXS
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 98 * (unit / 8), u = unit % 8, at = block + 2 + 8 * u;
	uint entries[6], signs = word_at(block + 66 + 4 * u);
	load_two_quads(at, entries);
	precise float d = half_to_float(half_at(block)) * (0.5 + float(signs >> 28)) * 0.5;
	for (uint i = 0; i < 8; i++) {
		uint entry = entries[i / 4] >> 8 * (i % 4) & 0xFFu;
		uint run_signs = eight_signs(signs >> 7 * (i / 2));
		w[i] = with_signs(bytes(codebook[entry]) * d, run_signs >> 4 * (i % 2));
	}
}
