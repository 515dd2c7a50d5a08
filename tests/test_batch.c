/* Sequences on the CPU reference: batches, sharing, running out, contexts that overflow, options of a
 * request. */
#include "batch.h"

#include "tokenizer.h"

static const char *demo(void)
{
	return source_path("models/austen.gguf");
}

/* Small enough for a slow reference. */
static const char *tiny(void)
{
	return vector_path("golden/llama-freqs.gguf");
}

Test(batch, equals_alone)
{
	batch_equals_alone(tiny(), "cpu");
}

Test(batch, runs_out)
{
	batch_runs_out(tiny(), "cpu");
}

Test(batch, one_bad_request_of_three)
{
	struct lap_model *m = open_model(demo(), "cpu");
	const struct lap_session_options so = {.n_seq = 2};
	struct lap_session *s = open_session(m, &so);
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = 4},
				    bad = {.sampling = greedy(), .n_predict = -7};
	struct lap_logit_bias biases[32];
	const int32_t banned = 40;
	for (int32_t i = 0; i < 32; i++)
		biases[i] = (struct lap_logit_bias){i, 1};
	struct lap_generate_options crowded = o;
	crowded.sampling.logit_bias = biases;
	crowded.sampling.n_logit_bias = 32;
	crowded.banned = &banned;
	crowded.n_banned = 1;
	struct collected c[3] = {{.n = 0}};
	const int32_t prompt[] = {319, 364, 313};
	struct lap_request r[3] = {{prompt, 3, &o, collect, &c[0], {0}, LAP_OK, {0}},
		{prompt, 3, &bad, collect, &c[1], {0}, LAP_OK, {0}},
		{prompt, 3, &o, collect, &c[2], {0}, LAP_OK, {0}}};
	cr_assert_eq(lap_generate_batch(s, r, 3, NULL), LAP_OK);
	cr_expect_eq(r[0].status, LAP_OK);
	cr_expect_eq(r[1].status, LAP_USAGE);
	cr_expect(strstr(r[1].error.text, "n_predict is -7"), "%s", r[1].error.text);
	cr_expect_eq(r[2].status, LAP_OK);
	cr_expect_eq(c[0].n, 4);
	cr_expect_eq(c[1].n, 0);
	expect_same(&c[0], &c[2], "the same twice", "");
	/* one that is refused when its turn comes */
	r[1].options = &crowded;
	c[0].n = c[2].n = 0;
	cr_assert_eq(lap_generate_batch(s, r, 3, NULL), LAP_OK);
	cr_expect_eq(r[1].status, LAP_USAGE);
	cr_expect(strstr(r[1].error.text, "one logit bias too many"), "%s", r[1].error.text);
	cr_expect_eq(c[0].n, 4);
	cr_expect_eq(c[2].n, 4);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* A beginning that two prompts have in common is computed once. */
Test(batch, common_beginnings)
{
	struct lap_model *m = open_model(demo(), "cpu");
	const struct lap_session_options so = {.n_seq = 2, .n_batch = 16};
	struct lap_session *s = open_session(m, &so);
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = 4};
	int32_t prompt[2][60];
	for (int32_t i = 0; i < 60; i++)
		prompt[0][i] = prompt[1][i] = 300 + i * 31 % 500;
	prompt[1][50] = 7;
	struct lap_request r[2] = {{prompt[0], 60, &o, NULL, NULL, {0}, LAP_OK, {0}},
		{prompt[1], 60, &o, NULL, NULL, {0}, LAP_OK, {0}}};
	cr_assert_eq(lap_generate_batch(s, r, 2, NULL), LAP_OK);
	cr_expect_eq(r[0].result.n_reused, 0);
	cr_expect_eq(r[1].result.n_reused, 50);
	cr_expect_eq(s->full.n_free, s->full.n_blocks - 3, "one block of 32 is shared");
	lap_session_destroy(s);
	lap_model_close(m);
}

