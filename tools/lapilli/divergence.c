/* Two models compared by their probabilities: see divergence.h. */
#include "divergence.h"

#include <math.h>

#include "console.h"

/* Of equal ones the lowest token, as a greedy draw takes it. */
static uint32_t top_of(const float *values, uint32_t n)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < n; i++)
		if (values[i] > values[best])
			best = i;
	return best;
}

static double divergence_of(
	const struct row *base, double least, const struct row *row, uint32_t n_vocab)
{
	double sum = 0;
	for (uint32_t i = 0; i < n_vocab; i++) {
		const double log_p = (double)base->values[i] - base->log_sum;
		const double log_q = (double)row->values[i] - row->log_sum;
		if (log_p > least)
			sum += (double)expf((float)log_p) * (log_p - log_q);
	}
	return sum;
}

bool divergence_add(struct divergence *d, const struct row *base, double least,
	const struct row *row, uint32_t n_vocab, int32_t token)
{
	const double log_p = (double)base->values[token] - base->log_sum;
	const double log_q = (double)row->values[token] - row->log_sum;
	sample_add(&d->base_nll, -log_p);
	sample_add(&d->nll, -log_q);
	sample_add(&d->ln_ratio, log_p - log_q);
	sample_add(&d->same_top,
		top_of(base->values, n_vocab) == top_of(row->values, n_vocab) ? 1 : 0);
	return figures_add(&d->change, exp(log_q) - exp(log_p)) &&
		figures_add(&d->kl, divergence_of(base, least, row, n_vocab));
}

/* ---- what is said ---------------------------------------------------------------------------- */

static double root_mean_square(const struct sample *s)
{
	return s->n > 0 ? sqrt(s->squares / s->n + s->mean * s->mean) : 0;
}

void divergence_print(struct divergence *d)
{
	const double base = exp(d->base_nll.mean), own = exp(d->nll.mean);
	struct figures *kl = &d->kl;
	out_printf("perplexity     %.4f +/- %.5f, of the base %.4f +/- %.5f\n", own,
		own * sample_error(&d->nll), base, base * sample_error(&d->base_nll));
	out_printf("ratio          %.6f, ln of it %.6f +/- %.6f\n", exp(d->ln_ratio.mean),
		d->ln_ratio.mean, sample_error(&d->ln_ratio));
	out_printf("KL divergence  %.6f +/- %.6f; median %.6f, 99 %% %.6f, 99.9 %% %.6f, largest "
		   "%.6f\n",
		kl->sample.mean, sample_error(&kl->sample), figures_quantile(kl, 0.5),
		figures_quantile(kl, 0.99), figures_quantile(kl, 0.999), figures_quantile(kl, 1));
	out_printf("change of p    %.4f +/- %.4f %%, root mean square %.4f %%\n",
		100 * d->change.sample.mean, 100 * sample_error(&d->change.sample),
		100 * root_mean_square(&d->change.sample));
	out_printf("same top       %.3f +/- %.3f %% of %.0f tokens\n", 100 * d->same_top.mean,
		100 * sample_error(&d->same_top), d->same_top.n);
}

json_t *divergence_json(struct divergence *d)
{
	struct figures *kl = &d->kl;
	json_t *json = json_pack("{s:f, s:f, s:f, s:f}", "base_perplexity", exp(d->base_nll.mean),
		"ln_ratio", d->ln_ratio.mean, "ln_ratio_error", sample_error(&d->ln_ratio),
		"same_top", d->same_top.mean);
	json_object_set_new(json, "same_top_error", json_real(sample_error(&d->same_top)));
	json_object_set_new(json, "kl_divergence", json_real(kl->sample.mean));
	json_object_set_new(json, "kl_divergence_error", json_real(sample_error(&kl->sample)));
	json_object_set_new(json, "kl_median", json_real(figures_quantile(kl, 0.5)));
	json_object_set_new(json, "kl_99", json_real(figures_quantile(kl, 0.99)));
	json_object_set_new(json, "kl_999", json_real(figures_quantile(kl, 0.999)));
	json_object_set_new(json, "kl_largest", json_real(figures_quantile(kl, 1)));
	json_object_set_new(json, "p_change", json_real(d->change.sample.mean));
	json_object_set_new(json, "p_change_rms", json_real(root_mean_square(&d->change.sample)));
	return json;
}

void divergence_free(struct divergence *d)
{
	figures_free(&d->kl);
	figures_free(&d->change);
}
