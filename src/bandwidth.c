/* Memory bandwidth: see bandwidth.h. */
#include "bandwidth.h"

#include <stdlib.h>
#include <string.h>

#include "plan.h"

enum {
	N_COLS = 4096,
	ROW_BYTES = N_COLS * 4,
	N_ROWS = 16384,          /* of 16 KiB each: 256 MiB */
	N_ROWS_REFERENCE = 4096, /* which is slow, and its memory is not what holds it up */
	MAX_CHUNKS = 64,
	N_RUNS = 5,
	MAX_TIMES = 64,       /* of one submit */
	PIECE_BYTES = 1 << 20 /* written at once */
};
static const double submit_seconds = 0.03; /* about, of one submit */

struct reading {
	struct backend *b;
	uint32_t n_rows; /* of the matrix */
	struct lap_error *err;
	enum lap_status status; /* of the first thing that went wrong */
	struct buffer *buffers[MAX_CHUNKS + 4];
	uint32_t n_buffers;
	struct plan plan;
	struct runnable *runnable;
};

static struct view create(struct reading *r, uint64_t n_bytes, enum memory memory)
{
	struct view view = {.n_bytes = n_bytes};
	if (r->status)
		return view;
	r->status = r->b->ops->buffer_create(
		r->b, n_bytes, memory, "a matrix to measure with", &view.buffer, r->err);
	if (!r->status)
		r->buffers[r->n_buffers++] = view.buffer;
	return view;
}

/* Numbers in every page: memory that was never written may be no memory at all. */
static void fill(struct reading *r, struct view view)
{
	float *piece = r->status ? NULL : malloc(PIECE_BYTES);
	if (!piece) {
		r->status = r->status ? r->status : fail_memory(r->err, "a matrix", PIECE_BYTES);
		return;
	}
	for (uint32_t i = 0; i < PIECE_BYTES / sizeof(float); i++)
		piece[i] = (float)(i % 251) * 0x1p-8f;
	for (uint64_t at = 0; at < view.n_bytes && !r->status; at += PIECE_BYTES) {
		struct view to = view;
		to.offset = at;
		to.n_bytes = view.n_bytes - at < PIECE_BYTES ? view.n_bytes - at : PIECE_BYTES;
		r->status = r->b->ops->write(r->b, to, piece, to.n_bytes, r->err);
	}
	free(piece);
}

static struct rows create_rows(struct reading *r, uint32_t n)
{
	struct rows rows = {.n = n, .stride = ROW_STRIDE(n)};
	rows.view = create(r, (uint64_t)rows.stride * sizeof(float), MEMORY_DEVICE);
	return rows;
}

/* The plan of one product, recorded. */
static void prepare(struct reading *r)
{
	/* Whole ROW_ALIGNs, so that each chunk's outputs begin where they may be bound. */
	const uint64_t most =
		(r->b->max_buffer_bytes - WEIGHT_PAD) / ROW_BYTES / ROW_ALIGN * ROW_ALIGN;
	struct view chunks[MAX_CHUNKS];
	struct weights w = {.name = "matrix",
		.weight = WEIGHT_f32,
		.n_rows = r->n_rows,
		.n_cols = N_COLS,
		.rows_per_chunk = most < r->n_rows ? (uint32_t)most : r->n_rows,
		.chunks = chunks};
	if (most == 0 || w.rows_per_chunk * (uint64_t)MAX_CHUNKS < r->n_rows) {
		r->status = fail(r->err, LAP_NO_DEVICE,
			"%s binds %llu bytes at once, too few to measure with", r->b->name,
			(unsigned long long)r->b->max_buffer_bytes);
		return;
	}
	for (uint32_t first = 0; first < r->n_rows; first += w.rows_per_chunk) {
		const uint32_t left = r->n_rows - first;
		const uint64_t n = left < w.rows_per_chunk ? left : w.rows_per_chunk;
		chunks[w.n_chunks] = create(r, n * ROW_BYTES + WEIGHT_PAD, MEMORY_DEVICE);
		fill(r, chunks[w.n_chunks++]);
	}
	const struct rows x = create_rows(r, N_COLS), out = create_rows(r, r->n_rows);
	const struct step_header header = {.n_rows = 1, .n_kv = 1};
	r->plan = (struct plan){.role = ROLE_DECODE, .max_rows = 1, .layer = -1};
	r->plan.step =
		create(r, sizeof(struct step_header) + sizeof(struct step_row), MEMORY_SHARED);
	r->plan.sizes = create(r, MAX_SIZES * sizeof(struct dispatch_size), MEMORY_SHARED);
	fill(r, x.view);
	if (!r->status)
		r->status =
			r->b->ops->write(r->b, (struct view){r->plan.step.buffer, 0, sizeof header},
				&header, sizeof header, r->err);
	if (r->status)
		return;
	plan_matmul(&r->plan, out, &w, x, (struct epilogue){.bias = NULL});
	r->status = r->plan.out_of_memory
		? fail_memory(r->err, "a plan", sizeof(struct op))
		: r->b->ops->prepare(r->b, &r->plan, false, &r->runnable, r->err);
}

/* Seconds of the matrix once, in one submit of n_times. */
static double run(struct reading *r, uint32_t n_times)
{
	uint64_t ticket;
	if (r->status)
		return 0;
	r->b->ops->begin(r->runnable);
	const double start = clock_seconds();
	r->status = r->b->ops->run(r->b, r->runnable, n_times, &ticket, r->err);
	if (!r->status)
		r->status = r->b->ops->wait(r->b, ticket, r->err);
	return (clock_seconds() - start) / n_times;
}

enum lap_status bandwidth_measure(
	struct backend *b, struct bandwidth *result, struct lap_error *err)
{
	struct reading r = {.b = b, .n_rows = b->device ? N_ROWS : N_ROWS_REFERENCE, .err = err};
	*result = (struct bandwidth){.n_bytes = (uint64_t)r.n_rows * ROW_BYTES};
	prepare(&r);
	run(&r, 1); /* which may compile, or wake the device */
	double best = run(&r, 1);
	const double times = best > 0 ? submit_seconds / best : MAX_TIMES;
	for (uint32_t i = 0; i < N_RUNS && !r.status; i++) {
		double seconds = run(&r,
			times > MAX_TIMES   ? MAX_TIMES
				: times < 1 ? 1
					    : (uint32_t)times);
		best = seconds < best ? seconds : best;
	}
	if (!r.status && best > 0)
		result->bytes_per_second = (double)result->n_bytes / best;
	b->ops->release(b, r.runnable);
	for (uint32_t i = 0; i < r.n_buffers; i++)
		b->ops->buffer_destroy(b, r.buffers[i]);
	plan_free(&r.plan);
	return r.status;
}
