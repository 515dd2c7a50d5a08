/* What a template may call by name: filters, tests, methods and functions.
 *
 * Owns those names, their parameters and what they do. Knows no syntax and no scope: macros and `loop`
 * are called by template_eval.c. */
#ifndef LAPILLI_TEMPLATE_CALL_H
#define LAPILLI_TEMPLATE_CALL_H

#include <time.h>

#include "template_value.h"

struct keyword {
	struct value name, value;
};

/* Zeroed is none. */
struct arguments {
	struct value *items;
	size_t n, capacity;
	struct keyword *keywords;
	size_t n_keywords, capacity_keywords;
};

void arguments_add(struct pool *p, struct arguments *a, struct value v);
void arguments_add_keyword(struct pool *p, struct arguments *a, struct value name, struct value v);

enum { MAX_PARAMETERS = 6 };

/* A thing to call: its parameters by name, with blanks between them; "*": it looks at the arguments
 * itself. A parameter without an argument is `missing`; those up to `n_needed` must have one. */
struct callable {
	const char *name, *parameters;
	size_t n_needed;
	struct value (*call)(struct pool *p, struct value self, const struct value *a,
		const struct arguments *all);
};

bool missing(struct value v);
/* Binds the arguments and calls; `what` names the kind of thing in errors. */
struct value callable_call(struct pool *p, const struct callable *c, const char *what,
	struct value self, const struct arguments *a);

/* `v | name(a)` and `v is name(a)`. */
struct value filter_apply(
	struct pool *p, struct value name, struct value v, const struct arguments *a);
bool test_apply(struct pool *p, struct value name, struct value v, const struct arguments *a);
bool filter_exists(struct value name);
bool test_exists(struct value name);

/* v.name: a method, else an item of a dict, else undefined. v[key]: the other way round. */
struct value value_attribute(struct pool *p, struct value v, struct value name);
struct value value_subscript(struct pool *p, struct value v, struct value key);
/* Calls a VALUE_METHOD. */
struct value method_call(struct pool *p, const struct method *m, const struct arguments *a);

/* The built-in functions, by name; `now` is what strftime_now writes. */
bool function_exists(struct value name);
struct value function_call(
	struct pool *p, struct value name, const struct arguments *a, const struct tm *now);

/* Calls a VALUE_JOINER: nothing the first time, its text from then on. */
struct value joiner_call(struct value joiner);

/* ---- texts (template_text.c) ----------------------------------------------------------------- */

enum letter_case { CASE_LOWER, CASE_UPPER, CASE_SWAP, CASE_CAPITALIZE, CASE_TITLE };
struct value text_case(struct pool *p, struct value v, enum letter_case to);
bool char_is_alpha(uint32_t code);
uint32_t char_lower(uint32_t code);
uint32_t char_upper(uint32_t code);
/* Without the characters of `set` (missing or none: blanks) at its ends. */
struct value text_strip(
	struct pool *p, struct value v, struct value set, bool at_start, bool at_end);
/* At most `most` cuts (negative: all); separator missing or none: runs of blanks. */
struct value text_split(
	struct pool *p, struct value v, struct value separator, int64_t most, bool from_end);
struct value text_replace(
	struct pool *p, struct value v, struct value from, struct value to, int64_t most);
/* Byte of the first (or last) place at which `what` stands, or v.n + 1. */
size_t text_find(struct pool *p, struct value v, struct value what, size_t from, bool last);
/* `v % arguments`, v.format(arguments). */
struct value text_percent(struct pool *p, struct value v, struct value arguments);
struct value text_format(struct pool *p, struct value v, const struct arguments *a);
/* At least `width` characters, filled behind ('<'), before ('>') or around
 * them ('^' as in a format, 'c' as in str.center). */
struct value text_pad(struct pool *p, struct value v, int64_t width, struct value fill, char align);

/* Arguments of the kind that a callable wants, with Python's words when they are another. */
int64_t need_int(struct pool *p, struct value v);
struct value need_text(struct pool *p, struct value v, const char *what);

#endif
