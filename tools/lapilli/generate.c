/* `lapilli generate`: a prompt in, text out as it comes, and what it cost on standard error. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "sampling.h"
#include "source.h"

static const char demo_prompt[] = "It is a truth universally acknowledged, that";

/* The text and ids of one generation. */
struct stream {
	bool json;
	bool out_of_memory;
	char last;        /* byte written to standard output; '\n' before the first */
	struct text text; /* --json keeps what else goes to standard output */
	int32_t *ids;
	size_t n_ids, capacity;
};

static bool keep_id(struct stream *s, int32_t id)
{
	if (s->n_ids == s->capacity) {
		size_t capacity = s->capacity ? 2 * s->capacity : 256;
		int32_t *ids = realloc(s->ids, capacity * sizeof *ids);
		if (!ids)
			return false;
		s->ids = ids;
		s->capacity = capacity;
	}
	s->ids[s->n_ids++] = id;
	return true;
}

static bool write_text(struct stream *s, const char *text, size_t n_bytes)
{
	if (n_bytes == 0)
		return true;
	s->last = text[n_bytes - 1];
	return out_write(text, n_bytes) && out_flush();
}

static bool take_token(void *user, const struct lap_token *token)
{
	struct stream *s = user;
	if (token->id < 0 && interrupted()) /* half a character that ^C cut off */
		return false;
	if (s->json) {
		s->out_of_memory = (token->id >= 0 && !keep_id(s, token->id)) ||
			!text_append(&s->text, token->text, token->n_bytes);
		return !s->out_of_memory && !interrupted();
	}
	return write_text(s, token->text, token->n_bytes) && !interrupted();
}

/* ---- prompt ---------------------------------------------------------------------------------- */

/* What is continued. */
struct prompt {
	struct text text; /* of -p or -f; in a conversation what the template made of it */
	bool given;       /* there was a text */
	bool chat;        /* a conversation */
	int32_t *ids;
	size_t n;
};

