/* The frame of rmsnorm and layernorm: one workgroup for a segment of a row.
 *
 * The includer has computed `mean` and `factor` of the segment's columns when it calls norm_write. */
#define LANES 128
layout(local_size_x = LANES) in;
layout(push_constant) uniform push { norm_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer x_buffer { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer weight_buffer { float weight[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };
#define REDUCE_TYPE float
#include "reduce.glsl"

uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.z;
uint column = flat_group() * args.n; /* the segment's first */
uint x_at = row * args.stride_x + column;

void norm_write(float mean, float factor)
{
	uint to = row * args.stride_out + column, residual_at = row * args.stride_residual + column;
	for (uint i = lane; i < args.n; i += LANES) {
		float value = (x[x_at + i] - mean) * factor * weight[i];
		if (args.has_bias != 0)
			value += bias[i];
		if (args.has_residual != 0)
			value += residual[residual_at + i];
		result[to + i] = value;
	}
}
