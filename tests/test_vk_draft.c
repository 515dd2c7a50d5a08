/* Speculation on Vulkan: the tokens are those without it. */
#include "speculation.h"

static const char *tiny(void)
{
	return vector_path("golden/llama-freqs.gguf");
}

static const char *other(void)
{
	return vector_path("golden/llama-yarn.gguf");
}

Test(vk_draft, greedy_equals_plain)
{
	greedy_equals_plain(tiny(), other(), NULL, test_small() ? 12 : 40, test_small() ? 2 : 4);
}

Test(vk_draft, batch)
{
	drafts_in_a_batch(tiny(), other(), NULL, test_small() ? 16 : 40);
}

Test(vk_draft, wrong_guesses_change_nothing)
{
	SKIP_WITHOUT("golden/gemma3-plain.gguf");
	wrong_guesses_change_nothing(shared_path("golden/gemma3-plain.gguf"), NULL, 40);
	wrong_guesses_change_nothing(shared_path("golden/qwen3moe-plain.gguf"), NULL, 20);
}
