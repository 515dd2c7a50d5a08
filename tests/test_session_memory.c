/* What lap_session_memory promises is what a session takes; and what is said when it does not fit. */
#include <stdio.h>

#include "models.h"
#include "session_memory.h"

static uint64_t device_memory; /* that the backend claims to have */

static uint64_t claimed_memory(struct backend *b)
{
	(void)b;
	return device_memory;
}

static char last_warning[1024];

static void keep_warning(void *user, enum lap_log_level level, const char *line)
{
	(void)user;
	if (level == LAP_LOG_WARNING)
		snprintf(last_warning, sizeof(last_warning), "%s", line);
}

/* A golden model on the CPU, with a training context long enough to search in. */
static struct lap_model *open_long(bool no_weights)
{
	static const char *const overrides[] = {"qwen2.context_length=int:100000"};
	struct lap_model *m;
	struct lap_error err = {0};
	struct lap_model_options options = {
		.device = "cpu",
		.no_weights = no_weights,
		.overrides = overrides,
		.n_overrides = 1,
		.log = keep_warning,
	};
	cr_assert_eq(lap_model_open(vector_path("golden/qwen2-plain.gguf"), &options, &m, &err),
		LAP_OK, "%s", err.text);
	return m;
}

/* The backend with another size, and as another type of device. */
static void claim(struct lap_model *m, uint64_t n_bytes, enum lap_device_type type)
{
	static struct backend_ops ops;
	static struct lap_device device;
	ops = *m->backend->ops;
	ops.available = claimed_memory;
	device.type = type;
	m->backend->ops = &ops;
	m->backend->device = &device;
	device_memory = n_bytes;
}

static struct lap_memory_plan plan_of(struct lap_model *m, struct lap_session_options options)
{
	struct lap_memory_plan plan;
	struct lap_error err = {0};
	cr_assert_eq(lap_session_memory(m, &options, &plan, &err), LAP_OK, "%s", err.text);
	return plan;
}

Test(session_memory, a_plan_is_what_a_session_takes)
{
	static const struct lap_session_options sessions[] = {{0}, {.n_ctx = 33},
		{.n_ctx = 2000, .n_batch = 7}, {.type_k = LAP_KV_F32, .type_v = LAP_KV_Q8_0},
		{.logits_all = true, .type_k = LAP_KV_Q4_0}};
	struct lap_model *m = open_long(false);
	for (size_t i = 0; i < ARRAY_COUNT(sessions); i++) {
		struct lap_memory_plan p = plan_of(m, sessions[i]);
		uint64_t before = m->backend->device_bytes;
		struct lap_session *s = open_session(m, &sessions[i]);
		uint64_t taken = m->backend->device_bytes - before;
		cr_expect_eq(p.n_ctx, s->n_ctx);
		cr_expect_eq(p.n_batch, s->n_batch);
		cr_expect_geq(p.kv_bytes + p.scratch_bytes, taken);
		cr_expect_leq(p.kv_bytes + p.scratch_bytes, taken + 256 * s->n_buffers);
		cr_expect(p.fits && p.largest_buffer && p.largest_n_ctx >= p.n_ctx);
		lap_session_destroy(s);
	}
	lap_model_close(m);
}

Test(session_memory, the_largest_context_is_the_largest)
{
	struct lap_model *m = open_long(true);
	struct lap_session_options o = {.n_batch = 64};
	struct lap_memory_plan p = plan_of(m, o);
	cr_expect_eq(p.largest_n_ctx, 100000, "what it was trained on");
	claim(m, p.weight_bytes + (8 << 20), LAP_DEVICE_DISCRETE);
	p = plan_of(m, o);
	cr_assert(p.largest_n_ctx > 100 && p.largest_n_ctx < 100000, "%u", p.largest_n_ctx);
	o.n_ctx = p.largest_n_ctx;
	cr_expect(plan_of(m, o).fits);
	o.n_ctx++;
	cr_expect_not(plan_of(m, o).fits);
	/* fewer bytes a token, more tokens */
	uint32_t n_ctx_f16 = p.largest_n_ctx;
	o = (struct lap_session_options){
		.n_batch = 64, .type_k = LAP_KV_Q4_0, .type_v = LAP_KV_Q4_0};
	cr_expect_gt(plan_of(m, o).largest_n_ctx, n_ctx_f16);
	claim(m, p.weight_bytes, LAP_DEVICE_DISCRETE);
	cr_expect_eq(plan_of(m, o).largest_n_ctx, 0);
	lap_model_close(m);
}

