/* random-model SHAPE FORMAT FILE: writes a llama model of random weights, to be measured: it has the tensors of a
 * real one and no tokenizer.
 *
 * Every tensor of a format repeats one piece of random blocks, whose scales are small enough that nothing
 * overflows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "weight.h"

#define PIECE_BYTES (1 << 20)
#define ALIGN       32

static const struct shape {
	const char *name;
	uint32_t n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab;
	bool tied; /* the embedding is the output matrix */
} shapes[] = {
	{"small", 2, 256, 4, 2, 512, 512, true},
	{"tiny", 6, 288, 6, 6, 768, 32000, true},
	{"160m", 12, 768, 12, 12, 3072, 32000, false},
	{"qwen0.5b", 24, 896, 14, 2, 4864, 151936, true},
	{"llama1b", 16, 2048, 32, 8, 8192, 128256, true},
	{"llama8b", 32, 4096, 32, 8, 14336, 128256, false},
};

/* Where the halves of a block are that scale it, and what rows get that are no whole blocks. */
static const struct scales {
	enum weight weight, fallback;
	uint32_t at, n; /* from a byte on */
} formats[] = {
	{WEIGHT_f16, WEIGHT_f16, 0, 1},
	{WEIGHT_q8_0, WEIGHT_f16, 0, 1},
	{WEIGHT_q4_0, WEIGHT_f16, 0, 1},
	{WEIGHT_q5_0, WEIGHT_f16, 0, 1},
	{WEIGHT_q4_k, WEIGHT_q5_0, 0, 2},
	{WEIGHT_q6_k, WEIGHT_q8_0, 208, 1},
};

static const struct scales *scales_of(enum weight weight)
{
	for (size_t i = 0; i < ARRAY_COUNT(formats); i++)
		if (formats[i].weight == weight)
			return &formats[i];
	return NULL;
}

struct tensor {
	char name[48];
	enum weight weight;
	uint32_t n_cols, n_rows; /* n_rows 0: a vector */
	uint64_t n_bytes;
};

struct model {
	const struct shape *shape;
	struct tensor tensors[512];
	uint32_t n;
};

static void add(struct model *m, int layer, const char *name, enum weight weight, uint32_t n_cols,
	uint32_t n_rows)
{
	struct tensor *t = &m->tensors[m->n++];
	uint64_t row_bytes = 0;
	if (!weight_row_bytes(weight, n_cols, &row_bytes))
		weight_row_bytes(weight = scales_of(weight)->fallback, n_cols, &row_bytes);
	*t = (struct tensor){.weight = weight, .n_cols = n_cols, .n_rows = n_rows};
	if (layer >= 0)
		snprintf(t->name, sizeof t->name, "blk.%d.%s.weight", layer, name);
	else
		snprintf(t->name, sizeof t->name, "%s.weight", name);
	t->n_bytes = row_bytes * (n_rows ? n_rows : 1);
}

static void add_all(struct model *m, enum weight weight)
{
	const struct shape *s = m->shape;
	const uint32_t n_kv = s->n_embd / s->n_head * s->n_head_kv;
	add(m, -1, "token_embd", weight, s->n_embd, s->n_vocab);
	add(m, -1, "output_norm", WEIGHT_f32, s->n_embd, 0);
	if (!s->tied)
		add(m, -1, "output", weight, s->n_embd, s->n_vocab);
	for (int il = 0; il < (int)s->n_layer; il++) {
		add(m, il, "attn_norm", WEIGHT_f32, s->n_embd, 0);
		add(m, il, "attn_q", weight, s->n_embd, s->n_embd);
		add(m, il, "attn_k", weight, s->n_embd, n_kv);
		add(m, il, "attn_v", weight, s->n_embd, n_kv);
		add(m, il, "attn_output", weight, s->n_embd, s->n_embd);
		add(m, il, "ffn_norm", WEIGHT_f32, s->n_embd, 0);
		add(m, il, "ffn_gate", weight, s->n_embd, s->n_ff);
		add(m, il, "ffn_up", weight, s->n_embd, s->n_ff);
		add(m, il, "ffn_down", weight, s->n_ff, s->n_embd);
	}
}

/* ---- the head -------------------------------------------------------------------------------- */

enum { GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8 };

static void put_u32(struct text *head, uint32_t value)
{
	text_append(head, &value, sizeof value);
}

static void put_u64(struct text *head, uint64_t value)
{
	text_append(head, &value, sizeof value);
}

static void put_string(struct text *head, const char *s)
{
	put_u64(head, strlen(s));
	text_append(head, s, strlen(s));
}

static void put_key(struct text *head, const char *key, uint32_t type, uint32_t bits)
{
	put_string(head, key);
	put_u32(head, type);
	put_u32(head, bits);
}

static void put_text(struct text *head, const char *key, const char *value)
{
	put_string(head, key);
	put_u32(head, GGUF_STRING);
	put_string(head, value);
}

static void put_float(struct text *head, const char *key, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	put_key(head, key, GGUF_F32, bits);
}

