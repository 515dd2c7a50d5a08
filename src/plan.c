/* The constructors of every op: see plan.h.  Asserts state the shapes each kernel relies on. */
#include "plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

#define VIEW_ALIGN 256 /* bytes that offsets of views are multiples of */

static const struct kernel_info kernels[N_KERNELS] = {
#define KERNEL(name, per_weight, written, all, outputs, rows, args)                     \
	[KERNEL_##name] = {#name, PER_WEIGHT_##per_weight, written, all, outputs, rows, \
		(uint32_t)sizeof(struct args)},
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT
};

const struct kernel_info *kernel_info(enum kernel kernel)
{
	return &kernels[kernel];
}

bool kernel_takes(enum kernel kernel, enum weight weight)
{
	switch (kernels[kernel].per_weight) {
	case PER_WEIGHT_NO:
		return weight == 0;
	case PER_WEIGHT_INTEGERS:
		return weight_format(weight)->integers;
	case PER_WEIGHT_YES:
		break;
	}
	return true;
}

void plan_free(struct plan *p)
{
	free(p->ops);
	p->ops = NULL;
	p->n_ops = p->capacity = 0;
}

static bool overlap(const struct view *a, const struct view *b)
{
	return a->buffer == b->buffer && a->offset < b->offset + b->n_bytes &&
		b->offset < a->offset + a->n_bytes;
}

/* The one way into the list.  `buffers` are the operands in binding order, as many as the kernel has. */
static void plan_append(struct plan *p, struct op op)
{
	const struct kernel_info *k = kernel_info(op.kernel);
	assert(op.n_outputs > 0);
	for (uint32_t i = 0; i < k->n_buffers; i++)
		assert(op.buffers[i].buffer && op.buffers[i].offset % VIEW_ALIGN == 0);
	for (uint32_t i = 0; i < k->n_written; i++)
		if (overlap(&op.buffers[i], &p->q8_of.view))
			p->q8_of.n = 0;
	if (p->n_ops == p->capacity) {
		uint32_t capacity = p->capacity ? p->capacity * 2 : 64;
		struct op *ops = realloc(p->ops, capacity * sizeof *ops);
		if (!ops) {
			p->out_of_memory = true;
			return;
		}
		p->ops = ops;
		p->capacity = capacity;
	}
	if (!op.label)
		op.label = k->name;
	if (!op.factor)
		op.factor = 1;
	op.layer = p->layer;
	op.max_rows = p->max_rows;
	p->ops[p->n_ops++] = op;
}

struct view rows_view(struct rows x, uint64_t first, uint64_t n)
{
	const uint64_t row_bytes = (uint64_t)x.stride * sizeof(float);
	return (struct view){x.view.buffer, x.view.offset + first * row_bytes, n * row_bytes};
}

/* The bytes of columns [first, first + n) of all rows. */
static struct view columns(struct rows x, uint32_t first, uint32_t n, uint32_t max_rows)
{
	assert(first + n <= x.stride);
	struct view v = x.view;
	v.offset += (uint64_t)first * sizeof(float);
	v.n_bytes = ((uint64_t)(max_rows - 1) * x.stride + n) * sizeof(float);
	assert((uint64_t)first * sizeof(float) + v.n_bytes <= x.view.n_bytes);
	return v;
}

/* What embed, matvec and matmul know of their weights when they are compiled. */
static uint32_t weights_constant(const struct weights *w)
{
	return w->n_cols % 32 == 0 ? ROWS_WHOLE : 0;
}

static uint32_t chunk_rows(const struct weights *w, uint32_t chunk)
{
	uint32_t first = chunk * w->rows_per_chunk;
	uint32_t left = w->n_rows - first;
	return left < w->rows_per_chunk ? left : w->rows_per_chunk;
}

/* An absent operand is bound all the same: to one that is there, and not read. */
static struct view or_else(struct rows x, struct view other)
{
	return x.n ? x.view : other;
}

static bool has(const struct weights *w)
{
	return w && w->n_rows;
}

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
	return a / b + (a % b != 0);
}

static uint32_t row_bytes(const struct weights *w)
{
	uint64_t n_bytes = 0;
	bool whole = weight_row_bytes(w->weight, w->n_cols, &n_bytes) && n_bytes <= UINT32_MAX;
	assert(whole); /* rows of whole blocks, as model.c checks */
	(void)whole;
	return (uint32_t)n_bytes;
}

void plan_embed(struct plan *p, struct rows x, const struct weights *w, float scale, bool by_pos,
	struct rows residual)
{
	assert(w->n_cols == x.n && (!residual.n || residual.n == x.n));
	for (uint32_t i = 0; i < w->n_chunks; i++)
		plan_append(p,
			(struct op){
				.kernel = KERNEL_embed,
				.weight = w->weight,
				.n_outputs = 1,
				.rule = SIZE_ROWS,
				.constant = weights_constant(w),
				.buffers = {x.view, w->chunks[i], p->step,
					or_else(residual, p->step)},
				.args.embed =
					{
						.n_embd = x.n,
						.stride = x.stride,
						.first_row = i * w->rows_per_chunk,
						.n_weight_rows = chunk_rows(w, i),
						.row_bytes = row_bytes(w),
						.by_pos = by_pos,
						.has_residual = residual.n != 0,
						.stride_residual = residual.stride,
						.scale = scale,
					},
				.label = w->name,
			});
}

