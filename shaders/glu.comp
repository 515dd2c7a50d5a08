/* glu: out = activation(gate) * up, or activation(up).  A workgroup takes OUTPUTS_PER_GROUP elements of a
 * row. */
layout(local_size_x = 64) in;
ARGS(glu_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 1) readonly buffer gate_buffer { float gate[]; };
layout(std430, set = 0, binding = 2) readonly buffer up_buffer { float up[]; };

#include "activation.glsl"

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint row = gl_WorkGroupID.z, to = row * args.stride;
	uint gate_at = row * args.stride_gate + args.gate_first;
	uint up_at = row * args.stride_up + args.up_first;
	bool apart = args.segment != args.gate_segment;
	if (first >= args.n)
		return;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n);
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += 64) {
		float u = up[up_at + i];
		uint g = gate_at + i;
		if (apart)
			g += i / args.segment * (args.gate_segment - args.segment);
		result[to + i] = args.has_gate != 0 ? gated(args.activation, gate[g], u)
		                                    : activation(args.activation, u);
	}
}
