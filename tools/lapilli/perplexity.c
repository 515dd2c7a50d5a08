/* `lapilli perplexity`: how well a model predicts a text, and how far it is from one that did before. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "divergence.h"
#include "logits_file.h"
#include "progress.h"
#include "score.h"
#include "signals.h"
#include "source.h"

struct run {
	const struct options *o;
	struct lap_model *model;
	struct lap_session *session;
	struct windows windows;
	struct logits_writer writer; /* of --save-all-logits; row NULL: none */
	struct logits_reader base;   /* of --kl-divergence; log_probs NULL: none */
	struct divergence divergence;
	struct sample nll;
	double *running;        /* [windows.n], the perplexity behind each */
	uint32_t n_done;        /* windows */
	const int32_t *tokens;  /* of the window in work */
	enum lap_status status; /* of its rows */
	struct lap_error err;
};

/* ---- one window ------------------------------------------------------------------------------ */

static enum lap_status take_row(struct run *r, uint32_t i, const float *logits)
{
	const uint32_t n_vocab = lap_model_info(r->model)->n_vocab;
	const int32_t token = r->tokens[i + 1];
	const struct row row = {logits, logits_log_sum(logits, n_vocab)};
	if (isnan(row.log_sum))
		return fail(&r->err, LAP_ERROR,
			"the logits after token %u of window %u are not numbers: the weights are "
			"damaged, or this device computes wrong results (lapilli validate tells)",
			(unsigned)i, (unsigned)r->n_done + 1);
	sample_add(&r->nll, row.log_sum - (double)logits[token]);
	if (r->writer.row)
		logits_file_append(&r->writer, logits, row.log_sum);
	if (!r->base.log_probs)
		return LAP_OK;
	const struct row base = {logits_file_row(&r->base, r->n_done, i - r->windows.first), 0};
	if (!divergence_add(&r->divergence, &base, LOGITS_FILE_LEAST, &row, n_vocab, token))
		return fail_memory(&r->err, "the figures of tokens", r->divergence.kl.n);
	return LAP_OK;
}

static bool take_rows(void *user, size_t first, size_t n, const float *logits)
{
	struct run *r = user;
	const uint32_t n_vocab = lap_model_info(r->model)->n_vocab;
	for (size_t i = 0; i < n && first + i + 1 < r->windows.n_ctx && !r->status; i++)
		r->status = take_row(r, (uint32_t)(first + i), logits_row(logits, n_vocab, i));
	return !r->status;
}

static enum lap_status score_window(struct run *r, struct lap_error *err)
{
	const struct windows *w = &r->windows;
	r->tokens = windows_get(&r->windows, r->n_done);
	lap_session_clear(r->session);
	enum lap_status status = lap_session_each_logits(
		r->session, r->tokens, w->n_ctx, w->first, take_rows, r, err);
	if (!status && r->status) {
		*err = r->err;
		status = r->status;
	}
	return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static enum lap_status score(struct run *r, struct lap_error *err)
{
	const struct windows *w = &r->windows;
	enum lap_status status = LAP_OK;
	r->running = array_alloc(w->n, sizeof *r->running);
	if (!r->running)
		return fail_memory(err, "the running value", w->n * sizeof *r->running);
	struct progress progress = progress_start("scoring", "tok");
	while (r->n_done < w->n && !status && !interrupted()) {
		status = score_window(r, err);
		if (status)
			break;
		r->running[r->n_done++] = exp(r->nll.mean);
		progress_clear(&progress);
		if (!r->o->json)
			out_printf("[%u]%.4f,", (unsigned)r->n_done, r->running[r->n_done - 1]);
		out_flush();
		progress_show(&progress, (double)r->n_done * w->n_ctx, (double)w->n * w->n_ctx);
	}
	progress_clear(&progress);
	if (r->n_done && !r->o->json)
		out_write("\n", 1);
	return status;
}

static json_t *result_json(struct run *r)
{
	const double ppl = exp(r->nll.mean);
	json_t *json = json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "perplexity", ppl,
		"perplexity_error", ppl * sample_error(&r->nll), "nll", r->nll.mean, "tokens",
		(json_int_t)r->nll.n, "windows", (json_int_t)r->n_done, "n_ctx",
		(json_int_t)r->windows.n_ctx, "n_text", (json_int_t)r->windows.n_tokens);
	json_t *running = json_array();
	for (uint32_t i = 0; i < r->n_done; i++)
		json_array_append_new(running, json_real(r->running[i]));
	json_object_set_new(json, "running", running);
	const struct lap_model_info *info = lap_model_info(r->model);
	json_object_set_new(json, "model", json_bytes(info->path, strlen(info->path)));
	json_object_set_new(
		json, "device", json_bytes(info->device_name, strlen(info->device_name)));
	json_object_set_new(
		json, "kl", r->base.log_probs ? divergence_json(&r->divergence) : json_null());
	return json;
}

