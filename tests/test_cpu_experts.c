/* The reference kernels of mixtures of experts against arithmetic written once more: a sort instead of an
 * insertion, long double instead of double, one product at a time. */
#include "backend.h"
#include "cpu/kernels.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATTERN 0xC5 /* bytes of outputs before a kernel runs */

static struct backend *cpu;
static uint64_t state;
static struct buffer *buffers[16];
static unsigned n_buffers;

static void setup(void)
{
	struct lap_error err;
	state = 7;
	n_buffers = 0;
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
}

static void release_views(void)
{
	while (n_buffers > 0)
		cpu->ops->buffer_destroy(cpu, buffers[--n_buffers]);
}

static void teardown(void)
{
	release_views();
	cpu->ops->close(cpu);
}

TestSuite(cpu_experts, .init = setup, .fini = teardown);

static uint32_t random_u32(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 32);
}

static float random_float(void)
{
	return (float)((double)random_u32() / 0x80000000u - 1);
}

static void random_floats(float *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = random_float();
}

/* An operand over the test's own bytes. */
static struct view view_of(const void *bytes, size_t n_bytes)
{
	struct buffer *b = cpu->ops->buffer_import(cpu, bytes, n_bytes);
	cr_assert(b && n_buffers < ARRAY_COUNT(buffers));
	buffers[n_buffers++] = b;
	return (struct view){b, 0, n_bytes};
}

static bool untouched(float f)
{
	uint32_t bits, pattern;
	memcpy(&bits, &f, sizeof bits);
	memset(&pattern, PATTERN, sizeof pattern);
	return bits == pattern;
}

static void expect_near(float found, long double expected, long double scale, const char *what)
{
	cr_assert(fabsl((long double)found - expected) <= 1e-6L * scale, "%s: %.9g, expected %.9Lg",
		what, (double)found, expected);
}

/* ---- routing ----------------------------------------------------------------------------------- */

static const float *sorted_logits;

static int by_logit(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	float x = sorted_logits[a], y = sorted_logits[b];
	if (isnan(x) != isnan(y))
		return isnan(x) ? -1 : 1;
	if (x > y || x < y)
		return x > y ? -1 : 1;
	return a < b ? -1 : 1;
}

static void run_route(const float *logits, uint32_t n_rows, uint32_t n_expert, uint32_t n_used,
	bool normalise, struct expert_route *routes)
{
	uint32_t stride = ROW_STRIDE(n_expert);
	struct step_header step = {.n_rows = n_rows};
	struct op op = {
		.kernel = KERNEL_moe_route,
		.buffers = {view_of(routes, n_rows * n_used * sizeof *routes),
			view_of(logits, n_rows * stride * sizeof *logits)},
		.args.moe_route = {n_expert, n_used, stride, normalise, false},
	};
	cpu_moe_route(&op, &step);
	release_views();
}

static void test_route(uint32_t n_expert, uint32_t n_used, bool normalise, bool ties)
{
	enum { N_ROWS = 9 };
	uint32_t stride = ROW_STRIDE(n_expert), order[MAX_EXPERTS];
	float *logits = malloc(N_ROWS * stride * sizeof *logits);
	struct expert_route routes[N_ROWS * MAX_EXPERTS_USED];
	random_floats(logits, N_ROWS * stride);
	if (ties)
		for (uint32_t i = 0; i < N_ROWS * stride; i++)
			logits[i] = roundf(logits[i] * 2); /* with zeros of both signs */
	run_route(logits, N_ROWS, n_expert, n_used, normalise, routes);
	for (uint32_t row = 0; row < N_ROWS; row++) {
		const float *own = sorted_logits = logits + row * stride;
		long double sum = 0;
		for (uint32_t i = 0; i < n_expert; i++)
			order[i] = i;
		qsort(order, n_expert, sizeof *order, by_logit);
		for (uint32_t i = 0; i < (normalise ? n_used : n_expert); i++)
			sum += expl(own[order[i]]);
		for (uint32_t i = 0; i < n_used; i++) {
			const struct expert_route *r = &routes[row * n_used + i];
			cr_assert_eq(r->expert, order[i], "row %u, place %u", row, i);
			expect_near(r->weight, expl(own[order[i]]) / sum, 1, "weight");
		}
	}
	free(logits);
}

