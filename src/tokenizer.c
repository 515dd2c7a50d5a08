/* What a file says about its tokenizer, and how texts are merged.  See tokenizer.h.
 *
 * SentencePiece BPE: Kudo and Richardson 2018; byte-level BPE: Sennrich et al. 2016, Radford et al.
 * 2019.  Each joins the best pair of neighbours until no pair is left; they differ in what a pair is
 * worth (pair_consider: a score, or the place in a list of merges) and in what they start from
 * (characters, or bytes). */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pretokenize.h"
#include "vocabulary.h"
#include "wordpiece.h"

struct tokenizer {
	struct tokenizer_info info;
	struct vocabulary vocab;
	bool ignore_merges, trim_spaces;
	struct pretokenizer *pre; /* NULL but for gpt2 */
	char *pre_name;
	int32_t *ends; /* ascending */
	size_t n_ends;
};

/* The token that a key names; without the key *id stays. */
static enum lap_status id_load(const struct tokenizer *t, const struct gguf *g, const char *key,
	int32_t *id, struct lap_error *err)
{
	uint32_t value = UINT32_MAX;
	if (!gguf_find(g, key))
		return LAP_OK;
	enum lap_status status = gguf_u32(g, key, &value, err);
	if (status)
		return status;
	if (value >= t->info.n_vocab)
		return fail(err, LAP_BAD_MODEL, "%s: %s is %u, expected less than %u tokens",
			g->path, key, value, t->info.n_vocab);
	*id = (int32_t)value;
	return LAP_OK;
}

static int id_compare(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return (x > y) - (x < y);
}

static enum lap_status ends_load(struct tokenizer *t, int32_t eom, struct lap_error *err)
{
	size_t n_names;
	const struct control_name *names = control_names(&n_names);
	t->ends = array_alloc(3 + n_names, sizeof *t->ends);
	if (!t->ends)
		return fail_memory(err, "the end tokens", sizeof *t->ends);
	/* In vocabularies with <|return|>, <|end|> closes one message of several. */
	bool has_return = vocabulary_control(&t->vocab, "<|return|>") >= 0;
	for (size_t i = 0; i < n_names; i++) {
		int32_t id = names[i].role == ROLE_CONTROL
			? -1
			: vocabulary_control(&t->vocab, names[i].text);
		if (id < 0 || (has_return && strcmp(names[i].text, "<|end|>") == 0))
			continue;
		t->ends[t->n_ends++] = id;
		if (names[i].role == ROLE_TURN && t->info.eot < 0)
			t->info.eot = id;
	}
	const int32_t named[] = {t->info.eos, t->info.eot, eom};
	for (size_t i = 0; i < ARRAY_COUNT(named); i++) {
		if (named[i] >= 0)
			t->ends[t->n_ends++] = named[i];
	}
	qsort(t->ends, t->n_ends, sizeof *t->ends, id_compare);
	size_t n = 0;
	for (size_t i = 0; i < t->n_ends; i++) {
		if (n == 0 || t->ends[n - 1] != t->ends[i])
			t->ends[n++] = t->ends[i];
	}
	t->n_ends = n;
	return LAP_OK;
}

