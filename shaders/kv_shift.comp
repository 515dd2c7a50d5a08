/* kv_shift: moves positions of a layer's KV cache towards the start and turns their keys back, see args.h.
 * One workgroup for a KV head of a row; rows that are read are never written in the same dispatch. */
#define LANES 32
layout(local_size_x = LANES) in;
ARGS(kv_shift_args);
layout(std430, set = 0, binding = 4) readonly buffer rope_buffer { vec2 rope_table[]; };
layout(std430, set = 0, binding = 5) readonly buffer step_buffer {
	step_header step_head;
	shift_row step_rows[];
};
#define KV_WRITE      0
#define KV_READ       2
#define TABLE_BINDING 6
#include "kv.glsl"

float k_value(uint element)
{
	vec2 pair = k_pair(element / 2);
	return element % 2 == 0 ? pair.x : pair.y;
}

/* Element i of the head that begins at `from`, turned back by `distance` positions. */
float turned_back(uint from, uint i, uint distance)
{
	float a = k_value(from + i);
	if (i >= args.n_rot)
		return a;
	uint n = args.n_rot / 2;
	bool first = args.neox != 0 ? i < n : i % 2 == 0;
	float b = k_value(from + (args.neox != 0 ? (first ? i + n : i - n) : i ^ 1u));
	vec2 turn = args.inv_magnitude *
		rope_table[distance * n + (args.neox != 0 ? i % n : i / 2)];
	return first ? a * turn.x + b * turn.y : a * turn.x - b * turn.y;
}

void main()
{
	uint head_kv = flat_group(), row = gl_WorkGroupID.z, lane = gl_LocalInvocationID.x;
	if (head_kv >= args.n_head_kv || row >= step_head.n_rows)
		return;
	shift_row r = step_rows[row];
	uint from = kv_element(r.seq, r.pos + r.distance, head_kv);
	uint to = kv_element(r.seq, r.pos, head_kv);
	for (uint i = lane; i < HEAD_DIM; i += LANES)
		head[IS_K][i] = turned_back(from, i, r.distance);
	barrier();
	head_store(IS_K, K_TYPE, to, lane, LANES);
	v_copy(from, to, lane, LANES);
}
