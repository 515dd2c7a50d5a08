/* The reference kernels: see kernels.h.  Each stands for the shader of its name and is written to be
 * read beside it, not to be fast.
 *
 * Knows operands and arguments, not models; sample and control are in sample.c. */
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "products.h"

#define ROW_TILE 64 /* rows of the step that share a decoded piece */

cpu_kernel_fn *const cpu_kernels[N_KERNELS] = {
#define KERNEL(name, per_weight, written, all, outputs, rows, args) cpu_##name,
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT
};

static u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

static const struct step_row *step_rows(const struct step_header *step)
{
	return (const struct step_row *)(step + 1);
}

/* cap * tanh(y / cap), or y where the cap is 0. */
static double softcapped(double y, double cap)
{
	return cap != 0 ? cap * tanh(y / cap) : y;
}

/* ---- weights ----------------------------------------------------------------------------------- */

void cpu_embed(const struct op *op, const struct step_header *step)
{
	const struct embed_args *a = &op->args.embed;
	const struct weight_format *f = weight_format(op->weight);
	float *x = cpu_pointer(&op->buffers[0]);
	const uint8_t *weights = cpu_pointer(&op->buffers[1]);
	const float *residual = a->has_residual ? cpu_pointer(&op->buffers[3]) : NULL;

	for (u32 row = 0; row < step->n_rows; row++) {
		const struct step_row *r = &step_rows(step)[row];
		u32 token = a->by_pos ? r->pos : r->token;
		if (token < a->first_row || token - a->first_row >= a->n_weight_rows)
			continue;
		const uint8_t *from = weights + (size_t)(token - a->first_row) * a->row_bytes;
		float *to = x + (size_t)row * a->stride;
		const float *add = residual ? residual + (size_t)row * a->stride_residual : NULL;
		for (u32 i = 0; i < a->n_embd; i += PIECE) {
			float w[PIECE];
			u32 n = cpu_decode_piece(f, from, i, a->n_embd, w);
			for (u32 j = 0; j < n; j++)
				to[i + j] = (float)((double)a->scale * (double)w[j] +
					(add ? (double)add[i + j] : 0));
		}
	}
}

/* x / (1 + exp(-k)): exp(-k) is infinite for k below -709, the quotient then 0. */
static double sigmoid_product(double x, double k)
{
	return x / (1 + exp(-k));
}

static double activation(u32 which, double x)
{
	const double two_over_pi = 0.63661977236758134308;
	switch (which) {
	case ACTIVATION_GELU: /* (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y)) */
		return sigmoid_product(x, 2 * sqrt(two_over_pi) * (x + 0.044715 * x * x * x));
	case ACTIVATION_SWIGLU:
		return sigmoid_product(fmin(x, 7), 1.702 * fmin(x, 7));
	case ACTIVATION_SIGMOID:
		return sigmoid_product(1, x);
	default:
		return sigmoid_product(x, x);
	}
}

/* activation(gate) * up */
static double gated(u32 which, double gate, double up)
{
	if (which == ACTIVATION_SWIGLU)
		up = fmax(-7, fmin(up, 7)) + 1;
	return activation(which, gate) * up;
}

void cpu_quantize_x(const struct op *op, const struct step_header *step)
{
	const struct quantize_args *a = &op->args.quantize_x;
	uint32_t *out = cpu_pointer(&op->buffers[0]);
	const float *x = cpu_pointer(&op->buffers[1]);
	for (u32 row = 0; row < step->n_rows; row++)
		for (u32 i = 0; i < a->n; i += KV_UNIT)
			cpu_quantize_unit(x + (size_t)row * a->stride_x + i,
				out + (size_t)row * a->stride_out + i / KV_UNIT * Q8_WORDS);
}

/* What becomes of a sum; bias and residual may be NULL. */
static float finish(const struct matmul_args *a, double sum, const float *bias,
	const float *residual, size_t row, u32 o)
{
	if (bias)
		sum += (double)bias[o];
	sum *= (double)a->scale;
	if (residual)
		sum += (double)residual[row * a->stride_residual + o];
	return (float)softcapped(sum, (double)a->softcap);
}

