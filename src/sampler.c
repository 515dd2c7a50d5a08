/* Sampling on the CPU, step by step what shaders/sample.comp does.
 *
 * Nothing here may round differently from the shader: floats are added and multiplied one operation
 * at a time (the build forbids contraction), and sums are integers. */
#include "sampler.h"

#include <math.h>
#include <string.h>

#include "sampler_math.h"

/* ---- parameters ------------------------------------------------------------------------------ */

enum lap_status sampler_set(struct sequence *s, const struct lap_sampling *sampling,
	uint32_t n_vocab, uint32_t n_ctx, struct lap_error *err)
{
	const float tiny = 1e-6f, huge = 1e6f;
	enum lap_status status;
	if ((status = check_number("temperature", sampling->temperature, err)) ||
		(status = check_number("top_p", sampling->top_p, err)) ||
		(status = check_number("min_p", sampling->min_p, err)) ||
		(status = check_range(
			 "repeat_penalty", sampling->repeat_penalty, tiny, huge, err)) ||
		(status = check_range(
			 "presence_penalty", sampling->presence_penalty, 0.0f, huge, err)) ||
		(status = check_range(
			 "frequency_penalty", sampling->frequency_penalty, 0.0f, huge, err)))
		return status;
	if (sampling->repeat_last_n < -1)
		return fail(err, LAP_USAGE,
			"repeat_last_n is %d, expected a number of tokens, or -1 for the context",
			sampling->repeat_last_n);

	float temperature = sampling->temperature;
	s->greedy = temperature <= 0.0f || sampling->top_p <= 0.0f;
	s->inv_temperature = temperature <= 0.0f ? 1.0f : temperature_scale(temperature);
	s->inv_cut_temperature = s->inv_temperature;

	s->top_k = sampling->top_k <= 0 || (uint32_t)sampling->top_k >= n_vocab
		? 0
		: (uint32_t)sampling->top_k;
	s->top_p = 0;
	if (sampling->top_p > 0.0f && sampling->top_p < 1.0f)
		s->top_p = share_of(sampling->top_p);
	s->use_min_p = sampling->min_p > 0.0f;
	s->log_min_p = s->use_min_p ? tidy(logf(fminf(sampling->min_p, 1.0f))) : 0.0f;

	s->repeat_penalty = sampling->repeat_penalty;
	s->inv_repeat_penalty = 1.0f / sampling->repeat_penalty;
	s->presence_penalty = tidy(sampling->presence_penalty);
	s->frequency_penalty = tidy(sampling->frequency_penalty);
	bool any = s->repeat_penalty != 1.0f || s->presence_penalty != 0.0f ||
		s->frequency_penalty != 0.0f;
	uint32_t window = sampling->repeat_last_n < 0 ? n_ctx : (uint32_t)sampling->repeat_last_n;
	s->repeat_last_n = !any ? 0 : window > n_ctx ? n_ctx : window;

	s->seed_lo = (uint32_t)sampling->seed;
	s->seed_hi = (uint32_t)(sampling->seed >> 32);
	return LAP_OK;
}

enum lap_status sampler_bias(
	struct sequence *s, uint32_t token, float value, uint32_t n_vocab, struct lap_error *err)
{
	if (token >= n_vocab)
		return fail(err, LAP_USAGE,
			"the logit bias is for token %u, expected a token below %u", token,
			n_vocab);
	if (!isfinite(value) && !is_forbidden(value))
		return fail(err, LAP_USAGE,
			"the logit bias of token %u is %g, expected a finite number or -inf", token,
			(double)value);
	uint32_t at = 0;
	while (at < s->n_bias && s->bias_token[at] != token)
		at++;
	if (at == MAX_BIAS)
		return fail(err, LAP_USAGE,
			"token %u is one logit bias too many, expected at most %d", token,
			MAX_BIAS);
	if (at == s->n_bias) {
		s->bias_token[s->n_bias++] = token;
		s->bias_value[at] = 0;
	}
	s->bias_value[at] = tidy(s->bias_value[at] + value);
	return LAP_OK;
}

void sampler_count(const struct sequence *s, const uint32_t *tokens, uint32_t n, uint32_t *count,
	uint32_t n_vocab)
{
	memset(count, 0, n_vocab * sizeof *count);
	for (uint32_t i = n > s->repeat_last_n ? n - s->repeat_last_n : 0; i < n; i++)
		count[tokens[i]]++;
}

/* ---- mass ------------------------------------------------------------------------------------ */

