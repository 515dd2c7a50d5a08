/* Numbers and regular expressions as GBNF: see schema_pattern.h. */
#include "schema_pattern.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

static bool all_are(const char *digits, size_t n, char digit)
{
	for (size_t i = 0; i < n; i++)
		if (digits[i] != digit)
			return false;
	return true;
}

/* The digits[n] from low to high, as a group. */
static bool digits_of_length(struct text *e, const char *low, const char *high, size_t n)
{
	static const char zeros[] = "00000000000000000000", nines[] = "99999999999999999999";
	if (n == 0)
		return text_append(e, "", 0);
	if (all_are(low, n, '0') && all_are(high, n, '9'))
		return text_printf(e, "[0-9]{%zu}", n);
	if (low[0] == high[0])
		return text_printf(e, "\"%c\" ", low[0]) &&
			digits_of_length(e, low + 1, high + 1, n - 1);
	/* The ends of the first digit's range where the rest does not go from all 0 to all 9. */
	bool cut_low = !all_are(low + 1, n - 1, '0'), cut_high = !all_are(high + 1, n - 1, '9');
	char first = (char)(low[0] + cut_low), last = (char)(high[0] - cut_high);
	bool ok = text_append(e, "(", 1);
	if (cut_low)
		ok = ok && text_printf(e, "\"%c\" ", low[0]) &&
			digits_of_length(e, low + 1, nines, n - 1) &&
			text_printf(e, first <= last || cut_high ? " | " : "");
	if (first <= last) {
		ok = ok && text_printf(e, "[%c-%c] ", first, last);
		ok = ok && (n == 1 || text_printf(e, "[0-9]{%zu}", n - 1));
		ok = ok && text_printf(e, cut_high ? " | " : "");
	}
	if (cut_high)
		ok = ok && text_printf(e, "\"%c\" ", high[0]) &&
			digits_of_length(e, zeros, high + 1, n - 1);
	return ok && text_append(e, ")", 1);
}

bool digits_between(struct text *e, uint64_t low, uint64_t high)
{
	bool ok = text_append(e, "(", 1);
	for (uint64_t first = low; ok;) {
		char from[24], to[24];
		int n = snprintf(from, sizeof from, "%llu", (unsigned long long)first);
		uint64_t last = 9; /* the largest with as many digits */
		for (int i = 1; i < n && last < high; i++)
			last = last > (UINT64_MAX - 9) / 10 ? UINT64_MAX : last * 10 + 9;
		last = last < high ? last : high;
		snprintf(to, sizeof to, "%llu", (unsigned long long)last);
		ok = text_printf(e, first > low ? " | " : "") &&
			digits_of_length(e, from, to, (size_t)n);
		if (last >= high)
			break;
		first = last + 1;
	}
	return ok && text_append(e, ")", 1);
}

/* ---- regular expressions --------------------------------------------------------------------- */

#define MAX_GROUPS 50
#define MAX_RANGES 256
#define LAST_CODE  0x10FFFFu

struct range {
	uint32_t first, last;
};

struct class
{
	struct range ranges[MAX_RANGES];
	unsigned n;
};

struct regex {
	const char *pattern;
	size_t n, at;
	struct text *e;
	unsigned n_groups;
	bool negated; /* within [^...] */
	char *wrong;
	bool failed;
};

static void refuse(struct regex *r, const char *format, ...) PRINTF_LIKE(2, 3);
static void refuse(struct regex *r, const char *format, ...)
{
	if (r->failed)
		return;
	r->failed = true;
	char what[160];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	snprintf(r->wrong, 256, "%s (at byte %zu)", what, r->at);
}

static void put(struct regex *r, const char *format, ...) PRINTF_LIKE(2, 3);
static void put(struct regex *r, const char *format, ...)
{
	char what[128];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(what, sizeof what, format, args);
	va_end(args);
	if (!r->failed && !text_append(r->e, what, (size_t)n))
		refuse(r, "out of memory");
}

