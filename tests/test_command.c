/* The command as a user runs it: the built binary, its streams, its exit status. Generation runs on
 * the CPU reference, but for one test that asks for the default device. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "command.h"
#include "console.h"
#include "gguf_builder.h"

/* ---- version, help, mistakes ----------------------------------------------------------------- */

Test(command, version)
{
	struct result r = run("version");
	cr_expect_eq(r.status, 0);
	cr_expect_str_eq(r.out, "lapilli " LAP_VERSION "\n");
	struct result again = run("--version");
	cr_expect_str_eq(again.out, r.out);
	release(&r);
	release(&again);
	r = run("version", "--verbose");
	cr_expect(strstr(r.out, "\nformats: F32 "), "%s", r.out);
	cr_expect(strstr(r.out, "\narchitectures: "), "%s", r.out);
	cr_expect(strstr(r.out, "compiler: "), "%s", r.out);
	release(&r);
}

Test(command, help)
{
	struct result r = run("-h");
	cr_expect_eq(r.status, 0);
	cr_expect(strstr(r.out, "usage: lapilli "), "%s", r.out);
	cr_expect_str_eq(r.err, "");
	release(&r);
	r = run("tokenize", "--help");
	cr_expect_eq(r.status, 0);
	cr_expect(strstr(r.out, "usage: lapilli tokenize "), "%s", r.out);
	release(&r);
}

Test(command, mistakes)
{
	expect_failure(run("--tempp", "1"), 2, "--temp ");
	expect_failure(run("-n", "-3"), 2, "whole number from -2 to 2147483647");
	expect_failure(run("-np", "2"), 2, "--prompts-file");
	expect_failure(run("--logprobs", "1"), 2, "needs --json");
	expect_failure(run("--keep", "4"), 2, "--context-overflow shift");
	expect_failure(run("-p", "a", "--prompts-file", "b"), 2, "expected one of them");
	expect_failure(run("generat"), 2, "generate");
	expect_failure(run("tokenize", "--top-k", "1"), 2, "generate");
	expect_failure(run("-p", "a", "-f", "b"), 2, "expected one of them");
	expect_failure(run("logits", "-o", "x"), 2, "--tokens");
	expect_failure(run("logits", "--tokens", "1"), 2, "-o FILE");
	expect_failure(run("tokenize"), 2, "-p, -f, --jsonl and --decode");
	expect_failure(run("tokenize", "-p", "a", "--decode", "1"), 2, "needs one of");
}

Test(command, files_that_are_not_there_or_no_models)
{
	expect_failure(run("-m", scratch("missing.gguf"), "-p", "a"), 8, "missing.gguf");
	expect_failure(run("-f", scratch("missing.txt"), CPU), 8, "missing.txt");
	expect_failure(run("tokenize", "--jsonl", scratch("missing")), 8, "missing");
	const char *page = write_scratch("page.gguf", "<!DOCTYPE html><html></html>", 28);
	expect_failure(run("-m", page, "-p", "a", CPU), 5, "page.gguf");
	expect_failure(run("info", "-m", page), 5, "page.gguf");
	expect_failure(run("tokenize", "-m", page, "-p", "a"), 5, "page.gguf");
	const char *folder = scratch("empty");
	cr_assert_eq(mkdir(folder, 0700), 0);
	expect_failure(run("-m", folder, "-p", "a"), 8, "directory");
	expect_failure(run("info", "-hf", "no"), 2, "expected USER/REPO");
	expect_failure(run("-dev", "no such device", "-n", "1"), 4, "no such device");
}

/* Makes the folders above a path. */
static void make_folders(char *path)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
}

Test(command, models_by_name)
{
	struct text path = {0};
	cr_assert(text_printf(&path, "%s/hub/models--a--austen-GGUF/snapshots/1/austen-Q8_0.gguf",
		scratch("home")));
	make_folders(path.data);
	cr_assert_eq(symlink(source_path("models/austen.gguf"), path.data), 0);
	setenv("HF_HOME", scratch("home"), 1);
	static const char *const names[][2] = {{"-hf", "a/austen-GGUF:q8_0"}, {"-m", "austen"}};
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		struct result r = run("info", "--json", names[i][0], names[i][1]);
		json_t *json = parse_json(&r);
		cr_expect_str_eq(json_string_value(json_object_get(json, "path")), path.data);
		cr_expect_eq(number_at(json, "files", NULL), 1);
		json_decref(json);
		release(&r);
	}
	struct result r = run("tokenize", "--ids", "-v", "-p", "a", "-hf", "a/austen-GGUF");
	cr_expect(r.status == 0 && strstr(r.err, path.data), "%s", r.err);
	release(&r);
	expect_failure(run("-hf", "a/austen-GGUF:Q4_0", "-p", "a", CPU), 8, "austen-Q8_0.gguf");
	expect_failure(run("tokenize", "-m", "jane", "-p", "a"), 8, "Hugging Face hub (");
	text_free(&path);
}

