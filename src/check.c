/* Builds a case, runs it and compares: see check.h.  The list is in check_cases.c. */
#include "check_side.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define BIG 1e30 /* magnitudes beyond are markers, compared by their bits */
/* An element may be this far off, of itself or of the root mean square: a mean over many elements would
 * hide a single wrong one.  A rounding to half is below 1e-3. */
#define OUTLIER 2e-3
/* So far off is right: a device may take what is below 2^-126 for 0, and multiply that by some hundreds. */
#define FLUSHED 1e-35

/* ---- building each kernel's case --------------------------------------------------------------- */

static void build_embed(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	bool plain = !(c->flags & (SCALE | RESIDUAL));
	struct rows x = output_rows(
		s, case_columns(c, s->weight), plain ? LIMIT_EXACT : CHECK_LIMIT_ELEMENT);
	struct rows residual = {0};
	struct weights w = input_weights(s, s->weight, c->n_out, x.n, c->chunk, s->chunks);
	if (c->flags & RESIDUAL)
		residual = input_rows(s, x.n, 1);
	input_step(s, rows, 1);
	if (!s->status)
		plan_embed(&s->plan, x, &w, c->flags & SCALE ? 11.25f : 1, c->flags & BY_POS,
			residual);
}

static void build_norm(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n = c->n_out / (c->n_segments ? c->n_segments : 1);
	struct view chunk, bias_chunk;
	struct weights bias = {0};
	struct rows residual = {0};
	struct rows out = output_rows(s, c->n_out, CHECK_LIMIT_ELEMENT);
	struct rows x = input_rows(s, c->n_out, 4);
	struct weights w = input_weights(s, WEIGHT_f32, 1, n, 0, &chunk);
	if (c->flags & BIAS)
		bias = input_weights(s, WEIGHT_f32, 1, n, 0, &bias_chunk);
	if (c->flags & RESIDUAL)
		residual = input_rows(s, c->n_out, 1);
	input_step(s, rows, 1);
	if (!s->status && c->flags & GATED)
		plan_norm_gated(&s->plan, out, x, &w, 1e-5f, residual);
	else if (!s->status && c->flags & SCALE)
		plan_norm_scaled(&s->plan, out, x, &w, 1e-5f, residual, 0.3f);
	else if (!s->status)
		plan_norm(&s->plan, c->kernel == KERNEL_rmsnorm ? NORM_RMS : NORM_LAYER, out, x, &w,
			&bias, 1e-5f, residual);
}

static void build_glu(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	struct rows gate = {0};
	if (c->activation == ACTIVATION_SIGMOID) { /* gates of heads, among the queries */
		struct rows heads = output_rows(s, c->n_head * c->head_dim, CHECK_LIMIT_ELEMENT);
		struct rows qkv = input_rows(s, 2 * heads.n + 7, 30);
		struct rows x = input_rows(s, heads.n, 2);
		input_step(s, rows, 1);
		if (!s->status)
			plan_gate_heads(&s->plan, heads, qkv, x, c->head_dim);
		return;
	}
	struct rows out = output_slots(s, side_n_used(s), c->n_out, CHECK_LIMIT_ELEMENT);
	if (!(c->flags & UNGATED)) /* beyond what exp can take */
		gate = input_slots(s, side_n_used(s), c->n_out, 200);
	float size = !gate.n ? 200 : c->activation == ACTIVATION_SWIGLU ? 10 : 2;
	const uint32_t before = c->flags & INSIDE ? 17 : 0;
	struct rows up = input_slots(s, side_n_used(s), before + c->n_out, size);
	up.n = c->n_out;
	up.view.offset += before * sizeof(float);
	up.view.n_bytes -= before * sizeof(float);
	input_step(s, rows, 1);
	if (!s->status)
		plan_glu(&s->plan, out, gate, up, c->activation, side_n_used(s));
}

/* Room for n elements of each row in 8 bits. */
static void output_quantized(struct side *s, uint32_t n)
{
	s->plan.q8 =
		side_output(s, quantized_bytes(n, side_room(s)), FORM_X_Q8, CHECK_LIMIT_QUANTISED);
	if (!s->status)
		s->operands[s->n_operands - 1].n_defined = quantized_bytes(n, s->c->n_rows);
}

