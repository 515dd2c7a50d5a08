/* The workgroup of kernels that work on something as one: LANES of it, and group_barrier for their steps.
 *
 * With LP_SHUFFLE that is a subgroup of 8, which has nobody to wait for.  On lavapipe a workgroup runs in one thread
 * however large it is, and what waits is compiled as a coroutine: two to three times the code.
 *
 * The includer may define GROUP_SIZE, a power of two. */
#ifndef GROUP_SIZE
#define GROUP_SIZE 128
#endif
#ifdef LP_SHUFFLE
#define LANES         8
#define group_barrier subgroupBarrier
#else
#define LANES         GROUP_SIZE
#define group_barrier barrier
#endif
