/* expert_matmul: out[slot] = weights of the slot's expert x[slot or its row] (+ bias), for the slots of a
 * tile, or, where TILE_ROWS are those of several, of a run of tiles of one expert, up to the next multiple
 * of their number.  A workgroup returns at once when its tile is empty or in the middle of a run, or the
 * expert is in another chunk. */
ARGS(expert_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 0) writeonly buffer out_quads { vec4 result4[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_quads { vec4 bias4[]; };
layout(std430, set = 0, binding = 4) readonly buffer tiles_buffer { uint tiles[]; };

uint expert = tiles[3 * gl_WorkGroupID.z];
uint first_slot = 3 * args.n_tiles + tiles[3 * gl_WorkGroupID.z + 1];

#ifdef LP_SHARED
#define TILE_ROWS RUN_ROWS
#define PART_ROWS 0 /* no parts are stored */
#else
#define TILE_ROWS EXPERT_TILE
#endif
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

void store_quad(uint out_row, uint t, vec4 sum)
{
	if (args.has_bias != 0)
		sum += bias4[(expert * args.n_out + out_row) / 4];
	result4[(slot_of(t) * args.stride_out + out_row) / 4] = sum;
}

/* Slots of the run that begins with this workgroup's tile; 0: none does. */
uint run_slots()
{
	const uint n_tiles = TILE_ROWS / EXPERT_TILE;
	uint tile = gl_WorkGroupID.z, end = min((tile / n_tiles + 1) * n_tiles, args.n_tiles);
	if (tile % n_tiles != 0 && tiles[3 * (tile - 1)] == expert)
		return 0;
	uint n = tiles[3 * tile + 2];
	for (tile++; tile < end && tiles[3 * tile] == expert; tile++)
		n += tiles[3 * tile + 2];
	return n;
}

void main()
{
	uint n_slots = run_slots();
	if (n_slots == 0 || expert < args.first_expert ||
		expert - args.first_expert >= args.n_experts)
		return;
	matmul((expert - args.first_expert) * args.n_out, n_slots);
}
