/* What host and shaders say to each other: arguments of every kernel (push constants, at most 128
 * bytes) and the records that live in buffers.  Included by C and by GLSL; 32-bit fields only, so
 * that C and std430 lay them out alike. */
#ifndef LAPILLI_ARGS_H
#define LAPILLI_ARGS_H

#ifdef LAPILLI_GLSL
#define u32 uint
#define f32 float
#define atomic_u32 u32
#else
#include <stdint.h>
typedef uint32_t u32;
typedef _Atomic u32 atomic_u32; /* as large */
typedef float f32;
#endif

/* ---- numbers that both sides must agree on ---- */

#define ROW_ALIGN     64 /* a row of activations takes a multiple of this many floats; what is
                            beyond its columns is 0 and stays 0: nothing writes there */
#define KV_BLOCK      32 /* positions in a block of the KV cache */
#define ATTN_SLICE    128 /* positions that one workgroup of attn_decode covers; whole KV blocks */
#define ATTN_PART     8192 /* positions that one subgroup of attn_prefill looks at: see attention_lanes.glsl */
#define MAX_HEAD_DIM  512
#define NARROW_HEAD_DIM 256 /* attention over larger heads is a build of its own, "wide" */
#define MAX_GQA       16 /* query heads per KV head that attention takes at most in one workgroup */
#define MAX_STOPS     32 /* end-of-generation ids of a sequence */
#define MAX_BIAS      32 /* logit biases of a sequence */
#define MAX_TOP       64 /* best tokens that a step can list */
#define MATVEC_COLUMNS 8 /* rows of x that a workgroup of matvec multiplies its weights with, at most */
#define RING_ENTRIES  1024 /* results that may wait for the host */
#define MAX_EXPERTS   512
#define MAX_EXPERTS_USED 32
#define EXPERT_TILE   8 /* slots of one expert that a workgroup of expert_matmul takes */
#define MAX_SIZES     64 /* distinct dispatch sizes of a plan */
#define ATTN_NONE     (-3.0e38) /* the maximum of a slice without positions: finite, so that the
                                   difference of two is a number */
#define WEIGHT_PAD    256 /* readable bytes behind the last row of a weight chunk: word reads and
                             the tail of the last unit of 32 weights may touch them */

#define STATE_BLOCK   16 /* positions in a block of a recurrent layer's state */
#define STATE_NONE    0xFFFFFFFFu /* in a table of state blocks: this one is not kept */
#define MAX_STATE_DIM 128 /* of a key and of a value of the delta rule */
#define MAX_TAPS      8   /* of a causal convolution */

#define Q8_WORDS 12 /* of 32 elements of x in 8 bits: see struct quantize_args */
#define Q8_ROW_WORDS(n) ((n) / 32 * Q8_WORDS)

#define ROW_STRIDE(n) (((n) + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN)

/* constant_id 1 of embed, matvec and matmul: rows are whole units of 32 weights, so that they begin at
 * multiples of 16 bytes (formats without blocks) and no unit has a tail */
#define ROWS_WHOLE 1
/* ... and of all kernels with weights: unpackHalf2x16 of this driver keeps subnormal halves; set by the
 * backend */
#define HALVES_KEPT 2
/* ... and of matmul_sum and products but those of experts: has_bias; softcap is not 0 */
#define PRODUCT_BIAS    4
#define PRODUCT_SOFTCAP 8
/* ... and of products with several rows of x: outputs are stored by four: their number, strides and offsets are
 * multiples of 4 */
#define PRODUCT_QUADS 64
/* ... and of matvec: 1 + the activation of a gated product, 0 where it is none ... */
#define GATED_SHIFT 4
#define GATED_MASK  3
/* ... and rows of x of a workgroup, 1 to MATVEC_COLUMNS */
#define COLUMNS_SHIFT 8

/* Bindings behind the storage buffers of variants that read texel buffers (LP_TEXELS): the weights as
 * uvec4 and as uint, and x of a product as vec4. */
#define TEXEL_QUADS 8
#define TEXEL_WORDS 9
#define TEXEL_X     10

