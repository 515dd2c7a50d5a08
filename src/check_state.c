/* Cases of the kernels of recurrent layers: see check_side.h.  What the rows of the step may look at is random,
 * everything else that a state can hold is NaN: blocks of others, the start of block 0, positions to come.
 *
 * Of a case: n_rows of n_segments sequences (0: one) that begin at pos, each some way behind the one before. */
#include "check_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sequences, the blocks that they keep, and where their rows are. */
struct timeline {
	struct step_row *rows;
	struct view view; /* of the table */
	const uint32_t *table;
	uint32_t n_seq, n_blocks; /* entries of a sequence */
	uint32_t n_kept;
};

static uint32_t first_row(const struct check_case *c, uint32_t n_seq, uint32_t seq)
{
	return c->n_rows * seq / n_seq;
}

static bool is_kept(const struct side *s, uint32_t block, uint32_t pos, uint32_t end)
{
	if (s->plan.role == ROLE_DECODE || !(s->c->flags & SPARSE))
		return block >= pos / STATE_BLOCK && block <= end / STATE_BLOCK;
	return block == pos / STATE_BLOCK || block == end / STATE_BLOCK;
}

/* The step's rows and its table; kept blocks lie in an order of their own. */
static bool timeline_create(struct side *s, struct timeline *t)
{
	const struct check_case *c = s->c;
	*t = (struct timeline){.n_seq = c->n_segments ? c->n_segments : 1};
	t->n_blocks = (c->pos + STATE_BLOCK * t->n_seq + c->n_rows) / STATE_BLOCK + 1;
	t->rows = array_alloc(c->n_rows, sizeof *t->rows);
	struct operand *o =
		operand_create(s, (uint64_t)t->n_seq * t->n_blocks * sizeof(uint32_t), 0xFF);
	if (!t->rows && !s->status)
		s->status = fail_memory(s->err, "a step", c->n_rows * sizeof *t->rows);
	if (s->status)
		return false;
	uint32_t *table = (uint32_t *)(void *)(o->bytes + GUARD);
	for (uint32_t seq = t->n_seq; seq-- > 0;) {
		const uint32_t first = first_row(c, t->n_seq, seq);
		const uint32_t end = first_row(c, t->n_seq, seq + 1);
		const uint32_t pos = c->pos + seq * (STATE_BLOCK - 3);
		for (uint32_t row = first; row < end; row++)
			t->rows[row] = (struct step_row){.pos = pos + row - first, .seq = seq};
		for (uint32_t block = t->n_blocks; block-- > 0;)
			if (first < end && is_kept(s, block, pos, pos + end - first))
				table[seq * t->n_blocks + block] = t->n_kept++;
	}
	t->table = table;
	t->view = operand_upload(s, o, MEMORY_DEVICE);
	return !s->status;
}

/* The state of all kept blocks, on the host: NaN. */
static struct operand *state_create(
	struct side *s, const struct timeline *t, uint64_t block_bytes, double limit)
{
	struct operand *o = operand_create(s, t->n_kept * block_bytes, 0xFF);
	if (!o)
		return NULL;
	o->form = FORM_F32;
	o->limit = limit;
	o->n_defined = o->n_bytes;
	return o;
}

/* The words of the block that a sequence's first row is in. */
static float *first_block(struct operand *o, const struct timeline *t, const struct step_row *row,
	uint64_t block_bytes)
{
	uint32_t block = t->table[row->seq * t->n_blocks + row->pos / STATE_BLOCK];
	return (float *)(void *)(o->bytes + GUARD + block * block_bytes);
}

static void fill(struct side *s, float *to, uint32_t n, float size)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = side_random_float(s, size);
}

