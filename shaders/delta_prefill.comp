/* delta_prefill: the gated delta rule for a step whose rows are of one sequence. */
#ifdef LP_SHUFFLE
#include "delta_steps.glsl"
#else
#define ROWS  STATE_BLOCK
#define PARTS 1
#include "delta_block.glsl"
#endif
