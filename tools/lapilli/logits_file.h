/* The probabilities of one model over a text in a file, for another to be compared with (perplexity
 * --kl-divergence-base).
 *
 * The format is that of llama.cpp's llama-perplexity, so that each program reads the other's files; all
 * numbers are little-endian:
 *     "_logits_"; u32 tokens in a window, u32 vocabulary, u32 windows; i32 tokens[windows][tokens in a window];
 *     then for each window and each of its scored tokens (those of its second half but the first of it) a
 *     row: f32 scale, f32 least log-probability, u16 codes[vocabulary], and one u16 more where the
 *     vocabulary is odd.
 * A log-probability is least + scale * code; what is SPAN and more below the largest has code 0, which
 * stands for "that little or less". */
#ifndef LAPILLI_LOGITS_FILE_H
#define LAPILLI_LOGITS_FILE_H

#include "base.h"
#include "windows.h"

#define LOGITS_FILE_SPAN 16.0f /* of the log-probabilities that have codes of their own */

/* Log-probabilities from here down are not taken for what they are. */
#define LOGITS_FILE_LEAST (-(double)LOGITS_FILE_SPAN)

/* One that is being written, by rename: release with logits_file_close. */
struct logits_writer {
	struct file_writer file;
	uint8_t *row;
	uint32_t n_vocab;
};

enum lap_status logits_file_create(const char *path, const struct windows *w, uint32_t n_vocab,
	struct logits_writer *writer, struct lap_error *err);

/* The next row, of logits and logits_log_sum of them. */
void logits_file_append(struct logits_writer *writer, const float *logits, double log_sum);

/* keep: false leaves the path as it was. A zeroed writer is allowed. */
enum lap_status logits_file_close(struct logits_writer *writer, bool keep, struct lap_error *err);

/* One that is read. */
struct logits_reader {
	struct mapped_file file;
	uint32_t n_vocab, n_ctx, n_windows;
	const uint8_t *tokens, *rows;
	float *log_probs; /* [n_vocab], of the last row that was asked for */
};

/* LAP_IO: no such file, or it is something else or cut off; LAP_USAGE: of another vocabulary. */
enum lap_status logits_file_open(const char *path, const struct lap_model *model,
	struct logits_reader *reader, struct lap_error *err);

/* The tokens of all windows, on the heap; NULL: out of memory. */
int32_t *logits_file_tokens(const struct logits_reader *reader);

/* Row i of a window: log-probabilities, until the next call. */
const float *logits_file_row(struct logits_reader *reader, uint32_t window, uint32_t i);
void logits_file_release(struct logits_reader *reader); /* zeroed is allowed */

#endif
