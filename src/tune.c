/* Candidates checked and timed: see tune.h. */
#include "tune.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "check.h"
#include "plan_time.h"
#include "work.h"

#define MAX_OPS       64   /* of a class that are timed together, so that caches do not hold them */
#define QUICK_SECONDS 0.02 /* for a candidate */
#define LONG_SECONDS  0.15
#define LEAST_GAIN    0.97 /* of the time without tuning: less is noise */

/* The ops of one class. */
struct group {
	struct op_class of;
	double bytes; /* that they move in a step: the largest are tuned first */
	struct op ops[MAX_OPS];
	uint32_t n_ops;
};

struct tuner {
	struct backend *b, *cpu;
	const struct plan *plan;
	const struct tune_options *options;
	tune_fn *on_found;
	void *user;
	double deadline; /* of clock_seconds; 0: none */
	uint32_t n_found;
	bool stopped;
	struct lap_error *err;
};

static bool time_is_up(const struct tuner *t)
{
	return t->stopped || (t->deadline > 0 && clock_seconds() > t->deadline);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
	const struct group *x = *(struct group *const *)a, *y = *(struct group *const *)b;
	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* All classes of the plan whose kernels have knobs here, in *groups (each freed by free_groups). */
static enum lap_status collect(const struct tuner *t, struct group ***groups, uint32_t *n_groups)
{
	struct step_header step;
	enum lap_status status = t->b->ops->read(t->b,
		(struct view){t->plan->step.buffer, t->plan->step.offset, sizeof step}, &step,
		sizeof step, t->err);
	*groups = array_alloc(t->plan->n_ops, sizeof **groups);
	if (!*groups)
		return fail_memory(t->err, "a tuner", t->plan->n_ops * sizeof **groups);
	for (uint32_t i = 0; i < t->plan->n_ops && !status; i++) {
		const struct op *op = &t->plan->ops[i];
		const struct op_class of = op_class(op);
		uint32_t values[MAX_KNOBS], g = 0;
		t->b->ops->knobs_untuned(t->b, op, values);
		if (!values[0]) /* all are of other builds */
			continue;
		while (g < *n_groups && !op_class_same(&(*groups)[g]->of, &of))
			g++;
		if (g == *n_groups) {
			(*groups)[g] = array_alloc(1, sizeof(struct group));
			if (!(*groups)[g])
				return fail_memory(t->err, "a tuner", sizeof(struct group));
			(*groups)[g]->of = of;
			++*n_groups;
		}
		struct group *group = (*groups)[g];
		group->bytes += op_work(op, &step).bytes;
		if (group->n_ops < MAX_OPS)
			group->ops[group->n_ops++] = *op;
	}
	qsort(*groups, *n_groups, sizeof **groups, by_bytes);
	return status;
}

static void free_groups(struct group **groups, uint32_t n)
{
	for (uint32_t i = 0; groups && i < n; i++)
		free(groups[i]);
	free(groups);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* The plan with the group's first n ops alone, run with these values. */
static struct plan plan_of(
	const struct tuner *t, struct group *g, uint32_t n, const uint32_t values[MAX_KNOBS])
{
	struct plan p = *t->plan;
	for (uint32_t i = 0; i < g->n_ops; i++)
		memcpy(g->ops[i].knobs, values, sizeof g->ops[i].knobs);
	p.ops = g->ops;
	p.n_ops = n;
	return p;
}

/* Of what the group's first op writes. */
static enum lap_status hash_output(
	struct tuner *t, struct group *g, const uint32_t values[MAX_KNOBS], uint64_t *hash)
{
	struct backend *b = t->b;
	const struct plan p = plan_of(t, g, 1, values);
	const struct view out = g->ops[0].buffers[0];
	struct runnable *r = NULL;
	uint64_t ticket;
	uint8_t *bytes = malloc(out.n_bytes);
	if (!bytes)
		return fail_memory(t->err, "a result", out.n_bytes);
	memset(bytes, 0xFF, out.n_bytes); /* so that an element that is left out shows */
	enum lap_status status = b->ops->write(b, out, bytes, out.n_bytes, t->err);
	if (!status)
		status = b->ops->prepare(b, &p, false, &r, t->err);
	if (!status) {
		b->ops->begin(r);
		status = b->ops->run(b, r, 1, &ticket, t->err);
	}
	if (!status)
		status = b->ops->wait(b, ticket, t->err);
	if (!status)
		status = b->ops->read(b, out, bytes, out.n_bytes, t->err);
	if (!status)
		*hash = XXH64(bytes, out.n_bytes, 0);
	b->ops->release(b, r);
	free(bytes);
	return status;
}

/* Against the reference, at the small shapes of check.c: all of them, or the last.  reason "": passed. */
static enum lap_status check_small(struct tuner *t, const struct op_class *of,
	const uint32_t values[MAX_KNOBS], char *reason, size_t n_reason)
{
	enum lap_status status = LAP_OK;
	bool checked = false;
	reason[0] = '\0';
	for (uint32_t i = check_n_cases(); i-- > 0 && !status && !reason[0];) {
		struct check_result result;
		if (check_case_kernel(i) != of->kernel || !check_case_small(i) ||
			check_case_weight(i) != of->weight)
			continue;
		status = check_run_knobs(t->b, t->cpu, i, 1, values, &result, t->err);
		if (!status && !result.passed)
			snprintf(reason, n_reason, "%s", result.reason);
		checked = true;
		if (!t->options->thorough)
			break;
	}
	assert(checked);
	(void)checked;
	return status;
}

static enum lap_status report(struct tuner *t, const struct tuned *found)
{
	if (!tuning_put(t->b->tuning, found))
		return fail_memory(t->err, "the tuning table", sizeof *found);
	t->n_found++;
	if (t->on_found && !t->on_found(t->user, found))
		t->stopped = true;
	return LAP_OK;
}

/* ---- one class ------------------------------------------------------------------------------- */

/* Checks and times one candidate; *best takes it when it is faster.  expected: the bits of the usual values. */
static enum lap_status try_values(struct tuner *t, struct group *g, const uint32_t *values,
	bool usual, uint64_t *expected, struct tuned *best)
{
	struct tuned now = {.of = g->of};
	uint64_t hash = 0;
	memcpy(now.knobs, values, sizeof now.knobs);
	enum lap_status status = check_small(t, &g->of, values, now.reason, sizeof now.reason);
	if (!status && !now.reason[0])
		status = hash_output(t, g, values, &hash);
	if (!status && usual && !now.reason[0])
		*expected = hash;
	if (!status && !now.reason[0] && *expected && hash != *expected)
		snprintf(now.reason, sizeof now.reason, "other bits than with the usual values");
	if (!status && now.reason[0]) {
		now.broken = true;
		return report(t, &now);
	}
	const struct plan p = plan_of(t, g, g->n_ops, values);
	if (!status)
		status = plan_time(t->b, &p, t->options->thorough ? LONG_SECONDS : QUICK_SECONDS,
			&now.seconds, t->err);
	now.seconds /= g->n_ops;
	now.usual_seconds = usual ? now.seconds : best->usual_seconds;
	const bool first = best->seconds == 0;
	if (!status &&
		(first ||
			now.seconds < best->seconds *
					(best->seconds == best->usual_seconds ? LEAST_GAIN : 1)))
		*best = now;
	return status;
}

/* Whether the group's ops run with these values: those they cannot have come to the same as others. */
static bool can_have(const struct tuner *t, const struct group *g, const uint32_t values[MAX_KNOBS])
{
	struct op op = g->ops[0];
	uint32_t found[MAX_KNOBS];
	memcpy(op.knobs, values, sizeof op.knobs);
	t->b->ops->knobs_untuned(t->b, &op, found);
	return memcmp(found, values, sizeof found) == 0;
}

static enum lap_status tune_group(struct tuner *t, struct group *g)
{
	const struct lap_device *d = t->b->device;
	struct tuning *tuning = t->b->tuning;
	struct tuned best = {.of = g->of};
	uint32_t usual[MAX_KNOBS], values[MAX_KNOBS] = {0}, n;
	uint64_t expected = 0;
	const struct knob *knobs = kernel_knobs(g->of.kernel, &n);
	enum lap_status status = LAP_OK;
	if (!t->options->thorough && tuning_find(tuning, &g->of, &best))
		return LAP_OK;
	t->b->ops->knobs_untuned(t->b, &g->ops[0], usual);
	memcpy(best.knobs, usual, sizeof usual);
	if (!tuning_is_broken(tuning, g->of.kernel, g->of.weight, usual) && !time_is_up(t))
		status = try_values(t, g, usual, true, &expected, &best);
	for (uint32_t i = 0; i < n; i++)
		values[i] = knobs[i].values[0];
	do {
		if (time_is_up(t) || status)
			break;
		if (memcmp(values, usual, sizeof values) != 0 && can_have(t, g, values) &&
			knobs_fit(g->of.kernel, values, d->max_invocations, d->subgroup_max,
				d->max_shared_bytes) &&
			!tuning_is_broken(tuning, g->of.kernel, g->of.weight, values))
			status = try_values(t, g, values, false, &expected, &best);
	} while (knobs_next(g->of.kernel, values));
	if (!status && best.seconds > 0) /* else there was no time: it stays to be measured */
		status = report(t, &best);
	return status;
}

enum lap_status tune_plan(struct backend *b, struct backend *cpu, const struct plan *plan,
	const struct tune_options *options, tune_fn *on_found, void *user, uint32_t *n_found,
	struct lap_error *err)
{
	struct tuner t = {.b = b,
		.cpu = cpu,
		.plan = plan,
		.options = options,
		.on_found = on_found,
		.user = user,
		.deadline = options->seconds > 0 ? clock_seconds() + options->seconds : 0,
		.err = err};
	struct group **groups = NULL;
	uint32_t n = 0;
	*n_found = 0;
	if (!b->tuning)
		return LAP_OK;
	enum lap_status status = collect(&t, &groups, &n);
	for (uint32_t i = 0; i < n && !status && !t.stopped; i++)
		status = tune_group(&t, groups[i]);
	free_groups(groups, n);
	*n_found = t.n_found;
	return status;
}
