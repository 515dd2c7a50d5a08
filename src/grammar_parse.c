/* GBNF to code: the text becomes a tree, the tree instructions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_code.h"

#define MAX_GROUPS  200 /* one in another; the parser calls itself for each */
#define MAX_REPEATS 8   /* operators on one element */
#define NONE        UINT32_MAX
#define LAST_CODE   0x10FFFFu
#define UNBOUNDED   UINT32_MAX

enum node_kind { NODE_LITERAL, NODE_CLASS, NODE_RULE, NODE_SEQUENCE, NODE_CHOICE, NODE_REPEAT };

struct node {
	enum node_kind kind;
	uint32_t a,
		n; /* LITERAL: bytes from a, n of them; CLASS: ranges; RULE: a; REPEAT: a to n times */
	uint32_t child, next; /* NONE: none */
};

struct range {
	uint32_t first, last;
};

struct rule {
	const char *name;
	size_t n_name;
	size_t at;     /* where it was seen first, until it is defined; then where that is */
	uint32_t node; /* NONE: not defined */
};

/* An array that grows: `n` of `size` bytes each. */
struct list {
	void *at;
	uint32_t n, capacity;
	size_t size;
};

struct parser {
	const char *text;
	size_t n, at;
	struct lap_error *err;
	enum lap_status status; /* the first failure; everything returns then */
	struct grammar *g;
	unsigned n_groups; /* open */
	struct list nodes, bytes, ranges, rules;
	struct list code, sets;
	uint32_t *rule_table, rule_table_size; /* names: index of a rule + 1 */
	uint32_t *set_table, set_table_size;
};

/* ---- lists and failures ---------------------------------------------------------------------- */

static void out_of_memory(struct parser *p, uint64_t n_bytes)
{
	if (!p->status)
		p->status = fail_memory(p->err, "a grammar", n_bytes);
}

/* Room for one element more; NULL when memory is out or something failed before. */
static void *list_add(struct parser *p, struct list *l)
{
	if (p->status)
		return NULL;
	if (l->n == l->capacity) {
		uint32_t capacity = l->capacity ? l->capacity * 2 : 64;
		void *at = capacity > l->capacity ? realloc(l->at, capacity * l->size) : NULL;
		if (!at) {
			out_of_memory(p, (uint64_t)capacity * l->size);
			return NULL;
		}
		l->at = at;
		l->capacity = capacity;
	}
	return (char *)l->at + l->size * l->n++;
}

static struct node *node_at(const struct parser *p, uint32_t i)
{
	return (struct node *)p->nodes.at + i;
}

static struct rule *rule_at(const struct parser *p, uint32_t i)
{
	return (struct rule *)p->rules.at + i;
}

static struct code *code_at(const struct parser *p, uint32_t i)
{
	return (struct code *)p->code.at + i;
}

/* The first failure, with the line and column (in characters) of a place in the text. */
static void refuse(struct parser *p, size_t at, const char *format, ...) PRINTF_LIKE(3, 4);
static void refuse(struct parser *p, size_t at, const char *format, ...)
{
	if (p->status)
		return;
	unsigned line = 1, column = 1;
	for (size_t i = 0; i < at && i < p->n; i++) {
		if (p->text[i] == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)p->text[i] & 0xC0) != 0x80) {
			column++;
		}
	}
	char what[512];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	p->status = fail(p->err, LAP_USAGE, "grammar, line %u, column %u: %s", line, column, what);
}

static void refuse_found(struct parser *p, const char *expected)
{
	if (p->at >= p->n) {
		refuse(p, p->at, "found the end, expected %s", expected);
		return;
	}
	unsigned char c = (unsigned char)p->text[p->at];
	uint32_t code;
	unsigned length = utf8_decode(p->text + p->at, p->n - p->at, &code);
	if (c == '\n')
		refuse(p, p->at, "found the end of the line, expected %s", expected);
	else if (length && c >= ' ' && c != 0x7F)
		refuse(p, p->at, "found '%.*s', expected %s", (int)length, p->text + p->at,
			expected);
	else
		refuse(p, p->at, "found byte 0x%02X, expected %s", c, expected);
}

