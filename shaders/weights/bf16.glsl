/* BF16, the upper half of an F32: rows of any length, so a row may begin inside a word and the last
 * unit may be a tail. */
#define WEIGHT_HAS_TAIL
#define WEIGHT_IS_WIDE /* beyond halves */

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[16];
	load_halves(row_byte + 2 * UNIT * unit, q);
	for (uint i = 0; i < 8; i++) {
		uint a = q[2 * i], b = q[2 * i + 1];
		w[i] = uintBitsToFloat(uvec4(a << 16, a & 0xFFFF0000u, b << 16, b & 0xFFFF0000u));
	}
}
