/* Which of three tokens stay at the edges of the truncations (OB-17 of public reports): for both samplers. */
#ifndef LAPILLI_TESTS_SAMPLER_CASES_H
#define LAPILLI_TESTS_SAMPLER_CASES_H

#include <stdint.h>

/* Bit i: token i of the logits 1, 3, 2 stays; of_tie: of 3, 3, 1. */
static const struct {
	int32_t top_k;
	float top_p, min_p;
	uint32_t kept, kept_of_tie;
} ob17_cases[] = {
	{0, 1.0f, 0.0f, 7, 7},
	{-1, 1.0f, 0.0f, 7, 7},
	{1, 1.0f, 0.0f, 2, 3}, /* ties at the threshold stay */
	{2, 1.0f, 0.0f, 6, 3},
	{3, 1.0f, 0.0f, 7, 7},
	{50, 1.0f, 0.0f, 7, 7},
	{0, 0.0f, 0.0f, 2, 1}, /* exactly the best one */
	{0, -1.0f, 0.0f, 2, 1},
	{0, 1e-12f, 0.0f, 2, 3},
	{0, 1.0001f, 0.0f, 7, 7},
	{0, 0x1.fffffep-1f, 0.0f, 7, 7},
	{0, 1.0f, -1.0f, 7, 7},
	{0, 1.0f, 1.0f, 2, 3},
	{0, 1.0f, 7.0f, 2, 3},
	{0, 1.0f, 0.3f, 6, 3}, /* e^-1 = .368, e^-2 = .135 */
	{0, 1.0f, 0.13f, 7, 7},
};

#endif
