/* Products of rows of weights with up to TILE_ROWS rows of x: the body of matmul and expert_matmul.
 *
 * A tile in registers: a lane takes TILE rows of weights, 32 apart so that a small matrix too fills the
 * lanes, decodes a unit of each, and multiplies it with every row of x.  x is the same for all
 * lanes.  The running sums lie in shared memory, a lane's own, so that the loop over the rows of x
 * stays a loop: unrolled, it takes lavapipe a second to compile and runs at half the speed.
 *
 * An element's sum runs over its weights in order, whatever the step, the chunk and the tile.
 *
 * The includer declares args (n_out, n_in, row_bytes), and defines x_begin and store. */
#include "product.glsl"

#define TILE_ROWS 8 /* of x: rows/group in kernels.def */
#define TILE      4 /* rows of weights of a lane: components of a vec4 */

/* Where row t of the tile begins in x, in vec4s. */
uint x_begin(uint t);

/* Takes each output and each row t of the tile. */
void store(uint out_row, uint t, float sum);

shared vec4 sums[TILE_ROWS][32];

uint lane = gl_LocalInvocationID.x;

/* Adds the products of a unit of this lane's weights, the first of which is row `first` of the matrix
 * that begins at first_row of the weights, with n_rows rows of x. */
void tile_add(uint first_row, uint first, uint unit, uint n_rows)
{
	vec4 w[TILE][8];
	for (uint i = 0; i < TILE; i++) {
		uint row = first_row + min(first + 32 * i, args.n_out - 1);
		weight_decode(row * args.row_bytes, unit, w[i]);
#ifdef WEIGHT_HAS_TAIL
		unit_mask(w[i], unit, args.n_in);
#endif
	}
	for (uint t = 0; t < n_rows; t++) {
		uint x_at = x_begin(t) + unit * 8;
		vec4 sum = vec4(0);
		for (uint k = 0; k < 8; k++) {
			vec4 xs = x_quad(x_at + k);
			for (uint i = 0; i < TILE; i++)
				sum[i] += dot(w[i][k], xs);
		}
		sums[t][lane] += sum;
	}
}

void tile_store(uint first, uint t, vec4 sum)
{
	for (uint i = 0; i < TILE; i++) {
		uint out_row = first + 32 * i;
		if (out_row >= args.n_out)
			continue; /* not `return`: lavapipe would compile for three times as long */
		store(out_row, t, sum[i]);
	}
}

/* This workgroup's outputs, for n_rows <= TILE_ROWS rows of x, of the matrix whose rows begin at
 * first_row of the weights. */
void matmul(uint first_row, uint n_rows)
{
	uint group_first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(group_first + OUTPUTS_PER_GROUP, args.n_out);
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	for (uint first = group_first + lane; first < end; first += 32 * TILE) {
		for (uint t = 0; t < n_rows; t++)
			sums[t][lane] = vec4(0);
		for (uint unit = 0; unit < n_units; unit++)
			tile_add(first_row, first, unit, n_rows);
		for (uint t = 0; t < n_rows; t++)
			tile_store(first, t, sums[t][lane]);
	}
}
