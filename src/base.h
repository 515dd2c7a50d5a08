/* What every other file may lean on: errors, checked arithmetic, mapped files, text buffers, clocks.
 *
 * Owns nothing of models, devices or text. The public vocabulary (status codes, struct lap_error)
 * comes from include/lapilli.h, which includes nothing of ours and so may be read from any floor. */
#ifndef LAPILLI_BASE_H
#define LAPILLI_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lapilli.h"

#define ARRAY_COUNT(a)    (sizeof(a) / sizeof((a)[0]))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Writes the message into *err (which may be NULL) and returns `status`, so that a failure is one
 * expression:  return fail(err, LAP_IO, "cannot open %s: %s", path, strerror(errno));  */
enum lap_status fail(struct lap_error *err, enum lap_status status, const char *format, ...)
	PRINTF_LIKE(3, 4);

/* The one message for an allocation that failed; `what` names what it was for. */
enum lap_status fail_memory(struct lap_error *err, const char *what, uint64_t n_bytes);

/* Checked arithmetic on 64-bit sizes: true and the result in *out, or false and *out untouched when
 * the exact result does not fit.  size_align rounds up to a multiple of `align`, a power of two. */
bool size_add(uint64_t a, uint64_t b, uint64_t *out);
bool size_mul(uint64_t a, uint64_t b, uint64_t *out);
bool size_align(uint64_t a, uint64_t align, uint64_t *out);

/* n * size bytes, zeroed; NULL when the product does not fit or memory is out.  free() releases. */
void *array_alloc(uint64_t n, uint64_t size);

/* A growing string of bytes.  Zeroed is empty; `data` is always NUL-terminated when not NULL. */
struct text {
	char *data;
	size_t n, capacity; /* bytes, without the terminator */
};

bool text_append(struct text *t, const void *bytes, size_t n_bytes); /* false: out of memory */
bool text_printf(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);
void text_free(struct text *t);

/* A whole file, mapped read-only.  n_bytes may be 0, data is NULL then. */
struct mapped_file {
	const uint8_t *data;
	uint64_t n_bytes;
};

/* LAP_IO with the system's words when the file cannot be opened, is no regular file, or cannot be
 * mapped.  file_unmap takes a zeroed struct too. */
enum lap_status file_map(const char *path, struct mapped_file *file, struct lap_error *err);
void file_unmap(struct mapped_file *file);
/* The bytes will not be read again soon: their pages leave this process's resident memory, and are mapped
 * anew when they are read all the same.  Bytes that are not the file's are left alone. */
void file_forget(const struct mapped_file *file, const uint8_t *bytes, uint64_t n_bytes);

/* Much of this memory, not touched yet, will be used: where the system can, it comes in pages of MiBs, which are fewer
 * to fault in and to look up. */
void memory_in_large_pages(void *bytes, uint64_t n_bytes);

/* Reads all of `path` ("-": standard input) into *out.  LAP_IO on failure. */
enum lap_status file_read(const char *path, struct text *out, struct lap_error *err);

/* Writes the bytes beside `path` and renames, so that a reader sees the old file or the new one. */
enum lap_status file_write(
	const char *path, const void *bytes, uint64_t n_bytes, struct lap_error *err);

/* The same in pieces.  The path must stay; a piece that cannot be written shows when the file is closed. */
struct file_writer {
	const char *path;
	struct text temporary; /* empty: the path is no regular file and is written as it is */
	int fd, error;
};

enum lap_status file_create(const char *path, struct file_writer *w, struct lap_error *err);
void file_append(struct file_writer *w, const void *bytes, uint64_t n_bytes);
/* keep: false leaves the path as it was. */
enum lap_status file_close(struct file_writer *w, bool keep, struct lap_error *err);

/* Seconds: a monotonic clock, the CPU time of this process over all threads, and of this thread. */
double clock_seconds(void);
double clock_cpu_seconds(void);
double clock_thread_seconds(void);

/* A notice for the user goes to the callback that the caller of the library gave, or nowhere. */
struct log {
	lap_log_fn *fn;
	void *user;
};

void log_line(const struct log *log, enum lap_log_level level, const char *format, ...)
	PRINTF_LIKE(3, 4);

/* Length in bytes (1 to 4) of the well-formed UTF-8 character at s, its code point in *code;
 * 0 when the n_bytes there do not start with one (Unicode 15, table 3-7). */
unsigned utf8_decode(const char *s, size_t n_bytes, uint32_t *code);
/* Writes the 1 to 4 bytes of a code point, returns how many. */
unsigned utf8_encode(uint32_t code, char out[4]);

#endif
