/* Sample and control on Vulkan against the CPU reference: the same tokens, histories, rings,
 * sequences and sizes, bit for bit; only log-probabilities may be rounded differently. */
#include "tail_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "support.h"

#define N_CTX  48
#define N_ROWS 4

static struct backend *open_cpu(void)
{
	struct backend *b;
	struct lap_error err = {0};
	cr_assert_eq(cpu_open(&b, &err), LAP_OK, "%s", err.text);
	return b;
}

static struct backend *open_vk(void)
{
	struct backend *b;
	struct lap_error err = {0};
	struct vk_options options = {.no_pipeline_cache = true};
	cr_assert_eq(vk_open(&options, &b, &err), LAP_OK, "%s", err.text);
	return b;
}

/* ---- inputs ---- */

enum shape { SMOOTH, TIES, FLAT, WIDE, FORBIDDEN, TINY, N_SHAPES };

static float random_logit(enum shape shape, uint64_t *state)
{
	double r = test_random(state), peak = test_random(state);
	double smooth = r * 8 - 5 + (peak > 0.98 ? r * 9 : 0);
	switch (shape) {
	case TIES:
		return (float)(floor(smooth * 2) / 2);
	case FLAT:
		return -2.25f;
	case WIDE:
		return (float)(smooth * 1e30);
	case FORBIDDEN:
		return peak < 0.7 ? -INFINITY : (float)smooth;
	case TINY: /* around the smallest normal number, zeros of both signs among them */
		return peak < 0.2 ? -0.0f : (float)(smooth * 0x1p-127);
	default:
		return (float)smooth;
	}
}

static float pick(const float *from, uint32_t n, uint64_t *state)
{
	return from[(uint32_t)(test_random(state) * n)];
}

#define PICK(state, ...) \
	pick((const float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}) / sizeof(float), state)

static struct lap_sampling random_sampling(uint64_t *state)
{
	struct lap_sampling s = {
		.temperature = PICK(state, 0.0f, 0.1f, 0.8f, 1.0f, 1.7f, 1e-9f, 1e9f),
		.top_k = (int32_t)PICK(state, 0, 0, 1, 3, 40, 1500, 20000),
		.top_p = PICK(state, 1.0f, 1.0f, 0.95f, 0.5f, 0.01f, 0.0f),
		.min_p = PICK(state, 0.0f, 0.0f, 0.05f, 0.6f, 1.0f),
		.repeat_penalty = PICK(state, 1.0f, 1.0f, 1.3f, 0.8f),
		.presence_penalty = PICK(state, 0.0f, 0.0f, 0.7f),
		.frequency_penalty = PICK(state, 0.0f, 0.0f, 0.3f),
		.repeat_last_n = (int32_t)PICK(state, 0, 1, 5, 64, -1),
	};
	s.seed = (uint64_t)(test_random(state) * 0x1p53) * 2048;
	return s;
}

/* What a sequence may ask for beside the parameters: biases, bans, a mask, cuts before the temperature, the
 * best tokens.  Some leave no token at all. */
static void random_wishes(struct tail_case *t, uint32_t seq, uint64_t *state)
{
	struct sequence *s = &t->sequences[seq];
	struct lap_error err;
	uint32_t n_bias = (uint32_t)PICK(state, 0, 0, 1, 5, MAX_BIAS);
	for (uint32_t i = 0; i < n_bias; i++)
		cr_assert_eq(
			sampler_bias(s, (uint32_t)(test_random(state) * t->n_vocab),
				test_random(state) < 0.2 ? -INFINITY
							 : (float)(test_random(state) * 12 - 6),
				t->n_vocab, &err),
			LAP_OK, "%s", err.text);
	s->n_forbidden = (uint32_t)PICK(state, 0, 0, 1, 4, MAX_STOPS);
	for (uint32_t i = 0; i < s->n_forbidden; i++)
		s->forbidden[i] = (uint32_t)(test_random(state) * t->n_vocab);
	s->n_forbid_left = (uint32_t)PICK(state, 0, 1, 2, 7);
	if (test_random(state) < 0.3)
		s->n_forbid_left = UINT32_MAX;
	if (test_random(state) < 0.5)
		s->inv_cut_temperature = 1;
	s->n_top = (uint32_t)PICK(state, 0, 0, 1, 3, TAIL_TOP, MAX_TOP);
	s->use_mask = test_random(state) < 0.3;
	double open = test_random(state);
	uint32_t *mask = tail_counts(t, seq) + t->n_vocab;
	for (uint32_t i = 0; i < t->n_vocab && s->use_mask; i++)
		mask[i / 32] |= (uint32_t)(test_random(state) < open) << i % 32;
}

