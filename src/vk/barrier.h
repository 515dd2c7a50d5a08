/* Where a recorded plan needs a barrier, and how a dispatch's groups fold into two axes.
 *
 * Pure functions of a plan's ops: no Vulkan in here, for what they decide cannot be seen by running
 * (a CPU driver gives right answers with every barrier missing) and so is tested by itself. */
#ifndef LAPILLI_VK_BARRIER_H
#define LAPILLI_VK_BARRIER_H

#include "plan.h"

/* Workgroups along one axis that every device takes (Vulkan 1.2, required limits). */
#define MAX_GROUPS 65535u

/* before[i], for each of plan->n_ops ops: true when a barrier belongs before op i.
 *
 * An op reads all of its buffers and writes the first n_written of them; beyond these, every
 * indirect dispatch reads plan->sizes.  A barrier is due when a range conflicts with one touched
 * since the last barrier and either side writes it (read after write, write after read, write after
 * write); so between two barriers a range is written by one dispatch at most.  The first op always
 * has one: the recording follows itself. */
enum lap_status barriers_plan(const struct plan *plan, bool *before, struct lap_error *err);

/* Groups of a dispatch along x and y for n_outputs outputs, per_group in each; the shader counts
 * y * x_count + x and leaves what is beyond n_outputs alone.  groups_x * groups_y is at least the
 * number needed, and both are 1 to MAX_GROUPS.  False when that many groups do not fit. */
bool groups_fold(uint32_t n_outputs, uint32_t per_group, uint32_t *groups_x, uint32_t *groups_y);

#endif
