/* The chain of samplers on the host: another engine's chains, worked examples, public faults, and the same
 * tokens as sampler.c where both can draw. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampler_cases.h"
#include "sampler_chain.h"
#include "sampler_dry.h"
#include "support.h"

static const uint32_t n_ctx = 4096;

/* Every step off, temperature 1. */
static const struct lap_sampling plain = {.temperature = 1, .top_p = 1};

static struct sampler_chain *make(struct lap_sampling p, uint32_t n_vocab)
{
	struct sampler_chain *c;
	struct lap_error err = {0};
	cr_assert_eq(sampler_chain_create(&p, n_vocab, n_ctx, &c, &err), LAP_OK, "%s", err.text);
	return c;
}

static void apply(struct sampler_chain *c, const float *logits, const uint32_t *history, uint32_t n,
	uint32_t pos, struct candidates *out)
{
	struct lap_error err = {0};
	cr_assert_eq(sampler_chain_apply(c, logits, history, n, pos, NULL, out, &err), LAP_OK, "%s",
		err.text);
}

/* The candidates of a chain of its own without history. */
static struct candidates survivors(struct lap_sampling p, const float *logits, uint32_t n_vocab)
{
	struct candidates out = {0};
	struct sampler_chain *c = make(p, n_vocab);
	apply(c, logits, NULL, 0, 0, &out);
	sampler_chain_destroy(c);
	return out;
}

/* Bit i is set when token i stays. */
static uint32_t set_of(const struct candidates *c)
{
	uint32_t set = 0;
	for (uint32_t i = 0; i < c->n; i++)
		set |= 1u << c->items[i].id;
	return set;
}

static uint32_t kept_set(struct lap_sampling p, const float *logits, uint32_t n_vocab)
{
	struct candidates c = survivors(p, logits, n_vocab);
	uint32_t set = set_of(&c);
	candidates_free(&c);
	return set;
}

static struct lap_sampling llama_order(struct lap_sampling p)
{
	p.samplers = "llama.cpp";
	return p;
}

static uint32_t draw(struct sampler_chain *c, const float *logits, uint32_t pos)
{
	uint32_t random[4];
	struct candidates out = {0};
	apply(c, logits, NULL, 0, pos, &out);
	sampler_chain_random(c, pos, SAMPLER_DRAW, random);
	uint32_t token = candidates_draw(&out, random).token;
	candidates_free(&out);
	return token;
}

static double random_unit(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (double)(*state >> 11) * 0x1p-53;
}

/* ---- another engine's chains ---- */

/* One step of a golden chain, "name:value:...", into the parameters; its name joins the order. */
static void golden_step(
	const char *text, struct lap_sampling *p, char order[256], struct lap_logit_bias bias[8])
{
	static const struct {
		const char *theirs, *ours;
	} names[] = {{"temp", "temperature"}, {"temp_ext", "temperature"}, {"typical", "typ_p"}};
	char name[32];
	float v[6] = {0};
	int n_name = 0;
	cr_assert_eq(sscanf(text, "%31[a-z_]%n", name, &n_name), 1);
	int n = sscanf(text + n_name, ":%f:%f:%f:%f", &v[0], &v[1], &v[2], &v[3]);
	cr_assert_geq(n, 1, "%s", text);
	if (!strcmp(name, "top_k"))
		p->top_k = (int32_t)v[0];
	else if (!strcmp(name, "top_p"))
		p->top_p = v[0];
	else if (!strcmp(name, "min_p"))
		p->min_p = v[0];
	else if (!strcmp(name, "typical"))
		p->typical_p = v[0];
	else if (!strcmp(name, "top_n_sigma"))
		p->top_n_sigma = v[0];
	else if (!strcmp(name, "temp") || !strcmp(name, "temp_ext")) {
		p->temperature = v[0];
		p->dynatemp_range = v[1];
		p->dynatemp_exponent = v[2];
	} else if (!strcmp(name, "xtc")) {
		p->xtc_probability = v[0];
		p->xtc_threshold = v[1];
	} else if (!strcmp(name, "penalties")) {
		p->repeat_last_n = (int32_t)v[0];
		p->repeat_penalty = v[1];
		p->frequency_penalty = v[2];
		p->presence_penalty = v[3];
	} else if (!strcmp(name, "bias")) {
		for (int i = 0; i + 1 < n; i += 2)
			bias[p->n_logit_bias++] = (struct lap_logit_bias){(int32_t)v[i], v[i + 1]};
		p->logit_bias = bias;
		return;
	} else
		cr_assert_fail("no step %s", name);
	if ((!strcmp(name, "top_p") || !strcmp(name, "min_p")) && n == 2)
		p->min_keep = (uint32_t)v[1];
	for (size_t i = 0; i < ARRAY_COUNT(names); i++)
		if (!strcmp(name, names[i].theirs))
			snprintf(name, sizeof name, "%s", names[i].ours);
	size_t end = strlen(order);
	snprintf(order + end, 256 - end, "%s%s", end ? ";" : "", name);
}

static uint32_t crc32_add(uint32_t crc, uint32_t word)
{
	for (int i = 0; i < 32; i++)
		crc = crc >> 1 ^ (((crc ^ word >> i) & 1) ? 0xedb88320u : 0);
	return crc;
}

static const struct candidate *find(const struct candidates *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->items[i].id == id)
			return &c->items[i];
	return NULL;
}

static void golden_check(const json_t *golden, const float *logits, uint32_t n_vocab)
{
	char order[256] = "", *name = json_dumps(json_object_get(golden, "chain"), JSON_COMPACT);
	struct lap_logit_bias bias[8];
	struct lap_sampling p = plain;
	size_t i;
	json_t *entry;
	json_array_foreach (json_object_get(golden, "chain"), i, entry)
		golden_step(json_string_value(entry), &p, order, bias);
	p.samplers = *order ? order : ";";
	const json_t *past = json_object_get(golden, "history");
	uint32_t history[256], n_history = (uint32_t)json_array_size(past);
	cr_assert(n_history <= ARRAY_COUNT(history));
	for (i = 0; i < n_history; i++)
		history[i] = (uint32_t)json_integer_value(json_array_get(past, i));

	struct candidates c = {0};
	struct sampler_chain *chain = make(p, n_vocab);
	apply(chain, logits, history, n_history, 0, &c);
	uint32_t crc = ~0u;
	for (i = 0; i < c.n; i++)
		crc = crc32_add(crc, c.items[i].id);
	json_int_t peer = json_integer_value(json_object_get(golden, "survivors"));
	json_int_t exact = json_integer_value(json_object_get(golden, "survivors_exact"));
	cr_expect(c.n >= (peer < exact ? peer : exact) && c.n <= (peer > exact ? peer : exact),
		"%s of %u: %u survive, expected %d to %d", name, n_vocab, c.n, (int)peer,
		(int)exact);
	if (c.n == peer)
		cr_expect_eq(~crc,
			json_integer_value(json_object_get(golden, "survivor_ids_crc32")), "%s",
			name);
	/* The peer's running sum in float32 moves the temperature by 1.6e-5 over 32000 tokens: its .847830 is
	 * .847816 in double precision. */
	double off = p.dynatemp_range > 0 && n_vocab > 1000 ? 3 : 1;
	json_array_foreach (json_object_get(golden, "top"), i, entry) {
		uint32_t id = (uint32_t)json_integer_value(json_array_get(entry, 0));
		double logit = json_number_value(json_array_get(entry, 1));
		double probability = json_number_value(json_array_get(entry, 2));
		const struct candidate *ours = find(&c, id);
		cr_assert(ours, "%s of %u: token %u does not stay", name, n_vocab, id);
		cr_expect_float_eq(
			(double)ours->logit, logit, off * 1e-5 * fmax(1, fabs(logit)), "%s", name);
		if (c.n == peer)
			cr_expect_float_eq(ours->p, probability, off * 1e-4 * probability + 1e-9,
				"%s of %u: token %u has %g, expected %g", name, n_vocab, id,
				ours->p, probability);
	}
	sampler_chain_destroy(chain);
	candidates_free(&c);
	free(name);
}

