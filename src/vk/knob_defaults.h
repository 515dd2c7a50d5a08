/* What knobs are set to on a class of devices, before anything is measured.
 *
 * One table; what it does not name keeps the usual value of shaders/knobs.def. */
#ifndef LAPILLI_VK_KNOB_DEFAULTS_H
#define LAPILLI_VK_KNOB_DEFAULTS_H

#include "knobs.h"

/* The values that an op runs with on the device: those that it carries, else those of the device's class. */
void knobs_resolve(const struct lap_device *device, const struct op *op, uint32_t out[MAX_KNOBS]);

#endif
