/* Filters: see template_call.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template_call.h"

#define FILTER(name)                                                                    \
	static struct value name(struct pool *p, struct value v, const struct value *a, \
		const struct arguments *all)
#define UNUSED (void)p, (void)v, (void)a, (void)all

static bool truth_or(struct value v, bool otherwise)
{
	return missing(v) ? otherwise : value_truth(v);
}

static int64_t int_or(struct pool *p, struct value v, int64_t otherwise)
{
	return missing(v) ? otherwise : need_int(p, v);
}

static struct value text_or(struct pool *p, struct value v, const char *otherwise)
{
	return missing(v) || v.kind == VALUE_NONE ? value_text(otherwise) : value_str(p, v);
}

/* a.b.0 of an item: each part an item first, then an attribute. `otherwise` where there is none. */
static struct value attribute_of(
	struct pool *p, struct value item, struct value path, struct value otherwise)
{
	if (path.kind == VALUE_INT)
		return value_subscript(p, item, path);
	need_text(p, path, "an attribute");
	for (size_t from = 0; from <= path.n;) {
		size_t end = from;
		bool digits = true;
		while (end < path.n && path.s[end] != '.') {
			digits &= path.s[end] >= '0' && path.s[end] <= '9';
			end++;
		}
		struct value part = value_string(path.s + from, end - from);
		digits &= part.n > 0 && part.n < 10;
		item = value_subscript(
			p, item, digits ? value_int(strtoll(part.s, NULL, 10)) : part);
		if (item.kind == VALUE_UNDEFINED && !missing(otherwise))
			item = otherwise;
		from = end + 1;
	}
	return item;
}

static struct value fold_case(struct pool *p, struct value v)
{
	return v.kind == VALUE_STRING ? text_case(p, v, CASE_LOWER) : v;
}

/* What an item is sorted or compared by. */
static struct value key_of(
	struct pool *p, struct value item, struct value attribute, bool case_sensitive)
{
	if (!missing(attribute) && attribute.kind != VALUE_NONE)
		item = attribute_of(p, item, attribute, (struct value){0});
	return case_sensitive ? item : fold_case(p, item);
}

/* ---- texts ----------------------------------------------------------------------------------- */

FILTER(filter_tojson)
{
	UNUSED;
	struct json_style style = {.indent = -1, .item = value_text(", "), .key = value_text(": ")};
	struct builder b = {0};
	if (!missing(a[0]) && a[0].kind != VALUE_NONE) {
		int64_t indent = need_int(p, a[0]);
		style.indent = indent < 0 ? 0 : indent > INT32_MAX ? INT32_MAX : (int)indent;
		style.item = value_text(",");
	}
	style.ascii = truth_or(a[1], false);
	if (!missing(a[2]) && a[2].kind != VALUE_NONE) {
		struct value pair = value_items(p, a[2]);
		if (pair.list->n != 2)
			pool_fail(p, "tojson: separators has %zu items, expected 2", pair.list->n);
		style.item = need_text(p, pair.list->items[0], "a separator");
		style.key = need_text(p, pair.list->items[1], "a separator");
	}
	style.sort_keys = truth_or(a[3], false);
	json_write(p, &b, v, &style);
	return built(&b);
}

FILTER(filter_trim)
{
	UNUSED;
	return text_strip(p, value_str(p, v), a[0], true, true);
}

FILTER(filter_upper)
{
	UNUSED;
	return text_case(p, value_str(p, v), CASE_UPPER);
}

FILTER(filter_lower)
{
	UNUSED;
	return text_case(p, value_str(p, v), CASE_LOWER);
}

FILTER(filter_capitalize)
{
	UNUSED;
	return text_case(p, value_str(p, v), CASE_CAPITALIZE);
}

