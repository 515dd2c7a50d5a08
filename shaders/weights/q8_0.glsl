/* Q8_0: 34 bytes, an f16 scale and 32 signed bytes.  A block begins at any even byte. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint q[9];
	load_three_quads(row_byte + 34 * unit, q);
	float d = half_to_float(q[0]);
	for (uint i = 0; i < 8; i++)
		w[i] = signed_bytes_times(q[i] >> 16 | q[i + 1] << 16, d);
}

void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint words[9];
	load_three_quads(row_byte + 34 * unit, words);
	scale = vec2(half_to_float(words[0]));
	minimum = vec2(0);
	for (uint i = 0; i < 8; i++)
		q[i] = words[i] >> 16 | words[i + 1] << 16;
}
