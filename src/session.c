/* Sessions: buffers, prepared plans, prefill in chunks, decode steps.  See session.h. */
#include "session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"
#include "sampler.h"

#define DEFAULT_N_CTX   4096  /* tokens, where the model allows as many */
#define DEFAULT_N_BATCH 512   /* rows of a prefill step */
#define MAX_ROWS        65535 /* of a step: workgroups along one axis of a dispatch */
#define LOGITS_N_BATCH  64    /* the same where every row gets logits: they are large */
#define FIRST_CHUNK     64    /* rows of the first prefill submit, before a row's time is known */
#define PREFILL_BUDGET  0.2   /* seconds a prefill submit may last: drivers kill long jobs */

/* ---- buffers ---- */

static enum lap_status create_buffer(struct lap_session *s, uint64_t n_bytes, enum memory memory,
	const char *label, struct view *view, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	struct buffer *buffer;
	if (n_bytes > b->max_buffer_bytes)
		return fail(err, LAP_USAGE,
			"%s for a context of %u tokens takes %llu bytes; %s can bind %llu at once: "
			"a "
			"smaller context is needed (-c)",
			label, (unsigned)s->n_ctx, (unsigned long long)n_bytes, b->name,
			(unsigned long long)b->max_buffer_bytes);
	enum lap_status status = b->ops->buffer_create(b, n_bytes, memory, label, &buffer, err);
	if (status)
		return status;
	*view = (struct view){buffer, 0, n_bytes};
	return LAP_OK;
}

/* A buffer that lives as long as the session. */
static enum lap_status own_buffer(struct lap_session *s, uint64_t n_bytes, enum memory memory,
	const char *label, struct view *view, struct lap_error *err)
{
	enum lap_status status = create_buffer(s, n_bytes, memory, label, view, err);
	if (!status) {
		assert(s->n_buffers < SESSION_MAX_BUFFERS);
		s->buffers[s->n_buffers++] = view->buffer;
	}
	return status;
}

static enum lap_status create_activations(struct lap_session *s, struct lap_error *err)
{
	struct activation_shape list[N_ACTIVATIONS];
	activations_shape(&s->activations, s->m->model, list);
	for (size_t i = 0; i < N_ACTIVATIONS; i++) {
		struct rows *rows = list[i].rows;
		uint64_t n_rows = (uint64_t)s->n_batch * list[i].per_row;
		if (rows == &s->activations.logits && !s->logits_all)
			n_rows = 1;
		if (rows->n == 0)
			continue;
		enum lap_status status = own_buffer(s, n_rows * rows->stride * sizeof(float),
			MEMORY_DEVICE, list[i].name, &rows->view, err);
		if (status)
			return status;
	}
	return LAP_OK;
}

/* The largest window of a layer; 0: no layer has one. */
static uint32_t model_window(const struct model *m)
{
	uint32_t window = 0;
	for (uint32_t il = 0; il < m->h.n_layer; il++)
		if (m->layers[il].window > window)
			window = m->layers[il].window;
	return window;
}

/* Block tables: in the full one every block is there; window layers go round in fewer blocks, enough
 * for what a chunk writes and what its first row looks back to. */
static enum lap_status create_tables(struct lap_session *s, struct lap_error *err)
{
	const struct hparams *h = &s->m->model->h;
	const uint32_t n_blocks = (s->n_ctx - 1) / KV_BLOCK + 1, window = model_window(s->m->model);
	uint32_t n_ring = n_blocks;
	if (window && window < s->n_ctx)
		n_ring = (window + s->n_batch - 1) / KV_BLOCK + 1;
	if (n_ring < n_blocks)
		s->n_window_positions = n_ring * KV_BLOCK;
	else
		n_ring = n_blocks;
	s->kv.full = (struct kv_shape){
		.n_head = h->n_head,
		.n_head_kv = h->n_head_kv,
		.head_dim = h->head_dim,
		.n_blocks = n_blocks,
		.n_ctx = s->n_ctx,
	};
	s->kv.window = s->kv.full;
	struct kv_shape *shapes[] = {&s->kv.full, &s->kv.window};
	for (uint32_t t = 0; t < 2; t++) {
		enum lap_status status = own_buffer(s, n_blocks * sizeof(uint32_t), MEMORY_SHARED,
			"the block table", &shapes[t]->table, err);
		if (status)
			return status;
		uint32_t *table = s->m->backend->ops->buffer_map(shapes[t]->table.buffer);
		for (uint32_t i = 0; i < n_blocks; i++)
			table[i] = t ? i % n_ring : i;
	}
	return LAP_OK;
}

