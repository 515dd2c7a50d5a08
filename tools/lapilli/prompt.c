/* Prompts: see prompt.h. */
#include "prompt.h"

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "conversation.h"
#include "source.h"

void prompt_release(struct prompt *p)
{
	text_free(&p->text);
	lap_free(p->ids);
	*p = (struct prompt){0};
}

enum lap_status prompt_conversation(const struct options *o, bool *chat, struct text *system,
	bool *system_given, struct lap_error *err)
{
	*system_given = o->system || o->system_file;
	*chat = o->conversation || *system_given;
	if (*chat && o->no_conversation)
		return fail(err, LAP_USAGE,
			"found %s and --no-conversation, expected one of them: %s",
			o->conversation ? "-cnv" : "-sys",
			o->conversation ? "one turns the other off"
					: "a system message begins a conversation");
	if (!*chat && (o->template_file || o->template_kwargs))
		return fail(err, LAP_USAGE,
			"%s is for a conversation: -cnv makes the prompt a message of one",
			o->template_file ? "--chat-template-file" : "--chat-template-kwargs");
	return source_system(o, system, system_given, err);
}

static enum lap_status encode_text(const struct options *o, const struct lap_model *model,
	struct prompt *p, struct lap_error *err)
{
	const struct lap_model_info *m = lap_model_info(model);
	if (!p->given && !m->add_bos)
		return fail(err, LAP_USAGE,
			"a prompt is needed (-p TEXT or -f FILE): %s does not begin texts with a "
			"token",
			o->model);
	const struct lap_text bytes = source_bytes(&p->text);
	enum lap_status status =
		lap_tokenize(model, bytes.text, bytes.n_bytes, true, true, &p->ids, &p->n, err);
	if (status)
		return status;
	/* The end that a model wants behind complete texts is none that a prompt should have. */
	if (m->add_eos && p->n > 0 && p->ids[p->n - 1] == m->eos)
		--p->n;
	if (m->add_bos && p->n > 1 && p->ids[0] == m->bos && p->ids[1] == m->bos)
		say("warning: the prompt begins with the model's BOS token, and the model adds "
		    "another");
	return LAP_OK;
}

/* The turn that asks for an answer, as JSON in *text (release with free). */
static enum lap_status pack_messages(const struct prompt *p, char **text, struct lap_error *err)
{
	json_t *messages = json_array();
	*text = NULL;
	enum lap_status status =
		p->system ? message_add(messages, "system", p->system, err) : LAP_OK;
	if (!status)
		status = message_add(messages, "user", &p->text, err);
	if (!status && !(*text = json_dumps(messages, 0)))
		status = fail_memory(err, "the messages", p->text.n);
	json_decref(messages);
	return status;
}

/* Puts the chat that the text asks for in place of the text. */
static enum lap_status encode_chat(const struct options *o, const struct lap_model *model,
	struct prompt *p, struct lap_error *err)
{
	struct text template = {0};
	char *messages = NULL, *rendered = NULL;
	size_t n_bytes;
	enum lap_status status = source_template(o, model, &template, err);
	if (!status)
		status = pack_messages(p, &messages, err);
	const struct lap_chat chat = {
		.messages = {messages, 0},
		.kwargs = {o->template_kwargs, 0},
		.chat_template = source_bytes(&template),
	};
	if (!status)
		status = lap_chat_render(model, &chat, &rendered, &n_bytes, err);
	p->text.n = 0;
	if (!status && !text_append(&p->text, rendered, n_bytes))
		status = fail_memory(err, "the chat", n_bytes);
	if (!status)
		status = lap_chat_tokenize(model, rendered, n_bytes, &p->ids, &p->n, err);
	lap_free(rendered);
	free(messages);
	text_free(&template);
	return status;
}

enum lap_status prompt_encode(const struct options *o, const struct lap_model *model,
	struct prompt *p, struct lap_error *err)
{
	if (p->ids)
		return LAP_OK;
	enum lap_status status =
		p->chat ? encode_chat(o, model, p, err) : encode_text(o, model, p, err);
	if (!status && p->n == 0)
		status = fail(err, LAP_USAGE,
			"the prompt is empty and the model begins texts with no token: it needs -p "
			"TEXT or -f FILE");
	return status;
}
