/* Options of llama.cpp's programs that are none of ours.
 *
 * Those that say how it should compute mean nothing here: they are taken, with a warning. Those that would change
 * what comes out are refused, with what to use instead. Knows names alone. */
#ifndef LAPILLI_TOOL_FOREIGN_H
#define LAPILLI_TOOL_FOREIGN_H

#include <stdbool.h>

struct foreign {
	const char *names; /* without dashes */
	enum { FOREIGN_IGNORED, FOREIGN_REFUSED } effect;
	enum { TAKES_NONE, TAKES_ONE, TAKES_WORD } values; /* WORD: on, off or auto, or none */
	const char *why;
};

/* By a name without dashes, with '-' for '_'; NULL: nobody's. */
const struct foreign *foreign_find(const char *bare);

/* Whether the next argument (may be NULL) is this option's value. */
bool foreign_takes(const struct foreign *option, const char *argument);

#endif
