/* Recording, and running what was recorded: see record.h. */
#include "record.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "barrier.h"
#include "alloc.h"
#include "lower.h"
#include "memory.h"
#include "run.h"
#include "spirv.h"

#define MAX_REPEATS 256 /* copies of a recording in one submit; more are further submits */

struct runnable {
	struct vk *v;
	char what[64]; /* for messages */
	uint32_t n_ops, n_dispatches;
	VkDescriptorPool descriptors;
	VkBufferView *texels; /* N_TEXELS for each dispatch, VK_NULL_HANDLE where it has none */
	VkCommandPool pool;
	VkCommandBuffer commands[MAX_REPEATS]; /* the same one, again and again */
	/* n_ops + 1 of them; VK_NULL_HANDLE without profile, and where the device has none */
	VkQueryPool timestamps;
	const struct step_header *step;
	struct dispatch_size *sizes;
	uint32_t n_sizes;
	uint64_t ticket; /* of the last run */
};

/* What is needed while recording only; one entry per dispatch in each array. */
struct draft {
	struct pipeline_key *keys;
	VkPipeline *pipelines;
	VkDescriptorSet *sets;
	VkDescriptorSetLayout *layouts;
	uint32_t *sizes;
	bool *barriers;
};

static void draft_free(struct draft *d)
{
	free(d->keys);
	free(d->pipelines);
	free(d->sets);
	free(d->layouts);
	free(d->sizes);
	free(d->barriers);
}

static enum lap_status draft_alloc(struct draft *d, uint32_t n_ops, struct lap_error *err)
{
	*d = (struct draft){
		.keys = vk_alloc(n_ops, sizeof *d->keys),
		.pipelines = vk_alloc(n_ops, sizeof(VkPipeline)),
		.sets = vk_alloc(n_ops, sizeof(VkDescriptorSet)),
		.layouts = vk_alloc(n_ops, sizeof(VkDescriptorSetLayout)),
		.sizes = vk_alloc(n_ops, sizeof *d->sizes),
		.barriers = vk_alloc(n_ops, sizeof *d->barriers),
	};
	if (d->keys && d->pipelines && d->sets && d->layouts && d->sizes && d->barriers)
		return LAP_OK;
	draft_free(d);
	return fail_memory(err, "recording a plan", n_ops * sizeof(struct op));
}

/* ---- dispatch sizes -------------------------------------------------------------------------- */

static uint32_t rule_divisor(const struct op *op, const struct pipeline_key *key)
{
	switch (op->rule) {
	case SIZE_ROWS:
		return key->rows_per_group;
	case SIZE_KV:
		return ATTN_SLICE;
	default:
		return 1;
	}
}

static bool same_size(const struct dispatch_size *a, const struct dispatch_size *b)
{
	return a->rule == b->rule && a->groups_x == b->groups_x && a->groups_y == b->groups_y &&
		a->divisor == b->divisor && a->factor == b->factor && a->extra == b->extra &&
		a->window == b->window;
}

enum lap_status sizes_collect(const struct plan *plan, const struct pipeline_key *keys,
	struct dispatch_size entries[MAX_SIZES], uint32_t *entry, struct lap_error *err)
{
	memset(entries, 0, MAX_SIZES * sizeof *entries);
	uint32_t n = 0;
	for (uint32_t i = 0; i < plan->n_ops; i++) {
		const struct op *op = &plan->ops[i];
		struct dispatch_size size = {
			.rule = op->rule,
			.divisor = rule_divisor(op, &keys[i]),
			.factor = op->factor,
			.extra = op->extra,
			.window = op->window,
		};
		uint64_t n_z = (uint64_t)plan->max_rows * op->factor + op->extra;
		/* With SIZE_KV the second axis belongs to the slices. */
		if (!groups_fold(op->n_outputs, keys[i].outputs_per_group, &size.groups_x,
			    &size.groups_y) ||
			(op->rule == SIZE_KV && size.groups_y > 1) || n_z > MAX_GROUPS)
			return fail(err, LAP_USAGE,
				"%s: %u outputs of %u rows are more than a dispatch takes",
				op->label, op->n_outputs, plan->max_rows);
		uint32_t at = 0;
		while (at < n && !same_size(&entries[at], &size))
			at++;
		if (at == MAX_SIZES)
			return fail(err, LAP_USAGE,
				"%s: the plan has more than %d different dispatch sizes", op->label,
				MAX_SIZES);
		if (at == n)
			entries[n++] = size;
		entry[i] = at;
	}
	return LAP_OK;
}

