/* The tables of a vocabulary and how they are read from a file.  See vocabulary.h. */
#include "vocabulary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char underline[] = "\u2581"; /* SPM's spelling of a space */
enum { N_UNDERLINE = 3 };

/* A slot of the table of pieces. */
struct piece_slot {
	uint32_t hash;
	uint32_t id_plus_1; /* 0: empty */
};

static const struct control_name names[] = {
	{"<|eot_id|>", ROLE_TURN},
	{"<|eot|>", ROLE_TURN},
	{"<|im_end|>", ROLE_TURN},
	{"<|end|>", ROLE_TURN},
	{"<end_of_turn>", ROLE_TURN},
	{"<turn|>", ROLE_TURN},
	{"<end_of_utterance>", ROLE_TURN},
	{"<EOT>", ROLE_TURN},
	{"_<EOT>", ROLE_TURN},
	{"[EOT]", ROLE_TURN},
	{"<|EOT|>", ROLE_TURN},
	{"<|eom_id|>", ROLE_END},
	{"<|eom|>", ROLE_END},
	{"<|return|>", ROLE_END},
	{"<|call|>", ROLE_END},
	{"<|tool_response>", ROLE_END}, /* gemma4: what follows is for the caller to write */
	{"<|endoftext|>", ROLE_END},
	{"<|end_of_text|>", ROLE_END},
	{"<｜end▁of▁sentence｜>", ROLE_END},
	{"</s>", ROLE_END},
	{"<eos>", ROLE_END},
	{"[EOS]", ROLE_END},
	/* Fill in the middle: a model that begins a new file has finished the gap. */
	{"<|fim_pad|>", ROLE_END},
	{"<fim_pad>", ROLE_END},
	{"<fim-pad>", ROLE_END},
	{"<|fim_repo|>", ROLE_END},
	{"<|repo_name|>", ROLE_END},
	{"<reponame>", ROLE_END},
	{"<|file_sep|>", ROLE_END},
	{"<|fim_prefix|>", ROLE_CONTROL},
	{"<|fim_suffix|>", ROLE_CONTROL},
	{"<|fim_middle|>", ROLE_CONTROL},
	{"<fim_prefix>", ROLE_CONTROL},
	{"<fim_suffix>", ROLE_CONTROL},
	{"<fim_middle>", ROLE_CONTROL},
	{"<fim-prefix>", ROLE_CONTROL},
	{"<fim-suffix>", ROLE_CONTROL},
	{"<fim-middle>", ROLE_CONTROL},
	{"<｜fim▁begin｜>", ROLE_CONTROL},
	{"<｜fim▁hole｜>", ROLE_CONTROL},
	{"<｜fim▁end｜>", ROLE_CONTROL},
	{"<|code_prefix|>", ROLE_CONTROL},
	{"<|code_suffix|>", ROLE_CONTROL},
	{"<|code_middle|>", ROLE_CONTROL},
};

const struct control_name *control_names(size_t *n)
{
	*n = ARRAY_COUNT(names);
	return names;
}

/* ---- look-up --------------------------------------------------------------------------------- */

static size_t table_size(uint64_t n)
{
	size_t size = 16;
	while (size < n + n / 2)
		size *= 2;
	return size;
}

/* The slot of these bytes, or the empty one where they belong. */
static struct piece_slot *piece_slot(
	const struct vocabulary *v, const char *text, size_t n, uint32_t *hash)
{
	uint64_t h = XXH3_64bits(text, n);
	*hash = (uint32_t)(h >> 32);
	for (size_t i = (size_t)h & v->piece_mask;; i = (i + 1) & v->piece_mask) {
		struct piece_slot *slot = &v->pieces[i];
		if (slot->id_plus_1 == 0)
			return slot;
		const struct token *token = &v->tokens[slot->id_plus_1 - 1];
		if (slot->hash == *hash && token->n == n && memcmp(token->text, text, n) == 0)
			return slot;
	}
}

int32_t vocabulary_piece(const struct vocabulary *v, const char *text, size_t n)
{
	uint32_t hash;
	return (int32_t)piece_slot(v, text, n, &hash)->id_plus_1 - 1;
}

