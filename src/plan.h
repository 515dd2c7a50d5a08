/* A plan: a flat list of ops, each one kernel with its operands.  What a step does.
 *
 * Owns the constructors of every op, which assert shapes while the plan is built.  Knows neither
 * models nor backends: a buffer is an opaque handle here. */
#ifndef LAPILLI_PLAN_H
#define LAPILLI_PLAN_H

#include "args.h"
#include "base.h"
#include "weight.h"

#define MAX_BUFFERS 8 /* operands of an op */

enum kernel {
#define KERNEL(name, per_weight, written, all, outputs, rows, args) KERNEL_##name,
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT
	N_KERNELS
};

struct kernel_info {
	const char *name;
	bool per_weight;
	uint32_t n_written, n_buffers;
	uint32_t outputs_per_group, rows_per_group;
	uint32_t args_bytes;
};

const struct kernel_info *kernel_info(enum kernel kernel);

struct buffer; /* device memory of a backend (backend.h) */

/* n_bytes of a buffer from offset on.  Offsets are multiples of 256. */
struct view {
	struct buffer *buffer;
	uint64_t offset, n_bytes;
};

/* Activations: rows of n floats, `stride` floats apart. */
struct rows {
	struct view view;
	uint32_t n, stride;
};

/* A matrix of weights [n_rows][n_cols], as chunks of rows_per_chunk rows (the last may be shorter).
 * n_rows 0: there is no such tensor. */
struct weights {
	const char *name;
	enum weight weight;
	uint32_t n_rows, n_cols;
	uint32_t rows_per_chunk, n_chunks;
	struct view *chunks;
};

union args {
#define KERNEL(name, per_weight, written, all, outputs, rows, args) struct args name;
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT
};

struct op {
	enum kernel kernel;
	enum weight weight; /* format of the weight operand; 0 when there is none */
	uint32_t n_outputs; /* extent along x: outputs, heads; see kernels.def */
	uint32_t rule;      /* SIZE_ROWS, SIZE_KV, SIZE_ONE */
	uint32_t constant;  /* specialization constant 1; 0 where the kernel has none */
	struct view buffers[MAX_BUFFERS]; /* in the order of the shader's bindings */
	union args args;
	const char *label; /* of the weight, or the kernel's name; for messages */
	int32_t layer;     /* -1 outside the layers */
};

enum role { ROLE_PREFILL, ROLE_DECODE };

struct plan {
	enum role role;    /* chooses matmul or matvec, attn_prefill or attn_decode */
	uint32_t max_rows; /* rows that the step buffer and all activations have room for */
	struct view step;  /* step_header, step_row[max_rows] */
	struct view sizes; /* dispatch_size[MAX_SIZES]; belongs to this plan alone */
	struct op *ops;
	uint32_t n_ops, capacity;
	int32_t layer;      /* given to the ops that follow */
	bool out_of_memory; /* some append failed: the plan must not be run */
};

void plan_free(struct plan *p); /* the list alone; buffers belong to others */

/* Where a layer keeps its keys and values: [block][KV_BLOCK][n_head_kv * head_dim] each, of the same
 * or different type; the block table maps a sequence's positions to blocks. */
struct kv_layer {
	struct view k, v;
	bool k_f16, v_f16;
};

struct kv_shape {
	uint32_t n_head, n_head_kv, head_dim;
	struct view table; /* u32 [n_seq][n_blocks] */
	uint32_t n_blocks;
	uint32_t n_ctx; /* positions a sequence can have */
};

/* x = embedding of each row's token. */
void plan_embed(struct plan *p, struct rows x, const struct weights *token_embd);

/* out = rmsnorm(x) * weight. */
void plan_rmsnorm(
	struct plan *p, struct rows out, struct rows x, const struct weights *weight, float eps);

/* out = w x (+ bias) (+ residual).  bias may be NULL or absent; residual.n 0: none.  One op per chunk
 * of w. */
void plan_matmul(struct plan *p, struct rows out, const struct weights *w, struct rows x,
	const struct weights *bias, struct rows residual);

/* q = rope(q of qkv); k cache and v cache at the row's position = rope(k), v.
 * qkv holds q at 0, k at k_offset, v at v_offset (floats). */
void plan_rope_kv(struct plan *p, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, struct rows qkv, uint32_t k_offset, uint32_t v_offset,
	struct view rope_table, uint32_t n_rot, bool neox);

/* out = attention of q over the cache; partial is scratch for decode:
 * max_rows * n_head * ceil(n_ctx / ATTN_SLICE) * (2 + head_dim) floats. */
void plan_attention(struct plan *p, struct rows out, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, float scale, struct view partial);

/* out = silu(gate) * up. */
void plan_glu(struct plan *p, struct rows out, struct rows gate, struct rows up);

/* What the tail of a decode step works on. */
struct tail {
	struct view results;   /* sample_result[max_rows] */
	struct view scratch;   /* f32 [max_rows][stride of logits] */
	struct view sequences; /* sequence[n_seq] */
	struct view ring;      /* ring_entry[RING_ENTRIES] per sequence */
	struct view history;   /* u32 [n_seq][n_ctx + n_vocab] */
	uint32_t n_ctx;
};

void plan_sample(struct plan *p, struct rows logits, const struct tail *tail);
void plan_control(struct plan *p, uint32_t n_vocab, const struct tail *tail);

/* Rewrites x, y, z of each entry from the header: what the control shader does on a device. */
void sizes_update(struct dispatch_size *sizes, uint32_t n_sizes, const struct step_header *step);

#endif
