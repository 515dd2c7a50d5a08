/* Sessions: buffers, prepared plans, prefill in chunks, decode steps.  See session.h. */
#include "session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampler.h"
#include "session_memory.h"

#define FIRST_CHUNK    64  /* rows of the first prefill submit, before a row's time is known */
#define PREFILL_BUDGET 0.2 /* seconds a prefill submit may last: drivers kill long jobs */

/* ---- buffers ---- */

static enum lap_status create_buffer(
	void *user, const struct session_need *need, struct lap_error *err)
{
	struct lap_session *s = user;
	struct backend *b = s->m->backend;
	struct buffer *buffer;
	if (need->n_bytes > b->max_buffer_bytes)
		return fail(err, LAP_USAGE,
			"%s for a context of %u tokens takes %llu bytes; %s can bind %llu at once: "
			"a smaller context is needed (-c)",
			need->label, (unsigned)s->n_ctx, (unsigned long long)need->n_bytes, b->name,
			(unsigned long long)b->max_buffer_bytes);
	enum lap_status status =
		b->ops->buffer_create(b, need->n_bytes, need->memory, need->label, &buffer, err);
	if (status)
		return status;
	*need->view = (struct view){buffer, 0, need->n_bytes};
	assert(s->n_buffers < s->max_buffers);
	s->buffers[s->n_buffers++] = buffer;
	return LAP_OK;
}

static enum lap_status create_buffers(struct lap_session *s, struct lap_error *err)
{
	s->max_buffers = SESSION_MAX_BUFFERS + 2 * s->m->model->h.n_layer;
	s->buffers = array_alloc(s->max_buffers, sizeof(*s->buffers));
	if (!s->buffers)
		return fail_memory(
			err, "the list of buffers", s->max_buffers * sizeof(*s->buffers));
	return session_each_buffer(s, create_buffer, s, err);
}

/* Window layers go round in the blocks of their ring. */
static void fill_tables(struct lap_session *s)
{
	const struct backend_ops *ops = s->m->backend->ops;
	const uint32_t n_blocks = s->kv.full.n_blocks;
	const uint32_t n_ring = s->n_window_positions ? s->n_window_positions / KV_BLOCK : n_blocks;
	uint32_t *full = ops->buffer_map(s->kv.full.table.buffer);
	uint32_t *window = ops->buffer_map(s->kv.window.table.buffer);
	for (uint32_t i = 0; i < n_blocks; i++) {
		full[i] = i;
		window[i] = i % n_ring;
	}
}

static enum lap_status write_rope_table(
	struct lap_session *s, bool local, struct view view, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	float *table = array_alloc(view.n_bytes, 1);
	if (!table)
		return fail_memory(err, "the table of angles", view.n_bytes);
	rope_table(s->m->model, s->n_ctx, local, table);
	enum lap_status status = b->ops->write(b, view, table, view.n_bytes, err);
	free(table);
	return status;
}

static enum lap_status fill_step(struct lap_session *s, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const uint64_t n_history = HISTORY_WORDS((uint64_t)s->n_ctx, s->m->model->h.n_vocab);
	s->tail.n_ctx = s->n_ctx;
	s->sequence = b->ops->buffer_map(s->tail.sequences.buffer);
	s->ring = b->ops->buffer_map(s->tail.ring.buffer);
	s->prefill.step = b->ops->buffer_map(s->prefill.step_view.buffer);
	s->decode.step = b->ops->buffer_map(s->decode.step_view.buffer);
	s->tokens = array_alloc(s->n_ctx, sizeof(*s->tokens));
	s->history = array_alloc(n_history, sizeof(*s->history));
	if (!s->tokens || !s->history)
		return fail_memory(err, "a session", n_history * sizeof(uint32_t));
	const struct step_buffers *sb = &s->step_buffers;
	enum lap_status status = write_rope_table(s, false, sb->rope, err);
	if (!status && sb->rope_local.buffer)
		status = write_rope_table(s, true, sb->rope_local, err);
	return status;
}

/* ---- create and destroy ---- */

