/* Generation as a user of the command asks for it: files of prompts, what ends a text, log-probabilities,
 * contexts that overflow, samplers. On the CPU reference; tokens are enough where the model is tiny. */
#include <criterion/criterion.h>
#include <math.h>

#include "command.h"

#define TINY "-m", vector_path("golden/llama-freqs.gguf"), CPU

static const char *file_of(const char *text)
{
	return write_scratch("prompts", text, strlen(text));
}

static json_t *json_of(struct result r)
{
	json_t *json = parse_json(&r);
	release(&r);
	return json;
}

/* One result, of a list too. */
static const json_t *at(const json_t *json, size_t i)
{
	cr_assert_lt(i, json_array_size(json));
	return json_array_get(json, i);
}

static const char *string_at(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));
	cr_assert(text, "no text %s", key);
	return text;
}

static const json_t *tokens_of(const json_t *json)
{
	const json_t *tokens = json_object_get(json, "tokens");
	cr_assert(json_is_array(tokens));
	return tokens;
}

static size_t n_tokens(const json_t *json)
{
	return json_array_size(tokens_of(json));
}

static json_int_t token_at(const json_t *json, size_t i)
{
	return json_integer_value(json_array_get(tokens_of(json), i));
}

static void expect_same_tokens(const json_t *a, const json_t *b, const char *what)
{
	cr_expect(json_equal(tokens_of(a), tokens_of(b)), "%s: other tokens", what);
}

/* ---- files of prompts ------------------------------------------------------------------------ */

/* Requests with parameters of their own, as many at a time as you like, give what each gives alone, in
 * the file's order (OB-19: a seed means the same whoever else runs). */
Test(command_batch, equals_alone)
{
	static const char *const lines[] = {
		"{\"prompt\": [1, 5, 9], \"seed\": 42, \"n_predict\": 20}\n",
		"{\"prompt\": [7], \"temperature\": 0, \"max_tokens\": 9}\n",
		"{\"prompt\": [1, 5, 9], \"temperature\": 1.5, \"top_k\": 0, \"top_p\": 1, "
		"\"min_p\": 0, \"seed\": 3}\n",
		"{\"prompt\": [30, 31, 32, 33, 34, 35], \"repeat_penalty\": 1.3, "
		"\"presence_penalty\": 0.5, \"frequency_penalty\": 0.25, \"repeat_last_n\": -1}\n",
		"{\"prompt\": [2, 2], \"stop_token_ids\": [1, 2, 3], \"min_tokens\": 4, "
		"\"logit_bias\": {\"5\": 2.5, \"6\": false}, \"ban\": [9]}\n",
		"{\"prompt\": [8, 9], \"typical_p\": 0.7, \"samplers\": \"llama.cpp\"}\n",
		"{\"prompt\": [1, 5, 9], \"seed\": 42, \"n_predict\": 20}\n",
	};
	static const char *const parallel[] = {"1", "3", "0"};
	struct text all = {0};
	for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
		text_append(&all, lines[i], strlen(lines[i]));
	json_t *alone[ARRAY_COUNT(lines)];
	for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
		alone[i] = json_of(run(TINY, "--json", "-n", "12", "-s", "7", "--ignore-eos",
			"--prompts-file", file_of(lines[i])));
	for (size_t p = 0; p < ARRAY_COUNT(parallel); p++) {
		json_t *list = json_of(run(TINY, "--json", "-n", "12", "-s", "7", "--ignore-eos",
			"--prompts-file", file_of(all.data), "-np", parallel[p]));
		cr_assert_eq(json_array_size(list), ARRAY_COUNT(lines));
		for (size_t i = 0; i < ARRAY_COUNT(lines); i++) {
			expect_same_tokens(at(list, i), at(alone[i], 0), lines[i]);
			cr_expect_str_eq(
				string_at(at(list, i), "text"), string_at(at(alone[i], 0), "text"));
			cr_expect_eq(number_at(at(list, i), "line", NULL), (json_int_t)i + 1);
		}
		cr_expect_eq(number_at(at(list, 0), "seed", NULL), 42);
		cr_expect_eq(number_at(at(list, 1), "seed", NULL), 7);
		cr_expect_eq(n_tokens(at(list, 0)), 20);
		cr_expect_eq(n_tokens(at(list, 1)), 9);
		cr_expect_eq(n_tokens(at(list, 2)), 12);
		cr_expect_geq(n_tokens(at(list, 4)), 5);
		cr_expect(json_is_true(json_object_get(at(list, 5), "drawn_on_host")));
		json_decref(list);
	}
	for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
		json_decref(alone[i]);
	text_free(&all);
}

