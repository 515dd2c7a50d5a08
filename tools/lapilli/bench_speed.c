/* `lapilli bench`: tokens a second, with the names and columns of llama-bench where it has them.
 *
 * pp512: 512 tokens of a prompt. tg128: 128 tokens generated, greedily, one after the other. tg128 np4: for
 * four sequences at once, all their tokens together. pp512+tg128: one behind the other. @ d512: with
 * 512 tokens in the context before. Prompts are random tokens, always the same; every test runs once
 * before it is measured, so that recordings and pipelines are there.
 *
 * Beside each speed stands how much of the device's memory bandwidth and arithmetic that is, both measured
 * first, and what it costs: CPU time of the process with all its threads (a software device computes in
 * them) and of the thread that runs the steps alone.
 *
 * Looks below the public header on purpose, for those rates and for what a step computes, which no public
 * function shows. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "answer.h"
#include "bench.h"
#include "bench_profile.h"
#include "bench_table.h"
#include "console.h"
#include "progress.h"
#include "rates.h"
#include "session.h"
#include "signals.h"
#include "source.h"
#include "work.h"

enum { MAX_VALUES = 16, MAX_TOKENS = 1 << 24, MAX_PARALLEL = 32, WARM_TOKENS = 8 };

struct values {
	uint32_t items[MAX_VALUES];
	uint32_t n;
};

/* What is measured. */
struct test {
	uint32_t n_prompt, n_gen, n_depth, n_parallel;
	char name[96];
};

/* And what came out. */
struct row {
	const struct test *test;
	double seconds[1000], mean, deviation; /* of tok/s */
	uint32_t n_samples;
	double cpu_seconds, host_seconds, submits, flops; /* a token */
	double bytes_per_step;                            /* 0: not known, as of prompts */
	double bytes_per_second, flops_per_second;
	uint64_t device_bytes; /* of model and session */
};

struct bench {
	const struct options *o;
	struct lap_model *model;
	struct rates rates;
	struct values prompts, predicts, depths, parallel;
	struct values both_prompt, both_predict;
	struct bench_table table;
	struct row row;
	struct progress progress;
	uint32_t n_runs, n_done;             /* of all tests, the first of each included */
	struct text prompt_speed, gen_speed; /* of the first test of each, in words */
	struct text profiled;                /* of every test, with --profile */
};

/* ---- options --------------------------------------------------------------------------------- */

static enum lap_status parse_values(const char *name, const char *text, uint32_t from, uint32_t to,
	struct values *values, struct lap_error *err)
{
	const char *at = text;
	for (values->n = 0; values->n < MAX_VALUES;) {
		char *end;
		errno = 0;
		unsigned long value = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : ULONG_MAX;
		if (errno || value < from || value > to)
			break;
		values->items[values->n++] = (uint32_t)value;
		if (*end == '\0')
			return LAP_OK;
		if (*end != ',')
			break;
		at = end + 1;
	}
	return fail(err, LAP_USAGE,
		"%s: found \"%.60s\", expected at most %d numbers from %u to %u with commas "
		"between them",
		name, text, MAX_VALUES, (unsigned)from, (unsigned)to);
}

static enum lap_status parse_tests(struct bench *b, struct lap_error *err)
{
	const struct options *o = b->o;
	const struct {
		const char *name, *given, *usual;
		uint32_t from, to;
		struct values *values;
	} lists[] = {
		{"-p", o->bench_prompt, "512", 0, MAX_TOKENS, &b->prompts},
		{"-n", o->bench_predict, "128", 0, MAX_TOKENS, &b->predicts},
		{"-d", o->bench_depth, "0", 0, MAX_TOKENS, &b->depths},
		{"-np", o->bench_parallel, "1", 1, MAX_PARALLEL, &b->parallel},
	};
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(lists) && !status; i++)
		status = parse_values(lists[i].name,
			lists[i].given ? lists[i].given : lists[i].usual, lists[i].from,
			lists[i].to, lists[i].values, err);
	if (!status && o->bench_both.n > MAX_VALUES)
		status = fail(err, LAP_USAGE, "-pg: given %zu times, expected at most %d times",
			o->bench_both.n, MAX_VALUES);
	for (size_t i = 0; i < o->bench_both.n && !status; i++) {
		struct values pair;
		status = parse_values("-pg", o->bench_both.texts[i], 1, MAX_TOKENS, &pair, err);
		if (!status && pair.n != 2)
			status = fail(err, LAP_USAGE, "-pg: found \"%.60s\", expected P,N",
				o->bench_both.texts[i]);
		b->both_prompt.items[i] = pair.items[0];
		b->both_predict.items[i] = pair.items[1];
	}
	b->both_prompt.n = (uint32_t)o->bench_both.n;
	return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void fill_prompt(int32_t *ids, size_t n, uint32_t seed, uint32_t n_vocab)
{
	uint32_t state = seed + 1;
	for (size_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u;
		ids[i] = (int32_t)((uint64_t)(state >> 8) * n_vocab >> 24);
	}
}

