/* The Vulkan backend through its interface: buffers, plans, submits, failing allocations. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "support.h"
#include "vk/memory.h"
#include "vk/pipeline.h"

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

/* As on a discrete GPU: hidden from the host, a buffer is filled through the staging buffer. */
Test(vk_backend, staging_roundtrip)
{
	struct backend *b = open_with((struct vk_options){0});
	struct vk *v = (struct vk *)b;
	for (uint32_t i = 0; i < v->memory_properties.memoryTypeCount; i++) {
		struct buffer *buffer = make(b, 20 << 20, MEMORY_DEVICE);
		size_t n = (20 << 20) - 77;
		uint8_t *out = malloc(n), *in = calloc(1, n);
		struct lap_error err = {0};
		cr_assert(out && in);
		buffer->mapped = NULL;
		fill(out, n, i);
		struct view view = {buffer, 0, n};
		cr_assert_eq(b->ops->write(b, view, out, n, &err), LAP_OK, "%s", err.text);
		cr_assert_eq(b->ops->read(b, view, in, n, &err), LAP_OK, "%s", err.text);
		cr_assert_eq(memcmp(in, out, n), 0);
		free(out);
		free(in);
		b->ops->buffer_destroy(b, buffer);
	}
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
	plan_glu(&c->plan, rows_of(c->y), rows_of(c->x), rows_of(c->x));
	plan_glu(&c->plan, rows_of(c->z), rows_of(c->y), rows_of(c->x));
	plan_glu(&c->plan, rows_of(c->y), rows_of(c->z), rows_of(c->x));
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
