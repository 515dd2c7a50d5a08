/* Q5_K: 176 bytes for 256 weights: as Q4_K, with 32 bytes of fifth bits, bit g for group g, before the
 * nibbles.  A unit is a group.  Blocks are whole uvec4s. */
void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint at = (row_byte >> 4) + 11 * (unit / 8), group = unit % 8;
	precise vec2 dsm = scale_min_k4(quad(at), group);
	uvec4 fifth[2] = uvec4[2](quad(at + 1), quad(at + 2));
	at += 3 + 2 * (group / 2);
	uvec4 q[2] = uvec4[2](quad(at), quad(at + 1));
	for (uint i = 0; i < 8; i++) {
		uint low = q[i / 4][i % 4] >> 4 * (group & 1u) & 0x0F0F0F0Fu;
		uint values = low | bits_to(fifth[i / 4][i % 4], group, 4);
		precise vec4 value = bytes_times(values, 0, dsm.x) - dsm.y;
		w[i] = value;
	}
}

#define WEIGHT_HAS_MINIMUM
void weight_integers(uint row_byte, uint unit, out uint q[8], out vec2 scale, out vec2 minimum)
{
	uint at = (row_byte >> 4) + 11 * (unit / 8), group = unit % 8;
	vec2 dsm = scale_min_k4(quad(at), group);
	scale = dsm.xx;
	minimum = dsm.yy;
	uvec4 fifth[2] = uvec4[2](quad(at + 1), quad(at + 2));
	at += 3 + 2 * (group / 2);
	uvec4 words[2] = uvec4[2](quad(at), quad(at + 1));
	for (uint i = 0; i < 8; i++) {
		uint low = words[i / 4][i % 4] >> 4 * (group & 1u) & 0x0F0F0F0Fu;
		q[i] = low | bits_to(fifth[i / 4][i % 4], group, 4);
	}
}
