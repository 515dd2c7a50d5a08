/* Speculation: what the text lets guess, how guesses are accepted, and generations with it on the CPU
 * reference beside the same without. */
#include "speculation.h"

#include "sampler.h"

static const char *tiny(void)
{
	return vector_path("golden/llama-freqs.gguf");
}

static const char *other(void)
{
	return vector_path("golden/llama-yarn.gguf");
}

/* ---- n-grams ---- */

static void expect_ngram(const int32_t *tokens, uint32_t n, uint32_t most, const int32_t *expected,
	uint32_t n_expected)
{
	int32_t guess[MAX_DRAFT] = {0};
	cr_assert_eq(draft_ngram(tokens, n, most, guess), n_expected);
	for (uint32_t i = 0; i < n_expected; i++)
		cr_expect_eq(guess[i], expected[i], "guess %u is %d, expected %d", (unsigned)i,
			(int)guess[i], (int)expected[i]);
}

#define TOKENS(...) (const int32_t[]){__VA_ARGS__}, ARRAY_COUNT(((const int32_t[]){__VA_ARGS__}))

Test(draft, ngrams)
{
	/* three tokens beat two, however far back; of equal ones the latest counts */
	expect_ngram(TOKENS(1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3), 2, (int32_t[]){4, 9}, 2);
	expect_ngram(TOKENS(1, 2, 3, 4, 9, 1, 2, 3, 5, 6, 1, 2, 3), 2, (int32_t[]){5, 6}, 2);
	expect_ngram(TOKENS(7, 2, 3, 4, 9, 3, 8, 1, 2, 3), 1, (int32_t[]){4}, 1);
	expect_ngram(TOKENS(7, 3, 4, 1, 3), 2, (int32_t[]){4, 1}, 2);
	/* beyond the end it goes on from itself */
	expect_ngram(TOKENS(5, 6, 5, 6), 5, (int32_t[]){5, 6, 5, 6, 5}, 5);
	expect_ngram(TOKENS(8, 8), 3, (int32_t[]){8, 8, 8}, 3);
	expect_ngram(TOKENS(1, 2, 3, 4), 4, NULL, 0);
	expect_ngram(TOKENS(1), 4, NULL, 0);
	expect_ngram(TOKENS(8, 8), 0, NULL, 0);
}

/* ---- acceptance ---- */

#define N_WORDS 12 /* vocabulary */
#define N_DRAWS 100000

/* Chi-square of counts against N_DRAWS draws from p; *n_free: degrees of freedom. */
static double chi_square(
	const uint32_t *count, const double *p, size_t n, double n_draws, int *n_free)
{
	double sum = 0;
	*n_free = -1;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == 0) {
			cr_assert_eq(count[i], 0, "%zu was drawn and may not be", i);
			continue;
		}
		double expected = p[i] * n_draws, d = count[i] - expected;
		sum += d * d / expected;
		++*n_free;
	}
	return sum;
}

/* What chi-square exceeds once in 10,000 times (Wilson and Hilferty 1931). */
static double chi_limit(int n_free)
{
	const double z = 3.719, v = 2.0 / (9.0 * n_free);
	return n_free * pow(1 - v + z * sqrt(v), 3);
}

struct pair {
	struct lap_sampling p, q;
	float likeness; /* of the logits: 1 the same, 0 others */
};

static const struct pair pairs[] = {
	{{.temperature = 1}, {.temperature = 1}, 0},
	{{.temperature = 1}, {.temperature = 1}, 0.9f},
	{{.temperature = 0.7f, .top_k = 5}, {.temperature = 1.5f}, 0.7f},
	{{.temperature = 1}, {.temperature = 0.5f, .top_k = 3}, 0.8f},
	{{.temperature = 1.2f, .top_p = 0.8f}, {.temperature = 0.9f, .top_k = 4}, 0.5f},
	{{.temperature = 1, .top_p = 0.9f}, {.temperature = 1, .min_p = 0.3f}, 1},
	{{.temperature = 0.8f, .top_k = 2}, {.temperature = 0.8f, .top_k = 2},
		0}, /* often disjoint */
	{{.temperature = 1}, {.temperature = 1}, 1},
};