Test(command, files_that_go_with_a_model)
{
	struct builder *b = calloc(1, sizeof *b);
	cr_assert(b);
	builder_string(b, "general.architecture", "clip");
	builder_string(b, "general.type", "mmproj");
	builder_noise(b, "v.patch_embd.weight", 8, 8, 1);
	struct text file = builder_file(b);
	const char *path = write_scratch("vision.gguf", file.data, file.n);
	expect_failure(run("-m", path, "-p", "a", CPU), 5, "(mmproj)");
	expect_failure(run("tokenize", "-m", path, "-p", "a"), 5, "(mmproj)");
	struct result r = run("info", "-m", path);
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect(strstr(r.out, "(mmproj), expected the language model beside it"), "%s", r.out);
	release(&r);
	text_free(&file);
	builder_free(b);
	free(b);
}

/* ---- generate -------------------------------------------------------------------------------- */

/* Numbers at the head of a JSON list equal the ids that the demo model's authors give, as far as the
 * two best logits are clearly apart. */
static void expect_greedy(const json_t *ids, const json_t *expected, const json_t *gaps, size_t n)
{
	cr_assert_eq(json_array_size(ids), n);
	for (size_t i = 0; i < n && json_number_value(json_array_get(gaps, i)) > 1e-3; i++)
		cr_expect_eq(json_integer_value(json_array_get(ids, i)),
			json_integer_value(json_array_get(expected, i)), "token %zu", i);
}

static json_t *demo_case(void)
{
	json_error_t error;
	json_t *file = json_load_file(source_path("models/austen.expected.json"), 0, &error);
	cr_assert(file, "%s", error.text);
	json_t *first = json_incref(json_array_get(json_object_get(file, "cases"), 0));
	json_decref(file);
	return first;
}

Test(command, demo_json)
{
	struct result r = run("--json", CPU_EXACT, "--temp", "0", "-n", "16", "--seed", "7");
	json_t *json = parse_json(&r), *expected = demo_case();
	cr_expect_str_eq(r.err, "");
	cr_expect(json_equal(
		json_object_get(json, "prompt_tokens"), json_object_get(expected, "prompt_ids")));
	expect_greedy(json_object_get(json, "tokens"), json_object_get(expected, "greedy_ids"),
		json_object_get(expected, "gaps"), 16);
	cr_expect_str_eq(json_string_value(json_object_get(json, "finish_reason")), "length");
	cr_expect_str_eq(json_string_value(json_object_get(json, "device")), "cpu");
	json_int_t n_prompt = (json_int_t)json_array_size(json_object_get(expected, "prompt_ids"));
	cr_expect_eq(number_at(json, "usage", "prompt_tokens"), n_prompt);
	cr_expect_eq(number_at(json, "usage", "completion_tokens"), 16);
	cr_expect_eq(number_at(json, "usage", "total_tokens"), n_prompt + 16);
	cr_expect_eq(number_at(json, "seed", NULL), 7);
	cr_expect_eq(number_at(json, "recordings", "prefill"), 1);
	cr_expect_eq(number_at(json, "recordings", "decode"), 1);
	cr_expect_eq(number_at(json, "submits", "total"),
		number_at(json, "submits", "prefill") + number_at(json, "submits", "decode"));
	cr_expect_gt(number_at(json, "device_bytes", NULL), 4000000);
	static const char *const times[] = {"load_ms", "prompt_ms", "prompt_per_second",
		"first_token_ms", "predicted_ms", "predicted_per_second", "gb_per_second",
		"host_cpu_ms"};
	for (size_t i = 0; i < ARRAY_COUNT(times); i++)
		cr_expect_gt(json_real_value(
				     json_object_get(json_object_get(json, "timings"), times[i])),
			0, "%s", times[i]);

	/* the same run as text: prompt, then the text of the JSON, nothing else */
	struct result text = run(CPU_EXACT, "--temp", "0", "-n", "16");
	const char *prompt = json_string_value(json_object_get(expected, "prompt"));
	const char *generated = json_string_value(json_object_get(json, "text"));
	cr_expect_eq(text.status, 0);
	cr_expect_eq(text.n_out, strlen(prompt) + strlen(generated));
	cr_expect(strncmp(text.out, prompt, strlen(prompt)) == 0, "%s", text.out);
	cr_expect_str_eq(text.out + strlen(prompt), generated);
	cr_expect(strstr(text.err, "tok/s") && strstr(text.err, "GB/s"), "%s", text.err);
	struct result bare = run(CPU_EXACT, "--temp", "0", "-n", "16", "--no-display-prompt");
	cr_expect_str_eq(bare.out, generated);
	release(&bare);
	release(&text);
	release(&r);
	json_decref(json);
	json_decref(expected);
}

/* Without a seed two runs differ, and the seed that was drawn gives the same text again. */
Test(command, seeds)
{
	struct result a = run("--json", CPU, "-n", "24");
	struct result b = run("--json", CPU, "-n", "24");
	json_t *ja = parse_json(&a), *jb = parse_json(&b);
	json_int_t seed = number_at(ja, "seed", NULL);
	cr_expect_neq(seed, number_at(jb, "seed", NULL));
	cr_expect(!json_equal(json_object_get(ja, "tokens"), json_object_get(jb, "tokens")));
	char text[32];
	snprintf(text, sizeof text, "%lld", (long long)seed);
	struct result c = run("--json", CPU, "-n", "24", "-s", text);
	json_t *jc = parse_json(&c);
	cr_expect_eq(number_at(jc, "seed", NULL), seed);
	cr_expect(json_equal(json_object_get(ja, "tokens"), json_object_get(jc, "tokens")));
	json_decref(ja);
	json_decref(jb);
	json_decref(jc);
	release(&a);
	release(&b);
	release(&c);
}

