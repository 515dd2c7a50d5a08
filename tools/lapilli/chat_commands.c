/* Commands of a conversation: see chat_commands.h. */
#include "chat_commands.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "console.h"

static enum lap_status help(struct chat *c, const char *rest, struct lap_error *err);

static enum lap_status leave(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	(void)err;
	c->over = true;
	return LAP_OK;
}

static enum lap_status clear(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	(void)err;
	conversation_clear(&c->conversation);
	text_free(&c->attached);
	say("the conversation begins anew%s",
		conversation_system(&c->conversation) ? ", behind the same system message" : "");
	return LAP_OK;
}

static enum lap_status regenerate(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	if (conversation_drop_answer(&c->conversation))
		c->n_again++;
	return conversation_waits(&c->conversation)
		? chat_answer(c, err)
		: fail(err, LAP_USAGE, "there is no message to answer");
}

static enum lap_status undo(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	if (!conversation_drop_turn(&c->conversation))
		return fail(err, LAP_USAGE, "there is no message to take back");
	say("the last message and its answer are taken back");
	return LAP_OK;
}

static enum lap_status set_system(struct chat *c, const char *rest, struct lap_error *err)
{
	const char *now = conversation_system(&c->conversation);
	if (!*rest) {
		say("%s", now ? now : "there is no system message");
		return LAP_OK;
	}
	struct text text = {0};
	enum lap_status status = LAP_OK;
	if (strcmp(rest, "-") != 0 && !text_append(&text, rest, strlen(rest)))
		status = fail_memory(err, "the system message", strlen(rest));
	if (!status)
		status = conversation_set_system(&c->conversation, &text, err);
	if (!status)
		say(text.n ? "the system message is set" : "the system message is taken away");
	text_free(&text);
	return status;
}

static enum lap_status attach(struct chat *c, const char *rest, struct lap_error *err)
{
	const size_t before = c->attached.n;
	enum lap_status status = file_read(rest, &c->attached, err);
	if (!status)
		say("%zu bytes of %s go before the next message", c->attached.n - before, rest);
	return status;
}

/* `name value`, with any blanks between them. */
static enum lap_status set(struct chat *c, const char *rest, struct lap_error *err)
{
	char name[64];
	const size_t n = strcspn(rest, " \t=");
	snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), rest);
	const char *value = rest + n + strspn(rest + n, " \t=");
	if (!*value)
		return fail(err, LAP_USAGE, "expected /set NAME VALUE, as /set temp 0.5");

	struct options changed;
	struct request_options request;
	json_t *kept = json_string_nocheck(value); /* any bytes */
	if (!kept || json_array_append_new(c->texts, kept))
		return fail_memory(err, "a value", strlen(value));
	enum lap_status status = options_copy(&changed, &c->o, err);
	if (status)
		return status;
	status = options_assign(&changed, name, json_string_value(kept), err);
	if (!status) {
		status = request_options_set(&changed, &request, err);
		struct request_options *out = status ? &request : &c->request;
		request_options_release(out);
	}
	if (!status) {
		c->request = request;
		drafting_set(&changed, &c->draft, &c->request.o);
	}
	options_release(status ? &changed : &c->o);
	if (!status)
		c->o = changed;
	return status;
}

static enum lap_status show(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	(void)err;
	const struct lap_model_info *m = lap_model_info(c->model);
	const char *system = conversation_system(&c->conversation);
	say("model     %s (%s)", model_name(m), m->path);
	say("device    %s", m->device_name);
	say("context   %u tokens", (unsigned)lap_session_n_ctx(c->session));
	say("template  %s", c->o.template_file ? c->o.template_file : "the model's");
	say("system    %s", system ? system : "none");
	say("messages  %zu, %zu of them left out of the context",
		json_array_size(c->conversation.messages), c->conversation.n_unseen);
	say("options that are not as they come:");
	options_show(&c->o, stderr);
	return LAP_OK;
}

static enum lap_status stats(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	if (!c->answered)
		return fail(err, LAP_USAGE, "there was no answer yet");
	answer_statistics(lap_model_info(c->model), &c->last, true);
	return LAP_OK;
}

