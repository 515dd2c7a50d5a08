/* Sequences in files: what is restored is what was saved; what is not such a file is refused. */
#include "prompt_cache.h"

#include <sys/stat.h>
#include <xxhash.h>

static const char *tiny(void)
{
	return vector_path("golden/llama-freqs.gguf");
}

/* Offsets in the file: see struct cache_header. */
enum {
	AT_FORMAT = 8,
	AT_N_TOKENS = 12,
	AT_N_FILE_BYTES = 16,
	AT_MODEL = 24,
	AT_TYPE_V = 44,
	AT_FIRST_WINDOW = 48,
	AT_Q8 = 56,
	AT_LAPILLI = 64,
	AT_DEVICE = 80,
	AT_TOKENS = 208,
};

Test(prompt_cache, same_bits_as_a_fresh_run)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	static const enum lap_kv_type types[] = {LAP_KV_F16, LAP_KV_F32, LAP_KV_Q8_0, LAP_KV_Q4_0};
	for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
		struct lap_session_options o = {.n_ctx = 256,
			.type_k = types[i],
			.type_v = types[(i + 1) % ARRAY_COUNT(types)],
			.n_batch = 24};
		round_trip(m, &o, 80, 100, 79, "longer");
		o.n_seq = 3;
		round_trip(m, &o, 33, 33, 32, "the same");
		round_trip(m, &o, 80, 60, 59, "shorter");
	}
	lap_model_close(m);
}

Test(prompt_cache, windows)
{
	SKIP_WITHOUT("golden/gemma3-plain.gguf");
	struct lap_model *m = open_model(shared_path("golden/gemma3-plain.gguf"), "cpu");
	const struct lap_session_options o = {.n_ctx = 512, .n_batch = 32};
	round_trip(m, &o, 400, 420, 399, "longer than the window");
	round_trip(m, &o, 20, 60, 19, "a few");
	lap_model_close(m);
}

/* A session with less room for windows takes what it needs; one that let go of it does not save. */
Test(prompt_cache, windows_of_other_sizes)
{
	SKIP_WITHOUT("golden/gemma3-plain.gguf");
	struct lap_model *m = open_model(shared_path("golden/gemma3-plain.gguf"), "cpu");
	const struct lap_session_options wide = {.n_ctx = 512, .n_batch = 512},
					 narrow = {.n_ctx = 512, .n_batch = 32};
	struct drawn expected, got;
	struct lap_error err;
	struct lap_session *s = open_session(m, &wide);
	draw(s, 400, &got);
	cr_expect_eq(s->timelines[0].window.first, 0, "all is held");
	save(s, own_path("wide.cache"));
	lap_session_destroy(s);

	s = open_session(m, &narrow);
	draw(s, 450, &expected);
	lap_session_clear(s);
	cr_assert_lt(s->window.n_blocks, 400 / KV_BLOCK);
	load(s, own_path("wide.cache"));
	cr_expect_gt(s->timelines[0].window.first, 0);
	cr_expect_eq(draw(s, 450, &got), 399);
	expect_same_bits(&got, &expected, "wide to narrow");
	s->timelines[0].n_past = 460;
	timeline_forget(s, &s->timelines[0]);
	s->timelines[0].n_prefill = 100;
	cr_expect_eq(lap_session_save(s, own_path("none.cache"), &err), LAP_USAGE);
	cr_expect(strstr(err.text, "let go of the prompt of 100 tokens"), "%s", err.text);
	lap_session_destroy(s);
	lap_model_close(m);
}

/* Layers that look at another layer's keys have none of their own in the file. */
Test(prompt_cache, other_families)
{
	static const char *const files[] = {"golden/gpt2-plain.gguf", "golden/llama-moe.gguf",
		"golden/gemma2-plain.gguf", "golden/qwen3-plain.gguf"};
	for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
		SKIP_WITHOUT("golden/gpt2-plain.gguf");
		struct lap_model *m = open_model(shared_path(files[i]), "cpu");
		const struct lap_session_options o = {.n_ctx = 128};
		round_trip(m, &o, 50, 60, 49, files[i]);
		lap_model_close(m);
	}
}

/* ---- files that are refused -------------------------------------------------------------------- */

