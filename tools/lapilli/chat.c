/* `lapilli chat`: messages in, answers out, as long as somebody asks.  Standard output carries the answers,
 * each with a line end behind it; all else is on standard error. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "chat_commands.h"
#include "commands.h"
#include "console.h"
#include "signals.h"
#include "source.h"

enum lap_status chat_encode(struct chat *c, char **text, size_t *n_bytes, int32_t **ids, size_t *n,
	struct lap_error *err)
{
	char *messages = conversation_json(&c->conversation);
	*text = NULL;
	*ids = NULL;
	if (!messages)
		return fail_memory(err, "the messages", 1);
	const struct lap_chat chat = {
		.messages = {messages, 0},
		.kwargs = {c->o.template_kwargs, 0},
		.chat_template = source_bytes(&c->template),
	};
	enum lap_status status = lap_chat_render(c->model, &chat, text, n_bytes, err);
	if (!status)
		status = lap_chat_tokenize(c->model, *text, *n_bytes, ids, n, err);
	free(messages);
	return status;
}

/* The same, behind which there is room for an answer: when there is none, or little, the oldest turns are left
 * out until half of the context is free. */
static enum lap_status encode_with_room(struct chat *c, char **text, size_t *n_bytes, int32_t **ids,
	size_t *n, struct lap_error *err)
{
	const size_t n_ctx = lap_session_n_ctx(c->session), before = c->conversation.n_unseen;
	size_t room = n_ctx / 4;
	if (c->o.n_predict >= 0 && (uint64_t)c->o.n_predict < room)
		room = (size_t)c->o.n_predict;
	size_t most = n_ctx - room;
	enum lap_status status = chat_encode(c, text, n_bytes, ids, n, err);
	while (!status && *n > most && conversation_forget_turn(&c->conversation)) {
		lap_free(*text);
		lap_free(*ids);
		status = chat_encode(c, text, n_bytes, ids, n, err);
		most = n_ctx / 2;
	}
	if (!status && c->conversation.n_unseen > before)
		say("notice: the context of %zu tokens is full: the model no longer sees the first "
		    "%zu messages (-c N makes room, /clear begins anew)",
			n_ctx, c->conversation.n_unseen);
	return status;
}

/* Takes what was generated into the conversation. */
static enum lap_status keep_answer(struct chat *c, struct lap_error *err)
{
	const struct lap_generation *g = &c->last;
	const size_t n_ctx = lap_session_n_ctx(c->session);
	if (!chat_view_end(&c->view, true))
		return fail_memory(err, "the answer", c->view.answer.n);
	if (g->finish == LAP_FINISH_CANCELLED && !c->view.answer.n && !c->view.thoughts.n) {
		say("stopped before there was an answer: the message is left out");
		conversation_drop_turn(&c->conversation);
		return LAP_OK;
	}
	c->answered = true;
	if (g->finish == LAP_FINISH_LENGTH && g->n_prompt + g->n_generated >= n_ctx)
		say("notice: the context of %zu tokens is full: the answer ends here (-c N makes "
		    "room, --context-overflow shift goes on)",
			n_ctx);
	if (c->o.verbose)
		answer_statistics(lap_model_info(c->model), g, true);
	return conversation_answer(&c->conversation, &c->view.answer, &c->view.thoughts, err);
}

enum lap_status chat_answer(struct chat *c, struct lap_error *err)
{
	char *text = NULL;
	int32_t *ids = NULL;
	size_t n_bytes = 0, n = 0;
	struct lap_generate_options *o = &c->request.o;
	if (c->o.seed >= 0) /* the same words again are no other answer */
		o->sampling.seed = (uint64_t)c->o.seed + c->n_again;
	enum lap_status status = encode_with_room(c, &text, &n_bytes, &ids, &n, err);
	if (!status) {
		chat_view_begin(&c->view, text, n_bytes);
		o->on_prompt = chat_view_prompt;
		interrupt_session(c->session);
		status = interrupted() ? fail(err, LAP_ERROR, "interrupted")
				       : lap_generate(c->session, ids, n, o, chat_view_take,
						 &c->view, &c->last, err);
		interrupt_session(NULL);
		if (!status)
			status = keep_answer(c, err);
		else
			chat_view_end(&c->view, false);
	}
	if (status)
		conversation_drop_turn(&c->conversation);
	lap_free(text);
	lap_free(ids);
	return status;
}

/* A message of the user, behind what /read put before it. */
static enum lap_status ask(struct chat *c, const struct text *message, struct lap_error *err)
{
	struct text whole = {0};
	bool fits = (!c->attached.n ||
			    (text_append(&whole, c->attached.data, c->attached.n) &&
				    text_append(&whole, "\n", 1))) &&
		text_append(&whole, message->data, message->n);
	if (conversation_waits(&c->conversation)) /* a file ended so */
		conversation_drop_turn(&c->conversation);
	enum lap_status status = fits ? message_add(c->conversation.messages, "user", &whole, err)
				      : fail_memory(err, "the message", message->n);
	text_free(&whole);
	text_free(&c->attached);
	c->over |= c->o.single_turn;
	return status ? status : chat_answer(c, err);
}

