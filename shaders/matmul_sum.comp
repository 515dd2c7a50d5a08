/* matmul_sum: out[row] = epilogue(the sum over the parts of sums[part][row]), see args.h.  A workgroup takes
 * OUTPUTS_PER_GROUP elements of a row. */
layout(local_size_x = 64) in;
ARGS(matmul_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer sums_buffer { float sums[]; };
layout(std430, set = 0, binding = 2) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 3) readonly buffer residual_buffer { float residual[]; };

#include "parts.h"
#include "epilogue.glsl"

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP, row = gl_WorkGroupID.z;
	uint n_parts = N_PARTS((args.n_in + UNIT - 1) / UNIT), part_size = args.n_rows * args.stride_x;
	if (first >= args.n_out)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n_out);
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += 64) {
		float sum = 0;
		for (uint part = 0; part < n_parts; part++)
			sum += sums[part * part_size + row * args.stride_x + i];
		finish(i, row, sum);
	}
}
