/* F16: rows of any length, so a row may begin inside a word and the last unit may be a tail. */
#define WEIGHT_HAS_TAIL
#define WEIGHT_IS_HALF

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[16];
	load_halves(row_byte + 2 * UNIT * unit, q);
	for (uint i = 0; i < 8; i++)
		w[i] = vec4(unpackHalf2x16(q[2 * i]), unpackHalf2x16(q[2 * i + 1]));
	if (HALVES_ARE_KEPT)
		return;
	/* Adding 31 to an exponent carries into bit 15 unless it is 0. */
	uint normal = 0x80008000u;
	for (uint i = 0; i < 16; i++)
		normal &= (q[i] & 0x7C007C00u) + 0x7C007C00u;
	if (normal != 0x80008000u) /* some are 0 or subnormal, which a driver may flush */
		for (uint i = 0; i < 8; i++)
			w[i] = vec4(halves_to_float(q[2 * i]), halves_to_float(q[2 * i + 1]));
}
