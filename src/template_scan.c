/* A template's text as tokens: see template_scan.h. */
#include "template_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Errors and nodes name the place of the current token. Counts on from the one before, so that a text is
 * counted once; an error may go back to where something was opened. */
static void mark(struct scanner *s, size_t at)
{
	if (at < s->counted) {
		s->counted = 0;
		s->line = s->column = 1;
	}
	while (s->counted < at) {
		bool ends_line = s->text[s->counted] == '\n';
		s->counted += char_bytes(s->text + s->counted, at - s->counted);
		s->line += ends_line;
		s->column = ends_line ? 1 : s->column + 1;
	}
	s->token_line = s->pool->line = s->line;
	s->token_column = s->pool->column = s->column;
}

static bool at_text(const struct scanner *s, size_t at, const char *what)
{
	size_t n = strlen(what);
	return at + n <= s->n && memcmp(s->text + at, what, n) == 0;
}

static bool is_space_at(const struct scanner *s, size_t at)
{
	return at < s->n && char_is_space((unsigned char)s->text[at]) &&
		(unsigned char)s->text[at] < 128;
}

static bool is_name_byte(char c, bool first)
{
	unsigned char u = (unsigned char)c;
	return (u | 32) >= 'a' && (u | 32) <= 'z'
		? u < 128
		: u == '_' || u >= 128 || (!first && u >= '0' && u <= '9');
}

static void skip_space(struct scanner *s)
{
	while (is_space_at(s, s->at))
		s->at++;
}

/* What the end of a tag takes away behind it; `sign` is '-', '+' or 0. */
static void close_tag(struct scanner *s, char sign, bool trims)
{
	if (sign == '-')
		skip_space(s);
	else if (sign != '+' && trims && s->at < s->n && s->text[s->at] == '\n')
		s->at++;
}

/* Behind `{%` and its like: the sign, if there is one. */
static char tag_sign(struct scanner *s)
{
	char c = s->at < s->n ? s->text[s->at] : 0;
	if (c != '-' && c != '+')
		return 0;
	s->at++;
	return c;
}

/* The text between `from` and the tag at `to`, without what the tag takes away before it. */
static void cut_text(struct scanner *s, size_t from, size_t to, char sign, bool lstrip)
{
	size_t end = to;
	if (sign == '-') {
		while (end > from && is_space_at(s, end - 1))
			end--;
	} else if (sign != '+' && lstrip) {
		size_t start = end;
		while (start > from && s->text[start - 1] != '\n' && is_space_at(s, start - 1))
			start--;
		if (start == 0 || s->text[start - 1] == '\n')
			end = start;
	}
	s->piece = s->text + from;
	s->n_piece = end - from;
}

/* The position of the tag `name` (raw or endraw) with all of its blanks, when it stands at `at`:
 * *after is behind it, with the signs on both sides. */
static bool raw_tag(struct scanner *s, size_t at, const char *name, size_t *after, char signs[2])
{
	size_t back = s->at;
	bool found = false;
	s->at = at + 2;
	signs[0] = tag_sign(s);
	skip_space(s);
	if (at_text(s, at, "{%") && at_text(s, s->at, name)) {
		s->at += strlen(name);
		skip_space(s);
		signs[1] = at_text(s, s->at, "-%}") ? '-' : at_text(s, s->at, "+%}") ? '+' : 0;
		s->at += signs[1] != 0;
		found = at_text(s, s->at, "%}");
		*after = s->at + 2;
	}
	s->at = back;
	return found;
}

/* At `{% raw %}`: the text up to `{% endraw %}` becomes the token. */
static void read_raw(struct scanner *s, size_t after, char sign)
{
	size_t opened = s->at, end;
	char signs[2];
	s->at = after;
	close_tag(s, sign, false);
	size_t from = s->at;
	for (size_t at = from; at < s->n; at++)
		if (at_text(s, at, "{%") && raw_tag(s, at, "endraw", &end, signs)) {
			cut_text(s, from, at, signs[0], true);
			s->at = end;
			close_tag(s, signs[1], true);
			return;
		}
	mark(s, opened);
	pool_fail(s->pool, "{%% raw %%} without {%% endraw %%}");
}

static void skip_comment(struct scanner *s)
{
	size_t opened = s->at;
	s->at += 2;
	tag_sign(s);
	for (size_t from = s->at; s->at < s->n; s->at++)
		if (at_text(s, s->at, "#}")) {
			char before = s->at > from ? s->text[s->at - 1] : 0;
			s->at += 2;
			close_tag(s, before == '-' || before == '+' ? before : 0, true);
			return;
		}
	mark(s, opened);
	pool_fail(s->pool, "{# without #}");
}

