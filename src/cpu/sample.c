/* The tail of a step: logits to tokens, and what follows from them for the next step.
 *
 * The arithmetic of a draw is sampler.c's. */
#include "kernels.h"
#include "sampler.h"

/* The best tokens of the step, where its ring entry will be; room for n. */
static void list_top(const struct sampler_row *row, u32 n, struct top_token *top)
{
	u32 n_top = row->s->n_top < n ? row->s->n_top : n;
	sampler_top(row, n_top, top);
	for (u32 i = n_top; i < n; i++)
		top[i] = (struct top_token){.token = UINT32_MAX};
}

void cpu_sample(const struct op *op, const struct step_header *step)
{
	const struct sample_args *a = &op->args.sample;
	struct sample_result *results = cpu_pointer(&op->buffers[0]);
	float *scratch = cpu_pointer(&op->buffers[1]);
	struct top_token *tops = cpu_pointer(&op->buffers[2]);
	const float *logits = cpu_pointer(&op->buffers[3]);
	const struct sequence *sequences = cpu_pointer(&op->buffers[4]);
	const u32 *history = cpu_pointer(&op->buffers[6]);
	const struct step_row *rows = (const struct step_row *)(step + 1);

	for (u32 i = 0; i < step->n_rows; i++) {
		u32 seq = rows[i].seq;
		const struct sequence *s = &sequences[seq];
		struct sampler_row row = sampler_cut(s, logits + (size_t)i * a->stride, a->n_vocab,
			history + (size_t)seq * a->history_stride + a->n_ctx,
			scratch + (size_t)i * a->stride);
		results[i] = sampler_draw(&row, rows[i].pos);
		if (s->n_top > 0 && a->n_top > 0)
			list_top(&row, a->n_top,
				tops +
					((size_t)seq * RING_ENTRIES + s->n_sampled % RING_ENTRIES) *
						a->n_top);
	}
}

/* ---- beams ----------------------------------------------------------------------------------- */

static bool is_stop(const struct sequence *s, u32 token)
{
	for (u32 i = 0; i < s->n_stop; i++)
		if (s->stop[i] == token)
			return true;
	return false;
}

static bool comes_before(const struct beam_candidate *a, const struct beam_candidate *b)
{
	if (a->score != b->score)
		return a->score > b->score;
	return a->row != b->row ? a->row < b->row : a->token < b->token;
}

/* Sorted as it is filled. */
void cpu_beam_select(const struct op *op, const struct step_header *step)
{
	const u32 n_top = op->args.beam_select.n_top;
	struct beam_choice *choice = cpu_pointer(&op->buffers[0]);
	struct beam_candidate *best = (struct beam_candidate *)(choice + 1);
	const struct sample_result *results = cpu_pointer(&op->buffers[1]);
	const struct top_token *tops = cpu_pointer(&op->buffers[2]);
	const struct sequence *sequences = cpu_pointer(&op->buffers[3]);
	const struct step_row *rows = (const struct step_row *)(step + 1);

	if (step->done)
		return;
	choice->n = choice->error = 0;
	for (u32 row = 0; row < step->n_rows; row++) {
		const u32 seq = rows[row].seq;
		const struct sequence *s = &sequences[seq];
		const size_t entry = (size_t)seq * RING_ENTRIES + s->n_sampled % RING_ENTRIES;
		const struct top_token *top = tops + entry * n_top;
		choice->error |= results[row].error != 0;
		for (u32 i = 0; i < n_top && i < s->n_top && top[i].token != UINT32_MAX; i++) {
			if (s->n_forbid_left != 0 && is_stop(s, top[i].token))
				continue;
			const struct beam_candidate c = {
				row, top[i].token, s->beam_score + top[i].log_prob, 0};
			u32 at = choice->n++;
			for (; at > 0 && comes_before(&c, &best[at - 1]); at--)
				best[at] = best[at - 1];
			best[at] = c;
		}
	}
}

/* ---- control --------------------------------------------------------------------------------- */

static void ring_append(
	struct sequence *s, struct ring_entry *ring, const struct sample_result *result)
{
	ring[s->n_sampled % RING_ENTRIES] = (struct ring_entry){
		.token = result->token,
		.log_prob = result->log_prob,
		.step = s->n_sampled + 1,
		.error = result->error,
	};
	s->n_sampled++;
	if (s->n_left > 0)
		s->n_left--;
	if (s->n_forbid_left > 0 && s->n_forbid_left != UINT32_MAX)
		s->n_forbid_left--;
}

/* The token at `pos` joins the history; its counts stay those of the last repeat_last_n tokens. */
static void history_append(const struct sequence *s, u32 *token, u32 n_ctx, u32 pos, u32 id)
{
	u32 *count = token + n_ctx;
	if (pos >= n_ctx)
		return;
	token[pos] = id;
	if (s->repeat_last_n == 0)
		return;
	count[id]++;
	if (pos >= s->repeat_last_n)
		count[token[pos - s->repeat_last_n]]--;
}

static bool sequence_ends(const struct sequence *s, u32 token, u32 pos)
{
	return is_stop(s, token) || s->n_left == 0 || pos >= s->n_ctx || s->cancel;
}

void cpu_control(const struct op *op, const struct step_header *step)
{
	const struct control_args *a = &op->args.control;
	struct step_header *next = cpu_pointer(&op->buffers[0]);
	struct step_row *rows = (struct step_row *)(next + 1);
	struct dispatch_size *sizes = cpu_pointer(&op->buffers[1]);
	struct sequence *sequences = cpu_pointer(&op->buffers[2]);
	struct ring_entry *ring = cpu_pointer(&op->buffers[3]);
	u32 *history = cpu_pointer(&op->buffers[4]);
	const struct sample_result *results = cpu_pointer(&op->buffers[5]);

	if (step->done)
		return;
	u32 n_kv = 0, n_active = 0;
	for (u32 i = 0; i < step->n_rows; i++) {
		struct step_row *row = &rows[i];
		struct sequence *s = &sequences[row->seq];
		if (!s->done) {
			u32 pos = row->pos + 1, token = results[i].token;
			ring_append(s, ring + (size_t)row->seq * RING_ENTRIES, &results[i]);
			s->error = results[i].error;
			if (!s->error)
				history_append(s, history + (size_t)row->seq * a->history_stride,
					a->n_ctx, pos, token);
			s->done = s->error || sequence_ends(s, token, pos);
			if (!s->done) {
				row->token = token;
				row->pos = pos;
				n_active++;
			}
		}
		n_kv = row->pos + 1 > n_kv ? row->pos + 1 : n_kv;
	}
	next->n_kv = n_kv;
	next->done = n_active == 0;
	sizes_update(sizes, a->n_sizes, next);
}
