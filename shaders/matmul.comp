/* matmul: out[row] = epilogue(weights x[row]), see args.h, for TILE_ROWS rows of the step per workgroup.  With SPLIT
 * above 1 out is the sums of each part, for n_rows rows, one part behind the other. */
ARGS(matmul_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#ifndef LP_SHARED
#define TILE_ROWS 16 /* rows/group in kernels.def */
#endif
#define FIRST_ROW (gl_WorkGroupID.z * TILE_ROWS)
#define PART_ROWS args.n_rows

#define FINISHES_QUADS
#include "epilogue.glsl"
#include "matmul.glsl"

uint x_begin(uint t)
{
	return (FIRST_ROW + t) * (args.stride_x / 4);
}

void store(uint out_row, uint t, float sum)
{
	finish(out_row, FIRST_ROW + t, sum);
}

void store_quad(uint out_row, uint t, vec4 sum)
{
	finish_quad(out_row, FIRST_ROW + t, sum);
}

void main()
{
	if (FIRST_ROW < args.n_rows)
		matmul(0, min(args.n_rows - FIRST_ROW, TILE_ROWS));
}