Test(cpu_experts, route)
{
	static const uint32_t shapes[][2] = {
		{1, 1}, {4, 2}, {6, 6}, {8, 2}, {60, 4}, {128, 8}, {512, 32}};
	for (unsigned i = 0; i < ARRAY_COUNT(shapes); i++)
		for (unsigned kind = 0; kind < 4; kind++)
			test_route(shapes[i][0], shapes[i][1], kind & 1, kind & 2);
}

/* Whatever a broken row holds, its experts exist and are different ones; a NaN is passed on. */
Test(cpu_experts, route_of_nan)
{
	static const float rows[][4] = {{NAN, NAN, NAN, NAN}, {1, NAN, 2, 3}, {3, 2, NAN, -NAN},
		{INFINITY, 1, INFINITY, 2}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
	static const uint32_t expected[][2] = {{0, 1}, {1, 3}, {2, 3}, {0, 2}, {0, 1}};
	float logits[ARRAY_COUNT(rows) * ROW_STRIDE(4)] = {0};
	struct expert_route routes[ARRAY_COUNT(rows) * 2];
	for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
		memcpy(logits + i * ROW_STRIDE(4), rows[i], sizeof rows[i]);
	run_route(logits, ARRAY_COUNT(rows), 4, 2, true, routes);
	for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
		cr_expect_eq(routes[2 * i].expert, expected[i][0], "row %u", i);
		cr_expect_eq(routes[2 * i + 1].expert, expected[i][1], "row %u", i);
		cr_expect(isnan(routes[2 * i].weight), "row %u", i);
	}
}

static void random_routes(
	struct expert_route *routes, uint32_t n_rows, uint32_t n_expert, uint32_t n_used)
{
	for (uint32_t i = 0; i < n_rows * n_used; i++) {
		bool again = true;
		while (again) { /* a row's experts are different ones */
			routes[i] = (struct expert_route){random_u32() % n_expert, random_float()};
			again = false;
			for (uint32_t j = i / n_used * n_used; j < i; j++)
				again = again || routes[j].expert == routes[i].expert;
		}
	}
}

static void make_tiles(struct expert_route *routes, uint32_t n_rows, uint32_t n_expert,
	uint32_t n_used, uint32_t *tiles)
{
	uint32_t n_slots = n_rows * n_used;
	struct step_header step = {.n_rows = n_rows};
	struct op op = {
		.kernel = KERNEL_moe_tiles,
		.buffers = {view_of(tiles, expert_tiles_bytes(n_expert, n_slots)),
			view_of(routes, n_slots * sizeof *routes)},
		.args.moe_tiles = {n_used, EXPERT_TILES(n_slots, n_expert)},
	};
	cpu_moe_tiles(&op, &step);
	release_views();
}

static void test_tiles(uint32_t n_rows, uint32_t n_expert, uint32_t n_used)
{
	uint32_t n_slots = n_rows * n_used, n_tiles = EXPERT_TILES(n_slots, n_expert), n = 0;
	struct expert_route *routes = malloc(n_slots * sizeof *routes);
	uint32_t *words = malloc(expert_tiles_bytes(n_expert, n_slots));
	random_routes(routes, n_rows, n_expert, n_used);
	make_tiles(routes, n_rows, n_expert, n_used, words);
	const struct expert_tile *tiles = (const struct expert_tile *)(const void *)words;
	const uint32_t *slots = words + 3 * n_tiles;
	for (uint32_t i = 0; i < n_tiles; i++) {
		cr_assert_leq(tiles[i].n, EXPERT_TILE);
		if (tiles[i].n == 0)
			continue;
		cr_assert_eq(tiles[i].first, n, "tile %u begins where the last one ended", i);
		cr_assert(i == 0 || tiles[i - 1].n > 0, "tile %u comes after unused ones", i);
		cr_assert(i == 0 || tiles[i - 1].expert < tiles[i].expert ||
				(tiles[i - 1].expert == tiles[i].expert &&
					tiles[i - 1].n == EXPERT_TILE),
			"tile %u: an expert's last tile alone may have room", i);
		for (uint32_t t = 0; t < tiles[i].n; t++, n++) {
			cr_assert_lt(slots[n], n_slots);
			cr_assert_eq(routes[slots[n]].expert, tiles[i].expert);
			cr_assert(n == 0 || routes[slots[n - 1]].expert != tiles[i].expert ||
					slots[n - 1] < slots[n],
				"slots of an expert ascend");
		}
	}
	cr_assert_eq(n, n_slots);
	free(routes);
	free(words);
}

