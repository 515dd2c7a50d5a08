/* Breakers by the pieces of a vocabulary: whole in one token, or the end of one and the tokens behind. */
#include "breakers.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 40, MAX_SEQUENCE = 20 };

static bool contains(const char *piece, size_t n_piece, const char *text, size_t n)
{
	for (size_t i = 0; i + n <= n_piece; i++)
		if (!memcmp(piece + i, text, n))
			return true;
	return false;
}

/* The tokens of a text in the middle of another: some tokenizers put a space before what begins a text, so
 * that a newline is put before it, and taken off again where it stayed a token of its own. */
static enum lap_status encode_rest(const struct tokenizer *t, const char *text, size_t n_bytes,
	uint32_t out[MAX_SEQUENCE], uint32_t *n_out, struct lap_error *err)
{
	bool prefixed = tokenizer_info(t)->add_space_prefix;
	char line[1 + MAX_BYTES] = "\n";
	int32_t *tokens;
	size_t n, first = 0, n_piece = 0;
	memcpy(line + prefixed, text, n_bytes);
	enum lap_status status =
		tokenizer_encode(t, line, n_bytes + prefixed, false, false, &tokens, &n, err);
	*n_out = 0;
	if (status) /* LAP_USAGE: the vocabulary cannot spell it */
		return status == LAP_USAGE ? LAP_OK : status;
	while (prefixed && first < n) { /* up to and with the newline */
		const char *piece = tokenizer_piece(t, tokens[first++], true, &n_piece);
		if (n_piece && piece[n_piece - 1] == '\n')
			break;
	}
	for (size_t i = first; i < n && *n_out < MAX_SEQUENCE - 1; i++)
		out[(*n_out)++] = (uint32_t)tokens[i];
	free(tokens);
	return LAP_OK;
}

enum lap_status breakers_find(const struct tokenizer *t, const char *text, breaker_fn *fn,
	void *user, struct lap_error *err)
{
	uint32_t rest[MAX_BYTES][MAX_SEQUENCE], n_rest[MAX_BYTES] = {0};
	size_t n = strlen(text);
	n = n < MAX_BYTES ? n : MAX_BYTES;
	enum lap_status status = LAP_OK;
	for (size_t i = 1; i < n && !status; i++)
		status = encode_rest(t, text + i, n - i, rest[i] + 1, &n_rest[i], err);
	for (uint32_t token = 0; token < tokenizer_info(t)->n_vocab && n > 0 && !status; token++) {
		size_t n_piece;
		const char *piece = tokenizer_piece(t, (int32_t)token, true, &n_piece);
		if (contains(piece, n_piece, text, n)) {
			status = fn(user, &token, 1, err);
			continue;
		}
		for (size_t i = 1; i < n && i <= n_piece && !status; i++)
			if (n_rest[i] && !memcmp(piece + n_piece - i, text, i)) {
				rest[i][0] = token;
				status = fn(user, rest[i], 1 + n_rest[i], err);
			}
	}
	return status;
}

static enum lap_status add(void *user, const uint32_t *tokens, uint32_t n, struct lap_error *err)
{
	return sampler_chain_add_breaker(user, tokens, n, err);
}

enum lap_status breakers_add(struct sampler_chain *chain, const struct tokenizer *t,
	const struct lap_sampling *sampling, struct lap_error *err)
{
	static const char *const usual[] = {"\n", ":", "\"", "*"};
	const char *const *texts = sampling->dry_breakers ? sampling->dry_breakers : usual;
	size_t n = sampling->dry_breakers ? sampling->n_dry_breakers : ARRAY_COUNT(usual);
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < n && sampling->dry_multiplier != 0 && !status; i++)
		status = breakers_find(t, texts[i], add, chain, err);
	return status;
}
