/* The reference kernels against arithmetic written once more, here, in long double and without any of
 * their structure: whole rows decoded at once, softmax in two passes, rotation as a complex product. */
#include "backend.h"
#include "check_side.h"
#include "cpu/kernels.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct backend *cpu;
static uint64_t state;

static void setup(void)
{
	struct lap_error err;
	state = 42;
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
}

static void teardown(void)
{
	cpu->ops->close(cpu);
}

TestSuite(cpu_kernels, .init = setup, .fini = teardown);

/* ---- operands ---------------------------------------------------------------------------------- */

static uint32_t random_u32(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 32);
}

/* -1 to 1 */
static float random_float(void)
{
	return (float)((double)random_u32() / 0x80000000u - 1);
}

/* A buffer of n_bytes with a guard behind it; release_views checks the guard. */
static struct view make_view(uint64_t n_bytes, void *bytes_of)
{
	struct lap_error err;
	struct view v = {.n_bytes = n_bytes};
	cr_assert_eq(cpu->ops->buffer_create(
			     cpu, n_bytes + 256, MEMORY_DEVICE, "a test", &v.buffer, &err),
		LAP_OK);
	uint8_t *data = cpu->ops->buffer_map(v.buffer);
	memset(data, PATTERN, n_bytes + 256);
	memcpy(bytes_of, &data, sizeof data);
	return v;
}

static void release_view(struct view v)
{
	const uint8_t *data = cpu->ops->buffer_map(v.buffer);
	for (unsigned i = 0; i < 256; i++)
		cr_assert_eq(data[v.n_bytes + i], PATTERN, "byte %u behind an operand", i);
	cpu->ops->buffer_destroy(cpu, v.buffer);
}

static void release_op(struct op *op)
{
	for (uint32_t i = 0; i < kernel_info(op->kernel)->n_buffers; i++)
		if (op->buffers[i].buffer)
			release_view(op->buffers[i]);
}

static float *make_floats(struct view *v, size_t n)
{
	float *data;
	*v = make_view(n * sizeof(float), &data);
	for (size_t i = 0; i < n; i++)
		data[i] = random_float();
	return data;
}

static float *make_output(struct view *v, size_t n)
{
	float *data;
	*v = make_view(n * sizeof(float), &data);
	return data;
}

static bool untouched(float f)
{
	uint32_t bits, pattern;
	memcpy(&bits, &f, sizeof bits);
	memset(&pattern, PATTERN, sizeof pattern);
	return bits == pattern;
}

struct step {
	struct step_header header;
	struct step_row rows[80];
};

/* Random blocks of any format, as the checks of kernels take them. */
static void make_blocks(enum weight weight, uint8_t *bytes, size_t n_bytes)
{
	struct side side = {.random = random_u32()};
	random_blocks(&side, weight, bytes, n_bytes);
}

static void expect_near(float found, long double expected, long double scale, const char *what)
{
	cr_assert(fabsl((long double)found - expected) <= 1e-6L * scale, "%s: %.9g, expected %.9Lg",
		what, (double)found, expected);
}

/* ---- embed and matmul -------------------------------------------------------------------------- */

static void test_matmul(enum weight weight, uint32_t n_out, uint32_t n_in, uint32_t n_rows,
	bool bias, bool residual)
{
	const struct weight_format *f = weight_format(weight);
	struct step step = {.header = {.n_rows = n_rows, .n_kv = 1}};
	n_in = (n_in + f->block_weights - 1) / f->block_weights * f->block_weights;
	uint64_t row_bytes;
	cr_assert(weight_row_bytes(weight, n_in, &row_bytes));
	uint32_t stride_x = ROW_STRIDE(n_in), stride_out = ROW_STRIDE(n_out);
	struct op op = {
		.kernel = n_rows % 2 ? KERNEL_matvec : KERNEL_matmul,
		.weight = weight,
		.n_outputs = n_out,
		.args.matmul =
			{
				.n_out = n_out,
				.n_in = n_in,
				.row_bytes = (uint32_t)row_bytes,
				.n_rows = n_rows,
				.stride_out = stride_out,
				.stride_x = stride_x,
				.stride_residual = stride_out,
				.has_bias = bias,
				.has_residual = residual,
				.scale = bias ? 0.75f : 1,
				.softcap = bias && residual ? 1.5f : 0,
			},
	};
	uint8_t *weights;
	float *out = make_output(&op.buffers[0], (size_t)n_rows * stride_out);
	op.buffers[1] = make_view(n_out * row_bytes, &weights);
	make_blocks(weight, weights, n_out * row_bytes);
	const float *x = make_floats(&op.buffers[2], (size_t)n_rows * stride_x);
	const float *b = make_floats(&op.buffers[3], n_out);
	const float *r = make_floats(&op.buffers[4], (size_t)n_rows * stride_out);
	cpu_kernels[op.kernel](&op, &step.header);

	float *w = malloc(n_in * sizeof *w);
	for (uint32_t o = 0; o < n_out; o++) {
		f->decode(weights + o * row_bytes, n_in, w);
		for (uint32_t t = 0; t < n_rows; t++) {
			long double sum = 0, scale = 1;
			for (uint32_t i = 0; i < n_in; i++) {
				long double product = (long double)w[i] * x[t * stride_x + i];
				sum += product;
				scale += fabsl(product);
			}
			if (bias)
				sum += b[o];
			if (bias)
				sum *= 0.75L;
			if (residual)
				sum += r[t * stride_out + o];
			if (bias && residual)
				sum = 1.5L * tanhl(sum / 1.5L);
			expect_near(out[t * stride_out + o], sum, scale, f->name);
		}
	}
	for (uint32_t t = 0; t < n_rows; t++)
		for (uint32_t o = n_out; o < stride_out; o++)
			cr_assert(untouched(out[t * stride_out + o]));
	free(w);
	release_op(&op);
}

