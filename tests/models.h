/* Models, sessions and collected tokens, for the suites that run whole models. */
#ifndef LAPILLI_TESTS_MODELS_H
#define LAPILLI_TESTS_MODELS_H

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "support.h"

static struct lap_model *open_model(const char *path, const char *device)
{
	struct lap_model *m;
	struct lap_error err = {0};
	struct lap_model_options options = {.device = device, .no_pipeline_cache = true};
	cr_assert_eq(lap_model_open(path, &options, &m, &err), LAP_OK, "%s: %s", path, err.text);
	return m;
}

static struct lap_session *open_session(
	struct lap_model *m, const struct lap_session_options *options)
{
	struct lap_session *s;
	struct lap_error err = {0};
	cr_assert_eq(lap_session_create(m, options, &s, &err), LAP_OK, "%s", err.text);
	return s;
}

struct collected {
	int32_t ids[1024];
	size_t n;
	size_t n_bytes_last; /* of the text that came with the last token */
	float log_prob;      /* of the last token */
	char text[8192];     /* all of it */
	size_t n_text;
};

static inline bool collect(void *user, const struct lap_token *token)
{
	struct collected *c = user;
	c->n_bytes_last = token->n_bytes;
	c->log_prob = token->log_prob;
	if (token->id >= 0 && c->n < ARRAY_COUNT(c->ids))
		c->ids[c->n++] = token->id;
	if (c->n_text + token->n_bytes < sizeof(c->text)) {
		memcpy(c->text + c->n_text, token->text, token->n_bytes);
		c->n_text += token->n_bytes;
		c->text[c->n_text] = '\0';
	}
	return true;
}

#endif
