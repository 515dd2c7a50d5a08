/* Classes of devices: see knob_defaults.h. */
#include "knob_defaults.h"

#include <assert.h>
#include <string.h>

#include "device.h"

#define LARGE_GPU (1u << LAP_DEVICE_DISCRETE | 1u << LAP_DEVICE_VIRTUAL)
#define SMALL_GPU (1u << LAP_DEVICE_INTEGRATED | 1u << LAP_DEVICE_OTHER)

/* Rows are looked at in order: the first that fits a knob and the device counts.  Fields that are 0 fit
 * every device. */
static const struct row {
	enum kernel kernel;
	const char *knob;
	uint32_t value;
	uint32_t subgroup_from, subgroup_to; /* of the device's subgroup size */
	uint32_t shared_from;                /* bytes of shared memory, at least */
	uint32_t types;                      /* bits 1 << enum lap_device_type */
	uint32_t tiles_below; /* of a product, at all rows that its plan has room for */
	bool integer_dot;     /* the device has it */
	bool several;         /* products with several rows of x */
	const char *driver;   /* begins so */
} rows[] = {
	/* One subgroup: each repeats what the head has in common. */
	{KERNEL_attn_reduce, "LANES", 8, .subgroup_to = 8, .types = 1u << LAP_DEVICE_CPU},
	/* A software driver pays for every workgroup: 148 us against 69 for 33 rows of 257. */
	{KERNEL_glu, "OUTPUTS", 4, .types = 1u << LAP_DEVICE_CPU},
	/* No subgroup without outputs: lavapipe goes through the code once all the same.  0.99 ms against 1.11 for
	 * 8 rows of x, 2304 x 768 in Q4_0. */
	{KERNEL_matvec, "LANES", 16, .subgroup_to = 8, .several = true, .driver = "llvmpipe"},
	/* 10.7 ms against 12.3 for 32000 x 768 in Q4_0, 0.25 against 0.32 for 768 x 768. */
	{KERNEL_matvec, "OUTPUTS", 4, .types = 1u << LAP_DEVICE_CPU},
	{KERNEL_matvec_q8, "OUTPUTS", 4, .types = 1u << LAP_DEVICE_CPU},
	{KERNEL_expert_matvec, "OUTPUTS", 4, .types = 1u << LAP_DEVICE_CPU},
	/* So that all lanes decode; not measured on any. */
	{KERNEL_matmul, "UNITS", 2, .shared_from = 32u << 10, .types = LARGE_GPU | SMALL_GPU},
	{KERNEL_expert_matmul, "UNITS", 2, .shared_from = 32u << 10,
		.types = LARGE_GPU | SMALL_GPU},
	/* Two workgroups for each of 128 multiprocessors, or of 32 of a small GPU; not measured on any. */
	{KERNEL_matmul, "SPLIT", 4, .types = LARGE_GPU, .tiles_below = 128},
	{KERNEL_matmul, "SPLIT", 2, .types = LARGE_GPU, .tiles_below = 256},
	{KERNEL_matmul, "SPLIT", 4, .types = SMALL_GPU, .tiles_below = 32},
	{KERNEL_matmul, "SPLIT", 2, .types = SMALL_GPU, .tiles_below = 64},
};

static bool driver_is(const struct lap_device *d, const char *name)
{
	return strncmp(d->driver, name, strlen(name)) == 0;
}

bool device_likes_texels(const struct lap_device *device)
{
	return driver_is(device, "llvmpipe") || driver_is(device, "Qualcomm");
}

bool device_likes_matrices(const struct lap_device *device)
{
	const bool is_gpu =
		device->type == LAP_DEVICE_DISCRETE || device->type == LAP_DEVICE_INTEGRATED;
	return is_gpu && !(device->vendor_id == VENDOR_INTEL && device->subgroup_min < 16) &&
		!(device->vendor_id == VENDOR_AMD && driver_is(device, "AMD "));
}

bool device_keeps_halves(const struct lap_device *device)
{
	return driver_is(device, "llvmpipe");
}

static bool fits(const struct row *r, const struct lap_device *d, const struct op *op)
{
	return (!r->several || (op->constant >> COLUMNS_SHIFT) > 1) &&
		d->subgroup_size >= r->subgroup_from &&
		(!r->subgroup_to || d->subgroup_size <= r->subgroup_to) &&
		d->max_shared_bytes >= r->shared_from && (!r->types || (r->types >> d->type & 1)) &&
		(!r->integer_dot || d->integer_dot) && (!r->driver || driver_is(d, r->driver));
}

/* knobs: those before SPLIT are resolved. */
static uint64_t n_tiles(const struct op *op, uint32_t knobs[MAX_KNOBS])
{
	const uint32_t *across = knob_value(op->kernel, knobs, "TILE_OUTPUTS");
	const uint32_t *down = knob_value(op->kernel, knobs, "TILE_ROWS");
	assert(across && *across && down && *down);
	return (uint64_t)((op->n_outputs + *across - 1) / *across) *
		((op->max_rows + *down - 1) / *down);
}

void knobs_resolve(const struct lap_device *device, struct tuning *tuning, const struct op *op,
	uint32_t out[MAX_KNOBS])
{
	uint32_t n;
	struct tuned measured = {.broken = false};
	const struct op_class class = op_class(op);
	const struct knob *list = kernel_knobs(op->kernel, &n);
	memset(out, 0, MAX_KNOBS * sizeof *out);
	if (n && tuning)
		tuning_find(tuning, &class, &measured);
	for (uint32_t i = 0; i < n; i++) {
		out[i] = op->knobs[i] ? op->knobs[i] : measured.knobs[i];
		for (size_t r = 0; r < ARRAY_COUNT(rows) && !out[i]; r++)
			if (rows[r].kernel == op->kernel &&
				strcmp(rows[r].knob, list[i].name) == 0 &&
				fits(&rows[r], device, op) &&
				(!rows[r].tiles_below || n_tiles(op, out) < rows[r].tiles_below))
				out[i] = rows[r].value;
		if (!out[i])
			out[i] = list[i].usual;
	}
}
