/* The CPU reference against logits of another engine: forward pass, rope kinds, KV cache. */
#include "golden.h"

static void check_run(const struct golden *run)
{
	golden_logits(run, LAP_KV_F32, 0, 1e-8);
	golden_logits(run, LAP_KV_F16, 0, 3e-5);
	golden_greedy(run, LAP_KV_F32, 1e-3);
}

Test(golden, vectors)
{
	cr_assert_geq(golden_each(vector_path, check_run, "cpu"), 4);
}

Test(golden, shared)
{
	SKIP_WITHOUT("golden/index.json");
	cr_assert_geq(golden_each(shared_path, check_run, "cpu"), test_small() ? 4 : 40);
}