Test(cpu_experts, tiles)
{
	test_tiles(1, 1, 1);
	test_tiles(33, 1, 1);
	test_tiles(8, 4, 4);
	test_tiles(33, 6, 3);
	test_tiles(17, 60, 4);
	test_tiles(64, 128, 8);
	test_tiles(3, 512, 32);
}

/* ---- products ---------------------------------------------------------------------------------- */

/* The experts first .. first + n_experts - 1 of a chunk; the bytes of those that no slot chose cannot be
 * read.  Both kernels. */
static void test_products(
	enum weight weight, uint32_t n_out, uint32_t n_in, bool x_per_slot, bool has_bias)
{
	enum { N_ROWS = 13, N_USED = 2, N_EXPERT = 8, FIRST = 2, N_CHUNK = 5, N_SLOTS = 26 };
	const struct weight_format *f = weight_format(weight);
	struct step_header step = {.n_rows = N_ROWS};
	uint32_t stride_out = ROW_STRIDE(n_out), stride_x = ROW_STRIDE(n_in);
	uint32_t n_tiles = EXPERT_TILES(N_SLOTS, N_EXPERT);
	uint64_t row_bytes;
	cr_assert(weight_row_bytes(weight, n_in, &row_bytes));
	size_t page = (size_t)sysconf(_SC_PAGESIZE), expert_bytes = n_out * row_bytes;
	uint8_t *weights = mmap(NULL, N_CHUNK * expert_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert(weights != MAP_FAILED);
	for (size_t i = 0; i < N_CHUNK * expert_bytes; i += 2) { /* halves and floats around 1 */
		weights[i] = (uint8_t)random_u32();
		weights[i + 1] = weight == WEIGHT_q8_0 ? (uint8_t)random_u32() % 60
						       : (uint8_t)(0x3C + random_u32() % 4);
	}
	struct expert_route routes[N_SLOTS];
	random_routes(routes, N_ROWS, N_EXPERT, N_USED);
	for (unsigned i = 0; i < N_SLOTS; i++) /* nobody takes expert 4 */
		if (routes[i].expert == FIRST + 2)
			routes[i].expert = routes[i ^ 1].expert == 0 ? 1 : 0;
	size_t hidden = (2 * expert_bytes + page - 1) / page * page,
	       hidden_end = 3 * expert_bytes / page * page;
	cr_assert(hidden_end <= hidden ||
		mprotect(weights + hidden, hidden_end - hidden, PROT_NONE) == 0);
	float *x = malloc(N_SLOTS * stride_x * sizeof *x);
	float *out = malloc(N_SLOTS * stride_out * sizeof *out);
	float *bias = malloc(N_EXPERT * n_out * sizeof *bias), *w = malloc(n_in * sizeof *w);
	uint32_t *tiles = malloc(expert_tiles_bytes(N_EXPERT, N_SLOTS));
	random_floats(x, N_SLOTS * stride_x);
	random_floats(bias, N_EXPERT * n_out);
	make_tiles(routes, N_ROWS, N_EXPERT, N_USED, tiles);

	for (unsigned k = 0; k < 2; k++) {
		enum kernel kernel = k ? KERNEL_expert_matmul : KERNEL_expert_matvec;
		struct op op = {
			.kernel = kernel,
			.weight = weight,
			.buffers = {view_of(out, N_SLOTS * stride_out * sizeof *out),
				view_of(weights, N_CHUNK * expert_bytes),
				view_of(x, N_SLOTS * stride_x * sizeof *x),
				view_of(bias, N_EXPERT * n_out * sizeof *bias),
				k ? view_of(tiles, expert_tiles_bytes(N_EXPERT, N_SLOTS))
				  : view_of(routes, sizeof routes)},
			.args.expert_matvec =
				{
					.n_out = n_out,
					.n_in = n_in,
					.row_bytes = (uint32_t)row_bytes,
					.first_expert = FIRST,
					.n_experts = N_CHUNK,
					.n_used = N_USED,
					.x_per_slot = x_per_slot,
					.n_tiles = n_tiles,
					.stride_out = stride_out,
					.stride_x = stride_x,
					.has_bias = has_bias,
				},
		};
		memset(out, PATTERN, N_SLOTS * stride_out * sizeof *out);
		cpu_kernels[kernel](&op, &step);
		release_views();
		for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
			uint32_t expert = routes[slot].expert;
			bool inside = expert >= FIRST && expert < FIRST + N_CHUNK;
			const float *own = x + (x_per_slot ? slot : slot / N_USED) * stride_x;
			for (uint32_t o = 0; o < stride_out; o++) {
				float found = out[slot * stride_out + o];
				if (!inside || o >= n_out) {
					cr_assert(untouched(found), "slot %u, %u", slot, o);
					continue;
				}
				long double sum = has_bias ? bias[expert * n_out + o] : 0,
					    scale = 1;
				f->decode(weights + (expert - FIRST) * expert_bytes + o * row_bytes,
					n_in, w);
				for (uint32_t i = 0; i < n_in; i++) {
					sum += (long double)w[i] * own[i];
					scale += fabsl((long double)w[i] * own[i]);
				}
				expect_near(found, sum, scale, f->name);
			}
		}
	}
	free(x);
	free(out);
	free(bias);
	free(w);
	free(tiles);
	munmap(weights, N_CHUNK * expert_bytes);
}

