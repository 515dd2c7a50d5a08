/* The chain of samplers: every token's logit is kept, truncations strike ids off a list.
 *
 * Penalties, bias and DRY change logits, those of tokens struck off too: so log-probabilities are among
 * all tokens whatever the order.  A temperature is one factor for all and is multiplied in where it is
 * needed, as sampler.c does. */
#include "sampler_chain.h"

#include <stdlib.h>

#include "sampler_dry.h"
#include "sampler_math.h"

/* ---- a chain --------------------------------------------------------------------------------- */

struct sampler_chain {
	struct lap_sampling p;      /* pointers are NULL: what they gave is below */
	struct sequence s;          /* the same for sampler.c's arithmetic */
	struct sampler_order order; /* of the steps that have something to do */
	struct lap_logit_bias *bias;
	struct dry_breakers breakers;
	uint32_t n_vocab, n_ctx;
	struct sampler_chain_state state;

	/* of the last row; a chain without them has applied nothing */
	float *logit;            /* [n_vocab] after the steps so far; forbidden: -infinity */
	uint32_t *id;            /* [n] tokens that stay, ascending */
	uint32_t *mass;          /* [n] of them, when a step needs it */
	uint32_t *key;           /* [n] what a step ranks them by */
	uint32_t *count;         /* [n_vocab] zeros between applies */
	uint32_t *length, *work; /* [n_ctx] for DRY */
	uint32_t n;
	uint32_t best;   /* of those that stay: lowest id of the largest logit */
	float scale;     /* that logits are still to be multiplied with */
	float top;       /* the largest logit of all tokens ... */
	float log_total; /* ... and ln of the sum of exp(scale * (logit - top)) */
};

static enum lap_status check_parameters(
	const struct lap_sampling *p, uint32_t n_vocab, struct lap_error *err)
{
	const float huge = 1e6f;
	enum lap_status status;
	if ((status = check_number("typical_p", p->typical_p, err)) ||
		(status = check_number("top_n_sigma", p->top_n_sigma, err)) ||
		(status = check_range("xtc_probability", p->xtc_probability, 0, 1, err)) ||
		(status = check_range("xtc_threshold", p->xtc_threshold, 0, 1, err)) ||
		(status = check_range("dry_multiplier", p->dry_multiplier, 0, huge, err)) ||
		(status = check_range("dry_base", p->dry_base, 1, huge, err)) ||
		(status = check_range("mirostat_tau", p->mirostat_tau, 0, huge, err)) ||
		(status = check_range("mirostat_eta", p->mirostat_eta, 0, huge, err)) ||
		(status = check_range("dynatemp_range", p->dynatemp_range, 0, huge, err)) ||
		(status = check_range("dynatemp_exponent", p->dynatemp_exponent, 0, huge, err)))
		return status;
	if (p->dry_penalty_last_n < -1)
		return fail(err, LAP_USAGE,
			"dry_penalty_last_n is %d, expected a number of tokens, or -1 for the "
			"context",
			p->dry_penalty_last_n);
	if (p->mirostat != 0 && p->mirostat != 2)
		return fail(err, LAP_USAGE, "mirostat is %u, expected 0 or 2", p->mirostat);
	for (size_t i = 0; i < p->n_logit_bias; i++) {
		const struct lap_logit_bias *b = &p->logit_bias[i];
		if (b->token < 0 || (uint32_t)b->token >= n_vocab)
			return fail(err, LAP_USAGE,
				"logit_bias names token %d, expected an id from 0 to %u", b->token,
				n_vocab - 1);
		if (is_no_logit(b->bias))
			return fail(err, LAP_USAGE,
				"the logit_bias of token %d is %g, expected a number or -infinity",
				b->token, (double)b->bias);
	}
	return LAP_OK;
}

static void fill_defaults(struct lap_sampling *p)
{
	p->repeat_penalty = p->repeat_penalty == 0 ? 1 : p->repeat_penalty;
	p->dry_base = p->dry_base == 0 ? 1.75f : p->dry_base;
	p->dry_allowed_length = p->dry_allowed_length == 0 ? 2 : p->dry_allowed_length;
	p->mirostat_tau = p->mirostat_tau == 0 ? 5 : p->mirostat_tau;
	p->mirostat_eta = p->mirostat_eta == 0 ? 0.1f : p->mirostat_eta;
	p->dynatemp_exponent = p->dynatemp_exponent == 0 ? 1 : p->dynatemp_exponent;
	p->min_keep = p->min_keep == 0 ? 1 : p->min_keep;
}

