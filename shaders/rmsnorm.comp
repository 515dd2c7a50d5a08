/* rmsnorm: out[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight.  One workgroup for a row. */
#define LANES 128
layout(local_size_x = LANES) in;
layout(push_constant) uniform push { rmsnorm_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer x_buffer { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer weight_buffer { float weight[]; };

shared float scratch[LANES];

/* Over the workgroup, as the same tree on every device. */
float group_sum(float value)
{
	uint lane = gl_LocalInvocationID.x;
	scratch[lane] = value;
	barrier();
	for (uint n = LANES / 2; n > 0; n /= 2) {
		if (lane < n)
			scratch[lane] += scratch[lane + n];
		barrier();
	}
	return scratch[0];
}

void main()
{
	uint lane = gl_LocalInvocationID.x, at = gl_WorkGroupID.z * args.stride_x;
	if (flat_group() != 0)
		return;
	float sum = 0;
	for (uint i = lane; i < args.n; i += LANES)
		sum += x[at + i] * x[at + i];
	float factor = 1 / sqrt(group_sum(sum) / float(args.n) + args.eps);
	uint to = gl_WorkGroupID.z * args.stride_out;
	for (uint i = lane; i < args.n; i += LANES)
		result[to + i] = x[at + i] * factor * weight[i];
}
