/* Text to words: where a byte-level BPE vocabulary cuts before it merges.
 *
 * Owns the table of pre-tokenizers (one row each: names, patterns, flags) and the regular expression
 * engine (PCRE2).  Knows no vocabulary.  Tokens never reach across a cut. */
#ifndef LAPILLI_PRETOKENIZE_H
#define LAPILLI_PRETOKENIZE_H

#include "base.h"

enum { PRETOKENIZER_STEPS = 6 }; /* most patterns of one row */

/* A space, if there is one, and ASCII letters behind it are a match in front of any ASCII character that
 * is no letter, or the end: whatever they are (WORDS_ANY); when they are capitals, perhaps none, and then
 * small letters, and no apostrophe follows (WORDS_CASED, also in front of a capital). */
enum pretokenizer_words { WORDS_NONE, WORDS_ANY, WORDS_CASED };

/* The patterns are applied one after another, each to the pieces that the one before left.  A match
 * is a piece, and so is what lies between two matches. */
struct pretokenizer_rule {
	const char *names; /* space-separated values of tokenizer.ggml.pre, the usual one first */
	const char *patterns[PRETOKENIZER_STEPS]; /* PCRE2 syntax; unused ones NULL */
	/* What each pattern makes of plain words, which are found without asking it. */
	enum pretokenizer_words words[PRETOKENIZER_STEPS];
	bool ignore_merges; /* a word that is a token itself is taken whole, whatever the merges say */
	bool add_bos;       /* the default when the file has no tokenizer.ggml.add_bos_token */
};

const struct pretokenizer_rule *pretokenizer_rules(size_t *n);

struct pretokenizer; /* immutable once created; may be shared between threads */

/* `name` (n_bytes long) is a value of tokenizer.ggml.pre; LAP_BAD_MODEL with the list of known ones
 * when no row has it.  Without `fast` every cut is asked of the interpreted patterns, the reference
 * for all that is done to be faster; they are also interpreted where the system forbids to make code at
 * run time. */
enum lap_status pretokenizer_create(const char *name, size_t n_bytes, bool fast,
	struct pretokenizer **pretokenizer, struct lap_error *err);
void pretokenizer_destroy(struct pretokenizer *p); /* NULL is allowed */

const struct pretokenizer_rule *pretokenizer_rule(const struct pretokenizer *p);

/* The words of a text, by their ends: word i is the bytes [ends[i - 1], ends[i]), ends[-1] being 0.
 * Zeroed is empty. */
struct words {
	size_t *ends;
	size_t n, capacity;
};

/* Replaces *words by the words of text[n_bytes].  No word is empty, and together they are the whole
 * text.  Each longest run of bytes that are no UTF-8 is a word of its own, and the patterns see the
 * text on its two sides as two texts. */
enum lap_status pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n_bytes,
	struct words *words, struct lap_error *err);
void words_free(struct words *words);

#endif
