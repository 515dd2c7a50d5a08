/* Parser and help page made from options.def: see options.h. */
#include "options.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"

extern char **environ;

enum kind { FLAG, TEXT, INTEGER, NUMBER, CHOICE, IDS, TEXTS };

enum {
#define COMMAND(id, letter, arguments, help) letter = 1u << COMMAND_##id,
#include "options.def"
};

enum group {
#define GROUP(id, heading) GROUP_##id,
#include "options.def"
	N_GROUPS
};

static const char *const headings[N_GROUPS] = {
#define GROUP(id, heading) heading,
#include "options.def"
};

static const struct {
	const char *name, *arguments, *help;
} commands[N_COMMANDS] = {
#define COMMAND(id, letter, arguments, help) {#id, arguments, help},
#include "options.def"
};

struct option {
	enum kind kind;
	size_t offset; /* of its field in struct options */
	const char *names, *value;
	double from, to;
	unsigned commands; /* one bit each */
	enum group group;
	const char *help;
};

static const struct option table[] = {
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help)              \
	{kind, offsetof(struct options, field), names, value, from, to, commands, GROUP_##group, \
		help},
#include "options.def"
};

static const struct operand {
	unsigned command; /* its bit */
	size_t offset;    /* of the field in struct options */
} operands[] = {
#define OPERAND(letter, field) {letter, offsetof(struct options, field)},
#include "options.def"
};

static const struct options defaults = {
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help) \
	.field = initial,
#include "options.def"
};

/* ---- names ----------------------------------------------------------------------------------- */

#define NAME_BYTES 64 /* longer than any name of the table; longer arguments are no names */

/* One name of a row: with dashes as written, without them, and whether it switches the flag off. */
struct name {
	const char *shown;
	size_t n_shown;
	char bare[NAME_BYTES];
	bool off;
};

/* Steps through the names of a row; *cursor starts at its `names`. False at the end. */
static bool next_name(const char **cursor, struct name *name)
{
	name->off = name->off || **cursor == '|';
	*cursor += strspn(*cursor, " |");
	name->shown = *cursor;
	name->n_shown = strcspn(*cursor, " ");
	*cursor += name->n_shown;
	const char *more = *cursor + strspn(*cursor, " ");
	const size_t dashes = strspn(name->shown, "-"), n_bare = name->n_shown - dashes;
	assert(n_bare < sizeof name->bare);
	memcpy(name->bare, name->shown + dashes, n_bare);
	name->bare[n_bare] = '\0';
	if (*more == '|')
		*cursor = more;
	return name->n_shown > 0;
}

/* The name that an argument spells, bare and with '_' as '-': "" when it can be none. */
static void bare_name(const char *argument, char bare[NAME_BYTES])
{
	size_t dashes = strspn(argument, "-");
	size_t n = strcspn(argument + dashes, "=");
	bare[0] = '\0';
	if (dashes > 2 || n == 0 || n >= NAME_BYTES || (dashes == 2 && n == 1))
		return;
	for (size_t i = 0; i < n; i++)
		bare[i] = argument[dashes + i] == '_' ? '-' : argument[dashes + i];
	bare[n] = '\0';
}

/* The row with that name that `command` takes, else the first with it. */
static const struct option *find_option(const char *bare, enum command command, bool *off)
{
	const struct option *found = NULL;
	for (size_t i = 0; *bare && i < ARRAY_COUNT(table); i++) {
		const char *cursor = table[i].names;
		for (struct name name = {0}; next_name(&cursor, &name);)
			if (strcmp(name.bare, bare) == 0 &&
				(!found || table[i].commands & 1u << command)) {
				*off = name.off;
				found = &table[i];
			}
		if (found && found->commands & 1u << command)
			break;
	}
	return found;
}

static unsigned smaller(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap neighbours) from one word to the other; both are shorter than
 * NAME_BYTES. A word that the other begins with is one edit away. */
static unsigned distance(const char *a, const char *b)
{
	size_t n_a = strlen(a), n_b = strlen(b);
	if (n_a >= 3 && n_a < n_b && strncmp(a, b, n_a) == 0)
		return 1;
	unsigned rows[3][NAME_BYTES]; /* of the edit matrix: row i is rows[i % 3] */
	for (size_t j = 0; j <= n_b; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n_a; i++) {
		unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3],
			 *two_above = rows[(i + 1) % 3];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= n_b; j++) {
			bool swapped =
				i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
			row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
			row[j] = smaller(row[j], smaller(above[j], row[j - 1]) + 1);
			if (swapped)
				row[j] = smaller(row[j], two_above[j - 2] + 1);
		}
	}
	return rows[n_a % 3][n_b];
}

