/* Operands of a case: see check_side.h. */
#include "check_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t case_columns(const struct check_case *c, enum weight weight)
{
	uint32_t block = weight_format(weight)->block_weights;
	return (c->n_in + block - 1) / block * block;
}

uint32_t side_random_u32(struct side *s)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
	return (uint32_t)(s->random >> 32);
}

float side_random_float(struct side *s, float size)
{
	return (float)((double)side_random_u32(s) / 0x80000000u - 1) * size;
}

struct operand *operand_create(struct side *s, uint64_t n_bytes, int fill)
{
	struct operand *o = &s->operands[s->n_operands];
	if (s->status)
		return NULL;
	uint8_t *bytes = malloc(n_bytes + 2 * GUARD);
	if (!bytes) {
		s->status = fail_memory(s->err, "an operand", n_bytes + 2 * GUARD);
		return NULL;
	}
	memset(bytes, fill, n_bytes + 2 * GUARD);
	*o = (struct operand){.bytes = bytes, .n_bytes = n_bytes};
	s->n_operands++;
	return o;
}

struct view operand_upload(struct side *s, struct operand *o, enum memory memory)
{
	uint64_t n_bytes = o->n_bytes + 2 * GUARD;
	s->status = s->b->ops->buffer_create(s->b, n_bytes, memory, "a check", &o->buffer, s->err);
	if (!s->status)
		s->status = s->b->ops->write(
			s->b, (struct view){o->buffer, 0, n_bytes}, o->bytes, n_bytes, s->err);
	return (struct view){o->buffer, GUARD, o->n_bytes};
}

struct view side_output(struct side *s, uint64_t n_bytes, enum form form, double limit)
{
	struct operand *o = operand_create(s, n_bytes, PATTERN);
	if (!o)
		return (struct view){0};
	o->form = form;
	o->limit = limit;
	o->n_defined = n_bytes;
	return operand_upload(s, o, MEMORY_DEVICE);
}

uint32_t side_room(const struct side *s)
{
	return s->c->room ? s->c->room : s->c->n_rows;
}

static struct rows rows_shape(uint32_t n)
{
	return (struct rows){.n = n, .stride = ROW_STRIDE(n)};
}

uint32_t side_n_used(const struct side *s)
{
	return s->c->n_used ? s->c->n_used : 1;
}

struct rows input_slots(struct side *s, uint32_t n_used_rows, uint32_t n, float size)
{
	struct rows rows = rows_shape(n);
	uint32_t n_rows = side_room(s) * n_used_rows;
	struct operand *o = operand_create(s, (uint64_t)n_rows * rows.stride * sizeof(float), 0xFF);
	if (!o)
		return rows;
	float *to = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < n_rows; row++)
		for (uint32_t i = 0; i < rows.stride; i++)
			*to++ = i < n ? side_random_float(s, size) : 0;
	rows.view = operand_upload(s, o, MEMORY_DEVICE);
	return rows;
}

struct rows input_rows(struct side *s, uint32_t n, float size)
{
	return input_slots(s, 1, n, size);
}

struct rows output_slots(struct side *s, uint32_t n_used_rows, uint32_t n, double limit)
{
	struct rows rows = rows_shape(n);
	uint64_t row_bytes = (uint64_t)n_used_rows * rows.stride * sizeof(float);
	rows.view = side_output(s, side_room(s) * row_bytes, FORM_F32, limit);
	if (!s->status) /* a matmul may compute whole tiles of the rows there is room for */
		s->operands[s->n_operands - 1].n_defined = s->c->n_rows * row_bytes;
	return rows;
}

struct rows output_rows(struct side *s, uint32_t n, double limit)
{
	return output_slots(s, 1, n, limit);
}

/* Where a block of each format has its 16-bit floats: byte offsets, -1 for none.  All other bytes of a
 * block may be anything, but for those that random_scales knows. */
static const int scale_offsets[N_WEIGHTS][2] = {
	[WEIGHT_f32] = {-1, -1},
	[WEIGHT_f16] = {-1, -1},
	[WEIGHT_bf16] = {-1, -1},
	[WEIGHT_q8_0] = {0, -1},
	[WEIGHT_q4_0] = {0, -1},
	[WEIGHT_q4_1] = {0, 2},
	[WEIGHT_q5_0] = {0, -1},
	[WEIGHT_q5_1] = {0, 2},
	[WEIGHT_q2_k] = {80, 82},
	[WEIGHT_q3_k] = {108, -1},
	[WEIGHT_q4_k] = {0, 2},
	[WEIGHT_q5_k] = {0, 2},
	[WEIGHT_q6_k] = {208, -1},
	[WEIGHT_iq4_nl] = {0, -1},
	[WEIGHT_iq4_xs] = {0, -1},
	[WEIGHT_iq3_s] = {0, -1},
	[WEIGHT_iq3_xxs] = {0, -1},
	[WEIGHT_iq2_s] = {0, -1},
	[WEIGHT_iq2_xs] = {0, -1},
	[WEIGHT_iq2_xxs] = {0, -1},
	[WEIGHT_iq1_m] = {-1, -1},
	[WEIGHT_iq1_s] = {0, -1},
	[WEIGHT_tq2_0] = {64, -1},
	[WEIGHT_tq1_0] = {52, -1},
	[WEIGHT_mxfp4] = {-1, -1},
};

