/* Tuning of a session's plans: see session_tune.h. */
#include "session_tune.h"

#include <stdlib.h>
#include <string.h>

#include "trial.h"

#define QUICK_SECONDS 3.0

/* Numbers from -1 to 1 in every row of every activation, or zeros; what is beyond a row's columns stays 0. */
static enum lap_status fill_activations(
	struct lap_session *s, bool with_zeros, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const struct rows *all = (const struct rows *)&s->activations;
	uint32_t state = 1;
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < N_ACTIVATIONS && !status; i++) {
		const struct rows *rows = &all[i];
		if (!rows->n || !rows->view.buffer)
			continue;
		const uint64_t n = rows->view.n_bytes / sizeof(float);
		float *floats = array_alloc(n, sizeof *floats);
		if (!floats)
			return fail_memory(err, "activations", n * sizeof *floats);
		for (uint64_t at = 0; at < n && !with_zeros; at++) {
			state = state * 1664525u + 1013904223u;
			if (at % rows->stride < rows->n)
				floats[at] = (float)(int32_t)state * 0x1p-31f;
		}
		status = b->ops->write(b, rows->view, floats, n * sizeof *floats, err);
		free(floats);
	}
	return status;
}

struct tuning_run {
	struct backend *cpu;
	struct tune_options options;
	tune_fn *on_found;
	void *user;
	double start;
	uint32_t n_found;
};

static enum lap_status tune_step(struct lap_session *s, struct tuning_run *run, enum role role,
	uint32_t n_rows, struct lap_error *err)
{
	struct trial t;
	uint32_t n_found = 0;
	struct tune_options o = run->options;
	if (o.seconds > 0) {
		const double left = o.seconds - (clock_seconds() - run->start);
		o.seconds = left > 0.01 ? left : 0.01; /* what is left out, the next run measures */
	}
	enum lap_status status = trial_begin(&t, s, role, n_rows, 0, err);
	if (!status)
		status = tune_plan(s->m->backend, run->cpu, &t.plan, &o, run->on_found, run->user,
			&n_found, err);
	trial_end(&t);
	run->n_found += n_found;
	return status;
}

enum lap_status session_tune(struct lap_session *s, const struct tune_options *options,
	tune_fn *on_found, void *user, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	struct tuning_run run = {
		.options = *options, .on_found = on_found, .user = user, .start = clock_seconds()};
	const uint32_t most = options->thorough ? s->n_seq : 1;
	const uint32_t n_prefill = s->n_batch < s->n_ctx ? s->n_batch : s->n_ctx;
	if (!b->tuning)
		return LAP_OK;
	enum lap_status status = cpu_open(&run.cpu, err);
	if (!status)
		status = fill_activations(s, false, err);
	for (uint32_t n_rows = 1; n_rows <= most && !status; n_rows *= 2)
		status = tune_step(s, &run, ROLE_DECODE, n_rows, err);
	if (!status)
		status = tune_step(s, &run, ROLE_PREFILL, n_prefill, err);
	if (!status && s->n_few)
		status = tune_step(s, &run, ROLE_PREFILL, s->n_few, err);
	const enum lap_status cleared = fill_activations(s, true, status ? NULL : err);
	status = status ? status : cleared;
	if (run.cpu)
		run.cpu->ops->close(run.cpu);
	struct lap_error lost;
	if (!status && run.n_found && b->ops->tuning_save(b, &lost))
		log_line(&s->m->log, LAP_LOG_WARNING, "%s: it will be measured again", lost.text);
	return status;
}

/* ---- on first use ---------------------------------------------------------------------------- */

static bool log_found(void *user, const struct tuned *found)
{
	struct lap_session *s = user;
	struct text text = {0};
	if (tuned_print(found, &text))
		log_line(&s->m->log, found->broken ? LAP_LOG_WARNING : LAP_LOG_DEBUG, "%s: %s",
			s->m->backend->name, text.data);
	text_free(&text);
	return true;
}

enum lap_status session_tune_first(struct lap_session *s, struct lap_error *err)
{
	const struct backend *b = s->m->backend;
	const bool full = s->m->tune == LAP_TUNE_FULL;
	if (!b->tuning || s->m->tune == LAP_TUNE_OFF ||
		(s->m->tune == LAP_TUNE_AUTO && b->device->type == LAP_DEVICE_CPU))
		return LAP_OK;
	return session_tune(s,
		&(struct tune_options){
			.seconds = full ? 0 : QUICK_SECONDS,
			.thorough = full,
		},
		log_found, s, err);
}
