/* Sums over a workgroup of LANES invocations, a power of two, in shared memory.  The tree is
 * the same on every device.  In uniform control flow only.  With LP_SHUFFLE the workgroup is a subgroup of 8.
 *
 * The includer defines LANES and REDUCE_TYPE: float, or a vector of them without LP_SHUFFLE. */
#ifdef LP_SHUFFLE
#include "lanes.glsl"

float group_sum(float value)
{
	return lanes_sum(value);
}
#else
shared REDUCE_TYPE reduce_scratch[LANES];

/* What the tree left; after this the scratch may be used again. */
REDUCE_TYPE reduce_result()
{
	REDUCE_TYPE result = reduce_scratch[0];
	barrier();
	return result;
}

REDUCE_TYPE group_sum(REDUCE_TYPE value)
{
	uint lane = gl_LocalInvocationID.x;
	reduce_scratch[lane] = value;
	barrier();
	for (uint n = LANES / 2; n > 0; n /= 2) {
		if (lane < n)
			reduce_scratch[lane] += reduce_scratch[lane + n];
		barrier();
	}
	return reduce_result();
}
#endif
