/* Errors, checked arithmetic, mapped files, text buffers, clocks: see base.h. */
#define _POSIX_C_SOURCE 200809L
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum lap_status fail(struct lap_error *err, enum lap_status status, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		vsnprintf(err->text, sizeof err->text, format, args);
		va_end(args);
		err->status = status;
	}
	return status;
}

enum lap_status fail_memory(struct lap_error *err, const char *what, uint64_t n_bytes)
{
	return fail(err, LAP_NO_MEMORY, "out of memory: %s needs %llu bytes", what,
		(unsigned long long)n_bytes);
}

bool size_add(uint64_t a, uint64_t b, uint64_t *out)
{
	if (b > UINT64_MAX - a)
		return false;
	*out = a + b;
	return true;
}

bool size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
	if (a && b > UINT64_MAX / a)
		return false;
	*out = a * b;
	return true;
}

bool size_align(uint64_t a, uint64_t align, uint64_t *out)
{
	uint64_t sum;
	if (!size_add(a, align - 1, &sum))
		return false;
	*out = sum & ~(align - 1);
	return true;
}

void *array_alloc(uint64_t n, uint64_t size)
{
	uint64_t n_bytes;
	if (!size_mul(n, size, &n_bytes) || n_bytes > SIZE_MAX)
		return NULL;
	return calloc(1, n_bytes ? (size_t)n_bytes : 1);
}

static bool text_reserve(struct text *t, size_t more)
{
	if (more > SIZE_MAX / 2 - t->n - 1)
		return false;
	if (t->data && t->n + more < t->capacity)
		return true;
	size_t capacity = t->capacity ? t->capacity : 64;
	while (capacity <= t->n + more)
		capacity *= 2;
	char *data = realloc(t->data, capacity);
	if (!data)
		return false;
	t->data = data;
	t->capacity = capacity;
	return true;
}

bool text_append(struct text *t, const void *bytes, size_t n_bytes)
{
	if (!text_reserve(t, n_bytes))
		return false;
	if (n_bytes)
		memcpy(t->data + t->n, bytes, n_bytes);
	t->n += n_bytes;
	t->data[t->n] = '\0';
	return true;
}

bool text_printf(struct text *t, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0 || !text_reserve(t, (size_t)n))
		return false;
	va_start(args, format);
	vsnprintf(t->data + t->n, (size_t)n + 1, format, args);
	va_end(args);
	t->n += (size_t)n;
	return true;
}

void text_free(struct text *t)
{
	free(t->data);
	*t = (struct text){0};
}

