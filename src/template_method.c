/* Methods, attributes, functions, and how arguments meet parameters: see template_call.h. */
#include <stdio.h>
#include <string.h>

#include "template_call.h"

/* ---- arguments ------------------------------------------------------------------------------- */

void arguments_add(struct pool *p, struct arguments *a, struct value v)
{
	if (a->n == a->capacity) {
		a->capacity = a->capacity ? 2 * a->capacity : 4;
		struct value *items = pool_alloc(p, a->capacity, sizeof *items);
		if (a->n)
			memcpy(items, a->items, a->n * sizeof *items);
		a->items = items;
	}
	a->items[a->n++] = v;
}

void arguments_add_keyword(struct pool *p, struct arguments *a, struct value name, struct value v)
{
	if (a->n_keywords == a->capacity_keywords) {
		a->capacity_keywords = a->capacity_keywords ? 2 * a->capacity_keywords : 4;
		struct keyword *keywords = pool_alloc(p, a->capacity_keywords, sizeof *keywords);
		if (a->n_keywords)
			memcpy(keywords, a->keywords, a->n_keywords * sizeof *keywords);
		a->keywords = keywords;
	}
	a->keywords[a->n_keywords++] = (struct keyword){name, v};
}

bool missing(struct value v)
{
	return v.kind == VALUE_UNDEFINED && !v.s;
}

/* The parameter of that name, or -1. */
static int find_parameter(const char *parameters, struct value name)
{
	int i = 0;
	for (const char *s = parameters; *s; i++) {
		size_t n = strcspn(s, " ");
		if (n == name.n && memcmp(s, name.s, n) == 0)
			return i;
		s += n;
		s += strspn(s, " ");
	}
	return -1;
}

static size_t count_parameters(const char *parameters)
{
	size_t n = *parameters != '\0';
	for (const char *s = parameters; *s; s++)
		n += *s == ' ';
	return n;
}

struct value callable_call(struct pool *p, const struct callable *c, const char *what,
	struct value self, const struct arguments *a)
{
	struct value bound[MAX_PARAMETERS] = {{.kind = VALUE_UNDEFINED}};
	for (size_t i = 0; i < MAX_PARAMETERS; i++)
		bound[i] = (struct value){.kind = VALUE_UNDEFINED};
	if (strcmp(c->parameters, "*") == 0) {
		if (a->n < c->n_needed)
			pool_fail(p, "%s '%s' needs %zu arguments, found %zu", what, c->name,
				c->n_needed, a->n);
		return c->call(p, self, bound, a);
	}
	size_t n = count_parameters(c->parameters);
	if (a->n > n)
		pool_fail(p, "%s '%s' takes at most %zu arguments, found %zu", what, c->name, n,
			a->n);
	for (size_t i = 0; i < a->n; i++)
		bound[i] = a->items[i];
	for (size_t i = 0; i < a->n_keywords; i++) {
		struct value name = a->keywords[i].name;
		int at = find_parameter(c->parameters, name);
		if (at < 0 || !missing(bound[at]))
			pool_fail(p, "%s '%s' takes no further argument '%.*s'", what, c->name,
				(int)(name.n < 100 ? name.n : 100), name.s);
		bound[at] = a->keywords[i].value;
	}
	for (size_t i = 0; i < c->n_needed; i++)
		if (missing(bound[i]))
			pool_fail(p, "%s '%s' needs %zu arguments (%s), found %zu", what, c->name,
				c->n_needed, c->parameters, a->n);
	return c->call(p, self, bound, a);
}

/* ---- methods of strings ---------------------------------------------------------------------- */

static int64_t int_or(struct pool *p, struct value v, int64_t otherwise)
{
	return missing(v) || v.kind == VALUE_NONE ? otherwise : need_int(p, v);
}

#define METHOD(name)                                                                       \
	static struct value name(struct pool *p, struct value self, const struct value *a, \
		const struct arguments *all)
#define UNUSED (void)p, (void)self, (void)a, (void)all

METHOD(str_strip)
{
	UNUSED;
	return text_strip(p, self, a[0], true, true);
}

METHOD(str_lstrip)
{
	UNUSED;
	return text_strip(p, self, a[0], true, false);
}

METHOD(str_rstrip)
{
	UNUSED;
	return text_strip(p, self, a[0], false, true);
}

METHOD(str_split)
{
	UNUSED;
	return text_split(p, self, a[0], int_or(p, a[1], -1), false);
}

METHOD(str_rsplit)
{
	UNUSED;
	return text_split(p, self, a[0], int_or(p, a[1], -1), true);
}

