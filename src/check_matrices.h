/* Products on matrix units: checked each time before a model is computed with them, for drivers get them wrong. */
#ifndef LAPILLI_CHECK_MATRICES_H
#define LAPILLI_CHECK_MATRICES_H

#include "backend.h"

/* Compares products of small shapes with the reference.  Where one is wrong, or does not run, the feature is switched
 * off on this device, as `lapilli validate` would, with a warning in the log.  LAP_NO_MEMORY. */
enum lap_status check_matrices(struct backend *b, const struct log *log, struct lap_error *err);

#endif
