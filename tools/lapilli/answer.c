/* Texts, tokens and statistics: see answer.h. */
#include "answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "signals.h"

static bool keep_id(struct answer *a, int32_t id)
{
	if (a->n_ids == a->capacity) {
		size_t capacity = a->capacity ? 2 * a->capacity : 256;
		int32_t *ids = realloc(a->ids, capacity * sizeof *ids);
		if (!ids)
			return false;
		a->ids = ids;
		a->capacity = capacity;
	}
	a->ids[a->n_ids++] = id;
	return true;
}

/* A token and its log-probability, as in OpenAI's API: the text, its bytes, and the id besides. */
static json_t *probability_json(const struct lap_model *model, int32_t id, float log_prob)
{
	size_t n;
	const char *text = lap_token_text(model, id, &n);
	json_t *bytes = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(bytes, json_integer((unsigned char)text[i]));
	/* JSON has no infinity: what can never be drawn. */
	json_t *value = isfinite(log_prob) ? json_real((double)log_prob) : json_null();
	return json_pack("{s:i, s:o, s:o, s:o}", "id", (int)id, "token",
		json_bytes(text ? text : "", n), "bytes", bytes, "logprob", value);
}

static bool keep_probabilities(struct answer *a, const struct lap_token *token)
{
	if (!a->probabilities)
		a->probabilities = json_array();
	json_t *object = probability_json(a->model, token->id, token->log_prob);
	json_t *best = json_array();
	for (uint32_t i = 0; i < token->n_top; i++)
		json_array_append_new(best,
			probability_json(a->model, token->top[i].token, token->top[i].log_prob));
	bool kept = object && json_array_size(best) == token->n_top;
	if (kept)
		kept = json_object_set_new(object, "top_logprobs", best) == 0;
	else
		json_decref(best);
	return json_array_append_new(a->probabilities, object) == 0 && kept;
}

/* Which of several this is. */
static void label(const struct answer *a, json_t *object)
{
	if (object && a->counted)
		json_object_set_new(object, a->counted, json_integer((json_int_t)a->number));
}

/* A line for a token, as soon as it is there; the text that comes without one has no id. */
static bool print_line(const struct answer *a, const struct lap_token *token)
{
	json_t *line =
		json_pack("{s:o, s:o}", "id", token->id < 0 ? json_null() : json_integer(token->id),
			"text", json_bytes(token->text, token->n_bytes));
	label(a, line);
	if (line && a->logprobs && token->id >= 0) {
		const json_t *last =
			json_array_get(a->probabilities, json_array_size(a->probabilities) - 1);
		json_object_set(line, "logprob", json_object_get(last, "logprob"));
		json_object_set(line, "top_logprobs", json_object_get(last, "top_logprobs"));
	}
	return out_json(line) == LAP_OK && out_flush();
}

static bool write_text(struct answer *a, const char *text, size_t n_bytes)
{
	if (n_bytes == 0)
		return true;
	a->last = text[n_bytes - 1];
	return out_write(text, n_bytes) && out_flush();
}

bool answer_prompt(void *user, size_t n_done, size_t n)
{
	struct answer *a = user;
	if (n_done < n) /* else the text comes */
		progress_show(&a->progress, (double)n_done, (double)n);
	return true;
}

bool answer_begin(struct answer *a)
{
	const struct text *prompt = a->prompt;
	progress_clear(&a->progress);
	a->prompt = NULL;
	return !prompt || write_text(a, prompt->data, prompt->n);
}

bool answer_take(void *user, const struct lap_token *token)
{
	struct answer *a = user;
	if (token->id < 0 && interrupted()) /* half a character that ^C cut off */
		return false;
	if (!answer_begin(a))
		return false;
	if (a->streamed)
		return write_text(a, token->text, token->n_bytes) && !interrupted();
	bool kept = text_append(&a->text, token->text, token->n_bytes);
	if (kept && token->id >= 0)
		kept = keep_id(a, token->id) && (!a->logprobs || keep_probabilities(a, token));
	a->out_of_memory |= !kept;
	if (kept && a->lines && !print_line(a, token))
		return false;
	return kept && !interrupted();
}

void answer_release(struct answer *a)
{
	json_decref(a->probabilities);
	free(a->ids);
	text_free(&a->text);
	*a = (struct answer){0};
}

/* ---- statistics ------------------------------------------------------------------------------ */

const char *finish_name(enum lap_finish finish)
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
	return n_end < g->n_reused ? 0
				   : per_second((double)(n_end - g->n_reused), g->prefill_seconds);
}

static double bandwidth(const struct lap_generation *g) /* GB/s */
{
	return (double)g->step_bytes * decode_rate(g) / 1e9;
}

const char *model_name(const struct lap_model_info *m)
{
	const char *slash = strrchr(m->path, '/');
	return m->name && *m->name ? m->name : slash ? slash + 1 : m->path;
}

static double thread_per_token(const struct lap_generation *g) /* ms */
{
	return g->n_generated ? 1e3 * g->host_thread_seconds / (double)g->n_generated : 0;
}

static double acceptance(const struct lap_generation *g) /* share of the guesses */
{
	return per_second((double)g->n_accepted, (double)g->n_drafted);
}

