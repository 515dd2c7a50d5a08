/* What an op has to move and to compute at least: the bytes of its operands, each once, and the
 * multiplications and additions of its sums.  The measure that its time is held against.
 *
 * Knows kernels, not devices and not models. */
#ifndef LAPILLI_WORK_H
#define LAPILLI_WORK_H

#include "plan.h"

struct work {
	double bytes, flops;
};

/* Of one run with this step: n_rows rows, the last at position n_kv - 1. */
struct work op_work(const struct op *op, const struct step_header *step);

#endif
