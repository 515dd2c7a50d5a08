/* Test data, scratch files and counted skips. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

#define N_PATHS    16
#define PATH_BYTES 1024

static const char *join(const char *folder, const char *relative)
{
	static char paths[N_PATHS][PATH_BYTES];
	static unsigned next;
	char *path = paths[next++ % N_PATHS];
	int n = snprintf(path, PATH_BYTES, "%s/%s", folder, relative);
	cr_assert(n > 0 && n < PATH_BYTES, "path too long: %s/%s", folder, relative);
	return path;
}

const char *shared_path(const char *relative)
{
	const char *folder = getenv("LAPILLI_SHARED");
	const char *path = join(folder && *folder ? folder : SOURCE_DIR "/../shared", relative);
	return access(path, R_OK) == 0 ? path : NULL;
}

const char *vector_path(const char *relative)
{
	const char *path = join(SOURCE_DIR "/tests/vectors", relative);
	cr_assert(access(path, R_OK) == 0, "%s: %s", path, strerror(errno));
	return path;
}

const char *source_path(const char *relative)
{
	return join(SOURCE_DIR, relative);
}

const char *scratch_path(const char *relative)
{
	const char *folder = getenv("LAPILLI_SCRATCH");
	if (!folder || !*folder) { /* the suite was started by hand */
		static char own[PATH_BYTES];
		const char *base = getenv("TMPDIR");
		snprintf(own, sizeof(own), "%s/lapilli-test-%ld", base && *base ? base : "/tmp",
			(long)getpid());
		folder = own;
	}
	cr_assert(mkdir(folder, 0700) == 0 || errno == EEXIST, "%s: %s", folder, strerror(errno));
	return join(folder, relative);
}

char *read_text(const char *path, size_t *n)
{
	FILE *file = fopen(path, "rb");
	cr_assert(file, "%s: %s", path, strerror(errno));
	size_t n_bytes = 0, capacity = 1 << 16;
	char *text = malloc(capacity);
	cr_assert(text, "out of memory");
	for (;;) {
		n_bytes += fread(text + n_bytes, 1, capacity - n_bytes - 1, file);
		if (n_bytes < capacity - 1)
			break;
		capacity *= 2;
		text = realloc(text, capacity);
		cr_assert(text, "out of memory");
	}
	cr_assert(!ferror(file), "%s: cannot be read", path);
	fclose(file);
	text[n_bytes] = '\0';
	if (n)
		*n = n_bytes;
	return text;
}

bool test_small(void)
{
	const char *small = getenv("LAPILLI_TEST_SMALL");
	return small && *small && strcmp(small, "0") != 0;
}

_Noreturn void skip_test(const char *reason)
{
	const char *log = getenv("LAPILLI_SKIP_LOG");
	FILE *file = log && *log ? fopen(log, "a") : NULL;
	if (file) { /* one short write in append mode: tests run side by side */
		fprintf(file, "%s/%s: %s\n", criterion_current_suite->name,
			criterion_current_test->name, reason);
		fclose(file);
	}
	cr_skip_test("%s", reason);
}
