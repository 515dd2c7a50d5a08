/* IQ1_M: 56 bytes for 256 weights: per run of 8 weights a low byte of entry; per run a nibble: upper 3 bits
 * of the entry, the sign of its delta; four 16-bit words, each with 3 bits of scale for 4 half units and
 * a nibble of the block's f16 scale.  Blocks are whole words. */
#define CODEBOOK 1024
#define CODEBOOK_IQ1
#include "codebook.glsl"

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint at = (row_byte >> 2) + 14 * (unit / 8), u = unit % 8;
	uvec2 tail = uvec2(word(at + 12), word(at + 13)), parts = tail >> 12 & 0x000F000Fu;
	float d = half_to_float(parts.x | parts.x >> 12 | parts.y << 8 | parts.y >> 4);
	uint scales = tail[u / 4] >> 16 * (u / 2 % 2) + 6 * (u & 1u);
	precise vec2 ds = d * vec2(2 * (uvec2(scales, scales >> 3) & 7u) + 1);
	uint entries = word(at + u), high = word(at + 8 + u / 2) >> 16 * (u & 1u);
	for (uint r = 0; r < 4; r++) {
		uint nibble = high >> 4 * r;
		float delta = (nibble & 8u) != 0 ? -IQ1_DELTA : IQ1_DELTA;
		uint entry = entries >> 8 * r & 0xFFu | (nibble & 7u) << 8;
		iq1_run(entry, delta, ds[r / 2], w[2 * r], w[2 * r + 1]);
	}
}
