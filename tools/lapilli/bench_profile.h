/* `bench --profile`: the rows of a test, an op each. */
#ifndef LAPILLI_BENCH_PROFILE_H
#define LAPILLI_BENCH_PROFILE_H

#include "bench_table.h"

/* What is profiled: a step of the test's kind in the middle of it. */
struct profile_test {
	const char *name;
	uint32_t n_prompt, n_gen, n_depth, n_parallel;
};

struct bench_table bench_profile_begin(const struct options *o);

/* Adds what the test showed to the verdict. */
enum lap_status bench_profile(struct bench_table *table, struct lap_model *model,
	const struct options *o, const struct profile_test *test, struct text *verdict,
	struct lap_error *err);

#endif
