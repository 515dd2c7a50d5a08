/* The ground floor: errors, checked arithmetic, text, files, UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"
#include "support.h"

/* ---- errors ------------------------------------------------------------------------------------ */

Test(error, fail_writes_and_returns)
{
	struct lap_error err = {0};
	cr_expect_eq(fail(&err, LAP_IO, "found %d, expected %s", 3, "four"), LAP_IO);
	cr_expect_eq(err.status, LAP_IO);
	cr_expect_str_eq(err.text, "found 3, expected four");
	cr_expect_eq(fail(NULL, LAP_USAGE, "nobody reads this"), LAP_USAGE);
	cr_expect_eq(fail_memory(&err, "the weights", 1 << 20), LAP_NO_MEMORY);
	cr_expect(strstr(err.text, "the weights needs 1048576 bytes"), "%s", err.text);
}

Test(error, long_text_is_cut)
{
	struct lap_error err;
	char *words = malloc(5000);
	cr_assert(words);
	memset(words, 'x', 4999);
	words[4999] = '\0';
	fail(&err, LAP_ERROR, "%s", words);
	cr_expect_eq(strlen(err.text), sizeof err.text - 1);
	free(words);
}

/* ---- checked arithmetic ------------------------------------------------------------------------ */

Test(size, add)
{
	uint64_t out = 7;
	cr_expect(size_add(2, 3, &out) && out == 5);
	cr_expect(size_add(UINT64_MAX, 0, &out) && out == UINT64_MAX);
	cr_expect(size_add(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
	out = 7;
	cr_expect_not(size_add(UINT64_MAX, 1, &out));
	cr_expect_not(size_add(1, UINT64_MAX, &out));
	cr_expect_not(size_add(UINT64_MAX, UINT64_MAX, &out));
	cr_expect_eq(out, 7, "left alone on failure");
}

Test(size, mul)
{
	uint64_t out = 7, big = UINT64_C(1) << 32;
	cr_expect(size_mul(6, 7, &out) && out == 42);
	cr_expect(size_mul(0, UINT64_MAX, &out) && out == 0);
	cr_expect(size_mul(UINT64_MAX, 0, &out) && out == 0);
	cr_expect(size_mul(UINT64_MAX, 1, &out) && out == UINT64_MAX);
	cr_expect(size_mul(big - 1, big, &out) && out == (big - 1) << 32);
	out = 7;
	cr_expect_not(size_mul(big, big, &out), "2^32 * 2^32 wraps to 0");
	cr_expect_not(size_mul(UINT64_MAX, 2, &out));
	cr_expect_not(size_mul(3, UINT64_MAX / 2, &out));
	cr_expect_eq(out, 7, "left alone on failure");
}

Test(size, align)
{
	uint64_t out = 7;
	cr_expect(size_align(0, 32, &out) && out == 0);
	cr_expect(size_align(1, 32, &out) && out == 32);
	cr_expect(size_align(32, 32, &out) && out == 32);
	cr_expect(size_align(33, 1, &out) && out == 33);
	cr_expect(size_align(UINT64_MAX - 31, 32, &out) && out == UINT64_MAX - 31);
	out = 7;
	cr_expect_not(size_align(UINT64_MAX - 30, 32, &out));
	cr_expect_eq(out, 7, "left alone on failure");
}

Test(size, array_alloc_refuses_what_does_not_fit)
{
	cr_expect_null(array_alloc(UINT64_C(1) << 32, UINT64_C(1) << 32));
	cr_expect_null(array_alloc(UINT64_MAX, 2));
	uint8_t *bytes = array_alloc(100, 3), any = 0;
	cr_assert(bytes);
	for (int i = 0; i < 300; i++)
		any |= bytes[i];
	cr_expect_eq(any, 0, "zeroed");
	free(bytes);
	void *none = array_alloc(0, 8);
	cr_expect(none, "nothing is no failure");
	free(none);
}

/* ---- text -------------------------------------------------------------------------------------- */

Test(text, grows_and_stays_terminated)
{
	struct text t = {0};
	for (int i = 0; i < 1000; i++)
		cr_assert(text_printf(&t, "%d,", i));
	cr_expect_eq(t.n, 10 * 2 + 90 * 3 + 900 * 4);
	cr_expect_eq(strlen(t.data), t.n);
	cr_expect_eq(strncmp(t.data, "0,1,2,", 6), 0);
	cr_expect_str_eq(t.data + t.n - 8, "998,999,");
	cr_assert(text_append(&t, "\0z", 2));
	cr_expect_eq(memcmp(t.data + t.n - 3, ",\0z", 4), 0, "bytes, terminated all the same");
	text_free(&t);
	cr_expect(!t.data && t.n == 0 && t.capacity == 0);
	cr_assert(text_append(&t, "", 0));
	cr_expect_str_eq(t.data, "");
	text_free(&t);
}

/* ---- files ------------------------------------------------------------------------------------- */

static void write_bytes(const char *path, const void *bytes, size_t n)
{
	FILE *file = fopen(path, "wb");
	cr_assert(file);
	cr_assert_eq(fwrite(bytes, 1, n, file), n);
	fclose(file);
}

Test(file, write_replaces_whole)
{
	struct lap_error err = {0};
	const char *path = scratch_path("written");
	size_t n;
	cr_assert_eq(file_write(path, "the first, longer one", 21, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(file_write(path, "a\0b", 3, &err), LAP_OK, "%s", err.text);
	char *back = read_text(path, &n);
	cr_expect(n == 3 && memcmp(back, "a\0b", 3) == 0);
	free(back);
	cr_assert_eq(file_write(path, NULL, 0, &err), LAP_OK, "%s", err.text);
	back = read_text(path, &n);
	cr_expect_eq(n, 0);
	free(back);
}

Test(file, write_says_why_it_failed)
{
	struct lap_error err = {0};
	const char *path = scratch_path("no-such-folder/file");
	cr_expect_eq(file_write(path, "x", 1, &err), LAP_IO);
	cr_expect(strstr(err.text, path) && strstr(err.text, "No such file"), "%s", err.text);
}

/* A reader that has the old file open keeps it: the new one takes its name, not its bytes. */
Test(file, write_leaves_the_old_file_to_its_readers)
{
	struct lap_error err = {0};
	const char *path = scratch_path("replaced");
	struct mapped_file old = {0};
	cr_assert_eq(file_write(path, "old", 3, &err), LAP_OK);
	cr_assert_eq(file_map(path, &old, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(file_write(path, "new", 3, &err), LAP_OK);
	cr_expect(old.n_bytes == 3 && memcmp(old.data, "old", 3) == 0);
	file_unmap(&old);
	file_unmap(&old);
}

Test(file, map_and_read)
{
	struct lap_error err = {0};
	const char *path = scratch_path("mapped");
	char bytes[10000];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 7);
	write_bytes(path, bytes, sizeof bytes);
	struct mapped_file file;
	cr_assert_eq(file_map(path, &file, &err), LAP_OK, "%s", err.text);
	cr_expect(file.n_bytes == sizeof bytes && memcmp(file.data, bytes, sizeof bytes) == 0);
	file_unmap(&file);
	struct text t = {0};
	cr_assert_eq(file_read(path, &t, &err), LAP_OK, "%s", err.text);
	cr_expect(t.n == sizeof bytes && memcmp(t.data, bytes, sizeof bytes) == 0);
	text_free(&t);
	write_bytes(path, "", 0);
	cr_assert_eq(file_map(path, &file, &err), LAP_OK, "an empty file is no failure");
	cr_expect(!file.data && file.n_bytes == 0);
	file_unmap(&file);
}

/* Pages of the mapping that are resident, in bytes. */
static uint64_t resident(const struct mapped_file *file)
{
	char line[512];
	unsigned long long from, kib, found = 0;
	bool inside = false;
	FILE *maps = fopen("/proc/self/smaps", "r");
	while (maps && fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%llx-%*x ", &from) == 1 && strchr(line, '-'))
			inside = from == (uintptr_t)file->data;
		if (inside && sscanf(line, "Rss: %llu kB", &kib) == 1)
			found = kib * 1024;
	}
	if (maps)
		fclose(maps);
	return found;
}

Test(file, forgotten_bytes_are_not_resident)
{
	enum { N = 1 << 20 };
	static uint8_t bytes[N];
	struct mapped_file file;
	struct lap_error err;
	const char *path = scratch_path("forgotten");
	memset(bytes, 7, sizeof bytes);
	cr_assert_eq(file_write(path, bytes, N, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(file_map(path, &file, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(memcmp(file.data, bytes, N), 0);
	if (resident(&file) != N)
		skip_test("this system does not say what is resident");
	file_forget(&file, bytes, N); /* not the file's */
	cr_expect_eq(bytes[N / 2], 7);
	cr_expect_eq(resident(&file), N);
	file_forget(&file, file.data + 1, N - 1); /* all pages but the first */
	cr_expect_eq(resident(&file), (uint64_t)sysconf(_SC_PAGESIZE));
	cr_expect_eq(memcmp(file.data, bytes, N), 0, "they can be read again");
	file_unmap(&file);
	file_forget(&file, bytes, N);
}

Test(memory, large_pages_hold_the_same_bytes)
{
	enum { N_BYTES = 8 << 20 };
	uint8_t *bytes = array_alloc(N_BYTES, 1);
	cr_assert_not_null(bytes);
	bytes[1] = 7;
	memory_in_large_pages(bytes + 1, N_BYTES - 1);
	memory_in_large_pages(bytes, 1);
	memory_in_large_pages(bytes, 0);
	bytes[N_BYTES - 1] = 9;
	cr_expect_eq(bytes[1], 7);
	cr_expect_eq(bytes[N_BYTES / 2], 0);
	cr_expect_eq(bytes[N_BYTES - 1], 9);
	free(bytes);
}

Test(file, what_cannot_be_mapped)
{
	struct lap_error err = {0};
	struct mapped_file file = {.n_bytes = 9};
	const char *path = scratch_path("missing");
	cr_expect_eq(file_map(path, &file, &err), LAP_IO);
	cr_expect(strstr(err.text, path) && strstr(err.text, "No such file"), "%s", err.text);
	cr_expect(!file.data && file.n_bytes == 0);
	const char *folder = scratch_path("folder");
	cr_assert_eq(mkdir(folder, 0700), 0);
	cr_expect_eq(file_map(folder, &file, &err), LAP_IO);
	cr_expect(strstr(err.text, "a directory, expected a file"), "%s", err.text);
	rmdir(folder);
	struct text t = {0};
	cr_expect_eq(file_read(path, &t, &err), LAP_IO);
	cr_expect(strstr(err.text, path), "%s", err.text);
	text_free(&t);
}

/* ---- UTF-8 ------------------------------------------------------------------------------------- */

Test(utf8, every_code_point_and_back)
{
	for (uint32_t code = 0; code <= 0x10FFFF; code++) {
		if (code == 0xD800)
			code = 0xE000; /* surrogates are no characters */
		char bytes[4];
		uint32_t back = 0;
		unsigned n = utf8_encode(code, bytes);
		unsigned expected = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
		cr_assert_eq(n, expected, "U+%04X is %u bytes long", code, n);
		cr_assert_eq(utf8_decode(bytes, n, &back), n, "U+%04X", code);
		cr_assert_eq(back, code, "U+%04X comes back as U+%04X", code, back);
		if (n > 1)
			cr_assert_eq(utf8_decode(bytes, n - 1, &back), 0, "U+%04X cut short", code);
	}
}

Test(utf8, known_bytes)
{
	static const struct {
		uint32_t code;
		const char *bytes;
	} cases[] = {{0x41, "A"}, {0xE9, "\xC3\xA9"}, {0x2581, "\xE2\x96\x81"},
		{0x1F600, "\xF0\x9F\x98\x80"}, {0x10FFFF, "\xF4\x8F\xBF\xBF"}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		char bytes[4];
		unsigned n = utf8_encode(cases[i].code, bytes);
		cr_expect(n == strlen(cases[i].bytes) && memcmp(bytes, cases[i].bytes, n) == 0,
			"U+%04X", cases[i].code);
	}
}

/* Each of the byte ranges that Unicode's table 3-7 leaves out, and characters cut short. */
Test(utf8, ill_formed)
{
	static const char *const cases[] = {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2",
		"\xC2\x41", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xE6\xAD", "\xE2\x80",
		"\xE2\x41\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
		"\xF0\x9F\x98", "\xFF", "\xFE"};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		uint32_t code = 7;
		cr_expect_eq(utf8_decode(cases[i], strlen(cases[i]), &code), 0, "case %zu", i);
		cr_expect_eq(code, 7, "left alone on failure");
	}
	uint32_t code;
	cr_expect_eq(utf8_decode("", 0, &code), 0);
	cr_expect_eq(utf8_decode("\0", 1, &code), 1, "NUL is a character");
}

/* ---- clocks and notices ------------------------------------------------------------------------ */

Test(clock, runs_forward)
{
	double start = clock_seconds(), cpu = clock_cpu_seconds(), now = start;
	for (int i = 0; i < 100000000 && now - start < 1e-3; i++)
		now = clock_seconds();
	cr_expect(now - start >= 1e-3, "a millisecond does not pass");
	cr_expect(clock_cpu_seconds() > cpu);
}

static void collect(void *user, enum lap_log_level level, const char *line)
{
	text_printf(user, "%d:%s", (int)level, line);
}

Test(log, goes_to_the_callback_or_nowhere)
{
	struct text lines = {0};
	log_line(&(struct log){0}, LAP_LOG_ERROR, "nobody %s", "listens");
	log_line(&(struct log){collect, &lines}, LAP_LOG_WARNING, "%d of %d", 1, 2);
	cr_expect_str_eq(lines.data, "1:1 of 2");
	text_free(&lines);
}
