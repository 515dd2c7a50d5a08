/* Chat templates: see template.h. */
#include "template.h"

#include <stdlib.h>
#include <string.h>

#include "template_eval.h"

struct template
{
	struct pool pool; /* of the tree */
	struct template_limits limits;
	const struct node *statements;
};

static const struct template_limits default_limits = {
	.n_steps = 50000000,
	.n_memory = (uint64_t)512 << 20,
	.n_output = (uint64_t)64 << 20,
	.n_depth = 400,
};

static void pool_limit(struct pool *p, const struct template_limits *l, struct lap_error *err)
{
	p->max_steps = l->n_steps;
	p->max_bytes = l->n_memory;
	p->max_output = l->n_output;
	p->max_depth = l->n_depth;
	p->err = err;
}

enum lap_status template_create(const char *text, size_t n_bytes,
	const struct template_limits *limits, struct template **out, struct lap_error *err)
{
	struct template *t = array_alloc(1, sizeof *t);
	*out = NULL;
	if (!t)
		return fail_memory(err, "the chat template", sizeof *t);
	t->limits = default_limits;
	if (limits) {
		t->limits.n_steps = limits->n_steps ? limits->n_steps : t->limits.n_steps;
		t->limits.n_memory = limits->n_memory ? limits->n_memory : t->limits.n_memory;
		t->limits.n_output = limits->n_output ? limits->n_output : t->limits.n_output;
		t->limits.n_depth = limits->n_depth ? limits->n_depth : t->limits.n_depth;
	}
	pool_limit(&t->pool, &t->limits, err);
	if (setjmp(t->pool.escape)) {
		enum lap_status status = t->pool.status;
		template_destroy(t);
		return status;
	}
	t->statements = template_parse(&t->pool, text, n_bytes);
	t->pool.err = NULL;
	*out = t;
	return LAP_OK;
}

void template_destroy(struct template *t)
{
	if (t)
		pool_free(&t->pool);
	free(t);
}

static struct value read_json(struct pool *p, struct template_json json, const char *what)
{
	return json.text ? json_read(p, json.text, json.n, what) : value_none();
}

static void set(struct pool *p, struct value names, const char *name, struct value v)
{
	dict_set(p, names.dict, value_text(name), v);
}

/* The variables of a template. Tools and documents are null when there are none, as in Hugging Face's
 * own rendering. */
static struct value input_names(struct pool *p, const struct template_input *in)
{
	struct value names = value_dict(p, VALUE_DICT);
	struct value messages = read_json(p, in->messages, "the messages");
	struct value tools = read_json(p, in->tools, "the tools");
	struct value kwargs = read_json(p, in->kwargs, "the template's arguments");
	if (messages.kind == VALUE_DICT) {
		const struct value *beside = dict_find_text(p, messages.dict, "tools");
		const struct value *list = dict_find_text(p, messages.dict, "messages");
		tools = in->tools.text || !beside ? tools : *beside;
		messages = list ? *list : value_none();
	}
	if (messages.kind != VALUE_LIST)
		pool_fail(p,
			"the messages: found %s, expected a list, or an object with a list "
			"\"messages\"",
			value_type(messages));
	if (tools.kind != VALUE_LIST && tools.kind != VALUE_NONE)
		pool_fail(p, "the tools: found %s, expected a list", value_type(tools));
	if (kwargs.kind != VALUE_DICT && kwargs.kind != VALUE_NONE)
		pool_fail(p, "the template's arguments: found %s, expected an object",
			value_type(kwargs));
	set(p, names, "messages", messages);
	set(p, names, "tools", tools);
	set(p, names, "documents", value_none());
	set(p, names, "add_generation_prompt", value_bool(in->add_generation_prompt));
	if (in->bos)
		set(p, names, "bos_token", value_text(in->bos));
	if (in->eos)
		set(p, names, "eos_token", value_text(in->eos));
	for (size_t i = 0; kwargs.kind == VALUE_DICT && i < kwargs.dict->n; i++)
		dict_set(p, names.dict, kwargs.dict->entries[i].key, kwargs.dict->entries[i].value);
	return names;
}

/* The run itself, in a frame of its own: what is changed here need not survive the jump. */
static enum lap_status render(struct pool *p, const struct template *t,
	const struct template_input *in, const struct tm *now, struct value *text)
{
	if (setjmp(p->escape))
		return p->status;
	*text = template_run(p, t->statements, input_names(p, in), now);
	return LAP_OK;
}

enum lap_status template_render(const struct template *t, const struct template_input *in,
	struct text *out, struct lap_error *err)
{
	struct pool pool = {0};
	struct tm local = {0};
	struct value text = value_none();
	time_t seconds = time(NULL);
	pool_limit(&pool, &t->limits, err);
	if (!in->now)
		localtime_r(&seconds, &local);
	enum lap_status status = render(&pool, t, in, in->now ? in->now : &local, &text);
	if (!status && !text_append(out, text.s, text.n))
		status = fail_memory(err, "the rendered chat", text.n);
	pool_free(&pool);
	return status;
}