/* The scales of a block: small, of either sign, and often subnormal. */
static void random_scales(struct side *s, enum weight weight, uint8_t *block)
{
	for (unsigned i = 0; i < 2; i++) {
		float scale = side_random_float(s, side_random_u32(s) % 4 ? 0x1p-6f : 0x1p-15f);
		uint16_t half = float_to_half(scale);
		if (scale_offsets[weight][i] >= 0)
			memcpy(block + scale_offsets[weight][i], &half, sizeof half);
		if (weight == WEIGHT_iq1_m) /* a nibble on top of each of the last four words */
			for (unsigned k = 0; k < 4; k++) {
				uint8_t *top = block + 49 + 2 * k;
				*top = (uint8_t)((*top & 15) | (half >> 4 * k & 15) << 4);
			}
	}
	if (weight ==
		WEIGHT_mxfp4) /* an exponent; weights below 2^-126 are each driver's own affair */
		block[0] = (uint8_t)((side_random_u32(s) % 8 ? 112 : 90) + block[0] % 8);
}

void random_blocks(struct side *s, enum weight weight, uint8_t *to, uint64_t n_bytes)
{
	const struct weight_format *f = weight_format(weight);
	for (uint64_t at = 0; at < n_bytes; at += f->block_bytes) {
		uint8_t *block = to + at;
		float value = side_random_float(s, 1);
		if (f->block_weights == 1) {
			uint32_t bits;
			uint16_t half =
				float_to_half(side_random_u32(s) % 16 ? value : value * 0x1p-15f);
			memcpy(&bits, &value, sizeof bits);
			if (weight == WEIGHT_bf16)
				half = (uint16_t)(bits >> 16);
			memcpy(block, f->block_bytes == 4 ? (void *)&bits : (void *)&half,
				f->block_bytes);
			continue;
		}
		for (uint32_t i = 0; i < f->block_bytes; i++)
			block[i] = (uint8_t)side_random_u32(s);
		random_scales(s, weight, block);
	}
}

struct weights input_weights(struct side *s, enum weight weight, uint32_t n_rows, uint32_t n_cols,
	uint32_t rows_per_chunk, struct view *chunks)
{
	struct weights w = {
		.name = "weights",
		.weight = weight,
		.n_rows = n_rows,
		.n_cols = n_cols,
		.rows_per_chunk = rows_per_chunk ? rows_per_chunk : n_rows,
		.chunks = chunks,
	};
	uint64_t row_bytes = 0;
	weight_row_bytes(weight, n_cols, &row_bytes);
	for (uint32_t first = 0; first < n_rows; first += w.rows_per_chunk) {
		uint32_t left = n_rows - first;
		uint64_t n = (left < w.rows_per_chunk ? left : w.rows_per_chunk) * row_bytes;
		/* What can be read behind the last row is NaN in the float formats. */
		struct operand *o = operand_create(s, n + WEIGHT_PAD, 0xFF);
		if (!o)
			return w;
		random_blocks(s, weight, o->bytes + GUARD, n);
		chunks[w.n_chunks++] = operand_upload(s, o, MEMORY_DEVICE);
	}
	return w;
}

struct kv_shape input_table(struct side *s, uint32_t n_seq, uint32_t n_blocks)
{
	struct kv_shape shape = {
		.n_head = s->c->n_head,
		.n_head_kv = s->c->n_head_kv,
		.head_dim = s->c->head_dim,
		.n_blocks = n_blocks,
		.n_ctx = n_blocks * KV_BLOCK,
	};
	uint32_t n = n_seq * n_blocks;
	struct operand *o = operand_create(s, n * sizeof(uint32_t), 0xFF);
	if (!o)
		return shape;
	uint32_t *table = (uint32_t *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t other = side_random_u32(s) % (i + 1); /* Fisher and Yates, inside out */
		table[i] = table[other];
		table[other] = i;
	}
	shape.table = operand_upload(s, o, MEMORY_DEVICE);
	return shape;
}

enum form cache_form(enum kv_type type)
{
	static const enum form forms[] = {[KV_F16] = FORM_F16,
		[KV_F32] = FORM_F32,
		[KV_Q8_0] = FORM_Q8_0,
		[KV_Q4_0] = FORM_Q4_0};
	return forms[type];
}

struct view input_turns(struct side *s, uint32_t n_positions, float length)
{
	uint32_t n = n_positions * s->c->n_rot;
	struct operand *o = operand_create(s, (n ? n : 1) * sizeof(float), 0xFF);
	if (!o)
		return (struct view){0};
	float *turns = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < n; i += 2) {
		double angle = (double)side_random_float(s, 4);
		turns[i] = (float)(cos(angle) * (double)length);
		turns[i + 1] = (float)(sin(angle) * (double)length);
	}
	return operand_upload(s, o, MEMORY_DEVICE);
}

void input_step(struct side *s, const void *rows, uint32_t n_kv)
{
	uint64_t n_bytes =
		sizeof(struct step_header) + (uint64_t)side_room(s) * sizeof(struct step_row);
	struct operand *o = operand_create(s, n_bytes, 0xFF);
	if (!o)
		return;
	struct step_header header = {.n_rows = s->c->n_rows, .n_kv = n_kv};
	memcpy(o->bytes + GUARD, &header, sizeof header);
	memcpy(o->bytes + GUARD + sizeof header, rows, s->c->n_rows * sizeof(struct step_row));
	s->plan.step = operand_upload(s, o, MEMORY_SHARED);
}
