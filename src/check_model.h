/* Checks a model's own plans: a prompt runs op by op on a backend and on the CPU reference, each op from
 * the same operands, so that the first op that differs can be named.
 *
 * The other half of check.h: real shapes and values instead of awkward ones. */
#ifndef LAPILLI_CHECK_MODEL_H
#define LAPILLI_CHECK_MODEL_H

#include "check.h"
#include "session.h"

struct check_op {
	enum role role;
	uint32_t index;              /* in the plan */
	const char *kernel, *format; /* format "" when the op has no weights */
	const char *label;           /* of the weight, or the kernel's name */
	int32_t layer;               /* -1 outside the layers */
	struct check_result result;
};

/* False stops. */
typedef bool check_op_fn(void *user, const struct check_op *op);

/* Prefill of tokens[0..n-1), then a decode step on the last one: `device` and `cpu` are fresh sessions
 * of the same file with the same options, 2 <= n <= n_batch; the reference's model was opened with
 * the device's largest view as max_chunk_bytes.  Hands every op to `on_op`. */
enum lap_status check_model(struct lap_session *device, struct lap_session *cpu,
	const int32_t *tokens, uint32_t n, check_op_fn *on_op, void *user, struct lap_error *err);

#endif
