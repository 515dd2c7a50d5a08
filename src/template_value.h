/* Values of a chat template, and the pool of memory and of work that one run may use.
 *
 * Owns what a value is and how Python would print, compare, order, index and slice it. Knows no syntax
 * and no filter. Everything lives in a pool and dies with it, so nothing here is released piece by piece;
 * a failure leaves through pool_fail, which returns to the pool's owner. */
#ifndef LAPILLI_TEMPLATE_VALUE_H
#define LAPILLI_TEMPLATE_VALUE_H

#include <setjmp.h>

#include "base.h"

/* ---- pool ------------------------------------------------------------------------------------ */

struct pool_block;

/* Zeroed, then filled in by its owner: limits, `err`, and `escape` from setjmp. */
struct pool {
	struct pool_block *blocks;
	char *free_at; /* the unused rest of the newest block */
	size_t n_free;
	uint64_t n_bytes, max_bytes;
	uint64_t n_steps, max_steps;
	uint32_t depth, max_depth;
	uint64_t max_output;   /* bytes of any text */
	uint32_t line, column; /* of what is running; 0: say no place */
	struct lap_error *err;
	enum lap_status status;
	jmp_buf escape;
};

void pool_free(struct pool *p);
/* Writes "chat template, line 3, column 7: " and the message as one line, and returns to `escape`. */
_Noreturn void pool_fail(struct pool *p, const char *format, ...) PRINTF_LIKE(2, 3);
/* The words alone, at most as long as an error may be. */
_Noreturn void pool_raise(struct pool *p, const char *words, size_t n);
void *pool_alloc(
	struct pool *p, uint64_t n, uint64_t size); /* n * size bytes, zeroed; never NULL */
void pool_work(struct pool *p, uint64_t n_bytes);   /* counts a step, and one for each 64 bytes */
void pool_enter(struct pool *p);                    /* one level deeper */
void pool_leave(struct pool *p);

/* ---- values ---------------------------------------------------------------------------------- */

enum value_kind {
	VALUE_UNDEFINED, /* bytes: what to say when it is used */
	VALUE_NONE,
	VALUE_BOOL,
	VALUE_INT,
	VALUE_FLOAT,
	VALUE_STRING,
	VALUE_LIST,
	VALUE_TUPLE,
	VALUE_RANGE,    /* a list that prints as range(a, b) */
	VALUE_ITERATOR, /* a list that can be walked once */
	VALUE_VIEW,     /* keys, values or items of a dict */
	VALUE_DICT,
	VALUE_NAMESPACE,
	VALUE_CYCLER, /* a list; `at` is the current item */
	VALUE_LOOP,
	VALUE_FUNCTION, /* built in, by name */
	VALUE_METHOD,   /* a name and the value before the dot */
	VALUE_MACRO,
	VALUE_JOINER, /* a list of one text; `at` is 0 until it is first called */
};

struct list;
struct dict;
struct macro;  /* template_eval.c */
struct loop;   /* template_eval.c */
struct method; /* below */

struct value {
	enum value_kind kind;
	union {
		bool b;
		int64_t i;
		double f;
		struct { /* UTF-8, not terminated: STRING, UNDEFINED, FUNCTION */
			const char *s;
			size_t n;
		};
		struct list *list; /* LIST to VIEW, CYCLER, JOINER */
		struct dict *dict; /* DICT, NAMESPACE */
		struct loop *loop;
		struct macro *macro;
		struct method *method;
	};
};

struct list {
	struct value *items;
	size_t n, capacity;
	size_t at;        /* ITERATOR: the next item; CYCLER, JOINER */
	const char *name; /* VIEW: dict_items; ITERATOR: generator */
	int64_t range[3]; /* RANGE */
};

struct dict_entry {
	struct value key, value;
	uint64_t hash;
};

struct dict { /* in the order of insertion */
	struct dict_entry *entries;
	uint32_t *slots; /* of `entries`, plus 1; 0: free */
	size_t n, capacity, n_slots;
};

struct method {
	struct value self, name; /* name: a string */
};

struct value value_none(void);
struct value value_bool(bool b);
struct value value_int(int64_t i);
struct value value_float(double f);
struct value value_text(const char *s);             /* a string that outlives the pool */
struct value value_string(const char *s, size_t n); /* the same, not terminated */
struct value value_copy(struct pool *p, const char *s, size_t n);
struct value value_undefined(struct pool *p, const char *format, ...) PRINTF_LIKE(2, 3);
struct value value_list(struct pool *p, enum value_kind kind); /* empty */
struct value value_dict(struct pool *p, enum value_kind kind);

void list_add(struct pool *p, struct list *list, struct value v);
/* NULL when the key is not there. A list or a dict as a key is an error. */
const struct value *dict_find(struct pool *p, const struct dict *d, struct value key);
const struct value *dict_find_text(struct pool *p, const struct dict *d, const char *key);
void dict_set(struct pool *p, struct dict *d, struct value key, struct value v);

/* A text that grows. Zeroed is empty. */
struct builder {
	char *data;
	size_t n, capacity;
};
void build(struct pool *p, struct builder *b, const void *bytes, size_t n);
void build_text(struct pool *p, struct builder *b, const char *s);
void build_printf(struct pool *p, struct builder *b, const char *format, ...) PRINTF_LIKE(3, 4);
struct value built(const struct builder *b);

bool value_is(struct value v, const char *text); /* a string of these bytes */
bool value_is_number(struct value v);            /* bool, int, float */
bool value_is_listlike(struct value v);          /* LIST to VIEW */
double value_number(struct value v);
const char *value_type(struct value v); /* Python's name of the type */
bool value_truth(struct value v);
bool value_equal(struct pool *p, struct value a, struct value b);
int value_order(struct pool *p, struct value a, struct value b, const char *op); /* <0, 0, >0 */
/* Whether the bytes at s, of which there are enough, are the string `what`; long beginnings count as work. */
bool text_at(struct pool *p, const char *s, struct value what);
bool value_contains(struct pool *p, struct value inside, struct value item);
size_t value_length(struct pool *p, struct value v);      /* len() */
struct value value_items(struct pool *p, struct value v); /* a list of what a for loop sees */
struct value value_index(struct pool *p, struct value v, struct value key, bool *found);
/* v[from:to:step]; none stands for a bound that is missing. */
struct value value_slice(
	struct pool *p, struct value v, struct value from, struct value to, struct value step);
void value_needs(struct pool *p, struct value v); /* fails when v is undefined */

void build_str(struct pool *p, struct builder *b, struct value v);  /* str() */
void build_repr(struct pool *p, struct builder *b, struct value v); /* repr() */
struct value value_str(struct pool *p, struct value v);
void format_float(double f, char out[40]); /* repr of a float: the shortest that reads back */

/* JSON (template_json.c). Reading: whole numbers outside 64 bits become floats. Writing: as Python's
 * json.dumps(ensure_ascii=False) does. indent < 0: on one line. item, key: the separators. */
struct json_style {
	int indent;
	struct value item, key;
	bool sort_keys, ascii;
};
struct value json_read(struct pool *p, const char *text, size_t n, const char *what);
void json_write(struct pool *p, struct builder *b, struct value v, const struct json_style *style);

/* Characters of a string: code points, a byte that is no UTF-8 counting as one. */
size_t char_bytes(const char *s, size_t n); /* of the character at s; n > 0 */
size_t char_count(const char *s, size_t n);
uint32_t char_code(const char *s, size_t n); /* of the character at s; a stray byte as itself */
bool char_is_space(uint32_t code);

#endif
