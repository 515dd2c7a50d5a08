/* The sampler on the CPU: the same arithmetic as shaders/sample.comp, so that the two agree token for
 * token on the same logits.
 *
 * Owns the meaning of the sampling parameters and the penalty window.  Knows nothing of plans,
 * models or text.  Every decision is made with integers or with single correctly rounded additions
 * and multiplications: the mass of a token is fixed point, masses are summed as integers, so the
 * order of summation does not matter. */
#ifndef LAPILLI_SAMPLER_H
#define LAPILLI_SAMPLER_H

#include "args.h"
#include "base.h"

/* Writes the sampling fields of *s (not its progress).  LAP_USAGE when a parameter is out of range
 * or not a number; `seed` must be a real seed, not LAP_SEED_RANDOM.
 *     temperature   <= 0: greedy; else taken as 1e-9 to 1e9
 *     top_k         <= 0 or >= n_vocab: off
 *     top_p         >= 1: off; <= 0: greedy
 *     min_p         <= 0: off; >= 1: the maximum and its ties
 *     repeat_penalty  1e-6 to 1e6; presence_penalty, frequency_penalty  0 to 1e6
 *     repeat_last_n   >= -1; -1 or more than n_ctx: n_ctx
 * Temperature comes before the cuts; who wants it last sets s->inv_cut_temperature to 1.  Biases, bans,
 * mask and n_top are left alone.  The window is empty (s->repeat_last_n 0) when no penalty would change a logit. */
enum lap_status sampler_set(struct sequence *s, const struct lap_sampling *sampling,
	uint32_t n_vocab, uint32_t n_ctx, struct lap_error *err);

/* Adds `value` to the logit of a token, after the penalties; -infinity forbids it.  Biases of the
 * same token add up.  LAP_USAGE: no such token, not a number, or more than MAX_BIAS of them. */
enum lap_status sampler_bias(
	struct sequence *s, uint32_t token, float value, uint32_t n_vocab, struct lap_error *err);

/* The token after position `pos` from its logits.  count[n_vocab]: how often each token stands in
 * the penalty window; behind it, where s->use_mask, mask[MASK_WORDS(n_vocab)].  scratch[n_vocab] is
 * overwritten.  error 1: a logit is NaN or +infinity, or becomes it by its bias, or all are -infinity
 * or forbidden; a single -infinity only forbids its token. */
struct sample_result sampler_sample(const struct sequence *s, const float *logits, uint32_t n_vocab,
	const uint32_t *count, uint32_t pos, float *scratch);

/* The penalty window as it is after tokens[0..n): count[n_vocab] of the last repeat_last_n. */
void sampler_count(const struct sequence *s, const uint32_t *tokens, uint32_t n, uint32_t *count,
	uint32_t n_vocab);

/* ---- the same in pieces: a row of logits, its cuts, a draw, the best tokens ---- */

/* A row of logits with its penalties, biases and bans applied and its truncations decided. */
struct sampler_row {
	const struct sequence *s;
	const float *penalised; /* [n_vocab], in the caller's scratch */
	uint32_t n_vocab;
	uint32_t error;     /* nothing below is set */
	uint32_t best;      /* lowest id of the largest penalised logit */
	uint32_t threshold; /* a token stays when its key is at least this, and min_p holds */
	uint64_t mass_all;  /* sum of sampler_mass over all tokens ... */
	uint64_t mass_kept; /* ... and over those that stay */
};

struct sampler_row sampler_cut(const struct sequence *s, const float *logits, uint32_t n_vocab,
	const uint32_t *count, float *scratch);

struct sample_result sampler_draw(const struct sampler_row *row, uint32_t pos);

/* The n best tokens of all that are not forbidden, whatever the cuts: largest first, ties by id; token ~0
 * where fewer are left, and in a row with an error. */
void sampler_top(const struct sampler_row *row, uint32_t n, struct top_token *top);

/* Philox4x32-10 (Salmon et al. 2011). */
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* ---- inside a draw: what tests and the shader's author look at ---- */

/* exp(y) for y <= 0 in units of 2^-31, rounded down; 0 below about exp(-21.5). */
uint32_t sampler_mass(float y);

/* Distance of a token's logit below the largest, over temperature: at most 0, -infinity possible.
 * Its mass is sampler_mass of this. */
float sampler_distance(const struct sampler_row *row, uint32_t token);
bool sampler_keeps(const struct sampler_row *row, uint32_t token);

#endif
