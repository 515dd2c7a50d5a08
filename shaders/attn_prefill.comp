/* attn_prefill: causal attention of a head for a tile of rows of the step, which belong to one sequence.
 * Slices of positions come in order; positions that no row of the tile sees are not read.  The result of a
 * row does not depend on the others of its tile. */
layout(local_size_x = 32) in;
layout(push_constant) uniform push { attn_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer q_buffer { float q[]; };
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 6) readonly buffer sink_buffer { float sinks[]; };
#define KV_READ       2
#define TABLE_BINDING 5
#include "kv.glsl"
#define QUERIES 8 /* rows of the step: rows/group in kernels.def */
#include "attention.glsl"

void main()
{
	uint head = flat_group(), first_row = gl_WorkGroupID.z * QUERIES;
	if (head >= args.n_head || first_row >= step_head.n_rows)
		return;
	uint n_rows = min(step_head.n_rows - first_row, QUERIES);
	uint seq = step_rows[first_row].seq, head_kv = head / (args.n_head / args.n_head_kv);
	uint start = ~0u, n_kv = 0; /* some row of the tile sees start .. n_kv - 1 */
	for (uint t = 0; t < n_rows; t++) {
		uint pos = step_rows[first_row + t].pos;
		start = min(start, WINDOW_START(pos, args.window));
		n_kv = max(n_kv, pos + 1);
	}
	uint row_pos = query < n_rows ? step_rows[first_row + query].pos : 0;
	uint row_start = WINDOW_START(row_pos, args.window);
	uint row_n_kv = query < n_rows ? row_pos + 1 : 0;

	for (uint i = lane; i < HEAD_DIM * QUERIES; i += LANES) {
		uint t = i / HEAD_DIM, d = i % HEAD_DIM;
		queries[d][t / 4][t % 4] = t < n_rows
			? q[(first_row + t) * args.stride_q + head * HEAD_DIM + d] : 0.0;
	}
	barrier();
	float maximum = ATTN_NONE, sum = 0;
	vec4 values[MAX_PAIRS][2][VECS];
	for (uint p = 0; p < MAX_PAIRS; p++)
		for (uint v = 0; v < VECS; v++)
			values[p][0][v] = values[p][1][v] = vec4(0);
	for (uint first = start / ATTN_SLICE * ATTN_SLICE; first < n_kv; first += ATTN_SLICE) {
		uint begin = max(start, first) - first, n = min(n_kv - first, ATTN_SLICE);
		uvec2 seen = uvec2(max(row_start, first), max(row_n_kv, first)) - first;
		attend(seq, head_kv, first, begin, n, min(seen, uvec2(n)), maximum, sum, values);
	}

	if (lane < QUERIES) /* above 80 hardly anything is left of the values */
		factors[lane] = args.has_sinks != 0 ? exp(min(sinks[head] - maximum, 80.0)) : 0.0;
	publish(sum, values);
	for (uint t = 0; t < n_rows; t++) {
		float total = sum_of(t) + factors[t];
		uint to = (first_row + t) * args.stride_out + head * HEAD_DIM;
		for (uint d = lane; d < HEAD_DIM; d += LANES)
			result[to + d] = value_of(t, d) / total;
	}
}
