/* What a product does with its sums: see struct matmul_args.  Precise, so that the bits are the same whoever adds up
 * the parts of a sum.  What a product does not have is left out by SPEC: lavapipe would go through it all the same.
 *
 * The includer declares args (matmul_args) and binds bias, residual and result; with FINISHES_QUADS
 * as bindings 3, 4 and 0. */
#define GATED        (SPEC >> GATED_SHIFT & GATED_MASK)
#define HAS_BIAS     (GATED == 0 && (SPEC & PRODUCT_BIAS) != 0)
#define HAS_RESIDUAL (GATED == 0 && args.has_residual != 0)

vec4 finished(vec4 sum, vec4 its_bias, vec4 its_residual)
{
	precise vec4 y = sum;
	if (HAS_BIAS)
		y += its_bias;
	if (GATED == 0)
		y *= args.scale;
	if (HAS_RESIDUAL)
		y += its_residual;
	if (GATED == 0 && (SPEC & PRODUCT_SOFTCAP) != 0)
		y = softcapped(y, args.softcap);
	return y;
}

void finish(uint out_row, uint row, float sum)
{
	float its_bias = 0, its_residual = 0;
	if (HAS_BIAS)
		its_bias = bias[out_row];
	if (HAS_RESIDUAL)
		its_residual = residual[row * args.stride_residual + out_row];
	result[row * args.stride_out + out_row] = finished(vec4(sum), vec4(its_bias), vec4(its_residual)).x;
}

#ifdef FINISHES_QUADS
layout(std430, set = 0, binding = 0) writeonly buffer out_quads { vec4 result4[]; };
layout(std430, set = 0, binding = 3) readonly buffer bias_quads { vec4 bias4[]; };
layout(std430, set = 0, binding = 4) readonly buffer residual_quads { vec4 residual4[]; };

/* Four outputs, where the first and all that it is a place in are multiples of four. */
void finish_quad(uint out_row, uint row, vec4 sum)
{
	vec4 its_bias = vec4(0), its_residual = vec4(0);
	if (HAS_BIAS)
		its_bias = bias4[out_row / 4];
	if (HAS_RESIDUAL)
		its_residual = residual4[(row * args.stride_residual + out_row) / 4];
	result4[(row * args.stride_out + out_row) / 4] = finished(sum, its_bias, its_residual);
}
#endif