static uint32_t golden_file(const char *(*where)(const char *))
{
	json_error_t problem;
	json_t *root = json_load_file(where("golden/samplers.json"), 0, &problem), *golden;
	cr_assert_not_null(root, "%s", problem.text);
	uint32_t n_checked = 0;
	size_t i;
	json_array_foreach (json_object_get(root, "cases"), i, golden) {
		char path[128];
		snprintf(path, sizeof path, "golden/%s",
			json_string_value(json_object_get(golden, "logits")));
		uint32_t n = (uint32_t)json_integer_value(json_object_get(golden, "n_vocab"));
		size_t n_bytes;
		char *logits = read_text(where(path), &n_bytes);
		cr_assert_eq(n_bytes, n * sizeof(float));
		golden_check(golden, (const float *)(const void *)logits, n);
		free(logits);
		n_checked++;
	}
	json_decref(root);
	return n_checked;
}

Test(sampler_chain, golden_chains_of_50_tokens)
{
	cr_expect_eq(golden_file(vector_path), 38);
}

Test(sampler_chain, golden_chains)
{
	SKIP_WITHOUT("golden/samplers.json");
	cr_expect_eq(golden_file(shared_path), 114);
}

/* ---- OB-17: edge parameters ---- */

static const float one_best[] = {1, 3, 2}, tie[] = {3, 3, 1};

Test(sampler_chain, ob17_temperature_zero_is_argmax)
{
	static const float temperatures[] = {0, -1, 1e-9f};
	static const char *const orders[] = {NULL, "hf", "llama.cpp", "temperature;top_k;top_p",
		"top_p;temperature;min_p", "typ_p;temperature;xtc", "top_k", ";"};
	const size_t n_with_temperature = 6;
	for (size_t i = 0; i < ARRAY_COUNT(orders); i++)
		for (size_t j = 0; j < ARRAY_COUNT(temperatures); j++) {
			struct lap_sampling p = plain;
			p.temperature = temperatures[j];
			p.samplers = orders[i];
			p.top_k = 40;
			p.top_p = 0.95f;
			p.min_p = 0.05f;
			if (p.temperature > 0 && i >= n_with_temperature)
				continue; /* without the step a temperature above 0 is 1 */
			if (p.temperature <= 0) {
				cr_expect_eq(kept_set(p, one_best, 3), 2, "order %zu", i);
				cr_expect_eq(kept_set(p, tie, 3), 1,
					"order %zu: greedy ties go to the lowest id", i);
			}
			struct sampler_chain *chain = make(p, 3);
			for (uint32_t pos = 0; pos < 20; pos++)
				cr_expect_eq(draw(chain, one_best, pos), 1, "order %zu", i);
			sampler_chain_destroy(chain);
		}
}

Test(sampler_chain, ob17_kept_sets)
{
	for (size_t i = 0; i < ARRAY_COUNT(ob17_cases); i++) {
		struct lap_sampling p = plain;
		p.top_k = ob17_cases[i].top_k;
		p.top_p = ob17_cases[i].top_p;
		p.min_p = ob17_cases[i].min_p;
		for (int last = 0; last < 2; last++, p = llama_order(p)) {
			cr_expect_eq(kept_set(p, one_best, 3), ob17_cases[i].kept, "case %zu", i);
			cr_expect_eq(
				kept_set(p, tie, 3), ob17_cases[i].kept_of_tie, "case %zu, tie", i);
		}
	}
}

Test(sampler_chain, ob17_defaults_fit_small_vocabularies)
{
	const float logits[] = {4, 3, 2, 1, 0};
	struct lap_sampling p = lap_sampling_default();
	p.seed = 1;
	for (uint32_t n = 1; n <= 5; n++) {
		cr_expect_neq(kept_set(p, logits, n), 0);
		cr_expect_neq(kept_set(llama_order(p), logits, n), 0);
	}
	p.top_p = 1;
	p.min_p = 0;
	cr_expect_eq(kept_set(p, logits, 5), 31);
	cr_expect_eq(kept_set((struct lap_sampling){0}, logits, 5), 1, "zeroed is greedy");
}

/* ---- OB-18: order ---- */

Test(sampler_chain, ob18_temperature_first_or_last)
{
	const float logits[] = {3, 2, 1};
	struct lap_sampling p = plain;
	p.top_p = 0.8f;
	p.temperature = 0.5f;
	cr_expect_eq(kept_set(p, logits, 3), 1, "first: .8668 alone passes .8");
	cr_expect_eq(kept_set(llama_order(p), logits, 3), 3, "last: .6652 + .2447 = .9099");
	p.temperature = 1;
	cr_expect_eq(kept_set(p, logits, 3), 3);
	cr_expect_eq(kept_set(llama_order(p), logits, 3), 3);
	p.top_k = 2;
	p.top_p = 0.7f;
	p.samplers = "top_k;top_p";
	cr_expect_eq(kept_set(p, logits, 3), 1, "renormalised .7311");
	p.samplers = "top_p;top_k";
	cr_expect_eq(kept_set(p, logits, 3), 3);
	/* What is drawn from is at the temperature in both orders: .8808 for e^0 : e^-2. */
	p = llama_order(plain);
	p.top_p = 0.8f;
	p.temperature = 0.5f;
	struct candidates c = survivors(p, logits, 3);
	cr_assert_eq(c.n, 2);
	cr_expect_float_eq(c.items[0].p, 0.880797, 1e-6);
	candidates_free(&c);
}

