/* The tail of a decode step (sample, control) alone on any backend: buffers the host can see, a plan
 * of the two ops, and helpers to fill and run it. */
#ifndef LAPILLI_TESTS_TAIL_CASE_H
#define LAPILLI_TESTS_TAIL_CASE_H

#include <criterion/criterion.h>
#include <string.h>

#include "backend.h"
#include "sampler.h"

#define FIRST_OWN_SIZE 40 /* entries of the size table that no plan of two ops uses */
#define N_OWN_SIZES    9
#define TAIL_TOP       20 /* best tokens that a step has room for */

struct tail_case {
	struct backend *backend;
	struct plan plan;
	struct runnable *runnable;
	uint32_t n_vocab, n_ctx, n_rows, stride;
	struct buffer *buffers[9];
	uint32_t n_buffers;
	/* as the host sees them */
	struct step_header *step;
	struct step_row *rows;
	struct dispatch_size *sizes;
	struct sample_result *results;
	float *scratch, *logits;
	struct sequence *sequences;
	struct ring_entry *ring;
	struct top_token *tops; /* of TAIL_TOP */
	uint32_t *history;
};

static void *tail_buffer(struct tail_case *t, struct view *view, uint64_t n_bytes)
{
	struct lap_error err = {0};
	struct buffer *buffer;
	enum lap_status status = t->backend->ops->buffer_create(
		t->backend, n_bytes, MEMORY_SHARED, "a test", &buffer, &err);
	cr_assert_eq(status, LAP_OK, "%s", err.text);
	t->buffers[t->n_buffers++] = buffer;
	*view = (struct view){buffer, 0, n_bytes};
	return t->backend->ops->buffer_map(buffer);
}

/* Words of a sequence's history. */
static size_t tail_words(const struct tail_case *t)
{
	return HISTORY_WORDS((size_t)t->n_ctx, t->n_vocab);
}

/* One sequence per row; n_top: TAIL_TOP, or 0 for a step that lists no best tokens.  Ends the test when something
 * fails. */
static void tail_create_listing(struct tail_case *t, struct backend *b, uint32_t n_vocab,
	uint32_t n_ctx, uint32_t n_rows, uint32_t n_top)
{
	struct tail tail = {.n_ctx = n_ctx};
	struct lap_error err = {0};
	*t = (struct tail_case){.backend = b,
		.n_vocab = n_vocab,
		.n_ctx = n_ctx,
		.n_rows = n_rows,
		.stride = ROW_STRIDE(n_vocab)};
	struct rows logits = {.n = n_vocab, .stride = t->stride};
	uint64_t row_bytes = (uint64_t)n_rows * t->stride * sizeof(float);
	t->plan = (struct plan){.role = ROLE_DECODE, .max_rows = n_rows, .layer = -1};
	t->step = tail_buffer(t, &t->plan.step, sizeof *t->step + n_rows * sizeof *t->rows);
	t->rows = (struct step_row *)(t->step + 1);
	t->sizes = tail_buffer(t, &t->plan.sizes, MAX_SIZES * sizeof *t->sizes);
	t->results = tail_buffer(t, &tail.results, n_rows * sizeof *t->results);
	t->scratch = tail_buffer(t, &tail.scratch, row_bytes);
	t->logits = tail_buffer(t, &logits.view, row_bytes);
	t->sequences = tail_buffer(t, &tail.sequences, n_rows * sizeof *t->sequences);
	t->ring = tail_buffer(t, &tail.ring, (uint64_t)n_rows * RING_ENTRIES * sizeof *t->ring);
	tail.n_top = n_top;
	t->tops = tail_buffer(
		t, &tail.tops, (uint64_t)n_rows * RING_ENTRIES * TAIL_TOP * sizeof *t->tops);
	t->history = tail_buffer(
		t, &tail.history, (uint64_t)n_rows * tail_words(t) * sizeof *t->history);
	memset(t->tops, 0xEE, (uint64_t)n_rows * RING_ENTRIES * TAIL_TOP * sizeof *t->tops);
	plan_sample(&t->plan, logits, &tail);
	plan_control(&t->plan, n_vocab, &tail);
	cr_assert_not(t->plan.out_of_memory);
	cr_assert_eq(
		b->ops->prepare(b, &t->plan, false, &t->runnable, &err), LAP_OK, "%s", err.text);
	for (uint32_t i = 0; i < N_OWN_SIZES; i++)
		t->sizes[FIRST_OWN_SIZE + i] = (struct dispatch_size){
			.rule = i % 3,
			.groups_x = 3 + i,
			.groups_y = 2,
			.divisor = 1 + 6 * i,
			.factor = 1 + i / 3 * 4,
			.extra = i / 3 * 5,
			.window = i / 3 * 9,
		};
}

static void tail_create(
	struct tail_case *t, struct backend *b, uint32_t n_vocab, uint32_t n_ctx, uint32_t n_rows)
{
	tail_create_listing(t, b, n_vocab, n_ctx, n_rows, TAIL_TOP);
}

static void tail_destroy(struct tail_case *t)
{
	t->backend->ops->release(t->backend, t->runnable);
	plan_free(&t->plan);
	for (uint32_t i = 0; i < t->n_buffers; i++)
		t->backend->ops->buffer_destroy(t->backend, t->buffers[i]);
}

static uint32_t *tail_tokens(struct tail_case *t, uint32_t seq)
{
	return t->history + (size_t)seq * tail_words(t);
}

static uint32_t *tail_counts(struct tail_case *t, uint32_t seq)
{
	return tail_tokens(t, seq) + t->n_ctx;
}

/* Row and sequence `seq` at position n_tokens - 1, after these tokens. */
static void tail_start(struct tail_case *t, uint32_t seq, const struct lap_sampling *sampling,
	const uint32_t *tokens, uint32_t n_tokens, uint32_t n_left)
{
	struct sequence *s = &t->sequences[seq];
	struct lap_error err = {0};
	memset(s, 0, sizeof *s);
	cr_assert_eq(sampler_set(s, sampling, t->n_vocab, t->n_ctx, &err), LAP_OK, "%s", err.text);
	s->n_ctx = t->n_ctx;
	s->n_left = n_left;
	memset(tail_tokens(t, seq), 0, tail_words(t) * sizeof(uint32_t));
	memset(t->ring + (size_t)seq * RING_ENTRIES, 0, RING_ENTRIES * sizeof *t->ring);
	memcpy(tail_tokens(t, seq), tokens, n_tokens * sizeof *tokens);
	sampler_count(s, tokens, n_tokens, tail_counts(t, seq), t->n_vocab);
	t->rows[seq] =
		(struct step_row){.token = tokens[n_tokens - 1], .pos = n_tokens - 1, .seq = seq};
	if (seq == 0)
		*t->step = (struct step_header){.n_rows = t->n_rows};
	t->step->n_kv = n_tokens > t->step->n_kv ? n_tokens : t->step->n_kv;
}

static void tail_run(struct tail_case *t, uint32_t n_times)
{
	struct lap_error err = {0};
	uint64_t ticket;
	t->backend->ops->begin(t->runnable);
	cr_assert_eq(t->backend->ops->run(t->backend, t->runnable, n_times, &ticket, &err), LAP_OK,
		"%s", err.text);
	cr_assert_eq(t->backend->ops->wait(t->backend, ticket, &err), LAP_OK, "%s", err.text);
}

/* Numbers for tests: xorshift64* (Vigna 2016), uniform in [0, 1). */
static double test_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (double)(*state * 0x2545f4914f6cdd1du >> 11) * 0x1p-53;
}

#endif
