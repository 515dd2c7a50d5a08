/* The tuning file: what was measured on this device, in the cache folder, as text.
 *
 * Its first line names device, driver, build of shaders and version; a file with another is not used. */
#ifndef LAPILLI_VK_TUNED_H
#define LAPILLI_VK_TUNED_H

#include "vk.h"

void tuned_open(struct vk *v); /* reads the file, where there is one; fills v->base.tuning */
void tuned_close(struct vk *v);

/* Fills d->switched_off from the device's file. */
void tuned_list_off(struct lap_device *d);

/* As in struct backend_ops.  LAP_IO. */
enum lap_status tuned_save(struct backend *b, struct lap_error *err);

#endif
