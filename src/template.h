/* Chat templates: a list of messages as the text that a model was trained on.
 *
 * Owns the template as a model file carries it (Jinja 3.1 as Hugging Face runs it), what it is told, and
 * its limits. A template is untrusted: it sees its inputs and nothing else, and cannot run on for ever.
 * Knows no tokenizer: what comes out is text. */
#ifndef LAPILLI_TEMPLATE_H
#define LAPILLI_TEMPLATE_H

#include <time.h>

#include "base.h"

struct template; /* immutable once created; may be shared between threads */

/* Of parsing, and of each rendering. 0: the default beside it. */
struct template_limits {
	uint64_t
		n_steps; /* 50,000,000: one for each node, and for each 64 bytes that are looked at */
	uint64_t n_memory; /* 512 MiB */
	uint64_t n_output; /* 64 MiB: of the text, and of any other that is built on the way */
	uint32_t n_depth;  /* 400: blocks, calls, parentheses and lists in each other */
};

/* The template's text (n bytes). LAP_ERROR with line and column, what was found and what was expected. */
enum lap_status template_create(const char *text, size_t n_bytes,
	const struct template_limits *limits, struct template **t, struct lap_error *err);
void template_destroy(struct template *t); /* NULL is allowed */

/* What a template is told. JSON texts of n bytes; a NULL text is null. */
struct template_json {
	const char *text;
	size_t n;
};
struct template_input {
	struct template_json messages; /* a list, or an object with "messages" and "tools" */
	struct template_json tools;    /* replaces the tools beside the messages */
	struct template_json kwargs;   /* an object: more variables */
	bool add_generation_prompt;
	const char *bos, *eos; /* bos_token and eos_token; NULL: undefined */
	const struct tm *now;  /* for strftime_now; NULL: the local time */
};

/* Appends the rendering to *out. LAP_ERROR with the template's own words when it raises, with place and
 * reason when it fails, and with the limit when it exceeds one; *out is then as before. */
enum lap_status template_render(const struct template *t, const struct template_input *input,
	struct text *out, struct lap_error *err);

#endif
