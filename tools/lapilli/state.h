/* Files that the command keeps for itself, in $XDG_STATE_HOME/lapilli or ~/.local/state/lapilli.
 *
 * Knows where they are, not what is in them. */
#ifndef LAPILLI_TOOL_STATE_H
#define LAPILLI_TOOL_STATE_H

#include "base.h"

/* The path of a file there, whose folders are made where they are missing.  False when the environment names no
 * such place; release *path with text_free all the same. */
bool state_path(const char *name, struct text *path);

#endif
