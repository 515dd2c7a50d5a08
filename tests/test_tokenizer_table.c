/* docs/models.md and README.md: which tokenizers there are, and how many of other engines' vectors each
 * agrees with, from the code's own list and measured again by every run.
 *
 * LAPILLI_UPDATE=1 writes the table. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page_table.h"
#include "pretokenize.h"
#include "support.h"
#include "tokenizer.h"
#include "tokenizer_vectors.h"

struct score {
	size_t passed, total;
};

struct row {
	const char *names; /* tokenizer.ggml.pre; of the first rows, what else tells them */
	const char *model;
	struct text vocabularies;
	struct score inp, jsonl;
};

static const struct vocabulary_file {
	const char *file, *inp, *jsonl; /* in tokenizers/ of the shared folder */
} files[] = {
	{"ggml-vocab-llama-spm.gguf", "ggml-vocab-llama-spm.gguf", "llama-spm"},
	{"ggml-vocab-phi-3.gguf", "ggml-vocab-phi-3.gguf", "phi-3"},
	{"vocab-gemma3.gguf.xz", NULL, "gemma3"},
	{"ggml-vocab-bert-bge.gguf", "ggml-vocab-bert-bge.gguf", "bert-bge"},
	{"ggml-vocab-gpt-2.gguf", "ggml-vocab-gpt-2.gguf", "gpt-2"},
	{"ggml-vocab-mpt.gguf", "ggml-vocab-mpt.gguf", "mpt"},
	{"vocab-llama3.gguf.xz", "ggml-vocab-llama-bpe.gguf", "llama3"},
	{"vocab-qwen3.gguf.xz", "ggml-vocab-qwen2.gguf", "qwen3"},
	{"ggml-vocab-deepseek-llm.gguf", "ggml-vocab-deepseek-llm.gguf", "deepseek-llm"},
	{"ggml-vocab-deepseek-coder.gguf", "ggml-vocab-deepseek-coder.gguf", "deepseek-coder"},
	{"ggml-vocab-falcon.gguf", "ggml-vocab-falcon.gguf", "falcon"},
	{"ggml-vocab-starcoder.gguf", "ggml-vocab-starcoder.gguf", "starcoder"},
	{"ggml-vocab-refact.gguf", "ggml-vocab-refact.gguf", "refact"},
	{"vocab-gpt-oss.gguf.xz", NULL, "gpt-oss"},
};

enum { N_FAMILIES = 3, MOST_ROWS = 64 };
static struct row rows[MOST_ROWS] = {{.model = "llama", .names = ""},
	{.model = "bert", .names = ""}, {.model = "gemma4", .names = ""}};
static size_t n_rows;

static void rows_fill(void)
{
	size_t n;
	const struct pretokenizer_rule *rules = pretokenizer_rules(&n);
	cr_assert_leq(n, MOST_ROWS - N_FAMILIES);
	for (size_t i = 0; i < n; i++)
		rows[N_FAMILIES + i] = (struct row){.model = "gpt2", .names = rules[i].names};
	n_rows = N_FAMILIES + n;
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (const char *s = words; *s; s += strcspn(s, " "), s += *s == ' ')
		if (strcspn(s, " ") == n && strncmp(s, word, n) == 0)
			return true;
	return false;
}

