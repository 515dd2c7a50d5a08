/* `lapilli generate`: a prompt in, text out as it comes, and what it cost on standard error. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
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

static enum lap_status encode_prompt(const struct options *o, const struct lap_model *model,
	const struct text *text, bool given, int32_t **ids, size_t *n, struct lap_error *err)
{
	const struct lap_model_info *m = lap_model_info(model);
	if (!given && !m->add_bos)
		return fail(err, LAP_USAGE,
			"a prompt is needed (-p TEXT or -f FILE): %s does not begin texts with a "
			"token",
			o->model);
	enum lap_status status =
		lap_tokenize(model, text->data ? text->data : "", text->n, true, true, ids, n, err);
	if (status)
		return status;
	/* The end that a model wants behind complete texts is none that a prompt should have. */
	if (m->add_eos && *n > 0 && (*ids)[*n - 1] == m->eos)
		--*n;
	if (*n == 0)
		return fail(err, LAP_USAGE,
			"the prompt is empty and the model begins texts with no token: it needs -p "
			"TEXT or -f FILE");
	if (m->add_bos && *n > 1 && (*ids)[0] == m->bos && (*ids)[1] == m->bos)
		say("warning: the prompt begins with the model's BOS token, and the model adds "
		    "another");
	return LAP_OK;
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

static struct lap_generate_options generate_options(const struct options *o)
{
	return (struct lap_generate_options){
		.sampling =
			{
				.temperature = (float)o->temperature,
				.top_k = (int32_t)o->top_k,
				.top_p = (float)o->top_p,
				.min_p = (float)o->min_p,
				.repeat_penalty = (float)o->repeat_penalty,
				.presence_penalty = (float)o->presence_penalty,
				.frequency_penalty = (float)o->frequency_penalty,
				.repeat_last_n = (int32_t)o->repeat_last_n,
				.seed = o->seed < 0 ? LAP_SEED_RANDOM : (uint64_t)o->seed,
			},
		.n_predict = o->n_predict,
		.ignore_eos = o->ignore_eos,
		.special = o->special,
	};
}

static enum lap_status generate(const struct options *o, struct lap_model *model,
	const struct text *text, bool given, struct lap_error *err)
{
	int32_t *prompt = NULL;
	size_t n_prompt = 0;
	struct stream s = {.json = o->json, .last = '\n'};
	struct lap_generation g = {0};
	struct lap_session *session = NULL;
	const struct lap_session_options session_options = source_session(o);
	const struct lap_generate_options options = generate_options(o);

	enum lap_status status = encode_prompt(o, model, text, given, &prompt, &n_prompt, err);
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
			if (o->display_prompt)
				write_text(&s, text->data, text->n);
		}
		status = lap_generate(session, prompt, n_prompt, &options, take_token, &s, &g, err);
	}
	interrupt_session(NULL);
	if (!status && s.out_of_memory)
		status = fail_memory(err, "the generated text", s.text.n);
	if (!o->json && s.last != '\n') /* so that what follows starts a line of the terminal */
		fputc('\n', stderr);
	if (!status && o->json)
		status = (enum lap_status)print_json(
			lap_model_info(model), &s, prompt, n_prompt, &g);
	else if (!status && out_flush()) /* whoever stopped reading wants no statistics either */
		print_statistics(o, lap_model_info(model), &g);
	lap_session_destroy(session);
	lap_free(prompt);
	free(s.ids);
	text_free(&s.text);
	return status;
}

int command_generate(const struct options *o)
{
	struct lap_error err = {0};
	struct text text = {0};
	struct lap_model *model = NULL;
	bool given;
	enum lap_status status = source_text(o, &text, &given, &err);
	if (!status && !given && !o->model) {
		given = true;
		if (!text_append(&text, demo_prompt, strlen(demo_prompt)))
			status = fail_memory(&err, "the prompt", sizeof demo_prompt);
	}
	interrupt_install(); /* after the text, for which a terminal may keep us waiting */
	if (!status)
		status = source_model(o, SOURCE_MODEL, &model, &err);
	if (!status)
		status = generate(o, model, &text, given, &err);
	lap_model_close(model);
	text_free(&text);
	if (interrupted() && (!status || status == LAP_ERROR))
		return STATUS_INTERRUPTED;
	return status ? report(&err) : LAP_OK;
}