Test(cpu_experts, products_of_chosen_experts)
{
	test_products(WEIGHT_f32, 64, 64, false, false);
	test_products(WEIGHT_f32, 32, 160, true, true);
	test_products(WEIGHT_f16, 128, 320, false, true);
	test_products(WEIGHT_q8_0, 128, 512, true, false);
}

/* ---- the sum ----------------------------------------------------------------------------------- */

static void test_sum(uint32_t n, uint32_t n_used, bool residual, bool shared, bool gate)
{
	enum { N_ROWS = 5 };
	struct step_header step = {.n_rows = N_ROWS};
	uint32_t stride = ROW_STRIDE(n);
	size_t n_floats = N_ROWS * stride;
	float *out = malloc(n_floats * sizeof *out),
	      *down = malloc(n_floats * n_used * sizeof *down);
	float *add = malloc(n_floats * sizeof *add), *other = malloc(n_floats * sizeof *other);
	float gates[N_ROWS * ROW_ALIGN];
	struct expert_route routes[N_ROWS * MAX_EXPERTS_USED];
	memset(out, PATTERN, n_floats * sizeof *out);
	random_floats(down, n_floats * n_used);
	random_floats(add, n_floats);
	random_floats(other, n_floats);
	random_floats(gates, ARRAY_COUNT(gates));
	gates[0] = -1e30f;
	gates[ROW_ALIGN] = 1e30f;
	random_routes(routes, N_ROWS, MAX_EXPERTS, n_used);
	struct op op = {
		.kernel = KERNEL_expert_sum,
		.buffers = {view_of(out, n_floats * sizeof *out),
			view_of(down, n_floats * n_used * sizeof *down),
			view_of(routes, sizeof routes), view_of(add, n_floats * sizeof *add),
			view_of(other, n_floats * sizeof *other), view_of(gates, sizeof gates)},
		.args.expert_sum = {n, n_used, stride, stride, stride, stride, ROW_ALIGN, residual,
			shared, gate, 0.22f},
	};
	cpu_expert_sum(&op, &step);
	for (uint32_t row = 0; row < N_ROWS; row++)
		for (uint32_t i = 0; i < stride; i++) {
			size_t at = row * stride + i;
			if (i >= n) {
				cr_assert(untouched(out[at]));
				continue;
			}
			long double sum = 0;
			for (uint32_t k = 0; k < n_used; k++)
				sum += (long double)routes[row * n_used + k].weight *
					down[(row * n_used + k) * stride + i];
			if (shared && gate)
				sum += other[at] / (1 + expl(-gates[row * ROW_ALIGN]));
			else if (shared)
				sum += other[at];
			expect_near(out[at], (residual ? add[at] : 0) + 0.22f * sum, n_used, "sum");
		}
	release_views();
	free(out);
	free(down);
	free(add);
	free(other);
}

Test(cpu_experts, sum)
{
	test_sum(1, 1, false, false, false);
	test_sum(63, 2, true, false, false);
	test_sum(64, 3, false, true, false);
	test_sum(97, 8, true, true, true);
}
