/* Standard streams and JSON lines: see console.h. */
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_error; /* errno of the first write that failed */

void console_open(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
	signal(SIGPIPE, SIG_IGN);
}

static bool out_result(bool ok)
{
	if (!ok && !out_error)
		out_error = errno ? errno : EIO;
	return !out_error;
}

bool out_write(const void *bytes, size_t n_bytes)
{
	return !out_error && out_result(fwrite(bytes, 1, n_bytes, stdout) == n_bytes);
}

bool out_printf(const char *format, ...)
{
	if (out_error)
		return false;
	va_list args;
	va_start(args, format);
	int n = vprintf(format, args);
	va_end(args);
	return out_result(n >= 0);
}

bool out_flush(void)
{
	return !out_error && out_result(fflush(stdout) == 0);
}

int console_close(int status)
{
	out_flush();
	if (!out_error || out_error == EPIPE)
		return status;
	struct lap_error err;
	fail(&err, LAP_IO, "cannot write to standard output: %s", strerror(out_error));
	report(&err);
	return status ? status : LAP_IO;
}

int out_json(json_t *value)
{
	char *line = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	json_decref(value);
	if (!line) {
		struct lap_error err;
		fail_memory(&err, "the JSON output", 1);
		return report(&err);
	}
	if (out_write(line, strlen(line)) && out_write("\n", 1))
		out_flush();
	free(line);
	return LAP_OK;
}

json_t *json_bytes(const char *bytes, size_t n_bytes)
{
	struct text clean = {0};
	bool ok = text_append(&clean, "", 0);
	for (size_t i = 0; ok && i < n_bytes;) {
		uint32_t code;
		unsigned n = utf8_decode(bytes + i, n_bytes - i, &code);
		ok = n ? text_append(&clean, bytes + i, n) : text_append(&clean, "\xEF\xBF\xBD", 3);
		i += n ? n : 1;
	}
	json_t *string = ok ? json_stringn(clean.data, clean.n) : NULL;
	text_free(&clean);
	return string;
}

json_t *json_ids(const int32_t *ids, size_t n)
{
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

double per_second(double n, double seconds)
{
	return seconds > 0 ? n / seconds : 0;
}

void say(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static struct lap_error reported;

const struct lap_error *last_reported(void)
{
	return &reported;
}

int report(const struct lap_error *err)
{
	reported = *err;
	say("lapilli: %s", err->text);
	return (int)err->status;
}

const char *bytes_text(uint64_t n_bytes)
{
	static char texts[4][32];
	static unsigned turn;
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	char *text = texts[turn++ % 4];
	double n = (double)n_bytes;
	size_t unit = 0;
	for (; n >= 1023.5; n /= 1024)
		unit++;
	snprintf(text, sizeof texts[0], unit && n < 99.95 ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return text;
}
