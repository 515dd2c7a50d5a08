/* rope_kv: norms and rotates q into q_out and k into the cache, copies v into the cache.  One workgroup for a
 * head of a row; heads from n_head on are KV heads.  Loops are tested at their end: see matvec.glsl. */
#define GROUP_SIZE 32
#include "group.glsl"
layout(local_size_x = LANES) in;
ARGS(rope_kv_args);
layout(std430, set = 0, binding = 0) writeonly buffer q_buffer { float q_out[]; };
layout(std430, set = 0, binding = 3) readonly buffer qkv_buffer { float qkv[]; };
layout(std430, set = 0, binding = 4) readonly buffer rope_buffer { vec2 rope_table[]; };
layout(std430, set = 0, binding = 5) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 7) readonly buffer norm_buffer { float norms[]; };
#define KV_WRITE      1
#define TABLE_BINDING 6
#include "kv.glsl"

#define REDUCE_TYPE float
#include "reduce.glsl"

#define HAS_NORMS  ((SPEC & ROPE_NORMS) != 0)
#define HAS_V_NORM ((SPEC & ROPE_V_NORM) != 0)

float norm_factor = 1; /* of the head */

/* What the norm multiplies the head that begins at `at` with. */
float factor_of(uint at, uint lane)
{
	float sum = 0;
	uint i = lane;
	if (i < HEAD_DIM) do {
		float x = qkv[at + i];
		sum += x * x;
		i += LANES;
	} while (i < HEAD_DIM);
	return 1 / sqrt(group_sum(sum) / float(HEAD_DIM) + args.eps);
}

/* Element i of the head that begins at `at`, of q (0) or of k (1). */
float element(uint which, uint at, uint i)
{
	float x = qkv[at + i];
	return HAS_NORMS ? x * norm_factor * norms[which * HEAD_DIM + i] : x;
}

uint n_turned = args.n_rot / 2; /* pairs of a head; those behind them stay as they are */

/* The elements of a pair of a head. */
uvec2 elements_of(uint pair)
{
	return args.neox != 0 && pair < n_turned ? uvec2(pair, pair + n_turned) : 2 * pair + uvec2(0, 1);
}

/* Elements i of the head that begins at `at`, a pair, after rotation. */
vec2 rotated(uint which, uint at, uvec2 i, uint pair, uint pos)
{
	float a = element(which, at, i.x), b = element(which, at, i.y);
	if (pair >= n_turned)
		return vec2(a, b);
	vec2 turn = rope_table[pos * n_turned + pair];
	return vec2(a * turn.x - b * turn.y, a * turn.y + b * turn.x);
}

float q_factor(uint pos)
{
	return args.q_scale != 0 ? 1 + args.q_scale * log(float(1 + pos / args.q_scale_ctx)) : 1.0;
}

void main()
{
	uint h = flat_group(), row = gl_WorkGroupID.z, lane = gl_LocalInvocationID.x;
	if (h >= args.n_head + args.n_head_kv || row >= step_head.n_rows)
		return;
	step_row r = step_rows[row];
	uint from = row * args.stride_qkv;
	if (h < args.n_head) {
		uint to = row * args.stride_q + h * HEAD_DIM;
		float factor = q_factor(r.pos);
		uint q_at = from + h * args.q_head;
		if (HAS_NORMS)
			norm_factor = factor_of(q_at, lane);
		uint pair = lane;
		if (pair < HEAD_DIM / 2) do {
			uvec2 i = elements_of(pair);
			vec2 q = rotated(0, q_at, i, pair, r.pos) * factor;
			q_out[to + i.x] = q.x;
			q_out[to + i.y] = q.y;
			pair += LANES;
		} while (pair < HEAD_DIM / 2);
		return;
	}
	uint head_kv = h - args.n_head;
	uint k_at = from + args.k_offset + head_kv * HEAD_DIM;
	uint v_at = from + args.v_offset + head_kv * HEAD_DIM;
	float v_factor = 1;
	if (HAS_NORMS)
		norm_factor = factor_of(k_at, lane);
	if (HAS_V_NORM)
		v_factor = factor_of(v_at, lane);
	uint pair = lane;
	if (pair < HEAD_DIM / 2) do {
		uvec2 i = elements_of(pair);
		vec2 k = rotated(1, k_at, i, pair, r.pos);
		head[IS_K][i.x] = k.x;
		head[IS_K][i.y] = k.y;
		head[IS_V][i.x] = qkv[v_at + i.x] * v_factor;
		head[IS_V][i.y] = qkv[v_at + i.y] * v_factor;
		pair += LANES;
	} while (pair < HEAD_DIM / 2);
	group_barrier();
	uint to = kv_element(r.seq, r.pos, head_kv);
	head_store(IS_K, K_TYPE, to, lane, LANES);
	head_store(IS_V, V_TYPE, to, lane, LANES);
}
