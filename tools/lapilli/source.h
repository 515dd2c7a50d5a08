/* Where a command's model and text come from, as the options say. Owns the progress bar, the log on
 * standard error and the rules for prompts; knows no format and no token. */
#ifndef LAPILLI_SOURCE_H
#define LAPILLI_SOURCE_H

#include "base.h"
#include "options.h"

/* How much of a model a command needs: see struct lap_model_options. */
enum source_part { SOURCE_MODEL, SOURCE_NO_WEIGHTS, SOURCE_VOCABULARY };

/* Opens the model of -m, or the embedded one; release with lap_model_close. When weights take longer
 * than a second to load, a terminal on standard error shows a bar. A ^C stops the load (LAP_ERROR). */
enum lap_status source_model(const struct options *o, enum source_part part,
	struct lap_model **model, struct lap_error *err);

/* The same on the CPU, for a judge of what a device that binds max_chunk_bytes at once computes. */
enum lap_status source_reference(const struct options *o, uint64_t max_chunk_bytes,
	struct lap_model **model, struct lap_error *err);

/* Appends the text of -p (-: standard input) or -f to *text, escapes of -p read when -e asks for it; *given says
 * whether one of the two was there. LAP_USAGE when both were, LAP_IO when the file cannot be read. */
enum lap_status source_text(
	const struct options *o, struct text *text, bool *given, struct lap_error *err);

/* What comes through a pipe on standard input, behind the text and on a new line; nothing where it is no pipe, or
 * empty. *given becomes true when there is something. A pipe is waited for, which is said after a while. */
enum lap_status source_piped(struct text *text, bool *given, struct lap_error *err);

/* The system message of -sys or -sysf in the same way. */
enum lap_status source_system(
	const struct options *o, struct text *text, bool *given, struct lap_error *err);

/* Appends the chat template of --chat-template-file, or else the model's (which may be NULL when there
 * is a file), to *text. LAP_ERROR, with what to use, when the model has none. */
enum lap_status source_template(const struct options *o, const struct lap_model *model,
	struct text *text, struct lap_error *err);

/* What the library takes for these bytes, an empty text for none. Valid as long as they are. */
struct lap_text source_bytes(const struct text *text);

/* Appends s with its escapes read, as -e does.  False: out of memory. */
bool source_unescape(struct text *text, const char *s);

/* Every text of a list with its escapes read, in *texts (release with source_free_list); NULL for an
 * empty list. */
enum lap_status source_unescape_list(
	const struct text_list *list, char ***texts, struct lap_error *err);
void source_free_list(char **texts, size_t n); /* NULL is allowed */

/* Session options from the command line. */
struct lap_session_options source_session(const struct options *o);

/* The same for n_seq sequences. Without -c each has the context that it would have alone, and the KV cache
 * holds them all, or what fits of that, which is said on standard error. Fields that are set in *s (n_top,
 * n_draft) stay as they are. */
enum lap_status source_sequences(const struct options *o, struct lap_model *model, uint32_t n_seq,
	struct lap_session_options *s, struct lap_error *err);

#endif
