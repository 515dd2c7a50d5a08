/* The sampler on the CPU: parameters, truncations, draws, and the control step behind them. */
#include "sampler_cases.h"
#include "tail_case.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

static const struct lap_sampling plain = {
	.temperature = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f, .repeat_last_n = 64};

static struct sequence make_sequence(struct lap_sampling sampling, uint32_t n_vocab)
{
	struct sequence s = {0};
	struct lap_error err = {0};
	cr_assert_eq(sampler_set(&s, &sampling, n_vocab, 4096, &err), LAP_OK, "%s", err.text);
	return s;
}

/* Bit i is set when token i stays. */
static uint32_t kept_set(struct lap_sampling sampling, const float *logits, uint32_t n)
{
	float scratch[32];
	uint32_t count[32] = {0}, set = 0;
	cr_assert(n <= 32);
	struct sequence s = make_sequence(sampling, n);
	struct sampler_row row = sampler_cut(&s, logits, n, count, scratch);
	cr_assert_eq(row.error, 0);
	for (uint32_t i = 0; i < n; i++)
		set |= (uint32_t)sampler_keeps(&row, i) << i;
	return set;
}

static uint32_t draw(struct lap_sampling sampling, const float *logits, uint32_t n, uint32_t pos)
{
	float scratch[32];
	uint32_t count[32] = {0};
	struct sequence s = make_sequence(sampling, n);
	struct sample_result r = sampler_sample(&s, logits, n, count, pos, scratch);
	cr_assert_eq(r.error, 0);
	cr_assert_lt(r.token, n);
	return r.token;
}

/* ---- the parts ---- */

