/* Models by name, in the caches of other programs: see locate.h. */
#include "locate.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "split.h"

enum { MOST_FOLDERS = 4 }; /* deep, from where a repository's files begin */

/* What a user calls a model, in its parts; "" where one is not given. */
struct request {
	char *copy; /* of the text, which the parts point into */
	const char *host, *user, *name, *tag, *file;
};

/* A file that may be meant. */
struct candidate {
	char *repo; /* "user/name", or "name" */
	char *file; /* its path below the repository, or ollama's tag */
	char *path;
	bool preferred; /* the program that owns the cache would take it */
};

struct finder {
	struct request request;
	struct candidate *found;
	size_t n, capacity;
	struct text looked; /* places, for who finds nothing */
	struct text near;   /* files of the right repository that do not fit */
	bool no_memory;
};

/* ---- small helpers ----------------------------------------------------------------------------- */

/* printf to a string on the heap; "no memory" is remembered, and NULL. */
static char *format(struct finder *f, const char *format_, ...) PRINTF_LIKE(2, 3);

static char *format(struct finder *f, const char *format_, ...)
{
	va_list args;
	va_start(args, format_);
	int n = vsnprintf(NULL, 0, format_, args);
	va_end(args);
	char *s = n < 0 ? NULL : malloc((size_t)n + 1);
	if (!s) {
		f->no_memory = true;
		return NULL;
	}
	va_start(args, format_);
	vsnprintf(s, (size_t)n + 1, format_, args);
	va_end(args);
	return s;
}

static bool same(const char *a, const char *b)
{
	return strcasecmp(a, b) == 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool ends_in(const char *s, const char *ending)
{
	size_t n = strlen(s), n_ending = strlen(ending);
	return n >= n_ending && same(s + n - n_ending, ending);
}

static bool contains(const char *s, const char *word)
{
	size_t n = strlen(word);
	for (; *s; s++)
		if (strncasecmp(s, word, n) == 0)
			return true;
	return false;
}

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int not_hidden(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Calls `see` for every name in a folder, in the order of the names; a folder that is not there has
 * none. */
static void each_entry(struct finder *f, const char *folder,
	void (*see)(struct finder *f, const char *folder, const char *name, const void *user),
	const void *user)
{
	struct dirent **entries = NULL;
	int n = folder ? scandir(folder, &entries, not_hidden, alphasort) : -1;
	for (int i = 0; i < n; i++) {
		see(f, folder, entries[i]->d_name, user);
		free(entries[i]);
	}
	free(entries);
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* Parts of names become names of folders: nothing but these characters, and no way up. */
static bool is_word(const char *s)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	return *s && *s != '.' && s[strspn(s, allowed)] == '\0';
}

/* False when the text can be no name. */
static bool read_request(struct request *r, const char *text)
{
	*r = (struct request){.host = "", .user = "", .name = "", .tag = "", .file = ""};
	r->copy = strdup(text);
	if (!r->copy)
		return false;
	char *colon = strrchr(r->copy, ':');
	if (colon && !strchr(colon, '/')) {
		*colon = '\0';
		r->tag = colon + 1;
		if (!is_word(r->tag))
			return false;
	}
	const char **parts[] = {&r->name, &r->user, &r->host};
	for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
		char *slash = strrchr(r->copy, '/');
		*parts[i] = slash ? slash + 1 : r->copy;
		if (!is_word(*parts[i]))
			return false;
		if (!slash)
			return true;
		*slash = '\0';
	}
	return false;
}

/* Is the repository user/name, of an ollama host where there is one, what was asked for? */
static bool wanted(const struct request *r, const char *user, const char *name)
{
	static const char suffix[] = "-GGUF";
	size_t n = strlen(r->name);
	if (!*r->name) /* a file is asked for, wherever it is */
		return true;
	if (*r->user)
		return same(r->user, user) && same(r->name, name);
	return strncasecmp(r->name, name, n) == 0 && (!name[n] || same(name + n, suffix));
}

/* A quant as files' names have it: whole, so that Q4_K is no part of Q4_K_M nor Q4_0 of IQ4_0. */
static bool has_quant(const char *file, const char *quant)
{
	size_t n = strlen(quant);
	for (const char *at = file; *at; at++) {
		bool begins = at == file || strchr("-_./", at[-1]);
		bool ends = strncasecmp(at, quant, n) == 0 && (!at[n] || strchr("-./", at[n]));
		if (begins && ends)
			return true;
	}
	return false;
}

/* ---- candidates -------------------------------------------------------------------------------- */

static struct candidate *find_candidate(struct finder *f, const char *repo, const char *file)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->found[i].repo, repo) == 0 && strcmp(f->found[i].file, file) == 0)
			return &f->found[i];
	return NULL;
}

