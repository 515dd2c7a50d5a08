/* Bytes and operations of ops: see work.h. */
#include "work.h"

#define F32 4.0 /* bytes */

static double min_double(double a, double b)
{
	return a < b ? a : b;
}

static struct work product(double rows, double n_out, double n_in, double weight_bytes)
{
	return (struct work){
		.bytes = weight_bytes + rows * (n_out + n_in) * F32,
		.flops = 2 * rows * n_out * n_in,
	};
}

/* A gate has as many rows of weights again. */
static struct work dense(const struct op *op, double rows)
{
	const struct matmul_args *a = &op->args.matmul;
	const bool gated = op->constant >> GATED_SHIFT & GATED_MASK;
	const double n_weights = (gated ? 2.0 : 1.0) * a->n_out;
	struct work work = product(rows, a->n_out, a->n_in, n_weights * a->row_bytes);
	work.flops = 2 * rows * n_weights * a->n_in;
	return work;
}

/* Rows that read an expert's weights read them together. */
static struct work experts(const struct expert_args *a, double rows)
{
	const double slots = rows * a->n_used;
	return product(slots, a->n_out, a->n_in,
		min_double(slots, a->n_experts) * a->n_out * a->row_bytes);
}

/* Prefill: the rows are the last positions, one after the other.  Decode: each row sees n_kv of a sequence
 * of its own. */
static struct work attention(const struct op *op, const struct step_header *step)
{
	const struct attn_args *a = &op->args.attn_decode;
	const bool decode = op->kernel == KERNEL_attn_decode;
	const uint32_t width = a->n_head_kv * a->head_dim;
	double seen = 0; /* positions, of all rows */
	for (uint32_t i = 0; i < step->n_rows; i++) {
		const uint32_t n = decode ? step->n_kv : step->n_kv - step->n_rows + i + 1;
		seen += a->window && a->window < n ? a->window : n;
	}
	const uint64_t cell =
		kv_bytes((enum kv_type)(op->constant >> ATTN_K_SHIFT & ATTN_TYPE_MASK), width) +
		kv_bytes((enum kv_type)(op->constant >> ATTN_V_SHIFT & ATTN_TYPE_MASK), width);
	const double read = decode ? seen
		: a->window        ? min_double(step->n_kv, a->window + step->n_rows - 1.0)
				   : step->n_kv;
	return (struct work){
		.bytes = read * (double)cell + 2.0 * step->n_rows * a->n_head * a->head_dim * F32,
		.flops = 4 * seen * a->n_head * a->head_dim,
	};
}

/* S and what the positions of a block add is read once for the rows of a block, in decode for each row; six
 * operations for each element of S. */
static struct work delta(const struct op *op, const struct step_header *step)
{
	const struct delta_args *a = &op->args.delta_decode;
	const double rows = step->n_rows, state = (double)a->n_head * a->dk * a->dv;
	const double blocks =
		op->kernel == KERNEL_delta_decode ? rows : 2 * (rows / STATE_BLOCK + 1);
	const double row = 3.0 * a->n_group * a->dk + 3.0 * a->n_head * a->dv;
	return (struct work){
		.bytes = (blocks * state + rows * row) * F32, .flops = 6 * rows * state};
}

struct work op_work(const struct op *op, const struct step_header *step)
{
	const union args *a = &op->args;
	const double rows = step->n_rows;
	double floats = 0; /* a row's, read and written, where that is all */
	switch (op->kernel) {
	case KERNEL_matvec:
	case KERNEL_matmul:
	case KERNEL_matvec_q8:
	case KERNEL_matmul_q8:
		return dense(op, rows);
	case KERNEL_expert_matvec:
	case KERNEL_expert_matmul:
		return experts(&a->expert_matmul, rows);
	case KERNEL_attn_decode:
	case KERNEL_attn_prefill:
		return attention(op, step);
	case KERNEL_delta_decode:
	case KERNEL_delta_prefill:
		return delta(op, step);
	case KERNEL_read_rate:
		return (struct work){.bytes = 16.0 * a->read_rate.n};
	case KERNEL_fma_rate:
		return (struct work){.bytes = F32 * a->fma_rate.n,
			.flops =
				2.0 * FMA_CHAINS * FMA_STEPS * a->fma_rate.n_turns * a->fma_rate.n};
	case KERNEL_embed:
		return (struct work){.bytes = rows * (a->embed.row_bytes + a->embed.n_embd * F32)};
	case KERNEL_rmsnorm:
	case KERNEL_layernorm:
		floats = (2.0 + a->rmsnorm.has_residual) * a->rmsnorm.n * a->rmsnorm.n_segments;
		break;
	case KERNEL_matmul_sum:
		floats = (1.0 + matmul_parts(a->matmul_sum.n_in) + a->matmul_sum.has_residual) *
			a->matmul_sum.n_out;
		break;
	case KERNEL_quantize_x:
		floats = a->quantize_x.n + Q8_ROW_WORDS(a->quantize_x.n);
		break;
	case KERNEL_rope_kv:
		floats = 2.0 * (a->rope_kv.n_head + 2.0 * a->rope_kv.n_head_kv) *
			a->rope_kv.head_dim;
		break;
	case KERNEL_attn_reduce:
		floats = (double)a->attn_reduce.n_head * a->attn_reduce.head_dim *
			(2 + (step->n_kv - 1) / ATTN_SLICE);
		break;
	case KERNEL_conv:
		floats = (3.0 + (a->conv.gate_in != CONV_NONE) + (a->conv.gate_out != CONV_NONE)) *
			a->conv.n_channels;
		break;
	case KERNEL_glu:
		floats = (2.0 + (op->constant & GLU_GATED ? 1 : 0)) * a->glu.n * op->factor;
		break;
	case KERNEL_moe_route:
		floats = a->moe_route.n_expert + 2.0 * a->moe_route.n_used;
		break;
	case KERNEL_moe_tiles:
		floats = 3.0 * a->moe_tiles.n_used;
		break;
	case KERNEL_expert_sum:
		floats = (1.0 + a->expert_sum.n_used + a->expert_sum.has_residual +
				 a->expert_sum.has_shared) *
			a->expert_sum.n;
		break;
	case KERNEL_kv_copy:
		floats = 2.0 * (a->kv_copy.k_words + a->kv_copy.v_words);
		break;
	case KERNEL_kv_shift:
		floats = 4.0 * a->kv_shift.n_head_kv * a->kv_shift.head_dim;
		break;
	case KERNEL_sample:
		floats = 2.0 * a->sample.n_vocab; /* the logits, and what becomes of them */
		break;
	case KERNEL_beam_select:
		floats = 2.0 * a->beam_select.n_top;
		break;
	case KERNEL_control:
		floats = sizeof(struct sequence) / F32;
		break;
	case N_KERNELS:
		break;
	}
	return (struct work){.bytes = rows * floats * F32};
}
