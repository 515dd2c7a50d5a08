/* Heads of GGUF files: see gguf_write.h. */
#include "gguf_write.h"

#include <string.h>

#define VERSION 3

/* A head under construction; ok: memory sufficed so far. */
struct head {
	struct text bytes;
	bool ok;
};

static void put(struct head *h, const void *bytes, uint64_t n)
{
	h->ok = h->ok && text_append(&h->bytes, bytes, (size_t)n);
}

static void put_number(struct head *h, uint64_t value, unsigned n_bytes)
{
	uint8_t bytes[8];
	for (unsigned i = 0; i < n_bytes; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	put(h, bytes, n_bytes);
}

static void put_string(struct head *h, const char *data, uint64_t n)
{
	put_number(h, n, 8);
	put(h, data, n);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const struct gguf_u32_key *find(
	const struct gguf_u32_key *set, size_t n_set, const char *key)
{
	for (size_t i = 0; i < n_set; i++)
		if (strcmp(set[i].key, key) == 0)
			return &set[i];
	return NULL;
}

static bool of_a_part(const char *key)
{
	static const char prefix[] = "split.";
	return strncmp(key, prefix, sizeof prefix - 1) == 0;
}

static void put_u32_key(struct head *h, const struct gguf_u32_key *set)
{
	put_string(h, set->key, strlen(set->key));
	put_number(h, GGUF_U32, 4);
	put_number(h, set->value, 4);
}

static void put_key(struct head *h, const struct gguf_kv *kv)
{
	const bool array = kv->type == GGUF_ARRAY;
	const enum gguf_type type = array ? kv->element : kv->type;
	put_string(h, kv->key, strlen(kv->key));
	put_number(h, kv->type, 4);
	if (array) {
		put_number(h, kv->element, 4);
		put_number(h, kv->n, 8);
	}
	if (type != GGUF_STRING) {
		put(h, kv->data, kv->n * gguf_type_bytes(type));
		return;
	}
	for (uint64_t i = 0; i < kv->n; i++)
		put_string(h, kv->strings[i].data, kv->strings[i].n);
}

static uint64_t put_keys(
	struct head *h, const struct gguf *g, const struct gguf_u32_key *set, size_t n_set)
{
	uint64_t n = 0;
	for (uint64_t i = 0; i < g->n_kv; i++) {
		const struct gguf_u32_key *found = find(set, n_set, g->kv[i].key);
		if (of_a_part(g->kv[i].key))
			continue;
		if (found)
			put_u32_key(h, found);
		else
			put_key(h, &g->kv[i]);
		n++;
	}
	for (size_t i = 0; i < n_set; i++)
		if (!gguf_find(g, set[i].key)) {
			put_u32_key(h, &set[i]);
			n++;
		}
	return n;
}

/* ---- tensors --------------------------------------------------------------------------------- */

bool gguf_tensor_bytes(const struct gguf_tensor *t, enum weight format, uint64_t *n_bytes)
{
	bool fits = weight_row_bytes(format, t->dims[0], n_bytes);
	for (uint32_t i = 1; i < t->n_dims && fits; i++)
		fits = size_mul(*n_bytes, t->dims[i], n_bytes);
	return fits;
}

/* False: an offset passes 2^64. */
static bool put_tensors(struct head *h, const struct gguf *g, const enum weight *formats)
{
	uint64_t offset = 0, n_bytes;
	bool fits = true;
	for (uint64_t i = 0; i < g->n_tensors && fits; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		put_string(h, t->name, strlen(t->name));
		put_number(h, t->n_dims, 4);
		for (uint32_t k = 0; k < t->n_dims; k++)
			put_number(h, t->dims[k], 8);
		put_number(h, weight_format(formats[i])->gguf_type, 4);
		put_number(h, offset, 8);
		fits = gguf_tensor_bytes(t, formats[i], &n_bytes) &&
			size_add(offset, n_bytes, &offset) &&
			size_align(offset, g->alignment, &offset);
	}
	return fits;
}

/* ---- the head -------------------------------------------------------------------------------- */

static const uint8_t zeros[GGUF_MAX_ALIGNMENT];

void gguf_write_padding(const struct gguf *g, uint64_t n_bytes, struct file_writer *w)
{
	file_append(w, zeros, (g->alignment - n_bytes % g->alignment) % g->alignment);
}

enum lap_status gguf_write_head(const struct gguf *g, const enum weight *formats,
	const struct gguf_u32_key *set, size_t n_set, struct file_writer *w, struct lap_error *err)
{
	struct head start = {.ok = true}, keys = {.ok = true};
	const uint64_t n_keys = put_keys(&keys, g, set, n_set);
	const bool fits = put_tensors(&keys, g, formats);
	put(&start, "GGUF", 4);
	put_number(&start, VERSION, 4);
	put_number(&start, g->n_tensors, 8);
	put_number(&start, n_keys, 8);
	const uint64_t n_bytes = (uint64_t)start.bytes.n + keys.bytes.n;
	enum lap_status status = LAP_OK;
	if (!start.ok || !keys.ok)
		status = fail_memory(err, "the head of a file", n_bytes);
	else if (!fits)
		status = fail(err, LAP_USAGE, "%s: the tensors would be larger than a file can be",
			g->path);
	if (!status) {
		file_append(w, start.bytes.data, start.bytes.n);
		file_append(w, keys.bytes.data, keys.bytes.n);
		gguf_write_padding(g, n_bytes, w);
	}
	text_free(&start.bytes);
	text_free(&keys.bytes);
	return status;
}
