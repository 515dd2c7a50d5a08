/* Parts found by their names, checked against each other, and made one: see split.h. */
#include "split.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	NUMBER_DIGITS =
		5,      /* of a part's number and of their count, as splitting tools write them */
	MOST_LINKS = 8, /* links to links that are followed for names */
};

/* What stands behind the name of a file while it is downloaded. */
static const char *const unfinished[] = {".incomplete", ".part", ".partial", ".crdownload",
	".download", ".downloadInProgress", ".aria2"};

typedef unsigned long long ull; /* what printf's %llu takes */

/* ---- names ------------------------------------------------------------------------------------- */

static bool read_digits(const char *s, uint32_t *value)
{
	*value = 0;
	for (int i = 0; i < NUMBER_DIGITS; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		*value = *value * 10 + (uint32_t)(s[i] - '0');
	}
	return true;
}

bool split_read_name(const char *path, struct split_name *name)
{
	static const char of[] = "-of-", ending[] = ".gguf";
	const size_t n_of = sizeof of - 1, n_ending = sizeof ending - 1;
	const size_t n_tail = 1 + NUMBER_DIGITS + n_of + NUMBER_DIGITS + n_ending;
	size_t n = strlen(path);
	if (n <= n_tail)
		return false;
	const char *tail = path + n - n_tail, *number = tail + 1, *count;
	count = number + NUMBER_DIGITS + n_of;
	name->n_prefix = n - n_tail;
	return tail[-1] != '/' && tail[0] == '-' && read_digits(number, &name->number) &&
		strncmp(count - n_of, of, n_of) == 0 && read_digits(count, &name->count) &&
		strcmp(count + NUMBER_DIGITS, ending) == 0 && name->number >= 1 &&
		name->number <= name->count;
}

static bool ends_in(const char *path, const char *ending)
{
	size_t n = strlen(path), n_ending = strlen(ending);
	return n > n_ending && strcmp(path + n - n_ending, ending) == 0;
}

/* "model.gguf.part2of3" and "model.gguf-split-b": cut by bytes, to be joined before use. */
static bool is_piece_name(const char *path)
{
	const char *part = strstr(path, ".gguf.part"), *split = strstr(path, ".gguf-split-");
	unsigned number, count;
	return (part && sscanf(part, ".gguf.part%4uof%4u", &number, &count) == 2) ||
		(split && strlen(split) == strlen(".gguf-split-a"));
}

/* ---- one file ---------------------------------------------------------------------------------- */

static enum lap_status open_file(
	const char *path, struct mapped_file *file, struct gguf **gguf, struct lap_error *err)
{
	enum lap_status status = file_map(path, file, err);
	for (size_t i = 0; i < ARRAY_COUNT(unfinished) && !status; i++)
		if (ends_in(path, unfinished[i]))
			return fail(err, LAP_BAD_MODEL,
				"%s: a download that is not finished, by the %s of its name", path,
				unfinished[i]);
	if (!status)
		status = gguf_open(file->data ? file->data : (const uint8_t *)"", file->n_bytes,
			path, gguf, err);
	if (status == LAP_BAD_MODEL && is_piece_name(path))
		return fail(err, LAP_BAD_MODEL,
			"%s: a piece of a file, by its name: join the pieces in their order, as "
			"with "
			"cat, and open the result",
			path);
	return status;
}

/* ---- parts ------------------------------------------------------------------------------------- */

/* Paths under which parts may lie: the one given and those it links to, as far as their names have
 * numbers. */
struct places {
	char *paths[1 + MOST_LINKS];
	struct split_name names[1 + MOST_LINKS];
	unsigned n;
};

struct parts {
	struct gguf **ggufs; /* [n_files], NULL: not open yet */
	struct places places;
	struct split *split;
	struct lap_error *err;
};

#define BAD(p, path, format, ...) fail((p)->err, LAP_BAD_MODEL, "%s: " format, path, __VA_ARGS__)

/* What the link `path` points to, on the heap; NULL when it is no link. */
static char *read_link(const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof target);
	if (n <= 0 || n == sizeof target)
		return NULL;
	const char *slash = target[0] == '/' ? NULL : strrchr(path, '/');
	struct text whole = {0};
	bool ok = (!slash || text_append(&whole, path, (size_t)(slash + 1 - path))) &&
		text_append(&whole, target, (size_t)n);
	if (!ok)
		text_free(&whole);
	return whole.data;
}