/* How a cache keeps its elements, numbered as enum lap_kv_type: see kv.glsl and src/kv.h. */
#ifdef LAPILLI_GLSL
const u32
#else
enum kv_type {
#endif
	KV_F16 = 0, KV_F32 = 1, KV_Q8_0 = 2, KV_Q4_0 = 3
#ifndef LAPILLI_GLSL
}
#endif
;

#define KV_UNIT       32 /* elements that share a scale in KV_Q8_0 and KV_Q4_0 */
#define KV_Q8_0_WORDS 9  /* of a unit: its scale as f32, then 4 signed bytes a word */
#define KV_Q4_0_WORDS 5  /* of a unit: its scale as f32, then 8 nibbles a word, each 8 too large */

/* constant_id 1 of attention kernels and rope_kv: head_dim | type of K << ... | type of V << ... */
#define ATTN_DIM_MASK  0xFFFF
#define ATTN_K_SHIFT   16
#define ATTN_V_SHIFT   18
#define ATTN_TYPE_MASK 3
/* ... and of rope_kv: heads are normed first */
#define ROPE_NORMS (1 << 20)
/* ... and those of v, without weights */
#define ROPE_V_NORM (1 << 21)
/* ... of attn_prefill and attn_decode: softcap is not 0 */
#define ATTN_SOFTCAP (1 << 20)
/* ... of attn_prefill: more than 2 * ATTN_PART positions can be seen */
#define ATTN_LONG (1 << 21)
/* ... of attn_decode, above these bits: query heads at a time, 1 or an even number up to 8 */
#define ATTN_QUERIES_SHIFT 22

/* constant_id 1 of sample: no more than SAMPLE_SMALL_VOCAB tokens, so that 8 lanes for all of them stay below the
 * turns of loops that lavapipe allows in the longest way through (tests/test_vk_sample.c) */
#define SAMPLE_SMALL       1
#define SAMPLE_SMALL_VOCAB 32768
/* ... and: some sequence may want its best tokens */
#define SAMPLE_TOPS 2

/* ---- the step ---- */

struct step_row {
	u32 token, pos, seq;
	u32 flags; /* reserved, 0 */
};

/* Rows of a step that moves what the KV cache holds (kv_copy, kv_shift): as large as a step_row.  Equal
 * blocks: there is nothing to copy. */
struct copy_row {
	u32 from, to;               /* blocks of layers without a window ... */
	u32 from_window, to_window; /* ... and of those with one, or with a state */
};

struct shift_row {
	u32 pos; /* the position that is filled ... */
	u32 distance; /* ... from this many positions behind it */
	u32 seq;
	u32 reserved;
};

/* A step is a list of rows.  In a buffer: one step_header, then n step_rows. */
struct step_header {
	u32 n_rows;
	u32 n_kv; /* largest pos + 1 of the rows: positions that attention looks at */
	u32 done; /* nothing is left to do: every dispatch size is 0 */
	u32 reserved;
};

/* Rules for the size of a dispatch, from the step's header. */
#define SIZE_ROWS 0 /* groups_x, groups_y, ceil(n_rows * factor / divisor) + extra */
#define SIZE_KV   1 /* groups_x, slices of divisor positions that hold the window, n_rows */
#define SIZE_ONE  2 /* groups_x, groups_y, 1 */

/* An entry of the indirect table: x, y, z are a VkDispatchIndirectCommand. */
struct dispatch_size {
	u32 x, y, z;
	u32 rule, groups_x, groups_y, divisor;
	u32 factor; /* SIZE_ROWS: rows of activations per row of the step (experts); at least 1 */
	u32 extra;  /* SIZE_ROWS: added to z */
	u32 window; /* SIZE_KV: positions that attention looks back; 0: all */
	u32 reserved[2];
};

/* ---- a sequence: sampling parameters, stop rules, progress ---- */

