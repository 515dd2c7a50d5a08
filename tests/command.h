/* Runs the built command as a user does, on streams of its own, and keeps what it said.  Header only;
 * each suite uses what it needs. */
#ifndef LAPILLI_TESTS_COMMAND_H
#define LAPILLI_TESTS_COMMAND_H

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base.h"
#include "support.h"

struct result {
	int status; /* of exit, or 128 + signal */
	char *out, *err;
	size_t n_out;
};

static inline const char *scratch(const char *name)
{
	char own[64]; /* tests of a suite run side by side */
	snprintf(own, sizeof own, "%ld-%s", (long)getpid(), name);
	return scratch_path(own);
}

static inline const char *write_scratch(const char *name, const void *bytes, size_t n_bytes)
{
	const char *path = scratch(name);
	struct lap_error err;
	cr_assert_eq(file_write(path, bytes, n_bytes, &err), LAP_OK, "%s", err.text);
	return path;
}

/* Starts the command with the three streams; -1 leaves one closed. */
static inline pid_t start(const char *const *argv, int in, int out, int err)
{
	pid_t pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		const int streams[] = {in, out, err};
		for (int i = 0; i < 3; i++)
			if (streams[i] >= 0 && dup2(streams[i], i) < 0)
				_exit(99);
		for (int i = 0; i < 3; i++)
			if (streams[i] < 0)
				close(i);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(99);
	}
	return pid;
}

static inline int finish(pid_t pid)
{
	int status;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The path of the command, for argv[0]. */
static inline const char *program(void)
{
	const char *path = getenv("LAPILLI_COMMAND");
	cr_assert(path && access(path, X_OK) == 0,
		"LAPILLI_COMMAND does not name the command; ctest sets it");
	return path;
}

static inline struct result run_with(const char *input, const char *const *argv)
{
	const char *out_path = scratch("out"), *err_path = scratch("err");
	int in = open(input ? input : "/dev/null", O_RDONLY);
	int out = open(out_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int err = open(err_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	cr_assert(in >= 0 && out >= 0 && err >= 0);
	struct result r = {.status = finish(start(argv, in, out, err))};
	close(in);
	close(out);
	close(err);
	r.out = read_text(out_path, &r.n_out);
	r.err = read_text(err_path, NULL);
	return r;
}

/* run("argument", ...): standard input is empty, or the file `input`. */
#define run(...)              run_input(NULL, __VA_ARGS__)
#define run_input(input, ...) run_with(input, (const char *const[]){program(), __VA_ARGS__, NULL})

static inline void release(struct result *r)
{
	free(r->out);
	free(r->err);
}

/* The command fails with this status and says this. */
static inline void expect_failure(struct result r, int status, const char *words)
{
	cr_expect_eq(r.status, status, "status %d, expected %d: %s", r.status, status, r.err);
	cr_expect(strstr(r.err, words), "\"%s\" is not in: %s", words, r.err);
	cr_expect_eq(r.n_out, 0, "on standard output: %s", r.out);
	release(&r);
}

static inline json_t *parse_json(const struct result *r)
{
	cr_assert_eq(r->status, 0, "status %d: %s", r->status, r->err);
	json_error_t error;
	json_t *json = json_loadb(r->out, r->n_out, JSON_ALLOW_NUL, &error);
	cr_assert(json, "%s in: %s", error.text, r->out);
	cr_assert_eq(strchr(r->out, '\n'), r->out + r->n_out - 1, "not one line: %s", r->out);
	return json;
}

static inline json_int_t number_at(const json_t *json, const char *key, const char *inner)
{
	const json_t *value = json_object_get(json, key);
	if (inner)
		value = json_object_get(value, inner);
	cr_assert(json_is_integer(value), "no number %s %s", key, inner ? inner : "");
	return json_integer_value(value);
}

#define CPU       "-dev", "cpu"
#define CPU_EXACT "-dev", "cpu", "-ctk", "f32", "-ctv", "f32"

#endif
