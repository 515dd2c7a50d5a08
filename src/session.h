/* A session: timelines on a model.  Owns the KV cache and who holds its blocks, the step buffers, the
 * prepared plans (each recorded once, on first use) and the lists of tokens that the timelines hold.
 *
 * Knows what a step is, not who computes it, nor why its rows are what they are (generate.c). */
#ifndef LAPILLI_SESSION_H
#define LAPILLI_SESSION_H

#include <assert.h>
#include <stdatomic.h>

#include "engine.h"
#include "blocks.h"
#include "states.h"

#define SESSION_MAX_BUFFERS 49 /* beside those of the KV cache */
#define MAX_SEQUENCES       32
#define N_BUCKETS           6                       /* decode steps of 1, 2, 4, ... 32 rows */
#define MAX_STEP_ROWS       (1u << (N_BUCKETS - 1)) /* of a decode step */
#define GROUP_LAYERS        4                       /* of a prefill submit */
#define MAX_LAYER_GROUPS    16 /* prefill submits of a chunk; more layers are larger groups */
#define N_PREFILLS          2  /* recordings of prefill: of n_batch rows, and of few */
#define MAX_COPIES          64 /* blocks copied in one step */

static_assert(MAX_SEQUENCES <= MAX_STEP_ROWS, "every sequence may have a row");
static_assert(MAX_STEP_ROWS <= MAX_BEAM_ROWS, "every row may be a beam");

/* A recorded plan with the step it reads. */
struct prepared {
	struct view step_view, sizes;
	struct step_header *step;  /* mapped; step_row[] follow */
	struct runnable *runnable; /* NULL until first used */
};

/* What a decode step does with its logits. */
enum step_kind {
	STEP_DRAW,   /* draws tokens and goes on to the next positions */
	STEP_LOGITS, /* leaves them to the host */
	STEP_BEAMS,  /* lists the best ways to go on in tail.choice; needs n_top */
	N_STEP_KINDS
};

/* One sequence of tokens and where the KV cache has them. */
struct timeline {
	int32_t *tokens;                /* [n_ctx] */
	uint32_t n_past;                /* tokens that the KV cache holds */
	uint32_t n_prefill;             /* of them, from the start, computed by prefill */
	struct block_list full, window; /* window: of layers with one */
	struct state_list states;       /* of recurrent layers */
	bool busy;                      /* must not be given up when blocks run out */
	uint64_t used;                  /* when it was last: the smallest goes first */
};

/* Of a session so far. */
struct session_counts {
	uint32_t prefill_recordings, decode_recordings, other_recordings;
	uint32_t prefill_submits, decode_submits, other_submits;
	uint32_t waits; /* of the host for the device */
};

struct grammar_vocabulary;

struct lap_session {
	struct lap_model *m;
	uint32_t n_ctx;  /* tokens of one sequence */
	uint32_t n_pool; /* of all together: what the KV cache has room for */
	uint32_t n_batch, n_seq, steps_per_submit;
	uint32_t n_few;            /* rows that a prefill step of few has; 0: all are of n_batch */
	uint32_t max_rows;         /* of a decode step: a power of two */
	uint32_t n_top;            /* best tokens that a step can list */
	double max_submit_seconds; /* 0: our defaults */
	bool logits_all;
	uint32_t q8_columns; /* of rows in 8 bits, at most; 0: products take f32 */

	struct timeline *timelines; /* [n_seq] */
	uint64_t n_uses;
	struct block_pool full, window, states; /* n_blocks 0: no layer has such */
	struct copy_row copies[MAX_COPIES];     /* of blocks, before the next step */
	uint32_t n_copies;

