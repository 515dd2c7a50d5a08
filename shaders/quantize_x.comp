/* quantize_x: rows of x in 8 bits, see struct quantize_args.  A lane takes 32 elements. */
layout(local_size_x = 32) in;
ARGS(quantize_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { uvec4 result[]; };
layout(std430, set = 0, binding = 1) readonly buffer x_buffer { vec4 x_quads[]; };

void main()
{
	uint unit = flat_group() * OUTPUTS_PER_GROUP + gl_LocalInvocationID.x, row = gl_WorkGroupID.z;
	if (unit >= args.n / UNIT)
		return;
	uint from = row * (args.stride_x / 4) + unit * 8, to = (row * args.stride_out + unit * Q8_WORDS) / 4;
	vec4 x[8];
	uvec4 largest = uvec4(0);
	for (uint i = 0; i < 8; i++) { /* magnitudes compare as integers do, and a NaN is above all */
		x[i] = x_quads[from + i];
		largest = max(largest, floatBitsToUint(x[i]) & 0x7FFFFFFFu);
	}
	largest.xy = max(largest.xy, largest.zw);
	float d = uintBitsToFloat(max(largest.x, largest.y)) / 127, inverse = d != 0 ? 1 / d : 0;
	uint words[8];
	vec2 sums = vec2(0);
	for (uint i = 0; i < 8; i++) {
		vec4 q = clamp(roundEven(x[i] * inverse), -127, 127);
		uvec4 bytes = uvec4(ivec4(q)) & 0xFFu;
		words[i] = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
		sums[i / 4] += q.x + q.y + q.z + q.w;
	}
	result[to] = uvec4(floatBitsToUint(d), words[0], words[1], words[2]);
	result[to + 1] = uvec4(words[3], words[4], words[5], words[6]);
	result[to + 2] = uvec4(words[7], floatBitsToUint(sums), 0);
}
