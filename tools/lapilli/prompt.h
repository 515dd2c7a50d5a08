/* A prompt: text of the command line or of a file, in a conversation one message, and its tokens. */
#ifndef LAPILLI_TOOL_PROMPT_H
#define LAPILLI_TOOL_PROMPT_H

#include "base.h"
#include "options.h"

struct prompt {
	struct text text; /* as it was given; in a conversation what the template made of it */
	bool given;       /* there was a text */
	bool chat;        /* the text is a message of a conversation */
	const struct text *system; /* the message before it; NULL: none */
	int32_t *ids; /* release with lap_free; those that are there are taken as they are */
	size_t n;
};

/* Whether texts are messages, and the system message before them, which is read once. LAP_USAGE when the
 * options contradict each other. */
enum lap_status prompt_conversation(const struct options *o, bool *chat, struct text *system,
	bool *system_given, struct lap_error *err);

/* Text to tokens. LAP_USAGE when there are none and the model begins texts with no token. */
enum lap_status prompt_encode(const struct options *o, const struct lap_model *model,
	struct prompt *p, struct lap_error *err);

void prompt_release(struct prompt *p);

#endif
