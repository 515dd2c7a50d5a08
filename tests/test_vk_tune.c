/* Tuning: what it finds is kept in a file and used by the next session, values that compute wrong results are
 * recorded and never used, and nothing of it changes a result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_matrices.h"
#include "check_side.h"
#include "command.h"
#include "session.h"
#include "tune.h"
#include "commands.h"
#include "vk/cache.h"
#include "vk/pipeline.h"

static struct lap_model *open_tuning(enum lap_tune tune)
{
	struct lap_model *m;
	struct lap_error err;
	cr_assert_eq(lap_model_open(source_path("models/austen.gguf"),
			     &(struct lap_model_options){.tune = tune}, &m, &err),
		LAP_OK, "%s", err.text);
	return m;
}

static struct lap_session *open_session(struct lap_model *m)
{
	const struct lap_session_options options = {.n_ctx = 64, .n_batch = 8};
	struct lap_session *s;
	struct lap_error err;
	cr_assert_eq(lap_session_create(m, &options, &s, &err), LAP_OK, "%s", err.text);
	return s;
}

static void close_all(struct lap_model *m, struct lap_session *s)
{
	lap_session_destroy(s);
	lap_model_close(m);
}

/* ---- a driver that is wrong with some values ------------------------------------------------------ */

static const struct backend_ops *whole;
static bool damage; /* what is read next: the last plan ran matvec with 32 lanes */

static enum lap_status wrong_prepare(struct backend *b, const struct plan *plan, bool profile,
	struct runnable **runnable, struct lap_error *err)
{
	damage = plan->ops[0].knobs[1] == 32;
	return whole->prepare(b, plan, profile, runnable, err);
}

static enum lap_status wrong_read(
	struct backend *b, struct view from, void *bytes, uint64_t n_bytes, struct lap_error *err)
{
	enum lap_status status = whole->read(b, from, bytes, n_bytes, err);
	if (damage && n_bytes > sizeof(struct step_header))
		((uint8_t *)bytes)[n_bytes / 2] ^= 0x40;
	return status;
}

struct findings {
	struct tuned items[64];
	uint32_t n;
};

static bool keep(void *user, const struct tuned *found)
{
	struct findings *f = user;
	cr_assert_lt(f->n, ARRAY_COUNT(f->items));
	f->items[f->n++] = *found;
	return true;
}

