/* What a session promises whatever the circumstances: the same bits for the same work, nothing read that
 * was not written, every length right.  OB-nn: public reports of such engines. */
#include "models.h"

static const char *tiny(void)
{
	return vector_path("golden/llama-freqs.gguf");
}

static void fill_prompt(int32_t *tokens, size_t n, int32_t n_vocab)
{
	for (size_t i = 0; i < n; i++)
		tokens[i] = (int32_t)(3 + i * 37 % 251) % n_vocab;
}

static uint64_t hash_of(const void *bytes, size_t n)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
	return hash;
}

static uint64_t hash_logits(struct lap_session *s, const int32_t *tokens, size_t n)
{
	const size_t n_floats = n * lap_model_info(s->m)->n_vocab;
	float *logits = malloc(n_floats * sizeof(float));
	struct lap_error err = {0};
	lap_session_clear(s);
	cr_assert_eq(lap_session_logits(s, tokens, n, logits, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0; i < n_floats; i++)
		cr_assert(isfinite(logits[i]), "logit %zu", i);
	uint64_t hash = hash_of(logits, n_floats * sizeof(float));
	free(logits);
	return hash;
}

/* OB-06: the same prompt of 600 tokens gives the same logits, 20 times. */
Test(vk_promises, equal_runs)
{
	struct lap_model *m = open_model(tiny(), NULL);
	const struct lap_session_options so = {.n_ctx = 700, .logits_all = true};
	struct lap_session *s = open_session(m, &so);
	int32_t tokens[600];
	fill_prompt(tokens, 600, (int32_t)lap_model_info(m)->n_vocab);
	const size_t n = test_small() ? 100 : 600;
	const uint64_t first = hash_logits(s, tokens, n);
	for (int i = 1; i < (test_small() ? 4 : 20); i++)
		cr_assert_eq(hash_logits(s, tokens, n), first, "run %d", i);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* All products of the prompt whose parts have room are split in two from now on; returns how many are. */
static uint32_t split_products(struct lap_session *s)
{
	struct backend *b = s->m->backend;
	struct lap_error err = {0};
	struct plan plan;
	uint32_t n = 0;
	cr_assert_eq(session_plan(s, ROLE_PREFILL, STEP_LOGITS, 0, &plan, &err), LAP_OK);
	for (uint32_t i = 0; i < plan.n_ops; i++) {
		struct tuned found = {.of = op_class(&plan.ops[i])};
		uint32_t *split = knob_value(plan.ops[i].kernel, found.knobs, "SPLIT");
		if (!split)
			continue;
		b->ops->knobs_untuned(b, &plan.ops[i], found.knobs);
		*split = 2;
		cr_assert(tuning_put(b->tuning, &found));
		b->ops->knobs(b, &plan.ops[i], found.knobs);
		n += *split == 2;
	}
	plan_free(&plan);
	return n;
}

/* On GPUs products of few tiles are split, as the device was tuned. */
Test(vk_promises, split_products)
{
	const struct lap_session_options so = {.n_ctx = 100, .logits_all = true};
	int32_t tokens[70];
	uint64_t hashes[2];
	setenv("LAPILLI_SHARED_TILES", "1", 1);
	struct lap_model *m = open_model(tiny(), NULL);
	fill_prompt(tokens, 70, (int32_t)lap_model_info(m)->n_vocab);
	for (int i = 0; i < 2; i++) {
		struct lap_session *s = open_session(m, &so);
		cr_expect_gt(s->step_buffers.parts.n_bytes, 0);
		if (i == 1)
			cr_assert_gt(split_products(s), 0);
		hashes[i] = hash_logits(s, tokens, 70);
		lap_session_destroy(s);
	}
	cr_expect_eq(hashes[0], hashes[1]);
	lap_model_close(m);
}

static void prompt_logits(struct lap_session *s, const int32_t *tokens, uint32_t n, float *logits)
{
	struct lap_error err = {0};
	lap_session_clear(s);
	cr_assert_eq(session_prefill(s, s->timelines, tokens, n - 1, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(session_step(s, tokens[n - 1], logits, &err), LAP_OK, "%s", err.text);
}

/* Where products are split by how many rows there are, short prompts have a recording of their own. */
Test(vk_promises, prompts_of_few_rows)
{
	static const uint32_t lengths[] = {2, 40, 65, 66, 129, 200};
	/* However slow the device is just now, chunks have 128 rows. */
	const struct lap_session_options so = {
		.n_ctx = 250, .n_batch = 128, .max_submit_seconds = 1000};
	int32_t tokens[200];
	setenv("LAPILLI_SHARED_TILES", "1", 1);
	struct lap_model *m = open_model(tiny(), NULL);
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	float *found = malloc(n_vocab * sizeof(float)), *expected = malloc(n_vocab * sizeof(float));
	fill_prompt(tokens, 200, (int32_t)n_vocab);
	struct lap_session *s = open_session(m, &so), *one = open_session(m, &so);
	cr_assert_eq(s->n_few, 64);
	cr_assert_gt(split_products(s), 0);
	one->n_few = 0;
	for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
		prompt_logits(s, tokens, lengths[i], found);
		prompt_logits(one, tokens, lengths[i], expected);
		cr_expect_arr_eq(found, expected, n_vocab * sizeof(float), "%u", lengths[i]);
		cr_expect_eq(s->counts.prefill_recordings, lengths[i] < 66 ? 1 : 2);
		cr_expect_eq(one->counts.prefill_recordings, 1);
	}
	lap_session_destroy(s);
	lap_session_destroy(one);
	lap_model_close(m);
	free(found);
	free(expected);
}

static void fill_cache(struct lap_session *s, uint32_t word)
{
	const struct backend_ops *ops = s->m->backend->ops;
	struct lap_error err = {0};
	for (uint32_t il = 0; il < s->m->model->h.n_layer; il++)
		for (int i = 0; i < 2; i++) {
			const struct view v = i ? s->kv.layers[il].v : s->kv.layers[il].k;
			uint32_t *words = malloc(v.n_bytes);
			for (uint64_t w = 0; w < v.n_bytes / 4; w++)
				words[w] = word;
			cr_assert_eq(ops->write(s->m->backend, v, words, v.n_bytes, &err), LAP_OK);
			free(words);
		}
}

/* OB-03: what lies in the cache where nothing was written does not matter: NaN or 0, the same bits, in
 * prefill and decode. */
Test(vk_promises, stale_cache)
{
	static const enum lap_kv_type types[] = {LAP_KV_F32, LAP_KV_F16};
	static const uint32_t lengths[] = {32, 64, 96, 48, 1, 127};
	struct lap_model *m = open_model(tiny(), NULL);
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	int32_t tokens[128];
	fill_prompt(tokens, 128, (int32_t)n_vocab);
	float *clean = malloc(128 * n_vocab * sizeof(float));
	float *stale = malloc(128 * n_vocab * sizeof(float));
	struct lap_error err = {0};
	for (size_t type = 0; type < ARRAY_COUNT(types); type++) {
		const struct lap_session_options so = {.n_ctx = 128,
			.logits_all = true,
			.type_k = types[type],
			.type_v = types[type]};
		struct lap_session *s = open_session(m, &so);
		for (size_t i = 0; i < ARRAY_COUNT(lengths); i++)
			for (int decode = 0; decode < 2; decode++)
				for (int is_stale = 0; is_stale < 2; is_stale++) {
					float *logits = is_stale ? stale : clean;
					const uint32_t n = lengths[i];
					lap_session_clear(s);
					fill_cache(s, is_stale ? 0xffffffffu : 0);
					cr_assert_eq(lap_session_logits(s, tokens,
							     decode ? n - 1 : n, logits, &err),
						LAP_OK, "%s", err.text);
					if (decode)
						cr_assert_eq(
							session_step(s, tokens[n - 1],
								logits + (n - 1) * n_vocab, &err),
							LAP_OK, "%s", err.text);
					if (is_stale)
						cr_expect_arr_eq(stale, clean,
							n * n_vocab * sizeof(float),
							"%u positions, decode %d", n, decode);
				}
		lap_session_destroy(s);
	}
	free(clean);
	free(stale);
	lap_model_close(m);
}

/* OB-07: a prompt of 513 tokens in chunks of any size: the same bits. */
Test(vk_promises, any_chunk)
{
	static const uint32_t batches[] = {1, 2, 31, 32, 33, 64, 511, 512, 513};
	struct lap_model *m = open_model(tiny(), NULL);
	int32_t tokens[513];
	fill_prompt(tokens, 513, (int32_t)lap_model_info(m)->n_vocab);
	const size_t n = test_small() ? 70 : 513;
	struct collected c[2] = {{.n = 0}};
	float log_probs[2] = {0};
	for (size_t i = 0; i < ARRAY_COUNT(batches); i++) {
		const struct lap_session_options so = {
			.n_ctx = 600, .n_batch = batches[i], .n_top = 1};
		const struct lap_generate_options o = {.n_predict = 8, .ignore_eos = true};
		struct lap_session *s = open_session(m, &so);
		struct lap_error err = {0};
		struct collected *to = &c[i != 0];
		to->n = 0;
		cr_assert_eq(lap_generate(s, tokens, n, &o, collect, to, NULL, &err), LAP_OK, "%s",
			err.text);
		log_probs[i != 0] = to->log_prob;
		cr_expect_arr_eq(
			c[i != 0].ids, c[0].ids, 8 * sizeof(int32_t), "chunks of %u", batches[i]);
		cr_expect_eq(log_probs[i != 0], log_probs[0], "chunks of %u", batches[i]);
		lap_session_destroy(s);
	}
	lap_model_close(m);
}

/* Every length from 1 on, prefilled at once and decoded one by one, gives the reference's logits. */
Test(vk_promises, every_length)
{
	const uint32_t n_all = test_small() ? 40 : 200;
	struct lap_model *vk = open_model(tiny(), NULL), *cpu = open_model(tiny(), "cpu");
	const uint32_t n_vocab = lap_model_info(vk)->n_vocab;
	const struct lap_session_options so = {.n_ctx = 256,
		.n_batch = 256,
		.logits_all = true,
		.type_k = LAP_KV_F32,
		.type_v = LAP_KV_F32};
	struct lap_session *a = open_session(vk, &so), *b = open_session(cpu, &so);
	float *found = malloc((size_t)n_all * n_vocab * sizeof(float));
	float *expected = malloc((size_t)n_all * n_vocab * sizeof(float));
	int32_t tokens[200];
	struct lap_error err = {0};
	fill_prompt(tokens, 200, (int32_t)n_vocab);
	cr_assert_eq(lap_session_logits(b, tokens, n_all, expected, &err), LAP_OK, "%s", err.text);
	for (uint32_t n = 1; n <= n_all; n++)
		for (int decode = 0; decode < 2; decode++) {
			const float *last = found + (size_t)(decode ? 0 : n - 1) * n_vocab;
			const float *right = expected + (size_t)(n - 1) * n_vocab;
			double error = 0, norm = 0;
			if (!decode || n == 1)
				lap_session_clear(a);
			if (decode) {
				/* behind what prefill left: n - 1 tokens of n */
				timeline_truncate(a, a->timelines, n - 1);
				cr_assert_eq(session_step(a, tokens[n - 1], found, &err), LAP_OK,
					"%s", err.text);
			} else
				cr_assert_eq(lap_session_logits(a, tokens, n, found, &err), LAP_OK,
					"%s", err.text);
			for (uint32_t i = 0; i < n_vocab; i++) {
				double d = (double)last[i] - (double)right[i];
				error += d * d;
				norm += (double)right[i] * (double)right[i];
			}
			cr_assert_lt(error / norm, 1e-9, "%u tokens, %s: NMSE %.2e", n,
				decode ? "decode" : "prefill", error / norm);
		}
	free(found);
	free(expected);
	lap_session_destroy(a);
	lap_session_destroy(b);
	lap_model_close(vk);
	lap_model_close(cpu);
}

/* OB-05: a row's number times the vocabulary passes 2^31: found by the index, not by running it. */
Test(vk_promises, large_rows)
{
	static const struct {
		uint64_t row;
		uint32_t n_vocab;
		uint64_t index;
	} cases[] = {{14242, 152064, 2165695488}, {12031, 248320, 2987537920},
		{8192, 262144, 2147483648}, {16384, 131136, 2148532224}};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const struct rows rows = {
			.n = cases[i].n_vocab, .stride = ROW_STRIDE(cases[i].n_vocab)};
		cr_assert_eq(rows.stride, rows.n);
		const struct view v = rows_view(rows, cases[i].row, 2);
		cr_expect_eq(v.offset, cases[i].index * sizeof(float));
		cr_expect_eq(v.n_bytes, (uint64_t)cases[i].n_vocab * 2 * sizeof(float));
	}
}
