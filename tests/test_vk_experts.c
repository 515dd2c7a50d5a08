/* A layer of experts on a Vulkan device, from router to sum: the same bits again and again, whatever the
 * neighbours of a row and the chunks of the weights.  test_vk_kernels.c holds its kernels to the
 * reference. */
#include "backend.h"
#include "models.h"

enum { N_ROWS = 19, N_EXPERT = 6, N_USED = 2, N_EMBD = 96, N_FF = 70, N_SLOTS = N_ROWS * N_USED };

static struct backend *vk;
static struct buffer *buffers[40];
static unsigned n_buffers;
static uint64_t state;

static void setup(void)
{
	static const struct vk_options options;
	struct lap_error err;
	n_buffers = 0;
	cr_assert_eq(vk_open(&options, &vk, &err), LAP_OK, "%s", err.text);
}

static void teardown(void)
{
	while (n_buffers > 0)
		vk->ops->buffer_destroy(vk, buffers[--n_buffers]);
	vk->ops->close(vk);
}

TestSuite(vk_experts, .init = setup, .fini = teardown);

static struct view shared(uint64_t n_bytes, void *bytes_of)
{
	struct lap_error err;
	struct view v = {.n_bytes = n_bytes};
	cr_assert_lt(n_buffers, ARRAY_COUNT(buffers));
	cr_assert_eq(vk->ops->buffer_create(vk, n_bytes, MEMORY_SHARED, "a test", &v.buffer, &err),
		LAP_OK, "%s", err.text);
	buffers[n_buffers++] = v.buffer;
	void *bytes = vk->ops->buffer_map(v.buffer);
	memcpy(bytes_of, &bytes, sizeof bytes);
	return v;
}

static struct rows rows_of(uint32_t n_rows, uint32_t n, float **floats)
{
	struct rows rows = {.n = n, .stride = ROW_STRIDE(n)};
	rows.view = shared((uint64_t)n_rows * rows.stride * sizeof(float), floats);
	memset(*floats, 0, rows.view.n_bytes);
	return rows;
}

static float random_float(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(state >> 32) / 0x80000000u - 1);
}

/* F32 weights; the same ones for every cut into chunks. */
static struct weights weights_of(uint32_t n_experts, uint32_t n_out, uint32_t n_in,
	uint32_t experts_per_chunk, struct view *chunks)
{
	struct weights w = {
		.name = "weights",
		.weight = WEIGHT_f32,
		.n_rows = (n_experts ? n_experts : 1) * n_out,
		.n_cols = n_in,
		.n_experts = n_experts,
		.chunks = chunks,
	};
	w.rows_per_chunk = experts_per_chunk ? experts_per_chunk * n_out : w.n_rows;
	for (uint32_t first = 0; first < w.n_rows; first += w.rows_per_chunk) {
		float *floats;
		uint64_t n = (uint64_t)w.rows_per_chunk * n_in;
		chunks[w.n_chunks++] = shared(n * sizeof(float) + WEIGHT_PAD, &floats);
		for (uint64_t i = 0; i < n; i++)
			floats[i] = random_float();
	}
	return w;
}

struct expert_layer {
	struct runnable *runnable;
	float *x, *out;
	const struct expert_route *routes;
	struct step_header *step;
	uint32_t stride; /* of x and out */
};

/* out = x + the experts of x, weighted by softmax over all. */
static struct expert_layer layer_create(enum role role, uint32_t experts_per_chunk)
{
	struct expert_layer l = {0};
	struct view chunks[4][N_EXPERT];
	struct dispatch_size *sizes;
	struct rows none = {0};
	float *floats;
	void *bytes;
	struct lap_error err;
	struct plan p = {.role = role, .max_rows = N_ROWS, .layer = -1};
	state = 11;
	p.step = shared(sizeof *l.step + N_ROWS * sizeof(struct step_row), &l.step);
	p.sizes = shared(MAX_SIZES * sizeof *sizes, &sizes);
	memset(sizes, 0, p.sizes.n_bytes);
	struct rows x = rows_of(N_ROWS, N_EMBD, &l.x), out = rows_of(N_ROWS, N_EMBD, &l.out);
	struct rows logits = rows_of(N_ROWS, N_EXPERT, &floats);
	struct rows gate = rows_of(N_SLOTS, N_FF, &floats), up = rows_of(N_SLOTS, N_FF, &floats);
	struct rows ff = rows_of(N_SLOTS, N_FF, &floats), down = rows_of(N_SLOTS, N_EMBD, &floats);
	struct routing routing = {.n_used = N_USED};
	routing.routes = shared(N_SLOTS * sizeof *l.routes, &l.routes);
	routing.tiles = shared(expert_tiles_bytes(N_EXPERT, N_SLOTS), &bytes);
	l.stride = x.stride;

