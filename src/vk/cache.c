/* The pipeline cache file: see cache.h. */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

struct cache_header {
	char magic[8];
	uint64_t n_bytes;  /* of the blob that follows */
	uint64_t checksum; /* of the blob */
	uint32_t vendor_id, device_id, driver_version, api_version;
	uint8_t uuid[16], driver_uuid[16];
	char shaders[16];
	char version[16];
};
_Static_assert(sizeof(struct cache_header) == 104, "no padding: headers are compared as bytes");

#define CACHE_MAX_BYTES (1ull << 30) /* no driver's blob is that large: the file is not ours */

static struct cache_header header_of(
	const struct lap_device *device, const char *shaders, const void *blob, size_t n_bytes)
{
	struct cache_header h = {
		.magic = {'L', 'A', 'P', 'P', 'I', 'P', 'E', '1'},
		.n_bytes = n_bytes,
		.checksum = XXH64(blob, n_bytes, 0),
		.vendor_id = device->vendor_id,
		.device_id = device->device_id,
		.driver_version = device->driver_version,
		.api_version = device->api_version,
	};
	memcpy(h.uuid, device->uuid, sizeof h.uuid);
	memcpy(h.driver_uuid, device->driver_uuid, sizeof h.driver_uuid);
	memcpy(h.shaders, shaders, strnlen(shaders, sizeof h.shaders));
	memcpy(h.version, LAP_VERSION, strnlen(LAP_VERSION, sizeof h.version));
	return h;
}

bool cache_wrap(const struct lap_device *device, const char *shaders, const void *blob,
	size_t n_bytes, struct text *out)
{
	struct cache_header h = header_of(device, shaders, blob, n_bytes);
	return text_append(out, &h, sizeof h) && text_append(out, blob, n_bytes);
}

const char *cache_unwrap(const struct lap_device *device, const char *shaders, const void *file,
	uint64_t n_file, const void **blob, size_t *n_bytes)
{
	struct cache_header found;
	if (n_file < sizeof found)
		return "it is cut short";
	memcpy(&found, file, sizeof found);
	const uint8_t *bytes = (const uint8_t *)file + sizeof found;
	if (n_file > CACHE_MAX_BYTES || found.n_bytes != n_file - sizeof found)
		return "its length is not the one it states";
	struct cache_header expected = header_of(device, shaders, bytes, (size_t)found.n_bytes);
	if (memcmp(found.magic, expected.magic, sizeof found.magic) != 0)
		return "it is no pipeline cache";
	if (found.checksum != expected.checksum)
		return "its checksum is wrong";
	if (memcmp(&found, &expected, sizeof found) != 0)
		return "another device, driver, version or set of shaders wrote it";
	*blob = bytes;
	*n_bytes = (size_t)found.n_bytes;
	return NULL;
}

bool cache_path(
	const struct lap_device *device, const char *kind, const char *ending, struct text *path)
{
	const char *base = getenv("XDG_CACHE_HOME");
	const char *below = "";
	if (!base || base[0] != '/') { /* relative paths are to be ignored (XDG base directories) */
		base = getenv("HOME");
		below = "/.cache";
	}
	if (!base || base[0] != '/')
		return false;
	bool ok = text_printf(path, "%s%s/lapilli/%s-%04x-%04x-", base, below, kind,
		device->vendor_id, device->device_id);
	for (size_t i = 0; i < sizeof device->driver_uuid && ok; i++)
		ok = text_printf(path, "%02x", device->driver_uuid[i]);
	return ok && text_printf(path, "%s", ending);
}

void cache_load(const struct lap_device *device, const char *shaders, const struct log *log,
	struct text *blob)
{
	struct text path = {0};
	struct mapped_file file = {0};
	struct lap_error err;
	const void *bytes;
	size_t n_bytes;
	if (!cache_path(device, CACHE_PIPELINES, &path)) {
		log_line(log, LAP_LOG_DEBUG, "pipeline cache: no place for it");
	} else if (file_map(path.data, &file, &err)) {
		log_line(log, LAP_LOG_DEBUG, "pipeline cache: %s", err.text);
	} else {
		const char *miss =
			cache_unwrap(device, shaders, file.data, file.n_bytes, &bytes, &n_bytes);
		if (miss)
			log_line(log, LAP_LOG_DEBUG, "pipeline cache: %s is not used: %s",
				path.data, miss);
		else if (!text_append(blob, bytes, n_bytes))
			text_free(blob);
	}
	file_unmap(&file);
	text_free(&path);
}

/* The folders that lead to the file; what is there already is left as it is. */
static bool make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		bool ok = mkdir(path, S_IRWXU) == 0 || errno == EEXIST;
		*slash = '/';
		if (!ok)
			return false;
	}
	return true;
}

enum lap_status cache_write(
	const char *path, const void *bytes, size_t n_bytes, struct lap_error *err)
{
	char *own = strdup(path); /* whose slashes are cut */
	const bool there = own && make_folders(own);
	free(own);
	if (!there)
		return fail(err, LAP_IO, "%s: its folder cannot be made", path);
	enum lap_status status = file_write(path, bytes, n_bytes, err);
	if (!status)
		chmod(path, S_IRUSR | S_IWUSR);
	return status;
}

void cache_save(const struct lap_device *device, const char *shaders, const struct log *log,
	const void *blob, size_t n_bytes)
{
	struct text path = {0}, bytes = {0};
	struct lap_error err = {.text = "no place for it"};
	bool saved = cache_path(device, CACHE_PIPELINES, &path) &&
		cache_wrap(device, shaders, blob, n_bytes, &bytes) &&
		cache_write(path.data, bytes.data, bytes.n, &err) == LAP_OK;
	if (!saved)
		log_line(log, LAP_LOG_DEBUG, "pipeline cache: not written: %s", err.text);
	text_free(&path);
	text_free(&bytes);
}
