/* delta_decode: the gated delta rule row by row. */
#define ROWS  1
#define PARTS 4
#include "delta_block.glsl"
