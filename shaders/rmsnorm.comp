/* rmsnorm: out = x / sqrt(mean(x^2) + eps) * weight (+ bias) (+ residual), per segment of a row. */
#include "norm.glsl"

void main()
{
	if (flat_group() >= args.n_segments)
		return;
	float sum = 0;
	for (uint i = lane; i < n_quads; i += LANES)
		sum += dot(x4[x_at / 4 + i], x4[x_at / 4 + i]);
	for (uint i = lane; i < n_single; i += LANES)
		sum += x[x_at + i] * x[x_at + i];
	norm_write(0, 1 / sqrt(group_sum(sum) / float(args.n) + args.eps));
}
