/* The case list and what runs a case: see check.h. */
#include "check.h"
#include "sampler.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD        256  /* bytes before and behind an operand; a legal offset of a view */
#define PATTERN      0xC5 /* bytes of an output before the run, and of its guards */
#define MAX_OPERANDS 16
#define MAX_CHUNKS   4
#define BIG          1e30 /* magnitudes beyond are markers, compared by their bits */
/* An element may be this far off, of itself or of the root mean square: a mean over many elements would
 * hide a single wrong one.  A rounding to half is below 1e-3. */
#define OUTLIER 2e-3

/* ---- the cases --------------------------------------------------------------------------------- */

/* Fields that a kernel does not have are 0. */
struct check_case {
	enum kernel kernel;
	uint32_t n_rows;      /* of the step */
	uint32_t n_out, n_in; /* n_in is rounded up to whole blocks of the format */
	uint32_t chunk;       /* rows of a chunk of the weights; 0: one chunk */
	uint32_t room;        /* rows that the plan has room for; 0: n_rows */
	uint32_t n_head, n_head_kv, head_dim, n_rot;
	uint32_t pos; /* of the first row (prefill, rope) or the longest (decode) */
	uint32_t flags;
};

enum {
	SMALL = 1, /* also on slow devices */
	BIAS = 2,
	RESIDUAL = 4,
	NEOX = 8,
	K_HALF = 16,
	V_HALF = 32,
	ONLY_F32 = 64, /* one format is enough */
};

