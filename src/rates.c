/* Rates of memory and arithmetic: see rates.h. */
#include "rates.h"

#include <stdlib.h>

#include "plan_time.h"

enum {
	N_BYTES = 256 << 20,
	N_BYTES_SHORT = 64 << 20,     /* of CPUs, where filling takes longer than reading */
	N_BYTES_REFERENCE = 64 << 20, /* which is slow, and its memory is not what holds it up */
	N_LANES = 1 << 18,            /* of fma_rate: enough for every unit of a large device */
	N_TURNS = 32,
	N_LANES_REFERENCE = 1 << 12,
	MAX_CHUNKS = 64,
	PIECE_BYTES = 1 << 20 /* written at once */
};
#define BUDGET       0.25 /* seconds for each of the two */
#define SHORT_BUDGET 0.1  /* where somebody waits for one */

struct meter {
	struct backend *b;
	struct lap_error *err;
	enum lap_status status; /* of the first thing that went wrong */
	struct buffer *buffers[2 * MAX_CHUNKS + 4];
	uint32_t n_buffers;
	struct view step, sizes;
	double budget;
};

static struct view create(struct meter *m, uint64_t n_bytes, enum memory memory)
{
	struct view view = {.n_bytes = n_bytes};
	if (m->status)
		return view;
	m->status = m->b->ops->buffer_create(
		m->b, n_bytes, memory, "memory to measure with", &view.buffer, m->err);
	if (!m->status)
		m->buffers[m->n_buffers++] = view.buffer;
	return view;
}

/* Numbers in every page: memory that was never written may be no memory at all. */
static void fill(struct meter *m, struct view view)
{
	uint32_t *piece = m->status ? NULL : malloc(PIECE_BYTES);
	if (!piece) {
		m->status = m->status ? m->status : fail_memory(m->err, "a piece", PIECE_BYTES);
		return;
	}
	for (uint32_t i = 0; i < PIECE_BYTES / sizeof *piece; i++)
		piece[i] = i * 2654435761u;
	for (uint64_t at = 0; at < view.n_bytes && !m->status; at += PIECE_BYTES) {
		struct view to = view;
		to.offset = at;
		to.n_bytes = view.n_bytes - at < PIECE_BYTES ? view.n_bytes - at : PIECE_BYTES;
		m->status = m->b->ops->write(m->b, to, piece, to.n_bytes, m->err);
	}
	free(piece);
}

/* Seconds of the plan, which is freed. */
static double fastest(struct meter *m, struct plan *p)
{
	double seconds = 0;
	if (!m->status)
		m->status = plan_time(m->b, p, m->budget, &seconds, m->err);
	plan_free(p);
	return seconds;
}

static struct plan new_plan(const struct meter *m)
{
	return (struct plan){.role = ROLE_DECODE,
		.max_rows = 1,
		.layer = -1,
		.step = m->step,
		.sizes = m->sizes};
}

static double read_seconds(struct meter *m, uint64_t n_bytes)
{
	const uint64_t limit = m->b->max_buffer_bytes, most = limit < n_bytes ? limit : n_bytes;
	struct plan p = new_plan(m);
	if (most * MAX_CHUNKS < n_bytes) {
		m->status = fail(m->err, LAP_NO_DEVICE,
			"%s binds %llu bytes at once, too few to measure with", m->b->name,
			(unsigned long long)limit);
		return 0;
	}
	for (uint64_t at = 0; at < n_bytes && !m->status; at += most) {
		const uint64_t n = n_bytes - at < most ? n_bytes - at : most;
		struct view data = create(m, n, MEMORY_DEVICE);
		struct view out = create(m, read_rate_bytes(n), MEMORY_DEVICE);
		fill(m, data);
		if (!m->status)
			plan_read_rate(&p, out, data);
	}
	return fastest(m, &p);
}

static double fma_seconds(struct meter *m, uint32_t n_lanes)
{
	struct plan p = new_plan(m);
	struct view out = create(m, (uint64_t)n_lanes * sizeof(float), MEMORY_DEVICE);
	if (!m->status)
		plan_fma_rate(&p, out, n_lanes, N_TURNS);
	return fastest(m, &p);
}

static struct meter meter_begin(struct backend *b, double budget, struct lap_error *err)
{
	const struct step_header header = {.n_rows = 1, .n_kv = 1};
	struct meter m = {.b = b, .budget = budget, .err = err};
	m.step = create(&m, sizeof(struct step_header) + sizeof(struct step_row), MEMORY_SHARED);
	m.sizes = create(&m, MAX_SIZES * sizeof(struct dispatch_size), MEMORY_SHARED);
	if (!m.status)
		m.status = b->ops->write(b, (struct view){m.step.buffer, 0, sizeof header}, &header,
			sizeof header, err);
	return m;
}

static enum lap_status meter_end(struct meter *m)
{
	for (uint32_t i = 0; i < m->n_buffers; i++)
		m->b->ops->buffer_destroy(m->b, m->buffers[i]);
	return m->status;
}

/* For those who ask next; that it cannot be written down costs them the time again. */
static void keep(struct backend *b, double bytes_per_second)
{
	if (!b->tuning || !(bytes_per_second > 0))
		return;
	pthread_mutex_lock(&b->tuning->lock);
	b->tuning->bytes_per_second = bytes_per_second;
	pthread_mutex_unlock(&b->tuning->lock);
	b->ops->tuning_save(b, NULL);
}

enum lap_status rates_reading(struct backend *b, double *bytes_per_second, struct lap_error *err)
{
	*bytes_per_second = 0;
	if (b->tuning) {
		pthread_mutex_lock(&b->tuning->lock);
		*bytes_per_second = b->tuning->bytes_per_second;
		pthread_mutex_unlock(&b->tuning->lock);
	}
	if (*bytes_per_second > 0)
		return LAP_OK;
	const bool is_gpu = b->device && b->device->type != LAP_DEVICE_CPU;
	const uint64_t n_bytes = is_gpu ? N_BYTES : N_BYTES_SHORT;
	struct meter m = meter_begin(b, SHORT_BUDGET, err);
	const double reading = m.status ? 0 : read_seconds(&m, n_bytes);
	if (reading > 0)
		*bytes_per_second = (double)n_bytes / reading;
	keep(b, *bytes_per_second);
	return meter_end(&m);
}

enum lap_status rates_measure(struct backend *b, struct rates *rates, struct lap_error *err)
{
	const uint32_t n_lanes = b->device ? N_LANES : N_LANES_REFERENCE;
	struct meter m = meter_begin(b, BUDGET, err);
	*rates = (struct rates){.n_bytes = b->device ? N_BYTES : N_BYTES_REFERENCE};
	double reading = m.status ? 0 : read_seconds(&m, rates->n_bytes);
	double computing = m.status ? 0 : fma_seconds(&m, n_lanes);
	if (reading > 0)
		rates->bytes_per_second = (double)rates->n_bytes / reading;
	if (computing > 0)
		rates->flops_per_second =
			2.0 * FMA_CHAINS * FMA_STEPS * N_TURNS * n_lanes / computing;
	keep(b, rates->bytes_per_second);
	return meter_end(&m);
}
