/* The products of matvec.glsl for several rows of x, for subgroups of 8: a lane has TILE rows of weights, one behind
 * the other so that it can store four outputs at once, and decodes a unit of each for all rows of x.
 *
 * An element has the bits that it has with one row of x: there a lane sums every 8th unit and the sums of the
 * lanes are added up; here a lane sums the same units one part after the other, and adds up the same sums. */
#define TILE_ROWS     (COLUMNS + COLUMNS % 2) /* pairs, as tile.glsl takes them */
#define MAX_TILE_ROWS MATVEC_COLUMNS
#include "tile.glsl"
#define TILE_OUTPUTS (8 * TEAM_OUTPUTS) /* of a subgroup */

/* The sums of this lane's outputs from `first` on for all rows of x. */
void tile_sums(inout tile t, uint first_row, uint first)
{
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	SUMS sums[MAX_TILE_ROWS];
	[[unroll]] for (uint i = 0; i < TILE_ROWS; i++)
		sums[i] = SUMS(0);
	uint rows[TILE];
	[[unroll]] for (uint i = 0; i < TILE; i++)
		rows[i] = row_begin(first_row, first, i);
	uint part = rows_touched(rows, 0, 1);
	[[dont_unroll]] do {
		[[unroll]] for (uint i = 0; i < TILE_ROWS; i++)
			t.sums[i] = SUMS(0);
		uint unit = part;
		do {
			vec4 w[TILE][8];
			rows_decode(rows, unit, w);
			tile_add(t, w, unit);
			unit += n_lanes;
		} while (unit < n_units);
		[[unroll]] for (uint i = 0; i < TILE_ROWS; i++)
			sums[i] += t.sums[i];
		part++;
	} while (part < min(n_lanes, n_units));
	[[unroll]] for (uint i = 0; i < TILE_ROWS; i++)
		t.sums[i] = sums[i];
}

/* Takes the sums of this lane's outputs for rows x_row .. x_end - 1 of x. */
void tile_store(inout tile t, uint first, uint end, uint x_row, uint x_end)
{
	uint row = x_row;
	do {
		SUMS sums = t.sums[0];
		uint i = 0;
		if ((SPEC & PRODUCT_QUADS) != 0) {
			if (first < end)
				store_quad(first, row, GATED != 0 ? gated(GATED - 1, sums[0], sums[1]) : sums[0]);
			if (GATED == 0 && first + 4 < end)
				store_quad(first + 4, row, sums[1]);
		} else [[dont_unroll]] do {
			float sum = SUM(sums, 0);
			if (GATED != 0)
				sum = gated(GATED - 1, vec4(sum), vec4(SUM(sums, TILE / 2))).x;
			if (first + i < end)
				store(first + i, row, sum);
			sums = sums_turned(sums);
			i++;
		} while (i < TEAM_OUTPUTS);
		tile_turn(t);
		row++;
	} while (row < x_end);
}

/* Outputs first .. end - 1 of this workgroup, for rows x_row .. x_end - 1 of x. */
void matvec_tile(uint first_row, uint first, uint end, uint x_row, uint x_end)
{
	tile t;
	t.is_half = false;
	[[unroll]] for (uint i = 0; i < TILE_AT; i++) /* a row that is not there is another */
		t.at[i] = x_begin(min(x_row + tile_row(i), x_end - 1));
	uint pass = first + TILE_OUTPUTS * team;
	if (pass < end) do {
		tile_sums(t, first_row, pass + TEAM_OUTPUTS * lane);
		tile_store(t, pass + TEAM_OUTPUTS * lane, end, x_row, x_end);
		pass += TILE_OUTPUTS * n_teams;
	} while (pass < end);
}
