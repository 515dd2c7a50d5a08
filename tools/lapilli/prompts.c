/* Files of prompts: see prompts.h. */
#include "prompts.h"

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "source.h"

const char *task_place(const struct tasks *t, const struct task *task)
{
	static char place[256];
	const char *file = t->base.prompts_file;
	snprintf(place, sizeof place, "%.200s%s%s %zu", file ? file : "", file ? ", " : "",
		t->counted, task->number);
	return place;
}

bool tasks_several(const struct options *o)
{
	return o->prompts_file || o->prompts.n > 1 || o->files.n > 1;
}

static enum lap_status fail_at(const struct tasks *t, const struct task *task,
	const struct lap_error *why, struct lap_error *err)
{
	return fail(err, why->status, "%s: %s", task_place(t, task), why->text);
}

/* ---- objects --------------------------------------------------------------------------------- */

static enum lap_status take_prompt(struct task *task, const json_t *value, struct lap_error *err)
{
	struct prompt *p = &task->prompt;
	if (json_is_string(value)) {
		p->given = true;
		return text_append(&p->text, json_string_value(value), json_string_length(value))
			? LAP_OK
			: fail_memory(err, "a prompt", json_string_length(value));
	}
	const size_t n = json_array_size(value);
	if (n == 0)
		return fail(err, LAP_USAGE,
			"\"prompt\" needs a text, or a list of token ids that is not empty");
	p->ids = array_alloc(n, sizeof *p->ids);
	if (!p->ids)
		return fail_memory(err, "a prompt", n * sizeof *p->ids);
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(value, i);
		json_int_t number = json_integer_value(id);
		if (!json_is_integer(id) || number < 0 || number > INT32_MAX)
			return fail(err, LAP_USAGE,
				"\"prompt\": number %zu of its list is no token id", i + 1);
		p->ids[p->n++] = (int32_t)number;
	}
	return LAP_OK;
}

/* A text that lives as long as the task; NULL: out of memory. */
static const char *keep(struct task *task, json_t *string)
{
	json_t *kept = json_object_get(task->object, "");
	if (json_array_append_new(kept, string))
		return NULL;
	return json_string_value(json_array_get(kept, json_array_size(kept) - 1));
}

/* {"15043": 1.5} as the command line spells it: 15043+1.5 */
static enum lap_status set_biases(
	struct task *task, const char *key, json_t *object, struct lap_error *err)
{
	const size_t n = json_object_size(object);
	const char **texts = array_alloc(n + 1, sizeof *texts), *token;
	json_t *bias;
	size_t i = 0;
	bool fits = texts != NULL;
	if (fits)
		json_object_foreach (object, token, bias) {
			if (!json_is_number(bias) && !json_is_false(bias)) {
				free(texts);
				return fail(err, LAP_USAGE,
					"\"%s\": the bias of token %.40s is no number, and not "
					"false, which forbids it",
					key, token);
			}
			texts[i] = keep(task,
				json_is_false(bias)
					? json_sprintf("%s-inf", token)
					: json_sprintf("%s%+.9g", token, json_number_value(bias)));
			fits = fits && texts[i++];
		}
	enum lap_status status = fits ? options_set(&task->o, key, VALUE_STRINGS, texts, n, err)
				      : fail_memory(err, "logit biases", n);
	free(texts);
	return status;
}

static enum lap_status set_list(
	struct task *task, const char *key, json_t *list, struct lap_error *err)
{
	const size_t n = json_array_size(list);
	const bool numbers = n == 0 || json_is_integer(json_array_get(list, 0));
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(list, i);
		if (numbers ? !json_is_integer(item) : !json_is_string(item))
			return fail(err, LAP_USAGE,
				"\"%s\": item %zu of the list is neither text nor number as the "
				"others",
				key, i + 1);
	}
	if (n == 0)
		return options_set(&task->o, key, VALUE_NONE, NULL, 0, err);
	const char **texts = array_alloc(n, sizeof *texts);
	char *ids = numbers ? json_dumps(list, JSON_COMPACT) : NULL;
	bool fits = texts && (ids || !numbers);
	for (size_t i = 0; i < n && fits; i++)
		texts[i] = numbers ? ids : json_string_value(json_array_get(list, i));
	enum lap_status status = fits
		? options_set(&task->o, key, numbers ? VALUE_NUMBERS : VALUE_STRINGS, texts,
			  numbers ? 1 : n, err)
		: fail_memory(err, key, n);
	free(texts);
	free(ids);
	return status;
}

