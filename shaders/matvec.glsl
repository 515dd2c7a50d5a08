/* Products of many rows of weights with one row of x or a few: the body of matvec and expert_matvec.
 *
 * A team of lanes takes TILE rows of weights at a time, so that a unit of x is loaded once for all; its
 * lanes stride over the units of a row and add up at the end.  With LP_SUBGROUP a team is a subgroup
 * and no barrier is needed; without, a quarter of the workgroup that sums in shared memory.
 *
 * With COLUMNS, rows of x of a workgroup, above 1 the weights are decoded once for all of them.  Then the
 * running sums lie in shared memory, a lane's own, so that the loop over the rows of x stays a loop (see
 * matmul.glsl); with LP_SHUFFLE, for subgroups of 8, lanes have rows of their own (matvec_tile.glsl).
 * Whatever their number, an element is summed by the same operations in the same order.
 *
 * Loops are tested at their end: lavapipe leaves a loop there alone, and one that is tested at its top it goes
 * through once more, with no lane active.
 *
 * LANES, of a workgroup, is a knob (knobs.def): whole subgroups, and whole teams.
 *
 * The includer declares args (n_out, n_in, row_bytes) and, where there may be several rows of x, COLUMNS,
 * and defines x_begin and store. */
#ifdef LP_SHUFFLE
#define TILE 8 /* rows: loads of x are dear there */
#endif
#include "sums.glsl"
#ifdef X_Q8
#include "product_q8.glsl"
#else
#include "product.glsl"
#endif
#include "activation.glsl"
#include "rows.glsl"

#define TEAM_SIZE 16 /* without subgroups */

/* With GATED half of the rows are of the gate, then come those of up that belong to them: see args.h. */
#ifndef GATED
#define GATED 0u
#endif
#define TEAM_OUTPUTS (GATED != 0 ? TILE / 2 : TILE)

/* Where a row of x begins, in vec4s. */
uint x_begin(uint x_row);

void store(uint out_row, uint x_row, float sum);
void store_quad(uint out_row, uint x_row, vec4 sum); /* of matvec_tile.glsl, with PRODUCT_QUADS */

#ifdef LP_SHUFFLE
uint team = gl_SubgroupID, n_teams = gl_NumSubgroups;
uint lane = gl_SubgroupInvocationID;
const uint n_lanes = 8;

/* In the order of the lanes, which is that of matvec_tile.glsl. */
SUMS team_sum(SUMS sums)
{
	SUMS sum = SUMS(0);
	[[unroll]] for (uint i = 0; i < n_lanes; i++)
		sum += SUMS(subgroupShuffle(sums[0], i), subgroupShuffle(sums[1], i));
	return sum;
}
#elif defined(LP_SUBGROUP)
/* Lanes are counted, for a driver may leave some of gl_SubgroupSize empty. */
uint team = gl_SubgroupID, n_teams = gl_NumSubgroups;
uint lane = subgroupExclusiveAdd(1u), n_lanes = subgroupAdd(1u);

vec4 team_sum(vec4 sums)
{
	return subgroupAdd(sums);
}
#else
uint team = gl_LocalInvocationID.x / TEAM_SIZE, n_teams = LANES / TEAM_SIZE;
uint lane = gl_LocalInvocationID.x % TEAM_SIZE, n_lanes = TEAM_SIZE;

shared vec4 scratch[LANES];

vec4 team_sum(vec4 sums)
{
	uint at = gl_LocalInvocationID.x;
	barrier(); /* everyone has read the sum before this one */
	scratch[at] = sums;
	barrier();
	for (uint n = TEAM_SIZE / 2; n > 0; n /= 2) {
		if (lane < n)
			scratch[at] += scratch[at + n];
		barrier();
	}
	return scratch[team * TEAM_SIZE];
}
#endif

/* Row r of the TILE for the outputs from `first` on, in bytes; rows beyond the last repeat it. */
uint row_begin(uint first_row, uint first, uint r)
{
	uint row = first + r % TEAM_OUTPUTS;
	return (first_row + min(row, args.n_out - 1) + r / TEAM_OUTPUTS * args.n_out) * args.row_bytes;
}

#ifndef X_Q8 /* else matvec_q8.glsl has it */
/* This lane's share of the products of TILE rows with x. */
SUMS partial_sums(uint first_row, uint first, uint x_at)
{
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	SUMS sums = SUMS(0);
	uint rows[TILE];
	[[unroll]] for (uint r = 0; r < TILE; r++)
		rows[r] = row_begin(first_row, first, r);
	uint unit = lane + rows_touched(rows, lane, n_lanes);
	if (unit < n_units) do {
		vec4 xs[8];
		for (uint k = 0; k < 8; k++)
			xs[k] = x_quad(x_at + unit * 8 + k);
		[[unroll]] for (uint r = 0; r < TILE; r++) {
			vec4 w[8];
			weight_decode(rows[r], unit, w);
#ifdef WEIGHT_HAS_TAIL
			unit_mask(w, unit, args.n_in);
#endif
			float sum = 0;
			for (uint k = 0; k < 8; k++)
				sum += dot(w[k], xs[k]);
			SUM(sums, 0) += sum;
			sums = sums_turned(sums);
		}
		unit += n_lanes;
	} while (unit < n_units);
	return sums;
}
#endif

