/* What knobs are set to, by what was measured on this device or by its class, and how weights are best read on
 * such devices.
 *
 * One table of classes; what it does not name keeps the usual value of shaders/knobs.def. */
#ifndef LAPILLI_VK_KNOB_DEFAULTS_H
#define LAPILLI_VK_KNOB_DEFAULTS_H

#include "tuning.h"

/* The values that an op runs with on the device: those that it carries, else those that were measured
 * (tuning may be NULL), else those of the device's class. */
void knobs_resolve(const struct lap_device *device, struct tuning *tuning, const struct op *op,
	uint32_t out[MAX_KNOBS]);

/* Loads texels of 16 bytes faster than words of storage buffers: llvmpipe, which takes a quarter to a half of
 * the time; Adreno, whose storage buffers bypass a cache (ncnn #1694; not measured here). */
bool device_likes_texels(const struct lap_device *device);

/* Matrix units are worth using, and are there where the driver has the extension.  Not on CPUs; not on Intel before
 * Xe2, whose subgroups have 8 lanes or more (slower: llama.cpp #10597, #12690); nor with AMD's own drivers, which
 * report them for devices without. */
bool device_likes_matrices(const struct lap_device *device);

/* unpackHalf2x16 is known to keep subnormal halves; the kernel checks have some. */
bool device_keeps_halves(const struct lap_device *device);

#endif
