/* What a backend does: hold buffers, prepare plans, run them.
 *
 * The one interface between the step and whoever computes it.  Backends know no models, layers or
 * files, and not each other. */
#ifndef LAPILLI_BACKEND_H
#define LAPILLI_BACKEND_H

#include "plan.h"
#include "tuning.h"

enum memory {
	MEMORY_DEVICE, /* weights, activations, KV: where the device reads fastest */
	MEMORY_SHARED, /* mapped for the host while the device works: step, ring, sequences */
};

struct runnable; /* a plan made ready: for Vulkan a recorded command buffer */
struct backend;

struct backend_ops {
	void (*close)(struct backend *b);

	/* Zeroed memory.  `label` is for messages.  LAP_NO_MEMORY with wanted size, limit, device. */
	enum lap_status (*buffer_create)(struct backend *b, uint64_t n_bytes, enum memory memory,
		const char *label, struct buffer **buffer, struct lap_error *err);
	/* Bytes of device memory that this process may use in all, as far as the driver says; 0: not
	 * known.  Advice: other programs take from it. */
	uint64_t (*available)(struct backend *b);
	/* A buffer over the caller's bytes, read-only, without a copy; NULL when the backend cannot. */
	struct buffer *(*buffer_import)(struct backend *b, const void *bytes, uint64_t n_bytes);
	void (*buffer_destroy)(struct backend *b, struct buffer *buffer); /* NULL is allowed */
	/* The bytes of a MEMORY_SHARED buffer; valid as long as the buffer. */
	void *(*buffer_map)(struct buffer *buffer);

	/* Copies between host memory and a view of any buffer; done when it returns. */
	enum lap_status (*write)(struct backend *b, struct view to, const void *bytes,
		uint64_t n_bytes, struct lap_error *err);
	enum lap_status (*read)(struct backend *b, struct view from, void *bytes, uint64_t n_bytes,
		struct lap_error *err);

	/* Creates the pipelines the plan needs and records it, once.  The plan may be freed after;
	 * its buffers must stay.  profile: take a timestamp after each op. */
	enum lap_status (*prepare)(struct backend *b, const struct plan *plan, bool profile,
		struct runnable **runnable, struct lap_error *err);
	void (*release)(struct backend *b, struct runnable *runnable); /* NULL is allowed */

	/* The host wrote the step buffer: the dispatch sizes follow it.  Nothing of this runnable may
	 * be in flight. */
	void (*begin)(struct runnable *runnable);
	/* Submits the recording n_times in a row; *ticket is what wait takes.  Submits are carried out
	 * in order.  Does not wait. */
	enum lap_status (*run)(struct backend *b, struct runnable *runnable, uint32_t n_times,
		uint64_t *ticket, struct lap_error *err);
	/* Returns when everything up to the ticket is done and visible to the host. */
	enum lap_status (*wait)(struct backend *b, uint64_t ticket, struct lap_error *err);
	/* Seconds of each op of the last finished run of a runnable prepared with profile; 0 where
	 * the device cannot tell. */
	enum lap_status (*times)(struct backend *b, struct runnable *runnable, double *seconds,
		struct lap_error *err);

	/* The values of its kernel's knobs that the op would run with, 0 for those that its build has not; NULL:
	 * kernels have none here. */
	void (*knobs)(struct backend *b, const struct op *op, uint32_t values[MAX_KNOBS]);
	/* The same without what was measured. */
	void (*knobs_untuned)(struct backend *b, const struct op *op, uint32_t values[MAX_KNOBS]);
	/* Writes b->tuning to the cache folder. */
	enum lap_status (*tuning_save)(struct backend *b, struct lap_error *err);
};

struct backend {
	const struct backend_ops *ops;
	const char *name;                /* "cpu", or the device's name */
	const struct lap_device *device; /* NULL for the CPU reference */
	uint64_t max_buffer_bytes;       /* largest view an op may bind */
	uint64_t parts_bytes;            /* plan.parts takes at most; 0: products are never split */
	bool has_matrices;               /* products go to matrix units: see check_matrices.h */
	struct tuning *tuning;           /* what was measured; NULL: kernels have no knobs here */
	_Atomic uint64_t device_bytes;   /* memory held now; sessions in other threads change it */
};

/* The plain C reference. */
enum lap_status cpu_open(struct backend **backend, struct lap_error *err);

/* Vulkan, on the device `name` names (see lap_model_options.device).  max_chunk_bytes 0: the device's
 * own limit. */
struct vk_options {
	const char *device;
	uint64_t max_chunk_bytes;
	bool no_pipeline_cache;
	bool no_tuning; /* speeds that were measured are neither used nor written */
	bool validation;
	/* For tests: baseline kernels where the device could do more, weights read as on devices that
	 * nothing is known of; device memory out of the host's
	 * reach, as on most discrete GPUs; products as on GPUs, and on matrix units. */
	bool no_subgroup, no_texels, no_mapping, shared, coopmat;
	struct log log;
};

enum lap_status vk_open(
	const struct vk_options *options, struct backend **backend, struct lap_error *err);

/* As lap_devices and lap_layers. */
enum lap_status vk_devices(struct lap_device **devices, uint32_t *n, struct lap_error *err);
enum lap_status vk_layers(char **names, struct lap_error *err);

#endif
