/* The Vulkan backend through its interface: buffers, plans, submits, failing allocations. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "support.h"
#include "vk/alloc.h"
#include "vk/cache.h"
#include "vk/memory.h"
#include "vk/pipeline.h"
#include "vk/spirv.h"
#include "vk/staging.h"

static int n_warnings;

static void on_log(void *user, enum lap_log_level level, const char *line)
{
	(void)user;
	if (level <= LAP_LOG_WARNING) {
		n_warnings++;
		fprintf(stderr, "log: %s\n", line);
	}
}

static struct backend *open_with(struct vk_options options)
{
	struct backend *b;
	struct lap_error err = {0};
	options.log.fn = on_log;
	cr_assert_eq(vk_open(&options, &b, &err), LAP_OK, "%s", err.text);
	return b;
}

/* Closing is part of every test: a leak of a Vulkan object is a message of the validation layer. */
static void close_silently(struct backend *b)
{
	b->ops->close(b);
	cr_assert_eq(n_warnings, 0, "the log held %d warnings", n_warnings);
}

static struct buffer *make(struct backend *b, uint64_t n_bytes, enum memory memory)
{
	struct buffer *buffer;
	struct lap_error err = {0};
	cr_assert_eq(b->ops->buffer_create(b, n_bytes, memory, "a test buffer", &buffer, &err),
		LAP_OK, "%s", err.text);
	return buffer;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void fill(uint8_t *bytes, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		bytes[i] = (uint8_t)(seed >> 24);
	}
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

/* What is written comes back, at odd lengths and offsets, and nothing beside it changes. */
static void roundtrip(struct backend *b, size_t n_bytes, enum memory memory, size_t at, size_t n)
{
	struct lap_error err = {0};
	struct buffer *buffer = make(b, n_bytes, memory);
	uint8_t *out = malloc(n_bytes), *in = malloc(n_bytes);
	cr_assert(out && in);
	struct view all = {buffer, 0, n_bytes}, part = {buffer, at, n};
	memset(in, 0xff, n_bytes);
	cr_assert_eq(b->ops->read(b, all, in, n_bytes, &err), LAP_OK, "%s", err.text);
	cr_assert(all_zero(in, n_bytes), "a new buffer is zero");
	fill(out, n, (uint32_t)n_bytes);
	cr_assert_eq(b->ops->write(b, part, out, n, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->read(b, all, in, n_bytes, &err), LAP_OK, "%s", err.text);
	cr_assert(all_zero(in, at) && all_zero(in + at + n, n_bytes - at - n));
	cr_assert_eq(memcmp(in + at, out, n), 0);
	memset(in, 0, n_bytes);
	cr_assert_eq(b->ops->read(b, part, in, n, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(memcmp(in, out, n), 0);
	free(out);
	free(in);
	b->ops->buffer_destroy(b, buffer);
}

Test(vk_backend, buffers_roundtrip)
{
	struct backend *b = open_with((struct vk_options){0});
	for (enum memory memory = MEMORY_DEVICE; memory <= MEMORY_SHARED; memory++) {
		roundtrip(b, 1, memory, 0, 1);
		roundtrip(b, 255, memory, 0, 254);
		roundtrip(b, 4096, memory, 256, 3333);
		roundtrip(b, 5 << 20, memory, 512, (4 << 20) + 3);
	}
	cr_assert_eq(b->device_bytes, 0, "all memory was given back");
	close_silently(b);
}

/* Longer than the staging buffer, which is filled and copied in turns. */
Test(vk_backend, staging_roundtrip)
{
	struct backend *b = open_with((struct vk_options){.no_mapping = true});
	struct buffer *buffer = make(b, 256, MEMORY_DEVICE);
	cr_assert_null(b->ops->buffer_map(buffer), "hidden from the host");
	b->ops->buffer_destroy(b, buffer);
	roundtrip(b, 1, MEMORY_DEVICE, 0, 1);
	roundtrip(b, 5000, MEMORY_DEVICE, 256, 3333);
	roundtrip(b, 2 * STAGING_BYTES + 99, MEMORY_DEVICE, 512, STAGING_BYTES * 3 / 2 + 1);
	close_silently(b);
}

/* Many small buffers share blocks, and holes are found again. */
Test(vk_backend, suballocation)
{
	struct backend *b = open_with((struct vk_options){0});
	enum { N = 200 };
	struct buffer *buffers[N];
	for (uint32_t i = 0; i < N; i++) {
		buffers[i] = make(b, 1000 + i * 300, MEMORY_DEVICE);
		uint8_t *bytes = b->ops->buffer_map(buffers[i]);
		cr_assert_eq(buffers[i]->offset % BUFFER_ALIGN, 0);
		for (uint32_t j = 0; j < i; j++)
			cr_assert(buffers[i]->block != buffers[j]->block ||
				buffers[i]->offset >= buffers[j]->offset + buffers[j]->taken ||
				buffers[j]->offset >= buffers[i]->offset + buffers[i]->taken);
		if (bytes)
			memset(bytes, (int)i, 1000);
	}
	cr_assert_eq(b->device_bytes, BLOCK_MIN, "one block holds them all");
	for (uint32_t i = 0; i < N; i += 2)
		b->ops->buffer_destroy(b, buffers[i]);
	for (uint32_t i = 0; i < N; i += 2)
		buffers[i] = make(b, 1000 + i * 300, MEMORY_DEVICE);
	cr_assert_eq(b->device_bytes, BLOCK_MIN);
	for (uint32_t i = 1; i < N; i += 2) {
		uint8_t *bytes = b->ops->buffer_map(buffers[i]);
		cr_assert(!bytes || (bytes[0] == (uint8_t)i && bytes[999] == (uint8_t)i));
	}
	for (uint32_t i = 0; i < N; i++)
		b->ops->buffer_destroy(b, buffers[(i * 7) % N]);
	cr_assert_eq(b->device_bytes, 0);
	close_silently(b);
}

/* OB-10: wanted size, limit and device are in the message. */
Test(vk_backend, too_large_a_buffer)
{
	struct backend *b = open_with((struct vk_options){0});
	struct buffer *buffer = (struct buffer *)b;
	struct lap_error err = {0};
	uint64_t n_bytes = b->device->max_allocation_bytes + 1;
	cr_assert_eq(b->ops->buffer_create(
			     b, n_bytes, MEMORY_DEVICE, "blk.0.attn_q.weight", &buffer, &err),
		LAP_NO_MEMORY);
	cr_assert_null(buffer);
	cr_assert(strstr(err.text, "blk.0.attn_q.weight") && strstr(err.text, b->name) &&
			strstr(err.text, "at most"),
		"%s", err.text);
	cr_assert_eq(b->ops->buffer_create(b, UINT64_MAX, MEMORY_SHARED, "x", &buffer, &err),
		LAP_NO_MEMORY);
	close_silently(b);
}

/* ---- plans ----------------------------------------------------------------------------------- */

#define N_COLS 64
#define N_ROWS 5

/* y = glu(x, x), z = glu(y, x), y = glu(z, x): each op waits for the one before. */
struct chain {
	struct backend *b;
	struct buffer *step, *sizes, *x, *y, *z;
	struct plan plan;
	struct runnable *runnable;
};

static struct rows rows_of(struct buffer *buffer)
{
	return (struct rows){
		{buffer, 0, N_ROWS * N_COLS * sizeof(float)}, N_COLS, ROW_STRIDE(N_COLS)};
}

static void chain_step(struct chain *c, uint32_t n_rows)
{
	struct step_header *header = c->b->ops->buffer_map(c->step);
	*header = (struct step_header){.n_rows = n_rows, .n_kv = 1};
}

static void chain_free(struct chain *c)
{
	c->b->ops->release(c->b, c->runnable);
	plan_free(&c->plan);
	struct buffer *all[] = {c->step, c->sizes, c->x, c->y, c->z};
	for (size_t i = 0; i < ARRAY_COUNT(all); i++)
		c->b->ops->buffer_destroy(c->b, all[i]);
}

static enum lap_status chain_make(
	struct chain *c, struct backend *b, bool profile, struct lap_error *err)
{
	*c = (struct chain){.b = b};
	const uint64_t n_bytes = N_ROWS * N_COLS * sizeof(float);
	const uint64_t step_bytes = sizeof(struct step_header) + N_ROWS * sizeof(struct step_row);
	const uint64_t sizes_bytes = MAX_SIZES * sizeof(struct dispatch_size);
	struct {
		struct buffer **to;
		uint64_t n_bytes;
		enum memory memory;
	} wanted[] = {{&c->step, step_bytes, MEMORY_SHARED},
		{&c->sizes, sizes_bytes, MEMORY_SHARED}, {&c->x, n_bytes, MEMORY_DEVICE},
		{&c->y, n_bytes, MEMORY_DEVICE}, {&c->z, n_bytes, MEMORY_DEVICE}};
	for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
		enum lap_status status = b->ops->buffer_create(
			b, wanted[i].n_bytes, wanted[i].memory, "a test buffer", wanted[i].to, err);
		if (status) {
			chain_free(c);
			return status;
		}
	}
	c->plan = (struct plan){.role = ROLE_DECODE,
		.max_rows = N_ROWS,
		.step = {c->step, 0, step_bytes},
		.sizes = {c->sizes, 0, sizes_bytes}};
	plan_glu(&c->plan, rows_of(c->y), rows_of(c->x), rows_of(c->x), ACTIVATION_SILU, 1);
	plan_glu(&c->plan, rows_of(c->z), rows_of(c->y), rows_of(c->x), ACTIVATION_SILU, 1);
	plan_glu(&c->plan, rows_of(c->y), rows_of(c->z), rows_of(c->x), ACTIVATION_SILU, 1);
	float x[N_ROWS * N_COLS];
	for (size_t i = 0; i < ARRAY_COUNT(x); i++)
		x[i] = (float)((int)(i * 37 % 101) - 50) / 20.0f;
	enum lap_status status = b->ops->write(b, (struct view){c->x, 0, n_bytes}, x, n_bytes, err);
	if (!status)
		status = b->ops->prepare(b, &c->plan, profile, &c->runnable, err);
	if (status)
		chain_free(c);
	return status;
}

static void chain_run(struct chain *c, uint32_t n_times, float y[N_ROWS * N_COLS])
{
	struct lap_error err = {0};
	uint64_t ticket;
	c->b->ops->begin(c->runnable);
	cr_assert_eq(
		c->b->ops->run(c->b, c->runnable, n_times, &ticket, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(c->b->ops->wait(c->b, ticket, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(
		c->b->ops->read(c->b, rows_of(c->y).view, y, N_ROWS * N_COLS * sizeof(float), &err),
		LAP_OK, "%s", err.text);
}

static float glu(float gate, float up)
{
	return gate / (1 + expf(-gate)) * up;
}

static void check_rows(const float *y, uint32_t n_rows)
{
	for (uint32_t i = 0; i < N_ROWS * N_COLS; i++) {
		float x = (float)((int)(i * 37 % 101) - 50) / 20.0f;
		float expected = i < n_rows * N_COLS ? glu(glu(glu(x, x), x), x) : 0;
		cr_assert_float_eq(y[i], expected, 1e-4f * (1 + fabsf(expected)),
			"element %u is %g, expected %g", i, (double)y[i], (double)expected);
	}
}

Test(vk_backend, a_plan_follows_the_step)
{
	struct backend *b = open_with((struct vk_options){0});
	struct chain c;
	struct lap_error err = {0};
	float y[N_ROWS * N_COLS];
	cr_assert_eq(chain_make(&c, b, false, &err), LAP_OK, "%s", err.text);
	chain_step(&c, 0);
	chain_run(&c, 1, y);
	check_rows(y, 0);
	for (uint32_t n_rows = 1; n_rows <= N_ROWS; n_rows++) {
		chain_step(&c, n_rows);
		chain_run(&c, n_rows == 2 ? 300 : n_rows, y); /* 300: more than one submit holds */
		check_rows(y, n_rows);
	}
	chain_free(&c);
	close_silently(b);
}

Test(vk_backend, a_plan_runs_on_hidden_memory)
{
	struct backend *b = open_with((struct vk_options){.no_mapping = true, .no_subgroup = true});
	struct chain c;
	struct lap_error err = {0};
	float y[N_ROWS * N_COLS];
	cr_assert_eq(chain_make(&c, b, false, &err), LAP_OK, "%s", err.text);
	chain_step(&c, N_ROWS);
	chain_run(&c, 1, y);
	check_rows(y, N_ROWS);
	chain_free(&c);
	close_silently(b);
}

/* x = glu(x, w) once more with each run, so that what is in x counts the runs, in order. */
Test(vk_backend, submits_are_carried_out_in_order)
{
	struct backend *b = open_with((struct vk_options){0});
	struct chain c;
	struct lap_error err = {0};
	float y[N_ROWS * N_COLS];
	cr_assert_eq(chain_make(&c, b, false, &err), LAP_OK, "%s", err.text);
	c.b->ops->release(b, c.runnable);
	plan_free(&c.plan);
	plan_glu(&c.plan, rows_of(c.z), rows_of(c.y), rows_of(c.x), ACTIVATION_SILU,
		1); /* z = silu(y) * x */
	plan_glu(&c.plan, rows_of(c.y), rows_of(c.z), rows_of(c.x), ACTIVATION_SILU,
		1); /* y = silu(z) * x */
	for (size_t i = 0; i < ARRAY_COUNT(y); i++)
		y[i] = 3;
	cr_assert_eq(
		b->ops->write(b, rows_of(c.y).view, y, sizeof y, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < ARRAY_COUNT(y); i++)
		y[i] = 1.5f + (float)i / 1024;
	cr_assert_eq(
		b->ops->write(b, rows_of(c.x).view, y, sizeof y, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->prepare(b, &c.plan, false, &c.runnable, &err), LAP_OK, "%s", err.text);
	chain_step(&c, N_ROWS);
	b->ops->begin(c.runnable);
	uint64_t first, second;
	cr_assert_eq(b->ops->run(b, c.runnable, 2, &first, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->run(b, c.runnable, 3, &second, &err), LAP_OK, "%s", err.text);
	cr_assert_lt(first, second);
	cr_assert_eq(b->ops->wait(b, second, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->wait(b, first, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(b->ops->wait(b, 0, &err), LAP_OK, "nothing to wait for");
	cr_assert_eq(b->ops->read(b, rows_of(c.y).view, y, sizeof y, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < ARRAY_COUNT(y); i++) {
		float x = 1.5f + (float)i / 1024, expected = 3;
		for (uint32_t k = 0; k < 2 * (2 + 3); k++)
			expected = glu(expected, x);
		cr_assert_float_eq(y[i], expected, 1e-3f * (1 + fabsf(expected)),
			"element %zu is %g, expected %g", i, (double)y[i], (double)expected);
	}
	chain_free(&c);
	close_silently(b);
}

/* A device that cannot tell time still runs ops one by one; their times are 0. */
static void time_ops(bool hide_timestamps)
{
	struct backend *b = open_with((struct vk_options){0});
	struct chain c;
	struct lap_error err = {0};
	float y[N_ROWS * N_COLS];
	if (hide_timestamps)
		((struct lap_device *)(uintptr_t)b->device)->timestamps = false;
	cr_assert_eq(chain_make(&c, b, true, &err), LAP_OK, "%s", err.text);
	chain_step(&c, N_ROWS);
	chain_run(&c, 2, y);
	check_rows(y, N_ROWS);
	double seconds[3] = {-1, -1, -1};
	cr_assert_eq(b->ops->times(b, c.runnable, seconds, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < ARRAY_COUNT(seconds); i++)
		cr_assert(seconds[i] >= 0 && seconds[i] < 60, "op %zu took %g s", i, seconds[i]);
	cr_assert_eq(seconds[0] + seconds[1] + seconds[2] > 0, b->device->timestamps);
	chain_free(&c);
	close_silently(b);
}

Test(vk_backend, ops_are_timed)
{
	time_ops(false);
}

Test(vk_backend, ops_run_without_timestamps)
{
	time_ops(true);
}

/* One backend, several threads: each has buffers, a recording and runs of its own. */
static void *thread_run(void *user)
{
	struct backend *b = user;
	for (uint32_t n_rows = 1; n_rows <= 3; n_rows++) {
		struct chain c;
		struct lap_error err = {0};
		float y[N_ROWS * N_COLS];
		cr_assert_eq(chain_make(&c, b, false, &err), LAP_OK, "%s", err.text);
		chain_step(&c, n_rows);
		chain_run(&c, 2, y);
		check_rows(y, n_rows);
		chain_free(&c);
	}
	return NULL;
}

static void run_threads(struct backend *b)
{
	pthread_t threads[3];
	for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, thread_run, b), 0);
	for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
		pthread_join(threads[i], NULL);
}

Test(vk_backend, threads_share_a_backend)
{
	struct backend *b = open_with((struct vk_options){0});
	run_threads(b);
	cr_assert_eq(b->device_bytes, 0);
	close_silently(b);
	b = open_with((struct vk_options){.no_mapping = true});
	run_threads(b);
	close_silently(b);
}

/* ---- pipelines ------------------------------------------------------------------------------- */

/* Every module of this build becomes a pipeline, and becomes one only once. */
Test(vk_backend, every_shader_compiles)
{
	struct backend *b =
		open_with((struct vk_options){.no_pipeline_cache = true, .coopmat = true});
	struct vk *v = (struct vk *)b;
	struct lap_error err = {0};
	uint32_t n = 0;
	struct pipeline_key keys[N_KERNELS * N_WEIGHTS * 3];
	VkPipeline pipelines[ARRAY_COUNT(keys)], again[ARRAY_COUNT(keys)];
	for (enum kernel kernel = 0; kernel < N_KERNELS; kernel++)
		for (enum weight weight = 0; weight < N_WEIGHTS; weight++) {
			if (!kernel_takes(kernel, weight))
				continue;
			if (test_small() && weight % 4 != 0) /* test_vk_kernels has the others */
				continue;
			struct op op = {.kernel = kernel, .weight = weight, .constant = 64};
			static const char *const variants[] = {NULL, "subgroup", "texels",
				"shuffle", "long", "wide", "shared", "dot", "coopmat"};
			const bool subgroups = v->info.subgroup_arithmetic;
			const bool can[] = {true, subgroups, subgroups, v->shuffle, v->shuffle,
				true, true, v->info.integer_dot, v->coopmat};
			for (size_t i = 0; i < ARRAY_COUNT(variants); i++) {
				keys[n] = pipeline_key(v, &op);
				keys[n].variant = variants[i];
				n += can[i] && spirv_find(kernel, weight, variants[i]);
			}
		}
	cr_assert(n == spirv_count() || test_small() || !v->info.subgroup_arithmetic ||
			!v->shuffle || !v->info.integer_dot,
		"%u keys, %zu modules", n, spirv_count());
	cr_assert_eq(pipelines_get(v, keys, n, pipelines, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(v->n_pipelines, n);
	cr_assert_eq(pipelines_get(v, keys, n, again, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(v->n_pipelines, n, "they are kept");
	cr_assert_eq(memcmp(pipelines, again, n * sizeof *pipelines), 0);
	close_silently(b);
}

Test(vk_backend, subgroup_variant_fits_the_device)
{
	struct backend *b = open_with((struct vk_options){0});
	struct vk *v = (struct vk *)b;
	struct op op = {.kernel = KERNEL_matvec, .weight = WEIGHT_q8_0, .knobs = {1, 64}};
	struct pipeline_key key = pipeline_key(v, &op);
	if (b->device->subgroup_arithmetic && b->device->subgroup_min >= 4) {
		cr_assert_str_eq(key.variant,
			v->shuffle          ? "shuffle"
				: v->texels ? "texels"
					    : "subgroup");
		uint32_t n_subgroups = 64 / b->device->subgroup_size;
		cr_assert_eq(key.outputs_per_group, n_subgroups ? n_subgroups * 4 : 4);
		v->info.subgroup_size = 128;
		cr_assert_eq(pipeline_key(v, &op).outputs_per_group, 4);
		tuning_switch(&v->tuning, FEATURE_SHUFFLE, "wrong");
		cr_assert_str_eq(pipeline_key(v, &op).variant, v->texels ? "texels" : "subgroup");
		tuning_switch(&v->tuning, FEATURE_TEXELS, "wrong");
		cr_assert_str_eq(pipeline_key(v, &op).variant, "subgroup");
		tuning_switch(&v->tuning, FEATURE_SUBGROUP, "wrong");
		cr_assert_null(pipeline_key(v, &op).variant);
		cr_assert_eq(pipeline_key(v, &op).outputs_per_group,
			kernel_info(KERNEL_matvec)->outputs_per_group);
	}
	close_silently(b);
	b = open_with((struct vk_options){.no_texels = true});
	key = pipeline_key((struct vk *)b, &op);
	cr_assert(!key.variant || strcmp(key.variant, "subgroup") == 0);
	cr_assert_eq(key.constant & HALVES_KEPT, 0, "as on a device of which nothing is known");
	close_silently(b);
	b = open_with((struct vk_options){.no_subgroup = true});
	key = pipeline_key((struct vk *)b, &op);
	cr_assert_null(key.variant);
	cr_assert_eq(key.outputs_per_group, kernel_info(KERNEL_matvec)->outputs_per_group);
	close_silently(b);
}

/* The file is written when the device is closed, and read when it is opened again. */
Test(vk_backend, pipeline_cache_file)
{
	cr_assert_eq(setenv("XDG_CACHE_HOME", scratch_path("pipeline_cache_file"), 1), 0);
	struct lap_error err = {0};
	char path[4096] = "";
	for (int round = 0; round < 3; round++) {
		struct backend *b = open_with((struct vk_options){0});
		struct vk *v = (struct vk *)b;
		cr_assert_eq(v->cache_hash != 0, round == 2, "round %d", round);
		struct op op = {.kernel = KERNEL_glu};
		struct pipeline_key key = pipeline_key(v, &op);
		VkPipeline pipeline;
		cr_assert_eq(pipelines_get(v, &key, 1, &pipeline, &err), LAP_OK, "%s", err.text);
		struct text text = {0};
		cr_assert(cache_path(b->device, CACHE_PIPELINES, &text));
		cr_assert_lt(text.n, sizeof path);
		memcpy(path, text.data, text.n + 1);
		text_free(&text);
		close_silently(b);
		cr_assert_eq(access(path, R_OK), 0, "%s was not written", path);
		if (round == 0) { /* one byte is not as it was */
			size_t n;
			char *file = read_text(path, &n);
			file[n - 1] ^= 1;
			cr_assert_eq(file_write(path, file, n, &err), LAP_OK, "%s", err.text);
			free(file);
		}
	}
	cr_assert_eq(remove(path), 0);
	struct backend *b = open_with((struct vk_options){.no_pipeline_cache = true});
	close_silently(b);
	cr_assert_neq(access(path, R_OK), 0, "asked not to write it");
}

/* ---- what may go wrong ----------------------------------------------------------------------- */

/* Opens, runs and closes; the status of the first thing that failed. */
static enum lap_status whole_life(bool no_mapping, struct lap_error *err)
{
	struct vk_options options = {
		.no_pipeline_cache = true, .no_mapping = no_mapping, .log.fn = on_log};
	struct backend *b;
	enum lap_status status = vk_open(&options, &b, err);
	if (status) {
		cr_assert_null(b);
		return status;
	}
	struct chain c;
	status = chain_make(&c, b, b->device->timestamps, err);
	uint64_t ticket;
	double seconds[3];
	if (!status) {
		chain_step(&c, 1);
		b->ops->begin(c.runnable);
		status = b->ops->run(b, c.runnable, 1, &ticket, err);
		if (!status)
			status = b->ops->wait(b, ticket, err);
		if (!status && b->device->timestamps)
			status = b->ops->times(b, c.runnable, seconds, err);
		chain_free(&c);
	}
	cr_assert_leq(b->device_bytes, no_mapping ? STAGING_BYTES : 0, "nothing is kept");
	b->ops->close(b);
	return status;
}

/* OB-10: the k-th allocation fails, for every k. */
static void fail_each_allocation(bool no_mapping)
{
	int n_failed = 0;
	for (int k = 0;; k++) {
		struct lap_error err = {0};
		vk_fail_allocation_after(k);
		enum lap_status status = whole_life(no_mapping, &err);
		if (vk_fail_allocation_after(-1) > 0) {
			cr_assert_eq(status, LAP_OK, "no allocation failed, yet: %s", err.text);
			break;
		}
		cr_assert(status == LAP_OK || (status == LAP_NO_MEMORY && err.text[0]),
			"k = %d: %d, %s", k, (int)status, err.text);
		n_failed += status != LAP_OK;
		cr_assert_lt(k, 1000);
	}
	cr_assert_gt(n_failed, 15, "only %d allocations made a difference", n_failed);
}

Test(vk_backend, failing_allocations)
{
	fail_each_allocation(false);
	cr_assert_eq(n_warnings, 0);
}

Test(vk_backend, failing_allocations_with_staging)
{
	fail_each_allocation(true);
	cr_assert_eq(n_warnings, 0);
}

Test(vk_backend, limits_of_views)
{
	struct backend *b = open_with((struct vk_options){.max_chunk_bytes = 1000000});
	cr_assert_eq(b->max_buffer_bytes, 1000000 / 256 * 256);
	close_silently(b);
	setenv("LAPILLI_MAX_CHUNK", "2M", 1);
	b = open_with((struct vk_options){0});
	cr_assert_eq(b->max_buffer_bytes, 2 << 20);
	close_silently(b);
	setenv("LAPILLI_MAX_CHUNK", "64 elephants", 1);
	b = open_with((struct vk_options){0});
	cr_assert_eq(n_warnings, 1, "a number of bytes was expected");
	n_warnings = 0;
	uint64_t limit = b->device->max_storage_bytes;
	cr_assert_leq(b->max_buffer_bytes, limit);
	cr_assert_leq(b->max_buffer_bytes, 2ull << 30);
	cr_assert_geq(b->max_buffer_bytes, (128 << 20) - 256);
	close_silently(b);
}

Test(vk_backend, devices_are_listed)
{
	struct lap_device *devices;
	struct lap_error err = {0};
	uint32_t n;
	cr_assert_eq(vk_devices(&devices, &n, &err), LAP_OK, "%s", err.text);
	cr_assert_geq(n, 1);
	for (uint32_t i = 0; i < n; i++) {
		const struct lap_device *d = &devices[i];
		cr_assert_eq(d->index, i);
		cr_assert(d->name[0] && d->driver[0] && d->memory_bytes > 0);
		cr_assert_str_empty(d->refused, "%s", d->refused);
		cr_assert_geq(d->api_version, VK_API_VERSION_1_2);
		cr_assert_geq(d->subgroup_size, 1);
		cr_assert(
			d->subgroup_min <= d->subgroup_size && d->subgroup_size <= d->subgroup_max);
		struct backend *b = open_with((struct vk_options){.device = d->name});
		cr_assert_str_eq(b->name, d->name);
		cr_assert_eq(memcmp(b->device->uuid, d->uuid, sizeof d->uuid), 0);
		close_silently(b);
	}
	free(devices);
}

Test(vk_backend, a_device_that_is_not_there)
{
	struct backend *b = (struct backend *)&n_warnings;
	struct lap_error err = {0};
	struct vk_options options = {.device = "17"};
	cr_assert_eq(vk_open(&options, &b, &err), LAP_NO_DEVICE);
	cr_assert_null(b);
	cr_assert(strstr(err.text, "17") && strstr(err.text, "0: "), "%s", err.text);
}

/* A machine with the loader but without a driver. */
Test(vk_backend, no_driver)
{
	setenv("VK_DRIVER_FILES", "/nonexistent/icd.json", 1);
	setenv("VK_ICD_FILENAMES", "/nonexistent/icd.json", 1);
	struct lap_device *devices;
	struct backend *b;
	struct lap_error err = {0};
	uint32_t n = 1;
	cr_assert_eq(vk_devices(&devices, &n, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(n, 0);
	free(devices);
	cr_assert_eq(vk_open(&(struct vk_options){0}, &b, &err), LAP_NO_DEVICE);
	cr_assert(strstr(err.text, "no Vulkan"), "%s", err.text);
}

/* The one software device is used when there is nothing else, and says so. */
static bool noticed;

static void on_notice(void *user, enum lap_log_level level, const char *line)
{
	(void)user;
	noticed |= level == LAP_LOG_INFO && strstr(line, "software device");
}

Test(vk_backend, software_device_is_announced)
{
	struct vk_options options = {.log.fn = on_notice};
	struct backend *b;
	struct lap_error err = {0};
	cr_assert_eq(vk_open(&options, &b, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(noticed, b->device->type == LAP_DEVICE_CPU);
	b->ops->close(b);
	noticed = false;
	options.device = "0";
	cr_assert_eq(vk_open(&options, &b, &err), LAP_OK, "%s", err.text);
	cr_assert(!noticed, "it was asked for");
	b->ops->close(b);
}