void plan_norm(struct plan *p, enum norm norm, struct rows out, struct rows x,
	const struct weights *weight, const struct weights *bias, float eps, struct rows residual)
{
	uint32_t n = weight->n_cols;
	assert(weight->weight == WEIGHT_f32 && x.n % n == 0 && out.n == x.n);
	assert(!has(bias) || (bias->weight == WEIGHT_f32 && bias->n_cols == n));
	assert(!residual.n || residual.n == out.n);
	struct op op = {
		.kernel = norm == NORM_RMS ? KERNEL_rmsnorm : KERNEL_layernorm,
		.n_outputs = x.n / n,
		.rule = SIZE_ROWS,
		.buffers = {out.view, x.view, weight->chunks[0],
			has(bias) ? bias->chunks[0] : weight->chunks[0], or_else(residual, x.view)},
		.args.rmsnorm =
			{
				.n = n,
				.n_segments = x.n / n,
				.stride_out = out.stride,
				.stride_x = x.stride,
				.stride_residual = residual.stride,
				.has_bias = has(bias),
				.has_residual = residual.n != 0,
				.eps = eps,
				.scale = 1,
			},
		.label = weight->name,
	};
	plan_append(p, op);
}

void plan_norm_scaled(struct plan *p, struct rows out, struct rows x, const struct weights *weight,
	float eps, struct rows residual, float scale)
{
	const uint32_t n_ops = p->n_ops;
	plan_norm(p, NORM_RMS, out, x, weight, NULL, eps, residual);
	if (p->n_ops > n_ops)
		p->ops[n_ops].args.rmsnorm.scale = scale;
}

void plan_norm_gated(struct plan *p, struct rows out, struct rows x, const struct weights *weight,
	float eps, struct rows gate)
{
	const uint32_t n_ops = p->n_ops;
	assert(gate.n == out.n);
	plan_norm(p, NORM_RMS, out, x, weight, NULL, eps, gate);
	if (p->n_ops > n_ops)
		p->ops[n_ops].args.rmsnorm.is_gated = true;
}

uint64_t quantized_bytes(uint32_t n, uint64_t n_rows)
{
	return n_rows * Q8_ROW_WORDS(n) * sizeof(uint32_t);
}

struct rows plan_quantize(struct plan *p, struct rows x)
{
	const struct rows out = {p->q8, x.n, Q8_ROW_WORDS(x.n)};
	assert(x.n % 32 == 0 && p->q8.n_bytes >= quantized_bytes(x.n, p->max_rows));
	if (p->q8_of.n == x.n && p->q8_of.view.buffer == x.view.buffer &&
		p->q8_of.view.offset == x.view.offset)
		return out;
	plan_append(p,
		(struct op){
			.kernel = KERNEL_quantize_x,
			.n_outputs = x.n / 32,
			.rule = SIZE_ROWS,
			.buffers = {out.view, x.view},
			.args.quantize_x = {x.n, out.stride, x.stride},
		});
	p->q8_of = x;
	return out;
}

uint32_t matmul_parts(uint32_t n_in)
{
	const uint32_t n_units = ceil_div(n_in, 32);
	return N_PARTS(n_units);
}

static struct view parts_view(const struct plan *p, uint32_t n_out, uint32_t n_in)
{
	struct view v = p->parts;
	const uint64_t n_bytes =
		(uint64_t)matmul_parts(n_in) * p->max_rows * ROW_STRIDE(n_out) * sizeof(float);
	if (matmul_parts(n_in) == 1 || n_bytes > v.n_bytes)
		return (struct view){0};
	v.n_bytes = n_bytes;
	return v;
}

static struct matmul_args product_args(
	struct rows out, uint32_t n_out, struct rows x, const struct epilogue *e, uint32_t max_rows)
{
	return (struct matmul_args){
		.n_out = n_out,
		.n_in = x.n,
		.n_rows = max_rows,
		.stride_out = out.stride,
		.stride_x = x.stride,
		.stride_residual = e->residual.stride,
		.has_bias = has(e->bias),
		.has_residual = e->residual.n != 0,
		.scale = e->scale != 0 ? e->scale : 1,
		.softcap = e->softcap,
	};
}

/* For n outputs whose rows are so many floats apart; buffers 0, 3 and 4 are theirs. */
static uint32_t quads_constant(const struct op *op, uint32_t n, uint32_t strides)
{
	const uint64_t bytes =
		op->buffers[0].offset | op->buffers[3].offset | op->buffers[4].offset;
	return (n | strides) % 4 == 0 && bytes % 16 == 0 ? PRODUCT_QUADS : 0;
}

