/* A model's own plans op by op: right on every device, also where tensors are cut into chunks, and a
 * wrong op is named, it alone. */
#include "check_model.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

struct seen {
	uint32_t n, n_failed;
	char first[128]; /* "role layer kernel label" of the first that failed */
};

static bool see(void *user, const struct check_op *op)
{
	struct seen *seen = user;
	seen->n++;
	if (!op->result.passed && seen->n_failed++ == 0)
		snprintf(seen->first, sizeof(seen->first), "%d %d %s %s", (int)op->role,
			(int)op->layer, op->kernel, op->label);
	return true;
}

static struct lap_model *open_chunked(const char *path, const char *device, uint64_t max_bytes)
{
	struct lap_model *m;
	struct lap_error err = {0};
	const struct lap_model_options options = {
		.device = device, .max_chunk_bytes = max_bytes, .no_pipeline_cache = true};
	cr_assert_eq(lap_model_open(path, &options, &m, &err), LAP_OK, "%s", err.text);
	return m;
}

/* Checks a model on the device against the CPU; `damage` may change the device's weights. */
static struct seen check(
	const char *file, uint64_t max_bytes, void (*damage)(struct lap_model *device))
{
	static const int32_t tokens[] = {3, 5, 7, 11, 13, 17, 19};
	const struct lap_session_options options = {.n_ctx = 160, .n_batch = 32};
	struct lap_model *m[2] = {open_chunked(source_path(file), NULL, max_bytes), NULL};
	m[1] = open_chunked(source_path(file), "cpu", m[0]->backend->max_buffer_bytes);
	struct lap_session *s[2];
	struct seen seen = {0};
	struct lap_error err = {0};
	for (int i = 0; i < 2; i++)
		cr_assert_eq(
			lap_session_create(m[i], &options, &s[i], &err), LAP_OK, "%s", err.text);
	if (damage)
		damage(m[0]);
	cr_assert_eq(check_model(s[0], s[1], tokens, ARRAY_COUNT(tokens), see, &seen, &err), LAP_OK,
		"%s", err.text);
	for (int i = 0; i < 2; i++) {
		lap_session_destroy(s[i]);
		lap_model_close(m[i]);
	}
	return seen;
}

Test(vk_check_model, passes)
{
	struct seen seen = check("tests/vectors/golden/llama-freqs.gguf", 0, NULL);
	cr_expect_eq(seen.n_failed, 0, "%s", seen.first);
	cr_expect_gt(seen.n, 20);
}

/* Both sides cut alike, so a device with a small binding is checked, too. */
Test(vk_check_model, passes_in_chunks)
{
	struct seen whole = check("tests/vectors/golden/qwen2-plain.gguf", 0, NULL);
	struct seen chunks = check("tests/vectors/golden/qwen2-plain.gguf", 65536, NULL);
	cr_expect_eq(chunks.n_failed, 0, "%s", chunks.first);
	cr_expect_gt(chunks.n, whole.n, "%u ops, %u whole", chunks.n, whole.n);
}

static void change_ffn_norm(struct lap_model *m)
{
	struct lap_error err = {0};
	float row[2];
	const struct view *view = &m->weights.layers[1].ffn_norm.chunks[0];
	cr_assert_eq(m->backend->ops->read(m->backend, *view, row, sizeof(row), &err), LAP_OK);
	row[1] += 1;
	cr_assert_eq(m->backend->ops->write(m->backend, *view, row, sizeof(row), &err), LAP_OK);
}

/* The reference's values go on from there, so no later op looks wrong for it. */
Test(vk_check_model, names_the_op_that_is_wrong)
{
	struct seen seen = check("tests/vectors/golden/llama-freqs.gguf", 0, change_ffn_norm);
	cr_expect_str_eq(seen.first, "0 1 rmsnorm blk.1.ffn_norm.weight");
	cr_expect_eq(seen.n_failed, 2, "once in prefill, once in decode, found %u", seen.n_failed);
}
