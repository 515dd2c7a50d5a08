/* Products of rows of weights with up to TILE_ROWS rows of x on GPUs: the body of matmul and expert_matmul with
 * LP_SHARED.
 *
 * The lanes of a workgroup decode UNITS units of TILE_OUTPUTS rows of weights, neighbours those of one row, and load
 * as many of the rows of x, once for all into shared memory.  Then each multiplies LANE_OUTPUTS outputs with LANE_ROWS rows in registers; they lie
 * LANES_ACROSS and LANES_DOWN apart, so that neighbouring lanes read and store neighbours.  A tile with few rows
 * multiplies half of them, or a quarter.
 *
 * An element is summed in parts (parts.h): with SPLIT 1 a workgroup takes them all, one after the other, else every
 * SPLIT-th, and stores the sums of each, PART_ROWS rows behind those of the part before.
 *
 * matmul.glsl says what else the includer defines. */
#include "parts.h"
#ifndef SPLIT_ID
#define SPLIT 1
#endif
layout(local_size_x_id = LANES_ID) in;

#define LANE_OUTPUTS 4 /* components of a vec4 */
#define LANES_ACROSS (TILE_OUTPUTS / LANE_OUTPUTS)
#define LANES_DOWN   (LANES / LANES_ACROSS)
#define LANE_ROWS    (TILE_ROWS / LANES_DOWN)
#define ROW_QUADS    (8 * UNITS) /* vec4s of a row that are there at a time */
#define LANE_LOADS   (ROW_QUADS * TILE_ROWS / LANES) /* vec4s of x */

shared vec4 w_tile[ROW_QUADS * TILE_OUTPUTS]; /* [quad of the row][output]: see w_place */
shared vec4 x_tile[TILE_ROWS * ROW_QUADS];    /* [row][quad]: see x_place */

vec4 totals[LANE_ROWS], sums[LANE_ROWS], unit_sums[LANE_ROWS]; /* of parts, of units, of a unit */
uint x_from[LANE_LOADS];

uint lane = gl_LocalInvocationID.x, across = lane % LANES_ACROSS, down = lane / LANES_ACROSS;

/* Outputs are mixed so that lanes that decode units of the same do not meet in a bank, quads so that neighbouring
 * rows do not. */
uint w_place(uint quad, uint o)
{
	return quad * TILE_OUTPUTS + (o ^ quad / 8 * (8 / UNITS));
}

uint x_place(uint row, uint quad)
{
	return ROW_QUADS * row + (quad ^ row % 8);
}

/* The row of x of which a lane makes load i, of quad lane % ROW_QUADS. */
uint x_row(uint i)
{
	return lane / ROW_QUADS + LANES / ROW_QUADS * i;
}

/* n units from `unit` on of the rows of weights from `first` on, of the matrix that begins at first_row of the
 * weights; rows beyond the last repeat it. */
void load_weights(uint first_row, uint first, uint unit, uint n)
{
	for (uint i = lane; i < UNITS * TILE_OUTPUTS; i += LANES) {
		uint o = i / UNITS, k = i % UNITS;
		vec4 w[8];
		if (k >= n)
			continue;
		weight_decode((first_row + min(first + o, args.n_out - 1)) * args.row_bytes,
			unit + k, w);
#ifdef WEIGHT_HAS_TAIL
		unit_mask(w, unit + k, args.n_in);
#endif
		[[unroll]] for (uint part = 0; part < 8; part++)
			w_tile[w_place(8 * k + part, o)] = w[part];
	}
}

void load_x(uint unit, uint n, uint n_rows)
{
	uint quad = lane % ROW_QUADS;
	[[unroll]] for (uint i = 0; i < LANE_LOADS; i++)
		if (x_row(i) < n_rows && quad < 8 * n)
			x_tile[x_place(x_row(i), quad)] = x_quad(x_from[i] + 8 * unit + quad);
}

/* Adds the products of a quad with rows from .. to - 1 of this lane. */
void multiply_rows(vec4 w[LANE_OUTPUTS], uint quad, const uint from, const uint to)
{
	[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
		if (i >= from && i < to) {
			vec4 x = x_tile[x_place(down + LANES_DOWN * i, quad)];
			[[unroll]] for (uint o = 0; o < LANE_OUTPUTS; o++)
				unit_sums[i][o] += dot(w[o], x);
		}
}

/* Adds the products of the k-th unit that is there with the first n of this lane's rows, and some more. */
void multiply(uint k, uint n)
{
	[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
		unit_sums[i] = vec4(0);
	for (uint quad = 8 * k; quad < 8 * k + 8; quad++) {
		vec4 w[LANE_OUTPUTS];
		[[unroll]] for (uint o = 0; o < LANE_OUTPUTS; o++)
			w[o] = w_tile[w_place(quad, across + LANES_ACROSS * o)];
		multiply_rows(w, quad, 0, LANE_ROWS / 4);
		if (n > LANE_ROWS / 4)
			multiply_rows(w, quad, LANE_ROWS / 4, LANE_ROWS / 2);
		if (n > LANE_ROWS / 2)
			multiply_rows(w, quad, LANE_ROWS / 2, LANE_ROWS);
	}
	[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
		sums[i] += unit_sums[i];
}

/* sums = those of units begin to end - 1. */
void sum_units(uint first_row, uint first, uint n_rows, uint begin, uint end)
{
	uint n = (n_rows + LANES_DOWN - 1) / LANES_DOWN;
	[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
		sums[i] = vec4(0);
	for (uint unit = begin; unit < end; unit += UNITS) {
		uint n_units = UNITS > 1 ? min(UNITS, end - unit) : 1;
		barrier();
		load_weights(first_row, first, unit, n_units);
		load_x(unit, n_units, n_rows);
		barrier();
		for (uint k = 0; k < n_units; k++)
			multiply(k, n);
	}
}

void clear_totals()
{
	[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
		totals[i] = vec4(0);
}

/* before: rows of what is stored that belong to earlier parts. */
void store_totals(uint first, uint n_rows, uint before)
{
	[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
		[[unroll]] for (uint o = 0; o < LANE_OUTPUTS; o++) {
			uint row = down + LANES_DOWN * i, out_row = first + across + LANES_ACROSS * o;
			if (row < n_rows && out_row < args.n_out)
				store(out_row, before + row, totals[i][o]);
		}
}

void matmul(uint first_row, uint n_rows)
{
	uint first = flat_group() / SPLIT * TILE_OUTPUTS;
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	if (first >= args.n_out)
		return;
	[[unroll]] for (uint i = 0; i < LANE_LOADS; i++)
		x_from[i] = x_begin(min(x_row(i), n_rows - 1));
	clear_totals();
	for (uint part = flat_group() % SPLIT; part < N_PARTS(n_units); part += SPLIT) {
		uint begin = part * PART_UNITS(n_units);
		sum_units(first_row, first, n_rows, begin, min(begin + PART_UNITS(n_units), n_units));
		[[unroll]] for (uint i = 0; i < LANE_ROWS; i++)
			totals[i] += sums[i];
		if (SPLIT > 1) {
			store_totals(first, n_rows, part * PART_ROWS);
			clear_totals();
		}
	}
	if (SPLIT == 1)
		store_totals(first, n_rows, 0);
}
