/* Layouts and pipelines: see pipeline.h. */
#include "pipeline.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache.h"
#include "alloc.h"
#include "coop.h"
#include "knob_defaults.h"
#include "spirv.h"

#define MAX_THREADS   16
#define MAX_CONSTANTS (6 + MAX_KNOBS)

struct pipeline {
	struct pipeline_key key;
	VkPipeline handle;
};

#define MATVEC_SUBGROUP_ROWS 4  /* of weights: TILE in shaders/matvec.glsl, or half of it */
#define MATVEC_TILE_ROWS     16 /* in shaders/matvec_tile.glsl: half or a quarter of TILE_OUTPUTS */

/* The value of a knob in the key, 0 where the build has no such knob. */
static uint32_t key_knob(struct pipeline_key *key, const char *name)
{
	const uint32_t *value = knob_value(key->kernel, key->knobs, name);
	return value ? *value : 0;
}

/* Whether the device has the feature, and nothing was found to be wrong with it. */
static bool uses(const struct vk *v, enum feature f)
{
	const bool has[N_FEATURES] = {
		v->subgroup, v->texels, v->shuffle, v->shuffle, v->shared, v->dot, v->coopmat};
	return has[f] && !(v->base.tuning && tuning_is_off(v->base.tuning, f));
}

/* The best build of a kernel for the device; NULL: the baseline. */
static const char *variant(const struct vk *v, const struct pipeline_key *key)
{
	const bool is_attention =
		key->kernel == KERNEL_attn_prefill || key->kernel == KERNEL_attn_decode;
	const uint32_t head_dim = key->constant & ATTN_DIM_MASK;
	const bool fits = is_attention         ? head_dim % KV_UNIT == 0
		: key->kernel == KERNEL_sample ? (key->constant & SAMPLE_SMALL) != 0
					       : true;
	if (is_attention && head_dim > NARROW_HEAD_DIM)
		return "wide";
	if (key->kernel == KERNEL_attn_prefill && fits && key->constant & ATTN_LONG &&
		uses(v, FEATURE_LONG))
		return "long";
	for (uint32_t f = N_FEATURES; f-- > 0;) {
		const char *name = feature_name((enum feature)f);
		if (f != FEATURE_LONG && (f != FEATURE_SHUFFLE || fits) &&
			uses(v, (enum feature)f) && spirv_find(key->kernel, key->weight, name))
			return name;
	}
	return NULL;
}

/* The key before its knobs. */
static struct pipeline_key key_of_build(const struct vk *v, const struct op *op)
{
	const struct kernel_info *info = kernel_info(op->kernel);
	struct pipeline_key key = {
		.kernel = op->kernel,
		.weight = info->per_weight ? op->weight : 0,
		.outputs_per_group = info->outputs_per_group,
		.constant = op->constant,
		.rows_per_group = op->rows_per_group ? op->rows_per_group : info->rows_per_group,
	};
	if (info->per_weight && v->keeps_halves)
		key.constant |= HALVES_KEPT;
	key.variant = variant(v, &key);
	return key;
}

static void find_knobs(const struct vk *v, struct tuning *tuning, const struct op *op,
	const char *variant, uint32_t values[MAX_KNOBS])
{
	uint32_t n;
	const struct knob *list = kernel_knobs(op->kernel, &n);
	knobs_resolve(&v->info, tuning, op, values);
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(list[i].build, "ALL") != 0 &&
			!spirv_defines(op->kernel, variant, list[i].build))
			values[i] = 0;
	uint32_t *split = knob_value(op->kernel, values, "SPLIT");
	if (split && *split && !op->parts.n_bytes)
		*split = 1;
}

void pipeline_knobs(
	const struct vk *v, struct tuning *tuning, const struct op *op, uint32_t values[MAX_KNOBS])
{
	find_knobs(v, tuning, op, key_of_build(v, op).variant, values);
}

/* Whether it is a product that matvec_tile.glsl computes. */
static bool has_tile(const struct pipeline_key *key)
{
	return key->kernel == KERNEL_matvec && (key->constant >> COLUMNS_SHIFT) > 1 &&
		spirv_defines(key->kernel, key->variant, "LP_SHUFFLE");
}

