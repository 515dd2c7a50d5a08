/* The grammar of templates: see template_parse.h. */
#include "template_parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct parser {
	struct pool *pool;
	const char *text;
	size_t n, at;   /* `at`: behind the current token */
	size_t counted; /* text up to here has been counted into `line` and `column` */
	uint32_t line, column;
	/* The current token. */
	enum token_kind token;
	size_t start; /* where it starts */
	uint32_t token_line, token_column;
	const char *s; /* its text; for a STRING and TEXT what it stands for */
	size_t n_s;
	struct value number;
	bool inside_block; /* a tag is open, and which */
	bool inside_print;
	unsigned n_braces; /* open within a tag */
	unsigned n_loops;  /* around the current statement */
	bool saw_varargs, saw_kwargs, saw_caller;
};

/* ---- places ---------------------------------------------------------------------------------- */

/* Errors and nodes name the place of the current token. Counts on from the one before, so that a text is
 * counted once; an error may go back to where something was opened. */
static void mark(struct parser *p, size_t at)
{
	if (at < p->counted) {
		p->counted = 0;
		p->line = p->column = 1;
	}
	while (p->counted < at) {
		bool ends_line = p->text[p->counted] == '\n';
		p->counted += char_bytes(p->text + p->counted, at - p->counted);
		p->line += ends_line;
		p->column = ends_line ? 1 : p->column + 1;
	}
	p->token_line = p->pool->line = p->line;
	p->token_column = p->pool->column = p->column;
}

static struct node *node_new(struct parser *p, enum node_kind kind)
{
	struct node *n = pool_alloc(p->pool, 1, sizeof *n);
	n->kind = kind;
	n->line = p->token_line;
	n->column = p->token_column;
	return n;
}

static struct node *node_with(struct parser *p, enum node_kind kind, struct node *a, struct node *b)
{
	struct node *n = node_new(p, kind);
	n->a = a;
	n->b = b;
	return n;
}

bool node_is(const struct node *n, const char *name)
{
	return n->n_name == strlen(name) && memcmp(n->name, name, n->n_name) == 0;
}

