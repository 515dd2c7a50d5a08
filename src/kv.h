/* Elements of a KV cache as C sees them: the twin of shaders/kv.glsl, which says where a position lies.
 *
 * KV_F16 and KV_F32 keep elements one behind the other.  KV_Q8_0 and KV_Q4_0 keep units of KV_UNIT
 * elements x[i] as words: d as f32, then quotients q[i], x[i] = d * q[i].
 *   q8_0: d = max |x| / 127, q[i] = x[i] / d rounded to the nearest even: byte i % 4 of word 1 + i / 4
 *   q4_0: d = m / -8, m the first x of largest magnitude, q[i] = min(7, floor(x[i] / d + 1/2)):
 *         q[i] + 8 in nibble i % 8 of word 1 + i / 8
 * The rules are ggml's for the formats of these names; the order of the bytes is ours. */
#ifndef LAPILLI_KV_H
#define LAPILLI_KV_H

#include "args.h"
#include "base.h"

/* Bytes of n elements; n is a multiple of KV_UNIT where the type is quantised.  A position of a layer
 * takes kv_bytes(type, n_head_kv * head_dim). */
uint64_t kv_bytes(enum kv_type type, uint64_t n);

/* Elements first .. first + n - 1 of a cache, in whole KV_UNITs where the type is quantised. */
void kv_load(enum kv_type type, const void *cache, size_t first, uint32_t n, float *values);
void kv_store(enum kv_type type, void *cache, size_t first, uint32_t n, const float *values);

#endif
