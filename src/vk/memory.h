/* Buffers: where they lie in device memory, how bytes get in and out.
 *
 * Memory comes in blocks that buffers share; a large buffer has a block of its own.  Everything a
 * buffer holds is zero at first.  Host-visible memory stays mapped, and is then written directly;
 * other memory is reached through staging.h. */
#ifndef LAPILLI_VK_MEMORY_H
#define LAPILLI_VK_MEMORY_H

#include "vk.h"

#define BUFFER_ALIGN 256          /* of offsets in blocks, and of views in buffers */
#define BLOCK_MIN    (64u << 20)  /* a buffer beyond it has a block of its own */
#define BLOCK_MAX    (256u << 20) /* each further block of a kind is larger, up to this */
#define BLOCK_SHARED (4u << 20)   /* blocks for what the host reads and writes */

struct buffer {
	VkBuffer handle;
	uint64_t n_bytes;
	struct block *block;
	uint64_t offset, taken; /* in the block */
	uint8_t *mapped;        /* NULL: the host cannot reach it */
};

/* Memory types for a buffer that may lie in `allowed` (a bit per type), best first; their number.
 * MEMORY_DEVICE: device-local, of the largest heap; mappable where that costs nothing.  Host memory
 * is only taken where the device shares it (`shared_heap`: an integrated or CPU device).
 * MEMORY_SHARED: host-visible and coherent, cached if possible, device-local on a shared heap. */
uint32_t memory_types_rank(const VkPhysicalDeviceMemoryProperties *properties, uint32_t allowed,
	enum memory memory, bool shared_heap, uint32_t types[MAX_MEMORY_TYPES]);

/* As buffer_create, but the bytes are whatever the memory held. */
enum lap_status buffer_create_raw(struct vk *v, uint64_t n_bytes, enum memory memory,
	const char *label, struct buffer **buffer, struct lap_error *err);

/* As in struct backend_ops. */
enum lap_status buffer_create(struct backend *b, uint64_t n_bytes, enum memory memory,
	const char *label, struct buffer **buffer, struct lap_error *err);
uint64_t memory_available(struct backend *b);
void buffer_destroy(struct backend *b, struct buffer *buffer);
void *buffer_map(struct buffer *buffer);
enum lap_status buffer_write(struct backend *b, struct view to, const void *bytes, uint64_t n_bytes,
	struct lap_error *err);
enum lap_status buffer_read(
	struct backend *b, struct view from, void *bytes, uint64_t n_bytes, struct lap_error *err);

#endif
