/* Every kernel and weight format on a Vulkan device against the CPU reference, over the case list of
 * src/check.c. */
#include "check.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

static void check_kernel(enum kernel kernel, const struct vk_options *options)
{
	struct backend *vk, *cpu;
	struct lap_error err;
	uint32_t n_run = 0;
	cr_assert_eq(vk_open(options, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		struct check_result result;
		char name[128];
		if (check_case_kernel(i) != kernel || (test_small() && !check_case_small(i)))
			continue;
		check_case_name(i, name, sizeof name);
		cr_assert_eq(
			check_run(vk, cpu, i, 1, &result, &err), LAP_OK, "%s: %s", name, err.text);
		cr_expect(result.passed, "%s: %s", name, result.reason);
		n_run++;
	}
	cr_assert_gt(n_run, 0, "%s has no case", kernel_info(kernel)->name);
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

/* One test a kernel. */
#define KERNEL(name, per_weight, written, all, outputs, rows, args)   \
	Test(vk_kernels, name)                                        \
	{                                                             \
		check_kernel(KERNEL_##name, &(struct vk_options){0}); \
	}
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT

/* Where subgroups cannot be used, or must not be trusted, matvec sums in shared memory. */
Test(vk_kernels, matvec_without_subgroups)
{
	check_kernel(KERNEL_matvec, &(struct vk_options){.no_subgroup = true});
}
