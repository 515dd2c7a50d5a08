/* `lapilli validate`: every kernel and weight format against the CPU reference at awkward shapes, and
 * with -m also the model's own plans op by op.  A verdict in words, the table, what to do next.
 *
 * Kernels that are wrong are tried again without each feature that the device could do without; one whose absence
 * makes them right is switched off, in the file that tuning is kept in.
 *
 * Looks below the public header on purpose: it judges kernels, which no public function shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_model.h"
#include "commands.h"
#include "console.h"
#include "progress.h"
#include "signals.h"
#include "source.h"

#define N_RUNS       3  /* of a case; the last is timed */
#define N_MODEL_ROWS 24 /* tokens of the prompt that a model is checked on, at most */

/* What becomes of a run: counts, and the rows as text or JSON. */
struct table {
	const struct options *o;
	uint32_t n, n_failed;
	char first[160];   /* case that failed first */
	double worst;      /* largest share of a limit that a result took */
	struct text lines; /* printed below the verdict */
	json_t *json;      /* array */
	bool ok;           /* false: memory is out */
	struct progress progress;
};

/* Cases that failed, and what is to blame. */
struct faults {
	uint32_t *cases, n;            /* indices of those that no feature explains yet */
	char why[N_FEATURES][160];     /* of the first case that a feature explains; "": none */
	uint32_t n_repaired, n_blamed; /* cases; features */
	bool remembered;
};

static void add_row(struct table *t, const char *name, const struct check_result *r)
{
	t->n++;
	if (!r->passed && t->n_failed++ == 0)
		snprintf(t->first, sizeof(t->first), "%s", name);
	if (r->limit > 0)
		t->worst = fmax(t->worst, r->nmse / r->limit);
	if (t->o->json) {
		json_t *row = json_pack("{s:s, s:b, s:o, s:o, s:f, s:f, s:f, s:s}", "case", name,
			"passed", r->passed, "nmse",
			isfinite(r->nmse) ? json_real(r->nmse) : json_null(), "max_error",
			isfinite(r->max_error) ? json_real(r->max_error) : json_null(), "limit",
			r->limit, "ms", r->seconds * 1e3, "gb_per_second",
			per_second((double)r->n_bytes * 1e-9, r->seconds), "reason", r->reason);
		t->ok = t->ok && row && json_array_append_new(t->json, row) == 0;
		return;
	}
	t->ok = t->ok &&
		text_printf(&t->lines, "%-52s %9.2e %9.2e %9.3f %8.2f  %s%s\n", name, r->nmse,
			r->max_error, r->seconds * 1e3,
			per_second((double)r->n_bytes * 1e-9, r->seconds),
			r->passed ? "ok" : "FAILED: ", r->reason);
}

/* ---- kernels alone ---- */

static bool is_asked(const struct options *o, uint32_t i)
{
	return !o->op || strcmp(kernel_info(check_case_kernel(i))->name, o->op) == 0;
}

static enum lap_status check_kernels(struct table *t, struct backend *device, struct backend *cpu,
	struct faults *faults, struct lap_error *err)
{
	faults->cases = array_alloc(check_n_cases(), sizeof *faults->cases);
	if (!faults->cases)
		return fail_memory(err, "the list of cases", check_n_cases());
	uint32_t n = 0, n_done = 0;
	for (uint32_t i = 0; i < check_n_cases(); i++)
		n += is_asked(t->o, i);
	for (uint32_t i = 0; i < check_n_cases() && !interrupted(); i++) {
		char name[96];
		struct check_result result;
		if (!is_asked(t->o, i))
			continue;
		check_case_name(i, name, sizeof(name));
		enum lap_status status = check_run(device, cpu, i, N_RUNS, &result, err);
		if (status)
			return status;
		add_row(t, name, &result);
		if (!result.passed)
			faults->cases[faults->n++] = i;
		progress_show(&t->progress, ++n_done, n);
	}
	progress_clear(&t->progress);
	return LAP_OK;
}

/* Whether the case is right without the feature and wrong with it, here and now: not by chance. */
static enum lap_status explains(enum feature f, uint32_t i, struct backend *device,
	struct backend *cpu, bool *blamed, char why[160], struct lap_error *err)
{
	struct check_result with = {.passed = false}, without = {.passed = false};
	char name[96];
	tuning_switch(device->tuning, f, "tried");
	enum lap_status status = check_run(device, cpu, i, 1, &without, err);
	tuning_switch(device->tuning, f, NULL);
	if (!status && without.passed)
		status = check_run(device, cpu, i, 1, &with, err);
	*blamed = !status && without.passed && !with.passed;
	check_case_name(i, name, sizeof name);
	snprintf(why, 160, "%s: %.60s", name, with.reason);
	return status;
}

