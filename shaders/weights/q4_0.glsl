/* Q4_0: 18 bytes, an f16 scale and 32 nibbles of value 8 too much; byte j holds weights j (low) and
 * j + 16 (high).  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint byte = row_byte + 18 * unit, at = byte >> 2;
	bool inside = (byte & 2u) != 0;
	uint low = W[at];
	float d = half_to_float(inside ? low >> 16 : low);
	for (uint i = 0; i < 4; i++) {
		uint high = W[at + i + 1], q = inside ? high : low >> 16 | high << 16;
		w[i] = (bytes(q & 0x0F0F0F0Fu) - 8) * d;
		w[i + 4] = (bytes(q >> 4 & 0x0F0F0F0Fu) - 8) * d;
		low = high;
	}
}