/* A schema may be written as it is, instead of in a string. */
static enum lap_status set_schema(
	struct task *task, const char *key, const json_t *object, struct lap_error *err)
{
	char *dumped = json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY);
	const char *text = dumped ? keep(task, json_string(dumped)) : NULL;
	free(dumped);
	return text ? options_set(&task->o, key, VALUE_STRING, &text, 1, err)
		    : fail_memory(err, "a schema", 1);
}

static enum lap_status set_key(
	struct task *task, const char *key, json_t *value, struct lap_error *err)
{
	char number[64];
	const char *text = number;
	enum value_form form = VALUE_NUMBER;
	if (strcmp(key, "prompt") == 0)
		return take_prompt(task, value, err);
	if (json_is_array(value))
		return set_list(task, key, value, err);
	if (json_is_object(value) && strcmp(key, "logit_bias") == 0)
		return set_biases(task, key, value, err);
	if (json_is_object(value) && strcmp(key, "json_schema") == 0)
		return set_schema(task, key, value, err);
	if (json_is_string(value)) {
		form = VALUE_STRING;
		text = json_string_value(value);
		if (strlen(text) != json_string_length(value))
			return fail(err, LAP_USAGE, "\"%s\" has a NUL, expected none", key);
	} else if (json_is_boolean(value)) {
		form = VALUE_BOOL;
		text = json_is_true(value) ? "true" : "false";
	} else if (json_is_integer(value))
		snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(number, sizeof number, "%.17g", json_real_value(value));
	else
		return fail(err, LAP_USAGE, "\"%s\" is %s, expected a value", key,
			json_is_null(value) ? "null" : "an object");
	return options_set(&task->o, key, form, &text, 1, err);
}

