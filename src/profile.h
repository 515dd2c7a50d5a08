/* Where the time of a model's steps goes: every op of a real plan, timed by the device.
 *
 * Ops wait for each other while they are timed, so that their times do not overlap: the sum is somewhat more
 * than a step takes. */
#ifndef LAPILLI_PROFILE_H
#define LAPILLI_PROFILE_H

#include "session.h"
#include "work.h"

/* Ops of one kernel and format that have the same part in every layer. */
struct profile_row {
	enum kernel kernel;
	enum weight weight;
	char part[64]; /* the tensor's name without the layer, or the kernel's name */
	uint32_t n_ops;
	double seconds; /* of them all, in one step; 0: the device takes no times */
	struct work work;
	uint32_t knobs[MAX_KNOBS]; /* that the first of them runs with */
};

struct profile {
	struct profile_row *rows; /* largest first */
	uint32_t n;
	double seconds; /* of the step, by the host's clock */
};

/* A step of n_rows rows behind n_past positions, n_runs times and one more that does not count.  Prefill: rows of the
 * first sequence, at most the session's n_batch.  Decode: one of each of n_rows sequences.  The session
 * forgets its tokens.  Release with profile_free. */
enum lap_status profile_step(struct lap_session *s, enum role role, uint32_t n_rows,
	uint32_t n_past, uint32_t n_runs, struct profile *profile, struct lap_error *err);
void profile_free(struct profile *profile);

#endif
