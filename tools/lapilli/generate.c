/* `lapilli generate`: a prompt in, text out as it comes, and what it cost on standard error. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "batch.h"
#include "beams.h"
#include "commands.h"
#include "console.h"
#include "drafting.h"
#include "prompts.h"
#include "request_options.h"
#include "signals.h"
#include "source.h"

static const char demo_prompt[] = "It is a truth universally acknowledged, that";

/* What is continued, and the message before it. */
struct input {
	struct prompt prompt;
	struct text system;
};

static bool is_input(const char *name)
{
	return name && strcmp(name, "-") == 0;
}

/* The text, and whether it is a message. */
static enum lap_status read_prompt(const struct options *o, struct input *in, struct lap_error *err)
{
	struct prompt *p = &in->prompt;
	bool system_given;
	const bool reads_input = is_input(o->file) || is_input(o->prompt);
	if (reads_input && is_input(o->system_file))
		return fail(err, LAP_USAGE, "%s - and -sysf - both read standard input",
			o->file ? "-f" : "-p");
	enum lap_status status = prompt_conversation(o, &p->chat, &in->system, &system_given, err);
	if (!status)
		status = source_text(o, &p->text, &p->given, err);
	if (!status && !o->file && !reads_input && !is_input(o->system_file))
		status = source_piped(&p->text, &p->given, err);
	if (!status && p->chat && !p->given)
		status = fail(err, LAP_USAGE, "a conversation needs a message: -p TEXT or -f FILE");
	if (!status && !p->given && !o->model) {
		p->given = true;
		if (!text_append(&p->text, demo_prompt, strlen(demo_prompt)))
			status = fail_memory(err, "the prompt", sizeof demo_prompt);
	}
	p->system = system_given ? &in->system : NULL;
	return status;
}

/* In a conversation the answer is what was asked for; its prompt is made of control tokens. */
static bool shows_prompt(const struct options *o, const struct prompt *p)
{
	return o->display_prompt && (!p->chat || o->special);
}

/* What an earlier run left, if it did. */
static enum lap_status load_cache(
	const struct options *o, struct lap_session *session, struct lap_error *err)
{
	return o->prompt_cache && access(o->prompt_cache, F_OK) == 0
		? lap_session_load(session, o->prompt_cache, err)
		: LAP_OK;
}

/* A prompt of one token has nothing to keep: that is the row of the first step. */
static enum lap_status save_cache(
	const struct options *o, struct lap_session *session, struct lap_error *err)
{
	if (!o->prompt_cache)
		return LAP_OK;
	enum lap_status status = lap_session_save(session, o->prompt_cache, err);
	if (status != LAP_USAGE)
		return status;
	say("notice: %s", err->text);
	return LAP_OK;
}

static enum lap_status generate(const struct options *o, struct lap_model *model, struct prompt *p,
	struct request_options *request, struct lap_error *err)
{
	const bool json = o->json || o->json_lines;
	struct answer a = {.model = model,
		.streamed = !json,
		.lines = o->json_lines,
		.logprobs = json && o->logprobs >= 0};
	struct lap_generation g = {0};
	struct lap_session *session = NULL;
	struct lap_session_options session_options = source_session(o);
	struct drafting draft = {.model = NULL};
	session_options.n_top = request->o.n_top;
	session_options.n_draft = drafting_most(o);

