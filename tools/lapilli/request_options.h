/* What the options say of one generation, as the library takes it. */
#ifndef LAPILLI_TOOL_REQUEST_OPTIONS_H
#define LAPILLI_TOOL_REQUEST_OPTIONS_H

#include "base.h"
#include "sampling.h"

struct request_options {
	struct lap_generate_options o; /* points into what follows, and into the arguments */
	struct sampling sampling;
	struct text form; /* a grammar or schema from a file */
	char **stops;     /* with -e: the texts with their escapes read; else NULL */
};

/* LAP_USAGE as sampling_from_options, and for options that contradict each other; LAP_IO for a
 * file of a grammar. Release after use,
 * failed or not. */
enum lap_status request_options_set(
	const struct options *o, struct request_options *r, struct lap_error *err);
void request_options_release(struct request_options *r);

#endif
