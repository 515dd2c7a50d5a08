/* Which states of recurrent layers a sequence holds: the host's side of their block tables.
 *
 * A block has what is needed to go on from any of the STATE_BLOCK positions it covers: the state at its start,
 * and what each position adds (args.h).  So a sequence needs the block of its next position alone; those it
 * holds before that one are checkpoints, which it can go back to.  Knows neither devices nor tokens. */
#ifndef LAPILLI_STATES_H
#define LAPILLI_STATES_H

#include "blocks.h"

#define STATE_CHECKPOINTS 3 /* blocks held behind the current one, at most */
#define STATE_HELD        7 /* of one sequence in all: those, the current one, and ahead of it */

/* A sequence's row of the table: an entry is a block, or STATE_NONE.  table NULL: no layer has a state. */
struct state_list {
	uint32_t *table;
	uint32_t held[STATE_HELD]; /* entries that are not STATE_NONE, ascending */
	uint32_t n;
};

/* Holds the blocks of all positions from n_past on, and of n_positions, where the state behind them goes.
 * false: that would be more than STATE_HELD, or the pool ran out; what was taken stays. */
bool states_reserve(
	struct block_pool *pool, struct state_list *list, uint32_t n_past, uint32_t n_positions);

/* Holds the blocks of n_past and n_positions alone: for a step that passes through those between. */
bool states_pass(
	struct block_pool *pool, struct state_list *list, uint32_t n_past, uint32_t n_positions);

/* Positions that decode has room for: the block of the one behind them is held, too. */
uint32_t states_room(const struct state_list *list);

/* The most positions, n at most, that the sequence can go back to; 0: its start. */
uint32_t states_reach(const struct state_list *list, uint32_t n);

/* Lets go of what lies behind position n, which is one of those it can go back to. */
void states_truncate(struct block_pool *pool, struct state_list *list, uint32_t n);

/* Lets go of checkpoints until STATE_CHECKPOINTS are left: that of n_prefill, where the next prompt is likely
 * to part, and such that the distances between the others grow towards the start. */
void states_forget(
	struct block_pool *pool, struct state_list *list, uint32_t n_past, uint32_t n_prefill);

/* Makes `to`, which lets go of what it has, hold what `from` holds up to position n, which `from` can go
 * back to. */
void states_share(
	struct block_pool *pool, struct state_list *to, const struct state_list *from, uint32_t n);

/* Before something is written at position n_past. */
enum blocks_owned states_own(struct block_pool *pool, struct state_list *list, uint32_t n_past,
	uint32_t *from, uint32_t *to);

#endif
