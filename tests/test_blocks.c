/* Who holds which block of the KV cache: sharing, copies before writing, letting go. */
#include <criterion/criterion.h>

#include <string.h>

#include "blocks.h"
#include "states.h"

#define N_LISTS  4
#define N_BLOCKS 16
#define N_TABLE  20

struct fixture {
	struct block_pool pool;
	uint32_t tables[N_LISTS][N_TABLE];
	struct block_list lists[N_LISTS];
};

static void open_fixture(struct fixture *f)
{
	struct lap_error err;
	*f = (struct fixture){0};
	cr_assert_eq(block_pool_init(&f->pool, N_BLOCKS, &err), LAP_OK);
	for (int i = 0; i < N_LISTS; i++)
		f->lists[i].table = f->tables[i];
}

/* Each block has as many holders as lists name it, and is free when none does. */
static void check(const struct fixture *f)
{
	uint32_t n_holders[N_BLOCKS] = {0}, n_free = 0;
	for (int i = 0; i < N_LISTS; i++)
		for (uint32_t b = f->lists[i].first; b < f->lists[i].n; b++)
			n_holders[f->lists[i].table[b]]++;
	for (uint32_t b = 0; b < N_BLOCKS; b++) {
		cr_assert_eq(f->pool.n_holders[b], n_holders[b], "block %u", b);
		n_free += n_holders[b] == 0;
	}
	cr_assert_eq(f->pool.n_free, n_free);
	for (uint32_t i = 0; i < n_free; i++)
		cr_assert_eq(n_holders[f->pool.free[i]], 0);
}

Test(blocks, grows_and_runs_out)
{
	struct fixture f;
	open_fixture(&f);
	cr_expect(blocks_reserve(&f.pool, &f.lists[0], 1));
	cr_expect_eq(f.lists[0].n, 1);
	cr_expect(blocks_reserve(&f.pool, &f.lists[0], KV_BLOCK));
	cr_expect_eq(f.lists[0].n, 1);
	cr_expect(blocks_reserve(&f.pool, &f.lists[0], KV_BLOCK + 1));
	cr_expect_eq(f.lists[0].n, 2);
	cr_expect_not(blocks_reserve(&f.pool, &f.lists[1], 15 * KV_BLOCK), "14 are left");
	cr_expect_eq(f.lists[1].n, 14);
	check(&f);
	blocks_truncate(&f.pool, &f.lists[1], KV_BLOCK + 1);
	cr_expect_eq(f.lists[1].n, 2);
	cr_expect_eq(f.pool.n_free, 12);
	check(&f);
	block_pool_free(&f.pool);
}

Test(blocks, a_shared_block_is_copied_before_it_is_written)
{
	struct fixture f;
	uint32_t from, to;
	open_fixture(&f);
	cr_assert(blocks_reserve(&f.pool, &f.lists[0], 70)); /* 3 blocks */
	cr_expect_eq(blocks_own(&f.pool, &f.lists[0], 69, &from, &to), BLOCKS_OWNED);
	blocks_share(&f.pool, &f.lists[1], &f.lists[0], 70);
	check(&f);
	cr_expect_eq(f.pool.n_free, N_BLOCKS - 3);
	cr_expect_eq(blocks_own(&f.pool, &f.lists[1], 70, &from, &to), BLOCKS_COPIED);
	cr_expect_eq(from, f.tables[0][2]);
	cr_expect_eq(to, f.tables[1][2]);
	cr_expect_neq(from, to);
	cr_expect_eq(f.tables[1][1], f.tables[0][1], "whole blocks stay shared");
	check(&f);
	cr_expect_eq(blocks_own(&f.pool, &f.lists[0], 70, &from, &to), BLOCKS_OWNED,
		"the copy was the other's");
	/* no block left for a copy */
	blocks_share(&f.pool, &f.lists[2], &f.lists[0], 70);
	cr_assert_not(blocks_reserve(&f.pool, &f.lists[3], N_TABLE * KV_BLOCK));
	cr_expect_eq(blocks_own(&f.pool, &f.lists[2], 70, &from, &to), BLOCKS_NONE);
	check(&f);
	block_pool_free(&f.pool);
}