/* A prompt of n tokens: the demo model has " a" as one token. */
static const char *long_prompt(size_t n)
{
	char text[512] = "";
	for (size_t i = 0; i < n; i++)
		strcat(text, " a");
	return write_scratch("prompt", text, strlen(text));
}

/* -n and the context (github.com/ggml-org/llama.cpp, issue 12264): 0 runs the prompt alone, -1 goes on
 * to a full context, -2 too and past what ends texts, other negatives are mistakes; a prompt needs room for one token. */
Test(command, limits)
{
	static const struct {
		const char *n_predict;
		json_int_t n_generated;
	} cases[] = {{"0", 0}, {"1", 1}, {"5", 5}, {"-1", 54}, {"-2", 54}};
	const char *ten = long_prompt(10);
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct result r = run("--json", CPU, "-c", "64", "--ignore-eos", "-f", ten, "-n",
			cases[i].n_predict);
		json_t *json = parse_json(&r);
		cr_expect_eq(number_at(json, "usage", "prompt_tokens"), 10);
		cr_expect_eq(number_at(json, "usage", "completion_tokens"), cases[i].n_generated,
			"-n %s", cases[i].n_predict);
		cr_expect_str_eq(
			json_string_value(json_object_get(json, "finish_reason")), "length");
		json_decref(json);
		release(&r);
	}
	/* One token leaves nothing to the prefill, and nothing has no speed. */
	struct result one = run("--json", CPU, "-n", "1", "-f", long_prompt(1));
	json_t *timed = parse_json(&one);
	cr_expect_eq(number_at(timed, "usage", "prompt_tokens"), 1);
	cr_expect_eq(json_real_value(json_object_get(
			     json_object_get(timed, "timings"), "prompt_per_second")),
		0);
	json_decref(timed);
	release(&one);

	struct result nothing = run(CPU, "--no-display-prompt", "-n", "0");
	cr_expect_eq(nothing.status, 0);
	cr_expect_eq(nothing.n_out, 0);
	release(&nothing);

	struct result fits = run("--json", CPU, "-c", "64", "-f", long_prompt(63));
	json_t *json = parse_json(&fits);
	cr_expect_eq(number_at(json, "usage", "completion_tokens"), 1);
	json_decref(json);
	release(&fits);
	static const size_t too_long[] = {64, 65, 200};
	for (size_t i = 0; i < ARRAY_COUNT(too_long); i++) {
		char count[16];
		snprintf(count, sizeof count, "%zu", too_long[i]);
		expect_failure(
			run("--json", CPU, "-c", "64", "-f", long_prompt(too_long[i])), 2, count);
	}
}

Test(command, prompt_is_needed_where_no_token_begins_texts)
{
	expect_failure(run("-m", source_path("models/austen.gguf"), CPU), 2, "a prompt is needed");
	expect_failure(run("-m", source_path("models/austen.gguf"), CPU, "-p", ""), 2,
		"the prompt is empty");
	expect_failure(run(CPU, "-p", ""), 2, "the prompt is empty");
}

Test(command, bos_alone_begins_a_text)
{
	SKIP_WITHOUT("models/stories260K-F32.gguf");
	const char *model = shared_path("models/stories260K-F32.gguf");
	struct result r = run("-m", model, CPU_EXACT, "--temp", "0", "-n", "4", "--json");
	json_t *json = parse_json(&r);
	cr_expect_eq(number_at(json, "usage", "prompt_tokens"), 1);
	cr_expect_eq(
		json_integer_value(json_array_get(json_object_get(json, "prompt_tokens"), 0)), 1);
	json_decref(json);
	release(&r);
	r = run("-m", model, CPU, "-n", "1", "-p", "<s>Once");
	cr_expect(strstr(r.err, "warning: the prompt begins with the model's BOS"), "%s", r.err);
	release(&r);
}

Test(command, default_device)
{
	struct result devices = run("devices");
	if (devices.status == 4)
		skip_test("no usable Vulkan device");
	release(&devices);
	/* the gaps between the two best logits are wide up to the eighth token */
	json_t *expected = demo_case(), *first = json_array();
	for (size_t i = 0; i < 8; i++)
		json_array_append(
			first, json_array_get(json_object_get(expected, "greedy_ids"), i));
	char *ids = json_dumps(first, JSON_COMPACT);
	struct result text = run("tokenize", "--decode", ids);
	struct result r =
		run("-ctk", "f32", "-ctv", "f32", "--temp", "0", "-n", "8", "--no-display-prompt");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(r.out, text.out);
	cr_expect(strstr(r.err, "device ") && !strstr(r.err, "device: cpu"), "%s", r.err);
	free(ids);
	json_decref(first);
	json_decref(expected);
	release(&text);
	release(&r);
}

