/* Repetitions by the Z-function of the reversed window. */
#include "sampler_dry.h"

#include <stdlib.h>
#include <string.h>

struct dry_span {
	uint32_t start, n; /* in tokens */
	uint32_t next;     /* 1 + index of an older span with the same first token; 0: none */
};

/* Room for `needed` elements of `size` bytes. */
static bool reserve(void **data, uint32_t *capacity, uint64_t needed, size_t size)
{
	if (needed <= *capacity)
		return true;
	uint64_t more = needed < 64 ? 64 : 2 * needed, n_bytes;
	void *grown = more <= UINT32_MAX && size_mul(more, size, &n_bytes) ? realloc(*data, n_bytes)
									   : NULL;
	if (!grown)
		return false;
	*data = grown;
	*capacity = (uint32_t)more;
	return true;
}

enum lap_status dry_breakers_add(struct dry_breakers *b, const uint32_t *tokens, uint32_t n,
	uint32_t n_vocab, struct lap_error *err)
{
	if (!b->first)
		b->first = array_alloc(n_vocab, sizeof *b->first);
	void *spans = b->spans, *all = b->tokens;
	bool fits = b->first &&
		reserve(&spans, &b->spans_capacity, (uint64_t)b->n_spans + 1, sizeof *b->spans);
	b->spans = spans;
	fits = fits &&
		reserve(&all, &b->tokens_capacity, (uint64_t)b->n_tokens + n, sizeof *b->tokens);
	b->tokens = all;
	if (!fits)
		return fail_memory(err, "the sequence breakers", n_vocab * sizeof *b->first);
	b->spans[b->n_spans++] = (struct dry_span){b->n_tokens, n, b->first[tokens[0]]};
	b->first[tokens[0]] = b->n_spans;
	memcpy(b->tokens + b->n_tokens, tokens, n * sizeof *tokens);
	b->n_tokens += n;
	return LAP_OK;
}

enum lap_status dry_breakers_copy(struct dry_breakers *out, const struct dry_breakers *b,
	uint32_t n_vocab, struct lap_error *err)
{
	*out = (struct dry_breakers){0};
	enum lap_status status = LAP_OK;
	for (uint32_t i = 0; i < b->n_spans && !status; i++)
		status = dry_breakers_add(
			out, b->tokens + b->spans[i].start, b->spans[i].n, n_vocab, err);
	if (status)
		dry_breakers_free(out);
	return status;
}

void dry_breakers_free(struct dry_breakers *b)
{
	free(b->first);
	free(b->tokens);
	free(b->spans);
	*b = (struct dry_breakers){0};
}

/* ---- matching -------------------------------------------------------------------------------- */

uint32_t dry_limit(const struct dry_breakers *b, const uint32_t *tokens, uint32_t n)
{
	if (!b->first)
		return n;
	for (uint32_t n_behind = 1; n_behind <= n; n_behind++) {
		const uint32_t *at = tokens + n - n_behind;
		uint32_t longest = 0;
		for (uint32_t i = b->first[*at]; i; i = b->spans[i - 1].next) {
			const struct dry_span *span = &b->spans[i - 1];
			if (span->n <= n_behind && span->n > longest &&
				!memcmp(at, b->tokens + span->start, span->n * sizeof *at))
				longest = span->n;
		}
		if (longest)
			return n_behind - longest;
	}
	return n;
}

void dry_lengths(
	const uint32_t *tokens, uint32_t n, uint32_t limit, uint32_t *length, uint32_t *work)
{
	/* work[i]: how far the tokens before and at i, read backwards, equal those at the end: i counts
	 * from the end.  [left, right) is the match that reaches furthest (Gusfield 1997, Z algorithm). */
	uint32_t left = 0, right = 0;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t z = i < right ? work[i - left] : 0;
		if (i < right && z > right - i)
			z = right - i;
		while (i + z < n && tokens[n - 1 - z] == tokens[n - 1 - i - z])
			z++;
		if (i + z > right) {
			left = i;
			right = i + z;
		}
		work[i] = z;
		length[n - 1 - i] = z < limit ? z : limit;
	}
}
