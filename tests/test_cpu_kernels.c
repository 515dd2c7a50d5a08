/* The reference kernels against arithmetic written once more, here, in long double and without any of
 * their structure: whole rows decoded at once, softmax in two passes, rotation as a complex product. */
#include "backend.h"
#include "cpu/kernels.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN 0xC5 /* bytes of outputs before a kernel runs */

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

/* Random bytes are fine blocks but for their scales, which are made 2^-8 .. 2^-5 here; positions as in
 * the layouts that weight.c describes. */
static void make_blocks(enum weight weight, uint8_t *bytes, size_t n_bytes)
{
	static const int8_t scales[N_WEIGHTS][2] = {
		[WEIGHT_q8_0] = {0, 0},
		[WEIGHT_q4_0] = {0, 0},
		[WEIGHT_q4_1] = {0, 2},
		[WEIGHT_q5_0] = {0, 0},
		[WEIGHT_q5_1] = {0, 2},
		[WEIGHT_q4_k] = {0, 2},
		[WEIGHT_q6_k] = {(int8_t)208, 0},
	};
	const struct weight_format *f = weight_format(weight);
	for (size_t i = 0; i < n_bytes; i++)
		bytes[i] = (uint8_t)random_u32();
	for (size_t b = 0; b < n_bytes; b += f->block_bytes) {
		for (unsigned i = 0; i < 2; i++) {
			uint8_t *at = bytes + b + (uint8_t)scales[weight][i];
			if (weight == WEIGHT_q6_k && i == 1)
				continue; /* has one scale, at its end */
			if (weight == WEIGHT_f32 && i == 0)
				at += 2;
			uint16_t h = weight == WEIGHT_f32 || weight == WEIGHT_bf16
				? (uint16_t)(0x3E00 + random_u32() % 0x100)
				: (uint16_t)(0x1C00 + random_u32() % 0xC00);
			if (f->block_bytes > 2 || i == 0)
				memcpy(at, &h, sizeof h);
			if (f->block_weights == 1)
				break;
		}
	}
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
		.args.matmul = {n_out, n_in, (uint32_t)row_bytes, n_rows, stride_out, stride_x,
			stride_out, bias, residual},
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
			if (residual)
				sum += r[t * stride_out + o];
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

static void test_embed(enum weight weight, uint32_t n_embd)
{
	const struct weight_format *f = weight_format(weight);
	struct step step = {.header = {.n_rows = 4, .n_kv = 1}};
	static const uint32_t tokens[] = {12, 10, 9, 13}; /* the chunk holds 10, 11 and 12 */
	for (unsigned i = 0; i < 4; i++)
		step.rows[i].token = tokens[i];
	n_embd = (n_embd + f->block_weights - 1) / f->block_weights * f->block_weights;
	uint64_t row_bytes;
	cr_assert(weight_row_bytes(weight, n_embd, &row_bytes));
	uint32_t stride = ROW_STRIDE(n_embd);
	struct op op = {
		.kernel = KERNEL_embed,
		.weight = weight,
		.n_outputs = 1,
		.args.embed = {n_embd, stride, 10, 3, (uint32_t)row_bytes},
	};
	uint8_t *weights;
	float *out = make_output(&op.buffers[0], (size_t)4 * stride);
	op.buffers[1] = make_view(3 * row_bytes, &weights);
	make_blocks(weight, weights, 3 * row_bytes);
	cpu_embed(&op, &step.header);
	float *expected = malloc(n_embd * sizeof *expected);
	for (unsigned t = 0; t < 4; t++) {
		bool inside = tokens[t] >= 10 && tokens[t] < 13;
		if (inside)
			f->decode(weights + (tokens[t] - 10) * row_bytes, n_embd, expected);
		for (uint32_t i = 0; i < stride; i++)
			if (inside && i < n_embd)
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
		test_embed((enum weight)w, 1);
		test_embed((enum weight)w, 101);
		test_embed((enum weight)w, 512);
	}
}

/* ---- element-wise ------------------------------------------------------------------------------ */

Test(cpu_kernels, rmsnorm)
{
	static const uint32_t sizes[] = {1, 2, 63, 64, 101};
	for (unsigned s = 0; s < ARRAY_COUNT(sizes); s++) {
		uint32_t n = sizes[s], stride = ROW_STRIDE(n), n_rows = 3;
		struct step step = {.header = {.n_rows = n_rows, .n_kv = 1}};
		struct op op = {
			.kernel = KERNEL_rmsnorm, .args.rmsnorm = {n, stride, stride, 1e-5f}};
		float *out = make_output(&op.buffers[0], (size_t)n_rows * stride);
		const float *x = make_floats(&op.buffers[1], (size_t)n_rows * stride);
		const float *w = make_floats(&op.buffers[2], n);
		cpu_rmsnorm(&op, &step.header);
		for (uint32_t t = 0; t < n_rows; t++) {
			long double squares = 0;
			for (uint32_t i = 0; i < n; i++)
				squares += (long double)x[t * stride + i] * x[t * stride + i];
			long double root = sqrtl(squares / n + 1e-5f);
			for (uint32_t i = 0; i < n; i++)
				expect_near(out[t * stride + i], x[t * stride + i] / root * w[i], 1,
					"rmsnorm");
			for (uint32_t i = n; i < stride; i++)
				cr_assert(untouched(out[t * stride + i]));
		}
		release_op(&op);
	}
}

Test(cpu_kernels, glu)
{
	enum { N = 70, STRIDE = 128 };
	struct step step = {.header = {.n_rows = 2, .n_kv = 1}};
	struct op op = {.kernel = KERNEL_glu, .args.glu = {N, STRIDE}};
	float *out = make_output(&op.buffers[0], 2 * STRIDE);
	float *gate = make_floats(&op.buffers[1], 2 * STRIDE);
	const float *up = make_floats(&op.buffers[2], 2 * STRIDE);
	static const float extremes[] = {0, -20, 20, -1e4f, 1e4f, -1e30f, 1e30f, -88.8f};
	memcpy(gate, extremes, sizeof extremes);
	cpu_glu(&op, &step.header);
	for (uint32_t t = 0; t < 2; t++)
		for (uint32_t i = 0; i < STRIDE; i++) {
			uint32_t at = t * STRIDE + i;
			if (i >= N) {
				cr_assert(untouched(out[at]));
				continue;
			}
			long double g = gate[at];
			expect_near(out[at], g / (1 + expl(-g)) * up[at], 1 + fabsl(g), "glu");
		}
	release_op(&op);
}

/* ---- rope and the KV cache --------------------------------------------------------------------- */

static float cached(const void *cache, bool f16, size_t i)
{
	return f16 ? half_to_float(((const uint16_t *)cache)[i]) : ((const float *)cache)[i];
}

static void test_rope(bool neox, uint32_t n_rot, bool k_f16, bool v_f16)
{
	enum { HEADS = 3, HEADS_KV = 2, DIM = 10, BLOCKS = 3, STRIDE_Q = 64, STRIDE = 128 };
	enum { K_AT = 32, V_AT = 60, POSITIONS = BLOCKS * KV_BLOCK };
	struct step step = {.header = {.n_rows = 3, .n_kv = POSITIONS}};
	static const struct step_row rows[] = {
		{.pos = 0, .seq = 1}, {.pos = 33, .seq = 1}, {.pos = 95, .seq = 0}};
	memcpy(step.rows, rows, sizeof rows);
	struct op op = {
		.kernel = KERNEL_rope_kv,
		.constant = DIM | (k_f16 ? ATTN_K_F16 : 0) | (v_f16 ? ATTN_V_F16 : 0),
		.args.rope_kv = {HEADS, HEADS_KV, DIM, n_rot, neox, STRIDE_Q, STRIDE, K_AT, V_AT,
			BLOCKS},
	};
	uint64_t n_cache = (uint64_t)2 * POSITIONS * HEADS_KV * DIM;
	uint8_t *k_cache, *v_cache;
	uint32_t *table;
	float *q = make_output(&op.buffers[0], 3 * STRIDE_Q);
	op.buffers[1] = make_view(n_cache * (k_f16 ? 2 : 4), &k_cache);
	op.buffers[2] = make_view(n_cache * (v_f16 ? 2 : 4), &v_cache);
	const float *qkv = make_floats(&op.buffers[3], 3 * STRIDE);
	const float *turns = make_floats(&op.buffers[4], POSITIONS * (n_rot ? n_rot : 1));
	op.buffers[6] = make_view(2 * BLOCKS * sizeof *table, &table);
	static const uint32_t blocks[2][BLOCKS] = {{4, 0, 3}, {1, 5, 2}};
	memcpy(table, blocks, sizeof blocks);
	cpu_rope_kv(&op, &step.header);

	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t h = 0; h < HEADS + HEADS_KV; h++) {
			bool is_q = h < HEADS;
			const float *x = qkv + t * STRIDE + h * DIM;
			const float *v = NULL;
			size_t at = 0;
			if (!is_q) {
				x = qkv + t * STRIDE + K_AT + (h - HEADS) * DIM;
				v = qkv + t * STRIDE + V_AT + (h - HEADS) * DIM;
				size_t slot = (size_t)blocks[rows[t].seq][rows[t].pos / 32] * 32 +
					rows[t].pos % 32;
				at = (slot * HEADS_KV + (h - HEADS)) * DIM;
			}
			long double y[DIM];
			for (uint32_t i = 0; i < DIM; i++)
				y[i] = x[i];
			for (uint32_t j = 0; j < n_rot / 2; j++) {
				uint32_t a = neox ? j : 2 * j, b = neox ? j + n_rot / 2 : 2 * j + 1;
				long double c = turns[(rows[t].pos * (n_rot / 2) + j) * 2];
				long double s = turns[(rows[t].pos * (n_rot / 2) + j) * 2 + 1];
				y[a] = x[a] * c - x[b] * s;
				y[b] = x[a] * s + x[b] * c;
			}
			for (uint32_t i = 0; i < DIM; i++) {
				if (is_q) {
					expect_near(q[t * STRIDE_Q + h * DIM + i], y[i], 1, "q");
					continue;
				}
				long double half = 600; /* a step of a half is 2^-11 of its value */
				expect_near(cached(k_cache, k_f16, at + i), y[i], k_f16 ? half : 1,
					"k");
				expect_near(cached(v_cache, v_f16, at + i), v[i], v_f16 ? half : 0,
					"v");
			}
		}
	/* Three positions were written, and no others. */
	size_t n_written = 0;
	for (size_t i = 0; i < n_cache; i++)
		if (v_f16 ? ((uint16_t *)v_cache)[i] != PATTERN * 0x101u
			  : !untouched(((float *)v_cache)[i]))
			n_written++;
	cr_assert_eq(n_written, 3 * HEADS_KV * DIM);
	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t i = HEADS * DIM; i < STRIDE_Q; i++)
			cr_assert(untouched(q[t * STRIDE_Q + i]));
	release_op(&op);
}

