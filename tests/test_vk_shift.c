/* Positions of a cache that move towards its start: OB-22.  A key that was turned to position p and moved by d
 * is the key turned to p - d; values move as they are; on the CPU and on Vulkan.
 *
 * What a cache loses grows with each move, for a key is rounded again: the limits below say by how much.  Of
 * q4_0 nothing is left after 50 moves. */
#include "op_case.h"
#include "kv.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>

#define HEADS    3
#define N_CTX    2048
#define N_BLOCKS (N_CTX / KV_BLOCK)
#define DISTANCE 37
#define N_ROWS   4     /* moved in a step */
#define LENGTH   1.25f /* of the pairs of the rope table */

struct shift_case {
	struct backend *b;
	uint32_t dim, n_rot;
	bool neox;
	struct kv_layer kv;
	struct kv_shape shape;
	struct rope rope;
	struct view step, sizes;
	struct step_header *header;
	struct shift_row *rows;
	uint8_t *k, *v;
	uint32_t *table;
	float *turns;
	float *keys; /* [N_CTX][HEADS][dim], before they are turned */
};

static double angle(const struct shift_case *t, uint32_t pos, uint32_t pair)
{
	return pos * pow(10000, -2.0 * pair / t->n_rot);
}

/* Element i of a head, turned to a position. */
static double turned(const struct shift_case *t, const float *head, uint32_t i, uint32_t pos)
{
	uint32_t n = t->n_rot / 2, pair = t->neox ? i % n : i / 2;
	if (i >= t->n_rot)
		return (double)head[i];
	double x = (double)head[t->neox ? pair : 2 * pair];
	double y = (double)head[t->neox ? pair + n : 2 * pair + 1];
	double c = cos(angle(t, pos, pair)), s = sin(angle(t, pos, pair));
	bool first = t->neox ? i < n : i % 2 == 0;
	return (double)LENGTH * (first ? x * c - y * s : y * c + x * s);
}

static size_t element(const struct shift_case *t, uint32_t pos, uint32_t head)
{
	return ((t->table[pos / KV_BLOCK] * (size_t)KV_BLOCK + pos % KV_BLOCK) * HEADS + head) *
		t->dim;
}

static void store_head(struct shift_case *t, uint32_t pos, uint32_t head, uint64_t *state)
{
	float *key = t->keys + ((size_t)pos * HEADS + head) * t->dim, values[MAX_HEAD_DIM];
	for (uint32_t i = 0; i < t->dim; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		key[i] = (float)((double)(*state >> 32) / 0x80000000u - 1) / LENGTH;
	}
	for (uint32_t i = 0; i < t->dim; i++)
		values[i] = (float)turned(t, key, i, pos);
	kv_store(t->kv.k_type, t->k, element(t, pos, head), t->dim, values);
	kv_store(t->kv.v_type, t->v, element(t, pos, head), t->dim, key);
}

static void shift_create(struct shift_case *t)
{
	uint64_t n = (uint64_t)N_CTX * HEADS * t->dim, state = 9;
	struct dispatch_size *sizes;
	t->kv.k = shared(t->b, kv_bytes(t->kv.k_type, n), &t->k);
	t->kv.v = shared(t->b, kv_bytes(t->kv.v_type, n), &t->v);
	t->shape = (struct kv_shape){.n_head = HEADS,
		.n_head_kv = HEADS,
		.head_dim = t->dim,
		.n_blocks = N_BLOCKS,
		.n_ctx = N_CTX};
	t->shape.table = shared(t->b, N_BLOCKS * sizeof *t->table, &t->table);
	t->rope = (struct rope){.n_rot = t->n_rot, .neox = t->neox};
	t->rope.table = shared(t->b, N_CTX * t->n_rot * sizeof(float), &t->turns);
	t->step = shared(t->b, sizeof *t->header + N_ROWS * sizeof *t->rows, &t->header);
	t->rows = (struct shift_row *)(t->header + 1);
	t->sizes = shared(t->b, MAX_SIZES * sizeof *sizes, &sizes);
	memset(sizes, 0, MAX_SIZES * sizeof *sizes);
	for (uint32_t i = 0; i < N_BLOCKS; i++)
		t->table[i] = N_BLOCKS - 1 - i;
	for (uint32_t pos = 0; pos < N_CTX; pos++)
		for (uint32_t pair = 0; pair < t->n_rot / 2; pair++) {
			float *turn = t->turns + pos * t->n_rot + 2 * pair;
			turn[0] = (float)((double)LENGTH * cos(angle(t, pos, pair)));
			turn[1] = (float)((double)LENGTH * sin(angle(t, pos, pair)));
		}
	t->keys = malloc(n * sizeof *t->keys);
	cr_assert(t->keys);
	for (uint32_t pos = 0; pos < N_CTX; pos++)
		for (uint32_t head = 0; head < HEADS; head++)
			store_head(t, pos, head, &state);
}

