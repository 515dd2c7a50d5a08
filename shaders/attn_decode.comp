/* attn_decode: one slice of positions, of those the window touches, for all query heads of a KV head, for one row of the step.  Writes
 * the slice's maximum score, the sum of exp(score - maximum), and the values weighted by them:
 * attn_reduce merges the slices. */
#ifdef LP_SHUFFLE
layout(local_size_x = 8) in;
layout(std430, set = 0, binding = 0) writeonly buffer partial_buffer { vec2 partial[]; };
layout(set = 0, binding = TEXEL_X) uniform samplerBuffer q_quads;

vec4 x_quad(uint at)
{
	return texelFetch(q_quads, int(at));
}

#else
layout(local_size_x = 32) in;
layout(std430, set = 0, binding = 0) writeonly buffer partial_buffer { float partial[]; };
layout(std430, set = 0, binding = 1) readonly buffer q_buffer { float q[]; };
#endif
ARGS(attn_args);
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
#define KV_READ       2
#define TABLE_BINDING 5
#include "kv.glsl"

#ifdef LP_SHUFFLE
#define QUERIES   max(SPEC >> ATTN_QUERIES_SHIFT & 15u, 1u)
#define TILE_ROWS QUERIES
#include "attention_lanes.glsl"

/* n_heads <= QUERIES heads, from `head` on, over positions begin .. n - 1 of the slice at `first`. */
void attend_heads(uint head, uint n_heads, uint first, uint begin, uint n)
{
	uint slice = gl_WorkGroupID.y, row = gl_WorkGroupID.z;
	queries q;
	q.t.is_half = false;
	q.t.at[0] = (row * args.stride_q + (head + min(tile_row(0), n_heads - 1)) * HEAD_DIM) / 4;
	[[unroll]] for (uint t = 0; t < TILE_ROWS; t++)
		query_begin(q, t, first + uvec2(begin, n));
	attend(q, step_rows[row].seq, gl_WorkGroupID.x, first + begin, first + n);
	uint h = 0;
	[[dont_unroll]] do {
		uint to = ((row * args.n_head + head + h) * args.n_slices + slice) * (1 + HEAD_DIM / 2);
		float sum = lanes_sum(q.sum[0]);
		if (lane == 0)
			partial[to] = vec2(q.maximum[0], sum);
		[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
			uint column = (8 * c + lane) * COLUMNS;
			if (column < HEAD_DIM) {
				uint at = to + 1 + column / 2;
				partial[at] = values[0][c][0].xy;
				partial[at + 1] = values[0][c][0].zw;
				partial[at + 2] = values[0][c][1].xy;
				partial[at + 3] = values[0][c][1].zw;
			}
		}
		query_next(q);
		h++;
	} while (h < n_heads);
}
#else
#define QUERIES 4 /* query heads at a time */
#include "attention.glsl"

/* n_heads <= QUERIES heads, from `head` on, over positions begin .. n - 1 of the slice at `first`. */
void attend_heads(uint head, uint n_heads, uint first, uint begin, uint n)
{
	uint slice = gl_WorkGroupID.y, row = gl_WorkGroupID.z;
	for (uint i = lane; i < HEAD_DIM * QUERIES; i += LANES) {
		uint h = i / HEAD_DIM, d = i % HEAD_DIM;
		queries[d][0][h] = h < n_heads
			? q[row * args.stride_q + (head + h) * HEAD_DIM + d] : 0.0;
	}
	barrier();
	float maximum = ATTN_NONE, sum = 0;
	vec4 values[MAX_PAIRS][2][VECS];
	for (uint p = 0; p < MAX_PAIRS; p++)
		values[p][0][0] = values[p][1][0] = vec4(0);
	if (n > 0)
		attend(step_rows[row].seq, gl_WorkGroupID.x, first, begin, n, uvec2(begin, n), maximum,
			sum, values);
	publish(sum, values);
	for (uint h = 0; h < n_heads; h++) {
		uint to = ((row * args.n_head + head + h) * args.n_slices + slice) * (2 + HEAD_DIM);
		for (uint d = lane; d < HEAD_DIM; d += LANES)
			partial[to + 2 + d] = value_of(h, d);
		if (lane == h) {
			partial[to] = maximum; /* this lane's query is h */
			partial[to + 1] = sum_of(h);
		}
	}
	barrier(); /* the next heads write the shared arrays again */
}
#endif

void main()
{
	uint head_kv = gl_WorkGroupID.x, slice = gl_WorkGroupID.y, row = gl_WorkGroupID.z;
	if (head_kv >= args.n_head_kv || slice >= args.n_slices || row >= step_head.n_rows)
		return;
	uint n_gqa = args.n_head / args.n_head_kv, pos = step_rows[row].pos;
	uint start = WINDOW_START(pos, args.window);
	uint first = (start / ATTN_SLICE + slice) * ATTN_SLICE;
	/* Positions of the slice that the row sees; the cache beside them may hold anything. */
	uint begin = max(start, first) - first, n = min(ATTN_SLICE, max(pos + 1, first) - first);
	uint i = 0;
	do {
		attend_heads(head_kv * n_gqa + i, min(QUERIES, n_gqa - i), first, begin, n);
		i += QUERIES;
	} while (i < n_gqa);
}
