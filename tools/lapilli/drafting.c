/* Models that draft: see drafting.h. */
#include "drafting.h"

#include "locate.h"
#include "source.h"

uint32_t drafting_most(const struct options *o)
{
	return o->draft_model || o->draft_ngram ? (uint32_t)o->draft_max : 0;
}

enum lap_status drafting_open(const struct options *o, const struct lap_session_options *s,
	const struct lap_session *target, struct drafting *draft, struct lap_error *err)
{
	struct options own = *o;
	struct text path = {0};
	*draft = (struct drafting){.model = NULL};
	if (!o->draft_model)
		return LAP_OK;
	own.override_kv = (struct text_list){0}; /* those are the target's */
	enum lap_status status = locate_model(o->draft_model, NULL, NULL, &path, err);
	own.model = path.data ? path.data : o->draft_model;
	if (!status)
		status = source_model(&own, SOURCE_MODEL, &draft->model, err);
	struct lap_session_options options = *s;
	options.n_ctx_seq = lap_session_n_ctx(target);
	options.n_top = 0;
	options.n_draft = 0;
	if (!options.n_ctx)
		options.n_ctx = options.n_ctx_seq;
	if (!status)
		status = lap_session_create(draft->model, &options, &draft->session, err);
	text_free(&path);
	return status;
}

void drafting_close(struct drafting *draft)
{
	lap_session_destroy(draft->session);
	lap_model_close(draft->model);
	*draft = (struct drafting){.model = NULL};
}

void drafting_set(
	const struct options *o, const struct drafting *draft, struct lap_generate_options *request)
{
	request->n_draft = drafting_most(o);
	request->draft_ngram = o->draft_ngram;
	request->draft = draft->session;
}