/* Without a seed every prompt has its own, which is reported (OB-19). */
Test(command_batch, seeds)
{
	json_t *list = json_of(run(TINY, "--json", "-n", "16", "--temp", "1", "--prompts-file",
		file_of("{\"prompt\":[4,5]}\n{\"prompt\":[4,5]}\n{\"prompt\":[4,5]}\n")));
	for (size_t i = 1; i < 3; i++) {
		cr_expect_neq(number_at(at(list, i), "seed", NULL),
			number_at(at(list, i - 1), "seed", NULL));
		cr_expect(!json_equal(tokens_of(at(list, i)), tokens_of(at(list, i - 1))));
	}
	json_decref(list);
}

/* A prompt on each line: blank lines are passed over, line ends of either kind are no part of it, with -e
 * escapes are read; texts come in the file's order, each under its line. */
Test(command_batch, plain_lines)
{
	const char *path = file_of("\nIt was\n   \nShe had\\n\r\nHe");
	static const char *const escapes[] = {"It was", "She had\n", "He"};
	static const json_int_t numbers[] = {2, 4, 5};
	json_t *list = json_of(run(CPU, "--json", "--temp", "0", "-n", "3", "-e", "--ignore-eos",
		"--prompts-file", path));
	cr_assert_eq(json_array_size(list), 3);
	struct text expected = {0};
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(number_at(at(list, i), "line", NULL), numbers[i]);
		json_t *one = json_of(run(
			CPU, "--json", "--temp", "0", "-n", "3", "--ignore-eos", "-p", escapes[i]));
		cr_expect(json_equal(json_object_get(one, "prompt_tokens"),
			json_object_get(at(list, i), "prompt_tokens")));
		expect_same_tokens(one, at(list, i), escapes[i]);
		text_printf(&expected, "%s==> line %d (length) <==\n%s%s\n", i ? "\n" : "",
			(int)numbers[i], escapes[i], string_at(one, "text"));
		json_decref(one);
	}
	struct result r =
		run(CPU, "--temp", "0", "-n", "3", "-e", "--ignore-eos", "--prompts-file", path);
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(r.out, expected.data);
	cr_expect(strstr(r.err, "3 of 3 prompts") && strstr(r.err, "9 generated"), "%s", r.err);
	release(&r);
	text_free(&expected);
	json_decref(list);
}

Test(command_batch, without_escapes_a_backslash_stays)
{
	json_t *list = json_of(run(CPU, "--json", "-n", "0", "--prompts-file", file_of("a\\nb")));
	json_t *one = json_of(run(CPU, "--json", "-n", "0", "-p", "a\\nb"));
	cr_expect(json_equal(json_object_get(one, "prompt_tokens"),
		json_object_get(at(list, 0), "prompt_tokens")));
	json_decref(one);
	json_decref(list);
}

