/* What Python does to strings: cases, cuts, replacements, formats. See template_call.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template_call.h"

/* ---- letters --------------------------------------------------------------------------------- */

/* Alphabets whose capitals have a simple place: Latin-1, Latin Extended-A, Greek, Cyrillic, Armenian.
 * `pairs`: capital and small letter alternate, the capital on even (2) or odd (1) codes. */
static const struct {
	uint32_t from, to; /* the capitals, or both where they alternate */
	uint32_t step;
	int pairs;
} alphabets[] = {{'A', 'Z', 32, 0}, {0xC0, 0xD6, 32, 0}, {0xD8, 0xDE, 32, 0}, {0x100, 0x12F, 1, 2},
	{0x132, 0x137, 1, 2}, {0x139, 0x148, 1, 1}, {0x14A, 0x177, 1, 2}, {0x179, 0x17E, 1, 1},
	{0x391, 0x3A1, 32, 0}, {0x3A3, 0x3AB, 32, 0}, {0x400, 0x40F, 80, 0}, {0x410, 0x42F, 32, 0},
	{0x460, 0x481, 1, 2}, {0x48A, 0x4BF, 1, 2}, {0x4D0, 0x52F, 1, 2}, {0x531, 0x556, 48, 0},
	{0x1E00, 0x1E95, 1, 2}, {0x1EA0, 0x1EFF, 1, 2}};

uint32_t char_lower(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_COUNT(alphabets); i++)
		if (c >= alphabets[i].from && c <= alphabets[i].to)
			return !alphabets[i].pairs || c % 2 == (uint32_t)(alphabets[i].pairs & 1)
				? c + alphabets[i].step
				: c;
	return c;
}

uint32_t char_upper(uint32_t c)
{
	if (c == 0x3C2) /* the sigma at the end of a word */
		return 0x3A3;
	for (size_t i = 0; i < ARRAY_COUNT(alphabets); i++) {
		uint32_t capital = c - alphabets[i].step;
		if (c >= alphabets[i].step && capital >= alphabets[i].from &&
			capital <= alphabets[i].to && char_lower(capital) == c)
			return capital;
	}
	return c;
}

/* Letters beyond the alphabets above count as letters too: all that is not known to be something else. */
bool char_is_alpha(uint32_t c)
{
	if (c < 128)
		return (c | 32) >= 'a' && (c | 32) <= 'z';
	return c == 0xAA || c == 0xB5 || c == 0xBA ||
		(c >= 0xC0 && c != 0xD7 && c != 0xF7 && !(c >= 0x2000 && c < 0x2C00) &&
			!(c >= 0x3000 && c < 0x3005) && !(c >= 0xFE00 && c < 0xFE70) &&
			c < 0x1F000 && !(c >= 0x300 && c < 0x370));
}

static void build_code(struct pool *p, struct builder *b, uint32_t code)
{
	char bytes[4];
	build(p, b, bytes, utf8_encode(code, bytes));
}

struct value text_case(struct pool *p, struct value v, enum letter_case to)
{
	struct builder b = {0};
	bool inside = false; /* a word, or the text behind its first character */
	pool_work(p, v.n);
	for (size_t i = 0; i < v.n;) {
		size_t n = char_bytes(v.s + i, v.n - i);
		uint32_t c = char_code(v.s + i, v.n - i);
		uint32_t low = char_lower(c), high = char_upper(c);
		uint32_t out = to == CASE_LOWER ? low
			: to == CASE_UPPER      ? high
			: to == CASE_SWAP       ? (low != c ? low : high)
						: (inside ? low : high);
		if (n == 1 && c >= 128)
			build(p, &b, v.s + i, 1); /* no UTF-8: as it is */
		else if (c == 0xDF && (to == CASE_UPPER || out == high) && to != CASE_LOWER &&
			(to != CASE_CAPITALIZE || !inside) && (to != CASE_TITLE || !inside))
			build_text(p, &b, to == CASE_CAPITALIZE || to == CASE_TITLE ? "Ss" : "SS");
		else
			build_code(p, &b, out);
		inside = to != CASE_TITLE || char_is_alpha(c);
		i += n;
	}
	return built(&b);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static bool in_set(struct pool *p, struct value set, const char *s, size_t n)
{
	pool_work(p, set.kind == VALUE_STRING ? set.n : 0);
	if (set.kind != VALUE_STRING)
		return char_is_space(char_code(s, n));
	for (size_t i = 0; i < set.n; i += char_bytes(set.s + i, set.n - i))
		if (char_bytes(set.s + i, set.n - i) == n && memcmp(set.s + i, s, n) == 0)
			return true;
	return false;
}

/* Bytes of the character that ends at s[n]. */
static size_t last_char(const char *s, size_t n)
{
	for (size_t back = n < 4 ? n : 4; back > 1; back--)
		if (char_bytes(s + n - back, back) == back)
			return back;
	return 1;
}

struct value text_strip(
	struct pool *p, struct value v, struct value set, bool at_start, bool at_end)
{
	while (at_start && v.n && in_set(p, set, v.s, char_bytes(v.s, v.n))) {
		size_t n = char_bytes(v.s, v.n);
		v = value_string(v.s + n, v.n - n);
	}
	while (at_end && v.n) {
		size_t n = last_char(v.s, v.n);
		if (!in_set(p, set, v.s + v.n - n, n))
			break;
		v.n -= n;
	}
	return v;
}

/* What was looked at counts as work, not the whole text: a text may be searched piece by piece. */
size_t text_find(struct pool *p, struct value v, struct value what, size_t from, bool last)
{
	if (what.n > v.n || from > v.n - what.n)
		return v.n + 1;
	size_t n_places = v.n - what.n - from + 1, i = 0;
	while (i < n_places && !text_at(p, v.s + from + (last ? n_places - 1 - i : i), what))
		i++;
	pool_work(p, i);
	return i == n_places ? v.n + 1 : from + (last ? n_places - 1 - i : i);
}

static struct value part(struct value v, size_t from, size_t to)
{
	return value_string(v.s + from, to - from);
}

static void split_blanks(struct pool *p, struct value v, int64_t most, struct list *out)
{
	const struct value blanks = value_none();
	v = text_strip(p, v, blanks, true, false);
	while (v.n) {
		size_t end = 0;
		if (most >= 0 && (int64_t)out->n >= most) {
			list_add(p, out, text_strip(p, v, blanks, false, true));
			return;
		}
		while (end < v.n && !char_is_space(char_code(v.s + end, v.n - end)))
			end += char_bytes(v.s + end, v.n - end);
		list_add(p, out, part(v, 0, end));
		v = text_strip(p, part(v, end, v.n), blanks, true, false);
	}
}

static void reverse(struct list *list)
{
	for (size_t i = 0; i < list->n / 2; i++) {
		struct value swap = list->items[i];
		list->items[i] = list->items[list->n - 1 - i];
		list->items[list->n - 1 - i] = swap;
	}
}

static void rsplit(
	struct pool *p, struct value v, struct value separator, int64_t most, struct list *out)
{
	bool blanks = separator.kind != VALUE_STRING;
	for (v = blanks ? text_strip(p, v, separator, false, true) : v; !blanks || v.n;) {
		size_t at = blanks ? v.n : text_find(p, v, separator, 0, true);
		while (blanks && at &&
			!char_is_space(
				char_code(v.s + at - last_char(v.s, at), last_char(v.s, at))))
			at -= last_char(v.s, at);
		if ((most >= 0 && (int64_t)out->n >= most) || at > v.n || (blanks && at == 0)) {
			list_add(p, out, blanks ? text_strip(p, v, separator, true, false) : v);
			break;
		}
		pool_work(p, 0);
		list_add(p, out, part(v, at + (blanks ? 0 : separator.n), v.n));
		v = part(v, 0, at);
		if (blanks)
			v = text_strip(p, v, separator, false, true);
	}
	reverse(out);
}

struct value text_split(
	struct pool *p, struct value v, struct value separator, int64_t most, bool from_end)
{
	struct value out = value_list(p, VALUE_LIST);
	if (separator.kind == VALUE_STRING && !separator.n)
		pool_fail(p, "empty separator");
	if (from_end && most >= 0) {
		rsplit(p, v, separator, most, out.list);
		return out;
	}
	if (separator.kind != VALUE_STRING) {
		split_blanks(p, v, most, out.list);
		return out;
	}
	pool_work(p, v.n);
	size_t from = 0;
	for (size_t i = 0; i + separator.n <= v.n && (most < 0 || (int64_t)out.list->n < most);) {
		if (!text_at(p, v.s + i, separator)) {
			i++;
			continue;
		}
		list_add(p, out.list, part(v, from, i));
		from = i += separator.n;
	}
	list_add(p, out.list, part(v, from, v.n));
	return out;
}

struct value text_replace(
	struct pool *p, struct value v, struct value from, struct value to, int64_t most)
{
	struct builder b = {0};
	pool_work(p, v.n);
	for (size_t i = 0; i <= v.n;) {
		bool here = most != 0 && i + from.n <= v.n && text_at(p, v.s + i, from);
		if (here) {
			build(p, &b, to.s, to.n);
			most -= most > 0;
			i += from.n;
		}
		if (here && from.n)
			continue;
		size_t n = i < v.n ? (from.n ? 1 : char_bytes(v.s + i, v.n - i)) : 0;
		build(p, &b, v.s + i, n);
		i += n ? n : 1;
	}
	return built(&b);
}

struct value text_pad(struct pool *p, struct value v, int64_t width, struct value fill, char align)
{
	struct builder b = {0};
	int64_t missing_chars = width - (int64_t)value_length(p, v);
	int64_t half = missing_chars / 2;
	if (align == 'c') /* str.center: an odd blank goes to the left when the width is odd */
		half += missing_chars & width & 1;
	int64_t left = align == '>' ? missing_chars : align == '<' ? 0 : half;
	if (missing_chars <= 0)
		return v;
	if ((uint64_t)missing_chars > p->max_output)
		pool_fail(p, "the template makes a text of more than %llu bytes",
			(unsigned long long)p->max_output);
	for (int64_t i = 0; i < missing_chars; i++) {
		if (i == left)
			build(p, &b, v.s, v.n);
		build(p, &b, fill.s, fill.n);
	}
	if (left == missing_chars)
		build(p, &b, v.s, v.n);
	return built(&b);
}

/* ---- formats --------------------------------------------------------------------------------- */

struct spec {
	struct value fill; /* one character */
	char align;        /* < > ^ =, or 0 */
	char sign;         /* + - or blank */
	bool alternate, comma;
	int64_t width, precision; /* -1: none */
	char type;                /* 0: by the value */
};

int64_t need_int(struct pool *p, struct value v)
{
	value_needs(p, v);
	if (v.kind == VALUE_BOOL)
		return v.b;
	if (v.kind != VALUE_INT)
		pool_fail(p, "'%s' object cannot be interpreted as an integer", value_type(v));
	return v.i;
}

struct value need_text(struct pool *p, struct value v, const char *what)
{
	value_needs(p, v);
	if (v.kind != VALUE_STRING)
		pool_fail(p, "%s must be str, not %s", what, value_type(v));
	return v;
}

static struct value with_commas(struct pool *p, const char *number)
{
	struct builder b = {0};
	size_t n = strspn(number, "0123456789");
	for (size_t i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			build_text(p, &b, ",");
		build(p, &b, number + i, 1);
	}
	build_text(p, &b, number + n);
	return built(&b);
}

enum { MAX_PRECISION = 100 };

/* The digits of a number, without its sign. */
static void number_digits(struct pool *p, struct value v, const struct spec *spec, char out[512])
{
	char type = spec->type, format[16];
	int precision = spec->precision < 0 ? 6 : (int)spec->precision;
	if (spec->precision > MAX_PRECISION)
		pool_fail(p, "a number of more than %d decimals", MAX_PRECISION);
	if (!type && v.kind == VALUE_FLOAT && spec->precision < 0) {
		format_float(fabs(v.f), out);
		return;
	}
	if (!type)
		type = v.kind == VALUE_FLOAT ? 'g' : 'd';
	if (strchr("eEfFgG%", type)) {
		double f = fabs(value_number(v)) * (type == '%' ? 100 : 1);
		snprintf(format, sizeof format, "%%%s.*%c%s", spec->alternate ? "#" : "",
			type == '%' ? 'f' : type, type == '%' ? "%%" : "");
		snprintf(out, 512, format, precision, f);
		return;
	}
	if (!strchr("dioxXub", type))
		pool_fail(p, "unknown format '%c' for a value of type '%s'", type, value_type(v));
	if (v.kind == VALUE_FLOAT && fabs(v.f) < 9e18)
		v = value_int((int64_t)v.f);
	int64_t i = v.kind == VALUE_BOOL ? v.b : v.kind == VALUE_INT ? v.i : 0;
	unsigned long long u = i < 0 ? 0 - (unsigned long long)i : (unsigned long long)i;
	if (type == 'b') {
		int at = 63;
		while (at > 0 && !(u >> at & 1))
			at--;
		for (; at >= 0; at--)
			*out++ = u >> at & 1 ? '1' : '0';
		*out = '\0';
	} else {
		const char *prefix = !spec->alternate ? ""
			: type == 'o'                 ? "0o"
			: type == 'x'                 ? "0x"
			: type == 'X'                 ? "0X"
						      : "";
		snprintf(format, sizeof format, "%%s%%ll%c", strchr("oxX", type) ? type : 'u');
		snprintf(out, 512, format, prefix, u);
	}
}

static struct value format_number(struct pool *p, struct value v, const struct spec *spec)
{
	char digits[512];
	bool negative = v.kind == VALUE_FLOAT ? signbit(v.f) && !isnan(v.f)
					      : v.kind == VALUE_INT && v.i < 0;
	number_digits(p, v, spec, digits);
	struct builder b = {0};
	const char *sign = negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
	struct value number =
		spec->comma ? with_commas(p, digits) : value_copy(p, digits, strlen(digits));
	build_text(p, &b, sign);
	if (spec->align == '=')
		number = text_pad(p, number, spec->width - (int64_t)strlen(sign), spec->fill, '>');
	build(p, &b, number.s, number.n);
	return text_pad(p, built(&b), spec->width, spec->fill, spec->align ? spec->align : '>');
}

static struct value format_text(struct pool *p, struct value v, const struct spec *spec)
{
	v = value_str(p, v);
	if (spec->precision >= 0)
		v = value_slice(p, v, value_none(), value_int(spec->precision), value_none());
	return text_pad(p, v, spec->width, spec->fill, spec->align ? spec->align : '<');
}

static struct value repr(struct pool *p, struct value v)
{
	struct builder b = {0};
	build_repr(p, &b, v);
	return built(&b);
}

/* A number at *at, or -1; '*' takes it from the arguments of %. */
static int64_t take_number(struct value v, size_t *at)
{
	int64_t n = -1;
	while (*at < v.n && v.s[*at] >= '0' && v.s[*at] <= '9') {
		n = (n < 0 ? 0 : n) * 10 + (v.s[(*at)++] - '0');
		n = n > INT32_MAX ? INT32_MAX : n;
	}
	return n;
}

static struct value percent_value(struct pool *p, struct value arguments, size_t *used)
{
	bool many = arguments.kind == VALUE_TUPLE;
	if (*used >= (many ? arguments.list->n : 1))
		pool_fail(p, "not enough arguments for format string");
	return many ? arguments.list->items[(*used)++] : ((*used)++, arguments);
}

/* One conversion; v.s[*at] is behind its '%'. */
static struct value percent_one(
	struct pool *p, struct value v, size_t *at, struct value arguments, size_t *used)
{
	struct spec spec = {.fill = value_text(" "), .precision = -1};
	struct value argument = value_none();
	bool named = false;
	if (*at < v.n && v.s[*at] == '(') {
		size_t close = text_find(p, v, value_text(")"), *at, false);
		if (close > v.n || arguments.kind != VALUE_DICT)
			pool_fail(p, "format requires a mapping");
		struct value key = part(v, *at + 1, close);
		const struct value *found = dict_find(p, arguments.dict, key);
		if (!found)
			pool_fail(p, "key '%.*s' is missing for the format", (int)key.n, key.s);
		argument = *found;
		named = true;
		*at = close + 1;
	}
	for (; *at < v.n && v.s[*at] && strchr("-+ #0", v.s[*at]); (*at)++) {
		char c = v.s[*at];
		if (c == '-')
			spec.align = '<';
		else if (c == '0' && spec.align != '<') {
			spec.align = '=';
			spec.fill = value_text("0");
		} else if (c == '#')
			spec.alternate = true;
		else if (c != '0')
			spec.sign = c;
	}
	spec.width = take_number(v, at);
	if (*at < v.n && v.s[*at] == '.') {
		(*at)++;
		spec.precision = take_number(v, at);
		spec.precision = spec.precision < 0 ? 0 : spec.precision;
	}
	spec.type = *at < v.n ? v.s[(*at)++] : 0;
	if (!spec.type || !strchr("sradiuoxXeEfFgGc", spec.type))
		pool_fail(p,
			spec.type ? "unsupported format character '%c'" : "incomplete format%c",
			spec.type ? spec.type : ' ');
	if (!named)
		argument = percent_value(p, arguments, used);
	if (strchr("srac", spec.type)) {
		struct value text =
			strchr("ra", spec.type) ? repr(p, argument) : value_str(p, argument);
		if (spec.align == '=' || !spec.align)
			spec.align = '>';
		spec.fill = value_text(" ");
		return format_text(p, text, &spec);
	}
	if (!value_is_number(argument))
		pool_fail(p, "%%%c format: a real number is required, not %s", spec.type,
			value_type(argument));
	return format_number(p, argument, &spec);
}

struct value text_percent(struct pool *p, struct value v, struct value arguments)
{
	struct builder b = {0};
	size_t used = 0;
	pool_work(p, v.n);
	for (size_t i = 0; i < v.n;) {
		if (v.s[i] != '%') {
			build(p, &b, v.s + i++, 1);
		} else if (++i < v.n && v.s[i] == '%') {
			build(p, &b, v.s + i++, 1);
		} else {
			struct value one = percent_one(p, v, &i, arguments, &used);
			build(p, &b, one.s, one.n);
		}
	}
	if (arguments.kind == VALUE_TUPLE
			? used < arguments.list->n
			: !used && arguments.kind != VALUE_DICT && !value_is_listlike(arguments))
		pool_fail(p, "not all arguments converted during string formatting");
	return built(&b);
}

static struct spec read_spec(struct pool *p, struct value v)
{
	struct spec spec = {.fill = value_text(" "), .precision = -1};
	size_t at = 0, n = v.n ? char_bytes(v.s, v.n) : 0;
	if (n && n < v.n && strchr("<>^=", v.s[n]) && v.s[n]) {
		spec.fill = part(v, 0, n);
		spec.align = v.s[n];
		at = n + 1;
	} else if (v.n && v.s[0] && strchr("<>^=", v.s[0])) {
		spec.align = v.s[0];
		at = 1;
	}
	if (at < v.n && v.s[at] && strchr("+- ", v.s[at]))
		spec.sign = v.s[at++];
	if (at < v.n && v.s[at] == '#') {
		spec.alternate = true;
		at++;
	}
	if (at < v.n && v.s[at] == '0' && !spec.align) {
		spec.align = '=';
		spec.fill = value_text("0");
		at++;
	}
	spec.width = take_number(v, &at);
	if (at < v.n && v.s[at] == ',') {
		spec.comma = true;
		at++;
	}
	if (at < v.n && v.s[at] == '.') {
		at++;
		spec.precision = take_number(v, &at);
	}
	if (at < v.n)
		spec.type = v.s[at++];
	if (at < v.n)
		pool_fail(p, "invalid format specifier '%.*s'", (int)v.n, v.s);
	return spec;
}

/* The argument that `{...}` names: a number, a name or nothing, then .attributes and [items]. */
static struct value format_argument(
	struct pool *p, struct value field, const struct arguments *a, size_t *next)
{
	size_t n = 0;
	while (n < field.n && field.s[n] != '.' && field.s[n] != '[')
		n++;
	struct value name = part(field, 0, n), v = value_none();
	size_t at = 0;
	int64_t number = take_number(name, &at);
	if (!name.n || (number >= 0 && at == name.n)) {
		size_t i = name.n ? (size_t)number : (*next)++;
		if (i >= a->n)
			pool_fail(p, "replacement index %zu out of range for positional args tuple",
				i);
		v = a->items[i];
	} else {
		bool found = false;
		for (size_t i = 0; i < a->n_keywords; i++)
			if (value_equal(p, a->keywords[i].name, name)) {
				v = a->keywords[i].value;
				found = true;
			}
		if (!found)
			pool_fail(p, "format: no argument named '%.*s'", (int)name.n, name.s);
	}
	while (n < field.n) {
		bool item = field.s[n] == '[';
		size_t end = ++n;
		while (end < field.n &&
			(item ? field.s[end] != ']' : field.s[end] != '.' && field.s[end] != '['))
			end++;
		struct value key = part(field, n, end);
		at = 0;
		number = take_number(key, &at);
		v = !item ? value_attribute(p, v, key)
			  : value_subscript(p, v, key.n && at == key.n ? value_int(number) : key);
		n = end + item;
	}
	return v;
}

struct value text_format(struct pool *p, struct value v, const struct arguments *a)
{
	struct builder b = {0};
	size_t next = 0;
	pool_work(p, v.n);
	for (size_t i = 0; i < v.n; i++) {
		char c = v.s[i];
		if ((c == '{' || c == '}') && i + 1 < v.n && v.s[i + 1] == c) {
			build(p, &b, v.s + i++, 1);
			continue;
		}
		if (c != '{') {
			if (c == '}')
				pool_fail(p, "Single '}' encountered in format string");
			build(p, &b, v.s + i, 1);
			continue;
		}
		size_t close = text_find(p, v, value_text("}"), i, false);
		if (close > v.n)
			pool_fail(p, "expected '}' before end of string");
		struct value field = part(v, i + 1, close), spec = value_text("");
		size_t colon = text_find(p, field, value_text(":"), 0, false);
		if (colon < field.n) {
			spec = part(field, colon + 1, field.n);
			field.n = colon;
		}
		size_t mark = text_find(p, field, value_text("!"), 0, false);
		char conversion = mark + 1 < field.n ? field.s[mark + 1] : 0;
		field.n = mark < field.n ? mark : field.n;
		struct value one = format_argument(p, field, a, &next);
		if (conversion)
			one = conversion == 'r' ? repr(p, one) : value_str(p, one);
		struct spec how = read_spec(p, spec);
		bool number = value_is_number(one) && (one.kind != VALUE_BOOL || how.type);
		one = number && how.type != 's' ? format_number(p, one, &how)
						: format_text(p, one, &how);
		build(p, &b, one.s, one.n);
		i = close;
	}
	return built(&b);
}
