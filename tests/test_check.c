/* The checker itself: what a broken kernel could do to its output must be noticed.  The broken backend is
 * the CPU reference with a hand on what comes back. */
#include "check.h"
#include "check_speed.h"
#include "support.h"

#include <math.h>
#include <string.h>

#define GUARD 256 /* bytes around an operand, as in check.c */

static struct backend *cpu, *broken;
static const struct backend_ops *whole;
static struct backend_ops ops;
static void (*damage)(uint8_t *bytes, uint64_t n_bytes); /* of an output with its guards */

static enum lap_status damaged_read(
	struct backend *b, struct view from, void *bytes, uint64_t n_bytes, struct lap_error *err)
{
	enum lap_status status = whole->read(b, from, bytes, n_bytes, err);
	damage(bytes, n_bytes);
	return status;
}

static void setup(void)
{
	struct lap_error err;
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&broken, &err), LAP_OK, "%s", err.text);
	whole = broken->ops;
	ops = *whole;
	ops.read = damaged_read;
	broken->ops = &ops;
}

static void teardown(void)
{
	cpu->ops->close(cpu);
	broken->ops = whole;
	broken->ops->close(broken);
}

TestSuite(check, .init = setup, .fini = teardown);

static void no_damage(uint8_t *bytes, uint64_t n_bytes)
{
	(void)bytes, (void)n_bytes;
}

static void scale_first(uint8_t *bytes, uint64_t n_bytes)
{
	(void)n_bytes;
	float f;
	memcpy(&f, bytes + GUARD, sizeof f);
	f = f * 1.25f + (f < 0 ? -1 : 1); /* never back to itself */
	memcpy(bytes + GUARD, &f, sizeof f);
}

static void nan_first(uint8_t *bytes, uint64_t n_bytes)
{
	(void)n_bytes;
	memset(bytes + GUARD, 0xFF, 4);
}

static void write_before(uint8_t *bytes, uint64_t n_bytes)
{
	(void)n_bytes;
	bytes[GUARD - 1] ^= 1;
}

static void write_behind(uint8_t *bytes, uint64_t n_bytes)
{
	bytes[n_bytes - GUARD] ^= 1;
}

/* The last element of the last row is padding where a row has any. */
static void write_padding(uint8_t *bytes, uint64_t n_bytes)
{
	memset(bytes + n_bytes - GUARD - 4, 0, 4);
}

static void omit_first(uint8_t *bytes, uint64_t n_bytes)
{
	(void)n_bytes;
	memcpy(bytes + GUARD, bytes, 4); /* as it was before the kernel ran */
}

static struct check_result run(uint32_t i)
{
	struct check_result result;
	struct lap_error err;
	cr_assert_eq(check_run(broken, cpu, i, 1, &result, &err), LAP_OK, "%s", err.text);
	cr_assert(result.passed == (result.reason[0] == 0));
	return result;
}

Test(check, the_reference_agrees_with_itself)
{
	damage = no_damage;
	for (uint32_t i = 0; i < check_n_cases(); i++)
		if (check_case_small(i)) {
			struct check_result result = run(i);
			char name[128];
			check_case_name(i, name, sizeof name);
			cr_expect(result.passed, "%s: %s", name, result.reason);
			cr_expect(result.nmse == 0 && result.max_error == 0, "%s", name);
			cr_expect_gt(result.n_bytes, 0);
		}
}

Test(check, damage_is_noticed)
{
	static void (*const damages[])(uint8_t *, uint64_t) = {
		scale_first, nan_first, write_before, write_behind, omit_first};
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		enum kernel kernel = check_case_kernel(i);
		if (!check_case_small(i) || kernel == KERNEL_control)
			continue;
		for (size_t d = 0; d < ARRAY_COUNT(damages); d++) {
			damage = damages[d];
			char name[128];
			check_case_name(i, name, sizeof name);
			/* A cache may be untouched at its first position. */
			if (kernel != KERNEL_rope_kv || d > 1)
				cr_expect(!run(i).passed, "%s: damage %zu", name, d);
		}
	}
}

Test(check, writes_into_padding_are_noticed)
{
	uint32_t n = 0;
	damage = write_padding;
	for (uint32_t i = 0; i < check_n_cases(); i++)
		if (check_case_small(i) && check_case_kernel(i) == KERNEL_rmsnorm) {
			n += !run(i).passed;
			struct check_result result = run(i);
			cr_expect(strstr(result.reason, "was written"), "%s", result.reason);
		}
	cr_expect_gt(n, 0);
}

/* What is wrong is not timed. */
Test(check, a_wrong_kernel_has_no_speed)
{
	const struct kernel_shape shape = {
		.kernel = KERNEL_matvec, .weight = WEIGHT_q8_0, .m = 40, .n = 2, .k = 64};
	struct kernel_speed speed;
	struct lap_error err;
	damage = no_damage;
	cr_assert_eq(kernel_measure(broken, cpu, &shape, NULL, 0.01, &speed, &err), LAP_OK, "%s",
		err.text);
	cr_expect(speed.check.passed && speed.seconds > 0 && speed.n_copies > 1);
	cr_expect_eq(speed.checked_m, 40);
	cr_expect_eq(speed.work.flops, 2.0 * 40 * 2 * 64);
	cr_expect_eq(speed.work.bytes, 40 * 2 * 34 + 2 * (40 + 64) * 4);
	damage = scale_first;
	cr_assert_eq(kernel_measure(broken, cpu, &shape, NULL, 0.01, &speed, &err), LAP_OK, "%s",
		err.text);
	cr_expect(!speed.check.passed && speed.seconds == 0);
}

Test(check, shapes_that_cannot_be)
{
	static const struct {
		struct kernel_shape shape;
		const char *words;
	} cases[] = {
		{{.kernel = KERNEL_rope_kv, .m = 1, .n = 1}, "is not measured alone"},
		{{.kernel = KERNEL_matvec, .m = 4, .n = 1}, "outputs x rows x inputs"},
		{{.kernel = KERNEL_matvec, .weight = WEIGHT_q4_k, .m = 4, .n = 1, .k = 100},
			"expected blocks of 256"},
		{{.kernel = KERNEL_glu, .m = 4, .n = 1, .k = 1}, "columns x rows"},
		{{.kernel = KERNEL_attn_prefill, .m = 4, .n = 9, .k = 8}, "no fewer positions"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct kernel_speed speed;
		struct lap_error err;
		cr_expect_eq(kernel_measure(cpu, cpu, &cases[i].shape, NULL, 0, &speed, &err),
			LAP_USAGE);
		cr_expect(strstr(err.text, cases[i].words), "%s", err.text);
	}
}

Test(check, every_kernel_has_cases_of_both_sizes)
{
	uint32_t n_small[N_KERNELS] = {0}, n_all[N_KERNELS] = {0};
	char name[128], last[128] = "";
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		check_case_name(i, name, sizeof name);
		cr_expect_neq(strcmp(name, last), 0, "%s stands twice", name);
		memcpy(last, name, sizeof last);
		cr_expect_eq(strncmp(name, kernel_info(check_case_kernel(i))->name,
				     strlen(kernel_info(check_case_kernel(i))->name)),
			0);
		n_all[check_case_kernel(i)]++;
		n_small[check_case_kernel(i)] += check_case_small(i);
	}
	for (int k = 0; k < N_KERNELS; k++) {
		cr_expect_gt(n_small[k], 0, "%s", kernel_info((enum kernel)k)->name);
		cr_expect_gt(n_all[k], n_small[k], "%s", kernel_info((enum kernel)k)->name);
	}
}