struct sequence {
	u32 greedy;          /* take the largest logit; the other parameters are ignored */
	f32 inv_temperature; /* 1 / temperature: of the draw and of log-probabilities */
	f32 inv_cut_temperature; /* the same for what top_p and min_p look at: 1 where temperature is
	                            the last step, else inv_temperature */
	u32 top_k;           /* 0: off */
	u32 top_p;           /* share of the mass to keep, times 2^32, rounded; 0: off */
	u32 use_min_p;
	f32 log_min_p;       /* ln(min_p): a token stays when scaled logit >= maximum + log_min_p */
	f32 repeat_penalty;  /* 1: off; logits <= 0 are multiplied by it ... */
	f32 inv_repeat_penalty; /* ... and positive ones by this, 1 / repeat_penalty */
	f32 presence_penalty, frequency_penalty;
	u32 repeat_last_n;   /* tokens in the penalty window; 0: no penalties */
	u32 seed_lo, seed_hi;
	u32 draw_offset;     /* added to the position where random numbers are counted from */
	u32 n_ctx;           /* positions that the sequence may fill */
	u32 n_bias;          /* added to logits after the penalties; -infinity forbids */
	u32 bias_token[MAX_BIAS]; /* different ones */
	f32 bias_value[MAX_BIAS];
	u32 use_mask;        /* tokens whose bit in the history's mask is 0 are forbidden */
	u32 n_top;           /* best tokens to list beside the drawn one, at most sample_args.n_top */
	u32 n_forbidden;     /* tokens that may not be drawn ... */
	u32 forbidden[MAX_STOPS];
	u32 n_forbid_left;   /* ... until so many were; ~0: never */
	u32 n_stop;
	u32 stop[MAX_STOPS];
	u32 n_left;          /* tokens it may still generate */
	u32 n_sampled;       /* entries appended to the ring so far */
	u32 done;
	u32 error;           /* 1: the logits held a NaN */
	f32 beam_score;      /* of its tokens so far: see beam_select_args */
	atomic_u32 cancel;   /* set by the host at any time, by any of its threads */
};

struct ring_entry {
	u32 token;
	f32 log_prob; /* of the token among all tokens, after penalties and temperature */
	u32 step;     /* 1 for the first entry ever appended, then counting up */
	u32 error;
};

struct sample_result {
	u32 token;
	f32 log_prob;
	u32 error; /* 1: a logit is NaN; token is 0 then and means nothing */
	u32 reserved;
};

/* One of the best tokens of a step, by probability: largest first, ties by id. */
struct top_token {
	u32 token;
	f32 log_prob; /* as in ring_entry */
};

/* A way to go on from a step of beam search. */
struct beam_candidate {
	u32 row, token; /* the row of the step that it continues, and with what */
	f32 score;      /* beam_score of the row's sequence + log-probability of the token */
	u32 reserved;
};

/* What beam_select leaves, in a buffer: this, then beam_candidate[n], best first. */
struct beam_choice {
	u32 n;
	u32 error; /* 1: a logit of one of the rows is NaN */
	u32 reserved[2];
};

/* The history of a sequence, in a buffer: token[n_ctx] by position (prompt and generated), then
 * count[n_vocab]: how often each token stands in the penalty window, then mask[MASK_WORDS(n_vocab)]:
 * bit i % 32 of word i / 32 for token i. */
#define MASK_WORDS(n_vocab)            (((n_vocab) + 31) / 32)
#define HISTORY_WORDS(n_ctx, n_vocab)  ((n_ctx) + (n_vocab) + MASK_WORDS(n_vocab))

/* ---- arguments ---- */

/* x[row] = scale * (dequantised row `token` of the embedding) (+ residual[row])
 * buffers: x, weights, step, residual
 * A chunk holds rows first_row .. first_row + n_weight_rows - 1; other tokens are left alone. */
struct embed_args {
	u32 n_embd, stride; /* floats of a row of x, and from row to row */
	u32 first_row, n_weight_rows;
	u32 row_bytes; /* of a row of weights */
	u32 by_pos;    /* the row is that of the position, not of the token (learned positions) */
	u32 has_residual, stride_residual;
	f32 scale;
};

