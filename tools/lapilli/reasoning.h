/* Which part of an answer is the model thinking aloud: the marks that models put around it, found in a text
 * as it comes, across pieces.  Knows neither tokens nor terminals. */
#ifndef LAPILLI_TOOL_REASONING_H
#define LAPILLI_TOOL_REASONING_H

#include <stdbool.h>
#include <stddef.h>

enum part { PART_ANSWER, PART_THOUGHT, PART_MARK };

/* Receives a piece of one part; false stops. */
typedef bool part_fn(void *user, enum part part, const char *text, size_t n_bytes);

/* Zeroed: before an answer. */
struct reasoning {
	bool thinking;
	char held[64]; /* may be the beginning of a mark */
	size_t n_held;
};

/* Before an answer to this prompt, whose end may have opened a block of thoughts for the model. */
void reasoning_begin(struct reasoning *r, const char *prompt, size_t n_bytes);

/* Hands on all that is known not to be the beginning of a mark. */
bool reasoning_take(
	struct reasoning *r, const char *text, size_t n_bytes, part_fn *take, void *user);

/* The rest, behind which nothing comes. */
bool reasoning_end(struct reasoning *r, part_fn *take, void *user);

/* Whether this text (a control token's name) is one that marks are made of. */
bool reasoning_marks(const char *text, size_t n_bytes);

#endif