/* ---- characters ------------------------------------------------------------------------------ */

static char peek(const struct parser *p)
{
	return p->at < p->n ? p->text[p->at] : '\0';
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '-' || c == '_';
}

/* Behind white space, line ends and comments. */
static size_t behind_space(const struct parser *p, size_t at)
{
	while (at < p->n) {
		if (p->text[at] == '#')
			while (at < p->n && p->text[at] != '\n')
				at++;
		else if (p->text[at] && strchr(" \t\r\n", p->text[at]))
			at++;
		else
			break;
	}
	return at;
}

static void skip_space(struct parser *p)
{
	p->at = behind_space(p, p->at);
}

/* Only the start of a rule looks like `name ::=`, so a rule may go on over as many lines as it likes. */
static bool at_rule(const struct parser *p)
{
	size_t at = p->at;
	while (at < p->n && is_name_char(p->text[at]))
		at++;
	if (at == p->at)
		return false;
	at = behind_space(p, at);
	return p->n - at >= 3 && memcmp(p->text + at, "::=", 3) == 0;
}

static uint32_t read_hex(struct parser *p, unsigned n_digits, size_t escape)
{
	uint32_t code = 0;
	for (unsigned i = 0; i < n_digits; i++, p->at++) {
		char c = peek(p), low = (char)(c | 32);
		if (c >= '0' && c <= '9') {
			code = code * 16 + (uint32_t)(c - '0');
		} else if (low >= 'a' && low <= 'f') {
			code = code * 16 + (uint32_t)(low - 'a' + 10);
		} else {
			refuse_found(p, "a hexadecimal digit");
			return 0;
		}
	}
	if (code > LAST_CODE || (code >= 0xD800 && code < 0xE000))
		refuse(p, escape, "U+%04X is no character", (unsigned)code);
	return code;
}

/* One character of a literal or a class, escaped or not. */
static uint32_t read_char(struct parser *p, const char *expected)
{
	size_t escape = p->at;
	uint32_t code = 0;
	if (p->at >= p->n) {
		refuse_found(p, expected);
	} else if (peek(p) != '\\') {
		unsigned length = utf8_decode(p->text + p->at, p->n - p->at, &code);
		if (!length)
			refuse(p, p->at, "found byte 0x%02X, which is no UTF-8, expected %s",
				(unsigned char)peek(p), expected);
		p->at += length;
	} else {
		p->at++;
		char c = peek(p);
		static const char named[] = "nrt", values[] = "\n\r\t";
		const char *name = c ? strchr(named, c) : NULL;
		if (c == 'x' || c == 'u' || c == 'U') {
			p->at++;
			return read_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, escape);
		}
		if (name)
			code = (unsigned char)values[name - named];
		else if (c && strchr("\\\"[]-^/", c))
			code = (unsigned char)c;
		else
			refuse_found(p, "an escape: n, r, t, \\, \", [, ], -, ^, /, x, u or U");
		p->at++;
	}
	return code;
}

/* ---- text to tree ---------------------------------------------------------------------------- */

static uint32_t node_new(struct parser *p, enum node_kind kind, uint32_t a, uint32_t n)
{
	struct node *node = list_add(p, &p->nodes);
	if (!node)
		return NONE;
	*node = (struct node){kind, a, n, NONE, NONE};
	return p->nodes.n - 1;
}

static uint32_t hash_bytes(const void *bytes, size_t n)
{
	uint32_t hash = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 16777619u;
	return hash ^ hash >> 15;
}

/* Makes a table twice as large as what is in it; `hash` gives the hash of element i. */
static bool table_grow(struct parser *p, uint32_t **table, uint32_t *size, uint32_t n,
	uint32_t (*hash)(const struct parser *p, uint32_t i))
{
	if (n + 1 <= *size / 2)
		return true;
	uint32_t new_size = *size ? *size * 2 : 64;
	uint32_t *at = array_alloc(new_size, sizeof *at);
	if (!at) {
		out_of_memory(p, (uint64_t)new_size * sizeof *at);
		return false;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = hash(p, i) & (new_size - 1);
		while (at[slot])
			slot = (slot + 1) & (new_size - 1);
		at[slot] = i + 1;
	}
	free(*table);
	*table = at;
	*size = new_size;
	return true;
}

