/* Options into struct lap_sampling. */
#include "sampling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "source.h"

/* "15043+1", "15043-0.5", "15043-inf" */
static bool parse_bias(const char *text, struct lap_logit_bias *bias)
{
	char *sign, *end;
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	long long token = strtoll(text, &sign, 10);
	if (errno || token > INT32_MAX || (*sign != '+' && *sign != '-'))
		return false;
	bool infinite = strcmp(sign, "-inf") == 0;
	if (!infinite &&
		(!sign[1] || strchr("+-", sign[1]) ||
			sign[1 + strspn(sign + 1, "0123456789.+-eE")]))
		return false;
	float value = strtof(sign, &end);
	if (end == sign || *end || (!infinite && !isfinite(value)))
		return false;
	*bias = (struct lap_logit_bias){(int32_t)token, value};
	return true;
}

static enum lap_status take_biases(
	const struct text_list *list, struct sampling *s, struct lap_error *err)
{
	s->bias = array_alloc(list->n + 1, sizeof *s->bias);
	if (!s->bias)
		return fail_memory(err, "the logit biases", list->n * sizeof *s->bias);
	for (size_t i = 0; i < list->n; i++)
		if (!parse_bias(list->texts[i], &s->bias[i]))
			return fail(err, LAP_USAGE,
				"--logit-bias: found \"%.40s\", expected a token id, + or -, and a "
				"number, or -inf",
				list->texts[i]);
	s->p.logit_bias = s->bias;
	s->p.n_logit_bias = list->n;
	return LAP_OK;
}

static enum lap_status take_breakers(
	const struct options *o, struct sampling *s, struct lap_error *err)
{
	const struct text_list *list = &o->dry_breakers;
	if (list->n == 0)
		return LAP_OK;
	s->p.dry_breakers = list->texts;
	s->p.n_dry_breakers = list->n;
	if (list->n == 1 && !strcmp(list->texts[0], "none"))
		s->p.n_dry_breakers = 0;
	if (!o->escape)
		return LAP_OK;
	enum lap_status status = source_unescape_list(list, &s->breakers, err);
	s->n_breakers = list->n;
	s->p.dry_breakers = (const char *const *)s->breakers;
	return status;
}

enum lap_status sampling_from_options(
	const struct options *o, struct sampling *s, struct lap_error *err)
{
	*s = (struct sampling){.p = {
				       .temperature = (float)o->temperature,
				       .top_k = (int32_t)o->top_k,
				       .top_p = (float)o->top_p,
				       .min_p = (float)o->min_p,
				       .repeat_penalty = (float)o->repeat_penalty,
				       .presence_penalty = (float)o->presence_penalty,
				       .frequency_penalty = (float)o->frequency_penalty,
				       .repeat_last_n = (int32_t)o->repeat_last_n,
				       .seed = o->seed < 0 ? LAP_SEED_RANDOM : (uint64_t)o->seed,
				       .samplers = o->samplers,
				       .typical_p = (float)o->typical_p,
				       .top_n_sigma = (float)o->top_n_sigma,
				       .xtc_probability = (float)o->xtc_probability,
				       .xtc_threshold = (float)o->xtc_threshold,
				       .dry_multiplier = (float)o->dry_multiplier,
				       .dry_base = (float)o->dry_base,
				       .dry_allowed_length = (uint32_t)o->dry_allowed_length,
				       .dry_penalty_last_n = (int32_t)o->dry_penalty_last_n,
				       .mirostat = o->mirostat ? 2 : 0,
				       .mirostat_tau = (float)o->mirostat_tau,
				       .mirostat_eta = (float)o->mirostat_eta,
				       .dynatemp_range = (float)o->dynatemp_range,
				       .dynatemp_exponent = (float)o->dynatemp_exponent,
			       }};
	enum lap_status status = take_biases(&o->logit_bias, s, err);
	return status ? status : take_breakers(o, s, err);
}

void sampling_release(struct sampling *s)
{
	source_free_list(s->breakers, s->n_breakers);
	free(s->bias);
	*s = (struct sampling){0};
}
