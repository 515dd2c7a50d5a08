/* glu: out = silu(gate) * up.  A workgroup takes OUTPUTS_PER_GROUP elements of a row. */
layout(local_size_x = 64) in;
layout(push_constant) uniform push { glu_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer gate_buffer { float gate[]; };
layout(std430, set = 0, binding = 2) readonly buffer up_buffer { float up[]; };

/* x / (1 + exp(-x)), written so that exp never overflows. */
float silu(float x)
{
	float e = exp(-abs(x));
	return x * (x < 0 ? e : 1.0) / (1 + e);
}

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP, row = gl_WorkGroupID.z * args.stride;
	if (first >= args.n)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n);
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += 64)
		result[row + i] = silu(gate[row + i]) * up[row + i];
}
