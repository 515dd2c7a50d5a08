/* Builds GGUF files in memory for tests, any field of which can be made wrong.
 *
 *     struct builder b = {0};
 *     builder_tiny_llama(&b);
 *     builder_u32(&b, "llama.attention.head_count", 0);
 *     struct text file = builder_file(&b);      // text_free releases
 *     builder_free(&b);
 *
 * Header only, so that any test may include it.  Setting a key or tensor again replaces it in its
 * place.  Memory that is out ends the test. */
#ifndef LAPILLI_TESTS_GGUF_BUILDER_H
#define LAPILLI_TESTS_GGUF_BUILDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "gguf.h"

#define BUILDER_MOST 512 /* keys, and tensors */

struct builder_kv {
	struct text key;
	uint32_t type;
	struct text value; /* as in the file */
};

struct builder_tensor {
	struct text name;
	uint32_t type; /* GGUF's number */
	uint32_t n_dims;
	uint64_t dims[16];
	struct text data;
	bool has_offset; /* else it is placed behind the one before */
	uint64_t offset;
};

struct builder {
	const char *magic;  /* NULL: "GGUF" */
	uint32_t version;   /* 0: 3 */
	uint32_t alignment; /* of the data, whatever general.alignment says; 0: 32 */
	bool has_counts;    /* announce these, not the true ones */
	uint64_t n_kv_announced, n_tensors_announced;
	uint32_t n_kv, n_tensors;
	struct builder_kv kv[BUILDER_MOST];
	struct builder_tensor tensors[BUILDER_MOST];
};

static inline void builder_bytes(struct text *t, const void *bytes, size_t n)
{
	if (!text_append(t, bytes, n))
		abort();
}

/* The n low bytes of value, little-endian. */
static inline void builder_number(struct text *t, uint64_t value, unsigned n)
{
	uint8_t bytes[8];
	for (unsigned i = 0; i < n; i++, value >>= 8)
		bytes[i] = (uint8_t)value;
	builder_bytes(t, bytes, n);
}

static inline void builder_text(struct text *t, const char *s, size_t n)
{
	builder_number(t, n, 8);
	builder_bytes(t, s, n);
}

/* ---- key/values -------------------------------------------------------------------------------- */

/* A further key, even when it is there already; the caller fills ->value. */
static inline struct builder_kv *builder_add(struct builder *b, const char *key, uint32_t type)
{
	if (b->n_kv == BUILDER_MOST)
		abort();
	struct builder_kv *kv = &b->kv[b->n_kv++];
	builder_bytes(&kv->key, key, strlen(key));
	kv->type = type;
	return kv;
}

/* The key, new or emptied. */
static inline struct text *builder_set(struct builder *b, const char *key, uint32_t type)
{
	for (uint32_t i = 0; i < b->n_kv; i++)
		if (b->kv[i].key.n == strlen(key) &&
			memcmp(b->kv[i].key.data, key, strlen(key)) == 0) {
			b->kv[i].type = type;
			text_free(&b->kv[i].value);
			return &b->kv[i].value;
		}
	return &builder_add(b, key, type)->value;
}

static inline void builder_drop(struct builder *b, const char *key)
{
	for (uint32_t i = 0; i < b->n_kv; i++)
		if (strcmp(b->kv[i].key.data, key) == 0) {
			text_free(&b->kv[i].key);
			text_free(&b->kv[i].value);
			memmove(&b->kv[i], &b->kv[i + 1], (--b->n_kv - i) * sizeof b->kv[0]);
			b->kv[b->n_kv] = (struct builder_kv){0};
			return;
		}
}

static inline void builder_u32(struct builder *b, const char *key, uint32_t value)
{
	builder_number(builder_set(b, key, GGUF_U32), value, 4);
}

/* An integer of any other type, or a bool (which may be made neither 0 nor 1). */
static inline void builder_int(
	struct builder *b, const char *key, enum gguf_type type, uint64_t value)
{
	static const unsigned n_bytes[N_GGUF_TYPES] = {[GGUF_U8] = 1,
		[GGUF_I8] = 1,
		[GGUF_U16] = 2,
		[GGUF_I16] = 2,
		[GGUF_U32] = 4,
		[GGUF_I32] = 4,
		[GGUF_BOOL] = 1,
		[GGUF_U64] = 8,
		[GGUF_I64] = 8};
	builder_number(builder_set(b, key, type), value, n_bytes[type]);
}