Test(cpu_kernels, matmul)
{
	for (unsigned w = 0; w < N_WEIGHTS; w++) {
		test_matmul((enum weight)w, 1, 1, 1, false, false);
		test_matmul((enum weight)w, 3, 31, 2, true, false);
		test_matmul((enum weight)w, 7, 172, 3, false, true);
		test_matmul((enum weight)w, 65, 257, 5, true, true);
		test_matmul((enum weight)w, 5, 513, 70, true, true);
	}
}

/* The largest of 32 becomes 127 or -127, the others the nearest whole number; sums of 16 stand behind. */
Test(cpu_kernels, quantize_x)
{
	struct step step = {.header = {.n_rows = 2, .n_kv = 1}};
	struct op op = {.kernel = KERNEL_quantize_x, .args.quantize_x = {64, 2 * Q8_WORDS, 64}};
	uint8_t *bytes;
	op.buffers[0] = make_view(2 * 2 * Q8_WORDS * sizeof(uint32_t), &bytes);
	float *x = make_floats(&op.buffers[1], 2 * 64);
	memset(x, 0, 32 * sizeof *x);
	x[32] = -254;
	x[33] = 3; /* 1.5 steps: to even */
	x[34] = 5; /* 2.5 */
	x[63] = NAN;
	for (uint32_t i = 0; i < 32; i++)
		x[64 + i] = (float)i - 10;
	cpu_kernels[op.kernel](&op, &step.header);
	const uint32_t *words = (const uint32_t *)(const void *)bytes;
	for (uint32_t i = 0; i < Q8_WORDS; i++)
		cr_expect_eq(words[i], 0, "zeros");
	float f[Q8_WORDS];
	memcpy(f, words + Q8_WORDS, sizeof f);
	cr_expect(isnan(f[0]), "one NaN is not lost");
	cr_expect_eq(words[Q8_WORDS + 1] & 0xFFFFFF, 0x020281);
	memcpy(f, words + 2 * Q8_WORDS, sizeof f);
	cr_expect_eq(f[0], 21.0f / 127);
	const int8_t *q = (const int8_t *)(words + 2 * Q8_WORDS + 1);
	float sums[2] = {0};
	for (uint32_t i = 0; i < 32; i++) {
		cr_expect_eq(q[i], (int)rintf(((float)i - 10) * 127 / 21), "element %u", i);
		sums[i / 16] += q[i];
	}
	cr_expect_eq(f[9], sums[0]);
	cr_expect_eq(f[10], sums[1]);
	release_op(&op);
}

/* A Q8_0 block times a unit of x: integers, and two scales. */
Test(cpu_kernels, product_of_whole_numbers)
{
	struct step step = {.header = {.n_rows = 1, .n_kv = 1}};
	struct op op = {.kernel = KERNEL_matvec_q8,
		.weight = WEIGHT_q8_0,
		.n_outputs = 1,
		.args.matvec_q8 = {.n_out = 1,
			.n_in = 32,
			.row_bytes = 34,
			.n_rows = 1,
			.stride_out = 1,
			.stride_x = Q8_WORDS,
			.scale = 1}};
	uint8_t *block, *unit;
	float *out = make_output(&op.buffers[0], 1);
	op.buffers[1] = make_view(34, &block);
	op.buffers[2] = make_view(Q8_WORDS * sizeof(uint32_t), &unit);
	const uint16_t half = float_to_half(0.25f);
	const float d = 0.5f;
	int sum = 0;
	memcpy(block, &half, sizeof half);
	memcpy(unit, &d, sizeof d);
	for (int i = 0; i < 32; i++) {
		const int w = i * 8 - 128, q = 127 - i * i % 255;
		block[2 + i] = (uint8_t)w;
		unit[4 + i] = (uint8_t)q;
		sum += w * q;
	}
	cpu_kernels[op.kernel](&op, &step.header);
	cr_expect_eq(*out, 0.125f * (float)sum);
	release_op(&op);
}

