/* Loads and stores of cache elements: see kv.h. */
#include "kv.h"
#include "weight.h"

#include <assert.h>
#include <math.h>
#include <string.h>

uint64_t kv_bytes(enum kv_type type, uint64_t n)
{
	switch (type) {
	case KV_F16:
		return 2 * n;
	case KV_F32:
		return 4 * n;
	case KV_Q8_0:
		return n / KV_UNIT * KV_Q8_0_WORDS * 4;
	case KV_Q4_0:
		return n / KV_UNIT * KV_Q4_0_WORDS * 4;
	}
	assert(false && "every type has its size");
	return 0;
}

/* ---- units of 32 ---- */

static void unit_load(enum kv_type type, const uint32_t *words, float values[KV_UNIT])
{
	float d;
	memcpy(&d, words, sizeof d);
	for (uint32_t i = 0; i < KV_UNIT; i++) {
		int32_t q = type == KV_Q8_0 ? (int8_t)(words[1 + i / 4] >> i % 4 * 8)
					    : (int32_t)(words[1 + i / 8] >> i % 8 * 4 & 15) - 8;
		values[i] = d * (float)q;
	}
}

static float unit_scale(enum kv_type type, const float values[KV_UNIT])
{
	float largest = 0;
	for (uint32_t i = 0; i < KV_UNIT; i++)
		if (fabsf(values[i]) > fabsf(largest))
			largest = values[i];
	return type == KV_Q8_0 ? fabsf(largest) / 127 : largest / -8;
}

static void unit_store(enum kv_type type, uint32_t *words, const float values[KV_UNIT])
{
	float d = unit_scale(type, values), inverse = d != 0 ? 1 / d : 0;
	memset(words, 0, (size_t)kv_bytes(type, KV_UNIT));
	memcpy(words, &d, sizeof d);
	for (uint32_t i = 0; i < KV_UNIT; i++) {
		/* fmin and fmax also make a number of a NaN, which no integer could hold */
		if (type == KV_Q8_0) {
			float q = fmaxf(-127, fminf(127, rintf(values[i] * inverse)));
			words[1 + i / 4] |= ((uint32_t)(int32_t)q & 0xFF) << i % 4 * 8;
		} else {
			float q = fmaxf(0, fminf(15, floorf(values[i] * inverse + 8.5f)));
			words[1 + i / 8] |= (uint32_t)q << i % 8 * 4;
		}
	}
}

/* ---- any type ---- */

void kv_load(enum kv_type type, const void *cache, size_t first, uint32_t n, float *values)
{
	const uint8_t *at = (const uint8_t *)cache + kv_bytes(type, first);
	if (type == KV_F32) {
		memcpy(values, at, n * sizeof *values);
		return;
	}
	if (type == KV_F16) {
		for (uint32_t i = 0; i < n; i++)
			values[i] = half_to_float(((const uint16_t *)(const void *)at)[i]);
		return;
	}
	assert(first % KV_UNIT == 0 && n % KV_UNIT == 0);
	for (uint32_t i = 0; i < n; i += KV_UNIT)
		unit_load(
			type, (const uint32_t *)(const void *)(at + kv_bytes(type, i)), values + i);
}

void kv_store(enum kv_type type, void *cache, size_t first, uint32_t n, const float *values)
{
	uint8_t *at = (uint8_t *)cache + kv_bytes(type, first);
	if (type == KV_F32) {
		memcpy(at, values, n * sizeof *values);
		return;
	}
	if (type == KV_F16) {
		for (uint32_t i = 0; i < n; i++)
			((uint16_t *)(void *)at)[i] = float_to_half(values[i]);
		return;
	}
	assert(first % KV_UNIT == 0 && n % KV_UNIT == 0);
	for (uint32_t i = 0; i < n; i += KV_UNIT)
		unit_store(type, (uint32_t *)(void *)(at + kv_bytes(type, i)), values + i);
}
