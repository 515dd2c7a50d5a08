/* matmul_q8: matmul with x in 8 bits, as quantize_x leaves it, for ROWS rows of the step per workgroup.
 *
 * A lane takes OUTPUTS rows of weights, 32 apart so that a small matrix too fills the lanes.  An element's sum runs
 * over its units in order. */
layout(local_size_x = 32) in;
ARGS(matmul_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_buffer { float bias[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_buffer { float residual[]; };

#include "product_q8.glsl"
#include "epilogue.glsl"

#define ROWS    8 /* rows/group in kernels.def */
#define OUTPUTS 4 /* components of a vec4 */

uint first_row = gl_WorkGroupID.z * ROWS, end_row = min(first_row + ROWS, args.n_rows);

/* The sums of outputs first, first + 32, ...; outputs and rows that are not there are another. */
void sum_units(uint first, out vec4 sums[ROWS])
{
	uint n_units = args.n_in / UNIT;
	[[unroll]] for (uint t = 0; t < ROWS; t++)
		sums[t] = vec4(0);
	for (uint unit = 0; unit < n_units; unit++) {
		w_unit w[OUTPUTS];
		[[unroll]] for (uint i = 0; i < OUTPUTS; i++)
			w[i] = w_load(min(first + 32 * i, args.n_out - 1) * args.row_bytes, unit);
		[[unroll]] for (uint t = 0; t < ROWS; t++) {
			uint row = min(first_row + t, end_row - 1);
			x_unit x = x_load((row * args.stride_x + unit * Q8_WORDS) / 4);
			[[unroll]] for (uint i = 0; i < OUTPUTS; i++)
				sums[t][i] += unit_product(w[i], x);
		}
	}
}

void main()
{
	uint group_first = flat_group() * OUTPUTS_PER_GROUP;
	uint end = min(group_first + OUTPUTS_PER_GROUP, args.n_out);
	if (first_row >= args.n_rows)
		return;
	for (uint first = group_first + gl_LocalInvocationID.x; first < end; first += 32 * OUTPUTS) {
		vec4 sums[ROWS];
		sum_units(first, sums);
		[[dont_unroll]] for (uint row = first_row; row < end_row; row++) {
			[[dont_unroll]] for (uint i = first; i < min(first + 32 * OUTPUTS, end); i += 32) {
				finish(i, row, sums[0].x);
				sums[0] = sums[0].yzwx;
			}
			[[unroll]] for (uint t = 0; t + 1 < ROWS; t++)
				sums[t] = sums[t + 1];
		}
	}
}
