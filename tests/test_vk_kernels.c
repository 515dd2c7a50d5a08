/* Every kernel and weight format on a Vulkan device against the CPU reference, over the case list of
 * src/check.c. */
#include "check.h"
#include "knobs.h"
#include "matrices.h"
#include "op_case.h"
#include "support.h"
#include "vk/vk.h"
#include "weight_encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Formats that differ in how their blocks are read. */
static bool is_typical(const char *name)
{
	static const char *const typical[] = {
		" f32 ", " f16 ", " q4_0 ", " q8_0 ", " q4_k ", " q6_k ", " iq2_xxs ", " mxfp4 "};
	for (size_t i = 0; i < ARRAY_COUNT(typical); i++)
		if (strstr(name, typical[i]))
			return true;
	return false;
}

/* On slow devices products of experts and of many rows are checked for typical formats alone; embed and
 * matvec decode every format there, too. */
static bool is_left_out(enum kernel kernel, const char *name)
{
	return test_small() && kernel_info(kernel)->per_weight && kernel != KERNEL_embed &&
		kernel != KERNEL_matvec && !is_typical(name);
}

/* Memory comes in blocks that go with their last buffer.  This one keeps a block for all cases: a driver that fills
 * memory when it is asked for takes longer for a block than for a case. */
static struct buffer *keep_block(struct backend *b)
{
	struct buffer *kept;
	struct lap_error err;
	cr_assert_eq(b->ops->buffer_create(b, 1, MEMORY_DEVICE, "kept", &kept, &err), LAP_OK, "%s",
		err.text);
	return kept;
}