/* rmsnorm:   out = x / sqrt(mean(x^2) + eps) * weight                     (Zhang & Sennrich 2019)
 * layernorm: out = (x - mean(x)) / sqrt(variance(x) + eps) * weight       (Ba et al. 2016)
 * both (+ bias) (+ residual), for each segment of n columns of a row: n_outputs segments side by side
 * (heads), one where the whole row is normed.  is_gated: times silu(residual) instead of plus residual.
 * All of it is multiplied by scale.
 * buffers: out, x, weight (f32[n]), bias (f32[n]), residual (rows like out) */
struct norm_args {
	u32 n, n_segments;
	u32 stride_out, stride_x, stride_residual;
	u32 has_bias, has_residual, is_gated;
	f32 eps, scale;
};

/* out[row][o] = f(scale * (sum_i weights[o][i] * x[row][i] + bias[o]) + residual[row][o])
 * f(y) = softcap * tanh(y / softcap), or y where softcap is 0.  Bias and residual are optional.
 * buffers: out, weights [n_out][n_in], x, bias (f32[n_out]), residual
 * matvec: rows of the step per workgroup as COLUMNS_SHIFT says, each summed as it would be alone;
 * matmul: rows/group rows.
 * matvec_q8, matmul_q8: x is in 8 bits, stride_x in words; the products of 16 are exact.
 * A gated product (GATED_SHIFT) has weights [2 * n_out][n_in], rows of the gate, then as many of up, and
 * out[row][o] = activation(gate x) * (up x); no bias, no residual, scale 1. */
struct matmul_args {
	u32 n_out, n_in;
	u32 row_bytes; /* of a row of weights */
	u32 n_rows;    /* rows that out and x have room for */
	u32 stride_out, stride_x, stride_residual;
	u32 has_bias, has_residual;
	f32 scale, softcap;
};

/* Rows of x in 8 bits, for matvec_q8 and matmul_q8: of each 32 elements Q8_WORDS words.  As a unit of
 * KV_Q8_0: the scale d = max |x| / 127 as f32, q = x / d in bytes, rounded to nearest even; then the sums of the
 * first 16 q and of the last as f32, and a 0.  A NaN or an infinity in x makes d a NaN or infinite.
 * buffers: out, x; n_outputs: n / 32 */
struct quantize_args {
	u32 n; /* of a row, a multiple of 32 */
	u32 stride_out, stride_x; /* words and floats from row to row */
};

/* Rotates q and k (RoFormer, Su et al. 2021) and stores k and v at the row's position.
 * With ROPE_NORMS each head of q and k is first divided by sqrt(mean(x^2) + eps) and multiplied by its weights;
 * with ROPE_V_NORM each of v is divided.
 * buffers: q_out [row][n_head * head_dim], k cache, v cache, qkv, rope table, step, block table, norms
 * (f32 [2][head_dim]: of q, of k)
 * rope table: f32 [pos][n_rot / 2][2], cosine and sine with every scaling in them; not read where
 * n_rot is 0.  q is then multiplied by 1 + q_scale * ln(1 + floor(pos / q_scale_ctx)) (0: not).
 * n_outputs: n_head + n_head_kv; head h < n_head is a query head, the others are KV heads.  n_head_kv 0: there are
 * queries alone, and nothing is stored. */
struct rope_kv_args {
	u32 n_head, n_head_kv, head_dim, n_rot;
	u32 neox;           /* pairs (i, i + n_rot/2); otherwise (2i, 2i + 1) */
	u32 stride_q, stride_qkv;
	u32 q_head;             /* floats from a head of q to the next in qkv: their gates lie between */
	u32 k_offset, v_offset; /* of k and v in a row of qkv, in floats; q is at 0 */
	u32 n_blocks;       /* entries of a sequence in the block table */
	u32 q_scale_ctx;
	f32 q_scale;
	f32 eps;
};