	enum lap_status status = lap_session_create(model, &session_options, &session, err);
	if (!status)
		status = drafting_open(o, &session_options, session, &draft, err);
	drafting_set(o, &draft, &request->o);
	if (!status)
		status = load_cache(o, session, err);
	if (!status) {
		interrupt_session(session);
		if (interrupted()) /* before there was a session to cancel */
			status = fail(err, LAP_ERROR, "interrupted");
	}
	if (!status) {
		if (!json) {
			answer_banner(lap_model_info(model));
			if (!o->model)
				say("notice: no -m: the small model inside this program; -m FILE "
				    "takes a GGUF file, -m NAME one that ollama, llama.cpp, LM "
				    "Studio "
				    "or the Hugging Face hub keeps here");
			if (shows_prompt(o, p))
				a.prompt = &p->text;
		}
		a.progress = progress_start("prompt", "tok");
		if (!a.progress.terminal) /* no bar that the prompt would stand in the way of */
			answer_begin(&a);
		request->o.on_prompt = answer_prompt;
		status = lap_generate(session, p->ids, p->n, &request->o, answer_take, &a, &g, err);
	}
	interrupt_session(NULL);
	answer_begin(&a);
	if (!status)
		status = save_cache(o, session, err);
	if (!status && a.out_of_memory)
		status = fail_memory(err, "the generated text", a.text.n);
	if (!json && a.last && a.last != '\n') /* what follows starts a line of the terminal */
		fputc('\n', stderr);
	if (!status && json)
		status = (enum lap_status)out_json(answer_json(&a, p->ids, p->n, &g));
	else if (!status && out_flush()) /* whoever stopped reading wants no statistics either */
		answer_statistics(lap_model_info(model), &g, o->verbose);
	lap_session_destroy(session);
	drafting_close(&draft);
	answer_release(&a);
	return status;
}

static enum lap_status generate_one(const struct options *o, struct lap_error *err)
{
	struct input in = {.system = {0}};
	struct request_options request = {.stops = NULL};
	struct lap_model *model = NULL;
	enum lap_status status = LAP_OK;
	if (o->n_parallel)
		status = fail(err, LAP_USAGE,
			"-np is for several prompts: several -p or -f, or --prompts-file FILE");
	if (!status)
		status = beams_check(o, err);
	if (!status && o->beams && o->json_lines)
		status = fail(err, LAP_USAGE, "--jsonl is not for --beams: --json has their texts");
	if (!status && o->beams && o->prompt_cache)
		status = fail(err, LAP_USAGE, "--prompt-cache is not for --beams");
	if (!status)
		status = request_options_set(o, &request, err);
	if (!status)
		status = read_prompt(o, &in, err);
	interrupt_install(); /* after the text, for which a terminal may keep us waiting */
	if (!status)
		status = source_model(o, SOURCE_MODEL, &model, err);
	if (!status)
		status = prompt_encode(o, model, &in.prompt, err);
	if (!status)
		status = o->beams
			? beams_generate(o, model, &in.prompt, shows_prompt(o, &in.prompt), err)
			: generate(o, model, &in.prompt, &request, err);
	lap_model_close(model);
	prompt_release(&in.prompt);
	text_free(&in.system);
	request_options_release(&request);
	return status;
}

static enum lap_status generate_all(const struct options *o, struct lap_error *err)
{
	if (o->beams)
		return beams_check(o, err);
	if (o->prompt_cache)
		return fail(err, LAP_USAGE, "--prompt-cache is for one prompt, -p or -f");
	if (o->prompts_file && (o->prompt || o->file))
		return fail(err, LAP_USAGE,
			"%s and --prompts-file both name the text, expected one of them",
			o->prompt ? "-p" : "-f");
	if (o->prompt && o->file)
		return fail(err, LAP_USAGE, "-p and -f both name the text, expected one of them");
	size_t n_inputs = is_input(o->prompts_file) + is_input(o->system_file);
	for (size_t i = 0; i < o->files.n; i++)
		n_inputs += is_input(o->files.texts[i]);
	if (n_inputs > 1)
		return fail(err, LAP_USAGE, "%s - and %s - both read standard input",
			o->prompts_file ? "--prompts-file" : "-f", o->system_file ? "-sysf" : "-f");
	return batch_generate(o, err);
}

int command_generate(const struct options *o)
{
	struct lap_error err = {0};
	enum lap_status status = tasks_several(o) ? generate_all(o, &err) : generate_one(o, &err);
	if (interrupted() && (!status || status == LAP_ERROR))
		return interrupt_status();
	if (status && !err.text[0]) /* reported where it happened */
		return (int)status;
	return status ? report(&err) : LAP_OK;
}