static void add_candidate(
	struct finder *f, const char *repo, const char *file, const char *path, bool preferred)
{
	if (f->n == f->capacity) {
		size_t capacity = f->capacity ? 2 * f->capacity : 16;
		struct candidate *found = realloc(f->found, capacity * sizeof *found);
		if (!found) {
			f->no_memory = true;
			return;
		}
		f->found = found;
		f->capacity = capacity;
	}
	struct candidate c = {strdup(repo), strdup(file), strdup(path), preferred};
	f->found[f->n++] = c;
	f->no_memory = f->no_memory || !c.repo || !c.file || !c.path;
}

static void drop_candidate(struct finder *f, size_t i)
{
	free(f->found[i].repo);
	free(f->found[i].file);
	free(f->found[i].path);
	memmove(&f->found[i], &f->found[i + 1], (--f->n - i) * sizeof *f->found);
}

static void drop_candidates(struct finder *f)
{
	while (f->n)
		drop_candidate(f, f->n - 1);
}

/* A later part of a model whose earlier one is a candidate too. */
static bool is_further_part(const struct finder *f, size_t i)
{
	struct split_name name, other;
	const char *path = f->found[i].path;
	if (!split_read_name(path, &name))
		return false;
	for (size_t k = 0; k < f->n; k++)
		if (split_read_name(f->found[k].path, &other) && other.number < name.number &&
			other.count == name.count && other.n_prefix == name.n_prefix &&
			strncmp(f->found[k].path, path, name.n_prefix) == 0)
			return true;
	return false;
}

/* Keeps what may be meant: the file that was named, else first parts of what may be a language model. */
static void sift(struct finder *f)
{
	const char *file = f->request.file;
	for (size_t i = f->n; i-- > 0;) {
		const struct candidate *c = &f->found[i];
		const char *base = base_name(c->file);
		bool keep = *file ? strcmp(c->file, file) == 0 || strcmp(base, file) == 0
				  : !contains(base, "mmproj") && !contains(base, "imatrix") &&
				!is_further_part(f, i);
		if (!keep)
			drop_candidate(f, i);
	}
}

/* ---- folders of files -------------------------------------------------------------------------- */

struct tree {
	const char *repo;
	const char *below; /* path from the repository's top, "" or with a slash behind it */
	unsigned depth;    /* folders that may still be entered */
};

static void see_tree(struct finder *f, const char *folder, const char *name, const void *user)
{
	const struct tree *tree = user;
	char *path = format(f, "%s/%s", folder, name), *file = format(f, "%s%s", tree->below, name);
	char *below = format(f, "%s%s/", tree->below, name);
	struct stat st;
	if (path && file && below && stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode) && tree->depth)
			each_entry(f, path, see_tree,
				&(struct tree){tree->repo, below, tree->depth - 1});
		else if (S_ISREG(st.st_mode) && ends_in(name, ".gguf") &&
			!find_candidate(f, tree->repo, file))
			add_candidate(f, tree->repo, file, path, false);
	}
	free(path);
	free(file);
	free(below);
}

/* ---- the Hugging Face hub: models--USER--NAME/{refs/main,snapshots/REVISION/FILE} ---------------- */

static void see_snapshot(struct finder *f, const char *folder, const char *name, const void *user)
{
	char *path = format(f, "%s/%s", folder, name);
	each_entry(f, path, see_tree, &(struct tree){user, "", MOST_FOLDERS});
	free(path);
}

