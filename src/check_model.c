/* A model's plans op by op on two backends: see check_model.h. */
#include "check_model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One side: a session with the plan of a role, run one op at a time. */
struct side {
	struct lap_session *s;
	struct backend *b;
	struct prepared *prepared;
	struct plan plan;
};

/* What of a written operand the step defines: n_rows rows of n elements, stride apart. */
struct extent {
	uint64_t n_rows, stride, n;
	enum {
		ELEMENT_F32 = KV_F32,
		ELEMENT_F16 = KV_F16,
		ELEMENT_Q8_0 = KV_Q8_0,
		ELEMENT_Q4_0 = KV_Q4_0,
		ELEMENT_X_Q8, /* 32 in Q8_WORDS */
		ELEMENT_WORD,
		ELEMENT_ROUTE,
		ELEMENT_NONE
	} element;
	double limit; /* of the NMSE; 0: the same bits */
};

static double matmul_limit(enum weight weight)
{
	return weight_format(weight)->block_weights > 1 ? CHECK_LIMIT_QUANTISED : CHECK_LIMIT_FLOAT;
}

static struct extent rows_extent(uint64_t n_rows, uint64_t stride, uint64_t n, double limit)
{
	return (struct extent){n_rows, stride, n, ELEMENT_F32, limit};
}

/* The whole cache of a layer: rows that no step wrote are equal on both sides. */
static struct extent cache_extent(const struct view *view, uint32_t type)
{
	static const double limits[] = {
		[KV_F16] = CHECK_LIMIT_FLOAT,
		[KV_F32] = CHECK_LIMIT_ELEMENT,
		[KV_Q8_0] = CHECK_LIMIT_QUANTISED,
		[KV_Q4_0] = CHECK_LIMIT_QUANTISED,
	};
	struct extent e = {.n_rows = 1, .limit = limits[type]};
	e.element = type;
	e.n = view->n_bytes / kv_bytes((enum kv_type)type, KV_UNIT) * KV_UNIT;
	return e;
}

/* All blocks of a layer's state, as with a cache. */
static struct extent state_extent(const struct view *view, double limit)
{
	return rows_extent(1, 0, view->n_bytes / sizeof(float), limit);
}

/* Written operand i of an op.  Log-probabilities are no decision and the dispatch sizes are each
 * backend's own: neither is compared. */