/* The features to blame: those that need most first, so that no more goes than must. */
static enum lap_status blame_features(
	struct faults *faults, struct backend *device, struct backend *cpu, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (uint32_t f = N_FEATURES; f-- > 0 && faults->n && !status;) {
		uint32_t n_left = 0;
		if (tuning_is_off(device->tuning, (enum feature)f))
			continue;
		for (uint32_t k = 0; k < faults->n && !status && !interrupted(); k++) {
			char why[160];
			bool blamed;
			status = explains(
				(enum feature)f, faults->cases[k], device, cpu, &blamed, why, err);
			if (!blamed)
				faults->cases[n_left++] = faults->cases[k];
			else if (!faults->why[f][0])
				snprintf(faults->why[f], sizeof faults->why[f], "%s", why);
		}
		if (status || interrupted() || n_left == faults->n)
			continue;
		faults->n_repaired += faults->n - n_left;
		faults->n = n_left;
		faults->n_blamed++;
		tuning_switch(device->tuning, (enum feature)f, faults->why[f]);
	}
	return status;
}

static enum lap_status switch_off(struct table *t, struct faults *faults, struct backend *device,
	struct backend *cpu, struct lap_error *err)
{
	enum lap_status status = blame_features(faults, device, cpu, err);
	if (status || !faults->n_blamed || !t->o->remember)
		return status;
	status = device->ops->tuning_save(device, err);
	faults->remembered = !status;
	return status;
}

static enum lap_status check_name(const char *op, struct lap_error *err)
{
	struct text list = {0};
	for (uint32_t k = 0; k < N_KERNELS; k++) {
		if (strcmp(kernel_info(k)->name, op) == 0) {
			text_free(&list);
			return LAP_OK;
		}
		text_printf(&list, " %s", kernel_info(k)->name);
	}
	fail(err, LAP_USAGE, "--op %s: no such kernel, expected one of:%s", op,
		list.data ? list.data : "");
	text_free(&list);
	return LAP_USAGE;
}

/* ---- a model's plans ---- */

static bool add_op(void *user, const struct check_op *op)
{
	struct table *t = user;
	char name[160], layer[24] = "";
	if (op->layer >= 0)
		snprintf(layer, sizeof(layer), "layer %d ", (int)op->layer);
	bool labelled = strcmp(op->label, op->kernel) != 0;
	snprintf(name, sizeof(name), "%s %u: %s%s%s%s%s%s",
		op->role == ROLE_DECODE ? "decode" : "prefill", (unsigned)op->index, layer,
		op->kernel, op->format[0] ? " " : "", op->format, labelled ? " " : "",
		labelled ? op->label : "");
	if (!t->o->op || strcmp(t->o->op, op->kernel) == 0)
		add_row(t, name, &op->result);
	return !interrupted();
}

static enum lap_status model_tokens(
	const struct lap_model *m, int32_t tokens[N_MODEL_ROWS], uint32_t *n, struct lap_error *err)
{
	static const char prompt[] =
		"The quick brown fox jumps over the lazy dog. 3.14 is not pi, but near it: why?";
	int32_t *list = NULL;
	size_t n_list = 0;
	enum lap_status status = LAP_OK;
	if (lap_model_info(m)->tokenizer)
		status = lap_tokenize(m, prompt, strlen(prompt), true, true, &list, &n_list, err);
	*n = n_list < N_MODEL_ROWS ? (uint32_t)n_list : N_MODEL_ROWS;
	memcpy(tokens, list ? list : tokens, *n * sizeof(*tokens));
	while (*n < 2) /* no tokenizer: any tokens will do */
		tokens[(*n)++] = 0;
	lap_free(list);
	return status;
}

static enum lap_status check_plans(struct table *t, struct lap_error *err)
{
	struct lap_model *models[2] = {0};
	struct lap_session *sessions[2] = {0};
	struct lap_session_options options = {.n_ctx = 160, .n_batch = 32};
	int32_t tokens[N_MODEL_ROWS] = {0};
	uint32_t n = 0;
	enum lap_status status = source_model(t->o, SOURCE_MODEL, &models[0], err);
	if (!status && !t->o->remember) /* judge all that the device could do */
		tuning_clear(models[0]->backend->tuning);
	if (!status) /* the same chunks, so that the plans have the same ops */
		status = source_reference(
			t->o, models[0]->backend->max_buffer_bytes, &models[1], err);
	for (int i = 0; i < 2 && !status; i++)
		status = lap_session_create(models[i], &options, &sessions[i], err);
	if (!status)
		status = model_tokens(models[0], tokens, &n, err);
	if (!status)
		status = check_model(sessions[0], sessions[1], tokens, n, add_op, t, err);
	for (int i = 0; i < 2; i++) {
		lap_session_destroy(sessions[i]);
		lap_model_close(models[i]);
	}
	return status;
}

/* ---- the report ---- */

static json_t *blamed_json(const struct faults *faults)
{
	json_t *blamed = json_object();
	for (uint32_t f = 0; f < N_FEATURES; f++)
		if (faults->why[f][0])
			json_object_set_new(
				blamed, feature_name((enum feature)f), json_string(faults->why[f]));
	return blamed;
}

