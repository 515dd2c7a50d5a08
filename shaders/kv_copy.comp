/* kv_copy: copies whole blocks of a layer's KV cache, see args.h; words are words, whatever their type. */
#define LANES 64
layout(local_size_x = LANES) in;
ARGS(kv_copy_args);
layout(std430, set = 0, binding = 0) buffer k_buffer { uvec4 k_quads[]; };
layout(std430, set = 0, binding = 1) buffer v_buffer { uvec4 v_quads[]; };
layout(std430, set = 0, binding = 2) readonly buffer step_buffer {
	step_header step_head;
	copy_row step_rows[];
};

/* A block is 32 positions: in every type a multiple of 4 words. */
void main()
{
	uint row = gl_WorkGroupID.z;
	if (row >= step_head.n_rows)
		return;
	copy_row r = step_rows[row];
	uint from = args.has_window != 0 ? r.from_window : r.from;
	uint to = args.has_window != 0 ? r.to_window : r.to;
	if (from == to)
		return;
	uint k_n = args.k_words / 4, v_n = args.v_words / 4;
	uint first = flat_group() * (OUTPUTS_PER_GROUP / 4), end = first + OUTPUTS_PER_GROUP / 4;
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += LANES) {
		if (i < k_n)
			k_quads[to * k_n + i] = k_quads[from * k_n + i];
		if (i < v_n)
			v_quads[to * v_n + i] = v_quads[from * v_n + i];
	}
}
