/* Guesses and their acceptance: see draft.h. */
#include "draft.h"

#include <stdlib.h>
#include <string.h>

#include "breakers.h"
#include "sampler.h"

#define LONGEST_MATCH 3     /* tokens of the text's end that are looked up */
#define SUBMIT_BUDGET 0.045 /* seconds that a submit of draft steps should last */

/* ---- what the text says ---------------------------------------------------------------------- */

/* How many tokens before tokens[end] are those before tokens[n], at most LONGEST_MATCH. */
static uint32_t match_length(const int32_t *tokens, uint32_t n, uint32_t end)
{
	uint32_t length = 0;
	while (length < LONGEST_MATCH && length < end &&
		tokens[end - 1 - length] == tokens[n - 1 - length])
		length++;
	return length;
}

uint32_t draft_ngram(const int32_t *tokens, uint32_t n, uint32_t most, int32_t *guess)
{
	uint32_t best = 0, from = 0;
	for (uint32_t end = n > 0 ? n - 1 : 0; end > 0 && best < LONGEST_MATCH; end--) {
		uint32_t length = match_length(tokens, n, end);
		if (length > best) {
			best = length;
			from = end;
		}
	}
	if (best == 0)
		return 0;
	for (uint32_t i = 0; i < most; i++)
		guess[i] = from + i < n ? tokens[from + i] : guess[from + i - n];
	return most;
}

/* ---- acceptance ------------------------------------------------------------------------------ */

