/* The table of architectures and its look-up: see arch.h.  The rows are in arch.def. */
#include "arch.h"

#include <string.h>

static const struct arch archs[] = {
#define ARCH(name, rope, norm, activation, full_every, no_rope_every, flags)                 \
	{name, ARCH_ROPE_##rope, ARCH_NORM_##norm, ARCH_ACTIVATION_##activation, full_every, \
		no_rope_every, flags},
#include "arch.def"
#undef ARCH
};

const struct arch *arch_find(const char *name, size_t n_bytes)
{
	for (size_t i = 0; i < ARRAY_COUNT(archs); i++)
		if (strlen(archs[i].name) == n_bytes && memcmp(archs[i].name, name, n_bytes) == 0)
			return &archs[i];
	return NULL;
}

const char *arch_list(void)
{
#define ARCH(name, rope, norm, activation, full_every, no_rope_every, flags) " " name
	static const char list[] =
#include "arch.def"
		;
#undef ARCH
	return list + 1;
}
