/* Allocations that fail on demand: see alloc.h. */
#include "alloc.h"

#include <stdatomic.h>

static atomic_int allocations_left = -1;
static atomic_ullong largest_allocation; /* bytes; 0: any */

int vk_fail_allocation_after(int n)
{
	return atomic_exchange(&allocations_left, n);
}

bool vk_allocation_fails(void)
{
	int left = atomic_load(&allocations_left);
	while (left > 0)
		if (atomic_compare_exchange_weak(&allocations_left, &left, left - 1))
			return false;
	return left == 0;
}

void *vk_alloc(uint64_t n, uint64_t size)
{
	return vk_allocation_fails() ? NULL : array_alloc(n, size);
}

void vk_fail_allocation_above(uint64_t n_bytes)
{
	atomic_store(&largest_allocation, n_bytes);
}

bool vk_allocation_too_large(uint64_t n_bytes)
{
	unsigned long long largest = atomic_load(&largest_allocation);
	return largest && n_bytes > largest;
}