static const struct check_case cases[] = {
	{KERNEL_embed, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_embed, 7, .n_out = 31, .n_in = 31},
	{KERNEL_embed, 5, .n_out = 150, .n_in = 172, .chunk = 64, .flags = SMALL},
	{KERNEL_embed, 33, .n_out = 257, .n_in = 2081},

	{KERNEL_rmsnorm, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_rmsnorm, 3, .n_out = 63},
	{KERNEL_rmsnorm, 2, .n_out = 127, .flags = SMALL},
	{KERNEL_rmsnorm, 2, .n_out = 128},
	{KERNEL_rmsnorm, 2, .n_out = 129, .flags = SMALL},
	{KERNEL_rmsnorm, 70, .n_out = 1031},

	{KERNEL_matvec, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_matvec, 1, .n_out = 3, .n_in = 31, .flags = SMALL | BIAS},
	{KERNEL_matvec, 2, .n_out = 4, .n_in = 32, .flags = RESIDUAL},
	{KERNEL_matvec, 3, .n_out = 31, .n_in = 33, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_matvec, 8, .n_out = 33, .n_in = 172, .flags = RESIDUAL},
	{KERNEL_matvec, 1, .n_out = 127, .n_in = 257, .flags = BIAS},
	{KERNEL_matvec, 4, .n_out = 150, .n_in = 96, .chunk = 64, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_matvec, 1, .n_out = 512, .n_in = 256},
	{KERNEL_matvec, 1, .n_out = 67, .n_in = 4099},
	{KERNEL_matvec, 1, .n_out = 65535 * 32 + 33, .n_in = 1, .flags = ONLY_F32},

	{KERNEL_matmul, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_matmul, 2, .n_out = 3, .n_in = 31, .flags = BIAS},
	{KERNEL_matmul, 7, .n_out = 31, .n_in = 33, .flags = SMALL | RESIDUAL},
	{KERNEL_matmul, 8, .n_out = 32, .n_in = 64},
	{KERNEL_matmul, 9, .n_out = 33, .n_in = 172, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_matmul, 3, .n_out = 16, .n_in = 256, .room = 64},
	{KERNEL_matmul, 31, .n_out = 127, .n_in = 257, .flags = BIAS},
	{KERNEL_matmul, 32, .n_out = 128, .n_in = 256},
	{KERNEL_matmul, 33, .n_out = 129, .n_in = 256, .room = 40, .flags = RESIDUAL},
	{KERNEL_matmul, 45, .n_out = 64, .n_in = 128},
	{KERNEL_matmul, 45, .n_out = 128, .n_in = 64},
	{KERNEL_matmul, 5, .n_out = 150, .n_in = 96, .chunk = 64, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_matmul, 65, .n_out = 512, .n_in = 256},

	{KERNEL_rope_kv, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .n_rot = 2, .flags = SMALL},
	{KERNEL_rope_kv, 5, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .n_rot = 32, .pos = 29,
		.flags = SMALL | NEOX | K_HALF | V_HALF},
	{KERNEL_rope_kv, 3, .n_head = 8, .n_head_kv = 1, .head_dim = 64, .n_rot = 64, .pos = 1000,
		.flags = K_HALF},
	{KERNEL_rope_kv, 33, .n_head = 3, .n_head_kv = 3, .head_dim = 80, .n_rot = 20, .pos = 31,
		.flags = NEOX | V_HALF},
	{KERNEL_rope_kv, 2, .n_head = 2, .n_head_kv = 1, .head_dim = 96, .n_rot = 0, .pos = 32},
	{KERNEL_rope_kv, 7, .n_head = 7, .n_head_kv = 1, .head_dim = 128, .n_rot = 128, .pos = 125,
		.flags = NEOX},
	{KERNEL_rope_kv, 2, .n_head = 16, .n_head_kv = 2, .head_dim = 256, .n_rot = 64, .pos = 63,
		.flags = SMALL | K_HALF | V_HALF},

	{KERNEL_attn_decode, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .flags = SMALL},
	{KERNEL_attn_decode, 1, .n_head = 2, .n_head_kv = 2, .head_dim = 32, .pos = 30,
		.flags = K_HALF | V_HALF},
	{KERNEL_attn_decode, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 31,
		.flags = SMALL | K_HALF},
	{KERNEL_attn_decode, 2, .n_head = 3, .n_head_kv = 1, .head_dim = 48, .pos = 32,
		.flags = V_HALF},
	{KERNEL_attn_decode, 1, .n_head = 4, .n_head_kv = 1, .head_dim = 64, .pos = 95},
	{KERNEL_attn_decode, 4, .n_head = 5, .n_head_kv = 1, .head_dim = 64, .pos = 126,
		.flags = SMALL | K_HALF | V_HALF},
	{KERNEL_attn_decode, 1, .n_head = 6, .n_head_kv = 2, .head_dim = 80, .pos = 127},
	{KERNEL_attn_decode, 2, .n_head = 7, .n_head_kv = 1, .head_dim = 96, .pos = 128,
		.flags = SMALL},
	{KERNEL_attn_decode, 3, .n_head = 8, .n_head_kv = 1, .head_dim = 128, .pos = 129,
		.flags = V_HALF},
	{KERNEL_attn_decode, 1, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.flags = K_HALF | V_HALF},
	{KERNEL_attn_decode, 8, .n_head = 16, .n_head_kv = 2, .head_dim = 256, .pos = 255},
	{KERNEL_attn_decode, 2, .n_head = 32, .n_head_kv = 1, .head_dim = 64, .pos = 1030,
		.flags = K_HALF | V_HALF},

	{KERNEL_attn_reduce, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .flags = SMALL},
	{KERNEL_attn_reduce, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 64, .pos = 127,
		.flags = SMALL},
	{KERNEL_attn_reduce, 2, .n_head = 7, .n_head_kv = 1, .head_dim = 80, .pos = 128},
	{KERNEL_attn_reduce, 8, .n_head = 8, .n_head_kv = 8, .head_dim = 256, .pos = 4000},

	{KERNEL_attn_prefill, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .flags = SMALL},
	{KERNEL_attn_prefill, 7, .n_head = 2, .n_head_kv = 2, .head_dim = 32,
		.flags = SMALL | K_HALF},
	{KERNEL_attn_prefill, 8, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 24,
		.flags = K_HALF | V_HALF},
	{KERNEL_attn_prefill, 9, .n_head = 3, .n_head_kv = 1, .head_dim = 48, .pos = 31,
		.flags = SMALL | V_HALF},
	{KERNEL_attn_prefill, 33, .n_head = 4, .n_head_kv = 1, .head_dim = 64, .room = 40},
	{KERNEL_attn_prefill, 10, .n_head = 5, .n_head_kv = 1, .head_dim = 80, .pos = 90},
	{KERNEL_attn_prefill, 3, .n_head = 7, .n_head_kv = 1, .head_dim = 96, .pos = 127,
		.flags = SMALL | K_HALF | V_HALF},
	{KERNEL_attn_prefill, 17, .n_head = 8, .n_head_kv = 1, .head_dim = 128, .pos = 120,
		.flags = K_HALF},
	{KERNEL_attn_prefill, 40, .n_head = 16, .n_head_kv = 4, .head_dim = 256,
		.flags = K_HALF | V_HALF},
	{KERNEL_attn_prefill, 13, .n_head = 2, .n_head_kv = 1, .head_dim = 256, .pos = 300},

	{KERNEL_glu, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_glu, 2, .n_out = 255},
	{KERNEL_glu, 3, .n_out = 256, .flags = SMALL},
	{KERNEL_glu, 33, .n_out = 257},
	{KERNEL_glu, 1, .n_out = 5003},

	{KERNEL_sample, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_sample, 6, .n_out = 101, .pos = 7, .flags = SMALL},
	{KERNEL_sample, 6, .n_out = 1000, .pos = 20},
	{KERNEL_sample, 3, .n_out = 32003, .pos = 3},

	{KERNEL_control, 1, .n_out = 100, .pos = 3, .flags = SMALL},
	{KERNEL_control, 5, .n_out = 100, .pos = 20, .flags = SMALL},
	{KERNEL_control, 200, .n_out = 1000, .pos = 30},
};

/* A row of the list and, for kernels built per format, one of the formats. */
static uint32_t n_variants(const struct check_case *c)
{
	return kernel_info(c->kernel)->per_weight && !(c->flags & ONLY_F32) ? N_WEIGHTS : 1;
}

uint32_t check_n_cases(void)
{
	uint32_t n = 0;
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		n += n_variants(&cases[i]);
	return n;
}