/* ---- recording ------------------------------------------------------------------------------- */

static enum lap_status create_sets(
	struct runnable *r, const struct plan *plan, struct draft *d, struct lap_error *err)
{
	struct vk *v = r->v;
	enum lap_status status =
		VK_CREATE(v->fn.vkCreateDescriptorPool(v->device,
				  &(VkDescriptorPoolCreateInfo){
					  .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
					  .maxSets = plan->n_ops,
					  .poolSizeCount = 2,
					  .pPoolSizes =
						  (const VkDescriptorPoolSize[]){
							  {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
								  plan->n_ops * MAX_BUFFERS},
							  {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER,
								  plan->n_ops * N_TEXELS},
						  },
				  },
				  NULL, &r->descriptors),
			&r->descriptors);
	if (status)
		return status;
	for (uint32_t i = 0; i < plan->n_ops; i++)
		d->layouts[i] = v->set_layout;
	return VK(v->fn.vkAllocateDescriptorSets(v->device,
		&(VkDescriptorSetAllocateInfo){
			.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
			.descriptorPool = r->descriptors,
			.descriptorSetCount = plan->n_ops,
			.pSetLayouts = d->layouts,
		},
		d->sets));
}

static void write_set(struct vk *v, const struct op *op, VkDescriptorSet set)
{
	VkDescriptorBufferInfo buffers[MAX_BUFFERS];
	for (uint32_t i = 0; i < MAX_BUFFERS; i++) {
		/* Bindings that the op leaves free need some buffer, too. */
		const struct view *view = &op->buffers[op->buffers[i].buffer ? i : 0];
		assert(view->buffer && view->offset % BUFFER_ALIGN == 0 && view->n_bytes > 0);
		assert(view->offset + view->n_bytes <= view->buffer->n_bytes);
		assert(view->n_bytes <= v->limits.maxStorageBufferRange);
		buffers[i] =
			(VkDescriptorBufferInfo){view->buffer->handle, view->offset, view->n_bytes};
	}
	v->fn.vkUpdateDescriptorSets(v->device, 1,
		&(VkWriteDescriptorSet){
			.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
			.dstSet = set,
			.descriptorCount = MAX_BUFFERS,
			.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			.pBufferInfo = buffers,
		},
		0, NULL);
}

static bool attends(enum kernel kernel)
{
	return kernel == KERNEL_attn_decode || kernel == KERNEL_attn_prefill;
}

struct texels {
	uint32_t buffer; /* of the op */
	VkFormat format;
};

/* The texel buffers of an op's set, where its pipeline reads some: weights and x once more; of attention K, V
 * and the queries. */