/* The locale changes not a byte of text and no decimal point. */
Test(command, locale)
{
	static const char *const locales[] = {
		"C", "de_DE.UTF-8", "tr_TR.UTF-8", "ko_KR.EUC-KR", ""};
	char *first = NULL;
	for (size_t i = 0; i < ARRAY_COUNT(locales); i++) {
		setenv("LC_ALL", locales[i], 1);
		setenv("LANG", locales[i], 1);
		struct result r = run(CPU, "--temp", "0.5", "-s", "1", "-n", "4", "-p",
			"\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4");
		cr_expect_eq(r.status, 0, "%s: %s", locales[i], r.err);
		cr_expect(strstr(r.err, "load 0."), "%s", r.err);
		if (!first)
			first = strdup(r.out);
		cr_expect_str_eq(r.out, first);
		cr_expect(strncmp(r.out, "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4", 9) == 0);
		release(&r);
	}
	free(first);
}

/* ---- prompts --------------------------------------------------------------------------------- */

static char *ids_of_text(const char *option, const char *value, const char *input)
{
	struct result r = run_input(input, "tokenize", "--ids", option, value);
	cr_assert_eq(r.status, 0, "%s", r.err);
	free(r.err);
	return r.out;
}

/* -f gives the file byte for byte, standard input and -p the same tokens (llama.cpp issue 1444). */
Test(command, files_byte_for_byte)
{
	static const char *const texts[] = {"D: Four\n", "D: Four\n\n", "D: Four", "a\r\nb\r\n",
		"\xEF\xBB\xBFwith a mark\n", "\n", "", "a\\nb", "\xff\xfe\n", " ", "\t\n ",
		/* OB-16 */ "\xE6\xAD", "a\xE2\x80", "\xFF", "\xC0\x80", "\xED\xA0\x80",
		"\xF4\x90\x80\x80"};
	for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
		size_t n = strlen(texts[i]);
		const char *path = write_scratch("text", texts[i], n);
		char *from_option = ids_of_text("-p", texts[i], NULL);
		char *from_file = ids_of_text("-f", path, NULL);
		char *from_input = ids_of_text("-f", "-", path);
		cr_expect_str_eq(from_file, from_option, "text %zu", i);
		cr_expect_str_eq(from_input, from_option, "text %zu", i);

		from_file[strcspn(from_file, "\n")] = '\0';
		struct result back = run("tokenize", "--decode", from_file);
		cr_expect(back.n_out == n && memcmp(back.out, texts[i], n) == 0,
			"text %zu comes back as \"%s\"", i, back.out);
		release(&back);
		free(from_option);
		free(from_file);
		free(from_input);
	}
	const char *nuls = write_scratch("nuls", "a\0b\0", 4);
	char *ids = ids_of_text("-f", nuls, NULL);
	ids[strcspn(ids, "\n")] = '\0';
	struct result back = run("tokenize", "--decode", ids);
	cr_expect(back.n_out == 4 && memcmp(back.out, "a\0b\0", 4) == 0, "%s", ids);
	release(&back);
	free(ids);
}

/* Escapes are read with -e only, and only those that --help lists. */
Test(command, escapes)
{
	static const struct {
		const char *typed, *meant;
	} cases[] = {
		{"a\\nb", "a\nb"},
		{"a\\\\nb", "a\\nb"},
		{"\\r\\t\\'\\\"", "\r\t'\""},
		{"\\x41\\x7e\\xC3\\xa9", "A~\xC3\xA9"},
		{"\\x4", "\\x4"},
		{"\\xzz\\x", "\\xzz\\x"},
		{"\\q\\0", "\\q\\0"},
		{"end\\", "end\\"},
		{"", ""},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		char *meant = ids_of_text("-p", cases[i].meant, NULL);
		struct result read = run("tokenize", "--ids", "-e", "-p", cases[i].typed);
		cr_expect_str_eq(read.out, meant, "%s with -e", cases[i].typed);
		char *plain = ids_of_text("-p", cases[i].typed, NULL);
		if (strcmp(cases[i].typed, cases[i].meant) != 0)
			cr_expect_str_neq(plain, meant, "%s without -e", cases[i].typed);
		release(&read);
		free(plain);
		free(meant);
	}
	const char *file = write_scratch("escapes", "a\\nb", 4);
	struct result from_file = run("tokenize", "--ids", "-e", "-f", file);
	char *as_typed = ids_of_text("-p", "a\\nb", NULL);
	cr_expect_str_eq(from_file.out, as_typed, "-e leaves files alone");
	release(&from_file);
	free(as_typed);
}

/* ---- tokenize -------------------------------------------------------------------------------- */

Test(command, tokenize_lines)
{
	struct result r = run("tokenize", "-e", "-p", "It was\\n\xC3\xA9\\x01");
	cr_expect_eq(r.status, 0, "%s", r.err);
	/* id, tab, piece; the pieces together, escapes read, are the text */
	struct text pieces = {0};
	for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
		char *tab = strchr(line, '\t');
		cr_assert(tab && tab > line && strspn(line, "0123456789") == (size_t)(tab - line),
			"%s", line);
		text_printf(&pieces, "%s", tab + 1);
	}
	cr_expect(strstr(pieces.data, "It was\\n"), "%s", pieces.data);
	cr_expect(strstr(pieces.data, "\\x01"), "%s", pieces.data);
	text_free(&pieces);
	release(&r);
}

