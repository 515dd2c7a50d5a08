/* libFuzzer target: any bytes as a text, and any bytes as a vocabulary.
 *
 * The first byte chooses.  A text goes through a small vocabulary of each family, whole and streamed,
 * and must come back byte for byte (but for WordPiece, which loses letters' case).  A vocabulary is a GGUF file; what tokenizer_create accepts must
 * encode and decode without a fault. */
#include <stdlib.h>
#include <string.h>

#include "../gguf_builder.h"
#include "tokenizer.h"

enum {
	most_text = 256,
	most_vocabulary = 2048
}; /* bytes: more costs time and shows nothing else */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct tokenizer *builder_open(struct builder *b)
{
	struct text file = builder_file(b);
	struct gguf *gguf;
	struct tokenizer *t;
	if (gguf_open(file.data, file.n, "made", &gguf, NULL) || tokenizer_create(gguf, &t, NULL))
		abort();
	gguf_close(gguf);
	text_free(&file);
	builder_free(b);
	return t;
}

/* All bytes as letters, a few merges, a control and a user-defined token. */
static void builder_byte_level(struct builder *b)
{
	enum { n_merged = 6, n_special = 2, n = 256 + n_merged + n_special };
	static const char *const others[] = {
		"ab", "abab", "\u0120a", "\u0120\u0120", "aa", "\u00E6\u0143", "<|x|>", "[y]"};
	static const char *const merges[] = {
		"a b", "ab ab", "\u0120 a", "\u0120 \u0120", "a a", "\u00E6 \u0143"};
	const char *tokens[n];
	char letters[256][4] = {{0}};
	int32_t types[n];
	uint32_t next = 256;
	for (uint32_t i = 0; i < 256; i++) {
		bool prints = (i >= 33 && i <= 126) || (i >= 161 && i != 173);
		letters[i][utf8_encode(prints ? i : next, letters[i])] = '\0';
		next += !prints;
		tokens[i] = letters[i];
	}
	for (uint32_t i = 0; i < n; i++)
		types[i] = i < n - n_special ? 1 : i == n - 1 ? 4 : 3;
	memcpy(tokens + 256, others, sizeof others);
	builder_string(b, "tokenizer.ggml.model", "gpt2");
	builder_string(b, "tokenizer.ggml.pre", "llama-bpe");
	builder_strings(b, "tokenizer.ggml.tokens", tokens, n);
	builder_i32s(b, "tokenizer.ggml.token_type", types, n);
	builder_strings(b, "tokenizer.ggml.merges", merges, ARRAY_COUNT(merges));
}

/* A few pieces, a control and a user-defined token. */
static void builder_wordpiece(struct builder *b)
{
	static const char *const tokens[] = {"[UNK]", "[CLS]", "\u2581a", "a", "ab", "\u2581ab",
		"\u2581", "b", "\u2581!", "\u2581\u4F60", "\u00DF", "[y]"};
	static const int32_t types[ARRAY_COUNT(tokens)] = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4};
	builder_string(b, "tokenizer.ggml.model", "bert");
	builder_strings(b, "tokenizer.ggml.tokens", tokens, ARRAY_COUNT(tokens));
	builder_i32s(b, "tokenizer.ggml.token_type", types, ARRAY_COUNT(types));
	builder_u32(b, "tokenizer.ggml.unknown_token_id", 0);
}

/* Ids of the text, decoded token by token; `exact`: they must give the text back. */
static void round_trip(
	const struct tokenizer *t, const char *text, size_t n, bool parse_special, bool exact)
{
	int32_t *ids;
	size_t n_ids;
	enum lap_status status =
		tokenizer_encode(t, text, n, false, parse_special, &ids, &n_ids, NULL);
	if (status) {
		if (exact || ids)
			abort();
		return;
	}
	struct decoder d = {.special = true};
	struct text out = {0};
	for (size_t i = 0; i < n_ids; i++) {
		if (ids[i] < 0 || (uint32_t)ids[i] >= tokenizer_info(t)->n_vocab)
			abort();
		if (!decoder_add(t, &d, ids[i], &out))
			abort();
	}
	if (!decoder_finish(&d, &out))
		abort();
	if (exact && (out.n != n || (n && memcmp(out.data, text, n) != 0)))
		abort();
	text_free(&out);
	free(ids);
}

static bool has_underline(const char *s, size_t n)
{
	for (size_t i = 0; i + 3 <= n; i++)
		if (memcmp(s + i, "\u2581", 3) == 0)
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct builder b;
	static struct tokenizer *spm, *bpe, *wordpiece, *characters;
	if (!spm) {
		builder_tiny_vocab(&b);
		spm = builder_open(&b);
		builder_byte_level(&b);
		bpe = builder_open(&b);
		builder_wordpiece(&b);
		wordpiece = builder_open(&b);
		builder_characters_vocab(&b);
		characters = builder_open(&b);
	}
	if (n == 0)
		return 0;
	const char *text = (const char *)data + 1;
	n--;
	if (data[0] % 4 == 0) {
		struct gguf *gguf;
		struct tokenizer *t;
		if (n > most_vocabulary || gguf_open(text, n, "fuzz", &gguf, NULL))
			return 0;
		static const char sample[] = "a b<s>ab \xE6\xAD\0 1234 \u4F60\n\n ";
		if (tokenizer_create(gguf, &t, NULL) == LAP_OK) {
			round_trip(t, sample, sizeof sample - 1, true, false);
			round_trip(t, sample, sizeof sample - 1, false, false);
			tokenizer_destroy(t);
		}
		gguf_close(gguf);
		return 0;
	}
	n = n < most_text ? n : most_text;
	round_trip(bpe, text, n, data[0] & 4, true);
	/* SPM and gemma4 write U+2581 as a space, and SPM puts one behind special tokens. */
	round_trip(spm, text, n, data[0] & 4, !(data[0] & 4) && !has_underline(text, n));
	round_trip(wordpiece, text, n, data[0] & 4, false);
	round_trip(characters, text, n, data[0] & 4, !has_underline(text, n));
	return 0;
}
