/* Products of many rows of weights with one row of x or a few: the body of matvec and expert_matvec.
 *
 * A team of lanes takes 4 rows of weights at a time, so that a unit of x is loaded once for all 4; its
 * lanes stride over the units of a row and add up at the end.  With LP_SUBGROUP a team is a subgroup
 * and no barrier is needed; without, a quarter of the workgroup that sums in shared memory.
 *
 * With COLUMNS, rows of x of a workgroup, above 1 the weights are decoded once for all of them.  Then the
 * running sums lie in shared memory, a lane's own, so that the loop over the rows of x stays a loop (see
 * matmul.glsl).  Whatever their number, an element is summed by the same operations in the same order.
 *
 * The includer declares args (n_out, n_in, row_bytes), x (vec4s) and, where there may be several rows of
 * x, COLUMNS, and defines x_begin and store. */
#define ROWS      4 /* of a team */
#define TEAM_SIZE 16 /* without subgroups */

/* Where row `column` of this workgroup begins in x, in vec4s. */
uint x_begin(uint column);

void store(uint out_row, uint column, float sum);

#ifdef LP_SUBGROUP
/* Lanes are counted, for a driver may leave some of gl_SubgroupSize empty. */
uint team = gl_SubgroupID, n_teams = gl_NumSubgroups;
uint lane = subgroupExclusiveAdd(1u), n_lanes = subgroupAdd(1u);

vec4 team_sum(vec4 sums)
{
	return subgroupAdd(sums);
}
#else
uint team = gl_LocalInvocationID.x / TEAM_SIZE, n_teams = 64 / TEAM_SIZE;
uint lane = gl_LocalInvocationID.x % TEAM_SIZE, n_lanes = TEAM_SIZE;

shared vec4 scratch[64];

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

/* This lane's share of the products of ROWS rows with x; rows beyond the last repeat it. */
vec4 partial_sums(uint first_row, uint first, uint x_at)
{
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	vec4 sums = vec4(0);
	for (uint unit = lane; unit < n_units; unit += n_lanes) {
		vec4 xs[8];
		for (uint k = 0; k < 8; k++)
			xs[k] = x[x_at + unit * 8 + k];
		for (uint r = 0; r < ROWS; r++) {
			vec4 w[8];
			uint row = first_row + min(first + r, args.n_out - 1);
			weight_decode(row * args.row_bytes, unit, w);
#ifdef WEIGHT_HAS_TAIL
			unit_mask(w, unit, args.n_in);
#endif
			float sum = 0;
			for (uint k = 0; k < 8; k++)
				sum += dot(w[k], xs[k]);
			sums[r] += sum;
		}
	}
	return sums;
}

#ifdef COLUMNS
#define COLUMNS_FEW 1
shared vec4 column_sums[MATVEC_COLUMNS][64];

/* The same for n_columns rows of x, to column_sums; the weights of a unit are decoded once. */
void partial_columns(uint first_row, uint first, uint n_columns)
{
	uint n_units = (args.n_in + UNIT - 1) / UNIT, at = gl_LocalInvocationIndex;
	for (uint c = 0; c < n_columns; c++)
		column_sums[c][at] = vec4(0);
	for (uint unit = lane; unit < n_units; unit += n_lanes) {
		vec4 w[ROWS][8];
		for (uint r = 0; r < ROWS; r++) {
			uint row = first_row + min(first + r, args.n_out - 1);
			weight_decode(row * args.row_bytes, unit, w[r]);
#ifdef WEIGHT_HAS_TAIL
			unit_mask(w[r], unit, args.n_in);
#endif
		}
		for (uint c = 0; c < n_columns; c++) {
			uint x_at = x_begin(c) + unit * 8;
			vec4 sum = vec4(0);
			for (uint k = 0; k < 8; k++) {
				vec4 xs = x[x_at + k];
				for (uint r = 0; r < ROWS; r++)
					sum[r] += dot(w[r][k], xs);
			}
			column_sums[c][at] += sum;
		}
	}
}
#else
#define COLUMNS 1
#define COLUMNS_FEW 0
#endif

/* Takes one row of x's sums of this team's outputs. */
void team_store(uint first, uint end, uint column, vec4 sums)
{
	sums = team_sum(sums);
	if (lane < ROWS && first + lane < end)
		store(first + lane, column, sums[lane]);
}

/* This workgroup's outputs, for n_columns <= COLUMNS rows of x, of the matrix whose rows begin at first_row
 * of the weights. */
void matvec(uint first_row, uint n_columns)
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
	/* The passes are the same for all teams: there may be barriers in them. */
	for (uint pass = first; pass < end; pass += ROWS * n_teams) {
		uint out_row = pass + ROWS * team;
		if (COLUMNS == 1) {
			team_store(out_row, end, 0, partial_sums(first_row, out_row, x_begin(0)));
			continue;
		}
#if COLUMNS_FEW
		partial_columns(first_row, out_row, n_columns);
		for (uint c = 0; c < n_columns; c++)
			team_store(out_row, end, c, column_sums[c][gl_LocalInvocationIndex]);
#endif
	}
}
