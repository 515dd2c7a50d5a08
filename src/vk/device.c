/* What each device can do: see device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "choose.h"
#include "coopmat.h"

#define MAX_QUEUE_FAMILIES 64 /* looked at; devices have up to a dozen */

bool device_has_extension(VkPhysicalDevice physical, const char *name)
{
	uint32_t n = 0;
	if (vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL) != VK_SUCCESS || n == 0)
		return false;
	VkExtensionProperties *extensions = vk_alloc(n, sizeof *extensions);
	bool found = false;
	if (extensions &&
		vkEnumerateDeviceExtensionProperties(physical, NULL, &n, extensions) >= VK_SUCCESS)
		for (uint32_t i = 0; i < n && !found; i++)
			found = strcmp(extensions[i].extensionName, name) == 0;
	free(extensions);
	return found;
}

bool queue_family_choose(VkPhysicalDevice physical, uint32_t *family, uint32_t *timestamp_bits)
{
	VkQueueFamilyProperties families[MAX_QUEUE_FAMILIES];
	uint32_t n = MAX_QUEUE_FAMILIES;
	vkGetPhysicalDeviceQueueFamilyProperties(physical, &n, families);
	uint32_t best = UINT32_MAX;
	for (uint32_t i = 0; i < n; i++) {
		VkQueueFlags flags = families[i].queueFlags;
		if (families[i].queueCount == 0 || !(flags & VK_QUEUE_COMPUTE_BIT))
			continue;
		if (best == UINT32_MAX ||
			(!(flags & VK_QUEUE_GRAPHICS_BIT) &&
				(families[best].queueFlags & VK_QUEUE_GRAPHICS_BIT)))
			best = i;
	}
	*family = best;
	*timestamp_bits = best == UINT32_MAX ? 0 : families[best].timestampValidBits;
	return best != UINT32_MAX;
}

const char *device_lacks(const struct device_needs *has)
{
	if (has->api_version < VK_API_VERSION_1_2)
		return "older than Vulkan 1.2";
	if (!has->compute_queue)
		return "no compute queue";
	if (!has->timeline_semaphore)
		return "no timeline semaphores";
	if (has->storage_range < 128u << 20)
		return "storage buffers are below 128 MiB";
	if (has->shared_bytes < 16u << 10)
		return "shared memory is below 16 KiB";
	if (has->invocations < 128)
		return "workgroups are below 128 invocations";
	if (has->storage_buffers < 8)
		return "fewer than 8 storage buffers in a shader";
	if (has->push_bytes < 128)
		return "push constants are below 128 bytes";
	return NULL;
}

static void read_memory(VkPhysicalDevice physical, struct lap_device *d)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
	const bool has_budget = d->api_version >= VK_API_VERSION_1_1 &&
		device_has_extension(physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
	VkPhysicalDeviceMemoryProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = has_budget ? &budget : NULL};
	if (d->api_version >= VK_API_VERSION_1_1)
		vkGetPhysicalDeviceMemoryProperties2(physical, &properties);
	else
		vkGetPhysicalDeviceMemoryProperties(physical, &properties.memoryProperties);
	const VkPhysicalDeviceMemoryProperties memory = properties.memoryProperties;
	d->unified_memory = true;
	for (uint32_t heap = 0; heap < memory.memoryHeapCount; heap++) {
		if (!(memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
			continue;
		if (memory.memoryHeaps[heap].size > d->memory_bytes) {
			d->memory_bytes = memory.memoryHeaps[heap].size;
			d->budget_bytes = has_budget ? budget.heapBudget[heap] : 0;
		}
		bool mapped = false;
		for (uint32_t type = 0; type < memory.memoryTypeCount; type++)
			mapped |= memory.memoryTypes[type].heapIndex == heap &&
				(memory.memoryTypes[type].propertyFlags &
					VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
		d->unified_memory &= mapped;
	}
}

/* Of a device with Vulkan 1.2 or later: the structs that are chained must be known to it. */
static void read_details(VkPhysicalDevice physical, struct lap_device *d, bool *timeline)
{
	bool v13 = d->api_version >= VK_API_VERSION_1_3;
	bool size_control = v13 || device_has_extension(physical, EXTENSION_SUBGROUP_SIZE);
	bool dot = v13 || device_has_extension(physical, EXTENSION_INTEGER_DOT);

	VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
	VkPhysicalDeviceVulkan12Properties v12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
		.pNext = size_control ? &sizes : NULL};
	VkPhysicalDeviceVulkan11Properties v11 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &v11};
	vkGetPhysicalDeviceProperties2(physical, &properties);

	VkPhysicalDeviceShaderIntegerDotProductFeatures dot_features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
	VkPhysicalDeviceVulkan12Features f12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.pNext = dot ? &dot_features : NULL};
	VkPhysicalDeviceVulkan11Features f11 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12};
	VkPhysicalDeviceFeatures2 features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f11};
	vkGetPhysicalDeviceFeatures2(physical, &features);

	snprintf(d->driver, sizeof d->driver, "%.120s %.120s", v12.driverName, v12.driverInfo);
	memcpy(d->uuid, v11.deviceUUID, sizeof d->uuid);
	memcpy(d->driver_uuid, v11.driverUUID, sizeof d->driver_uuid);
	d->max_allocation_bytes = v11.maxMemoryAllocationSize;
	d->subgroup_size = v11.subgroupSize;
	d->subgroup_min = size_control ? sizes.minSubgroupSize : v11.subgroupSize;
	d->subgroup_max = size_control ? sizes.maxSubgroupSize : v11.subgroupSize;
	VkSubgroupFeatureFlags subgroups = v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT
		? v11.subgroupSupportedOperations
		: 0;
	/* Sums over a subgroup and shuffles are reported wrong there (llama.cpp #15846, #20029, #23218). */
	if (v12.driverID == VK_DRIVER_ID_MOLTENVK && d->vendor_id == VENDOR_AMD)
		subgroups = 0;
	d->subgroup_arithmetic = subgroups & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
	d->subgroup_shuffle = subgroups & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
	d->float16 = f12.shaderFloat16;
	d->storage16 = f11.storageBuffer16BitAccess;
	d->integer_dot = dot && dot_features.shaderIntegerDotProduct;
	d->cooperative_matrix = device_has_extension(physical, EXTENSION_COOPERATIVE_MATRIX);
	*timeline = f12.timelineSemaphore;
}

