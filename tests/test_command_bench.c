/* `lapilli bench` as a user runs it: which tests, in which form, and that its numbers agree with each other. On
 * the CPU reference, few tokens: no figure of speed is checked. */
#include <criterion/criterion.h>
#include <math.h>

#include "command.h"
#include "work.h"

#define BENCH "bench", "-m", vector_path("golden/llama-freqs.gguf"), CPU

static double real_at(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);
	cr_assert(json_is_number(value), "no number %s", key);
	return json_number_value(value);
}

static const char *name_at(const json_t *rows, size_t i)
{
	return json_string_value(json_object_get(json_array_get(rows, i), "test"));
}

Test(command_bench, tests_and_figures)
{
	static const char *const names[] = {"pp8", "pp40", "tg4", "tg4 np3", "pp6+tg2", "pp8 @ d5",
		"pp40 @ d5", "tg4 @ d5", "tg4 np3 @ d5", "pp6+tg2 @ d5"};
	struct result r = run(BENCH, "-p", "8,40", "-n", "4", "-np", "1,3", "-pg", "6,2", "-d",
		"0,5", "-r", "3", "--json");
	json_t *rows = parse_json(&r);
	cr_assert_eq(json_array_size(rows), ARRAY_COUNT(names));
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		const json_t *row = json_array_get(rows, i);
		const json_t *samples = json_object_get(row, "samples_tok_s");
		cr_expect_str_eq(name_at(rows, i), names[i]);
		cr_assert_eq(json_array_size(samples), 3);
		double sum = 0, squares = 0;
		for (size_t j = 0; j < 3; j++)
			sum += json_number_value(json_array_get(samples, j));
		for (size_t j = 0; j < 3; j++)
			squares += pow(json_number_value(json_array_get(samples, j)) - sum / 3, 2);
		cr_expect_float_eq(real_at(row, "tok_s"), sum / 3, 1e-6 * sum);
		cr_expect_float_eq(
			real_at(row, "stddev_tok_s"), sqrt(squares / 2), 1e-6 * sum + 1e-9);
		cr_expect_gt(real_at(row, "tok_s"), 0);
		cr_expect_gt(real_at(row, "cpu_ms_per_token"), 0);
		cr_expect_gt(real_at(row, "submits_per_token"), 0);
		cr_expect_leq(real_at(row, "submits_per_token"), 1);
		cr_expect_gt(real_at(row, "bandwidth_gb_s"), 0);
		/* The reference computes in the calling thread, and nowhere else. */
		cr_expect_gt(real_at(row, "host_ms_per_token"), 0);
		cr_expect_leq(real_at(row, "host_ms_per_token"),
			1.01 * real_at(row, "cpu_ms_per_token") + 0.01);
		cr_expect_float_eq(real_at(row, "pct_arithmetic"),
			100 * real_at(row, "gflop_s") / real_at(row, "arithmetic_gflop_s"), 1e-6);
		/* Two operations a weight, and some for attention. */
		const double flops = 1e9 * real_at(row, "gflop_s") / real_at(row, "tok_s");
		cr_expect(flops > 1.5 * real_at(row, "model_n_params") / 2 &&
				flops < 4 * real_at(row, "model_n_params"),
			"%s: %g operations a token of %g weights", names[i], flops,
			real_at(row, "model_n_params"));
		cr_expect_gt(real_at(row, "device_bytes"), 1000);
		cr_expect_gt(real_at(row, "peak_rss_bytes"), real_at(row, "device_bytes"));
		if (real_at(row, "n_prompt") > 0) {
			cr_expect(json_is_null(json_object_get(row, "gb_s")));
			continue;
		}
		cr_expect_float_eq(real_at(row, "pct_bandwidth"),
			100 * real_at(row, "gb_s") / real_at(row, "bandwidth_gb_s"), 1e-6);
		/* A step reads the weights once for all its sequences. */
		const double step_bytes = 1e9 * real_at(row, "gb_s") * real_at(row, "n_parallel") /
			real_at(row, "tok_s");
		cr_expect(step_bytes > 50000 && step_bytes < real_at(row, "model_size") + 100000,
			"%s: %g bytes", names[i], step_bytes);
	}
	json_decref(rows);
	release(&r);
}

static size_t n_lines(const char *text)
{
	size_t n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}