static uint64_t pair_hash(int32_t left, int32_t right)
{
	return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
}

/* Most pairs do not merge, and a bit for each is nearer than the table: FILTER_SPREAD bits a slot. */
enum { FILTER_SPREAD = 8 };

static uint64_t *filter_word(const struct vocabulary *v, uint64_t hash, uint64_t *bit)
{
	size_t i = (size_t)(hash >> 24) & ((v->merge_mask + 1) * FILTER_SPREAD - 1);
	*bit = (uint64_t)1 << i % 64;
	return &v->merge_filter[i / 64];
}

static struct merge *merge_slot(const struct vocabulary *v, int32_t left, int32_t right)
{
	uint64_t h = pair_hash(left, right);
	for (size_t i = (size_t)(h >> 32) & v->merge_mask;; i = (i + 1) & v->merge_mask) {
		struct merge *slot = &v->merges[i];
		if (slot->left < 0 || (slot->left == left && slot->right == right))
			return slot;
	}
}

const struct merge *vocabulary_merge(const struct vocabulary *v, int32_t left, int32_t right)
{
	uint64_t bit, filter = *filter_word(v, pair_hash(left, right), &bit);
	if (!(filter & bit))
		return NULL;
	const struct merge *merge = merge_slot(v, left, right);
	return merge->left < 0 ? NULL : merge;
}

const struct merge *vocabulary_byte_merge(
	const struct vocabulary *v, unsigned char left, unsigned char right)
{
	uint32_t slot = v->byte_merges[left * 256 + right];
	return slot ? &v->merges[slot - 1] : NULL;
}

const struct special *vocabulary_special(
	const struct vocabulary *v, const char *text, size_t n, bool parse_special)
{
	uint32_t lo = v->first[(unsigned char)text[0]];
	uint32_t hi = v->first[(unsigned char)text[0] + 1];
	const struct special *found = NULL;
	/* lo to hi are the tokens that begin with the first `depth` bytes, the shortest in front. */
	for (uint32_t depth = 1; lo < hi; depth++) {
		for (; lo < hi && v->specials[lo].n == depth; lo++) {
			bool longer = !found || found->n < depth;
			if (longer && (parse_special || v->specials[lo].always))
				found = &v->specials[lo];
		}
		if (depth == n)
			break;
		unsigned char byte = (unsigned char)text[depth];
		for (uint32_t end = hi; lo < end;) { /* the first with this byte or a greater one */
			uint32_t middle = lo + (end - lo) / 2;
			if ((unsigned char)v->specials[middle].text[depth] < byte)
				lo = middle + 1;
			else
				end = middle;
		}
		for (uint32_t begin = lo; begin < hi;) { /* the first with a greater one */
			uint32_t middle = begin + (hi - begin) / 2;
			if ((unsigned char)v->specials[middle].text[depth] > byte)
				hi = middle;
			else
				begin = middle + 1;
		}
	}
	return found;
}

int32_t vocabulary_control(const struct vocabulary *v, const char *name)
{
	size_t n = strlen(name);
	const struct special *s = vocabulary_special(v, name, n, true);
	return s && s->n == n && v->tokens[s->id].type == TOKEN_CONTROL ? s->id : -1;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The array at `key`, its elements strings or numbers; NULL in *kv when absent and optional.
 * n_expected is the length it must have, 0 for any. */
static enum lap_status array_find(const struct gguf *g, const char *key, bool strings,
	uint64_t n_expected, bool optional, const struct gguf_kv **kv, struct lap_error *err)
{
	*kv = gguf_find(g, key);
	if (!*kv)
		return optional ? LAP_OK
				: fail(err, LAP_BAD_MODEL, "%s: %s is missing", g->path, key);
	bool is_string = (*kv)->element == GGUF_STRING;
	if ((*kv)->type != GGUF_ARRAY || (*kv)->element == GGUF_ARRAY || is_string != strings)
		return fail(err, LAP_BAD_MODEL, "%s: %s is not an array of %s, as expected",
			g->path, key, strings ? "strings" : "numbers");
	if (n_expected && (*kv)->n != n_expected)
		return fail(err, LAP_BAD_MODEL,
			"%s: %s has %llu elements, expected %llu (one a token)", g->path, key,
			(unsigned long long)(*kv)->n, (unsigned long long)n_expected);
	return LAP_OK;
}

/* GPT-2's alphabet: bytes that print stand for themselves, the others for 256, 257, ... in order.
 * Byte of a code point, or -1. */
static int byte_of_letter(uint32_t code)
{
	if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) ||
		(code >= 174 && code <= 255))
		return (int)code;
	if (code >= 256 && code < 256 + 33)
		return (int)code - 256; /* 0 to 32 */
	if (code >= 289 && code < 289 + 34)
		return (int)code - 289 + 127; /* 127 to 160 */
	return code == 323 ? 173 : -1;
}

