/* What every command does with its standard streams.
 *
 * Owns the state of standard output (the first failed write is remembered), the words on standard
 * error, and JSON on one line. Knows nothing of models. The streams are never given a locale: numbers have
 * a point, text goes out as the bytes it is. */
#ifndef LAPILLI_CONSOLE_H
#define LAPILLI_CONSOLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base.h"

/* Before anything is opened: a standard stream that came closed is replaced by one on which reads or
 * writes fail, so that no file takes its number; a broken pipe becomes a failed write. */
void console_open(void);

/* Flushes standard output and returns the exit status: `status`, or LAP_IO with a message when
 * requested output was lost. A reader that went away is no failure: `status` stays. */
int console_close(int status);

/* Standard output. False when this or an earlier write failed: there is no use in going on. */
bool out_write(const void *bytes, size_t n_bytes);
bool out_printf(const char *format, ...) PRINTF_LIKE(1, 2);
bool out_flush(void);

/* Writes the value on one line and releases it; NULL: reports that memory is out. */
int out_json(json_t *value);

/* A JSON string of any bytes: those that are no UTF-8 become U+FFFD. */
json_t *json_bytes(const char *bytes, size_t n_bytes);

json_t *json_ids(const int32_t *ids, size_t n);

/* n / seconds, 0 when no time has passed (JSON has no infinity). */
double per_second(double n, double seconds);

/* Lines on standard error: a plain one; "lapilli: " and an error, whose status is returned. */
void say(const char *format, ...) PRINTF_LIKE(1, 2);
/* The last error that was reported; its status is LAP_OK when there was none. */
const struct lap_error *last_reported(void);
int report(const struct lap_error *err);

/* For who has no usable device. */
#define NO_DEVICE_ADVICE                                                                        \
	"Install a Vulkan driver (on Debian: mesa-vulkan-drivers, which also has the software " \
	"device lavapipe), or use --device cpu"

/* A number of bytes as "1.2 GiB". Valid until four more were asked for. */
const char *bytes_text(uint64_t n_bytes);

#endif
