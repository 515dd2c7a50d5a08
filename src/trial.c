/* Steps for measurements: see trial.h. */
#include "trial.h"

void trial_set_step(const struct trial *t)
{
	struct step_row *rows = (struct step_row *)(t->prepared->step + 1);
	const uint32_t n_vocab = t->s->m->model->h.n_vocab;
	const bool decode = t->role == ROLE_DECODE;
	for (uint32_t i = 0; i < t->n_rows; i++) {
		rows[i] = (struct step_row){
			.token = i * 7919u % n_vocab,
			.pos = t->n_past + (decode ? 0 : i),
			.seq = decode ? i : 0,
		};
		if (decode)
			session_set_sequence(t->s, i,
				&(struct sequence){.greedy = 1, .n_ctx = t->s->n_ctx, .n_left = 2});
	}
	*t->prepared->step = (struct step_header){
		.n_rows = t->n_rows, .n_kv = t->n_past + (decode ? 1 : t->n_rows)};
}

enum lap_status trial_begin(struct trial *t, struct lap_session *s, enum role role, uint32_t n_rows,
	uint32_t n_past, struct lap_error *err)
{
	const bool decode = role == ROLE_DECODE;
	const uint32_t n = n_past + (decode ? 1 : n_rows);
	const uint32_t bucket = session_bucket(s, role, n_rows);
	assert(n_rows > 0 && n_rows <= (decode ? s->n_seq : s->n_batch));
	*t = (struct trial){.s = s, .role = role, .n_rows = n_rows, .n_past = n_past};
	t->prepared = session_prepared(s, role, STEP_DRAW, bucket);
	lap_session_clear(s);
	for (uint32_t i = 0; i < (decode ? n_rows : 1); i++)
		if (!timeline_reserve_chunk(s, &s->timelines[i], n_past) ||
			!timeline_reserve_chunk(s, &s->timelines[i], n))
			return fail(err, LAP_USAGE, "no room for %u tokens in the KV cache",
				(unsigned)n);
	enum lap_status status = session_plan(s, role, STEP_DRAW, bucket, &t->plan, err);
	if (!status)
		trial_set_step(t);
	return status;
}

void trial_end(struct trial *t)
{
	plan_free(&t->plan);
	lap_session_clear(t->s);
}