/* What the keys say about special tokens, with the defaults of each family. */
static enum lap_status keys_load(struct tokenizer *t, const struct gguf *g, struct lap_error *err)
{
	struct tokenizer_info *info = &t->info;
	info->n_vocab = t->vocab.n_tokens;
	info->bos = info->eos = info->eot = info->unknown = info->padding = -1;
	enum vocabulary_family family = t->vocab.family;
	if (family ==
		FAMILY_SPM) { /* SentencePiece's own numbering, where the vocabulary follows it */
		info->bos = info->n_vocab > 1 && t->vocab.tokens[1].type == TOKEN_CONTROL ? 1 : -1;
		info->eos = info->n_vocab > 2 && t->vocab.tokens[2].type == TOKEN_CONTROL ? 2 : -1;
		info->unknown = t->vocab.tokens[0].type == TOKEN_UNKNOWN ? 0 : -1;
	}
	int32_t eom = -1, unused_id;
	const struct {
		const char *key;
		int32_t *id;
	} ids[] = {
		{"tokenizer.ggml.bos_token_id", &info->bos},
		{"tokenizer.ggml.eos_token_id", &info->eos},
		{"tokenizer.ggml.eot_token_id", &info->eot},
		{"tokenizer.ggml.eom_token_id", &eom},
		{"tokenizer.ggml.unknown_token_id", &info->unknown},
		{"tokenizer.ggml.padding_token_id", &info->padding},
		/* WordPiece's two, one of them misspelt by everyone */
		{"tokenizer.ggml.cls_token_id",
			family == FAMILY_WORDPIECE ? &info->bos : &unused_id},
		{"tokenizer.ggml.seperator_token_id",
			family == FAMILY_WORDPIECE ? &info->eos : &unused_id},
	};
	info->add_bos = family != FAMILY_BPE || pretokenizer_rule(t->pre)->add_bos;
	info->add_eos = family == FAMILY_WORDPIECE;
	info->add_space_prefix = family == FAMILY_SPM || family == FAMILY_WORDPIECE;
	/* Some files with merges carry SPM's two keys, which mean nothing there.  The first files of
	 * gemma4 say that there is no BOS; its models do not work without. */
	bool unused;
	const struct {
		const char *key;
		bool *value;
	} flags[] = {
		{"tokenizer.ggml.add_bos_token",
			family == FAMILY_CHARACTERS ? &unused : &info->add_bos},
		{"tokenizer.ggml.add_eos_token", &info->add_eos},
		{"tokenizer.ggml.add_space_prefix",
			family == FAMILY_SPM ? &info->add_space_prefix : &unused},
		{"tokenizer.ggml.remove_extra_whitespaces",
			family == FAMILY_SPM ? &t->trim_spaces : &unused},
	};
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(ids) && !status; i++)
		status = id_load(t, g, ids[i].key, ids[i].id, err);
	for (size_t i = 0; i < ARRAY_COUNT(flags) && !status; i++)
		status = gguf_bool(g, flags[i].key, flags[i].value, err);
	return status ? status : ends_load(t, eom, err);
}

static enum lap_status pre_load(struct tokenizer *t, const struct gguf *g, struct lap_error *err)
{
	struct gguf_string name = {"default", strlen("default")};
	enum lap_status status = gguf_string(g, "tokenizer.ggml.pre", &name, err);
	if (status)
		return status;
	struct lap_error reason = {0};
	status = pretokenizer_create(name.data, name.n, true, &t->pre, &reason);
	if (status)
		return fail(err, status, "%s: %s", g->path, reason.text);
	t->pre_name = array_alloc(name.n + 1, 1);
	if (!t->pre_name)
		return fail_memory(err, "the pre-tokenizer", name.n);
	memcpy(t->pre_name, name.data, name.n);
	t->info.pre = t->pre_name;
	t->ignore_merges = pretokenizer_rule(t->pre)->ignore_merges;
	return LAP_OK;
}

bool tokenizer_in(const struct gguf *g)
{
	static const char *const absent[] = {"none", "no_vocab"};
	struct gguf_string name = {0};
	bool in = gguf_find(g, "tokenizer.ggml.model");
	if (!in || gguf_string(g, "tokenizer.ggml.model", &name, NULL))
		return in;
	for (size_t i = 0; i < ARRAY_COUNT(absent); i++)
		in = in && (strlen(absent[i]) != name.n || memcmp(absent[i], name.data, name.n));
	return in;
}

static enum lap_status model_load(struct tokenizer *t, const struct gguf *g,
	enum vocabulary_family *family, struct lap_error *err)
{
	static const char *const models[] = {[FAMILY_SPM] = "llama",
		[FAMILY_BPE] = "gpt2",
		[FAMILY_WORDPIECE] = "bert",
		[FAMILY_CHARACTERS] = "gemma4"};
	struct gguf_string name = {0};
	enum lap_status status = gguf_string(g, "tokenizer.ggml.model", &name, err);
	if (status)
		return status;
	if (!name.data)
		return fail(err, LAP_BAD_MODEL, "%s: tokenizer.ggml.model is missing", g->path);
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		if (strlen(models[i]) == name.n && memcmp(models[i], name.data, name.n) == 0) {
			t->info.model = models[i];
			*family = (enum vocabulary_family)i;
		}
	}
	char shown[GGUF_SHOW_BYTES];
	if (!t->info.model)
		return fail(err, LAP_BAD_MODEL,
			"%s: tokenizer model \"%s\" is not supported; supported: llama gpt2 bert "
			"gemma4",
			g->path, gguf_show(name, shown));
	return LAP_OK;
}

