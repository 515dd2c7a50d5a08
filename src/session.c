/* Sessions: buffers, timelines, prepared plans, prefill in chunks, decode steps.  See session.h. */
#include "session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar.h"
#include "sampler.h"
#include "session_memory.h"
#include "session_tune.h"

#define PREFILL_BUDGET 0.2  /* seconds a prefill submit may last: drivers kill long jobs */
#define FIRST_PRODUCTS 2e10 /* multiplications of the first one, before a row's time is known */
#define LEAST_CHUNK    16   /* rows: fewer take as long */
#define FIRST_CHUNK    64   /* rows of the first chunk at most */

/* ---- buffers ---- */

static enum lap_status create_buffer(
	void *user, const struct session_need *need, struct lap_error *err)
{
	struct lap_session *s = user;
	struct backend *b = s->m->backend;
	struct buffer *buffer;
	if (need->n_bytes > b->max_buffer_bytes && need->kind == NEED_STATE)
		return fail(err, LAP_USAGE,
			"%s for %u sequences takes %llu bytes; %s can bind %llu at once: fewer "
			"sequences are needed (-np)",
			need->label, (unsigned)s->n_seq, (unsigned long long)need->n_bytes, b->name,
			(unsigned long long)b->max_buffer_bytes);
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

static void place_prepared(struct lap_session *s, struct prepared *p)
{
	uint8_t *steps = s->m->backend->ops->buffer_map(s->steps.buffer);
	p->step_view.buffer = s->steps.buffer;
	p->sizes.buffer = s->sizes.buffer;
	p->step = (struct step_header *)(void *)(steps + p->step_view.offset);
}

static enum lap_status create_timelines(struct lap_session *s, struct lap_error *err)
{
	const struct backend_ops *ops = s->m->backend->ops;
	const uint32_t n_blocks = s->kv.full.n_blocks;
	uint32_t *full = ops->buffer_map(s->kv.full.table.buffer);
	uint32_t *window = ops->buffer_map(s->kv.window.table.buffer);
	uint32_t *states = s->n_state_blocks ? ops->buffer_map(s->kv.state.table.buffer) : NULL;
	const uint32_t n_states = s->kv.state.n_blocks;
	s->timelines = array_alloc(s->n_seq, sizeof(*s->timelines));
	if (!s->timelines)
		return fail_memory(err, "a session", s->n_seq * sizeof(*s->timelines));
	enum lap_status status = block_pool_init(&s->full, s->n_full_blocks, err);
	if (!status && s->n_window_blocks)
		status = block_pool_init(&s->window, s->n_window_blocks, err);
	if (!status && s->n_state_blocks)
		status = block_pool_init(&s->states, s->n_state_blocks, err);
	for (size_t i = 0; states && i < (size_t)s->n_seq * n_states; i++)
		states[i] = STATE_NONE;
	for (uint32_t i = 0; i < s->n_seq && !status; i++) {
		struct timeline *t = &s->timelines[i];
		t->full.table = full + (size_t)i * n_blocks;
		t->window.table = window + (size_t)i * n_blocks;
		t->states.table = states ? states + (size_t)i * n_states : NULL;
		t->tokens = array_alloc(s->n_ctx, sizeof(*t->tokens));
		if (!t->tokens)
			status = fail_memory(err, "a session", s->n_ctx * sizeof(*t->tokens));
	}
	return status;
}

static enum lap_status fill(struct lap_session *s, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const uint64_t n_history = HISTORY_WORDS((uint64_t)s->n_ctx, s->m->model->h.n_vocab);
	s->tail.n_ctx = s->n_ctx;
	s->tail.n_top = s->n_top;
	s->sequences = b->ops->buffer_map(s->tail.sequences.buffer);
	s->ring = b->ops->buffer_map(s->tail.ring.buffer);
	s->tops = s->n_top ? b->ops->buffer_map(s->tail.tops.buffer) : NULL;
	s->choice = s->n_top ? b->ops->buffer_map(s->tail.choice.buffer) : NULL;
	for (uint32_t bucket = 0; bucket < (s->n_few ? N_PREFILLS : 1); bucket++)
		for (uint32_t i = 0; i < s->n_groups; i++)
			place_prepared(s, &s->prefill[bucket][i]);
	for (uint32_t kind = 0; kind < N_STEP_KINDS; kind++)
		for (uint32_t i = 0; 1u << i <= s->max_rows; i++)
			place_prepared(s, &s->decode[kind][i]);
	place_prepared(s, &s->copy);
	place_prepared(s, &s->shift);
	s->history = array_alloc(n_history, sizeof(*s->history));
	if (!s->history)
		return fail_memory(err, "a session", n_history * sizeof(uint32_t));
	enum lap_status status = create_timelines(s, err);
	const struct step_buffers *sb = &s->step_buffers;
	if (!status)
		status = write_rope_table(s, false, sb->rope, err);
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
		(double)(p.state_bytes + p.scratch_bytes) / mib, (double)p.weight_bytes / mib,
		m->backend->name, (double)p.available_bytes / mib, advice);
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
		free(s->kv.states);
		free(s);
		return status;
	}
	s->steps_per_submit = o->steps_per_submit;
	s->max_submit_seconds = o->max_submit_seconds;
	const uint32_t n_wanted = o->n_ctx_seq ? o->n_ctx_seq : o->n_ctx;
	if (n_wanted > s->n_ctx && o->n_ctx > s->n_pool)
		log_line(&m->log, LAP_LOG_WARNING,
			"the model has %u positions: the context is that long, instead of %u "
			"tokens",
			(unsigned)s->n_ctx, (unsigned)n_wanted);
	if (s->n_ctx > m->model->h.n_ctx_train)
		log_line(&m->log, LAP_LOG_WARNING,
			"a context of %u tokens is longer than the %u that the model was trained "
			"on",
			(unsigned)s->n_ctx, (unsigned)m->model->h.n_ctx_train);
	if (o->activations == LAP_ACTIVATIONS_Q8 && !s->q8_columns)
		log_line(&m->log, LAP_LOG_WARNING,
			"activations stay f32: %s has no weights that q8 would be multiplied with",
			m->info.path);
	status = create_buffers(s, err);
	if (status == LAP_NO_MEMORY || status == LAP_USAGE)
		status = explain_memory(m, o, err);
	if (!status)
		status = fill(s, err);
	if (!status)
		status = session_tune_first(s, err);
	if (status) {
		lap_session_destroy(s);
		return status;
	}
	*session = s;
	return LAP_OK;
}

