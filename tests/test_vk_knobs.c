/* Knobs: values that fit a device, and that none of them changes a bit of what a kernel computes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_side.h"
#include "knobs.h"
#include "matrices.h"
#include "parts.h"
#include "support.h"
#include "vk/knob_defaults.h"
#include "vk/pipeline.h"

static bool starts(const char *text, const char *word)
{
	return strncmp(text, word, strlen(word)) == 0;
}

/* All that fit the device, on the small cases whose name begins so. */
static uint32_t try_all(
	struct backend *vk, struct backend *cpu, enum kernel kernel, const char *name)
{
	const struct lap_device *d = vk->device;
	struct lap_error err;
	uint32_t n, n_run = 0, values[MAX_KNOBS] = {0};
	const struct knob *knobs = kernel_knobs(kernel, &n);
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		struct check_result usual, result;
		char found[128];
		check_case_name(i, found, sizeof found);
		if (check_case_kernel(i) != kernel || !check_case_small(i) || !starts(found, name))
			continue;
		cr_assert_eq(check_run(vk, cpu, i, 1, &usual, &err), LAP_OK, "%s", err.text);
		for (uint32_t k = 0; k < n; k++)
			values[k] = knobs[k].values[0];
		do {
			struct text text = {0};
			if (!knobs_fit(kernel, values, d->max_invocations, d->subgroup_max,
				    d->max_shared_bytes))
				continue;
			knobs_print(kernel, values, &text);
			cr_assert_eq(check_run_knobs(vk, cpu, i, 1, values, &result, &err), LAP_OK,
				"%s", err.text);
			cr_expect(result.passed, "%s, %s: %s", found, text.data, result.reason);
			cr_expect_eq(
				result.hash, usual.hash, "%s, %s: other bits", found, text.data);
			text_free(&text);
			n_run++;
		} while (knobs_next(kernel, values));
	}
	return n_run;
}

