/* A session: one timeline on a model.  Owns the KV cache, the step buffers, the prepared plans
 * (prefill and decode, each recorded once, on first use) and the list of tokens they hold.
 *
 * Knows what a step is, not who computes it. */
#ifndef LAPILLI_SESSION_H
#define LAPILLI_SESSION_H

#include <signal.h>

#include "engine.h"

#define SESSION_MAX_BUFFERS 48 /* beside those of the KV cache */

/* A recorded plan with the step it reads. */
struct prepared {
	struct view step_view, sizes;
	struct step_header *step;  /* mapped; step_row[] follow */
	struct runnable *runnable; /* NULL until first used */
	uint32_t n_recordings;
};

struct lap_session {
	struct lap_model *m;
	uint32_t n_ctx, n_batch, steps_per_submit;
	bool logits_all;

	/* the timeline */
	int32_t *tokens;    /* [n_ctx] that the KV cache holds */
	uint32_t n_past;    /* how many */
	uint32_t n_prefill; /* of them, from the start, computed by prefill */
	uint32_t n_written; /* positions that the KV cache was ever filled to since it was empty */

	/* where it lives */
	struct buffer **buffers; /* all of session_memory.h's list */
	uint32_t n_buffers, max_buffers;
	struct activations activations;
	struct kv_cache kv;
	uint32_t n_window_positions; /* that the cache of window layers keeps; 0: all */
	struct step_buffers step_buffers;
	struct tail tail;
	struct sequence *sequence;     /* mapped */
	const struct ring_entry *ring; /* mapped */
	struct prepared prefill, decode;
	uint32_t *history; /* [n_ctx + n_vocab], to fill tail.history from */

	/* measured */
	double row_seconds;  /* of a prefill row in the last chunk; 0: not known */
	double step_seconds; /* of a decode step; 0: not known */
	uint32_t n_prefill_submits, n_decode_submits;
	volatile sig_atomic_t cancelled;
};

/* Appends the plan of one step in that role. */
enum lap_status session_plan(
	struct lap_session *s, enum role role, struct plan *plan, struct lap_error *err);

/* Forgets all tokens from position n on; all of them when a layer's window before n was overwritten
 * since. */
void session_truncate(struct lap_session *s, uint32_t n);

/* Computes n tokens behind those the session holds, without logits unless the session was created
 * for them: then logits[n][n_vocab] is filled (it may be NULL otherwise). */
enum lap_status session_prefill(struct lap_session *s, const int32_t *tokens, uint32_t n,
	float *logits, struct lap_error *err);

/* Makes `token` at position n_past the row of the next decode step, with s->sequence as the caller
 * set it, n_sampled continuing. */
enum lap_status session_begin_decode(struct lap_session *s, int32_t token, struct lap_error *err);

/* Submits n decode steps; *ticket is what backend wait takes. */
enum lap_status session_submit_decode(
	struct lap_session *s, uint32_t n_steps, uint64_t *ticket, struct lap_error *err);

/* Takes note of how far decode steps went; nothing may be in flight. */
void session_note_written(struct lap_session *s);

/* One decode step on a given token, for tests and validation: logits[n_vocab] of its row. */
enum lap_status session_step(
	struct lap_session *s, int32_t token, float *logits, struct lap_error *err);

/* Fills the penalty window from the tokens held and `last`, which is about to be decoded. */
enum lap_status session_write_history(struct lap_session *s, int32_t last, struct lap_error *err);

/* LAP_USAGE unless 0 <= token < n_vocab. */
enum lap_status session_check_tokens(
	const struct lap_session *s, const int32_t *tokens, size_t n, struct lap_error *err);

#endif