static void prompt_release(struct prompt *p)
{
	text_free(&p->text);
	lap_free(p->ids);
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

/* One message, behind those of *messages. */
static enum lap_status add_message(
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
	const struct lap_text bytes = source_bytes(text);
	json_t *message =
		json_pack("{s:s, s:s%}", "role", role, "content", bytes.text, bytes.n_bytes);
	return json_array_append_new(messages, message) ? fail_memory(err, "a message", text->n)
							: LAP_OK;
}

/* The turn that asks for an answer, as JSON in *text (release with free). */
static enum lap_status pack_messages(
	const struct options *o, const struct text *user, char **text, struct lap_error *err)
{
	struct text system = {0};
	bool given;
	json_t *messages = json_array();
	*text = NULL;
	enum lap_status status = source_system(o, &system, &given, err);
	if (!status && given)
		status = add_message(messages, "system", &system, err);
	if (!status)
		status = add_message(messages, "user", user, err);
	if (!status && !(*text = json_dumps(messages, 0)))
		status = fail_memory(err, "the messages", user->n);
	json_decref(messages);
	text_free(&system);
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
		status = pack_messages(o, &p->text, &messages, err);
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

static enum lap_status encode_prompt(const struct options *o, const struct lap_model *model,
	struct prompt *p, struct lap_error *err)
{
	enum lap_status status =
		p->chat ? encode_chat(o, model, p, err) : encode_text(o, model, p, err);
	if (!status && p->n == 0)
		status = fail(err, LAP_USAGE,
			"the prompt is empty and the model begins texts with no token: it needs -p "
			"TEXT or -f FILE");
	return status;
}

/* The text, and whether it is a message. */
static enum lap_status read_prompt(const struct options *o, struct prompt *p, struct lap_error *err)
{
	bool system = o->system || o->system_file;
	p->chat = o->conversation || system;
	if (p->chat && o->no_conversation)
		return fail(err, LAP_USAGE,
			"found %s and --no-conversation, expected one of them: %s",
			o->conversation ? "-cnv" : "-sys",
			o->conversation ? "one turns the other off"
					: "a system message begins a conversation");
	if (!p->chat && (o->template_file || o->template_kwargs))
		return fail(err, LAP_USAGE,
			"%s is for a conversation: -cnv makes the prompt a message of one",
			o->template_file ? "--chat-template-file" : "--chat-template-kwargs");
	if (o->file && o->system_file && !strcmp(o->file, "-") && !strcmp(o->system_file, "-"))
		return fail(err, LAP_USAGE, "-f - and -sysf - both read standard input");
	enum lap_status status = source_text(o, &p->text, &p->given, err);
	if (!status && p->chat && !p->given)
		status = fail(err, LAP_USAGE, "a conversation needs a message: -p TEXT or -f FILE");
	if (!status && !p->given && !o->model) {
		p->given = true;
		if (!text_append(&p->text, demo_prompt, strlen(demo_prompt)))
			status = fail_memory(err, "the prompt", sizeof demo_prompt);
	}
	return status;
}

/* ---- statistics ------------------------------------------------------------------------------ */

static const char *finish_name(enum lap_finish finish)
{
	static const char *const names[] = {"stop", "length", "cancelled", "time"};
	return names[finish];
}

/* Of the tokens behind the first, whose time counts as the prompt's. */
static double decode_rate(const struct lap_generation *g)
{
	return g->n_generated > 1 ? per_second((double)g->n_generated - 1, g->decode_seconds) : 0;
}

/* Of what the prefill computed: not what was reused, not the last token, which is the row of the first
 * decode step, and after a ^C not what was left. */
static double prefill_rate(const struct lap_generation *g)
{
	size_t n_end = g->n_generated ? g->n_prompt - 1 : g->kv_tokens;
	return per_second((double)(n_end - g->n_reused), g->prefill_seconds);
}

static double bandwidth(const struct lap_generation *g) /* GB/s */
{
	return (double)g->step_bytes * decode_rate(g) / 1e9;
}

static const char *model_name(const struct lap_model_info *m)
{
	const char *slash = strrchr(m->path, '/');
	return m->name && *m->name ? m->name : slash ? slash + 1 : m->path;
}

static void print_statistics(
	const struct options *o, const struct lap_model_info *m, const struct lap_generation *g)
{
	say("lapilli %s: %s (%s, %s) on %s, seed %llu", lap_version(), model_name(m),
		m->architecture, bytes_text(m->weight_bytes), m->device_name,
		(unsigned long long)g->seed);
	say("load %.2f s, prompt %zu tokens at %.1f tok/s, first token after %.0f ms",
		m->load_seconds, g->n_prompt, prefill_rate(g), 1e3 * g->first_token_seconds);
	say("generated %zu tokens at %.1f tok/s, %.2f GB/s, %s on the device (%s)", g->n_generated,
		decode_rate(g), bandwidth(g), bytes_text(g->device_bytes), finish_name(g->finish));
	if (!o->verbose)
		return;
	say("recordings %u prefill, %u decode; submits %u, %u prefill, %u decode",
		g->prefill_recordings, g->decode_recordings, g->submits, g->prefill_submits,
		g->decode_submits);
	say("prefill %.3f s, decode %.3f s, CPU time %.3f s; %zu of the prompt reused, %zu tokens "
	    "in "
	    "the KV cache; a step reads %s",
		g->prefill_seconds, g->decode_seconds, g->host_cpu_seconds, g->n_reused,
		g->kv_tokens, bytes_text(g->step_bytes));
}

static void print_banner(const struct options *o, const struct lap_model_info *m)
{
	const struct lap_device *d = m->device;
	if (d)
		say("device %u: %s (%s)", d->index, d->name, d->driver);
	else
		say("device: %s, the plain C reference", m->device_name);
	if (d && d->type == LAP_DEVICE_CPU)
		say("notice: this is a software device: it computes on the CPU");
	if (!o->model && !o->prompt && !o->file)
		say("no -m and no -p: the built-in demo model continues its own prompt (see "
		    "--help)");
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static int print_json(const struct lap_model_info *m, const struct stream *s, const int32_t *prompt,
	size_t n_prompt, const struct lap_generation *g)
{
	json_t *usage = json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)g->n_prompt,
		"completion_tokens", (json_int_t)g->n_generated, "total_tokens",
		(json_int_t)(g->n_prompt + g->n_generated));
	json_t *timings = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "load_ms",
		1e3 * m->load_seconds, "prompt_ms", 1e3 * g->prefill_seconds, "prompt_per_second",
		prefill_rate(g), "first_token_ms", 1e3 * g->first_token_seconds, "predicted_ms",
		1e3 * g->decode_seconds, "predicted_per_second", decode_rate(g), "gb_per_second",
		bandwidth(g), "host_cpu_ms", 1e3 * g->host_cpu_seconds);
	json_t *recordings = json_pack("{s:I, s:I}", "prefill", (json_int_t)g->prefill_recordings,
		"decode", (json_int_t)g->decode_recordings);
	json_t *submits = json_pack("{s:I, s:I, s:I}", "total", (json_int_t)g->submits, "prefill",
		(json_int_t)g->prefill_submits, "decode", (json_int_t)g->decode_submits);
	const char *name = model_name(m);
	return out_json(
		json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:I}",
			"text", json_bytes(s->text.data ? s->text.data : "", s->text.n), "tokens",
			ids_json(s->ids, s->n_ids), "prompt_tokens", ids_json(prompt, n_prompt),
			"finish_reason", finish_name(g->finish), "usage", usage, "timings", timings,
			"device", json_bytes(m->device_name, strlen(m->device_name)), "model",
			json_bytes(name, strlen(name)), "seed", (json_int_t)g->seed,
			"reused_tokens", (json_int_t)g->n_reused, "recordings", recordings,
			"submits", submits, "device_bytes", (json_int_t)g->device_bytes,
			"kv_tokens", (json_int_t)g->kv_tokens));
}

