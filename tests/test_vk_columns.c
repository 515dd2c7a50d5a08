/* A product of several rows of x with matvec has the same bits as each row alone, whatever their number and
 * neighbours: what a batch generates is what each of its sequences generates alone. */
#include "check_side.h"
#include "op_case.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>

#define MOST_ROWS 32

static struct rows shared_rows(struct backend *b, uint32_t n_rows, uint32_t n, float **floats)
{
	struct rows rows = {.n = n, .stride = ROW_STRIDE(n)};
	rows.view = shared(b, (uint64_t)n_rows * rows.stride * sizeof(float), floats);
	return rows;
}

struct columns_case {
	struct backend *b;
	struct weights w;
	struct view chunk, step, sizes, q8; /* q8: x is multiplied in 8 bits; n_bytes 0: not */
	struct rows x, out, alone;
	float *x_floats, *out_floats, *alone_floats;
	struct step_header *header;
};

static void columns_create(struct columns_case *t, struct backend *b, enum weight weight,
	uint32_t n_out, uint32_t n_in, bool q8)
{
	struct side random = {.random = 1000 * n_out + n_in};
	struct dispatch_size *sizes;
	uint8_t *weights, *words;
	uint64_t row_bytes = 0;
	cr_assert(weight_row_bytes(weight, n_in, &row_bytes));
	*t = (struct columns_case){.b = b};
	t->chunk = shared(b, n_out * row_bytes + WEIGHT_PAD, &weights);
	t->step = shared(
		b, sizeof(struct step_header) + MOST_ROWS * sizeof(struct step_row), &t->header);
	t->sizes = shared(b, MAX_SIZES * sizeof *sizes, &sizes);
	t->x = shared_rows(b, MOST_ROWS, n_in, &t->x_floats);
	if (q8)
		t->q8 = shared(b, quantized_bytes(n_in, MOST_ROWS), &words);
	t->out = shared_rows(b, MOST_ROWS, n_out, &t->out_floats);
	t->alone = shared_rows(b, MOST_ROWS, n_out, &t->alone_floats);
	random_blocks(&random, weight, weights, n_out * row_bytes);
	memset(weights + n_out * row_bytes, 0xFF, WEIGHT_PAD);
	memset(sizes, 0, MAX_SIZES * sizeof *sizes);
	memset(t->x_floats, 0, t->x.view.n_bytes);
	for (uint32_t row = 0; row < MOST_ROWS; row++)
		for (uint32_t i = 0; i < n_in; i++)
			t->x_floats[row * t->x.stride + i] = side_random_float(&random, 1);
	t->w = (struct weights){.name = "weights",
		.weight = weight,
		.n_rows = n_out,
		.n_cols = n_in,
		.rows_per_chunk = n_out,
		.n_chunks = 1,
		.chunks = &t->chunk};
}

static void columns_destroy(struct columns_case *t)
{
	struct view all[] = {
		t->chunk, t->step, t->sizes, t->q8, t->x.view, t->out.view, t->alone.view};
	for (size_t i = 0; i < ARRAY_COUNT(all); i++)
		t->b->ops->buffer_destroy(t->b, all[i].buffer);
}

static struct rows rows_from(struct rows x, uint32_t first)
{
	uint64_t n_bytes = (uint64_t)first * x.stride * sizeof(float);
	x.view.offset += n_bytes;
	x.view.n_bytes -= n_bytes;
	return x;
}

/* Rows first .. first + n_rows - 1 in a step that has room for `room`. */
static void columns_run(
	struct columns_case *t, struct rows out, uint32_t first, uint32_t n_rows, uint32_t room)
{
	struct lap_error err;
	struct runnable *r;
	struct plan plan = {.role = ROLE_DECODE,
		.max_rows = room,
		.layer = -1,
		.step = t->step,
		.sizes = t->sizes,
		.q8 = t->q8};
	plan_matmul(
		&plan, rows_from(out, first), &t->w, rows_from(t->x, first), (struct epilogue){0});
	cr_assert_eq(t->b->ops->prepare(t->b, &plan, false, &r, &err), LAP_OK, "%s", err.text);
	*t->header = (struct step_header){.n_rows = n_rows, .n_kv = 1};
	run_plan(t->b, r);
	t->b->ops->release(t->b, r);
	plan_free(&plan);
}