/* Words start behind blanks, hyphens and opening brackets. */
FILTER(filter_title)
{
	UNUSED;
	struct builder b = {0};
	v = value_str(p, v);
	for (size_t from = 0; from < v.n;) {
		size_t end = from;
		while (end < v.n && !(strchr("-({[<", v.s[end]) && v.s[end]) &&
			!char_is_space(char_code(v.s + end, v.n - end)))
			end += char_bytes(v.s + end, v.n - end);
		struct value word =
			text_case(p, value_string(v.s + from, end - from), CASE_CAPITALIZE);
		build(p, &b, word.s, word.n);
		size_t n = end < v.n ? char_bytes(v.s + end, v.n - end) : 0;
		build(p, &b, v.s + end, n);
		from = end + n;
	}
	return built(&b);
}

FILTER(filter_string)
{
	UNUSED;
	return value_str(p, v);
}

FILTER(filter_escape)
{
	UNUSED;
	static const char special[] = "&<>'\"";
	static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
	struct builder b = {0};
	v = value_str(p, v);
	for (size_t i = 0; i < v.n; i++) {
		const char *found = v.s[i] ? strchr(special, v.s[i]) : NULL;
		if (found)
			build_text(p, &b, names[found - special]);
		else
			build(p, &b, v.s + i, 1);
	}
	return built(&b);
}

/* A dict as the attributes of a tag; those that are none or undefined are left out. */
FILTER(filter_xmlattr)
{
	value_needs(p, v);
	if (v.kind != VALUE_DICT)
		pool_fail(p, "'%s' object has no attribute 'items'", value_type(v));
	struct builder b = {0};
	for (size_t i = 0; i < v.dict->n; i++) {
		struct value key = value_str(p, v.dict->entries[i].key);
		struct value value = v.dict->entries[i].value;
		if (value.kind == VALUE_NONE || value.kind == VALUE_UNDEFINED)
			continue;
		for (size_t j = 0; j < key.n; j++)
			if (key.s[j] && strchr(" \t\n\r\f\v/>=", key.s[j]))
				pool_fail(p, "Invalid character in attribute name: '%.*s'",
					(int)(key.n < 200 ? key.n : 200), key.s);
		key = filter_escape(p, key, a, all);
		value = filter_escape(p, value, a, all);
		build_text(p, &b, b.n || truth_or(a[0], true) ? " " : "");
		build(p, &b, key.s, key.n);
		build_text(p, &b, "=\"");
		build(p, &b, value.s, value.n);
		build_text(p, &b, "\"");
	}
	return built(&b);
}

FILTER(filter_replace)
{
	UNUSED;
	return text_replace(p, value_str(p, v), value_str(p, a[0]), value_str(p, a[1]),
		missing(a[2]) || a[2].kind == VALUE_NONE ? -1 : need_int(p, a[2]));
}

FILTER(filter_indent)
{
	UNUSED;
	struct builder b = {0}, margin = {0};
	if (a[0].kind == VALUE_STRING)
		build(p, &margin, a[0].s, a[0].n);
	else
		for (int64_t i = int_or(p, a[0], 4); i > 0; i--)
			build_text(p, &margin, " ");
	bool first = truth_or(a[1], false), blank = truth_or(a[2], false);
	v = value_str(p, v);
	for (size_t from = 0; from <= v.n;) {
		size_t end = from;
		while (end < v.n && v.s[end] != '\n')
			end++;
		if (from)
			build_text(p, &b, "\n");
		if (from ? blank || end > from : first)
			build(p, &b, margin.data, margin.n);
		build(p, &b, v.s + from, end - from);
		from = end + 1;
	}
	return built(&b);
}

FILTER(filter_center)
{
	UNUSED;
	return text_pad(p, value_str(p, v), int_or(p, a[0], 80), value_text(" "), 'c');
}

FILTER(filter_format)
{
	UNUSED;
	struct value arguments = value_list(p, VALUE_TUPLE);
	for (size_t i = 0; i < all->n; i++)
		list_add(p, arguments.list, all->items[i]);
	if (all->n_keywords)
		arguments = value_dict(p, VALUE_DICT);
	for (size_t i = 0; i < all->n_keywords; i++)
		dict_set(p, arguments.dict, all->keywords[i].name, all->keywords[i].value);
	return text_percent(p, value_str(p, v), arguments);
}

