/* A JSON schema as a grammar: every text of the grammar is JSON that the schema allows.
 *
 * The other way round it need not be: where the schema leaves room, the grammar takes the usual form.  Objects
 * have their properties in the order of the schema, and others only where additionalProperties asks for
 * them or nothing is said of properties; strings spell a character that needs no escape as itself or as
 * an escape; numbers have at most 16 digits before the point; between the parts of a value there is nothing,
 * one space, or one line end and up to 20 spaces or tabs.
 *
 * docs/generation.md lists the keywords.  One that would change what is allowed and is not in that list is
 * refused by its name. */
#ifndef LAPILLI_SCHEMA_H
#define LAPILLI_SCHEMA_H

#include "grammar.h"

/* Appends the grammar's GBNF to *gbnf.  LAP_USAGE with the place in the schema (#/properties/a): no JSON, no
 * schema, a keyword that is not supported, or nothing is allowed.  *gbnf is as it was then. */
enum lap_status schema_to_gbnf(
	const char *json, size_t n, struct text *gbnf, struct lap_error *err);

/* The grammar itself.  LAP_USAGE also where a schema is only met by infinite texts or refers to itself without
 * anything in between. */
enum lap_status schema_to_grammar(const char *json, size_t n, const struct grammar_limits *limits,
	struct grammar **grammar, struct lap_error *err);

#endif
