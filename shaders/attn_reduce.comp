/* attn_reduce: merges the slices that attn_decode wrote for a head of a row, and the head's sink.  Each
 * lane repeats the sum over the slices, which are few, and owns columns. */
layout(local_size_x = 64) in;
layout(push_constant) uniform push { attn_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer partial_buffer { float partial[]; };
layout(std430, set = 0, binding = 2) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 3) readonly buffer sink_buffer { float sinks[]; };
#define HEAD_DIM (SPEC & ATTN_DIM_MASK)

void main()
{
	uint head = flat_group(), row = gl_WorkGroupID.z;
	if (head >= args.n_head || row >= step_head.n_rows)
		return;
	uint pos = step_rows[row].pos;
	uint n = pos / ATTN_SLICE - WINDOW_START(pos, args.window) / ATTN_SLICE + 1;
	n = min(n, args.n_slices);
	uint at = (row * args.n_head + head) * args.n_slices * (2 + HEAD_DIM);
	float maximum = args.has_sinks != 0 ? sinks[head] : ATTN_NONE;
	for (uint i = 0; i < n; i++)
		maximum = max(maximum, partial[at + i * (2 + HEAD_DIM)]);
	float sum = args.has_sinks != 0 ? exp(sinks[head] - maximum) : 0.0;
	for (uint i = 0; i < n; i++) {
		uint slice = at + i * (2 + HEAD_DIM);
		sum += exp(partial[slice] - maximum) * partial[slice + 1];
	}
	for (uint d = gl_LocalInvocationID.x; d < HEAD_DIM; d += 64) {
		float value = 0;
		for (uint i = 0; i < n; i++) {
			uint slice = at + i * (2 + HEAD_DIM);
			value += exp(partial[slice] - maximum) * partial[slice + 2 + d];
		}
		result[row * args.stride_out + head * HEAD_DIM + d] = value / sum;
	}
}