Test(sampler_chain, order_of_min_p_and_of_penalties)
{
	/* e^-1.5 = .223; at temperature 2: .472 */
	const float logits[] = {2, 0.5f};
	struct lap_sampling p = plain;
	p.min_p = 0.3f;
	p.temperature = 2;
	cr_expect_eq(kept_set(p, logits, 2), 3);
	cr_expect_eq(kept_set(llama_order(p), logits, 2), 1);
	/* 2 / 4 = .5 before top_k: both tie; after it, token 1 is gone already */
	const uint32_t history[] = {0};
	struct candidates c = {0};
	p = plain;
	p.top_k = 1;
	p.repeat_penalty = 4;
	p.repeat_last_n = -1;
	for (int i = 0; i < 2; i++) {
		p.samplers = i ? "top_k;penalties" : "penalties;top_k";
		struct sampler_chain *chain = make(p, 2);
		apply(chain, logits, history, 1, 0, &c);
		cr_expect_eq(c.n, i ? 1 : 2);
		cr_expect_float_eq(c.items[0].logit, 0.5f, 1e-7f);
		sampler_chain_destroy(chain);
	}
	candidates_free(&c);
}

/* ---- OB-19: seeds ---- */

Test(sampler_chain, ob19_seeds)
{
	enum { N_POSITIONS = 64, N_VOCAB = 32 };
	static const uint64_t seeds[] = {42, 42, 0, UINT32_MAX, (uint64_t)42 << 32, 43};
	const float logits[N_VOCAB] = {0};
	uint32_t drawn[ARRAY_COUNT(seeds)][N_POSITIONS];
	struct sampler_chain *chains[ARRAY_COUNT(seeds)];
	for (size_t i = 0; i < ARRAY_COUNT(seeds); i++) {
		struct lap_sampling p = plain;
		p.seed = seeds[i];
		chains[i] = make(p, N_VOCAB);
	}
	for (uint32_t pos = 0; pos < N_POSITIONS; pos++) /* side by side: no state is shared */
		for (size_t i = 0; i < ARRAY_COUNT(seeds); i++)
			drawn[i][pos] = draw(chains[i], logits, pos);
	for (uint32_t i = N_POSITIONS; i-- > 0;) /* nor does the order of the draws matter */
		cr_expect_eq(draw(chains[1], logits, i), drawn[0][i]);
	cr_expect_arr_eq(drawn[0], drawn[1], sizeof drawn[0], "same seed");
	for (size_t i = 1; i < ARRAY_COUNT(seeds); i++)
		for (size_t j = i + 1; j < ARRAY_COUNT(seeds); j++)
			cr_expect_arr_neq(
				drawn[i], drawn[j], sizeof drawn[0], "seeds %zu and %zu", i, j);
	for (size_t i = 0; i < ARRAY_COUNT(seeds); i++)
		sampler_chain_destroy(chains[i]);
}

/* ---- typical, top-n-sigma, dynamic temperature ---- */

/* ln of .5 .25 .125 .125: 1, 2, 3 and 3 bits; expected 1.75 bits */
static const float halves[] = {-0.6931472f, -1.3862944f, -2.0794415f, -2.0794415f};

Test(sampler_chain, typical)
{
	/* distances from 1.75 bits: .75, .25, 1.25, 1.25: token 1 comes first, then 0, then both others */
	static const struct {
		float p;
		uint32_t min_keep, kept;
	} cases[] = {{0.2f, 0, 2}, {0.3f, 0, 3}, {0.74f, 0, 3}, {0.8f, 0, 15}, {1, 0, 15},
		{0, 0, 15}, {0.2f, 2, 3}, {0.2f, 3, 15}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_sampling p = plain;
		p.typical_p = cases[i].p;
		p.min_keep = cases[i].min_keep;
		cr_expect_eq(kept_set(p, halves, 4), cases[i].kept, "case %zu", i);
	}
}

Test(sampler_chain, top_n_sigma)
{
	/* mean 1, variance (1 + 1 + 1 + 9) / 4 = 3: 4 - 2.3 * 1.732 = .016, 4 - 2.4 * 1.732 = -.157 */
	const float logits[] = {0, 0, 0, 4}, forbidden[] = {0, 0, 0, 4, -INFINITY};
	static const struct {
		float n;
		uint32_t kept;
	} cases[] = {{0, 15}, {-1, 15}, {0.01f, 8}, {1, 8}, {2.3f, 8}, {2.4f, 15}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_sampling p = plain;
		p.top_n_sigma = cases[i].n;
		cr_expect_eq(kept_set(p, logits, 4), cases[i].kept, "case %zu", i);
		cr_expect_eq(kept_set(p, forbidden, 5), cases[i].kept, "case %zu", i);
		p.temperature = 100; /* does not matter */
		cr_expect_eq(kept_set(p, logits, 4), cases[i].kept, "case %zu, hot", i);
	}
}

Test(sampler_chain, dynamic_temperature)
{
	/* entropy 1.75 of at most 2 bits: .875; squared .765625 */
	static const struct {
		float t, range, exponent;
		double expected;
	} cases[] = {{1, 0.5f, 1, 1.375}, {1, 0.5f, 2, 1.265625}, {1, 0.5f, 0, 1.375},
		{0.5f, 1, 1, 1.3125}, {2, 0, 1, 2}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_sampling p = plain;
		p.temperature = cases[i].t;
		p.dynatemp_range = cases[i].range;
		p.dynatemp_exponent = cases[i].exponent;
		struct candidates c = survivors(p, halves, 4);
		double t = log(2) / (double)(c.items[0].logit - c.items[1].logit);
		cr_expect_float_eq(t, cases[i].expected, 1e-5, "case %zu: %g", i, t);
		candidates_free(&c);
	}
}

/* ---- XTC ---- */

/* ln of .4 .3 .2 .1, and of .4 .25 .25 .1 */
static const float tenths[] = {-0.9162907f, -1.2039728f, -1.6094379f, -2.3025851f};
static const float twins[] = {-0.9162907f, -1.3862944f, -1.3862944f, -2.3025851f};

static struct lap_sampling exclude(float probability, float threshold)
{
	struct lap_sampling p = plain;
	p.xtc_probability = probability;
	p.xtc_threshold = threshold;
	return p;
}

