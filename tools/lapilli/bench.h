/* What `lapilli bench` can measure, a function each, and the texts that are measured with. */
#ifndef LAPILLI_BENCH_H
#define LAPILLI_BENCH_H

#include "base.h"
#include "options.h"

/* Bytes to tokens: MB a second of CPU time, on standard output. */
enum lap_status bench_tokenizer(const struct options *o, struct lap_error *err);

/* Tokens a second of prompts, of generation, and of generation in batches, beside the memory bandwidth of
 * the device. */
enum lap_status bench_speed(const struct options *o, struct lap_error *err);

/* One kernel alone, at shapes of the user's. LAP_INVALID: it computes wrong results. */
enum lap_status bench_kernel(const struct options *o, struct lap_error *err);

/* Kinds of text, each always the same. */
enum bench_kind { BENCH_PROSE, BENCH_CODE, BENCH_JSON, BENCH_SCRIPTS, BENCH_CJK, N_BENCH_KINDS };

const char *bench_kind_name(enum bench_kind kind);

/* Appends about n_bytes of a kind, to the end of a line, to *out. False: out of memory. */
bool bench_text(enum bench_kind kind, size_t n_bytes, struct text *out);

#endif