static void shift_destroy(struct shift_case *t)
{
	struct view all[] = {t->kv.k, t->kv.v, t->shape.table, t->rope.table, t->step, t->sizes};
	for (size_t i = 0; i < ARRAY_COUNT(all); i++)
		t->b->ops->buffer_destroy(t->b, all[i].buffer);
	free(t->keys);
}

/* What a head lost: the largest error, and the sums of squares of errors and of what should be there. */
struct loss {
	double largest, errors, squares;
};

static struct loss loss_of(const struct shift_case *t, uint32_t pos, uint32_t from)
{
	struct loss loss = {0};
	float found[MAX_HEAD_DIM];
	for (uint32_t head = 0; head < HEADS; head++) {
		const float *key = t->keys + ((size_t)from * HEADS + head) * t->dim;
		kv_load(t->kv.k_type, t->k, element(t, pos, head), t->dim, found);
		for (uint32_t i = 0; i < t->dim; i++) {
			double wanted = turned(t, key, i, pos), error = (double)found[i] - wanted;
			loss.largest = fmax(loss.largest, fabs(error));
			loss.errors += error * error;
			loss.squares += wanted * wanted;
		}
	}
	return loss;
}

/* Moves the last N_ROWS positions n_shifts times and returns what their keys have lost. */
static struct loss shifted(struct shift_case *t, uint32_t n_shifts)
{
	struct lap_error err;
	struct runnable *r;
	struct plan plan = {.role = ROLE_PREFILL,
		.max_rows = N_ROWS,
		.layer = -1,
		.step = t->step,
		.sizes = t->sizes};
	struct loss loss = {0};
	uint32_t last = N_CTX - N_ROWS, end = last - n_shifts * DISTANCE;
	shift_create(t);
	plan.step = t->step;
	plan.sizes = t->sizes;
	size_t value_bytes = (size_t)kv_bytes(t->kv.v_type, HEADS * t->dim);
	size_t key_bytes = (size_t)kv_bytes(t->kv.k_type, HEADS * t->dim);
	uint8_t *first_keys = malloc(key_bytes), *value = malloc(value_bytes);
	cr_assert(first_keys && value);
	memcpy(first_keys, t->k + kv_bytes(t->kv.k_type, element(t, 0, 0)), key_bytes);
	memcpy(value, t->v + kv_bytes(t->kv.v_type, element(t, last, 0)), value_bytes);
	plan_kv_shift(&plan, &t->kv, &t->shape, &t->rope, LENGTH);
	cr_assert_eq(t->b->ops->prepare(t->b, &plan, false, &r, &err), LAP_OK, "%s", err.text);
	for (uint32_t pos = last - DISTANCE; pos + DISTANCE > end; pos -= DISTANCE) {
		*t->header = (struct step_header){.n_rows = N_ROWS, .n_kv = N_CTX};
		for (uint32_t i = 0; i < N_ROWS; i++)
			t->rows[i] = (struct shift_row){.pos = pos + i, .distance = DISTANCE};
		run_plan(t->b, r);
	}
	for (uint32_t i = 0; i < N_ROWS; i++) {
		struct loss one = loss_of(t, end + i, last + i);
		loss.largest = fmax(loss.largest, one.largest);
		loss.errors += one.errors;
		loss.squares += one.squares;
	}
	/* Values move as they are; what no row names stays. */
	cr_expect_eq(
		memcmp(value, t->v + kv_bytes(t->kv.v_type, element(t, end, 0)), value_bytes), 0);
	cr_expect_eq(
		memcmp(first_keys, t->k + kv_bytes(t->kv.k_type, element(t, 0, 0)), key_bytes), 0);
	t->b->ops->release(t->b, r);
	plan_free(&plan);
	free(first_keys);
	free(value);
	shift_destroy(t);
	return loss;
}

static const uint32_t n_shifts[] = {1, 10, 50};