static enum lap_status tokens(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)rest;
	char *text = NULL;
	int32_t *ids = NULL;
	size_t n_bytes, n = 0;
	const size_t n_ctx = lap_session_n_ctx(c->session);
	enum lap_status status = LAP_OK;
	if (json_array_size(c->conversation.messages))
		status = chat_encode(c, &text, &n_bytes, &ids, &n, err);
	if (!status)
		say("%zu of %zu tokens (%.0f %%), %zu messages, %zu of them left out", n, n_ctx,
			100.0 * (double)n / (double)n_ctx,
			json_array_size(c->conversation.messages), c->conversation.n_unseen);
	lap_free(text);
	lap_free(ids);
	return status;
}

static enum lap_status save(struct chat *c, const char *rest, struct lap_error *err)
{
	enum lap_status status = conversation_save(&c->conversation, rest, err);
	if (!status)
		say("%zu messages are in %s", json_array_size(c->conversation.messages), rest);
	return status;
}

static enum lap_status load(struct chat *c, const char *rest, struct lap_error *err)
{
	enum lap_status status = conversation_load(&c->conversation, rest, err);
	if (!status)
		say("%zu messages of %s%s", json_array_size(c->conversation.messages), rest,
			conversation_waits(&c->conversation) ? "; /regen answers the last" : "");
	return status;
}

static enum lap_status export(struct chat *c, const char *rest, struct lap_error *err) {
	enum lap_status status = conversation_export(&c->conversation, rest, err);
	if (!status) say("%zu messages are in %s", json_array_size(c->conversation.messages), rest);
	return status;
}

static const struct entry {
	const char *name, *argument; /* "": none; in brackets: it may be left out */
	const char *what;
	enum lap_status (*run)(struct chat *c, const char *rest, struct lap_error *err);
} commands[] = {
	{"help", "", "this list", help},
	{"exit", "", "leave, as ^D does", leave},
	{"clear", "", "begin anew, behind the same system message", clear},
	{"regen", "", "another answer in place of the last", regenerate},
	{"undo", "", "take the last message and its answer back", undo},
	{"system", "[TEXT]", "the system message: show, set, or with - take it away", set_system},
	{"read", "FILE", "put a file before the next message", attach},
	{"set", "NAME VALUE", "an option of --help for the answers to come, as temp 0.5", set},
	{"show", "", "model, context, and the options that are set", show},
	{"stats", "", "what the last answer took", stats},
	{"tokens", "", "how much of the context is used", tokens},
	{"save", "FILE", "the conversation as JSON messages", save},
	{"load", "FILE", "go on with such a file", load},
	{"export", "FILE", "the conversation as Markdown", export},
};

static enum lap_status help(struct chat *c, const char *rest, struct lap_error *err)
{
	(void)c;
	(void)rest;
	(void)err;
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
		say("/%-7s%-11s %s", commands[i].name, commands[i].argument, commands[i].what);
	say("A line that ends in \\ goes on in the next; one that begins with \"\"\" goes on until "
	    "\"\"\".");
	return LAP_OK;
}

bool chat_is_command(const char *message)
{
	size_t n = 1;
	if (message[0] != '/')
		return false;
	while (isalpha((unsigned char)message[n]))
		n++;
	return n > 1 && (!message[n] || message[n] == ' ');
}

enum lap_status chat_command(struct chat *c, const char *message, struct lap_error *err)
{
	const size_t n = strcspn(message + 1, " ");
	const char *rest = message + 1 + n + strspn(message + 1 + n, " ");
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++) {
		const struct entry *command = &commands[i];
		if (strlen(command->name) != n || strncmp(command->name, message + 1, n))
			continue;
		const bool needed = command->argument[0] && command->argument[0] != '[';
		if (needed && !*rest)
			return fail(
				err, LAP_USAGE, "/%s needs %s", command->name, command->argument);
		if (!command->argument[0] && *rest)
			return fail(err, LAP_USAGE, "/%s takes nothing, found \"%.40s\"",
				command->name, rest);
		return command->run(c, rest, err);
	}
	return fail(err, LAP_USAGE,
		"there is no command %.*s; /help lists them, and a space before the slash sends it "
		"as a message",
		(int)(n < 40 ? n + 1 : 40), message);
}
