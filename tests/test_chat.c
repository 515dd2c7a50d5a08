/* Chats through the library: whose template, whose tokens, and BOS once (github.com/abetlen/
 * llama-cpp-python, issue 1501). */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_builder.h"
#include "support.h"

static struct lap_model *model;
static struct text file;

/* A model of the tiny vocabulary: BOS is 1, "<s>". */
static void open_model(bool add_bos, int bos_type, const char *chat_template)
{
	struct builder b = {0};
	int32_t types[264];
	for (int i = 0; i < 264; i++)
		types[i] = i < 3 ? (i == 0 ? 2 : 3) : i < 259 ? 6 : 1;
	types[1] = bos_type;
	builder_string(&b, "general.architecture", "llama");
	builder_tiny_vocab(&b);
	builder_i32s(&b, "tokenizer.ggml.token_type", types, 264);
	builder_bool(&b, "tokenizer.ggml.add_bos_token", add_bos);
	builder_bool(&b, "tokenizer.ggml.add_eos_token", true);
	if (chat_template)
		builder_string(&b, "tokenizer.chat_template", chat_template);
	file = builder_file(&b);
	builder_free(&b);
	const struct lap_model_options options = {.vocab_only = true};
	struct lap_error err = {0};
	cr_assert_eq(lap_model_open_memory(file.data, file.n, "tiny", &options, &model, &err),
		LAP_OK, "%s", err.text);
}

static void close_model(void)
{
	lap_model_close(model);
	model = NULL;
	text_free(&file);
}

TestSuite(chat, .fini = close_model);

static void expect_text(const struct lap_chat *chat, const char *expected)
{
	char *text;
	size_t n;
	struct lap_error err = {0};
	cr_expect_eq(lap_chat_render(model, chat, &text, &n, &err), LAP_OK, "%s", err.text);
	cr_assert(text, "expected %s", expected);
	cr_expect_str_eq(text, expected);
	cr_expect_eq(n, strlen(expected));
	lap_free(text);
}

static void expect_failure(const struct lap_chat *chat, enum lap_status status, const char *words)
{
	char *text = (char *)"?";
	size_t n = 1;
	struct lap_error err = {0};
	cr_expect_eq(lap_chat_render(model, chat, &text, &n, &err), status, "%s", err.text);
	cr_expect_str_eq(err.text, words);
	cr_expect_null(text);
	cr_expect_eq(n, 0);
}

Test(chat, the_model_s_template_and_tokens)
{
	open_model(true, 3,
		"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ "
		"add_generation_prompt }}{{ tools }}{{ x }}");
	struct lap_chat chat = {.messages = {"[{\"content\": \"hi\"}]", 0}};
	expect_text(&chat, "<s>hi</s>TrueNone");
	chat.no_generation_prompt = true;
	chat.tools = (struct lap_text){"[1]", 0};
	chat.kwargs = (struct lap_text){"{\"x\": 5}", 0};
	expect_text(&chat, "<s>hi</s>False[1]5");
	chat.bos = "B";
	chat.eos = "";
	expect_text(&chat, "BhiFalse[1]5");
	chat.chat_template = (struct lap_text){"{{ messages | length }}{{ bos_token }}", 0};
	expect_text(&chat, "1B");
	chat.chat_template.n_bytes = 3; /* bytes need no NUL behind them */
	expect_failure(&chat, LAP_ERROR,
		"chat template, line 1, column 4: found the end of the template, expected an "
		"expression");
}

Test(chat, a_template_of_its_own_needs_no_model)
{
	const struct tm now = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9, .tm_hour = 14};
	struct lap_chat chat = {.messages = {"[]", 0},
		.now = &now,
		.chat_template = {"{{ bos_token is defined }} {{ strftime_now('%d %b %Y') }}", 0}};
	expect_text(&chat, "False 09 Mar 2025");
	chat.bos = "<s>";
	expect_text(&chat, "True 09 Mar 2025");
	chat.chat_template = (struct lap_text){"", 0};
	expect_text(&chat, "");
}

