/* Which states a sequence holds: see states.h. */
#include "states.h"

#include <assert.h>
#include <string.h>

static uint32_t index_of(uint32_t position)
{
	return position / STATE_BLOCK;
}

/* The block of table entry `index`, in its place among those that are held. */
static bool hold(struct block_pool *pool, struct state_list *list, uint32_t index)
{
	if (list->table[index] != STATE_NONE)
		return true;
	if (list->n == STATE_HELD || !block_take(pool, &list->table[index]))
		return false;
	uint32_t at = list->n++;
	for (; at > 0 && list->held[at - 1] > index; at--)
		list->held[at] = list->held[at - 1];
	list->held[at] = index;
	return true;
}

static void let_go(struct block_pool *pool, struct state_list *list, uint32_t at)
{
	const uint32_t index = list->held[at];
	block_let_go(pool, list->table[index]);
	list->table[index] = STATE_NONE;
	list->n--;
	memmove(list->held + at, list->held + at + 1, (list->n - at) * sizeof(*list->held));
}

bool states_reserve(
	struct block_pool *pool, struct state_list *list, uint32_t n_past, uint32_t n_positions)
{
	for (uint32_t i = index_of(n_past); i <= index_of(n_positions); i++)
		if (!hold(pool, list, i))
			return false;
	return true;
}

bool states_pass(
	struct block_pool *pool, struct state_list *list, uint32_t n_past, uint32_t n_positions)
{
	return hold(pool, list, index_of(n_past)) && hold(pool, list, index_of(n_positions));
}

uint32_t states_room(const struct state_list *list)
{
	return list->n ? (list->held[list->n - 1] + 1) * STATE_BLOCK - 1 : 0;
}

uint32_t states_reach(const struct state_list *list, uint32_t n)
{
	uint32_t best = 0;
	for (uint32_t i = 0; i < list->n && list->held[i] <= index_of(n); i++) {
		const uint32_t last = list->held[i] * STATE_BLOCK + STATE_BLOCK - 1;
		best = last < n ? last : n;
	}
	return best;
}

void states_truncate(struct block_pool *pool, struct state_list *list, uint32_t n)
{
	while (list->n && list->held[list->n - 1] > index_of(n))
		let_go(pool, list, list->n - 1);
	if (n == 0 && list->n)
		let_go(pool, list, 0);
}

/* The checkpoint among the first n that is missed least: the gap it leaves is small for its distance. */
static uint32_t least_missed(
	const struct state_list *list, uint32_t n, uint32_t current, uint32_t kept)
{
	uint32_t best = n;
	uint64_t best_gap = 0, best_distance = 1;
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t before = i ? list->held[i - 1] : 0;
		const uint64_t gap = (i + 1 < list->n ? list->held[i + 1] : current) - before;
		const uint64_t distance = current - list->held[i];
		if (list->held[i] == kept)
			continue;
		if (best == n || gap * best_distance < best_gap * distance) {
			best = i;
			best_gap = gap;
			best_distance = distance;
		}
	}
	return best;
}

void states_forget(
	struct block_pool *pool, struct state_list *list, uint32_t n_past, uint32_t n_prefill)
{
	const uint32_t current = index_of(n_past);
	uint32_t n = 0;
	while (n < list->n && list->held[n] < current)
		n++;
	for (; n > STATE_CHECKPOINTS; n--)
		let_go(pool, list, least_missed(list, n, current, index_of(n_prefill)));
}

void states_share(
	struct block_pool *pool, struct state_list *to, const struct state_list *from, uint32_t n)
{
	assert(to->table != from->table && states_reach(from, n) == n);
	while (to->n)
		let_go(pool, to, to->n - 1);
	for (uint32_t i = 0; n && i < from->n && from->held[i] <= index_of(n); i++) {
		const uint32_t index = from->held[i];
		to->table[index] = from->table[index];
		pool->n_holders[to->table[index]]++;
		to->held[to->n++] = index;
	}
}

enum blocks_owned states_own(struct block_pool *pool, struct state_list *list, uint32_t n_past,
	uint32_t *from, uint32_t *to)
{
	uint32_t *entry = &list->table[index_of(n_past)];
	if (*entry == STATE_NONE) /* it has yet to be taken */
		return BLOCKS_OWNED;
	return block_own(pool, entry, from, to);
}
