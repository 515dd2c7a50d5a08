/* A compiled grammar: what grammar_parse.c writes, grammar_analyse.c completes and grammar.c runs.
 *
 * Bytes are read by SET; rules are called and return, with the frames that grammar.c keeps. */
#ifndef LAPILLI_GRAMMAR_CODE_H
#define LAPILLI_GRAMMAR_CODE_H

#include "grammar.h"

enum code_kind {
	CODE_ACCEPT, /* the end of root; code[0] alone */
	CODE_SET,    /* one byte of sets[a], then the next instruction */
	CODE_SPLIT,  /* a and b both */
	CODE_JUMP,   /* a */
	CODE_CALL,   /* rule a, then the next instruction */
	CODE_RETURN,
};

struct code {
	enum code_kind kind;
	uint32_t a, b;
};

struct byte_set {
	uint32_t bits[8];
};

struct grammar {
	struct grammar_limits limits; /* with the defaults put in */
	struct code *code;
	uint32_t n_code;
	bool *live; /* [n_code]: a text leads from here to the end of the rule */
	bool *tail; /* [n_code]: nothing but the end of the rule follows */
	struct byte_set *sets;
	uint32_t n_sets;
	uint32_t n_rules; /* rule 0 is root; repeated groups have rules of their own */
	uint32_t *start;  /* [n_rules] */
	uint32_t
		*rank; /* [n_rules]: a rule comes before those it may call before it reads a byte */
	/* Bytes that no set tells apart are one class. */
	uint32_t n_classes;
	uint8_t class_of[256];
	uint8_t example[256]; /* [n_classes]: a byte of each */
};

static inline bool byte_set_has(const struct byte_set *set, unsigned byte)
{
	return set->bits[byte / 32] >> (byte % 32) & 1;
}

enum code_fault {
	CODE_FINE,
	CODE_NO_MEMORY,
	CODE_ENDLESS,        /* root matches no text */
	CODE_LEFT_RECURSIVE, /* a rule calls itself before it has read a byte */
};

/* From code, sets and start all that follows them in *g.  CODE_LEFT_RECURSIVE: *recursive is a rule of the circle,
 * and rank[] names a caller of each. */
enum code_fault code_analyse(struct grammar *g, uint32_t *recursive);

#endif