/* An error for want of memory, with what was needed and what would fit. */
static enum lap_status explain_memory(
	struct lap_model *m, const struct lap_session_options *o, struct lap_error *err)
{
	struct lap_error cause = *err;
	struct lap_memory_plan p;
	char advice[SESSION_ADVICE_BYTES];
	if (lap_session_memory(m, o, &p, err))
		return err->status;
	const double mib = 1 << 20;
	if (p.fits)
		snprintf(advice, sizeof(advice), "%s",
			"others may hold the rest: a smaller -c, or -ctk q8_0 -ctv q8_0, needs "
			"less");
	else
		session_advice(m, o, advice);
	return fail(err, cause.status,
		"%.400s; a context of %u tokens needs %.1f MiB of KV cache and %.1f MiB beside it, "
		"the "
		"weights %.1f MiB, and %s has %.1f MiB; %s",
		cause.text, (unsigned)p.n_ctx, (double)p.kv_bytes / mib,
		(double)p.scratch_bytes / mib, (double)p.weight_bytes / mib, m->backend->name,
		(double)p.available_bytes / mib, advice);
}

enum lap_status lap_session_create(struct lap_model *m, const struct lap_session_options *options,
	struct lap_session **session, struct lap_error *err)
{
	static const struct lap_session_options defaults;
	const struct lap_session_options *o = options ? options : &defaults;
	struct lap_error unused;
	err = err ? err : &unused;
	*session = NULL;
	if (m->model && !m->weights.layers)
		return fail(err, LAP_USAGE, "%s was opened without its weights", m->info.path);
	struct lap_session *s = calloc(1, sizeof(*s));
	if (!s)
		return fail_memory(err, "a session", sizeof(*s));
	enum lap_status status = session_shape(s, m, o, err);
	if (status) {
		free(s->kv.layers);
		free(s);
		return status;
	}
	s->steps_per_submit = o->steps_per_submit;
	if (o->n_ctx > s->n_ctx)
		log_line(&m->log, LAP_LOG_WARNING,
			"the model has %u positions: the context is that long, instead of %u "
			"tokens",
			(unsigned)s->n_ctx, (unsigned)o->n_ctx);
	if (s->n_ctx > m->model->h.n_ctx_train)
		log_line(&m->log, LAP_LOG_WARNING,
			"a context of %u tokens is longer than the %u that the model was trained "
			"on",
			(unsigned)s->n_ctx, (unsigned)m->model->h.n_ctx_train);
	status = create_buffers(s, err);
	if (status == LAP_NO_MEMORY || status == LAP_USAGE)
		status = explain_memory(m, o, err);
	if (!status) {
		fill_tables(s);
		status = fill_step(s, err);
	}
	if (status) {
		lap_session_destroy(s);
		return status;
	}
	*session = s;
	return LAP_OK;
}

void lap_session_destroy(struct lap_session *s)
{
	if (!s)
		return;
	struct backend *b = s->m->backend;
	b->ops->release(b, s->prefill.runnable);
	b->ops->release(b, s->decode.runnable);
	for (uint32_t i = 0; i < s->n_buffers; i++)
		b->ops->buffer_destroy(b, s->buffers[i]);
	free(s->buffers);
	free(s->kv.layers);
	free(s->tokens);
	free(s->history);
	free(s);
}

uint32_t lap_session_n_ctx(const struct lap_session *session)
{
	return session->n_ctx;
}

void lap_session_clear(struct lap_session *session)
{
	session_truncate(session, 0);
}

void session_truncate(struct lap_session *s, uint32_t n)
{
	/* Window layers go round: what row n looks back to must not have been overwritten. */
	uint32_t window = s->n_window_positions ? model_window(s->m->model) : 0;
	if (window && n < s->n_past && n + s->n_window_positions < s->n_written + window)
		n = 0;
	if (s->n_past > n)
		s->n_past = n;
	if (s->n_prefill > n)
		s->n_prefill = n;
	if (n == 0)
		s->n_written = 0;
}

/* ---- plans ---- */

