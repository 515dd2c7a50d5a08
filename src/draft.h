/* Speculation: guesses of the tokens that come next, from the text itself or from a smaller model, and how
 * a guess is accepted so that what is generated stays distributed as without it.
 *
 * Owns the draft model's timelines while requests run.  Knows nothing of the target but its tokens and
 * its distributions; which rows verify the guesses is request.c's. */
#ifndef LAPILLI_DRAFT_H
#define LAPILLI_DRAFT_H

#include "sampler_chain.h"
#include "session.h"

#define MAX_DRAFT (MAX_STEP_ROWS - 1) /* guesses that one step verifies */

/* Random words of a position beside the target's own draw. */
enum draft_purpose {
	DRAFT_DRAW = SAMPLER_OTHER, /* of the draft model */
	DRAFT_VERDICT,              /* two words accept or reject, two draw instead */
};

/* One sequence's guesses. */
struct draft {
	struct lap_session *s; /* the draft model's; NULL: the text alone */
	struct timeline *t;    /* of s */
	uint32_t seq;          /* of t */
	bool ngram;

	struct sequence
		sequence; /* greedy guesses: the recorded step draws them, many in a submit */
	struct sampler_chain *chain; /* others; NULL: greedy */
	uint32_t n_ahead;            /* rows that t has behind t->n_past, of guesses */

	/* what is asked for */
	const int32_t *history; /* [n_history]: all tokens, the last one not decoded yet */
	uint32_t n_history, draw_offset;
	uint32_t n_wanted; /* of the draft model */
	uint32_t n_room;   /* rows that t has room for, from the last token's on */

	/* the guesses, and where the chain drew them what from, and its state before */
	uint32_t n;
	bool drawn;
	int32_t tokens[MAX_DRAFT];
	struct candidates q[MAX_DRAFT];
	struct sampler_chain_state states[MAX_DRAFT];
};

/* LAP_USAGE with the reason when a request to `s` cannot have the draft that its options ask for: no
 * source of guesses, more of them than a step of `s` verifies, a draft model whose vocabulary differs or
 * whose session has fewer sequences. */
enum lap_status draft_check(
	const struct lap_session *s, const struct lap_generate_options *o, struct lap_error *err);

/* For a request with prompt[n] in sequence `seq`.  sampling: the request's, with its real seed. */
enum lap_status draft_create(struct draft **draft, uint32_t seq,
	const struct lap_generate_options *o, const struct lap_sampling *sampling,
	const int32_t *prompt, uint32_t n, struct lap_error *err);
void draft_destroy(struct draft *d); /* NULL is allowed */

/* Asks for at most `most` <= MAX_DRAFT guesses of what follows history[n_history], n_history >= 1, which
 * stays valid until drafts_run.  Those of the text are there at once. */
void draft_ask(struct draft *d, const int32_t *history, uint32_t n_history, uint32_t draw_offset,
	uint32_t most);

/* The draft models' part for all that have asked, step by step together; gives up where *cancelled.  No
 * room in a draft's session, or logits that are no numbers, make fewer guesses, not errors. */
enum lap_status drafts_run(struct draft *const *drafts, uint32_t n, const atomic_int *cancelled,
	struct lap_error *err);

/* The distribution that guess i was drawn from; NULL: it is certain, what the target draws decides. */
const struct candidates *draft_q(const struct draft *d, uint32_t i);

/* The round is over: n_accepted guesses were right, and behind them came `token`. */
void draft_settle(struct draft *d, uint32_t n_accepted, int32_t token);

/* Of the history[n_history], n_discard tokens behind the first n_keep are about to be dropped. */
void draft_shift(struct draft *d, const int32_t *history, uint32_t n_history, uint32_t n_keep,
	uint32_t n_discard);

/* ---- without a model ---- */

/* Guesses that the text repeats itself: what followed the latest earlier place where its last 3 tokens
 * stood, else the last 2, else the last; where that reaches the end, the guesses go on from themselves.
 * Returns how many of guess[most] were written: all or none.  (Prompt look-up: Saxena 2023.) */
uint32_t draft_ngram(const int32_t *tokens, uint32_t n, uint32_t most, int32_t *guess);

/* A token distributed as p, from a guess drawn from q (Leviathan et al. 2023, Chen et al. 2023): the guess
 * with probability min(1, p/q), else one drawn from the positive part of p - q.
 * random[0..1] accept, random[2..3] draw; each pair is a fraction of 2^64, the upper half first. */
struct sample_result draft_accept(const struct candidates *p, const struct candidates *q,
	uint32_t guess, const uint32_t random[4]);

#endif
