/* How far the probabilities of one model are from those of another, called the base, token by token. */
#ifndef LAPILLI_DIVERGENCE_H
#define LAPILLI_DIVERGENCE_H

#include <jansson.h>

#include "base.h"
#include "sample.h"

/* Zeroed is empty; release with divergence_free. */
struct divergence {
	struct sample base_nll, nll; /* -ln p of the text's token */
	struct sample ln_ratio;      /* nll - base_nll */
	struct sample same_top;      /* 1 where both find the same token likeliest, else 0 */
	struct figures kl;           /* sum of p_base ln(p_base / p), in nats */
	struct figures change;       /* p - p_base of the text's token */
};

/* A row of logits, or of log-probabilities, with what has to be subtracted to make it the latter. */
struct row {
	const float *values; /* [n_vocab] */
	double log_sum;
};

/* The next token of the text is `token`. Terms of the divergence whose p_base is not above e^least are
 * left out: a file of 16-bit codes does not know them. False: out of memory. */
bool divergence_add(struct divergence *d, const struct row *base, double least,
	const struct row *row, uint32_t n_vocab, int32_t token);

void divergence_print(struct divergence *d);
json_t *divergence_json(struct divergence *d);
void divergence_free(struct divergence *d);

#endif
