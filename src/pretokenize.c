/* The table of pre-tokenizers and the walk of their patterns over a text.  See pretokenize.h. */
#include "pretokenize.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "gguf.h"

/* To add a pre-tokenizer is to add a row.  The patterns are those that the models' authors published
 * with their tokenizers, as they spell them: \s means Unicode's White_Space (see pattern_expand). */
static const struct pretokenizer_rule rules[] = {
	{
		.names = "gpt-2 default",
		.patterns = {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
			     "|\\s+(?!\\S)|\\s+"},
	},
	{
		.names = "llama-bpe llama3 llama-v3",
		.patterns =
			{"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
			 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
		.ignore_merges = true,
		.add_bos = true,
	},
	{
		.names = "qwen2 deepseek-r1-qwen",
		.patterns = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
			     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
	},
};

struct pretokenizer {
	const struct pretokenizer_rule *rule;
	pcre2_code *steps[PRETOKENIZER_STEPS];
	unsigned n_steps;
	pcre2_match_context *limits;
};

const struct pretokenizer_rule *pretokenizer_rules(size_t *n)
{
	*n = ARRAY_COUNT(rules);
	return rules;
}

const struct pretokenizer_rule *pretokenizer_rule(const struct pretokenizer *p)
{
	return p->rule;
}

static const struct pretokenizer_rule *rule_find(const char *name, size_t n_bytes)
{
	for (size_t i = 0; i < ARRAY_COUNT(rules); i++) {
		for (const char *s = rules[i].names; *s; s += *s == ' ') {
			size_t n = strcspn(s, " ");
			if (n == n_bytes && memcmp(s, name, n) == 0)
				return &rules[i];
			s += n;
		}
	}
	return NULL;
}

static enum lap_status fail_name(struct lap_error *err, const char *name, size_t n_bytes)
{
	struct text list = {0};
	for (size_t i = 0; i < ARRAY_COUNT(rules); i++)
		text_printf(&list, "%s%s", i ? " " : "", rules[i].names);
	char shown[GGUF_SHOW_BYTES];
	enum lap_status status = fail(err, LAP_BAD_MODEL,
		"pre-tokenizer \"%s\" is not supported; supported: %s",
		gguf_show((struct gguf_string){name, n_bytes}, shown), list.data ? list.data : "");
	text_free(&list);
	return status;
}

/* PCRE2's \s takes U+180E for a space, which Unicode does not since version 6.3; the models'
 * tokenizers go by the property White_Space.  So \s and \S are written out. */
static bool pattern_expand(const char *pattern, struct text *out)
{
	static const char spaces[] = "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}"
				     "\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
	bool in_class = false, ok = true;
	for (const char *s = pattern; *s && ok; s++) {
		if (*s == '\\' && s[1] == 's') {
			ok = text_printf(out, in_class ? "%s" : "[%s]", spaces);
			s++;
		} else if (*s == '\\' && s[1] == 'S') {
			assert(!in_class); /* no row needs it, and it has no spelling here */
			ok = text_printf(out, "[^%s]", spaces);
			s++;
		} else if (*s == '\\') {
			ok = text_append(out, s, 2);
			s++;
		} else {
			in_class = *s == '[' || (in_class && *s != ']');
			ok = text_append(out, s, 1);
		}
	}
	return ok;
}

static enum lap_status pattern_compile(
	const char *pattern, bool jit, pcre2_code **code, struct lap_error *err)
{
	struct text expanded = {0};
	if (!pattern_expand(pattern, &expanded)) {
		text_free(&expanded);
		return fail_memory(err, "a pattern", strlen(pattern));
	}
	int reason;
	PCRE2_SIZE at;
	*code = pcre2_compile(
		(PCRE2_SPTR)expanded.data, expanded.n, PCRE2_UTF | PCRE2_UCP, &reason, &at, NULL);
	text_free(&expanded);
	if (!*code && reason == PCRE2_ERROR_HEAP_FAILED)
		return fail_memory(err, "a pattern", strlen(pattern));
	if (!*code) {
		PCRE2_UCHAR words[128] = "";
		pcre2_get_error_message(reason, words, sizeof words);
		return fail(err, LAP_ERROR, "pattern %s: %s at byte %zu", pattern,
			(const char *)words, (size_t)at);
	}
	if (jit)
		pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* a failure leaves the interpreter */
	return LAP_OK;
}

enum lap_status pretokenizer_create(const char *name, size_t n_bytes, bool jit,
	struct pretokenizer **pretokenizer, struct lap_error *err)
{
	*pretokenizer = NULL;
	const struct pretokenizer_rule *rule = rule_find(name, n_bytes);
	if (!rule)
		return fail_name(err, name, n_bytes);
	struct pretokenizer *p = calloc(1, sizeof *p);
	if (!p)
		return fail_memory(err, "the pre-tokenizer", sizeof *p);
	p->rule = rule;
	p->limits = pcre2_match_context_create(NULL);
	enum lap_status status =
		p->limits ? LAP_OK : fail_memory(err, "the pre-tokenizer", sizeof *p);
	while (!status && p->n_steps < PRETOKENIZER_STEPS && rule->patterns[p->n_steps]) {
		status = pattern_compile(
			rule->patterns[p->n_steps], jit, &p->steps[p->n_steps], err);
		p->n_steps += !status;
	}
	if (status) {
		pretokenizer_destroy(p);
		return status;
	}
	/* The patterns are linear, so a limit would only refuse long runs of spaces. */
	pcre2_set_match_limit(p->limits, UINT32_MAX);
	pcre2_set_depth_limit(p->limits, UINT32_MAX);
	pcre2_set_heap_limit(p->limits, UINT32_MAX);
	*pretokenizer = p;
	return LAP_OK;
}

void pretokenizer_destroy(struct pretokenizer *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < p->n_steps; i++)
		pcre2_code_free(p->steps[i]);
	pcre2_match_context_free(p->limits);
	free(p);
}