static void release(struct lap_session *s, struct prepared *p)
{
	s->m->backend->ops->release(s->m->backend, p->runnable);
}

void lap_session_destroy(struct lap_session *s)
{
	if (!s)
		return;
	struct backend *b = s->m->backend;
	for (uint32_t bucket = 0; bucket < N_PREFILLS; bucket++)
		for (uint32_t i = 0; i < s->n_groups; i++)
			release(s, &s->prefill[bucket][i]);
	for (uint32_t kind = 0; kind < N_STEP_KINDS; kind++)
		for (uint32_t i = 0; i < N_BUCKETS; i++)
			release(s, &s->decode[kind][i]);
	release(s, &s->copy);
	release(s, &s->shift);
	for (uint32_t i = 0; i < s->n_buffers; i++)
		b->ops->buffer_destroy(b, s->buffers[i]);
	for (uint32_t i = 0; s->timelines && i < s->n_seq; i++)
		free(s->timelines[i].tokens);
	block_pool_free(&s->full);
	block_pool_free(&s->window);
	block_pool_free(&s->states);
	free(s->timelines);
	free(s->buffers);
	free(s->kv.layers);
	free(s->kv.states);
	grammar_vocabulary_destroy(s->grammar_vocabulary);
	free(s->host_logits);
	free(s->history);
	free(s);
}

uint32_t lap_session_n_ctx(const struct lap_session *session)
{
	return session->n_ctx;
}

void lap_session_clear(struct lap_session *session)
{
	for (uint32_t i = 0; i < session->n_seq; i++)
		timeline_truncate(session, &session->timelines[i], 0);
}

/* ---- timelines ---- */

static uint32_t window_of(const struct lap_session *s)
{
	return s->window.n_blocks ? model_window(s->m->model) : 0;
}

/* Layers with a window still have what a row at position n sees. */
static bool window_reaches(const struct lap_session *s, const struct timeline *t, uint32_t n)
{
	uint32_t window = window_of(s);
	return !window || t->window.first * KV_BLOCK <= WINDOW_START(n, window);
}

/* The positions up to n that a step can go on from. */
static uint32_t reach(const struct lap_session *s, const struct timeline *t, uint32_t n)
{
	if (!window_reaches(s, t, n))
		return 0;
	return t->states.table ? states_reach(&t->states, n) : n;
}

