/* check_tensors: weights that are NaN or infinite are found before anything is computed, in every format,
 * and named with tensor, place and number. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gguf_builder.h"
#include "lapilli.h"
#include "support.h"
#include "weight.h"

static struct builder b; /* too large for the stack */

/* ---- blocks ------------------------------------------------------------------------------------ */

/* Of four blocks the third, all ones, has scales that are NaN; 2^128 is MXFP4's largest. */
Test(check_tensors, every_format)
{
	for (unsigned w = 0; w < N_WEIGHTS; w++) {
		const struct weight_format *f = weight_format((enum weight)w);
		uint8_t *blocks = calloc(4, f->block_bytes);
		uint64_t first = 77;
		float value = 0;
		cr_assert(blocks);
		cr_expect_eq(weight_not_finite((enum weight)w, blocks, 4ull * f->block_weights,
				     &first, &value),
			0, "%s", f->name);
		cr_expect(first == 77 && value == 0);
		memset(blocks + 2ull * f->block_bytes, 0xFF, f->block_bytes);
		cr_expect_eq(weight_not_finite((enum weight)w, blocks, 4ull * f->block_weights,
				     &first, &value),
			f->block_weights, "%s", f->name);
		cr_expect_eq(first, 2 * f->block_weights, "%s: %llu", f->name,
			(unsigned long long)first);
		cr_expect_not(isfinite(value), "%s", f->name);
		free(blocks);
	}
}

/* Infinities of either sign and NaNs of either kind, far from the start; neighbours that are numbers. */
Test(check_tensors, values)
{
	static const uint32_t bad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF};
	static const uint32_t good[] = {0x7F7FFFFF, 0xFF7FFFFF, 0x00000001, 0x80000000, 0x3F800000};
	enum { N = 10000 };
	static uint8_t values[4 * N];
	uint64_t first;
	float value;
	for (size_t i = 0; i < ARRAY_COUNT(good); i++)
		memcpy(values + 4 * (9000 + i), &good[i], 4);
	cr_expect_eq(weight_not_finite(WEIGHT_f32, values, N, &first, &value), 0);
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
		memcpy(values + 4 * (7000 - 700 * i), &bad[i], 4);
		cr_expect_eq(weight_not_finite(WEIGHT_f32, values, N, &first, &value), i + 1);
		cr_expect_eq(first, 7000 - 700 * i);
		cr_expect_eq(isinf(value) != 0, i < 2);
	}
	cr_expect_eq(weight_not_finite(WEIGHT_f32, values, 4200, &first, &value), 0);
}

/* ---- files ------------------------------------------------------------------------------------- */

/* Replaces a matrix of the small model by one of another format, of blocks of zeros. */
static struct builder_tensor *retype(const char *name, enum weight weight)
{
	const struct weight_format *f = weight_format(weight);
	struct builder_tensor *t = builder_get_tensor(&b, name);
	t->type = f->gguf_type;
	text_free(&t->data);
	for (uint64_t i = 0; i < t->dims[0] * t->dims[1] / f->block_weights * f->block_bytes; i++)
		builder_bytes(&t->data, "", 1);
	return t;
}

static enum lap_status open_built(struct lap_model_options options, struct lap_error *err)
{
	struct text file = builder_file(&b);
	struct lap_model *m;
	options.device = "cpu";
	*err = (struct lap_error){0};
	enum lap_status status =
		lap_model_open_memory(file.data, file.n, "x.gguf", &options, &m, err);
	lap_model_close(m);
	text_free(&file);
	return status;
}

/* Opened without the check, refused with it, however much of the model is wanted. */
static void expect_found(const char *words)
{
	struct lap_error err;
	cr_expect_eq(open_built((struct lap_model_options){0}, &err), LAP_OK, "%s", err.text);
	for (int i = 0; i < 3; i++) {
		struct lap_model_options options = {
			.check_tensors = true, .no_weights = i == 1, .vocab_only = i == 2};
		cr_expect_eq(open_built(options, &err), LAP_BAD_MODEL);
		cr_expect(strstr(err.text, words), "\"%s\" is not in: %s", words, err.text);
		cr_expect_eq(strncmp(err.text, "x.gguf: ", 8), 0, "%s", err.text);
	}
}

Test(check_tensors, sound_model)
{
	struct lap_error err;
	builder_tiny_llama(&b);
	retype("blk.0.ffn_up.weight", WEIGHT_q8_0);
	cr_expect_eq(open_built((struct lap_model_options){.check_tensors = true}, &err), LAP_OK,
		"%s", err.text);
	builder_free(&b);
}

Test(check_tensors, f32)
{
	static const float minus = -INFINITY, nan = NAN;
	builder_tiny_llama(&b);
	struct builder_tensor *t = builder_get_tensor(&b, "blk.1.ffn_gate.weight");
	memcpy(t->data.data + 4 * (5 * 32 + 7), &minus, 4);
	memcpy(t->data.data + 4 * (6 * 32), &nan, 4);
	expect_found("blk.1.ffn_gate.weight (F32) has 2 weights that are NaN or infinite, expected "
		     "none; the first, -inf, is in row 5, column 7; 1 of 21 tensors");
	/* The first tensor in the file's order is named. */
	memcpy(builder_get_tensor(&b, "output_norm.weight")->data.data + 4 * 31, &nan, 4);
	expect_found("output_norm.weight (F32) has 1 weights");
	expect_found("in row 0, column 31; 2 of 21 tensors");
	builder_free(&b);
}

