/* expert_matvec: out[slot] = weights of the slot's expert x[slot or its row] (+ bias).  A workgroup has
 * one slot; it returns at once when the expert is in another chunk. */
layout(local_size_x_id = LANES_ID) in;
ARGS(expert_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer routes_buffer { expert_route routes[]; };

uint slot = gl_WorkGroupID.z, expert = routes[slot].expert;

#include "matvec.glsl"

uint x_begin(uint x_row)
{
	return x_row * (args.stride_x / 4);
}

void store(uint out_row, uint x_row, float sum)
{
	if (args.has_bias != 0)
		sum += bias[expert * args.n_out + out_row];
	result[slot * args.stride_out + out_row] = sum;
}

void main()
{
	if (expert < args.first_expert || expert - args.first_expert >= args.n_experts)
		return;
	uint x_row = args.x_per_slot != 0 ? slot : slot / args.n_used;
	matvec((expert - args.first_expert) * args.n_out, x_row, x_row + 1);
}
