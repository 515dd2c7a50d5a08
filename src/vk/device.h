/* The devices on this machine and what matters about each.
 *
 * Reads limits and features; opens nothing, chooses nothing. */
#ifndef LAPILLI_VK_DEVICE_H
#define LAPILLI_VK_DEVICE_H

#include "instance.h"

#define EXTENSION_INTEGER_DOT "VK_KHR_shader_integer_dot_product"

#define VENDOR_AMD   0x1002
#define VENDOR_INTEL 0x8086

/* Every physical device of the instance and what matters about it; both arrays are n long, released
 * with free().  Devices that cannot be used are in it, with the reason in .refused. */
enum lap_status instance_devices(struct instance *instance, VkPhysicalDevice **handles,
	struct lap_device **devices, uint32_t *n, struct lap_error *err);

/* Why a device with these limits cannot be used, or NULL. */
struct device_needs {
	uint32_t api_version;
	bool compute_queue, timeline_semaphore;
	uint64_t storage_range;
	uint32_t shared_bytes, invocations, storage_buffers, push_bytes;
};
const char *device_lacks(const struct device_needs *has);

/* The family of the compute queue: one without graphics where there is one (it does not compete with
 * the desktop).  False when there is none.  *timestamp_bits 0: no timestamps. */
bool queue_family_choose(VkPhysicalDevice physical, uint32_t *family, uint32_t *timestamp_bits);

/* True when the device has the extension. */
bool device_has_extension(VkPhysicalDevice physical, const char *name);

#endif