Test(command_bench, forms)
{
	struct result r = run(BENCH, "-p", "4", "-n", "2", "-r", "1");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_eq(n_lines(r.out), 8, "a verdict, the table, what to do next: %s", r.out);
	cr_expect(strstr(r.out, " on cpu: prompts at ") < strstr(r.out, " tok/s (pp4, "), "%s",
		r.out);
	cr_expect(strstr(r.out, ", text at ") < strchr(r.out, '\n'), "%s", r.out);
	cr_expect(strstr(r.out, "\n\nnext: lapilli "), "%s", r.out);
	cr_expect(strstr(r.out, "| pp4 |") && strstr(r.out, "| tg2 |"), "%s", r.out);
	cr_expect(strstr(r.err, "memory bandwidth: "), "%s", r.err);
	release(&r);
	r = run(BENCH, "-p", "4", "-n", "2", "-r", "1", "-o", "csv");
	cr_expect_eq(n_lines(r.out), 3, "%s", r.out);
	cr_expect(strstr(r.out, "test,") == r.out && strstr(r.out, "\n\"pp4\","), "%s", r.out);
	release(&r);
	r = run(BENCH, "-p", "4", "-n", "0", "-r", "2", "-o", "jsonl");
	json_t *row = parse_json(&r);
	cr_expect_str_eq(json_string_value(json_object_get(row, "test")), "pp4");
	json_decref(row);
	release(&r);
}

Test(command_bench, a_kernel_alone)
{
	struct result r = run("bench", "--kernel", "matvec", "--format", "q8_0", "--shape",
		"96x2x64", "--shape", "40X1x32", "--json", CPU);
	json_t *rows = parse_json(&r);
	cr_assert_eq(json_array_size(rows), 2);
	cr_expect_str_eq(name_at(rows, 0), "matvec Q8_0 96x2x64");
	const json_t *row = json_array_get(rows, 0);
	cr_expect_float_eq(
		real_at(row, "gflop_s") * real_at(row, "us"), 1e-3 * 2 * 96 * 2 * 64, 1e-4);
	cr_expect_float_eq(real_at(row, "gb_s") * real_at(row, "us"),
		1e-3 * (96 * 68 + 2 * (96 + 64) * 4), 1e-4);
	cr_expect_gt(real_at(row, "pct_bandwidth"), 0);
	cr_expect_eq(real_at(row, "checked_outputs"), 96);
	json_decref(rows);
	release(&r);
	r = run("bench", "--kernel", "glu", "--shape", "64x3", CPU);
	cr_expect_eq(n_lines(r.out), 7, "%s", r.out);
	cr_expect(strstr(r.out, "cpu computes glu right") == r.out, "%s", r.out);
	cr_expect(strstr(r.out, "| glu |  | 64x3 | "), "%s", r.out);
	release(&r);
}

/* The reference takes times, too; what it computed, a multiple of what it took. */
Test(command_bench, profile)
{
	struct result r = run(BENCH, "--profile", "-p", "8", "-n", "4", "-np", "2", "--json");
	json_t *rows = parse_json(&r);
	double share[2] = {0}, n_ops = 0;
	bool matvec = false, matmul = false;
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);
		const char *kernel = json_string_value(json_object_get(row, "kernel"));
		const char *part = json_string_value(json_object_get(row, "part"));
		const bool decode = strcmp(name_at(rows, i), "tg4 np2") == 0;
		share[decode] += real_at(row, "share");
		matvec |=
			decode && !strcmp(kernel, "matvec") && !strcmp(part, "attn_output.weight");
		matmul |= !decode && !strcmp(kernel, "matmul") && !strcmp(part, "ffn_down.weight");
		cr_expect_gt(real_at(row, "gb_s"), 0, "%s", kernel);
		cr_expect_eq(real_at(row, "gflop_s") > 0,
			!strncmp(kernel, "mat", 3) || !strcmp(kernel, "attn_decode") ||
				!strcmp(kernel, "attn_prefill"),
			"%s", kernel);
		if (!strcmp(part, "attn_output.weight"))
			n_ops = real_at(row, "ops");
	}
	cr_expect(matvec && matmul, "%s", r.out);
	cr_expect_gt(n_ops, 1, "of every layer");
	cr_expect_float_eq(share[0], 100, 1e-3);
	cr_expect_float_eq(share[1], 100, 1e-3);
	json_decref(rows);
	release(&r);
	r = run(BENCH, "--profile", "-p", "8", "-n", "0");
	const char *verdict = strstr(r.out, "pp8: a prefill step of 8 rows takes ");
	cr_expect(verdict && verdict < strstr(r.out, "| test | kernel |"), "%s", r.out);
	cr_expect(strstr(r.out, "% of it ") && strstr(r.out, "\nnext: lapilli bench --kernel"),
		"%s", r.out);
	release(&r);
}

