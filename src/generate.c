/* The generation loop: prompts become tokens, tokens become text.
 *
 * Owns who runs when: requests take sequences of the session as these come free, prompts are computed
 * chunk by chunk between the steps of the others, and each step is given to the device as often in one
 * submit as the time allows, with two submits in flight.  The step itself, the draw and the stop rules
 * run where the weights are; what belongs to one request is request.c's. */
#include <assert.h>
#include <string.h>

#include "kv.h"
#include "request.h"

#define SUBMIT_BUDGET   0.045 /* seconds a decode submit should last */
#define MAX_STEPS       64    /* of one submit, where the number is chosen */
#define MAX_IN_FLIGHT   2
#define MAX_FIXED_STEPS (RING_ENTRIES / (2 * MAX_IN_FLIGHT))

static_assert(
	MAX_STEPS <= MAX_FIXED_STEPS, "the ring holds all that is in flight, and as much again");

struct flight {
	uint64_t ticket;
	uint32_t n_steps;
};

struct batch {
	struct lap_session *s;
	struct slot slots[MAX_SEQUENCES]; /* slot i works on timeline i */
	struct lap_request *requests;
	size_t n, next; /* requests, and the first that has no slot yet */
	struct flight flights[MAX_IN_FLIGHT];
	uint32_t n_flights;
	struct session_counts before;
	double cpu_start, thread_start;
};

static bool is_in(const struct slot *slot, enum phase phase)
{
	return slot->phase == phase;
}

static uint32_t n_in(const struct batch *b, enum phase phase)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		n += is_in(&b->slots[i], phase);
	return n;
}

/* ---- joining and leaving --------------------------------------------------------------------- */

/* Of the KV cache, what one decode step reads with n tokens in it, and of the states. */
static uint64_t kv_bytes_read(const struct lap_session *s, uint64_t n)
{
	const struct model *m = s->m->model;
	uint64_t n_bytes = 0;
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
		const struct layer *layer = &m->layers[il];
		if (layer->mixer != MIXER_ATTENTION) {
			n_bytes += layer_state_bytes(m, il).start;
			continue;
		}
		const struct kv_layer *kv = &s->kv.layers[layer->kv_layer];
		uint64_t seen = layer->window && layer->window < n ? layer->window : n;
		n_bytes += seen *
			(kv_bytes(kv->k_type, n_kv(layer)) + kv_bytes(kv->v_type, n_kv(layer)));
	}
	return n_bytes;
}

/* The request of a slot has ended, its status says how; nothing is in flight. */
static void leave(struct batch *b, struct slot *slot)
{
	const struct lap_session *s = b->s;
	struct lap_generation *r = &slot->request->result;
	slot_close(slot);
	const struct session_counts now = s->counts;
	r->host_cpu_seconds = clock_cpu_seconds() - b->cpu_start;
	r->host_thread_seconds = clock_thread_seconds() - b->thread_start;
	r->prefill_recordings = now.prefill_recordings;
	r->decode_recordings = now.decode_recordings;
	r->prefill_submits = now.prefill_submits - b->before.prefill_submits;
	r->decode_submits = now.decode_submits - b->before.decode_submits;
	r->submits = r->prefill_submits + r->decode_submits + now.other_submits -
		b->before.other_submits;
	r->waits = now.waits - b->before.waits;
	r->kv_tokens = slot->t->n_past;
	r->step_bytes = s->m->info.step_bytes + kv_bytes_read(s, slot->t->n_past);
	r->device_bytes = s->m->backend->device_bytes;
	slot->phase = PHASE_FREE;
}

static void leave_ended(struct batch *b)
{
	assert(b->n_flights == 0);
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_ENDED))
			leave(b, &b->slots[i]);
}

/* The free slot whose timeline has most of the prompt already; of equal ones the one that was used the
 * longest time ago. */