static struct lap_sampling filled(struct lap_sampling sampling, uint64_t seed)
{
	sampling.top_p = sampling.top_p > 0 ? sampling.top_p : 1;
	sampling.repeat_penalty = 1;
	sampling.seed = seed;
	return sampling;
}

static void distribution(const struct lap_sampling *sampling, const float *logits,
	struct sampler_chain **chain, struct candidates *c, double p[N_WORDS])
{
	struct lap_error err = {0};
	const uint32_t history = 0;
	cr_assert_eq(
		sampler_chain_create(sampling, N_WORDS, 16, chain, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(sampler_chain_apply(*chain, logits, &history, 1, 0, NULL, c, &err), LAP_OK);
	memset(p, 0, N_WORDS * sizeof(*p));
	for (uint32_t i = 0; i < c->n; i++)
		p[c->items[i].id] = c->items[i].p;
}

/* 100,000 guesses from q, accepted or not, are distributed as p, and accepted as often as
 * sum(min(p, q)); guesses that are all taken are not (unless q is p). */
Test(draft, acceptance_is_exact)
{
	for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
		const struct lap_sampling for_p = filled(pairs[i].p, 11 + i),
					  for_q = filled(pairs[i].q, 11 + i);
		struct sampler_chain *chain_p, *chain_q;
		struct candidates p = {0}, q = {0};
		double prob_p[N_WORDS], prob_q[N_WORDS], rate = 0;
		float logits_p[N_WORDS], logits_q[N_WORDS];
		uint32_t count[N_WORDS] = {0}, guessed[N_WORDS] = {0}, n_right = 0, random[4];
		for (uint32_t j = 0; j < N_WORDS; j++) {
			philox((uint32_t[4]){j, (uint32_t)i, 0, 0}, (uint32_t[2]){5, 6}, random);
			logits_p[j] = (float)(random[0] >> 8) * 0x1p-24f * 3;
			logits_q[j] = pairs[i].likeness * logits_p[j] +
				(1 - pairs[i].likeness) * (float)(random[1] >> 8) * 0x1p-24f * 3;
		}
		distribution(&for_p, logits_p, &chain_p, &p, prob_p);
		distribution(&for_q, logits_q, &chain_q, &q, prob_q);
		for (uint32_t j = 0; j < N_WORDS; j++)
			rate += fmin(prob_p[j], prob_q[j]);
		for (uint32_t j = 0; j < N_DRAWS; j++) {
			sampler_chain_random(chain_q, j, DRAFT_DRAW, random);
			const uint32_t guess = candidates_draw(&q, random).token;
			sampler_chain_random(chain_p, j, DRAFT_VERDICT, random);
			const struct sample_result r = draft_accept(&p, &q, guess, random);
			count[r.token]++;
			guessed[guess]++;
			n_right += r.token == guess;
			for (uint32_t k = 0; k < p.n; k++)
				if (p.items[k].id == r.token)
					cr_assert_eq(r.log_prob, p.items[k].log_prob);
		}
		int n_free;
		const double chi = chi_square(count, prob_p, N_WORDS, N_DRAWS, &n_free);
		cr_expect_lt(chi, chi_limit(n_free), "pair %zu: chi-square %.1f, %d free", i, chi,
			n_free);
		const double deviation = sqrt(N_DRAWS * rate * (1 - rate)) + 1;
		cr_expect(fabs(n_right - N_DRAWS * rate) < 4 * deviation,
			"pair %zu: %u accepted, expected %.0f", i, (unsigned)n_right,
			N_DRAWS * rate);
		double all_taken = 0; /* this test can tell */
		for (uint32_t j = 0; j < N_WORDS; j++)
			all_taken += pow(guessed[j] - prob_p[j] * N_DRAWS, 2) /
				fmax(prob_p[j] * N_DRAWS, 1);
		cr_expect(rate > 0.9999 || all_taken > 10 * chi_limit(n_free),
			"pair %zu: %.1f when all are taken", i, all_taken);
		sampler_chain_destroy(chain_p);
		sampler_chain_destroy(chain_q);
		candidates_free(&p);
		candidates_free(&q);
	}
}

/* By hand: p = 1/4, 3/4; q = 3/4, 1/4. Token 0 is kept in a third of the cases, token 1 always. */
Test(draft, acceptance_by_hand)
{
	struct candidate in_p[] = {{.id = 3, .p = 0.25, .log_prob = -7}, {.id = 5, .p = 0.75}},
			 in_q[] = {{.id = 3, .p = 0.75}, {.id = 5, .p = 0.25}},
			 far[] = {{.id = 4, .p = 1}};
	const struct candidates p = {.items = in_p, .n = 2}, q = {.items = in_q, .n = 2},
				apart = {.items = far, .n = 1};
	const uint32_t third = UINT32_MAX / 3, below[4] = {third - 1, 0, 0, 0},
		       above[4] = {third + 1, 0, 0, 0}, most[4] = {~0u, ~0u, ~0u, ~0u},
		       high[4] = {0, 0, 0x40000001, 0}, low[4] = {0, 0, 0x3fffffff, 0};
	cr_expect_eq(draft_accept(&p, &q, 3, below).token, 3);
	cr_expect_eq(draft_accept(&p, &q, 3, below).log_prob, -7);
	cr_expect_eq(draft_accept(&p, &q, 3, above).token, 5);
	cr_expect_eq(draft_accept(&p, &q, 3, most).token, 5);
	cr_expect_eq(draft_accept(&p, &q, 5, most).token, 5);
	cr_expect_eq(draft_accept(&p, &p, 3, most).token, 3, "p = q: always");
	cr_expect_eq(draft_accept(&p, &apart, 4, high).token, 5, "all of p is left, 1/4 is 3");
	cr_expect_eq(draft_accept(&p, &apart, 4, low).token, 3);
}

/* What a draft has learnt from guesses that were wrong is forgotten: mirostat's surprise goes on behind
 * the last right one and the token that came in its place. */
Test(draft, wrong_guesses_are_forgotten)
{
	const struct lap_sampling sampling = filled(
		(struct lap_sampling){.temperature = 1, .mirostat = 2, .mirostat_tau = 3}, 1);
	struct draft d = {.drawn = true, .n = 3};
	struct sampler_chain *expected;
	struct lap_error err = {0};
	double p[N_WORDS];
	float logits[N_WORDS];
	for (uint32_t j = 0; j < N_WORDS; j++)
		logits[j] = (float)j / 4;
	distribution(&sampling, logits, &d.chain, &d.q[0], p);
	cr_assert_eq(sampler_chain_clone(d.chain, &expected, &err), LAP_OK);
	sampler_chain_accept(expected, &d.q[0], 11);
	for (uint32_t i = 0; i < d.n; i++) {
		d.states[i] = sampler_chain_save(d.chain);
		if (i) {
			const uint32_t history = 0;
			cr_assert_eq(sampler_chain_apply(
					     d.chain, logits, &history, 1, i, NULL, &d.q[i], &err),
				LAP_OK);
		}
		d.tokens[i] = i == 0 ? 11 : 9;
		sampler_chain_accept(d.chain, &d.q[i], (uint32_t)d.tokens[i]);
	}
	sampler_chain_accept(expected, &d.q[1], 8);
	draft_settle(&d, 1, 8);
	cr_expect_eq(sampler_chain_save(d.chain).mu, sampler_chain_save(expected).mu);
	cr_expect_eq(d.n, 0);
	sampler_chain_destroy(d.chain);
	sampler_chain_destroy(expected);
	for (uint32_t i = 0; i < 3; i++)
		candidates_free(&d.q[i]);
}

/* ---- generations ---- */

Test(draft, greedy_equals_plain)
{
	greedy_equals_plain(tiny(), other(), "cpu", test_small() ? 20 : 50, 4);
}

Test(draft, batch)
{
	drafts_in_a_batch(tiny(), other(), "cpu", 40);
}

Test(draft, wrong_guesses_change_nothing)
{
	SKIP_WITHOUT("golden/gemma3-plain.gguf");
	wrong_guesses_change_nothing(shared_path("golden/gemma3-plain.gguf"), "cpu", 60);
	wrong_guesses_change_nothing(shared_path("golden/gpt2-plain.gguf"), "cpu", 30);
	wrong_guesses_change_nothing(shared_path("golden/qwen3moe-plain.gguf"), "cpu", 30);
	wrong_guesses_change_nothing(shared_path("golden/qwen35-plain.gguf"), "cpu", 60);
}

/* Guesses that are certain change nothing where tokens are drawn either, whoever draws them. */
Test(draft, drawn_tokens_equal_plain)
{
	static struct collected plain, guessed;
	const struct lap_session_options so = {.n_ctx = 128, .n_draft = 7, .n_top = 3};
	const struct lap_sampling greedily = greedy();
	struct lap_model *m = open_model(tiny(), "cpu"), *d = open_model(other(), "cpu");
	struct lap_session *s = open_session(m, &so), *draft = open_session(d, NULL),
			   *same = open_session(m, NULL);
	for (int way = 0; way < 5; way++) {
		struct lap_generate_options o = {.sampling = warm(),
			.n_predict = 45,
			.ignore_eos = true,
			.min_tokens = 20,
			.stop_tokens = (const int32_t[]){20},
			.n_stop_tokens = 1,
			.banned = (const int32_t[]){81},
			.n_banned = 1,
			.n_top = 3};
		o.sampling.temperature = way == 2 ? 0.5f : 0.3f;
		o.sampling.repeat_penalty = way == 1 ? 1.2f : 1;
		o.sampling.frequency_penalty = way == 1 ? 0.1f : 0;
		o.sampling.mirostat = way == 2 ? 2 : 0;
		o.sampling.mirostat_tau = 2;
		o.sampling.dry_multiplier = way == 3 ? 0.8f : 0;
		struct lap_generation a = speculate(s, &o, &plain);
		o.n_draft = 5;
		for (int source = 0; source < 3; source++) {
			o.draft_ngram = source == 0;
			o.draft = source == 1 ? same : source == 2 ? draft : NULL;
			o.draft_sampling = source ? &greedily : NULL;
			struct lap_generation b = speculate(s, &o, &guessed);
			expect_same(&guessed, &plain, "drawn", "");
			cr_expect_eq(a.finish, b.finish);
			cr_expect_gt(b.n_drafted, 0);
			if (source == 1)
				cr_expect_gt(b.n_accepted, 0, "way %d", way);
		}
	}
	lap_session_destroy(s);
	lap_session_destroy(draft);
	lap_session_destroy(same);
	lap_model_close(m);
	lap_model_close(d);
}

/* A draft that is drawn from the same distribution is always right; greedy tokens stay whatever a draft
 * draws from; the same seed gives the same again. */
Test(draft, drawn_guesses)
{
	static struct collected plain, first, again;
	const struct lap_session_options so = {.n_ctx = 128, .n_draft = 7};
	const struct lap_sampling hot = {.temperature = 2, .top_k = 3, .top_p = 1};
	struct lap_model *m = open_model(tiny(), "cpu");
	struct lap_session *s = open_session(m, &so), *same = open_session(m, &so);
	struct lap_generate_options o = {.sampling = warm(),
		.n_predict = 80,
		.ignore_eos = true,
		.n_draft = 5,
		.draft = same};
	for (int mirostat = 0; mirostat < 2; mirostat++) {
		o.sampling.mirostat = mirostat ? 2 : 0;
		struct lap_generation r = speculate(s, &o, &first);
		cr_expect_gt(r.n_drafted, 50);
		/* mirostat of the draft does not know the first token */
		cr_expect(mirostat || r.n_accepted == r.n_drafted, "%zu of %zu", r.n_accepted,
			r.n_drafted);
		cr_expect_gt(r.n_accepted * 2, r.n_drafted);
		speculate(s, &o, &again);
		expect_same(&again, &first, "again", "");
	}
	o.sampling = greedy();
	o.draft_sampling = &hot;
	struct lap_generation r = speculate(s, &o, &first);
	cr_expect(r.n_accepted > 0 && r.n_accepted < r.n_drafted, "%zu of %zu", r.n_accepted,
		r.n_drafted);
	o.n_draft = 0;
	speculate(s, &o, &plain);
	expect_same(&first, &plain, "greedy tokens, drawn guesses", "");
	lap_session_destroy(s);
	lap_session_destroy(same);
	lap_model_close(m);
}

#define N_KEPT  3 /* tokens that top_k leaves */
#define N_TEXTS 27
#define N_RUNS  1200

/* Probabilities of all three tokens that can follow the prompt. */
static void each_text(struct lap_model *m, const struct lap_sampling *sampling,
	int32_t text[N_TEXTS][3], double p[N_TEXTS])
{
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	struct lap_session *s = open_session(m, NULL);
	struct timeline *t = &s->timelines[0];
	struct sampler_chain *chain;
	struct candidates c[3] = {{0}};
	struct lap_error err = {0};
	float *logits = malloc(n_vocab * sizeof(float));
	int32_t tokens[N_PROMPT + 2];
	memcpy(tokens, repeating_prompt(), N_PROMPT * sizeof(*tokens));
	cr_assert_eq(session_prefill(s, t, tokens, N_PROMPT - 1, &err), LAP_OK);
	cr_assert_eq(sampler_chain_create(sampling, n_vocab, s->n_ctx, &chain, &err), LAP_OK);
	for (uint32_t i = 0; i < N_TEXTS; i++) {
		const uint32_t which[3] = {i / 9, i / 3 % 3, i % 3};
		p[i] = 1;
		for (uint32_t j = 0; j < 3; j++) {
			if (i % 9 == 0 || (i % 3 == 0 && j == 2)) {
				timeline_truncate(s, t, N_PROMPT - 1 + j);
				if (j == 2)
					cr_assert_eq(t->n_past, N_PROMPT + 1);
			}
			if (t->n_past == N_PROMPT - 1 + j) {
				cr_assert_eq(
					session_step(s, tokens[t->n_past], logits, &err), LAP_OK);
				cr_assert_eq(
					sampler_chain_apply(chain, logits, (const uint32_t *)tokens,
						N_PROMPT + j, 0, NULL, &c[j], &err),
					LAP_OK);
				cr_assert_eq(c[j].n, N_KEPT);
			}
			text[i][j] = (int32_t)c[j].items[which[j]].id;
			p[i] *= c[j].items[which[j]].p;
			if (j < 2)
				tokens[N_PROMPT + j] = text[i][j];
		}
	}
	free(logits);
	for (uint32_t j = 0; j < 3; j++)
		candidates_free(&c[j]);
	sampler_chain_destroy(chain);
	lap_session_destroy(s);
}

/* From prompt to tokens: texts of three tokens come as often as they should, though the draft draws from
 * another model or at another temperature. */
Test(draft, texts_are_distributed_as_without)
{
	static int32_t text[N_TEXTS][3];
	const struct lap_session_options so = {.n_ctx = 64, .n_draft = 3};
	const struct lap_sampling hot =
		filled((struct lap_sampling){.temperature = 5, .top_k = 4}, 0);
	const size_t n_runs = test_small() ? 500 : N_RUNS;
	struct lap_model *m = open_model(tiny(), "cpu");
	struct lap_session *s = open_session(m, &so), *same = open_session(m, &so);
	struct lap_generate_options o = {
		.sampling = filled((struct lap_sampling){.temperature = 0.7f, .top_k = N_KEPT}, 0),
		.n_predict = 3,
		.ignore_eos = true,
		.n_draft = 3,
		.draft = same,
		.draft_sampling = &hot};
	uint32_t count[N_TEXTS] = {0};
	double p[N_TEXTS];
	size_t n_drafted = 0, n_accepted = 0;
	each_text(m, &o.sampling, text, p);
	for (size_t run = 0; run < n_runs; run++) {
		static struct collected c;
		o.sampling.seed = run;
		struct lap_generation r = speculate(s, &o, &c);
		n_drafted += r.n_drafted;
		n_accepted += r.n_accepted;
		uint32_t i = 0;
		while (i < N_TEXTS && memcmp(text[i], c.ids, sizeof(text[i])) != 0)
			i++;
		cr_assert_lt(i, N_TEXTS, "run %zu: %d %d %d cannot be", run, (int)c.ids[0],
			(int)c.ids[1], (int)c.ids[2]);
		count[i]++;
	}
	int n_free;
	const double chi = chi_square(count, p, N_TEXTS, (double)n_runs, &n_free);
	cr_expect_lt(chi, chi_limit(n_free), "chi-square %.1f, %d free", chi, n_free);
	cr_expect(n_accepted * 10 > n_drafted * 3 && n_accepted * 10 < n_drafted * 9, "%zu of %zu",
		n_accepted, n_drafted);
	lap_session_destroy(s);
	lap_session_destroy(same);
	lap_model_close(m);
}

/* ---- limits ---- */

/* Contexts that fill up, are shifted or cropped, and a pool with hardly any room. */
Test(draft, full_contexts)
{
	static const enum lap_overflow how[] = {
		LAP_OVERFLOW_STOP, LAP_OVERFLOW_SHIFT, LAP_OVERFLOW_CROP};
	static struct collected plain, guessed;
	const struct lap_session_options so = {.n_ctx = 64, .n_draft = 7},
					 tiny_pool = {.n_ctx = 33};
	struct lap_model *m = open_model(tiny(), "cpu");
	struct lap_session *s = open_session(m, &so), *draft = open_session(m, NULL),
			   *small = open_session(m, &tiny_pool);
	for (size_t i = 0; i < ARRAY_COUNT(how); i++) {
		struct lap_generate_options o = {.sampling = greedy(),
			.n_predict = how[i] == LAP_OVERFLOW_STOP ? -1
				: how[i] == LAP_OVERFLOW_CROP    ? 45
								 : 90,
			.ignore_eos = true,
			.overflow = how[i]};
		struct lap_generation a = speculate(s, &o, &plain);
		for (int source = 0; source < 3; source++) {
			o.n_draft = 7;
			o.draft_ngram = source == 0;
			o.draft = source == 1 ? draft : source == 2 ? small : NULL;
			struct lap_generation b = speculate(s, &o, &guessed);
			expect_same(&guessed, &plain, "full", "");
			cr_expect_eq(a.finish, b.finish);
			cr_expect_eq(a.n_shifts, b.n_shifts);
			cr_expect_eq(s->full.n_free + s->timelines[0].full.n, s->full.n_blocks);
			cr_expect_gt(b.n_drafted, 0);
			/* it keeps in step with contexts that are cut */
			if (source == 1)
				cr_expect_gt(b.n_accepted * 10, b.n_drafted * 8, "%zu of %zu",
					b.n_accepted, b.n_drafted);
		}
	}
	lap_session_destroy(s);
	lap_session_destroy(draft);
	lap_session_destroy(small);
	lap_model_close(m);
}

/* Guesses take no block that a neighbour needs: what fits without them fits with them. */
Test(draft, no_room_for_guesses)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_seq = 2, .n_ctx = 64, .n_draft = 15};
	struct lap_session *s = open_session(m, &so);
	struct lap_generate_options o = {.sampling = greedy(),
		.n_predict = 64 - N_PROMPT - 16,
		.ignore_eos = true,
		.n_draft = 15,
		.draft_ngram = true};
	/* three blocks of 32 in all: 48 tokens take two, so the other must wait for the third */
	struct lap_request r[2] = {{repeating_prompt(), N_PROMPT, &o, NULL, NULL, {0}, LAP_OK, {0}},
		{repeating_prompt() + 4, 5, &o, NULL, NULL, {0}, LAP_OK, {0}}};
	cr_assert_eq(lap_generate_batch(s, r, 2, NULL), LAP_OK);
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(r[i].status, LAP_OK, "%s", r[i].error.text);
		cr_expect_eq(r[i].result.n_generated, (size_t)o.n_predict);
		cr_expect_gt(r[i].result.n_drafted, 0);
	}
	lap_session_destroy(s);
	lap_model_close(m);
}

