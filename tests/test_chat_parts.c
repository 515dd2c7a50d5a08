/* The parts of a conversation that need no model: thoughts in an answer, messages and their files, what is left
 * out of a full context. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "conversation.h"
#include "reasoning.h"
#include "support.h"

/* ---- thoughts -------------------------------------------------------------------------------- */

/* Parts as they come, with a letter before each run of one: a, t or m. */
static bool write_part(void *user, enum part part, const char *text, size_t n_bytes)
{
	static char last;
	struct text *out = user;
	const char letter = "atm"[part];
	if (out->n == 0 || letter != last || letter == 'm')
		text_printf(out, "%s%c:", out->n ? "|" : "", letter);
	last = letter;
	return text_append(out, text, n_bytes);
}

/* The same parts, however the text is cut. */
static void expect_parts(const char *prompt, const char *text, const char *expected)
{
	const size_t n = strlen(text);
	for (size_t size = 1; size <= n; size++) {
		struct reasoning r;
		struct text out = {0};
		reasoning_begin(&r, prompt, strlen(prompt));
		for (size_t at = 0; at < n; at += size)
			reasoning_take(
				&r, text + at, n - at < size ? n - at : size, write_part, &out);
		reasoning_end(&r, write_part, &out);
		cr_expect_str_eq(out.data, expected, "in pieces of %zu: %s", size, out.data);
		text_free(&out);
	}
}

Test(chat_parts, thoughts)
{
	expect_parts("", "plain", "a:plain");
	expect_parts("", "<think>x < y</think>z", "m:<think>|t:x < y|m:</think>|a:z");
	expect_parts("[a]<think>\n", "x</think>\n\nz", "t:x|m:</think>|a:\n\nz");
	expect_parts("[a]<think> no", "x", "a:x");
	expect_parts("", "a<<think>b", "a:a<|m:<think>|t:b");
	expect_parts("", "a<think", "a:a<think");
	expect_parts("", "<thin [THINK]t[/THINK", "a:<thin |m:[THINK]|t:t[/THINK");
	expect_parts("",
		"<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>final<|message|"
		">a",
		"m:<|channel|>analysis<|message|>|t:t|m:<|end|><|start|>assistant|m:<|channel|>"
		"final"
		"<|message|>|a:a");
	expect_parts("", "<|channel>thought\nt<channel|>a",
		"m:<|channel>thought|t:\nt|m:<channel|>|a:a");
}