Test(command_batch, mistakes_name_line_and_key)
{
	static const char *const cases[][2] = {
		{"{\"prompt\":\"a\",\"topk\":1}", "unknown key \"topk\""},
		{"{\"prompt\":\"a\",\"topk\":1}", "the nearest is \"top_k\""},
		{"{\"prompt\":\"a\",\"model\":\"x\"}", "unknown key \"model\""},
		{"{\"prompt\":\"a\",\"s\":1}", "unknown key \"s\""},
		{"{\"prompt\":\"a\",\"--seed\":1}", "unknown key \"--seed\""},
		{"{\"prompt\":\"a\",\"top_k\":\"x\"}", "\"top_k\" needs a number"},
		{"{\"prompt\":\"a\",\"top_k\":[1]}", "\"top_k\" needs a number"},
		{"{\"prompt\":\"a\",\"top_k\":null}", "\"top_k\" is null"},
		{"{\"prompt\":\"a\",\"top_k\":{}}", "\"top_k\" is an object"},
		{"{\"prompt\":\"a\",\"top_p\":2}", "top_p: found \"2\""},
		{"{\"prompt\":\"a\",\"seed\":1.5}", "seed: found \"1.5\""},
		{"{\"prompt\":\"a\",\"n_predict\":-3}", "n_predict: found \"-3\""},
		{"{\"prompt\":\"a\",\"ignore_eos\":1}", "\"ignore_eos\" needs true or false"},
		{"{\"prompt\":\"a\",\"stop\":3}", "\"stop\" needs a string or a list"},
		{"{\"prompt\":\"a\",\"stop\":[\"a\",3]}", "item 2 of the list"},
		{"{\"prompt\":\"a\",\"stop\":\"a\\u0000b\"}", "\"stop\" has a NUL"},
		{"{\"prompt\":\"a\",\"stop_token\":\"2\"}", "\"stop_token\" needs a list"},
		{"{\"prompt\":\"a\",\"logit_bias\":{\"5\":true}}", "the bias of token 5"},
		{"{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", "--logit-bias: found \"x+1\""},
		{"{\"prompt\":\"a\",\"context_overflow\":\"roll\"}", "expected stop|shift|crop"},
		{"{\"prompt\":\"a\",\"logprobs\":1}", "needs --json"},
		{"{\"prompt\":\"a\",\"grammar\":\"root ::= [a]\",\"json_schema\":{}}",
			"found \"grammar\" and \"json_schema\""},
		{"{\"prompt\":\"a\",\"top_k\":1,\"top_k\":2}", "duplicate"},
		{"{\"prompt\":\"a\",\"\":1}", "a key without a name"},
		{"{\"top_k\":1}", "no \"prompt\""},
		{"{\"prompt\":7}", "\"prompt\" needs a text"},
		{"{\"prompt\":[]}", "\"prompt\" needs a text"},
		{"{\"prompt\":[1,-1]}", "number 2 of its list is no token id"},
		{"{\"prompt\":[1,2.0]}", "number 2 of its list is no token id"},
		{"{\"prompt\":\"a\"", "expected an object of JSON"},
		{"[1]", "expected an object of JSON"},
		{"plain", "expected an object of JSON"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		char text[256];
		snprintf(text, sizeof text, "{\"prompt\":\"a\"}\n\n%s\n", cases[i][0]);
		const char *path = file_of(text);
		struct result r = run(CPU, "--prompts-file", path);
		cr_expect(strstr(r.err, "prompts, line 3: "), "%s: %s", cases[i][0], r.err);
		expect_failure(r, 2, cases[i][1]);
	}
	expect_failure(run(CPU, "--prompts-file", file_of("\n \n")), 2, "has no prompt");
	expect_failure(run(CPU, "--prompts-file", scratch("none")), 8, "none");
	expect_failure(run(CPU, "-cnv", "--prompts-file", file_of("{\"prompt\":[1]}")), 2,
		"expected the text of a message");
}

/* OB-21, several at once in one cache: who does not fit says so in its place, and the others go on. */
Test(command_batch, one_that_fails)
{
	struct text file = {0};
	static const int lengths[] = {63, 64, 5, 65, 200};
	for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
		text_append(&file, "{\"prompt\":[4", 12);
		for (int n = 1; n < lengths[i]; n++)
			text_printf(&file, ",%d", 4 + n);
		text_append(&file, "]}\n", 3);
	}
	const char *path = file_of(file.data);
	struct result r = run(TINY, "-c", "64", "-n", "3", "--ignore-eos", "--json",
		"--prompts-file", path, "-np", "1");
	cr_expect_eq(r.status, 2);
	cr_expect(strstr(r.err, "line 2: ") && strstr(r.err, "line 4: "), "%s", r.err);
	json_error_t error;
	json_t *list = json_loads(r.out, 0, &error);
	cr_assert(list, "%s in %s", error.text, r.out);
	for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
		const json_t *failure = json_object_get(at(list, i), "error");
		const bool fits = lengths[i] < 64;
		cr_expect_eq(failure == NULL, fits, "%d tokens", lengths[i]);
		cr_expect_eq(n_tokens(at(list, i)), fits ? lengths[i] == 63 ? 1 : 3 : 0);
		if (fits)
			cr_expect_str_eq(string_at(at(list, i), "finish_reason"), "length");
		else
			cr_expect(number_at(failure, "status", NULL) == 2 &&
				strstr(string_at(failure, "message"), "leaves no room"));
	}
	json_decref(list);
	release(&r);
	r = run(TINY, "-c", "64", "-n", "3", "--prompts-file", path, "-np", "1");
	cr_expect_eq(r.status, 2);
	cr_expect(strstr(r.out, "==> line 2 (failed) <=="), "%s", r.out);
	release(&r);
	text_free(&file);
}

