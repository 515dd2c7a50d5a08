/* Beam search: which beams go on and which are finished, on tables of probabilities; then on the CPU
 * reference, beside a search that computes every beam from scratch. */
#include "beams.h"

#include "sampler.h"

/* ---- tables ------------------------------------------------------------------------------------ */

#define END 0 /* token */

/* Probabilities of the tokens 0 .. n_vocab - 1, by the tokens before. */
struct row {
	const char *text; /* a token is a letter: '0' + token */
	double p[4];
};

struct table {
	const struct row *rows;
	size_t n_rows;
	uint32_t n_vocab;
};

static void look_up(void *user, const int32_t *text, size_t n, float *log_probs)
{
	const struct table *t = user;
	char key[MAX_TEXT + 1] = {0};
	for (size_t i = 0; i < n; i++)
		key[i] = (char)('0' + text[i]);
	for (size_t i = 0; i < t->n_rows; i++)
		if (strcmp(t->rows[i].text, key) == 0) {
			for (uint32_t j = 0; j < t->n_vocab; j++)
				log_probs[j] = (float)log(t->rows[i].p[j]);
			return;
		}
	cr_assert_fail("\"%s\" is looked at, which nobody needs", key);
}

/* A few scores for any text, all different, from a hash of it. */
static void random_table(void *user, const int32_t *text, size_t n, float *log_probs)
{
	const struct table *t = user;
	uint64_t x = 88172645463325252u ^ t->n_rows;
	double p[8], sum = 0;
	for (size_t i = 0; i < n; i++)
		x = (x ^ (uint64_t)(text[i] + 1)) * 0x9E3779B97F4A7C15u;
	for (uint32_t i = 0; i < t->n_vocab; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (double)(x >> 40) + 1;
		sum += p[i];
	}
	for (uint32_t i = 0; i < t->n_vocab; i++)
		log_probs[i] = (float)log(p[i] / sum);
}

/* The scorer on such a model: candidates are what plain sorting gives, cut as a session cuts them. */
static void scorer_search(struct plain_search *out, const struct beam_rules *rules,
	uint32_t n_vocab, model_fn *model, void *user)
{
	static struct way ways[MAX_WAYS];
	struct beam_candidate candidates[MAX_BEAMS * 8];
	struct beam_scorer b;
	struct lap_error err;
	uint32_t parents[MAX_BEAMS];
	int32_t texts[MAX_BEAMS][MAX_TEXT], next[MAX_BEAMS][MAX_TEXT];
	float log_probs[8];
	cr_assert_leq(beam_scorer_wanted(rules), ARRAY_COUNT(candidates));
	beam_scorer_init(&b, rules);
	while (!b.done) {
		size_t n = 0;
		for (uint32_t i = 0; i < b.n_running; i++) {
			model(user, texts[i], b.n_generated, log_probs);
			for (uint32_t j = 0; j < n_vocab; j++)
				if (log_probs[j] > -INFINITY)
					ways[n++] = (struct way){i, (int32_t)j,
						b.running[i].log_prob + log_probs[j]};
		}
		qsort(ways, n, sizeof(*ways), compare_ways);
		if (n > beam_scorer_wanted(rules))
			n = beam_scorer_wanted(rules);
		for (size_t i = 0; i < n; i++)
			candidates[i] = (struct beam_candidate){
				(uint32_t)ways[i].beam, (uint32_t)ways[i].token, ways[i].sum, 0};
		cr_assert_eq(beam_scorer_step(&b, candidates, (uint32_t)n, parents, &err), LAP_OK);
		for (uint32_t i = 0; i < b.n_running; i++) {
			memcpy(next[i], texts[parents[i]], sizeof(next[i]));
			next[i][b.n_generated - 1] = b.nodes[b.running[i].node].token;
		}
		memcpy(texts, next, sizeof(texts));
	}
	*out = (struct plain_search){.rules = *rules, .n_finished = b.n_finished};
	for (uint32_t i = 0; i < b.n_finished; i++) {
		const struct finished_beam *f = &b.finished[i];
		out->finished[i] = (struct searched){
			.n = f->n, .sum = f->log_prob, .score = f->score, .finish = f->finish};
		beam_scorer_tokens(&b, f, out->finished[i].tokens);
	}
	beam_scorer_free(&b);
}

