/* attn_decode: one slice of ATTN_SLICE positions for all query heads of a KV head, for one row of the
 * step.  Writes the slice's maximum score, the sum of exp(score - maximum), and the values weighted
 * by them: attn_reduce merges the slices.
 *
 * Heads go HEADS at a time.  For the scores a lane is a position; for the values it owns a pair of
 * columns and, when there are more lanes than pairs, every n_parts-th position. */
#define LANES ATTN_SLICE
layout(local_size_x = LANES) in;
layout(push_constant) uniform push { attn_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer partial_buffer { float partial[]; };
layout(std430, set = 0, binding = 1) readonly buffer q_buffer { float q[]; };
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
#define KV_READ
#define KV_FIRST_BINDING 2
#define TABLE_BINDING    5
#include "kv.glsl"
#define REDUCE_TYPE vec4
#include "reduce.glsl"

#define HEADS 4

shared vec4 queries[MAX_HEAD_DIM];  /* [dimension][head]; a vec4 for the HEADS heads, as below */
shared vec4 weights[LANES];         /* exp(score - maximum) of each position */
shared uint pairs[LANES];           /* where each position's K and V begin in the cache */
shared vec4 scratch[2 * LANES];

uint lane = gl_LocalInvocationID.x;

/* The scores of this lane's position. */
vec4 scores_of(uint at)
{
	vec4 sum = vec4(0);
	for (uint i = 0; i < args.head_dim / 2; i++) {
		vec2 k = k_pair(at + i);
		sum += k.x * queries[2 * i] + k.y * queries[2 * i + 1];
	}
	return sum * args.scale;
}

void main()
{
	uint head_kv = gl_WorkGroupID.x, slice = gl_WorkGroupID.y, row = gl_WorkGroupID.z;
	if (head_kv >= args.n_head_kv || slice >= args.n_slices || row >= step_head.n_rows)
		return;
	uint n_gqa = args.n_head / args.n_head_kv, first = slice * ATTN_SLICE;
	step_row r = step_rows[row];
	/* Positions of this slice that the row sees; the cache beyond them may hold anything. */
	uint n = min(ATTN_SLICE, max(r.pos + 1, first) - first);
	uint n_pairs = HEAD_DIM / 2, n_parts = LANES / n_pairs;
	uint pair = lane % n_pairs, part = lane / n_pairs;
	if (lane < n)
		pairs[lane] = kv_element(r.seq, first + lane, head_kv) / 2;

	for (uint head = head_kv * n_gqa; head < (head_kv + 1) * n_gqa; head += HEADS) {
		uint n_heads = min(HEADS, (head_kv + 1) * n_gqa - head);
		for (uint i = lane; i < HEAD_DIM * HEADS; i += LANES) {
			uint h = i / HEAD_DIM, d = i % HEAD_DIM;
			queries[d][h] = h < n_heads
				? q[row * args.stride_q + (head + h) * HEAD_DIM + d] : 0.0;
		}
		barrier();
		vec4 score = lane < n ? scores_of(pairs[lane]) : vec4(ATTN_NONE);
		vec4 maximum = group_max(score);
		vec4 weight = lane < n ? exp(score - maximum) : vec4(0);
		weights[lane] = weight;
		vec4 sum = group_sum(weight);

		vec4 even = vec4(0), odd = vec4(0);
		if (part < n_parts)
			for (uint i = part; i < n; i += n_parts) {
				vec2 v = v_pair(pairs[i] + pair);
				even += v.x * weights[i];
				odd += v.y * weights[i];
			}
		scratch[2 * lane] = even;
		scratch[2 * lane + 1] = odd;
		barrier();
		uint to = ((row * args.n_head + head) * args.n_slices + slice) * (2 + HEAD_DIM);
		uint head_stride = args.n_slices * (2 + HEAD_DIM);
		for (uint d = lane; d < HEAD_DIM; d += LANES) {
			vec4 value = vec4(0);
			for (uint i = 0; i < n_parts; i++)
				value += scratch[2 * (i * n_pairs) + d];
			for (uint h = 0; h < n_heads; h++)
				partial[to + h * head_stride + 2 + d] = value[h];
		}
		if (lane < n_heads) {
			partial[to + lane * head_stride] = maximum[lane];
			partial[to + lane * head_stride + 1] = sum[lane];
		}
		barrier(); /* the next heads write the shared arrays again */
	}
}