Test(sampler_chain, xtc)
{
	static const struct {
		float threshold;
		uint32_t kept, kept_of_twins;
	} cases[] = {
		{0.05f, 8, 8},
		{0.15f, 12, 14}, /* .4, .3 go, .2 is the least likely above; equals stay together */
		{0.27f, 14, 15}, /* of twins only one token is above */
		{0.35f, 15, 15},
		{0.5f, 15, 15},
		{0.6f, 15, 15},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_sampling p = exclude(1, cases[i].threshold);
		cr_expect_eq(kept_set(p, tenths, 4), cases[i].kept, "case %zu", i);
		cr_expect_eq(kept_set(p, twins, 4), cases[i].kept_of_twins, "case %zu", i);
		p.xtc_probability = 0;
		cr_expect_eq(kept_set(p, tenths, 4), 15);
	}
	struct lap_sampling p = exclude(1, 0.15f);
	struct candidates c = survivors(p, tenths, 4);
	cr_expect_float_eq(c.items[0].p, 2.0 / 3, 1e-6); /* .2 of .3 */
	cr_expect_float_eq(c.items[0].log_prob, log(0.2), 1e-6, "before truncation");
	candidates_free(&c);
	p.min_keep = 2;
	cr_expect_eq(kept_set(p, tenths, 4), 12);
	p.min_keep = 3;
	cr_expect_eq(kept_set(p, tenths, 4), 15, "two would be left, three must");
}

Test(sampler_chain, xtc_coin)
{
	enum { N_POSITIONS = 2000 };
	struct lap_sampling p = exclude(0.25f, 0.15f);
	p.seed = 7;
	struct sampler_chain *chain = make(p, 4);
	struct candidates c = {0};
	uint32_t n_excluded = 0;
	for (uint32_t pos = 0; pos < N_POSITIONS; pos++) {
		uint32_t coin[4];
		philox((uint32_t[4]){pos, 1, 0, 0}, (uint32_t[2]){7, 0}, coin);
		apply(chain, tenths, NULL, 0, pos, &c);
		cr_expect_eq(set_of(&c), coin[0] < 0x40000000u ? 12 : 15, "position %u", pos);
		n_excluded += c.n == 2;
	}
	/* 500 expected, standard deviation 19.4 */
	cr_expect(n_excluded > 400 && n_excluded < 600, "%u of 2000", n_excluded);
	candidates_free(&c);
	sampler_chain_destroy(chain);
}

/* ---- DRY ---- */

/* The penalties of tokens 0 to 9 behind a history, multiplier .8, base 1.75. */
static void dry_penalties(struct lap_sampling p, const uint32_t *breakers, uint32_t n_breaker,
	const uint32_t *history, uint32_t n, double penalty[10])
{
	const float logits[10] = {0};
	struct lap_error err = {0};
	struct candidates c = {0};
	p.dry_multiplier = 0.8f;
	struct sampler_chain *chain = make(p, 10), *clone;
	if (n_breaker)
		cr_assert_eq(sampler_chain_add_breaker(chain, breakers, n_breaker, &err), LAP_OK);
	cr_assert_eq(sampler_chain_clone(chain, &clone, &err), LAP_OK);
	sampler_chain_destroy(chain);
	for (int twice = 0; twice < 2; twice++) /* nothing is left over from the first */
		apply(clone, logits, history, n, 0, &c);
	cr_assert_eq(c.n, 10);
	for (uint32_t i = 0; i < 10; i++)
		penalty[i] = -(double)c.items[i].logit;
	candidates_free(&c);
	sampler_chain_destroy(clone);
}

static void expect_penalties(const double penalty[10], double of_5, double of_6)
{
	for (uint32_t i = 0; i < 10; i++)
		cr_expect_float_eq(penalty[i],
			i == 5           ? of_5
				: i == 6 ? of_6
					 : 0,
			1e-5, "token %u: %g", i, penalty[i]);
}

Test(sampler_chain, dry)
{
	/* The end 3 1 2 stood before 6: three tokens, .8 * 1.75^(3 - 2) = 1.4.  Of it 1 2 stood before 5: two
	 * tokens, .8 * 1.75^0 = .8. */
	const uint32_t history[] = {1, 2, 5, 3, 1, 2, 6, 3, 1, 2};
	struct lap_sampling p = plain;
	double penalty[10];
	p.dry_penalty_last_n = -1;
	dry_penalties(p, NULL, 0, history, 10, penalty);
	expect_penalties(penalty, 0.8, 1.4);

	p.dry_allowed_length = 3; /* .8 * 1.75^0 */
	dry_penalties(p, NULL, 0, history, 10, penalty);
	expect_penalties(penalty, 0, 0.8);
	p.dry_allowed_length = 0; /* 2, as above */

	p.dry_penalty_last_n = 6; /* 1 2 6 3 1 2: only 1 2 before 6 */
	dry_penalties(p, NULL, 0, history, 10, penalty);
	expect_penalties(penalty, 0, 0.8);
	p.dry_penalty_last_n = 0;
	dry_penalties(p, NULL, 0, history, 10, penalty);
	expect_penalties(penalty, 0, 0);
	p.dry_penalty_last_n = -1;

	p.dry_base = 3; /* .8 * 3 */
	dry_penalties(p, NULL, 0, history, 10, penalty);
	expect_penalties(penalty, 0.8, 2.4);
	p.dry_base = 0;

	/* 5 stood behind 1 2 and, later, behind the whole 1 2 5 3 1 2 that is the end: six tokens,
	 * .8 * 1.75^4 = 7.503125; the longer counts, once. */
	const uint32_t twice[] = {1, 2, 5, 3, 1, 2, 5, 3, 1, 2};
	dry_penalties(p, NULL, 0, twice, 10, penalty);
	expect_penalties(penalty, 7.503125, 0);

	/* Behind five of them the sixth repeats the end of five: .8 * 1.75^3 = 4.2875. */
	const uint32_t same[] = {5, 5, 5, 5, 5, 5};
	dry_penalties(p, NULL, 0, same, 6, penalty);
	expect_penalties(penalty, 4.2875, 0);
}

Test(sampler_chain, dry_breakers)
{
	const uint32_t history[] = {1, 2, 5, 3, 1, 2, 6, 3, 1, 2};
	struct lap_sampling p = plain;
	double penalty[10];
	p.dry_penalty_last_n = -1;
	const uint32_t three[] = {3}, two[] = {2}, pair[] = {3, 1}, other[] = {3, 2},
		       end[] = {2, 4};
	dry_penalties(p, three, 1, history, 10, penalty); /* 1 2 is left of the end */
	expect_penalties(penalty, 0.8, 0.8);
	dry_penalties(p, two, 1, history, 10, penalty); /* nothing is left */
	expect_penalties(penalty, 0, 0);
	dry_penalties(p, pair, 2, history, 10, penalty); /* 2 is left: one token, too short */
	expect_penalties(penalty, 0, 0);
	dry_penalties(p, other, 2, history, 10, penalty); /* does not occur */
	expect_penalties(penalty, 0.8, 1.4);
	dry_penalties(p, end, 2, history, 10, penalty); /* has only begun */
	expect_penalties(penalty, 0.8, 1.4);
}

