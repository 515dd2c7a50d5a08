/* Cases of what follows the logits, sample and control: see check_side.h. */
#include "check_side.h"
#include "sampler.h"

#include <math.h>
#include <string.h>

#define TAIL_TOP 5 /* best tokens that a case of sample has room for */

/* Every second sequence lists its best tokens; other numbers make biases, bans, masks, and cuts before
 * the temperature. */
static void add_wishes(struct side *s, uint32_t i, struct sequence *q)
{
	uint32_t n_vocab = s->c->n_out;
	q->n_top = i % 2 ? 1 + i % (2 * TAIL_TOP) : 0;
	for (uint32_t b = 0; b < i % 3 * 7 && !s->status; b++)
		s->status = sampler_bias(q, side_random_u32(s) % n_vocab,
			b % 3 ? side_random_float(s, 9) : -INFINITY, n_vocab, s->err);
	q->n_forbidden = i % 4 * 3;
	for (uint32_t b = 0; b < q->n_forbidden; b++)
		q->forbidden[b] = side_random_u32(s) % n_vocab;
	q->n_forbid_left = i % 3 ? i % 4 : UINT32_MAX;
	q->use_mask = i % 5 > 2;
	if (i % 7 > 2)
		q->inv_cut_temperature = 1;
}

/* Sequences of all kinds: greedy, plain, and each of the truncations and penalties. */
static void make_sequences(struct side *s, struct sequence *sequences, uint32_t n_ctx)
{
	static const struct lap_sampling kinds[] = {
		{.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1},
		{.temperature = 0, .top_p = 1, .repeat_penalty = 1.5f, .repeat_last_n = 8},
		{.temperature = 1,
			.top_k = 40,
			.top_p = 0.95f,
			.min_p = 0.05f,
			.repeat_penalty = 1},
		{.temperature = 1.7f, .top_p = 0.5f, .repeat_penalty = 1.3f, .repeat_last_n = 4},
		{.temperature = 0.5f,
			.top_p = 1,
			.min_p = 0.2f,
			.repeat_penalty = 1,
			.presence_penalty = 0.5f,
			.frequency_penalty = 0.3f,
			.repeat_last_n = -1},
		{.temperature = 1, .top_k = 3, .top_p = 1, .repeat_penalty = 1},
	};
	for (uint32_t i = 0; i < s->c->n_rows; i++) {
		struct lap_sampling sampling = kinds[i % ARRAY_COUNT(kinds)];
		struct sequence *q = &sequences[i];
		sampling.seed = side_random_u32(s);
		*q = (struct sequence){.n_ctx = n_ctx, .n_left = 10, .n_stop = 1};
		q->stop[0] = side_random_u32(s) % s->c->n_out;
		if (!s->status)
			s->status = sampler_set(q, &sampling, s->c->n_out, n_ctx, s->err);
		if (i > 0 && !s->status)
			add_wishes(s, i, q);
	}
}

#define TAIL_CONTEXT 32 /* positions of a sequence in cases of sample and control */

/* A prompt up to each row's position, the counts of its window, a mask that lets most tokens through. */
static void make_history(struct side *s, const struct sequence *sequences,
	const struct step_row *rows, uint32_t *words)
{
	const uint64_t n_words = HISTORY_WORDS((uint64_t)TAIL_CONTEXT, s->c->n_out);
	for (uint32_t i = 0; i < s->c->n_rows; i++, words += n_words) {
		memset(words, 0, n_words * sizeof *words);
		for (uint32_t pos = 0; pos <= rows[i].pos; pos++)
			words[pos] = side_random_u32(s) % s->c->n_out;
		sampler_count(
			&sequences[i], words, rows[i].pos + 1, words + TAIL_CONTEXT, s->c->n_out);
		uint32_t *mask = words + TAIL_CONTEXT + s->c->n_out;
		for (uint32_t token = 0; token < s->c->n_out; token++)
			mask[token / 32] |= (uint32_t)(side_random_u32(s) % 4 > 0) << token % 32;
	}
}

/* Sequences and histories, which control writes and sample only reads. */
static void build_tail(
	struct side *s, const struct step_row *rows, struct tail *tail, enum form form)
{
	uint32_t n = s->c->n_rows;
	struct operand *q = operand_create(s, n * sizeof(struct sequence), PATTERN);
	struct operand *h = operand_create(s,
		n * HISTORY_WORDS((uint64_t)TAIL_CONTEXT, s->c->n_out) * sizeof(uint32_t), PATTERN);
	if (s->status)
		return;
	struct sequence *sequences = (struct sequence *)(void *)(q->bytes + GUARD);
	make_sequences(s, sequences, TAIL_CONTEXT);
	make_history(s, sequences, rows, (uint32_t *)(void *)(h->bytes + GUARD));
	if (form == FORM_WORDS)
		for (uint32_t i = 0; i < n; i++) { /* some end now, some are at an end */
			sequences[i].n_left = i % 7 == 2 ? 1 : 10;
			sequences[i].done = i % 5 == 3;
			sequences[i].cancel = i % 11 == 4;
		}
	q->form = h->form = form;
	q->n_defined = q->n_bytes;
	h->n_defined = h->n_bytes;
	tail->n_ctx = TAIL_CONTEXT;
	tail->sequences = operand_upload(s, q, MEMORY_SHARED);
	if (!s->status)
		tail->history = operand_upload(s, h, MEMORY_DEVICE);
}

void build_sample(struct side *s, const struct step_row *rows)
{
	struct tail tail = {0};
	tail.results = side_output(
		s, s->c->n_rows * sizeof(struct sample_result), FORM_RESULT, CHECK_LIMIT_ELEMENT);
	tail.scratch = output_rows(s, s->c->n_out, LIMIT_EXACT).view;
	if (!s->status) /* its contents are the kernel's own affair */
		s->operands[s->n_operands - 1].n_defined = 0;
	tail.n_top = TAIL_TOP;
	tail.tops = side_output(s,
		(uint64_t)s->c->n_rows * RING_ENTRIES * TAIL_TOP * sizeof(struct top_token),
		FORM_ROUTE, CHECK_LIMIT_ELEMENT);
	struct rows logits = input_rows(s, s->c->n_out, 8);
	build_tail(s, rows, &tail, FORM_INPUT);
	input_step(s, rows, case_positions(rows, s->c->n_rows));
	if (!s->status)
		plan_sample(&s->plan, logits, &tail);
}

void build_control(struct side *s, const struct step_row *rows)
{
	uint32_t n = s->c->n_rows;
	struct tail tail = {0};
	build_tail(s, rows, &tail, FORM_WORDS);
	tail.ring = side_output(
		s, (uint64_t)n * RING_ENTRIES * sizeof(struct ring_entry), FORM_WORDS, 0);
	input_step(s, rows, case_positions(rows, n));
	struct operand *step = &s->operands[s->n_operands - 1];
	struct operand *o = operand_create(s, n * sizeof(struct sample_result), 0xFF);
	if (s->status)
		return;
	step->form = FORM_WORDS;
	step->n_defined = step->n_bytes;
	const struct sequence *sequences =
		(struct sequence *)(void *)(s->operands[1].bytes + GUARD);
	struct sample_result *results = (struct sample_result *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < n; i++)
		results[i] = (struct sample_result){
			.token = i % 3 == 1 ? sequences[i].stop[0]
					    : side_random_u32(s) % s->c->n_out,
			.log_prob = -1,
			.error = i % 13 == 6,
		};
	tail.results = operand_upload(s, o, MEMORY_DEVICE);
	if (!s->status)
		plan_control(&s->plan, s->c->n_out, &tail);
}
