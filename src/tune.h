/* Tuning: finds, for the ops of a plan, the values of their kernels' knobs that are fastest on a backend.
 *
 * Every candidate is checked before it is timed: against the reference at awkward shapes, and on the plan's own
 * operands against the values that are used without tuning, bit for bit, for a text must not depend on it.
 * What fails is recorded as broken on the device and never used: a test of the driver, too.  Knows plans and
 * backends, no models. */
#ifndef LAPILLI_TUNE_H
#define LAPILLI_TUNE_H

#include "backend.h"

struct tune_options {
	double seconds; /* to be spent; what is not measured then stays as it is.  0: all that it takes */
	bool thorough; /* all cases of the checks, longer measurements, classes that are known too */
};

/* Told of each finding: a winner, or values that are broken.  false stops; what was found is kept. */
typedef bool tune_fn(void *user, const struct tuned *found);

/* The plan's step is set, its inputs hold numbers, and nothing of it is in flight; what it writes is overwritten.
 * Findings go to b->tuning, which is not saved here; without one there is nothing to do.  *n_found: how many. */
enum lap_status tune_plan(struct backend *b, struct backend *cpu, const struct plan *plan,
	const struct tune_options *options, tune_fn *on_found, void *user, uint32_t *n_found,
	struct lap_error *err);

#endif