static const struct check_case *find_case(uint32_t i, enum weight *weight)
{
	const struct check_case *c = cases;
	for (; i >= n_variants(c); c++)
		i -= n_variants(c);
	*weight = (enum weight)i;
	return c;
}

/* n_in in whole blocks. */
static uint32_t n_columns(const struct check_case *c, enum weight weight)
{
	uint32_t block = weight_format(weight)->block_weights;
	return (c->n_in + block - 1) / block * block;
}

enum kernel check_case_kernel(uint32_t i)
{
	enum weight weight;
	return find_case(i, &weight)->kernel;
}

bool check_case_small(uint32_t i)
{
	enum weight weight;
	return find_case(i, &weight)->flags & SMALL;
}

void check_case_name(uint32_t i, char *name, size_t n_bytes)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {{BIAS, "bias"}, {RESIDUAL, "residual"}, {NEOX, "neox"}, {K_HALF, "f16 k"},
		{V_HALF, "f16 v"}};
	enum weight weight;
	const struct check_case *c = find_case(i, &weight);
	const struct kernel_info *k = kernel_info(c->kernel);
	struct text t = {0};
	text_printf(&t, "%s", k->name);
	if (k->per_weight)
		text_printf(&t, " %s", weight_format(weight)->name);
	if (c->n_in)
		text_printf(&t, " %u x %u", c->n_out, n_columns(c, weight));
	else if (c->n_out)
		text_printf(&t, " %u", c->n_out);
	if (c->n_head)
		text_printf(&t, " %u/%u x %u", c->n_head, c->n_head_kv, c->head_dim);
	if (c->kernel == KERNEL_rope_kv)
		text_printf(&t, " rot %u", c->n_rot);
	if (c->pos)
		text_printf(&t, " pos %u", c->pos);
	text_printf(&t, ", %u row%s", c->n_rows, c->n_rows == 1 ? "" : "s");
	if (c->room)
		text_printf(&t, " of %u", c->room);
	if (c->chunk)
		text_printf(&t, ", chunks of %u", c->chunk);
	for (size_t f = 0; f < ARRAY_COUNT(flags); f++)
		if (c->flags & flags[f].flag)
			text_printf(&t, ", %s", flags[f].name);
	if (n_bytes > 0) {
		size_t n = t.n < n_bytes - 1 ? t.n : n_bytes - 1;
		if (n > 0)
			memcpy(name, t.data, n);
		name[n] = 0;
	}
	text_free(&t);
}

/* ---- one side of a case: a backend with the operands ------------------------------------------- */

/* WORDS: every bit counts.  RESULT: struct sample_result, words but for the log-probability. */
enum form { FORM_INPUT, FORM_F32, FORM_F16, FORM_WORDS, FORM_RESULT };

struct operand {
	struct buffer *buffer;
	uint8_t *bytes;   /* with guards: before the run what it starts with, then what came back */
	uint64_t n_bytes; /* without */
	enum form form;
	double limit;
	uint64_t n_defined; /* bytes; what is beyond may be anything */
};

struct side {
	struct backend *b;
	const struct check_case *c;
	enum weight weight;
	struct lap_error *err;
	enum lap_status status; /* of the first thing that went wrong */
	uint64_t random;
	struct operand operands[MAX_OPERANDS];
	uint32_t n_operands;
	struct view chunks[MAX_CHUNKS];
	struct plan plan;
	double seconds;
};

static uint32_t random_u32(struct side *s)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
	return (uint32_t)(s->random >> 32);
}

/* -size to size */
static float random_float(struct side *s, float size)
{
	return (float)((double)random_u32(s) / 0x80000000u - 1) * size;
}

/* Memory on the host for an operand of n_bytes, `fill` everywhere; NULL when something failed. */
static struct operand *operand_create(struct side *s, uint64_t n_bytes, int fill)
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

/* The operand on the device, in its guards. */
static struct view operand_upload(struct side *s, struct operand *o, enum memory memory)
{
	uint64_t n_bytes = o->n_bytes + 2 * GUARD;
	s->status = s->b->ops->buffer_create(s->b, n_bytes, memory, "a check", &o->buffer, s->err);
	if (!s->status)
		s->status = s->b->ops->write(
			s->b, (struct view){o->buffer, 0, n_bytes}, o->bytes, n_bytes, s->err);
	return (struct view){o->buffer, GUARD, o->n_bytes};
}

static struct view output(struct side *s, uint64_t n_bytes, enum form form, double limit)
{
	struct operand *o = operand_create(s, n_bytes, PATTERN);
	if (!o)
		return (struct view){0};
	o->form = form;
	o->limit = limit;
	o->n_defined = n_bytes;
	return operand_upload(s, o, MEMORY_DEVICE);
}

/* Rows of the step: as many as the plan has room for. */
static uint32_t room(const struct side *s)
{
	return s->c->room ? s->c->room : s->c->n_rows;
}

static struct rows rows_shape(uint32_t n)
{
	return (struct rows){.n = n, .stride = ROW_STRIDE(n)};
}

