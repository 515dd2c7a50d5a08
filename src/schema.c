/* JSON schema to GBNF: see schema.h.
 *
 * Every schema becomes an expression; objects, arrays and choices become rules of their own. */
#include "schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema_merge.h"
#include "schema_pattern.h"

#define MAX_OUTPUT   (4 << 20) /* bytes of GBNF */
#define MAX_REFS     1000      /* places that are referred to */
#define KEY_DEPTH    64 /* characters by which a name is told from the names that are taken */
#define DIGITS       16 /* of a number before its point */
#define EXACT_DIGITS 15 /* of a number that a double keeps apart from its neighbours */

/* Rules that every schema may use; those it does are written behind its own, with those they use. */
enum builtin {
	BUILTIN_WS,
	BUILTIN_SEPARATOR,
	BUILTIN_CHAR,
	BUILTIN_STRING,
	BUILTIN_NUMBER,
	BUILTIN_INTEGER,
	BUILTIN_VALUE,
	BUILTIN_OBJECT,
	BUILTIN_ARRAY,
	BUILTIN_KEY_REST,
	BUILTIN_DATE,
	BUILTIN_TIME,
	BUILTIN_DATE_TIME,
	BUILTIN_UUID,
	N_BUILTINS,
};

static const struct {
	const char *name, *body;
	uint32_t uses; /* 1 << builtin */
} builtins[N_BUILTINS] = {
	[BUILTIN_WS] = {"ws", "(\" \" | \"\\n\" [ \\t]{0,20})?", 0},
	[BUILTIN_SEPARATOR] = {"separator", "ws \",\" ws", 1 << BUILTIN_WS},
	/* One code point each, so that lengths are right: no halves of surrogate pairs. */
	[BUILTIN_CHAR] = {"char",
		"[^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9A-CE-Fa-ce-f] "
		"[0-9A-Fa-f]{3} | [Dd] [0-7] [0-9A-Fa-f]{2}))",
		0},
	[BUILTIN_STRING] = {"string", "\"\\\"\" char* \"\\\"\"", 1 << BUILTIN_CHAR},
	[BUILTIN_NUMBER] = {"number",
		"\"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?",
		0},
	[BUILTIN_INTEGER] = {"integer", "\"0\" | \"-\"? [1-9] [0-9]{0,15}", 0},
	[BUILTIN_VALUE] = {"value",
		"object | array | string | number | \"true\" | \"false\" | \"null\"",
		1 << BUILTIN_OBJECT | 1 << BUILTIN_ARRAY | 1 << BUILTIN_STRING |
			1 << BUILTIN_NUMBER},
	[BUILTIN_OBJECT] = {"object",
		"\"{\" ws (string \":\" ws value (separator string \":\" ws value)*)? ws \"}\"",
		1 << BUILTIN_WS | 1 << BUILTIN_SEPARATOR | 1 << BUILTIN_STRING |
			1 << BUILTIN_VALUE},
	[BUILTIN_ARRAY] = {"array", "\"[\" ws (value (separator value)*)? ws \"]\"",
		1 << BUILTIN_WS | 1 << BUILTIN_SEPARATOR | 1 << BUILTIN_VALUE},
	[BUILTIN_KEY_REST] = {"key-rest", "[^\"\\\\\\x00-\\x1F\\x7F]* \"\\\"\"", 0},
	/* RFC 3339 with a year of four digits that does not start with 0; months are as long as they are. */
	[BUILTIN_DATE] = {"date",
		"[1-9] [0-9]{3} \"-\" ((\"0\" [13578] | \"1\" [02]) \"-\" (\"0\" [1-9] | [12] "
		"[0-9] | "
		"\"3\" [01]) | (\"0\" [469] | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\") | "
		"\"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])) | ([1-9] [0-9] (\"0\" [48] | "
		"[2468] "
		"[048] | [13579] [26]) | ([2468] [048] | [13579] [26]) \"00\") \"-02-29\"",
		0},
	[BUILTIN_TIME] = {"time",
		"([01] [0-9] | \"2\" [0-3]) (\":\" [0-5] [0-9]){2} (\".\" [0-9]{1,6})? (\"Z\" | "
		"[-+] "
		"([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])",
		0},
	[BUILTIN_DATE_TIME] = {"date-time", "date \"T\" time",
		1 << BUILTIN_DATE | 1 << BUILTIN_TIME},
	[BUILTIN_UUID] = {"uuid", "[0-9a-fA-F]{8} (\"-\" [0-9a-fA-F]{4}){3} \"-\" [0-9a-fA-F]{12}",
		0},
};

/* ---- writing --------------------------------------------------------------------------------- */

