/* Submit and wait: see run.h. */
#include "run.h"

#include <stdio.h>
#include <string.h>

enum lap_status queue_open(struct vk *v, struct lap_error *err)
{
	v->fn.vkGetDeviceQueue(v->device, v->queue_family, 0, &v->queue);
	return VK_CREATE(
		v->fn.vkCreateSemaphore(v->device,
			&(VkSemaphoreCreateInfo){
				.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
				.pNext =
					&(VkSemaphoreTypeCreateInfo){
						.sType =
							VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
						.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
					},
			},
			NULL, &v->timeline),
		&v->timeline);
}

void queue_close(struct vk *v)
{
	v->fn.vkDeviceWaitIdle(v->device); /* a lost device has nothing to wait for */
	v->fn.vkDestroySemaphore(v->device, v->timeline, NULL);
	v->timeline = VK_NULL_HANDLE;
}

static enum lap_status fail_lost(struct vk *v, struct lap_error *err)
{
	char running[sizeof v->last_running];
	pthread_mutex_lock(&v->queue_lock);
	memcpy(running, v->last_running, sizeof running);
	pthread_mutex_unlock(&v->queue_lock);
	return fail(err, LAP_DEVICE_LOST,
		"the device %s was lost while it ran %s; close the model and open it again.  If it "
		"was killed for taking too long, shorter submits help (--max-submit-ms, half of "
		"what it was)",
		v->info.name, running[0] ? running : "nothing");
}

enum lap_status queue_submit(struct vk *v, const VkCommandBuffer *commands, uint32_t n,
	const char *what, uint64_t *ticket, struct lap_error *err)
{
	pthread_mutex_lock(&v->queue_lock);
	uint64_t value = v->last_ticket + 1;
	VkResult result = v->fn.vkQueueSubmit(v->queue, 1,
		&(VkSubmitInfo){
			.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			.pNext =
				&(VkTimelineSemaphoreSubmitInfo){
					.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
					.signalSemaphoreValueCount = 1,
					.pSignalSemaphoreValues = &value,
				},
			.commandBufferCount = n,
			.pCommandBuffers = commands,
			.signalSemaphoreCount = 1,
			.pSignalSemaphores = &v->timeline,
		},
		VK_NULL_HANDLE);
	if (result == VK_SUCCESS) {
		v->last_ticket = value;
		snprintf(v->last_running, sizeof v->last_running, "%s", what);
		*ticket = value;
	}
	pthread_mutex_unlock(&v->queue_lock);
	if (result == VK_ERROR_DEVICE_LOST)
		return fail_lost(v, err);
	return vk_status(result, "vkQueueSubmit(", err);
}

enum lap_status queue_wait(struct vk *v, uint64_t ticket, struct lap_error *err)
{
	if (ticket == 0)
		return LAP_OK;
	VkResult result = v->fn.vkWaitSemaphores(v->device,
		&(VkSemaphoreWaitInfo){
			.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
			.semaphoreCount = 1,
			.pSemaphores = &v->timeline,
			.pValues = &ticket,
		},
		UINT64_MAX);
	if (result == VK_ERROR_DEVICE_LOST)
		return fail_lost(v, err);
	return vk_status(result, "vkWaitSemaphores(", err);
}

enum lap_status queue_wait_all(struct vk *v, struct lap_error *err)
{
	pthread_mutex_lock(&v->queue_lock);
	uint64_t ticket = v->last_ticket;
	pthread_mutex_unlock(&v->queue_lock);
	return queue_wait(v, ticket, err);
}