	struct weights router = weights_of(0, N_EXPERT, N_EMBD, 0, chunks[0]);
	struct weights w_gate = weights_of(N_EXPERT, N_FF, N_EMBD, experts_per_chunk, chunks[1]);
	struct weights w_up = weights_of(N_EXPERT, N_FF, N_EMBD, experts_per_chunk, chunks[2]);
	struct weights w_down = weights_of(N_EXPERT, N_EMBD, N_FF, experts_per_chunk, chunks[3]);
	plan_matmul(&p, logits, &router, x, (struct epilogue){0});
	plan_route(&p, routing.routes, logits, N_USED, false, NULL);
	if (role == ROLE_PREFILL)
		plan_tiles(&p, routing.tiles, routing.routes, N_EXPERT, N_USED);
	plan_expert_matmul(&p, gate, &w_gate, x, NULL, &routing, false);
	plan_expert_matmul(&p, up, &w_up, x, NULL, &routing, false);
	plan_glu(&p, ff, gate, up, ACTIVATION_SILU, N_USED);
	plan_expert_matmul(&p, down, &w_down, ff, NULL, &routing, true);
	plan_expert_sum(&p, out, down, routing.routes, N_USED, x, 1, none, none);
	cr_assert(!p.out_of_memory);
	cr_assert_eq(vk->ops->prepare(vk, &p, false, &l.runnable, &err), LAP_OK, "%s", err.text);
	plan_free(&p);
	for (unsigned row = 0; row < N_ROWS; row++)
		for (unsigned i = 0; i < N_EMBD; i++)
			l.x[row * l.stride + i] = random_float();
	return l;
}