Test(command, tokenize_jsonl)
{
	static const char lines[] = "{\"text\": \"It was\", \"parse_special\": true}\n"
				    "\n"
				    "{\"text\": \"\", \"ids\": [], \"parse_special\": false}\n"
				    "{\"text\": \"a\\u0000b\"}\n"
				    "{\"text\": \"It was\"}";
	const char *path = write_scratch("lines", lines, sizeof lines - 1);
	struct result r = run("tokenize", "--jsonl", path);
	struct result in = run_input(path, "tokenize", "--jsonl", "-");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(in.out, r.out);
	char *one = ids_of_text("-p", "It was", NULL);
	cr_expect(strncmp(r.out, one, strlen(one)) == 0, "%s", r.out);
	cr_expect(strncmp(r.out + strlen(one), "[]\n[", 4) == 0, "%s", r.out);
	cr_expect_str_eq(r.out + r.n_out - strlen(one), one);
	free(one);
	release(&r);
	release(&in);

	/* A byte 0 in the middle is the same from a file. */
	path = write_scratch("zero", "a\0b", 3);
	char *zero = ids_of_text("-f", path, NULL);
	path = write_scratch("zero-line", "{\"text\": \"a\\u0000b\"}", 20);
	r = run("tokenize", "--jsonl", path);
	cr_expect_str_eq(r.out, zero);
	cr_expect(strchr(zero, ','), "%s", zero);
	free(zero);
	release(&r);

	static const char *const wrong[] = {"{\"text\": 5}", "{}", "[]", "{\"text\": \"a\"",
		"{\"text\": \"a\", \"parse_special\": 1}", "nonsense",
		/* OB-16: JSON is UTF-8 */ "{\"text\": \"\xE6\xAD\"}", "{\"text\": \"\xFF\"}",
		"{\"text\": \"\xC0\x80\"}", "{\"text\": \"\xED\xA0\x80\"}",
		"{\"text\": \"\xF4\x90\x80\x80\"}"};
	for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
		char text[128];
		snprintf(text, sizeof text, "{\"text\": \"a\"}\n%s\n", wrong[i]);
		path = write_scratch("wrong", text, strlen(text));
		r = run("tokenize", "--jsonl", path);
		cr_expect_eq(r.status, 1, "%s: status %d", wrong[i], r.status);
		cr_expect(strstr(r.err, "line 2: "), "%s: %s", wrong[i], r.err);
		release(&r);
	}
}

Test(command, tokenize_decode)
{
	expect_failure(run("tokenize", "--decode", "2048"), 2, "2048");
	struct result r = run("tokenize", "--decode", "");
	cr_expect_eq(r.status, 0);
	cr_expect_eq(r.n_out, 0);
	release(&r);
	/* the model's BOS is a control token: shown only when asked for */
	r = run("tokenize", "--decode", "2047");
	cr_expect_eq(r.n_out, 0, "%s", r.out);
	release(&r);
	r = run("tokenize", "--decode", "2047", "-sp");
	cr_expect_gt(r.n_out, 0);
	char *ids = ids_of_text("-p", r.out, NULL);
	cr_expect_str_eq(ids, "[2047]\n");
	free(ids);
	struct result plain = run("tokenize", "--no-parse-special", "--ids", "-p", r.out);
	cr_expect_str_neq(plain.out, "[2047]\n");
	release(&plain);
	release(&r);
}

Test(command, tokenize_no_bos)
{
	SKIP_WITHOUT("models/stories260K-F32.gguf");
	const char *model = shared_path("models/stories260K-F32.gguf");
	struct result r = run("tokenize", "-m", model, "--ids", "-p", "Once upon a time");
	cr_expect_str_eq(r.out, "[1,403,407,261,378]\n");
	release(&r);
	r = run("tokenize", "-m", model, "--ids", "--no-bos", "-p", "Once upon a time");
	cr_expect_str_eq(r.out, "[403,407,261,378]\n");
	release(&r);
	r = run("tokenize", "-m", model, "-p", "Once upon a");
	cr_expect_str_eq(r.out, "1\t<s>\n403\t Once\n407\t upon\n261\t a\n");
	release(&r);
}

/* ---- logits ---------------------------------------------------------------------------------- */

Test(command, logits)
{
	json_t *expected = demo_case();
	json_t *prompt = json_object_get(expected, "prompt_ids");
	char *list = json_dumps(prompt, JSON_COMPACT);
	size_t n = json_array_size(prompt), n_vocab = 2048, n_bytes;
	const char *path = scratch("logits");
	struct result r = run("logits", "--tokens", list, "-o", path, CPU_EXACT);
	cr_assert_eq(r.status, 0, "%s", r.err);
	cr_expect_eq(r.n_out, 0);
	cr_expect_str_eq(r.err, "");
	release(&r);
	char *bytes = read_text(path, &n_bytes);
	cr_assert_eq(n_bytes, n * n_vocab * sizeof(float));
	size_t best = 0;
	float *last = malloc(n_vocab * sizeof *last);
	memcpy(last, bytes + (n - 1) * n_vocab * sizeof *last, n_vocab * sizeof *last);
	for (size_t i = 0; i < n_vocab; i++)
		best = last[i] > last[best] ? i : best;
	cr_expect_eq((json_int_t)best,
		json_integer_value(json_array_get(json_object_get(expected, "greedy_ids"), 0)));

	r = run("logits", "--tokens", list, "-o", "-", CPU_EXACT, "-b", "5");
	cr_assert_eq(r.n_out, n_bytes, "%s", r.err);
	float *again = malloc(n_bytes), *first = malloc(n_bytes);
	memcpy(again, r.out, n_bytes);
	memcpy(first, bytes, n_bytes);
	for (size_t i = 0; i < n * n_vocab; i++)
		cr_assert_float_eq(again[i], first[i], 1e-4, "value %zu", i);
	free(again);
	free(first);
	free(last);
	free(bytes);
	free(list);
	release(&r);
	json_decref(expected);
}

