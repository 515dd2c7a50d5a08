/* Q8_0: 34 bytes, an f16 scale and 32 signed bytes.  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint byte = row_byte + 34 * unit, at = byte >> 2;
	bool inside = (byte & 2u) != 0;
	uint low = W[at];
	float d = half_to_float(inside ? low >> 16 : low);
	for (uint i = 0; i < 8; i++) {
		uint high = W[at + i + 1];
		w[i] = signed_bytes(inside ? high : low >> 16 | high << 16) * d;
		low = high;
	}
}
