/* `lapilli devices`: every Vulkan device and what of it matters here, as a table that can be pasted
 * into a report, or as JSON. */
#include <string.h>

#include "commands.h"
#include "console.h"
#include "describe.h"

static const char *type_name(enum lap_device_type type)
{
	static const char *const names[] = {"other", "integrated", "discrete", "virtual", "cpu"};
	return (unsigned)type < ARRAY_COUNT(names) ? names[type] : "other";
}

static const char *uuid_text(const uint8_t uuid[16], char text[33])
{
	for (int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
	return text;
}

static void version_text(uint32_t version, char text[32])
{
	snprintf(
		text, 32, "%u.%u.%u", version >> 22 & 0x7F, version >> 12 & 0x3FF, version & 0xFFF);
}

struct feature {
	const char *name;
	bool present;
};

enum { N_FEATURES = 8 };

#define LARGE_TENSOR (2ull << 30) /* bytes; what one kernel binds at most */

static void list_features(const struct lap_device *d, struct feature features[N_FEATURES])
{
	const struct feature all[N_FEATURES] = {
		{"float16", d->float16},
		{"storage16", d->storage16},
		{"subgroup_arithmetic", d->subgroup_arithmetic},
		{"subgroup_shuffle", d->subgroup_shuffle},
		{"integer_dot", d->integer_dot},
		{"cooperative_matrix", d->cooperative_matrix},
		{"timestamps", d->timestamps},
		{"unified_memory", d->unified_memory},
	};
	memcpy(features, all, sizeof all);
}

static json_t *device_json(const struct lap_device *d)
{
	char uuid[33], driver_uuid[33], api[32];
	version_text(d->api_version, api);
	json_t *json = json_pack("{s:I, s:o, s:s, s:o, s:s, s:s, s:s, s:I, s:I, s:I}", "index",
		(json_int_t)d->index, "name", json_bytes(d->name, strlen(d->name)), "type",
		type_name(d->type), "driver", json_bytes(d->driver, strlen(d->driver)), "uuid",
		uuid_text(d->uuid, uuid), "driver_uuid", uuid_text(d->driver_uuid, driver_uuid),
		"api_version", api, "driver_version", (json_int_t)d->driver_version, "vendor_id",
		(json_int_t)d->vendor_id, "device_id", (json_int_t)d->device_id);
	json_t *limits = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "memory_bytes",
		(json_int_t)d->memory_bytes, "budget_bytes", (json_int_t)d->budget_bytes,
		"max_storage_bytes", (json_int_t)d->max_storage_bytes, "max_allocation_bytes",
		(json_int_t)d->max_allocation_bytes, "max_shared_bytes",
		(json_int_t)d->max_shared_bytes, "max_invocations", (json_int_t)d->max_invocations,
		"subgroup_size", (json_int_t)d->subgroup_size, "subgroup_min",
		(json_int_t)d->subgroup_min, "subgroup_max", (json_int_t)d->subgroup_max);
	json_object_update(json, limits);
	json_decref(limits);
	struct feature features[N_FEATURES];
	list_features(d, features);
	for (size_t i = 0; i < N_FEATURES; i++)
		json_object_set_new(json, features[i].name, json_boolean(features[i].present));
	json_object_set_new(json, "usable", json_boolean(!d->refused[0]));
	json_object_set_new(json, "refused",
		d->refused[0] ? json_bytes(d->refused, strlen(d->refused)) : json_null());
	json_object_set_new(json, "switched_off", json_string(d->switched_off));
	return json;
}

void describe_device(const struct lap_device *d, bool uuids, bool ids)
{
	char api[32], uuid[33];
	version_text(d->api_version, api);
	out_printf("%u  %s  (%s)\n", d->index, d->name, type_name(d->type));
	if (d->refused[0])
		out_printf("   refused    %s\n", d->refused);
	out_printf("   driver     %s, Vulkan %s\n", d->driver, api);
	out_printf("   memory     %s%s", bytes_text(d->memory_bytes),
		d->unified_memory ? " shared with the host" : "");
	if (d->budget_bytes)
		out_printf(", of which %s can be used now", bytes_text(d->budget_bytes));
	out_printf("\n");
	out_printf("   limits     binding %s%s, allocation %s%s\n",
		bytes_text(d->max_storage_bytes),
		d->max_storage_bytes < LARGE_TENSOR ? " (larger tensors are bound in pieces)" : "",
		bytes_text(d->max_allocation_bytes),
		d->max_allocation_bytes < d->memory_bytes ? " (less than the memory)" : "");
	out_printf(
		"   workgroup  %u invocations, %s of shared memory, subgroups of %u (%u to %u)\n",
		d->max_invocations, bytes_text(d->max_shared_bytes), d->subgroup_size,
		d->subgroup_min, d->subgroup_max);
	struct feature features[N_FEATURES];
	list_features(d, features);
	for (int present = 1; present >= 0; present--) {
		out_printf(present ? "   has        " : "   lacks      ");
		unsigned n = 0;
		for (size_t i = 0; i < N_FEATURES; i++)
			if (features[i].present == present)
				out_printf("%s%s", n++ ? ", " : "", features[i].name);
		out_printf("%s\n", n ? "" : "-");
	}
	if (d->switched_off[0])
		out_printf("   without    %s, which lapilli validate found to be wrong here\n",
			d->switched_off);
	if (ids)
		out_printf("   ids        vendor %04x, device %04x, driver version %u\n",
			d->vendor_id, d->device_id, d->driver_version);
	if (uuids)
		out_printf("   uuid       %s\n", uuid_text(d->uuid, uuid));
	if (uuids && ids)
		out_printf("   of driver  %s\n", uuid_text(d->driver_uuid, uuid));
}

void describe_layers(const char *layers)
{
	if (*layers)
		out_printf(
			"layers that may stand between programs and these drivers: %s\n", layers);
}

int command_devices(const struct options *o)
{
	struct lap_device *devices;
	char *layers;
	uint32_t n, n_usable = 0;
	struct lap_error err;
	if (lap_layers(&layers, &err))
		return report(&err);
	if (lap_devices(&devices, &n, &err)) {
		lap_free(layers);
		return report(&err);
	}
	for (uint32_t i = 0; i < n; i++)
		n_usable += !devices[i].refused[0];

	int status = LAP_OK;
	if (o->json) {
		json_t *list = json_array();
		for (uint32_t i = 0; i < n; i++)
			json_array_append_new(list, device_json(&devices[i]));
		status = out_json(json_pack("{s:o, s:o}", "devices", list, "layers",
			json_bytes(layers, strlen(layers))));
	} else {
		for (uint32_t i = 0; i < n; i++)
			describe_device(&devices[i], true, o->verbose);
		describe_layers(n ? layers : "");
	}
	lap_free(devices);
	lap_free(layers);
	if (status || n_usable)
		return status;
	out_flush();
	fail(&err, LAP_NO_DEVICE, "%s. " NO_DEVICE_ADVICE,
		n ? "none of these devices can be used" : "there is no Vulkan device");
	return report(&err);
}
