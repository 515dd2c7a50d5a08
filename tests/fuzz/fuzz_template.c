/* libFuzzer target: any bytes as a template, and behind a NUL as the chat, the tools and more variables.
 *
 * The limits are small, so that a run is short: what they stop is no finding. What is rendered must be the
 * same a second time. */
#include <stdlib.h>
#include <string.h>

#include "template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A chat for templates that come without one. */
static const char chat[] =
	"{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
	"\"content\": \"H\\u00e9llo  <1.5>\"}, {\"role\": \"assistant\", \"content\": null, "
	"\"tool_calls\": [{\"type\": \"function\", \"id\": \"abcdefghi\", \"function\": {\"name\": "
	"\"f\", \"arguments\": {\"x\": 1, \"y\": [true, 2.5]}}}]}], \"tools\": [{\"type\": "
	"\"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]}";

/* The next of the texts that NULs divide; the last one is all that is left. */
static struct template_json next_part(const char **data, size_t *n, bool last)
{
	const char *end = *n && !last ? memchr(*data, '\0', *n) : NULL;
	struct template_json part = {*data, end ? (size_t)(end - *data) : *n};
	*data += end ? part.n + 1 : *n;
	*n -= end ? part.n + 1 : *n;
	return part;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct template_limits limits = {
		.n_steps = 20000, .n_memory = 4 << 20, .n_output = 1 << 18, .n_depth = 60};
	static const struct tm now = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9};
	const char *at = n ? (const char *)data : "";
	struct template_json source = next_part(&at, &n, false);
	struct template_input input = {.messages = {chat, sizeof chat - 1},
		.add_generation_prompt = true,
		.bos = "<s>",
		.eos = "</s>",
		.now = &now};
	if (n)
		input.messages = next_part(&at, &n, false);
	if (n)
		input.tools = next_part(&at, &n, false);
	if (n)
		input.kwargs = next_part(&at, &n, true);
	struct template *t;
	struct lap_error err = {0};
	if (template_create(source.text, source.n, &limits, &t, &err)) {
		if (!err.text[0] || strchr(err.text, '\n') || t)
			abort();
		return 0;
	}
	struct text out[2] = {{0}};
	enum lap_status status[2];
	for (int i = 0; i < 2; i++)
		status[i] = template_render(t, &input, &out[i], &err);
	if (status[0] != status[1] || out[0].n != out[1].n ||
		(out[0].n && memcmp(out[0].data, out[1].data, out[0].n) != 0))
		abort();
	if (status[0] && (!err.text[0] || strchr(err.text, '\n') || out[0].n))
		abort();
	text_free(&out[0]);
	text_free(&out[1]);
	template_destroy(t);
	return 0;
}
