/* The last failure: see last_error.h. */
#include "last_error.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "state.h"

#define FILE_NAME "last-error"

enum { LEAST_VALUE = 3 }; /* bytes of an argument that is looked for */

/* "..." in place of each `value` in the text. */
static void leave_out(char *text, const char *value)
{
	const size_t n = strlen(value);
	if (n < LEAST_VALUE)
		return;
	for (char *at = text; (at = strstr(at, value)); at += 3) {
		memmove(at + 3, at + n, strlen(at + n) + 1);
		memcpy(at, "...", 3);
	}
}

/* What an option was given, and the name of a file without its folders. */
static void leave_out_argument(char *text, const char *argument)
{
	const char *value = argument;
	if (*argument == '-') {
		value = strchr(argument, '=');
		if (!value++)
			return;
	}
	const char *slash = strrchr(value, '/');
	leave_out(text, value);
	if (slash)
		leave_out(text, slash + 1);
}

/* Appends the words of the text, without those that have a '/' and those between quotes. */
static bool append_words(struct text *line, const char *text)
{
	bool quoted = false, fits = true;
	while (*text && fits) {
		const size_t n_spaces = strspn(text, " "), n = strcspn(text + n_spaces, " ");
		const char *word = text + n_spaces;
		bool hidden = quoted || memchr(word, '/', n);
		for (size_t i = 0; i < n; i++)
			if (word[i] == '"') {
				quoted = !quoted;
				hidden = true;
			}
		fits = hidden ? text_append(line, " ...", 4)
			      : text_append(line, " ", 1) && text_append(line, word, n);
		text = word + n;
	}
	return fits;
}

void last_error_keep(const char *command, const struct lap_error *err, int argc, char *const *argv)
{
	struct text path = {0}, line = {0};
	char date[32] = "", text[sizeof err->text];
	struct tm now;
	const time_t seconds = time(NULL);
	if (err->status == LAP_OK || err->status == LAP_USAGE)
		return;
	if (gmtime_r(&seconds, &now))
		strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &now);
	memcpy(text, err->text, sizeof text);
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], command) != 0)
			leave_out_argument(text, argv[i]);
	if (text_printf(&line, "%s, lapilli %s, %s, status %d:", date, lap_version(), command,
		    (int)err->status) &&
		append_words(&line, text) && text_append(&line, "\n", 1) &&
		state_path(FILE_NAME, &path)) {
		const mode_t mask = umask(S_IRWXG | S_IRWXO);
		file_write(path.data, line.data, line.n, NULL);
		umask(mask);
	}
	text_free(&path);
	text_free(&line);
}

void last_error_read(struct text *line)
{
	struct text path = {0};
	if (!state_path(FILE_NAME, &path) || file_read(path.data, line, NULL) ||
		!text_append(line, "", 0))
		text_free(line);
	text_free(&path);
}
