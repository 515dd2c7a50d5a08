/* VK_KHR_cooperative_matrix: whether a device has it as kernels with LP_COOPMAT need it, and the shape of its matrices.
 *
 * Declares what it needs of the extension itself: the headers of the oldest supported system do not know it. */
#ifndef LAPILLI_VK_COOPMAT_H
#define LAPILLI_VK_COOPMAT_H

#include "instance.h"

#define EXTENSION_COOPERATIVE_MATRIX "VK_KHR_cooperative_matrix"
#define EXTENSION_SUBGROUP_SIZE      "VK_EXT_subgroup_size_control"

/* An m x k matrix of halves times one of k x n, added to floats, by a subgroup of that many lanes. */
struct coop_shape {
	uint32_t m, n, k, lanes;
	bool lanes_asked; /* the pipeline asks for that many */
};

/* As VkPhysicalDeviceCooperativeMatrixFeaturesKHR, to be enabled with shaderFloat16, vulkanMemoryModel and
 * vulkanMemoryModelDeviceScope. */
struct coop_features {
	VkStructureType type;
	void *next;
	VkBool32 matrix, robust_access;
};
extern const struct coop_features coop_wanted;

/* The largest shape that fits; false: none does, or the device lacks what goes with it.  A device with subgroups of
 * several sizes must let a pipeline ask for one (EXTENSION_SUBGROUP_SIZE). */
bool coop_find(VkInstance instance, VkPhysicalDevice physical, const struct lap_device *device,
	struct coop_shape *shape);

#endif
