/* libFuzzer target: any bytes as JSON, the way chats, tools and template arguments come.
 *
 * The first byte chooses how a value is written and what a template takes it for. What Jansson reads, our
 * reader must read as the same value; what we read and write must be read back as the same. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "template.h"
#include "template_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct template_limits limits = {
	.n_steps = 20000, .n_memory = 4 << 20, .n_output = 1 << 18, .n_depth = 60};
static const char what[] = "the text";

static void pool_start(struct pool *p, struct lap_error *err)
{
	*p = (struct pool){.max_steps = limits.n_steps,
		.max_bytes = limits.n_memory,
		.max_output = limits.n_output,
		.max_depth = limits.n_depth,
		.err = err};
}

static bool read_value(struct pool *p, const char *text, size_t n, struct value *v)
{
	if (setjmp(p->escape))
		return false;
	*v = json_read(p, text, n, what);
	return true;
}

static bool write_value(
	struct pool *p, struct value v, const struct json_style *style, struct value *text)
{
	struct builder b = {0};
	if (setjmp(p->escape))
		return false;
	json_write(p, &b, v, style);
	*text = built(&b);
	return true;
}

static bool same_values(struct pool *p, struct value a, struct value b)
{
	if (setjmp(p->escape))
		return true; /* a limit */
	return value_equal(p, a, b);
}

/* JSON has no infinities, but numbers that become one. */
static bool all_finite(struct value v)
{
	bool ok = v.kind != VALUE_FLOAT || isfinite(v.f);
	for (size_t i = 0; v.kind == VALUE_LIST && i < v.list->n; i++)
		ok = ok && all_finite(v.list->items[i]);
	for (size_t i = 0; v.kind == VALUE_DICT && i < v.dict->n; i++)
		ok = ok && all_finite(v.dict->entries[i].value);
	return ok;
}

static json_t *load(const char *text, size_t n)
{
	return json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* The value as text, which must be the same value to both readers. */
static void check_written(struct pool *p, struct value v, unsigned style, const json_t *theirs)
{
	const struct json_style styles[] = {
		{.indent = -1, .item = value_text(", "), .key = value_text(": ")},
		{.indent = -1, .item = value_text(", "), .key = value_text(": "), .ascii = true},
		{.indent = 2, .item = value_text(","), .key = value_text(": "), .sort_keys = true},
		{.indent = 0, .item = value_text(","), .key = value_text(":")},
	};
	struct value text, again;
	p->n_steps = p->depth = 0;
	if (!write_value(p, v, &styles[style % ARRAY_COUNT(styles)], &text) || !all_finite(v))
		return;
	p->n_steps = p->depth = 0;
	if (!read_value(p, text.s, text.n, &again)) {
		if (strncmp(p->err->text, what, sizeof what - 1) == 0)
			abort();
		return;
	}
	p->n_steps = p->depth = 0;
	if (!same_values(p, v, again))
		abort();
	json_t *reread = theirs ? load(text.s, text.n) : NULL;
	if (theirs && !json_equal(theirs, reread))
		abort();
	json_decref(reread);
}

/* The text as messages, tools or more variables: no template sees what is no JSON. */
static void check_render(const char *text, size_t n, unsigned role, bool reads)
{
	static struct template *t;
	static const char source[] =
		"{% for m in messages %}{{ m.role }}{{ m['content'] | tojson }}{% endfor %}"
		"{{ tools | tojson(indent=1) }}{{ x }}";
	static const char chat[] = "[{\"role\": \"user\", \"content\": \"a\"}]";
	static const struct tm now = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9};
	const struct template_json json = {text, n};
	struct lap_error err = {0};
	if (!t && template_create(source, sizeof source - 1, &limits, &t, &err))
		abort();
	const struct template_input input = {
		.messages = role == 0 ? json : (struct template_json){chat, sizeof chat - 1},
		.tools = role == 1 ? json : (struct template_json){0},
		.kwargs = role == 2 ? json : (struct template_json){0},
		.now = &now,
	};
	struct text out = {0};
	enum lap_status status = template_render(t, &input, &out, &err);
	if (status && (!err.text[0] || strchr(err.text, '\n') || out.n))
		abort();
	if (!status && !reads)
		abort();
	text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0)
		return 0;
	const char *text = (const char *)data + 1;
	struct pool p;
	struct lap_error err = {0};
	struct value v = value_none();
	pool_start(&p, &err);
	bool reads = read_value(&p, text, --n, &v);
	json_t *theirs = memchr(text, '\0', n) ? NULL : load(text, n); /* Jansson ends at a NUL */
	bool refused = !reads && strncmp(err.text, what, sizeof what - 1) == 0;
	if (!reads && (!err.text[0] || strchr(err.text, '\n')))
		abort();
	if (theirs && refused)
		abort();
	if (reads)
		check_written(&p, v, data[0] / 3, theirs);
	check_render(text, n, data[0] % 3, reads);
	json_decref(theirs);
	pool_free(&p);
	return 0;
}
