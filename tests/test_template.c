/* Chat templates: real ones against the renderings of Jinja itself, constructs one by one against the
 * same, errors with their places, and limits. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "template.h"
#include "template_cases.h"

/* Renders the template with an empty chat and more variables. */
static enum lap_status render(const char *source, const char *variables,
	const struct template_limits *limits, struct text *out, struct lap_error *err)
{
	struct template *t;
	enum lap_status status = template_create(source, strlen(source), limits, &t, err);
	const struct template_input input = {
		.messages = json_text("[]"),
		.kwargs = json_text(variables),
		.add_generation_prompt = true,
		.bos = "<s>",
		.eos = "</s>",
		.now = &case_time,
	};
	if (!status)
		status = template_render(t, &input, out, err);
	template_destroy(t);
	return status;
}

/* The template renders as `expected`. */
static void expect_text(const char *source, const char *expected)
{
	struct text out = {0};
	struct lap_error err = {0};
	enum lap_status status = render(source, NULL, NULL, &out, &err);
	cr_expect_eq(status, LAP_OK, "%s: %s", source, err.text);
	cr_expect_str_eq(out.data ? out.data : "", expected, "%s", source);
	text_free(&out);
}

/* The template fails with these words. */
static void expect_error(const char *source, const char *words)
{
	struct text out = {0};
	struct lap_error err = {0};
	cr_expect_eq(render(source, NULL, NULL, &out, &err), LAP_ERROR, "%s rendered", source);
	cr_expect_str_eq(err.text, words, "%s", source);
	cr_expect_eq(out.n, 0);
	text_free(&out);
}

/* ---- against Jinja --------------------------------------------------------------------------- */

static void check_case(void *user, const struct template_case *c)
{
	struct text out = {0};
	struct lap_error err = {0};
	unsigned *n = user;
	++*n;
	enum lap_status status = template_case_render(c, &out, &err);
	if (c->expected) {
		cr_expect_eq(status, LAP_OK, "%s, %s: %s", c->template, c->conversation, err.text);
		cr_expect(template_case_passes(c, status, &out, &err),
			"%s, %s: found\n%s\nexpected\n%s", c->template, c->conversation,
			out.data ? out.data : "", c->expected);
	} else {
		cr_expect_eq(status, LAP_ERROR, "%s, %s rendered", c->template, c->conversation);
		cr_expect_str_eq(err.text, c->error);
	}
	text_free(&out);
}

Test(template, real_templates_render_as_in_jinja)
{
	SKIP_WITHOUT("templates/cases.jsonl");
	unsigned n = 0;
	template_cases(check_case, &n);
	cr_expect_geq(n, 590, "only %u cases", n);
}

/* tests/vectors/template.jsonl: the variables, then a construct of the language and what jinja2 3.1.6
 * makes of it on each line. */
Test(template, constructs_render_as_in_jinja)
{
	FILE *file = fopen(vector_path("template.jsonl"), "r");
	cr_assert(file);
	json_t *first = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
	char *variables = json_dumps(json_object_get(first, "variables"), 0);
	unsigned n = 0;
	for (json_t *row; (row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)); n++) {
		const char *source = json_string_value(json_object_get(row, "template"));
		const char *expected = json_string_value(json_object_get(row, "expected"));
		struct text out = {0};
		struct lap_error err = {0};
		cr_expect_eq(render(source, variables, NULL, &out, &err), LAP_OK, "%s: %s", source,
			err.text);
		cr_expect_str_eq(out.data ? out.data : "", expected, "%s", source);
		text_free(&out);
		json_decref(row);
	}
	fclose(file);
	free(variables);
	json_decref(first);
	cr_expect_geq(n, 100, "only %u constructs", n);
}

/* ---- errors ---------------------------------------------------------------------------------- */