static struct slot *slot_for(struct batch *b, const struct lap_request *request)
{
	struct slot *best = NULL;
	uint32_t best_common = 0;
	for (uint32_t i = 0; i < b->s->n_seq; i++) {
		struct slot *slot = &b->slots[i];
		if (!is_in(slot, PHASE_FREE))
			continue;
		uint32_t common =
			timeline_common(slot->t, request->prompt, (uint32_t)request->n - 1);
		if (!best || common > best_common ||
			(common == best_common && slot->t->used < best->t->used)) {
			best = slot;
			best_common = common;
		}
	}
	return best;
}

static enum lap_status join(struct batch *b, struct lap_error *err)
{
	while (b->next < b->n) {
		struct lap_request *request = &b->requests[b->next];
		if (request->status) { /* refused before it began */
			b->next++;
			continue;
		}
		struct slot *slot = slot_for(b, request);
		if (!slot)
			return LAP_OK;
		b->next++;
		struct lap_error own = {0};
		enum lap_status status = slot_open(slot, request, &own);
		if (status == LAP_USAGE) /* of this request alone */
			slot_fail(slot, status, &own);
		else if (status)
			return fail(err, status, "%s", own.text);
	}
	return LAP_OK;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* What another timeline has of the prompt beyond what this one has is shared. */
static void share_prefix(struct batch *b, struct slot *slot)
{
	struct lap_session *s = b->s;
	struct timeline *t = slot->t;
	uint32_t best = t->n_past;
	const struct timeline *from = NULL;
	for (uint32_t i = 0; i < s->n_seq; i++) {
		const struct timeline *other = &s->timelines[i];
		uint32_t common =
			other == t ? 0 : timeline_common(other, slot->tokens, slot->n_prefill);
		if (common > best) {
			best = common;
			from = other;
		}
	}
	if (!from)
		return;
	timeline_fork(s, t, from, best);
	if (slot->n_generated == 0)
		slot->request->result.n_reused = t->n_past;
}

/* Chunks of the prompts that wait, first come first served: n_batch tokens in all, and one chunk where
 * others are kept waiting for their next step. */
static enum lap_status prefill_round(struct batch *b, struct lap_error *err)
{
	struct lap_session *s = b->s;
	const bool others_wait = n_in(b, PHASE_DECODE) != 0;
	uint32_t budget = s->n_batch;
	enum lap_status status = LAP_OK;
	while (!status && budget > 0 && !s->cancelled) {
		struct slot *slot = NULL;
		for (uint32_t i = 0; i < s->n_seq; i++)
			if (is_in(&b->slots[i], PHASE_PREFILL) &&
				(!slot || b->slots[i].order < slot->order))
				slot = &b->slots[i];
		if (!slot)
			break;
		struct timeline *t = slot->t;
		struct lap_error own = {0};
		uint32_t n_done = 0;
		share_prefix(b, slot);
		if (t->n_past < slot->n_prefill)
			status = session_prefill_chunk(s, t, slot->tokens + t->n_past,
				slot->n_prefill - t->n_past, budget, NULL, &n_done, &own);
		if (n_done)
			slot_report_prompt(slot);
		budget = n_done && others_wait ? 0 : budget - n_done;
		if (status == LAP_USAGE) { /* no room: the others go on */
			slot_fail(slot, status, &own);
			status = LAP_OK;
		} else if (status)
			return fail(err, status, "%s", own.text);
		else if (t->n_past == slot->n_prefill)
			slot_prefilled(slot);
	}
	return status;
}

/* ---- steps on the device --------------------------------------------------------------------- */

/* Someone could join, or another recording would do, or someone needs the host: the rows must change.  So
 * they must when the host ended a sequence: the device would go on to positions that it has no room for. */
static bool must_change(const struct batch *b)
{
	uint32_t n_decode = n_in(b, PHASE_DECODE), n_ended = n_in(b, PHASE_ENDED);
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_ENDED) &&
			!*(const volatile u32 *)&b->s->sequences[i].done)
			return true;
	if (n_decode == 0 || n_in(b, PHASE_PREFILL) || n_in(b, PHASE_FULL) || b->s->cancelled)
		return true;
	return n_ended && (b->next < b->n || n_decode * 2 <= n_decode + n_ended);
}

