/* `lapilli template`: messages as the text that a model reads. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "source.h"

/* "2025-03-09", "2025-03-09T14:05" or "2025-03-09T14:05:07". */
static enum lap_status read_time(const char *text, struct tm *out, struct lap_error *err)
{
	struct tm t = {0};
	int n[3] = {0};
	int fields = sscanf(text, "%4d-%2d-%2d%n%*1[T ]%2d:%2d%n:%2d%n", &t.tm_year, &t.tm_mon,
		&t.tm_mday, &n[0], &t.tm_hour, &t.tm_min, &n[1], &t.tm_sec, &n[2]);
	t.tm_year -= 1900;
	t.tm_mon -= 1;
	struct tm same = t; /* which timegm would mend: 31 February is another day */
	bool ok = (fields == 3 && !text[n[0]]) || (fields == 5 && !text[n[1]]) ||
		(fields == 6 && !text[n[2]]);
	ok = ok && timegm(&same) != -1 && same.tm_mday == t.tm_mday && same.tm_mon == t.tm_mon &&
		same.tm_hour == t.tm_hour && same.tm_min == t.tm_min && same.tm_sec == t.tm_sec;
	if (!ok)
		return fail(err, LAP_USAGE,
			"--now: found \"%.60s\", expected a time as 2025-03-09T14:05:07", text);
	*out = same;
	return LAP_OK;
}

/* Files, and the model where one is needed: a template of its own needs none. */
static enum lap_status open_inputs(const struct options *o, struct lap_model **model,
	struct text *messages, struct text *tools, struct text *template, struct lap_error *err)
{
	enum lap_status status = file_read(o->messages, messages, err);
	if (!status && o->tools)
		status = file_read(o->tools, tools, err);
	if (!status && (o->model || !o->template_file))
		status = source_model(o, SOURCE_VOCABULARY, model, err);
	return status ? status : source_template(o, *model, template, err);
}

int command_template(const struct options *o)
{
	struct lap_error err = {0};
	struct lap_model *model = NULL;
	struct text messages = {0}, tools = {0}, template = {0};
	struct tm now;
	char *text = NULL;
	size_t n_bytes;
	enum lap_status status =
		o->messages ? LAP_OK : fail(&err, LAP_USAGE, "template needs --messages FILE");
	if (!status && o->now)
		status = read_time(o->now, &now, &err);
	if (!status)
		status = open_inputs(o, &model, &messages, &tools, &template, &err);
	const struct lap_chat chat = {
		.messages = source_bytes(&messages),
		.tools = o->tools ? source_bytes(&tools) : (struct lap_text){0},
		.kwargs = {o->template_kwargs, 0},
		.chat_template = source_bytes(&template),
		.bos = o->bos_text,
		.eos = o->eos_text,
		.no_generation_prompt = !o->generation_prompt,
		.now = o->now ? &now : NULL,
	};
	if (!status)
		status = lap_chat_render(model, &chat, &text, &n_bytes, &err);
	if (!status)
		out_write(text, n_bytes);
	lap_free(text);
	text_free(&messages);
	text_free(&tools);
	text_free(&template);
	lap_model_close(model);
	return status ? report(&err) : LAP_OK;
}