static void append(struct node ***end, struct node *n)
{
	**end = n;
	*end = &n->next;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool at_text(const struct parser *p, size_t at, const char *what)
{
	size_t n = strlen(what);
	return at + n <= p->n && memcmp(p->text + at, what, n) == 0;
}

static bool is_space_at(const struct parser *p, size_t at)
{
	return at < p->n && char_is_space((unsigned char)p->text[at]) &&
		(unsigned char)p->text[at] < 128;
}

static bool is_name_byte(char c, bool first)
{
	unsigned char u = (unsigned char)c;
	return (u | 32) >= 'a' && (u | 32) <= 'z'
		? u < 128
		: u == '_' || u >= 128 || (!first && u >= '0' && u <= '9');
}

static void skip_space(struct parser *p)
{
	while (is_space_at(p, p->at))
		p->at++;
}

/* What the end of a tag takes away behind it; `sign` is '-', '+' or 0. */
static void close_tag(struct parser *p, char sign, bool trims)
{
	if (sign == '-')
		skip_space(p);
	else if (sign != '+' && trims && p->at < p->n && p->text[p->at] == '\n')
		p->at++;
}

/* Behind `{%` and its like: the sign, if there is one. */
static char tag_sign(struct parser *p)
{
	char c = p->at < p->n ? p->text[p->at] : 0;
	if (c != '-' && c != '+')
		return 0;
	p->at++;
	return c;
}

/* The text between `from` and the tag at `to`, without what the tag takes away before it. */
static void cut_text(struct parser *p, size_t from, size_t to, char sign, bool lstrip)
{
	size_t end = to;
	if (sign == '-') {
		while (end > from && is_space_at(p, end - 1))
			end--;
	} else if (sign != '+' && lstrip) {
		size_t start = end;
		while (start > from && p->text[start - 1] != '\n' && is_space_at(p, start - 1))
			start--;
		if (start == 0 || p->text[start - 1] == '\n')
			end = start;
	}
	p->s = p->text + from;
	p->n_s = end - from;
}

/* The position of the tag `name` (raw or endraw) with all of its blanks, when it stands at `at`:
 * *after is behind it, with the signs on both sides. */
static bool raw_tag(struct parser *p, size_t at, const char *name, size_t *after, char signs[2])
{
	size_t back = p->at;
	bool found = false;
	p->at = at + 2;
	signs[0] = tag_sign(p);
	skip_space(p);
	if (at_text(p, at, "{%") && at_text(p, p->at, name)) {
		p->at += strlen(name);
		skip_space(p);
		signs[1] = at_text(p, p->at, "-%}") ? '-' : at_text(p, p->at, "+%}") ? '+' : 0;
		p->at += signs[1] != 0;
		found = at_text(p, p->at, "%}");
		*after = p->at + 2;
	}
	p->at = back;
	return found;
}

/* At `{% raw %}`: the text up to `{% endraw %}` becomes the token. */
static void read_raw(struct parser *p, size_t after, char sign)
{
	size_t opened = p->at, end;
	char signs[2];
	p->at = after;
	close_tag(p, sign, false);
	size_t from = p->at;
	for (size_t at = from; at < p->n; at++)
		if (at_text(p, at, "{%") && raw_tag(p, at, "endraw", &end, signs)) {
			cut_text(p, from, at, signs[0], true);
			p->at = end;
			close_tag(p, signs[1], true);
			return;
		}
	mark(p, opened);
	pool_fail(p->pool, "{%% raw %%} without {%% endraw %%}");
}

static void skip_comment(struct parser *p)
{
	size_t opened = p->at;
	p->at += 2;
	tag_sign(p);
	for (size_t from = p->at; p->at < p->n; p->at++)
		if (at_text(p, p->at, "#}")) {
			char before = p->at > from ? p->text[p->at - 1] : 0;
			p->at += 2;
			close_tag(p, before == '-' || before == '+' ? before : 0, true);
			return;
		}
	mark(p, opened);
	pool_fail(p->pool, "{# without #}");
}

/* Text up to the next tag, which may be empty. */
static void read_text(struct parser *p)
{
	size_t from = p->at, at = from, after;
	char signs[2];
	p->token = TOKEN_TEXT;
	while (at < p->n &&
		!(p->text[at] == '{' && at + 1 < p->n && memchr("{%#", p->text[at + 1], 3)))
		at++;
	if (at >= p->n) {
		cut_text(p, from, p->n, '+', false);
		p->at = p->n;
		if (!p->n_s)
			p->token = TOKEN_END;
		return;
	}
	p->at = at + 2;
	char sign = tag_sign(p);
	p->at = at;
	cut_text(p, from, at, sign, p->text[at + 1] != '{');
	if (p->n_s)
		return; /* the tag is the next token; it finds no text before it */
	if (p->text[at + 1] == '#') {
		skip_comment(p);
	} else if (p->text[at + 1] == '%' && raw_tag(p, at, "raw", &after, signs)) {
		read_raw(p, after, signs[1]);
	} else {
		p->token = p->text[at + 1] == '%' ? TOKEN_OPEN_BLOCK : TOKEN_OPEN_PRINT;
		p->inside_block = p->token == TOKEN_OPEN_BLOCK;
		p->inside_print = !p->inside_block;
		p->n_braces = 0;
		p->start = at;
		mark(p, at);
		p->at = at + 2;
		tag_sign(p);
	}
}

static unsigned hex_value(char c)
{
	return c >= '0' && c <= '9'                  ? (unsigned)(c - '0')
		: (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a') + 10
						     : 16;
}

static void build_code(struct parser *p, struct builder *b, uint32_t code)
{
	char bytes[4];
	if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
		code = 0xFFFD;
	build(p->pool, b, bytes, utf8_encode(code, bytes));
}

/* The escape behind a backslash, as in Python; unknown ones stay with their backslash. */
static void read_escape(struct parser *p, struct builder *b)
{
	static const char letters[] = "\\'\"abfnrtv", characters[] = "\\'\"\a\b\f\n\r\t\v";
	char c = p->text[p->at++];
	const char *letter = c ? strchr(letters, c) : NULL;
	unsigned n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (letter) {
		build(p->pool, b, &characters[letter - letters], 1);
	} else if (c >= '0' && c <= '7') {
		uint32_t code = (uint32_t)(c - '0');
		for (int i = 0; i < 2 && p->text[p->at] >= '0' && p->text[p->at] <= '7'; i++)
			code = code * 8 + (uint32_t)(p->text[p->at++] - '0');
		build_code(p, b, code);
	} else if (n_digits) {
		uint32_t code = 0;
		for (unsigned i = 0; i < n_digits; i++) {
			unsigned digit = p->at < p->n ? hex_value(p->text[p->at]) : 16;
			if (digit > 15)
				pool_fail(p->pool, "\\%c in a string needs %u hexadecimal digits",
					c, n_digits);
			code = code * 16 + digit;
			p->at++;
		}
		build_code(p, b, code);
	} else if (c != '\n') {
		build_text(p->pool, b, "\\");
		build(p->pool, b, &c, 1);
	}
}

static void read_string(struct parser *p)
{
	char quote = p->text[p->at++];
	struct builder b = {0};
	while (p->at < p->n && p->text[p->at] != quote) {
		if (p->text[p->at] == '\\' && p->at + 1 < p->n) {
			p->at++;
			read_escape(p, &b);
		} else {
			build(p->pool, &b, p->text + p->at++, 1);
		}
	}
	if (p->at >= p->n)
		pool_fail(p->pool, "a string without its closing %c", quote);
	p->at++;
	p->token = TOKEN_STRING;
	p->s = b.data;
	p->n_s = b.n;
}

static bool is_digit_at(const struct parser *p, size_t at)
{
	return at < p->n && p->text[at] >= '0' && p->text[at] <= '9';
}

/* Digits with single '_' between them, appended to the number. */
static void take_digits(struct parser *p, char *number, size_t *n, size_t capacity)
{
	while (is_digit_at(p, p->at) ||
		(p->at < p->n && p->text[p->at] == '_' && is_digit_at(p, p->at + 1))) {
		if (*n + 1 >= capacity)
			pool_fail(p->pool, "a number of more than %zu digits", capacity - 1);
		if (p->text[p->at] != '_')
			number[(*n)++] = p->text[p->at];
		p->at++;
	}
}

static int number_base(const struct parser *p)
{
	char c = p->text[p->at] == '0' && p->at + 1 < p->n ? (char)(p->text[p->at + 1] | 32) : 0;
	int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
	if (base != 10 && (p->at + 2 >= p->n || hex_value(p->text[p->at + 2]) >= (unsigned)base))
		base = 10;
	return base;
}

static void read_number(struct parser *p)
{
	char number[400];
	size_t n = 0;
	bool whole = true;
	int base = number_base(p);
	p->token = TOKEN_NUMBER;
	errno = 0;
	if (base != 10) {
		for (p->at += 2; p->at < p->n && n + 1 < sizeof number &&
			(hex_value(p->text[p->at]) < (unsigned)base || p->text[p->at] == '_');
			p->at++)
			if (p->text[p->at] != '_')
				number[n++] = p->text[p->at];
	} else {
		bool after_dot = p->at > 0 && p->text[p->at - 1] == '.'; /* x.1.2 is (x.1).2 */
		take_digits(p, number, &n, sizeof number);
		if (!after_dot && p->at < p->n && p->text[p->at] == '.' &&
			is_digit_at(p, p->at + 1)) {
			whole = false;
			number[n++] = p->text[p->at++];
			take_digits(p, number, &n, sizeof number - 2);
		}
		size_t e = p->at + 1;
		e += e < p->n && (p->text[e] == '+' || p->text[e] == '-');
		if (!after_dot && p->at < p->n && (p->text[p->at] | 32) == 'e' &&
			is_digit_at(p, e) && n + 4 < sizeof number) {
			whole = false;
			while (p->at < e)
				number[n++] = p->text[p->at++];
			take_digits(p, number, &n, sizeof number);
		}
	}
	number[n] = '\0';
	p->number =
		whole ? value_int(strtoll(number, NULL, base)) : value_float(strtod(number, NULL));
	if (whole && errno)
		p->number = value_float(strtod(number, NULL));
}

static void read_operator(struct parser *p)
{
	static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
		"*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",",
		";"};
	for (size_t i = 0; i < ARRAY_COUNT(operators); i++)
		if (at_text(p, p->at, operators[i])) {
			p->token = TOKEN_OPERATOR;
			p->s = operators[i];
			p->n_s = strlen(operators[i]);
			p->at += p->n_s;
			if (strchr("[({", *p->s))
				p->n_braces++;
			else if (strchr("])}", *p->s) && p->n_braces)
				p->n_braces--;
			return;
		}
	unsigned char c = (unsigned char)p->text[p->at];
	pool_fail(
		p->pool, c > 32 && c < 127 ? "unexpected character '%c'" : "unexpected byte %d", c);
}

/* The end of the open tag at `at`, if it is there. */
static bool read_close(struct parser *p)
{
	const char *close = p->inside_block ? "%}" : "}}";
	size_t at = p->at;
	char sign = 0;
	if (p->n_braces)
		return false;
	if (at < p->n && (p->text[at] == '-' || (p->text[at] == '+' && p->inside_block)))
		sign = p->text[at++];
	if (!at_text(p, at, close))
		return false;
	p->token = TOKEN_CLOSE;
	p->s = close;
	p->n_s = 2;
	p->at = at + 2;
	close_tag(p, sign, p->inside_block);
	p->inside_block = p->inside_print = false;
	return true;
}

/* Steps to the next token. */
static void next(struct parser *p)
{
	pool_work(p->pool, 0);
	if (!p->inside_block && !p->inside_print) {
		do {
			p->start = p->at;
			mark(p, p->start);
			read_text(p);
		} while (p->token == TOKEN_TEXT && !p->n_s); /* a comment, an empty raw */
		return;
	}
	skip_space(p);
	p->start = p->at;
	mark(p, p->at);
	if (read_close(p))
		return;
	char c = p->at < p->n ? p->text[p->at] : 0;
	if (p->at >= p->n) {
		p->token = TOKEN_END;
	} else if (is_name_byte(c, true)) {
		p->token = TOKEN_NAME;
		while (p->at < p->n && is_name_byte(p->text[p->at], false))
			p->at++;
		p->s = p->text + p->start;
		p->n_s = p->at - p->start;
	} else if (c == '"' || c == '\'') {
		read_string(p);
	} else if (c >= '0' && c <= '9') {
		read_number(p);
	} else {
		read_operator(p);
	}
}

static bool is(const struct parser *p, enum token_kind kind, const char *text)
{
	return p->token == kind && p->n_s == strlen(text) && memcmp(p->s, text, p->n_s) == 0;
}

static bool is_op(const struct parser *p, const char *text)
{
	return is(p, TOKEN_OPERATOR, text);
}

static bool is_word(const struct parser *p, const char *text)
{
	return is(p, TOKEN_NAME, text);
}

static bool take_op(struct parser *p, const char *text)
{
	bool found = is_op(p, text);
	if (found)
		next(p);
	return found;
}

static bool take_word(struct parser *p, const char *text)
{
	bool found = is_word(p, text);
	if (found)
		next(p);
	return found;
}

static _Noreturn void unexpected(struct parser *p, const char *expected)
{
	switch (p->token) {
	case TOKEN_END:
		pool_fail(p->pool, "found the end of the template, expected %s", expected);
	case TOKEN_STRING:
		pool_fail(p->pool, "found a string, expected %s", expected);
	case TOKEN_NUMBER:
		pool_fail(p->pool, "found a number, expected %s", expected);
	case TOKEN_TEXT:
		pool_fail(p->pool, "found text, expected %s", expected);
	default:
		pool_fail(p->pool, "found '%.*s', expected %s", (int)(p->n_s < 60 ? p->n_s : 60),
			p->s, expected);
	}
}

static void expect_op(struct parser *p, const char *text)
{
	char quoted[8];
	snprintf(quoted, sizeof quoted, "'%s'", text);
	if (!take_op(p, text))
		unexpected(p, quoted);
}

static void expect_word(struct parser *p, const char *text)
{
	char quoted[24];
	snprintf(quoted, sizeof quoted, "'%s'", text);
	if (!take_word(p, text))
		unexpected(p, quoted);
}

/* The end of the tag; then on to what follows it. */
static void expect_close(struct parser *p, const char *expected)
{
	if (p->token != TOKEN_CLOSE)
		unexpected(p, expected);
	next(p);
}

static void set_name(struct parser *p, struct node *n, const char *expected)
{
	if (p->token != TOKEN_NAME)
		unexpected(p, expected);
	struct value copy = value_copy(p->pool, p->s, p->n_s);
	n->name = copy.s;
	n->n_name = copy.n;
	p->saw_varargs |= node_is(n, "varargs");
	p->saw_kwargs |= node_is(n, "kwargs");
	p->saw_caller |= node_is(n, "caller");
	next(p);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct node *parse_expression(struct parser *p);
static struct node *parse_or(struct parser *p);
static struct node *parse_unary(struct parser *p, bool with_filters);

const char *operator_text(enum operator op)
{
	static const char *const texts[] = {"+", "-", "*", "/", "//", "%", "** or pow()",
		"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
	return texts[op];
}

static struct node *parse_constant(struct parser *p, struct value v)
{
	struct node *n = node_new(p, NODE_CONST);
	n->value = v;
	next(p);
	return n;
}

/* Strings side by side are one. */
static struct node *parse_string(struct parser *p)
{
	struct node *n = node_new(p, NODE_CONST);
	struct builder b = {0};
	for (; p->token == TOKEN_STRING; next(p))
		build(p->pool, &b, p->s, p->n_s);
	n->value = built(&b);
	return n;
}

static struct node *parse_name(struct parser *p)
{
	static const struct {
		const char *word;
		enum value_kind kind;
		bool b;
	} words[] = {{"true", VALUE_BOOL, true}, {"True", VALUE_BOOL, true},
		{"false", VALUE_BOOL, false}, {"False", VALUE_BOOL, false},
		{"none", VALUE_NONE, false}, {"None", VALUE_NONE, false}};
	for (size_t i = 0; i < ARRAY_COUNT(words); i++)
		if (is_word(p, words[i].word))
			return parse_constant(p,
				words[i].kind == VALUE_NONE ? value_none()
							    : value_bool(words[i].b));
	struct node *n = node_new(p, NODE_NAME);
	set_name(p, n, "a name");
	return n;
}

/* Items between commas up to `close`, which is taken; true when a comma was there. */
static bool parse_items(struct parser *p, struct node **items, const char *close)
{
	bool comma = false;
	while (!is_op(p, close)) {
		append(&items, parse_expression(p));
		if (is_op(p, close))
			break;
		expect_op(p, ",");
		comma = true;
	}
	expect_op(p, close);
	return comma;
}

static struct node *parse_group(struct parser *p)
{
	struct node *tuple = node_new(p, NODE_TUPLE);
	next(p);
	bool comma = parse_items(p, &tuple->items, ")");
	return comma || !tuple->items ? tuple : tuple->items;
}

static struct node *parse_list(struct parser *p)
{
	struct node *list = node_new(p, NODE_LIST);
	next(p);
	parse_items(p, &list->items, "]");
	return list;
}

static struct node *parse_dict(struct parser *p)
{
	struct node *dict = node_new(p, NODE_DICT), **end = &dict->items;
	next(p);
	while (!is_op(p, "}")) {
		append(&end, parse_expression(p));
		expect_op(p, ":");
		append(&end, parse_expression(p));
		if (!is_op(p, "}"))
			expect_op(p, ",");
	}
	expect_op(p, "}");
	return dict;
}

static struct node *parse_primary(struct parser *p)
{
	if (p->token == TOKEN_NAME)
		return parse_name(p);
	if (p->token == TOKEN_STRING)
		return parse_string(p);
	if (p->token == TOKEN_NUMBER)
		return parse_constant(p, p->number);
	if (is_op(p, "("))
		return parse_group(p);
	if (is_op(p, "["))
		return parse_list(p);
	if (is_op(p, "{"))
		return parse_dict(p);
	unexpected(p, "an expression");
}

/* The tokens of a keyword argument: a name and '='. Nothing is taken. */
static bool at_keyword(const struct parser *p)
{
	size_t at = p->at;
	while (is_space_at(p, at))
		at++;
	return p->token == TOKEN_NAME && at_text(p, at, "=") && !at_text(p, at, "==");
}

static struct node *parse_argument(struct parser *p)
{
	struct node *n;
	if (is_op(p, "*") || is_op(p, "**")) {
		n = node_new(p, is_op(p, "*") ? NODE_SPREAD : NODE_SPREAD_KEYWORDS);
		next(p);
		n->a = parse_expression(p);
		return n;
	}
	if (!at_keyword(p))
		return parse_expression(p);
	n = node_new(p, NODE_KEYWORD);
	set_name(p, n, "a name");
	next(p);
	n->a = parse_expression(p);
	return n;
}

/* From '(' on. */
static struct node *parse_arguments(struct parser *p)
{
	struct node *first = NULL, **end = &first;
	bool keywords = false;
	expect_op(p, "(");
	while (!is_op(p, ")")) {
		struct node *n = parse_argument(p);
		bool keyword = n->kind == NODE_KEYWORD || n->kind == NODE_SPREAD_KEYWORDS;
		if (keywords && !keyword && n->kind != NODE_SPREAD)
			pool_fail(p->pool, "an argument without a name behind one with a name");
		keywords |= keyword;
		append(&end, n);
		if (!is_op(p, ")"))
			expect_op(p, ",");
	}
	expect_op(p, ")");
	return first;
}

/* Behind '[': an index or a slice. */
static struct node *parse_subscript(struct parser *p, struct node *a)
{
	struct node *n = node_with(p, NODE_INDEX, a, NULL);
	next(p);
	if (!is_op(p, ":"))
		n->b = parse_expression(p);
	if (is_op(p, ",")) {
		struct node *tuple = node_new(p, NODE_TUPLE);
		tuple->items = n->b;
		next(p);
		parse_items(p, &n->b->next, "]");
		n->b = tuple;
		return n;
	}
	if (take_op(p, ":")) {
		n->kind = NODE_SLICE;
		if (!is_op(p, ":") && !is_op(p, "]"))
			n->c = parse_expression(p);
		if (take_op(p, ":") && !is_op(p, "]"))
			n->d = parse_expression(p);
	}
	expect_op(p, "]");
	return n;
}

static struct node *parse_attribute(struct parser *p, struct node *a)
{
	struct node *n = node_with(p, NODE_ATTRIBUTE, a, NULL);
	next(p);
	if (p->token == TOKEN_NUMBER && p->number.kind == VALUE_INT) {
		n->kind = NODE_INDEX;
		n->b = parse_constant(p, p->number);
	} else {
		set_name(p, n, "a name or a number behind '.'");
	}
	return n;
}

static struct node *parse_postfix(struct parser *p, struct node *a)
{
	for (;;) {
		if (is_op(p, ".")) {
			a = parse_attribute(p, a);
		} else if (is_op(p, "[")) {
			a = parse_subscript(p, a);
		} else if (is_op(p, "(")) {
			a = node_with(p, NODE_CALL, a, NULL);
			a->items = parse_arguments(p);
		} else {
			return a;
		}
	}
}

/* The name of a filter, behind its '|', with its arguments. */
static struct node *parse_filter(struct parser *p, struct node *a)
{
	struct node *n = node_with(p, NODE_FILTER, a, NULL);
	set_name(p, n, "the name of a filter");
	if (is_op(p, "("))
		n->items = parse_arguments(p);
	return n;
}

static bool starts_argument(const struct parser *p)
{
	static const char *const words[] = {"else", "or", "and", "if", "is", "not", "in"};
	for (size_t i = 0; i < ARRAY_COUNT(words); i++)
		if (is_word(p, words[i]))
			return false;
	return p->token == TOKEN_NAME || p->token == TOKEN_STRING || p->token == TOKEN_NUMBER ||
		is_op(p, "[") || is_op(p, "{");
}

/* Behind `is`. */
static struct node *parse_test(struct parser *p, struct node *a)
{
	bool negated = take_word(p, "not");
	struct node *n = node_with(p, NODE_TEST, a, NULL);
	set_name(p, n, "the name of a test");
	if (is_op(p, "("))
		n->items = parse_arguments(p);
	else if (starts_argument(p))
		n->items = parse_postfix(p, parse_primary(p));
	else if (is_word(p, "is"))
		pool_fail(p->pool, "tests cannot be chained with 'is'");
	return negated ? node_with(p, NODE_NOT, n, NULL) : n;
}

static struct node *parse_filters(struct parser *p, struct node *a)
{
	for (;;) {
		if (take_op(p, "|")) {
			a = parse_filter(p, a);
		} else if (take_word(p, "is")) {
			a = parse_test(p, a);
		} else if (is_op(p, "(")) {
			a = node_with(p, NODE_CALL, a, NULL);
			a->items = parse_arguments(p);
		} else {
			return a;
		}
	}
}

static struct node *parse_unary(struct parser *p, bool with_filters)
{
	struct node *n;
	pool_enter(p->pool);
	if (is_op(p, "-") || is_op(p, "+")) {
		n = node_new(p, is_op(p, "-") ? NODE_NEGATE : NODE_PLUS);
		next(p);
		n->a = parse_unary(p, false);
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	pool_leave(p->pool);
	return with_filters ? parse_filters(p, n) : n;
}

/* Levels of two-sided operators, loosest first; ~ has a list of its own. */
static const struct {
	const char *text;
	enum operator op;
	int level;
} binary[] = {{"+", OP_ADD, 0}, {"-", OP_SUB, 0}, {"*", OP_MUL, 2}, {"/", OP_DIV, 2},
	{"//", OP_FLOOR, 2}, {"%", OP_MOD, 2}, {"**", OP_POW, 3}};
enum { LEVEL_CONCAT = 1, LEVEL_UNARY = 4 };

static struct node *parse_level(struct parser *p, int level);

static struct node *parse_concat(struct parser *p)
{
	struct node *first = parse_level(p, LEVEL_CONCAT + 1);
	if (!is_op(p, "~"))
		return first;
	struct node *n = node_new(p, NODE_CONCAT), **end = &n->items;
	append(&end, first);
	while (take_op(p, "~"))
		append(&end, parse_level(p, LEVEL_CONCAT + 1));
	return n;
}

static struct node *parse_level(struct parser *p, int level)
{
	if (level == LEVEL_UNARY)
		return parse_unary(p, true);
	if (level == LEVEL_CONCAT)
		return parse_concat(p);
	struct node *a = parse_level(p, level + 1);
	for (size_t i = 0; i < ARRAY_COUNT(binary);) {
		if (binary[i].level != level || !is_op(p, binary[i].text)) {
			i++;
			continue;
		}
		struct node *n = node_with(p, NODE_BINARY, a, NULL);
		n->op = binary[i].op;
		next(p);
		n->b = parse_level(p, level + 1);
		a = n;
		i = 0;
	}
	return a;
}

static bool take_comparison(struct parser *p, enum operator* op)
{
	static const struct {
		const char *text;
		enum operator op;
	} comparisons[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT},
		{">=", OP_GE}};
	for (size_t i = 0; i < ARRAY_COUNT(comparisons); i++)
		if (take_op(p, comparisons[i].text)) {
			*op = comparisons[i].op;
			return true;
		}
	*op = OP_IN;
	if (take_word(p, "in"))
		return true;
	if (!is_word(p, "not"))
		return false;
	next(p);
	expect_word(p, "in");
	*op = OP_NOT_IN;
	return true;
}

static struct node *parse_comparison(struct parser *p)
{
	struct node *a = parse_level(p, 0);
	struct node *chain = node_with(p, NODE_COMPARE, a, NULL), **end = &chain->items;
	for (;;) {
		struct node *n = node_new(p, NODE_COMPARE); /* at the operator */
		if (!take_comparison(p, &n->op))
			break;
		n->a = parse_level(p, 0);
		append(&end, n);
	}
	return chain->items ? chain : a;
}

static struct node *parse_not(struct parser *p)
{
	if (!is_word(p, "not"))
		return parse_comparison(p);
	struct node *n = node_new(p, NODE_NOT);
	next(p);
	pool_enter(p->pool);
	n->a = parse_not(p);
	pool_leave(p->pool);
	return n;
}

static struct node *parse_and(struct parser *p)
{
	struct node *a = parse_not(p);
	while (take_word(p, "and"))
		a = node_with(p, NODE_AND, a, parse_not(p));
	return a;
}

static struct node *parse_or(struct parser *p)
{
	struct node *a = parse_and(p);
	while (take_word(p, "or"))
		a = node_with(p, NODE_OR, a, parse_and(p));
	return a;
}

static struct node *parse_expression(struct parser *p)
{
	pool_enter(p->pool);
	struct node *a = parse_or(p);
	while (is_word(p, "if")) {
		struct node *n = node_with(p, NODE_IF_ELSE, a, NULL);
		next(p);
		n->b = parse_or(p);
		if (take_word(p, "else"))
			n->c = parse_expression(p);
		a = n;
	}
	pool_leave(p->pool);
	return a;
}

/* An expression, or several with commas: a tuple. */
static struct node *parse_tuple(struct parser *p)
{
	struct node *first = parse_expression(p);
	if (!is_op(p, ","))
		return first;
	struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->items;
	append(&end, first);
	while (take_op(p, ",") && p->token != TOKEN_CLOSE && !is_op(p, "="))
		append(&end, parse_expression(p));
	return tuple;
}

/* ---- statements ------------------------------------------------------------------------------ */

static struct node *parse_statements(
	struct parser *p, const char *const *ends, const char *opened, uint32_t line);

/* The body of a tag up to `{% end... %}`, which is taken as a whole. */
static struct node *parse_body(struct parser *p, const char *end, const char *opened)
{
	const char *const ends[] = {end, NULL};
	uint32_t line = p->token_line;
	expect_close(p, "'%}'");
	struct node *body = parse_statements(p, ends, opened, line);
	next(p);
	expect_close(p, "'%}'");
	return body;
}

static struct node *parse_if(struct parser *p)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct node *first = NULL, **end = &first;
	uint32_t line = p->token_line;
	for (;;) {
		struct node *n = node_new(p, NODE_IF);
		next(p);
		*end = n;
		end = &n->other;
		n->a = parse_tuple(p);
		expect_close(p, "'%}'");
		n->body = parse_statements(p, ends, "if", line);
		if (!is_word(p, "elif"))
			break;
	}
	if (take_word(p, "else")) {
		static const char *const last[] = {"endif", NULL};
		expect_close(p, "'%}'");
		*end = parse_statements(p, last, "if", line);
	}
	next(p);
	expect_close(p, "'%}'");
	return first;
}

/* A name, name.attribute, or several of them. */
static struct node *parse_one_target(struct parser *p, bool attributes)
{
	struct node *n;
	if (is_op(p, "(") || is_op(p, "[")) {
		const char *close = is_op(p, "(") ? ")" : "]";
		n = node_new(p, NODE_TUPLE);
		struct node **end = &n->items;
		next(p);
		pool_enter(p->pool);
		while (!is_op(p, close)) {
			append(&end, parse_one_target(p, attributes));
			if (!is_op(p, close))
				expect_op(p, ",");
		}
		pool_leave(p->pool);
		next(p);
		return n;
	}
	n = node_new(p, NODE_NAME);
	static const char *const reserved[] = {
		"true", "false", "none", "True", "False", "None", "not", "in", "if"};
	for (size_t i = 0; i < ARRAY_COUNT(reserved); i++)
		if (is_word(p, reserved[i]))
			pool_fail(p->pool, "cannot assign to '%s'", reserved[i]);
	set_name(p, n, "a name to assign to");
	if (attributes && is_op(p, "."))
		n = parse_attribute(p, n);
	return n;
}

static struct node *parse_target(struct parser *p, bool attributes)
{
	struct node *first = parse_one_target(p, attributes);
	if (!is_op(p, ","))
		return first;
	struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->items;
	append(&end, first);
	while (take_op(p, ",") && !is_op(p, "=") && !is_word(p, "in"))
		append(&end, parse_one_target(p, attributes));
	return tuple;
}

static struct node *parse_for(struct parser *p)
{
	static const char *const ends[] = {"else", "endfor", NULL},
				 *const last[] = {"endfor", NULL};
	struct node *n = node_new(p, NODE_FOR);
	uint32_t line = p->token_line;
	next(p);
	n->a = parse_target(p, false);
	expect_word(p, "in");
	/* What is looped over must not take the loop's own `if`. */
	n->b = parse_or(p);
	if (is_op(p, ",")) {
		struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->items;
		append(&end, n->b);
		while (take_op(p, ",") && p->token != TOKEN_CLOSE && !is_word(p, "if"))
			append(&end, parse_or(p));
		n->b = tuple;
	}
	if (take_word(p, "if"))
		n->c = parse_expression(p);
	n->recursive = take_word(p, "recursive");
	expect_close(p, "'%}'");
	p->n_loops++;
	n->body = parse_statements(p, ends, "for", line);
	p->n_loops--;
	if (take_word(p, "else")) {
		expect_close(p, "'%}'");
		n->other = parse_statements(p, last, "for", line);
	}
	next(p);
	expect_close(p, "'%}'");
	return n;
}

static struct node *parse_set(struct parser *p)
{
	struct node *n = node_new(p, NODE_SET);
	next(p);
	n->a = parse_target(p, true);
	if (take_op(p, "=")) {
		n->b = parse_tuple(p);
		expect_close(p, "'%}'");
		return n;
	}
	while (take_op(p, "|"))
		n->c = parse_filter(p, n->c);
	n->body = parse_body(p, "endset", "set");
	return n;
}

/* Parameters between parentheses. */
static void parse_parameters(struct parser *p, struct node *n)
{
	struct node **end = &n->items;
	bool defaults = false;
	expect_op(p, "(");
	while (!is_op(p, ")")) {
		struct node *parameter = node_new(p, NODE_NAME);
		set_name(p, parameter, "the name of a parameter");
		if (take_op(p, "="))
			parameter->a = parse_expression(p);
		else if (defaults)
			pool_fail(
				p->pool, "a parameter without a default behind one with a default");
		defaults |= parameter->a != NULL;
		append(&end, parameter);
		if (!is_op(p, ")"))
			expect_op(p, ",");
	}
	expect_op(p, ")");
}

/* The body of a macro or a caller: which of the special names it uses, and no loop around it. */
static void parse_callable_body(
	struct parser *p, struct node *n, const char *end, const char *opened)
{
	bool varargs = p->saw_varargs, kwargs = p->saw_kwargs, caller = p->saw_caller;
	unsigned n_loops = p->n_loops;
	p->saw_varargs = p->saw_kwargs = p->saw_caller = false;
	p->n_loops = 0;
	n->body = parse_body(p, end, opened);
	n->uses_varargs = p->saw_varargs;
	n->uses_kwargs = p->saw_kwargs;
	n->uses_caller = p->saw_caller;
	p->saw_varargs = varargs;
	p->saw_kwargs = kwargs;
	p->saw_caller = caller;
	p->n_loops = n_loops;
}

static struct node *parse_macro(struct parser *p)
{
	struct node *n = node_new(p, NODE_MACRO);
	next(p);
	set_name(p, n, "the name of the macro");
	parse_parameters(p, n);
	parse_callable_body(p, n, "endmacro", "macro");
	return n;
}

static struct node *parse_call_block(struct parser *p)
{
	struct node *n = node_new(p, NODE_CALL_BLOCK);
	next(p);
	n->name = "caller";
	n->n_name = strlen(n->name);
	if (is_op(p, "("))
		parse_parameters(p, n);
	n->a = parse_expression(p);
	if (n->a->kind != NODE_CALL)
		pool_fail(p->pool, "found no call, expected one behind {%% call");
	parse_callable_body(p, n, "endcall", "call");
	return n;
}

static struct node *parse_filter_block(struct parser *p)
{
	struct node *n = node_new(p, NODE_FILTER_BLOCK);
	next(p);
	n->a = parse_filter(p, NULL);
	while (take_op(p, "|"))
		n->a = parse_filter(p, n->a);
	n->body = parse_body(p, "endfilter", "filter");
	return n;
}

static struct node *parse_with(struct parser *p)
{
	struct node *n = node_new(p, NODE_WITH), **end = &n->items;
	next(p);
	while (p->token != TOKEN_CLOSE) {
		struct node *set = node_new(p, NODE_SET);
		set->a = parse_one_target(p, false);
		expect_op(p, "=");
		set->b = parse_expression(p);
		append(&end, set);
		if (p->token != TOKEN_CLOSE)
			expect_op(p, ",");
	}
	n->body = parse_body(p, "endwith", "with");
	return n;
}

static struct node *parse_scope(struct parser *p, const char *end, const char *opened)
{
	struct node *n = node_new(p, NODE_SCOPE);
	next(p);
	n->body = parse_body(p, end, opened);
	return n;
}

static struct node *parse_block(struct parser *p)
{
	struct node *n = node_new(p, NODE_SCOPE), name = {0};
	next(p);
	set_name(p, &name, "the name of the block");
	n->body = parse_body(p, "endblock", "block");
	return n;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
	struct node *n = node_new(p, kind);
	if (!p->n_loops)
		pool_fail(p->pool, "'%s' outside of a loop",
			kind == NODE_BREAK ? "break" : "continue");
	next(p);
	expect_close(p, "'%}'");
	return n;
}

static struct node *parse_tag(struct parser *p)
{
	if (is_word(p, "if"))
		return parse_if(p);
	if (is_word(p, "for"))
		return parse_for(p);
	if (is_word(p, "set"))
		return parse_set(p);
	if (is_word(p, "macro"))
		return parse_macro(p);
	if (is_word(p, "call"))
		return parse_call_block(p);
	if (is_word(p, "filter"))
		return parse_filter_block(p);
	if (is_word(p, "with"))
		return parse_with(p);
	if (is_word(p, "generation"))
		return parse_scope(p, "endgeneration", "generation");
	if (is_word(p, "block"))
		return parse_block(p);
	if (is_word(p, "break"))
		return parse_jump(p, NODE_BREAK);
	if (is_word(p, "continue"))
		return parse_jump(p, NODE_CONTINUE);
	static const char *const files[] = {"include", "import", "from", "extends"};
	for (size_t i = 0; i < ARRAY_COUNT(files); i++)
		if (is_word(p, files[i]))
			pool_fail(p->pool, "'%s' asks for another file, a chat template has none",
				files[i]);
	unexpected(p, "a tag such as 'if', 'for', 'set' or 'macro'");
}

/* Statements up to one of the tags `ends`, whose name is then the current token; NULL: up to the end of
 * the template. `opened` at `line` is what the end is missing for. */
static struct node *parse_statements(
	struct parser *p, const char *const *ends, const char *opened, uint32_t line)
{
	struct node *first = NULL, **end = &first, *n;
	pool_enter(p->pool);
	for (;;) {
		if (p->token == TOKEN_TEXT) {
			n = node_new(p, NODE_TEXT);
			n->value = value_copy(p->pool, p->s, p->n_s);
			append(&end, n);
			next(p);
		} else if (p->token == TOKEN_OPEN_PRINT) {
			next(p);
			n = node_new(p, NODE_PRINT);
			n->a = parse_tuple(p);
			expect_close(p, "'}}'");
			append(&end, n);
		} else if (p->token == TOKEN_OPEN_BLOCK) {
			next(p);
			bool ended = false;
			for (size_t i = 0; ends && ends[i]; i++)
				ended |= is_word(p, ends[i]);
			if (ended)
				break;
			append(&end, parse_tag(p));
		} else if (opened) {
			pool_fail(p->pool,
				"found the end of the template, expected the end of "
				"{%% %s %%} of line %u",
				opened, line);
		} else {
			break;
		}
	}
	pool_leave(p->pool);
	return first;
}

/* Every end of line as \n, and the last one of the template left out. */
static struct value normalize(struct pool *p, const char *text, size_t n)
{
	char *copy = pool_alloc(p, n + 1, 1);
	size_t length = 0;
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
			continue;
		copy[length++] = text[i] == '\r' ? '\n' : text[i];
	}
	length -= length > 0 && copy[length - 1] == '\n';
	return value_string(copy, length);
}

struct node *template_parse(struct pool *pool, const char *text, size_t n)
{
	struct value source = normalize(pool, text, n);
	struct parser p = {.pool = pool, .text = source.s, .n = source.n, .line = 1, .column = 1};
	next(&p);
	return parse_statements(&p, NULL, NULL, 0);
}
