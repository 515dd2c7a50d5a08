/* `lapilli quantize`: a model with smaller weights. */
#include <string.h>

#include "commands.h"
#include "console.h"
#include "progress.h"
#include "signals.h"

struct view {
	struct progress progress;
	bool verbose;
	const char *tensor; /* that was said last */
};

static bool show(void *user, const struct lap_quantize_step *step)
{
	struct view *v = user;
	if (v->verbose && v->tensor != step->tensor) {
		progress_clear(&v->progress);
		say("%-40s %-6s %s %s", step->tensor, step->from,
			strcmp(step->from, step->to) == 0 ? "stays" : "to", step->to);
		v->tensor = step->tensor;
	}
	progress_show(&v->progress, (double)step->done_bytes, (double)step->total_bytes);
	return !interrupted();
}

static double bits_per_weight(const struct lap_quantize_result *r)
{
	return r->n_weights ? 8 * (double)r->bytes / (double)r->n_weights : 0;
}

static json_t *result_json(const struct options *o, const struct lap_quantize_result *r)
{
	return json_pack("{s:o, s:o, s:I, s:I, s:I, s:f, s:I}", "output",
		json_bytes(o->quantized, strlen(o->quantized)), "type",
		json_bytes(o->quantize_type, strlen(o->quantize_type)), "weights",
		(json_int_t)r->n_weights, "bytes_before", (json_int_t)r->bytes_before, "bytes",
		(json_int_t)r->bytes, "bits_per_weight", bits_per_weight(r), "fallbacks",
		(json_int_t)r->n_fallbacks);
}

static void say_result(const struct options *o, const struct lap_quantize_result *r)
{
	say("%s: %s, from %s; %.2f bits a weight", o->quantized, bytes_text(r->bytes),
		bytes_text(r->bytes_before), bits_per_weight(r));
	if (r->n_fallbacks)
		say("notice: the rows of %u tensors are no whole blocks of the format meant for "
		    "them: they have a larger one (-v shows which)",
			(unsigned)r->n_fallbacks);
}

int command_quantize(const struct options *o)
{
	struct lap_error err = {0};
	struct lap_quantize_result result;
	if (!o->model || !o->quantized || !o->quantize_type) {
		fail(&err, LAP_USAGE, "quantize needs IN OUT TYPE, where TYPE is one of %s",
			lap_quantize_types());
		return report(&err);
	}
	struct view view = {.progress = progress_start("quantizing", "B"), .verbose = o->verbose};
	const struct lap_quantize_options options = {
		.pure = o->pure,
		.allow_requantize = o->allow_requantize,
		.n_threads = (uint32_t)o->n_threads,
		.progress = show,
		.user = &view,
	};
	interrupt_install();
	enum lap_status status =
		lap_quantize(o->model, o->quantized, o->quantize_type, &options, &result, &err);
	progress_clear(&view.progress);
	if (status && interrupted())
		return interrupt_status();
	if (status)
		return report(&err);
	if (o->json)
		return out_json(result_json(o, &result));
	say_result(o, &result);
	return LAP_OK;
}
