/* The windows in which a text is scored, each computed from an empty context: see docs/scoring.md.
 *
 * Owns what llama.cpp's users know of them: which tokens a window has, which of them are scored, and the
 * BOS in place of its first. Knows no probabilities. */
#ifndef LAPILLI_WINDOWS_H
#define LAPILLI_WINDOWS_H

#include "base.h"
#include "options.h"

struct windows {
	int32_t *tokens; /* [n_tokens], of the text */
	size_t n_tokens;
	uint32_t n;     /* windows */
	uint32_t n_ctx; /* tokens of one */
	uint32_t step;  /* tokens from the start of one to that of the next */
	uint32_t
		first; /* the logits after this token of a window are the first that are scored, those
	                   after the last but one the last */
	int32_t bos;   /* -1: windows keep their first token */
	int32_t *window; /* [n_ctx], of windows_get */
};

/* The text of -f, and how -c, --chunks and --ppl-stride cut it. LAP_USAGE: no text, or one too short;
 * says how many tokens it has and how many are needed. Release with windows_free. */
enum lap_status windows_open(const struct options *o, const struct lap_model *model,
	struct windows *w, struct lap_error *err);

/* Tokens that were cut into windows of n_ctx elsewhere: takes `tokens` over, on failure too. */
enum lap_status windows_take(const struct lap_model *model, int32_t *tokens, uint32_t n,
	uint32_t n_ctx, struct windows *w, struct lap_error *err);
void windows_free(struct windows *w);

/* The tokens of window i, until the next call. */
const int32_t *windows_get(struct windows *w, uint32_t i);

/* Tokens that one window scores. */
uint32_t windows_scored(const struct windows *w);

/* Creates the session that windows are computed in. Its context holds one. */
enum lap_status windows_session(const struct options *o, struct lap_model *model,
	const struct windows *w, struct lap_session **session, struct lap_error *err);

#endif
