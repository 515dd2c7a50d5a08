/* Strings that end a text: finds them across tokens, and holds back what may be the start of one.
 *
 * Knows no tokens.  Two texts run side by side: `shown`, which the user sees, and what is searched, which
 * also has control tokens spelled out. */
#ifndef LAPILLI_STOPS_H
#define LAPILLI_STOPS_H

#include "base.h"

struct stops {
	const char *const *strings; /* the caller's, as long as this is used; none is empty */
	size_t n_strings;
	struct text held;     /* of the searched text, what may begin a stop */
	struct text is_shown; /* a byte for each of held: 1 where it is to be shown */
};

/* Text behind what was given before; `shown` false: it is searched only.  Appends to *out what can be
 * shown now.  *found: a stop is whole, and *out has all that stands before it: the stop that is whole
 * first; of several at once, the longest.  false: out of memory. */
bool stops_add(struct stops *s, const char *text, size_t n_bytes, bool shown, struct text *out,
	bool *found);

/* The text has ended without a stop: appends what was held back. */
bool stops_finish(struct stops *s, struct text *out);

void stops_free(struct stops *s);

#endif