/* Each message is a conversation of its own behind one system message. */
Test(command_batch, conversations)
{
	const char *template = write_scratch("template",
		"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<reply>", 71);
	json_t *list = json_of(run(CPU, "--json", "-n", "2", "--temp", "0", "-sys", "Short.",
		"--chat-template-file", template, "--prompts-file", file_of("Why\nHow\n")));
	static const char *const rendered[] = {
		"<system>Short.<user>Why<reply>", "<system>Short.<user>How<reply>"};
	cr_assert_eq(json_array_size(list), 2);
	for (size_t i = 0; i < 2; i++) {
		json_t *one =
			json_of(run(CPU, "--json", "-n", "2", "--temp", "0", "-p", rendered[i]));
		cr_expect(json_equal(json_object_get(one, "prompt_tokens"),
			json_object_get(at(list, i), "prompt_tokens")));
		json_decref(one);
	}
	json_decref(list);
}

/* ---- what ends a text ------------------------------------------------------------------------ */

static const char prompt[] = "It was";

/* OB-20: the text before the first place of any of them, across tokens; -r is another name; with -e
 * escapes are read. */
Test(command_batch, stop_strings)
{
	json_t *whole = json_of(
		run(CPU, "--json", "--temp", "0", "-n", "24", "--ignore-eos", "-p", prompt));
	const char *text = string_at(whole, "text");
	cr_assert_gt(strlen(text), 30);
	for (size_t from = 5; from < 22; from += 8) {
		char stop[6] = "", *before = NULL;
		strncat(stop, text + from, 5);
		before = strndup(text, (size_t)(strstr(text, stop) - text));
		json_t *cut = json_of(run(CPU, "--json", "--temp", "0", "-n", "24", "--ignore-eos",
			"-p", prompt, "--stop", "never in there", "-r", stop));
		cr_expect_str_eq(string_at(cut, "text"), before);
		cr_expect_str_eq(string_at(cut, "finish_reason"), "stop");
		cr_expect_leq(n_tokens(cut), n_tokens(whole));
		json_decref(cut);
		char escaped[64];
		snprintf(escaped, sizeof escaped, "\\x%02x%s", (unsigned char)stop[0], stop + 1);
		struct result r = run(CPU, "-e", "--temp", "0", "-n", "24", "--ignore-eos", "-p",
			prompt, "--stop", escaped, "--no-display-prompt");
		cr_expect_str_eq(r.out, before);
		cr_expect(strstr(r.err, "(stop)"), "%s", r.err);
		release(&r);
		free(before);
	}
	json_decref(whole);
	expect_failure(run(CPU, "--json", "-p", prompt, "--stop", ""), 2, "stop string 1 is empty");
}

