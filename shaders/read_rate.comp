/* read_rate: out[group] = sum of the words of a group's outputs/group uvec4s, modulo 2^32.  Does nothing
 * but read: how fast it can be is how fast memory is. */
layout(local_size_x_id = LANES_ID) in;
ARGS(read_rate_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { uint result[]; };
#ifdef LP_TEXELS
layout(set = 0, binding = TEXEL_QUADS) uniform usamplerBuffer data;

uvec4 quad(uint at)
{
	return texelFetch(data, int(at));
}
#else
layout(std430, set = 0, binding = 1) readonly buffer data_buffer { uvec4 data[]; };

uvec4 quad(uint at)
{
	return data[at];
}
#endif

shared uint total;

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	if (first >= args.n)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n);
	uint i = first + gl_LocalInvocationID.x;
	uvec4 sum = uvec4(0);
	for (; i + 3 * LANES < end; i += 4 * LANES) /* reads that do not wait for each other */
		sum += (quad(i) + quad(i + LANES)) + (quad(i + 2 * LANES) + quad(i + 3 * LANES));
	for (; i < end; i += LANES)
		sum += quad(i);
	if (gl_LocalInvocationID.x == 0)
		total = 0;
	barrier();
	atomicAdd(total, sum.x + sum.y + sum.z + sum.w);
	barrier();
	if (gl_LocalInvocationID.x == 0)
		result[flat_group()] = total;
}
