/* glu: out = activation(gate) * up, or activation(up).  A workgroup takes OUTPUTS_PER_GROUP elements of a
 * row. */
layout(local_size_x = 64) in;
layout(push_constant) uniform push { glu_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer gate_buffer { float gate[]; };
layout(std430, set = 0, binding = 2) readonly buffer up_buffer { float up[]; };

/* 1 / (1 + exp(-x)), written so that exp never overflows. */
float sigmoid(float x)
{
	float e = exp(-abs(x));
	return (x < 0 ? e : 1.0) / (1 + e);
}

/* The constants: 2 sqrt(2 / pi), for (1 + tanh(y)) / 2 is sigmoid(2 y); then those of args.h. */
float activation(float x)
{
	switch (args.activation) {
	case ACTIVATION_GELU:
		return x * sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x));
	case ACTIVATION_SWIGLU:
		x = min(x, 7.0);
		return x * sigmoid(1.702 * x);
	default:
		return x * sigmoid(x);
	}
}

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP, row = gl_WorkGroupID.z * args.stride;
	if (first >= args.n)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n);
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += 64) {
		float u = up[row + i];
		if (args.has_gate == 0)
			result[row + i] = activation(u);
		else if (args.activation == ACTIVATION_SWIGLU)
			result[row + i] = activation(gate[row + i]) * (clamp(u, -7.0, 7.0) + 1);
		else
			result[row + i] = activation(gate[row + i]) * u;
	}
}
