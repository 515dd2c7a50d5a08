/* Arithmetic and checks that both samplers share: sampler.c, the twin of the shader, and
 * sampler_chain.c.
 *
 * Owns the floats as a device sees them (subnormal ones count as 0, infinities and NaN are recognised
 * by their bits) and the fixed-point shares of a mass. For files of the sampler's room alone. */
#ifndef LAPILLI_SAMPLER_MATH_H
#define LAPILLI_SAMPLER_MATH_H

#include <math.h>
#include <string.h>

#include "args.h"
#include "base.h"

#define SIGN_BIT      0x80000000u
#define INFINITY_BITS 0x7f800000u /* also the mask of the exponent */

static inline uint32_t float_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

/* Subnormal numbers and -0 become 0. */
static inline float tidy(float f)
{
	return (float_bits(f) & INFINITY_BITS) == 0 ? 0.0f : f;
}

/* Unsigned numbers in the order of the floats. */
static inline uint32_t ordered_key(float f)
{
	uint32_t bits = float_bits(f);
	return bits & SIGN_BIT ? ~bits : bits | SIGN_BIT;
}

static inline bool is_forbidden(float f)
{
	return float_bits(f) == (SIGN_BIT | INFINITY_BITS);
}

/* NaN or +infinity: no logit. */
static inline bool is_no_logit(float f)
{
	uint32_t bits = float_bits(f);
	return (bits & ~SIGN_BIT) > INFINITY_BITS || bits == INFINITY_BITS;
}

static inline enum lap_status check_range(
	const char *name, float value, float low, float high, struct lap_error *err)
{
	if (value >= low && value <= high)
		return LAP_OK;
	return fail(err, LAP_USAGE, "%s is %g, expected a number from %g to %g", name,
		(double)value, (double)low, (double)high);
}

static inline enum lap_status check_number(const char *name, float value, struct lap_error *err)
{
	if (isfinite(value))
		return LAP_OK;
	return fail(err, LAP_USAGE, "%s is %g, expected a finite number", name, (double)value);
}

/* What logits are multiplied with at a temperature above 0. */
static inline float temperature_scale(float temperature)
{
	const float least = 1e-9f, most = 1e9f;
	return fminf(fmaxf(1.0f / temperature, least), most);
}

static inline float penalise(const struct sequence *s, float logit, uint32_t count)
{
	logit = tidy(logit);
	if (count == 0 || is_forbidden(logit))
		return logit;
	logit = tidy(logit * (logit > 0.0f ? s->inv_repeat_penalty : s->repeat_penalty));
	float per_token = s->frequency_penalty * (float)count;
	float subtract = per_token + s->presence_penalty;
	return tidy(logit - subtract);
}

/* 0 < p < 1 in units of 2^-32, at least one of them. */
static inline uint32_t share_of(float p)
{
	double share = nearbyint((double)p * 0x1p32); /* at most 2^32 - 256 */
	return share < 1.0 ? 1 : (uint32_t)share;
}

/* mass * share / 2^32, rounded up. */
static inline uint64_t mass_share(uint64_t mass, uint32_t share)
{
	uint64_t low = (mass & UINT32_MAX) * share;
	return (mass >> 32) * share + (low >> 32) + ((uint32_t)low != 0);
}

/* (high * 2^32 + low) * n / 2^64, rounded down: uniform in [0, n) for a uniform 64-bit number. */
static inline uint64_t scale_random(uint32_t high, uint32_t low, uint64_t n)
{
	uint32_t n_high = (uint32_t)(n >> 32), n_low = (uint32_t)n;
	uint64_t middle_a = (uint64_t)high * n_low, middle_b = (uint64_t)low * n_high;
	uint64_t carry = ((uint64_t)low * n_low >> 32) + (uint32_t)middle_a + (uint32_t)middle_b;
	return (uint64_t)high * n_high + (middle_a >> 32) + (middle_b >> 32) + (carry >> 32);
}

#endif
