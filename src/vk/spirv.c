/* The table of shader modules: bytes from the generated spirv_modules.S, keys from spirv_keys.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "vk/spirv.h"

struct spirv_key {
	enum kernel kernel;
	enum weight weight;
	const char *variant;
};

#include "spirv_keys.h"

extern const struct spirv spirv_modules[]; /* ends with a row of zeros */

const struct spirv *spirv_find(enum kernel kernel, enum weight weight, const char *variant)
{
	for (size_t i = 0; spirv_modules[i].name; i++) {
		const struct spirv_key *key = &spirv_keys[i];
		if (key->kernel != kernel || key->weight != weight)
			continue;
		if (variant ? key->variant && !strcmp(key->variant, variant) : !key->variant)
			return &spirv_modules[i];
	}
	return NULL;
}

bool spirv_defines(enum kernel kernel, const char *variant, const char *define)
{
	static const struct {
		enum kernel kernel;
		const char *variant, *defines;
	} variants[] = {
#define KERNEL(name, per_weight, written, all, outputs, rows, args)
#define VARIANT(kernel, variant, defines) {KERNEL_##kernel, #variant, #defines},
#include "kernels.def"
#undef KERNEL
#undef VARIANT
	};
	for (size_t i = 0; variant && i < ARRAY_COUNT(variants); i++)
		if (variants[i].kernel == kernel && strcmp(variants[i].variant, variant) == 0)
			return strstr(variants[i].defines, define) != NULL;
	return false;
}

size_t spirv_count(void)
{
	return N_SPIRV_MODULES;
}

const struct spirv *spirv_get(size_t i)
{
	assert(i < N_SPIRV_MODULES);
	return &spirv_modules[i];
}

const char *spirv_hash(void)
{
	static _Thread_local char hash[17];
	uint64_t sum = 0;
	for (size_t i = 0; spirv_modules[i].name; i++)
		sum = XXH64(spirv_modules[i].words, spirv_modules[i].n_bytes, sum);
	snprintf(hash, sizeof(hash), "%016" PRIx64, sum);
	return hash;
}
