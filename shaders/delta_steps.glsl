/* The gated delta rule a position at a time, as published, with S in registers: on lavapipe what a multiplication
 * costs is little beside a load.  A block's state and what its positions add give S in the middle of it by the same steps.
 *
 * An `if` costs here what is in it, taken or not; a loop without a turn costs nothing. */
layout(local_size_x = 8) in;
#include "delta.glsl"
#include "lanes.glsl"

#define UNITS ((DK + 31) / 32) /* of 32 elements of k: a quad for each lane */
#define ROUND 4                                    /* rows of S that move at once */

uint lane = gl_SubgroupInvocationID;
uint column = slice * DELTA_SLICE + 4 * lane; /* the first of this lane */
bool has_columns = column < args.dv;

vec4 s[MAX_STATE_DIM]; /* the columns; the others of MAX_STATE_DIM are not used */

/* The quads of a vector of dk elements that begins at a word of qkv; of one that begins at a word of the state. */
void qkv_vector(uint at, out vec4 x[MAX_STATE_DIM / 32])
{
	[[unroll]] for (uint unit = 0; unit < UNITS; unit++) {
		uint i = 8 * unit + lane;
		x[unit] = i < DK_QUADS ? qkv_quads[at / 4 + i] : vec4(0);
	}
}

void state_vector(uint at, out vec4 x[MAX_STATE_DIM / 32])
{
	[[unroll]] for (uint unit = 0; unit < UNITS; unit++) {
		uint i = 8 * unit + lane;
		x[unit] = i < DK_QUADS ? state_quads[at / 4 + i] : vec4(0);
	}
}

float vector_dot(vec4 x[MAX_STATE_DIM / 32], vec4 y[MAX_STATE_DIM / 32])
{
	float sum = 0;
	[[unroll]] for (uint unit = 0; unit < UNITS; unit++)
		sum += dot(x[unit], y[unit]);
	return lanes_sum(sum);
}

/* 1 / max(length, eps) */
float length_factor(vec4 x[MAX_STATE_DIM / 32])
{
	return 1 / max(sqrt(vector_dot(x, x)), args.eps);
}

/* S^T k and S^T q */
void look_up(vec4 key[MAX_STATE_DIM / 32], vec4 q[MAX_STATE_DIM / 32], out vec4 of_k, out vec4 of_q)
{
	of_k = of_q = vec4(0);
	[[unroll]] for (uint i = 0; i < DK_QUADS; i++) {
		vec4 ks = subgroupShuffle(key[i / 8], i % 8), qs = subgroupShuffle(q[i / 8], i % 8);
		[[unroll]] for (uint k = 0; k < 4; k++) {
			of_k += ks[k] * s[4 * i + k];
			of_q += qs[k] * s[4 * i + k];
		}
	}
}

/* S <- factor S + k u^T */
void add(float factor, vec4 key[MAX_STATE_DIM / 32], vec4 u)
{
	[[unroll]] for (uint i = 0; i < DK_QUADS; i++) {
		vec4 ks = subgroupShuffle(key[i / 8], i % 8);
		[[unroll]] for (uint k = 0; k < 4; k++)
			s[4 * i + k] = factor * s[4 * i + k] + ks[k] * u;
	}
}

/* The first ROUND rows of S are the last now. */
void state_turn()
{
	vec4 first[ROUND];
	[[unroll]] for (uint i = 0; i < ROUND; i++)
		first[i] = s[i];
	[[unroll]] for (uint i = 0; i < DK - ROUND; i++)
		s[i] = s[i + ROUND];
	[[unroll]] for (uint i = 0; i < ROUND; i++)
		s[DK - ROUND + i] = first[i];
}

/* S from the block where a sequence goes on, or else to the block it comes to. */
void state_move(uint block, bool is_first, bool is_nowhere)
{
	[[dont_unroll]] for (uint i = is_nowhere ? DK : 0; i < DK; i += ROUND) {
		[[unroll]] for (uint k = 0; k < ROUND; k++) {
			uint at = (s_at(block, column) + (i + k) * args.dv) / 4;
			if (has_columns && is_first)
				s[k] = state_quads[at];
			else if (has_columns)
				state_quads[at] = s[k];
		}
		state_turn();
	}
}

/* What a position adds. */
struct addition {
	vec4 key[MAX_STATE_DIM / 32], u;
	float decay; /* G behind it */
};

/* To the block; head and slice 0 of a group keep what the others have too. */
void keep_place(uint block, uint t, addition a)
{
	if (has_columns)
		state_quads[u_at(block, t, column) / 4] = a.u;
	if (slice > 0)
		return;
	if (lane == 0)
		state[decay_at(block, t)] = a.decay;
	[[unroll]] for (uint unit = 0; unit < UNITS; unit++)
		if (head == group && 8 * unit + lane < DK_QUADS)
			state_quads[k_at(block, t) / 4 + 8 * unit + lane] = a.key[unit];
}

/* At place t of the block, as earlier steps have left it. */
addition old_place(uint block, uint t)
{
	addition a;
	a.decay = state[decay_at(block, t)];
	state_vector(k_at(block, t), a.key);
	a.u = has_columns ? state_quads[u_at(block, t, column) / 4] : vec4(0);
	return a;
}

/* A row of the step, at place t of the block, before which G is `decay`; its output is written. */
addition new_place(uint block, uint t, uint row, float decay)
{
	addition a;
	vec4 q[MAX_STATE_DIM / 32], of_k, of_q;
	qkv_vector(q_at(row), q);
	qkv_vector(q_at(row) + args.n_group * DK, a.key);
	float k_factor = length_factor(a.key), q_factor = length_factor(q) / sqrt(float(DK));
	[[unroll]] for (uint unit = 0; unit < UNITS; unit++)
		a.key[unit] *= k_factor;
	look_up(a.key, q, of_k, of_q);
	a.decay = decay + decay_of(row);
	float factor = exp(a.decay - decay);
	vec4 v = has_columns ? qkv_quads[v_at(row, column) / 4] : vec4(0);
	a.u = beta_of(row) * (v - factor * of_k);
	vec4 o = (factor * of_q + vector_dot(a.key, q) * a.u) * q_factor; /* of all lanes: it shuffles */
	if (has_columns)
		result_quads[(row * args.stride_out + head * args.dv + column) / 4] = o;
	[[dont_unroll]] for (uint i = block == STATE_NONE ? 1 : 0; i < 1; i++)
		keep_place(block, t, a);
	return a;
}

void main()
{
	uint row = gl_WorkGroupID.z, end = sequence_end(row);
	if (row == end)
		return;
	uint seq = step_rows[row].seq, first = step_rows[row].pos, last = first + end - row;
	[[unroll]] for (uint i = 0; i < DK; i++)
		s[i] = vec4(0);
	[[dont_unroll]] for (uint start = first / STATE_BLOCK * STATE_BLOCK; start <= last;
		start += STATE_BLOCK) {
		uint block = block_words(seq, start);
		bool is_first = start <= first;
		float decay = 0;
		state_move(block, is_first, start == 0 || block == STATE_NONE);
		[[dont_unroll]] for (uint pos = start; pos < min(last, start + STATE_BLOCK); pos++) {
			addition a;
			[[dont_unroll]] for (uint i = pos < first ? 0 : 1; i < 1; i++)
				a = old_place(block, pos - start);
			[[dont_unroll]] for (uint i = pos < first ? 1 : 0; i < 1; i++)
				a = new_place(block, pos - start, row + pos - first, decay);
			add(exp(a.decay - decay), a.key, a.u);
			decay = a.decay;
		}
	}
}
