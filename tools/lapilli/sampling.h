/* The sampling options of the command line, as the library takes them.
 *
 * Owns the spelling of --logit-bias and --dry-sequence-breaker. Knows no model. */
#ifndef LAPILLI_TOOL_SAMPLING_H
#define LAPILLI_TOOL_SAMPLING_H

#include "options.h"

struct sampling {
	struct lap_sampling p; /* points into what follows, and into the arguments */
	struct lap_logit_bias *bias;
	char **breakers; /* with -e: the texts with their escapes read */
	size_t n_breakers;
};

/* LAP_USAGE when a bias is not TOKEN+BIAS or TOKEN-BIAS with a number or inf (-inf alone: +inf would draw
 * nothing else); LAP_NO_MEMORY.  What the library checks is left to it.  Release after use, failed or
 * not. */
enum lap_status sampling_from_options(
	const struct options *o, struct sampling *s, struct lap_error *err);
void sampling_release(struct sampling *s);

#endif
