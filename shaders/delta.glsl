/* The gated delta rule for the rows of a sequence: struct delta_args has the equations.  A workgroup takes the
 * columns of a slice of a head's S, and the rows of a block up to ROWS at a time: a row's sums are those of
 * the row alone, in the order of the block's positions.
 *
 * A lane has a column, and of its sums over dk one part of PARTS.  It reads only what of S it wrote itself.
 *
 * The includer defines ROWS and PARTS. */
#define LANES (DELTA_SLICE * PARTS)
layout(local_size_x = LANES) in;
layout(push_constant) uniform push { delta_args args; };
layout(std430, set = 0, binding = 0) writeonly buffer out_buffer { float result[]; };
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

#define REDUCE_TYPE vec2
#include "reduce.glsl"

#define DK_QUADS (args.dk / 4)

shared vec4 keys[STATE_BLOCK][MAX_STATE_DIM / 4]; /* of the block's positions: k, */
shared float updates[STATE_BLOCK][DELTA_SLICE];   /* u, */
shared float decays[STATE_BLOCK];                 /* and G */
shared float kk[ROWS][STATE_BLOCK], kq[ROWS][STATE_BLOCK]; /* what a row takes of each u for its own, and out */
shared float betas[ROWS], q_factors[ROWS];
#if PARTS > 1
shared vec2 parts[PARTS][ROWS][DELTA_SLICE];
#endif

uint lane = gl_LocalInvocationID.x, part = lane / DELTA_SLICE;
uint head = flat_group() / DELTA_SLICES(args.dv), group = head % args.n_group;
uint slice = flat_group() % DELTA_SLICES(args.dv), column = slice * DELTA_SLICE + lane % DELTA_SLICE;
bool has_column = column < args.dv;

/* The rows that are computed together: rows first .. first + n - 1 of the step, places t .. t + n - 1 of the block. */
struct piece {
	uint first, n, t;
	uint block; /* where its words begin; STATE_NONE: it is not kept */
};

/* The element of S in row 0 and this lane's column, of the block at these words. */
uint s_begin(uint block)
{
	return block + head * args.dk * args.dv + column;
}

/* What earlier steps left of the block. */
void block_load(uint block, uint t)
{
	uint k_at = (block + DELTA_K(args)) / 4 + group * DK_QUADS;
	for (uint i = lane; i < t * DK_QUADS; i += LANES)
		keys[i / DK_QUADS][i % DK_QUADS] =
			state_quads[k_at + i / DK_QUADS * args.n_group * DK_QUADS + i % DK_QUADS];
	if (lane < t)
		decays[lane] = state[block + DELTA_G(args) + lane * args.n_head + head];
	for (uint j = part; j < t && has_column; j += PARTS)
		updates[j][lane % DELTA_SLICE] =
			state[block + DELTA_U(args) + (j * args.n_head + head) * args.dv + column];
}

/* k of the rows, and what q has to be multiplied by. */
void divide_lengths(piece p)
{
	for (uint r = 0; r < p.n; r++) {
		uint q_at = (p.first + r) * args.stride_qkv / 4 + group * DK_QUADS;
		uint k_at = q_at + args.n_group * DK_QUADS;
		vec2 sum = vec2(0);
		for (uint i = lane; i < DK_QUADS; i += LANES)
			sum += vec2(dot(qkv_quads[q_at + i], qkv_quads[q_at + i]),
				dot(qkv_quads[k_at + i], qkv_quads[k_at + i]));
		vec2 factor = 1 / max(sqrt(group_sum(sum)), args.eps);
		for (uint i = lane; i < DK_QUADS; i += LANES)
			keys[p.t + r][i] = qkv_quads[k_at + i] * factor.y;
		if (lane == 0)
			q_factors[r] = factor.x / sqrt(float(args.dk));
	}
}

/* g of a row: how fast what was forgets, as a logarithm. */
float decay_of(uint row)
{
	float x = gates[row * args.stride_gates + args.alpha + head] + dt_a[head];
	return dt_a[args.n_head + head] * (max(x, 0.0) + log(1 + exp(-abs(x))));
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
	betas[lane] = sigmoid(gates[(p.first + lane) * args.stride_gates + args.beta + head]);
}

/* What the rows have in common with each other and with those before. */
void compare_rows(piece p)
{
	for (uint i = lane; i < p.n * STATE_BLOCK; i += LANES) {
		uint r = i / STATE_BLOCK, j = i % STATE_BLOCK, t = p.t + r;
		uint q_at = (p.first + r) * args.stride_qkv / 4 + group * DK_QUADS;
		vec2 sum = vec2(0);
		if (j > t)
			continue;
		for (uint d = 0; d < DK_QUADS; d++)
			sum += vec2(dot(keys[j][d], keys[t][d]), dot(keys[j][d], qkv_quads[q_at + d]));
		sum *= exp(decays[t] - decays[j]);
		kk[r][j] = betas[r] * sum.x;
		kq[r][j] = q_factors[r] * sum.y;
	}
}

