/* Decoders of the formats that look their values up (IQ formats, MXFP4), for the table in weight.c,
 * and the loads that all decoders share.  Contract of a decoder: struct weight_format. */
#ifndef LAPILLI_WEIGHT_IQ_H
#define LAPILLI_WEIGHT_IQ_H

#include "weight.h"

static inline uint16_t load_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *p)
{
	return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static inline float load_half(const uint8_t *p)
{
	return half_to_float(load_u16(p));
}

/* Byte j of 16 holds weight j in its low half and weight j + 16 in its high half. */
static inline unsigned nibble(const uint8_t *q, unsigned j)
{
	return j < 16 ? q[j] & 15u : q[j - 16] >> 4;
}

void decode_iq1_s(const uint8_t *b, uint64_t n, float *out);
void decode_iq1_m(const uint8_t *b, uint64_t n, float *out);
void decode_iq2_xxs(const uint8_t *b, uint64_t n, float *out);
void decode_iq2_xs(const uint8_t *b, uint64_t n, float *out);
void decode_iq2_s(const uint8_t *b, uint64_t n, float *out);
void decode_iq3_xxs(const uint8_t *b, uint64_t n, float *out);
void decode_iq3_s(const uint8_t *b, uint64_t n, float *out);
void decode_iq4_nl(const uint8_t *b, uint64_t n, float *out);
void decode_iq4_xs(const uint8_t *b, uint64_t n, float *out);
void decode_mxfp4(const uint8_t *b, uint64_t n, float *out);

#endif
