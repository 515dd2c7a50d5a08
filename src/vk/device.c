/* Loader, enumeration, device choice: see device.h. */
#include "device.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Names that the headers of the oldest supported system do not have. */
#define EXTENSION_COOPERATIVE_MATRIX "VK_KHR_cooperative_matrix"
#define EXTENSION_INTEGER_DOT        "VK_KHR_shader_integer_dot_product"
#define EXTENSION_PORTABILITY_SUBSET "VK_KHR_portability_subset"
#define EXTENSION_SUBGROUP_SIZE      "VK_EXT_subgroup_size_control"
#define LAYER_VALIDATION             "VK_LAYER_KHRONOS_validation"

#define VENDOR_AMD 0x1002

/* ---- results --------------------------------------------------------------------------------- */

const char *vk_result_name(VkResult result)
{
	static const struct {
		VkResult result;
		const char *name;
	} names[] = {
#define NAME(result) {result, #result}
		NAME(VK_SUCCESS),
		NAME(VK_NOT_READY),
		NAME(VK_TIMEOUT),
		NAME(VK_INCOMPLETE),
		NAME(VK_ERROR_OUT_OF_HOST_MEMORY),
		NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY),
		NAME(VK_ERROR_INITIALIZATION_FAILED),
		NAME(VK_ERROR_DEVICE_LOST),
		NAME(VK_ERROR_MEMORY_MAP_FAILED),
		NAME(VK_ERROR_LAYER_NOT_PRESENT),
		NAME(VK_ERROR_EXTENSION_NOT_PRESENT),
		NAME(VK_ERROR_FEATURE_NOT_PRESENT),
		NAME(VK_ERROR_INCOMPATIBLE_DRIVER),
		NAME(VK_ERROR_TOO_MANY_OBJECTS),
		NAME(VK_ERROR_FORMAT_NOT_SUPPORTED),
		NAME(VK_ERROR_FRAGMENTED_POOL),
		NAME(VK_ERROR_UNKNOWN),
		NAME(VK_ERROR_OUT_OF_POOL_MEMORY),
		NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE),
		NAME(VK_ERROR_FRAGMENTATION),
		NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS),
		NAME(VK_PIPELINE_COMPILE_REQUIRED),
		NAME(VK_ERROR_VALIDATION_FAILED_EXT),
		NAME(VK_ERROR_INVALID_SHADER_NV),
		NAME(VK_ERROR_NOT_PERMITTED_KHR),
#undef NAME
	};
	for (size_t i = 0; i < ARRAY_COUNT(names); i++)
		if (names[i].result == result)
			return names[i].name;
	return "an unknown VkResult";
}

static enum lap_status status_of(VkResult result)
{
	switch (result) {
	case VK_ERROR_OUT_OF_HOST_MEMORY:
	case VK_ERROR_OUT_OF_DEVICE_MEMORY:
	case VK_ERROR_OUT_OF_POOL_MEMORY:
	case VK_ERROR_FRAGMENTED_POOL:
		return LAP_NO_MEMORY;
	case VK_ERROR_DEVICE_LOST:
		return LAP_DEVICE_LOST;
	case VK_ERROR_INCOMPATIBLE_DRIVER:
		return LAP_NO_DEVICE;
	default:
		return LAP_ERROR;
	}
}

enum lap_status vk_status(VkResult result, const char *call, struct lap_error *err)
{
	if (result == VK_SUCCESS)
		return LAP_OK;
	/* "v->fn.vkQueueSubmit(v->queue, ...": the function's name says enough. */
	size_t end = strcspn(call, "(");
	size_t start = end;
	while (start > 0 && (isalnum((unsigned char)call[start - 1]) || call[start - 1] == '_'))
		start--;
	return fail(err, status_of(result), "%.*s: %s (%d)", (int)(end - start), call + start,
		vk_result_name(result), (int)result);
}

/* ---- instance -------------------------------------------------------------------------------- */

/* volk keeps the loader's entry points in globals: filled in once, under this lock. */
static pthread_mutex_t loader_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loader_ready, loader_instance_ready;

static bool loader_open(void)
{
	pthread_mutex_lock(&loader_lock);
	if (!loader_ready)
		loader_ready = volkInitialize() == VK_SUCCESS;
	bool ready = loader_ready;
	pthread_mutex_unlock(&loader_lock);
	return ready;
}

static void loader_open_instance(VkInstance instance)
{
	pthread_mutex_lock(&loader_lock);
	if (!loader_instance_ready) {
		volkLoadInstanceOnly(instance);
		loader_instance_ready = true;
	}
	pthread_mutex_unlock(&loader_lock);
}

static bool instance_has_layer(const char *name)
{
	uint32_t n = 0;
	if (vkEnumerateInstanceLayerProperties(&n, NULL) != VK_SUCCESS || n == 0)
		return false;
	VkLayerProperties *layers = array_alloc(n, sizeof *layers);
	bool found = false;
	if (layers && vkEnumerateInstanceLayerProperties(&n, layers) >= VK_SUCCESS)
		for (uint32_t i = 0; i < n && !found; i++)
			found = strcmp(layers[i].layerName, name) == 0;
	free(layers);
	return found;
}

static bool instance_has_extension(const char *layer, const char *name)
{
	uint32_t n = 0;
	if (vkEnumerateInstanceExtensionProperties(layer, &n, NULL) != VK_SUCCESS || n == 0)
		return false;
	VkExtensionProperties *extensions = array_alloc(n, sizeof *extensions);
	bool found = false;
	if (extensions &&
		vkEnumerateInstanceExtensionProperties(layer, &n, extensions) >= VK_SUCCESS)
		for (uint32_t i = 0; i < n && !found; i++)
			found = strcmp(extensions[i].extensionName, name) == 0;
	free(extensions);
	return found;
}