/* The rows of `out`: [n_rows][stride]. */
static void layer_run(const struct expert_layer *l, uint32_t n_rows, float *out)
{
	struct lap_error err;
	uint64_t ticket;
	memset(l->out, 0, n_rows * l->stride * sizeof *out);
	*l->step = (struct step_header){.n_rows = n_rows, .n_kv = 1};
	vk->ops->begin(l->runnable);
	cr_assert_eq(vk->ops->run(vk, l->runnable, 1, &ticket, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(vk->ops->wait(vk, ticket, &err), LAP_OK, "%s", err.text);
	memcpy(out, l->out, n_rows * l->stride * sizeof *out);
}

static const enum role roles[] = {ROLE_PREFILL, ROLE_DECODE};
static const char *const role_names[] = {"prefill", "decode"};

Test(vk_experts, same_bits_whatever_the_neighbours)
{
	enum { N_REPEATS = 20, STRIDE = ROW_STRIDE(N_EMBD) };
	float first[N_ROWS * STRIDE], again[N_ROWS * STRIDE];
	for (unsigned r = 0; r < ARRAY_COUNT(roles); r++) {
		struct expert_layer l = layer_create(roles[r], 0);
		layer_run(&l, N_ROWS, first);
		bool taken[N_EXPERT] = {false}, moved = false;
		for (unsigned i = 0; i < N_SLOTS; i++)
			taken[l.routes[i].expert] = true;
		for (unsigned i = 0; i < N_EXPERT; i++)
			cr_assert(taken[i], "expert %u: the test wants all of them", i);
		for (unsigned i = 0; i < N_ROWS * STRIDE; i++)
			moved = moved || first[i] != l.x[i];
		cr_assert(moved);
		for (unsigned i = 0; i < N_REPEATS; i++) {
			layer_run(&l, N_ROWS, again);
			cr_assert_eq(memcmp(first, again, sizeof first), 0, "%s: run %u differs",
				role_names[r], i);
		}
		float x[N_ROWS * STRIDE];
		memcpy(x, l.x, sizeof x);
		for (unsigned row = 0; row < N_ROWS; row++) {
			memcpy(l.x, x + row * STRIDE, STRIDE * sizeof *x);
			layer_run(&l, 1, again);
			cr_expect_eq(memcmp(first + row * STRIDE, again, STRIDE * sizeof *x), 0,
				"%s: row %u differs without its neighbours", role_names[r], row);
		}
		vk->ops->release(vk, l.runnable);
		teardown();
		setup();
	}
}

Test(vk_experts, same_bits_whatever_the_chunks)
{
	float whole[N_ROWS * ROW_STRIDE(N_EMBD)], cut[N_ROWS * ROW_STRIDE(N_EMBD)];
	for (unsigned r = 0; r < ARRAY_COUNT(roles); r++) {
		static const uint32_t experts_per_chunk[] = {1, 2, 3};
		struct expert_layer l = layer_create(roles[r], 0);
		layer_run(&l, N_ROWS, whole);
		vk->ops->release(vk, l.runnable);
		for (unsigned i = 0; i < ARRAY_COUNT(experts_per_chunk); i++) {
			teardown();
			setup();
			l = layer_create(roles[r], experts_per_chunk[i]);
			layer_run(&l, N_ROWS, cut);
			vk->ops->release(vk, l.runnable);
			cr_expect_eq(memcmp(whole, cut, sizeof whole), 0,
				"%s: chunks of %u experts differ", role_names[r],
				experts_per_chunk[i]);
		}
		teardown();
		setup();
	}
}

/* A broken row goes to experts that exist and stays broken; its neighbours do not notice. */
Test(vk_experts, a_nan_stays_in_its_row)
{
	enum { BROKEN = 4, STRIDE = ROW_STRIDE(N_EMBD) };
	float whole[N_ROWS * STRIDE], broken[N_ROWS * STRIDE];
	for (unsigned r = 0; r < ARRAY_COUNT(roles); r++) {
		struct expert_layer l = layer_create(roles[r], 0);
		layer_run(&l, N_ROWS, whole);
		l.x[BROKEN * STRIDE + 17] = NAN;
		layer_run(&l, N_ROWS, broken);
		for (unsigned i = 0; i < N_SLOTS; i++)
			cr_assert_lt(l.routes[i].expert, N_EXPERT);
		cr_assert_neq(
			l.routes[BROKEN * N_USED].expert, l.routes[BROKEN * N_USED + 1].expert);
		for (unsigned row = 0; row < N_ROWS; row++) {
			const float *own = broken + row * STRIDE;
			if (row != BROKEN)
				cr_expect_eq(
					memcmp(whole + row * STRIDE, own, STRIDE * sizeof *own), 0,
					"%s: row %u", role_names[r], row);
			else
				for (unsigned i = 0; i < N_EMBD; i++)
					cr_assert(isnan(own[i]), "%s: %u", role_names[r], i);
		}
		vk->ops->release(vk, l.runnable);
		teardown();
		setup();
	}
}

/* A prompt, and 16 tokens drawn after it, 20 times: the same logits to the last bit, the same tokens. */
Test(vk_models_of_experts, a_prompt_again_and_again)
{
	enum { N_REPEATS = 20, N_PROMPT = 130, N_PREDICT = 16 };
	SKIP_WITHOUT("golden/llama-moe.gguf");
	struct lap_model *m = open_model(shared_path("golden/llama-moe.gguf"), NULL);
	size_t n_bytes = (size_t)N_PROMPT * lap_model_info(m)->n_vocab * sizeof(float);
	struct lap_session_options options = {.n_ctx = N_PROMPT + N_PREDICT, .logits_all = true};
	struct lap_session *s = open_session(m, &options);
	float *logits = malloc(n_bytes), *first_logits = malloc(n_bytes);
	struct collected first = {0};
	int32_t tokens[N_PROMPT];
	struct lap_error err = {0};
	struct lap_generate_options generate = {
		.sampling = lap_sampling_default(), .n_predict = N_PREDICT, .ignore_eos = true};
	generate.sampling.seed = 42;
	for (int i = 0; i < N_PROMPT; i++)
		tokens[i] = 5 + i * 37 % 300;
	for (unsigned run = 0; run < N_REPEATS; run++) {
		struct collected c = {0};
		lap_session_clear(s);
		cr_assert_eq(lap_session_logits(s, tokens, N_PROMPT, logits, &err), LAP_OK, "%s",
			err.text);
		lap_session_clear(s);
		cr_assert_eq(lap_generate(s, tokens, N_PROMPT, &generate, collect, &c, NULL, &err),
			LAP_OK, "%s", err.text);
		cr_assert_eq(c.n, N_PREDICT);
		if (run == 0) {
			memcpy(first_logits, logits, n_bytes);
			first = c;
		}
		cr_expect_eq(memcmp(logits, first_logits, n_bytes), 0, "run %u: logits", run);
		cr_expect_eq(memcmp(c.ids, first.ids, N_PREDICT * sizeof *c.ids), 0,
			"run %u: other tokens", run);
	}
	free(logits);
	free(first_logits);
	lap_session_destroy(s);
	lap_model_close(m);
}
