/* Model files as an enemy would make them: small files cut at every length of their headers, with every
 * bit of it turned, and with every number of it set to what breaks programs.
 *
 * Each case is opened the way users do, as a model without its weights and, where that is refused, as a
 * vocabulary, in a process that may die alone. Accepted or refused are both fine; a signal, a hang and more
 * memory than 16 times the header and 64 MiB are not. The memory is the address space of the process, which
 * the kernel limits; AddressSanitizer needs more than that for itself, so there it is not looked at. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gguf_builder.h"
#include "lapilli.h"
#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum {
	N_WORKERS = 2,
	MOST_FAILURES = 8,  /* of one test, then it ends */
	MEMORY_FACTOR = 16, /* times the header ... */
	MEMORY_MIB = 64,    /* ... and this; of a large header, by which more could hide, ... */
	MEMORY_MIB_LARGE = 8,
};

/* ---- a file and the numbers in its header ------------------------------------------------------ */

struct field {
	size_t at;
	unsigned n_bytes;
	enum gguf_type type; /* of its value; lengths, counts and types are unsigned */
};

struct subject {
	uint8_t *bytes;
	size_t n, n_header; /* bytes: all, and up to the data of the tensors */
	struct field *fields;
	size_t n_fields, capacity, at;
};

static uint64_t load(const uint8_t *p, unsigned n_bytes)
{
	uint64_t value = 0;
	for (unsigned i = n_bytes; i-- > 0;)
		value = value << 8 | p[i];
	return value;
}

static void store(uint8_t *p, uint64_t value, unsigned n_bytes)
{
	for (unsigned i = 0; i < n_bytes; i++, value >>= 8)
		p[i] = (uint8_t)value;
}

/* The next number: into the list, its value returned. */
static uint64_t number(struct subject *s, unsigned n_bytes, enum gguf_type type)
{
	if (s->n_fields == s->capacity) {
		s->capacity = s->capacity ? 2 * s->capacity : 256;
		s->fields = realloc(s->fields, s->capacity * sizeof *s->fields);
		cr_assert(s->fields);
	}
	cr_assert_leq(s->at + n_bytes, s->n);
	s->fields[s->n_fields++] = (struct field){s->at, n_bytes, type};
	s->at += n_bytes;
	return load(s->bytes + s->at - n_bytes, n_bytes);
}

static void string(struct subject *s)
{
	s->at += (size_t)number(s, 8, GGUF_U64);
}

/* Bytes of a value; 0 where they vary. */
static const unsigned type_bytes[N_GGUF_TYPES] = {[GGUF_U8] = 1,
	[GGUF_I8] = 1,
	[GGUF_U16] = 2,
	[GGUF_I16] = 2,
	[GGUF_U32] = 4,
	[GGUF_I32] = 4,
	[GGUF_F32] = 4,
	[GGUF_BOOL] = 1,
	[GGUF_U64] = 8,
	[GGUF_I64] = 8,
	[GGUF_F64] = 8};

static void value(struct subject *s, enum gguf_type type)
{
	if (type == GGUF_STRING) {
		string(s);
	} else if (type == GGUF_ARRAY) {
		enum gguf_type element = (enum gguf_type)number(s, 4, GGUF_U32);
		uint64_t n = number(s, 8, GGUF_U64);
		for (uint64_t i = 0; i < n; i++)
			value(s, element);
	} else {
		number(s, type_bytes[type], type);
	}
}

