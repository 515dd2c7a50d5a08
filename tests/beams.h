/* Beam search beside an independent one that keeps whole sequences and ranks all continuations of all of
 * them.  Used by test_beams.c (tables, CPU reference) and test_vk_beams.c. */
#ifndef LAPILLI_TESTS_BEAMS_H
#define LAPILLI_TESTS_BEAMS_H

#include "beam_scorer.h"
#include "models.h"

#define MAX_TEXT  64    /* tokens of a result here */
#define MAX_WAYS  16384 /* continuations of a step */
#define MAX_VOCAB 1024

/* log_probs[n_vocab] of the token behind text[n]. */
typedef void model_fn(void *user, const int32_t *text, size_t n, float *log_probs);

struct searched {
	int32_t tokens[MAX_TEXT];
	size_t n;
	float sum, score;
	enum lap_finish finish;
};

struct way {
	size_t beam;
	int32_t token;
	float sum;
};

struct plain_search {
	struct beam_rules rules;
	uint32_t n_vocab, min_tokens;
	struct searched running[MAX_BEAMS], finished[MAX_BEAMS + 1];
	size_t n_running, n_finished;
};

static inline bool ends(const struct beam_rules *r, int32_t token)
{
	for (size_t i = 0; i < r->n_ends; i++)
		if (r->ends[i] == token)
			return true;
	return false;
}

static inline int compare_ways(const void *x, const void *y)
{
	const struct way *a = x, *b = y;
	if (a->sum != b->sum)
		return a->sum > b->sum ? -1 : 1;
	if (a->beam != b->beam)
		return a->beam < b->beam ? -1 : 1;
	return a->token < b->token ? -1 : a->token > b->token;
}

static inline struct searched longer(const struct searched *beam, const struct way *way)
{
	struct searched next = *beam;
	next.tokens[next.n++] = way->token;
	next.sum = way->sum;
	return next;
}

static inline void plain_finish(
	struct plain_search *p, struct searched beam, enum lap_finish finish)
{
	size_t at = p->n_finished;
	beam.score = (float)(beam.sum / pow((double)beam.n, (double)p->rules.length_penalty));
	beam.finish = finish;
	for (; at > 0 && p->finished[at - 1].score < beam.score; at--)
		p->finished[at] = p->finished[at - 1];
	p->finished[at] = beam;
	if (++p->n_finished > p->rules.n_beams)
		p->n_finished = p->rules.n_beams;
}

static inline bool plain_is_over(const struct plain_search *p)
{
	const struct beam_rules *r = &p->rules;
	if (p->n_running == 0)
		return true;
	if (p->n_finished < r->n_beams)
		return false;
	double n = (double)p->running[0].n;
	switch (r->early_stopping) {
	case LAP_EARLY_STOPPING_TRUE:
		return true;
	case LAP_EARLY_STOPPING_NEVER:
		n = r->length_penalty > 0 ? r->n_most : n;
		break;
	case LAP_EARLY_STOPPING_FALSE:
		break;
	}
	return p->finished[r->n_beams - 1].score >=
		(float)(p->running[0].sum / pow(n, (double)r->length_penalty));
}

/* One step; false: it is over. */
static inline bool plain_step(struct plain_search *p, model_fn *model, void *user)
{
	static struct way ways[MAX_WAYS];
	static float log_probs[MAX_VOCAB];
	static struct searched next[MAX_BEAMS];
	const struct beam_rules *r = &p->rules;
	size_t n_ways = 0, n_next = 0;
	for (size_t b = 0; b < p->n_running; b++) {
		const struct searched *beam = &p->running[b];
		model(user, beam->tokens, beam->n, log_probs);
		for (uint32_t i = 0; i < p->n_vocab; i++) {
			const bool forbidden = beam->n < p->min_tokens && ends(r, (int32_t)i);
			cr_assert_lt(n_ways, MAX_WAYS);
			if (log_probs[i] > -INFINITY && !forbidden)
				ways[n_ways++] =
					(struct way){b, (int32_t)i, beam->sum + log_probs[i]};
		}
	}
	qsort(ways, n_ways, sizeof(*ways), compare_ways);
	for (size_t i = 0; i < n_ways; i++) {
		const struct searched beam = longer(&p->running[ways[i].beam], &ways[i]);
		if (!ends(r, ways[i].token)) {
			if (n_next < r->n_beams)
				next[n_next++] = beam;
		} else if (i < r->n_beams)
			plain_finish(p, beam, LAP_FINISH_STOP);
	}
	memcpy(p->running, next, n_next * sizeof(*next));
	p->n_running = n_next;
	if (n_next == 0 || next[0].n < r->n_most)
		return !plain_is_over(p);
	for (size_t i = 0; i < n_next; i++)
		plain_finish(p, next[i], LAP_FINISH_LENGTH);
	return false;
}

static inline void plain_search(struct plain_search *p, const struct beam_rules *rules,
	uint32_t n_vocab, uint32_t min_tokens, model_fn *model, void *user)
{
	*p = (struct plain_search){
		.rules = *rules, .n_vocab = n_vocab, .min_tokens = min_tokens, .n_running = 1};
	while (plain_step(p, model, user))
		;
}

/* ---- a model as one of these functions ---- */

struct from_scratch {
	struct lap_session *s; /* with logits_all */
	const int32_t *prompt;
	size_t n_prompt;
	float *logits;
};

