/* The pipeline cache file: compiled pipelines that a later process need not compile again.
 *
 * A driver may crash on a blob that is not its own, so a blob is only handed to the driver when its
 * header says that this very device, driver, build of shaders and version of Lapilli wrote it, and
 * the checksum holds.  All else is a miss; failures to read or write are none of the user's business
 * and go to the debug log. */
#ifndef LAPILLI_VK_CACHE_H
#define LAPILLI_VK_CACHE_H

#include "base.h"

/* The device's file of a kind in $XDG_CACHE_HOME/lapilli or ~/.cache/lapilli, into *path (text_free
 * releases).  False when the environment names no such place. */
#define CACHE_PIPELINES "pipelines", ".bin"
#define CACHE_TUNING    "tuning", ".txt"
bool cache_path(
	const struct lap_device *device, const char *kind, const char *ending, struct text *path);

/* Writes a file of that folder, which is made when it is not there. */
enum lap_status cache_write(
	const char *path, const void *bytes, size_t n_bytes, struct lap_error *err);

/* The file's bytes for a blob of the driver: header and blob appended to *out.  `shaders` is
 * spirv_hash().  False: out of memory. */
bool cache_wrap(const struct lap_device *device, const char *shaders, const void *blob,
	size_t n_bytes, struct text *out);

/* The blob in a file's bytes: NULL and its place in *blob, or why it is a miss. */
const char *cache_unwrap(const struct lap_device *device, const char *shaders, const void *file,
	uint64_t n_file, const void **blob, size_t *n_bytes);

/* Reads or writes the device's file.  cache_load leaves *blob empty on a miss. */
void cache_load(const struct lap_device *device, const char *shaders, const struct log *log,
	struct text *blob);
void cache_save(const struct lap_device *device, const char *shaders, const struct log *log,
	const void *blob, size_t n_bytes);

#endif