static struct extent extent_of(const struct op *op, uint32_t i, const struct step_header *step)
{
	const union args *a = &op->args;
	const uint32_t n = step->n_rows;
	const struct extent none = {.element = ELEMENT_NONE};
	switch (op->kernel) {
	case KERNEL_embed:
		return rows_extent(n, a->embed.stride, a->embed.n_embd,
			a->embed.scale != 1 || a->embed.has_residual ? CHECK_LIMIT_ELEMENT : 0);
	case KERNEL_rmsnorm:
	case KERNEL_layernorm:
		return rows_extent(n, a->rmsnorm.stride_out,
			(uint64_t)a->rmsnorm.n * a->rmsnorm.n_segments, CHECK_LIMIT_ELEMENT);
	case KERNEL_quantize_x:
		return (struct extent){
			n, a->quantize_x.n, a->quantize_x.n, ELEMENT_X_Q8, CHECK_LIMIT_QUANTISED};
	case KERNEL_matvec:
	case KERNEL_matmul:
	case KERNEL_matvec_q8:
	case KERNEL_matmul_q8:
		return rows_extent(
			n, a->matmul.stride_out, a->matmul.n_out, matmul_limit(op->weight));
	case KERNEL_matmul_sum:
		return rows_extent(
			n, a->matmul_sum.stride_out, a->matmul_sum.n_out, CHECK_LIMIT_ELEMENT);
	case KERNEL_rope_kv:
		if (i == 1)
			return cache_extent(
				&op->buffers[1], op->constant >> ATTN_K_SHIFT & ATTN_TYPE_MASK);
		if (i == 2)
			return cache_extent(
				&op->buffers[2], op->constant >> ATTN_V_SHIFT & ATTN_TYPE_MASK);
		return rows_extent(n, a->rope_kv.stride_q, a->rope_kv.n_head * a->rope_kv.head_dim,
			CHECK_LIMIT_ELEMENT);
	case KERNEL_attn_decode: { /* of each head, the slices that hold positions */
		uint64_t n_slice = 2 + a->attn_decode.head_dim;
		uint64_t n_slices = (step->n_kv - 1) / ATTN_SLICE + 1;
		if (n_slices > a->attn_decode.n_slices) /* of a window */
			n_slices = a->attn_decode.n_slices;
		return rows_extent((uint64_t)n * a->attn_decode.n_head,
			a->attn_decode.n_slices * n_slice, n_slices * n_slice, CHECK_LIMIT_FLOAT);
	}
	case KERNEL_attn_reduce:
	case KERNEL_attn_prefill:
		return rows_extent(n, a->attn_prefill.stride_out,
			a->attn_prefill.n_head * a->attn_prefill.head_dim, CHECK_LIMIT_FLOAT);
	case KERNEL_conv:
		if (i == 1)
			return state_extent(&op->buffers[1], CHECK_LIMIT_ELEMENT);
		return rows_extent(n, a->conv.stride_out, a->conv.n_channels, CHECK_LIMIT_ELEMENT);
	case KERNEL_delta_decode:
	case KERNEL_delta_prefill:
		if (i == 1)
			return state_extent(&op->buffers[1], CHECK_LIMIT_FLOAT);
		return rows_extent(n, a->delta_decode.stride_out,
			(uint64_t)a->delta_decode.n_head * a->delta_decode.dv, CHECK_LIMIT_FLOAT);
	case KERNEL_glu:
		return rows_extent(
			(uint64_t)n * op->factor, a->glu.stride, a->glu.n, CHECK_LIMIT_ELEMENT);
	case KERNEL_moe_route:
		return (struct extent){
			1, 0, 2 * n * a->moe_route.n_used, ELEMENT_ROUTE, CHECK_LIMIT_ELEMENT};
	case KERNEL_moe_tiles:
		return (struct extent){
			1, 0, 3 * a->moe_tiles.n_tiles + n * a->moe_tiles.n_used, ELEMENT_WORD, 0};
	case KERNEL_expert_matvec:
	case KERNEL_expert_matmul:
		return rows_extent((uint64_t)n * a->expert_matvec.n_used,
			a->expert_matvec.stride_out, a->expert_matvec.n_out,
			matmul_limit(op->weight));
	case KERNEL_expert_sum:
		return rows_extent(
			n, a->expert_sum.stride_out, a->expert_sum.n, CHECK_LIMIT_ELEMENT);
	case KERNEL_sample: /* the token of each result */
		return i == 0
			? (struct extent){n, sizeof(struct sample_result) / 4, 1, ELEMENT_WORD, 0}
			: none;
	case KERNEL_control: /* the step; the sequences */
		return i == 0 || i == 2
			? (struct extent){1, 0, op->buffers[i].n_bytes / 4, ELEMENT_WORD, 0}
			: none;
	case KERNEL_beam_select: /* of no step that validation runs */
	case KERNEL_kv_copy:
	case KERNEL_kv_shift:
	case KERNEL_read_rate:
	case KERNEL_fma_rate:
		return none;
	case N_KERNELS:
		break;
	}
	assert(false && "every kernel has its case");
	return none;
}

/* ---- one op ---- */