static inline void builder_f32(struct builder *b, const char *key, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	builder_number(builder_set(b, key, GGUF_F32), bits, 4);
}

static inline void builder_f64(struct builder *b, const char *key, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	builder_number(builder_set(b, key, GGUF_F64), bits, 8);
}

static inline void builder_bool(struct builder *b, const char *key, bool value)
{
	builder_int(b, key, GGUF_BOOL, value);
}

static inline void builder_string(struct builder *b, const char *key, const char *value)
{
	builder_text(builder_set(b, key, GGUF_STRING), value, strlen(value));
}

/* An array's head; the caller appends the elements to what it returns. */
static inline struct text *builder_array(
	struct builder *b, const char *key, uint32_t element, uint64_t n)
{
	struct text *t = builder_set(b, key, GGUF_ARRAY);
	builder_number(t, element, 4);
	builder_number(t, n, 8);
	return t;
}

static inline void builder_strings(
	struct builder *b, const char *key, const char *const *values, size_t n)
{
	struct text *t = builder_array(b, key, GGUF_STRING, n);
	for (size_t i = 0; i < n; i++)
		builder_text(t, values[i], strlen(values[i]));
}

static inline void builder_f32s(struct builder *b, const char *key, const float *values, size_t n)
{
	struct text *t = builder_array(b, key, GGUF_F32, n);
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &values[i], sizeof bits);
		builder_number(t, bits, 4);
	}
}