METHOD(str_splitlines)
{
	UNUSED;
	struct value out = value_list(p, VALUE_LIST);
	bool keep = value_truth(a[0]);
	pool_work(p, self.n);
	for (size_t from = 0, i = 0; i < self.n; from = i) {
		while (i < self.n && self.s[i] != '\n' && self.s[i] != '\r')
			i++;
		size_t end = i;
		if (i < self.n)
			i += self.s[i] == '\r' && i + 1 < self.n && self.s[i + 1] == '\n' ? 2 : 1;
		list_add(p, out.list, value_string(self.s + from, (keep ? i : end) - from));
	}
	return out;
}

static struct value partition(struct pool *p, struct value self, struct value separator, bool last)
{
	need_text(p, separator, "the separator");
	size_t at = text_find(p, self, separator, 0, last);
	bool found = at <= self.n;
	struct value out = value_list(p, VALUE_TUPLE), empty = value_text("");
	if (found) {
		list_add(p, out.list, value_string(self.s, at));
		list_add(p, out.list, separator);
		at += separator.n;
		list_add(p, out.list, value_string(self.s + at, self.n - at));
	} else {
		list_add(p, out.list, last ? empty : self);
		list_add(p, out.list, empty);
		list_add(p, out.list, last ? self : empty);
	}
	return out;
}

METHOD(str_partition)
{
	UNUSED;
	return partition(p, self, a[0], false);
}

METHOD(str_rpartition)
{
	UNUSED;
	return partition(p, self, a[0], true);
}

/* self[start:end], when the method was given such bounds. */
static struct value bounded(struct pool *p, struct value self, struct value start, struct value end)
{
	if (missing(start) && missing(end))
		return self;
	return value_slice(p, self, missing(start) ? value_none() : start,
		missing(end) ? value_none() : end, value_none());
}

static bool has_end(struct pool *p, struct value self, struct value what, bool front)
{
	if (what.kind == VALUE_TUPLE) {
		for (size_t i = 0; i < what.list->n; i++)
			if (has_end(p, self, need_text(p, what.list->items[i], "a prefix"), front))
				return true;
		return false;
	}
	need_text(p, what, front ? "startswith first arg" : "endswith first arg");
	return what.n <= self.n &&
		memcmp(front ? self.s : self.s + self.n - what.n, what.s, what.n) == 0;
}

METHOD(str_startswith)
{
	UNUSED;
	return value_bool(has_end(p, bounded(p, self, a[1], a[2]), a[0], true));
}

METHOD(str_endswith)
{
	UNUSED;
	return value_bool(has_end(p, bounded(p, self, a[1], a[2]), a[0], false));
}

METHOD(str_removeprefix)
{
	UNUSED;
	need_text(p, a[0], "a prefix");
	return has_end(p, self, a[0], true) ? value_string(self.s + a[0].n, self.n - a[0].n) : self;
}

METHOD(str_removesuffix)
{
	UNUSED;
	need_text(p, a[0], "a suffix");
	return has_end(p, self, a[0], false) ? value_string(self.s, self.n - a[0].n) : self;
}

METHOD(str_replace)
{
	UNUSED;
	return text_replace(p, self, need_text(p, a[0], "replace() argument 1"),
		need_text(p, a[1], "replace() argument 2"), int_or(p, a[2], -1));
}

METHOD(str_upper)
{
	UNUSED;
	return text_case(p, self, CASE_UPPER);
}

METHOD(str_lower)
{
	UNUSED;
	return text_case(p, self, CASE_LOWER);
}

METHOD(str_title)
{
	UNUSED;
	return text_case(p, self, CASE_TITLE);
}

METHOD(str_capitalize)
{
	UNUSED;
	return text_case(p, self, CASE_CAPITALIZE);
}

METHOD(str_swapcase)
{
	UNUSED;
	return text_case(p, self, CASE_SWAP);
}

/* Where a[0] stands in self[a[1]:a[2]], in characters of self, or -1. */
static int64_t position(struct pool *p, struct value self, const struct value *a, bool last)
{
	need_text(p, a[0], "the text to find");
	struct value inside = bounded(p, self, a[1], a[2]);
	size_t at = text_find(p, inside, a[0], 0, last);
	if (at > inside.n)
		return -1;
	int64_t start = int_or(p, a[1], 0), n = (int64_t)value_length(p, self);
	start = start < 0 ? start + n : start;
	return (start < 0 ? 0 : start) + (int64_t)char_count(inside.s, at);
}

