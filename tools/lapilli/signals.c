/* Signals and the terminal: see signals.h. */
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/select.h>
#include <termios.h>
#include <unistd.h>

static volatile sig_atomic_t n_interrupts, last_interrupt, ends, resumed, resized;
static _Atomic(struct lap_session *) current_session;

static bool guarded; /* set before the handlers that look at it are there */
static struct termios found;
static _Atomic(const struct terminal_mode *) current_mode;

static void write_mode(const char *sequence)
{
	for (size_t n = strlen(sequence); n;) {
		ssize_t written = write(STDOUT_FILENO, sequence, n);
		if (written <= 0 && errno != EINTR)
			return;
		if (written > 0) {
			sequence += written;
			n -= (size_t)written;
		}
	}
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void restore_terminal(void)
{
	const struct terminal_mode *mode = atomic_load(&current_mode);
	if (mode)
		write_mode(mode->leave);
	if (guarded)
		tcsetattr(STDIN_FILENO, TCSANOW, &found);
}

static void handle_interrupt(int number)
{
	if (n_interrupts++) {
		restore_terminal();
		_exit(128 + number);
	}
	last_interrupt = number;
	ends |= number != SIGINT;
	struct lap_session *session = atomic_load(&current_session);
	if (session)
		lap_session_cancel(session);
}

static void install(int number, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

static bool is_ignored(int number)
{
	struct sigaction now;
	return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void interrupt_install(void)
{
	install(SIGINT, handle_interrupt);
	install(SIGTERM, handle_interrupt);
	if (!is_ignored(SIGHUP))
		install(SIGHUP, handle_interrupt);
}

void interrupt_session(struct lap_session *session)
{
	atomic_store(&current_session, session);
}

bool interrupted(void)
{
	return n_interrupts > 0;
}

bool terminated(void)
{
	return ends;
}

int interrupt_status(void)
{
	return 128 + (last_interrupt ? (int)last_interrupt : SIGINT);
}

void interrupt_forget(void)
{
	if (!ends)
		n_interrupts = 0;
}

/* ---- terminal -------------------------------------------------------------------------------- */

/* Leaves the terminal to the shell, stops, and takes it back. */
static void handle_stop(int number)
{
	const int error = errno;
	struct termios now;
	sigset_t stop;
	const bool known = tcgetattr(STDIN_FILENO, &now) == 0;
	restore_terminal();

	signal(number, SIG_DFL);
	raise(number);
	sigemptyset(&stop);
	sigaddset(&stop, number);
	sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here it stops, and goes on */
	install(number, handle_stop);

	const struct terminal_mode *mode = atomic_load(&current_mode);
	if (known)
		tcsetattr(STDIN_FILENO, TCSANOW, &now);
	if (mode)
		write_mode(mode->enter);
	resumed = 1;
	errno = error;
}

static void handle_resize(int number)
{
	(void)number;
	resized = 1;
}

void terminal_guard(void)
{
	guarded = tcgetattr(STDIN_FILENO, &found) == 0;
	if (!is_ignored(SIGTSTP))
		install(SIGTSTP, handle_stop);
	install(SIGWINCH, handle_resize);
}

void terminal_enter(const struct terminal_mode *mode)
{
	const struct terminal_mode *before = atomic_exchange(&current_mode, mode);
	if (before)
		write_mode(before->leave);
	if (mode)
		write_mode(mode->enter);
}

/* Signals are held back while flags are looked at, so that none is missed before the wait. */
enum input_event input_wait(int fd)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
	sigset_t held, before;
	sigemptyset(&held);
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		sigaddset(&held, numbers[i]);
	sigprocmask(SIG_BLOCK, &held, &before);
	enum input_event event = INPUT_READY;
	for (bool known = false; !known;) {
		fd_set set;
		FD_ZERO(&set);
		FD_SET(fd, &set);
		known = true;
		if (n_interrupts)
			event = INPUT_STOPPED;
		else if (resumed) {
			resumed = 0;
			event = INPUT_RESUMED;
		} else if (resized) {
			resized = 0;
			event = INPUT_RESIZED;
		} else
			known = pselect(fd + 1, &set, NULL, NULL, NULL, &before) > 0 ||
				errno != EINTR;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return event;
}