/* Attention (Vaswani et al. 2017) with grouped query heads (Ainslie et al. 2023), causal by
 * position, online softmax (Milakov & Gimelshein 2018).  Scores: scale * q . k, then softcap * tanh(
 * score / softcap) where softcap is not 0.  A window of w: position p sees p - w + 1 .. p; keys before
 * are not read.  Sinks (Xiao et al. 2023, as in gpt-oss): a score per head that takes its share of the
 * softmax and has no value.
 * attn_decode: partial, q, k cache, v cache, step, block table; grid: KV head, slice, row.  Slice y is
 *     number y of those that the row's window touches: it covers positions
 *     (first_slice + y) * ATTN_SLICE .., first_slice = (first position seen) / ATTN_SLICE.
 *     partial[row][head][y]: maximum, sum, then head_dim weighted values (2 + head_dim floats)
 * attn_reduce: out, partial, step, sinks (f32[n_head]); grid: head, -, row
 * attn_prefill: out, q, k cache, v cache, step, block table, sinks; grid: head, -, tile of rows that
 *     belong to one sequence. */
struct attn_args {
	u32 n_head, n_head_kv, head_dim;
	u32 stride_q, stride_out;
	u32 n_slices; /* that partial has room for */
	u32 n_blocks;
	u32 window;   /* 0: none */
	u32 has_sinks;
	f32 scale, softcap;
};

/* The first position that a row at `pos` sees. */
#define WINDOW_START(pos, window) ((window) == 0 || (pos) < (window) ? 0 : (pos) + 1 - (window))

/* Copies whole blocks of a layer's cache: each row of the step is a copy_row.  No row's source is
 * another's destination, and destinations differ.
 * buffers: k cache, v cache, step; grid: words of a block, -, row */
struct kv_copy_args {
	u32 k_words, v_words; /* of a block */
	u32 has_window;       /* the layer's blocks are those of layers with a window */
};

/* Moves positions of a layer's cache towards the start and turns their keys back by the distance moved:
 * k[pos] = R(-distance) k[pos + distance], v[pos] = v[pos + distance]; each row of the step is a shift_row.
 * Positions that are read are not written.  rope table as in rope_kv; inv_magnitude is 1 / its length.
 * buffers: k cache, v cache, the same k cache and v cache to read, rope table, step, block table; grid: KV
 * head, -, row */
struct kv_shift_args {
	u32 n_head_kv, head_dim, n_rot;
	u32 neox;
	u32 n_blocks;
	f32 inv_magnitude;
};

/* ---- recurrent layers ---- */

/* The state of a recurrent layer is kept in blocks of STATE_BLOCK positions, reached through a table
 * u32 [n_seq][n_blocks] that says STATE_NONE where a block is not kept.  A block holds what it takes to go on
 * from any position in it: the state before its first one, and what each of its positions adds.  Going back,
 * forking and keeping a prefix are then edits of the table, as with the KV cache.  The start of block 0 is zero
 * and is not read; nor is what a block has for positions that were not computed.
 *
 * Rows of a sequence stand together in a step, at consecutive positions; kept are, of each sequence, the block of
 * its first row, that of the position behind its last (which has an entry in the table too), and in decode all
 * between.  In prefill all rows are of one sequence. */

#define CONV_NONE 0xFFFFFFFFu /* the offset of a gate that is not there */

/* A causal convolution of each channel with taps of its own, the last of them for the row's position:
 * y = sum_i weights[channel][i] * in(position - n_taps + 1 + i), in = x * gate_in, 0 before the first position;
 * out = f(y) * gate_out, f: silu or none; x and the gates, which are optional, are parts of a row.
 * A block, in floats: [n_taps - 1][n_channels], `in` at the positions before it, oldest first; then
 * [STATE_BLOCK][n_channels], at its own.
 * buffers: out, state, x, weights (f32 [n_channels][n_taps]), step, table.  Channels and offsets are multiples of
 * 4; constant_id 1: n_taps. */
struct conv_args {
	u32 n_channels, n_taps;
	u32 stride_out, stride_x;
	u32 x, gate_in, gate_out; /* offsets in a row of x; CONV_NONE: no such gate */
	u32 silu;
	u32 n_blocks; /* entries of a sequence in the table */
};

#define CONV_WORDS(n_channels, n_taps) ((STATE_BLOCK + (n_taps) - 1) * (n_channels))

