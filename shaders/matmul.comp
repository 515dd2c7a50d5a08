/* matmul: out[row] = weights x[row] (+ bias) (+ residual), for ROWS rows of the step per workgroup.
 *
 * A tile in registers: a lane takes TILE rows of weights, 32 apart so that a small matrix too fills the
 * lanes, decodes a unit of each, and multiplies it with every row of the step.  x is the same for all
 * lanes.  The running sums lie in shared memory, a lane's own, so that the loop over the rows of the
 * step stays a loop: unrolled, it takes lavapipe a second to compile and runs at half the speed.
 *
 * An element's sum runs over its weights in order, whatever the step, the chunk and the tile. */
layout(local_size_x = 32) in;
layout(push_constant) uniform push { matmul_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 2) readonly buffer x_buffer { vec4 x[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#define ROWS 8 /* of the step: rows/group in kernels.def */
#define TILE 4 /* rows of weights of a lane: components of a vec4 */

shared vec4 sums[ROWS][32];

uint lane = gl_LocalInvocationID.x;

/* Adds the products of a unit of this lane's weights, the first of which is row `first`. */
void tile_add(uint first, uint unit, uint first_row, uint n_rows)
{
	vec4 w[TILE][8];
	for (uint i = 0; i < TILE; i++) {
		weight_decode(min(first + 32 * i, args.n_out - 1) * args.row_bytes, unit, w[i]);
#ifdef WEIGHT_HAS_TAIL
		unit_mask(w[i], unit, args.n_in);
#endif
	}
	for (uint t = 0; t < n_rows; t++) {
		uint x_at = (first_row + t) * (args.stride_x / 4) + unit * 8;
		vec4 sum = vec4(0);
		for (uint k = 0; k < 8; k++) {
			vec4 xs = x[x_at + k];
			for (uint i = 0; i < TILE; i++)
				sum[i] += dot(w[i][k], xs);
		}
		sums[t][lane] += sum;
	}
}

void tile_store(uint first, uint row, vec4 sum)
{
	for (uint i = 0; i < TILE; i++) {
		uint out_row = first + 32 * i;
		if (out_row >= args.n_out)
			continue; /* not `return`: lavapipe would compile for three times as long */
		if (args.has_bias != 0)
			sum[i] += bias[out_row];
		if (args.has_residual != 0)
			sum[i] += residual[row * args.stride_residual + out_row];
		result[row * args.stride_out + out_row] = sum[i];
	}
}

void main()
{
	uint group_first = flat_group() * OUTPUTS_PER_GROUP, first_row = gl_WorkGroupID.z * ROWS;
	if (group_first >= args.n_out || first_row >= args.n_rows)
		return;
	uint end = min(group_first + OUTPUTS_PER_GROUP, args.n_out);
	uint n_rows = min(args.n_rows - first_row, ROWS), n_units = (args.n_in + UNIT - 1) / UNIT;
	for (uint first = group_first + lane; first < end; first += 32 * TILE) {
		for (uint t = 0; t < n_rows; t++)
			sums[t][lane] = vec4(0);
		for (uint unit = 0; unit < n_units; unit++)
			tile_add(first, unit, first_row, n_rows);
		for (uint t = 0; t < n_rows; t++)
			tile_store(first, first_row + t, sums[t][lane]);
	}
}