void answer_drafts(const struct lap_generation *g)
{
	if (g->n_drafted)
		say("%zu of %zu guesses accepted (%.1f %%)", g->n_accepted, g->n_drafted,
			100 * acceptance(g));
}

void answer_statistics(const struct lap_model_info *m, const struct lap_generation *g, bool verbose)
{
	say("lapilli %s: %s (%s, %s) on %s, seed %llu", lap_version(), model_name(m),
		m->architecture, bytes_text(m->weight_bytes), m->device_name,
		(unsigned long long)g->seed);
	if (g->first_token_seconds > 0)
		say("load %.2f s, prompt %zu tokens at %.1f tok/s, first token after %.0f ms",
			m->load_seconds, g->n_prompt, prefill_rate(g),
			1e3 * g->first_token_seconds);
	else
		say("load %.2f s, prompt %zu tokens, no token came of it", m->load_seconds,
			g->n_prompt);
	say("generated %zu tokens at %.1f tok/s, %.2f GB/s, %s on the device (%s)", g->n_generated,
		decode_rate(g), bandwidth(g), bytes_text(g->device_bytes), finish_name(g->finish));
	if (g->n_shifts)
		say("the context was full %u times", (unsigned)g->n_shifts);
	answer_drafts(g);
	if (g->on_host && !g->n_drafted)
		say("tokens drawn on the host, one step a submit");
	if (!verbose)
		return;
	say("recordings %u prefill, %u decode; submits %u, %u prefill, %u decode; waits %u",
		g->prefill_recordings, g->decode_recordings, g->submits, g->prefill_submits,
		g->decode_submits, g->waits);
	say("prefill %.3f s, decode %.3f s, CPU time %.3f s, of it the host thread %.3f ms a token",
		g->prefill_seconds, g->decode_seconds, g->host_cpu_seconds, thread_per_token(g));
	say("%zu of the prompt reused, %zu tokens in the KV cache; a step reads %s", g->n_reused,
		g->kv_tokens, bytes_text(g->step_bytes));
}

void answer_banner(const struct lap_model_info *m)
{
	const struct lap_device *d = m->device;
	if (d)
		say("device %u: %s (%s)", d->index, d->name, d->driver);
	else
		say("device: %s, the plain C reference", m->device_name);
	if (d && d->type == LAP_DEVICE_CPU)
		say("notice: this is a software device: it computes on the CPU");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *timings_json(const struct lap_model_info *m, const struct lap_generation *g)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "load_ms",
		1e3 * m->load_seconds, "prompt_ms", 1e3 * g->prefill_seconds, "prompt_per_second",
		prefill_rate(g), "first_token_ms", 1e3 * g->first_token_seconds, "predicted_ms",
		1e3 * g->decode_seconds, "predicted_per_second", decode_rate(g), "gb_per_second",
		bandwidth(g), "host_cpu_ms", 1e3 * g->host_cpu_seconds, "host_thread_ms",
		1e3 * g->host_thread_seconds, "host_thread_ms_per_token", thread_per_token(g));
}

json_t *answer_json(const struct answer *a, const int32_t *prompt, size_t n_prompt,
	const struct lap_generation *g)
{
	const struct lap_model_info *m = lap_model_info(a->model);
	const char *name = model_name(m);
	json_t *usage = json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)g->n_prompt,
		"completion_tokens", (json_int_t)g->n_generated, "total_tokens",
		(json_int_t)(g->n_prompt + g->n_generated));
	json_t *recordings = json_pack("{s:I, s:I}", "prefill", (json_int_t)g->prefill_recordings,
		"decode", (json_int_t)g->decode_recordings);
	json_t *submits = json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)g->submits,
		"prefill", (json_int_t)g->prefill_submits, "decode", (json_int_t)g->decode_submits,
		"waits", (json_int_t)g->waits);
	json_t *object = json_pack(
		"{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:b}",
		"text", json_bytes(a->text.data ? a->text.data : "", a->text.n), "tokens",
		json_ids(a->ids, a->n_ids), "prompt_tokens", json_ids(prompt, n_prompt),
		"finish_reason", finish_name(g->finish), "usage", usage, "timings",
		timings_json(m, g), "device", json_bytes(m->device_name, strlen(m->device_name)),
		"model", json_bytes(name, strlen(name)), "seed", (json_int_t)g->seed,
		"reused_tokens", (json_int_t)g->n_reused, "recordings", recordings, "submits",
		submits, "device_bytes", (json_int_t)g->device_bytes, "kv_tokens",
		(json_int_t)g->kv_tokens, "context_shifts", (json_int_t)g->n_shifts,
		"drawn_on_host", (int)g->on_host);
	if (object && g->n_drafted)
		json_object_set_new(object, "draft",
			json_pack("{s:I, s:I, s:f}", "guessed", (json_int_t)g->n_drafted,
				"accepted", (json_int_t)g->n_accepted, "acceptance_rate",
				acceptance(g)));
	if (object && a->logprobs)
		json_object_set_new(
			object, "logprobs", json_pack("{s:O?}", "content", a->probabilities));
	label(a, object);
	return object;
}