/* Steps that every row has room for behind those in flight, at most n; rows without any fail, if nothing
 * is in flight that may end them. */
static uint32_t reserve_steps(struct batch *b, uint32_t n)
{
	struct lap_session *s = b->s;
	for (uint32_t i = 0; i < s->n_seq; i++) {
		struct slot *slot = &b->slots[i];
		if (!is_in(slot, PHASE_DECODE))
			continue;
		uint32_t at = slot->t->n_past + slot->n_ahead;
		if (at >= s->n_ctx) /* it ends, or is full, in what is in flight */
			continue;
		uint32_t n_wanted = n < s->n_ctx - at ? n : s->n_ctx - at;
		uint32_t room = timeline_reserve(s, slot->t, at + n_wanted) - at;
		if (room == 0 && n_wanted && b->n_flights == 0) {
			slot_fail_full(slot);
			continue;
		}
		if (room < n_wanted)
			n = room;
	}
	return n;
}

static uint32_t choose_steps(const struct batch *b, bool first_tokens)
{
	const struct lap_session *s = b->s;
	const double budget = s->max_submit_seconds > 0 ? s->max_submit_seconds : SUBMIT_BUDGET;
	uint32_t n = 1, n_left = 0;
	if (s->steps_per_submit)
		n = s->steps_per_submit;
	else if (!first_tokens && s->step_seconds > 0) {
		double steps = budget / s->step_seconds;
		n = steps > MAX_STEPS ? MAX_STEPS : steps < 1 ? 1 : (uint32_t)steps;
	}
	for (uint32_t i = 0; i < s->n_seq; i++) {
		const struct slot *slot = &b->slots[i];
		uint64_t left = is_in(slot, PHASE_DECODE) ? slot_left(slot) - slot->n_ahead : 0;
		if (left > n_left)
			n_left = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
	}
	return n < n_left ? n : n_left;
}

/* The first token of a sequence is not delayed by steps behind it. */
static bool awaits_first(const struct batch *b)
{
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_DECODE) && b->slots[i].n_generated == 0)
			return true;
	return false;
}

static bool has_single_steps(const struct batch *b)
{
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_DECODE) && slot_needs_steps(&b->slots[i]))
			return true;
	return false;
}

/* One row for each sequence that decodes. */
static enum lap_status set_rows(struct batch *b, uint32_t *n_rows, struct lap_error *err)
{
	struct step_row rows[MAX_SEQUENCES];
	uint32_t n = 0;
	enum lap_status status = LAP_OK;
	for (uint32_t i = 0; i < b->s->n_seq && !status; i++) {
		struct slot *slot = &b->slots[i];
		if (!is_in(slot, PHASE_DECODE))
			continue;
		status = slot_to_device(slot, err);
		if (!is_in(slot, PHASE_DECODE)) /* its grammar ended it */
			continue;
		rows[n++] = (struct step_row){(uint32_t)slot->last, slot->t->n_past, i, 0};
	}
	*n_rows = n;
	return status || n == 0 ? status : session_set_step(b->s, STEP_DRAW, rows, n, err);
}

static enum lap_status submit(struct batch *b, uint32_t n_steps, struct lap_error *err)
{
	struct flight *f = &b->flights[b->n_flights];
	enum lap_status status = session_submit(b->s, n_steps, &f->ticket, err);
	if (status)
		return status;
	f->n_steps = n_steps;
	b->n_flights++;
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_DECODE))
			b->slots[i].n_ahead += n_steps;
	return LAP_OK;
}

/* Waits for the oldest submit and hands on what it gave; *n_taken: the most tokens of one sequence. */
static enum lap_status land(struct batch *b, uint32_t *n_taken, struct lap_error *err)
{
	const struct flight f = b->flights[0];
	enum lap_status status = session_wait(b->s, f.ticket, err);
	b->n_flights--;
	memmove(b->flights, b->flights + 1, b->n_flights * sizeof(f));
	for (uint32_t i = 0; i < b->s->n_seq && !status; i++) {
		struct slot *slot = &b->slots[i];
		uint64_t before = slot->n_generated;
		if (slot->n_ahead)
			status = slot_take_ready(slot, f.n_steps, err);
		if (slot->n_generated - before > *n_taken)
			*n_taken = (uint32_t)(slot->n_generated - before);
	}
	return status;
}

