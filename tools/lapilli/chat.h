/* A conversation while it goes on: what `lapilli chat` and its commands share. */
#ifndef LAPILLI_TOOL_CHAT_H
#define LAPILLI_TOOL_CHAT_H

#include "chat_view.h"
#include "conversation.h"
#include "drafting.h"
#include "lines.h"
#include "options.h"
#include "request_options.h"

struct chat {
	struct options o; /* those of the command line with what /set changed */
	json_t *texts;    /* that they point to */
	struct request_options request;
	struct lap_model *model;
	struct lap_session *session;
	struct drafting draft;
	struct text template;
	struct conversation conversation;
	struct chat_view view;
	struct lines lines;
	struct text attached;       /* by /read: goes before the next message */
	struct lap_generation last; /* answer, once there is one */
	bool answered, over;
	uint64_t n_again; /* answers that /regen asked for */
};

/* Asks the model for an answer to the last message, shows it, and puts it behind. What fails, or is stopped
 * before there is a word, takes the message away again. */
enum lap_status chat_answer(struct chat *c, struct lap_error *err);

/* Tokens of the conversation as the model sees it, with what opens an answer (release with lap_free), and the
 * text that they are (release with lap_free). */
enum lap_status chat_encode(struct chat *c, char **text, size_t *n_bytes, int32_t **ids, size_t *n,
	struct lap_error *err);

#endif
