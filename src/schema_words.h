/* The words of JSON schema, keywords and types, and how a schema is refused: at its place, the first failure only.
 *
 * Knows what a keyword speaks of, not what it says. */
#ifndef LAPILLI_SCHEMA_WORDS_H
#define LAPILLI_SCHEMA_WORDS_H

#include <jansson.h>

#include "base.h"

#define MAX_DEPTH 64    /* schemas in one another; the converter calls itself for each */
#define MAX_COUNT 65536 /* of characters or items; what may be longer is not written longer */

enum type {
	TYPE_NULL = 1,
	TYPE_BOOLEAN = 2,
	TYPE_INTEGER = 4,
	TYPE_NUMBER = 8,
	TYPE_STRING = 16,
	TYPE_ARRAY = 32,
	TYPE_OBJECT = 64,
	TYPE_ANY = 127 - TYPE_INTEGER, /* what NUMBER contains is not listed again */
};

#define N_TYPES 7
extern const struct schema_type {
	const char *name;
	unsigned type;
} schema_types[N_TYPES];

/* Says something of values.  `types`: those it speaks of; all others are allowed by it whatever it says. */
struct keyword {
	const char *name;
	unsigned types;
	bool known;
};

struct reference {
	json_t *target; /* borrowed from the document */
	char *path;
};

struct converter {
	json_t *document;
	struct text rules; /* finished rules */
	struct text path;  /* where in the schema we are */
	struct reference *refs;
	unsigned n_refs, n_rules, n_merged, depth;
	uint32_t used; /* builtins */
	struct lap_error *err;
	enum lap_status status; /* the first failure; everything returns then */
};

/* Ends the conversion, in the words of printf. */
void schema_refuse(struct converter *c, const char *format, ...) PRINTF_LIKE(2, 3);
void schema_no_memory(struct converter *c);

/* NULL: an annotation, or a word that nobody defined. */
const struct keyword *schema_keyword(const char *name);

/* The first keyword other than `but` and `type` that speaks of one of the types; NULL: none. */
const char *schema_says_more(json_t *schema, unsigned types, const char *but);

/* Refuses keywords that would change what is allowed of these types, and are not supported. */
void schema_refuse_unknown(struct converter *c, json_t *schema, unsigned types);

/* The types that "type" allows; all without one. */
unsigned schema_types_listed(struct converter *c, json_t *schema);

/* The same, and without a "type" those that the keywords speak of: {"properties": ...} means an object. */
unsigned schema_types_meant(struct converter *c, json_t *schema);

unsigned schema_type_of(const json_t *value);
bool schema_has_type(unsigned types, const json_t *value);

/* A count that a keyword gives; `otherwise` without it.  More than MAX_COUNT is MAX_COUNT where it is a most. */
uint32_t schema_count(struct converter *c, json_t *schema, const char *keyword, uint32_t otherwise);
void schema_refuse_range(struct converter *c, const char *what, uint32_t low, uint32_t high);

#endif