static void build_quantize(struct side *s, const struct step_row *rows)
{
	output_quantized(s, s->c->n_out);
	struct rows x = input_rows(s, s->c->n_out, 4);
	input_step(s, rows, 1);
	if (!s->status)
		plan_quantize(&s->plan, x);
}

/* NaN, so that a part that nobody computes shows. */
static void scratch_parts(struct side *s, uint32_t n_out, uint32_t n_in)
{
	const uint64_t n_rows = (uint64_t)matmul_parts(n_in) * side_room(s);
	const uint64_t n_bytes = n_rows * ROW_STRIDE(n_out) * sizeof(float);
	struct operand *o = n_bytes <= PARTS_BYTES ? operand_create(s, n_bytes, 0xFF) : NULL;
	if (!o)
		return;
	o->form = FORM_SCRATCH;
	s->plan.parts = operand_upload(s, o, MEMORY_DEVICE);
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
	if (c->kernel == KERNEL_matvec_q8 || c->kernel == KERNEL_matmul_q8)
		output_quantized(s, case_columns(c, s->weight));
	struct rows x = input_rows(s, case_columns(c, s->weight), 1);
	struct weights w = input_weights(
		s, s->weight, c->flags & GATED ? 2 * c->n_out : c->n_out, x.n, c->chunk, s->chunks);
	if (c->flags & BIAS)
		bias = input_weights(s, WEIGHT_f32, 1, c->n_out, 0, &bias_chunk);
	if (c->flags & RESIDUAL)
		residual = input_rows(s, c->n_out, 1);
	if (c->kernel == KERNEL_matmul)
		scratch_parts(s, c->n_out, x.n);
	input_step(s, rows, 1);
	if (!s->status)
		plan_matmul(&s->plan, out, &w, x,
			(struct epilogue){
				.bias = &bias,
				.residual = residual,
				.scale = c->flags & SCALE ? 0.125f : 0,
				.softcap = c->flags & SOFTCAP ? 3.0f : 0,
				.gated = c->flags & GATED ? 1 + c->activation : 0,
			});
}

static void build_matmul_sum(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	struct view bias_chunk;
	struct weights bias = {0};
	struct rows residual = {0};
	struct rows out = output_rows(s, c->n_out, CHECK_LIMIT_ELEMENT);
	struct rows sums = input_slots(s, matmul_parts(c->n_in), c->n_out, 1);
	if (c->flags & BIAS)
		bias = input_weights(s, WEIGHT_f32, 1, c->n_out, 0, &bias_chunk);
	if (c->flags & RESIDUAL)
		residual = input_rows(s, c->n_out, 1);
	input_step(s, rows, 1);
	if (!s->status)
		plan_matmul_sum(&s->plan, out, sums, c->n_in,
			(struct epilogue){
				.bias = &bias,
				.residual = residual,
				.scale = c->flags & SCALE ? 0.125f : 0,
				.softcap = c->flags & SOFTCAP ? 3.0f : 0,
			});
}