struct pipeline_key pipeline_key(const struct vk *v, const struct op *op)
{
	struct pipeline_key key = key_of_build(v, op);
	find_knobs(v, v->base.tuning, op, key.variant, key.knobs);
	bool is_matvec = op->kernel == KERNEL_matvec || op->kernel == KERNEL_matvec_q8 ||
		op->kernel == KERNEL_expert_matvec;
	if (is_matvec && uses(v, FEATURE_SUBGROUP)) {
		const uint32_t n_subgroups = key_knob(&key, "LANES") / v->info.subgroup_size;
		key.outputs_per_group = (n_subgroups ? n_subgroups : 1) *
			(has_tile(&key) ? MATVEC_TILE_ROWS : MATVEC_SUBGROUP_ROWS);
	}
	const uint32_t times = key_knob(&key, "OUTPUTS");
	const uint32_t outputs = key_knob(&key, "TILE_OUTPUTS"), rows = key_knob(&key, "TILE_ROWS");
	key.outputs_per_group = (outputs ? outputs : key.outputs_per_group) * (times ? times : 1);
	key.rows_per_group = rows ? rows : key.rows_per_group;
	key.split = key_knob(&key, "SPLIT");
	key.split = key.split ? key.split : 1;
	return key;
}

static bool same_key(const struct pipeline_key *a, const struct pipeline_key *b)
{
	return a->kernel == b->kernel && a->weight == b->weight &&
		a->outputs_per_group == b->outputs_per_group && a->constant == b->constant &&
		memcmp(a->knobs, b->knobs, sizeof a->knobs) == 0 &&
		(a->variant == b->variant ||
			(a->variant && b->variant && strcmp(a->variant, b->variant) == 0));
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum lap_status create_cache(struct vk *v, struct lap_error *err)
{
	struct text blob = {0};
	if (v->pipeline_cache_file)
		cache_load(&v->info, spirv_hash(), &v->log, &blob);
	VkPipelineCacheCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
		.initialDataSize = blob.n,
		.pInitialData = blob.data,
	};
	VkResult result = v->fn.vkCreatePipelineCache(v->device, &info, NULL, &v->cache);
	if (result == VK_SUCCESS && blob.n)
		v->cache_hash = XXH64(blob.data, blob.n, 0);
	if (result != VK_SUCCESS && blob.n) { /* the driver does not want it: start empty */
		info.initialDataSize = 0;
		info.pInitialData = NULL;
		result = v->fn.vkCreatePipelineCache(v->device, &info, NULL, &v->cache);
	}
	text_free(&blob);
	return vk_create_status(result, "vkCreatePipelineCache(", &v->cache, sizeof v->cache, err);
}

enum lap_status pipelines_open(struct vk *v, struct lap_error *err)
{
	static_assert(TEXEL_QUADS == MAX_BUFFERS, "texel buffers follow storage buffers");
	VkDescriptorSetLayoutBinding bindings[MAX_BUFFERS + N_TEXELS];
	for (uint32_t i = 0; i < ARRAY_COUNT(bindings); i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){
			.binding = i,
			.descriptorType = i < MAX_BUFFERS ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
							  : VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER,
			.descriptorCount = 1,
			.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		};
	enum lap_status status = VK_CREATE(
		v->fn.vkCreateDescriptorSetLayout(v->device,
			&(VkDescriptorSetLayoutCreateInfo){
				.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
				.bindingCount = ARRAY_COUNT(bindings),
				.pBindings = bindings,
			},
			NULL, &v->set_layout),
		&v->set_layout);
	if (status)
		return status;
	status = VK_CREATE(v->fn.vkCreatePipelineLayout(v->device,
				   &(VkPipelineLayoutCreateInfo){
					   .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
					   .setLayoutCount = 1,
					   .pSetLayouts = &v->set_layout,
					   .pushConstantRangeCount = 1,
					   .pPushConstantRanges = &(
						   VkPushConstantRange){VK_SHADER_STAGE_COMPUTE_BIT,
						   0, PUSH_BYTES},
				   },
				   NULL, &v->layout),
		&v->layout);
	return status ? status : create_cache(v, err);
}

