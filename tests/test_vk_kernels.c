/* Every kernel and weight format on a Vulkan device against the CPU reference, over the case list of
 * src/check.c. */
#include "check.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

static struct backend *vk, *cpu;

static void setup(void)
{
	struct lap_error err;
	static const struct vk_options options;
	cr_assert_eq(vk_open(&options, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
}

static void teardown(void)
{
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

TestSuite(vk_kernels, .init = setup, .fini = teardown);

static void check_kernel(enum kernel kernel)
{
	uint32_t n_run = 0;
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		struct check_result result;
		struct lap_error err;
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
}

/* One test a kernel; sample and control have a suite of their own. */
#define KERNEL(name, per_weight, written, all, outputs, rows, args) \
	Test(vk_kernels, name)                                      \
	{                                                           \
		check_kernel(KERNEL_##name);                        \
	}
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT
