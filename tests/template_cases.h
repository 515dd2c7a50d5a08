/* Renderings by Jinja itself of real templates, from the shared folder: templates/cases.jsonl (see DATA.md
 * there).  Header only; each suite uses what it needs. */
#ifndef LAPILLI_TESTS_TEMPLATE_CASES_H
#define LAPILLI_TESTS_TEMPLATE_CASES_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "template.h"

/* 2025-03-09 14:05:07, a Sunday: the time of all vectors. */
static const struct tm case_time = {.tm_year = 125,
	.tm_mon = 2,
	.tm_mday = 9,
	.tm_hour = 14,
	.tm_min = 5,
	.tm_sec = 7,
	.tm_yday = 67};

static struct template_json json_text(const char *text)
{
	return (struct template_json){text, text ? strlen(text) : 0};
}

/* One chat and one template; pointers stay valid while the case is seen. */
struct template_case {
	const char *template, *conversation; /* names */
	const char *source;                  /* of the template */
	size_t n_source, n_expected;
	const char *expected; /* the rendering, or NULL: it raises */
	const char *error;    /* with these words */
	struct template_input input;
};

typedef void template_case_fn(void *user, const struct template_case *c);

static inline json_t *template_json_file(const char *path)
{
	json_error_t error;
	json_t *json = json_load_file(path, 0, &error);
	cr_assert(json, "%s: %s", path, error.text);
	return json;
}

/* Hands every case to `see`. */
static inline void template_cases(template_case_fn *see, void *user)
{
	json_t *conversations = template_json_file(shared_path("templates/conversations.json"));
	FILE *file = fopen(shared_path("templates/cases.jsonl"), "r");
	cr_assert(file);
	for (json_t *row; (row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL));) {
		char name[256];
		const json_t *expected = json_object_get(row, "expected");
		struct template_case c = {
			.template = json_string_value(json_object_get(row, "template")),
			.conversation = json_string_value(json_object_get(row, "conversation")),
			.expected = json_string_value(expected),
			.n_expected = json_string_length(expected),
			.error = json_string_value(json_object_get(row, "error")),
		};
		snprintf(name, sizeof name, "templates/%s.jinja", c.template);
		char *source = read_text(shared_path(name), &c.n_source);
		char *chat =
			json_dumps(json_object_get(conversations, c.conversation), JSON_ENCODE_ANY);
		char *variables = json_dumps(json_object_get(row, "vars"), 0);
		c.source = source;
		c.input = (struct template_input){
			.messages = json_text(chat),
			.kwargs = json_text(variables),
			.add_generation_prompt =
				json_is_true(json_object_get(row, "add_generation_prompt")),
			.bos = json_string_value(json_object_get(row, "bos_token")),
			.eos = json_string_value(json_object_get(row, "eos_token")),
			.now = &case_time,
		};
		see(user, &c);
		free(source);
		free(chat);
		free(variables);
		json_decref(row);
	}
	fclose(file);
	json_decref(conversations);
}

static inline enum lap_status template_case_render(
	const struct template_case *c, struct text *out, struct lap_error *err)
{
	struct template *t = NULL;
	enum lap_status status = template_create(c->source, c->n_source, NULL, &t, err);
	if (!status)
		status = template_render(t, &c->input, out, err);
	template_destroy(t);
	return status;
}

/* What came out is what Jinja made of it, byte for byte, or it was raised in the same words. */
static inline bool template_case_passes(const struct template_case *c, enum lap_status status,
	const struct text *out, const struct lap_error *err)
{
	if (!c->expected)
		return status == LAP_ERROR && strcmp(err->text, c->error) == 0;
	return status == LAP_OK && out->n == c->n_expected &&
		memcmp(out->data ? out->data : "", c->expected, out->n) == 0;
}

#endif
