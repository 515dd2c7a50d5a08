/* A request's grammar: see constraint.h. */
#include "constraint.h"

#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "schema.h"

enum lap_status constraint_vocabulary(const struct tokenizer *tokenizer,
	struct grammar_vocabulary **vocabulary, struct lap_error *err)
{
	const uint32_t n_vocab = tokenizer_info(tokenizer)->n_vocab;
	size_t n_ends;
	const int32_t *ends = tokenizer_ends(tokenizer, &n_ends);
	struct grammar_piece *pieces = array_alloc(n_vocab, sizeof(*pieces));
	*vocabulary = NULL;
	if (!pieces)
		return fail_memory(err, "a vocabulary's pieces", n_vocab * sizeof(*pieces));
	for (uint32_t i = 0; i < n_vocab; i++)
		pieces[i].bytes = tokenizer_piece(tokenizer, (int32_t)i, false, &pieces[i].n);
	enum lap_status status =
		grammar_vocabulary_create(pieces, n_vocab, ends, n_ends, vocabulary, err);
	free(pieces);
	return status;
}

struct constraint {
	struct grammar *grammar;
	struct grammar_state *state;
	uint32_t *mask; /* [MASK_WORDS(n_vocab)] */
};

static enum lap_status parse(
	const struct lap_generate_options *o, struct grammar **grammar, struct lap_error *err)
{
	*grammar = NULL;
	if (o->grammar && o->json_schema)
		return fail(err, LAP_USAGE,
			"a grammar and a JSON schema are both given, expected one of them");
	return o->grammar
		? grammar_create(o->grammar, strlen(o->grammar), NULL, grammar, err)
		: schema_to_grammar(o->json_schema, strlen(o->json_schema), NULL, grammar, err);
}

enum lap_status constraint_create(const struct lap_generate_options *o,
	const struct grammar_vocabulary *vocabulary, uint32_t n_vocab,
	struct constraint **constraint, struct lap_error *err)
{
	*constraint = NULL;
	if (!o->grammar && !o->json_schema)
		return LAP_OK;
	struct constraint *c = calloc(1, sizeof(*c));
	if (!c)
		return fail_memory(err, "a grammar", sizeof(*c));
	c->mask = array_alloc(MASK_WORDS(n_vocab), sizeof(*c->mask));
	enum lap_status status = c->mask
		? parse(o, &c->grammar, err)
		: fail_memory(err, "a mask", MASK_WORDS(n_vocab) * sizeof(*c->mask));
	if (!status)
		status = grammar_state_create(c->grammar, vocabulary, &c->state, err);
	if (status) {
		constraint_destroy(c);
		return status;
	}
	*constraint = c;
	return LAP_OK;
}

void constraint_destroy(struct constraint *c)
{
	if (!c)
		return;
	grammar_state_destroy(c->state);
	grammar_destroy(c->grammar);
	free(c->mask);
	free(c);
}

enum lap_status constraint_mask(struct constraint *c, const uint32_t **mask, struct lap_error *err)
{
	uint32_t n_allowed;
	enum lap_status status = grammar_state_mask(c->state, c->mask, &n_allowed, err);
	if (!status && n_allowed == 0)
		status = fail(err, LAP_ERROR,
			"no token of the vocabulary can spell what the grammar asks for next");
	*mask = c->mask;
	return status;
}

enum lap_status constraint_accept(struct constraint *c, int32_t token, struct lap_error *err)
{
	return grammar_state_accept(c->state, token, err);
}