/* The same state on both sides. */
static void start_both(struct tail_case *a, struct tail_case *b, enum shape shape, uint64_t *state,
	uint32_t n_left, bool wishes)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		for (uint32_t j = 0; j < a->n_vocab; j++)
			a->logits[i * a->stride + j] = random_logit(shape, state);
		/* at least one number in each row */
		a->logits[i * a->stride + (uint32_t)(test_random(state) * a->n_vocab)] = 0.5f;
		uint32_t prompt[N_CTX], n = 1 + (uint32_t)(test_random(state) * (N_CTX - 1));
		for (uint32_t j = 0; j < n; j++)
			prompt[j] = (uint32_t)(test_random(state) * a->n_vocab);
		struct lap_sampling sampling = random_sampling(state);
		tail_start(a, i, &sampling, prompt, n, n_left);
		tail_start(b, i, &sampling, prompt, n, n_left);
		for (uint32_t j = 0; j < n / 8; j++)
			a->sequences[i].stop[a->sequences[i].n_stop++] = prompt[j];
		if (wishes)
			random_wishes(a, i, state);
		b->sequences[i] = a->sequences[i];
		memcpy(tail_tokens(b, i), tail_tokens(a, i), tail_words(a) * sizeof(uint32_t));
	}
	memcpy(b->logits, a->logits, (size_t)N_ROWS * a->stride * sizeof *a->logits);
}

/* ---- comparison ---- */

/* Rounded differently at most; both may be -infinity. */
static bool same_log_prob(float a, float b)
{
	return a == b || fabsf(a - b) <= 2e-5f;
}

static void expect_equal(
	const struct tail_case *want, const struct tail_case *got, const char *what)
{
	uint32_t n_vocab = want->n_vocab;
	size_t n_history = N_ROWS * tail_words(want) * sizeof(uint32_t);
	cr_expect_arr_eq(got->step, want->step, sizeof *want->step, "%s: step", what);
	cr_expect_arr_eq(got->rows, want->rows, N_ROWS * sizeof *want->rows, "%s: rows", what);
	cr_expect_arr_eq(got->sequences, want->sequences, N_ROWS * sizeof *want->sequences,
		"%s: sequences", what);
	cr_expect(memcmp(got->history, want->history, n_history) == 0, "%s: history", what);
	cr_expect_arr_eq(got->sizes + FIRST_OWN_SIZE, want->sizes + FIRST_OWN_SIZE,
		N_OWN_SIZES * sizeof *want->sizes, "%s: sizes", what);
	for (uint32_t i = 0; i < N_ROWS; i++) {
		const struct sample_result *r = &got->results[i], *w = &want->results[i];
		cr_expect(memcmp(got->scratch + i * want->stride, want->scratch + i * want->stride,
				  n_vocab * sizeof(float)) == 0,
			"%s: penalised logits of row %u", what, i);
		cr_expect_eq(r->token, w->token, "%s: row %u takes %u, expected %u", what, i,
			r->token, w->token);
		cr_expect_eq(r->error, w->error, "%s: row %u", what, i);
		cr_expect(same_log_prob(r->log_prob, w->log_prob), "%s: row %u has %g, expected %g",
			what, i, (double)r->log_prob, (double)w->log_prob);
	}
	for (uint32_t i = 0; i < N_ROWS * RING_ENTRIES; i++) {
		const struct ring_entry *r = &got->ring[i], *w = &want->ring[i];
		if (r->token != w->token || r->step != w->step || r->error != w->error ||
			!same_log_prob(r->log_prob, w->log_prob))
			cr_expect(false, "%s: ring entry %u", what, i);
	}
	for (uint32_t i = 0; i < N_ROWS * RING_ENTRIES * TAIL_TOP; i++) {
		const struct top_token *r = &got->tops[i], *w = &want->tops[i];
		if (r->token != w->token || !same_log_prob(r->log_prob, w->log_prob))
			cr_expect(false, "%s: best token %u is %u, %g, expected %u, %g", what, i,
				r->token, (double)r->log_prob, w->token, (double)w->log_prob);
	}
}