static void expect_beam(
	const struct plain_search *p, size_t i, const char *text, double score, const char *what)
{
	const struct searched *f = &p->finished[i];
	char found[MAX_TEXT + 1] = {0};
	cr_assert_lt(i, p->n_finished, "%s", what);
	for (size_t j = 0; j < f->n; j++)
		found[j] = (char)('0' + f->tokens[j]);
	cr_expect_str_eq(found, text, "%s: beam %zu is %s, expected %s", what, i, found, text);
	cr_expect_float_eq(
		f->score, score, 1e-5, "%s: score %f, expected %f", what, (double)f->score, score);
}

static const int32_t end_only[] = {END};

static struct beam_rules rules(
	uint32_t n_beams, float length_penalty, enum lap_early_stopping stopping, uint32_t n_most)
{
	return (struct beam_rules){n_beams, length_penalty, stopping, n_most, end_only, 1};
}

/* OB-24: start a .6, b .4; after a: end .40, a .35, b .25; after b: end .90, a .05, b .05. */
Test(beams, the_likelier_text_starts_with_the_less_likely_token)
{
	static const struct row rows[] = {
		{"", {0, .6, .4}},
		{"1", {.40, .35, .25}},
		{"2", {.90, .05, .05}},
		{"11", {.5, .3, .2}},
		{"12", {.5, .3, .2}},
		{"21", {.5, .3, .2}},
		{"22", {.5, .3, .2}},
	};
	struct table t = {rows, ARRAY_COUNT(rows), 3};
	static struct plain_search p;
	static const uint32_t widths[] = {1, 2, 3, 9};
	for (size_t i = 0; i < ARRAY_COUNT(widths); i++) {
		const struct beam_rules r = rules(widths[i], 0, LAP_EARLY_STOPPING_FALSE, 2);
		scorer_search(&p, &r, 3, look_up, &t);
		if (widths[i] == 1) {
			cr_expect_eq(p.n_finished, 1);
			expect_beam(&p, 0, "10", -1.4271164, "width 1: as greedy");
			continue;
		}
		expect_beam(&p, 0, "20", -1.0216512, "two or more beams");
		expect_beam(&p, 1, "10", -1.4271164, "two or more beams");
		if (widths[i] == 9) {
			cr_expect_eq(p.n_finished, 6, "all texts of two tokens");
			expect_beam(&p, 2, "11", -1.5606477, "at the limit");
			cr_expect_eq(p.finished[2].finish, LAP_FINISH_LENGTH);
			cr_expect_eq(p.finished[0].finish, LAP_FINISH_STOP);
		}
	}
	/* What is finished is not gone on from, and its score stays. */
	const struct beam_rules r = rules(9, 0, LAP_EARLY_STOPPING_NEVER, 3);
	scorer_search(&p, &r, 3, look_up, &t);
	expect_beam(&p, 0, "20", -1.0216512, "three tokens");
	for (size_t i = 0; i < p.n_finished; i++)
		for (size_t j = 0; j + 1 < p.finished[i].n; j++)
			cr_expect_neq(p.finished[i].tokens[j], END, "nothing follows an end");
}

/* Every way to go on is an end. */
Test(beams, all_candidates_end)
{
	static const int32_t all[] = {0, 1, 2};
	static const struct row rows[] = {{"", {.2, .5, .3}}};
	struct table t = {rows, 1, 3};
	static struct plain_search p;
	for (uint32_t width = 1; width <= 9; width++) {
		struct beam_rules r = rules(width, 1, LAP_EARLY_STOPPING_NEVER, 8);
		r.ends = all;
		r.n_ends = 3;
		scorer_search(&p, &r, 3, look_up, &t);
		cr_expect_eq(p.n_finished, width < 3 ? width : 3);
		expect_beam(&p, 0, "1", log(.5), "all end");
	}
}

