/* A plan as the device's dispatches: an op is one, but for a matmul whose parts several workgroups share, which is
 * two.
 *
 * A second dispatch, not the workgroup that is done last: that one would have to see what the others wrote, and
 * not all drivers keep such an order within a dispatch. */
#ifndef LAPILLI_VK_LOWER_H
#define LAPILLI_VK_LOWER_H

#include "vk.h"

/* *out: the plan with an op for each dispatch, its list the caller's to free. */
enum lap_status plan_lower(
	const struct vk *v, const struct plan *plan, struct plan *out, struct lap_error *err);

/* Whether this is the first of two dispatches: it writes where only its parts go. */
bool op_is_half(const struct op *op);

#endif
