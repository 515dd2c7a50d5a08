/* The command line, parsed: options.def as a struct, a parser and a help page.
 *
 * Owns names, kinds, ranges and wording. Refuses to know what an option does: it opens no file, asks
 * no library, and never prints but to the stream it is given. */
#ifndef LAPILLI_OPTIONS_H
#define LAPILLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base.h"

/* Tokens of a list option; `ids` is NULL when the option was not given. */
struct id_list {
	int32_t *ids;
	size_t n;
};

/* Every value that an option was given, in order; `texts` is NULL when there was none. */
struct text_list {
	const char **texts;
	size_t n;
};

/* The field that an option of each kind has in struct options. */
typedef bool option_FLAG;        /* takes no value */
typedef const char *option_TEXT; /* any argument; NULL when not given */
typedef int64_t option_INTEGER;
typedef double option_NUMBER;
typedef int option_CHOICE; /* index of the word */
typedef struct id_list option_IDS;
typedef struct text_list option_TEXTS; /* may be given several times: all count */

enum command {
#define COMMAND(id, letter, arguments, help) COMMAND_##id,
#include "options.def"
	N_COMMANDS
};

struct options {
	enum command command;
	bool command_named; /* false: no command was given, `command` is generate */
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help) \
	option_##kind field;
#include "options.def"
	/* Of generate `prompt` and `file` are the last of `prompts` and `files`. */
	struct text
		warnings; /* a line each: options of llama.cpp that were taken and mean nothing */
};

/* Parses argv[1] and on into *o, which points into argv and the environment. The first argument may name the
 * command; others without an option are its operands, where it has some. The last of a repeated option counts,
 * but for TEXTS, which gathers them all. Where the command line says nothing, LAPILLI_TOP_K stands for --top-k, and so on for each
 * name with two dashes of the options that the command takes, but for those that are tasks. LAP_USAGE, with
 * the argument and what was expected; LAP_NO_MEMORY. On failure o->command is already right, and
 * nothing needs releasing. */
enum lap_status options_parse(
	int argc, char *const *argv, struct options *o, struct lap_error *err);
void options_release(struct options *o);

/* A copy with lists of its own, for options_set; the texts are shared.  Release with options_release.
 * LAP_NO_MEMORY: nothing is left. */
enum lap_status options_copy(struct options *to, const struct options *from, struct lap_error *err);

/* How a value of JSON was written. */
enum value_form {
	VALUE_BOOL,
	VALUE_NUMBER,
	VALUE_STRING,
	VALUE_NUMBERS, /* a list */
	VALUE_STRINGS, /* a list */
	VALUE_NONE,    /* an empty list */
};

/* Sets an option that one request of several may have for itself (of the groups `length`, `sampling` and `form`; of the last each
 * takes the place of the others)
 * by a name of it without dashes, of more than one letter: "top_k", "stop".  values[n]: as texts, n > 1
 * for VALUE_STRINGS only, 0 for VALUE_NONE; numbers of VALUE_NUMBERS stand in one text with commas between them.  They must
 * live as long as *o.  LAP_USAGE names the key, and says what was expected. */
enum lap_status options_set(struct options *o, const char *name, enum value_form form,
	const char *const *values, size_t n, struct lap_error *err);

/* Sets the same options by the same names as somebody types them, "temp" and "0.5": a FLAG is on or off, and of a
 * list one value takes the place of all.  LAP_USAGE. */
enum lap_status options_assign(
	struct options *o, const char *name, const char *text, struct lap_error *err);

/* A line "  NAME VALUE" for each of these that is not as it comes. */
void options_show(const struct options *o, FILE *out);

/* The page of one command, or of the whole program when o->command_named is false. */
void options_help(const struct options *o, FILE *out);

/* A manual page, of the command of that name or (NULL) of lapilli itself, as man(7) reads it.  LAP_USAGE when
 * no command is called so; nothing is printed then. */
enum lap_status options_man(const char *page, FILE *out, struct lap_error *err);

#endif