/* The gated delta rule (Yang et al. 2024, arXiv:2412.06464).  A row has q and k [n_group][dk], v [n_head][dv],
 * one behind the other; head h takes q and k of group h % n_group.  q and k are divided by max(length, eps), q also by sqrt(dk).
 * beta = 1 / (1 + exp(-gates[beta + h])), g = a[h] * ln(1 + exp(gates[alpha + h] + dt[h])):
 *     S <- exp(g) S;  u = beta (v - S^T k);  S <- S + k u^T;  out = S^T q           S: [dk][dv]
 * With the state S before a block, and G_t the sum of g over the block's positions up to t:
 *     u_t = beta_t (v_t - exp(G_t) S^T k_t - sum_{j < t} exp(G_t - G_j) (k_j . k_t) u_j)
 *     out_t = exp(G_t) S^T q_t + sum_{j <= t} exp(G_t - G_j) (k_j . q_t) u_j
 * so that S is read once for all rows in a block, and written once, for the next:
 *     exp(G_t) S + sum_j exp(G_t - G_j) k_j u_j^T,  t the last of the block
 * A block, in floats: S [n_head][dk][dv]; then for each position k [n_group][dk], divided; u [n_head][dv]; G [n_head].
 * In prefill, S of blocks that are not kept passes through where the last kept one will be.
 * buffers: out [n_head][dv], state, qkv, gates, dt_a (f32: dt [n_head], a [n_head]), step, table.  dk and dv are
 * multiples of 4.  n_outputs: n_head times DELTA_SLICES; constant_id 1: dk. */
struct delta_args {
	u32 n_group, n_head, dk, dv;
	u32 stride_out, stride_qkv, stride_gates;
	u32 alpha, beta; /* offsets in a row of gates */
	u32 n_blocks;    /* entries of a sequence in the table */
	f32 eps;
};

#define DELTA_SLICE 32 /* columns of S that a workgroup takes */
#define DELTA_SLICES(dv) (((dv) + DELTA_SLICE - 1) / DELTA_SLICE)

/* Where the parts of a block begin, and its size; a: a struct delta_args. */
#define DELTA_K(a)     ((a).n_head * (a).dk * (a).dv)
#define DELTA_U(a)     (DELTA_K(a) + STATE_BLOCK * (a).n_group * (a).dk)
#define DELTA_G(a)     (DELTA_U(a) + STATE_BLOCK * (a).n_head * (a).dv)
#define DELTA_WORDS(a) (DELTA_G(a) + STATE_BLOCK * (a).n_head)

#define ACTIVATION_SILU   0 /* x / (1 + exp(-x)) */
#define ACTIVATION_GELU   1 /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel) */
#define ACTIVATION_SIGMOID 3 /* 1 / (1 + exp(-x)); of glu alone */
#define ACTIVATION_SWIGLU 2 /* gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7):
                               g / (1 + exp(-1.702 g)) * (u + 1) */

/* constant_id 1 of glu: its activation, whether there is a gate, whether all of glu_args are multiples of 4 */
#define GLU_ACTIVATION 3
#define GLU_GATED      4
#define GLU_QUADS      8

/* out = activation(gate) * up (GLU variants, Shazeer 2020); without a gate: activation(up).  The gate of column i
 * is at gate_first + i / segment * gate_segment + i % segment.
 * buffers: out, gate, up */
struct glu_args {
	u32 n, stride, stride_gate, stride_up;
	u32 segment, gate_segment; /* columns; equal where the gates lie one behind the other */
	u32 gate_first, up_first; /* where they begin in their rows */
};

/* ---- experts ---- */

/* Mixture of experts (Shazeer et al. 2017; Fedus et al. 2021): a row of the step goes to n_used of
 * n_expert experts.  Slot i of a row is number row * n_used + i of the step; activations of experts
 * have a row per slot. */
struct expert_route {
	u32 expert;
	f32 weight;
};

/* Slots of one expert that are multiplied together.  In a buffer: expert_tile[n_tiles], n 0 where a
 * tile is not used, then u32 slot[max_rows * n_used], where `first` counts from. */
struct expert_tile {
	u32 expert, first, n;
};