/* Random123's kat_vectors, philox4x32 with 10 rounds. */
Test(sampler, philox_known_answers)
{
	static const struct {
		uint32_t counter[4], key[2], out[4];
	} known[] = {
		{{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
			{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
			{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};
	for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
		uint32_t out[4];
		philox(known[i].counter, known[i].key, out);
		cr_expect_arr_eq(out, known[i].out, sizeof out, "vector %zu", i);
	}
}

Test(sampler, mass_is_exp)
{
	cr_expect_eq(sampler_mass(0.0f), 0x80000000u);
	cr_expect_eq(sampler_mass(-0.0f), 0x80000000u);
	cr_expect_eq(sampler_mass(-1e-30f), 0x80000000u);
	cr_expect_eq(sampler_mass(-FLT_TRUE_MIN), 0x80000000u);
	cr_expect_eq(sampler_mass(-21.6f), 0);
	cr_expect_eq(sampler_mass(-FLT_MAX), 0);
	cr_expect_eq(sampler_mass(-INFINITY), 0);
	double worst = 0;
	uint32_t last = 0x80000000u;
	for (int i = 0; i <= 215000; i++) {
		float y = (float)i * -1e-4f;
		double exact = exp((double)y) * 0x1p31;
		uint32_t mass = sampler_mass(y);
		/* rounded down to a whole number, and a relative error of the arithmetic */
		double off = fabs((double)mass - exact) - 1.0;
		worst = fmax(worst, off / exact);
		cr_assert(mass <= last, "mass grows at %g", (double)y);
		last = mass;
	}
	cr_expect_lt(worst, 1e-6, "relative error %g", worst);
}

Test(sampler, default_parameters)
{
	struct lap_sampling d = lap_sampling_default();
	cr_expect_eq(d.temperature, 0.8f);
	cr_expect_eq(d.top_k, 40);
	cr_expect_eq(d.top_p, 0.95f);
	cr_expect_eq(d.min_p, 0.05f);
	cr_expect_eq(d.repeat_penalty, 1.0f);
	cr_expect_eq(d.presence_penalty, 0.0f);
	cr_expect_eq(d.frequency_penalty, 0.0f);
	cr_expect_eq(d.repeat_last_n, 64);
	cr_expect_eq(d.seed, LAP_SEED_RANDOM);
}

static void expect_refused(struct lap_sampling sampling, const char *words)
{
	struct sequence s;
	struct lap_error err = {0};
	cr_expect_eq(sampler_set(&s, &sampling, 100, 4096, &err), LAP_USAGE, "%s", words);
	cr_expect(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
	cr_expect(strstr(err.text, "expected") != NULL, "%s", err.text);
}

Test(sampler, parameters_out_of_range)
{
	struct lap_sampling s;
#define REFUSED(field, value, words) (s = plain, s.field = value, expect_refused(s, words))
	REFUSED(temperature, NAN, "temperature is nan");
	REFUSED(temperature, INFINITY, "temperature is inf");
	REFUSED(top_p, NAN, "top_p is nan");
	REFUSED(min_p, NAN, "min_p is nan");
	REFUSED(repeat_penalty, NAN, "repeat_penalty is nan");
	REFUSED(repeat_penalty, 0.0f, "repeat_penalty is 0");
	REFUSED(repeat_penalty, -1.5f, "repeat_penalty is -1.5");
	REFUSED(presence_penalty, -0.5f, "presence_penalty is -0.5");
	REFUSED(presence_penalty, INFINITY, "presence_penalty is inf");
	REFUSED(frequency_penalty, -2.0f, "frequency_penalty is -2");
	REFUSED(frequency_penalty, NAN, "frequency_penalty is nan");
	REFUSED(repeat_last_n, -2, "repeat_last_n is -2");
#undef REFUSED
}

Test(sampler, window_length)
{
	struct lap_sampling p = plain;
	cr_expect_eq(make_sequence(p, 10).repeat_last_n, 0, "no penalty needs no window");
	p.presence_penalty = 0.5f;
	cr_expect_eq(make_sequence(p, 10).repeat_last_n, 64);
	p.repeat_last_n = -1;
	cr_expect_eq(make_sequence(p, 10).repeat_last_n, 4096);
	p.repeat_last_n = 5000;
	cr_expect_eq(make_sequence(p, 10).repeat_last_n, 4096);
	p.repeat_last_n = 0;
	cr_expect_eq(make_sequence(p, 10).repeat_last_n, 0);
}

/* ---- OB-17: edge parameters ---- */

Test(sampler, ob17_temperature_zero_is_argmax)
{
	static const float temperatures[] = {0.0f, -1.0f, 1e-9f, 1e-30f};
	const float one_best[] = {1, 3, 2}, tie[] = {3, 3, 1};
	for (size_t i = 0; i < ARRAY_COUNT(temperatures); i++)
		for (uint32_t seed = 0; seed < 20; seed++) {
			struct lap_sampling p = plain;
			p.temperature = temperatures[i];
			p.seed = seed;
			cr_expect_eq(draw(p, one_best, 3, seed), 1);
			if (p.temperature <= 0.0f)
				cr_expect_eq(draw(p, tie, 3, seed), 0,
					"greedy ties go to the lowest id");
		}
}

Test(sampler, ob17_kept_sets)
{
	const float logits[] = {1, 3, 2}, tie[] = {3, 3, 1};
	for (size_t i = 0; i < ARRAY_COUNT(ob17_cases); i++) {
		struct lap_sampling p = plain;
		p.top_k = ob17_cases[i].top_k;
		p.top_p = ob17_cases[i].top_p;
		p.min_p = ob17_cases[i].min_p;
		cr_expect_eq(kept_set(p, logits, 3), ob17_cases[i].kept, "case %zu", i);
		cr_expect_eq(kept_set(p, tie, 3), ob17_cases[i].kept_of_tie, "case %zu, tie", i);
	}
}

Test(sampler, ob17_defaults_fit_small_vocabularies)
{
	const float logits[] = {0, 1, 2, 3, 4};
	struct lap_sampling p = lap_sampling_default();
	p.seed = 1;
	for (uint32_t n = 1; n <= 5; n++)
		cr_expect_neq(kept_set(p, logits, n), 0);
	p.top_p = 1.0f;
	p.min_p = 0.0f;
	cr_expect_eq(kept_set(p, logits, 5), 31);
}

/* ---- OB-18: order ---- */

Test(sampler, ob18_temperature_comes_first)
{
	const float logits[] = {3, 2, 1};
	struct lap_sampling p = plain;
	p.top_p = 0.8f;
	p.temperature = 0.5f; /* .8668 alone passes .8; with temperature last .6652 would not */
	cr_expect_eq(kept_set(p, logits, 3), 1);
	p.temperature = 1.0f; /* .6652 + .2447 */
	cr_expect_eq(kept_set(p, logits, 3), 3);
	p.top_k = 2; /* renormalised .7311; top_p first would keep both */
	p.top_p = 0.7f;
	cr_expect_eq(kept_set(p, logits, 3), 1);
}

/* ---- values that are no ordinary numbers ---- */

Test(sampler, ob18_temperature_comes_last_where_wanted)
{
	const float logits[] = {3, 2, 1};
	float scratch[3];
	const uint32_t count[3] = {0};
	struct lap_sampling p = plain;
	p.temperature = 0.5f;
	p.top_p = 0.8f;
	struct sequence s = make_sequence(p, 3);
	struct sampler_row row = sampler_cut(&s, logits, 3, count, scratch);
	cr_expect(sampler_keeps(&row, 0) && !sampler_keeps(&row, 1)); /* .8668 alone passes .8 */
	s.inv_cut_temperature = 1;
	row = sampler_cut(&s, logits, 3, count, scratch);
	cr_expect(sampler_keeps(&row, 0) && sampler_keeps(&row, 1)); /* .6652 + .2447 */
	cr_expect_not(sampler_keeps(&row, 2));
	/* The draw, and the log-probability among all tokens, have the temperature. */
	cr_expect_float_eq((double)row.mass_kept * 0x1p-31, 1 + exp(-2), 1e-6);
	cr_expect_float_eq((double)row.mass_all * 0x1p-31, 1 + exp(-2) + exp(-4), 1e-6);
	p.top_p = 1;
	p.min_p = 0.3f;
	s = make_sequence(p, 3);
	row = sampler_cut(&s, logits, 3, count, scratch);
	cr_expect_not(sampler_keeps(&row, 1)); /* exp(-2) = .14 */
	s.inv_cut_temperature = 1;
	row = sampler_cut(&s, logits, 3, count, scratch);
	cr_expect(sampler_keeps(&row, 1)); /* exp(-1) = .37 */
	cr_expect_not(sampler_keeps(&row, 2));
}

/* The greedy choice of 4 tokens, with token 1 seen once; -1 where there is none. */
static int best_of(const struct sequence *s, const float *logits)
{
	float scratch[4];
	const uint32_t history[4 + 1] = {0, 1, 0, 0, 0xD}; /* counts, and a mask without token 1 */
	struct sample_result r = sampler_sample(s, logits, 4, history, 0, scratch);
	return r.error ? -1 : (int)r.token;
}

static void add_bias(struct sequence *s, uint32_t token, float value)
{
	struct lap_error err;
	cr_assert_eq(sampler_bias(s, token, value, 4, &err), LAP_OK, "%s", err.text);
}

Test(sampler, biases_come_after_penalties)
{
	const float logits[] = {1.75f, 3, -1, 0};
	struct lap_sampling p = plain;
	p.temperature = 0;
	p.repeat_penalty = 2;
	struct sequence s = make_sequence(p, 4);
	cr_expect_eq(best_of(&s, logits), 0); /* 3 / 2 = 1.5 */
	add_bias(&s, 1, 0.5f);
	cr_expect_eq(
		best_of(&s, logits), 1); /* 2; (3 + 0.5) / 2 is 1.75, a tie that token 0 wins */
	add_bias(&s, 2, 4);
	cr_expect_eq(best_of(&s, logits), 2);
	add_bias(&s, 2, -INFINITY); /* biases of a token add up */
	cr_expect_eq(s.n_bias, 2);
	cr_expect_eq(best_of(&s, logits), 1);
	add_bias(&s, 1, -INFINITY);
	cr_expect_eq(best_of(&s, logits), 0);
	add_bias(&s, 0, -INFINITY);
	add_bias(&s, 3, -INFINITY);
	cr_expect_eq(best_of(&s, logits), -1);
	const float forbidden[] = {-INFINITY, -INFINITY, -INFINITY, -20};
	s.n_bias = 0;
	add_bias(&s, 0, 100);
	add_bias(&s, 3, -1.5f);
	add_bias(&s, 3, 0.5f);
	cr_expect_eq(s.n_bias, 2);
	cr_expect_eq(s.bias_value[1], -1.0f);
	cr_expect_eq(best_of(&s, forbidden), 3);
	const float huge[] = {3e38f, 0, 0, 0};
	add_bias(&s, 0, 3e38f);
	cr_expect_eq(best_of(&s, huge), -1); /* +infinity is no logit */
}

Test(sampler, biases_out_of_range)
{
	const float bad[] = {NAN, INFINITY};
	struct lap_error err;
	struct sequence s = make_sequence(plain, 100);
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		cr_expect_eq(sampler_bias(&s, 3, bad[i], 100, &err), LAP_USAGE);
	cr_expect_eq(sampler_bias(&s, 100, 1, 100, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "expected a token below 100"), "%s", err.text);
	for (uint32_t i = 0; i < MAX_BIAS; i++)
		cr_expect_eq(sampler_bias(&s, i, 1, 100, &err), LAP_OK);
	cr_expect_eq(sampler_bias(&s, MAX_BIAS, 1, 100, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "at most 32"), "%s", err.text);
	cr_expect_eq(sampler_bias(&s, 5, 2, 100, &err), LAP_OK); /* one of those there are */
}

Test(sampler, bans_and_masks)
{
	const float logits[] = {1, 3, 2, 0};
	struct lap_sampling p = plain;
	for (int drawn = 0; drawn < 2; drawn++) {
		p.temperature = drawn ? 1e-3f : 0;
		struct sequence s = make_sequence(p, 4);
		s.n_forbidden = 2;
		s.forbidden[0] = 1;
		s.forbidden[1] = 2;
		cr_expect_eq(best_of(&s, logits), 1); /* nothing is left to forbid */
		s.n_forbid_left = 1;
		cr_expect_eq(best_of(&s, logits), 0);
		add_bias(&s, 1, 9); /* does not bring it back */
		cr_expect_eq(best_of(&s, logits), 0);
		s.n_forbid_left = 0;
		s.use_mask = 1;
		cr_expect_eq(best_of(&s, logits), 2);
		s.n_forbid_left = UINT32_MAX;
		s.forbidden[0] = 0;
		s.forbidden[2] = 3;
		cr_expect_eq(best_of(&s, logits), 3);
		s.n_forbidden = 3;
		cr_expect_eq(best_of(&s, logits), -1);
	}
}

Test(sampler, best_tokens)
{
	const float logits[] = {1, 2, -INFINITY, 2, -30, 0.5f};
	const uint32_t order[] = {1, 3, 0, 5, 4}, count[6] = {0};
	struct top_token top[8];
	float scratch[6];
	double sum = 0;
	struct lap_sampling p = plain;
	p.temperature = 0.5f;
	p.top_k = 1; /* cuts nothing from the list */
	struct sequence s = make_sequence(p, 6);
	struct sampler_row row = sampler_cut(&s, logits, 6, count, scratch);
	for (uint32_t i = 0; i < 6; i++)
		sum += exp(2 * (double)logits[i]);
	for (uint32_t n = 1; n <= 8; n++) {
		memset(top, 0xEE, sizeof top);
		sampler_top(&row, n, top);
		for (uint32_t i = 0; i < 8; i++) {
			cr_expect_eq(top[i].token,
				i >= n          ? 0xEEEEEEEE
					: i < 5 ? order[i]
						: UINT32_MAX);
			if (i < n && i < 5)
				cr_expect_float_eq((double)top[i].log_prob,
					2 * (double)logits[order[i]] - log(sum), 2e-5);
		}
	}
}

Test(sampler, bad_logits_are_errors)
{
	const float bad[][3] = {
		{1, NAN, 0}, {-NAN, 1, 0}, {1, 2, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		for (int greedy = 0; greedy < 2; greedy++) {
			float scratch[3];
			uint32_t count[3] = {0};
			struct lap_sampling p = plain;
			p.temperature = greedy ? 0.0f : 1.0f;
			struct sequence s = make_sequence(p, 3);
			struct sample_result r = sampler_sample(&s, bad[i], 3, count, 0, scratch);
			cr_expect_eq(r.error, 1, "row %zu", i);
			cr_expect_eq(r.token, 0);
		}
}

Test(sampler, minus_infinity_forbids)
{
	const float logits[] = {-INFINITY, -5, -INFINITY, -6};
	for (uint32_t pos = 0; pos < 200; pos++) {
		uint32_t token = draw(plain, logits, 4, pos);
		cr_expect(token == 1 || token == 3);
	}
	struct lap_sampling p = plain;
	p.temperature = 0;
	cr_expect_eq(draw(p, logits, 4, 0), 1);
}

Test(sampler, zeros_and_subnormals_tie)
{
	const float logits[] = {-0.0f, 0.0f, FLT_TRUE_MIN, -FLT_TRUE_MIN};
	struct lap_sampling p = plain;
	p.temperature = 0;
	cr_expect_eq(draw(p, logits, 4, 0), 0);
	p.temperature = 1e-9f;
	p.top_k = 1;
	cr_expect_eq(kept_set(p, logits, 4), 15);
}

Test(sampler, extreme_logits)
{
	const float logits[] = {-FLT_MAX, FLT_MAX, 0};
	for (float t = 1e-9f; t < 1e12f; t *= 1e3f) {
		struct lap_sampling p = plain;
		p.temperature = t;
		cr_expect_eq(draw(p, logits, 3, 0), 1);
	}
}

/* ---- draws ---- */

Test(sampler, seeds_and_positions)
{
	float logits[32] = {0};
	uint32_t sequences[4][64];
	static const uint64_t seeds[] = {0, 1, (uint64_t)1 << 32, 0};
	for (size_t i = 0; i < ARRAY_COUNT(seeds); i++)
		for (uint32_t pos = 0; pos < 64; pos++) {
			struct lap_sampling p = plain;
			p.seed = seeds[i];
			sequences[i][pos] = draw(p, logits, 32, pos);
		}
	cr_expect_arr_eq(sequences[0], sequences[3], sizeof sequences[0], "same seed");
	cr_expect_arr_neq(sequences[0], sequences[1], sizeof sequences[0]);
	cr_expect_arr_neq(
		sequences[0], sequences[2], sizeof sequences[0], "upper half of the seed");
	uint32_t n_same = 0;
	for (uint32_t pos = 1; pos < 64; pos++)
		n_same += sequences[0][pos] == sequences[0][pos - 1];
	cr_expect_lt(n_same, 12, "%u of 63 neighbours are equal, 2 expected", n_same);
}

__extension__ typedef unsigned __int128 u128;

/* The draw by its definition: the first id whose running sum exceeds floor(u * sum / 2^64). */
static uint32_t naive_draw(const struct sampler_row *row, uint32_t pos)
{
	uint32_t random[4];
	philox((uint32_t[4]){pos, 0, 0, 0}, (uint32_t[2]){row->s->seed_lo, row->s->seed_hi},
		random);
	uint64_t sum = 0, u = (uint64_t)random[0] << 32 | random[1];
	uint64_t target = (uint64_t)((u128)u * row->mass_kept >> 64);
	for (uint32_t i = 0; i < row->n_vocab; i++) {
		sum += sampler_keeps(row, i) ? sampler_mass(sampler_distance(row, i)) : 0;
		if (sum > target)
			return i;
	}
	cr_assert_fail("the kept masses sum to %llu, not %llu", (unsigned long long)sum,
		(unsigned long long)row->mass_kept);
	return 0;
}

static int descending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x < y) - (x > y);
}

/* The lowest logit that top_k and then top_p keep, by sorting, in double precision. */
static float naive_threshold(const float *logits, uint32_t n, const struct lap_sampling *p)
{
	float *sorted = malloc(n * sizeof *sorted);
	memcpy(sorted, logits, n * sizeof *sorted);
	qsort(sorted, n, sizeof *sorted, descending);
	uint32_t n_kept = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n;
	while (n_kept < n && sorted[n_kept] == sorted[n_kept - 1])
		n_kept++;
	double sum = 0, part = 0, scale = 1.0 / (double)p->temperature;
	for (uint32_t i = 0; i < n_kept; i++)
		sum += exp((double)(sorted[i] - sorted[0]) * scale);
	for (uint32_t i = 0; i < n_kept && p->top_p < 1.0f; i++) {
		part += exp((double)(sorted[i] - sorted[0]) * scale);
		if (part >= (double)p->top_p * sum)
			n_kept = i + 1;
	}
	float threshold = sorted[n_kept - 1];
	free(sorted);
	return threshold;
}

Test(sampler, agrees_with_sorting)
{
	static const uint32_t sizes[] = {1, 2, 5, 127, 320, 1999};
	static const int32_t top_k[] = {0, 1, 7, 40};
	static const float top_p[] = {1.0f, 0.95f, 0.5f, 0.03f};
	static const float min_p[] = {0.0f, 0.05f};
	uint64_t state = 1;
	float logits[2048], scratch[2048];
	uint32_t count[2048] = {0}, n_checked = 0;
	for (size_t is = 0; is < ARRAY_COUNT(sizes); is++)
		for (uint32_t ic = 0; ic < 64; ic++) {
			uint32_t n = sizes[is];
			bool ties = ic >= 32;
			for (uint32_t i = 0; i < n; i++) {
				float x = (float)(test_random(&state) * 12 - 9);
				logits[i] = ties ? floorf(x * 2) / 2 : x;
			}
			struct lap_sampling p = plain;
			p.temperature = 0.8f;
			p.top_k = top_k[ic & 3];
			p.top_p = top_p[ic >> 2 & 3];
			p.min_p = min_p[ic >> 4 & 1];
			p.seed = ic;
			struct sequence s = make_sequence(p, n);
			struct sampler_row row = sampler_cut(&s, logits, n, count, scratch);
			float threshold = naive_threshold(logits, n, &p);
			double limit = p.min_p > 0 ? log((double)p.min_p) : -INFINITY;
			for (uint32_t i = 0; i < n; i++) {
				double y = (double)(logits[i] - logits[row.best]) /
					(double)p.temperature;
				cr_expect_eq(sampler_keeps(&row, i),
					logits[i] >= threshold && y >= limit,
					"n %u, case %u, token %u", n, ic, i);
			}
			uint32_t token = sampler_sample(&s, logits, n, count, ic, scratch).token;
			cr_expect_eq(token, naive_draw(&row, ic), "n %u, case %u", n, ic);
			n_checked++;
		}
	cr_expect_eq(n_checked, 384);
}

Test(sampler, draws_follow_the_distribution)
{
	const uint32_t n_draws = 40000;
	const float logits[] = {0.0f, 1.0f, -1.5f, 2.0f, 0.5f, -3.0f, 1.5f, -6.0f};
	struct lap_sampling p = plain;
	p.temperature = 0.9f;
	p.seed = 12345;
	float scratch[8];
	uint32_t none[8] = {0}, seen[8] = {0};
	struct sequence s = make_sequence(p, 8);
	double share[8], sum = 0;
	for (int i = 0; i < 8; i++)
		sum += share[i] = exp((double)logits[i] / 0.9);
	for (uint32_t pos = 0; pos < n_draws; pos++) {
		struct sample_result r = sampler_sample(&s, logits, 8, none, pos, scratch);
		double log_prob = log(share[r.token] / sum);
		cr_assert_float_eq(r.log_prob, log_prob, 2e-6);
		seen[r.token]++;
	}
	for (int i = 0; i < 8; i++) {
		double q = share[i] / sum, sigma = sqrt(n_draws * q * (1 - q));
		cr_expect(fabs(seen[i] - n_draws * q) < 5 * sigma, "token %d: %u of %g", i, seen[i],
			n_draws * q);
	}
}

/* ---- golden chains ---- */

/* Ours is penalties, temp, top_k, top_p, min_p; temp may follow top_k, for they commute. */
static bool chain_parse(const json_t *chain, struct lap_sampling *p)
{
	static const char *const order[] = {"penalties", "temp", "top_k", "top_p", "min_p"};
	int last = -1;
	*p = plain;
	p->repeat_last_n = 0;
	for (size_t i = 0; i < json_array_size(chain); i++) {
		const char *text = json_string_value(json_array_get(chain, i));
		int step = -1;
		size_t n_name = strcspn(text, ":");
		for (int j = 0; j < (int)ARRAY_COUNT(order); j++)
			if (strlen(order[j]) == n_name && !strncmp(text, order[j], n_name))
				step = j;
		bool commutes = step == 1 && last == 2;
		const char *values = text + n_name + 1;
		if (step < 0 || (step <= last && !commutes) || (step > 0 && strchr(values, ':')))
			return false;
		last = step > last ? step : last;
		float value = strtof(values, NULL);
		if (step == 0)
			cr_assert_eq(
				sscanf(values, "%d:%f:%f:%f", &p->repeat_last_n, &p->repeat_penalty,
					&p->frequency_penalty, &p->presence_penalty),
				4);
		else if (step == 1)
			p->temperature = value;
		else if (step == 2)
			p->top_k = (int32_t)value;
		else if (step == 3)
			p->top_p = value;
		else
			p->min_p = value;
	}
	return true;
}

static uint32_t crc32_add(uint32_t crc, uint32_t word)
{
	for (int i = 0; i < 32; i++) {
		uint32_t bit = (crc ^ word >> i) & 1;
		crc = crc >> 1 ^ (bit ? 0xedb88320u : 0);
	}
	return crc;
}

static void golden_check(
	const json_t *golden, const struct lap_sampling *p, const float *logits, uint32_t n_vocab)
{
	char *name = json_dumps(json_object_get(golden, "chain"), JSON_COMPACT);
	const json_t *past = json_object_get(golden, "history");
	uint32_t history[256], n_history = (uint32_t)json_array_size(past);
	cr_assert(n_history <= ARRAY_COUNT(history));
	for (uint32_t i = 0; i < n_history; i++)
		history[i] = (uint32_t)json_integer_value(json_array_get(past, i));
	float *scratch = malloc(n_vocab * sizeof *scratch);
	uint32_t *count = malloc(n_vocab * sizeof *count);
	struct sequence s = make_sequence(*p, n_vocab);
	sampler_count(&s, history, n_history, count, n_vocab);
	struct sampler_row row = sampler_cut(&s, logits, n_vocab, count, scratch);
	cr_assert_eq(row.error, 0);

	uint32_t n_kept = 0, crc = ~0u;
	for (uint32_t i = 0; i < n_vocab; i++)
		if (sampler_keeps(&row, i)) {
			n_kept++;
			crc = crc32_add(crc, i);
		}
	json_int_t peer = json_integer_value(json_object_get(golden, "survivors"));
	json_int_t exact = json_integer_value(json_object_get(golden, "survivors_exact"));
	cr_expect(
		n_kept >= (peer < exact ? peer : exact) && n_kept <= (peer > exact ? peer : exact),
		"%s of %u: %u survive, expected %d to %d", name, n_vocab, n_kept, (int)peer,
		(int)exact);
	if (n_kept == peer)
		cr_expect_eq(~crc,
			json_integer_value(json_object_get(golden, "survivor_ids_crc32")), "%s",
			name);

	size_t i;
	json_t *entry;
	json_array_foreach (json_object_get(golden, "top"), i, entry) {
		uint32_t token = (uint32_t)json_integer_value(json_array_get(entry, 0));
		double logit = json_number_value(json_array_get(entry, 1));
		double probability = json_number_value(json_array_get(entry, 2));
		double ours = sampler_mass(sampler_distance(&row, token)) / (double)row.mass_kept;
		double our_logit = (double)row.penalised[token] * (double)s.inv_temperature;
		cr_expect(sampler_keeps(&row, token), "%s: token %u", name, token);
		cr_expect_float_eq(our_logit, logit, 1e-5 * fmax(1, fabs(logit)), "%s", name);
		if (n_kept == peer)
			cr_expect_float_eq(ours, probability, 1e-4 * probability + 1e-9,
				"%s of %u: token %u has %g, expected %g", name, n_vocab, token,
				ours, probability);
	}
	free(scratch);
	free(count);
	free(name);
}

Test(sampler, golden_chains)
{
	SKIP_WITHOUT("golden/samplers.json");
	const uint32_t n_expected = 78; /* chains of the file whose order is ours */
	json_error_t problem;
	json_t *root = json_load_file(shared_path("golden/samplers.json"), 0, &problem), *golden;
	cr_assert_not_null(root, "%s", problem.text);
	uint32_t n_checked = 0;
	size_t i;
	json_array_foreach (json_object_get(root, "cases"), i, golden) {
		struct lap_sampling p;
		if (!chain_parse(json_object_get(golden, "chain"), &p))
			continue;
		char path[128];
		snprintf(path, sizeof path, "golden/%s",
			json_string_value(json_object_get(golden, "logits")));
		uint32_t n = (uint32_t)json_integer_value(json_object_get(golden, "n_vocab"));
		size_t n_bytes;
		char *logits = read_text(shared_path(path), &n_bytes);
		cr_assert_eq(n_bytes, n * sizeof(float));
		golden_check(golden, &p, (const float *)(const void *)logits, n);
		free(logits);
		n_checked++;
	}
	json_decref(root);
	cr_expect_eq(n_checked, n_expected, "%u chains checked", n_checked);
}

/* ---- control ---- */

static struct backend *cpu(void)
{
	struct backend *b;
	struct lap_error err = {0};
	cr_assert_eq(cpu_open(&b, &err), LAP_OK, "%s", err.text);
	return b;
}

static void random_logits(struct tail_case *t, uint64_t *state)
{
	for (uint32_t i = 0; i < t->n_rows; i++)
		for (uint32_t j = 0; j < t->n_vocab; j++)
			t->logits[i * t->stride + j] = (float)(test_random(state) * 4);
}

Test(control, window_counts_equal_a_recount)
{
	static const int32_t windows[] = {0, 1, 2, 7, 16, 40, -1};
	const uint32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, n_prompt = ARRAY_COUNT(prompt);
	struct backend *b = cpu();
	struct tail_case t;
	tail_create(&t, b, 11, 40, 1);
	uint64_t state = 7;
	for (size_t iw = 0; iw < ARRAY_COUNT(windows); iw++) {
		struct lap_sampling p = plain;
		p.repeat_last_n = windows[iw];
		p.frequency_penalty = 0.1f;
		tail_start(&t, 0, &p, prompt, n_prompt, 1000);
		for (uint32_t n = n_prompt; n < 40; n++) {
			uint32_t recount[11];
			random_logits(&t, &state);
			tail_run(&t, 1);
			sampler_count(&t.sequences[0], tail_tokens(&t, 0), n + 1, recount, 11);
			cr_expect_arr_eq(tail_counts(&t, 0), recount, sizeof recount,
				"window %d, %u tokens", windows[iw], n + 1);
			cr_expect_eq(tail_tokens(&t, 0)[n], t.results[0].token);
			cr_expect_eq(t.rows[0].token, t.results[0].token);
			cr_expect_eq(t.rows[0].pos, n);
			cr_expect_eq(t.step->n_kv, n + 1);
			cr_expect_eq(t.step->done, 0);
		}
		random_logits(&t, &state);
		tail_run(&t, 1); /* the token behind the last position ends the sequence */
		cr_expect_eq(t.step->done, 1);
		cr_expect_eq(t.rows[0].pos, 39);
		cr_expect_eq(t.sequences[0].n_sampled, 31);
	}
	tail_destroy(&t);
	b->ops->close(b);
}

static void expect_sizes(const struct tail_case *t)
{
	struct dispatch_size want[MAX_SIZES];
	memcpy(want, t->sizes, sizeof want);
	sizes_update(want, MAX_SIZES, t->step);
	cr_expect_arr_eq(t->sizes, want, sizeof want);
}

Test(control, stop_rules)
{
	enum rule { STOP_ID, LAST_STOP_ID, N_LEFT, CONTEXT, CANCEL, BAD_LOGITS, N_RULES };
	const uint32_t prompt[] = {1, 2};
	struct lap_sampling greedy = plain;
	greedy.temperature = 0;
	struct backend *b = cpu();
	struct tail_case t;
	tail_create(&t, b, 8, 16, 1);
	for (int rule = 0; rule < N_RULES; rule++) {
		memset(t.logits, 0, 8 * sizeof *t.logits);
		t.logits[5] = 1;
		tail_start(&t, 0, &greedy, prompt, 2, rule == N_LEFT ? 3 : 100);
		struct sequence *s = &t.sequences[0];
		s->n_stop = MAX_STOPS;
		for (uint32_t i = 0; i < MAX_STOPS; i++)
			s->stop[i] = 6;
		s->n_ctx = rule == CONTEXT ? 4 : 16;
		tail_run(&t, 2);
		cr_expect_eq(t.step->done, 0, "rule %d", rule);
		cr_expect_eq(s->n_left, rule == N_LEFT ? 1 : 98);
		cr_expect_neq(t.sizes[FIRST_OWN_SIZE].x, 0);
		expect_sizes(&t);
		if (rule == STOP_ID)
			s->stop[0] = 5;
		if (rule == LAST_STOP_ID)
			s->stop[MAX_STOPS - 1] = 5;
		if (rule == CANCEL)
			s->cancel = 1;
		if (rule == BAD_LOGITS)
			t.logits[3] = NAN;
		tail_run(&t, 1);
		cr_expect_eq(t.step->done, 1, "rule %d", rule);
		cr_expect_eq(s->done, 1);
		cr_expect_eq(s->n_sampled, 3, "the token that ends it is reported");
		cr_expect_eq(s->error, rule == BAD_LOGITS);
		cr_expect_eq(t.ring[2].step, 3);
		cr_expect_eq(t.ring[2].token, rule == BAD_LOGITS ? 0 : 5);
		cr_expect_eq(t.ring[2].error, rule == BAD_LOGITS);
		cr_expect_eq(t.rows[0].pos, 3, "a row that is done keeps its place");
		cr_expect_eq(t.sizes[FIRST_OWN_SIZE].x + t.sizes[FIRST_OWN_SIZE].y, 0);
		expect_sizes(&t);
		tail_run(&t, 5);
		cr_expect_eq(s->n_sampled, 3, "nothing happens once all is done");
		cr_expect_eq(t.ring[3].step, 0);
	}
	tail_destroy(&t);
	b->ops->close(b);
}

Test(control, bans_end_after_so_many_tokens)
{
	static const uint32_t n_left[] = {0, 1, 3, UINT32_MAX};
	const uint32_t prompt[] = {0};
	struct backend *b = cpu();
	struct tail_case t;
	struct lap_sampling p = plain;
	p.temperature = 0;
	tail_create(&t, b, 3, 40, 1);
	t.logits[0] = 0, t.logits[1] = 2, t.logits[2] = 1;
	for (size_t i = 0; i < ARRAY_COUNT(n_left); i++) {
		tail_start(&t, 0, &p, prompt, 1, 100);
		t.sequences[0].n_forbidden = 1;
		t.sequences[0].forbidden[0] = 1;
		t.sequences[0].n_forbid_left = n_left[i];
		t.sequences[0].n_top = 2;
		tail_run(&t, 6);
		for (uint32_t step = 0; step < 6; step++) {
			uint32_t expected = step < n_left[i] ? 2 : 1;
			cr_expect_eq(
				t.ring[step].token, expected, "%u left, step %u", n_left[i], step);
			cr_expect_eq(t.tops[step * TAIL_TOP].token, expected);
			cr_expect_eq(t.tops[step * TAIL_TOP].log_prob, t.ring[step].log_prob);
			cr_expect_eq(t.tops[step * TAIL_TOP + 1].token, expected == 2 ? 0 : 2);
			cr_expect_eq(t.tops[step * TAIL_TOP + 2].token, UINT32_MAX);
		}
	}
	tail_destroy(&t);
	b->ops->close(b);
}

Test(control, rows_end_one_by_one)
{
	const uint32_t prompt[] = {1, 2, 3, 4, 5};
	struct lap_sampling greedy = plain;
	greedy.temperature = 0;
	struct backend *b = cpu();
	struct tail_case t;
	tail_create(&t, b, 8, 64, 3);
	memset(t.logits, 0, 3 * t.stride * sizeof *t.logits);
	for (uint32_t i = 0; i < 3; i++)
		tail_start(&t, i, &greedy, prompt, 1 + 2 * i, 2 + i);
	tail_run(&t, 3);
	cr_expect_eq(t.step->done, 0);
	cr_expect_eq(t.sequences[0].done, 1);
	cr_expect_eq(t.sequences[1].done, 1);
	cr_expect_eq(t.sequences[2].done, 0);
	cr_expect_eq(t.rows[0].pos, 1);
	cr_expect_eq(t.rows[1].pos, 4);
	cr_expect_eq(t.rows[2].pos, 7);
	cr_expect_eq(t.step->n_kv, 8);
	expect_sizes(&t);
	tail_run(&t, 1);
	cr_expect_eq(t.step->done, 1);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(t.sequences[i].n_sampled, 2 + i);
	expect_sizes(&t);
	tail_destroy(&t);
	b->ops->close(b);
}

Test(control, ring_wraps_around)
{
	const uint32_t prompt[] = {0}, n_steps = RING_ENTRIES + 10;
	struct backend *b = cpu();
	struct tail_case t;
	tail_create(&t, b, 4, RING_ENTRIES * 2, 1);
	memset(t.logits, 0, 4 * sizeof *t.logits);
	tail_start(&t, 0, &plain, prompt, 1, n_steps + 1);
	tail_run(&t, n_steps);
	cr_expect_eq(t.sequences[0].n_sampled, n_steps);
	for (uint32_t i = 0; i < n_steps; i++) {
		const struct ring_entry *e = &t.ring[i % RING_ENTRIES];
		cr_expect_eq(e->step, i < 10 ? RING_ENTRIES + i + 1 : i + 1);
		cr_expect_eq(e->token, tail_tokens(&t, 0)[e->step]);
	}
	tail_destroy(&t);
	b->ops->close(b);
}