/* K or V: random where a row of the step will look, NaN everywhere else. */
static struct view input_cache(struct side *s, const struct kv_shape *shape,
	const uint8_t *table_bytes, const struct step_row *rows, uint32_t n_seq, enum kv_type type,
	float size)
{
	uint32_t width = shape->n_head_kv * shape->head_dim;
	uint64_t n = (uint64_t)n_seq * shape->n_ctx * width;
	struct operand *o = operand_create(s, kv_bytes(type, n), 0xFF);
	if (!o)
		return (struct view){0};
	const uint32_t *table = (const uint32_t *)(const void *)(table_bytes + GUARD);
	float values[MAX_HEAD_DIM];
	for (uint32_t row = 0; row < s->c->n_rows; row++)
		for (uint32_t pos = WINDOW_START(rows[row].pos, s->c->window); pos <= rows[row].pos;
			pos++) {
			uint32_t block = table[rows[row].seq * shape->n_blocks + pos / KV_BLOCK];
			size_t at = ((size_t)block * KV_BLOCK + pos % KV_BLOCK) * width;
			for (uint32_t head = 0; head < shape->n_head_kv; head++) {
				for (uint32_t i = 0; i < shape->head_dim; i++)
					values[i] = side_random_float(s, size);
				kv_store(type, o->bytes + GUARD, at + head * shape->head_dim,
					shape->head_dim, values);
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

uint32_t case_positions(const struct step_row *rows, uint32_t n_rows)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < n_rows; i++)
		n = rows[i].pos >= n ? rows[i].pos + 1 : n;
	return n;
}

static void build_rope_kv(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n_seq = n_sequences(rows, c->n_rows), n_kv = case_positions(rows, c->n_rows);
	uint32_t n_q = c->n_head * c->head_dim, n_k = c->n_head_kv * c->head_dim;
	uint32_t k_at = ROW_STRIDE(c->flags & GATED ? 2 * n_q : n_q), v_at = k_at + ROW_STRIDE(n_k);
	struct kv_layer kv = {.k_type = c->k, .v_type = c->v};
	struct rows q = output_rows(s, n_q, CHECK_LIMIT_ELEMENT);
	struct kv_shape shape = input_table(s, n_seq, (n_kv + KV_BLOCK - 1) / KV_BLOCK);
	uint64_t n = (uint64_t)n_seq * shape.n_ctx * n_k;
	kv.k = side_output(s, kv_bytes(c->k, n), cache_form(c->k),
		c->k <= KV_F32 ? CHECK_LIMIT_ELEMENT : CHECK_LIMIT_QUANTISED);
	kv.v = side_output(s, kv_bytes(c->v, n), cache_form(c->v),
		c->v > KV_F32               ? CHECK_LIMIT_QUANTISED
			: c->flags & V_NORM ? CHECK_LIMIT_ELEMENT
					    : LIMIT_EXACT);
	struct rows qkv = input_rows(s, v_at + n_k, 4);
	struct view table = input_turns(s, n_kv, 1), norm_chunk;
	struct weights norms = {0};
	if (c->flags & HEAD_NORMS)
		norms = input_weights(s, WEIGHT_f32, 1, (c->flags & Q_ONLY ? 1 : 2) * c->head_dim,
			0, &norm_chunk);
	input_step(s, rows, n_kv);
	if (!s->status)
		plan_rope_kv(&s->plan, q, &kv, &shape, qkv, k_at, c->flags & V_NORM ? k_at : v_at,
			&(struct rope){
				.table = table,
				.n_rot = c->n_rot,
				.neox = c->flags & NEOX,
				.q_gated = c->flags & GATED,
				.q_scale = c->flags & SCALE ? 0.25f : 0,
				.q_scale_ctx = 16,
				.norms = &norms,
				.v_norm = c->flags & V_NORM,
				.q_only = c->flags & Q_ONLY,
				.eps = 1e-5f,
			});
}

/* Some far above what a score can be, some far below. */
static struct weights input_sinks(struct side *s, struct view *chunk)
{
	uint32_t n = s->c->n_head;
	struct weights sinks = {.name = "sinks",
		.weight = WEIGHT_f32,
		.n_rows = 1,
		.n_cols = n,
		.rows_per_chunk = 1,
		.n_chunks = 1,
		.chunks = chunk};
	struct operand *o = s->c->flags & SINKS ? operand_create(s, n * sizeof(float), 0xFF) : NULL;
	if (!o)
		return (struct weights){0};
	for (uint32_t i = 0; i < n; i++)
		((float *)(void *)(o->bytes + GUARD))[i] =
			i % 5 == 4 ? side_random_float(s, 300) : side_random_float(s, 5);
	*chunk = operand_upload(s, o, MEMORY_DEVICE);
	return sinks;
}

static void build_attention(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n_seq = n_sequences(rows, c->n_rows), n_kv = case_positions(rows, c->n_rows);
	uint32_t n_q = c->n_head * c->head_dim;
	struct kv_layer kv = {.k_type = c->k, .v_type = c->v};
	struct view partial = {0}, sink_chunk;
	struct rows out = output_rows(s, n_q, CHECK_LIMIT_FLOAT), q = input_rows(s, n_q, 1);
	struct kv_shape shape = input_table(s, n_seq, n_kv / KV_BLOCK + 1);
	const uint8_t *table = s->status ? NULL : s->operands[s->n_operands - 1].bytes;
	kv.k = input_cache(s, &shape, table, rows, n_seq, kv.k_type, 2);
	kv.v = input_cache(s, &shape, table, rows, n_seq, kv.v_type, 1);
	if (c->kernel == KERNEL_attn_decode) {
		uint64_t n = (uint64_t)c->n_rows * c->n_head *
			attention_slices(shape.n_ctx, c->window) * (2 + c->head_dim);
		partial = side_output(s, n * sizeof(float), FORM_F32, CHECK_LIMIT_FLOAT);
	}
	struct weights sinks = input_sinks(s, &sink_chunk);
	input_step(s, rows, n_kv);
	if (!s->status)
		plan_attention(&s->plan, out, q, &kv, &shape,
			&(struct attention){
				.scale = 0.3f,
				.softcap = c->flags & SOFTCAP ? 2.0f : 0,
				.window = c->window,
				.sinks = &sinks,
				.partial = partial,
			});
}

/* Slices as attn_decode could have left them; those beyond a row's position are NaN.  The op is the
 * second one of plan_attention. */
static void build_attn_reduce(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	uint32_t n_kv = case_positions(rows, c->n_rows), floats = 2 + c->head_dim;
	uint32_t n_slices = attention_slices(n_kv, c->window);
	struct view sink_chunk;
	struct rows out = output_rows(s, c->n_head * c->head_dim, CHECK_LIMIT_FLOAT);
	struct kv_shape shape = {.n_head = c->n_head,
		.n_head_kv = c->n_head_kv,
		.head_dim = c->head_dim,
		.n_blocks = 1,
		.n_ctx = n_kv};
	struct operand *o = operand_create(
		s, (uint64_t)c->n_rows * c->n_head * n_slices * floats * sizeof(float), 0xFF);
	input_step(s, rows, n_kv);
	if (s->status)
		return;
	float *slice = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < c->n_rows; row++)
		for (uint32_t i = 0; i < c->n_head * n_slices; i++, slice += floats) {
			uint32_t start = WINDOW_START(rows[row].pos, c->window);
			if (i % n_slices > rows[row].pos / ATTN_SLICE - start / ATTN_SLICE)
				continue;
			slice[0] = side_random_float(s, 5);
			slice[1] = 1 + fabsf(side_random_float(s, 100));
			for (uint32_t j = 2; j < floats; j++)
				slice[j] = side_random_float(s, 50);
		}
	struct view partial = operand_upload(s, o, MEMORY_DEVICE);
	struct weights sinks = input_sinks(s, &sink_chunk);
	if (s->status)
		return;
	/* Of the first op, which is dropped, any view will do as cache and table. */
	struct kv_layer kv = {.k = partial, .v = partial};
	shape.table = partial;
	plan_attention(&s->plan, out, out, &kv, &shape,
		&(struct attention){
			.scale = 1, .window = c->window, .sinks = &sinks, .partial = partial});
	if (s->plan.n_ops == 2) {
		s->plan.ops[0] = s->plan.ops[1];
		s->plan.n_ops = 1;
	}
}

