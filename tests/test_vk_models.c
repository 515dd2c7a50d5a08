/* docs/models.md: what each architecture and each format was measured to be, row by row from the code's
 * own lists.  A cell claims a bound, "< 1e-10"; the tests measure again and fail on a claim that does
 * not hold, a row that is missing, and a row that is no longer there.
 *
 * LAPILLI_UPDATE=1 writes the tables, with some to spare; LAPILLI_UPDATE=widen only weakens claims,
 * for the numbers of a further driver. */
#include <sys/file.h>
#include <unistd.h>

#include "check.h"
#include "golden.h"
#include "session.h"

#define MAX_COLUMNS 5
#define MAX_ROWS    64
#define FLOOR       1e-11 /* claims are not made below it: there, drivers differ by chance */

struct cell {
	bool tried;
	double error; /* the worst NMSE */
};

struct row {
	const char *name;
	struct cell cells[MAX_COLUMNS];
};

struct table {
	const char *section, *header; /* the header's first cell is the row's name */
	uint32_t n_columns, n_rows;
	struct row rows[MAX_ROWS];
};

static void note(struct cell *cell, double error)
{
	cell->tried = true;
	if (error > cell->error)
		cell->error = error;
}

static struct row *row_named(struct table *t, const char *name)
{
	for (uint32_t i = 0; i < t->n_rows; i++)
		if (strcmp(t->rows[i].name, name) == 0)
			return &t->rows[i];
	return NULL;
}

/* ---- the page -------------------------------------------------------------------------------- */

/* Where the section's rows begin and end in the page. */
static char *section_of(char *page, const struct table *t, char **end)
{
	char open[64], close[64];
	snprintf(open, sizeof(open), "<!-- %s -->\n", t->section);
	snprintf(close, sizeof(close), "<!-- /%s -->", t->section);
	char *from = strstr(page, open);
	cr_assert(from, "docs/models.md has no %s", open);
	*end = strstr(from, close);
	cr_assert(*end, "docs/models.md has no %s", close);
	return from + strlen(open);
}

/* What a cell claims: a bound, 0 for "exact", -1 for none. */
static double read_claim(const char *text)
{
	text += strspn(text, " ");
	if (strncmp(text, "exact", 5) == 0)
		return 0;
	return strncmp(text, "< ", 2) == 0 ? strtod(text + 2, NULL) : -1;
}

/* The claims of a row; how many there are. */
static uint32_t read_row(const char *section, const char *name, double claims[MAX_COLUMNS])
{
	char start[64];
	snprintf(start, sizeof(start), "| `%s` |", name);
	const char *at = strstr(section, start);
	uint32_t n = 0;
	if (!at)
		return 0;
	for (at += strlen(start); *at && *at != '\n' && n < MAX_COLUMNS; n++) {
		claims[n] = read_claim(at);
		at += strcspn(at, "|\n");
		at += *at == '|';
	}
	return n;
}

static void print_claim(struct text *out, double claim)
{
	if (claim < 0)
		text_printf(out, " - |");
	else if (claim == 0)
		text_printf(out, " exact |");
	else
		text_printf(out, " < %.0e |", claim);
}

/* The next of 1, 3, 10, 30, ... FLOORs that is at least three times the error. */
static double claim_for(const struct cell *cell)
{
	if (!cell->tried)
		return -1;
	if (cell->error == 0)
		return 0;
	double decade = fmax(FLOOR, pow(10, floor(log10(cell->error * 3))));
	if (cell->error * 3 <= decade)
		return decade;
	return cell->error * 3 <= 3 * decade ? 3 * decade : 10 * decade;
}

static void print_table(struct text *out, const struct table *t, const char *old, bool widen)
{
	text_printf(out, "| %s |\n|", t->header);
	for (uint32_t c = 0; c <= t->n_columns; c++)
		text_printf(out, " --- |");
	for (uint32_t i = 0; i < t->n_rows; i++) {
		double claims[MAX_COLUMNS];
		uint32_t n = read_row(old, t->rows[i].name, claims);
		text_printf(out, "\n| `%s` |", t->rows[i].name);
		for (uint32_t c = 0; c < t->n_columns; c++) {
			double claim = claim_for(&t->rows[i].cells[c]);
			print_claim(out, widen && c < n && claims[c] > claim ? claims[c] : claim);
		}
	}
	text_printf(out, "\n");
}