/* Tokens that end, tokens that are never drawn, and how soon something may end. */
Test(command_batch, tokens_that_end_or_are_banned)
{
	const char *greedy = "{\"prompt\":[11,12,13]}\n";
	json_t *plain = json_of(run(TINY, "--json", "--temp", "0", "-n", "30", "--ignore-eos",
		"--prompts-file", file_of(greedy)));
	const json_int_t token = token_at(at(plain, 0), 6);
	size_t first = 0;
	while (token_at(at(plain, 0), first) != token)
		first++;
	char id[16];
	snprintf(id, sizeof id, "%lld", (long long)token);
	json_t *ended = json_of(run(TINY, "--json", "--temp", "0", "-n", "30", "--ignore-eos",
		"--stop-token", id, "--prompts-file", file_of(greedy)));
	cr_expect_eq(n_tokens(at(ended, 0)), first + 1);
	cr_expect_str_eq(string_at(at(ended, 0), "finish_reason"), "stop");
	json_t *later = json_of(run(TINY, "--json", "--temp", "0", "-n", "30", "--ignore-eos",
		"--stop-token", id, "--min-tokens", "20", "--prompts-file", file_of(greedy)));
	cr_expect_gt(n_tokens(at(later, 0)), 20);
	json_t *banned = json_of(run(TINY, "--json", "--temp", "0", "-n", "30", "--ignore-eos",
		"--ban", id, "--prompts-file", file_of(greedy)));
	cr_expect_eq(n_tokens(at(banned, 0)), 30);
	for (size_t i = 0; i < 30; i++)
		cr_expect_neq(token_at(at(banned, 0), i), token);
	json_decref(banned);
	json_decref(later);
	json_decref(ended);
	json_decref(plain);
}

Test(command_batch, time_limit)
{
	json_t *list = json_of(run(TINY, "--json", "-n", "100000", "--context-overflow", "shift",
		"-c", "64", "--ignore-eos", "--time-limit", "0.05", "--prompts-file",
		file_of("{\"prompt\":[11]}\n")));
	cr_expect_str_eq(string_at(at(list, 0), "finish_reason"), "time");
	cr_expect_geq(n_tokens(at(list, 0)), 1);
	json_decref(list);
}

/* ---- a full context -------------------------------------------------------------------------- */

Test(command_batch, contexts_that_overflow)
{
	static const char *const ways[][5] = {
		{"--context-overflow", "stop", "-n", "90", NULL},
		{"--context-overflow", "shift", "-n", "90", NULL},
		{"--context-overflow=shift", "--keep", "4", "-n", "90"},
		{"--context-overflow", "crop", "-n", "90", NULL},
		{"--context-overflow", "stop", "-n", "-2", NULL},
	};
	static const size_t n_expected[] = {61, 90, 90, 90, 61};
	json_t *results[ARRAY_COUNT(ways)];
	for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
		const char *w[5] = {ways[i][0], ways[i][1], ways[i][2], ways[i][3],
			ways[i][4] ? ways[i][4] : "--ignore-eos"};
		results[i] = json_of(run(TINY, "--json", "--temp", "0", "-c", "64",
			"--prompts-file", file_of("{\"prompt\":[11,12,13]}\n"), w[0], w[1], w[2],
			w[3], w[4]));
		const json_t *one = at(results[i], 0);
		if (i != 2) /* which may end by itself */
			cr_expect_eq(n_tokens(one), n_expected[i], "way %zu", i);
		cr_expect_eq(number_at(one, "context_shifts", NULL) > 0, n_tokens(one) > 62,
			"way %zu", i);
		for (size_t n = 0; n < 61 && n < n_tokens(one) && i < 4; n++)
			cr_expect_eq(token_at(one, n), token_at(at(results[0], 0), n),
				"nothing differs before the context is full");
	}
	for (size_t i = 0; i < ARRAY_COUNT(ways); i++)
		json_decref(results[i]);
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static double probability(const json_t *entry)
{
	const json_t *value = json_object_get(entry, "logprob");
	cr_assert(json_is_number(value));
	return exp(json_number_value(value));
}