/* What is still in flight must not touch the next step. */
static void drain(struct batch *b)
{
	struct lap_error ignored;
	if (b->n_flights)
		lap_session_cancel(b->s);
	for (uint32_t i = 0; i < b->n_flights; i++)
		session_wait(b->s, b->flights[i].ticket, &ignored);
	b->n_flights = 0;
}

/* Steps with the rows as they are now, until these must change. */
static enum lap_status run_on_device(struct batch *b, struct lap_error *err)
{
	struct lap_session *s = b->s;
	const bool others_wait = n_in(b, PHASE_PREFILL) != 0;
	/* At least one step of room, before the rows are set: copies come before the step. */
	if (reserve_steps(b, 1) == 0 || n_in(b, PHASE_DECODE) == 0)
		return LAP_OK;
	const bool single = has_single_steps(b);
	uint32_t n_rows = 0;
	enum lap_status status = set_rows(b, &n_rows, err);
	if (n_rows == 0)
		return status;
	double idle_since = clock_seconds();
	bool last = false; /* no further submit */
	while (!status && (b->n_flights || !last)) {
		/* No work behind the first token: a device that computes as it is asked would hold
		 * it back, and its time is what the next size is chosen from. */
		const bool first_tokens = awaits_first(b);
		const uint32_t n_allowed =
			first_tokens || others_wait || single ? 1 : MAX_IN_FLIGHT;
		while (!status && !last && b->n_flights < n_allowed) {
			uint32_t n = single ? 1 : choose_steps(b, first_tokens);
			n = n ? reserve_steps(b, n) : 0;
			last = last || must_change(b);
			if (n == 0 || last)
				break;
			status = submit(b, n, err);
		}
		if (status || b->n_flights == 0)
			break;
		uint32_t n_taken = 0;
		status = land(b, &n_taken, err);
		double now = clock_seconds();
		if (n_taken)
			s->step_seconds = (now - idle_since) / n_taken;
		idle_since = now;
		last = last || others_wait || single || must_change(b);
	}
	if (status)
		drain(b);
	return status;
}

/* ---- steps whose tokens the host draws ------------------------------------------------------- */

static bool any_needs_host(const struct batch *b)
{
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_DECODE) && slot_needs_host(&b->slots[i]))
			return true;
	return false;
}

/* Rows of a step that each sequence may have. */
static uint32_t rows_each(const struct batch *b)
{
	return b->s->max_rows / n_in(b, PHASE_DECODE);
}

/* What follows the last tokens, as far as that is guessed at. */
static enum lap_status guess(struct batch *b, struct lap_error *err)
{
	struct draft *drafts[MAX_SEQUENCES];
	const uint32_t most = rows_each(b);
	uint32_t n = 0;
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (is_in(&b->slots[i], PHASE_DECODE) && b->slots[i].draft)
			drafts[n++] = slot_ask(&b->slots[i], most);
	return drafts_run(drafts, n, &b->s->cancelled, err);
}

/* A position for each sequence that decodes, before guesses take any: one without fails alone. */
static void reserve_last(struct batch *b)
{
	for (uint32_t i = 0; i < b->s->n_seq; i++) {
		struct slot *slot = &b->slots[i];
		const uint32_t at = slot->t->n_past;
		if (is_in(slot, PHASE_DECODE) && timeline_reserve(b->s, slot->t, at + 1) <= at)
			slot_fail_full(slot);
	}
}