/* What a request of its own may ask for. */
static bool may_set(const struct option *option)
{
	return option->group == GROUP_length || option->group == GROUP_sampling ||
		option->group == GROUP_form;
}

/* The name nearest to what was typed, of the rows that `command` takes; with `of_request` of those
 * that a request may set. */
static struct name nearest_name(const char *typed, enum command command, bool of_request)
{
	struct name nearest = {0};
	unsigned best = UINT_MAX;
	for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
		if (!(table[i].commands & 1u << command) || (of_request && !may_set(&table[i])))
			continue;
		const char *cursor = table[i].names;
		for (struct name name = {0}; next_name(&cursor, &name);) {
			unsigned edits = distance(typed, name.bare);
			if (edits < best && !(of_request && !name.bare[1])) {
				best = edits;
				nearest = name;
			}
		}
	}
	return nearest;
}

static enum lap_status unknown_option(
	const char *argument, enum command command, struct lap_error *err)
{
	size_t dashes = strspn(argument, "-");
	char typed[NAME_BYTES];
	snprintf(typed, sizeof typed, "%.*s",
		(int)smaller(NAME_BYTES - 1, (unsigned)strcspn(argument + dashes, "=")),
		argument + dashes);
	for (char *c = typed; *c; c++)
		*c = *c == '_' ? '-' : *c;
	const struct name nearest = nearest_name(typed, command, false);
	return fail(err, LAP_USAGE,
		"unknown option %s; the nearest is %.*s (all: lapilli %s --help)", argument,
		(int)nearest.n_shown, nearest.shown, commands[command].name);
}

static enum lap_status misplaced_option(
	const char *argument, const char *bare, enum command command, struct lap_error *err)
{
	struct text takers = {0};
	bool off;
	for (unsigned i = 0; i < N_COMMANDS; i++)
		if (find_option(bare, (enum command)i, &off)->commands & 1u << i)
			text_printf(&takers, "%s%s", takers.n ? ", " : "", commands[i].name);
	enum lap_status status = fail(err, LAP_USAGE, "%s is no option of %s, but of %s", argument,
		commands[command].name, takers.data ? takers.data : "another command");
	text_free(&takers);
	return status;
}

