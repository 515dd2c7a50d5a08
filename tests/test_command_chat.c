/* Chats by the command: `lapilli template`, `generate -cnv` and `-sys`. The models are small ones made
 * here, on the CPU reference. */
#include <criterion/criterion.h>

#include "command.h"
#include "gguf_builder.h"

/* A template of plain turns; the same with BOS in front. */
#define TURNS                                                              \
	"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}" \
	"{% if add_generation_prompt %}[a]{% endif %}"
#define TURNS_WITH_BOS "{{ bos_token }}" TURNS
/* As many models are: roles take turns, a system message stands in front. */
#define STRICT                                                                             \
	"half a text{% for m in messages %}{% if m.role == 'system' and not loop.first %}" \
	"{{ raise_exception('The system message must be first') }}"                        \
	"{% elif loop.previtem is defined and loop.previtem.role == m.role %}"             \
	"{{ raise_exception('Roles must alternate: ' ~ m.role) }}{% endif %}"              \
	"({{ m.role }}:{{ m.content }}){% endfor %}"                                       \
	"{% if add_generation_prompt %}(assistant:<think>\n{% endif %}"

/* A path that stays while others are asked for. */
static const char *keep(const char *path)
{
	static char kept[64][512];
	static unsigned n;
	cr_assert_lt(n, ARRAY_COUNT(kept));
	snprintf(kept[n], sizeof kept[n], "%s", path);
	return kept[n++];
}

static const char *write_text(const char *name, const char *text)
{
	return keep(write_scratch(name, text, strlen(text)));
}

/* A model that generates, with this template (NULL: none). */
static const char *write_model(const char *name, bool add_bos, const char *chat_template)
{
	struct builder b = {0};
	builder_tiny_llama(&b);
	builder_bool(&b, "tokenizer.ggml.add_bos_token", add_bos);
	if (chat_template)
		builder_string(&b, "tokenizer.chat_template", chat_template);
	struct text bytes = builder_file(&b);
	const char *path = keep(write_scratch(name, bytes.data, bytes.n));
	text_free(&bytes);
	builder_free(&b);
	return path;
}

/* The command succeeds and prints this, and nothing else on either stream. */
static void expect_output(struct result r, const char *expected)
{
	cr_expect_eq(r.status, 0, "status %d: %s", r.status, r.err);
	cr_expect_str_eq(r.out, expected);
	cr_expect_eq(r.n_out, strlen(expected));
	cr_expect_str_eq(r.err, "");
	release(&r);
}

/* ---- template -------------------------------------------------------------------------------- */

Test(command_chat, template_of_a_file)
{
	const char *strict = write_text("strict", STRICT);
	const char *one = write_text("one", "[{\"role\": \"user\", \"content\": \"a\"}]");
	expect_output(run("template", "--chat-template-file", strict, "--messages", one),
		"half a text(user:a)(assistant:<think>\n");
	expect_output(run("template", "--chat-template-file", strict, "--messages", one,
			      "--no-generation-prompt"),
		"half a text(user:a)");
	expect_output(run_input(one, "template", "--chat-template-file", strict, "--messages", "-"),
		"half a text(user:a)(assistant:<think>\n");
	expect_output(
		run("template", "--chat-template-file", write_text("empty", ""), "--messages", one),
		"");
	const char *all = write_text("all",
		"{{ messages | length }} {{ tools }} {{ x }} {{ bos_token }} {{ eos_token }} "
		"{{ strftime_now('%d.%m.%Y %H:%M:%S') }} {{ add_generation_prompt }}");
	const char *both = write_text("both", "{\"messages\": [1, 2], \"tools\": [3]}");
	expect_output(run("template", "--chat-template-file", all, "--messages", both, "--bos", "B",
			      "--eos", "E", "--now", "2025-03-09T14:05:07",
			      "--chat-template-kwargs", "{\"x\": 1.5}"),
		"2 [3] 1.5 B E 09.03.2025 14:05:07 True");
	expect_output(run("template", "--chat-template-file", all, "--messages", both, "--tools",
			      write_text("tools", "[4]"), "--now", "2025-03-09"),
		"2 [4]    09.03.2025 00:00:00 True");
}

Test(command_chat, template_of_a_model)
{
	const char *none = write_text("none", "[]");
	const char *model = write_model("model", true, "{{ bos_token }}|{{ eos_token }}");
	expect_output(run("template", "-m", model, "--messages", none), "<s>|</s>");
	expect_output(
		run("template", "-m", model, "--messages", none, "--bos", "", "--eos", "E"), "|E");
	expect_output(run("template", "-m", model, "--messages", none, "--chat-template-file",
			      write_text("own", "{{ eos_token }}")),
		"</s>");
	const char *bare = write_model("bare", true, NULL);
	expect_failure(run("template", "-m", bare, "--messages", none), 1,
		"bare has no chat template; --chat-template-file FILE gives one");
	expect_failure(run("template", "--messages", none), 1, "has no chat template");
}