FILTER(filter_truncate)
{
	UNUSED;
	int64_t length = int_or(p, a[0], 255), leeway = int_or(p, a[3], 5);
	struct value end = text_or(p, a[2], "..."), s = value_str(p, v);
	int64_t n_end = (int64_t)value_length(p, end);
	if (length < n_end || leeway < 0)
		pool_fail(p, "truncate: found length %lld, expected %lld or more",
			(long long)length, (long long)n_end);
	if ((int64_t)value_length(p, s) - leeway <= length)
		return s;
	s = value_slice(p, s, value_none(), value_int(length - n_end), value_none());
	if (!truth_or(a[1], false)) {
		size_t space = text_find(p, s, value_text(" "), 0, true);
		s.n = space < s.n ? space : s.n;
	}
	struct builder b = {0};
	build(p, &b, s.s, s.n);
	build(p, &b, end.s, end.n);
	return built(&b);
}

FILTER(filter_wordcount)
{
	UNUSED;
	int64_t n = 0;
	bool inside = false;
	v = value_str(p, v);
	for (size_t i = 0; i < v.n; i += char_bytes(v.s + i, v.n - i)) {
		uint32_t c = char_code(v.s + i, v.n - i);
		bool word = char_is_alpha(c) || c == '_' || (c >= '0' && c <= '9');
		n += word && !inside;
		inside = word;
	}
	return value_int(n);
}

FILTER(filter_urlencode)
{
	UNUSED;
	struct builder b = {0};
	v = value_str(p, v);
	for (size_t i = 0; i < v.n; i++) {
		unsigned char c = (unsigned char)v.s[i];
		bool plain = (c < 128 && char_is_alpha(c)) || (c >= '0' && c <= '9') ||
			(c && strchr("_.-~/", c));
		if (plain)
			build(p, &b, v.s + i, 1);
		else
			build_printf(p, &b, "%%%02X", c);
	}
	return built(&b);
}

