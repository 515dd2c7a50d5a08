/* Beam search: see beams.h. */
#include "beams.h"

#include <string.h>

#include "answer.h"
#include "console.h"
#include "signals.h"
#include "source.h"

enum { MOST_TOP = 64 }; /* best tokens of each beam that a step can list */

enum lap_status beams_check(const struct options *o, struct lap_error *err)
{
	const struct {
		bool given;
		const char *name;
	} strangers[] = {
		{o->prompts_file != NULL, "--prompts-file"},
		{o->prompts.n > 1 || o->files.n > 1, "more than one -p or -f"},
		{o->stop.n > 0, "--stop"},
		{o->ban.n > 0, "--ban"},
		{o->logprobs >= 0, "--logprobs"},
		{o->context_overflow != LAP_OVERFLOW_STOP, "--context-overflow"},
		{o->grammar || o->grammar_file, "--grammar"},
		{o->json_schema || o->json_schema_file, "--json-schema"},
		{o->draft_model || o->draft_ngram, "--draft-model and --draft-ngram"},
		{o->samplers != NULL, "--samplers"},
		{o->mirostat != 0, "--mirostat"},
		{o->logit_bias.n > 0, "--logit-bias"},
		{o->n_predict == 0, "-n 0"},
	};
	if (!o->beams)
		return LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(strangers); i++)
		if (strangers[i].given)
			return fail(err, LAP_USAGE,
				"%s is not for --beams: a search goes by the model's own "
				"log-probabilities and ends with tokens",
				strangers[i].name);
	return o->num_return > o->beams
		? fail(err, LAP_USAGE,
			  "--num-return: found %lld, expected at most the %lld of "
			  "--beams",
			  (long long)o->num_return, (long long)o->beams)
		: LAP_OK;
}

/* The text behind a prompt: what all tokens say without what the prompt's say. */
static enum lap_status beam_text(const struct lap_model *model, const struct prompt *p,
	const struct lap_beam *beam, bool special, struct text *text, struct lap_error *err)
{
	char *whole = NULL, *head = NULL;
	size_t n_whole, n_head, n = beam->n;
	if (n && beam->finish == LAP_FINISH_STOP && !special)
		n--; /* the token that ends it */
	int32_t *ids = array_alloc(p->n + n, sizeof *ids);
	if (!ids)
		return fail_memory(err, "a text", (p->n + n) * sizeof *ids);
	memcpy(ids, p->ids, p->n * sizeof *ids);
	memcpy(ids + p->n, beam->tokens, n * sizeof *ids);
	enum lap_status status =
		lap_detokenize(model, ids, p->n + n, special, &whole, &n_whole, err);
	if (!status)
		status = lap_detokenize(model, ids, p->n, special, &head, &n_head, err);
	if (!status && !text_append(text, whole + n_head, n_whole - n_head))
		status = fail_memory(err, "a text", n_whole);
	lap_free(whole);
	lap_free(head);
	lap_free(ids);
	return status;
}

static json_t *beam_json(const struct lap_beam *beam, const struct text *text)
{
	return json_pack("{s:o, s:o, s:s, s:f, s:f}", "text", json_bytes(text->data, text->n),
		"tokens", json_ids(beam->tokens, beam->n), "finish_reason",
		finish_name(beam->finish), "log_prob", (double)beam->log_prob, "score",
		(double)beam->score);
}

static enum lap_status print_json(const struct lap_model *model, const struct prompt *p,
	const struct lap_beam *beams, size_t n, const struct text *texts,
	const struct lap_generation *g)
{
	struct lap_generation best = *g;
	best.finish = beams[0].finish;
	best.n_generated = beams[0].n;
	const struct answer a = {.model = model,
		.text = texts[0],
		.ids = (int32_t *)(uintptr_t)beams[0].tokens,
		.n_ids = beams[0].n};
	json_t *object = answer_json(&a, p->ids, p->n, &best), *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, beam_json(&beams[i], &texts[i]));
	if (!object || json_object_set_new(object, "beams", list)) {
		json_decref(object);
		object = NULL;
	}
	return (enum lap_status)out_json(object);
}

static void print_texts(const struct prompt *p, bool show_prompt, const struct lap_beam *beams,
	size_t n, const struct text *texts)
{
	for (size_t i = 0; i < n; i++) {
		if (n > 1)
			out_printf("%s==> beam %zu (%s, score %.4f) <==\n", i ? "\n\n" : "", i + 1,
				finish_name(beams[i].finish), (double)beams[i].score);
		if (show_prompt && p->text.n)
			out_write(p->text.data, p->text.n);
		out_write(texts[i].data, texts[i].n);
	}
	out_flush();
}

enum lap_status beams_generate(const struct options *o, struct lap_model *model, struct prompt *p,
	bool show_prompt, struct lap_error *err)
{
	const struct lap_beam_options options = {
		.n_beams = (uint32_t)o->beams,
		.length_penalty = (float)o->length_penalty,
		.early_stopping = (enum lap_early_stopping)o->early_stopping,
		.n_return = (uint32_t)o->num_return,
		.n_predict = o->n_predict < 0 ? LAP_UNTIL_END : o->n_predict,
		.min_tokens = (uint32_t)o->min_tokens,
		.ignore_eos = o->ignore_eos || o->n_predict == LAP_UNTIL_FULL,
		.stop_tokens = o->stop_token.ids,
		.n_stop_tokens = o->stop_token.n,
		.max_seconds = o->time_limit,
	};
	struct lap_session_options so = {.n_top = MOST_TOP};
	struct lap_session *session = NULL;
	struct lap_generation g = {0};
	struct lap_beam *beams = NULL;
	size_t n = 0;
	struct text texts[32] = {{0}};
	enum lap_status status = source_sequences(o, model, (uint32_t)o->beams, &so, err);
	if (!status)
		status = lap_session_create(model, &so, &session, err);
	if (!status) {
		interrupt_session(session);
		if (!o->json)
			answer_banner(lap_model_info(model));
		status = interrupted()
			? fail(err, LAP_ERROR, "interrupted")
			: lap_beam_search(session, p->ids, p->n, &options, &beams, &n, &g, err);
	}
	interrupt_session(NULL);
	for (size_t i = 0; i < n && !status; i++) {
		status = text_append(&texts[i], "", 0)
			? beam_text(model, p, &beams[i], o->special, &texts[i], err)
			: fail_memory(err, "a text", 1);
	}
	if (!status && n && o->json)
		status = print_json(model, p, beams, n, texts, &g);
	else if (!status && n) {
		print_texts(p, show_prompt, beams, n, texts);
		say("%s",
			texts[n - 1].n && texts[n - 1].data[texts[n - 1].n - 1] == '\n' ? ""
											: "\n");
		answer_statistics(lap_model_info(model), &g, o->verbose);
	} else if (!status)
		status = fail(err, LAP_ERROR, "interrupted before there was a text");
	for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
		text_free(&texts[i]);
	lap_free(beams);
	lap_session_destroy(session);
	return status;
}
