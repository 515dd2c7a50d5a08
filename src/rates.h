/* How fast a backend reads its memory and how fast it computes: the yardsticks for decoding, which reads
 * every weight once a token, and for prompts, which use each for many tokens.
 *
 * Measured with two kernels that do nothing else: read_rate and fma_rate. */
#ifndef LAPILLI_RATES_H
#define LAPILLI_RATES_H

#include "backend.h"

struct rates {
	double bytes_per_second; /* of the fastest of several runs */
	double flops_per_second; /* 32-bit multiplications and additions, likewise */
	uint64_t n_bytes;        /* that were read: more than caches hold */
};

/* The first of them: as b->tuning knows it, or measured in a fraction of a second and written there.  Errors as
 * below. */
enum lap_status rates_reading(struct backend *b, double *bytes_per_second, struct lap_error *err);

/* Measures both, and keeps the first in b->tuning.  Takes memory to read, and gives it back. LAP_NO_MEMORY, and what the backend reports. */
enum lap_status rates_measure(struct backend *b, struct rates *rates, struct lap_error *err);

#endif