static uint32_t product_constant(const struct matmul_args *args)
{
	return (args->has_bias ? PRODUCT_BIAS : 0) | (args->softcap != 0 ? PRODUCT_SOFTCAP : 0);
}

/* Bias and residual of outputs `first` to first + n - 1; another view where there is none. */
static void bind_epilogue(struct view buffers[2], const struct epilogue *e, uint32_t first,
	uint32_t n, uint32_t max_rows, struct view other)
{
	buffers[0] = buffers[1] = other;
	if (has(e->bias)) {
		buffers[0] = e->bias->chunks[0];
		buffers[0].offset += (uint64_t)first * sizeof(float);
		buffers[0].n_bytes = (uint64_t)n * sizeof(float);
	}
	if (e->residual.n)
		buffers[1] = columns(e->residual, first, n, max_rows);
}

void plan_matmul(
	struct plan *p, struct rows out, const struct weights *w, struct rows x, struct epilogue e)
{
	const uint32_t rows_per_output = e.gated ? 2 : 1;
	assert(w->n_cols == x.n && w->n_rows == out.n * rows_per_output && !w->n_experts);
	assert(!e.gated ||
		(p->role == ROLE_DECODE && w->n_chunks == 1 && !has(e.bias) && !e.residual.n &&
			e.scale == 0 && e.softcap == 0 && e.gated <= GATED_MASK));
	assert(!has(e.bias) || (e.bias->weight == WEIGHT_f32 && e.bias->n_cols == out.n));
	assert(!e.residual.n || e.residual.n == out.n);
	const bool decode = p->role == ROLE_DECODE;
	const bool integers = p->q8.n_bytes && weight_format(w->weight)->integers;
	if (integers)
		x = plan_quantize(p, x);
	const uint32_t n_columns = p->max_rows < MATVEC_COLUMNS ? p->max_rows : MATVEC_COLUMNS;
	for (uint32_t i = 0; i < w->n_chunks; i++) {
		uint32_t first = i * w->rows_per_chunk, n = chunk_rows(w, i) / rows_per_output;
		struct op op = {
			.kernel = decode ? (integers ? KERNEL_matvec_q8 : KERNEL_matvec)
					 : (integers ? KERNEL_matmul_q8 : KERNEL_matmul),
			.weight = w->weight,
			.n_outputs = n,
			.rule = SIZE_ROWS,
			.rows_per_group = decode ? n_columns : 0,
			.constant = weights_constant(w) | e.gated << GATED_SHIFT |
				(decode ? n_columns << COLUMNS_SHIFT : 0),
			.args.matmul = product_args(out, n, x, &e, p->max_rows),
			.label = w->name,
		};
		op.args.matmul.row_bytes = row_bytes(w);
		op.constant |= product_constant(&op.args.matmul);
		op.buffers[0] = columns(out, first, n, p->max_rows);
		op.buffers[1] = w->chunks[i];
		op.buffers[2] = x.view;
		bind_epilogue(&op.buffers[3], &e, first, n, p->max_rows, x.view);
		if (op.kernel == KERNEL_matmul || (op.kernel == KERNEL_matvec && n_columns > 1))
			op.constant |= quads_constant(
				&op, n, op.args.matmul.stride_out | op.args.matmul.stride_residual);
		if (op.kernel == KERNEL_matmul)
			op.parts = parts_view(p, n, x.n);
		plan_append(p, op);
	}
}

/* The sum of what a product's parts left; buffers and label are the caller's. */
static struct op sum_op(struct matmul_args args, uint32_t stride)
{
	args.row_bytes = 0;
	args.stride_x = stride;
	return (struct op){
		.kernel = KERNEL_matmul_sum,
		.n_outputs = args.n_out,
		.rule = SIZE_ROWS,
		.factor = 1,
		.constant = product_constant(&args),
		.args.matmul_sum = args,
	};
}

void plan_matmul_sum(
	struct plan *p, struct rows out, struct rows sums, uint32_t n_in, struct epilogue e)
{
	const struct rows x = {.n = n_in};
	struct op op = sum_op(product_args(out, out.n, x, &e, p->max_rows), sums.stride);
	assert(sums.n == out.n && p->role == ROLE_PREFILL);
	assert(sums.view.n_bytes >=
		(uint64_t)matmul_parts(n_in) * p->max_rows * sums.stride * sizeof(float));
	op.buffers[0] = out.view;
	op.buffers[1] = sums.view;
	bind_epilogue(&op.buffers[2], &e, 0, out.n, p->max_rows, sums.view);
	plan_append(p, op);
}

