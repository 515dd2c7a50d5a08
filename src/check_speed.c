/* A kernel at a shape of the caller's: see check_speed.h. */
#include "check_speed.h"

#include <stdlib.h>
#include <string.h>

#include "check_side.h"
#include "plan_time.h"

#define CHECK_PRODUCTS (1ull << 27)  /* that the reference computes in the fraction of a second */
#define CHECK_LEAST    64            /* outputs, whatever that takes */
#define CACHES_BYTES   (96ull << 20) /* more than most caches hold */
#define MAX_COPIES     8
#define HEAD_DIM       128
#define N_EXPERT       8
#define N_USED         2

enum part { WIDTH, PRODUCT, TABLE, ATTENTION, EXPERTS, YARDSTICK };

/* What the numbers of a kernel's shape are, by kernel; those that are missing have none. */
static const struct shape_kind {
	const char *words;
	enum part part;
} kinds[N_KERNELS] = {
	[KERNEL_matvec] = {"outputs x rows x inputs", PRODUCT},
	[KERNEL_matmul] = {"outputs x rows x inputs", PRODUCT},
	[KERNEL_quantize_x] = {"columns x rows", WIDTH},
	[KERNEL_matvec_q8] = {"outputs x rows x inputs", PRODUCT},
	[KERNEL_matmul_q8] = {"outputs x rows x inputs", PRODUCT},
	[KERNEL_expert_matvec] = {"outputs x rows x inputs", EXPERTS},
	[KERNEL_embed] = {"tokens x rows x columns", TABLE},
	[KERNEL_attn_decode] = {"heads x rows x positions", ATTENTION},
	[KERNEL_attn_prefill] = {"heads x rows x positions", ATTENTION},
	[KERNEL_rmsnorm] = {"columns x rows", WIDTH},
	[KERNEL_layernorm] = {"columns x rows", WIDTH},
	[KERNEL_glu] = {"columns x rows", WIDTH},
	[KERNEL_sample] = {"tokens x rows", WIDTH},
	[KERNEL_read_rate] = {"times 16 bytes x 1", WIDTH},
	[KERNEL_fma_rate] = {"lanes x 1 x turns", YARDSTICK},
};

const char *kernel_shape_words(enum kernel kernel)
{
	return kinds[kernel].words;
}

/* Of a case with m in the first place. */
static struct check_case case_of(const struct kernel_shape *s, uint32_t m)
{
	struct check_case c = {.kernel = s->kernel, .n_rows = s->n, .n_out = m, .n_in = s->k};
	if (kinds[s->kernel].part == EXPERTS) {
		c.n_expert = N_EXPERT;
		c.n_used = N_USED;
	}
	if (kinds[s->kernel].part == ATTENTION) {
		c.n_out = c.n_in = 0;
		c.n_head = m;
		c.n_head_kv = m % 4 == 0 ? m / 4 : m;
		c.head_dim = HEAD_DIM;
		c.k = c.v = s->kv;
		c.pos = s->kernel == KERNEL_attn_prefill ? s->k - s->n : s->k - 1;
	}
	return c;
}

enum lap_status kernel_shape_check(const struct kernel_shape *s, struct lap_error *err)
{
	const struct shape_kind *kind = &kinds[s->kernel];
	const char *name = kernel_info(s->kernel)->name;
	const bool wants_k = kind->part != WIDTH;
	if (!kind->words)
		return fail(err, LAP_USAGE, "%s is not measured alone", name);
	if (!kernel_takes(s->kernel, s->weight))
		return fail(err, LAP_USAGE, "%s: weights of %s are no integers times a scale", name,
			weight_format(s->weight)->label);
	if (kernel_info(s->kernel)->per_weight && s->k % weight_format(s->weight)->block_weights)
		return fail(err, LAP_USAGE,
			"%s: found rows of %u weights, expected blocks of %u for %s", name,
			(unsigned)s->k, (unsigned)weight_format(s->weight)->block_weights,
			weight_format(s->weight)->label);
	if (!s->m || !s->n || wants_k != (s->k > 0))
		return fail(err, LAP_USAGE, "the shape of %s: expected %s", name, kind->words);
	if (s->kernel == KERNEL_attn_prefill && s->k < s->n)
		return fail(err, LAP_USAGE,
			"%s: found %u rows and %u positions, expected no fewer positions than rows",
			name, (unsigned)s->n, (unsigned)s->k);
	if ((uint64_t)s->n * s->k > UINT32_MAX || (uint64_t)s->n * s->m > UINT32_MAX)
		return fail(
			err, LAP_USAGE, "%s: rows of 2^32 numbers and more are not measured", name);
	return LAP_OK;
}

/* Outputs that the reference computes quickly, of these rows and inputs. */
static uint32_t checked_outputs(const struct kernel_shape *s)
{
	const bool attention = kinds[s->kernel].part == ATTENTION;
	const uint64_t each = (uint64_t)s->n * (s->k ? s->k : 1) * (attention ? 2 * HEAD_DIM : 1);
	const uint64_t least = attention ? 4 : CHECK_LEAST, most = CHECK_PRODUCTS / each;
	const uint64_t m = most > least ? most / least * least : least;
	return m < s->m ? (uint32_t)m : s->m;
}

