/* DRY's sequence breakers: texts as the sequences of tokens that they may be spelled with.
 *
 * Owns the search of a vocabulary for a text that need not begin or end with a token. */
#ifndef LAPILLI_BREAKERS_H
#define LAPILLI_BREAKERS_H

#include "sampler_chain.h"
#include "tokenizer.h"

/* Receives one sequence of 1 to 20 tokens. */
typedef enum lap_status breaker_fn(
	void *user, const uint32_t *tokens, uint32_t n, struct lap_error *err);

/* Calls `fn` for each sequence that spells the text, with something before and behind it or not: every
 * token that holds all of it; and every token that ends with a beginning of it, followed by the tokens
 * of the rest.  (The reading of pi6am, KoboldCpp PR 982, that llama.cpp follows.)  Texts are cut to 40
 * bytes; an empty one has no sequences.  LAP_NO_MEMORY, or what `fn` failed with. */
enum lap_status breakers_find(const struct tokenizer *t, const char *text, breaker_fn *fn,
	void *user, struct lap_error *err);

/* Gives a chain the breakers of its sampling parameters: sampling->dry_breakers, or the usual "\n", ":",
 * "\"" and "*"; none when DRY is off. */
enum lap_status breakers_add(struct sampler_chain *chain, const struct tokenizer *t,
	const struct lap_sampling *sampling, struct lap_error *err);

#endif
