/* The case list and what runs a case: see check.h. */
#include "check_side.h"
#include "sampler.h"

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

/* ---- the cases --------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{KERNEL_embed, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_embed, 7, .n_out = 31, .n_in = 31},
	{KERNEL_embed, 5, .n_out = 150, .n_in = 172, .chunk = 64, .flags = SMALL},
	{KERNEL_embed, 33, .n_out = 257, .n_in = 2081},
	{KERNEL_embed, 7, .n_out = 9, .n_in = 96, .flags = SCALE},
	{KERNEL_embed, 5, .n_out = 40, .n_in = 129, .pos = 30, .chunk = 16,
		.flags = SMALL | BY_POS | RESIDUAL | SCALE | ONLY_F32},

	{KERNEL_rmsnorm, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_rmsnorm, 3, .n_out = 63},
	{KERNEL_rmsnorm, 2, .n_out = 127, .flags = SMALL},
	{KERNEL_rmsnorm, 2, .n_out = 128},
	{KERNEL_rmsnorm, 2, .n_out = 129, .flags = SMALL},
	{KERNEL_rmsnorm, 70, .n_out = 1031},
	{KERNEL_rmsnorm, 3, .n_out = 3 * 80, .n_segments = 3},
	{KERNEL_rmsnorm, 5, .n_out = 7 * 33, .n_segments = 7, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_rmsnorm, 2, .n_out = 16 * 256, .n_segments = 16, .flags = RESIDUAL},

	{KERNEL_layernorm, 1, .n_out = 1, .flags = SMALL | BIAS},
	{KERNEL_layernorm, 3, .n_out = 63, .flags = SMALL},
	{KERNEL_layernorm, 2, .n_out = 129, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_layernorm, 70, .n_out = 1031, .flags = BIAS},
	{KERNEL_layernorm, 4, .n_out = 5 * 64, .n_segments = 5, .flags = RESIDUAL},

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
	{KERNEL_matvec, 3, .n_out = 35, .n_in = 96,
		.flags = SMALL | BIAS | RESIDUAL | SCALE | SOFTCAP | ONLY_F32},
	{KERNEL_matvec, 2, .n_out = 70, .n_in = 64, .flags = SOFTCAP | ONLY_F32},

	{KERNEL_matvec, 1, .n_out = 5, .n_in = 96, .activation = ACTIVATION_SILU,
		.flags = SMALL | GATED},
	{KERNEL_matvec, 9, .n_out = 35, .n_in = 160, .activation = ACTIVATION_GELU, .flags = GATED},
	{KERNEL_matvec, 3, .n_out = 1, .n_in = 33, .activation = ACTIVATION_SWIGLU,
		.flags = SMALL | GATED | ONLY_F32},

	{KERNEL_matmul, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_matmul, 2, .n_out = 3, .n_in = 31, .flags = BIAS},
	{KERNEL_matmul, 7, .n_out = 31, .n_in = 33, .flags = SMALL | RESIDUAL},
	{KERNEL_matmul, 8, .n_out = 32, .n_in = 64},
	{KERNEL_matmul, 9, .n_out = 33, .n_in = 172, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_matmul, 3, .n_out = 16, .n_in = 256, .room = 64},
	{KERNEL_matmul, 31, .n_out = 127, .n_in = 257, .flags = BIAS},
	{KERNEL_matmul, 32, .n_out = 128, .n_in = 256},
	{KERNEL_matmul, 33, .n_out = 129, .n_in = 256, .room = 40, .flags = RESIDUAL},
	{KERNEL_matmul, 45, .n_out = 64, .n_in = 128}, /* OB-01 of public reports, as the next */
	{KERNEL_matmul, 45, .n_out = 128, .n_in = 64},
	{KERNEL_matmul, 5, .n_out = 150, .n_in = 96, .chunk = 64, .flags = SMALL | BIAS | RESIDUAL},
	{KERNEL_matmul, 65, .n_out = 512, .n_in = 256},
	{KERNEL_matmul, 9, .n_out = 35, .n_in = 96,
		.flags = SMALL | BIAS | RESIDUAL | SCALE | SOFTCAP | ONLY_F32},
	{KERNEL_matmul, 17, .n_out = 70, .n_in = 64, .flags = SCALE | RESIDUAL | ONLY_F32},
	{KERNEL_matmul, 33, .n_out = 70, .n_in = 560, .flags = BIAS | RESIDUAL | SCALE | SOFTCAP},

	{KERNEL_matmul_sum, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_matmul_sum, 3, .n_out = 257, .n_in = 160, .flags = SMALL | BIAS},
	{KERNEL_matmul_sum, 33, .n_out = 129, .n_in = 352, .room = 40, .flags = RESIDUAL},
	{KERNEL_matmul_sum, 9, .n_out = 600, .n_in = 513,
		.flags = SMALL | BIAS | RESIDUAL | SCALE | SOFTCAP},

	{KERNEL_rope_kv, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .n_rot = 2, .k = KV_F32,
		.v = KV_F32, .flags = SMALL},
	{KERNEL_rope_kv, 5, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .n_rot = 32, .pos = 29,
		.k = KV_F16, .v = KV_F16, .flags = SMALL | NEOX},
	{KERNEL_rope_kv, 3, .n_head = 8, .n_head_kv = 1, .head_dim = 64, .n_rot = 64, .pos = 1000,
		.k = KV_F16, .v = KV_F32},
	{KERNEL_rope_kv, 33, .n_head = 3, .n_head_kv = 3, .head_dim = 80, .n_rot = 20, .pos = 31,
		.k = KV_F32, .v = KV_F16, .flags = NEOX},
	{KERNEL_rope_kv, 2, .n_head = 2, .n_head_kv = 1, .head_dim = 96, .n_rot = 0, .pos = 32,
		.k = KV_F32, .v = KV_F32},
	{KERNEL_rope_kv, 7, .n_head = 7, .n_head_kv = 1, .head_dim = 128, .n_rot = 128, .pos = 125,
		.k = KV_F32, .v = KV_F32, .flags = NEOX},
	{KERNEL_rope_kv, 2, .n_head = 16, .n_head_kv = 2, .head_dim = 256, .n_rot = 64, .pos = 63,
		.k = KV_F16, .v = KV_F16, .flags = SMALL},
	{KERNEL_rope_kv, 4, .n_head = 2, .n_head_kv = 1, .head_dim = 32, .n_rot = 32, .pos = 30,
		.k = KV_Q8_0, .v = KV_Q4_0, .flags = SMALL | NEOX},
	{KERNEL_rope_kv, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 64, .n_rot = 16, .pos = 127,
		.k = KV_Q4_0, .v = KV_Q8_0, .flags = SCALE},
	{KERNEL_rope_kv, 2, .n_head = 2, .n_head_kv = 2, .head_dim = 96, .n_rot = 0, .pos = 5,
		.k = KV_Q8_0, .v = KV_F16, .flags = SMALL | SCALE},
	{KERNEL_rope_kv, 5, .n_head = 3, .n_head_kv = 1, .head_dim = 128, .n_rot = 128, .pos = 31,
		.k = KV_F16, .v = KV_Q8_0},
	{KERNEL_rope_kv, 9, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .n_rot = 256, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q4_0, .flags = NEOX},
	{KERNEL_rope_kv, 2, .n_head = 1, .n_head_kv = 1, .head_dim = 160, .n_rot = 160, .pos = 63,
		.k = KV_F32, .v = KV_Q4_0},
	{KERNEL_rope_kv, 6, .n_head = 5, .n_head_kv = 1, .head_dim = 48, .n_rot = 48, .pos = 4000,
		.k = KV_F16, .v = KV_F32, .flags = SMALL | SCALE},
	{KERNEL_rope_kv, 3, .n_head = 3, .n_head_kv = 1, .head_dim = 80, .n_rot = 40, .pos = 31,
		.k = KV_F32, .v = KV_F16, .flags = SMALL | NEOX | HEAD_NORMS},
	{KERNEL_rope_kv, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 256, .n_rot = 0, .pos = 9,
		.k = KV_F16, .v = KV_F16, .flags = HEAD_NORMS},
	{KERNEL_rope_kv, 5, .n_head = 3, .n_head_kv = 1, .head_dim = 40, .n_rot = 10, .pos = 30,
		.k = KV_F32, .v = KV_F16, .flags = SMALL | NEOX | HEAD_NORMS | GATED},
	{KERNEL_rope_kv, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .n_rot = 32, .pos = 30,
		.k = KV_F32, .v = KV_F32, .flags = SMALL | NEOX | HEAD_NORMS | V_NORM},
	{KERNEL_rope_kv, 2, .n_head = 2, .n_head_kv = 1, .head_dim = 64, .n_rot = 16, .pos = 63,
		.k = KV_F16, .v = KV_Q8_0, .flags = HEAD_NORMS | V_NORM},
	{KERNEL_rope_kv, 3, .n_head = 3, .n_head_kv = 1, .head_dim = 48, .n_rot = 48, .pos = 7,
		.k = KV_F16, .v = KV_F16, .flags = SMALL | NEOX | HEAD_NORMS | Q_ONLY},
	{KERNEL_rope_kv, 3, .n_head = 2, .n_head_kv = 1, .head_dim = 512, .n_rot = 512, .pos = 30,
		.k = KV_F16, .v = KV_Q8_0, .flags = SMALL | NEOX | HEAD_NORMS},

	{KERNEL_attn_decode, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .k = KV_F32,
		.v = KV_F32, .flags = SMALL},
	{KERNEL_attn_decode, 1, .n_head = 2, .n_head_kv = 2, .head_dim = 32, .pos = 30, .k = KV_F16,
		.v = KV_F16},
	{KERNEL_attn_decode, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 31, .k = KV_F16,
		.v = KV_F32, .flags = SMALL},
	{KERNEL_attn_decode, 2, .n_head = 3, .n_head_kv = 1, .head_dim = 48, .pos = 32, .k = KV_F32,
		.v = KV_F16},
	{KERNEL_attn_decode, 1, .n_head = 4, .n_head_kv = 1, .head_dim = 64, .pos = 95, .k = KV_F32,
		.v = KV_F32},
	{KERNEL_attn_decode, 4, .n_head = 5, .n_head_kv = 1, .head_dim = 64, .pos = 126,
		.k = KV_F16, .v = KV_F16, .flags = SMALL},
	{KERNEL_attn_decode, 1, .n_head = 6, .n_head_kv = 2, .head_dim = 80, .pos = 127,
		.k = KV_F32, .v = KV_F32},
	{KERNEL_attn_decode, 2, .n_head = 7, .n_head_kv = 1, .head_dim = 96, .pos = 128,
		.k = KV_F32, .v = KV_F32, .flags = SMALL},
	{KERNEL_attn_decode, 3, .n_head = 8, .n_head_kv = 1, .head_dim = 128, .pos = 129,
		.k = KV_F32, .v = KV_F16},
	{KERNEL_attn_decode, 1, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_F16, .v = KV_F16},
	{KERNEL_attn_decode, 8, .n_head = 16, .n_head_kv = 2, .head_dim = 256, .pos = 255,
		.k = KV_F32, .v = KV_F32},
	{KERNEL_attn_decode, 2, .n_head = 32, .n_head_kv = 1, .head_dim = 64, .pos = 1030,
		.k = KV_F16, .v = KV_F16},
	{KERNEL_attn_decode, 1, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 0, .k = KV_F16,
		.v = KV_F16, .window = 1},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 127,
		.k = KV_F16, .v = KV_F16, .window = 1},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 128,
		.k = KV_F16, .v = KV_F16, .window = 2, .flags = SMALL},
	{KERNEL_attn_decode, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 130,
		.k = KV_F16, .v = KV_F16, .window = 3},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 255,
		.k = KV_F16, .v = KV_F16, .window = 128, .flags = SMALL},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 255,
		.k = KV_F16, .v = KV_F16, .window = 129},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 256,
		.k = KV_F16, .v = KV_F16, .window = 129},
	{KERNEL_attn_decode, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 383,
		.k = KV_F16, .v = KV_F16, .window = 130},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 300,
		.k = KV_F16, .v = KV_F16, .window = 1000},
	{KERNEL_attn_decode, 4, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 1030,
		.k = KV_F16, .v = KV_F16, .window = 257, .flags = SMALL},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 1023,
		.k = KV_F16, .v = KV_F16, .window = 256},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 1, .head_dim = 64, .pos = 140,
		.k = KV_F32, .v = KV_F32, .flags = SMALL | SOFTCAP},
	{KERNEL_attn_decode, 3, .n_head = 6, .n_head_kv = 2, .head_dim = 64, .pos = 200,
		.k = KV_F16, .v = KV_F32, .window = 90, .flags = SOFTCAP},
	{KERNEL_attn_decode, 2, .n_head = 2, .n_head_kv = 1, .head_dim = 32, .pos = 140,
		.k = KV_Q8_0, .v = KV_Q4_0, .flags = SMALL},
	{KERNEL_attn_decode, 1, .n_head = 2, .n_head_kv = 1, .head_dim = 32, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q8_0},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 2, .head_dim = 64, .pos = 140,
		.k = KV_Q8_0, .v = KV_Q4_0},
	{KERNEL_attn_decode, 1, .n_head = 3, .n_head_kv = 1, .head_dim = 96, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q8_0},
	{KERNEL_attn_decode, 2, .n_head = 4, .n_head_kv = 1, .head_dim = 128, .pos = 140,
		.k = KV_Q8_0, .v = KV_Q4_0, .flags = SMALL},
	{KERNEL_attn_decode, 2, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 140,
		.k = KV_Q8_0, .v = KV_Q4_0},
	{KERNEL_attn_decode, 1, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q8_0},
	{KERNEL_attn_decode, 2, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_F16, .v = KV_Q4_0, .flags = SMALL},
	{KERNEL_attn_decode, 2, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_F16, .v = KV_Q8_0},
	{KERNEL_attn_decode, 2, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_Q8_0, .v = KV_F16},
	{KERNEL_attn_decode, 2, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_Q8_0, .v = KV_Q8_0, .window = 33, .flags = SOFTCAP},
	{KERNEL_attn_decode, 2, .n_head = 16, .n_head_kv = 2, .head_dim = 512, .pos = 200,
		.k = KV_F16, .v = KV_F16},
	{KERNEL_attn_decode, 1, .n_head = 3, .n_head_kv = 1, .head_dim = 288, .pos = 140,
		.k = KV_Q8_0, .v = KV_F32, .window = 90, .flags = SMALL},

	{KERNEL_attn_reduce, 2, .n_head = 4, .n_head_kv = 1, .head_dim = 512, .pos = 300},
	{KERNEL_attn_reduce, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .flags = SMALL},
	{KERNEL_attn_reduce, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 64, .pos = 127,
		.flags = SMALL},
	{KERNEL_attn_reduce, 2, .n_head = 7, .n_head_kv = 1, .head_dim = 80, .pos = 128},
	{KERNEL_attn_reduce, 8, .n_head = 8, .n_head_kv = 8, .head_dim = 256, .pos = 4000},
	{KERNEL_attn_reduce, 3, .n_head = 5, .n_head_kv = 1, .head_dim = 64, .pos = 127,
		.flags = SMALL | SINKS},
	{KERNEL_attn_reduce, 2, .n_head = 10, .n_head_kv = 1, .head_dim = 48, .pos = 600,
		.flags = SINKS},
	{KERNEL_attn_reduce, 4, .n_head = 4, .n_head_kv = 1, .head_dim = 32, .pos = 1000,
		.window = 129, .flags = SMALL},
	{KERNEL_attn_reduce, 3, .n_head = 5, .n_head_kv = 1, .head_dim = 80, .pos = 383,
		.window = 128, .flags = SINKS},
	{KERNEL_attn_reduce, 2, .n_head = 4, .n_head_kv = 1, .head_dim = 64, .pos = 5, .window = 3},

	{KERNEL_attn_prefill, 9, .n_head = 4, .n_head_kv = 2, .head_dim = 512, .pos = 150,
		.k = KV_F16, .v = KV_F16},
	{KERNEL_attn_prefill, 6, .n_head = 2, .n_head_kv = 1, .head_dim = 290, .pos = 129,
		.k = KV_F32, .v = KV_F16, .window = 40, .flags = SMALL | SINKS},
	{KERNEL_attn_prefill, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .k = KV_F32,
		.v = KV_F32, .flags = SMALL},
	{KERNEL_attn_prefill, 7, .n_head = 2, .n_head_kv = 2, .head_dim = 32, .k = KV_F16,
		.v = KV_F32, .flags = SMALL},
	{KERNEL_attn_prefill, 8, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 24,
		.k = KV_F16, .v = KV_F16},
	{KERNEL_attn_prefill, 9, .n_head = 3, .n_head_kv = 1, .head_dim = 48, .pos = 31,
		.k = KV_F32, .v = KV_F16, .flags = SMALL},
	{KERNEL_attn_prefill, 33, .n_head = 4, .n_head_kv = 1, .head_dim = 64, .room = 40,
		.k = KV_F32, .v = KV_F32},
	{KERNEL_attn_prefill, 10, .n_head = 5, .n_head_kv = 1, .head_dim = 80, .pos = 90,
		.k = KV_F32, .v = KV_F32},
	{KERNEL_attn_prefill, 3, .n_head = 7, .n_head_kv = 1, .head_dim = 96, .pos = 127,
		.k = KV_F16, .v = KV_F16, .flags = SMALL},
	{KERNEL_attn_prefill, 17, .n_head = 8, .n_head_kv = 1, .head_dim = 128, .pos = 120,
		.k = KV_F16, .v = KV_F32},
	{KERNEL_attn_prefill, 40, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .k = KV_F16,
		.v = KV_F16},
	{KERNEL_attn_prefill, 13, .n_head = 2, .n_head_kv = 1, .head_dim = 256, .pos = 300,
		.k = KV_F32, .v = KV_F32},
	{KERNEL_attn_prefill, 1, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 0, .k = KV_F16,
		.v = KV_F16, .window = 1},
	{KERNEL_attn_prefill, 9, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 0, .k = KV_F16,
		.v = KV_F16, .window = 1, .flags = SMALL},
	{KERNEL_attn_prefill, 9, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 25,
		.k = KV_F16, .v = KV_F16, .window = 2},
	{KERNEL_attn_prefill, 8, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 32,
		.k = KV_F16, .v = KV_F16, .window = 32, .flags = SMALL},
	{KERNEL_attn_prefill, 9, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 31,
		.k = KV_F16, .v = KV_F16, .window = 33},
	{KERNEL_attn_prefill, 17, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 60,
		.k = KV_F16, .v = KV_F16, .window = 31},
	{KERNEL_attn_prefill, 20, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 90,
		.k = KV_F16, .v = KV_F16, .window = 64, .flags = SMALL},
	{KERNEL_attn_prefill, 33, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 0,
		.k = KV_F16, .v = KV_F16, .window = 16},
	{KERNEL_attn_prefill, 10, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 300,
		.k = KV_F16, .v = KV_F16, .window = 1000},
	{KERNEL_attn_prefill, 40, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 100,
		.k = KV_F16, .v = KV_F16, .window = 8},
	{KERNEL_attn_prefill, 3, .n_head = 4, .n_head_kv = 2, .head_dim = 32, .pos = 127,
		.k = KV_F16, .v = KV_F16, .window = 96},
	{KERNEL_attn_prefill, 9, .n_head = 5, .n_head_kv = 1, .head_dim = 64, .pos = 60,
		.k = KV_F32, .v = KV_F32, .flags = SMALL | SOFTCAP | SINKS},
	{KERNEL_attn_prefill, 19, .n_head = 10, .n_head_kv = 2, .head_dim = 64, .pos = 100,
		.k = KV_F16, .v = KV_F32, .window = 40, .flags = SOFTCAP | SINKS},
	{KERNEL_attn_prefill, 12, .n_head = 10, .n_head_kv = 5, .head_dim = 48, .pos = 0,
		.k = KV_F32, .v = KV_F16, .flags = SINKS},
	{KERNEL_attn_prefill, 9, .n_head = 2, .n_head_kv = 1, .head_dim = 32, .pos = 30,
		.k = KV_Q8_0, .v = KV_Q4_0, .flags = SMALL},
	{KERNEL_attn_prefill, 5, .n_head = 2, .n_head_kv = 1, .head_dim = 32, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q8_0},
	{KERNEL_attn_prefill, 9, .n_head = 4, .n_head_kv = 2, .head_dim = 64, .pos = 30,
		.k = KV_Q8_0, .v = KV_Q4_0},
	{KERNEL_attn_prefill, 5, .n_head = 3, .n_head_kv = 1, .head_dim = 96, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q8_0},
	{KERNEL_attn_prefill, 9, .n_head = 4, .n_head_kv = 1, .head_dim = 128, .pos = 30,
		.k = KV_Q8_0, .v = KV_Q4_0, .flags = SMALL},
	{KERNEL_attn_prefill, 9, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 30,
		.k = KV_Q8_0, .v = KV_Q4_0},
	{KERNEL_attn_prefill, 5, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_Q4_0, .v = KV_Q8_0},
	{KERNEL_attn_prefill, 40, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 0,
		.k = KV_F16, .v = KV_Q4_0},
	{KERNEL_attn_prefill, 10, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_F16, .v = KV_Q8_0},
	{KERNEL_attn_prefill, 10, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_Q8_0, .v = KV_F16},
	{KERNEL_attn_prefill, 10, .n_head = 16, .n_head_kv = 4, .head_dim = 256, .pos = 39,
		.k = KV_Q8_0, .v = KV_Q8_0, .window = 33, .flags = SMALL | SOFTCAP | SINKS},

	/* beyond what lavapipe's loops can count */
	{KERNEL_attn_prefill, 3, .n_head = 2, .n_head_kv = 1, .head_dim = 64, .pos = 45000,
		.k = KV_F16, .v = KV_F16},

	{KERNEL_rmsnorm, 3, .n_out = 5 * 36, .n_segments = 5, .flags = SMALL | RESIDUAL | GATED},
	{KERNEL_rmsnorm, 2, .n_out = 33, .flags = RESIDUAL | GATED},
	{KERNEL_rmsnorm, 3, .n_out = 70, .flags = SMALL | RESIDUAL | SCALE},
	{KERNEL_rmsnorm, 2, .n_out = 256, .flags = SCALE},

	{KERNEL_conv, 1, .n_out = 4, .n_in = 2, .flags = SMALL},
	{KERNEL_conv, 33, .n_out = 96, .n_in = 4, .pos = 0},
	{KERNEL_conv, 7, .n_out = 260, .n_in = 3, .pos = 15, .room = 9, .flags = SMALL | GATED},
	{KERNEL_conv, 40, .n_out = 68, .n_in = 8, .pos = 35, .flags = SMALL | SPARSE},
	{KERNEL_conv, 5, .n_out = 12, .n_in = 4, .n_segments = 5, .pos = 0, .flags = SMALL},
	{KERNEL_conv, 32, .n_out = 64, .n_in = 4, .n_segments = 3, .pos = 15},
	{KERNEL_conv, 9, .n_out = 300, .n_in = 3, .n_segments = 4, .pos = 30,
		.flags = SMALL | GATED},

	{KERNEL_delta_decode, 1, .n_out = 4, .n_head = 1, .n_head_kv = 1, .head_dim = 4,
		.flags = SMALL},
	{KERNEL_delta_decode, 1, .n_out = 128, .n_head = 4, .n_head_kv = 2, .head_dim = 128,
		.pos = 15},
	{KERNEL_delta_decode, 5, .n_out = 36, .n_head = 4, .n_head_kv = 2, .head_dim = 32,
		.n_segments = 5, .pos = 12, .room = 8, .flags = SMALL},
	{KERNEL_delta_decode, 32, .n_out = 64, .n_head = 3, .n_head_kv = 1, .head_dim = 48,
		.pos = 31},
	{KERNEL_delta_decode, 20, .n_out = 20, .n_head = 2, .n_head_kv = 2, .head_dim = 128,
		.n_segments = 3, .pos = 0, .flags = SMALL},

	{KERNEL_delta_prefill, 1, .n_out = 4, .n_head = 1, .n_head_kv = 1, .head_dim = 4,
		.flags = SMALL},
	{KERNEL_delta_prefill, 33, .n_out = 32, .n_head = 4, .n_head_kv = 2, .head_dim = 32,
		.flags = SMALL},
	{KERNEL_delta_prefill, 7, .n_out = 40, .n_head = 3, .n_head_kv = 1, .head_dim = 28,
		.pos = 15, .room = 9},
	{KERNEL_delta_prefill, 16, .n_out = 128, .n_head = 2, .n_head_kv = 1, .head_dim = 64,
		.pos = 16},
	{KERNEL_delta_prefill, 50, .n_out = 12, .n_head = 4, .n_head_kv = 4, .head_dim = 20,
		.pos = 27, .flags = SMALL | SPARSE},
	{KERNEL_delta_prefill, 81, .n_out = 128, .n_head = 4, .n_head_kv = 2, .head_dim = 128,
		.pos = 31, .flags = SPARSE},

	{KERNEL_glu, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_glu, 2, .n_out = 255},
	{KERNEL_glu, 3, .n_out = 256, .flags = SMALL},
	{KERNEL_glu, 33, .n_out = 257},
	{KERNEL_glu, 1, .n_out = 5003},
	{KERNEL_glu, 3, .n_out = 129, .activation = ACTIVATION_GELU, .flags = SMALL},
	{KERNEL_glu, 3, .n_out = 129, .activation = ACTIVATION_SWIGLU, .flags = SMALL},
	{KERNEL_glu, 3, .n_out = 513, .activation = ACTIVATION_SILU, .flags = UNGATED},
	{KERNEL_glu, 3, .n_out = 513, .activation = ACTIVATION_GELU, .flags = SMALL | UNGATED},
	{KERNEL_glu, 3, .n_out = 70, .n_used = 4, .room = 5, .activation = ACTIVATION_SWIGLU},
	{KERNEL_glu, 2, .n_out = 257, .n_used = 8, .flags = SMALL},
	{KERNEL_glu, 3, .n_head = 3, .n_head_kv = 3, .head_dim = 30,
		.activation = ACTIVATION_SIGMOID, .flags = SMALL},
	{KERNEL_glu, 5, .n_head = 5, .n_head_kv = 5, .head_dim = 256,
		.activation = ACTIVATION_SIGMOID},
	{KERNEL_glu, 3, .n_out = 60, .activation = ACTIVATION_GELU, .flags = SMALL | INSIDE},
	{KERNEL_glu, 2, .n_out = 256, .n_used = 2, .flags = INSIDE},

	{KERNEL_moe_route, 1, .n_expert = 1, .n_used = 1, .flags = SMALL},
	{KERNEL_moe_route, 3, .n_expert = 4, .n_used = 2, .flags = SMALL | OVER_ALL},
	{KERNEL_moe_route, 7, .n_expert = 6, .n_used = 3, .room = 9},
	{KERNEL_moe_route, 33, .n_expert = 8, .n_used = 2, .flags = OVER_ALL},
	{KERNEL_moe_route, 2, .n_expert = 60, .n_used = 4},
	{KERNEL_moe_route, 5, .n_expert = 128, .n_used = 8, .flags = SMALL},
	{KERNEL_moe_route, 9, .n_expert = 129, .n_used = 1, .flags = OVER_ALL},
	{KERNEL_moe_route, 4, .n_expert = 512, .n_used = 32},
	{KERNEL_moe_route, 3, .n_expert = 6, .n_used = 3, .flags = SMALL | SCALE},
	{KERNEL_moe_route, 2, .n_expert = 200, .n_used = 8, .flags = SCALE | OVER_ALL},

	{KERNEL_moe_tiles, 1, .n_expert = 1, .n_used = 1, .flags = SMALL},
	{KERNEL_moe_tiles, 33, .n_expert = 1, .n_used = 1},
	{KERNEL_moe_tiles, 7, .n_expert = 4, .n_used = 3, .flags = SMALL},
	{KERNEL_moe_tiles, 9, .n_expert = 6, .n_used = 2, .room = 20, .flags = SMALL},
	{KERNEL_moe_tiles, 32, .n_expert = 60, .n_used = 4},
	{KERNEL_moe_tiles, 33, .n_expert = 128, .n_used = 8},
	{KERNEL_moe_tiles, 70, .n_expert = 512, .n_used = 32, .flags = SMALL},

	{KERNEL_expert_matvec, 1, 1, 1, .n_expert = 1, .n_used = 1, .flags = SMALL},
	{KERNEL_expert_matvec, 1, 33, 31, .n_expert = 4, .n_used = 2, .flags = SMALL | BIAS},
	{KERNEL_expert_matvec, 3, 31, 33, .n_expert = 6, .n_used = 3, .chunk = 2,
		.flags = X_PER_SLOT},
	{KERNEL_expert_matvec, 2, 64, 96, .n_expert = 8, .n_used = 2, .chunk = 3,
		.flags = SMALL | BIAS},
	{KERNEL_expert_matvec, 4, 5, 257, .n_expert = 60, .n_used = 3, .flags = X_PER_SLOT | BIAS},
	{KERNEL_expert_matvec, 1, 48, 64, .n_expert = 128, .n_used = 8},

	{KERNEL_expert_matmul, 1, 1, 1, .n_expert = 1, .n_used = 1, .flags = SMALL},
	{KERNEL_expert_matmul, 9, 33, 64, .n_expert = 1, .n_used = 1, .flags = SMALL},
	{KERNEL_expert_matmul, 7, 31, 33, .n_expert = 4, .n_used = 2, .flags = SMALL | BIAS},
	{KERNEL_expert_matmul, 33, 70, 31, .n_expert = 6, .n_used = 3, .chunk = 2,
		.flags = X_PER_SLOT},
	{KERNEL_expert_matmul, 17, 129, 96, .n_expert = 8, .n_used = 2, .chunk = 3, .room = 20,
		.flags = SMALL | BIAS},
	{KERNEL_expert_matmul, 32, 5, 257, .n_expert = 60, .n_used = 3},
	{KERNEL_expert_matmul, 33, 16, 64, .n_expert = 128, .n_used = 8,
		.flags = X_PER_SLOT | BIAS},

	{KERNEL_expert_sum, 1, .n_out = 1, .n_expert = 1, .n_used = 1, .flags = SMALL},
	{KERNEL_expert_sum, 2, .n_out = 255, .n_expert = 8, .n_used = 2, .flags = RESIDUAL},
	{KERNEL_expert_sum, 3, .n_out = 257, .n_expert = 60, .n_used = 3, .room = 5,
		.flags = SMALL | RESIDUAL | SCALE | SHARED},
	{KERNEL_expert_sum, 33, .n_out = 300, .n_expert = 128, .n_used = 8,
		.flags = RESIDUAL | SHARED | SHARED_GATE},
	{KERNEL_expert_sum, 5, .n_out = 64, .n_expert = 512, .n_used = 32,
		.flags = SMALL | SHARED | SHARED_GATE},

	{KERNEL_kv_copy, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .k = KV_F32, .v = KV_F32,
		.flags = SMALL},
	{KERNEL_kv_copy, 3, .n_head = 3, .n_head_kv = 3, .head_dim = 64, .k = KV_F16, .v = KV_Q8_0,
		.flags = SMALL},
	{KERNEL_kv_copy, 5, .n_head = 5, .n_head_kv = 5, .head_dim = 80, .k = KV_F16, .v = KV_F32,
		.window = 40},
	{KERNEL_kv_copy, 2, .n_head = 7, .n_head_kv = 7, .head_dim = 128, .k = KV_Q4_0,
		.v = KV_Q4_0, .flags = SMALL},
	{KERNEL_kv_copy, 33, .n_head = 1, .n_head_kv = 1, .head_dim = 256, .k = KV_Q8_0,
		.v = KV_F16, .window = 7},

	{KERNEL_kv_shift, 1, .n_head = 1, .n_head_kv = 1, .head_dim = 2, .n_rot = 2, .k = KV_F32,
		.v = KV_F32, .flags = SMALL},
	{KERNEL_kv_shift, 5, .n_head = 3, .n_head_kv = 3, .head_dim = 64, .n_rot = 64, .pos = 29,
		.k = KV_F16, .v = KV_Q4_0, .flags = SMALL | NEOX},
	{KERNEL_kv_shift, 33, .n_head = 1, .n_head_kv = 1, .head_dim = 80, .n_rot = 20, .pos = 1,
		.k = KV_F32, .v = KV_F16, .flags = NEOX},
	{KERNEL_kv_shift, 7, .n_head = 5, .n_head_kv = 5, .head_dim = 80, .n_rot = 80, .pos = 31,
		.k = KV_F16, .v = KV_F16},
	{KERNEL_kv_shift, 4, .n_head = 7, .n_head_kv = 7, .head_dim = 128, .n_rot = 128, .pos = 125,
		.k = KV_F32, .v = KV_Q8_0, .flags = SMALL},
	{KERNEL_kv_shift, 9, .n_head = 2, .n_head_kv = 2, .head_dim = 256, .n_rot = 64, .pos = 0,
		.k = KV_F16, .v = KV_F32, .flags = NEOX},
	{KERNEL_kv_shift, 3, .n_head = 3, .n_head_kv = 3, .head_dim = 64, .n_rot = 64, .pos = 60,
		.k = KV_Q8_0, .v = KV_Q8_0, .flags = SMALL},
	{KERNEL_kv_shift, 8, .n_head = 1, .n_head_kv = 1, .head_dim = 128, .n_rot = 32, .pos = 3,
		.k = KV_Q4_0, .v = KV_F32, .flags = NEOX},
	{KERNEL_kv_shift, 2, .n_head = 5, .n_head_kv = 5, .head_dim = 256, .n_rot = 256, .pos = 63,
		.k = KV_Q8_0, .v = KV_F16, .flags = SMALL | NEOX},
	{KERNEL_kv_shift, 5, .n_head = 3, .n_head_kv = 3, .head_dim = 32, .n_rot = 0, .pos = 9,
		.k = KV_F16, .v = KV_F16},

	{KERNEL_sample, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_sample, 6, .n_out = 101, .pos = 7, .flags = SMALL},
	{KERNEL_sample, 40, .n_out = 1000, .pos = 20},
	{KERNEL_sample, 3, .n_out = 32003, .pos = 3},

	{KERNEL_beam_select, 1, .n_out = 3, .flags = SMALL},
	{KERNEL_beam_select, 5, .n_out = 100, .pos = 20, .flags = SMALL},
	{KERNEL_beam_select, 9, .n_out = 8, .pos = 3, .flags = SMALL},
	{KERNEL_beam_select, 32, .n_out = 1000, .pos = 30},

	{KERNEL_control, 1, .n_out = 100, .pos = 3, .flags = SMALL},
	{KERNEL_control, 5, .n_out = 100, .pos = 20, .flags = SMALL},
	{KERNEL_control, 200, .n_out = 1000, .pos = 30},

	{KERNEL_read_rate, 1, .n_out = 1, .flags = SMALL},
	{KERNEL_read_rate, 1, .n_out = 4097, .flags = SMALL},
	{KERNEL_read_rate, 1, .n_out = 70001},

	{KERNEL_fma_rate, 1, .n_out = 1, .n_in = 1, .flags = SMALL},
	{KERNEL_fma_rate, 1, .n_out = 100, .n_in = 3, .flags = SMALL},
	{KERNEL_fma_rate, 1, .n_out = 1025, .n_in = 2},

	{KERNEL_quantize_x, 1, .n_out = 32, .flags = SMALL},
	{KERNEL_quantize_x, 7, .n_out = 1056, .room = 9, .flags = SMALL},
	{KERNEL_quantize_x, 33, .n_out = 4096},

	{KERNEL_matvec_q8, 1, .n_out = 3, .n_in = 32, .flags = SMALL | BIAS},
	{KERNEL_matvec_q8, 3, .n_out = 31, .n_in = 96, .flags = SMALL | RESIDUAL},
	{KERNEL_matvec_q8, 9, .n_out = 150, .n_in = 160, .chunk = 64, .flags = BIAS | SCALE},
	{KERNEL_matvec_q8, 1, .n_out = 67, .n_in = 2048, .flags = SOFTCAP},
	{KERNEL_matvec_q8, 2, .n_out = 35, .n_in = 256, .activation = ACTIVATION_SILU,
		.flags = GATED},

	{KERNEL_matmul_q8, 1, .n_out = 3, .n_in = 32, .flags = SMALL | BIAS},
	{KERNEL_matmul_q8, 9, .n_out = 31, .n_in = 96, .room = 11, .flags = SMALL | RESIDUAL},
	{KERNEL_matmul_q8, 33, .n_out = 150, .n_in = 256, .chunk = 64, .flags = BIAS | SCALE},
};

