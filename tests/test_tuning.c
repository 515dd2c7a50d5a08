/* The table of what was measured, and its text: read back as written, anything else is not used. */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tuning.h"

static const char key[] = "lapilli tuning 1: a device";

static struct tuned item(uint32_t outputs, uint32_t lanes, bool broken)
{
	struct tuned t = {
		.of = {.kernel = KERNEL_matvec,
			.weight = WEIGHT_q8_0,
			.outputs = outputs,
			.inputs = 64,
			.rows = 1},
		.knobs = {1, lanes},
		.seconds = broken ? 0 : 12.5e-6,
		.usual_seconds = broken ? 0 : 25e-6,
		.broken = broken,
	};
	if (broken)
		strcpy(t.reason, "NMSE 0.5, limit 0.0005");
	return t;
}

static bool find(struct tuning *t, uint32_t outputs, struct tuned *found)
{
	const struct tuned wanted = item(outputs, 0, false);
	return tuning_find(t, &wanted.of, found);
}

static void put(struct tuning *t, struct tuned i)
{
	cr_assert(tuning_put(t, &i));
}

Test(tuning, classes)
{
	struct op op = {.kernel = KERNEL_matvec,
		.weight = WEIGHT_q4_k,
		.n_outputs = 3000,
		.rows_per_group = 3,
		.args.matmul.n_in = 768};
	struct op_class c = op_class(&op);
	cr_expect(c.kernel == KERNEL_matvec && c.weight == WEIGHT_q4_k);
	cr_expect(c.outputs == 4096 && c.inputs == 1024 && c.rows == 4);
	op = (struct op){.kernel = KERNEL_glu, .weight = WEIGHT_q4_k, .n_outputs = 256};
	c = op_class(&op);
	cr_expect(c.weight == 0 && c.outputs == 256 && c.inputs == 0 && c.rows == 0);
	op.max_rows = 500; /* a step of one row is another class than a prompt */
	cr_expect_eq(op_class(&op).rows, 512);
}

Test(tuning, winners_and_broken_values)
{
	struct tuning t;
	struct tuned found;
	tuning_init(&t);
	put(&t, item(128, 32, false));
	put(&t, item(128, 64, false));
	put(&t, item(256, 32, false));
	put(&t, item(128, 128, true));
	put(&t, item(256, 128, true));
	cr_expect_eq(t.n, 3, "a winner replaces the last, a broken value stands once");
	cr_expect(find(&t, 128, &found));
	cr_expect_eq(found.knobs[1], 64);
	cr_expect(!find(&t, 512, &found));
	cr_expect(tuning_is_broken(&t, KERNEL_matvec, WEIGHT_q8_0, (uint32_t[]){1, 128}));
	cr_expect(!tuning_is_broken(&t, KERNEL_matvec, WEIGHT_q8_0, (uint32_t[]){2, 128}));
	cr_expect(!tuning_is_broken(&t, KERNEL_matvec, WEIGHT_f16, (uint32_t[]){1, 128}));
	tuning_clear(&t);
	cr_expect(!find(&t, 128, &found));
	tuning_free(&t);
}

Test(tuning, text)
{
	struct tuning t, back;
	struct tuned found;
	struct text text = {0}, again = {0};
	tuning_init(&t);
	tuning_init(&back);
	put(&t, item(128, 64, false));
	put(&t, item(128, 256, true));
	put(&t, (struct tuned){.of = {.kernel = KERNEL_glu, .outputs = 32}, .knobs = {4}});
	t.bytes_per_second = 25.31e9;
	tuning_switch(&t, FEATURE_TEXELS, "matvec q8_0 33 x 256: NMSE 0.5");
	tuning_switch(&t, FEATURE_LONG, "NMSE 0.5");
	tuning_switch(&t, FEATURE_LONG, NULL);
	cr_assert(tuning_print(&t, key, &text));
	cr_expect_str_eq(text.data,
		"lapilli tuning 1: a device\n"
		"matvec Q8_0 128 x 64 x 1: OUTPUTS=1 LANES=64 # 12.50 us, usual 25.00 us\n"
		"matvec Q8_0 128 x 64 x 1: broken OUTPUTS=1 LANES=256 # NMSE 0.5, limit 0.0005\n"
		"glu - 32 x 0 x 0: OUTPUTS=4\n"
		"memory: 25.310 GB/s\n"
		"off: texels # matvec q8_0 33 x 256: NMSE 0.5\n");
	cr_expect_null(tuning_parse(&back, key, text.data));
	cr_expect_eq(back.n, 3);
	cr_assert(tuning_print(&back, key, &again));
	cr_expect_str_eq(again.data, text.data);
	cr_expect(find(&back, 128, &found));
	cr_expect_float_eq(found.usual_seconds, 25e-6, 1e-9);
	cr_expect(!tuning_is_off(&back, FEATURE_SUBGROUP) && tuning_is_off(&back, FEATURE_TEXELS));
	cr_expect(tuning_is_off(&back, FEATURE_LONG), "it needs texels");
	cr_expect(!tuning_is_off(&back, FEATURE_SHARED));
	tuning_forget_speeds(&back);
	cr_expect(
		back.n == 0 && back.bytes_per_second == 0 && tuning_is_off(&back, FEATURE_TEXELS));
	tuning_clear(&back);
	cr_expect(!tuning_is_off(&back, FEATURE_LONG));
	text_free(&text);
	text_free(&again);
	tuning_free(&t);
	tuning_free(&back);
}

Test(tuning, what_is_not_ours)
{
	static const char *const lines[] = {"", "x",
		"matvec Q8_0 128 x 64 x 1:", "matvec Q8_0 128 x 64 x 1: OUTPUTS=1",
		"matvec Q8_0 128 x 64 x 1: OUTPUTS=1 LANES=65",
		"matvec Q8_0 128 x 64 x 1: OUTPUTS=0 LANES=64",
		"matvec Q8_0 128 x 64 x 1: LANES=64 OUTPUTS=1",
		"matvec Q8_0 128 x 64 x 1: OUTPUTS=1 LANES=64 and more",
		"matvec Q9 128 x 64 x 1: OUTPUTS=1 LANES=64",
		"rmsnorm - 128 x 64 x 1: OUTPUTS=1 LANES=64", "glu Q8_0 32 x 0 x 0: OUTPUTS=4",
		"glu - 32 x 0 x 0: OUTPUTS=99999999999999999999", "memory: 0 GB/s",
		"memory: 25 GB/s, or more", "off: texels", "off: subgroups # NMSE 0.5"};
	for (size_t i = 0; i < ARRAY_COUNT(lines); i++) {
		struct tuning t;
		struct text text = {0};
		tuning_init(&t);
		cr_assert(
			text_printf(&text, "%s\nglu - 32 x 0 x 0: OUTPUTS=4\n%s\n", key, lines[i]));
		cr_expect_not_null(tuning_parse(&t, key, text.data), "%s", lines[i]);
		cr_expect_eq(t.n, 0, "%s: some of it was taken", lines[i]);
		text_free(&text);
		tuning_free(&t);
	}
	struct tuning t;
	tuning_init(&t);
	cr_expect_not_null(tuning_parse(&t, key, "lapilli tuning 1: a device 2\n"));
	cr_expect_not_null(tuning_parse(&t, key, ""));
	cr_expect_null(tuning_parse(&t, key, "lapilli tuning 1: a device\n"));
	tuning_free(&t);
}
