/* A plan: a flat list of ops, each one kernel with its operands.  What a step does.
 *
 * Owns the constructors of every op, which assert shapes while the plan is built.  Knows neither
 * models nor backends: a buffer is an opaque handle here. */
#ifndef LAPILLI_PLAN_H
#define LAPILLI_PLAN_H

#include "args.h"
#include "base.h"
#include "kv.h"
#include "weight.h"

#define MAX_BUFFERS 8 /* operands of an op */
#define MAX_KNOBS   6 /* of a kernel: see knobs.h */
/* Bytes of a plan's parts, at most: 512 tiles of 64 x 32, MAX_PARTS sums of each element; more fill any GPU. */
#define PARTS_BYTES (16u << 20)

enum kernel {
#define KERNEL(name, per_weight, written, all, outputs, rows, args) KERNEL_##name,
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT
	N_KERNELS
};

enum per_weight { PER_WEIGHT_NO, PER_WEIGHT_YES, PER_WEIGHT_INTEGERS };

struct kernel_info {
	const char *name;
	enum per_weight per_weight; /* built for no format, for all, for those with integers */
	uint32_t n_written, n_buffers;
	uint32_t outputs_per_group, rows_per_group;
	uint32_t args_bytes;
};

const struct kernel_info *kernel_info(enum kernel kernel);

/* Whether the kernel is built for weights of that format; without formats there is one build, for the first. */
bool kernel_takes(enum kernel kernel, enum weight weight);

struct buffer; /* device memory of a backend (backend.h) */

/* n_bytes of a buffer from offset on.  Offsets are multiples of 256. */
struct view {
	struct buffer *buffer;
	uint64_t offset, n_bytes;
};

/* Activations: rows of n floats, `stride` floats apart.  n 0: there are none (an optional operand). */
struct rows {
	struct view view;
	uint32_t n, stride;
};

/* The bytes of n rows from `first` on.  Products are 64 bits wide: a row's number times the vocabulary
 * passes 2^31 in real runs. */
struct view rows_view(struct rows x, uint64_t first, uint64_t n);

/* A matrix of weights [n_rows][n_cols], as chunks of rows_per_chunk rows (the last may be shorter).
 * Experts are matrices one behind the other: n_rows counts the rows of them all, and a chunk holds
 * whole experts.  n_rows 0: there is no such tensor. */
struct weights {
	const char *name;
	enum weight weight;
	uint32_t n_rows, n_cols;
	uint32_t n_experts; /* 0: a matrix */
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
	enum weight weight;        /* format of the weight operand; 0 when there is none */
	uint32_t n_outputs;        /* extent along x: outputs, heads; see kernels.def */
	uint32_t rule;             /* SIZE_ROWS, SIZE_KV, SIZE_ONE */
	uint32_t factor;           /* with SIZE_ROWS: see struct dispatch_size */
	uint32_t extra;            /* likewise */
	uint32_t window;           /* with SIZE_KV: likewise */
	uint32_t rows_per_group;   /* of the step, one workgroup takes; 0: as in kernels.def */
	uint32_t max_rows;         /* of a step: the plan's */
	uint32_t constant;         /* specialization constant 1; 0 where the kernel has none */
	uint32_t knobs[MAX_KNOBS]; /* 0: as the device likes it; set by who measures */
	struct view buffers[MAX_BUFFERS]; /* in the order of the shader's bindings */
	struct view
		parts; /* of a matmul: room for the sums of its parts; n_bytes 0: not to be split */
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
	struct view q8;     /* room for x in 8 bits: products that can take it so, do; none: f32 */
	struct rows q8_of;  /* the x that it holds after the last op; n 0: none */
	struct view parts;  /* room for sums of parts of products, which use it where theirs fit */
	bool out_of_memory; /* some append failed: the plan must not be run */
};

void plan_free(struct plan *p); /* the list alone; buffers belong to others */

/* Where a layer keeps its keys and values: [block][KV_BLOCK][n_head_kv * head_dim] each, of the same
 * or different type (sizes: kv_bytes); the block table maps a sequence's positions to blocks. */
struct kv_layer {
	struct view k, v;
	enum kv_type k_type, v_type; /* quantised ones need head_dim in whole KV_UNITs */
};

struct kv_shape {
	uint32_t n_head, n_head_kv, head_dim;
	struct view table; /* u32 [n_seq][n_blocks] */
	uint32_t n_blocks;
	uint32_t n_ctx; /* positions a sequence can have */
};

/* x = scale * (row of each row's token, or of its position) (+ residual). */
void plan_embed(struct plan *p, struct rows x, const struct weights *w, float scale, bool by_pos,
	struct rows residual);

enum norm { NORM_RMS, NORM_LAYER };

/* out = norm(x) * weight (+ bias) (+ residual), for each of the segments of weight->n_cols columns. */
void plan_norm(struct plan *p, enum norm norm, struct rows out, struct rows x,
	const struct weights *weight, const struct weights *bias, float eps, struct rows residual);

