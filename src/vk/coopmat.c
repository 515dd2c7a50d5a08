/* Cooperative matrices: see coopmat.h. */
#include "coopmat.h"

#include <stdlib.h>

#include "alloc.h"
#include "device.h"

enum {
	TYPE_FEATURES = 1000506000, /* VK_STRUCTURE_TYPE_..._COOPERATIVE_MATRIX_FEATURES_KHR */
	TYPE_PROPERTIES = 1000506001,
	COMPONENT_FLOAT16 = 0,
	COMPONENT_FLOAT32 = 1,
	SCOPE_SUBGROUP = 3,
	MAX_SIDE = 32,      /* tiles are multiples of it, and so is a unit */
	MAX_ELEMENTS = 256, /* of a block of sums */
	SHARED_BYTES =
		32 << 10, /* the largest tiles of knobs.def, a block of sums, and a codebook */
};

/* As VkCooperativeMatrixPropertiesKHR. */
struct properties {
	VkStructureType type;
	void *next;
	uint32_t m, n, k, a, b, c, result;
	VkBool32 saturates;
	uint32_t scope;
};

typedef VkResult(VKAPI_PTR *properties_fn)(
	VkPhysicalDevice physical, uint32_t *n, struct properties *list);

const struct coop_features coop_wanted = {
	.type = (VkStructureType)TYPE_FEATURES, .matrix = VK_TRUE};

static bool has_features(VkPhysicalDevice physical)
{
	struct coop_features matrices = {.type = (VkStructureType)TYPE_FEATURES};
	VkPhysicalDeviceVulkan12Features v12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &matrices};
	vkGetPhysicalDeviceFeatures2(physical,
		&(VkPhysicalDeviceFeatures2){
			.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v12});
	return matrices.matrix && v12.shaderFloat16 && v12.vulkanMemoryModel &&
		v12.vulkanMemoryModelDeviceScope;
}

/* Whether a compute pipeline can ask for the size of its subgroups, all of them full. */
static bool asks_for_lanes(VkPhysicalDevice physical)
{
	if (!device_has_extension(physical, EXTENSION_SUBGROUP_SIZE))
		return false;
	VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
	vkGetPhysicalDeviceProperties2(physical,
		&(VkPhysicalDeviceProperties2){
			.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &sizes});
	VkPhysicalDeviceSubgroupSizeControlFeatures can = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
	vkGetPhysicalDeviceFeatures2(physical,
		&(VkPhysicalDeviceFeatures2){
			.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &can});
	return can.subgroupSizeControl && can.computeFullSubgroups &&
		sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT;
}

/* Intel's matrices are those of its smallest subgroups, other drivers' of those that they say is theirs. */
static uint32_t lanes_of(const struct lap_device *device)
{
	return device->vendor_id == VENDOR_INTEL ? device->subgroup_min : device->subgroup_size;
}

static bool side_fits(uint32_t n)
{
	return n >= 8 && n <= MAX_SIDE && (n & (n - 1)) == 0;
}

static bool fits(const struct properties *p)
{
	return p->a == COMPONENT_FLOAT16 && p->b == COMPONENT_FLOAT16 &&
		p->c == COMPONENT_FLOAT32 && p->result == COMPONENT_FLOAT32 &&
		p->scope == SCOPE_SUBGROUP && !p->saturates && side_fits(p->m) && side_fits(p->n) &&
		side_fits(p->k) && p->m * p->n <= MAX_ELEMENTS;
}

static void find_largest(VkInstance instance, VkPhysicalDevice physical, struct coop_shape *shape)
{
	properties_fn get = (properties_fn)vkGetInstanceProcAddr(
		instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
	uint32_t n = 0;
	if (!get || get(physical, &n, NULL) != VK_SUCCESS || n == 0)
		return;
	struct properties *list = vk_alloc(n, sizeof *list);
	for (uint32_t i = 0; list && i < n; i++)
		list[i].type = (VkStructureType)TYPE_PROPERTIES;
	if (list && get(physical, &n, list) >= VK_SUCCESS)
		for (uint32_t i = 0; i < n; i++) {
			const struct properties *p = &list[i];
			if (fits(p) && p->m * p->n * p->k > shape->m * shape->n * shape->k) {
				shape->m = p->m;
				shape->n = p->n;
				shape->k = p->k;
			}
		}
	free(list);
}

bool coop_find(VkInstance instance, VkPhysicalDevice physical, const struct lap_device *device,
	struct coop_shape *shape)
{
	*shape = (struct coop_shape){.lanes = lanes_of(device)};
	if (!device->cooperative_matrix || device->max_shared_bytes < SHARED_BYTES ||
		!has_features(physical))
		return false;
	/* lavapipe (26.1) names 8 x 8 x 8 whatever its subgroups are, and crashes on them where those are not of 8. */
	if (device->type == LAP_DEVICE_CPU && shape->lanes != 8)
		return false;
	shape->lanes_asked = asks_for_lanes(physical);
	if (shape->lanes_asked || device->subgroup_min == device->subgroup_max)
		find_largest(instance, physical, shape);
	return shape->m > 0;
}
