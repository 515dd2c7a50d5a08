/* Deliberate misuse of Vulkan: each build of this suite must be reported by the check it is named for,
 * or that check is not looking.  One of PROBE_CLEAN, _STRICT, _CORE, _SYNC, _BOUNDS is defined.
 *
 *   clean   a dispatch reads what another wrote, behind a barrier: nothing may be reported
 *   strict  that on SwiftShader
 *   core    a buffer of zero bytes
 *   sync    the first without the barrier
 *   bounds  a write far behind the end of a buffer: a crash on SwiftShader */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <volk.h>

#include "support.h"

#define N_NUMBERS 64
#define N_BUFFERS 3
#define FAR       (1u << 28) /* elements: 1 GiB behind the buffer */

#define VK(call) cr_assert_eq((call), VK_SUCCESS, "%s", #call)

struct gpu {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	VkQueue queue;
	VkBuffer buffers[N_BUFFERS];
	VkDeviceMemory memories[N_BUFFERS];
	uint32_t *numbers[N_BUFFERS];
	VkDescriptorSetLayout set_layout;
	VkPipelineLayout layout;
	VkDescriptorPool pool;
	VkDescriptorSet sets[2]; /* from buffer i into buffer i + 1 */
	VkShaderModule shader;
	VkPipeline pipeline;
	VkCommandPool commands;
	VkCommandBuffer command;
};

static void device_open(struct gpu *g)
{
	if (volkInitialize() != VK_SUCCESS)
		skip_test("no Vulkan loader");
	VK(vkCreateInstance(
		&(VkInstanceCreateInfo){
			.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
			.pApplicationInfo =
				&(VkApplicationInfo){.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					.apiVersion = VK_API_VERSION_1_2},
			.enabledLayerCount = 1,
			.ppEnabledLayerNames = (const char *const[]){"VK_LAYER_KHRONOS_validation"},
		},
		NULL, &g->instance));
	volkLoadInstance(g->instance);
	uint32_t one = 1;
	VkResult found = vkEnumeratePhysicalDevices(g->instance, &one, &g->physical);
	cr_assert(one == 1 && (found == VK_SUCCESS || found == VK_INCOMPLETE), "no device");
	VK(vkCreateDevice(g->physical,
		&(VkDeviceCreateInfo){.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
			.queueCreateInfoCount = 1,
			.pQueueCreateInfos =
				&(VkDeviceQueueCreateInfo){
					.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					.queueCount = 1,
					.pQueuePriorities = &(float){1}}},
		NULL, &g->device));
	volkLoadDevice(g->device);
	vkGetDeviceQueue(g->device, 0, 0, &g->queue);
}

static void buffer_create(struct gpu *g, unsigned i, VkDeviceSize n_bytes)
{
	VK(vkCreateBuffer(g->device,
		&(VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
			.size = n_bytes,
			.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT},
		NULL, &g->buffers[i]));
	VkMemoryRequirements needs;
	vkGetBufferMemoryRequirements(g->device, g->buffers[i], &needs);
	VkPhysicalDeviceMemoryProperties memories;
	vkGetPhysicalDeviceMemoryProperties(g->physical, &memories);
	const VkMemoryPropertyFlags mapped =
		VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	uint32_t type = 0;
	while (type < memories.memoryTypeCount &&
		(!(needs.memoryTypeBits >> type & 1) ||
			(memories.memoryTypes[type].propertyFlags & mapped) != mapped))
		type++;
	VK(vkAllocateMemory(g->device,
		&(VkMemoryAllocateInfo){.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
			.allocationSize = needs.size,
			.memoryTypeIndex = type},
		NULL, &g->memories[i]));
	VK(vkBindBufferMemory(g->device, g->buffers[i], g->memories[i], 0));
	VK(vkMapMemory(g->device, g->memories[i], 0, VK_WHOLE_SIZE, 0, (void **)&g->numbers[i]));
}