static bool six_tokens(void *user, const struct lap_token *token)
{
	int *n = user;
	(void)token;
	return ++*n < 6;
}

/* Nor does a block that guesses took and did not fill stay taken. */
Test(draft, no_block_is_kept_for_guesses)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_seq = 2, .n_ctx = 64, .n_draft = 15};
	struct lap_session *s = open_session(m, &so);
	struct lap_generate_options guesses = {.sampling = greedy(),
					    .n_predict = 30,
					    .ignore_eos = true,
					    .n_draft = 7,
					    .draft_ngram = true},
				    plain = {.sampling = greedy(),
					    .n_predict = 12,
					    .ignore_eos = true};
	int32_t prompt[31];
	int n = 0;
	for (int32_t i = 0; i < 31; i++)
		prompt[i] = 7 + i * 9;
	/* of three blocks of 32 each has one; guesses look into a second, which the other comes to need
	 * before the first ends */
	struct lap_request r[2] = {
		{repeating_prompt(), N_PROMPT, &guesses, six_tokens, &n, {0}, LAP_OK, {0}},
		{prompt, 31, &plain, NULL, NULL, {0}, LAP_OK, {0}}};
	cr_assert_eq(lap_generate_batch(s, r, 2, NULL), LAP_OK);
	cr_expect_eq(r[0].status, LAP_OK);
	cr_expect_eq(n, 6);
	cr_expect_eq(r[1].status, LAP_OK, "%s", r[1].error.text);
	cr_expect_eq(r[1].result.n_generated, 12);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* Texts end where they should, in the middle of a draft too; nothing behind is handed on.  The last of them
 * has a grammar, which sees only what was really drawn. */