static enum lap_status create_kv(struct lap_session *s, enum lap_kv_type type_k,
	enum lap_kv_type type_v, struct lap_error *err)
{
	const struct model *m = s->m->model;
	const uint32_t n_layer = m->h.n_layer;
	const uint64_t n_full = (uint64_t)s->kv.full.n_blocks * KV_BLOCK;
	s->kv.layers = array_alloc(n_layer, sizeof(*s->kv.layers));
	s->kv_buffers = array_alloc(2 * (uint64_t)n_layer, sizeof(struct buffer *));
	if (!s->kv.layers || !s->kv_buffers)
		return fail_memory(err, "the KV cache's list", n_layer);
	for (uint32_t il = 0; il < n_layer; il++) {
		struct kv_layer *l = &s->kv.layers[il];
		bool in_ring = m->layers[il].window && s->n_window_positions;
		uint64_t n_positions = in_ring ? s->n_window_positions : n_full;
		l->k_type = (enum kv_type)type_k;
		l->v_type = (enum kv_type)type_v;
		if (m->layers[il].kv_layer != il) /* it looks at another's */
			continue;
		struct view *views[] = {&l->k, &l->v};
		for (uint32_t i = 0; i < 2; i++) {
			uint64_t n_bytes =
				n_positions * kv_bytes(i ? l->v_type : l->k_type, n_kv(&m->h));
			enum lap_status status = create_buffer(s, n_bytes, MEMORY_DEVICE,
				"a layer of the KV cache", views[i], err);
			if (status)
				return status;
			s->kv_buffers[s->n_kv_buffers++] = views[i]->buffer;
		}
	}
	return LAP_OK;
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

static enum lap_status create_step(struct lap_session *s, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const struct hparams *h = &s->m->model->h;
	struct step_buffers *sb = &s->step_buffers;
	const uint64_t n_slots = (uint64_t)s->n_batch * h->n_expert_used;
	const uint64_t rope_bytes = (uint64_t)s->n_ctx * (h->n_rot / 2) * 2 * sizeof(float);
	const uint64_t n_history = (uint64_t)s->n_ctx + h->n_vocab;
	const bool local = s->m->model->arch->flags & ARCH_LOCAL_ROPE;
	struct view sequence, ring;
	const struct {
		struct view *view;
		uint64_t n_bytes; /* 0: not needed */
		enum memory memory;
		const char *label;
	} list[] = {
		{&sb->partial,
			(uint64_t)h->n_head * attention_slices(s->n_ctx, 0) * (2 + h->head_dim) *
				sizeof(float),
			MEMORY_DEVICE, "partial attention"},
		{&sb->rope, rope_bytes, MEMORY_DEVICE, "the table of angles"},
		{&sb->rope_local, local ? rope_bytes : 0, MEMORY_DEVICE,
			"the table of local angles"},
		{&sb->routes, n_slots * sizeof(struct expert_route), MEMORY_DEVICE, "routes"},
		{&sb->tiles, n_slots ? expert_tiles_bytes(h->n_expert, (uint32_t)n_slots) : 0,
			MEMORY_DEVICE, "experts' tiles"},
		{&s->tail.results, sizeof(struct sample_result), MEMORY_DEVICE, "sampled tokens"},
		{&s->tail.scratch, (uint64_t)s->activations.logits.stride * sizeof(float),
			MEMORY_DEVICE, "scaled logits"},
		{&sequence, sizeof(struct sequence), MEMORY_SHARED, "the sequence"},
		{&ring, RING_ENTRIES * sizeof(struct ring_entry), MEMORY_SHARED, "the ring"},
		{&s->tail.history, n_history * sizeof(uint32_t), MEMORY_DEVICE, "the history"},
		{&s->prefill.step_view,
			sizeof(struct step_header) + s->n_batch * sizeof(struct step_row),
			MEMORY_SHARED, "the prefill step"},
		{&s->decode.step_view, sizeof(struct step_header) + sizeof(struct step_row),
			MEMORY_SHARED, "the decode step"},
		{&s->prefill.sizes, MAX_SIZES * sizeof(struct dispatch_size), MEMORY_SHARED,
			"the sizes of prefill"},
		{&s->decode.sizes, MAX_SIZES * sizeof(struct dispatch_size), MEMORY_SHARED,
			"the sizes of decode"},
	};
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(list) && !status; i++)
		if (list[i].n_bytes)
			status = own_buffer(s, list[i].n_bytes, list[i].memory, list[i].label,
				list[i].view, err);
	if (status)
		return status;
	s->tail.sequences = sequence;
	s->tail.ring = ring;
	s->tail.n_ctx = s->n_ctx;
	s->sequence = b->ops->buffer_map(sequence.buffer);
	s->ring = b->ops->buffer_map(ring.buffer);
	s->prefill.step = b->ops->buffer_map(s->prefill.step_view.buffer);
	s->decode.step = b->ops->buffer_map(s->decode.step_view.buffer);
	s->tokens = array_alloc(s->n_ctx, sizeof(*s->tokens));
	s->history = array_alloc(n_history, sizeof(*s->history));
	if (!s->tokens || !s->history)
		return fail_memory(err, "a session", n_history * sizeof(uint32_t));
	status = write_rope_table(s, false, sb->rope, err);
	if (!status && local)
		status = write_rope_table(s, true, sb->rope_local, err);
	return status;
}

