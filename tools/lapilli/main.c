/* The command `lapilli`: reads the command line, shows help, runs one command. All that a command
 * line may say is in options.def; what the library does is in include/lapilli.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "console.h"
#include "last_error.h"
#include "locate.h"

static int show_help(const struct options *o)
{
	char *page = NULL;
	size_t n_bytes;
	FILE *out = open_memstream(&page, &n_bytes);
	if (out)
		options_help(o, out);
	if (!out || fclose(out) != 0) {
		struct lap_error err;
		fail_memory(&err, "the help page", 1);
		return report(&err);
	}
	out_write(page, n_bytes);
	free(page);
	return LAP_OK;
}

/* `model` holds the path of a model that was looked up, as long as the command runs. */
static int run(struct options *o, struct text *model)
{
	static int (*const commands[N_COMMANDS])(const struct options *) = {
#define COMMAND(id, letter, arguments, help) command_##id,
#include "options.def"
	};
	if (o->help)
		return show_help(o);
	if (o->version)
		return command_version(o);
	if (o->list_devices)
		return command_devices(o);
	struct lap_error err;
	if (locate_model(o->model, o->hf_repo, o->hf_file, model, &err))
		return report(&err);
	if (o->verbose && model->data)
		say("the model is %s", model->data);
	o->model = model->data ? model->data : o->model;
	return commands[o->command](o);
}

static const char *command_name(const struct options *o)
{
	static const char *const names[] = {
#define COMMAND(id, letter, arguments, help) #id,
#include "options.def"
	};
	return names[o->command];
}

/* `lapilli -m FILE` and no text, by somebody at a terminal: they want to talk. Options that a conversation has
 * no use for ask for something else. */
static void want_chat(int argc, char **argv, struct options *o)
{
	if (o->command_named || !(o->model || o->hf_repo) || o->prompt || o->file || o->help ||
		!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return;
	char chat[] = "chat", **more = array_alloc((uint64_t)argc + 2, sizeof *more);
	struct options named;
	if (!more)
		return;
	more[0] = argv[0];
	more[1] = chat;
	memcpy(more + 2, argv + 1, (size_t)argc * sizeof *more); /* with the NULL at the end */
	if (!options_parse(argc + 1, more, &named, NULL)) {
		options_release(o);
		*o = named;
	}
	free(more);
}

static void warn(const struct options *o)
{
	for (const char *line = o->warnings.data; line && *line; line += strcspn(line, "\n") + 1)
		say("warning: %.*s", (int)strcspn(line, "\n"), line);
}

int main(int argc, char **argv)
{
	console_open();
	struct options o;
	struct text model = {0};
	struct lap_error err;
	int status = LAP_OK;
	if (options_parse(argc, argv, &o, &err))
		status = report(&err);
	else {
		want_chat(argc, argv, &o);
		warn(&o);
		status = run(&o, &model);
	}
	last_error_keep(command_name(&o), last_reported(), argc, argv);
	options_release(&o);
	text_free(&model);
	return console_close(status);
}