Test(command, logits_that_cannot_be)
{
	const char *path = scratch("none");
	expect_failure(run("logits", "--tokens", "1,2048", "-o", path, CPU), 2, "2048");
	cr_expect_neq(access(path, F_OK), 0, "a file was left");
	expect_failure(run("logits", "--tokens", "1,2,3,4,5", "-c", "4", "-o", path, CPU), 2, "4");
	expect_failure(run("logits", "--tokens", "1", "-o", scratch("no/folder/x"), CPU), 8,
		"no/folder/x");
	expect_failure(run("logits", "--tokens", "1", "-o", "/dev/full", CPU), 8, "/dev/full");
}

/* ---- info, devices --------------------------------------------------------------------------- */

Test(command, info)
{
	struct result r = run("info", "--json");
	json_t *json = parse_json(&r);
	cr_expect_str_eq(json_string_value(json_object_get(json, "architecture")), "llama");
	cr_expect(json_is_null(json_object_get(json, "refused")));
	cr_expect_eq(number_at(json, "hparams", "n_vocab"), 2048);
	cr_expect_eq(number_at(json, "hparams", "n_layer"), 5);
	cr_expect_eq(json_array_size(json_object_get(json, "tensors")), 47);
	json_int_t n_tensors = 0, n_bytes = 0, sum = 0;
	const char *format;
	json_t *share, *tensor;
	json_object_foreach (json_object_get(json, "formats"), format, share) {
		n_tensors += number_at(share, "tensors", NULL);
		n_bytes += number_at(share, "bytes", NULL);
	}
	size_t i;
	json_array_foreach (json_object_get(json, "tensors"), i, tensor)
		sum += number_at(tensor, "bytes", NULL);
	cr_expect_eq(n_tensors, 47);
	cr_expect_eq(n_bytes, sum);
	json_decref(json);
	release(&r);
	r = run("info", source_path("models/austen.gguf"));
	cr_expect(strstr(r.out, "architecture  llama\n"), "%s", r.out);
	cr_expect(strstr(r.out, "\n  Q8_0 "), "%s", r.out);
	/* How fast memory is read is measured once on a device. */
	const char *speed = strstr(r.out, "\n  decode      at most about ");
	cr_assert(speed, "%s", r.out);
	struct result again = run("info", "-m", source_path("models/austen.gguf"));
	cr_expect(strstr(again.out, speed), "%s and %s", r.out, again.out);
	release(&again);
	release(&r);
}

/* The plan says what a session really takes: within the blocks that buffers share. */
Test(command, info_plans_memory)
{
	struct result r = run("info", "--json", "-c", "1000", "-b", "64", CPU_EXACT);
	json_t *json = parse_json(&r), *memory = json_object_get(json, "memory");
	cr_expect_str_eq(json_string_value(json_object_get(memory, "device")), "cpu");
	cr_expect_eq(number_at(memory, "n_ctx", NULL), 1000);
	cr_expect_eq(number_at(memory, "n_batch", NULL), 64);
	cr_expect(json_is_true(json_object_get(memory, "fits")));
	json_int_t width =
		number_at(json, "hparams", "n_head_kv") * number_at(json, "hparams", "head_dim");
	json_int_t token = 2 * width * number_at(json, "hparams", "n_layer"); /* elements */
	cr_expect_eq(number_at(memory, "kv_bytes", NULL), 1024 * token * 4, "in blocks of 32");
	const double bytes[] = {2, 4, 36.0 / 32, 20.0 / 32}; /* f16 f32 q8_0 q4_0 */
	json_t *types = json_object_get(memory, "kv_types"), *type;
	size_t i;
	cr_assert_eq(json_array_size(types), ARRAY_COUNT(bytes));
	json_array_foreach (types, i, type)
		cr_expect_eq((double)number_at(type, "bytes_per_1000_tokens", NULL),
			1000 * (double)token * bytes[i]);
	json_t *chunks = json_object_get(memory, "chunks");
	cr_expect_lt(number_at(json_array_get(chunks, 0), "scratch_bytes", NULL),
		number_at(json_array_get(chunks, 1), "scratch_bytes", NULL));
	cr_expect_eq(number_at(memory, "largest_n_ctx", NULL),
		number_at(json, "hparams", "n_ctx_train") > 1000
			? number_at(json, "hparams", "n_ctx_train")
			: 1000);
	json_t *decode = json_object_get(json, "decode");
	cr_expect_eq(number_at(decode, "bytes_full", NULL),
		number_at(decode, "bytes_empty", NULL) + number_at(memory, "kv_bytes", NULL));
	const double rate = json_real_value(json_object_get(decode, "tok_per_second_full"));
	cr_expect_float_eq(rate * (double)number_at(decode, "bytes_full", NULL) * 1e-9 /
			json_real_value(json_object_get(decode, "gb_per_second")),
		1, 1e-6);
	json_decref(json);
	release(&r);
	expect_failure(run("info", "-dev", "no such device"), 4, "no such device");
}

