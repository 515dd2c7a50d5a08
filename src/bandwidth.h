/* How fast a backend reads its memory: the yardstick for decoding, which reads every weight once a token.
 *
 * Measured with the kernel that decoding itself lives on, matvec with float weights: it does nothing but
 * read a matrix, one multiplication for four bytes. */
#ifndef LAPILLI_BANDWIDTH_H
#define LAPILLI_BANDWIDTH_H

#include "backend.h"

struct bandwidth {
	double bytes_per_second; /* of the fastest of several runs */
	uint64_t n_bytes;        /* of the matrix: more than caches hold */
};

/* Takes memory for a matrix, and gives it back. LAP_NO_MEMORY, and what the backend reports. */
enum lap_status bandwidth_measure(
	struct backend *b, struct bandwidth *result, struct lap_error *err);

#endif
