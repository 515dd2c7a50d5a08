/* What the kernels of the gated delta rule share: operands, and where they are in a block of the state.  struct
 * delta_args has the equations.  A workgroup takes the columns of a slice of a head's S and all rows of one
 * sequence.
 *
 * With LP_SHUFFLE it is a subgroup of 8, in which a lane has 4 columns; k and q are spread over the lanes, a
 * quad each of every 8, and go to all by shuffles.  Elsewhere a lane has one column. */
ARGS(delta_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
layout(std430, set = 0, binding = 0) writeonly buffer out_quad_buffer { vec4 result_quads[]; };
layout(std430, set = 0, binding = 1) buffer state_buffer { float state[]; };
layout(std430, set = 0, binding = 1) buffer state_quad_buffer { vec4 state_quads[]; };
layout(std430, set = 0, binding = 2) readonly buffer qkv_buffer { float qkv[]; };
layout(std430, set = 0, binding = 2) readonly buffer qkv_quad_buffer { vec4 qkv_quads[]; };
layout(std430, set = 0, binding = 3) readonly buffer gate_buffer { float gates[]; };
layout(std430, set = 0, binding = 4) readonly buffer dt_buffer { float dt_a[]; };
layout(std430, set = 0, binding = 5) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
#define TABLE_BINDING 6
#include "state.glsl"
#include "activation.glsl"

#define DK       SPEC
#define DK_QUADS (DK / 4)

uint head = flat_group() / DELTA_SLICES(args.dv), group = head % args.n_group;
uint slice = flat_group() % DELTA_SLICES(args.dv);

/* Where the words of the block with a position begin, or STATE_NONE. */
uint block_words(uint seq, uint pos)
{
	uint block = state_block(seq, pos);
	return block == STATE_NONE ? block : block * DELTA_WORDS(args);
}

/* Words of the block that begins at `block`: of S in row 0 and a column; of k, u and G of position t. */
uint s_at(uint block, uint column)
{
	return block + head * DK * args.dv + column;
}

uint k_at(uint block, uint t)
{
	return block + DELTA_K(args) + (t * args.n_group + group) * DK;
}

uint u_at(uint block, uint t, uint column)
{
	return block + DELTA_U(args) + (t * args.n_head + head) * args.dv + column;
}

uint decay_at(uint block, uint t)
{
	return block + DELTA_G(args) + t * args.n_head + head;
}

/* Words of a row of qkv. */
uint q_at(uint row)
{
	return row * args.stride_qkv + group * DK;
}

uint v_at(uint row, uint column)
{
	return row * args.stride_qkv + 2 * args.n_group * DK + head * args.dv + column;
}

/* g of a row: how fast what was forgets, as a logarithm. */
float decay_of(uint row)
{
	float x = gates[row * args.stride_gates + args.alpha + head] + dt_a[head];
	return dt_a[args.n_head + head] * (max(x, 0.0) + log(1 + exp(-abs(x))));
}

float beta_of(uint row)
{
	return sigmoid(vec4(gates[row * args.stride_gates + args.beta + head])).x;
}

/* The end of the rows of the sequence that this workgroup takes, from `row` on; `row` itself where there are
 * none, for the workgroup of the sequence's first row takes them. */
uint sequence_end(uint row)
{
	if (head >= args.n_head || row >= step_head.n_rows)
		return row;
	uint seq = step_rows[row].seq, end = row + 1;
	if (row > 0 && step_rows[row - 1].seq == seq)
		return row;
	while (end < step_head.n_rows && step_rows[end].seq == seq)
		end++;
	return end;
}
