/* TQ2_0: 66 bytes for 256 weights: 64 bytes of bit pairs, f16 scale; of value 1 too much.  In each half of
 * 128, unit r of 4 is pair r of 32 bytes.  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 66 * (unit / 8), shift = 2 * (unit % 4), q[9];
	float d = half_to_float(half_at(block + 64));
	load_three_quads(block + 32 * (unit / 4 % 2), q);
	for (uint i = 0; i < 8; i++)
		w[i] = (bytes(q[i] >> shift & 0x03030303u) - 1) * d;
}
