/* How an answer looks: as it comes, thoughts apart from it, colour where that is wanted.
 *
 * Where there is colour, thoughts are dim and the marks around them are left out; where there is none, the
 * text is what the model wrote. Keeps both for the conversation. */
#ifndef LAPILLI_TOOL_CHAT_VIEW_H
#define LAPILLI_TOOL_CHAT_VIEW_H

#include "base.h"
#include "progress.h"
#include "reasoning.h"

enum color { COLOR_AUTO, COLOR_ON, COLOR_OFF }; /* the words of --color */

/* Whether standard output gets colours: AUTO asks for a terminal that is not dumb, and no NO_COLOR. */
bool color_wanted(enum color color);

struct chat_view {
	/* set by the caller */
	const struct lap_model *model;
	bool colored, reasoning; /* thoughts are shown */

	struct text answer, thoughts; /* without marks and line ends around them */
	struct reasoning parts;
	char last;   /* byte written; 0 before the first */
	bool marked; /* the answer has had thoughts */
	bool dim, out_of_memory;
	struct progress progress; /* of the prompt */
};

/* Before an answer to a prompt, the text that the template made. */
void chat_view_begin(struct chat_view *v, const char *prompt, size_t n_bytes);

/* What lap_generate_options.on_prompt is: a bar, `user` as below. */
bool chat_view_prompt(void *user, size_t n_done, size_t n);

/* A lap_token_fn whose `user` is a struct chat_view. */
bool chat_view_take(void *user, const struct lap_token *token);

/* Behind the last token: what was held back, colours off, and a line end, behind an answer without a word too.
 * False: memory is out. */
bool chat_view_end(struct chat_view *v, bool answered);

void chat_view_release(struct chat_view *v);

#endif
