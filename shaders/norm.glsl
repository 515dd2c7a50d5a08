/* The frame of rmsnorm and layernorm: one workgroup for a segment of a row, with LP_SHUFFLE a subgroup of 8.
 *
 * Loops are tested at their end: see matvec.glsl.
 *
 * The includer has computed `mean` and `factor` of the segment's columns when it calls norm_write. */
#include "group.glsl"
layout(local_size_x = LANES) in;
ARGS(norm_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 0) writeonly buffer out_quads { vec4 result4[]; };
layout(std430, set = 0, binding = 1) readonly buffer x_buffer { float x[]; };
layout(std430, set = 0, binding = 1) readonly buffer x_quads { vec4 x4[]; };
layout(std430, set = 0, binding = 2) readonly buffer weight_buffer { float weight[]; };
layout(std430, set = 0, binding = 2) readonly buffer weight_quads { vec4 weight4[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_quads { vec4 bias4[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_quads { vec4 residual4[]; };
#include "activation.glsl"
#define REDUCE_TYPE float
#include "reduce.glsl"

uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.z;
uint column = flat_group() * args.n; /* the segment's first */
uint x_at = row * args.stride_x + column;
/* Columns are taken by four where all segments begin at a multiple of it, one by one elsewhere. */
uint n_quads = args.n % 4 == 0 ? args.n / 4 : 0, n_single = args.n % 4 == 0 ? 0 : args.n;

/* A result with its residual, or its gate. */
vec4 joined(vec4 value, vec4 other)
{
	return args.is_gated != 0 ? value * silu(other) : value + other;
}

void norm_write(float mean, float factor)
{
	uint to = row * args.stride_out + column, residual_at = row * args.stride_residual + column;
	uint i = lane;
	if (i < n_quads) do {
		vec4 value = (x4[x_at / 4 + i] - mean) * factor * weight4[i];
		if (args.has_bias != 0)
			value += bias4[i];
		if (args.has_residual != 0)
			value = joined(value, residual4[residual_at / 4 + i]);
		result4[to / 4 + i] = value * args.scale;
		i += LANES;
	} while (i < n_quads);
	i = lane;
	if (i < n_single) do {
		float value = (x[x_at + i] - mean) * factor * weight[i];
		if (args.has_bias != 0)
			value += bias[i];
		if (args.has_residual != 0)
			value = joined(vec4(value), vec4(residual[residual_at + i])).x;
		result[to + i] = value * args.scale;
		i += LANES;
	} while (i < n_single);
}
