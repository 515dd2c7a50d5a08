/* The constructors of every op: see plan.h.  Asserts state the shapes each kernel relies on. */
#include "plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct kernel_info kernels[N_KERNELS] = {
#define KERNEL(name, per_weight, written, all, outputs, rows, args)                     \
	[KERNEL_##name] = {#name, PER_WEIGHT_##per_weight, written, all, outputs, rows, \
		(uint32_t)sizeof(struct args)},
#define VARIANT(kernel, variant, define)
#define PER_WEIGHT_YES true
#define PER_WEIGHT_NO  false
#include "kernels.def"
#undef KERNEL
#undef VARIANT
};

const struct kernel_info *kernel_info(enum kernel kernel)
{
	return &kernels[kernel];
}

void plan_free(struct plan *p)
{
	free(p->ops);
	p->ops = NULL;
	p->n_ops = p->capacity = 0;
}

/* The one way into the list.  `buffers` are the operands in binding order, as many as the kernel has. */
static void plan_append(struct plan *p, struct op op)
{
	const struct kernel_info *k = kernel_info(op.kernel);
	assert(op.n_outputs > 0);
	for (uint32_t i = 0; i < k->n_buffers; i++)
		assert(op.buffers[i].buffer && op.buffers[i].offset % 256 == 0);
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
	op.layer = p->layer;
	p->ops[p->n_ops++] = op;
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

void plan_embed(struct plan *p, struct rows x, const struct weights *token_embd)
{
	uint64_t row_bytes = 0;
	assert(token_embd->n_cols == x.n);
	if (!weight_row_bytes(token_embd->weight, token_embd->n_cols, &row_bytes))
		assert(false && "rows of whole blocks, as model.c checks");
	for (uint32_t i = 0; i < token_embd->n_chunks; i++)
		plan_append(p,
			(struct op){
				.kernel = KERNEL_embed,
				.weight = token_embd->weight,
				.n_outputs = 1,
				.rule = SIZE_ROWS,
				.constant = weights_constant(token_embd),
				.buffers = {x.view, token_embd->chunks[i], p->step},
				.args.embed =
					{
						.n_embd = x.n,
						.stride = x.stride,
						.first_row = i * token_embd->rows_per_chunk,
						.n_weight_rows = chunk_rows(token_embd, i),
						.row_bytes = (uint32_t)row_bytes,
					},
				.label = token_embd->name,
			});
}

void plan_rmsnorm(
	struct plan *p, struct rows out, struct rows x, const struct weights *weight, float eps)
{
	assert(weight->weight == WEIGHT_f32 && weight->n_cols == x.n && out.n == x.n);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_rmsnorm,
			.n_outputs = 1,
			.rule = SIZE_ROWS,
			.buffers = {out.view, x.view, weight->chunks[0]},
			.args.rmsnorm = {x.n, out.stride, x.stride, eps},
			.label = weight->name,
		});
}

void plan_matmul(struct plan *p, struct rows out, const struct weights *w, struct rows x,
	const struct weights *bias, struct rows residual)
{
	bool has_bias = bias && bias->n_rows, has_residual = residual.n != 0;
	uint64_t row_bytes = 0;
	assert(w->n_cols == x.n && w->n_rows == out.n);
	assert(!has_bias || (bias->weight == WEIGHT_f32 && bias->n_cols == out.n));
	assert(!has_residual || residual.n == out.n);
	if (!weight_row_bytes(w->weight, w->n_cols, &row_bytes))
		assert(false && "rows of whole blocks, as model.c checks");
	for (uint32_t i = 0; i < w->n_chunks; i++) {
		uint32_t first = i * w->rows_per_chunk, n = chunk_rows(w, i);
		struct op op = {
			.kernel = p->role == ROLE_DECODE ? KERNEL_matvec : KERNEL_matmul,
			.weight = w->weight,
			.n_outputs = n,
			.rule = SIZE_ROWS,
			.constant = weights_constant(w),
			.args.matmul =
				{
					.n_out = n,
					.n_in = x.n,
					.row_bytes = (uint32_t)row_bytes,
					.n_rows = p->max_rows,
					.stride_out = out.stride,
					.stride_x = x.stride,
					.stride_residual = residual.stride,
					.has_bias = has_bias,
					.has_residual = has_residual,
				},
			.label = w->name,
		};
		op.buffers[0] = columns(out, first, n, p->max_rows);
		op.buffers[1] = w->chunks[i];
		op.buffers[2] = x.view;
		op.buffers[3] = op.buffers[4] = x.view; /* bound, not read */
		if (has_bias) {
			op.buffers[3] = bias->chunks[0];
			op.buffers[3].offset += (uint64_t)first * sizeof(float);
			op.buffers[3].n_bytes = (uint64_t)n * sizeof(float);
		}
		if (has_residual)
			op.buffers[4] = columns(residual, first, n, p->max_rows);
		plan_append(p, op);
	}
}

