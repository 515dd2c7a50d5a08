/* The files that a model came in: one, or the parts NAME-00001-of-00003.gguf of one that was split.
 *
 * Owns the mapped files, the names of parts and where they are looked for, and the checks that need more
 * than one file.  Any part opens the whole.  Knows nothing of what the tensors mean.
 * Keys of a part: split.no (from 0, names count from 1), split.count, split.tensors.count (of all parts);
 * the first part alone has the model's own keys. */
#ifndef LAPILLI_SPLIT_H
#define LAPILLI_SPLIT_H

#include "gguf.h"

/* "PREFIX-00002-of-00003.gguf": PREFIX, with the folder, is the first n_prefix bytes of the path. */
struct split_name {
	size_t n_prefix;
	uint32_t number, count; /* 2, 3 */
};

/* False when the path names no part. */
bool split_read_name(const char *path, struct split_name *name);

struct split {
	struct gguf *gguf; /* of all parts: keys of the first, tensors of all */
	struct mapped_file
		*files; /* [n_files] in the order of their numbers; data NULL for bytes given */
	uint32_t n_files;
};

/* Opens the file and, where it is a part, the others: beside the path as it was given, else beside what
 * the path links to (a cache of links to blobs has names for the links alone).  LAP_IO: a file cannot be
 * read, or a part is missing, which is named.  LAP_BAD_MODEL: see gguf_open; names, numbers, counts or
 * tensors of the parts contradict each other; a download that is not finished, by its name.
 * On failure *split is zeroed. */
enum lap_status split_open(const char *path, struct split *split, struct lap_error *err);

/* The same for a model in memory, which cannot have further parts.  The bytes must stay. */
enum lap_status split_open_memory(const void *bytes, uint64_t n_bytes, const char *name,
	struct split *split, struct lap_error *err);

/* Weights were copied to where they are used: see file_forget. */
void split_forget(const struct split *split, const uint8_t *bytes, uint64_t n_bytes);

void split_close(struct split *split); /* zeroed is allowed */

#endif