/* Each has the context that it has alone, and the pool what they have together. */
Test(batch, a_context_for_each)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options one = {.n_ctx = 48},
					 each = {.n_ctx = 1000, .n_ctx_seq = 48, .n_seq = 3};
	struct lap_session *s[2] = {open_session(m, &one), open_session(m, &each)};
	struct lap_memory_plan plan;
	cr_assert_eq(lap_session_memory(m, &each, &plan, NULL), LAP_OK);
	cr_expect_eq(plan.n_ctx, 3 * 48, "no more than all can use");
	cr_expect_eq(lap_session_n_ctx(s[1]), 48);
	const struct lap_generate_options o = {.sampling = greedy(), .n_predict = LAP_UNTIL_FULL};
	const int32_t prompt[] = {11, 12, 13, 14};
	static struct collected alone, c[3];
	cr_assert_eq(lap_generate(s[0], prompt, 4, &o, collect, &alone, NULL, NULL), LAP_OK);
	cr_expect_eq(alone.n, 44);
	struct lap_request r[3];
	for (size_t i = 0; i < 3; i++)
		r[i] = (struct lap_request){prompt, 4, &o, collect, &c[i], {0}, LAP_OK, {0}};
	cr_assert_eq(lap_generate_batch(s[1], r, 3, NULL), LAP_OK);
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(r[i].status, LAP_OK, "%s", r[i].error.text);
		expect_same(&alone, &c[i], "a context for each", "");
	}
	lap_session_destroy(s[0]);
	lap_session_destroy(s[1]);
	lap_model_close(m);
}

/* ---- contexts that overflow ---- */

Test(batch, shift)
{
	static struct collected kept, all;
	struct lap_generation r;
	overflow(tiny(), "cpu", LAP_KV_F32, LAP_OVERFLOW_SHIFT, 4, &kept, &r);
	cr_expect_eq(kept.n, 300);
	/* 57 tokens fill the context, then each shift of 64 - 4 makes room for 30. */
	cr_expect_eq(r.n_shifts, (300 - 57 - 1) / 30 + 1);
	cr_expect_leq(r.kv_tokens, 64);
	overflow(tiny(), "cpu", LAP_KV_F32, LAP_OVERFLOW_STOP, 0, &all, &r);
	cr_expect_eq(all.n, 57);
	cr_expect_eq(r.n_shifts, 0);
	for (size_t i = 0; i <= 57 && i < all.n; i++)
		cr_expect_eq(kept.ids[i], all.ids[i], "before the first shift nothing differs");
}

Test(batch, shift_of_every_type)
{
	static const enum lap_kv_type types[] = {LAP_KV_F16, LAP_KV_Q8_0, LAP_KV_Q4_0};
	static struct collected c;
	struct lap_generation r;
	for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
		overflow(tiny(), "cpu", types[i], LAP_OVERFLOW_SHIFT, 0, &c, &r);
		cr_expect_eq(c.n, 300);
	}
}

