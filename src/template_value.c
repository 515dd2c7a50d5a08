/* Values, their memory and Python's rules for them: see template_value.h. */
#include "template_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pool ------------------------------------------------------------------------------------ */

enum { POOL_BLOCK = 1 << 16, BYTES_PER_STEP = 64 };

struct pool_block {
	struct pool_block *next;
	max_align_t data[];
};

void pool_free(struct pool *p)
{
	while (p->blocks) {
		struct pool_block *next = p->blocks->next;
		free(p->blocks);
		p->blocks = next;
	}
	p->free_at = NULL;
	p->n_free = 0;
}

/* An error is one line. */
static void flatten(struct lap_error *err)
{
	for (char *c = err->text; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
}

_Noreturn void pool_fail(struct pool *p, const char *format, ...)
{
	char words[sizeof p->err->text];
	va_list args;
	va_start(args, format);
	vsnprintf(words, sizeof words, format, args);
	va_end(args);
	struct lap_error scratch, *err = p->err ? p->err : &scratch;
	p->status = p->line ? fail(err, LAP_ERROR, "chat template, line %u, column %u: %.900s",
				      p->line, p->column, words)
			    : fail(err, LAP_ERROR, "%s", words);
	flatten(err);
	longjmp(p->escape, 1);
}

_Noreturn void pool_raise(struct pool *p, const char *words, size_t n)
{
	struct lap_error scratch, *err = p->err ? p->err : &scratch;
	if (!n)
		pool_fail(p, "the template raises an error without words");
	p->status = fail(
		err, LAP_ERROR, "%.*s", (int)(n < sizeof err->text ? n : sizeof err->text), words);
	flatten(err);
	longjmp(p->escape, 1);
}

static _Noreturn void out_of_memory(struct pool *p, uint64_t n_bytes)
{
	p->status = fail_memory(p->err, "the chat template", n_bytes);
	longjmp(p->escape, 1);
}

void *pool_alloc(struct pool *p, uint64_t n, uint64_t size)
{
	uint64_t n_bytes, total;
	if (!size_mul(n, size, &n_bytes) || !size_align(n_bytes, sizeof(max_align_t), &n_bytes) ||
		!size_add(p->n_bytes, n_bytes, &total) || total > p->max_bytes)
		pool_fail(p, "the template needs more than %llu bytes of memory",
			(unsigned long long)p->max_bytes);
	p->n_bytes = total;
	if (n_bytes > p->n_free || !p->free_at) {
		size_t n_block = n_bytes > POOL_BLOCK ? (size_t)n_bytes : POOL_BLOCK;
		struct pool_block *block = malloc(sizeof *block + n_block);
		if (!block)
			out_of_memory(p, n_block);
		block->next = p->blocks;
		p->blocks = block;
		p->free_at = (char *)block->data;
		p->n_free = n_block;
	}
	void *memory = p->free_at;
	p->free_at += n_bytes;
	p->n_free -= n_bytes;
	return memset(memory, 0, n_bytes);
}

void pool_work(struct pool *p, uint64_t n_bytes)
{
	p->n_steps += 1 + n_bytes / BYTES_PER_STEP;
	if (p->n_steps > p->max_steps)
		pool_fail(p, "the template takes more than %llu steps",
			(unsigned long long)p->max_steps);
}

void pool_enter(struct pool *p)
{
	if (++p->depth > p->max_depth)
		pool_fail(p, "the template nests more than %u levels deep", p->max_depth);
}

void pool_leave(struct pool *p)
{
	p->depth--;
}

/* ---- making ---------------------------------------------------------------------------------- */

struct value value_none(void)
{
	return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool b)
{
	return (struct value){.kind = VALUE_BOOL, .b = b};
}

struct value value_int(int64_t i)
{
	return (struct value){.kind = VALUE_INT, .i = i};
}

struct value value_float(double f)
{
	return (struct value){.kind = VALUE_FLOAT, .f = f};
}

struct value value_string(const char *s, size_t n)
{
	struct value v = {.kind = VALUE_STRING};
	v.s = n ? s : "";
	v.n = n;
	return v;
}

struct value value_text(const char *s)
{
	return value_string(s, strlen(s));
}

struct value value_copy(struct pool *p, const char *s, size_t n)
{
	char *copy = pool_alloc(p, n, 1);
	if (n)
		memcpy(copy, s, n);
	return value_string(copy, n);
}

struct value value_undefined(struct pool *p, const char *format, ...)
{
	char words[512];
	va_list args;
	va_start(args, format);
	vsnprintf(words, sizeof words, format, args);
	va_end(args);
	struct value v = value_copy(p, words, strlen(words));
	v.kind = VALUE_UNDEFINED;
	return v;
}

struct value value_list(struct pool *p, enum value_kind kind)
{
	struct value v = {.kind = kind, .list = pool_alloc(p, 1, sizeof(struct list))};
	if (kind == VALUE_ITERATOR)
		v.list->name = "generator";
	return v;
}

struct value value_dict(struct pool *p, enum value_kind kind)
{
	return (struct value){.kind = kind, .dict = pool_alloc(p, 1, sizeof(struct dict))};
}

/* `array` with room for one more than n items of `size` bytes. */
static void *grown(struct pool *p, void *array, size_t n, size_t *capacity, size_t size)
{
	if (n < *capacity)
		return array;
	size_t larger = *capacity ? 2 * *capacity : 4;
	void *copy = pool_alloc(p, larger, size);
	if (n)
		memcpy(copy, array, n * size);
	*capacity = larger;
	return copy;
}

void list_add(struct pool *p, struct list *list, struct value v)
{
	list->items = grown(p, list->items, list->n, &list->capacity, sizeof v);
	list->items[list->n++] = v;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *b = bytes; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ b[i]) * 0x100000001B3u;
	return hash;
}