static struct row *row_of(const struct tokenizer_info *info)
{
	for (size_t i = 0; i < n_rows; i++)
		if (strcmp(rows[i].model, info->model) == 0 &&
			(strcmp(info->model, "gpt2") != 0 || has_word(rows[i].names, info->pre)))
			return &rows[i];
	cr_assert(false, "no row for %s %s", info->model, info->pre);
	return NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct measure {
	const struct tokenizer *t;
	struct score *score;
};

static void count(void *user, const struct vector *v)
{
	struct measure *m = user;
	struct ids ids = {0};
	struct lap_error err = {0};
	enum lap_status status = tokenizer_encode(
		m->t, v->text, v->n, false, v->parse_special, &ids.at, &ids.n, &err);
	m->score->total++;
	m->score->passed += status == LAP_OK && ids.n == v->ids.n &&
		memcmp(ids.at, v->ids.at, ids.n * sizeof *ids.at) == 0;
	free(ids.at);
}

static void measure(const struct vocabulary_file *f)
{
	char relative[512];
	snprintf(relative, sizeof relative, "tokenizers/%s", f->file);
	struct text bytes = read_shared(relative);
	struct gguf *gguf;
	struct tokenizer *t;
	struct lap_error err = {0};
	cr_assert_eq(gguf_open(bytes.data, bytes.n, f->file, &gguf, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(tokenizer_create(gguf, &t, &err), LAP_OK, "%s", err.text);
	gguf_close(gguf);
	text_free(&bytes);
	struct row *row = row_of(tokenizer_info(t));
	cr_assert(
		text_printf(&row->vocabularies, "%s%s", row->vocabularies.n ? ", " : "", f->jsonl));
	if (f->inp)
		vectors_of_inp(f->inp, count, &(struct measure){t, &row->inp});
	vectors_of_jsonl(f->jsonl, count, &(struct measure){t, &row->jsonl});
	tokenizer_destroy(t);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void print_words(struct text *out, const char *words)
{
	for (const char *s = words; *s; s += strcspn(s, " "), s += *s == ' ') {
		text_printf(out, "%s`", s > words ? " " : "");
		text_append(out, s, strcspn(s, " "));
		text_append(out, "`", 1);
	}
}

static void print_score(struct text *out, const struct score *score)
{
	if (score->total)
		text_printf(out, " %zu/%zu |", score->passed, score->total);
	else
		text_printf(out, " - |");
}

static void print_table(struct text *out)
{
	text_printf(out,
		"| Model | Pre-tokenizer | vocabularies tried | `.inp` | `.jsonl` |\n"
		"| --- | --- | --- | --- | --- |\n");
	for (size_t i = 0; i < n_rows; i++) {
		struct row *row = &rows[i];
		text_printf(out, "| `%s` | ", row->model);
		print_words(out, row->names);
		text_printf(out, "%s| %s |", *row->names ? " " : "",
			row->vocabularies.n ? row->vocabularies.data : "-");
		print_score(out, &row->inp);
		print_score(out, &row->jsonl);
		text_printf(out, "\n");
		text_free(&row->vocabularies);
	}
}

Test(tokenizer_table, vectors)
{
	for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
		char relative[512];
		snprintf(relative, sizeof relative, "tokenizers/%s", files[i].file);
		if (!shared_path(relative))
			skip_test("no shared vocabularies in tokenizers/");
	}
	rows_fill();
	for (size_t i = 0; i < ARRAY_COUNT(files); i++)
		measure(&files[i]);
	struct text table = {0};
	print_table(&table);
	page_expect("docs/models.md", "tokenizers", &table);
	text_free(&table);
}

/* Without the shared folder: the rows are there, and no others. */
Test(tokenizer_table, rows_are_those_of_the_build)
{
	rows_fill();
	char *page = read_text(source_path("docs/models.md"), NULL), *end;
	char *table = page_table(page, "tokenizers", &end);
	*end = '\0';
	size_t n_lines = 0;
	for (const char *s = table; (s = strchr(s, '\n')); s++)
		n_lines++;
	cr_expect_eq(
		n_lines, n_rows + 2, "%zu lines, expected a head and %zu rows", n_lines, n_rows);
	for (size_t i = 0; i < n_rows; i++) {
		struct text start = {0};
		text_printf(&start, "| `%s` | ", rows[i].model);
		print_words(&start, rows[i].names);
		cr_expect_not_null(strstr(table, start.data), "no row %s", start.data);
		text_free(&start);
	}
	free(page);
}

Test(tokenizer_table, readme_names_the_rows)
{
	static const char open[] = "<!-- pre-tokenizers -->";
	rows_fill();
	struct text words = {0};
	for (size_t i = N_FAMILIES; i < n_rows; i++) {
		text_printf(&words, "%s", i > N_FAMILIES ? " " : "");
		print_words(&words, rows[i].names);
	}
	char *page = read_text(source_path("README.md"), NULL), *from = strstr(page, open);
	cr_assert(from, "README.md has no %s", open);
	char *end = strstr(from, "<!-- /pre-tokenizers -->");
	cr_assert(end, "README.md does not close %s", open);
	*end = '\0';
	cr_expect_str_eq(from + strlen(open), words.data, "README.md: expected %s", words.data);
	text_free(&words);
	free(page);
}
