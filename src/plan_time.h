/* How long a plan takes on a backend: what every measurement of kernels is made with.
 *
 * Knows backends, not which kernels are worth a measurement. */
#ifndef LAPILLI_PLAN_TIME_H
#define LAPILLI_PLAN_TIME_H

#include "backend.h"

/* Seconds of the plan once, at its fastest, in submits of as many repetitions as last about 30 ms; `budget`
 * seconds in all, or the two runs that it takes at least.  The plan's step must be set. */
enum lap_status plan_time(struct backend *b, const struct plan *p, double budget, double *seconds,
	struct lap_error *err);

#endif
