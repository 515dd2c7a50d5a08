/* Files of log-probabilities: see logits_file.h. */
#include "logits_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};

enum { HEADER_BYTES = sizeof magic + 3 * 4, MOST_CODE = 65535 };

static uint64_t row_bytes(uint32_t n_vocab)
{
	return 8 + 2 * ((uint64_t)n_vocab + n_vocab % 2);
}

static void put_u16(uint8_t *p, uint32_t value)
{
	p[0] = (uint8_t)value;
	p[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *p, uint32_t value)
{
	put_u16(p, value & 0xFFFF);
	put_u16(p + 2, value >> 16);
}

static void put_float(uint8_t *p, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	put_u32(p, bits);
}

static uint32_t get_u16(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get_u32(const uint8_t *p)
{
	return get_u16(p) | get_u16(p + 2) << 16;
}

static float get_float(const uint8_t *p)
{
	const uint32_t bits = get_u32(p);
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* ---- writing --------------------------------------------------------------------------------- */

enum lap_status logits_file_create(const char *path, const struct windows *w, uint32_t n_vocab,
	struct logits_writer *writer, struct lap_error *err)
{
	const size_t n_tokens = (size_t)w->n * w->n_ctx, n_head = HEADER_BYTES + 4 * n_tokens;
	uint8_t *head = array_alloc(n_head, 1);
	enum lap_status status = LAP_OK;
	*writer = (struct logits_writer){.n_vocab = n_vocab};
	writer->row = array_alloc(row_bytes(n_vocab), 1);
	if (!head || !writer->row)
		status = fail_memory(err, "a file of logits", n_head + row_bytes(n_vocab));
	if (!status)
		status = file_create(path, &writer->file, err);
	if (status) {
		free(writer->row);
		writer->row = NULL;
	} else {
		memcpy(head, magic, sizeof magic);
		put_u32(head + sizeof magic, w->n_ctx);
		put_u32(head + sizeof magic + 4, n_vocab);
		put_u32(head + sizeof magic + 8, w->n);
		for (size_t i = 0; i < n_tokens; i++)
			put_u32(head + HEADER_BYTES + 4 * i, (uint32_t)w->tokens[i]);
		file_append(&writer->file, head, n_head);
	}
	free(head);
	return status;
}

void logits_file_append(struct logits_writer *writer, const float *logits, double log_sum)
{
	const uint32_t n = writer->n_vocab;
	float least = logits[0], most = logits[0];
	for (uint32_t i = 1; i < n; i++) {
		least = fminf(least, logits[i]);
		most = fmaxf(most, logits[i]);
	}
	least = fmaxf(least, most - LOGITS_FILE_SPAN);
	const float scale = (most - least) / MOST_CODE;
	put_float(writer->row, scale);
	put_float(writer->row + 4, (float)((double)least - log_sum));
	for (uint32_t i = 0; i < n; i++) {
		const bool above = logits[i] > least;
		put_u16(writer->row + 8 + 2 * (size_t)i,
			above ? (uint32_t)lrintf((logits[i] - least) / scale) : 0);
	}
	file_append(&writer->file, writer->row, row_bytes(n));
}

enum lap_status logits_file_close(struct logits_writer *writer, bool keep, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	if (writer->row)
		status = file_close(&writer->file, keep, err);
	free(writer->row);
	*writer = (struct logits_writer){.row = NULL};
	return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum lap_status check(const char *path, const struct lap_model *model,
	struct logits_reader *r, struct lap_error *err)
{
	const struct lap_model_info *info = lap_model_info(model);
	const uint8_t *data = r->file.data;
	if (r->file.n_bytes < HEADER_BYTES || memcmp(data, magic, sizeof magic) != 0)
		return fail(err, LAP_IO,
			"%s is no file of --save-all-logits: expected \"_logits_\" at its start",
			path);
	r->n_ctx = get_u32(data + sizeof magic);
	r->n_vocab = get_u32(data + sizeof magic + 4);
	r->n_windows = get_u32(data + sizeof magic + 8);
	if (r->n_vocab != info->n_vocab)
		return fail(err, LAP_USAGE,
			"%s is of a vocabulary of %u tokens, and %s has %u: only models with the "
			"same tokens can be compared",
			path, (unsigned)r->n_vocab, info->path, (unsigned)info->n_vocab);
	uint64_t n_tokens, n_rows = 0, n_bytes = 0;
	const bool fits = r->n_ctx > 2 && r->n_windows > 0 &&
		size_mul(r->n_ctx, r->n_windows, &n_tokens) && n_tokens < UINT64_MAX / 4 &&
		size_mul(r->n_windows, r->n_ctx - 1 - r->n_ctx / 2, &n_rows) &&
		size_mul(n_rows, row_bytes(r->n_vocab), &n_bytes) &&
		size_add(n_bytes, HEADER_BYTES + 4 * n_tokens, &n_bytes);
	if (!fits || n_bytes != r->file.n_bytes)
		return fail(err, LAP_IO,
			"%s has %llu bytes, expected %llu for %u windows of %u tokens: it is cut "
			"off, or damaged",
			path, (unsigned long long)r->file.n_bytes, (unsigned long long)n_bytes,
			(unsigned)r->n_windows, (unsigned)r->n_ctx);
	r->tokens = data + HEADER_BYTES;
	r->rows = r->tokens + 4 * n_tokens;
	for (uint64_t i = 0; i < n_tokens; i++)
		if (get_u32(r->tokens + 4 * i) >= r->n_vocab)
			return fail(err, LAP_IO, "%s is damaged: token %u at %llu", path,
				(unsigned)get_u32(r->tokens + 4 * i), (unsigned long long)i);
	r->log_probs = array_alloc(r->n_vocab, sizeof *r->log_probs);
	return r->log_probs ? LAP_OK : fail_memory(err, "log-probabilities", 4 * r->n_vocab);
}

enum lap_status logits_file_open(const char *path, const struct lap_model *model,
	struct logits_reader *reader, struct lap_error *err)
{
	*reader = (struct logits_reader){.n_vocab = 0};
	enum lap_status status = file_map(path, &reader->file, err);
	if (!status)
		status = check(path, model, reader, err);
	if (status)
		logits_file_release(reader);
	return status;
}

int32_t *logits_file_tokens(const struct logits_reader *reader)
{
	const size_t n = (size_t)reader->n_ctx * reader->n_windows;
	int32_t *tokens = array_alloc(n, sizeof *tokens);
	for (size_t i = 0; tokens && i < n; i++)
		tokens[i] = (int32_t)get_u32(reader->tokens + 4 * i);
	return tokens;
}

const float *logits_file_row(struct logits_reader *reader, uint32_t window, uint32_t i)
{
	const uint64_t n_rows = reader->n_ctx - 1 - reader->n_ctx / 2;
	const uint8_t *row = reader->rows + (window * n_rows + i) * row_bytes(reader->n_vocab);
	const float scale = get_float(row), least = get_float(row + 4);
	for (uint32_t k = 0; k < reader->n_vocab; k++)
		reader->log_probs[k] = least + scale * (float)get_u16(row + 8 + 2 * (size_t)k);
	return reader->log_probs;
}

void logits_file_release(struct logits_reader *reader)
{
	file_unmap(&reader->file);
	free(reader->log_probs);
	*reader = (struct logits_reader){.n_vocab = 0};
}