/* What a token in the middle of the test computes. */
static enum lap_status count_flops(
	struct lap_session *s, const struct test *t, struct row *row, struct lap_error *err)
{
	struct plan plan = {0};
	const struct step_header step = {
		.n_rows = 1, .n_kv = t->n_depth + (t->n_prompt + t->n_gen) / 2 + 1};
	enum lap_status status =
		session_plan(s, t->n_prompt ? ROLE_PREFILL : ROLE_DECODE, STEP_DRAW, 0, &plan, err);
	for (uint32_t i = 0; i < plan.n_ops && !status; i++)
		row->flops += op_work(&plan.ops[i], &step).flops;
	plan_free(&plan);
	return status;
}

struct run {
	struct lap_session *session;
	struct lap_request requests[MAX_PARALLEL];
	int32_t *prompts[MAX_PARALLEL];
	uint32_t n;
};

/* All sequences: n_prompt tokens of their prompts and n_predict behind; *seconds: what that took. */
static enum lap_status generate(
	struct run *r, size_t n_prompt, int64_t n_predict, double *seconds, struct lap_error *err)
{
	const struct lap_generate_options options = {
		.n_predict = n_predict, .ignore_eos = true}; /* greedy */
	for (uint32_t i = 0; i < r->n; i++)
		r->requests[i] = (struct lap_request){
			.prompt = r->prompts[i], .n = n_prompt, .options = &options};
	const double start = clock_seconds();
	enum lap_status status = lap_generate_batch(r->session, r->requests, r->n, err);
	*seconds = clock_seconds() - start;
	for (uint32_t i = 0; i < r->n && !status; i++)
		if (r->requests[i].status)
			status = fail(err, r->requests[i].status, "%s", r->requests[i].error.text);
	if (!status && interrupted())
		status = fail(err, LAP_ERROR, "interrupted");
	return status;
}

/* The context as the test finds it, then the test, whose CPU time is added to *cpu_seconds. The last token of
 * a prompt is the row of the first generated one, so one more is given. */
static enum lap_status run_once(struct run *r, const struct test *t, uint32_t n_gen,
	double *seconds, double *cpu_seconds, struct lap_error *err)
{
	double ignored;
	enum lap_status status = LAP_OK;
	lap_session_clear(r->session);
	if (t->n_depth)
		status = generate(r, t->n_depth + 1, 0, &ignored, err);
	const double before = clock_cpu_seconds();
	if (!status)
		status = generate(r, t->n_depth + t->n_prompt + 1, n_gen, seconds, err);
	*cpu_seconds += clock_cpu_seconds() - before;
	return status;
}

static void take_counters(
	const struct bench *b, const struct run *r, const struct test *t, struct row *row)
{
	const double n_tokens = (double)t->n_prompt + (double)t->n_gen * r->n;
	const double weights = (double)lap_model_info(b->model)->step_bytes;
	double kv = 0, submits = 0, thread = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		const struct lap_generation *g = &r->requests[i].result;
		kv += (double)g->step_bytes - weights;
		submits = fmax(submits, g->submits); /* of the last to leave: all of the call */
		thread = fmax(thread, g->host_thread_seconds);
	}
	/* What the steps read on average: the context grew while they ran. */
	kv *= (t->n_depth + 0.5 * t->n_gen) / (t->n_depth + t->n_gen + 1.0);
	row->submits += submits / n_tokens;
	row->host_seconds += thread / n_tokens;
	row->bytes_per_step = t->n_prompt ? 0 : weights + kv;
}