Test(sampler_chain, dry_is_bounded)
{
	/* 1000 equal tokens: 1.75^997 is no float; all others stay possible, and the token too */
	uint32_t history[1000];
	const float logits[] = {0, 0, -INFINITY};
	for (uint32_t i = 0; i < 1000; i++)
		history[i] = 1;
	struct lap_sampling p = plain;
	p.dry_multiplier = 0.8f;
	p.dry_penalty_last_n = -1;
	struct sampler_chain *chain = make(p, 3);
	struct candidates c = {0};
	apply(chain, logits, history, 1000, 0, &c);
	cr_expect_eq(c.n, 2);
	cr_expect_float_eq(c.items[1].logit, -1e30f, 1e24f);
	cr_expect_eq(c.items[0].p, 1);
	candidates_free(&c);
	sampler_chain_destroy(chain);
}

/* Its definition, position by position. */
static uint32_t naive_length(const uint32_t *t, uint32_t n, uint32_t i, uint32_t limit)
{
	uint32_t length = 0;
	while (length <= i && length < limit && t[i - length] == t[n - 1 - length])
		length++;
	return length;
}

static uint32_t naive_limit(const uint32_t *t, uint32_t n, const uint32_t b[2][2])
{
	for (uint32_t start = n; start-- > 0;) {
		bool pair = start + 2 <= n && t[start] == b[0][0] && t[start + 1] == b[0][1];
		if (pair || t[start] == b[1][0])
			return n - start - (pair ? 2 : 1);
	}
	return n;
}

Test(sampler_chain, dry_lengths_equal_their_definition)
{
	static const uint32_t breakers[2][2] = {{0, 1}, {2, 0}};
	struct lap_error err = {0};
	struct dry_breakers b = {0};
	uint64_t state = 3;
	uint32_t n_limited = 0, n_long = 0;
	cr_assert_eq(dry_breakers_add(&b, breakers[0], 2, 8, &err), LAP_OK);
	cr_assert_eq(dry_breakers_add(&b, breakers[1], 1, 8, &err), LAP_OK);
	for (uint32_t round = 0; round < 3000; round++) {
		uint32_t t[60], length[60], work[60];
		uint32_t n = 1 + (uint32_t)(random_unit(&state) * 60);
		uint32_t n_kinds = 1 + round % 5;
		for (uint32_t i = 0; i < n; i++)
			t[i] = 3 - (uint32_t)(random_unit(&state) * n_kinds) % 4;
		uint32_t limit = dry_limit(&b, t, n);
		cr_assert_eq(limit, naive_limit(t, n, breakers));
		n_limited += limit < n;
		dry_lengths(t, n, limit, length, work);
		for (uint32_t i = 0; i + 1 < n; i++) {
			cr_assert_eq(length[i], naive_length(t, n, i, limit));
			n_long += length[i] > 2;
		}
	}
	cr_expect(n_limited > 500 && n_limited < 2500, "%u of 3000 had a breaker", n_limited);
	cr_expect_gt(n_long, 500, "%u repetitions", n_long);
	dry_breakers_free(&b);
}

/* ---- mirostat ---- */

Test(sampler_chain, mirostat)
{
	/* tau 1.1, mu 2.2: surprises 1 2 3 3: tokens 0 and 1 stay, 2/3 and 1/3.
	 * 1 is drawn: log2 3 = 1.58496, mu = 2.2 - .5 * (1.58496 - 1.1) = 1.95752: only 0 stays.
	 * 0 is drawn: surprise 0, mu = 1.95752 + .5 * 1.1 = 2.50752: 0 and 1 again.
	 * 0 is drawn: log2 1.5 = .58496, mu = 2.50752 + .5 * .51504 = 2.76504. */
	struct lap_sampling p = plain;
	p.mirostat = 2;
	p.mirostat_tau = 1.1f;
	p.mirostat_eta = 0.5f;
	p.top_k = 1; /* mirostat takes the place of truncations */
	struct sampler_chain *chain = make(p, 4), *clone;
	struct candidates c = {0};
	struct lap_error err = {0};
	static const struct {
		uint32_t kept, drawn;
		double mu;
	} steps[] = {{3, 1, 1.95752}, {1, 0, 2.50752}, {3, 0, 2.76504}};
	struct sampler_chain_state start = sampler_chain_save(chain);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
			apply(chain, halves, NULL, 0, 0, &c);
			cr_expect_eq(set_of(&c), steps[i].kept, "step %zu", i);
			sampler_chain_accept(chain, &c, 3); /* no candidate: nothing happens */
			sampler_chain_accept(chain, &c, steps[i].drawn);
			cr_expect_float_eq(
				sampler_chain_save(chain).mu, steps[i].mu, 1e-5, "step %zu", i);
		}
		cr_assert_eq(sampler_chain_clone(chain, &clone, &err), LAP_OK);
		cr_expect_eq(sampler_chain_save(clone).mu, sampler_chain_save(chain).mu);
		sampler_chain_destroy(clone);
		if (round == 0)
			sampler_chain_restore(chain, start);
		else
			sampler_chain_reset(chain);
	}
	candidates_free(&c);
	sampler_chain_destroy(chain);

	p.mirostat_tau = 0.001f; /* the best stays, however small mu is */
	cr_expect_eq(kept_set(p, halves, 4), 1);
	p.mirostat_tau = p.mirostat_eta = 0; /* 5: mu 10 */
	cr_expect_eq(kept_set(p, halves, 4), 15);
	p.temperature = 0;
	cr_expect_eq(kept_set(p, halves, 4), 1);
}

Test(sampler_chain, mirostat_reaches_its_target)
{
	/* 512 tokens of falling probability: the mean surprise of what is drawn comes to tau */
	enum { N_VOCAB = 512, N_TOKENS = 4000, N_SETTLE = 500 };
	float logits[N_VOCAB];
	for (uint32_t i = 0; i < N_VOCAB; i++)
		logits[i] = -logf((float)i + 1.0f);
	struct lap_sampling p = plain;
	p.mirostat = 2;
	p.mirostat_tau = 3;
	p.mirostat_eta = 0.1f;
	p.seed = 5;
	struct sampler_chain *chain = make(p, N_VOCAB);
	struct candidates c = {0};
	double sum = 0;
	for (uint32_t pos = 0; pos < N_TOKENS; pos++) {
		uint32_t random[4];
		apply(chain, logits, NULL, 0, pos, &c);
		sampler_chain_random(chain, pos, SAMPLER_DRAW, random);
		uint32_t token = candidates_draw(&c, random).token;
		if (pos >= N_SETTLE)
			sum -= log2(find(&c, token)->p);
		sampler_chain_accept(chain, &c, token);
	}
	cr_expect_float_eq(
		sum / (N_TOKENS - N_SETTLE), 3, 0.02, "%g bits", sum / (N_TOKENS - N_SETTLE));
	candidates_free(&c);
	sampler_chain_destroy(chain);
}

/* ---- bias, masks, min_keep ---- */

