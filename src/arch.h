/* What tells one architecture from another: a row of flags, nothing else.
 *
 * The forward pass reads flags; it never asks for a name. */
#ifndef LAPILLI_ARCH_H
#define LAPILLI_ARCH_H

#include "base.h"

struct arch {
	const char *name; /* general.architecture */
	bool rope_neox;   /* RoPE turns (i, i + n_rot/2); otherwise (2i, 2i + 1) */
	bool qkv_bias;    /* attn_q, attn_k and attn_v must have biases; otherwise they may */
};

/* The architecture of that name, or NULL. */
const struct arch *arch_find(const char *name, size_t n_bytes);

/* "llama qwen2": for messages and for README's table. */
const char *arch_list(void);

#endif
