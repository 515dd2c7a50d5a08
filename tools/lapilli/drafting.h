/* The guesses that a step verifies: --draft-model, --draft-ngram. Owns the model that drafts. */
#ifndef LAPILLI_TOOL_DRAFTING_H
#define LAPILLI_TOOL_DRAFTING_H

#include "options.h"

struct drafting {
	struct lap_model *model; /* NULL: none */
	struct lap_session *session;
};

/* Tokens that a session must be able to verify at once; 0: no speculation. */
uint32_t drafting_most(const struct options *o);

/* Opens the model of --draft-model, with a session for as many sequences, and as long, as those of
 * `target`, which was created with *s. Release with drafting_close, failed or not. */
enum lap_status drafting_open(const struct options *o, const struct lap_session_options *s,
	const struct lap_session *target, struct drafting *draft, struct lap_error *err);
void drafting_close(struct drafting *draft);

/* What a request is told. */
void drafting_set(const struct options *o, const struct drafting *draft,
	struct lap_generate_options *request);

#endif