static inline void builder_i32s(struct builder *b, const char *key, const int32_t *values, size_t n)
{
	struct text *t = builder_array(b, key, GGUF_I32, n);
	for (size_t i = 0; i < n; i++)
		builder_number(t, (uint32_t)values[i], 4);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

/* The tensor of that name, which must be there. */
static inline struct builder_tensor *builder_get_tensor(struct builder *b, const char *name)
{
	for (uint32_t i = 0; i < b->n_tensors; i++)
		if (strcmp(b->tensors[i].name.data, name) == 0)
			return &b->tensors[i];
	abort();
}

/* A further tensor of GGUF type `type` and [n_rows][n_cols]; n_rows 0 makes it one-dimensional. */
static inline struct builder_tensor *builder_tensor(struct builder *b, const char *name,
	uint32_t type, uint64_t n_rows, uint64_t n_cols, const void *data, size_t n_bytes)
{
	if (b->n_tensors == BUILDER_MOST)
		abort();
	struct builder_tensor *t = &b->tensors[b->n_tensors++];
	builder_bytes(&t->name, name, strlen(name));
	t->type = type;
	t->n_dims = n_rows ? 2 : 1;
	t->dims[0] = n_cols;
	t->dims[1] = n_rows;
	builder_bytes(&t->data, data, n_bytes);
	return t;
}

static inline void builder_drop_tensor(struct builder *b, const char *name)
{
	struct builder_tensor *t = builder_get_tensor(b, name);
	text_free(&t->name);
	text_free(&t->data);
	memmove(t, t + 1, (size_t)(&b->tensors[--b->n_tensors] - t) * sizeof *t);
	b->tensors[b->n_tensors] = (struct builder_tensor){0};
}

/* ---- the whole --------------------------------------------------------------------------------- */

static inline void builder_pad(struct text *file, size_t from, uint32_t alignment)
{
	while ((file->n - from) % alignment)
		builder_bytes(file, "", 1);
}

static inline struct text builder_file(const struct builder *b)
{
	struct text file = {0}, data = {0};
	uint32_t alignment = b->alignment ? b->alignment : 32;
	builder_bytes(&file, b->magic ? b->magic : "GGUF", 4);
	builder_number(&file, b->version ? b->version : 3, 4);
	builder_number(&file, b->has_counts ? b->n_tensors_announced : b->n_tensors, 8);
	builder_number(&file, b->has_counts ? b->n_kv_announced : b->n_kv, 8);
	for (uint32_t i = 0; i < b->n_kv; i++) {
		const struct builder_kv *kv = &b->kv[i];
		builder_text(&file, kv->key.data, kv->key.n);
		builder_number(&file, kv->type, 4);
		builder_bytes(&file, kv->value.data, kv->value.n);
	}
	for (uint32_t i = 0; i < b->n_tensors; i++) {
		const struct builder_tensor *t = &b->tensors[i];
		builder_text(&file, t->name.data, t->name.n);
		builder_number(&file, t->n_dims, 4);
		for (uint32_t j = 0; j < t->n_dims && j < ARRAY_COUNT(t->dims); j++)
			builder_number(&file, t->dims[j], 8);
		builder_number(&file, t->type, 4);
		builder_number(&file, t->has_offset ? t->offset : data.n, 8);
		builder_bytes(&data, t->data.data, t->data.n);
		builder_pad(&data, 0, alignment);
	}
	builder_pad(&file, 0, alignment);
	builder_bytes(&file, data.data, data.n);
	text_free(&data);
	return file;
}

static inline void builder_free(struct builder *b)
{
	for (uint32_t i = 0; i < b->n_kv; i++) {
		text_free(&b->kv[i].key);
		text_free(&b->kv[i].value);
	}
	for (uint32_t i = 0; i < b->n_tensors; i++) {
		text_free(&b->tensors[i].name);
		text_free(&b->tensors[i].data);
	}
	memset(b, 0, sizeof *b);
}

/* ---- a small valid model ----------------------------------------------------------------------- */

/* An F32 tensor: ones when it has one dimension (n_rows 0), else small numbers told by `seed`. */
static inline void builder_noise(
	struct builder *b, const char *name, uint64_t n_rows, uint64_t n_cols, uint32_t seed)
{
	size_t n = (size_t)(n_cols * (n_rows ? n_rows : 1));
	float *values = array_alloc(n, sizeof *values);
	if (!values)
		abort();
	uint32_t state = seed * 2654435761u + 1;
	for (size_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u;
		values[i] = n_rows ? ((float)(state >> 8) * 0x1p-24f - 0.5f) * 0.4f : 1.0f;
	}
	builder_tensor(b, name, 0, n_rows, n_cols, values, n * sizeof *values);
	free(values);
}

/* SPM vocabulary of 264: <unk> <s> </s>, 256 byte tokens, then five pieces. */
static inline void builder_tiny_vocab(struct builder *b)
{
	enum { n = 264, first_byte = 3, first_piece = first_byte + 256 };
	static const char *const specials[] = {"<unk>", "<s>", "</s>"};
	static const int32_t special_types[] = {2, 3, 3};
	/* octal: U+2581, the space of SPM vocabularies */
	static const char *const pieces[] = {"\342\226\201", "a", "b", "\342\226\201a", "ab"};
	static const float piece_scores[] = {-1, -2, -3, -0.5f, -0.75f};
	char bytes[256][8];
	const char *tokens[n];
	float scores[n] = {0};
	int32_t types[n];
	for (uint32_t i = 0; i < n; i++) {
		types[i] = i < first_byte ? special_types[i] : i < first_piece ? 6 : 1;
		if (i < first_byte) {
			tokens[i] = specials[i];
		} else if (i < first_piece) {
			snprintf(bytes[i - first_byte], sizeof bytes[0], "<0x%02X>",
				(unsigned)(uint8_t)(i - first_byte));
			tokens[i] = bytes[i - first_byte];
		} else {
			tokens[i] = pieces[i - first_piece];
			scores[i] = piece_scores[i - first_piece];
		}
	}
	builder_string(b, "tokenizer.ggml.model", "llama");
	builder_strings(b, "tokenizer.ggml.tokens", tokens, n);
	builder_f32s(b, "tokenizer.ggml.scores", scores, n);
	builder_i32s(b, "tokenizer.ggml.token_type", types, n);
	builder_u32(b, "tokenizer.ggml.unknown_token_id", 0);
	builder_u32(b, "tokenizer.ggml.bos_token_id", 1);
	builder_u32(b, "tokenizer.ggml.eos_token_id", 2);
}

/* A gemma4 vocabulary of 278: 256 byte tokens, id = byte, then those listed. */
static inline void builder_characters_vocab(struct builder *b)
{
	enum { n_bytes = 256, n_others = 22, n = n_bytes + n_others };
	static const struct {
		const char *text;
		int32_t type;
	} others[n_others] = {
		{"<unk>", 2},            /* 256 */
		{"<bos>", 3},            /* 257 */
		{"<eos>", 3},            /* 258 */
		{"<turn|>", 3},          /* 259 */
		{"<|tool_response>", 4}, /* 260 */
		{"<|channel>", 4},       /* 261 */
		{"</s>", 1},             /* 262 */
		{"\u2581", 1},           /* 263 */
		{"a", 1},                /* 264 */
		{"b", 1},                /* 265 */
		{"c", 1},                /* 266 */
		{"ab", 1},               /* 267 */
		{"bc", 1},               /* 268 */
		{"\u2581a", 1},          /* 269 */
		{"abc", 1},              /* 270: no merge leads there */
		{"\u2581\u2581", 1},     /* 271 */
		{"\n", 1},               /* 272 */
		{"\n\n", 1},             /* 273 */
		{"\n\n\n", 1},           /* 274: nor there */
		{"\u00E9", 1},           /* 275 */
		{"b\n", 1},              /* 276: across the end of a run of newlines */
		{"\u00E9a", 1},          /* 277 */
	};
	static const char *const merges[] = {
		"b c", "a b", "\u2581 a", "\u2581 \u2581", "\n \n", "b \n", "\u00E9 a"};
	char bytes[n_bytes][8];
	const char *tokens[n];
	int32_t types[n];
	for (uint32_t i = 0; i < n; i++) {
		if (i < n_bytes)
			snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)(uint8_t)i);
		tokens[i] = i < n_bytes ? bytes[i] : others[i - n_bytes].text;
		types[i] = i < n_bytes ? 6 : others[i - n_bytes].type;
	}
	builder_string(b, "tokenizer.ggml.model", "gemma4");
	builder_strings(b, "tokenizer.ggml.tokens", tokens, n);
	builder_i32s(b, "tokenizer.ggml.token_type", types, n);
	builder_strings(b, "tokenizer.ggml.merges", merges, ARRAY_COUNT(merges));
	builder_u32(b, "tokenizer.ggml.unknown_token_id", 256);
	builder_u32(b, "tokenizer.ggml.bos_token_id", 257);
	builder_u32(b, "tokenizer.ggml.eos_token_id", 258);
}