/* Random activations; the padding of a row is 0, as a session keeps it. */
static struct rows input_rows(struct side *s, uint32_t n, float size)
{
	struct rows rows = rows_shape(n);
	struct operand *o =
		operand_create(s, (uint64_t)room(s) * rows.stride * sizeof(float), 0xFF);
	if (!o)
		return rows;
	float *to = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < room(s); row++)
		for (uint32_t i = 0; i < rows.stride; i++)
			*to++ = i < n ? random_float(s, size) : 0;
	rows.view = operand_upload(s, o, MEMORY_DEVICE);
	return rows;
}

static struct rows output_rows(struct side *s, uint32_t n, double limit)
{
	struct rows rows = rows_shape(n);
	rows.view = output(s, (uint64_t)room(s) * rows.stride * sizeof(float), FORM_F32, limit);
	if (!s->status) /* a matmul may compute whole tiles of the rows there is room for */
		s->operands[s->n_operands - 1].n_defined =
			(uint64_t)s->c->n_rows * rows.stride * sizeof(float);
	return rows;
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
		float scale = random_float(s, random_u32(s) % 4 ? 0x1p-6f : 0x1p-15f);
		uint16_t half = float_to_half(scale);
		if (scale_offsets[weight][i] >= 0)
			memcpy(block + scale_offsets[weight][i], &half, sizeof half);
		if (weight == WEIGHT_iq1_m) /* a nibble on top of each of the last four words */
			for (unsigned k = 0; k < 4; k++) {
				uint8_t *top = block + 49 + 2 * k;
				*top = (uint8_t)((*top & 15) | (half >> 4 * k & 15) << 4);
			}
	}
	if (weight == WEIGHT_mxfp4) /* an exponent; now and then with subnormal weights */
		block[0] = (uint8_t)(random_u32(s) % 8 ? 112 + block[0] % 8 : block[0] % 4);
}

/* Random blocks; some plain halves are subnormal. */
static void random_blocks(struct side *s, enum weight weight, uint8_t *to, uint64_t n_bytes)
{
	const struct weight_format *f = weight_format(weight);
	for (uint64_t at = 0; at < n_bytes; at += f->block_bytes) {
		uint8_t *block = to + at;
		float value = random_float(s, 1);
		if (f->block_weights == 1) {
			uint32_t bits;
			uint16_t half =
				float_to_half(random_u32(s) % 16 ? value : value * 0x1p-15f);
			memcpy(&bits, &value, sizeof bits);
			if (weight == WEIGHT_bf16)
				half = (uint16_t)(bits >> 16);
			memcpy(block, f->block_bytes == 4 ? (void *)&bits : (void *)&half,
				f->block_bytes);
			continue;
		}
		for (uint32_t i = 0; i < f->block_bytes; i++)
			block[i] = (uint8_t)random_u32(s);
		random_scales(s, weight, block);
	}
}

static struct weights input_weights(struct side *s, enum weight weight, uint32_t n_rows,
	uint32_t n_cols, uint32_t rows_per_chunk, struct view *chunks)
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

/* The step; rows beyond n_rows are as a longer step left them. */
static void make_step(struct side *s, const struct step_row *rows, uint32_t n_kv)
{
	uint64_t n_bytes = sizeof(struct step_header) + (uint64_t)room(s) * sizeof *rows;
	struct operand *o = operand_create(s, n_bytes, 0xFF);
	if (!o)
		return;
	struct step_header header = {.n_rows = s->c->n_rows, .n_kv = n_kv};
	memcpy(o->bytes + GUARD, &header, sizeof header);
	memcpy(o->bytes + GUARD + sizeof header, rows, s->c->n_rows * sizeof *rows);
	s->plan.step = operand_upload(s, o, MEMORY_SHARED);
}

/* ---- building each kernel's case --------------------------------------------------------------- */

#define LIMIT_EXACT 0.0

static void build_embed(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	struct rows x = output_rows(s, n_columns(c, s->weight), LIMIT_EXACT);
	struct weights w = input_weights(s, s->weight, c->n_out, x.n, c->chunk, s->chunks);
	make_step(s, rows, 1);
	if (!s->status)
		plan_embed(&s->plan, x, &w);
}

static void build_rmsnorm(struct side *s, const struct step_row *rows)
{
	struct view chunk;
	struct rows out = output_rows(s, s->c->n_out, CHECK_LIMIT_ELEMENT);
	struct rows x = input_rows(s, s->c->n_out, 4);
	struct weights w = input_weights(s, WEIGHT_f32, 1, s->c->n_out, 0, &chunk);
	make_step(s, rows, 1);
	if (!s->status)
		plan_rmsnorm(&s->plan, out, x, &w, 1e-5f);
}

static void build_glu(struct side *s, const struct step_row *rows)
{
	struct rows out = output_rows(s, s->c->n_out, CHECK_LIMIT_ELEMENT);
	struct rows gate = input_rows(s, s->c->n_out, 200); /* beyond what exp can take */
	struct rows up = input_rows(s, s->c->n_out, 2);
	make_step(s, rows, 1);
	if (!s->status)
		plan_glu(&s->plan, out, gate, up);
}