static void see_hub(struct finder *f, const char *root, const char *name, const void *user)
{
	(void)user;
	static const char models[] = "models--", between[] = "--";
	if (strncmp(name, models, sizeof models - 1) != 0)
		return;
	const char *owner = name + sizeof models - 1, *dashes = strstr(owner, between);
	int n_owner = dashes ? (int)(dashes - owner) : 0;
	char *owner_copy = format(f, "%.*s", n_owner, owner);
	const char *repo_name = dashes ? dashes + 2 : owner;
	if (owner_copy && wanted(&f->request, owner_copy, repo_name)) {
		char *repo = format(f, "%s%s%s", owner_copy, dashes ? "/" : "", repo_name);
		char *main_path = format(f, "%s/%s/refs/main", root, name);
		char *snapshots = format(f, "%s/%s/snapshots", root, name);
		struct text revision = {0};
		if (repo && snapshots && main_path && !file_read(main_path, &revision, NULL)) {
			revision.data[strcspn(revision.data, " \r\n")] = '\0';
			if (is_word(revision.data)) /* its files come first, others do not replace them */
				see_snapshot(f, snapshots, revision.data, repo);
		}
		if (repo)
			each_entry(f, snapshots, see_snapshot, repo);
		text_free(&revision);
		free(repo);
		free(main_path);
		free(snapshots);
	}
	free(owner_copy);
}

/* ---- llama.cpp: USER_NAME_FILE and manifest=USER=NAME=TAG.json in one folder --------------------- */

static bool wanted_tag(const struct request *r, const char *tag)
{
	return same(tag, *r->tag ? r->tag : "latest");
}

/* The part of a flat name behind the repository; NULL when it is of another. */
static const char *flat_file(const struct request *r, const char *name)
{
	if (!*r->name)
		return name;
	for (const char *at = strchr(name, '_'); at; at = strchr(at + 1, '_')) {
		const char *repo = at + 1;
		size_t n_user = (size_t)(at - name);
		if (*r->user &&
			(strlen(r->user) != n_user || strncasecmp(name, r->user, n_user) != 0))
			continue;
		size_t n = strlen(r->name);
		if (strncasecmp(repo, r->name, n) != 0)
			continue;
		if (repo[n] == '_')
			return repo + n + 1;
		if (!*r->user && strncasecmp(repo + n, "-GGUF_", 6) == 0)
			return repo + n + 6;
	}
	return NULL;
}

/* A flat name has no folders: each '/' of a file's path is a '_' there. */
static bool flattens_to(const char *path, const char *flat)
{
	while (*path && (*path == *flat || (*path == '/' && *flat == '_'))) {
		path++;
		flat++;
	}
	return !*path && !*flat;
}

static void see_flat(struct finder *f, const char *root, const char *name, const void *user)
{
	(void)user;
	const char *file = ends_in(name, ".gguf") ? flat_file(&f->request, name) : NULL;
	if (!file)
		return;
	/* Asked for a file alone, its name is what ends the flat one. */
	const char *wanted_file = f->request.file;
	size_t n = strlen(name), n_file = strlen(wanted_file);
	if (!*f->request.name && n > n_file && name[n - n_file - 1] == '_')
		file = name + n - n_file;
	size_t n_repo = (size_t)(file - name);
	if (flattens_to(wanted_file, file))
		file = wanted_file;
	char *repo = format(f, "%.*s", n_repo ? (int)n_repo - 1 : 0, name);
	char *path = format(f, "%s/%s", root, name);
	if (repo && path && !is_folder(path))
		add_candidate(f, repo, file, path, false);
	free(repo);
	free(path);
}

/* A manifest says which file a tag is. */
static void see_flat_manifest(
	struct finder *f, const char *root, const char *name, const void *user)
{
	(void)user;
	static const char manifest[] = "manifest=", ending[] = ".json";
	if (strncmp(name, manifest, sizeof manifest - 1) != 0 || !ends_in(name, ending))
		return;
	char *copy = format(f, "%.*s", (int)(strlen(name) - (sizeof manifest + sizeof ending - 2)),
		name + sizeof manifest - 1);
	char *repo = copy ? strchr(copy, '=') : NULL, *tag = repo ? strrchr(repo + 1, '=') : NULL;
	char *path = format(f, "%s/%s", root, name);
	if (tag && path) {
		*repo++ = '\0';
		*tag++ = '\0';
		json_t *json = json_load_file(path, 0, NULL);
		const char *file = json_string_value(
			json_object_get(json_object_get(json, "ggufFile"), "rfilename"));
		char *flat = file ? format(f, "%s_%s_%s", copy, repo, file) : NULL;
		bool meant = wanted(&f->request, copy, repo) && wanted_tag(&f->request, tag);
		for (size_t i = 0; flat && meant && i < f->n; i++)
			if (flattens_to(flat, base_name(f->found[i].path)))
				f->found[i].preferred = true;
		free(flat);
		json_decref(json);
	}
	free(copy);
	free(path);
}

