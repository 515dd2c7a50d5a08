/* rope_kv: rotates q into q_out and k into the cache, copies v into the cache.  One workgroup for a
 * head of a row; heads from n_head on are KV heads. */
layout(local_size_x = 32) in;
layout(push_constant) uniform push { rope_kv_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer q_buffer { float q_out[]; };
layout(std430, set = 0, binding = 3) readonly buffer qkv_buffer { float qkv[]; };
layout(std430, set = 0, binding = 4) readonly buffer rope_buffer { vec2 rope_table[]; };
layout(std430, set = 0, binding = 5) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
#define KV_WRITE
#define KV_FIRST_BINDING 1
#define TABLE_BINDING    6
#include "kv.glsl"

/* Element i, after rotation, of the head that begins at `at`. */
float rotated(uint at, uint i, uint pos)
{
	float a = qkv[at + i];
	if (i >= args.n_rot)
		return a;
	uint n = args.n_rot / 2;
	bool first = args.neox != 0 ? i < n : i % 2 == 0;
	float b = qkv[at + (args.neox != 0 ? (first ? i + n : i - n) : i ^ 1u)];
	vec2 turn = rope_table[pos * n + (args.neox != 0 ? i % n : i / 2)];
	return first ? a * turn.x - b * turn.y : b * turn.y + a * turn.x;
}

void main()
{
	uint head = flat_group(), row = gl_WorkGroupID.z;
	if (head >= args.n_head + args.n_head_kv || row >= step_head.n_rows)
		return;
	step_row r = step_rows[row];
	bool is_q = head < args.n_head;
	uint head_kv = head - args.n_head;
	uint from = row * args.stride_qkv;
	uint at = from + (is_q ? head * HEAD_DIM : args.k_offset + head_kv * HEAD_DIM);
	uint v_at = from + args.v_offset + head_kv * HEAD_DIM;
	uint q_to = row * args.stride_q + head * HEAD_DIM;
	uint kv_to = is_q ? 0 : kv_element(r.seq, r.pos, head_kv) / 2;
	for (uint pair = gl_LocalInvocationID.x; pair < HEAD_DIM / 2; pair += 32) {
		uint i = 2 * pair;
		vec2 value = vec2(rotated(at, i, r.pos), rotated(at, i + 1, r.pos));
		if (is_q) {
			q_out[q_to + i] = value.x;
			q_out[q_to + i + 1] = value.y;
		} else {
			k_store(kv_to + pair, value);
			v_store(kv_to + pair, vec2(qkv[v_at + i], qkv[v_at + i + 1]));
		}
	}
}