/* ---- command --------------------------------------------------------------------------------- */

static struct lap_generate_options generate_options(
	const struct options *o, const struct sampling *sampling)
{
	return (struct lap_generate_options){
		.sampling = sampling->p,
		.n_predict = o->n_predict,
		.ignore_eos = o->ignore_eos,
		.special = o->special,
	};
}

/* In a conversation the answer is what was asked for; its prompt is made of control tokens. */
static bool shows_prompt(const struct options *o, const struct prompt *p)
{
	return o->display_prompt && (!p->chat || o->special);
}

static enum lap_status generate(
	const struct options *o, struct lap_model *model, struct prompt *p, struct lap_error *err)
{
	struct stream s = {.json = o->json, .last = '\n'};
	struct lap_generation g = {0};
	struct lap_session *session = NULL;
	const struct lap_session_options session_options = source_session(o);
	struct sampling sampling;

	enum lap_status status = sampling_from_options(o, &sampling, err);
	const struct lap_generate_options options = generate_options(o, &sampling);
	if (!status)
		status = encode_prompt(o, model, p, err);
	if (!status)
		status = lap_session_create(model, &session_options, &session, err);
	if (!status) {
		interrupt_session(session);
		if (interrupted()) /* before there was a session to cancel */
			status = fail(err, LAP_ERROR, "interrupted");
	}
	if (!status) {
		if (!o->json) {
			print_banner(o, lap_model_info(model));
			if (shows_prompt(o, p))
				write_text(&s, p->text.data, p->text.n);
		}
		status = lap_generate(session, p->ids, p->n, &options, take_token, &s, &g, err);
	}
	interrupt_session(NULL);
	if (!status && s.out_of_memory)
		status = fail_memory(err, "the generated text", s.text.n);
	if (!o->json && s.last != '\n') /* so that what follows starts a line of the terminal */
		fputc('\n', stderr);
	if (!status && o->json)
		status = (enum lap_status)print_json(lap_model_info(model), &s, p->ids, p->n, &g);
	else if (!status && out_flush()) /* whoever stopped reading wants no statistics either */
		print_statistics(o, lap_model_info(model), &g);
	lap_session_destroy(session);
	sampling_release(&sampling);
	free(s.ids);
	text_free(&s.text);
	return status;
}

int command_generate(const struct options *o)
{
	struct lap_error err = {0};
	struct prompt prompt = {0};
	struct lap_model *model = NULL;
	enum lap_status status = read_prompt(o, &prompt, &err);
	interrupt_install(); /* after the text, for which a terminal may keep us waiting */
	if (!status)
		status = source_model(o, SOURCE_MODEL, &model, &err);
	if (!status)
		status = generate(o, model, &prompt, &err);
	lap_model_close(model);
	prompt_release(&prompt);
	if (interrupted() && (!status || status == LAP_ERROR))
		return STATUS_INTERRUPTED;
	return status ? report(&err) : LAP_OK;
}