static void print_faults(const struct table *t, const struct faults *faults)
{
	for (uint32_t f = 0; f < N_FEATURES; f++)
		if (faults->why[f][0])
			out_printf("Kernels built with %s are to blame: they are right without. "
				   "The first: %s\n",
				feature_name((enum feature)f), faults->why[f]);
	if (faults->n_blamed)
		out_printf(faults->remembered
				? "That is switched off on this device from now on, until its "
				  "driver changes.\n"
				: "Nothing is written down, as --no-remember says: later runs use "
				  "it.\n");
	if (t->n_failed > faults->n_repaired)
		out_printf("%u wrong results are not explained by a feature that can be switched "
			   "off.\n",
			(unsigned)(t->n_failed - faults->n_repaired));
}

static void print_next(const struct table *t, const struct faults *faults)
{
	const bool repaired = t->n_failed && t->n_failed == faults->n_repaired;
	out_printf("\n");
	if (interrupted())
		out_printf("next: the same again, to the end\n");
	else if (repaired && faults->remembered)
		out_printf("next: lapilli validate, which checks what is used now\n");
	else if (repaired)
		out_printf("next: lapilli validate without --no-remember, which switches it off\n");
	else if (t->n_failed)
		out_printf("next: a newer driver, or another device (lapilli devices, -dev); for "
			   "help, what lapilli report prints\n");
	else if (!t->o->model)
		out_printf("next: lapilli validate -m FILE checks a model's own steps, lapilli "
			   "tune -m FILE finds how they run fastest here\n");
	else
		out_printf("next: lapilli tune -m FILE finds how it runs fastest here\n");
}

static int print_table(const struct table *t, const struct faults *faults, const struct backend *b,
	const char *off)
{
	const char *device = b->name;
	if (t->o->json)
		return out_json(json_pack(
			"{s:s, s:b, s:b, s:I, s:I, s:s?, s:f, s:s, s:o, s:b, s:O}", "device",
			device, "passed", t->n_failed == 0, "complete", !interrupted(), "cases",
			(json_int_t)t->n, "failed", (json_int_t)t->n_failed, "first_failed",
			t->n_failed ? t->first : NULL, "worst_share_of_limit",
			isfinite(t->worst) ? t->worst : 1e30, "without", off, "to_blame",
			blamed_json(faults), "remembered", faults->remembered, "results", t->json));
	if (t->n_failed)
		out_printf("%s computes WRONG results: %u of %u cases are outside their limits, "
			   "the first: %s\n",
			device, (unsigned)t->n_failed, (unsigned)t->n, t->first);
	else
		out_printf("%s computes right results%s%s: %u cases, the worst at %.1g %% of its "
			   "limit\n",
			device, *off ? " without " : "", off, (unsigned)t->n, t->worst * 100);
	print_faults(t, faults);
	if (interrupted())
		out_printf("The check was interrupted and is not complete.\n");
	out_printf("\n%-52s %9s %9s %9s %8s\n", "case", "NMSE", "max error", "ms", "GB/s");
	out_write(t->lines.data ? t->lines.data : "", t->lines.n);
	print_next(t, faults);
	return LAP_OK;
}

int command_validate(const struct options *o)
{
	struct table t = {.o = o,
		.json = json_array(),
		.ok = true,
		.progress = progress_start("checking", "cases")};
	struct faults faults = {.n = 0};
	char off[64] = "";
	struct backend *device = NULL, *cpu = NULL;
	struct lap_error err;
	interrupt_install();
	enum lap_status status = o->op ? check_name(o->op, &err) : LAP_OK;
	if (!status && o->device && strcmp(o->device, "cpu") == 0)
		status = fail(&err, LAP_USAGE,
			"-dev cpu is the reference itself: expected a Vulkan device");
	if (!status && o->check_tensors && !o->model)
		status = fail(&err, LAP_USAGE,
			"--check-tensors looks at the model of -m, which is missing");
	if (!status && o->model) /* first, so that a wrong path is said at once */
		status = check_plans(&t, &err);
	if (!status) {
		struct vk_options options = {
			.device = o->device, .no_pipeline_cache = !o->pipeline_cache};
		status = vk_open(&options, &device, &err);
	}
	if (!status)
		status = cpu_open(&cpu, &err);
	if (!status && !o->remember)
		tuning_clear(device->tuning);
	if (!status) {
		tuning_list_off(device->tuning, off, sizeof off);
		status = check_kernels(&t, device, cpu, &faults, &err);
	}
	if (!status && faults.n && !interrupted())
		status = switch_off(&t, &faults, device, cpu, &err);
	if (!status && !t.ok)
		status = fail_memory(&err, "the table", t.n);

	int result;
	progress_clear(&t.progress);
	if (status)
		result = report(&err);
	else {
		result = print_table(&t, &faults, device, off);
		if (!result)
			result = interrupted() ? interrupt_status()
				: t.n_failed   ? LAP_INVALID
					       : LAP_OK;
	}
	if (device)
		device->ops->close(device);
	if (cpu)
		cpu->ops->close(cpu);
	json_decref(t.json);
	text_free(&t.lines);
	free(faults.cases);
	return result;
}