enum lap_status tokenizer_create(
	const struct gguf *gguf, struct tokenizer **tokenizer, struct lap_error *err)
{
	*tokenizer = NULL;
	struct tokenizer *t = calloc(1, sizeof *t);
	if (!t)
		return fail_memory(err, "the tokenizer", sizeof *t);
	t->info.pre = "";
	enum vocabulary_family family = FAMILY_SPM;
	enum lap_status status = model_load(t, gguf, &family, err);
	if (!status)
		status = vocabulary_load(&t->vocab, gguf, family, err);
	if (!status && family == FAMILY_BPE)
		status = pre_load(t, gguf, err);
	if (!status)
		status = keys_load(t, gguf, err);
	if (status)
		tokenizer_destroy(t);
	else
		*tokenizer = t;
	return status;
}

void tokenizer_destroy(struct tokenizer *t)
{
	if (!t)
		return;
	vocabulary_free(&t->vocab);
	free(t->ends);
	free(t->pre_name);
	pretokenizer_destroy(t->pre);
	free(t);
}

const struct tokenizer_info *tokenizer_info(const struct tokenizer *t)
{
	return &t->info;
}

const int32_t *tokenizer_ends(const struct tokenizer *t, size_t *n)
{
	*n = t->n_ends;
	return t->ends;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t token)
{
	return bsearch(&token, t->ends, t->n_ends, sizeof *t->ends, id_compare) != NULL;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* A part of the text being merged, in a list of neighbours. */
struct symbol {
	uint32_t start, n;  /* bytes; n is 0 once it was joined to its left neighbour */
	int32_t prev, next; /* -1: none */
	int32_t id;         /* -1: no token */
};

/* A pair that may be joined, unless one of the two has changed since. */
struct candidate {
	uint64_t key; /* order << 32 | index of the left symbol: the best, then the leftmost */
	uint32_t n;   /* bytes of both together */
	int32_t id;   /* of the joined piece */
};

/* The tokens of a word met before in the same text. */
struct known_word {
	uint8_t n, n_ids; /* n is 0 in an empty slot */
	char text[30];
	int32_t ids[8];
};

enum {
	MOST_KNOWN_WORDS = 16384, /* 1 MiB, so that they stay in a core's second cache */
	KNOWN_FROM_BYTES = 1024,  /* shorter texts do without */
	BYTES_PER_KNOWN = 16,     /* of a text, for each slot */
	SHORT_WORD = 48,          /* bytes; in longer words a heap finds the best pair sooner */
};

/* One call of tokenizer_encode: the tokens so far and memory that is used again and again. */
struct encoder {
	const struct tokenizer *t;
	int32_t *ids;
	size_t n_ids, ids_capacity;
	struct symbol *symbols;
	size_t n_symbols, symbols_capacity;
	struct candidate *heap; /* lowest key first */
	size_t n_heap, heap_capacity;
	struct text normal; /* llama, gemma4: the stretch as the pieces spell it; bert: its words */
	struct words words; /* gpt2 */
	struct known_word *known; /* n_known, a power of 2, or NULL */
	size_t n_known;
	bool unknown_run; /* the last token stands for bytes that the vocabulary cannot spell */
	struct lap_error *err;
};

/* The array with room for one element more, or NULL: out of memory, and it stays as it was. */
static void *array_grow(struct lap_error *err, void *array, size_t n, size_t *capacity, size_t size)
{
	if (n < *capacity)
		return array;
	size_t wanted = *capacity ? *capacity * 2 : 64;
	void *grown = wanted > SIZE_MAX / size ? NULL : realloc(array, wanted * size);
	if (grown)
		*capacity = wanted;
	else
		fail_memory(err, "tokens", (uint64_t)wanted * size);
	return grown;
}

static enum lap_status id_push(struct encoder *e, int32_t id)
{
	int32_t *ids = array_grow(e->err, e->ids, e->n_ids, &e->ids_capacity, sizeof *ids);
	if (!ids)
		return LAP_NO_MEMORY;
	e->ids = ids;
	e->ids[e->n_ids++] = id;
	e->unknown_run = false;
	return LAP_OK;
}

static enum lap_status ids_push(struct encoder *e, const int32_t *ids, size_t n)
{
	enum lap_status status = LAP_OK;
	if (e->ids_capacity - e->n_ids < n) {
		for (size_t i = 0; i < n && !status; i++)
			status = id_push(e, ids[i]);
		return status;
	}
	memcpy(e->ids + e->n_ids, ids, n * sizeof *ids);
	e->n_ids += n;
	e->unknown_run = false;
	return status;
}

/* Bytes that no piece holds, as byte tokens, or else as the unknown token.  Byte-level vocabularies
 * without either leave them out, as their own tools do. */
static enum lap_status bytes_push(struct encoder *e, const char *bytes, size_t n)
{
	const struct tokenizer *t = e->t;
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < n && !status; i++) {
		unsigned char byte = (unsigned char)bytes[i];
		if (t->vocab.byte_ids[byte] >= 0) {
			status = id_push(e, t->vocab.byte_ids[byte]);
		} else if (t->info.unknown < 0 && begins_with_characters(t->vocab.family)) {
			status = fail(e->err, LAP_USAGE,
				"the vocabulary cannot spell the byte 0x%02X: it has neither a "
				"token for it "
				"nor an unknown token",
				byte);
		} else if (t->info.unknown >= 0 && !e->unknown_run) {
			status = id_push(e, t->info.unknown);
			e->unknown_run = true;
		}
	}
	return status;
}

