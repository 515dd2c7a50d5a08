/* Orders as text, and the rules of the recorded step. */
#include "sampler_order.h"

#include <string.h>

/* ---- order ----------------------------------------------------------------------------------- */

static const struct {
	const char *name, *also, *short_name; /* as llama.cpp has it too */
} step_names[N_SAMPLER_STEPS] = {
	[STEP_PENALTIES] = {"penalties", NULL, NULL},
	[STEP_DRY] = {"dry", NULL, NULL},
	[STEP_TOP_N_SIGMA] = {"top_n_sigma", "top-n-sigma", NULL},
	[STEP_TOP_K] = {"top_k", "top-k", NULL},
	[STEP_TYPICAL_P] = {"typical_p", "typ_p", "typical"},
	[STEP_TOP_P] = {"top_p", "top-p", NULL},
	[STEP_MIN_P] = {"min_p", "min-p", NULL},
	[STEP_XTC] = {"xtc", NULL, NULL},
	[STEP_TEMPERATURE] = {"temperature", "temp", NULL},
};

static bool is_word(const char *text, size_t n, const char *word)
{
	return word && strlen(word) == n && !strncmp(text, word, n);
}

static enum sampler_step step_named(const char *text, size_t n)
{
	unsigned i = 0;
	while (i < N_SAMPLER_STEPS && !is_word(text, n, step_names[i].name) &&
		!is_word(text, n, step_names[i].also) &&
		!is_word(text, n, step_names[i].short_name))
		i++;
	return (enum sampler_step)i;
}

static bool order_has(const struct sampler_order *o, enum sampler_step step, uint32_t *at)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (o->steps[i] == step) {
			*at = i;
			return true;
		}
	return false;
}

static const char *order_text(const char *samplers)
{
	if (!samplers || !*samplers)
		return "penalties;dry;temperature;top_n_sigma;top_k;top_p;min_p;typical_p;xtc";
	if (!strcmp(samplers, "hf"))
		return "penalties;temperature;top_k;top_p;min_p";
	if (!strcmp(samplers, "llama.cpp"))
		return "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
	return samplers;
}

enum lap_status sampler_order_parse(
	const char *samplers, struct sampler_order *o, struct lap_error *err)
{
	*o = (struct sampler_order){0};
	const char *at = order_text(samplers);
	for (size_t n; *at; at += n + (at[n] == ';')) {
		n = strcspn(at, ";");
		const char *name = at + strspn(at, " ");
		size_t n_name = name < at + n ? (size_t)(at + n - name) : 0;
		while (n_name && name[n_name - 1] == ' ')
			n_name--;
		if (n_name == 0)
			continue;
		enum sampler_step step = step_named(name, n_name);
		uint32_t before;
		if (step == N_SAMPLER_STEPS)
			return fail(err, LAP_USAGE,
				"samplers has \"%.*s\", expected names out of penalties, dry, "
				"top_n_sigma, top_k, typical_p, top_p, min_p, xtc, temperature "
				"with ; between them, or hf, or llama.cpp",
				(int)(n_name < 64 ? n_name : 64), name);
		if (order_has(o, step, &before))
			return fail(err, LAP_USAGE, "samplers has %s twice, expected it once",
				step_names[step].name);
		o->steps[o->n++] = step;
	}
	return LAP_OK;
}

/* ---- which of the two samplers --------------------------------------------------------------- */

static bool has_penalties(const struct lap_sampling *s)
{
	bool any = (s->repeat_penalty != 0 && s->repeat_penalty != 1) || s->presence_penalty != 0 ||
		s->frequency_penalty != 0;
	return any && s->repeat_last_n != 0;
}

bool sampler_step_is_on(const struct lap_sampling *s, enum sampler_step step)
{
	switch (step) {
	case STEP_PENALTIES:
		return has_penalties(s);
	case STEP_DRY:
		return s->dry_multiplier != 0 && s->dry_penalty_last_n != 0;
	case STEP_TOP_N_SIGMA:
		return s->top_n_sigma > 0;
	case STEP_TOP_K:
		return s->top_k > 0;
	case STEP_TYPICAL_P:
		return s->typical_p > 0 && s->typical_p < 1;
	case STEP_TOP_P:
		return s->top_p < 1;
	case STEP_MIN_P:
		return s->min_p > 0;
	case STEP_XTC:
		return s->xtc_probability > 0 && s->xtc_threshold <= 0.5f;
	case STEP_TEMPERATURE:
		return s->temperature != 1 || s->dynatemp_range > 0;
	case N_SAMPLER_STEPS:
		break;
	}
	return false;
}

/* Where a step that has something to do stands; `otherwise` for others. */
static int place(const struct lap_sampling *s, const struct sampler_order *o,
	enum sampler_step step, int otherwise)
{
	uint32_t at;
	return sampler_step_is_on(s, step) && order_has(o, step, &at) ? (int)at : otherwise;
}

/* True when the steps are in the order of the recorded step, temperature before or behind. */
static bool order_is_recorded(const struct lap_sampling *s, const struct sampler_order *o)
{
	static const enum sampler_step others[] = {
		STEP_DRY, STEP_TOP_N_SIGMA, STEP_TYPICAL_P, STEP_XTC};
	for (size_t i = 0; i < ARRAY_COUNT(others); i++)
		if (place(s, o, others[i], -1) >= 0)
			return false;
	static const enum sampler_step cuts[] = {STEP_TOP_K, STEP_TOP_P, STEP_MIN_P};
	int penalties = place(s, o, STEP_PENALTIES, -1);
	int temperature = place(s, o, STEP_TEMPERATURE, N_SAMPLER_STEPS);
	int last = penalties;
	for (size_t i = 0; i < ARRAY_COUNT(cuts); i++) {
		int at = place(s, o, cuts[i], last);
		if (at < last)
			return false;
		last = at;
	}
	/* Whether penalties come first matters for the temperature as for cuts; top_k alone does not care
	 * where the temperature is. */
	int top_p = place(s, o, STEP_TOP_P, -1), min_p = place(s, o, STEP_MIN_P, -1);
	bool between = top_p >= 0 && min_p >= 0 && top_p < temperature && temperature < min_p;
	return penalties < temperature && !between;
}

bool sampler_chain_needed(const struct lap_sampling *s)
{
	struct sampler_order order;
	return sampler_order_parse(s->samplers, &order, NULL) || s->mirostat ||
		s->dynatemp_range > 0 || s->min_keep > 1 || s->n_logit_bias > MAX_BIAS ||
		!order_is_recorded(s, &order);
}

struct lap_sampling sampler_chain_step(const struct lap_sampling *sampling, bool *temperature_last)
{
	struct lap_sampling s = *sampling;
	struct sampler_order order;
	*temperature_last = false;
	if (sampler_order_parse(s.samplers, &order, NULL))
		return s;
	uint32_t at, temperature = 0;
	if (!order_has(&order, STEP_PENALTIES, &at)) {
		s.repeat_penalty = 1;
		s.presence_penalty = s.frequency_penalty = 0;
	}
	if (!order_has(&order, STEP_TEMPERATURE, &temperature) && s.temperature > 0)
		s.temperature = 1;
	if (!order_has(&order, STEP_TOP_K, &at))
		s.top_k = 0;
	if (!order_has(&order, STEP_TOP_P, &at))
		s.top_p = 1;
	else if (s.top_p < 1)
		*temperature_last = at < temperature;
	if (!order_has(&order, STEP_MIN_P, &at))
		s.min_p = 0;
	else if (s.min_p > 0)
		*temperature_last = at < temperature;
	return s;
}