static void summarise(struct row *row)
{
	const struct test *t = row->test;
	const double n_tokens = (double)t->n_prompt + (double)t->n_gen * t->n_parallel;
	double sum = 0, squares = 0;
	for (uint32_t i = 0; i < row->n_samples; i++)
		sum += per_second(n_tokens, row->seconds[i]);
	row->mean = sum / row->n_samples;
	for (uint32_t i = 0; i < row->n_samples; i++) {
		const double off = per_second(n_tokens, row->seconds[i]) - row->mean;
		squares += off * off;
	}
	row->deviation = row->n_samples > 1 ? sqrt(squares / (row->n_samples - 1)) : 0;
	row->submits /= row->n_samples;
	row->cpu_seconds /= row->n_samples * n_tokens;
	row->host_seconds /= row->n_samples;
	row->bytes_per_second = row->bytes_per_step * row->mean / t->n_parallel;
	row->flops_per_second = row->flops * row->mean;
}

static void count_run(struct bench *b)
{
	progress_show(&b->progress, ++b->n_done, b->n_runs);
}

static enum lap_status measure(struct bench *b, const struct test *t, struct lap_error *err)
{
	struct row *row = &b->row;
	struct run r = {.n = t->n_parallel};
	const size_t n_ids = (size_t)t->n_depth + t->n_prompt + 1;
	const uint32_t n_vocab = lap_model_info(b->model)->n_vocab;
	struct lap_session_options so = source_session(b->o);
	so.n_ctx_seq = (uint32_t)n_ids + t->n_gen;
	so.n_ctx_seq += so.n_ctx_seq == n_ids; /* room for one behind a prompt */
	so.n_ctx = so.n_ctx_seq * r.n;
	so.n_seq = r.n;
	*row = (struct row){.test = t};
	enum lap_status status = lap_session_create(b->model, &so, &r.session, err);
	for (uint32_t i = 0; i < r.n && !status; i++) {
		r.prompts[i] = array_alloc(n_ids, sizeof *r.prompts[i]);
		if (!r.prompts[i])
			status = fail_memory(err, "a prompt", n_ids * sizeof(int32_t));
		else
			fill_prompt(r.prompts[i], n_ids, i, n_vocab);
	}
	interrupt_session(r.session);
	double ignored = 0;
	row->device_bytes = b->model->backend->device_bytes;
	if (!status)
		status = run_once(&r, t, t->n_gen < WARM_TOKENS ? t->n_gen : WARM_TOKENS, &ignored,
			&ignored, err);
	count_run(b);
	if (!status)
		status = count_flops(r.session, t, row, err);
	for (int64_t i = 0; i < b->o->bench_repeat && !status; i++) {
		status = run_once(&r, t, t->n_gen, &row->seconds[i], &row->cpu_seconds, err);
		if (!status)
			take_counters(b, &r, t, row);
		row->n_samples += !status;
		count_run(b);
	}
	interrupt_session(NULL);
	for (uint32_t i = 0; i < r.n; i++)
		free(r.prompts[i]);
	lap_session_destroy(r.session);
	if (!status)
		summarise(row);
	return status;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Of what the device can do, in percent. */
static double share(double rate, double most)
{
	return 100 * per_second(rate, most);
}

static double peak_bytes(void) /* of memory that the process had at once */
{
	struct rusage usage = {0};
	getrusage(RUSAGE_SELF, &usage);
	return 1024.0 * (double)usage.ru_maxrss;
}

static const char *activations(const struct bench *b)
{
	return b->o->activations ? "q8" : "f32";
}

static json_t *row_json(const struct bench *b)
{
	const struct row *row = &b->row;
	const struct test *t = row->test;
	const struct rates *rates = &b->rates;
	const struct lap_model_info *m = lap_model_info(b->model);
	const double n_tokens = (double)t->n_prompt + (double)t->n_gen * t->n_parallel;
	const bool known = row->bytes_per_step > 0;
	json_t *samples = json_array();
	for (uint32_t i = 0; i < row->n_samples; i++)
		json_array_append_new(samples, json_real(per_second(n_tokens, row->seconds[i])));
	return json_pack("{s:s, s:s, s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, "
			 "s:f, s:o, s:f, "
			 "s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:I, s:f}",
		"test", t->name, "version", lap_version(), "model",
		json_bytes(model_name(m), strlen(model_name(m))), "device",
		json_bytes(m->device_name, strlen(m->device_name)), "architecture", m->architecture,
		"activations", activations(b), "model_size", (json_int_t)m->weight_bytes,
		"model_n_params", (json_int_t)m->n_weights, "n_prompt", (json_int_t)t->n_prompt,
		"n_gen", (json_int_t)t->n_gen, "n_depth", (json_int_t)t->n_depth, "n_parallel",
		(json_int_t)t->n_parallel, "repetitions", (json_int_t)row->n_samples, "tok_s",
		row->mean, "stddev_tok_s", row->deviation, "samples_tok_s", samples,
		"cpu_ms_per_token", 1e3 * row->cpu_seconds, "host_ms_per_token",
		1e3 * row->host_seconds, "gb_s",
		known ? json_real(row->bytes_per_second * 1e-9) : json_null(), "pct_bandwidth",
		known ? json_real(share(row->bytes_per_second, rates->bytes_per_second))
		      : json_null(),
		"gflop_s", row->flops_per_second * 1e-9, "pct_arithmetic",
		share(row->flops_per_second, rates->flops_per_second), "submits_per_token",
		row->submits, "bandwidth_gb_s", rates->bytes_per_second * 1e-9,
		"arithmetic_gflop_s", rates->flops_per_second * 1e-9, "device_bytes",
		(json_int_t)row->device_bytes, "peak_rss_bytes", peak_bytes());
}

static const char title[] =
	"| model | size | params | device | test | t/s | CPU ms/token | host ms/token | GB/s | "
	"% of bandwidth | GFLOP/s | % of arithmetic | submits/token | device memory |\n"
	"| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
	"| "
	"---: |\n";

static bool markdown(const struct bench *b, struct text *line)
{
	const struct row *row = &b->row;
	const struct lap_model_info *m = lap_model_info(b->model);
	char gb[32] = "", percent[32] = "";
	if (row->bytes_per_step > 0) {
		snprintf(gb, sizeof gb, "%.2f", row->bytes_per_second * 1e-9);
		snprintf(percent, sizeof percent, "%.1f",
			share(row->bytes_per_second, b->rates.bytes_per_second));
	}
	return text_printf(line,
		"| %s %s | %s | %.2f M | %s | %s%s | %.2f ± %.2f | %.3f | %.3f | %s | %s | %.2f | "
		"%.1f | %.3f | %s |",
		m->architecture, model_name(m), bytes_text(m->weight_bytes),
		(double)m->n_weights * 1e-6, m->device_name, row->test->name,
		b->o->activations ? " q8" : "", row->mean, row->deviation, 1e3 * row->cpu_seconds,
		1e3 * row->host_seconds, gb, percent, row->flops_per_second * 1e-9,
		share(row->flops_per_second, b->rates.flops_per_second), row->submits,
		bytes_text(row->device_bytes));
}

/* What the verdict says of the first prompt and the first generated text. */
static bool keep_speed(struct bench *b)
{
	const struct row *row = &b->row;
	const struct test *t = row->test;
	struct text *text = t->n_gen ? &b->gen_speed : &b->prompt_speed;
	if (text->n || (t->n_gen && t->n_prompt))
		return true;
	const double most = t->n_gen ? share(row->bytes_per_second, b->rates.bytes_per_second)
				     : share(row->flops_per_second, b->rates.flops_per_second);
	return text_printf(text, "%s at %.1f tok/s (%s, %.0f %% of what its %s allows)",
		t->n_gen ? "text" : "prompts", row->mean, t->name, most,
		t->n_gen ? "memory" : "arithmetic");
}

static bool write_verdict(const struct bench *b, struct text *text)
{
	const struct lap_model_info *m = lap_model_info(b->model);
	const struct text *parts[] = {&b->profiled, &b->prompt_speed, &b->gen_speed};
	const char *before = " ";
	bool fits = text_printf(text, "%s on %s:", model_name(m), m->device_name);
	for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
		if (parts[i]->n) {
			fits = fits && text_printf(text, "%s%s", before, parts[i]->data);
			before = ", ";
		}
	return fits && (*before == ',' || text_printf(text, " as below"));
}

static enum lap_status print_row(struct bench *b, struct lap_error *err)
{
	struct text line = {0};
	progress_clear(&b->progress);
	enum lap_status status = markdown(b, &line) && keep_speed(b)
		? bench_table_row(&b->table, row_json(b), line.data, err)
		: fail_memory(err, "the table", 1);
	text_free(&line);
	return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum lap_status try_one(struct bench *b, struct test t, struct lap_error *err)
{
	struct text name = {0};
	bool fits = true;
	if (t.n_prompt)
		fits = text_printf(&name, "pp%u", (unsigned)t.n_prompt);
	if (t.n_gen)
		fits = fits && text_printf(&name, "%stg%u", name.n ? "+" : "", (unsigned)t.n_gen);
	if (t.n_parallel > 1)
		fits = fits && text_printf(&name, " np%u", (unsigned)t.n_parallel);
	if (t.n_depth)
		fits = fits && text_printf(&name, " @ d%u", (unsigned)t.n_depth);
	snprintf(t.name, sizeof t.name, "%s", name.data ? name.data : "");
	text_free(&name);
	if (!fits)
		return fail_memory(err, "a name", sizeof t.name);
	if (b->o->profile)
		return bench_profile(&b->table, b->model, b->o,
			&(struct profile_test){
				t.name, t.n_prompt, t.n_gen, t.n_depth, t.n_parallel},
			&b->profiled, err);
	enum lap_status status = measure(b, &t, err);
	return status ? status : print_row(b, err);
}

static uint32_t n_not_zero(const struct values *v)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < v->n; i++)
		n += v->items[i] > 0;
	return n;
}

