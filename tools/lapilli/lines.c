/* Lines and messages: see lines.h. */
#include "lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "editing.h"
#include "signals.h"

#define QUOTES "\"\"\""

void lines_open(struct lines *l, bool editable)
{
	*l = (struct lines){.prompts = isatty(STDIN_FILENO) == 1};
	if (l->prompts && editable)
		l->editing = editing_open();
}

void lines_close(struct lines *l)
{
	editing_close(l->editing);
	l->editing = NULL;
}

/* More bytes in the buffer, which is empty; LINE_OVER: there are none. */
static enum line_end fill(struct lines *l)
{
	for (;;) {
		if (input_wait(STDIN_FILENO) == INPUT_STOPPED)
			return LINE_STOPPED;
		ssize_t n = read(STDIN_FILENO, l->buffer, sizeof l->buffer);
		if (n < 0 && errno == EINTR)
			continue;
		l->at = 0;
		l->n = n > 0 ? (size_t)n : 0;
		return n > 0 ? LINE_READY : LINE_OVER;
	}
}

/* A last line may come without its end. */
static enum line_end plain_line(struct lines *l, const char *prompt, struct text *line)
{
	bool any = false;
	if (l->prompts) {
		fputs(prompt, stderr);
		fflush(stderr);
	}
	for (;;) {
		if (l->at == l->n) {
			enum line_end end = fill(l);
			if (end == LINE_STOPPED && l->prompts)
				fputc('\n', stderr);
			if (end == LINE_OVER && any)
				return LINE_READY;
			if (end)
				return end;
		}
		const char *from = l->buffer + l->at;
		const char *newline = memchr(from, '\n', l->n - l->at);
		const size_t n = newline ? (size_t)(newline - from) : l->n - l->at;
		if (!text_append(line, from, n))
			return LINE_FAILED;
		any = true;
		l->at += n + (newline != NULL);
		if (newline)
			return LINE_READY;
	}
}

enum line_end lines_next(struct lines *l, const char *prompt, struct text *line)
{
	return l->editing ? editing_line(l->editing, prompt, line) : plain_line(l, prompt, line);
}

static bool ends_with(const struct text *t, size_t from, const char *ending)
{
	const size_t n = strlen(ending);
	return t->n >= from + n && memcmp(t->data + t->n - n, ending, n) == 0;
}

static void cut(struct text *t, size_t n)
{
	t->n = n;
	if (t->data)
		t->data[n] = '\0';
}

/* The lines of a message behind its first, which stands in *message. */
static enum line_end more_lines(struct lines *l, struct text *message)
{
	const size_t n_quotes = strlen(QUOTES);
	const bool quoted = message->n >= n_quotes && !memcmp(message->data, QUOTES, n_quotes);
	enum line_end end = LINE_READY;
	if (!quoted) {
		while (!end && ends_with(message, 0, "\\")) {
			message->data[message->n - 1] = '\n';
			end = lines_next(l, ". ", message);
		}
		return end == LINE_OVER ? LINE_READY : end;
	}
	memmove(message->data, message->data + n_quotes, message->n - n_quotes + 1);
	message->n -= n_quotes;
	while (!end && !ends_with(message, 0, QUOTES)) {
		if (!text_append(message, "\n", 1))
			return LINE_FAILED;
		end = lines_next(l, ". ", message);
	}
	if (end == LINE_READY)
		cut(message, message->n - n_quotes);
	/* The line ends beside the quotes are theirs. */
	if (message->n && message->data[message->n - 1] == '\n')
		cut(message, message->n - 1);
	if (message->n && message->data[0] == '\n') {
		memmove(message->data, message->data + 1, message->n);
		message->n--;
	}
	return end == LINE_OVER ? LINE_READY : end;
}

enum line_end lines_message(struct lines *l, struct text *message)
{
	cut(message, 0);
	enum line_end end = lines_next(l, "> ", message);
	if (!end && !text_append(message, "", 0))
		end = LINE_FAILED;
	if (!end)
		end = more_lines(l, message);
	if (!end && l->editing)
		editing_keep(l->editing, message->data);
	return end;
}
