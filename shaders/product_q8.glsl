/* What products of weights with x in 8 bits have in common: x as quantize_x leaves it, units of weights
 * and of x, their product. */
#ifdef LP_DOT
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int signed_dot(uint a, uint b, spirv_literal int format); /* OpSDot; format 0: bytes in a word */
#endif

layout(std430, set = 0, binding = 2) readonly buffer x_buffer { uvec4 x_quads[]; };

struct x_unit {
	uint q[8];
	float scale;
	vec2 sums; /* of the first 16 q, and of the last */
};

/* Each half of a unit is (q - minimum / scale) * scale. */
struct w_unit {
	uint q[8];
	vec2 scale, minimum;
};

/* The unit of x at a quad. */
x_unit x_load(uint at)
{
	uvec4 a = x_quads[at], b = x_quads[at + 1], c = x_quads[at + 2];
	x_unit x;
	x.q = uint[8](a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x);
	x.scale = uintBitsToFloat(a.x);
	x.sums = uintBitsToFloat(c.yz);
	return x;
}

w_unit w_load(uint row_byte, uint unit)
{
	w_unit w;
	weight_integers(row_byte, unit, w.q, w.scale, w.minimum);
	return w;
}

/* The even bytes of a word as signed numbers: the lower one, plus 2^16 times the upper. */
uint even_bytes(uint word)
{
	return (word & 0x00FF00FFu ^ 0x00800080u) - 0x00800080u;
}

/* Of 4 signed bytes with 4 others, which are above -128.  Without an instruction for it one product makes two:
 * (a0 + a2 2^16) (b2 + b0 2^16) = a0 b2 + (a0 b0 + a2 b2) 2^16, what is above 2^32 aside. */
int byte_dot(uint a, uint b)
{
#ifdef LP_DOT
	return signed_dot(a, b, 0);
#else
	uint turned = b >> 16 | b << 16;
	int even = int(even_bytes(a) * even_bytes(turned) + 0x8000u);
	int odd = int(even_bytes(a >> 8) * even_bytes(turned >> 8) + 0x8000u);
	return (even >> 16) + (odd >> 16);
#endif
}

/* The same operations in every kernel: nothing is fused. */
float unit_product(w_unit w, x_unit x)
{
	ivec2 dots = ivec2(0);
	[[unroll]] for (uint i = 0; i < 4; i++)
		dots += ivec2(byte_dot(w.q[i], x.q[i]), byte_dot(w.q[i + 4], x.q[i + 4]));
	precise vec2 halves = w.scale * vec2(dots);
#ifdef WEIGHT_HAS_MINIMUM
	halves -= w.minimum * x.sums;
#endif
	precise float product = x.scale * (halves.x + halves.y);
	return product;
}