Test(chat_parts, names_that_marks_are_made_of)
{
	cr_expect(reasoning_marks("[THINK]", 7) && reasoning_marks("<|message|>", 11));
	cr_expect(!reasoning_marks("<s>", 3) && !reasoning_marks("", 0));
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct conversation c;

static void setup(void)
{
	cr_assert_eq(conversation_open(&c, NULL), LAP_OK);
}

static void teardown(void)
{
	conversation_release(&c);
}

static struct text text_of(const char *s)
{
	return (struct text){.data = (char *)(uintptr_t)s, .n = strlen(s)};
}

static void turn(const char *message, const char *answer, const char *thoughts)
{
	struct text m = text_of(message), a = text_of(answer), t = text_of(thoughts);
	cr_assert_eq(message_add(c.messages, "user", &m, NULL), LAP_OK);
	cr_assert_eq(conversation_answer(&c, &a, &t, NULL), LAP_OK);
}

static void expect_seen(const char *expected)
{
	char *json = conversation_json(&c);
	cr_expect_str_eq(json, expected);
	free(json);
}

#define USER(text)   "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ANSWER(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define SYSTEM       "{\"role\": \"system\", \"content\": \"s\"}"

TestSuite(chat_parts_messages, .init = setup, .fini = teardown);

Test(chat_parts_messages, edits)
{
	struct text s = text_of("s"), none = {0};
	expect_seen("[]");
	cr_expect(!conversation_drop_turn(&c) && !conversation_drop_answer(&c));
	turn("a", "b", "");
	turn("c", "d", "");
	cr_assert_eq(conversation_set_system(&c, &s, NULL), LAP_OK);
	expect_seen("[" SYSTEM ", " USER("a") ", " ANSWER("b") ", " USER("c") ", " ANSWER("d") "]");
	cr_expect(conversation_drop_answer(&c) && conversation_waits(&c));
	cr_expect(!conversation_drop_answer(&c));
	cr_expect(conversation_drop_turn(&c) && !conversation_waits(&c));
	expect_seen("[" SYSTEM ", " USER("a") ", " ANSWER("b") "]");
	cr_expect_str_eq(conversation_system(&c), "s");
	cr_assert_eq(conversation_set_system(&c, &none, NULL), LAP_OK);
	expect_seen("[" USER("a") ", " ANSWER("b") "]");
	cr_expect_null(conversation_system(&c));
	cr_assert_eq(conversation_set_system(&c, &s, NULL), LAP_OK);
	conversation_clear(&c);
	expect_seen("[" SYSTEM "]");
	cr_expect(!conversation_drop_turn(&c));
}

/* What is left out stays in the files; the system message and the last turn are always seen. */
Test(chat_parts_messages, a_full_context)
{
	struct text s = text_of("s");
	cr_assert_eq(conversation_set_system(&c, &s, NULL), LAP_OK);
	turn("a", "b", "");
	turn("c", "d", "");
	cr_expect(conversation_forget_turn(&c));
	expect_seen("[" SYSTEM ", " USER("c") ", " ANSWER("d") "]");
	cr_expect_eq(c.n_unseen, 2);
	cr_expect(!conversation_forget_turn(&c));
	cr_expect_eq(json_array_size(c.messages), 5);
	cr_expect(conversation_drop_turn(&c));
	expect_seen("[" SYSTEM ", " USER("a") ", " ANSWER("b") "]");
}

Test(chat_parts_messages, files)
{
	struct lap_error err;
	struct stat st;
	const char *path = scratch_path("saved.json"), *markdown = scratch_path("saved.md");
	turn("a\n\"b\"", "c", "t\n\nu");
	cr_assert_eq(conversation_save(&c, path, &err), LAP_OK, "%s", err.text);
	cr_expect(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "mode %o", st.st_mode);
	cr_assert_eq(conversation_export(&c, markdown, &err), LAP_OK, "%s", err.text);
	char *text = read_text(markdown, NULL);
	cr_expect_str_eq(text, "## user\n\na\n\"b\"\n\n## assistant\n\n> t\n>\n> u\n\nc\n");
	free(text);
	char *before = conversation_json(&c);
	conversation_clear(&c);
	cr_assert_eq(conversation_load(&c, path, &err), LAP_OK, "%s", err.text);
	expect_seen(before);
	cr_expect(strstr(before, "\"reasoning_content\": \"t\\n\\nu\""), "%s", before);

	static const struct {
		const char *file, *words;
	} wrong[] = {
		{"{", "line 1"},
		{"{\"a\": []}", "expected a JSON list of messages"},
		{"{\"messages\": {}}", "expected a JSON list of messages"},
		{"[" USER("a") ", {\"role\": \"user\"}]", "message 2 has no"},
		{"[{\"role\": \"user\", \"content\": []}]", "message 1 has no"},
		{"[" USER("a") ", " SYSTEM "]", "message 2 is a system message"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
		cr_assert_eq(file_write(path, wrong[i].file, strlen(wrong[i].file), &err), LAP_OK);
		cr_expect_eq(conversation_load(&c, path, &err), LAP_USAGE, "%s", wrong[i].file);
		cr_expect(strstr(err.text, wrong[i].words), "%s", err.text);
		expect_seen(before);
	}
	cr_expect_eq(conversation_load(&c, scratch_path("gone"), &err), LAP_IO);
	const char *object = "{\"messages\": [" SYSTEM ", " USER("x") "]}";
	cr_assert_eq(file_write(path, object, strlen(object), &err), LAP_OK);
	cr_assert_eq(conversation_load(&c, path, &err), LAP_OK, "%s", err.text);
	cr_expect(conversation_waits(&c));
	free(before);
}

/* A message is text; an answer may be any bytes. */
Test(chat_parts_messages, bytes_that_are_no_text)
{
	struct text bad = text_of("a\xE6"), none = {0};
	struct lap_error err;
	cr_expect_eq(message_add(c.messages, "user", &bad, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "found byte 0xE6 at place 1"), "%s", err.text);
	cr_expect_eq(json_array_size(c.messages), 0);
	cr_assert_eq(conversation_answer(&c, &bad, &none, &err), LAP_OK);
	expect_seen("[" ANSWER("a\xEF\xBF\xBD") "]");
}
