/* Keywords and types of JSON schema: see schema_words.h. */
#include "schema_words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct schema_type schema_types[N_TYPES] = {
	{"null", TYPE_NULL},
	{"boolean", TYPE_BOOLEAN},
	{"integer", TYPE_INTEGER},
	{"number", TYPE_NUMBER},
	{"string", TYPE_STRING},
	{"array", TYPE_ARRAY},
	{"object", TYPE_OBJECT},
};

/* Not in the list: annotations and words that nobody defined. */
static const struct keyword keywords[] = {
	{"$ref", TYPE_ANY, true},
	{"allOf", TYPE_ANY, true},
	{"anyOf", TYPE_ANY, true},
	{"oneOf", TYPE_ANY, true},
	{"enum", TYPE_ANY, true},
	{"const", TYPE_ANY, true},
	{"type", TYPE_ANY, true},
	{"not", TYPE_ANY, false},
	{"if", TYPE_ANY, false},
	{"then", TYPE_ANY, false},
	{"else", TYPE_ANY, false},
	{"extends", TYPE_ANY, false},
	{"disallow", TYPE_ANY, false},
	{"$dynamicRef", TYPE_ANY, false},
	{"$recursiveRef", TYPE_ANY, false},
	{"minimum", TYPE_NUMBER, true},
	{"maximum", TYPE_NUMBER, true},
	{"exclusiveMinimum", TYPE_NUMBER, true},
	{"exclusiveMaximum", TYPE_NUMBER, true},
	{"multipleOf", TYPE_NUMBER, true},
	{"divisibleBy", TYPE_NUMBER, false},
	{"minLength", TYPE_STRING, true},
	{"maxLength", TYPE_STRING, true},
	{"pattern", TYPE_STRING, true},
	{"format", TYPE_STRING, true},
	{"items", TYPE_ARRAY, true},
	{"prefixItems", TYPE_ARRAY, true},
	{"additionalItems", TYPE_ARRAY, true},
	{"minItems", TYPE_ARRAY, true},
	{"maxItems", TYPE_ARRAY, true},
	{"uniqueItems", TYPE_ARRAY, true},
	{"contains", TYPE_ARRAY, false},
	{"minContains", TYPE_ARRAY, false},
	{"maxContains", TYPE_ARRAY, false},
	{"unevaluatedItems", TYPE_ARRAY, false},
	{"properties", TYPE_OBJECT, true},
	{"required", TYPE_OBJECT, true},
	{"additionalProperties", TYPE_OBJECT, true},
	{"minProperties", TYPE_OBJECT, true},
	{"maxProperties", TYPE_OBJECT, true},
	{"patternProperties", TYPE_OBJECT, false},
	{"propertyNames", TYPE_OBJECT, false},
	{"dependencies", TYPE_OBJECT, false},
	{"dependentRequired", TYPE_OBJECT, false},
	{"dependentSchemas", TYPE_OBJECT, false},
	{"unevaluatedProperties", TYPE_OBJECT, false},
};

void schema_refuse(struct converter *c, const char *format, ...)
{
	if (c->status)
		return;
	char what[512];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	for (char *s = what; *s; s++) /* names may hold anything */
		*s = (unsigned char)*s < ' ' ? '?' : *s;
	c->status = fail(c->err, LAP_USAGE, "schema, %.300s: %s", c->path.data, what);
	for (char *s = c->err ? c->err->text : what; *s; s++)
		*s = (unsigned char)*s < ' ' ? '?' : *s;
}

void schema_no_memory(struct converter *c)
{
	if (!c->status)
		c->status = fail_memory(c->err, "a schema", c->rules.n + 1);
}

const struct keyword *schema_keyword(const char *name)
{
	for (size_t i = 0; i < ARRAY_COUNT(keywords); i++)
		if (!strcmp(keywords[i].name, name))
			return &keywords[i];
	return NULL;
}

