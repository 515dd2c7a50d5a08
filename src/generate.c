/* The generation loop: a prompt becomes tokens, tokens become text.
 *
 * Owns the choice of steps per submit, the two submits in flight, and what happens to each result.
 * The step itself, the draw and the stop rules run where the weights are. */
#include <assert.h>
#include <string.h>
#include <sys/random.h>

#include "kv.h"
#include "sampler.h"
#include "session.h"

#define SUBMIT_BUDGET   0.045 /* seconds a decode submit should last */
#define MAX_STEPS       64    /* of one submit, where the number is chosen */
#define MAX_IN_FLIGHT   2
#define MAX_FIXED_STEPS (RING_ENTRIES / (2 * MAX_IN_FLIGHT))

static_assert(
	MAX_STEPS <= MAX_FIXED_STEPS, "the ring holds all that is in flight, and as much again");

struct lap_sampling lap_sampling_default(void)
{
	return (struct lap_sampling){
		.temperature = 0.8f,
		.top_k = 40,
		.top_p = 0.95f,
		.min_p = 0.05f,
		.repeat_penalty = 1.0f,
		.repeat_last_n = 64,
		.seed = LAP_SEED_RANDOM,
		.typical_p = 1.0f,
		.xtc_threshold = 0.1f,
		.dry_base = 1.75f,
		.dry_allowed_length = 2,
		.dry_penalty_last_n = -1,
		.mirostat_tau = 5.0f,
		.mirostat_eta = 0.1f,
		.dynatemp_exponent = 1.0f,
	};
}

struct generation {
	struct lap_session *s;
	const struct lap_generate_options *options;
	const struct tokenizer *tokenizer;
	lap_token_fn *on_token;
	void *user;
	struct lap_generation *result;
	struct decoder decoder;
	struct text text;
	double start;         /* clock_seconds at the call */
	double first, last;   /* at the first and the latest token */
	uint32_t n_target;    /* tokens to generate at most */
	uint32_t n_submitted; /* steps */
	uint32_t ring_start;  /* entries in the ring before this call */
	bool finished;
};

static uint32_t common_prefix(const struct lap_session *s, const int32_t *prompt, uint32_t n)
{
	uint32_t i = 0;
	while (i < s->n_past && i < n && s->tokens[i] == prompt[i])
		i++;
	return i;
}

static enum lap_status set_sequence(struct generation *g, struct lap_error *err)
{
	struct lap_session *s = g->s;
	struct sequence sequence = {
		.n_ctx = s->n_ctx,
		.n_left = g->n_target,
		.n_sampled = s->sequence->n_sampled,
	};
	struct lap_sampling sampling = g->options->sampling;
	if (sampling.seed == LAP_SEED_RANDOM) {
		uint32_t seed; /* 32 bits: short enough to type */
		if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
			return fail(err, LAP_ERROR, "the system gives no random numbers");
		sampling.seed = seed;
	}
	if (sampling.repeat_penalty == 0) /* as in a zeroed struct */
		sampling.repeat_penalty = 1;
	enum lap_status status =
		sampler_set(&sequence, &sampling, s->m->info.n_vocab, s->n_ctx, err);
	if (!g->options->ignore_eos && g->tokenizer) {
		size_t n_ends;
		const int32_t *ends = tokenizer_ends(g->tokenizer, &n_ends);
		for (size_t i = 0; i < n_ends && i < MAX_STOPS; i++)
			sequence.stop[sequence.n_stop++] = (uint32_t)ends[i];
	}
	g->result->seed = sampling.seed;
	g->ring_start = sequence.n_sampled;
	*s->sequence = sequence;
	return status;
}

/* Hands one result on.  Sets finished when it is the last. */
static enum lap_status take(
	struct generation *g, const struct ring_entry *entry, struct lap_error *err)
{
	struct lap_generation *result = g->result;
	int32_t token = (int32_t)entry->token;
	if (entry->error)
		return fail(err, LAP_ERROR,
			"the logits after token %zu are not numbers: the weights are damaged, or "
			"this "
			"device computes wrong results (lapilli validate tells)",
			result->n_prompt + result->n_generated);
	g->last = clock_seconds();
	if (result->n_generated == 0)
		g->first = g->last;
	uint64_t pos = (uint64_t)result->n_prompt + result->n_generated++;
	if (pos < g->s->n_ctx)
		g->s->tokens[pos] = token;
	bool is_end =
		!g->options->ignore_eos && g->tokenizer && tokenizer_is_end(g->tokenizer, token);
	g->text.n = 0;
	if (g->tokenizer && (!is_end || g->options->special) &&
		!decoder_add(g->tokenizer, &g->decoder, token, &g->text))
		return fail_memory(err, "text", 1);
	bool go_on = !g->on_token ||
		g->on_token(g->user, token, entry->log_prob, g->text.data ? g->text.data : "",
			g->text.n);
	result->finish = is_end ? LAP_FINISH_STOP : LAP_FINISH_LENGTH;
	g->finished = is_end || result->n_generated == g->n_target;
	if (!g->finished && !go_on) {
		result->finish = LAP_FINISH_CANCELLED;
		g->finished = true;
		lap_session_cancel(g->s);
	}
	return LAP_OK;
}

