/* Answers on the screen: see chat_view.h. */
#include "chat_view.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "console.h"
#include "signals.h"

static const struct terminal_mode dim = {"\033[2m", "\033[0m"};

bool color_wanted(enum color color)
{
	if (color != COLOR_AUTO)
		return color == COLOR_ON;
	const char *terminal = getenv("TERM"), *none = getenv("NO_COLOR");
	return isatty(STDOUT_FILENO) == 1 && terminal && strcmp(terminal, "dumb") != 0 &&
		!(none && *none);
}

static void set_dim(struct chat_view *v, bool on)
{
	if (v->dim == on || !v->colored || !out_flush())
		return;
	terminal_enter(on ? &dim : NULL);
	v->dim = on;
}

static bool show(struct chat_view *v, const char *text, size_t n_bytes)
{
	if (n_bytes == 0)
		return true;
	v->last = text[n_bytes - 1];
	return out_write(text, n_bytes);
}

/* The line ends between a mark and the text behind it belong to neither. */
static void skip_line_ends(const char **text, size_t *n_bytes)
{
	while (*n_bytes && **text == '\n') {
		++*text;
		--*n_bytes;
	}
}

static bool take_part(void *user, enum part part, const char *text, size_t n_bytes)
{
	struct chat_view *v = user;
	v->marked |= part != PART_ANSWER;
	if (part == PART_MARK)
		return v->colored || !v->reasoning || show(v, text, n_bytes);
	struct text *kept = part == PART_ANSWER ? &v->answer : &v->thoughts;
	const char *own = text;
	size_t n_own = n_bytes;
	if (kept->n == 0 && v->marked)
		skip_line_ends(&own, &n_own);
	if (!text_append(kept, own, n_own)) {
		v->out_of_memory = true;
		return false;
	}
	if (part == PART_THOUGHT && !v->reasoning)
		return true;
	const bool behind_hidden = part == PART_ANSWER && !v->reasoning;
	set_dim(v, part == PART_THOUGHT);
	return behind_hidden ? show(v, own, n_own) : show(v, text, n_bytes);
}

void chat_view_begin(struct chat_view *v, const char *prompt, size_t n_bytes)
{
	text_free(&v->answer);
	text_free(&v->thoughts);
	v->last = 0;
	v->out_of_memory = v->marked = false;
	reasoning_begin(&v->parts, prompt, n_bytes);
	v->progress = progress_start("prompt", "tok");
}

bool chat_view_prompt(void *user, size_t n_done, size_t n)
{
	struct chat_view *v = user;
	if (n_done < n) /* else the text comes */
		progress_show(&v->progress, (double)n_done, (double)n);
	return true;
}

bool chat_view_take(void *user, const struct lap_token *token)
{
	struct chat_view *v = user;
	const char *text = token->text;
	size_t n_bytes = token->n_bytes;
	progress_clear(&v->progress);
	if (token->id < 0 && interrupted()) /* half a character that ^C cut off */
		return false;
	if (n_bytes == 0 && token->id >= 0 && !lap_token_is_end(v->model, token->id)) {
		/* a control token, or a part of a character, which marks have none of */
		text = lap_token_text(v->model, token->id, &n_bytes);
		if (!reasoning_marks(text, n_bytes))
			n_bytes = 0;
	}
	return reasoning_take(&v->parts, text, n_bytes, take_part, v) && out_flush() &&
		!interrupted();
}

static void cut_line_ends(struct text *t)
{
	while (t->n && t->data[t->n - 1] == '\n')
		t->data[--t->n] = '\0';
}

bool chat_view_end(struct chat_view *v, bool answered)
{
	progress_clear(&v->progress);
	reasoning_end(&v->parts, take_part, v);
	set_dim(v, false);
	if (v->last ? v->last != '\n' : answered)
		out_write("\n", 1);
	out_flush();
	cut_line_ends(&v->thoughts);
	return !v->out_of_memory;
}

void chat_view_release(struct chat_view *v)
{
	text_free(&v->answer);
	text_free(&v->thoughts);
}