/* All logits of prompt and text, computed anew. */
static inline void model_from_scratch(void *user, const int32_t *text, size_t n, float *log_probs)
{
	struct from_scratch *f = user;
	const uint32_t n_vocab = lap_model_info(f->s->m)->n_vocab;
	int32_t tokens[2 * MAX_TEXT];
	struct lap_error err;
	const size_t n_all = f->n_prompt + n;
	cr_assert(n_all <= ARRAY_COUNT(tokens) && n_vocab <= MAX_VOCAB);
	memcpy(tokens, f->prompt, f->n_prompt * sizeof(*tokens));
	memcpy(tokens + f->n_prompt, text, n * sizeof(*tokens));
	lap_session_clear(f->s);
	cr_assert_eq(
		lap_session_logits(f->s, tokens, n_all, f->logits, &err), LAP_OK, "%s", err.text);
	const float *last = f->logits + (n_all - 1) * n_vocab;
	double sum = 0, most = -INFINITY;
	for (uint32_t i = 0; i < n_vocab; i++)
		most = fmax(most, (double)last[i]);
	for (uint32_t i = 0; i < n_vocab; i++)
		sum += exp((double)last[i] - most);
	for (uint32_t i = 0; i < n_vocab; i++)
		log_probs[i] = (float)((double)last[i] - most - log(sum));
}

static const int32_t beam_prompt[] = {5, 60, 19, 88, 41, 7, 133, 20, 61, 90, 14};
#define N_BEAM_PROMPT ARRAY_COUNT(beam_prompt)

static inline struct lap_generation search_beams(
	struct lap_session *s, const struct lap_beam_options *o, struct lap_beam **beams, size_t *n)
{
	struct lap_generation r;
	struct lap_error err = {0};
	cr_assert_eq(lap_beam_search(s, beam_prompt, N_BEAM_PROMPT, o, beams, n, &r, &err), LAP_OK,
		"%s", err.text);
	return r;
}

/* Tokens that some beams would take: with them as ends, beams of all lengths are finished. */
static inline size_t some_ends(struct lap_model *m, int32_t *list, size_t most)
{
	const struct lap_session_options so = {.n_seq = 4, .n_top = 16, .n_ctx = 256};
	struct lap_session *s = open_session(m, &so);
	struct lap_beam *beams;
	size_t n_beams, n = 0;
	search_beams(s,
		&(struct lap_beam_options){
			.n_return = 4, .n_predict = 8, .length_penalty = 1, .ignore_eos = true},
		&beams, &n_beams);
	for (size_t i = 0; i < n_beams; i++)
		for (size_t j = i; j < beams[i].n && n < most; j += 3)
			if (!ends(&(struct beam_rules){.ends = list, .n_ends = n},
				    beams[i].tokens[j]))
				list[n++] = beams[i].tokens[j];
	lap_free(beams);
	lap_session_destroy(s);
	return n;
}

static const struct lap_beam_options beam_kinds[] = {
	{.n_beams = 4, .n_return = 4, .length_penalty = 1, .n_predict = 12},
	{.n_beams = 2, .n_return = 2, .early_stopping = LAP_EARLY_STOPPING_TRUE, .n_predict = 20},
	{.n_beams = 3,
		.n_return = 3,
		.length_penalty = 2,
		.early_stopping = LAP_EARLY_STOPPING_NEVER,
		.n_predict = 16,
		.min_tokens = 5},
	{.n_beams = 5, .n_return = 5, .length_penalty = -1, .n_predict = 10, .min_tokens = 2},
	{.n_beams = 1, .length_penalty = 0.5f, .n_predict = 12},
};

/* The sum of log-probabilities of a text in a session that has no other. */
static inline float score_alone(
	struct lap_model *m, const struct lap_session_options *shape, const struct lap_beam *beam)
{
	struct lap_session_options one = *shape;
	one.n_seq = 1;
	struct lap_session *s = open_session(m, &one);
	struct timeline *t = &s->timelines[0];
	struct lap_error err;
	uint64_t ticket;
	cr_assert_eq(session_prefill(s, t, beam_prompt, N_BEAM_PROMPT - 1, &err), LAP_OK);
	s->sequences[0] = (struct sequence){.greedy = 1,
		.inv_temperature = 1,
		.inv_cut_temperature = 1,
		.n_ctx = s->n_ctx,
		.n_top = one.n_top};
	for (size_t i = 0; i < beam->n; i++) {
		const int32_t last = i ? beam->tokens[i - 1] : beam_prompt[N_BEAM_PROMPT - 1];
		const struct step_row row = {(uint32_t)last, t->n_past, 0, 0};
		timeline_reserve(s, t, t->n_past + 1);
		cr_assert_eq(session_set_step(s, STEP_BEAMS, &row, 1, &err), LAP_OK);
		cr_assert_eq(session_submit(s, 1, &ticket, &err), LAP_OK);
		cr_assert_eq(session_wait(s, ticket, &err), LAP_OK);
		t->tokens[t->n_past++] = last;
		const struct beam_candidate *best = (const struct beam_candidate *)(s->choice + 1);
		uint32_t at = 0;
		while (at < s->choice->n && best[at].token != (uint32_t)beam->tokens[i])
			at++;
		cr_assert_lt(at, s->choice->n);
		s->sequences[0].beam_score = best[at].score;
	}
	const float sum = s->sequences[0].beam_score;
	lap_session_destroy(s);
	return sum;
}

#endif
