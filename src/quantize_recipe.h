/* Which format each tensor of a quantised model gets: the mixes that GGUF users know by their names.
 *
 * Owns the table of names and the rules, which go by the names of tensors; encodes nothing. The rules are
 * those of llama.cpp's llama-quantize without an importance matrix, so that a name means the same file size
 * and quality here as there (docs/quantize.md). */
#ifndef LAPILLI_QUANTIZE_RECIPE_H
#define LAPILLI_QUANTIZE_RECIPE_H

#include "gguf.h"

/* The layers that a rule is for, of the n that have such a tensor. */
enum recipe_layers {
	LAYERS_NONE,
	LAYERS_FIRST_FOUR,
	LAYERS_FIRST_EIGHTH,
	LAYERS_THIRD, /* the first and last eighth, and every third between */
};

struct recipe_rule {
	enum recipe_layers layers;
	enum weight format;
};

struct recipe {
	const char *name;
	uint32_t file_type; /* general.file_type */
	enum weight base;   /* of all that no rule names */
	struct recipe_rule attn_v, ffn_down;
	enum weight attn_qkv;     /* q, k and v in one tensor */
	enum weight attn_output8; /* in models of eight experts */
};

/* By its name, whatever the case of its letters; "Q4_K" and "Q5_K" are the _M ones. NULL: there is none. */
const struct recipe *recipe_find(const char *name);

/* All names, with spaces between them. */
const char *recipe_names(void);

/* The format of a tensor. pure: the base for all that is quantised. *fallback: rows are no whole blocks of
 * what the recipe says, so it is another. */
enum weight recipe_choose(const struct recipe *r, bool pure, const struct gguf *g,
	const struct gguf_tensor *t, bool *fallback);

#endif
