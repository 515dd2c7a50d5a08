/* The tokens of a GGUF file as tables: what bytes each stands for, which pairs merge, which are cut
 * out of a text as they stand.
 *
 * Owns every check of these arrays.  Knows nothing of how a text is cut and merged: that is
 * tokenizer.c, the only user. */
#ifndef LAPILLI_VOCABULARY_H
#define LAPILLI_VOCABULARY_H

#include "gguf.h"

enum token_type { /* numbered as in GGUF; 0 is written by some and means normal */
	TOKEN_NORMAL = 1,
	TOKEN_UNKNOWN,
	TOKEN_CONTROL,
	TOKEN_USER, /* user-defined */
	TOKEN_UNUSED,
	TOKEN_BYTE,
	N_TOKEN_TYPES
};

struct token {
	const char *text; /* the bytes it stands for in a text, not as the file spells them */
	uint32_t n;
	uint32_t order; /* SPM: the score as an integer that sorts the other way, the best lowest */
	enum token_type type;
};

/* A pair of tokens that merge. */
struct merge {
	int32_t left, right; /* left < 0: an empty slot */
	uint32_t rank;       /* place in the file: the lowest goes first */
	int32_t id;          /* of the joined piece */
};

/* A token that is cut out of a text before anything else. */
struct special {
	const char *text;
	uint32_t n;
	int32_t id;
	bool always; /* user-defined */
};

enum vocabulary_family { /* in the order of tokenizer_families */
	FAMILY_SPM,
	FAMILY_BPE, /* byte-level; has merges */
	FAMILY_WORDPIECE,
	FAMILY_CHARACTERS, /* BPE over characters: merges, in SPM's spelling */
};

/* True where a text is merged from its characters, and a byte has a token <0xNN>. */
static inline bool begins_with_characters(enum vocabulary_family family)
{
	return family == FAMILY_SPM || family == FAMILY_CHARACTERS;
}

struct vocabulary {
	enum vocabulary_family family;
	uint32_t n_tokens;
	struct token *tokens;
	int32_t byte_ids[256]; /* the token of each byte, -1: none */
	char *bytes;           /* private from here on: what tokens[].text point into */
	struct piece_slot *pieces;
	struct merge *merges;
	uint32_t *byte_merges;  /* [256][256]: slot + 1 of the merge of two byte tokens; 0: none */
	uint64_t *merge_filter; /* a bit for each pair that may merge, and a few others */
	size_t piece_mask, merge_mask;
	uint32_t longest;         /* bytes of the longest piece */
	uint32_t within[256][8];  /* bit b of [a]: some piece has byte b right behind byte a */
	struct special *specials; /* sorted by bytes */
	uint32_t n_specials;
	uint32_t first[257]; /* specials that begin with byte b: first[b] to first[b + 1] */
};

/* LAP_BAD_MODEL with found and expected.  Nothing points into the GGUF afterwards.  On failure too
 * vocabulary_free is due. */
enum lap_status vocabulary_load(struct vocabulary *v, const struct gguf *g,
	enum vocabulary_family family, struct lap_error *err);
void vocabulary_free(struct vocabulary *v);

/* The id of the normal token (but for byte-level BPE: or user-defined one) for these bytes, or -1.
 * WordPiece: a piece that begins a word begins with a space. */
int32_t vocabulary_piece(const struct vocabulary *v, const char *text, size_t n);

/* How two tokens, or the tokens of two bytes, merge, or NULL. */
const struct merge *vocabulary_merge(const struct vocabulary *v, int32_t left, int32_t right);
const struct merge *vocabulary_byte_merge(
	const struct vocabulary *v, unsigned char left, unsigned char right);

/* True when no piece reaches from byte a to byte b behind it. */
static inline bool vocabulary_parts(const struct vocabulary *v, unsigned char a, unsigned char b)
{
	return !(v->within[a][b / 32] & (uint32_t)1 << b % 32);
}

/* The longest special token at the start of text[n], n > 0, or NULL.  User-defined tokens are found
 * always, control and unknown ones with parse_special. */
const struct special *vocabulary_special(
	const struct vocabulary *v, const char *text, size_t n, bool parse_special);

/* The control token with this name, or -1. */
int32_t vocabulary_control(const struct vocabulary *v, const char *name);

/* Copies the spelling of a text that all families but byte-level BPE use, in which U+2581 is a space,
 * with spaces; in place too.  *n_out is its length, at most n. */
void underlines_decode(const char *s, size_t n, char *out, uint32_t *n_out);

/* Tokens that are control tokens by their name, even where a file calls them user-defined.  Those of
 * the form <|name|> are so even where it calls them normal. */
enum role {
	ROLE_CONTROL, /* marks a part of the prompt */
	ROLE_END,     /* ends a generation */
	ROLE_TURN,    /* ends one too, and serves as EOT: the first found, where no key names it */
};

struct control_name {
	const char *text;
	enum role role;
};

const struct control_name *control_names(size_t *n);

#endif