/* The windows so far: a text that was interrupted has a perplexity, too. */
static enum lap_status say_result(struct run *r)
{
	const double ppl = exp(r->nll.mean);
	if (r->nll.n < 1)
		return LAP_OK;
	if (r->o->json)
		return (enum lap_status)out_json(result_json(r));
	out_printf("Final estimate: PPL = %.4f +/- %.5f\n", ppl, ppl * sample_error(&r->nll));
	if (r->base.log_probs)
		divergence_print(&r->divergence);
	return LAP_OK;
}

/* ---- what is scored -------------------------------------------------------------------------- */

/* The windows of the base; a text beside it must be the one that the base was made of. */
static enum lap_status take_base(struct run *r, struct lap_error *err)
{
	const struct options *o = r->o;
	enum lap_status status = logits_file_open(o->logits_base, r->model, &r->base, err);
	if (status)
		return status;
	uint32_t n = r->base.n_windows;
	if (o->chunks > 0 && o->chunks < (int64_t)n)
		n = (uint32_t)o->chunks;
	int32_t *tokens = logits_file_tokens(&r->base);
	if (!tokens)
		return fail_memory(err, "the tokens of a text", (uint64_t)n * r->base.n_ctx * 4);
	if (o->window && o->window != r->base.n_ctx) {
		status = fail(err, LAP_USAGE, "-c %lld: the windows of %s have %u tokens",
			(long long)o->window, o->logits_base, (unsigned)r->base.n_ctx);
	} else if (o->file) {
		struct options own = *o;
		struct windows text = {0};
		own.window = r->base.n_ctx;
		own.chunks = n;
		status = windows_open(&own, r->model, &text, err);
		if (!status &&
			(text.n < n ||
				memcmp(text.tokens, tokens,
					(size_t)n * text.n_ctx * sizeof *tokens) != 0))
			status = fail(err, LAP_USAGE,
				"%s was not made of %s with these tokens: leave out -f, the base "
				"has the text in it",
				o->logits_base, o->file);
		windows_free(&text);
	}
	if (!status)
		return windows_take(r->model, tokens, n, r->base.n_ctx, &r->windows, err);
	free(tokens);
	return status;
}

static enum lap_status open_run(struct run *r, struct lap_error *err)
{
	const struct options *o = r->o;
	enum lap_status status = LAP_OK;
	if (o->kl_divergence && !o->logits_base)
		return fail(err, LAP_USAGE,
			"--kl-divergence needs --kl-divergence-base FILE, which a run without "
			"--kl-divergence writes");
	if (o->logits_base && o->ppl_stride)
		return fail(err, LAP_USAGE,
			"--ppl-stride and --kl-divergence-base do not go together: the file has "
			"windows side by side");
	status = source_model(o, SOURCE_MODEL, &r->model, err);
	if (!status)
		status = o->kl_divergence ? take_base(r, err)
					  : windows_open(o, r->model, &r->windows, err);
	if (!status)
		status = windows_session(o, r->model, &r->windows, &r->session, err);
	if (!status && o->logits_base && !o->kl_divergence)
		status = logits_file_create(o->logits_base, &r->windows,
			lap_model_info(r->model)->n_vocab, &r->writer, err);
	return status;
}

int command_perplexity(const struct options *o)
{
	struct run r = {.o = o};
	struct lap_error err = {0}, unwritten;
	interrupt_install();
	enum lap_status status = open_run(&r, &err);
	interrupt_session(r.session);
	if (!status)
		status = score(&r, &err);
	interrupt_session(NULL);
	if ((!status || interrupted()) && r.running)
		say_result(&r);
	if (logits_file_close(&r.writer, !status && !interrupted(), status ? &unwritten : &err) &&
		!status)
		status = err.status;
	free(r.running);
	divergence_free(&r.divergence);
	logits_file_release(&r.base);
	windows_free(&r.windows);
	lap_session_destroy(r.session);
	lap_model_close(r.model);
	if (interrupted())
		return interrupt_status();
	return status ? report(&err) : LAP_OK;
}