/* The model sees the last 64 tokens alone, from position 0. */
Test(batch, crop)
{
	static struct collected c;
	struct lap_generation r;
	struct lap_error err = {0};
	overflow(tiny(), "cpu", LAP_KV_F32, LAP_OVERFLOW_CROP, 0, &c, &r);
	cr_assert_eq(c.n, N_CROPPED);
	cr_expect_eq(r.n_shifts, N_CROPPED - 58);
	int32_t all[7 + N_CROPPED] = {114, 64, 258, 188, 270, 105, 168};
	memcpy(all + 7, c.ids, N_CROPPED * sizeof(int32_t));
	struct lap_model *m = open_model(tiny(), "cpu");
	const struct lap_session_options so = {
		.n_ctx = 65, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	struct lap_session *s = open_session(m, &so);
	const struct lap_generate_options o = {
		.sampling = greedy(), .n_predict = 1, .ignore_eos = true};
	for (size_t at = 65; at < 7 + N_CROPPED; at++) {
		struct collected one = {.n = 0};
		cr_assert_eq(lap_generate(s, all + at - 64, 64, &o, collect, &one, NULL, &err),
			LAP_OK, "%s", err.text);
		cr_expect_eq(one.ids[0], all[at], "token %zu", at);
	}
	lap_session_destroy(s);
	lap_model_close(m);
}

Test(batch, models_that_cannot_shift)
{
	SKIP_WITHOUT("golden/gemma2-plain.gguf");
	static const char *const files[] = {"golden/gemma2-plain.gguf", "golden/gpt2-plain.gguf",
		"golden/lfm2-plain.gguf", "golden/qwen35-plain.gguf"};
	for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
		struct lap_model *m = open_model(shared_path(files[i]), "cpu");
		const struct lap_session_options so = {.n_ctx = 48};
		struct lap_session *s = open_session(m, &so);
		struct lap_generate_options o = {
			.sampling = greedy(), .n_predict = 60, .overflow = LAP_OVERFLOW_SHIFT};
		struct lap_error err = {0};
		struct lap_generation r;
		const int32_t prompt[] = {30, 31, 32};
		cr_expect_eq(lap_generate(s, prompt, 3, &o, NULL, NULL, &r, &err), LAP_USAGE);
		cr_expect(strstr(err.text, "cannot be shifted"), "%s", err.text);
		o.overflow = LAP_OVERFLOW_CROP;
		cr_expect_eq(lap_generate(s, prompt, 3, &o, NULL, NULL, &r, &err), LAP_OK, "%s",
			err.text);
		cr_expect_eq(r.n_generated, 60);
		lap_session_destroy(s);
		lap_model_close(m);
	}
}

/* ---- options of a request ---- */

static struct lap_generation run_demo(const struct lap_session_options *so,
	const struct lap_generate_options *o, struct collected *c)
{
	struct lap_model *m = open_model(demo(), "cpu");
	struct lap_session *s = open_session(m, so);
	struct lap_generation r;
	struct lap_error err = {0};
	const int32_t prompt[] = {
		1114, 364, 258, 1880, 470, 105, 1168, 552, 1759, 728, 787, 44, 332};
	*c = (struct collected){0};
	cr_assert_eq(lap_generate(s, prompt, ARRAY_COUNT(prompt), o, collect, c, &r, &err), LAP_OK,
		"%s", err.text);
	lap_session_destroy(s);
	lap_model_close(m);
	return r;
}

Test(batch, stop_strings)
{
	static struct collected whole, cut;
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = 60, .ignore_eos = true};
	run_demo(NULL, &o, &whole);
	cr_assert_gt(whole.n_text, 40);
	/* whatever 6 bytes from the middle: the text before their first place */
	for (size_t at = 8; at < 40; at += 9) {
		char stop[7] = "";
		strncat(stop, whole.text + at, 6);
		const char *stops[] = {"never in there", stop};
		o.stops = stops;
		o.n_stops = 2;
		struct lap_generation r = run_demo(NULL, &o, &cut);
		size_t n = (size_t)(strstr(whole.text, stop) - whole.text);
		cr_expect_eq(r.finish, LAP_FINISH_STOP);
		cr_expect_eq(cut.n_text, n, "\"%s\" at %zu: \"%s\"", stop, n, cut.text);
		cr_expect_eq(memcmp(cut.text, whole.text, n), 0);
		cr_expect_leq(r.n_generated, whole.n);
	}
	const char *never[] = {"never in there", whole.text + whole.n_text - 3};
	o.stops = never;
	o.n_stops = 1;
	cr_expect_eq(run_demo(NULL, &o, &cut).finish, LAP_FINISH_LENGTH);
	cr_expect_str_eq(cut.text, whole.text, "what was held back comes at the end");
}