static void find_places(const char *path, struct places *places)
{
	char *at = strdup(path);
	for (int i = 0; at && i <= MOST_LINKS; i++) {
		char *next = read_link(at);
		if (split_read_name(at, &places->names[places->n]))
			places->paths[places->n++] = at;
		else
			free(at);
		at = next;
	}
	free(at);
}

/* The path of part `number` at one of the places; "" when memory is out. */
static const char *part_path(
	const struct places *places, unsigned place, uint32_t number, struct text *path)
{
	const struct split_name *name = &places->names[place];
	text_free(path);
	bool ok = text_printf(path, "%.*s-%05u-of-%05u.gguf", (int)name->n_prefix,
		places->paths[place], number, name->count);
	return ok ? path->data : "";
}

static enum lap_status refuse_missing(const struct parts *p, uint32_t number)
{
	struct text path = {0}, half = {0};
	const char *missing = part_path(&p->places, 0, number, &path);
	enum lap_status status =
		fail(p->err, LAP_IO, "cannot open %s: it is missing, part %u of %u of the model",
			missing, number, p->split->n_files);
	for (size_t i = 0; i < ARRAY_COUNT(unfinished); i++) {
		text_free(&half);
		if (text_printf(&half, "%s%s", missing, unfinished[i]) &&
			access(half.data, F_OK) == 0)
			status = fail(p->err, LAP_IO,
				"cannot open %s, part %u of %u of the model: its download is not "
				"finished, there is %s",
				missing, number, p->split->n_files, half.data);
	}
	text_free(&path);
	text_free(&half);
	return status;
}

/* The file says of itself what its name says. */
static enum lap_status check_numbers(
	const struct parts *p, const struct gguf *g, uint32_t number, uint32_t n_parts)
{
	uint32_t index = UINT32_MAX, count = 0;
	enum lap_status status = gguf_u32(g, "split.no", &index, p->err);
	if (!status)
		status = gguf_u32(g, "split.count", &count, p->err);
	if (status)
		return status;
	if (!gguf_find(g, "split.no"))
		return BAD(p, g->path, "the key %s is missing", "split.no");
	if (count != n_parts)
		return BAD(p, g->path,
			"its name says %u parts, but split.count is %u: the file belongs to "
			"another "
			"model, or was renamed",
			n_parts, count);
	if (index != number - 1)
		return BAD(p, g->path,
			"its name says part %u, but split.no is %u (counted from 0), which is part "
			"%llu: the file was renamed",
			number, index, (ull)index + 1);
	return LAP_OK;
}

static enum lap_status open_part(struct parts *p, uint32_t number)
{
	struct text path = {0};
	unsigned place = 0;
	while (place < p->places.n &&
		access(part_path(&p->places, place, number, &path), F_OK) != 0)
		place++;
	enum lap_status status = place < p->places.n
		? open_file(path.data, &p->split->files[number - 1], &p->ggufs[number - 1], p->err)
		: refuse_missing(p, number);
	if (!status)
		status = check_numbers(p, p->ggufs[number - 1], number, p->split->n_files);
	text_free(&path);
	return status;
}

/* No tensor in two parts, as many as the parts say, and all written in one version of the format.  Each
 * part is read by its own alignment: only the first need have the key. */
static enum lap_status check_together(const struct parts *p)
{
	const struct gguf *first = p->ggufs[0];
	uint32_t expected = 0;
	uint64_t n_tensors = 0;
	for (uint32_t i = 0; i < p->split->n_files; i++) {
		const struct gguf *g = p->ggufs[i];
		n_tensors += g->n_tensors;
		if (g->version != first->version)
			return BAD(p, g->path,
				"GGUF version %u, but %s has version %u: they are not of one model",
				g->version, first->path, first->version);
		for (uint64_t k = 0; k < g->n_tensors; k++)
			for (uint32_t j = 0; j < i; j++)
				if (gguf_find_tensor(p->ggufs[j], g->tensors[k].name))
					return BAD(p, g->path,
						"the tensor %.100s is in %s too, expected once",
						g->tensors[k].name, p->ggufs[j]->path);
	}
	for (uint32_t i = 0; i < p->split->n_files; i++) {
		const struct gguf *g = p->ggufs[i];
		enum lap_status status = gguf_u32(g, "split.tensors.count", &expected, p->err);
		if (status)
			return status;
		if (gguf_find(g, "split.tensors.count") && expected != n_tensors)
			return BAD(p, g->path,
				"split.tensors.count is %u, but the %u parts have %llu tensors",
				expected, p->split->n_files, (ull)n_tensors);
	}
	return LAP_OK;
}