METHOD(str_find)
{
	UNUSED;
	return value_int(position(p, self, a, false));
}

METHOD(str_rfind)
{
	UNUSED;
	return value_int(position(p, self, a, true));
}

static struct value must_find(struct pool *p, int64_t at)
{
	if (at < 0)
		pool_fail(p, "substring not found");
	return value_int(at);
}

METHOD(str_index)
{
	UNUSED;
	return must_find(p, position(p, self, a, false));
}

METHOD(str_rindex)
{
	UNUSED;
	return must_find(p, position(p, self, a, true));
}

METHOD(str_count)
{
	UNUSED;
	need_text(p, a[0], "the text to count");
	int64_t n = 0;
	if (!a[0].n)
		return value_int((int64_t)value_length(p, self) + 1);
	for (size_t at = 0; (at = text_find(p, self, a[0], at, false)) <= self.n; at += a[0].n)
		n++;
	return value_int(n);
}

METHOD(str_join)
{
	UNUSED;
	struct builder b = {0};
	struct value items = value_items(p, a[0]);
	for (size_t i = 0; i < items.list->n; i++) {
		struct value item = items.list->items[i];
		if (item.kind != VALUE_STRING)
			pool_fail(p, "sequence item %zu: expected str instance, %s found", i,
				value_type(item));
		build(p, &b, self.s, i ? self.n : 0);
		build(p, &b, item.s, item.n);
	}
	return built(&b);
}

/* Whether the text is not empty and every character is one that `good` likes. */
static struct value all_are(struct pool *p, struct value self, bool (*good)(uint32_t))
{
	pool_work(p, self.n);
	for (size_t i = 0; i < self.n; i += char_bytes(self.s + i, self.n - i))
		if (!good(char_code(self.s + i, self.n - i)))
			return value_bool(false);
	return value_bool(self.n > 0);
}

