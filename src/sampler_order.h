/* The order in which a token is drawn, and who can draw in it.
 *
 * Owns the names of the steps, the usual orders, and what the recorded step is able to do.  Knows no
 * logits. */
#ifndef LAPILLI_SAMPLER_ORDER_H
#define LAPILLI_SAMPLER_ORDER_H

#include "args.h"
#include "base.h"

enum sampler_step {
	STEP_PENALTIES,
	STEP_DRY,
	STEP_TOP_N_SIGMA,
	STEP_TOP_K,
	STEP_TYPICAL_P,
	STEP_TOP_P,
	STEP_MIN_P,
	STEP_XTC,
	STEP_TEMPERATURE,
	N_SAMPLER_STEPS
};

struct sampler_order {
	enum sampler_step steps[N_SAMPLER_STEPS];
	uint32_t n;
};

/* The steps that `samplers` of struct lap_sampling names.  LAP_USAGE, with the names there are, for one that
 * there is not, and for one named twice. */
enum lap_status sampler_order_parse(
	const char *samplers, struct sampler_order *o, struct lap_error *err);

/* False when the step would change nothing, with these parameters. */
bool sampler_step_is_on(const struct lap_sampling *s, enum sampler_step step);

/* ---- which of the two samplers ---- */

/* False when the recorded step can do all that is asked: the steps that have something to do are
 * penalties, top_k, top_p and min_p in this order, temperature stands before or behind both top_p and
 * min_p, and no more than MAX_BIAS logits are biased.  True too for parameters that sampler_chain_create
 * refuses. */
bool sampler_chain_needed(const struct lap_sampling *sampling);

/* What the recorded step is to be given then: the steps that the order does not name are off.
 * *temperature_last: top_p and min_p look at probabilities at temperature 1. */
struct lap_sampling sampler_chain_step(const struct lap_sampling *sampling, bool *temperature_last);

#endif
