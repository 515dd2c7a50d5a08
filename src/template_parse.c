/* The grammar of templates: see template_parse.h. */
#include "template_parse.h"

#include <stdio.h>
#include <string.h>

#include "template_scan.h"

struct parser {
	struct scanner t;
	struct pool *pool;
	unsigned n_loops; /* around the current statement */
	bool saw_varargs, saw_kwargs, saw_caller;
};

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct node *node_new(struct parser *p, enum node_kind kind)
{
	struct node *n = pool_alloc(p->pool, 1, sizeof *n);
	n->kind = kind;
	n->line = p->t.token_line;
	n->column = p->t.token_column;
	return n;
}

static struct node *node_with(struct parser *p, enum node_kind kind, struct node *a, struct node *b)
{
	struct node *n = node_new(p, kind);
	n->a = a;
	n->b = b;
	return n;
}

bool node_is(const struct node *n, const char *name)
{
	return n->n_name == strlen(name) && memcmp(n->name, name, n->n_name) == 0;
}

static void append(struct node ***end, struct node *n)
{
	**end = n;
	*end = &n->next;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool is(const struct parser *p, enum token_kind kind, const char *text)
{
	return p->t.token == kind && p->t.n_piece == strlen(text) &&
		memcmp(p->t.piece, text, p->t.n_piece) == 0;
}

static bool is_op(const struct parser *p, const char *text)
{
	return is(p, TOKEN_OPERATOR, text);
}

static bool is_word(const struct parser *p, const char *text)
{
	return is(p, TOKEN_NAME, text);
}

static bool take_op(struct parser *p, const char *text)
{
	bool found = is_op(p, text);
	if (found)
		scanner_next(&p->t);
	return found;
}

static bool take_word(struct parser *p, const char *text)
{
	bool found = is_word(p, text);
	if (found)
		scanner_next(&p->t);
	return found;
}

static _Noreturn void unexpected(struct parser *p, const char *expected)
{
	switch (p->t.token) {
	case TOKEN_END:
		pool_fail(p->pool, "found the end of the template, expected %s", expected);
	case TOKEN_STRING:
		pool_fail(p->pool, "found a string, expected %s", expected);
	case TOKEN_NUMBER:
		pool_fail(p->pool, "found a number, expected %s", expected);
	case TOKEN_TEXT:
		pool_fail(p->pool, "found text, expected %s", expected);
	default:
		pool_fail(p->pool, "found '%.*s', expected %s",
			(int)(p->t.n_piece < 60 ? p->t.n_piece : 60), p->t.piece, expected);
	}
}

static void expect_op(struct parser *p, const char *text)
{
	char quoted[8];
	snprintf(quoted, sizeof quoted, "'%s'", text);
	if (!take_op(p, text))
		unexpected(p, quoted);
}

static void expect_word(struct parser *p, const char *text)
{
	char quoted[24];
	snprintf(quoted, sizeof quoted, "'%s'", text);
	if (!take_word(p, text))
		unexpected(p, quoted);
}

/* The end of the tag; then on to what follows it. */
static void expect_close(struct parser *p, const char *expected)
{
	if (p->t.token != TOKEN_CLOSE)
		unexpected(p, expected);
	scanner_next(&p->t);
}

static void set_name(struct parser *p, struct node *n, const char *expected)
{
	if (p->t.token != TOKEN_NAME)
		unexpected(p, expected);
	struct value copy = value_copy(p->pool, p->t.piece, p->t.n_piece);
	n->name = copy.s;
	n->n_name = copy.n;
	p->saw_varargs |= node_is(n, "varargs");
	p->saw_kwargs |= node_is(n, "kwargs");
	p->saw_caller |= node_is(n, "caller");
	scanner_next(&p->t);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct node *parse_expression(struct parser *p);
static struct node *parse_or(struct parser *p);
static struct node *parse_unary(struct parser *p, bool with_filters);

const char *operator_text(enum operator op)
{
	static const char *const texts[] = {"+", "-", "*", "/", "//", "%", "** or pow()",
		"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
	return texts[op];
}

static struct node *parse_constant(struct parser *p, struct value v)
{
	struct node *n = node_new(p, NODE_CONST);
	n->value = v;
	scanner_next(&p->t);
	return n;
}

/* Strings side by side are one. */
static struct node *parse_string(struct parser *p)
{
	struct node *n = node_new(p, NODE_CONST);
	struct builder b = {0};
	for (; p->t.token == TOKEN_STRING; scanner_next(&p->t))
		build(p->pool, &b, p->t.piece, p->t.n_piece);
	n->value = built(&b);
	return n;
}

static struct node *parse_name(struct parser *p)
{
	static const struct {
		const char *word;
		enum value_kind kind;
		bool b;
	} words[] = {{"true", VALUE_BOOL, true}, {"True", VALUE_BOOL, true},
		{"false", VALUE_BOOL, false}, {"False", VALUE_BOOL, false},
		{"none", VALUE_NONE, false}, {"None", VALUE_NONE, false}};
	for (size_t i = 0; i < ARRAY_COUNT(words); i++)
		if (is_word(p, words[i].word))
			return parse_constant(p,
				words[i].kind == VALUE_NONE ? value_none()
							    : value_bool(words[i].b));
	struct node *n = node_new(p, NODE_NAME);
	set_name(p, n, "a name");
	return n;
}

/* Items between commas up to `close`, which is taken; true when a comma was there. */
static bool parse_items(struct parser *p, struct node **items, const char *close)
{
	bool comma = false;
	while (!is_op(p, close)) {
		append(&items, parse_expression(p));
		if (is_op(p, close))
			break;
		expect_op(p, ",");
		comma = true;
	}
	expect_op(p, close);
	return comma;
}

static struct node *parse_group(struct parser *p)
{
	struct node *tuple = node_new(p, NODE_TUPLE);
	scanner_next(&p->t);
	bool comma = parse_items(p, &tuple->items, ")");
	return comma || !tuple->items ? tuple : tuple->items;
}

static struct node *parse_list(struct parser *p)
{
	struct node *list = node_new(p, NODE_LIST);
	scanner_next(&p->t);
	parse_items(p, &list->items, "]");
	return list;
}

static struct node *parse_dict(struct parser *p)
{
	struct node *dict = node_new(p, NODE_DICT), **end = &dict->items;
	scanner_next(&p->t);
	while (!is_op(p, "}")) {
		append(&end, parse_expression(p));
		expect_op(p, ":");
		append(&end, parse_expression(p));
		if (!is_op(p, "}"))
			expect_op(p, ",");
	}
	expect_op(p, "}");
	return dict;
}

static struct node *parse_primary(struct parser *p)
{
	if (p->t.token == TOKEN_NAME)
		return parse_name(p);
	if (p->t.token == TOKEN_STRING)
		return parse_string(p);
	if (p->t.token == TOKEN_NUMBER)
		return parse_constant(p, p->t.number);
	if (is_op(p, "("))
		return parse_group(p);
	if (is_op(p, "["))
		return parse_list(p);
	if (is_op(p, "{"))
		return parse_dict(p);
	unexpected(p, "an expression");
}

/* The tokens of a keyword argument: a name and '='. Nothing is taken. */
static bool at_keyword(const struct parser *p)
{
	return p->t.token == TOKEN_NAME && scanner_sees(&p->t, "=") && !scanner_sees(&p->t, "==");
}

static struct node *parse_argument(struct parser *p)
{
	struct node *n;
	if (is_op(p, "*") || is_op(p, "**")) {
		n = node_new(p, is_op(p, "*") ? NODE_SPREAD : NODE_SPREAD_KEYWORDS);
		scanner_next(&p->t);
		n->a = parse_expression(p);
		return n;
	}
	if (!at_keyword(p))
		return parse_expression(p);
	n = node_new(p, NODE_KEYWORD);
	set_name(p, n, "a name");
	scanner_next(&p->t);
	n->a = parse_expression(p);
	return n;
}

/* From '(' on. */
static struct node *parse_arguments(struct parser *p)
{
	struct node *first = NULL, **end = &first;
	bool keywords = false;
	expect_op(p, "(");
	while (!is_op(p, ")")) {
		struct node *n = parse_argument(p);
		bool keyword = n->kind == NODE_KEYWORD || n->kind == NODE_SPREAD_KEYWORDS;
		if (keywords && !keyword && n->kind != NODE_SPREAD)
			pool_fail(p->pool, "an argument without a name behind one with a name");
		keywords |= keyword;
		append(&end, n);
		if (!is_op(p, ")"))
			expect_op(p, ",");
	}
	expect_op(p, ")");
	return first;
}

/* Behind '[': an index or a slice. */
static struct node *parse_subscript(struct parser *p, struct node *a)
{
	struct node *n = node_with(p, NODE_INDEX, a, NULL);
	scanner_next(&p->t);
	if (!is_op(p, ":"))
		n->b = parse_expression(p);
	if (is_op(p, ",")) {
		struct node *tuple = node_new(p, NODE_TUPLE);
		tuple->items = n->b;
		scanner_next(&p->t);
		parse_items(p, &n->b->next, "]");
		n->b = tuple;
		return n;
	}
	if (take_op(p, ":")) {
		n->kind = NODE_SLICE;
		if (!is_op(p, ":") && !is_op(p, "]"))
			n->c = parse_expression(p);
		if (take_op(p, ":") && !is_op(p, "]"))
			n->d = parse_expression(p);
	}
	expect_op(p, "]");
	return n;
}

static struct node *parse_attribute(struct parser *p, struct node *a)
{
	struct node *n = node_with(p, NODE_ATTRIBUTE, a, NULL);
	scanner_next(&p->t);
	if (p->t.token == TOKEN_NUMBER && p->t.number.kind == VALUE_INT) {
		n->kind = NODE_INDEX;
		n->b = parse_constant(p, p->t.number);
	} else {
		set_name(p, n, "a name or a number behind '.'");
	}
	return n;
}

static struct node *parse_postfix(struct parser *p, struct node *a)
{
	for (;;) {
		if (is_op(p, ".")) {
			a = parse_attribute(p, a);
		} else if (is_op(p, "[")) {
			a = parse_subscript(p, a);
		} else if (is_op(p, "(")) {
			a = node_with(p, NODE_CALL, a, NULL);
			a->items = parse_arguments(p);
		} else {
			return a;
		}
	}
}

/* The name of a filter, behind its '|', with its arguments. */
static struct node *parse_filter(struct parser *p, struct node *a)
{
	struct node *n = node_with(p, NODE_FILTER, a, NULL);
	set_name(p, n, "the name of a filter");
	if (is_op(p, "("))
		n->items = parse_arguments(p);
	return n;
}

static bool starts_argument(const struct parser *p)
{
	static const char *const words[] = {"else", "or", "and", "if", "is", "not", "in"};
	for (size_t i = 0; i < ARRAY_COUNT(words); i++)
		if (is_word(p, words[i]))
			return false;
	return p->t.token == TOKEN_NAME || p->t.token == TOKEN_STRING ||
		p->t.token == TOKEN_NUMBER || is_op(p, "[") || is_op(p, "{");
}

/* Behind `is`. */
static struct node *parse_test(struct parser *p, struct node *a)
{
	bool negated = take_word(p, "not");
	struct node *n = node_with(p, NODE_TEST, a, NULL);
	set_name(p, n, "the name of a test");
	if (is_op(p, "("))
		n->items = parse_arguments(p);
	else if (starts_argument(p))
		n->items = parse_postfix(p, parse_primary(p));
	else if (is_word(p, "is"))
		pool_fail(p->pool, "tests cannot be chained with 'is'");
	return negated ? node_with(p, NODE_NOT, n, NULL) : n;
}

static struct node *parse_filters(struct parser *p, struct node *a)
{
	for (;;) {
		if (take_op(p, "|")) {
			a = parse_filter(p, a);
		} else if (take_word(p, "is")) {
			a = parse_test(p, a);
		} else if (is_op(p, "(")) {
			a = node_with(p, NODE_CALL, a, NULL);
			a->items = parse_arguments(p);
		} else {
			return a;
		}
	}
}

static struct node *parse_unary(struct parser *p, bool with_filters)
{
	struct node *n;
	pool_enter(p->pool);
	if (is_op(p, "-") || is_op(p, "+")) {
		n = node_new(p, is_op(p, "-") ? NODE_NEGATE : NODE_PLUS);
		scanner_next(&p->t);
		n->a = parse_unary(p, false);
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	pool_leave(p->pool);
	return with_filters ? parse_filters(p, n) : n;
}

/* Levels of two-sided operators, loosest first; ~ has a list of its own. */
static const struct {
	const char *text;
	enum operator op;
	int level;
} binary[] = {{"+", OP_ADD, 0}, {"-", OP_SUB, 0}, {"*", OP_MUL, 2}, {"/", OP_DIV, 2},
	{"//", OP_FLOOR, 2}, {"%", OP_MOD, 2}, {"**", OP_POW, 3}};
enum { LEVEL_CONCAT = 1, LEVEL_UNARY = 4 };

static struct node *parse_level(struct parser *p, int level);

static struct node *parse_concat(struct parser *p)
{
	struct node *first = parse_level(p, LEVEL_CONCAT + 1);
	if (!is_op(p, "~"))
		return first;
	struct node *n = node_new(p, NODE_CONCAT), **end = &n->items;
	append(&end, first);
	while (take_op(p, "~"))
		append(&end, parse_level(p, LEVEL_CONCAT + 1));
	return n;
}

static struct node *parse_level(struct parser *p, int level)
{
	if (level == LEVEL_UNARY)
		return parse_unary(p, true);
	if (level == LEVEL_CONCAT)
		return parse_concat(p);
	struct node *a = parse_level(p, level + 1);
	for (size_t i = 0; i < ARRAY_COUNT(binary);) {
		if (binary[i].level != level || !is_op(p, binary[i].text)) {
			i++;
			continue;
		}
		struct node *n = node_with(p, NODE_BINARY, a, NULL);
		n->op = binary[i].op;
		scanner_next(&p->t);
		n->b = parse_level(p, level + 1);
		a = n;
		i = 0;
	}
	return a;
}

static bool take_comparison(struct parser *p, enum operator* op)
{
	static const struct {
		const char *text;
		enum operator op;
	} comparisons[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT},
		{">=", OP_GE}};
	for (size_t i = 0; i < ARRAY_COUNT(comparisons); i++)
		if (take_op(p, comparisons[i].text)) {
			*op = comparisons[i].op;
			return true;
		}
	*op = OP_IN;
	if (take_word(p, "in"))
		return true;
	if (!is_word(p, "not"))
		return false;
	scanner_next(&p->t);
	expect_word(p, "in");
	*op = OP_NOT_IN;
	return true;
}

static struct node *parse_comparison(struct parser *p)
{
	struct node *a = parse_level(p, 0);
	struct node *chain = node_with(p, NODE_COMPARE, a, NULL), **end = &chain->items;
	for (;;) {
		struct node *n = node_new(p, NODE_COMPARE); /* at the operator */
		if (!take_comparison(p, &n->op))
			break;
		n->a = parse_level(p, 0);
		append(&end, n);
	}
	return chain->items ? chain : a;
}

static struct node *parse_not(struct parser *p)
{
	if (!is_word(p, "not"))
		return parse_comparison(p);
	struct node *n = node_new(p, NODE_NOT);
	scanner_next(&p->t);
	pool_enter(p->pool);
	n->a = parse_not(p);
	pool_leave(p->pool);
	return n;
}

static struct node *parse_and(struct parser *p)
{
	struct node *a = parse_not(p);
	while (take_word(p, "and"))
		a = node_with(p, NODE_AND, a, parse_not(p));
	return a;
}

static struct node *parse_or(struct parser *p)
{
	struct node *a = parse_and(p);
	while (take_word(p, "or"))
		a = node_with(p, NODE_OR, a, parse_and(p));
	return a;
}

static struct node *parse_expression(struct parser *p)
{
	pool_enter(p->pool);
	struct node *a = parse_or(p);
	while (is_word(p, "if")) {
		struct node *n = node_with(p, NODE_IF_ELSE, a, NULL);
		scanner_next(&p->t);
		n->b = parse_or(p);
		if (take_word(p, "else"))
			n->c = parse_expression(p);
		a = n;
	}
	pool_leave(p->pool);
	return a;
}

/* An expression, or several with commas: a tuple. */
static struct node *parse_tuple(struct parser *p)
{
	struct node *first = parse_expression(p);
	if (!is_op(p, ","))
		return first;
	struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->items;
	append(&end, first);
	while (take_op(p, ",") && p->t.token != TOKEN_CLOSE && !is_op(p, "="))
		append(&end, parse_expression(p));
	return tuple;
}

/* ---- statements ------------------------------------------------------------------------------ */

static struct node *parse_statements(
	struct parser *p, const char *const *ends, const char *opened, uint32_t line);

/* The body of a tag up to `{% end... %}`, which is taken as a whole. */
static struct node *parse_body(struct parser *p, const char *end, const char *opened)
{
	const char *const ends[] = {end, NULL};
	uint32_t line = p->t.token_line;
	expect_close(p, "'%}'");
	struct node *body = parse_statements(p, ends, opened, line);
	scanner_next(&p->t);
	expect_close(p, "'%}'");
	return body;
}

static struct node *parse_if(struct parser *p)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct node *first = NULL, **end = &first;
	uint32_t line = p->t.token_line;
	for (;;) {
		struct node *n = node_new(p, NODE_IF);
		scanner_next(&p->t);
		*end = n;
		end = &n->other;
		n->a = parse_tuple(p);
		expect_close(p, "'%}'");
		n->body = parse_statements(p, ends, "if", line);
		if (!is_word(p, "elif"))
			break;
	}
	if (take_word(p, "else")) {
		static const char *const last[] = {"endif", NULL};
		expect_close(p, "'%}'");
		*end = parse_statements(p, last, "if", line);
	}
	scanner_next(&p->t);
	expect_close(p, "'%}'");
	return first;
}

/* A name, name.attribute, or several of them. */
static struct node *parse_one_target(struct parser *p, bool attributes)
{
	struct node *n;
	if (is_op(p, "(") || is_op(p, "[")) {
		const char *close = is_op(p, "(") ? ")" : "]";
		n = node_new(p, NODE_TUPLE);
		struct node **end = &n->items;
		scanner_next(&p->t);
		pool_enter(p->pool);
		while (!is_op(p, close)) {
			append(&end, parse_one_target(p, attributes));
			if (!is_op(p, close))
				expect_op(p, ",");
		}
		pool_leave(p->pool);
		scanner_next(&p->t);
		return n;
	}
	n = node_new(p, NODE_NAME);
	static const char *const reserved[] = {
		"true", "false", "none", "True", "False", "None", "not", "in", "if"};
	for (size_t i = 0; i < ARRAY_COUNT(reserved); i++)
		if (is_word(p, reserved[i]))
			pool_fail(p->pool, "cannot assign to '%s'", reserved[i]);
	set_name(p, n, "a name to assign to");
	if (attributes && is_op(p, "."))
		n = parse_attribute(p, n);
	return n;
}

static struct node *parse_target(struct parser *p, bool attributes)
{
	struct node *first = parse_one_target(p, attributes);
	if (!is_op(p, ","))
		return first;
	struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->items;
	append(&end, first);
	while (take_op(p, ",") && !is_op(p, "=") && !is_word(p, "in"))
		append(&end, parse_one_target(p, attributes));
	return tuple;
}

static struct node *parse_for(struct parser *p)
{
	static const char *const ends[] = {"else", "endfor", NULL},
				 *const last[] = {"endfor", NULL};
	struct node *n = node_new(p, NODE_FOR);
	uint32_t line = p->t.token_line;
	scanner_next(&p->t);
	n->a = parse_target(p, false);
	expect_word(p, "in");
	/* What is looped over must not take the loop's own `if`. */
	n->b = parse_or(p);
	if (is_op(p, ",")) {
		struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->items;
		append(&end, n->b);
		while (take_op(p, ",") && p->t.token != TOKEN_CLOSE && !is_word(p, "if"))
			append(&end, parse_or(p));
		n->b = tuple;
	}
	if (take_word(p, "if"))
		n->c = parse_expression(p);
	n->recursive = take_word(p, "recursive");
	expect_close(p, "'%}'");
	p->n_loops++;
	n->body = parse_statements(p, ends, "for", line);
	p->n_loops--;
	if (take_word(p, "else")) {
		expect_close(p, "'%}'");
		n->other = parse_statements(p, last, "for", line);
	}
	scanner_next(&p->t);
	expect_close(p, "'%}'");
	return n;
}

static struct node *parse_set(struct parser *p)
{
	struct node *n = node_new(p, NODE_SET);
	scanner_next(&p->t);
	n->a = parse_target(p, true);
	if (take_op(p, "=")) {
		n->b = parse_tuple(p);
		expect_close(p, "'%}'");
		return n;
	}
	while (take_op(p, "|"))
		n->c = parse_filter(p, n->c);
	n->body = parse_body(p, "endset", "set");
	return n;
}

/* Parameters between parentheses. */
static void parse_parameters(struct parser *p, struct node *n)
{
	struct node **end = &n->items;
	bool defaults = false;
	expect_op(p, "(");
	while (!is_op(p, ")")) {
		struct node *parameter = node_new(p, NODE_NAME);
		set_name(p, parameter, "the name of a parameter");
		if (take_op(p, "="))
			parameter->a = parse_expression(p);
		else if (defaults)
			pool_fail(
				p->pool, "a parameter without a default behind one with a default");
		defaults |= parameter->a != NULL;
		append(&end, parameter);
		if (!is_op(p, ")"))
			expect_op(p, ",");
	}
	expect_op(p, ")");
}

/* The body of a macro or a caller: which of the special names it uses, and no loop around it. */
static void parse_callable_body(
	struct parser *p, struct node *n, const char *end, const char *opened)
{
	bool varargs = p->saw_varargs, kwargs = p->saw_kwargs, caller = p->saw_caller;
	unsigned n_loops = p->n_loops;
	p->saw_varargs = p->saw_kwargs = p->saw_caller = false;
	p->n_loops = 0;
	n->body = parse_body(p, end, opened);
	n->uses_varargs = p->saw_varargs;
	n->uses_kwargs = p->saw_kwargs;
	n->uses_caller = p->saw_caller;
	p->saw_varargs = varargs;
	p->saw_kwargs = kwargs;
	p->saw_caller = caller;
	p->n_loops = n_loops;
}

static struct node *parse_macro(struct parser *p)
{
	struct node *n = node_new(p, NODE_MACRO);
	scanner_next(&p->t);
	set_name(p, n, "the name of the macro");
	parse_parameters(p, n);
	parse_callable_body(p, n, "endmacro", "macro");
	return n;
}

static struct node *parse_call_block(struct parser *p)
{
	struct node *n = node_new(p, NODE_CALL_BLOCK);
	scanner_next(&p->t);
	n->name = "caller";
	n->n_name = strlen(n->name);
	if (is_op(p, "("))
		parse_parameters(p, n);
	n->a = parse_expression(p);
	if (n->a->kind != NODE_CALL)
		pool_fail(p->pool, "found no call, expected one behind {%% call");
	parse_callable_body(p, n, "endcall", "call");
	return n;
}

static struct node *parse_filter_block(struct parser *p)
{
	struct node *n = node_new(p, NODE_FILTER_BLOCK);
	scanner_next(&p->t);
	n->a = parse_filter(p, NULL);
	while (take_op(p, "|"))
		n->a = parse_filter(p, n->a);
	n->body = parse_body(p, "endfilter", "filter");
	return n;
}

static struct node *parse_with(struct parser *p)
{
	struct node *n = node_new(p, NODE_WITH), **end = &n->items;
	scanner_next(&p->t);
	while (p->t.token != TOKEN_CLOSE) {
		struct node *set = node_new(p, NODE_SET);
		set->a = parse_one_target(p, false);
		expect_op(p, "=");
		set->b = parse_expression(p);
		append(&end, set);
		if (p->t.token != TOKEN_CLOSE)
			expect_op(p, ",");
	}
	n->body = parse_body(p, "endwith", "with");
	return n;
}

static struct node *parse_scope(struct parser *p, const char *end, const char *opened)
{
	struct node *n = node_new(p, NODE_SCOPE);
	scanner_next(&p->t);
	n->body = parse_body(p, end, opened);
	return n;
}

static struct node *parse_block(struct parser *p)
{
	struct node *n = node_new(p, NODE_SCOPE), name = {0};
	scanner_next(&p->t);
	set_name(p, &name, "the name of the block");
	n->body = parse_body(p, "endblock", "block");
	return n;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
	struct node *n = node_new(p, kind);
	if (!p->n_loops)
		pool_fail(p->pool, "'%s' outside of a loop",
			kind == NODE_BREAK ? "break" : "continue");
	scanner_next(&p->t);
	expect_close(p, "'%}'");
	return n;
}

static struct node *parse_tag(struct parser *p)
{
	if (is_word(p, "if"))
		return parse_if(p);
	if (is_word(p, "for"))
		return parse_for(p);
	if (is_word(p, "set"))
		return parse_set(p);
	if (is_word(p, "macro"))
		return parse_macro(p);
	if (is_word(p, "call"))
		return parse_call_block(p);
	if (is_word(p, "filter"))
		return parse_filter_block(p);
	if (is_word(p, "with"))
		return parse_with(p);
	if (is_word(p, "generation"))
		return parse_scope(p, "endgeneration", "generation");
	if (is_word(p, "block"))
		return parse_block(p);
	if (is_word(p, "break"))
		return parse_jump(p, NODE_BREAK);
	if (is_word(p, "continue"))
		return parse_jump(p, NODE_CONTINUE);
	static const char *const files[] = {"include", "import", "from", "extends"};
	for (size_t i = 0; i < ARRAY_COUNT(files); i++)
		if (is_word(p, files[i]))
			pool_fail(p->pool, "'%s' asks for another file, a chat template has none",
				files[i]);
	unexpected(p, "a tag such as 'if', 'for', 'set' or 'macro'");
}

/* Statements up to one of the tags `ends`, whose name is then the current token; NULL: up to the end of
 * the template. `opened` at `line` is what the end is missing for. */
static struct node *parse_statements(
	struct parser *p, const char *const *ends, const char *opened, uint32_t line)
{
	struct node *first = NULL, **end = &first, *n;
	pool_enter(p->pool);
	for (;;) {
		if (p->t.token == TOKEN_TEXT) {
			n = node_new(p, NODE_TEXT);
			n->value = value_copy(p->pool, p->t.piece, p->t.n_piece);
			append(&end, n);
			scanner_next(&p->t);
		} else if (p->t.token == TOKEN_OPEN_PRINT) {
			scanner_next(&p->t);
			n = node_new(p, NODE_PRINT);
			n->a = parse_tuple(p);
			expect_close(p, "'}}'");
			append(&end, n);
		} else if (p->t.token == TOKEN_OPEN_BLOCK) {
			scanner_next(&p->t);
			bool ended = false;
			for (size_t i = 0; ends && ends[i]; i++)
				ended |= is_word(p, ends[i]);
			if (ended)
				break;
			append(&end, parse_tag(p));
		} else if (opened) {
			pool_fail(p->pool,
				"found the end of the template, expected the end of "
				"{%% %s %%} of line %u",
				opened, line);
		} else {
			break;
		}
	}
	pool_leave(p->pool);
	return first;
}

/* Every end of line as \n, and the last one of the template left out. */
static struct value normalize(struct pool *p, const char *text, size_t n)
{
	char *copy = pool_alloc(p, n + 1, 1);
	size_t length = 0;
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
			continue;
		copy[length++] = text[i] == '\r' ? '\n' : text[i];
	}
	length -= length > 0 && copy[length - 1] == '\n';
	return value_string(copy, length);
}

struct node *template_parse(struct pool *pool, const char *text, size_t n)
{
	struct value source = normalize(pool, text, n);
	struct parser p = {.pool = pool,
		.t = {.pool = pool, .text = source.s, .n = source.n, .line = 1, .column = 1}};
	scanner_next(&p.t);
	return parse_statements(&p, NULL, NULL, 0);
}
