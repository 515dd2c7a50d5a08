/* Models and text that the options name: see source.h. */
#include "source.h"

#include <stdio.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "console.h"
#include "demo_model.h"
#include "progress.h"
#include "signals.h"

struct load {
	bool verbose;
	struct progress progress;
};

static void print_log(void *user, enum lap_log_level level, const char *line)
{
	const struct load *load = user;
	if (level <= LAP_LOG_WARNING || load->verbose)
		say("%s%s", level == LAP_LOG_WARNING ? "warning: " : "", line);
}

static bool print_progress(void *user, double fraction)
{
	struct load *load = user;
	progress_show(&load->progress, fraction, 1);
	return !interrupted();
}

static enum lap_status open_model(const struct options *o, struct lap_model_options options,
	struct lap_model **model, struct lap_error *err)
{
	/* The library may write to the log as long as the model is open. */
	static struct load load;
	load = (struct load){o->verbose, progress_start("loading", NULL)};
	options.overrides = o->override_kv.texts;
	options.n_overrides = o->override_kv.n;
	options.no_pipeline_cache = !o->pipeline_cache;
	options.tune = (enum lap_tune)o->tune;
	options.log = print_log;
	options.progress = print_progress;
	options.user = &load;
	enum lap_status status = o->model
		? lap_model_open(o->model, &options, model, err)
		: lap_model_open_memory(demo_model, demo_model_bytes, "the built-in demo model",
			  &options, model, err);
	progress_clear(&load.progress);
	return status;
}

enum lap_status source_model(const struct options *o, enum source_part part,
	struct lap_model **model, struct lap_error *err)
{
	enum lap_status status = open_model(o,
		(struct lap_model_options){
			.device = o->device,
			.vocab_only = part == SOURCE_VOCABULARY,
			.no_weights = part == SOURCE_NO_WEIGHTS,
			.check_tensors = o->check_tensors,
		},
		model, err);
	if (status == LAP_NO_DEVICE && !o->device) {
		const struct lap_error why = *err;
		fail(err, status, "%.600s. " NO_DEVICE_ADVICE, why.text);
	}
	return status;
}

enum lap_status source_reference(const struct options *o, uint64_t max_chunk_bytes,
	struct lap_model **model, struct lap_error *err)
{
	return open_model(o,
		(struct lap_model_options){.device = "cpu", .max_chunk_bytes = max_chunk_bytes},
		model, err);
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef";
	const char *found = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
	return found ? (int)(found - digits) : -1;
}

/* A backslash pair that names no character stays as it is, and so does a backslash at the end. */
bool source_unescape(struct text *text, const char *s)
{
	static const char letters[] = "nrt\\'\"", characters[] = "\n\r\t\\'\"";
	bool ok = true;
	while (ok && *s) {
		const char *letter = s[0] == '\\' && s[1] ? strchr(letters, s[1]) : NULL;
		int high = s[0] == '\\' && s[1] == 'x' ? hex_digit(s[2]) : -1;
		int low = high >= 0 ? hex_digit(s[3]) : -1;
		if (letter) {
			ok = text_append(text, &characters[letter - letters], 1);
			s += 2;
		} else if (low >= 0) {
			ok = text_append(text, &(char){(char)(high * 16 + low)}, 1);
			s += 4;
		} else {
			ok = text_append(text, s++, 1);
		}
	}
	return ok;
}

void source_free_list(char **texts, size_t n)
{
	for (size_t i = 0; texts && i < n; i++)
		free(texts[i]);
	free(texts);
}

enum lap_status source_unescape_list(
	const struct text_list *list, char ***texts, struct lap_error *err)
{
	*texts = NULL;
	if (list->n == 0)
		return LAP_OK;
	char **copies = array_alloc(list->n, sizeof *copies);
	bool fits = copies != NULL;
	for (size_t i = 0; i < list->n && fits; i++)
		copies[i] = NULL;
	for (size_t i = 0; i < list->n && fits; i++) {
		struct text text = {0};
		fits = text_append(&text, "", 0) && source_unescape(&text, list->texts[i]);
		copies[i] = text.data;
	}
	if (fits) {
		*texts = copies;
		return LAP_OK;
	}
	source_free_list(copies, list->n);
	return fail_memory(err, "texts of the command line", list->n);
}

