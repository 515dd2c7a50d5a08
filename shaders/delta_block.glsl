/* The gated delta rule, the rows of a block up to ROWS at a time: a row's sums are those of the row alone, in the
 * order of the block's positions.  A lane has a column, and of its sums over dk one part of PARTS; of S it reads
 * only what it wrote itself.
 *
 * The includer defines ROWS and PARTS. */
#define LANES (DELTA_SLICE * PARTS)
layout(local_size_x = LANES) in;
#include "delta.glsl"
#define REDUCE_TYPE vec2
#include "reduce.glsl"

shared vec4 keys[STATE_BLOCK][MAX_STATE_DIM / 4]; /* of the block's positions: k, */
shared float updates[STATE_BLOCK][DELTA_SLICE];   /* u, */
shared float decays[STATE_BLOCK];                 /* and G */
shared float kk[ROWS][STATE_BLOCK], kq[ROWS][STATE_BLOCK]; /* what a row takes of each u for its own, and out */
shared float betas[ROWS], q_factors[ROWS];
#if PARTS > 1
shared vec2 parts[PARTS][ROWS][DELTA_SLICE];
#endif

uint lane = gl_LocalInvocationID.x, part = lane / DELTA_SLICE;
uint column = slice * DELTA_SLICE + lane % DELTA_SLICE;
bool has_column = column < args.dv;

/* The rows that are computed together: rows first .. first + n - 1 of the step, places t .. t + n - 1 of the block. */
struct piece {
	uint first, n, t;
	uint block; /* where its words begin; STATE_NONE: it is not kept */
	bool is_zero; /* S before the block is 0; elsewhere it is that of the block at .. */
	uint from;
};

/* What earlier steps left of the block. */
void block_load(uint block, uint t)
{
	for (uint i = lane; i < t * DK_QUADS; i += LANES)
		keys[i / DK_QUADS][i % DK_QUADS] =
			state_quads[k_at(block, i / DK_QUADS) / 4 + i % DK_QUADS];
	if (lane < t)
		decays[lane] = state[decay_at(block, lane)];
	for (uint j = part; j < t && has_column; j += PARTS)
		updates[j][lane % DELTA_SLICE] = state[u_at(block, j, column)];
}

/* k of the rows, and what q has to be multiplied by. */
void divide_lengths(piece p)
{
	for (uint r = 0; r < p.n; r++) {
		uint q = q_at(p.first + r) / 4, k = q + args.n_group * DK_QUADS;
		vec2 sum = vec2(0);
		for (uint i = lane; i < DK_QUADS; i += LANES)
			sum += vec2(dot(qkv_quads[q + i], qkv_quads[q + i]),
				dot(qkv_quads[k + i], qkv_quads[k + i]));
		vec2 factor = 1 / max(sqrt(group_sum(sum)), args.eps);
		for (uint i = lane; i < DK_QUADS; i += LANES)
			keys[p.t + r][i] = qkv_quads[k + i] * factor.y;
		if (lane == 0)
			q_factors[r] = factor.x / sqrt(float(DK));
	}
}

/* beta and G of the rows, a lane each. */
void weigh_rows(piece p)
{
	if (lane >= p.n)
		return;
	float sum = p.t > 0 ? decays[p.t - 1] : 0.0;
	for (uint r = 0; r <= lane; r++)
		sum += decay_of(p.first + r);
	decays[p.t + lane] = sum;
	betas[lane] = beta_of(p.first + lane);
}

/* What the rows have in common with each other and with those before. */
void compare_rows(piece p)
{
	for (uint i = lane; i < p.n * STATE_BLOCK; i += LANES) {
		uint r = i / STATE_BLOCK, j = i % STATE_BLOCK, t = p.t + r;
		uint q = q_at(p.first + r) / 4;
		vec2 sum = vec2(0);
		if (j > t)
			continue;
		for (uint d = 0; d < DK_QUADS; d++)
			sum += vec2(dot(keys[j][d], keys[t][d]), dot(keys[j][d], qkv_quads[q + d]));
		sum *= exp(decays[t] - decays[j]);
		kk[r][j] = betas[r] * sum.x;
		kq[r][j] = q_factors[r] * sum.y;
	}
}

/* Rows 4 * i .. 4 * i + 3 of S in this lane's column. */
vec4 state_quad(uint block, uint i)
{
	uint at = s_at(block, column) + 4 * i * args.dv;
	return vec4(state[at], state[at + args.dv], state[at + 2 * args.dv], state[at + 3 * args.dv]);
}