Test(command_batch, log_probabilities)
{
	json_t *json = json_of(run(CPU, "--json", "--temp", "0", "-n", "6", "--ignore-eos", "-p",
		prompt, "--logprobs", "4"));
	const json_t *content = json_object_get(json_object_get(json, "logprobs"), "content");
	cr_assert_eq(json_array_size(content), 6);
	struct text text = {0};
	for (size_t i = 0; i < 6; i++) {
		const json_t *token = json_array_get(content, i);
		const json_t *top = json_object_get(token, "top_logprobs");
		const json_t *bytes = json_object_get(token, "bytes");
		cr_expect_eq(number_at(token, "id", NULL), token_at(json, i));
		cr_assert_eq(json_array_size(top), 4);
		cr_expect_eq(number_at(json_array_get(top, 0), "id", NULL), token_at(json, i),
			"greedy takes the best");
		double sum = 0;
		for (size_t j = 0; j < 4; j++) {
			sum += probability(json_array_get(top, j));
			if (j)
				cr_expect_leq(probability(json_array_get(top, j)),
					probability(json_array_get(top, j - 1)));
		}
		cr_expect(sum > 0 && sum <= 1 + 1e-6);
		cr_expect_eq(probability(token), probability(json_array_get(top, 0)));
		cr_expect_eq(json_array_size(bytes), strlen(string_at(token, "token")));
		text_append(&text, string_at(token, "token"), strlen(string_at(token, "token")));
	}
	cr_expect_str_eq(text.data, string_at(json, "text"));
	text_free(&text);
	json_decref(json);
	/* none of the best: the drawn one alone */
	json = json_of(
		run(CPU, "--json", "-n", "2", "--ignore-eos", "-p", prompt, "--logprobs", "0"));
	content = json_object_get(json_object_get(json, "logprobs"), "content");
	cr_assert_eq(json_array_size(content), 2);
	cr_expect_eq(
		json_array_size(json_object_get(json_array_get(content, 0), "top_logprobs")), 0);
	json_decref(json);
}

/* ---- samplers -------------------------------------------------------------------------------- */

/* OB-17: what leaves one token alone gives the same as temperature 0, whatever the order and wherever it is
 * drawn; OB-18: with the temperature last it changes nothing but the draw. */
Test(command_batch, samplers)
{
	static const struct {
		const char *arguments[4];
		bool on_host;
	} greedy[] = {
		{{"--temp", "0", "--samplers", "llama.cpp"}, false},
		{{"--temp", "0", "--samplers", "temperature;top_p"}, false},
		{{"--top-k", "1", "--samplers", "hf"}, false},
		{{"--top-p", "0", "--samplers", "top_p"}, false},
		{{"--temp", "1e-9", "--top-k", "0"}, false},
		{{"--min-p", "1", "--samplers", "llama.cpp"}, false},
		{{"--min-p", "1", "--samplers", "min_p;penalties;top_k"}, false},
		{{"--top-k", "1", "--mirostat", "0"}, false},
		{{"--temp", "0", "--typical", "0.5"}, true},
		{{"--temp", "0", "--dry-multiplier", "1e-9"}, true},
		{{"--top-nsigma", "1e-6", "--temp", "1.5"}, true},
		{{"--top-k", "1", "--samplers", "xtc;min_p;top_k"}, false},
	};
	json_t *expected = json_of(run(
		CPU, "--json", "--temp", "0", "-n", "5", "--ignore-eos", "-p", prompt, "-s", "1"));
	cr_expect(json_is_false(json_object_get(expected, "drawn_on_host")));
	for (size_t i = 0; i < ARRAY_COUNT(greedy); i++) {
		const char *const *a = greedy[i].arguments;
		json_t *json = json_of(run(CPU, "--json", "-n", "5", "--ignore-eos", "-p", prompt,
			"-s", "1", a[0], a[1], a[2], a[3]));
		expect_same_tokens(json, expected, a[1]);
		if (greedy[i].on_host)
			cr_expect(json_is_true(json_object_get(json, "drawn_on_host")), "case %zu",
				i);
		json_decref(json);
	}
	json_decref(expected);
	struct result r = run(CPU, "-n", "2", "-p", prompt, "--xtc-probability", "0.5");
	cr_expect(strstr(r.err, "drawn on the host"), "%s", r.err);
	release(&r);
	expect_failure(run(CPU, "-n", "2", "-p", prompt, "--no-display-prompt", "--samplers",
			       "top_k;heat"),
		2, "heat");
}

