/* `lapilli completion`: what a shell needs to complete command lines, made from options.def. Knows the
 * shells' ways of asking, and of an option only what its row says. */
#include <string.h>

#include "commands.h"
#include "console.h"

enum kind { FLAG, TEXT, INTEGER, NUMBER, CHOICE, IDS, TEXTS };

enum {
#define COMMAND(id, letter, arguments, help) letter = 1u << COMMAND_##id,
#include "options.def"
};

static const struct {
	const char *name, *help;
} commands[N_COMMANDS] = {
#define COMMAND(id, letter, arguments, help) {#id, help},
#include "options.def"
};

static const struct row {
	size_t offset;
	enum kind kind;
	const char *names, *value;
	unsigned commands; /* one bit each */
	const char *help;
} rows[] = {
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help) \
	{offsetof(struct options, field), kind, names, value, commands, help},
#include "options.def"
};

static const struct operand {
	unsigned command; /* its bit */
	size_t offset;
} operands[] = {
#define OPERAND(letter, field) {letter, offsetof(struct options, field)},
#include "options.def"
};

static bool is_file(const struct row *row)
{
	return strcmp(row->value, "FILE") == 0;
}

static bool is_operand(const struct row *row, unsigned command)
{
	for (size_t i = 0; i < ARRAY_COUNT(operands); i++)
		if (operands[i].command == command && operands[i].offset == row->offset)
			return true;
	return false;
}

/* The words of a list, with blanks or '|' between them, behind one another. */
static void print_words(const char *list, const char *between)
{
	for (const char *word = list + strspn(list, " |"); *word;) {
		size_t n = strcspn(word, " |");
		out_printf("%s%.*s", word > list + strspn(list, " |") ? between : "", (int)n, word);
		word += n + strspn(word + n, " |");
	}
}

static void print_commands(void)
{
	for (unsigned i = 0; i < N_COMMANDS; i++)
		out_printf(" %s", commands[i].name);
}

/* ---- bash and zsh ---------------------------------------------------------------------------- */

/* What may follow: a value of the option before, else options and operands. */
static void print_case(unsigned command)
{
	out_printf("\t\tcase $previous in\n");
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		if (!(rows[i].commands & command) || rows[i].kind == FLAG)
			continue;
		out_printf("\t\t");
		print_words(rows[i].names, "|");
		out_printf(") ");
		if (is_file(&rows[i]))
			out_printf("files=yes ");
		if (rows[i].kind == CHOICE) {
			out_printf("words='");
			print_words(rows[i].value, " ");
			out_printf("' ");
		}
		out_printf(";;\n");
	}
	out_printf("\t\t*) words='");
	bool files = false;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		if (!(rows[i].commands & command))
			continue;
		print_words(rows[i].names, " ");
		out_printf(" ");
		if (!is_operand(&rows[i], command))
			continue;
		files |= is_file(&rows[i]);
		if (rows[i].kind == CHOICE) {
			print_words(rows[i].value, " ");
			out_printf(" ");
		}
	}
	out_printf("'%s ;;\n\t\tesac ;;\n", files ? " files=yes" : "");
}

/* zsh runs it through bashcompinit, so nothing in it may be bash's alone. */
static void print_bash(void)
{
	out_printf("_lapilli_bash()\n{\n"
		   "\tlocal word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
		   "\tlocal words= files= IFS=$'\\n'\n"
		   "\tif [[ $word == '=' ]]; then\n\t\tword=\n"
		   "\telif [[ $previous == '=' ]]; then\n"
		   "\t\tprevious=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n"
		   "\tcase ${COMP_WORDS[1]} in\n");
	for (unsigned i = N_COMMANDS;
		i-- > 0;) { /* generate last: it is what is run without a name */
		out_printf("\t%s)\n", i == COMMAND_generate ? "*" : commands[i].name);
		print_case(1u << i);
	}
	out_printf("\tesac\n\tif [[ $COMP_CWORD == 1 ]]; then\n\t\twords=\"$words");
	print_commands();
	out_printf("\"\n\tfi\n"
		   "\tCOMPREPLY=($(IFS=' '; compgen -W \"$words\" -- \"$word\"))\n"
		   "\tif [[ -n $files ]]; then\n"
		   "\t\tCOMPREPLY+=($(compgen -f -- \"$word\"))\n\tfi\n}\n"
		   "complete -o filenames -F _lapilli_bash lapilli\n");
}

/* For a startup file, and as a function that completion loads when it is first wanted, and that then is called
 * _lapilli. */
static void print_zsh(void)
{
	out_printf("#compdef lapilli\n"
		   "(( $+functions[compdef] )) || { autoload -U +X compinit; compinit; }\n"
		   "autoload -U +X bashcompinit\nbashcompinit\n");
	print_bash();
	out_printf("[[ $funcstack[1] != _lapilli ]] || _bash_complete -o filenames -F "
		   "_lapilli_bash\n");
}

/* ---- fish ------------------------------------------------------------------------------------ */

/* In single quotes, in which fish reads \' and \\. */
static void print_quoted(const char *text)
{
	out_printf(" '");
	for (; *text; text++)
		out_printf("%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
	out_printf("'");
}

static void print_fish_condition(unsigned bits)
{
	out_printf("complete -c lapilli -n '__lapilli_runs");
	for (unsigned i = 0; i < N_COMMANDS; i++)
		if (bits & 1u << i)
			out_printf(" %s", commands[i].name);
	out_printf("'");
}

/* What a value is completed with; a FLAG has none. */
static void print_fish_value(const struct row *row)
{
	if (row->kind == CHOICE) {
		out_printf(" -x -a '");
		print_words(row->value, " ");
		out_printf("'");
	} else if (row->kind != FLAG) {
		out_printf(is_file(row) ? " -r -F" : " -x");
	}
}

static void print_fish_option(const struct row *row)
{
	print_fish_condition(row->commands);
	for (const char *name = row->names; *name;) {
		name += strspn(name, " |");
		size_t dashes = strspn(name, "-"), n = strcspn(name, " ");
		out_printf(" -%c %.*s",
			dashes == 2      ? 'l'
				: n == 2 ? 's'
					 : 'o',
			(int)(n - dashes), name + dashes);
		name += n;
	}
	print_fish_value(row);
	out_printf(" -d");
	print_quoted(row->help);
	out_printf("\n");
}

static void print_fish(void)
{
	out_printf("function __lapilli_runs\n\tset -l words (commandline -opc)\n"
		   "\tset -l command generate\n\tcontains -- \"$words[2]\"");
	print_commands();
	out_printf("; and set command $words[2]\n\tcontains -- $command $argv\nend\n"
		   "complete -c lapilli -f\n");
	for (unsigned i = 0; i < N_COMMANDS; i++) {
		out_printf(
			"complete -c lapilli -n 'test (count (commandline -opc)) -eq 1' -a %s -d",
			commands[i].name);
		print_quoted(commands[i].help);
		out_printf("\n");
	}
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
		print_fish_option(&rows[i]);
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
		for (unsigned c = 0; c < N_COMMANDS; c++)
			if (is_operand(&rows[i], 1u << c) &&
				(is_file(&rows[i]) || rows[i].kind == CHOICE)) {
				print_fish_condition(1u << c);
				if (is_file(&rows[i]))
					out_printf(" -F\n");
				else {
					out_printf(" -a '");
					print_words(rows[i].value, " ");
					out_printf("'\n");
				}
			}
}

int command_completion(const struct options *o)
{
	static void (*const shells[])(void) = {print_bash, print_zsh, print_fish};
	shells[o->shell]();
	return LAP_OK;
}