static void test_embed(enum weight weight, uint32_t n_embd, bool by_pos, bool residual)
{
	const struct weight_format *f = weight_format(weight);
	struct step step = {.header = {.n_rows = 4, .n_kv = 1}};
	static const uint32_t tokens[] = {12, 10, 9, 13}; /* the chunk holds 10, 11 and 12 */
	for (unsigned i = 0; i < 4; i++)
		*(by_pos ? &step.rows[i].pos : &step.rows[i].token) = tokens[i];
	n_embd = (n_embd + f->block_weights - 1) / f->block_weights * f->block_weights;
	uint64_t row_bytes;
	cr_assert(weight_row_bytes(weight, n_embd, &row_bytes));
	uint32_t stride = ROW_STRIDE(n_embd);
	struct op op = {
		.kernel = KERNEL_embed,
		.weight = weight,
		.n_outputs = 1,
		.args.embed =
			{
				.n_embd = n_embd,
				.stride = stride,
				.first_row = 10,
				.n_weight_rows = 3,
				.row_bytes = (uint32_t)row_bytes,
				.by_pos = by_pos,
				.has_residual = residual,
				.stride_residual = stride,
				.scale = residual ? 1.75f : 1,
			},
	};
	uint8_t *weights;
	float *out = make_output(&op.buffers[0], (size_t)4 * stride);
	op.buffers[1] = make_view(3 * row_bytes, &weights);
	make_blocks(weight, weights, 3 * row_bytes);
	const float *add = make_floats(&op.buffers[3], (size_t)4 * stride);
	cpu_embed(&op, &step.header);
	float *expected = malloc(n_embd * sizeof *expected);
	for (unsigned t = 0; t < 4; t++) {
		bool inside = tokens[t] >= 10 && tokens[t] < 13;
		if (inside)
			f->decode(weights + (tokens[t] - 10) * row_bytes, n_embd, expected);
		for (uint32_t i = 0; i < stride; i++)
			if (inside && i < n_embd && residual)
				expect_near(out[t * stride + i],
					1.75L * expected[i] + add[t * stride + i],
					1 + fabsl((long double)expected[i]), f->name);
			else if (inside && i < n_embd)
				cr_assert_eq(out[t * stride + i], expected[i], "%s", f->name);
			else
				cr_assert(untouched(out[t * stride + i]), "%s", f->name);
	}
	free(expected);
	release_op(&op);
}

Test(cpu_kernels, embed)
{
	for (unsigned w = 0; w < N_WEIGHTS; w++) {
		test_embed((enum weight)w, 1, false, false);
		test_embed((enum weight)w, 101, true, false);
		test_embed((enum weight)w, 512, false, true);
	}
}

/* ---- element-wise ------------------------------------------------------------------------------ */

static void test_norm(
	bool centred, uint32_t n, uint32_t n_segments, bool bias, bool residual, bool is_gated)
{
	uint32_t width = n * n_segments, stride = ROW_STRIDE(width), n_rows = 3;
	struct step step = {.header = {.n_rows = n_rows, .n_kv = 1}};
	struct op op = {
		.kernel = centred ? KERNEL_layernorm : KERNEL_rmsnorm,
		.args.rmsnorm =
			{
				.n = n,
				.n_segments = n_segments,
				.stride_out = stride,
				.stride_x = stride,
				.stride_residual = stride,
				.has_bias = bias,
				.has_residual = residual,
				.is_gated = is_gated,
				.eps = 1e-5f,
				.scale = 1,
			},
	};
	float *out = make_output(&op.buffers[0], (size_t)n_rows * stride);
	const float *x = make_floats(&op.buffers[1], (size_t)n_rows * stride);
	const float *w = make_floats(&op.buffers[2], n), *b = make_floats(&op.buffers[3], n);
	const float *r = make_floats(&op.buffers[4], (size_t)n_rows * stride);
	cpu_kernels[op.kernel](&op, &step.header);
	for (uint32_t i = 0; i < n_rows * stride; i++) {
		uint32_t column = i % stride, first = i - column + column / n * n;
		if (column >= width) {
			cr_assert(untouched(out[i]));
			continue;
		}
		long double mean = 0, variance = 0;
		for (uint32_t j = first; j < first + n && centred; j++)
			mean += (long double)x[j] / n;
		for (uint32_t j = first; j < first + n; j++)
			variance += (x[j] - mean) * (x[j] - mean) / n;
		long double y = (x[i] - mean) / sqrtl(variance + 1e-5f) * w[column % n];
		y += bias ? b[column % n] : 0;
		if (is_gated)
			y *= r[i] / (1 + expl(-(long double)r[i]));
		else
			y += residual ? r[i] : 0;
		expect_near(out[i], y, 1, centred ? "layernorm" : "rmsnorm");
	}
	release_op(&op);
}

Test(cpu_kernels, norm)
{
	static const uint32_t sizes[] = {1, 2, 63, 64, 101};
	for (unsigned s = 0; s < ARRAY_COUNT(sizes); s++)
		for (unsigned centred = 0; centred < 2; centred++) {
			test_norm(centred, sizes[s], 1, false, false, false);
			test_norm(centred, sizes[s], 3, true, false, false);
			test_norm(centred, sizes[s], 2, s % 2, true, false);
			test_norm(centred, sizes[s], 2, false, true, true);
		}
}

/* The formulas as args.h has them. */
static long double activation(uint32_t which, long double x)
{
	const long double pi = 3.14159265358979323846L;
	if (which == ACTIVATION_GELU)
		return x / 2 * (1 + tanhl(sqrtl(2 / pi) * (x + 0.044715L * x * x * x)));
	if (which == ACTIVATION_SWIGLU)
		return fminl(x, 7) / (1 + expl(-1.702L * fminl(x, 7)));
	return x / (1 + expl(-x));
}

