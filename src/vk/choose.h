/* The choice among the devices of a machine.
 *
 * Pure functions of a list: no Vulkan in here, so that lists no test machine has can be tested. */
#ifndef LAPILLI_VK_CHOOSE_H
#define LAPILLI_VK_CHOOSE_H

#include "base.h"

/* Marks each usable device that has the UUID of an earlier usable one as refused: one device behind
 * two drivers counts once. */
void devices_mark_duplicates(struct lap_device *devices, uint32_t n);

/* The index in `devices` of the one that `wanted` names: an index ("0", "Vulkan0"), a UUID in
 * hexadecimal, a name or a part of one that fits one device only, in any case.  NULL or "": the best
 * usable one: discrete, integrated, virtual, other, CPU type, then the larger memory, then the
 * earlier.  An index reaches a device that is only refused as a duplicate, too.  LAP_NO_DEVICE with
 * the list of devices. */
enum lap_status device_choose(const struct lap_device *devices, uint32_t n, const char *wanted,
	uint32_t *chosen, struct lap_error *err);

#endif
