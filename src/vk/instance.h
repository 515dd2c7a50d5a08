/* Vulkan itself: results, the loader, an instance and its validation layer.
 *
 * Knows no devices. */
#ifndef LAPILLI_VK_INSTANCE_H
#define LAPILLI_VK_INSTANCE_H

#include <volk.h>

#include "base.h"

/* VK(call): the status of a call that returns a VkResult, with the call's name and the result's in
 * *err.  The one place where a VkResult becomes an error. */
#define VK(call) vk_status((call), #call, err)
enum lap_status vk_status(VkResult result, const char *call, struct lap_error *err);
/* The same for a call that creates *handle, which is VK_NULL_HANDLE after a failure: Vulkan leaves it
 * undefined. */
#define VK_CREATE(call, handle) vk_create_status((call), #call, (handle), sizeof *(handle), err)
enum lap_status vk_create_status(
	VkResult result, const char *call, void *handle, size_t n_bytes, struct lap_error *err);

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
/* As lap_layers. */
enum lap_status instance_layers(struct text *names, struct lap_error *err);

void instance_close(struct instance *instance); /* a zeroed struct is allowed */

#endif