/* Tables are tests of their own, which run side by side: the page is locked. */
static void update(const struct table *t, bool widen)
{
	const char *path = source_path("docs/models.md");
	FILE *file = fopen(path, "r+b");
	cr_assert(file && flock(fileno(file), LOCK_EX) == 0, "%s cannot be changed", path);
	char *page = read_text(path, NULL), *end;
	char *from = section_of(page, t, &end);
	char *old = strndup(from, (size_t)(end - from));
	struct text out = {0};
	text_append(&out, page, (size_t)(from - page));
	print_table(&out, t, old, widen);
	text_append(&out, end, strlen(end));
	cr_assert(out.data && fwrite(out.data, 1, out.n, file) == out.n);
	cr_assert(fflush(file) == 0 && ftruncate(fileno(file), (off_t)out.n) == 0);
	fclose(file);
	text_free(&out);
	free(old);
	free(page);
}

/* Claims that do not hold, with a word on each. */
static unsigned broken_claims(const struct table *t, const char *section)
{
	unsigned n_broken = 0, n_lines = 0;
	for (uint32_t i = 0; i < t->n_rows; i++) {
		const struct row *row = &t->rows[i];
		double claims[MAX_COLUMNS];
		uint32_t n = read_row(section, row->name, claims);
		if (n != t->n_columns) {
			n_broken++;
			fprintf(stderr, "docs/models.md: %u cells for %s, expected %u\n", n,
				row->name, t->n_columns);
			continue;
		}
		for (uint32_t c = 0; c < n; c++) {
			const struct cell *cell = &row->cells[c];
			bool holds = cell->error == 0 ? claims[c] >= 0 : cell->error < claims[c];
			if (!cell->tried || holds)
				continue;
			n_broken++;
			fprintf(stderr,
				"docs/models.md: %s, column %u: measured %.2e, claimed %.0e\n",
				row->name, c + 1, cell->error, claims[c]);
		}
	}
	for (const char *at = section; (at = strstr(at, "| `")); at++)
		n_lines++;
	if (n_lines != t->n_rows) {
		n_broken++;
		fprintf(stderr, "docs/models.md: %u rows, expected %u\n", n_lines, t->n_rows);
	}
	return n_broken;
}

static void compare(const struct table *t)
{
	char *page = read_text(source_path("docs/models.md"), NULL), *end;
	char *section = section_of(page, t, &end);
	*end = '\0';
	cr_expect_eq(broken_claims(t, section), 0,
		"LAPILLI_UPDATE=1 writes the table, for those who want the new numbers");
	free(page);
}

static void update_or_compare(const struct table *t)
{
	const char *mode = getenv("LAPILLI_UPDATE");
	if (mode && *mode)
		update(t, strcmp(mode, "widen") == 0);
	else
		compare(t);
}

/* ---- architectures --------------------------------------------------------------------------- */

static struct table architectures = {
	.section = "architectures",
	.header = "Architecture | CPU, KV f32 | Vulkan, KV f32 | Vulkan, KV f16",
	.n_columns = 3,
	.rows =
		{
#define ARCH(architecture, rope, norm, activation, full_every, no_rope_every, flags) \
	{.name = architecture},
#include "arch.def"
#undef ARCH
		},
};

static void add_run(const struct golden *run, uint32_t column, enum lap_kv_type kv)
{
	if (strncmp(run->name, "fmt-", 4) == 0) /* formats have a table of their own */
		return;
	struct row *row = row_named(&architectures, lap_model_info(run->m)->architecture);
	cr_assert(row, "%s", run->name);
	struct lap_session_options options = {
		.n_ctx = run->n_ctx, .type_k = kv, .type_v = kv, .logits_all = true};
	struct lap_session *s = open_session(run->m, &options);
	size_t n = (size_t)run->n * run->n_vocab;
	float *logits = malloc(n * sizeof(float));
	struct lap_error err = {0};
	cr_assert_eq(lap_session_logits(s, run->tokens, run->n, logits, &err), LAP_OK, "%s: %s",
		run->name, err.text);
	note(&row->cells[column], nmse(logits, run->logits, n));
	free(logits);
	lap_session_destroy(s);
}