/* Ends are known by their ids: the second id ends too, the first candidate need not. */
Test(beams, several_ends)
{
	static const int32_t two[] = {2, 0};
	static const struct row rows[] = {{"", {.1, .6, .3}}, {"1", {.3, .2, .5}}};
	struct table t = {rows, 2, 3};
	static struct plain_search p;
	struct beam_rules r = rules(2, 0, LAP_EARLY_STOPPING_TRUE, 8);
	r.ends = two;
	r.n_ends = 2;
	cr_expect_eq(beam_scorer_wanted(&r), 6);
	scorer_search(&p, &r, 3, look_up, &t);
	expect_beam(
		&p, 0, "2", log(.3), "second end"); /* and 1 2 has the same: the earlier stays */
	expect_beam(&p, 1, "12", log(.3), "second end");
}

/* By hand.  Of the first step 0 is finished; of the second 1 0 (its tie with 1 1 goes to the lower token),
 * 2 0 is not among the best two; the third has 2 2 0 and 1 1 0. */
static const struct row by_hand[] = {
	{"", {.5, .3, .2}},
	{"1", {.5, .5, 0}},
	{"2", {.1, 0, .9}},
	{"22", {1, 0, 0}},
	{"11", {1, 0, 0}},
};

Test(beams, early_stopping)
{
	struct table t = {by_hand, ARRAY_COUNT(by_hand), 3};
	static struct plain_search p;
	struct beam_rules r = rules(2, 1, LAP_EARLY_STOPPING_TRUE, 8);
	scorer_search(&p, &r, 3, look_up, &t);
	expect_beam(&p, 0, "0", log(.5), "true");
	expect_beam(&p, 1, "10", log(.15) / 2, "true");
	/* ln .18 / 2 is above ln .15 / 2: it goes on. */
	r.early_stopping = LAP_EARLY_STOPPING_FALSE;
	scorer_search(&p, &r, 3, look_up, &t);
	expect_beam(&p, 0, "220", log(.18) / 3, "false");
	expect_beam(&p, 1, "110", log(.15) / 3, "false");

	/* One beam: ln .4 is below ln .6, ln .4 / 3 is above. */
	static const struct row rows[] = {{"", {.6, .4, 0}}, {"1", {.1, .9, 0}}, {"11", {1, 0, 0}}};
	struct table one = {rows, ARRAY_COUNT(rows), 3};
	r = rules(1, 1, LAP_EARLY_STOPPING_FALSE, 3);
	scorer_search(&p, &r, 3, look_up, &one);
	expect_beam(&p, 0, "0", log(.6), "false");
	r.early_stopping = LAP_EARLY_STOPPING_NEVER;
	scorer_search(&p, &r, 3, look_up, &one);
	expect_beam(&p, 0, "110", log(.36) / 3, "never");
	r.length_penalty = 0; /* the bound is that of false */
	scorer_search(&p, &r, 3, look_up, &one);
	expect_beam(&p, 0, "0", log(.6), "never, without a penalty");
}

Test(beams, length_penalties)
{
	struct table t = {by_hand, ARRAY_COUNT(by_hand), 3};
	static struct plain_search p;
	static const struct {
		float penalty;
		const char *first, *second;
		double scores[2];
	} cases[] = {
		{0, "0", "220", {-0.6931472, -1.7147984}},
		{1, "220", "110", {-0.5715995, -0.6323733}},
		{2, "220", "110", {-0.1905332, -0.2107911}},
		{-1, "0", "10", {-0.6931472, -3.7942400}},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const struct beam_rules r = rules(2, cases[i].penalty, LAP_EARLY_STOPPING_FALSE, 8);
		scorer_search(&p, &r, 3, look_up, &t);
		expect_beam(&p, 0, cases[i].first, cases[i].scores[0], "penalty");
		expect_beam(&p, 1, cases[i].second, cases[i].scores[1], "penalty");
	}
	/* At the limit what runs is finished with its own length. */
	const struct beam_rules r = rules(2, 1, LAP_EARLY_STOPPING_FALSE, 2);
	scorer_search(&p, &r, 3, look_up, &t);
	expect_beam(&p, 0, "0", log(.5), "limit");
	expect_beam(&p, 1, "22", log(.18) / 2, "limit");
	cr_expect_eq(p.finished[1].finish, LAP_FINISH_LENGTH);
}

