/* What the build generates: shader modules, the embedded demo model, the build's own description. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_info.h"
#include "demo_model.h"
#include "support.h"
#include "vk/spirv.h"

#define SPIRV_MAGIC 0x07230203u

Test(build, modules_are_spirv)
{
	for (size_t i = 0; i < spirv_count(); i++) {
		const struct spirv *s = spirv_get(i);
		cr_expect(s->n_bytes > 20 && s->n_bytes % 4 == 0, "%s: %zu bytes", s->name,
			s->n_bytes);
		cr_expect((uintptr_t)s->words % 4 == 0, "%s is not aligned", s->name);
		cr_expect(s->words[0] == SPIRV_MAGIC, "%s starts with %08x", s->name, s->words[0]);
	}
}

static const struct {
	enum kernel kernel;
	const char *name, *defines;
} variants[] = {
#define KERNEL(...)
#define VARIANT(kernel, variant, defines) {KERNEL_##kernel, #variant, #defines},
#include "kernels.def"
#undef KERNEL
#undef VARIANT
};

/* Builds for matrix units are there where the shader compiler can, for weights within the range of halves. */
static bool has_build(const char *defines, enum weight w)
{
	if (!strstr(defines, "LP_COOPMAT"))
		return true;
	char path[128];
	snprintf(path, sizeof path, "shaders/weights/%s.glsl", weight_format(w)->name);
	char *text = read_text(source_path(path), NULL);
	const bool is_wide = strstr(text, "WEIGHT_IS_WIDE") != NULL;
	free(text);
	return !is_wide && strstr(BUILD_INFO, "cooperative matrix: yes\n");
}

/* Every row of kernels.def x weights.def is there, under the name it says. */
Test(build, every_kernel_has_its_modules)
{
	size_t n = 0;
	for (unsigned k = 0; k < N_KERNELS; k++) {
		const struct kernel_info *kernel = kernel_info(k);
		for (unsigned w = 0; w < N_WEIGHTS; w++) {
			if (!kernel_takes(k, w))
				continue;
			const struct spirv *s = spirv_find(k, w, NULL);
			cr_assert(s, "no module for kernel %s, weight %u", kernel->name, w);
			size_t length = strlen(kernel->name);
			cr_expect(!strncmp(s->name, kernel->name, length), "%s is found for %s",
				s->name, kernel->name);
			if (kernel->per_weight)
				cr_expect_str_eq(s->name + length + 1, weight_format(w)->name);
			n++;
		}
	}
	for (size_t v = 0; v < ARRAY_COUNT(variants); v++) {
		const struct kernel_info *kernel = kernel_info(variants[v].kernel);
		for (unsigned w = 0; w < N_WEIGHTS; w++)
			if (kernel_takes(variants[v].kernel, w)) {
				const bool found =
					spirv_find(variants[v].kernel, w, variants[v].name);
				cr_expect_eq(found, has_build(variants[v].defines, w),
					"%s variant of %s for weight %u: %d", variants[v].name,
					kernel->name, w, found);
				n += found;
			}
	}
	cr_expect_eq(spirv_count(), n, "%zu modules, %zu are reached", spirv_count(), n);
	cr_expect(!spirv_find(KERNEL_rmsnorm, 0, "no such variant"));
}

Test(build, hash_is_stable)
{
	char first[17];
	cr_assert_eq(strlen(spirv_hash()), 16);
	memcpy(first, spirv_hash(), sizeof(first));
	cr_expect_str_eq(spirv_hash(), first);
}

Test(build, demo_model_is_the_file)
{
	size_t n;
	char *file = read_text(source_path("models/austen.gguf"), &n);
	cr_expect_eq(demo_model_bytes, n);
	cr_expect_eq((uintptr_t)demo_model % 64, 0);
	cr_expect(n == demo_model_bytes && !memcmp(demo_model, file, n));
	free(file);
}

Test(build, build_info_has_its_keys)
{
	static const char *const keys[] = {"version: " LAP_VERSION "\n",
		"\ncompiler: ", "\nshader compiler: ", "\nshader modules: ",
		"\ncooperative matrix: ", "\ninteger dot product: "};
	for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
		cr_expect(strstr(BUILD_INFO, keys[i]), "no %s in:\n%s", keys[i], BUILD_INFO);
}
