/* What may be drawn next: a grammar over bytes, as a bit mask over a vocabulary.
 *
 * A grammar is GBNF, the notation of llama.cpp's users (docs/generation.md lists it).  It is compiled to an
 * automaton with a stack that reads bytes; character classes become sequences of bytes, so a token that ends
 * in the middle of a character needs no special case and is allowed exactly when some rest of the
 * character is.  Knows no models and no tokenizers: a vocabulary is an array of byte strings.
 *
 * How it runs: a state of the automaton is a set of {place in the grammar, frame to return to}, frames are
 * sets of the same, and both are kept once each however they were reached.  So ambiguous grammars take
 * polynomial room, and what follows a state (its successors, its mask) is computed the first time only. */
#ifndef LAPILLI_GRAMMAR_H
#define LAPILLI_GRAMMAR_H

#include "base.h"

/* 0: the default. */
struct grammar_limits {
	uint64_t n_bytes;  /* of GBNF; 4 MiB */
	uint32_t n_code;   /* instructions it compiles to; 1,048,576 */
	uint32_t n_repeat; /* the largest number in {m,n}; 65,536 */
	uint32_t n_items;  /* places in the grammar that a state may be at together; 65,536 */
	uint64_t
		n_steps; /* of the closure within one call of mask or accept; 10,000,000, some tenths of a second */
	uint64_t n_memory; /* bytes of the automaton that sequences of one grammar share; 128 MiB */
};

struct grammar; /* immutable once created; may be shared between threads */

/* `limits` may be NULL.  Refused, with line and column (LAP_USAGE): what is no GBNF, rules that are undefined or
 * defined twice, no rule "root", left recursion, a root that matches no text of finite length, and more than
 * the limits.  Rules that can never end are never entered. */
enum lap_status grammar_create(const char *gbnf, size_t n, const struct grammar_limits *limits,
	struct grammar **grammar, struct lap_error *err);
void grammar_destroy(struct grammar *g); /* NULL is allowed; after its states */

struct grammar_piece {
	const char *bytes; /* what the token adds to a text */
	size_t n;          /* 0: a control token, never allowed unless it is one of the ends */
};

struct grammar_vocabulary; /* immutable once created; may be shared between threads and grammars */

/* pieces[n_vocab] and the tokens that end a generation, ends[n_ends] (ids below n_vocab; a piece of theirs is
 * not looked at).  Everything is copied.  One for each model.  LAP_USAGE: an id out of range, a piece of
 * 16 MiB or more, 4 GiB altogether. */
enum lap_status grammar_vocabulary_create(const struct grammar_piece *pieces, uint32_t n_vocab,
	const int32_t *ends, size_t n_ends, struct grammar_vocabulary **vocabulary,
	struct lap_error *err);
void grammar_vocabulary_destroy(
	struct grammar_vocabulary *v); /* NULL is allowed; after its states */

/* Where one sequence stands.  Clones share what was computed; clones of one state, and they alone, must not be
 * used by two threads at a time.  For many sequences with one grammar create one state and clone it. */
struct grammar_state;

enum lap_status grammar_state_create(const struct grammar *g, const struct grammar_vocabulary *v,
	struct grammar_state **state, struct lap_error *err);
enum lap_status grammar_state_clone(
	const struct grammar_state *state, struct grammar_state **clone, struct lap_error *err);
void grammar_state_destroy(struct grammar_state *state); /* NULL is allowed */

/* mask[(n_vocab + 31) / 32]: bit id % 32 of word id / 32 is set where the token is allowed: some text of the
 * grammar begins with what was accepted and the token's piece.  An end is allowed where the text is
 * whole, and behind an end nothing else.  *n_allowed (may be NULL): how many bits are set; 0 when the vocabulary
 * cannot spell what must follow.  LAP_ERROR: more than the limits; LAP_NO_MEMORY. */
enum lap_status grammar_state_mask(
	struct grammar_state *state, uint32_t *mask, uint32_t *n_allowed, struct lap_error *err);

/* Goes on behind the token.  LAP_USAGE: it is not allowed here; LAP_ERROR: more than the limits; LAP_NO_MEMORY.
 * The state is as it was after any of them. */
enum lap_status grammar_state_accept(
	struct grammar_state *state, int32_t token, struct lap_error *err);

/* The same with bytes that need not be a token. */
enum lap_status grammar_state_accept_bytes(
	struct grammar_state *state, const void *bytes, size_t n, struct lap_error *err);

/* True when what was accepted is a whole text of the grammar (which may still go on). */
bool grammar_state_is_complete(const struct grammar_state *state);

#endif
