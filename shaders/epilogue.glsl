/* What a product of many rows does with its sums: see struct matmul_args.  Precise, so that the bits are the same
 * whoever adds up the parts of a sum.
 *
 * The includer declares args (matmul_args) and binds bias, residual and result. */
void finish(uint out_row, uint row, float sum)
{
	precise float y = sum;
	if (args.has_bias != 0)
		y += bias[out_row];
	y *= args.scale;
	if (args.has_residual != 0)
		y += residual[row * args.stride_residual + out_row];
	result[row * args.stride_out + out_row] = softcapped(y, args.softcap);
}