Test(check_tensors, f16)
{
	builder_tiny_llama(&b);
	struct builder_tensor *t = retype("blk.0.attn_k.weight", WEIGHT_f16);
	memcpy(t->data.data + 2 * (15 * 32 + 31), "\x00\x7C", 2);
	expect_found(
		"blk.0.attn_k.weight (F16) has 1 weights that are NaN or infinite, expected none; "
		"the first, inf, is in row 15, column 31; 1 of 21 tensors");
	builder_free(&b);
}

/* The weight 8 of a block stands for 0: times an infinite scale it is NaN. */
Test(check_tensors, scale_of_q4_0)
{
	builder_tiny_llama(&b);
	struct builder_tensor *t = retype("blk.1.ffn_down.weight", WEIGHT_q4_0);
	uint8_t *block = (uint8_t *)t->data.data + 18 * (9 * 2 + 1); /* row 9, second half */
	memcpy(block, "\x01\x7E", 2);
	expect_found("blk.1.ffn_down.weight (Q4_0) has 32 weights");
	expect_found("nan, is in row 9, column 32; 1 of 21 tensors");
	memcpy(block, "\x00\x7C", 2);
	memset(block + 2, 0x88, 16);
	expect_found("has 32 weights");
	memset(block + 2, 0x98, 16);
	expect_found("has 32 weights");
	builder_free(&b);
}

/* ---- progress ---------------------------------------------------------------------------------- */

struct seen {
	double last;
	unsigned n, stop_at;
};

static bool on_progress(void *user, double fraction)
{
	struct seen *s = user;
	cr_expect(fraction > s->last && fraction <= 1, "%g behind %g", fraction, s->last);
	s->last = fraction;
	return ++s->n != s->stop_at;
}

Test(check_tensors, progress)
{
	struct lap_error err;
	builder_tiny_llama(&b);
	for (unsigned no_weights = 0; no_weights < 2; no_weights++) {
		struct seen s = {0};
		struct lap_model_options options = {.check_tensors = true,
			.no_weights = no_weights,
			.progress = on_progress,
			.user = &s};
		cr_expect_eq(open_built(options, &err), LAP_OK, "%s", err.text);
		cr_expect_eq(s.last, 1);
		cr_expect_eq(s.n, no_weights ? 21 : 42);
		s = (struct seen){.stop_at = 3};
		cr_expect_eq(open_built(options, &err), LAP_ERROR);
		cr_expect(strstr(err.text, "stopped"), "%s", err.text);
		cr_expect_eq(s.n, 3);
	}
	builder_free(&b);
}

/* ---- the command ------------------------------------------------------------------------------- */

/* Exit status of the command with the arguments; what it says on standard error in *err. */
static int run(const char *const *argv, char **err)
{
	const char *path = scratch_path("check-tensors-err");
	fflush(NULL);
	pid_t pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		int null = open("/dev/null", O_RDWR);
		if (file < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
			dup2(file, 2) < 0)
			_exit(99);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(99);
	}
	int status;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	*err = read_text(path, NULL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Test(check_tensors, commands)
{
	const char *program = getenv("LAPILLI_COMMAND");
	cr_assert(program, "LAPILLI_COMMAND does not name the command; ctest sets it");
	static const float nan = NAN;
	builder_tiny_llama(&b);
	memcpy(builder_get_tensor(&b, "blk.0.attn_q.weight")->data.data, &nan, 4);
	struct text file = builder_file(&b);
	struct lap_error error;
	const char *path = scratch_path("nan.gguf");
	cr_assert_eq(file_write(path, file.data, file.n, &error), LAP_OK, "%s", error.text);
	const char *const commands[][12] = {
		{program, "generate", "-m", path, "--check-tensors", "-p", "a", "-n", "1", NULL},
		{program, "info", "-m", path, "--check-tensors", NULL},
		{program, "logits", "-m", path, "--check-tensors", "--tokens", "1,2", "-o", "-",
			NULL},
		{program, "validate", "-m", path, "--check-tensors", NULL},
	};
	char *err;
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++) {
		cr_expect_eq(run(commands[i], &err), LAP_BAD_MODEL, "%s: %s", commands[i][1], err);
		cr_expect(strstr(err, "blk.0.attn_q.weight (F32) has 1 weights"), "%s", err);
		free(err);
	}
	const char *const unasked[] = {program, "info", "-m", path, "-dev", "cpu", NULL};
	cr_expect_eq(run(unasked, &err), LAP_OK, "%s", err);
	free(err);
	const char *const no_model[] = {program, "validate", "--check-tensors", NULL};
	cr_expect_eq(run(no_model, &err), LAP_USAGE, "%s", err);
	free(err);
	text_free(&file);
	builder_free(&b);
}
