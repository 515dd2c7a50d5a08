/* A step of a session for measurements: rows as generation would have them, over positions that were never
 * computed.
 *
 * What they compute means nothing; how long it takes, and that it is the same each time, does. */
#ifndef LAPILLI_TRIAL_H
#define LAPILLI_TRIAL_H

#include "session.h"

struct trial {
	struct lap_session *s;
	enum role role;
	uint32_t n_rows, n_past;
	struct prepared *prepared; /* whose step it is */
	struct plan plan;
};

/* n_rows rows behind n_past positions.  Prefill: of the first sequence, at most the session's n_batch.
 * Decode: one of each of n_rows sequences.  The session forgets its tokens; nothing of it may be in flight.
 * LAP_USAGE: no room in the KV cache. */
enum lap_status trial_begin(struct trial *t, struct lap_session *s, enum role role, uint32_t n_rows,
	uint32_t n_past, struct lap_error *err);

/* The step as the plan wants to find it; a decode step moves it on. */
void trial_set_step(const struct trial *t);

/* Takes a trial whose begin failed, too. */
void trial_end(struct trial *t);

#endif
