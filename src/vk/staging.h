/* Bytes into and out of device memory that the host cannot map, through a buffer of bounded size.
 *
 * The copies go to the queue behind what was submitted before; each function returns when its own
 * are done.  The buffer is made when it is first needed. */
#ifndef LAPILLI_VK_STAGING_H
#define LAPILLI_VK_STAGING_H

#include "vk.h"

#define STAGING_BYTES (16u << 20)

enum lap_status staging_write(struct vk *v, struct buffer *buffer, uint64_t offset,
	const void *bytes, uint64_t n_bytes, struct lap_error *err);
enum lap_status staging_read(struct vk *v, struct buffer *buffer, uint64_t offset, void *bytes,
	uint64_t n_bytes, struct lap_error *err);

/* Makes the whole buffer zero. */
enum lap_status staging_zero(struct vk *v, struct buffer *buffer, struct lap_error *err);

void staging_close(struct vk *v);

#endif
