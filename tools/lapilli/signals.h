/* What signals do: ^C, the end of the program from outside, being stopped and resumed; and the terminal,
 * which each of them leaves as it was found.
 *
 * Handlers set flags, ask a session to stop, and write what brings the terminal back: nothing else.
 * Knows nothing of models, texts or lines. */
#ifndef LAPILLI_SIGNALS_H
#define LAPILLI_SIGNALS_H

#include <stdbool.h>

#include "lapilli.h"

/* From here on the first SIGINT, SIGTERM or SIGHUP calls lap_session_cancel on the session last given to
 * interrupt_session (may be NULL), and a second ends the process. Without it they end the process as
 * usual. A SIGHUP that was ignored stays so. */
void interrupt_install(void);
void interrupt_session(struct lap_session *session);

/* Whether the first has come. */
bool interrupted(void);

/* ... and was no ^C: the program is to end. */
bool terminated(void);

/* The exit status that says so: 128 + the signal. */
int interrupt_status(void);

/* For who asks again: a ^C so far is over, and the next one is a first. */
void interrupt_forget(void);

/* ---- terminal -------------------------------------------------------------------------------- */

/* From here on, ends by a signal and stops (^Z) leave the terminal of standard input as it is now, and
 * whoever resumes the program finds it again as it was when it stopped. */
void terminal_guard(void);

/* What is written to make the terminal be in some mode (a colour, bracketed paste), and to undo it. */
struct terminal_mode {
	const char *enter, *leave;
};

/* Puts the terminal of standard output into a mode, out of the one before; NULL: none. What was written to
 * stdout must have been flushed. */
void terminal_enter(const struct terminal_mode *mode);

enum input_event {
	INPUT_READY,   /* bytes, or the end, can be read */
	INPUT_STOPPED, /* interrupted() */
	INPUT_RESUMED, /* after a stop: the terminal shows something else */
	INPUT_RESIZED,
};

/* Waits until one of them is so; the last two are said once. */
enum input_event input_wait(int fd);

#endif