static uint32_t rule_hash(const struct parser *p, uint32_t i)
{
	return hash_bytes(rule_at(p, i)->name, rule_at(p, i)->n_name);
}

/* What a message shows of a name. */
static int name_length(const struct rule *rule)
{
	return rule->n_name < 200 ? (int)rule->n_name : 200;
}

/* The rule of that name, a new one without a body when it was not seen before. */
static uint32_t rule_named(struct parser *p, size_t at, size_t n)
{
	if (p->status || !table_grow(p, &p->rule_table, &p->rule_table_size, p->rules.n, rule_hash))
		return NONE;
	uint32_t slot = hash_bytes(p->text + at, n) & (p->rule_table_size - 1);
	for (; p->rule_table[slot]; slot = (slot + 1) & (p->rule_table_size - 1)) {
		const struct rule *rule = rule_at(p, p->rule_table[slot] - 1);
		if (rule->n_name == n && memcmp(rule->name, p->text + at, n) == 0)
			return p->rule_table[slot] - 1;
	}
	struct rule *rule = list_add(p, &p->rules);
	if (!rule)
		return NONE;
	*rule = (struct rule){p->text + at, n, at, NONE};
	p->rule_table[slot] = p->rules.n;
	return p->rules.n - 1;
}

static uint32_t parse_literal(struct parser *p)
{
	uint32_t first = p->bytes.n;
	p->at++;
	while (!p->status && peek(p) != '"') {
		if (peek(p) == '\n') {
			refuse_found(p, "'\"'");
			break;
		}
		char bytes[4];
		unsigned length = utf8_encode(read_char(p, "'\"'"), bytes);
		for (unsigned i = 0; i < length; i++) {
			char *byte = list_add(p, &p->bytes);
			if (byte)
				*byte = bytes[i];
		}
	}
	p->at++;
	return node_new(p, NODE_LITERAL, first, p->bytes.n - first);
}

static void range_add(struct parser *p, uint32_t first, uint32_t last)
{
	struct range *range = list_add(p, &p->ranges);
	if (range)
		*range = (struct range){first, last};
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorts and joins the ranges from `first` on, and turns them round when asked to. */
static void ranges_tidy(struct parser *p, uint32_t first, bool negated)
{
	if (p->status)
		return;
	struct range *ranges = (struct range *)p->ranges.at + first;
	uint32_t n = p->ranges.n - first, kept = 0;
	if (n)
		qsort(ranges, n, sizeof *ranges, compare_ranges);
	for (uint32_t i = 0; i < n; i++) {
		if (kept && ranges[i].first <= ranges[kept - 1].last + 1) {
			if (ranges[i].last > ranges[kept - 1].last)
				ranges[kept - 1].last = ranges[i].last;
		} else {
			ranges[kept++] = ranges[i];
		}
	}
	p->ranges.n = first + kept;
	if (!negated)
		return;
	uint32_t from = 0; /* the gaps are at most one more than the ranges */
	for (uint32_t i = 0; i < kept; i++) {
		struct range range = ((struct range *)p->ranges.at)[first + i];
		if (range.first > from)
			range_add(p, from, range.first - 1);
		from = range.last + 1;
	}
	if (from <= LAST_CODE)
		range_add(p, from, LAST_CODE);
	if (p->status)
		return;
	ranges = (struct range *)p->ranges.at + first;
	n = p->ranges.n - first - kept;
	memmove(ranges, ranges + kept, n * sizeof *ranges);
	p->ranges.n = first + n;
}

static uint32_t parse_class(struct parser *p)
{
	size_t start = p->at++;
	uint32_t first = p->ranges.n;
	bool negated = peek(p) == '^';
	p->at += negated;
	if (peek(p) == ']')
		refuse(p, start, "the class is empty");
	while (!p->status && peek(p) != ']') {
		if (peek(p) == '\n') {
			refuse_found(p, "']'");
			break;
		}
		size_t at = p->at;
		uint32_t low = read_char(p, "']'"), high = low;
		if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
			p->at++;
			high = read_char(p, "the end of a range");
		}
		if (high < low)
			refuse(p, at, "the range ends before it starts");
		range_add(p, low, high);
	}
	p->at++;
	ranges_tidy(p, first, negated);
	return node_new(p, NODE_CLASS, first, p->ranges.n - first);
}