/* Finds every number of a valid file's header. Takes over the bytes. */
static struct subject subject_of(uint8_t *bytes, size_t n)
{
	struct subject s = {.bytes = bytes, .n = n, .at = 4};
	number(&s, 4, GGUF_U32);
	uint64_t n_tensors = number(&s, 8, GGUF_U64), n_kv = number(&s, 8, GGUF_U64);
	for (uint64_t i = 0; i < n_kv; i++) {
		string(&s);
		value(&s, (enum gguf_type)number(&s, 4, GGUF_U32));
	}
	for (uint64_t i = 0; i < n_tensors; i++) {
		string(&s);
		uint64_t n_dims = number(&s, 4, GGUF_U32);
		for (uint64_t j = 0; j < n_dims; j++)
			number(&s, 8, GGUF_U64);
		number(&s, 4, GGUF_U32);
		number(&s, 8, GGUF_U64);
	}
	s.n_header = (s.at + 31) / 32 * 32;
	cr_assert_leq(s.n_header, s.n);
	return s;
}

static void subject_free(struct subject *s)
{
	free(s->bytes);
	free(s->fields);
}

/* ---- one case ---------------------------------------------------------------------------------- */

static const double numbers[] = {0, 1, INFINITY /* the largest */, 0x1p31, 0x1p32, 0x1p63};

enum { N_NUMBERS = ARRAY_COUNT(numbers) };

static size_t n_cases(const struct subject *s)
{
	return s->n_header + 8 * s->n_header + N_NUMBERS * s->n_fields + 1;
}

/* Numbers that the field cannot hold become those it holds of them; of floats infinity is the largest. */
static void set_number(uint8_t *at, const struct field *f, double number)
{
	if (f->type == GGUF_F32) {
		float value = (float)number;
		memcpy(at, &value, sizeof value);
	} else if (f->type == GGUF_F64) {
		memcpy(at, &number, sizeof number);
	} else {
		store(at, number < 0x1p64 ? (uint64_t)number : UINT64_MAX, f->n_bytes);
	}
}

/* A case: a file cut, a bit, a number, or the file as it is. */
struct change {
	enum { CUT, BIT, NUMBER, NONE } kind;
	size_t at;      /* bytes that stay, a byte, or a field */
	unsigned which; /* bit, or number */
};

static struct change change_of(const struct subject *s, size_t i)
{
	if (i < s->n_header)
		return (struct change){CUT, i, 0};
	i -= s->n_header;
	if (i < 8 * s->n_header)
		return (struct change){BIT, i / 8, (unsigned)(i % 8)};
	i -= 8 * s->n_header;
	if (i < N_NUMBERS * s->n_fields)
		return (struct change){NUMBER, i / N_NUMBERS, (unsigned)(i % N_NUMBERS)};
	return (struct change){NONE, 0, 0};
}

static void describe(const struct subject *s, size_t i, char out[128])
{
	struct change c = change_of(s, i);
	if (c.kind == CUT)
		snprintf(out, 128, "cut to %zu bytes", c.at);
	else if (c.kind == BIT)
		snprintf(out, 128, "bit %u of byte %zu turned", c.which, c.at);
	else if (c.kind == NUMBER)
		snprintf(out, 128, "the %u bytes at %zu set to %g", s->fields[c.at].n_bytes,
			s->fields[c.at].at, numbers[c.which]);
	else
		snprintf(out, 128, "as it is");
}

/* Text there and back, and the sizes of a session. False, with the reason, when something is not as it
 * may be. */
static bool use_model(struct lap_model *m, bool vocab_only, char why[256])
{
	static const char text[] = "a b<s>ab\n 12345 \xE6\xAD";
	const struct lap_model_info *info = lap_model_info(m);
	struct lap_error err = {0};
	struct lap_memory_plan plan;
	int32_t *ids = NULL;
	size_t n = 0, n_bytes = 0;
	char *back = NULL;
	enum lap_status status = LAP_OK;
	if (info->tokenizer)
		status = lap_tokenize(m, text, sizeof text - 1, true, true, &ids, &n, &err);
	if (!status && info->tokenizer)
		status = lap_detokenize(m, ids, n, true, &back, &n_bytes, &err);
	/* LAP_USAGE: a vocabulary without bytes and without an unknown token */
	bool ok = status == LAP_OK || status == LAP_USAGE;
	lap_free(ids);
	lap_free(back);
	if (ok && !vocab_only) {
		status = lap_session_memory(m, NULL, &plan, &err);
		ok = status == LAP_OK || status == LAP_USAGE;
	}
	if (!ok)
		snprintf(why, 256, "opened, then status %d: %.200s", status, err.text);
	return ok;
}

