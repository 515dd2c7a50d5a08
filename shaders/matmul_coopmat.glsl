/* Products of rows of weights with up to TILE_ROWS rows of x on the matrix units of GPUs: the body of matmul and
 * expert_matmul with LP_COOPMAT.
 *
 * The units take halves and add up in floats.  A number goes in as two halves, what it is rounded to and what that
 * leaves, 2^11 times as large; so a product is three, the smaller two summed apart, and as exact as one of floats but for
 * 2 bits.  Weights that are halves (WEIGHT_IS_HALF) leave nothing.
 *
 * The lanes of a workgroup decode a unit of TILE_OUTPUTS rows of weights, and load that of the rows of x, once for
 * all into shared memory.  Its subgroups deal the tile's blocks of COOP_M outputs x COOP_N rows among themselves.
 *
 * A row of x is scaled by a power of two that puts its largest element just below 2^15.  Weights are not: formats that
 * reach beyond halves have no such build (WEIGHT_IS_WIDE).  An element is summed in parts, as in matmul_shared.glsl, and
 * in order, whatever the step, the chunk and the tile; inside COOP_K weights the order is the device's. */
#include "parts.h"
#ifndef SPLIT_ID
#define SPLIT 1
#endif

layout(local_size_x_id = LANES_ID) in;

layout(constant_id = COOP_M_ID) const uint COOP_M = 8;
layout(constant_id = COOP_N_ID) const uint COOP_N = 8;
layout(constant_id = COOP_K_ID) const uint COOP_K = 8;
layout(constant_id = COOP_LANES_ID) const uint COOP_LANES = 8;

#define LOW        8  /* f16vec4s from a part of a unit to what its rounding left */
#define STRIDE     18 /* ... from row to row: 2 more, so that rows begin in other banks */
#define SCALE      16 /* ... to the exponent of the scale of a row of x */
#define LANE_LOADS (8 * TILE_ROWS / LANES) /* vec4s of x */
#define LOW_SCALE  2048.0
#define SMALLEST   6.103515625e-5 /* normal half: 2^-14 */

const uint N_SUBGROUPS = LANES / COOP_LANES;
const uint BLOCKS_ACROSS = TILE_OUTPUTS / COOP_M;
const uint N_BLOCKS = BLOCKS_ACROSS * (TILE_ROWS / COOP_N);
const uint OWN_BLOCKS = (N_BLOCKS + N_SUBGROUPS - 1) / N_SUBGROUPS;

shared f16vec4 w_tile[STRIDE * TILE_OUTPUTS]; /* [output][part of the unit] */
shared f16vec4 x_tile[STRIDE * TILE_ROWS];    /* [row][part] */
shared float block_tile[COOP_M * COOP_N];     /* of sums, for one block at a time */

#define w_matrix   coopmat<float16_t, gl_ScopeSubgroup, COOP_M, COOP_K, gl_MatrixUseA>
#define x_matrix   coopmat<float16_t, gl_ScopeSubgroup, COOP_K, COOP_N, gl_MatrixUseB>
#define sum_matrix coopmat<float, gl_ScopeSubgroup, COOP_M, COOP_N, gl_MatrixUseAccumulator>

sum_matrix totals[OWN_BLOCKS], sums[OWN_BLOCKS], low_sums[OWN_BLOCKS]; /* of parts; of units */
uint x_from[LANE_LOADS];
float scales[LANE_LOADS];

uint lane = gl_LocalInvocationID.x;

/* Rounded by hand, for how a conversion rounds is the driver's; and 0 where a half is subnormal, which a device may
 * take for 0: then all of it is left. */
f16vec4 high_part(vec4 v, out f16vec4 low)
{
	vec4 rounded = uintBitsToFloat(floatBitsToUint(v) + 0x1000u & 0xFFFFE000u);
	rounded = mix(rounded, vec4(0), lessThan(abs(v), vec4(SMALLEST)));
	low = f16vec4((v - rounded) * LOW_SCALE);
	return f16vec4(rounded);
}

/* The row of x of which a lane makes load i, of part lane % 8. */
uint x_row(uint i)
{
	return lane / 8 + LANES / 8 * i;
}

/* The exponent field of a row's scale, once find_scales has put it there. */
uint scale_exponent(uint row)
{
	return uint(float(x_tile[STRIDE * row + SCALE].x));
}

/* The largest exponent field of what this lane loads of a row. */
uint largest_exponent(uint from, uint n_units)
{
	uvec4 most = uvec4(0);
	for (uint unit = 0; unit < n_units; unit++)
		most = max(most, floatBitsToUint(x_quad(from + 8 * unit + lane % 8)) & 0x7FFFFFFFu);
	return max(max(most.x, most.y), max(most.z, most.w)) >> 23;
}

/* Within what leaves a scale's inverse a normal number.  Rows that are not there repeat the last. */
void find_scales(uint n_units, uint n_rows)
{
	[[unroll]] for (uint i = 0; i < LANE_LOADS; i++) {
		x_from[i] = x_begin(min(x_row(i), n_rows - 1));
		x_tile[STRIDE * x_row(i) + lane % 8].x =
			float16_t(float(largest_exponent(x_from[i], n_units)));
	}
	barrier();
	[[unroll]] for (uint i = 0; i < LANE_LOADS; i++) {
		float exponent = 15;
		for (uint part = 0; part < 8; part++)
			exponent = max(exponent, float(x_tile[STRIDE * x_row(i) + part].x));
		exponent = 268 - min(exponent, 254);
		x_tile[STRIDE * x_row(i) + SCALE].x = float16_t(exponent);
		scales[i] = uintBitsToFloat(uint(exponent) << 23);
	}
}