/* What a template cannot do with, in its words, and not a byte of text (OB-25). */
Test(command_chat, template_failures)
{
	static const struct {
		const char *messages, *out, *words; /* one of the two */
	} cases[] = {
		{"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": "
		 "\"b\"}]",
			NULL, "lapilli: Roles must alternate: user\n"},
		{"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"system\", \"content\": "
		 "\"b\"}]",
			NULL, "lapilli: The system message must be first\n"},
		{"[{\"role\": \"user\", \"content\": null}]",
			"half a text(user:None)(assistant:<think>\n", NULL},
		{"[]", "half a text(assistant:<think>\n", NULL},
		{"{}", NULL, "expected a list, or an object with a list \"messages\""},
		{"[{]", NULL, "lapilli: the messages, line 1, column 3: "},
		{"", NULL, "lapilli: the messages, line 1, column 1: "},
		{"[\"\xE6\xAD\"]", NULL, "found byte 230, expected UTF-8"},
	};
	const char *strict = write_text("strict", STRICT);
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const char *path = write_text("messages", cases[i].messages);
		struct result r =
			run("template", "--chat-template-file", strict, "--messages", path);
		if (cases[i].out)
			expect_output(r, cases[i].out);
		else
			expect_failure(r, 1, cases[i].words);
	}
	const char *none = write_text("none", "[]");
	expect_failure(run("template", "--messages", none, "--chat-template-file",
			       write_text("broken", "a\n{{ b c }}")),
		1, "chat template, line 2, column 6: found 'c', expected '}}'");
	expect_failure(run("template", "--messages", none, "--chat-template-file", strict,
			       "--chat-template-kwargs", "[]"),
		1, "the template's arguments: found list, expected an object");
	expect_failure(run("template", "--messages", none, "--chat-template-file", strict,
			       "--tools", write_text("tools", "{}")),
		1, "the tools: found dict, expected a list");
	expect_failure(
		run("template", "--chat-template-file", strict), 2, "template needs --messages");
	expect_failure(
		run("template", "--messages", scratch("gone"), "--chat-template-file", strict), 8,
		"gone");
	expect_failure(run("template", "--messages", none, "--chat-template-file", scratch("gone")),
		8, "gone");
	expect_failure(run("template", "--messages", none, "--chat-template-file", strict, "--now",
			       "2025-02-30"),
		2, "--now: found \"2025-02-30\", expected a time");
	expect_failure(run("template", "--messages", none, "--chat-template-file", strict, "--now",
			       "2025-02-03T4"),
		2, "--now");
	expect_failure(run("template", "-p", "a"), 2, "-p is no option of template");
}

/* ---- generate -cnv --------------------------------------------------------------------------- */

#define CNV(model) "-m", model, CPU, "-n", "3", "--json", "--temp", "0"

/* The ids of the prompt that the command made. */
static void expect_prompt(struct result r, size_t n, const int32_t *expected)
{
	json_t *json = parse_json(&r), *ids = json_object_get(json, "prompt_tokens");
	cr_expect_eq(json_array_size(ids), n, "%zu ids", json_array_size(ids));
	for (size_t i = 0; i < n; i++)
		cr_expect_eq(json_integer_value(json_array_get(ids, i)), expected[i], "id %zu", i);
	json_decref(json);
	release(&r);
}

#define EXPECT_PROMPT(result, ...)                                                      \
	expect_prompt(result, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), \
		(const int32_t[]){__VA_ARGS__})

/* Bytes of the tiny vocabulary; 259 is a space, 260 "a", 263 "ab". */
#define B(c)      (3 + (c))
#define USER_AB   259, B('['), B('u'), B('s'), B('e'), B('r'), B(']'), 263
#define ANSWER    B('['), 260, B(']')
#define SYSTEM_X  259, B('['), B('s'), B('y'), B('s'), B('t'), B('e'), B('m'), B(']'), B('x')
#define USER_TEXT B('['), B('u'), B('s'), B('e'), B('r'), B(']')

