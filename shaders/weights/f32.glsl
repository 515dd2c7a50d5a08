/* F32: rows of any length, so the last unit may be a tail. */
#define WEIGHT_HAS_TAIL
#define WEIGHT_IS_WIDE /* beyond halves */

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint byte = row_byte + 4 * UNIT * unit;
	if (ROWS_ARE_WHOLE) {
		for (uint i = 0; i < 8; i++)
			w[i] = uintBitsToFloat(quad((byte >> 4) + i));
		return;
	}
	for (uint i = 0; i < 8; i++) {
		uint at = (byte >> 2) + 4 * i;
		w[i] = uintBitsToFloat(uvec4(word(at), word(at + 1), word(at + 2), word(at + 3)));
	}
}
