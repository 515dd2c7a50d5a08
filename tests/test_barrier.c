/* The barrier planner and the group fold: what no driver here would show. */
#include <string.h>

#include "support.h"
#include "vk/barrier.h"
#include "vk/pipeline.h"
#include "vk/record.h"

/* Buffers are only compared here, never opened. */
static char places[8];
#define BUFFER(i) ((struct buffer *)(void *)&places[i])

static struct view view(int buffer, uint64_t offset, uint64_t n_bytes)
{
	return (struct view){BUFFER(buffer), offset, n_bytes};
}

/* out = f(a, b), as glu has them: one written, two read. */
static struct op op(struct view out, struct view a, struct view b)
{
	return (struct op){
		.kernel = KERNEL_glu, .n_outputs = 1, .buffers = {out, a, b}, .label = "glu"};
}

static void check(struct op *ops, uint32_t n, const char *expected)
{
	struct plan plan = {.ops = ops, .n_ops = n, .sizes = view(7, 0, 2048), .max_rows = 1};
	bool before[64];
	struct lap_error err = {0};
	char found[65] = "";
	cr_assert_eq(barriers_plan(&plan, before, &err), LAP_OK, "%s", err.text);
	for (uint32_t i = 0; i < n; i++)
		found[i] = before[i] ? '|' : '.';
	found[n] = '\0';
	cr_assert_str_eq(found, expected);
}

Test(barrier, first_op_has_one)
{
	struct op ops[] = {op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256))};
	check(ops, 1, "|");
}

Test(barrier, read_after_write)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256)),
		op(view(2, 0, 256), view(0, 0, 256), view(1, 0, 256)),
	};
	check(ops, 2, "||");
	ops[1].buffers[1] = view(1, 0, 256);
	ops[1].buffers[2] = view(0, 255, 1); /* the last byte is enough */
	check(ops, 2, "||");
}

Test(barrier, write_after_read)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(1, 0, 256), view(2, 0, 256)),
		op(view(2, 0, 256), view(3, 0, 256), view(3, 0, 256)),
	};
	check(ops, 2, "||");
}

Test(barrier, write_after_write)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256)),
		op(view(0, 0, 256), view(2, 0, 256), view(2, 0, 256)),
	};
	check(ops, 2, "||");
}

Test(barrier, reads_share)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(3, 0, 256), view(4, 0, 256)),
		op(view(1, 0, 256), view(3, 0, 256), view(4, 0, 256)),
		op(view(2, 0, 256), view(3, 128, 256), view(4, 0, 256)),
	};
	check(ops, 3, "|..");
}

/* Neighbours in one buffer are no conflict; one byte of overlap is. */
Test(barrier, neighbours)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256)),
		op(view(0, 256, 256), view(1, 0, 256), view(0, 512, 256)),
		op(view(0, 1024, 256), view(1, 0, 256), view(0, 768, 256)),
	};
	check(ops, 3, "|..");
	ops[1].buffers[2] = view(0, 0, 256);
	check(ops, 3, "||.");
	ops[1].buffers[2] = view(0, 512, 256);
	ops[2].buffers[2] = view(0, 511, 256);
	check(ops, 3, "|.|");
}

/* A barrier settles all that was before it, and nothing that comes after. */
Test(barrier, chain)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256)),   /* a */
		op(view(2, 0, 256), view(1, 0, 256), view(1, 0, 256)),   /* beside a */
		op(view(3, 0, 256), view(0, 0, 256), view(1, 0, 256)),   /* needs a */
		op(view(4, 0, 256), view(2, 0, 256), view(1, 0, 256)),   /* settled with a */
		op(view(5, 0, 256), view(3, 0, 256), view(4, 0, 256)),   /* needs both */
		op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256)),   /* read two barriers ago */
		op(view(5, 256, 256), view(0, 0, 256), view(5, 0, 256)), /* needs the last two */
	};
	check(ops, 7, "|.|.|.|");
}

/* The conflict is with an op further back than the one before. */
Test(barrier, looks_back_to_the_last_barrier)
{
	struct op ops[] = {
		op(view(0, 0, 256), view(6, 0, 256), view(6, 0, 256)),
		op(view(1, 0, 256), view(6, 0, 256), view(6, 0, 256)),
		op(view(2, 0, 256), view(6, 0, 256), view(6, 0, 256)),
		op(view(6, 0, 256), view(5, 0, 256), view(5, 0, 256)),
		op(view(3, 0, 256), view(0, 0, 256), view(1, 0, 256)),
	};
	check(ops, 5, "|..|.");
}

