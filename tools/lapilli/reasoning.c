/* Thoughts in an answer: see reasoning.h. */
#include "reasoning.h"

#include <string.h>

#include "base.h"

/* Which model writes them; a mark's beginning is no mark. */
static const struct mark {
	const char *text;
	enum { OPENS, CLOSES, STAYS } effect;
} marks[] = {
	{"<think>", OPENS}, /* DeepSeek R1, Qwen 3, SmolLM 3, ... */
	{"</think>", CLOSES},
	{"[THINK]", OPENS}, /* Magistral */
	{"[/THINK]", CLOSES},
	{"<|channel>thought", OPENS}, /* Gemma 4 */
	{"<channel|>", CLOSES},
	{"<|channel|>analysis<|message|>", OPENS}, /* gpt-oss */
	{"<|channel|>final<|message|>", CLOSES},
	{"<|end|><|start|>assistant", STAYS},
};

#define LONGEST_MARK 30 /* bytes */

/* The mark that the held bytes are, or NULL; *begins: they are the beginning of one. */
static const struct mark *match(const struct reasoning *r, bool *begins)
{
	const struct mark *found = NULL;
	*begins = false;
	for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
		const size_t n = strlen(marks[i].text);
		if (r->n_held <= n && memcmp(r->held, marks[i].text, r->n_held) == 0) {
			*begins |= r->n_held < n;
			found = r->n_held == n ? &marks[i] : found;
		}
	}
	return found;
}

static bool give(struct reasoning *r, size_t n, part_fn *take, void *user)
{
	const bool going_on =
		n == 0 || take(user, r->thinking ? PART_THOUGHT : PART_ANSWER, r->held, n);
	r->n_held -= n;
	memmove(r->held, r->held + n, r->n_held);
	return going_on;
}

static void apply(struct reasoning *r, const struct mark *mark)
{
	if (mark->effect != STAYS)
		r->thinking = mark->effect == OPENS;
}

bool reasoning_take(
	struct reasoning *r, const char *text, size_t n_bytes, part_fn *take, void *user)
{
	_Static_assert(sizeof r->held > LONGEST_MARK, "a mark is held whole");
	bool going_on = true;
	for (size_t i = 0; i < n_bytes && going_on;) {
		size_t plain = 0; /* bytes that begin no mark go on at once */
		while (r->n_held == 0 && i + plain < n_bytes && !strchr("<[", text[i + plain]))
			plain++;
		if (plain) {
			going_on = take(
				user, r->thinking ? PART_THOUGHT : PART_ANSWER, text + i, plain);
			i += plain;
			continue;
		}
		r->held[r->n_held++] = text[i++];
		bool begins;
		const struct mark *mark;
		while (!(mark = match(r, &begins)) && !begins && going_on)
			going_on = give(r, 1, take, user);
		if (mark) {
			apply(r, mark);
			going_on = take(user, PART_MARK, r->held, r->n_held);
			r->n_held = 0;
		}
	}
	return going_on;
}

bool reasoning_end(struct reasoning *r, part_fn *take, void *user)
{
	return give(r, r->n_held, take, user);
}

void reasoning_begin(struct reasoning *r, const char *prompt, size_t n_bytes)
{
	*r = (struct reasoning){.thinking = false};
	while (n_bytes && strchr(" \t\r\n", prompt[n_bytes - 1]))
		n_bytes--;
	for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
		const size_t n = strlen(marks[i].text);
		if (marks[i].effect == OPENS && n_bytes >= n &&
			memcmp(prompt + n_bytes - n, marks[i].text, n) == 0)
			r->thinking = true;
	}
}

bool reasoning_marks(const char *text, size_t n_bytes)
{
	for (size_t i = 0; i < ARRAY_COUNT(marks); i++)
		for (const char *at = marks[i].text; n_bytes && *at; at++)
			if (strncmp(at, text, n_bytes) == 0)
				return true;
	return false;
}