static uint32_t read_count(struct parser *p)
{
	uint32_t n = 0;
	size_t start = p->at;
	if (peek(p) < '0' || peek(p) > '9')
		refuse_found(p, "a number");
	for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
		n = n * 10 + (uint32_t)(peek(p) - '0');
		if (n > p->g->limits.n_repeat) {
			refuse(p, start, "a repetition of more than %u",
				(unsigned)p->g->limits.n_repeat);
			return 0;
		}
	}
	skip_space(p);
	return n;
}

/* Behind an element: the operator that repeats it, around the node. */
static uint32_t parse_repeat(struct parser *p, uint32_t child)
{
	size_t start = p->at;
	char c = peek(p);
	uint32_t low = c == '+', high = c == '?' ? 1 : UNBOUNDED;
	p->at++;
	if (c == '{') {
		skip_space(p);
		low = high = read_count(p);
		if (peek(p) == ',') {
			p->at++;
			skip_space(p);
			high = peek(p) == '}' ? UNBOUNDED : read_count(p);
		}
		if (peek(p) != '}')
			refuse_found(p, "',' or '}'");
		p->at++;
		if (high < low)
			refuse(p, start, "found {%u,%u}, expected the smaller number first",
				(unsigned)low, (unsigned)high);
	}
	uint32_t node = node_new(p, NODE_REPEAT, low, high);
	if (node != NONE)
		node_at(p, node)->child = child;
	return node;
}

static uint32_t parse_choice(struct parser *p);

static uint32_t parse_element(struct parser *p)
{
	char c = peek(p);
	if (c == '"')
		return parse_literal(p);
	if (c == '[')
		return parse_class(p);
	if (c == '.') {
		p->at++;
		range_add(p, 0, LAST_CODE);
		return node_new(p, NODE_CLASS, p->ranges.n - 1, 1);
	}
	if (c == '(') {
		size_t start = p->at++;
		if (++p->n_groups > MAX_GROUPS) {
			refuse(p, start, "groups nest deeper than %d", MAX_GROUPS);
			return NONE;
		}
		uint32_t group = parse_choice(p);
		if (peek(p) != ')' || p->at >= p->n)
			refuse_found(p, "'|', ')' or an element");
		p->at++;
		p->n_groups--;
		return group;
	}
	size_t start = p->at;
	while (p->at < p->n && is_name_char(p->text[p->at]))
		p->at++;
	return node_new(p, NODE_RULE, rule_named(p, start, p->at - start), 0);
}

/* Elements up to '|', ')', the next rule or the end. */
static uint32_t parse_sequence(struct parser *p)
{
	uint32_t sequence = node_new(p, NODE_SEQUENCE, 0, 0), last = NONE, before = NONE;
	unsigned n_repeats = 0;
	for (;;) {
		skip_space(p);
		char c = peek(p);
		if (p->status || p->at >= p->n || c == '|' || (c == ')' && p->n_groups) ||
			at_rule(p))
			return sequence;
		uint32_t node;
		if (c && strchr("*+?{", c)) {
			if (last == NONE) {
				refuse(p, p->at, "found '%c', expected an element before it", c);
				return sequence;
			}
			if (++n_repeats > MAX_REPEATS)
				refuse(p, p->at, "more than %d repetitions of one element",
					MAX_REPEATS);
			node = parse_repeat(p, last);
			last = before;
		} else if (c == '"' || c == '[' || c == '.' || c == '(' || is_name_char(c)) {
			node = parse_element(p);
			n_repeats = 0;
		} else {
			refuse_found(p, "an element, '|' or a new rule");
			return sequence;
		}
		if (p->status)
			return sequence;
		/* `last` is where the node hangs: it replaces what it repeats. */
		if (last == NONE)
			node_at(p, sequence)->child = node;
		else
			node_at(p, last)->next = node;
		before = last;
		last = node;
	}
}