static enum lap_status run_op(struct side *side, uint32_t i, double *seconds, struct lap_error *err)
{
	const struct backend_ops *ops = side->b->ops;
	struct plan one = side->plan;
	struct runnable *r;
	uint64_t ticket;
	one.ops = &side->plan.ops[i];
	one.n_ops = 1;
	enum lap_status status = ops->prepare(side->b, &one, true, &r, err);
	if (status)
		return status;
	ops->begin(r);
	status = ops->run(side->b, r, 1, &ticket, err);
	if (!status)
		status = ops->wait(side->b, ticket, err);
	if (!status)
		status = ops->times(side->b, r, seconds, err);
	ops->release(side->b, r);
	return status;
}

static double element(const uint8_t *bytes, uint64_t i, const struct extent *e)
{
	float values[KV_UNIT];
	if (e->element == ELEMENT_F32 || e->element >= ELEMENT_WORD)
		return (double)((const float *)(const void *)bytes)[i];
	if (e->element == ELEMENT_X_Q8)
		kv_load(KV_Q8_0, bytes + i / KV_UNIT * Q8_WORDS * 4, 0, KV_UNIT, values);
	else
		kv_load((enum kv_type)e->element, bytes, i / KV_UNIT * KV_UNIT, KV_UNIT, values);
	return (double)values[i % KV_UNIT];
}

static void compare(const uint8_t *found, const uint8_t *expected, const struct extent *e,
	struct check_result *result)
{
	double errors = 0, squares = 0;
	for (uint64_t row = 0; row < e->n_rows; row++)
		for (uint64_t i = row * e->stride; i < row * e->stride + e->n; i++) {
			if (e->element == ELEMENT_WORD ||
				(e->element == ELEMENT_ROUTE && i % 2 == 0)) {
				const uint32_t *a = (const void *)found,
					       *b = (const void *)expected;
				if (a[i] != b[i] && result->passed) {
					result->passed = false;
					snprintf(result->reason, sizeof(result->reason),
						"word %llu is %u, expected %u",
						(unsigned long long)i, (unsigned)a[i],
						(unsigned)b[i]);
				}
				continue;
			}
			double x = element(found, i, e), y = element(expected, i, e);
			if (x == y || (isnan(x) && isnan(y))) {
				squares += isfinite(y) ? y * y : 0;
				continue;
			}
			double difference = fabs(x - y);
			result->max_error =
				isnan(difference) ? INFINITY : fmax(result->max_error, difference);
			errors += isnan(difference) ? INFINITY : difference * difference;
			squares += y * y;
		}
	double error = errors > 0 ? errors / squares : 0;
	result->nmse = fmax(result->nmse, isnan(error) ? INFINITY : error);
	result->limit = fmax(result->limit, e->limit);
	if (error > e->limit || isnan(error)) {
		result->passed = false;
		snprintf(result->reason, sizeof(result->reason), "NMSE %.3g, limit %.3g", error,
			e->limit);
	}
}

/* Compares what op i wrote and makes the reference's values the device's, so that the next op starts
 * from equal operands again. */
static enum lap_status compare_outputs(struct side *device, struct side *cpu, uint32_t i,
	const struct step_header *step, struct check_result *result, struct lap_error *err)
{
	const struct op *op = &device->plan.ops[i];
	const struct kernel_info *info = kernel_info(op->kernel);
	enum lap_status status = LAP_OK;
	for (uint32_t o = 0; o < info->n_buffers; o++)
		result->n_bytes += op->buffers[o].n_bytes;
	for (uint32_t o = 0; o < info->n_written && !status; o++) {
		const struct view *found = &op->buffers[o],
				  *expected = &cpu->plan.ops[i].buffers[o];
		const struct extent e = extent_of(op, o, step);
		if (e.element == ELEMENT_NONE)
			continue;
		uint64_t n_bytes = expected->n_bytes;
		assert(found->n_bytes == n_bytes);
		uint8_t *a = malloc((size_t)n_bytes), *b = malloc((size_t)n_bytes);
		if (!a || !b)
			status = fail_memory(err, op->label, 2 * n_bytes);
		if (!status)
			status = device->b->ops->read(device->b, *found, a, n_bytes, err);
		if (!status)
			status = cpu->b->ops->read(cpu->b, *expected, b, n_bytes, err);
		if (!status) {
			compare(a, b, &e, result);
			status = device->b->ops->write(device->b, *found, b, n_bytes, err);
		}
		free(a);
		free(b);
	}
	return status;
}

