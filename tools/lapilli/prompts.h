/* Several prompts, each with the options that hold for it: those of --prompts-file, or of several -p or -f.
 *
 * Owns the two forms of the file: a prompt on each line, or an object of JSON on each. Generates nothing. */
#ifndef LAPILLI_TOOL_PROMPTS_H
#define LAPILLI_TOOL_PROMPTS_H

#include <jansson.h>

#include "prompt.h"
#include "request_options.h"

/* One prompt. */
struct task {
	size_t number; /* from 1: the line of the file, or which -p or -f it is */
	struct prompt prompt;
	struct options o; /* those of the command line with what the line says */
	struct request_options request;
	json_t *object; /* the line, and texts made of it: o points into them; NULL: a plain line */
};

struct tasks {
	struct task *items;
	size_t n;
	struct text file;
	struct text system;  /* of all conversations */
	struct options base; /* the options with their escapes read */
	char **stops, **breakers;
	const char *counted; /* what `number` counts: "line" or "prompt" */
};

/* Whether the options name more than one prompt. */
bool tasks_several(const struct options *o);

/* Reads the texts of several -p, or the files of several -f, byte for byte; or --prompts-file: lines that are empty or blank are passed over; the file holds objects when its first
 * other line begins with '{'. An object needs "prompt", a string or a list of token ids; its other keys
 * are options (options_set). A plain line is the prompt byte for byte, without its line end (a carriage
 * return before it is part of that), with -e with its escapes read.  Errors name file, line and key. Release after use,
 * failed or not. */
enum lap_status tasks_read(const struct options *o, struct tasks *t, struct lap_error *err);

/* Text to tokens, of all of them. */
enum lap_status tasks_encode(struct tasks *t, const struct lap_model *model, struct lap_error *err);

/* "FILE, line 3" or "prompt 2" for messages; valid until the next call. */
const char *task_place(const struct tasks *t, const struct task *task);

void tasks_release(struct tasks *t);

#endif
