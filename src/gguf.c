/* The walk through a GGUF file's bytes: see gguf.h.
 *
 * Every number of the file passes through struct cursor, which knows how many bytes remain; nothing
 * is allocated for a count before that many entries could fit.  Knows nothing of models. */
#include "gguf.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES       16384 /* of the arena; larger requests get a block of their own */
#define DEFAULT_ALIGNMENT 32
#define MIN_ALIGNMENT     8     /* as the format asks */
#define MAX_NAME_BYTES    65535 /* as the format asks of keys */
#define MIN_KV_BYTES      14    /* length, one character, type, one byte of value */
#define MIN_TENSOR_BYTES  33    /* length, one character, one dimension, type, offset */
#define MIN_STRING_BYTES  8
#define ALIGNMENT_KEY     "general.alignment"

/* ---- memory: everything a struct gguf points to, released at once ------------------------------ */

struct block {
	struct block *next;
	uint64_t used, capacity; /* bytes */
	max_align_t data[];
};

/* n * size zeroed bytes; NULL when memory is out. */
static void *arena_alloc(void **arena, uint64_t n, uint64_t size)
{
	uint64_t n_bytes, capacity;
	if (!size_mul(n, size, &n_bytes) || !size_align(n_bytes, sizeof(max_align_t), &n_bytes))
		return NULL;
	struct block *b = *arena;
	if (!b || n_bytes > b->capacity - b->used) {
		capacity = n_bytes > BLOCK_BYTES ? n_bytes : BLOCK_BYTES;
		if (!size_add(sizeof *b, capacity, &size) || !(b = array_alloc(1, size)))
			return NULL;
		*b = (struct block){.next = *arena, .capacity = capacity};
		*arena = b;
	}
	void *data = (uint8_t *)b->data + b->used;
	b->used += n_bytes;
	return data;
}

static void arena_free(void *arena)
{
	for (struct block *b = arena, *next; b; b = next) {
		next = b->next;
		free(b);
	}
}

/* ---- little-endian numbers --------------------------------------------------------------------- */

static uint64_t load(const uint8_t *p, unsigned n_bytes)
{
	uint64_t value = 0;
	for (unsigned i = n_bytes; i-- > 0;)
		value = value << 8 | p[i];
	return value;
}

static int64_t load_signed(const uint8_t *p, unsigned n_bytes)
{
	uint64_t sign = UINT64_C(1) << (8 * n_bytes - 1);
	return (int64_t)((load(p, n_bytes) ^ sign) - sign);
}