Test(blocks, what_a_window_leaves_behind)
{
	struct fixture f;
	open_fixture(&f);
	cr_assert(blocks_reserve(&f.pool, &f.lists[0], 5 * KV_BLOCK));
	blocks_forget(&f.pool, &f.lists[0], KV_BLOCK - 1);
	cr_expect_eq(f.lists[0].first, 0, "position %d is still seen", KV_BLOCK - 1);
	blocks_forget(&f.pool, &f.lists[0], 2 * KV_BLOCK);
	cr_expect_eq(f.lists[0].first, 2);
	check(&f);
	blocks_share(&f.pool, &f.lists[1], &f.lists[0], 4 * KV_BLOCK);
	cr_expect_eq(f.lists[1].first, 2);
	cr_expect_eq(f.lists[1].n, 4);
	check(&f);
	blocks_truncate(&f.pool, &f.lists[0], KV_BLOCK); /* behind what is held */
	cr_expect_eq(f.lists[0].n - f.lists[0].first, 0);
	check(&f);
	blocks_truncate(&f.pool, &f.lists[0], 0);
	cr_expect_eq(f.lists[0].first, 0);
	cr_expect(blocks_reserve(&f.pool, &f.lists[0], 12 * KV_BLOCK));
	check(&f);
	block_pool_free(&f.pool);
}

/* Anything at all, in any order. */
Test(blocks, any_order)
{
	struct fixture f;
	uint32_t x = 1, from, to;
	open_fixture(&f);
	for (int i = 0; i < 20000; i++) {
		x = x * 1664525 + 1013904223;
		struct block_list *l = &f.lists[x >> 30], *other = &f.lists[x >> 28 & 3];
		uint32_t n = (x >> 8) % (10 * KV_BLOCK);
		switch (x >> 20 & 7) {
		case 0:
		case 1:
		case 2:
			blocks_reserve(&f.pool, l, n);
			break;
		case 3:
			blocks_truncate(&f.pool, l, n);
			break;
		case 4:
			blocks_forget(&f.pool, l, n);
			break;
		case 5:
			if (other != l && n <= other->n * KV_BLOCK)
				blocks_share(&f.pool, l, other, n);
			break;
		case 6:
			if (n / KV_BLOCK >= l->first && n / KV_BLOCK < l->n)
				blocks_own(&f.pool, l, n, &from, &to);
			break;
		default:
			blocks_truncate(&f.pool, l, 0);
		}
		check(&f);
	}
	block_pool_free(&f.pool);
}

/* ---- states ------------------------------------------------------------------------------------ */

struct states_fixture {
	struct block_pool pool;
	uint32_t tables[2][N_TABLE];
	struct state_list lists[2];
};

static void open_states(struct states_fixture *f)
{
	struct lap_error err;
	*f = (struct states_fixture){0};
	cr_assert_eq(block_pool_init(&f->pool, 2 * STATE_HELD, &err), LAP_OK);
	memset(f->tables, 0xff, sizeof(f->tables));
	for (int i = 0; i < 2; i++)
		f->lists[i].table = f->tables[i];
}

/* The entries that are held, and how often each block is. */
static void expect_held(const struct states_fixture *f, int which, uint32_t n, const uint32_t *held)
{
	const struct state_list *l = &f->lists[which];
	uint32_t n_entries = 0, n_holders[2 * STATE_HELD] = {0};
	cr_assert_eq(l->n, n, "%u are held, expected %u", l->n, n);
	for (uint32_t i = 0; i < n; i++)
		cr_expect_eq(l->held[i], held[i]);
	for (uint32_t i = 0; i < N_TABLE; i++)
		n_entries += l->table[i] != STATE_NONE;
	cr_expect_eq(n_entries, n);
	for (int j = 0; j < 2; j++)
		for (uint32_t i = 0; i < f->lists[j].n; i++)
			n_holders[f->tables[j][f->lists[j].held[i]]]++;
	for (uint32_t i = 0; i < 2 * STATE_HELD; i++)
		cr_expect_eq(f->pool.n_holders[i], n_holders[i], "block %u", i);
}
#define HELD(f, which, ...)                                                         \
	expect_held(f, which, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
		(uint32_t[]){__VA_ARGS__})