Test(session_memory, a_model_larger_than_the_device)
{
	struct lap_model *m = open_long(true);
	struct lap_error err = {0};
	uint64_t n_bytes = engine_weight_bytes(m);
	char needed[64];
	snprintf(needed, sizeof(needed), "the weights need %.1f MiB", (double)n_bytes / (1 << 20));

	claim(m, 100000, LAP_DEVICE_DISCRETE);
	cr_expect_eq(engine_check_memory(m, &err), LAP_NO_MEMORY);
	cr_expect(strstr(err.text, needed) && strstr(err.text, "has 0.1 MiB") &&
			strstr(err.text, "no context fits"),
		"%s", err.text);
	cr_expect_str_eq(last_warning, "");

	claim(m, 100000, LAP_DEVICE_CPU); /* such drivers name sizes that they do not keep to */
	cr_expect_eq(engine_check_memory(m, &err), LAP_OK);
	cr_expect(strstr(last_warning, needed), "%s", last_warning);

	struct lap_session_options small = {
		.n_ctx = 256, .n_batch = 32}; /* shorter than asked for */
	struct lap_memory_plan p = plan_of(m, small);
	claim(m, n_bytes + p.kv_bytes + p.scratch_bytes, LAP_DEVICE_DISCRETE);
	last_warning[0] = '\0';
	cr_expect_eq(engine_check_memory(m, &err), LAP_OK);
	cr_expect(strstr(last_warning, "what fits: -c ") &&
			strstr(last_warning, "with -ctk q4_0 -ctv q4_0"),
		"%s", last_warning);

	claim(m, n_bytes + (1 << 24), LAP_DEVICE_DISCRETE);
	last_warning[0] = '\0';
	cr_expect_eq(engine_check_memory(m, &err), LAP_OK);
	cr_expect_str_eq(last_warning, "");
	lap_model_close(m);
}

Test(session_memory, weights_that_were_not_loaded)
{
	struct lap_model *m = open_long(true);
	struct lap_session *s;
	(void)collect;
	struct lap_error err = {0};
	cr_expect_eq(m->n_buffers, 0, "nothing was uploaded");
	cr_expect_eq(lap_session_create(m, NULL, &s, &err), LAP_USAGE);
	cr_expect(!s && strstr(err.text, "without its weights"), "%s", err.text);
	lap_model_close(m);
}

/* States take the same whatever the context, and of each sequence as much; only other layers have keys. */
Test(session_memory, recurrent_layers_keep_their_state)
{
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	struct lap_model *m = open_model(shared_path("golden/qwen35-plain.gguf"), "cpu");
	/* 3 of 4 layers: 3 rows before a block, 16 of it, of 256 channels; 4 heads of 32 x 32, and for each
	 * position 2 keys, 4 values, 4 sums */
	const uint64_t block =
		(19 * 256 + 4 * 32 * 32 + 16 * (2 * 32 + 4 * 32 + 4)) * sizeof(float);
	struct lap_session_options o = {.n_ctx = 1024, .n_batch = 32};
	struct lap_memory_plan p = plan_of(m, o), longer, more;
	cr_expect_eq(lap_model_info(m)->n_recurrent, 3);
	cr_expect_eq(p.state_bytes, 3 * STATE_HELD * block);
	cr_expect_eq(p.kv_token_bytes, 2 * 2 * 32 * 2);
	o.n_ctx = 2048;
	longer = plan_of(m, o);
	cr_expect_eq(longer.state_bytes, p.state_bytes);
	o.n_seq = 3;
	more = plan_of(m, o);
	cr_expect_eq(more.state_bytes, 3 * p.state_bytes);
	lap_model_close(m);
}

/* They are bound whole: too many sequences are said to be too many, whatever the context. */
Test(session_memory, states_of_too_many_sequences)
{
	SKIP_WITHOUT("golden/qwen35-plain.gguf");
	struct lap_model *m = open_model(shared_path("golden/qwen35-plain.gguf"), "cpu");
	struct lap_session_options o = {.n_ctx = 64, .n_batch = 16, .n_seq = 8};
	struct lap_session *s;
	struct lap_error err = {0};
	m->backend->max_buffer_bytes =
		3 * STATE_HELD * (4 * 32 * 32 + 16 * (2 * 32 + 4 * 32 + 4)) * sizeof(float);
	cr_expect_eq(lap_session_create(m, &o, &s, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "state of a layer for 8 sequences") &&
			strstr(err.text, "fewer sequences are needed") &&
			strstr(err.text, "what fits: 3 at a time (-np 3)"),
		"%s", err.text);
	o.n_seq = 3;
	s = open_session(m, &o);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* Windows bound the cache: a token more takes nothing in their layers. */
Test(session_memory, window_layers_keep_their_window)
{
	SKIP_WITHOUT("golden/gemma3-plain.gguf");
	struct lap_model *m = open_model(shared_path("golden/gemma3-plain.gguf"), "cpu");
	const struct hparams *h = &m->model->h;
	uint32_t n_full = 0;
	for (uint32_t il = 0; il < h->n_layer; il++)
		n_full += !m->model->layers[il].window;
	cr_assert(n_full > 0 && n_full < h->n_layer);
	struct lap_session_options o = {.n_ctx = 1024, .n_batch = 32};
	struct lap_memory_plan p = plan_of(m, o), longer;
	o.n_ctx = 2048;
	longer = plan_of(m, o);
	cr_expect_eq(p.kv_token_bytes, n_full * 2 * n_kv(&m->model->layers[0]) * 2);
	cr_expect_eq(longer.kv_bytes - p.kv_bytes, 1024 * p.kv_token_bytes);
	lap_model_close(m);
}