FILTER(filter_pprint)
{
	UNUSED;
	struct builder b = {0};
	build_repr(p, &b, v);
	return built(&b);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* A whole text as a number of Python's: blanks around it, '_' between digits. */
static bool read_number(struct pool *p, struct value v, int base, struct value *out)
{
	const struct value blanks = value_none();
	v = text_strip(p, v, blanks, true, true);
	char *text = pool_alloc(p, v.n + 1, 1), *end;
	size_t n = 0;
	for (size_t i = 0; i < v.n; i++)
		if (v.s[i] != '_' || i == 0 || i + 1 == v.n || v.s[i - 1] == '_')
			text[n++] = v.s[i];
	if (!n || char_is_space((unsigned char)text[0]) || memchr(text, '\0', n))
		return false;
	if (base) {
		if (n > 1 && text[0] == '0' &&
			strchr(base == 8            ? "oO"
					: base == 2 ? "bB"
						    : "",
				text[1]) &&
			text[1]) {
			text += 2;
			n -= 2;
		}
		*out = value_int(strtoll(text, &end, base));
	} else {
		if (strpbrk(text, "xXpP("))
			return false;
		*out = value_float(strtod(text, &end));
	}
	return end == text + n && n > 0;
}

FILTER(filter_int)
{
	UNUSED;
	struct value otherwise = missing(a[0]) ? value_int(0) : a[0], out;
	int64_t base = int_or(p, a[1], 10);
	if (v.kind == VALUE_STRING) {
		if (base != 0 && (base < 2 || base > 36))
			return otherwise;
		if (read_number(p, v, base ? (int)base : 10, &out))
			return out;
		if (!read_number(p, v, 0, &out))
			return otherwise;
		v = out;
	}
	value_needs(p, v);
	if (v.kind == VALUE_FLOAT)
		return fabs(v.f) < 9.2e18 ? value_int((int64_t)v.f) : otherwise;
	return v.kind == VALUE_INT ? v : v.kind == VALUE_BOOL ? value_int(v.b) : otherwise;
}

FILTER(filter_float)
{
	UNUSED;
	struct value otherwise = missing(a[0]) ? value_float(0) : a[0], out;
	value_needs(p, v);
	if (value_is_number(v))
		return value_float(value_number(v));
	return v.kind == VALUE_STRING && read_number(p, v, 0, &out) ? out : otherwise;
}

/* Bytes as people read them: steps of 1000, or of 1024. */
FILTER(filter_filesizeformat)
{
	UNUSED;
	const struct value none = value_none();
	value_needs(p, v);
	if (!value_is_number(v) && v.kind != VALUE_STRING)
		pool_fail(p, "float() argument must be a string or a real number, not '%s'",
			value_type(v));
	struct value number = filter_float(p, v, &none, all);
	if (number.kind == VALUE_NONE)
		pool_fail(p, "could not convert string to float: '%.*s'",
			(int)(v.n < 200 ? v.n : 200), v.s);
	bool binary = truth_or(a[0], false);
	double n = number.f, base = binary ? 1024 : 1000;
	struct builder b = {0};
	if (n < base) {
		build_printf(p, &b, n == 1 ? "%.0f Byte" : "%.0f Bytes", trunc(n) + 0.0);
		return built(&b);
	}
	static const char letters[] = "kMGTPEZY";
	double unit = base * base;
	size_t i = 0;
	for (; n >= unit && letters[i + 1]; i++)
		unit *= base;
	char letter = binary && i == 0 ? 'K' : letters[i];
	build_printf(p, &b, "%.1f %c%sB", base * n / unit, letter, binary ? "i" : "");
	return built(&b);
}

FILTER(filter_abs)
{
	UNUSED;
	value_needs(p, v);
	if (!value_is_number(v))
		pool_fail(p, "bad operand type for abs(): '%s'", value_type(v));
	if (v.kind == VALUE_FLOAT)
		return value_float(fabs(v.f));
	int64_t i = need_int(p, v);
	if (i == INT64_MIN)
		pool_fail(p, "a whole number outside 64 bits");
	return value_int(i < 0 ? -i : i);
}

/* Halves to even, on the exact value, as Python does. */
static double round_to(double f, int64_t digits)
{
	char text[512];
	if (isnan(f) || isinf(f) || digits > 300)
		return f;
	if (digits < 0) {
		double unit = pow(10, (double)(digits < -400 ? 400 : -digits));
		return isinf(unit) ? 0 : nearbyint(f / unit) * unit;
	}
	snprintf(text, sizeof text, "%.*f", (int)digits, f);
	return strtod(text, NULL);
}

FILTER(filter_round)
{
	UNUSED;
	int64_t digits = int_or(p, a[0], 0);
	struct value method = text_or(p, a[1], "common");
	value_needs(p, v);
	if (!value_is_number(v))
		pool_fail(p, "type %s doesn't define __round__ method", value_type(v));
	double f = value_number(v);
	if (value_is(method, "common"))
		return v.kind == VALUE_FLOAT || digits < 0
			? (v.kind == VALUE_FLOAT ? value_float(round_to(f, digits))
						 : value_int((int64_t)round_to(f, digits)))
			: value_int(need_int(p, v));
	double unit = pow(10, (double)digits);
	if (value_is(method, "ceil"))
		return value_float(ceil(f * unit) / unit);
	if (value_is(method, "floor"))
		return value_float(floor(f * unit) / unit);
	pool_fail(p, "method must be common, ceil or floor");
}

/* ---- any value ------------------------------------------------------------------------------- */

FILTER(filter_default)
{
	UNUSED;
	bool use = v.kind == VALUE_UNDEFINED || (truth_or(a[1], false) && !value_truth(v));
	return !use ? v : missing(a[0]) ? value_text("") : a[0];
}

FILTER(filter_length)
{
	UNUSED;
	return value_int((int64_t)value_length(p, v));
}

FILTER(filter_list)
{
	UNUSED;
	struct value items = value_items(p, v), out = value_list(p, VALUE_LIST);
	for (size_t i = 0; i < items.list->n; i++)
		list_add(p, out.list, items.list->items[i]);
	return out;
}

FILTER(filter_attr)
{
	UNUSED;
	need_text(p, a[0], "an attribute");
	struct value found = value_attribute(p, v, a[0]);
	return v.kind == VALUE_DICT && found.kind != VALUE_METHOD /* items are no attributes */
		? value_undefined(p, "'dict object' has no attribute '%.*s'",
			  (int)(a[0].n < 200 ? a[0].n : 200), a[0].s)
		: found;
}

/* ---- lists ----------------------------------------------------------------------------------- */

FILTER(filter_items)
{
	UNUSED;
	struct value out = value_list(p, VALUE_ITERATOR);
	if (v.kind == VALUE_UNDEFINED)
		return out;
	if (v.kind != VALUE_DICT)
		pool_fail(p, "Can only get item pairs from a mapping.");
	for (size_t i = 0; i < v.dict->n; i++) {
		struct value pair = value_list(p, VALUE_TUPLE);
		list_add(p, pair.list, v.dict->entries[i].key);
		list_add(p, pair.list, v.dict->entries[i].value);
		list_add(p, out.list, pair);
	}
	return out;
}

FILTER(filter_first)
{
	UNUSED;
	if (v.kind == VALUE_ITERATOR)
		return v.list->at < v.list->n
			? v.list->items[v.list->at++]
			: value_undefined(p, "No first item, sequence was empty.");
	struct value items = value_items(p, v);
	return items.list->n ? items.list->items[0]
			     : value_undefined(p, "No first item, sequence was empty.");
}

FILTER(filter_last)
{
	UNUSED;
	if (v.kind == VALUE_ITERATOR)
		pool_fail(p, "'generator' object is not reversible");
	struct value items = value_items(p, v);
	return items.list->n ? items.list->items[items.list->n - 1]
			     : value_undefined(p, "No last item, sequence was empty.");
}

FILTER(filter_reverse)
{
	UNUSED;
	struct value items = value_items(p, v), out = value_list(p, VALUE_ITERATOR);
	struct builder b = {0};
	for (size_t i = items.list->n; i > 0; i--) {
		struct value item = items.list->items[i - 1];
		if (v.kind == VALUE_STRING)
			build(p, &b, item.s, item.n);
		else
			list_add(p, out.list, item);
	}
	return v.kind == VALUE_STRING ? built(&b) : out;
}

FILTER(filter_join)
{
	UNUSED;
	struct builder b = {0};
	struct value items = value_items(p, v), between = text_or(p, a[0], "");
	for (size_t i = 0; i < items.list->n; i++) {
		struct value item = items.list->items[i];
		if (!missing(a[1]) && a[1].kind != VALUE_NONE)
			item = attribute_of(p, item, a[1], (struct value){0});
		build(p, &b, between.s, i ? between.n : 0);
		build_str(p, &b, item);
	}
	return built(&b);
}

FILTER(filter_sum)
{
	UNUSED;
	struct value items = value_items(p, v);
	struct value sum = missing(a[1]) ? value_int(0) : a[1];
	for (size_t i = 0; i < items.list->n; i++) {
		struct value item = key_of(p, items.list->items[i], a[0], true);
		value_needs(p, item);
		int64_t total;
		if (!value_is_number(item) || !value_is_number(sum))
			pool_fail(p, "unsupported operand type(s) for +: '%s' and '%s'",
				value_type(sum), value_type(item));
		if (item.kind == VALUE_FLOAT || sum.kind == VALUE_FLOAT)
			sum = value_float(value_number(sum) + value_number(item));
		else if (__builtin_add_overflow(need_int(p, sum), need_int(p, item), &total))
			pool_fail(p, "a whole number outside 64 bits");
		else
			sum = value_int(total);
	}
	return sum;
}

/* An item beside what it is sorted by. */
struct keyed {
	struct value key, item;
};

/* Stable: a merge of sorted halves; backwards equal items keep their order too. */
static void merge_sort(
	struct pool *p, struct keyed *items, struct keyed *spare, size_t n, int direction)
{
	if (n < 2)
		return;
	size_t half = n / 2, left = 0, right = half;
	merge_sort(p, items, spare, half, direction);
	merge_sort(p, items + half, spare, n - half, direction);
	for (size_t i = 0; i < n; i++) {
		bool take_left = right == n ||
			(left < half &&
				direction *
						value_order(p, items[right].key, items[left].key,
							"<") >=
					0);
		spare[i] = items[take_left ? left++ : right++];
	}
	memcpy(items, spare, n * sizeof *items);
}

/* The items of v by `attribute`, sorted. */
static struct keyed *sorted(struct pool *p, struct value v, struct value attribute,
	bool case_sensitive, bool backwards, size_t *n)
{
	struct value items = value_items(p, v);
	*n = items.list->n;
	struct keyed *keyed = pool_alloc(p, *n, sizeof *keyed);
	for (size_t i = 0; i < *n; i++) {
		struct value item = items.list->items[i];
		keyed[i] = (struct keyed){key_of(p, item, attribute, case_sensitive), item};
	}
	merge_sort(p, keyed, pool_alloc(p, *n, sizeof *keyed), *n, backwards ? -1 : 1);
	return keyed;
}

FILTER(filter_sort)
{
	UNUSED;
	size_t n;
	struct keyed *keyed = sorted(p, v, a[2], truth_or(a[1], false), truth_or(a[0], false), &n);
	struct value out = value_list(p, VALUE_LIST);
	for (size_t i = 0; i < n; i++)
		list_add(p, out.list, keyed[i].item);
	return out;
}

FILTER(filter_dictsort)
{
	UNUSED;
	if (v.kind != VALUE_DICT)
		pool_fail(p, "'%s' object has no attribute 'items'", value_type(v));
	struct value by = text_or(p, a[1], "key"), out = value_list(p, VALUE_LIST), pairs;
	if (!value_is(by, "key") && !value_is(by, "value"))
		pool_fail(p, "You can only sort by either \"key\" or \"value\"");
	size_t n;
	pairs = filter_items(p, v, a, all);
	struct keyed *keyed = sorted(p, pairs, value_int(value_is(by, "value")),
		truth_or(a[0], false), truth_or(a[2], false), &n);
	for (size_t i = 0; i < n; i++)
		list_add(p, out.list, keyed[i].item);
	return out;
}

FILTER(filter_groupby)
{
	UNUSED;
	size_t n;
	bool case_sensitive = truth_or(a[2], false);
	struct value out = value_list(p, VALUE_LIST), items = value_items(p, v);
	struct keyed *keyed = pool_alloc(p, items.list->n, sizeof *keyed);
	n = items.list->n;
	for (size_t i = 0; i < n; i++) {
		struct value key = attribute_of(p, items.list->items[i], a[0], a[1]);
		keyed[i] = (struct keyed){
			case_sensitive ? key : fold_case(p, key), items.list->items[i]};
	}
	merge_sort(p, keyed, pool_alloc(p, n, sizeof *keyed), n, 1);
	for (size_t i = 0; i < n;) {
		struct value pair = value_list(p, VALUE_TUPLE), group = value_list(p, VALUE_LIST);
		size_t first = i;
		for (; i < n && value_equal(p, keyed[i].key, keyed[first].key); i++)
			list_add(p, group.list, keyed[i].item);
		list_add(p, pair.list, attribute_of(p, keyed[first].item, a[0], a[1]));
		list_add(p, pair.list, group);
		list_add(p, out.list, pair);
		if (i == first)
			i++; /* a key that equals nothing, not even itself */
	}
	return out;
}

FILTER(filter_unique)
{
	UNUSED;
	struct value seen = value_dict(p, VALUE_DICT), out = value_list(p, VALUE_ITERATOR);
	struct value items = value_items(p, v);
	for (size_t i = 0; i < items.list->n; i++) {
		struct value key = key_of(p, items.list->items[i], a[1], truth_or(a[0], false));
		if (dict_find(p, seen.dict, key))
			continue;
		dict_set(p, seen.dict, key, value_none());
		list_add(p, out.list, items.list->items[i]);
	}
	return out;
}

static struct value extreme(struct pool *p, struct value v, const struct value *a, int direction)
{
	struct value items = value_items(p, v), best = {0}, best_key = {0};
	if (!items.list->n)
		return value_undefined(p, "No aggregated item, sequence was empty.");
	for (size_t i = 0; i < items.list->n; i++) {
		struct value item = items.list->items[i];
		struct value key = key_of(p, item, a[1], truth_or(a[0], false));
		if (i == 0 || direction * value_order(p, key, best_key, "<") < 0) {
			best = item;
			best_key = key;
		}
	}
	return best;
}

FILTER(filter_min)
{
	UNUSED;
	return extreme(p, v, a, 1);
}

FILTER(filter_max)
{
	UNUSED;
	return extreme(p, v, a, -1);
}

FILTER(filter_batch)
{
	UNUSED;
	int64_t size = need_int(p, a[0]);
	struct value out = value_list(p, VALUE_ITERATOR), items = value_items(p, v), row = {0};
	if (size < 1)
		pool_fail(p, "batch: found %lld, expected a size of 1 or more", (long long)size);
	for (size_t i = 0; i < items.list->n; i++) {
		if (i % (uint64_t)size == 0) {
			row = value_list(p, VALUE_LIST);
			list_add(p, out.list, row);
		}
		list_add(p, row.list, items.list->items[i]);
	}
	while (items.list->n && !missing(a[1]) && a[1].kind != VALUE_NONE &&
		row.list->n < (uint64_t)size)
		list_add(p, row.list, a[1]);
	return out;
}

FILTER(filter_slice)
{
	UNUSED;
	int64_t n = need_int(p, a[0]);
	struct value out = value_list(p, VALUE_ITERATOR), items = value_items(p, v);
	if (n < 1)
		pool_fail(p, "slice: found %lld, expected 1 slice or more", (long long)n);
	uint64_t each = items.list->n / (uint64_t)n, more = items.list->n % (uint64_t)n, at = 0;
	for (uint64_t i = 0; i < (uint64_t)n; i++) {
		struct value row = value_list(p, VALUE_LIST);
		pool_work(p, 0);
		for (uint64_t left = each + (i < more); left > 0; left--)
			list_add(p, row.list, items.list->items[at++]);
		if (!missing(a[1]) && a[1].kind != VALUE_NONE && i >= more && more)
			list_add(p, row.list, a[1]);
		list_add(p, out.list, row);
	}
	return out;
}

/* The arguments from the i-th on, with all keywords. */
static struct arguments rest(const struct arguments *all, size_t i)
{
	struct arguments a = *all;
	i = i < a.n ? i : a.n;
	a.items = a.items ? a.items + i : NULL;
	a.n -= i;
	return a;
}

static const struct value *keyword(const struct arguments *all, const char *name)
{
	for (size_t i = 0; i < all->n_keywords; i++)
		if (value_is(all->keywords[i].name, name))
			return &all->keywords[i].value;
	return NULL;
}

FILTER(filter_map)
{
	UNUSED;
	struct value out = value_list(p, VALUE_ITERATOR), items = value_items(p, v);
	const struct value *attribute = keyword(all, "attribute");
	const struct value *otherwise = keyword(all, "default");
	if (!all->n && !attribute)
		pool_fail(p, "map requires a filter argument");
	struct arguments more = rest(all, 1);
	for (size_t i = 0; i < items.list->n; i++)
		list_add(p, out.list,
			!all->n ? attribute_of(p, items.list->items[i], *attribute,
					  otherwise ? *otherwise : (struct value){0})
				: filter_apply(p, need_text(p, all->items[0], "a filter's name"),
					  items.list->items[i], &more));
	return out;
}

/* Items, or those whose attribute, that pass a test (or are true) or that do not. */
static struct value choose(
	struct pool *p, struct value v, const struct arguments *all, bool by_attribute, bool wanted)
{
	struct value out = value_list(p, VALUE_ITERATOR), items = value_items(p, v);
	size_t at = by_attribute;
	struct arguments more = rest(all, at + 1);
	if (by_attribute && !all->n)
		pool_fail(p, "missing parameter for attribute name");
	for (size_t i = 0; i < items.list->n; i++) {
		struct value item = items.list->items[i];
		struct value judged = by_attribute
			? attribute_of(p, item, all->items[0], (struct value){0})
			: item;
		bool good = all->n > at
			? test_apply(
				  p, need_text(p, all->items[at], "a test's name"), judged, &more)
			: value_truth(judged);
		if (good == wanted)
			list_add(p, out.list, item);
	}
	return out;
}

FILTER(filter_select)
{
	UNUSED;
	return choose(p, v, all, false, true);
}

FILTER(filter_reject)
{
	UNUSED;
	return choose(p, v, all, false, false);
}

FILTER(filter_selectattr)
{
	UNUSED;
	return choose(p, v, all, true, true);
}

FILTER(filter_rejectattr)
{
	UNUSED;
	return choose(p, v, all, true, false);
}

static const struct callable filters[] = {
	{"tojson", "indent ensure_ascii separators sort_keys", 0, filter_tojson},
	{"trim", "chars", 0, filter_trim},
	{"upper", "", 0, filter_upper},
	{"lower", "", 0, filter_lower},
	{"capitalize", "", 0, filter_capitalize},
	{"title", "", 0, filter_title},
	{"string", "", 0, filter_string},
	{"safe", "", 0, filter_string},
	{"escape", "", 0, filter_escape},
	{"e", "", 0, filter_escape},
	{"forceescape", "", 0, filter_escape},
	{"xmlattr", "autospace", 0, filter_xmlattr},
	{"replace", "old new count", 2, filter_replace},
	{"indent", "width first blank", 0, filter_indent},
	{"center", "width", 0, filter_center},
	{"format", "*", 0, filter_format},
	{"truncate", "length killwords end leeway", 0, filter_truncate},
	{"wordcount", "", 0, filter_wordcount},
	{"urlencode", "", 0, filter_urlencode},
	{"pprint", "", 0, filter_pprint},
	{"int", "default base", 0, filter_int},
	{"float", "default", 0, filter_float},
	{"filesizeformat", "binary", 0, filter_filesizeformat},
	{"abs", "", 0, filter_abs},
	{"round", "precision method", 0, filter_round},
	{"default", "default_value boolean", 0, filter_default},
	{"d", "default_value boolean", 0, filter_default},
	{"length", "", 0, filter_length},
	{"count", "", 0, filter_length},
	{"list", "", 0, filter_list},
	{"attr", "name", 1, filter_attr},
	{"items", "", 0, filter_items},
	{"first", "", 0, filter_first},
	{"last", "", 0, filter_last},
	{"reverse", "", 0, filter_reverse},
	{"join", "d attribute", 0, filter_join},
	{"sum", "attribute start", 0, filter_sum},
	{"sort", "reverse case_sensitive attribute", 0, filter_sort},
	{"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
	{"groupby", "attribute default case_sensitive", 1, filter_groupby},
	{"unique", "case_sensitive attribute", 0, filter_unique},
	{"min", "case_sensitive attribute", 0, filter_min},
	{"max", "case_sensitive attribute", 0, filter_max},
	{"batch", "linecount fill_with", 1, filter_batch},
	{"slice", "slices fill_with", 1, filter_slice},
	{"map", "*", 0, filter_map},
	{"select", "*", 0, filter_select},
	{"reject", "*", 0, filter_reject},
	{"selectattr", "*", 0, filter_selectattr},
	{"rejectattr", "*", 0, filter_rejectattr},
};

static const struct callable *find_filter(struct value name)
{
	for (size_t i = 0; i < ARRAY_COUNT(filters); i++)
		if (value_is(name, filters[i].name))
			return &filters[i];
	return NULL;
}

bool filter_exists(struct value name)
{
	return find_filter(name) != NULL;
}

struct value filter_apply(
	struct pool *p, struct value name, struct value v, const struct arguments *a)
{
	const struct callable *c = find_filter(name);
	if (!c)
		pool_fail(p, "No filter named '%.*s'.", (int)(name.n < 100 ? name.n : 100), name.s);
	pool_work(p, 0);
	pool_enter(p);
	struct value out = callable_call(p, c, "filter", v, a);
	pool_leave(p);
	return out;
}
