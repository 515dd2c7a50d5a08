/* IQ2_S: 82 bytes for 256 weights: f16 scale; per run of 8 weights a low byte of entry; 32 bytes of signs;
 * per unit a byte with the upper 2 bits of its 4 entries; scales as in IQ2_XS.  A block begins at any
 * even byte. */
#define CODEBOOK 512
#define CODEBOOK_IQ2_S
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 82 * (unit / 8), u = unit % 8;
	uint entries = word_at(block + 2 + 4 * u), signs = word_at(block + 34 + 4 * u);
	uint high = byte_at(block + 66 + u), scales = byte_at(block + 74 + u);
	precise vec2 d = half_to_float(half_at(block)) * (0.5 + vec2(scales & 15u, scales >> 4)) * 0.25;
	for (uint r = 0; r < 4; r++) {
		uint entry = entries >> 8 * r & 0xFFu | (high >> 2 * r & 3u) << 8;
		iq2_run(entry, signs >> 8 * r, d[r / 2], w[2 * r], w[2 * r + 1]);
	}
}