static void compare_vocabulary(
	struct backend *cpu, struct backend *vk, uint32_t n_vocab, uint32_t n_top, uint32_t n_sets)
{
	struct tail_case a, b;
	uint64_t state = 1000 + n_vocab;
	tail_create_listing(&a, cpu, n_vocab, N_CTX, N_ROWS, n_top);
	tail_create_listing(&b, vk, n_vocab, N_CTX, N_ROWS, n_top);
	for (uint32_t i = 0; i < n_sets; i++) {
		char what[96];
		start_both(&a, &b, i % N_SHAPES, &state, 4, i % 4 > 0);
		snprintf(what, sizeof what, "vocabulary %u, set %u", n_vocab, i);
		for (uint32_t n_steps = 1; n_steps <= 3; n_steps++) {
			tail_run(&a, n_steps);
			tail_run(&b, n_steps);
			expect_equal(&a, &b, what);
		}
	}
	tail_destroy(&a);
	tail_destroy(&b);
}

/* 10,040 vectors of logits, each drawn from three times. */
Test(vk_sample, equals_the_reference)
{
	static const struct {
		uint32_t n_vocab, n_sets;
	} cases[] = {{1, 24}, {2, 48}, {5, 600}, {17, 480}, {127, 240}, {128, 120}, {129, 120},
		{320, 480}, {1999, 360}, {32000, 24}, {131072, 8}, {262144, 6}};
	struct backend *cpu = open_cpu(), *vk = open_vk();
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		if (!test_small() || cases[i].n_vocab < 10000)
			compare_vocabulary(cpu, vk, cases[i].n_vocab, TAIL_TOP,
				test_small() ? cases[i].n_sets / 6 : cases[i].n_sets);
	cpu->ops->close(cpu);
	vk->ops->close(vk);
}

/* The build without lists of best tokens, whatever a sequence asks for. */
Test(vk_sample, equals_the_reference_without_best_tokens)
{
	struct backend *cpu = open_cpu(), *vk = open_vk();
	compare_vocabulary(cpu, vk, 129, 0, test_small() ? 10 : 60);
	compare_vocabulary(cpu, vk, 1999, 0, test_small() ? 10 : 60);
	cpu->ops->close(cpu);
	vk->ops->close(vk);
}

/* More survivors than the shader's list of candidates holds, and exactly as many. */
Test(vk_sample, many_candidates)
{
	static const uint32_t n_equal[] = {1023, 1024, 1025, 1999};
	const uint32_t prompt[] = {0};
	struct backend *cpu = open_cpu(), *vk = open_vk();
	struct tail_case a, b;
	tail_create(&a, cpu, 1999, N_CTX, N_ROWS);
	tail_create(&b, vk, 1999, N_CTX, N_ROWS);
	for (size_t i = 0; i < ARRAY_COUNT(n_equal); i++) {
		for (uint32_t row = 0; row < N_ROWS; row++) {
			struct lap_sampling s = {.temperature = 1,
				.top_k = row ? 0 : 5,
				.top_p = 0.9f,
				.repeat_penalty = 1,
				.seed = i};
			for (uint32_t j = 0; j < 1999; j++)
				a.logits[row * a.stride + j] =
					j * 7 % 1999 < n_equal[i] ? 2.0f : 1.0f;
			tail_start(&a, row, &s, prompt, 1, 40);
			tail_start(&b, row, &s, prompt, 1, 40);
		}
		memcpy(b.logits, a.logits, (size_t)N_ROWS * a.stride * sizeof *a.logits);
		tail_run(&a, 40);
		tail_run(&b, 40);
		expect_equal(&a, &b, "equal logits");
		cr_expect_eq(b.step->done, 1);
	}
	tail_destroy(&a);
	tail_destroy(&b);
	cpu->ops->close(cpu);
	vk->ops->close(vk);
}

