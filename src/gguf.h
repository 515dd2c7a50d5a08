/* A GGUF file as a checked directory: key/values and tensors, all views into the caller's bytes.
 *
 * Owns the walk through the bytes and every check that needs no knowledge of models: counts,
 * lengths, offsets, types, alignment and products against the bytes that remain, before use.
 * After gguf_open nothing in the result needs another range check.  Versions 2 and 3, little-endian.
 * Format: github.com/ggml-org/ggml, docs/gguf.md. */
#ifndef LAPILLI_GGUF_H
#define LAPILLI_GGUF_H

#include "base.h"
#include "weight.h"

enum gguf_type { /* numbered as in the format */
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	N_GGUF_TYPES
};

/* Of one value; 0: strings and arrays. */
unsigned gguf_type_bytes(enum gguf_type type);

#define GGUF_MAX_ALIGNMENT 65536 /* of data; ours: files use 32 */

struct gguf_string {
	const char *data; /* not NUL-terminated */
	uint64_t n;       /* bytes */
};

struct gguf_kv {
	const char *key;     /* NUL-terminated copy */
	enum gguf_type type; /* GGUF_ARRAY: see element */
	enum gguf_type element;
	uint64_t n;          /* elements of an array; 1 otherwise */
	const uint8_t *data; /* the value's bytes, unaligned; of an array its first element */
	const struct gguf_string *strings; /* the elements when type or element is GGUF_STRING */
};

struct gguf_tensor {
	const char *name; /* NUL-terminated copy */
	uint32_t n_dims;  /* 1 to 4 */
	uint64_t dims[4]; /* dims[0] is the length of a row; the rest 1 where absent */
	enum weight weight;
	uint64_t n_weights, n_bytes;
	const uint8_t *data;
};

struct gguf {
	const char *path; /* for messages; the caller's string copied */
	uint32_t version;
	uint32_t alignment;
	uint64_t n_file_bytes;
	uint64_t n_kv, n_tensors;
	struct gguf_kv *kv;
	struct gguf_tensor *tensors;
	void *index, *arena; /* private: name look-up, copies of names */
};

/* The bytes must stay as long as the gguf.  LAP_BAD_MODEL with found and expected; a tensor type
 * this build cannot read is named with the list of those it can, a file that is something else
 * (another format, a pointer, a web page, several files in a row) is called by its name. */
enum lap_status gguf_open(const void *bytes, uint64_t n_bytes, const char *path, struct gguf **gguf,
	struct lap_error *err);
void gguf_close(struct gguf *gguf); /* NULL is allowed */

/* Makes one of the n >= 1 files of a model that was split: parts[0] gets the tensors of all, in their
 * order, and keeps its own keys; the others are closed and set to NULL.  The bytes of all must stay.
 * A tensor that is there twice is LAP_BAD_MODEL; on failure nothing has changed. */
enum lap_status gguf_join(struct gguf **parts, size_t n, struct lap_error *err);

/* Sets or adds keys from texts KEY=TYPE:VALUE: TYPE int (signed, 64 bits), float, bool (true or false) or
 * str.  Of two texts for one key the last counts.  What is copied lives as long as the gguf.  LAP_USAGE
 * with the text, what was found and what was expected; the gguf is then as it was. */
enum lap_status gguf_override(
	struct gguf *gguf, const char *const *overrides, size_t n, struct lap_error *err);

/* NULL when there is none. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed reads.  A key that is absent leaves *out as it is and returns LAP_OK: set the default first.
 * A key of another type, or a number that does not fit, is LAP_BAD_MODEL.  Integers of any width are
 * taken; a float may be F32 or F64. */
enum lap_status gguf_u32(
	const struct gguf *g, const char *key, uint32_t *out, struct lap_error *err);
enum lap_status gguf_f32(const struct gguf *g, const char *key, float *out, struct lap_error *err);
enum lap_status gguf_bool(const struct gguf *g, const char *key, bool *out, struct lap_error *err);
enum lap_status gguf_string(
	const struct gguf *g, const char *key, struct gguf_string *out, struct lap_error *err);

/* Element i of a numeric array as a double / float / 64-bit integer. */
double gguf_number(const struct gguf_kv *kv, uint64_t i);

/* The string for a message: cut to fit, "?" for bytes that are not printable ASCII.  Returns out. */
#define GGUF_SHOW_BYTES 64
const char *gguf_show(struct gguf_string s, char out[GGUF_SHOW_BYTES]);

#endif
