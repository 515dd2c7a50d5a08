/* Rows of measurements: see bench_table.h. */
#include "bench_table.h"

#include <stdlib.h>

#include "console.h"

struct bench_table bench_table_begin(const struct options *o, const char *title, bool waits)
{
	return (struct bench_table){
		.output = o->json ? OUTPUT_JSON : (enum bench_output)o->bench_output,
		.title = title,
		.waits = waits,
		.list = json_array(),
	};
}

/* Texts in quotes, lists left out: one line of names, then one a test. */
static bool print_csv(const struct bench_table *t, json_t *object)
{
	const char *key;
	json_t *value;
	for (int pass = t->titled; pass < 2; pass++) {
		const char *comma = "";
		json_object_foreach (object, key, value) {
			if (json_is_array(value))
				continue;
			char *text = json_dumps(
				value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9) | JSON_COMPACT);
			if (!text)
				return false;
			if (pass == 0)
				out_printf("%s%s", comma, key);
			else if (json_is_string(value)) {
				out_printf("%s\"", comma);
				for (const char *c = json_string_value(value); *c; c++)
					out_printf(*c == '"' ? "\"\"" : "%c", *c);
				out_printf("\"");
			} else
				out_printf("%s%s", comma, json_is_null(value) ? "" : text);
			free(text);
			comma = ",";
		}
		out_printf("\n");
	}
	return true;
}

enum lap_status bench_table_row(
	struct bench_table *t, json_t *object, const char *line, struct lap_error *err)
{
	bool fits = object != NULL;
	if (fits && t->output == OUTPUT_JSON)
		fits = json_array_append(t->list, object) == 0;
	else if (fits && t->output == OUTPUT_JSONL)
		return (enum lap_status)out_json(object);
	else if (fits && t->output == OUTPUT_CSV)
		fits = print_csv(t, object);
	else if (fits && t->waits)
		fits = text_printf(&t->lines, "%s%s\n", t->titled ? "" : t->title, line);
	else if (fits)
		out_printf("%s%s\n", t->titled ? "" : t->title, line);
	t->titled = true;
	json_decref(object);
	out_flush();
	return fits ? LAP_OK : fail_memory(err, "the table", 1);
}

enum lap_status bench_table_end(
	struct bench_table *t, const char *verdict, const char *next, bool print)
{
	enum lap_status status = LAP_OK;
	if (t->lines.n && print)
		out_printf("%s\n\n%s\n%s\n", verdict, t->lines.data, next);
	text_free(&t->lines);
	if (t->output == OUTPUT_JSON && print) {
		status = (enum lap_status)out_json(t->list);
		t->list = NULL;
	}
	json_decref(t->list);
	return status;
}