static uint32_t parse_choice(struct parser *p)
{
	uint32_t first = parse_sequence(p);
	if (p->status || peek(p) != '|')
		return first;
	uint32_t choice = node_new(p, NODE_CHOICE, 0, 0);
	if (choice != NONE)
		node_at(p, choice)->child = first;
	for (uint32_t last = first; !p->status && peek(p) == '|';) {
		p->at++;
		uint32_t next = parse_sequence(p);
		if (next == NONE)
			break;
		node_at(p, last)->next = next;
		last = next;
	}
	return choice;
}

static void parse_rules(struct parser *p)
{
	for (skip_space(p); !p->status && p->at < p->n; skip_space(p)) {
		size_t start = p->at;
		if (!at_rule(p)) {
			while (is_name_char(peek(p)))
				p->at++;
			if (p->at > start)
				skip_space(p);
			refuse_found(p, p->at > start ? "'::='" : "the name of a rule");
			return;
		}
		while (is_name_char(peek(p)))
			p->at++;
		uint32_t rule = rule_named(p, start, p->at - start);
		p->at = behind_space(p, p->at) + 3;
		if (rule == NONE)
			return;
		if (rule_at(p, rule)->node != NONE) {
			refuse(p, start, "the rule \"%.*s\" is defined a second time",
				name_length(rule_at(p, rule)), rule_at(p, rule)->name);
			return;
		}
		uint32_t body = parse_choice(p);
		rule_at(p, rule)->at = start;
		rule_at(p, rule)->node = body;
	}
	for (uint32_t i = 0; i < p->rules.n; i++) {
		const struct rule *rule = rule_at(p, i);
		if (rule->node == NONE && i == 0)
			refuse(p, p->n, "there is no rule \"root\"");
		else if (rule->node == NONE)
			refuse(p, rule->at, "the rule \"%.*s\" is not defined", name_length(rule),
				rule->name);
	}
}

/* ---- tree to code ---------------------------------------------------------------------------- */

static uint32_t emit(struct parser *p, enum code_kind kind, uint32_t a, uint32_t b)
{
	if (p->code.n >= p->g->limits.n_code && !p->status)
		p->status = fail(p->err, LAP_USAGE,
			"grammar: compiles to more than %u instructions (are there large "
			"repetitions?)",
			(unsigned)p->g->limits.n_code);
	struct code *code = list_add(p, &p->code);
	if (!code)
		return 0;
	*code = (struct code){kind, a, b};
	return p->code.n - 1;
}

static void patch(struct parser *p, uint32_t at, uint32_t a, uint32_t b)
{
	if (!p->status) {
		code_at(p, at)->a = a;
		code_at(p, at)->b = b;
	}
}

static uint32_t set_hash(const struct parser *p, uint32_t i)
{
	return hash_bytes((struct byte_set *)p->sets.at + i, sizeof(struct byte_set));
}

static uint32_t set_intern(struct parser *p, const struct byte_set *set)
{
	if (p->status || !table_grow(p, &p->set_table, &p->set_table_size, p->sets.n, set_hash))
		return 0;
	uint32_t slot = hash_bytes(set, sizeof *set) & (p->set_table_size - 1);
	for (; p->set_table[slot]; slot = (slot + 1) & (p->set_table_size - 1))
		if (!memcmp((struct byte_set *)p->sets.at + p->set_table[slot] - 1, set,
			    sizeof *set))
			return p->set_table[slot] - 1;
	struct byte_set *new = list_add(p, &p->sets);
	if (!new)
		return 0;
	*new = *set;
	p->set_table[slot] = p->sets.n;
	return p->sets.n - 1;
}

static void byte_set_add(struct byte_set *set, unsigned first, unsigned last)
{
	for (unsigned byte = first; byte <= last; byte++)
		set->bits[byte / 32] |= 1u << (byte % 32);
}

static void emit_set(struct parser *p, const struct byte_set *set)
{
	emit(p, CODE_SET, set_intern(p, set), 0);
}