/* ---- beside independent searches --------------------------------------------------------------- */

/* All texts of at most n_most tokens, by their scores. */
struct all_texts {
	const struct beam_rules *rules;
	struct table *t;
	struct searched list[1024];
	size_t n;
};

static void visit(struct all_texts *a, const struct searched *text)
{
	float log_probs[8];
	random_table(a->t, text->tokens, text->n, log_probs);
	for (uint32_t i = 0; i < a->t->n_vocab; i++) {
		struct searched next =
			longer(text, &(struct way){0, (int32_t)i, text->sum + log_probs[i]});
		next.score =
			(float)(next.sum / pow((double)next.n, (double)a->rules->length_penalty));
		if (i != END && next.n < a->rules->n_most)
			visit(a, &next);
		else
			a->list[a->n++] = next;
	}
}

static int by_score(const void *x, const void *y)
{
	const struct searched *a = x, *b = y;
	return a->score > b->score ? -1 : a->score < b->score;
}

static void expect_same_beams(const struct plain_search *p, const struct searched *expected,
	size_t n, const char *what, size_t seed)
{
	cr_assert_eq(
		p->n_finished, n, "%s, %zu: %zu beams, expected %zu", what, seed, p->n_finished, n);
	for (size_t i = 0; i < n; i++) {
		cr_assert_eq(p->finished[i].n, expected[i].n, "%s, %zu: beam %zu", what, seed, i);
		cr_assert_arr_eq(p->finished[i].tokens, expected[i].tokens,
			expected[i].n * sizeof(int32_t), "%s, %zu: beam %zu", what, seed, i);
		cr_assert_eq(p->finished[i].score, expected[i].score);
	}
}

/* With more beams than there are texts the search is exhaustive. */
Test(beams, as_many_as_texts)
{
	static struct plain_search p;
	static struct all_texts a;
	static const float penalties[] = {0, 1, 2, -1};
	for (size_t seed = 0; seed < 200; seed++) {
		struct table t = {.n_rows = seed, .n_vocab = 3};
		const struct beam_rules r =
			rules(32, penalties[seed % 4], (enum lap_early_stopping)(seed % 3), 4);
		a = (struct all_texts){.rules = &r, .t = &t};
		visit(&a, &(struct searched){.n = 0});
		cr_assert_eq(a.n, 1 + 2 + 4 + 8 + 16);
		qsort(a.list, a.n, sizeof(*a.list), by_score);
		scorer_search(&p, &r, 3, random_table, &t);
		expect_same_beams(&p, a.list, a.n, "exhaustive", seed);
	}
}

Test(beams, as_a_plain_search)
{
	static struct plain_search p, q;
	static const float penalties[] = {0, 1, 2, -1, 0.5f};
	for (size_t seed = 0; seed < 2000; seed++) {
		struct table t = {.n_rows = seed, .n_vocab = 2 + (uint32_t)seed % 6};
		static const int32_t two[] = {END, 1};
		struct beam_rules r = rules(1 + (uint32_t)(seed / 7 % 9), penalties[seed % 5],
			(enum lap_early_stopping)(seed % 3), 1 + (uint32_t)seed % 10);
		r.ends = two;
		r.n_ends = seed / 3 % 3;
		plain_search(&q, &r, t.n_vocab, 0, random_table, &t);
		scorer_search(&p, &r, t.n_vocab, random_table, &t);
		expect_same_beams(&p, q.finished, q.n_finished, "plain", seed);
	}
}

/* ---- sessions ---------------------------------------------------------------------------------- */

static const char *tiny(void)
{
	return vector_path("golden/llama-freqs.gguf");
}

static void expect_holders(const struct lap_session *s)
{
	uint32_t n_free = 0;
	for (uint32_t b = 0; b < s->full.n_blocks; b++) {
		uint32_t n = 0;
		for (uint32_t i = 0; i < s->n_seq; i++)
			for (uint32_t j = 0; j < s->timelines[i].full.n; j++)
				n += s->timelines[i].full.table[j] == b;
		cr_assert_eq(s->full.n_holders[b], n, "block %u", (unsigned)b);
		n_free += n == 0;
	}
	cr_assert_eq(s->full.n_free, n_free);
}