Test(batch, tokens_that_stop_or_are_banned)
{
	static struct collected plain, c;
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = 40, .ignore_eos = true};
	run_demo(NULL, &o, &plain);
	const int32_t token = plain.ids[9];
	size_t first = 0;
	while (plain.ids[first] != token)
		first++;
	o.stop_tokens = &token;
	o.n_stop_tokens = 1;
	struct lap_generation r = run_demo(NULL, &o, &c);
	cr_expect_eq(r.finish, LAP_FINISH_STOP);
	cr_expect_eq(c.n, first + 1);
	o.min_tokens = 25;
	r = run_demo(NULL, &o, &c);
	cr_expect_geq(c.n, 26);
	for (size_t i = 0; i < 25; i++)
		cr_expect_neq(c.ids[i], token);
	o = (struct lap_generate_options){.sampling = greedy(),
		.n_predict = 40,
		.ignore_eos = true,
		.banned = &token,
		.n_banned = 1};
	run_demo(NULL, &o, &c);
	cr_expect_eq(c.n, 40);
	for (size_t i = 0; i < 40; i++)
		cr_expect_neq(c.ids[i], token);
}

Test(batch, time_limit)
{
	static struct collected c;
	struct lap_generate_options o = {
		.sampling = greedy(), .n_predict = 1000, .ignore_eos = true, .max_seconds = 1e-9};
	struct lap_generation r = run_demo(NULL, &o, &c);
	cr_expect_eq(r.finish, LAP_FINISH_TIME);
	cr_expect_eq(c.n, 1);
}

/* -2 goes on behind the end of a text, to the last position. */
Test(batch, until_full)
{
	static struct collected c;
	const struct lap_session_options so = {.n_ctx = 128};
	struct lap_generate_options o = {.sampling = greedy(), .n_predict = LAP_UNTIL_FULL};
	struct lap_generation r = run_demo(&so, &o, &c);
	cr_expect_eq(r.finish, LAP_FINISH_LENGTH);
	cr_expect_eq(c.n, 128 - 13);
}

/* ---- log-probabilities ---- */

struct tops {
	size_t n;
	double worst;
	float *logits; /* of a fresh session, after each token */
	const struct lap_model *m;
	size_t n_prompt;
};

static bool check_top(void *user, const struct lap_token *token)
{
	struct tops *t = user;
	const uint32_t n_vocab = lap_model_info(t->m)->n_vocab;
	const float *logits = t->logits + (t->n_prompt - 1 + t->n) * n_vocab;
	double sum = 0;
	if (token->id < 0)
		return true;
	cr_assert_eq(token->n_top, 5);
	for (uint32_t i = 0; i < n_vocab; i++)
		sum += exp((double)logits[i]);
	for (uint32_t i = 0; i < 5; i++) {
		double expected = (double)logits[token->top[i].token] - log(sum);
		t->worst = fmax(t->worst, fabs(expected - (double)token->top[i].log_prob));
		if (i)
			cr_assert_leq(token->top[i].log_prob, token->top[i - 1].log_prob);
	}
	cr_assert_eq(token->top[0].token, token->id, "greedy takes the best");
	cr_assert_eq(token->top[0].log_prob, token->log_prob);
	t->n++;
	return true;
}

