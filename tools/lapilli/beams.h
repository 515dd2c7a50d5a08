/* The likeliest texts of a prompt: `lapilli generate --beams`. */
#ifndef LAPILLI_TOOL_BEAMS_H
#define LAPILLI_TOOL_BEAMS_H

#include "prompt.h"

/* LAP_USAGE when an option says something of a draw or of an end that a search does not know. */
enum lap_status beams_check(const struct options *o, struct lap_error *err);

/* Searches and prints: the best text behind its prompt, several each under a line of its own, or one JSON
 * object, that of the best, with all of them in "beams". */
enum lap_status beams_generate(const struct options *o, struct lap_model *model, struct prompt *p,
	bool show_prompt, struct lap_error *err);

#endif
