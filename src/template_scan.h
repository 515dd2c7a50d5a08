/* A template's text as tokens: text, tags, and within tags names, literals and operators; what blanks beside a
 * tag belong to it.
 *
 * Owns places and spelling. Knows no expression and no statement. */
#ifndef LAPILLI_TEMPLATE_SCAN_H
#define LAPILLI_TEMPLATE_SCAN_H

#include "template_value.h"

enum token_kind {
	TOKEN_END,
	TOKEN_TEXT,
	TOKEN_OPEN_PRINT,
	TOKEN_OPEN_BLOCK,
	TOKEN_CLOSE,
	TOKEN_NAME,
	TOKEN_STRING,
	TOKEN_NUMBER,
	TOKEN_OPERATOR
};

struct scanner {
	struct pool *pool;
	const char *text;
	size_t n, at;   /* `at`: behind the current token */
	size_t counted; /* text up to here has been counted into `line` and `column` */
	uint32_t line, column;
	/* The current token. */
	enum token_kind token;
	size_t start; /* where it starts */
	uint32_t token_line, token_column;
	const char *piece; /* its text; for a STRING and TEXT what it stands for */
	size_t n_piece;
	struct value number;
	bool inside_block; /* a tag is open, and which */
	bool inside_print;
	unsigned n_braces; /* open within a tag */
};

/* Steps to the next token. */
void scanner_next(struct scanner *s);

/* Whether the text goes on with this behind the current token and blanks. */
bool scanner_sees(const struct scanner *s, const char *text);

#endif