static void save_cache(struct vk *v)
{
	size_t n_bytes = 0;
	if (!v->pipeline_cache_file || v->n_pipelines == 0 || !v->cache ||
		v->fn.vkGetPipelineCacheData(v->device, v->cache, &n_bytes, NULL) != VK_SUCCESS)
		return;
	void *blob = array_alloc(n_bytes, 1);
	if (blob &&
		v->fn.vkGetPipelineCacheData(v->device, v->cache, &n_bytes, blob) == VK_SUCCESS &&
		XXH64(blob, n_bytes, 0) != v->cache_hash)
		cache_save(&v->info, spirv_hash(), &v->log, blob, n_bytes);
	free(blob);
}

void pipelines_close(struct vk *v)
{
	save_cache(v);
	for (uint32_t i = 0; i < v->n_pipelines; i++)
		v->fn.vkDestroyPipeline(v->device, v->pipelines[i].handle, NULL);
	free(v->pipelines);
	v->fn.vkDestroyPipelineCache(v->device, v->cache, NULL);
	v->fn.vkDestroyPipelineLayout(v->device, v->layout, NULL);
	v->fn.vkDestroyDescriptorSetLayout(v->device, v->set_layout, NULL);
}

/* ---- creating -------------------------------------------------------------------------------- */

/* Specialization constants: see common.glsl, shaders/knobs.def, shaders/coop.h. */
struct constants {
	uint32_t n, values[MAX_CONSTANTS];
	VkSpecializationMapEntry entries[MAX_CONSTANTS];
};

static void constant_add(struct constants *c, uint32_t id, uint32_t value)
{
	const uint32_t at = c->n * (uint32_t)sizeof *c->values;
	assert(c->n < MAX_CONSTANTS);
	c->entries[c->n] = (VkSpecializationMapEntry){id, at, sizeof *c->values};
	c->values[c->n++] = value;
}

/* The key's, those of its knobs, and of matrices (NULL: none). */
static struct constants list_constants(
	const struct pipeline_key *key, const struct coop_shape *shape)
{
	struct constants c = {0};
	uint32_t n_knobs;
	const struct knob *list = kernel_knobs(key->kernel, &n_knobs);
	constant_add(&c, 0, key->outputs_per_group);
	constant_add(&c, 1, key->constant);
	for (uint32_t i = 0; i < n_knobs; i++)
		if (list[i].id && key->knobs[i]) /* else it is in outputs_per_group, or none */
			constant_add(&c, list[i].id, key->knobs[i]);
	if (shape) {
		constant_add(&c, COOP_M_ID, shape->m);
		constant_add(&c, COOP_N_ID, shape->n);
		constant_add(&c, COOP_K_ID, shape->k);
		constant_add(&c, COOP_LANES_ID, shape->lanes);
	}
	return c;
}

static enum lap_status pipeline_create(
	struct vk *v, const struct pipeline_key *key, VkPipeline *pipeline, struct lap_error *err)
{
	const struct spirv *module = spirv_find(key->kernel, key->weight, key->variant);
	if (!module)
		return fail(err, LAP_ERROR, "this build has no shader %s for weights of %s",
			kernel_info(key->kernel)->name, weight_format(key->weight)->label);
	VkShaderModule shader;
	enum lap_status status =
		VK_CREATE(v->fn.vkCreateShaderModule(v->device,
				  &(VkShaderModuleCreateInfo){
					  .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
					  .codeSize = module->n_bytes,
					  .pCode = module->words,
				  },
				  NULL, &shader),
			&shader);
	if (status)
		return status;
	const bool on_matrices = spirv_defines(key->kernel, key->variant, "LP_COOPMAT");
	const struct constants constants = list_constants(key, on_matrices ? &v->coop_shape : NULL);
	const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo lanes = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
		.requiredSubgroupSize = v->coop_shape.lanes};
	const bool asks = on_matrices && v->coop_shape.lanes_asked;
	VkResult result = v->fn.vkCreateComputePipelines(v->device, v->cache, 1,
		&(VkComputePipelineCreateInfo){
			.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
			.stage =
				{
					.sType =
						VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
					.pNext = asks ? &lanes : NULL,
					.flags = asks
						? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
						: 0,
					.stage = VK_SHADER_STAGE_COMPUTE_BIT,
					.module = shader,
					.pName = "main",
					.pSpecializationInfo =
						&(VkSpecializationInfo){
							.mapEntryCount = constants.n,
							.pMapEntries = constants.entries,
							.dataSize = sizeof constants.values,
							.pData = constants.values,
						},
				},
			.layout = v->layout,
		},
		NULL, pipeline);
	v->fn.vkDestroyShaderModule(v->device, shader, NULL);
	status = vk_status(result, "vkCreateComputePipelines(", NULL);
	if (status)
		return fail(err, status, "%s does not compile the shader %s: %s", v->info.name,
			module->name, vk_result_name(result));
	return LAP_OK;
}