static void emit_bytes(struct parser *p, unsigned first, unsigned last)
{
	struct byte_set set = {{0}};
	byte_set_add(&set, first, last);
	emit_set(p, &set);
}

/* Characters of one length in UTF-8 whose bytes range independently of each other. */
struct sequence {
	uint8_t n, first[4], last[4];
};

/* Cuts a range until it is sequences. */
static void sequences_add(struct parser *p, struct list *sequences, uint32_t first, uint32_t last)
{
	static const uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF, LAST_CODE};
	for (unsigned i = 0; i < ARRAY_COUNT(ends); i++)
		if (first <= ends[i] && last > ends[i]) {
			sequences_add(p, sequences, first, ends[i]);
			sequences_add(p, sequences, ends[i] + 1, last);
			return;
		}
	if (first < 0xE000 && last >= 0xD800) { /* surrogates are no characters */
		if (first < 0xD800)
			sequences_add(p, sequences, first, 0xD7FF);
		if (last >= 0xE000)
			sequences_add(p, sequences, 0xE000, last);
		return;
	}
	for (unsigned bits = 6; first > 0x7F && bits <= 18; bits += 6) {
		uint32_t low = (1u << bits) - 1;
		if ((first & ~low) == (last & ~low))
			continue;
		uint32_t cut = (first & low)  ? (first | low)
			: (last & low) != low ? (last & ~low) - 1
					      : last;
		if (cut < last) {
			sequences_add(p, sequences, first, cut);
			sequences_add(p, sequences, cut + 1, last);
			return;
		}
	}
	struct sequence *s = list_add(p, sequences);
	if (!s)
		return;
	char low[4] = {0}, high[4] = {0};
	s->n = (uint8_t)utf8_encode(first, low);
	utf8_encode(last, high);
	memcpy(s->first, low, 4);
	memcpy(s->last, high, 4);
}

static bool same_tail(const struct sequence *a, const struct sequence *b)
{
	return a->n == b->n && !memcmp(a->first + 1, b->first + 1, 3) &&
		!memcmp(a->last + 1, b->last + 1, 3);
}

static int compare_sequences(const void *a, const void *b)
{
	const struct sequence *x = a, *y = b;
	if (x->n != y->n)
		return x->n - y->n;
	int order = memcmp(x->first + 1, y->first + 1, 3);
	order = order ? order : memcmp(x->last + 1, y->last + 1, 3);
	return order ? order : x->first[0] - y->first[0];
}

/* The sequences of a class, those with the same tail side by side.  free() releases them. */
static struct list class_sequences(struct parser *p, const struct node *node)
{
	struct list sequences = {.size = sizeof(struct sequence)};
	for (uint32_t i = 0; i < node->n; i++) {
		struct range range = ((struct range *)p->ranges.at)[node->a + i];
		sequences_add(p, &sequences, range.first, range.last);
	}
	if (sequences.n)
		qsort(sequences.at, sequences.n, sizeof(struct sequence), compare_sequences);
	return sequences;
}

static void emit_class(struct parser *p, const struct node *node)
{
	struct list sequences = class_sequences(p, node);
	const struct sequence *s = sequences.at;
	if (!sequences.n)
		emit_set(p, &(struct byte_set){{0}}); /* nothing fits */
	uint32_t jumps = NONE; /* each JUMP names the one before it until the end is known */
	for (uint32_t i = 0, next; i < sequences.n && !p->status; i = next) {
		struct byte_set lead = {{0}};
		for (next = i; next < sequences.n && same_tail(s + i, s + next); next++)
			byte_set_add(&lead, s[next].first[0], s[next].last[0]);
		bool last = next == sequences.n;
		uint32_t split = last ? 0 : emit(p, CODE_SPLIT, 0, 0);
		emit_set(p, &lead);
		for (unsigned byte = 1; byte < s[i].n; byte++)
			emit_bytes(p, s[i].first[byte], s[i].last[byte]);
		if (!last) {
			jumps = emit(p, CODE_JUMP, jumps, 0);
			patch(p, split, split + 1, p->code.n);
		}
	}
	while (jumps != NONE && !p->status) {
		uint32_t before = code_at(p, jumps)->a;
		patch(p, jumps, p->code.n, 0);
		jumps = before;
	}
	free(sequences.at);
}