Test(draft, stops)
{
	static struct collected plain, guessed;
	char *bytes;
	struct lap_model *m = open_model_that_ends(&bytes, "cpu");
	const struct lap_session_options so = {.n_ctx = 256, .n_draft = 15};
	struct lap_session *s = open_session(m, &so), *draft = open_session(m, NULL);
	const char *const strings[] = {"e t"};
	int32_t *tokens;
	size_t n;
	cr_assert_eq(lap_tokenize(m, austen_prompts[0], strlen(austen_prompts[0]), true, true,
			     &tokens, &n, NULL),
		LAP_OK);
	for (int i = 0; i < 4; i++) {
		struct lap_generate_options o = {.sampling = greedy(), .n_predict = 60};
		struct lap_generation a, b;
		o.n_stops = i == 1;
		o.stops = strings;
		o.min_tokens = i == 2 ? 40 : 0;
		o.grammar = i == 3 ? "root ::= (\" \" [a-m]{1,4}){8}" : NULL;
		plain.n = plain.n_text = guessed.n = guessed.n_text = 0;
		cr_assert_eq(lap_generate(s, tokens, n, &o, collect, &plain, &a, NULL), LAP_OK);
		o.n_draft = 15;
		o.draft = draft;
		cr_assert_eq(lap_generate(s, tokens, n, &o, collect, &guessed, &b, NULL), LAP_OK);
		expect_same(&guessed, &plain, "stops", "");
		cr_expect_eq(a.finish, b.finish);
		cr_expect(i == 2 || a.finish == LAP_FINISH_STOP);
		cr_expect_eq(a.kv_tokens, b.kv_tokens);
		cr_expect_str_eq(guessed.text, plain.text);
		cr_expect_gt(b.n_accepted, 0);
	}
	lap_free(tokens);
	lap_session_destroy(s);
	lap_session_destroy(draft);
	lap_model_close(m);
	free(bytes);
}

