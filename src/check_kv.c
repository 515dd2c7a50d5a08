/* Cases of the kernels that move what lies in a KV cache: see check_side.h.  The whole cache is random, so
 * that a row too many or at the wrong place shows. */
#include "check_side.h"
#include "kv.h"

#include <stdlib.h>

/* K or V of n_blocks blocks, which the kernel reads and writes. */
static struct view moved_cache(
	struct side *s, uint32_t n_blocks, enum kv_type type, enum form form, double limit)
{
	uint32_t dim = s->c->head_dim;
	uint64_t n = (uint64_t)n_blocks * KV_BLOCK * s->c->n_head_kv * dim;
	struct operand *o = operand_create(s, kv_bytes(type, n), 0xFF);
	if (!o)
		return (struct view){0};
	float values[MAX_HEAD_DIM];
	for (uint64_t at = 0; at < n; at += dim) {
		for (uint32_t i = 0; i < dim; i++)
			values[i] = side_random_float(s, 2);
		kv_store(type, o->bytes + GUARD, at, dim, values);
	}
	o->form = form;
	o->limit = limit;
	o->n_defined = o->n_bytes;
	return operand_upload(s, o, MEMORY_DEVICE);
}

/* Each row copies one block to another; blocks of the other kind are named too, and left alone. */
void build_kv_copy(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	const uint32_t n_blocks = 4 * c->n_rows + 1;
	struct kv_layer kv = {.k_type = c->k, .v_type = c->v};
	struct kv_shape shape = {
		.n_head = c->n_head, .n_head_kv = c->n_head_kv, .head_dim = c->head_dim};
	struct copy_row *copies = array_alloc(c->n_rows, sizeof *copies);
	(void)rows;
	kv.k = moved_cache(s, n_blocks, c->k, FORM_WORDS, LIMIT_EXACT);
	kv.v = moved_cache(s, n_blocks, c->v, FORM_WORDS, LIMIT_EXACT);
	if (!copies && !s->status)
		s->status = fail_memory(s->err, "a step", c->n_rows * sizeof *copies);
	for (uint32_t i = 0; i < c->n_rows && copies; i++)
		copies[i] = (struct copy_row){.from = 4 * i + 1,
			.to = 4 * i,
			.from_window = 4 * i + 2,
			.to_window = 4 * i + 4};
	if (copies)
		input_step(s, copies, 1);
	if (!s->status)
		plan_kv_copy(&s->plan, &kv, &shape, c->window != 0);
	free(copies);
}

/* Each row fills one position, of one of two sequences, from behind the last that is filled. */
void build_kv_shift(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	const float length = 1.25f;
	const uint32_t n_kv = c->pos + 3 * c->n_rows + 1;
	const uint32_t n_blocks = (n_kv + KV_BLOCK - 1) / KV_BLOCK;
	struct kv_layer kv = {.k_type = c->k, .v_type = c->v};
	struct shift_row *shifts = array_alloc(c->n_rows, sizeof *shifts);
	kv.k = moved_cache(s, 2 * n_blocks, c->k, cache_form(c->k),
		c->k <= KV_F32 ? CHECK_LIMIT_ELEMENT : CHECK_LIMIT_QUANTISED);
	kv.v = moved_cache(s, 2 * n_blocks, c->v, FORM_WORDS, LIMIT_EXACT);
	struct view turns = input_turns(s, n_kv, length);
	struct kv_shape shape = input_table(s, 2, n_blocks);
	if (!shifts && !s->status)
		s->status = fail_memory(s->err, "a step", c->n_rows * sizeof *shifts);
	for (uint32_t i = 0; i < c->n_rows && shifts; i++)
		shifts[i] = (struct shift_row){.pos = rows[i].pos,
			.distance = c->n_rows + i % 3 * c->n_rows / 2,
			.seq = i % 2};
	if (shifts)
		input_step(s, shifts, n_kv);
	if (!s->status)
		plan_kv_shift(&s->plan, &kv, &shape,
			&(struct rope){.table = turns, .n_rot = c->n_rot, .neox = c->flags & NEOX},
			length);
	free(shifts);
}