void timeline_truncate(struct lap_session *s, struct timeline *t, uint32_t n)
{
	n = reach(s, t, n < t->n_past ? n : t->n_past);
	if (t->n_past > n)
		t->n_past = n;
	if (t->n_prefill > n)
		t->n_prefill = n;
	blocks_truncate(&s->full, &t->full, t->n_past);
	blocks_truncate(&s->window, &t->window, t->n_past);
	if (t->states.table)
		states_truncate(&s->states, &t->states, t->n_past);
}

uint32_t timeline_common(const struct timeline *t, const int32_t *tokens, uint32_t n)
{
	uint32_t i = 0;
	while (i < t->n_prefill && i < n && t->tokens[i] == tokens[i])
		i++;
	return t->states.table ? states_reach(&t->states, i) : i;
}

void timeline_forget(struct lap_session *s, struct timeline *t)
{
	uint32_t window = window_of(s);
	if (window)
		blocks_forget(&s->window, &t->window, WINDOW_START(t->n_past, window));
}

/* A block that was to be copied to and was given up since is another's now. */
static struct copy_row *new_copy(struct lap_session *s, bool window, uint32_t to)
{
	for (uint32_t i = 0; i < s->n_copies; i++) {
		struct copy_row *c = &s->copies[i];
		if (!window && c->from != c->to && c->to == to)
			c->from = c->to = 0;
		if (window && c->from_window != c->to_window && c->to_window == to)
			c->from_window = c->to_window = 0;
	}
	assert(s->n_copies < MAX_COPIES);
	struct copy_row *c = &s->copies[s->n_copies++];
	*c = (struct copy_row){0};
	return c;
}

/* The block of that position is the timeline's alone; false when there is none for a copy. */
static bool own(struct lap_session *s, struct timeline *t, uint32_t position)
{
	uint32_t from, to;
	enum blocks_owned full = blocks_own(&s->full, &t->full, position, &from, &to);
	if (full == BLOCKS_COPIED) {
		struct copy_row *c = new_copy(s, false, to);
		c->from = from;
		c->to = to;
	}
	if (full == BLOCKS_NONE || !s->window.n_blocks)
		return full != BLOCKS_NONE;
	enum blocks_owned window = blocks_own(&s->window, &t->window, position, &from, &to);
	if (window == BLOCKS_COPIED) {
		struct copy_row *c = new_copy(s, true, to);
		c->from_window = from;
		c->to_window = to;
	}
	return window != BLOCKS_NONE;
}

static bool reserve(struct lap_session *s, struct timeline *t, uint32_t n_positions)
{
	if (t->n_past % KV_BLOCK && !own(s, t, t->n_past))
		return false;
	return blocks_reserve(&s->full, &t->full, n_positions) &&
		(!s->window.n_blocks || blocks_reserve(&s->window, &t->window, n_positions));
}

/* The state that the next row goes on from is the timeline's alone.  Each timeline has its share of the
 * pool, so that there is a block for a copy. */
static void own_state(struct lap_session *s, struct timeline *t)
{
	uint32_t from, to;
	states_forget(&s->states, &t->states, t->n_past, t->n_prefill);
	if (states_own(&s->states, &t->states, t->n_past, &from, &to) == BLOCKS_COPIED) {
		struct copy_row *c = new_copy(s, true, to);
		c->from_window = from;
		c->to_window = to;
	}
}

/* Gives up what nobody needs now: positions behind windows, then the timeline that was used the longest
 * time ago.  false: there is nothing left to give up. */
static bool give_up(struct lap_session *s)
{
	struct timeline *oldest = NULL;
	uint32_t n_free = s->window.n_free;
	for (uint32_t i = 0; i < s->n_seq; i++)
		timeline_forget(s, &s->timelines[i]);
	if (s->window.n_free > n_free)
		return true;
	for (uint32_t i = 0; i < s->n_seq; i++) {
		struct timeline *t = &s->timelines[i];
		if (!t->busy && t->full.n && (!oldest || t->used < oldest->used))
			oldest = t;
	}
	if (oldest)
		timeline_truncate(s, oldest, 0);
	return oldest != NULL;
}

/* Blocks of keys and values; as timeline_reserve. */
static uint32_t reserve_blocks(struct lap_session *s, struct timeline *t, uint32_t n_positions)
{
	bool busy = t->busy;
	t->used = ++s->n_uses;
	t->busy = true;
	if (n_positions > s->n_ctx)
		n_positions = s->n_ctx;
	bool done = reserve(s, t, n_positions);
	while (!done && give_up(s))
		done = reserve(s, t, n_positions);
	t->busy = busy;
	if (done)
		return n_positions;
	uint32_t n_blocks = t->full.n;
	if (s->window.n_blocks && t->window.n < n_blocks)
		n_blocks = t->window.n;
	/* The first block may be shared still. */
	if (t->n_past % KV_BLOCK && !own(s, t, t->n_past))
		return t->n_past;
	uint32_t n_there = n_blocks * KV_BLOCK;
	return n_there < t->n_past ? t->n_past : n_there < n_positions ? n_there : n_positions;
}