static int peek(const struct regex *r)
{
	return r->at < r->n ? (unsigned char)r->pattern[r->at] : -1;
}

static void class_add(struct regex *r, struct class *class, uint32_t first, uint32_t last)
{
	if (class->n == MAX_RANGES)
		refuse(r, "a class has more than %d ranges", MAX_RANGES);
	else
		class->ranges[class->n++] = (struct range){first, last};
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

static void class_negate(struct regex *r, struct class *class)
{
	struct class negated = {.n = 0};
	uint32_t from = 0;
	qsort(class->ranges, class->n, sizeof *class->ranges, compare_ranges);
	for (unsigned i = 0; i < class->n; i++) {
		if (class->ranges[i].first > from)
			class_add(r, &negated, from, class->ranges[i].first - 1);
		if (class->ranges[i].last >= from)
			from = class->ranges[i].last + 1;
	}
	if (from <= LAST_CODE)
		class_add(r, &negated, from, LAST_CODE);
	*class = negated;
}

static bool class_has(const struct class *class, uint32_t code)
{
	for (unsigned i = 0; i < class->n; i++)
		if (code >= class->ranges[i].first && code <= class->ranges[i].last)
			return true;
	return false;
}

/* A class as it is spelled in a JSON string: characters as themselves where they may be, quotes, backslashes and
 * the control characters that have one by their escape. */
static void put_class(struct regex *r, const struct class *class)
{
	static const struct {
		unsigned char code, letter;
	} escapes[] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'},
		{'\t', 't'}};
	static const struct range plain[] = {
		{' ', '!'}, {'#', '['}, {']', 0x7E}, {0x80, 0xD7FF}, {0xE000, LAST_CODE}};
	bool any = false;
	put(r, "(");
	for (unsigned i = 0; i < class->n; i++)
		for (unsigned k = 0; k < ARRAY_COUNT(plain); k++) {
			uint32_t first = class->ranges[i].first, last = class->ranges[i].last;
			first = first > plain[k].first ? first : plain[k].first;
			last = last < plain[k].last ? last : plain[k].last;
			if (first > last)
				continue;
			put(r, any ? "\\U%08X-\\U%08X" : "[\\U%08X-\\U%08X", (unsigned)first,
				(unsigned)last);
			any = true;
		}
	put(r, any ? "]" : "");
	for (unsigned i = 0; i < ARRAY_COUNT(escapes); i++)
		if (class_has(class, escapes[i].code)) {
			bool quoted = escapes[i].letter == '"' || escapes[i].letter == '\\';
			put(r, "%s\"\\\\%s%c\"", any ? " | " : "", quoted ? "\\" : "",
				escapes[i].letter);
			any = true;
		}
	put(r, ")");
	if (!any)
		refuse(r, "a class without a character that a string can spell");
}

static uint32_t read_hex(struct regex *r, unsigned n_digits)
{
	uint32_t code = 0;
	for (unsigned i = 0; i < n_digits && !r->failed; i++, r->at++) {
		int c = peek(r), low = c | 32;
		if (c >= '0' && c <= '9')
			code = code * 16 + (uint32_t)(c - '0');
		else if (c > 0 && low >= 'a' && low <= 'f')
			code = code * 16 + (uint32_t)(low - 'a' + 10);
		else
			refuse(r, "an escape without its hexadecimal digits");
	}
	if (code >= 0xD800 && code < 0xE000)
		refuse(r, "half of a surrogate pair");
	return code;
}

/* What is white space is not the same in every dialect that schemas are checked with: \s gives what all of them
 * mean, \S what none of them does. */
