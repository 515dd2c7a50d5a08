/* Many prompts at once: see batch.h. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "console.h"
#include "drafting.h"
#include "prompts.h"
#include "signals.h"
#include "source.h"

#define DEFAULT_PARALLEL 8 /* up to so many rows a step is summed as it is for one */

static uint32_t n_parallel(const struct options *o, const struct tasks *t)
{
	const size_t most = o->n_parallel ? (size_t)o->n_parallel : DEFAULT_PARALLEL;
	return (uint32_t)(t->n < most ? t->n : most);
}

static uint32_t largest_top(const struct tasks *t)
{
	uint32_t n = 0;
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i].request.o.n_top > n)
			n = t->items[i].request.o.n_top;
	return n;
}

static json_t *failure_json(const struct lap_request *r)
{
	return json_pack("{s:i, s:o}", "status", (int)r->status, "message",
		json_bytes(r->error.text, strlen(r->error.text)));
}

static json_t *result_json(
	const struct task *task, const struct lap_request *r, const struct answer *a)
{
	json_t *object = answer_json(a, task->prompt.ids, task->prompt.n, &r->result);
	if (object && r->status && json_object_set_new(object, "error", failure_json(r))) {
		json_decref(object);
		return NULL;
	}
	return object;
}

/* One list, or behind the lines of the tokens a line for each. */
static int print_json(const struct options *o, const struct tasks *t,
	const struct lap_request *requests, const struct answer *answers)
{
	json_t *list = json_array();
	bool complete = list != NULL;
	int status = LAP_OK;
	for (size_t i = 0; i < t->n && complete && !status; i++) {
		json_t *object = result_json(&t->items[i], &requests[i], &answers[i]);
		if (o->json_lines)
			status = out_json(object);
		else
			complete = json_array_append_new(list, object) == 0;
	}
	if (o->json_lines || status) {
		json_decref(list);
		return status;
	}
	if (!complete) {
		json_decref(list);
		list = NULL;
	}
	return out_json(list);
}

/* Each text under a line of its own, and an empty line between them. */
static void print_texts(const struct options *o, const struct tasks *t,
	const struct lap_request *requests, const struct answer *answers)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct task *task = &t->items[i];
		const struct text *text = &answers[i].text;
		const bool shown = o->display_prompt && (!task->prompt.chat || o->special) &&
			task->prompt.text.n;
		out_printf("%s==> %s %zu (%s) <==\n", i ? "\n" : "", t->counted, task->number,
			requests[i].status ? "failed" : finish_name(requests[i].result.finish));
		if (shown)
			out_write(task->prompt.text.data, task->prompt.text.n);
		if (text->n)
			out_write(text->data, text->n);
		const struct text *last = text->n ? text : shown ? &task->prompt.text : NULL;
		if (last && last->data[last->n - 1] != '\n')
			out_write("\n", 1);
	}
	out_flush();
}

static void print_statistics(const struct options *o, const struct lap_model_info *m,
	const struct lap_request *requests, size_t n, double seconds)
{
	struct lap_generation sum = {.n_prompt = 0};
	size_t n_done = 0;
	for (size_t i = 0; i < n; i++) {
		const struct lap_generation *g = &requests[i].result;
		n_done += !requests[i].status;
		sum.n_prompt += g->n_prompt;
		sum.n_reused += g->n_reused;
		sum.n_generated += g->n_generated;
		sum.n_shifts += g->n_shifts;
		sum.on_host |= g->on_host;
		sum.n_drafted += g->n_drafted;
		sum.n_accepted += g->n_accepted;
		if (g->submits >= sum.submits) { /* the last to leave: of the whole call */
			sum.submits = g->submits;
			sum.prefill_submits = g->prefill_submits;
			sum.decode_submits = g->decode_submits;
			sum.waits = g->waits;
			sum.host_cpu_seconds = g->host_cpu_seconds;
			sum.host_thread_seconds = g->host_thread_seconds;
			sum.device_bytes = g->device_bytes;
		}
	}
	say("lapilli %s: %s (%s, %s) on %s", lap_version(), model_name(m), m->architecture,
		bytes_text(m->weight_bytes), m->device_name);
	say("%zu of %zu prompts, %zu tokens (%zu reused), %zu generated in %.2f s: %.1f tok/s "
	    "together, %s on the device",
		n_done, n, sum.n_prompt, sum.n_reused, sum.n_generated, seconds,
		per_second((double)sum.n_generated, seconds), bytes_text(sum.device_bytes));
	if (sum.n_shifts)
		say("contexts were full %u times", (unsigned)sum.n_shifts);
	answer_drafts(&sum);
	if (sum.on_host && !sum.n_drafted)
		say("tokens drawn on the host, one step a submit");
	if (!o->verbose)
		return;
	say("submits %u, %u prefill, %u decode; waits %u; CPU time %.3f s, of it the host thread "
	    "%.3f ms a token",
		sum.submits, sum.prefill_submits, sum.decode_submits, sum.waits,
		sum.host_cpu_seconds,
		1e3 * per_second(sum.host_thread_seconds, (double)sum.n_generated));
}