static char *small_file(struct lap_model *m, size_t n_tokens, size_t *n)
{
	struct drawn d;
	struct lap_session *s = open_session(m, NULL);
	draw(s, n_tokens + 1, &d);
	save(s, own_path("small.cache"));
	lap_session_destroy(s);
	return read_text(own_path("small.cache"), n);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
	FILE *file = fopen(path, "wb");
	cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

/* The session, which holds 40 tokens, refuses the bytes and keeps them. */
static void refuse(struct lap_session *s, const void *bytes, size_t n, enum lap_status status,
	const char *words)
{
	const char *path = own_path("refused.cache");
	const struct timeline *t = &s->timelines[0], before = *t;
	struct lap_error err = {0};
	write_file(path, bytes, n);
	cr_assert_eq(lap_session_load(s, path, &err), status, "expected \"%s\", found: %s", words,
		err.text);
	cr_assert(strstr(err.text, words), "expected \"%s\", found: %s", words, err.text);
	cr_assert_null(strchr(err.text, '\n'));
	cr_assert(t->n_past == before.n_past && t->n_prefill == before.n_prefill &&
		t->full.n == before.full.n && t->n_prefill == 40);
}

static struct lap_session *with_40_tokens(struct lap_model *m)
{
	struct drawn d;
	struct lap_session *s = open_session(m, NULL);
	draw(s, 41, &d);
	return s;
}

static void seal(char *bytes, size_t n)
{
	uint64_t sum = XXH64(bytes, n - sizeof(sum), 0);
	memcpy(bytes + n - sizeof(sum), &sum, sizeof(sum));
}

Test(prompt_cache, every_length_and_many_bits)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	struct lap_session *s = with_40_tokens(m);
	size_t n;
	char *bytes = small_file(m, 2, &n);
	cr_assert_eq(n, AT_TOKENS + 2 * 4 + 2 * 512 + 8);
	for (size_t i = 0; i < n; i++)
		refuse(s, bytes, i, LAP_IO, i < 12 ? "is no prompt cache" : "is damaged: it has ");
	for (size_t i = 0; i < n; i += i < AT_TOKENS + 8 ? 1 : 5) {
		const bool format = i >= AT_FORMAT && i < AT_N_TOKENS;
		for (size_t bit = i % 3; bit < 8; bit += i < AT_TOKENS ? 1 : 3) {
			bytes[i] = (char)(bytes[i] ^ 1 << bit);
			refuse(s, bytes, n, format ? LAP_USAGE : LAP_IO,
				i < AT_FORMAT    ? "is no prompt cache"
					: format ? "another version of Lapilli"
						 : "is damaged: ");
			bytes[i] = (char)(bytes[i] ^ 1 << bit);
		}
	}
	char *longer = calloc(n + 1, 1);
	memcpy(longer, bytes, n);
	refuse(s, longer, n + 1, LAP_IO, "is damaged: it has ");
	refuse(s, "", 0, LAP_IO, "is no prompt cache");
	refuse(s, "GGUF and more than this", 23, LAP_IO, "is no prompt cache");
	free(longer);

	struct drawn expected, got;
	struct lap_session *fresh = open_session(m, NULL);
	draw(fresh, 50, &expected);
	cr_expect_eq(draw(s, 50, &got), 40, "it still has its tokens");
	expect_same_bits(&got, &expected, "after all");
	free(bytes);
	lap_session_destroy(fresh);
	lap_session_destroy(s);
	lap_model_close(m);
}

static void put_u32(char *bytes, size_t at, uint32_t value)
{
	memcpy(bytes + at, &value, sizeof(value));
}