#if defined(COLUMNS) && defined(LP_SHUFFLE)
#define COLUMNS_TILE 1
#define COLUMNS_FEW  0
#include "matvec_tile.glsl"
#elif defined(COLUMNS)
#define COLUMNS_TILE 0
#define COLUMNS_FEW  1
#define COLUMN_SLOTS MATVEC_COLUMNS
shared vec4 column_sums[COLUMN_SLOTS][LANES];

#ifdef LP_SUBGROUP
void columns_begin()
{
}

void columns_end(uint x_row, uint x_end)
{
}

vec4 column_sum(uint row)
{
	return team_sum(column_sums[row % COLUMN_SLOTS][gl_LocalInvocationIndex]);
}
#else
void columns_begin()
{
	barrier(); /* everyone has read the sums before these */
}

/* team_sum for all rows of x at once. */
void columns_end(uint x_row, uint x_end)
{
	uint at = gl_LocalInvocationIndex;
	barrier();
	for (uint n = TEAM_SIZE / 2; n > 0; n /= 2) {
		for (uint row = x_row; row < x_end && lane < n; row++)
			column_sums[row % COLUMN_SLOTS][at] +=
				column_sums[row % COLUMN_SLOTS][at + n];
		barrier();
	}
}

vec4 column_sum(uint row)
{
	return column_sums[row % COLUMN_SLOTS][team * TEAM_SIZE];
}
#endif

#ifdef X_Q8
#include "matvec_q8.glsl"
#else
/* The same for rows x_row .. x_end - 1 of x, to column_sums; the weights of a unit are decoded once. */
void partial_columns(uint first_row, uint first, uint x_row, uint x_end)
{
	uint n_units = (args.n_in + UNIT - 1) / UNIT, at = gl_LocalInvocationIndex;
	columns_begin();
	for (uint row = x_row; row < x_end; row++)
		column_sums[row % COLUMN_SLOTS][at] = vec4(0);
	for (uint unit = lane; unit < n_units; unit += n_lanes) {
		vec4 w[TILE][8];
		for (uint r = 0; r < TILE; r++) {
			weight_decode(row_begin(first_row, first, r), unit, w[r]);
#ifdef WEIGHT_HAS_TAIL
			unit_mask(w[r], unit, args.n_in);
#endif
		}
		for (uint row = x_row; row < x_end; row++) {
			uint x_at = x_begin(row) + unit * 8;
			vec4 sum = vec4(0);
			for (uint k = 0; k < 8; k++) {
				vec4 xs = x_quad(x_at + k);
				for (uint r = 0; r < TILE; r++)
					sum[r] += dot(w[r][k], xs);
			}
			column_sums[row % COLUMN_SLOTS][at] += sum;
		}
	}
	columns_end(x_row, x_end);
}
#endif
#else
#define COLUMNS      1
#define COLUMNS_TILE 0
#define COLUMNS_FEW  0
#endif

/* Takes this team's sums for one row of x. */
void team_store(uint first, uint end, uint x_row, SUMS sums)
{
	if (lane >= TEAM_OUTPUTS || first + lane >= end)
		return;
	float sum = sum_at(sums, lane);
	if (GATED != 0)
		sum = gated(GATED - 1, vec4(sum), vec4(sum_at(sums, lane % TEAM_OUTPUTS + TEAM_OUTPUTS))).x;
	store(first + lane, x_row, sum);
}

/* This workgroup's outputs, for rows x_row .. x_end - 1 of x, of the matrix whose rows begin at first_row of
 * the weights. */
void matvec(uint first_row, uint x_row, uint x_end)
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
#if COLUMNS_TILE
	if (COLUMNS > 1) {
		matvec_tile(first_row, first, end, x_row, x_end);
		return;
	}
#endif
	/* The passes are the same for all teams: there may be barriers in them. */
	uint pass = first;
	if (pass < end) do {
		uint out_row = pass + TEAM_OUTPUTS * team;
		if (COLUMNS == 1) {
			SUMS sums = partial_sums(first_row, out_row, x_begin(x_row));
			team_store(out_row, end, x_row, team_sum(sums));
		}
#if COLUMNS_FEW
		if (COLUMNS > 1) {
			partial_columns(first_row, out_row, x_row, x_end);
			for (uint row = x_row; row < x_end; row++)
				team_store(out_row, end, row, column_sum(row));
		}
#endif
		pass += TEAM_OUTPUTS * n_teams;
	} while (pass < end);
}