static void test_glu(uint32_t which, bool gated, uint32_t n_used)
{
	enum { N = 70, STRIDE = 128 };
	struct step step = {.header = {.n_rows = 2, .n_kv = 1}};
	struct op op = {.kernel = KERNEL_glu,
		.factor = n_used,
		.constant = which | (gated ? GLU_GATED : 0),
		.args.glu = {.n = N,
			.stride = STRIDE,
			.stride_gate = STRIDE,
			.stride_up = STRIDE,
			.segment = N,
			.gate_segment = N}};
	uint32_t n = 2 * n_used * STRIDE;
	float *out = make_output(&op.buffers[0], n);
	float *gate = make_floats(&op.buffers[1], n), *up = make_floats(&op.buffers[2], n);
	static const float extremes[] = {
		0, -20, 20, -1e4f, 1e4f, -1e30f, 1e30f, -88.8f, 6.9f, 7.1f, -6.9f, -7.1f};
	for (uint32_t i = 0; i < ARRAY_COUNT(extremes); i++) {
		(gated ? gate : up)[i] = gate[STRIDE + i] = extremes[i];
		if (gated)
			up[STRIDE + i] = extremes[i];
	}
	cpu_glu(&op, &step.header);
	for (uint32_t at = 0; at < n; at++) {
		if (at % STRIDE >= N) {
			cr_assert(untouched(out[at]));
			continue;
		}
		long double u = up[at], y = activation(which, gated ? (long double)gate[at] : u);
		if (gated)
			y *= which == ACTIVATION_SWIGLU ? fmaxl(-7, fminl(7, u)) + 1 : u;
		if (fabsl(y) > 3e38L)
			cr_assert(isinf(out[at]));
		else
			expect_near(out[at], y, 1 + fabsl(y), "glu");
	}
	release_op(&op);
}

/* A head's gate behind its query. */
Test(cpu_kernels, gates_of_heads)
{
	enum { DIM = 6, HEADS = 3, ROWS = 2, STRIDE = 64 };
	struct step step = {.header = {.n_rows = ROWS, .n_kv = 1}};
	struct op op = {.kernel = KERNEL_glu,
		.factor = 1,
		.constant = ACTIVATION_SIGMOID | GLU_GATED,
		.args.glu = {.n = HEADS * DIM,
			.stride = STRIDE,
			.stride_gate = 2 * STRIDE,
			.stride_up = STRIDE,
			.segment = DIM,
			.gate_segment = 2 * DIM,
			.gate_first = DIM}};
	const float *out = make_output(&op.buffers[0], ROWS * STRIDE);
	float *qkv = make_floats(&op.buffers[1], ROWS * 2 * STRIDE);
	const float *x = make_floats(&op.buffers[2], ROWS * STRIDE);
	qkv[DIM] = 1e30f;
	qkv[DIM + 1] = -1e30f;
	cpu_glu(&op, &step.header);
	for (uint32_t row = 0; row < ROWS; row++)
		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t i = 0; i < DIM; i++) {
				const uint32_t gate = row * 2 * STRIDE + (2 * h + 1) * DIM + i;
				const uint32_t at = row * STRIDE + h * DIM + i;
				const long double factor = 1 / (1 + expl(-(long double)qkv[gate]));
				expect_near(out[at], x[at] * factor, 1, "a gate");
			}
	cr_expect(untouched(out[HEADS * DIM]));
	release_op(&op);
}

Test(cpu_kernels, glu)
{
	for (uint32_t which = ACTIVATION_SILU; which <= ACTIVATION_SWIGLU; which++) {
		test_glu(which, true, 1);
		test_glu(which, false, 1);
		test_glu(which, true, 3);
	}
}

/* ---- recurrent layers -------------------------------------------------------------------------- */

enum { N_POS = 41, CUT = 18, N_KEPT = N_POS / STATE_BLOCK + 1 };

/* The rows of one sequence from its start on, in steps of CUT; the operands have a row for each. */
static void run_in_steps(
	struct op *op, uint32_t stride_out, uint32_t stride_x, uint32_t stride_gates)
{
	const struct op whole = *op;
	for (uint32_t first = 0; first < N_POS; first += CUT) {
		struct step step = {.header.n_rows = N_POS - first < CUT ? N_POS - first : CUT};
		for (uint32_t i = 0; i < step.header.n_rows; i++)
			step.rows[i].pos = first + i;
		op->buffers[0].offset = (uint64_t)first * stride_out * sizeof(float);
		op->buffers[2].offset = (uint64_t)first * stride_x * sizeof(float);
		if (stride_gates)
			op->buffers[3].offset = (uint64_t)first * stride_gates * sizeof(float);
		for (unsigned i = 0; i < 4; i++)
			op->buffers[i].n_bytes = whole.buffers[i].n_bytes - op->buffers[i].offset;
		cpu_kernels[op->kernel](op, &step.header);
	}
	*op = whole;
}

/* Blocks of a state in reverse order, full of what is no number. */
static void make_state(struct op *op, size_t block_words, uint32_t table_binding)
{
	float *words = make_output(&op->buffers[1], N_KEPT * block_words);
	memset(words, 0xFF, N_KEPT * block_words * sizeof *words);
	uint32_t *table;
	op->buffers[table_binding] = make_view(N_KEPT * sizeof *table, &table);
	for (uint32_t i = 0; i < N_KEPT; i++)
		table[i] = N_KEPT - 1 - i;
}