/* Timelines are told apart by their last token. */
static void expect_order(struct lap_session *s, const uint32_t *seq, const int32_t *marks,
	uint32_t n, uint32_t n_next)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct timeline *t = &s->timelines[seq[i]];
		for (uint32_t j = 0; j < i; j++)
			cr_expect_neq(seq[i], seq[j], "each timeline once");
		if (i >= n_next)
			cr_expect_eq(t->n_past, 0, "what is not needed holds nothing");
		else
			cr_expect(t->n_past == 41 && t->tokens[40] == marks[i], "beam %u is %d",
				(unsigned)i, (int)t->tokens[40]);
	}
	expect_holders(s);
}

Test(beams, reorder)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_seq = 6, .n_ctx = 256};
	struct lap_session *s = open_session(m, &so);
	int32_t prompt[41];
	struct lap_error err;
	for (int32_t i = 0; i < 41; i++)
		prompt[i] = 3 + i;
	for (uint32_t i = 0; i < 5; i++) {
		prompt[40] = (int32_t)(100 + i);
		cr_assert_eq(session_prefill(s, &s->timelines[i], prompt, 41, &err), LAP_OK);
	}
	uint32_t seq[5] = {4, 0, 3, 1, 2};
	session_reorder(s, seq, 5, (const uint32_t[]){1, 0, 2, 4, 3}, 5);
	expect_order(s, seq, (const int32_t[]){100, 104, 103, 102, 101}, 5, 5);
	cr_expect_eq(s->full.n_free, s->full.n_blocks - 10, "nothing was shared yet");
	session_reorder(s, seq, 5, (const uint32_t[]){2, 2, 0, 2, 0}, 5);
	expect_order(s, seq, (const int32_t[]){103, 103, 100, 103, 100}, 5, 5);
	cr_expect_eq(s->full.n_free, s->full.n_blocks - 4, "two are left, of two blocks each");
	session_reorder(s, seq, 5, (const uint32_t[]){4, 1}, 2);
	expect_order(s, seq, (const int32_t[]){100, 103}, 5, 2);
	session_reorder(s, seq, 5, (const uint32_t[]){1, 1, 1, 1, 1}, 5);
	expect_order(s, seq, (const int32_t[]){103, 103, 103, 103, 103}, 5, 5);
	cr_expect_eq(s->full.n_free, s->full.n_blocks - 2);
	session_reorder(s, seq, 5, NULL, 0);
	expect_order(s, seq, NULL, 5, 0);
	cr_expect_eq(s->full.n_free, s->full.n_blocks);
	lap_session_destroy(s);
	lap_model_close(m);
}