	/* where it lives */
	struct buffer **buffers; /* all of session_memory.h's list */
	uint32_t n_buffers, max_buffers;
	uint32_t n_full_blocks, n_window_blocks, n_state_blocks; /* of the pools */
	struct activations activations;
	struct kv_cache kv;
	struct step_buffers step_buffers;
	struct tail tail;
	struct view steps, sizes;         /* of all prepared plans */
	struct sequence *sequences;       /* [n_seq], mapped */
	const struct ring_entry *ring;    /* [n_seq][RING_ENTRIES], mapped */
	const struct beam_choice *choice; /* of the last STEP_BEAMS, mapped; NULL: no n_top */
	const struct top_token *tops;     /* [n_seq][RING_ENTRIES][n_top], mapped; NULL: none */
	struct prepared prefill[N_PREFILLS][MAX_LAYER_GROUPS], copy, shift;
	struct prepared decode[N_STEP_KINDS][N_BUCKETS];
	uint32_t n_groups;                             /* of prefill */
	struct grammar_vocabulary *grammar_vocabulary; /* NULL until a grammar asks for it */
	float *host_logits; /* [max_rows + 1][n_vocab], of STEP_LOGITS and for a draw; NULL until used */
	uint32_t *history; /* [HISTORY_WORDS], to fill a sequence's part of tail.history from */
	struct prepared *running; /* the decode step that is set */

	/* measured */
	double row_seconds;  /* of a prefill row in the last chunk; 0: not known */
	double step_seconds; /* of a decode step; 0: not known */
	struct session_counts counts;
	atomic_int cancelled; /* by any thread, or a signal handler */
};

/* Which of the plans of a role serves steps of that many rows. */
uint32_t session_bucket(const struct lap_session *s, enum role role, uint32_t n_rows);

/* The step of a plan, and its recording, of prefill that of the first layers. */
struct prepared *session_prepared(
	struct lap_session *s, enum role role, enum step_kind kind, uint32_t bucket);

/* Appends the plan of a step, with the most rows `bucket` has; of prefill, all layers. */
enum lap_status session_plan(struct lap_session *s, enum role role, enum step_kind kind,
	uint32_t bucket, struct plan *plan, struct lap_error *err);

/* ---- timelines ---- */

/* Forgets all tokens from position n on; all of them when a layer with a window has let go of what
 * position n would see, and as many as it takes to get to a position whose state recurrent layers hold. */
void timeline_truncate(struct lap_session *s, struct timeline *t, uint32_t n);

/* Makes room for positions n_past .. n_positions - 1, which are about to be written, taking blocks from
 * timelines that are not busy if it must.  Returns how many positions there is room for: fewer than
 * n_positions when the pool runs out. */
uint32_t timeline_reserve(struct lap_session *s, struct timeline *t, uint32_t n_positions);

/* The same for a step of prefill, whose rows are all those positions; false: there is no room for them. */
bool timeline_reserve_chunk(struct lap_session *s, struct timeline *t, uint32_t n_positions);

/* `to` becomes the first n tokens of `from`, or what truncating would leave of them, sharing its blocks. */
void timeline_fork(
	struct lap_session *s, struct timeline *to, const struct timeline *from, uint32_t n);

/* Of n timelines, whose numbers are in seq, the first n_next become continuations: number i of timeline
 * seq[parents[i]] as it was.  seq is put in that order; a timeline that goes on keeps its blocks, its
 * further continuations share them, those that are not needed hold nothing.  n <= MAX_SEQUENCES. */
void session_reorder(
	struct lap_session *s, uint32_t *seq, uint32_t n, const uint32_t *parents, uint32_t n_next);

/* Lets go of what no position from n_past on can see. */
void timeline_forget(struct lap_session *s, struct timeline *t);

/* Of the tokens, how many can be kept of those the timeline holds: equal ones that prefill computed, to a
 * position whose state recurrent layers hold. */
uint32_t timeline_common(const struct timeline *t, const int32_t *tokens, uint32_t n);

/* Drops n_discard tokens behind the first n_keep and moves what follows to their place, its keys turned
 * back.  LAP_USAGE where a model cannot: see session_can_shift. */
