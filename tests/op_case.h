/* A plan of a few ops alone on any backend: buffers that the host can see, and a run.  Each ends the test
 * when something fails. */
#ifndef LAPILLI_TESTS_OP_CASE_H
#define LAPILLI_TESTS_OP_CASE_H

#include <criterion/criterion.h>
#include <string.h>

#include "backend.h"

/* Device memory that the host writes directly. */
static struct view shared(struct backend *b, uint64_t n_bytes, void *bytes_of)
{
	struct lap_error err;
	struct view v = {.n_bytes = n_bytes};
	cr_assert_eq(b->ops->buffer_create(b, n_bytes, MEMORY_SHARED, "a test", &v.buffer, &err),
		LAP_OK, "%s", err.text);
	void *bytes = b->ops->buffer_map(v.buffer);
	memcpy(bytes_of, &bytes, sizeof bytes);
	return v;
}

static void run_plan(struct backend *b, struct runnable *r)
{
	struct lap_error err;
	uint64_t ticket;
	b->ops->begin(r);
	cr_assert_eq(b->ops->run(b, r, 1, &ticket, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->wait(b, ticket, &err), LAP_OK, "%s", err.text);
}

#endif