/* ---- ollama: manifests/HOST/USER/NAME/TAG, blobs/sha256-HEX ------------------------------------- */

struct ollama {
	const char *root, *host, *user, *name; /* as far as the walk has come */
};

/* The path of the layer that is the model; NULL when the manifest names none. */
static char *ollama_blob(struct finder *f, const char *root, const char *manifest)
{
	static const char model[] = "application/vnd.ollama.image.model";
	json_t *json = json_load_file(manifest, 0, NULL), *layer;
	char *path = NULL;
	size_t i;
	json_array_foreach (json_object_get(json, "layers"), i, layer) {
		const char *type = json_string_value(json_object_get(layer, "mediaType"));
		const char *digest = json_string_value(json_object_get(layer, "digest"));
		const char *colon = digest ? strchr(digest, ':') : NULL;
		if (path || !type || strcmp(type, model) != 0 || !colon || strchr(digest, '/'))
			continue;
		path = format(
			f, "%s/blobs/%.*s-%s", root, (int)(colon - digest), digest, colon + 1);
	}
	json_decref(json);
	return path;
}

static void see_ollama_tag(struct finder *f, const char *folder, const char *name, const void *user)
{
	static const char no_user[] = "library"; /* where names without one are kept */
	const struct ollama *at = user;
	char *manifest = format(f, "%s/%s", folder, name);
	char *blob = manifest && !is_folder(manifest) ? ollama_blob(f, at->root, manifest) : NULL;
	bool plain = strcmp(at->user, no_user) == 0;
	char *repo = format(f, "%s%s%s", plain ? "" : at->user, plain ? "" : "/", at->name);
	if (blob && repo && !find_candidate(f, repo, name))
		add_candidate(f, repo, name, blob, wanted_tag(&f->request, name));
	free(manifest);
	free(blob);
	free(repo);
}

static void see_ollama_name(
	struct finder *f, const char *folder, const char *name, const void *user)
{
	struct ollama at = *(const struct ollama *)user;
	at.name = name;
	char *path = format(f, "%s/%s", folder, name);
	if (*f->request.name && wanted(&f->request, at.user, name))
		each_entry(f, path, see_ollama_tag, &at);
	free(path);
}

static void see_ollama_user(
	struct finder *f, const char *folder, const char *name, const void *user)
{
	struct ollama at = *(const struct ollama *)user;
	at.user = name;
	char *path = format(f, "%s/%s", folder, name);
	each_entry(f, path, see_ollama_name, &at);
	free(path);
}

static void see_ollama_host(
	struct finder *f, const char *folder, const char *name, const void *user)
{
	struct ollama at = {.root = user, .host = name};
	char *path = format(f, "%s/%s", folder, name);
	if (!*f->request.host || same(f->request.host, name))
		each_entry(f, path, see_ollama_user, &at);
	free(path);
}

/* ---- LM Studio: USER/NAME/FILE ----------------------------------------------------------------- */

static void see_studio_name(
	struct finder *f, const char *folder, const char *name, const void *user)
{
	char *path = format(f, "%s/%s", folder, name),
	     *repo = format(f, "%s/%s", (const char *)user, name);
	if (repo && wanted(&f->request, user, name))
		each_entry(f, path, see_tree, &(struct tree){repo, "", MOST_FOLDERS});
	free(path);
	free(repo);
}

static void see_studio_user(
	struct finder *f, const char *folder, const char *name, const void *user)
{
	(void)user;
	char *path = format(f, "%s/%s", folder, name);
	each_entry(f, path, see_studio_name, name);
	free(path);
}

/* ---- where the caches lie ---------------------------------------------------------------------- */

static void look_in_hub(struct finder *f, const char *root)
{
	each_entry(f, root, see_hub, NULL);
}

static void look_in_flat(struct finder *f, const char *root)
{
	each_entry(f, root, see_flat, NULL);
	each_entry(f, root, see_flat_manifest, NULL);
}

static void look_in_ollama(struct finder *f, const char *root)
{
	char *manifests = format(f, "%s/manifests", root);
	each_entry(f, manifests, see_ollama_host, root);
	free(manifests);
}

static void look_in_studio(struct finder *f, const char *root)
{
	each_entry(f, root, see_studio_user, NULL);
}

/* In the order of looking.  Of one program, a variable that is set decides over the rows below it, but not
 * over places that depend on none. */
