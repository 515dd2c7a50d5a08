/* IQ1_S: 50 bytes for 256 weights: f16 scale; per run of 8 weights a low byte of entry; per unit 16 bits:
 * the upper 3 of its 4 entries, 3 bits of scale, the sign of its delta.  A block begins at any even
 * byte. */
#define CODEBOOK 1024
#define CODEBOOK_IQ1
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 50 * (unit / 8), u = unit % 8;
	uint entries = word_at(block + 2 + 4 * u), high = half_at(block + 34 + 2 * u);
	precise float d = half_to_float(half_at(block)) * float(2 * (high >> 12 & 7u) + 1);
	float delta = (high & 0x8000u) != 0 ? -IQ1_DELTA : IQ1_DELTA;
	for (uint r = 0; r < 4; r++) {
		uint entry = entries >> 8 * r & 0xFFu | (high >> 3 * r & 7u) << 8;
		iq1_run(entry, delta, d, w[2 * r], w[2 * r + 1]);
	}
}
