/* Q6_K: 210 bytes for 256 weights: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales,
 * f16 scale; of value 32 too much.  In each half of 128, unit r of 4 has its low bits in nibble r / 2
 * of bytes 32 (r % 2).., and its high bits in pair r of 32 bytes.  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 210 * (unit / 8), r = unit % 4, half_block = unit / 4 % 2;
	int scales = int(half_at(block + 192 + 2 * (unit % 8))); /* two of them */
	float d = half_to_float(half_at(block + 208));
	precise vec2 ds = d * vec2(ivec2(scales << 24, scales << 16) >> 24);
	uint low[9], high[9];
	load_three_quads(block + 64 * half_block + 32 * (r % 2), low);
	load_three_quads(block + 128 + 32 * half_block, high);
	for (uint i = 0; i < 8; i++) {
		uint l = low[i] >> 4 * (r / 2) & 0x0F0F0F0Fu, h = high[i] >> 2 * r & 0x03030303u;
		w[i] = bytes_times(l | h << 4, 32, ds[i / 4]);
	}
}

void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint block = row_byte + 210 * (unit / 8), r = unit % 4, half_block = unit / 4 % 2;
	int scales = int(half_at(block + 192 + 2 * (unit % 8)));
	scale = half_to_float(half_at(block + 208)) * vec2(ivec2(scales << 24, scales << 16) >> 24);
	minimum = vec2(0);
	uint low[9], high[9];
	load_three_quads(block + 64 * half_block + 32 * (r % 2), low);
	load_three_quads(block + 128 + 32 * half_block, high);
	for (uint i = 0; i < 8; i++) {
		uint l = low[i] >> 4 * (r / 2) & 0x0F0F0F0Fu, h = high[i] >> 2 * r & 0x03030303u;
		q[i] = bytes_less(l | h << 4, 32);
	}
}