Test(sampler_chain, logit_bias)
{
	const float logits[] = {1, 2, 3, 4};
	const struct lap_logit_bias bias[] = {{3, -INFINITY}, {0, 2.5f}, {1, -1}, {0, 0.5f}};
	struct lap_sampling p = plain;
	p.logit_bias = bias;
	p.n_logit_bias = ARRAY_COUNT(bias);
	struct candidates c = survivors(p, logits, 4);
	cr_expect_eq(set_of(&c), 7);
	cr_expect_eq(c.items[0].logit, 4);
	cr_expect_eq(c.items[1].logit, 1);
	cr_expect_eq(c.items[2].logit, 3);
	candidates_free(&c);

	/* behind the penalties where these come first: 3 / 2 - 4; else before them: (3 - 4) * 2 */
	const struct lap_logit_bias one = {2, -4};
	const uint32_t history[] = {2};
	static const char *const orders[] = {"penalties;top_k", "top_k;penalties", NULL};
	const float expected[] = {-2.5f, -2, -2.5f};
	for (size_t i = 0; i < ARRAY_COUNT(orders); i++) {
		struct candidates out = {0};
		p = plain;
		p.samplers = orders[i];
		p.top_k = 3;
		p.min_p = 0;
		p.repeat_penalty = 2;
		p.repeat_last_n = 8;
		p.logit_bias = &one;
		p.n_logit_bias = 1;
		struct sampler_chain *chain = make(p, 3);
		apply(chain, logits, history, 1, 0, &out);
		cr_expect_eq(out.items[2].logit, expected[i], "order %zu: %g", i,
			(double)out.items[2].logit);
		candidates_free(&out);
		sampler_chain_destroy(chain);
	}
}

Test(sampler_chain, mask)
{
	enum { N_VOCAB = 70 };
	float logits[N_VOCAB];
	const uint32_t allowed[] = {1u << 3 | 1u << 31, 1u << 0, 1u << 5}; /* 3 31 32 69 */
	const uint32_t nothing[3] = {0}, beyond[] = {0, 0, 0xffffffc0u};
	for (uint32_t i = 0; i < N_VOCAB; i++)
		logits[i] = (float)i / 10;
	struct lap_error err = {0};
	struct candidates c = {0};
	struct sampler_chain *chain = make(plain, N_VOCAB);
	cr_assert_eq(sampler_chain_apply(chain, logits, NULL, 0, 0, allowed, &c, &err), LAP_OK);
	cr_assert_eq(c.n, 4);
	const uint32_t ids[] = {3, 31, 32, 69};
	double sum = 0;
	for (uint32_t i = 0; i < 4; i++)
		sum += exp((double)logits[ids[i]]);
	for (uint32_t i = 0; i < 4; i++) {
		cr_expect_eq(c.items[i].id, ids[i]);
		cr_expect_float_eq(c.items[i].p, exp((double)logits[ids[i]]) / sum, 1e-6);
		cr_expect_float_eq(c.items[i].log_prob, log(c.items[i].p), 1e-5);
	}
	cr_expect_eq(sampler_chain_apply(chain, logits, NULL, 0, 0, nothing, &c, &err), LAP_ERROR);
	cr_expect(strstr(err.text, "forbidden"), "%s", err.text);
	cr_expect_eq(c.n, 0);
	cr_expect_eq(sampler_chain_apply(chain, logits, NULL, 0, 0, beyond, &c, &err), LAP_ERROR,
		"bits behind the vocabulary are no tokens");
	candidates_free(&c);
	sampler_chain_destroy(chain);
}

Test(sampler_chain, min_keep)
{
	const float logits[] = {0, 1, 2, 3, 4};
	struct lap_sampling p = plain;
	p.min_keep = 3;
	p.top_p = 0.1f;
	cr_expect_eq(kept_set(p, logits, 5), 28);
	p.top_p = 0;
	cr_expect_eq(kept_set(p, logits, 5), 28);
	p.top_p = 1;
	p.min_p = 0.9f;
	cr_expect_eq(kept_set(p, logits, 5), 28);
	p.min_keep = 9;
	cr_expect_eq(kept_set(p, logits, 5), 31);
}

/* ---- values that are no ordinary numbers ---- */

