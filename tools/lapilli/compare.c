/* `lapilli compare`: how far two files of one model, or two devices, are apart over a text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "divergence.h"
#include "locate.h"
#include "progress.h"
#include "score.h"
#include "signals.h"
#include "source.h"
#include "windows.h"

enum { BASE, OTHER, N_SIDES };

struct side {
	struct options o; /* with the model and device of this side */
	struct text path;
	struct lap_model *model;
	struct lap_session *session;
};

struct run {
	struct side sides[N_SIDES];
	struct windows windows;
	struct divergence divergence;
	float *logits;         /* of the other side, as many rows as the base has in a piece */
	size_t capacity;       /* rows */
	const int32_t *tokens; /* of the window in work */
	enum lap_status status;
	struct lap_error err;
};

/* ---- two sides ------------------------------------------------------------------------------- */

/* One model twice: on the CPU reference and on the device asked for. Two models: both on that device, or
 * each on its own. */
static enum lap_status choose_sides(const struct options *o, struct run *r, struct lap_error *err)
{
	const size_t n_models = o->models.n, n_devices = o->devices.n;
	if (n_models > N_SIDES || n_devices > N_SIDES)
		return fail(err, LAP_USAGE, "%s: given %zu times, expected at most twice",
			n_models > N_SIDES ? "-m" : "--device",
			n_models > N_SIDES ? n_models : n_devices);
	for (size_t i = 0; i < N_SIDES; i++) {
		struct side *side = &r->sides[i];
		const char *name = n_models ? o->models.texts[i < n_models ? i : 0] : NULL;
		side->o = *o;
		enum lap_status status = locate_model(name, NULL, NULL, &side->path, err);
		if (status)
			return status;
		side->o.model = side->path.n ? side->path.data : name;
		side->o.device = n_devices ? o->devices.texts[i < n_devices ? i : 0] : NULL;
		if (i == BASE)
			side->o.activations = LAP_ACTIVATIONS_F32;
		if (n_models < N_SIDES && n_devices < N_SIDES && i == BASE)
			side->o.device = "cpu";
	}
	return LAP_OK;
}

/* Both must read the text as the same tokens. */
static enum lap_status check_vocabularies(struct run *r, struct lap_error *err)
{
	const struct lap_model_info *a = lap_model_info(r->sides[BASE].model),
				    *b = lap_model_info(r->sides[OTHER].model);
	struct windows other;
	if (a->n_vocab != b->n_vocab)
		return fail(err, LAP_USAGE,
			"%s has %u tokens, and %s has %u: only models with the same tokens can be "
			"compared",
			a->path, (unsigned)a->n_vocab, b->path, (unsigned)b->n_vocab);
	struct options own = r->sides[OTHER].o;
	own.window = r->windows.n_ctx;
	enum lap_status status = windows_open(&own, r->sides[OTHER].model, &other, err);
	if (status)
		return status;
	const bool equal = other.n_tokens == r->windows.n_tokens && other.bos == r->windows.bos &&
		memcmp(other.tokens, r->windows.tokens, other.n_tokens * sizeof *other.tokens) == 0;
	windows_free(&other);
	return equal ? LAP_OK
		     : fail(err, LAP_USAGE,
			       "%s and %s read the text as different tokens: only models with the "
			       "same tokens can be compared",
			       a->path, b->path);
}