static enum lap_status stray_argument(const char *argument, bool first, struct lap_error *err)
{
	unsigned best = UINT_MAX, nearest = 0;
	for (unsigned i = 0; i < N_COMMANDS; i++) {
		unsigned edits = strlen(argument) < NAME_BYTES
			? distance(argument, commands[i].name)
			: UINT_MAX;
		if (edits < best) {
			best = edits;
			nearest = i;
		}
	}
	if (first && best <= 3 && best < strlen(commands[nearest].name))
		return fail(err, LAP_USAGE, "unknown command %s; the nearest is %s", argument,
			commands[nearest].name);
	if (best == 0)
		return fail(err, LAP_USAGE, "%s: the command goes before all options", argument);
	return fail(err, LAP_USAGE,
		"unexpected argument \"%s\": text goes behind -p, a model behind -m", argument);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A whole number in decimal, with nothing before or behind it. */
static bool parse_integer(const char *text, int64_t *value)
{
	size_t sign = strspn(text, "+-") > 0;
	if (text[sign] == '\0' || text[sign + strspn(text + sign, "0123456789")] != '\0')
		return false;
	errno = 0;
	*value = strtoll(text, NULL, 10);
	return errno == 0;
}

/* A finite decimal number. The program never calls setlocale, so strtod reads a point everywhere;
 * the letters of "inf", "nan" and "0x1" are kept from it. */
static bool parse_number(const char *text, double *value)
{
	if (text[0] == '\0' || text[strspn(text, "0123456789.+-eE")] != '\0')
		return false;
	char *end;
	*value = strtod(text, &end);
	return *end == '\0' && *value >= -DBL_MAX && *value <= DBL_MAX;
}

static bool parse_choice(const char *text, const char *words, int *value)
{
	size_t n = strlen(text);
	*value = 0;
	for (const char *word = words; *word; (*value)++) {
		size_t n_word = strcspn(word, "|");
		if (n == n_word && strncmp(text, word, n) == 0)
			return true;
		word += n_word + (word[n_word] == '|');
	}
	return false;
}

/* Ids between commas, blanks or both; a JSON list's brackets may stand around them. */
static enum lap_status parse_ids(
	const char *name, const char *text, struct id_list *list, struct lap_error *err)
{
	static const char blanks[] = " \t\r\n";
	size_t capacity = strlen(text) / 2 + 1;
	int32_t *ids = array_alloc(capacity, sizeof *ids);
	if (!ids)
		return fail_memory(err, name, capacity * sizeof *ids);
	size_t n = 0;
	const char *s = text + strspn(text, blanks);
	bool bracket = *s == '[';
	s += bracket;
	s += strspn(s, blanks);
	bool comma = false; /* one was read and needs an id behind it */
	while (*s >= '0' && *s <= '9') {
		errno = 0;
		char *end;
		long long id = strtoll(s, &end, 10);
		if (errno || id > INT32_MAX)
			break;
		ids[n++] = (int32_t)id;
		s = end + strspn(end, blanks);
		comma = *s == ',';
		if (!comma && s == end)
			break;
		s += comma;
		s += strspn(s, blanks);
	}
	if (bracket && *s == ']')
		s = s + 1 + strspn(s + 1, blanks);
	else if (bracket)
		comma = true;
	if (*s || comma) {
		free(ids);
		return fail(err, LAP_USAGE,
			"%s: found \"%.40s\", expected ids from 0 to 2147483647 with commas "
			"between them",
			name, *s ? s : text);
	}
	free(list->ids);
	*list = (struct id_list){ids, n};
	return LAP_OK;
}

static enum lap_status add_text(
	const char *name, const char *text, struct text_list *list, struct lap_error *err)
{
	size_t n_bytes = (list->n + 1) * sizeof *list->texts;
	const char **texts = realloc(list->texts, n_bytes);
	if (!texts)
		return fail_memory(err, name, n_bytes);
	texts[list->n] = text;
	*list = (struct text_list){texts, list->n + 1};
	return LAP_OK;
}

static enum lap_status parse_flag(
	const char *name, const char *text, bool *flag, struct lap_error *err)
{
	static const char *const words[] = {"off", "on", "false", "true", "0", "1", "no", "yes"};
	for (size_t i = 0; i < ARRAY_COUNT(words); i++)
		if (strcmp(text, words[i]) == 0) {
			*flag = i % 2;
			return LAP_OK;
		}
	return fail(err, LAP_USAGE, "%s: found \"%.40s\", expected on or off", name, text);
}

static enum lap_status set_value(const struct option *option, const char *name, const char *text,
	struct options *o, struct lap_error *err)
{
	void *field = (char *)o + option->offset;
	switch (option->kind) {
	case FLAG: /* on the command line it has no value */
		return parse_flag(name, text, field, err);
	case TEXT:
		*(const char **)field = text;
		return LAP_OK;
	case INTEGER: {
		int64_t value;
		if (!parse_integer(text, &value) || (double)value < option->from ||
			(double)value > option->to)
			return fail(err, LAP_USAGE,
				"%s: found \"%s\", expected a whole number from %.0f to %.0f", name,
				text, option->from, option->to);
		*(int64_t *)field = value;
		return LAP_OK;
	}
	case NUMBER: {
		double value;
		if (!parse_number(text, &value) || value < option->from || value > option->to)
			return fail(err, LAP_USAGE,
				"%s: found \"%s\", expected a number from %g to %g", name, text,
				option->from, option->to);
		*(double *)field = value;
		return LAP_OK;
	}
	case CHOICE:
		if (!parse_choice(text, option->value, field))
			return fail(err, LAP_USAGE, "%s: found \"%s\", expected %s", name, text,
				option->value);
		return LAP_OK;
	case IDS:
		return parse_ids(name, text, field, err);
	case TEXTS:
		return add_text(name, text, field, err);
	}
	return LAP_OK;
}

/* ---- environment ----------------------------------------------------------------------------- */

/* What the environment may say: no task, and nothing that takes the place of one. */
static bool may_come_from_outside(const struct option *option)
{
	return option->group != GROUP_task && option->offset != offsetof(struct options, help) &&
		option->offset != offsetof(struct options, version) &&
		option->offset != offsetof(struct options, list_devices);
}

/* "LAPILLI_TOP_K=40" as top-k; "" where it is no variable of ours. */
static const char *option_of_variable(const char *entry, char bare[NAME_BYTES])
{
	static const char prefix[] = "LAPILLI_";
	const size_t n_prefix = sizeof prefix - 1;
	bare[0] = '\0';
	if (strncmp(entry, prefix, n_prefix) == 0)
		bare_name(entry + n_prefix, bare);
	for (char *c = bare; *c; c++)
		*c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
	return bare;
}

/* Whether the name is one with two dashes. */
static bool is_long_name(const struct option *option, const char *bare)
{
	struct name name = {0};
	for (const char *cursor = option->names; next_name(&cursor, &name);)
		if (strcmp(name.bare, bare) == 0)
			return strncmp(name.shown, "--", 2) == 0;
	return false;
}

static enum lap_status read_environment(struct options *o, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (char **entry = environ; *entry && !status; entry++) {
		char bare[NAME_BYTES], variable[NAME_BYTES + 16];
		bool off = false;
		const struct option *option =
			find_option(option_of_variable(*entry, bare), o->command, &off);
		const char *value = strchr(*entry, '=');
		if (!option || !value || !value[1] || !(option->commands & 1u << o->command) ||
			!may_come_from_outside(option) || !is_long_name(option, bare))
			continue;
		snprintf(variable, sizeof variable, "%.*s", (int)(value - *entry), *entry);
		status = set_value(option, variable, value + 1, o, err);
		if (!status && option->kind == FLAG && off)
			*(bool *)((char *)o + option->offset) ^= true;
	}
	return status;
}

/* What TEXTS gathered from the environment gives way to the command line. */
static void forget_outside(const struct option *option, struct options *o, bool *given)
{
	if (option->kind == TEXTS && !given[option - table]) {
		struct text_list *list = (struct text_list *)((char *)o + option->offset);
		free(list->texts);
		*list = (struct text_list){0};
	}
	given[option - table] = true;
}

/* ---- parser ---------------------------------------------------------------------------------- */

/* An option of llama.cpp's; *i moves to its value. */
static enum lap_status take_foreign(const struct foreign *foreign, const char *argument,
	char *const *argv, int *i, struct options *o, struct lap_error *err)
{
	const int n_name = (int)strcspn(argument, "=");
	if (foreign->effect == FOREIGN_REFUSED)
		return fail(err, LAP_USAGE, "%.*s is an option of llama.cpp that is not there: %s",
			n_name, argument, foreign->why);
	if (!argument[n_name] && foreign_takes(foreign, argv[*i + 1]))
		++*i;
	return text_printf(&o->warnings, "%.*s means nothing here: %s\n", n_name, argument,
		       foreign->why)
		? LAP_OK
		: fail_memory(err, "a warning", 1);
}

/* The row that the argument number i without an option is a value of; NULL: the command has none. */
static const struct option *find_operand(enum command command, unsigned i)
{
	for (size_t k = 0; k < ARRAY_COUNT(operands); k++)
		if (operands[k].command == 1u << command && i-- == 0)
			for (size_t row = 0; row < ARRAY_COUNT(table); row++)
				if (table[row].offset == operands[k].offset)
					return &table[row];
	return NULL;
}

static enum lap_status parse(int argc, char *const *argv, struct options *o, struct lap_error *err)
{
	bool given[ARRAY_COUNT(table)] = {false};
	int i = 1;
	for (unsigned c = 0; argc > 1 && c < N_COMMANDS; c++)
		if (strcmp(argv[1], commands[c].name) == 0) {
			o->command = (enum command)c;
			o->command_named = true;
			i = 2;
		}
	unsigned n_operands = 0;
	enum lap_status status = read_environment(o, err);
	for (bool ended = false; i < argc && !status; i++) {
		const char *argument = argv[i];
		if (!ended && strcmp(argument, "--") == 0) {
			ended = true;
			continue;
		}
		if (ended || argument[0] != '-' || argument[1] == '\0') {
			const struct option *operand = find_operand(o->command, n_operands++);
			if (!operand)
				return stray_argument(argument, i == 1, err);
			forget_outside(operand, o, given);
			status = set_value(operand, operand->value, argument, o, err);
			continue;
		}

		char bare[NAME_BYTES];
		bool off = false;
		bare_name(argument, bare);
		const struct option *option = find_option(bare, o->command, &off);
		const struct foreign *foreign =
			option && option->commands & 1u << o->command ? NULL : foreign_find(bare);
		if (foreign && (G | C | B) & 1u << o->command) {
			status = take_foreign(foreign, argument, argv, &i, o, err);
			continue;
		}
		if (!option)
			return unknown_option(argument, o->command, err);
		const char *equals = strchr(argument, '=');
		char name[NAME_BYTES + 2];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
		if (!(option->commands & 1u << o->command))
			return misplaced_option(name, bare, o->command, err);
		forget_outside(option, o, given);

		if (option->kind == FLAG) {
			if (equals)
				return fail(err, LAP_USAGE, "%s takes no value, found \"%s\"", name,
					equals + 1);
			*(bool *)((char *)o + option->offset) = !off;
			continue;
		}
		const char *value = equals ? equals + 1 : argv[++i];
		if (!value)
			return fail(err, LAP_USAGE, "%s needs a value: %s %s", name, name,
				option->value);
		status = set_value(option, name, value, o, err);
	}
	return status;
}

enum lap_status options_parse(int argc, char *const *argv, struct options *o, struct lap_error *err)
{
	*o = defaults;
	enum lap_status status = parse(argc, argv, o, err);
	if (status)
		options_release(o);
	if (o->prompts.n)
		o->prompt = o->prompts.texts[o->prompts.n - 1];
	if (o->files.n)
		o->file = o->files.texts[o->files.n - 1];
	return status;
}

void options_release(struct options *o)
{
	for (size_t i = 0; i < ARRAY_COUNT(table); i++)
		if (table[i].kind == IDS) {
			struct id_list *list = (struct id_list *)((char *)o + table[i].offset);
			free(list->ids);
			*list = (struct id_list){0};
		} else if (table[i].kind == TEXTS) {
			struct text_list *list = (struct text_list *)((char *)o + table[i].offset);
			free(list->texts);
			*list = (struct text_list){0};
		}
	text_free(&o->warnings);
}

/* ---- options of a request -------------------------------------------------------------------- */

static bool copy_array(void *to, const void *from, size_t n_bytes)
{
	void **copy = to;
	*copy = n_bytes ? malloc(n_bytes) : NULL;
	if (*copy)
		memcpy(*copy, from, n_bytes);
	return *copy || !n_bytes;
}

enum lap_status options_copy(struct options *to, const struct options *from, struct lap_error *err)
{
	bool fits = true;
	*to = *from;
	to->warnings = (struct text){0};
	for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
		if (table[i].kind == IDS) {
			struct id_list *list = (struct id_list *)((char *)to + table[i].offset);
			fits &= copy_array(&list->ids, list->ids, list->n * sizeof *list->ids);
		} else if (table[i].kind == TEXTS) {
			struct text_list *list = (struct text_list *)((char *)to + table[i].offset);
			fits &= copy_array(
				&list->texts, list->texts, list->n * sizeof *list->texts);
		}
	}
	if (fits)
		return LAP_OK;
	options_release(to);
	return fail_memory(err, "the options of a request", sizeof *to);
}

