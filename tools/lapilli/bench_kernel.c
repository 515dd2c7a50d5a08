/* `lapilli bench --kernel`: one kernel alone, at shapes of the user's.
 *
 * Each is checked against the reference before it is timed, at as many outputs as that computes quickly; a wrong
 * result is exit status 3. Operands are random, and several sets of them are used in turns so that caches do
 * not hold what a model's weights would not find there.
 *
 * Looks below the public header on purpose: no public function runs a kernel. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bench.h"
#include "bench_table.h"
#include "check_speed.h"
#include "console.h"
#include "knobs.h"
#include "rates.h"
#include "signals.h"

#define BUDGET 0.5 /* seconds for a shape */

struct bench {
	struct bench_table table;
	struct backend *device, *cpu;
	struct rates rates;
	struct kernel_shape shape;
	struct kernel_speed speed;
	char test[96];
};

/* ---- options --------------------------------------------------------------------------------- */

static enum lap_status find_kernel(const char *name, enum kernel *kernel, struct lap_error *err)
{
	struct text list = {0};
	for (uint32_t k = 0; k < N_KERNELS; k++) {
		*kernel = (enum kernel)k;
		if (strcmp(kernel_info(*kernel)->name, name) == 0) {
			text_free(&list);
			return LAP_OK;
		}
		if (kernel_shape_words(*kernel))
			text_printf(&list, " %s", kernel_info(*kernel)->name);
	}
	fail(err, LAP_USAGE, "--kernel %.60s: no such kernel, expected one of:%s", name,
		list.data ? list.data : "");
	text_free(&list);
	return LAP_USAGE;
}

static const char *const caches[] = {
	[KV_F16] = "F16", [KV_F32] = "F32", [KV_Q8_0] = "Q8_0", [KV_Q4_0] = "Q4_0"};

static bool has_cache(enum kernel kernel)
{
	return kernel == KERNEL_attn_decode || kernel == KERNEL_attn_prefill;
}

/* Of weights, or for attention of the cache, by its name in either case. */
static enum lap_status find_format(
	const char *name, struct kernel_shape *shape, struct lap_error *err)
{
	const bool weights = kernel_info(shape->kernel)->per_weight;
	const bool cache = has_cache(shape->kernel);
	if (!name) {
		if (weights)
			shape->weight =
				kernel_takes(shape->kernel, WEIGHT_f16) ? WEIGHT_f16 : WEIGHT_q8_0;
		return LAP_OK;
	}
	if (!weights && !cache)
		return fail(err, LAP_USAGE, "--format %.60s: %s has no format", name,
			kernel_info(shape->kernel)->name);
	for (uint32_t w = 0; w < N_WEIGHTS && weights; w++)
		if (strcasecmp(weight_format((enum weight)w)->name, name) == 0) {
			shape->weight = (enum weight)w;
			return LAP_OK;
		}
	for (uint32_t k = 0; k < ARRAY_COUNT(caches) && cache; k++)
		if (strcasecmp(caches[k], name) == 0) {
			shape->kv = (enum kv_type)k;
			return LAP_OK;
		}
	return fail(err, LAP_USAGE, "--format %.60s: no such format%s: expected %s", name,
		cache ? " of a KV cache" : "",
		cache ? "f16, f32, q8_0 or q4_0" : lap_supported_formats());
}

/* "4096x1x14336", 'x' or 'X' between two or three numbers. */
static enum lap_status parse_shape(
	const char *text, struct kernel_shape *shape, struct lap_error *err)
{
	uint32_t numbers[3] = {0}, n = 0;
	for (const char *at = text; n < 3;) {
		char *end;
		errno = 0;
		unsigned long value = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
		if (errno || value < 1 || value > 1u << 30)
			break;
		numbers[n++] = (uint32_t)value;
		if (*end == '\0' && n >= 2) {
			shape->m = numbers[0];
			shape->n = numbers[1];
			shape->k = numbers[2];
			return LAP_OK;
		}
		if (*end != 'x' && *end != 'X')
			break;
		at = end + 1;
	}
	const char *words = kernel_shape_words(shape->kernel);
	return fail(err, LAP_USAGE,
		"--shape: found \"%.60s\", expected %s as numbers with x between them", text,
		words ? words : "MxNxK");
}

/* ---- printing -------------------------------------------------------------------------------- */

static const char title[] = "| kernel | format | shape | us | GB/s | % of bandwidth | GFLOP/s | "
			    "% of arithmetic | NMSE | limit | knobs |\n"
			    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | "
			    "--- |\n";

