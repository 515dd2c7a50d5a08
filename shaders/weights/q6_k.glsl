/* Q6_K: 210 bytes for 256 weights: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales,
 * f16 scale; of value 32 too much.  In each half of 128, unit r of 4 has its low bits in nibble r / 2
 * of bytes 32 (r % 2).., and its high bits in pair r of 32 bytes.  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 210 * (unit / 8), r = unit % 4, half_block = unit / 4 % 2;
	uint shift = (block & 2u) * 8;
	uint at = block + 192 + 2 * (unit % 8);
	int scales = int(W[at >> 2] >> (at & 2u) * 8); /* two of them */
	at = block + 208;
	float d = half_to_float(W[at >> 2] >> (at & 2u) * 8);
	precise vec2 ds = d * vec2(ivec2(scales << 24, scales << 16) >> 24);

	uint low_at = block + 64 * half_block + 32 * (r % 2) >> 2;
	uint high_at = block + 128 + 32 * half_block >> 2;
	uint low = W[low_at], high = W[high_at];
	for (uint i = 0; i < 8; i++) {
		uint next_low = W[low_at + i + 1], next_high = W[high_at + i + 1];
		uint l = funnel(low, next_low, shift) >> 4 * (r / 2) & 0x0F0F0F0Fu;
		uint h = funnel(high, next_high, shift) >> 2 * r & 0x03030303u;
		w[i] = ds[i / 4] * (bytes(l | h << 4) - 32);
		low = next_low;
		high = next_high;
	}
}