/* Equal keys hash alike: 1, 1.0 and true are one key. */
static uint64_t hash_value(struct pool *p, struct value v, uint64_t hash)
{
	if (value_is_number(v)) {
		double f = value_number(v) + 0.0; /* -0.0 is 0.0 */
		return hash_bytes(hash, &f, sizeof f);
	}
	if (v.kind == VALUE_STRING)
		return hash_bytes(hash ^ 1, v.s, v.n);
	if (v.kind == VALUE_TUPLE) {
		pool_enter(p);
		for (size_t i = 0; i < v.list->n; i++)
			hash = hash_value(p, v.list->items[i], hash ^ 2);
		pool_leave(p);
		return hash;
	}
	if (v.kind != VALUE_NONE && v.kind != VALUE_UNDEFINED)
		pool_fail(p, "unhashable type: '%s'", value_type(v));
	return hash ^ (uint64_t)v.kind << 8;
}

#define HASH_START 0xCBF29CE484222325u

static const struct value *find_entry(
	struct pool *p, const struct dict *d, struct value key, uint64_t hash)
{
	for (size_t i = hash & (d->n_slots - 1); d->n_slots; i = (i + 1) & (d->n_slots - 1)) {
		if (!d->slots[i])
			break;
		const struct dict_entry *e = &d->entries[d->slots[i] - 1];
		if (e->hash == hash && value_equal(p, e->key, key))
			return &e->value;
	}
	return NULL;
}

const struct value *dict_find(struct pool *p, const struct dict *d, struct value key)
{
	pool_work(p, key.kind == VALUE_STRING ? key.n : 0);
	return find_entry(p, d, key, hash_value(p, key, HASH_START));
}

const struct value *dict_find_text(struct pool *p, const struct dict *d, const char *key)
{
	return dict_find(p, d, value_text(key));
}

static void place(struct dict *d, size_t entry)
{
	size_t i = d->entries[entry].hash & (d->n_slots - 1);
	while (d->slots[i])
		i = (i + 1) & (d->n_slots - 1);
	d->slots[i] = (uint32_t)entry + 1;
}

void dict_set(struct pool *p, struct dict *d, struct value key, struct value v)
{
	pool_work(p, key.kind == VALUE_STRING ? key.n : 0);
	uint64_t hash = hash_value(p, key, HASH_START);
	struct value *old = (struct value *)find_entry(p, d, key, hash);
	if (old) {
		*old = v;
		return;
	}
	d->entries = grown(p, d->entries, d->n, &d->capacity, sizeof *d->entries);
	d->entries[d->n++] = (struct dict_entry){key, v, hash};
	if (2 * d->n <= d->n_slots) {
		place(d, d->n - 1);
		return;
	}
	d->n_slots = d->n_slots ? 4 * d->n_slots : 8;
	d->slots = pool_alloc(p, d->n_slots, sizeof *d->slots);
	for (size_t i = 0; i < d->n; i++)
		place(d, i);
}

/* ---- texts ----------------------------------------------------------------------------------- */

