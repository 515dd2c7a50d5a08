/* matmul: out[row] = weights x[row] (+ bias) (+ residual), for 8 rows of the step per workgroup.
 *
 * A tile in registers: a lane takes 4 rows of weights, 32 apart so that a small matrix too fills the
 * lanes, times 8 rows of the step.  No shared memory, no barriers; weights are decoded in registers
 * and x is the same for all lanes.  An element's sum runs over its weights in order, whatever the
 * rows of the step, the chunk and the tile. */
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 32) in;
layout(push_constant) uniform push { matmul_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 2) readonly buffer x_buffer { vec4 x[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#define ROWS 8 /* of the step */
#define TILE 4 /* rows of weights of a lane */

void tile(uint first, uint first_row)
{
	float sums[TILE][ROWS];
	uint x_at[ROWS];
	for (uint t = 0; t < ROWS; t++) {
		x_at[t] = min(first_row + t, args.n_rows - 1) * (args.stride_x / 4);
		for (uint i = 0; i < TILE; i++)
			sums[i][t] = 0;
	}
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	for (uint unit = 0; unit < n_units; unit++) {
		vec4 w[TILE][8];
		for (uint i = 0; i < TILE; i++) {
			uint out_row = min(first + 32 * i, args.n_out - 1);
			weight_decode(out_row * args.row_bytes, unit, w[i]);
#ifdef WEIGHT_HAS_TAIL
			unit_mask(w[i], unit, args.n_in);
#endif
		}
		/* Unrolled, this is ten times the code, and lavapipe needs a second to compile it. */
		[[dont_unroll]] for (uint k = 0; k < 8; k++)
			for (uint t = 0; t < ROWS; t++) {
				vec4 xs = x[x_at[t] + unit * 8 + k];
				for (uint i = 0; i < TILE; i++)
					sums[i][t] += dot(w[i][k], xs);
			}
	}
	for (uint i = 0; i < TILE; i++) {
		uint out_row = first + 32 * i;
		for (uint t = 0; t < ROWS; t++) {
			uint row = first_row + t;
			if (out_row >= args.n_out || row >= args.n_rows)
				break;
			float sum = sums[i][t];
			if (args.has_bias != 0)
				sum += bias[out_row];
			if (args.has_residual != 0)
				sum += residual[row * args.stride_residual + out_row];
			result[row * args.stride_out + out_row] = sum;
		}
	}
}

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP, first_row = gl_WorkGroupID.z * ROWS;
	if (first >= args.n_out || first_row >= args.n_rows)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
	for (uint at = first; at < end; at += 32 * TILE)
		tile(at + gl_LocalInvocationID.x, first_row);
}