static const struct option *request_option(const char *name)
{
	char bare[NAME_BYTES];
	bool off = false;
	bare_name(name, bare);
	const struct option *option =
		name[0] == '-' ? NULL : find_option(bare, COMMAND_generate, &off);
	return option && may_set(option) && bare[1] ? option : NULL;
}

/* What somebody may have meant by a name that no option of a request has, as keys are spelled. */
static struct name nearest_key(const char *name)
{
	char typed[NAME_BYTES];
	snprintf(typed, sizeof typed, "%s", name);
	for (char *c = typed; *c; c++)
		*c = *c == '_' ? '-' : *c;
	struct name nearest = nearest_name(typed, COMMAND_generate, true);
	for (char *c = nearest.bare; *c; c++)
		*c = *c == '-' ? '_' : *c;
	return nearest;
}

/* Values in place of those that are there. */
static enum lap_status assign(const struct option *option, struct options *o, const char *name,
	const char *const *values, size_t n, struct lap_error *err)
{
	void *field = (char *)o + option->offset;
	if (option->kind == TEXTS) {
		free(((struct text_list *)field)->texts);
		*(struct text_list *)field = (struct text_list){0};
	} else if (option->kind == IDS) {
		free(((struct id_list *)field)->ids);
		*(struct id_list *)field = (struct id_list){0};
	}
	for (size_t i = 0; option->group == GROUP_form && i < ARRAY_COUNT(table); i++)
		if (table[i].group == GROUP_form) /* one takes the place of the others */
			*(const char **)((char *)o + table[i].offset) = NULL;
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < n && !status; i++)
		status = set_value(option, name, values[i], o, err);
	return status;
}

