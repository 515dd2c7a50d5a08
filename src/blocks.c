/* Who holds which block: see blocks.h. */
#include "blocks.h"

#include <assert.h>
#include <stdlib.h>

enum lap_status block_pool_init(struct block_pool *pool, uint32_t n_blocks, struct lap_error *err)
{
	*pool = (struct block_pool){
		.n_blocks = n_blocks,
		.n_free = n_blocks,
		.n_holders = array_alloc(n_blocks, sizeof(uint32_t)),
		.free = array_alloc(n_blocks, sizeof(uint32_t)),
	};
	if (!pool->n_holders || !pool->free) {
		block_pool_free(pool);
		return fail_memory(err, "the list of KV blocks", 2 * n_blocks * sizeof(uint32_t));
	}
	for (uint32_t i = 0; i < n_blocks; i++) /* the lowest comes first */
		pool->free[i] = n_blocks - 1 - i;
	return LAP_OK;
}

void block_pool_free(struct block_pool *pool)
{
	free(pool->n_holders);
	free(pool->free);
	*pool = (struct block_pool){0};
}

bool block_take(struct block_pool *pool, uint32_t *block)
{
	if (pool->n_free == 0)
		return false;
	*block = pool->free[--pool->n_free];
	pool->n_holders[*block] = 1;
	return true;
}

void block_let_go(struct block_pool *pool, uint32_t block)
{
	assert(pool->n_holders[block] > 0);
	if (--pool->n_holders[block] == 0)
		pool->free[pool->n_free++] = block;
}

static uint32_t n_blocks_of(uint32_t n_positions)
{
	return n_positions / KV_BLOCK + (n_positions % KV_BLOCK != 0);
}

bool blocks_reserve(struct block_pool *pool, struct block_list *list, uint32_t n_positions)
{
	while (list->n < n_blocks_of(n_positions)) {
		if (!block_take(pool, &list->table[list->n]))
			return false;
		list->n++;
	}
	return true;
}

void blocks_truncate(struct block_pool *pool, struct block_list *list, uint32_t n_positions)
{
	while (list->n > n_blocks_of(n_positions)) {
		list->n--;
		if (list->n >= list->first)
			block_let_go(pool, list->table[list->n]);
	}
	if (list->first > list->n)
		list->first = list->n;
}

void blocks_forget(struct block_pool *pool, struct block_list *list, uint32_t position)
{
	while (list->first < list->n && (list->first + 1) * KV_BLOCK <= position)
		block_let_go(pool, list->table[list->first++]);
}

void blocks_share(struct block_pool *pool, struct block_list *to, const struct block_list *from,
	uint32_t n_positions)
{
	uint32_t n = n_blocks_of(n_positions);
	assert(n <= from->n && to->table != from->table);
	for (uint32_t i = from->first; i < n; i++)
		pool->n_holders[from->table[i]]++;
	blocks_truncate(pool, to, 0);
	for (uint32_t i = from->first; i < n; i++)
		to->table[i] = from->table[i];
	to->first = from->first < n ? from->first : n;
	to->n = n;
}

enum blocks_owned block_own(struct block_pool *pool, uint32_t *entry, uint32_t *from, uint32_t *to)
{
	*from = *entry;
	if (pool->n_holders[*from] == 1)
		return BLOCKS_OWNED;
	if (!block_take(pool, to))
		return BLOCKS_NONE;
	block_let_go(pool, *from);
	*entry = *to;
	return BLOCKS_COPIED;
}

enum blocks_owned blocks_own(struct block_pool *pool, struct block_list *list, uint32_t position,
	uint32_t *from, uint32_t *to)
{
	uint32_t i = position / KV_BLOCK;
	assert(i >= list->first && i < list->n);
	return block_own(pool, &list->table[i], from, to);
}
