/* Host memory for this folder, and the switch that makes it fail in tests. */
#ifndef LAPILLI_VK_ALLOC_H
#define LAPILLI_VK_ALLOC_H

#include "base.h"

/* array_alloc, unless it is this one's turn to fail. */
void *vk_alloc(uint64_t n, uint64_t size);

/* True when the allocation that follows must fail; vk_alloc asks, and so does who allocates device
 * memory. */
bool vk_allocation_fails(void);

/* For tests: n more allocations succeed, every further one fails; -1: none fails.  Returns how many
 * were left of the n before. */
int vk_fail_allocation_after(int n);

/* For tests: allocations of device memory beyond n_bytes fail, as on a device whose memory is in pieces;
 * 0: none does. */
void vk_fail_allocation_above(uint64_t n_bytes);
bool vk_allocation_too_large(uint64_t n_bytes);

#endif
