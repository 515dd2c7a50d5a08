/* Checks kernels: each case is a plan of one or two ops at an awkward shape, run on a backend and on the
 * CPU reference with the same random operands.
 *
 * One list of cases serves the tests and `lapilli validate`.  Around every operand lie guard zones:
 * NaN beside what is read, a pattern beside and inside what is written, so that an element the
 * reference left alone must come back untouched.  Knows kernels, not models. */
#ifndef LAPILLI_CHECK_H
#define LAPILLI_CHECK_H

#include "backend.h"

/* Limits of a result's normalised mean square error; copies and integers must be exact. */
#define CHECK_LIMIT_ELEMENT   1e-7 /* element-wise kernels */
#define CHECK_LIMIT_FLOAT     1e-6 /* products with float weights, and attention */
#define CHECK_LIMIT_QUANTISED 5e-4 /* products with quantised weights */

struct check_result {
	double nmse;      /* sum (a - b)^2 / sum b^2, b the reference; the worst output's */
	double max_error; /* largest |a - b| */
	double limit;     /* of nmse; 0: the same bits */
	uint64_t n_bytes; /* of all operands: what the kernel moves when it moves nothing twice */
	double seconds;   /* of the last run, by the backend's clock */
	uint64_t hash;    /* of the bytes that came back */
	bool passed;
	char reason[160]; /* why not; "" when passed */
};

uint32_t check_n_cases(void);
enum kernel check_case_kernel(uint32_t i);
enum weight check_case_weight(uint32_t i); /* 0 where the kernel has no formats */
/* Fit for slow devices: such as SwiftShader, ten times slower than lavapipe. */
bool check_case_small(uint32_t i);
/* "matvec q4_k 33 x 256, 3 rows, bias" */
void check_case_name(uint32_t i, char *name, size_t n_bytes);

/* Runs case i n_runs times on `b` (the last is timed: the first one may compile) and once on `cpu`.
 * A wrong result is no error: it is in *result.  Errors: LAP_NO_MEMORY, and what `b` reports. */
enum lap_status check_run(struct backend *b, struct backend *cpu, uint32_t i, uint32_t n_runs,
	struct check_result *result, struct lap_error *err);

/* The same with these values of the kernel's knobs on `b`; NULL: its own. */
enum lap_status check_run_knobs(struct backend *b, struct backend *cpu, uint32_t i, uint32_t n_runs,
	const uint32_t *knobs, struct check_result *result, struct lap_error *err);

#endif
