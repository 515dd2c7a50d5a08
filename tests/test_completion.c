/* Completion scripts: each shell accepts its own, and bash completes with it as if somebody typed. */
#include <criterion/criterion.h>

#include "command.h"

/* The script of a shell, in a file. */
static const char *script_for(const char *shell)
{
	struct result r = run("completion", shell);
	cr_assert_eq(r.status, 0, "%s", r.err);
	const char *path = write_scratch(shell, r.out, r.n_out);
	release(&r);
	return path;
}

/* The path of a shell; where it is missing the test is skipped. */
static const char *shell_path(const char *shell)
{
	static char path[64];
	static const char *const folders[] = {"/bin", "/usr/bin", "/usr/local/bin"};
	for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
		snprintf(path, sizeof path, "%s/%s", folders[i], shell);
		if (access(path, X_OK) == 0)
			return path;
	}
	snprintf(path, sizeof path, "no %s on this machine", shell);
	skip_test(path);
}

static void expect_accepted(const char *shell)
{
	const char *path = shell_path(shell);
	struct result r =
		run_with(NULL, (const char *const[]){path, "-n", script_for(shell), NULL});
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(r.err, "");
	release(&r);
}

Test(completion, bash_accepts_it)
{
	expect_accepted("bash");
}

Test(completion, zsh_accepts_it)
{
	expect_accepted("zsh");
}

Test(completion, fish_accepts_it)
{
	expect_accepted("fish");
}

/* `typed`: the words of a command line in bash's quoting, the last of them unfinished. What is offered
 * stands on one line, with a blank before and behind each. */
static void expect_offered(const char *script, const char *typed, const char *expected)
{
	char code[1024];
	snprintf(code, sizeof code,
		"source '%s'; cd '%s'; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
		"_lapilli_bash; "
		"echo \" ${COMPREPLY[*]} \"",
		script, source_path("models"), typed);
	struct result r = run_with(
		NULL, (const char *const[]){shell_path("bash"), "--norc", "-c", code, NULL});
	cr_expect_str_eq(r.err, "");
	cr_expect_str_eq(r.out, expected, "%s: offered%s", typed, r.out);
	release(&r);
}

Test(completion, bash_completes)
{
	static const struct {
		const char *typed, *expected;
	} cases[] = {
		{"lapilli val", " validate \n"},
		{"lapilli --top-", " --top-k --top-p --top-nsigma --top-n-sigma \n"},
		{"lapilli bench --ker", " --kernel \n"},
		{"lapilli validate --ker", "  \n"}, /* of another command */
		{"lapilli -ctk q", " q8_0 q4_0 \n"},
		{"lapilli bench -o c", " csv \n"},                 /* a word here */
		{"lapilli logits -o austen.g", " austen.gguf \n"}, /* a file there */
		{"lapilli generate --model = austen.g", " austen.gguf \n"},
		{"lapilli -n austen.g", "  \n"}, /* a number */
		{"lapilli quantize austen.g", " austen.gguf \n"},
		{"lapilli completion z", " zsh \n"},
	};
	char *script = strdup(script_for("bash"));
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		expect_offered(script, cases[i].typed, cases[i].expected);
	free(script);
}

Test(completion, an_unknown_shell_is_named)
{
	expect_failure(run("completion", "tcsh"), 2, "bash|zsh|fish");
}