static enum lap_status write_texels(struct runnable *r, uint32_t i, const struct op *op,
	const struct pipeline_key *key, VkDescriptorSet set, struct lap_error *err)
{
	static const struct texels of_products[N_TEXELS] = {
		[TEXEL_QUADS - MAX_BUFFERS] = {1, VK_FORMAT_R32G32B32A32_UINT},
		[TEXEL_WORDS - MAX_BUFFERS] = {1, VK_FORMAT_R32_UINT},
		[TEXEL_X - MAX_BUFFERS] = {2, VK_FORMAT_R32G32B32A32_SFLOAT},
	};
	static const struct texels of_attention[N_TEXELS] = {
		[TEXEL_QUADS - MAX_BUFFERS] = {2, VK_FORMAT_R32G32B32A32_UINT},
		[TEXEL_WORDS - MAX_BUFFERS] = {3, VK_FORMAT_R32G32B32A32_UINT},
		[TEXEL_X - MAX_BUFFERS] = {1, VK_FORMAT_R32G32B32A32_SFLOAT},
	};
	const struct texels *texels = attends(op->kernel) ? of_attention : of_products;
	const uint64_t quad = 4 * sizeof(uint32_t);
	struct vk *v = r->v;
	VkBufferView *views = &r->texels[(size_t)i * N_TEXELS];
	if (!spirv_defines(key->kernel, key->variant, "LP_TEXELS"))
		return LAP_OK;
	for (uint32_t t = 0; t < N_TEXELS; t++) {
		const uint32_t buffer = texels[t].buffer;
		/* read_rate has no x: a binding needs some buffer all the same. */
		const struct view *view = &op->buffers[op->buffers[buffer].buffer ? buffer : 1];
		enum lap_status status = VK_CREATE(
			v->fn.vkCreateBufferView(v->device,
				&(VkBufferViewCreateInfo){
					.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
					.buffer = view->buffer->handle,
					.format = texels[t].format,
					.offset = view->offset,
					/* what a quad cuts off is padding: WEIGHT_PAD, ROW_ALIGN */
					.range = view->n_bytes / quad * quad,
				},
				NULL, &views[t]),
			&views[t]);
		if (status)
			return status;
	}
	v->fn.vkUpdateDescriptorSets(v->device, 1,
		&(VkWriteDescriptorSet){
			.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
			.dstSet = set,
			.dstBinding = TEXEL_QUADS,
			.descriptorCount = N_TEXELS,
			.descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER,
			.pTexelBufferView = views,
		},
		0, NULL);
	return LAP_OK;
}

static enum lap_status create_commands(struct runnable *r, bool profile, struct lap_error *err)
{
	struct vk *v = r->v;
	enum lap_status status =
		VK_CREATE(v->fn.vkCreateCommandPool(v->device,
				  &(VkCommandPoolCreateInfo){
					  .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					  .queueFamilyIndex = v->queue_family,
				  },
				  NULL, &r->pool),
			&r->pool);
	if (status)
		return status;
	status = VK(v->fn.vkAllocateCommandBuffers(v->device,
		&(VkCommandBufferAllocateInfo){
			.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
			.commandPool = r->pool,
			.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
			.commandBufferCount = 1,
		},
		r->commands));
	if (status || !profile || !v->info.timestamps)
		return status;
	return VK_CREATE(v->fn.vkCreateQueryPool(v->device,
				 &(VkQueryPoolCreateInfo){
					 .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
					 .queryType = VK_QUERY_TYPE_TIMESTAMP,
					 .queryCount = r->n_ops + 1,
				 },
				 NULL, &r->timestamps),
		&r->timestamps);
}

/* What was written before can be read, and overwritten, by what follows: shaders and dispatch sizes
 * alike. */
static void barrier_compute(struct vk *v, VkCommandBuffer commands)
{
	v->fn.vkCmdPipelineBarrier(commands,
		VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT,
		VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT, 0, 1,
		&(VkMemoryBarrier){
			.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
			.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
			.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
				VK_ACCESS_INDIRECT_COMMAND_READ_BIT,
		},
		0, NULL, 0, NULL);
}

static void barrier_host(struct vk *v, VkCommandBuffer commands)
{
	v->fn.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
		VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
		&(VkMemoryBarrier){
			.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
			.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
			.dstAccessMask = VK_ACCESS_HOST_READ_BIT,
		},
		0, NULL, 0, NULL);
}

static void timestamp(struct runnable *r, uint32_t i)
{
	if (r->timestamps)
		r->v->fn.vkCmdWriteTimestamp(
			r->commands[0], VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, r->timestamps, i);
}