/* True when one instruction does for the node. */
static bool is_one_instruction(struct parser *p, const struct node *node)
{
	if (node->kind == NODE_SEQUENCE && node->child != NONE &&
		node_at(p, node->child)->next == NONE)
		return is_one_instruction(p, node_at(p, node->child));
	if (node->kind == NODE_CLASS) {
		for (uint32_t i = 0; i < node->n; i++)
			if (((struct range *)p->ranges.at)[node->a + i].last > 0x7F)
				return false;
		return true;
	}
	return node->kind == NODE_RULE || (node->kind == NODE_LITERAL && node->n == 1);
}

static void emit_node(struct parser *p, uint32_t node);

/* What is written out more than once gets a rule of its own, so that repetitions of repetitions add up and do
 * not multiply. */
static void emit_repeat(struct parser *p, const struct node *repeat)
{
	uint32_t child = repeat->child, low = repeat->a, high = repeat->n, rule = NONE;
	uint32_t n_copies = high == UNBOUNDED ? (low ? low : 1) : high;
	if (n_copies > 1 && !is_one_instruction(p, node_at(p, child))) {
		struct rule *new = list_add(p, &p->rules);
		if (!new)
			return;
		*new = (struct rule){"", 0, 0, child};
		rule = p->rules.n - 1;
	}
	uint32_t skips = NONE; /* each SPLIT names the one before it until the end is known */
	for (uint32_t i = 0; i < n_copies && !p->status; i++) {
		bool loops = high == UNBOUNDED && i == n_copies - 1;
		uint32_t start = p->code.n;
		if (i >= low)
			skips = emit(p, CODE_SPLIT, start + 1, skips);
		if (rule == NONE)
			emit_node(p, child);
		else
			emit(p, CODE_CALL, rule, 0);
		if (loops && low)
			emit(p, CODE_SPLIT, start, p->code.n + 1);
		else if (loops)
			emit(p, CODE_JUMP, start, 0);
	}
	while (skips != NONE && !p->status) {
		uint32_t before = code_at(p, skips)->b;
		patch(p, skips, skips + 1, p->code.n);
		skips = before;
	}
}

static void emit_choice(struct parser *p, const struct node *choice)
{
	uint32_t jumps = NONE;
	for (uint32_t i = choice->child, next; i != NONE && !p->status; i = next) {
		next = node_at(p, i)->next;
		uint32_t split = next == NONE ? 0 : emit(p, CODE_SPLIT, 0, 0);
		emit_node(p, i);
		if (next != NONE) {
			jumps = emit(p, CODE_JUMP, jumps, 0);
			patch(p, split, split + 1, p->code.n);
		}
	}
	while (jumps != NONE && !p->status) {
		uint32_t before = code_at(p, jumps)->a;
		patch(p, jumps, p->code.n, 0);
		jumps = before;
	}
}

static void emit_node(struct parser *p, uint32_t i)
{
	if (p->status)
		return;
	struct node node = *node_at(p, i);
	switch (node.kind) {
	case NODE_LITERAL:
		for (uint32_t b = 0; b < node.n; b++) {
			unsigned byte = ((uint8_t *)p->bytes.at)[node.a + b];
			emit_bytes(p, byte, byte);
		}
		break;
	case NODE_CLASS:
		emit_class(p, &node);
		break;
	case NODE_RULE:
		emit(p, CODE_CALL, node.a, 0);
		break;
	case NODE_SEQUENCE:
		for (uint32_t child = node.child; child != NONE && !p->status;
			child = node_at(p, child)->next)
			emit_node(p, child);
		break;
	case NODE_CHOICE:
		emit_choice(p, &node);
		break;
	case NODE_REPEAT:
		emit_repeat(p, &node);
		break;
	}
}

