/* Q5_0: 22 bytes, an f16 scale, the fifth bits of 32 weights, 32 nibbles; of value 16 too much.
 * Byte j holds weights j (low) and j + 16 (high).  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[9];
	load_three_quads(row_byte + 22 * unit, q);
	float d = half_to_float(q[0]);
	uint fifth = q[0] >> 16 | q[1] << 16;
	for (uint i = 0; i < 4; i++) {
		uint nibbles = q[i + 1] >> 16 | q[i + 2] << 16;
		uint a = nibbles & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 4 * i);
		uint b = nibbles >> 4 & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 16 + 4 * i);
		w[i] = bytes_times(a, 16, d);
		w[i + 4] = bytes_times(b, 16, d);
	}
}

void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint words[9];
	load_three_quads(row_byte + 22 * unit, words);
	scale = vec2(half_to_float(words[0]));
	minimum = vec2(0);
	uint fifth = words[0] >> 16 | words[1] << 16;
	for (uint i = 0; i < 4; i++) {
		uint nibbles = words[i + 1] >> 16 | words[i + 2] << 16;
		uint a = nibbles & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 4 * i);
		uint b = nibbles >> 4 & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 16 + 4 * i);
		q[i] = bytes_less(a, 16);
		q[i + 4] = bytes_less(b, 16);
	}
}