static void pipeline_create(struct gpu *g)
{
	size_t n_bytes;
	char *words = read_text(PROBE_SHADER, &n_bytes);
	VK(vkCreateShaderModule(g->device,
		&(VkShaderModuleCreateInfo){.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
			.codeSize = n_bytes,
			.pCode = (const uint32_t *)(const void *)words},
		NULL, &g->shader));
	free(words);
	VK(vkCreateDescriptorSetLayout(g->device,
		&(VkDescriptorSetLayoutCreateInfo){
			.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
			.bindingCount = 2,
			.pBindings =
				(const VkDescriptorSetLayoutBinding[]){
					{.binding = 0,
						.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
						.descriptorCount = 1,
						.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT},
					{.binding = 1,
						.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
						.descriptorCount = 1,
						.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT}}},
		NULL, &g->set_layout));
	VK(vkCreatePipelineLayout(g->device,
		&(VkPipelineLayoutCreateInfo){
			.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
			.setLayoutCount = 1,
			.pSetLayouts = &g->set_layout,
			.pushConstantRangeCount = 1,
			.pPushConstantRanges =
				&(VkPushConstantRange){VK_SHADER_STAGE_COMPUTE_BIT, 0, 4}},
		NULL, &g->layout));
	VK(vkCreateComputePipelines(g->device, VK_NULL_HANDLE, 1,
		&(VkComputePipelineCreateInfo){
			.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
			.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
				.stage = VK_SHADER_STAGE_COMPUTE_BIT,
				.module = g->shader,
				.pName = "main"},
			.layout = g->layout},
		NULL, &g->pipeline));
	VK(vkCreateDescriptorPool(g->device,
		&(VkDescriptorPoolCreateInfo){
			.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
			.maxSets = 2,
			.poolSizeCount = 1,
			.pPoolSizes =
				&(VkDescriptorPoolSize){VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 4}},
		NULL, &g->pool));
	VK(vkAllocateDescriptorSets(g->device,
		&(VkDescriptorSetAllocateInfo){
			.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
			.descriptorPool = g->pool,
			.descriptorSetCount = 2,
			.pSetLayouts =
				(const VkDescriptorSetLayout[]){g->set_layout, g->set_layout}},
		g->sets));
	for (unsigned i = 0; i < 2; i++)
		vkUpdateDescriptorSets(g->device, 1,
			&(VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
				.dstSet = g->sets[i],
				.descriptorCount = 2, /* runs on from binding 0 to 1 */
				.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
				.pBufferInfo =
					(const VkDescriptorBufferInfo[]){
						{g->buffers[i], 0, VK_WHOLE_SIZE},
						{g->buffers[i + 1], 0, VK_WHOLE_SIZE}}},
			0, NULL);
}

static void dispatch(struct gpu *g, unsigned i)
{
	vkCmdBindDescriptorSets(
		g->command, VK_PIPELINE_BIND_POINT_COMPUTE, g->layout, 0, 1, &g->sets[i], 0, NULL);
	vkCmdDispatch(g->command, N_NUMBERS / 64, 1, 1);
}

/* From buffer 0 to 1 to 2, with or without a barrier in the middle; `first` moves the writes. */
static void run(struct gpu *g, uint32_t first, bool barrier)
{
	VK(vkCreateCommandPool(g->device,
		&(VkCommandPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO},
		NULL, &g->commands));
	VK(vkAllocateCommandBuffers(g->device,
		&(VkCommandBufferAllocateInfo){
			.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
			.commandPool = g->commands,
			.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
			.commandBufferCount = 1},
		&g->command));
	VK(vkBeginCommandBuffer(g->command,
		&(VkCommandBufferBeginInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}));
	vkCmdBindPipeline(g->command, VK_PIPELINE_BIND_POINT_COMPUTE, g->pipeline);
	vkCmdPushConstants(g->command, g->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 4, &first);
	dispatch(g, 0);
	if (barrier)
		vkCmdPipelineBarrier(g->command, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
			VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
			&(VkMemoryBarrier){.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
				.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
				.dstAccessMask =
					VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT},
			0, NULL, 0, NULL);
	dispatch(g, 1);
	VK(vkEndCommandBuffer(g->command));
	VK(vkQueueSubmit(g->queue, 1,
		&(VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			.commandBufferCount = 1,
			.pCommandBuffers = &g->command},
		VK_NULL_HANDLE));
	VK(vkQueueWaitIdle(g->queue));
}

static void device_close(struct gpu *g)
{
	vkDestroyCommandPool(g->device, g->commands, NULL);
	vkDestroyPipeline(g->device, g->pipeline, NULL);
	vkDestroyShaderModule(g->device, g->shader, NULL);
	vkDestroyPipelineLayout(g->device, g->layout, NULL);
	vkDestroyDescriptorPool(g->device, g->pool, NULL);
	vkDestroyDescriptorSetLayout(g->device, g->set_layout, NULL);
	for (unsigned i = 0; i < N_BUFFERS; i++) {
		vkDestroyBuffer(g->device, g->buffers[i], NULL);
		vkFreeMemory(g->device, g->memories[i], NULL);
	}
	vkDestroyDevice(g->device, NULL);
	vkDestroyInstance(g->instance, NULL);
}

Test(probe, vulkan)
{
	struct gpu g = {0};
	device_open(&g);
#if defined(PROBE_CORE)
	VkBuffer nothing = VK_NULL_HANDLE;
	vkCreateBuffer(g.device,
		&(VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
			.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT},
		NULL, &nothing);
	vkDestroyBuffer(g.device, nothing, NULL);
#endif
	for (unsigned i = 0; i < N_BUFFERS; i++)
		buffer_create(&g, i, N_NUMBERS * sizeof(uint32_t));
	pipeline_create(&g);
	for (uint32_t i = 0; i < N_NUMBERS; i++)
		g.numbers[0][i] = i;
#if defined(PROBE_SYNC)
	run(&g, 0, false);
#elif defined(PROBE_BOUNDS)
	run(&g, FAR, true);
#else
	run(&g, 0, true);
#endif
	for (uint32_t i = 0; i < N_NUMBERS; i++)
		cr_expect_eq(g.numbers[2][i], i + 2);
	device_close(&g);
}