static bool chain_alloc(struct sampler_chain *c, const struct lap_logit_bias *bias)
{
	c->logit = array_alloc(c->n_vocab, sizeof *c->logit);
	c->id = array_alloc(c->n_vocab, sizeof *c->id);
	c->mass = array_alloc(c->n_vocab, sizeof *c->mass);
	c->key = array_alloc(c->n_vocab, sizeof *c->key);
	c->count = array_alloc(c->n_vocab, sizeof *c->count);
	c->length = array_alloc(c->n_ctx, sizeof *c->length);
	c->work = array_alloc(c->n_ctx, sizeof *c->work);
	c->bias = array_alloc(c->p.n_logit_bias + 1, sizeof *c->bias);
	if (!c->logit || !c->id || !c->mass || !c->key || !c->count || !c->length || !c->work ||
		!c->bias)
		return false;
	if (c->p.n_logit_bias)
		memcpy(c->bias, bias, c->p.n_logit_bias * sizeof *bias);
	return true;
}

enum lap_status sampler_chain_create(const struct lap_sampling *sampling, uint32_t n_vocab,
	uint32_t n_ctx, struct sampler_chain **chain, struct lap_error *err)
{
	struct sampler_order order;
	struct sequence s = {0};
	struct lap_sampling p = *sampling;
	*chain = NULL;
	fill_defaults(&p);
	enum lap_status status = sampler_order_parse(p.samplers, &order, err);
	if (!status)
		status = check_parameters(&p, n_vocab, err);
	const struct lap_logit_bias *bias = p.logit_bias;
	p.samplers = NULL;
	p.logit_bias = NULL;
	p.dry_breakers = NULL;
	struct lap_sampling common = p;
	common.n_logit_bias = 0;
	if (!status)
		status = sampler_set(&s, &common, n_vocab, n_ctx, err);
	if (status)
		return status;
	struct sampler_chain *c = calloc(1, sizeof *c);
	if (c) {
		c->p = p;
		c->s = s;
		for (uint32_t i = 0; i < order.n; i++)
			if (sampler_step_is_on(&p, order.steps[i]))
				c->order.steps[c->order.n++] = order.steps[i];
		c->n_vocab = n_vocab;
		c->n_ctx = n_ctx;
	}
	if (!c || !chain_alloc(c, bias)) {
		sampler_chain_destroy(c);
		return fail_memory(err, "the sampler", 5 * (uint64_t)n_vocab * sizeof(uint32_t));
	}
	sampler_chain_reset(c);
	*chain = c;
	return LAP_OK;
}

void sampler_chain_destroy(struct sampler_chain *c)
{
	if (!c)
		return;
	dry_breakers_free(&c->breakers);
	free(c->logit);
	free(c->id);
	free(c->mass);
	free(c->key);
	free(c->count);
	free(c->length);
	free(c->work);
	free(c->bias);
	free(c);
}

enum lap_status sampler_chain_clone(
	const struct sampler_chain *chain, struct sampler_chain **clone, struct lap_error *err)
{
	*clone = NULL;
	struct sampler_chain *c = calloc(1, sizeof *c);
	if (c) {
		c->p = chain->p;
		c->s = chain->s;
		c->order = chain->order;
		c->n_vocab = chain->n_vocab;
		c->n_ctx = chain->n_ctx;
		c->state = chain->state;
	}
	if (!c || !chain_alloc(c, chain->bias)) {
		sampler_chain_destroy(c);
		return fail_memory(
			err, "the sampler", 5 * (uint64_t)chain->n_vocab * sizeof(uint32_t));
	}
	enum lap_status status = dry_breakers_copy(&c->breakers, &chain->breakers, c->n_vocab, err);
	if (status)
		sampler_chain_destroy(c);
	else
		*clone = c;
	return status;
}

enum lap_status sampler_chain_add_breaker(
	struct sampler_chain *c, const uint32_t *tokens, uint32_t n, struct lap_error *err)
{
	return dry_breakers_add(&c->breakers, tokens, n, c->n_vocab, err);
}

