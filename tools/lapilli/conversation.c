/* Conversations: see conversation.h. */
#include "conversation.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "console.h"

enum lap_status conversation_open(struct conversation *c, struct lap_error *err)
{
	*c = (struct conversation){.messages = json_array()};
	return c->messages ? LAP_OK : fail_memory(err, "a conversation", 1);
}

void conversation_release(struct conversation *c)
{
	json_decref(c->messages);
	*c = (struct conversation){.messages = NULL};
}

static bool has_role(const struct conversation *c, size_t i, const char *role)
{
	const json_t *message = json_array_get(c->messages, i);
	const char *own = json_string_value(json_object_get(message, "role"));
	return own && strcmp(own, role) == 0;
}

static size_t n_system(const struct conversation *c)
{
	return has_role(c, 0, "system");
}

/* ---- messages -------------------------------------------------------------------------------- */

enum lap_status message_add(
	json_t *messages, const char *role, const struct text *text, struct lap_error *err)
{
	for (size_t i = 0; i < text->n;) {
		uint32_t code;
		unsigned n = utf8_decode(text->data + i, text->n - i, &code);
		if (n == 0)
			return fail(err, LAP_USAGE,
				"the %s message: found byte 0x%02X at place %zu, expected UTF-8, "
				"as in all messages",
				role, (unsigned char)text->data[i], i);
		i += n;
	}
	json_t *message = json_pack(
		"{s:s, s:s%}", "role", role, "content", text->data ? text->data : "", text->n);
	return json_array_append_new(messages, message) ? fail_memory(err, "a message", text->n)
							: LAP_OK;
}

enum lap_status conversation_answer(struct conversation *c, const struct text *text,
	const struct text *thoughts, struct lap_error *err)
{
	json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
		json_bytes(text->data ? text->data : "", text->n));
	bool fits = message != NULL;
	if (fits && thoughts->n)
		fits = !json_object_set_new(
			message, "reasoning_content", json_bytes(thoughts->data, thoughts->n));
	if (fits && !json_array_append(c->messages, message)) {
		json_decref(message);
		return LAP_OK;
	}
	json_decref(message);
	return fail_memory(err, "a message", text->n);
}

enum lap_status conversation_set_system(
	struct conversation *c, const struct text *text, struct lap_error *err)
{
	json_t *list = json_array();
	enum lap_status status = list ? LAP_OK : fail_memory(err, "the system message", text->n);
	if (!status && text->n)
		status = message_add(list, "system", text, err);
	for (size_t i = n_system(c); !status && i < json_array_size(c->messages); i++)
		if (json_array_append(list, json_array_get(c->messages, i)))
			status = fail_memory(err, "the messages", 1);
	if (status) {
		json_decref(list);
		return status;
	}
	json_decref(c->messages);
	c->messages = list;
	return LAP_OK;
}

const char *conversation_system(const struct conversation *c)
{
	return n_system(c)
		? json_string_value(json_object_get(json_array_get(c->messages, 0), "content"))
		: NULL;
}

bool conversation_waits(const struct conversation *c)
{
	const size_t n = json_array_size(c->messages);
	return n && has_role(c, n - 1, "user");
}

bool conversation_drop_answer(struct conversation *c)
{
	const size_t n = json_array_size(c->messages);
	return n && has_role(c, n - 1, "assistant") && !json_array_remove(c->messages, n - 1);
}

bool conversation_drop_turn(struct conversation *c)
{
	size_t i = json_array_size(c->messages);
	while (i > n_system(c) && !has_role(c, i - 1, "user"))
		i--;
	if (i <= n_system(c))
		return false;
	while (json_array_size(c->messages) >= i)
		json_array_remove(c->messages, json_array_size(c->messages) - 1);
	if (c->n_unseen >= i - 1 - n_system(c)) /* all that is left: there is room again */
		c->n_unseen = 0;
	return true;
}

void conversation_clear(struct conversation *c)
{
	while (json_array_size(c->messages) > n_system(c))
		json_array_remove(c->messages, json_array_size(c->messages) - 1);
	c->n_unseen = 0;
}

bool conversation_forget_turn(struct conversation *c)
{
	size_t i = n_system(c) + c->n_unseen + 1;
	while (i < json_array_size(c->messages) && !has_role(c, i, "user"))
		i++;
	if (i >= json_array_size(c->messages))
		return false;
	c->n_unseen = i - n_system(c);
	return true;
}