void op_split(const struct op *op, uint32_t split, uint32_t tile_outputs, struct op out[2])
{
	const uint32_t stride = ROW_STRIDE(op->args.matmul.n_out);
	assert(op->kernel == KERNEL_matmul && op->parts.n_bytes && split > 1);
	out[0] = *op;
	out[0].n_outputs = ceil_div(op->n_outputs, tile_outputs) * split * tile_outputs;
	out[0].buffers[0] = op->parts;
	out[0].buffers[3] = out[0].buffers[4] = op->buffers[2];
	out[0].args.matmul.stride_out = stride;
	out[0].args.matmul.stride_residual = 0;
	out[0].args.matmul.has_bias = out[0].args.matmul.has_residual = 0;
	out[0].args.matmul.scale = 1;
	out[0].args.matmul.softcap = 0;
	out[0].constant &= ~product_constant(&op->args.matmul);
	out[1] = sum_op(op->args.matmul, stride);
	out[1].buffers[0] = op->buffers[0];
	out[1].buffers[1] = op->parts;
	memcpy(&out[1].buffers[2], &op->buffers[3], 2 * sizeof op->buffers[3]);
	out[1].max_rows = op->max_rows;
	out[1].label = op->label;
	out[1].layer = op->layer;
}

static uint32_t kv_constant(const struct kv_layer *kv, const struct kv_shape *shape)
{
	assert(shape->head_dim <= MAX_HEAD_DIM && shape->head_dim % 2 == 0);
	assert(shape->head_dim % KV_UNIT == 0 || (kv->k_type <= KV_F32 && kv->v_type <= KV_F32));
	return shape->head_dim | (uint32_t)kv->k_type << ATTN_K_SHIFT |
		(uint32_t)kv->v_type << ATTN_V_SHIFT;
}

void plan_rope_kv(struct plan *p, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, struct rows qkv, uint32_t k_offset, uint32_t v_offset,
	const struct rope *rope)
{
	const uint32_t q_head = shape->head_dim * (rope->q_gated ? 2 : 1);
	assert(q.n == shape->n_head * shape->head_dim && shape->n_head * q_head <= k_offset);
	assert(v_offset + shape->n_head_kv * shape->head_dim <= qkv.stride);
	assert(rope->n_rot % 2 == 0 && rope->n_rot <= shape->head_dim);
	assert(!has(rope->norms) ||
		(rope->norms->weight == WEIGHT_f32 && rope->norms->n_chunks == 1 &&
			rope->norms->n_rows * rope->norms->n_cols ==
				(rope->q_only ? 1 : 2) * shape->head_dim));
	const uint32_t n_head_kv = rope->q_only ? 0 : shape->n_head_kv;
	plan_append(p,
		(struct op){
			.kernel = KERNEL_rope_kv,
			.n_outputs = shape->n_head + n_head_kv,
			.rule = SIZE_ROWS,
			.constant = kv_constant(kv, shape) | (has(rope->norms) ? ROPE_NORMS : 0) |
				(rope->v_norm ? ROPE_V_NORM : 0),
			.buffers = {q.view, kv->k, kv->v, qkv.view, rope->table, p->step,
				shape->table, has(rope->norms) ? rope->norms->chunks[0] : p->step},
			.args.rope_kv =
				{
					.n_head = shape->n_head,
					.n_head_kv = n_head_kv,
					.head_dim = shape->head_dim,
					.n_rot = rope->n_rot,
					.neox = rope->neox,
					.stride_q = q.stride,
					.stride_qkv = qkv.stride,
					.q_head = q_head,
					.k_offset = k_offset,
					.v_offset = v_offset,
					.n_blocks = shape->n_blocks,
					.q_scale = rope->q_scale,
					.q_scale_ctx = rope->q_scale_ctx ? rope->q_scale_ctx : 1,
					.eps = rope->eps,
				},
		});
}

/* A window of w positions touches at most this many slices, wherever it stands. */
static uint32_t window_slices(uint32_t window, uint32_t slice)
{
	return ceil_div(window - 1, slice) + 1;
}

uint32_t attention_slices(uint32_t n_ctx, uint32_t window)
{
	uint32_t all = ceil_div(n_ctx, ATTN_SLICE);
	return window && window_slices(window, ATTN_SLICE) < all ? window_slices(window, ATTN_SLICE)
								 : all;
}

/* Query heads of a KV head that attn_decode takes at a time. */
static uint32_t queries_at_a_time(uint32_t n_gqa)
{
	return n_gqa == 1 ? 1 : n_gqa > 8 ? 8 : (n_gqa + 1) / 2 * 2;
}

/* Rows can see more positions than one subgroup of attn_prefill should look at: two parts it can. */
static bool sees_long(const struct kv_shape *shape, uint32_t window)
{
	return shape->n_ctx > 2 * ATTN_PART && (window == 0 || window > ATTN_PART);
}