Test(sampler_chain, bad_logits_are_errors)
{
	const float bad[][3] = {
		{1, NAN, 0}, {-NAN, 1, 0}, {1, 2, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
	const uint32_t mask[] = {1};
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		for (int greedy = 0; greedy < 2; greedy++) {
			struct lap_error err = {0};
			struct candidates c = {0};
			struct lap_sampling p = plain;
			p.temperature = greedy ? 0 : 1;
			struct sampler_chain *chain = make(p, 3);
			cr_expect_eq(sampler_chain_apply(chain, bad[i], NULL, 0, 0, NULL, &c, &err),
				LAP_ERROR, "row %zu", i);
			cr_expect_neq(err.text[0], 0);
			cr_expect_eq(c.n, 0);
			cr_expect_eq(sampler_chain_apply(chain, bad[i], NULL, 0, 0, mask, &c, &err),
				LAP_ERROR, "row %zu: not hidden by a mask", i);
			candidates_free(&c);
			sampler_chain_destroy(chain);
		}
}

static void expect_refused(struct lap_sampling p, const char *words)
{
	struct sampler_chain *c = (struct sampler_chain *)&p;
	struct lap_error err = {0};
	cr_expect_eq(sampler_chain_create(&p, 100, n_ctx, &c, &err), LAP_USAGE, "%s", words);
	cr_expect_null(c);
	cr_expect(strstr(err.text, words), "\"%s\" lacks \"%s\"", err.text, words);
	cr_expect(strstr(err.text, "expected"), "%s", err.text);
}

Test(sampler_chain, parameters_out_of_range)
{
	struct lap_sampling s;
#define REFUSED(field, value, words) (s = plain, s.field = value, expect_refused(s, words))
	REFUSED(samplers, "top_k;top_q", "samplers has \"top_q\"");
	REFUSED(samplers, "top_k; top_p ;top_k", "top_k twice");
	REFUSED(samplers, "typ_p;typical_p", "typical_p twice");
	REFUSED(samplers, "hf;top_k", "samplers has \"hf\"");
	REFUSED(samplers, "top", "samplers has \"top\"");
	REFUSED(temperature, NAN, "temperature is nan");
	REFUSED(repeat_penalty, -1, "repeat_penalty is -1");
	REFUSED(typical_p, NAN, "typical_p is nan");
	REFUSED(top_n_sigma, INFINITY, "top_n_sigma is inf");
	REFUSED(xtc_probability, 1.5f, "xtc_probability is 1.5");
	REFUSED(xtc_threshold, -0.1f, "xtc_threshold is -0.1");
	REFUSED(dry_multiplier, -1, "dry_multiplier is -1");
	REFUSED(dry_base, 0.5f, "dry_base is 0.5");
	REFUSED(dry_penalty_last_n, -2, "dry_penalty_last_n is -2");
	REFUSED(mirostat, 1, "mirostat is 1");
	REFUSED(mirostat_tau, -1, "mirostat_tau is -1");
	REFUSED(mirostat_eta, NAN, "mirostat_eta is nan");
	REFUSED(dynatemp_range, -1, "dynatemp_range is -1");
	REFUSED(dynatemp_exponent, NAN, "dynatemp_exponent is nan");
#undef REFUSED
	const struct lap_logit_bias bias[] = {{100, 1}, {-1, 1}, {5, NAN}, {5, INFINITY}};
	static const char *const words[] = {"token 100", "token -1", "is nan", "is inf"};
	for (size_t i = 0; i < ARRAY_COUNT(bias); i++) {
		s = plain;
		s.logit_bias = &bias[i];
		s.n_logit_bias = 1;
		expect_refused(s, words[i]);
	}
}

Test(sampler_chain, names_of_steps)
{
	/* each order keeps what top_k 2 leaves, and no more than what is named */
	static const char *const names[] = {" top_k ", "top-k", "top_k;", ";;top_k", "top_k;dry"};
	const float logits[] = {0, 1, 2, 3};
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		struct lap_sampling p = plain;
		p.top_k = 2;
		p.min_p = 1;
		p.samplers = names[i];
		cr_expect_eq(kept_set(p, logits, 4), 12, "\"%s\"", names[i]);
	}
}

/* ---- which of the two ---- */

static void expect_needed(const struct lap_sampling *s, bool expected, const char *what)
{
	cr_expect_eq(sampler_chain_needed(s), expected, "%s", what);
}

Test(sampler_chain, needed)
{
	static const struct lap_logit_bias many[MAX_BIAS + 1];
	struct lap_sampling usual = lap_sampling_default(), s;
	bool last;
	cr_expect(!sampler_chain_needed(&usual));
	cr_expect(!sampler_chain_needed(&(struct lap_sampling){0}));
	usual.repeat_penalty = 1.1f;
#define NEEDED(expected, field, value) \
	(s = usual, s.field = value, expect_needed(&s, expected, #field " " #value))
	NEEDED(false, samplers, "hf");
	NEEDED(false, samplers, "llama.cpp");
	NEEDED(false, samplers, "");
	NEEDED(false, samplers, "penalties;top_k;temperature;top_p;min_p");
	NEEDED(false, samplers, "penalties;top_k;top_p");
	NEEDED(false, samplers, "temperature;top_k");
	NEEDED(false, samplers, ";");
	NEEDED(false, samplers, "xtc;dry;penalties;typ_p;min_p");
	NEEDED(true, samplers, "penalties;top_p;temperature;min_p");
	NEEDED(true, samplers, "top_k;penalties");
	NEEDED(true, samplers, "temperature;penalties");
	NEEDED(true, samplers, "top_p;top_k");
	NEEDED(true, samplers, "min_p;top_p");
	NEEDED(true, samplers, "nonsense");
	NEEDED(true, typical_p, 0.5f);
	NEEDED(true, top_n_sigma, 1);
	NEEDED(true, xtc_probability, 0.1f);
	NEEDED(true, dry_multiplier, 0.8f);
	NEEDED(true, mirostat, 2);
	NEEDED(true, dynatemp_range, 0.5f);
	NEEDED(true, min_keep, 2);
	NEEDED(false, min_keep, 1);
	s = usual;
	s.logit_bias = many;
	s.n_logit_bias = MAX_BIAS;
	cr_expect(!sampler_chain_needed(&s));
	s.n_logit_bias++;
	cr_expect(sampler_chain_needed(&s));
	usual.typical_p = 0.5f;
	NEEDED(false, samplers, "hf");
	NEEDED(true, samplers, "llama.cpp");
#undef NEEDED

	usual = lap_sampling_default();
	s = sampler_chain_step(&usual, &last);
	cr_expect_eq(s.temperature, 0.8f);
	cr_expect(!last);
	usual.samplers = "llama.cpp";
	s = sampler_chain_step(&usual, &last);
	cr_expect_eq(s.top_k, 40);
	cr_expect(last);
	usual.samplers = "penalties;top_k;top_p";
	usual.presence_penalty = 1;
	s = sampler_chain_step(&usual, &last);
	cr_expect_eq(s.temperature, 1);
	cr_expect_eq(s.top_p, 0.95f);
	cr_expect_eq(s.min_p, 0);
	cr_expect_eq(s.presence_penalty, 1);
	usual.samplers = ";";
	s = sampler_chain_step(&usual, &last);
	cr_expect_eq(s.top_k, 0);
	cr_expect_eq(s.top_p, 1);
	cr_expect_eq(s.presence_penalty, 0);
	cr_expect_eq(s.repeat_penalty, 1);
	usual.temperature = 0;
	cr_expect_eq(sampler_chain_step(&usual, &last).temperature, 0, "greedy whatever the order");
}

/* ---- the same as sampler.c ---- */

/* Returns how many tokens stay. */
static uint32_t compare(const struct lap_sampling *p, const float *logits, uint32_t n_vocab,
	const uint32_t *history, uint32_t n_history, uint32_t pos)
{
	float *scratch = malloc(n_vocab * sizeof *scratch);
	uint32_t *count = malloc(n_vocab * sizeof *count), n_kept = 0, random[4];
	struct sequence s = {0};
	struct lap_error err = {0};
	cr_assert_eq(sampler_set(&s, p, n_vocab, n_ctx, &err), LAP_OK, "%s", err.text);
	sampler_count(&s, history, n_history, count, n_vocab);
	struct sampler_row row = sampler_cut(&s, logits, n_vocab, count, scratch);
	struct sampler_chain *chain = make(*p, n_vocab);
	struct candidates c = {0};
	apply(chain, logits, history, n_history, pos, &c);
	for (uint32_t i = 0; i < n_vocab; i++)
		if (sampler_keeps(&row, i) && logits[i] > -INFINITY) { /* never drawn anyway */
			cr_assert_lt(n_kept, c.n);
			cr_assert_eq(c.items[n_kept].id, i);
			cr_assert_eq(
				c.items[n_kept++].mass, sampler_mass(sampler_distance(&row, i)));
		}
	cr_assert_eq(c.n, n_kept);
	cr_assert_eq(c.mass, row.mass_kept);
	sampler_chain_random(chain, pos, SAMPLER_DRAW, random);
	struct sample_result ours = candidates_draw(&c, random);
	struct sample_result theirs = sampler_sample(&s, logits, n_vocab, count, pos, scratch);
	cr_assert_eq(ours.token, theirs.token);
	cr_assert_eq(ours.log_prob, theirs.log_prob);
	sampler_chain_destroy(chain);
	candidates_free(&c);
	free(scratch);
	free(count);
	return n_kept;
}

Test(sampler_chain, draws_as_the_recorded_step)
{
	static const uint32_t sizes[] = {1, 2, 5, 64, 127, 320, 1999};
	static const int32_t top_k[] = {0, 1, 7, 40};
	static const float top_p[] = {1, 0.95f, 0.5f, 0.03f, 0};
	static const float min_p[] = {0, 0.05f, 1};
	static const float temperature[] = {0, 0.3f, 0.8f, 1, 1.7f};
	enum { N_HISTORY = 40, N_LARGEST = 2000 };
	static float logits[N_LARGEST];
	uint32_t history[N_HISTORY], n_checked = 0, n_many = 0;
	uint64_t state = 11;
	for (size_t is = 0; is < ARRAY_COUNT(sizes); is++)
		for (uint32_t ic = 0; ic < 300; ic++) {
			uint32_t n = sizes[is];
			for (uint32_t i = 0; i < n; i++) {
				float x = (float)(random_unit(&state) * 12 - 9);
				logits[i] = ic & 1 ? floorf(x * 2) / 2 : x; /* half of them tie */
			}
			if (n > 2 && ic % 7 == 0)
				logits[n / 2] = -INFINITY;
			for (uint32_t i = 0; i < N_HISTORY; i++)
				history[i] = (uint32_t)(random_unit(&state) * n);
			struct lap_sampling p = {
				.temperature = temperature[ic % 5],
				.top_k = top_k[ic / 5 % 4],
				.top_p = top_p[ic / 20 % 5],
				.min_p = min_p[ic / 100 % 3],
				.repeat_penalty = ic % 3 ? 1.3f : 1,
				.presence_penalty = ic % 4 ? 0 : 0.2f,
				.frequency_penalty = ic % 6 ? 0 : 0.1f,
				.repeat_last_n = (int32_t)(ic % 11) * 5 - 1,
				.seed = ic * 0x123456789u,
				.samplers = ic % 2 ? "hf" : NULL,
			};
			n_many += compare(&p, logits, n, history, N_HISTORY, ic) > 1;
			n_checked++;
		}
	cr_expect_eq(n_checked, 2100);
	cr_expect_gt(n_many, 500, "%u with something to draw", n_many);
}

/* ---- what callers look at ---- */

Test(sampler_chain, draws_follow_the_distribution)
{
	enum { N_DRAWS = 40000, N_VOCAB = 8 };
	const float logits[N_VOCAB] = {0, 1, -1.5f, 2, 0.5f, -3, 1.5f, -6};
	struct lap_sampling p = plain;
	p.temperature = 0.9f;
	p.typical_p = 0.9f;
	p.seed = 12345;
	struct sampler_chain *chain = make(p, N_VOCAB);
	struct candidates c = {0};
	apply(chain, logits, NULL, 0, 0, &c);
	cr_assert(c.n > 2 && c.n < N_VOCAB);
	double sum = 0, kept = 0;
	for (uint32_t i = 0; i < N_VOCAB; i++)
		kept += find(&c, i) ? exp((double)logits[i] / 0.9) : 0;
	uint32_t seen[N_VOCAB] = {0};
	for (uint32_t pos = 0; pos < N_DRAWS; pos++) {
		uint32_t random[4];
		sampler_chain_random(chain, pos, SAMPLER_DRAW, random);
		seen[candidates_draw(&c, random).token]++;
	}
	for (uint32_t i = 0; i < N_VOCAB; i++) {
		const struct candidate *item = find(&c, i);
		double q = item ? exp((double)logits[i] / 0.9) / kept : 0;
		cr_expect_float_eq(item ? item->p : 0, q, 1e-6);
		cr_expect(fabs(seen[i] - N_DRAWS * q) <= 5 * sqrt(N_DRAWS * q * (1 - q)),
			"token %u: %u of %g", i, seen[i], N_DRAWS * q);
		sum += item ? item->p : 0;
	}
	cr_expect_float_eq(sum, 1, 1e-12);
	candidates_free(&c);
	sampler_chain_destroy(chain);
}

Test(sampler_chain, draw_ends)
{
	/* the masses are equal: quarters of the random numbers */
	const float logits[] = {1, 1, 1, 1};
	struct candidates c = survivors(plain, logits, 4);
	static const uint32_t words[][2] = {{0, 0}, {0x3fffffff, ~0u}, {0x40000000, 0},
		{0x7fffffff, ~0u}, {0xbfffffff, ~0u}, {0xc0000000, 0}, {~0u, ~0u}};
	static const uint32_t expected[] = {0, 0, 1, 1, 2, 3, 3};
	for (size_t i = 0; i < ARRAY_COUNT(words); i++)
		cr_expect_eq(candidates_draw(&c, words[i]).token, expected[i], "case %zu", i);
	candidates_free(&c);
	/* what has no mass is not drawn, at either end */
	const float spread[] = {-100, 0, -100};
	c = survivors(plain, spread, 3);
	cr_expect_eq(c.n, 3);
	cr_expect_eq(candidates_draw(&c, words[0]).token, 1);
	cr_expect_eq(candidates_draw(&c, words[6]).token, 1);
	candidates_free(&c);
}

Test(sampler_chain, log_probabilities_are_before_truncation)
{
	const float logits[] = {3, 2, 1, -INFINITY};
	double sum = exp(6) + exp(4) + exp(2);
	struct lap_sampling p = plain;
	p.temperature = 0.5f;
	p.top_k = 1;
	for (int i = 0; i < 2; i++, p = llama_order(p)) {
		struct sampler_chain *chain = make(p, 4);
		struct candidates c = {0};
		struct candidate best[4];
		apply(chain, logits, NULL, 0, 0, &c);
		cr_assert_eq(c.n, 1);
		cr_expect_eq(c.items[0].p, 1);
		cr_expect_float_eq(c.items[0].log_prob, 6 - log(sum), 1e-6);
		cr_expect_eq(sampler_chain_best(chain, 2, best), 2);
		cr_expect_eq(best[1].id, 1);
		cr_expect_eq(sampler_chain_best(chain, 4, best), 3, "the forbidden one is none");
		for (uint32_t j = 0; j < 3; j++) {
			cr_expect_eq(best[j].id, j);
			cr_expect_float_eq(best[j].log_prob, 6 - 2 * (double)j - log(sum), 1e-6);
		}
		cr_expect_eq(sampler_chain_best(chain, 0, best), 0);
		candidates_free(&c);
		sampler_chain_destroy(chain);
	}
	const float ties[] = {1, 2, 2, 1};
	struct sampler_chain *chain = make(plain, 4);
	struct candidates c = {0};
	struct candidate best[3];
	apply(chain, ties, NULL, 0, 0, &c);
	cr_expect_eq(sampler_chain_best(chain, 3, best), 3);
	cr_expect(best[0].id == 1 && best[1].id == 2 && best[2].id == 0);
	candidates_free(&c);
	sampler_chain_destroy(chain);
}
