/* Many prompts of one file: `lapilli generate --prompts-file`. */
#ifndef LAPILLI_TOOL_BATCH_H
#define LAPILLI_TOOL_BATCH_H

#include "options.h"

/* Generates for every prompt and prints what each gave, in the file's order. A request that fails says
 * so in its place (and on standard error) and the others go on; returned is the status of the first
 * that failed, reported already when err->text is empty. */
enum lap_status batch_generate(const struct options *o, struct lap_error *err);

#endif