static void build_matmul(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	bool is_float = weight_format(s->weight)->block_weights == 1;
	struct view bias_chunk;
	struct weights bias = {0};
	struct rows residual = {0};
	struct rows out =
		output_rows(s, c->n_out, is_float ? CHECK_LIMIT_FLOAT : CHECK_LIMIT_QUANTISED);
	struct rows x = input_rows(s, n_columns(c, s->weight), 1);
	struct weights w = input_weights(s, s->weight, c->n_out, x.n, c->chunk, s->chunks);
	if (c->flags & BIAS)
		bias = input_weights(s, WEIGHT_f32, 1, c->n_out, 0, &bias_chunk);
	if (c->flags & RESIDUAL)
		residual = input_rows(s, c->n_out, 1);
	make_step(s, rows, 1);
	if (!s->status)
		plan_matmul(&s->plan, out, &w, x, &bias, residual);
}

/* A cache for sequences of n_blocks blocks; blocks are dealt in a scattered order. */
static struct kv_shape input_table(struct side *s, uint32_t n_seq, uint32_t n_blocks)
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
		uint32_t other = random_u32(s) % (i + 1); /* Fisher and Yates, inside out */
		table[i] = table[other];
		table[other] = i;
	}
	shape.table = operand_upload(s, o, MEMORY_DEVICE);
	return shape;
}

/* K or V: random where a row of the step will look, NaN everywhere else. */
static struct view input_cache(struct side *s, const struct kv_shape *shape,
	const uint8_t *table_bytes, const struct step_row *rows, uint32_t n_seq, bool f16,
	float size)
{
	uint32_t width = shape->n_head_kv * shape->head_dim;
	uint64_t n = (uint64_t)n_seq * shape->n_ctx * width;
	struct operand *o = operand_create(s, n * (f16 ? 2 : 4), 0xFF);
	if (!o)
		return (struct view){0};
	const uint32_t *table = (const uint32_t *)(const void *)(table_bytes + GUARD);
	float *floats = (float *)(void *)(o->bytes + GUARD);
	uint16_t *halves = (uint16_t *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < s->c->n_rows; row++)
		for (uint32_t pos = 0; pos <= rows[row].pos; pos++) {
			uint32_t block = table[rows[row].seq * shape->n_blocks + pos / KV_BLOCK];
			uint64_t at = ((uint64_t)block * KV_BLOCK + pos % KV_BLOCK) * width;
			for (uint32_t i = 0; i < width; i++) {
				float value = random_float(s, size);
				if (f16)
					halves[at + i] = float_to_half(value);
				else
					floats[at + i] = value;
			}
		}
	return operand_upload(s, o, MEMORY_DEVICE);
}

static uint32_t n_sequences(const struct step_row *rows, uint32_t n_rows)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < n_rows; i++)
		n = rows[i].seq >= n ? rows[i].seq + 1 : n;
	return n;
}

static uint32_t n_positions(const struct step_row *rows, uint32_t n_rows)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < n_rows; i++)
		n = rows[i].pos >= n ? rows[i].pos + 1 : n;
	return n;
}

static void build_rope_kv(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n_seq = n_sequences(rows, c->n_rows), n_kv = n_positions(rows, c->n_rows);
	uint32_t n_q = c->n_head * c->head_dim, n_k = c->n_head_kv * c->head_dim;
	uint32_t k_at = ROW_STRIDE(n_q), v_at = k_at + ROW_STRIDE(n_k);
	struct kv_layer kv = {.k_f16 = c->flags & K_HALF, .v_f16 = c->flags & V_HALF};
	struct rows q = output_rows(s, n_q, CHECK_LIMIT_ELEMENT);
	struct kv_shape shape = input_table(s, n_seq, (n_kv + KV_BLOCK - 1) / KV_BLOCK);
	uint64_t n = (uint64_t)n_seq * shape.n_ctx * n_k;
	kv.k = output(
		s, n * (kv.k_f16 ? 2 : 4), kv.k_f16 ? FORM_F16 : FORM_F32, CHECK_LIMIT_ELEMENT);
	kv.v = output(s, n * (kv.v_f16 ? 2 : 4), kv.v_f16 ? FORM_F16 : FORM_F32, LIMIT_EXACT);
	struct rows qkv = input_rows(s, v_at + n_k, 4);
	struct operand *o =
		operand_create(s, (uint64_t)n_kv * (c->n_rot ? c->n_rot : 1) * sizeof(float), 0xFF);
	make_step(s, rows, n_kv);
	if (s->status)
		return;
	float *turns = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t i = 0; i < n_kv * c->n_rot; i += 2) {
		double angle = (double)random_float(s, 4);
		turns[i] = (float)cos(angle);
		turns[i + 1] = (float)sin(angle);
	}
	struct view table = operand_upload(s, o, MEMORY_DEVICE);
	if (!s->status)
		plan_rope_kv(&s->plan, q, &kv, &shape, qkv, k_at, v_at, table, c->n_rot,
			c->flags & NEOX);
}

