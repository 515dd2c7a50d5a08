/* Vulkan as a backend: opens a device, hands out the functions of the other files of this folder.
 *
 * Asks the device for the features that it uses and no others. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "choose.h"
#include "device.h"
#include "knob_defaults.h"
#include "memory.h"
#include "pipeline.h"
#include "record.h"
#include "run.h"
#include "spirv.h"
#include "staging.h"
#include "tuned.h"

#define MAX_VIEW_BYTES \
	(2ull << 30)   /* shaders address a chunk with 32 bits, signed on some drivers */
#define MIN_CHUNK 4096 /* of max_chunk_bytes */

static void vk_close(struct backend *b)
{
	struct vk *v = (struct vk *)b;
	if (v->device) {
		queue_close(v);
		pipelines_close(v);
		staging_close(v);
		v->fn.vkDestroyDevice(v->device, NULL);
	}
	tuned_close(v);
	instance_close(&v->instance);
	pthread_mutex_destroy(&v->memory_lock);
	pthread_mutex_destroy(&v->staging.lock);
	pthread_mutex_destroy(&v->pipeline_lock);
	pthread_mutex_destroy(&v->queue_lock);
	free(v);
}

static struct buffer *vk_import(struct backend *b, const void *bytes, uint64_t n_bytes)
{
	(void)b;
	(void)bytes;
	(void)n_bytes;
	return NULL; /* drivers differ too much in what they import */
}

static enum lap_status vk_wait(struct backend *b, uint64_t ticket, struct lap_error *err)
{
	return queue_wait((struct vk *)b, ticket, err);
}

static void vk_knobs(struct backend *b, const struct op *op, uint32_t values[MAX_KNOBS])
{
	pipeline_knobs((struct vk *)b, b->tuning, op, values);
}

static void vk_knobs_untuned(struct backend *b, const struct op *op, uint32_t values[MAX_KNOBS])
{
	pipeline_knobs((struct vk *)b, NULL, op, values);
}

static const struct backend_ops vk_ops = {
	.close = vk_close,
	.buffer_create = buffer_create,
	.available = memory_available,
	.buffer_import = vk_import,
	.buffer_destroy = buffer_destroy,
	.buffer_map = buffer_map,
	.write = buffer_write,
	.read = buffer_read,
	.prepare = runnable_prepare,
	.release = runnable_release,
	.begin = runnable_begin,
	.run = runnable_run,
	.wait = vk_wait,
	.times = runnable_times,
	.knobs = vk_knobs,
	.knobs_untuned = vk_knobs_untuned,
	.tuning_save = tuned_save,
};

static bool is_set(const char *variable)
{
	const char *value = getenv(variable);
	return value && value[0] && strcmp(value, "0") != 0;
}

/* ---- the device ------------------------------------------------------------------------------ */

static enum lap_status choose(struct vk *v, const char *wanted, struct lap_error *err)
{
	VkPhysicalDevice *handles;
	struct lap_device *devices;
	uint32_t n, chosen = 0;
	enum lap_status status = instance_devices(&v->instance, &handles, &devices, &n, err);
	if (status)
		return status;
	status = device_choose(devices, n, wanted, &chosen, err);
	if (!status) {
		v->physical = handles[chosen];
		v->info = devices[chosen];
		if (v->info.type == LAP_DEVICE_CPU && !(wanted && wanted[0]))
			log_line(&v->log, LAP_LOG_INFO,
				"no GPU found: using the software device %s", v->info.name);
	}
	free(handles);
	free(devices);
	return status;
}

/* Whether kernels with LP_COOPMAT are used: LAPILLI_COOPMAT=1 wants them where they are not worth it, =0 never. */
static bool choose_matrices(struct vk *v, bool wanted)
{
	const char *value = getenv("LAPILLI_COOPMAT");
	const bool likes =
		value && value[0] ? is_set("LAPILLI_COOPMAT") : device_likes_matrices(&v->info);
	return (wanted || likes) && spirv_find(KERNEL_matmul, WEIGHT_f16, "coopmat") &&
		coop_find(v->instance.handle, v->physical, &v->info, &v->coop_shape);
}