static enum lap_status take_object(
	struct task *task, const char *line, size_t n_bytes, struct lap_error *err)
{
	json_error_t why;
	json_t *value;
	const char *key;
	task->object = json_loadb(line, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	if (!json_is_object(task->object))
		return fail(err, LAP_USAGE, "expected an object of JSON as in the first line: %s",
			task->object ? "found another value" : why.text);
	if (json_object_get(task->object, ""))
		return fail(err, LAP_USAGE, "found a key without a name");
	if (!json_object_get(task->object, "prompt"))
		return fail(err, LAP_USAGE, "the object has no \"prompt\"");
	if (json_object_get(task->object, "grammar") &&
		json_object_get(task->object, "json_schema"))
		return fail(err, LAP_USAGE,
			"found \"grammar\" and \"json_schema\", expected one of them");
	json_t *pairs = json_copy(task->object); /* while texts are kept in the object itself */
	enum lap_status status = LAP_OK;
	if (!pairs || json_object_set_new(task->object, "", json_array()))
		status = fail_memory(err, "a line of JSON", n_bytes);
	json_object_foreach (pairs, key, value)
		if (!status)
			status = set_key(task, key, value, err);
	json_decref(pairs);
	return status;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool is_blank(const char *line, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (!strchr(" \t\r", line[i]) || !line[i])
			return false;
	return true;
}

static enum lap_status take_line(const struct options *o, struct task *task, const char *line,
	size_t n_bytes, struct lap_error *err)
{
	struct prompt *p = &task->prompt;
	p->given = true;
	if (n_bytes && line[n_bytes - 1] == '\r')
		n_bytes--;
	bool fits = true;
	if (o->escape && !memchr(line, '\0', n_bytes)) {
		char *copy = strndup(line, n_bytes);
		fits = copy && source_unescape(&p->text, copy);
		free(copy);
	} else
		fits = text_append(&p->text, line, n_bytes);
	return fits ? LAP_OK : fail_memory(err, "a prompt", n_bytes);
}

/* One more task without a prompt, in *added. */
static enum lap_status add_task(struct tasks *t, bool chat, const struct text *system,
	size_t number, struct task **added, struct lap_error *err)
{
	struct task *items = realloc(t->items, (t->n + 1) * sizeof *items);
	if (!items)
		return fail_memory(err, "prompts", (t->n + 1) * sizeof *items);
	t->items = items;
	struct task *task = &items[t->n];
	*task = (struct task){.number = number, .prompt = {.chat = chat, .system = system}};
	if (options_copy(&task->o, &t->base, err))
		return err->status;
	t->n++;
	*added = task;
	return LAP_OK;
}

static enum lap_status add_line(struct tasks *t, const struct options *o, bool objects, bool chat,
	const struct text *system, size_t number, const char *line, size_t n_bytes,
	struct lap_error *err)
{
	struct task *task;
	struct lap_error why;
	enum lap_status status = add_task(t, chat, system, number, &task, err);
	if (status)
		return status;
	status = objects ? take_object(task, line, n_bytes, &why)
			 : take_line(o, task, line, n_bytes, &why);
	if (!status && chat && task->prompt.ids)
		status = fail(&why, LAP_USAGE,
			"\"prompt\" is a list of token ids, expected the text of a message, as "
			"-cnv "
			"asks for");
	if (!status)
		status = request_options_set(&task->o, &task->request, &why);
	return status ? fail_at(t, task, &why, err) : LAP_OK;
}

static enum lap_status add_lines(struct tasks *t, const struct options *o, bool chat,
	const struct text *system, struct lap_error *err)
{
	const char *at = t->file.data, *end = at + t->file.n;
	enum lap_status status = LAP_OK;
	bool objects = false;
	for (size_t number = 1; at < end && !status; number++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const size_t n_bytes = (size_t)((newline ? newline : end) - at);
		if (!is_blank(at, n_bytes)) {
			if (t->n == 0)
				objects = at[strspn(at, " \t")] == '{';
			status = add_line(t, o, objects, chat, system, number, at, n_bytes, err);
		}
		at += n_bytes + 1;
	}
	if (!status && t->n == 0)
		status = fail(err, LAP_USAGE, "%s has no prompt, expected one on each line",
			o->prompts_file);
	return status;
}

/* A text of the command line, or a file. */
static enum lap_status read_given(
	const struct options *o, const char *given, struct text *text, struct lap_error *err)
{
	if (o->files.n)
		return file_read(given, text, err);
	if (strcmp(given, "-") == 0)
		return fail(err, LAP_USAGE,
			"-p - is for one prompt, found %zu: -f - can be one of several files",
			o->prompts.n);
	return (o->escape ? source_unescape(text, given) : text_append(text, given, strlen(given)))
		? LAP_OK
		: fail_memory(err, "a prompt", strlen(given));
}

static enum lap_status add_given(struct tasks *t, const struct options *o, bool chat,
	const struct text *system, struct lap_error *err)
{
	const struct text_list *list = o->files.n ? &o->files : &o->prompts;
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < list->n && !status; i++) {
		struct task *task;
		status = add_task(t, chat, system, i + 1, &task, err);
		if (status)
			return status;
		task->prompt.given = true;
		status = read_given(o, list->texts[i], &task->prompt.text, err);
		if (!status)
			status = request_options_set(&task->o, &task->request, err);
	}
	return status;
}

enum lap_status tasks_read(const struct options *o, struct tasks *t, struct lap_error *err)
{
	bool chat, system_given;
	*t = (struct tasks){.counted = o->prompts_file ? "line" : "prompt"};
	enum lap_status status = options_copy(&t->base, o, err);
	if (!status)
		status = prompt_conversation(o, &chat, &t->system, &system_given, err);
	if (!status && o->prompts_file)
		status = file_read(o->prompts_file, &t->file, err);
	if (!status && o->escape) {
		status = source_unescape_list(&o->stop, &t->stops, err);
		if (!status)
			status = source_unescape_list(&o->dry_breakers, &t->breakers, err);
		t->base.escape = false;
		for (size_t i = 0; t->stops && i < o->stop.n; i++)
			t->base.stop.texts[i] = t->stops[i];
		for (size_t i = 0; t->breakers && i < o->dry_breakers.n; i++)
			t->base.dry_breakers.texts[i] = t->breakers[i];
	}
	if (!status && !text_append(&t->file, "", 0))
		status = fail_memory(err, "the file of prompts", 1);
	if (status)
		return status;
	const struct text *system = system_given ? &t->system : NULL;
	return o->prompts_file ? add_lines(t, o, chat, system, err)
			       : add_given(t, o, chat, system, err);
}

enum lap_status tasks_encode(struct tasks *t, const struct lap_model *model, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < t->n && !status; i++) {
		struct lap_error why;
		status = prompt_encode(&t->items[i].o, model, &t->items[i].prompt, &why);
		if (status)
			fail_at(t, &t->items[i], &why, err);
	}
	return status;
}

void tasks_release(struct tasks *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct task *task = &t->items[i];
		request_options_release(&task->request);
		prompt_release(&task->prompt);
		options_release(&task->o);
		json_decref(task->object);
	}
	free(t->items);
	source_free_list(t->stops, t->base.stop.n);
	source_free_list(t->breakers, t->base.dry_breakers.n);
	options_release(&t->base);
	text_free(&t->file);
	text_free(&t->system);
	*t = (struct tasks){.items = NULL};
}