Test(states, decode_holds_every_block_and_prefill_the_ends)
{
	struct states_fixture f;
	open_states(&f);
	struct state_list *l = &f.lists[0];
	cr_expect(states_reserve(&f.pool, l, 0, STATE_BLOCK - 1));
	HELD(&f, 0, 0);
	cr_expect(states_reserve(&f.pool, l, 0, STATE_BLOCK));
	HELD(&f, 0, 0, 1); /* that behind the last position too */
	cr_expect_eq(states_room(l), 2 * STATE_BLOCK - 1);
	cr_expect(states_pass(&f.pool, l, STATE_BLOCK, 10 * STATE_BLOCK + 3));
	HELD(&f, 0, 0, 1, 10);
	cr_expect_not(states_reserve(&f.pool, l, 10 * STATE_BLOCK, 19 * STATE_BLOCK));
	HELD(&f, 0, 0, 1, 10, 11, 12, 13, 14);
	cr_expect_eq(states_room(l), 15 * STATE_BLOCK - 1);
	block_pool_free(&f.pool);
}

Test(states, goes_back_to_what_is_held)
{
	struct states_fixture f;
	open_states(&f);
	struct state_list *l = &f.lists[0];
	cr_expect_eq(states_reach(l, 0), 0);
	cr_expect_eq(states_reach(l, 40), 0);
	states_pass(&f.pool, l, 0, 5 * STATE_BLOCK + 4);
	states_pass(&f.pool, l, 5 * STATE_BLOCK + 4, 9 * STATE_BLOCK);
	HELD(&f, 0, 0, 5, 9);
	static const uint32_t cases[][2] = {{0, 0}, {7, 7}, {15, 15}, {16, 15}, {79, 15}, {80, 80},
		{84, 84}, {95, 95}, {96, 95}, {143, 95}, {144, 144}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		cr_expect_eq(states_reach(l, cases[i][0]), cases[i][1], "from %u", cases[i][0]);
	states_truncate(&f.pool, l, 95);
	HELD(&f, 0, 0, 5);
	states_truncate(&f.pool, l, 3);
	HELD(&f, 0, 0);
	states_truncate(&f.pool, l, 0);
	cr_expect_eq(l->n, 0);
	cr_expect_eq(f.pool.n_free, 2 * STATE_HELD);
	block_pool_free(&f.pool);
}

Test(states, a_fork_shares_and_copies_before_it_writes)
{
	struct states_fixture f;
	uint32_t from, to;
	open_states(&f);
	states_pass(&f.pool, &f.lists[0], 0, 3 * STATE_BLOCK + 1);
	states_pass(&f.pool, &f.lists[0], 3 * STATE_BLOCK + 1, 4 * STATE_BLOCK);
	states_reserve(&f.pool, &f.lists[1], 0, 3);
	states_share(&f.pool, &f.lists[1], &f.lists[0], 3 * STATE_BLOCK + 9);
	HELD(&f, 1, 0, 3);
	cr_expect_eq(f.tables[1][3], f.tables[0][3]);
	cr_expect_eq(
		states_own(&f.pool, &f.lists[1], 3 * STATE_BLOCK + 9, &from, &to), BLOCKS_COPIED);
	cr_expect_eq(from, f.tables[0][3]);
	cr_expect_eq(to, f.tables[1][3]);
	cr_expect_neq(from, to);
	cr_expect_eq(
		states_own(&f.pool, &f.lists[0], 3 * STATE_BLOCK + 9, &from, &to), BLOCKS_OWNED);
	HELD(&f, 0, 0, 3, 4);
	HELD(&f, 1, 0, 3);
	block_pool_free(&f.pool);
}

/* The checkpoint of the last prompt's end stays; the others thin out towards the start. */
Test(states, checkpoints_thin_out)
{
	struct states_fixture f;
	open_states(&f);
	struct state_list *l = &f.lists[0];
	for (uint32_t i = 0; i < 16; i++) {
		cr_assert(states_pass(&f.pool, l, i * STATE_BLOCK, (i + 1) * STATE_BLOCK), "%u", i);
		states_forget(&f.pool, l, (i + 1) * STATE_BLOCK, 9 * STATE_BLOCK + 2);
		cr_assert_leq(l->n, STATE_CHECKPOINTS + 1);
		if (i >= 9)
			cr_assert_eq(states_reach(l, 9 * STATE_BLOCK + 2), 9 * STATE_BLOCK + 2);
		cr_assert_geq(states_reach(l, (i + 1) * STATE_BLOCK - 1), i * STATE_BLOCK / 2);
	}
	block_pool_free(&f.pool);
}
