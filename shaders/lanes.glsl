/* Sums and maxima over a subgroup of 8, for the shuffle variants: every lane has them. */
float lanes_max(float f)
{
	[[unroll]] for (uint mask = 1; mask < 8; mask *= 2)
		f = max(f, subgroupShuffleXor(f, mask));
	return f;
}

float lanes_sum(float f)
{
	[[unroll]] for (uint mask = 1; mask < 8; mask *= 2)
		f += subgroupShuffleXor(f, mask);
	return f;
}