void plan_attention(struct plan *p, struct rows out, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, const struct attention *a)
{
	assert(q.n == shape->n_head * shape->head_dim && out.n == q.n);
	assert(shape->n_head % shape->n_head_kv == 0);
	assert(!has(a->sinks) || a->sinks->n_cols == shape->n_head);
	struct attn_args args = {
		.n_head = shape->n_head,
		.n_head_kv = shape->n_head_kv,
		.head_dim = shape->head_dim,
		.stride_q = q.stride,
		.stride_out = out.stride,
		.n_slices = attention_slices(shape->n_ctx, a->window),
		.n_blocks = shape->n_blocks,
		.window = a->window,
		.has_sinks = has(a->sinks),
		.scale = a->scale,
		.softcap = a->softcap,
	};
	struct view sinks = has(a->sinks) ? a->sinks->chunks[0] : p->step;
	struct op op = {
		.kernel = KERNEL_attn_prefill,
		.n_outputs = shape->n_head,
		.rule = SIZE_ROWS,
		.constant = kv_constant(kv, shape) | (a->softcap != 0 ? ATTN_SOFTCAP : 0) |
			(sees_long(shape, a->window) ? ATTN_LONG : 0),
		.buffers = {out.view, q.view, kv->k, kv->v, p->step, shape->table, sinks},
		.args.attn_prefill = args,
	};
	if (p->role == ROLE_DECODE) {
		assert(a->partial.n_bytes >= (uint64_t)p->max_rows * args.n_head * args.n_slices *
				(2 + args.head_dim) * sizeof(float));
		op.kernel = KERNEL_attn_decode;
		op.constant &= ~(uint32_t)ATTN_LONG;
		op.constant |= queries_at_a_time(shape->n_head / shape->n_head_kv)
			<< ATTN_QUERIES_SHIFT;
		op.n_outputs = shape->n_head_kv;
		op.rule = SIZE_KV;
		op.window = a->window;
		op.buffers[0] = a->partial;
		op.args.attn_decode = args;
	}
	plan_append(p, op);
	if (p->role == ROLE_DECODE)
		plan_append(p,
			(struct op){
				.kernel = KERNEL_attn_reduce,
				.n_outputs = shape->n_head,
				.rule = SIZE_ROWS,
				.constant = kv_constant(kv, shape),
				.buffers = {out.view, a->partial, p->step, sinks},
				.args.attn_reduce = args,
			});
}

static void copy_blocks(struct plan *p, struct view a, uint64_t a_bytes, struct view b,
	uint64_t b_bytes, bool has_window)
{
	const uint32_t a_words = (uint32_t)(a_bytes / sizeof(uint32_t));
	const uint32_t b_words = (uint32_t)(b_bytes / sizeof(uint32_t));
	assert(a_words % 4 == 0 && b_words % 4 == 0); /* they are copied as such */
	plan_append(p,
		(struct op){
			.kernel = KERNEL_kv_copy,
			.n_outputs = a_words > b_words ? a_words : b_words,
			.rule = SIZE_ROWS,
			.buffers = {a, b_bytes ? b : a, p->step},
			.args.kv_copy = {a_words, b_words, has_window},
		});
}

void plan_state_copy(
	struct plan *p, struct view a, uint64_t a_bytes, struct view b, uint64_t b_bytes)
{
	copy_blocks(p, a, a_bytes, b, b_bytes, true);
}

void plan_kv_copy(
	struct plan *p, const struct kv_layer *kv, const struct kv_shape *shape, bool has_window)
{
	const uint64_t n = (uint64_t)KV_BLOCK * shape->n_head_kv * shape->head_dim;
	copy_blocks(p, kv->k, kv_bytes(kv->k_type, n), kv->v, kv_bytes(kv->v_type, n), has_window);
}

void plan_kv_shift(struct plan *p, const struct kv_layer *kv, const struct kv_shape *shape,
	const struct rope *rope, float magnitude)
{
	assert(rope->n_rot % 2 == 0 && rope->n_rot <= shape->head_dim);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_kv_shift,
			.n_outputs = shape->n_head_kv,
			.rule = SIZE_ROWS,
			.constant = kv_constant(kv, shape),
			.buffers = {kv->k, kv->v, kv->k, kv->v, rope->table, p->step, shape->table},
			.args.kv_shift =
				{
					.n_head_kv = shape->n_head_kv,
					.head_dim = shape->head_dim,
					.n_rot = rope->n_rot,
					.neox = rope->neox,
					.n_blocks = shape->n_blocks,
					.inv_magnitude = 1 / magnitude,
				},
		});
}

/* ---- recurrent layers ---- */

uint64_t conv_block_bytes(uint32_t n_channels, uint32_t n_taps)
{
	return CONV_WORDS((uint64_t)n_channels, n_taps) * sizeof(float);
}