static void build_attention(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n_seq = n_sequences(rows, c->n_rows), n_kv = n_positions(rows, c->n_rows);
	uint32_t n_q = c->n_head * c->head_dim;
	struct kv_layer kv = {.k_f16 = c->flags & K_HALF, .v_f16 = c->flags & V_HALF};
	struct view partial = {0};
	struct rows out = output_rows(s, n_q, CHECK_LIMIT_FLOAT), q = input_rows(s, n_q, 1);
	struct kv_shape shape = input_table(s, n_seq, n_kv / KV_BLOCK + 1);
	const uint8_t *table = s->status ? NULL : s->operands[s->n_operands - 1].bytes;
	kv.k = input_cache(s, &shape, table, rows, n_seq, kv.k_f16, 2);
	kv.v = input_cache(s, &shape, table, rows, n_seq, kv.v_f16, 1);
	if (c->kernel == KERNEL_attn_decode) {
		uint64_t n = (uint64_t)c->n_rows * c->n_head *
			((shape.n_ctx + ATTN_SLICE - 1) / ATTN_SLICE) * (2 + c->head_dim);
		partial = output(s, n * sizeof(float), FORM_F32, CHECK_LIMIT_FLOAT);
	}
	make_step(s, rows, n_kv);
	if (!s->status)
		plan_attention(&s->plan, out, q, &kv, &shape, 0.3f, partial);
}

/* Slices as attn_decode could have left them; those beyond a row's position are NaN.  The op is the
 * second one of plan_attention. */
static void build_attn_reduce(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n_kv = n_positions(rows, c->n_rows), floats = 2 + c->head_dim;
	uint32_t n_slices = (n_kv + ATTN_SLICE - 1) / ATTN_SLICE;
	struct rows out = output_rows(s, c->n_head * c->head_dim, CHECK_LIMIT_FLOAT);
	struct kv_shape shape = {.n_head = c->n_head,
		.n_head_kv = c->n_head_kv,
		.head_dim = c->head_dim,
		.n_blocks = 1,
		.n_ctx = n_kv};
	struct operand *o = operand_create(
		s, (uint64_t)c->n_rows * c->n_head * n_slices * floats * sizeof(float), 0xFF);
	make_step(s, rows, n_kv);
	if (s->status)
		return;
	float *slice = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < c->n_rows; row++)
		for (uint32_t i = 0; i < c->n_head * n_slices; i++, slice += floats) {
			if (i % n_slices > rows[row].pos / ATTN_SLICE)
				continue;
			slice[0] = random_float(s, 5);
			slice[1] = 1 + fabsf(random_float(s, 100));
			for (uint32_t j = 2; j < floats; j++)
				slice[j] = random_float(s, 50);
		}
	struct view partial = operand_upload(s, o, MEMORY_DEVICE);
	if (s->status)
		return;
	/* Of the first op, which is dropped, any view will do as cache and table. */
	struct kv_layer kv = {.k = partial, .v = partial};
	shape.table = partial;
	plan_attention(&s->plan, out, out, &kv, &shape, 1, partial);
	if (s->plan.n_ops == 2) {
		s->plan.ops[0] = s->plan.ops[1];
		s->plan.n_ops = 1;
	}
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
		sampling.seed = random_u32(s);
		*q = (struct sequence){.n_ctx = n_ctx, .n_left = 10, .n_stop = 1};
		q->stop[0] = random_u32(s) % s->c->n_out;
		if (!s->status)
			s->status = sampler_set(q, &sampling, s->c->n_out, n_ctx, s->err);
	}
}

#define TAIL_CONTEXT 32 /* positions of a sequence in cases of sample and control */

/* A prompt up to each row's position, and the counts of its window. */
static void make_history(struct side *s, const struct sequence *sequences,
	const struct step_row *rows, uint32_t *words)
{
	for (uint32_t i = 0; i < s->c->n_rows; i++, words += TAIL_CONTEXT + s->c->n_out) {
		memset(words, 0, (TAIL_CONTEXT + (uint64_t)s->c->n_out) * sizeof *words);
		for (uint32_t pos = 0; pos <= rows[i].pos; pos++)
			words[pos] = random_u32(s) % s->c->n_out;
		sampler_count(
			&sequences[i], words, rows[i].pos + 1, words + TAIL_CONTEXT, s->c->n_out);
	}
}