static enum lap_status word_add(struct words *w, size_t end, struct lap_error *err)
{
	if (w->n == w->capacity) {
		size_t capacity = w->capacity ? 2 * w->capacity : 64;
		size_t *ends = realloc(w->ends, capacity * sizeof *ends);
		if (!ends)
			return fail_memory(err, "words", capacity * sizeof *ends);
		w->ends = ends;
		w->capacity = capacity;
	}
	w->ends[w->n++] = end;
	return LAP_OK;
}

void words_free(struct words *words)
{
	free(words->ends);
	*words = (struct words){0};
}

/* pretokenizer_split hands over checked text only, and an empty match would never end. */
static const uint32_t match_options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;

/* One call of pretokenizer_split. */
struct split {
	const struct pretokenizer *p;
	const char *text;
	pcre2_match_data *match;
	struct words *words;
	struct lap_error *err;
};

/* The next match of a step in the piece [begin, end), at or after `from`; *to = end and
 * *from = end when there is none. */
static enum lap_status step_match(
	const struct split *s, unsigned step, size_t begin, size_t end, size_t *from, size_t *to)
{
	PCRE2_SPTR piece = (PCRE2_SPTR)s->text + begin;
	const pcre2_code *code = s->p->steps[step];
	int found = pcre2_match(
		code, piece, end - begin, *from - begin, match_options, s->match, s->p->limits);
	if (found == PCRE2_ERROR_JIT_STACKLIMIT)
		found = pcre2_match(code, piece, end - begin, *from - begin,
			match_options | PCRE2_NO_JIT, s->match, s->p->limits);
	if (found >= 0) {
		const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(s->match);
		*from = begin + bounds[0];
		*to = begin + bounds[1];
		return LAP_OK;
	}
	*from = *to = end;
	if (found == PCRE2_ERROR_NOMATCH)
		return LAP_OK;
	if (found == PCRE2_ERROR_NOMEMORY)
		return fail_memory(s->err, "matching a pattern", end - begin);
	PCRE2_UCHAR words[128] = "";
	pcre2_get_error_message(found, words, sizeof words);
	return fail(s->err, LAP_ERROR, "pre-tokenizer: %s", (const char *)words);
}

/* Cuts the piece [begin, end) by the patterns from `step` on. */
static enum lap_status piece_split(const struct split *s, unsigned step, size_t begin, size_t end)
{
	if (step == s->p->n_steps)
		return word_add(s->words, end, s->err);
	enum lap_status status = LAP_OK;
	for (size_t at = begin; at < end && !status;) {
		size_t from = at, to;
		status = step_match(s, step, begin, end, &from, &to);
		if (!status && from > at)
			status = piece_split(s, step + 1, at, from);
		if (!status && to > from)
			status = piece_split(s, step + 1, from, to);
		at = to;
	}
	return status;
}

enum lap_status pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n_bytes,
	struct words *words, struct lap_error *err)
{
	words->n = 0;
	struct split s = {.p = p, .text = text, .words = words, .err = err};
	s.match = pcre2_match_data_create(1, NULL);
	if (!s.match)
		return fail_memory(err, "matching a pattern", n_bytes);
	enum lap_status status = LAP_OK;
	for (size_t at = 0; at < n_bytes && !status;) {
		size_t begin = at;
		uint32_t code;
		for (unsigned n; at < n_bytes && (n = utf8_decode(text + at, n_bytes - at, &code));)
			at += n;
		if (at > begin)
			status = piece_split(&s, 0, begin, at);
		begin = at;
		while (at < n_bytes && !utf8_decode(text + at, n_bytes - at, &code))
			at++;
		if (at > begin && !status)
			status = word_add(words, at, err);
	}
	pcre2_match_data_free(s.match);
	return status;
}
