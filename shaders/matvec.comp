/* matvec: out[row] = weights x[row] (+ bias) (+ residual), one row of the step per workgroup.
 *
 * A team of lanes takes 4 rows of weights at a time, so that a unit of x is loaded once for all 4; its
 * lanes stride over the units of a row and add up at the end.  With LP_SUBGROUP a team is a subgroup
 * and no barrier is needed; without, a quarter of the workgroup that sums in shared memory. */
layout(local_size_x = 64) in;
layout(push_constant) uniform push { matmul_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 2) readonly buffer x_buffer { vec4 x[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#define ROWS      4 /* of a team */
#define TEAM_SIZE 16 /* without subgroups */

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
vec4 partial_sums(uint first)
{
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	uint x_at = gl_WorkGroupID.z * (args.stride_x / 4);
	vec4 sums = vec4(0);
	for (uint unit = lane; unit < n_units; unit += n_lanes) {
		vec4 xs[8];
		for (uint k = 0; k < 8; k++)
			xs[k] = x[x_at + unit * 8 + k];
		for (uint r = 0; r < ROWS; r++) {
			vec4 w[8];
			weight_decode(min(first + r, args.n_out - 1) * args.row_bytes, unit, w);
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

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP, row = gl_WorkGroupID.z;
	if (first >= args.n_out || row >= args.n_rows)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
	/* The passes are the same for all teams: there may be barriers in them. */
	for (uint pass = first; pass < end; pass += ROWS * n_teams) {
		uint out_row = pass + ROWS * team;
		vec4 sums = team_sum(partial_sums(out_row));
		out_row += lane;
		if (lane < ROWS && out_row < end) {
			float sum = sums[lane];
			if (args.has_bias != 0)
				sum += bias[out_row];
			if (args.has_residual != 0)
				sum += residual[row * args.stride_residual + out_row];
			result[row * args.stride_out + out_row] = sum;
		}
	}
}
