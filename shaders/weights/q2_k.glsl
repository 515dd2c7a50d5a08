/* Q2_K: 84 bytes for 256 weights: 16 bytes with a nibble of scale and one of minimum for 16 weights, 64
 * bytes of bit pairs, f16 scale and minimum scale.  In each half of 128, unit r of 4 is pair r of 32
 * bytes.  Blocks are whole words. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint at = (row_byte >> 2) + 21 * (unit / 8), u = unit % 8, shift = 2 * (u % 4);
	vec2 dm = halves_to_float(word(at + 20));
	uint scales = word(at + u / 2) >> 16 * (u & 1u), q[9];
	precise vec2 first = dm * vec2(scales & 15u, scales >> 4 & 15u);
	precise vec2 second = dm * vec2(scales >> 8 & 15u, scales >> 12 & 15u);
	load_three_quads(4 * (at + 4 + 8 * (u / 4)), q);
	for (uint i = 0; i < 8; i++) {
		vec2 sm = i < 4 ? first : second;
		precise vec4 value = bytes_times(q[i] >> shift & 0x03030303u, 0, sm.x) - sm.y;
		w[i] = value;
	}
}

#define WEIGHT_HAS_MINIMUM
void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint at = (row_byte >> 2) + 21 * (unit / 8), u = unit % 8, words[9];
	vec2 dm = halves_to_float(word(at + 20));
	uint pairs = word(at + u / 2) >> 16 * (u & 1u);
	scale = dm.x * vec2(pairs & 15u, pairs >> 8 & 15u);
	minimum = dm.y * vec2(pairs >> 4 & 15u, pairs >> 12 & 15u);
	load_three_quads(4 * (at + 4 + 8 * (u / 4)), words);
	for (uint i = 0; i < 8; i++)
		q[i] = words[i] >> 2 * (u % 4) & 0x03030303u;
}
