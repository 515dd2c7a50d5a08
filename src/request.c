/* One request: see request.h. */
#include "request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "breakers.h"
#include "constraint.h"
#include "sampler.h"

#define SAMPLING_DEFAULTS                                                                \
	{                                                                                \
		.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f,        \
		.repeat_penalty = 1.0f, .repeat_last_n = 64, .seed = LAP_SEED_RANDOM,    \
		.typical_p = 1.0f, .xtc_threshold = 0.1f, .dry_base = 1.75f,             \
		.dry_allowed_length = 2, .dry_penalty_last_n = -1, .mirostat_tau = 5.0f, \
		.mirostat_eta = 0.1f, .dynatemp_exponent = 1.0f,                         \
	}

struct lap_sampling lap_sampling_default(void)
{
	return (struct lap_sampling)SAMPLING_DEFAULTS;
}

static const struct lap_generate_options default_options = {
	.sampling = SAMPLING_DEFAULTS, .n_predict = LAP_UNTIL_END};

/* ---- what it was asked for ------------------------------------------------------------------- */

static enum lap_status check_tokens(const struct lap_session *s, const char *what,
	const int32_t *tokens, size_t n, size_t most, struct lap_error *err)
{
	struct lap_error why;
	if (n > most)
		return fail(err, LAP_USAGE, "%zu %s, expected at most %zu", n, what, most);
	if (session_check_tokens(s, tokens, n, &why))
		return fail(err, LAP_USAGE, "%s: %s", what, why.text);
	return LAP_OK;
}

static size_t n_ends_of(const struct lap_session *s, const int32_t **ends)
{
	size_t n = 0;
	*ends = s->m->tokenizer ? tokenizer_ends(s->m->tokenizer, &n) : NULL;
	return n < MAX_STOPS ? n : MAX_STOPS;
}

static enum lap_status check_sampling(
	const struct lap_session *s, const struct lap_sampling *sampling, struct lap_error *err)
{
	struct sampler_chain *chain;
	struct lap_sampling fixed = *sampling;
	if (fixed.seed == LAP_SEED_RANDOM)
		fixed.seed = 0;
	enum lap_status status =
		sampler_chain_create(&fixed, s->m->info.n_vocab, s->n_ctx, &chain, err);
	sampler_chain_destroy(chain);
	return status;
}

static enum lap_status check(
	const struct lap_session *s, const struct lap_request *r, struct lap_error *err)
{
	const struct lap_generate_options *o = r->options ? r->options : &default_options;
	const int32_t *ends;
	const size_t n_ends = n_ends_of(s, &ends);
	struct lap_sampling sampling = o->sampling;
	if (r->n == 0)
		return fail(err, LAP_USAGE, "the prompt has no tokens, expected at least one");
	if (r->n >= s->n_ctx)
		return fail(err, LAP_USAGE,
			"the prompt has %zu tokens, which leaves no room in a context of %u", r->n,
			(unsigned)s->n_ctx);
	if (o->n_predict < LAP_UNTIL_FULL)
		return fail(err, LAP_USAGE,
			"n_predict is %lld, expected a number of tokens, -1 (until the end) or -2 "
			"(until the context is full)",
			(long long)o->n_predict);
	if (o->n_top > s->n_top)
		return fail(err, LAP_USAGE,
			"log-probabilities of %u tokens, expected at most the %u of the session",
			(unsigned)o->n_top, (unsigned)s->n_top);
	for (size_t i = 0; i < o->n_stops; i++)
		if (!o->stops[i][0])
			return fail(err, LAP_USAGE, "stop string %zu is empty", i + 1);
	if (sampling.repeat_penalty == 0)
		sampling.repeat_penalty = 1;
	enum lap_status status = check_sampling(s, &sampling, err);
	if (!status)
		status = session_check_tokens(s, r->prompt, r->n, err);
	if (!status)
		status = check_tokens(s, "stop tokens", o->stop_tokens, o->n_stop_tokens,
			MAX_STOPS - n_ends, err);
	if (!status)
		status = check_tokens(s, "banned tokens", o->banned, o->n_banned, MAX_BIAS, err);
	if (!status && (o->grammar || o->json_schema) && !s->m->tokenizer)
		status = fail(err, LAP_USAGE, "a grammar needs a model with a vocabulary");
	if (!status)
		status = draft_check(s, o, err);
	if (!status && o->overflow == LAP_OVERFLOW_SHIFT)
		status = session_can_shift(s, err);
	if (!status && o->overflow == LAP_OVERFLOW_SHIFT && o->n_keep + 2 > s->n_ctx)
		return fail(err, LAP_USAGE,
			"%u tokens to keep leave nothing to drop in a context of %u",
			(unsigned)o->n_keep, (unsigned)s->n_ctx);
	return status;
}

