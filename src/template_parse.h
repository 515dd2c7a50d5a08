/* A template's text as a tree of nodes: the grammar of Jinja 3.1 with trim_blocks and lstrip_blocks,
 * break and continue, and the generation tag.
 *
 * Owns syntax and its errors. Knows no value but literals, and no filter, test or function by name. */
#ifndef LAPILLI_TEMPLATE_PARSE_H
#define LAPILLI_TEMPLATE_PARSE_H

#include "template_value.h"

enum node_kind {
	/* Expressions. `name` is the name; a, b, c and `items` are operands. */
	NODE_CONST,     /* value */
	NODE_NAME,      /* name */
	NODE_LIST,      /* items */
	NODE_TUPLE,     /* items */
	NODE_DICT,      /* items: key, value, key, value */
	NODE_ATTRIBUTE, /* a.name */
	NODE_INDEX,     /* a[b] */
	NODE_SLICE,     /* a[b:c:d], missing ones NULL */
	NODE_CALL,      /* a(items) */
	NODE_FILTER,    /* a | name(items); a NULL: the text of the block around it */
	NODE_TEST,      /* a is name(items) */
	NODE_NOT,       /* not a */
	NODE_AND,       /* a and b */
	NODE_OR,        /* a or b */
	NODE_COMPARE,   /* a, then items, each with `op` and a as its operand */
	NODE_BINARY,    /* a op b */
	NODE_NEGATE,    /* -a */
	NODE_PLUS,      /* +a */
	NODE_CONCAT,    /* items joined */
	NODE_IF_ELSE,   /* a if b else c; c may be NULL */
	/* Arguments, in the items of calls. */
	NODE_KEYWORD,         /* name=a */
	NODE_SPREAD,          /* *a */
	NODE_SPREAD_KEYWORDS, /* **a */
	/* Statements; `body` holds those inside. */
	NODE_TEXT,         /* value */
	NODE_PRINT,        /* {{ a }} */
	NODE_IF,           /* if a: body; else: other */
	NODE_FOR,          /* for a in b if c: body; else: other */
	NODE_SET,          /* a = b; b NULL: body, through the filters c */
	NODE_MACRO,        /* name(items): body.  Items: NODE_NAME with the default in a */
	NODE_CALL_BLOCK,   /* a is the call, items and body the caller */
	NODE_FILTER_BLOCK, /* body through a */
	NODE_WITH,         /* items: NODE_SET; body */
	NODE_SCOPE,        /* body with names of its own */
	NODE_BREAK,
	NODE_CONTINUE,
};

enum operator{
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_FLOOR,
	OP_MOD,
	OP_POW,
	OP_EQ,
	OP_NE,
	OP_LT,
	OP_LE,
	OP_GT,
	OP_GE,
	OP_IN,
	OP_NOT_IN
};

struct node {
	enum node_kind kind;
	enum operator op;
	uint32_t line, column; /* from 1; columns in characters */
	struct value value;
	const char *name;
	size_t n_name;
	struct node *a, *b, *c, *d;
	struct node *items, *body, *other;           /* first of a list */
	struct node *next;                           /* in the list it belongs to */
	bool recursive;                              /* FOR */
	bool uses_varargs, uses_kwargs, uses_caller; /* MACRO, CALL_BLOCK */
};

bool node_is(const struct node *n, const char *name);
const char *operator_text(enum operator op);

/* The statements of a template, in the pool, which must outlive them; `text` is not needed afterwards. NULL
 * for a template without any. Fails with the place in the text, what was found and what was expected. */
struct node *template_parse(struct pool *p, const char *text, size_t n);

#endif
