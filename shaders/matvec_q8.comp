/* matvec_q8: matvec with x in 8 bits, as quantize_x leaves it. */
#define X_Q8
#include "matvec.comp"