void request_check(const struct lap_session *s, struct lap_request *request)
{
	request->result = (struct lap_generation){.n_prompt = request->n};
	request->error = (struct lap_error){0};
	request->status = check(s, request, &request->error);
}

void request_skip(struct lap_request *request, enum lap_status status, const struct lap_error *why)
{
	request->status = status;
	request->result.finish = LAP_FINISH_CANCELLED;
	if (status)
		request->error = *why;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* The tokens that stop, and those that may not be drawn for now. */
static enum lap_status set_stops(struct slot *slot, struct lap_error *err)
{
	const struct lap_generate_options *o = slot->o;
	struct sequence *q = &slot->sequence;
	const int32_t *ends;
	size_t n_ends = n_ends_of(slot->s, &ends);
	const bool ends_stop = !o->ignore_eos && o->n_predict != LAP_UNTIL_FULL;
	for (size_t i = 0; i < n_ends && ends_stop; i++)
		q->stop[q->n_stop++] = (uint32_t)ends[i];
	for (size_t i = 0; i < o->n_stop_tokens; i++)
		q->stop[q->n_stop++] = (uint32_t)o->stop_tokens[i];
	if (o->min_tokens) {
		memcpy(q->forbidden, q->stop, sizeof(q->stop));
		q->n_forbidden = q->n_stop;
		q->n_forbid_left = o->min_tokens;
	}
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < o->n_banned && !status; i++)
		status = sampler_bias(
			q, (uint32_t)o->banned[i], -INFINITY, slot->s->m->info.n_vocab, err);
	return status;
}

/* Parameters of the recorded step, and of the chain where that cannot do. */
static enum lap_status set_sampling(
	struct slot *slot, const struct lap_sampling *sampling, struct lap_error *err)
{
	const struct lap_session *s = slot->s;
	const uint32_t n_vocab = s->m->info.n_vocab;
	struct sequence *q = &slot->sequence;
	if (sampler_chain_needed(sampling) || (slot->draft && slot->draft->chain)) {
		slot->request->result.on_host = true;
		enum lap_status status =
			sampler_chain_create(sampling, n_vocab, s->n_ctx, &slot->chain, err);
		if (!status && s->m->tokenizer)
			status = breakers_add(slot->chain, s->m->tokenizer, sampling, err);
		return status;
	}
	bool temperature_last;
	const struct lap_sampling step = sampler_chain_step(sampling, &temperature_last);
	enum lap_status status = sampler_set(q, &step, n_vocab, s->n_ctx, err);
	if (temperature_last)
		q->inv_cut_temperature = 1;
	for (size_t i = 0; i < sampling->n_logit_bias && !status; i++)
		status = sampler_bias(q, (uint32_t)sampling->logit_bias[i].token,
			sampling->logit_bias[i].bias, n_vocab, err);
	return status;
}