struct sampler_chain_state sampler_chain_save(const struct sampler_chain *c)
{
	return c->state;
}

void sampler_chain_restore(struct sampler_chain *c, struct sampler_chain_state state)
{
	c->state = state;
}

void sampler_chain_reset(struct sampler_chain *c)
{
	c->state.mu = 2 * c->p.mirostat_tau;
}

/* ---- the row --------------------------------------------------------------------------------- */

/* The tokens that stay and are not forbidden, and the best of them. */
static enum lap_status settle(struct sampler_chain *c, struct lap_error *err)
{
	uint32_t n = 0, largest = 0;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t id = c->id[i], key = ordered_key(c->logit[id]);
		if (is_no_logit(c->logit[id]))
			return fail(err, LAP_ERROR,
				"the logit of token %u is %g, expected a finite number", id,
				(double)c->logit[id]);
		if (is_forbidden(c->logit[id]))
			continue;
		if (key > largest) {
			largest = key;
			c->best = id;
		}
		c->id[n++] = id;
	}
	c->n = n;
	if (n == 0)
		return fail(err, LAP_ERROR,
			"no token can be drawn: all %u are forbidden or have a logit of -infinity",
			c->n_vocab);
	return LAP_OK;
}

static enum lap_status load_row(
	struct sampler_chain *c, const float *logits, const uint32_t *mask, struct lap_error *err)
{
	for (uint32_t i = 0; i < c->n_vocab; i++) {
		c->id[i] = i;
		c->logit[i] = tidy(logits[i]);
	}
	c->n = c->n_vocab;
	c->scale = 1;
	enum lap_status status = settle(c, err);
	if (status || !mask)
		return status;
	for (uint32_t i = 0; i < c->n_vocab; i++)
		if (!(mask[i / 32] >> (i % 32) & 1))
			c->logit[i] = -INFINITY;
	return settle(c, err);
}

/* Temperatures so far become part of the logits. */
static void fold_scale(struct sampler_chain *c)
{
	for (uint32_t i = 0; i < c->n_vocab && c->scale != 1; i++)
		c->logit[i] = tidy(c->logit[i] * c->scale);
	c->scale = 1;
}

static void add_bias(struct sampler_chain *c)
{
	for (size_t i = 0; i < c->p.n_logit_bias; i++) {
		float *logit = &c->logit[c->bias[i].token];
		if (!is_forbidden(*logit))
			*logit = tidy(*logit + c->bias[i].bias);
	}
}

static void penalties(struct sampler_chain *c, const uint32_t *history, uint32_t n)
{
	uint32_t start = n > c->s.repeat_last_n ? n - c->s.repeat_last_n : 0;
	if (start < n)
		fold_scale(c);
	for (uint32_t i = start; i < n; i++)
		c->count[history[i]]++;
	for (uint32_t i = start; i < n; i++) {
		uint32_t token = history[i];
		c->logit[token] = penalise(&c->s, c->logit[token], c->count[token]);
		c->count[token] =
			0; /* as all are between applies; penalise leaves the next alone */
	}
}

static void dry(struct sampler_chain *c, const uint32_t *history, uint32_t n)
{
	const double largest = 1e30;
	uint32_t window =
		c->p.dry_penalty_last_n < 0 ? c->n_ctx : (uint32_t)c->p.dry_penalty_last_n;
	window = window > c->n_ctx ? c->n_ctx : window;
	window = window > n ? n : window;
	if (window == 0)
		return;
	fold_scale(c);
	const uint32_t *tokens = history + n - window;
	dry_lengths(tokens, window, dry_limit(&c->breakers, tokens, window), c->length, c->work);
	for (uint32_t i = 1; i < window; i++)
		if (c->length[i - 1] > c->count[tokens[i]])
			c->count[tokens[i]] = c->length[i - 1];
	for (uint32_t i = 1; i < window; i++) {
		uint32_t length = c->count[tokens[i]];
		c->count[tokens[i]] = 0;
		if (length < c->p.dry_allowed_length)
			continue;
		double penalty = (double)c->p.dry_multiplier *
			pow((double)c->p.dry_base, length - c->p.dry_allowed_length);
		float *logit = &c->logit[tokens[i]];
		*logit = tidy(*logit - (float)(penalty < largest ? penalty : largest));
	}
}