/* One message or command. */
static enum lap_status take(struct chat *c, const struct text *message, struct lap_error *err)
{
	if (chat_is_command(message->data))
		return chat_command(c, message->data, err);
	if (!message->data[strspn(message->data, " \t\r\n")] && !c->attached.n)
		return LAP_OK;
	return ask(c, message, err);
}

/* Whether a failed turn is said and the conversation goes on. */
static bool goes_on(const struct chat *c, enum lap_status status)
{
	return c->lines.prompts && (status == LAP_ERROR || status == LAP_USAGE || status == LAP_IO);
}

static enum lap_status converse(struct chat *c, struct lap_error *err)
{
	struct text message = {0};
	enum lap_status status = LAP_OK;
	while (!status && !c->over && !terminated() && out_flush()) {
		if (interrupted() && !c->lines.prompts)
			break; /* whoever stops an answer of many stops them all */
		interrupt_forget();
		if (c->lines.prompts && c->answered)
			fputc('\n', stderr);
		switch (lines_message(&c->lines, &message)) {
		case LINE_READY:
			status = take(c, &message, err);
			break;
		case LINE_STOPPED:
			if (c->lines.prompts && !terminated())
				say("/exit or ^D leaves");
			break;
		case LINE_OVER:
			c->over = true;
			break;
		case LINE_FAILED:
			status = fail_memory(err, "a line", message.n);
		}
		if (status && goes_on(c, status)) {
			report(err);
			status = LAP_OK;
		}
	}
	text_free(&message);
	return status;
}

/* ---- from start to end ----------------------------------------------------------------------- */

static enum lap_status check_template(struct chat *c, struct lap_error *err)
{
	const struct lap_model_info *m = lap_model_info(c->model);
	if (!c->o.template_file && !m->chat_template)
		return fail(err, LAP_ERROR,
			"%s has no chat template: it continues texts, and was not made for "
			"conversations; lapilli generate -m FILE -p TEXT continues one, "
			"--chat-template-file FILE gives it a template",
			m->path);
	return source_template(&c->o, c->model, &c->template, err);
}

static enum lap_status open_session(struct chat *c, struct lap_error *err)
{
	struct lap_session_options so = source_session(&c->o);
	so.n_draft = drafting_most(&c->o);
	enum lap_status status = lap_session_create(c->model, &so, &c->session, err);
	if (!status)
		status = drafting_open(&c->o, &so, c->session, &c->draft, err);
	drafting_set(&c->o, &c->draft, &c->request.o);
	return status;
}

/* The messages that the options give: the system's, and a first one of the user in *message. */
static enum lap_status read_messages(
	struct chat *c, struct text *message, bool *given, struct lap_error *err)
{
	struct text system = {0};
	bool system_given;
	enum lap_status status = source_system(&c->o, &system, &system_given, err);
	if (!status && system_given)
		status = conversation_set_system(&c->conversation, &system, err);
	if (!status)
		status = source_text(&c->o, message, given, err);
	if (!status && *given && !text_append(message, "", 0))
		status = fail_memory(err, "the message", 1);
	text_free(&system);
	return status;
}

static void greet(const struct chat *c)
{
	const struct lap_model_info *m = lap_model_info(c->model);
	answer_banner(m);
	if (c->lines.prompts && !c->o.single_turn)
		say("%s, context of %u tokens. /help lists the commands, ^C stops an answer, ^D "
		    "leaves",
			model_name(m), (unsigned)lap_session_n_ctx(c->session));
}

static enum lap_status run(struct chat *c, struct lap_error *err)
{
	struct text message = {0};
	bool given = false;
	enum lap_status status = conversation_open(&c->conversation, err);
	if (!status)
		status = read_messages(c, &message, &given, err);
	if (!status)
		status = request_options_set(&c->o, &c->request, err);
	interrupt_install();
	terminal_guard();
	if (!status)
		status = source_model(&c->o, SOURCE_MODEL, &c->model, err);
	if (!status)
		status = check_template(c, err);
	if (!status)
		status = open_session(c, err);
	c->view = (struct chat_view){.model = c->model,
		.colored = color_wanted((enum color)c->o.color),
		.reasoning = c->o.reasoning};
	if (!status) {
		lines_open(&c->lines, isatty(STDOUT_FILENO) == 1);
		greet(c);
	}
	if (!status && given) {
		if (c->lines.prompts && !c->o.single_turn)
			say("> %s", message.data);
		status = ask(c, &message, err);
	}
	if (!status)
		status = converse(c, err);
	text_free(&message);
	return status;
}

int command_chat(const struct options *o)
{
	struct lap_error err = {0};
	struct chat c = {.texts = json_array()};
	enum lap_status status = options_copy(&c.o, o, &err);
	if (!status)
		status = run(&c, &err);
	lines_close(&c.lines);
	chat_view_release(&c.view);
	request_options_release(&c.request);
	conversation_release(&c.conversation);
	lap_session_destroy(c.session);
	drafting_close(&c.draft);
	lap_model_close(c.model);
	text_free(&c.template);
	text_free(&c.attached);
	options_release(&c.o);
	json_decref(c.texts);
	if (interrupted() && (!status || status == LAP_ERROR))
		return interrupt_status();
	return status ? report(&err) : LAP_OK;
}
