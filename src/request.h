/* A request while it runs: which sequence it has, what it was asked for, the text so far, how it ends.
 *
 * Knows one sequence; who runs when is generate.c's. */
#ifndef LAPILLI_REQUEST_H
#define LAPILLI_REQUEST_H

#include "draft.h"
#include "sampler_chain.h"
#include "session.h"
#include "stops.h"

enum phase {
	PHASE_FREE,
	PHASE_PREFILL, /* tokens[t->n_past .. n_prefill - 1] are to be computed */
	PHASE_DECODE,  /* `last` is the row of the next step */
	PHASE_FULL,    /* the context is, and more tokens are wanted */
	PHASE_ENDED,   /* nothing more will come; steps in flight may still touch it */
};

struct slot {
	struct lap_session *s;
	struct timeline *t;
	uint32_t seq;
	enum phase phase;
	uint64_t order; /* requests that came before */

	struct lap_request *request;
	const struct lap_generate_options *o;
	int32_t *tokens; /* [n_ctx]: what prefill computes */
	uint32_t n_prefill;
	int32_t last; /* the token that the KV cache does not have yet */
	uint64_t n_target, n_generated;

	/* the sequence as the device has it */
	struct sequence sequence;      /* parameters, as they were at the start */
	struct sampler_chain *chain;   /* NULL: the recorded step can draw all that is asked for */
	struct candidates candidates;  /* of the chain's last draw */
	struct constraint *constraint; /* NULL: no grammar */
	uint32_t *mask;                /* [MASK_WORDS]: bans, for the chain */
	struct draft *draft;           /* NULL: no speculation */
	uint32_t draw_offset;
	bool on_device;     /* and its history */
	uint32_t n_ahead;   /* steps submitted whose tokens were not taken yet */
	uint32_t ring_next; /* number of the next ring entry to take */

	struct decoder decoder;
	struct text piece, text;
	struct stops stops;
	bool cut;                      /* by a stop string: nothing behind it is text */
	double started, first, latest; /* clock_seconds */
};

/* Sets request->status and error when it asks for something that cannot be. */
void request_check(const struct lap_session *s, struct lap_request *request);

/* A request that never got a slot. */
void request_skip(struct lap_request *request, enum lap_status status, const struct lap_error *why);

/* A free slot takes the request: PHASE_PREFILL, with what its timeline has of the prompt. */
enum lap_status slot_open(struct slot *slot, struct lap_request *request, struct lap_error *err);

/* More of the prompt is computed: tells who asked to be told. */
void slot_report_prompt(struct slot *slot);

/* Everything before `last` is computed. */
void slot_prefilled(struct slot *slot);

/* Tokens it may still generate. */
uint64_t slot_left(const struct slot *slot);

/* Something must happen on the host between two of its steps. */
bool slot_needs_steps(const struct slot *slot);

/* Its tokens are drawn on the host: its steps, and those of the others with it, are STEP_LOGITS. */
bool slot_needs_host(const struct slot *slot);

/* Asks its draft, which it has, for guesses that fit in a step with at most `most` rows of this slot. */
struct draft *slot_ask(struct slot *slot, uint32_t most);

/* The rows of its next STEP_LOGITS, at most `most` of them; returns how many: `last`, and the guesses at the
 * positions behind it. */
uint32_t slot_rows(struct slot *slot, struct step_row *rows, uint32_t most);

/* Draws from the logits of the first n_rows of those rows, logits[n_rows][n_vocab], as long as what is
 * drawn is the guess that the next row is of. */
enum lap_status slot_take_logits(
	struct slot *slot, const float *logits, uint32_t n_rows, struct lap_error *err);

/* Before a step with a row of this slot is set; nothing is in flight. */
enum lap_status slot_to_device(struct slot *slot, struct lap_error *err);

/* n_steps more steps are done: takes their tokens from the ring.  Fewer there than steps means that the
 * sequence ended on the device. */
enum lap_status slot_take_ready(struct slot *slot, uint32_t n_steps, struct lap_error *err);

/* PHASE_FULL: shifts or crops, so that it can go on; nothing is in flight. */
enum lap_status slot_make_room(struct slot *slot, struct lap_error *err);

/* Ends with an error of its own. */
void slot_fail(struct slot *slot, enum lap_status status, const struct lap_error *why);
void slot_fail_full(struct slot *slot); /* no block of the KV cache was left */

/* Ends because all of it does: status LAP_OK when it was cancelled. */
void slot_cancel(struct slot *slot, enum lap_status status, const struct lap_error *why);

/* The last text, times, and what the slot held; nothing is in flight. */
void slot_close(struct slot *slot);

#endif