static void put_head(const struct model *m, const char *format, struct text *head)
{
	const struct shape *s = m->shape;
	const struct {
		const char *key;
		uint32_t value;
	} numbers[] = {
		{"llama.block_count", s->n_layer},
		{"llama.context_length", 8192},
		{"llama.embedding_length", s->n_embd},
		{"llama.feed_forward_length", s->n_ff},
		{"llama.attention.head_count", s->n_head},
		{"llama.attention.head_count_kv", s->n_head_kv},
		{"llama.vocab_size", s->n_vocab},
	};
	char name[64];
	uint64_t offset = 0;
	snprintf(name, sizeof name, "random-%s-%s", s->name, format);
	text_append(head, "GGUF", 4);
	put_u32(head, 3);
	put_u64(head, m->n);
	put_u64(head, ARRAY_COUNT(numbers) + 5);
	put_text(head, "general.architecture", "llama");
	put_text(head, "general.name", name);
	put_text(head, "tokenizer.ggml.model", "none");
	for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
		put_key(head, numbers[i].key, GGUF_U32, numbers[i].value);
	put_float(head, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	put_float(head, "llama.rope.freq_base", 500000.0f);
	for (uint32_t i = 0; i < m->n; i++) {
		const struct tensor *t = &m->tensors[i];
		put_string(head, t->name);
		put_u32(head, t->n_rows ? 2 : 1);
		put_u64(head, t->n_cols);
		if (t->n_rows)
			put_u64(head, t->n_rows);
		put_u32(head, weight_format(t->weight)->gguf_type);
		put_u64(head, offset);
		offset += (t->n_bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	while (head->n % ALIGN)
		text_append(head, "", 1);
}

/* ---- the data -------------------------------------------------------------------------------- */

static uint32_t random_u32(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
	return (uint32_t)(*state >> 32);
}

/* Whole blocks; returns their bytes. */
static size_t make_piece(enum weight weight, uint8_t *piece)
{
	const struct weight_format *f = weight_format(weight);
	const size_t n_bytes = PIECE_BYTES / f->block_bytes * f->block_bytes;
	const struct scales *scales = scales_of(weight);
	uint64_t state = 1;
	if (weight == WEIGHT_f32) /* of norms */
		for (size_t i = 0; i < n_bytes; i += 4)
			memcpy(piece + i, &(float){1}, 4);
	for (size_t i = 0; i < n_bytes && weight != WEIGHT_f32; i++)
		piece[i] = (uint8_t)random_u32(&state);
	for (size_t at = 0; at < n_bytes && scales; at += f->block_bytes)
		for (uint32_t i = 0; i < scales->n; i++) {
			/* 2^-11 to 2^-9, and of weights themselves either sign */
			uint16_t half = (uint16_t)((0x1000 + random_u32(&state) % 0x800) |
				(weight == WEIGHT_f16 ? random_u32(&state) & 0x8000u : 0));
			memcpy(piece + at + scales->at + 2 * i, &half, sizeof half);
		}
	return n_bytes;
}

static enum lap_status write_model(
	const struct model *m, const char *format, const char *path, struct lap_error *err)
{
	struct text head = {0};
	struct file_writer file;
	uint8_t *piece = malloc(PIECE_BYTES);
	enum lap_status status =
		piece ? file_create(path, &file, err) : fail_memory(err, "a piece", PIECE_BYTES);
	if (!status) {
		put_head(m, format, &head);
		file_append(&file, head.data, head.n);
		for (uint32_t i = 0; i < m->n; i++) {
			const struct tensor *t = &m->tensors[i];
			const size_t n_piece = make_piece(t->weight, piece);
			for (uint64_t at = 0; at < t->n_bytes; at += n_piece)
				file_append(&file, piece,
					t->n_bytes - at < n_piece ? t->n_bytes - at : n_piece);
			static const char zeros[ALIGN];
			file_append(&file, zeros, (ALIGN - t->n_bytes % ALIGN) % ALIGN);
		}
		status = file_close(&file, true, err);
	}
	text_free(&head);
	free(piece);
	return status;
}

static bool find(const char *shape, const char *format, struct model *m, enum weight *weight)
{
	for (size_t i = 0; i < ARRAY_COUNT(shapes); i++)
		if (strcmp(shapes[i].name, shape) == 0)
			m->shape = &shapes[i];
	for (size_t i = 0; i < ARRAY_COUNT(formats) && m->shape; i++)
		if (strcmp(weight_format(formats[i].weight)->label, format) == 0) {
			*weight = formats[i].weight;
			return true;
		}
	return false;
}

int main(int argc, char **argv)
{
	static struct model m;
	struct lap_error err;
	enum weight weight;
	if (argc != 4 || !find(argv[1], argv[2], &m, &weight)) {
		fprintf(stderr,
			"usage: random-model small|tiny|160m|qwen0.5b|llama1b|llama8b "
			"F16|Q8_0|Q4_0|Q5_0|Q4_K|Q6_K FILE\n");
		return LAP_USAGE;
	}
	add_all(&m, weight);
	enum lap_status status = write_model(&m, argv[2], argv[3], &err);
	if (status)
		fprintf(stderr, "random-model: %s\n", err.text);
	return (int)status;
}