void build(struct pool *p, struct builder *b, const void *bytes, size_t n)
{
	if (!n)
		return;
	if (b->n + n > p->max_output)
		pool_fail(p, "the template makes a text of more than %llu bytes",
			(unsigned long long)p->max_output);
	if (b->n + n > b->capacity) {
		size_t capacity = b->capacity ? 2 * b->capacity : 64;
		while (capacity < b->n + n)
			capacity *= 2;
		char *data = pool_alloc(p, capacity, 1);
		if (b->n)
			memcpy(data, b->data, b->n);
		b->data = data;
		b->capacity = capacity;
	}
	memcpy(b->data + b->n, bytes, n);
	b->n += n;
}

void build_text(struct pool *p, struct builder *b, const char *s)
{
	build(p, b, s, strlen(s));
}

void build_printf(struct pool *p, struct builder *b, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	build_text(p, b, text);
}

struct value built(const struct builder *b)
{
	return value_string(b->data, b->n);
}

size_t char_bytes(const char *s, size_t n)
{
	uint32_t code;
	unsigned length = utf8_decode(s, n, &code);
	return length ? length : 1;
}

size_t char_count(const char *s, size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i += char_bytes(s + i, n - i))
		count++;
	return count;
}

uint32_t char_code(const char *s, size_t n)
{
	uint32_t code;
	return utf8_decode(s, n, &code) ? code : (unsigned char)*s;
}

bool char_is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 ||
		c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
		c == 0x202F || c == 0x205F || c == 0x3000;
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool value_is(struct value v, const char *text)
{
	return v.kind == VALUE_STRING && v.n == strlen(text) && memcmp(v.s, text, v.n) == 0;
}

bool value_is_number(struct value v)
{
	return v.kind == VALUE_BOOL || v.kind == VALUE_INT || v.kind == VALUE_FLOAT;
}

bool value_is_listlike(struct value v)
{
	return v.kind >= VALUE_LIST && v.kind <= VALUE_VIEW;
}

double value_number(struct value v)
{
	return v.kind == VALUE_FLOAT ? v.f : v.kind == VALUE_INT ? (double)v.i : v.b;
}

const char *value_type(struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
		return "Undefined";
	case VALUE_NONE:
		return "NoneType";
	case VALUE_BOOL:
		return "bool";
	case VALUE_INT:
		return "int";
	case VALUE_FLOAT:
		return "float";
	case VALUE_STRING:
		return "str";
	case VALUE_LIST:
		return "list";
	case VALUE_TUPLE:
		return "tuple";
	case VALUE_RANGE:
		return "range";
	case VALUE_ITERATOR:
	case VALUE_VIEW:
		return v.list->name;
	case VALUE_DICT:
		return "dict";
	case VALUE_NAMESPACE:
		return "Namespace";
	case VALUE_CYCLER:
		return "Cycler";
	case VALUE_LOOP:
		return "LoopContext";
	case VALUE_FUNCTION:
		return "function";
	case VALUE_METHOD:
		return "builtin_function_or_method";
	case VALUE_MACRO:
		return "Macro";
	case VALUE_JOINER:
		return "Joiner";
	}
	return "object";
}

bool value_truth(struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return false;
	case VALUE_BOOL:
		return v.b;
	case VALUE_INT:
		return v.i != 0;
	case VALUE_FLOAT:
		return v.f != 0;
	case VALUE_STRING:
		return v.n > 0;
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_RANGE:
	case VALUE_VIEW:
		return v.list->n > 0;
	case VALUE_DICT:
		return v.dict->n > 0;
	default:
		return true;
	}
}

void value_needs(struct pool *p, struct value v)
{
	if (v.kind == VALUE_UNDEFINED)
		pool_fail(p, "%.*s", (int)v.n, v.s);
}

static bool lists_equal(struct pool *p, const struct list *a, const struct list *b)
{
	bool equal = a->n == b->n;
	pool_enter(p);
	for (size_t i = 0; equal && i < a->n; i++)
		equal = value_equal(p, a->items[i], b->items[i]);
	pool_leave(p);
	return equal;
}

static bool dicts_equal(struct pool *p, const struct dict *a, const struct dict *b)
{
	bool equal = a->n == b->n;
	pool_enter(p);
	for (size_t i = 0; equal && i < a->n; i++) {
		const struct value *other = dict_find(p, b, a->entries[i].key);
		equal = other && value_equal(p, a->entries[i].value, *other);
	}
	pool_leave(p);
	return equal;
}

