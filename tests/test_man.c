/* Manual pages, which say what --help says, and the report, which says nothing about who asks. */
#include <criterion/criterion.h>

#include "command.h"

static const char *const pages[] = {
#define COMMAND(id, letter, arguments, help) #id,
#include "options.def"
};

/* What a reader sees of a page: escapes of man(7) gone. */
static char *plain(const char *page)
{
	static const struct {
		const char *escape, *shown;
	} escapes[] = {{"\\-", "-"}, {"\\(aq", "'"}, {"\\(ga", "`"}, {"\\(ha", "^"}, {"\\e", "\\"},
		{"\\fB", ""}, {"\\fI", ""}, {"\\fR", ""}, {"\\&", ""}};
	struct text t = {0};
	while (*page) {
		size_t i = 0;
		while (i < ARRAY_COUNT(escapes) &&
			strncmp(page, escapes[i].escape, strlen(escapes[i].escape)) != 0)
			i++;
		if (i < ARRAY_COUNT(escapes)) {
			text_printf(&t, "%s", escapes[i].shown);
			page += strlen(escapes[i].escape);
		} else
			text_append(&t, page++, 1);
	}
	return t.data;
}

/* Every option that --help lists stands on the page, as it is written there. */
static void expect_options(const char *command, const char *page)
{
	struct result help = run(command, "--help");
	char *shown = plain(page);
	uint32_t n = 0;
	for (char *line = strtok(help.out, "\n"); line; line = strtok(NULL, "\n")) {
		if (strncmp(line, "  -", 3) != 0)
			continue;
		char *end = strstr(line + 2, "  ");
		if (end)
			*end = '\0';
		cr_expect(strstr(shown, line + 2), "%s: %s", command, line);
		n++;
	}
	cr_expect_gt(n, 0, "%s", command);
	free(shown);
	release(&help);
}

Test(man, has_the_options_of_each_command)
{
	for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
		struct result r = run("man", pages[i]);
		cr_assert_eq(r.status, 0, "%s", r.err);
		cr_expect(strncmp(r.out, ".TH LAPILLI\\-", 13) == 0, "%s", pages[i]);
		expect_options(pages[i], r.out);
		release(&r);
	}
}

Test(man, groff_finds_nothing_wrong)
{
	if (access("/usr/bin/groff", X_OK) != 0)
		skip_test("no /usr/bin/groff on this machine");
	for (size_t i = 0; i <= ARRAY_COUNT(pages); i++) {
		struct result r = run("man", i < ARRAY_COUNT(pages) ? pages[i] : NULL);
		const char *file = write_scratch("page", r.out, r.n_out);
		struct result lint = run_with(NULL,
			(const char *const[]){
				"/usr/bin/groff", "-man", "-ww", "-z", "-Tutf8", file, NULL});
		cr_expect_eq(lint.status, 0);
		cr_expect_str_eq(lint.err, "");
		release(&lint);
		release(&r);
	}
}

Test(man, the_first_page_names_all)
{
	struct result r = run("man");
	cr_assert_eq(r.status, 0, "%s", r.err);
	for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
		char reference[64];
		snprintf(reference, sizeof reference, ".BR lapilli\\-%s (1)", pages[i]);
		cr_expect(strstr(r.out, reference), "%s", pages[i]);
	}
	release(&r);
	expect_failure(run("man", "chatter"), 2, "found \"chatter\", expected a command");
}

Test(report, has_no_private_text)
{
	static const char private_name[] = "my-private-model";
	struct lap_error err;
	struct text bytes = {0};
	cr_assert_eq(file_read(source_path("models/austen.gguf"), &bytes, &err), LAP_OK);
	const char *path = write_scratch(private_name, bytes.data, bytes.n);
	text_free(&bytes);
	/* What fails is kept, but for mistakes of usage, without what names the user's things. */
	setenv("XDG_STATE_HOME", scratch_path("state"), 1);
	struct result r = run("report", "-m", path, "-dev", "cpu");
	cr_expect(strstr(r.out, "\nlast error\n   none that is known\n"), "%s", r.out);
	release(&r);
	expect_failure(
		run("logits", "-m", path, "--tokens", "1", "-o", "/nowhere/my-private-model"), 8,
		"/nowhere/my-private-model");
	expect_failure(run("logits", "-m", path), 2, "--tokens");
	r = run("report", "-m", path, "-dev", "cpu");
	cr_assert_eq(r.status, 0, "%s", r.err);
	cr_expect(strstr(r.out, " UTC, lapilli " LAP_VERSION ", logits, status 8: "), "%s", r.out);
	static const char *const parts[] = {"```\nlapilli ", "\nsystem\n", "\ndevices\n",
		"\nmodel\n", "architecture  llama\n", "Q8_0", "\ntuning\n"};
	for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
		cr_expect(strstr(r.out, parts[i]), "no %s in: %s", parts[i], r.out);
	char host[256] = "";
	cr_assert_eq(gethostname(host, sizeof host - 1), 0);
	const char *const none[] = {
		private_name, "Austen", "uuid", path, getenv("HOME"), host, "nowhere"};
	for (size_t i = 0; i < ARRAY_COUNT(none); i++)
		cr_expect(!none[i] || strlen(none[i]) < 5 || !strstr(r.out, none[i]),
			"%s is in: %s", none[i], r.out);
	release(&r);
}
