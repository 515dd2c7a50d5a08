/* fma_rate: out[i] = 8 chains x = x * factor + addend of FMA_STEPS * n_turns steps, added up.  Does nothing but
 * multiply and add: how fast it can be is how fast the device computes. */
layout(local_size_x_id = LANES_ID) in;
ARGS(fma_rate_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };

/* Two vectors: eight chains that do not wait for each other. */
#define STEP     a = a * args.factor + args.addend; b = b * args.factor + args.addend;
#define STEPS_4  STEP STEP STEP STEP
#define STEPS_16 STEPS_4 STEPS_4 STEPS_4 STEPS_4

void main()
{
	uint first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(first + OUTPUTS_PER_GROUP, args.n);
	for (uint i = first + gl_LocalInvocationID.x; i < end; i += LANES) {
		vec4 a = vec4(i % 16) + vec4(0, 1, 2, 3), b = a + 4;
		for (uint turn = 0; turn < args.n_turns; turn++) {
			STEPS_16
		}
		result[i] = a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
	}
}