enum lap_status session_plan(
	struct lap_session *s, enum role role, struct plan *plan, struct lap_error *err)
{
	const struct prepared *prepared = role == ROLE_DECODE ? &s->decode : &s->prefill;
	*plan = (struct plan){
		.role = role,
		.max_rows = role == ROLE_DECODE ? 1 : s->n_batch,
		.step = prepared->step_view,
		.sizes = prepared->sizes,
	};
	forward(plan, s->m->model, &s->m->weights, &s->activations, &s->kv, &s->step_buffers,
		role == ROLE_DECODE || s->logits_all);
	if (role == ROLE_DECODE) {
		plan_sample(plan, s->activations.logits, &s->tail);
		plan_control(plan, s->activations.logits.n, &s->tail);
	}
	if (!plan->out_of_memory)
		return LAP_OK;
	plan_free(plan);
	return fail_memory(err, "a plan", plan->n_ops * sizeof(struct op));
}

/* Records the plan of a role unless that was done. */
static enum lap_status prepare(struct lap_session *s, enum role role, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	struct prepared *prepared = role == ROLE_DECODE ? &s->decode : &s->prefill;
	struct plan plan;
	if (prepared->runnable)
		return LAP_OK;
	enum lap_status status = session_plan(s, role, &plan, err);
	if (status)
		return status;
	status = b->ops->prepare(b, &plan, false, &prepared->runnable, err);
	plan_free(&plan);
	prepared->n_recordings += !status;
	return status;
}

/* ---- prefill ---- */

static uint32_t chunk_size(const struct lap_session *s, uint32_t n_left)
{
	uint32_t n = FIRST_CHUNK;
	if (s->row_seconds > 0) {
		double rows = PREFILL_BUDGET / s->row_seconds;
		n = rows < 8 ? 8 : rows > s->n_batch ? s->n_batch : (uint32_t)rows / 8 * 8;
	}
	if (n > s->n_batch)
		n = s->n_batch;
	return n < n_left ? n : n_left;
}

static enum lap_status read_logits(
	struct lap_session *s, uint32_t n_rows, float *logits, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const struct rows *rows = &s->activations.logits;
	uint64_t n_bytes = (uint64_t)n_rows * rows->stride * sizeof(float);
	float *copy = malloc((size_t)n_bytes);
	if (!copy)
		return fail_memory(err, "logits", n_bytes);
	enum lap_status status = b->ops->read(b, rows->view, copy, n_bytes, err);
	for (uint32_t i = 0; !status && i < n_rows; i++)
		memcpy(logits + (size_t)i * rows->n, copy + (size_t)i * rows->stride,
			rows->n * sizeof(float));
	free(copy);
	return status;
}

static enum lap_status prefill_chunk(
	struct lap_session *s, const int32_t *tokens, uint32_t n, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	struct step_row *rows = (struct step_row *)(s->prefill.step + 1);
	for (uint32_t i = 0; i < n; i++)
		rows[i] = (struct step_row){.token = (uint32_t)tokens[i], .pos = s->n_past + i};
	*s->prefill.step = (struct step_header){.n_rows = n, .n_kv = s->n_past + n};
	uint64_t ticket;
	double start = clock_seconds();
	b->ops->begin(s->prefill.runnable);
	enum lap_status status = b->ops->run(b, s->prefill.runnable, 1, &ticket, err);
	if (!status)
		status = b->ops->wait(b, ticket, err);
	if (status)
		return status;
	s->n_prefill_submits++;
	s->row_seconds = (clock_seconds() - start) / (n < 8 ? 8 : n);
	memcpy(s->tokens + s->n_past, tokens, n * sizeof(*tokens));
	if (s->n_prefill == s->n_past)
		s->n_prefill += n;
	s->n_past += n;
	if (s->n_written < s->n_past)
		s->n_written = s->n_past;
	return LAP_OK;
}

enum lap_status session_prefill(struct lap_session *s, const int32_t *tokens, uint32_t n,
	float *logits, struct lap_error *err)
{
	assert(!logits || s->logits_all);
	assert(n <= s->n_ctx - s->n_past);
	enum lap_status status = n ? prepare(s, ROLE_PREFILL, err) : LAP_OK;
	for (uint32_t i = 0; !status && i < n && !s->cancelled;) {
		uint32_t n_chunk = chunk_size(s, n - i);
		status = prefill_chunk(s, tokens + i, n_chunk, err);
		if (!status && logits)
			status = read_logits(
				s, n_chunk, logits + (size_t)i * s->m->info.n_vocab, err);
		i += n_chunk;
	}
	return status;
}