enum lap_status file_map(const char *path, struct mapped_file *file, struct lap_error *err)
{
	*file = (struct mapped_file){0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(err, LAP_IO, "cannot open %s: %s", path, strerror(errno));
	enum lap_status status = LAP_OK;
	struct stat st;
	if (fstat(fd, &st) != 0)
		status = fail(err, LAP_IO, "cannot read %s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		status = fail(err, LAP_IO, "cannot read %s: it is %s, expected a file", path,
			S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
	else if (st.st_size > 0) {
		void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (data == MAP_FAILED)
			status = fail(err, LAP_IO, "cannot map %s: %s", path, strerror(errno));
		else
			*file = (struct mapped_file){data, (uint64_t)st.st_size};
	}
	close(fd);
	return status;
}

/* Advice on the whole pages of these bytes. */
static void advise(uintptr_t from, uint64_t n_bytes, int advice)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t first = (from + page - 1) / page * page;
	const uintptr_t end = (from + (uintptr_t)n_bytes) / page * page;
	if (first < end)
		(void)madvise((void *)first, end - first, advice);
}

void file_forget(const struct mapped_file *file, const uint8_t *bytes, uint64_t n_bytes)
{
	const uintptr_t from = (uintptr_t)bytes, data = (uintptr_t)file->data;
	if (!file->data || from < data || n_bytes > file->n_bytes ||
		from - data > file->n_bytes - n_bytes)
		return;
	advise(from, n_bytes, MADV_DONTNEED);
}

void memory_in_large_pages(void *bytes, uint64_t n_bytes)
{
#ifdef MADV_HUGEPAGE
	advise((uintptr_t)bytes, n_bytes, MADV_HUGEPAGE);
#else
	(void)bytes, (void)n_bytes;
#endif
}

void file_unmap(struct mapped_file *file)
{
	if (file->data)
		munmap((void *)(uintptr_t)file->data, (size_t)file->n_bytes);
	*file = (struct mapped_file){0};
}

enum lap_status file_read(const char *path, struct text *out, struct lap_error *err)
{
	bool is_stdin = strcmp(path, "-") == 0;
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(err, LAP_IO, "cannot open %s: %s", path, strerror(errno));
	enum lap_status status = LAP_OK;
	if (!text_append(out, "", 0))
		status = fail_memory(err, path, 1);
	while (!status) {
		char chunk[65536];
		ssize_t n = read(fd, chunk, sizeof chunk);
		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			status = fail(err, LAP_IO, "cannot read %s: %s", path, strerror(errno));
		else if (!text_append(out, chunk, (size_t)n))
			status = fail_memory(err, path, out->n + (uint64_t)n);
	}
	if (!is_stdin)
		close(fd);
	return status;
}

static bool write_all(int fd, const void *bytes, uint64_t n_bytes)
{
	const char *p = bytes;
	while (n_bytes) {
		size_t want = n_bytes < (1u << 30) ? (size_t)n_bytes : 1u << 30;
		ssize_t n = write(fd, p, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		p += n;
		n_bytes -= (uint64_t)n;
	}
	return true;
}

enum lap_status file_create(const char *path, struct file_writer *w, struct lap_error *err)
{
	struct stat st;
	*w = (struct file_writer){.path = path};
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a pipe or a device: no rename */
		w->fd = open(path, O_WRONLY | O_CLOEXEC);
	else if (!text_printf(&w->temporary, "%s.XXXXXX", path)) {
		text_free(&w->temporary);
		return fail_memory(err, path, 1);
	} else
		w->fd = mkstemp(w->temporary.data);
	if (w->fd >= 0)
		return LAP_OK;
	int error = errno;
	text_free(&w->temporary);
	return fail(err, LAP_IO, "cannot write %s: %s", path, strerror(error));
}

void file_append(struct file_writer *w, const void *bytes, uint64_t n_bytes)
{
	if (!w->error && !write_all(w->fd, bytes, n_bytes))
		w->error = errno;
}

enum lap_status file_close(struct file_writer *w, bool keep, struct lap_error *err)
{
	const char *temporary = w->temporary.data;
	mode_t mask = umask(0);
	umask(mask);
	if (!w->error && temporary && fchmod(w->fd, 0666 & ~mask) != 0)
		w->error = errno;
	if (close(w->fd) != 0 && !w->error)
		w->error = errno;
	if (!w->error && keep && temporary && rename(temporary, w->path) != 0)
		w->error = errno;
	if ((w->error || !keep) && temporary)
		unlink(temporary);
	text_free(&w->temporary);
	return w->error ? fail(err, LAP_IO, "cannot write %s: %s", w->path, strerror(w->error))
			: LAP_OK;
}

enum lap_status file_write(
	const char *path, const void *bytes, uint64_t n_bytes, struct lap_error *err)
{
	struct file_writer w;
	enum lap_status status = file_create(path, &w, err);
	if (status)
		return status;
	file_append(&w, bytes, n_bytes);
	return file_close(&w, true, err);
}

static double read_clock(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_seconds(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

double clock_cpu_seconds(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

double clock_thread_seconds(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void log_line(const struct log *log, enum lap_log_level level, const char *format, ...)
{
	if (!log->fn)
		return;
	char line[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	log->fn(log->user, level, line);
}

unsigned utf8_decode(const char *s, size_t n_bytes, uint32_t *code)
{
	if (n_bytes == 0)
		return 0;
	const uint8_t *b = (const uint8_t *)s;
	if (b[0] < 0x80) {
		*code = b[0];
		return 1;
	}
	unsigned n = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
	if (b[0] < 0xC2 || b[0] > 0xF4 || n_bytes < n)
		return 0;
	uint32_t c = b[0] & (0xFFu >> (n + 1));
	for (unsigned i = 1; i < n; i++) {
		if ((b[i] & 0xC0) != 0x80)
			return 0;
		c = c << 6 | (b[i] & 0x3F);
	}
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	if (c < smallest[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
		return 0;
	*code = c;
	return n;
}

unsigned utf8_encode(uint32_t code, char out[4])
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	unsigned n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (unsigned i = n - 1; i > 0; i--, code >>= 6)
		out[i] = (char)(0x80 | (code & 0x3F));
	out[0] = (char)((0xF00u >> n & 0xF0) | code);
	return n;
}