/* ---- form ------------------------------------------------------------------------------------ */

/* The text fits the grammar or schema, wherever that is written, and ends with it. */
Test(command_batch, grammars_and_schemas)
{
	static const char grammar[] = "root ::= \" \" (\"yes\" | \"no\") \".\"";
	static const char schema[] = "{\"type\":\"array\",\"items\":{\"enum\":[1,22]},"
				     "\"minItems\":2,\"maxItems\":2}";
	const char *grammar_file = write_scratch("grammar", grammar, strlen(grammar));
	const char *schema_file = write_scratch("schema", schema, strlen(schema));
	const char *const ways[][2] = {{"--grammar", grammar}, {"--grammar-file", grammar_file},
		{"-j", schema}, {"--json-schema-file", schema_file}};
	char *texts[ARRAY_COUNT(ways)];
	for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
		json_t *json = json_of(run(CPU, "--json", "-s", "3", "-n", "60", "-p", prompt,
			ways[i][0], ways[i][1]));
		texts[i] = strdup(string_at(json, "text"));
		cr_expect_str_eq(string_at(json, "finish_reason"), "stop");
		json_decref(json);
	}
	cr_expect(!strcmp(texts[0], " yes.") || !strcmp(texts[0], " no."), "%s", texts[0]);
	cr_expect_str_eq(texts[1], texts[0]);
	json_t *array = json_loads(texts[2], 0, NULL);
	cr_assert_eq(json_array_size(array), 2, "%s", texts[2]);
	for (size_t i = 0; i < 2; i++) {
		json_int_t n = json_integer_value(json_array_get(array, i));
		cr_expect(n == 1 || n == 22, "%s", texts[2]);
	}
	cr_expect_str_eq(texts[3], texts[2]);

	/* in a file of prompts each line has its own, or that of the command line */
	struct text lines = {0};
	text_printf(&lines, "{\"prompt\":\"It was\",\"json_schema\":%s}\n{\"prompt\":\"It was\"}\n",
		schema);
	json_t *list = json_of(run(CPU, "--json", "-s", "3", "-n", "60", "--prompts-file",
		file_of(lines.data), "--grammar", grammar));
	cr_expect_str_eq(string_at(at(list, 0), "text"), texts[2]);
	cr_expect_str_eq(string_at(at(list, 1), "text"), texts[0]);
	json_decref(list);
	json_decref(array);
	text_free(&lines);
	for (size_t i = 0; i < ARRAY_COUNT(ways); i++)
		free(texts[i]);
	expect_failure(run("--grammar", grammar, "-j", schema), 2,
		"found --grammar and --json-schema, expected one of them");
	expect_failure(
		run(CPU, "--json", "--grammar", "root ::= \"a\"\n  x\n"), 2, "line 2, column 3");
	expect_failure(run(CPU, "--json", "-j", "{\"type\":3}"), 2, "type");
	expect_failure(run(CPU, "--grammar-file", scratch("none")), 8, "none");
}

/* ---- guesses, beams, a prompt kept in a file ------------------------------------------------- */