/* Sequences and histories, which control writes and sample only reads. */
static void build_tail(
	struct side *s, const struct step_row *rows, struct tail *tail, enum form form)
{
	uint32_t n = s->c->n_rows;
	struct operand *q = operand_create(s, n * sizeof(struct sequence), PATTERN);
	struct operand *h = operand_create(
		s, n * (TAIL_CONTEXT + (uint64_t)s->c->n_out) * sizeof(uint32_t), PATTERN);
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

static void build_sample(struct side *s, const struct step_row *rows)
{
	struct tail tail = {0};
	tail.results = output(
		s, s->c->n_rows * sizeof(struct sample_result), FORM_RESULT, CHECK_LIMIT_ELEMENT);
	tail.scratch = output_rows(s, s->c->n_out, LIMIT_EXACT).view;
	if (!s->status) /* its contents are the kernel's own affair */
		s->operands[s->n_operands - 1].n_defined = 0;
	struct rows logits = input_rows(s, s->c->n_out, 8);
	build_tail(s, rows, &tail, FORM_INPUT);
	make_step(s, rows, n_positions(rows, s->c->n_rows));
	if (!s->status)
		plan_sample(&s->plan, logits, &tail);
}

static void build_control(struct side *s, const struct step_row *rows)
{
	uint32_t n = s->c->n_rows;
	struct tail tail = {0};
	build_tail(s, rows, &tail, FORM_WORDS);
	tail.ring =
		output(s, (uint64_t)n * RING_ENTRIES * sizeof(struct ring_entry), FORM_WORDS, 0);
	make_step(s, rows, n_positions(rows, n));
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
			.token = i % 3 == 1 ? sequences[i].stop[0] : random_u32(s) % s->c->n_out,
			.log_prob = -1,
			.error = i % 13 == 6,
		};
	tail.results = operand_upload(s, o, MEMORY_DEVICE);
	if (!s->status)
		plan_control(&s->plan, s->c->n_out, &tail);
}

static void (*const builders[N_KERNELS])(struct side *s, const struct step_row *rows) = {
	[KERNEL_embed] = build_embed,
	[KERNEL_rmsnorm] = build_rmsnorm,
	[KERNEL_matvec] = build_matmul,
	[KERNEL_matmul] = build_matmul,
	[KERNEL_rope_kv] = build_rope_kv,
	[KERNEL_attn_decode] = build_attention,
	[KERNEL_attn_reduce] = build_attn_reduce,
	[KERNEL_attn_prefill] = build_attention,
	[KERNEL_glu] = build_glu,
	[KERNEL_sample] = build_sample,
	[KERNEL_control] = build_control,
};

/* ---- running and comparing --------------------------------------------------------------------- */

/* Rows of the step.  Prefill: consecutive positions of the second of two sequences.  Decode: each row
 * a sequence of its own, the first the longest, the others of all lengths down to one position. */
static void make_rows(struct side *s, struct step_row *rows)
{
	const struct check_case *c = s->c;
	bool decode = c->kernel == KERNEL_attn_decode || c->kernel == KERNEL_attn_reduce ||
		c->kernel == KERNEL_sample || c->kernel == KERNEL_control;
	for (uint32_t i = 0; i < c->n_rows; i++) {
		rows[i] = (struct step_row){.pos = c->pos + i, .seq = 1};
		if (decode)
			rows[i] = (struct step_row){.pos = c->pos / (i + 1), .seq = i};
		if (decode && i > 0 && i == c->n_rows - 1)
			rows[i].pos = 0;
		if (c->kernel == KERNEL_embed) /* first and last token, then any */
			rows[i].token = i == 0 ? 0
				: i == 1       ? c->n_out - 1
					       : random_u32(s) % c->n_out;
	}
}

static void side_build(struct side *s)
{
	struct step_row *rows = array_alloc(s->c->n_rows, sizeof *rows);
	if (!rows) {
		s->status = fail_memory(s->err, "a step", s->c->n_rows * sizeof *rows);
		return;
	}
	bool decode = s->c->kernel == KERNEL_matvec || s->c->kernel == KERNEL_attn_decode ||
		s->c->kernel == KERNEL_attn_reduce || s->c->kernel == KERNEL_sample ||
		s->c->kernel == KERNEL_control;
	s->plan.role = decode ? ROLE_DECODE : ROLE_PREFILL;
	s->plan.max_rows = room(s);
	s->plan.layer = -1;
	make_rows(s, rows);
	static const struct dispatch_size no_sizes[MAX_SIZES];
	struct operand *o = operand_create(s, sizeof no_sizes, 0);
	if (o)
		s->plan.sizes = operand_upload(s, o, MEMORY_SHARED);
	builders[s->c->kernel](s, rows);
	free(rows);
	if (!s->status && s->plan.out_of_memory)
		s->status = fail_memory(s->err, "a plan", sizeof(struct op));
}

static void side_execute(struct side *s, uint32_t n_runs)
{
	struct runnable *r = NULL;
	uint64_t ticket;
	double seconds[MAX_CHUNKS] = {0}; /* a case has an op per chunk, or two */
	s->status = s->b->ops->prepare(s->b, &s->plan, true, &r, s->err);
	for (uint32_t i = 0; i < n_runs && !s->status; i++) {
		s->b->ops->begin(r);
		s->status = s->b->ops->run(s->b, r, 1, &ticket, s->err);
		if (!s->status)
			s->status = s->b->ops->wait(s->b, ticket, s->err);
	}
	if (!s->status)
		s->status = s->b->ops->times(s->b, r, seconds, s->err);
	for (uint32_t i = 0; i < s->plan.n_ops; i++)
		s->seconds += seconds[i];
	for (uint32_t i = 0; i < s->n_operands && !s->status; i++) {
		struct operand *o = &s->operands[i];
		uint64_t n_bytes = o->n_bytes + 2 * GUARD;
		if (o->form != FORM_INPUT)
			s->status = s->b->ops->read(s->b, (struct view){o->buffer, 0, n_bytes},
				o->bytes, n_bytes, s->err);
	}
	s->b->ops->release(s->b, r);
}

