/* `lapilli chat` at a terminal: a pseudo-terminal on which keys are typed and signals come, as from a shell with
 * jobs.  Whatever happens, the terminal is left as it was.  OB-30 of the faults collected from other engines:
 * colour reset on ^C, a second ^C, locales. */
#define _XOPEN_SOURCE 700

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#include "command.h"

enum { PATIENCE_MS = 30000 }; /* for what should come at once */

struct terminal {
	int fd;
	pid_t shell, command;
	int news; /* the shell writes the command's pid, and a 0 when it has stopped */
	struct termios before;
	struct text seen;
	size_t at; /* what was expected so far came before */
};

/* The shell: the terminal's first process, with the command as its job in front. Ends as the command does. */
static _Noreturn void run_shell(const char *terminal, int news, const char *const *argv)
{
	for (int i = 3; i < 64;
		i++) /* the terminal's other end and the runner's pipes are not ours */
		if (i != news)
			close(i);
	setsid();
	int fd = open(terminal, O_RDWR);
	ioctl(fd, TIOCSCTTY, 0);
	signal(SIGTTOU, SIG_IGN);
	pid_t pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		tcsetpgrp(fd, getpid());
		signal(SIGTTOU, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		for (int i = 0; i < 3; i++)
			dup2(fd, i);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(99);
	}
	int status = 0;
	if (write(news, &pid, sizeof pid) < 0)
		_exit(98);
	while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status))
		if (write(news, &(pid_t){0}, sizeof pid) < 0)
			_exit(98);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static pid_t news_of(const struct terminal *t)
{
	pid_t pid;
	struct pollfd wait = {.fd = t->news, .events = POLLIN};
	cr_assert_eq(poll(&wait, 1, PATIENCE_MS), 1, "no news; seen: %s", t->seen.data);
	cr_assert_eq(read(t->news, &pid, sizeof pid), (ssize_t)sizeof pid);
	return pid;
}

static void start_at(struct terminal *t, const char *const *argv)
{
	int ends[2];
	*t = (struct terminal){.fd = posix_openpt(O_RDWR | O_NOCTTY)};
	cr_assert(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0 && pipe(ends) == 0);
	const char *name = ptsname(t->fd);
	int other =
		open(name, O_RDWR | O_NOCTTY); /* so that the terminal stays when all have left */
	cr_assert_eq(ioctl(t->fd, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = 80}), 0);
	cr_assert_eq(tcgetattr(other, &t->before), 0);
	for (int i = 0; i < 2; i++)
		fcntl(ends[i], F_SETFD, FD_CLOEXEC);
	fcntl(t->fd, F_SETFD, FD_CLOEXEC);
	fcntl(other, F_SETFD, FD_CLOEXEC);
	t->shell = fork();
	cr_assert_geq(t->shell, 0);
	if (t->shell == 0)
		run_shell(name, ends[1], argv);
	close(ends[1]);
	t->news = ends[0];
	t->command = news_of(t);
}

/* Waits until the words come, behind what was expected before. */
static void expect(struct terminal *t, const char *words)
{
	char chunk[4096];
	const char *found;
	text_append(&t->seen, "", 0);
	while (!(found = strstr(t->seen.data + t->at, words))) {
		struct pollfd wait = {.fd = t->fd, .events = POLLIN};
		int n = poll(&wait, 1, PATIENCE_MS);
		ssize_t n_read = n == 1 ? read(t->fd, chunk, sizeof chunk) : -1;
		cr_assert(
			n_read > 0, "\"%s\" does not come behind: %s", words, t->seen.data + t->at);
		text_append(&t->seen, chunk, (size_t)n_read);
	}
	t->at = (size_t)(found - t->seen.data) + strlen(words);
}