static void test_conv(uint32_t n_taps, bool is_gated)
{
	const uint32_t n = 20, stride = 64;
	struct op op = {
		.kernel = KERNEL_conv,
		.args.conv =
			{
				.n_channels = n,
				.n_taps = n_taps,
				.stride_out = stride,
				.stride_x = stride,
				.gate_in = is_gated ? n : CONV_NONE,
				.gate_out = is_gated ? 2 * n : CONV_NONE,
				.silu = !is_gated,
				.n_blocks = N_KEPT,
			},
	};
	float *out = make_output(&op.buffers[0], (size_t)N_POS * stride);
	const float *x = make_floats(&op.buffers[2], (size_t)N_POS * stride);
	const float *w = make_floats(&op.buffers[3], (size_t)n * n_taps);
	make_state(&op, CONV_WORDS(n, n_taps), 5);
	run_in_steps(&op, stride, stride, 0);
	for (uint32_t pos = 0; pos < N_POS; pos++)
		for (uint32_t c = 0; c < n; c++) {
			long double y = 0;
			for (uint32_t d = 0; d < n_taps && d <= pos; d++) {
				const float *then = x + (size_t)(pos - d) * stride + c;
				y += (long double)w[c * n_taps + n_taps - 1 - d] * *then *
					(is_gated ? then[n] : 1);
			}
			y *= is_gated ? x[(size_t)pos * stride + 2 * n + c] : 1 / (1 + expl(-y));
			expect_near(out[(size_t)pos * stride + c], y, 1, "conv");
		}
	release_op(&op);
}

Test(cpu_kernels, conv)
{
	for (uint32_t n_taps = 2; n_taps <= MAX_TAPS; n_taps++)
		test_conv(n_taps, n_taps % 2);
}

/* Algorithm of the gated delta rule as published, from the first position on: S = exp(g) S; S += k u^T with
 * u = beta (v - S^T k); out = S^T q. */
static void test_delta(
	enum kernel kernel, uint32_t n_group, uint32_t n_head, uint32_t dk, uint32_t dv)
{
	const uint32_t n_qkv = 2 * n_group * dk + n_head * dv, n_out = n_head * dv;
	struct op op = {
		.kernel = kernel,
		.args.delta_decode =
			{
				.n_group = n_group,
				.n_head = n_head,
				.dk = dk,
				.dv = dv,
				.stride_out = n_out,
				.stride_qkv = n_qkv,
				.stride_gates = 2 * n_head,
				.alpha = n_head,
				.n_blocks = N_KEPT,
				.eps = 1e-6f,
			},
	};
	float *out = make_output(&op.buffers[0], (size_t)N_POS * n_out);
	const float *qkv = make_floats(&op.buffers[2], (size_t)N_POS * n_qkv);
	const float *gates = make_floats(&op.buffers[3], (size_t)N_POS * 2 * n_head);
	float *dt_a = make_floats(&op.buffers[4], (size_t)2 * n_head);
	for (uint32_t h = 0; h < n_head; h++)
		dt_a[n_head + h] = -0.3f - fabsf(dt_a[n_head + h]);
	make_state(&op, DELTA_WORDS(op.args.delta_decode), 6);
	run_in_steps(&op, n_out, n_qkv, 2 * n_head);
	long double *s = calloc((size_t)dk * dv, sizeof *s);
	for (uint32_t h = 0; h < n_head; h++) {
		memset(s, 0, (size_t)dk * dv * sizeof *s);
		for (uint32_t pos = 0; pos < N_POS; pos++) {
			const float *q = qkv + (size_t)pos * n_qkv + h % n_group * dk;
			const float *k = q + (size_t)n_group * dk;
			const float *v = qkv + (size_t)pos * n_qkv + 2 * n_group * dk + h * dv;
			const float *gate = gates + (size_t)pos * 2 * n_head;
			long double beta = 1 / (1 + expl(-(long double)gate[h]));
			long double g = dt_a[n_head + h] *
				log1pl(expl((long double)gate[n_head + h] + dt_a[h]));
			long double kk = 0, qq = 0;
			for (uint32_t i = 0; i < dk; i++) {
				kk += (long double)k[i] * k[i];
				qq += (long double)q[i] * q[i];
			}
			for (uint32_t i = 0; i < dk * dv; i++)
				s[i] *= expl(g);
			for (uint32_t c = 0; c < dv; c++) {
				long double u = v[c], o = 0;
				for (uint32_t i = 0; i < dk; i++)
					u -= s[i * dv + c] * k[i] / sqrtl(kk);
				for (uint32_t i = 0; i < dk; i++) {
					s[i * dv + c] += k[i] / sqrtl(kk) * beta * u;
					o += s[i * dv + c] * q[i] / sqrtl(qq * dk);
				}
				expect_near(out[(size_t)pos * n_out + h * dv + c], o, 1, "delta");
			}
		}
	}
	free(s);
	release_op(&op);
}

Test(cpu_kernels, delta_rule)
{
	test_delta(KERNEL_delta_decode, 1, 1, 4, 4);
	test_delta(KERNEL_delta_prefill, 2, 6, 12, 20);
	test_delta(KERNEL_delta_decode, 3, 3, 36, 8);
}

/* ---- rope and the KV cache --------------------------------------------------------------------- */

static float cached(const void *cache, enum kv_type type, size_t i)
{
	float values[KV_UNIT];
	size_t unit = type == KV_F16 || type == KV_F32 ? 1 : KV_UNIT;
	kv_load(type, cache, i / unit * unit, (uint32_t)unit, values);
	return values[i % unit];
}

/* The largest error of an element of a unit whose largest value is `largest`. */
static long double cell_error(enum kv_type type, long double value, long double largest)
{
	switch (type) {
	case KV_F16: /* half a step is 2^-11 of the value, or 2^-25 */
		return fabsl(value) / 2048 + 3e-8L;
	case KV_F32:
		return 1e-6L;
	case KV_Q8_0:
		return largest / 127 * 0.5001L + 1e-6L;
	case KV_Q4_0: /* the other end of the scale is one step short */
		return largest / 8 * 1.0001L + 1e-6L;
	}
	return 0;
}