Test(command, override_kv)
{
	struct result r = run("info", "--json", CPU, "--override-kv", "general.name=str:renamed",
		"--override-kv", "llama.context_length=int:77");
	json_t *json = parse_json(&r);
	cr_expect_str_eq(json_string_value(json_object_get(json, "name")), "renamed");
	cr_expect_eq(number_at(json, "hparams", "n_ctx_train"), 77);
	json_decref(json);
	release(&r);
	expect_failure(run("tokenize", "-p", "a", "--override-kv", "a=int"), 2, "KEY=TYPE:VALUE");
	expect_failure(run("-p", "a", CPU, "--override-kv", "llama.block_count=int:-1"), 5,
		"llama.block_count");
}

Test(command, info_of_a_vocabulary)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-gpt-2.gguf");
	const char *model = shared_path("tokenizers/ggml-vocab-gpt-2.gguf");
	struct result r = run("info", "--json", "-m", model);
	json_t *json = parse_json(&r);
	cr_expect(json_is_string(json_object_get(json, "refused")));
	cr_expect_eq(number_at(json, "hparams", "n_vocab"), 50257);
	json_decref(json);
	release(&r);
	expect_failure(run("-m", model, "-p", "a", CPU), 5, "this is a vocabulary alone");
}

Test(command, devices)
{
	struct result r = run("devices", "--json");
	cr_expect(r.status == 0 || r.status == 4, "status %d", r.status);
	bool usable = r.status == 0;
	r.status = 0;
	json_t *json = parse_json(&r), *list = json_object_get(json, "devices"), *device;
	size_t i, n_usable = 0;
	cr_assert(json_is_array(list));
	json_array_foreach (list, i, device) {
		bool is_usable = json_is_true(json_object_get(device, "usable"));
		cr_expect_eq(json_is_null(json_object_get(device, "refused")), is_usable);
		cr_expect_eq(json_string_length(json_object_get(device, "uuid")), 32);
		n_usable += is_usable;
		cr_expect_leq(number_at(device, "budget_bytes", NULL),
			number_at(device, "memory_bytes", NULL));
	}
	/* Only the validation layer is known to be here, which nobody gets unasked. */
	cr_expect(!strstr(json_string_value(json_object_get(json, "layers")), "VK_LAYER_KHRONOS_"));
	cr_expect_eq(n_usable > 0, usable);
	struct result table = run("devices"), flag = run("--list-devices");
	cr_expect_eq(table.status, usable ? 0 : 4);
	cr_expect_str_eq(flag.out, table.out);
	json_array_foreach (list, i, device)
		cr_expect(strstr(table.out, json_string_value(json_object_get(device, "name"))),
			"%s", table.out);
	cr_expect(usable || strstr(table.err, "--device cpu"), "%s", table.err);
	json_decref(json);
	release(&r);
	release(&table);
	release(&flag);
}

/* No driver at all: an empty list, status 4 and what to do, and the CPU goes on working. */
Test(command, no_vulkan)
{
	setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
	setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
	expect_failure(run("devices"), 4, "--device cpu");
	expect_failure(run("-n", "1"), 4, "--device cpu");
	struct result r = run(CPU, "-n", "1");
	cr_expect_eq(r.status, 0, "%s", r.err);
	release(&r);
}

/* ---- streams --------------------------------------------------------------------------------- */

