/* A tile of products in registers: of TILE rows of a lane with TILE_ROWS rows of x, a unit at a time.  What
 * matmul.glsl and attention_lanes.glsl share.
 *
 * x is the same for all lanes: with LP_SHUFFLE, for subgroups of 8, each lane loads an eighth of a unit of it
 * and hands it to the others.
 *
 * The running sums are in registers, which have no index: a loop over rows of x works on the first PAIR of
 * them, and the others move up.  Unrolled it would take lavapipe four times as long to compile, and with the
 * sums in shared memory, where an index is free, three times as long to run: it loads lane by lane.
 *
 * A tile that is not half full turns its first half only.
 *
 * The includer may define TILE, and defines TILE_ROWS, which may be a specialization constant, MAX_TILE_ROWS and
 * x_quad, which gives a vec4 of x. */
#include "sums.glsl"
#define PAIR min(TILE_ROWS, 2) /* rows of x at a time, of which TILE_ROWS is a multiple */

/* The first of TILE_ROWS elements is the last now. */
#define TURN(type, list)                                                 \
	{                                                                \
		type first_ = list[0];                                   \
		[[unroll]] for (uint i_ = 0; i_ < TILE_ROWS - 1; i_++)   \
			list[i_] = list[i_ + 1];                         \
		list[TILE_ROWS - 1] = first_;                            \
	}

/* This lane's sums and where in x the rows of the tile begin, in vec4s; the first ones are the next. */
struct tile {
	SUMS sums[MAX_TILE_ROWS];
	uint at[MAX_TILE_ROWS];
	bool is_half; /* rows from TILE_ROWS / 2 on are not there */
};

/* The first row is the last now. */
void tile_turn(inout tile t)
{
	const uint last = max(TILE_ROWS / 2, 1) - 1; /* of half a tile */
	SUMS sum = t.sums[0];
	uint at = t.at[0];
	TURN(SUMS, t.sums)
	TURN(uint, t.at)
	if (t.is_half) {
		t.sums[last] = sum;
		t.at[last] = at;
	}
}

/* Products of a unit of TILE rows with the same unit of a row of x, which begins at x_at. */
SUMS products(vec4 w[TILE][8], uint x_at)
{
	SUMS sums = SUMS(0);
#ifdef LP_SHUFFLE
	vec4 mine = x_quad(x_at + gl_SubgroupInvocationID);
#endif
	[[unroll]] for (uint k = 0; k < 8; k++) {
#ifdef LP_SHUFFLE
		vec4 xs = subgroupShuffle(mine, k);
#else
		vec4 xs = x_quad(x_at + k);
#endif
		[[unroll]] for (uint i = 0; i < TILE; i++)
			SUM(sums, i) += dot(w[i][k], xs);
	}
	return sums;
}

/* Adds the products of a unit with all rows of x. */
void tile_add(inout tile t, vec4 w[TILE][8], uint unit)
{
	uint end = t.is_half ? TILE_ROWS / 2 : TILE_ROWS;
	uint turn = 0;
	[[dont_unroll]] do {
		[[unroll]] for (uint i = 0; i < PAIR; i++)
			t.sums[i] += products(w, t.at[i] + unit * 8);
		[[unroll]] for (uint i = 0; i < PAIR; i++)
			tile_turn(t);
		turn += PAIR;
	} while (turn < end);
}