/* OB-25: one BOS whoever writes it, two where a prompt as it stands has one of its own, and a warning. */
Test(command_chat, bos_once)
{
	const char *both = write_model("both", true, TURNS_WITH_BOS);
	EXPECT_PROMPT(run(CNV(both), "-cnv", "-p", "ab"), 1, USER_AB, ANSWER);
	const char *adds = write_model("adds", true, TURNS);
	EXPECT_PROMPT(run(CNV(adds), "-cnv", "-p", "ab"), 1, USER_AB, ANSWER);
	const char *writes = write_model("writes", false, TURNS_WITH_BOS);
	EXPECT_PROMPT(run(CNV(writes), "-cnv", "-p", "ab"), 1, USER_AB, ANSWER);
	const char *neither = write_model("neither", false, TURNS);
	EXPECT_PROMPT(run(CNV(neither), "-cnv", "-p", "ab"), USER_AB, ANSWER);

	struct result raw = run(CNV(both), "-p", "<s>ab");
	cr_expect(
		strstr(raw.err, "warning: the prompt begins with the model's BOS"), "%s", raw.err);
	EXPECT_PROMPT(raw, 1, 1, 262, 261);
	raw = run(CNV(writes), "-p", "<s>ab");
	cr_expect_str_eq(raw.err, "");
	EXPECT_PROMPT(raw, 1, 262, 261);
}

Test(command_chat, system_message)
{
	const char *model = write_model("model", true, TURNS);
	const char *x = write_text("x", "x"), *ab = write_text("ab", "ab");
	EXPECT_PROMPT(run(CNV(model), "-cnv", "-sys", "x", "-p", "ab"), 1, SYSTEM_X, USER_TEXT, 263,
		ANSWER);
	EXPECT_PROMPT(run(CNV(model), "-sys", "x", "-f", ab), 1, SYSTEM_X, USER_TEXT, 263, ANSWER);
	EXPECT_PROMPT(run(CNV(model), "-sysf", x, "-p", "ab"), 1, SYSTEM_X, USER_TEXT, 263, ANSWER);
	EXPECT_PROMPT(run(CNV(model), "-e", "-sys", "\\x78", "-p", "\\x61b"), 1, SYSTEM_X,
		USER_TEXT, 263, ANSWER);
	EXPECT_PROMPT(run(CNV(model), "-no-cnv", "-p", "ab"), 1, 262, 261);
	EXPECT_PROMPT(run(CNV(model), "-cnv", "-p", "ab", "--chat-template-file",
			      write_text("own", "{{ messages[0].content }}{{ x }}"),
			      "--chat-template-kwargs", "{\"x\": \"a\"}"),
		1, 262, 261, 260);
	/* quotes, backslashes and NULs are text, not JSON */
	const char *marks = write_scratch("marks", "\"\\\0", 3);
	EXPECT_PROMPT(run(CNV(model), "-cnv", "-f", marks), 1, 259, USER_TEXT, B('"'), B('\\'),
		B(0), ANSWER);
}

Test(command_chat, mistakes)
{
	const char *model = write_model("model", true, STRICT "{{ raise_exception('No!') }}");
	const char *bare = write_model("bare", true, NULL);
	expect_failure(run(CNV(model), "-cnv", "-p", "ab"), 1, "lapilli: No!\n");
	expect_failure(run(CNV(bare), "-cnv", "-p", "ab"), 1,
		"bare has no chat template; --chat-template-file FILE gives one");
	expect_failure(run(CPU, "-cnv", "-p", "ab"), 1, "demo model has no chat template");
	expect_failure(run(CNV(model), "-cnv"), 2, "a conversation needs a message: -p TEXT");
	expect_failure(run(CNV(model), "-sys", "a"), 2, "a conversation needs a message");
	expect_failure(run(CNV(model), "-sys", "a", "-p", "b", "--no-conversation"), 2,
		"found -sys and --no-conversation");
	expect_failure(run(CNV(model), "-cnv", "-p", "b", "-no-cnv"), 2,
		"found -cnv and --no-conversation");
	expect_failure(run(CNV(model), "-sys", "a", "-sysf", "b", "-p", "c"), 2,
		"-sys and -sysf both name the text");
	expect_failure(run(CNV(model), "-sysf", "-", "-f", "-"), 2,
		"-f - and -sysf - both read standard input");
	expect_failure(run(CNV(model), "-sysf", scratch("gone"), "-p", "a"), 8, "gone");
	expect_failure(run(CNV(model), "-p", "a", "--chat-template-file", "x"), 2,
		"--chat-template-file is for a conversation");
	expect_failure(run(CNV(model), "-p", "a", "--chat-template-kwargs", "{}"), 2,
		"--chat-template-kwargs is for a conversation");
	/* OB-16: a prompt may be any bytes, a message is text */
	const char *bytes = keep(write_scratch("bytes", "a\xE6\xAD", 3));
	expect_failure(run(CNV(model), "-cnv", "-f", bytes), 2,
		"the user message: found byte 0xE6 at place 1, expected UTF-8");
	EXPECT_PROMPT(run(CNV(model), "-f", bytes), 1, 262, B(0xE6), B(0xAD));
}

