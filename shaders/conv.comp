/* conv: a causal convolution per channel, gated before and behind.  A lane takes 4 channels of N_ROWS rows; the
 * inputs under the taps move along from row to row of a sequence. */
#define N_ROWS 8 /* of the step: rows/group in kernels.def */
layout(local_size_x = 64) in;
ARGS(conv_args);
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { vec4 result[]; };
layout(std430, set = 0, binding = 1) buffer state_buffer { vec4 state[]; };
layout(std430, set = 0, binding = 2) readonly buffer x_buffer { vec4 x[]; };
layout(std430, set = 0, binding = 3) readonly buffer weight_buffer { float weights[]; };
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
#define TABLE_BINDING 5
#include "state.glsl"
#include "activation.glsl"

#define N_TAPS SPEC
#define BEFORE (N_TAPS - 1) /* rows of a block that stand for the positions before it */

uint quad; /* of channels: this lane's */

/* Where a row of a block has this lane's channels. */
uint state_at(uint block, uint row)
{
	return block * (CONV_WORDS(args.n_channels, N_TAPS) / 4) + row * (args.n_channels / 4) + quad;
}

/* What a row of the step gives to the convolution. */
vec4 input_of(uint row)
{
	uint at = row * args.stride_x / 4 + quad;
	vec4 value = x[at + args.x / 4];
	return args.gate_in != CONV_NONE ? value * x[at + args.gate_in / 4] : value;
}

/* The input `distance` positions before a row of the step, from the step where it has that row, else from the
 * block of the sequence's first row. */
vec4 input_before(uint row, uint distance)
{
	step_row r = step_rows[row];
	uint first = row;
	for (uint i = 0; i < distance && first > 0 && step_rows[first - 1].seq == r.seq; i++)
		first--;
	if (row - first == distance)
		return input_of(first);
	if (r.pos < distance)
		return vec4(0);
	uint start = (r.pos - (row - first)) / STATE_BLOCK * STATE_BLOCK;
	return state[state_at(state_block(r.seq, start), BEFORE + r.pos - distance - start)];
}

/* Keeps the input of a row, and at the end of a block what the next one looks back at. */
void keep(step_row r, vec4 taps[MAX_TAPS])
{
	uint block = state_block(r.seq, r.pos), t = r.pos % STATE_BLOCK;
	if (block != STATE_NONE)
		state[state_at(block, BEFORE + t)] = taps[BEFORE];
	if (t != STATE_BLOCK - 1)
		return;
	block = state_block(r.seq, r.pos + 1);
	if (block == STATE_NONE)
		return;
	[[unroll]] for (uint i = 0; i < BEFORE; i++)
		state[state_at(block, i)] = taps[i + 1];
}

void main()
{
	quad = flat_group() * (OUTPUTS_PER_GROUP / 4) + gl_LocalInvocationID.x;
	uint first = gl_WorkGroupID.z * N_ROWS, end = min(first + N_ROWS, step_head.n_rows);
	if (quad >= args.n_channels / 4)
		return;
	vec4 w[MAX_TAPS], taps[MAX_TAPS];
	[[unroll]] for (uint i = 0; i < N_TAPS; i++) {
		uint at = 4 * quad * N_TAPS + i;
		w[i] = vec4(weights[at], weights[at + N_TAPS], weights[at + 2 * N_TAPS],
			weights[at + 3 * N_TAPS]);
	}
	for (uint row = first; row < end; row++) {
		step_row r = step_rows[row];
		vec4 sum = vec4(0);
		if (row > first && step_rows[row - 1].seq == r.seq)
			[[unroll]] for (uint i = 0; i < BEFORE; i++)
				taps[i] = taps[i + 1];
		else
			[[unroll]] for (uint i = 0; i < BEFORE; i++)
				taps[i] = input_before(row, BEFORE - i);
		taps[BEFORE] = input_of(row);
		[[unroll]] for (uint i = 0; i < N_TAPS; i++)
			sum += w[i] * taps[i];
		if (args.silu != 0)
			sum = silu(sum);
		if (args.gate_out != CONV_NONE)
			sum *= x[row * args.stride_x / 4 + args.gate_out / 4 + quad];
		result[row * args.stride_out / 4 + quad] = sum;
		keep(r, taps);
	}
}