/* Guesses change nothing but the number of steps. */
Test(command_batch, guesses)
{
	const char *model = source_path("models/austen.gguf");
	json_t *plain = json_of(run(CPU, "--json", "--temp", "0", "-n", "10", "-p", prompt));
	json_t *ngram = json_of(run(CPU, "--json", "--temp", "0", "-n", "10", "-p", prompt,
		"--draft-ngram", "--draft-max", "3"));
	json_t *same = json_of(run(CPU, "--json", "--temp", "0", "-n", "10", "-p", prompt, "-md",
		model, "--draft-max", "4"));
	expect_same_tokens(ngram, plain, "n-grams");
	expect_same_tokens(same, plain, "a draft model");
	cr_expect_null(json_object_get(plain, "draft"));
	cr_expect_gt(number_at(same, "draft", "guessed"), 4);
	cr_expect_eq(number_at(same, "draft", "accepted"), number_at(same, "draft", "guessed"),
		"the same model guesses right");
	json_decref(same);
	json_decref(ngram);
	json_decref(plain);
	expect_failure(
		run(CPU, "--json", "-p", prompt, "-md", vector_path("golden/llama-freqs.gguf")), 2,
		"vocab");
}

/* One beam is greedy; of several the best comes first, and is no worse than greedy. */
Test(command_batch, beams)
{
	json_t *greedy = json_of(run(CPU, "--json", "--temp", "0", "-n", "6", "-p", prompt));
	json_t *one = json_of(run(CPU, "--json", "-n", "6", "-p", prompt, "--beams", "1"));
	json_t *four = json_of(run(CPU, "--json", "-n", "6", "-p", prompt, "--beams", "4",
		"--num-return", "3", "--length-penalty", "0", "--early-stopping", "never"));
	expect_same_tokens(one, greedy, "one beam");
	cr_expect_str_eq(string_at(one, "text"), string_at(greedy, "text"));
	const json_t *list = json_object_get(four, "beams");
	cr_assert_eq(json_array_size(list), 3);
	double last = json_number_value(
		json_object_get(at(json_object_get(one, "beams"), 0), "log_prob"));
	cr_expect_geq(json_number_value(json_object_get(at(list, 0), "log_prob")), last - 1e-4);
	for (size_t i = 0; i < 3; i++) {
		double score = json_number_value(json_object_get(at(list, i), "score"));
		cr_expect_eq(score, json_number_value(json_object_get(at(list, i), "log_prob")));
		cr_expect(i == 0 || score <= last);
		last = score;
	}
	cr_expect_str_eq(string_at(four, "text"), string_at(at(list, 0), "text"));
	struct result r = run(CPU, "-n", "6", "-p", prompt, "--beams", "1");
	cr_expect(!strncmp(r.out, prompt, strlen(prompt)));
	cr_expect_str_eq(r.out + strlen(prompt), string_at(one, "text"));
	release(&r);
	json_decref(four);
	json_decref(one);
	json_decref(greedy);
	expect_failure(run("--beams", "2", "--num-return", "3"), 2, "at most the 2 of --beams");
	expect_failure(run("--beams", "2", "--stop", "a"), 2, "--stop is not for --beams");
}

/* The second run takes the prompt from the file, and gives the same; a file that is something else stays as it
 * is. */
Test(command_batch, prompt_cache)
{
	const char *path = scratch("cache");
	char *kept = strdup(path);
	static const char text[] = "It was a truth that she had never known before";
	json_t *runs[2];
	for (size_t i = 0; i < 2; i++)
		runs[i] = json_of(run(CPU, "--json", "--temp", "0", "-n", "4", "-p", text,
			"--prompt-cache", kept));
	expect_same_tokens(runs[0], runs[1], "with the file");
	cr_expect_eq(number_at(runs[0], "reused_tokens", NULL), 0);
	cr_expect_eq(number_at(runs[1], "reused_tokens", NULL),
		number_at(runs[1], "usage", "prompt_tokens") - 1);
	json_decref(runs[0]);
	json_decref(runs[1]);
	free(kept);
	const char *other = file_of("not such a file");
	struct result r = run(CPU, "--json", "-n", "1", "-p", text, "--prompt-cache", other);
	cr_expect_eq(r.status, 8, "%s", r.err);
	char *still = read_text(other, NULL);
	cr_expect_str_eq(still, "not such a file");
	free(still);
	release(&r);
	expect_failure(run("--prompts-file", other, "--prompt-cache", "x"), 2, "one prompt");
}