/* Text up to the next tag, which may be empty. */
static void read_text(struct scanner *s)
{
	size_t from = s->at, at = from, after;
	char signs[2];
	s->token = TOKEN_TEXT;
	while (at < s->n &&
		!(s->text[at] == '{' && at + 1 < s->n && memchr("{%#", s->text[at + 1], 3)))
		at++;
	if (at >= s->n) {
		cut_text(s, from, s->n, '+', false);
		s->at = s->n;
		if (!s->n_piece)
			s->token = TOKEN_END;
		return;
	}
	s->at = at + 2;
	char sign = tag_sign(s);
	s->at = at;
	cut_text(s, from, at, sign, s->text[at + 1] != '{');
	if (s->n_piece)
		return; /* the tag is the next token; it finds no text before it */
	if (s->text[at + 1] == '#') {
		skip_comment(s);
	} else if (s->text[at + 1] == '%' && raw_tag(s, at, "raw", &after, signs)) {
		read_raw(s, after, signs[1]);
	} else {
		s->token = s->text[at + 1] == '%' ? TOKEN_OPEN_BLOCK : TOKEN_OPEN_PRINT;
		s->inside_block = s->token == TOKEN_OPEN_BLOCK;
		s->inside_print = !s->inside_block;
		s->n_braces = 0;
		s->start = at;
		mark(s, at);
		s->at = at + 2;
		tag_sign(s);
	}
}

static unsigned hex_value(char c)
{
	return c >= '0' && c <= '9'                  ? (unsigned)(c - '0')
		: (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a') + 10
						     : 16;
}

static void build_code(struct scanner *s, struct builder *b, uint32_t code)
{
	char bytes[4];
	if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
		code = 0xFFFD;
	build(s->pool, b, bytes, utf8_encode(code, bytes));
}

/* The escape behind a backslash, as in Python; unknown ones stay with their backslash. */
static void read_escape(struct scanner *s, struct builder *b)
{
	static const char letters[] = "\\'\"abfnrtv", characters[] = "\\'\"\a\b\f\n\r\t\v";
	char c = s->text[s->at++];
	const char *letter = c ? strchr(letters, c) : NULL;
	unsigned n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (letter) {
		build(s->pool, b, &characters[letter - letters], 1);
	} else if (c >= '0' && c <= '7') {
		uint32_t code = (uint32_t)(c - '0');
		for (int i = 0; i < 2 && s->text[s->at] >= '0' && s->text[s->at] <= '7'; i++)
			code = code * 8 + (uint32_t)(s->text[s->at++] - '0');
		build_code(s, b, code);
	} else if (n_digits) {
		uint32_t code = 0;
		for (unsigned i = 0; i < n_digits; i++) {
			unsigned digit = s->at < s->n ? hex_value(s->text[s->at]) : 16;
			if (digit > 15)
				pool_fail(s->pool, "\\%c in a string needs %u hexadecimal digits",
					c, n_digits);
			code = code * 16 + digit;
			s->at++;
		}
		build_code(s, b, code);
	} else if (c != '\n') {
		build_text(s->pool, b, "\\");
		build(s->pool, b, &c, 1);
	}
}

static void read_string(struct scanner *s)
{
	char quote = s->text[s->at++];
	struct builder b = {0};
	while (s->at < s->n && s->text[s->at] != quote) {
		if (s->text[s->at] == '\\' && s->at + 1 < s->n) {
			s->at++;
			read_escape(s, &b);
		} else {
			build(s->pool, &b, s->text + s->at++, 1);
		}
	}
	if (s->at >= s->n)
		pool_fail(s->pool, "a string without its closing %c", quote);
	s->at++;
	s->token = TOKEN_STRING;
	s->piece = b.data;
	s->n_piece = b.n;
}

static bool is_digit_at(const struct scanner *s, size_t at)
{
	return at < s->n && s->text[at] >= '0' && s->text[at] <= '9';
}

/* Digits with single '_' between them, appended to the number. */
static void take_digits(struct scanner *s, char *number, size_t *n, size_t capacity)
{
	while (is_digit_at(s, s->at) ||
		(s->at < s->n && s->text[s->at] == '_' && is_digit_at(s, s->at + 1))) {
		if (*n + 1 >= capacity)
			pool_fail(s->pool, "a number of more than %zu digits", capacity - 1);
		if (s->text[s->at] != '_')
			number[(*n)++] = s->text[s->at];
		s->at++;
	}
}

static int number_base(const struct scanner *s)
{
	char c = s->text[s->at] == '0' && s->at + 1 < s->n ? (char)(s->text[s->at + 1] | 32) : 0;
	int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
	if (base != 10 && (s->at + 2 >= s->n || hex_value(s->text[s->at + 2]) >= (unsigned)base))
		base = 10;
	return base;
}

static void read_number(struct scanner *s)
{
	char number[400];
	size_t n = 0;
	bool whole = true;
	int base = number_base(s);
	s->token = TOKEN_NUMBER;
	errno = 0;
	if (base != 10) {
		for (s->at += 2; s->at < s->n && n + 1 < sizeof number &&
			(hex_value(s->text[s->at]) < (unsigned)base || s->text[s->at] == '_');
			s->at++)
			if (s->text[s->at] != '_')
				number[n++] = s->text[s->at];
	} else {
		bool after_dot = s->at > 0 && s->text[s->at - 1] == '.'; /* x.1.2 is (x.1).2 */
		take_digits(s, number, &n, sizeof number);
		if (!after_dot && s->at < s->n && s->text[s->at] == '.' &&
			is_digit_at(s, s->at + 1)) {
			whole = false;
			number[n++] = s->text[s->at++];
			take_digits(s, number, &n, sizeof number - 2);
		}
		size_t e = s->at + 1;
		e += e < s->n && (s->text[e] == '+' || s->text[e] == '-');
		if (!after_dot && s->at < s->n && (s->text[s->at] | 32) == 'e' &&
			is_digit_at(s, e) && n + 4 < sizeof number) {
			whole = false;
			while (s->at < e)
				number[n++] = s->text[s->at++];
			take_digits(s, number, &n, sizeof number);
		}
	}
	number[n] = '\0';
	s->number =
		whole ? value_int(strtoll(number, NULL, base)) : value_float(strtod(number, NULL));
	if (whole && errno)
		s->number = value_float(strtod(number, NULL));
}

static void read_operator(struct scanner *s)
{
	static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
		"*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",",
		";"};
	for (size_t i = 0; i < ARRAY_COUNT(operators); i++)
		if (at_text(s, s->at, operators[i])) {
			s->token = TOKEN_OPERATOR;
			s->piece = operators[i];
			s->n_piece = strlen(operators[i]);
			s->at += s->n_piece;
			if (strchr("[({", *s->piece))
				s->n_braces++;
			else if (strchr("])}", *s->piece) && s->n_braces)
				s->n_braces--;
			return;
		}
	unsigned char c = (unsigned char)s->text[s->at];
	pool_fail(
		s->pool, c > 32 && c < 127 ? "unexpected character '%c'" : "unexpected byte %d", c);
}

