/* What the command last failed with on this machine, for `lapilli report`: one line in the state folder.
 *
 * Paths, quoted texts and whatever the command line said are left out of it: it is made to be shown to others. */
#ifndef LAPILLI_LAST_ERROR_H
#define LAPILLI_LAST_ERROR_H

#include "base.h"

/* Keeps a failure of the command, in place of the one before; one of usage says all there is to say at once and is
 * not kept.  That it cannot be kept is nobody's business. */
void last_error_keep(const char *command, const struct lap_error *err, int argc, char *const *argv);

/* The line, with its newline, or "" when there is none: text_free releases *line. */
void last_error_read(struct text *line);

#endif