static void add_cpu_run(const struct golden *run)
{
	add_run(run, 0, LAP_KV_F32);
}

static void add_vulkan_run(const struct golden *run)
{
	add_run(run, 1, LAP_KV_F32);
	add_run(run, 2, LAP_KV_F16);
}

static void measure_architectures(const char *(*where)(const char *))
{
	(void)golden_logits, (void)golden_greedy; /* the golden suites' own */
	while (architectures.rows[architectures.n_rows].name)
		architectures.n_rows++;
	cr_assert_geq(golden_each(where, add_cpu_run, "cpu"), 4);
	cr_assert_geq(golden_each(where, add_vulkan_run, NULL), 4);
}

Test(vk_models, architectures)
{
	SKIP_WITHOUT("golden/index.json");
	if (test_small())
		skip_test("a slow device measures the vectors of the repository only");
	measure_architectures(shared_path);
	update_or_compare(&architectures);
}

Test(vk_models, architectures_of_the_repository)
{
	const char *mode = getenv("LAPILLI_UPDATE");
	if (mode && *mode)
		skip_test("the table is being written from the shared models");
	measure_architectures(vector_path);
	compare(&architectures);
}

/* ---- formats --------------------------------------------------------------------------------- */

static struct table formats = {
	.section = "formats",
	.header = "Format | decode, CPU | rows | matvec | matmul | experts",
	.n_columns = 5,
	.n_rows = N_WEIGHTS,
	.rows =
		{
#define WEIGHT(format, id, label, n, bytes, integers) {.name = label},
#include "weights.def"
#undef WEIGHT
		},
};

