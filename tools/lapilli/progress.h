/* A bar on standard error while something takes long: how far it is, how fast, how long still.
 *
 * On a terminal only, and not before a second has passed. Knows nothing of what takes long. */
#ifndef LAPILLI_PROGRESS_H
#define LAPILLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct progress {
	const char *what; /* "loading" */
	const char *
		unit; /* of `done`, behind "a second"; "B": as bytes_text; NULL: no rate is shown */
	bool terminal, shown;
	double started, drawn; /* clock_seconds */
};

struct progress progress_start(const char *what, const char *unit);

/* Draws the bar, at most ten times a second. */
void progress_show(struct progress *p, double done, double total);

/* The same for what has no known end: "tuning: 12 measured, 0:07". */
void progress_count(struct progress *p, unsigned n);

/* Clears its line, before something else is written there. The next progress_show draws it again. */
void progress_clear(struct progress *p);

/* The line that a bar is, when `seconds` have passed. Returns `line`. */
#define PROGRESS_BYTES 160
const char *progress_line(const struct progress *p, double done, double total, double seconds,
	char line[PROGRESS_BYTES]);

#endif
