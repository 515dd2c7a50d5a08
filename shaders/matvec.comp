/* matvec: out[row] = epilogue(weights x[row]), see args.h, for up to COLUMNS rows of the step per workgroup. */
layout(local_size_x_id = LANES_ID) in;
ARGS(matmul_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#define COLUMNS (SPEC >> COLUMNS_SHIFT & 15u)

#define FINISHES_QUADS
#include "epilogue.glsl"
#include "matvec.glsl"

uint x_begin(uint x_row)
{
	return x_row * (args.stride_x / 4);
}

void store(uint out_row, uint x_row, float sum)
{
	finish(out_row, x_row, sum);
}

void store_quad(uint out_row, uint x_row, vec4 sum)
{
	finish_quad(out_row, x_row, sum);
}

void main()
{
	uint x_row = gl_WorkGroupID.z * COLUMNS;
	if (x_row < args.n_rows)
		matvec(0, x_row, min(x_row + COLUMNS, args.n_rows));
}
