/* The table of pre-tokenizers and the walk of their patterns over a text.  See pretokenize.h. */
#include "pretokenize.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "gguf.h"

/* Parts that several rows share. */
#define SUFFIXES  "'s|'t|'re|'ve|'m|'ll|'d"
#define GPT2_HEAD SUFFIXES "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define GPT2      GPT2_HEAD "|\\s+"
#define LEADING   "[^\\r\\n\\p{L}\\p{N}]?"
#define MARKS     " ?[^\\s\\p{L}\\p{N}]+"
#define LINES     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* cl100k and what grew from it: the argument is a word's digits. */
#define CL100K(digits) "(?i:" SUFFIXES ")|" LEADING "\\p{L}+|" digits "|" MARKS "[\\r\\n]*|" LINES
/* o200k: a word is capitals, then small letters; the argument is what may hang on a word. */
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix) \
	LEADING CAPITALS "*" SMALL "+" suffix "|" LEADING CAPITALS "+" SMALL "*" suffix
/* What DeepSeek takes for letters with two cases, and for Chinese, Japanese and Korean. */
#define DEEPSEEK_CASED                                                                             \
	"A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"             \
	"\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"     \
	"\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"              \
	"\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                   \
	"\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"             \
	"\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"             \
	"\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"             \
	"\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"     \
	"\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"    \
	"\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"              \
	"\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{" \
	"212D}"                                                                                    \
	"\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}"     \
	"\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"     \
	"\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"             \
	"\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"             \
	"\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"         \
	"\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"     \
	"\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

/* To add a pre-tokenizer is to add a row.  The patterns are those that the models' authors published
 * with their tokenizers: \s means Unicode's White_Space (see pattern_expand). */
