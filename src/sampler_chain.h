/* The whole chain of samplers, on the host: for what the recorded step cannot draw.
 *
 * Owns the truncations that need more than one threshold, and mirostat's state.
 * Knows nothing of plans, models or text; penalties, masses and random numbers are sampler.c's, so that
 * where both can draw, the same tokens stay and the same one is drawn. What each parameter means, its
 * range and its source: struct lap_sampling in lapilli.h. */
#ifndef LAPILLI_SAMPLER_CHAIN_H
#define LAPILLI_SAMPLER_CHAIN_H

#include "sampler.h"
#include "sampler_order.h"

struct sampler_chain;

/* ---- a chain ---- */

/* A chain is one sequence's.  Nothing in *sampling need outlive the call.  The texts of dry_breakers are
 * the caller's to turn into tokens, for sampler_chain_add_breaker.  LAP_USAGE when a parameter is out of
 * range or the order names a step that there is not; LAP_NO_MEMORY.  `seed` must be a real seed. */
enum lap_status sampler_chain_create(const struct lap_sampling *sampling, uint32_t n_vocab,
	uint32_t n_ctx, struct sampler_chain **chain, struct lap_error *err);
void sampler_chain_destroy(struct sampler_chain *chain); /* NULL is allowed */
enum lap_status sampler_chain_clone(
	const struct sampler_chain *chain, struct sampler_chain **clone, struct lap_error *err);

/* DRY's repetitions do not reach across these tokens (n >= 1, all below n_vocab). */
enum lap_status sampler_chain_add_breaker(
	struct sampler_chain *chain, const uint32_t *tokens, uint32_t n, struct lap_error *err);

/* What accepting tokens changes. To go back to an earlier token: save before, restore then. */
struct sampler_chain_state {
	float mu; /* mirostat, bits */
};
struct sampler_chain_state sampler_chain_save(const struct sampler_chain *chain);
void sampler_chain_restore(struct sampler_chain *chain, struct sampler_chain_state state);
void sampler_chain_reset(struct sampler_chain *chain); /* as after creation */

/* ---- a token ---- */

struct candidate {
	uint32_t id;
	uint32_t mass;  /* the weight it is drawn by, at most 2^31; 0: never */
	float logit;    /* after the chain: the likely ones' differences are those of ln p */
	float log_prob; /* among all tokens, before truncation */
	double p;       /* mass / sum of masses: the distribution really drawn from */
};

/* Zeroed is empty; sampler_chain_apply grows it; candidates_free releases. */
struct candidates {
	struct candidate *items; /* by id, ascending */
	uint32_t n, capacity;
	uint64_t mass; /* sum */
};
void candidates_free(struct candidates *c);

/* The distribution of the token after position `pos` from logits[n_vocab].  history[n_history]: all tokens
 * up to and with that position, oldest first.  mask: NULL, or a bit for each token (i % 32 of word i /
 * 32) that is 0 for those that may not be drawn.  Changes no state.
 * LAP_ERROR when a logit is NaN or +infinity or all tokens are forbidden; LAP_NO_MEMORY. */
enum lap_status sampler_chain_apply(struct sampler_chain *chain, const float *logits,
	const uint32_t *history, uint32_t n_history, uint32_t pos, const uint32_t *mask,
	struct candidates *out, struct lap_error *err);

/* The n best tokens (fewer when fewer are allowed) of the last apply, before truncation, by probability,
 * ties by id; returns how many.  p is exp(log_prob), mass 0. */
uint32_t sampler_chain_best(const struct sampler_chain *chain, uint32_t n, struct candidate *best);

/* Random words: Philox keyed by the seed, counter {pos, purpose, 0, 0}. */
enum sampler_purpose {
	SAMPLER_DRAW = 0, /* sampler.c's words */
	SAMPLER_XTC = 1,
	SAMPLER_OTHER = 2, /* and up: free for callers */
};
void sampler_chain_random(
	const struct sampler_chain *chain, uint32_t pos, uint32_t purpose, uint32_t out[4]);

/* The first candidate whose running sum of masses exceeds floor(random / 2^64 * mass), random[0] being the
 * upper half: sampler_sample's draw for the words of SAMPLER_DRAW. */
struct sample_result candidates_draw(const struct candidates *c, const uint32_t random[2]);

/* Goes on behind `token`, drawn from these candidates; for one that is none of them nothing changes. */
void sampler_chain_accept(struct sampler_chain *chain, const struct candidates *c, uint32_t token);

#endif
