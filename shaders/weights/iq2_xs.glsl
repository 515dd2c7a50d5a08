/* IQ2_XS: 74 bytes for 256 weights: f16 scale; per run of 8 weights 9 bits of entry and 7 signs; per unit
 * two nibbles of scale, each for 2 runs.  A block begins at any even byte. */
#define CODEBOOK 256
#define CODEBOOK_IQ2_XS
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 74 * (unit / 8), u = unit % 8, at = block + 2 + 8 * u;
	uint scales = byte_at(block + 66 + u);
	precise vec2 d = half_to_float(half_at(block)) * (0.5 + vec2(scales & 15u, scales >> 4)) * 0.25;
	uint runs[6];
	load_two_quads(at, runs);
	for (uint r = 0; r < 4; r++) {
		uint run = runs[r / 2] >> 16 * (r % 2);
		iq2_run(run & 511u, eight_signs(run >> 9), d[r / 2], w[2 * r], w[2 * r + 1]);
	}
}
