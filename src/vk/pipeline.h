/* Pipelines: compiled kernels, made when a plan first needs them and kept for later plans.
 *
 * All have one layout: MAX_BUFFERS storage buffers, N_TEXELS texel buffers and 128 bytes of push constants. */
#ifndef LAPILLI_VK_PIPELINE_H
#define LAPILLI_VK_PIPELINE_H

#include "vk.h"

#define PUSH_BYTES 128
#define N_TEXELS   3 /* bindings from TEXEL_QUADS on */

/* What distinguishes one pipeline from another. */
struct pipeline_key {
	enum kernel kernel;
	enum weight weight;
	const char *variant;        /* NULL: the baseline; else a string that stays */
	uint32_t outputs_per_group; /* specialization constant 0 */
	uint32_t constant;          /* specialization constant 1 */
	uint32_t knobs[MAX_KNOBS];  /* the kernel's, in the order of shaders/knobs.def; 0: none */
	uint32_t rows_per_group;    /* of the step; follows from the others and the op */
	uint32_t split;             /* workgroups that share the parts of a sum; likewise */
};

/* Layouts and the driver's cache, filled from the cache file. */
enum lap_status pipelines_open(struct vk *v, struct lap_error *err);
void pipelines_close(struct vk *v); /* writes the cache file when there is something new */

/* The pipeline that an op runs on this device. */
struct pipeline_key pipeline_key(const struct vk *v, const struct op *op);

/* The values of its kernel's knobs that the op runs with, 0 for those that its build has not; tuning: what was
 * measured, or NULL. */
void pipeline_knobs(
	const struct vk *v, struct tuning *tuning, const struct op *op, uint32_t values[MAX_KNOBS]);

/* out[i]: the pipeline of keys[i]; the ones that are missing are created, on all cores at once. */
enum lap_status pipelines_get(struct vk *v, const struct pipeline_key *keys, uint32_t n,
	VkPipeline *out, struct lap_error *err);

#endif