/* A row of the list and, for kernels built per format, one of the formats. */
static bool has_variant(const struct check_case *c, enum weight weight)
{
	return kernel_takes(c->kernel, weight) && (weight == WEIGHT_f32 || !(c->flags & ONLY_F32));
}

static uint32_t n_variants(const struct check_case *c)
{
	uint32_t n = 0;
	for (uint32_t w = 0; w < N_WEIGHTS; w++)
		n += has_variant(c, (enum weight)w);
	return n;
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
	*weight = 0;
	while (!has_variant(c, *weight) || i-- > 0)
		++*weight;
	return c;
}

enum kernel check_case_kernel(uint32_t i)
{
	enum weight weight;
	return find_case(i, &weight)->kernel;
}

enum weight check_case_weight(uint32_t i)
{
	enum weight weight;
	find_case(i, &weight);
	return weight;
}

bool check_case_small(uint32_t i)
{
	enum weight weight;
	return find_case(i, &weight)->flags & SMALL;
}

static const char *const kv_names[] = {
	[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8_0] = "q8_0", [KV_Q4_0] = "q4_0"};

static bool has_cache(const struct check_case *c)
{
	return c->kernel == KERNEL_rope_kv || c->kernel == KERNEL_attn_decode ||
		c->kernel == KERNEL_attn_prefill || c->kernel == KERNEL_kv_copy ||
		c->kernel == KERNEL_kv_shift;
}