enum lap_status options_set(struct options *o, const char *name, enum value_form form,
	const char *const *values, size_t n, struct lap_error *err)
{
	static const struct {
		const char *expected;
		unsigned forms;
	} kinds[] = {
		[FLAG] = {"true or false", 1u << VALUE_BOOL},
		[TEXT] = {"a string", 1u << VALUE_STRING},
		[INTEGER] = {"a number", 1u << VALUE_NUMBER},
		[NUMBER] = {"a number", 1u << VALUE_NUMBER},
		[CHOICE] = {"a string", 1u << VALUE_STRING | 1u << VALUE_NUMBER},
		[IDS] = {"a list of numbers", 1u << VALUE_NUMBERS | 1u << VALUE_NONE},
		[TEXTS] = {"a string or a list of strings",
			1u << VALUE_STRING | 1u << VALUE_STRINGS | 1u << VALUE_NONE},
	};
	const struct option *option = request_option(name);
	if (!option)
		return fail(err, LAP_USAGE,
			"unknown key \"%.60s\", expected \"prompt\" or an option of the request "
			"(docs/generation.md); the nearest is \"%s\"",
			name, nearest_key(name).bare);
	if (!(kinds[option->kind].forms & 1u << form))
		return fail(err, LAP_USAGE, "\"%s\" needs %s", name, kinds[option->kind].expected);
	return assign(option, o, name, values, n, err);
}

