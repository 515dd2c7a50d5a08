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
 * or not a number; `seed` must be a real seed, not LAP_SEED_RANDOM. */
enum lap_status sampler_set(struct sequence *s, const struct lap_sampling *sampling,
	uint32_t n_vocab, uint32_t n_ctx, struct lap_error *err);

/* The token after position `pos` from its logits.  count[n_vocab]: how often each token stands in
 * the penalty window.  scratch[n_vocab] is overwritten. */
struct sample_result sampler_sample(const struct sequence *s, const float *logits, uint32_t n_vocab,
	const uint32_t *count, uint32_t pos, float *scratch);

/* The penalty window as it is after tokens[0..n): count[n_vocab] of the last repeat_last_n. */
void sampler_count(const struct sequence *s, const uint32_t *tokens, uint32_t n, uint32_t *count,
	uint32_t n_vocab);

/* Philox4x32-10 (Salmon et al. 2011). */
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