void check_case_name(uint32_t i, char *name, size_t n_bytes)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {{BIAS, "bias"}, {RESIDUAL, "residual"}, {NEOX, "neox"}, {SCALE, "scale"},
		{SOFTCAP, "softcap"}, {SINKS, "sinks"}, {UNGATED, "no gate"},
		{BY_POS, "by position"}, {X_PER_SLOT, "x per slot"}, {OVER_ALL, "over all"},
		{SHARED, "shared"}, {SHARED_GATE, "shared gate"}, {GATED, "gated"},
		{HEAD_NORMS, "norms"}, {SPARSE, "sparse"}, {V_NORM, "v norm"}, {Q_ONLY, "q only"},
		{INSIDE, "inside"}};
	static const char *const activations[] = {[ACTIVATION_SILU] = "silu",
		[ACTIVATION_GELU] = "gelu",
		[ACTIVATION_SWIGLU] = "swiglu",
		[ACTIVATION_SIGMOID] = "sigmoid"};
	enum weight weight;
	const struct check_case *c = find_case(i, &weight);
	const struct kernel_info *k = kernel_info(c->kernel);
	struct text t = {0};
	text_printf(&t, "%s", k->name);
	if (k->per_weight)
		text_printf(&t, " %s", weight_format(weight)->name);
	if (c->n_in)
		text_printf(&t, " %u x %u", c->n_out, case_columns(c, weight));
	else if (c->n_out)
		text_printf(&t, " %u", c->n_out);
	if (c->n_head)
		text_printf(&t, " %u/%u x %u", c->n_head, c->n_head_kv, c->head_dim);
	if (c->kernel == KERNEL_rope_kv || c->kernel == KERNEL_kv_shift)
		text_printf(&t, " rot %u", c->n_rot);
	if (has_cache(c))
		text_printf(&t, " %s/%s", kv_names[c->k], kv_names[c->v]);
	if (c->kernel == KERNEL_glu ||
		(c->flags & GATED && (c->kernel == KERNEL_matvec || c->kernel == KERNEL_matvec_q8)))
		text_printf(&t, " %s", activations[c->activation]);
	if (c->n_segments)
		text_printf(&t, " in %u", c->n_segments);
	if (c->pos)
		text_printf(&t, " pos %u", c->pos);
	text_printf(&t, ", %u row%s", c->n_rows, c->n_rows == 1 ? "" : "s");
	if (c->room)
		text_printf(&t, " of %u", c->room);
	if (c->n_used)
		text_printf(&t, " by %u", c->n_used);
	if (c->n_expert)
		text_printf(&t, " of %u experts", c->n_expert);
	if (c->chunk)
		text_printf(&t, ", chunks of %u", c->chunk);
	if (c->window)
		text_printf(&t, ", window %u", c->window);
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
	uint32_t n_seq = n_sequences(rows, c->n_rows), n_kv = n_positions(rows, c->n_rows);
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
	uint32_t n_kv = n_positions(rows, c->n_rows), floats = 2 + c->head_dim;
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

