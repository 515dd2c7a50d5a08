/* Q3_K: 110 bytes for 256 weights: 32 bytes of third bits, bit u for unit u, of value 4 too much; 64 bytes
 * of bit pairs as in Q2_K; 12 bytes with 16 scales of 6 bits, of value 32 too much; f16 scale of scales.
 * A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 110 * (unit / 8), u = unit % 8, shift = 2 * (u % 4);
	/* Scales 2 u and 2 u + 1: low nibbles of bytes 2 u % 8, u / 4 says which; then pairs. */
	uint low = half_at(block + 96 + 2 * (u % 4)) >> 4 * (u / 4) & 0x0F0Fu;
	uint pairs = half_at(block + 104 + 2 * (u & 1u)) >> 2 * (u / 2) & 0x0303u;
	uint scales = low | pairs << 4;
	float d = half_to_float(half_at(block + 108));
	precise vec2 ds = d * (vec2(scales & 0xFFu, scales >> 8) - 32);
	uint q[9], third[9];
	load_three_quads(block + 32 + 32 * (u / 4), q);
	load_three_quads(block, third);
	for (uint i = 0; i < 8; i++) {
		uint values = q[i] >> shift & 0x03030303u | bits_to(third[i], u, 2);
		w[i] = bytes_times(values, 4, ds[i / 4]);
	}
}

void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint block = row_byte + 110 * (unit / 8), u = unit % 8;
	uint low = half_at(block + 96 + 2 * (u % 4)) >> 4 * (u / 4) & 0x0F0Fu;
	uint pairs = half_at(block + 104 + 2 * (u & 1u)) >> 2 * (u / 2) & 0x0303u;
	uint scales = low | pairs << 4;
	scale = half_to_float(half_at(block + 108)) * (vec2(scales & 0xFFu, scales >> 8) - 32);
	minimum = vec2(0);
	uint words[9], third[9];
	load_three_quads(block + 32 + 32 * (u / 4), words);
	load_three_quads(block, third);
	for (uint i = 0; i < 8; i++)
		q[i] = bytes_less(words[i] >> 2 * (u % 4) & 0x03030303u | bits_to(third[i], u, 2), 4);
}