uint32_t sampler_mass(float y)
{
	const float log2_e = 1.44269504f, least = -31.0f;
	/* 2^f on [0, 1]: exact at both ends, elsewhere within 9e-8 of it. */
	const float c1 = 0.693147123f, c2 = 0.240228564f, c3 = 0.0554860458f;
	const float c4 = 0.00967821479f, c5 = 0.00124113797f, c6 = 0.000218892281f;

	float x = tidy(y * log2_e);
	if (!(x >= least))
		return 0;
	float whole = floorf(x);
	float f = x - whole;
	float p = c6 * f + c5;
	p = p * f + c4;
	p = p * f + c3;
	p = p * f + c2;
	p = p * f + c1;
	p = p * f + 1.0f;
	/* p is 1 to 2 with 23 bits behind the point: p * 2^(31 + whole) by shifting. */
	uint32_t bits = float_bits(p);
	uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
	int shift = (int)whole + (int)(bits >> 23) - 127 + 8;
	return shift >= 0 ? mantissa << shift : mantissa >> -shift;
}

static float distance(const struct sampler_row *row, uint32_t token, float inv_temperature)
{
	float logit = row->penalised[token];
	if (is_forbidden(logit))
		return -INFINITY;
	return tidy(tidy(logit - row->penalised[row->best]) * inv_temperature);
}

float sampler_distance(const struct sampler_row *row, uint32_t token)
{
	return distance(row, token, row->s->inv_temperature);
}

/* ---- truncation ------------------------------------------------------------------------------ */

bool sampler_keeps(const struct sampler_row *row, uint32_t token)
{
	if (row->s->greedy)
		return token == row->best;
	if (ordered_key(row->penalised[token]) < row->threshold)
		return false;
	return !row->s->use_min_p ||
		distance(row, token, row->s->inv_cut_temperature) >= row->s->log_min_p;
}

/* What a selection ranks tokens by (largest first) and what it adds up. */
enum select {
	SELECT_COUNT, /* by logit; tokens above the threshold count 1 */
	SELECT_CUT,   /* by logit; tokens above the threshold count their mass as top_p sees it */
	SELECT_TOKEN, /* lowest id first; tokens that stay count their mass */
};

/* How much a token adds to the selection, and its rank in *key. */
static uint64_t select_amount(
	const struct sampler_row *row, enum select what, uint32_t token, uint32_t *key)
{
	*key = what == SELECT_TOKEN ? ~token : ordered_key(row->penalised[token]);
	bool counts = what == SELECT_TOKEN ? sampler_keeps(row, token) : *key >= row->threshold;
	if (!counts || what == SELECT_COUNT)
		return counts;
	const struct sequence *q = row->s;
	return sampler_mass(distance(
		row, token, what == SELECT_CUT ? q->inv_cut_temperature : q->inv_temperature));
}

/* The largest key at which the amounts of all tokens ranked as high or higher reach `goal`, found
 * eight bits at a time. */
static uint32_t select_key(const struct sampler_row *row, enum select what, uint64_t goal)
{
	uint32_t key, found = 0;
	uint64_t above = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		uint64_t sums[256] = {0};
		for (uint32_t i = 0; i < row->n_vocab; i++) {
			uint64_t amount = select_amount(row, what, i, &key);
			if ((uint64_t)(key ^ found) >> (shift + 8) == 0)
				sums[(key >> shift) & 255] += amount;
		}
		uint32_t digit = 255;
		while (digit > 0 && above + sums[digit] < goal)
			above += sums[digit--];
		found |= digit << shift;
	}
	return found;
}

static uint64_t sum_mass(const struct sampler_row *row, enum select what)
{
	uint32_t key;
	uint64_t sum = 0;
	for (uint32_t i = 0; i < row->n_vocab; i++)
		sum += select_amount(row, what, i, &key);
	return sum;
}

/* Takes tokens out: what follows from biases is in scratch already. */
static void forbid(const struct sequence *s, const uint32_t *mask, uint32_t n_vocab, float *scratch)
{
	for (uint32_t i = 0; i < s->n_forbidden && s->n_forbid_left > 0; i++)
		if (s->forbidden[i] < n_vocab)
			scratch[s->forbidden[i]] = -INFINITY;
	for (uint32_t i = 0; i < n_vocab && s->use_mask; i++)
		if (!(mask[i / 32] >> i % 32 & 1))
			scratch[i] = -INFINITY;
}