#define TAIL_TOP 5 /* best tokens that a case of sample has room for */

/* Every second sequence lists its best tokens; other numbers make biases, bans, masks, and cuts before
 * the temperature. */
static void add_wishes(struct side *s, uint32_t i, struct sequence *q)
{
	uint32_t n_vocab = s->c->n_out;
	q->n_top = i % 2 ? 1 + i % (2 * TAIL_TOP) : 0;
	for (uint32_t b = 0; b < i % 3 * 7 && !s->status; b++)
		s->status = sampler_bias(q, side_random_u32(s) % n_vocab,
			b % 3 ? side_random_float(s, 9) : -INFINITY, n_vocab, s->err);
	q->n_forbidden = i % 4 * 3;
	for (uint32_t b = 0; b < q->n_forbidden; b++)
		q->forbidden[b] = side_random_u32(s) % n_vocab;
	q->n_forbid_left = i % 3 ? i % 4 : UINT32_MAX;
	q->use_mask = i % 5 > 2;
	if (i % 7 > 2)
		q->inv_cut_temperature = 1;
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
		sampling.seed = side_random_u32(s);
		*q = (struct sequence){.n_ctx = n_ctx, .n_left = 10, .n_stop = 1};
		q->stop[0] = side_random_u32(s) % s->c->n_out;
		if (!s->status)
			s->status = sampler_set(q, &sampling, s->c->n_out, n_ctx, s->err);
		if (i > 0 && !s->status)
			add_wishes(s, i, q);
	}
}

