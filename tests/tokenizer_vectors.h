/* Other engines' ids for texts, from the shared folder: tokenizers/NAME.inp with NAME.out, and
 * tokenizers/NAME.jsonl (see DATA.md there).  Header only; each suite uses what it needs. */
#ifndef LAPILLI_TESTS_TOKENIZER_VECTORS_H
#define LAPILLI_TESTS_TOKENIZER_VECTORS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tokenizer.h"

struct ids {
	int32_t *at;
	size_t n;
};

/* One text in one mode. */
struct vector {
	const char *text;
	size_t n;
	bool parse_special;
	bool has_special; /* the text spells a special token: the other mode differs */
	struct ids ids;   /* expected, without BOS and EOS */
};

typedef void vector_fn(void *user, const struct vector *v);

/* A file of the shared folder, unpacked when its name ends in .xz; the test is skipped where there
 * is no xz.  text_free releases. */
static inline struct text read_shared(const char *relative)
{
	struct text bytes = {0};
	if (!strstr(relative, ".xz")) {
		bytes.data = read_text(shared_path(relative), &bytes.n);
		return bytes;
	}
	char command[4200];
	snprintf(command, sizeof command, "xz -dc '%s'", shared_path(relative));
	FILE *pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	static char chunk[1 << 16];
	for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;)
		cr_assert(text_append(&bytes, chunk, n));
	if (pclose(pipe) != 0)
		skip_test("no working xz");
	return bytes;
}

/* Texts of NAME.inp, ids of NAME.out: none has a special token, so each is seen in both modes.
 * Returns how many texts there are. */
static inline size_t vectors_of_inp(const char *name, vector_fn *see, void *user)
{
	char path[256];
	snprintf(path, sizeof path, "tokenizers/%s.inp", name);
	char *inputs = read_text(shared_path(path), NULL);
	snprintf(path, sizeof path, "tokenizers/%s.out", name);
	char *outputs = read_text(shared_path(path), NULL);
	static const char separator[] = "\n__ggml_vocab_test__\n";
	size_t n_cases = 0;
	char *out = outputs;
	for (char *in = inputs, *end; (end = strstr(in, separator)); in = end + strlen(separator)) {
		char *line_end = strchr(out, '\n');
		cr_assert_not_null(line_end);
		*line_end = '\0';
		struct vector v = {.text = in, .n = (size_t)(end - in)};
		v.ids.at = calloc(strlen(out) + 1, sizeof(int32_t));
		for (char *s = out, *next; *s && (strtol(s, &next, 10), next != s); s = next)
			v.ids.at[v.ids.n++] = (int32_t)strtol(s, NULL, 10);
		for (int parse = 0; parse < 2; parse++) {
			v.parse_special = parse;
			see(user, &v);
		}
		free(v.ids.at);
		out = line_end + 1;
		n_cases++;
	}
	free(inputs);
	free(outputs);
	return n_cases;
}

/* True when a text is listed in the other mode too: then it holds a special token. */
static inline bool is_listed_twice(json_t *lines, const char *text)
{
	size_t i, n = 0;
	json_t *line;
	json_array_foreach (lines, i, line)
		n += strcmp(json_string_value(json_object_get(line, "text")), text) == 0;
	return n > 1;
}

/* The lines of NAME.jsonl, each in its mode, and where the text has no special token also in the
 * other.  Returns how many lines there are. */
static inline size_t vectors_of_jsonl(const char *name, vector_fn *see, void *user)
{
	char path[256];
	snprintf(path, sizeof path, "tokenizers/%s.jsonl", name);
	char *file = read_text(shared_path(path), NULL);
	json_t *lines = json_array(), *line, *id;
	for (char *s = file, *end; *s; s = end + 1) {
		end = strchr(s, '\n');
		cr_assert_not_null(end);
		json_error_t error;
		line = json_loadb(s, (size_t)(end - s), JSON_ALLOW_NUL, &error);
		cr_assert_not_null(line, "%s: %s", path, error.text);
		json_array_append_new(lines, line);
	}
	size_t i, j;
	json_array_foreach (lines, i, line) {
		json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, "ids");
		struct vector v = {json_string_value(text), json_string_length(text), .ids = {0}};
		v.ids.at = calloc(json_array_size(ids) + 1, sizeof(int32_t));
		json_array_foreach (ids, j, id)
			v.ids.at[v.ids.n++] = (int32_t)json_integer_value(id);
		v.has_special = is_listed_twice(lines, v.text);
		bool mode = json_is_true(json_object_get(line, "parse_special"));
		for (int parse = 0; parse < 2; parse++) {
			v.parse_special = parse;
			if (parse == mode || !v.has_special)
				see(user, &v);
		}
		free(v.ids.at);
	}
	size_t n_lines = json_array_size(lines);
	json_decref(lines);
	free(file);
	return n_lines;
}

#endif
