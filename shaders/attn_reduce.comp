/* attn_reduce: merges the slices that attn_decode wrote for a head of a row, and the head's sink.  Each
 * lane repeats the sum over the slices, which are few, and owns pairs of columns.  LANES is a knob.  Loops are
 * tested at their end: see matvec.glsl. */
layout(local_size_x_id = LANES_ID) in;
ARGS(attn_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { vec2 result[]; };
layout(std430, set = 0, binding = 1) readonly buffer partial_buffer { vec2 partial[]; };
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
	uint slice_pairs = 1 + HEAD_DIM / 2; /* maximum and sum, then the values */
	uint at = (row * args.n_head + head) * args.n_slices * slice_pairs;
	float sink = args.has_sinks != 0 ? sinks[head] : ATTN_NONE, maximum = sink;
	uint i = 0;
	do {
		maximum = max(maximum, partial[at + i * slice_pairs].x);
		i++;
	} while (i < n);
	uint pair = gl_LocalInvocationID.x;
	if (pair < HEAD_DIM / 2) do {
		float sum = args.has_sinks != 0 ? exp(sink - maximum) : 0.0;
		vec2 value = vec2(0);
		i = 0;
		do {
			uint slice = at + i * slice_pairs;
			vec2 found = partial[slice];
			float weight = exp(found.x - maximum);
			sum += weight * found.y;
			value += weight * partial[slice + 1 + pair];
			i++;
		} while (i < n);
		result[(row * args.stride_out + head * HEAD_DIM) / 2 + pair] = value / sum;
		pair += LANES;
	} while (pair < HEAD_DIM / 2);
}