static bool open_model(const uint8_t *bytes, size_t n, bool vocab_only, bool *opened, char why[256])
{
	const struct lap_model_options options = {
		.device = "cpu", .vocab_only = vocab_only, .no_weights = true};
	struct lap_model *m = NULL;
	struct lap_error err = {0};
	enum lap_status status = lap_model_open_memory(bytes, n, "x.gguf", &options, &m, &err);
	bool ok = status ? status == LAP_BAD_MODEL && err.text[0] && !strchr(err.text, '\n') && !m
			 : use_model(m, vocab_only, why);
	if (status && !ok)
		snprintf(why, 256, "status %d: %.200s", status, err.text);
	lap_model_close(m);
	*opened = status == LAP_OK;
	return ok;
}

/* A model that opens has a vocabulary that does; of one that is refused the vocabulary may be fine. */
static bool open_file(const uint8_t *bytes, size_t n, char why[256])
{
	bool opened;
	return open_model(bytes, n, false, &opened, why) &&
		(opened || open_model(bytes, n, true, &opened, why));
}

/* The file is changed in its place and mended again; a cut one is a copy that ends where it is cut. */
static bool run_case(struct subject *s, size_t i, char why[256])
{
	struct change c = change_of(s, i);
	if (c.kind == CUT) {
		uint8_t *bytes = malloc(c.at ? c.at : 1);
		if (!bytes)
			return false;
		memcpy(bytes, s->bytes, c.at);
		bool ok = open_file(bytes, c.at, why);
		free(bytes);
		return ok;
	}
	struct field f = {c.at, 1, GGUF_U8};
	if (c.kind == NUMBER)
		f = s->fields[c.at];
	uint8_t kept[8], *at = s->bytes + f.at;
	memcpy(kept, at, f.n_bytes);
	if (c.kind == BIT)
		*at ^= (uint8_t)(1u << c.which);
	else if (c.kind == NUMBER)
		set_number(at, &f, numbers[c.which]);
	bool ok = open_file(s->bytes, s->n, why);
	memcpy(at, kept, f.n_bytes);
	return ok;
}

/* ---- the pool ---------------------------------------------------------------------------------- */

/* What a worker tells while it runs, in memory that outlives it. */
struct slot {
	volatile size_t at; /* the case it is in */
	char why[256];      /* when it found something itself */
};

struct worker {
	pid_t pid; /* 0: none */
	size_t step, seen;
	double since; /* when `seen` was new */
	struct slot *slot;
};

struct pool {
	struct subject *s;
	bool (*run)(struct subject *s, size_t i, char why[256]);
	size_t end;          /* of the cases */
	double hang_seconds; /* without a case done */
	unsigned memory_mib; /* beside what the header counts for */
	struct worker workers[N_WORKERS];
	struct text failures; /* a line each */
	unsigned n_failures;
};

/* The address space of this process may grow by what a case may take. */
static bool limit_memory(size_t n_header, unsigned mib)
{
	if (SANITIZED)
		return true;
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	bool ok = file && fscanf(file, "%lu", &pages) == 1;
	if (file)
		fclose(file);
	rlim_t n_bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) +
		(rlim_t)MEMORY_FACTOR * n_header + ((rlim_t)mib << 20);
	return ok && setrlimit(RLIMIT_AS, &(struct rlimit){n_bytes, n_bytes}) == 0;
}

