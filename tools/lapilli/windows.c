/* Windows of a text: see windows.h. */
#include "windows.h"

#include <stdlib.h>
#include <string.h>

#include "source.h"

#define DEFAULT_WINDOW 512 /* tokens, as llama.cpp's perplexity has them */
#define LEAST_WINDOW   8 /* the second half is scored: what stands before it must mean something */

static enum lap_status finish(
	const struct lap_model *model, struct windows *w, struct lap_error *err)
{
	const struct lap_model_info *info = lap_model_info(model);
	w->bos = info->add_bos ? info->bos : -1;
	w->window = array_alloc(w->n_ctx, sizeof *w->window);
	return w->window ? LAP_OK : fail_memory(err, "a window", w->n_ctx * sizeof *w->window);
}

static enum lap_status cut(const struct options *o, const struct lap_model *model,
	struct windows *w, struct lap_error *err)
{
	const struct lap_model_info *info = lap_model_info(model);
	const uint32_t stride = (uint32_t)o->ppl_stride;
	uint32_t n_ctx = (uint32_t)o->window;
	if (n_ctx == 0)
		n_ctx = info->n_ctx_train < DEFAULT_WINDOW ? info->n_ctx_train : DEFAULT_WINDOW;
	if (n_ctx < LEAST_WINDOW)
		return fail(err, LAP_USAGE, "-c: windows of %u tokens, expected at least %d",
			(unsigned)n_ctx, LEAST_WINDOW);
	w->n_ctx = n_ctx + stride / 2;
	if (stride >= w->n_ctx)
		return fail(err, LAP_USAGE,
			"--ppl-stride %u is too long for windows of %u tokens: each would score "
			"more than it has (-c)",
			(unsigned)stride, (unsigned)w->n_ctx);
	w->step = stride ? stride : w->n_ctx;
	w->first = stride ? w->n_ctx - stride - 1 : w->n_ctx / 2;
	const size_t least = stride ? w->n_ctx + (size_t)1 : w->n_ctx;
	if (w->n_tokens < least)
		return fail(err, LAP_USAGE,
			"the text has %zu tokens, and a window needs %zu: a longer text, or a "
			"smaller -c",
			w->n_tokens, least);
	const size_t n =
		stride ? (w->n_tokens - w->n_ctx + stride - 1) / stride : w->n_tokens / w->n_ctx;
	const size_t most = o->chunks > 0 ? (size_t)o->chunks : UINT32_MAX;
	w->n = (uint32_t)(n < most ? n : most);
	return finish(model, w, err);
}

enum lap_status windows_open(const struct options *o, const struct lap_model *model,
	struct windows *w, struct lap_error *err)
{
	struct text text = {0};
	bool given;
	*w = (struct windows){.tokens = NULL};
	enum lap_status status = source_text(o, &text, &given, err);
	if (!status && !given)
		status = fail(err, LAP_USAGE, "a text to score is needed: -f FILE");
	if (!status)
		status = lap_tokenize(model, source_bytes(&text).text, text.n, true, false,
			&w->tokens, &w->n_tokens, err);
	text_free(&text);
	if (!status)
		status = cut(o, model, w, err);
	if (status)
		windows_free(w);
	return status;
}

enum lap_status windows_take(const struct lap_model *model, int32_t *tokens, uint32_t n,
	uint32_t n_ctx, struct windows *w, struct lap_error *err)
{
	*w = (struct windows){.tokens = tokens,
		.n_tokens = (size_t)n * n_ctx,
		.n = n,
		.n_ctx = n_ctx,
		.step = n_ctx,
		.first = n_ctx / 2};
	enum lap_status status = finish(model, w, err);
	if (status)
		windows_free(w);
	return status;
}

void windows_free(struct windows *w)
{
	lap_free(w->tokens);
	free(w->window);
	*w = (struct windows){.tokens = NULL};
}

const int32_t *windows_get(struct windows *w, uint32_t i)
{
	memcpy(w->window, w->tokens + (size_t)i * w->step, w->n_ctx * sizeof *w->window);
	if (w->bos >= 0)
		w->window[0] = w->bos;
	return w->window;
}

uint32_t windows_scored(const struct windows *w)
{
	return w->n_ctx - 1 - w->first;
}

enum lap_status windows_session(const struct options *o, struct lap_model *model,
	const struct windows *w, struct lap_session **session, struct lap_error *err)
{
	struct lap_session_options options = source_session(o);
	options.n_ctx = w->n_ctx;
	options.logits_all = true;
	enum lap_status status = lap_session_create(model, &options, session, err);
	if (status || lap_session_n_ctx(*session) >= w->n_ctx)
		return status;
	const uint32_t n = lap_session_n_ctx(*session);
	lap_session_destroy(*session);
	*session = NULL;
	return fail(err, LAP_USAGE, "the model has %u positions, and a window %u tokens: -c %u",
		(unsigned)n, (unsigned)w->n_ctx, (unsigned)n);
}