enum lap_status session_check_tokens(
	const struct lap_session *s, const int32_t *tokens, size_t n, struct lap_error *err)
{
	uint32_t n_vocab = s->m->info.n_vocab;
	for (size_t i = 0; i < n; i++)
		if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
			return fail(err, LAP_USAGE,
				"token %d at %zu is not in the vocabulary of %u", (int)tokens[i], i,
				(unsigned)n_vocab);
	return LAP_OK;
}

enum lap_status lap_session_logits(struct lap_session *s, const int32_t *tokens, size_t n,
	float *logits, struct lap_error *err)
{
	if (!s->logits_all)
		return fail(err, LAP_USAGE, "the session was created without logits_all");
	if (n > s->n_ctx - s->n_past)
		return fail(err, LAP_USAGE,
			"%zu tokens do not fit in a context of %u with %u in use", n,
			(unsigned)s->n_ctx, (unsigned)s->n_past);
	s->cancelled = 0;
	enum lap_status status = session_check_tokens(s, tokens, n, err);
	if (!status)
		status = session_prefill(s, tokens, (uint32_t)n, logits, err);
	if (!status && s->cancelled)
		status = fail(err, LAP_ERROR, "cancelled");
	return status;
}

/* ---- decode ---- */

enum lap_status session_begin_decode(struct lap_session *s, int32_t token, struct lap_error *err)
{
	assert(s->n_past < s->n_ctx);
	enum lap_status status = prepare(s, ROLE_DECODE, err);
	if (status)
		return status;
	*(struct step_row *)(s->decode.step + 1) =
		(struct step_row){.token = (uint32_t)token, .pos = s->n_past};
	*s->decode.step = (struct step_header){.n_rows = 1, .n_kv = s->n_past + 1};
	s->m->backend->ops->begin(s->decode.runnable);
	return LAP_OK;
}

void session_note_written(struct lap_session *s)
{
	const struct step_row *row = (const struct step_row *)(s->decode.step + 1);
	if (s->n_written <= row->pos)
		s->n_written = row->pos + 1;
}

enum lap_status session_submit_decode(
	struct lap_session *s, uint32_t n_steps, uint64_t *ticket, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	enum lap_status status = b->ops->run(b, s->decode.runnable, n_steps, ticket, err);
	s->n_decode_submits += !status;
	return status;
}

enum lap_status session_step(
	struct lap_session *s, int32_t token, float *logits, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	uint64_t ticket;
	if (s->n_past == s->n_ctx)
		return fail(err, LAP_USAGE, "the context of %u tokens is full", (unsigned)s->n_ctx);
	*s->sequence = (struct sequence){
		.greedy = 1,
		.n_ctx = s->n_ctx,
		.n_left = 1,
		.n_sampled = s->sequence->n_sampled,
	};
	enum lap_status status = session_check_tokens(s, &token, 1, err);
	if (!status)
		status = session_begin_decode(s, token, err);
	if (!status)
		status = session_submit_decode(s, 1, &ticket, err);
	if (!status)
		status = b->ops->wait(b, ticket, err);
	if (!status)
		status = read_logits(s, 1, logits, err);
	if (!status)
		s->tokens[s->n_past++] = token;
	session_note_written(s);
	return status;
}

enum lap_status session_write_history(struct lap_session *s, int32_t last, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	uint32_t n_vocab = s->m->info.n_vocab;
	for (uint32_t i = 0; i < s->n_past; i++)
		s->history[i] = (uint32_t)s->tokens[i];
	s->history[s->n_past] = (uint32_t)last;
	sampler_count(s->sequence, s->history, s->n_past + 1, s->history + s->n_ctx, n_vocab);
	return b->ops->write(b, s->tail.history, s->history,
		HISTORY_WORDS((uint64_t)s->n_ctx, n_vocab) * sizeof(uint32_t), err);
}

void lap_session_cancel(struct lap_session *s)
{
	s->cancelled = 1;
	*(volatile u32 *)&s->sequence->cancel = 1;
}
