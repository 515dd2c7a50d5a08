/* Builders of the cases of a mixture of experts: see check_side.h.
 *
 * Experts that no slot chose hold nothing but NaN, and so do routes of rows beyond the step's. */
#include "check_side.h"

#include <math.h>
#include <string.h>

static uint32_t n_slots(const struct side *s)
{
	return side_room(s) * s->c->n_used;
}

/* Routes as moe_route could have left them: a row's experts are different ones.  Rows in the middle third
 * all want the first experts, so that there are long and short lists. */
static struct operand *input_routes(struct side *s, struct view *view)
{
	const struct check_case *c = s->c;
	struct operand *o =
		operand_create(s, (uint64_t)n_slots(s) * sizeof(struct expert_route), 0xFF);
	if (!o)
		return NULL;
	struct expert_route *routes = (struct expert_route *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < c->n_rows; row++, routes += c->n_used) {
		bool crowded = row >= c->n_rows / 3 && row < c->n_rows * 2 / 3;
		uint32_t first = crowded ? 0 : side_random_u32(s) % c->n_expert;
		uint32_t step = crowded ? 1 : 1 + side_random_u32(s) % (c->n_expert / c->n_used);
		for (uint32_t i = 0; i < c->n_used; i++)
			routes[i] = (struct expert_route){
				(first + i * step) % c->n_expert, fabsf(side_random_float(s, 1))};
	}
	*view = operand_upload(s, o, MEMORY_DEVICE);
	return o;
}

/* Every third row has few different logits: ties. */
void build_moe_route(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	struct view routes = side_output(s, (uint64_t)n_slots(s) * sizeof(struct expert_route),
		FORM_ROUTE, CHECK_LIMIT_ELEMENT);
	if (!s->status)
		s->operands[s->n_operands - 1].n_defined =
			(uint64_t)c->n_rows * c->n_used * sizeof(struct expert_route);
	struct rows logits = {.n = c->n_expert, .stride = ROW_STRIDE(c->n_expert)};
	struct operand *o =
		operand_create(s, (uint64_t)side_room(s) * logits.stride * sizeof(float), 0xFF);
	struct view scales_chunk;
	struct weights scales = {0};
	if (c->flags & SCALE)
		scales = input_weights(s, WEIGHT_f32, 1, c->n_expert, 0, &scales_chunk);
	input_step(s, rows, 1);
	if (s->status)
		return;
	float *to = (float *)(void *)(o->bytes + GUARD);
	for (uint32_t row = 0; row < c->n_rows; row++)
		for (uint32_t i = 0; i < c->n_expert; i++) {
			float logit = side_random_float(s, 5);
			to[row * logits.stride + i] = row % 3 == 1 ? roundf(logit / 4) : logit;
		}
	logits.view = operand_upload(s, o, MEMORY_DEVICE);
	if (!s->status)
		plan_route(&s->plan, routes, logits, c->n_used, !(c->flags & OVER_ALL), &scales);
}

static struct view output_tiles(struct side *s)
{
	const struct check_case *c = s->c;
	struct view tiles = side_output(
		s, expert_tiles_bytes(c->n_expert, n_slots(s)), FORM_WORDS, LIMIT_EXACT);
	if (!s->status) /* the list may end before the room for it does */
		s->operands[s->n_operands - 1].n_defined -=
			(uint64_t)(side_room(s) - c->n_rows) * c->n_used * sizeof(uint32_t);
	return tiles;
}

void build_moe_tiles(struct side *s, const struct step_row *rows)
{
	struct view routes, tiles = output_tiles(s);
	input_routes(s, &routes);
	input_step(s, rows, 1);
	if (!s->status)
		plan_tiles(&s->plan, tiles, routes, s->c->n_expert, s->c->n_used);
}

static bool chosen(const struct side *s, const struct operand *routes, uint32_t expert)
{
	const struct expert_route *r = (struct expert_route *)(void *)(routes->bytes + GUARD);
	for (uint32_t i = 0; i < s->c->n_rows * s->c->n_used; i++)
		if (r[i].expert == expert)
			return true;
	return false;
}

static struct weights input_experts(struct side *s, uint32_t n_cols, const struct operand *routes)
{
	const struct check_case *c = s->c;
	uint32_t per_chunk = c->chunk ? c->chunk : c->n_expert;
	struct weights w = {
		.name = "experts",
		.weight = s->weight,
		.n_rows = c->n_expert * c->n_out,
		.n_cols = n_cols,
		.n_experts = c->n_expert,
		.rows_per_chunk = per_chunk * c->n_out,
		.chunks = s->chunks,
	};
	uint64_t row_bytes = 0;
	weight_row_bytes(s->weight, n_cols, &row_bytes);
	uint64_t expert_bytes = c->n_out * row_bytes;
	for (uint32_t first = 0; first < c->n_expert; first += per_chunk) {
		uint32_t left = c->n_expert - first, n = left < per_chunk ? left : per_chunk;
		struct operand *o = operand_create(s, n * expert_bytes + WEIGHT_PAD, 0xFF);
		if (!o)
			return w;
		for (uint32_t i = 0; i < n; i++)
			if (chosen(s, routes, first + i))
				random_blocks(s, s->weight, o->bytes + GUARD + i * expert_bytes,
					expert_bytes);
		s->chunks[w.n_chunks++] = operand_upload(s, o, MEMORY_DEVICE);
	}
	return w;
}

void build_expert_matmul(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	bool is_float = weight_format(s->weight)->block_weights == 1;
	uint32_t n_in = case_columns(c, s->weight);
	struct view bias_chunk;
	struct weights bias = {0};
	struct routing routing = {.n_used = c->n_used};
	struct rows out = output_slots(
		s, c->n_used, c->n_out, is_float ? CHECK_LIMIT_FLOAT : CHECK_LIMIT_QUANTISED);
	if (s->plan.role == ROLE_PREFILL)
		routing.tiles = output_tiles(s);
	struct rows x =
		c->flags & X_PER_SLOT ? input_slots(s, c->n_used, n_in, 1) : input_rows(s, n_in, 1);
	const struct operand *routes = input_routes(s, &routing.routes);
	struct weights w = input_experts(s, n_in, routes);
	if (c->flags & BIAS)
		bias = input_weights(s, WEIGHT_f32, c->n_expert, c->n_out, 0, &bias_chunk);
	input_step(s, rows, 1);
	if (s->status)
		return;
	if (s->plan.role == ROLE_PREFILL)
		plan_tiles(&s->plan, routing.tiles, routing.routes, c->n_expert, c->n_used);
	plan_expert_matmul(&s->plan, out, &w, x, &bias, &routing, c->flags & X_PER_SLOT);
}

void build_expert_sum(struct side *s, const struct step_row *rows)
{
	const struct check_case *c = s->c;
	struct view routes;
	struct rows residual = {0}, shared = {0}, gate = {0};
	struct rows out = output_rows(s, c->n_out, CHECK_LIMIT_ELEMENT);
	struct rows down = input_slots(s, c->n_used, c->n_out, 1);
	input_routes(s, &routes);
	if (c->flags & RESIDUAL)
		residual = input_rows(s, c->n_out, 1);
	if (c->flags & SHARED)
		shared = input_rows(s, c->n_out, 1);
	if (c->flags & SHARED_GATE)
		gate = input_rows(s, 1, 100); /* beyond what exp can take */
	input_step(s, rows, 1);
	if (!s->status)
		plan_expert_sum(&s->plan, out, down, routes, c->n_used, residual,
			c->flags & SCALE ? 0.22f : 1, shared, gate);
}
