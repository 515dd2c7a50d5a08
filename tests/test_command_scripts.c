/* The command in scripts: where a prompt comes from, lines of JSON, signals. OB-29 and OB-30 of the faults
 * collected from other engines. The demo model on the CPU reference. */
#include <criterion/criterion.h>
#include <signal.h>

#include "command.h"

#define GREEDY CPU_EXACT, "--temp", "0", "-n", "6"

/* The command with these bytes behind a pipe as standard input. */
static struct result run_piped(const char *bytes, const char *const *argv)
{
	int ends[2];
	const char *out_path = scratch("out"), *err_path = scratch("err");
	int out = open(out_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int err = open(err_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	cr_assert(pipe(ends) == 0 && out >= 0 && err >= 0);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	pid_t pid = start(argv, ends[0], out, err);
	close(ends[0]);
	cr_assert_eq(write(ends[1], bytes, strlen(bytes)), (ssize_t)strlen(bytes));
	close(ends[1]);
	struct result r = {.status = finish(pid)};
	close(out);
	close(err);
	r.out = read_text(out_path, &r.n_out);
	r.err = read_text(err_path, NULL);
	return r;
}

#define piped(bytes, ...) \
	run_piped(bytes, (const char *const[]){program(), GREEDY, __VA_ARGS__, NULL})

static void expect_same(struct result r, const struct result *expected, const char *how)
{
	cr_expect_eq(r.status, 0, "%s: %s", how, r.err);
	cr_expect_str_eq(r.out, expected->out, "%s", how);
	release(&r);
}

/* The same text by -p, -f, standard input and a pipe is the same prompt; an argument and a pipe are two lines. */
Test(scripts, prompts)
{
	char file[512]; /* as long as others are asked for */
	snprintf(file, sizeof file, "%s", write_scratch("file", "It was\na truth\n", 15));
	struct result expected = run(GREEDY, "-p", "It was\na truth\n");
	cr_assert_eq(expected.status, 0, "%s", expected.err);
	cr_expect(!strncmp(expected.out, "It was\na truth\n", 15));
	expect_same(run(GREEDY, "-f", file), &expected, "-f");
	expect_same(run_input(file, GREEDY, "-p", "-"), &expected, "-p -");
	expect_same(run_input(file, GREEDY, "-f", "-"), &expected, "-f -");
	expect_same(piped("It was\na truth\n", "-p", "-"), &expected, "-p - of a pipe");
	expect_same(piped("a truth\n", "-p", "It was"), &expected, "-p and a pipe");
	expect_same(piped("a truth\n", "-p", "It was\n"), &expected, "a line and a pipe");
	expect_same(piped("It was\na truth\n", "--no-escape"), &expected, "a pipe alone");
	expect_same(piped("not this", "-f", file), &expected, "-f, beside a pipe");
	expect_same(piped("", "-p", "It was\na truth\n"), &expected, "an empty pipe");
	cr_expect(
		strstr(expected.err, "notice: no -m: the small model inside this program; -m FILE"),
		"%s", expected.err);
	release(&expected);
	expect_failure(piped("a", "-p", "-", "-sysf", "-"), 2, "-p - and -sysf - both read");
}

/* OB-29: escapes of a stop text are read with -e, as those of -p, and else stay two characters. */
Test(scripts, escapes_of_stops)
{
	struct result typed = run(GREEDY, "--json", "-p", "It was\n", "-r", "\n");
	struct result escaped = run(GREEDY, "--json", "-e", "-p", "It was\\n", "-r", "\\n");
	struct result plain = run(GREEDY, "--json", "-p", "It was\n", "-r", "\\n");
	json_t *t = parse_json(&typed), *e = parse_json(&escaped), *p = parse_json(&plain);
	cr_expect_str_eq(json_string_value(json_object_get(t, "finish_reason")), "stop");
	cr_expect(json_equal(json_object_get(t, "tokens"), json_object_get(e, "tokens")));
	cr_expect_str_eq(json_string_value(json_object_get(p, "finish_reason")), "length");
	json_decref(t);
	json_decref(e);
	json_decref(p);
	release(&typed);
	release(&escaped);
	release(&plain);
}

/* A line for each token, and that of --json, which says the same. */
Test(scripts, json_lines)
{
	struct result all = run(GREEDY, "-p", "It was", "--json", "--logprobs", "1");
	struct result r = run(GREEDY, "-p", "It was", "--jsonl", "--logprobs", "1");
	json_t *expected = parse_json(&all), *ids = json_array(), *last = NULL;
	struct text text = {0};
	size_t n = 0;
	cr_assert_eq(r.status, 0, "%s", r.err);
	cr_expect_str_eq(r.err, "");
	for (char *line = r.out, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
		json_decref(last);
		last = json_loadb(line, (size_t)(end - line), 0, NULL);
		cr_assert(last, "%s", line);
		json_t *id = json_object_get(last, "id");
		if (!id)
			continue;
		json_array_append(ids, id);
		text_printf(&text, "%s", json_string_value(json_object_get(last, "text")));
		cr_expect(json_is_real(json_object_get(last, "logprob")));
		cr_expect_eq(json_array_size(json_object_get(last, "top_logprobs")), 1);
	}
	cr_expect_eq(n, 7);
	cr_expect(json_equal(ids, json_object_get(expected, "tokens")));
	cr_expect_str_eq(text.data, json_string_value(json_object_get(expected, "text")));
	static const char *const keys[] = {"text", "tokens", "finish_reason", "usage", "logprobs"};
	for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
		cr_expect(json_equal(json_object_get(last, keys[i]),
				  json_object_get(expected, keys[i])),
			"%s", keys[i]);
	json_decref(last);
	json_decref(ids);
	json_decref(expected);
	text_free(&text);
	release(&all);
	release(&r);
	expect_failure(run("--jsonl", "--beams", "2", "-p", "a"), 2, "--jsonl is not for --beams");
}

/* Several -p, or several -f: each text is what its prompt gives alone, in their order. */
Test(scripts, several_prompts)
{
	static const char *const prompts[] = {"It was", "Mr. Darcy\\n", "Emma"};
	json_t *alone[3];
	for (size_t i = 0; i < 3; i++) {
		struct result r = run(GREEDY, "-e", "-p", prompts[i], "--json");
		alone[i] = parse_json(&r);
		release(&r);
	}
	struct result r =
		run(GREEDY, "-e", "-p", prompts[0], "-p", prompts[1], "-p", prompts[2], "--jsonl");
	size_t n_tokens[3] = {0}, n_results = 0;
	for (char *line = r.out, *end; (end = strchr(line, '\n')); line = end + 1) {
		json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
		const json_int_t number = json_integer_value(json_object_get(object, "prompt"));
		cr_assert(number >= 1 && number <= 3, "%s", line);
		if (json_object_get(object, "id")) {
			n_tokens[number - 1]++;
		} else {
			cr_expect_eq(number, (json_int_t)++n_results);
			cr_expect(json_equal(json_object_get(object, "tokens"),
				json_object_get(alone[number - 1], "tokens")));
		}
		json_decref(object);
	}
	cr_expect_eq(n_results, 3);
	for (size_t i = 0; i < 3; i++)
		cr_expect_eq(n_tokens[i], 6, "of prompt %zu", i + 1);
	release(&r);

	char first[512];
	snprintf(first, sizeof first, "%s", write_scratch("first", "It was", 6));
	const char *second = write_scratch("second", "Emma", 4);
	r = run(GREEDY, "-f", first, "-f", second);
	const char *text = json_string_value(json_object_get(alone[2], "text"));
	cr_expect(strstr(r.out, "==> prompt 1 (length) <==\nIt was") == r.out, "%s", r.out);
	const char *other = strstr(r.out, "\n==> prompt 2 (length) <==\nEmma");
	cr_expect(other && strstr(other, text), "%s", r.out);
	release(&r);
	for (size_t i = 0; i < 3; i++)
		json_decref(alone[i]);
	expect_failure(run("-p", "a", "-p", "-"), 2, "-p - is for one prompt");
	expect_failure(run("-p", "a", "-p", "b", "-f", first), 2, "-p and -f both name");
	expect_failure(run("-f", "-", "-f", "-"), 2, "both read standard input");
	expect_failure(run("-p", "a", "-p", "b", "--beams", "2"), 2, "more than one -p or -f");
	expect_failure(run("-f", first, "-f", "no such file"), 8, "no such file");
}

/* Options of llama.cpp's change nothing, and are said; variables stand for those that are not given. */
Test(scripts, options_from_elsewhere)
{
	struct result expected = run(GREEDY, "-p", "It was");
	struct result r = run(GREEDY, "-p", "It was", "-ngl", "99", "-t", "4");
	cr_expect(strstr(r.err, "warning: -ngl means nothing here: ") &&
			strstr(r.err, "warning: -t means nothing here: "),
		"%s", r.err);
	expect_same(r, &expected, "options of llama.cpp");
	setenv("LAPILLI_TEMP", "0", 1);
	setenv("LAPILLI_MAX_TOKENS", "6", 1);
	setenv("LAPILLI_DEVICE", "cpu", 1);
	expect_same(run("-ctk", "f32", "-ctv", "f32", "-p", "It was"), &expected, "variables");
	release(&expected);
}

/* A whole text so far, its statistics, and the signal in the status. */
Test(scripts, ends_from_outside, .timeout = 60)
{
	static const int numbers[] = {SIGTERM, SIGHUP};
	for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
		const char *argv[] = {program(), CPU, "-n", "-1", "--ignore-eos", "-c", "4096",
			"-p", "It was", NULL};
		const char *err_path = scratch("err");
		int ends[2], null = open("/dev/null", O_RDONLY);
		int err = open(err_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		char byte;
		cr_assert(pipe(ends) == 0 && null >= 0 && err >= 0);
		fcntl(ends[0], F_SETFD, FD_CLOEXEC);
		signal(SIGHUP, SIG_DFL); /* ignored signals stay so, as under nohup */
		pid_t pid = start(argv, null, ends[1], err);
		close(ends[1]);
		for (size_t n = 0; n < 16; n++)
			cr_assert_eq(read(ends[0], &byte, 1), 1, "the output ended");
		kill(pid, numbers[i]);
		while (read(ends[0], &byte, 1) == 1)
			;
		cr_expect_eq(finish(pid), 128 + numbers[i]);
		char *words = read_text(err_path, NULL);
		cr_expect(strstr(words, "(cancelled)"), "%s", words);
		free(words);
		close(ends[0]);
		close(null);
		close(err);
	}
}
