/* moe_route: the n_used experts of a row of the step with the largest router logits, and their weights.
 *
 * One workgroup for a row.  Nothing is sorted: an expert's rank is the number of experts before it in
 * the order of falling logits, then of ids.  That order is total whatever the logits are, so each rank
 * is taken once and every slot of the row is written. */
#define LANES 128
layout(local_size_x = LANES) in;
ARGS(route_args);
layout(std430, set = 0, binding = 0) writeonly buffer routes_buffer { expert_route routes[]; };
layout(std430, set = 0, binding = 1) readonly buffer logits_buffer { float logits[]; };
layout(std430, set = 0, binding = 2) readonly buffer scales_buffer { float scales[]; };
#define REDUCE_TYPE float
#include "reduce.glsl"

#define PER_LANE (MAX_EXPERTS / LANES)

shared uint keys[MAX_EXPERTS];
shared float largest;

/* Keys stand in the order of their floats; zeros are equal.  NaN comes first: it must be seen in what
 * the row becomes. */
uint logit_key(float logit)
{
	uint bits = floatBitsToUint(logit), magnitude = bits & 0x7FFFFFFFu;
	if (magnitude > 0x7F800000u)
		return 0xFFFFFFFFu;
	return bits == magnitude ? 0x80000000u + magnitude : 0x80000000u - magnitude;
}

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.z, at = row * args.stride;
	if (flat_group() != 0)
		return;
	float own[PER_LANE];
	uint key[PER_LANE], rank[PER_LANE];
	for (uint k = 0; k < PER_LANE; k++) {
		uint expert = lane + k * LANES;
		own[k] = expert < args.n_expert ? logits[at + expert] : 0;
		keys[expert] = key[k] = logit_key(own[k]);
		rank[k] = 0;
	}
	barrier();
	for (uint other = 0; other < args.n_expert; other++) {
		uint k_other = keys[other];
		for (uint k = 0; k < PER_LANE; k++)
			if (k_other > key[k] || (k_other == key[k] && other < lane + k * LANES))
				rank[k]++;
	}
	for (uint k = 0; k < PER_LANE; k++)
		if (rank[k] == 0 && lane + k * LANES < args.n_expert)
			largest = own[k];
	barrier();
	float sum = 0;
	for (uint k = 0; k < PER_LANE; k++) {
		own[k] = exp(own[k] - largest);
		if (lane + k * LANES < args.n_expert && (args.normalise == 0 || rank[k] < args.n_used))
			sum += own[k];
	}
	sum = group_sum(sum);
	for (uint k = 0; k < PER_LANE; k++) {
		uint expert = lane + k * LANES;
		if (expert >= args.n_expert || rank[k] >= args.n_used)
			continue;
		float scale = args.has_scales != 0 ? scales[expert] : 1.0;
		routes[row * args.n_used + rank[k]] = expert_route(expert, own[k] / sum * scale);
	}
}