/* Cases from ->at on; ends with 0, or with 1 and a reason. */
static _Noreturn void work(const struct pool *p, const struct worker *w)
{
	signal(SIGABRT, SIG_DFL); /* the runner's handlers are not ours */
	signal(SIGSEGV, SIG_DFL);
	if (!limit_memory(p->s->n_header, p->memory_mib)) {
		snprintf(w->slot->why, sizeof w->slot->why, "the memory cannot be limited");
		_exit(1);
	}
	for (; w->slot->at < p->end; w->slot->at += w->step)
		if (!p->run(p->s, w->slot->at, w->slot->why))
			_exit(1);
	_exit(0);
}

static void start(const struct pool *p, struct worker *w)
{
	fflush(NULL);
	w->slot->why[0] = '\0';
	w->seen = w->slot->at;
	w->since = clock_seconds();
	w->pid = fork();
	cr_assert_geq(w->pid, 0, "fork: %s", strerror(errno));
	if (w->pid == 0)
		work(p, w);
}

/* Looks after a worker. One that failed in a case goes on behind it. */
static void attend(struct pool *p, struct worker *w)
{
	int status = 0;
	bool hangs = false;
	if (w->slot->at != w->seen) {
		w->seen = w->slot->at;
		w->since = clock_seconds();
	} else if (clock_seconds() - w->since > p->hang_seconds) {
		kill(w->pid, SIGKILL);
		hangs = true;
	}
	if (waitpid(w->pid, &status, hangs ? 0 : WNOHANG) == 0)
		return;
	w->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	char what[128], how[256];
	describe(p->s, w->slot->at, what);
	if (hangs)
		snprintf(how, sizeof how, "not done after %g s", p->hang_seconds);
	else if (WIFSIGNALED(status))
		snprintf(how, sizeof how, "signal %d", WTERMSIG(status));
	else
		snprintf(how, sizeof how, "%.250s", w->slot->why);
	cr_assert(text_printf(&p->failures, "%s: %s\n", what, how));
	p->n_failures++;
	w->slot->at += w->step;
	if (w->slot->at < p->end)
		start(p, w);
}

