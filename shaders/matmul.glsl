/* Products of rows of weights with up to TILE_ROWS rows of x: the body of matmul and expert_matmul.
 *
 * A lane takes TILE rows of weights, one behind the other so that it can store four outputs at once, and decodes a
 * unit of each for all rows of x.  An element's sum runs over its weights in order, whatever the step, the chunk
 * and the tile.  Loops are tested at their end: see matvec.glsl.
 *
 * For GPUs matmul_shared.glsl is the body (LP_SHARED), or matmul_coopmat.glsl (LP_COOPMAT, too), and sums in parts.
 *
 * The includer defines TILE_ROWS (rows/group in kernels.def), declares args (n_out, n_in, row_bytes),
 * and defines x_begin and store. */
#include "product.glsl"

/* Where row t of the tile begins in x, in vec4s. */
uint x_begin(uint t);

/* Takes each output and each row t of the tile; with PRODUCT_QUADS four outputs. */
void store(uint out_row, uint t, float sum);
void store_quad(uint out_row, uint t, vec4 sum);

#ifdef LP_COOPMAT
#include "matmul_coopmat.glsl"
#elif defined(LP_SHARED)
#include "matmul_shared.glsl"
#else
layout(local_size_x = 32) in;

#define MAX_TILE_ROWS TILE_ROWS
#include "tile.glsl"
#include "rows.glsl"

uint lane = gl_LocalInvocationID.x;

void tile_store(tile t, uint first, uint end, uint n_rows)
{
	uint row = 0;
	do {
		vec4 sum = t.sums[0];
		uint i = 0;
		if ((SPEC & PRODUCT_QUADS) != 0) {
			if (first < end)
				store_quad(first, row, sum);
		} else [[dont_unroll]] do {
			if (first + i < end)
				store(first + i, row, sum.x);
			sum = sum.yzwx;
			i++;
		} while (i < TILE);
		tile_turn(t);
		row++;
	} while (row < n_rows);
}

/* This workgroup's outputs, for n_rows <= TILE_ROWS rows of x, of the matrix whose rows begin at
 * first_row of the weights. */
void matmul(uint first_row, uint n_rows)
{
	uint group_first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(group_first + OUTPUTS_PER_GROUP, args.n_out);
	/* The same number of passes for all lanes: they shuffle. */
	uint last = group_first < args.n_out ? group_first + OUTPUTS_PER_GROUP : 0;
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	tile t;
	t.is_half = n_rows <= TILE_ROWS / 2;
	[[unroll]] for (uint i = 0; i < TILE_AT; i++) /* a row that is not there is another */
		t.at[i] = x_begin(min(tile_row(i), n_rows - 1));
	uint first = group_first + TILE * lane;
	if (first < last) do {
		[[unroll]] for (uint i = 0; i < TILE_ROWS; i++)
			t.sums[i] = vec4(0);
		uint rows[TILE]; /* those beyond the last repeat it */
		[[unroll]] for (uint i = 0; i < TILE; i++)
			rows[i] = (first_row + min(first + i, args.n_out - 1)) * args.row_bytes;
		uint unit = rows_touched(rows, 0, 1);
		do {
			vec4 w[TILE][8];
			rows_decode(rows, unit, w);
			tile_add(t, w, unit);
			unit++;
		} while (unit < n_units);
		tile_store(t, first, end, n_rows);
		first += 32 * TILE;
	} while (first < last);
}
#endif