Test(command, output_that_is_full_or_closed)
{
	static const char *const cases[][10] = {
		{NULL, "version"},
		{NULL, "--help"},
		{NULL, "info", "--json"},
		{NULL, "tokenize", "-p", "It was"},
		{NULL, "logits", "--tokens", "1,2", "-o", "-", CPU},
		{NULL, CPU, "-n", "4"},
		{NULL, CPU, "-n", "4", "--json"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		for (int closed = 0; closed < 2; closed++) {
			const char *argv[ARRAY_COUNT(cases[0])];
			memcpy(argv, cases[i], sizeof argv);
			argv[0] = program();
			const char *err_path = scratch("err");
			int err = open(err_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
			int in = open("/dev/null", O_RDONLY), full = open("/dev/full", O_WRONLY);
			int status = finish(start(argv, in, closed ? -1 : full, err));
			char *words = read_text(err_path, NULL);
			cr_expect_eq(status, 8, "%s, %s: status %d, %s", argv[1],
				closed ? "closed" : "full", status, words);
			cr_expect(strstr(words, "cannot write to standard output"), "%s", words);
			free(words);
			close(in);
			close(full);
			close(err);
		}
}

/* Starts a generation without end that writes into a pipe; *out is its read end. */
static pid_t start_endless(int *out, const char *err_path)
{
	const char *argv[] = {program(), CPU, "-n", "-1", "--ignore-eos", "-c", "4096", "-p",
		"It was", "--temp", "1.5", NULL};
	int ends[2], in = open("/dev/null", O_RDONLY);
	int err = open(err_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	cr_assert(pipe(ends) == 0 && in >= 0 && err >= 0);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	pid_t pid = start(argv, in, ends[1], err);
	close(ends[1]);
	close(in);
	close(err);
	*out = ends[0];
	return pid;
}

static void read_some(int fd, size_t n_bytes)
{
	char byte;
	while (n_bytes-- > 0)
		cr_assert_eq(read(fd, &byte, 1), 1, "the output ended");
}

/* The first ^C stops within a token, at a whole character, with statistics. */
Test(command, interrupt, .timeout = 60)
{
	int out;
	const char *err_path = scratch("err");
	pid_t pid = start_endless(&out, err_path);
	read_some(out, strlen("It was") + 8);
	double start_time = clock_seconds();
	kill(pid, SIGINT);
	struct text rest = {0};
	char chunk[4096];
	for (ssize_t n; (n = read(out, chunk, sizeof chunk)) > 0;)
		text_append(&rest, chunk, (size_t)n);
	int status = finish(pid);
	close(out);
	char *words = read_text(err_path, NULL);
	cr_expect_eq(status, 130, "status %d: %s", status, words);
	cr_expect_lt(clock_seconds() - start_time, 5);
	cr_expect(strstr(words, "tok/s") && strstr(words, "(cancelled)"), "%s", words);
	for (size_t i = 0; i < rest.n;) {
		uint32_t code;
		unsigned n = utf8_decode(rest.data + i, rest.n - i, &code);
		/* a reader may begin inside a character, the end must be whole */
		cr_expect(n || i < 3, "half a character at byte %zu of %zu", i, rest.n);
		i += n ? n : 1;
	}
	text_free(&rest);
	free(words);
}

/* A second ^C ends at once, though the first may have to wait for the step it is in: here the chunk of
 * a long prompt. */
Test(command, interrupt_twice, .timeout = 60)
{
	enum { N_PROMPT = 2000 };
	struct text prompt = {0};
	for (int i = 0; i < N_PROMPT; i++)
		text_append(&prompt, " a", 2);
	const char *argv[] = {program(), CPU, "-c", "4096", "-b", "2000", "-f",
		write_scratch("long", prompt.data, prompt.n), NULL};
	int ends[2], null = open("/dev/null", O_RDWR);
	cr_assert(pipe(ends) == 0 && null >= 0);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	pid_t pid = start(argv, null, ends[1], null);
	close(ends[1]);
	read_some(ends[0], prompt.n);
	kill(pid, SIGINT);
	nanosleep(&(struct timespec){0, 100000000}, NULL);
	double start_time = clock_seconds();
	kill(pid, SIGINT);
	cr_expect_eq(finish(pid), 130);
	cr_expect_lt(clock_seconds() - start_time, 2);
	close(ends[0]);
	close(null);
	text_free(&prompt);
}

/* While standard input is awaited there is nothing to finish: the first ^C ends. */
Test(command, interrupt_of_a_prompt, .timeout = 60)
{
	const char *argv[] = {program(), CPU, "-f", "-", NULL};
	int ends[2], null = open("/dev/null", O_RDWR);
	cr_assert(pipe(ends) == 0 && null >= 0);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	pid_t pid = start(argv, ends[0], null, null);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	kill(pid, SIGINT);
	cr_expect_eq(finish(pid), 130);
	close(ends[0]);
	close(ends[1]);
	close(null);
}

/* The reader goes away: the end, without a word of complaint. */
Test(command, broken_pipe, .timeout = 60)
{
	int out;
	const char *err_path = scratch("err");
	pid_t pid = start_endless(&out, err_path);
	read_some(out, strlen("It was") + 8);
	close(out);
	int status = finish(pid);
	char *words = read_text(err_path, NULL);
	cr_expect_eq(status, 0, "status %d: %s", status, words);
	cr_expect(!strstr(words, "lapilli:") && !strstr(words, "tok/s"), "%s", words);
	free(words);
}

/* ---- JSON of any bytes ----------------------------------------------------------------------- */

static void expect_json(const char *bytes, size_t n_bytes, const char *expected)
{
	json_t *json = json_bytes(bytes, n_bytes);
	cr_assert(json);
	char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);
	cr_assert(text);
	cr_expect_str_eq(text, expected);
	free(text);
	json_decref(json);
}

#define BAD "\xEF\xBF\xBD"

Test(command, json_of_any_bytes)
{
	expect_json("plain", 5, "\"plain\"");
	expect_json("\"\\\n", 3, "\"\\\"\\\\\\n\"");
	expect_json("a\0b", 3, "\"a\\u0000b\"");
	expect_json("\xE4\xB8\x96", 3, "\"\xE4\xB8\x96\"");
	expect_json("\xE4\xB8", 2, "\"" BAD BAD "\"");
	expect_json("a\xFFz", 3, "\"a" BAD "z\"");
	expect_json("\xED\xA0\x80", 3, "\"" BAD BAD BAD "\""); /* a surrogate */
	expect_json("\xC0\x80", 2, "\"" BAD BAD "\"");         /* an overlong zero */
	expect_json("\xF4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\"");
	expect_json("", 0, "\"\"");
}
