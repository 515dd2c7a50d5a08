/* The choice of a device: see choose.h. */
#include "choose.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_INDEX 100 /* a number from here on may be a part of a name ("3090"), below it is none */

static const char duplicate_of[] = "the same device as ";

void devices_mark_duplicates(struct lap_device *devices, uint32_t n)
{
	static const uint8_t no_uuid[sizeof devices->uuid];
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t j = 0; j < i && !devices[i].refused[0]; j++)
			if (!devices[j].refused[0] &&
				memcmp(devices[i].uuid, no_uuid, sizeof no_uuid) != 0 &&
				memcmp(devices[i].uuid, devices[j].uuid, sizeof no_uuid) == 0)
				snprintf(devices[i].refused, sizeof devices[i].refused,
					"%s%u through another driver", duplicate_of,
					devices[j].index);
}

static uint32_t type_rank(enum lap_device_type type)
{
	switch (type) {
	case LAP_DEVICE_DISCRETE:
		return 4;
	case LAP_DEVICE_INTEGRATED:
		return 3;
	case LAP_DEVICE_VIRTUAL:
		return 2;
	case LAP_DEVICE_CPU:
		return 0;
	default:
		return 1;
	}
}

static bool better(const struct lap_device *a, const struct lap_device *b)
{
	uint32_t rank_a = type_rank(a->type), rank_b = type_rank(b->type);
	return rank_a != rank_b ? rank_a > rank_b : a->memory_bytes > b->memory_bytes;
}

static enum lap_status fail_choice(struct lap_error *err, const struct lap_device *devices,
	uint32_t n, const char *what, const char *wanted)
{
	struct text list = {0};
	for (uint32_t i = 0; i < n; i++) {
		const struct lap_device *d = &devices[i];
		text_printf(&list, "%s%u: %s%s%s%s", i ? ", " : "", d->index, d->name,
			d->refused[0] ? " (" : "", d->refused, d->refused[0] ? ")" : "");
	}
	enum lap_status status = fail(err, LAP_NO_DEVICE, "%s%s%s%s; the Vulkan devices are: %s",
		what, wanted ? " \"" : "", wanted ? wanted : "", wanted ? "\"" : "",
		list.data ? list.data : "none");
	text_free(&list);
	return status;
}

/* The number that an index spells: "0", "Vulkan0". */
static bool parse_index(const char *text, uint32_t *index)
{
	if (strncasecmp(text, "vulkan", 6) == 0)
		text += 6;
	if (!isdigit((unsigned char)text[0]))
		return false;
	char *end;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (*end || errno || value >= UINT32_MAX)
		return false;
	*index = (uint32_t)value;
	return true;
}

static bool parse_uuid(const char *text, uint8_t uuid[16])
{
	char digits[33];
	size_t n = 0;
	for (; *text; text++) {
		if (*text == '-')
			continue;
		if (!isxdigit((unsigned char)*text) || n == 32)
			return false;
		digits[n++] = *text;
	}
	if (n != 32)
		return false;
	for (size_t i = 0; i < 16; i++) {
		const char byte[3] = {digits[2 * i], digits[2 * i + 1], 0};
		uuid[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	return true;
}

static bool contains(const char *text, const char *part)
{
	size_t n = strlen(part);
	for (; *text; text++)
		if (strncasecmp(text, part, n) == 0)
			return true;
	return false;
}

/* How many devices the name fits, usable ones before others; one of them in *found. */
static uint32_t match_names(const struct lap_device *devices, uint32_t n, const char *wanted,
	bool whole, bool refused, uint32_t *found)
{
	uint32_t n_found = 0;
	for (uint32_t i = 0; i < n; i++) {
		const char *name = devices[i].name;
		if ((devices[i].refused[0] != '\0') != refused ||
			!(whole ? strcasecmp(name, wanted) == 0 : contains(name, wanted)))
			continue;
		*found = i;
		n_found++;
	}
	return n_found;
}

static enum lap_status choose_best(
	const struct lap_device *devices, uint32_t n, uint32_t *chosen, struct lap_error *err)
{
	uint32_t best = n;
	for (uint32_t i = 0; i < n; i++)
		if (!devices[i].refused[0] && (best == n || better(&devices[i], &devices[best])))
			best = i;
	if (best == n)
		return fail_choice(err, devices, n, "no usable Vulkan device", NULL);
	*chosen = best;
	return LAP_OK;
}

static enum lap_status choose_named(const struct lap_device *devices, uint32_t n,
	const char *wanted, uint32_t *chosen, struct lap_error *err)
{
	uint32_t index;
	if (parse_index(wanted, &index)) {
		for (uint32_t i = 0; i < n; i++)
			if (devices[i].index == index) {
				*chosen = i;
				return LAP_OK;
			}
		if (index < MAX_INDEX)
			return fail_choice(err, devices, n, "no Vulkan device", wanted);
	}
	uint8_t uuid[16];
	if (parse_uuid(wanted, uuid))
		for (uint32_t pass = 0; pass < 2; pass++) /* usable ones first */
			for (uint32_t i = 0; i < n; i++)
				if ((pass == 1 || !devices[i].refused[0]) &&
					memcmp(devices[i].uuid, uuid, sizeof uuid) == 0) {
					*chosen = i;
					return LAP_OK;
				}
	for (int refused = 0; refused < 2; refused++)
		for (int whole = 1; whole >= 0; whole--) {
			uint32_t n_found = match_names(devices, n, wanted, whole, refused, chosen);
			if (n_found == 1)
				return LAP_OK;
			if (n_found > 1)
				return fail_choice(err, devices, n,
					"more than one Vulkan device is called", wanted);
		}
	return fail_choice(err, devices, n, "no Vulkan device", wanted);
}

enum lap_status device_choose(const struct lap_device *devices, uint32_t n, const char *wanted,
	uint32_t *chosen, struct lap_error *err)
{
	if (!wanted || !wanted[0])
		return choose_best(devices, n, chosen, err);
	uint32_t found = 0;
	enum lap_status status = choose_named(devices, n, wanted, &found, err);
	if (status)
		return status;
	const struct lap_device *d = &devices[found];
	if (d->refused[0] && strncmp(d->refused, duplicate_of, sizeof duplicate_of - 1) != 0)
		return fail(err, LAP_NO_DEVICE, "Vulkan device %u (%s) cannot be used: %s",
			d->index, d->name, d->refused);
	*chosen = found;
	return LAP_OK;
}
