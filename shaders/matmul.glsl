/* Products of rows of weights with TILE_ROWS rows of x: the body of matmul and expert_matmul.
 *
 * A tile in registers: a lane takes 4 rows of weights, 32 apart so that a small matrix too fills the
 * lanes, times 8 rows of x.  No shared memory, no barriers; weights are decoded in registers and x is
 * the same for all lanes.  An element's sum runs over its weights in order, whatever the rows of the
 * step, the chunk and the tile.
 *
 * The includer declares args (n_out, n_in, row_bytes) and x (vec4s), and defines x_begin and store. */
#extension GL_EXT_control_flow_attributes : require

#define TILE_ROWS 8 /* of x */
#define TILE      4 /* rows of weights of a lane */

/* Where row t < TILE_ROWS of the tile begins in x, in vec4s; beyond the last, some row that is there. */
uint x_begin(uint t);

/* Takes each output and each t < TILE_ROWS. */
void store(uint out_row, uint t, float sum);

void tile(uint first_row, uint first)
{
	float sums[TILE][TILE_ROWS];
	uint x_at[TILE_ROWS];
	for (uint t = 0; t < TILE_ROWS; t++) {
		x_at[t] = x_begin(t);
		for (uint i = 0; i < TILE; i++)
			sums[i][t] = 0;
	}
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	for (uint unit = 0; unit < n_units; unit++) {
		vec4 w[TILE][8];
		for (uint i = 0; i < TILE; i++) {
			uint row = first_row + min(first + 32 * i, args.n_out - 1);
			weight_decode(row * args.row_bytes, unit, w[i]);
#ifdef WEIGHT_HAS_TAIL
			unit_mask(w[i], unit, args.n_in);
#endif
		}
		/* Unrolled, this is ten times the code, and lavapipe needs a second to compile it. */
		[[dont_unroll]] for (uint k = 0; k < 8; k++)
			for (uint t = 0; t < TILE_ROWS; t++) {
				vec4 xs = x[x_at[t] + unit * 8 + k];
				for (uint i = 0; i < TILE; i++)
					sums[i][t] += dot(w[i][k], xs);
			}
	}
	for (uint i = 0; i < TILE; i++)
		for (uint t = 0; t < TILE_ROWS && first + 32 * i < args.n_out; t++)
			store(first + 32 * i, t, sums[i][t]);
}

/* This workgroup's outputs of the matrix whose rows begin at first_row of the weights. */
void matmul(uint first_row)
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
	for (uint at = first; at < end; at += 32 * TILE)
		tile(first_row, at + gl_LocalInvocationID.x);
}
