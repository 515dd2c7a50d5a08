/* Running and finished beams: see beam_scorer.h. */
#include "beam_scorer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void beam_scorer_init(struct beam_scorer *b, const struct beam_rules *rules)
{
	assert(rules->n_beams > 0 && rules->n_beams <= MAX_BEAMS && rules->n_most > 0);
	*b = (struct beam_scorer){.rules = *rules, .n_running = 1};
	b->running[0].node = BEAM_ROOT;
}

void beam_scorer_free(struct beam_scorer *b)
{
	free(b->nodes);
	b->nodes = NULL;
}

/* Every beam can have a candidate for each of the tokens that end: enough go on all the same. */
uint32_t beam_scorer_wanted(const struct beam_rules *rules)
{
	const size_t per_beam = rules->n_ends ? 1 + rules->n_ends : 2;
	return rules->n_beams * (uint32_t)per_beam;
}

float beam_score(const struct beam_rules *rules, float log_prob, uint32_t n)
{
	return (float)((double)log_prob / pow(n, (double)rules->length_penalty));
}

static bool is_end(const struct beam_rules *rules, uint32_t token)
{
	for (size_t i = 0; i < rules->n_ends; i++)
		if ((uint32_t)rules->ends[i] == token)
			return true;
	return false;
}

/* Takes its place among the n_beams best; an equal one that was there stays before it. */
static void finish(struct beam_scorer *b, struct running_beam beam, enum lap_finish why)
{
	const float score = beam_score(&b->rules, beam.log_prob, b->n_generated);
	uint32_t at = b->n_finished;
	while (at > 0 && score > b->finished[at - 1].score)
		at--;
	if (at == b->rules.n_beams)
		return;
	if (b->n_finished < b->rules.n_beams)
		b->n_finished++;
	memmove(b->finished + at + 1, b->finished + at,
		(b->n_finished - at - 1) * sizeof(*b->finished));
	b->finished[at] =
		(struct finished_beam){beam.node, b->n_generated, beam.log_prob, score, why};
}

/* No running beam can get into the finished set any more, as far as early_stopping looks. */
static bool is_over(const struct beam_scorer *b)
{
	const struct beam_rules *r = &b->rules;
	if (b->n_running == 0)
		return true;
	if (b->n_finished < r->n_beams)
		return false;
	if (r->early_stopping == LAP_EARLY_STOPPING_TRUE)
		return true;
	const bool to_the_limit =
		r->early_stopping == LAP_EARLY_STOPPING_NEVER && r->length_penalty > 0;
	const float best =
		beam_score(r, b->running[0].log_prob, to_the_limit ? r->n_most : b->n_generated);
	return b->finished[b->n_finished - 1].score >= best;
}

static enum lap_status reserve_nodes(struct beam_scorer *b, size_t n, struct lap_error *err)
{
	if (b->n_nodes + n <= b->capacity)
		return LAP_OK;
	const size_t capacity = 2 * (b->n_nodes + n);
	struct beam_node *nodes = realloc(b->nodes, capacity * sizeof(*nodes));
	if (!nodes)
		return fail_memory(err, "beams", capacity * sizeof(*nodes));
	b->nodes = nodes;
	b->capacity = capacity;
	return LAP_OK;
}

enum lap_status beam_scorer_step(struct beam_scorer *b, const struct beam_candidate *candidates,
	uint32_t n, uint32_t parents[MAX_BEAMS], struct lap_error *err)
{
	const uint32_t n_beams = b->rules.n_beams;
	struct running_beam next[MAX_BEAMS];
	uint32_t n_next = 0;
	/* At most n_beams go on, and those among the first n_beams end. */
	enum lap_status status = reserve_nodes(b, 2 * (size_t)n_beams, err);
	if (status)
		return status;
	b->n_generated++;
	for (uint32_t i = 0; i < n && n_next < n_beams; i++) {
		const struct beam_candidate *c = &candidates[i];
		const bool ends = is_end(&b->rules, c->token);
		assert(c->row < b->n_running);
		if (ends && i >= n_beams)
			continue;
		const struct running_beam beam = {(uint32_t)b->n_nodes, c->score};
		b->nodes[b->n_nodes++] =
			(struct beam_node){(int32_t)c->token, b->running[c->row].node};
		if (ends) {
			finish(b, beam, LAP_FINISH_STOP);
			continue;
		}
		parents[n_next] = c->row;
		next[n_next++] = beam;
	}
	memcpy(b->running, next, n_next * sizeof(*next));
	b->n_running = n_next;
	if (b->n_generated == b->rules.n_most)
		beam_scorer_end(b, LAP_FINISH_LENGTH);
	else
		b->done = is_over(b);
	return LAP_OK;
}

void beam_scorer_end(struct beam_scorer *b, enum lap_finish why)
{
	for (uint32_t i = 0; i < b->n_running && b->n_generated > 0; i++)
		finish(b, b->running[i], why);
	b->n_running = 0;
	b->done = true;
}

void beam_scorer_tokens(
	const struct beam_scorer *b, const struct finished_beam *beam, int32_t *tokens)
{
	uint32_t node = beam->node;
	for (uint32_t i = beam->n; i > 0; i--) {
		tokens[i - 1] = b->nodes[node].token;
		node = b->nodes[node].before;
	}
}
