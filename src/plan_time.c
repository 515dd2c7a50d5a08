/* Timing of plans: see plan_time.h. */
#include "plan_time.h"

#define SUBMIT_SECONDS 0.03
#define MAX_TIMES      256 /* of one submit */

/* Seconds of the plan once, in one submit of n_times. */
static enum lap_status run(struct backend *b, struct runnable *r, uint32_t n_times, double *seconds,
	struct lap_error *err)
{
	uint64_t ticket;
	b->ops->begin(r);
	const double start = clock_seconds();
	enum lap_status status = b->ops->run(b, r, n_times, &ticket, err);
	if (!status)
		status = b->ops->wait(b, ticket, err);
	*seconds = (clock_seconds() - start) / n_times;
	return status;
}

static uint32_t times_of(double seconds)
{
	const double times = seconds > 0 ? SUBMIT_SECONDS / seconds : MAX_TIMES;
	return times > MAX_TIMES ? MAX_TIMES : times < 1 ? 1 : (uint32_t)times;
}

enum lap_status plan_time(struct backend *b, const struct plan *p, double budget, double *seconds,
	struct lap_error *err)
{
	struct runnable *r = NULL;
	double now = 0, best = 0;
	enum lap_status status = p->out_of_memory ? fail_memory(err, "a plan", sizeof(struct op))
						  : b->ops->prepare(b, p, false, &r, err);
	const double start = clock_seconds();
	if (!status) /* which may compile, or wake the device */
		status = run(b, r, 1, &now, err);
	if (!status)
		status = run(b, r, 1, &best, err);
	while (!status && clock_seconds() - start < budget) {
		status = run(b, r, times_of(best), &now, err);
		best = !status && now < best ? now : best;
	}
	b->ops->release(b, r);
	*seconds = best;
	return status;
}