/* ---- truncation ------------------------------------------------------------------------------ */

/* Of a token that stays: ln of its probability over the best one's. */
static float distance(const struct sampler_chain *c, uint32_t id)
{
	return tidy(tidy(c->logit[id] - c->logit[c->best]) * c->scale);
}

static void rank_by_logit(struct sampler_chain *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		c->key[i] = ordered_key(c->logit[c->id[i]]);
}

/* Masses of all that stay; returns their sum. */
static uint64_t weigh(struct sampler_chain *c)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < c->n; i++)
		sum += c->mass[i] = sampler_mass(distance(c, c->id[i]));
	return sum;
}

/* The largest key at which the amounts (1 each without `amount`) of all keys as high or higher reach
 * `goal`, which they do, found eight bits at a time. */
static uint32_t select_key(const uint32_t *key, const uint32_t *amount, uint32_t n, uint64_t goal)
{
	uint32_t found = 0;
	uint64_t above = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		uint64_t sums[256] = {0};
		for (uint32_t i = 0; i < n; i++)
			if ((uint64_t)(key[i] ^ found) >> (shift + 8) == 0)
				sums[key[i] >> shift & 255] += amount ? amount[i] : 1;
		uint32_t digit = 255;
		while (digit > 0 && above + sums[digit] < goal)
			above += sums[digit--];
		found |= digit << shift;
	}
	return found;
}

/* Strikes off what has a key below the threshold, but leaves the min_keep best. */
static void cut(struct sampler_chain *c, uint32_t threshold, uint32_t min_keep)
{
	if (min_keep >= c->n)
		return;
	uint32_t needed = select_key(c->key, NULL, c->n, min_keep), n = 0;
	threshold = needed < threshold ? needed : threshold;
	uint32_t best = 0;
	for (uint32_t i = 0; i < c->n; i++)
		if (c->key[i] >= threshold) {
			uint32_t id = c->id[i];
			if (n == 0 || ordered_key(c->logit[id]) > ordered_key(c->logit[best]))
				best = id;
			c->id[n++] = id;
		}
	c->n = n;
	c->best = best;
}

static void keep_best(struct sampler_chain *c)
{
	c->id[0] = c->best;
	c->n = 1;
}

static void top_k(struct sampler_chain *c)
{
	if (c->s.top_k == 0 || c->s.top_k >= c->n) /* 0: at least the vocabulary */
		return;
	rank_by_logit(c);
	cut(c, UINT32_MAX, c->s.top_k);
}

static void top_p(struct sampler_chain *c)
{
	if (c->p.top_p <= 0 && c->p.min_keep == 1) {
		keep_best(c);
		return;
	}
	rank_by_logit(c);
	uint64_t goal = mass_share(weigh(c), c->s.top_p);
	cut(c, select_key(c->key, c->mass, c->n, goal), c->p.min_keep);
}

static void min_p(struct sampler_chain *c)
{
	rank_by_logit(c);
	uint32_t threshold = ordered_key(c->logit[c->best]);
	for (uint32_t i = 0; i < c->n; i++)
		if (c->key[i] < threshold && distance(c, c->id[i]) >= c->s.log_min_p)
			threshold = c->key[i];
	cut(c, threshold, c->p.min_keep);
}

/* Entropy of those that stay, in nats, and ln of the sum of their probabilities over the best one's.  In
 * double precision: what masses round down would add up over a large vocabulary. */
static double entropy(const struct sampler_chain *c, double *log_total)
{
	double sum = 0, product = 0;
	for (uint32_t i = 0; i < c->n; i++) {
		double y = (double)distance(c, c->id[i]), e = exp(y);
		sum += e;
		product += e > 0 ? e * y : 0;
	}
	*log_total = log(sum);
	return *log_total - product / sum;
}

static void typical_p(struct sampler_chain *c)
{
	double log_total;
	uint64_t total = weigh(c);
	double expected = entropy(c, &log_total);
	for (uint32_t i = 0; i < c->n; i++) {
		double information = log_total - (double)distance(c, c->id[i]);
		c->key[i] = ~ordered_key(tidy((float)fabs(information - expected)));
	}
	uint64_t goal = mass_share(total, share_of(c->p.typical_p));
	cut(c, select_key(c->key, c->mass, c->n, goal), c->p.min_keep);
}