uint32_t timeline_reserve(struct lap_session *s, struct timeline *t, uint32_t n_positions)
{
	uint32_t n = reserve_blocks(s, t, n_positions);
	if (!t->states.table)
		return n;
	own_state(s, t);
	if (states_reserve(&s->states, &t->states, t->n_past, n))
		return n;
	return states_room(&t->states) < n ? states_room(&t->states) : n;
}

bool timeline_reserve_chunk(struct lap_session *s, struct timeline *t, uint32_t n_positions)
{
	if (reserve_blocks(s, t, n_positions) < n_positions)
		return false;
	if (!t->states.table)
		return true;
	own_state(s, t);
	return states_pass(&s->states, &t->states, t->n_past, n_positions);
}

void timeline_fork(
	struct lap_session *s, struct timeline *to, const struct timeline *from, uint32_t n)
{
	assert(n <= from->n_past && to != from);
	n = reach(s, from, n);
	if (to->states.table)
		states_share(&s->states, &to->states, &from->states, n);
	blocks_share(&s->full, &to->full, &from->full, n);
	if (s->window.n_blocks)
		blocks_share(&s->window, &to->window, &from->window, n);
	memcpy(to->tokens, from->tokens, n * sizeof(*to->tokens));
	to->n_past = n;
	to->n_prefill = from->n_prefill < n ? from->n_prefill : n;
	to->used = ++s->n_uses;
}

void session_reorder(
	struct lap_session *s, uint32_t *seq, uint32_t n, const uint32_t *parents, uint32_t n_next)
{
	const uint32_t none = UINT32_MAX;
	uint32_t next[MAX_SEQUENCES], spare = 0;
	bool taken[MAX_SEQUENCES] = {false};
	assert(n_next <= n && n <= MAX_SEQUENCES);
	for (uint32_t i = 0; i < n_next; i++) {
		next[i] = taken[parents[i]] ? none : seq[parents[i]];
		taken[parents[i]] = true;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (i < n_next && next[i] != none)
			continue;
		while (taken[spare])
			spare++;
		taken[spare] = true;
		next[i] = seq[spare];
		struct timeline *t = &s->timelines[next[i]];
		timeline_truncate(s, t, 0);
		if (i < n_next) {
			const struct timeline *from = &s->timelines[seq[parents[i]]];
			timeline_fork(s, t, from, from->n_past);
		}
	}
	memcpy(seq, next, n * sizeof(*seq));
}

/* ---- plans ---- */

uint32_t session_bucket(const struct lap_session *s, enum role role, uint32_t n_rows)
{
	uint32_t bucket = 0;
	if (role == ROLE_PREFILL)
		return n_rows <= s->n_few;
	while (1u << bucket < n_rows)
		bucket++;
	return bucket;
}

struct prepared *session_prepared(
	struct lap_session *s, enum role role, enum step_kind kind, uint32_t bucket)
{
	return role == ROLE_DECODE ? &s->decode[kind][bucket] : &s->prefill[bucket][0];
}

enum lap_status session_plan(struct lap_session *s, enum role role, enum step_kind kind,
	uint32_t bucket, struct plan *plan, struct lap_error *err)
{
	const bool decode = role == ROLE_DECODE;
	const struct prepared *prepared = session_prepared(s, role, kind, bucket);
	*plan = (struct plan){
		.role = role,
		.max_rows = decode ? 1u << bucket
			: bucket   ? s->n_few
				   : s->n_batch,
		.step = prepared->step_view,
		.sizes = prepared->sizes,
		.q8 = s->step_buffers.q8,
		.parts = s->step_buffers.parts,
	};
	forward(plan, s->m->model, &s->m->weights, &s->activations, &s->kv, &s->step_buffers,
		decode || s->logits_all);
	if (decode && kind == STEP_DRAW) {
		plan_sample(plan, s->activations.logits, &s->tail);
		plan_control(plan, s->activations.logits.n, &s->tail);
	}
	if (decode && kind == STEP_BEAMS) {
		plan_sample(plan, s->activations.logits, &s->tail);
		plan_beam_select(plan, &s->tail);
	}
	if (!plan->out_of_memory)
		return LAP_OK;
	plan_free(plan);
	return fail_memory(err, "a plan", plan->n_ops * sizeof(struct op));
}

