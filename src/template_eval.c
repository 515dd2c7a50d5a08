/* The interpreter: see template_eval.h. */
#include "template_eval.h"

#include <math.h>
#include <string.h>

#include "template_call.h"

/* Names of one block; what is not found here is looked for around it. */
struct scope {
	struct scope *around;
	struct value names; /* a dict; none while there are no names */
};

struct loop {
	const struct node *node; /* the for statement, for loop(...) */
	struct scope *scope;     /* around it */
	struct value items;
	size_t i;
	unsigned depth;
	struct value changed; /* the last arguments of loop.changed */
};

struct macro {
	const struct node *node;
	struct scope *scope; /* where it was written */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct run {
	struct pool *pool;
	struct scope *scope;
	struct builder *out;
	struct value captured; /* the text of the block that filters are applied to */
	const struct tm *now;
	char *joined_end; /* of the newest text that + made, and the bytes free behind it */
	size_t joined_room;
};

static struct value eval(struct run *r, const struct node *n);
static enum flow execute(struct run *r, const struct node *first);

/* ---- scopes ---------------------------------------------------------------------------------- */

static struct scope *scope_new(struct run *r, struct scope *around)
{
	struct scope *s = pool_alloc(r->pool, 1, sizeof *s);
	s->around = around;
	s->names = value_none();
	return s;
}

static void scope_set(struct run *r, struct scope *s, struct value name, struct value v)
{
	if (s->names.kind == VALUE_NONE)
		s->names = value_dict(r->pool, VALUE_DICT);
	dict_set(r->pool, s->names.dict, name, v);
}

static struct value node_name(const struct node *n)
{
	return value_string(n->name, n->n_name);
}

static struct value lookup(struct run *r, const struct node *n)
{
	struct value name = node_name(n);
	for (const struct scope *s = r->scope; s; s = s->around) {
		const struct value *found = s->names.kind == VALUE_NONE
			? NULL
			: dict_find(r->pool, s->names.dict, name);
		if (found)
			return *found;
	}
	if (function_exists(name)) {
		name.kind = VALUE_FUNCTION;
		return name;
	}
	return value_undefined(
		r->pool, "'%.*s' is undefined", (int)(name.n < 200 ? name.n : 200), name.s);
}

/* Errors name the place of what runs. */
static void at(struct run *r, const struct node *n)
{
	r->pool->line = n->line;
	r->pool->column = n->column;
}

/* ---- operators ------------------------------------------------------------------------------- */

static _Noreturn void unsupported(struct run *r, enum operator op, struct value a, struct value b)
{
	pool_fail(r->pool, "unsupported operand type(s) for %s: '%s' and '%s'", operator_text(op),
		value_type(a), value_type(b));
}

static struct value float_binary(struct run *r, enum operator op, double a, double b)
{
	if (b == 0 && (op == OP_DIV || op == OP_FLOOR || op == OP_MOD))
		pool_fail(r->pool,
			op == OP_DIV ? "division by zero"
				     : "float floor division or modulo by zero");
	double rest;
	switch (op) {
	case OP_ADD:
		return value_float(a + b);
	case OP_SUB:
		return value_float(a - b);
	case OP_MUL:
		return value_float(a * b);
	case OP_DIV:
		return value_float(a / b);
	case OP_FLOOR:
		return value_float(floor(a / b));
	case OP_MOD: /* of the sign of b */
		rest = fmod(a, b);
		return value_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
	default:
		if (a == 0 && b < 0)
			pool_fail(r->pool, "0.0 cannot be raised to a negative power");
		if (a < 0 && floor(b) != b)
			pool_fail(r->pool, "a negative number to a fraction is no real number");
		return value_float(pow(a, b));
	}
}

static bool int_power(int64_t a, int64_t b, int64_t *out)
{
	*out = 1;
	for (; b > 0; b >>= 1) {
		if ((b & 1) && __builtin_mul_overflow(*out, a, out))
			return false;
		if (b > 1 && __builtin_mul_overflow(a, a, &a))
			return false;
	}
	return true;
}

static struct value int_binary(struct run *r, enum operator op, int64_t a, int64_t b)
{
	int64_t out = 0;
	bool fits = true;
	switch (op) {
	case OP_ADD:
		fits = !__builtin_add_overflow(a, b, &out);
		break;
	case OP_SUB:
		fits = !__builtin_sub_overflow(a, b, &out);
		break;
	case OP_MUL:
		fits = !__builtin_mul_overflow(a, b, &out);
		break;
	case OP_FLOOR:
	case OP_MOD:
		if (b == 0)
			pool_fail(r->pool, "integer division or modulo by zero");
		if (b == -1) {
			fits = op == OP_MOD || a != INT64_MIN;
			out = op == OP_MOD || !fits ? 0 : -a;
		} else {
			bool down = a % b != 0 && (a % b < 0) != (b < 0);
			out = op == OP_MOD ? a % b + (down ? b : 0) : a / b - down;
		}
		break;
	case OP_POW:
		if (b < 0)
			return float_binary(r, op, (double)a, (double)b);
		fits = int_power(a, b, &out);
		break;
	default:
		return float_binary(r, op, (double)a, (double)b);
	}
	if (!fits)
		pool_fail(r->pool, "a whole number outside 64 bits");
	return value_int(out);
}

/* v * times, for strings and lists. */
static struct value repeat(struct run *r, struct value v, int64_t times)
{
	struct builder text = {0};
	struct value out = v.kind == VALUE_STRING ? v : value_list(r->pool, v.kind);
	for (int64_t i = 0; i < times && value_truth(v); i++) {
		pool_work(r->pool, 0);
		if (v.kind == VALUE_STRING)
			build(r->pool, &text, v.s, v.n);
		for (size_t j = 0; v.kind != VALUE_STRING && j < v.list->n; j++)
			list_add(r->pool, out.list, v.list->items[j]);
	}
	return v.kind == VALUE_STRING ? built(&text) : out;
}

static bool repeats(struct value v, struct value times)
{
	return (v.kind == VALUE_STRING || v.kind == VALUE_LIST || v.kind == VALUE_TUPLE) &&
		(times.kind == VALUE_INT || times.kind == VALUE_BOOL);
}

/* a + b.  Templates collect long texts piece by piece, so the newest text grows where it is while its
 * builder has room; the shorter texts in the same memory stay what they were. */
static struct value join_texts(struct run *r, struct value a, struct value b)
{
	pool_work(r->pool, b.n);
	if (a.n && a.s + a.n == r->joined_end && b.n <= r->joined_room &&
		a.n + b.n <= r->pool->max_output) {
		memcpy(r->joined_end, b.s, b.n);
		r->joined_end += b.n;
		r->joined_room -= b.n;
		return value_string(a.s, a.n + b.n);
	}
	struct builder text = {0};
	pool_work(r->pool, a.n);
	build(r->pool, &text, a.s, a.n);
	build(r->pool, &text, b.s, b.n);
	r->joined_end = text.n ? text.data + text.n : NULL;
	r->joined_room = text.capacity - text.n;
	return built(&text);
}

static struct value join_lists(struct run *r, struct value a, struct value b)
{
	struct value out = value_list(r->pool, a.kind);
	for (size_t i = 0; i < a.list->n; i++)
		list_add(r->pool, out.list, a.list->items[i]);
	for (size_t i = 0; i < b.list->n; i++)
		list_add(r->pool, out.list, b.list->items[i]);
	return out;
}

static struct value binary(struct run *r, enum operator op, struct value a, struct value b)
{
	struct pool *p = r->pool;
	if (!(op == OP_MOD && a.kind == VALUE_STRING)) {
		value_needs(p, a);
		value_needs(p, b);
	}
	if (value_is_number(a) && value_is_number(b))
		return a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT
			? float_binary(r, op, value_number(a), value_number(b))
			: int_binary(r, op, need_int(p, a), need_int(p, b));
	if (op == OP_MOD && a.kind == VALUE_STRING)
		return text_percent(p, a, b);
	if (op == OP_ADD && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
		return join_texts(r, a, b);
	if (op == OP_ADD && a.kind == b.kind && (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE))
		return join_lists(r, a, b);
	if (op == OP_MUL && repeats(a, b))
		return repeat(r, a, need_int(p, b));
	if (op == OP_MUL && repeats(b, a))
		return repeat(r, b, need_int(p, a));
	if (op == OP_ADD && a.kind == VALUE_STRING)
		pool_fail(p, "can only concatenate str (not \"%s\") to str", value_type(b));
	unsupported(r, op, a, b);
}

static bool compare(struct run *r, enum operator op, struct value a, struct value b)
{
	struct pool *p = r->pool;
	switch (op) {
	case OP_EQ:
		return value_equal(p, a, b);
	case OP_NE:
		return !value_equal(p, a, b);
	case OP_IN:
		return value_contains(p, b, a);
	case OP_NOT_IN:
		return !value_contains(p, b, a);
	default:
		break;
	}
	bool numbers = value_is_number(a) && value_is_number(b);
	if (numbers && (isnan(value_number(a)) || isnan(value_number(b))))
		return false;
	int order = value_order(p, a, b, operator_text(op));
	return op == OP_LT    ? order < 0
		: op == OP_LE ? order <= 0
		: op == OP_GT ? order > 0
			      : order >= 0;
}

static struct value eval_comparison(struct run *r, const struct node *n)
{
	struct value left = eval(r, n->a);
	for (const struct node *next = n->items; next; next = next->next) {
		struct value right = eval(r, next->a);
		at(r, next);
		if (!compare(r, next->op, left, right))
			return value_bool(false);
		left = right;
	}
	return value_bool(true);
}

static struct value eval_sign(struct run *r, const struct node *n)
{
	struct value v = eval(r, n->a);
	value_needs(r->pool, v);
	if (!value_is_number(v))
		pool_fail(r->pool, "bad operand type for unary %c: '%s'",
			n->kind == NODE_NEGATE ? '-' : '+', value_type(v));
	if (v.kind == VALUE_FLOAT)
		return value_float(n->kind == NODE_NEGATE ? -v.f : v.f);
	return n->kind == NODE_NEGATE ? int_binary(r, OP_SUB, 0, need_int(r->pool, v))
				      : value_int(need_int(r->pool, v));
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct arguments eval_arguments(struct run *r, const struct node *first)
{
	struct arguments a = {0};
	for (const struct node *n = first; n; n = n->next) {
		struct value v = eval(
			r, n->kind >= NODE_KEYWORD && n->kind <= NODE_SPREAD_KEYWORDS ? n->a : n);
		if (n->kind == NODE_KEYWORD) {
			arguments_add_keyword(r->pool, &a, node_name(n), v);
		} else if (n->kind == NODE_SPREAD) {
			struct value items = value_items(r->pool, v);
			for (size_t i = 0; i < items.list->n; i++)
				arguments_add(r->pool, &a, items.list->items[i]);
		} else if (n->kind == NODE_SPREAD_KEYWORDS) {
			if (v.kind != VALUE_DICT)
				pool_fail(r->pool, "argument after ** must be a mapping, not %s",
					value_type(v));
			for (size_t i = 0; i < v.dict->n; i++)
				arguments_add_keyword(r->pool, &a,
					need_text(r->pool, v.dict->entries[i].key, "a keyword"),
					v.dict->entries[i].value);
		} else {
			arguments_add(r->pool, &a, v);
		}
	}
	return a;
}

/* The keyword of that name, which is then gone from the list. */
static bool take_keyword(struct run *r, struct arguments *a, struct value name, struct value *out)
{
	for (size_t i = 0; i < a->n_keywords; i++)
		if (value_equal(r->pool, a->keywords[i].name, name)) {
			*out = a->keywords[i].value;
			memmove(&a->keywords[i], &a->keywords[i + 1],
				(--a->n_keywords - i) * sizeof *a->keywords);
			return true;
		}
	return false;
}

static void bind_rest(struct run *r, const struct macro *m, struct arguments *a, size_t used)
{
	struct pool *p = r->pool;
	const struct node *n = m->node;
	struct value varargs = value_list(p, VALUE_TUPLE), kwargs = value_dict(p, VALUE_DICT),
		     caller;
	if (take_keyword(r, a, value_text("caller"), &caller))
		scope_set(r, r->scope, value_text("caller"), caller);
	else if (n->uses_caller && n->kind == NODE_MACRO)
		scope_set(
			r, r->scope, value_text("caller"), value_undefined(p, "No caller defined"));
	if (used < a->n && !n->uses_varargs)
		pool_fail(p, "macro '%.*s' takes not more than %zu argument(s)", (int)n->n_name,
			n->name, used);
	for (; used < a->n; used++)
		list_add(p, varargs.list, a->items[used]);
	if (a->n_keywords && !n->uses_kwargs)
		pool_fail(p, "macro '%.*s' takes no keyword argument '%.*s'", (int)n->n_name,
			n->name, (int)a->keywords[0].name.n, a->keywords[0].name.s);
	for (size_t i = 0; i < a->n_keywords; i++)
		dict_set(p, kwargs.dict, a->keywords[i].name, a->keywords[i].value);
	if (n->uses_varargs)
		scope_set(r, r->scope, value_text("varargs"), varargs);
	if (n->uses_kwargs)
		scope_set(r, r->scope, value_text("kwargs"), kwargs);
}

/* What the statements print. */
static struct value capture(struct run *r, const struct node *body)
{
	struct builder text = {0}, *out = r->out;
	r->out = &text;
	execute(r, body);
	r->out = out;
	return built(&text);
}

static struct value call_macro(struct run *r, const struct macro *m, struct arguments a)
{
	struct scope *back = r->scope;
	size_t used = 0;
	r->scope = scope_new(r, m->scope);
	for (const struct node *n = m->node->items; n; n = n->next) {
		struct value v, name = node_name(n);
		bool by_name = take_keyword(r, &a, name, &v);
		if (used < a.n) {
			if (by_name)
				pool_fail(r->pool,
					"macro '%.*s' got two values for argument '%.*s'",
					(int)m->node->n_name, m->node->name, (int)name.n, name.s);
			v = a.items[used++];
		} else if (!by_name) {
			v = n->a ? eval(r, n->a)
				 : value_undefined(r->pool, "parameter '%.*s' was not provided",
					   (int)name.n, name.s);
		}
		scope_set(r, r->scope, name, v);
	}
	bind_rest(r, m, &a, used);
	struct value out = capture(r, m->node->body);
	r->scope = back;
	return out;
}

static struct value run_loop(struct run *r, const struct node *n, struct scope *around,
	struct value over, unsigned depth);

static struct value call_value(struct run *r, struct value callee, struct arguments *a)
{
	switch (callee.kind) {
	case VALUE_FUNCTION:
		return function_call(r->pool, value_string(callee.s, callee.n), a, r->now);
	case VALUE_METHOD:
		return method_call(r->pool, callee.method, a);
	case VALUE_MACRO:
		return call_macro(r, callee.macro, *a);
	case VALUE_JOINER:
		if (a->n || a->n_keywords)
			pool_fail(r->pool, "a joiner takes no argument, found %zu",
				a->n + a->n_keywords);
		return joiner_call(callee);
	case VALUE_LOOP:
		if (!callee.loop->node->recursive)
			pool_fail(r->pool,
				"The loop must have the 'recursive' marker to be called "
				"recursively.");
		if (a->n != 1)
			pool_fail(r->pool, "loop() takes 1 argument, found %zu", a->n);
		return run_loop(r, callee.loop->node, callee.loop->scope, a->items[0],
			callee.loop->depth + 1);
	default:
		value_needs(r->pool, callee);
		pool_fail(r->pool, "'%s' object is not callable", value_type(callee));
	}
}

static struct value loop_method(
	struct run *r, struct loop *loop, const struct node *n, const struct arguments *a)
{
	if (node_is(n, "cycle")) {
		if (!a->n)
			pool_fail(r->pool, "no items for cycling given");
		return a->items[loop->i % a->n];
	}
	struct value now = value_list(r->pool, VALUE_TUPLE);
	for (size_t i = 0; i < a->n; i++)
		list_add(r->pool, now.list, a->items[i]);
	bool changed = !value_equal(r->pool, loop->changed, now);
	loop->changed = now;
	return value_bool(changed);
}

static struct value eval_call(struct run *r, const struct node *n, const struct macro *caller)
{
	struct value callee = value_none(), self = value_none(), out;
	bool of_loop = false;
	if (n->a->kind == NODE_ATTRIBUTE && (node_is(n->a, "cycle") || node_is(n->a, "changed"))) {
		self = eval(r, n->a->a);
		of_loop = self.kind == VALUE_LOOP;
	}
	if (!of_loop)
		callee = eval(r, n->a);
	struct arguments a = eval_arguments(r, n->items);
	if (caller) {
		struct value v = {.kind = VALUE_MACRO, .macro = (struct macro *)caller};
		arguments_add_keyword(r->pool, &a, value_text("caller"), v);
	}
	at(r, n);
	out = of_loop ? loop_method(r, self.loop, n->a, &a) : call_value(r, callee, &a);
	at(r, n);
	return out;
}

static struct value loop_attribute(struct run *r, const struct loop *loop, const struct node *n)
{
	const struct list *items = loop->items.list;
	const struct {
		const char *name;
		struct value v;
	} numbers[] = {
		{"index", value_int((int64_t)loop->i + 1)},
		{"index0", value_int((int64_t)loop->i)},
		{"first", value_bool(loop->i == 0)},
		{"last", value_bool(loop->i + 1 == items->n)},
		{"length", value_int((int64_t)items->n)},
		{"revindex", value_int((int64_t)(items->n - loop->i))},
		{"revindex0", value_int((int64_t)(items->n - loop->i) - 1)},
		{"depth", value_int(loop->depth)},
		{"depth0", value_int((int64_t)loop->depth - 1)},
	};
	for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
		if (node_is(n, numbers[i].name))
			return numbers[i].v;
	if (node_is(n, "previtem"))
		return loop->i ? items->items[loop->i - 1]
			       : value_undefined(r->pool, "there is no previous item");
	if (node_is(n, "nextitem"))
		return loop->i + 1 < items->n ? items->items[loop->i + 1]
					      : value_undefined(r->pool, "there is no next item");
	return value_undefined(r->pool, "'LoopContext object' has no attribute '%.*s'",
		(int)(n->n_name < 200 ? n->n_name : 200), n->name);
}

static struct value eval_attribute(struct run *r, const struct node *n)
{
	struct value v = eval(r, n->a);
	at(r, n);
	return v.kind == VALUE_LOOP ? loop_attribute(r, v.loop, n)
				    : value_attribute(r->pool, v, node_name(n));
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct value eval_optional(struct run *r, const struct node *n)
{
	return n ? eval(r, n) : value_none();
}

static struct value eval_items(struct run *r, const struct node *n)
{
	struct value list = value_list(r->pool, n->kind == NODE_LIST ? VALUE_LIST : VALUE_TUPLE);
	for (const struct node *item = n->items; item; item = item->next)
		list_add(r->pool, list.list, eval(r, item));
	return list;
}

static struct value eval_dict(struct run *r, const struct node *n)
{
	struct value dict = value_dict(r->pool, VALUE_DICT);
	for (const struct node *key = n->items; key; key = key->next->next) {
		struct value k = eval(r, key), v = eval(r, key->next);
		at(r, key);
		dict_set(r->pool, dict.dict, k, v);
	}
	return dict;
}

static struct value eval_concat(struct run *r, const struct node *n)
{
	struct builder text = {0};
	for (const struct node *item = n->items; item; item = item->next)
		build_str(r->pool, &text, eval(r, item));
	return built(&text);
}

static struct value eval_filter(struct run *r, const struct node *n)
{
	struct value v = n->a ? eval(r, n->a) : r->captured;
	struct arguments a = eval_arguments(r, n->items);
	at(r, n);
	return filter_apply(r->pool, node_name(n), v, &a);
}

static struct value eval_test(struct run *r, const struct node *n)
{
	struct value v = eval(r, n->a);
	struct arguments a = eval_arguments(r, n->items);
	at(r, n);
	return value_bool(test_apply(r->pool, node_name(n), v, &a));
}

static struct value eval_if_else(struct run *r, const struct node *n)
{
	if (value_truth(eval(r, n->b)))
		return eval(r, n->a);
	if (n->c)
		return eval(r, n->c);
	return value_undefined(r->pool,
		"the inline if-expression on line %u evaluated to false and no else section was "
		"defined.",
		n->line);
}

static struct value eval_pair(struct run *r, const struct node *n)
{
	struct value a = eval(r, n->a);
	if (n->kind == NODE_AND)
		return value_truth(a) ? eval(r, n->b) : a;
	if (n->kind == NODE_OR)
		return value_truth(a) ? a : eval(r, n->b);
	struct value b = eval(r, n->b);
	at(r, n);
	return n->kind == NODE_INDEX ? value_subscript(r->pool, a, b) : binary(r, n->op, a, b);
}

static struct value eval_slice(struct run *r, const struct node *n)
{
	struct value v = eval(r, n->a), from = eval_optional(r, n->b);
	struct value to = eval_optional(r, n->c), step = eval_optional(r, n->d);
	at(r, n);
	return value_slice(r->pool, v, from, to, step);
}

static struct value eval_node(struct run *r, const struct node *n)
{
	switch (n->kind) {
	case NODE_CONST:
		return n->value;
	case NODE_NAME:
		return lookup(r, n);
	case NODE_LIST:
	case NODE_TUPLE:
		return eval_items(r, n);
	case NODE_DICT:
		return eval_dict(r, n);
	case NODE_ATTRIBUTE:
		return eval_attribute(r, n);
	case NODE_INDEX:
	case NODE_AND:
	case NODE_OR:
	case NODE_BINARY:
		return eval_pair(r, n);
	case NODE_SLICE:
		return eval_slice(r, n);
	case NODE_CALL:
		return eval_call(r, n, NULL);
	case NODE_FILTER:
		return eval_filter(r, n);
	case NODE_TEST:
		return eval_test(r, n);
	case NODE_NOT:
		return value_bool(!value_truth(eval(r, n->a)));
	case NODE_COMPARE:
		return eval_comparison(r, n);
	case NODE_NEGATE:
	case NODE_PLUS:
		return eval_sign(r, n);
	case NODE_CONCAT:
		return eval_concat(r, n);
	case NODE_IF_ELSE:
		return eval_if_else(r, n);
	default:
		pool_fail(r->pool, "found a named argument, expected an expression");
	}
}

static struct value eval(struct run *r, const struct node *n)
{
	pool_work(r->pool, 0);
	pool_enter(r->pool);
	at(r, n);
	struct value v = eval_node(r, n);
	pool_leave(r->pool);
	return v;
}

/* ---- statements ------------------------------------------------------------------------------ */

static void assign(struct run *r, const struct node *target, struct value v)
{
	at(r, target);
	if (target->kind == NODE_NAME) {
		scope_set(r, r->scope, node_name(target), v);
	} else if (target->kind == NODE_TUPLE) {
		value_needs(r->pool, v);
		struct value items = value_items(r->pool, v);
		size_t n = 0;
		for (const struct node *t = target->items; t; t = t->next)
			n++;
		if (items.list->n != n)
			pool_fail(r->pool,
				items.list->n > n
					? "too many values to unpack (expected %zu, found %zu)"
					: "not enough values to unpack (expected %zu, got %zu)",
				n, items.list->n);
		n = 0;
		pool_enter(r->pool);
		for (const struct node *t = target->items; t; t = t->next)
			assign(r, t, items.list->items[n++]);
		pool_leave(r->pool);
	} else {
		struct value object = eval(r, target->a);
		value_needs(r->pool, object);
		if (object.kind != VALUE_NAMESPACE || target->kind != NODE_ATTRIBUTE)
			pool_fail(r->pool, "cannot assign attribute on non-namespace object");
		dict_set(r->pool, object.dict, node_name(target), v);
	}
}

/* The items that the loop's own `if` lets pass. */
static struct value loop_items(struct run *r, const struct node *n, struct value over)
{
	struct value items = value_items(r->pool, over), chosen;
	if (!n->c)
		return items;
	chosen = value_list(r->pool, VALUE_LIST);
	struct scope *back = r->scope;
	for (size_t i = 0; i < items.list->n; i++) {
		r->scope = scope_new(r, back);
		assign(r, n->a, items.list->items[i]);
		if (value_truth(eval(r, n->c)))
			list_add(r->pool, chosen.list, items.list->items[i]);
	}
	r->scope = back;
	return chosen;
}

static void loop_run(struct run *r, const struct node *n, struct value over, unsigned depth)
{
	struct scope *around = r->scope;
	struct loop *loop = pool_alloc(r->pool, 1, sizeof *loop);
	struct value v = {.kind = VALUE_LOOP, .loop = loop};
	*loop = (struct loop){.node = n, .scope = around, .depth = depth};
	loop->items = loop_items(r, n, over);
	loop->changed = value_none();
	for (enum flow flow = FLOW_ON; flow != FLOW_BREAK && loop->i < loop->items.list->n;
		loop->i++) {
		r->scope = scope_new(r, around);
		scope_set(r, r->scope, value_text("loop"), v);
		assign(r, n->a, loop->items.list->items[loop->i]);
		flow = execute(r, n->body);
		if (flow == FLOW_BREAK)
			break;
	}
	if (!loop->items.list->n && n->other) {
		r->scope = scope_new(r, around);
		execute(r, n->other);
	}
	r->scope = around;
}

/* loop(...): a recursive loop once more, as a text. */
static struct value run_loop(struct run *r, const struct node *n, struct scope *around,
	struct value over, unsigned depth)
{
	struct builder text = {0}, *out = r->out;
	struct scope *back = r->scope;
	r->out = &text;
	r->scope = around;
	loop_run(r, n, over, depth);
	r->scope = back;
	r->out = out;
	return built(&text);
}

static enum flow run_if(struct run *r, const struct node *n)
{
	for (; n && n->kind == NODE_IF; n = n->other) {
		pool_work(r->pool, 0);
		if (value_truth(eval(r, n->a)))
			return execute(r, n->body);
		if (!n->other || n->other->kind != NODE_IF || n->other->next)
			return execute(r, n->other);
	}
	return FLOW_ON;
}

static struct value filtered(struct run *r, const struct node *filters, const struct node *body)
{
	struct scope *back = r->scope;
	r->scope = scope_new(r, back);
	struct value text = capture(r, body), outer = r->captured;
	r->scope = back;
	if (!filters)
		return text;
	r->captured = text;
	text = eval(r, filters);
	r->captured = outer;
	return text;
}

static void define_macro(struct run *r, const struct node *n)
{
	struct value v = {
		.kind = VALUE_MACRO, .macro = pool_alloc(r->pool, 1, sizeof(struct macro))};
	*v.macro = (struct macro){n, r->scope};
	scope_set(r, r->scope, node_name(n), v);
}

static void run_call_block(struct run *r, const struct node *n)
{
	struct macro *caller = pool_alloc(r->pool, 1, sizeof *caller);
	*caller = (struct macro){n, r->scope};
	build_str(r->pool, r->out, eval_call(r, n->a, caller));
}

static enum flow run_scope(struct run *r, const struct node *n)
{
	struct scope *back = r->scope, *inner = scope_new(r, back);
	for (const struct node *set = n->items; set; set = set->next) {
		struct value v = eval(r, set->b); /* outside: names do not see each other */
		r->scope = inner;
		assign(r, set->a, v);
		r->scope = back;
	}
	r->scope = inner;
	enum flow flow = execute(r, n->body);
	r->scope = back;
	return flow;
}

static enum flow run_statement(struct run *r, const struct node *n)
{
	switch (n->kind) {
	case NODE_TEXT:
		build(r->pool, r->out, n->value.s, n->value.n);
		return FLOW_ON;
	case NODE_PRINT:
		build_str(r->pool, r->out, eval(r, n->a));
		return FLOW_ON;
	case NODE_IF:
		return run_if(r, n);
	case NODE_FOR:
		loop_run(r, n, eval(r, n->b), 1);
		return FLOW_ON;
	case NODE_SET:
		assign(r, n->a, n->b ? eval(r, n->b) : filtered(r, n->c, n->body));
		return FLOW_ON;
	case NODE_MACRO:
		define_macro(r, n);
		return FLOW_ON;
	case NODE_CALL_BLOCK:
		run_call_block(r, n);
		return FLOW_ON;
	case NODE_FILTER_BLOCK:
		build_str(r->pool, r->out, filtered(r, n->a, n->body));
		return FLOW_ON;
	case NODE_WITH:
	case NODE_SCOPE:
		return run_scope(r, n);
	case NODE_BREAK:
		return FLOW_BREAK;
	default:
		return FLOW_CONTINUE;
	}
}

/* A list of statements; what ends it before its end. */
static enum flow execute(struct run *r, const struct node *first)
{
	enum flow flow = FLOW_ON;
	pool_enter(r->pool);
	for (const struct node *n = first; n && flow == FLOW_ON; n = n->next) {
		pool_work(r->pool, 0);
		at(r, n);
		flow = run_statement(r, n);
	}
	pool_leave(r->pool);
	return flow;
}

struct value template_run(
	struct pool *p, const struct node *statements, struct value names, const struct tm *now)
{
	struct builder out = {0};
	struct scope outer = {.names = names};
	struct run r = {
		.pool = p, .scope = &outer, .out = &out, .captured = value_none(), .now = now};
	r.scope = scope_new(&r, &outer);
	execute(&r, statements);
	return built(&out);
}
