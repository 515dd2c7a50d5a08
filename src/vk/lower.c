/* Ops to dispatches: see lower.h. */
#include "lower.h"

#include <string.h>

#include "alloc.h"
#include "pipeline.h"

enum lap_status plan_lower(
	const struct vk *v, const struct plan *plan, struct plan *out, struct lap_error *err)
{
	const uint32_t capacity = 2 * plan->n_ops;
	*out = *plan;
	out->n_ops = 0;
	out->capacity = capacity;
	out->ops = vk_alloc(capacity, sizeof *out->ops);
	if (!out->ops)
		return fail_memory(err, "recording a plan", capacity * sizeof *out->ops);
	for (uint32_t i = 0; i < plan->n_ops; i++) {
		const struct op *op = &plan->ops[i];
		const struct pipeline_key key = pipeline_key(v, op);
		if (key.split == 1 || op_is_half(op)) {
			out->ops[out->n_ops++] = *op;
			continue;
		}
		struct op *two = &out->ops[out->n_ops];
		op_split(op, key.split, key.outputs_per_group, two);
		/* Of another size, it would be another class of ops to the tuning. */
		memcpy(two->knobs, key.knobs, sizeof two->knobs);
		out->n_ops += 2;
	}
	return LAP_OK;
}

bool op_is_half(const struct op *op)
{
	return op->parts.n_bytes && op->buffers[0].buffer == op->parts.buffer &&
		op->buffers[0].offset == op->parts.offset;
}
