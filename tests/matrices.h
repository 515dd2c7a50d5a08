/* Tests that need matrix units: a skip where there are none. */
#ifndef LAPILLI_TESTS_MATRICES_H
#define LAPILLI_TESTS_MATRICES_H

#include "support.h"
#include "vk/spirv.h"
#include "vk/vk.h"

static void need_matrices(void)
{
	struct backend *b;
	struct lap_error err;
	cr_assert_eq(
		vk_open(&(struct vk_options){.coopmat = true}, &b, &err), LAP_OK, "%s", err.text);
	const bool has_matrices = b->has_matrices;
	b->ops->close(b);
	if (!has_matrices)
		skip_test(spirv_find(KERNEL_matmul, WEIGHT_f16, "coopmat")
				? "this device has no cooperative matrices"
				: "the shader compiler of this build has no cooperative matrices");
}

#endif