static void add_named(struct regex *r, struct class *class, int name)
{
	static const struct range digits[] = {{'0', '9'}};
	static const struct range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
	static const struct range space[] = {{'\t', '\r'}, {' ', ' '}};
	static const struct range any_space[] = {{'\t', '\r'}, {0x1C, ' '}, {0x85, 0x85},
		{0xA0, 0xA0}, {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200A},
		{0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
		{0xFEFF, 0xFEFF}};
	bool turned = name < 'a', wide = turned != r->negated;
	const struct range *ranges = wide ? any_space : space;
	size_t n = wide ? ARRAY_COUNT(any_space) : ARRAY_COUNT(space);
	if ((name | 32) == 'd') {
		ranges = digits;
		n = ARRAY_COUNT(digits);
	} else if ((name | 32) == 'w') {
		ranges = word;
		n = ARRAY_COUNT(word);
	}
	struct class named = {.n = 0};
	for (size_t i = 0; i < n; i++)
		class_add(r, &named, ranges[i].first, ranges[i].last);
	if (turned)
		class_negate(r, &named);
	for (unsigned i = 0; i < named.n; i++)
		class_add(r, class, named.ranges[i].first, named.ranges[i].last);
}

/* Behind a backslash: adds what it stands for; true when that is one character, then in *code. */
static bool read_escape(struct regex *r, struct class *class, uint32_t *code, bool inside)
{
	int c = peek(r);
	static const char named[] = "nrtfv", values[] = "\n\r\t\f\v";
	const char *at = c > 0 ? strchr(named, c) : NULL;
	*code = 0;
	r->at++;
	if (c > 0 && strchr("dDwWsS", c)) {
		add_named(r, class, c);
		return false;
	}
	if (at)
		*code = (unsigned char)values[at - named];
	else if (c == 'x' || c == 'u')
		*code = read_hex(r, c == 'x' ? 2 : 4);
	else if (c == 'b' && inside)
		*code = '\b';
	else if (c == '0' && (peek(r) < '0' || peek(r) > '9'))
		*code = 0;
	else if (c > ' ' && c < 0x7F && !((c | 32) >= 'a' && (c | 32) <= 'z') &&
		!(c >= '0' && c <= '9'))
		*code = (uint32_t)c;
	else if (c < 0)
		refuse(r, "a backslash at the end");
	else
		refuse(r, "the escape \\%c is not supported", c >= ' ' && c < 0x7F ? c : '?');
	class_add(r, class, *code, *code);
	return true;
}

static uint32_t read_character(struct regex *r)
{
	uint32_t code = 0;
	unsigned length = utf8_decode(r->pattern + r->at, r->n - r->at, &code);
	if (!length)
		refuse(r, "a byte that is no UTF-8");
	r->at += length ? length : 1;
	return code;
}

/* One character or set of a class; true when it is one character, then in *code. */
static bool read_class_part(struct regex *r, struct class *class, uint32_t *code)
{
	if (peek(r) == '\\') {
		r->at++;
		return read_escape(r, class, code, true);
	}
	*code = read_character(r);
	class_add(r, class, *code, *code);
	return true;
}

static void read_class(struct regex *r, struct class *class)
{
	bool negated = peek(r) == '^';
	r->negated = negated;
	r->at += negated;
	while (!r->failed && peek(r) != ']') {
		uint32_t first, last; /* each is added; a range takes the place of its two ends */
		if (peek(r) < 0) {
			refuse(r, "a class without ]");
			return;
		}
		bool one = read_class_part(r, class, &first);
		if (peek(r) != '-' || r->at + 1 >= r->n || r->pattern[r->at + 1] == ']')
			continue;
		r->at++;
		if (!one || !read_class_part(r, class, &last) || last < first)
			refuse(r, "a range without two ends in their order");
		else
			class->ranges[--class->n - 1] = (struct range){first, last};
	}
	r->at++;
	r->negated = false;
	if (negated)
		class_negate(r, class);
}

static void put_alternatives(struct regex *r, bool outermost);

static void put_group(struct regex *r)
{
	if (peek(r) == '?') {
		r->at++;
		bool named =
			peek(r) == '<' && r->at + 1 < r->n && !strchr("=!", r->pattern[r->at + 1]);
		if (named)
			while (peek(r) >= 0 && peek(r) != '>')
				r->at++;
		else if (peek(r) != ':')
			refuse(r, "groups that look ahead or behind are not supported");
		r->at++;
	}
	if (++r->n_groups > MAX_GROUPS)
		refuse(r, "groups nest deeper than %d", MAX_GROUPS);
	if (!r->failed)
		put_alternatives(r, false);
	r->n_groups--;
	if (peek(r) != ')')
		refuse(r, "a group without )");
	r->at++;
}

/* * + ? {m} {m,} {m,n} mean the same to both; a ? behind them changes what is found first, not what fits. */
static void put_quantifier(struct regex *r)
{
	int c = peek(r);
	if (c <= 0 || !strchr("*+?{", c))
		return;
	unsigned long low, high;
	size_t digits = 0, start = r->at++;
	if (c == '{') {
		low = high = 0;
		for (; peek(r) >= '0' && peek(r) <= '9' && low <= UINT16_MAX; digits++, r->at++)
			low = low * 10 + (unsigned long)(peek(r) - '0');
		bool comma = peek(r) == ',', open = true;
		r->at += comma;
		for (; comma && peek(r) >= '0' && peek(r) <= '9' && high <= UINT16_MAX; r->at++) {
			high = high * 10 + (unsigned long)(peek(r) - '0');
			open = false;
		}
		if (!digits || peek(r) != '}' || low > UINT16_MAX || high > UINT16_MAX ||
			(comma && !open && high < low)) {
			r->at = start;
			refuse(r, "a { that is no repetition of at most %d", UINT16_MAX);
			return;
		}
		r->at++;
		put(r, comma ? open ? "{%lu,}" : "{%lu,%lu}" : "{%lu}", low, high);
	} else {
		put(r, "%c", c);
	}
	if (peek(r) == '?')
		r->at++;
	if (peek(r) > 0 && strchr("*+?{", peek(r)))
		refuse(r, "a repetition of a repetition");
}

static void put_atom(struct regex *r)
{
	struct class class = {.n = 0};
	uint32_t code;
	int c = peek(r);
	if (c == '^' || c == '$')
		refuse(r, "a %c that is not at the end of the expression", c);
	if (c > 0 && strchr("*+?{", c))
		refuse(r, "a repetition of nothing");
	r->at++;
	if (c == '(') {
		put_group(r);
		return;
	}
	if (c == '.') { /* all but what ends a line */
		class_add(r, &class, '\n', '\n');
		class_add(r, &class, '\r', '\r');
		class_add(r, &class, 0x2028, 0x2029);
		class_negate(r, &class);
	} else if (c == '[') {
		read_class(r, &class);
	} else if (c == '\\') {
		read_escape(r, &class, &code, false);
	} else {
		r->at--;
		code = read_character(r);
		class_add(r, &class, code, code);
	}
	if (!r->failed)
		put_class(r, &class);
}

static bool at_end(const struct regex *r, size_t at)
{
	return at >= r->n || r->pattern[at] == '|' || (r->pattern[at] == ')' && r->n_groups);
}

/* An expression is looked for anywhere in the text unless it is tied to an end of it. */
static void put_alternatives(struct regex *r, bool outermost)
{
	put(r, "(");
	for (bool more = true; more && !r->failed; more = peek(r) == '|', r->at += more) {
		bool tied = outermost && peek(r) == '^';
		put(r, outermost && !tied ? "char* " : "");
		r->at += tied;
		tied = false;
		while (!r->failed && !at_end(r, r->at)) {
			if (outermost && peek(r) == '$' && at_end(r, r->at + 1)) {
				tied = true;
				r->at++;
				break;
			}
			if (peek(r) == ')') {
				refuse(r, "a ) without (");
				break;
			}
			put_atom(r);
			put_quantifier(r);
			put(r, " ");
		}
		put(r, outermost && !tied ? "char*" : "");
		put(r, peek(r) == '|' ? " | " : "");
	}
	put(r, ")");
}

bool pattern_to_gbnf(const char *pattern, size_t n, struct text *e, char *wrong)
{
	struct regex r = {.pattern = pattern, .n = n, .e = e, .wrong = wrong};
	put_alternatives(&r, true);
	return !r.failed;
}
