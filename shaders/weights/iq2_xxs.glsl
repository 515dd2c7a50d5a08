/* IQ2_XXS: 66 bytes for 256 weights: f16 scale; per unit 4 entries of 8 bits, then a word of 4 times 7
 * signs and 4 bits of scale.  A block begins at any even byte. */
#define CODEBOOK 128
#define CODEBOOK_IQ2_XXS
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 66 * (unit / 8), at = block + 2 + 8 * (unit % 8);
	uint q[6];
	load_two_quads(at, q);
	precise float d = half_to_float(half_at(block)) * (0.5 + float(q[1] >> 28)) * 0.25;
	for (uint r = 0; r < 4; r++)
		iq2_run(q[0] >> 8 * r & 0xFFu, eight_signs(q[1] >> 7 * r), d, w[2 * r],
			w[2 * r + 1]);
}