static const char *format_name(const struct kernel_shape *s)
{
	if (kernel_info(s->kernel)->per_weight)
		return weight_format(s->weight)->label;
	return has_cache(s->kernel) ? caches[s->kv] : "";
}

static enum lap_status print_row(struct bench *b, const char *shape, struct lap_error *err)
{
	const struct kernel_speed *s = &b->speed;
	const char *kernel = kernel_info(b->shape.kernel)->name, *format = format_name(&b->shape);
	const double bytes = per_second(s->work.bytes, s->seconds);
	const double flops = per_second(s->work.flops, s->seconds);
	const double pct_bytes = 100 * per_second(bytes, b->rates.bytes_per_second);
	const double pct_flops = 100 * per_second(flops, b->rates.flops_per_second);
	struct text line = {0}, knobs = {0};
	char test[160];
	snprintf(test, sizeof test, "%s%s%s %s", kernel, *format ? " " : "", format, shape);
	bool fits = text_printf(&knobs, "%s", "") &&
		(!b->device->ops->knobs || knobs_print(b->shape.kernel, s->knobs, &knobs)) &&
		text_printf(&line,
			"| %s | %s | %s | %.2f | %.2f | %.1f | %.2f | %.1f | %.1e | %.1e | %s |",
			kernel, format, shape, 1e6 * s->seconds, bytes * 1e-9, pct_bytes,
			flops * 1e-9, pct_flops, s->check.nmse, s->check.limit, knobs.data);
	enum lap_status status = !fits
		? fail_memory(err, "the table", 1)
		: bench_table_row(&b->table,
			  json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
				    "s:I, s:I, s:s}",
				  "test", test, "kernel", kernel, "format", format, "shape", shape,
				  "device", b->device->name, "us", 1e6 * s->seconds, "gb_s",
				  bytes * 1e-9, "pct_bandwidth", pct_bytes, "gflop_s", flops * 1e-9,
				  "pct_arithmetic", pct_flops, "nmse", s->check.nmse, "limit",
				  s->check.limit, "checked_outputs", (json_int_t)s->checked_m,
				  "copies", (json_int_t)s->n_copies, "knobs", knobs.data),
			  line.data, err);
	text_free(&line);
	text_free(&knobs);
	return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum lap_status try_shape(struct bench *b, const char *text, struct lap_error *err)
{
	enum lap_status status = parse_shape(text, &b->shape, err);
	if (!status)
		status = kernel_measure(b->device, b->cpu, &b->shape, NULL, BUDGET, &b->speed, err);
	if (!status && !b->speed.check.passed)
		return fail(err, LAP_INVALID, "%s %s %s computes wrong results on %s: %s",
			kernel_info(b->shape.kernel)->name, format_name(&b->shape), text,
			b->device->name, b->speed.check.reason);
	return status ? status : print_row(b, text, err);
}

enum lap_status bench_kernel(const struct options *o, struct lap_error *err)
{
	struct bench b = {.table = bench_table_begin(o, title, true)};
	enum lap_status status = find_kernel(o->kernel, &b.shape.kernel, err);
	if (!status)
		status = find_format(o->format, &b.shape, err);
	if (!status && !o->shape.n)
		status = parse_shape("", &b.shape, err);
	for (size_t i = 0; i < o->shape.n && !status; i++) {
		status = parse_shape(o->shape.texts[i], &b.shape, err);
		status = status ? status : kernel_shape_check(&b.shape, err);
	}
	if (!status && o->device && strcmp(o->device, "cpu") == 0)
		status = cpu_open(&b.device, err);
	else if (!status)
		status = vk_open(&(struct vk_options){.device = o->device,
					 .no_pipeline_cache = !o->pipeline_cache},
			&b.device, err);
	if (!status)
		status = cpu_open(&b.cpu, err);
	if (!status)
		status = rates_measure(b.device, &b.rates, err);
	for (size_t i = 0; i < o->shape.n && !status && !interrupted(); i++)
		status = try_shape(&b, o->shape.texts[i], err);
	char verdict[400] = "", next[400] = "";
	if (b.device) {
		snprintf(verdict, sizeof verdict, "%.250s computes %s right at %s", b.device->name,
			kernel_info(b.shape.kernel)->name,
			status ? "the first of the shapes" : "these shapes");
		snprintf(next, sizeof next,
			"next: the same with other --format or --shape; lapilli validate --op %s "
			"checks it at awkward ones",
			kernel_info(b.shape.kernel)->name);
	}
	const enum lap_status printed =
		bench_table_end(&b.table, verdict, next, !status || status == LAP_INVALID);
	if (b.device)
		b.device->ops->close(b.device);
	if (b.cpu)
		b.cpu->ops->close(b.cpu);
	return status ? status : printed;
}