static void top_n_sigma(struct sampler_chain *c)
{
	double mean = 0, variance = 0, largest = (double)c->logit[c->best];
	for (uint32_t i = 0; i < c->n; i++)
		mean += (double)c->logit[c->id[i]] / c->n;
	for (uint32_t i = 0; i < c->n; i++)
		variance += ((double)c->logit[c->id[i]] - mean) *
			((double)c->logit[c->id[i]] - mean) / c->n;
	double least = largest - (double)c->p.top_n_sigma * sqrt(variance);
	for (uint32_t i = 0; i < c->n; i++)
		c->key[i] = (double)c->logit[c->id[i]] >= least;
	cut(c, 1, 1);
}

static void xtc(struct sampler_chain *c, uint32_t pos)
{
	uint32_t coin[4];
	sampler_chain_random(c, pos, SAMPLER_XTC, coin);
	if ((double)coin[0] * 0x1p-32 >= (double)c->p.xtc_probability)
		return;
	rank_by_logit(c);
	double least = (double)c->p.xtc_threshold * (double)weigh(c);
	uint32_t lowest = UINT32_MAX, n_left = 0;
	for (uint32_t i = 0; i < c->n; i++)
		if ((double)c->mass[i] >= least && c->key[i] < lowest)
			lowest = c->key[i];
	for (uint32_t i = 0; i < c->n; i++) {
		n_left += c->key[i] <= lowest;
		c->key[i] = c->key[i] <= lowest;
	}
	if (n_left >= c->p.min_keep)
		cut(c, 1, 1);
}

static void mirostat(struct sampler_chain *c)
{
	double least = (double)weigh(c) * exp2(-(double)c->state.mu);
	for (uint32_t i = 0; i < c->n; i++)
		c->key[i] = (double)c->mass[i] >= least || c->id[i] == c->best;
	cut(c, 1, 1);
}

/* ---- temperature ----------------------------------------------------------------------------- */

static float entropy_temperature(struct sampler_chain *c)
{
	float temperature = c->p.temperature, range = c->p.dynatemp_range;
	if (range <= 0 || c->n < 2)
		return temperature;
	double log_total, least = fmax(0, (double)temperature - (double)range);
	double most = (double)temperature + (double)range;
	double share = entropy(c, &log_total) / log(c->n);
	share = pow(fmin(fmax(share, 0), 1), (double)c->p.dynatemp_exponent);
	return (float)(least + (most - least) * share);
}

static void temperature(struct sampler_chain *c)
{
	if (c->p.temperature <= 0)
		keep_best(c);
	else
		c->scale *= temperature_scale(entropy_temperature(c));
}

/* ---- a token --------------------------------------------------------------------------------- */

static bool is_cut(enum sampler_step step)
{
	return step != STEP_PENALTIES && step != STEP_DRY && step != STEP_TEMPERATURE;
}

static enum lap_status take_steps(struct sampler_chain *c, const uint32_t *history, uint32_t n,
	uint32_t pos, struct lap_error *err)
{
	bool penalties_first = c->order.n && c->order.steps[0] == STEP_PENALTIES;
	if (penalties_first)
		penalties(c, history, n);
	add_bias(c);
	enum lap_status status = settle(c, err);
	for (uint32_t i = penalties_first; i < c->order.n && !status; i++) {
		enum sampler_step step = c->order.steps[i];
		if (c->p.mirostat && is_cut(step))
			continue;
		switch (step) {
		case STEP_PENALTIES:
			penalties(c, history, n);
			break;
		case STEP_DRY:
			dry(c, history, n);
			break;
		case STEP_TOP_N_SIGMA:
			top_n_sigma(c);
			break;
		case STEP_TOP_K:
			top_k(c);
			break;
		case STEP_TYPICAL_P:
			typical_p(c);
			break;
		case STEP_TOP_P:
			top_p(c);
			break;
		case STEP_MIN_P:
			min_p(c);
			break;
		case STEP_XTC:
			xtc(c, pos);
			break;
		case STEP_TEMPERATURE:
			temperature(c);
			break;
		case N_SAMPLER_STEPS:
			break;
		}
		if (!is_cut(step) && step != STEP_TEMPERATURE)
			status = settle(c, err);
	}
	if (!status && c->p.mirostat)
		mirostat(c);
	if (!status && c->p.temperature <= 0)
		keep_best(c);
	return status;
}

