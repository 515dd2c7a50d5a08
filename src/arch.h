/* What tells one architecture from another: a row of flags and numbers, nothing else.
 *
 * The forward pass reads them; it never asks for a name. */
#ifndef LAPILLI_ARCH_H
#define LAPILLI_ARCH_H

#include "base.h"

enum arch_rope {
	ARCH_ROPE_NONE,   /* positions are learned: position_embd */
	ARCH_ROPE_NORMAL, /* pairs (2i, 2i + 1) turn */
	ARCH_ROPE_NEOX,   /* pairs (i, i + n_rot/2) turn */
};

enum arch_norm { ARCH_NORM_RMS, ARCH_NORM_LAYER };

enum arch_activation { ARCH_ACTIVATION_SILU, ARCH_ACTIVATION_GELU, ARCH_ACTIVATION_SWIGLU };

enum {
	ARCH_QKV_BIAS = 1 << 0, /* attn_q, attn_k, attn_v must have biases; otherwise they may */
	ARCH_QK_NORM = 1 << 1,  /* q and k are normed, each head alone */
	ARCH_QK_NORM_WIDE = 1 << 2, /* ... over all heads together */
	ARCH_POST_NORM = 1 << 3,    /* what attention and FFN give is normed before it is added */
	ARCH_NO_PRE_NORM = 1 << 4,  /* what they take is not */
	ARCH_PARALLEL = 1 << 5,     /* the FFN takes what attention takes, not what it gives */
	ARCH_UNGATED = 1 << 6,      /* FFN: down(activation(up)) */
	ARCH_EMBD_SQRT = 1 << 7, /* embeddings times sqrt(n_embd), where the file names no scale */
	ARCH_LOGIT_SOFTCAP = 1 << 8, /* logits are capped at 30, where the file names no other */
	ARCH_LOCAL_ROPE = 1 << 9, /* window layers turn with rope.freq_base_swa, without scaling */
	ARCH_ROUTE_OVER_ALL = 1 << 10, /* experts' weights: softmax over all, not over the chosen */
	ARCH_FFN_NORM_RENAMED = 1 << 11, /* ffn_norm is called post_attention_norm */
	ARCH_SINKS = 1 << 12,            /* attention sinks, a score per head */
	ARCH_SHORT_CONV = 1 << 13,       /* layers without KV heads are short convolutions */
	ARCH_DELTA_NET = 1 << 14, /* every so many layers, all but the last are gated delta nets */
	ARCH_Q_GATE = 1 << 15,    /* attn_q has a gate behind each head's query */
	ARCH_OUTPUT_NORM_RENAMED = 1 << 16, /* output_norm is called token_embd_norm */
	ARCH_ATTN_SOFTCAP = 1 << 17,  /* attention is capped at 50, where the file names no other */
	ARCH_ATTN_UNSCALED = 1 << 18, /* scores are not divided by the root of a head's size */
	ARCH_V_NORM =
		1 << 19, /* v is normed without weights; without attn_v it is k before its norm */
	ARCH_DENSE_BESIDE = 1 << 20, /* experts beside a dense FFN, each between norms of its own */
};

struct arch {
	const char *name; /* general.architecture */
	enum arch_rope rope;
	enum arch_norm norm;
	enum arch_activation activation;
	uint32_t
		full_every; /* with a window: every so many layers, the last sees all; 0: no windows */
	uint32_t no_rope_every; /* every so many layers, the last does not turn; 0: all do */
	uint32_t flags;
};

/* The architecture of that name, or NULL. */
const struct arch *arch_find(const char *name, size_t n_bytes);

/* "llama qwen2 ...": for messages and for README's table. */
const char *arch_list(void);

#endif