enum lap_status options_assign(
	struct options *o, const char *name, const char *text, struct lap_error *err)
{
	const struct option *option = request_option(name);
	return option ? assign(option, o, name, &text, 1, err)
		      : fail(err, LAP_USAGE,
				"no option %.60s can be set, expected one of lengths, sampling or "
				"form (docs/generation.md); the nearest is %s",
				name, nearest_key(name).bare);
}

/* ---- values as they are shown ----------------------------------------------------------------- */

static const char *word_of(const char *words, int index)
{
	for (; index > 0; index--)
		words = strchr(words, '|') + 1;
	return words;
}

/* " VALUE", of a list each. */
static void print_value(FILE *out, const struct option *option, const void *field)
{
	const struct id_list *ids = field;
	const struct text_list *texts = field;
	switch (option->kind) {
	case FLAG:
		fprintf(out, " %s", *(const bool *)field ? "on" : "off");
		break;
	case TEXT:
		fprintf(out, " %s", *(const char *const *)field);
		break;
	case INTEGER:
		fprintf(out, " %lld", (long long)*(const int64_t *)field);
		break;
	case NUMBER:
		fprintf(out, " %g", *(const double *)field);
		break;
	case CHOICE: {
		const char *word = word_of(option->value, *(const int *)field);
		fprintf(out, " %.*s", (int)strcspn(word, "|"), word);
		break;
	}
	case IDS:
		for (size_t i = 0; i < ids->n; i++)
			fprintf(out, "%c%d", i ? ',' : ' ', (int)ids->ids[i]);
		break;
	case TEXTS:
		for (size_t i = 0; i < texts->n; i++)
			fprintf(out, " \"%s\"", texts->texts[i]);
	}
}

static bool is_default(const struct option *option, const struct options *o)
{
	static const size_t sizes[] = {
		[FLAG] = sizeof(option_FLAG),
		[TEXT] = sizeof(option_TEXT),
		[INTEGER] = sizeof(option_INTEGER),
		[NUMBER] = sizeof(option_NUMBER),
		[CHOICE] = sizeof(option_CHOICE),
		[IDS] = sizeof(option_IDS),
		[TEXTS] = sizeof(option_TEXTS),
	};
	return memcmp((const char *)o + option->offset, (const char *)&defaults + option->offset,
		       sizes[option->kind]) == 0;
}

void options_show(const struct options *o, FILE *out)
{
	for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
		if (!may_set(&table[i]) || is_default(&table[i], o))
			continue;
		struct name name = {0}, last = {0};
		for (const char *cursor = table[i].names; next_name(&cursor, &name);)
			last = name;
		fprintf(out, "  %s", last.bare);
		print_value(out, &table[i], (const char *)o + table[i].offset);
		fputc('\n', out);
	}
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 }; /* characters */

