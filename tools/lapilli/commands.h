/* The commands, one file each, by the rows of options.def. Each prints its own errors and returns the
 * exit status. */
#ifndef LAPILLI_COMMANDS_H
#define LAPILLI_COMMANDS_H

#include "options.h"

#define COMMAND(id, letter, arguments, help) int command_##id(const struct options *o);
#include "options.def"

#endif
