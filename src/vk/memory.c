/* Blocks and the buffers in them: see memory.h. */
#include "memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "device.h"
#include "run.h"
#include "staging.h"

/* A stretch of a block that no buffer holds; the list is in the order of offsets, no two touch. */
struct gap {
	uint64_t offset, n_bytes;
	struct gap *next;
};

struct block {
	struct block *next;
	VkDeviceMemory memory;
	uint64_t n_bytes;
	uint32_t type;
	enum memory kind;
	bool dedicated;
	uint8_t *mapped;
	uint32_t n_buffers;
	struct gap *gaps;
};

/* ---- memory types ---------------------------------------------------------------------------- */

static bool is_mappable(VkMemoryPropertyFlags flags)
{
	return (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) &&
		(flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
}

static uint64_t type_score(const VkPhysicalDeviceMemoryProperties *p, uint32_t type,
	enum memory memory, bool shared_heap)
{
	VkMemoryPropertyFlags flags = p->memoryTypes[type].propertyFlags;
	uint64_t heap_mib = p->memoryHeaps[p->memoryTypes[type].heapIndex].size >> 20;
	bool local = flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
	bool cached = flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
	bool mapped = is_mappable(flags);
	if (flags &
		(VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
			VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD))
		return 0;
	if (memory == MEMORY_SHARED)
		return !mapped
			? 0
			: (shared_heap && local ? 1ull << 40 : 0) + (cached ? 1ull << 39 : 0) +
				(!shared_heap && !local ? 1ull << 38 : 0) + 1;
	if (!local && !(shared_heap && mapped))
		return 0;
	return (local ? 1ull << 40 : 0) + (heap_mib << 2) + (mapped ? 2 : 0) + 1;
}

uint32_t memory_types_rank(const VkPhysicalDeviceMemoryProperties *properties, uint32_t allowed,
	enum memory memory, bool shared_heap, uint32_t types[MAX_MEMORY_TYPES])
{
	uint64_t scores[MAX_MEMORY_TYPES];
	uint32_t n = 0;
	for (uint32_t type = 0; type < properties->memoryTypeCount; type++) {
		uint64_t score = type_score(properties, type, memory, shared_heap);
		if (score == 0 || !(allowed >> type & 1))
			continue;
		uint32_t at = n++;
		for (; at > 0 && scores[at - 1] < score; at--) {
			scores[at] = scores[at - 1];
			types[at] = types[at - 1];
		}
		scores[at] = score;
		types[at] = type;
	}
	return n;
}

static bool has_shared_heap(const struct vk *v)
{
	return v->info.unified_memory &&
		(v->info.type == LAP_DEVICE_INTEGRATED || v->info.type == LAP_DEVICE_CPU);
}

/* The heaps that weights may lie in, as large as the driver lets this process fill them. */
uint64_t memory_available(struct backend *b)
{
	struct vk *v = (struct vk *)b;
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
	bool has_budget = device_has_extension(v->physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
	VkPhysicalDeviceMemoryProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = has_budget ? &budget : NULL};
	vkGetPhysicalDeviceMemoryProperties2(v->physical, &properties);
	const VkPhysicalDeviceMemoryProperties *p = &properties.memoryProperties;
	uint32_t types[MAX_MEMORY_TYPES], seen = 0;
	uint32_t n_types =
		memory_types_rank(p, UINT32_MAX, MEMORY_DEVICE, has_shared_heap(v), types);
	uint64_t n_bytes = 0;
	for (uint32_t i = 0; i < n_types; i++) {
		uint32_t heap = p->memoryTypes[types[i]].heapIndex;
		if (!(seen >> heap & 1))
			n_bytes += has_budget ? budget.heapBudget[heap] : p->memoryHeaps[heap].size;
		seen |= 1u << heap;
	}
	return n_bytes;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool block_create(struct vk *v, uint32_t type, uint64_t n_bytes, enum memory kind,
	bool dedicated, struct block **made, VkResult *result)
{
	struct block *block = vk_alloc(1, sizeof *block);
	struct gap *gap = vk_alloc(1, sizeof *gap);
	*result = VK_ERROR_OUT_OF_HOST_MEMORY;
	if (!block || !gap)
		goto failed;
	*result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
	if (vk_allocation_fails() || vk_allocation_too_large(n_bytes))
		goto failed;
	*block = (struct block){.n_bytes = n_bytes,
		.type = type,
		.kind = kind,
		.dedicated = dedicated,
		.gaps = gap};
	*gap = (struct gap){.n_bytes = n_bytes};
	*result = v->fn.vkAllocateMemory(v->device,
		&(VkMemoryAllocateInfo){
			.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
			.allocationSize = n_bytes,
			.memoryTypeIndex = type,
		},
		NULL, &block->memory);
	if (*result != VK_SUCCESS)
		goto failed;
	VkMemoryPropertyFlags flags = v->memory_properties.memoryTypes[type].propertyFlags;
	if (is_mappable(flags) && !(kind == MEMORY_DEVICE && v->no_mapping)) {
		void *mapped = NULL;
		*result = v->fn.vkMapMemory(v->device, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
		block->mapped = mapped;
		if (*result != VK_SUCCESS) {
			v->fn.vkFreeMemory(v->device, block->memory, NULL);
			goto failed;
		}
	}
	if (block->mapped && v->info.type == LAP_DEVICE_CPU) /* then it is this process's memory */
		memory_in_large_pages(block->mapped, n_bytes);
	v->base.device_bytes += n_bytes;
	*made = block;
	return true;
failed:
	free(block);
	free(gap);
	return false;
}

static void block_destroy(struct vk *v, struct block *block)
{
	for (struct gap *gap = block->gaps, *next; gap; gap = next) {
		next = gap->next;
		free(gap);
	}
	v->fn.vkFreeMemory(v->device, block->memory, NULL); /* unmaps it, too */
	v->base.device_bytes -= block->n_bytes;
	free(block);
}

/* Takes n_bytes (a multiple of `align`) out of the smallest gap that has them. */
static bool block_take(struct block *block, uint64_t n_bytes, uint64_t align, uint64_t *offset)
{
	struct gap **best = NULL;
	for (struct gap **at = &block->gaps; *at; at = &(*at)->next) {
		uint64_t start;
		if (!size_align((*at)->offset, align, &start) ||
			start - (*at)->offset + n_bytes > (*at)->n_bytes)
			continue;
		if (!best || (*at)->n_bytes < (*best)->n_bytes)
			best = at;
	}
	if (!best)
		return false;
	struct gap *gap = *best;
	uint64_t start = gap->offset;
	size_align(gap->offset, align, &start);
	uint64_t before = start - gap->offset, after = gap->n_bytes - before - n_bytes;
	if (before && after) {
		struct gap *rest = vk_alloc(1, sizeof *rest);
		if (!rest)
			return false;
		*rest = (struct gap){start + n_bytes, after, gap->next};
		gap->n_bytes = before;
		gap->next = rest;
	} else if (before) {
		gap->n_bytes = before;
	} else if (after) {
		*gap = (struct gap){start + n_bytes, after, gap->next};
	} else {
		*best = gap->next;
		free(gap);
	}
	*offset = start;
	block->n_buffers++;
	return true;
}

/* Puts the bytes back.  Out of host memory for the note of it, they stay taken until the block goes:
 * nothing worse. */
static void block_give(struct block *block, uint64_t offset, uint64_t n_bytes)
{
	assert(block->n_buffers > 0);
	block->n_buffers--;
	struct gap *before = NULL, *after = block->gaps;
	while (after && after->offset < offset) {
		before = after;
		after = after->next;
	}
	bool joins_before = before && before->offset + before->n_bytes == offset;
	bool joins_after = after && offset + n_bytes == after->offset;
	if (joins_before) {
		before->n_bytes += n_bytes;
		if (joins_after) {
			before->n_bytes += after->n_bytes;
			before->next = after->next;
			free(after);
		}
	} else if (joins_after) {
		after->offset = offset;
		after->n_bytes += n_bytes;
	} else {
		struct gap *gap = vk_alloc(1, sizeof *gap);
		if (!gap)
			return;
		*gap = (struct gap){offset, n_bytes, after};
		*(before ? &before->next : &block->gaps) = gap;
	}
}

/* ---- buffers --------------------------------------------------------------------------------- */

struct wish {
	uint64_t n_bytes, align;
	enum memory memory;
};

/* Out of a block that is there already. */
static bool place_in_old(struct vk *v, const struct wish *w, uint32_t type, struct buffer *buffer)
{
	for (struct block *block = v->blocks; block; block = block->next)
		if (!block->dedicated && block->type == type && block->kind == w->memory &&
			block_take(block, w->n_bytes, w->align, &buffer->offset)) {
			buffer->block = block;
			return true;
		}
	return false;
}

static bool place_in_new(
	struct vk *v, const struct wish *w, uint32_t type, struct buffer *buffer, VkResult *result)
{
	uint64_t size = w->memory == MEMORY_SHARED ? BLOCK_SHARED : BLOCK_MIN;
	bool dedicated = w->n_bytes > size;
	for (struct block *block = v->blocks; block; block = block->next)
		if (block->kind == w->memory && !block->dedicated && size < BLOCK_MAX)
			size *= 2;
	if (dedicated)
		size = w->n_bytes;
	/* A smaller block may do where a large one does not. */
	for (;; size /= 2) {
		if (size < w->n_bytes)
			size = w->n_bytes;
		struct block *block;
		if (block_create(v, type, size, w->memory, dedicated, &block, result)) {
			block_take(block, w->n_bytes, w->align, &buffer->offset);
			buffer->block = block;
			block->next = v->blocks;
			v->blocks = block;
			return true;
		}
		if (size == w->n_bytes)
			return false;
	}
}

static bool is_out_of_memory(VkResult result)
{
	return result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* Finds the place, and binds the buffer there. */
static VkResult buffer_place(
	struct vk *v, const struct wish *w, uint32_t allowed, struct buffer *buffer)
{
	uint32_t types[MAX_MEMORY_TYPES];
	uint32_t n_types = memory_types_rank(
		&v->memory_properties, allowed, w->memory, has_shared_heap(v), types);
	VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
	for (uint32_t i = 0; i < n_types && !buffer->block; i++)
		if (!place_in_old(v, w, types[i], buffer) &&
			!place_in_new(v, w, types[i], buffer, &result) && !is_out_of_memory(result))
			break;
	if (!buffer->block)
		return result;
	buffer->taken = w->n_bytes;
	if (buffer->block->mapped)
		buffer->mapped = buffer->block->mapped + buffer->offset;
	return v->fn.vkBindBufferMemory(
		v->device, buffer->handle, buffer->block->memory, buffer->offset);
}

static void buffer_unplace(struct vk *v, struct buffer *buffer)
{
	struct block *block = buffer->block;
	if (!block)
		return;
	block_give(block, buffer->offset, buffer->taken);
	if (block->n_buffers > 0)
		return;
	for (struct block **at = &v->blocks; *at; at = &(*at)->next)
		if (*at == block) {
			*at = block->next;
			break;
		}
	block_destroy(v, block);
}

static enum lap_status fail_buffer(
	struct vk *v, VkResult result, const char *label, uint64_t n_bytes, struct lap_error *err)
{
	if (!is_out_of_memory(result))
		return vk_status(result, "the memory of a buffer(", err);
	pthread_mutex_lock(&v->memory_lock);
	uint64_t held = v->base.device_bytes;
	pthread_mutex_unlock(&v->memory_lock);
	return fail(err, LAP_NO_MEMORY,
		"out of device memory: %s needs %.1f MiB on %s, which has %.1f MiB (%.1f MiB "
		"held by this model, at most %.1f MiB in one allocation)",
		label, (double)n_bytes / (1 << 20), v->info.name,
		(double)v->info.memory_bytes / (1 << 20), (double)held / (1 << 20),
		(double)v->info.max_allocation_bytes / (1 << 20));
}

enum lap_status buffer_create_raw(struct vk *v, uint64_t n_bytes, enum memory memory,
	const char *label, struct buffer **made, struct lap_error *err)
{
	*made = NULL;
	uint64_t size;
	if (!size_align(n_bytes ? n_bytes : 1, BUFFER_ALIGN, &size) ||
		size > v->info.max_allocation_bytes)
		return fail_buffer(v, VK_ERROR_OUT_OF_DEVICE_MEMORY, label, n_bytes, err);
	struct buffer *buffer = vk_alloc(1, sizeof *buffer);
	if (!buffer)
		return fail_memory(err, label, sizeof *buffer);
	buffer->n_bytes = n_bytes;
	/* lavapipe compiles what reads texels for buffers whose size is a power of two, and again for others. */
	if (v->texels && memory == MEMORY_DEVICE && (size & (size - 1)) == 0)
		size += BUFFER_ALIGN;
	VkResult result = v->fn.vkCreateBuffer(v->device,
		&(VkBufferCreateInfo){
			.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
			.size = size,
			.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
				VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT |
				VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
				VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
			.sharingMode = VK_SHARING_MODE_EXCLUSIVE,
		},
		NULL, &buffer->handle);
	if (result != VK_SUCCESS) {
		free(buffer);
		return fail_buffer(v, result, label, n_bytes, err);
	}
	VkMemoryRequirements needs;
	v->fn.vkGetBufferMemoryRequirements(v->device, buffer->handle, &needs);
	struct wish wish = {
		0, needs.alignment > BUFFER_ALIGN ? needs.alignment : BUFFER_ALIGN, memory};
	size_align(needs.size, wish.align, &wish.n_bytes);
	pthread_mutex_lock(&v->memory_lock);
	result = buffer_place(v, &wish, needs.memoryTypeBits, buffer);
	pthread_mutex_unlock(&v->memory_lock);
	if (result != VK_SUCCESS) {
		enum lap_status status = fail_buffer(v, result, label, n_bytes, err);
		buffer_destroy(&v->base, buffer);
		return status;
	}
	*made = buffer;
	return LAP_OK;
}

void buffer_destroy(struct backend *b, struct buffer *buffer)
{
	struct vk *v = (struct vk *)b;
	if (!buffer)
		return;
	v->fn.vkDestroyBuffer(v->device, buffer->handle, NULL);
	pthread_mutex_lock(&v->memory_lock);
	buffer_unplace(v, buffer);
	pthread_mutex_unlock(&v->memory_lock);
	free(buffer);
}

void *buffer_map(struct buffer *buffer)
{
	return buffer->mapped;
}

/* ---- what the backend offers ----------------------------------------------------------------- */

enum lap_status buffer_create(struct backend *b, uint64_t n_bytes, enum memory memory,
	const char *label, struct buffer **buffer, struct lap_error *err)
{
	struct vk *v = (struct vk *)b;
	enum lap_status status = buffer_create_raw(v, n_bytes, memory, label, buffer, err);
	if (status)
		return status;
	if ((*buffer)->mapped)
		memset((*buffer)->mapped, 0, (*buffer)->taken);
	else
		status = staging_zero(v, *buffer, err);
	if (status) {
		buffer_destroy(b, *buffer);
		*buffer = NULL;
	}
	return status;
}

/* What was submitted before is done first, for it may use the bytes. */
enum lap_status buffer_write(struct backend *b, struct view to, const void *bytes, uint64_t n_bytes,
	struct lap_error *err)
{
	struct vk *v = (struct vk *)b;
	assert(n_bytes <= to.n_bytes && to.offset + n_bytes <= to.buffer->n_bytes);
	if (n_bytes == 0)
		return LAP_OK;
	if (!to.buffer->mapped)
		return staging_write(v, to.buffer, to.offset, bytes, n_bytes, err);
	enum lap_status status = queue_wait_all(v, err);
	if (!status)
		memcpy(to.buffer->mapped + to.offset, bytes, n_bytes);
	return status;
}

enum lap_status buffer_read(
	struct backend *b, struct view from, void *bytes, uint64_t n_bytes, struct lap_error *err)
{
	struct vk *v = (struct vk *)b;
	assert(n_bytes <= from.n_bytes && from.offset + n_bytes <= from.buffer->n_bytes);
	if (n_bytes == 0)
		return LAP_OK;
	if (!from.buffer->mapped)
		return staging_read(v, from.buffer, from.offset, bytes, n_bytes, err);
	enum lap_status status = queue_wait_all(v, err);
	if (!status)
		memcpy(bytes, from.buffer->mapped + from.offset, n_bytes);
	return status;
}