static enum lap_status prepare_plan(struct lap_session *s, struct prepared *p,
	const struct plan *plan, uint32_t *n_recordings, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	if (plan->out_of_memory)
		return fail_memory(err, "a plan", plan->n_ops * sizeof(struct op));
	enum lap_status status = b->ops->prepare(b, plan, false, &p->runnable, err);
	*n_recordings += !status;
	return status;
}

static enum lap_status prepare_decode(
	struct lap_session *s, enum step_kind kind, uint32_t bucket, struct lap_error *err)
{
	struct prepared *p = &s->decode[kind][bucket];
	struct plan plan;
	if (p->runnable)
		return LAP_OK;
	enum lap_status status = session_plan(s, ROLE_DECODE, kind, bucket, &plan, err);
	if (status)
		return status;
	status = prepare_plan(s, p, &plan, &s->counts.decode_recordings, err);
	plan_free(&plan);
	return status;
}

/* The group of a layer's ops; those before and behind the layers go with the first and the last. */
static uint32_t group_of(const struct lap_session *s, const struct plan *plan, uint32_t i)
{
	int32_t layer = plan->ops[i].layer;
	if (layer < 0)
		return i < plan->n_ops / 2 ? 0 : s->n_groups - 1;
	return (uint32_t)((uint64_t)(uint32_t)layer * s->n_groups / s->m->model->h.n_layer);
}

static enum lap_status prepare_prefill(
	struct lap_session *s, uint32_t bucket, struct lap_error *err)
{
	struct prepared *prefill = s->prefill[bucket];
	struct plan plan;
	if (prefill[s->n_groups - 1].runnable)
		return LAP_OK;
	enum lap_status status = session_plan(s, ROLE_PREFILL, STEP_LOGITS, bucket, &plan, err);
	if (status)
		return status;
	uint32_t n_recordings = 0; /* all groups together are one */
	for (uint32_t g = 0, first = 0; g < s->n_groups && !status; g++) {
		struct plan group = plan;
		uint32_t end = first;
		while (end < plan.n_ops && group_of(s, &plan, end) == g)
			end++;
		group.ops = plan.ops + first;
		group.n_ops = end - first;
		group.sizes = prefill[g].sizes;
		if (!prefill[g].runnable)
			status = prepare_plan(s, &prefill[g], &group, &n_recordings, err);
		first = end;
	}
	s->counts.prefill_recordings += !status;
	plan_free(&plan);
	return status;
}

enum lap_status session_wait(struct lap_session *s, uint64_t ticket, struct lap_error *err)
{
	s->counts.waits++;
	return s->m->backend->ops->wait(s->m->backend, ticket, err);
}

/* Runs a prepared plan once and waits. */
static enum lap_status run_once(
	struct lap_session *s, struct prepared *p, uint32_t *n_submits, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	uint64_t ticket;
	b->ops->begin(p->runnable);
	enum lap_status status = b->ops->run(b, p->runnable, 1, &ticket, err);
	*n_submits += !status;
	return status ? status : session_wait(s, ticket, err);
}

/* ---- copies and shifts ---- */

enum lap_status session_copy_blocks(struct lap_session *s, struct lap_error *err)
{
	struct prepared *p = &s->copy;
	enum lap_status status = LAP_OK;
	if (s->n_copies == 0)
		return LAP_OK;
	if (!p->runnable) {
		struct plan plan = {.role = ROLE_DECODE,
			.max_rows = MAX_COPIES,
			.step = p->step_view,
			.sizes = p->sizes};
		forward_copy(&plan, s->m->model, &s->kv);
		status = prepare_plan(s, p, &plan, &s->counts.other_recordings, err);
		plan_free(&plan);
	}
	if (status)
		return status;
	memcpy(p->step + 1, s->copies, s->n_copies * sizeof(*s->copies));
	*p->step = (struct step_header){.n_rows = s->n_copies};
	s->n_copies = 0;
	return run_once(s, p, &s->counts.other_submits, err);
}

enum lap_status session_can_shift(const struct lap_session *s, struct lap_error *err)
{
	const struct model *m = s->m->model;
	const char *why = NULL;
	if (s->n_state_blocks)
		why = "the state of its recurrent layers has all positions in one";
	else if (s->n_window_blocks)
		why = "its layers with a window have let go of what would have to move";
	else if (m->position_embd.data)
		why = "its positions are learned, not turned";
	if (!why)
		return LAP_OK;
	return fail(err, LAP_USAGE,
		"the context of %s cannot be shifted: %s; --context-overflow crop computes it "
		"again",
		m->arch->name, why);
}

