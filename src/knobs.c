/* The list of knobs: see knobs.h. */
#include "knobs.h"

#include <assert.h>
#include <string.h>

static const struct knob knobs[] = {
#define KNOB(kernel, build, name, id, usual, shared, ...) \
	{KERNEL_##kernel, #build, #name, id, usual, shared, {__VA_ARGS__}},
#include "knobs.def"
#undef KNOB
};

const struct knob *kernel_knobs(enum kernel kernel, uint32_t *n)
{
	const struct knob *first = NULL;
	*n = 0;
	for (size_t i = 0; i < ARRAY_COUNT(knobs); i++)
		if (knobs[i].kernel == kernel) {
			first = first ? first : &knobs[i];
			++*n;
		}
	assert(*n <= MAX_KNOBS);
	return first;
}

uint32_t *knob_value(enum kernel kernel, uint32_t values[MAX_KNOBS], const char *name)
{
	uint32_t n;
	const struct knob *list = kernel_knobs(kernel, &n);
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(list[i].name, name) == 0)
			return &values[i];
	return NULL;
}

/* Those that a kernel takes with these values. */
static uint64_t shared_bytes(enum kernel kernel, const uint32_t *values)
{
	uint32_t n;
	uint64_t sum = 0, times = 1;
	const struct knob *list = kernel_knobs(kernel, &n);
	for (uint32_t i = 0; i < n; i++) {
		sum += (uint64_t)values[i] * list[i].shared_bytes;
		if (strcmp(list[i].name, "UNITS") == 0 && values[i])
			times = values[i];
	}
	return sum * times + (kernel_info(kernel)->per_weight ? MAX_CODEBOOK_BYTES : 0);
}

bool knobs_fit(enum kernel kernel, const uint32_t *values, uint32_t max_lanes, uint32_t subgroup,
	uint32_t max_shared_bytes)
{
	uint32_t n;
	const struct knob *list = kernel_knobs(kernel, &n);
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(list[i].name, "LANES") != 0 || values[i] == list[i].usual)
			continue;
		if (values[i] > max_lanes || values[i] < subgroup)
			return false;
	}
	return shared_bytes(kernel, values) <= max_shared_bytes;
}

static uint32_t n_values(const struct knob *knob)
{
	uint32_t n = 0;
	while (n < MAX_KNOB_VALUES && knob->values[n])
		n++;
	return n;
}

bool knobs_next(enum kernel kernel, uint32_t values[MAX_KNOBS])
{
	uint32_t n;
	const struct knob *list = kernel_knobs(kernel, &n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = 0, end = n_values(&list[i]);
		while (at < end && list[i].values[at] != values[i])
			at++;
		if (at + 1 < end) {
			values[i] = list[i].values[at + 1];
			return true;
		}
		values[i] = list[i].values[0];
	}
	return false;
}

bool knobs_print(enum kernel kernel, const uint32_t *values, struct text *text)
{
	uint32_t n;
	const struct knob *list = kernel_knobs(kernel, &n);
	const char *before = "";
	bool ok = true;
	for (uint32_t i = 0; i < n && ok; i++) {
		if (values[i] == 0)
			continue;
		ok = text_printf(text, "%s%s=%u", before, list[i].name, (unsigned)values[i]);
		before = " ";
	}
	return ok;
}