/* A text that two options may give, one as it is and one as the name of a file. */
static enum lap_status read_either(const struct options *o, const char *given, const char *file,
	const char *names, struct text *text, struct lap_error *err)
{
	if (given && file)
		return fail(err, LAP_USAGE, "%s both name the text, expected one of them", names);
	if (file)
		return file_read(file, text, err);
	if (given &&
		!(o->escape ? source_unescape(text, given)
			    : text_append(text, given, strlen(given))))
		return fail_memory(err, "a text of the command line", strlen(given));
	return LAP_OK;
}

enum lap_status source_text(
	const struct options *o, struct text *text, bool *given, struct lap_error *err)
{
	const bool input = o->prompt && !strcmp(o->prompt, "-") && !o->file;
	*given = o->prompt || o->file;
	return input ? file_read("-", text, err)
		     : read_either(o, o->prompt, o->file, "-p and -f", text, err);
}

/* A pipe that nobody writes to is waited for, which should not look like a fault of ours. */
static void say_what_is_awaited(void)
{
	enum { PATIENCE = 1000 }; /* ms */
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	if (poll(&input, 1, PATIENCE) == 0)
		say("notice: waiting for the end of standard input, a pipe, which goes behind the "
		    "prompt; < /dev/null for none");
}

enum lap_status source_piped(struct text *text, bool *given, struct lap_error *err)
{
	struct stat st;
	struct text piped = {0};
	if (fstat(STDIN_FILENO, &st) != 0 || !S_ISFIFO(st.st_mode))
		return LAP_OK;
	say_what_is_awaited();
	enum lap_status status = file_read("-", &piped, err);
	const bool apart = text->n && text->data[text->n - 1] != '\n';
	if (!status && piped.n) {
		*given = true;
		if ((apart && !text_append(text, "\n", 1)) ||
			!text_append(text, piped.data, piped.n))
			status = fail_memory(err, "the prompt", piped.n);
	}
	text_free(&piped);
	return status;
}

enum lap_status source_system(
	const struct options *o, struct text *text, bool *given, struct lap_error *err)
{
	*given = o->system || o->system_file;
	return read_either(o, o->system, o->system_file, "-sys and -sysf", text, err);
}

enum lap_status source_template(const struct options *o, const struct lap_model *model,
	struct text *text, struct lap_error *err)
{
	if (o->template_file)
		return file_read(o->template_file, text, err);
	const struct lap_model_info *info = lap_model_info(model);
	if (!info->chat_template)
		return fail(err, LAP_ERROR,
			"%s has no chat template; --chat-template-file FILE gives one", info->path);
	if (!text_append(text, info->chat_template, strlen(info->chat_template)))
		return fail_memory(err, "the chat template", strlen(info->chat_template));
	return LAP_OK;
}

struct lap_text source_bytes(const struct text *text)
{
	return (struct lap_text){text->data ? text->data : "", text->n};
}

struct lap_session_options source_session(const struct options *o)
{
	return (struct lap_session_options){
		.n_ctx = (uint32_t)o->n_ctx,
		.n_batch = (uint32_t)o->n_batch,
		.type_k = (enum lap_kv_type)o->type_k,
		.type_v = (enum lap_kv_type)o->type_v,
		.activations = (enum lap_activations)o->activations,
		.steps_per_submit = (uint32_t)o->steps_per_submit,
		.max_submit_seconds = 1e-3 * (double)o->max_submit_ms,
	};
}

enum lap_status source_sequences(const struct options *o, struct lap_model *model, uint32_t n_seq,
	struct lap_session_options *s, struct lap_error *err)
{
	struct lap_memory_plan plan;
	const struct lap_session_options given = *s;
	*s = source_session(o);
	s->n_top = given.n_top;
	s->n_draft = given.n_draft;
	enum lap_status status = lap_session_memory(model, s, &plan, err);
	s->n_seq = n_seq;
	if (status || s->n_ctx || n_seq <= 1)
		return status;
	s->n_ctx_seq = plan.n_ctx;
	s->n_ctx = plan.n_ctx * n_seq;
	status = lap_session_memory(model, s, &plan, err);
	if (!status && !plan.fits && plan.largest_n_ctx) {
		say("notice: %u sequences of %u tokens do not fit: a KV cache of %u tokens for all "
		    "together (-c)",
			(unsigned)s->n_seq, (unsigned)s->n_ctx_seq, (unsigned)plan.largest_n_ctx);
		s->n_ctx = plan.largest_n_ctx;
	}
	return status;
}
