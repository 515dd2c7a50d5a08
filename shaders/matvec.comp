/* matvec: out[row] = epilogue(weights x[row]), see args.h, one row of the step per workgroup. */
layout(local_size_x = 64) in;
layout(push_constant) uniform push { matmul_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 2) readonly buffer x_buffer { vec4 x[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#include "matvec.glsl"

void store(uint out_row, float sum)
{
	uint row = gl_WorkGroupID.z;
	if (args.has_bias != 0)
		sum += bias[out_row];
	sum *= args.scale;
	if (args.has_residual != 0)
		sum += residual[row * args.stride_residual + out_row];
	result[row * args.stride_out + out_row] = softcapped(sum, args.softcap);
}

void main()
{
	if (gl_WorkGroupID.z < args.n_rows)
		matvec(0, gl_WorkGroupID.z * (args.stride_x / 4));
}