static void type(struct terminal *t, const char *keys)
{
	cr_assert_eq(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static bool is_as_before(const struct terminal *t)
{
	struct termios now;
	cr_assert_eq(tcgetattr(t->fd, &now), 0);
	return now.c_lflag == t->before.c_lflag && now.c_iflag == t->before.c_iflag &&
		now.c_oflag == t->before.c_oflag;
}

/* The command ends with this status, and has left the terminal as it was. */
static void expect_end(struct terminal *t, int status)
{
	char chunk[4096];
	int ended = finish(t->shell);
	for (struct pollfd wait = {.fd = t->fd, .events = POLLIN}; poll(&wait, 1, 100) == 1;) {
		ssize_t n = read(t->fd, chunk, sizeof chunk);
		if (n <= 0)
			break;
		text_append(&t->seen, chunk, (size_t)n);
	}
	cr_expect_eq(ended, status, "status %d: %s", ended, t->seen.data);
	cr_expect(is_as_before(t), "the terminal is not as it was");
	cr_expect(!strstr(t->seen.data + t->at, "\033[?2004h"), "bracketed paste stays on");
	text_free(&t->seen);
	close(t->fd);
	close(t->news);
}

/* A folder of its own for old messages, a terminal, and a locale that knows ASCII alone. */
static void setup(void)
{
	setenv("XDG_STATE_HOME", scratch("state"), 1);
	setenv("HOME", scratch("home"), 1);
	setenv("TERM", "xterm", 1);
	setenv("LC_ALL", "C", 1);
	unsetenv("NO_COLOR");
}

#define PLAIN             "{% for m in messages %}{{ m.content }}\n{% endfor %}"
#define OPENS             PLAIN "<think>\n"
#define template_of(text) write_scratch("template", text, strlen(text))
#define CHAT(template)                                                            \
	program(), "chat", CPU, "-s", "1", "--temp", "0", "--chat-template-file", \
		template_of(template)
/* A fresh one; a line that is shown again has no bracketed paste before it. */
#ifdef LAPILLI_LIBEDIT
#define PROMPT "\033[?2004h> "
#else
#define PROMPT "> "
#endif
#define begin(t, ...)                                                  \
	do {                                                           \
		start_at(t, (const char *const[]){__VA_ARGS__, NULL}); \
		expect(t, "^D leaves");                                \
		expect(t, "> ");                                       \
	} while (0)
#define ENDLESS "-n", "-1", "--ignore-eos", "-c", "4096"

TestSuite(chat_terminal, .init = setup, .timeout = 120);

/* The messages that a conversation was saved with. */
static const char *message(const json_t *messages, size_t i)
{
	return json_string_value(json_object_get(json_array_get(messages, i), "content"));
}

Test(chat_terminal, editing)
{
#ifndef LAPILLI_LIBEDIT
	skip_test("a build without libedit");
#endif
	struct terminal t;
	struct stat st;
	struct text line = {0};
	const char *saved = scratch("saved");
	begin(&t, CHAT(PLAIN), "-n", "3");
	cr_expect(!is_as_before(&t), "lines are not edited");
	/* a character of three bytes more, and taken back */
	type(&t, "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4\x7f!\r");
	expect(&t, "\xed\x95\x9c\xea\xb5\xad");
	expect(&t, PROMPT);
	type(&t, "\033[A\033[D?\r"); /* the same again, from history, with something in it */
	expect(&t, PROMPT);
	type(&t, "\033[200~one\r  /two\rthree\r\033[201~");
	expect(&t, "three");
	ioctl(t.fd, TIOCSWINSZ, &(struct winsize){.ws_row = 30, .ws_col = 40});
	type(&t, " four\r");
	expect(&t, PROMPT);
	type(&t, "forgotten");
	expect(&t, "forgotten");
	type(&t, "\003");
	expect(&t, "/exit or ^D leaves");
	expect(&t, PROMPT);
	text_printf(&line, "/save %s\r", saved);
	type(&t, line.data);
	expect(&t, "6 messages are in");
	expect(&t, PROMPT);
	type(&t, "\004");
	expect_end(&t, 0);

	json_t *messages = json_load_file(saved, 0, NULL);
	cr_assert_eq(json_array_size(messages), 6);
	cr_expect_str_eq(message(messages, 0), "\xed\x95\x9c\xea\xb5\xad!");
	cr_expect_str_eq(message(messages, 2), "\xed\x95\x9c\xea\xb5\xad?!");
	cr_expect_str_eq(message(messages, 4), "one\n  /two\nthree four");
	json_decref(messages);
	text_free(&line);
	line = (struct text){0};
	text_printf(&line, "%s/lapilli/history", getenv("XDG_STATE_HOME"));
	cr_expect(stat(line.data, &st) == 0 && (st.st_mode & 0777) == 0600, "mode %o", st.st_mode);

	begin(&t, CHAT(PLAIN), "-n", "1"); /* another day */
	type(&t, "\033[A\033[A");
	expect(&t, "three four");
	type(&t, "\r");
	expect(&t, PROMPT);
	type(&t, "/exit\r");
	expect_end(&t, 0);
	text_free(&line);
}

/* The first ^C ends the answer, and the conversation goes on with what there is of it. */
Test(chat_terminal, interrupt)
{
	struct terminal t;
	begin(&t, CHAT(PLAIN), ENDLESS);
	type(&t, "It was\r");
	expect(&t, "the ");
	type(&t, "\003");
	expect(&t, PROMPT);
	type(&t, "/tokens\r");
	expect(&t, "2 messages, 0 of them left out");
	type(&t, "and\r");
	expect(&t, "the ");
	kill(t.command, SIGTERM); /* ends, the answer and all */
	expect_end(&t, 128 + SIGTERM);
	begin(&t, CHAT(PLAIN), "-n", "1");
	kill(t.command, SIGHUP);
	expect_end(&t, 128 + SIGHUP);
}

/* Thoughts are dim, and no way out leaves the terminal so. */
Test(chat_terminal, colors)
{
	struct terminal t;
	begin(&t, CHAT(OPENS), ENDLESS);
	type(&t, "It was\r");
	expect(&t, "\033[2m");
	expect(&t, "the ");
	type(&t, "\003");
	expect(&t, "\033[0m");
	expect(&t, PROMPT);
	type(&t, "and\r");
	expect(&t, "\033[2m");
	expect(&t, "the ");
	kill(t.command,
		SIGSTOP); /* two at once, before the program can do anything about the first */
	kill(t.command, SIGINT);
	kill(t.command, SIGTERM);
	kill(t.command, SIGCONT);
	expect(&t, "\033[0m");
	const int status = finish(t.shell);
	cr_expect(status == 128 + SIGINT || status == 128 + SIGTERM, "status %d", status);
	cr_expect(is_as_before(&t));
	text_free(&t.seen);

	setenv("NO_COLOR", "1", 1);
	begin(&t, CHAT(OPENS), "-n", "3");
	type(&t, "It was\r");
	expect(&t, PROMPT);
	cr_expect(!strstr(t.seen.data, "\033[2m"), "%s", t.seen.data);
	type(&t, "\004");
	expect_end(&t, 0);
}

/* ^Z gives the terminal back, and whoever goes on finds the line as it was. */
Test(chat_terminal, stop)
{
#ifndef LAPILLI_LIBEDIT
	skip_test("a build without libedit");
#endif
	struct terminal t;
	begin(&t, CHAT(OPENS), ENDLESS);
	type(&t, "half");
	expect(&t, "half");
	type(&t, "\032");
	cr_expect_eq(news_of(&t), 0);
	expect(&t, "\033[?2004l");
	cr_expect(is_as_before(&t), "a stopped program keeps the terminal");
	kill(t.command, SIGCONT);
	expect(&t, "\033[?2004h");
	expect(&t, "half");
	cr_expect(!is_as_before(&t));
	type(&t, " a line\r");
	expect(&t, "\033[2m");
	expect(&t, "the ");
	type(&t, "\032"); /* in a dim answer */
	cr_expect_eq(news_of(&t), 0);
	expect(&t, "\033[0m");
	kill(t.command, SIGCONT);
	expect(&t, "\033[2m");
	type(&t, "\003");
	expect(&t, PROMPT);
	type(&t, "\004");
	expect_end(&t, 0);
}

/* A terminal that can do nothing gets plain lines. */
Test(chat_terminal, dumb)
{
	struct terminal t;
	setenv("TERM", "dumb", 1);
	begin(&t, CHAT(OPENS), "-n", "3");
	cr_expect(is_as_before(&t));
	type(&t, "It was\n");
	expect(&t, "> ");
	type(&t, "x\003");
	expect(&t, "/exit or ^D leaves");
	expect(&t, "> ");
	cr_expect(!strchr(t.seen.data, '\033'), "%s", t.seen.data);
	type(&t, "\004");
	expect_end(&t, 0);
}

/* With a model and no text somebody wants to talk; a model that cannot says what it can. */
Test(chat_terminal, a_model_alone)
{
	struct terminal t;
	const char *austen = source_path("models/austen.gguf");
	begin(&t, program(), "-m", austen, CPU, "--chat-template-file", template_of(PLAIN), "-n",
		"2");
	type(&t, "/exit\r");
	expect_end(&t, 0);
	start_at(&t, (const char *const[]){program(), "-m", austen, CPU, NULL});
	expect(&t, "austen.gguf has no chat template: it continues texts");
	expect(&t, "lapilli generate -m FILE -p TEXT");
	expect_end(&t, 1);
}

/* A bar while a long prompt is computed, which ^C takes away. */
Test(chat_terminal, a_long_prompt)
{
	struct terminal t;
	struct text words = {0};
	for (int i = 0; i < 300; i++)
		text_printf(&words, "it is a truth universally ");
	const char *file = write_scratch("long", words.data, words.n);
	start_at(&t,
		(const char *const[]){
			program(), "generate", CPU, "-b", "32", "-c", "4096", "-f", file, NULL});
	expect(&t, "prompt [#");
	expect(&t, " tok/s, ");
	expect(&t, " left");
	type(&t, "\003");
	expect(&t, "\r\033[K");
	expect(&t, "no token came of it");
	expect(&t, "(cancelled)");
	cr_expect(!strstr(t.seen.data + t.at, "prompt ["), "%s", t.seen.data);
	expect_end(&t, 130);
	text_free(&words);
}