/* Threads take the next pipeline that is to be made until there is none. */
struct work {
	struct vk *v;
	struct pipeline *made;
	uint32_t n;
	atomic_uint next;
	pthread_mutex_t lock; /* of what follows */
	enum lap_status status;
	struct lap_error error;
};

static void *create_some(void *argument)
{
	struct work *work = argument;
	for (uint32_t i; (i = atomic_fetch_add(&work->next, 1)) < work->n;) {
		struct lap_error error = {0};
		struct pipeline *p = &work->made[i];
		enum lap_status status = pipeline_create(work->v, &p->key, &p->handle, &error);
		if (!status)
			continue;
		p->handle = VK_NULL_HANDLE;
		pthread_mutex_lock(&work->lock);
		if (!work->status) {
			work->status = status;
			work->error = error;
		}
		pthread_mutex_unlock(&work->lock);
	}
	return NULL;
}

static void create_all(struct work *work)
{
	long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t n_threads = n_cores < 1 ? 1
		: n_cores > MAX_THREADS  ? MAX_THREADS
					 : (uint32_t)n_cores;
	pthread_t threads[MAX_THREADS];
	uint32_t n_started = 0;
	/* This thread works, too, and does it all when no other can be started. */
	while (n_started + 1 < n_threads && n_started + 1 < work->n &&
		pthread_create(&threads[n_started], NULL, create_some, work) == 0)
		n_started++;
	create_some(work);
	for (uint32_t i = 0; i < n_started; i++)
		pthread_join(threads[i], NULL);
}

static const struct pipeline *find(
	const struct pipeline *pipelines, uint32_t n, const struct pipeline_key *key)
{
	for (uint32_t i = 0; i < n; i++)
		if (same_key(&pipelines[i].key, key))
			return &pipelines[i];
	return NULL;
}

/* Makes room for, and creates, the keys that are not there. */
static enum lap_status create_missing(
	struct vk *v, const struct pipeline_key *keys, uint32_t n, struct lap_error *err)
{
	struct pipeline *all = vk_alloc((uint64_t)v->n_pipelines + n, sizeof *all);
	if (!all)
		return fail_memory(err, "the list of pipelines", n * sizeof *all);
	if (v->n_pipelines)
		memcpy(all, v->pipelines, v->n_pipelines * sizeof *all);
	uint32_t n_all = v->n_pipelines;
	for (uint32_t i = 0; i < n; i++)
		if (!find(all, n_all, &keys[i]))
			all[n_all++].key = keys[i];
	struct work work = {
		.v = v,
		.made = all + v->n_pipelines,
		.n = n_all - v->n_pipelines,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	create_all(&work);
	if (work.status) {
		for (uint32_t i = 0; i < work.n; i++)
			v->fn.vkDestroyPipeline(v->device, work.made[i].handle, NULL);
		free(all);
		if (err)
			*err = work.error;
		return work.status;
	}
	free(v->pipelines);
	v->pipelines = all;
	v->n_pipelines = n_all;
	return LAP_OK;
}

enum lap_status pipelines_get(struct vk *v, const struct pipeline_key *keys, uint32_t n,
	VkPipeline *out, struct lap_error *err)
{
	pthread_mutex_lock(&v->pipeline_lock);
	bool missing = false;
	for (uint32_t i = 0; i < n && !missing; i++)
		missing = !find(v->pipelines, v->n_pipelines, &keys[i]);
	enum lap_status status = missing ? create_missing(v, keys, n, err) : LAP_OK;
	for (uint32_t i = 0; i < n && !status; i++)
		out[i] = find(v->pipelines, v->n_pipelines, &keys[i])->handle;
	pthread_mutex_unlock(&v->pipeline_lock);
	return status;
}
