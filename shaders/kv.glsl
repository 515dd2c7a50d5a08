/* The KV cache: where a position of a sequence lies (the block table), and elements of K and V in each of
 * the types.  The one place on a device that knows the layout of a cache; its twin is src/kv.c, and
 * src/kv.h describes the quantised types.  The type is a specialization constant: one branch of each
 * function is compiled.
 *
 * The includer defines KV_READ, KV_WRITE or both as the binding of K to read and to write (V follows) and
 * TABLE_BINDING, and has `args` with n_head_kv and n_blocks. */
#define HEAD_DIM (SPEC & ATTN_DIM_MASK)
#define K_TYPE   (SPEC >> ATTN_K_SHIFT & ATTN_TYPE_MASK)
#define V_TYPE   (SPEC >> ATTN_V_SHIFT & ATTN_TYPE_MASK)
#define HAS_SOFTCAP ((SPEC & ATTN_SOFTCAP) != 0)

layout(std430, set = 0, binding = TABLE_BINDING) readonly buffer table_buffer { uint block_table[]; };

/* The first element of a head at a position. */
uint kv_element(uint seq, uint pos, uint head_kv)
{
	uint block = block_table[seq * args.n_blocks + pos / KV_BLOCK];
	return ((block * KV_BLOCK + pos % KV_BLOCK) * args.n_head_kv + head_kv) * HEAD_DIM;
}

#ifdef KV_READ
layout(std430, set = 0, binding = KV_READ) readonly buffer k_buffer { uint k_words[]; };
layout(std430, set = 0, binding = KV_READ) readonly buffer k_floats { vec2 k_f32[]; };
layout(std430, set = 0, binding = KV_READ + 1) readonly buffer v_buffer { uint v_words[]; };
layout(std430, set = 0, binding = KV_READ + 1) readonly buffer v_floats { vec2 v_f32[]; };
#define UNIT_PAIRS (KV_UNIT / 2)

/* Whole words of a unit, without its scale. */
vec4 signed_bytes_of(uint word)
{
	return vec4(ivec4(uvec4(word << 24, word << 16, word << 8, word)) >> 24);
}

vec4 nibbles_of(uint word)
{
	return vec4(uvec4(word, word >> 4, word >> 8, word >> 12) & 15u) - 8;
}

void unpack_halves(uvec4 q, out vec4 a, out vec4 b)
{
	a = vec4(halves_to_float(q.x), halves_to_float(q.y));
	b = vec4(halves_to_float(q.z), halves_to_float(q.w));
}

/* Pair i of a unit: `word` is the one that holds it, `scale` the unit's first. */
vec2 q8_0_pair(uint scale, uint word, uint i)
{
	word >>= i % 2 * 16;
	return uintBitsToFloat(scale) * vec2(ivec2(word << 24, word << 16) >> 24);
}

vec2 q4_0_pair(uint scale, uint word, uint i)
{
	word >>= i % 4 * 8;
	return uintBitsToFloat(scale) * (vec2(word & 15u, word >> 4 & 15u) - 8);
}

/* Elements 2 * pair and 2 * pair + 1 of the cache. */
vec2 k_pair(uint pair)
{
	uint unit = pair / UNIT_PAIRS, i = pair % UNIT_PAIRS;
	if (K_TYPE == KV_F32)
		return k_f32[pair];
	if (K_TYPE == KV_F16)
		return halves_to_float(k_words[pair]);
	if (K_TYPE == KV_Q8_0) {
		unit *= KV_Q8_0_WORDS;
		return q8_0_pair(k_words[unit], k_words[unit + 1 + i / 2], i);
	}
	unit *= KV_Q4_0_WORDS;
	return q4_0_pair(k_words[unit], k_words[unit + 1 + i / 4], i);
}

vec2 v_pair(uint pair)
{
	uint unit = pair / UNIT_PAIRS, i = pair % UNIT_PAIRS;
	if (V_TYPE == KV_F32)
		return v_f32[pair];
	if (V_TYPE == KV_F16)
		return halves_to_float(v_words[pair]);
	if (V_TYPE == KV_Q8_0) {
		unit *= KV_Q8_0_WORDS;
		return q8_0_pair(v_words[unit], v_words[unit + 1 + i / 2], i);
	}
	unit *= KV_Q4_0_WORDS;
	return q4_0_pair(v_words[unit], v_words[unit + 1 + i / 4], i);
}