static const struct place {
	const char *program;
	void (*look)(struct finder *f, const char *root);
	const char *variable, *below;
	bool decides;
} places[] = {
	{"Hugging Face hub", look_in_hub, "HF_HUB_CACHE", "", true},
	{"Hugging Face hub", look_in_hub, "HUGGINGFACE_HUB_CACHE", "", true},
	{"Hugging Face hub", look_in_hub, "HF_HOME", "/hub", true},
	{"Hugging Face hub", look_in_hub, "XDG_CACHE_HOME", "/huggingface/hub", true},
	{"Hugging Face hub", look_in_hub, "HOME", "/.cache/huggingface/hub", false},
	{"llama.cpp", look_in_flat, "LLAMA_CACHE", "", true},
	{"llama.cpp", look_in_flat, "XDG_CACHE_HOME", "/llama.cpp", true},
	{"llama.cpp", look_in_flat, "HOME", "/.cache/llama.cpp", false},
#ifdef __APPLE__
	{"llama.cpp", look_in_flat, "HOME", "/Library/Caches/llama.cpp", false},
#endif
	{"ollama", look_in_ollama, "OLLAMA_MODELS", "", true},
	{"ollama", look_in_ollama, "HOME", "/.ollama/models", false},
	{"ollama", look_in_ollama, NULL, "/usr/share/ollama/.ollama/models", false},
	{"LM Studio", look_in_studio, "HOME", "/.lmstudio/models", false},
	{"LM Studio", look_in_studio, "HOME", "/.cache/lm-studio/models", false},
};

/* ---- which one ---------------------------------------------------------------------------------- */

/* Quants in the order in which one is taken where several are there and none was asked for. */
static const char *const usual_quants[] = {"Q4_K_M", "Q4_0", "Q4_K_S", "Q4_1", "IQ4_XS", "IQ4_NL"};

static size_t count_quant(const struct finder *f, const char *quant, size_t *last)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n; i++)
		if (has_quant(f->found[i].file, quant)) {
			*last = i;
			n++;
		}
	return n;
}

static bool one_repo(const struct finder *f)
{
	for (size_t i = 1; i < f->n; i++)
		if (!same(f->found[i].repo, f->found[0].repo))
			return false;
	return true;
}

static bool list_candidates(const struct finder *f, const char *quant, struct text *list)
{
	bool ok = true;
	for (size_t i = 0; i < f->n && ok; i++) {
		const struct candidate *c = &f->found[i];
		if (!*quant || has_quant(c->file, quant))
			ok = text_printf(list, "%s%s%s%s", list->n ? ", " : "", c->repo,
				*c->repo ? " " : "", c->file);
	}
	return ok;
}

static enum lap_status refuse_several(
	struct finder *f, const char *shown, const char *quant, struct lap_error *err)
{
	struct text list = {0};
	f->no_memory = !list_candidates(f, quant, &list) || f->no_memory;
	const char *how = *f->request.name
		? ", name its quant (-hf USER/REPO:QUANT) or itself (-hff FILE)"
		: ", name its path";
	enum lap_status status = fail(err, LAP_USAGE, "%s: several files fit, expected one%s: %s",
		shown, how, list.data ? list.data : "");
	text_free(&list);
	return status;
}

/* The index of the candidate that is meant in *chosen; LAP_OK with *chosen == f->n: none. */
static enum lap_status choose(
	struct finder *f, const char *shown, bool by_quant, size_t *chosen, struct lap_error *err)
{
	const char *tag = wanted_tag(&f->request, "latest") ? "" : f->request.tag;
	size_t n = 0;
	*chosen = f->n;
	if (f->n > 1 && !one_repo(f))
		return refuse_several(f, shown, "", err);
	for (size_t i = 0; i < f->n; i++)
		if (f->found[i].preferred) {
			*chosen = i;
			return LAP_OK;
		}
	if (*tag) {
		n = count_quant(f, tag, chosen);
		return n > 1 ? refuse_several(f, shown, tag, err) : LAP_OK;
	}
	if (f->n == 1)
		*chosen = 0;
	for (size_t i = 0; i < ARRAY_COUNT(usual_quants) && f->n > 1 && by_quant && n == 0; i++)
		n = count_quant(f, usual_quants[i], chosen);
	return f->n > 1 && n != 1 ? refuse_several(f, shown, "", err) : LAP_OK;
}

/* ---- looking ------------------------------------------------------------------------------------ */

