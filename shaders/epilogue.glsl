/* What a product does with its sums: see struct matmul_args.  Precise, so that the bits are the same whoever adds up
 * the parts of a sum.  What a product does not have is left out by SPEC: lavapipe would go through it all the same.
 *
 * The includer declares args (matmul_args) and binds bias, residual and result. */
#define GATED (SPEC >> GATED_SHIFT & GATED_MASK)

void finish(uint out_row, uint row, float sum)
{
	precise float y = sum;
	if (GATED == 0) {
		if ((SPEC & PRODUCT_BIAS) != 0)
			y += bias[out_row];
		y *= args.scale;
		if (args.has_residual != 0)
			y += residual[row * args.stride_residual + out_row];
		if ((SPEC & PRODUCT_SOFTCAP) != 0)
			y = softcapped(y, args.softcap);
	}
	result[row * args.stride_out + out_row] = y;
}