/* Rows of x as they come, or in 8 bits; strides of both are counted in 4 bytes. */
static void multiply(const struct op *op, const struct matmul_args *a,
	const struct step_header *step, cpu_row_products_fn *products)
{
	const struct weight_format *f = weight_format(op->weight);
	float *out = cpu_pointer(&op->buffers[0]);
	const uint8_t *weights = cpu_pointer(&op->buffers[1]);
	const float *x = cpu_pointer(&op->buffers[2]);
	const float *bias = a->has_bias ? cpu_pointer(&op->buffers[3]) : NULL;
	const float *residual = a->has_residual ? cpu_pointer(&op->buffers[4]) : NULL;
	const u32 gated_by = op->constant >> GATED_SHIFT & GATED_MASK;

	for (u32 first = 0; first < step->n_rows; first += ROW_TILE) {
		u32 n_rows = min_u32(step->n_rows - first, ROW_TILE);
		const float *rows[ROW_TILE];
		for (u32 t = 0; t < n_rows; t++)
			rows[t] = x + (size_t)(first + t) * a->stride_x;
		for (u32 o = 0; o < a->n_out; o++) {
			double sums[ROW_TILE], up[ROW_TILE];
			const uint8_t *from = weights + (size_t)o * a->row_bytes;
			products(f, from, a->n_in, rows, n_rows, sums);
			if (gated_by)
				products(f, from + (size_t)a->n_out * a->row_bytes, a->n_in, rows,
					n_rows, up);
			for (u32 t = 0; t < n_rows; t++) {
				size_t row = first + t;
				double sum =
					gated_by ? gated(gated_by - 1, sums[t], up[t]) : sums[t];
				out[row * a->stride_out + o] =
					finish(a, sum, bias, residual, row, o);
			}
		}
	}
}

void cpu_matvec(const struct op *op, const struct step_header *step)
{
	multiply(op, &op->args.matvec, step, cpu_row_products);
}

void cpu_matmul(const struct op *op, const struct step_header *step)
{
	multiply(op, &op->args.matmul, step, cpu_row_products);
}

void cpu_matvec_q8(const struct op *op, const struct step_header *step)
{
	multiply(op, &op->args.matvec_q8, step, cpu_row_products_q8);
}

void cpu_matmul_q8(const struct op *op, const struct step_header *step)
{
	multiply(op, &op->args.matmul_q8, step, cpu_row_products_q8);
}

void cpu_matmul_sum(const struct op *op, const struct step_header *step)
{
	const struct matmul_args *a = &op->args.matmul_sum;
	float *out = cpu_pointer(&op->buffers[0]);
	const float *sums = cpu_pointer(&op->buffers[1]);
	const float *bias = a->has_bias ? cpu_pointer(&op->buffers[2]) : NULL;
	const float *residual = a->has_residual ? cpu_pointer(&op->buffers[3]) : NULL;
	const size_t part_size = (size_t)a->n_rows * a->stride_x;
	const u32 n_parts = matmul_parts(a->n_in);
	for (size_t row = 0; row < step->n_rows; row++)
		for (u32 o = 0; o < a->n_out; o++) {
			double sum = 0;
			for (u32 part = 0; part < n_parts; part++)
				sum += (double)sums[part * part_size + row * a->stride_x + o];
			out[row * a->stride_out + o] = finish(a, sum, bias, residual, row, o);
		}
}

/* ---- element-wise ------------------------------------------------------------------------------ */

/* One segment: out = scale * ((x - mean) * factor (* weight) (+ bias) (+ residual)). */
static void norm_segment(const struct norm_args *a, bool centred, const float *x,
	const float *weight, const float *bias, const float *residual, float *out)
{
	double mean = 0, squares = 0;
	if (centred) {
		for (u32 i = 0; i < a->n; i++)
			mean += (double)x[i];
		mean /= a->n;
	}
	for (u32 i = 0; i < a->n; i++)
		squares += ((double)x[i] - mean) * ((double)x[i] - mean);
	double factor = 1 / sqrt(squares / a->n + (double)a->eps);
	for (u32 i = 0; i < a->n; i++) {
		double value = ((double)x[i] - mean) * factor * (weight ? (double)weight[i] : 1) +
			(bias ? (double)bias[i] : 0);
		double other = residual ? (double)residual[i] : 0;
		value = a->is_gated ? value * activation(ACTIVATION_SILU, other) : value + other;
		out[i] = (float)(value * (double)a->scale);
	}
}