/* Every dispatch reads its size; who writes the sizes comes after all and before all. */
Test(barrier, dispatch_sizes)
{
	struct op control = {.kernel = KERNEL_control,
		.n_outputs = 1,
		.buffers = {view(6, 0, 256), view(7, 0, 2048), view(5, 0, 256), view(5, 256, 256),
			view(5, 512, 256), view(4, 0, 256)},
		.label = "control"};
	struct op ops[] = {
		op(view(0, 0, 256), view(1, 0, 256), view(1, 0, 256)),
		control,
		op(view(2, 0, 256), view(1, 0, 256), view(1, 0, 256)),
		op(view(3, 0, 256), view(1, 0, 256), view(1, 0, 256)),
	};
	check(ops, 4, "|||.");
}

/* ---- folding ---------------------------------------------------------------------------------- */

static void check_fold(uint32_t n_outputs, uint32_t per_group)
{
	uint32_t x = 0, y = 0;
	cr_assert(groups_fold(n_outputs, per_group, &x, &y), "%u / %u", n_outputs, per_group);
	uint64_t needed = ((uint64_t)n_outputs + per_group - 1) / per_group;
	cr_assert(x >= 1 && x <= MAX_GROUPS && y >= 1 && y <= MAX_GROUPS);
	cr_assert_geq((uint64_t)x * y, needed);
	cr_assert_lt((uint64_t)x * y, needed + y, "no row of groups is superfluous");
	cr_assert(needed > MAX_GROUPS || y == 1);
}

/* OB-02: counts around and far above the limit of one axis. */
Test(fold, covers_all_outputs)
{
	static const uint32_t counts[] = {1, 2, 255, 256, 257, 65534, 65535, 65536, 65537, 70000,
		131070, 131071, 2703360, 16776961, 0x7fffffff, 0x80000001, 0xfffe0001};
	for (size_t i = 0; i < ARRAY_COUNT(counts); i++)
		for (uint32_t per_group = 1; per_group <= 512; per_group = per_group * 3 + 1)
			check_fold(counts[i], per_group);
	check_fold(UINT32_MAX, 256);
	check_fold(UINT32_MAX, 2);
}

Test(fold, refuses_what_two_axes_do_not_hold)
{
	uint32_t x, y;
	cr_assert(groups_fold(MAX_GROUPS * MAX_GROUPS, 1, &x, &y));
	cr_assert(x == MAX_GROUPS && y == MAX_GROUPS);
	cr_assert(!groups_fold(MAX_GROUPS * MAX_GROUPS + 1, 1, &x, &y));
	cr_assert(!groups_fold(UINT32_MAX, 1, &x, &y));
}

/* ---- dispatch sizes --------------------------------------------------------------------------- */

static struct pipeline_key keys[MAX_SIZES + 1];

static void keys_init(void)
{
	for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
		keys[i] = (struct pipeline_key){
			.kernel = KERNEL_glu, .outputs_per_group = 1, .rows_per_group = 1};
}

TestSuite(sizes, .init = keys_init);

