/* What products of weights with rows of x have in common: x, read as the weights are. */
#ifdef LP_TEXELS
layout(set = 0, binding = TEXEL_X) uniform samplerBuffer x_quads;

vec4 x_quad(uint at)
{
	return texelFetch(x_quads, int(at));
}
#else
layout(std430, set = 0, binding = 2) readonly buffer x_buffer { vec4 x_quads[]; };

vec4 x_quad(uint at)
{
	return x_quads[at];
}
#endif
