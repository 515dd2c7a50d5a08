/* Options into struct lap_generate_options. */
#include "request_options.h"

#include <string.h>

#include "base.h"
#include "source.h"

/* The grammar or schema, of which there may be one. */
static enum lap_status take_form(
	const struct options *o, struct request_options *r, struct lap_error *err)
{
	static const char *const names[] = {
		"--grammar", "--grammar-file", "--json-schema", "--json-schema-file"};
	const char *const given[] = {
		o->grammar, o->grammar_file, o->json_schema, o->json_schema_file};
	size_t n = 0, form[2] = {0};
	for (size_t i = 0; i < ARRAY_COUNT(given); i++)
		if (given[i] && n < 2)
			form[n++] = i;
	if (n == 0)
		return LAP_OK;
	if (n > 1)
		return fail(err, LAP_USAGE, "found %s and %s, expected one of them", names[form[0]],
			names[form[1]]);
	const char *text = given[form[0]];
	if (form[0] % 2) {
		enum lap_status status = file_read(text, &r->form, err);
		if (status)
			return status;
		if (memchr(r->form.data ? r->form.data : "", '\0', r->form.n))
			return fail(err, LAP_USAGE, "%s has a NUL, expected text", text);
		text = r->form.data ? r->form.data : "";
	}
	*(form[0] < 2 ? &r->o.grammar : &r->o.json_schema) = text;
	return LAP_OK;
}

enum lap_status request_options_set(
	const struct options *o, struct request_options *r, struct lap_error *err)
{
	*r = (struct request_options){.stops = NULL};
	enum lap_status status = sampling_from_options(o, &r->sampling, err);
	if (!status && o->logprobs >= 0 && !o->json && !o->json_lines)
		status = fail(err, LAP_USAGE,
			"--logprobs needs --json or --jsonl, which have a place for them");
	if (!status && o->n_keep && o->context_overflow != LAP_OVERFLOW_SHIFT)
		status = fail(err, LAP_USAGE,
			"--keep is for --context-overflow shift, the only one that keeps tokens");
	if (!status && o->escape)
		status = source_unescape_list(&o->stop, &r->stops, err);
	r->o = (struct lap_generate_options){
		.sampling = r->sampling.p,
		.n_predict = o->n_predict,
		.ignore_eos = o->ignore_eos,
		.special = o->special,
		.min_tokens = (uint32_t)o->min_tokens,
		.stop_tokens = o->stop_token.ids,
		.n_stop_tokens = o->stop_token.n,
		.banned = o->ban.ids,
		.n_banned = o->ban.n,
		.stops = r->stops ? (const char *const *)r->stops : o->stop.texts,
		.n_stops = o->stop.n,
		.max_seconds = o->time_limit,
		.n_top = o->logprobs > 0 ? (uint32_t)o->logprobs : 0,
		.overflow = (enum lap_overflow)o->context_overflow,
		.n_keep = (uint32_t)o->n_keep,
	};
	return status ? status : take_form(o, r, err);
}

void request_options_release(struct request_options *r)
{
	source_free_list(r->stops, r->o.n_stops);
	text_free(&r->form);
	sampling_release(&r->sampling);
	*r = (struct request_options){.stops = NULL};
}