Test(sizes, equal_ones_are_one_entry)
{
	struct op ops[] = {
		{.kernel = KERNEL_glu, .n_outputs = 70000, .factor = 1, .label = "a"},
		{.kernel = KERNEL_attn_decode, .n_outputs = 8, .rule = SIZE_KV, .label = "b"},
		{.kernel = KERNEL_glu, .n_outputs = 70000, .factor = 1, .label = "c"},
		{.kernel = KERNEL_matmul, .n_outputs = 70000, .factor = 1, .label = "d"},
		{.kernel = KERNEL_control, .n_outputs = 1, .rule = SIZE_ONE, .label = "e"},
		{.kernel = KERNEL_glu, .n_outputs = 70000, .factor = 3, .label = "f"},
		{.kernel = KERNEL_expert_matmul,
			.n_outputs = 70000,
			.factor = 3,
			.extra = 5,
			.label = "g"},
	};
	struct plan plan = {.ops = ops, .n_ops = ARRAY_COUNT(ops), .max_rows = 17};
	struct dispatch_size entries[MAX_SIZES];
	uint32_t entry[ARRAY_COUNT(ops)];
	struct lap_error err = {0};
	for (size_t i = 0; i < ARRAY_COUNT(ops); i++)
		keys[i].rows_per_group = kernel_info(ops[i].kernel)->rows_per_group;
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_OK, "%s", err.text);
	static const uint32_t expected[] = {0, 1, 0, 2, 3, 4, 5};
	cr_assert_eq(memcmp(entry, expected, sizeof expected), 0);
	cr_assert(entries[0].groups_x == 35000 && entries[0].groups_y == 2);
	cr_assert_eq(entries[1].divisor, ATTN_SLICE);
	cr_assert_eq(entries[2].divisor, kernel_info(KERNEL_matmul)->rows_per_group);
	cr_assert_eq(entries[6].groups_x, 0, "an unused entry has no groups");

	struct step_header step = {.n_rows = 17, .n_kv = ATTN_SLICE + 1};
	sizes_update(entries, MAX_SIZES, &step);
	cr_assert(entries[0].x == 35000 && entries[0].y == 2 && entries[0].z == 17);
	cr_assert(entries[1].x == 8 && entries[1].y == 2 && entries[1].z == 17);
	cr_assert(entries[2].x == 35000 && entries[2].z == 2, "tiles of 16 rows");
	cr_assert(entries[3].x == 1 && entries[3].y == 1 && entries[3].z == 1);
	cr_assert_eq(entries[4].z, 51, "three experts a row");
	cr_assert_eq(entries[5].z, 7 + 5, "tiles of 8 slots, and one of each expert");
}

/* A window touches as many slices as it can straddle, however long the sequence is. */
Test(sizes, windows_bound_the_slices)
{
	static const struct {
		uint32_t window, n_kv, slices;
	} cases[] = {{0, 1000 * ATTN_SLICE, 1000}, {1, 1000 * ATTN_SLICE, 1},
		{2, 1000 * ATTN_SLICE, 2}, {ATTN_SLICE, 1000 * ATTN_SLICE, 2},
		{ATTN_SLICE + 1, 1000 * ATTN_SLICE, 2}, {ATTN_SLICE + 2, 1000 * ATTN_SLICE, 3},
		{ATTN_SLICE, ATTN_SLICE, 1}, {ATTN_SLICE + 2, ATTN_SLICE + 1, 2}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct dispatch_size size = {.rule = SIZE_KV,
			.groups_x = 3,
			.groups_y = 1,
			.divisor = ATTN_SLICE,
			.factor = 1,
			.window = cases[i].window};
		struct step_header step = {.n_rows = 5, .n_kv = cases[i].n_kv};
		sizes_update(&size, 1, &step);
		cr_expect(size.x == 3 && size.y == cases[i].slices && size.z == 5,
			"window %u of %u: %u slices", cases[i].window, cases[i].n_kv, size.y);
		cr_expect_eq(attention_slices(cases[i].n_kv, cases[i].window), cases[i].slices);
	}
}

Test(sizes, too_many_or_too_large)
{
	struct op ops[MAX_SIZES + 1];
	for (uint32_t i = 0; i <= MAX_SIZES; i++)
		ops[i] = (struct op){
			.kernel = KERNEL_glu, .n_outputs = i + 1, .factor = 1, .label = "glu"};
	struct plan plan = {.ops = ops, .n_ops = MAX_SIZES, .max_rows = 1};
	struct dispatch_size entries[MAX_SIZES];
	uint32_t entry[MAX_SIZES + 1];
	struct lap_error err = {0};
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_OK, "%s", err.text);
	plan.n_ops++;
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_USAGE);
	plan.n_ops = 1;
	plan.max_rows = MAX_GROUPS + 1;
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_USAGE);
	plan.max_rows = MAX_GROUPS / 4;
	ops[0].factor = 4;
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_OK, "%s", err.text);
	ops[0].extra = 4;
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_USAGE);
	plan.max_rows = 1;
	ops[0].rule = SIZE_KV;
	ops[0].n_outputs = MAX_GROUPS + 1;
	cr_assert_eq(sizes_collect(&plan, keys, entries, entry, &err), LAP_USAGE,
		"the second axis belongs to the slices");
}
