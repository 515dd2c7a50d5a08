/* What several schemas say together, as one schema, and whether two can be told apart.
 *
 * Schemas in, schemas out: knows nothing of grammars. */
#ifndef LAPILLI_SCHEMA_MERGE_H
#define LAPILLI_SCHEMA_MERGE_H

#include "schema_words.h"

/* What "#/a/b" refers to, borrowed; NULL after a refusal. */
json_t *schema_find(struct converter *c, json_t *ref);

/* A schema without $ref and allOf that says the same, to be released; NULL after a refusal.  `depth` 0. */
json_t *schema_flatten(struct converter *c, json_t *schema, unsigned depth);

/* Makes the flat schema a say what b says, too. */
void schema_merge(struct converter *c, json_t *a, json_t *b);

/* True when the values that two flat schemas list, or their types, have nothing in common. */
bool schema_are_apart(struct converter *c, json_t *a, json_t *b);

#endif
