/* DRY, "don't repeat yourself": which tokens would continue a repetition, and how long a one.
 *
 * Owns the matching and the breakers. Knows no logits. Facts: p-e-w's description
 * (oobabooga/text-generation-webui PR 5677) and pi6am's reading of breakers that span tokens, which
 * llama.cpp shares. */
#ifndef LAPILLI_SAMPLER_DRY_H
#define LAPILLI_SAMPLER_DRY_H

#include "base.h"

/* Sequences of tokens that repetitions do not reach across. Zeroed: none. */
struct dry_breakers {
	uint32_t
		*first; /* [n_vocab]: 1 + index of the newest sequence that begins with the token */
	uint32_t *tokens; /* of all sequences, one after the other */
	struct dry_span *spans;
	uint32_t n_tokens, tokens_capacity, n_spans, spans_capacity;
};

/* Adds a sequence of n tokens, n >= 1, all below n_vocab, which is the same in every call.
 * LAP_NO_MEMORY. */
enum lap_status dry_breakers_add(struct dry_breakers *b, const uint32_t *tokens, uint32_t n,
	uint32_t n_vocab, struct lap_error *err);
enum lap_status dry_breakers_copy(struct dry_breakers *out, const struct dry_breakers *b,
	uint32_t n_vocab, struct lap_error *err);
void dry_breakers_free(struct dry_breakers *b);

/* How many of the last tokens a repetition may cover: those behind the breaker that begins last; where
 * several begin there, behind the longest. n without any. */
uint32_t dry_limit(const struct dry_breakers *b, const uint32_t *tokens, uint32_t n);

/* For i in [0, n - 1): length[i] is how many of the tokens that end with tokens[i] equal as many at the
 * end of all n, at most `limit`: the repetition that tokens[i + 1] would continue. O(n). work[n] is
 * overwritten. */
void dry_lengths(
	const uint32_t *tokens, uint32_t n, uint32_t limit, uint32_t *length, uint32_t *work);

#endif