static float load_f32(const uint8_t *p)
{
	uint32_t bits = (uint32_t)load(p, 4);
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static double load_f64(const uint8_t *p)
{
	uint64_t bits = load(p, 8);
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static const struct {
	const char *name;
	unsigned n_bytes; /* of one value; 0 where it varies */
} types[N_GGUF_TYPES] = {
	[GGUF_U8] = {"u8", 1},
	[GGUF_I8] = {"i8", 1},
	[GGUF_U16] = {"u16", 2},
	[GGUF_I16] = {"i16", 2},
	[GGUF_U32] = {"u32", 4},
	[GGUF_I32] = {"i32", 4},
	[GGUF_F32] = {"f32", 4},
	[GGUF_BOOL] = {"bool", 1},
	[GGUF_STRING] = {"string", 0},
	[GGUF_ARRAY] = {"array", 0},
	[GGUF_U64] = {"u64", 8},
	[GGUF_I64] = {"i64", 8},
	[GGUF_F64] = {"f64", 8},
};

unsigned gguf_type_bytes(enum gguf_type type)
{
	return types[type].n_bytes;
}

/* ---- the cursor -------------------------------------------------------------------------------- */

struct cursor {
	const uint8_t *data;
	uint64_t n, at; /* bytes: of the file, read so far */
	struct gguf *g;
	struct lap_error *err;
};

/* Long names are cut in messages, so that the numbers behind them stay visible. */
#define NAME "%.100s"

#define BAD(c, ...) fail((c)->err, LAP_BAD_MODEL, __VA_ARGS__)

typedef unsigned long long ull; /* what printf's %llu takes */

static uint64_t left(const struct cursor *c)
{
	return c->n - c->at;
}

/* The next n bytes; `where` and `name` say what they belong to. */
static enum lap_status take(
	struct cursor *c, uint64_t n, const char *where, const char *name, const uint8_t **bytes)
{
	if (n > left(c))
		return BAD(c,
			"%s: the file has %llu bytes and ends inside %s" NAME
			": %llu bytes expected, %llu are left",
			c->g->path, (ull)c->n, where, name, (ull)n, (ull)left(c));
	*bytes = c->data + c->at;
	c->at += n;
	return LAP_OK;
}

static enum lap_status take_number(
	struct cursor *c, unsigned n_bytes, const char *where, const char *name, uint64_t *value)
{
	const uint8_t *bytes = NULL;
	enum lap_status status = take(c, n_bytes, where, name, &bytes);
	if (!status)
		*value = load(bytes, n_bytes);
	return status;
}

static enum lap_status take_string(
	struct cursor *c, const char *where, const char *name, struct gguf_string *s)
{
	uint64_t n = 0;
	const uint8_t *bytes = NULL;
	enum lap_status status = take_number(c, 8, where, name, &n);
	if (!status)
		status = take(c, n, where, name, &bytes);
	if (!status)
		*s = (struct gguf_string){(const char *)bytes, n};
	return status;
}

/* A key or a tensor's name, copied.  Names go into messages, so they must be printable UTF-8. */
static enum lap_status take_name(struct cursor *c, const char *what, uint64_t i, const char **name)
{
	struct gguf_string s = {0};
	enum lap_status status = take_string(c, what, "", &s);
	if (status)
		return status;
	if (s.n == 0 || s.n > MAX_NAME_BYTES)
		return BAD(c, "%s: %s %llu has a name of %llu bytes, expected 1 to %d", c->g->path,
			what, (ull)i, (ull)s.n, MAX_NAME_BYTES);
	for (size_t at = 0, n; at < s.n; at += n) {
		uint32_t code = 0;
		n = utf8_decode(s.data + at, (size_t)s.n - at, &code);
		if (n == 0 || code < 0x20 || code == 0x7F)
			return BAD(c,
				"%s: the name of %s %llu has the byte 0x%02X, expected "
				"printable UTF-8",
				c->g->path, what, (ull)i, (unsigned)(uint8_t)s.data[at]);
	}
	char *copy = arena_alloc(&c->g->arena, s.n + 1, 1);
	if (!copy)
		return fail_memory(c->err, "a name", s.n + 1);
	memcpy(copy, s.data, (size_t)s.n);
	*name = copy;
	return LAP_OK;
}

/* ---- key/values -------------------------------------------------------------------------------- */

static enum lap_status read_strings(struct cursor *c, struct gguf_kv *kv)
{
	struct gguf_string *strings = arena_alloc(&c->g->arena, kv->n, sizeof *strings);
	if (!strings)
		return fail_memory(c->err, kv->key, kv->n * sizeof *strings);
	kv->strings = strings;
	for (uint64_t i = 0; i < kv->n; i++) {
		enum lap_status status = take_string(c, "the value of ", kv->key, &strings[i]);
		if (status)
			return status;
	}
	return LAP_OK;
}

static enum lap_status read_values(struct cursor *c, struct gguf_kv *kv)
{
	enum gguf_type type = kv->type == GGUF_ARRAY ? kv->element : kv->type;
	uint64_t smallest = type == GGUF_STRING ? MIN_STRING_BYTES : types[type].n_bytes;
	if (kv->n > left(c) / smallest)
		return BAD(c,
			"%s: " NAME " announces %llu values of type %s, but %llu bytes are left",
			c->g->path, kv->key, (ull)kv->n, types[type].name, (ull)left(c));
	kv->data = c->data + c->at;
	if (type == GGUF_STRING)
		return read_strings(c, kv);
	if (type == GGUF_BOOL)
		for (uint64_t i = 0; i < kv->n; i++)
			if (kv->data[i] > 1)
				return BAD(c, "%s: " NAME " has the bool %u, expected 0 or 1",
					c->g->path, kv->key, kv->data[i]);
	c->at += kv->n * smallest;
	return LAP_OK;
}

static enum lap_status read_kv(struct cursor *c, uint64_t i, struct gguf_kv *kv)
{
	uint64_t type = 0;
	enum lap_status status = take_name(c, "key", i, &kv->key);
	if (!status)
		status = take_number(c, 4, "the type of ", kv->key, &type);
	if (status)
		return status;
	if (type >= N_GGUF_TYPES)
		return BAD(c, "%s: " NAME " has value type %llu, expected 0 to %d", c->g->path,
			kv->key, (ull)type, N_GGUF_TYPES - 1);
	kv->type = (enum gguf_type)type;
	kv->n = 1;
	if (kv->type == GGUF_ARRAY) {
		status = take_number(c, 4, "the element type of ", kv->key, &type);
		if (!status)
			status = take_number(c, 8, "the length of ", kv->key, &kv->n);
		if (status)
			return status;
		if (type == GGUF_ARRAY)
			return BAD(c,
				"%s: " NAME " is an array of arrays, expected an array of numbers, "
				"bools or strings",
				c->g->path, kv->key);
		if (type >= N_GGUF_TYPES)
			return BAD(c, "%s: " NAME " has elements of type %llu, expected 0 to %d",
				c->g->path, kv->key, (ull)type, N_GGUF_TYPES - 1);
		kv->element = (enum gguf_type)type;
	}
	return read_values(c, kv);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static enum lap_status read_dims(struct cursor *c, struct gguf_tensor *t)
{
	uint64_t n_dims = 0;
	enum lap_status status = take_number(c, 4, "the dimensions of ", t->name, &n_dims);
	if (status)
		return status;
	if (n_dims < 1 || n_dims > ARRAY_COUNT(t->dims))
		return BAD(c, "%s: " NAME " has %llu dimensions, expected 1 to %zu", c->g->path,
			t->name, (ull)n_dims, ARRAY_COUNT(t->dims));
	t->n_dims = (uint32_t)n_dims;
	for (uint32_t i = 0; i < ARRAY_COUNT(t->dims); i++) {
		t->dims[i] = 1;
		if (i < t->n_dims)
			status = take_number(c, 8, "the dimensions of ", t->name, &t->dims[i]);
		if (status)
			return status;
		if (t->dims[i] == 0)
			return BAD(c, "%s: dimension %u of " NAME " is 0, expected at least 1",
				c->g->path, i, t->name);
	}
	return LAP_OK;
}

static enum lap_status read_type(struct cursor *c, struct gguf_tensor *t)
{
	uint64_t type = 0;
	enum lap_status status = take_number(c, 4, "the type of ", t->name, &type);
	if (status)
		return status;
	if (!weight_find((uint32_t)type, &t->weight)) {
		const char *name = weight_gguf_name((uint32_t)type);
		return BAD(c, "%s: " NAME " has type %s (%llu), supported are %s", c->g->path,
			t->name, name ? name : "unknown", (ull)type, weight_list());
	}
	const struct weight_format *f = weight_format(t->weight);
	if (t->dims[0] % f->block_weights)
		return BAD(c,
			"%s: rows of " NAME " have %llu weights, expected a multiple of %u for %s",
			c->g->path, t->name, (ull)t->dims[0], f->block_weights, f->label);
	bool fits = weight_row_bytes(t->weight, t->dims[0], &t->n_bytes);
	t->n_weights = t->dims[0];
	for (uint32_t i = 1; i < t->n_dims && fits; i++)
		fits = size_mul(t->n_weights, t->dims[i], &t->n_weights) &&
			size_mul(t->n_bytes, t->dims[i], &t->n_bytes);
	if (!fits)
		return BAD(c,
			"%s: " NAME
			" is [%llu, %llu, %llu, %llu], expected a size below 2^64 bytes",
			c->g->path, t->name, (ull)t->dims[0], (ull)t->dims[1], (ull)t->dims[2],
			(ull)t->dims[3]);
	return LAP_OK;
}

/* Leaves the offset's place in t->data: the data section's start is known after the last tensor. */
static enum lap_status read_tensor(
	struct cursor *c, uint64_t i, struct gguf_tensor *t, uint64_t *offset)
{
	enum lap_status status = take_name(c, "tensor", i, &t->name);
	if (!status)
		status = read_dims(c, t);
	if (!status)
		status = read_type(c, t);
	if (!status)
		status = take_number(c, 8, "the offset of ", t->name, offset);
	if (!status && *offset % c->g->alignment)
		return BAD(c, "%s: " NAME " is at offset %llu, expected a multiple of %u",
			c->g->path, t->name, (ull)*offset, c->g->alignment);
	return status;
}

static int compare_places(const void *a, const void *b)
{
	const struct gguf_tensor *x = *(struct gguf_tensor *const *)a;
	const struct gguf_tensor *y = *(struct gguf_tensor *const *)b;
	return (x->data > y->data) - (x->data < y->data);
}

/* Data of two tensors that overlap: a small file could else stand for any amount of memory. */
static enum lap_status check_overlap(struct cursor *c)
{
	struct gguf *g = c->g;
	struct gguf_tensor **order = array_alloc(g->n_tensors, sizeof(struct gguf_tensor *));
	if (!order)
		return fail_memory(c->err, "tensors", g->n_tensors * sizeof(struct gguf_tensor *));
	for (uint64_t i = 0; i < g->n_tensors; i++)
		order[i] = &g->tensors[i];
	qsort(order, (size_t)g->n_tensors, sizeof(struct gguf_tensor *), compare_places);
	enum lap_status status = LAP_OK;
	for (uint64_t i = 1; i < g->n_tensors && !status; i++)
		if (order[i]->data < order[i - 1]->data + order[i - 1]->n_bytes)
			status = BAD(c, "%s: the data of " NAME " and " NAME " overlap", g->path,
				order[i - 1]->name, order[i]->name);
	free(order);
	return status;
}

/* Parts of a split model joined as with cat: behind the data of the first, which ends at `end`, the
 * magic and a version of the next.  Padding may lie between the two. */
static enum lap_status check_tail(struct cursor *c, uint64_t end)
{
	static const char magic[] = {'G', 'G', 'U', 'F'};
	const uint64_t head = sizeof magic + 4;
	for (uint64_t at = end; at - end <= GGUF_MAX_ALIGNMENT && c->n - at >= head; at++)
		if (memcmp(c->data + at, magic, sizeof magic) == 0 &&
			(load(c->data + at + sizeof magic, 4) - 2) <= 1)
			return BAD(c,
				"%s: a second GGUF file begins at byte %llu of %llu, expected one: "
				"parts joined as with cat are no model, leave them as the files "
				"they were",
				c->g->path, (ull)at, (ull)c->n);
	return LAP_OK;
}

/* Where each tensor's data lies, and that the file holds all of it. */
static enum lap_status place_tensors(struct cursor *c, const uint64_t *offsets)
{
	struct gguf *g = c->g;
	uint64_t start, end = c->at;
	const char *last = "";
	if (!size_align(c->at, g->alignment, &start))
		return BAD(c, "%s: the file is too large", g->path);
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &g->tensors[i];
		uint64_t at, t_end;
		if (!size_add(start, offsets[i], &at) || !size_add(at, t->n_bytes, &t_end))
			return BAD(c, "%s: " NAME " has %llu bytes at offset %llu: past 2^64",
				g->path, t->name, (ull)t->n_bytes, (ull)offsets[i]);
		if (t_end > end) {
			end = t_end;
			last = t->name;
		}
		if (t_end <= c->n)
			t->data = c->data + at;
	}
	if (end > c->n)
		return BAD(c,
			"%s: the file has %llu of %llu bytes (" NAME
			" ends there): it is cut off, or its offsets are wrong",
			g->path, (ull)c->n, (ull)end, last);
	enum lap_status status = check_tail(c, end);
	return status ? status : check_overlap(c);
}

static enum lap_status read_tensors(struct cursor *c)
{
	struct gguf *g = c->g;
	uint64_t *offsets = array_alloc(g->n_tensors, sizeof *offsets);
	g->tensors = arena_alloc(&g->arena, g->n_tensors, sizeof *g->tensors);
	enum lap_status status = LAP_OK;
	if (!offsets || !g->tensors)
		status = fail_memory(c->err, "tensors", g->n_tensors * sizeof *g->tensors);
	for (uint64_t i = 0; i < g->n_tensors && !status; i++)
		status = read_tensor(c, i, &g->tensors[i], &offsets[i]);
	if (!status)
		status = place_tensors(c, offsets);
	free(offsets);
	return status;
}

/* ---- names: pointers in the order of the names, so that equal ones are neighbours ---------------- */

struct index {
	struct gguf_kv **kv;
	struct gguf_tensor **tensors;
};

static int compare_keys(const void *a, const void *b)
{
	return strcmp((*(struct gguf_kv *const *)a)->key, (*(struct gguf_kv *const *)b)->key);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(
		(*(struct gguf_tensor *const *)a)->name, (*(struct gguf_tensor *const *)b)->name);
}

static int compare_key(const void *key, const void *b)
{
	return strcmp(key, (*(struct gguf_kv *const *)b)->key);
}

static int compare_name(const void *name, const void *b)
{
	return strcmp(name, (*(struct gguf_tensor *const *)b)->name);
}

static enum lap_status index_kv(struct cursor *c)
{
	struct gguf *g = c->g;
	struct index *index = g->index;
	index->kv = arena_alloc(&g->arena, g->n_kv, sizeof(struct gguf_kv *));
	if (!index->kv)
		return fail_memory(c->err, "keys", g->n_kv * sizeof(struct gguf_kv *));
	for (uint64_t i = 0; i < g->n_kv; i++)
		index->kv[i] = &g->kv[i];
	qsort(index->kv, (size_t)g->n_kv, sizeof(struct gguf_kv *), compare_keys);
	for (uint64_t i = 1; i < g->n_kv; i++)
		if (compare_keys(&index->kv[i - 1], &index->kv[i]) == 0)
			return BAD(c, "%s: the key " NAME " is there twice, expected once", g->path,
				index->kv[i]->key);
	return LAP_OK;
}

static enum lap_status index_tensors(struct cursor *c)
{
	struct gguf *g = c->g;
	struct index *index = g->index;
	index->tensors = arena_alloc(&g->arena, g->n_tensors, sizeof(struct gguf_tensor *));
	if (!index->tensors)
		return fail_memory(c->err, "tensors", g->n_tensors * sizeof(struct gguf_tensor *));
	for (uint64_t i = 0; i < g->n_tensors; i++)
		index->tensors[i] = &g->tensors[i];
	qsort(index->tensors, (size_t)g->n_tensors, sizeof(struct gguf_tensor *), compare_names);
	for (uint64_t i = 1; i < g->n_tensors; i++)
		if (compare_names(&index->tensors[i - 1], &index->tensors[i]) == 0)
			return BAD(c, "%s: the tensor " NAME " is there twice, expected once",
				g->path, index->tensors[i]->name);
	return LAP_OK;
}

/* ---- the file ---------------------------------------------------------------------------------- */

static bool starts_with(const struct cursor *c, const void *bytes, uint64_t n)
{
	return c->n >= n && memcmp(c->data, bytes, (size_t)n) == 0;
}

/* An error page or a login page, saved under the model's name. */
static bool looks_like_html(const struct cursor *c)
{
	uint64_t at = 0;
	while (at < c->n && c->data[at] && strchr("\xEF\xBB\xBF \t\r\n", c->data[at]))
		at++;
	char start[10] = {0};
	for (size_t i = 0; i < sizeof start - 1 && at + i < c->n; i++) {
		char ch = (char)c->data[at + i];
		start[i] = ch >= 'A' && ch <= 'Z' ? (char)(ch | 0x20) : ch;
	}
	static const char *const tags[] = {"<!doctype", "<html", "<head", "<?xml"};
	for (size_t i = 0; i < ARRAY_COUNT(tags); i++)
		if (strncmp(start, tags[i], strlen(tags[i])) == 0)
			return true;
	return false;
}

/* The importance matrices of before GGUF: a number of entries, then of each its name's length, its name,
 * two numbers and floats. */
static bool looks_like_imatrix(const struct cursor *c)
{
	static const char ending[] = ".weight";
	const uint64_t n_ending = sizeof ending - 1;
	if (c->n < 8)
		return false;
	uint64_t n_entries = load(c->data, 4), n_name = load(c->data + 4, 4);
	return n_entries > 0 && n_entries < 1u << 20 && n_name >= n_ending && n_name < 256 &&
		n_name <= c->n - 8 &&
		memcmp(c->data + 8 + n_name - n_ending, ending, (size_t)n_ending) == 0;
}

/* Space that was reserved for a download. */
static bool looks_like_zeros(const struct cursor *c)
{
	enum { ENOUGH = 4096 }; /* bytes */
	for (uint64_t i = 0; i < c->n && i < ENOUGH; i++)
		if (c->data[i])
			return false;
	return c->n >= 4;
}

/* A short text, such as a server sends in place of a file. */
static bool looks_like_text(const struct cursor *c)
{
	enum { MOST = 4096 }; /* bytes */
	if (c->n < 4 || c->n > MOST)
		return false;
	for (uint64_t i = 0; i < c->n; i++)
		if ((c->data[i] < 0x20 && !strchr("\t\r\n", c->data[i])) || c->data[i] == 0x7F ||
			c->data[i] == 0)
			return false;
	return true;
}

static bool looks_like_safetensors(const struct cursor *c)
{
	return c->n >= 10 && c->data[8] == '{' && load(c->data, 8) < (UINT64_C(1) << 32);
}

/* The file that a Git LFS pointer stands for has this many bytes; 0: the pointer does not say. */
static uint64_t lfs_size(const struct cursor *c)
{
	static const char key[] = "\nsize ";
	uint64_t size = 0;
	for (uint64_t at = 0; at + sizeof key - 1 < c->n; at++)
		if (memcmp(c->data + at, key, sizeof key - 1) == 0) {
			at += sizeof key - 1;
			for (; at < c->n && c->data[at] >= '0' && c->data[at] <= '9'; at++)
				if (!size_mul(size, 10, &size) ||
					!size_add(size, c->data[at] - (uint64_t)'0', &size))
					return 0;
			return size;
		}
	return 0;
}

/* What a file that does not start with "GGUF" is instead, by its first bytes or by its looks; NULL when
 * we do not know. */
static const char *other_kind(const struct cursor *c)
{
	static const char convert[] = "a GGML file from before GGUF: convert the model again";
	static const char pickle[] = "a Python pickle (perhaps a PyTorch checkpoint), expected "
				     "GGUF: convert the model";
	static const struct {
		const char *magic, *kind;
	} kinds[] = {
		{"FUGG",
			"a big-endian GGUF file, expected a little-endian one: convert the model "
			"for this machine"},
		{"PK\x03\x04",
			"a zip archive (perhaps a PyTorch checkpoint), expected GGUF: "
			"convert the model"},
		{"\x80\x02", pickle},
		{"\x80\x03", pickle},
		{"\x80\x04", pickle},
		{"\x80\x05", pickle},
		{"lmgg", convert},
		{"fmgg", convert},
		{"tjgg", convert},
		{"algg", "a LoRA adapter from before GGUF, expected a language model"},
		{"\x89HDF", "an HDF5 file, expected GGUF: convert the model"},
		{"\x1F\x8B", "compressed with gzip: unpack it first"},
		{"\xFD"
		 "7zXZ",
			"compressed with xz: unpack it first"},
		{"\x28\xB5\x2F\xFD", "compressed with zstd: unpack it first"},
	};
	static const struct {
		bool (*fits)(const struct cursor *c);
		const char *kind;
	} looks[] = {
		{looks_like_html, "a web page, not the model itself: the download went wrong"},
		{looks_like_safetensors, "a safetensors file, expected GGUF: convert the model"},
		{looks_like_imatrix, "an importance matrix (imatrix), expected a language model"},
		{looks_like_zeros,
			"a file of zeros, not the model itself: a download that is not "
			"finished"},
		{looks_like_text,
			"a short text, not the model itself: perhaps a download that "
			"went wrong"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
		if (starts_with(c, kinds[i].magic, strlen(kinds[i].magic)))
			return kinds[i].kind;
	for (size_t i = 0; i < ARRAY_COUNT(looks); i++)
		if (looks[i].fits(c))
			return looks[i].kind;
	return NULL;
}

static enum lap_status refuse_lfs_pointer(struct cursor *c)
{
	char size[48] = "";
	if (lfs_size(c))
		snprintf(size, sizeof size, " to %llu bytes", (ull)lfs_size(c));
	return BAD(c,
		"%s: this is a Git LFS pointer%s, not the model itself: fetch it with \"git lfs "
		"pull\"",
		c->g->path, size);
}

static enum lap_status read_header(struct cursor *c)
{
	static const char magic[] = "GGUF";
	const char *path = c->g->path;
	if (c->n == 0)
		return BAD(c, "%s: the file is empty, expected GGUF", path);
	if (starts_with(c, "version https://git-lfs", 23))
		return refuse_lfs_pointer(c);
	if (!starts_with(c, magic, 4)) {
		const char *kind = other_kind(c);
		if (kind)
			return BAD(c, "%s: this is %s", path, kind);
		if (c->n < 4)
			return BAD(
				c, "%s: the file has %llu bytes, expected GGUF", path, (ull)c->n);
		return BAD(c,
			"%s: the file starts with the bytes %02X %02X %02X %02X, expected "
			"\"GGUF\"",
			path, c->data[0], c->data[1], c->data[2], c->data[3]);
	}
	c->at = 4;
	uint64_t version = 0;
	enum lap_status status = take_number(c, 4, "the header", "", &version);
	if (status)
		return status;
	if (version == 1)
		return BAD(c, "%s: GGUF version 1, expected 2 or 3: convert the model again", path);
	if (version && (version & 0xFFFF) == 0)
		return BAD(c,
			"%s: a big-endian GGUF file, expected a little-endian one: convert the "
			"model for this machine",
			path);
	if (version != 2 && version != 3)
		return BAD(c, "%s: GGUF version %llu, expected 2 or 3", path, (ull)version);
	c->g->version = (uint32_t)version;
	status = take_number(c, 8, "the header", "", &c->g->n_tensors);
	if (!status)
		status = take_number(c, 8, "the header", "", &c->g->n_kv);
	if (status)
		return status;
	if (c->g->n_kv > left(c) / MIN_KV_BYTES || c->g->n_tensors > left(c) / MIN_TENSOR_BYTES)
		return BAD(c,
			"%s: the file has %llu bytes, too few for the %llu keys and %llu tensors "
			"that "
			"its header announces",
			path, (ull)c->n, (ull)c->g->n_kv, (ull)c->g->n_tensors);
	return LAP_OK;
}

static enum lap_status read_alignment(struct cursor *c)
{
	static const char key[] = ALIGNMENT_KEY;
	struct gguf *g = c->g;
	const struct gguf_kv *kv = gguf_find(g, key);
	g->alignment = DEFAULT_ALIGNMENT;
	if (!kv)
		return LAP_OK;
	if (kv->type != GGUF_U32)
		return BAD(c, "%s: %s is of type %s, expected u32", g->path, key,
			types[kv->type].name);
	uint32_t n = (uint32_t)load(kv->data, 4);
	if (n < MIN_ALIGNMENT || n > GGUF_MAX_ALIGNMENT || (n & (n - 1)))
		return BAD(c, "%s: %s is %u, expected a power of two from %d to %d", g->path, key,
			n, MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
	g->alignment = n;
	return LAP_OK;
}

static enum lap_status read_file(struct cursor *c)
{
	struct gguf *g = c->g;
	enum lap_status status = read_header(c);
	if (status)
		return status;
	g->kv = arena_alloc(&g->arena, g->n_kv, sizeof *g->kv);
	g->index = arena_alloc(&g->arena, 1, sizeof(struct index));
	if (!g->kv || !g->index)
		return fail_memory(c->err, "keys", g->n_kv * sizeof *g->kv);
	for (uint64_t i = 0; i < g->n_kv && !status; i++)
		status = read_kv(c, i, &g->kv[i]);
	if (!status)
		status = index_kv(c);
	if (!status)
		status = read_alignment(c);
	if (!status)
		status = read_tensors(c);
	if (!status)
		status = index_tensors(c);
	return status;
}

enum lap_status gguf_open(const void *bytes, uint64_t n_bytes, const char *path, struct gguf **gguf,
	struct lap_error *err)
{
	*gguf = NULL;
	struct gguf *g = array_alloc(1, sizeof *g);
	if (!g)
		return fail_memory(err, "a model file", sizeof *g);
	uint64_t n_path = path ? strlen(path) : 0;
	char *copy = arena_alloc(&g->arena, n_path + 1, 1);
	if (!copy) {
		free(g);
		return fail_memory(err, "a path", n_path + 1);
	}
	if (path)
		memcpy(copy, path, (size_t)n_path);
	g->path = copy;
	g->n_file_bytes = n_bytes;
	struct cursor c = {.data = bytes, .n = n_bytes, .g = g, .err = err};
	enum lap_status status = read_file(&c);
	if (status)
		gguf_close(g);
	else
		*gguf = g;
	return status;
}

/* What `from` points to is released with *to. */
static void arena_take(void **to, void **from)
{
	struct block *last = *from;
	while (last && last->next)
		last = last->next;
	if (last) {
		last->next = *to;
		*to = *from;
	}
	*from = NULL;
}

enum lap_status gguf_join(struct gguf **parts, size_t n, struct lap_error *err)
{
	struct gguf joined = *parts[0];
	for (size_t i = 1; i < n; i++)
		if (!size_add(joined.n_tensors, parts[i]->n_tensors, &joined.n_tensors) ||
			!size_add(
				joined.n_file_bytes, parts[i]->n_file_bytes, &joined.n_file_bytes))
			return fail(err, LAP_BAD_MODEL, "%s: the files are too large", joined.path);
	joined.tensors = arena_alloc(&joined.arena, joined.n_tensors, sizeof *joined.tensors);
	joined.index = arena_alloc(&joined.arena, 1, sizeof(struct index));
	enum lap_status status = LAP_OK;
	if (!joined.tensors || !joined.index) {
		status = fail_memory(err, "tensors", joined.n_tensors * sizeof *joined.tensors);
	} else {
		struct gguf_tensor *t = joined.tensors;
		for (size_t i = 0; i < n; i++)
			for (uint64_t k = 0; k < parts[i]->n_tensors; k++)
				*t++ = parts[i]->tensors[k];
		*(struct index *)joined.index = *(const struct index *)parts[0]->index;
		struct cursor c = {.g = &joined, .err = err};
		status = index_tensors(&c);
	}
	parts[0]->arena = joined.arena; /* what was made for a failed try goes with it */
	if (status)
		return status;
	for (size_t i = 1; i < n; i++) {
		arena_take(&joined.arena, &parts[i]->arena);
		gguf_close(parts[i]);
		parts[i] = NULL;
	}
	*parts[0] = joined;
	return LAP_OK;
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	arena_free(g->arena);
	free(g);
}

/* ---- keys from the outside --------------------------------------------------------------------- */

/* Where a value of an override starts, and how it is read. */
struct override {
	struct gguf *g;
	const char *text, *value; /* the whole; behind the colon */
	struct lap_error *err;
};

static enum lap_status bad_value(const struct override *o, const char *expected)
{
	return fail(o->err, LAP_USAGE, "override \"" NAME "\": the value is \"%.60s\", expected %s",
		o->text, o->value, expected);
}

/* n_bytes of a number, little-endian as in a file. */
static enum lap_status keep_number(
	const struct override *o, struct gguf_kv *kv, uint64_t bits, unsigned n_bytes)
{
	uint8_t *bytes = arena_alloc(&o->g->arena, 1, sizeof bits);
	if (!bytes)
		return fail_memory(o->err, "a key", sizeof bits);
	for (unsigned i = 0; i < n_bytes; i++)
		bytes[i] = (uint8_t)(bits >> 8 * i);
	kv->data = bytes;
	return LAP_OK;
}

static enum lap_status override_int(const struct override *o, struct gguf_kv *kv)
{
	size_t sign = *o->value == '-';
	errno = 0;
	long long value = strtoll(o->value, NULL, 10);
	size_t n_digits = strspn(o->value + sign, "0123456789");
	if (n_digits == 0 || o->value[sign + n_digits] || errno)
		return bad_value(o, "a whole number of 64 bits");
	kv->type = GGUF_I64;
	return keep_number(o, kv, (uint64_t)value, 8);
}

static enum lap_status override_float(const struct override *o, struct gguf_kv *kv)
{
	char *end = NULL;
	double value = strtod(o->value, &end);
	if (!*o->value || o->value[strspn(o->value, "0123456789.+-eE")] || *end || !isfinite(value))
		return bad_value(o, "a number");
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	kv->type = GGUF_F64;
	return keep_number(o, kv, bits, 8);
}

static enum lap_status override_bool(const struct override *o, struct gguf_kv *kv)
{
	bool value = strcmp(o->value, "true") == 0;
	if (!value && strcmp(o->value, "false") != 0)
		return bad_value(o, "true or false");
	kv->type = GGUF_BOOL;
	return keep_number(o, kv, value, 1);
}

static enum lap_status override_str(const struct override *o, struct gguf_kv *kv)
{
	size_t n = strlen(o->value);
	char *copy = arena_alloc(&o->g->arena, n + 1, 1);
	struct gguf_string *string = arena_alloc(&o->g->arena, 1, sizeof *string);
	if (!copy || !string)
		return fail_memory(o->err, "a key", n + 1);
	memcpy(copy, o->value, n);
	*string = (struct gguf_string){copy, n};
	kv->type = GGUF_STRING;
	kv->data = (const uint8_t *)copy;
	kv->strings = string;
	return LAP_OK;
}

static enum lap_status read_override(
	struct gguf *g, const char *text, struct gguf_kv *kv, struct lap_error *err)
{
	static const struct {
		const char *name;
		enum lap_status (*read)(const struct override *o, struct gguf_kv *kv);
	} kinds[] = {{"int", override_int}, {"float", override_float}, {"bool", override_bool},
		{"str", override_str}};
	const char *equals = strchr(text, '=');
	const char *colon = equals ? strchr(equals, ':') : NULL;
	if (!colon || equals == text || (size_t)(equals - text) > MAX_NAME_BYTES)
		return fail(err, LAP_USAGE,
			"override \"" NAME "\": expected KEY=TYPE:VALUE with TYPE int, float, bool "
			"or str",
			text);
	char *key = arena_alloc(&g->arena, (uint64_t)(equals - text) + 1, 1);
	if (!key)
		return fail_memory(err, "a key", (uint64_t)(equals - text) + 1);
	memcpy(key, text, (size_t)(equals - text));
	if (strcmp(key, ALIGNMENT_KEY) == 0)
		return fail(err, LAP_USAGE,
			"override \"" NAME "\": the place of the tensors follows from this key, "
			"expected another one",
			text);
	const struct override o = {g, text, colon + 1, err};
	*kv = (struct gguf_kv){.key = key, .n = 1};
	for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
		if (strncmp(equals + 1, kinds[i].name, (size_t)(colon - equals) - 1) == 0 &&
			strlen(kinds[i].name) == (size_t)(colon - equals) - 1)
			return kinds[i].read(&o, kv);
	return fail(err, LAP_USAGE,
		"override \"" NAME "\": the type is \"%.*s\", expected int, float, bool or str",
		text, (int)(colon - equals < 20 ? colon - equals - 1 : 20), equals + 1);
}

enum lap_status gguf_override(
	struct gguf *g, const char *const *overrides, size_t n, struct lap_error *err)
{
	struct gguf changed = *g;
	changed.kv = arena_alloc(&changed.arena, g->n_kv + n, sizeof *g->kv);
	changed.index = arena_alloc(&changed.arena, 1, sizeof(struct index));
	enum lap_status status = LAP_OK;
	if (!changed.kv || !changed.index)
		status = fail_memory(err, "keys", (g->n_kv + n) * sizeof *g->kv);
	else
		*(struct index *)changed.index = *(const struct index *)g->index;
	for (uint64_t i = 0; i < g->n_kv && !status; i++)
		changed.kv[i] = g->kv[i];
	for (size_t i = 0; i < n && !status; i++) {
		struct gguf_kv kv;
		status = read_override(&changed, overrides[i], &kv, err);
		if (status)
			break;
		uint64_t k = 0;
		while (k < changed.n_kv && strcmp(changed.kv[k].key, kv.key) != 0)
			k++;
		changed.kv[k] = kv;
		changed.n_kv += k == changed.n_kv;
	}
	struct cursor c = {.g = &changed, .err = err};
	if (!status)
		status = index_kv(&c);
	g->arena = changed.arena; /* what was made for a failed try goes with it */
	if (!status)
		*g = changed;
	return status;
}

/* ---- look-up ----------------------------------------------------------------------------------- */

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
	const struct index *index = g->index;
	struct gguf_kv **found = g->n_kv
		? bsearch(key, index->kv, (size_t)g->n_kv, sizeof(struct gguf_kv *), compare_key)
		: NULL;
	return found ? *found : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
	const struct index *index = g->index;
	struct gguf_tensor **found = g->n_tensors
		? bsearch(name, index->tensors, (size_t)g->n_tensors, sizeof(struct gguf_tensor *),
			  compare_name)
		: NULL;
	return found ? *found : NULL;
}

static enum lap_status wrong_type(
	const struct gguf *g, const struct gguf_kv *kv, const char *expected, struct lap_error *err)
{
	if (kv->type == GGUF_ARRAY)
		return fail(err, LAP_BAD_MODEL, "%s: " NAME " is an array of %llu %s, expected %s",
			g->path, kv->key, (ull)kv->n, types[kv->element].name, expected);
	return fail(err, LAP_BAD_MODEL, "%s: " NAME " is of type %s, expected %s", g->path, kv->key,
		types[kv->type].name, expected);
}

/* Element i as an integer: false when the type is none. */
static bool integer(const struct gguf_kv *kv, uint64_t i, bool *negative, uint64_t *value)
{
	enum gguf_type type = kv->type == GGUF_ARRAY ? kv->element : kv->type;
	unsigned n_bytes = types[type].n_bytes;
	const uint8_t *p = kv->data + i * n_bytes;
	*negative = false;
	switch (type) {
	case GGUF_U8:
	case GGUF_U16:
	case GGUF_U32:
	case GGUF_U64:
		*value = load(p, n_bytes);
		return true;
	case GGUF_I8:
	case GGUF_I16:
	case GGUF_I32:
	case GGUF_I64:
		*negative = load_signed(p, n_bytes) < 0;
		*value = (uint64_t)load_signed(p, n_bytes);
		return true;
	default:
		return false;
	}
}

enum lap_status gguf_u32(
	const struct gguf *g, const char *key, uint32_t *out, struct lap_error *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	bool negative;
	uint64_t value;
	if (!kv)
		return LAP_OK;
	if (kv->type == GGUF_ARRAY || !integer(kv, 0, &negative, &value))
		return wrong_type(g, kv, "an integer", err);
	if (negative)
		return fail(err, LAP_BAD_MODEL, "%s: %s is %lld, expected 0 to %u", g->path, key,
			(long long)value, UINT32_MAX);
	if (value > UINT32_MAX)
		return fail(err, LAP_BAD_MODEL, "%s: %s is %llu, expected 0 to %u", g->path, key,
			(ull)value, UINT32_MAX);
	*out = (uint32_t)value;
	return LAP_OK;
}

enum lap_status gguf_f32(const struct gguf *g, const char *key, float *out, struct lap_error *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	if (!kv)
		return LAP_OK;
	if (kv->type != GGUF_F32 && kv->type != GGUF_F64)
		return wrong_type(g, kv, "f32", err);
	double value = kv->type == GGUF_F32 ? (double)load_f32(kv->data) : load_f64(kv->data);
	if (isfinite(value) && fabs(value) > (double)FLT_MAX)
		return fail(err, LAP_BAD_MODEL, "%s: %s is %g, expected a 32-bit float", g->path,
			key, value);
	*out = (float)value;
	return LAP_OK;
}

enum lap_status gguf_bool(const struct gguf *g, const char *key, bool *out, struct lap_error *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	if (!kv)
		return LAP_OK;
	if (kv->type != GGUF_BOOL)
		return wrong_type(g, kv, "bool", err);
	*out = kv->data[0] == 1;
	return LAP_OK;
}

enum lap_status gguf_string(
	const struct gguf *g, const char *key, struct gguf_string *out, struct lap_error *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	if (!kv)
		return LAP_OK;
	if (kv->type != GGUF_STRING)
		return wrong_type(g, kv, "a string", err);
	*out = kv->strings[0];
	return LAP_OK;
}

double gguf_number(const struct gguf_kv *kv, uint64_t i)
{
	enum gguf_type type = kv->type == GGUF_ARRAY ? kv->element : kv->type;
	bool negative;
	uint64_t value;
	if (integer(kv, i, &negative, &value))
		return negative ? (double)(int64_t)value : (double)value;
	const uint8_t *p = kv->data + i * types[type].n_bytes;
	if (type == GGUF_F32)
		return (double)load_f32(p);
	if (type == GGUF_F64)
		return load_f64(p);
	return type == GGUF_BOOL ? (double)p[0] : 0.0;
}

const char *gguf_show(struct gguf_string s, char out[GGUF_SHOW_BYTES])
{
	size_t n = s.n < GGUF_SHOW_BYTES - 1 ? (size_t)s.n : GGUF_SHOW_BYTES - 1;
	for (size_t i = 0; i < n; i++)
		out[i] = s.data[i] >= 0x20 && s.data[i] < 0x7F ? s.data[i] : '?';
	out[n] = '\0';
	return out;
}
