/* Products of many rows of weights with one row of x: the body of matvec and expert_matvec.
 *
 * A team of lanes takes 4 rows of weights at a time, so that a unit of x is loaded once for all 4; its
 * lanes stride over the units of a row and add up at the end.  With LP_SUBGROUP a team is a subgroup
 * and no barrier is needed; without, a quarter of the workgroup that sums in shared memory.
 *
 * The includer declares args (n_out, n_in, row_bytes) and x (vec4s), and defines store. */
#define ROWS      4 /* of a team */
#define TEAM_SIZE 16 /* without subgroups */

void store(uint out_row, float sum);

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

/* This workgroup's outputs of the matrix whose rows begin at first_row of the weights; x_at: of the
 * row of x, in vec4s. */
void matvec(uint first_row, uint x_at)
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
	/* The passes are the same for all teams: there may be barriers in them. */
	for (uint pass = first; pass < end; pass += ROWS * n_teams) {
		uint out_row = pass + ROWS * team;
		vec4 sums = team_sum(partial_sums(first_row, out_row, x_at));
		out_row += lane;
		if (lane < ROWS && out_row < end)
			store(out_row, sums[lane]);
	}
}