static void build_read_rate(struct side *s, const struct step_row *rows)
{
	const uint64_t n_bytes = (uint64_t)s->c->n_out * 4 * sizeof(uint32_t);
	struct view out = side_output(s, read_rate_bytes(n_bytes), FORM_WORDS, LIMIT_EXACT);
	struct operand *o = operand_create(s, n_bytes, 0);
	for (uint64_t i = 0; o && i < n_bytes / sizeof(uint32_t); i++)
		((uint32_t *)(void *)(o->bytes + GUARD))[i] = side_random_u32(s);
	struct view data = {0};
	if (o)
		data = operand_upload(s, o, MEMORY_DEVICE);
	input_step(s, rows, 1);
	if (!s->status)
		plan_read_rate(&s->plan, out, data);
}

static void build_fma_rate(struct side *s, const struct step_row *rows)
{
	struct view out =
		side_output(s, s->c->n_out * sizeof(float), FORM_F32, CHECK_LIMIT_ELEMENT);
	input_step(s, rows, 1);
	if (!s->status)
		plan_fma_rate(&s->plan, out, s->c->n_out, s->c->n_in);
}

static void (*const builders[N_KERNELS])(struct side *s, const struct step_row *rows) = {
	[KERNEL_embed] = build_embed,
	[KERNEL_rmsnorm] = build_norm,
	[KERNEL_layernorm] = build_norm,
	[KERNEL_matvec] = build_matmul,
	[KERNEL_matmul] = build_matmul,
	[KERNEL_matmul_sum] = build_matmul_sum,
	[KERNEL_quantize_x] = build_quantize,
	[KERNEL_matvec_q8] = build_matmul,
	[KERNEL_matmul_q8] = build_matmul,
	[KERNEL_rope_kv] = build_rope_kv,
	[KERNEL_attn_decode] = build_attention,
	[KERNEL_attn_reduce] = build_attn_reduce,
	[KERNEL_attn_prefill] = build_attention,
	[KERNEL_conv] = build_conv,
	[KERNEL_delta_decode] = build_delta,
	[KERNEL_delta_prefill] = build_delta,
	[KERNEL_glu] = build_glu,
	[KERNEL_moe_route] = build_moe_route,
	[KERNEL_moe_tiles] = build_moe_tiles,
	[KERNEL_expert_matvec] = build_expert_matmul,
	[KERNEL_expert_matmul] = build_expert_matmul,
	[KERNEL_expert_sum] = build_expert_sum,
	[KERNEL_kv_copy] = build_kv_copy,
	[KERNEL_kv_shift] = build_kv_shift,
	[KERNEL_sample] = build_sample,
	[KERNEL_beam_select] = build_beam_select,
	[KERNEL_control] = build_control,
	[KERNEL_read_rate] = build_read_rate,
	[KERNEL_fma_rate] = build_fma_rate,
};

