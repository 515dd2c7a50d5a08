/* Copies through the staging buffer: see staging.h. */
#include "staging.h"

#include <string.h>

#include "memory.h"
#include "run.h"

static enum lap_status staging_create(struct vk *v, struct lap_error *err)
{
	struct staging *s = &v->staging;
	enum lap_status status = LAP_OK;
	if (!s->pool)
		status = VK_CREATE(
			v->fn.vkCreateCommandPool(v->device,
				&(VkCommandPoolCreateInfo){
					.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
					.queueFamilyIndex = v->queue_family,
				},
				NULL, &s->pool),
			&s->pool);
	if (!status && !s->commands[0])
		status = VK(v->fn.vkAllocateCommandBuffers(v->device,
			&(VkCommandBufferAllocateInfo){
				.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
				.commandPool = s->pool,
				.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
				.commandBufferCount = N_STAGING,
			},
			s->commands));
	if (!status && !s->buffer)
		status = buffer_create_raw(
			v, STAGING_BYTES, MEMORY_SHARED, "the staging buffer", &s->buffer, err);
	return status;
}

static VkMemoryBarrier everything(void)
{
	VkAccessFlags all = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
	return (VkMemoryBarrier){.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = all,
		.dstAccessMask = all};
}

static enum lap_status commands_begin(struct vk *v, VkCommandBuffer commands, struct lap_error *err)
{
	enum lap_status status = VK(v->fn.vkBeginCommandBuffer(commands,
		&(VkCommandBufferBeginInfo){
			.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
			.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
		}));
	if (status)
		return status;
	VkMemoryBarrier barrier = everything();
	v->fn.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
		VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
	return LAP_OK;
}

static enum lap_status commands_submit(
	struct vk *v, VkCommandBuffer commands, uint64_t *ticket, struct lap_error *err)
{
	VkMemoryBarrier barrier = everything();
	v->fn.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
		VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
		NULL, 0, NULL);
	enum lap_status status = VK(v->fn.vkEndCommandBuffer(commands));
	return status ? status : queue_submit(v, &commands, 1, "a copy", ticket, err);
}

enum lap_status staging_zero(struct vk *v, struct buffer *buffer, struct lap_error *err)
{
	pthread_mutex_lock(&v->staging.lock);
	enum lap_status status = staging_create(v, err);
	VkCommandBuffer commands = v->staging.commands[0];
	uint64_t *ticket = &v->staging.tickets[0];
	if (!status)
		status = commands_begin(v, commands, err);
	if (!status) {
		v->fn.vkCmdFillBuffer(commands, buffer->handle, 0, VK_WHOLE_SIZE, 0);
		status = commands_submit(v, commands, ticket, err);
	}
	if (!status)
		status = queue_wait(v, *ticket, err);
	pthread_mutex_unlock(&v->staging.lock);
	return status;
}

enum copy { COPY_IN, COPY_OUT };

/* n_bytes between the device and half i of the staging buffer; *ticket when it is done. */
static enum lap_status copy_part(struct vk *v, enum copy way, uint32_t i, struct buffer *buffer,
	uint64_t offset, uint64_t n_bytes, struct lap_error *err)
{
	struct staging *s = &v->staging;
	enum lap_status status = commands_begin(v, s->commands[i], err);
	if (status)
		return status;
	uint64_t half = STAGING_BYTES / N_STAGING * i;
	bool in = way == COPY_IN;
	v->fn.vkCmdCopyBuffer(s->commands[i], in ? s->buffer->handle : buffer->handle,
		in ? buffer->handle : s->buffer->handle, 1,
		&(VkBufferCopy){in ? half : offset, in ? offset : half, n_bytes});
	return commands_submit(v, s->commands[i], &s->tickets[i], err);
}

static enum lap_status copy_in(struct vk *v, struct buffer *buffer, uint64_t offset,
	const uint8_t *bytes, uint64_t n_bytes, struct lap_error *err)
{
	struct staging *s = &v->staging;
	const uint64_t half = STAGING_BYTES / N_STAGING;
	enum lap_status status = LAP_OK;
	for (uint32_t i = 0; n_bytes && !status; i = (i + 1) % N_STAGING) {
		uint64_t part = n_bytes < half ? n_bytes : half;
		status = queue_wait(v, s->tickets[i], err);
		if (status)
			break;
		memcpy(s->buffer->mapped + half * i, bytes, part);
		status = copy_part(v, COPY_IN, i, buffer, offset, part, err);
		bytes += part;
		offset += part;
		n_bytes -= part;
	}
	/* Also after a failure: nobody touches the staging buffer while it is in use. */
	for (uint32_t i = 0; i < N_STAGING; i++) {
		enum lap_status waited = queue_wait(v, s->tickets[i], status ? NULL : err);
		status = status ? status : waited;
	}
	return status;
}

static enum lap_status copy_out(struct vk *v, struct buffer *buffer, uint64_t offset,
	uint8_t *bytes, uint64_t n_bytes, struct lap_error *err)
{
	struct staging *s = &v->staging;
	const uint64_t half = STAGING_BYTES / N_STAGING;
	enum lap_status status = LAP_OK;
	while (n_bytes && !status) {
		uint64_t part = n_bytes < half ? n_bytes : half;
		status = copy_part(v, COPY_OUT, 0, buffer, offset, part, err);
		if (!status)
			status = queue_wait(v, s->tickets[0], err);
		if (!status)
			memcpy(bytes, s->buffer->mapped, part);
		bytes += part;
		offset += part;
		n_bytes -= part;
	}
	return status;
}

enum lap_status staging_write(struct vk *v, struct buffer *buffer, uint64_t offset,
	const void *bytes, uint64_t n_bytes, struct lap_error *err)
{
	pthread_mutex_lock(&v->staging.lock);
	enum lap_status status = staging_create(v, err);
	if (!status)
		status = copy_in(v, buffer, offset, bytes, n_bytes, err);
	pthread_mutex_unlock(&v->staging.lock);
	return status;
}

enum lap_status staging_read(struct vk *v, struct buffer *buffer, uint64_t offset, void *bytes,
	uint64_t n_bytes, struct lap_error *err)
{
	pthread_mutex_lock(&v->staging.lock);
	enum lap_status status = staging_create(v, err);
	if (!status)
		status = copy_out(v, buffer, offset, bytes, n_bytes, err);
	pthread_mutex_unlock(&v->staging.lock);
	return status;
}

void staging_close(struct vk *v)
{
	struct staging *s = &v->staging;
	buffer_destroy(&v->base, s->buffer);
	v->fn.vkDestroyCommandPool(v->device, s->pool, NULL);
}