/* Room for rows of the step `p`, its plan recorded. */
static enum lap_status prepare_shift(struct lap_session *s, struct lap_error *err)
{
	struct prepared *p = &s->shift;
	struct plan plan = {.role = ROLE_PREFILL,
		.max_rows = s->n_batch,
		.step = p->step_view,
		.sizes = p->sizes};
	if (p->runnable)
		return LAP_OK;
	forward_shift(&plan, s->m->model, &s->kv, &s->step_buffers);
	enum lap_status status = prepare_plan(s, p, &plan, &s->counts.other_recordings, err);
	plan_free(&plan);
	return status;
}

enum lap_status timeline_shift(struct lap_session *s, struct timeline *t, uint32_t n_keep,
	uint32_t n_discard, struct lap_error *err)
{
	struct shift_row *rows = (struct shift_row *)(s->shift.step + 1);
	const uint32_t n_moved = t->n_past - n_keep - n_discard, seq = (uint32_t)(t - s->timelines);
	assert(n_keep + n_discard <= t->n_past && n_moved <= n_discard);
	enum lap_status status = session_can_shift(s, err);
	if (!status)
		status = prepare_shift(s, err);
	for (uint32_t pos = n_keep; pos < n_keep + n_moved && !status; pos++)
		if (pos == n_keep || pos % KV_BLOCK == 0) {
			if (s->n_copies == MAX_COPIES)
				status = session_copy_blocks(s, err);
			if (!status && !own(s, t, pos))
				status = fail(err, LAP_USAGE,
					"no block of the KV cache is left to shift a shared one");
		}
	if (!status)
		status = session_copy_blocks(s, err);
	for (uint32_t i = 0; i < n_moved && !status;) {
		uint32_t n = n_moved - i < s->n_batch ? n_moved - i : s->n_batch;
		for (uint32_t j = 0; j < n; j++)
			rows[j] = (struct shift_row){n_keep + i + j, n_discard, seq, 0};
		*s->shift.step = (struct step_header){.n_rows = n};
		status = run_once(s, &s->shift, &s->counts.other_submits, err);
		i += n;
	}
	if (status)
		return status;
	memmove(t->tokens + n_keep, t->tokens + n_keep + n_discard, n_moved * sizeof(*t->tokens));
	if (t->n_prefill > n_keep)
		t->n_prefill = n_keep;
	timeline_truncate(s, t, n_keep + n_moved);
	return LAP_OK;
}

/* ---- prefill ---- */

/* Rows of the next chunk, which goes to the device as n_groups submits. */
static uint32_t chunk_size(const struct lap_session *s, uint32_t n_left)
{
	double budget = s->max_submit_seconds > 0 ? s->max_submit_seconds : PREFILL_BUDGET;
	double rows = s->row_seconds > 0 ? budget / s->row_seconds
					 : FIRST_PRODUCTS / (double)(s->m->info.n_weights + 1);
	rows *= s->n_groups;
	if (!(s->row_seconds > 0) && rows > FIRST_CHUNK)
		rows = FIRST_CHUNK;
	uint32_t n = rows < LEAST_CHUNK ? LEAST_CHUNK
		: rows > s->n_batch     ? s->n_batch
					: (uint32_t)rows / LEAST_CHUNK * LEAST_CHUNK;
	if (n > s->n_batch)
		n = s->n_batch;
	return n < n_left ? n : n_left;
}

enum lap_status session_read_logits(
	struct lap_session *s, uint32_t first, uint32_t n, float *logits, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const struct rows *rows = &s->activations.logits;
	const struct view view = rows_view(*rows, first, n);
	float *copy = malloc((size_t)view.n_bytes);
	if (!copy)
		return fail_memory(err, "logits", view.n_bytes);
	enum lap_status status = b->ops->read(b, view, copy, view.n_bytes, err);
	for (size_t i = 0; !status && i < n; i++)
		memcpy(logits + i * rows->n, copy + i * rows->stride, rows->n * sizeof(float));
	free(copy);
	return status;
}

/* Every layer group once, one behind the other; waits for the last. */
static enum lap_status run_prefill(
	struct lap_session *s, const struct prepared *prefill, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	enum lap_status status = LAP_OK;
	uint64_t ticket = 0;
	for (uint32_t g = 0; g < s->n_groups && !status; g++) {
		b->ops->begin(prefill[g].runnable);
		status = b->ops->run(b, prefill[g].runnable, 1, &ticket, err);
		s->counts.prefill_submits += !status;
	}
	return status ? status : session_wait(s, ticket, err);
}