#ifdef LP_TEXELS
/* As texel buffers, which stand where products have their weights: for subgroups of 8 (attention_lanes.glsl). */
layout(set = 0, binding = TEXEL_QUADS) uniform usamplerBuffer k_texels;
layout(set = 0, binding = TEXEL_WORDS) uniform usamplerBuffer v_texels;

uvec4 k_quad(uint at)
{
	return texelFetch(k_texels, int(at));
}

uvec4 v_quad(uint at)
{
	return texelFetch(v_texels, int(at));
}

/* Four words from word `at` % 4 of a on, which b follows. */
uvec4 four_words(uvec4 a, uvec4 b, uint at)
{
	bool by_2 = (at & 2u) != 0;
	a = by_2 ? uvec4(a.zw, b.xy) : a;
	return (at & 1u) != 0 ? uvec4(a.yzw, by_2 ? b.z : b.x) : a;
}

/* The 32 elements of K from `first` on, a whole unit: all vec4s of a head are read at once, so that a scale
 * is read once. */
void k_unit(uint first, out vec4 w[8])
{
	if (K_TYPE == KV_F32) {
		[[unroll]] for (uint i = 0; i < 8; i++)
			w[i] = uintBitsToFloat(k_quad(first / 4 + i));
	} else if (K_TYPE == KV_F16) {
		[[unroll]] for (uint i = 0; i < 4; i++)
			unpack_halves(k_quad(first / 8 + i), w[2 * i], w[2 * i + 1]);
	} else if (K_TYPE == KV_Q8_0) {
		uint at = first / KV_UNIT * KV_Q8_0_WORDS;
		uvec4 a = k_quad(at / 4), b = k_quad(at / 4 + 1), c = k_quad(at / 4 + 2);
		uvec4 head = four_words(a, b, at), tail = four_words(b, c, at);
		uint words[8] = uint[8](head.y, head.z, head.w, tail.x, tail.y, tail.z, tail.w, c[at % 4]);
		[[unroll]] for (uint i = 0; i < 8; i++)
			w[i] = uintBitsToFloat(head.x) * signed_bytes_of(words[i]);
	} else {
		uint at = first / KV_UNIT * KV_Q4_0_WORDS;
		uvec4 a = k_quad(at / 4), b = k_quad(at / 4 + 1), head = four_words(a, b, at);
		uint words[4] = uint[4](head.y, head.z, head.w, b[at % 4]);
		[[unroll]] for (uint i = 0; i < 4; i++) {
			w[2 * i] = uintBitsToFloat(head.x) * nibbles_of(words[i]);
			w[2 * i + 1] = uintBitsToFloat(head.x) * nibbles_of(words[i] >> 16);
		}
	}
}

/* Word `at` of the quads that the lanes have, counted from the first lane's. */
uint word_of_lanes(uvec4 mine, uint at)
{
	return subgroupShuffle(mine, at / 4)[at % 4];
}

/* Elements i .. i + 7, i a multiple of 8, of the 64 of V from `first` on, a whole unit; all lanes call this with
 * the same `first`.  Two units with a scale are at most 6 quads: each lane loads one. */
void v_eight(uint first, uint i, out vec4 w[2])
{
	if (V_TYPE == KV_F32) {
		w[0] = uintBitsToFloat(v_quad((first + i) / 4));
		w[1] = uintBitsToFloat(v_quad((first + i) / 4 + 1));
	} else if (V_TYPE == KV_F16) {
		unpack_halves(v_quad((first + i) / 8), w[0], w[1]);
	} else {
		uint n_words = V_TYPE == KV_Q8_0 ? KV_Q8_0_WORDS : KV_Q4_0_WORDS;
		uint begin = first / KV_UNIT * n_words;
		uvec4 mine = v_quad(begin / 4 + gl_SubgroupInvocationID);
		uint unit = begin % 4 + i / KV_UNIT * n_words;
		float scale = uintBitsToFloat(word_of_lanes(mine, unit));
		i %= KV_UNIT;
		if (V_TYPE == KV_Q8_0) {
			w[0] = scale * signed_bytes_of(word_of_lanes(mine, unit + 1 + i / 4));
			w[1] = scale * signed_bytes_of(word_of_lanes(mine, unit + 2 + i / 4));
		} else {
			uint word = word_of_lanes(mine, unit + 1 + i / 8);
			w[0] = scale * nibbles_of(word);
			w[1] = scale * nibbles_of(word >> 16);
		}
	}
}
#endif
#endif

