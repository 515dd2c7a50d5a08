/* The CPU reference as a backend: buffers are host memory, a run walks the plan.
 *
 * Slow on purpose: it is the judge of the shaders, and a way to run where no Vulkan is. */
#include "backend.h"
#include "kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct buffer {
	uint8_t *data;
	uint64_t n_bytes;
	bool imported; /* the bytes belong to the caller, read-only */
};

struct runnable {
	struct plan plan; /* with a copy of the ops */
	double *seconds;  /* [n_ops]; NULL without profile */
};

struct cpu_backend {
	struct backend base;
	_Atomic uint64_t n_runs; /* of all sessions, which may be in several threads */
};

void *cpu_pointer(const struct view *v)
{
	assert(v->offset + v->n_bytes <= v->buffer->n_bytes);
	return v->buffer->data + v->offset;
}

static void cpu_close(struct backend *b)
{
	free(b);
}

static enum lap_status cpu_buffer_create(struct backend *b, uint64_t n_bytes, enum memory memory,
	const char *label, struct buffer **buffer, struct lap_error *err)
{
	(void)memory;
	struct buffer *made = malloc(sizeof *made);
	uint8_t *data = array_alloc(n_bytes, 1);
	if (!made || !data) {
		free(made);
		free(data);
		*buffer = NULL;
		return fail_memory(err, label, n_bytes);
	}
	*made = (struct buffer){data, n_bytes, false};
	b->device_bytes += n_bytes;
	*buffer = made;
	return LAP_OK;
}

/* What the machine has; 0 where the system does not say. */
static uint64_t cpu_available(struct backend *b)
{
	(void)b;
	long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
	return n_pages > 0 && page_bytes > 0 ? (uint64_t)n_pages * (uint64_t)page_bytes : 0;
}

static struct buffer *cpu_buffer_import(struct backend *b, const void *bytes, uint64_t n_bytes)
{
	(void)b;
	struct buffer *made = malloc(sizeof *made);
	if (made)
		*made = (struct buffer){(uint8_t *)(uintptr_t)bytes, n_bytes, true};
	return made;
}

static void cpu_buffer_destroy(struct backend *b, struct buffer *buffer)
{
	if (!buffer)
		return;
	if (!buffer->imported) {
		b->device_bytes -= buffer->n_bytes;
		free(buffer->data);
	}
	free(buffer);
}

static void *cpu_buffer_map(struct buffer *buffer)
{
	return buffer->data;
}

static enum lap_status cpu_write(struct backend *b, struct view to, const void *bytes,
	uint64_t n_bytes, struct lap_error *err)
{
	(void)b, (void)err;
	assert(n_bytes <= to.n_bytes && !to.buffer->imported);
	memcpy(cpu_pointer(&to), bytes, n_bytes);
	return LAP_OK;
}

static enum lap_status cpu_read(
	struct backend *b, struct view from, void *bytes, uint64_t n_bytes, struct lap_error *err)
{
	(void)b, (void)err;
	assert(n_bytes <= from.n_bytes);
	memcpy(bytes, cpu_pointer(&from), n_bytes);
	return LAP_OK;
}

static void cpu_release(struct backend *b, struct runnable *r)
{
	(void)b;
	if (!r)
		return;
	plan_free(&r->plan);
	free(r->seconds);
	free(r);
}

static enum lap_status cpu_prepare(struct backend *b, const struct plan *plan, bool profile,
	struct runnable **runnable, struct lap_error *err)
{
	*runnable = NULL;
	uint64_t n_bytes = plan->n_ops * sizeof *plan->ops;
	struct runnable *r = calloc(1, sizeof *r);
	struct op *ops = malloc(n_bytes ? n_bytes : 1);
	double *seconds = profile ? array_alloc(plan->n_ops, sizeof *seconds) : NULL;
	if (!r || !ops || (profile && !seconds)) {
		free(r);
		free(ops);
		free(seconds);
		return fail_memory(err, "a plan", n_bytes);
	}
	memcpy(ops, plan->ops, n_bytes);
	*r = (struct runnable){.plan = *plan, .seconds = seconds};
	r->plan.ops = ops;
	/* One entry says "rows" so that control has a table to rewrite, as on a device. */
	struct dispatch_size *sizes = cpu_buffer_map(plan->sizes.buffer);
	sizes[0] = (struct dispatch_size){
		.rule = SIZE_ROWS, .groups_x = 1, .groups_y = 1, .divisor = 1, .factor = 1};
	*runnable = r;
	(void)b;
	return LAP_OK;
}

static void cpu_begin(struct runnable *r)
{
	sizes_update(cpu_pointer(&r->plan.sizes), MAX_SIZES, cpu_pointer(&r->plan.step));
}

static enum lap_status cpu_run(struct backend *b, struct runnable *r, uint32_t n_times,
	uint64_t *ticket, struct lap_error *err)
{
	(void)err;
	const struct step_header *step = cpu_pointer(&r->plan.step);
	for (uint32_t i = 0; i < n_times && !step->done; i++)
		for (uint32_t iop = 0; iop < r->plan.n_ops; iop++) {
			const struct op *op = &r->plan.ops[iop];
			double start = r->seconds ? clock_seconds() : 0;
			cpu_kernels[op->kernel](op, step);
			if (r->seconds)
				r->seconds[iop] = clock_seconds() - start;
		}
	*ticket = ++((struct cpu_backend *)b)->n_runs;
	return LAP_OK;
}

static enum lap_status cpu_wait(struct backend *b, uint64_t ticket, struct lap_error *err)
{
	(void)b, (void)ticket, (void)err;
	return LAP_OK;
}

static enum lap_status cpu_times(
	struct backend *b, struct runnable *r, double *seconds, struct lap_error *err)
{
	(void)b, (void)err;
	assert(r->seconds);
	memcpy(seconds, r->seconds, r->plan.n_ops * sizeof *seconds);
	return LAP_OK;
}

enum lap_status cpu_open(struct backend **backend, struct lap_error *err)
{
	static const struct backend_ops ops = {
		.close = cpu_close,
		.buffer_create = cpu_buffer_create,
		.available = cpu_available,
		.buffer_import = cpu_buffer_import,
		.buffer_destroy = cpu_buffer_destroy,
		.buffer_map = cpu_buffer_map,
		.write = cpu_write,
		.read = cpu_read,
		.prepare = cpu_prepare,
		.release = cpu_release,
		.begin = cpu_begin,
		.run = cpu_run,
		.wait = cpu_wait,
		.times = cpu_times,
	};
	struct cpu_backend *b = calloc(1, sizeof *b);
	*backend = NULL;
	if (!b)
		return fail_memory(err, "the CPU backend", sizeof *b);
	b->base = (struct backend){.ops = &ops, .name = "cpu", .max_buffer_bytes = UINT32_MAX};
	*backend = &b->base;
	return LAP_OK;
}
