/* A plan, recorded once: the runnable of this backend.
 *
 * Every op is an indirect dispatch whose size stands in the plan's sizes buffer, so that the same
 * recording serves every step. */
#ifndef LAPILLI_VK_RECORD_H
#define LAPILLI_VK_RECORD_H

#include "pipeline.h"

/* Fills entries[0..] with the distinct dispatch sizes of the plan and entry[i], for each op, with the
 * one it takes; x, y, z are left 0.  LAP_USAGE when a plan needs more than MAX_SIZES of them or a
 * dispatch is beyond what devices take. */
enum lap_status sizes_collect(const struct plan *plan, const struct pipeline_key *keys,
	struct dispatch_size entries[MAX_SIZES], uint32_t *entry, struct lap_error *err);

/* As in struct backend_ops. */
enum lap_status runnable_prepare(struct backend *b, const struct plan *plan, bool profile,
	struct runnable **runnable, struct lap_error *err);
void runnable_release(struct backend *b, struct runnable *runnable);
void runnable_begin(struct runnable *runnable);
enum lap_status runnable_run(struct backend *b, struct runnable *runnable, uint32_t n_times,
	uint64_t *ticket, struct lap_error *err);
enum lap_status runnable_times(
	struct backend *b, struct runnable *runnable, double *seconds, struct lap_error *err);

#endif
