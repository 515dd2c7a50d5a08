/* Q4_1: 20 bytes, f16 scale, f16 minimum, 32 nibbles; byte j holds weights j (low) and j + 16. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint at = (row_byte >> 2) + 5 * unit;
	vec2 dm = halves_to_float(W[at]);
	for (uint i = 0; i < 4; i++) {
		uint q = W[at + 1 + i];
		precise vec4 low = bytes(q & 0x0F0F0F0Fu) * dm.x + dm.y;
		precise vec4 high = bytes(q >> 4 & 0x0F0F0F0Fu) * dm.x + dm.y;
		w[i] = low;
		w[i + 4] = high;
	}
}