/* out = scale * (rmsnorm(x) * weight (+ residual)), likewise. */
void plan_norm_scaled(struct plan *p, struct rows out, struct rows x, const struct weights *weight,
	float eps, struct rows residual, float scale);

/* out = rmsnorm(x) * weight * silu(gate), for each of the segments of weight->n_cols columns. */
void plan_norm_gated(struct plan *p, struct rows out, struct rows x, const struct weights *weight,
	float eps, struct rows gate);

/* What a product does with its sums; zeroed: nothing.  See struct matmul_args. */
struct epilogue {
	const struct weights *bias; /* NULL or absent: none */
	struct rows residual;
	float scale; /* 0: 1 */
	float softcap;
	uint32_t
		gated; /* in decode: 1 + the activation of a gated product, which has nothing else */
};

/* The rows of x in 8 bits, in p->q8 (see struct quantize_args): an op, unless they are there. */
struct rows plan_quantize(struct plan *p, struct rows x);

/* What p->q8 must hold for rows of n elements. */
uint64_t quantized_bytes(uint32_t n, uint64_t n_rows);

/* out = epilogue(w x).  One op per chunk of w, of which a gated product has one.  With p->q8, and weights that have
 * integers, the product is one of integers. */
void plan_matmul(
	struct plan *p, struct rows out, const struct weights *w, struct rows x, struct epilogue e);

/* Parts that the elements of a product over n_in are summed in where it can be split: see parts.h. */
uint32_t matmul_parts(uint32_t n_in);

/* out = epilogue(the sum over the parts of n_in elements of sums[part][row]), in prefill.  sums: of each part rows
 * for all of the plan. */
void plan_matmul_sum(
	struct plan *p, struct rows out, struct rows sums, uint32_t n_in, struct epilogue e);

/* A matmul that has room for its parts as two ops: `split` workgroups for each tile_outputs outputs, which leave the
 * sums of the parts there, and the sum of those. */
void op_split(const struct op *op, uint32_t split, uint32_t tile_outputs, struct op out[2]);

struct rope {
	struct view table; /* f32 [n_ctx][n_rot / 2][2] */
	uint32_t n_rot;    /* 0: nothing turns; the table is bound all the same */
	bool neox;
	bool q_gated;  /* behind each head of q lies its gate: see plan_gate_heads */
	float q_scale; /* see struct rope_kv_args */
	uint32_t q_scale_ctx;
	const struct weights *norms; /* of the heads of q and k; NULL or absent: none */
	bool v_norm;                 /* heads of v are normed, too, without weights */
	bool q_only;                 /* k and v are those of another layer: norms has q's alone */
	float eps;
};

/* q = rope(q of qkv); k cache and v cache at the row's position = rope(k), v.
 * qkv holds q at 0, k at k_offset, v at v_offset (floats), which may be the same. */
void plan_rope_kv(struct plan *p, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, struct rows qkv, uint32_t k_offset, uint32_t v_offset,
	const struct rope *rope);

struct attention {
	float scale, softcap;
	uint32_t window;             /* 0: none */
	const struct weights *sinks; /* NULL or absent: none */
	struct view
		partial; /* for decode: max_rows * n_head * attention_slices * (2 + head_dim) f32 */
};

/* Slices of ATTN_SLICE positions that decode looks at, at most. */
uint32_t attention_slices(uint32_t n_ctx, uint32_t window);

/* out = attention of q over the cache. */
void plan_attention(struct plan *p, struct rows out, struct rows q, const struct kv_layer *kv,
	const struct kv_shape *shape, const struct attention *a);

/* How the positions of a recurrent layer's sequences reach the blocks of its state: args.h describes them. */
struct state_shape {
	struct view table; /* u32 [n_seq][n_blocks]: blocks of every layer's state, or STATE_NONE */
	uint32_t n_blocks;
};

struct conv {
	uint32_t n_channels, n_taps; /* multiples of 4; 2 to MAX_TAPS */
	uint32_t x, gate_in,
		gate_out; /* offsets in a row of x, multiples of 4; CONV_NONE: no gate */
	bool silu;
};

/* out = (silu of) the convolution of each channel of x, gated before and behind; w: f32 [n_channels][n_taps].
 * state: conv_block_bytes for each block. */
void plan_conv(struct plan *p, struct rows out, struct rows x, const struct weights *w,
	struct view state, const struct state_shape *shape, const struct conv *c);
uint64_t conv_block_bytes(uint32_t n_channels, uint32_t n_taps);

struct delta {
	uint32_t n_group, n_head;
	uint32_t dk, dv;      /* multiples of 4, at most MAX_STATE_DIM */
	uint32_t alpha, beta; /* offsets in a row of gates */
	float eps;
};

/* out = the gated delta rule over qkv [2 * n_group * dk + n_head * dv], see struct delta_args; dt_a: f32
 * [2 * n_head].  state: delta_block_bytes for each block. */
void plan_delta(struct plan *p, struct rows out, struct rows qkv, struct rows gates,
	const struct weights *dt_a, struct view state, const struct state_shape *shape,
	const struct delta *d);
