/* The reference kernels of recurrent layers: see kernels.h, and args.h for the blocks that state is kept in.
 *
 * The delta rule runs as its paper has it, a position at a time, where the shader takes a block at once. */
#include "kernels.h"

#include <math.h>
#include <string.h>

#define COLUMNS 8 /* of S that are computed together */

static const struct step_row *step_rows(const struct step_header *step)
{
	return (const struct step_row *)(step + 1);
}

/* The row before is of the same sequence. */
static bool goes_on(const struct step_row *rows, u32 row)
{
	return row > 0 && rows[row - 1].seq == rows[row].seq;
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* ---- convolution ------------------------------------------------------------------------------- */

/* The words of the block with a position, NULL where it is not kept. */
static float *block_of(float *state, const u32 *table, u32 n_blocks, u32 seq, u32 pos, size_t words)
{
	u32 block = table[(size_t)seq * n_blocks + pos / STATE_BLOCK];
	return block == STATE_NONE ? NULL : state + block * words;
}

struct convolution {
	const struct conv_args *args;
	const struct step_row *rows;
	const float *x;
	float *state;
	const u32 *table;
};

static float *conv_block(const struct convolution *t, u32 seq, u32 pos)
{
	return block_of(t->state, t->table, t->args->n_blocks, seq, pos,
		CONV_WORDS((size_t)t->args->n_channels, t->args->n_taps));
}

static float input_of(const struct convolution *t, u32 row, u32 channel)
{
	const struct conv_args *a = t->args;
	const float *x = t->x + (size_t)row * a->stride_x + channel;
	return a->gate_in != CONV_NONE ? x[a->x] * x[a->gate_in] : x[a->x];
}

/* The input `distance` positions before a row. */
static float input_before(const struct convolution *t, u32 row, u32 distance, u32 channel)
{
	const struct conv_args *a = t->args;
	const u32 pos = t->rows[row].pos;
	u32 first = row;
	while (row - first < distance && goes_on(t->rows, first))
		first--;
	if (row - first == distance)
		return input_of(t, first, channel);
	if (pos < distance)
		return 0;
	const u32 start = t->rows[first].pos / STATE_BLOCK * STATE_BLOCK;
	const float *block = conv_block(t, t->rows[row].seq, start);
	return block[(size_t)(a->n_taps - 1 + pos - distance - start) * a->n_channels + channel];
}

/* Keeps what a channel was given at a row, and at the end of a block what the next one looks back at. */
static void conv_keep(const struct convolution *t, u32 row, u32 channel, const float *taps)
{
	const struct conv_args *a = t->args;
	const struct step_row *r = &t->rows[row];
	const u32 before = a->n_taps - 1, place = r->pos % STATE_BLOCK;
	float *block = conv_block(t, r->seq, r->pos);
	if (block)
		block[(size_t)(before + place) * a->n_channels + channel] = taps[before];
	block = place == STATE_BLOCK - 1 ? conv_block(t, r->seq, r->pos + 1) : NULL;
	for (u32 i = 0; i < before && block; i++)
		block[(size_t)i * a->n_channels + channel] = taps[i + 1];
}

void cpu_conv(const struct op *op, const struct step_header *step)
{
	const struct conv_args *a = &op->args.conv;
	float *out = cpu_pointer(&op->buffers[0]);
	const float *weights = cpu_pointer(&op->buffers[3]);
	const struct convolution t = {a, step_rows(step), cpu_pointer(&op->buffers[2]),
		cpu_pointer(&op->buffers[1]), cpu_pointer(&op->buffers[5])};

	for (u32 row = 0; row < step->n_rows; row++)
		for (u32 c = 0; c < a->n_channels; c++) {
			float taps[MAX_TAPS];
			double sum = 0;
			for (u32 i = 0; i < a->n_taps; i++) {
				u32 distance = a->n_taps - 1 - i;
				taps[i] = distance ? input_before(&t, row, distance, c)
						   : input_of(&t, row, c);
				sum += (double)weights[(size_t)c * a->n_taps + i] * (double)taps[i];
			}
			if (a->silu)
				sum *= sigmoid(sum);
			if (a->gate_out != CONV_NONE)
				sum *= (double)t.x[(size_t)row * a->stride_x + a->gate_out + c];
			out[(size_t)row * a->stride_out + c] = (float)sum;
			conv_keep(&t, row, c, taps);
		}
}

/* ---- the gated delta rule ---------------------------------------------------------------------- */

/* Columns first .. first + n - 1 of a head's S, and what feeds them. */
struct recurrence {
	const struct delta_args *args;
	const struct step_row *rows;
	float *out, *state;
	const float *qkv, *gates, *dt_a;
	const u32 *table;
	u32 head, first, n;
	double s[MAX_STATE_DIM][COLUMNS];
	float decay; /* G of the position before */
};

/* What a position adds. */
struct addition {
	float k[MAX_STATE_DIM], u[COLUMNS], decay;
};

static float *delta_block(const struct recurrence *r, u32 seq, u32 pos)
{
	const struct {
		size_t n_group, n_head, dk, dv;
	} a = {r->args->n_group, r->args->n_head, r->args->dk, r->args->dv};
	return block_of(r->state, r->table, r->args->n_blocks, seq, pos, DELTA_WORDS(a));
}

/* Where a block has S in row i, k, u and G of position t. */
static float *s_of(const struct recurrence *r, float *block, u32 i)
{
	return block + ((size_t)r->head * r->args->dk + i) * r->args->dv + r->first;
}

static float *k_of(const struct recurrence *r, float *block, u32 t)
{
	const struct delta_args *a = r->args;
	return block + DELTA_K(*a) + ((size_t)t * a->n_group + r->head % a->n_group) * a->dk;
}

static float *u_of(const struct recurrence *r, float *block, u32 t)
{
	const struct delta_args *a = r->args;
	return block + DELTA_U(*a) + ((size_t)t * a->n_head + r->head) * a->dv + r->first;
}

static float *decay_of(const struct recurrence *r, float *block, u32 t)
{
	return block + DELTA_G(*r->args) + (size_t)t * r->args->n_head + r->head;
}

/* x / max(length of x, eps) * factor */
static void divide_length(const struct delta_args *a, const float *x, double factor, float *to)
{
	double squares = 0;
	for (u32 i = 0; i < a->dk; i++)
		squares += (double)x[i] * (double)x[i];
	factor /= fmax(sqrt(squares), (double)a->eps);
	for (u32 i = 0; i < a->dk; i++)
		to[i] = (float)((double)x[i] * factor);
}

/* S <- exp(g) S */
static void forget(struct recurrence *r, float decay)
{
	const double factor = exp((double)decay - (double)r->decay);
	for (u32 i = 0; i < r->args->dk; i++)
		for (u32 c = 0; c < r->n; c++)
			r->s[i][c] *= factor;
	r->decay = decay;
}

/* S <- S + k u^T */
static void add(struct recurrence *r, const struct addition *x)
{
	for (u32 i = 0; i < r->args->dk; i++)
		for (u32 c = 0; c < r->n; c++)
			r->s[i][c] += (double)x->k[i] * (double)x->u[c];
}

/* S^T x */
static void look_up(const struct recurrence *r, const float *x, double *values)
{
	for (u32 c = 0; c < r->n; c++) {
		values[c] = 0;
		for (u32 i = 0; i < r->args->dk; i++)
			values[c] += r->s[i][c] * (double)x[i];
	}
}

/* S before a row in the middle of a block: the start of the block, and what its positions have added. */
static void recurrence_begin(struct recurrence *r, const struct step_row *row)
{
	const struct delta_args *a = r->args;
	float *block = delta_block(r, row->seq, row->pos);
	memset(r->s, 0, sizeof r->s);
	r->decay = 0;
	for (u32 i = 0; i < a->dk && row->pos >= STATE_BLOCK; i++)
		for (u32 c = 0; c < r->n; c++)
			r->s[i][c] = (double)s_of(r, block, i)[c];
	for (u32 t = 0; t < row->pos % STATE_BLOCK; t++) {
		struct addition x;
		memcpy(x.k, k_of(r, block, t), a->dk * sizeof *x.k);
		memcpy(x.u, u_of(r, block, t), r->n * sizeof *x.u);
		forget(r, *decay_of(r, block, t));
		add(r, &x);
	}
}

/* Keeps what a row added; behind the last of a block S begins the next one. */
static void recurrence_keep(
	struct recurrence *r, const struct step_row *row, const struct addition *x)
{
	const struct delta_args *a = r->args;
	const u32 t = row->pos % STATE_BLOCK;
	float *block = delta_block(r, row->seq, row->pos);
	if (block) {
		memcpy(k_of(r, block, t), x->k, a->dk * sizeof *x->k);
		memcpy(u_of(r, block, t), x->u, r->n * sizeof *x->u);
		*decay_of(r, block, t) = x->decay;
	}
	if (t < STATE_BLOCK - 1)
		return;
	float *next = delta_block(r, row->seq, row->pos + 1);
	r->decay = 0;
	for (u32 i = 0; i < a->dk; i++)
		for (u32 c = 0; c < r->n; c++) {
			float s = (float)r->s[i][c];
			r->s[i][c] = (double)s;
			if (next)
				s_of(r, next, i)[c] = s;
		}
}

static void recurrence_step(struct recurrence *r, u32 row)
{
	const struct delta_args *a = r->args;
	const float *q_at = r->qkv + (size_t)row * a->stride_qkv + r->head % a->n_group * a->dk;
	const float *v = r->qkv + (size_t)row * a->stride_qkv + (size_t)2 * a->n_group * a->dk +
		(size_t)r->head * a->dv + r->first;
	const float *gates = r->gates + (size_t)row * a->stride_gates;
	const double x = (double)gates[a->alpha + r->head] + (double)r->dt_a[r->head];
	const double softplus = fmax(x, 0) + log1p(exp(-fabs(x)));
	const double beta = sigmoid((double)gates[a->beta + r->head]);
	double values[COLUMNS];
	float q[MAX_STATE_DIM];
	struct addition add_row = {.decay = (float)((double)r->decay +
					   (double)r->dt_a[a->n_head + r->head] * softplus)};

	divide_length(a, q_at, 1 / sqrt((double)a->dk), q);
	divide_length(a, q_at + (size_t)a->n_group * a->dk, 1, add_row.k);
	forget(r, add_row.decay);
	look_up(r, add_row.k, values);
	for (u32 c = 0; c < r->n; c++)
		add_row.u[c] = (float)(beta * ((double)v[c] - values[c]));
	add(r, &add_row);
	look_up(r, q, values);
	float *out = r->out + (size_t)row * a->stride_out + (size_t)r->head * a->dv + r->first;
	for (u32 c = 0; c < r->n; c++)
		out[c] = (float)values[c];
	recurrence_keep(r, &r->rows[row], &add_row);
}

static void delta_rule(const struct op *op, const struct step_header *step)
{
	const struct delta_args *a = &op->args.delta_decode;
	struct recurrence r = {.args = a,
		.rows = step_rows(step),
		.out = cpu_pointer(&op->buffers[0]),
		.state = cpu_pointer(&op->buffers[1]),
		.qkv = cpu_pointer(&op->buffers[2]),
		.gates = cpu_pointer(&op->buffers[3]),
		.dt_a = cpu_pointer(&op->buffers[4]),
		.table = cpu_pointer(&op->buffers[6])};
	for (r.head = 0; r.head < a->n_head; r.head++)
		for (r.first = 0; r.first < a->dv; r.first += COLUMNS) {
			r.n = a->dv - r.first < COLUMNS ? a->dv - r.first : COLUMNS;
			for (u32 row = 0; row < step->n_rows; row++) {
				if (!goes_on(r.rows, row))
					recurrence_begin(&r, &r.rows[row]);
				recurrence_step(&r, row);
			}
		}
}

void cpu_delta_decode(const struct op *op, const struct step_header *step)
{
	delta_rule(op, step);
}

void cpu_delta_prefill(const struct op *op, const struct step_header *step)
{
	delta_rule(op, step);
}
