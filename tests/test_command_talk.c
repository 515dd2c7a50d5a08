/* `lapilli chat` in a pipe: messages and commands on standard input, answers on standard output.  The demo model
 * with a template of its own, on the CPU reference, greedy. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "command.h"

#define TEMPLATE                                                                          \
	"{% for m in messages %}{% if m.role == 'user' and loop.previtem is defined and " \
	"loop.previtem.role == 'user' %}{{ raise_exception('two in a row') }}{% endif %}" \
	"{{ m.content }}\n{% endfor %}"

static const char *template_file(const char *text)
{
	return write_scratch("template", text, strlen(text));
}

#define CHAT(template) \
	"chat", CPU_EXACT, "--temp", "0", "-n", "6", "--chat-template-file", template_file(template)

/* The answers to these lines; with more arguments. */
#define talk(lines) talk_with(lines, "--no-pipeline-cache")
#define talk_with(lines, ...) \
	run_input(write_scratch("lines", lines, strlen(lines)), CHAT(TEMPLATE), __VA_ARGS__)

/* What the model says to a text, of itself. */
static char *continuation(const char *text)
{
	const char *path = write_scratch("text", text, strlen(text));
	struct result r =
		run(CPU_EXACT, "--temp", "0", "-n", "6", "-f", path, "--no-display-prompt");
	cr_assert_eq(r.status, 0, "%s", r.err);
	free(r.err);
	return r.out;
}

/* What two turns print: each answer is that to the whole conversation, with a line end behind it. */
Test(talk, turns)
{
	struct text second = {0}, expected = {0};
	char *first = continuation("It was\n");
	cr_assert(text_printf(&second, "It was\n%s\nand then\n", first));
	char *answer = continuation(second.data);
	cr_assert(text_printf(&expected, "%s%s%s%s", first,
		first[strlen(first) - 1] == '\n' ? "" : "\n", answer,
		answer[strlen(answer) - 1] == '\n' ? "" : "\n"));
	struct result r = talk("It was\n\nand then\n/tokens\n/stats\n");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(r.out, expected.data);
	cr_expect(strstr(r.err, "of 512 tokens"), "%s", r.err);
	/* what the first turn computed as a prompt: all of it but its last token */
	cr_expect(strstr(r.err, "\n2 of the prompt reused"), "%s", r.err);
	cr_expect(!strchr(r.err, '>') && !strstr(r.err, "/help"), "a prompt in a pipe: %s", r.err);
	release(&r);
	r = talk_with("", "-p", "It was", "-st");
	cr_expect(r.status == 0 && !strncmp(r.out, first, strlen(first)), "%s", r.out);
	release(&r);
	r = talk_with("It was\nand then\n", "-st");
	cr_expect(r.n_out < expected.n && !strncmp(r.out, first, strlen(first)), "%s", r.out);
	release(&r);
	text_free(&second);
	text_free(&expected);
	free(first);
	free(answer);
}

/* The file that a conversation ends in. */
static json_t *messages_after(const char *lines)
{
	struct text all = {0};
	const char *path = scratch("saved");
	cr_assert(text_printf(&all, "%s/save %s\n", lines, path));
	struct result r = talk(all.data);
	cr_assert_eq(r.status, 0, "%s", r.err);
	json_error_t error;
	json_t *messages = json_load_file(path, 0, &error);
	cr_assert(messages, "%s", error.text);
	release(&r);
	text_free(&all);
	return messages;
}

static const char *content(const json_t *messages, size_t i, const char *role)
{
	const json_t *message = json_array_get(messages, i);
	cr_assert_str_eq(json_string_value(json_object_get(message, "role")), role);
	return json_string_value(json_object_get(message, "content"));
}

Test(talk, messages_of_several_lines)
{
	const char *path = write_scratch("read", "a file\n", 7);
	struct text lines = {0};
	cr_assert(text_printf(&lines,
		"/set n_predict 2\n/read %s\none\\\ntwo\\\n three\n\"\"\"\na\n\"b\"\n\"\"\"\n"
		"\"\"\"x\"\"\"\n /exit\n/usr/bin\n",
		path));
	json_t *messages = messages_after(lines.data);
	static const char *const expected[] = {
		"a file\n\none\ntwo\n three", "a\n\"b\"", "x", " /exit", "/usr/bin"};
	cr_assert_eq(json_array_size(messages), 2 * ARRAY_COUNT(expected));
	for (size_t i = 0; i < ARRAY_COUNT(expected); i++)
		cr_expect_str_eq(content(messages, 2 * i, "user"), expected[i]);
	json_decref(messages);
	text_free(&lines);

	/* the end of the input ends a message, and the last line needs no end */
	struct result quoted = talk("\"\"\"It was"), plain = talk("It was");
	cr_expect(quoted.status == 0 && plain.n_out, "%s", quoted.err);
	cr_expect_str_eq(quoted.out, plain.out);
	release(&quoted);
	release(&plain);
}

