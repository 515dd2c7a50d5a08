/* Tables of a page of docs/ that a test measures again: what stands between <!-- NAME --> and
 * <!-- /NAME -->.  LAPILLI_UPDATE=1 writes them.  Header only. */
#ifndef LAPILLI_TESTS_PAGE_TABLE_H
#define LAPILLI_TESTS_PAGE_TABLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base.h"
#include "support.h"

/* Where the table begins, and in *end where it ends, in the page's text. */
static inline char *page_table(char *page, const char *name, char **end)
{
	char open[64], close[64];
	snprintf(open, sizeof open, "<!-- %s -->\n", name);
	snprintf(close, sizeof close, "<!-- /%s -->", name);
	char *from = strstr(page, open);
	cr_assert(from, "the page has no %s", open);
	from += strlen(open);
	*end = strstr(from, close);
	cr_assert(*end, "the page has no %s", close);
	return from;
}

/* Other tables of the page may be written by tests that run beside this one: the page is locked. */
static inline void page_update(const char *path, const char *name, const struct text *table)
{
	FILE *file = fopen(path, "r+b");
	cr_assert(file && flock(fileno(file), LOCK_EX) == 0, "%s cannot be changed", path);
	char *page = read_text(path, NULL), *end, *from = page_table(page, name, &end);
	struct text out = {0};
	cr_assert(text_append(&out, page, (size_t)(from - page)));
	cr_assert(text_append(&out, table->data, table->n));
	cr_assert(text_append(&out, end, strlen(end)));
	cr_assert(fwrite(out.data, 1, out.n, file) == out.n);
	cr_assert(fflush(file) == 0 && ftruncate(fileno(file), (off_t)out.n) == 0);
	fclose(file);
	text_free(&out);
	free(page);
}

/* The page (by its path from the root) has this table, or is given it. */
static inline void page_expect(const char *relative, const char *name, const struct text *table)
{
	const char *mode = getenv("LAPILLI_UPDATE");
	if (mode && *mode)
		page_update(source_path(relative), name, table);
	char *page = read_text(source_path(relative), NULL), *end;
	char *found = page_table(page, name, &end);
	*end = '\0';
	cr_expect_str_eq(found, table->data, "%s: LAPILLI_UPDATE=1 writes the table; measured:\n%s",
		relative, table->data);
	free(page);
}

#endif