/* Tiles that n_slots slots take at most, wherever they go. */
#define EXPERT_TILES(n_slots, n_expert) (((n_slots) + EXPERT_TILE - 1) / EXPERT_TILE + (n_expert))

/* The n_used largest of a row's logits, largest first, ties by id; NaN counts as the largest of all.
 * weight = exp(logit) / sum of exp(logit), over the chosen (normalise) or over all experts, times the
 * expert's scale, which is optional.
 * buffers: routes (expert_route [row][n_used]), logits, scales (f32[n_expert]) */
struct route_args {
	u32 n_expert, n_used, stride;
	u32 normalise, has_scales;
};

/* The tiles of all slots of the step: experts and the slots of an expert in ascending order.
 * buffers: tiles, routes, step */
struct tiles_args {
	u32 n_used;
	u32 n_tiles; /* that the buffer has room for */
};

/* out[slot] = weights[expert of the slot] x[slot, or slot / n_used] (+ bias[expert])
 * A chunk holds n_experts experts from first_expert on; slots of others are left alone.
 * buffers: out, weights [expert][n_out][n_in], x, bias (f32 [n_expert][n_out]), and
 *     expert_matvec: routes; grid: outputs, -, slot
 *     expert_matmul: tiles; grid: outputs, -, tile */
struct expert_args {
	u32 n_out, n_in;
	u32 row_bytes; /* of a row of weights */
	u32 first_expert, n_experts;
	u32 n_used;
	u32 x_per_slot;
	u32 n_tiles; /* expert_matmul: tiles before the list of slots */
	u32 stride_out, stride_x;
	u32 has_bias;
};

/* out[row] = scale * (sum_i weight_i * down[slot i] + gate * shared[row]) + residual[row]
 * gate = 1 / (1 + exp(-gate[row][0])), or 1.  Shared expert (Dai et al. 2024), its gate and the residual
 * are optional.  buffers: out, down (a row per slot), routes, residual, shared, gate */
struct expert_sum_args {
	u32 n, n_used;
	u32 stride_out, stride_down, stride_residual, stride_shared, stride_gate;
	u32 has_residual, has_shared, has_gate;
	f32 scale;
};

/* One token per row from its logits.
 * buffers: results (sample_result[row]), scratch f32[row][stride], tops (top_token [sequence][
 *     RING_ENTRIES][n_top]: where the ring's entry of this step will be), logits, sequences, step, history */
struct sample_args {
	u32 n_vocab, stride;
	u32 history_stride; /* words of a sequence's history */
	u32 n_ctx;          /* of them, tokens by position; counts follow */
	u32 n_top;          /* that tops has room for; 0: tops is not written */
};

#define MAX_BEAM_ROWS 32 /* of a step whose candidates beam_select merges */

/* Merges what sample listed for each row of the step into one list by score, largest first; of equal ones
 * the lower row comes first, then the lower token.  A token that stops (sequence.stop) is left out while
 * the sequence's n_forbid_left is not 0.
 * buffers: choice (beam_choice), results, tops, sequences, step */
struct beam_select_args {
	u32 n_top; /* of tops */
};

/* Appends each row's token to the ring and history, tests the stop rules, advances the step, and
 * computes the dispatch sizes of the next one (all 0 when every row is done).
 * buffers: step, sizes (dispatch_size[n_sizes]), sequences, ring, history, results */
struct control_args {
	u32 n_sizes;
	u32 history_stride, n_ctx;
};

/* ---- yardsticks ---- */

/* out[group] = sum of the 32-bit words of data[group * outputs/group ..], in uvec4s, modulo 2^32.
 * buffers: out (u32), data (16 bytes each) */
struct read_rate_args {
	u32 n; /* uvec4s */
};

#define FMA_CHAINS 8
#define FMA_STEPS  16 /* of each chain in a turn */

/* out[i] = sum over the chains c of x_c, which starts as i % 16 + c and becomes x_c * factor + addend
 * FMA_STEPS * n_turns times.  With 0.5 and 1 no step is rounded before it stays where it is.
 * buffers: out */
struct fma_rate_args {
	u32 n, n_turns;
	f32 factor, addend;
};

#endif
