/* What several commands print of devices, models and this program; no paths and no names that a user gave. */
#ifndef LAPILLI_DESCRIBE_H
#define LAPILLI_DESCRIBE_H

#include "lapilli.h"

void describe_program(bool verbose);                                    /* version.c */
void describe_device(const struct lap_device *d, bool uuids, bool ids); /* devices.c */
void describe_layers(const char *layers);                               /* devices.c */
void describe_model(const struct lap_model_info *m, bool verbose);      /* info.c */

#endif