static bool is_digit(uint32_t c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(uint32_t c)
{
	return is_digit(c) || char_is_alpha(c);
}

METHOD(str_isdigit)
{
	UNUSED;
	return all_are(p, self, is_digit);
}

METHOD(str_isalpha)
{
	UNUSED;
	return all_are(p, self, char_is_alpha);
}

METHOD(str_isalnum)
{
	UNUSED;
	return all_are(p, self, is_alnum);
}

METHOD(str_isspace)
{
	UNUSED;
	return all_are(p, self, char_is_space);
}

/* Some letter has a case, and all that have one have this. */
static struct value cased(struct pool *p, struct value self, bool upper)
{
	bool some = false;
	pool_work(p, self.n);
	for (size_t i = 0; i < self.n; i += char_bytes(self.s + i, self.n - i)) {
		uint32_t c = char_code(self.s + i, self.n - i);
		if (upper ? char_lower(c) == c && char_upper(c) != c
			  : char_upper(c) == c && char_lower(c) != c)
			return value_bool(false);
		some |= char_lower(c) != c || char_upper(c) != c;
	}
	return value_bool(some);
}

METHOD(str_isupper)
{
	UNUSED;
	return cased(p, self, true);
}

METHOD(str_islower)
{
	UNUSED;
	return cased(p, self, false);
}

METHOD(str_zfill)
{
	UNUSED;
	int64_t width = need_int(p, a[0]);
	size_t sign = self.n && (self.s[0] == '-' || self.s[0] == '+');
	struct builder b = {0};
	struct value digits = text_pad(p, value_string(self.s + sign, self.n - sign),
		width < 0 ? 0 : width - (int64_t)sign, value_text("0"), '>');
	build(p, &b, self.s, sign);
	build(p, &b, digits.s, digits.n);
	return built(&b);
}

static struct value pad(struct pool *p, struct value self, const struct value *a, char align)
{
	return text_pad(p, self, need_int(p, a[0]),
		missing(a[1]) ? value_text(" ") : need_text(p, a[1], "the fill character"), align);
}

METHOD(str_ljust)
{
	UNUSED;
	return pad(p, self, a, '<');
}

METHOD(str_rjust)
{
	UNUSED;
	return pad(p, self, a, '>');
}

METHOD(str_center)
{
	UNUSED;
	return pad(p, self, a, 'c');
}

METHOD(str_format)
{
	UNUSED;
	return text_format(p, self, all);
}

static const struct callable string_methods[] = {
	{"strip", "chars", 0, str_strip},
	{"lstrip", "chars", 0, str_lstrip},
	{"rstrip", "chars", 0, str_rstrip},
	{"split", "sep maxsplit", 0, str_split},
	{"rsplit", "sep maxsplit", 0, str_rsplit},
	{"splitlines", "keepends", 0, str_splitlines},
	{"partition", "sep", 1, str_partition},
	{"rpartition", "sep", 1, str_rpartition},
	{"startswith", "prefix start end", 1, str_startswith},
	{"endswith", "suffix start end", 1, str_endswith},
	{"removeprefix", "prefix", 1, str_removeprefix},
	{"removesuffix", "suffix", 1, str_removesuffix},
	{"replace", "old new count", 2, str_replace},
	{"upper", "", 0, str_upper},
	{"lower", "", 0, str_lower},
	{"casefold", "", 0, str_lower},
	{"title", "", 0, str_title},
	{"capitalize", "", 0, str_capitalize},
	{"swapcase", "", 0, str_swapcase},
	{"find", "sub start end", 1, str_find},
	{"rfind", "sub start end", 1, str_rfind},
	{"index", "sub start end", 1, str_index},
	{"rindex", "sub start end", 1, str_rindex},
	{"count", "sub", 1, str_count},
	{"join", "iterable", 1, str_join},
	{"isdigit", "", 0, str_isdigit},
	{"isdecimal", "", 0, str_isdigit},
	{"isnumeric", "", 0, str_isdigit},
	{"isalpha", "", 0, str_isalpha},
	{"isalnum", "", 0, str_isalnum},
	{"isspace", "", 0, str_isspace},
	{"isupper", "", 0, str_isupper},
	{"islower", "", 0, str_islower},
	{"zfill", "width", 1, str_zfill},
	{"ljust", "width fillchar", 1, str_ljust},
	{"rjust", "width fillchar", 1, str_rjust},
	{"center", "width fillchar", 1, str_center},
	{"format", "*", 0, str_format},
};

/* ---- methods of dicts and lists -------------------------------------------------------------- */

METHOD(dict_get)
{
	UNUSED;
	const struct value *found = dict_find(p, self.dict, a[0]);
	return found ? *found : missing(a[1]) ? value_none() : a[1];
}

static struct value view(
	struct pool *p, const struct dict *d, const char *name, bool keys, bool values)
{
	struct value out = value_list(p, VALUE_VIEW);
	out.list->name = name;
	pool_work(p, d->n);
	for (size_t i = 0; i < d->n; i++) {
		struct value item = keys ? d->entries[i].key : d->entries[i].value;
		if (keys && values) {
			item = value_list(p, VALUE_TUPLE);
			list_add(p, item.list, d->entries[i].key);
			list_add(p, item.list, d->entries[i].value);
		}
		list_add(p, out.list, item);
	}
	return out;
}

METHOD(dict_items)
{
	UNUSED;
	return view(p, self.dict, "dict_items", true, true);
}

METHOD(dict_keys)
{
	UNUSED;
	return view(p, self.dict, "dict_keys", true, false);
}

METHOD(dict_values)
{
	UNUSED;
	return view(p, self.dict, "dict_values", false, true);
}

METHOD(dict_copy)
{
	UNUSED;
	struct value out = value_dict(p, VALUE_DICT);
	for (size_t i = 0; i < self.dict->n; i++)
		dict_set(p, out.dict, self.dict->entries[i].key, self.dict->entries[i].value);
	return out;
}

static const struct callable dict_methods[] = {
	{"get", "key default", 1, dict_get},
	{"items", "", 0, dict_items},
	{"keys", "", 0, dict_keys},
	{"values", "", 0, dict_values},
	{"copy", "", 0, dict_copy},
	/* Those below change what they are called on: no template may. */
	{"clear", "", 0, NULL},
	{"pop", "", 0, NULL},
	{"popitem", "", 0, NULL},
	{"setdefault", "", 0, NULL},
	{"update", "", 0, NULL},
};

METHOD(list_index)
{
	UNUSED;
	for (size_t i = 0; i < self.list->n; i++)
		if (value_equal(p, self.list->items[i], a[0]))
			return value_int((int64_t)i);
	pool_fail(p, "the value is not in the list");
}

METHOD(list_count)
{
	UNUSED;
	int64_t n = 0;
	for (size_t i = 0; i < self.list->n; i++)
		n += value_equal(p, self.list->items[i], a[0]);
	return value_int(n);
}

METHOD(list_copy)
{
	UNUSED;
	struct value out = value_list(p, VALUE_LIST);
	for (size_t i = 0; i < self.list->n; i++)
		list_add(p, out.list, self.list->items[i]);
	return out;
}

static const struct callable list_methods[] = {
	{"index", "value", 1, list_index},
	{"count", "value", 1, list_count},
	{"copy", "", 0, list_copy},
	{"append", "", 0, NULL},
	{"clear", "", 0, NULL},
	{"extend", "", 0, NULL},
	{"insert", "", 0, NULL},
	{"pop", "", 0, NULL},
	{"remove", "", 0, NULL},
	{"reverse", "", 0, NULL},
	{"sort", "", 0, NULL},
};

METHOD(cycler_next)
{
	UNUSED;
	struct list *l = self.list;
	struct value item = l->items[l->at];
	l->at = (l->at + 1) % l->n;
	return item;
}

METHOD(cycler_reset)
{
	UNUSED;
	self.list->at = 0;
	return value_none();
}

static const struct callable cycler_methods[] = {
	{"next", "", 0, cycler_next},
	{"reset", "", 0, cycler_reset},
};

static const struct callable *find_callable(
	const struct callable *rows, size_t n, struct value name)
{
	for (size_t i = 0; i < n; i++)
		if (value_is(name, rows[i].name))
			return &rows[i];
	return NULL;
}

static const struct callable *find_method(struct value self, struct value name)
{
	if (self.kind == VALUE_STRING)
		return find_callable(string_methods, ARRAY_COUNT(string_methods), name);
	if (self.kind == VALUE_DICT)
		return find_callable(dict_methods, ARRAY_COUNT(dict_methods), name);
	if (self.kind == VALUE_LIST)
		return find_callable(list_methods, ARRAY_COUNT(list_methods), name);
	if (self.kind == VALUE_TUPLE || self.kind == VALUE_RANGE)
		return find_callable(list_methods, 2, name);
	if (self.kind == VALUE_CYCLER)
		return find_callable(cycler_methods, ARRAY_COUNT(cycler_methods), name);
	return NULL;
}

struct value method_call(struct pool *p, const struct method *m, const struct arguments *a)
{
	const struct callable *c = find_method(m->self, m->name);
	if (!c->call)
		pool_fail(p, "access to attribute '%s' of '%s' object is unsafe.", c->name,
			value_type(m->self));
	return callable_call(p, c, "method", m->self, a);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static struct value bind_method(struct pool *p, struct value self, struct value name)
{
	struct value v = {.kind = VALUE_METHOD, .method = pool_alloc(p, 1, sizeof(struct method))};
	*v.method = (struct method){self, name};
	return v;
}

static struct value no_attribute(struct pool *p, struct value v, struct value key)
{
	const char *type = v.kind == VALUE_NONE ? "None" : value_type(v);
	const char *object = v.kind == VALUE_NONE ? "" : " object";
	if (key.kind == VALUE_STRING)
		return value_undefined(p, "'%s%s' has no attribute '%.*s'", type, object,
			(int)(key.n < 200 ? key.n : 200), key.s);
	struct builder b = {0};
	build_repr(p, &b, key);
	return value_undefined(
		p, "%s%s has no element %.*s", type, object, (int)(b.n < 200 ? b.n : 200), b.data);
}

struct value value_attribute(struct pool *p, struct value v, struct value name)
{
	value_needs(p, v);
	if (find_method(v, name))
		return bind_method(p, v, name);
	if (v.kind == VALUE_CYCLER && value_is(name, "current"))
		return v.list->items[v.list->at];
	const struct value *found = v.kind == VALUE_DICT || v.kind == VALUE_NAMESPACE
		? dict_find(p, v.dict, name)
		: NULL;
	return found ? *found : no_attribute(p, v, name);
}

struct value value_subscript(struct pool *p, struct value v, struct value key)
{
	bool found;
	value_needs(p, v);
	value_needs(p, key);
	struct value item = value_index(p, v, key, &found);
	if (found)
		return item;
	if (key.kind == VALUE_STRING)
		return value_attribute(p, v, key);
	return no_attribute(p, v, key);
}

/* ---- functions ------------------------------------------------------------------------------- */

enum { MAX_RANGE = 100000 }; /* items, as in Jinja's sandbox */

METHOD(make_range)
{
	UNUSED;
	int64_t from = missing(a[1]) ? 0 : need_int(p, a[0]);
	int64_t to = need_int(p, missing(a[1]) ? a[0] : a[1]);
	int64_t step = missing(a[2]) ? 1 : need_int(p, a[2]);
	if (step == 0)
		pool_fail(p, "range() arg 3 must not be zero");
	double n = ((double)to - (double)from) / (double)step;
	if (n > MAX_RANGE)
		pool_fail(p, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
			MAX_RANGE);
	struct value out = value_list(p, VALUE_RANGE);
	const int64_t range[3] = {from, to, step};
	memcpy(out.list->range, range, sizeof range);
	pool_work(p, (uint64_t)(n > 0 ? n : 0));
	for (int64_t i = from; step > 0 ? i < to : i > to;) {
		list_add(p, out.list, value_int(i));
		if (step > 0 ? i > INT64_MAX - step : i < INT64_MIN - step)
			break;
		i += step;
	}
	return out;
}

static struct value make_dict(struct pool *p, enum value_kind kind, const struct arguments *all)
{
	struct value out = value_dict(p, kind);
	if (all->n > 1)
		pool_fail(p, "dict expected at most 1 argument, got %zu", all->n);
	if (all->n && all->items[0].kind == VALUE_DICT) {
		const struct dict *from = all->items[0].dict;
		for (size_t i = 0; i < from->n; i++)
			dict_set(p, out.dict, from->entries[i].key, from->entries[i].value);
	} else if (all->n) {
		struct value pairs = value_items(p, all->items[0]);
		for (size_t i = 0; i < pairs.list->n; i++) {
			struct value pair = value_items(p, pairs.list->items[i]);
			if (pair.list->n != 2)
				pool_fail(p,
					"dictionary update sequence element #%zu has length %zu; 2 "
					"is required",
					i, pair.list->n);
			dict_set(p, out.dict, pair.list->items[0], pair.list->items[1]);
		}
	}
	for (size_t i = 0; i < all->n_keywords; i++)
		dict_set(p, out.dict, all->keywords[i].name, all->keywords[i].value);
	return out;
}

METHOD(function_dict)
{
	UNUSED;
	return make_dict(p, VALUE_DICT, all);
}

METHOD(function_namespace)
{
	UNUSED;
	return make_dict(p, VALUE_NAMESPACE, all);
}

METHOD(function_cycler)
{
	UNUSED;
	struct value out = value_list(p, VALUE_CYCLER);
	if (!all->n)
		pool_fail(p, "at least one item has to be provided");
	for (size_t i = 0; i < all->n; i++)
		list_add(p, out.list, all->items[i]);
	return out;
}

METHOD(function_joiner)
{
	UNUSED;
	struct value out = value_list(p, VALUE_JOINER);
	list_add(p, out.list, missing(a[0]) ? value_text(", ") : a[0]);
	return out;
}

struct value joiner_call(struct value joiner)
{
	return joiner.list->at++ ? joiner.list->items[0] : value_text("");
}

METHOD(raise_exception)
{
	UNUSED;
	struct value words = value_str(p, a[0]);
	pool_raise(p, words.s, words.n);
}

/* `self` holds the pointer to the time. */
static struct value write_time(struct pool *p, struct value format, const struct tm *now)
{
	char text[512], pattern[256];
	need_text(p, format, "the format of strftime_now");
	if (format.n >= sizeof pattern - 1)
		pool_fail(p, "the format of strftime_now has %zu bytes, expected at most %zu",
			format.n, sizeof pattern - 2);
	snprintf(pattern, sizeof pattern, "%.*s.", (int)format.n, format.s);
	size_t n = strftime(text, sizeof text, pattern, now);
	if (!n)
		pool_fail(p, "strftime_now: the time does not fit into %zu bytes", sizeof text);
	return value_copy(p, text, n - 1);
}

METHOD(strftime_now)
{
	UNUSED;
	return a[0];
}

static const struct callable functions[] = {
	{"range", "start stop step", 1, make_range},
	{"dict", "*", 0, function_dict},
	{"namespace", "*", 0, function_namespace},
	{"cycler", "*", 0, function_cycler},
	{"joiner", "sep", 0, function_joiner},
	{"raise_exception", "message", 1, raise_exception},
	{"strftime_now", "format", 1, strftime_now},
};

bool function_exists(struct value name)
{
	return find_callable(functions, ARRAY_COUNT(functions), name) != NULL;
}

struct value function_call(
	struct pool *p, struct value name, const struct arguments *a, const struct tm *now)
{
	name.kind = VALUE_STRING;
	const struct callable *c = find_callable(functions, ARRAY_COUNT(functions), name);
	struct value v = callable_call(p, c, "function", value_none(), a);
	return c->call == strftime_now ? write_time(p, v, now) : v;
}