static enum lap_status try_all(struct bench *b, struct lap_error *err)
{
	const uint32_t n_tests = b->depths.n *
		(n_not_zero(&b->prompts) + n_not_zero(&b->predicts) * b->parallel.n +
			b->both_prompt.n);
	b->n_runs = n_tests * (uint32_t)(1 + b->o->bench_repeat);
	b->progress = progress_start("measuring", NULL);
	enum lap_status status = LAP_OK;
	for (uint32_t d = 0; d < b->depths.n; d++) {
		struct test t = {.n_depth = b->depths.items[d], .n_parallel = 1};
		for (uint32_t i = 0; i < b->prompts.n && !status; i++) {
			t.n_prompt = b->prompts.items[i];
			if (t.n_prompt)
				status = try_one(b, t, err);
		}
		t.n_prompt = 0;
		for (uint32_t i = 0; i < b->predicts.n && !status; i++)
			for (uint32_t p = 0; p < b->parallel.n && !status; p++) {
				t.n_gen = b->predicts.items[i];
				t.n_parallel = b->parallel.items[p];
				if (t.n_gen)
					status = try_one(b, t, err);
			}
		t.n_parallel = 1;
		for (uint32_t i = 0; i < b->both_prompt.n && !status; i++) {
			t.n_prompt = b->both_prompt.items[i];
			t.n_gen = b->both_predict.items[i];
			status = try_one(b, t, err);
		}
	}
	return status;
}

