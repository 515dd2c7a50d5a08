/* README.md says what this build can do: its tables against ours, its options against options.def. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static char *readme;

static void setup(void)
{
	readme = read_text(source_path("README.md"), NULL);
}

static void teardown(void)
{
	free(readme);
}

TestSuite(readme, .init = setup, .fini = teardown);

/* The text between <!-- name --> and <!-- /name -->, on the heap. */
static char *section(const char *name)
{
	char open[64], close[64];
	snprintf(open, sizeof(open), "<!-- %s -->", name);
	snprintf(close, sizeof(close), "<!-- /%s -->", name);
	const char *from = strstr(readme, open);
	cr_assert(from, "README.md has no %s", open);
	from += strlen(open);
	const char *to = strstr(from, close);
	cr_assert(to, "README.md has no %s", close);
	return strndup(from, (size_t)(to - from));
}

/* The words in `code spans` of a text, separated by spaces, on the heap. */
static char *code_words(const char *text)
{
	struct text words = {0};
	for (const char *open = strchr(text, '`'); open;) {
		const char *close = strchr(open + 1, '`');
		cr_assert(close, "a ` without its end: %s", open);
		cr_assert(text_printf(
			&words, "%s%.*s", words.n ? " " : "", (int)(close - open - 1), open + 1));
		open = strchr(close + 1, '`');
	}
	return words.data ? words.data : calloc(1, 1);
}

Test(readme, formats_are_those_of_the_build)
{
	char *text = section("formats"), *words = code_words(text);
	cr_expect_str_eq(words, lap_supported_formats());
	free(words);
	free(text);
}

Test(readme, architectures_are_those_of_the_build)
{
	char *text = section("architectures"), *words = code_words(text);
	cr_expect_str_eq(words, lap_supported_architectures());
	free(words);
	free(text);
}

static const struct {
	const char *names;
} options[] = {
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help) {names},
#include "options.def"
};

static const char *const commands[] = {
#define COMMAND(id, letter, arguments, help) #id,
#include "options.def"
};

/* True when options.def has an option of that name ("--top-k", "-m"). */
static bool option_exists(const char *name, size_t length)
{
	for (size_t i = 0; i < ARRAY_COUNT(options); i++)
		for (const char *at = options[i].names; *at;) {
			size_t n = strcspn(at, " |");
			if (n == length && !strncmp(at, name, n))
				return true;
			at += n;
			at += strspn(at, " |");
		}
	return false;
}

/* Calls for every word of `text` that follows a space or a ` and starts with a dash: how many are no
 * option of ours. */
static unsigned unknown_options(const char *text)
{
	unsigned n_unknown = 0;
	for (const char *at = text; (at = strpbrk(at, " `")); at++) {
		size_t length = strcspn(at + 1, " `,.;:)\n\"");
		if (at[1] != '-' || length < 2 || at[2] == '>')
			continue;
		if (strspn(at + 1, "-") == length)
			continue;
		if (!option_exists(at + 1, length)) {
			n_unknown++;
			fprintf(stderr, "no option %.*s in options.def\n", (int)length, at + 1);
		}
	}
	return n_unknown;
}

Test(readme, every_option_it_names_exists)
{
	char *table = section("commands"), *demo = section("demo");
	cr_expect_eq(unknown_options(table), 0);
	cr_expect_eq(unknown_options(demo), 0);
	cr_expect(strstr(table, "-p TEXT"), "the table of commands names no options");
	free(table);
	free(demo);
}

Test(readme, an_unknown_option_is_seen)
{
	cr_expect_eq(unknown_options("`-m FILE`, `--top-k N`"), 0);
	cr_expect_eq(unknown_options("`--top-kk N` -m2 --help"), 2);
}

Test(readme, every_command_has_its_line)
{
	char *table = section("commands");
	unsigned n_lines = 0;
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++) {
		char line[64];
		snprintf(line, sizeof(line), "| `lapilli %s` |", commands[i]);
		cr_expect(strstr(table, line), "README.md has no line for %s", commands[i]);
	}
	for (const char *at = table; (at = strstr(at, "| `lapilli ")); at++)
		n_lines++;
	cr_expect_eq(n_lines, ARRAY_COUNT(commands));
	free(table);
}

/* docs/commands.md has a section for each command with an example of it; options that examples name exist, and those
 * that are marked as exact print what stands below them. */
Test(readme, a_section_for_each_command)
{
	char *page = read_text(source_path("docs/commands.md"), NULL);
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++) {
		char heading[64], example[64];
		snprintf(heading, sizeof heading, "\n## %s\n", commands[i]);
		snprintf(example, sizeof example, "lapilli %s", commands[i]);
		const char *at = strstr(page, heading);
		cr_assert(at, "no section for %s", commands[i]);
		const char *line = strstr(at, "\n$ "), *named = line ? strstr(line, example) : NULL;
		cr_expect(named && named < strchr(line + 1, '\n'), "no example of %s", commands[i]);
	}
	for (char *at = page; (at = strstr(at, "\n$ "));) {
		char *line = strndup(at + 3, strcspn(at + 3, "\n"));
		cr_expect_eq(unknown_options(line), 0);
		free(line);
		at += 3;
	}
	free(page);
}

Test(readme, examples_print_what_they_say)
{
	static const char mark[] = "<!-- exact -->\n```\n$ ";
	char *page = read_text(source_path("docs/commands.md"), NULL);
	unsigned n = 0;
	cr_assert_eq(chdir(source_path(".")), 0);
	for (char *at = page; (at = strstr(at, mark)); n++) {
		char *line = at + sizeof mark - 1, *output = strchr(line, '\n') + 1;
		char *end = strstr(output, "\n```");
		struct text script = {0};
		cr_assert(end);
		output[-1] = end[1] = '\0';
		text_printf(&script, "lapilli() { '%s' \"$@\"; }; %s", program(), line);
		struct result r =
			run_with(NULL, (const char *const[]){"/bin/sh", "-c", script.data, NULL});
		const size_t n_bytes = strlen(r.out);
		if (n_bytes && r.out[n_bytes - 1] != '\n') /* a text without a last newline */
			output[strlen(output) - 1] = '\0';
		cr_expect_str_eq(r.out, output, "%s", line);
		release(&r);
		text_free(&script);
		at = end + 2;
	}
	cr_expect_geq(n, 4);
	free(page);
}

Test(readme, the_two_commands_exist)
{
	static const char *const scripts[] = {"tools/demo", "tools/test", "tools/deps"};
	for (size_t i = 0; i < ARRAY_COUNT(scripts); i++) {
		char *text = read_text(source_path(scripts[i]), NULL);
		cr_expect(!strncmp(text, "#!/bin/sh\n", 10), "%s is no sh script", scripts[i]);
		free(text);
	}
	cr_expect(strstr(readme, "./tools/demo") && strstr(readme, "./tools/test"));
}