/* Nothing is ever cut, everything is asked for: every search reads the whole of a large vocabulary. */
static void longest_way(uint32_t n_vocab)
{
	const uint32_t prompt[] = {5};
	const struct lap_sampling sampling = {.temperature = 1,
		.top_k = 20000,
		.top_p = 0.999f,
		.min_p = 0.01f,
		.repeat_penalty = 1.1f,
		.repeat_last_n = -1};
	struct backend *cpu = open_cpu(), *vk = open_vk();
	struct tail_case a, b;
	struct lap_error err;
	tail_create(&a, cpu, n_vocab, N_CTX, N_ROWS);
	tail_create(&b, vk, n_vocab, N_CTX, N_ROWS);
	for (uint32_t row = 0; row < N_ROWS; row++) {
		struct sequence *s = &a.sequences[row];
		for (uint32_t i = 0; i < n_vocab; i++)
			a.logits[row * a.stride + i] = -2.25f;
		tail_start(&a, row, &sampling, prompt, 1, 4);
		tail_start(&b, row, &sampling, prompt, 1, 4);
		for (uint32_t i = 0; i < MAX_BIAS; i++) {
			cr_assert_eq(
				sampler_bias(s, i * 997 % n_vocab, -0.5f, n_vocab, &err), LAP_OK);
			s->forbidden[i] = i * 31 + row;
		}
		s->n_forbidden = MAX_STOPS;
		s->n_forbid_left = UINT32_MAX;
		s->inv_cut_temperature = 0.5f;
		s->n_top = TAIL_TOP;
		s->use_mask = 1;
		memset(tail_counts(&a, row) + n_vocab, row ? 0xFF : 0xFE, n_vocab / 8);
		b.sequences[row] = *s;
		memcpy(tail_tokens(&b, row), tail_tokens(&a, row),
			tail_words(&a) * sizeof(uint32_t));
	}
	memcpy(b.logits, a.logits, (size_t)N_ROWS * a.stride * sizeof *a.logits);
	tail_run(&a, 2);
	tail_run(&b, 2);
	expect_equal(&a, &b, "equal logits");
	cr_expect_eq(b.sequences[0].n_sampled, 2);
	tail_destroy(&a);
	tail_destroy(&b);
	cpu->ops->close(cpu);
	vk->ops->close(vk);
}

Test(vk_sample, the_longest_way)
{
	if (test_small())
		skip_test("262,144 tokens are many for a slow device");
	longest_way(262144);
}

/* The largest vocabulary that a subgroup of 8 may have to itself. */
Test(vk_sample, the_longest_way_of_a_small_vocabulary)
{
	longest_way(SAMPLE_SMALL_VOCAB);
}

Test(vk_sample, bad_logits_are_errors)
{
	const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
	struct backend *cpu = open_cpu(), *vk = open_vk();
	struct tail_case a, b;
	uint64_t state = 3;
	tail_create(&a, cpu, 300, N_CTX, N_ROWS);
	tail_create(&b, vk, 300, N_CTX, N_ROWS);
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		for (uint32_t at = 0; at < 300; at += 149) {
			start_both(&a, &b, SMOOTH, &state, 4, false);
			a.logits[at] = bad[i];
			for (uint32_t j = 0; j < 300 && bad[i] == -INFINITY; j++)
				a.logits[j] = -INFINITY;
			memcpy(b.logits, a.logits, (size_t)N_ROWS * a.stride * sizeof *a.logits);
			tail_run(&a, 2);
			tail_run(&b, 2);
			cr_expect_eq(b.sequences[0].error, 1);
			cr_expect_eq(b.sequences[1].error, 0);
			expect_equal(&a, &b, "bad logits");
		}
	tail_destroy(&a);
	tail_destroy(&b);
	cpu->ops->close(cpu);
	vk->ops->close(vk);
}

