/* Tuning on a model's own plans: its weights, its shapes, numbers in its activations. */
#ifndef LAPILLI_SESSION_TUNE_H
#define LAPILLI_SESSION_TUNE_H

#include "session.h"
#include "tune.h"

/* The plans of prefill and of decode steps: of one row, or thorough, of all numbers of rows the session has.
 * Writes the tuning file when something was found; that it cannot is a warning in the log.  The session forgets its
 * tokens.  What tune_plan reports, and LAP_NO_MEMORY. */
enum lap_status session_tune(struct lap_session *s, const struct tune_options *options,
	tune_fn *on_found, void *user, struct lap_error *err);

/* What a new session does by itself, as the model's options say: see enum lap_tune. */
enum lap_status session_tune_first(struct lap_session *s, struct lap_error *err);

#endif