bool value_equal(struct pool *p, struct value a, struct value b)
{
	pool_work(p, a.kind == VALUE_STRING ? a.n : 0);
	if (a.kind == VALUE_INT && b.kind == VALUE_INT)
		return a.i == b.i;
	if (value_is_number(a) && value_is_number(b))
		return value_number(a) == value_number(b);
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return true;
	case VALUE_STRING:
	case VALUE_FUNCTION:
		return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_RANGE:
		return lists_equal(p, a.list, b.list);
	case VALUE_DICT:
		return dicts_equal(p, a.dict, b.dict);
	default:
		return a.list == b.list; /* the same object */
	}
}

static int order_bytes(struct value a, struct value b)
{
	int order = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n); /* UTF-8 sorts as code points do */
	return order ? order : (a.n > b.n) - (a.n < b.n);
}

int value_order(struct pool *p, struct value a, struct value b, const char *op)
{
	pool_work(p, a.kind == VALUE_STRING ? a.n : 0);
	value_needs(p, a);
	value_needs(p, b);
	if (a.kind == VALUE_INT && b.kind == VALUE_INT)
		return (a.i > b.i) - (a.i < b.i);
	if (value_is_number(a) && value_is_number(b)) {
		double x = value_number(a), y = value_number(b);
		return (x > y) - (x < y);
	}
	if (a.kind == VALUE_STRING && b.kind == VALUE_STRING)
		return order_bytes(a, b);
	if (a.kind == b.kind && (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE)) {
		int order = 0;
		pool_enter(p);
		for (size_t i = 0; !order && i < a.list->n && i < b.list->n; i++)
			if (!value_equal(p, a.list->items[i], b.list->items[i]))
				order = value_order(p, a.list->items[i], b.list->items[i], op);
		pool_leave(p);
		return order ? order : (a.list->n > b.list->n) - (a.list->n < b.list->n);
	}
	pool_fail(p, "'%s' not supported between instances of '%s' and '%s'", op, value_type(a),
		value_type(b));
}

bool text_at(struct pool *p, const char *s, struct value what)
{
	size_t n = 0;
	while (n < what.n && s[n] == what.s[n])
		n++;
	if (n >= BYTES_PER_STEP)
		pool_work(p, n);
	return n == what.n;
}

bool value_contains(struct pool *p, struct value inside, struct value item)
{
	if (inside.kind == VALUE_STRING) {
		value_needs(p, item);
		if (item.kind != VALUE_STRING)
			pool_fail(p, "'in <string>' requires string as left operand, not %s",
				value_type(item));
		pool_work(p, inside.n);
		for (size_t i = 0; i + item.n <= inside.n; i++)
			if (text_at(p, inside.s + i, item))
				return true;
		return false;
	}
	if (inside.kind == VALUE_DICT)
		return dict_find(p, inside.dict, item) != NULL;
	if (inside.kind != VALUE_UNDEFINED && !value_is_listlike(inside))
		pool_fail(p, "argument of type '%s' is not iterable", value_type(inside));
	struct value items = value_items(p, inside);
	for (size_t i = 0; i < items.list->n; i++)
		if (value_equal(p, items.list->items[i], item))
			return true;
	return false;
}

size_t value_length(struct pool *p, struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
		return 0;
	case VALUE_STRING:
		pool_work(p, v.n);
		return char_count(v.s, v.n);
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_RANGE:
	case VALUE_VIEW:
		return v.list->n;
	case VALUE_DICT:
		return v.dict->n;
	default:
		pool_fail(p, "object of type '%s' has no len()", value_type(v));
	}
}