static enum lap_status set_sequence(struct slot *slot, struct lap_error *err)
{
	struct lap_sampling sampling = slot->o->sampling;
	if (sampling.seed == LAP_SEED_RANDOM) {
		uint32_t seed; /* 32 bits: short enough to type */
		if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
			return fail(err, LAP_ERROR, "the system gives no random numbers");
		sampling.seed = seed;
	}
	if (sampling.repeat_penalty == 0) /* as in a zeroed struct */
		sampling.repeat_penalty = 1;
	slot->request->result.seed = sampling.seed;
	slot->sequence = (struct sequence){.n_ctx = slot->s->n_ctx, .n_top = slot->o->n_top};
	enum lap_status status = LAP_OK;
	if (slot->o->n_draft) {
		slot->request->result.on_host = true;
		status = draft_create(&slot->draft, slot->seq, slot->o, &sampling, slot->tokens,
			slot->n_prefill + 1, err);
	}
	if (!status)
		status = set_sampling(slot, &sampling, err);
	return status ? status : set_stops(slot, err);
}

static enum lap_status set_constraint(struct slot *slot, struct lap_error *err)
{
	struct lap_session *s = slot->s;
	enum lap_status status = LAP_OK;
	if (!slot->o->grammar && !slot->o->json_schema)
		return LAP_OK;
	if (!s->grammar_vocabulary)
		status = constraint_vocabulary(s->m->tokenizer, &s->grammar_vocabulary, err);
	return status ? status
		      : constraint_create(slot->o, s->grammar_vocabulary, s->m->info.n_vocab,
				&slot->constraint, err);
}

static uint64_t target_of(const struct slot *slot)
{
	const struct lap_generate_options *o = slot->o;
	const uint64_t room =
		o->overflow == LAP_OVERFLOW_STOP ? slot->s->n_ctx - slot->request->n : UINT64_MAX;
	return o->n_predict < 0 || (uint64_t)o->n_predict > room ? room : (uint64_t)o->n_predict;
}

enum lap_status slot_open(struct slot *slot, struct lap_request *request, struct lap_error *err)
{
	struct lap_session *s = slot->s;
	const uint32_t n = (uint32_t)request->n;
	*slot = (struct slot){
		.s = s,
		.t = slot->t,
		.seq = slot->seq,
		.phase = PHASE_PREFILL,
		.order = ++s->n_uses,
		.request = request,
		.o = request->options ? request->options : &default_options,
		.tokens = array_alloc(s->n_ctx, sizeof(*slot->tokens)),
		.n_prefill = n - 1,
		.last = request->prompt[n - 1],
		.started = clock_seconds(),
	};
	if (!slot->tokens)
		return fail_memory(err, "a sequence", s->n_ctx * sizeof(*slot->tokens));
	slot->decoder = (struct decoder){.special = slot->o->special, .started = true};
	slot->stops = (struct stops){.strings = slot->o->stops, .n_strings = slot->o->n_stops};
	slot->n_target = target_of(slot);
	memcpy(slot->tokens, request->prompt, n * sizeof(*slot->tokens));
	/* What decode wrote was summed in another order, and a reused prefix must give the same
	 * bytes as a fresh run: of the common prefix what prefill computed is kept. */
	timeline_truncate(s, slot->t, timeline_common(slot->t, slot->tokens, n - 1));
	slot->t->busy = true;
	request->result.n_reused = slot->t->n_past;
	enum lap_status status = set_constraint(slot, err);
	return status ? status : set_sequence(slot, err);
}

void slot_report_prompt(struct slot *slot)
{
	const struct lap_request *r = slot->request;
	const uint32_t n_before = (uint32_t)r->result.n_reused;
	if (slot->o->on_prompt && slot->n_generated == 0 && slot->t->n_past > n_before &&
		!slot->o->on_prompt(
			r->user, slot->t->n_past - n_before, slot->n_prefill - n_before))
		lap_session_cancel(slot->s);
}

void slot_prefilled(struct slot *slot)
{
	struct lap_generation *r = &slot->request->result;
	if (slot->n_generated == 0)
		r->prefill_seconds = clock_seconds() - slot->started;
	slot->phase = PHASE_DECODE;
	slot->on_device = false;
	if (slot->n_target == 0) { /* the prompt alone was asked for */
		slot->phase = PHASE_ENDED;
		r->finish = LAP_FINISH_LENGTH;
	}
}

