/* Stop strings: see stops.h. */
#include "stops.h"

#include <string.h>

/* Moves the first n bytes of what is held to *out, but for those that are not shown. */
static bool release(struct stops *s, size_t n, struct text *out)
{
	for (size_t i = 0; i < n; i++)
		if (s->is_shown.data[i] && !text_append(out, s->held.data + i, 1))
			return false;
	if (n == 0)
		return true;
	s->held.n -= n;
	s->is_shown.n -= n;
	memmove(s->held.data, s->held.data + n, s->held.n + 1);
	memmove(s->is_shown.data, s->is_shown.data + n, s->is_shown.n + 1);
	return true;
}

/* How a stop stands to the held text from byte `at` on. */
enum fit { FIT_NOT, FIT_BEGINS, FIT_WHOLE };

static enum fit fit_of(const struct stops *s, const char *stop, size_t at)
{
	size_t n = strlen(stop), n_there = s->held.n - at;
	if (memcmp(s->held.data + at, stop, n < n_there ? n : n_there) != 0)
		return FIT_NOT;
	return n <= n_there ? FIT_WHOLE : FIT_BEGINS;
}

static enum fit best_fit(const struct stops *s, size_t at)
{
	enum fit best = FIT_NOT;
	for (size_t i = 0; i < s->n_strings; i++) {
		enum fit fit = fit_of(s, s->strings[i], at);
		best = fit > best ? fit : best;
	}
	return best;
}

/* One byte more, so that what is found does not depend on how a text is cut. */
static bool add_byte(struct stops *s, char byte, char shown, struct text *out, bool *found)
{
	if (!text_append(&s->held, &byte, 1) || !text_append(&s->is_shown, &shown, 1))
		return false;
	size_t at = 0;
	enum fit fit = FIT_NOT;
	while (at < s->held.n && (fit = best_fit(s, at)) == FIT_NOT)
		at++;
	/* `at` may begin a stop; a later start may end one first. */
	for (size_t i = at; i < s->held.n && !*found; i++)
		if (best_fit(s, i) == FIT_WHOLE) {
			*found = true;
			at = i;
		}
	bool ok = release(s, at, out);
	if (*found)
		s->held.n = s->is_shown.n = 0;
	return ok;
}

bool stops_add(struct stops *s, const char *text, size_t n_bytes, bool shown, struct text *out,
	bool *found)
{
	*found = false;
	if (s->n_strings == 0)
		return !shown || text_append(out, text, n_bytes);
	for (size_t i = 0; i < n_bytes && !*found; i++)
		if (!add_byte(s, text[i], shown, out, found))
			return false;
	return true;
}

bool stops_finish(struct stops *s, struct text *out)
{
	return release(s, s->held.n, out);
}

void stops_free(struct stops *s)
{
	text_free(&s->held);
	text_free(&s->is_shown);
}
