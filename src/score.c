/* How likely given tokens are: the logits after each of them, handed out in pieces, and log-probabilities.
 *
 * Owns the way from logits to a log-probability and the memory of one piece; what is scored, and what is
 * made of the figures, is the caller's. */
#include "score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

double logits_log_sum(const float *logits, uint32_t n_vocab)
{
	float most = -INFINITY;
	double sum = 0;
	for (uint32_t i = 0; i < n_vocab; i++) {
		if (!(logits[i] < INFINITY)) /* a NaN, too */
			return NAN;
		most = logits[i] > most ? logits[i] : most;
	}
	if (!(most > -INFINITY))
		return NAN;
	for (uint32_t i = 0; i < n_vocab; i++)
		sum += (double)expf(logits[i] - most);
	return (double)most + log(sum);
}

/* ---- pieces ---- */

enum lap_status lap_session_each_logits(struct lap_session *s, const int32_t *tokens, size_t n,
	size_t first, lap_logits_fn *fn, void *user, struct lap_error *err)
{
	struct timeline *t = &s->timelines[0];
	const size_t n_floats = (size_t)s->n_batch * s->m->info.n_vocab;
	if (!s->logits_all)
		return fail(err, LAP_USAGE, "the session was created without logits_all");
	if (n > s->n_ctx - t->n_past)
		return fail(err, LAP_USAGE,
			"%zu tokens do not fit in a context of %u with %u in use", n,
			(unsigned)s->n_ctx, (unsigned)t->n_past);
	enum lap_status status = session_check_tokens(s, tokens, n, err);
	if (status)
		return status;
	float *logits = array_alloc(n_floats, sizeof *logits);
	if (!logits)
		return fail_memory(err, "logits", n_floats * sizeof *logits);
	s->cancelled = 0;
	bool more = true;
	for (size_t i = 0; i < n && more && !status && !s->cancelled;) {
		const bool wanted = i >= first;
		const uint32_t n_left = (uint32_t)((wanted ? n : first < n ? first : n) - i);
		uint32_t n_done = 0;
		status = session_prefill_chunk(
			s, t, tokens + i, n_left, n_left, wanted ? logits : NULL, &n_done, err);
		if (!status && wanted)
			more = fn(user, i, n_done, logits);
		i += n_done;
	}
	free(logits);
	if (!status && s->cancelled)
		status = fail(err, LAP_ERROR, "cancelled");
	return status;
}

struct copied {
	float *logits;
	uint32_t n_vocab;
};

static bool copy_rows(void *user, size_t first, size_t n, const float *logits)
{
	const struct copied *c = user;
	memcpy(c->logits + logits_offset(c->n_vocab, first), logits,
		logits_offset(c->n_vocab, n) * sizeof *logits);
	return true;
}

enum lap_status lap_session_logits(struct lap_session *session, const int32_t *tokens, size_t n,
	float *logits, struct lap_error *err)
{
	struct copied c = {logits, session->m->info.n_vocab};
	return lap_session_each_logits(session, tokens, n, 0, copy_rows, &c, err);
}

/* ---- log-probabilities ---- */

struct scores {
	const int32_t *tokens;
	size_t n;
	uint32_t n_vocab;
	float *log_probs; /* [n - 1] */
	size_t bad;       /* how many tokens stand before logits that are no numbers; 0: none do */
};

static bool score_rows(void *user, size_t first, size_t n, const float *logits)
{
	struct scores *s = user;
	for (size_t i = 0; i < n && first + i + 1 < s->n; i++) {
		const float *row = logits_row(logits, s->n_vocab, i);
		const double log_sum = logits_log_sum(row, s->n_vocab);
		if (isnan(log_sum)) {
			s->bad = first + i + 1;
			return false;
		}
		s->log_probs[first + i] = (float)((double)row[s->tokens[first + i + 1]] - log_sum);
	}
	return true;
}

enum lap_status lap_session_score(struct lap_session *session, const int32_t *tokens, size_t n,
	float *log_probs, struct lap_error *err)
{
	struct scores s = {tokens, n, session->m->info.n_vocab, log_probs, 0};
	enum lap_status status =
		lap_session_each_logits(session, tokens, n, 0, score_rows, &s, err);
	if (!status && s.bad)
		status = fail(err, LAP_ERROR,
			"the logits after token %zu are not numbers: the weights are damaged, or "
			"this device computes wrong results (lapilli validate tells)",
			s.bad);
	return status;
}
