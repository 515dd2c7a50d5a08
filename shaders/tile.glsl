/* A tile of products in registers: of TILE rows of a lane with TILE_ROWS rows of x, a unit at a time.  What
 * matmul.glsl and attention_lanes.glsl share.
 *
 * x is the same for all lanes: with LP_SHUFFLE, for subgroups of 8, each lane loads an eighth of a unit of it
 * and hands it to the others, and keeps for them where a row begins.
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

/* at: where in x the rows begin of which tile_row is the number, in vec4s. */
#ifdef LP_SHUFFLE
#define TILE_AT ((MAX_TILE_ROWS + 7) / 8)

uint tile_row(uint i)
{
	return 8 * i + gl_SubgroupInvocationID;
}
#else
#define TILE_AT MAX_TILE_ROWS

uint tile_row(uint i)
{
	return i;
}
#endif

/* This lane's sums, the next row's first. */
struct tile {
	SUMS sums[MAX_TILE_ROWS];
	uint at[TILE_AT];
	bool is_half; /* rows from TILE_ROWS / 2 on are not there */
};

/* Where the row begins whose sum is i-th now; `turn` came before the first. */
uint tile_at(tile t, uint turn, uint i)
{
#ifdef LP_SHUFFLE
	uint row = turn + i;
	return subgroupShuffle(row < 8 ? t.at[0] : t.at[TILE_AT - 1], row % 8);
#else
	return t.at[i];
#endif
}

/* The first row is the last now. */
void tile_turn(inout tile t)
{
	const uint last = max(TILE_ROWS / 2, 1) - 1; /* of half a tile */
	SUMS sum = t.sums[0];
	TURN(SUMS, t.sums)
	if (t.is_half)
		t.sums[last] = sum;
#ifndef LP_SHUFFLE
	uint at = t.at[0];
	TURN(uint, t.at)
	if (t.is_half)
		t.at[last] = at;
#endif
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
			t.sums[i] += products(w, tile_at(t, turn, i) + unit * 8);
		[[unroll]] for (uint i = 0; i < PAIR; i++)
			tile_turn(t);
		turn += PAIR;
	} while (turn < end);
}