/* Bytes that a string of GPT-2 letters stands for; false, and any number of bytes written, when
 * there are other characters in it.  out has room for n. */
static bool letters_decode(const char *s, size_t n, char *out, uint32_t *n_out)
{
	*n_out = 0;
	for (size_t i = 0; i < n;) {
		uint32_t code;
		unsigned length = utf8_decode(s + i, n - i, &code);
		int byte = length ? byte_of_letter(code) : -1;
		if (byte < 0)
			return false;
		out[(*n_out)++] = (char)byte;
		i += length;
	}
	return true;
}

void underlines_decode(const char *s, size_t n, char *out, uint32_t *n_out)
{
	*n_out = 0;
	for (size_t i = 0; i < n;) {
		bool is_space = n - i >= N_UNDERLINE && memcmp(s + i, underline, N_UNDERLINE) == 0;
		out[(*n_out)++] = is_space ? ' ' : s[i];
		i += is_space ? N_UNDERLINE : 1;
	}
}

/* The bytes of a piece as the family spells it, as letters_decode. */
static bool piece_decode(
	const struct vocabulary *v, const char *s, size_t n, char *out, uint32_t *n_out)
{
	if (v->family == FAMILY_BPE)
		return letters_decode(s, n, out, n_out);
	underlines_decode(s, n, out, n_out);
	return true;
}