/* What kernels ran with that is not usual. */
static void say_tuned(const struct backend *b)
{
	for (uint32_t i = 0; b->tuning && i < b->tuning->n; i++) {
		const struct tuned *t = &b->tuning->items[i];
		struct text line = {0};
		if (!t->broken && t->seconds < t->usual_seconds && tuned_print(t, &line))
			say("tuned: %s", line.data);
		text_free(&line);
	}
}

enum lap_status bench_speed(const struct options *o, struct lap_error *err)
{
	struct bench *b = calloc(1, sizeof *b);
	if (!b)
		return fail_memory(err, "the measurements", sizeof *b);
	b->o = o;
	b->table = o->profile ? bench_profile_begin(o) : bench_table_begin(o, title, true);
	enum lap_status status = parse_tests(b, err);
	if (!status)
		status = source_model(o, SOURCE_MODEL, &b->model, err);
	if (!status && o->profile)
		status = try_all(b, err);
	else if (!status)
		status = rates_measure(b->model->backend, &b->rates, err);
	if (!status && !o->profile) {
		say("memory bandwidth: %.2f GB/s (%s read); arithmetic: %.2f GFLOP/s (32-bit "
		    "multiply-add)",
			b->rates.bytes_per_second * 1e-9, bytes_text(b->rates.n_bytes),
			b->rates.flops_per_second * 1e-9);
		status = try_all(b, err);
	}
	progress_clear(&b->progress);
	if (!status)
		say_tuned(b->model->backend);
	struct text verdict = {0};
	if (b->model && !write_verdict(b, &verdict) && !status)
		status = fail_memory(err, "the verdict", verdict.n);
	const char *next = o->profile
		? "next: lapilli bench --kernel NAME --format F --shape MxNxK measures one kernel "
		  "alone, lapilli tune -m FILE finds how kernels run fastest here"
		: "next: lapilli bench --profile shows where the time goes, lapilli tune -m FILE "
		  "finds how kernels run fastest here";
	const enum lap_status printed = bench_table_end(
		&b->table, verdict.data, next, verdict.data && (!status || interrupted()));
	text_free(&verdict);
	text_free(&b->prompt_speed);
	text_free(&b->gen_speed);
	text_free(&b->profiled);
	status = status ? status : printed;
	lap_model_close(b->model);
	free(b);
	return status;
}