static void try_backend(const struct vk_options *options)
{
	struct backend *vk, *cpu;
	struct lap_error err;
	cr_assert_eq(vk_open(options, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	cr_expect_gt(try_all(vk, cpu, KERNEL_matvec, "matvec q8_0 150 x"), 5);
	cr_expect_gt(try_all(vk, cpu, KERNEL_matvec_q8, "matvec_q8 q4_k 31 x"), 5);
	cr_expect_gt(try_all(vk, cpu, KERNEL_expert_matvec, "expert_matvec f16 64 x"), 5);
	cr_expect_gt(try_all(vk, cpu, KERNEL_glu, "glu 256"), 2);
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

Test(vk_knobs, no_value_changes_a_result)
{
	try_backend(&(struct vk_options){0});
}

Test(vk_knobs, nor_without_subgroups)
{
	try_backend(&(struct vk_options){.no_subgroup = true});
}

/* Typical tiles of GPUs: each of their sizes is a pipeline. */
Test(vk_knobs, nor_in_shared_memory)
{
	struct backend *vk, *cpu;
	struct lap_error err;
	cr_assert_eq(
		vk_open(&(struct vk_options){.shared = true}, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	/* With UNITS 2 three of the six sizes of a tile fit into 32 KiB. */
	const uint32_t n_tiles = 3 * 2 + 3;
	cr_expect_geq(try_all(vk, cpu, KERNEL_matmul, "matmul q4_0 150 x"), n_tiles * 2 * 3);
	cr_expect_geq(
		try_all(vk, cpu, KERNEL_expert_matmul, "expert_matmul f32 33 x"), n_tiles * 2);
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

/* Nor of matrices: each is summed alone, whoever holds it. */
Test(vk_knobs, nor_of_matrices)
{
	struct backend *vk, *cpu;
	struct lap_error err;
	need_matrices();
	cr_assert_eq(
		vk_open(&(struct vk_options){.coopmat = true}, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	cr_expect_geq(try_all(vk, cpu, KERNEL_matmul, "matmul q4_0 150 x"), 3 * 2 * 2 * 3);
	cr_expect_geq(try_all(vk, cpu, KERNEL_expert_matmul, "expert_matmul f16 33 x"), 3 * 2 * 2);
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

/* ---- parts of a sum ---------------------------------------------------------------------------- */

Test(vk_knobs, where_sums_are_cut)
{
	static const struct {
		uint32_t n_units, part, n_parts;
	} cases[] = {{1, 4, 1}, {4, 4, 1}, {5, 4, 2}, {12, 4, 3}, {13, 4, 4}, {16, 4, 4},
		{17, 5, 4}, {19, 5, 4}, {24, 6, 4}, {128, 32, 4}, {129, 33, 4}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		cr_expect_eq(PART_UNITS(cases[i].n_units), cases[i].part);
		cr_expect_eq(N_PARTS(cases[i].n_units), cases[i].n_parts, "%u units: %u",
			cases[i].n_units, N_PARTS(cases[i].n_units));
	}
	cr_expect_eq(matmul_parts(1), 1);
	cr_expect_eq(matmul_parts(129), 2);
}

/* Whoever adds up the parts, and however many units are there at a time. */
static void try_splits(struct backend *vk, struct backend *cpu, uint32_t n_in, uint32_t n_rows)
{
	const struct check_case c = {KERNEL_matmul, n_rows, .n_out = 70, .n_in = n_in,
		.flags = BIAS | RESIDUAL | SCALE | SOFTCAP};
	const enum weight weight = n_in % 32 ? WEIGHT_f16 : WEIGHT_q8_0;
	struct check_result first, result;
	struct lap_error err;
	for (uint32_t i = 0; i < 6; i++) {
		const uint32_t split = 1u << i / 2, units = 1 + i % 2;
		uint32_t knobs[MAX_KNOBS] = {0};
		*knob_value(KERNEL_matmul, knobs, "SPLIT") = split;
		*knob_value(KERNEL_matmul, knobs, "UNITS") = units;
		cr_assert_eq(
			side_check(vk, cpu, &c, weight, n_in + n_rows, 2, knobs, &result, &err),
			LAP_OK, "%s", err.text);
		cr_expect(result.passed, "%u rows of %u, split by %u, %u units: %s", n_rows, n_in,
			split, units, result.reason);
		if (i == 0)
			first = result;
		cr_expect_eq(result.hash, first.hash,
			"%u rows of %u, split by %u, %u units: other bits", n_rows, n_in, split,
			units);
	}
}

Test(vk_knobs, parts_are_the_same_for_all)
{
	static const uint32_t inputs[] = {1, 129, 257, 545, 768, 2081};
	static const uint32_t rows[] = {1, 17, 33};
	struct backend *vk, *cpu;
	struct lap_error err;
	cr_assert_eq(
		vk_open(&(struct vk_options){.shared = true}, &vk, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < ARRAY_COUNT(inputs); i++)
		for (size_t r = 0; r < ARRAY_COUNT(rows); r++)
			try_splits(vk, cpu, inputs[i], rows[r]);
	vk->ops->close(vk);
	cpu->ops->close(cpu);
}

/* Elements of the first output that are NaN, as the room for parts is before. */
static uint32_t count_missing(struct backend *b, const struct plan *plan)
{
	const struct view out = plan->ops[plan->n_ops - 1].buffers[0];
	float *floats = malloc(out.n_bytes);
	struct lap_error err;
	struct runnable *r;
	uint64_t ticket;
	uint32_t n = 0;
	cr_assert_eq(b->ops->prepare(b, plan, false, &r, &err), LAP_OK, "%s", err.text);
	b->ops->begin(r);
	cr_assert_eq(b->ops->run(b, r, 1, &ticket, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->wait(b, ticket, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->read(b, out, floats, out.n_bytes, &err), LAP_OK, "%s", err.text);
	for (uint64_t i = 0; i < out.n_bytes / sizeof *floats; i++)
		n += floats[i] != floats[i];
	b->ops->release(b, r);
	free(floats);
	return n;
}

/* The workgroup of the last part left out: a check has NaN where it looks for sums. */
Test(vk_knobs, a_part_that_is_missing_shows)
{
	static const struct check_case c = {
		KERNEL_matmul, 3, .n_out = 70, .n_in = 768, .flags = RESIDUAL};
	struct lap_error err;
	struct backend *b;
	struct op ops[2];
	cr_assert_eq(
		vk_open(&(struct vk_options){.shared = true}, &b, &err), LAP_OK, "%s", err.text);
	for (uint32_t left_out = 0; left_out < 2; left_out++) {
		struct side side = {.b = b, .c = &c, .weight = WEIGHT_q8_0, .err = &err};
		side_build(&side);
		cr_assert_eq(side.status, LAP_OK, "%s", err.text);
		*knob_value(KERNEL_matmul, side.plan.ops[0].knobs, "SPLIT") = 4;
		op_split(&side.plan.ops[0], 4, 64, ops);
		struct plan plan = side.plan;
		plan.ops = ops;
		plan.n_ops = 2;
		ops[0].n_outputs -= 64 * left_out;
		cr_expect_eq(count_missing(b, &plan), left_out * 3 * (70 - 64));
		side_free(&side);
	}
	b->ops->close(b);
}

/* Fewer tiles than a GPU has multiprocessors. */
Test(vk_knobs, who_splits)
{
	static const struct {
		enum lap_device_type type;
		uint32_t n_out, n_rows, split;
	} cases[] = {{LAP_DEVICE_DISCRETE, 768, 20, 4}, {LAP_DEVICE_DISCRETE, 768, 512, 2},
		{LAP_DEVICE_DISCRETE, 768, 1024, 1}, {LAP_DEVICE_INTEGRATED, 768, 20, 4},
		{LAP_DEVICE_INTEGRATED, 768, 128, 2}, {LAP_DEVICE_INTEGRATED, 768, 512, 1},
		{LAP_DEVICE_CPU, 768, 20, 1}};
	char place;
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct vk v = {.info = {.type = cases[i].type}, .shared = true};
		struct op op = {.kernel = KERNEL_matmul,
			.n_outputs = cases[i].n_out,
			.max_rows = cases[i].n_rows,
			.parts = {(struct buffer *)(void *)&place, 0, 1}};
		const struct pipeline_key key = pipeline_key(&v, &op);
		cr_expect_eq(key.split, cases[i].split, "case %zu: %u", i, key.split);
		op.parts.n_bytes = 0;
		cr_expect_eq(pipeline_key(&v, &op).split, 1, "there is no room");
	}
}

Test(vk_knobs, what_fits)
{
	/* OUTPUTS, LANES */
	cr_expect(knobs_fit(KERNEL_matvec, (uint32_t[]){1, 64}, 128, 32, 16384));
	cr_expect(!knobs_fit(KERNEL_matvec, (uint32_t[]){1, 128}, 128, 32, 16384), "shared memory");
	cr_expect(knobs_fit(KERNEL_matvec, (uint32_t[]){1, 128}, 128, 32, 32768));
	cr_expect(!knobs_fit(KERNEL_matvec, (uint32_t[]){1, 256}, 128, 32, 65536), "lanes");
	cr_expect(
		!knobs_fit(KERNEL_matvec, (uint32_t[]){1, 32}, 128, 64, 65536), "half a subgroup");
	cr_expect(knobs_fit(KERNEL_matvec, (uint32_t[]){4, 32}, 128, 32, 65536));
	/* TILE_OUTPUTS, TILE_ROWS, LANES, SPLIT, UNITS, beside the largest codebook */
	cr_expect(knobs_fit(KERNEL_matmul, (uint32_t[]){64, 32, 128, 1, 1}, 128, 32, 16384));
	cr_expect(!knobs_fit(KERNEL_matmul, (uint32_t[]){64, 32, 128, 1, 2}, 128, 32, 16384));
	cr_expect(knobs_fit(KERNEL_matmul, (uint32_t[]){64, 32, 128, 1, 2}, 128, 32, 28672));
	cr_expect(!knobs_fit(KERNEL_matmul, (uint32_t[]){64, 32, 128, 1, 2}, 128, 32, 28671));
}

/* The tables of all formats are in the sums above. */
Test(vk_knobs, codebooks_fit)
{
	uint32_t n_codebooks = 0;
	for (enum weight w = 0; w < N_WEIGHTS; w++) {
		char path[128];
		snprintf(path, sizeof path, "shaders/weights/%s.glsl", weight_format(w)->name);
		char *text = read_text(source_path(path), NULL);
		const char *define = strstr(text, "#define CODEBOOK ");
		if (define) {
			const unsigned long n =
				strtoul(define + strlen("#define CODEBOOK "), NULL, 10);
			cr_expect(n > 0 && n * sizeof(uint32_t) <= MAX_CODEBOOK_BYTES, "%s", path);
			n_codebooks++;
		}
		free(text);
	}
	cr_expect_gt(n_codebooks, 0);
}

Test(vk_knobs, combinations)
{
	uint32_t values[MAX_KNOBS] = {1, 16}, n = 1;
	while (knobs_next(KERNEL_matvec, values))
		n++;
	cr_expect_eq(n, 3 * 5);
	cr_expect(values[0] == 1 && values[1] == 16, "begins again");
	cr_expect(!knobs_next(KERNEL_rmsnorm, values), "has no knobs");
}

/* What an op carries goes before its device's class, that before what is usual. */
Test(vk_knobs, whose_value_counts)
{
	struct vk v = {.info = {.type = LAP_DEVICE_DISCRETE, .subgroup_size = 32}};
	struct op op = {.kernel = KERNEL_glu};
	cr_expect_eq(pipeline_key(&v, &op).outputs_per_group, 256);
	v.info.type = LAP_DEVICE_CPU;
	cr_expect_eq(pipeline_key(&v, &op).outputs_per_group, 4 * 256);
	op.knobs[0] = 2;
	cr_expect_eq(pipeline_key(&v, &op).outputs_per_group, 2 * 256);
	v.subgroup = true;
	op = (struct op){.kernel = KERNEL_matvec, .knobs = {2, 128}};
	struct pipeline_key key = pipeline_key(&v, &op);
	cr_expect_eq(key.outputs_per_group, 2 * 4 * 128 / 32);
	cr_expect_eq(key.knobs[1], 128);
}

/* On lavapipe each subgroup of a product with several rows of x has outputs: 64, or 32 with a gate. */
Test(vk_knobs, no_subgroup_without_outputs)
{
	struct vk v = {.info = {.type = LAP_DEVICE_CPU, .subgroup_size = 8, .driver = "llvmpipe"},
		.subgroup = true,
		.texels = true,
		.shuffle = true};
	struct op op = {
		.kernel = KERNEL_matvec, .weight = WEIGHT_q8_0, .constant = 8 << COLUMNS_SHIFT};
	struct pipeline_key key = pipeline_key(&v, &op);
	cr_expect_str_eq(key.variant, "shuffle");
	cr_expect_eq(key.outputs_per_group, key.knobs[1] / 8 * 64);
	op.constant = 1 << COLUMNS_SHIFT;
	key = pipeline_key(&v, &op);
	cr_expect_eq(key.outputs_per_group, 4 * key.knobs[1] / 8 * 4);
}

/* What only some builds have is nothing to the others. */
Test(vk_knobs, of_some_builds)
{
	struct vk v = {.info = {.type = LAP_DEVICE_DISCRETE, .subgroup_size = 32}, .shared = true};
	struct op op = {.kernel = KERNEL_matmul};
	struct pipeline_key key = pipeline_key(&v, &op);
	cr_expect_str_eq(key.variant, "shared");
	cr_expect(key.outputs_per_group == 64 && key.rows_per_group == 32);
	op = (struct op){.kernel = KERNEL_matmul, .knobs = {32, 64, 256}};
	key = pipeline_key(&v, &op);
	cr_expect(key.outputs_per_group == 32 && key.rows_per_group == 64 && key.knobs[2] == 256);
	v.shared = false;
	key = pipeline_key(&v, &op);
	cr_expect_null(key.variant);
	cr_expect(key.outputs_per_group == 128 && key.rows_per_group == 16);
	for (uint32_t i = 0; i < MAX_KNOBS; i++)
		cr_expect_eq(key.knobs[i], 0);
	struct text text = {0};
	cr_expect(knobs_print(KERNEL_matmul, key.knobs, &text));
	cr_expect_eq(text.n, 0);
	/* Tiles of experts are what their list says, whatever a workgroup takes of them. */
	v.shared = true;
	op = (struct op){.kernel = KERNEL_expert_matmul};
	key = pipeline_key(&v, &op);
	cr_expect(key.outputs_per_group == 64 && key.rows_per_group == EXPERT_TILE);
}