/* Rows of all sequences that decode, those of one together; n_rows[i]: of slot i. */
static uint32_t collect_rows(struct batch *b, struct step_row *rows, uint32_t n_rows[MAX_SEQUENCES])
{
	struct lap_session *s = b->s;
	const uint32_t most = rows_each(b);
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->n_seq; i++) {
		struct slot *slot = &b->slots[i];
		const uint32_t at = slot->t->n_past;
		n_rows[i] = is_in(slot, PHASE_DECODE) ? slot_rows(slot, rows + n, most) : 0;
		if (n_rows[i] > 1) /* guesses that find no room are left out */
			n_rows[i] = timeline_reserve(s, slot->t, at + n_rows[i]) - at;
		n += n_rows[i];
	}
	return n;
}

/* One step of every sequence. */
static enum lap_status run_on_host(struct batch *b, struct lap_error *err)
{
	struct lap_session *s = b->s;
	struct step_row rows[MAX_STEP_ROWS];
	uint32_t n_rows[MAX_SEQUENCES];
	const float *logits = NULL;
	reserve_last(b);
	if (n_in(b, PHASE_DECODE) == 0)
		return LAP_OK;
	enum lap_status status = guess(b, err);
	if (!status)
		status = session_compute_logits(
			s, rows, collect_rows(b, rows, n_rows), &logits, err);
	for (uint32_t i = 0; i < s->n_seq && !status; i++)
		if (n_rows[i]) {
			status = slot_take_logits(&b->slots[i], logits, n_rows[i], err);
			logits += (size_t)n_rows[i] * s->m->info.n_vocab;
		}
	return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum lap_status step_all(struct batch *b, struct lap_error *err)
{
	enum lap_status status = join(b, err);
	if (!status)
		status = prefill_round(b, err);
	if (!status && n_in(b, PHASE_DECODE) && !b->s->cancelled)
		status = any_needs_host(b) ? run_on_host(b, err) : run_on_device(b, err);
	for (uint32_t i = 0; i < b->s->n_seq && !status; i++)
		if (is_in(&b->slots[i], PHASE_FULL))
			status = slot_make_room(&b->slots[i], err);
	return status;
}

static enum lap_status run(struct batch *b, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	while (!status &&
		(b->next < b->n || n_in(b, PHASE_PREFILL) || n_in(b, PHASE_DECODE) ||
			n_in(b, PHASE_FULL))) {
		if (b->s->cancelled)
			break;
		status = step_all(b, err);
		leave_ended(b);
	}
	for (uint32_t i = 0; i < b->s->n_seq; i++)
		if (!is_in(&b->slots[i], PHASE_FREE)) {
			slot_cancel(&b->slots[i], status, err);
			leave(b, &b->slots[i]);
		}
	for (; b->next < b->n; b->next++)
		if (!b->requests[b->next].status)
			request_skip(&b->requests[b->next], status, err);
	return status;
}

enum lap_status lap_generate_batch(
	struct lap_session *s, struct lap_request *requests, size_t n, struct lap_error *err)
{
	struct lap_error unused;
	struct batch b = {
		.s = s,
		.requests = requests,
		.n = n,
		.before = s->counts,
		.cpu_start = clock_cpu_seconds(),
		.thread_start = clock_thread_seconds(),
	};
	err = err ? err : &unused;
	if (s->steps_per_submit > MAX_FIXED_STEPS)
		return fail(err, LAP_USAGE, "%u steps per submit, expected at most %u",
			(unsigned)s->steps_per_submit, (unsigned)MAX_FIXED_STEPS);
	for (uint32_t i = 0; i < s->n_seq; i++)
		b.slots[i] = (struct slot){.s = s, .t = &s->timelines[i], .seq = i};
	for (size_t i = 0; i < n; i++)
		request_check(s, &requests[i]);
	s->cancelled = 0;
	return run(&b, err);
}

enum lap_status lap_generate(struct lap_session *s, const int32_t *prompt, size_t n,
	const struct lap_generate_options *options, lap_token_fn *on_token, void *user,
	struct lap_generation *result, struct lap_error *err)
{
	struct lap_request request = {prompt, n, options, on_token, user, {0}, LAP_OK, {0}};
	enum lap_status status = lap_generate_batch(s, &request, 1, err);
	if (result)
		*result = request.result;
	if (!status && request.status)
		status = fail(err, request.status, "%s", request.error.text);
	return status;
}
