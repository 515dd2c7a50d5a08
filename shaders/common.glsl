/* What every kernel shares: the argument structs, the specialization constants, the flat number of a
 * workgroup, 16-bit floats, and the weights of a per-weight kernel as words.
 *
 * Knows no kernel and no weight format.  Everything here is 32-bit arithmetic on 32-bit words: no
 * 8, 16 or 64-bit types, and subgroups only where LP_SUBGROUP or LP_SHUFFLE builds the variant that uses
 * them; with LP_DOT products of packed bytes. */
#ifdef LP_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#ifdef LP_SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#ifdef LP_DOT
#extension GL_EXT_spirv_intrinsics : require
#endif
#extension GL_EXT_control_flow_attributes : require /* [[unroll]]: hints, no feature of a device */

#define LAPILLI_GLSL
#include "args.h"

layout(constant_id = 0) const uint OUTPUTS_PER_GROUP = 1; /* see kernels.def */
layout(constant_id = 1) const uint SPEC = 0;              /* struct op: constant */

/* A kernel's struct of arguments, read before anything else: within a loop or a branch lavapipe reads a push constant
 * for each lane, some 40 instructions at every mention. */
#define ARGS(type)                                       \
	layout(push_constant) uniform push { type pushed; }; \
	type args = pushed

#define UNIT 32 /* weights that weight_decode gives at once */

#define ROWS_ARE_WHOLE  ((SPEC & ROWS_WHOLE) != 0)
#ifdef LP_WEIGHT_FORMAT
#define HALVES_ARE_KEPT ((SPEC & HALVES_KEPT) != 0)
#elif defined(LP_SHUFFLE)
#define HALVES_ARE_KEPT true
#else
#define HALVES_ARE_KEPT false
#endif

/* The groups along x are folded into x and y: an axis ends at 65,535 on many devices.  The fold may
 * add groups at its end, so a kernel returns when its first output is beyond the last. */
uint flat_group()
{
	return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}

/* ---- 16-bit floats ---- */

/* The half in the lower 16 bits.  A driver may flush subnormal halves to zero, and scales of real
 * models are subnormal: where it is not known to keep them they are made from the integer. */
float half_to_float(uint h)
{
	if (HALVES_ARE_KEPT)
		return unpackHalf2x16(h & 0xFFFFu).x;
	float step = (h & 0x8000u) != 0 ? -5.9604644775390625e-8 : 5.9604644775390625e-8; /* 2^-24 */
	return (h & 0x7C00u) != 0 ? unpackHalf2x16(h & 0xFFFFu).x : float(h & 0x3FFu) * step;
}

vec2 halves_to_float(uint word)
{
	if (HALVES_ARE_KEPT)
		return unpackHalf2x16(word);
	return vec2(half_to_float(word), half_to_float(word >> 16));
}