static void normalise(const struct op *op, const struct norm_args *a, bool centred,
	const struct step_header *step)
{
	float *out = cpu_pointer(&op->buffers[0]);
	const float *x = cpu_pointer(&op->buffers[1]);
	const float *weight = cpu_pointer(&op->buffers[2]);
	const float *bias = a->has_bias ? cpu_pointer(&op->buffers[3]) : NULL;
	const float *residual = a->has_residual ? cpu_pointer(&op->buffers[4]) : NULL;

	for (size_t row = 0; row < step->n_rows; row++)
		for (size_t column = 0; column < (size_t)a->n_segments * a->n; column += a->n)
			norm_segment(a, centred, x + row * a->stride_x + column, weight, bias,
				residual ? residual + row * a->stride_residual + column : NULL,
				out + row * a->stride_out + column);
}

void cpu_rmsnorm(const struct op *op, const struct step_header *step)
{
	normalise(op, &op->args.rmsnorm, false, step);
}

void cpu_layernorm(const struct op *op, const struct step_header *step)
{
	normalise(op, &op->args.layernorm, true, step);
}

void cpu_glu(const struct op *op, const struct step_header *step)
{
	const struct glu_args *a = &op->args.glu;
	float *out = cpu_pointer(&op->buffers[0]);
	const u32 which = op->constant & GLU_ACTIVATION;
	const float *gate = op->constant & GLU_GATED ? cpu_pointer(&op->buffers[1]) : NULL;
	const float *up = cpu_pointer(&op->buffers[2]);

	for (size_t row = 0; row < (size_t)step->n_rows * op->factor; row++)
		for (size_t i = 0; i < a->n; i++) {
			const size_t at = row * a->stride_gate + a->gate_first +
				i / a->segment * a->gate_segment + i % a->segment;
			const double u = (double)up[row * a->stride_up + a->up_first + i];
			out[row * a->stride + i] = (float)(gate ? gated(which, (double)gate[at], u)
								: activation(which, u));
		}
}

/* ---- the KV cache ------------------------------------------------------------------------------ */

/* The first element of a head at a position, as kv.glsl. */
static size_t kv_element(
	const u32 *table, u32 n_blocks, u32 seq, u32 pos, u32 head_kv, u32 n_head_kv, u32 head_dim)
{
	size_t block = table[(size_t)seq * n_blocks + pos / KV_BLOCK];
	return ((block * KV_BLOCK + pos % KV_BLOCK) * n_head_kv + head_kv) * head_dim;
}

static enum kv_type k_type(const struct op *op)
{
	return (enum kv_type)(op->constant >> ATTN_K_SHIFT & ATTN_TYPE_MASK);
}

static enum kv_type v_type(const struct op *op)
{
	return (enum kv_type)(op->constant >> ATTN_V_SHIFT & ATTN_TYPE_MASK);
}

/* Element i of a head after rotation; table: the (cosine, sine) pairs of the position. */
static float rotated(const float *head, u32 i, const float *table, const struct rope_kv_args *a)
{
	u32 n = a->n_rot / 2;
	if (i >= a->n_rot)
		return head[i];
	bool first = a->neox ? i < n : i % 2 == 0;
	u32 other = !a->neox ? i ^ 1u : first ? i + n : i - n;
	const float *turn = table + (size_t)2 * (a->neox ? i % n : i / 2);
	double x = (double)head[i] * (double)turn[0], y = (double)head[other] * (double)turn[1];
	return (float)(first ? x - y : x + y);
}

/* A head of q (which 0), k (1) or v (2) as rope_kv takes it: normed, where it has norms. */
static const float *normed_head(const struct op *op, u32 which, const float *head, float *normed)
{
	const struct rope_kv_args *a = &op->args.rope_kv;
	const struct norm_args norm = {.n = a->head_dim, .eps = a->eps, .scale = 1};
	if (!(op->constant & (which == 2 ? ROPE_V_NORM : ROPE_NORMS)))
		return head;
	const float *weight = cpu_pointer(&op->buffers[7]);
	weight = which == 2 ? NULL : weight + (size_t)which * a->head_dim;
	norm_segment(&norm, false, head, weight, NULL, NULL, normed);
	return normed;
}

