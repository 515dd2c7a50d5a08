/* embed: x[row] = scale * (dequantised row of the token, or of the position) (+ residual), where the chunk
 * holds that row.
 * One workgroup for a row of the step; a lane takes whole units. */
layout(local_size_x = 64) in;
ARGS(embed_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 3) readonly buffer residual_buffer { float residual[]; };

void main()
{
	uint row = gl_WorkGroupID.z;
	if (flat_group() != 0 || row >= step_head.n_rows)
		return;
	uint token = args.by_pos != 0 ? step_rows[row].pos : step_rows[row].token;
	if (token < args.first_row || token - args.first_row >= args.n_weight_rows)
		return;
	uint n_units = (args.n_embd + UNIT - 1) / UNIT;
	uint unit = gl_LocalInvocationID.x;
	if (unit < n_units) do {
		vec4 w[8];
		weight_decode((token - args.first_row) * args.row_bytes, unit, w);
		uint n = min(args.n_embd - unit * UNIT, UNIT), at = row * args.stride + unit * UNIT;
		uint residual_at = row * args.stride_residual + unit * UNIT, i = 0;
		/* w moves up: with an index that is not constant lavapipe would compile a branch for each element. */
		[[dont_unroll]] do {
			float value = args.scale * w[0].x;
			w[0] = w[0].yzwx;
			if (i % 4 == 3)
				[[unroll]] for (uint k = 0; k < 7; k++)
					w[k] = w[k + 1];
			if (args.has_residual != 0)
				value += residual[residual_at + i];
			x[at + i] = value;
			i++;
		} while (i < n);
		unit += 64;
	} while (unit < n_units);
}