static enum lap_status look_in(struct finder *f, const struct place *place, const char *root,
	const char *shown, struct text *path, struct lap_error *err)
{
	size_t chosen;
	place->look(f, root);
	struct text all = {0};
	bool ok = list_candidates(f, "", &all); /* before files that were not asked for are gone */
	sift(f);
	enum lap_status status = choose(f, shown, true, &chosen, err);
	if (!status && chosen < f->n)
		ok = ok && text_printf(path, "%s", f->found[chosen].path);
	else if (!status && all.n && *f->request.name)
		ok = ok && text_printf(&f->near, "%s%s", f->near.n ? ", " : "", all.data);
	ok = ok &&
		text_printf(&f->looked, "%s%s (%s)", f->looked.n ? ", " : "", place->program, root);
	f->no_memory = f->no_memory || !ok;
	text_free(&all);
	drop_candidates(f);
	return status;
}

static enum lap_status look_everywhere(
	struct finder *f, const char *shown, bool is_repo, struct text *path, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	const char *decided = "";
	for (size_t i = 0; i < ARRAY_COUNT(places) && !status && !path->data; i++) {
		const struct place *place = &places[i];
		const char *value = place->variable ? getenv(place->variable) : "";
		if (!value || (place->variable && !*value) ||
			(place->variable && strcmp(decided, place->program) == 0))
			continue;
		if (place->decides)
			decided = place->program;
		char *root = format(f, "%s%s", value, place->below);
		if (root)
			status = look_in(f, place, root, shown, path, err);
		free(root);
	}
	if (f->no_memory)
		return fail_memory(err, "the names of models", 1);
	if (status || path->data)
		return status;
	if (f->near.data)
		return fail(err, LAP_IO, "cannot find %s: of that model there are %s", shown,
			f->near.data);
	return fail(err, LAP_IO, "cannot find %s: no %smodel of that name in the caches of %s",
		shown, is_repo ? "" : "such file, and no ",
		f->looked.data ? f->looked.data : "other programs");
}

/* The only model in a folder. */
static enum lap_status look_in_folder(
	struct finder *f, const char *folder, struct text *path, struct lap_error *err)
{
	size_t chosen;
	f->request = (struct request){.host = "", .user = "", .name = "", .tag = "", .file = ""};
	each_entry(f, folder, see_tree, &(struct tree){"", "", 0});
	sift(f);
	enum lap_status status = choose(f, folder, false, &chosen, err);
	if (!status && chosen == f->n)
		return fail(err, LAP_IO,
			"cannot open %s: it is a directory without a GGUF file of a model, "
			"expected a "
			"file",
			folder);
	if (!status && !text_printf(path, "%s", f->found[chosen].path))
		f->no_memory = true;
	return f->no_memory ? fail_memory(err, "the names of models", 1) : status;
}

static enum lap_status look_for_model(
	struct finder *f, const char *model, struct text *path, struct lap_error *err)
{
	struct stat st;
	if (is_folder(model))
		return look_in_folder(f, model, path, err);
	bool is_file = ends_in(model, ".gguf");
	if (stat(model, &st) == 0 || errno != ENOENT || (is_file && strchr(model, '/')) ||
		!read_request(&f->request, model))
		return LAP_OK; /* a path: who opens it says what is wrong */
	if (is_file) {
		f->request.file = f->request.name;
		f->request.name = "";
	}
	return look_everywhere(f, model, false, path, err);
}

enum lap_status locate_model(const char *model, const char *repo, const char *file,
	struct text *path, struct lap_error *err)
{
	struct finder f = {0};
	enum lap_status status = LAP_OK;
	if (model && (repo || file))
		status = fail(
			err, LAP_USAGE, "-m and -hf both name the model, expected one of them");
	else if (file && !repo)
		status = fail(err, LAP_USAGE, "-hff %s: needs -hf USER/REPO", file);
	else if (model)
		status = look_for_model(&f, model, path, err);
	else if (repo && (!read_request(&f.request, repo) || !*f.request.user))
		status = fail(err, LAP_USAGE,
			"-hf: found \"%s\", expected USER/REPO or USER/REPO:QUANT", repo);
	else if (repo) {
		if (file) {
			f.request.file = file;
			f.request.tag = ""; /* the file says more */
		}
		status = look_everywhere(&f, repo, true, path, err);
	}
	drop_candidates(&f);
	free(f.found);
	free(f.request.copy);
	text_free(&f.looked);
	text_free(&f.near);
	return status;
}
