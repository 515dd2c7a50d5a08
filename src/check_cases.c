/* The case list, and what its cases are called: see check.h. */
#include "check_side.h"

#include <string.h>

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
	{KERNEL_matvec, 7, .n_out = 76, .n_in = 96,
		.flags = BIAS | RESIDUAL | SCALE | SOFTCAP | ONLY_F32},

	{KERNEL_matvec, 1, .n_out = 5, .n_in = 96, .activation = ACTIVATION_SILU,
		.flags = SMALL | GATED},
	{KERNEL_matvec, 9, .n_out = 35, .n_in = 160, .activation = ACTIVATION_GELU, .flags = GATED},
	{KERNEL_matvec, 5, .n_out = 36, .n_in = 64, .activation = ACTIVATION_SILU, .flags = GATED},
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
	{KERNEL_matmul, 19, .n_out = 140, .n_in = 96,
		.flags = BIAS | RESIDUAL | SCALE | SOFTCAP | ONLY_F32},

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
	{KERNEL_glu, 3, .n_out = 132, .activation = ACTIVATION_GELU},
	{KERNEL_glu, 2, .n_out = 520, .activation = ACTIVATION_SWIGLU},
	{KERNEL_glu, 3, .n_out = 513, .activation = ACTIVATION_SILU, .flags = UNGATED},
	{KERNEL_glu, 2, .n_out = 516, .activation = ACTIVATION_SILU, .flags = UNGATED},
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
	{KERNEL_expert_matmul, 11, 44, 64, .n_expert = 4, .n_used = 2, .flags = BIAS},
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

const struct check_case *case_find(uint32_t i, enum weight *weight)
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
	return case_find(i, &weight)->kernel;
}

enum weight check_case_weight(uint32_t i)
{
	enum weight weight;
	case_find(i, &weight);
	return weight;
}

bool check_case_small(uint32_t i)
{
	enum weight weight;
	return case_find(i, &weight)->flags & SMALL;
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
	const struct check_case *c = case_find(i, &weight);
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