char *conversation_json(const struct conversation *c)
{
	json_t *seen = json_array();
	bool fits = seen != NULL;
	for (size_t i = 0; fits && i < json_array_size(c->messages); i++)
		if (i < n_system(c) || i >= n_system(c) + c->n_unseen)
			fits = !json_array_append(seen, json_array_get(c->messages, i));
	char *text = fits ? json_dumps(seen, 0) : NULL;
	json_decref(seen);
	return text;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum lap_status write_private(
	const char *path, const struct text *text, struct lap_error *err)
{
	const mode_t mask = umask(S_IRWXG | S_IRWXO);
	enum lap_status status = file_write(path, text->data, text->n, err);
	umask(mask);
	return status;
}

static int append_text(const char *bytes, size_t n_bytes, void *text)
{
	return text_append(text, bytes, n_bytes) ? 0 : -1;
}

enum lap_status conversation_save(
	const struct conversation *c, const char *path, struct lap_error *err)
{
	struct text text = {0};
	bool fits = !json_dump_callback(c->messages, append_text, &text, JSON_INDENT(2)) &&
		text_append(&text, "\n", 1);
	enum lap_status status = fits ? write_private(path, &text, err)
				      : fail_memory(err, "the conversation", text.n);
	text_free(&text);
	return status;
}

static enum lap_status check_messages(
	const json_t *messages, const char *path, struct lap_error *err)
{
	if (!json_is_array(messages))
		return fail(err, LAP_USAGE,
			"%s: expected a JSON list of messages, or an object with \"messages\"",
			path);
	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *message = json_array_get(messages, i);
		const char *role = json_string_value(json_object_get(message, "role"));
		if (!role || !json_is_string(json_object_get(message, "content")))
			return fail(err, LAP_USAGE,
				"%s: message %zu has no \"role\" and \"content\" that are texts",
				path, i + 1);
		if (i && strcmp(role, "system") == 0)
			return fail(err, LAP_USAGE,
				"%s: message %zu is a system message, expected it in front", path,
				i + 1);
	}
	return LAP_OK;
}

enum lap_status conversation_load(struct conversation *c, const char *path, struct lap_error *err)
{
	struct text text = {0};
	json_error_t why;
	json_t *file = NULL;
	enum lap_status status = file_read(path, &text, err);
	if (!status) {
		file = json_loadb(text.data, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
		if (!file)
			status = fail(err, LAP_USAGE, "%s, line %d: %s", path, why.line, why.text);
	}
	json_t *inner = json_object_get(file, "messages");
	json_t *messages = inner ? inner : file;
	if (!status)
		status = check_messages(messages, path, err);
	if (!status) {
		json_decref(c->messages);
		*c = (struct conversation){.messages = json_incref(messages)};
	}
	json_decref(file);
	text_free(&text);
	return status;
}

/* Thoughts are quoted; what an answer holds is Markdown already. */
static bool export_message(struct text *text, const json_t *message)
{
	const json_t *thoughts = json_object_get(message, "reasoning_content");
	const json_t *content = json_object_get(message, "content");
	bool fits = text_printf(text, "%s## %s\n\n", text->n ? "\n" : "",
		json_string_value(json_object_get(message, "role")));
	for (const char *line = json_string_value(thoughts); fits && line && *line;) {
		const size_t n = strcspn(line, "\n");
		fits = text_printf(text, n ? "> %.*s\n" : ">\n", (int)n, line);
		line += n + (line[n] == '\n');
	}
	if (fits && json_string_length(thoughts))
		fits = text_append(text, "\n", 1);
	return fits && text_append(text, json_string_value(content), json_string_length(content)) &&
		text_append(text, "\n", 1);
}

enum lap_status conversation_export(
	const struct conversation *c, const char *path, struct lap_error *err)
{
	struct text text = {0};
	bool fits = text_append(&text, "", 0);
	for (size_t i = 0; fits && i < json_array_size(c->messages); i++)
		fits = export_message(&text, json_array_get(c->messages, i));
	enum lap_status status = fits ? write_private(path, &text, err)
				      : fail_memory(err, "the conversation", text.n);
	text_free(&text);
	return status;
}