/* "<0x0A>" -> 10; -1 for anything else. */
static int byte_name(struct gguf_string s)
{
	if (s.n != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>')
		return -1;
	int byte = 0;
	for (int i = 3; i < 5; i++) {
		static const char digits[] = "0123456789ABCDEF0123456789abcdef";
		const char *digit = s.data[i] ? strchr(digits, s.data[i]) : NULL;
		if (!digit)
			return -1;
		byte = byte * 16 + (int)((digit - digits) % 16);
	}
	return byte;
}

/* Scores as integers that sort the other way, so that the best pair is the lowest key. */
static uint32_t score_order(float score)
{
	uint32_t bits;
	score += 0.0f; /* -0 and 0 are one score */
	memcpy(&bits, &score, sizeof bits);
	return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

/* True when the file calls a token user-defined or normal that is a control token by its name. */
static bool is_control_name(enum token_type type, struct gguf_string s)
{
	bool bars =
		s.n > 4 && memcmp(s.data, "<|", 2) == 0 && memcmp(s.data + s.n - 2, "|>", 2) == 0;
	if (type != TOKEN_USER && !(type == TOKEN_NORMAL && bars))
		return false;
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		const char *name = names[i].text;
		if (strlen(name) == s.n && memcmp(name, s.data, s.n) == 0)
			return true;
	}
	return false;
}

/* Text and type of token i, as it is spelled in the file; its bytes are written to `out`. */
static enum lap_status token_decode(struct vocabulary *v, uint32_t i, const struct gguf *g,
	struct gguf_string s, bool typed, char *out, struct lap_error *err)
{
	struct token *token = &v->tokens[i];
	token->text = out;
	int byte = byte_name(s);
	if (!typed && begins_with_characters(v->family) && byte >= 0)
		token->type = TOKEN_BYTE;
	if (is_control_name(token->type, s))
		token->type = TOKEN_CONTROL;
	if (token->type == TOKEN_BYTE) {
		char shown[GGUF_SHOW_BYTES];
		if (byte < 0)
			return fail(err, LAP_BAD_MODEL,
				"%s: byte token %u is spelled \"%s\", expected \"<0xNN>\"", g->path,
				i, gguf_show(s, shown));
		out[0] = (char)byte;
		token->n = 1;
		return LAP_OK;
	}
	bool is_piece = token->type == TOKEN_NORMAL ||
		(v->family != FAMILY_BPE && token->type == TOKEN_USER);
	if (!is_piece || !piece_decode(v, s.data, s.n, out, &token->n)) {
		if (s.n)
			memcpy(out, s.data, s.n);
		token->n = (uint32_t)s.n;
	}
	return LAP_OK;
}

static enum lap_status tokens_load(
	struct vocabulary *v, const struct gguf *g, struct lap_error *err)
{
	const struct gguf_kv *tokens, *types, *scores = NULL;
	enum lap_status status =
		array_find(g, "tokenizer.ggml.tokens", true, 0, false, &tokens, err);
	if (status)
		return status;
	if (tokens->n == 0 || tokens->n > INT32_MAX)
		return fail(err, LAP_BAD_MODEL,
			"%s: tokenizer.ggml.tokens has %llu elements, expected 1 to %d", g->path,
			(unsigned long long)tokens->n, INT32_MAX);
	status = array_find(g, "tokenizer.ggml.token_type", false, tokens->n, true, &types, err);
	if (!status && v->family == FAMILY_SPM)
		status = array_find(
			g, "tokenizer.ggml.scores", false, tokens->n, false, &scores, err);
	if (status)
		return status;

	uint64_t n_bytes = 0;
	for (uint64_t i = 0; i < tokens->n; i++) {
		if (tokens->strings[i].n > UINT32_MAX ||
			!size_add(n_bytes, tokens->strings[i].n, &n_bytes))
			return fail(err, LAP_BAD_MODEL, "%s: token %llu has %llu bytes", g->path,
				(unsigned long long)i, (unsigned long long)tokens->strings[i].n);
	}
	v->n_tokens = (uint32_t)tokens->n;
	v->tokens = array_alloc(tokens->n, sizeof *v->tokens);
	v->bytes = array_alloc(n_bytes + 1, 1);
	if (!v->tokens || !v->bytes)
		return fail_memory(err, "the vocabulary", n_bytes + tokens->n * sizeof *v->tokens);

	char *out = v->bytes;
	for (uint32_t i = 0; i < v->n_tokens && !status; i++) {
		double type = types ? gguf_number(types, i) : TOKEN_NORMAL;
		double score = scores ? gguf_number(scores, i) : 0;
		if (!(type >= 0 && type < N_TOKEN_TYPES) || isnan(score))
			return fail(err, LAP_BAD_MODEL,
				"%s: token %u has type %g and score %g, expected 0 to %d and a "
				"number",
				g->path, i, type, score, N_TOKEN_TYPES - 1);
		v->tokens[i].type = type < 1 ? TOKEN_NORMAL : (enum token_type)type;
		v->tokens[i].order = score_order((float)score);
		status = token_decode(v, i, g, tokens->strings[i], types != NULL, out, err);
		out += v->tokens[i].n;
	}
	return status;
}

/* Enters tokens of one type into the table of pieces; of equal ones the first stays. */
static void pieces_enter(struct vocabulary *v, enum token_type type)
{
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		const struct token *token = &v->tokens[i];
		if (token->type != type || token->n == 0)
			continue;
		uint32_t hash, n = token->n;
		char letters[4];
		const char *text = token->text;
		/* Some byte-level vocabularies list their rarest bytes among the user-defined tokens. */
		if (type == TOKEN_USER && v->family == FAMILY_BPE) {
			if (n > sizeof letters || !letters_decode(text, n, letters, &n) || n != 1)
				continue;
			unsigned char byte = (unsigned char)letters[0];
			if (v->byte_ids[byte] < 0)
				v->byte_ids[byte] = (int32_t)i;
			continue;
		}
		struct piece_slot *slot = piece_slot(v, text, n, &hash);
		if (slot->id_plus_1 == 0)
			*slot = (struct piece_slot){hash, i + 1};
		v->longest = n > v->longest ? n : v->longest;
		for (uint32_t j = 1; begins_with_characters(v->family) && j < n; j++) {
			unsigned char a = (unsigned char)text[j - 1], b = (unsigned char)text[j];
			v->within[a][b / 32] |= (uint32_t)1 << b % 32;
		}
	}
}

