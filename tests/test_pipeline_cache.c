/* The pipeline cache file: whatever is not exactly ours is a miss. */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support.h"
#include "vk/cache.h"

static const char blob[] = "what the driver compiled";
static const char shaders[] = "0123456789abcdef";
static const struct log silent;

static struct lap_device device(void)
{
	struct lap_device d = {
		.vendor_id = 0x10005, .device_id = 7, .driver_version = 1, .api_version = 0x403000};
	memset(d.uuid, 0xab, sizeof d.uuid);
	memset(d.driver_uuid, 0xcd, sizeof d.driver_uuid);
	return d;
}

static struct text wrapped(void)
{
	struct lap_device d = device();
	struct text file = {0};
	cr_assert(cache_wrap(&d, shaders, blob, sizeof blob, &file));
	return file;
}

static bool hits(const struct lap_device *d, const char *hash, const void *file, uint64_t n)
{
	const void *found = NULL;
	size_t n_found = 0;
	if (cache_unwrap(d, hash, file, n, &found, &n_found))
		return false;
	cr_assert_eq(n_found, sizeof blob);
	cr_assert_eq(memcmp(found, blob, sizeof blob), 0);
	return true;
}

Test(pipeline_cache, hit)
{
	struct lap_device d = device();
	struct text file = wrapped();
	cr_assert(hits(&d, shaders, file.data, file.n));
	text_free(&file);
}

Test(pipeline_cache, empty_blob)
{
	struct lap_device d = device();
	struct text file = {0};
	const void *found;
	size_t n = 1;
	cr_assert(cache_wrap(&d, shaders, "", 0, &file));
	cr_assert_null(cache_unwrap(&d, shaders, file.data, file.n, &found, &n));
	cr_assert_eq(n, 0);
	text_free(&file);
}

/* Every length but the right one, and every single bit. */
Test(pipeline_cache, damaged)
{
	struct lap_device d = device();
	struct text file = wrapped();
	for (size_t n = 0; n < file.n; n++)
		cr_assert(!hits(&d, shaders, file.data, n), "cut to %zu bytes", n);
	for (size_t i = 0; i < file.n * 8; i++) {
		file.data[i / 8] ^= (char)(1 << i % 8);
		cr_assert(!hits(&d, shaders, file.data, file.n), "bit %zu", i);
		file.data[i / 8] ^= (char)(1 << i % 8);
	}
	cr_assert(hits(&d, shaders, file.data, file.n));
	cr_assert(text_append(&file, "x", 1));
	cr_assert(!hits(&d, shaders, file.data, file.n), "one byte too many");
	text_free(&file);
}

Test(pipeline_cache, of_something_else)
{
	struct text file = wrapped();
	struct lap_device d = device();
	cr_assert(!hits(&d, "0123456789abcdee", file.data, file.n), "other shaders");
	d.vendor_id++;
	cr_assert(!hits(&d, shaders, file.data, file.n), "other vendor");
	d = device();
	d.device_id++;
	cr_assert(!hits(&d, shaders, file.data, file.n), "other device");
	d = device();
	d.driver_version++;
	cr_assert(!hits(&d, shaders, file.data, file.n), "other driver version");
	d = device();
	d.api_version++;
	cr_assert(!hits(&d, shaders, file.data, file.n), "other Vulkan version");
	d = device();
	d.driver_uuid[15] ^= 1;
	cr_assert(!hits(&d, shaders, file.data, file.n), "other driver");
	d = device();
	d.uuid[0] ^= 1;
	cr_assert(!hits(&d, shaders, file.data, file.n), "other device of the same kind");
	char *version = memmem(file.data, file.n, LAP_VERSION, strlen(LAP_VERSION));
	cr_assert(version, "our version is in the header");
	version[0]++;
	d = device();
	cr_assert(!hits(&d, shaders, file.data, file.n), "other version of Lapilli");
	text_free(&file);
}

static size_t load(const struct lap_device *d)
{
	struct text found = {0};
	cache_load(d, shaders, &silent, &found);
	cr_assert(found.n == 0 || memcmp(found.data, blob, sizeof blob) == 0);
	size_t n = found.n;
	text_free(&found);
	return n;
}

Test(pipeline_cache, saved_and_loaded)
{
	struct lap_device d = device();
	struct text path = {0};
	struct stat st;
	cr_assert_eq(setenv("XDG_CACHE_HOME", scratch_path("pipeline_cache/a/b"), 1), 0);
	cr_assert_eq(load(&d), 0, "there is none yet");
	cache_save(&d, shaders, &silent, blob, sizeof blob);
	cr_assert_eq(load(&d), sizeof blob);
	cr_assert(cache_path(&d, CACHE_PIPELINES, &path));
	cr_assert_eq(stat(path.data, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0600, "private");
	struct lap_device other = d;
	other.driver_version = 2;
	cr_assert_eq(load(&other), 0, "of the same file, another version");
	other.driver_uuid[3] = 0;
	cache_save(&other, shaders, &silent, blob, sizeof blob);
	cr_assert_eq(load(&d), sizeof blob, "another driver has a file of its own");
	text_free(&path);
}

Test(pipeline_cache, place)
{
	struct lap_device d = device();
	struct text path = {0};
	cr_assert_eq(unsetenv("XDG_CACHE_HOME"), 0);
	cr_assert_eq(setenv("HOME", "/home/someone", 1), 0);
	cr_assert(cache_path(&d, CACHE_PIPELINES, &path));
	cr_assert(strncmp(path.data, "/home/someone/.cache/lapilli/", 29) == 0, "%s", path.data);
	text_free(&path);
	cr_assert_eq(setenv("XDG_CACHE_HOME", "relative", 1), 0);
	cr_assert(cache_path(&d, CACHE_PIPELINES, &path));
	cr_assert(strncmp(path.data, "/home/someone/", 14) == 0, "%s", path.data);
	text_free(&path);
	cr_assert_eq(unsetenv("HOME"), 0);
	cr_assert(!cache_path(&d, CACHE_PIPELINES, &path));
	cache_save(&d, shaders, &silent, blob, sizeof blob);
	cr_assert_eq(load(&d), 0, "no place, no file, no failure");
	text_free(&path);
}

/* Neither a folder that cannot be made nor a folder in place of the file disturbs anyone. */
Test(pipeline_cache, not_writable)
{
	struct lap_device d = device();
	struct lap_error err = {0};
	const char *file = scratch_path("pipeline_cache_file_in_the_way");
	cr_assert_eq(file_write(file, "x", 1, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(setenv("XDG_CACHE_HOME", file, 1), 0);
	cache_save(&d, shaders, &silent, blob, sizeof blob);
	cr_assert_eq(load(&d), 0);
}
