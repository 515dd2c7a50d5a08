/* The SPIR-V modules that shaders/CMakeLists.txt compiled from kernels.def x weights.def.
 *
 * Knows which module is which; does not know pipelines or devices. */
#ifndef LAPILLI_VK_SPIRV_H
#define LAPILLI_VK_SPIRV_H

#include "plan.h"
#include "weight.h"

struct spirv {
	const char *name; /* "matvec_q8_0_subgroup" */
	const uint32_t *words;
	size_t n_bytes; /* of words; a multiple of 4 */
};

/* The module of a kernel; `weight` is 0 for kernels that are not compiled per weight format, `variant`
 * is NULL for the baseline or the suffix of a VARIANT row.  NULL when this build has none. */
const struct spirv *spirv_find(enum kernel kernel, enum weight weight, const char *variant);

/* Whether a build of the kernel, called as in spirv_find, has the define. */
bool spirv_defines(enum kernel kernel, const char *variant, const char *define);

/* How many modules there are, and the i-th. */
size_t spirv_count(void);
const struct spirv *spirv_get(size_t i);

/* 16 hexadecimal digits that change when any module does: part of the key of the pipeline cache.  The
 * string belongs to the calling thread and stays as it is. */
const char *spirv_hash(void);

#endif