/* A gate has rows of weights of its own, no outputs. */
Test(command_bench, work_of_a_gate)
{
	const struct step_header step = {.n_rows = 2};
	struct op op = {
		.kernel = KERNEL_matvec, .args.matmul = {.n_out = 96, .n_in = 64, .row_bytes = 68}};
	const struct work plain = op_work(&op, &step);
	cr_expect_float_eq(plain.bytes, 96 * 68 + 2 * (96 + 64) * 4, 0.5);
	op.constant = 1u << GATED_SHIFT;
	const struct work gated = op_work(&op, &step);
	cr_expect_float_eq(gated.flops, 2 * plain.flops, 0.5);
	cr_expect_float_eq(gated.bytes, plain.bytes + 96 * 68, 0.5);
}

/* A program of the build or a script of the tree; returns its exit status. */
static int run_tool(const char *path, const char *const *words, const char *out)
{
	const char *argv[16] = {path};
	for (size_t i = 0; words[i]; i++)
		argv[i + 1] = words[i];
	const int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	cr_assert_geq(fd, 0);
	const int status = finish(start(argv, fd, fd, fd));
	close(fd);
	return status;
}

static const char *built(const char *name)
{
	static char path[512];
	const char *command = getenv("LAPILLI_COMMAND");
	cr_assert(command);
	snprintf(path, sizeof path, "%.*s%s", (int)(strrchr(command, '/') + 1 - command), command,
		name);
	return path;
}

Test(command_bench, random_models)
{
	const char *model = scratch("random.gguf"), *out = scratch("out");
	const char *words[] = {"small", "Q4_K", model, NULL};
	cr_assert_eq(run_tool(built("random-model"), words, out), 0);
	struct result r = run("bench", "-m", model, CPU, "-p", "3", "-n", "2", "-r", "1", "--json");
	json_t *rows = parse_json(&r);
	const double layer = 2 * 256 + 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512;
	cr_expect_eq(
		real_at(json_array_get(rows, 0), "model_n_params"), 512 * 256 + 256 + 2 * layer);
	json_decref(rows);
	release(&r);
	words[1] = "Q9_9";
	cr_expect_eq(run_tool(built("random-model"), words, out), 2);
}

/* Slower than what stands in the file, not slower, and a file of another device. */
Test(command_bench, gate)
{
	static const struct {
		const char *row, *words;
		int status;
	} cases[] = {
		{"cpu matvec F16 64x1x64 pct_arithmetic 0.01", "1 measured, 0 slower", 0},
		{"cpu matvec F16 64x1x64 pct_arithmetic 1e6", "SLOWER", 1},
		{"other glu - 64x1 pct_bandwidth 1", "no ratio of cpu is known", 1},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		char row[128];
		snprintf(row, sizeof row, "# ratios\n%s\n", cases[i].row);
		const char *file = write_scratch("gate.txt", row, strlen(row)),
			   *out = scratch("out");
		const char *words[] = {
			"-f", file, "-n", "1", "-d", "cpu", getenv("LAPILLI_COMMAND"), NULL};
		cr_expect_eq(
			run_tool(source_path("tools/bench-gate"), words, out), cases[i].status);
		char *text = read_text(out, NULL);
		cr_expect(strstr(text, cases[i].words), "%s: %s", cases[i].row, text);
		free(text);
	}
}

Test(command_bench, mistakes)
{
	expect_failure(run("bench", "--kernel", "x", CPU), 2, "expected one of: embed");
	expect_failure(run("bench", "--kernel", "matvec", CPU), 2, "outputs x rows x inputs");
	expect_failure(run("bench", "--kernel", "matvec", "--shape", "4x", CPU), 2, "found \"4x\"");
	expect_failure(run("bench", "--kernel", "glu", "--format", "f16", CPU), 2, "has no format");
	expect_failure(
		run("bench", "--kernel", "matvec", "--format", "q9", CPU), 2, "no such format");
	expect_failure(run(BENCH, "--shape", "4x4"), 2, "bench --kernel");
	expect_failure(run(BENCH, "-p", "x"), 2, "-p: found \"x\"");
	expect_failure(run(BENCH, "-n", "4,"), 2, "-n: found \"4,\"");
	expect_failure(run(BENCH, "-np", "33"), 2, "from 1 to 32");
	expect_failure(run(BENCH, "-np", "0"), 2, "from 1 to 32");
	expect_failure(run(BENCH, "-pg", "4"), 2, "expected P,N");
	expect_failure(run(BENCH, "-pg", "4,2,1"), 2, "expected P,N");
	expect_failure(run(BENCH, "-d", "-1"), 2, "-d: found");
	expect_failure(run(BENCH, "-f", "x"), 2, "bench --tokenize");
	expect_failure(run(BENCH, "--temp", "1"), 2, "is no option of bench");
}
