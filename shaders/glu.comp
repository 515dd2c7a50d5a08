/* glu: out = activation(gate) * up, or activation(up).  A workgroup takes OUTPUTS_PER_GROUP elements of a row, a lane
 * four at a time where GLU_QUADS says that all begin at multiples of four.  Loops are tested at their end: see
 * matvec.glsl. */
#define LANES 64
layout(local_size_x = LANES) in;
ARGS(glu_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 0) writeonly buffer out_quads { vec4 result4[]; };
layout(std430, set = 0, binding = 1) readonly buffer gate_buffer { float gate[]; };
layout(std430, set = 0, binding = 1) readonly buffer gate_quads { vec4 gate4[]; };
layout(std430, set = 0, binding = 2) readonly buffer up_buffer { float up[]; };
layout(std430, set = 0, binding = 2) readonly buffer up_quads { vec4 up4[]; };

#include "activation.glsl"

#define ACTIVATION (SPEC & GLU_ACTIVATION)
#define IS_GATED   ((SPEC & GLU_GATED) != 0)
#define STEP       ((SPEC & GLU_QUADS) != 0 ? 4 : 1)

uint row = gl_WorkGroupID.z, to = row * args.stride;
uint gate_at = row * args.stride_gate + args.gate_first, up_at = row * args.stride_up + args.up_first;

/* Where the gate of column i is. */
uint gate_of(uint i)
{
	uint between = args.gate_segment - args.segment;
	return gate_at + i + (between != 0 ? i / args.segment * between : 0);
}

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n);
	uint i = first + gl_LocalInvocationID.x * STEP;
	if (i < end) do {
		if (STEP == 4) {
			vec4 u = up4[(up_at + i) / 4];
			result4[(to + i) / 4] = IS_GATED ? gated(ACTIVATION, gate4[gate_of(i) / 4], u)
			                                 : activation(ACTIVATION, u);
		} else {
			vec4 u = vec4(up[up_at + i]);
			result[to + i] = (IS_GATED ? gated(ACTIVATION, vec4(gate[gate_of(i)]), u)
			                           : activation(ACTIVATION, u)).x;
		}
		i += LANES * STEP;
	} while (i < end);
}