void plan_conv(struct plan *p, struct rows out, struct rows x, const struct weights *w,
	struct view state, const struct state_shape *shape, const struct conv *c)
{
	assert(c->n_taps >= 2 && c->n_taps <= MAX_TAPS && c->n_channels % 4 == 0);
	assert(w->weight == WEIGHT_f32 && w->n_cols == c->n_taps && w->n_rows == c->n_channels);
	assert(out.n == c->n_channels && w->n_chunks == 1);
	assert(c->x % 4 == 0 && c->x + c->n_channels <= x.n);
	assert(c->gate_in == CONV_NONE ||
		(c->gate_in % 4 == 0 && c->gate_in + c->n_channels <= x.n));
	assert(c->gate_out == CONV_NONE ||
		(c->gate_out % 4 == 0 && c->gate_out + c->n_channels <= x.n));
	plan_append(p,
		(struct op){
			.kernel = KERNEL_conv,
			.n_outputs = c->n_channels,
			.rule = SIZE_ROWS,
			.constant = c->n_taps,
			.buffers = {out.view, state, x.view, w->chunks[0], p->step, shape->table},
			.args.conv =
				{
					.n_channels = c->n_channels,
					.n_taps = c->n_taps,
					.stride_out = out.stride,
					.stride_x = x.stride,
					.x = c->x,
					.gate_in = c->gate_in,
					.gate_out = c->gate_out,
					.silu = c->silu,
					.n_blocks = shape->n_blocks,
				},
			.label = w->name,
		});
}

uint64_t delta_block_bytes(const struct delta *d)
{
	const struct {
		uint64_t n_group, n_head, dk, dv;
	} a = {d->n_group, d->n_head, d->dk, d->dv};
	return DELTA_WORDS(a) * sizeof(float);
}

void plan_delta(struct plan *p, struct rows out, struct rows qkv, struct rows gates,
	const struct weights *dt_a, struct view state, const struct state_shape *shape,
	const struct delta *d)
{
	assert(d->dk % 4 == 0 && d->dk <= MAX_STATE_DIM && d->n_head % d->n_group == 0);
	assert(d->dv % 4 == 0 && d->dv <= MAX_STATE_DIM && out.n == d->n_head * d->dv);
	assert(qkv.n == 2 * d->n_group * d->dk + d->n_head * d->dv);
	assert(d->alpha + d->n_head <= gates.n && d->beta + d->n_head <= gates.n);
	assert(dt_a->weight == WEIGHT_f32 && dt_a->n_chunks == 1);
	assert((uint64_t)dt_a->n_rows * dt_a->n_cols == (uint64_t)2 * d->n_head);
	const bool decode = p->role == ROLE_DECODE;
	plan_append(p,
		(struct op){
			.kernel = decode ? KERNEL_delta_decode : KERNEL_delta_prefill,
			.n_outputs = d->n_head * DELTA_SLICES(d->dv),
			.rule = decode ? SIZE_ROWS : SIZE_ONE,
			.constant = d->dk,
			.buffers = {out.view, state, qkv.view, gates.view, dt_a->chunks[0], p->step,
				shape->table},
			.args.delta_decode =
				{
					.n_group = d->n_group,
					.n_head = d->n_head,
					.dk = d->dk,
					.dv = d->dv,
					.stride_out = out.stride,
					.stride_qkv = qkv.stride,
					.stride_gates = gates.stride,
					.alpha = d->alpha,
					.beta = d->beta,
					.n_blocks = shape->n_blocks,
					.eps = d->eps,
				},
			.label = dt_a->name,
		});
}

static void append_glu(struct plan *p, struct op op, uint32_t activation, bool is_gated)
{
	const struct glu_args *a = &op.args.glu;
	const uint32_t all = a->n | a->stride | a->stride_gate | a->stride_up | a->segment |
		a->gate_segment | a->gate_first | a->up_first;
	op.kernel = KERNEL_glu;
	op.n_outputs = a->n;
	op.rule = SIZE_ROWS;
	op.constant = activation | (is_gated ? GLU_GATED : 0) | (all % 4 == 0 ? GLU_QUADS : 0);
	plan_append(p, op);
}

void plan_glu(struct plan *p, struct rows out, struct rows gate, struct rows up,
	uint32_t activation, uint32_t n_used)
{
	assert(out.n == up.n && (!gate.n || gate.n == up.n));
	const uint32_t before = up.view.offset % VIEW_ALIGN;
	up.view.offset -= before;
	up.view.n_bytes += before;
	append_glu(p,
		(struct op){
			.factor = n_used,
			.buffers = {out.view, or_else(gate, up.view), up.view},
			.args.glu = {.n = out.n,
				.stride = out.stride,
				.stride_gate = gate.stride,
				.stride_up = up.stride,
				.up_first = before / (uint32_t)sizeof(float),
				.segment = out.n,
				.gate_segment = out.n},
		},
		activation, gate.n != 0);
}

void plan_gate_heads(
	struct plan *p, struct rows out, struct rows qkv, struct rows x, uint32_t head_dim)
{
	assert(out.n == x.n && x.n % head_dim == 0 && qkv.n >= 2 * x.n);
	append_glu(p,
		(struct op){
			.buffers = {out.view, qkv.view, x.view},
			.args.glu = {.n = out.n,
				.stride = out.stride,
				.stride_gate = qkv.stride,
				.stride_up = x.stride,
				.segment = head_dim,
				.gate_segment = 2 * head_dim,
				.gate_first = head_dim},
		},
		ACTIVATION_SIGMOID, true);
}