Test(batch, log_probabilities)
{
	struct lap_model *m = open_model(demo(), "cpu");
	static struct collected c;
	const struct lap_session_options so = {
		.n_top = 5, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	const struct lap_session_options full = {
		.logits_all = true, .type_k = LAP_KV_F32, .type_v = LAP_KV_F32};
	struct lap_generate_options o = {
		.sampling = greedy(), .n_predict = 20, .ignore_eos = true, .n_top = 5};
	int32_t tokens[23] = {319, 364, 313};
	struct lap_error err = {0};
	struct lap_session *s = open_session(m, &so), *all = open_session(m, &full);
	cr_assert_eq(lap_generate(s, tokens, 3, &o, collect, &c, NULL, &err), LAP_OK);
	memcpy(tokens + 3, c.ids, 20 * sizeof(int32_t));
	struct tops t = {.m = m,
		.n_prompt = 3,
		.logits = calloc(23 * (size_t)lap_model_info(m)->n_vocab, sizeof(float))};
	cr_assert_eq(lap_session_logits(all, tokens, 23, t.logits, &err), LAP_OK);
	cr_assert_eq(lap_generate(s, tokens, 3, &o, check_top, &t, NULL, &err), LAP_OK);
	cr_expect_eq(t.n, 20);
	cr_expect_lt(t.worst, 1e-4, "%.2e", t.worst);
	o.n_top = 6;
	cr_expect_eq(lap_generate(s, tokens, 3, &o, NULL, NULL, NULL, &err), LAP_USAGE);
	free(t.logits);
	lap_session_destroy(s);
	lap_session_destroy(all);
	lap_model_close(m);
}

/* ---- grammars ---- */

Test(batch, grammars)
{
	static struct collected c;
	static const struct {
		const char *grammar, *schema, *starts;
	} cases[] = {
		{"root ::= (\"yes\" | \"no\") \".\" [0-9]{3}", NULL, NULL},
		{NULL,
			"{\"type\":\"object\",\"properties\":{\"age\":{\"type\":\"integer\"},"
			"\"ok\":{\"type\":\"boolean\"}},\"required\":[\"age\",\"ok\"]}",
			"{"},
	};
	for (size_t i = 0; i < 4; i++) {
		struct lap_generate_options o = {.sampling = i < 2 ? greedy() : warm(),
			.n_predict = 120,
			.grammar = cases[i % 2].grammar,
			.json_schema = cases[i % 2].schema};
		if (i == 3) /* the chain takes masks, too */
			o.sampling.typical_p = 0.95f;
		struct lap_generation r = run_demo(NULL, &o, &c);
		json_error_t error;
		if (i % 2) {
			json_t *json = json_loads(c.text, 0, &error);
			if (r.finish == LAP_FINISH_STOP) {
				cr_assert(json, "%s: %s", c.text, error.text);
				cr_expect(json_is_integer(json_object_get(json, "age")));
				cr_expect(json_is_boolean(json_object_get(json, "ok")));
			}
			cr_expect_eq(c.text[0], '{', "%s", c.text);
			json_decref(json);
		} else {
			int digits = 0, n = 0;
			cr_expect_eq(r.finish, LAP_FINISH_STOP, "%s", c.text);
			cr_expect(sscanf(c.text, "yes.%3d%n", &digits, &n) == 1 ||
					sscanf(c.text, "no.%3d%n", &digits, &n) == 1,
				"%s", c.text);
			cr_expect_eq(c.text[n], '\0', "%s", c.text);
		}
	}
	struct lap_model *m = open_model(demo(), "cpu");
	struct lap_session *s = open_session(m, NULL);
	struct lap_error err = {0};
	struct lap_generate_options bad = {.n_predict = 3, .grammar = "root ::= \"a\"\n| missing"};
	const int32_t prompt[] = {319, 364};
	cr_expect_eq(lap_generate(s, prompt, 2, &bad, NULL, NULL, NULL, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "missing"), "%s", err.text);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* A grammar beside others that have none: these draw as alone. */
Test(batch, a_grammar_among_others)
{
	struct lap_model *m = open_model(demo(), "cpu");
	const struct lap_session_options so = {.n_seq = 2};
	struct lap_session *s = open_session(m, &so);
	static struct collected alone, c[2];
	const int32_t prompt[] = {319, 364, 313};
	struct lap_generate_options plain = {.sampling = warm(), .n_predict = 30},
				    digits = {.sampling = warm(),
					    .n_predict = 30,
					    .grammar = "root ::= [0-9]{8}"};
	struct lap_request r[] = {{prompt, 3, &digits, collect, &c[0], {0}, LAP_OK, {0}},
		{prompt, 3, &plain, collect, &c[1], {0}, LAP_OK, {0}}};
	cr_assert_eq(lap_generate(s, prompt, 3, &plain, collect, &alone, NULL, NULL), LAP_OK);
	cr_assert_eq(lap_generate_batch(s, r, 2, NULL), LAP_OK);
	cr_expect_eq(strspn(c[0].text, "0123456789"), 8);
	cr_expect_eq(c[0].n_text, 8);
	expect_same(&c[1], &alone, "beside a grammar", "");
	lap_session_destroy(s);
	lap_model_close(m);
}