static const struct candidate *find(const struct candidates *c, uint32_t id)
{
	uint32_t low = 0, high = c->n;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (c->items[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < c->n && c->items[low].id == id ? &c->items[low] : NULL;
}

/* 0 <= result < 1, of the upper 53 bits. */
static double fraction(const uint32_t random[2])
{
	uint64_t bits = (uint64_t)random[0] << 32 | random[1];
	return (double)(bits >> 11) * 0x1p-53;
}

/* The positive part of p - q at p's candidate i; *at walks through q. */
static double excess(
	const struct candidates *p, const struct candidates *q, uint32_t i, uint32_t *at)
{
	const struct candidate *c = &p->items[i];
	while (*at < q->n && q->items[*at].id < c->id)
		++*at;
	const double other = *at < q->n && q->items[*at].id == c->id ? q->items[*at].p : 0;
	return c->p > other ? c->p - other : 0;
}

static struct sample_result result_of(const struct candidate *c)
{
	return (struct sample_result){.token = c->id, .log_prob = c->log_prob};
}

struct sample_result draft_accept(const struct candidates *p, const struct candidates *q,
	uint32_t guess, const uint32_t random[4])
{
	const struct candidate *in_p = find(p, guess), *in_q = find(q, guess), *drawn = NULL;
	if (in_p && in_q && fraction(random) * in_q->p < in_p->p)
		return result_of(in_p);
	double total = 0, sum = 0;
	for (uint32_t i = 0, at = 0; i < p->n; i++)
		total += excess(p, q, i, &at);
	const double goal = fraction(random + 2) * total;
	for (uint32_t i = 0, at = 0; i < p->n && !(drawn && sum > goal); i++) {
		const double more = excess(p, q, i, &at);
		sum += more;
		if (more > 0)
			drawn = &p->items[i];
	}
	if (drawn)
		return result_of(drawn);
	/* p is q but for the last bit of a division. */
	return in_p ? result_of(in_p) : candidates_draw(p, random + 2);
}

/* ---- what can be had ------------------------------------------------------------------------- */

/* Tokens mean the same in both. */
static enum lap_status check_vocabulary(
	const struct lap_model *target, const struct lap_model *draft, struct lap_error *err)
{
	const uint32_t n = target->info.n_vocab;
	if (target == draft)
		return LAP_OK;
	if (draft->info.n_vocab != n)
		return fail(err, LAP_USAGE,
			"the draft model has a vocabulary of %u tokens, expected %u",
			(unsigned)draft->info.n_vocab, (unsigned)n);
	if (!target->tokenizer && !draft->tokenizer)
		return LAP_OK;
	if (!target->tokenizer || !draft->tokenizer)
		return fail(err, LAP_USAGE,
			"%s has no tokenizer: its vocabulary cannot be compared, and a draft model "
			"must have the same",
			draft->tokenizer ? target->info.path : draft->info.path);
	for (uint32_t i = 0; i < n; i++) {
		size_t n_a, n_b;
		const char *a = tokenizer_piece(target->tokenizer, (int32_t)i, true, &n_a);
		const char *b = tokenizer_piece(draft->tokenizer, (int32_t)i, true, &n_b);
		char shown_a[GGUF_SHOW_BYTES], shown_b[GGUF_SHOW_BYTES];
		if (n_a != n_b || (n_a && memcmp(a, b, n_a) != 0))
			return fail(err, LAP_USAGE,
				"token %u is \"%s\" in the draft model, expected \"%s\"",
				(unsigned)i, gguf_show((struct gguf_string){b, n_b}, shown_b),
				gguf_show((struct gguf_string){a, n_a}, shown_a));
	}
	return LAP_OK;
}

static enum lap_status check_sampling(
	const struct lap_session *s, const struct lap_sampling *sampling, struct lap_error *err)
{
	struct sampler_chain *chain;
	struct lap_sampling fixed = *sampling;
	struct lap_error why;
	if (fixed.seed == LAP_SEED_RANDOM)
		fixed.seed = 0;
	enum lap_status status =
		sampler_chain_create(&fixed, s->m->info.n_vocab, s->n_ctx, &chain, &why);
	sampler_chain_destroy(chain);
	return status ? fail(err, status, "of the draft: %s", why.text) : LAP_OK;
}

enum lap_status draft_check(
	const struct lap_session *s, const struct lap_generate_options *o, struct lap_error *err)
{
	const struct lap_session *draft = o->draft;
	if (o->n_draft == 0)
		return LAP_OK;
	if (!draft && !o->draft_ngram)
		return fail(err, LAP_USAGE,
			"a draft of %u tokens, but neither a draft model nor n-grams to guess them",
			(unsigned)o->n_draft);
	if (o->n_draft >= s->max_rows)
		return fail(err, LAP_USAGE,
			"a draft of %u tokens, expected at most the %u that a step of this session "
			"verifies",
			(unsigned)o->n_draft, (unsigned)s->max_rows - 1);
	if (!draft)
		return LAP_OK;
	if (draft == s)
		return fail(err, LAP_USAGE, "a session cannot draft for itself");
	if (draft->n_seq < s->n_seq)
		return fail(err, LAP_USAGE,
			"the draft model's session has %u sequences, expected at least %u",
			(unsigned)draft->n_seq, (unsigned)s->n_seq);
	enum lap_status status = check_vocabulary(s->m, draft->m, err);
	if (!status && o->draft_sampling)
		status = check_sampling(draft, o->draft_sampling, err);
	return status;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

/* Greedy guesses are the recorded step's, others a chain's. */
static enum lap_status set_sampling(
	struct draft *d, const struct lap_sampling *sampling, struct lap_error *err)
{
	const struct lap_model *m = d->s->m;
	const uint32_t n_vocab = m->info.n_vocab, n_ctx = d->s->n_ctx;
	enum lap_status status = LAP_OK;
	if (!sampler_chain_needed(sampling)) {
		bool temperature_last;
		const struct lap_sampling step = sampler_chain_step(sampling, &temperature_last);
		status = sampler_set(&d->sequence, &step, n_vocab, n_ctx, err);
		for (size_t i = 0; i < sampling->n_logit_bias && !status; i++)
			status = sampler_bias(&d->sequence, (uint32_t)sampling->logit_bias[i].token,
				sampling->logit_bias[i].bias, n_vocab, err);
		if (status || d->sequence.greedy)
			return status;
	}
	status = sampler_chain_create(sampling, n_vocab, n_ctx, &d->chain, err);
	if (!status && m->tokenizer)
		status = breakers_add(d->chain, m->tokenizer, sampling, err);
	return status;
}

static enum lap_status set_model(struct draft *d, struct lap_session *s,
	const struct lap_sampling *sampling, const int32_t *prompt, uint32_t n,
	struct lap_error *err)
{
	d->s = s;
	d->t = &s->timelines[d->seq];
	d->sequence.n_ctx = s->n_ctx;
	/* As of the target: what a reused prefix gives must not depend on who computed it. */
	timeline_truncate(s, d->t, timeline_common(d->t, prompt, n - 1));
	d->t->busy = true;
	s->cancelled = 0;
	return set_sampling(d, sampling, err);
}

enum lap_status draft_create(struct draft **draft, uint32_t seq,
	const struct lap_generate_options *o, const struct lap_sampling *sampling,
	const int32_t *prompt, uint32_t n, struct lap_error *err)
{
	struct lap_sampling own = o->draft_sampling ? *o->draft_sampling : *sampling;
	struct draft *d = calloc(1, sizeof(*d));
	*draft = d;
	if (!d)
		return fail_memory(err, "a draft", sizeof(*d));
	own.seed = sampling->seed;
	if (own.repeat_penalty == 0)
		own.repeat_penalty = 1;
	d->seq = seq;
	d->ngram = o->draft_ngram;
	return o->draft ? set_model(d, o->draft, &own, prompt, n, err) : LAP_OK;
}

void draft_destroy(struct draft *d)
{
	if (!d)
		return;
	if (d->t) {
		timeline_truncate(d->s, d->t, d->t->n_past); /* blocks that were ahead */
		d->t->busy = false;
	}
	for (uint32_t i = 0; i < MAX_DRAFT; i++)
		candidates_free(&d->q[i]);
	sampler_chain_destroy(d->chain);
	free(d);
}

/* ---- keeping in step ------------------------------------------------------------------------- */

void draft_ask(struct draft *d, const int32_t *history, uint32_t n_history, uint32_t draw_offset,
	uint32_t most)
{
	d->history = history;
	d->n_history = n_history;
	d->draw_offset = draw_offset;
	d->drawn = false;
	d->n = d->ngram ? draft_ngram(history, n_history, most, d->tokens) : 0;
	d->n_wanted = d->s && d->n == 0 ? most : 0;
}

/* The row of the first guess: all before it must be in the KV cache. */
static uint32_t first_row(const struct draft *d)
{
	return d->n_history - 1;
}

/* Of what the timeline has, guesses too, the part that came true stays. */
static void keep_common(struct draft *d)
{
	struct timeline *t = d->t;
	const uint32_t n_there = t->n_past + d->n_ahead, n = first_row(d);
	uint32_t common = 0;
	while (common < n && common < n_there && t->tokens[common] == d->history[common])
		common++;
	if (common < t->n_past)
		timeline_truncate(d->s, t, common);
	else
		t->n_past = common;
	d->n_ahead = 0;
}

/* Guesses were right to the last, so that a row is missing; else what is missing is prefill's, a single
 * token too, so that a prompt's rows are summed in the same order however much of it was reused. */
static bool lacks_a_row(const struct draft *d)
{
	return d->t->n_past > d->t->n_prefill && d->t->n_past + 1 == first_row(d);
}

/* Prefill's part of what is missing. */
static enum lap_status prefill_missing(
	struct draft *d, const atomic_int *cancelled, struct lap_error *err)
{
	struct lap_session *s = d->s;
	struct timeline *t = d->t;
	const uint32_t n = first_row(d);
	keep_common(d);
	if (n >= s->n_ctx)
		d->n_wanted = 0;
	while (d->n_wanted && t->n_past < n && !lacks_a_row(d)) {
		struct lap_error own;
		uint32_t n_done = 0;
		enum lap_status status = session_prefill_chunk(s, t, d->history + t->n_past,
			n - t->n_past, n - t->n_past, NULL, &n_done, &own);
		if (status == LAP_USAGE || *cancelled)
			d->n_wanted = 0;
		else if (status)
			return fail(err, status, "%s", own.text);
	}
	return LAP_OK;
}

void draft_shift(struct draft *d, const int32_t *history, uint32_t n_history, uint32_t n_keep,
	uint32_t n_discard)
{
	struct lap_error ignored; /* what cannot be shifted is computed again */
	if (!d->s)
		return;
	d->history = history;
	d->n_history = n_history;
	keep_common(d);
	if (d->t->n_past >= n_keep + n_discard)
		timeline_shift(d->s, d->t, n_keep, n_discard, &ignored);
}

/* Room for the rows of the guesses, and of one behind them. */
static void reserve(struct draft *d)
{
	const uint32_t n = first_row(d);
	uint32_t n_there = d->n_wanted ? timeline_reserve(d->s, d->t, n + d->n_wanted + 1) : 0;
	d->n_room = n_there > n ? n_there - n : 0;
	if (d->n_wanted > d->n_room)
		d->n_wanted = d->n_room;
}

/* The token that the last round's rows were short of: all its guesses were right. */
static enum lap_status catch_up(struct draft *const *drafts, uint32_t n, struct lap_error *err)
{
	struct step_row rows[MAX_SEQUENCES];
	uint32_t n_rows = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct draft *d = drafts[i];
		struct timeline *t = d->t;
		const uint32_t pos = t->n_past;
		if (d->n_wanted == 0 || pos == first_row(d)) /* not lacks_a_row */
			continue;
		const int32_t token = d->history[pos];
		rows[n_rows++] = (struct step_row){(uint32_t)token, pos, d->seq, 0};
		t->tokens[t->n_past++] = token;
	}
	return n_rows ? session_compute_logits(drafts[0]->s, rows, n_rows, NULL, err) : LAP_OK;
}

/* ---- greedy guesses: many steps in a submit -------------------------------------------------- */

/* One step more than guesses, where there is room: its row is what the next round would be short of. */
static uint32_t n_steps_of(const struct draft *d)
{
	return d->n_wanted < d->n_room ? d->n_wanted + 1 : d->n_wanted;
}

static enum lap_status to_device(struct draft *d, struct lap_error *err)
{
	struct sequence *q = &d->sequence;
	const int32_t last = d->history[first_row(d)];
	q->n_sampled = d->s->sequences[d->seq].n_sampled;
	q->n_left = n_steps_of(d);
	session_set_sequence(d->s, d->seq, q);
	d->t->tokens[d->t->n_past] = last;
	if (q->repeat_last_n == 0)
		return LAP_OK; /* no history is looked at */
	return session_write_history(d->s, d->seq, last, NULL, err);
}

static enum lap_status run_steps(struct lap_session *s, uint32_t n_left, struct lap_error *err)
{
	const double budget = s->max_submit_seconds > 0 ? s->max_submit_seconds : SUBMIT_BUDGET;
	enum lap_status status = LAP_OK;
	while (n_left && !status) {
		const double start = clock_seconds();
		double most = s->step_seconds > 0 ? budget / s->step_seconds : 1;
		uint32_t n = most < 1 ? 1 : most < n_left ? (uint32_t)most : n_left;
		uint64_t ticket;
		status = session_submit(s, n, &ticket, err);
		if (!status)
			status = session_wait(s, ticket, err);
		s->step_seconds = (clock_seconds() - start) / n;
		n_left -= n;
	}
	return status;
}

static void take_steps(struct draft *d)
{
	const struct lap_session *s = d->s;
	const uint32_t before = d->sequence.n_sampled, n = first_row(d);
	const uint32_t n_there = s->sequences[d->seq].n_sampled - before;
	for (uint32_t i = 0; i < n_there; i++) {
		const struct ring_entry *e =
			&s->ring[(size_t)d->seq * RING_ENTRIES + (before + i) % RING_ENTRIES];
		d->n_ahead = i + 1;
		if (e->error || i == d->n_wanted)
			break;
		d->tokens[d->n++] = (int32_t)e->token;
		if (n + i + 1 < s->n_ctx)
			d->t->tokens[n + i + 1] = (int32_t)e->token;
	}
}

static enum lap_status run_greedy(struct draft *const *drafts, uint32_t n, struct lap_error *err)
{
	struct step_row rows[MAX_SEQUENCES];
	uint32_t n_rows = 0, n_steps = 0;
	enum lap_status status = LAP_OK;
	for (uint32_t i = 0; i < n && !status; i++) {
		struct draft *d = drafts[i];
		const uint32_t pos = first_row(d);
		if (d->n_wanted == 0 || d->chain)
			continue;
		rows[n_rows++] = (struct step_row){(uint32_t)d->history[pos], pos, d->seq, 0};
		n_steps = n_steps_of(d) > n_steps ? n_steps_of(d) : n_steps;
		status = to_device(d, err);
	}
	if (status || n_rows == 0)
		return status;
	status = session_set_step(drafts[0]->s, STEP_DRAW, rows, n_rows, err);
	if (!status)
		status = run_steps(drafts[0]->s, n_steps, err);
	for (uint32_t i = 0; i < n && !status; i++)
		if (drafts[i]->n_wanted && !drafts[i]->chain)
			take_steps(drafts[i]);
	return status;
}

/* ---- guesses drawn by a chain: a step each --------------------------------------------------- */

static bool wants_more(const struct draft *d)
{
	return d->chain && d->n < d->n_wanted;
}

static enum lap_status draw(struct draft *d, const float *logits, struct lap_error *err)
{
	struct timeline *t = d->t;
	struct candidates *q = &d->q[d->n];
	const uint32_t n = first_row(d) + d->n, pos = n + d->draw_offset;
	uint32_t random[4];
	d->n_ahead = d->n + 1;
	enum lap_status status = sampler_chain_apply(
		d->chain, logits, (const uint32_t *)t->tokens, n + 1, pos, NULL, q, err);
	if (status) {
		d->n_wanted = d->n;
		return status == LAP_ERROR ? LAP_OK : status;
	}
	sampler_chain_random(d->chain, pos, DRAFT_DRAW, random);
	const uint32_t token = candidates_draw(q, random).token;
	d->states[d->n] = sampler_chain_save(d->chain);
	sampler_chain_accept(d->chain, q, token);
	d->tokens[d->n++] = (int32_t)token;
	d->drawn = true;
	return LAP_OK;
}

/* One guess of each that wants more; *n_rows: of how many. */
static enum lap_status draw_step(
	struct draft *const *drafts, uint32_t n, uint32_t *n_rows, struct lap_error *err)
{
	struct step_row rows[MAX_SEQUENCES];
	struct lap_session *s = drafts[0]->s;
	const float *logits;
	*n_rows = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct draft *d = drafts[i];
		if (!wants_more(d))
			continue;
		const uint32_t pos = first_row(d) + d->n;
		const int32_t token = d->n ? d->tokens[d->n - 1] : d->history[first_row(d)];
		d->t->tokens[pos] = token;
		rows[(*n_rows)++] = (struct step_row){(uint32_t)token, pos, d->seq, 0};
	}
	if (*n_rows == 0)
		return LAP_OK;
	enum lap_status status = session_compute_logits(s, rows, *n_rows, &logits, err);
	for (uint32_t i = 0; i < n && !status; i++)
		if (wants_more(drafts[i])) {
			status = draw(drafts[i], logits, err);
			logits += s->m->info.n_vocab;
		}
	return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Drafts of one session. */
static enum lap_status run_group(
	struct draft *const *drafts, uint32_t n, const atomic_int *cancelled, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	uint32_t n_rows = 1;
	for (uint32_t i = 0; i < n && !status; i++)
		status = prefill_missing(drafts[i], cancelled, err);
	for (uint32_t i = 0; i < n && !status; i++)
		reserve(drafts[i]);
	if (!status)
		status = catch_up(drafts, n, err);
	if (!status)
		status = run_greedy(drafts, n, err);
	while (!status && n_rows && !*cancelled)
		status = draw_step(drafts, n, &n_rows, err);
	return status;
}

enum lap_status drafts_run(
	struct draft *const *drafts, uint32_t n, const atomic_int *cancelled, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	bool done[MAX_SEQUENCES] = {false};
	for (uint32_t first = 0; first < n && !status; first++) {
		struct draft *group[MAX_SEQUENCES];
		uint32_t n_group = 0;
		for (uint32_t i = first; i < n; i++)
			if (!done[i] && drafts[i]->n_wanted && drafts[i]->s == drafts[first]->s) {
				done[i] = true;
				group[n_group++] = drafts[i];
			}
		if (n_group)
			status = run_group(group, n_group, cancelled, err);
	}
	return status;
}

const struct candidates *draft_q(const struct draft *d, uint32_t i)
{
	return d->drawn && d->q[i].n > 1 ? &d->q[i] : NULL;
}

void draft_settle(struct draft *d, uint32_t n_accepted, int32_t token)
{
	if (d->drawn && n_accepted < d->n) {
		sampler_chain_restore(d->chain, d->states[n_accepted]);
		sampler_chain_accept(d->chain, &d->q[n_accepted], (uint32_t)token);
	}
	d->n = 0;
}
