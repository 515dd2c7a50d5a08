/* delta_prefill: the gated delta rule for a step whose rows are of one sequence, a block's rows together. */
#define ROWS  STATE_BLOCK
#define PARTS 1
#include "delta.glsl"
