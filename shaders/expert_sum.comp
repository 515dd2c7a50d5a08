/* expert_sum: out[row] = residual + scale * (what the experts of the row gave, by weight, and the shared
 * expert).  A workgroup takes OUTPUTS_PER_GROUP elements of a row. */
layout(local_size_x = 64) in;
ARGS(expert_sum_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer down_buffer { float down[]; };
layout(std430, set = 0, binding = 2) readonly buffer routes_buffer { expert_route routes[]; };
layout(std430, set = 0, binding = 3) readonly buffer residual_buffer { float residual[]; };
layout(std430, set = 0, binding = 4) readonly buffer shared_buffer { float shared_expert[]; };
layout(std430, set = 0, binding = 5) readonly buffer gate_buffer { float gate[]; };

#include "activation.glsl"

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP, row = gl_WorkGroupID.z;
	if (first >= args.n)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n), slot = row * args.n_used;
	float share = 1;
	if (args.has_gate != 0)
		share = sigmoid(vec4(gate[row * args.stride_gate])).x;
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += 64) {
		float sum = 0;
		for (uint k = 0; k < args.n_used; k++)
			sum += routes[slot + k].weight * down[(slot + k) * args.stride_down + i];
		if (args.has_shared != 0)
			sum += share * shared_expert[row * args.stride_shared + i];
		sum *= args.scale;
		if (args.has_residual != 0)
			sum += residual[row * args.stride_residual + i];
		result[row * args.stride_out + i] = sum;
	}
}
