/* expert_matmul: out[slot] = weights of the slot's expert x[slot or its row] (+ bias), for the slots of a
 * tile.  A workgroup returns at once when its tile is empty or the expert is in another chunk. */
layout(local_size_x = 32) in;
layout(push_constant) uniform push { expert_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer tiles_buffer { uint tiles[]; };

uint expert = tiles[3 * gl_WorkGroupID.z];
uint first_slot = 3 * args.n_tiles + tiles[3 * gl_WorkGroupID.z + 1];
uint n_slots = tiles[3 * gl_WorkGroupID.z + 2];

#define TILE_ROWS EXPERT_TILE
#include "matmul.glsl"

uint slot_of(uint t)
{
	return tiles[first_slot + t];
}

uint x_begin(uint t)
{
	uint slot = slot_of(t);
	return (args.x_per_slot != 0 ? slot : slot / args.n_used) * (args.stride_x / 4);
}

void store(uint out_row, uint t, float sum)
{
	if (args.has_bias != 0)
		sum += bias[expert * args.n_out + out_row];
	result[slot_of(t) * args.stride_out + out_row] = sum;
}

void main()
{
	if (n_slots == 0 || expert < args.first_expert ||
		expert - args.first_expert >= args.n_experts)
		return;
	matmul((expert - args.first_expert) * args.n_out, n_slots);
}