enum lap_status timeline_shift(struct lap_session *s, struct timeline *t, uint32_t n_keep,
	uint32_t n_discard, struct lap_error *err);

/* LAP_USAGE with the reason when positions of this model cannot be shifted. */
enum lap_status session_can_shift(const struct lap_session *s, struct lap_error *err);

/* Carries out copies of blocks that wait for the next step, before the host looks at blocks itself. */
enum lap_status session_copy_blocks(struct lap_session *s, struct lap_error *err);

/* `to` becomes a timeline of n tokens whose keys and values the caller writes: has blocks of its own for
 * them, in layers with a window from block number first_window on.  n <= n_ctx.  On failure (LAP_USAGE: the
 * pool ran out) it is empty. */
enum lap_status timeline_restore(struct lap_session *s, struct timeline *to, const int32_t *tokens,
	uint32_t n, uint32_t first_window, struct lap_error *err);

/* ---- steps ---- */

/* Computes the next tokens of a timeline, at most `most` of n in one chunk; *n_done: how many.
 * logits[*n_done][n_vocab] is filled where it is not NULL (the session was created for that). */
enum lap_status session_prefill_chunk(struct lap_session *s, struct timeline *t,
	const int32_t *tokens, uint32_t n, uint32_t most, float *logits, uint32_t *n_done,
	struct lap_error *err);

/* All n of them, unless cancelled. */
enum lap_status session_prefill(struct lap_session *s, struct timeline *t, const int32_t *tokens,
	uint32_t n, struct lap_error *err);

/* What the device draws a sequence's tokens by: all of it but n_sampled, which counts on, and cancel, which is 0.  Another
 * thread may cancel meanwhile; nothing else may touch the record. */
void session_set_sequence(struct lap_session *s, uint32_t seq, const struct sequence *sequence);

/* Sets the rows of the next decode step; room for their positions is reserved.  Nothing may be in
 * flight.  n <= max_rows.  With STEP_DRAW and STEP_BEAMS every row is of another sequence, and
 * session_set_sequence came before. */
enum lap_status session_set_step(struct lap_session *s, enum step_kind kind,
	const struct step_row *rows, uint32_t n, struct lap_error *err);

/* Submits the step n_steps times; *ticket is what session_wait takes. */
enum lap_status session_submit(
	struct lap_session *s, uint32_t n_steps, uint64_t *ticket, struct lap_error *err);
enum lap_status session_wait(struct lap_session *s, uint64_t ticket, struct lap_error *err);

/* The logits of the last step's rows first .. first + n - 1: logits[n][n_vocab]. */
enum lap_status session_read_logits(
	struct lap_session *s, uint32_t first, uint32_t n, float *logits, struct lap_error *err);

/* One decode step with these rows, as session_set_step takes them, whose logits are left to the host:
 * *logits [n][n_vocab], the session's until its next step; NULL: not wanted. */
enum lap_status session_compute_logits(struct lap_session *s, const struct step_row *rows,
	uint32_t n, const float **logits, struct lap_error *err);

/* One decode step of the first timeline on a given token, for tests and validation: logits[n_vocab]. */
enum lap_status session_step(
	struct lap_session *s, int32_t token, float *logits, struct lap_error *err);

/* Fills a sequence's history from the tokens its timeline holds and `last`, which is about to be decoded;
 * mask[MASK_WORDS(n_vocab)] or NULL. */
enum lap_status session_write_history(struct lap_session *s, uint32_t seq, int32_t last,
	const uint32_t *mask, struct lap_error *err);

/* The mask alone. */
enum lap_status session_write_mask(
	struct lap_session *s, uint32_t seq, const uint32_t *mask, struct lap_error *err);

/* LAP_USAGE unless 0 <= token < n_vocab. */
enum lap_status session_check_tokens(
	const struct lap_session *s, const int32_t *tokens, size_t n, struct lap_error *err);

#endif
