/* The rows that `lapilli bench` prints, in the form that -o names: a table for people, JSON, lines of JSON, CSV.
 *
 * Knows what a row is called and holds, not what was measured. */
#ifndef LAPILLI_BENCH_TABLE_H
#define LAPILLI_BENCH_TABLE_H

#include <jansson.h>

#include "base.h"
#include "options.h"

enum bench_output { OUTPUT_MD, OUTPUT_JSON, OUTPUT_JSONL, OUTPUT_CSV };

struct bench_table {
	enum bench_output output;
	const char *title; /* of the Markdown table: its first two lines */
	bool titled;
	bool waits;        /* the Markdown table is printed below its verdict, at the end */
	struct text lines; /* that wait */
	json_t *list;
};

struct bench_table bench_table_begin(const struct options *o, const char *title, bool waits);

/* Takes the row's object (NULL: memory was out); `line`: the same as a line of the Markdown table. */
enum lap_status bench_table_row(
	struct bench_table *t, json_t *object, const char *line, struct lap_error *err);

/* Prints what waits for the end, where `print` says so, and releases all. People get `verdict` above a table that waited and
 * `next` below it, both without a newline. */
enum lap_status bench_table_end(
	struct bench_table *t, const char *verdict, const char *next, bool print);

#endif
