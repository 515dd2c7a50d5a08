/* Knobs of kernels: the numbers that may be tuned, as shaders/knobs.def lists them.
 *
 * Knows which there are, not which value is good on which device. */
#ifndef LAPILLI_KNOBS_H
#define LAPILLI_KNOBS_H

#include "plan.h"

#define MAX_KNOB_VALUES    6    /* to be tried */
#define MAX_CODEBOOK_BYTES 4096 /* of shared memory, which a weight format's table takes at most */

struct knob {
	enum kernel kernel;
	const char *build; /* those that have it: see knobs.def */
	const char *name;
	uint32_t id; /* of the specialization constant; 0: outputs of a workgroup */
	uint32_t usual, shared_bytes;
	uint32_t values[MAX_KNOB_VALUES]; /* ends with 0 */
};

/* The knobs of a kernel, at most MAX_KNOBS, in the order of struct op's knobs; *n may be 0. */
const struct knob *kernel_knobs(enum kernel kernel, uint32_t *n);

/* The value of the knob of that name among `values`; NULL: the kernel has none. */
uint32_t *knob_value(enum kernel kernel, uint32_t values[MAX_KNOBS], const char *name);

/* Whether a device of these limits can run the kernel with these values (one per knob); `subgroup`: the
 * largest number of lanes of a subgroup. */
bool knobs_fit(enum kernel kernel, const uint32_t *values, uint32_t max_lanes, uint32_t subgroup,
	uint32_t max_shared_bytes);

/* Goes through all combinations of values: *values starts with the first of each knob.  False: that was
 * the last one. */
bool knobs_next(enum kernel kernel, uint32_t values[MAX_KNOBS]);

/* "LANES=64 OUTPUTS=1", without those that are 0, appended.  False: out of memory. */
bool knobs_print(enum kernel kernel, const uint32_t *values, struct text *text);

#endif
