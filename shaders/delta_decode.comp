/* delta_decode: the gated delta rule for rows of any sequences, row by row. */
#ifdef LP_SHUFFLE
#include "delta_steps.glsl"
#else
#define ROWS  1
#define PARTS 4
#include "delta_block.glsl"
#endif