/* The results of the first n_steps steps are in the ring: takes those not yet taken.  Fewer than
 * n_steps there means that the sequence ended on the device. */
static enum lap_status take_ready(struct generation *g, uint32_t n_steps, struct lap_error *err)
{
	uint32_t n_there = *(volatile u32 *)&g->s->sequence->n_sampled - g->ring_start;
	uint32_t n_ready = n_there < n_steps ? n_there : n_steps;
	enum lap_status status = LAP_OK;
	while (!status && !g->finished && g->result->n_generated < n_ready) {
		uint32_t i = g->ring_start + (uint32_t)g->result->n_generated;
		struct ring_entry entry = g->s->ring[i % RING_ENTRIES];
		if (entry.step != i + 1)
			return fail(err, LAP_ERROR, "result %u of the device is missing, found %u",
				(unsigned)i + 1, (unsigned)entry.step);
		status = take(g, &entry, err);
	}
	if (!g->finished && n_there < n_steps) {
		g->finished = true;
		g->result->finish = LAP_FINISH_CANCELLED;
	}
	return status;
}

static uint32_t choose_steps(const struct generation *g)
{
	const struct lap_session *s = g->s;
	uint32_t n = 1; /* the first token is not delayed by steps behind it */
	if (s->steps_per_submit)
		n = s->steps_per_submit;
	else if (g->n_submitted && s->step_seconds > 0) {
		double steps = SUBMIT_BUDGET / s->step_seconds;
		n = steps > MAX_STEPS ? MAX_STEPS : steps < 1 ? 1 : (uint32_t)steps;
	}
	uint32_t n_left = g->n_target - g->n_submitted;
	return n < n_left ? n : n_left;
}

struct flight {
	uint64_t ticket;
	uint32_t n_steps; /* submitted up to and with this one */
};

static enum lap_status decode(struct generation *g, int32_t last, struct lap_error *err)
{
	struct lap_session *s = g->s;
	struct backend *b = s->m->backend;
	struct flight flights[MAX_IN_FLIGHT];
	uint32_t n_flights = 0;
	enum lap_status status = session_begin_decode(s, last, err);
	double idle_since = clock_seconds();
	while (!status && (!g->finished || n_flights)) {
		/* No work behind the first: a device that computes as it is asked would hold the
		 * first token back, and its time is what the next size is chosen from. */
		uint32_t n_allowed = g->result->n_generated ? MAX_IN_FLIGHT : 1;
		while (!status && !g->finished && n_flights < n_allowed &&
			g->n_submitted < g->n_target) {
			uint32_t n = choose_steps(g);
			struct flight *f = &flights[n_flights];
			status = session_submit_decode(s, n, &f->ticket, err);
			g->n_submitted += n;
			f->n_steps = g->n_submitted;
			n_flights += !status;
		}
		if (status)
			break;
		assert(n_flights > 0);
		status = b->ops->wait(b, flights[0].ticket, err);
		uint32_t n_before = (uint32_t)g->result->n_generated;
		if (!status && !g->finished)
			status = take_ready(g, flights[0].n_steps, err);
		uint32_t n_taken = (uint32_t)g->result->n_generated - n_before;
		double now = clock_seconds();
		if (n_taken)
			s->step_seconds = (now - idle_since) / n_taken;
		idle_since = now;
		n_flights--;
		memmove(flights, flights + 1, n_flights * sizeof(*flights));
	}
	if (status) { /* what is still in flight must not touch the next call's step */
		struct lap_error ignored;
		lap_session_cancel(s);
		for (uint32_t i = 0; i < n_flights; i++)
			b->ops->wait(b, flights[i].ticket, &ignored);
	}
	return status;
}

static enum lap_status check_prompt(const struct lap_session *s, const int32_t *prompt, size_t n,
	const struct lap_generate_options *o, struct lap_error *err)
{
	if (n == 0)
		return fail(err, LAP_USAGE, "the prompt has no tokens, expected at least one");
	if (n >= s->n_ctx)
		return fail(err, LAP_USAGE,
			"the prompt has %zu tokens, which leaves no room in a context of %u", n,
			(unsigned)s->n_ctx);
	if (o->n_predict < -1)
		return fail(err, LAP_USAGE, "n_predict is %lld, expected -1 or more",
			(long long)o->n_predict);
	if (s->steps_per_submit > MAX_FIXED_STEPS)
		return fail(err, LAP_USAGE, "%u steps per submit, expected at most %u",
			(unsigned)s->steps_per_submit, (unsigned)MAX_FIXED_STEPS);
	return session_check_tokens(s, prompt, n, err);
}

