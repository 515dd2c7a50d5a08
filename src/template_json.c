/* JSON into values and back: see template_value.h.
 *
 * A reader of its own rather than a library: numbers keep what Python would keep of them, errors jump out through
 * the pool, and what is read lives there. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "template_value.h"

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
	struct pool *pool;
	const char *text, *what;
	size_t n, at;
};

static _Noreturn void refuse(struct reader *r, const char *expected)
{
	uint32_t line = 1, column = 1;
	for (size_t i = 0; i < r->at; i++) {
		column = r->text[i] == '\n' ? 1 : column + 1;
		line += r->text[i] == '\n';
	}
	r->pool->line = 0;
	if (r->at >= r->n)
		pool_fail(r->pool, "%s, line %u, column %u: found the end, expected %s", r->what,
			line, column, expected);
	unsigned char c = (unsigned char)r->text[r->at];
	pool_fail(r->pool,
		c > 32 && c < 127 ? "%s, line %u, column %u: found '%c', expected %s"
				  : "%s, line %u, column %u: found byte %d, expected %s",
		r->what, line, column, c, expected);
}

static int peek(struct reader *r)
{
	while (r->at < r->n && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at])
		r->at++;
	return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static void expect(struct reader *r, int c, const char *expected)
{
	if (peek(r) != c)
		refuse(r, expected);
	r->at++;
}

static uint32_t read_hex4(struct reader *r)
{
	uint32_t code = 0;
	for (int i = 0; i < 4; i++, r->at++) {
		const char *digits = "0123456789abcdef";
		int c = r->at < r->n ? (unsigned char)r->text[r->at] | 32 : 0;
		const char *digit = c ? strchr(digits, c) : NULL;
		if (!digit)
			refuse(r, "four hexadecimal digits");
		code = code * 16 + (uint32_t)(digit - digits);
	}
	return code;
}

/* A lone half of a surrogate pair has no UTF-8: it becomes U+FFFD. */
static void read_escape(struct reader *r, struct builder *b)
{
	static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
	char c = r->at < r->n ? r->text[r->at] : 0;
	const char *letter = c ? strchr(letters, c) : NULL;
	if (letter) {
		r->at++;
		build(r->pool, b, &characters[letter - letters], 1);
		return;
	}
	if (c != 'u')
		refuse(r, "one of \" \\ / b f n r t u after a backslash");
	r->at++;
	uint32_t code = read_hex4(r);
	if (code >= 0xD800 && code < 0xDC00 && r->at + 6 <= r->n && r->text[r->at] == '\\' &&
		r->text[r->at + 1] == 'u') {
		size_t back = r->at;
		r->at += 2;
		uint32_t low = read_hex4(r);
		if (low >= 0xDC00 && low < 0xE000)
			code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
		else
			r->at = back;
	}
	char bytes[4];
	if (code >= 0xD800 && code < 0xE000)
		code = 0xFFFD;
	build(r->pool, b, bytes, utf8_encode(code, bytes));
}

static struct value read_string(struct reader *r)
{
	expect(r, '"', "a string");
	struct builder b = {0};
	for (;;) {
		size_t start = r->at;
		while (r->at < r->n && r->text[r->at] != '"' && r->text[r->at] != '\\' &&
			(unsigned char)r->text[r->at] >= 32) {
			uint32_t code;
			unsigned n = utf8_decode(r->text + r->at, r->n - r->at, &code);
			if (!n)
				refuse(r, "UTF-8");
			r->at += n;
		}
		build(r->pool, &b, r->text + start, r->at - start);
		pool_work(r->pool, r->at - start);
		if (r->at >= r->n || (unsigned char)r->text[r->at] < 32)
			refuse(r, "the end of a string");
		if (r->text[r->at++] == '"')
			return built(&b);
		read_escape(r, &b);
	}
}

