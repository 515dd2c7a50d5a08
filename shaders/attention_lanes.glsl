/* Attention of TILE_ROWS query vectors, which share a KV head, over a block of the KV cache at a time, with a
 * running maximum and sum for each query (online softmax): for a workgroup that is a subgroup of 8, and heads
 * of whole units.  Everything is in registers; what one lane has and all need goes by shuffles.  (On lavapipe a load
 * is a loop over the lanes, from shared memory too: it costs as much as 30 to 50 multiplications.)
 *
 * What a lane is changes from phase to phase: for the scores it is 4 positions of the block, and a tile
 * multiplies their keys by the queries; for the values it is 8 columns of every 64.
 *
 * Loops are tested at their end: see matvec.glsl.
 *
 * The includer defines TILE_ROWS, the number of queries, at most 8, includes kv.glsl, defines x_quad (of the
 * queries) and has `args` of struct attn_args. */
#define MAX_TILE_ROWS 8
#include "tile.glsl"
#include "lanes.glsl"
#define COLUMNS   8 /* of a lane at a time */
#define N_COLUMNS ((HEAD_DIM + 8 * COLUMNS - 1) / (8 * COLUMNS))

uint lane = gl_SubgroupInvocationID;

/* By query; the first of each list but factors and values is the next. */
struct queries {
	tile t;                    /* sums: scores, then weights, of this lane's positions; the includer sets `at` */
	uvec2 seen[MAX_TILE_ROWS]; /* the query sees positions .x to .y - 1 */
	float maximum[MAX_TILE_ROWS];
	float sum[MAX_TILE_ROWS];     /* this lane's share */
	float factors[MAX_TILE_ROWS]; /* what a new maximum leaves of the values so far */
};
vec4 values[MAX_TILE_ROWS][N_COLUMNS][2]; /* this lane's columns */

/* Query t, before any position. */
void query_begin(inout queries q, uint t, uvec2 seen)
{
	q.seen[t] = seen;
	q.maximum[t] = ATTN_NONE;
	q.sum[t] = 0;
	[[unroll]] for (uint c = 0; c < N_COLUMNS; c++)
		values[t][c][0] = values[t][c][1] = vec4(0);
}

/* The next query, for its maximum, sum and values. */
void query_next(inout queries q)
{
	TURN(float, q.sum)
	TURN(float, q.maximum)
	[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
		vec4 first[2] = values[0][c];
		[[unroll]] for (uint i = 0; i < TILE_ROWS - 1; i++)
			values[i][c] = values[i + 1][c];
		values[TILE_ROWS - 1][c] = first;
	}
}

/* Scores of positions begin .. n - 1 of the block whose position 0 is element `at` of the cache. */
void score(inout queries q, uint at, uint begin, uint n)
{
	[[unroll]] for (uint i = 0; i < TILE_ROWS; i++)
		q.t.sums[i] = vec4(0);
	uint unit = 0;
	do {
		vec4 k[TILE][8];
		[[unroll]] for (uint i = 0; i < TILE; i++) {
			uint pos = clamp(TILE * lane + i, begin, n - 1);
			k_unit(at + pos * args.n_head_kv * HEAD_DIM + unit * KV_UNIT, k[i]);
		}
		tile_add(q.t, k, unit);
		unit++;
	} while (unit < HEAD_DIM / KV_UNIT);
}

/* Turns the scores of the block that begins at position `first` into weights.  A query that sees none of it
 * stays exactly as it was. */
void weigh(inout queries q, uint first)
{
	uvec4 pos = first + TILE * lane + uvec4(0, 1, 2, 3);
	uint turn = 0;
	[[dont_unroll]] do {
		vec4 scores = q.t.sums[0] * args.scale;
		if (HAS_SOFTCAP)
			scores = softcapped(scores, args.softcap);
		bvec4 seen = bvec4(uvec4(greaterThanEqual(pos, uvec4(q.seen[0].x))) &
			uvec4(lessThan(pos, uvec4(q.seen[0].y))));
		scores = mix(vec4(ATTN_NONE), scores, seen);
		float old = q.maximum[0];
		q.maximum[0] = max(old, lanes_max(max(max(scores.x, scores.y), max(scores.z, scores.w))));
		q.factors[0] = exp(old - q.maximum[0]);
		vec4 weights = mix(vec4(0), exp(scores - q.maximum[0]), seen);
		q.t.sums[0] = weights;
		q.sum[0] = q.sum[0] * q.factors[0] + (weights.x + weights.y + weights.z + weights.w);
		TURN(vec4, q.t.sums)
		TURN(uvec2, q.seen)
		TURN(float, q.maximum)
		TURN(float, q.sum)
		TURN(float, q.factors)
		turn++;
	} while (turn < TILE_ROWS);
}