static void shift_all(struct backend *b)
{
	/* Largest error of an element; keys are below 1. */
	static const struct {
		uint32_t dim, n_rot;
		bool neox;
		enum kv_type type;
		double limits[3];
	} exact[] = {
		{64, 64, true, KV_F32, {1e-5, 1e-5, 1e-5}},
		{80, 20, false, KV_F32, {1e-5, 1e-5, 1e-5}},
		{64, 64, false, KV_F16, {2e-3, 4e-3, 6e-3}},
		{80, 80, true, KV_F16, {2e-3, 4e-3, 6e-3}},
	};
	/* Root mean square of the error over that of the keys. */
	static const struct {
		enum kv_type type;
		double limits[3];
	} rounded[] = {
		{KV_Q8_0, {0.0075, 0.02, 0.05}},
		{KV_Q4_0, {0.11, 0.3, 1.2}},
	};
	for (size_t i = 0; i < ARRAY_COUNT(exact); i++)
		for (size_t j = 0; j < ARRAY_COUNT(n_shifts); j++) {
			struct shift_case t = {.b = b,
				.dim = exact[i].dim,
				.n_rot = exact[i].n_rot,
				.neox = exact[i].neox};
			t.kv = (struct kv_layer){.k_type = exact[i].type, .v_type = KV_F16};
			double error = shifted(&t, n_shifts[j]).largest;
			cr_expect_leq(error, exact[i].limits[j], "case %zu, %u shifts: %g", i,
				n_shifts[j], error);
		}
	for (size_t i = 0; i < ARRAY_COUNT(rounded); i++)
		for (size_t j = 0; j < ARRAY_COUNT(n_shifts); j++) {
			struct shift_case t = {.b = b, .dim = 64, .n_rot = 64, .neox = j % 2};
			t.kv = (struct kv_layer){
				.k_type = rounded[i].type, .v_type = rounded[i].type};
			struct loss loss = shifted(&t, n_shifts[j]);
			double error = sqrt(loss.errors / loss.squares);
			cr_expect_leq(error, rounded[i].limits[j], "case %zu, %u shifts: %g", i,
				n_shifts[j], error);
		}
}

/* Whole blocks, of one kind of layers or the other; whatever their type. */
static void copy_blocks(
	struct backend *b, bool has_window, enum kv_type k_type, enum kv_type v_type)
{
	struct shift_case t = {.b = b, .dim = 64, .n_rot = 64};
	struct lap_error err;
	struct runnable *r;
	t.kv = (struct kv_layer){.k_type = k_type, .v_type = v_type};
	shift_create(&t);
	struct plan plan = {.role = ROLE_PREFILL,
		.max_rows = N_ROWS,
		.layer = -1,
		.step = t.step,
		.sizes = t.sizes};
	const struct copy_row rows[] = {
		{.from = 0, .to = 5, .from_window = 1, .to_window = 6},
		{.from = 0, .to = 9, .from_window = 3, .to_window = 2},
	};
	uint8_t *caches[] = {t.k, t.v};
	const enum kv_type types[] = {k_type, v_type};
	size_t n_bytes[2];
	uint8_t *expected[2];
	for (int c = 0; c < 2; c++) {
		size_t n = n_bytes[c] = (size_t)kv_bytes(types[c], KV_BLOCK * HEADS * t.dim);
		expected[c] = malloc(N_BLOCKS * n);
		cr_assert(expected[c]);
		memcpy(expected[c], caches[c], N_BLOCKS * n);
		for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
			memcpy(expected[c] + (has_window ? rows[i].to_window : rows[i].to) * n,
				caches[c] + (has_window ? rows[i].from_window : rows[i].from) * n,
				n);
	}
	plan_kv_copy(&plan, &t.kv, &t.shape, has_window);
	cr_assert_eq(b->ops->prepare(b, &plan, false, &r, &err), LAP_OK, "%s", err.text);
	*t.header = (struct step_header){.n_rows = ARRAY_COUNT(rows)};
	memcpy(t.rows, rows, sizeof rows);
	run_plan(b, r);
	for (int c = 0; c < 2; c++) {
		cr_expect(
			memcmp(caches[c], expected[c], N_BLOCKS * n_bytes[c]) == 0, "cache %d", c);
		free(expected[c]);
	}
	b->ops->release(b, r);
	plan_free(&plan);
	shift_destroy(&t);
}

static void copy_all(struct backend *b)
{
	for (int has_window = 0; has_window < 2; has_window++) {
		copy_blocks(b, has_window, KV_F16, KV_F32);
		copy_blocks(b, has_window, KV_Q8_0, KV_Q4_0);
	}
}

Test(vk_shift, keys_turn_back_and_blocks_are_copied_on_the_cpu)
{
	struct backend *b;
	struct lap_error err;
	cr_assert_eq(cpu_open(&b, &err), LAP_OK, "%s", err.text);
	shift_all(b);
	copy_all(b);
	b->ops->close(b);
}

Test(vk_shift, keys_turn_back_and_blocks_are_copied)
{
	struct backend *b;
	struct lap_error err;
	cr_assert_eq(vk_open(&(struct vk_options){0}, &b, &err), LAP_OK, "%s", err.text);
	shift_all(b);
	copy_all(b);
	b->ops->close(b);
}