/* Those of the device among the extensions that are used; returns how many. */
static uint32_t list_extensions(const struct vk *v, const char *names[4])
{
	const struct {
		const char *name;
		bool wanted;
	} all[] = {
		{EXTENSION_INTEGER_DOT, true},
		{EXTENSION_COOPERATIVE_MATRIX, v->coopmat},
		{EXTENSION_SUBGROUP_SIZE, v->coopmat && v->coop_shape.lanes_asked},
		/* A device that is not quite Vulkan says so with it, and wants it enabled. */
		{"VK_KHR_portability_subset", true},
	};
	uint32_t n = 0;
	for (size_t i = 0; i < ARRAY_COUNT(all); i++)
		if (all[i].wanted && device_has_extension(v->physical, all[i].name))
			names[n++] = all[i].name;
	return n;
}

static enum lap_status create_device(struct vk *v, struct lap_error *err)
{
	VkPhysicalDeviceProperties properties;
	vkGetPhysicalDeviceProperties(v->physical, &properties);
	v->limits = properties.limits;
	vkGetPhysicalDeviceMemoryProperties(v->physical, &v->memory_properties);
	queue_family_choose(v->physical, &v->queue_family, &v->timestamp_bits);
	VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
		.shaderIntegerDotProduct = VK_TRUE};
	void *features = v->info.integer_dot ? &dot : NULL;
	VkPhysicalDeviceSubgroupSizeControlFeatures sizes = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
		.pNext = features,
		.subgroupSizeControl = VK_TRUE,
		.computeFullSubgroups = VK_TRUE};
	struct coop_features coop = coop_wanted;
	coop.next = v->coop_shape.lanes_asked ? &sizes : features;
	features = v->coopmat ? &coop : features;
	const char *names[4];
	const uint32_t n_names = list_extensions(v, names);
	enum lap_status status = VK_CREATE(
		vkCreateDevice(v->physical,
			&(VkDeviceCreateInfo){
				.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				.pNext =
					&(VkPhysicalDeviceVulkan12Features){
						.sType =
							VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
						.pNext = features,
						.timelineSemaphore = VK_TRUE,
						.shaderFloat16 = v->coopmat,
						.vulkanMemoryModel = v->coopmat,
						/* Atomics of all kernels have it. */
						.vulkanMemoryModelDeviceScope = v->coopmat,
					},
				.queueCreateInfoCount = 1,
				.pQueueCreateInfos =
					&(VkDeviceQueueCreateInfo){
						.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
						.queueFamilyIndex = v->queue_family,
						.queueCount = 1,
						.pQueuePriorities = &(float){1},
					},
				.enabledExtensionCount = n_names,
				.ppEnabledExtensionNames = names,
			},
			NULL, &v->device),
		&v->device);
	if (status)
		return status;
	volkLoadDeviceTable(&v->fn, v->device);
	return LAP_OK;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* "1048576", "1M", "64K": a number of bytes, 0 when the text is none. */
static uint64_t parse_bytes(const char *text)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (shift)
		end++;
	if (*end || errno || text[0] == '-' || value > UINT64_MAX >> shift)
		return 0;
	return value << shift;
}

static uint64_t view_limit(const struct vk *v, uint64_t wanted)
{
	const char *variable = getenv("LAPILLI_MAX_CHUNK");
	if (!wanted && variable && variable[0]) {
		wanted = parse_bytes(variable);
		if (!wanted)
			log_line(&v->log, LAP_LOG_WARNING,
				"LAPILLI_MAX_CHUNK is \"%s\", expected a number of bytes",
				variable);
	}
	uint64_t limit = MAX_VIEW_BYTES;
	if (limit > v->info.max_storage_bytes)
		limit = v->info.max_storage_bytes;
	if (limit > v->info.max_allocation_bytes)
		limit = v->info.max_allocation_bytes;
	const uint64_t texels = (uint64_t)v->limits.maxTexelBufferElements * sizeof(uint32_t);
	if (v->texels && limit > texels)
		limit = texels;
	if (wanted && wanted < MIN_CHUNK)
		wanted = MIN_CHUNK;
	if (wanted && limit > wanted)
		limit = wanted;
	return limit / BUFFER_ALIGN * BUFFER_ALIGN;
}

