/* docs/models.md: which chat templates were tried, and how many of Jinja's own renderings each agrees with,
 * measured again by every run.
 *
 * LAPILLI_UPDATE=1 writes the table. */
#include <criterion/criterion.h>
#include <string.h>

#include "page_table.h"
#include "template_cases.h"

enum { MOST_TEMPLATES = 128 };

static struct row {
	char name[128];
	size_t passed, total, raised; /* of the total, those that raise an error */
} rows[MOST_TEMPLATES];
static size_t n_rows;

/* Cases of one template stand together. */
static void count(void *user, const struct template_case *c)
{
	(void)user;
	if (n_rows == 0 || strcmp(rows[n_rows - 1].name, c->template) != 0) {
		cr_assert_lt(n_rows, MOST_TEMPLATES);
		snprintf(rows[n_rows].name, sizeof rows[n_rows].name, "%s", c->template);
		n_rows++;
	}
	struct row *row = &rows[n_rows - 1];
	struct text out = {0};
	struct lap_error err = {0};
	enum lap_status status = template_case_render(c, &out, &err);
	row->total++;
	row->raised += !c->expected;
	row->passed += template_case_passes(c, status, &out, &err);
	text_free(&out);
}

Test(template_table, cases)
{
	SKIP_WITHOUT("templates/cases.jsonl");
	struct text table = {0};
	struct row sum = {0};
	template_cases(count, NULL);
	text_printf(&table,
		"| Template | cases | of these, errors that it raises |\n"
		"| --- | --- | --- |\n");
	for (size_t i = 0; i < n_rows; i++) {
		text_printf(&table, "| `%s` | %zu/%zu | %zu |\n", rows[i].name, rows[i].passed,
			rows[i].total, rows[i].raised);
		sum.passed += rows[i].passed;
		sum.total += rows[i].total;
		sum.raised += rows[i].raised;
	}
	text_printf(
		&table, "| all %zu | %zu/%zu | %zu |\n", n_rows, sum.passed, sum.total, sum.raised);
	page_expect("docs/models.md", "templates", &table);
	text_free(&table);
}

/* Without the shared folder: the table is there, and claims no more than all. */
Test(template_table, the_page_has_its_rows)
{
	char *page = read_text(source_path("docs/models.md"), NULL), *end;
	char *table = page_table(page, "templates", &end);
	*end = '\0';
	size_t n = 0, passed, total, n_passed = 0, n_total = 0, all_passed = 0, all_total = 0;
	for (char *s = table; (s = strstr(s, "\n| ")); s++) {
		char *numbers = strstr(s + 3, " | ");
		cr_assert(numbers);
		if (sscanf(numbers, " | %zu/%zu |", &passed, &total) != 2)
			continue; /* the line below the head */
		bool is_sum = strncmp(s, "\n| all ", 7) == 0;
		n += !is_sum;
		*(is_sum ? &all_passed : &n_passed) += passed;
		*(is_sum ? &all_total : &n_total) += total;
	}
	cr_expect_geq(n, 50, "%zu templates", n);
	cr_expect_eq(n_passed, all_passed);
	cr_expect_eq(n_total, all_total);
	cr_expect_leq(all_passed, all_total);
	free(page);
}