void build_conv(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	const bool gated = c->flags & GATED;
	const uint32_t n = c->n_out, before = c->n_in - 1;
	const uint64_t block_bytes = conv_block_bytes(n, c->n_in);
	struct timeline t;
	struct view chunk;
	(void)rows;
	struct rows out = output_rows(s, n, CHECK_LIMIT_ELEMENT);
	struct rows x = input_rows(s, gated ? 3 * n + 4 : n, 2);
	struct weights w = input_weights(s, WEIGHT_f32, n, c->n_in, 0, &chunk);
	if (timeline_create(s, &t)) {
		struct operand *o = state_create(s, &t, block_bytes, CHECK_LIMIT_ELEMENT);
		for (uint32_t seq = 0; seq < t.n_seq && o; seq++) {
			const struct step_row *row = &t.rows[first_row(c, t.n_seq, seq)];
			float *block = first_block(o, &t, row, block_bytes);
			if (row->pos >= STATE_BLOCK)
				fill(s, block, before * n, 2);
			fill(s, block + (size_t)before * n, row->pos % STATE_BLOCK * n, 2);
		}
		struct view state = {0};
		if (o)
			state = operand_upload(s, o, MEMORY_DEVICE);
		input_step(s, t.rows, 1);
		if (!s->status)
			plan_conv(&s->plan, out, x, &w, state,
				&(struct state_shape){t.view, t.n_blocks},
				&(struct conv){
					.n_channels = n,
					.n_taps = c->n_in,
					.x = gated ? 2 * n + 4 : 0,
					.gate_in = gated ? 0 : CONV_NONE,
					.gate_out = gated ? n : CONV_NONE,
					.silu = !gated,
				});
	}
	free(t.rows);
}

/* dt, and a below 0, so that the state forgets. */
static struct weights input_rates(struct side *s, uint32_t n_head, struct view *chunk)
{
	struct weights w = {.name = "dt_a",
		.weight = WEIGHT_f32,
		.n_rows = 1,
		.n_cols = 2 * n_head,
		.rows_per_chunk = 1,
		.n_chunks = 1,
		.chunks = chunk};
	struct operand *o = operand_create(s, (uint64_t)2 * n_head * sizeof(float), 0xFF);
	if (!o)
		return w;
	float *to = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < 2 * n_head; i++)
		to[i] = i < n_head ? side_random_float(s, 1) : -fabsf(side_random_float(s, 1));
	*chunk = operand_upload(s, o, MEMORY_DEVICE);
	return w;
}

/* What earlier steps may have left in a block before a row at `pos`. */
static void fill_delta(struct side *s, const struct delta *d, float *block, uint32_t pos)
{
	const uint32_t n_k = d->n_group * d->dk, n_u = d->n_head * d->dv, t = pos % STATE_BLOCK;
	float *k = block + DELTA_K(*d), *u = block + DELTA_U(*d), *decay = block + DELTA_G(*d);
	if (pos >= STATE_BLOCK)
		fill(s, block, DELTA_K(*d), 0.5f);
	fill(s, k, t * n_k, sqrtf(3.0f / (float)d->dk));
	fill(s, u, t * n_u, 1);
	for (uint32_t i = 0; i < t * d->n_head; i++)
		decay[i] = (i >= d->n_head ? decay[i - d->n_head] : 0) -
			fabsf(side_random_float(s, 0.3f));
}

void build_delta(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	const struct delta d = {.n_group = c->n_head_kv,
		.n_head = c->n_head,
		.dk = c->head_dim,
		.dv = c->n_out,
		.alpha = 1,
		.beta = c->n_head + 2,
		.eps = 1e-6f};
	const uint64_t block_bytes = delta_block_bytes(&d);
	struct timeline t;
	struct view chunk;
	(void)rows;
	struct rows out = output_rows(s, d.n_head * d.dv, CHECK_LIMIT_FLOAT);
	struct rows qkv = input_rows(s, 2 * d.n_group * d.dk + d.n_head * d.dv, 1);
	struct rows gates = input_rows(s, 2 * d.n_head + 2, 3);
	struct weights dt_a = input_rates(s, d.n_head, &chunk);
	if (timeline_create(s, &t)) {
		struct operand *o = state_create(s, &t, block_bytes, CHECK_LIMIT_FLOAT);
		for (uint32_t seq = 0; seq < t.n_seq && o; seq++) {
			const struct step_row *row = &t.rows[first_row(c, t.n_seq, seq)];
			fill_delta(s, &d, first_block(o, &t, row, block_bytes), row->pos);
		}
		struct view state = {0};
		if (o)
			state = operand_upload(s, o, MEMORY_DEVICE);
		input_step(s, t.rows, 1);
		if (!s->status)
			plan_delta(&s->plan, out, qkv, gates, &dt_a, state,
				&(struct state_shape){t.view, t.n_blocks}, &d);
	}
	free(t.rows);
}
