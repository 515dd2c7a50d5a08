/* What every suite leans on: where test data lies, and skips that are counted.
 *
 * Two places hold data: tests/vectors/ in the repository, always there, and a shared folder of
 * models and vectors too large for it ($LAPILLI_SHARED, else ../shared beside the repository).
 * A test of the second kind starts with SKIP_WITHOUT, so that a missing file is a counted skip with
 * a reason, never a silent pass. */
#ifndef LAPILLI_TESTS_SUPPORT_H
#define LAPILLI_TESTS_SUPPORT_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>

/* Path of a file in the shared folder, or NULL when it is not there.  Paths of this and the next
 * function stay valid until 16 more were asked for. */
const char *shared_path(const char *relative);

/* Path of a file below tests/vectors/, which must exist. */
const char *vector_path(const char *relative);

/* Path of a file or folder of the repository, by its path from the root ("shaders/weights.def"). */
const char *source_path(const char *relative);

/* Path of a build product or a scratch file: a folder of its own for every suite, emptied before
 * the suite starts. */
const char *scratch_path(const char *relative);

/* All of a file, NUL-terminated, its length in *n (may be NULL).  free() releases.  A file that
 * cannot be read fails the test. */
char *read_text(const char *path, size_t *n);

/* True on a slow device ($LAPILLI_TEST_SMALL): tests over many shapes take the small ones. */
bool test_small(void);

/* Ends the current test as skipped and writes "suite/test: reason" into $LAPILLI_SKIP_LOG. */
_Noreturn void skip_test(const char *reason);

/* Skips the current test when a shared file is missing. */
#define SKIP_WITHOUT(relative)                                 \
	do {                                                   \
		if (!shared_path(relative))                    \
			skip_test("no shared file " relative); \
	} while (0)

#endif
