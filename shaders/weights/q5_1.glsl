/* Q5_1: 24 bytes, f16 scale, f16 minimum, the fifth bits of 32 weights, 32 nibbles; byte j holds
 * weights j (low) and j + 16 (high). */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[6];
	load_two_quads(row_byte + 24 * unit, q);
	vec2 dm = halves_to_float(q[0]);
	uint fifth = q[1];
	for (uint i = 0; i < 4; i++) {
		uint a = q[i + 2] & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 4 * i);
		uint b = q[i + 2] >> 4 & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 16 + 4 * i);
		precise vec4 low = bytes_times(a, 0, dm.x) + dm.y;
		precise vec4 high = bytes_times(b, 0, dm.x) + dm.y;
		w[i] = low;
		w[i + 4] = high;
	}
}

#define WEIGHT_HAS_MINIMUM
void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint words[6];
	load_two_quads(row_byte + 24 * unit, words);
	vec2 dm = halves_to_float(words[0]);
	scale = dm.xx;
	minimum = -dm.yy;
	for (uint i = 0; i < 4; i++) {
		uint nibbles = words[i + 2];
		q[i] = nibbles & 0x0F0F0F0Fu | spread_fifth_bits(words[1] >> 4 * i);
		q[i + 4] = nibbles >> 4 & 0x0F0F0F0Fu | spread_fifth_bits(words[1] >> 16 + 4 * i);
	}
}