/* A "llama" of 2 layers, width 32, 4 heads (2 for k and v), feed-forward 64, context 64, F32. */
static inline void builder_tiny_llama(struct builder *b)
{
	enum { n_embd = 32, n_head = 4, n_head_kv = 2, n_ff = 64, n_layer = 2, n_vocab = 264 };
	enum { n_kv = n_embd / n_head * n_head_kv };
	builder_string(b, "general.architecture", "llama");
	builder_string(b, "general.name", "tiny");
	builder_u32(b, "llama.block_count", n_layer);
	builder_u32(b, "llama.context_length", 64);
	builder_u32(b, "llama.embedding_length", n_embd);
	builder_u32(b, "llama.feed_forward_length", n_ff);
	builder_u32(b, "llama.attention.head_count", n_head);
	builder_u32(b, "llama.attention.head_count_kv", n_head_kv);
	builder_u32(b, "llama.rope.dimension_count", n_embd / n_head);
	builder_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	builder_f32(b, "llama.rope.freq_base", 10000.0f);
	builder_tiny_vocab(b);
	static const struct {
		const char *name;
		uint32_t n_rows, n_cols;
	} parts[] = {
		{"attn_norm", 0, n_embd},
		{"attn_q", n_embd, n_embd},
		{"attn_k", n_kv, n_embd},
		{"attn_v", n_kv, n_embd},
		{"attn_output", n_embd, n_embd},
		{"ffn_norm", 0, n_embd},
		{"ffn_gate", n_ff, n_embd},
		{"ffn_up", n_ff, n_embd},
		{"ffn_down", n_embd, n_ff},
	};
	uint32_t seed = 1;
	builder_noise(b, "token_embd.weight", n_vocab, n_embd, seed++);
	builder_noise(b, "output_norm.weight", 0, n_embd, seed++);
	builder_noise(b, "output.weight", n_vocab, n_embd, seed++);
	for (int il = 0; il < n_layer; il++)
		for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%d.%s.weight", il, parts[i].name);
			builder_noise(b, name, parts[i].n_rows, parts[i].n_cols, seed++);
		}
}

#endif