static void expect_rows_alone(const struct columns_case *t, uint32_t first, uint32_t n_rows)
{
	for (uint32_t row = first; row < first + n_rows; row++)
		for (uint32_t i = 0; i < t->out.n; i++) {
			size_t at = (size_t)row * t->out.stride + i;
			cr_expect(isfinite(t->out_floats[at]) &&
					memcmp(&t->out_floats[at], &t->alone_floats[at],
						sizeof(float)) == 0,
				"%s, %u outputs, %u rows: row %u output %u is %a, alone %a",
				weight_format(t->w.weight)->name, t->out.n, n_rows, row, i,
				(double)t->out_floats[at], (double)t->alone_floats[at]);
		}
}

static void columns_compare(struct backend *b, enum weight weight, uint32_t n_out, uint32_t n_in,
	bool q8, const uint32_t *n_rows, size_t n)
{
	struct columns_case t;
	columns_create(&t, b, weight, n_out, n_in, q8);
	uint64_t stride_bytes = (uint64_t)t.x.stride * sizeof(float);
	float *kept = malloc(stride_bytes);
	cr_assert(kept);
	for (uint32_t row = 0; row < MOST_ROWS; row++)
		columns_run(&t, t.alone, row, 1, 1);
	for (size_t i = 0; i < n; i++) {
		memset(t.out_floats, 0xFF, t.out.view.n_bytes);
		columns_run(&t, t.out, 0, n_rows[i], n_rows[i]);
		expect_rows_alone(&t, 0, n_rows[i]);
		if (n_rows[i] == 1)
			continue;
		/* Another place in the workgroup, and a row of the room that was never filled. */
		uint32_t last = n_rows[i] < MOST_ROWS ? n_rows[i] : MOST_ROWS - 1;
		float *row = t.x_floats + last * (size_t)t.x.stride;
		memcpy(kept, row, stride_bytes);
		memset(row, 0xFF, stride_bytes);
		memset(t.out_floats, 0xFF, t.out.view.n_bytes);
		columns_run(&t, t.out, 1, last - 1, last);
		memcpy(row, kept, stride_bytes);
		expect_rows_alone(&t, 1, last - 1);
	}
	free(kept);
	columns_destroy(&t);
}

/* Formats that differ in how their blocks are read; each number of rows is a pipeline of its own. */
static bool is_typical(enum weight weight)
{
	return weight == WEIGHT_f32 || weight == WEIGHT_f16 || weight == WEIGHT_q4_0 ||
		weight == WEIGHT_q8_0 || weight == WEIGHT_q4_k || weight == WEIGHT_q6_k;
}

static void compare_all(const struct vk_options *options, bool few)
{
	static const uint32_t rows[] = {8, 1, 9, 3, 2, 4, 5, 6, 7, 17, 32};
	struct backend *vk;
	struct lap_error err;
	cr_assert_eq(vk_open(options, &vk, &err), LAP_OK, "%s", err.text);
	for (int i = 0; i < N_WEIGHTS; i++) {
		enum weight weight = (enum weight)i;
		if (few && !is_typical(weight))
			continue;
		size_t n = few || !is_typical(weight) ? 4 : ARRAY_COUNT(rows);
		columns_compare(vk, weight, 16, 256, false, rows, n);
		columns_compare(vk, weight, 37, 256, false, rows, 4);
		if (!few)
			columns_compare(vk, weight, 512, 256, false, rows, n);
		if (weight_format(weight)->block_weights == 1)
			columns_compare(vk, weight, 35, 45, false, rows, n);
		if (weight_format(weight)->integers && is_typical(weight))
			columns_compare(vk, weight, 37, 256, true, rows, 4);
	}
	vk->ops->close(vk);
}

Test(vk_columns, rows_of_a_matvec_are_independent)
{
	compare_all(&(struct vk_options){0}, test_small());
}

Test(vk_columns, rows_are_independent_without_subgroups)
{
	compare_all(&(struct vk_options){.no_subgroup = true}, true);
}
