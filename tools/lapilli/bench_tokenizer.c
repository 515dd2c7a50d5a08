/* `lapilli bench --tokenize`: texts to tokens. CPU time of this process, so that neighbours on the machine
 * count little; the fastest of several runs. */
#include <string.h>

#include "bench.h"
#include "console.h"
#include "source.h"

enum { KIND_BYTES = 1 << 20 };
static const double kind_seconds = 0.5; /* at least, for each text; */
static const int least_runs = 2;        /* and as many runs; */
static const double run_seconds = 1e-3; /* at least, for a run: the clock misses shorter ones */

/* One text and what it took. */
struct measured {
	const char *name;
	size_t n_bytes, n_tokens;
	double seconds; /* of the fastest run */
};

static enum lap_status measure(const struct lap_model *model, const struct text *text,
	struct measured *m, struct lap_error *err)
{
	const struct lap_text bytes = source_bytes(text);
	double spent = 0;
	uint64_t n_repeats = 1; /* of a run */
	enum lap_status status = LAP_OK;
	m->n_bytes = bytes.n_bytes;
	for (int n = 0; !status && (n < least_runs || spent < kind_seconds);) {
		int32_t *ids = NULL;
		double start = clock_cpu_seconds();
		for (uint64_t i = 0; !status && i < n_repeats; i++) {
			lap_free(ids);
			status = lap_tokenize(model, bytes.text, bytes.n_bytes, false, true, &ids,
				&m->n_tokens, err);
		}
		double seconds = clock_cpu_seconds() - start;
		lap_free(ids);
		spent += seconds;
		if (seconds < run_seconds) {
			n_repeats *= 2;
			continue;
		}
		seconds /= (double)n_repeats;
		if (n++ == 0 || seconds < m->seconds)
			m->seconds = seconds;
	}
	return status;
}

static double mb_per_second(const struct measured *m)
{
	return per_second((double)m->n_bytes / 1e6, m->seconds);
}

static void print_line(const struct measured *m)
{
	out_printf("%-10s %12zu bytes %10zu tokens %8.1f MB/s %8.2f Mtok/s\n", m->name, m->n_bytes,
		m->n_tokens, mb_per_second(m), per_second((double)m->n_tokens / 1e6, m->seconds));
}

static json_t *measured_json(const struct measured *m)
{
	return json_pack("{s:s, s:I, s:I, s:f, s:f}", "text", m->name, "bytes",
		(json_int_t)m->n_bytes, "tokens", (json_int_t)m->n_tokens, "seconds", m->seconds,
		"mb_per_second", mb_per_second(m));
}

static int print_json(const struct lap_model_info *info, double load_seconds,
	const struct measured *rows, size_t n)
{
	json_t *texts = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(texts, measured_json(&rows[i]));
	return out_json(json_pack("{s:s, s:s, s:s?, s:I, s:f, s:o}", "model", info->path,
		"tokenizer", info->tokenizer, "pre_tokenizer", info->pre_tokenizer, "n_vocab",
		(json_int_t)info->n_vocab, "load_seconds", load_seconds, "texts", texts));
}

/* The given text, or one row for each kind and their sum. */
static enum lap_status measure_all(const struct options *o, const struct lap_model *model,
	const struct text *given, struct measured *rows, size_t *n, struct lap_error *err)
{
	if (o->prompt || o->file) {
		*n = 1;
		rows[0].name = "text";
		return measure(model, given, &rows[0], err);
	}
	struct measured *sum = &rows[N_BENCH_KINDS];
	enum lap_status status = LAP_OK;
	sum->name = "all";
	for (unsigned kind = 0; kind < N_BENCH_KINDS && !status; kind++) {
		struct text text = {0};
		rows[kind].name = bench_kind_name(kind);
		status = bench_text(kind, KIND_BYTES, &text)
			? measure(model, &text, &rows[kind], err)
			: fail_memory(err, "a text to measure with", KIND_BYTES);
		sum->n_bytes += rows[kind].n_bytes;
		sum->n_tokens += rows[kind].n_tokens;
		sum->seconds += rows[kind].seconds;
		text_free(&text);
	}
	*n = N_BENCH_KINDS + 1;
	return status;
}

enum lap_status bench_tokenizer(const struct options *o, struct lap_error *err)
{
	struct text text = {0};
	struct lap_model *model = NULL;
	struct measured rows[N_BENCH_KINDS + 1] = {0};
	size_t n = 0;
	bool given;
	enum lap_status status = source_text(o, &text, &given, err);
	double load_seconds = clock_cpu_seconds();
	if (!status)
		status = source_model(o, SOURCE_VOCABULARY, &model, err);
	load_seconds = clock_cpu_seconds() - load_seconds;
	if (!status)
		status = measure_all(o, model, &text, rows, &n, err);
	if (!status && o->json) {
		status = (enum lap_status)print_json(lap_model_info(model), load_seconds, rows, n);
	} else if (!status) {
		const struct lap_model_info *info = lap_model_info(model);
		out_printf("%s %s: %u tokens, loaded in %.3f s of CPU time\n", info->tokenizer,
			info->pre_tokenizer ? info->pre_tokenizer : "", info->n_vocab,
			load_seconds);
		for (size_t i = 0; i < n; i++)
			print_line(&rows[i]);
	}
	lap_model_close(model);
	text_free(&text);
	return status;
}