uint64_t slot_left(const struct slot *slot)
{
	return slot->n_target - slot->n_generated;
}

bool slot_needs_steps(const struct slot *slot)
{
	return slot->constraint != NULL;
}

/* A grammar that cannot go on is the fault of this request alone. */
static enum lap_status mask_of(struct slot *slot, const uint32_t **mask, struct lap_error *err)
{
	struct lap_error why;
	*mask = NULL;
	if (!slot->constraint)
		return LAP_OK;
	enum lap_status status = constraint_mask(slot->constraint, mask, &why);
	if (status == LAP_ERROR)
		slot_fail(slot, status, &why);
	return status == LAP_ERROR ? LAP_OK : status ? fail(err, status, "%s", why.text) : LAP_OK;
}

enum lap_status slot_to_device(struct slot *slot, struct lap_error *err)
{
	struct sequence q = slot->sequence;
	const uint64_t left = slot_left(slot), n = slot->n_generated;
	const uint32_t *mask;
	enum lap_status status = mask_of(slot, &mask, err);
	if (status || slot->phase == PHASE_ENDED)
		return status;
	if (slot->on_device)
		return mask ? session_write_mask(slot->s, slot->seq, mask, err) : LAP_OK;
	slot->ring_next = slot->s->sequences[slot->seq].n_sampled;
	q.n_left = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
	q.draw_offset = slot->draw_offset;
	if (q.n_forbid_left != UINT32_MAX)
		q.n_forbid_left = n < q.n_forbid_left ? q.n_forbid_left - (uint32_t)n : 0;
	q.use_mask = mask != NULL;
	session_set_sequence(slot->s, slot->seq, &q);
	slot->on_device = true;
	return session_write_history(slot->s, slot->seq, slot->last, mask, err);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void end(struct slot *slot, enum lap_finish finish)
{
	slot->request->result.finish = finish;
	slot->phase = PHASE_ENDED;
	slot->s->sequences[slot->seq].cancel = 1;
}

void slot_fail(struct slot *slot, enum lap_status status, const struct lap_error *why)
{
	end(slot, LAP_FINISH_CANCELLED);
	slot->request->status = status;
	slot->request->error = *why;
}

void slot_fail_full(struct slot *slot)
{
	struct lap_error why;
	fail(&why, LAP_USAGE,
		"the KV cache of %u tokens is full after %llu tokens of this sequence: a larger "
		"-c, "
		"or fewer sequences at a time, would have room",
		(unsigned)slot->s->n_pool, (unsigned long long)slot->t->n_past);
	slot_fail(slot, LAP_USAGE, &why);
}

void slot_cancel(struct slot *slot, enum lap_status status, const struct lap_error *why)
{
	if (slot->phase == PHASE_ENDED)
		return;
	if (status)
		slot_fail(slot, status, why);
	else
		end(slot, LAP_FINISH_CANCELLED);
}

static bool call(struct slot *slot, const struct lap_token *token)
{
	const struct lap_request *r = slot->request;
	return !r->on_token || r->on_token(r->user, token);
}

/* What was held back and can be no stop any more. */
static void flush_text(struct slot *slot)
{
	bool found = false;
	if (slot->cut)
		return;
	slot->text.n = slot->piece.n = 0;
	if (decoder_finish(&slot->decoder, &slot->piece) && slot->piece.n)
		stops_add(&slot->stops, slot->piece.data, slot->piece.n, true, &slot->text, &found);
	if (!found)
		stops_finish(&slot->stops, &slot->text);
	if (slot->text.n)
		call(slot,
			&(struct lap_token){
				.id = -1, .text = slot->text.data, .n_bytes = slot->text.n});
}

void slot_close(struct slot *slot)
{
	struct lap_generation *r = &slot->request->result;
	if (!slot->request->status)
		flush_text(slot);
	r->n_generated = (size_t)slot->n_generated;
	r->first_token_seconds = slot->n_generated ? slot->first - slot->started : 0;
	r->decode_seconds = slot->n_generated ? slot->latest - slot->first : 0;
	timeline_truncate(slot->s, slot->t, slot->t->n_past); /* blocks that were ahead */
	slot->t->busy = false;
	constraint_destroy(slot->constraint);
	slot->constraint = NULL;
	draft_destroy(slot->draft);
	slot->draft = NULL;
	sampler_chain_destroy(slot->chain);
	candidates_free(&slot->candidates);
	free(slot->mask);
	slot->chain = NULL;
	slot->mask = NULL;
	stops_free(&slot->stops);
	text_free(&slot->piece);
	text_free(&slot->text);
	free(slot->tokens);
	slot->tokens = NULL;
}

/* ---- a token --------------------------------------------------------------------------------- */

static bool is_stop(const struct slot *slot, int32_t token)
{
	const struct sequence *q = &slot->sequence;
	for (uint32_t i = 0; i < q->n_stop; i++)
		if (q->stop[i] == (uint32_t)token)
			return true;
	return false;
}

/* The text that became complete with a token, in slot->text; *found: with a stop behind it. */
static enum lap_status add_text(
	struct slot *slot, int32_t token, bool *found, struct lap_error *err)
{
	const struct tokenizer *tokenizer = slot->s->m->tokenizer;
	size_t n_hidden = 0;
	slot->text.n = slot->piece.n = 0;
	*found = false;
	if (!tokenizer)
		return LAP_OK;
	const char *hidden = tokenizer_piece(tokenizer, token, true, &n_hidden);
	size_t n_shown;
	tokenizer_piece(tokenizer, token, slot->o->special, &n_shown);
	bool ok = decoder_add(tokenizer, &slot->decoder, token, &slot->piece) &&
		stops_add(&slot->stops, slot->piece.data ? slot->piece.data : "", slot->piece.n,
			true, &slot->text, found);
	if (ok && !*found && n_shown == 0 && n_hidden) /* a control token that is not shown */
		ok = stops_add(&slot->stops, hidden, n_hidden, false, &slot->text, found);
	slot->cut = *found;
	return ok ? LAP_OK : fail_memory(err, "text", 1);
}

/* Behind an end a grammar allows nothing. */
static bool is_end(const struct slot *slot, int32_t token)
{
	const struct tokenizer *t = slot->s->m->tokenizer;
	return t && tokenizer_is_end(t, token);
}

/* Why there is no token after this one; false: there is. */
static bool ends_with(const struct slot *slot, int32_t token, bool found, enum lap_finish *finish)
{
	const double limit = slot->o->max_seconds;
	if (found || is_stop(slot, token) || (slot->constraint && is_end(slot, token)))
		*finish = LAP_FINISH_STOP;
	else if (slot_left(slot) == 0)
		*finish = LAP_FINISH_LENGTH;
	else if (limit > 0 && slot->latest - slot->started >= limit)
		*finish = LAP_FINISH_TIME;
	else
		return false;
	return true;
}

static enum lap_status take(struct slot *slot, const struct ring_entry *entry,
	const struct top_token *top, struct lap_error *err)
{
	const int32_t token = (int32_t)entry->token;
	struct timeline *t = slot->t;
	struct lap_top tops[MAX_TOP];
	uint32_t n_top = 0;
	bool found;
	if (entry->error) {
		struct lap_error why;
		fail(&why, LAP_ERROR,
			"the logits after token %u are not numbers: the weights are damaged, or "
			"this device computes wrong results (lapilli validate tells)",
			(unsigned)t->n_past);
		slot_fail(slot, LAP_ERROR, &why);
		return LAP_OK;
	}
	slot->latest = clock_seconds();
	if (slot->n_generated++ == 0)
		slot->first = slot->latest;
	t->tokens[t->n_past++] = slot->last;
	slot->last = token;
	while (top && n_top < slot->o->n_top && top[n_top].token != UINT32_MAX) {
		tops[n_top] = (struct lap_top){(int32_t)top[n_top].token, top[n_top].log_prob};
		n_top++;
	}
	if (is_stop(slot, token) && !slot->o->special) {
		slot->text.n = 0;
		found = false;
	} else {
		enum lap_status status = add_text(slot, token, &found, err);
		if (status)
			return status;
	}
	if (slot->constraint) {
		enum lap_status status = constraint_accept(slot->constraint, token, err);
		if (status)
			return status;
	}
	enum lap_finish finish = LAP_FINISH_CANCELLED;
	bool is_last = ends_with(slot, token, found, &finish);
	bool go_on = call(slot,
		&(struct lap_token){
			.id = token,
			.log_prob = entry->log_prob,
			.text = slot->text.data ? slot->text.data : "",
			.n_bytes = slot->text.n,
			.top = tops,
			.n_top = n_top,
		});
	if (is_last || !go_on)
		end(slot, finish);
	else if (t->n_past == slot->s->n_ctx)
		slot->phase = PHASE_FULL;
	return LAP_OK;
}

enum lap_status slot_take_ready(struct slot *slot, uint32_t n_steps, struct lap_error *err)
{
	const struct lap_session *s = slot->s;
	const size_t at = (size_t)slot->seq * RING_ENTRIES;
	uint32_t n_there = *(volatile u32 *)&s->sequences[slot->seq].n_sampled - slot->ring_next;
	uint32_t n_ready = n_there < n_steps ? n_there : n_steps;
	slot->n_ahead -= n_steps;
	for (uint32_t i = 0; i < n_ready && slot->phase == PHASE_DECODE; i++) {
		const uint32_t number = slot->ring_next++, entry = number % RING_ENTRIES;
		const struct ring_entry e = s->ring[at + entry];
		if (e.step != number + 1)
			return fail(err, LAP_ERROR, "result %u of the device is missing, found %u",
				(unsigned)number + 1, (unsigned)e.step);
		enum lap_status status =
			take(slot, &e, s->tops ? s->tops + (at + entry) * s->n_top : NULL, err);
		if (status)
			return status;
	}
	if (slot->phase == PHASE_DECODE && n_there < n_steps) /* by itself */
		end(slot, LAP_FINISH_CANCELLED);
	return LAP_OK;
}

/* ---- drawing on the host --------------------------------------------------------------------- */

bool slot_needs_host(const struct slot *slot)
{
	return slot->chain || slot->draft;
}

/* Rows that can each give a token, at least 1. */
static uint32_t useful_rows(const struct slot *slot, uint32_t most)
{
	const uint32_t room = slot->s->n_ctx - slot->t->n_past;
	const uint64_t left = slot_left(slot);
	if (most > slot->o->n_draft + 1)
		most = slot->o->n_draft + 1;
	if (most > room)
		most = room;
	return most < left ? most : (uint32_t)left;
}

struct draft *slot_ask(struct slot *slot, uint32_t most)
{
	struct timeline *t = slot->t;
	t->tokens[t->n_past] = slot->last;
	draft_ask(slot->draft, t->tokens, t->n_past + 1, slot->draw_offset,
		useful_rows(slot, most) - 1);
	if (slot->n_generated == 0) /* the first token does not wait for another model's prompt */
		slot->draft->n_wanted = 0;
	return slot->draft;
}

uint32_t slot_rows(struct slot *slot, struct step_row *rows, uint32_t most)
{
	const struct draft *d = slot->draft;
	const uint32_t pos = slot->t->n_past;
	uint32_t n = 1;
	rows[0] = (struct step_row){(uint32_t)slot->last, pos, slot->seq, 0};
	for (; d && n <= d->n && n < most; n++)
		rows[n] = (struct step_row){(uint32_t)d->tokens[n - 1], pos + n, slot->seq, 0};
	slot->on_device = false;
	return n;
}

/* What may not be drawn now, as a mask for the chain; NULL: everything may. */
static enum lap_status host_mask(struct slot *slot, const uint32_t **mask, struct lap_error *err)
{
	const struct sequence *q = &slot->sequence;
	const size_t n_words = MASK_WORDS(slot->s->m->info.n_vocab);
	const bool forbids = slot->n_generated < q->n_forbid_left;
	enum lap_status status = mask_of(slot, mask, err);
	if (status || slot->phase == PHASE_ENDED || (!forbids && q->n_bias == 0))
		return status;
	if (!slot->mask)
		slot->mask = array_alloc(n_words, sizeof(*slot->mask));
	if (!slot->mask)
		return fail_memory(err, "a mask", n_words * sizeof(*slot->mask));
	if (*mask)
		memcpy(slot->mask, *mask, n_words * sizeof(*slot->mask));
	else
		memset(slot->mask, 0xff, n_words * sizeof(*slot->mask));
	for (uint32_t i = 0; i < q->n_bias;
		i++) /* the chain has biases of its own: these are bans */
		slot->mask[q->bias_token[i] / 32] &= ~(1u << q->bias_token[i] % 32);
	for (uint32_t i = 0; i < q->n_forbidden && forbids; i++)
		slot->mask[q->forbidden[i] / 32] &= ~(1u << q->forbidden[i] % 32);
	*mask = slot->mask;
	return LAP_OK;
}

/* `guess` was drawn from *q; NULL: there is none, or it is certain. */
static enum lap_status draw_by_chain(struct slot *slot, const float *logits,
	const struct candidates *q, int32_t guess, struct ring_entry *entry, struct top_token *top,
	struct lap_error *err)
{
	struct timeline *t = slot->t;
	const uint32_t pos = t->n_past + slot->draw_offset;
	const uint32_t *mask;
	uint32_t random[4];
	struct candidate best[MAX_TOP];
	enum lap_status status = host_mask(slot, &mask, err);
	if (status || slot->phase == PHASE_ENDED)
		return status;
	if (!status)
		status = sampler_chain_apply(slot->chain, logits, (const uint32_t *)t->tokens,
			t->n_past + 1, pos, mask, &slot->candidates, err);
	if (status == LAP_ERROR)
		entry->error = 1;
	if (status)
		return status == LAP_ERROR ? LAP_OK : status;
	sampler_chain_random(slot->chain, pos, q ? DRAFT_VERDICT : SAMPLER_DRAW, random);
	const struct sample_result drawn = q
		? draft_accept(&slot->candidates, q, (uint32_t)guess, random)
		: candidates_draw(&slot->candidates, random);
	sampler_chain_accept(slot->chain, &slot->candidates, drawn.token);
	*entry = (struct ring_entry){.token = drawn.token, .log_prob = drawn.log_prob};
	uint32_t n = sampler_chain_best(slot->chain, slot->o->n_top, best);
	for (uint32_t i = 0; i < n; i++)
		top[i] = (struct top_token){best[i].id, best[i].log_prob};
	for (uint32_t i = n; i < slot->o->n_top; i++)
		top[i].token = UINT32_MAX;
	return LAP_OK;
}

/* As the recorded step would: the same token. */
static enum lap_status draw_as_step(struct slot *slot, const float *logits,
	struct ring_entry *entry, struct top_token *top, struct lap_error *err)
{
	const struct lap_session *s = slot->s;
	const struct timeline *t = slot->t;
	const uint32_t n_vocab = s->m->info.n_vocab;
	struct sequence q = slot->sequence;
	uint32_t *count = s->history + s->n_ctx;
	const uint32_t *mask;
	enum lap_status status = mask_of(slot, &mask, err);
	if (status || slot->phase == PHASE_ENDED)
		return status;
	q.use_mask = mask != NULL;
	if (mask)
		memcpy(count + n_vocab, mask, MASK_WORDS(n_vocab) * sizeof(*mask));
	q.draw_offset = slot->draw_offset;
	if (q.n_forbid_left != UINT32_MAX)
		q.n_forbid_left = slot->n_generated < q.n_forbid_left;
	sampler_count(&q, (const uint32_t *)t->tokens, t->n_past + 1, count, n_vocab);
	const struct sampler_row row = sampler_cut(
		&q, logits, n_vocab, count, s->host_logits + (size_t)n_vocab * s->max_rows);
	const struct sample_result drawn = sampler_draw(&row, t->n_past);
	*entry = (struct ring_entry){
		.token = drawn.token, .log_prob = drawn.log_prob, .error = drawn.error};
	if (!row.error)
		sampler_top(&row, q.n_top, top);
	return LAP_OK;
}

/* The token of a row; *right: it is the guess (-1: none). */
static enum lap_status take_row(struct slot *slot, const float *logits, const struct candidates *q,
	int32_t guess, bool *right, struct lap_error *err)
{
	struct ring_entry entry = {0};
	struct top_token top[MAX_TOP];
	enum lap_status status = LAP_OK;
	slot->t->tokens[slot->t->n_past] = slot->last; /* history of the draw */
	if (slot->chain)
		status = draw_by_chain(slot, logits, q, guess, &entry, top, err);
	else
		status = draw_as_step(slot, logits, &entry, top, err);
	*right = !status && slot->phase == PHASE_DECODE && !entry.error &&
		(int32_t)entry.token == guess;
	if (status || slot->phase == PHASE_ENDED)
		return status;
	return take(slot, &entry, slot->o->n_top ? top : NULL, err);
}

enum lap_status slot_take_logits(
	struct slot *slot, const float *logits, uint32_t n_rows, struct lap_error *err)
{
	const struct draft *d = slot->draft;
	struct lap_generation *r = &slot->request->result;
	uint32_t n_right = 0;
	bool right = true;
	enum lap_status status = LAP_OK;
	for (uint32_t i = 0; i < n_rows && right && !status && slot->phase == PHASE_DECODE; i++) {
		const bool guessed = i + 1 < n_rows;
		status = take_row(slot, logits + (size_t)i * slot->s->m->info.n_vocab,
			guessed ? draft_q(d, i) : NULL, guessed ? d->tokens[i] : -1, &right, err);
		n_right += right;
	}
	if (!d || status)
		return status;
	r->n_drafted += n_rows - 1;
	r->n_accepted += n_right;
	draft_settle(slot->draft, n_right, slot->last);
	timeline_truncate(slot->s, slot->t, slot->t->n_past); /* others may need the blocks */
	return LAP_OK;
}

/* ---- a full context -------------------------------------------------------------------------- */

static enum lap_status shift(struct slot *slot, struct lap_error *err)
{
	struct timeline *t = slot->t;
	const struct tokenizer_info *info =
		slot->s->m->tokenizer ? tokenizer_info(slot->s->m->tokenizer) : NULL;
	uint32_t n_keep = slot->o->n_keep;
	/* The token that begins texts stays: much attention rests on it. */
	if (n_keep == 0 && info && info->add_bos && t->tokens[0] == info->bos)
		n_keep = 1;
	uint32_t n_discard = (t->n_past - n_keep + 1) / 2;
	slot->draw_offset += n_discard;
	if (slot->draft)
		draft_shift(slot->draft, t->tokens, t->n_past, n_keep, n_discard);
	return timeline_shift(slot->s, t, n_keep, n_discard, err);
}

/* The last n_ctx tokens are computed again, the last of them as a step. */
static void crop(struct slot *slot)
{
	struct timeline *t = slot->t;
	slot->n_prefill = t->n_past - 1;
	memcpy(slot->tokens, t->tokens + 1, slot->n_prefill * sizeof(*slot->tokens));
	slot->draw_offset++;
	timeline_truncate(slot->s, t, 0);
	slot->phase = PHASE_PREFILL;
}

enum lap_status slot_make_room(struct slot *slot, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	slot->request->result.n_shifts++;
	slot->on_device = false;
	slot->phase = PHASE_DECODE;
	if (slot->o->overflow == LAP_OVERFLOW_CROP)
		crop(slot);
	else
		status = shift(slot, err);
	return status;
}