/* Adds the values of positions begin .. n - 1 of the block. */
void add_values(queries q, uint at, uint begin, uint n)
{
	[[unroll]] for (uint t = 0; t < TILE_ROWS; t++)
		[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
			values[t][c][0] *= q.factors[t];
			values[t][c][1] *= q.factors[t];
		}
	uint from = 0;
	[[dont_unroll]] do {
		[[unroll]] for (uint i = 0; i < TILE; i++) {
			uint pos = clamp(TILE * from + i, begin, n - 1);
			float weights[MAX_TILE_ROWS];
			[[unroll]] for (uint t = 0; t < TILE_ROWS; t++)
				weights[t] = subgroupShuffle(q.t.sums[t][i], from);
			[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
				vec4 v[2];
				uint first = 8 * COLUMNS * c;
				v_eight(at + pos * args.n_head_kv * HEAD_DIM + first,
					min(lane * COLUMNS, HEAD_DIM - COLUMNS - first), v);
				[[unroll]] for (uint t = 0; t < TILE_ROWS; t++) {
					values[t][c][0] += weights[t] * v[0];
					values[t][c][1] += weights[t] * v[1];
				}
			}
		}
		from++;
	} while (from < 8);
}

/* Positions start .. n_kv - 1 of a sequence, block by block. */
void attend(inout queries q, uint seq, uint head_kv, uint start, uint n_kv)
{
	uint first = start / KV_BLOCK * KV_BLOCK;
	if (first < n_kv) do {
		uint at = kv_element(seq, first, head_kv);
		uint begin = max(start, first) - first, n = min(n_kv - first, KV_BLOCK);
		score(q, at, begin, n);
		weigh(q, first);
		add_values(q, at, begin, n);
		first += KV_BLOCK;
	} while (first < n_kv);
}

#ifdef LP_LONG
/* lavapipe ends all loops of a lane after 65,535 turns in total: results would be wrong from some 20,000
 * positions on (heads of 256; 29,000 of 64).  So each ATTN_PART positions have a subgroup of their own, the last
 * of PARTS what is left, and what they found is merged.  Parts without positions change no bit. */
shared vec4 moved_values[MAX_TILE_ROWS][N_COLUMNS][2][8]; /* the last index is the lane */
shared vec2 moved[MAX_TILE_ROWS][8];                      /* maximum and sum */

void parts_publish(inout queries q)
{
	[[dont_unroll]] for (uint t = 0; t < TILE_ROWS; t++) {
		moved[t][lane] = vec2(q.maximum[0], q.sum[0]);
		[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
			moved_values[t][c][0][lane] = values[0][c][0];
			moved_values[t][c][1][lane] = values[0][c][1];
		}
		query_next(q);
	}
}

void parts_absorb(inout queries q)
{
	[[dont_unroll]] for (uint t = 0; t < TILE_ROWS; t++) {
		vec2 other = moved[t][lane];
		float maximum = max(q.maximum[0], other.x);
		float mine = exp(q.maximum[0] - maximum), others = exp(other.x - maximum);
		q.maximum[0] = maximum;
		q.sum[0] = q.sum[0] * mine + other.y * others;
		[[unroll]] for (uint c = 0; c < N_COLUMNS; c++) {
			values[0][c][0] = values[0][c][0] * mine + moved_values[t][c][0][lane] * others;
			values[0][c][1] = values[0][c][1] * mine + moved_values[t][c][1][lane] * others;
		}
		query_next(q);
	}
}

/* attend by parts; the first subgroup has the result. */
void attend_parts(inout queries q, uint seq, uint head_kv, uint start, uint n_kv)
{
	uint part = gl_SubgroupID, from = part * ATTN_PART;
	uint to = part == PARTS - 1 ? n_kv : min(n_kv, from + ATTN_PART);
	attend(q, seq, head_kv, max(start, from), to);
	uint n_parts = min((n_kv + ATTN_PART - 1) / ATTN_PART, PARTS);
	for (uint other = 1; other < n_parts; other++) {
		if (part == other)
			parts_publish(q);
		barrier();
		if (part == 0)
			parts_absorb(q);
		barrier();
	}
}
#endif
