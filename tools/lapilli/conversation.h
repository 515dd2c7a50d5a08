/* A conversation: messages as OpenAI's API has them, what of them the model still sees, and files of them.
 *
 * Knows no model, template or terminal. */
#ifndef LAPILLI_TOOL_CONVERSATION_H
#define LAPILLI_TOOL_CONVERSATION_H

#include <jansson.h>

#include "base.h"

struct conversation {
	json_t *messages; /* {"role", "content"}, in an answer also "reasoning_content" */
	size_t n_unseen;  /* of those behind the system message: left out, to make room */
};

/* LAP_NO_MEMORY. Release with conversation_release. */
enum lap_status conversation_open(struct conversation *c, struct lap_error *err);
void conversation_release(struct conversation *c);

/* One message behind those of a list. LAP_USAGE: it is no UTF-8. */
enum lap_status message_add(
	json_t *messages, const char *role, const struct text *text, struct lap_error *err);

/* An answer, whose bytes may be any; `thoughts` may be empty. */
enum lap_status conversation_answer(struct conversation *c, const struct text *text,
	const struct text *thoughts, struct lap_error *err);

/* Makes the text the system message, in the place of the one before; an empty text: there is none. */
enum lap_status conversation_set_system(
	struct conversation *c, const struct text *text, struct lap_error *err);
const char *conversation_system(const struct conversation *c); /* NULL: none */

/* Whether the last message is a user's, which has no answer yet. */
bool conversation_waits(const struct conversation *c);

/* Takes the last answer away, or the last user's message with all behind it. False: there is none. */
bool conversation_drop_answer(struct conversation *c);
bool conversation_drop_turn(struct conversation *c);

/* All but the system message. */
void conversation_clear(struct conversation *c);

/* Leaves out the oldest turn that the model still sees. False: it is the last. */
bool conversation_forget_turn(struct conversation *c);

/* What the model sees, as JSON (release with free); NULL: out of memory. */
char *conversation_json(const struct conversation *c);

/* All messages as a JSON list in a file that its owner alone can read, and back: a list, or an object with
 * "messages", each with a role and a content that are texts. LAP_IO; LAP_USAGE: it is something else. On
 * failure the conversation stays. */
enum lap_status conversation_save(
	const struct conversation *c, const char *path, struct lap_error *err);
enum lap_status conversation_load(struct conversation *c, const char *path, struct lap_error *err);

/* The same as Markdown, to be read. */
enum lap_status conversation_export(
	const struct conversation *c, const char *path, struct lap_error *err);

#endif