uint64_t delta_block_bytes(const struct delta *d);

/* out = activation(gate) * up, or activation(up) where gate.n is 0; for n_used experts' rows of each
 * row of the step (1: the rows themselves).  up may begin in the middle of rows. */
void plan_glu(struct plan *p, struct rows out, struct rows gate, struct rows up,
	uint32_t activation, uint32_t n_used);

/* out = sigmoid(gate) * x for each head; a head's gate stands in qkv behind its query, of the same length. */
void plan_gate_heads(
	struct plan *p, struct rows out, struct rows qkv, struct rows x, uint32_t head_dim);

/* Where the rows of a step go: see struct expert_route and struct expert_tile. */
struct routing {
	struct view routes; /* expert_route [max_rows][n_used] */
	struct view tiles;  /* for prefill: expert_tiles_bytes(n_expert, max_rows * n_used) */
	uint32_t n_used;
};

uint64_t expert_tiles_bytes(uint32_t n_expert, uint32_t n_slots);

/* routes = the n_used experts with the largest of the logits; see struct route_args.  scales: of the experts;
 * NULL or absent: none. */
void plan_route(struct plan *p, struct view routes, struct rows logits, uint32_t n_used,
	bool normalise, const struct weights *scales);

/* tiles = the slots of all rows by expert; needed by plan_expert_matmul in prefill only. */
void plan_tiles(
	struct plan *p, struct view tiles, struct view routes, uint32_t n_expert, uint32_t n_used);

/* out[slot] = (the expert of the slot) x (+ its bias: a row of n_experts); x has a row per slot, or one per
 * row of the step.  One op per chunk of w. */
void plan_expert_matmul(struct plan *p, struct rows out, const struct weights *w, struct rows x,
	const struct weights *bias, const struct routing *routing, bool x_per_slot);

/* out = residual + scale * (sum of down by the routes' weights + sigmoid(gate) * shared); residual, shared
 * and gate are optional. */
void plan_expert_sum(struct plan *p, struct rows out, struct rows down, struct view routes,
	uint32_t n_used, struct rows residual, float scale, struct rows shared, struct rows gate);

/* What the tail of a decode step works on. */
struct tail {
	struct view results;   /* sample_result[max_rows] */
	struct view scratch;   /* f32 [max_rows][stride of logits] */
	struct view sequences; /* sequence[n_seq] */
	struct view ring;      /* ring_entry[RING_ENTRIES] per sequence */
	struct view history;   /* u32 [n_seq][HISTORY_WORDS(n_ctx, n_vocab)] */
	struct view tops;      /* top_token [n_seq][RING_ENTRIES][n_top] */
	uint32_t n_ctx, n_top; /* n_top 0: there are no tops */
	struct view choice;    /* beam_choice, beam_candidate [max_rows][n_top] */
};

void plan_sample(struct plan *p, struct rows logits, const struct tail *tail);
/* choice = the candidates of all rows in the order of their scores; behind plan_sample.  At most
 * MAX_BEAM_ROWS rows, n_top > 0. */
void plan_beam_select(struct plan *p, const struct tail *tail);
void plan_control(struct plan *p, uint32_t n_vocab, const struct tail *tail);

/* Copies blocks of a layer's cache; the plan's step holds copy_rows. */
void plan_kv_copy(
	struct plan *p, const struct kv_layer *kv, const struct kv_shape *shape, bool has_window);

/* Copies blocks of a recurrent layer's states, of these many bytes; b may be absent (0 bytes).  The plan's step
 * holds copy_rows, whose blocks of windows these are. */
void plan_state_copy(
	struct plan *p, struct view a, uint64_t a_bytes, struct view b, uint64_t b_bytes);

/* Moves positions of a layer's cache; the plan's step holds shift_rows.  magnitude: length of the pairs
 * of the rope table.  Each move rounds the keys again; of random keys are lost (root mean square):
 *     moves      1     10     50
 *     q8_0    0.6 %    2 %    4 %
 *     q4_0      9 %   25 %  100 %
 * and by f16 no more than 0.002 of the largest, 0.004, 0.006.  Turns smaller than a rounding get lost
 * altogether: many small moves lose more than a few large ones. */
void plan_kv_shift(struct plan *p, const struct kv_layer *kv, const struct kv_shape *shape,
	const struct rope *rope, float magnitude);

/* How fast a device reads and computes (rates.h): see struct read_rate_args and struct fma_rate_args.  out:
 * read_rate_bytes of the data's bytes; n floats. */
void plan_read_rate(struct plan *p, struct view out, struct view data);
uint64_t read_rate_bytes(uint64_t n_bytes);
void plan_fma_rate(struct plan *p, struct view out, uint32_t n, uint32_t n_turns);

/* Rewrites x, y, z of each entry from the header: what the control shader does on a device. */
void sizes_update(struct dispatch_size *sizes, uint32_t n_sizes, const struct step_header *step);

#endif
