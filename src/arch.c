/* The table of architectures: see arch.h.  Adding one is a row, unless it needs a new operation. */
#include "arch.h"

#include <string.h>

#define ARCHS(ROW)             \
	/*  name     neox   bias */ \
	ROW(llama, false, false)   \
	ROW(qwen2, true, true)

