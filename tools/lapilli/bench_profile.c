/* Profiles of steps: see bench_profile.h.
 *
 * Looks below the public header on purpose: no public function shows an op. */
#include "bench_profile.h"

#include "console.h"
#include "knobs.h"
#include "profile.h"
#include "source.h"

enum { N_RUNS = 3 };

static const char title[] =
	"| test | kernel | format | part | ops | ms | GB/s | GFLOP/s | share | knobs |\n"
	"| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |\n";

struct bench_table bench_profile_begin(const struct options *o)
{
	return bench_table_begin(o, title, true);
}

static enum lap_status print_row(struct bench_table *table, const char *test, double all,
	const struct profile_row *row, struct lap_error *err)
{
	const struct kernel_info *kernel = kernel_info(row->kernel);
	const char *format = kernel->per_weight ? weight_format(row->weight)->label : "";
	const double gb = per_second(row->work.bytes * 1e-9, row->seconds);
	const double gflop = per_second(row->work.flops * 1e-9, row->seconds);
	const double share = 100 * per_second(row->seconds, all);
	struct text line = {0}, knobs = {0};
	const bool fits = text_printf(&knobs, "%s", "") &&
		(!row->knobs[0] || knobs_print(row->kernel, row->knobs, &knobs)) &&
		text_printf(&line, "| %s | %s | %s | %s | %u | %.3f | %.2f | %.2f | %.1f %% | %s |",
			test, kernel->name, format, row->part, (unsigned)row->n_ops,
			1e3 * row->seconds, gb, gflop, share, knobs.data);
	enum lap_status status = fits
		? bench_table_row(table,
			  json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:s}", "test",
				  test, "kernel", kernel->name, "format", format, "part", row->part,
				  "ops", (json_int_t)row->n_ops, "ms", 1e3 * row->seconds, "gb_s",
				  gb, "gflop_s", gflop, "share", share, "knobs", knobs.data),
			  line.data, err)
		: fail_memory(err, "the table", 1);
	text_free(&knobs);
	text_free(&line);
	return status;
}

/* Rows are sorted, the longest first. */
static bool write_verdict(const struct profile_test *t, enum role role, uint32_t n_rows,
	const struct profile *p, double all, struct text *verdict)
{
	const struct profile_row *most = p->rows;
	return text_printf(verdict, "%s%s: a %s step of %u row%s takes %.1f ms",
		       verdict->n ? "; " : "", t->name, role == ROLE_DECODE ? "decode" : "prefill",
		       (unsigned)n_rows, n_rows == 1 ? "" : "s", 1e3 * p->seconds) &&
		(all > 0 ? text_printf(verdict, ", %.0f %% of it %s (%s)",
				   100 * most->seconds / all, most->part,
				   kernel_info(most->kernel)->name)
			 : text_printf(verdict, ", and the device takes no times of ops"));
}

enum lap_status bench_profile(struct bench_table *table, struct lap_model *model,
	const struct options *o, const struct profile_test *t, struct text *verdict,
	struct lap_error *err)
{
	struct lap_session_options so = source_session(o);
	struct lap_session *s = NULL;
	struct profile p = {0};
	const enum role role = t->n_prompt ? ROLE_PREFILL : ROLE_DECODE;
	uint32_t n_rows = t->n_prompt ? t->n_prompt : t->n_parallel;
	so.n_ctx_seq = t->n_depth + t->n_prompt + t->n_gen + 1;
	so.n_ctx = so.n_ctx_seq * t->n_parallel;
	so.n_seq = t->n_parallel;
	enum lap_status status = lap_session_create(model, &so, &s, err);
	if (!status && role == ROLE_PREFILL && n_rows > s->n_batch)
		n_rows = s->n_batch;
	if (!status)
		status = profile_step(s, role, n_rows, t->n_depth + t->n_gen / 2, N_RUNS, &p, err);
	double all = 0;
	for (uint32_t i = 0; i < p.n; i++)
		all += p.rows[i].seconds;
	if (!status && !write_verdict(t, role, n_rows, &p, all, verdict))
		status = fail_memory(err, "the verdict", verdict->n);
	for (uint32_t i = 0; i < p.n && !status; i++)
		status = print_row(table, t->name, all, &p.rows[i], err);
	profile_free(&p);
	lap_session_destroy(s);
	return status;
}
