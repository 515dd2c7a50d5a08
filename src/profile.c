/* Time by op: see profile.h. */
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"

/* *seconds: of the step; of_op[n_ops] is added to. */
static enum lap_status run(const struct trial *t, struct runnable *r, double *of_op,
	double *seconds, struct lap_error *err)
{
	struct backend *b = t->s->m->backend;
	uint64_t ticket;
	double *now = array_alloc(t->plan.n_ops, sizeof *now);
	if (!now)
		return fail_memory(err, "the times of ops", t->plan.n_ops * sizeof *now);
	trial_set_step(t);
	b->ops->begin(r);
	const double start = clock_seconds();
	enum lap_status status = b->ops->run(b, r, 1, &ticket, err);
	if (!status)
		status = b->ops->wait(b, ticket, err);
	*seconds += clock_seconds() - start;
	if (!status)
		status = b->ops->times(b, r, now, err);
	for (uint32_t i = 0; i < t->plan.n_ops && !status; i++)
		of_op[i] += now[i];
	free(now);
	return status;
}

/* "blk.7.attn_q.weight" -> "attn_q.weight" */
static const char *part_of(const char *label)
{
	unsigned layer;
	int n = 0;
	return sscanf(label, "blk.%u.%n", &layer, &n) == 1 && n ? label + n : label;
}

static int by_seconds(const void *a, const void *b)
{
	const struct profile_row *x = a, *y = b;
	return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static enum lap_status summarise(
	const struct trial *t, const double *of_op, struct profile *p, struct lap_error *err)
{
	struct backend *b = t->s->m->backend;
	trial_set_step(t);
	p->rows = array_alloc(t->plan.n_ops, sizeof *p->rows);
	if (!p->rows)
		return fail_memory(err, "a profile", t->plan.n_ops * sizeof *p->rows);
	for (uint32_t i = 0; i < t->plan.n_ops; i++) {
		const struct op *op = &t->plan.ops[i];
		const struct work work = op_work(op, t->prepared->step);
		const char *part = part_of(op->label);
		uint32_t at = 0;
		while (at < p->n &&
			(p->rows[at].kernel != op->kernel || p->rows[at].weight != op->weight ||
				strncmp(p->rows[at].part, part, sizeof p->rows[at].part - 1) != 0))
			at++;
		struct profile_row *row = &p->rows[at];
		if (at == p->n) {
			*row = (struct profile_row){.kernel = op->kernel, .weight = op->weight};
			snprintf(row->part, sizeof row->part, "%s", part);
			if (b->ops->knobs)
				b->ops->knobs(b, op, row->knobs);
			p->n++;
		}
		row->n_ops++;
		row->seconds += of_op[i];
		row->work.bytes += work.bytes;
		row->work.flops += work.flops;
	}
	qsort(p->rows, p->n, sizeof *p->rows, by_seconds);
	return LAP_OK;
}

enum lap_status profile_step(struct lap_session *s, enum role role, uint32_t n_rows,
	uint32_t n_past, uint32_t n_runs, struct profile *p, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	struct trial t;
	struct runnable *r = NULL;
	double *of_op = NULL, ignored = 0;
	*p = (struct profile){0};
	assert(n_runs > 0);
	enum lap_status status = trial_begin(&t, s, role, n_rows, n_past, err);
	if (!status)
		status = b->ops->prepare(b, &t.plan, true, &r, err);
	if (!status && !(of_op = array_alloc(t.plan.n_ops, sizeof *of_op)))
		status = fail_memory(err, "the times of ops", t.plan.n_ops * sizeof *of_op);
	if (!status)
		status = run(&t, r, of_op, &ignored, err);
	for (uint32_t i = 0; i < t.plan.n_ops && !status; i++)
		of_op[i] = 0;
	for (uint32_t i = 0; i < n_runs && !status; i++)
		status = run(&t, r, of_op, &p->seconds, err);
	for (uint32_t i = 0; i < t.plan.n_ops && !status; i++)
		of_op[i] /= n_runs;
	p->seconds /= n_runs;
	if (!status)
		status = summarise(&t, of_op, p, err);
	b->ops->release(b, r);
	trial_end(&t);
	free(of_op);
	return status;
}

void profile_free(struct profile *p)
{
	free(p->rows);
	*p = (struct profile){0};
}