static enum lap_status symbol_push(struct encoder *e, size_t start, size_t n, int32_t id)
{
	struct symbol *symbols =
		array_grow(e->err, e->symbols, e->n_symbols, &e->symbols_capacity, sizeof *symbols);
	if (!symbols)
		return LAP_NO_MEMORY;
	e->symbols = symbols;
	int32_t i = (int32_t)e->n_symbols++;
	e->symbols[i] = (struct symbol){(uint32_t)start, (uint32_t)n, i - 1, -1, id};
	if (i > 0)
		e->symbols[i - 1].next = i;
	return LAP_OK;
}

static enum lap_status heap_push(struct encoder *e, struct candidate c)
{
	struct candidate *heap =
		array_grow(e->err, e->heap, e->n_heap, &e->heap_capacity, sizeof *heap);
	if (!heap)
		return LAP_NO_MEMORY;
	e->heap = heap;
	size_t i = e->n_heap++;
	for (; i > 0 && heap[(i - 1) / 2].key > c.key; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = c;
	return LAP_OK;
}

static struct candidate heap_pop(struct encoder *e)
{
	struct candidate *heap = e->heap, top = heap[0], last = heap[--e->n_heap];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < e->n_heap; i = child) {
		child += child + 1 < e->n_heap && heap[child + 1].key < heap[child].key;
		if (heap[child].key >= last.key)
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	return top;
}

/* Puts the pair that begins with symbol `left` on the heap, if it may be joined. */
static enum lap_status pair_consider(struct encoder *e, const char *text, int32_t left)
{
	if (left < 0 || e->symbols[left].next < 0)
		return LAP_OK;
	const struct tokenizer *t = e->t;
	const struct symbol *a = &e->symbols[left], *b = &e->symbols[a->next];
	struct candidate c = {.n = a->n + b->n};
	uint32_t order;
	if (t->vocab.family == FAMILY_SPM) {
		c.id = vocabulary_piece(&t->vocab, text + a->start, c.n);
		if (c.id < 0)
			return LAP_OK;
		order = t->vocab.tokens[c.id].order;
	} else {
		const struct merge *merge =
			a->id < 0 || b->id < 0 ? NULL : vocabulary_merge(&t->vocab, a->id, b->id);
		if (!merge)
			return LAP_OK;
		c.id = merge->id;
		order = merge->rank;
	}
	c.key = (uint64_t)order << 32 | (uint32_t)left;
	return heap_push(e, c);
}

/* Joins the symbols of `text` until no pair is left, and appends their tokens. */
static enum lap_status symbols_merge(struct encoder *e, const char *text)
{
	enum lap_status status = LAP_OK;
	e->n_heap = 0;
	for (size_t i = 0; i < e->n_symbols && !status; i++)
		status = pair_consider(e, text, (int32_t)i);
	while (e->n_heap > 0 && !status) {
		struct candidate c = heap_pop(e);
		struct symbol *left = &e->symbols[(uint32_t)c.key];
		/* Symbols only grow: the lengths tell whether both are what they were. */
		if (left->n == 0 || left->next < 0 || left->n + e->symbols[left->next].n != c.n)
			continue;
		struct symbol *right = &e->symbols[left->next];
		right->n = 0;
		left->n = c.n;
		left->id = c.id;
		left->next = right->next;
		if (left->next >= 0)
			e->symbols[left->next].prev = (int32_t)(left - e->symbols);
		status = pair_consider(e, text, left->prev);
		if (!status)
			status = pair_consider(e, text, (int32_t)(left - e->symbols));
	}
	for (int32_t i = e->n_symbols ? 0 : -1; i >= 0 && !status; i = e->symbols[i].next) {
		const struct symbol *s = &e->symbols[i];
		status = s->id >= 0 ? id_push(e, s->id) : bytes_push(e, text + s->start, s->n);
	}
	return status;
}

/* A stretch of text as the pieces spell it, in e->normal: underlines as spaces; SPM: with its prefix,
 * and extra spaces away. */
static enum lap_status characters_normalize(struct encoder *e, const char *text, size_t n)
{
	const struct tokenizer *t = e->t;
	struct text *out = &e->normal;
	out->n = 0;
	if (!text_append(out, " ", 1) || !text_append(out, text, n))
		return fail_memory(e->err, "the text", n);
	uint32_t length;
	underlines_decode(out->data + 1, n, out->data + 1, &length);
	if (t->trim_spaces) {
		uint32_t kept = 0;
		for (uint32_t i = 1; i <= length; i++) {
			bool extra = out->data[i] == ' ' &&
				(kept == 0 || i == length || out->data[i + 1] == ' ');
			if (!extra)
				out->data[1 + kept++] = out->data[i];
		}
		length = kept;
	}
	if (length == 0 || !t->info.add_space_prefix) {
		memmove(out->data, out->data + 1, length);
		out->n = length;
	} else {
		out->n = length + 1;
	}
	return LAP_OK;
}

/* A word of characters.  Newlines are a word of their own in gemma4 (see characters_part): a run of
 * them that is a token is taken whole, whatever the merges say. */
static enum lap_status characters_word(struct encoder *e, const char *s, size_t n)
{
	bool is_run = e->t->vocab.family == FAMILY_CHARACTERS && s[0] == '\n';
	int32_t whole = is_run ? vocabulary_piece(&e->t->vocab, s, n) : -1;
	if (whole >= 0)
		return id_push(e, whole);
	enum lap_status status = LAP_OK;
	e->n_symbols = 0;
	for (size_t i = 0; !status && i < n;) {
		uint32_t code;
		unsigned length = utf8_decode(s + i, n - i, &code);
		int32_t id = length ? vocabulary_piece(&e->t->vocab, s + i, length) : -1;
		length += !length;
		status = symbol_push(e, i, length, id);
		i += length;
	}
	return status ? status : symbols_merge(e, s);
}

/* The same as symbols_merge for the bytes of a short word, each a token: a scan finds the best pair. */
static enum lap_status short_merge(struct encoder *e, const char *word, size_t n)
{
	const struct vocabulary *v = &e->t->vocab;
	int32_t ids[SHORT_WORD], joined[SHORT_WORD];
	uint32_t ranks[SHORT_WORD]; /* of the pair that begins here; the last has none */
	for (size_t i = 0; i < n; i++) {
		const struct merge *m = i + 1 < n ? vocabulary_byte_merge(v, (unsigned char)word[i],
							    (unsigned char)word[i + 1])
						  : NULL;
		ids[i] = v->byte_ids[(unsigned char)word[i]];
		ranks[i] = m ? m->rank : UINT32_MAX;
		joined[i] = m ? m->id : -1;
	}
	for (;;) {
		size_t best = 0;
		for (size_t i = 1; i < n; i++)
			best = ranks[i] < ranks[best] ? i : best;
		if (ranks[best] == UINT32_MAX)
			break;
		ids[best] = joined[best];
		n--;
		for (size_t i = best + 1; i < n; i++) {
			ids[i] = ids[i + 1];
			ranks[i] = ranks[i + 1];
			joined[i] = joined[i + 1];
		}
		for (size_t i = best - (best > 0); i <= best; i++) {
			const struct merge *m =
				i + 1 < n ? vocabulary_merge(v, ids[i], ids[i + 1]) : NULL;
			ranks[i] = m ? m->rank : UINT32_MAX;
			joined[i] = m ? m->id : -1;
		}
	}
	return ids_push(e, ids, n);
}

static bool all_bytes_are_tokens(const struct vocabulary *v, const char *word, size_t n)
{
	bool all = true;
	for (size_t i = 0; i < n; i++)
		all = all && v->byte_ids[(unsigned char)word[i]] >= 0;
	return all;
}

static enum lap_status bpe_word(struct encoder *e, const char *word, size_t n)
{
	const struct tokenizer *t = e->t;
	int32_t whole = t->ignore_merges ? vocabulary_piece(&t->vocab, word, n) : -1;
	if (whole >= 0)
		return id_push(e, whole);
	if (n > 0 && n <= SHORT_WORD && all_bytes_are_tokens(&t->vocab, word, n))
		return short_merge(e, word, n);
	enum lap_status status = LAP_OK;
	e->n_symbols = 0;
	for (size_t j = 0; j < n && !status; j++)
		status = symbol_push(e, j, 1, t->vocab.byte_ids[(unsigned char)word[j]]);
	return status ? status : symbols_merge(e, word);
}

/* Where a word is kept, or NULL. */
static struct known_word *known_slot(struct encoder *e, const char *word, size_t n)
{
	if (!e->known || n == 0 || n > sizeof e->known->text)
		return NULL;
	return &e->known[(size_t)XXH3_64bits(word, n) & (e->n_known - 1)];
}

/* Keeps what the word gave, from ids[begin] on.  The unknown token depends on what stands before. */
static void known_keep(
	struct encoder *e, struct known_word *slot, const char *word, size_t n, size_t begin)
{
	size_t n_ids = e->n_ids - begin;
	if (n_ids == 0 || n_ids > ARRAY_COUNT(slot->ids) || e->unknown_run)
		return;
	for (size_t i = begin; i < e->n_ids; i++)
		if (e->ids[i] == e->t->info.unknown)
			return;
	*slot = (struct known_word){.n = (uint8_t)n, .n_ids = (uint8_t)n_ids};
	memcpy(slot->text, word, n);
	memcpy(slot->ids, e->ids + begin, n_ids * sizeof *slot->ids);
}

/* The tokens of a stretch across whose ends no token reaches. */
static enum lap_status word_encode(struct encoder *e, const char *word, size_t n)
{
	enum lap_status status = LAP_OK;
	struct known_word *slot = known_slot(e, word, n);
	if (slot && slot->n == n && memcmp(slot->text, word, n) == 0)
		return ids_push(e, slot->ids, slot->n_ids);
	size_t begin = e->n_ids;
	status = begins_with_characters(e->t->vocab.family) ? characters_word(e, word, n)
							    : bpe_word(e, word, n);
	if (slot && !status)
		known_keep(e, slot, word, n, begin);
	return status;
}

/* True when no token reaches from byte a to b behind it: no piece does, or gemma4 begins or ends a run
 * of newlines here. */
static bool characters_part(const struct vocabulary *v, char a, char b)
{
	return vocabulary_parts(v, (unsigned char)a, (unsigned char)b) ||
		(v->family == FAMILY_CHARACTERS && (a == '\n') != (b == '\n'));
}

static enum lap_status characters_encode(struct encoder *e, const char *text, size_t n)
{
	const struct vocabulary *v = &e->t->vocab;
	enum lap_status status = characters_normalize(e, text, n);
	const char *s = e->normal.data;
	for (size_t begin = 0, end; begin < e->normal.n && !status; begin = end) {
		end = begin + 1;
		while (end < e->normal.n &&
			(((unsigned char)s[end] & 0xC0) == 0x80 ||
				!characters_part(v, s[end - 1], s[end])))
			end++;
		status = word_encode(e, s + begin, end - begin);
	}
	return status;
}

static enum lap_status bpe_encode(struct encoder *e, const char *text, size_t n)
{
	enum lap_status status = pretokenizer_split(e->t->pre, text, n, &e->words, e->err);
	size_t begin = 0;
	for (size_t i = 0; i < e->words.n && !status; begin = e->words.ends[i++])
		status = word_encode(e, text + begin, e->words.ends[i] - begin);
	return status;
}

/* One word, a space in front: the longest piece that begins it, then the longest that goes on.  When
 * one is missing, all of it is unknown. */
static enum lap_status pieces_encode(struct encoder *e, const char *word, size_t n)
{
	const struct vocabulary *v = &e->t->vocab;
	size_t n_before = e->n_ids;
	enum lap_status status = LAP_OK;
	for (size_t at = 0; at < n && !status;) {
		size_t length = n - at < v->longest ? n - at : v->longest;
		int32_t id = -1;
		while (length > 0 && (id = vocabulary_piece(v, word + at, length)) < 0)
			length--;
		if (id < 0)
			break;
		status = id_push(e, id);
		at += length;
		if (at == n)
			return status;
	}
	e->n_ids = n_before;
	if (!status && e->t->info.unknown >= 0)
		status = id_push(e, e->t->info.unknown);
	return status;
}

static enum lap_status wordpiece_encode(struct encoder *e, const char *text, size_t n)
{
	e->normal.n = 0;
	if (!wordpiece_words(text, n, &e->normal))
		return fail_memory(e->err, "the text", n);
	enum lap_status status = LAP_OK;
	char *s = e->normal.data;
	for (size_t begin = 0, end; begin < e->normal.n && !status; begin = end) {
		const char *space = memchr(s + begin + 1, ' ', e->normal.n - begin - 1);
		end = space ? (size_t)(space - s) : e->normal.n;
		uint32_t length; /* an underline within a word reads like a piece's space */
		underlines_decode(s + begin, end - begin, s + begin, &length);
		status = pieces_encode(e, s + begin, length);
	}
	return status;
}

static enum lap_status stretch_encode(struct encoder *e, const char *text, size_t n)
{
	switch (e->t->vocab.family) {
	case FAMILY_SPM:
	case FAMILY_CHARACTERS:
		return characters_encode(e, text, n);
	case FAMILY_BPE:
		return bpe_encode(e, text, n);
	case FAMILY_WORDPIECE:
		return wordpiece_encode(e, text, n);
	}
	return LAP_OK;
}

/* The text between special tokens, and these. */
static enum lap_status text_encode(
	struct encoder *e, const char *text, size_t n_bytes, bool parse_special)
{
	const struct vocabulary *v = &e->t->vocab;
	enum lap_status status = LAP_OK;
	for (size_t at = 0; at < n_bytes && !status;) {
		const struct special *special = NULL;
		size_t begin = at;
		while (at < n_bytes && !special) {
			unsigned char byte = (unsigned char)text[at];
			if (v->first[byte] != v->first[byte + 1])
				special = vocabulary_special(
					v, text + at, n_bytes - at, parse_special);
			at += !special;
		}
		if (at > begin)
			status = stretch_encode(e, text + begin, at - begin);
		if (special && !status) {
			status = id_push(e, special->id);
			at += special->n;
		}
	}
	return status;
}

enum lap_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes,
	bool add_special, bool parse_special, int32_t **tokens, size_t *n, struct lap_error *err)
{
	*tokens = NULL;
	*n = 0;
	if (n_bytes >= INT32_MAX)
		return fail(err, LAP_USAGE, "the text has %zu bytes, expected less than %d",
			n_bytes, INT32_MAX);
	struct encoder e = {.t = t, .err = err};
	/* An empty list is an allocation too. */
	e.ids = array_grow(err, NULL, 0, &e.ids_capacity, sizeof *e.ids);
	enum lap_status status = e.ids ? LAP_OK : LAP_NO_MEMORY;
	if (n_bytes >= KNOWN_FROM_BYTES) { /* without memory for it the text only takes longer */
		for (e.n_known = KNOWN_FROM_BYTES / BYTES_PER_KNOWN;
			e.n_known < MOST_KNOWN_WORDS && e.n_known < n_bytes / BYTES_PER_KNOWN;)
			e.n_known *= 2;
		e.known = array_alloc(e.n_known, sizeof *e.known);
	}
	if (!status && add_special && t->info.add_bos && t->info.bos >= 0)
		status = id_push(&e, t->info.bos);
	if (!status)
		status = text_encode(&e, text, n_bytes, parse_special);
	if (!status && add_special && t->info.add_eos && t->info.eos >= 0)
		status = id_push(&e, t->info.eos);
	free(e.symbols);
	free(e.heap);
	free(e.known);
	text_free(&e.normal);
	words_free(&e.words);
	if (status) {
		free(e.ids);
		return status;
	}
	*tokens = e.ids;
	*n = e.n_ids;
	return LAP_OK;
}