/* Never half a text, and no other template in its place. */
Test(chat, failures)
{
	struct lap_chat chat = {.messages = {"[]", 0}};
	expect_failure(&chat, LAP_USAGE, "a chat needs a template, its own or a model's");
	open_model(true, 3, NULL);
	expect_failure(&chat, LAP_ERROR, "tiny has no chat template");
	chat.chat_template = (struct lap_text){"half{{ raise_exception('Only one system!') }}", 0};
	expect_failure(&chat, LAP_ERROR, "Only one system!");
	chat.messages = (struct lap_text){0};
	expect_failure(&chat, LAP_ERROR,
		"the messages: found NoneType, expected a list, or an object with a list "
		"\"messages\"");
	chat.messages = (struct lap_text){"[\"\xE6\xAD\"]", 0};
	expect_failure(
		&chat, LAP_ERROR, "the messages, line 1, column 3: found byte 230, expected UTF-8");
}

/* Of the tiny vocabulary: 259 is a space, 260 "a", 261 "b", 262 " a", 263 "ab". */
static void expect_ids(const char *text, size_t n_expected, const int32_t *expected)
{
	int32_t *ids;
	size_t n;
	struct lap_error err = {0};
	cr_assert_eq(lap_chat_tokenize(model, text, strlen(text), &ids, &n, &err), LAP_OK, "%s",
		err.text);
	cr_expect_eq(n, n_expected, "%s: %zu ids", text, n);
	for (size_t i = 0; i < n && i < n_expected; i++)
		cr_expect_eq(ids[i], expected[i], "%s: id %zu is %d", text, i, ids[i]);
	lap_free(ids);
}

#define EXPECT_IDS(text, ...)                                                      \
	expect_ids(text, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), \
		(const int32_t[]){__VA_ARGS__})

Test(chat, bos_once)
{
	open_model(true, 3, NULL);
	EXPECT_IDS("ab", 1, 262, 261);
	EXPECT_IDS("<s>ab", 1, 262, 261);
	EXPECT_IDS("<s>", 1);
	EXPECT_IDS("", 1);
	EXPECT_IDS("b<s>a</s>", 1, 259, 261, 1, 262, 2);
	EXPECT_IDS("<s><s>a", 1, 1, 262); /* the template wrote the second itself */
	EXPECT_IDS("<s", 1, 259, 3 + '<', 3 + 's');
	close_model();
	/* A file that does not say that its BOS is a control token. */
	open_model(true, 1, NULL);
	EXPECT_IDS("<s>ab", 1, 262, 261);
	EXPECT_IDS("ab", 1, 262, 261);
}

Test(chat, no_bos_where_the_model_wants_none)
{
	open_model(false, 3, NULL);
	EXPECT_IDS("ab", 262, 261);
	EXPECT_IDS("<s>ab", 1, 262, 261);
	int32_t *ids;
	size_t n;
	cr_assert_eq(lap_chat_tokenize(model, "", 0, &ids, &n, NULL), LAP_OK);
	cr_expect(ids && n == 0);
	lap_free(ids);
}

static void expect_no_tokenizer(const char *name)
{
	struct builder b = {0};
	builder_string(&b, "general.architecture", "llama");
	if (name)
		builder_string(&b, "tokenizer.ggml.model", name);
	file = builder_file(&b);
	builder_free(&b);
	const struct lap_model_options options = {.vocab_only = true};
	int32_t *ids;
	size_t n;
	struct lap_error err = {0};
	cr_assert_eq(lap_model_open_memory(file.data, file.n, "bare", &options, &model, &err),
		LAP_OK, "%s", err.text);
	cr_expect_null(lap_model_info(model)->tokenizer);
	cr_expect_eq(lap_chat_tokenize(model, "a", 1, &ids, &n, &err), LAP_BAD_MODEL);
	cr_expect(strstr(err.text, "bare has no tokenizer"), "%s", err.text);
	cr_expect(!ids && n == 0);
}

Test(chat, no_tokenizer)
{
	expect_no_tokenizer(NULL);
}

Test(chat, tokenizer_none)
{
	expect_no_tokenizer("none");
}