/* Rounded to nearest even: packHalf2x16 leaves the rounding to the driver, and lavapipe truncates. */
uint float_to_half(float f)
{
	uint bits = floatBitsToUint(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
	if (magnitude > 0x7F800000u) /* NaN */
		return sign | 0x7E00u;
	if (magnitude >= 0x477FF000u) /* 65520 and above round to infinity */
		return sign | 0x7C00u;
	if (magnitude < 0x38800000u) { /* below 2^-14 the last place is 2^-24, as in this sum */
		precise float sum = uintBitsToFloat(magnitude) + 0.5;
		return sign | floatBitsToUint(sum) - 0x3F000000u;
	}
	return sign | (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
}

uint floats_to_half(vec2 f)
{
	return float_to_half(f.x) | float_to_half(f.y) << 16;
}

/* ---- caps ---- */

/* cap * tanh(y / cap), or y where the cap is 0.  Some drivers' tanh overflows: this one cannot. */
float softcapped(float y, float cap)
{
	if (cap == 0)
		return y;
	float e = exp(-2 * abs(y) / cap);
	return (y < 0 ? -cap : cap) * (1 - e) / (1 + e);
}

vec4 softcapped(vec4 y, float cap)
{
	if (cap == 0)
		return y;
	return vec4(softcapped(y.x, cap), softcapped(y.y, cap), softcapped(y.z, cap),
		softcapped(y.w, cap));
}

/* ---- the weights of a per-weight kernel ---- */

#ifdef LP_WEIGHT_FORMAT
/* One chunk of a matrix; WEIGHT_PAD bytes behind its last row can be read.  With LP_TEXELS it is read as a
 * texel buffer: software drivers, and some GPUs, load texels faster. */
#ifdef LP_TEXELS
layout(set = 0, binding = TEXEL_QUADS) uniform usamplerBuffer weight_quads;
layout(set = 0, binding = TEXEL_WORDS) uniform usamplerBuffer weight_words;

uvec4 quad(uint at)
{
	return texelFetch(weight_quads, int(at));
}

uint word(uint at)
{
	return texelFetch(weight_words, int(at)).x;
}
#else
layout(std430, set = 0, binding = 1) readonly buffer weight_quads_buffer { uvec4 weight_quads[]; };
layout(std430, set = 0, binding = 1) readonly buffer weight_words_buffer { uint weight_words[]; };

uvec4 quad(uint at)
{
	return weight_quads[at];
}

uint word(uint at)
{
	return weight_words[at];
}
#endif

/* The word that begins `shift` bits (0 to 31) into `low`. */
uint funnel(uint low, uint high, uint shift)
{
	return low >> shift | high << 1 << 31 - shift;
}

/* The word at any byte. */
uint word_at(uint byte)
{
	return funnel(word(byte >> 2), word((byte >> 2) + 1), (byte & 3u) * 8);
}

/* The two bytes at an even byte. */
uint half_at(uint byte)
{
	return word(byte >> 2) >> (byte & 2u) * 8 & 0xFFFFu;
}

uint byte_at(uint byte)
{
	return word(byte >> 2) >> (byte & 3u) * 8 & 0xFFu;
}

/* Word i is the one at any byte + 4 i.  Two quads hold 17 bytes from any byte on, 18 from an even one, 20
 * and 24 from a multiple of 4 and 8; three hold 16 more.  What is beyond them is undefined. */
void load_two_quads(uint byte, out uint q[6])
{
	uint at = byte >> 4, shift = (byte & 3u) * 8;
	uvec4 a = quad(at), b = quad(at + 1);
	bool by_2 = (byte & 8u) != 0, by_1 = (byte & 4u) != 0;
	uvec4 c = by_2 ? uvec4(a.zw, b.xy) : a, d = by_2 ? uvec4(b.zw, 0, 0) : b;
	uvec4 low = by_1 ? uvec4(c.yzw, d.x) : c;
	uvec3 high = by_1 ? d.yzw : d.xyz;
	for (uint i = 0; i < 6; i++) {
		uint first = i < 4 ? low[i] : high[i - 4];
		q[i] = funnel(first, i < 3 ? low[i + 1] : high[i - 3], shift);
	}
}

void load_three_quads(uint byte, out uint q[9])
{
	uint at = byte >> 4, shift = (byte & 3u) * 8;
	uvec4 a = quad(at), b = quad(at + 1), c = quad(at + 2);
	bool by_2 = (byte & 8u) != 0, by_1 = (byte & 4u) != 0;
	uvec4 d = by_2 ? uvec4(a.zw, b.xy) : a, e = by_2 ? uvec4(b.zw, c.xy) : b;
	uvec3 f = by_2 ? uvec3(c.zw, 0) : c.xyz;
	uint words[10];
	for (uint i = 0; i < 4; i++) {
		words[i] = by_1 ? (i < 3 ? d[i + 1] : e.x) : d[i];
		words[i + 4] = by_1 ? (i < 3 ? e[i + 1] : f.x) : e[i];
	}
	words[8] = by_1 ? f.y : f.x;
	words[9] = by_1 ? f.z : f.y;
	for (uint i = 0; i < 9; i++)
		q[i] = funnel(words[i], words[i + 1], shift);
}

/* 32 halves from an even byte on, as 16 words. */
void load_halves(uint byte, out uint q[16])
{
	uint at = byte >> 4;
	if (ROWS_ARE_WHOLE) {
		for (uint i = 0; i < 4; i++) {
			uvec4 v = quad(at + i);
			q[4 * i] = v.x;
			q[4 * i + 1] = v.y;
			q[4 * i + 2] = v.z;
			q[4 * i + 3] = v.w;
		}
		return;
	}
	at = byte >> 2;
	uint shift = (byte & 2u) * 8, low = word(at);
	for (uint i = 0; i < 16; i++) {
		uint high = word(at + i + 1);
		q[i] = funnel(low, high, shift);
		low = high;
	}
}

/* The bytes of a word. */
vec4 bytes(uint word)
{
	return vec4(uvec4(word, word >> 8, word >> 16, word >> 24) & 0xFFu);
}

/* Signed, times d; numbers 2^24 times as large save a shift. */
vec4 signed_bytes_times(uint word, float d)
{
	return vec4(ivec4(uvec4(word << 24, word << 16, word << 8, word) & 0xFF000000u)) * (d / 0x1000000);
}

/* (bytes - less) * d, for bytes below 128 and a whole number.  With LP_SHUFFLE they stay where they stand in the
 * word, numbers that are as much larger, which saves the shifts; as the last bits of 2^23 the lower three are floats
 * without a conversion.  GPUs turn any byte into a float. */
#ifdef LP_SHUFFLE
vec4 bytes_times(uint word, float less, float d)
{
	const vec4 one = vec4(1, 0x100, 0x10000, 0x1000000);
	const vec4 base = vec4(0x800000, 0x800000, 0x800000, 0);
	vec3 lower = uintBitsToFloat(word & uvec3(0xFF, 0xFF00, 0x7F0000) | floatBitsToUint(base.xyz));
	return (vec4(lower, float(int(word & 0x7F000000u))) - (base + less * one)) * (d / one);
}
#else
vec4 bytes_times(uint word, float less, float d)
{
	return (bytes(word) - less) * d;
}
#endif

/* n, at most 128, less in each byte of a word; the bytes are below 128. */
uint bytes_less(uint word, uint n)
{
	return (word | 0x80808080u) - n * 0x01010101u ^ 0x80808080u;
}

/* Bit i of the lower four becomes bit 4 of byte i. */
uint spread_fifth_bits(uint bits)
{
	return (bits & 1u) << 4 | (bits & 2u) << 11 | (bits & 4u) << 18 | (bits & 8u) << 25;
}

/* Bits g of the 4 bytes of a word become bit n of each. */
uint bits_to(uint word, uint g, uint n)
{
	return (word >> g & 0x01010101u) << n;
}

/* Pair i of the lower 8 bits becomes byte i. */
uint spread_pairs(uint bits)
{
	bits = (bits | bits << 12) & 0x000F000Fu;
	return (bits | bits << 6) & 0x03030303u;
}

/* What the nibbles of 4 bytes mean in a table of 16 signed bytes. */
vec4 nibble_values(uvec4 table, uint nibbles)
{
	uvec4 i = uvec4(nibbles, nibbles >> 8, nibbles >> 16, nibbles >> 24);
	bvec4 odd = notEqual(i & 4u, uvec4(0)), upper = notEqual(i & 8u, uvec4(0));
	uvec4 word = mix(mix(uvec4(table.x), uvec4(table.y), odd),
		mix(uvec4(table.z), uvec4(table.w), odd), upper);
	return vec4(ivec4(word << 24 - 8 * (i & 3u)) >> 24);
}

/* Scale and minimum of a group of 8, from the head of a Q4_K or Q5_K block: f16 scale and minimum scale,
 * 12 bytes of 6-bit scales and minimums. */
vec2 scale_min_k4(uvec4 head, uint group)
{
	uint shift = 8 * (group % 4);
	uvec2 first = head.yz >> shift; /* bytes of groups 0 to 3; their upper bits serve 4 to 7 */
	uint second = head.w >> shift;
	uvec2 scale_min = group < 4
		? first & 63u
		: uvec2(second, second >> 4) & 15u | (first >> 2 & 0x30u);
	precise vec2 dsm = halves_to_float(head.x) * vec2(scale_min);
	return dsm;
}

/* Weights of the unit that are beyond the row's n_in are whatever stands there: they become 0. */
void unit_mask(inout vec4 w[8], uint unit, uint n_in)
{
	if (ROWS_ARE_WHOLE)
		return;
	uint n = n_in - min(unit * UNIT, n_in);
	for (uint i = 0; i < 8; i++)
		w[i] = mix(vec4(0), w[i], lessThan(uvec4(0, 1, 2, 3) + 4 * i, uvec4(n)));
}
#endif