/* ---- refused ---- */

static void expect_refused(
	struct lap_session *s, const struct lap_generate_options *o, const char *why)
{
	struct lap_error err = {0};
	cr_expect_eq(lap_generate(s, repeating_prompt(), N_PROMPT, o, NULL, NULL, NULL, &err),
		LAP_USAGE);
	cr_expect(strstr(err.text, why), "\"%s\", expected \"%s\"", err.text, why);
}

Test(draft, refused)
{
	const struct lap_session_options so = {.n_draft = 7, .n_seq = 2}, two = {.n_seq = 2};
	struct lap_model *m = open_model(tiny(), "cpu"),
			 *larger = open_model(vector_path("golden/qwen2-plain.gguf"), "cpu");
	struct lap_session *s = open_session(m, &so), *a = open_session(larger, &two),
			   *one = open_session(m, NULL), *good = open_session(m, &two);
	const struct lap_sampling wrong = {.min_p = NAN};
	struct lap_generate_options o = {.n_draft = 4, .n_predict = 2};
	expect_refused(s, &o, "neither a draft model nor n-grams");
	o.draft = a;
	expect_refused(s, &o, "a vocabulary of 331 tokens, expected 320");
	o.draft = one;
	expect_refused(s, &o, "has 1 sequences, expected at least 2");
	o.draft = s;
	expect_refused(s, &o, "cannot draft for itself");
	o.draft = good;
	o.draft_sampling = &wrong;
	expect_refused(s, &o, "of the draft: min_p is nan");
	o.draft_sampling = NULL;
	o.n_draft = 8;
	expect_refused(s, &o, "a draft of 8 tokens, expected at most the 7");
	lap_session_destroy(s);
	lap_session_destroy(a);
	lap_session_destroy(one);
	lap_session_destroy(good);
	lap_model_close(m);
	lap_model_close(larger);
}