/* The file given is in *file and *gguf, which move into p. */
static enum lap_status open_parts(
	struct parts *p, uint32_t n_parts, struct mapped_file *file, struct gguf **gguf)
{
	const struct gguf *g = *gguf;
	uint32_t index = 0;
	enum lap_status status = gguf_u32(g, "split.no", &index, p->err);
	if (status)
		return status;
	if (p->places.n == 0)
		return BAD(p, g->path,
			"part %llu of a model split into %u: the others are found by its name, "
			"expected "
			"NAME-%05llu-of-%05u.gguf",
			(ull)index + 1, n_parts, (ull)index + 1, n_parts);
	const struct split_name *name = &p->places.names[0];
	status = check_numbers(p, g, name->number, name->count);
	if (status)
		return status;
	p->split->files = array_alloc(n_parts, sizeof *p->split->files);
	p->ggufs = array_alloc(n_parts, sizeof(struct gguf *));
	if (!p->split->files || !p->ggufs)
		return fail_memory(p->err, "the parts of a model", n_parts);
	p->split->n_files = n_parts;
	p->split->files[index] = *file;
	p->ggufs[index] = *gguf;
	*file = (struct mapped_file){0};
	*gguf = NULL;
	for (uint32_t i = 0; i < n_parts && !status; i++)
		if (i != index)
			status = open_part(p, i + 1);
	if (!status)
		status = check_together(p);
	if (!status)
		status = gguf_join(p->ggufs, n_parts, p->err);
	return status;
}

static enum lap_status open_split(const char *path, uint32_t n_parts, struct split *split,
	struct mapped_file *file, struct gguf **gguf, struct lap_error *err)
{
	struct parts p = {.split = split, .err = err};
	find_places(path, &p.places);
	enum lap_status status = open_parts(&p, n_parts, file, gguf);
	for (uint32_t i = 0; p.ggufs && i < split->n_files; i++)
		if (i == 0 && !status)
			split->gguf = p.ggufs[0];
		else
			gguf_close(p.ggufs[i]);
	for (unsigned i = 0; i < p.places.n; i++)
		free(p.places.paths[i]);
	free(p.ggufs);
	return status;
}

/* ---- the model --------------------------------------------------------------------------------- */

static enum lap_status open_single(
	struct split *split, struct mapped_file *file, struct gguf **gguf, struct lap_error *err)
{
	split->files = array_alloc(1, sizeof *split->files);
	if (!split->files)
		return fail_memory(err, "a model file", sizeof *split->files);
	split->n_files = 1;
	split->files[0] = *file;
	split->gguf = *gguf;
	*file = (struct mapped_file){0};
	*gguf = NULL;
	return LAP_OK;
}

enum lap_status split_open(const char *path, struct split *split, struct lap_error *err)
{
	struct mapped_file file;
	struct gguf *gguf = NULL;
	uint32_t n_parts = 1;
	*split = (struct split){0};
	enum lap_status status = open_file(path, &file, &gguf, err);
	if (!status)
		status = gguf_u32(gguf, "split.count", &n_parts, err);
	if (!status)
		status = n_parts > 1 ? open_split(path, n_parts, split, &file, &gguf, err)
				     : open_single(split, &file, &gguf, err);
	gguf_close(gguf);
	file_unmap(&file);
	if (status)
		split_close(split);
	return status;
}

enum lap_status split_open_memory(const void *bytes, uint64_t n_bytes, const char *name,
	struct split *split, struct lap_error *err)
{
	struct gguf *gguf = NULL;
	struct mapped_file none = {0};
	uint32_t n_parts = 1;
	*split = (struct split){0};
	enum lap_status status = gguf_open(bytes, n_bytes, name, &gguf, err);
	if (!status)
		status = gguf_u32(gguf, "split.count", &n_parts, err);
	if (!status && n_parts > 1)
		status = fail(err, LAP_BAD_MODEL,
			"%s: one part of a model split into %u, expected a whole one in memory",
			name, n_parts);
	if (!status)
		status = open_single(split, &none, &gguf, err);
	gguf_close(gguf);
	return status;
}

void split_forget(const struct split *split, const uint8_t *bytes, uint64_t n_bytes)
{
	for (uint32_t i = 0; i < split->n_files; i++)
		file_forget(&split->files[i], bytes, n_bytes);
}

void split_close(struct split *split)
{
	gguf_close(split->gguf);
	for (uint32_t i = 0; i < split->n_files; i++)
		file_unmap(&split->files[i]);
	free(split->files);
	*split = (struct split){0};
}
