/* What a person or a pipe says, message by message.
 *
 * A message is a line. One that ends in a backslash goes on in the next line, without it; one that begins with
 * """ goes on until """ ends a line; what was pasted at once stays together. On a terminal lines can be edited
 * and looked up (libedit, where the build has it), and are kept in a file of the user's state folder. */
#ifndef LAPILLI_TOOL_LINES_H
#define LAPILLI_TOOL_LINES_H

#include "base.h"

struct editing;

struct lines {
	bool prompts;            /* standard input is a terminal */
	struct editing *editing; /* NULL: lines as they come */
	char buffer[4096];       /* read, and not yet taken */
	size_t at, n;
};

enum line_end {
	LINE_READY,
	LINE_OVER,    /* the end of the input, or ^D on an empty line */
	LINE_STOPPED, /* ^C: what was typed is forgotten; or terminated() */
	LINE_FAILED,  /* out of memory */
};

/* `editable`: standard output is the same terminal. What goes wrong with the file of old lines is said,
 * and no more. */
void lines_open(struct lines *l, bool editable);
void lines_close(struct lines *l);

/* One line without its end, behind what *line holds. */
enum line_end lines_next(struct lines *l, const char *prompt, struct text *line);

/* One message in *message, which is emptied before. */
enum line_end lines_message(struct lines *l, struct text *message);

#endif