static void side_free(struct side *s)
{
	for (uint32_t i = 0; i < s->n_operands; i++) {
		s->b->ops->buffer_destroy(s->b, s->operands[i].buffer);
		free(s->operands[i].bytes);
	}
	plan_free(&s->plan);
}

static double element(const uint8_t *at, enum form form)
{
	uint16_t half;
	float f;
	memcpy(&half, at, sizeof half);
	if (form == FORM_F16)
		return (double)half_to_float(half);
	memcpy(&f, at, sizeof f);
	return (double)f;
}

static void reject(struct check_result *result, const char *format, ...) PRINTF_LIKE(2, 3);

/* Keeps the first reason. */
static void reject(struct check_result *result, const char *format, ...)
{
	va_list list;
	if (!result->passed)
		return;
	result->passed = false;
	va_start(list, format);
	vsnprintf(result->reason, sizeof result->reason, format, list);
	va_end(list);
}

static const uint8_t pattern[] = {PATTERN, PATTERN, PATTERN, PATTERN};

static uint32_t element_bytes(const struct operand *o)
{
	return o->form == FORM_F16 ? 2 : 4;
}

/* A number that the reference wrote, as opposed to an untouched element, a marker, or a word. */
static bool is_number(const struct operand *o, const uint8_t *at, uint64_t i)
{
	return memcmp(at, pattern, element_bytes(o)) != 0 && o->form != FORM_WORDS &&
		(o->form != FORM_RESULT || i % 4 == 1) && fabs(element(at, o->form)) < BIG;
}

/* Sum of the squares of the reference's numbers, and how many there are. */
static double sum_squares(const struct operand *o, uint64_t *n)
{
	uint32_t size = element_bytes(o);
	double sum = 0;
	*n = 0;
	for (uint64_t i = 0; i < o->n_defined / size; i++) {
		const uint8_t *at = o->bytes + GUARD + i * size;
		if (is_number(o, at, i)) {
			sum += element(at, o->form) * element(at, o->form);
			++*n;
		}
	}
	return sum;
}

/* `index` is the operand's, for messages. */
static void compare(const struct operand *found, const struct operand *expected, uint32_t index,
	struct check_result *result)
{
	uint32_t size = element_bytes(expected);
	uint64_t n_numbers;
	double errors = 0, squares = sum_squares(expected, &n_numbers);
	double typical = n_numbers ? sqrt(squares / (double)n_numbers) : 0;
	for (uint64_t at = 0; at < expected->n_bytes + 2 * GUARD; at += size) {
		const uint8_t *a = found->bytes + at, *b = expected->bytes + at;
		bool inside = at >= GUARD && at < GUARD + expected->n_bytes;
		long long i = ((long long)at - GUARD) / size;
		if (memcmp(a, b, size) == 0 || (inside && at >= GUARD + expected->n_defined))
			continue;
		if (!inside || memcmp(b, pattern, size) == 0) {
			reject(result, "output %u: element %lld%s was written", index, i,
				inside ? "" : " (outside)");
			continue;
		}
		if (!is_number(expected, b, (uint64_t)i)) {
			reject(result, "output %u: word %lld differs", index, i);
			continue;
		}
		double x = element(a, expected->form), y = element(b, expected->form);
		double error = fabs(x - y);
		if (!(error <= OUTLIER * fmax(fabs(y), typical)))
			reject(result, "output %u: element %lld is %g, expected %g", index, i, x,
				y);
		result->max_error = fmax(result->max_error, error);
		errors += error * error;
	}
	double nmse = errors > 0 ? errors / squares : 0; /* squares 0: infinite */
	if (nmse > result->nmse)
		result->nmse = nmse;
	if (expected->limit > result->limit)
		result->limit = expected->limit;
	if (!(nmse <= expected->limit))
		reject(result, "output %u: NMSE %.3g, limit %.3g", index, nmse, expected->limit);
}

enum lap_status check_run(struct backend *b, struct backend *cpu, uint32_t i, uint32_t n_runs,
	struct check_result *result, struct lap_error *err)
{
	struct side found = {.b = b, .err = err, .random = i}, expected = {.b = cpu, .err = err};
	*result = (struct check_result){.passed = true};
	found.c = find_case(i, &found.weight);
	expected.c = found.c;
	expected.weight = found.weight;
	expected.random = found.random;
	side_build(&found);
	if (!found.status)
		side_execute(&found, n_runs);
	if (!found.status)
		side_build(&expected);
	if (!found.status && !expected.status)
		side_execute(&expected, found.c->kernel == KERNEL_control ? n_runs : 1);
	enum lap_status status = found.status ? found.status : expected.status;
	for (uint32_t o = 0; o < found.n_operands && !status; o++) {
		result->n_bytes += found.operands[o].n_bytes;
		if (found.operands[o].form != FORM_INPUT)
			compare(&found.operands[o], &expected.operands[o], o, result);
	}
	result->seconds = found.seconds;
	side_free(&found);
	side_free(&expected);
	return status;
}
