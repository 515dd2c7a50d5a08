/* Q4_K: 144 bytes for 256 weights: f16 scale and minimum scale, 12 bytes of 6-bit scales and minimums
 * of 8 groups, 256 nibbles; each run of 32 bytes holds one group low and the next one high.
 * A unit is a group.  Blocks are whole uvec4s. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint at = (row_byte >> 4) + 9 * (unit / 8), group = unit % 8;
	precise vec2 dsm = scale_min_k4(quad(at), group);
	at += 1 + 2 * (group / 2);
	uvec4 q[2] = uvec4[2](quad(at), quad(at + 1));
	for (uint i = 0; i < 8; i++) {
		uint nibbles = q[i / 4][i % 4] >> 4 * (group % 2) & 0x0F0F0F0Fu;
		precise vec4 value = bytes_times(nibbles, 0, dsm.x) - dsm.y;
		w[i] = value;
	}
}

#define WEIGHT_HAS_MINIMUM
void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint at = (row_byte >> 4) + 9 * (unit / 8), group = unit % 8;
	vec2 dsm = scale_min_k4(quad(at), group);
	scale = dsm.xx;
	minimum = dsm.yy;
	at += 1 + 2 * (group / 2);
	uvec4 words[2] = uvec4[2](quad(at), quad(at + 1));
	for (uint i = 0; i < 8; i++)
		q[i] = words[i / 4][i % 4] >> 4 * (group % 2) & 0x0F0F0F0Fu;
}