static enum lap_status fail_full(const struct lap_session *s, uint32_t n, struct lap_error *err)
{
	return fail(err, LAP_USAGE,
		"the KV cache of %u tokens is full: no room for %u more of this sequence; a larger "
		"-c, or fewer sequences at a time, would have it",
		(unsigned)s->n_pool, (unsigned)n);
}

enum lap_status timeline_restore(struct lap_session *s, struct timeline *to, const int32_t *tokens,
	uint32_t n, uint32_t first_window, struct lap_error *err)
{
	timeline_truncate(s, to, 0);
	if (s->window.n_blocks)
		to->window.first = to->window.n = first_window;
	if (reserve_blocks(s, to, n) < n ||
		(to->states.table && !states_pass(&s->states, &to->states, n, n))) {
		timeline_truncate(s, to, 0);
		return fail_full(s, n, err);
	}
	memcpy(to->tokens, tokens, n * sizeof(*tokens));
	to->n_past = to->n_prefill = n;
	return LAP_OK;
}

enum lap_status session_prefill_chunk(struct lap_session *s, struct timeline *t,
	const int32_t *tokens, uint32_t n, uint32_t most, float *logits, uint32_t *n_done,
	struct lap_error *err)
{
	const uint32_t seq = (uint32_t)(t - s->timelines);
	assert(!logits || s->logits_all);
	n = chunk_size(s, n < most ? n : most);
	const uint32_t bucket = session_bucket(s, ROLE_PREFILL, n);
	struct prepared *prefill = s->prefill[bucket];
	struct step_row *rows = (struct step_row *)(prefill->step + 1);
	enum lap_status status = prepare_prefill(s, bucket, err);
	if (status)
		return status;
	if (!timeline_reserve_chunk(s, t, t->n_past + n))
		return fail_full(s, n, err);
	status = session_copy_blocks(s, err);
	if (status)
		return status;
	for (uint32_t i = 0; i < n; i++)
		rows[i] = (struct step_row){(uint32_t)tokens[i], t->n_past + i, seq, 0};
	*prefill->step = (struct step_header){.n_rows = n, .n_kv = t->n_past + n};
	double start = clock_seconds();
	status = run_prefill(s, prefill, err);
	if (status)
		return status;
	s->row_seconds = (clock_seconds() - start) / (n < LEAST_CHUNK ? LEAST_CHUNK : n);
	memcpy(t->tokens + t->n_past, tokens, n * sizeof(*tokens));
	if (t->n_prefill == t->n_past)
		t->n_prefill += n;
	t->n_past += n;
	*n_done = n;
	return logits ? session_read_logits(s, 0, n, logits, err) : LAP_OK;
}