Test(cpu_kernels, rope_kv)
{
	test_rope(false, 10, false, false);
	test_rope(true, 10, true, false);
	test_rope(false, 4, false, true);
	test_rope(true, 4, true, true);
	test_rope(true, 0, false, false);
}

/* ---- attention --------------------------------------------------------------------------------- */

/* attn_prefill, and attn_decode + attn_reduce, on rows with given positions of two sequences; what
 * no row sees of the cache is NaN. */
static void test_attention(uint32_t n_head, uint32_t n_head_kv, uint32_t dim, bool k_f16,
	bool v_f16, const uint32_t *positions, uint32_t n_rows)
{
	enum { BLOCKS = 9, POSITIONS = BLOCKS * KV_BLOCK };
	struct step step = {.header = {.n_rows = n_rows}};
	uint32_t stride = ROW_STRIDE(n_head * dim), n_slices = (POSITIONS + 127) / 128;
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
		.constant = dim | (k_f16 ? ATTN_K_F16 : 0) | (v_f16 ? ATTN_V_F16 : 0),
		.args.attn_prefill = {n_head, n_head_kv, dim, stride, stride, n_slices, BLOCKS,
			0.7f},
	};
	uint64_t n_cache = (uint64_t)2 * POSITIONS * n_head_kv * dim;
	uint8_t *k_cache, *v_cache;
	uint32_t *table;
	float *out = make_output(&op.buffers[0], (size_t)n_rows * stride);
	const float *q = make_floats(&op.buffers[1], (size_t)n_rows * stride);
	op.buffers[2] = make_view(n_cache * (k_f16 ? 2 : 4), &k_cache);
	op.buffers[3] = make_view(n_cache * (v_f16 ? 2 : 4), &v_cache);
	op.buffers[5] = make_view(2 * BLOCKS * sizeof *table, &table);
	memset(k_cache, 0xFF, op.buffers[2].n_bytes);
	memset(v_cache, 0xFF, op.buffers[3].n_bytes);
	for (uint32_t i = 0; i < 2 * BLOCKS; i++)
		table[i] = i * 5 % (2 * BLOCKS); /* 5 and 18 have no common divisor */
	for (uint32_t seq = 0; seq < 2; seq++)
		for (uint32_t pos = 0; pos < longest[seq]; pos++) {
			uint32_t slot =
				table[seq * BLOCKS + pos / KV_BLOCK] * KV_BLOCK + pos % KV_BLOCK;
			for (size_t i = 0; i < n_head_kv * dim; i++) {
				size_t at = (size_t)slot * n_head_kv * dim + i;
				float k = 3 * random_float(), v = random_float();
				if (k_f16)
					((uint16_t *)k_cache)[at] = float_to_half(k);
				else
					((float *)k_cache)[at] = k;
				if (v_f16)
					((uint16_t *)v_cache)[at] = float_to_half(v);
				else
					((float *)v_cache)[at] = v;
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
	cpu_attn_decode(&decode, &step.header);
	cpu_attn_reduce(&reduce, &step.header);

	for (uint32_t t = 0; t < n_rows; t++)
		for (uint32_t h = 0; h < n_head; h++) {
			long double score[POSITIONS], maximum = -INFINITY, sum = 0;
			size_t base[POSITIONS];
			uint32_t n = positions[t] + 1, seq = t % 2, group = n_head / n_head_kv;
			for (uint32_t p = 0; p < n; p++) {
				uint32_t block = table[seq * BLOCKS + p / KV_BLOCK];
				base[p] = ((size_t)block * KV_BLOCK + p % KV_BLOCK) * n_head_kv *
						dim +
					h / group * dim;
				score[p] = 0;
				for (uint32_t i = 0; i < dim; i++)
					score[p] += (long double)q[t * stride + h * dim + i] *
						cached(k_cache, k_f16, base[p] + i);
				score[p] *= 0.7f;
				maximum = fmaxl(maximum, score[p]);
			}
			for (uint32_t p = 0; p < n; p++)
				sum += score[p] = expl(score[p] - maximum);
			for (uint32_t i = 0; i < dim; i++) {
				long double value = 0;
				for (uint32_t p = 0; p < n; p++)
					value += score[p] / sum *
						cached(v_cache, v_f16, base[p] + i);
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
	test_attention(1, 1, 2, false, false, first, 1);
	test_attention(4, 1, 32, false, false, edges, ARRAY_COUNT(edges));
	test_attention(4, 2, 64, true, false, edges, ARRAY_COUNT(edges));
	test_attention(3, 3, 10, false, true, edges, ARRAY_COUNT(edges));
	test_attention(8, 1, 256, true, true, edges, 4);
}