static struct lap_device read_device(VkPhysicalDevice physical, uint32_t index)
{
	VkPhysicalDeviceProperties p;
	vkGetPhysicalDeviceProperties(physical, &p);
	struct lap_device d = {
		.index = index,
		.api_version = p.apiVersion,
		.driver_version = p.driverVersion,
		.vendor_id = p.vendorID,
		.device_id = p.deviceID,
		.type = (enum lap_device_type)p.deviceType,
		.max_storage_bytes = p.limits.maxStorageBufferRange,
		.max_shared_bytes = p.limits.maxComputeSharedMemorySize,
		.max_invocations = p.limits.maxComputeWorkGroupInvocations,
	};
	snprintf(d.name, sizeof d.name, "%s", p.deviceName);
	read_memory(physical, &d);
	struct device_needs has = {
		.api_version = p.apiVersion,
		.storage_range = p.limits.maxStorageBufferRange,
		.shared_bytes = p.limits.maxComputeSharedMemorySize,
		.invocations = p.limits.maxComputeWorkGroupInvocations,
		.storage_buffers = p.limits.maxPerStageDescriptorStorageBuffers,
		.push_bytes = p.limits.maxPushConstantsSize,
	};
	uint32_t family, timestamp_bits;
	has.compute_queue = queue_family_choose(physical, &family, &timestamp_bits);
	d.timestamps = timestamp_bits > 0 && p.limits.timestampPeriod > 0;
	if (p.apiVersion >= VK_API_VERSION_1_2)
		read_details(physical, &d, &has.timeline_semaphore);
	const char *lacks = device_lacks(&has);
	if (lacks)
		snprintf(d.refused, sizeof d.refused, "%s", lacks);
	return d;
}

enum lap_status instance_devices(struct instance *instance, VkPhysicalDevice **handles,
	struct lap_device **devices, uint32_t *n, struct lap_error *err)
{
	*handles = NULL;
	*devices = NULL;
	*n = 0;
	uint32_t count = 0;
	enum lap_status status = VK(vkEnumeratePhysicalDevices(instance->handle, &count, NULL));
	if (status)
		return status;
	VkPhysicalDevice *physical = vk_alloc(count, sizeof(VkPhysicalDevice));
	struct lap_device *list = vk_alloc(count, sizeof *list);
	if (!physical || !list) {
		free(physical);
		free(list);
		return fail_memory(err, "the list of devices", count * sizeof *list);
	}
	VkResult result = vkEnumeratePhysicalDevices(instance->handle, &count, physical);
	if (result != VK_SUCCESS && result != VK_INCOMPLETE) {
		free(physical);
		free(list);
		return vk_status(result, "vkEnumeratePhysicalDevices(", err);
	}
	for (uint32_t i = 0; i < count; i++)
		list[i] = read_device(physical[i], i);
	devices_mark_duplicates(list, count);
	*handles = physical;
	*devices = list;
	*n = count;
	return LAP_OK;
}