static void test_rope(bool neox, uint32_t n_rot, enum kv_type k_type, enum kv_type v_type,
	uint32_t dim, float scale)
{
	enum { HEADS = 3, HEADS_KV = 2, MAX_DIM = 64, BLOCKS = 3, STRIDE_Q = 256, STRIDE = 512 };
	enum { POSITIONS = BLOCKS * KV_BLOCK };
	uint32_t k_at = HEADS * dim + 2, v_at = k_at + HEADS_KV * dim + 4;
	struct step step = {.header = {.n_rows = 3, .n_kv = POSITIONS}};
	static const struct step_row rows[] = {
		{.pos = 0, .seq = 1}, {.pos = 33, .seq = 1}, {.pos = 95, .seq = 0}};
	memcpy(step.rows, rows, sizeof rows);
	struct op op = {
		.kernel = KERNEL_rope_kv,
		.constant =
			dim | (uint32_t)k_type << ATTN_K_SHIFT | (uint32_t)v_type << ATTN_V_SHIFT,
		.args.rope_kv =
			{
				.n_head = HEADS,
				.n_head_kv = HEADS_KV,
				.head_dim = dim,
				.n_rot = n_rot,
				.neox = neox,
				.q_head = dim,
				.stride_q = STRIDE_Q,
				.stride_qkv = STRIDE,
				.k_offset = k_at,
				.v_offset = v_at,
				.n_blocks = BLOCKS,
				.q_scale = scale,
				.q_scale_ctx = 16,
			},
	};
	uint64_t n_cache = (uint64_t)2 * POSITIONS * HEADS_KV * dim;
	uint8_t *k_cache, *v_cache;
	uint32_t *table;
	float *q = make_output(&op.buffers[0], 3 * STRIDE_Q);
	op.buffers[1] = make_view(kv_bytes(k_type, n_cache), &k_cache);
	op.buffers[2] = make_view(kv_bytes(v_type, n_cache), &v_cache);
	const float *qkv = make_floats(&op.buffers[3], 3 * STRIDE);
	const float *turns = make_floats(&op.buffers[4], POSITIONS * (n_rot ? n_rot : 1));
	op.buffers[6] = make_view(2 * BLOCKS * sizeof *table, &table);
	static const uint32_t blocks[2][BLOCKS] = {{4, 0, 3}, {1, 5, 2}};
	memcpy(table, blocks, sizeof blocks);
	cpu_rope_kv(&op, &step.header);

	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t h = 0; h < HEADS + HEADS_KV; h++) {
			bool is_q = h < HEADS;
			const float *x = qkv + t * STRIDE + h * dim;
			const float *v = NULL;
			size_t at = 0;
			if (!is_q) {
				x = qkv + t * STRIDE + k_at + (h - HEADS) * dim;
				v = qkv + t * STRIDE + v_at + (h - HEADS) * dim;
				size_t slot = (size_t)blocks[rows[t].seq][rows[t].pos / 32] * 32 +
					rows[t].pos % 32;
				at = (slot * HEADS_KV + (h - HEADS)) * dim;
			}
			long double y[MAX_DIM];
			for (uint32_t i = 0; i < dim; i++)
				y[i] = x[i];
			for (uint32_t j = 0; j < n_rot / 2; j++) {
				uint32_t a = neox ? j : 2 * j, b = neox ? j + n_rot / 2 : 2 * j + 1;
				long double c = turns[(rows[t].pos * (n_rot / 2) + j) * 2];
				long double s = turns[(rows[t].pos * (n_rot / 2) + j) * 2 + 1];
				y[a] = x[a] * c - x[b] * s;
				y[b] = x[a] * s + x[b] * c;
			}
			long double factor = 1 + scale * logl(1 + floorl(rows[t].pos / 16.0L));
			for (uint32_t i = 0; i < dim; i++) {
				if (is_q) {
					expect_near(q[t * STRIDE_Q + h * dim + i], y[i] * factor, 2,
						"q");
					continue;
				}
				long double k_largest = 0, v_largest = 0;
				for (uint32_t j = i / 32 * 32; j < dim && j < i / 32 * 32 + 32;
					j++) {
					k_largest = fmaxl(k_largest, fabsl(y[j]));
					v_largest = fmaxl(v_largest, fabsl((long double)v[j]));
				}
				cr_assert(fabsl(cached(k_cache, k_type, at + i) - y[i]) <=
					cell_error(k_type, y[i], k_largest));
				cr_assert(fabsl((long double)cached(v_cache, v_type, at + i) -
						  v[i]) <= cell_error(v_type, v[i], v_largest));
			}
		}
	/* Three positions were written, and no others. */
	size_t n_written = 0, position_bytes = (size_t)kv_bytes(v_type, HEADS_KV * dim);
	for (size_t slot = 0; slot < 2 * POSITIONS; slot++) {
		size_t n_same = 0;
		for (size_t i = 0; i < position_bytes; i++)
			n_same += v_cache[slot * position_bytes + i] == PATTERN;
		n_written += n_same < position_bytes;
	}
	cr_assert_eq(n_written, 3);
	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t i = HEADS * dim; i < STRIDE_Q; i++)
			cr_assert(untouched(q[t * STRIDE_Q + i]));
	release_op(&op);
}