static void put(struct converter *c, struct text *e, const char *format, ...) PRINTF_LIKE(3, 4);
static void put(struct converter *c, struct text *e, const char *format, ...)
{
	if (c->status)
		return;
	char what[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(what, sizeof what, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof what || !text_append(e, what, (size_t)n))
		schema_no_memory(c);
	else if (e->n > MAX_OUTPUT)
		schema_refuse(c, "becomes more than %d bytes of grammar", MAX_OUTPUT);
}

static void put_builtin(struct converter *c, struct text *e, enum builtin builtin)
{
	c->used |= 1u << builtin;
	put(c, e, "%s", builtins[builtin].name);
}

/* A finished rule. */
static void put_rule(struct converter *c, const char *name, const struct text *body)
{
	put(c, &c->rules, "%s ::= ", name);
	if (!c->status && body->n && !text_append(&c->rules, body->data, body->n))
		schema_no_memory(c);
	put(c, &c->rules, "%s\n", body->n ? "" : "\"\"");
}

/* Steps into a part of the schema for messages; the length to come back to. */
static size_t enter(struct converter *c, const char *keyword, const char *name)
{
	size_t n = c->path.n;
	if (!text_printf(&c->path, name ? "/%s/%s" : "/%s", keyword, name))
		schema_no_memory(c);
	return n;
}

static size_t enter_index(struct converter *c, const char *keyword, size_t i)
{
	char index[32];
	snprintf(index, sizeof index, "%zu", i);
	return enter(c, keyword, index);
}

static void leave(struct converter *c, size_t n)
{
	c->path.n = n;
	c->path.data[n] = '\0';
}

/* Bytes as a literal of GBNF. */
static void put_literal(struct converter *c, struct text *e, const char *bytes, size_t n)
{
	put(c, e, "\"");
	for (size_t i = 0; i < n && !c->status; i++) {
		unsigned char byte = (unsigned char)bytes[i];
		if (byte == '"' || byte == '\\')
			put(c, e, "\\%c", byte);
		else if (byte < ' ' || byte == 0x7F)
			put(c, e, "\\x%02X", byte);
		else if (!text_append(e, &bytes[i], 1))
			schema_no_memory(c);
	}
	put(c, e, "\"");
}

/* A value as a literal, its numbers as short as they can be. */
static void put_json(struct converter *c, struct text *e, json_t *value)
{
	char *text = NULL;
	for (unsigned digits = 15; digits <= 17 && !c->status; digits++) {
		free(text);
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
		json_t *back =
			text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
		bool same = back && json_equal(back, value);
		json_decref(back);
		if (same)
			break;
	}
	if (text)
		put_literal(c, e, text, strlen(text));
	else
		schema_no_memory(c);
	free(text);
}

/* The rule of a place that is referred to; written later, once. */
static void put_reference(struct converter *c, struct text *e, json_t *ref)
{
	json_t *target = schema_find(c, ref);
	unsigned i = 0;
	while (target && i < c->n_refs && c->refs[i].target != target)
		i++;
	if (target && i == c->n_refs) {
		if (c->n_refs == MAX_REFS) {
			schema_refuse(c, "refers to more than %d places", MAX_REFS);
			return;
		}
		char *path = strdup(json_string_value(ref));
		if (!path) {
			schema_no_memory(c);
			return;
		}
		c->refs[c->n_refs++] = (struct reference){target, path};
	}
	put(c, e, "ref%u", i);
}

/* ---- values of one type ---------------------------------------------------------------------- */

static void put_schema(struct converter *c, struct text *e, json_t *schema);

/* A part of the schema as an expression, in its place. */
static void put_part(
	struct converter *c, struct text *e, json_t *schema, const char *keyword, const char *name)
{
	size_t n = enter(c, keyword, name);
	put_schema(c, e, schema);
	leave(c, n);
}

/* A new name for a rule of this kind. */
static void rule_name(struct converter *c, char name[32], const char *kind)
{
	snprintf(name, 32, "%s%u", kind, c->n_rules++);
}

static void put_values(struct converter *c, struct text *e, json_t *schema)
{
	json_t *values = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
	json_t *list = values ? json_incref(values) : json_array();
	unsigned types = schema_types_listed(c, schema), n = 0;
	if (!json_is_array(list))
		schema_refuse(c, "\"enum\" is no array");
	if (!values)
		json_array_append(list, only);
	size_t i;
	json_t *value;
	put(c, e, "(");
	json_array_foreach (list, i, value) {
		if (!schema_has_type(types, value) || (only && !json_equal(only, value)))
			continue;
		const char *key;
		json_t *ignored;
		json_object_foreach (schema, key, ignored) {
			const struct keyword *keyword = schema_keyword(key);
			if (keyword && keyword->types != TYPE_ANY &&
				schema_has_type(keyword->types, value))
				schema_refuse(c, "\"%s\" together with \"%s\" is not supported",
					values ? "enum" : "const", key);
		}
		put(c, e, n++ ? " | " : "");
		put_json(c, e, value);
	}
	put(c, e, ")");
	if (!n)
		schema_refuse(c, "\"%s\" allows no value", values ? "enum" : "const");
	json_decref(list);
}

static void put_string(struct converter *c, struct text *e, json_t *schema)
{
	json_t *pattern = json_object_get(schema, "pattern");
	json_t *format = json_object_get(schema, "format");
	uint32_t low = schema_count(c, schema, "minLength", 0);
	uint32_t high = schema_count(c, schema, "maxLength", UINT32_MAX);
	bool sized = low || high != UINT32_MAX;
	schema_refuse_unknown(c, schema, TYPE_STRING);
	if (!!pattern + !!format + sized > 1) {
		schema_refuse(c, "\"%s\" together with \"%s\" is not supported",
			pattern ? "pattern" : "format",
			pattern && format            ? "format"
				: high == UINT32_MAX ? "minLength"
						     : "maxLength");
	} else if (pattern) {
		char wrong[256];
		struct text expression = {0};
		if (!json_is_string(pattern)) {
			schema_refuse(c, "\"pattern\" is no string");
		} else if (!pattern_to_gbnf(json_string_value(pattern), json_string_length(pattern),
				   &expression, wrong)) {
			schema_refuse(c, "\"pattern\": %s", wrong);
		} else {
			c->used |= 1u << BUILTIN_CHAR;
			put(c, e, "(\"\\\"\" (");
			if (!c->status && !text_append(e, expression.data, expression.n))
				schema_no_memory(c);
			put(c, e, ") \"\\\"\")");
		}
		text_free(&expression);
	} else if (format) {
		static const enum builtin formats[] = {
			BUILTIN_DATE, BUILTIN_TIME, BUILTIN_DATE_TIME, BUILTIN_UUID};
		const char *name = json_string_value(format);
		for (size_t i = 0; i < ARRAY_COUNT(formats); i++)
			if (name && !strcmp(name, builtins[formats[i]].name)) {
				put(c, e, "(\"\\\"\" ");
				put_builtin(c, e, formats[i]);
				put(c, e, " \"\\\"\")");
				return;
			}
		schema_refuse(c, "\"format\" is \"%.100s\", expected date, time, date-time or uuid",
			name ? name : "?");
	} else if (sized) {
		schema_refuse_range(c, "characters", low, high);
		put(c, e, "(\"\\\"\" ");
		put_builtin(c, e, BUILTIN_CHAR);
		put(c, e, high == UINT32_MAX ? "{%u,}" : "{%u,%u}", (unsigned)low, (unsigned)high);
		put(c, e, " \"\\\"\")");
	} else {
		put_builtin(c, e, BUILTIN_STRING);
	}
}

struct bound {
	bool given, exclusive;
	double value;
};

/* The stricter of a bound and its exclusive form. */
static struct bound bound_of(struct converter *c, json_t *schema, const char *keyword,
	const char *exclusive, double sign)
{
	struct bound bound = {0};
	json_t *value = json_object_get(schema, keyword);
	if (value && !json_is_number(value))
		schema_refuse(c, "\"%s\" is no number", keyword);
	else if (value)
		bound = (struct bound){true, false, json_number_value(value)};
	value = json_object_get(schema, exclusive);
	if (value && !json_is_number(value))
		schema_refuse(c, "\"%s\" is no number", exclusive);
	else if (value && (!bound.given || sign * json_number_value(value) >= sign * bound.value))
		bound = (struct bound){true, true, json_number_value(value)};
	if (bound.given && !(fabs(bound.value) < 1e15))
		schema_refuse(
			c, "\"%s\" is %g, expected a number below 1e15", keyword, bound.value);
	return bound;
}

static void put_integer(struct converter *c, struct text *e, struct bound low, struct bound high)
{
	if (!low.given && !high.given) {
		put_builtin(c, e, BUILTIN_INTEGER);
		return;
	}
	static const int64_t most = 9999999999999999;
	int64_t first = -most, last = most;
	if (low.given)
		first = low.exclusive ? (int64_t)floor(low.value) + 1 : (int64_t)ceil(low.value);
	if (high.given)
		last = high.exclusive ? (int64_t)ceil(high.value) - 1 : (int64_t)floor(high.value);
	if (first > last) {
		schema_refuse(c, "no integer is within \"minimum\" and \"maximum\"");
		return;
	}
	put(c, e, "(");
	if (first < 0) {
		put(c, e, "\"-\" ");
		if (!digits_between(e, last < 0 ? (uint64_t)-last : 1, (uint64_t)-first))
			schema_no_memory(c);
		put(c, e, last >= 0 ? " | " : "");
	}
	if (last >= 0 && !digits_between(e, first > 0 ? (uint64_t)first : 0, (uint64_t)last))
		schema_no_memory(c);
	put(c, e, ")");
}

static unsigned n_digits(uint64_t n)
{
	unsigned digits = 1;
	for (; n >= 10; n /= 10)
		digits++;
	return digits;
}

/* Numbers from `low` to `high` (both at least 0 and whole) without a sign; few enough digits that a double tells
 * them from the bounds.  False when there is none. */
static bool put_magnitude(struct converter *c, struct text *e, struct bound low, struct bound high)
{
	static const uint64_t most = 999999999999999;
	uint64_t first = (uint64_t)low.value, last = high.given ? (uint64_t)high.value : most;
	unsigned used = n_digits(high.given && last > first ? last : first);
	unsigned fraction = used < EXACT_DIGITS ? EXACT_DIGITS - used : 0, n = 0;
	bool inside = !high.given || last > first; /* there is something between the bounds */
	if (inside && low.exclusive && fraction) {
		put(c, e, "\"%llu.\" [0-9]{0,%u} [1-9]", (unsigned long long)first, fraction - 1);
		n++;
	}
	uint64_t from = first + low.exclusive, to = high.given ? last - 1 : last;
	if (inside && from <= to) {
		put(c, e, n++ ? " | " : "");
		if (!digits_between(e, from, to))
			schema_no_memory(c);
		if (fraction && high.given)
			put(c, e, " (\".\" [0-9]{1,%u})?", fraction);
		else if (!high.given)
			put(c, e, " (\".\" [0-9]{1,%d})?", DIGITS);
	}
	if (high.given && !high.exclusive && (last > first || (last == first && !low.exclusive))) {
		put(c, e, n++ ? " | " : "");
		put(c, e, "\"%llu\" (\".\" \"0\"{1,%d})?", (unsigned long long)last, DIGITS);
	}
	return n > 0;
}

static void put_number(struct converter *c, struct text *e, struct bound low, struct bound high)
{
	if (!low.given && !high.given) {
		put_builtin(c, e, BUILTIN_NUMBER);
		return;
	}
	if (floor(low.value) != low.value || floor(high.value) != high.value) {
		schema_refuse(c, "a bound of a \"number\" is %g, expected a whole number",
			floor(low.value) != low.value ? low.value : high.value);
		return;
	}
	unsigned n = 0;
	struct text part = {0};
	put(c, e, "(");
	for (int negative = 0; negative < 2; negative++) {
		struct bound from = negative ? high : low, to = negative ? low : high;
		double sign = negative ? -1 : 1;
		from.value *= sign;
		to.value *= sign;
		if (!from.given || from.value < 0) /* zero is among the positive ones */
			from = (struct bound){true, negative, 0};
		if (negative && from.value == 0) /* ... and has no minus sign */
			from.exclusive = true;
		if (to.given && to.value < from.value)
			continue;
		part.n = 0;
		if (!put_magnitude(c, &part, from, to) || c->status)
			continue;
		put(c, e, n++ ? " | " : "");
		put(c, e, negative ? "\"-\" (" : "(");
		if (!c->status && !text_append(e, part.data, part.n))
			schema_no_memory(c);
		put(c, e, ")");
	}
	put(c, e, ")");
	text_free(&part);
	if (!n)
		schema_refuse(c, "no number is within \"minimum\" and \"maximum\"");
}

static void put_numeric(struct converter *c, struct text *e, json_t *schema, bool integer)
{
	json_t *multiple = json_object_get(schema, "multipleOf");
	schema_refuse_unknown(c, schema, TYPE_NUMBER);
	if (multiple && !(integer && json_number_value(multiple) == 1))
		schema_refuse(c, "the keyword \"multipleOf\" is not supported");
	struct bound low = bound_of(c, schema, "minimum", "exclusiveMinimum", 1);
	struct bound high = bound_of(c, schema, "maximum", "exclusiveMaximum", -1);
	if (c->status)
		return;
	if (integer)
		put_integer(c, e, low, high);
	else
		put_number(c, e, low, high);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Rules NAME-0, NAME-1, ... say what follows from the item of that number on. */
static void put_items(struct converter *c, const char *name, json_t *prefix, json_t *rest,
	const char *rest_keyword, uint32_t low, uint32_t high)
{
	struct text body = {0};
	char rule[64];
	size_t n_prefix = json_array_size(prefix), n = n_prefix < high ? n_prefix : high;
	for (size_t i = 0; i < n && !c->status; i++) {
		body.n = 0;
		put(c, &body, i >= low ? "(" : "");
		if (i)
			put_builtin(c, &body, BUILTIN_SEPARATOR);
		put(c, &body, " ");
		size_t back = enter_index(c, "prefixItems", i);
		put_schema(c, &body, json_array_get(prefix, i));
		leave(c, back);
		put(c, &body, " %s-%zu%s", name, i + 1, i >= low ? ")?" : "");
		snprintf(rule, sizeof rule, "%s-%zu", name, i);
		put_rule(c, rule, &body);
	}
	body.n = 0;
	if (rest && high > n) {
		struct text item = {0};
		char item_name[64];
		uint32_t more = low > n ? low - (uint32_t)n : 0, first = n == 0;
		put_part(c, &item, rest, rest_keyword, NULL);
		snprintf(item_name, sizeof item_name, "%s-item", name);
		put_rule(c, item_name, &item);
		text_free(&item);
		put(c, &body, "(");
		if (first)
			put(c, &body, "%s ", item_name);
		put(c, &body, "(");
		put_builtin(c, &body, BUILTIN_SEPARATOR);
		put(c, &body, " %s)", item_name);
		more = first && more ? more - 1 : more;
		if (high == UINT32_MAX)
			put(c, &body, "{%u,}", (unsigned)more);
		else
			put(c, &body, "{%u,%u}", (unsigned)more,
				(unsigned)(high - (uint32_t)n - first));
		put(c, &body, first && !low ? ")?" : ")");
	}
	snprintf(rule, sizeof rule, "%s-%zu", name, n);
	put_rule(c, rule, &body);
	text_free(&body);
}

static void put_array(struct converter *c, struct text *e, json_t *schema)
{
	if (!schema_says_more(schema, TYPE_ARRAY, "")) {
		put_builtin(c, e, BUILTIN_ARRAY);
		return;
	}
	schema_refuse_unknown(c, schema, TYPE_ARRAY);
	json_t *prefix = json_object_get(schema, "prefixItems");
	json_t *rest = json_object_get(schema, "items"), *unique;
	const char *rest_keyword = "items";
	if (!prefix && json_is_array(rest)) { /* as it was written before 2020 */
		prefix = rest;
		rest_keyword = "additionalItems";
		rest = json_object_get(schema, rest_keyword);
	}
	if (prefix && !json_is_array(prefix))
		schema_refuse(c, "\"prefixItems\" is no array");
	uint32_t low = schema_count(c, schema, "minItems", 0);
	uint32_t high = schema_count(c, schema, "maxItems", UINT32_MAX);
	schema_refuse_range(c, "items", low, high);
	unique = json_object_get(schema, "uniqueItems");
	if (unique && !json_is_false(unique) && high > 1)
		schema_refuse(c, "the keyword \"uniqueItems\" is not supported");
	size_t n_prefix = json_array_size(prefix);
	if (rest && json_is_false(rest))
		rest = NULL;
	else if (!rest && (!n_prefix || low > n_prefix))
		rest = json_true();
	if (!rest && low > n_prefix)
		schema_refuse(c, "expects %u items and allows %zu", (unsigned)low, n_prefix);
	char name[32];
	rule_name(c, name, "array");
	if (!c->status)
		put_items(c, name, prefix, rest, rest_keyword, low, high);
	put(c, e, "(\"[\" ");
	put_builtin(c, e, BUILTIN_WS);
	put(c, e, " %s-0 ", name);
	put_builtin(c, e, BUILTIN_WS);
	put(c, e, " \"]\")");
}

/* ---- objects --------------------------------------------------------------------------------- */

struct property {
	const char *name;
	json_t *schema;
	bool required;
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A character within a class of GBNF. */
static void put_class_char(struct converter *c, struct text *e, uint32_t code)
{
	put(c, e, "\\U%08X", (unsigned)code);
}

/* What may follow the first `offset` bytes, which the names have in common, so that no name comes out; with
 * the closing quote.  Names are compared as they are spelled, so nothing is escaped. */
static void put_other_key(struct converter *c, struct text *e, const char **names, size_t n,
	size_t offset, unsigned depth)
{
	size_t i = 0;
	bool is_name = n && !names[0][offset];
	struct text taken = {0};
	put(c, e, "(");
	put(c, e, is_name ? "" : "\"\\\"\" | ");
	for (i = is_name; i < n && !c->status;) {
		uint32_t code, other;
		size_t first = i;
		unsigned length = utf8_decode(names[i] + offset, strlen(names[i] + offset), &code);
		for (; i < n && utf8_decode(names[i] + offset, strlen(names[i] + offset), &other) &&
			other == code;
			i++)
			;
		if (!length)
			break;
		put_class_char(c, &taken, code);
		if (code == '"' || code == '\\' || code < ' ' || code == 0x7F || depth == KEY_DEPTH)
			continue; /* cannot be spelled without an escape; or is not looked at */
		put_literal(c, e, names[first] + offset, length);
		put(c, e, " ");
		put_other_key(c, e, names + first, i - first, offset + length, depth + 1);
		put(c, e, " | ");
	}
	put(c, e, "[^\"\\\\\\x00-\\x1F\\x7F");
	if (!c->status && taken.n && !text_append(e, taken.data, taken.n))
		schema_no_memory(c);
	put(c, e, "] ");
	put_builtin(c, e, BUILTIN_KEY_REST);
	put(c, e, ")");
	text_free(&taken);
}

/* A rule for further pairs: a name that is not among the given ones, and a value. */
static void put_other_pair(struct converter *c, const char *name, const struct property *properties,
	size_t n, json_t *rest)
{
	struct text body = {0};
	const char **names = array_alloc(n, sizeof *names);
	if (!names) {
		schema_no_memory(c);
		return;
	}
	for (size_t i = 0; i < n; i++)
		names[i] = properties[i].name;
	if (n)
		qsort(names, n, sizeof *names, compare_names);
	if (n) {
		put(c, &body, "\"\\\"\" ");
		put_other_key(c, &body, names, n, 0, 0);
	} else {
		put_builtin(c, &body, BUILTIN_STRING);
	}
	put(c, &body, " \":\" ");
	put_builtin(c, &body, BUILTIN_WS);
	put(c, &body, " ");
	put_part(c, &body, rest, "additionalProperties", NULL);
	char rule[64];
	snprintf(rule, sizeof rule, "%s-other", name);
	put_rule(c, rule, &body);
	text_free(&body);
	free(names);
}

/* "key": value. */
static void put_pair(struct converter *c, const char *rule, const struct property *property)
{
	struct text body = {0};
	json_t *key = json_string(property->name);
	if (key)
		put_json(c, &body, key);
	else
		schema_no_memory(c);
	json_decref(key);
	put(c, &body, " \":\" ");
	put_builtin(c, &body, BUILTIN_WS);
	put(c, &body, " ");
	put_part(c, &body, property->schema, "properties", property->name);
	put_rule(c, rule, &body);
	text_free(&body);
}

/* NAME-i: the pairs from number i on where one stands before them; NAME-first-i: where none does. */
static void put_pairs(struct converter *c, const char *name, const struct property *properties,
	size_t n, json_t *rest)
{
	struct text body = {0};
	char rule[64];
	bool may_be_first = true;
	for (size_t i = 0; i < n && !c->status; i++) {
		if (json_is_false(properties[i].schema)) { /* never there */
			for (int first = 0; first <= may_be_first; first++) {
				const char *kind = first ? "first-" : "";
				body.n = 0;
				put(c, &body, "%s-%s%zu", name, kind, i + 1);
				snprintf(rule, sizeof rule, "%s-%s%zu", name, kind, i);
				put_rule(c, rule, &body);
			}
			continue;
		}
		char pair[64];
		snprintf(pair, sizeof pair, "%s-pair-%zu", name, i);
		put_pair(c, pair, &properties[i]);
		for (int first = 0; first <= may_be_first; first++) {
			const char *kind = first ? "first-" : "";
			body.n = 0;
			if (!first)
				put_builtin(c, &body, BUILTIN_SEPARATOR);
			put(c, &body, " %s %s-%zu", pair, name, i + 1);
			if (!properties[i].required)
				put(c, &body, " | %s-%s%zu", name, kind, i + 1);
			snprintf(rule, sizeof rule, "%s-%s%zu", name, kind, i);
			put_rule(c, rule, &body);
		}
		may_be_first = may_be_first && !properties[i].required;
	}
	if (rest)
		put_other_pair(c, name, properties, n, rest);
	for (int first = 0; first <= may_be_first; first++) {
		body.n = 0;
		if (rest) {
			put(c, &body, first ? "(%s-other (" : "(", name);
			put_builtin(c, &body, BUILTIN_SEPARATOR);
			put(c, &body, first ? " %s-other)*)?" : " %s-other)*", name);
		}
		snprintf(rule, sizeof rule, "%s-%s%zu", name, first ? "first-" : "", n);
		put_rule(c, rule, &body);
	}
	text_free(&body);
}

/* The properties in their order, then the required ones that are not among them. */
static struct property *properties_of(struct converter *c, json_t *schema, json_t *rest, size_t *n)
{
	json_t *given = json_object_get(schema, "properties"), *value, *one;
	json_t *required = json_object_get(schema, "required");
	const char *key;
	size_t i;
	struct property *properties = array_alloc(
		json_object_size(given) + json_array_size(required), sizeof *properties);
	*n = 0;
	if (!properties) {
		schema_no_memory(c);
		return NULL;
	}
	if ((given && !json_is_object(given)) || (required && !json_is_array(required)))
		schema_refuse(c,
			given && !json_is_object(given) ? "\"properties\" is no object"
							: "\"required\" is no array");
	json_object_foreach (given, key, value)
		properties[(*n)++] = (struct property){key, value, false};
	json_array_foreach (required, i, one) {
		const char *name = json_string_value(one);
		size_t at = 0;
		while (name && at < *n && strcmp(properties[at].name, name) != 0)
			at++;
		if (!name) {
			schema_refuse(c, "\"required\" holds what is no name");
			break;
		}
		if (at == *n)
			properties[(*n)++] =
				(struct property){name, rest ? rest : json_true(), true};
		properties[at].required = true;
		if (json_is_false(properties[at].schema))
			schema_refuse(
				c, "the property \"%.100s\" is required and never allowed", name);
	}
	return properties;
}

static void put_object(struct converter *c, struct text *e, json_t *schema)
{
	json_t *rest = json_object_get(schema, "additionalProperties");
	bool closed = rest && json_is_false(rest), asked = rest && !closed;
	bool spoken = json_object_get(schema, "properties") || json_object_get(schema, "required");
	size_t n, n_required = 0;
	schema_refuse_unknown(c, schema, TYPE_OBJECT);
	struct property *properties = properties_of(c, schema, rest, &n);
	if (!rest && !spoken)
		rest = json_true();
	else if (!asked)
		rest = NULL;
	for (size_t i = 0; i < n; i++)
		n_required += properties[i].required;
	if (schema_count(c, schema, "minProperties", 0) > n_required)
		schema_refuse(c,
			"\"minProperties\" above the number of required properties is not "
			"supported");
	if (schema_count(c, schema, "maxProperties", MAX_COUNT) < (rest ? MAX_COUNT : n))
		schema_refuse(
			c, "\"maxProperties\" below the number of properties is not supported");
	if (rest && json_is_true(rest) && !n) {
		put_builtin(c, e, BUILTIN_OBJECT);
	} else if (!c->status) {
		char name[32];
		rule_name(c, name, "object");
		put_pairs(c, name, properties, n, rest);
		put(c, e, "(\"{\" ");
		put_builtin(c, e, BUILTIN_WS);
		put(c, e, " %s-first-0 ", name);
		put_builtin(c, e, BUILTIN_WS);
		put(c, e, " \"}\")");
	}
	free(properties);
}

/* ---- schemas --------------------------------------------------------------------------------- */

static void put_types(struct converter *c, struct text *e, json_t *schema)
{
	unsigned types = schema_types_meant(c, schema), n = 0;
	bool any = types == TYPE_ANY;
	const char *key;
	json_t *value;
	json_object_foreach (schema, key, value)
		any = any && !(schema_keyword(key) && strcmp(key, "type") != 0);
	if (any) {
		put_builtin(c, e, BUILTIN_VALUE);
		return;
	}
	put(c, e, "(");
	for (size_t i = 0; i < N_TYPES && !c->status; i++) {
		unsigned type = schema_types[i].type;
		if (!(types & type))
			continue;
		put(c, e, n++ ? " | " : "");
		if (type == TYPE_NULL)
			put(c, e, "\"null\"");
		else if (type == TYPE_BOOLEAN)
			put(c, e, "\"true\" | \"false\"");
		else if (type == TYPE_STRING)
			put_string(c, e, schema);
		else if (type == TYPE_ARRAY)
			put_array(c, e, schema);
		else if (type == TYPE_OBJECT)
			put_object(c, e, schema);
		else
			put_numeric(c, e, schema, type == TYPE_INTEGER);
	}
	put(c, e, ")");
}

/* oneOf wants exactly one: a text of two schemas would be wrong. */
static void refuse_overlap(struct converter *c, json_t **parts, size_t n)
{
	for (size_t i = 0; i < n && !c->status; i++)
		for (size_t k = 0; k < i && !c->status; k++)
			if (!schema_are_apart(c, parts[k], parts[i]))
				schema_refuse(c,
					"\"oneOf\": its schemas %zu and %zu may both fit, expected "
					"types or "
					"constants that tell them apart (or \"anyOf\")",
					k, i);
}

static void put_choice(struct converter *c, struct text *e, json_t *schema, const char *keyword)
{
	json_t *list = json_object_get(schema, keyword), *one;
	json_t *others = json_copy(schema);
	size_t i, n = 0;
	if (!others) {
		schema_no_memory(c);
		return;
	}
	json_object_del(others, keyword);
	json_t **parts = array_alloc(json_array_size(list), sizeof(json_t *));
	if (!json_is_array(list) || !json_array_size(list))
		schema_refuse(c, "\"%s\" is no array of schemas", keyword);
	if (!parts)
		schema_no_memory(c);
	bool merges = schema_says_more(others, TYPE_ANY, "") || json_object_get(others, "type");
	bool exclusive = keyword[0] == 'o';
	json_array_foreach (list, i, one) {
		if (c->status || json_is_false(one))
			continue;
		size_t back = enter_index(c, keyword, i);
		json_t *flat = merges || exclusive ? schema_flatten(c, one, 0) : NULL;
		if (flat && merges) {
			json_t *merged = json_copy(others);
			if (merged)
				schema_merge(c, merged, flat);
			else
				schema_no_memory(c);
			json_decref(flat);
			flat = merged;
		}
		/* Without neighbours the schema itself is kept: a $ref stays a rule and may recur. */
		parts[n++] = flat ? flat : json_incref(one);
		leave(c, back);
	}
	if (!n)
		schema_refuse(c, "\"%s\" allows nothing", keyword);
	if (exclusive)
		refuse_overlap(c, parts, n);
	char name[32];
	struct text body = {0};
	rule_name(c, name, "choice");
	for (i = 0, n = 0; parts && i < json_array_size(list); i++) {
		one = json_array_get(list, i);
		if (json_is_false(one) || !parts[n])
			continue;
		size_t back = enter_index(c, keyword, i);
		put(c, &body, n ? " | " : "");
		if (!c->status)
			put_schema(c, &body, merges ? parts[n] : one);
		json_decref(parts[n++]);
		leave(c, back);
	}
	put_rule(c, name, &body);
	put(c, e, "%s", name);
	text_free(&body);
	free(parts);
	json_decref(others);
}

static void put_object_schema(struct converter *c, struct text *e, json_t *schema)
{
	json_t *ref = json_object_get(schema, "$ref");
	schema_refuse_unknown(
		c, schema, TYPE_ANY & ~(TYPE_NUMBER | TYPE_STRING | TYPE_ARRAY | TYPE_OBJECT));
	if (json_object_get(schema, "$id") && c->depth > 1)
		schema_refuse(c, "the keyword \"$id\" is only supported at the root");
	if (ref && !schema_says_more(schema, TYPE_ANY, "$ref") &&
		!json_object_get(schema, "type")) {
		put_reference(c, e, ref);
	} else if (ref || json_object_get(schema, "allOf")) {
		json_t *flat = schema_flatten(c, schema, 0);
		if (flat)
			put_schema(c, e, flat);
		json_decref(flat);
	} else if (json_object_get(schema, "anyOf") && json_object_get(schema, "oneOf")) {
		schema_refuse(c, "\"anyOf\" together with \"oneOf\" is not supported");
	} else if (json_object_get(schema, "anyOf")) {
		put_choice(c, e, schema, "anyOf");
	} else if (json_object_get(schema, "oneOf")) {
		put_choice(c, e, schema, "oneOf");
	} else if (json_object_get(schema, "enum") || json_object_get(schema, "const")) {
		put_values(c, e, schema);
	} else {
		put_types(c, e, schema);
	}
}

static void put_schema(struct converter *c, struct text *e, json_t *schema)
{
	if (c->status)
		return;
	if (++c->depth > MAX_DEPTH)
		schema_refuse(c, "schemas nest deeper than %d", MAX_DEPTH);
	else if (json_is_true(schema))
		put_builtin(c, e, BUILTIN_VALUE);
	else if (json_is_false(schema))
		schema_refuse(c, "false allows nothing");
	else if (!json_is_object(schema))
		schema_refuse(c, "is no schema, expected an object or true");
	else
		put_object_schema(c, e, schema);
	c->depth--;
}

static void put_document(struct converter *c)
{
	struct text body = {0};
	char name[32];
	put_schema(c, &body, c->document);
	put_rule(c, "root", &body);
	for (unsigned i = 0; i < c->n_refs && !c->status; i++) {
		body.n = c->path.n = 0;
		if (!text_printf(&c->path, "%s", c->refs[i].path))
			schema_no_memory(c);
		c->depth = c->refs[i].target != c->document;
		put_schema(c, &body, c->refs[i].target);
		snprintf(name, sizeof name, "ref%u", i);
		put_rule(c, name, &body);
	}
	for (uint32_t before = 0; before != c->used;) {
		before = c->used;
		for (unsigned i = 0; i < N_BUILTINS; i++)
			c->used |= c->used >> i & 1 ? builtins[i].uses : 0;
	}
	for (unsigned i = 0; i < N_BUILTINS; i++)
		if (c->used >> i & 1)
			put(c, &c->rules, "%s ::= %s\n", builtins[i].name, builtins[i].body);
	text_free(&body);
}

enum lap_status schema_to_gbnf(const char *json, size_t n, struct text *gbnf, struct lap_error *err)
{
	json_error_t wrong;
	json_t *document = json_loadb(
		json, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &wrong);
	if (!document) {
		for (char *s = wrong.text; *s; s++)
			*s = (unsigned char)*s < ' ' ? '?' : *s;
		return fail(err, LAP_USAGE, "schema, line %d, column %d: %s", wrong.line,
			wrong.column, wrong.text);
	}
	struct converter c = {.document = document, .err = err};
	c.refs = array_alloc(MAX_REFS, sizeof *c.refs);
	if (!c.refs || !text_printf(&c.path, "#"))
		schema_no_memory(&c);
	else
		put_document(&c);
	if (!c.status && !text_append(gbnf, c.rules.data, c.rules.n))
		schema_no_memory(&c);
	for (unsigned i = 0; i < c.n_refs; i++)
		free(c.refs[i].path);
	free(c.refs);
	text_free(&c.rules);
	text_free(&c.path);
	json_decref(document);
	return c.status;
}

enum lap_status schema_to_grammar(const char *json, size_t n, const struct grammar_limits *limits,
	struct grammar **grammar, struct lap_error *err)
{
	struct text gbnf = {0};
	struct lap_error inner = {0};
	*grammar = NULL;
	enum lap_status status = schema_to_gbnf(json, n, &gbnf, err);
	if (!status) {
		status = grammar_create(gbnf.data, gbnf.n, limits, grammar, &inner);
		if (status)
			fail(err, status, "schema: as a %.900s", inner.text);
	}
	text_free(&gbnf);
	return status;
}
