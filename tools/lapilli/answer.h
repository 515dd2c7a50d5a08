/* What one generation gave: its text as it comes, its tokens and their log-probabilities, and what is said
 * of it behind: a JSON object, or statistics on standard error.
 *
 * Knows neither options nor where the prompt came from. */
#ifndef LAPILLI_TOOL_ANSWER_H
#define LAPILLI_TOOL_ANSWER_H

#include <jansson.h>

#include "base.h"
#include "lapilli.h"
#include "progress.h"

struct answer {
	/* set by the caller */
	const struct lap_model *model;
	bool streamed; /* text goes to standard output as it comes, and nothing is kept */
	bool lines;    /* each token goes there as an object too */
	bool logprobs; /* keep them; they come with json only */

	const char *counted; /* with `lines` or json: what `number` counts, "line"; NULL: nothing */
	size_t number;
	const struct text *prompt; /* written before the first text; NULL: none */
	struct progress progress;  /* of the prompt, from progress_start */

	char last; /* byte written to standard output; 0 before the first */
	bool out_of_memory;
	struct text text;
	int32_t *ids;
	size_t n_ids, capacity;
	json_t *probabilities; /* one object for each token */
};

/* A lap_token_fn whose `user` is a struct answer.  False after ^C, when nobody reads any more, or when
 * memory is out. */
bool answer_take(void *user, const struct lap_token *token);
/* What lap_generate_options.on_prompt is: a bar, `user` as above. */
bool answer_prompt(void *user, size_t n_done, size_t n);

/* Before the first text, and where none came: takes the bar away and writes the prompt. */
bool answer_begin(struct answer *a);

void answer_release(struct answer *a);

/* All that is known of it, as one object; NULL: out of memory. */
json_t *answer_json(const struct answer *a, const int32_t *prompt, size_t n_prompt,
	const struct lap_generation *g);

/* Three lines on standard error; with `verbose` more. */
void answer_statistics(
	const struct lap_model_info *m, const struct lap_generation *g, bool verbose);

/* A line about speculation, if there was any. */
void answer_drafts(const struct lap_generation *g);

/* "stop", "length", "cancelled", "time" */
const char *finish_name(enum lap_finish finish);

/* As people call it: the name in the file, or the file's. */
const char *model_name(const struct lap_model_info *m);

/* Device and notices, on standard error, before anything is generated. */
void answer_banner(const struct lap_model_info *m);

#endif