Test(cpu_kernels, rope_kv)
{
	test_rope(false, 10, KV_F32, KV_F32, 10, 0);
	test_rope(true, 10, KV_F16, KV_F32, 10, 0.5f);
	test_rope(false, 4, KV_F32, KV_F16, 10, 0);
	test_rope(true, 4, KV_F16, KV_F16, 10, 0);
	test_rope(true, 0, KV_F32, KV_F32, 10, 0);
	test_rope(true, 64, KV_Q8_0, KV_Q4_0, 64, 0);
	test_rope(false, 20, KV_Q4_0, KV_Q8_0, 32, 0.1f);
	test_rope(false, 32, KV_Q8_0, KV_F16, 32, 0);
}

/* Units as kv.h describes them, word by word. */
Test(cpu_kernels, quantised_units)
{
	float x[KV_UNIT], y[KV_UNIT];
	uint32_t words[KV_Q8_0_WORDS];
	for (int i = 0; i < KV_UNIT; i++)
		x[i] = (float)(i - 16) * 0.5f; /* -8 to 7.5 */
	kv_store(KV_Q4_0, words, 0, KV_UNIT, x);
	float d = 1;
	cr_assert_eq(memcmp(words, &d, sizeof d), 0);
	kv_load(KV_Q4_0, words, 0, KV_UNIT, y);
	for (int i = 0; i < KV_UNIT; i++)
		cr_assert_eq(y[i], fminf(7, floorf(x[i] + 0.5f)));
	cr_assert_eq(words[1] & 0xFFFF, 0x2110, "halves go up");
	for (int i = 0; i < KV_UNIT; i++)
		x[i] = (float)(i - 16) * 0.5f;
	x[5] = -127;
	kv_store(KV_Q8_0, words, 0, KV_UNIT, x);
	cr_assert_eq(memcmp(words, &d, sizeof d), 0);
	cr_assert_eq(words[2] >> 8 & 0xFF, 0x81, "byte 1 of word 2 is element 5");
	kv_load(KV_Q8_0, words, 0, KV_UNIT, y);
	for (int i = 0; i < KV_UNIT; i++)
		cr_assert_eq(y[i], rintf(x[i]));
	memset(x, 0, sizeof x);
	for (int type = KV_Q8_0; type <= KV_Q4_0; type++) {
		kv_store((enum kv_type)type, words, 0, KV_UNIT, x);
		kv_load((enum kv_type)type, words, 0, KV_UNIT, y);
		for (int i = 0; i < KV_UNIT; i++)
			cr_assert_eq(y[i], 0);
	}
}

/* ---- attention --------------------------------------------------------------------------------- */

struct attention_case {
	uint32_t n_head, n_head_kv, dim;
	enum kv_type k, v;
	uint32_t window;
	float softcap;
	bool sinks;
};

/* attn_prefill, and attn_decode + attn_reduce, on rows with given positions of two sequences; what
 * no row sees of the cache is NaN. */
/* A row of the step sees the position. */
static bool seen(const struct step *step, uint32_t seq, uint32_t pos, uint32_t window)
{
	for (uint32_t t = 0; t < step->header.n_rows; t++) {
		const struct step_row *row = &step->rows[t];
		if (row->seq == seq && pos <= row->pos && (!window || row->pos - pos < window))
			return true;
	}
	return false;
}