/* What log-probabilities are relative to. */
static void weigh_all(struct sampler_chain *c)
{
	uint32_t largest = 0;
	for (uint32_t i = 0; i < c->n_vocab; i++)
		if (ordered_key(c->logit[i]) > largest) {
			largest = ordered_key(c->logit[i]);
			c->top = c->logit[i];
		}
	uint64_t mass = 0;
	for (uint32_t i = 0; i < c->n_vocab; i++)
		if (!is_forbidden(c->logit[i]))
			mass += sampler_mass(tidy(tidy(c->logit[i] - c->top) * c->scale));
	c->log_total = logf((float)mass * 0x1p-31f);
}

static float log_prob(const struct sampler_chain *c, uint32_t id)
{
	return tidy(tidy(c->logit[id] - c->top) * c->scale) - c->log_total;
}

static bool candidates_reserve(struct candidates *c, uint32_t n)
{
	if (n <= c->capacity)
		return true;
	struct candidate *items = realloc(c->items, n * sizeof *items);
	if (!items)
		return false;
	c->items = items;
	c->capacity = n;
	return true;
}

void candidates_free(struct candidates *c)
{
	free(c->items);
	*c = (struct candidates){0};
}

enum lap_status sampler_chain_apply(struct sampler_chain *c, const float *logits,
	const uint32_t *history, uint32_t n_history, uint32_t pos, const uint32_t *mask,
	struct candidates *out, struct lap_error *err)
{
	out->n = 0;
	out->mass = 0;
	enum lap_status status = load_row(c, logits, mask, err);
	if (!status)
		status = take_steps(c, history, n_history, pos, err);
	if (status)
		return status;
	if (!candidates_reserve(out, c->n))
		return fail_memory(err, "the candidates", c->n * sizeof *out->items);
	weigh_all(c);
	out->n = c->n;
	out->mass = weigh(c);
	for (uint32_t i = 0; i < c->n; i++)
		out->items[i] = (struct candidate){
			.id = c->id[i],
			.mass = c->mass[i],
			.logit = c->logit[c->id[i]] * c->scale,
			.log_prob = log_prob(c, c->id[i]),
			.p = (double)c->mass[i] / (double)out->mass,
		};
	return LAP_OK;
}

uint32_t sampler_chain_best(const struct sampler_chain *c, uint32_t n, struct candidate *best)
{
	uint32_t n_best = 0;
	for (uint32_t i = 0; i < c->n_vocab && n > 0; i++) {
		float logit = c->logit[i];
		if (is_forbidden(logit) || (n_best == n && logit <= best[n - 1].logit))
			continue;
		uint32_t at = n_best < n ? n_best++ : n - 1;
		for (; at > 0 && best[at - 1].logit < logit; at--)
			best[at] = best[at - 1];
		best[at] = (struct candidate){.id = i, .logit = logit};
	}
	for (uint32_t i = 0; i < n_best; i++) {
		best[i].log_prob = log_prob(c, best[i].id);
		best[i].p = exp((double)best[i].log_prob);
		best[i].logit *= c->scale;
	}
	return n_best;
}

void sampler_chain_random(
	const struct sampler_chain *c, uint32_t pos, uint32_t purpose, uint32_t out[4])
{
	philox((uint32_t[4]){pos, purpose, 0, 0}, (uint32_t[2]){c->s.seed_lo, c->s.seed_hi}, out);
}

struct sample_result candidates_draw(const struct candidates *c, const uint32_t random[2])
{
	uint64_t target = scale_random(random[0], random[1], c->mass), sum = 0;
	uint32_t i = 0;
	while (i + 1 < c->n && (sum += c->items[i].mass) <= target)
		i++;
	return (struct sample_result){.token = c->items[i].id, .log_prob = c->items[i].log_prob};
}

void sampler_chain_accept(struct sampler_chain *c, const struct candidates *from, uint32_t token)
{
	for (uint32_t i = 0; i < from->n && c->p.mirostat; i++)
		if (from->items[i].id == token && from->items[i].mass > 0) {
			float surprise = (float)-log2(from->items[i].p);
			c->state.mu -= c->p.mirostat_eta * (surprise - c->p.mirostat_tau);
			return;
		}
}
