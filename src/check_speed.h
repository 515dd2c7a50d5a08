/* One kernel alone, at a shape of the caller's: checked against the reference, then timed. */
#ifndef LAPILLI_CHECK_SPEED_H
#define LAPILLI_CHECK_SPEED_H

#include "check.h"
#include "work.h"

/* M x N x K of a kernel, as kernel_shape_words says; N are rows of the step.  Attention has heads of 128, four
 * for each of K and V where they can be divided so; experts are 8, of which a row goes to 2. */
struct kernel_shape {
	enum kernel kernel;
	enum weight weight; /* of kernels that are built for each format */
	enum kv_type kv;    /* of attention */
	uint32_t m, n, k;   /* k 0: not given */
};

/* "outputs x rows x inputs"; NULL: the kernel has no shape to be measured at. */
const char *kernel_shape_words(enum kernel kernel);

/* LAP_USAGE with what was expected when the kernel cannot have that shape. */
enum lap_status kernel_shape_check(const struct kernel_shape *shape, struct lap_error *err);

struct kernel_speed {
	struct check_result
		check; /* of the reference, at checked_m: as much as it computes quickly */
	uint32_t checked_m;
	struct work work;
	uint32_t n_copies; /* of the operands, used in turns so that caches do not hold them */
	double seconds;    /* of one run, 0 when the check failed */
	uint32_t knobs[MAX_KNOBS]; /* it ran with */
};

/* knobs NULL: the backend's own.  A wrong result is no error: see speed->check.  LAP_USAGE: a shape that the kernel
 * cannot have or the device cannot hold; LAP_NO_MEMORY, and what `b` reports. */
enum lap_status kernel_measure(struct backend *b, struct backend *cpu,
	const struct kernel_shape *shape, const uint32_t *knobs, double budget,
	struct kernel_speed *speed, struct lap_error *err);

#endif