#define TAIL_CONTEXT 32 /* positions of a sequence in cases of sample and control */

/* A prompt up to each row's position, the counts of its window, a mask that lets most tokens through. */
static void make_history(struct side *s, const struct sequence *sequences,
	const struct step_row *rows, uint32_t *words)
{
	const uint64_t n_words = HISTORY_WORDS((uint64_t)TAIL_CONTEXT, s->c->n_out);
	for (uint32_t i = 0; i < s->c->n_rows; i++, words += n_words) {
		memset(words, 0, n_words * sizeof *words);
		for (uint32_t pos = 0; pos <= rows[i].pos; pos++)
			words[pos] = side_random_u32(s) % s->c->n_out;
		sampler_count(
			&sequences[i], words, rows[i].pos + 1, words + TAIL_CONTEXT, s->c->n_out);
		uint32_t *mask = words + TAIL_CONTEXT + s->c->n_out;
		for (uint32_t token = 0; token < s->c->n_out; token++)
			mask[token / 32] |= (uint32_t)(side_random_u32(s) % 4 > 0) << token % 32;
	}
}

/* Sequences and histories, which control writes and sample only reads. */
static void build_tail(
	struct side *s, const struct step_row *rows, struct tail *tail, enum form form)
{
	uint32_t n = s->c->n_rows;
	struct operand *q = operand_create(s, n * sizeof(struct sequence), PATTERN);
	struct operand *h = operand_create(s,
		n * HISTORY_WORDS((uint64_t)TAIL_CONTEXT, s->c->n_out) * sizeof(uint32_t), PATTERN);
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
	tail.results = side_output(
		s, s->c->n_rows * sizeof(struct sample_result), FORM_RESULT, CHECK_LIMIT_ELEMENT);
	tail.scratch = output_rows(s, s->c->n_out, LIMIT_EXACT).view;
	if (!s->status) /* its contents are the kernel's own affair */
		s->operands[s->n_operands - 1].n_defined = 0;
	tail.n_top = TAIL_TOP;
	tail.tops = side_output(s,
		(uint64_t)s->c->n_rows * RING_ENTRIES * TAIL_TOP * sizeof(struct top_token),
		FORM_ROUTE, CHECK_LIMIT_ELEMENT);
	struct rows logits = input_rows(s, s->c->n_out, 8);
	build_tail(s, rows, &tail, FORM_INPUT);
	input_step(s, rows, n_positions(rows, s->c->n_rows));
	if (!s->status)
		plan_sample(&s->plan, logits, &tail);
}

static void build_control(struct side *s, const struct step_row *rows)
{
	uint32_t n = s->c->n_rows;
	struct tail tail = {0};
	build_tail(s, rows, &tail, FORM_WORDS);
	tail.ring = side_output(
		s, (uint64_t)n * RING_ENTRIES * sizeof(struct ring_entry), FORM_WORDS, 0);
	input_step(s, rows, n_positions(rows, n));
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
			.token = i % 3 == 1 ? sequences[i].stop[0]
					    : side_random_u32(s) % s->c->n_out,
			.log_prob = -1,
			.error = i % 13 == 6,
		};
	tail.results = operand_upload(s, o, MEMORY_DEVICE);
	if (!s->status)
		plan_control(&s->plan, s->c->n_out, &tail);
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
	const struct check_case *c = find_case(i, &weight);
	return side_check(b, cpu, c, weight, i, n_runs, knobs, result, err);
}

enum lap_status check_run(struct backend *b, struct backend *cpu, uint32_t i, uint32_t n_runs,
	struct check_result *result, struct lap_error *err)
{
	return check_run_knobs(b, cpu, i, n_runs, NULL, result, err);
}