/* ---- a plan ---- */

static enum lap_status set_up(struct side *side, struct lap_session *s, enum role role,
	const int32_t *tokens, uint32_t n, uint32_t pos, struct lap_error *err)
{
	*side = (struct side){.s = s, .b = s->m->backend};
	side->prepared = session_prepared(s, role, STEP_DRAW, 0);
	struct step_row *rows = (struct step_row *)(side->prepared->step + 1);
	for (uint32_t i = 0; i < n; i++)
		rows[i] = (struct step_row){.token = (uint32_t)tokens[i], .pos = pos + i};
	*side->prepared->step = (struct step_header){.n_rows = n, .n_kv = pos + n};
	*s->sequences = (struct sequence){.greedy = 1, .n_ctx = s->n_ctx, .n_left = 2};
	if (!timeline_reserve_chunk(s, s->timelines, pos + n))
		return fail(err, LAP_USAGE, "no room for %u tokens in the KV cache",
			(unsigned)(pos + n));
	return session_plan(s, role, STEP_DRAW, 0, &side->plan, err);
}

static enum lap_status check_role(struct lap_session *on_device, struct lap_session *on_cpu,
	enum role role, const int32_t *tokens, uint32_t n, uint32_t pos, check_op_fn *on_op,
	void *user, bool *go_on, struct lap_error *err)
{
	struct side device = {0}, cpu = {0};
	enum lap_status status = set_up(&device, on_device, role, tokens, n, pos, err);
	if (!status)
		status = set_up(&cpu, on_cpu, role, tokens, n, pos, err);
	if (!status && device.plan.n_ops != cpu.plan.n_ops)
		status = fail(err, LAP_USAGE,
			"%u ops on %s, %u on the reference: one of them cuts tensors into smaller "
			"chunks",
			(unsigned)device.plan.n_ops, device.b->name, (unsigned)cpu.plan.n_ops);
	for (uint32_t i = 0; i < device.plan.n_ops && !status && *go_on; i++) {
		const struct op *op = &device.plan.ops[i];
		const struct step_header step = *cpu.prepared->step; /* before control changes it */
		struct check_op checked = {
			.role = role,
			.index = i,
			.kernel = kernel_info(op->kernel)->name,
			.format = kernel_info(op->kernel)->per_weight
				? weight_format(op->weight)->label
				: "",
			.label = op->label,
			.layer = op->layer,
			.result.passed = true,
		};
		double ignored;
		status = run_op(&device, i, &checked.result.seconds, err);
		if (!status)
			status = run_op(&cpu, i, &ignored, err);
		if (!status)
			status = compare_outputs(&device, &cpu, i, &step, &checked.result, err);
		if (!status)
			*go_on = on_op(user, &checked);
	}
	plan_free(&device.plan);
	plan_free(&cpu.plan);
	return status;
}

enum lap_status check_model(struct lap_session *device, struct lap_session *cpu,
	const int32_t *tokens, uint32_t n, check_op_fn *on_op, void *user, struct lap_error *err)
{
	bool go_on = true;
	if (n < 2 || n > device->n_batch || n > device->n_ctx)
		return fail(err, LAP_USAGE, "a prompt of %u tokens, expected 2 to %u", (unsigned)n,
			(unsigned)device->n_batch);
	enum lap_status status = session_check_tokens(device, tokens, n, err);
	if (!status)
		status = check_role(
			device, cpu, ROLE_PREFILL, tokens, n - 1, 0, on_op, user, &go_on, err);
	if (!status && go_on)
		status = check_role(device, cpu, ROLE_DECODE, tokens + n - 1, 1, n - 1, on_op, user,
			&go_on, err);
	return status;
}
