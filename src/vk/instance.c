/* Results, loader, instance: see instance.h. */
#include "instance.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

#define LAYER_VALIDATION "VK_LAYER_KHRONOS_validation"

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

enum lap_status vk_create_status(
	VkResult result, const char *call, void *handle, size_t n_bytes, struct lap_error *err)
{
	if (result != VK_SUCCESS)
		memset(handle, 0, n_bytes); /* VK_NULL_HANDLE */
	return vk_status(result, call, err);
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

/* All that are installed; *layers is freed by the caller. */
static enum lap_status list_layers(VkLayerProperties **layers, uint32_t *n, struct lap_error *err)
{
	*layers = NULL;
	*n = 0;
	enum lap_status status = VK(vkEnumerateInstanceLayerProperties(n, NULL));
	if (status)
		return status;
	*layers = vk_alloc(*n, sizeof **layers);
	if (!*layers)
		return fail_memory(err, "the list of layers", *n * sizeof **layers);
	if (vkEnumerateInstanceLayerProperties(n, *layers) < VK_SUCCESS)
		*n = 0;
	return LAP_OK;
}

static enum lap_status find_layer(const char *name, bool *found, struct lap_error *err)
{
	VkLayerProperties *layers;
	uint32_t n;
	enum lap_status status = list_layers(&layers, &n, err);
	*found = false;
	for (uint32_t i = 0; i < n && !*found && !status; i++)
		*found = strcmp(layers[i].layerName, name) == 0;
	free(layers);
	return status;
}

/* Those that programs ask for. */
static bool is_tool(const char *layer)
{
	static const char *const makers[] = {"VK_LAYER_KHRONOS_", "VK_LAYER_LUNARG_"};
	for (size_t i = 0; i < ARRAY_COUNT(makers); i++)
		if (strncmp(layer, makers[i], strlen(makers[i])) == 0)
			return true;
	return false;
}

enum lap_status instance_layers(struct text *names, struct lap_error *err)
{
	VkLayerProperties *layers;
	uint32_t n;
	if (!loader_open())
		return LAP_OK;
	enum lap_status status = list_layers(&layers, &n, err);
	for (uint32_t i = 0; i < n && !status; i++)
		if (!is_tool(layers[i].layerName) &&
			!text_printf(names, "%s%s", names->n ? " " : "", layers[i].layerName))
			status = fail_memory(err, "the list of layers", names->n);
	free(layers);
	return status;
}

/* Of the loader and the drivers, or of a layer. */
static enum lap_status find_extension(
	const char *layer, const char *name, bool *found, struct lap_error *err)
{
	*found = false;
	uint32_t n = 0;
	enum lap_status status = VK(vkEnumerateInstanceExtensionProperties(layer, &n, NULL));
	if (status)
		return status;
	VkExtensionProperties *extensions = vk_alloc(n, sizeof *extensions);
	if (!extensions)
		return fail_memory(err, "the list of extensions", n * sizeof *extensions);
	if (vkEnumerateInstanceExtensionProperties(layer, &n, extensions) >= VK_SUCCESS)
		for (uint32_t i = 0; i < n && !*found; i++)
			*found = strcmp(extensions[i].extensionName, name) == 0;
	free(extensions);
	return LAP_OK;
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

/* What an instance is created with, after what is installed. */
struct setup {
	const char *layers[1], *extensions[2];
	uint32_t n_layers, n_extensions;
	VkInstanceCreateFlags flags;
	bool messages;
};

static enum lap_status setup_validation(
	struct setup *s, const struct log *log, struct lap_error *err)
{
	bool found;
	enum lap_status status = find_layer(LAYER_VALIDATION, &found, err);
	if (status)
		return status;
	if (!found) {
		log_line(log, LAP_LOG_WARNING, "%s is not installed: running without validation",
			LAYER_VALIDATION);
		return LAP_OK;
	}
	s->layers[s->n_layers++] = LAYER_VALIDATION;
	status = find_extension(NULL, VK_EXT_DEBUG_UTILS_EXTENSION_NAME, &s->messages, err);
	if (!status && !s->messages)
		status = find_extension(
			LAYER_VALIDATION, VK_EXT_DEBUG_UTILS_EXTENSION_NAME, &s->messages, err);
	if (!status && s->messages)
		s->extensions[s->n_extensions++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
	return status;
}

/* Devices that are Vulkan but for a few corners (Metal's) are only listed when asked for. */
static enum lap_status setup_portability(struct setup *s, struct lap_error *err)
{
	bool found;
	enum lap_status status =
		find_extension(NULL, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME, &found, err);
	if (!status && found) {
		s->extensions[s->n_extensions++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
		s->flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
	}
	return status;
}

static VkResult create_instance(struct instance *instance, const struct setup *s,
	const VkDebugUtilsMessengerCreateInfoEXT *messenger)
{
	VkResult result = vkCreateInstance(
		&(VkInstanceCreateInfo){
			.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
			.pNext = s->messages ? messenger : NULL,
			.flags = s->flags,
			.pApplicationInfo =
				&(VkApplicationInfo){
					.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					.pApplicationName = "lapilli",
					.pEngineName = "lapilli",
					.engineVersion = VK_MAKE_VERSION(LAP_VERSION_MAJOR,
						LAP_VERSION_MINOR, LAP_VERSION_PATCH),
					.apiVersion = VK_API_VERSION_1_3,
				},
			.enabledLayerCount = s->n_layers,
			.ppEnabledLayerNames = s->layers,
			.enabledExtensionCount = s->n_extensions,
			.ppEnabledExtensionNames = s->extensions,
		},
		NULL, &instance->handle);
	if (result != VK_SUCCESS)
		instance->handle = VK_NULL_HANDLE;
	return result;
}

static void receive_messages(
	struct instance *instance, const VkDebugUtilsMessengerCreateInfoEXT *messenger)
{
	PFN_vkCreateDebugUtilsMessengerEXT create =
		(PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
			instance->handle, "vkCreateDebugUtilsMessengerEXT");
	if (create && create(instance->handle, messenger, NULL, &instance->messenger) == VK_SUCCESS)
		return;
	instance->messenger = VK_NULL_HANDLE;
	log_line(&instance->log, LAP_LOG_WARNING,
		"the validation layer's messages cannot be received");
}

enum lap_status instance_open(
	struct instance *instance, bool validation, struct log log, struct lap_error *err)
{
	*instance = (struct instance){.log = log};
	if (!loader_open())
		return fail(err, LAP_NO_DEVICE,
			"no Vulkan on this machine: the loader (libvulkan) was not found");
	struct setup setup = {0};
	enum lap_status status = validation ? setup_validation(&setup, &log, err) : LAP_OK;
	if (!status)
		status = setup_portability(&setup, err);
	if (status)
		return status;
	VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info(instance);
	VkResult result = create_instance(instance, &setup, &messenger);
	if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
		return fail(err, LAP_NO_DEVICE,
			"no Vulkan on this machine: the loader found no driver");
	if (result != VK_SUCCESS)
		return vk_status(result, "vkCreateInstance(", err);
	loader_open_instance(instance->handle);
	if (setup.messages)
		receive_messages(instance, &messenger);
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
