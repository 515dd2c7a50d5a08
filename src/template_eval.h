/* Runs the tree of a template.
 *
 * Owns scopes, loops, macros and operators. Knows the names of nothing but `loop`: filters, tests and
 * functions are in template_call.h. */
#ifndef LAPILLI_TEMPLATE_EVAL_H
#define LAPILLI_TEMPLATE_EVAL_H

#include <time.h>

#include "template_parse.h"

/* Runs the statements with the variables of the dict `names` and returns what they print. `now` is what
 * strftime_now tells. Memory, steps, depth and the length of the text are limited by the pool. */
struct value template_run(
	struct pool *p, const struct node *statements, struct value names, const struct tm *now);

#endif
