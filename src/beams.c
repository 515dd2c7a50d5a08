/* Beam search on a session: each beam is a timeline and a row of the step.
 *
 * Owns the loop: the device lists and merges the ways to go on (STEP_BEAMS), beam_scorer.c chooses among
 * them, and the timelines are put in the new order by their block tables.  A beam's rows are those it
 * would have alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "beam_scorer.h"
#include "session.h"

static const struct lap_beam_options default_options = {.length_penalty = 1};

struct search {
	struct lap_session *s;
	const struct lap_beam_options *o;
	const int32_t *prompt;
	uint32_t n_prompt;
	uint32_t seq[MAX_SEQUENCES]; /* timelines of the beams, the running ones first */
	int32_t ends[MAX_STOPS];
	size_t n_ends;
	struct beam_scorer scorer;
	double started, first, latest; /* clock_seconds */
};

static_assert(MAX_SEQUENCES <= MAX_BEAMS, "as many beams as sequences");

/* ---- what is asked for ----------------------------------------------------------------------- */

static enum lap_status set_ends(struct search *x, struct lap_error *err)
{
	const struct lap_beam_options *o = x->o;
	size_t n = 0;
	const int32_t *ends = x->s->m->tokenizer ? tokenizer_ends(x->s->m->tokenizer, &n) : NULL;
	struct lap_error why;
	n = o->ignore_eos ? 0 : n < MAX_STOPS ? n : MAX_STOPS;
	if (o->n_stop_tokens > MAX_STOPS - n)
		return fail(err, LAP_USAGE, "%zu stop tokens, expected at most %zu",
			o->n_stop_tokens, MAX_STOPS - n);
	if (session_check_tokens(x->s, o->stop_tokens, o->n_stop_tokens, &why))
		return fail(err, LAP_USAGE, "stop tokens: %s", why.text);
	if (n)
		memcpy(x->ends, ends, n * sizeof(*ends));
	if (o->n_stop_tokens)
		memcpy(x->ends + n, o->stop_tokens, o->n_stop_tokens * sizeof(*ends));
	x->n_ends = n + o->n_stop_tokens;
	return LAP_OK;
}

static enum lap_status check_numbers(
	const struct search *x, uint32_t n_beams, struct lap_error *err)
{
	const struct lap_session *s = x->s;
	const struct lap_beam_options *o = x->o;
	/* Enough that of each row's best n_beams go on, and one more for each that is an end. */
	const size_t n_listed = n_beams + x->n_ends;
	if (n_beams > s->n_seq)
		return fail(err, LAP_USAGE,
			"%u beams, expected at most the %u sequences of the session",
			(unsigned)n_beams, (unsigned)s->n_seq);
	if (s->n_top < n_listed && s->n_top < s->m->info.n_vocab)
		return fail(err, LAP_USAGE,
			"%u beams with %zu tokens that end need the best %zu of each step; the "
			"session's n_top is %u",
			(unsigned)n_beams, x->n_ends, n_listed, (unsigned)s->n_top);
	if (o->n_return > n_beams)
		return fail(err, LAP_USAGE, "%u results of %u beams, expected no more than beams",
			(unsigned)o->n_return, (unsigned)n_beams);
	if (!isfinite(o->length_penalty))
		return fail(err, LAP_USAGE, "the length penalty is %g, expected a finite number",
			(double)o->length_penalty);
	if ((unsigned)o->early_stopping > LAP_EARLY_STOPPING_NEVER)
		return fail(err, LAP_USAGE, "early stopping is %d, expected 0, 1 or 2",
			(int)o->early_stopping);
	if (o->n_predict < LAP_UNTIL_END)
		return fail(err, LAP_USAGE,
			"n_predict is %lld, expected a number of tokens, or -1 (until the end)",
			(long long)o->n_predict);
	return LAP_OK;
}

