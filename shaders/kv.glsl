/* The KV cache: where a position of a sequence lies (the block table), and elements of K and V, stored
 * as floats or as pairs of halves.  The one place that knows the layout of a cache.
 *
 * The includer defines KV_READ or KV_WRITE, KV_FIRST_BINDING (of k, v follows) and TABLE_BINDING,
 * and has `args` with n_head_kv and n_blocks. */
#define HEAD_DIM (SPEC & 0xFFFFu)
#define K_F16    ((SPEC & ATTN_K_F16) != 0)
#define V_F16    ((SPEC & ATTN_V_F16) != 0)

layout(std430, set = 0, binding = TABLE_BINDING) readonly buffer table_buffer { uint block_table[]; };

/* The first element of a head at a position. */
uint kv_element(uint seq, uint pos, uint head_kv)
{
	uint block = block_table[seq * args.n_blocks + pos / KV_BLOCK];
	return ((block * KV_BLOCK + pos % KV_BLOCK) * args.n_head_kv + head_kv) * HEAD_DIM;
}

#ifdef KV_READ
layout(std430, set = 0, binding = KV_FIRST_BINDING) readonly buffer k_halves { uint k_f16[]; };
layout(std430, set = 0, binding = KV_FIRST_BINDING) readonly buffer k_floats { vec2 k_f32[]; };
layout(std430, set = 0, binding = KV_FIRST_BINDING + 1) readonly buffer v_halves { uint v_f16[]; };
layout(std430, set = 0, binding = KV_FIRST_BINDING + 1) readonly buffer v_floats { vec2 v_f32[]; };

/* Elements 2 * pair and 2 * pair + 1 of the cache. */
vec2 k_pair(uint pair)
{
	if (K_F16)
		return halves_to_float(k_f16[pair]);
	return k_f32[pair];
}

vec2 v_pair(uint pair)
{
	if (V_F16)
		return halves_to_float(v_f16[pair]);
	return v_f32[pair];
}
#endif

#ifdef KV_WRITE
layout(std430, set = 0, binding = KV_FIRST_BINDING) writeonly buffer k_words { uint k_cache[]; };
layout(std430, set = 0, binding = KV_FIRST_BINDING + 1) writeonly buffer v_words { uint v_cache[]; };

void k_store(uint pair, vec2 value)
{
	if (K_F16) {
		k_cache[pair] = floats_to_half(value);
		return;
	}
	k_cache[2 * pair] = floatBitsToUint(value.x);
	k_cache[2 * pair + 1] = floatBitsToUint(value.y);
}

void v_store(uint pair, vec2 value)
{
	if (V_F16) {
		v_cache[pair] = floats_to_half(value);
		return;
	}
	v_cache[2 * pair] = floatBitsToUint(value.x);
	v_cache[2 * pair + 1] = floatBitsToUint(value.y);
}
#endif