static void test_attention(struct attention_case c, const uint32_t *positions, uint32_t n_rows)
{
	enum { BLOCKS = 9, POSITIONS = BLOCKS * KV_BLOCK };
	struct step step = {.header = {.n_rows = n_rows}};
	const uint32_t n_head = c.n_head, n_head_kv = c.n_head_kv, dim = c.dim;
	uint32_t stride = ROW_STRIDE(n_head * dim),
		 n_slices = attention_slices(POSITIONS, c.window);
	uint32_t longest[2] = {0};
	for (uint32_t t = 0; t < n_rows; t++) {
		step.rows[t] = (struct step_row){.pos = positions[t], .seq = t % 2};
		if (positions[t] >= longest[t % 2])
			longest[t % 2] = positions[t] + 1;
		if (positions[t] >= step.header.n_kv)
			step.header.n_kv = positions[t] + 1;
	}
	struct op op = {
		.kernel = KERNEL_attn_prefill,
		.constant = dim | (uint32_t)c.k << ATTN_K_SHIFT | (uint32_t)c.v << ATTN_V_SHIFT,
		.args.attn_prefill =
			{
				.n_head = n_head,
				.n_head_kv = n_head_kv,
				.head_dim = dim,
				.stride_q = stride,
				.stride_out = stride,
				.n_slices = n_slices,
				.n_blocks = BLOCKS,
				.window = c.window,
				.has_sinks = c.sinks,
				.scale = 0.7f,
				.softcap = c.softcap,
			},
	};
	uint64_t n_cache = (uint64_t)2 * POSITIONS * n_head_kv * dim;
	uint8_t *k_cache, *v_cache;
	uint32_t *table;
	float *out = make_output(&op.buffers[0], (size_t)n_rows * stride);
	const float *q = make_floats(&op.buffers[1], (size_t)n_rows * stride);
	op.buffers[2] = make_view(kv_bytes(c.k, n_cache), &k_cache);
	op.buffers[3] = make_view(kv_bytes(c.v, n_cache), &v_cache);
	op.buffers[5] = make_view(2 * BLOCKS * sizeof *table, &table);
	float *sinks = make_floats(&op.buffers[6], n_head);
	for (uint32_t i = 0; i < n_head; i++)
		sinks[i] *= 5;
	memset(k_cache, 0xFF, op.buffers[2].n_bytes);
	memset(v_cache, 0xFF, op.buffers[3].n_bytes);
	for (uint32_t i = 0; i < 2 * BLOCKS; i++)
		table[i] = i * 5 % (2 * BLOCKS); /* 5 and 18 have no common divisor */
	for (uint32_t seq = 0; seq < 2; seq++)
		for (uint32_t pos = 0; pos < longest[seq]; pos++) {
			uint32_t slot =
				table[seq * BLOCKS + pos / KV_BLOCK] * KV_BLOCK + pos % KV_BLOCK;
			if (!seen(&step, seq, pos, c.window))
				continue;
			for (uint32_t i = 0; i < n_head_kv * dim; i += dim) {
				float k[MAX_HEAD_DIM], v[MAX_HEAD_DIM];
				for (uint32_t j = 0; j < dim; j++) {
					k[j] = 3 * random_float();
					v[j] = random_float();
				}
				size_t at = (size_t)slot * n_head_kv * dim + i;
				kv_store(c.k, k_cache, at, dim, k);
				kv_store(c.v, v_cache, at, dim, v);
			}
		}
	cpu_attn_prefill(&op, &step.header);

	struct op decode = op, reduce = op;
	decode.kernel = KERNEL_attn_decode;
	reduce.kernel = KERNEL_attn_reduce;
	decode.args.attn_decode = reduce.args.attn_reduce = op.args.attn_prefill;
	make_output(&decode.buffers[0], (size_t)n_rows * n_head * n_slices * (2 + dim));
	const float *merged = make_output(&reduce.buffers[0], (size_t)n_rows * stride);
	reduce.buffers[1] = decode.buffers[0];
	reduce.buffers[3] = op.buffers[6];
	cpu_attn_decode(&decode, &step.header);
	cpu_attn_reduce(&reduce, &step.header);

	for (uint32_t t = 0; t < n_rows; t++)
		for (uint32_t h = 0; h < n_head; h++) {
			long double score[POSITIONS], maximum = -INFINITY, sum = 0;
			size_t base[POSITIONS];
			uint32_t n = positions[t] + 1, seq = t % 2, group = n_head / n_head_kv;
			uint32_t first = c.window && n > c.window ? n - c.window : 0;
			for (uint32_t p = first; p < n; p++) {
				uint32_t block = table[seq * BLOCKS + p / KV_BLOCK];
				base[p] = ((size_t)block * KV_BLOCK + p % KV_BLOCK) * n_head_kv *
						dim +
					h / group * dim;
				score[p] = 0;
				for (uint32_t i = 0; i < dim; i++)
					score[p] += (long double)q[t * stride + h * dim + i] *
						cached(k_cache, c.k, base[p] + i);
				score[p] *= 0.7f;
				if (c.softcap > 0)
					score[p] = c.softcap * tanhl(score[p] / c.softcap);
				maximum = fmaxl(maximum, score[p]);
			}
			for (uint32_t p = first; p < n; p++)
				sum += score[p] = expl(score[p] - maximum);
			if (c.sinks)
				sum += expl(sinks[h] - maximum);
			for (uint32_t i = 0; i < dim; i++) {
				long double value = 0;
				for (uint32_t p = first; p < n; p++)
					value += score[p] / sum * cached(v_cache, c.v, base[p] + i);
				size_t at = t * stride + h * dim + i;
				expect_near(out[at], value, 1, "attn_prefill");
				expect_near(merged[at], value, 1, "attn_decode, attn_reduce");
			}
		}
	for (uint32_t t = 0; t < n_rows; t++)
		for (uint32_t i = n_head * dim; i < stride; i++)
			cr_assert(untouched(out[t * stride + i]) &&
				untouched(merged[t * stride + i]));
	release_view(decode.buffers[0]);
	release_view(reduce.buffers[0]);
	release_op(&op);
}

Test(cpu_kernels, attention)
{
	static const uint32_t edges[] = {0, 30, 31, 32, 126, 127, 128, 255, 256, 287};
	static const uint32_t first[] = {0};
	const uint32_t n = ARRAY_COUNT(edges);
	test_attention((struct attention_case){1, 1, 2, KV_F32, KV_F32, 0, 0, false}, first, 1);
	test_attention((struct attention_case){4, 1, 32, KV_F32, KV_F32, 0, 0, false}, edges, n);
	test_attention((struct attention_case){4, 2, 64, KV_F16, KV_F32, 0, 2, true}, edges, n);
	test_attention((struct attention_case){3, 3, 10, KV_F32, KV_F16, 0, 0, true}, edges, n);
	test_attention((struct attention_case){8, 1, 256, KV_F16, KV_F16, 0, 9, false}, edges, 4);
	test_attention((struct attention_case){4, 2, 64, KV_Q8_0, KV_Q4_0, 0, 0, false}, edges, n);
	test_attention((struct attention_case){2, 1, 32, KV_Q4_0, KV_Q8_0, 100, 3, true}, edges, n);
	static const uint32_t windows[] = {1, 2, 31, 32, 33, 127, 128, 129, 130, 287, 288, 1000};
	for (unsigned i = 0; i < ARRAY_COUNT(windows); i++)
		test_attention(
			(struct attention_case){2, 1, 8, KV_F32, KV_F32, windows[i], 0, i % 2},
			edges, n);
}
