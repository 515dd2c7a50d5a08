/* attn_prefill: causal attention of a head for a tile of ROWS rows of the step, which belong to one
 * sequence.  Blocks of 32 positions come in order, with a running maximum and sum for each row
 * (online softmax); blocks beyond the tile's last position are not read.
 *
 * For the scores a lane is a position; for the running sums it is a row; for the values it owns pairs
 * of columns.  A block without positions for a row leaves that row exactly as it was, so the result
 * of a row does not depend on the others of its tile. */
#define LANES 32
layout(local_size_x = LANES) in;
layout(push_constant) uniform push { attn_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer q_buffer { float q[]; };
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
#define KV_READ
#define KV_FIRST_BINDING 2
#define TABLE_BINDING    5
#include "kv.glsl"

#define ROWS    8
#define N_PAIRS ((HEAD_DIM / 2 + LANES - 1) / LANES) /* of a lane */

shared vec4 queries[MAX_HEAD_DIM][ROWS / 4];
shared vec4 weights[LANES][ROWS / 4]; /* scores, then exp(score - maximum), of a position */
shared float factors[ROWS];           /* what a new maximum leaves of the values so far */
shared float sums[ROWS];
shared uint pairs[LANES];             /* where each position's K and V begin in the cache */

uint lane = gl_LocalInvocationID.x;

void score_position(uint at)
{
	vec4 a = vec4(0), b = vec4(0);
	for (uint i = 0; i < args.head_dim / 2; i++) {
		vec2 k = k_pair(at + i);
		a += k.x * queries[2 * i][0] + k.y * queries[2 * i + 1][0];
		b += k.x * queries[2 * i][1] + k.y * queries[2 * i + 1][1];
	}
	weights[lane][0] = a * args.scale;
	weights[lane][1] = b * args.scale;
}

/* Turns the scores of row `lane` in this block into weights; n of its positions count. */
void weigh_row(uint n, inout float maximum, inout float sum)
{
	uint half_tile = lane / 4, component = lane % 4;
	float old = maximum;
	for (uint i = 0; i < n; i++)
		maximum = max(maximum, weights[i][half_tile][component]);
	float factor = n > 0 ? exp(old - maximum) : 1.0;
	sum *= factor;
	for (uint i = 0; i < n; i++) {
		float weight = exp(weights[i][half_tile][component] - maximum);
		weights[i][half_tile][component] = weight;
		sum += weight;
	}
	for (uint i = n; i < LANES; i++)
		weights[i][half_tile][component] = 0;
	factors[lane] = factor;
}

void main()
{
	uint head = flat_group(), first_row = gl_WorkGroupID.z * ROWS;
	if (head >= args.n_head || first_row >= step_head.n_rows)
		return;
	uint n_rows = min(step_head.n_rows - first_row, ROWS);
	uint seq = step_rows[first_row].seq;
	uint head_kv = head / (args.n_head / args.n_head_kv);
	uint n_kv = 0; /* positions that some row of the tile sees */
	for (uint t = 0; t < n_rows; t++)
		n_kv = max(n_kv, step_rows[first_row + t].pos + 1);
	uint row_n_kv = lane < n_rows ? step_rows[first_row + lane].pos + 1 : 0;
	float row_maximum = ATTN_NONE, row_sum = 0;

	for (uint i = lane; i < HEAD_DIM * ROWS; i += LANES) {
		uint t = i / HEAD_DIM, d = i % HEAD_DIM;
		queries[d][t / 4][t % 4] = t < n_rows
			? q[(first_row + t) * args.stride_q + head * HEAD_DIM + d] : 0.0;
	}
	vec4 values[MAX_HEAD_DIM / 2 / LANES][2][ROWS / 4];
	for (uint p = 0; p < N_PAIRS; p++)
		for (uint i = 0; i < ROWS / 4; i++)
			values[p][0][i] = values[p][1][i] = vec4(0);

	for (uint first = 0; first < n_kv; first += LANES) {
		uint n = min(n_kv - first, LANES);
		barrier(); /* the block before is done with the shared arrays */
		if (lane < n) {
			pairs[lane] = kv_element(seq, first + lane, head_kv) / 2;
			score_position(pairs[lane]);
		}
		barrier();
		if (lane < ROWS) {
			uint row_n = min(max(row_n_kv, first) - first, LANES);
			weigh_row(row_n, row_maximum, row_sum);
		}
		barrier();
		vec4 factor[2] = vec4[2](vec4(factors[0], factors[1], factors[2], factors[3]),
			vec4(factors[4], factors[5], factors[6], factors[7]));
		for (uint p = 0; p < N_PAIRS; p++) {
			uint pair = p * LANES + lane;
			if (pair >= HEAD_DIM / 2)
				continue;
			for (uint i = 0; i < ROWS / 4; i++) {
				values[p][0][i] *= factor[i];
				values[p][1][i] *= factor[i];
			}
			for (uint j = 0; j < n; j++) {
				vec2 v = v_pair(pairs[j] + pair);
				for (uint i = 0; i < ROWS / 4; i++) {
					values[p][0][i] += v.x * weights[j][i];
					values[p][1][i] += v.y * weights[j][i];
				}
			}
		}
	}

	if (lane < ROWS)
		sums[lane] = row_sum;
	barrier();
	for (uint p = 0; p < N_PAIRS; p++) {
		uint pair = p * LANES + lane;
		if (pair >= HEAD_DIM / 2)
			continue;
		for (uint t = 0; t < ROWS; t++) {
			uint to = (first_row + t) * args.stride_out + head * HEAD_DIM + 2 * pair;
			if (t >= n_rows)
				continue;
			result[to] = values[p][0][t / 4][t % 4] / sums[t];
			result[to + 1] = values[p][1][t / 4][t % 4] / sums[t];
		}
	}
}