/* The end of the open tag at `at`, if it is there. */
static bool read_close(struct scanner *s)
{
	const char *close = s->inside_block ? "%}" : "}}";
	size_t at = s->at;
	char sign = 0;
	if (s->n_braces)
		return false;
	if (at < s->n && (s->text[at] == '-' || (s->text[at] == '+' && s->inside_block)))
		sign = s->text[at++];
	if (!at_text(s, at, close))
		return false;
	s->token = TOKEN_CLOSE;
	s->piece = close;
	s->n_piece = 2;
	s->at = at + 2;
	close_tag(s, sign, s->inside_block);
	s->inside_block = s->inside_print = false;
	return true;
}

void scanner_next(struct scanner *s)
{
	pool_work(s->pool, 0);
	if (!s->inside_block && !s->inside_print) {
		do {
			s->start = s->at;
			mark(s, s->start);
			read_text(s);
		} while (s->token == TOKEN_TEXT && !s->n_piece); /* a comment, an empty raw */
		return;
	}
	skip_space(s);
	s->start = s->at;
	mark(s, s->at);
	if (read_close(s))
		return;
	char c = s->at < s->n ? s->text[s->at] : 0;
	if (s->at >= s->n) {
		s->token = TOKEN_END;
	} else if (is_name_byte(c, true)) {
		s->token = TOKEN_NAME;
		while (s->at < s->n && is_name_byte(s->text[s->at], false))
			s->at++;
		s->piece = s->text + s->start;
		s->n_piece = s->at - s->start;
	} else if (c == '"' || c == '\'') {
		read_string(s);
	} else if (c >= '0' && c <= '9') {
		read_number(s);
	} else {
		read_operator(s);
	}
}

bool scanner_sees(const struct scanner *s, const char *text)
{
	size_t at = s->at;
	while (is_space_at(s, at))
		at++;
	return at_text(s, at, text);
}
