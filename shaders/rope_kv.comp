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
	for (uint i = lane; i < HEAD_DIM; i += LANES)
		sum += qkv[at + i] * qkv[at + i];
	return 1 / sqrt(group_sum(sum) / float(HEAD_DIM) + args.eps);
}

/* Element i of the head that begins at `at`, of q (0) or of k (1). */
float element(uint which, uint at, uint i)
{
	float x = qkv[at + i];
	return HAS_NORMS ? x * norm_factor * norms[which * HEAD_DIM + i] : x;
}

/* The same after rotation. */
float rotated(uint which, uint at, uint i, uint pos)
{
	float a = element(which, at, i);
	if (i >= args.n_rot)
		return a;
	uint n = args.n_rot / 2;
	bool first = args.neox != 0 ? i < n : i % 2 == 0;
	float b = element(which, at, args.neox != 0 ? (first ? i + n : i - n) : i ^ 1u);
	vec2 turn = rope_table[pos * n + (args.neox != 0 ? i % n : i / 2)];
	return first ? a * turn.x - b * turn.y : b * turn.y + a * turn.x;
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
		uint i = lane;
		if (i < HEAD_DIM) do {
			q_out[to + i] = rotated(0, q_at, i, r.pos) * factor;
			i += LANES;
		} while (i < HEAD_DIM);
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
	uint i = lane;
	if (i < HEAD_DIM) do {
		head[IS_K][i] = rotated(1, k_at, i, r.pos);
		head[IS_V][i] = qkv[v_at + i] * v_factor;
		i += LANES;
	} while (i < HEAD_DIM);
	group_barrier();
	uint to = kv_element(r.seq, r.pos, head_kv);
	head_store(IS_K, K_TYPE, to, lane, LANES);
	head_store(IS_V, V_TYPE, to, lane, LANES);
}
