/* The reference kernels of mixtures of experts: see kernels.h.  Like the shaders they read the weights
 * of chosen experts only. */
#include "kernels.h"

#include <math.h>

#include "products.h"

/* ---- routing ----------------------------------------------------------------------------------- */

/* Whether expert a comes before b: larger logit, NaN the largest of all, then the lower id. */
static bool goes_before(const float *logits, u32 a, u32 b)
{
	float x = logits[a], y = logits[b];
	if (isnan(x) || isnan(y))
		return isnan(x) && isnan(y) ? a < b : isnan(x);
	return x > y || (x == y && a < b);
}

/* The n_used first of that order, by insertion. */
static void choose(const struct route_args *a, const float *logits, u32 chosen[MAX_EXPERTS_USED])
{
	u32 n = 0;
	for (u32 expert = 0; expert < a->n_expert; expert++) {
		u32 at = n;
		while (at > 0 && goes_before(logits, expert, chosen[at - 1]))
			at--;
		if (at == a->n_used)
			continue;
		n += n < a->n_used;
		for (u32 i = n - 1; i > at; i--)
			chosen[i] = chosen[i - 1];
		chosen[at] = expert;
	}
}

void cpu_moe_route(const struct op *op, const struct step_header *step)
{
	const struct route_args *a = &op->args.moe_route;
	struct expert_route *routes = cpu_pointer(&op->buffers[0]);
	const float *logits = cpu_pointer(&op->buffers[1]);
	const float *scales = a->has_scales ? cpu_pointer(&op->buffers[2]) : NULL;

	for (u32 row = 0; row < step->n_rows; row++, logits += a->stride, routes += a->n_used) {
		u32 chosen[MAX_EXPERTS_USED] = {0};
		choose(a, logits, chosen);
		double largest = (double)logits[chosen[0]], sum = 0;
		u32 n_sum = a->normalise ? a->n_used : a->n_expert;
		for (u32 i = 0; i < n_sum; i++)
			sum += exp((double)logits[a->normalise ? chosen[i] : i] - largest);
		for (u32 i = 0; i < a->n_used; i++) {
			double share = exp((double)logits[chosen[i]] - largest) / sum;
			if (scales)
				share *= (double)scales[chosen[i]];
			routes[i] = (struct expert_route){chosen[i], (float)share};
		}
	}
}

void cpu_moe_tiles(const struct op *op, const struct step_header *step)
{
	const struct tiles_args *a = &op->args.moe_tiles;
	struct expert_tile *tiles = cpu_pointer(&op->buffers[0]);
	const struct expert_route *routes = cpu_pointer(&op->buffers[1]);
	u32 *slots = (u32 *)(tiles + a->n_tiles), n_tiles = 0, n = 0;

	for (u32 expert = 0; expert < MAX_EXPERTS; expert++) {
		struct expert_tile tile = {expert, n, 0};
		for (u32 slot = 0; slot < step->n_rows * a->n_used; slot++) {
			if (routes[slot].expert != expert)
				continue;
			slots[n++] = slot;
			if (++tile.n == EXPERT_TILE) {
				tiles[n_tiles++] = tile;
				tile = (struct expert_tile){expert, n, 0};
			}
		}
		if (tile.n)
			tiles[n_tiles++] = tile;
	}
	while (n_tiles < a->n_tiles)
		tiles[n_tiles++] = (struct expert_tile){0};
}

/* ---- products ---------------------------------------------------------------------------------- */

/* The products of n <= EXPERT_TILE slots of one expert; nothing when another chunk holds it. */
static void multiply(
	const struct op *op, const struct expert_args *a, u32 expert, const u32 *slots, u32 n)
{
	const struct weight_format *f = weight_format(op->weight);
	float *out = cpu_pointer(&op->buffers[0]);
	const uint8_t *weights = cpu_pointer(&op->buffers[1]);
	const float *x = cpu_pointer(&op->buffers[2]);
	const float *bias = a->has_bias ? cpu_pointer(&op->buffers[3]) : NULL;
	const float *rows[EXPERT_TILE];

	if (expert < a->first_expert || expert - a->first_expert >= a->n_experts)
		return;
	weights += (size_t)(expert - a->first_expert) * a->n_out * a->row_bytes;
	for (u32 t = 0; t < n; t++)
		rows[t] =
			x + (size_t)(a->x_per_slot ? slots[t] : slots[t] / a->n_used) * a->stride_x;
	for (u32 o = 0; o < a->n_out; o++) {
		double sums[EXPERT_TILE];
		cpu_row_products(f, weights + (size_t)o * a->row_bytes, a->n_in, rows, n, sums);
		for (u32 t = 0; t < n; t++) {
			if (bias)
				sums[t] += (double)bias[(size_t)expert * a->n_out + o];
			out[(size_t)slots[t] * a->stride_out + o] = (float)sums[t];
		}
	}
}

void cpu_expert_matvec(const struct op *op, const struct step_header *step)
{
	const struct expert_args *a = &op->args.expert_matvec;
	const struct expert_route *routes = cpu_pointer(&op->buffers[4]);

	for (u32 slot = 0; slot < step->n_rows * a->n_used; slot++)
		multiply(op, a, routes[slot].expert, &slot, 1);
}

void cpu_expert_matmul(const struct op *op, const struct step_header *step)
{
	const struct expert_args *a = &op->args.expert_matmul;
	const struct expert_tile *tiles = cpu_pointer(&op->buffers[4]);
	const u32 *slots = (const u32 *)(tiles + a->n_tiles);

	(void)step; /* the tiles are the step's */
	for (u32 i = 0; i < a->n_tiles; i++)
		multiply(op, a, tiles[i].expert, slots + tiles[i].first, tiles[i].n);
}

/* ---- what they gave ---------------------------------------------------------------------------- */

void cpu_expert_sum(const struct op *op, const struct step_header *step)
{
	const struct expert_sum_args *a = &op->args.expert_sum;
	float *out = cpu_pointer(&op->buffers[0]);
	const float *down = cpu_pointer(&op->buffers[1]);
	const struct expert_route *routes = cpu_pointer(&op->buffers[2]);
	const float *residual = a->has_residual ? cpu_pointer(&op->buffers[3]) : NULL;
	const float *shared = a->has_shared ? cpu_pointer(&op->buffers[4]) : NULL;
	const float *gate = a->has_gate ? cpu_pointer(&op->buffers[5]) : NULL;

	for (size_t row = 0; row < step->n_rows; row++) {
		double share = gate ? 1 / (1 + exp(-(double)gate[row * a->stride_gate])) : 1;
		for (u32 i = 0; i < a->n; i++) {
			double sum =
				shared ? share * (double)shared[row * a->stride_shared + i] : 0;
			for (size_t slot = row * a->n_used; slot < (row + 1) * a->n_used; slot++)
				sum += (double)routes[slot].weight *
					(double)down[slot * a->stride_down + i];
			sum *= (double)a->scale;
			if (residual)
				sum += (double)residual[row * a->stride_residual + i];
			out[row * a->stride_out + i] = (float)sum;
		}
	}
}
