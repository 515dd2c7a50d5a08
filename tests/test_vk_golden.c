/* Vulkan against logits of another engine, in both roles, with both KV types and ragged chunks; models that
 * differ in the format of their weights alone, with one. */
#include "golden.h"
#include "matrices.h"

static void check_run(const struct golden *run)
{
	golden_logits(run, LAP_KV_F32, 0, 1e-6);
	if (strncmp(run->name, "fmt-q", 5) == 0 && !test_small())
		golden_logits_by(run, LAP_ACTIVATIONS_Q8, LAP_KV_F32, 7, 2e-3);
	if (strncmp(run->name, "fmt-", 4) == 0)
		return;
	golden_logits(run, LAP_KV_F16, 7, 3e-5);
	if (!test_small())
		golden_greedy(run, LAP_KV_F32, 1e-2);
}

Test(vk_golden, vectors)
{
	cr_assert_geq(golden_each(vector_path, check_run, NULL), 4);
}

Test(vk_golden, shared)
{
	SKIP_WITHOUT("golden/index.json");
	cr_assert_geq(golden_each(shared_path, check_run, NULL), test_small() ? 4 : 40);
}

static void check_matrices_run(const struct golden *run)
{
	golden_logits(run, LAP_KV_F32, 0, 1e-6);
}

/* Products on matrix units are within the same limit. */
Test(vk_golden, matrices)
{
	SKIP_WITHOUT("golden/index.json");
	need_matrices();
	cr_assert_eq(setenv("LAPILLI_COOPMAT", "1", 1), 0);
	cr_assert_geq(golden_each(vector_path, check_matrices_run, NULL), 4);
	cr_assert_geq(golden_each(shared_path, check_matrices_run, NULL), test_small() ? 4 : 40);
}