static const struct pretokenizer_rule rules[] = {
	{
		.names = "gpt-2 mpt olmo phi-2",
		.patterns = {GPT2},
		.words = {WORDS_ANY},
	},
	{
		/* What the files' usual writer means where it knew no better. */
		.names = "default",
		.patterns = {"[\\p{P}$+<=>^~|]+", GPT2_HEAD, "\\p{N}+", "[0-9][0-9][0-9]"},
		.words = {[1] = WORDS_ANY},
	},
	{
		.names = "llama-bpe llama3 llama-v3 falcon3 pixtral lfm2",
		.patterns = {CL100K("\\p{N}{1,3}")},
		.words = {WORDS_ANY},
		.ignore_merges = true,
		.add_bos = true,
	},
	{
		.names = "dbrx smaug-bpe chatglm-bpe glm4",
		.patterns = {CL100K("\\p{N}{1,3}")},
		.words = {WORDS_ANY},
	},
	{
		.names = "qwen2 deepseek-r1-qwen stablelm2",
		.patterns = {CL100K("\\p{N}")},
		.words = {WORDS_ANY},
	},
	{
		.names = "qwen35", /* qwen2, with marks taken for letters */
		.patterns = {"(?i:" SUFFIXES ")|" LEADING "[\\p{L}\\p{M}]+|\\p{N}"
			     "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES},
		.words = {WORDS_ANY},
	},
	{
		.names = "deepseek-llm",
		.patterns = {"[\\r\\n]", "\\s?[" DEEPSEEK_CASED "]+",
			"\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
			"\\x{3000}-\\x{3002}]+",
			"(?<!\\s)\\s+$", /* \s+$, but never tried within a run */
			DEEPSEEK_CJK, "\\p{N}+"},
		.words = {[1] = WORDS_ANY},
	},
	{
		.names = "deepseek-coder",
		.patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"},
		.words = {[1] = WORDS_ANY},
	},
	{
		.names = "falcon",
		.patterns = {"[\\p{P}$+<=>^~|`]+", GPT2_HEAD, "[0-9][0-9][0-9]"},
		.words = {[1] = WORDS_ANY},
	},
	{
		.names = "starcoder refact smollm command-r",
		.patterns = {"\\p{N}", GPT2},
		.words = {[1] = WORDS_ANY},
	},
	{
		.names = "tekken",
		.patterns = {CASED("") "|\\p{N}|" MARKS "[\\r\\n/]*|" LINES},
		.words = {WORDS_CASED},
		.ignore_merges = true,
		.add_bos = true,
	},
	{
		.names = "gpt-4o llama4",
		.patterns = {CASED("(?i:" SUFFIXES ")?") "|\\p{N}{1,3}|" MARKS "[\\r\\n/]*|" LINES},
		.words = {WORDS_CASED},
	},
};

/* A pattern, compiled, and what is known about its matches without asking it. */
struct step {
	pcre2_code *code;
	enum pretokenizer_words words;
	bool jit;         /* there is machine code */
	bool begins[256]; /* bytes that a match may begin with */
};

struct pretokenizer {
	const struct pretokenizer_rule *rule;
	struct step steps[PRETOKENIZER_STEPS];
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

/* PCRE2's list of first bytes, where it has one; no character begins with a byte of 10xxxxxx. */
static void begins_load(struct step *step, bool fast)
{
	const uint8_t *bits = NULL;
	if (fast && pcre2_pattern_info(step->code, PCRE2_INFO_FIRSTBITMAP, &bits))
		bits = NULL;
	for (unsigned byte = 0; byte < 256; byte++)
		step->begins[byte] =
			(byte & 0xC0) != 0x80 && (!bits || bits[byte / 8] & 1u << byte % 8);
}

static enum lap_status pattern_compile(
	const char *pattern, bool fast, struct step *step, struct lap_error *err)
{
	struct text expanded = {0};
	if (!pattern_expand(pattern, &expanded)) {
		text_free(&expanded);
		return fail_memory(err, "a pattern", strlen(pattern));
	}
	int reason;
	PCRE2_SIZE at;
	step->code = pcre2_compile(
		(PCRE2_SPTR)expanded.data, expanded.n, PCRE2_UTF | PCRE2_UCP, &reason, &at, NULL);
	text_free(&expanded);
	if (!step->code && reason == PCRE2_ERROR_HEAP_FAILED)
		return fail_memory(err, "a pattern", strlen(pattern));
	if (!step->code) {
		PCRE2_UCHAR words[128] = "";
		pcre2_get_error_message(reason, words, sizeof words);
		return fail(err, LAP_ERROR, "pattern %s: %s at byte %zu", pattern,
			(const char *)words, (size_t)at);
	}
	/* a failure leaves the interpreter */
	step->jit = fast && pcre2_jit_compile(step->code, PCRE2_JIT_COMPLETE) == 0;
	begins_load(step, fast);
	return LAP_OK;
}

enum lap_status pretokenizer_create(const char *name, size_t n_bytes, bool fast,
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
		struct step *step = &p->steps[p->n_steps];
		step->words = fast ? rule->words[p->n_steps] : WORDS_NONE;
		status = pattern_compile(rule->patterns[p->n_steps], fast, step, err);
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
		pcre2_code_free(p->steps[i].code);
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

static bool is_small(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_letter(char c)
{
	return is_small(c) || (c >= 'A' && c <= 'Z');
}

/* The end of the plain word at `from`, see enum pretokenizer_words; `from` when there is none. */
static size_t plain_word(enum pretokenizer_words words, const char *text, size_t from, size_t end)
{
	size_t begin = from + (text[from] == ' '), at = begin;
	if (words == WORDS_NONE)
		return from;
	if (words == WORDS_CASED)
		while (at < end && is_letter(text[at]) && !is_small(text[at]))
			at++;
	size_t n_capitals = at - begin;
	while (at < end && (words == WORDS_CASED ? is_small(text[at]) : is_letter(text[at])))
		at++;
	if (at == begin + (words == WORDS_CASED ? n_capitals : 0))
		return from;
	if (at < end &&
		((unsigned char)text[at] >= 0x80 || (words == WORDS_CASED && text[at] == '\'')))
		return from;
	return at;
}

/* The next match of a step in the piece [begin, end), at or after `from`; *to = end and
 * *from = end when there is none. */
static enum lap_status step_match(
	const struct split *s, unsigned i_step, size_t begin, size_t end, size_t *from, size_t *to)
{
	const struct step *step = &s->p->steps[i_step];
	while (*from < end && !step->begins[(unsigned char)s->text[*from]])
		++*from;
	*to = *from < end ? plain_word(step->words, s->text, *from, end) : end;
	if (*to > *from || *from == end)
		return LAP_OK;
	PCRE2_SPTR piece = (PCRE2_SPTR)s->text + begin;
	const size_t n = end - begin, start = *from - begin;
	int found = step->jit
		? pcre2_jit_match(
			  step->code, piece, n, start, match_options, s->match, s->p->limits)
		: pcre2_match(step->code, piece, n, start, match_options, s->match, s->p->limits);
	if (found == PCRE2_ERROR_JIT_STACKLIMIT)
		found = pcre2_match(step->code, piece, n, start, match_options | PCRE2_NO_JIT,
			s->match, s->p->limits);
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
		for (unsigned n; at < n_bytes; at += n) {
			n = (unsigned char)text[at] < 0x80
				? 1
				: utf8_decode(text + at, n_bytes - at, &code);
			if (n == 0)
				break;
		}
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