/* Well-formed, but not for this session; or made to deceive. */
Test(prompt_cache, other_sessions)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	struct lap_session *s = with_40_tokens(m);
	size_t n;
	char *good = small_file(m, 50, &n), *bytes = malloc(n);
	static const struct {
		size_t at;
		uint32_t value;
		enum lap_status status;
		const char *words;
	} cases[] = {
		{AT_MODEL, 1, LAP_USAGE, "another model"},
		{AT_LAPILLI, 0x2e393939, LAP_USAGE, "was written by Lapilli 999."},
		{AT_DEVICE, 0x584b4d, LAP_USAGE, "was computed by MKX; by cpu the numbers"},
		{AT_TYPE_V, LAP_KV_Q8_0, LAP_USAGE,
			"keys as f16 and values as q8_0, the session has f16 and f16"},
		{AT_Q8, 1, LAP_USAGE, "was computed with activations as q8, expected f32"},
		{AT_TYPE_V, 77, LAP_USAGE, "values as ?"},
		{AT_N_TOKENS, 4000000000, LAP_USAGE,
			"has 4000000000 tokens, the context has room for 1024"},
		{AT_N_TOKENS, 1000, LAP_IO, "is damaged: its header is not that of its contents"},
		{AT_N_TOKENS, 51, LAP_IO, "is damaged"},
		{AT_N_TOKENS, 0, LAP_IO, "is damaged"},
		{AT_FIRST_WINDOW, 1, LAP_IO, "is damaged"},
		{AT_FIRST_WINDOW, 0x7fffffff, LAP_IO, "is damaged"},
		{AT_TOKENS + 4, 0xffffffff, LAP_IO, "is damaged"},
		{AT_TOKENS + 4, 320, LAP_IO, "is damaged"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		memcpy(bytes, good, n);
		put_u32(bytes, cases[i].at, cases[i].value);
		seal(bytes, n);
		refuse(s, bytes, n, cases[i].status, cases[i].words);
	}
	/* Too short for its tokens, and says so itself. */
	memcpy(bytes, good, n);
	put_u32(bytes, AT_N_FILE_BYTES, AT_TOKENS + 20);
	put_u32(bytes, AT_N_TOKENS, 900);
	seal(bytes, AT_TOKENS + 20);
	refuse(s, bytes, AT_TOKENS + 20, LAP_IO, "is damaged: no room for its 900 tokens");

	const struct lap_session_options short_context = {.n_ctx = 49};
	struct lap_session *other = open_session(m, &short_context);
	struct lap_error err;
	cr_expect_eq(lap_session_load(other, own_path("small.cache"), &err), LAP_USAGE);
	cr_expect(strstr(err.text, "has 50 tokens, the context has room for 49"), "%s", err.text);
	lap_session_destroy(other);
	lap_session_destroy(s);
	free(bytes);
	free(good);
	lap_model_close(m);
}

/* The same file with another rope, or a sibling, is another model. */
Test(prompt_cache, other_models)
{
	static const char *const override[] = {"llama.rope.freq_base=float:1234.5"};
	struct lap_model *m = open_model(tiny(), "cpu"), *turned;
	struct lap_model *sibling = open_model(vector_path("golden/llama-yarn.gguf"), "cpu");
	const struct lap_model_options o = {
		.device = "cpu", .overrides = override, .n_overrides = 1};
	struct lap_error err;
	size_t n, n_model;
	cr_assert_eq(lap_model_open(tiny(), &o, &turned, &err), LAP_OK, "%s", err.text);
	/* One weight of the last tensor is another. */
	char *file = read_text(tiny(), &n_model);
	file[n_model - 40] ^= 1;
	struct lap_model *tuned;
	const struct lap_model_options plain = {.device = "cpu"};
	cr_assert_eq(lap_model_open_memory(file, n_model, "tuned", &plain, &tuned, &err), LAP_OK);
	char *bytes = small_file(m, 40, &n);
	struct lap_model *const others[] = {turned, sibling, tuned};
	for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
		struct lap_session *s = with_40_tokens(others[i]);
		refuse(s, bytes, n, LAP_USAGE, "another model, or other overrides");
		lap_session_destroy(s);
		lap_model_close(others[i]);
	}
	free(bytes);
	free(file);
	lap_model_close(m);
}

Test(prompt_cache, paths)
{
	struct lap_model *m = open_model(tiny(), "cpu");
	struct lap_session *s = open_session(m, NULL);
	struct lap_error err;
	struct drawn d;
	char path[512];
	cr_expect_eq(lap_session_save(s, own_path("none.cache"), &err), LAP_USAGE);
	cr_expect(strstr(err.text, "no prompt in the session"), "%s", err.text);
	cr_expect_eq(lap_session_load(s, own_path("none.cache"), &err), LAP_IO);
	cr_expect(strstr(err.text, "No such file"), "%s", err.text);
	draw(s, 10, &d);
	snprintf(path, sizeof(path), "%s/no/such/folder", own_path("x"));
	cr_expect_eq(lap_session_save(s, path, &err), LAP_IO);
	cr_expect(strstr(err.text, "No such file"), "%s", err.text);
	cr_expect_eq(lap_session_load(s, source_path("tests"), &err), LAP_IO);
	cr_expect(strstr(err.text, "a directory"), "%s", err.text);
	/* A disk without room: the words of the system, nothing left behind. */
	struct stat st;
	if (stat("/dev/full", &st) == 0) {
		cr_expect_eq(lap_session_save(s, "/dev/full", &err), LAP_IO);
		cr_expect(strstr(err.text, "No space"), "%s", err.text);
	}
	/* An older file is replaced. */
	const char *file = own_path("twice.cache");
	save(s, file);
	draw(s, 60, &d);
	save(s, file);
	lap_session_clear(s);
	load(s, file);
	cr_expect_eq(s->timelines[0].n_past, 59);
	lap_session_destroy(s);
	lap_model_close(m);
}
