/* The head of a GGUF file, written from a checked directory: keys in their order, tensors in theirs.
 *
 * Owns the layout (version 3, little-endian) and where data lies; what the tensors hold is the caller's, who
 * appends it piece by piece. Of a model that was split the keys that say so are left out: one file is written.
 * Format: github.com/ggml-org/ggml, docs/gguf.md. */
#ifndef LAPILLI_GGUF_WRITE_H
#define LAPILLI_GGUF_WRITE_H

#include "gguf.h"

/* A u32 that takes the place of the key's value, or goes behind all keys. */
struct gguf_u32_key {
	const char *key;
	uint32_t value;
};

/* Appends everything before the data of the first tensor. formats[n_tensors]: of the tensors in the new
 * file, which must fit their rows. LAP_USAGE: sizes pass 2^64. */
enum lap_status gguf_write_head(const struct gguf *g, const enum weight *formats,
	const struct gguf_u32_key *set, size_t n_set, struct file_writer *w, struct lap_error *err);

/* Appends what belongs behind n_bytes of a tensor's data. */
void gguf_write_padding(const struct gguf *g, uint64_t n_bytes, struct file_writer *w);

/* Bytes of a tensor in a format; false: they pass 2^64, or its rows are no whole blocks. */
bool gguf_tensor_bytes(const struct gguf_tensor *t, enum weight format, uint64_t *n_bytes);

#endif
