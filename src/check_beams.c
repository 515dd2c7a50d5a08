/* Cases of the kernel that merges the candidates of beams: see check_side.h. */
#include "check_side.h"

#include <stdlib.h>

/* Scores are multiples of 1/2 below a handful, so that many are equal: between rows and within one. */
static float random_score(struct side *s)
{
	return -0.5f * (float)(side_random_u32(s) % 9);
}

/* Some list fewer than there is room for, some forbid what stops, some have no token left. */
static struct view input_beams(struct side *s, uint32_t n_top)
{
	const uint32_t n = s->c->n_rows, n_vocab = s->c->n_out;
	struct operand *o = operand_create(s, n * sizeof(struct sequence), 0xFF);
	if (!o)
		return (struct view){0};
	struct sequence *q = (struct sequence *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < n; i++) {
		q[i] = (struct sequence){.greedy = 1,
			.n_top = i % 4 == 3 ? n_top / 2 : n_top,
			.n_stop = i % 3,
			.n_forbid_left = i % 2 ? 7 : 0,
			.n_sampled = 1000 + 13 * i,
			.beam_score = i % 5 ? random_score(s) : 0};
		for (uint32_t j = 0; j < q[i].n_stop; j++)
			q[i].stop[j] = side_random_u32(s) % n_vocab;
	}
	return operand_upload(s, o, MEMORY_SHARED);
}

/* Each row's entry of the ring is listed, the others are NaN. */
static struct view input_tops(struct side *s, uint32_t n_top)
{
	const uint32_t n = s->c->n_rows, n_vocab = s->c->n_out;
	struct operand *o = operand_create(
		s, (uint64_t)n * RING_ENTRIES * n_top * sizeof(struct top_token), 0xFF);
	if (!o)
		return (struct view){0};
	struct top_token *tops = (struct top_token *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < n; row++) {
		struct top_token *top = tops +
			((size_t)row * RING_ENTRIES + (1000 + 13 * row) % RING_ENTRIES) * n_top;
		for (uint32_t i = 0; i < n_top; i++)
			top[i] = row % 6 == 4 && i > n_top / 3
				? (struct top_token){.token = UINT32_MAX}
				: (struct top_token){(n_top - i + row) % n_vocab, random_score(s)};
	}
	return operand_upload(s, o, MEMORY_SHARED);
}

void build_beam_select(struct side *s, const struct step_row *rows)
{
	const uint32_t n = s->c->n_rows;
	struct tail tail = {.n_top = s->c->n_out < MAX_TOP ? s->c->n_out : MAX_TOP};
	const uint64_t n_bytes = sizeof(struct beam_choice) +
		(uint64_t)side_room(s) * tail.n_top * sizeof(struct beam_candidate);
	tail.choice = side_output(s, n_bytes, FORM_WORDS, LIMIT_EXACT);
	tail.sequences = input_beams(s, tail.n_top);
	tail.tops = input_tops(s, tail.n_top);
	struct operand *o = operand_create(s, n * sizeof(struct sample_result), 0xFF);
	if (!o)
		return;
	struct sample_result *results = (struct sample_result *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < n; i++)
		results[i] = (struct sample_result){.error = n > 8 && i == n - 1};
	tail.results = operand_upload(s, o, MEMORY_DEVICE);
	input_step(s, rows, 1);
	if (!s->status)
		plan_beam_select(&s->plan, &tail);
}