/* The answer alone; with -sp what it answers to. */
Test(command_chat, output)
{
	const char *model = write_model("model", true, TURNS_WITH_BOS);
	struct result r = run("-m", model, CPU, "-n", "0", "-cnv", "-p", "ab");
	cr_expect(r.status == 0 && r.n_out == 0, "%d: %s", r.status, r.out);
	release(&r);
	r = run("-m", model, CPU, "-n", "0", "-cnv", "-p", "ab", "-sp");
	cr_expect_str_eq(r.out, "<s>[user]ab[a]");
	release(&r);
	r = run("-m", model, CPU, "-n", "0", "-cnv", "-p", "ab", "-sp", "--no-display-prompt");
	cr_expect(r.status == 0 && r.n_out == 0, "%d: %s", r.status, r.out);
	release(&r);
}

/* ---- invalid bytes --------------------------------------------------------------------------- */

/* OB-16: the same bytes by -p, as a file and as standard input are the same tokens, and come back. */
Test(command_chat, any_bytes)
{
	static const struct {
		const char *bytes;
		size_t n;
	} cases[] = {{"\xE6\xAD", 2}, {"\xE2\x80", 2}, {"\xFF", 1}, {"\xC0\x80", 2},
		{"\xED\xA0\x80", 3}, {"\xF4\x90\x80\x80", 4}, {"b\0b", 3}};
	const char *models[] = {
		write_model("spm", false, NULL), keep(source_path("models/austen.gguf"))};
	for (size_t i = 0; i < ARRAY_COUNT(cases) * ARRAY_COUNT(models); i++) {
		const char *bytes = cases[i / 2].bytes, *model = models[i % 2];
		size_t n = cases[i / 2].n;
		const char *path = write_scratch("bytes", bytes, n);
		struct result file = run("tokenize", "--ids", "-m", model, "-f", path);
		struct result in = run_input(path, "tokenize", "--ids", "-m", model, "-f", "-");
		cr_assert_eq(file.status, 0, "%s", file.err);
		cr_expect_str_eq(in.out, file.out);
		if (!memchr(bytes, 0, n)) {
			struct result typed = run("tokenize", "--ids", "-m", model, "-p", bytes);
			cr_expect_str_eq(typed.out, file.out);
			release(&typed);
		}
		file.out[file.n_out - 1] = '\0';
		struct result back = run("tokenize", "-m", model, "--decode", file.out);
		cr_expect(back.n_out == n && !memcmp(back.out, bytes, n), "case %zu: %s", i,
			file.out);
		release(&back);
		release(&file);
		release(&in);
	}
	const char *json = write_text("json", "{\"text\": \"\xE6\xAD\"}\n");
	expect_failure(run("tokenize", "--jsonl", json), 1, "line 1: not JSON");
}

/* ---- bench ----------------------------------------------------------------------------------- */

Test(command_chat, bench_of_a_tokenizer)
{
	const char *ab = write_text("ab", "ab ab");
	struct result r = run("bench", "--tokenize", "-f", ab, "--json");
	json_t *json = parse_json(&r);
	json_t *row = json_array_get(json_object_get(json, "texts"), 0);
	cr_expect_eq(json_array_size(json_object_get(json, "texts")), 1);
	cr_expect_eq(number_at(row, "bytes", NULL), 5);
	struct result ids = run("tokenize", "--ids", "-f", ab, "--no-bos");
	json_t *list = parse_json(&ids);
	cr_expect_eq(number_at(row, "tokens", NULL), (json_int_t)json_array_size(list));
	cr_expect_gt(json_real_value(json_object_get(row, "mb_per_second")), 0);
	cr_expect_gt(json_real_value(json_object_get(json, "load_seconds")), 0);
	json_decref(list);
	json_decref(json);
	release(&ids);
	release(&r);
	expect_failure(run("bench", "--tokenize", "-m", scratch("gone")), 8, "gone");
}

/* Without a text: the kinds of text, and their sum. */
Test(command_chat, bench_mix)
{
	static const char *const names[] = {"prose", "code", "json", "scripts", "cjk", "all"};
	struct result r = run("bench", "--tokenize", "--json");
	json_t *json = parse_json(&r), *texts = json_object_get(json, "texts");
	json_int_t sum = 0;
	cr_expect_eq(json_array_size(texts), ARRAY_COUNT(names));
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		json_t *row = json_array_get(texts, i);
		cr_expect_str_eq(json_string_value(json_object_get(row, "text")), names[i]);
		cr_expect_geq(number_at(row, "bytes", NULL), 1 << 20);
		if (i + 1 < ARRAY_COUNT(names))
			sum += number_at(row, "tokens", NULL);
		else
			cr_expect_eq(number_at(row, "tokens", NULL), sum);
	}
	json_decref(json);
	release(&r);
}
