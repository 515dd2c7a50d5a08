/* Bars on a terminal: see progress.h. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "console.h"

static const double first_after = 1,
		    again_after = 0.1; /* seconds before the first drawing, and between two */

struct progress progress_start(const char *what, const char *unit)
{
	return (struct progress){.what = what,
		.unit = unit,
		.terminal = isatty(STDERR_FILENO) == 1,
		.started = clock_seconds()};
}

const char *progress_line(const struct progress *p, double done, double total, double seconds,
	char line[PROGRESS_BYTES])
{
	enum { BAR = 30 }; /* characters */
	char bar[BAR + 1] = {0}, rate[48] = "", left[48] = "";
	double share = total > 0 ? done / total : 0;
	share = share < 0 ? 0 : share > 1 ? 1 : share;
	memset(bar, '.', BAR);
	memset(bar, '#', (size_t)(share * BAR));
	const double speed = per_second(done, seconds);
	if (p->unit && strcmp(p->unit, "B") == 0)
		snprintf(rate, sizeof rate, ", %s/s", bytes_text((uint64_t)speed));
	else if (p->unit)
		snprintf(rate, sizeof rate, ", %.1f %s/s", speed, p->unit);
	const double rest = share > 0 ? seconds / share - seconds : 0;
	if (share > 0 && rest < 1e6)
		snprintf(left, sizeof left, ", %d:%02d left", (int)(rest / 60), (int)rest % 60);
	snprintf(line, PROGRESS_BYTES, "%s [%s] %3.0f %%%s%s", p->what, bar, 100 * share, rate,
		left);
	return line;
}

/* Whether it is time to draw. */
static bool is_due(struct progress *p, double now)
{
	if (!p->terminal || now - p->started < first_after || now - p->drawn < again_after)
		return false;
	p->drawn = now;
	p->shown = true;
	return true;
}

void progress_count(struct progress *p, unsigned n)
{
	const double now = clock_seconds();
	const int seconds = (int)(now - p->started);
	if (is_due(p, now))
		fprintf(stderr, "\r%s: %u %s, %d:%02d\033[K", p->what, n, p->unit, seconds / 60,
			seconds % 60);
}

void progress_show(struct progress *p, double done, double total)
{
	char line[PROGRESS_BYTES];
	const double now = clock_seconds();
	if (is_due(p, now))
		fprintf(stderr, "\r%s\033[K",
			progress_line(p, done, total, now - p->started, line));
}

void progress_clear(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}