static void analyse(struct parser *p)
{
	struct grammar *g = p->g;
	uint32_t rule = 0;
	switch (code_analyse(g, &rule)) {
	case CODE_FINE:
		return;
	case CODE_NO_MEMORY:
		out_of_memory(p, 30 * (uint64_t)g->n_code);
		return;
	case CODE_ENDLESS:
		refuse(p, rule_at(p, 0)->at,
			"root matches no text: every way through it is without an end");
		return;
	case CODE_LEFT_RECURSIVE:
		for (uint32_t i = 0; i < g->n_rules && !rule_at(p, rule)->n_name; i++)
			rule = g->rank[rule];
		const struct rule *named = rule_at(p, rule);
		refuse(p, named->at,
			"the rule \"%.*s\" is left-recursive: it calls itself before it has "
			"read anything",
			name_length(named), named->name);
	}
}

/* The lists become the grammar's; rules that repetitions add are compiled as they come. */
static void compile(struct parser *p)
{
	struct grammar *g = p->g;
	struct list starts = {.size = sizeof(uint32_t)};
	emit(p, CODE_ACCEPT, 0, 0);
	for (uint32_t rule = 0; rule < p->rules.n && !p->status; rule++) {
		uint32_t *start = list_add(p, &starts);
		if (!start)
			break;
		*start = p->code.n;
		emit_node(p, rule_at(p, rule)->node);
		emit(p, CODE_RETURN, 0, 0);
	}
	g->code = p->code.at;
	g->n_code = p->code.n;
	g->sets = p->sets.at;
	g->n_sets = p->sets.n;
	g->start = starts.at;
	g->n_rules = starts.n;
	p->code.at = p->sets.at = NULL;
	if (!p->status)
		analyse(p);
}

static struct grammar_limits with_defaults(const struct grammar_limits *given)
{
	struct grammar_limits limits = given ? *given : (struct grammar_limits){0};
	limits.n_bytes = limits.n_bytes ? limits.n_bytes : 4 << 20;
	limits.n_code = limits.n_code ? limits.n_code : 1 << 20;
	limits.n_repeat = limits.n_repeat ? limits.n_repeat : 1 << 16;
	limits.n_items = limits.n_items ? limits.n_items : 1 << 16;
	limits.n_steps = limits.n_steps ? limits.n_steps : 10 * 1000 * 1000;
	limits.n_memory = limits.n_memory ? limits.n_memory : 128 << 20;
	return limits;
}

enum lap_status grammar_create(const char *gbnf, size_t n, const struct grammar_limits *given,
	struct grammar **grammar, struct lap_error *err)
{
	*grammar = NULL;
	struct grammar_limits limits = with_defaults(given);
	if (n > limits.n_bytes || n > UINT32_MAX / 8)
		return fail(err, LAP_USAGE, "grammar: has %llu bytes, expected at most %llu",
			(unsigned long long)n, (unsigned long long)limits.n_bytes);
	struct grammar *g = calloc(1, sizeof *g);
	if (!g)
		return fail_memory(err, "a grammar", sizeof *g);
	g->limits = limits;
	struct parser p = {.text = gbnf,
		.n = n,
		.err = err,
		.g = g,
		.nodes.size = sizeof(struct node),
		.bytes.size = 1,
		.ranges.size = sizeof(struct range),
		.rules.size = sizeof(struct rule),
		.code.size = sizeof(struct code),
		.sets.size = sizeof(struct byte_set)};
	/* root is rule 0 wherever it stands. */
	static const char root[] = "root";
	p.text = root;
	rule_named(&p, 0, sizeof root - 1);
	p.text = gbnf;
	parse_rules(&p);
	if (!p.status)
		compile(&p);
	free(p.nodes.at);
	free(p.bytes.at);
	free(p.ranges.at);
	free(p.rules.at);
	free(p.code.at);
	free(p.sets.at);
	free(p.rule_table);
	free(p.set_table);
	if (p.status) {
		grammar_destroy(g);
		return p.status;
	}
	*grammar = g;
	return LAP_OK;
}

void grammar_destroy(struct grammar *g)
{
	if (!g)
		return;
	free(g->code);
	free(g->live);
	free(g->tail);
	free(g->sets);
	free(g->start);
	free(g->rank);
	free(g);
}