/* Where a token and its length begin. */
static size_t find_bytes(const char *bytes, size_t n, const char token[14])
{
	size_t at = 0;
	while (at + 13 < n && memcmp(bytes + at, token, 13) != 0)
		at++;
	cr_assert_lt(at + 13, n, "no such token");
	return at;
}

/* As many tokens, but other ones. */
Test(draft, other_pieces_are_refused)
{
	size_t n;
	char *bytes = read_text(source_path("models/austen.gguf"), &n);
	/* two tokens, each with its length in front, change places */
	static const char the[] = "\5\0\0\0\0\0\0\0\xc4\xa0the",
			  and[] = "\5\0\0\0\0\0\0\0\xc4\xa0"
				  "and";
	struct lap_model_options options = {.device = "cpu", .no_pipeline_cache = true};
	struct lap_model *m = open_model(source_path("models/austen.gguf"), "cpu"), *d;
	const size_t at_the = find_bytes(bytes, n, the), at_and = find_bytes(bytes, n, and);
	memcpy(bytes + at_the, and, sizeof(and) - 1);
	memcpy(bytes + at_and, the, sizeof(the) - 1);
	cr_assert_eq(lap_model_open_memory(bytes, n, "changed", &options, &d, NULL), LAP_OK);
	const struct lap_session_options so = {.n_draft = 7, .n_ctx = 64};
	struct lap_session *s = open_session(m, &so), *draft = open_session(d, NULL);
	struct lap_generate_options o = {.n_draft = 4, .n_predict = 2, .draft = draft};
	expect_refused(s, &o, "\" and\" in the draft model, expected \" the\"");
	lap_session_destroy(s);
	lap_session_destroy(draft);
	lap_model_close(m);
	lap_model_close(d);
	free(bytes);
}