static uint32_t kv_constant(const struct kv_layer *kv, const struct kv_shape *shape)
{
	assert(shape->head_dim <= MAX_HEAD_DIM && shape->head_dim % 2 == 0);
	return shape->head_dim | (kv->k_f16 ? ATTN_K_F16 : 0) | (kv->v_f16 ? ATTN_V_F16 : 0);
}

void plan_rope_kv(struct plan *p, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, struct rows qkv, uint32_t k_offset, uint32_t v_offset,
	struct view rope_table, uint32_t n_rot, bool neox)
{
	assert(q.n == shape->n_head * shape->head_dim && q.n <= k_offset);
	assert(v_offset + shape->n_head_kv * shape->head_dim <= qkv.stride);
	assert(n_rot % 2 == 0 && n_rot <= shape->head_dim);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_rope_kv,
			.n_outputs = shape->n_head + shape->n_head_kv,
			.rule = SIZE_ROWS,
			.constant = kv_constant(kv, shape),
			.buffers = {q.view, kv->k, kv->v, qkv.view, rope_table, p->step,
				shape->table},
			.args.rope_kv =
				{
					.n_head = shape->n_head,
					.n_head_kv = shape->n_head_kv,
					.head_dim = shape->head_dim,
					.n_rot = n_rot,
					.neox = neox,
					.stride_q = q.stride,
					.stride_qkv = qkv.stride,
					.k_offset = k_offset,
					.v_offset = v_offset,
					.n_blocks = shape->n_blocks,
				},
		});
}

void plan_attention(struct plan *p, struct rows out, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, float scale, struct view partial)
{
	assert(q.n == shape->n_head * shape->head_dim && out.n == q.n);
	assert(shape->n_head % shape->n_head_kv == 0);
	struct attn_args args = {
		.n_head = shape->n_head,
		.n_head_kv = shape->n_head_kv,
		.head_dim = shape->head_dim,
		.stride_q = q.stride,
		.stride_out = out.stride,
		.n_slices = (shape->n_ctx + ATTN_SLICE - 1) / ATTN_SLICE,
		.n_blocks = shape->n_blocks,
		.scale = scale,
	};
	struct op op = {
		.kernel = KERNEL_attn_prefill,
		.n_outputs = shape->n_head,
		.rule = SIZE_ROWS,
		.constant = kv_constant(kv, shape),
		.buffers = {out.view, q.view, kv->k, kv->v, p->step, shape->table},
		.args.attn_prefill = args,
	};
	if (p->role == ROLE_DECODE) {
		assert(partial.n_bytes >= (uint64_t)p->max_rows * args.n_head * args.n_slices *
				(2 + args.head_dim) * sizeof(float));
		op.kernel = KERNEL_attn_decode;
		op.n_outputs = shape->n_head_kv;
		op.rule = SIZE_KV;
		op.buffers[0] = partial;
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
				.buffers = {out.view, partial, p->step},
				.args.attn_reduce = args,
			});
}

void plan_glu(struct plan *p, struct rows out, struct rows gate, struct rows up)
{
	assert(out.n == gate.n && out.n == up.n);
	assert(out.stride == gate.stride && out.stride == up.stride);
	plan_append(p,
		(struct op){
			.kernel = KERNEL_glu,
			.n_outputs = out.n,
			.rule = SIZE_ROWS,
			.buffers = {out.view, gate.view, up.view},
			.args.glu = {out.n, out.stride},
		});
}

void plan_sample(struct plan *p, struct rows logits, const struct tail *tail)
{
	plan_append(p,
		(struct op){
			.kernel = KERNEL_sample,
			.n_outputs = 1,
			.rule = SIZE_ROWS,
			.buffers = {tail->results, tail->scratch, logits.view, tail->sequences,
				p->step, tail->history},
			.args.sample =
				{
					.n_vocab = logits.n,
					.stride = logits.stride,
					.history_stride = tail->n_ctx + logits.n,
					.n_ctx = tail->n_ctx,
				},
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
					.history_stride = tail->n_ctx + n_vocab,
					.n_ctx = tail->n_ctx,
				},
		});
}

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
	return a / b + (a % b != 0);
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
		s->y = s->rule == SIZE_KV ? ceil_div(step->n_kv, s->divisor) : s->groups_y;
		s->z = s->rule == SIZE_ROWS  ? ceil_div(step->n_rows, s->divisor)
			: s->rule == SIZE_KV ? step->n_rows
					     : 1;
	}
}