void cpu_rope_kv(const struct op *op, const struct step_header *step)
{
	const struct rope_kv_args *a = &op->args.rope_kv;
	float *q_out = cpu_pointer(&op->buffers[0]);
	void *k_cache = cpu_pointer(&op->buffers[1]), *v_cache = cpu_pointer(&op->buffers[2]);
	const float *qkv = cpu_pointer(&op->buffers[3]);
	const float *rope_table = cpu_pointer(&op->buffers[4]);
	const u32 *table = cpu_pointer(&op->buffers[6]);
	float rotated_k[MAX_HEAD_DIM], normed[MAX_HEAD_DIM], normed_v[MAX_HEAD_DIM];

	for (u32 irow = 0; irow < step->n_rows; irow++) {
		const struct step_row *row = &step_rows(step)[irow];
		const float *turns = rope_table + (size_t)row->pos * a->n_rot;
		const float *from = qkv + (size_t)irow * a->stride_qkv;
		float *to = q_out + (size_t)irow * a->stride_q;
		double factor = 1 + (double)a->q_scale * log1p((double)(row->pos / a->q_scale_ctx));
		for (u32 h = 0; h < a->n_head; h++, from += a->q_head, to += a->head_dim) {
			const float *q = normed_head(op, 0, from, normed);
			for (u32 i = 0; i < a->head_dim; i++)
				to[i] = (float)((double)rotated(q, i, turns, a) * factor);
		}
		from = qkv + (size_t)irow * a->stride_qkv;
		for (u32 h = 0; h < a->n_head_kv; h++) {
			const float *k = normed_head(
				op, 1, from + a->k_offset + (size_t)h * a->head_dim, normed);
			const float *v = normed_head(
				op, 2, from + a->v_offset + (size_t)h * a->head_dim, normed_v);
			size_t at = kv_element(table, a->n_blocks, row->seq, row->pos, h,
				a->n_head_kv, a->head_dim);
			for (u32 i = 0; i < a->head_dim; i++)
				rotated_k[i] = rotated(k, i, turns, a);
			kv_store(k_type(op), k_cache, at, a->head_dim, rotated_k);
			kv_store(v_type(op), v_cache, at, a->head_dim, v);
		}
	}
}

static void copy_block(u32 *words, u32 n, u32 from, u32 to)
{
	memcpy(words + (size_t)to * n, words + (size_t)from * n, n * sizeof *words);
}

void cpu_kv_copy(const struct op *op, const struct step_header *step)
{
	const struct kv_copy_args *a = &op->args.kv_copy;
	const struct copy_row *rows = (const struct copy_row *)(step + 1);
	for (u32 i = 0; i < step->n_rows; i++) {
		u32 from = a->has_window ? rows[i].from_window : rows[i].from;
		u32 to = a->has_window ? rows[i].to_window : rows[i].to;
		if (from == to)
			continue;
		copy_block(cpu_pointer(&op->buffers[0]), a->k_words, from, to);
		copy_block(cpu_pointer(&op->buffers[1]), a->v_words, from, to);
	}
}

/* Turns a head back by a distance: `turns` are the (cosine, sine) pairs of that position. */
static void turn_back(float *head, const float *turns, const struct kv_shift_args *a)
{
	u32 n = a->n_rot / 2;
	for (u32 i = 0; i < n; i++) {
		float *x = head + (a->neox ? i : 2 * i), *y = head + (a->neox ? i + n : 2 * i + 1);
		double c = (double)turns[2 * i] * (double)a->inv_magnitude;
		double s = (double)turns[2 * i + 1] * (double)a->inv_magnitude;
		double first = (double)*x * c + (double)*y * s;
		*y = (float)((double)*y * c - (double)*x * s);
		*x = (float)first;
	}
}

void cpu_kv_shift(const struct op *op, const struct step_header *step)
{
	const struct kv_shift_args *a = &op->args.kv_shift;
	const struct shift_row *rows = (const struct shift_row *)(step + 1);
	void *k_out = cpu_pointer(&op->buffers[0]);
	uint8_t *v_out = cpu_pointer(&op->buffers[1]);
	const void *k = cpu_pointer(&op->buffers[2]);
	const uint8_t *v = cpu_pointer(&op->buffers[3]);
	const float *rope_table = cpu_pointer(&op->buffers[4]);
	const u32 *table = cpu_pointer(&op->buffers[6]);
	float head[MAX_HEAD_DIM];

	for (u32 irow = 0; irow < step->n_rows; irow++)
		for (u32 h = 0; h < a->n_head_kv; h++) {
			const struct shift_row *row = &rows[irow];
			size_t from = kv_element(table, a->n_blocks, row->seq,
				row->pos + row->distance, h, a->n_head_kv, a->head_dim);
			size_t to = kv_element(table, a->n_blocks, row->seq, row->pos, h,
				a->n_head_kv, a->head_dim);
			kv_load(k_type(op), k, from, a->head_dim, head);
			turn_back(head, rope_table + (size_t)row->distance * a->n_rot, a);
			kv_store(k_type(op), k_out, to, a->head_dim, head);
			memcpy(v_out + kv_bytes(v_type(op), to), v + kv_bytes(v_type(op), from),
				kv_bytes(v_type(op), a->head_dim));
		}
}

