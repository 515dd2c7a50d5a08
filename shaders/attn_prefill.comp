/* attn_prefill: causal attention of a head for a tile of rows of the step, which belong to one sequence.
 * Slices of positions come in order; positions that no row of the tile sees are not read.  The result of a
 * row does not depend on the others of its tile. */
#ifdef LP_SHUFFLE
#ifdef LP_LONG
#define PARTS 16
#else
#define PARTS 1
#endif
layout(local_size_x = 8 * PARTS) in;
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { vec4 result[]; };
layout(set = 0, binding = TEXEL_X) uniform samplerBuffer q_quads;

vec4 x_quad(uint at)
{
	return texelFetch(q_quads, int(at));
}

#else
layout(local_size_x = 32) in;
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer q_buffer { float q[]; };
#endif
ARGS(attn_args);
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 6) readonly buffer sink_buffer { float sinks[]; };
#define KV_READ       2
#define TABLE_BINDING 5
#include "kv.glsl"
#define ROWS    8 /* of the step: rows/group in kernels.def */
#ifdef LP_WIDE
#define QUERIES 4 /* rows at a time */
#else
#define QUERIES ROWS
#endif

/* Some row of the tile sees positions .x to .y - 1. */
uvec2 tile_sees(uint first_row, uint n_rows)
{
	uvec2 seen = uvec2(~0u, 0);
	for (uint t = 0; t < n_rows; t++) {
		uint pos = step_rows[first_row + t].pos;
		seen.x = min(seen.x, WINDOW_START(pos, args.window));
		seen.y = max(seen.y, pos + 1);
	}
	return seen;
}

/* What row t sees; nothing where there is no such row. */
uvec2 row_sees(uint first_row, uint n_rows, uint t)
{
	uint pos = t < n_rows ? step_rows[first_row + t].pos : 0;
	return uvec2(WINDOW_START(pos, args.window), t < n_rows ? pos + 1 : 0);
}

/* What the sink adds to a sum at this maximum: above 80 hardly anything is left of the values. */
float sink_share(uint head, float maximum)
{
	return args.has_sinks != 0 ? exp(min(sinks[head] - maximum, 80.0)) : 0.0;
}

#ifdef LP_SHUFFLE
#define TILE_ROWS QUERIES
#include "attention_lanes.glsl"

void attention(uint head, uint head_kv, uint first_row, uint n_rows)
{
	uvec2 all = tile_sees(first_row, n_rows);
	queries q;
	q.t.is_half = false;
	q.t.at[0] = ((first_row + min(tile_row(0), n_rows - 1)) * args.stride_q + head * HEAD_DIM) / 4;
	[[unroll]] for (uint t = 0; t < TILE_ROWS; t++)
		query_begin(q, t, row_sees(first_row, n_rows, t));
#ifdef LP_LONG
	attend_parts(q, step_rows[first_row].seq, head_kv, all.x, all.y);
	if (gl_SubgroupID > 0)
		n_rows = 0; /* the first has the results */
#else
	attend(q, step_rows[first_row].seq, head_kv, all.x, all.y);
#endif
	uint t = 0;
	if (t < n_rows) [[dont_unroll]] do {
		float total = lanes_sum(q.sum[0]) + sink_share(head, q.maximum[0]);
		uint to = ((first_row + t) * args.stride_out + head * HEAD_DIM) / 4;
		[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
			uint column = (8 * c + lane) * COLUMNS;
			if (column < HEAD_DIM) {
				result[to + column / 4] = values[0][c][0] / total;
				result[to + column / 4 + 1] = values[0][c][1] / total;
			}
		}
		query_next(q);
		t++;
	} while (t < n_rows);
}
#else
#include "attention.glsl"

void attention(uint head, uint head_kv, uint first_row, uint n_rows)
{
	uvec2 all = tile_sees(first_row, n_rows), row = row_sees(first_row, n_rows, query);
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
	for (uint first = all.x / ATTN_SLICE * ATTN_SLICE; first < all.y; first += ATTN_SLICE) {
		uint begin = max(all.x, first) - first, n = min(all.y - first, ATTN_SLICE);
		uvec2 seen = uvec2(max(row.x, first), max(row.y, first)) - first;
		attend(step_rows[first_row].seq, head_kv, first, begin, n, min(seen, uvec2(n)), maximum,
			sum, values);
	}
	if (lane < QUERIES)
		factors[lane] = sink_share(head, maximum);
	publish(sum, values);
	for (uint t = 0; t < n_rows; t++) {
		float total = sum_of(t) + factors[t];
		uint to = (first_row + t) * args.stride_out + head * HEAD_DIM;
		for (uint d = lane; d < HEAD_DIM; d += LANES)
			result[to + d] = value_of(t, d) / total;
	}
}
#endif

void main()
{
	uint head = flat_group(), first_row = gl_WorkGroupID.z * ROWS;
	uint end = min(first_row + ROWS, step_head.n_rows);
	if (head >= args.n_head)
		return;
	uint row = first_row;
	if (row < end) do {
		attention(head, head / (args.n_head / args.n_head_kv), row, min(end - row, QUERIES));
#ifdef LP_WIDE
		barrier(); /* the next rows write the shared arrays again */
#endif
		row += QUERIES;
	} while (row < end);
}