struct value value_items(struct pool *p, struct value v)
{
	if (v.kind == VALUE_ITERATOR) { /* what is left of it; then it is empty */
		struct value rest = value_list(p, VALUE_LIST);
		rest.list->items = v.list->items ? v.list->items + v.list->at : NULL;
		rest.list->n = rest.list->capacity = v.list->n - v.list->at;
		v.list->at = v.list->n;
		return rest;
	}
	if (value_is_listlike(v))
		return v;
	struct value items = value_list(p, VALUE_LIST);
	if (v.kind == VALUE_STRING) {
		pool_work(p, v.n);
		for (size_t i = 0; i < v.n;) {
			size_t n = char_bytes(v.s + i, v.n - i);
			list_add(p, items.list, value_string(v.s + i, n));
			i += n;
		}
	} else if (v.kind == VALUE_DICT) {
		pool_work(p, v.dict->n);
		for (size_t i = 0; i < v.dict->n; i++)
			list_add(p, items.list, v.dict->entries[i].key);
	} else if (v.kind != VALUE_UNDEFINED) {
		pool_fail(p, "'%s' object is not iterable", value_type(v));
	}
	return items;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The character of a string at a position, or false. */
static bool char_at(struct pool *p, struct value v, int64_t at, struct value *out)
{
	pool_work(p, v.n);
	if (at < 0)
		at += (int64_t)char_count(v.s, v.n);
	for (size_t i = 0; at >= 0 && i < v.n; at--) {
		size_t n = char_bytes(v.s + i, v.n - i);
		*out = value_string(v.s + i, n);
		if (at == 0)
			return true;
		i += n;
	}
	return false;
}

struct value value_index(struct pool *p, struct value v, struct value key, bool *found)
{
	struct value out = value_none();
	*found = false;
	if (v.kind == VALUE_DICT) {
		const struct value *item = dict_find(p, v.dict, key);
		*found = item != NULL;
		return item ? *item : out;
	}
	if (key.kind != VALUE_INT && key.kind != VALUE_BOOL)
		return out;
	int64_t at = key.kind == VALUE_INT ? key.i : key.b;
	if (v.kind == VALUE_STRING) {
		*found = char_at(p, v, at, &out);
	} else if (v.kind == VALUE_LIST || v.kind == VALUE_TUPLE || v.kind == VALUE_RANGE) {
		int64_t n = (int64_t)v.list->n;
		at += at < 0 ? n : 0;
		*found = at >= 0 && at < n;
		if (*found)
			out = v.list->items[at];
	}
	return out;
}

static int64_t bound(struct pool *p, struct value v, int64_t missing, int64_t n, int64_t low)
{
	if (v.kind == VALUE_NONE)
		return missing;
	value_needs(p, v);
	if (v.kind != VALUE_INT && v.kind != VALUE_BOOL)
		pool_fail(p, "slice indices must be integers or None or have an __index__ method");
	int64_t at = v.kind == VALUE_INT ? v.i : v.b;
	at += at < 0 ? n : 0;
	int64_t high = low < 0 ? n - 1 : n;
	return at < low ? low : at > high ? high : at;
}

struct value value_slice(
	struct pool *p, struct value v, struct value from, struct value to, struct value step)
{
	value_needs(p, v);
	if (v.kind != VALUE_STRING && v.kind != VALUE_LIST && v.kind != VALUE_TUPLE &&
		v.kind != VALUE_RANGE)
		return value_undefined(p, "'%s object' has no element slice", value_type(v));
	struct value items = value_items(p, v);
	int64_t n = (int64_t)items.list->n;
	int64_t by = step.kind == VALUE_NONE ? 1 : bound(p, step, 1, 0, INT64_MIN + 1);
	if (step.kind == VALUE_INT)
		by = step.i;
	if (by == 0)
		pool_fail(p, "slice step cannot be zero");
	int64_t low = by < 0 ? -1 : 0;
	int64_t at = bound(p, from, by < 0 ? n - 1 : 0, n, low);
	int64_t end = bound(p, to, by < 0 ? -1 : n, n, low);
	struct builder text = {0};
	struct value out = v.kind == VALUE_STRING
		? value_none()
		: value_list(p, v.kind == VALUE_RANGE ? VALUE_LIST : v.kind);
	while (by > 0 ? at < end : at > end) {
		struct value item = items.list->items[at];
		pool_work(p, 0);
		if (v.kind == VALUE_STRING)
			build(p, &text, item.s, item.n);
		else
			list_add(p, out.list, item);
		if (by > n || by < -n)
			break;
		at += by;
	}
	return v.kind == VALUE_STRING ? built(&text) : out;
}

/* ---- printing -------------------------------------------------------------------------------- */

void format_float(double f, char out[40])
{
	if (isnan(f) || isinf(f)) {
		snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	char digits[32];
	int precision = 0;
	do
		snprintf(digits, sizeof digits, "%.*e", precision, f);
	while (strtod(digits, NULL) != f && precision++ < 17);
	int exponent = atoi(strchr(digits, 'e') + 1);
	if (exponent < -4 || exponent >= 16) {
		snprintf(out, 40, "%s", digits);
		return;
	}
	int decimals = precision - exponent;
	snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, f);
}

static void build_quoted(struct pool *p, struct builder *b, struct value v)
{
	bool single = memchr(v.s, '\'', v.n) && !memchr(v.s, '"', v.n);
	char quote = single ? '"' : '\'';
	build(p, b, &quote, 1);
	for (size_t i = 0; i < v.n;) {
		size_t n = char_bytes(v.s + i, v.n - i);
		uint32_t c = char_code(v.s + i, v.n - i);
		if (c == (unsigned char)quote || c == '\\')
			build_printf(p, b, "\\%c", (int)c);
		else if (c == '\n' || c == '\r' || c == '\t')
			build_text(p, b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
		else if (c < 32 || (c >= 127 && c <= 160) || c == 0xAD)
			build_printf(p, b, "\\x%02x", c);
		else
			build(p, b, v.s + i, n);
		i += n;
	}
	build(p, b, &quote, 1);
}

static void build_items(struct pool *p, struct builder *b, struct value v)
{
	bool tuple = v.kind == VALUE_TUPLE;
	if (v.kind == VALUE_VIEW)
		build_printf(p, b, "%s(", v.list->name);
	build_text(p, b, tuple ? "(" : "[");
	for (size_t i = 0; i < v.list->n; i++) {
		build_text(p, b, i ? ", " : "");
		build_repr(p, b, v.list->items[i]);
	}
	build_text(p, b, tuple && v.list->n == 1 ? ",)" : tuple ? ")" : "]");
	if (v.kind == VALUE_VIEW)
		build_text(p, b, ")");
}

static void build_entries(struct pool *p, struct builder *b, const struct dict *d)
{
	build_text(p, b, "{");
	for (size_t i = 0; i < d->n; i++) {
		build_text(p, b, i ? ", " : "");
		build_repr(p, b, d->entries[i].key);
		build_text(p, b, ": ");
		build_repr(p, b, d->entries[i].value);
	}
	build_text(p, b, "}");
}

static void build_object(struct pool *p, struct builder *b, struct value v)
{
	switch (v.kind) {
	case VALUE_RANGE:
		build_printf(p, b, "range(%lld, %lld", (long long)v.list->range[0],
			(long long)v.list->range[1]);
		if (v.list->range[2] != 1)
			build_printf(p, b, ", %lld", (long long)v.list->range[2]);
		build_text(p, b, ")");
		break;
	case VALUE_NAMESPACE:
		build_text(p, b, "<Namespace ");
		build_entries(p, b, v.dict);
		build_text(p, b, ">");
		break;
	case VALUE_METHOD:
		build_printf(p, b, "<built-in method %.*s of %s object>", (int)v.method->name.n,
			v.method->name.s, value_type(v.method->self));
		break;
	default: /* Python shows an address here, which no template can rely on */
		build_printf(p, b, "<%s object>", value_type(v));
	}
}

void build_repr(struct pool *p, struct builder *b, struct value v)
{
	char number[40];
	pool_work(p, v.kind == VALUE_STRING ? v.n : 0);
	pool_enter(p);
	switch (v.kind) {
	case VALUE_UNDEFINED:
		build_text(p, b, "Undefined");
		break;
	case VALUE_NONE:
		build_text(p, b, "None");
		break;
	case VALUE_BOOL:
		build_text(p, b, v.b ? "True" : "False");
		break;
	case VALUE_INT:
		build_printf(p, b, "%lld", (long long)v.i);
		break;
	case VALUE_FLOAT:
		format_float(v.f, number);
		build_text(p, b, number);
		break;
	case VALUE_STRING:
		build_quoted(p, b, v);
		break;
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_VIEW:
		build_items(p, b, v);
		break;
	case VALUE_DICT:
		build_entries(p, b, v.dict);
		break;
	default:
		build_object(p, b, v);
	}
	pool_leave(p);
}

void build_str(struct pool *p, struct builder *b, struct value v)
{
	if (v.kind == VALUE_STRING) {
		pool_work(p, v.n);
		build(p, b, v.s, v.n);
	} else if (v.kind != VALUE_UNDEFINED) {
		build_repr(p, b, v);
	}
}

struct value value_str(struct pool *p, struct value v)
{
	if (v.kind == VALUE_STRING)
		return v;
	struct builder b = {0};
	build_str(p, &b, v);
	return built(&b);
}