/* Tells of what failed; the status of the first. */
static enum lap_status failures(const struct tasks *t, const struct lap_request *requests)
{
	enum lap_status first = LAP_OK;
	for (size_t i = 0; i < t->n; i++)
		if (requests[i].status) {
			say("lapilli: %s: %s", task_place(t, &t->items[i]), requests[i].error.text);
			first = first ? first : requests[i].status;
		}
	return first;
}

static enum lap_status run(const struct options *o, struct lap_model *model, struct tasks *t,
	struct lap_request *requests, struct answer *answers, struct lap_error *err)
{
	struct lap_session *session = NULL;
	struct lap_session_options so = {.n_top = largest_top(t), .n_draft = drafting_most(o)};
	struct drafting draft = {.model = NULL};
	const bool json = o->json || o->json_lines;
	enum lap_status status = tasks_encode(t, model, err);
	if (!status)
		status = source_sequences(o, model, n_parallel(o, t), &so, err);
	if (!status)
		status = lap_session_create(model, &so, &session, err);
	if (!status)
		status = drafting_open(o, &so, session, &draft, err);
	if (!status) {
		interrupt_session(session);
		if (interrupted())
			status = fail(err, LAP_ERROR, "interrupted");
	}
	for (size_t i = 0; i < t->n; i++) {
		struct task *task = &t->items[i];
		answers[i] = (struct answer){.model = model,
			.lines = o->json_lines,
			.logprobs = json && task->o.logprobs >= 0,
			.counted = t->counted,
			.number = task->number};
		drafting_set(o, &draft, &task->request.o);
		requests[i] = (struct lap_request){.prompt = task->prompt.ids,
			.n = task->prompt.n,
			.options = &task->request.o,
			.on_token = answer_take,
			.user = &answers[i]};
	}
	if (!status && !json)
		answer_banner(lap_model_info(model));
	double start = clock_seconds();
	if (!status)
		status = lap_generate_batch(session, requests, t->n, err);
	double seconds = clock_seconds() - start;
	interrupt_session(NULL);
	for (size_t i = 0; i < t->n && !status; i++)
		if (answers[i].out_of_memory)
			status = fail_memory(err, "the generated texts", answers[i].text.n);
	if (!status) {
		if (json)
			status = (enum lap_status)print_json(o, t, requests, answers);
		else
			print_texts(o, t, requests, answers);
		const enum lap_status first = failures(t, requests);
		if (!json && out_flush())
			print_statistics(o, lap_model_info(model), requests, t->n, seconds);
		status = status ? status : first;
		err->text[0] = '\0';
	}
	lap_session_destroy(session);
	drafting_close(&draft);
	return status;
}

enum lap_status batch_generate(const struct options *o, struct lap_error *err)
{
	struct tasks t;
	struct lap_model *model = NULL;
	struct lap_request *requests = NULL;
	struct answer *answers = NULL;
	enum lap_status status = tasks_read(o, &t, err);
	interrupt_install(); /* after the file, for which a terminal may keep us waiting */
	if (!status)
		status = source_model(o, SOURCE_MODEL, &model, err);
	if (!status) {
		requests = calloc(t.n, sizeof *requests);
		answers = calloc(t.n, sizeof *answers);
		status = requests && answers ? run(o, model, &t, requests, answers, err)
					     : fail_memory(err, "requests", t.n * sizeof *requests);
	}
	for (size_t i = 0; answers && i < t.n; i++)
		answer_release(&answers[i]);
	free(answers);
	free(requests);
	lap_model_close(model);
	tasks_release(&t);
	return status;
}
