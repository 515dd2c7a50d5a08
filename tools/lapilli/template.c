/* `lapilli template`: messages as the text that a model reads. Looks below the public API, which has no
 * chats yet, at the library's own template.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "source.h"
#include "template.h"

/* What the command was told, read and ready to be rendered. */
struct chat {
	struct text source, messages, tools;
	char *bos, *eos;
	struct tm now;
};

static void chat_release(struct chat *c)
{
	text_free(&c->source);
	text_free(&c->messages);
	text_free(&c->tools);
	free(c->bos);
	free(c->eos);
}

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

static enum lap_status copy(const char *text, char **out, struct lap_error *err)
{
	*out = strdup(text);
	return *out ? LAP_OK : fail_memory(err, "a token's text", strlen(text));
}

/* The text of a token of the model; nothing when it has none. */
static enum lap_status token_text(
	const struct lap_model *model, int32_t token, char **out, struct lap_error *err)
{
	char *text;
	size_t n_bytes;
	if (token < 0)
		return LAP_OK;
	enum lap_status status = lap_detokenize(model, &token, 1, true, &text, &n_bytes, err);
	if (!status)
		status = copy(text, out, err);
	lap_free(text);
	return status;
}

/* The template and the tokens of a model, for what the options do not give. */
static enum lap_status read_model(const struct options *o, struct chat *c, struct lap_error *err)
{
	struct lap_model *model = NULL;
	enum lap_status status = source_model(o, SOURCE_VOCABULARY, &model, err);
	if (status)
		return status;
	const struct lap_model_info *info = lap_model_info(model);
	if (!o->template_file && !info->chat_template)
		status = fail(err, LAP_ERROR,
			"%s has no chat template; --chat-template-file FILE gives one", info->path);
	else if (!o->template_file &&
		!text_append(&c->source, info->chat_template, strlen(info->chat_template)))
		status = fail_memory(err, "the chat template", strlen(info->chat_template));
	if (!status && !o->bos_text)
		status = token_text(model, info->bos, &c->bos, err);
	if (!status && !o->eos_text)
		status = token_text(model, info->eos, &c->eos, err);
	lap_model_close(model);
	return status;
}

static enum lap_status read_chat(const struct options *o, struct chat *c, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	if (!o->messages)
		return fail(err, LAP_USAGE, "template needs --messages FILE");
	if (o->now)
		status = read_time(o->now, &c->now, err);
	if (!status)
		status = file_read(o->messages, &c->messages, err);
	if (!status && o->tools)
		status = file_read(o->tools, &c->tools, err);
	if (!status && o->template_file)
		status = file_read(o->template_file, &c->source, err);
	if (!status && o->bos_text)
		status = copy(o->bos_text, &c->bos, err);
	if (!status && o->eos_text)
		status = copy(o->eos_text, &c->eos, err);
	if (!status && (o->model || !o->template_file))
		status = read_model(o, c, err);
	return status;
}

static struct template_json json_of(const struct text *text)
{
	return (struct template_json){text->data ? text->data : "", text->n};
}

int command_template(const struct options *o)
{
	struct lap_error err = {0};
	struct chat c = {0};
	struct template *template = NULL;
	struct text out = {0};
	enum lap_status status = read_chat(o, &c, &err);
	if (!status)
		status = template_create(
			c.source.data ? c.source.data : "", c.source.n, NULL, &template, &err);
	const struct template_input input = {
		.messages = json_of(&c.messages),
		.tools = o->tools ? json_of(&c.tools) : (struct template_json){0},
		.kwargs = {o->template_kwargs, o->template_kwargs ? strlen(o->template_kwargs) : 0},
		.add_generation_prompt = o->generation_prompt,
		.bos = c.bos,
		.eos = c.eos,
		.now = o->now ? &c.now : NULL,
	};
	if (!status)
		status = template_render(template, &input, &out, &err);
	if (!status)
		out_write(out.data, out.n);
	text_free(&out);
	template_destroy(template);
	chat_release(&c);
	return status ? report(&err) : LAP_OK;
}