/* ---- experts ---- */

uint64_t expert_tiles_bytes(uint32_t n_expert, uint32_t n_slots)
{
	return (uint64_t)EXPERT_TILES(n_slots, n_expert) * sizeof(struct expert_tile) +
		(uint64_t)n_slots * sizeof(uint32_t);
}

static void assert_rows(const struct plan *p, struct rows x, uint32_t n_used)
{
	(void)p, (void)x, (void)n_used;
	assert(x.view.n_bytes >=
		((uint64_t)(p->max_rows * n_used - 1) * x.stride + x.n) * sizeof(float));
}

static void assert_routes(const struct plan *p, struct view routes, uint32_t n_used)
{
	(void)p, (void)routes, (void)n_used;
	assert(n_used > 0 && n_used <= MAX_EXPERTS_USED);
	assert(routes.n_bytes >= (uint64_t)p->max_rows * n_used * sizeof(struct expert_route));
}

void plan_route(struct plan *p, struct view routes, struct rows logits, uint32_t n_used,
	bool normalise, const struct weights *scales)
{
	assert(logits.n <= MAX_EXPERTS && n_used <= logits.n);
	assert(!has(scales) || (scales->weight == WEIGHT_f32 && scales->n_cols == logits.n));
	assert_routes(p, routes, n_used);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_moe_route,
			.n_outputs = 1,
			.rule = SIZE_ROWS,
			.buffers = {routes, logits.view,
				has(scales) ? scales->chunks[0] : logits.view},
			.args.moe_route = {logits.n, n_used, logits.stride, normalise, has(scales)},
		});
}

void plan_tiles(
	struct plan *p, struct view tiles, struct view routes, uint32_t n_expert, uint32_t n_used)
{
	uint32_t n_slots = p->max_rows * n_used;
	assert_routes(p, routes, n_used);
	assert(n_expert <= MAX_EXPERTS && tiles.n_bytes >= expert_tiles_bytes(n_expert, n_slots));
	plan_append(p,
		(struct op){
			.kernel = KERNEL_moe_tiles,
			.n_outputs = 1,
			.rule = SIZE_ONE,
			.buffers = {tiles, routes, p->step},
			.args.moe_tiles = {n_used, EXPERT_TILES(n_slots, n_expert)},
		});
}

void plan_expert_matmul(struct plan *p, struct rows out, const struct weights *w, struct rows x,
	const struct weights *bias, const struct routing *routing, bool x_per_slot)
{
	bool decode = p->role == ROLE_DECODE;
	uint32_t n_slots = p->max_rows * routing->n_used;
	assert(w->n_cols == x.n && w->n_rows == w->n_experts * out.n);
	assert(w->rows_per_chunk % out.n == 0);
	assert(!has(bias) ||
		(bias->weight == WEIGHT_f32 && bias->n_rows == w->n_experts &&
			bias->n_cols == out.n && bias->n_chunks == 1));
	assert_rows(p, out, routing->n_used);
	assert_rows(p, x, x_per_slot ? routing->n_used : 1);
	assert_routes(p, routing->routes, routing->n_used);
	assert(decode || routing->tiles.n_bytes >= expert_tiles_bytes(w->n_experts, n_slots));
	for (uint32_t i = 0; i < w->n_chunks; i++) {
		struct op op = {
			.kernel = decode ? KERNEL_expert_matvec : KERNEL_expert_matmul,
			.weight = w->weight,
			.n_outputs = out.n,
			.rule = SIZE_ROWS,
			.factor = routing->n_used,
			.extra = decode ? 0 : w->n_experts,
			.constant = weights_constant(w),
			.buffers = {out.view, w->chunks[i], x.view,
				has(bias) ? bias->chunks[0] : x.view,
				decode ? routing->routes : routing->tiles},
			.args.expert_matmul =
				{
					.n_out = out.n,
					.n_in = x.n,
					.row_bytes = row_bytes(w),
					.first_expert = i * w->rows_per_chunk / out.n,
					.n_experts = chunk_rows(w, i) / out.n,
					.n_used = routing->n_used,
					.x_per_slot = x_per_slot,
					.n_tiles = EXPERT_TILES(n_slots, w->n_experts),
					.stride_out = out.stride,
					.stride_x = x.stride,
					.has_bias = has(bias),
				},
			.label = w->name,
		};
		if (!decode)
			op.constant |= quads_constant(&op, out.n, out.stride);
		plan_append(p, op);
	}
}