/* ---- create and destroy ---- */

/* Quantised rows of K and V are cut into units, which heads must fill. */
static enum lap_status check_options(
	const struct lap_session *s, const struct lap_session_options *o, struct lap_error *err)
{
	uint32_t head_dim = s->m->model->h.head_dim;
	bool quantised = o->type_k == LAP_KV_Q8_0 || o->type_k == LAP_KV_Q4_0 ||
		o->type_v == LAP_KV_Q8_0 || o->type_v == LAP_KV_Q4_0;
	if (quantised && head_dim % KV_UNIT)
		return fail(err, LAP_USAGE,
			"heads of %u elements cannot be kept as q8_0 or q4_0, expected a multiple "
			"of %u: use f16 or f32",
			(unsigned)head_dim, (unsigned)KV_UNIT);
	return LAP_OK;
}

/* Rows of a step whose activations the backend can bind, at least 1, at most MAX_ROWS. */
static uint32_t rows_that_fit(const struct lap_session *s)
{
	struct activations a;
	struct activation_shape list[N_ACTIVATIONS];
	activations_shape(&a, s->m->model, list);
	uint64_t n = MAX_ROWS;
	for (size_t i = 0; i < N_ACTIVATIONS; i++) {
		uint64_t row_bytes =
			(uint64_t)list[i].rows->stride * list[i].per_row * sizeof(float);
		bool one_row = list[i].rows == &a.logits && !s->logits_all;
		if (row_bytes && !one_row && n * row_bytes > s->m->backend->max_buffer_bytes)
			n = s->m->backend->max_buffer_bytes / row_bytes;
		if (row_bytes && n * list[i].per_row > MAX_ROWS)
			n = MAX_ROWS / list[i].per_row;
	}
	return n ? (uint32_t)n : 1;
}

enum lap_status lap_session_create(struct lap_model *m, const struct lap_session_options *options,
	struct lap_session **session, struct lap_error *err)
{
	static const struct lap_session_options defaults;
	const struct lap_session_options *o = options ? options : &defaults;
	*session = NULL;
	if (!m->model)
		return fail(err, LAP_USAGE, "%s was opened for its vocabulary only", m->info.path);
	uint32_t n_ctx_train = m->model->h.n_ctx_train;
	struct lap_session *s = calloc(1, sizeof(*s));
	if (!s)
		return fail_memory(err, "a session", sizeof(*s));
	s->m = m;
	s->n_ctx = o->n_ctx ? o->n_ctx : n_ctx_train < DEFAULT_N_CTX ? n_ctx_train : DEFAULT_N_CTX;
	const struct tensor *positions = &m->model->position_embd;
	if (positions->data && s->n_ctx > positions->n_rows) { /* learned positions end */
		log_line(&m->log, LAP_LOG_WARNING,
			"the model has %u positions: the context is %u tokens instead of %u",
			(unsigned)positions->n_rows, (unsigned)positions->n_rows,
			(unsigned)s->n_ctx);
		s->n_ctx = positions->n_rows;
	}
	s->n_batch = o->n_batch ? o->n_batch : DEFAULT_N_BATCH;
	s->logits_all = o->logits_all;
	s->steps_per_submit = o->steps_per_submit;
	if (s->logits_all && s->n_batch > LOGITS_N_BATCH)
		s->n_batch = LOGITS_N_BATCH;
	if (s->n_batch > s->n_ctx)
		s->n_batch = s->n_ctx;
	uint32_t n_fit = rows_that_fit(s);
	if (s->n_batch > n_fit)
		s->n_batch = n_fit;
	if (s->n_ctx > n_ctx_train)
		log_line(&m->log, LAP_LOG_WARNING,
			"a context of %u tokens is longer than the %u that the model was trained "
			"on",
			(unsigned)s->n_ctx, (unsigned)n_ctx_train);
	enum lap_status status = check_options(s, o, err);
	if (!status)
		status = create_activations(s, err);
	if (!status)
		status = create_tables(s, err);
	if (!status)
		status = create_kv(s, o->type_k, o->type_v, err);
	if (!status)
		status = create_step(s, err);
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
	for (uint32_t i = 0; i < s->n_kv_buffers; i++)
		b->ops->buffer_destroy(b, s->kv_buffers[i]);
	free(s->kv_buffers);
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
	fail_memory(err, "a plan", plan->n_ops * sizeof(struct op));
	plan_free(plan);
	return LAP_NO_MEMORY;
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
		((uint64_t)s->n_ctx + n_vocab) * sizeof(uint32_t), err);
}

void lap_session_cancel(struct lap_session *s)
{
	s->cancelled = 1;
	*(volatile u32 *)&s->sequence->cancel = 1;
}
