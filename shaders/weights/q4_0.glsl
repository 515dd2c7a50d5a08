/* Q4_0: 18 bytes, an f16 scale and 32 nibbles of value 8 too much; byte j holds weights j (low) and
 * j + 16 (high).  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[6];
	load_two_quads(row_byte + 18 * unit, q);
	float d = half_to_float(q[0]);
	for (uint i = 0; i < 4; i++) {
		uint nibbles = q[i] >> 16 | q[i + 1] << 16;
		w[i] = bytes_times(nibbles & 0x0F0F0F0Fu, 8, d);
		w[i + 4] = bytes_times(nibbles >> 4 & 0x0F0F0F0Fu, 8, d);
	}
}

void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint words[6];
	load_two_quads(row_byte + 18 * unit, words);
	scale = vec2(half_to_float(words[0]));
	minimum = vec2(0);
	for (uint i = 0; i < 4; i++) {
		uint nibbles = words[i] >> 16 | words[i + 1] << 16;
		q[i] = bytes_less(nibbles & 0x0F0F0F0Fu, 8);
		q[i + 4] = bytes_less(nibbles >> 4 & 0x0F0F0F0Fu, 8);
	}
}