static VKAPI_ATTR VkBool32 VKAPI_CALL layer_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
	VkDebugUtilsMessageTypeFlagsEXT types, const VkDebugUtilsMessengerCallbackDataEXT *data,
	void *user)
{
	(void)severity;
	(void)types;
	const struct instance *instance = user;
	log_line(&instance->log, LAP_LOG_WARNING, "validation: %s", data->pMessage);
	return VK_FALSE;
}

static VkDebugUtilsMessengerCreateInfoEXT messenger_info(struct instance *instance)
{
	return (VkDebugUtilsMessengerCreateInfoEXT){
		.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
		.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
			VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
		.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT |
			VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
			VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
		.pfnUserCallback = layer_message,
		.pUserData = instance,
	};
}

enum lap_status instance_open(
	struct instance *instance, bool validation, struct log log, struct lap_error *err)
{
	*instance = (struct instance){.log = log};
	if (!loader_open())
		return fail(err, LAP_NO_DEVICE,
			"no Vulkan on this machine: the loader (libvulkan) was not found");
	const char *layer = NULL;
	bool debug_utils = false;
	if (validation && !instance_has_layer(LAYER_VALIDATION)) {
		log_line(&log, LAP_LOG_WARNING, "%s is not installed: running without validation",
			LAYER_VALIDATION);
	} else if (validation) {
		layer = LAYER_VALIDATION;
		debug_utils = instance_has_extension(NULL, VK_EXT_DEBUG_UTILS_EXTENSION_NAME) ||
			instance_has_extension(layer, VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
	}
	const char *extensions[2];
	uint32_t n_extensions = 0;
	VkInstanceCreateFlags flags = 0;
	if (debug_utils)
		extensions[n_extensions++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
	if (instance_has_extension(NULL, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
		extensions[n_extensions++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
		flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
	}
	VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info(instance);
	VkResult result = vkCreateInstance(
		&(VkInstanceCreateInfo){
			.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
			.pNext = debug_utils ? &messenger : NULL,
			.flags = flags,
			.pApplicationInfo =
				&(VkApplicationInfo){
					.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					.pApplicationName = "lapilli",
					.pEngineName = "lapilli",
					.engineVersion = VK_MAKE_VERSION(LAP_VERSION_MAJOR,
						LAP_VERSION_MINOR, LAP_VERSION_PATCH),
					.apiVersion = VK_API_VERSION_1_3,
				},
			.enabledLayerCount = layer ? 1 : 0,
			.ppEnabledLayerNames = &layer,
			.enabledExtensionCount = n_extensions,
			.ppEnabledExtensionNames = extensions,
		},
		NULL, &instance->handle);
	if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
		instance->handle = VK_NULL_HANDLE;
		return fail(err, LAP_NO_DEVICE,
			"no Vulkan on this machine: the loader found no driver");
	}
	if (result != VK_SUCCESS) {
		instance->handle = VK_NULL_HANDLE;
		return vk_status(result, "vkCreateInstance(", err);
	}
	loader_open_instance(instance->handle);
	if (debug_utils) {
		PFN_vkCreateDebugUtilsMessengerEXT create =
			(PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
				instance->handle, "vkCreateDebugUtilsMessengerEXT");
		if (!create ||
			create(instance->handle, &messenger, NULL, &instance->messenger) !=
				VK_SUCCESS)
			log_line(&log, LAP_LOG_WARNING,
				"the validation layer's messages cannot be received");
	}
	return LAP_OK;
}

void instance_close(struct instance *instance)
{
	if (instance->messenger) {
		PFN_vkDestroyDebugUtilsMessengerEXT destroy =
			(PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
				instance->handle, "vkDestroyDebugUtilsMessengerEXT");
		destroy(instance->handle, instance->messenger, NULL);
	}
	if (instance->handle)
		vkDestroyInstance(instance->handle, NULL);
	*instance = (struct instance){0};
}

/* ---- what matters about a device ------------------------------------------------------------- */

bool device_has_extension(VkPhysicalDevice physical, const char *name)
{
	uint32_t n = 0;
	if (vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL) != VK_SUCCESS || n == 0)
		return false;
	VkExtensionProperties *extensions = array_alloc(n, sizeof *extensions);
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
	uint32_t n = 0;
	vkGetPhysicalDeviceQueueFamilyProperties(physical, &n, NULL);
	VkQueueFamilyProperties *families = array_alloc(n, sizeof *families);
	if (!families)
		return false;
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
	free(families);
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
	VkPhysicalDeviceMemoryProperties memory;
	vkGetPhysicalDeviceMemoryProperties(physical, &memory);
	d->unified_memory = true;
	for (uint32_t heap = 0; heap < memory.memoryHeapCount; heap++) {
		if (!(memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
			continue;
		if (memory.memoryHeaps[heap].size > d->memory_bytes)
			d->memory_bytes = memory.memoryHeaps[heap].size;
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
	d->subgroup_arithmetic = (v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
		(v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT);
	/* Sums over a subgroup are reported wrong there (llama.cpp #15846, #20029, #23218). */
	if (v12.driverID == VK_DRIVER_ID_MOLTENVK && d->vendor_id == VENDOR_AMD)
		d->subgroup_arithmetic = false;
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
	VkPhysicalDevice *physical = array_alloc(count, sizeof(VkPhysicalDevice));
	struct lap_device *list = array_alloc(count, sizeof *list);
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

/* ---- the choice ------------------------------------------------------------------------------ */

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
	if (parse_index(wanted, &index))
		for (uint32_t i = 0; i < n; i++)
			if (devices[i].index == index) {
				*chosen = i;
				return LAP_OK;
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
