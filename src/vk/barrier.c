/* The barrier planner and the group fold: see barrier.h. */
#include "barrier.h"

#include <assert.h>
#include <stdlib.h>

#include "alloc.h"

struct access {
	const struct buffer *buffer;
	uint64_t begin, end;
	bool written;
};

static bool conflicts(const struct access *a, const struct access *b)
{
	return (a->written || b->written) && a->buffer == b->buffer && a->begin < b->end &&
		b->begin < a->end;
}

static struct access access_of(const struct view *view, bool written)
{
	return (struct access){view->buffer, view->offset, view->offset + view->n_bytes, written};
}

#define MAX_ACCESSES (MAX_BUFFERS + 1) /* of one op: its buffers and the dispatch sizes */

static uint32_t op_accesses(const struct plan *plan, const struct op *op, struct access *out)
{
	const struct kernel_info *info = kernel_info(op->kernel);
	uint32_t n = 0;
	for (uint32_t i = 0; i < info->n_buffers; i++)
		if (op->buffers[i].buffer)
			out[n++] = access_of(&op->buffers[i], i < info->n_written);
	if (plan->sizes.buffer)
		out[n++] = access_of(&plan->sizes, false);
	return n;
}

enum lap_status barriers_plan(const struct plan *plan, bool *before, struct lap_error *err)
{
	struct access *since = vk_alloc((uint64_t)plan->n_ops * MAX_ACCESSES, sizeof *since);
	if (!since)
		return fail_memory(err, "the barrier planner", plan->n_ops);
	uint32_t n_since = 0;
	for (uint32_t i = 0; i < plan->n_ops; i++) {
		struct access own[MAX_ACCESSES];
		uint32_t n_own = op_accesses(plan, &plan->ops[i], own);
		before[i] = i == 0;
		for (uint32_t a = 0; a < n_own && !before[i]; a++)
			for (uint32_t b = 0; b < n_since && !before[i]; b++)
				before[i] = conflicts(&own[a], &since[b]);
		if (before[i])
			n_since = 0;
		for (uint32_t a = 0; a < n_own; a++)
			since[n_since++] = own[a];
	}
	free(since);
	return LAP_OK;
}

bool groups_fold(uint32_t n_outputs, uint32_t per_group, uint32_t *groups_x, uint32_t *groups_y)
{
	assert(n_outputs > 0 && per_group > 0);
	uint64_t n = ((uint64_t)n_outputs + per_group - 1) / per_group;
	uint64_t y = (n + MAX_GROUPS - 1) / MAX_GROUPS;
	if (y > MAX_GROUPS)
		return false;
	*groups_x = (uint32_t)((n + y - 1) / y);
	*groups_y = (uint32_t)y;
	return true;
}
