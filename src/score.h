/* What scoring is made of: the one way to a row of logits, and the sum that makes them probabilities. */
#ifndef LAPILLI_SCORE_H
#define LAPILLI_SCORE_H

#include <stddef.h>
#include <stdint.h>

/* Where row i begins in logits[][n_vocab].  Rows times vocabulary pass 2^31 with models in use (16,384 x
 * 131,076): the product is one of size_t. */
static inline size_t logits_offset(uint32_t n_vocab, size_t i)
{
	return i * n_vocab;
}

static inline const float *logits_row(const float *logits, uint32_t n_vocab, size_t i)
{
	return logits + logits_offset(n_vocab, i);
}

/* log of the sum of e^logit, so that a log-probability is a logit minus it; NaN when a logit is a NaN or
 * +infinity, or none is above -infinity. */
double logits_log_sum(const float *logits, uint32_t n_vocab);

#endif
