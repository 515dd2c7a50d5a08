/* Schemas together: see schema_merge.h. */
#include "schema_merge.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MERGED 100000 /* schemas of allOf and $ref that are merged */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'                  ? c - '0'
		: (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
						     : -1;
}

/* One part of a JSON pointer in a URI, decoded in place. */
static void decode_part(char *part)
{
	char *out = part;
	for (const char *s = part; *s; s++) {
		if (*s == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0) {
			*out++ = (char)(hex_digit(s[1]) * 16 + hex_digit(s[2]));
			s += 2;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
	out = part;
	for (const char *s = part; *s; s++) {
		bool escape = *s == '~' && (s[1] == '0' || s[1] == '1');
		*out++ = escape ? (s[1] == '0' ? '~' : '/') : *s;
		s += escape;
	}
	*out = '\0';
}

json_t *schema_find(struct converter *c, json_t *ref)
{
	const char *pointer = json_string_value(ref);
	if (!pointer || pointer[0] != '#' || (pointer[1] && pointer[1] != '/')) {
		schema_refuse(c, "\"$ref\" is \"%.200s\", expected #/... within the schema",
			pointer ? pointer : "?");
		return NULL;
	}
	char *copy = strdup(pointer + 1);
	if (!copy) {
		schema_no_memory(c);
		return NULL;
	}
	json_t *at = c->document;
	for (char *part = copy, *next; at && *part; part = next) {
		size_t n = strcspn(part + 1, "/");
		next = part + 1 + n;
		char held = *next;
		*next = '\0';
		decode_part(part + 1);
		char *end;
		unsigned long index = strtoul(part + 1, &end, 10);
		at = json_is_array(at) ? (*end || !part[1] ? NULL : json_array_get(at, index))
				       : json_object_get(at, part + 1);
		*next = held;
	}
	free(copy);
	if (!at)
		schema_refuse(c, "\"$ref\": there is nothing at %.200s", pointer);
	return at;
}

/* Sets a key to a value of which it takes the reference. */
static void set_new(struct converter *c, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		schema_no_memory(c);
}

static json_t *both(json_t *a, json_t *b)
{
	return json_equal(a, b) ? json_incref(a) : json_pack("{s:[O,O]}", "allOf", a, b);
}

static json_t *merge_properties(struct converter *c, json_t *a, json_t *b)
{
	json_t *all = json_copy(a), *value;
	const char *key;
	json_object_foreach (b, key, value) {
		json_t *mine = json_object_get(all, key);
		set_new(c, all, key, mine ? both(mine, value) : json_incref(value));
	}
	return all;
}

static bool array_has(json_t *array, json_t *value)
{
	size_t i;
	json_t *one;
	json_array_foreach (array, i, one)
		if (json_equal(one, value))
			return true;
	return false;
}

/* The elements of both (`in_both`) or of any. */
static json_t *merge_arrays(json_t *a, json_t *b, bool in_both)
{
	json_t *all = json_array(), *one;
	size_t i;
	json_array_foreach (a, i, one)
		if (!in_both || array_has(b, one))
			json_array_append(all, one);
	json_array_foreach (b, i, one)
		if (!in_both && !array_has(all, one))
			json_array_append(all, one);
	return all;
}

static json_t *merge_types(struct converter *c, json_t *a, json_t *b)
{
	unsigned x = schema_types_listed(c, a), y = schema_types_listed(c, b);
	x |= x & TYPE_NUMBER ? TYPE_INTEGER : 0;
	y |= y & TYPE_NUMBER ? TYPE_INTEGER : 0;
	json_t *all = json_array();
	for (size_t i = 0; i < N_TYPES; i++)
		if (x & y & schema_types[i].type)
			json_array_append_new(all, json_string(schema_types[i].name));
	if (!json_array_size(all))
		schema_refuse(c, "\"allOf\": no type fits all schemas");
	return all;
}

/* What additionalProperties of one schema says of the properties of the other would have to be merged name by
 * name. */
static void refuse_foreign_properties(struct converter *c, json_t *a, json_t *b)
{
	json_t *rest = json_object_get(a, "additionalProperties");
	if (!rest || json_is_true(rest))
		return;
	const char *key;
	json_t *value;
	json_object_foreach (json_object_get(b, "properties"), key, value)
		if (!json_object_get(json_object_get(a, "properties"), key))
			schema_refuse(c,
				"\"allOf\": \"additionalProperties\" of one schema forbids or "
				"limits "
				"the property \"%.100s\" of another",
				key);
}

void schema_merge(struct converter *c, json_t *a, json_t *b)
{
	static const char *const larger[] = {
		"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
	static const char *const smaller[] = {
		"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
	const char *key;
	json_t *theirs;
	refuse_foreign_properties(c, a, b);
	refuse_foreign_properties(c, b, a);
	if ((json_object_get(a, "prefixItems") || json_object_get(b, "prefixItems")) &&
		(json_object_get(a, "items") || json_object_get(b, "items")) &&
		schema_says_more(a, TYPE_ARRAY, "") && schema_says_more(b, TYPE_ARRAY, ""))
		schema_refuse(c,
			"\"allOf\": \"prefixItems\" and \"items\" of several schemas are not "
			"merged");
	json_object_foreach (b, key, theirs) {
		json_t *mine = json_object_get(a, key);
		if (c->status)
			return;
		if (!mine) {
			set_new(c, a, key, json_incref(theirs));
			continue;
		}
		if (json_equal(mine, theirs) || !schema_keyword(key))
			continue;
		bool max = false, min = false;
		for (size_t i = 0; i < ARRAY_COUNT(larger); i++) {
			max |= !strcmp(key, larger[i]);
			min |= !strcmp(key, smaller[i]);
		}
		if ((max || min) && json_is_number(mine) && json_is_number(theirs)) {
			if ((json_number_value(theirs) > json_number_value(mine)) == max)
				set_new(c, a, key, json_incref(theirs));
		} else if (!strcmp(key, "type")) {
			set_new(c, a, key, merge_types(c, a, b));
		} else if (!strcmp(key, "properties") && json_is_object(mine) &&
			json_is_object(theirs)) {
			set_new(c, a, key, merge_properties(c, mine, theirs));
		} else if (!strcmp(key, "required") || !strcmp(key, "enum")) {
			set_new(c, a, key, merge_arrays(mine, theirs, key[0] == 'e'));
		} else if (!strcmp(key, "additionalProperties") ||
			(!strcmp(key, "items") && !json_is_array(mine) && !json_is_array(theirs))) {
			bool none = json_is_false(mine) || json_is_false(theirs);
			set_new(c, a, key, none ? json_false() : both(mine, theirs));
		} else {
			schema_refuse(
				c, "\"allOf\": the keyword \"%s\" stands in several schemas", key);
		}
	}
}

json_t *schema_flatten(struct converter *c, json_t *schema, unsigned depth)
{
	if (depth > MAX_DEPTH || ++c->n_merged > MAX_MERGED)
		schema_refuse(c, "more schemas are merged than %d: it refers to itself",
			depth > MAX_DEPTH ? MAX_DEPTH : MAX_MERGED);
	if (json_is_true(schema))
		return json_object();
	if (!json_is_object(schema))
		schema_refuse(c, json_is_false(schema) ? "false allows nothing" : "is no schema");
	if (c->status)
		return NULL;
	json_t *flat = json_copy(schema), *one;
	size_t i;
	if (!flat) {
		schema_no_memory(c);
		return NULL;
	}
	json_object_del(flat, "$ref");
	json_object_del(flat, "allOf");
	json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf");
	json_t *target = ref ? schema_find(c, ref) : NULL;
	json_t *part = target ? schema_flatten(c, target, depth + 1) : NULL;
	if (part)
		schema_merge(c, flat, part);
	json_decref(part);
	if (all && !json_is_array(all))
		schema_refuse(c, "\"allOf\" is no array");
	json_array_foreach (all, i, one) {
		part = c->status ? NULL : schema_flatten(c, one, depth + 1);
		if (part)
			schema_merge(c, flat, part);
		json_decref(part);
	}
	if (c->status) {
		json_decref(flat);
		return NULL;
	}
	return flat;
}

/* ---- what two schemas have in common --------------------------------------------------------- */

static json_t *values_of(json_t *schema)
{
	json_t *only = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
	return only ? json_pack("[O]", only) : json_incref(values);
}

static bool numbers_equal(json_t *a, json_t *b)
{
	return json_is_number(a) && json_is_number(b) &&
		json_number_value(a) == json_number_value(b);
}

static bool values_apart(json_t *a, json_t *b)
{
	size_t i, j;
	json_t *x, *y;
	json_array_foreach (a, i, x)
		json_array_foreach (b, j, y)
			if (json_equal(x, y) || numbers_equal(x, y) ||
				(json_typeof(x) == json_typeof(y) &&
					(json_is_object(x) || json_is_array(x))))
				return false;
	return true;
}

/* The types that a schema allows, with those of the values it lists. */
static unsigned types_allowed(struct converter *c, json_t *schema, json_t *values)
{
	unsigned types = schema_types_listed(c, schema), of_values = 0;
	types |= types & TYPE_NUMBER ? TYPE_INTEGER : 0;
	size_t i;
	json_t *value;
	json_array_foreach (values, i, value)
		of_values |= schema_type_of(value);
	return values ? types & of_values : types;
}

static bool lists(json_t *names, const char *name)
{
	size_t i;
	json_t *one;
	json_array_foreach (names, i, one)
		if (json_is_string(one) && !strcmp(json_string_value(one), name))
			return true;
	return false;
}

/* True when a property that both objects must have, or one must and the other must not, tells them apart. */
static bool objects_apart(struct converter *c, json_t *a, json_t *b)
{
	json_t *required = json_object_get(a, "required"), *one;
	json_t *mine = json_object_get(a, "properties"), *theirs = json_object_get(b, "properties");
	size_t i;
	json_array_foreach (required, i, one) {
		const char *name = json_is_string(one) ? json_string_value(one) : "";
		json_t *x = json_object_get(mine, name), *y = json_object_get(theirs, name);
		if (!y && json_is_false(json_object_get(b, "additionalProperties")))
			return true;
		if (!x || !y || !lists(json_object_get(b, "required"), name))
			continue;
		json_t *flat_x = schema_flatten(c, x, 0), *flat_y = schema_flatten(c, y, 0);
		bool apart = flat_x && flat_y && schema_are_apart(c, flat_x, flat_y);
		json_decref(flat_x);
		json_decref(flat_y);
		if (apart)
			return true;
	}
	return false;
}

bool schema_are_apart(struct converter *c, json_t *a, json_t *b)
{
	if (++c->depth > MAX_DEPTH || c->status) {
		c->depth--;
		return false;
	}
	json_t *x = values_of(a), *y = values_of(b);
	unsigned shared = types_allowed(c, a, x) & types_allowed(c, b, y);
	bool apart = !shared || (x && y && values_apart(x, y));
	if (!apart && !(shared & ~(unsigned)TYPE_OBJECT))
		apart = objects_apart(c, a, b) || objects_apart(c, b, a);
	json_decref(x);
	json_decref(y);
	c->depth--;
	return apart;
}
