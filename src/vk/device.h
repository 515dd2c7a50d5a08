/* Vulkan itself: the loader, the devices on this machine, and the choice among them.
 *
 * Owns the instance.  Knows nothing of buffers, pipelines or plans. */
#ifndef LAPILLI_VK_DEVICE_H
#define LAPILLI_VK_DEVICE_H

#include <volk.h>

#include "base.h"

/* VK(call): the status of a call that returns a VkResult, with the call's name and the result's in
 * *err.  The one place where a VkResult becomes an error. */
#define VK(call) vk_status((call), #call, err)
enum lap_status vk_status(VkResult result, const char *call, struct lap_error *err);
const char *vk_result_name(VkResult result);

struct instance {
	VkInstance handle;
	VkDebugUtilsMessengerEXT messenger;
	struct log log; /* receives what the validation layer says */
};

/* Loads Vulkan and creates an instance in *instance, which must stay where it is until it is closed.
 * LAP_NO_DEVICE when the machine has no loader, no driver or too old a Vulkan.  `validation` loads
 * the Khronos validation layer; when it is not installed, that is a warning in the log. */
enum lap_status instance_open(
	struct instance *instance, bool validation, struct log log, struct lap_error *err);
void instance_close(struct instance *instance); /* a zeroed struct is allowed */

/* Every physical device of the instance and what matters about it; both arrays are n long, released
 * with free().  Devices that cannot be used are in it, with the reason in .refused. */
enum lap_status instance_devices(struct instance *instance, VkPhysicalDevice **handles,
	struct lap_device **devices, uint32_t *n, struct lap_error *err);

/* Marks each usable device that has the UUID of an earlier usable one as refused: one device behind
 * two drivers counts once. */
void devices_mark_duplicates(struct lap_device *devices, uint32_t n);

/* The index in `devices` of the one that `wanted` names: an index ("0", "Vulkan0"), a UUID in
 * hexadecimal, a name or a part of one that fits one device only, in any case.  NULL or "": the best
 * usable one: discrete, integrated, virtual, other, CPU type, then the larger memory, then the
 * earlier.  An index reaches a device that is only refused as a duplicate, too.  LAP_NO_DEVICE with
 * the list of devices. */
enum lap_status device_choose(const struct lap_device *devices, uint32_t n, const char *wanted,
	uint32_t *chosen, struct lap_error *err);

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