/* Words of `text` from `column` on; the cursor stands at column `at`. */
static void print_wrapped(FILE *out, size_t column, size_t at, const char *text)
{
	if (column > 0 && at + 2 > column) {
		fputc('\n', out);
		at = 0;
	}
	fprintf(out, "%*s", (int)(column - at), "");
	at = column;
	while (*text) {
		size_t n = strcspn(text, " ");
		if (at > column && at + 1 + n > HELP_WIDTH) {
			fprintf(out, "\n%*s", (int)column, "");
			at = column;
		} else if (at > column) {
			fputc(' ', out);
			at++;
		}
		fprintf(out, "%.*s", (int)n, text);
		at += n;
		text += n + strspn(text + n, " ");
	}
	fputc('\n', out);
}

/* What the option does, with its default.  False: memory is out. */
static bool option_help(const struct option *option, struct text *help)
{
	const void *initial = (const char *)&defaults + option->offset;
	bool ok = text_printf(help, "%s", option->help);
	if (option->kind == INTEGER)
		ok = text_printf(help, " (default %lld)", (long long)*(const int64_t *)initial);
	if (option->kind == NUMBER)
		ok = text_printf(help, " (default %g)", *(const double *)initial);
	if (option->kind == CHOICE) {
		const char *word = word_of(option->value, *(const int *)initial);
		ok = text_printf(help, " (default %.*s)", (int)strcspn(word, "|"), word);
	}
	return ok;
}

static void print_option(FILE *out, const struct option *option)
{
	struct text names = {0}, help = {0};
	const char *cursor = option->names;
	for (struct name name = {0}; next_name(&cursor, &name);)
		text_printf(&names, "%s%.*s", names.n ? ", " : "  ", (int)name.n_shown, name.shown);
	if (option->value[0])
		text_printf(&names, " %s", option->value);
	if (names.data && option_help(option, &help)) {
		fputs(names.data, out);
		print_wrapped(out, HELP_COLUMN, names.n, help.data);
	}
	text_free(&names);
	text_free(&help);
}

typedef void option_fn(FILE *out, const struct option *option);

/* The command's options in their groups; `before` goes before a group's heading. */
static void each_option(FILE *out, enum command command, const char *before, option_fn *print)
{
	for (unsigned g = 0; g < N_GROUPS; g++) {
		bool titled = false;
		for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
			if (table[i].group != g || !(table[i].commands & 1u << command))
				continue;
			if (!titled)
				fprintf(out, "%s%s\n", before, headings[g]);
			titled = true;
			print(out, &table[i]);
		}
	}
}

static const char about[] = "Lapilli: language models on any Vulkan GPU";
static const char on_options[] = "Names of more than one letter take one dash or two, '_' in a "
				 "name is '-', and a value may be the next "
				 "argument or stand behind '='. -- ends the options. Where the "
				 "command line says nothing, a variable may: "
				 "LAPILLI_ and a long name in capitals, with '_' for '-'.";
static const char on_output[] =
	"Requested text and data go to standard output, all else to standard error.";
static const struct {
	const char *status, *meaning;
} statuses[] = {
	{"0", "done, also when the reader of the output went away"},
	{"1", "other failure"},
	{"2", "wrong arguments"},
	{"3", "validation failed"},
	{"4", "no usable device"},
	{"5", "model invalid or unsupported"},
	{"6", "out of memory"},
	{"7", "device lost"},
	{"8", "a file or the output cannot be read or written"},
	{"130",
		"interrupted: the first ^C ends the text and prints the statistics, the second "
		"ends at once"},
	{"143", "the same by SIGTERM"},
	{"129", "the same by SIGHUP"},
};

void options_help(const struct options *o, FILE *out)
{
	if (o->command_named) {
		fprintf(out, "usage: lapilli %s %s\n\n%s: %s\n", commands[o->command].name,
			commands[o->command].arguments, commands[o->command].name,
			commands[o->command].help);
	} else {
		fprintf(out, "%s\n\nusage: lapilli [command] [options]\n\nCommands\n", about);
		for (unsigned i = 0; i < N_COMMANDS; i++) {
			int n = fprintf(out, "  %s", commands[i].name);
			print_wrapped(out, HELP_COLUMN, n > 0 ? (size_t)n : 0, commands[i].help);
		}
		fputs("\nBelow are the options of generate; those of another command are in its "
		      "own "
		      "--help.\n",
			out);
	}
	each_option(out, o->command, "\n", print_option);
	fputc('\n', out);
	print_wrapped(out, 0, 0, on_options);
	fputc('\n', out);
	print_wrapped(out, 0, 0, on_output);
	fputs("\nExit status\n", out);
	for (size_t i = 0; i < ARRAY_COUNT(statuses); i++)
		fprintf(out, "  %-4s %s\n", statuses[i].status, statuses[i].meaning);
}