const char *schema_says_more(json_t *schema, unsigned types, const char *but)
{
	const char *key;
	json_t *value;
	if (types & TYPE_INTEGER)
		types |= TYPE_NUMBER;
	json_object_foreach (schema, key, value) {
		const struct keyword *keyword = schema_keyword(key);
		if (keyword && keyword->types & types && strcmp(key, but) != 0 &&
			strcmp(key, "type") != 0)
			return key;
	}
	return NULL;
}

void schema_refuse_unknown(struct converter *c, json_t *schema, unsigned types)
{
	const char *key;
	json_t *value;
	json_object_foreach (schema, key, value) {
		const struct keyword *keyword = schema_keyword(key);
		if (keyword && !keyword->known && keyword->types & types)
			schema_refuse(c, "the keyword \"%s\" is not supported", key);
	}
}

static unsigned type_named(const char *name)
{
	for (size_t i = 0; name && i < N_TYPES; i++)
		if (!strcmp(schema_types[i].name, name))
			return schema_types[i].type;
	return 0;
}

unsigned schema_types_listed(struct converter *c, json_t *schema)
{
	json_t *type = json_object_get(schema, "type"), *one;
	unsigned types = 0;
	size_t i;
	if (!type)
		return TYPE_ANY;
	if (!json_is_array(type))
		types = type_named(json_string_value(type));
	json_array_foreach (type, i, one) {
		unsigned named = type_named(json_string_value(one));
		if (!named)
			schema_refuse(c, "\"type\" lists what is no type");
		types |= named;
	}
	if (!types)
		schema_refuse(c,
			"\"type\" is \"%.40s\", expected null, boolean, integer, number, string, "
			"array or object",
			json_is_string(type) ? json_string_value(type) : "?");
	return types & TYPE_NUMBER ? types & ~(unsigned)TYPE_INTEGER : types;
}

unsigned schema_types_meant(struct converter *c, json_t *schema)
{
	unsigned types = schema_types_listed(c, schema), spoken = 0;
	if (json_object_get(schema, "type"))
		return types;
	const char *key;
	json_t *value;
	json_object_foreach (schema, key, value) {
		const struct keyword *keyword = schema_keyword(key);
		if (keyword && keyword->types != TYPE_ANY)
			spoken |= keyword->types;
	}
	return spoken ? spoken : types;
}

unsigned schema_type_of(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return TYPE_OBJECT;
	case JSON_ARRAY:
		return TYPE_ARRAY;
	case JSON_STRING:
		return TYPE_STRING;
	case JSON_INTEGER:
		return TYPE_INTEGER;
	case JSON_REAL:
		return floor(json_real_value(value)) == json_real_value(value) ? TYPE_INTEGER
									       : TYPE_NUMBER;
	case JSON_TRUE:
	case JSON_FALSE:
		return TYPE_BOOLEAN;
	case JSON_NULL:
		break;
	}
	return TYPE_NULL;
}

bool schema_has_type(unsigned types, const json_t *value)
{
	unsigned type = schema_type_of(value);
	return types & type || (type == TYPE_INTEGER && types & TYPE_NUMBER);
}

uint32_t schema_count(struct converter *c, json_t *schema, const char *keyword, uint32_t otherwise)
{
	json_t *value = json_object_get(schema, keyword);
	if (!value)
		return otherwise;
	double n = json_number_value(value);
	if (!json_is_number(value) || n < 0 || floor(n) != n) {
		schema_refuse(c, "\"%s\" is no count", keyword);
		return 0;
	}
	if (n > MAX_COUNT && !strncmp(keyword, "min", 3))
		schema_refuse(c, "\"%s\" is above %d", keyword, MAX_COUNT);
	return n > MAX_COUNT ? MAX_COUNT : (uint32_t)n;
}

void schema_refuse_range(struct converter *c, const char *what, uint32_t low, uint32_t high)
{
	if (low > high)
		schema_refuse(c, "expects at least %u and at most %u %s", (unsigned)low,
			(unsigned)high, what);
}
