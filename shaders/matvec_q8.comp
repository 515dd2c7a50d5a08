/* matvec_q8: matvec with x in whole numbers, as quantize_x leaves it. */
#define X_IN_WHOLE_NUMBERS
#include "matvec.comp"