/* Every step-th case up to the end, until too many have failed. */
static void run_pool(struct pool *p, size_t step)
{
	struct slot *slots = mmap(NULL, N_WORKERS * sizeof *slots, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(slots != MAP_FAILED);
	for (size_t i = 0; i < N_WORKERS; i++) {
		p->workers[i] = (struct worker){.step = N_WORKERS * step, .slot = &slots[i]};
		slots[i].at = i * step;
		start(p, &p->workers[i]);
	}
	unsigned n_running = N_WORKERS;
	while (n_running > 0 && p->n_failures < MOST_FAILURES) {
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		n_running = 0;
		for (size_t i = 0; i < N_WORKERS; i++) {
			if (p->workers[i].pid)
				attend(p, &p->workers[i]);
			n_running += p->workers[i].pid != 0;
		}
	}
	for (size_t i = 0; i < N_WORKERS; i++) {
		if (p->workers[i].pid) {
			kill(p->workers[i].pid, SIGKILL);
			waitpid(p->workers[i].pid, NULL, 0);
		} else {
			cr_expect_geq(slots[i].at, p->end, "a worker has done its cases");
		}
	}
	munmap(slots, N_WORKERS * sizeof *slots);
}

/* All cases; under sanitizers, which take ten times as long, some. */
static void run_all(struct subject *s, const char *name)
{
	struct pool p = {.s = s,
		.run = run_case,
		.end = n_cases(s),
		.hang_seconds = 20,
		.memory_mib = MEMORY_MIB};
	run_pool(&p, test_small() ? 23 : 1);
	cr_expect_eq(p.n_failures, 0, "%s:\n%s", name, p.failures.data ? p.failures.data : "");
	text_free(&p.failures);
}

/* What the pool is there to see: cases that die, do not end, or take more memory than they may. */
static bool run_faulty(struct subject *s, size_t i, char why[256])
{
	void *volatile memory = NULL;
	if (i == 3)
		abort();
	while (i == 8)
		nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
	if (i == 13) {
		memory = malloc((MEMORY_FACTOR * s->n_header) + ((size_t)(MEMORY_MIB + 1) << 20));
		if (!memory)
			snprintf(why, 256, "no memory");
		free(memory);
		return memory != NULL;
	}
	return true;
}

Test(untrusted, faults_are_seen)
{
	struct subject s = {.n_header = 100};
	struct pool p = {.s = &s,
		.run = run_faulty,
		.end = 40,
		.hang_seconds = 0.5,
		.memory_mib = MEMORY_MIB};
	run_pool(&p, 1);
	cr_expect_eq(p.n_failures, SANITIZED ? 2 : 3, "%s", p.failures.data);
	cr_expect(strstr(p.failures.data, "cut to 3 bytes: signal 6\n"));
	cr_expect(strstr(p.failures.data, "cut to 8 bytes: not done after 0.5 s\n"));
	cr_expect_eq(!SANITIZED, strstr(p.failures.data, "cut to 13 bytes: no memory\n") != NULL);
	text_free(&p.failures);
}

/* ---- small files, damaged everywhere ----------------------------------------------------------- */

static void expect_accepted(const struct subject *s)
{
	struct lap_model *m;
	struct lap_error err = {0};
	const struct lap_model_options options = {.device = "cpu", .no_weights = true};
	cr_assert_eq(lap_model_open_memory(s->bytes, s->n, "x.gguf", &options, &m, &err), LAP_OK,
		"%s", err.text);
	cr_expect_geq(lap_model_info(m)->n_layer, 1);
	lap_model_close(m);
}

static uint8_t *copy_bytes(const void *bytes, size_t n)
{
	uint8_t *copy = malloc(n);
	cr_assert(copy);
	return memcpy(copy, bytes, n);
}

/* One layer of width 8 with a byte-level vocabulary of 8, and a key of every type, alone and in arrays. */
static struct subject small_model(void)
{
	static struct builder b;
	static const char *const tokens[] = {
		"a", "b", "\u0120", "\u010A", "ab", "\u0120a", "<s>", "[y]"};
	static const char *const merges[] = {"a b", "\u0120 a"};
	static const int32_t types[] = {1, 1, 1, 1, 1, 1, 3, 4};
	static const struct {
		const char *name;
		uint32_t n_rows, n_cols;
	} tensors[] = {{"token_embd", 8, 8}, {"output_norm", 0, 8}, {"blk.0.attn_norm", 0, 8},
		{"blk.0.attn_q", 8, 8}, {"blk.0.attn_k", 4, 8}, {"blk.0.attn_v", 4, 8},
		{"blk.0.attn_output", 8, 8}, {"blk.0.ffn_norm", 0, 8}, {"blk.0.ffn_gate", 4, 8},
		{"blk.0.ffn_up", 4, 8}, {"blk.0.ffn_down", 8, 4}};
	builder_string(&b, "general.architecture", "llama");
	builder_u32(&b, "general.alignment", 32);
	builder_u32(&b, "llama.block_count", 1);
	builder_u32(&b, "llama.context_length", 64);
	builder_u32(&b, "llama.embedding_length", 8);
	builder_u32(&b, "llama.feed_forward_length", 4);
	builder_u32(&b, "llama.attention.head_count", 4);
	builder_u32(&b, "llama.attention.head_count_kv", 2);
	builder_f32(&b, "llama.rope.freq_base", 10000.0f);
	builder_string(&b, "tokenizer.ggml.model", "gpt2");
	builder_string(&b, "tokenizer.ggml.pre", "gpt-2");
	builder_strings(&b, "tokenizer.ggml.tokens", tokens, ARRAY_COUNT(tokens));
	builder_i32s(&b, "tokenizer.ggml.token_type", types, ARRAY_COUNT(types));
	builder_strings(&b, "tokenizer.ggml.merges", merges, ARRAY_COUNT(merges));
	builder_u32(&b, "tokenizer.ggml.bos_token_id", 6);
	builder_bool(&b, "tokenizer.ggml.add_bos_token", true);
	for (uint32_t type = 0; type < N_GGUF_TYPES; type++) {
		char key[16];
		uint32_t n = type == GGUF_ARRAY ? 0 : 2;
		struct text *value = NULL;
		snprintf(key, sizeof key, "x.%u", type);
		if (type != GGUF_ARRAY)
			builder_bytes(builder_set(&b, key, type), "\1\0\0\0\0\0\0\0*",
				type_bytes[type] ? type_bytes[type] : 9);
		snprintf(key, sizeof key, "y.%u", type);
		if (type != GGUF_ARRAY)
			value = builder_array(&b, key, type, n);
		for (uint32_t i = 0; i < n; i++)
			builder_bytes(value, "\1\0\0\0\0\0\0\0*",
				type_bytes[type] ? type_bytes[type] : 9);
	}
	for (size_t i = 0; i < ARRAY_COUNT(tensors); i++) {
		char name[32];
		snprintf(name, sizeof name, "%s.weight", tensors[i].name);
		builder_noise(&b, name, tensors[i].n_rows, tensors[i].n_cols, (uint32_t)i);
	}
	struct text file = builder_file(&b);
	struct subject s = subject_of(copy_bytes(file.data, file.n), file.n);
	text_free(&file);
	builder_free(&b);
	return s;
}

Test(untrusted, small_model)
{
	struct subject s = small_model();
	expect_accepted(&s);
	cr_expect_gt(s.n_header, 1500);
	run_all(&s, "the small model");
	subject_free(&s);
}

Test(untrusted, golden_model)
{
	size_t n = 0;
	char *bytes = read_text(vector_path("golden/llama-freqs.gguf"), &n);
	struct subject s = subject_of(copy_bytes(bytes, n), n);
	free(bytes);
	expect_accepted(&s);
	run_all(&s, "llama-freqs.gguf");
	subject_free(&s);
}

/* ---- large headers ----------------------------------------------------------------------------- */

/* A header whose counts stand in front of what the caller appends. */
static struct text begin(uint64_t n_tensors, uint64_t n_kv)
{
	struct text t = {0};
	builder_bytes(&t, "GGUF\3\0\0\0", 8);
	builder_number(&t, n_tensors, 8);
	builder_number(&t, n_kv, 8);
	return t;
}

static void put_key(struct text *t, const char *key, enum gguf_type type)
{
	builder_text(t, key, strlen(key));
	builder_number(t, type, 4);
}

static void put_string(struct text *t, const char *key, const char *value)
{
	put_key(t, key, GGUF_STRING);
	builder_text(t, value, strlen(value));
}

static void put_u32(struct text *t, const char *key, uint32_t value)
{
	put_key(t, key, GGUF_U32);
	builder_number(t, value, 4);
}

static void put_array(struct text *t, const char *key, enum gguf_type element, uint64_t n)
{
	put_key(t, key, GGUF_ARRAY);
	builder_number(t, element, 4);
	builder_number(t, n, 8);
}

/* The i-th text of 1 to 4 letters out of 64, the shorter ones first. */
static const char *short_name(uint32_t i)
{
	static char name[5];
	unsigned n = 1;
	for (uint32_t n_texts = 64; i >= n_texts; n_texts *= 64, n++)
		i -= n_texts;
	memset(name, 0, sizeof name);
	for (unsigned j = n; j-- > 0; i /= 64)
		name[j] = (char)('0' + i % 64);
	return name;
}

/* Opens the file, of which the vocabulary is fine, within the memory that its header allows. */
static void run_large(struct text *file, const char *name)
{
	builder_pad(file, 0, 32);
	struct lap_model *m;
	struct lap_error err = {0};
	const struct lap_model_options options = {.vocab_only = true};
	cr_expect_eq(lap_model_open_memory(file->data, file->n, name, &options, &m, &err), LAP_OK,
		"%s", err.text);
	lap_model_close(m);
	struct subject s = {.bytes = copy_bytes(file->data, file->n), .n = file->n};
	text_free(file);
	s.n_header = s.n;
	cr_expect_gt(s.n_header, 1 << 20, "%s is large enough to tell", name);
	struct pool p = {.s = &s,
		.run = run_case,
		.end = n_cases(&s),
		.hang_seconds = 60,
		.memory_mib = MEMORY_MIB_LARGE};
	run_pool(&p, p.end - 1); /* the first, of no bytes, and the last, as it is */
	cr_expect_eq(p.n_failures, 0, "%s:\n%s", name, p.failures.data ? p.failures.data : "");
	text_free(&p.failures);
	subject_free(&s);
}

Test(untrusted, many_keys)
{
	const uint32_t n = 100000;
	struct text t = begin(0, n);
	for (uint32_t i = 0; i < n; i++) {
		const char *name = short_name(i);
		put_key(&t, name, GGUF_U8);
		builder_number(&t, i, 1);
	}
	run_large(&t, "many keys");
}

/* As many layers as there are tensors, or as these could be enough for; none of them is there. */
Test(untrusted, many_tensors)
{
	const uint32_t n = 60000;
	for (uint32_t per_layer = 1; per_layer <= 4; per_layer += 3) {
		struct text t = begin(n, 7);
		put_string(&t, "general.architecture", "llama");
		put_u32(&t, "general.alignment", 8);
		put_u32(&t, "llama.block_count", n / per_layer);
		put_u32(&t, "llama.embedding_length", 2);
		put_u32(&t, "llama.feed_forward_length", 1);
		put_u32(&t, "llama.attention.head_count", 1);
		put_u32(&t, "llama.context_length", 1);
		for (uint32_t i = 0; i < n; i++) {
			const char *name = i == 0 ? "token_embd.weight"
				: i == 1          ? "output_norm.weight"
						  : short_name(i);
			builder_text(&t, name, strlen(name));
			builder_number(&t, i == 0 ? 2 : 1, 4);
			builder_number(&t, 2, 8);
			if (i == 0)
				builder_number(&t, 1, 8);
			builder_number(&t, 0, 4);
			builder_number(&t, (uint64_t)8 * i, 8);
		}
		builder_pad(&t, 0, 8);
		for (uint32_t i = 0; i < n; i++)
			builder_number(&t, 0, 8);
		run_large(&t, "many tensors");
	}
}

/* Vocabularies of each family, of plain and of control tokens. Each text but the one-letter ones is a
 * merge, of all but its last letter and that. */
Test(untrusted, many_tokens)
{
	static const char *const models[] = {"llama", "gpt2", "bert", "gemma4"};
	const uint32_t n = 64 + 64 * 64 + 64 * 64 * 16;
	for (size_t i = 0; i < ARRAY_COUNT(models); i++)
		for (uint32_t type = 1; type <= 3; type += 2) {
			bool merges =
				strcmp(models[i], "gpt2") == 0 || strcmp(models[i], "gemma4") == 0;
			uint32_t n_merges = type == 1 ? n - 64 : 0;
			struct text t = begin(0, 5 + merges);
			put_string(&t, "tokenizer.ggml.model", models[i]);
			put_array(&t, "tokenizer.ggml.tokens", GGUF_STRING, n);
			for (uint32_t j = 0; j < n; j++) {
				const char *name = short_name(j);
				builder_text(&t, name, strlen(name));
			}
			put_array(&t, "tokenizer.ggml.scores", GGUF_F32, n);
			for (uint32_t j = 0; j < n; j++)
				builder_number(&t, j, 4);
			put_array(&t, "tokenizer.ggml.token_type", GGUF_I32, n);
			for (uint32_t j = 0; j < n; j++)
				builder_number(&t, type, 4);
			put_u32(&t, "tokenizer.ggml.unknown_token_id", 0);
			if (merges)
				put_array(&t, "tokenizer.ggml.merges", GGUF_STRING, n_merges);
			for (uint32_t j = 64; merges && j < 64 + n_merges; j++) {
				const char *name = short_name(j);
				int n_left = (int)strlen(name) - 1;
				char merge[8];
				int n_merge = snprintf(merge, sizeof merge, "%.*s %s", n_left, name,
					name + n_left);
				builder_text(&t, merge, (size_t)n_merge);
			}
			run_large(&t, models[i]);
		}
}

/* ---- the generated set of bad files ------------------------------------------------------------ */

/* All of the way, to two tokens. */
static enum lap_status generate(const char *path, bool check_tensors, struct lap_error *err)
{
	const struct lap_model_options options = {.device = "cpu", .check_tensors = check_tensors};
	const struct lap_session_options small = {.n_ctx = 32, .n_batch = 32};
	const struct lap_generate_options greedy = {.n_predict = 2, .ignore_eos = true};
	const int32_t prompt[] = {1, 2, 3};
	struct lap_model *model = NULL;
	struct lap_session *session = NULL;
	struct lap_generation result;
	enum lap_status status = lap_model_open(path, &options, &model, err);
	if (!status)
		status = lap_session_create(model, &small, &session, err);
	if (!status)
		status = lap_generate(
			session, prompt, ARRAY_COUNT(prompt), &greedy, NULL, NULL, &result, err);
	lap_session_destroy(session);
	lap_model_close(model);
	return status;
}

static void check_bad_file(const char *folder, const char *line)
{
	json_t *entry = json_loads(line, 0, NULL);
	cr_assert(entry, "%s", line);
	const char *name = json_string_value(json_object_get(entry, "file"));
	const char *verdict = json_string_value(json_object_get(entry, "verdict"));
	const char *what = json_string_value(json_object_get(entry, "what"));
	struct lap_error err = {0};
	struct text path = {0};
	cr_assert(text_printf(&path, "%s/%s", folder, name));
	enum lap_status status = generate(path.data, false, &err);
	if (strcmp(verdict, "accept") == 0)
		cr_expect_eq(status, LAP_OK, "%s (%s): %s", name, what, err.text);
	else if (strcmp(verdict, "reject") == 0)
		cr_expect(status == LAP_BAD_MODEL && err.text[0], "%s (%s): status %d", name, what,
			status);
	else
		cr_expect(status == LAP_OK || status == LAP_BAD_MODEL || status == LAP_ERROR,
			"%s: status %d", name, status);
	/* What all the checks must let pass is found by the one that looks at weights. */
	if (strcmp(name, "nan_weights.gguf") == 0) {
		cr_expect_eq(status, LAP_ERROR, "logits that are not numbers: %s", err.text);
		cr_expect_eq(generate(path.data, true, &err), LAP_BAD_MODEL, "%s", err.text);
	}
	text_free(&path);
	json_decref(entry);
}

Test(untrusted, generated_bad_files)
{
	SKIP_WITHOUT("bad_gguf/make_bad_gguf.py");
	if (system("python3 -c pass >/dev/null 2>&1") != 0)
		skip_test("no python3");
	struct text command = {0}, manifest = {0};
	struct lap_error err = {0};
	const char *folder = scratch_path("bad_gguf");
	cr_assert(text_printf(&command, "python3 -B '%s' '%s' >/dev/null",
		shared_path("bad_gguf/make_bad_gguf.py"), folder));
	cr_assert_eq(system(command.data), 0, "%s", command.data);
	text_free(&command);
	cr_assert(text_printf(&command, "%s/manifest.jsonl", folder));
	cr_assert_eq(file_read(command.data, &manifest, &err), LAP_OK, "%s", err.text);
	size_t n_files = 0;
	for (char *line = strtok(manifest.data, "\n"); line; line = strtok(NULL, "\n"), n_files++)
		check_bad_file(folder, line);
	cr_expect_geq(n_files, 35, "%zu files", n_files);
	text_free(&manifest);
	text_free(&command);
}