/* ---- running and comparing --------------------------------------------------------------------- */

/* Rows of the step.  Prefill: consecutive positions of the second of two sequences.  Decode: each row
 * a sequence of its own, the first the longest, the others of all lengths down to one position. */
static void make_rows(struct side *s, struct step_row *rows)
{
	const struct check_case *c = s->c;
	bool decode = c->kernel == KERNEL_attn_decode || c->kernel == KERNEL_attn_reduce ||
		c->kernel == KERNEL_sample || c->kernel == KERNEL_beam_select ||
		c->kernel == KERNEL_control;
	for (uint32_t i = 0; i < c->n_rows; i++) {
		rows[i] = (struct step_row){.pos = c->pos + i, .seq = 1};
		if (decode)
			rows[i] = (struct step_row){.pos = c->pos / (i + 1), .seq = i};
		if (decode && i > 0 && i == c->n_rows - 1)
			rows[i].pos = 0;
		if (c->kernel == KERNEL_embed) /* first and last token, then any */
			rows[i].token = i == 0 ? 0
				: i == 1       ? c->n_out - 1
					       : side_random_u32(s) % c->n_out;
	}
}

void side_build(struct side *s)
{
	struct step_row *rows = array_alloc(s->c->n_rows, sizeof *rows);
	if (!rows) {
		s->status = fail_memory(s->err, "a step", s->c->n_rows * sizeof *rows);
		return;
	}
	bool decode = s->c->kernel == KERNEL_matvec || s->c->kernel == KERNEL_expert_matvec ||
		s->c->kernel == KERNEL_matvec_q8 || s->c->kernel == KERNEL_attn_decode ||
		s->c->kernel == KERNEL_attn_reduce || s->c->kernel == KERNEL_sample ||
		s->c->kernel == KERNEL_beam_select || s->c->kernel == KERNEL_control ||
		s->c->kernel == KERNEL_delta_decode ||
		(s->c->kernel == KERNEL_conv && s->c->n_segments);
	s->plan.role = decode ? ROLE_DECODE : ROLE_PREFILL;
	s->plan.max_rows = side_room(s);
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
	double seconds[MAX_CHUNKS + 1] = {
		0}; /* a case has an op per chunk, and one before or after */
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

void side_free(struct side *s)
{
	for (uint32_t i = 0; i < s->n_operands; i++) {
		s->b->ops->buffer_destroy(s->b, s->operands[i].buffer);
		free(s->operands[i].bytes);
	}
	plan_free(&s->plan);
}

/* ---- comparing ---- */

/* How a form is compared: in pieces of n_bytes, each n numbers. */
struct piece {
	uint32_t n_bytes, n;
	enum kv_type type; /* that decodes it */
};

static struct piece piece_of(enum form form)
{
	switch (form) {
	case FORM_F16:
		return (struct piece){2, 1, KV_F16};
	case FORM_Q8_0:
		return (struct piece){KV_Q8_0_WORDS * 4, KV_UNIT, KV_Q8_0};
	case FORM_X_Q8:
		return (struct piece){Q8_WORDS * 4, KV_UNIT, KV_Q8_0};
	case FORM_Q4_0:
		return (struct piece){KV_Q4_0_WORDS * 4, KV_UNIT, KV_Q4_0};
	default:
		return (struct piece){4, 1, KV_F32};
	}
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

static bool is_untouched(const uint8_t *at, uint32_t n_bytes)
{
	for (uint32_t i = 0; i < n_bytes; i++)
		if (at[i] != PATTERN)
			return false;
	return true;
}

/* Piece i is numbers that the reference wrote, not an untouched one, a marker, or a word. */
static bool is_number(const struct operand *o, const struct piece *p, const uint8_t *at, uint64_t i)
{
	float f;
	if (is_untouched(at, p->n_bytes) || o->form == FORM_WORDS ||
		(o->form == FORM_RESULT && i % 4 != 1) || (o->form == FORM_ROUTE && i % 2 != 1))
		return false;
	if (p->n > 1)
		return true;
	kv_load(p->type, at, 0, 1, &f);
	return fabs((double)f) < BIG;
}

/* Sum of the squares of the reference's numbers, and how many there are. */
static double sum_squares(const struct operand *o, const struct piece *p, uint64_t *n)
{
	double sum = 0;
	float f[KV_UNIT];
	*n = 0;
	for (uint64_t i = 0; i < o->n_defined / p->n_bytes; i++) {
		const uint8_t *at = o->bytes + GUARD + i * p->n_bytes;
		if (!is_number(o, p, at, i))
			continue;
		kv_load(p->type, at, 0, p->n, f);
		for (uint32_t j = 0; j < p->n; j++)
			sum += (double)f[j] * (double)f[j];
		*n += p->n;
	}
	return sum;
}

/* Numbers of one piece; returns the sum of the squares of their differences.  A quotient of a unit may
 * be rounded the other way: an error of one step. */
static double compare_piece(const struct piece *p, const uint8_t *a, const uint8_t *b,
	double typical, uint32_t index, uint64_t i, struct check_result *result)
{
	float x[KV_UNIT], y[KV_UNIT], step = 0;
	double errors = 0;
	kv_load(p->type, a, 0, p->n, x);
	kv_load(p->type, b, 0, p->n, y);
	if (p->n > 1)
		memcpy(&step, b, sizeof step);
	for (uint32_t j = 0; j < p->n; j++) {
		double error = fabs((double)x[j] - (double)y[j]);
		if (error <= FLUSHED)
			continue;
		double allowed =
			OUTLIER * fmax(fabs((double)y[j]), typical) + 1.001 * fabs((double)step);
		if (!(error <= allowed))
			reject(result, "output %u: element %llu is %g, expected %g", index,
				(unsigned long long)(i * p->n + j), (double)x[j], (double)y[j]);
		result->max_error = fmax(result->max_error, error);
		errors += error * error;
	}
	return errors;
}

static void compare_guards(const struct operand *found, const struct operand *expected,
	uint32_t index, struct check_result *result)
{
	uint64_t behind = GUARD + expected->n_bytes;
	if (memcmp(found->bytes, expected->bytes, GUARD) != 0 ||
		memcmp(found->bytes + behind, expected->bytes + behind, GUARD) != 0)
		reject(result, "output %u: what lies beside it was written", index);
}

/* `index` is the operand's, for messages. */
static void compare(const struct operand *found, const struct operand *expected, uint32_t index,
	struct check_result *result)
{
	const struct piece p = piece_of(expected->form);
	uint64_t n_numbers;
	double errors = 0, squares = sum_squares(expected, &p, &n_numbers);
	double typical = n_numbers ? sqrt(squares / (double)n_numbers) : 0;
	compare_guards(found, expected, index, result);
	for (uint64_t i = 0; i < expected->n_defined / p.n_bytes; i++) {
		const uint8_t *a = found->bytes + GUARD + i * p.n_bytes;
		const uint8_t *b = expected->bytes + GUARD + i * p.n_bytes;
		if (memcmp(a, b, p.n_bytes) == 0)
			continue;
		if (is_untouched(b, p.n_bytes))
			reject(result, "output %u: element %llu was written", index,
				(unsigned long long)(i * p.n));
		else if (!is_number(expected, &p, b, i))
			reject(result, "output %u: word %llu differs", index,
				(unsigned long long)i);
		else
			errors += compare_piece(&p, a, b, typical, index, i, result);
	}
	double nmse = errors > 0 ? errors / squares : 0; /* squares 0: infinite */
	if (nmse > result->nmse)
		result->nmse = nmse;
	if (expected->limit > result->limit)
		result->limit = expected->limit;
	if (!(nmse <= expected->limit))
		reject(result, "output %u: NMSE %.3g, limit %.3g", index, nmse, expected->limit);
}

static void set_knobs(struct side *s, const uint32_t *knobs)
{
	for (uint32_t i = 0; i < s->plan.n_ops && knobs; i++)
		if (s->plan.ops[i].kernel == s->c->kernel)
			memcpy(s->plan.ops[i].knobs, knobs, sizeof s->plan.ops[i].knobs);
}

enum lap_status side_check(struct backend *b, struct backend *cpu, const struct check_case *c,
	enum weight weight, uint64_t random, uint32_t n_runs, const uint32_t *knobs,
	struct check_result *result, struct lap_error *err)
{
	struct side found = {.b = b, .c = c, .weight = weight, .random = random, .err = err};
	struct side expected = found;
	expected.b = cpu;
	*result = (struct check_result){.passed = true};
	side_build(&found);
	set_knobs(&found, knobs);
	if (!found.status)
		side_execute(&found, n_runs);
	if (!found.status)
		side_build(&expected);
	if (!found.status && !expected.status)
		side_execute(&expected, c->kernel == KERNEL_control ? n_runs : 1);
	enum lap_status status = found.status ? found.status : expected.status;
	for (uint32_t o = 0; o < found.n_operands && !status; o++) {
		const struct operand *operand = &found.operands[o];
		if (operand->form != FORM_INPUT)
			compare(operand, &expected.operands[o], o, result);
		if (operand->form == FORM_SCRATCH)
			continue;
		result->n_bytes += operand->n_bytes;
		if (operand->form != FORM_INPUT)
			result->hash = XXH64(
				operand->bytes, operand->n_bytes + 2 * (size_t)GUARD, result->hash);
	}
	result->seconds = found.seconds;
	side_free(&found);
	side_free(&expected);
	return status;
}

enum lap_status check_run_knobs(struct backend *b, struct backend *cpu, uint32_t i, uint32_t n_runs,
	const uint32_t *knobs, struct check_result *result, struct lap_error *err)
{
	enum weight weight;
	const struct check_case *c = case_find(i, &weight);
	return side_check(b, cpu, c, weight, i, n_runs, knobs, result, err);
}

enum lap_status check_run(struct backend *b, struct backend *cpu, uint32_t i, uint32_t n_runs,
	struct check_result *result, struct lap_error *err)
{
	return check_run_knobs(b, cpu, i, n_runs, NULL, result, err);
}