Test(beams, as_computed_from_scratch)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	const struct lap_session_options so = {
		.n_seq = 5, .n_top = 32, .n_ctx = 512, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	const struct lap_session_options full = {
		.n_ctx = 128, .logits_all = true, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	struct from_scratch f = {open_session(m, &full), beam_prompt, N_BEAM_PROMPT, NULL};
	struct lap_session *s = open_session(m, &so);
	static struct plain_search p;
	int32_t end_tokens[6];
	const size_t n_ends = some_ends(m, end_tokens, ARRAY_COUNT(end_tokens));
	f.logits = malloc((N_BEAM_PROMPT + MAX_TEXT) * n_vocab * sizeof(float));
	for (size_t i = 0; i < ARRAY_COUNT(beam_kinds); i++) {
		struct lap_beam_options o = beam_kinds[i];
		struct lap_beam *beams;
		size_t n;
		o.stop_tokens = end_tokens;
		o.n_stop_tokens = n_ends;
		o.ignore_eos = true;
		search_beams(s, &o, &beams, &n);
		expect_holders(s);
		plain_search(&p,
			&(struct beam_rules){o.n_beams, o.length_penalty, o.early_stopping,
				(uint32_t)o.n_predict, end_tokens, n_ends},
			n_vocab, o.min_tokens, model_from_scratch, &f);
		cr_assert_eq(n, o.n_return ? o.n_return : 1);
		for (size_t j = 0; j < n; j++) {
			cr_assert_eq(beams[j].n, p.finished[j].n, "%zu: beam %zu", i, j);
			cr_assert_arr_eq(beams[j].tokens, p.finished[j].tokens,
				beams[j].n * sizeof(int32_t), "%zu: beam %zu", i, j);
			cr_expect_float_eq(beams[j].score, p.finished[j].score, 1e-4);
			cr_expect_eq(beams[j].finish, p.finished[j].finish);
		}
		lap_free(beams);
	}
	free(f.logits);
	lap_session_destroy(f.s);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* The log-probability of a text, each token decoded on its own in a fresh session. */
static float alone(struct lap_model *m, const struct lap_beam *beam)
{
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	struct lap_session *s = open_session(m, NULL);
	struct top_token *top = malloc(n_vocab * sizeof(*top));
	float *logits = malloc(2 * n_vocab * sizeof(float)), sum = 0;
	const struct sequence q = {.greedy = 1, .inv_temperature = 1, .inv_cut_temperature = 1};
	struct lap_error err;
	cr_assert_eq(
		session_prefill(s, &s->timelines[0], beam_prompt, N_BEAM_PROMPT - 1, &err), LAP_OK);
	for (size_t i = 0; i < beam->n; i++) {
		int32_t last = i ? beam->tokens[i - 1] : beam_prompt[N_BEAM_PROMPT - 1];
		uint32_t *count = calloc(n_vocab + MASK_WORDS(n_vocab), sizeof(*count));
		cr_assert_eq(session_step(s, last, logits, &err), LAP_OK);
		const struct sampler_row row =
			sampler_cut(&q, logits, n_vocab, count, logits + n_vocab);
		sampler_top(&row, n_vocab, top);
		uint32_t at = 0;
		while (top[at].token != (uint32_t)beam->tokens[i])
			at++;
		sum += top[at].log_prob;
		free(count);
	}
	free(logits);
	free(top);
	lap_session_destroy(s);
	return sum;
}

/* Sharing, copying and reordering change no bit of what a beam computes. */
Test(beams, same_bits_as_alone)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_seq = 4, .n_top = 8, .n_ctx = 256};
	struct lap_session *s = open_session(m, &so);
	const struct lap_beam_options o = {.n_return = 4, .n_predict = 40, .length_penalty = 1};
	struct lap_beam *beams;
	size_t n;
	for (int run = 0; run < 2; run++) {
		struct lap_generation r = search_beams(s, &o, &beams, &n);
		cr_assert_eq(n, 4);
		cr_expect_eq(r.n_reused, run ? N_BEAM_PROMPT - 1 : 0, "the prompt is there");
		cr_expect_eq(r.decode_submits, 40);
		cr_expect_eq(r.decode_recordings, 2, "of one row and of four");
		for (size_t i = 0; i < n; i++) {
			cr_expect_eq(beams[i].n, 40);
			cr_expect_eq(
				beams[i].log_prob, alone(m, &beams[i]), "run %d, beam %zu", run, i);
		}
		lap_free(beams);
	}
	lap_session_destroy(s);
	lap_model_close(m);
}

/* With an end, or none. */
static void expect_greedy(struct lap_session *s, const int32_t *stop, struct collected *c)
{
	const struct lap_generate_options g = {.n_predict = 30, /* greedy */
		.stop_tokens = stop,
		.n_stop_tokens = stop != NULL};
	const struct lap_beam_options o = {.n_predict = 30,
		.early_stopping = LAP_EARLY_STOPPING_TRUE,
		.stop_tokens = stop,
		.n_stop_tokens = stop != NULL};
	struct lap_beam *beams;
	size_t n;
	c->n = 0;
	cr_assert_eq(
		lap_generate(s, beam_prompt, N_BEAM_PROMPT, &g, collect, c, NULL, NULL), LAP_OK);
	search_beams(s, &o, &beams, &n);
	cr_assert_eq(n, 1);
	cr_assert_eq(beams->n, c->n);
	cr_expect_arr_eq(beams->tokens, c->ids, c->n * sizeof(int32_t));
	cr_expect_eq(beams->finish, stop ? LAP_FINISH_STOP : LAP_FINISH_LENGTH);
	lap_free(beams);
}

