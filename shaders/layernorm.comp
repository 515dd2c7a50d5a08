/* layernorm: out = (x - mean(x)) / sqrt(variance(x) + eps) * weight (+ bias) (+ residual), per segment of
 * a row.  The variance is summed around the mean: the difference of two large sums would lose it. */
#include "norm.glsl"

void main()
{
	if (flat_group() >= args.n_segments)
		return;
	float sum = 0, squares = 0;
	for (uint i = lane; i < n_quads; i += LANES)
		sum += dot(x4[x_at / 4 + i], vec4(1));
	for (uint i = lane; i < n_single; i += LANES)
		sum += x[x_at + i];
	float mean = group_sum(sum) / float(args.n);
	for (uint i = lane; i < n_quads; i += LANES) {
		vec4 distance = x4[x_at / 4 + i] - mean;
		squares += dot(distance, distance);
	}
	for (uint i = lane; i < n_single; i += LANES)
		squares += (x[x_at + i] - mean) * (x[x_at + i] - mean);
	norm_write(mean, 1 / sqrt(group_sum(squares) / float(args.n) + args.eps));
}