/* S^T k (x) and S^T q of the rows, for this lane's column. */
void read_state(piece p, out vec2 sums[ROWS])
{
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		sums[r] = vec2(0);
	for (uint i = part; i < DK_QUADS && has_column && !p.is_zero; i += PARTS) {
		vec4 s = state_quad(p.from, i);
		[[unroll]] for (uint r = 0; r < ROWS; r++) {
			uint there = min(r, p.n - 1);
			vec4 q = qkv_quads[q_at(p.first + there) / 4 + i];
			sums[r] += vec2(dot(s, keys[p.t + there][i]), dot(s, q));
		}
	}
#if PARTS > 1
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		parts[part][r][lane % DELTA_SLICE] = sums[r];
	barrier();
	for (uint i = 1; i < PARTS && part == 0; i++)
		[[unroll]] for (uint r = 0; r < ROWS; r++)
			sums[r] += parts[i][r][lane];
#endif
}

/* u and out of a row, r of the piece, for this lane's column. */
void finish_row(piece p, uint r, vec2 sums)
{
	uint row = p.first + r, t = p.t + r;
	vec2 sum = sums * exp(decays[t]);
	float u = betas[r] * (qkv[v_at(row, column)] - sum.x), o = q_factors[r] * sum.y;
	for (uint j = 0; j < t; j++) {
		u -= kk[r][j] * updates[j][lane];
		o += kq[r][j] * updates[j][lane];
	}
	updates[t][lane] = u;
	result[row * args.stride_out + head * args.dv + column] = o + kq[r][t] * u;
	if (p.block != STATE_NONE)
		state[u_at(p.block, t, column)] = u;
}

/* k and G of the rows, which heads of a group and slices have in common: one of them keeps them. */
void keep_rows(piece p)
{
	if (p.block == STATE_NONE || slice > 0)
		return;
	if (lane < p.n)
		state[decay_at(p.block, p.t + lane)] = decays[p.t + lane];
	for (uint i = lane; i < p.n * DK_QUADS && head == group; i += LANES)
		state_quads[k_at(p.block, p.t + i / DK_QUADS) / 4 + i % DK_QUADS] =
			keys[p.t + i / DK_QUADS][i % DK_QUADS];
}

/* The state behind a block that is full, to the start of another. */
void advance_state(piece p, uint to)
{
	float u[STATE_BLOCK], last = decays[STATE_BLOCK - 1], factor = exp(last);
	[[unroll]] for (uint j = 0; j < STATE_BLOCK; j++)
		u[j] = updates[j][lane % DELTA_SLICE] * exp(last - decays[j]);
	for (uint i = part; i < DK_QUADS && has_column; i += PARTS) {
		uint at = s_at(to, column) + 4 * i * args.dv;
		vec4 s = vec4(0);
		if (!p.is_zero)
			s = factor * state_quad(p.from, i);
		[[unroll]] for (uint j = 0; j < STATE_BLOCK; j++)
			s += keys[j][i] * u[j];
		[[unroll]] for (uint k = 0; k < 4; k++)
			state[at + k * args.dv] = s[k];
	}
}

void piece_run(piece p)
{
	vec2 sums[ROWS];
	barrier(); /* shared memory is free again */
	divide_lengths(p);
	weigh_rows(p);
	barrier();
	compare_rows(p);
	read_state(p, sums);
	barrier();
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		if (r < p.n && part == 0 && has_column)
			finish_row(p, r, sums[r]);
	keep_rows(p);
	barrier();
}

/* Rows row .. end - 1 of the step, all of one sequence. */
void sequence_run(uint row, uint end)
{
	uint seq = step_rows[row].seq, behind = block_words(seq, step_rows[end - 1].pos + 1);
	piece p;
	p.from = block_words(seq, step_rows[row].pos);
	block_load(p.from, step_rows[row].pos % STATE_BLOCK);
	for (p.first = row; p.first < end; p.first += p.n) {
		uint pos = step_rows[p.first].pos;
		p.t = pos % STATE_BLOCK;
		p.n = min(min(end - p.first, STATE_BLOCK - p.t), ROWS);
		p.block = block_words(seq, pos);
		p.is_zero = pos < STATE_BLOCK;
		piece_run(p);
		if (p.t + p.n < STATE_BLOCK)
			continue;
		uint next = block_words(seq, pos + p.n);
		next = next == STATE_NONE ? behind : next;
		advance_state(p, next);
		p.from = next;
	}
}

void main()
{
	uint row = gl_WorkGroupID.z, end = sequence_end(row);
	if (row < end)
		sequence_run(row, end);
}