/* ---- attention --------------------------------------------------------------------------------- */

/* What attention looks at, for one row of the step and one of its heads. */
struct lookout {
	const struct attn_args *args;
	const struct step_row *row;
	const float *q; /* [head_dim] */
	const void *k, *v;
	enum kv_type k_type, v_type;
	const u32 *table;
	u32 head_kv;
};

static struct lookout attention_of(const struct op *op, const struct attn_args *a,
	const struct step_header *step, u32 row, u32 head)
{
	return (struct lookout){
		.args = a,
		.row = &step_rows(step)[row],
		.q = (const float *)cpu_pointer(&op->buffers[1]) + (size_t)row * a->stride_q +
			(size_t)head * a->head_dim,
		.k = cpu_pointer(&op->buffers[2]),
		.v = cpu_pointer(&op->buffers[3]),
		.k_type = k_type(op),
		.v_type = v_type(op),
		.table = cpu_pointer(&op->buffers[5]),
		.head_kv = head / (a->n_head / a->n_head_kv),
	};
}

static size_t attention_element(const struct lookout *t, u32 pos)
{
	return kv_element(t->table, t->args->n_blocks, t->row->seq, pos, t->head_kv,
		t->args->n_head_kv, t->args->head_dim);
}

static double attention_score(const struct lookout *t, u32 pos)
{
	float k[MAX_HEAD_DIM];
	kv_load(t->k_type, t->k, attention_element(t, pos), t->args->head_dim, k);
	double sum = 0;
	for (u32 i = 0; i < t->args->head_dim; i++)
		sum += (double)t->q[i] * (double)k[i];
	return softcapped(sum * (double)t->args->scale, (double)t->args->softcap);
}

/* Softmax over positions first .. end - 1, not yet divided: *maximum of the scores, *sum of
 * exp(score - maximum), and values[head_dim], V weighted by the same.  What was summed is scaled
 * down when a larger maximum turns up. */
static void attend(const struct lookout *t, u32 first, u32 end, double *maximum, double *sum,
	double values[MAX_HEAD_DIM])
{
	u32 n = t->args->head_dim;
	float v[MAX_HEAD_DIM];
	*maximum = ATTN_NONE;
	*sum = 0;
	for (u32 i = 0; i < n; i++)
		values[i] = 0;
	for (u32 pos = first; pos < end; pos++) {
		double score = attention_score(t, pos);
		if (score > *maximum) {
			double factor = exp(*maximum - score);
			*sum *= factor;
			for (u32 i = 0; i < n; i++)
				values[i] *= factor;
			*maximum = score;
		}
		double weight = exp(score - *maximum);
		kv_load(t->v_type, t->v, attention_element(t, pos), n, v);
		*sum += weight;
		for (u32 i = 0; i < n; i++)
			values[i] += weight * (double)v[i];
	}
}

/* The sink of a head joins: no value, but a share of the sum. */
static void join_sink(const float *sinks, u32 head, double *maximum, double *sum, double *factor)
{
	*factor = 1;
	if (!sinks)
		return;
	double sink = (double)sinks[head], larger = fmax(*maximum, sink);
	*factor = exp(*maximum - larger);
	*sum = *sum * *factor + exp(sink - larger);
	*maximum = larger;
}

void cpu_attn_prefill(const struct op *op, const struct step_header *step)
{
	const struct attn_args *a = &op->args.attn_prefill;
	float *out = cpu_pointer(&op->buffers[0]);
	const float *sinks = a->has_sinks ? cpu_pointer(&op->buffers[6]) : NULL;
	double maximum, sum, factor, values[MAX_HEAD_DIM];

	for (u32 row = 0; row < step->n_rows; row++)
		for (u32 head = 0; head < a->n_head; head++) {
			struct lookout t = attention_of(op, a, step, row, head);
			float *to = out + (size_t)row * a->stride_out + (size_t)head * a->head_dim;
			attend(&t, WINDOW_START(t.row->pos, a->window), t.row->pos + 1, &maximum,
				&sum, values);
			join_sink(sinks, head, &maximum, &sum, &factor);
			for (u32 i = 0; i < a->head_dim; i++)
				to[i] = (float)(values[i] * factor / sum);
		}
}

/* The slices of a head of a row: [n_slices][2 + head_dim]. */
static size_t partial_offset(const struct attn_args *a, u32 row, u32 head)
{
	return ((size_t)row * a->n_head + head) * a->n_slices * (2 + a->head_dim);
}

