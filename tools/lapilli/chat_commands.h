/* What a line that begins with a slash asks for. */
#ifndef LAPILLI_TOOL_CHAT_COMMANDS_H
#define LAPILLI_TOOL_CHAT_COMMANDS_H

#include "chat.h"

/* Whether a message is a command: one slash and letters, alone or with a space behind them. */
bool chat_is_command(const char *message);

/* LAP_USAGE: there is no such command, or it needs something else behind it. */
enum lap_status chat_command(struct chat *c, const char *message, struct lap_error *err);

#endif