/* The table of pieces, and the token of each byte. */
static enum lap_status pieces_load(struct vocabulary *v, struct lap_error *err)
{
	size_t size = table_size(v->n_tokens);
	v->pieces = array_alloc(size, sizeof *v->pieces);
	if (!v->pieces)
		return fail_memory(err, "the vocabulary", size * sizeof *v->pieces);
	v->piece_mask = size - 1;
	pieces_enter(v, TOKEN_NORMAL);
	for (int byte = 0; byte < 256; byte++)
		v->byte_ids[byte] =
			v->family == FAMILY_BPE ? vocabulary_piece(v, &(char){(char)byte}, 1) : -1;
	pieces_enter(v, TOKEN_USER);
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		unsigned char byte = (unsigned char)v->tokens[i].text[0];
		if (v->tokens[i].type == TOKEN_BYTE && v->byte_ids[byte] < 0)
			v->byte_ids[byte] = (int32_t)i;
	}
	return LAP_OK;
}

/* "left right" -> ids of left, right and leftright; false when a part is no piece. */
static bool merge_parse(
	const struct vocabulary *v, struct gguf_string s, char *scratch, struct merge *merge)
{
	/* The alphabets have no space, but a piece may be spelled with one: not at its start. */
	const char *space = s.n > 1 ? memchr(s.data + 1, ' ', s.n - 1) : NULL;
	if (!space)
		return false;
	size_t n = (size_t)(space - s.data);
	uint32_t n_left, n_right;
	if (!piece_decode(v, s.data, n, scratch, &n_left) ||
		!piece_decode(v, space + 1, s.n - n - 1, scratch + n_left, &n_right))
		return false;
	merge->left = vocabulary_piece(v, scratch, n_left);
	merge->right = vocabulary_piece(v, scratch + n_left, n_right);
	merge->id = vocabulary_piece(v, scratch, n_left + n_right);
	return n_right && merge->left >= 0 && merge->right >= 0 && merge->id >= 0;
}

static enum lap_status merges_load(
	struct vocabulary *v, const struct gguf *g, struct lap_error *err)
{
	const struct gguf_kv *kv;
	enum lap_status status = array_find(g, "tokenizer.ggml.merges", true, 0, false, &kv, err);
	if (status)
		return status;
	uint64_t longest = 0;
	for (uint64_t i = 0; i < kv->n; i++)
		longest = kv->strings[i].n > longest ? kv->strings[i].n : longest;
	if (kv->n > INT32_MAX || longest > INT32_MAX)
		return fail(err, LAP_BAD_MODEL,
			"%s: there are %llu merges of up to %llu bytes, expected at most %d",
			g->path, (unsigned long long)kv->n, (unsigned long long)longest, INT32_MAX);
	size_t size = table_size(kv->n);
	v->merges = array_alloc(size, sizeof *v->merges);
	v->merge_filter = array_alloc(size * FILTER_SPREAD / 64, sizeof *v->merge_filter);
	v->byte_merges = array_alloc(256 * 256, sizeof *v->byte_merges);
	char *scratch = array_alloc(longest + 1, 1);
	if (!v->merges || !v->merge_filter || !v->byte_merges || !scratch) {
		free(scratch);
		return fail_memory(err, "the merges", size * sizeof *v->merges + longest);
	}
	v->merge_mask = size - 1;
	for (size_t i = 0; i < size; i++)
		v->merges[i].left = -1;
	for (uint32_t i = 0; i < kv->n && !status; i++) {
		struct gguf_string s = kv->strings[i];
		struct merge merge = {.rank = i};
		if (!merge_parse(v, s, scratch, &merge)) {
			char shown[GGUF_SHOW_BYTES];
			status = fail(err, LAP_BAD_MODEL,
				"%s: merge %u is \"%s\", expected two tokens that join to one",
				g->path, i, gguf_show(s, shown));
			break;
		}
		struct merge *slot = merge_slot(v, merge.left, merge.right);
		if (slot->left < 0) {
			uint64_t bit, hash = pair_hash(merge.left, merge.right);
			uint64_t *word = filter_word(v, hash, &bit);
			*slot = merge;
			*word |= bit;
		}
	}
	for (unsigned i = 0; i < 256 * 256 && !status; i++) {
		int32_t left = v->byte_ids[i / 256], right = v->byte_ids[i % 256];
		const struct merge *merge =
			left < 0 || right < 0 ? NULL : vocabulary_merge(v, left, right);
		if (merge)
			v->byte_merges[i] = (uint32_t)(merge - v->merges) + 1;
	}
	free(scratch);
	return status;
}