static enum lap_status search_open(struct search *x, size_t n, struct lap_error *err)
{
	struct lap_session *s = x->s;
	const uint32_t n_beams = x->o->n_beams ? x->o->n_beams : s->n_seq;
	if (n == 0)
		return fail(err, LAP_USAGE, "the prompt has no tokens, expected at least one");
	if (n >= s->n_ctx)
		return fail(err, LAP_USAGE,
			"the prompt has %zu tokens, which leaves no room in a context of %u", n,
			(unsigned)s->n_ctx);
	enum lap_status status = session_check_tokens(s, x->prompt, n, err);
	if (!status)
		status = set_ends(x, err);
	if (!status)
		status = check_numbers(x, n_beams, err);
	if (status)
		return status;
	x->n_prompt = (uint32_t)n;
	const uint32_t room = s->n_ctx - x->n_prompt;
	beam_scorer_init(&x->scorer,
		&(struct beam_rules){
			.n_beams = n_beams,
			.length_penalty = x->o->length_penalty,
			.early_stopping = x->o->early_stopping,
			.n_most = x->o->n_predict > 0 && x->o->n_predict < room
				? (uint32_t)x->o->n_predict
				: room,
			.ends = x->ends,
			.n_ends = x->n_ends,
		});
	return LAP_OK;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* The timeline that has most of the prompt is the first beam; those used the longest time ago follow. */
static void choose_timelines(struct search *x)
{
	struct lap_session *s = x->s;
	const uint32_t n_beams = x->scorer.rules.n_beams;
	bool taken[MAX_SEQUENCES] = {false};
	for (uint32_t i = 0; i < n_beams; i++) {
		uint32_t best = UINT32_MAX, best_common = 0;
		for (uint32_t j = 0; j < s->n_seq; j++) {
			const struct timeline *t = &s->timelines[j];
			uint32_t common = i ? 0 : timeline_common(t, x->prompt, x->n_prompt - 1);
			if (taken[j])
				continue;
			if (best == UINT32_MAX || common > best_common ||
				(common == best_common && t->used < s->timelines[best].used)) {
				best = j;
				best_common = common;
			}
		}
		taken[best] = true;
		x->seq[i] = best;
		timeline_truncate(s, &s->timelines[best], best_common);
		s->timelines[best].busy = true;
	}
}

static enum lap_status prefill(struct search *x, struct lap_generation *r, struct lap_error *err)
{
	struct lap_session *s = x->s;
	struct timeline *t = &s->timelines[x->seq[0]];
	r->n_reused = t->n_past;
	enum lap_status status =
		session_prefill(s, t, x->prompt + t->n_past, x->n_prompt - 1 - t->n_past, err);
	r->prefill_seconds = clock_seconds() - x->started;
	return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* What beam i decodes next. */
static int32_t last_token(const struct search *x, uint32_t i)
{
	const uint32_t node = x->scorer.running[i].node;
	return node == BEAM_ROOT ? x->prompt[x->n_prompt - 1] : x->scorer.nodes[node].token;
}

static void set_sequence(const struct search *x, uint32_t i)
{
	struct sequence q = {
		.greedy = 1,
		.inv_temperature = 1,
		.inv_cut_temperature = 1,
		.repeat_penalty = 1,
		.inv_repeat_penalty = 1,
		.n_ctx = x->s->n_ctx,
		.n_top = x->s->n_top,
		.n_stop = (uint32_t)x->n_ends,
		.n_forbid_left = x->scorer.n_generated < x->o->min_tokens,
		.beam_score = x->scorer.running[i].log_prob,
	};
	for (size_t j = 0; j < x->n_ends; j++)
		q.stop[j] = (uint32_t)x->ends[j];
	session_set_sequence(x->s, x->seq[i], &q);
}

static enum lap_status set_rows(struct search *x, struct lap_error *err)
{
	struct lap_session *s = x->s;
	struct step_row rows[MAX_SEQUENCES];
	for (uint32_t i = 0; i < x->scorer.n_running; i++) {
		struct timeline *t = &s->timelines[x->seq[i]];
		rows[i] = (struct step_row){(uint32_t)last_token(x, i), t->n_past, x->seq[i], 0};
		if (timeline_reserve(s, t, t->n_past + 1) <= t->n_past)
			return fail(err, LAP_USAGE,
				"the KV cache of %u tokens is full: no room for %u beams of %u "
				"tokens; a larger -c, or fewer beams, would have it",
				(unsigned)s->n_pool, (unsigned)x->scorer.n_running,
				(unsigned)t->n_past + 1);
		set_sequence(x, i);
	}
	return session_set_step(s, STEP_BEAMS, rows, x->scorer.n_running, err);
}

static enum lap_status step(struct search *x, struct lap_error *err)
{
	struct lap_session *s = x->s;
	struct beam_scorer *b = &x->scorer;
	uint32_t parents[MAX_BEAMS];
	uint64_t ticket;
	enum lap_status status = set_rows(x, err);
	if (!status)
		status = session_submit(s, 1, &ticket, err);
	if (!status)
		status = session_wait(s, ticket, err);
	if (status)
		return status;
	const struct beam_choice *choice = s->choice;
	if (choice->error)
		return fail(err, LAP_ERROR,
			"the logits after token %u are not numbers: the weights are damaged, or "
			"this device computes wrong results (lapilli validate tells)",
			(unsigned)s->timelines[x->seq[0]].n_past);
	for (uint32_t i = 0; i < b->n_running; i++) {
		struct timeline *t = &s->timelines[x->seq[i]];
		t->tokens[t->n_past++] = last_token(x, i);
	}
	const uint32_t wanted = beam_scorer_wanted(&b->rules);
	status = beam_scorer_step(b, (const struct beam_candidate *)(choice + 1),
		choice->n < wanted ? choice->n : wanted, parents, err);
	if (!status && !b->done)
		session_reorder(s, x->seq, b->rules.n_beams, parents, b->n_running);
	x->latest = clock_seconds();
	if (b->n_generated == 1)
		x->first = x->latest;
	return status;
}

static enum lap_status run(struct search *x, struct lap_generation *r, struct lap_error *err)
{
	struct lap_session *s = x->s;
	struct beam_scorer *b = &x->scorer;
	const double limit = x->o->max_seconds;
	choose_timelines(x);
	enum lap_status status = prefill(x, r, err);
	while (!status && !b->done) {
		if (s->cancelled)
			beam_scorer_end(b, LAP_FINISH_CANCELLED);
		else if (limit > 0 && clock_seconds() - x->started >= limit)
			beam_scorer_end(b, LAP_FINISH_TIME);
		else
			status = step(x, err);
	}
	for (uint32_t i = 0; i < b->rules.n_beams; i++) {
		struct timeline *t = &s->timelines[x->seq[i]];
		timeline_truncate(s, t, t->n_past); /* blocks that were ahead */
		t->busy = false;
	}
	return status;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The list, then the tokens of each. */
static enum lap_status hand_out(
	const struct search *x, struct lap_beam **beams, size_t *n_beams, struct lap_error *err)
{
	const struct beam_scorer *b = &x->scorer;
	const uint32_t n_wanted = x->o->n_return ? x->o->n_return : 1;
	const uint32_t n = b->n_finished < n_wanted ? b->n_finished : n_wanted;
	size_t n_bytes = sizeof(**beams);
	for (uint32_t i = 0; i < n; i++)
		n_bytes += sizeof(**beams) + b->finished[i].n * sizeof(int32_t);
	struct lap_beam *list = malloc(n_bytes);
	if (!list)
		return fail_memory(err, "beams", n_bytes);
	int32_t *tokens = (int32_t *)(list + n);
	for (uint32_t i = 0; i < n; i++) {
		const struct finished_beam *f = &b->finished[i];
		beam_scorer_tokens(b, f, tokens);
		list[i] = (struct lap_beam){tokens, f->n, f->log_prob, f->score, f->finish};
		tokens += f->n;
	}
	*beams = list;
	*n_beams = n;
	return LAP_OK;
}

static void measure(
	const struct search *x, const struct session_counts *before, struct lap_generation *r)
{
	const struct lap_session *s = x->s;
	const struct beam_scorer *b = &x->scorer;
	const struct session_counts now = s->counts;
	r->finish = b->n_finished ? b->finished[0].finish : LAP_FINISH_CANCELLED;
	r->n_generated = b->n_finished ? b->finished[0].n : 0;
	r->first_token_seconds = b->n_generated ? x->first - x->started : 0;
	r->decode_seconds = b->n_generated ? x->latest - x->first : 0;
	r->prefill_recordings = now.prefill_recordings;
	r->decode_recordings = now.decode_recordings;
	r->prefill_submits = now.prefill_submits - before->prefill_submits;
	r->decode_submits = now.decode_submits - before->decode_submits;
	r->submits =
		r->prefill_submits + r->decode_submits + now.other_submits - before->other_submits;
	r->waits = now.waits - before->waits;
	r->device_bytes = s->m->backend->device_bytes;
	r->kv_tokens = s->timelines[x->seq[0]].n_past;
}

enum lap_status lap_beam_search(struct lap_session *s, const int32_t *prompt, size_t n,
	const struct lap_beam_options *options, struct lap_beam **beams, size_t *n_beams,
	struct lap_generation *result, struct lap_error *err)
{
	struct search x = {.s = s, .o = options ? options : &default_options, .prompt = prompt};
	struct lap_generation unused;
	struct lap_generation *r = result ? result : &unused;
	const struct session_counts before = s->counts;
	*r = (struct lap_generation){.n_prompt = n};
	*beams = NULL;
	*n_beams = 0;
	enum lap_status status = search_open(&x, n, err);
	if (status)
		return status;
	const double cpu_start = clock_cpu_seconds(), thread_start = clock_thread_seconds();
	s->cancelled = 0;
	x.started = clock_seconds();
	status = run(&x, r, err);
	if (!status)
		status = hand_out(&x, beams, n_beams, err);
	measure(&x, &before, r);
	r->host_cpu_seconds = clock_cpu_seconds() - cpu_start;
	r->host_thread_seconds = clock_thread_seconds() - thread_start;
	beam_scorer_free(&x.scorer);
	return status;
}