static enum lap_status record(
	struct runnable *r, const struct plan *plan, const struct draft *d, struct lap_error *err)
{
	struct vk *v = r->v;
	VkCommandBuffer commands = r->commands[0];
	enum lap_status status = VK(v->fn.vkBeginCommandBuffer(commands,
		&(VkCommandBufferBeginInfo){
			.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
			.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
		}));
	if (status)
		return status;
	if (r->timestamps)
		v->fn.vkCmdResetQueryPool(commands, r->timestamps, 0, r->n_ops + 1);
	VkPipeline bound = VK_NULL_HANDLE;
	uint32_t n_timed = 0;
	for (uint32_t i = 0; i < plan->n_ops; i++) {
		const struct op *op = &plan->ops[i];
		/* When ops are timed each waits for the one before: else times would overlap. */
		if (d->barriers[i] || r->timestamps)
			barrier_compute(v, commands);
		if (i == 0)
			timestamp(r, 0);
		if (d->pipelines[i] != bound)
			v->fn.vkCmdBindPipeline(
				commands, VK_PIPELINE_BIND_POINT_COMPUTE, d->pipelines[i]);
		bound = d->pipelines[i];
		v->fn.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, v->layout,
			0, 1, &d->sets[i], 0, NULL);
		v->fn.vkCmdPushConstants(commands, v->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
			kernel_info(op->kernel)->args_bytes, &op->args);
		v->fn.vkCmdDispatchIndirect(commands, plan->sizes.buffer->handle,
			plan->sizes.offset + d->sizes[i] * sizeof(struct dispatch_size));
		if (!op_is_half(op))
			timestamp(r, ++n_timed);
	}
	barrier_host(v, commands);
	status = VK(v->fn.vkEndCommandBuffer(commands));
	for (uint32_t i = 1; i < MAX_REPEATS; i++)
		r->commands[i] = commands;
	return status;
}

/* plan: lowered. */
static enum lap_status prepare_dispatches(struct runnable *r, const struct plan *plan, bool profile,
	struct draft *d, struct lap_error *err)
{
	struct vk *v = r->v;
	for (uint32_t i = 0; i < plan->n_ops; i++)
		d->keys[i] = pipeline_key(v, &plan->ops[i]);
	enum lap_status status = sizes_collect(plan, d->keys, r->sizes, d->sizes, err);
	if (!status)
		status = barriers_plan(plan, d->barriers, err);
	if (!status)
		status = pipelines_get(v, d->keys, plan->n_ops, d->pipelines, err);
	if (!status)
		status = create_sets(r, plan, d, err);
	for (uint32_t i = 0; i < plan->n_ops && !status; i++) {
		write_set(v, &plan->ops[i], d->sets[i]);
		status = write_texels(r, i, &plan->ops[i], &d->keys[i], d->sets[i], err);
	}
	if (!status)
		status = create_commands(r, profile, err);
	return status ? status : record(r, plan, d, err);
}

static enum lap_status prepare(
	struct runnable *r, const struct plan *plan, bool profile, struct lap_error *err)
{
	struct plan lowered;
	struct draft draft;
	enum lap_status status = plan_lower(r->v, plan, &lowered, err);
	if (status)
		return status;
	r->texels = vk_alloc((uint64_t)lowered.n_ops * N_TEXELS, sizeof *r->texels);
	r->n_dispatches = r->texels ? lowered.n_ops : 0;
	if (!r->texels)
		status = fail_memory(err, "a recorded plan", lowered.n_ops * sizeof *r->texels);
	if (!status)
		status = draft_alloc(&draft, lowered.n_ops, err);
	if (!status) {
		status = prepare_dispatches(r, &lowered, profile, &draft, err);
		draft_free(&draft);
	}
	free(lowered.ops);
	return status;
}

