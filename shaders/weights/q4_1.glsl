/* Q4_1: 20 bytes, f16 scale, f16 minimum, 32 nibbles; byte j holds weights j (low) and j + 16. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[6];
	load_two_quads(row_byte + 20 * unit, q);
	vec2 dm = halves_to_float(q[0]);
	for (uint i = 0; i < 4; i++) {
		precise vec4 low = bytes_times(q[i + 1] & 0x0F0F0F0Fu, 0, dm.x) + dm.y;
		precise vec4 high = bytes_times(q[i + 1] >> 4 & 0x0F0F0F0Fu, 0, dm.x) + dm.y;
		w[i] = low;
		w[i + 4] = high;
	}
}

#define WEIGHT_HAS_MINIMUM
void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint words[6];
	load_two_quads(row_byte + 20 * unit, words);
	vec2 dm = halves_to_float(words[0]);
	scale = dm.xx;
	minimum = -dm.yy;
	for (uint i = 0; i < 4; i++) {
		q[i] = words[i + 1] & 0x0F0F0F0Fu;
		q[i + 4] = words[i + 1] >> 4 & 0x0F0F0F0Fu;
	}
}