/* Weights in chunks that the device can bind, each of which begins where outputs may. */
static enum lap_status choose_chunk(
	const struct backend *b, enum weight weight, struct check_case *c, struct lap_error *err)
{
	uint64_t row_bytes = 0;
	const bool fits = weight_row_bytes(weight, case_columns(c, weight), &row_bytes);
	const uint64_t n_rows = b->max_buffer_bytes / (row_bytes ? row_bytes : 1);
	if (c->n_out > n_rows - n_rows / 16)
		c->chunk = (uint32_t)(n_rows - n_rows / 16) / ROW_ALIGN * ROW_ALIGN;
	if (!fits || (c->chunk == 0 && c->n_out > n_rows - n_rows / 16) ||
		(c->chunk && (c->n_out - 1) / c->chunk >= MAX_CHUNKS))
		return fail(err, LAP_USAGE, "%u rows of %u weights are more than %s holds",
			(unsigned)c->n_out, (unsigned)c->n_in, b->name);
	return LAP_OK;
}

/* Operands that cannot be bound at once are an error of the shape. */
static enum lap_status check_operands(const struct side *s, struct lap_error *err)
{
	for (uint32_t i = 0; i < s->n_operands; i++)
		if (s->operands[i].n_bytes > s->b->max_buffer_bytes)
			return fail(err, LAP_USAGE,
				"an operand of %llu bytes, %s can bind %llu at once: expected a "
				"smaller shape",
				(unsigned long long)s->operands[i].n_bytes, s->b->name,
				(unsigned long long)s->b->max_buffer_bytes);
	return LAP_OK;
}

static uint64_t operand_bytes(const struct side *s)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < s->n_operands; i++)
		n += s->operands[i].form == FORM_SCRATCH ? 0 : s->operands[i].n_bytes;
	return n;
}

/* What the side computes goes to the end of the plan, written where the first one writes: so each waits
 * for the one before it, as ops of a model do. */
static bool append_ops(struct plan *p, const struct side *s, const struct side *first)
{
	for (uint32_t i = 0; i < s->plan.n_ops; i++) {
		struct op op = s->plan.ops[i];
		if (op.kernel != s->c->kernel)
			continue; /* attn_reduce behind attn_decode */
		for (uint32_t o = 0; o < kernel_info(op.kernel)->n_written; o++)
			op.buffers[o] = first->plan.ops[i].buffers[o];
		if (p->n_ops == p->capacity)
			return false;
		p->ops[p->n_ops++] = op;
	}
	return true;
}

static enum lap_status time_copies(struct side *sides, uint32_t n, const uint32_t *knobs,
	double budget, struct kernel_speed *speed, struct lap_error *err)
{
	struct op ops[MAX_COPIES * MAX_CHUNKS];
	struct backend *b = sides[0].b;
	struct plan all = sides[0].plan;
	all.ops = ops;
	all.n_ops = 0;
	all.capacity = MAX_COPIES * MAX_CHUNKS;
	for (uint32_t i = 0; i < n; i++)
		if (!append_ops(&all, &sides[i], &sides[0]))
			break;
	struct step_header step;
	enum lap_status status = b->ops->read(b, all.step, &step, sizeof step, err);
	for (uint32_t i = 0; i < all.n_ops && !status; i++) {
		const struct work work = op_work(&ops[i], &step);
		speed->work.bytes += work.bytes / n;
		speed->work.flops += work.flops / n;
		if (knobs)
			memcpy(ops[i].knobs, knobs, sizeof ops[i].knobs);
	}
	if (!status && b->ops->knobs)
		b->ops->knobs(b, &ops[0], speed->knobs);
	if (!status)
		status = plan_time(b, &all, budget, &speed->seconds, err);
	speed->seconds /= n;
	return status;
}

static enum lap_status time_kernel(struct backend *b, const struct kernel_shape *shape,
	const struct check_case *c, const uint32_t *knobs, double budget,
	struct kernel_speed *speed, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	uint32_t n = 0;
	struct side *sides = array_alloc(MAX_COPIES, sizeof *sides);
	if (!sides)
		return fail_memory(err, "a measurement", MAX_COPIES * sizeof *sides);
	do {
		sides[n] = (struct side){
			.b = b, .c = c, .weight = shape->weight, .random = n + 1, .err = err};
		side_build(&sides[n]);
		status = sides[n].status;
		if (!status)
			status = check_operands(&sides[n], err);
		n++;
	} while (!status && n < MAX_COPIES && n * operand_bytes(&sides[0]) < CACHES_BYTES);
	speed->n_copies = n;
	if (!status)
		status = time_copies(sides, n, knobs, budget, speed, err);
	for (uint32_t i = 0; i < n; i++)
		side_free(&sides[i]);
	free(sides);
	return status;
}

enum lap_status kernel_measure(struct backend *b, struct backend *cpu,
	const struct kernel_shape *shape, const uint32_t *knobs, double budget,
	struct kernel_speed *speed, struct lap_error *err)
{
	*speed = (struct kernel_speed){0};
	enum lap_status status = kernel_shape_check(shape, err);
	if (status)
		return status;
	speed->checked_m = checked_outputs(shape);
	struct check_case whole = case_of(shape, shape->m);
	const struct check_case part = case_of(shape, speed->checked_m);
	if (kinds[shape->kernel].part == PRODUCT || kinds[shape->kernel].part == TABLE)
		status = choose_chunk(b, shape->weight, &whole, err);
	if (!status)
		status = side_check(b, cpu, &part, shape->weight, 1, 1, knobs, &speed->check, err);
	if (!status && speed->check.passed)
		status = time_kernel(b, shape, &whole, knobs, budget, speed, err);
	return status;
}