/* S^T k (x) and S^T q of the rows, for this lane's column. */
void read_state(piece p, bool is_zero, uint from, out vec2 sums[ROWS])
{
	uint q_at = p.first * args.stride_qkv / 4 + group * DK_QUADS;
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		sums[r] = vec2(0);
	for (uint i = part; i < DK_QUADS && has_column && !is_zero; i += PARTS) {
		uint at = s_begin(from) + 4 * i * args.dv;
		vec4 s = vec4(state[at], state[at + args.dv], state[at + 2 * args.dv],
			state[at + 3 * args.dv]);
		[[unroll]] for (uint r = 0; r < ROWS; r++) {
			uint there = min(r, p.n - 1);
			vec4 q = qkv_quads[q_at + there * args.stride_qkv / 4 + i];
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
	uint v_at = row * args.stride_qkv + 2 * args.n_group * args.dk + head * args.dv;
	vec2 sum = sums * exp(decays[t]);
	float u = betas[r] * (qkv[v_at + column] - sum.x), o = q_factors[r] * sum.y;
	for (uint j = 0; j < t; j++) {
		u -= kk[r][j] * updates[j][lane];
		o += kq[r][j] * updates[j][lane];
	}
	updates[t][lane] = u;
	result[row * args.stride_out + head * args.dv + column] = o + kq[r][t] * u;
	if (p.block != STATE_NONE)
		state[p.block + DELTA_U(args) + (t * args.n_head + head) * args.dv + column] = u;
}

/* k and G of the rows, which heads of a group and slices have in common: one of them keeps them. */
void keep_rows(piece p)
{
	if (p.block == STATE_NONE || slice > 0)
		return;
	if (lane < p.n)
		state[p.block + DELTA_G(args) + (p.t + lane) * args.n_head + head] = decays[p.t + lane];
	if (head != group)
		return;
	uint k_at = (p.block + DELTA_K(args)) / 4 + (p.t * args.n_group + group) * DK_QUADS;
	for (uint i = lane; i < p.n * DK_QUADS; i += LANES)
		state_quads[k_at + i / DK_QUADS * args.n_group * DK_QUADS + i % DK_QUADS] =
			keys[p.t + i / DK_QUADS][i % DK_QUADS];
}

/* The state behind a block that is full; from: that before it. */
void advance_state(bool is_zero, uint from, uint to)
{
	float u[STATE_BLOCK], last = decays[STATE_BLOCK - 1], factor = exp(last);
	if (!has_column)
		return;
	[[unroll]] for (uint j = 0; j < STATE_BLOCK; j++)
		u[j] = updates[j][lane % DELTA_SLICE] * exp(last - decays[j]);
	for (uint i = part; i < DK_QUADS; i += PARTS) {
		uint at = s_begin(from) + 4 * i * args.dv, to_at = s_begin(to) + 4 * i * args.dv;
		vec4 s = vec4(0);
		if (!is_zero)
			s = factor * vec4(state[at], state[at + args.dv], state[at + 2 * args.dv],
				state[at + 3 * args.dv]);
		[[unroll]] for (uint j = 0; j < STATE_BLOCK; j++)
			s += keys[j][i] * u[j];
		[[unroll]] for (uint k = 0; k < 4; k++)
			state[to_at + k * args.dv] = s[k];
	}
}

/* Where the words of the block with a position begin. */
uint block_words(uint seq, uint pos)
{
	uint block = state_block(seq, pos);
	return block == STATE_NONE ? block : block * DELTA_WORDS(args);
}

/* Rows of a piece; from: S before the block. */
void rows_run(piece p, bool is_zero, uint from)
{
	vec2 sums[ROWS];
	divide_lengths(p);
	weigh_rows(p);
	barrier();
	compare_rows(p);
	read_state(p, is_zero, from, sums);
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
	uint from = block_words(seq, step_rows[row].pos), n;
	for (uint first = row; first < end; first += n) {
		uint pos = step_rows[first].pos, t = pos % STATE_BLOCK;
		bool is_zero = pos < STATE_BLOCK;
		uint block = block_words(seq, pos);
		n = min(min(end - first, STATE_BLOCK - t), ROWS);
		if (first == row)
			block_load(block, t);
		barrier();
		rows_run(piece(first, n, t, block), is_zero, from);
		if (t + n < STATE_BLOCK)
			continue;
		uint next = block_words(seq, pos + n);
		if (next == STATE_NONE)
			next = behind;
		advance_state(is_zero, from, next);
		from = next;
	}
}

void main()
{
	uint row = gl_WorkGroupID.z, end = row + 1;
	if (head >= args.n_head || row >= step_head.n_rows)
		return;
	if (row > 0 && step_rows[row - 1].seq == step_rows[row].seq)
		return; /* the workgroup of the sequence's first row takes it */
	while (end < step_head.n_rows && step_rows[end].seq == step_rows[row].seq)
		end++;
	sequence_run(row, end);
}