static enum lap_status open_all(
	struct vk *v, const struct vk_options *options, struct lap_error *err)
{
	bool validation = options->validation || is_set("LAPILLI_VALIDATION");
	enum lap_status status = instance_open(&v->instance, validation, v->log, err);
	if (!status)
		status = choose(v, options->device, err);
	if (status)
		return status;
	v->coopmat = v->base.has_matrices = choose_matrices(v, options->coopmat);
	status = create_device(v, err);
	if (!status)
		status = queue_open(v, err);
	if (!status)
		status = pipelines_open(v, err);
	if (status)
		return status;
	bool no_subgroup = options->no_subgroup || is_set("LAPILLI_NO_SUBGROUP");
	/* The subgroup variants give each lane of 4 a result to store. */
	v->subgroup = v->info.subgroup_arithmetic && v->info.subgroup_min >= 4 && !no_subgroup;
	v->texels = v->subgroup && device_likes_texels(&v->info) && !options->no_texels;
	v->keeps_halves = device_keeps_halves(&v->info) && !options->no_texels;
	/* The shuffle variants are made for subgroups of 8 on a CPU, where a load goes lane by lane and a
	 * shuffle is one instruction; on GPUs it is the other way round. */
	v->shuffle = v->texels && v->keeps_halves && v->info.subgroup_shuffle &&
		v->info.type == LAP_DEVICE_CPU && v->info.subgroup_min == 8 &&
		v->info.subgroup_max == 8;
	v->shared =
		v->info.type != LAP_DEVICE_CPU || options->shared || is_set("LAPILLI_SHARED_TILES");
	/* A CPU unpacks the bytes for it; two products in one of words take it less time. */
	v->dot = v->subgroup && v->info.integer_dot &&
		(v->info.type != LAP_DEVICE_CPU || options->no_texels);
	v->base.device = &v->info;
	v->base.name = v->info.name;
	v->base.max_buffer_bytes = view_limit(v, options->max_chunk_bytes);
	if (v->shared)
		v->base.parts_bytes = v->base.max_buffer_bytes < PARTS_BYTES
			? v->base.max_buffer_bytes
			: PARTS_BYTES;
	tuned_open(v);
	return LAP_OK;
}

enum lap_status vk_open(
	const struct vk_options *options, struct backend **backend, struct lap_error *err)
{
	*backend = NULL;
	struct vk *v = vk_alloc(1, sizeof *v);
	if (!v)
		return fail_memory(err, "a Vulkan device", sizeof *v);
	v->base.ops = &vk_ops;
	v->log = options->log;
	v->pipeline_cache_file = !options->no_pipeline_cache;
	v->tuning_file = !options->no_tuning;
	v->no_mapping = options->no_mapping;
	pthread_mutex_init(&v->memory_lock, NULL);
	pthread_mutex_init(&v->staging.lock, NULL);
	pthread_mutex_init(&v->pipeline_lock, NULL);
	pthread_mutex_init(&v->queue_lock, NULL);
	enum lap_status status = open_all(v, options, err);
	if (status) {
		vk_close(&v->base);
		return status;
	}
	*backend = &v->base;
	return LAP_OK;
}

enum lap_status vk_layers(char **names, struct lap_error *err)
{
	struct text text = {0};
	enum lap_status status = instance_layers(&text, err);
	if (!status && !text_append(&text, "", 0))
		status = fail_memory(err, "the list of layers", 1);
	if (status)
		text_free(&text);
	*names = text.data;
	return status;
}

enum lap_status vk_devices(struct lap_device **devices, uint32_t *n, struct lap_error *err)
{
	*devices = NULL;
	*n = 0;
	struct instance instance;
	VkPhysicalDevice *handles;
	enum lap_status status = instance_open(&instance, false, (struct log){0}, err);
	if (status == LAP_NO_DEVICE)
		return LAP_OK;
	if (status)
		return status;
	status = instance_devices(&instance, &handles, devices, n, err);
	for (uint32_t i = 0; i < *n && !status; i++)
		tuned_list_off(&(*devices)[i]);
	free(handles);
	instance_close(&instance);
	return status;
}
