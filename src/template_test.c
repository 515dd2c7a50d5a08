/* Tests, what stands behind `is`: see template_call.h. */
#include <math.h>

#include "template_call.h"

enum test {
	TEST_DEFINED,
	TEST_UNDEFINED,
	TEST_NONE,
	TEST_STRING,
	TEST_MAPPING,
	TEST_ITERABLE,
	TEST_SEQUENCE,
	TEST_NUMBER,
	TEST_INTEGER,
	TEST_FLOAT,
	TEST_BOOLEAN,
	TEST_TRUE,
	TEST_FALSE,
	TEST_CALLABLE,
	TEST_ODD,
	TEST_EVEN,
	TEST_LOWER,
	TEST_UPPER,
	TEST_ESCAPED,
	TEST_FILTER,
	TEST_TEST,
	TEST_DIVISIBLE, /* from here on with one argument */
	TEST_IN,
	TEST_SAME,
	TEST_EQ,
	TEST_NE,
	TEST_LT,
	TEST_LE,
	TEST_GT,
	TEST_GE,
};

static const struct {
	const char *name;
	enum test test;
} tests[] = {
	{"defined", TEST_DEFINED},
	{"undefined", TEST_UNDEFINED},
	{"none", TEST_NONE},
	{"string", TEST_STRING},
	{"mapping", TEST_MAPPING},
	{"iterable", TEST_ITERABLE},
	{"sequence", TEST_SEQUENCE},
	{"number", TEST_NUMBER},
	{"integer", TEST_INTEGER},
	{"float", TEST_FLOAT},
	{"boolean", TEST_BOOLEAN},
	{"true", TEST_TRUE},
	{"false", TEST_FALSE},
	{"callable", TEST_CALLABLE},
	{"odd", TEST_ODD},
	{"even", TEST_EVEN},
	{"lower", TEST_LOWER},
	{"upper", TEST_UPPER},
	{"escaped", TEST_ESCAPED},
	{"filter", TEST_FILTER},
	{"test", TEST_TEST},
	{"divisibleby", TEST_DIVISIBLE},
	{"in", TEST_IN},
	{"sameas", TEST_SAME},
	{"eq", TEST_EQ},
	{"==", TEST_EQ},
	{"equalto", TEST_EQ},
	{"ne", TEST_NE},
	{"!=", TEST_NE},
	{"lt", TEST_LT},
	{"<", TEST_LT},
	{"lessthan", TEST_LT},
	{"le", TEST_LE},
	{"<=", TEST_LE},
	{"gt", TEST_GT},
	{">", TEST_GT},
	{"greaterthan", TEST_GT},
	{"ge", TEST_GE},
	{">=", TEST_GE},
};

static size_t find_test(struct value name)
{
	size_t i = 0;
	while (i < ARRAY_COUNT(tests) && !value_is(name, tests[i].name))
		i++;
	return i;
}

bool test_exists(struct value name)
{
	return find_test(name) < ARRAY_COUNT(tests);
}

/* v % by as Python has it: of the sign of `by`. */
static double remainder_of(struct pool *p, struct value v, struct value by)
{
	value_needs(p, v);
	value_needs(p, by);
	if (!value_is_number(v) || !value_is_number(by))
		pool_fail(p, "unsupported operand type(s) for %%: '%s' and '%s'", value_type(v),
			value_type(by));
	if (value_number(by) == 0)
		pool_fail(p, "integer modulo by zero");
	if (v.kind == VALUE_INT && by.kind == VALUE_INT)
		return by.i == -1 ? 0 : (double)(v.i % by.i);
	return fmod(value_number(v), value_number(by));
}

static bool has_case(struct pool *p, struct value v, const char *method)
{
	struct value text = value_str(p, v);
	const struct method m = {text, value_text(method)};
	const struct arguments none = {0};
	return method_call(p, &m, &none).b;
}

static bool same(struct pool *p, struct value a, struct value b)
{
	bool plain = a.kind < VALUE_LIST || a.kind == VALUE_FUNCTION;
	return a.kind == b.kind && (plain ? value_equal(p, a, b) : a.list == b.list);
}

static bool passes(struct pool *p, enum test test, struct value v, struct value a)
{
	switch (test) {
	case TEST_DEFINED:
		return v.kind != VALUE_UNDEFINED;
	case TEST_UNDEFINED:
		return v.kind == VALUE_UNDEFINED;
	case TEST_NONE:
		return v.kind == VALUE_NONE;
	case TEST_STRING:
		return v.kind == VALUE_STRING;
	case TEST_MAPPING:
		return v.kind == VALUE_DICT;
	case TEST_ITERABLE:
		return value_is_listlike(v) || v.kind == VALUE_STRING || v.kind == VALUE_DICT ||
			v.kind == VALUE_UNDEFINED || v.kind == VALUE_LOOP;
	case TEST_SEQUENCE:
		return v.kind == VALUE_LIST || v.kind == VALUE_TUPLE || v.kind == VALUE_RANGE ||
			v.kind == VALUE_STRING || v.kind == VALUE_DICT;
	case TEST_NUMBER:
		return value_is_number(v);
	case TEST_INTEGER:
		return v.kind == VALUE_INT;
	case TEST_FLOAT:
		return v.kind == VALUE_FLOAT;
	case TEST_BOOLEAN:
		return v.kind == VALUE_BOOL;
	case TEST_TRUE:
		return v.kind == VALUE_BOOL && v.b;
	case TEST_FALSE:
		return v.kind == VALUE_BOOL && !v.b;
	case TEST_CALLABLE:
		return v.kind >= VALUE_LOOP || v.kind == VALUE_UNDEFINED;
	case TEST_ODD:
		return fabs(remainder_of(p, v, value_int(2))) == 1;
	case TEST_EVEN:
		return remainder_of(p, v, value_int(2)) == 0;
	case TEST_LOWER:
		return has_case(p, v, "islower");
	case TEST_UPPER:
		return has_case(p, v, "isupper");
	case TEST_ESCAPED:
		return false;
	case TEST_FILTER:
		return filter_exists(v);
	case TEST_TEST:
		return test_exists(v);
	case TEST_DIVISIBLE:
		return remainder_of(p, v, a) == 0;
	case TEST_IN:
		return value_contains(p, a, v);
	case TEST_SAME:
		return same(p, v, a);
	case TEST_EQ:
		return value_equal(p, v, a);
	case TEST_NE:
		return !value_equal(p, v, a);
	case TEST_LT:
		return value_order(p, v, a, "<") < 0;
	case TEST_LE:
		return value_order(p, v, a, "<=") <= 0;
	case TEST_GT:
		return value_order(p, v, a, ">") > 0;
	case TEST_GE:
		return value_order(p, v, a, ">=") >= 0;
	}
	return false;
}

bool test_apply(struct pool *p, struct value name, struct value v, const struct arguments *a)
{
	size_t i = find_test(name);
	if (i == ARRAY_COUNT(tests))
		pool_fail(p, "No test named '%.*s'.", (int)(name.n < 100 ? name.n : 100), name.s);
	size_t wanted = tests[i].test >= TEST_DIVISIBLE;
	if (a->n != wanted || a->n_keywords)
		pool_fail(p, "test '%s' takes %zu arguments, found %zu", tests[i].name, wanted,
			a->n + a->n_keywords);
	pool_work(p, 0);
	return passes(p, tests[i].test, v, wanted ? a->items[0] : value_none());
}