/* Keeps of the KV cache what equals the prompt and came from prefill: what decode wrote was summed in
 * another order, and a reused prefix must give the same bytes as a fresh run. */
static enum lap_status prefill(
	struct generation *g, const int32_t *prompt, uint32_t n, struct lap_error *err)
{
	struct lap_session *s = g->s;
	uint32_t keep = common_prefix(s, prompt, n - 1);
	session_truncate(s, keep < s->n_prefill ? keep : s->n_prefill);
	g->result->n_reused = s->n_past;
	return session_prefill(s, prompt + s->n_past, n - 1 - s->n_past, NULL, err);
}

static enum lap_status run(
	struct generation *g, const int32_t *prompt, uint32_t n, struct lap_error *err)
{
	struct lap_session *s = g->s;
	enum lap_status status = set_sequence(g, err);
	if (!status)
		status = prefill(g, prompt, n, err);
	g->result->prefill_seconds = clock_seconds() - g->start;
	if (status || s->cancelled) {
		g->result->finish = LAP_FINISH_CANCELLED;
		return status;
	}
	if (g->n_target == 0) /* the prompt alone was asked for */
		return LAP_OK;
	status = session_write_history(s, prompt[n - 1], err);
	if (!status)
		status = decode(g, prompt[n - 1], err);
	if (status)
		return status;
	g->text.n = 0;
	if (g->tokenizer && !decoder_finish(&g->decoder, &g->text))
		return fail_memory(err, "text", 1);
	if (g->text.n && g->on_token)
		g->on_token(g->user, -1, 0, g->text.data, g->text.n);
	return LAP_OK;
}

/* Of the KV cache, what one decode step reads with n tokens in it. */
static uint64_t kv_bytes_read(const struct lap_session *s, uint64_t n)
{
	const struct model *m = s->m->model;
	uint64_t n_bytes = 0;
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
		const struct layer *layer = &m->layers[il];
		const struct kv_layer *kv = &s->kv.layers[layer->kv_layer];
		uint64_t seen = layer->window && layer->window < n ? layer->window : n;
		n_bytes += seen *
			(kv_bytes(kv->k_type, n_kv(&m->h)) + kv_bytes(kv->v_type, n_kv(&m->h)));
	}
	return n_bytes;
}

enum lap_status lap_generate(struct lap_session *s, const int32_t *prompt, size_t n,
	const struct lap_generate_options *options, lap_token_fn *on_token, void *user,
	struct lap_generation *result, struct lap_error *err)
{
	struct lap_generation unused;
	const struct lap_generate_options defaults = {lap_sampling_default(), -1, false, false};
	const struct lap_generate_options *o = options ? options : &defaults;
	if (result)
		*result = (struct lap_generation){0};
	enum lap_status status = check_prompt(s, prompt, n, o, err);
	if (status)
		return status;

	uint32_t room = s->n_ctx - (uint32_t)n;
	struct generation g = {
		.s = s,
		.options = o,
		.tokenizer = s->m->tokenizer,
		.on_token = on_token,
		.user = user,
		.result = result ? result : &unused,
		.decoder = {.special = o->special, .started = true},
		.start = clock_seconds(),
		.n_target = o->n_predict < 0 || o->n_predict > room ? room : (uint32_t)o->n_predict,
	};
	double cpu_start = clock_cpu_seconds();
	uint32_t n_prefill_before = s->n_prefill_submits, n_decode_before = s->n_decode_submits;
	*g.result = (struct lap_generation){.finish = LAP_FINISH_LENGTH, .n_prompt = n};
	s->cancelled = 0;
	status = run(&g, prompt, (uint32_t)n, err);
	text_free(&g.text);
	if (s->decode.runnable)
		session_note_written(s);

	/* The KV cache holds the prompt and every generated token but the last. */
	struct lap_generation *r = g.result;
	if (r->n_generated) {
		s->tokens[n - 1] = prompt[n - 1];
		s->n_past = (uint32_t)(n + r->n_generated - 1);
	}
	r->first_token_seconds = r->n_generated ? g.first - g.start : 0;
	r->decode_seconds = r->n_generated ? g.last - g.first : 0;
	r->host_cpu_seconds = clock_cpu_seconds() - cpu_start;
	r->prefill_recordings = s->prefill.n_recordings;
	r->decode_recordings = s->decode.n_recordings;
	r->prefill_submits = s->n_prefill_submits - n_prefill_before;
	r->decode_submits = s->n_decode_submits - n_decode_before;
	r->submits = r->prefill_submits + r->decode_submits;
	r->kv_tokens = s->n_past;
	r->step_bytes = s->m->info.step_bytes + kv_bytes_read(s, s->n_past);
	r->device_bytes = s->m->backend->device_bytes;
	return status;
}