/* few: typical formats alone.  limit: of the NMSE, beside the case's own. */
static void check_kernel_within(
	enum kernel kernel, const struct vk_options *options, bool few, double limit)
{
	struct backend *vk, *cpu;
	struct lap_error err;
	uint32_t n_run = 0;
	cr_assert_eq(vk_open(options, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	struct buffer *kept = keep_block(vk);
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		struct check_result result;
		char name[128];
		if (check_case_kernel(i) != kernel || (test_small() && !check_case_small(i)))
			continue;
		check_case_name(i, name, sizeof name);
		if (is_left_out(kernel, name) || (few && !is_typical(name)))
			continue;
		cr_assert_eq(
			check_run(vk, cpu, i, 1, &result, &err), LAP_OK, "%s: %s", name, err.text);
		cr_expect(result.passed, "%s: %s", name, result.reason);
		cr_expect(result.nmse <= limit, "%s: NMSE %g", name, result.nmse);
		n_run++;
	}
	cr_assert_gt(n_run, 0, "%s has no case", kernel_info(kernel)->name);
	vk->ops->buffer_destroy(vk, kept);
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

static void check_kernel(enum kernel kernel, const struct vk_options *options, bool few)
{
	check_kernel_within(kernel, options, few, INFINITY);
}

/* One test a kernel. */
#define KERNEL(name, per_weight, written, all, outputs, rows, args)          \
	Test(vk_kernels, name)                                               \
	{                                                                    \
		check_kernel(KERNEL_##name, &(struct vk_options){0}, false); \
	}
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT

/* Where subgroups cannot be used, or must not be trusted, matvec sums in shared memory; where texels are not
 * liked, weights are read from storage buffers. */
static void check_products(const struct vk_options *options)
{
	check_kernel(KERNEL_matvec, options, true);
	check_kernel(KERNEL_expert_matvec, options, true);
	check_kernel(KERNEL_matvec_q8, options, true);
}

Test(vk_kernels, products_without_subgroups)
{
	check_products(&(struct vk_options){.no_subgroup = true});
}

Test(vk_kernels, products_without_texels)
{
	check_products(&(struct vk_options){.no_texels = true});
	check_kernel(KERNEL_matmul, &(struct vk_options){.no_texels = true}, true);
	check_kernel(KERNEL_matmul_q8, &(struct vk_options){.no_texels = true}, true);
}

/* As on GPUs. */
Test(vk_kernels, products_in_shared_memory)
{
	check_kernel(KERNEL_matmul, &(struct vk_options){.shared = true}, true);
	check_kernel(KERNEL_expert_matmul, &(struct vk_options){.shared = true}, true);
}

/* As on GPUs with matrix units.  A product of two halves alone would be 2e-8 off. */
Test(vk_kernels, products_of_matrices)
{
	const struct vk_options options = {.coopmat = true};
	need_matrices();
	check_kernel_within(KERNEL_matmul, &options, true, 1e-8);
	check_kernel_within(KERNEL_expert_matmul, &options, true, 1e-8);
}

/* Lanes that share what they load of x compute the same bits as lanes that load all of it; so do workgroups that share
 * weights, where a sum has one part. */
Test(vk_kernels, matmul_without_shuffles)
{
	static const char *const names[] = {
		"matmul f16 32 x 64", "matmul q4_0 150 x", "expert_matmul q8_0 129 x"};
	struct backend *vk, *base, *gpu, *cpu;
	struct lap_error err;
	uint32_t n_run = 0;
	cr_assert_eq(vk_open(&(struct vk_options){0}, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(
		vk_open(&(struct vk_options){.shared = true}, &gpu, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(vk_open(&(struct vk_options){.no_subgroup = true}, &base, &err), LAP_OK, "%s",
		err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	cr_expect(!((struct vk *)base)->shuffle);
	for (uint32_t i = 0; i < check_n_cases() && ((struct vk *)vk)->shuffle; i++) {
		struct check_result shuffled, loaded, shared;
		char name[128];
		bool wanted = false;
		check_case_name(i, name, sizeof name);
		for (size_t j = 0; j < ARRAY_COUNT(names); j++)
			wanted |= strncmp(name, names[j], strlen(names[j])) == 0;
		if (!wanted)
			continue;
		cr_assert_eq(check_run(vk, cpu, i, 1, &shuffled, &err), LAP_OK, "%s", err.text);
		cr_assert_eq(check_run(base, cpu, i, 1, &loaded, &err), LAP_OK, "%s", err.text);
		cr_assert_eq(check_run(gpu, cpu, i, 1, &shared, &err), LAP_OK, "%s", err.text);
		cr_expect(loaded.passed, "%s: %s", name, loaded.reason);
		cr_expect_eq(shuffled.hash, loaded.hash, "%s: other bits", name);
		cr_expect_eq(shared.hash, loaded.hash, "%s: other bits in shared memory", name);
		n_run++;
	}
	bool has_shuffles = ((struct vk *)vk)->shuffle;
	vk->ops->close(vk);
	base->ops->close(base);
	gpu->ops->close(gpu);
	cpu->ops->close(cpu);
	if (!has_shuffles)
		skip_test("this device has no use for shuffles");
	cr_expect_geq(n_run, ARRAY_COUNT(names));
}

/* ---- a row of a step is computed alone ---------------------------------------------------------- */

static struct rows shared_rows(struct backend *b, uint32_t n_rows, uint32_t n, float **floats)
{
	struct rows rows = {.n = n, .stride = ROW_STRIDE(n)};
	rows.view = shared(b, (uint64_t)n_rows * rows.stride * sizeof(float), floats);
	return rows;
}

static void random_floats(float *to, size_t n, uint64_t *state)
{
	for (size_t i = 0; i < n; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		to[i] = (float)((double)(*state >> 32) / 0x80000000u - 1);
	}
}

struct rows_case {
	struct backend *b;
	struct plan plan;
	struct view views[8];
	float *x, *out;
	uint32_t n, n_out; /* floats from row to row of x and out */
	struct step_header *header;
	struct step_row *step_rows;
	uint64_t state;
};

static void rows_start(struct rows_case *t, uint32_t n_rows, struct vk_options options)
{
	struct lap_error err;
	cr_assert_eq(vk_open(&options, &t->b, &err), LAP_OK, "%s", err.text);
	struct dispatch_size *sizes;
	t->plan = (struct plan){.role = ROLE_PREFILL, .max_rows = n_rows, .layer = -1};
	t->plan.step = t->views[0] =
		shared(t->b, sizeof *t->header + n_rows * sizeof *t->step_rows, &t->header);
	t->plan.sizes = t->views[1] = shared(t->b, MAX_SIZES * sizeof *sizes, &sizes);
	memset(sizes, 0, MAX_SIZES * sizeof *sizes);
	t->step_rows = (struct step_row *)(t->header + 1);
	t->state = 7;
}

/* All rows at once, twice: the same bits.  Then each as a step of its own: the same bits again. */
static void rows_compare(struct rows_case *t, uint32_t n_rows, uint32_t first_pos, const char *what)
{
	struct lap_error err;
	struct runnable *r;
	size_t n_bytes = (size_t)n_rows * t->n_out * sizeof(float);
	float *together = malloc(n_bytes), *x = malloc((size_t)n_rows * t->n * sizeof(float));
	memcpy(x, t->x, (size_t)n_rows * t->n * sizeof(float));
	cr_assert_eq(t->b->ops->prepare(t->b, &t->plan, false, &r, &err), LAP_OK, "%s", err.text);
	for (uint32_t i = 0; i < n_rows; i++)
		t->step_rows[i] = (struct step_row){.pos = first_pos + i};
	*t->header = (struct step_header){.n_rows = n_rows, .n_kv = first_pos + n_rows};
	run_plan(t->b, r);
	memcpy(together, t->out, n_bytes);
	memset(t->out, 0, n_bytes);
	run_plan(t->b, r);
	cr_expect(memcmp(together, t->out, n_bytes) == 0, "%s: two runs differ", what);
	for (uint32_t row = 0; row < n_rows; row++) {
		t->step_rows[0].pos = first_pos + row;
		*t->header = (struct step_header){.n_rows = 1, .n_kv = first_pos + row + 1};
		memcpy(t->x, x + (size_t)row * t->n, t->n * sizeof(float));
		run_plan(t->b, r);
		cr_expect(memcmp(together + (size_t)row * t->n_out, t->out,
				  t->n_out * sizeof(float)) == 0,
			"%s: row %u differs without its neighbours", what, row);
	}
	t->b->ops->release(t->b, r);
	plan_free(&t->plan);
	for (unsigned i = 0; i < ARRAY_COUNT(t->views); i++)
		t->b->ops->buffer_destroy(t->b, t->views[i].buffer);
	t->b->ops->close(t->b);
	free(together);
	free(x);
}

/* split: workgroups that share the parts of a sum; 0: there are no parts. */
static void matmul_compare(struct vk_options options, enum weight weight, uint32_t split)
{
	enum { N_ROWS = 33, N_OUT = 70, N_IN = 600 };
	struct rows_case t = {0};
	const uint32_t n_bytes = weight_format(weight)->block_bytes;
	uint8_t *weights;
	float *parts;
	rows_start(&t, N_ROWS, options);
	struct rows x = shared_rows(t.b, N_ROWS, N_IN, &t.x);
	struct rows out = shared_rows(t.b, N_ROWS, N_OUT, &t.out);
	struct view chunk = shared(t.b, N_OUT * N_IN * n_bytes + WEIGHT_PAD, &weights);
	struct rows sums = shared_rows(t.b, matmul_parts(N_IN) * N_ROWS, N_OUT, &parts);
	t.views[2] = x.view, t.views[3] = out.view, t.views[4] = chunk, t.views[5] = sums.view;
	t.plan.parts = sums.view;
	t.n = x.stride, t.n_out = out.stride;
	float f[N_OUT * N_IN];
	random_floats(f, N_OUT * N_IN, &t.state);
	weight_encoder(weight)(f, N_OUT * N_IN, weights);
	memset(t.x, 0, x.view.n_bytes);
	memset(t.out, 0, out.view.n_bytes);
	for (unsigned row = 0; row < N_ROWS; row++)
		random_floats(t.x + row * x.stride, N_IN, &t.state);
	struct weights w = {.name = "weights",
		.weight = weight,
		.n_rows = N_OUT,
		.n_cols = N_IN,
		.rows_per_chunk = N_OUT,
		.n_chunks = 1,
		.chunks = &chunk};
	plan_matmul(&t.plan, out, &w, x, (struct epilogue){0});
	*knob_value(KERNEL_matmul, t.plan.ops[0].knobs, "SPLIT") = split;
	rows_compare(&t, N_ROWS, 0,
		options.coopmat ? "matmul of matrices"
			: split ? "matmul in shared memory"
				: "matmul");
}

Test(vk_kernels, rows_of_a_matmul_are_independent)
{
	const struct vk_options shared = {.shared = true};
	matmul_compare((struct vk_options){0}, WEIGHT_f32, 0);
	matmul_compare(shared, WEIGHT_f32, 1);
	matmul_compare(shared, WEIGHT_f32, 4);
}

Test(vk_kernels, nor_do_rows_of_matrices_depend_on_others)
{
	const struct vk_options options = {.coopmat = true};
	need_matrices();
	matmul_compare(options, WEIGHT_f16, 1);
	matmul_compare(options, WEIGHT_f16, 4);
}

static void attention_compare(uint32_t window, float softcap, bool with_sinks)
{
	enum { N_ROWS = 19, HEADS = 4, HEADS_KV = 2, DIM = 32, BLOCKS = 5, FIRST = 115 };
	struct rows_case t = {0};
	struct kv_layer kv = {.k_type = KV_F32, .v_type = KV_F32};
	struct kv_shape shape = {HEADS, HEADS_KV, DIM, {0}, BLOCKS, BLOCKS * KV_BLOCK};
	struct view sinks_view;
	float *k, *v, *sinks;
	uint32_t *table;
	size_t n_cache = BLOCKS * KV_BLOCK * HEADS_KV * DIM;
	rows_start(&t, N_ROWS, (struct vk_options){0});
	struct rows q = shared_rows(t.b, N_ROWS, HEADS * DIM, &t.x);
	struct rows out = shared_rows(t.b, N_ROWS, HEADS * DIM, &t.out);
	kv.k = shared(t.b, n_cache * sizeof(float), &k);
	kv.v = shared(t.b, n_cache * sizeof(float), &v);
	shape.table = shared(t.b, BLOCKS * sizeof *table, &table);
	t.views[2] = q.view, t.views[3] = out.view, t.views[4] = kv.k, t.views[5] = kv.v;
	sinks_view = shared(t.b, HEADS * sizeof *sinks, &sinks);
	t.views[6] = shape.table, t.views[7] = sinks_view;
	t.n = q.stride, t.n_out = out.stride;
	random_floats(t.x, N_ROWS * q.stride, &t.state);
	random_floats(k, n_cache, &t.state);
	random_floats(v, n_cache, &t.state);
	random_floats(sinks, HEADS, &t.state);
	for (unsigned i = 0; i < BLOCKS; i++)
		table[i] = BLOCKS - 1 - i;
	struct weights w = {.name = "sinks",
		.weight = WEIGHT_f32,
		.n_rows = 1,
		.n_cols = HEADS,
		.rows_per_chunk = 1,
		.n_chunks = 1,
		.chunks = &sinks_view};
	plan_attention(&t.plan, out, q, &kv, &shape,
		&(struct attention){.scale = 0.5f,
			.softcap = softcap,
			.window = window,
			.sinks = with_sinks ? &w : NULL});
	rows_compare(&t, N_ROWS, FIRST, "attn_prefill");
}

Test(vk_kernels, rows_of_an_attention_are_independent)
{
	attention_compare(0, 0, false);
	attention_compare(7, 0, false);
	attention_compare(33, 2, true);
}

/* ---- a state does not know how its rows were cut into steps --------------------------------------- */

enum {
	STATE_ROWS = 43,
	STATE_FIRST = 5, /* position; an earlier step has left the rows of block 0 before it */
	STATE_BLOCKS = (STATE_FIRST + STATE_ROWS) / STATE_BLOCK + 1,
	STATE_HEADS = 4,
	STATE_GROUPS = 2,
	STATE_DK = 32,
	STATE_DV = 36,
	STATE_TAPS = 4,
	STATE_CHANNELS = 2 * STATE_GROUPS * STATE_DK + STATE_HEADS * STATE_DV
};

struct state_case {
	struct backend *b;
	struct plan plan;
	struct runnable *r;
	struct view views[8];
	uint32_t n_views;
	struct step_header *header;
	float *x, *out, *gates, *state;
	uint32_t *table;
	uint32_t n_x, n_out, n_gates; /* floats from row to row */
	uint32_t block_words;
};

static struct view state_view(struct state_case *t, uint64_t n_bytes, void *bytes_of)
{
	struct view v = shared(t->b, n_bytes, bytes_of);
	return t->views[t->n_views++] = v;
}

static struct rows state_rows(struct state_case *t, uint32_t n, float **floats)
{
	struct rows rows = {.n = n, .stride = ROW_STRIDE(n)};
	rows.view = state_view(t, (uint64_t)STATE_ROWS * rows.stride * sizeof(float), floats);
	return rows;
}

/* The plan of one op of the kernel; weights are random, rates of the delta rule negative. */
static void state_plan(struct state_case *t, enum kernel kernel)
{
	const struct delta d = {
		STATE_GROUPS, STATE_HEADS, STATE_DK, STATE_DV, 0, STATE_HEADS, 1e-6f};
	const struct conv c = {STATE_CHANNELS, STATE_TAPS, 0, CONV_NONE, CONV_NONE, .silu = true};
	const bool is_conv = kernel == KERNEL_conv;
	struct dispatch_size *sizes;
	struct lap_error err;
	float *weights;
	uint64_t state = 3;
	t->plan = (struct plan){.max_rows = STATE_ROWS, .layer = -1};
	t->plan.role = kernel == KERNEL_delta_decode ? ROLE_DECODE : ROLE_PREFILL;
	t->plan.step =
		state_view(t, sizeof *t->header + STATE_ROWS * sizeof(struct step_row), &t->header);
	t->plan.sizes = state_view(t, MAX_SIZES * sizeof *sizes, &sizes);
	memset(sizes, 0, MAX_SIZES * sizeof *sizes);
	struct rows x = state_rows(t, STATE_CHANNELS, &t->x);
	struct rows out = state_rows(t, is_conv ? STATE_CHANNELS : STATE_HEADS * STATE_DV, &t->out);
	struct rows gates = state_rows(t, 2 * STATE_HEADS, &t->gates);
	t->n_x = x.stride, t->n_out = out.stride, t->n_gates = gates.stride;
	uint64_t block_bytes =
		is_conv ? conv_block_bytes(STATE_CHANNELS, STATE_TAPS) : delta_block_bytes(&d);
	t->block_words = (uint32_t)(block_bytes / sizeof(float));
	struct view kept = state_view(t, STATE_BLOCKS * block_bytes, &t->state);
	struct view table = state_view(t, STATE_BLOCKS * sizeof *t->table, &t->table);
	const uint32_t n = is_conv ? STATE_CHANNELS * STATE_TAPS : 2 * STATE_HEADS;
	struct view chunk = state_view(t, n * sizeof(float), &weights);
	random_floats(weights, n, &state);
	for (uint32_t i = STATE_HEADS; i < n && !is_conv; i++)
		weights[i] = -fabsf(weights[i]);
	struct weights w = {.name = "weights",
		.weight = WEIGHT_f32,
		.n_rows = is_conv ? STATE_CHANNELS : 1,
		.n_cols = is_conv ? STATE_TAPS : n,
		.rows_per_chunk = n,
		.n_chunks = 1,
		.chunks = &chunk};
	const struct state_shape shape = {table, STATE_BLOCKS};
	if (is_conv)
		plan_conv(&t->plan, out, x, &w, kept, &shape, &c);
	else
		plan_delta(&t->plan, out, x, gates, &w, kept, &shape, &d);
	cr_assert_eq(
		t->b->ops->prepare(t->b, &t->plan, false, &t->r, &err), LAP_OK, "%s", err.text);
}

/* Blocks in no order; `sparse`: those strictly between these positions are not kept. */
static void state_table(struct state_case *t, bool sparse, uint32_t pos, uint32_t end)
{
	for (uint32_t i = 0; i < STATE_BLOCKS; i++) {
		bool between = i > pos / STATE_BLOCK && i < end / STATE_BLOCK;
		t->table[i] = sparse && between ? STATE_NONE : (i + 2) % STATE_BLOCKS;
	}
}

/* All rows in steps of `cut`, from the same start; the results, then the state's words, to `found`. */
static void state_run(struct state_case *t, uint32_t cut, bool sparse, float *found)
{
	uint64_t state = 11;
	const size_t n_state = (size_t)STATE_BLOCKS * t->block_words;
	float *x = calloc((size_t)STATE_ROWS * (t->n_x + t->n_gates), sizeof(float));
	float *gates = x + (size_t)STATE_ROWS * t->n_x;
	random_floats(x, (size_t)STATE_ROWS * (t->n_x + t->n_gates), &state);
	memset(t->state, 0xFF, n_state * sizeof(float));
	state_table(t, false, 0, 0);
	random_floats(t->state + (size_t)t->table[0] * t->block_words, t->block_words, &state);
	for (uint32_t first = 0, n; first < STATE_ROWS; first += n) {
		n = STATE_ROWS - first < cut ? STATE_ROWS - first : cut;
		for (uint32_t i = 0; i < n; i++)
			((struct step_row *)(t->header + 1))[i] =
				(struct step_row){.pos = STATE_FIRST + first + i};
		*t->header = (struct step_header){.n_rows = n, .n_kv = STATE_FIRST + first + n};
		state_table(t, sparse, STATE_FIRST + first, STATE_FIRST + first + n);
		memcpy(t->x, x + (size_t)first * t->n_x, n * t->n_x * sizeof(float));
		memcpy(t->gates, gates + (size_t)first * t->n_gates,
			n * t->n_gates * sizeof(float));
		run_plan(t->b, t->r);
		memcpy(found + (size_t)first * t->n_out, t->out, n * t->n_out * sizeof(float));
	}
	memcpy(found + (size_t)STATE_ROWS * t->n_out, t->state, n_state * sizeof(float));
	free(x);
}

static void state_compare(struct backend *b, enum kernel kernel)
{
	static const uint32_t cuts[] = {1, 7, 11, 32};
	struct state_case t = {.b = b};
	state_plan(&t, kernel);
	const size_t n_out = (size_t)STATE_ROWS * t.n_out;
	const size_t n_bytes = (n_out + (size_t)STATE_BLOCKS * t.block_words) * sizeof(float);
	float *whole = calloc(1, n_bytes), *cut = calloc(1, n_bytes);
	state_run(&t, STATE_ROWS, false, whole);
	for (size_t i = 0; i < ARRAY_COUNT(cuts); i++) {
		state_run(&t, cuts[i], false, cut);
		cr_expect(memcmp(whole, cut, n_bytes) == 0, "%s, %s: steps of %u rows", b->name,
			kernel_info(kernel)->name, cuts[i]);
	}
	for (uint32_t n = 20; n <= STATE_ROWS && t.plan.role == ROLE_PREFILL; n += 23) {
		state_run(&t, n, true, cut);
		cr_expect(memcmp(whole, cut, n_out * sizeof(float)) == 0,
			"%s, %s: steps of %u rows, blocks between not kept", b->name,
			kernel_info(kernel)->name, n);
	}
	b->ops->release(b, t.r);
	plan_free(&t.plan);
	for (uint32_t i = 0; i < t.n_views; i++)
		b->ops->buffer_destroy(b, t.views[i].buffer);
	free(whole);
	free(cut);
}

Test(vk_kernels, steps_of_any_size_leave_the_same_state)
{
	static const enum kernel kernels[] = {
		KERNEL_conv, KERNEL_delta_decode, KERNEL_delta_prefill};
	struct backend *backends[2];
	struct lap_error err;
	cr_assert_eq(vk_open(&(struct vk_options){0}, &backends[0], &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&backends[1], &err), LAP_OK, "%s", err.text);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < ARRAY_COUNT(kernels); k++)
			state_compare(backends[i], kernels[k]);
		backends[i]->ops->close(backends[i]);
	}
}

/* ---- OB-04: a quantised cache at a large head size ---------------------------------------------- */

/* The value type loses what its quantiser loses, and no more: rope_kv stores sine waves, attention reads
 * them, and a softmax in double over the decoded cache says what it should have found. */
static void quantised_attention(
	enum role role, uint32_t dim, enum kv_type k_type, enum kv_type v_type)
{
	enum {
		HEADS = 16,
		HEADS_KV = 4,
		N = 40,
		BLOCKS = 2,
		N_CACHE = BLOCKS * KV_BLOCK * HEADS_KV
	};
	const uint32_t width = HEADS_KV * dim, n_q = HEADS * dim;
	struct rows_case t = {0};
	struct lap_error err;
	struct kv_layer kv = {.k_type = k_type, .v_type = v_type};
	struct kv_shape shape = {HEADS, HEADS_KV, dim, {0}, BLOCKS, BLOCKS * KV_BLOCK};
	uint8_t *k, *v;
	float *input, *rotated, *result;
	uint32_t *table;
	rows_start(&t, N, (struct vk_options){0});
	struct rows qkv = shared_rows(t.b, N, n_q + 2 * width, &input);
	struct rows q = shared_rows(t.b, N, n_q, &rotated), out = shared_rows(t.b, N, n_q, &result);
	kv.k = shared(t.b, kv_bytes(k_type, N_CACHE * dim), &k);
	kv.v = shared(t.b, kv_bytes(v_type, N_CACHE * dim), &v);
	shape.table = shared(t.b, BLOCKS * sizeof *table, &table);
	struct attention a = {.scale = 1 / sqrtf((float)dim)};
	a.partial = shared(t.b, (uint64_t)N * HEADS * (2 + dim) * sizeof(float), &(float *){NULL});
	for (uint32_t i = 0; i < N * qkv.stride; i++)
		input[i] = sinf(0.1f * (float)i);
	for (uint32_t i = 0; i < BLOCKS; i++)
		table[i] = BLOCKS - 1 - i;
	for (uint32_t i = 0; i < N; i++)
		t.step_rows[i] = (struct step_row){.pos = i};
	*t.header = (struct step_header){.n_rows = N, .n_kv = N};
	struct runnable *r;
	t.plan.role = role;
	plan_rope_kv(&t.plan, q, &kv, &shape, qkv, n_q, n_q + width,
		&(struct rope){.table = shape.table});
	plan_attention(&t.plan, out, q, &kv, &shape, &a);
	cr_assert_eq(t.b->ops->prepare(t.b, &t.plan, false, &r, &err), LAP_OK, "%s", err.text);
	run_plan(t.b, r);
	for (uint32_t row = 0; row < N; row += 13)
		for (uint32_t head = 0; head < HEADS; head++) {
			double sum = 0, weights[N], worst = 0;
			float cell[MAX_HEAD_DIM], wanted[MAX_HEAD_DIM];
			double expected[MAX_HEAD_DIM] = {0};
			for (uint32_t pos = 0; pos <= row; pos++) {
				size_t at = ((table[pos / KV_BLOCK] * KV_BLOCK + pos % KV_BLOCK) *
							    HEADS_KV +
						    head / 4) *
					dim;
				double score = 0;
				kv_load(k_type, k, at, dim, cell);
				for (uint32_t i = 0; i < dim; i++)
					score += (double)cell[i] *
						(double)rotated[row * q.stride + head * dim + i];
				sum += weights[pos] = exp(score * (double)a.scale);
				kv_load(v_type, v, at, dim, cell);
				memcpy(wanted,
					input + pos * qkv.stride + n_q + width + head / 4 * dim,
					dim * sizeof(float));
				for (uint32_t i = 0; i < dim; i++) {
					expected[i] += weights[pos] * (double)cell[i];
					worst = fmax(worst, fabs((double)(cell[i] - wanted[i])));
				}
			}
			cr_assert_leq(worst, v_type == KV_Q4_0 ? 1.01 / 8 : 1.01 / 254);
			for (uint32_t i = 0; i < dim; i++)
				cr_assert_leq(
					fabs((double)result[row * out.stride + head * dim + i] -
						expected[i] / sum),
					1e-3);
		}
	t.b->ops->release(t.b, r);
	plan_free(&t.plan);
	struct view all[] = {t.plan.step, t.plan.sizes, qkv.view, q.view, out.view, kv.k, kv.v,
		shape.table, a.partial};
	for (unsigned i = 0; i < ARRAY_COUNT(all); i++)
		t.b->ops->buffer_destroy(t.b, all[i].buffer);
	t.b->ops->close(t.b);
}

Test(vk_kernels, quantised_values_at_head_size_256)
{
	for (enum kv_type v = KV_Q8_0; v <= KV_Q4_0; v++) {
		quantised_attention(ROLE_DECODE, 256, KV_F16, v);
		quantised_attention(ROLE_PREFILL, 256, KV_Q8_0, v);
	}
	quantised_attention(ROLE_PREFILL, 64, KV_F16, KV_Q4_0);
	quantised_attention(ROLE_DECODE, 128, KV_Q4_0, KV_F16);
}