static size_t digits(struct reader *r)
{
	size_t start = r->at;
	while (r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9')
		r->at++;
	if (r->at == start)
		refuse(r, "a digit");
	return r->at - start;
}

static struct value read_number(struct reader *r)
{
	size_t start = r->at;
	bool whole = true;
	r->at += r->text[r->at] == '-';
	size_t first = r->at;
	if (digits(r) > 1 && r->text[first] == '0')
		refuse(r, "no 0 before other digits");
	if (r->at < r->n && r->text[r->at] == '.') {
		whole = false;
		r->at++;
		digits(r);
	}
	if (r->at < r->n && (r->text[r->at] | 32) == 'e') {
		whole = false;
		r->at++;
		r->at += r->at < r->n && (r->text[r->at] == '+' || r->text[r->at] == '-');
		digits(r);
	}
	size_t n = r->at - start;
	char *number = pool_alloc(r->pool, n + 1, 1);
	memcpy(number, r->text + start, n);
	errno = 0;
	long long i = whole ? strtoll(number, NULL, 10) : 0;
	if (whole && !errno)
		return value_int(i);
	return value_float(strtod(number, NULL));
}

static bool read_word(struct reader *r, const char *word)
{
	size_t n = strlen(word);
	if (r->n - r->at < n || memcmp(r->text + r->at, word, n) != 0)
		return false;
	r->at += n;
	return true;
}

static struct value read_value(struct reader *r);

static struct value read_list(struct reader *r)
{
	struct value list = value_list(r->pool, VALUE_LIST);
	r->at++;
	if (peek(r) == ']') {
		r->at++;
		return list;
	}
	for (;;) {
		list_add(r->pool, list.list, read_value(r));
		if (peek(r) != ',')
			break;
		r->at++;
	}
	expect(r, ']', "',' or ']'");
	return list;
}

static struct value read_object(struct reader *r)
{
	struct value dict = value_dict(r->pool, VALUE_DICT);
	r->at++;
	if (peek(r) == '}') {
		r->at++;
		return dict;
	}
	for (;;) {
		struct value key = read_string(r);
		expect(r, ':', "':'");
		dict_set(r->pool, dict.dict, key, read_value(r));
		if (peek(r) != ',')
			break;
		r->at++;
	}
	expect(r, '}', "',' or '}'");
	return dict;
}

static struct value read_value(struct reader *r)
{
	int c = peek(r);
	struct value v = value_none();
	pool_work(r->pool, 0);
	pool_enter(r->pool);
	if (c == '{')
		v = read_object(r);
	else if (c == '[')
		v = read_list(r);
	else if (c == '"')
		v = read_string(r);
	else if (c == '-' || (c >= '0' && c <= '9'))
		v = read_number(r);
	else if (c == 't' && read_word(r, "true"))
		v = value_bool(true);
	else if (c == 'f' && read_word(r, "false"))
		v = value_bool(false);
	else if (c != 'n' || !read_word(r, "null"))
		refuse(r, "a JSON value");
	pool_leave(r->pool);
	return v;
}

struct value json_read(struct pool *p, const char *text, size_t n, const char *what)
{
	struct reader r = {.pool = p, .text = text, .what = what, .n = n};
	struct value v = read_value(&r);
	if (peek(&r) >= 0)
		refuse(&r, "the end");
	return v;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_string(struct pool *p, struct builder *b, struct value v, bool ascii)
{
	static const char letters[] = "\"\\bfnrt", characters[] = "\"\\\b\f\n\r\t";
	build_text(p, b, "\"");
	for (size_t i = 0; i < v.n;) {
		size_t n = char_bytes(v.s + i, v.n - i);
		uint32_t c = char_code(v.s + i, v.n - i);
		const char *special = c && c < 128 ? strchr(characters, (int)c) : NULL;
		if (special)
			build_printf(p, b, "\\%c", letters[special - characters]);
		else if (c < 32 || (ascii && c >= 127 && c < 0x10000))
			build_printf(p, b, "\\u%04x", c);
		else if (ascii && c >= 0x10000)
			build_printf(p, b, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
				0xDC00 + ((c - 0x10000) & 0x3FF));
		else
			build(p, b, v.s + i, n);
		i += n;
	}
	build_text(p, b, "\"");
}

static void write_break(
	struct pool *p, struct builder *b, const struct json_style *style, unsigned level)
{
	if (style->indent < 0)
		return;
	build_text(p, b, "\n");
	for (uint64_t i = (uint64_t)style->indent * level; i > 0; i--)
		build_text(p, b, " ");
}

static void write_value(struct pool *p, struct builder *b, struct value v,
	const struct json_style *style, unsigned level);

static void write_list(struct pool *p, struct builder *b, const struct list *list,
	const struct json_style *style, unsigned level)
{
	build_text(p, b, "[");
	for (size_t i = 0; i < list->n; i++) {
		if (i)
			build(p, b, style->item.s, style->item.n);
		write_break(p, b, style, level + 1);
		write_value(p, b, list->items[i], style, level + 1);
	}
	if (list->n)
		write_break(p, b, style, level);
	build_text(p, b, "]");
}

static void write_key(struct pool *p, struct builder *b, struct value key, bool ascii)
{
	if (key.kind == VALUE_STRING) {
		write_string(p, b, key, ascii);
		return;
	}
	if (key.kind != VALUE_NONE && !value_is_number(key))
		pool_fail(p, "keys must be str, int, float, bool or None, not %s", value_type(key));
	const struct json_style plain = {.indent = -1};
	build_text(p, b, "\"");
	write_value(p, b, key, &plain, 0);
	build_text(p, b, "\"");
}

/* Entries by key, in a copy: a merge of sorted halves. */
static void sort_entries(struct pool *p, struct dict_entry *e, struct dict_entry *spare, size_t n)
{
	if (n < 2)
		return;
	size_t half = n / 2, left = 0, right = half;
	sort_entries(p, e, spare, half);
	sort_entries(p, e + half, spare, n - half);
	for (size_t i = 0; i < n; i++) {
		bool take_left = right == n ||
			(left < half && value_order(p, e[left].key, e[right].key, "<") <= 0);
		spare[i] = e[take_left ? left++ : right++];
	}
	memcpy(e, spare, n * sizeof *e);
}

static void write_dict(struct pool *p, struct builder *b, const struct dict *d,
	const struct json_style *style, unsigned level)
{
	struct dict_entry *entries = d->entries;
	if (style->sort_keys && d->n) {
		entries = pool_alloc(p, d->n, sizeof *entries);
		memcpy(entries, d->entries, d->n * sizeof *entries);
		sort_entries(p, entries, pool_alloc(p, d->n, sizeof *entries), d->n);
	}
	build_text(p, b, "{");
	for (size_t i = 0; i < d->n; i++) {
		if (i)
			build(p, b, style->item.s, style->item.n);
		write_break(p, b, style, level + 1);
		write_key(p, b, entries[i].key, style->ascii);
		build(p, b, style->key.s, style->key.n);
		write_value(p, b, entries[i].value, style, level + 1);
	}
	if (d->n)
		write_break(p, b, style, level);
	build_text(p, b, "}");
}

static void write_value(struct pool *p, struct builder *b, struct value v,
	const struct json_style *style, unsigned level)
{
	pool_work(p, v.kind == VALUE_STRING ? v.n : 0);
	pool_enter(p);
	if (v.kind == VALUE_NONE)
		build_text(p, b, "null");
	else if (v.kind == VALUE_BOOL)
		build_text(p, b, v.b ? "true" : "false");
	else if (v.kind == VALUE_FLOAT && isnan(v.f))
		build_text(p, b, "NaN");
	else if (v.kind == VALUE_FLOAT && isinf(v.f))
		build_text(p, b, v.f < 0 ? "-Infinity" : "Infinity");
	else if (v.kind == VALUE_INT || v.kind == VALUE_FLOAT)
		build_repr(p, b, v);
	else if (v.kind == VALUE_STRING)
		write_string(p, b, v, style->ascii);
	else if (v.kind == VALUE_LIST || v.kind == VALUE_TUPLE)
		write_list(p, b, v.list, style, level);
	else if (v.kind == VALUE_DICT)
		write_dict(p, b, v.dict, style, level);
	else
		pool_fail(p, "Object of type %s is not JSON serializable", value_type(v));
	pool_leave(p);
}

void json_write(struct pool *p, struct builder *b, struct value v, const struct json_style *style)
{
	write_value(p, b, v, style, 0);
}