enum lap_status runnable_prepare(struct backend *b, const struct plan *plan, bool profile,
	struct runnable **runnable, struct lap_error *err)
{
	struct vk *v = (struct vk *)b;
	*runnable = NULL;
	if (plan->out_of_memory)
		return fail_memory(err, "a plan", plan->n_ops * sizeof *plan->ops);
	assert(plan->n_ops > 0);
	const uint8_t *step = buffer_map(plan->step.buffer);
	uint8_t *sizes = buffer_map(plan->sizes.buffer);
	assert(step && sizes && plan->sizes.n_bytes >= MAX_SIZES * sizeof(struct dispatch_size));
	struct runnable *r = vk_alloc(1, sizeof *r);
	if (!r)
		return fail_memory(err, "a recorded plan", sizeof *r);
	r->v = v;
	r->n_ops = plan->n_ops;
	r->n_sizes = MAX_SIZES;
	r->step = (const struct step_header *)(const void *)(step + plan->step.offset);
	r->sizes = (struct dispatch_size *)(void *)(sizes + plan->sizes.offset);
	snprintf(r->what, sizeof r->what, "the %s plan of %u ops",
		plan->role == ROLE_DECODE ? "decode" : "prefill", plan->n_ops);
	enum lap_status status = prepare(r, plan, profile, err);
	if (status) {
		runnable_release(b, r);
		return status;
	}
	*runnable = r;
	return LAP_OK;
}

void runnable_release(struct backend *b, struct runnable *r)
{
	struct vk *v = (struct vk *)b;
	if (!r)
		return;
	queue_wait(v, r->ticket, NULL); /* a lost device does not use it any more either */
	v->fn.vkDestroyQueryPool(v->device, r->timestamps, NULL);
	v->fn.vkDestroyCommandPool(v->device, r->pool, NULL);
	v->fn.vkDestroyDescriptorPool(v->device, r->descriptors, NULL);
	for (uint32_t i = 0; i < r->n_dispatches * N_TEXELS; i++)
		v->fn.vkDestroyBufferView(v->device, r->texels[i], NULL);
	free(r->texels);
	free(r);
}

/* ---- running --------------------------------------------------------------------------------- */

void runnable_begin(struct runnable *r)
{
	sizes_update(r->sizes, r->n_sizes, r->step);
}

enum lap_status runnable_run(struct backend *b, struct runnable *r, uint32_t n_times,
	uint64_t *ticket, struct lap_error *err)
{
	assert(n_times > 0);
	enum lap_status status = LAP_OK;
	while (n_times > 0 && !status) {
		uint32_t n = n_times < MAX_REPEATS ? n_times : MAX_REPEATS;
		status = queue_submit((struct vk *)b, r->commands, n, r->what, &r->ticket, err);
		n_times -= n;
	}
	*ticket = r->ticket;
	return status;
}

enum lap_status runnable_times(
	struct backend *b, struct runnable *r, double *seconds, struct lap_error *err)
{
	struct vk *v = (struct vk *)b;
	assert(r->ticket);
	if (!r->timestamps) {
		memset(seconds, 0, r->n_ops * sizeof *seconds);
		return LAP_OK;
	}
	uint64_t *ticks = vk_alloc((uint64_t)r->n_ops + 1, sizeof *ticks);
	if (!ticks)
		return fail_memory(err, "the times of ops", (r->n_ops + 1) * sizeof *ticks);
	enum lap_status status = queue_wait(v, r->ticket, err);
	if (!status)
		status = VK(v->fn.vkGetQueryPoolResults(v->device, r->timestamps, 0, r->n_ops + 1,
			(r->n_ops + 1) * sizeof *ticks, ticks, sizeof *ticks,
			VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
	uint64_t mask = v->timestamp_bits < 64 ? (1ull << v->timestamp_bits) - 1 : UINT64_MAX;
	for (uint32_t i = 0; i < r->n_ops && !status; i++)
		seconds[i] = (double)((ticks[i + 1] - ticks[i]) & mask) *
			(double)v->limits.timestampPeriod * 1e-9;
	free(ticks);
	return status;
}