/* A draw hides a small error of a mass.  Of two tokens, 0 with mass 2^31 and 1 with mass w, top_p
 * keeps only 0 while ceil(top_p * (2^31 + w)) <= 2^31: at that boundary and one above it, w shows. */
Test(vk_sample, masses_to_the_last_bit)
{
	const uint32_t n_rows = 64, n_rounds = 8, prompt[] = {0}, best_mass = 1u << 31;
	const struct lap_sampling sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};
	struct backend *cpu = open_cpu(), *vk = open_vk();
	struct tail_case a, b;
	uint64_t state = 5;
	tail_create(&a, cpu, 2, N_CTX, n_rows);
	tail_create(&b, vk, 2, N_CTX, n_rows);
	for (uint32_t round = 0; round < n_rounds; round++) {
		uint32_t n_second = 0;
		for (uint32_t i = 0; i < n_rows; i++) {
			float *logits = a.logits + i * a.stride, scratch[2];
			uint32_t none[2] = {0};
			struct sequence *s = &a.sequences[i];
			tail_start(&a, i, &sampling, prompt, 1, 1);
			tail_start(&b, i, &sampling, prompt, 1, 1);
			logits[0] = 0;
			logits[1] = (float)(-3 * test_random(&state));
			while (sampler_sample(s, logits, 2, none, 0, scratch).token == 0)
				s->seed_lo++;
			uint64_t sum = (uint64_t)best_mass + sampler_mass(logits[1]);
			s->top_p = (uint32_t)(((uint64_t)best_mass << 32) / sum) + (i & 1);
			b.sequences[i] = *s;
		}
		memcpy(b.logits, a.logits, (size_t)n_rows * a.stride * sizeof *a.logits);
		tail_run(&a, 1);
		tail_run(&b, 1);
		for (uint32_t i = 0; i < n_rows; i++) {
			cr_expect_eq(a.results[i].token, i & 1, "row %u", i);
			cr_expect_eq(b.results[i].token, i & 1, "row %u, logit %a", i,
				(double)a.logits[i * a.stride + 1]);
			n_second += b.results[i].token;
		}
		cr_expect_eq(n_second, n_rows / 2);
	}
	tail_destroy(&a);
	tail_destroy(&b);
	cpu->ops->close(cpu);
	vk->ops->close(vk);
}

/* The host raises `cancel` while submits are under way; without that the steps would all be made. */
Test(vk_sample, cancel_ends_the_work)
{
	const uint32_t prompt[] = {0}, n_steps = 400;
	const struct lap_sampling s = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};
	struct backend *vk = open_vk();
	struct tail_case t;
	struct lap_error err = {0};
	tail_create(&t, vk, 1999, 1000, 1);
	memset(t.logits, 0, t.n_vocab * sizeof *t.logits);
	for (int early = 0; early < 2; early++) {
		uint64_t ticket;
		tail_start(&t, 0, &s, prompt, 1, n_steps);
		t.sequences[0].cancel = (uint32_t)early;
		vk->ops->begin(t.runnable);
		cr_assert_eq(vk->ops->run(vk, t.runnable, n_steps, &ticket, &err), LAP_OK, "%s",
			err.text);
		*(volatile u32 *)&t.sequences[0].cancel = 1;
		cr_assert_eq(vk->ops->wait(vk, ticket, &err), LAP_OK, "%s", err.text);
		uint32_t n = t.sequences[0].n_sampled;
		cr_expect_eq(t.sequences[0].done, 1);
		cr_expect_eq(t.step->done, 1);
		cr_expect_eq(t.sequences[0].cancel, 1);
		cr_expect(early ? n == 1 : n >= 1 && n <= n_steps, "%u steps", n);
		for (uint32_t i = 0; i <= n; i++)
			cr_expect_eq(t.ring[i].step, i < n ? i + 1 : 0, "entry %u", i);
	}
	tail_destroy(&t);
	vk->ops->close(vk);
}