Test(template, a_syntax_error_has_a_place)
{
	static const struct {
		const char *source, *words;
	} cases[] = {
		{"a\n  {{ 1 + }}",
			"chat template, line 2, column 10: found '}}', expected an expression"},
		{"{{ 'abc }}", "chat template, line 1, column 4: a string without its closing '"},
		{"\u00e9\u00e9 {{ a b }}",
			"chat template, line 1, column 9: found 'b', expected '}}'"},
		{"{{ a",
			"chat template, line 1, column 5: found the end of the template, expected "
			"'}}'"},
		{"{% if x %}\na",
			"chat template, line 2, column 2: found the end of the template, expected "
			"the end of "
			"{% if %} of line 1"},
		{"{% endif %}",
			"chat template, line 1, column 4: found 'endif', expected a tag such as "
			"'if', 'for', "
			"'set' or 'macro'"},
		{"{% for 1 in x %}",
			"chat template, line 1, column 8: found a number, expected a name to "
			"assign to"},
		{"{% for x on y %}", "chat template, line 1, column 10: found 'on', expected 'in'"},
		{"{% set none = 1 %}", "chat template, line 1, column 8: cannot assign to 'none'"},
		{"{% break %}", "chat template, line 1, column 4: 'break' outside of a loop"},
		{"{% for x in y %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
			"chat template, line 1, column 35: 'continue' outside of a loop"},
		{"{% include 'x' %}",
			"chat template, line 1, column 4: 'include' asks for another file, a chat "
			"template has "
			"none"},
		{"{{ f(a=1, 2) }}",
			"chat template, line 1, column 12: an argument without a name behind one "
			"with a name"},
		{"{% macro m(a=1, b) %}{% endmacro %}",
			"chat template, line 1, column 18: a parameter without a default behind "
			"one with a "
			"default"},
		{"{% call m %}{% endcall %}",
			"chat template, line 1, column 11: found no call, expected one behind {% "
			"call"},
		{"{# x", "chat template, line 1, column 1: {# without #}"},
		{"{% raw %} x", "chat template, line 1, column 1: {% raw %} without {% endraw %}"},
		{"{{ a ? b }}", "chat template, line 1, column 6: unexpected character '?'"},
		{"{{ '\\xZ' }}",
			"chat template, line 1, column 4: \\x in a string needs 2 hexadecimal "
			"digits"},
		{"{{ a is b is c }}",
			"chat template, line 1, column 11: tests cannot be chained with 'is'"},
		{"{{ [1, 2 }}", "chat template, line 1, column 10: found '}', expected ','"},
		{"{{ a. }}",
			"chat template, line 1, column 7: found '}}', expected a name or a number "
			"behind '.'"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		expect_error(cases[i].source, cases[i].words);
}

Test(template, a_failure_has_a_place_and_python_s_words)
{
	static const struct {
		const char *source, *words;
	} cases[] = {
		{"a\n{{ x.y }}", "chat template, line 2, column 5: 'x' is undefined"},
		{"{{ messages[0].content }}",
			"chat template, line 1, column 15: list object has no element 0"},
		{"{{ {}.a.b }}",
			"chat template, line 1, column 8: 'dict object' has no attribute 'a'"},
		{"{{ none.a.b }}", "chat template, line 1, column 10: 'None' has no attribute 'a'"},
		{"{{ 1 + 'a' }}",
			"chat template, line 1, column 6: unsupported operand type(s) for +: 'int' "
			"and 'str'"},
		{"{{ 'a' + 1 }}",
			"chat template, line 1, column 8: can only concatenate str (not \"int\") "
			"to str"},
		{"{{ 1 / 0 }}", "chat template, line 1, column 6: division by zero"},
		{"{{ 9223372036854775807 + 1 }}",
			"chat template, line 1, column 24: a whole number outside 64 bits"},
		{"{{ 1 < 'a' }}",
			"chat template, line 1, column 6: '<' not supported between instances of "
			"'int' and 'str'"},
		{"{{ x | nope }}", "chat template, line 1, column 8: No filter named 'nope'."},
		{"{{ x is nope }}", "chat template, line 1, column 9: No test named 'nope'."},
		{"{{ [1].append(2) }}",
			"chat template, line 1, column 14: access to attribute 'append' of 'list' "
			"object is "
			"unsafe."},
		{"{{ {}.update(a=2) }}",
			"chat template, line 1, column 13: access to attribute 'update' of 'dict' "
			"object is "
			"unsafe."},
		{"{% for x in 5 %}{% endfor %}",
			"chat template, line 1, column 13: 'int' object is not iterable"},
		{"{{ 5() }}", "chat template, line 1, column 5: 'int' object is not callable"},
		{"{% set messages.x = 1 %}",
			"chat template, line 1, column 8: cannot assign attribute on non-namespace "
			"object"},
		{"{{ range(100001) }}",
			"chat template, line 1, column 9: Range too big. The sandbox blocks ranges "
			"larger than "
			"MAX_RANGE (100000)."},
		{"{{ 'a' | replace('b') }}",
			"chat template, line 1, column 10: filter 'replace' needs 2 arguments (old "
			"new count), "
			"found 1"},
		{"{{ 'a'.strip(1, 2) }}",
			"chat template, line 1, column 13: method 'strip' takes at most 1 "
			"arguments, found 2"},
		{"{{ [[]] | map(attribute=none) | list }}",
			"chat template, line 1, column 11: an attribute must be str, not NoneType"},
		{"{{ cycler() }}",
			"chat template, line 1, column 10: at least one item has to be provided"},
		{"{{ cycler(1)() }}",
			"chat template, line 1, column 13: 'Cycler' object is not callable"},
		{"{{ joiner()(1) }}",
			"chat template, line 1, column 12: a joiner takes no argument, found 1"},
		{"{{ {'a b': 1} | xmlattr }}",
			"chat template, line 1, column 17: Invalid character in attribute name: "
			"'a b'"},
		{"{{ [] | xmlattr }}",
			"chat template, line 1, column 9: 'list' object has no attribute 'items'"},
		{"{{ 'abc' | filesizeformat }}",
			"chat template, line 1, column 12: could not convert string to float: "
			"'abc'"},
		{"{{ none | filesizeformat }}",
			"chat template, line 1, column 11: float() argument must be a string or a "
			"real number, not 'NoneType'"},
		{"{{ {[]: 1} }}", "chat template, line 1, column 5: unhashable type: 'list'"},
		{"{{ x | tojson }}",
			"chat template, line 1, column 8: Object of type Undefined is not JSON "
			"serializable"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		expect_error(cases[i].source, cases[i].words);
}

Test(template, a_raised_error_is_in_the_template_s_words)
{
	expect_error("{{ raise_exception('Roles must alternate!') }}", "Roles must alternate!");
	expect_error("{{ raise_exception(x) }}",
		"chat template, line 1, column 19: the template raises an error without words");
	expect_error("{{ raise_exception('two\nlines') }}", "two lines");
	expect_error("{% if not messages %}{{ raise_exception('none: ' ~ messages | length) }}"
		     "{% endif %}",
		"none: 0");
	expect_text("{% if messages %}{{ raise_exception('x') }}{% endif %}ok", "ok");
}

/* What is never reached may be wrong. */
Test(template, an_unknown_filter_matters_when_it_is_used)
{
	expect_text("{% if false %}{{ x | nope }}{% endif %}ok", "ok");
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void expect_input(const char *messages, const char *tools, const char *variables,
	enum lap_status status, const char *expected)
{
	static const char source[] =
		"{{ messages | tojson }} {{ tools | tojson }} {{ x }} {{ bos_token is defined }}";
	struct template *t;
	struct text out = {0};
	struct lap_error err = {0};
	const struct template_input input = {.messages = json_text(messages),
		.tools = json_text(tools),
		.kwargs = json_text(variables)};
	cr_assert_eq(template_create(source, sizeof source - 1, NULL, &t, &err), LAP_OK);
	cr_expect_eq(template_render(t, &input, &out, &err), status, "%s", messages);
	cr_expect_str_eq(status ? err.text : out.data, expected);
	text_free(&out);
	template_destroy(t);
}

Test(template, inputs_are_json)
{
	expect_input("[1]", NULL, NULL, LAP_OK, "[1] null  False");
	expect_input("{\"messages\": [], \"tools\": [2]}", NULL, NULL, LAP_OK, "[] [2]  False");
	expect_input("{\"messages\": [], \"tools\": [2]}", "[3]", NULL, LAP_OK, "[] [3]  False");
	expect_input("[]", NULL, "{\"x\": 1.50, \"bos_token\": \"b\"}", LAP_OK, "[] null 1.5 True");
	expect_input("[\"\\u00e9\\ud83d\\ude00\\ud800\", 1e2, -0, 18446744073709551616, {\"b\": 1, "
		     "\"a\": 2, \"b\": 3}]",
		NULL, NULL, LAP_OK,
		"[\"\u00e9\U0001F600\uFFFD\", 100.0, 0, 1.8446744073709552e+19, {\"b\": 3, \"a\": "
		"2}]"
		" null  False");
	expect_input("{}", NULL, NULL, LAP_ERROR,
		"the messages: found NoneType, expected a list, or an object with a list "
		"\"messages\"");
	expect_input("[", NULL, NULL, LAP_ERROR,
		"the messages, line 1, column 2: found the end, expected a JSON value");
	expect_input("[1,\n 01]", NULL, NULL, LAP_ERROR,
		"the messages, line 2, column 4: found ']', expected no 0 before other digits");
	expect_input("[] x", NULL, NULL, LAP_ERROR,
		"the messages, line 1, column 4: found 'x', expected the end");
	expect_input("[\"\x80\"]", NULL, NULL, LAP_ERROR,
		"the messages, line 1, column 3: found byte 128, expected UTF-8");
	expect_input("[]", "{}", NULL, LAP_ERROR, "the tools: found dict, expected a list");
	expect_input("[]", NULL, "[]", LAP_ERROR,
		"the template's arguments: found list, expected an object");
}

Test(template, a_template_need_not_be_text)
{
	struct text out = {0};
	struct template *t;
	static const char bytes[] = "\x80{{ '\xff' | upper ~ '\xff'[0] | length }}\0x";
	const struct template_input input = {.messages = json_text("[]")};
	cr_assert_eq(template_create(bytes, sizeof bytes - 1, NULL, &t, NULL), LAP_OK);
	cr_assert_eq(template_render(t, &input, &out, NULL), LAP_OK);
	cr_expect(out.n == 5 &&
		!memcmp(out.data,
			"\x80\xff"
			"1\0x",
			5));
	text_free(&out);
	template_destroy(t);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void expect_limit(
	const char *source, const struct template_limits *limits, const char *words)
{
	struct text out = {0};
	struct lap_error err = {0};
	cr_expect_eq(render(source, NULL, limits, &out, &err), LAP_ERROR, "%s rendered", source);
	cr_expect(strstr(err.text, words), "%s: found \"%s\", expected \"%s\"", source, err.text,
		words);
	text_free(&out);
}

Test(template, limits_have_their_own_errors)
{
	const struct template_limits few_steps = {.n_steps = 20000};
	const struct template_limits small = {
		.n_steps = 20000, .n_memory = 1 << 20, .n_output = 1000, .n_depth = 50};
	expect_limit("{% for i in range(300) %}{% for j in range(300) %}{% endfor %}{% endfor %}",
		&few_steps, "the template takes more than 20000 steps");
	expect_limit("{% for i in range(200) %}{{ 'abcdefgh' }}{% endfor %}", &small,
		"the template makes a text of more than 1000 bytes");
	expect_limit("{{ 'a' * 1001 }}", &small, "a text of more than 1000 bytes");
	expect_limit("{{ 'a'.center(1000000000000) }}", &small, "a text of more than 1000 bytes");
	expect_limit("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", &small,
		"the template nests more than 50 levels deep");
	expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(100) %}"
		     "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
		&small, "the template nests more than 50 levels deep");
	expect_limit("{% set ns = namespace(x=[1, 2, 3, 4]) %}{% for i in range(40) %}"
		     "{% set ns.x = ns.x + ns.x %}{% endfor %}",
		&small, "the template needs more than 1048576 bytes of memory");
}

/* Pieces that are put together again and again share memory, and none sees the others' ends. */
Test(template, texts_grow_in_place)
{
	const struct template_limits small = {.n_memory = 1 << 20};
	struct text out = {0};
	struct lap_error err = {0};
	cr_expect_eq(
		render("{% set ns = namespace(s='') %}{% for i in range(1000) %}"
		       "{% set ns.s = ns.s + 'abcdefgh' + '.' %}{% endfor %}{{ ns.s | length }}",
			NULL, &small, &out, &err),
		LAP_OK, "%s", err.text);
	cr_expect_str_eq(out.data, "9000");
	text_free(&out);
	expect_text("{% set a = 'a' + 'b' %}{% set c = a + 'c' %}{% set d = a + 'd' %}{{ a }} {{ c "
		    "}} {{ d }} "
		    "{{ c + 'e' }} {{ c + 'f' }} {{ a + a }}",
		"ab abc abd abce abcf abab");
}

/* The defaults hold too, in a stack of the usual size and in seconds. */
Test(template, no_template_runs_for_ever)
{
	struct text deep = {0};
	for (int i = 0; i < 100000; i++)
		cr_assert(text_append(&deep, "(", 1) && (i || text_append(&deep, "{{", 2)));
	struct text first = {0};
	cr_assert(text_printf(&first, "{{ %s", deep.data + 3));
	expect_limit(first.data, NULL, "the template nests more than 400 levels deep");
	text_free(&first);
	text_free(&deep);
	expect_limit(
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		NULL, "the template needs more than 536870912 bytes of memory");
	expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, "levels deep");
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A template in one line is as quick as one in many. */
Test(template, long_lines)
{
	const char *const tags[] = {"{{ a }}", "{% set a = 1 %}", "{# \u00E9 #}", "{{ 'a' }}\n"};
	for (size_t i = 0; i < ARRAY_COUNT(tags); i++) {
		struct text source = {0}, out = {0};
		struct lap_error err = {0};
		for (int j = 0; j < 50000; j++)
			cr_assert(text_append(&source, tags[i], strlen(tags[i])));
		double start = clock_cpu_seconds();
		cr_expect_eq(render(source.data, NULL, NULL, &out, &err), LAP_OK, "%s", err.text);
		cr_expect_lt(clock_cpu_seconds() - start, 5.0, "%s", tags[i]);
		text_free(&source);
		text_free(&out);
	}
	/* Places are still right, behind two bytes that are one character. */
	struct text out = {0};
	struct lap_error err = {0};
	cr_expect_eq(render("\n\u00E9{{ 1 }}\u00E9\n\u00E9 {{ a ? }}", NULL, NULL, &out, &err),
		LAP_ERROR);
	cr_expect(strstr(err.text, "line 3, column 8: "), "%s", err.text);
	text_free(&out);
}

/* Steps are counted for what is looked at: long texts may be taken apart ... */
Test(template, long_texts_in_pieces)
{
	static const struct {
		const char *source, *expected;
	} cases[] = {
		{"{{ ('a ' * 100000).split() | length }}", "100000"},
		{"{{ ('a ' * 100000).split(' ') | length }}", "100001"},
		{"{{ ('a ' * 100000).rsplit(' ', 90000) | length }}", "90001"},
		{"{{ ('a ' * 100000).rsplit(none, 90000) | length }}", "90001"},
		{"{{ ('ab' * 100000).count('b') }}", "100000"},
		{"{{ 'abcabc'.rfind('bc') }} {{ 'abc'.rfind('') }} {{ 'abc'.find('') }} "
		 "{{ 'abc'.rfind('abcd') }} {{ 'abab'.find('b', 2) }} {{ ''.count('') }}",
			"4 3 0 -1 3 1"},
		{"{{ 'abcabc'.rpartition('b') }} {{ 'xyaxy'.strip('yx') }}",
			"('abca', 'b', 'c') a"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct text out = {0};
		struct lap_error err = {0};
		double start = clock_cpu_seconds();
		cr_expect_eq(render(cases[i].source, NULL, NULL, &out, &err), LAP_OK, "%s: %s",
			cases[i].source, err.text);
		cr_expect(out.data && strcmp(out.data, cases[i].expected) == 0, "%s: %s",
			cases[i].source, out.data);
		cr_expect_lt(clock_cpu_seconds() - start, 5.0, "%s", cases[i].source);
		text_free(&out);
	}
}

/* ... and none is looked at without being counted. */
Test(template, long_searches_end)
{
	static const char *const sources[] = {
		"{{ ('a' * 4000000).find('a' * 2000000 ~ 'b') }}",
		"{{ ('a' * 4000000).rfind('b' ~ 'a' * 2000000) }}",
		"{{ ('a' * 4000000).split('a' * 2000000 ~ 'b') }}",
		"{{ ('a' * 4000000).replace('a' * 2000000 ~ 'b', '') }}",
		"{{ ('a' * 2000000 ~ 'b') in ('a' * 4000000) }}",
		"{{ ('a' * 4000000).strip('b' * 2000000 ~ 'a') }}",
	};
	for (size_t i = 0; i < ARRAY_COUNT(sources); i++) {
		const struct template_limits limits = {.n_steps = 2000000};
		double start = clock_cpu_seconds();
		expect_limit(sources[i], &limits, "the template takes more than 2000000 steps");
		cr_expect_lt(clock_cpu_seconds() - start, 10.0, "%s", sources[i]);
	}
}