Test(talk, commands)
{
	/* the same answer again: greedy, and no other conversation */
	struct result once = talk("It was\n"), again = talk("It was\n/regen\n/stats\n");
	struct text twice = {0};
	cr_assert(text_printf(&twice, "%s%s", once.out, once.out));
	cr_expect_str_eq(again.out, twice.data);
	cr_expect(strstr(again.err, "prompt 3 tokens at"), "%s", again.err);
	text_free(&twice);
	release(&again);
	again = talk("It was\nmore\n/undo\n/undo\nIt was\n/clear\nIt was\n");
	cr_expect(strstr(again.out, once.out) && !strncmp(again.out, once.out, once.n_out));
	cr_expect_str_eq(again.out + again.n_out - once.n_out, once.out);
	release(&again);
	release(&once);

	json_t *messages =
		messages_after("/system Be brief.\nIt was\n/system\n/set temp 1\n/show\n");
	cr_expect_eq(json_array_size(messages), 3);
	cr_expect_str_eq(content(messages, 0, "system"), "Be brief.");
	cr_expect_str_eq(content(messages, 1, "user"), "It was");
	json_decref(messages);
	struct result r =
		talk_with("/set temp 1\n/set stop a b\n/set ignore_eos on\n/show\n", "-sys", "s");
	cr_expect(strstr(r.err, "  temperature 1\n") && strstr(r.err, "  reverse-prompt \"a b\"\n"),
		"%s", r.err);
	cr_expect(
		strstr(r.err, "system    s\n") && strstr(r.err, "  ignore-eos on\n"), "%s", r.err);
	release(&r);
	r = talk("/help\n/exit\nIt was\n");
	cr_expect(r.status == 0 && r.n_out == 0 && strstr(r.err, "/export FILE"), "%s", r.err);
	release(&r);
}

/* The conversation of a file goes on. */
Test(talk, a_file_of_messages)
{
	static const char file[] = "[{\"role\": \"user\", \"content\": \"It was\"}]";
	struct text lines = {0};
	cr_assert(text_printf(
		&lines, "/load %s\n/regen\n", write_scratch("file", file, sizeof file - 1)));
	struct result r = talk(lines.data), once = talk("It was\n");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(r.out, once.out);
	release(&r);
	release(&once);
	text_free(&lines);
}

/* In a pipe the first mistake ends, with its status. */
Test(talk, mistakes)
{
	static const struct {
		const char *lines, *words;
		int status;
	} cases[] = {
		{"/foo\n", "there is no command /foo; /help lists them", 2},
		{"/set\n", "/set needs NAME VALUE", 2},
		{"/set temp\n", "expected /set NAME VALUE", 2},
		{"/set temp x\n", "temp: found \"x\", expected a number from 0 to 1000", 2},
		{"/set tempp 1\n", "no option tempp can be set", 2},
		{"/set model x\n", "no option model can be set", 2},
		{"/set ignore_eos maybe\n", "found \"maybe\", expected on or off", 2},
		{"/set keep 3\n", "--keep is for --context-overflow shift", 2},
		{"/exit now\n", "/exit takes nothing, found \"now\"", 2},
		{"/regen\n", "there is no message to answer", 2},
		{"/undo\n", "there is no message to take back", 2},
		{"/stats\n", "there was no answer yet", 2},
		{"/read /nonexistent\n", "/nonexistent", 8},
		{"/save /nonexistent/x\n", "/nonexistent/x", 8},
		{"a\xE6\n", "the user message: found byte 0xE6", 2},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		expect_failure(talk(cases[i].lines), cases[i].status, cases[i].words);
	expect_failure(run("chat", CPU), 1, "has no chat template: it continues texts");
	expect_failure(run_input(write_scratch("lines", "a\n", 2),
			       CHAT("{{ raise_exception('Not today') }}")),
		1, "lapilli: Not today\n");
	expect_failure(run("chat", "--beams", "2"), 2, "--beams is no option of chat");
	expect_failure(run("-st"), 2, "-st is no option of generate, but of chat");
}

/* Thoughts as they are, or not at all; a template may have opened them. */
Test(talk, thoughts)
{
	static const char opens[] = TEMPLATE "<think>\n";
	const char *it = write_scratch("lines", "It was\n", 7);
	struct result shown = run_input(it, CHAT(opens));
	struct result hidden = run_input(it, CHAT(opens), "--no-reasoning");
	struct result colored = run_input(it, CHAT(opens), "--color", "on");
	cr_expect_gt(shown.n_out, 3);
	cr_expect_str_eq(hidden.out, "\n");
	cr_expect(!strncmp(colored.out, "\033[2m", 4), "%s", colored.out);
	cr_expect(!strncmp(colored.out + 4, shown.out, shown.n_out - 1));
	cr_expect(strstr(colored.out, "\033[0m"), "%s", colored.out);
	cr_expect(!strchr(shown.out, '\033'), "%s", shown.out);
	release(&shown);
	release(&hidden);
	release(&colored);
}

/* The oldest turns make room, which is said; what cannot fit is refused. */
Test(talk, a_full_context)
{
	const char *lines =
		"one two three four\nfive six seven eight\nnine ten eleven twelve\n/tokens\n";
	struct result r = talk_with(lines, "-c", "40");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect(
		strstr(r.err, "notice: the context of 40 tokens is full: the model no longer sees"),
		"%s", r.err);
	cr_expect(strstr(r.err, "6 messages, 2 of them left out") ||
			strstr(r.err, "6 messages, 4 of them left out"),
		"%s", r.err);
	release(&r);
	r = talk_with("one two\n/set n_predict -1\n/set ignore_eos on\n/regen\n", "-c", "24");
	cr_expect(strstr(r.err, "notice: the context of 24 tokens is full: the answer ends here"),
		"%s", r.err);
	release(&r);
	expect_failure(talk_with("one two three four five six seven eight nine ten\n", "-c", "8"),
		2, "leaves no room in a context of 8");
}