void store_weights(uint at, vec4 w)
{
#ifdef WEIGHT_IS_HALF
	w_tile[at] = f16vec4(w);
#else
	f16vec4 low;
	w_tile[at] = high_part(w, low);
	w_tile[at + LOW] = low;
#endif
}

/* A unit of the rows of weights from `first` on, of the matrix that begins at first_row of the weights; rows beyond
 * the last repeat it. */
void load_weights(uint first_row, uint first, uint unit)
{
	for (uint i = lane; i < TILE_OUTPUTS; i += LANES) {
		vec4 w[8];
		weight_decode(
			(first_row + min(first + i, args.n_out - 1)) * args.row_bytes, unit, w);
#ifdef WEIGHT_HAS_TAIL
		unit_mask(w, unit, args.n_in);
#endif
		[[unroll]] for (uint part = 0; part < 8; part++)
			store_weights(STRIDE * i + part, w[part]);
	}
}

void load_x(uint unit)
{
	[[unroll]] for (uint i = 0; i < LANE_LOADS; i++) {
		f16vec4 low;
		x_tile[STRIDE * x_row(i) + lane % 8] =
			high_part(x_quad(x_from[i] + 8 * unit + lane % 8) * scales[i], low);
		x_tile[STRIDE * x_row(i) + lane % 8 + LOW] = low;
	}
}

w_matrix w_load(uint at)
{
	w_matrix w;
	coopMatLoad(w, w_tile, at, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
	return w;
}

x_matrix x_load(uint at)
{
	x_matrix x;
	coopMatLoad(x, x_tile, at, STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
	return x;
}

/* Adds the products of COOP_K weights, from part k / 4 of the unit on, to the sums of block i. */
void multiply_block(uint i, uint output_at, uint row, uint k)
{
	w_matrix w = w_load(STRIDE * output_at + k / 4);
	x_matrix x = x_load(STRIDE * row + k / 4);
	sums[i] = coopMatMulAdd(w, x, sums[i]);
	low_sums[i] = coopMatMulAdd(w, x_load(STRIDE * row + k / 4 + LOW), low_sums[i]);
#ifndef WEIGHT_IS_HALF
	low_sums[i] = coopMatMulAdd(w_load(STRIDE * output_at + k / 4 + LOW), x, low_sums[i]);
#endif
}

/* Adds the products of the unit that is in shared memory. */
void multiply(uint n_rows)
{
	for (uint k = 0; k < UNIT; k += COOP_K)
		[[unroll]] for (uint i = 0; i < OWN_BLOCKS; i++) {
			uint block = gl_SubgroupID + N_SUBGROUPS * i;
			uint row = block / BLOCKS_ACROSS * COOP_N;
			if (block < N_BLOCKS && row < n_rows)
				multiply_block(i, block % BLOCKS_ACROSS * COOP_M, row, k);
		}
}

/* sums = those of units begin to end - 1. */
void sum_units(uint first_row, uint first, uint n_rows, uint begin, uint end)
{
	[[unroll]] for (uint i = 0; i < OWN_BLOCKS; i++)
		sums[i] = low_sums[i] = sum_matrix(0);
	for (uint unit = begin; unit < end; unit++) {
		barrier();
		load_weights(first_row, first, unit);
		load_x(unit);
		barrier();
		multiply(n_rows);
	}
}

void clear_totals()
{
	[[unroll]] for (uint i = 0; i < OWN_BLOCKS; i++)
		totals[i] = sum_matrix(0);
}

/* The block that lies in shared memory.  before: rows of what is stored that belong to earlier parts. */
void store_block(uint first, uint first_row, uint n_rows, uint before)
{
	for (uint at = lane; at < COOP_M * COOP_N; at += LANES) {
		uint out_row = first + at % COOP_M, row = first_row + at / COOP_M;
		if (row < n_rows && out_row < args.n_out)
			store(out_row, before + row,
				block_tile[at] * uintBitsToFloat(254 - scale_exponent(row) << 23));
	}
}

/* Block by block: its subgroup puts it into shared memory, all lanes store. */
void store_totals(uint first, uint n_rows, uint before)
{
	[[unroll]] for (uint i = 0; i < OWN_BLOCKS; i++)
		for (uint owner = 0; owner < N_SUBGROUPS; owner++) {
			uint block = owner + N_SUBGROUPS * i;
			uint row = block / BLOCKS_ACROSS * COOP_N;
			if (block >= N_BLOCKS || row >= n_rows)
				return;
			if (gl_SubgroupID == owner)
				coopMatStore(totals[i], block_tile, 0, COOP_M,
					gl_CooperativeMatrixLayoutColumnMajor);
			barrier();
			store_block(first + block % BLOCKS_ACROSS * COOP_M, row, n_rows, before);
			barrier();
		}
}

void matmul(uint first_row, uint n_rows)
{
	uint first = flat_group() / SPLIT * TILE_OUTPUTS;
	uint n_units = (args.n_in + UNIT - 1) / UNIT;
	if (first >= args.n_out)
		return;
	find_scales(n_units, n_rows);
	clear_totals();
	for (uint part = flat_group() % SPLIT; part < N_PARTS(n_units); part += SPLIT) {
		uint begin = part * PART_UNITS(n_units);
		sum_units(first_row, first, n_rows, begin, min(begin + PART_UNITS(n_units), n_units));
		[[unroll]] for (uint i = 0; i < OWN_BLOCKS; i++)
			totals[i] += sums[i] + low_sums[i] * (1 / LOW_SCALE);
		if (SPLIT > 1) {
			store_totals(first, n_rows, part * PART_ROWS);
			clear_totals();
		}
	}
	if (SPLIT == 1)
		store_totals(first, n_rows, 0);
}