/* Bits that differ count as an error of 1. */
static void decode_blocks(const struct weight_format *f, json_t *entry, struct cell *cell)
{
	const char *hex = json_string_value(json_object_get(entry, "hex"));
	json_t *values = json_object_get(entry, "values");
	size_t n = json_array_size(values), n_bytes = n / f->block_weights * f->block_bytes;
	if (!hex || n == 0)
		return;
	cr_assert_eq(strlen(hex), 2 * n_bytes, "%s", f->label);
	uint8_t *bytes = malloc(n_bytes);
	float *out = malloc(n * sizeof(float));
	for (size_t i = 0; i < n_bytes; i++)
		bytes[i] = (uint8_t)strtoul((char[]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
	f->decode(bytes, n, out);
	for (size_t i = 0; i < n; i++) {
		float expected = (float)json_number_value(json_array_get(values, i));
		note(cell, memcmp(&expected, &out[i], sizeof(float)) ? 1 : 0);
	}
	free(out);
	free(bytes);
}

static void measure_decoders(void)
{
	const char *shared = shared_path("golden/blocks.json");
	json_t *blocks = json_load_file(shared ? shared : vector_path("blocks.json"), 0, NULL);
	cr_assert(blocks);
	for (unsigned i = 0; i < N_WEIGHTS; i++) {
		const struct weight_format *f = weight_format((enum weight)i);
		decode_blocks(f, json_object_get(blocks, f->label), &formats.rows[i].cells[0]);
	}
	json_decref(blocks);
}

static int column_of(enum kernel kernel)
{
	switch (kernel) {
	case KERNEL_embed:
		return 1;
	case KERNEL_matvec:
		return 2;
	case KERNEL_matmul:
		return 3;
	case KERNEL_expert_matvec:
	case KERNEL_expert_matmul:
		return 4;
	default:
		return -1;
	}
}

/* The format is the second word of a case's name. */
static struct row *row_of_case(uint32_t i)
{
	char name[256];
	check_case_name(i, name, sizeof(name));
	char *format = strchr(name, ' ') ? strchr(name, ' ') + 1 : name;
	format[strcspn(format, " ")] = '\0';
	for (unsigned w = 0; w < N_WEIGHTS; w++)
		if (strcmp(weight_format((enum weight)w)->name, format) == 0)
			return &formats.rows[w];
	return NULL;
}

static void measure_kernels(void)
{
	struct backend *b, *cpu;
	struct lap_error err = {0};
	struct vk_options options = {.no_pipeline_cache = true};
	cr_assert_eq(vk_open(&options, &b, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(cpu_open(&cpu, &err), LAP_OK, "%s", err.text);
	for (uint32_t i = 0; i < check_n_cases(); i++) {
		int column = column_of(check_case_kernel(i));
		if (column < 0 || !check_case_small(i)) /* the others are test_vk_kernels' */
			continue;
		struct row *row = row_of_case(i);
		struct check_result result;
		cr_assert(row, "case %u has no format", (unsigned)i);
		cr_assert_eq(check_run(b, cpu, i, 1, &result, &err), LAP_OK, "%s", err.text);
		cr_expect(result.passed, "%s: %s", row->name, result.reason);
		note(&row->cells[column], result.nmse);
	}
	cpu->ops->close(cpu);
	b->ops->close(b);
}

Test(vk_models, formats)
{
	measure_decoders();
	measure_kernels();
	if (!test_small())
		for (uint32_t i = 0; i < N_WEIGHTS; i++)
			for (uint32_t c = 1; c < formats.n_columns; c++)
				cr_expect(formats.rows[i].cells[c].tried,
					"%s has no case in column %u", formats.rows[i].name, c);
	update_or_compare(&formats);
}

/* ---- the comparison itself ------------------------------------------------------------------- */

Test(vk_models, a_wrong_table_is_seen)
{
	static struct table t = {.n_columns = 2,
		.n_rows = 2,
		.rows = {{"a", {{true, 0}, {true, 2e-9}}}, {"b", {{true, 3e-4}, {false, 0}}}}};
	static const struct {
		const char *section;
		unsigned n_broken;
	} cases[] = {
		{"| `a` | exact | < 1e-08 |\n| `b` | < 1e-02 | - |\n", 0},
		{"| `a` | < 1e-12 | < 1e-08 |\n| `b` | < 1e-02 | < 1e-12 |\n", 0},
		{"| `a` | exact | < 1e-09 |\n| `b` | < 1e-02 | - |\n", 1},
		{"| `a` | exact | exact |\n| `b` | - | - |\n", 2},
		{"| `a` | - | < 1e-08 |\n| `b` | < 1e-02 | - |\n", 1},
		{"| `a` | exact | < 1e-08 |\n", 2},
		{"| `a` | exact | < 1e-08 |\n| `b` | < 1e-02 | - |\n| `c` | - | - |\n", 1},
		{"| `a` | exact |\n| `b` | < 1e-02 | - |\n", 1},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		cr_expect_eq(broken_claims(&t, cases[i].section), cases[i].n_broken, "case %zu", i);
	struct text out = {0};
	print_table(&out, &t, "", false);
	cr_expect_eq(broken_claims(&t, out.data), 0, "%s", out.data);
	text_free(&out);
}

/* ---- dispatches ------------------------------------------------------------------------------ */

/* A dispatch and its barrier cost more than a small model's arithmetic. */
Test(vk_models, a_decode_step_takes_few_dispatches)
{
	struct lap_model *m;
	struct lap_session *s;
	struct lap_error err;
	struct plan plan;
	cr_assert_eq(lap_model_open(source_path("models/austen.gguf"), NULL, &m, &err), LAP_OK,
		"%s", err.text);
	cr_assert_eq(lap_session_create(m, NULL, &s, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(session_plan(s, ROLE_DECODE, STEP_DRAW, 0, &plan, &err), LAP_OK);
	const uint32_t n_layer = m->model->h.n_layer;
	uint32_t n_of_layers = 0;
	for (uint32_t i = 0; i < plan.n_ops; i++)
		n_of_layers += plan.ops[i].layer >= 0;
	/* norm, q k v, rope_kv, attn_decode, attn_reduce, output, norm, gated product, down */
	cr_expect_eq(n_of_layers, 9 * n_layer, "%u", (unsigned)n_of_layers);
	/* the embedding; norm, logits, sample, control */
	cr_expect_eq(plan.n_ops - n_of_layers, 1 + 4);
	plan_free(&plan);
	lap_session_destroy(s);
	lap_model_close(m);
}
