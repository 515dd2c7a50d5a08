/* The open device: what the files of this folder share.
 *
 * Each part of struct vk belongs to one file, named beside it; the others go through its functions.
 * A backend may be used from several threads: each part has its own lock.  Locks are taken in the
 * order staging, memory or staging, queue; never two others at once. */
#ifndef LAPILLI_VK_VK_H
#define LAPILLI_VK_VK_H

#include <pthread.h>

#include "backend.h"
#include "coopmat.h"
#include "instance.h"

struct block;    /* memory.h */
struct pipeline; /* pipeline.h */

#define MAX_MEMORY_TYPES 32 /* VK_MAX_MEMORY_TYPES */
#define N_STAGING        2  /* one half is filled while the other is copied */

struct staging {
	pthread_mutex_t lock;
	struct buffer *buffer;
	VkCommandPool pool;
	VkCommandBuffer commands[N_STAGING];
	uint64_t tickets[N_STAGING];
};

struct vk {
	struct backend base; /* first: a struct backend * is a struct vk * */

	/* backend.c; constant once open */
	struct lap_device info;
	struct log log;
	struct instance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	struct VolkDeviceTable fn;
	VkPhysicalDeviceLimits limits;
	VkPhysicalDeviceMemoryProperties memory_properties;
	uint32_t queue_family, timestamp_bits;
	bool subgroup; /* use the "subgroup" variants of kernels ... */
	bool texels;   /* ... and, before them, the "texels" variants ... */
	bool shuffle;  /* ... and, before those, the "shuffle" variants */
	bool shared;   /* use the "shared" variants, whatever there is else ... */
	bool coopmat;  /* ... and, before them, the "coopmat" variants, with these matrices */
	struct coop_shape coop_shape;
	bool dot;          /* products of packed bytes are an instruction: the "dot" variants */
	bool keeps_halves; /* unpackHalf2x16 does not flush subnormal halves */
	bool pipeline_cache_file, tuning_file;
	struct tuning tuning; /* has a lock of its own */
	bool no_mapping;      /* of MEMORY_DEVICE */

	/* memory.c */
	pthread_mutex_t memory_lock;
	struct block *blocks;

	struct staging staging; /* staging.c */

	/* pipeline.c */
	pthread_mutex_t pipeline_lock;
	VkDescriptorSetLayout set_layout;
	VkPipelineLayout layout;
	VkPipelineCache cache;
	uint64_t cache_hash; /* of the blob that the cache file held; 0: there was none */
	struct pipeline *pipelines;
	uint32_t n_pipelines;

	/* run.c */
	pthread_mutex_t queue_lock;
	VkQueue queue;
	VkSemaphore timeline;
	uint64_t last_ticket;  /* submitted */
	char last_running[64]; /* what it was, for messages */
};

#endif