void cpu_attn_decode(const struct op *op, const struct step_header *step)
{
	const struct attn_args *a = &op->args.attn_decode;
	float *partial = cpu_pointer(&op->buffers[0]);
	u32 n_slices = min_u32((step->n_kv + ATTN_SLICE - 1) / ATTN_SLICE, a->n_slices);
	double maximum, sum, values[MAX_HEAD_DIM];

	for (u32 row = 0; row < step->n_rows; row++)
		for (u32 head = 0; head < a->n_head; head++) {
			struct lookout t = attention_of(op, a, step, row, head);
			float *to = partial + partial_offset(a, row, head);
			u32 start = WINDOW_START(t.row->pos, a->window);
			for (u32 slice = 0; slice < n_slices; slice++, to += 2 + a->head_dim) {
				u32 first = (start / ATTN_SLICE + slice) * ATTN_SLICE;
				u32 end = min_u32(first + ATTN_SLICE, t.row->pos + 1);
				attend(&t, first > start ? first : start, end, &maximum, &sum,
					values);
				to[0] = (float)maximum;
				to[1] = (float)sum;
				for (u32 i = 0; i < a->head_dim; i++)
					to[2 + i] = (float)values[i];
			}
		}
}

void cpu_attn_reduce(const struct op *op, const struct step_header *step)
{
	const struct attn_args *a = &op->args.attn_reduce;
	float *out = cpu_pointer(&op->buffers[0]);
	const float *partial = cpu_pointer(&op->buffers[1]);
	const float *sinks = a->has_sinks ? cpu_pointer(&op->buffers[3]) : NULL;
	size_t slice_floats = 2 + a->head_dim;

	for (u32 row = 0; row < step->n_rows; row++)
		for (u32 head = 0; head < a->n_head; head++) {
			const float *slices = partial + partial_offset(a, row, head);
			float *to = out + (size_t)row * a->stride_out + (size_t)head * a->head_dim;
			u32 pos = step_rows(step)[row].pos;
			u32 n = pos / ATTN_SLICE - WINDOW_START(pos, a->window) / ATTN_SLICE + 1;
			double maximum = ATTN_NONE, sum = 0, factor, values[MAX_HEAD_DIM] = {0};
			n = min_u32(n, a->n_slices);
			for (u32 i = 0; i < n; i++)
				maximum = fmax(maximum, (double)slices[i * slice_floats]);
			for (u32 i = 0; i < n; i++) {
				const float *slice = slices + i * slice_floats;
				double weight = exp((double)slice[0] - maximum);
				sum += weight * (double)slice[1];
				for (u32 j = 0; j < a->head_dim; j++)
					values[j] += weight * (double)slice[2 + j];
			}
			join_sink(sinks, head, &maximum, &sum, &factor);
			for (u32 j = 0; j < a->head_dim; j++)
				to[j] = (float)(values[j] * factor / sum);
		}
}

/* ---- yardsticks -------------------------------------------------------------------------------- */

void cpu_read_rate(const struct op *op, const struct step_header *step)
{
	(void)step;
	const u32 n = op->args.read_rate.n;
	const u32 in_group = kernel_info(op->kernel)->outputs_per_group;
	u32 *out = cpu_pointer(&op->buffers[0]);
	const u32 *words = cpu_pointer(&op->buffers[1]);
	for (u32 first = 0; first < n; first += in_group) {
		size_t end = (size_t)4 * min_u32(n, first + in_group);
		u32 sum = 0;
		for (size_t i = (size_t)4 * first; i < end; i++)
			sum += words[i];
		out[first / in_group] = sum;
	}
}

void cpu_fma_rate(const struct op *op, const struct step_header *step)
{
	(void)step;
	const struct fma_rate_args *a = &op->args.fma_rate;
	float *out = cpu_pointer(&op->buffers[0]);
	for (u32 i = 0; i < a->n; i++) {
		float x[FMA_CHAINS], sum = 0;
		for (u32 c = 0; c < FMA_CHAINS; c++)
			x[c] = (float)(i % 16 + c);
		for (u32 turn = 0; turn < a->n_turns * FMA_STEPS; turn++)
			for (u32 c = 0; c < FMA_CHAINS; c++)
				x[c] = x[c] * a->factor + a->addend;
		for (u32 c = 0; c < FMA_CHAINS; c++)
			sum += x[c];
		out[i] = sum;
	}
}
