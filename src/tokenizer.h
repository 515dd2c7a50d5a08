/* Text to tokens and back, from the vocabulary of a GGUF file.
 *
 * Four families: "llama" (SentencePiece BPE: scores, byte fallback, space prefix), "gpt2"
 * (byte-level BPE over the words of a pre-tokenizer, see pretokenize.h), "bert" (WordPiece: the
 * longest pieces of small letters, see wordpiece.h) and "gemma4" (BPE over characters: merges as
 * gpt2, pieces and byte fallback as llama).  Knows no model and no device; a file without weights is
 * enough. */
#ifndef LAPILLI_TOKENIZER_H
#define LAPILLI_TOKENIZER_H

#include "gguf.h"

struct tokenizer; /* immutable once created; may be shared between threads */

/* False for a file without a vocabulary: it names no tokenizer, or "none" or "no_vocab". */
bool tokenizer_in(const struct gguf *gguf);

/* Everything is checked here: lengths of the arrays against each other, ids against n_vocab, the
 * pre-tokenizer's name against the list (LAP_BAD_MODEL).  What is needed of the GGUF is copied. */
enum lap_status tokenizer_create(
	const struct gguf *gguf, struct tokenizer **tokenizer, struct lap_error *err);
void tokenizer_destroy(struct tokenizer *t); /* NULL is allowed */

/* What info prints and generation needs.  Ids are -1 when there is none. */
struct tokenizer_info {
	const char *model; /* "llama", "gpt2", "bert", "gemma4" */
	const char *pre;   /* pre-tokenizer, as the file names it; "" but for gpt2 */
	uint32_t n_vocab;
	int32_t bos, eos, eot, unknown, padding; /* bert: bos is [CLS], eos [SEP] */
	bool add_bos, add_eos;
	bool add_space_prefix;
};

const struct tokenizer_info *tokenizer_info(const struct tokenizer *t);

/* As lap_tokenize; *tokens is malloc'ed.
 * - Special tokens are cut out of the text first, from left to right, the longest at each place:
 *   user-defined ones always, control and unknown ones with parse_special.
 * - llama: each stretch of text at the start or behind a special token gets a space in front, unless
 *   the file says add_space_prefix false.  Nothing is put before an empty stretch.
 * - gemma4: nothing is put in front, and no token reaches across an end of a run of newlines.  A run
 *   that is a token is taken whole.
 * - Bytes that are no UTF-8 are kept.  llama, gemma4: each is a symbol of its own, written as its byte
 *   token.
 *   gpt2: a run of them is a word of its own and is merged like any other.  So decoding gives back
 *   the same bytes, wherever the vocabulary has all byte tokens.
 * - bert: a text is lost where its vocabulary knows no difference (capitals, accents, spaces); a
 *   word that it cannot spell is one unknown token, and bytes that are no UTF-8 are left out.
 * - What else the vocabulary cannot spell becomes the unknown token, one for a whole run; without
 *   one it is left out (gpt2) or LAP_USAGE (llama, gemma4).
 * - With add_special a text that spells BOS itself gets a second one in front. */
enum lap_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes,
	bool add_special, bool parse_special, int32_t **tokens, size_t *n, struct lap_error *err);

/* Bytes of one token as they appear inside a text (SPM's underline is a space already), not
 * NUL-terminated, *n_bytes long.  Control, unknown and unused tokens, and ids that are no tokens,
 * give nothing unless `special`, which shows what the first three are called. */
const char *tokenizer_piece(
	const struct tokenizer *t, int32_t token, bool special, size_t *n_bytes);

/* True for EOS, EOT, end-of-message and the other tokens that end a generation: those the file's
 * keys name and the control tokens spelled like one. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t token);

/* The end-of-generation ids, ascending; valid as long as the tokenizer. */
const int32_t *tokenizer_ends(const struct tokenizer *t, size_t *n);

/* Streaming: give tokens one by one, take whole characters.  Zeroed is the start of a text; to go on
 * behind a prompt set `started`. */
struct decoder {
	bool special; /* show control tokens */
	bool started; /* text came out: the space that SPM puts before the first word was handled */
	char pending[4]; /* bytes of a character not yet whole */
	unsigned n_pending;
};

/* Appends to *out what became complete with this token.  Bytes that can be no part of a character
 * pass as they are, so that all that came out is the text of all tokens.  false: out of memory. */
bool decoder_add(const struct tokenizer *t, struct decoder *d, int32_t token, struct text *out);
/* Appends what was held back and never completed. */
bool decoder_finish(struct decoder *d, struct text *out);

#endif
