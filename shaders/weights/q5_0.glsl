/* Q5_0: 22 bytes, an f16 scale, the fifth bits of 32 weights, 32 nibbles; of value 16 too much.
 * Byte j holds weights j (low) and j + 16 (high).  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint byte = row_byte + 22 * unit, at = byte >> 2;
	bool inside = (byte & 2u) != 0;
	uint low = W[at], high = W[at + 1];
	float d = half_to_float(inside ? low >> 16 : low);
	uint fifth = inside ? high : low >> 16 | high << 16;
	for (uint i = 0; i < 4; i++) {
		low = high;
		high = W[at + 2 + i];
		uint q = inside ? high : low >> 16 | high << 16;
		uint a = q & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 4 * i);
		uint b = q >> 4 & 0x0F0F0F0Fu | spread_fifth_bits(fifth >> 16 + 4 * i);
		w[i] = (bytes(a) - 16) * d;
		w[i + 4] = (bytes(b) - 16) * d;
	}
}
