/* The check before the first product: see check_matrices.h. */
#include "check_matrices.h"

#include <stdio.h>

#include "check_side.h"

/* One format whose numbers are halves, and one with scales. */
static bool is_tried(const struct check_case *c, enum weight weight)
{
	return c->flags & SMALL &&
		(c->kernel == KERNEL_matmul || c->kernel == KERNEL_expert_matmul) &&
		(weight == WEIGHT_f16 || weight == WEIGHT_q8_0);
}

/* why "": all are right. */
static enum lap_status find_wrong(struct backend *b, char *why, size_t n_why, struct lap_error *err)
{
	struct backend *cpu;
	why[0] = '\0';
	enum lap_status status = cpu_open(&cpu, err);
	const uint32_t n = check_n_cases();
	for (uint32_t i = 0; i < n && !status && !why[0]; i++) {
		struct check_result result;
		struct lap_error fault;
		enum weight weight;
		char name[96];
		if (!is_tried(case_find(i, &weight), weight))
			continue;
		check_case_name(i, name, sizeof name);
		const enum lap_status ran = check_run(b, cpu, i, 1, &result, &fault);
		if (ran == LAP_NO_MEMORY)
			status = fail(err, ran, "%s", fault.text);
		else if (ran || !result.passed)
			snprintf(why, n_why, "%s: %.60s", name, ran ? fault.text : result.reason);
	}
	if (cpu)
		cpu->ops->close(cpu);
	return status;
}

enum lap_status check_matrices(struct backend *b, const struct log *log, struct lap_error *err)
{
	char why[160];
	if (!b->has_matrices || tuning_is_off(b->tuning, FEATURE_COOPMAT))
		return LAP_OK;
	enum lap_status status = find_wrong(b, why, sizeof why, err);
	if (status || !why[0])
		return status;
	tuning_switch(b->tuning, FEATURE_COOPMAT, why);
	log_line(log, LAP_LOG_WARNING,
		"%s computes wrong products on its matrix units, which are left out: %s", b->name,
		why);
	struct lap_error lost;
	if (b->ops->tuning_save(b, &lost))
		log_line(log, LAP_LOG_WARNING, "%s: they will be tried again", lost.text);
	return LAP_OK;
}
