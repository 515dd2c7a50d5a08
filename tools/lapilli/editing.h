/* Lines that can be edited, and those of earlier days, by libedit: in a build without it there is no editing.
 *
 * Keys are read here, not by libedit, so that signals come through and UTF-8 is UTF-8 in every locale. What is
 * pasted (bracketed paste) stays in the line with its line ends until Enter. */
#ifndef LAPILLI_TOOL_EDITING_H
#define LAPILLI_TOOL_EDITING_H

#include "lines.h"

struct editing;

/* NULL: not in this build, not on this terminal (TERM unset or dumb), or out of memory. */
struct editing *editing_open(void);
void editing_close(struct editing *e); /* NULL is allowed */

/* As lines_next. */
enum line_end editing_line(struct editing *e, const char *prompt, struct text *line);

/* Remembers a message, in $XDG_STATE_HOME/lapilli/history (~/.local/state/lapilli/history), which its owner
 * alone can read. Empty ones are passed over. */
void editing_keep(struct editing *e, const char *message);

#endif