void plan_expert_sum(struct plan *p, struct rows out, struct rows down, struct view routes,
	uint32_t n_used, struct rows residual, float scale, struct rows shared, struct rows gate)
{
	assert(down.n == out.n && (!residual.n || residual.n == out.n));
	assert((!shared.n || shared.n == out.n) && (!gate.n || (shared.n && gate.n == 1)));
	assert_rows(p, down, n_used);
	assert_routes(p, routes, n_used);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_expert_sum,
			.n_outputs = out.n,
			.rule = SIZE_ROWS,
			.buffers = {out.view, down.view, routes, or_else(residual, down.view),
				or_else(shared, down.view), or_else(gate, down.view)},
			.args.expert_sum =
				{
					.n = out.n,
					.n_used = n_used,
					.stride_out = out.stride,
					.stride_down = down.stride,
					.stride_residual = residual.stride,
					.stride_shared = shared.stride,
					.stride_gate = gate.stride,
					.has_residual = residual.n != 0,
					.has_shared = shared.n != 0,
					.has_gate = gate.n != 0,
					.scale = scale,
				},
		});
}

/* ---- the tail ---- */

void plan_sample(struct plan *p, struct rows logits, const struct tail *tail)
{
	assert(tail->n_top <= MAX_TOP);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_sample,
			.constant = (logits.n <= SAMPLE_SMALL_VOCAB ? SAMPLE_SMALL : 0) |
				(tail->n_top ? SAMPLE_TOPS : 0),
			.n_outputs = 1,
			.rule = SIZE_ROWS,
			.buffers = {tail->results, tail->scratch,
				tail->n_top ? tail->tops : tail->results, logits.view,
				tail->sequences, p->step, tail->history},
			.args.sample =
				{
					.n_vocab = logits.n,
					.stride = logits.stride,
					.history_stride = HISTORY_WORDS(tail->n_ctx, logits.n),
					.n_ctx = tail->n_ctx,
					.n_top = tail->n_top,
				},
		});
}

void plan_beam_select(struct plan *p, const struct tail *tail)
{
	assert(tail->n_top > 0 && tail->n_top <= MAX_TOP && p->max_rows <= MAX_BEAM_ROWS);
	assert(tail->choice.n_bytes >= sizeof(struct beam_choice) +
			(uint64_t)p->max_rows * tail->n_top * sizeof(struct beam_candidate));
	plan_append(p,
		(struct op){
			.kernel = KERNEL_beam_select,
			.n_outputs = 1,
			.rule = SIZE_ONE,
			.buffers = {tail->choice, tail->results, tail->tops, tail->sequences,
				p->step},
			.args.beam_select = {.n_top = tail->n_top},
		});
}

void plan_control(struct plan *p, uint32_t n_vocab, const struct tail *tail)
{
	plan_append(p,
		(struct op){
			.kernel = KERNEL_control,
			.n_outputs = 1,
			.rule = SIZE_ONE,
			.buffers = {p->step, p->sizes, tail->sequences, tail->ring, tail->history,
				tail->results},
			.args.control =
				{
					.n_sizes = MAX_SIZES,
					.history_stride = HISTORY_WORDS(tail->n_ctx, n_vocab),
					.n_ctx = tail->n_ctx,
				},
		});
}

/* ---- yardsticks ---- */

#define QUAD_BYTES 16 /* of a uvec4 */

uint64_t read_rate_bytes(uint64_t n_bytes)
{
	const uint64_t group_bytes =
		(uint64_t)kernel_info(KERNEL_read_rate)->outputs_per_group * QUAD_BYTES;
	return (n_bytes + group_bytes - 1) / group_bytes * sizeof(uint32_t);
}

void plan_read_rate(struct plan *p, struct view out, struct view data)
{
	assert(data.n_bytes % QUAD_BYTES == 0 && out.n_bytes >= read_rate_bytes(data.n_bytes));
	const uint32_t n = (uint32_t)(data.n_bytes / QUAD_BYTES);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_read_rate,
			.n_outputs = n,
			.rule = SIZE_ONE,
			.buffers = {out, data},
			.args.read_rate = {.n = n},
		});
}

void plan_fma_rate(struct plan *p, struct view out, uint32_t n, uint32_t n_turns)
{
	assert(out.n_bytes >= n * sizeof(float));
	plan_append(p,
		(struct op){
			.kernel = KERNEL_fma_rate,
			.n_outputs = n,
			.rule = SIZE_ONE,
			.buffers = {out},
			.args.fma_rate = {.n = n, .n_turns = n_turns, .factor = 0.5f, .addend = 1},
		});
}

void sizes_update(struct dispatch_size *sizes, uint32_t n_sizes, const struct step_header *step)
{
	bool idle = step->done || step->n_rows == 0;
	for (uint32_t i = 0; i < n_sizes; i++) {
		struct dispatch_size *s = &sizes[i];
		s->x = s->y = s->z = 0;
		if (idle || s->groups_x == 0) /* an unused entry has no groups */
			continue;
		s->x = s->groups_x;
		s->y = s->groups_y;
		s->z = 1;
		if (s->rule == SIZE_ROWS)
			s->z = ceil_div(step->n_rows * s->factor, s->divisor) + s->extra;
		if (s->rule == SIZE_KV) {
			s->y = ceil_div(step->n_kv, s->divisor);
			if (s->window && window_slices(s->window, s->divisor) < s->y)
				s->y = window_slices(s->window, s->divisor);
			s->z = step->n_rows;
		}
	}
}