Test(beams, one_beam_is_greedy)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_top = 4};
	struct lap_session *s = open_session(m, &so);
	struct collected c;
	expect_greedy(s, NULL, &c);
	const int32_t stop = c.ids[12];
	expect_greedy(s, &stop, &c);
	cr_expect_leq(c.n, 13);
	lap_session_destroy(s);
	lap_model_close(m);
}

static void refused(struct lap_session *s, const int32_t *prompt, size_t n_prompt,
	const struct lap_beam_options *o, const char *words)
{
	struct lap_beam *beams = (struct lap_beam *)&beams;
	size_t n = 7;
	struct lap_error err = {0};
	cr_expect_eq(lap_beam_search(s, prompt, n_prompt, o, &beams, &n, NULL, &err), LAP_USAGE);
	cr_expect(strstr(err.text, words), "%s", err.text);
	cr_expect(beams == NULL && n == 0);
}

Test(beams, refusals)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_seq = 4, .n_top = 6, .n_ctx = 64};
	struct lap_session *s = open_session(m, &so);
	const int32_t stops[40] = {1, 2, 3}, bad = 100000;
	static const int32_t long_prompt[64];
	struct lap_beam_options o = {.n_beams = 5};
	refused(s, beam_prompt, 3, &o, "5 beams, expected at most the 4 sequences");
	o = (struct lap_beam_options){.stop_tokens = stops, .n_stop_tokens = 3, .ignore_eos = true};
	refused(s, beam_prompt, 3, &o,
		"4 beams with 3 tokens that end need the best 7 of each step; the session's "
		"n_top is 6");
	o.n_stop_tokens = 40;
	refused(s, beam_prompt, 3, &o, "40 stop tokens, expected at most 32");
	o = (struct lap_beam_options){.stop_tokens = &bad, .n_stop_tokens = 1};
	refused(s, beam_prompt, 3, &o, "token 100000 at 0 is not in the vocabulary");
	o = (struct lap_beam_options){.n_beams = 2, .n_return = 3};
	refused(s, beam_prompt, 3, &o, "3 results of 2 beams");
	o = (struct lap_beam_options){.length_penalty = NAN};
	refused(s, beam_prompt, 3, &o, "the length penalty is nan");
	o = (struct lap_beam_options){.n_predict = -2};
	refused(s, beam_prompt, 3, &o, "n_predict is -2");
	refused(s, beam_prompt, 0, NULL, "the prompt has no tokens");
	refused(s, long_prompt, 64, NULL, "no room in a context of 64");
	refused(s, &bad, 1, NULL, "token 100000");
	/* Four beams that share nothing but the prompt do not fit. */
	o = (struct lap_beam_options){.length_penalty = 1};
	refused(s, beam_prompt, N_BEAM_PROMPT, &o, "the KV cache of 64 tokens is full");
	expect_holders(s);
	/* The session serves on. */
	o.n_predict = 5;
	struct lap_beam *beams;
	size_t n;
	search_beams(s, &o, &beams, &n);
	cr_expect_eq(n, 1);
	cr_expect_eq(beams->n, 5);
	lap_free(beams);
	lap_session_destroy(s);
	lap_model_close(m);
}

Test(beams, time_is_up)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {.n_seq = 2, .n_top = 4};
	struct lap_session *s = open_session(m, &so);
	const struct lap_beam_options o = {.max_seconds = 0.2, .n_return = 2, .ignore_eos = true};
	struct lap_beam *beams;
	size_t n;
	struct lap_generation r = search_beams(s, &o, &beams, &n);
	for (size_t i = 0; i < n; i++)
		cr_expect_eq(beams[i].finish, LAP_FINISH_TIME);
	cr_expect_eq(n, 2);
	cr_expect_eq(r.finish, LAP_FINISH_TIME);
	cr_expect_eq(r.n_generated, beams[0].n);
	lap_free(beams);
	lap_session_destroy(s);
	lap_model_close(m);
}
