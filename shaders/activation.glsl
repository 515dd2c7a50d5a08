/* Activations of feed-forward networks, and gated ones: see ACTIVATION_SILU in args.h. */

/* 1 / (1 + exp(-x)), written so that exp never overflows. */
vec4 sigmoid(vec4 x)
{
	vec4 e = exp(-abs(x));
	return mix(vec4(1), e, lessThan(x, vec4(0))) / (1 + e);
}

vec4 silu(vec4 x)
{
	return x * sigmoid(x);
}

/* The constants: 2 sqrt(2 / pi), for (1 + tanh(y)) / 2 is sigmoid(2 y); then those of args.h. */
vec4 activation(uint which, vec4 x)
{
	switch (which) {
	case ACTIVATION_GELU:
		return x * sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x));
	case ACTIVATION_SWIGLU:
		x = min(x, 7.0);
		return x * sigmoid(1.702 * x);
	case ACTIVATION_SIGMOID:
		return sigmoid(x);
	default:
		return silu(x);
	}
}

/* activation(gate) * up */
vec4 gated(uint which, vec4 gate, vec4 up)
{
	if (which == ACTIVATION_SWIGLU)
		up = clamp(up, -7.0, 7.0) + 1;
	return activation(which, gate) * up;
}