/* ---- decoding -------------------------------------------------------------------------------- */

const char *tokenizer_piece(const struct tokenizer *t, int32_t token, bool special, size_t *n_bytes)
{
	*n_bytes = 0;
	if (token < 0 || (uint32_t)token >= t->info.n_vocab)
		return "";
	const struct token *piece = &t->vocab.tokens[token];
	bool shown = piece->type == TOKEN_NORMAL || piece->type == TOKEN_USER ||
		piece->type == TOKEN_BYTE;
	if (!shown && !special)
		return "";
	*n_bytes = piece->n;
	return piece->text;
}

/* True when these 1 to 3 bytes begin a character that more bytes could complete. */
static bool utf8_begins(const char *s, size_t n)
{
	static const char second[] = {'\x80', '\x90', '\xA0'}; /* one of each range that matters */
	for (size_t i = 0; i < sizeof second; i++) {
		char whole[4] = {s[0], n > 1 ? s[1] : second[i], n > 2 ? s[2] : '\x80', '\x80'};
		uint32_t code;
		if (utf8_decode(whole, sizeof whole, &code) > n)
			return true;
	}
	return false;
}

bool decoder_add(const struct tokenizer *t, struct decoder *d, int32_t token, struct text *out)
{
	size_t n;
	const char *piece = tokenizer_piece(t, token, d->special, &n);
	if (n == 0)
		return true;
	if (!d->started && t->info.add_space_prefix && piece[0] == ' ') {
		piece++;
		n--;
	}
	d->started = true;
	struct text held = {0};
	if (!text_append(&held, d->pending, d->n_pending) || !text_append(&held, piece, n)) {
		text_free(&held);
		return false;
	}
	size_t whole = held.n;
	for (size_t i = held.n < 3 ? 0 : held.n - 3; i < held.n && whole == held.n; i++) {
		if (utf8_begins(held.data + i, held.n - i))
			whole = i;
	}
	bool ok = text_append(out, held.data, whole);
	d->n_pending = (unsigned)(held.n - whole);
	if (d->n_pending)
		memcpy(d->pending, held.data + whole, d->n_pending);
	text_free(&held);
	return ok;
}

bool decoder_finish(struct decoder *d, struct text *out)
{
	bool ok = text_append(out, d->pending, d->n_pending);
	d->n_pending = 0;
	return ok;
}
