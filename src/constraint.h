/* What a request's grammar allows next: grammar.h for a model's vocabulary.
 *
 * Knows tokens and texts; the automaton is grammar.c's. */
#ifndef LAPILLI_CONSTRAINT_H
#define LAPILLI_CONSTRAINT_H

#include "engine.h"
#include "grammar.h"

/* The pieces and ends of a tokenizer, as grammars see them. */
enum lap_status constraint_vocabulary(const struct tokenizer *tokenizer,
	struct grammar_vocabulary **vocabulary, struct lap_error *err);

struct constraint; /* of one sequence */

/* options->grammar or options->json_schema; *constraint is NULL when there is neither.  n_vocab: of the masks,
 * at least the vocabulary's.  LAP_USAGE: both, or a text that is no grammar or no schema. */
enum lap_status constraint_create(const struct lap_generate_options *options,
	const struct grammar_vocabulary *vocabulary, uint32_t n_vocab,
	struct constraint **constraint, struct lap_error *err);
void constraint_destroy(struct constraint *c); /* NULL is allowed */

/* mask[MASK_WORDS(n_vocab)], the constraint's until the next call.  LAP_ERROR: no token of the vocabulary can
 * go on. */
enum lap_status constraint_mask(struct constraint *c, const uint32_t **mask, struct lap_error *err);

/* Goes on behind a token that the mask allowed. */
enum lap_status constraint_accept(struct constraint *c, int32_t token, struct lap_error *err);

#endif
