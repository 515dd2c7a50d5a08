/* `lapilli tune`: measures, for a model's kernels on a device, the values of their knobs, and keeps the fastest.
 *
 * Looks below the public header on purpose: no public function shows what was found. */
#include <jansson.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "progress.h"
#include "session_tune.h"
#include "signals.h"
#include "source.h"

#define QUICK_SECONDS 3.0

struct list {
	const struct options *o;
	json_t *json;
	struct text lines; /* printed below the verdict */
	struct progress progress;
	uint32_t n, n_broken, n_faster;
	bool ok; /* false: memory is out */
};

static json_t *found_json(const struct tuned *t)
{
	const struct kernel_info *kernel = kernel_info(t->of.kernel);
	struct text knobs = {0};
	json_t *object = NULL;
	if (knobs_print(t->of.kernel, t->knobs, &knobs))
		object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:f, s:f, s:b, s:s}", "kernel",
			kernel->name, "format",
			kernel->per_weight ? weight_format(t->of.weight)->label : "", "outputs",
			(json_int_t)t->of.outputs, "inputs", (json_int_t)t->of.inputs, "rows",
			(json_int_t)t->of.rows, "knobs", knobs.data, "us", 1e6 * t->seconds,
			"usual_us", 1e6 * t->usual_seconds, "broken", t->broken, "reason",
			t->reason);
	text_free(&knobs);
	return object;
}

static bool take_found(void *user, const struct tuned *t)
{
	struct list *list = user;
	list->n++;
	list->n_broken += t->broken;
	list->n_faster += !t->broken && t->seconds < t->usual_seconds;
	if (list->o->json) {
		json_t *object = found_json(t);
		list->ok = list->ok && object && json_array_append_new(list->json, object) == 0;
	} else {
		list->ok = tuned_print(t, &list->lines) && text_printf(&list->lines, "\n");
	}
	progress_count(&list->progress, list->n);
	return list->ok && !interrupted();
}

static void print_findings(const struct list *list, const char *device, bool quick)
{
	if (list->n_broken)
		out_printf("%s computes WRONG results with %u of these settings, which are never "
			   "used; %u kernels run faster than without tuning\n",
			device, (unsigned)list->n_broken, (unsigned)list->n_faster);
	else if (list->n)
		out_printf("%s runs %u of %u kernels faster than without tuning\n", device,
			(unsigned)list->n_faster, (unsigned)list->n);
	else
		out_printf("%s: all was measured before%s\n", device,
			quick ? "; without --tune quick it is measured again" : "");
	if (list->n)
		out_printf("\n%s", list->lines.data);
	if (list->n_broken)
		out_printf("\nnext: lapilli validate checks every kernel; for help, what lapilli "
			   "report prints\n");
	else
		out_printf("\nnext: lapilli bench -m FILE measures with what was found, as every "
			   "command uses it from now on\n");
}

int command_tune(const struct options *o)
{
	struct list list = {.o = o,
		.json = json_array(),
		.progress = progress_start("tuning", "measured"),
		.ok = true};
	struct lap_model *model = NULL;
	struct lap_session *session = NULL;
	struct lap_error err;
	const bool quick = o->tune == LAP_TUNE_QUICK;
	/* 8 sequences: so many rows a matvec takes together. */
	struct lap_session_options so = {.n_ctx_seq = 512,
		.n_ctx = 8 * 512,
		.n_seq = 8,
		.activations = (enum lap_activations)o->activations};
	struct options own = *o;
	own.tune = LAP_TUNE_AUTO; /* what was found before is read */
	interrupt_install();
	enum lap_status status = LAP_OK;
	if (o->tune == LAP_TUNE_OFF)
		status = fail(&err, LAP_USAGE, "tune --tune off: expected quick, full or neither");
	if (!status && o->device && strcmp(o->device, "cpu") == 0)
		status = fail(&err, LAP_USAGE,
			"-dev cpu is the reference, which has nothing to tune: expected a Vulkan "
			"device");
	if (!status)
		status = source_model(&own, SOURCE_MODEL, &model, &err);
	if (!status)
		model->tune = LAP_TUNE_OFF; /* of what a new session would do by itself */
	if (!status)
		status = lap_session_create(model, &so, &session, &err);
	if (!status)
		status = session_tune(session,
			&(struct tune_options){
				.seconds = quick ? QUICK_SECONDS : 0, .thorough = !quick},
			take_found, &list, &err);
	if (!status && !list.ok)
		status = fail_memory(&err, "the findings", list.n);
	progress_clear(&list.progress);
	if (!status && o->json)
		status = (enum lap_status)out_json(json_incref(list.json));
	else if (!status)
		print_findings(&list, model->backend->name, quick);
	json_decref(list.json);
	text_free(&list.lines);
	lap_session_destroy(session);
	lap_model_close(model);
	if (interrupted())
		return interrupt_status();
	return status ? report(&err) : LAP_OK;
}