/* One product of the list of cases is the plan. */
Test(vk_tune, wrong_values_are_never_used)
{
	static const struct check_case c = {KERNEL_matvec, 1, .n_out = 40, .n_in = 64};
	struct lap_error err;
	struct findings found = {.n = 0};
	struct backend *b, *cpu;
	uint32_t n_found, n_broken = 0, values[MAX_KNOBS];
	cr_assert_eq(
		vk_open(&(struct vk_options){.no_tuning = true}, &b, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	struct side side = {.b = b, .c = &c, .weight = WEIGHT_q8_0, .err = &err};
	struct backend_ops wrong = *b->ops;
	side_build(&side);
	cr_assert_eq(side.status, LAP_OK, "%s", err.text);
	whole = b->ops;
	wrong.prepare = wrong_prepare;
	wrong.read = wrong_read;
	b->ops = &wrong;
	enum lap_status status = tune_plan(
		b, cpu, &side.plan, &(struct tune_options){0}, keep, &found, &n_found, &err);
	b->ops = whole;
	cr_assert_eq(status, LAP_OK, "%s", err.text);
	cr_assert_eq(n_found, found.n);
	for (uint32_t i = 0; i < found.n; i++) {
		const struct tuned *t = &found.items[i];
		n_broken += t->broken;
		cr_expect_eq(t->broken, t->knobs[1] == 32, "LANES=%u", t->knobs[1]);
		cr_expect(!t->broken || t->reason[0]);
		cr_expect(t->broken || (t->seconds > 0 && t->seconds <= t->usual_seconds));
	}
	cr_expect_eq(n_broken, 3, "32 lanes with OUTPUTS 1, 2 and 4: %u", n_broken);
	cr_expect_eq(found.n, 4, "and a winner");
	/* What the next plan runs is the winner of its class. */
	b->ops->knobs(b, &side.plan.ops[0], values);
	cr_expect_eq(memcmp(values, found.items[found.n - 1].knobs, sizeof values), 0);
	side_free(&side);
	b->ops->close(b);
	cpu->ops->close(cpu);
}

/* A class that there was no time for is no finding: the next run measures it. */
Test(vk_tune, what_was_not_measured_is_not_kept)
{
	static const struct check_case c = {KERNEL_matvec, 1, .n_out = 40, .n_in = 64};
	struct lap_error err;
	struct findings found = {.n = 0};
	struct backend *b, *cpu;
	uint32_t n_found;
	cr_assert_eq(
		vk_open(&(struct vk_options){.no_tuning = true}, &b, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	struct side side = {.b = b, .c = &c, .weight = WEIGHT_q8_0, .err = &err};
	side_build(&side);
	for (int has_time = 0; has_time < 2; has_time++) {
		const struct tune_options options = {.seconds = has_time ? 60 : 1e-9};
		cr_assert_eq(tune_plan(b, cpu, &side.plan, &options, keep, &found, &n_found, &err),
			LAP_OK, "%s", err.text);
		cr_expect(has_time ? n_found > 0 && found.items[n_found - 1].seconds > 0
				   : n_found == 0);
		cr_expect_eq(b->tuning->n, n_found);
	}
	side_free(&side);
	b->ops->close(b);
	cpu->ops->close(cpu);
}

/* ---- the file ------------------------------------------------------------------------------------- */

static char *tuning_file(const struct lap_device *d)
{
	struct text path = {0};
	cr_assert(cache_path(d, CACHE_TUNING, &path));
	char *text = read_text(path.data, NULL);
	text_free(&path);
	return text;
}

static int32_t *generate(struct lap_session *s)
{
	static const int32_t prompt[] = {1, 20, 30, 40, 50, 60, 70, 80, 90, 100};
	struct lap_error err;
	struct lap_request r = {.prompt = prompt,
		.n = ARRAY_COUNT(prompt),
		.options = &(struct lap_generate_options){.n_predict = 12, .ignore_eos = true}};
	cr_assert_eq(lap_generate_batch(s, &r, 1, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(s->timelines[0].n_past, 21);
	int32_t *tokens = malloc(21 * sizeof *tokens);
	cr_assert(tokens);
	memcpy(tokens, s->timelines[0].tokens, 21 * sizeof *tokens);
	return tokens;
}

/* The table without the findings of glu. */
static void forget_glu(struct tuning *t)
{
	struct tuning copy;
	tuning_init(&copy);
	for (uint32_t i = 0; i < t->n; i++)
		if (t->items[i].of.kernel != KERNEL_glu)
			cr_assert(tuning_put(&copy, &t->items[i]));
	cr_assert_lt(copy.n, t->n);
	tuning_clear(t);
	for (uint32_t i = 0; i < copy.n; i++)
		cr_assert(tuning_put(t, &copy.items[i]));
	tuning_free(&copy);
}

/* What the command finds is in the file; sessions use it, measure what is missing when they are told to, and
 * compute the same. */
Test(vk_tune, the_command_and_first_use)
{
	cr_assert_eq(setenv("XDG_CACHE_HOME", scratch_path("tune"), 1), 0);
	uint32_t n = 0, i = 0;
	struct result r;
	for (uint32_t more = 1; more && i < 20; i++, n += more) { /* till there was time for all */
		r = run("tune", "--tune", "quick", "--json");
		json_t *rows = parse_json(&r), *first = json_array_get(rows, 0);
		more = (uint32_t)json_array_size(rows);
		cr_expect(!more || json_is_string(json_object_get(first, "knobs")));
		cr_expect(!more || json_is_false(json_object_get(first, "broken")));
		json_decref(rows);
		release(&r);
	}
	cr_expect_gt(n, 3);
	r = run("tune", "--tune", "quick");
	cr_expect(strstr(r.out, ": all was measured before; without --tune quick"), "%s", r.out);
	cr_expect(strstr(r.out, "\n\nnext: lapilli bench "), "%s", r.out);
	release(&r);

	struct lap_model *m = open_tuning(LAP_TUNE_OFF);
	struct lap_session *s = open_session(m);
	cr_expect_eq(m->backend->tuning->n, 0, "not read");
	int32_t *usual = generate(s);
	char *text = tuning_file(m->backend->device);
	cr_expect(strstr(text, "lapilli tuning 1: version " LAP_VERSION) == text, "%s", text);
	cr_expect(strstr(text, "\nmatvec Q8_0 "), "%s", text);
	close_all(m, s);

	m = open_tuning(LAP_TUNE_AUTO);
	cr_expect_eq(m->backend->tuning->n, n, "read");
	forget_glu(m->backend->tuning);
	const uint32_t n_left = m->backend->tuning->n;
	s = open_session(m);
	cr_expect_eq(m->backend->tuning->n, n_left, "a software device: nothing is measured");
	close_all(m, s);

	m = open_tuning(LAP_TUNE_QUICK);
	forget_glu(m->backend->tuning);
	s = open_session(m);
	cr_expect_gt(m->backend->tuning->n, n_left, "what was missing is measured");
	int32_t *tuned = generate(s);
	cr_expect_eq(memcmp(usual, tuned, 21 * sizeof *usual), 0, "another text");

	/* The command says what was chosen, of all sessions. */
	struct tuned chosen;
	struct lap_error err;
	struct text line = {0};
	i = 0;
	while (m->backend->tuning->items[i].of.kernel != KERNEL_matvec)
		i++;
	chosen = m->backend->tuning->items[i];
	chosen.knobs[0] = 4;
	chosen.knobs[1] = 32;
	chosen.seconds = 1e-6;
	chosen.usual_seconds = 2e-6;
	cr_assert(tuning_put(m->backend->tuning, &chosen));
	cr_assert(text_printf(&line, "tuned: ") && tuned_print(&chosen, &line));
	cr_assert_eq(m->backend->ops->tuning_save(m->backend, &err), LAP_OK, "%s", err.text);
	close_all(m, s);
	r = run("bench", "--profile", "-p", "0", "-n", "2");
	cr_expect(strstr(r.out, "| OUTPUTS=4 LANES=32 |"), "%s", r.out);
	cr_expect(strstr(r.err, line.data), "%s: %s", line.data, r.err);
	release(&r);
	text_free(&line);
	free(text);
	free(usual);
	free(tuned);
}

Test(vk_tune, files_that_are_not_used)
{
	static const char *const ends[] = {"x\n", "glu - 32 x 0 x 0: OUTPUTS=3\n",
		"matvec F16 32 x 32 x 1: OUTPUTS=1 LANES=256\n"}; /* more than its shared memory */
	cr_assert_eq(setenv("XDG_CACHE_HOME", scratch_path("tune_files"), 1), 0);
	struct lap_error err;
	struct backend *b;
	struct text path = {0};
	cr_assert_eq(vk_open(&(struct vk_options){0}, &b, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->tuning_save(b, &err), LAP_OK, "%s", err.text);
	cr_assert(cache_path(b->device, CACHE_TUNING, &path));
	bool fits = knobs_fit(KERNEL_matvec, (uint32_t[]){1, 256}, b->device->max_invocations,
		b->device->subgroup_max, b->device->max_shared_bytes);
	char *head = tuning_file(b->device);
	b->ops->close(b);
	for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
		struct text text = {0};
		cr_assert(text_printf(&text, "%sglu - 32 x 0 x 0: OUTPUTS=2\n%s", head, ends[i]));
		cr_assert_eq(
			cache_write(path.data, text.data, text.n, &err), LAP_OK, "%s", err.text);
		cr_assert_eq(vk_open(&(struct vk_options){0}, &b, &err), LAP_OK, "%s", err.text);
		cr_expect_eq(b->tuning->n, i == 2 && fits ? 2 : 0, "%s", ends[i]);
		b->ops->close(b);
		text_free(&text);
	}
	text_free(&path);
	free(head);
}

/* ---- a feature that is wrong ----------------------------------------------------------------- */

static enum feature wrong = N_FEATURES; /* N_FEATURES: none is */

enum lap_status __real_check_run(struct backend *b, struct backend *cpu, uint32_t i,
	uint32_t n_runs, struct check_result *result, struct lap_error *err);
enum lap_status __wrap_check_run(struct backend *b, struct backend *cpu, uint32_t i,
	uint32_t n_runs, struct check_result *result, struct lap_error *err);

enum lap_status __wrap_check_run(struct backend *b, struct backend *cpu, uint32_t i,
	uint32_t n_runs, struct check_result *result, struct lap_error *err)
{
	enum lap_status status = __real_check_run(b, cpu, i, n_runs, result, err);
	if (!status && wrong < N_FEATURES && !tuning_is_off(b->tuning, wrong)) {
		result->passed = false;
		snprintf(result->reason, sizeof result->reason, "output 0: NMSE 0.5");
	}
	return status;
}

/* The command with a driver whose shuffles are wrong, in this process; what it printed. */
static char *validate(int expected, const char *option)
{
	char *argv[] = {"lapilli", "validate", "--op", "rmsnorm", (char *)option, NULL};
	const char *path = scratch_path("validated");
	struct options o;
	struct lap_error err;
	struct text text = {0};
	cr_assert_eq(options_parse(option ? 5 : 4, argv, &o, &err), LAP_OK, "%s", err.text);
	cr_assert_not_null(freopen(path, "w", stdout));
	wrong = FEATURE_SHUFFLE;
	cr_expect_eq(command_validate(&o), expected);
	wrong = N_FEATURES;
	fflush(stdout);
	cr_assert_eq(file_read(path, &text, &err), LAP_OK, "%s", err.text);
	options_release(&o);
	return text.data;
}

/* What is wrong with a feature and right without is found, written down, shown, and not used again. */
Test(vk_tune, the_command_switches_off)
{
	const struct op norm = {.kernel = KERNEL_rmsnorm};
	struct backend *b;
	struct lap_error err;
	cr_assert_eq(setenv("XDG_CACHE_HOME", scratch_path("switched"), 1), 0);
	char *text = validate(LAP_INVALID, "--no-remember");
	cr_expect(strstr(text, " computes WRONG results: ") &&
			strstr(text, "built with shuffle are to blame") &&
			strstr(text, "Nothing is written down") && !strstr(text, "not explained"),
		"%s", text);
	free(text);
	struct result r = run("devices");
	cr_expect(!strstr(r.out, "   without "), "%s", r.out);
	release(&r);

	text = validate(LAP_INVALID, NULL);
	cr_expect(strstr(text, "switched off on this device from now on"), "%s", text);
	cr_expect(strstr(text, "next: lapilli validate, which"), "%s", text);
	free(text);
	r = run("devices");
	cr_expect(strstr(r.out, "   without    shuffle, which"), "%s", r.out);
	release(&r);
	text = validate(LAP_OK, NULL);
	cr_expect(strstr(text, " computes right results without shuffle: "), "%s", text);
	free(text);
	for (int measured = 0; measured < 2; measured++) { /* --tune off does not bring it back */
		cr_assert_eq(vk_open(&(struct vk_options){.no_tuning = !measured}, &b, &err),
			LAP_OK, "%s", err.text);
		cr_expect_null(pipeline_key((struct vk *)b, &norm).variant);
		b->ops->close(b);
	}
	text = validate(LAP_INVALID, "--no-remember"); /* all is tried again */
	free(text);
}

static void count_warnings(void *user, enum lap_log_level level, const char *text)
{
	if (level == LAP_LOG_WARNING && strstr(text, "matrix units"))
		++*(uint32_t *)user;
}

/* A device as if it had matrices, by what the test says of them; whether they are used after the check. */
static bool matrices_remain(bool are_wrong, uint32_t *n_warnings)
{
	const struct log log = {count_warnings, n_warnings};
	struct backend *b;
	struct lap_error err;
	cr_assert_eq(vk_open(&(struct vk_options){0}, &b, &err), LAP_OK, "%s", err.text);
	b->has_matrices = true;
	wrong = are_wrong ? FEATURE_COOPMAT : N_FEATURES;
	cr_assert_eq(check_matrices(b, &log, &err), LAP_OK, "%s", err.text);
	wrong = N_FEATURES;
	const bool remain = !tuning_is_off(b->tuning, FEATURE_COOPMAT);
	b->ops->close(b);
	return remain;
}

/* Products on matrix units are checked before they are used, and left out for good where they are wrong. */
Test(vk_tune, wrong_matrices_are_left_out)
{
	uint32_t n_warnings = 0;
	cr_assert_eq(setenv("XDG_CACHE_HOME", scratch_path("matrices"), 1), 0);
	cr_expect(matrices_remain(false, &n_warnings));
	cr_expect_eq(n_warnings, 0);
	cr_expect(!matrices_remain(true, &n_warnings));
	cr_expect(!matrices_remain(false, &n_warnings), "it is written down");
	cr_expect_eq(n_warnings, 1);
	struct result r = run("devices");
	cr_expect(strstr(r.out, "   without    coopmat, which"), "%s", r.out);
	release(&r);
}

Test(vk_tune, mistakes)
{
	expect_failure(run("tune", "--tune", "off"), 2, "expected quick, full");
	expect_failure(run("tune", "-dev", "cpu"), 2, "nothing to tune");
}
