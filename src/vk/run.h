/* The queue: submits in order, each with a ticket, and the wait for one.
 *
 * A ticket is a value of one timeline semaphore: what has ticket n is done when the semaphore
 * reaches n.  Ticket 0 is done from the start.  Knows command buffers, not what is in them. */
#ifndef LAPILLI_VK_RUN_H
#define LAPILLI_VK_RUN_H

#include "vk.h"

enum lap_status queue_open(struct vk *v, struct lap_error *err);
void queue_close(struct vk *v); /* waits for what was submitted */

/* Submits n command buffers as one batch; `what` is kept for messages (device lost while ...). */
enum lap_status queue_submit(struct vk *v, const VkCommandBuffer *commands, uint32_t n,
	const char *what, uint64_t *ticket, struct lap_error *err);

/* Returns when everything up to the ticket is done.  What a recording wrote is then visible to the
 * host, for every recording ends with a barrier that says so. */
enum lap_status queue_wait(struct vk *v, uint64_t ticket, struct lap_error *err);
enum lap_status queue_wait_all(struct vk *v, struct lap_error *err);

#endif