/* Penalties, biases, bans: scratch[n_vocab] from the logits; false where one of them is no logit. */
static bool adjust(const struct sequence *s, const float *logits, uint32_t n_vocab,
	const uint32_t *count, float *scratch)
{
	bool good = true;
	for (uint32_t i = 0; i < n_vocab; i++) {
		scratch[i] = penalise(s, logits[i], s->repeat_last_n ? count[i] : 0);
		good = good && !is_no_logit(scratch[i]);
	}
	for (uint32_t i = 0; i < s->n_bias; i++) {
		uint32_t token = s->bias_token[i];
		if (token >= n_vocab || is_forbidden(scratch[token]))
			continue;
		scratch[token] = is_forbidden(s->bias_value[i])
			? -INFINITY
			: tidy(scratch[token] + s->bias_value[i]);
		good = good && !is_no_logit(scratch[token]);
	}
	if (good)
		forbid(s, count + n_vocab, n_vocab, scratch);
	return good;
}

struct sampler_row sampler_cut(const struct sequence *s, const float *logits, uint32_t n_vocab,
	const uint32_t *count, float *scratch)
{
	struct sampler_row row = {.s = s, .penalised = scratch, .n_vocab = n_vocab};
	uint32_t largest = 0;
	row.error = !adjust(s, logits, n_vocab, count, scratch);
	for (uint32_t i = 0; i < n_vocab; i++) {
		uint32_t key = ordered_key(scratch[i]);
		if (key > largest) {
			largest = key;
			row.best = i;
		}
	}
	if (row.error || is_forbidden(scratch[row.best])) {
		row.error = 1;
		return row;
	}
	row.mass_all = 0;
	for (uint32_t i = 0; i < n_vocab; i++)
		row.mass_all += sampler_mass(sampler_distance(&row, i));
	if (!s->greedy && s->top_k)
		row.threshold = select_key(&row, SELECT_COUNT, s->top_k);
	if (!s->greedy && s->top_p) {
		uint64_t mass = sum_mass(&row, SELECT_CUT);
		row.threshold = select_key(&row, SELECT_CUT, mass_share(mass, s->top_p));
	}
	row.mass_kept = sum_mass(&row, SELECT_TOKEN);
	return row;
}

/* ---- draw ------------------------------------------------------------------------------------ */

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	const int n_rounds = 10;
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];
	for (int i = 0; i < n_rounds; i++) {
		uint64_t a = (uint64_t)c0 * 0xd2511f53u, b = (uint64_t)c2 * 0xcd9e8d57u;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

static float log_prob(const struct sampler_row *row, uint32_t token)
{
	return sampler_distance(row, token) - logf((float)row->mass_all * 0x1p-31f);
}

struct sample_result sampler_draw(const struct sampler_row *row, uint32_t pos)
{
	const struct sequence *s = row->s;
	if (row->error)
		return (struct sample_result){.error = 1};
	uint32_t token = row->best;
	if (!s->greedy) {
		uint32_t random[4];
		philox((uint32_t[4]){pos + s->draw_offset, 0, 0, 0},
			(uint32_t[2]){s->seed_lo, s->seed_hi}, random);
		uint64_t target = scale_random(random[0], random[1], row->mass_kept);
		token = ~select_key(row, SELECT_TOKEN, target + 1);
	}
	return (struct sample_result){.token = token, .log_prob = log_prob(row, token)};
}

struct sample_result sampler_sample(const struct sequence *s, const float *logits, uint32_t n_vocab,
	const uint32_t *count, uint32_t pos, float *scratch)
{
	struct sampler_row row = sampler_cut(s, logits, n_vocab, count, scratch);
	return sampler_draw(&row, pos);
}

/* Sorted as it is filled: a token takes its place before all smaller ones, ids come in ascending order. */
void sampler_top(const struct sampler_row *row, uint32_t n, struct top_token *top)
{
	uint32_t n_found = 0;
	for (uint32_t i = 0; i < row->n_vocab && !row->error; i++) {
		uint32_t at = n_found, key = ordered_key(row->penalised[i]);
		if (is_forbidden(row->penalised[i]))
			continue;
		while (at > 0 && key > ordered_key(row->penalised[top[at - 1].token]))
			at--;
		if (at == n)
			continue;
		n_found += n_found < n;
		memmove(top + at + 1, top + at, (n_found - at - 1) * sizeof *top);
		top[at].token = i;
	}
	for (uint32_t i = 0; i < n_found; i++)
		top[i].log_prob = log_prob(row, top[i].token);
	for (uint32_t i = n_found; i < n; i++)
		top[i] = (struct top_token){.token = UINT32_MAX};
}
