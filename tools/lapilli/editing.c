/* Editing of lines: see editing.h. */
#include "editing.h"

#ifdef LAPILLI_LIBEDIT

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "console.h"
#include "signals.h"
#include "state.h"

#define MOST_OLD 1000 /* messages that are remembered */

/* Keys that no terminal sends while ^C and ^\ are signals: they stand for what happened. */
#define KEY_STOPPED 3
#define KEY_RESUMED 28
#define PASTE_END   "\033[201~"

static const struct terminal_mode bracketed_paste = {"\033[?2004h", "\033[?2004l"};

struct editing {
	EditLine *el;
	History *history;
	locale_t utf8;
	struct text file; /* of old messages; empty: there is no place for one */
	const char *prompt;
	bool stopped;
	char keys[256]; /* read, and not yet taken */
	size_t at, n;
};

static struct editing *own(EditLine *el)
{
	void *data = NULL;
	el_get(el, EL_CLIENTDATA, &data);
	return data;
}

static char *show_prompt(EditLine *el)
{
	return (char *)(uintptr_t)own(el)->prompt;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Whether these bytes, which are no character, may become one. */
static bool is_unfinished(const char *s, size_t n)
{
	const unsigned char first = (unsigned char)s[0];
	const size_t whole = n == 0 ? 1
		: first >= 0xF0     ? 4
		: first >= 0xE0     ? 3
		: first >= 0xC2     ? 2
				    : 0;
	for (size_t i = 1; i < n; i++)
		if (((unsigned char)s[i] & 0xC0) != 0x80)
			return false;
	return n < whole;
}

/* 1, or 0 at the end, with a character of UTF-8 or what happened instead. */
static int read_key(EditLine *el, wchar_t *key)
{
	struct editing *e = own(el);
	for (;;) {
		uint32_t code;
		unsigned n = utf8_decode(e->keys + e->at, e->n - e->at, &code);
		if (!n && !is_unfinished(e->keys + e->at, e->n - e->at)) {
			e->at++;
			continue;
		}
		if (n) {
			e->at += n;
			*key = (wchar_t)code;
			return 1;
		}
		memmove(e->keys, e->keys + e->at, e->n - e->at);
		e->n -= e->at;
		e->at = 0;
		switch (input_wait(STDIN_FILENO)) {
		case INPUT_STOPPED:
			*key = KEY_STOPPED;
			return 1;
		case INPUT_RESUMED:
			*key = KEY_RESUMED;
			return 1;
		case INPUT_RESIZED:
			el_resize(el);
			continue;
		case INPUT_READY:
			break;
		}
		ssize_t n_read = read(STDIN_FILENO, e->keys + e->n, sizeof e->keys - e->n);
		if (n_read > 0)
			e->n += (size_t)n_read;
		else if (n_read == 0 || errno != EINTR)
			return 0;
	}
}

static unsigned char key_stopped(EditLine *el, int key)
{
	(void)key;
	own(el)->stopped = true;
	return CC_NEWLINE;
}

static unsigned char key_resumed(EditLine *el, int key)
{
	(void)el;
	(void)key;
	return CC_REDISPLAY;
}

/* What was pasted, up to its end, with line ends as they are in texts, and none behind it. */
static unsigned char key_paste(EditLine *el, int key)
{
	(void)key;
	static const size_t n_end = sizeof PASTE_END - 1;
	wchar_t *pasted = NULL, character, last = 0;
	size_t n = 0, capacity = 0, matched = 0;
	while (matched < n_end && el_wgetc(el, &character) == 1 && character != KEY_STOPPED) {
		if (n + 2 > capacity) {
			capacity = capacity ? 2 * capacity : 256;
			wchar_t *more = realloc(pasted, capacity * sizeof *more);
			if (!more)
				break;
			pasted = more;
		}
		matched = character == (wchar_t)PASTE_END[matched] ? matched + 1
			: character == (wchar_t)PASTE_END[0]       ? 1
								   : 0;
		const bool second = character == L'\n' && last == L'\r';
		last = character;
		if (character == L'\r')
			character = L'\n';
		if (!second && (character >= L' ' || character == L'\n' || character == L'\t'))
			pasted[n++] = character;
	}
	if (matched == n_end) /* of its end all but the first, which is no character, was kept */
		n -= n_end - 1;
	while (n && pasted[n - 1] == L'\n')
		n--;
	if (n) {
		pasted[n] = L'\0';
		el_winsertstr(el, pasted);
	}
	free(pasted);
	return CC_REFRESH;
}

/* ---- old messages ---------------------------------------------------------------------------- */

/* The file has a JSON text on each line.  What went wrong with it is said once. */
static void give_up(struct editing *e, const char *why)
{
	say("notice: earlier messages are not kept: %s", why);
	text_free(&e->file);
}

/* Makes the lines that these are of the file the last MOST_OLD. */
static void shorten(struct editing *e, const struct text *old, size_t n_lines)
{
	struct lap_error err;
	const char *from = old->data;
	for (size_t i = MOST_OLD; i < n_lines; i++)
		from = strchr(from, '\n') + 1;
	const mode_t mask = umask(S_IRWXG | S_IRWXO);
	if (file_write(e->file.data, from, old->n - (size_t)(from - old->data), &err))
		give_up(e, err.text);
	umask(mask);
}

static void load(struct editing *e)
{
	struct text old = {0};
	struct lap_error err;
	HistEvent event;
	size_t n_lines = 0;
	if (!state_path("history", &e->file)) {
		text_free(&e->file);
		return;
	}
	if (access(e->file.data, F_OK) != 0)
		return;
	if (file_read(e->file.data, &old, &err))
		give_up(e, err.text);
	for (const char *line = old.data, *end; line && (end = strchr(line, '\n'));
		line = end + 1) {
		json_t *message = json_loadb(line, (size_t)(end - line), JSON_DECODE_ANY, NULL);
		if (json_is_string(message))
			history(e->history, &event, H_ENTER, json_string_value(message));
		json_decref(message);
		n_lines++;
	}
	if (n_lines > 2 * MOST_OLD)
		shorten(e, &old, n_lines);
	text_free(&old);
}

void editing_keep(struct editing *e, const char *message)
{
	HistEvent event;
	if (!message[strspn(message, " \t\n")])
		return;
	if (history(e->history, &event, H_FIRST) >= 0 && strcmp(event.str, message) == 0)
		return;
	history(e->history, &event, H_ENTER, message);
	json_t *text = e->file.n ? json_string(message) : NULL;
	char *line = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
	json_decref(text);
	if (!line)
		return;
	int fd = open(e->file.data, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0 || dprintf(fd, "%s\n", line) < 0)
		give_up(e, strerror(errno));
	if (fd >= 0)
		close(fd);
	free(line);
}

/* ---- lines ----------------------------------------------------------------------------------- */

struct editing *editing_open(void)
{
	const char *terminal = getenv("TERM");
	HistEvent event;
	if (!terminal || !*terminal || strcmp(terminal, "dumb") == 0)
		return NULL;
	struct editing *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	e->prompt = "";
	e->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	e->history = history_init();
	e->el = e->utf8 && e->history ? el_init("lapilli", stdin, stdout, stderr) : NULL;
	if (!e->el) {
		editing_close(e);
		return NULL;
	}
	history(e->history, &event, H_SETSIZE, MOST_OLD);
	history(e->history, &event, H_SETUNIQUE, 1);
	load(e);
	el_set(e->el, EL_CLIENTDATA, e);
	el_set(e->el, EL_PROMPT, show_prompt);
	el_set(e->el, EL_EDITOR, "emacs");
	el_set(e->el, EL_HIST, history, e->history);
	el_set(e->el, EL_GETCFN, read_key);
	el_source(e->el, NULL);
	/* el_set would leave copies of these names behind. */
	el_wset(e->el, EL_ADDFN, L"lapilli-stopped", L"forget the line", key_stopped);
	el_wset(e->el, EL_ADDFN, L"lapilli-resumed", L"show the line again", key_resumed);
	el_wset(e->el, EL_ADDFN, L"lapilli-paste", L"insert what is pasted", key_paste);
	el_set(e->el, EL_BIND, "^C", "lapilli-stopped", NULL);
	el_set(e->el, EL_BIND, "^\\", "lapilli-resumed", NULL);
	el_set(e->el, EL_BIND, "\\e[200~", "lapilli-paste", NULL);
	el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
	return e;
}

void editing_close(struct editing *e)
{
	if (!e)
		return;
	if (e->el)
		el_end(e->el);
	if (e->history)
		history_end(e->history);
	if (e->utf8)
		freelocale(e->utf8);
	text_free(&e->file);
	free(e);
}

/* libedit turns keys to bytes by the locale of the thread, which is UTF-8 as long as it works. */
enum line_end editing_line(struct editing *e, const char *prompt, struct text *line)
{
	int n = 0;
	e->prompt = prompt;
	e->stopped = false;
	locale_t before = uselocale(e->utf8);
	terminal_enter(&bracketed_paste);
	el_set(e->el, EL_PREP_TERM,
		1); /* before the prompt: what is typed at once behind it are keys */
	const char *typed = el_gets(e->el, &n);
	terminal_enter(NULL);
	uselocale(before);
	if (e->stopped || interrupted())
		return LINE_STOPPED;
	if (!typed || n <= 0) {
		fputc('\n', stderr);
		return LINE_OVER;
	}
	if (typed[n - 1] == '\n')
		n--;
	return text_append(line, typed, (size_t)n) ? LINE_READY : LINE_FAILED;
}

#else

struct editing *editing_open(void)
{
	return NULL;
}

void editing_close(struct editing *e)
{
	(void)e;
}

enum line_end editing_line(struct editing *e, const char *prompt, struct text *line)
{
	(void)e;
	(void)prompt;
	(void)line;
	return LINE_OVER;
}

void editing_keep(struct editing *e, const char *message)
{
	(void)e;
	(void)message;
}

#endif