static enum lap_status open_sides(struct run *r, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (int i = 0; i < N_SIDES && !status; i++)
		status = source_model(&r->sides[i].o, SOURCE_MODEL, &r->sides[i].model, err);
	if (!status)
		status = windows_open(&r->sides[BASE].o, r->sides[BASE].model, &r->windows, err);
	if (!status)
		status = check_vocabularies(r, err);
	for (int i = 0; i < N_SIDES && !status; i++)
		status = windows_session(
			&r->sides[i].o, r->sides[i].model, &r->windows, &r->sides[i].session, err);
	return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Room for n rows of the other side. */
static enum lap_status grow(struct run *r, size_t n, uint32_t n_vocab)
{
	if (n <= r->capacity)
		return LAP_OK;
	free(r->logits);
	r->logits = array_alloc((uint64_t)n * n_vocab, sizeof *r->logits);
	r->capacity = r->logits ? n : 0;
	return r->logits ? LAP_OK
			 : fail_memory(&r->err, "logits", (uint64_t)n * n_vocab * sizeof(float));
}

static enum lap_status compare_row(
	struct run *r, size_t i, const float *base_logits, const float *logits, uint32_t n_vocab)
{
	const struct row base = {base_logits, logits_log_sum(base_logits, n_vocab)};
	const struct row row = {logits, logits_log_sum(logits, n_vocab)};
	if (isnan(base.log_sum) || isnan(row.log_sum))
		return fail(&r->err, LAP_ERROR,
			"the logits of %s are not numbers: the weights are damaged, or its device "
			"computes wrong results (lapilli validate tells)",
			lap_model_info(r->sides[isnan(base.log_sum) ? BASE : OTHER].model)->path);
	if (!divergence_add(&r->divergence, &base, -INFINITY, &row, n_vocab, r->tokens[i + 1]))
		return fail_memory(&r->err, "the figures of tokens", r->divergence.kl.n);
	return LAP_OK;
}

static bool compare_rows(void *user, size_t first, size_t n, const float *base)
{
	struct run *r = user;
	const uint32_t n_vocab = lap_model_info(r->sides[BASE].model)->n_vocab;
	r->status = grow(r, n, n_vocab);
	if (!r->status)
		r->status = lap_session_logits(
			r->sides[OTHER].session, r->tokens + first, n, r->logits, &r->err);
	for (size_t i = 0; i < n && first + i + 1 < r->windows.n_ctx && !r->status; i++)
		r->status = compare_row(r, first + i, logits_row(base, n_vocab, i),
			logits_row(r->logits, n_vocab, i), n_vocab);
	return !r->status;
}

static enum lap_status compare_window(struct run *r, uint32_t i, struct lap_error *err)
{
	const struct windows *w = &r->windows;
	r->tokens = windows_get(&r->windows, i);
	for (int side = 0; side < N_SIDES; side++)
		lap_session_clear(r->sides[side].session);
	/* What stands before the scored rows is handed out by neither side. */
	enum lap_status status = lap_session_each_logits(
		r->sides[OTHER].session, r->tokens, w->first, w->first, NULL, NULL, err);
	if (!status)
		status = lap_session_each_logits(r->sides[BASE].session, r->tokens, w->n_ctx,
			w->first, compare_rows, r, err);
	if (!status && r->status) {
		*err = r->err;
		status = r->status;
	}
	return status;
}

static json_t *side_json(const struct side *side)
{
	const struct lap_model_info *info = lap_model_info(side->model);
	return json_pack("{s:o, s:o}", "model", json_bytes(info->path, strlen(info->path)),
		"device", json_bytes(info->device_name, strlen(info->device_name)));
}

static enum lap_status say_result(const struct options *o, struct run *r, uint32_t n_windows)
{
	if (!o->json) {
		for (int i = 0; i < N_SIDES; i++) {
			const struct lap_model_info *info = lap_model_info(r->sides[i].model);
			out_printf("%-15s%s on %s\n", i == BASE ? "base" : "compared", info->path,
				info->device_name);
		}
		divergence_print(&r->divergence);
		return LAP_OK;
	}
	json_t *json = divergence_json(&r->divergence);
	json_object_set_new(json, "perplexity", json_real(exp(r->divergence.nll.mean)));
	json_object_set_new(json, "tokens", json_integer((json_int_t)r->divergence.nll.n));
	json_object_set_new(json, "windows", json_integer(n_windows));
	json_object_set_new(json, "n_ctx", json_integer(r->windows.n_ctx));
	json_object_set_new(json, "base", side_json(&r->sides[BASE]));
	json_object_set_new(json, "compared", side_json(&r->sides[OTHER]));
	return (enum lap_status)out_json(json);
}

static enum lap_status compare(const struct options *o, struct run *r, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	uint32_t i = 0;
	struct progress progress = progress_start("comparing", "tok");
	for (; i < r->windows.n && !status && !interrupted(); i++) {
		status = compare_window(r, i, err);
		progress_show(&progress, (i + 1.0) * r->windows.n_ctx,
			(double)r->windows.n * r->windows.n_ctx);
	}
	progress_clear(&progress);
	return status || interrupted() ? status : say_result(o, r, i);
}

int command_compare(const struct options *o)
{
	struct run r = {.logits = NULL};
	struct lap_error err = {0};
	interrupt_install();
	enum lap_status status = choose_sides(o, &r, &err);
	if (!status)
		status = open_sides(&r, &err);
	interrupt_session(r.sides[BASE].session);
	if (!status)
		status = compare(o, &r, &err);
	interrupt_session(NULL);
	free(r.logits);
	divergence_free(&r.divergence);
	windows_free(&r.windows);
	for (int i = 0; i < N_SIDES; i++) {
		lap_session_destroy(r.sides[i].session);
		lap_model_close(r.sides[i].model);
		text_free(&r.sides[i].path);
	}
	if (interrupted())
		return interrupt_status();
	return status ? report(&err) : LAP_OK;
}
