/* Attention of QUERIES query vectors, which share a KV head, over ATTN_SLICE positions at a time, with a
 * running maximum and sum for each query (online softmax).
 *
 * What a lane is changes from phase to phase: for the scores it is every 32nd position, four in all; for
 * the weights one query and a share of the positions; for the values a few pairs of columns and a
 * share of the positions.  Loads are what costs, so each phase reuses what it loads: a score loop
 * multiplies 4 keys by all queries, a value loop 2 pairs of columns.
 *
 * Shared memory of 16 KiB holds 8 queries of NARROW_HEAD_DIM, or 4 of MAX_HEAD_DIM (LP_WIDE).
 *
 * The includer defines QUERIES (4 or 8), includes kv.glsl, and has `args` of struct attn_args. */
#ifdef LP_WIDE
#define HEAD_LIMIT MAX_HEAD_DIM
#else
#define HEAD_LIMIT NARROW_HEAD_DIM
#endif
#define LANES     32
#define PER_LANE  (ATTN_SLICE / LANES)
#define VECS      (QUERIES / 4)
#define SHARES    (LANES / QUERIES) /* lanes that share the positions of a query */
#define N_COLUMNS (HEAD_DIM / 2)    /* pairs of columns */
/* Pairs of columns of a lane, and lanes that cover all pairs; the other lanes take other positions. */
#define MAX_PAIRS (HEAD_LIMIT / 2 / LANES)
#define N_PAIRS   (N_COLUMNS > 2 * LANES ? (N_COLUMNS + LANES - 1) / LANES : 2)
#define STRIDE    ((N_COLUMNS + N_PAIRS - 1) / N_PAIRS)
#define N_PARTS   (LANES / STRIDE)

shared vec4 queries[HEAD_LIMIT][VECS]; /* later: the values of all lanes */
shared vec4 weights[ATTN_SLICE][VECS];   /* scores, then exp(score - maximum) */
shared uint pairs[ATTN_SLICE];           /* where each position's K and V begin in the cache */
shared float of_lane[LANES];
shared float factors[QUERIES];           /* what a new maximum leaves of the values so far */

uint lane = gl_LocalInvocationID.x;
uint query = lane % QUERIES;

/* The first of start, start + step, ... that is not below `begin`. */
uint from(uint start, uint step, uint begin)
{
	return begin > start ? start + (begin - start + step - 1) / step * step : start;
}

/* The scores of positions begin .. n - 1 of the slice at `first`; beside them nothing is read. */
void score(uint seq, uint head_kv, uint first, uint begin, uint n)
{
	uint at[PER_LANE];
	vec4 sums[PER_LANE][VECS];
	for (uint i = 0; i < PER_LANE; i++) {
		at[i] = kv_element(seq, first + clamp(lane + i * LANES, begin, n - 1), head_kv) / 2;
		for (uint v = 0; v < VECS; v++)
			sums[i][v] = vec4(0);
	}
	for (uint d = 0; d < args.head_dim / 2; d++) {
		vec4 even[VECS], odd[VECS];
		for (uint v = 0; v < VECS; v++) {
			even[v] = queries[2 * d][v];
			odd[v] = queries[2 * d + 1][v];
		}
		for (uint i = 0; i < PER_LANE; i++) {
			vec2 k = k_pair(at[i] + d);
			for (uint v = 0; v < VECS; v++)
				sums[i][v] += k.x * even[v] + k.y * odd[v];
		}
	}
	for (uint i = 0; i < PER_LANE; i++) {
		uint j = lane + i * LANES;
		if (j < begin || j >= n)
			continue;
		pairs[j] = at[i];
		for (uint v = 0; v < VECS; v++)
			weights[j][v] = softcapped(sums[i][v] * args.scale, args.softcap);
	}
}

/* Turns the scores of positions begin .. n - 1 into weights, of which this lane's query sees
 * seen.x .. seen.y - 1; `sum` is this lane's share.  A query that sees none stays exactly as it was. */
void weigh(uint begin, uint n, uvec2 seen, inout float maximum, inout float sum)
{
	uint share = lane / QUERIES, v = query / 4, c = query % 4;
	float old = maximum, top = ATTN_NONE;
	for (uint j = from(share, SHARES, seen.x); j < seen.y; j += SHARES)
		top = max(top, weights[j][v][c]);
	of_lane[lane] = top;
	barrier();
	for (uint i = query; i < LANES; i += QUERIES)
		maximum = max(maximum, of_lane[i]);
	float factor = seen.x < seen.y ? exp(old - maximum) : 1.0;
	sum *= factor;
	for (uint j = from(share, SHARES, begin); j < n; j += SHARES) {
		bool is_seen = j >= seen.x && j < seen.y;
		float weight = is_seen ? exp(weights[j][v][c] - maximum) : 0.0;
		weights[j][v][c] = weight;
		sum += weight;
	}
	if (share == 0)
		factors[query] = factor;
}

/* Adds the values of positions begin .. n - 1 to this lane's columns. */
void add_values(uint begin, uint n, inout vec4 values[MAX_PAIRS][2][VECS])
{
	uint column = lane % STRIDE, part = lane / STRIDE;
	for (uint v = 0; v < VECS; v++) {
		vec4 factor = vec4(factors[4 * v], factors[4 * v + 1], factors[4 * v + 2],
			factors[4 * v + 3]);
		for (uint p = 0; p < N_PAIRS; p++) {
			values[p][0][v] *= factor;
			values[p][1][v] *= factor;
		}
	}
	if (part >= N_PARTS)
		return;
	for (uint j = from(part, N_PARTS, begin); j < n; j += N_PARTS) {
		uint at = pairs[j];
		vec4 weight[VECS];
		for (uint v = 0; v < VECS; v++)
			weight[v] = weights[j][v];
		for (uint p = 0; p < N_PAIRS; p++) {
			vec2 value = v_pair(at + min(column + p * STRIDE, N_COLUMNS - 1));
			for (uint v = 0; v < VECS; v++) {
				values[p][0][v] += value.x * weight[v];
				values[p][1][v] += value.y * weight[v];
			}
		}
	}
}

/* Positions begin .. n - 1 of one slice for all queries. */
void attend(uint seq, uint head_kv, uint first, uint begin, uint n, uvec2 seen, inout float maximum,
	inout float sum, inout vec4 values[MAX_PAIRS][2][VECS])
{
	score(seq, head_kv, first, begin, n);
	barrier();
	weigh(begin, n, seen, maximum, sum);
	barrier();
	add_values(begin, n, values);
	barrier(); /* the shared arrays are free again */
}

/* Lays the lanes' shares of sums and values open; value_of and sum_of add them up. */
void publish(float sum, vec4 values[MAX_PAIRS][2][VECS])
{
	of_lane[lane] = sum;
	for (uint p = 0; p < N_PAIRS; p++)
		for (uint v = 0; v < VECS; v++) {
			queries[(lane * N_PAIRS + p) * 2][v] = values[p][0][v];
			queries[(lane * N_PAIRS + p) * 2 + 1][v] = values[p][1][v];
		}
	barrier();
}

float sum_of(uint q)
{
	float sum = 0;
	for (uint i = q; i < LANES; i += QUERIES)
		sum += of_lane[i];
	return sum;
}

float value_of(uint q, uint d)
{
	uint p = d / 2 / STRIDE, column = d / 2 % STRIDE;
	float value = 0;
	for (uint part = 0; part < N_PARTS; part++)
		value += queries[((part * STRIDE + column) * N_PAIRS + p) * 2 + d % 2][q / 4][q % 4];
	return value;
}