/* ---- manual pages: man(7) --------------------------------------------------------------------- */

/* Text in which nothing is a request or an escape. */
static void print_roff(FILE *out, const char *text, size_t n)
{
	if (n && (text[0] == '.' || text[0] == '\''))
		fputs("\\&", out);
	for (size_t i = 0; i < n; i++)
		if (text[i] == '\\')
			fputs("\\e", out);
		else if (text[i] == '-')
			fputs("\\-", out);
		else if (text[i] == '\'')
			fputs("\\(aq", out);
		else if (text[i] == '^')
			fputs("\\(ha", out);
		else if (text[i] == '`')
			fputs("\\(ga", out);
		else
			fputc(text[i], out);
}

static void print_roff_line(FILE *out, const char *text)
{
	print_roff(out, text, strlen(text));
	fputc('\n', out);
}

static void man_option(FILE *out, const struct option *option)
{
	struct text help = {0};
	const char *cursor = option->names, *between = "";
	fputs(".TP\n", out);
	for (struct name name = {0}; next_name(&cursor, &name); between = ", ") {
		fprintf(out, "%s\\fB", between);
		print_roff(out, name.shown, name.n_shown);
		fputs("\\fR", out);
	}
	if (option->value[0]) {
		fputs(" \\fI", out);
		print_roff(out, option->value, strlen(option->value));
		fputs("\\fR", out);
	}
	fputc('\n', out);
	if (option_help(option, &help))
		print_roff_line(out, help.data);
	text_free(&help);
}

static void man_commands(FILE *out)
{
	for (unsigned i = 0; i < N_COMMANDS; i++) {
		fprintf(out, ".TP\n\\fB%s\\fR ", commands[i].name);
		print_roff_line(out, commands[i].arguments);
		print_roff_line(out, commands[i].help);
	}
}

/* The command of that name; N_COMMANDS: none has it. */
static enum command command_called(const char *name)
{
	unsigned i = 0;
	while (i < N_COMMANDS && strcmp(commands[i].name, name) != 0)
		i++;
	return (enum command)i;
}

enum lap_status options_man(const char *page, FILE *out, struct lap_error *err)
{
	const enum command command = page ? command_called(page) : N_COMMANDS;
	if (page && command == N_COMMANDS)
		return fail(err, LAP_USAGE,
			"man: found \"%.60s\", expected a command (all: lapilli --help)", page);
	fprintf(out,
		".TH LAPILLI%s%s 1 \"\" \"lapilli %s\" \"User Commands\"\n.SH NAME\nlapilli%s%s "
		"\\- ",
		page ? "\\-" : "", page ? page : "", lap_version(), page ? "\\-" : "",
		page ? page : "");
	print_roff_line(out, page ? commands[command].help : about + strlen("Lapilli: "));
	fprintf(out, ".SH SYNOPSIS\n.B lapilli %s\n", page ? page : "");
	print_roff_line(out, page ? commands[command].arguments : "[command] [options]");
	if (page) {
		fputs(".SH OPTIONS\n", out);
		each_option(out, command, ".SS ", man_option);
		fputs(".SH NOTES\n", out);
	} else {
		fputs(".SH COMMANDS\n", out);
		man_commands(out);
		fputs(".SH OPTIONS\nEach command has a page of its own.\n", out);
	}
	print_roff_line(out, on_options);
	fputs(".PP\n", out);
	print_roff_line(out, on_output);
	fputs(".SH EXIT STATUS\n", out);
	for (size_t i = 0; i < ARRAY_COUNT(statuses); i++) {
		fprintf(out, ".TP\n%s\n", statuses[i].status);
		print_roff_line(out, statuses[i].meaning);
	}
	fputs(".SH SEE ALSO\n", out);
	if (page)
		fputs(".BR lapilli (1)\n", out);
	for (unsigned i = 0; !page && i < N_COMMANDS; i++)
		fprintf(out, ".BR lapilli\\-%s (1)%s\n", commands[i].name,
			i + 1 < N_COMMANDS ? "," : "");
	return LAP_OK;
}