static int special_compare(const void *a, const void *b)
{
	const struct special *x = a, *y = b;
	int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
	if (order)
		return order;
	return x->n != y->n ? (x->n < y->n ? -1 : 1) : (x->id < y->id ? -1 : 1);
}

static enum lap_status specials_load(struct vocabulary *v, struct lap_error *err)
{
	for (int pass = 0; pass < 2; pass++) { /* count, then fill */
		v->n_specials = 0;
		for (uint32_t i = 0; i < v->n_tokens; i++) {
			const struct token *token = &v->tokens[i];
			bool user = token->type == TOKEN_USER;
			bool control = token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN;
			if (token->n == 0 || (!user && !control))
				continue;
			if (pass)
				v->specials[v->n_specials] =
					(struct special){token->text, token->n, (int32_t)i, user};
			v->n_specials++;
		}
		if (!pass && !(v->specials = array_alloc(v->n_specials + 1, sizeof *v->specials)))
			return fail_memory(
				err, "special tokens", v->n_specials * sizeof *v->specials);
	}
	qsort(v->specials, v->n_specials, sizeof *v->specials, special_compare);
	uint32_t i = 0;
	for (unsigned byte = 0; byte <= 256; byte++) {
		while (i < v->n_specials && (unsigned char)v->specials[i].text[0] < byte)
			i++;
		v->first[byte] = i;
	}
	return LAP_OK;
}

/* The control token with this name, before there is a table; NULL: none. */
static struct token *control_find(const struct vocabulary *v, const char *name)
{
	size_t n = strlen(name);
	for (uint32_t i = v->n_tokens; i-- > 0;) { /* the last ones, as a rule */
		struct token *token = &v->tokens[i];
		if (token->type == TOKEN_CONTROL && token->n == n &&
			memcmp(token->text, name, n) == 0)
			return token;
	}
	return NULL;
}

/* Vocabularies of the harmony format, known by <|return|> and <|call|>: what frames a part of an
 * answer is text that the reader needs, and is read back as such. */
static void harmony_mark(struct vocabulary *v)
{
	static const char *const frames[] = {
		"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
	if (!control_find(v, "<|return|>") || !control_find(v, "<|call|>"))
		return;
	for (size_t i = 0; i < ARRAY_COUNT(frames); i++) {
		struct token *token = control_find(v, frames[i]);
		if (token)
			token->type = TOKEN_USER;
	}
}

enum lap_status vocabulary_load(struct vocabulary *v, const struct gguf *g,
	enum vocabulary_family family, struct lap_error *err)
{
	*v = (struct vocabulary){.family = family};
	enum lap_status status = tokens_load(v, g, err);
	if (!status)
		harmony_mark(v);
	if (!status)
		status = pieces_load(v, err);
	if (!status && (family == FAMILY_BPE || family == FAMILY_CHARACTERS))
		status = merges_load(v, g, err);
	return status ? status : specials_load(v, err);
}

void vocabulary_free(struct vocabulary *v)
{
	free(v->tokens);
	free(v->bytes);
	free(v->pieces);
	free(v->merges);
	free(v->merge_filter);
	free(v->byte_merges);
	free(v->specials);
	*v = (struct vocabulary){0};
}