enum lap_status session_prefill(struct lap_session *s, struct timeline *t, const int32_t *tokens,
	uint32_t n, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (uint32_t i = 0, n_done; !status && i < n && !s->cancelled; i += n_done) {
		n_done = 0;
		status = session_prefill_chunk(s, t, tokens + i, n - i, n - i, NULL, &n_done, err);
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

/* ---- decode ---- */

enum lap_status session_set_step(struct lap_session *s, enum step_kind kind,
	const struct step_row *rows, uint32_t n, struct lap_error *err)
{
	const uint32_t bucket = session_bucket(s, ROLE_DECODE, n);
	struct prepared *p = &s->decode[kind][bucket];
	uint32_t n_kv = 0;
	assert(n > 0 && n <= s->max_rows);
	enum lap_status status = prepare_decode(s, kind, bucket, err);
	if (!status)
		status = session_copy_blocks(s, err);
	if (status)
		return status;
	for (uint32_t i = 0; i < n; i++)
		n_kv = rows[i].pos >= n_kv ? rows[i].pos + 1 : n_kv;
	memcpy(p->step + 1, rows, n * sizeof(*rows));
	*p->step = (struct step_header){.n_rows = n, .n_kv = n_kv};
	s->m->backend->ops->begin(p->runnable);
	s->running = p;
	return LAP_OK;
}

enum lap_status session_submit(
	struct lap_session *s, uint32_t n_steps, uint64_t *ticket, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	enum lap_status status = b->ops->run(b, s->running->runnable, n_steps, ticket, err);
	s->counts.decode_submits += !status;
	return status;
}

enum lap_status session_compute_logits(struct lap_session *s, const struct step_row *rows,
	uint32_t n, const float **logits, struct lap_error *err)
{
	const size_t n_floats = ((size_t)s->max_rows + 1) * s->m->info.n_vocab;
	uint64_t ticket;
	if (!s->host_logits)
		s->host_logits = array_alloc(n_floats, sizeof(float));
	if (!s->host_logits)
		return fail_memory(err, "logits", n_floats * sizeof(float));
	enum lap_status status = session_set_step(s, STEP_LOGITS, rows, n, err);
	if (!status)
		status = session_submit(s, 1, &ticket, err);
	if (!status)
		status = session_wait(s, ticket, err);
	if (!status && logits) {
		*logits = s->host_logits;
		status = session_read_logits(s, 0, n, s->host_logits, err);
	}
	return status;
}

enum lap_status session_step(
	struct lap_session *s, int32_t token, float *logits, struct lap_error *err)
{
	struct timeline *t = &s->timelines[0];
	uint64_t ticket;
	if (t->n_past == s->n_ctx)
		return fail(err, LAP_USAGE, "the context of %u tokens is full", (unsigned)s->n_ctx);
	const struct step_row row = {(uint32_t)token, t->n_past, 0, 0};
	enum lap_status status = session_check_tokens(s, &token, 1, err);
	if (!status && timeline_reserve(s, t, t->n_past + 1) <= t->n_past)
		status = fail_full(s, 1, err);
	session_set_sequence(s, 0, &(struct sequence){.greedy = 1, .n_ctx = s->n_ctx, .n_left = 1});
	if (!status)
		status = session_set_step(s, STEP_DRAW, &row, 1, err);
	if (!status)
		status = session_submit(s, 1, &ticket, err);
	if (!status)
		status = session_wait(s, ticket, err);
	if (!status)
		status = session_read_logits(s, 0, 1, logits, err);
	if (!status)
		t->tokens[t->n_past++] = token;
	return status;
}

/* ---- histories ---- */

static struct view history_of(const struct lap_session *s, uint32_t seq)
{
	const uint64_t n_bytes =
		HISTORY_WORDS((uint64_t)s->n_ctx, s->m->info.n_vocab) * sizeof(uint32_t);
	struct view view = s->tail.history;
	view.offset += seq * n_bytes;
	view.n_bytes = n_bytes;
	return view;
}

enum lap_status session_write_mask(
	struct lap_session *s, uint32_t seq, const uint32_t *mask, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const uint64_t n_bytes = MASK_WORDS(s->m->info.n_vocab) * sizeof(uint32_t);
	struct view view = history_of(s, seq);
	view.offset += view.n_bytes - n_bytes;
	view.n_bytes = n_bytes;
	return b->ops->write(b, view, mask, n_bytes, err);
}

enum lap_status session_write_history(struct lap_session *s, uint32_t seq, int32_t last,
	const uint32_t *mask, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const struct timeline *t = &s->timelines[seq];
	const uint32_t n_vocab = s->m->info.n_vocab;
	const struct view view = history_of(s, seq);
	uint32_t *count = s->history + s->n_ctx;
	for (uint32_t i = 0; i < t->n_past; i++)
		s->history[i] = (uint32_t)t->tokens[i];
	s->history[t->n_past] = (uint32_t)last;
	sampler_count(&s->sequences[seq], s->history, t->n_past + 1, count, n_vocab);
	if (mask)
		memcpy(count + n_vocab, mask, MASK_WORDS(n_vocab) * sizeof(*mask));
	return b->ops->write(b, view, s->history, view.n_bytes, err);
}

static_assert(ATOMIC_INT_LOCK_FREE == 2 && sizeof(atomic_u32) == sizeof(u32),
	"a signal handler may cancel, and shaders read it");
static_assert(offsetof(struct sequence, cancel) + sizeof(u32) == sizeof(struct sequence),
	"what lap_session_cancel writes is behind all that is copied");

/* A cancel that this undoes has set s->cancelled before, which whoever submits steps looks at. */
void session_set_sequence(struct lap_session *s, uint32_t seq, const struct sequence *sequence)
{
	struct sequence *to = &s->sequences[seq];
	const uint32_t n_sampled = to->n_sampled;
	memcpy(to, sequence, offsetof(struct sequence, cancel));
	to->n_sampled = n_sampled;
	to->cancel = 0;
}

void lap_session_cancel(struct lap_session *s)
{
	s->cancelled = 1;
	for (uint32_t i = 0; i < s->n_seq; i++)
		s->sequences[i].cancel = 1;
}