#ifdef KV_WRITE
layout(std430, set = 0, binding = KV_WRITE) writeonly buffer k_out_buffer { uint k_out[]; };
layout(std430, set = 0, binding = KV_WRITE + 1) writeonly buffer v_out_buffer { uint v_out[]; };

shared float head[2][MAX_HEAD_DIM]; /* of K and of V, to be stored */

#define IS_K 0
#define IS_V 1

void kv_write(uint which, uint word, uint value)
{
	if (which == IS_K)
		k_out[word] = value;
	else
		v_out[word] = value;
}

float unit_scale(uint which, uint type, uint first)
{
	float largest = 0;
	for (uint i = first; i < first + KV_UNIT; i++)
		if (abs(head[which][i]) > abs(largest))
			largest = head[which][i];
	return type == KV_Q8_0 ? abs(largest) / 127 : largest / -8;
}

/* Elements first .. of the head, a unit; to: where its words go. */
void unit_store(uint which, uint type, uint first, uint to)
{
	float scale = unit_scale(which, type, first), inverse = scale != 0 ? 1 / scale : 0.0;
	uint n_words = KV_Q8_0_WORDS - 1, n_bits = 8;
	if (type == KV_Q4_0) {
		n_words = KV_Q4_0_WORDS - 1;
		n_bits = 4;
	}
	kv_write(which, to, floatBitsToUint(scale));
	for (uint w = 0; w < n_words; w++) {
		uint word = 0;
		for (uint shift = 0; shift < 32; shift += n_bits) {
			float x = head[which][first] * inverse;
			uint q = type == KV_Q8_0
				? uint(int(clamp(roundEven(x), -127.0, 127.0))) & 0xFFu
				: uint(clamp(floor(x + 8.5), 0.0, 15.0));
			word |= q << shift;
			first++;
		}
		kv_write(which, to + 1 + w, word);
	}
}

/* Words of n elements in a cache of this type; n is even, and whole units where the type has any. */
uint words_of(uint type, uint n)
{
	if (type == KV_F32)
		return n;
	if (type == KV_F16)
		return n / 2;
	return n / KV_UNIT * (type == KV_Q8_0 ? KV_Q8_0_WORDS : KV_Q4_0_WORDS);
}

/* The head, to the cache from element `at` on; `lane` is one of n_lanes that call this together. */
void head_store(uint which, uint type, uint at, uint lane, uint n_lanes)
{
	uint n = type == KV_F32 ? HEAD_DIM : type == KV_F16 ? HEAD_DIM / 2 : HEAD_DIM / KV_UNIT, i = lane;
	if (i < n) do {
		if (type == KV_F32)
			kv_write(which, at + i, floatBitsToUint(head[which][i]));
		else if (type == KV_F16)
			kv_write(which, at / 2 + i,
				floats_to_half(vec2(head[which][2 * i], head[which][2 * i + 1])));
		else
			unit_store(which, type, i * KV_UNIT, words_of(type, at + i * KV_UNIT));
		i += n_lanes;
	} while (i < n);
}

#ifdef KV_READ
/* A head of V from element `from` to element `to`, as it is. */
void v_copy(uint from, uint to, uint lane, uint n_lanes)
{
	uint from_word = words_of(V_TYPE, from), to_word = words_of(V_TYPE, to);
	for (uint i = lane; i < words_of(V_TYPE, HEAD_DIM); i += n_lanes)
		kv_write(IS_V, to_word + i, v_words[from_word + i]);
}
#endif
#endif
