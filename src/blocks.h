/* Blocks of the KV cache and who holds them: the host's side of block tables.
 *
 * A block holds KV_BLOCK positions of all layers of one kind.  Sequences share blocks whose content is
 * the same; who wants to write into a shared one takes a copy first.  Knows neither devices nor
 * tokens: a table is an array that the caller keeps where kernels read it. */
#ifndef LAPILLI_BLOCKS_H
#define LAPILLI_BLOCKS_H

#include "args.h"
#include "base.h"

struct block_pool {
	uint32_t n_blocks, n_free;
	uint32_t *n_holders; /* [n_blocks] */
	uint32_t *free;      /* [n_free], a stack */
};

enum lap_status block_pool_init(struct block_pool *pool, uint32_t n_blocks, struct lap_error *err);
void block_pool_free(struct block_pool *pool); /* a zeroed one is allowed */

/* ---- one block: for those who keep tables of another form (states.h) ---- */

bool block_take(struct block_pool *pool, uint32_t *block); /* false: the pool ran out */
void block_let_go(struct block_pool *pool, uint32_t block);

enum blocks_owned {
	BLOCKS_OWNED,  /* nobody else holds the block */
	BLOCKS_COPIED, /* the table names a new block, *to; what *from has must be copied there */
	BLOCKS_NONE,   /* the pool ran out */
};

/* Before something is written to the block that an entry of a table names. */
enum blocks_owned block_own(struct block_pool *pool, uint32_t *entry, uint32_t *from, uint32_t *to);

/* ---- a sequence's blocks ---- */

/* A sequence's row of a block table: entries first .. n - 1 are blocks it holds.  first is 0 but where
 * positions were left behind a window. */
struct block_list {
	uint32_t *table;
	uint32_t first, n;
};

/* Holds blocks for all positions below n_positions.  false: the pool ran out; what was taken stays. */
bool blocks_reserve(struct block_pool *pool, struct block_list *list, uint32_t n_positions);

/* Lets go of blocks that hold no position below n_positions. */
void blocks_truncate(struct block_pool *pool, struct block_list *list, uint32_t n_positions);

/* Lets go of blocks that hold no position from `position` on. */
void blocks_forget(struct block_pool *pool, struct block_list *list, uint32_t position);

/* Makes `to`, which lets go of what it has, hold what `from` holds of positions below n_positions. */
void blocks_share(struct block_pool *pool, struct block_list *to, const struct block_list *from,
	uint32_t n_positions);

/* Before something is written at `position`, which the list holds. */
enum blocks_owned blocks_own(struct block_pool *pool, struct block_list *list, uint32_t position,
	uint32_t *from, uint32_t *to);

#endif
