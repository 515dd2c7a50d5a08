/* The vocabulary as tables, and the two merge algorithms over them.  See tokenizer.h.
 *
 * SentencePiece BPE: Kudo and Richardson 2018; byte-level BPE: Sennrich et al. 2016, Radford et al.
 * 2019.  Both join the best pair of neighbours until no pair is left; they differ in what a pair is
 * worth (pair_find) and in what they start from. */
#include "tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pretokenize.h"

enum token_type { /* numbered as in GGUF; 0 is written by some and means normal */
	TOKEN_NORMAL = 1,
	TOKEN_UNKNOWN,
	TOKEN_CONTROL,
	TOKEN_USER,
	TOKEN_UNUSED,
	TOKEN_BYTE,
	N_TOKEN_TYPES
};

struct token {
	const char *text; /* the bytes it stands for in a text, not as the file spells them */
	uint32_t n;
	uint32_t order; /* llama: the score as an integer, the best lowest */
	enum token_type type;
};

/* A token that is cut out of the text before anything else. */
struct special {
	const char *text;
	uint32_t n;
	int32_t id;
	bool always; /* user-defined */
};

/* Slots of the open-addressed tables. */
struct piece_slot {
	uint32_t hash;
	uint32_t id_plus_1; /* 0: empty */
};

struct merge_slot {
	int32_t left, right; /* left < 0: empty */
	uint32_t rank;
	int32_t id; /* of the joined piece */
};

struct tokenizer {
	struct tokenizer_info info;
	bool is_spm, ignore_merges, trim_spaces;
	struct token *tokens;
	char *bytes; /* what tokens[].text point into */
	struct piece_slot *pieces;
	struct merge_slot *merges;
	size_t piece_mask, merge_mask;
	int32_t byte_ids[256];    /* -1: the vocabulary has no such byte */
	struct special *specials; /* sorted by bytes */
	uint32_t n_specials;
	uint32_t first[257]; /* specials that begin with byte b: first[b] to first[b + 1] */
	int32_t *ends;
	size_t n_ends;
	struct pretokenizer *pre;
	char *pre_name;
};

static const char underline[] = "\xE2\x96\x81"; /* U+2581, SPM's spelling of a space */
enum { N_UNDERLINE = 3 };

/* Tokens that are control tokens by their name, even where a file calls them user-defined.  Those of
 * the form <|name|> are so even where it calls them normal. */
enum role {
	ROLE_CONTROL, /* marks a part of the prompt */
	ROLE_END,     /* ends a generation */
	ROLE_TURN,    /* ends one too, and serves as EOT: the first found, where no key names it */
};

static const struct {
	const char *text;
	enum role role;
} control_names[] = {
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
	const struct tokenizer *t, const char *text, size_t n, uint32_t *hash)
{
	uint64_t h = XXH3_64bits(text, n);
	*hash = (uint32_t)(h >> 32);
	for (size_t i = (size_t)h & t->piece_mask;; i = (i + 1) & t->piece_mask) {
		struct piece_slot *slot = &t->pieces[i];
		if (slot->id_plus_1 == 0)
			return slot;
		const struct token *token = &t->tokens[slot->id_plus_1 - 1];
		if (slot->hash == *hash && token->n == n && memcmp(token->text, text, n) == 0)
			return slot;
	}
}

/* The id of the piece with these bytes, or -1. */
static int32_t piece_find(const struct tokenizer *t, const char *text, size_t n)
{
	uint32_t hash;
	return (int32_t)piece_slot(t, text, n, &hash)->id_plus_1 - 1;
}

static struct merge_slot *merge_slot(const struct tokenizer *t, int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
	for (size_t i = (size_t)(h >> 32) & t->merge_mask;; i = (i + 1) & t->merge_mask) {
		struct merge_slot *slot = &t->merges[i];
		if (slot->left < 0 || (slot->left == left && slot->right == right))
			return slot;
	}
}

/* The longest special token at the start of text[n], n > 0, or NULL. */
static const struct special *special_find(
	const struct tokenizer *t, const char *text, size_t n, bool parse_special)
{
	uint32_t lo = t->first[(unsigned char)text[0]];
	uint32_t hi = t->first[(unsigned char)text[0] + 1];
	const struct special *found = NULL;
	/* lo to hi are the tokens that begin with the first `depth` bytes, the shortest in front. */
	for (uint32_t depth = 1; lo < hi; depth++) {
		for (; lo < hi && t->specials[lo].n == depth; lo++) {
			bool longer = !found || found->n < depth;
			if (longer && (parse_special || t->specials[lo].always))
				found = &t->specials[lo];
		}
		if (depth == n)
			break;
		unsigned char byte = (unsigned char)text[depth];
		for (uint32_t end = hi; lo < end;) { /* the first with this byte or a greater one */
			uint32_t middle = lo + (end - lo) / 2;
			if ((unsigned char)t->specials[middle].text[depth] < byte)
				lo = middle + 1;
			else
				end = middle;
		}
		for (uint32_t begin = lo; begin < hi;) { /* the first with a greater one */
			uint32_t middle = begin + (hi - begin) / 2;
			if ((unsigned char)t->specials[middle].text[depth] > byte)
				hi = middle;
			else
				begin = middle + 1;
		}
	}
	return found;
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

/* Copies text with each underline turned into a space. */
static void underlines_decode(const char *s, size_t n, char *out, uint32_t *n_out)
{
	*n_out = 0;
	for (size_t i = 0; i < n;) {
		bool is_space = n - i >= N_UNDERLINE && memcmp(s + i, underline, N_UNDERLINE) == 0;
		out[(*n_out)++] = is_space ? ' ' : s[i];
		i += is_space ? N_UNDERLINE : 1;
	}
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
	for (size_t i = 0; i < ARRAY_COUNT(control_names); i++) {
		const char *name = control_names[i].text;
		if (strlen(name) == s.n && memcmp(name, s.data, s.n) == 0)
			return true;
	}
	return false;
}

/* Text and type of token i, as it is spelled in the file; its bytes are written to `out`. */
static enum lap_status token_decode(struct tokenizer *t, uint32_t i, const struct gguf *g,
	struct gguf_string s, bool typed, char *out, struct lap_error *err)
{
	struct token *token = &t->tokens[i];
	token->text = out;
	int byte = byte_name(s);
	if (!typed && t->is_spm && byte >= 0)
		token->type = TOKEN_BYTE;
	if (is_control_name(token->type, s))
		token->type = TOKEN_CONTROL;
	if (token->type == TOKEN_BYTE) {
		if (byte < 0)
			return fail(err, LAP_BAD_MODEL,
				"%s: byte token %u is spelled \"%.*s\", expected \"<0xNN>\"",
				g->path, i, (int)(s.n < 40 ? s.n : 40), s.data);
		out[0] = (char)byte;
		token->n = 1;
		return LAP_OK;
	}
	bool is_piece = token->type == TOKEN_NORMAL || (t->is_spm && token->type == TOKEN_USER);
	if (is_piece && t->is_spm) {
		underlines_decode(s.data, s.n, out, &token->n);
	} else if (!is_piece || !letters_decode(s.data, s.n, out, &token->n)) {
		if (s.n)
			memcpy(out, s.data, s.n);
		token->n = (uint32_t)s.n;
	}
	return LAP_OK;
}

static enum lap_status tokens_load(struct tokenizer *t, const struct gguf *g, struct lap_error *err)
{
	const struct gguf_kv *names, *types, *scores = NULL;
	enum lap_status status =
		array_find(g, "tokenizer.ggml.tokens", true, 0, false, &names, err);
	if (status)
		return status;
	if (names->n == 0 || names->n > INT32_MAX)
		return fail(err, LAP_BAD_MODEL,
			"%s: tokenizer.ggml.tokens has %llu elements, expected "
			"1 to %d",
			g->path, (unsigned long long)names->n, INT32_MAX);
	status = array_find(g, "tokenizer.ggml.token_type", false, names->n, true, &types, err);
	if (!status && t->is_spm)
		status = array_find(
			g, "tokenizer.ggml.scores", false, names->n, false, &scores, err);
	if (status)
		return status;

	uint64_t n_bytes = 0;
	for (uint64_t i = 0; i < names->n; i++) {
		if (names->strings[i].n > UINT32_MAX ||
			!size_add(n_bytes, names->strings[i].n, &n_bytes))
			return fail(err, LAP_BAD_MODEL, "%s: token %llu has %llu bytes", g->path,
				(unsigned long long)i, (unsigned long long)names->strings[i].n);
	}
	t->info.n_vocab = (uint32_t)names->n;
	t->tokens = array_alloc(names->n, sizeof *t->tokens);
	t->bytes = array_alloc(n_bytes + 1, 1);
	if (!t->tokens || !t->bytes)
		return fail_memory(err, "the vocabulary", n_bytes + names->n * sizeof *t->tokens);

	char *out = t->bytes;
	for (uint32_t i = 0; i < t->info.n_vocab && !status; i++) {
		double type = types ? gguf_number(types, i) : TOKEN_NORMAL;
		double score = scores ? gguf_number(scores, i) : 0;
		if (!(type >= 0 && type < N_TOKEN_TYPES) || isnan(score))
			return fail(err, LAP_BAD_MODEL,
				"%s: token %u has type %g and score %g, expected a type of 0 to %d "
				"and "
				"a number",
				g->path, i, type, score, N_TOKEN_TYPES - 1);
		t->tokens[i].type = type < 1 ? TOKEN_NORMAL : (enum token_type)type;
		t->tokens[i].order = score_order((float)score);
		status = token_decode(t, i, g, names->strings[i], types != NULL, out, err);
		out += t->tokens[i].n;
	}
	return status;
}

/* Enters tokens of one type into the table of pieces; of equal ones the first stays. */
static void pieces_enter(struct tokenizer *t, enum token_type type)
{
	for (uint32_t i = 0; i < t->info.n_vocab; i++) {
		const struct token *token = &t->tokens[i];
		if (token->type != type || token->n == 0)
			continue;
		uint32_t hash, n = token->n;
		char letters[4];
		const char *text = token->text;
		/* Some byte-level vocabularies list their rarest bytes among the user-defined tokens. */
		if (type == TOKEN_USER && !t->is_spm) {
			if (n > sizeof letters || !letters_decode(text, n, letters, &n) || n != 1)
				continue;
			unsigned char byte = (unsigned char)letters[0];
			if (t->byte_ids[byte] < 0)
				t->byte_ids[byte] = (int32_t)i;
			continue;
		}
		struct piece_slot *slot = piece_slot(t, text, n, &hash);
		if (slot->id_plus_1 == 0)
			*slot = (struct piece_slot){hash, i + 1};
	}
}

/* The table of pieces, and the token of each byte. */
static enum lap_status pieces_load(struct tokenizer *t, struct lap_error *err)
{
	size_t size = table_size(t->info.n_vocab);
	t->pieces = array_alloc(size, sizeof *t->pieces);
	if (!t->pieces)
		return fail_memory(err, "the vocabulary", size * sizeof *t->pieces);
	t->piece_mask = size - 1;
	pieces_enter(t, TOKEN_NORMAL);
	for (int byte = 0; byte < 256; byte++)
		t->byte_ids[byte] = t->is_spm ? -1 : piece_find(t, &(char){(char)byte}, 1);
	pieces_enter(t, TOKEN_USER);
	for (uint32_t i = t->info.n_vocab; i-- > 0;) {
		if (t->tokens[i].type == TOKEN_BYTE)
			t->byte_ids[(unsigned char)t->tokens[i].text[0]] = (int32_t)i;
	}
	return LAP_OK;
}

/* "left right" -> ids of left, right and leftright; false when a part is no piece. */
static bool merge_parse(
	const struct tokenizer *t, struct gguf_string s, char *scratch, struct merge_slot *merge)
{
	/* The alphabet has no space, but a piece may be spelled with one: not at its start. */
	const char *space = s.n > 1 ? memchr(s.data + 1, ' ', s.n - 1) : NULL;
	if (!space)
		return false;
	size_t n = (size_t)(space - s.data);
	uint32_t n_left, n_right;
	if (!letters_decode(s.data, n, scratch, &n_left) ||
		!letters_decode(space + 1, s.n - n - 1, scratch + n_left, &n_right))
		return false;
	merge->left = piece_find(t, scratch, n_left);
	merge->right = piece_find(t, scratch + n_left, n_right);
	merge->id = piece_find(t, scratch, n_left + n_right);
	return n_right && merge->left >= 0 && merge->right >= 0 && merge->id >= 0;
}

static enum lap_status merges_load(struct tokenizer *t, const struct gguf *g, struct lap_error *err)
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
			"%s: tokenizer.ggml.merges has %llu elements of up to "
			"%llu bytes, expected at most %d",
			g->path, (unsigned long long)kv->n, (unsigned long long)longest, INT32_MAX);
	size_t size = table_size(kv->n);
	t->merges = array_alloc(size, sizeof *t->merges);
	char *scratch = array_alloc(longest + 1, 1);
	if (!t->merges || !scratch) {
		free(scratch);
		return fail_memory(err, "the merges", size * sizeof *t->merges + longest);
	}
	t->merge_mask = size - 1;
	for (size_t i = 0; i < size; i++)
		t->merges[i].left = -1;
	for (uint32_t i = 0; i < kv->n && !status; i++) {
		struct gguf_string s = kv->strings[i];
		struct merge_slot merge = {.rank = i};
		if (!merge_parse(t, s, scratch, &merge)) {
			status = fail(err, LAP_BAD_MODEL,
				"%s: merge %u is \"%.*s\", expected two tokens whose join is a "
				"token",
				g->path, i, (int)(s.n < 80 ? s.n : 80), s.data);
			break;
		}
		struct merge_slot *slot = merge_slot(t, merge.left, merge.right);
		if (slot->left < 0)
			*slot = merge;
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

static enum lap_status specials_load(struct tokenizer *t, struct lap_error *err)
{
	for (int pass = 0; pass < 2; pass++) { /* count, then fill */
		t->n_specials = 0;
		for (uint32_t i = 0; i < t->info.n_vocab; i++) {
			const struct token *token = &t->tokens[i];
			bool user = token->type == TOKEN_USER;
			bool control = token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN;
			if (token->n == 0 || (!user && !control))
				continue;
			if (pass)
				t->specials[t->n_specials] =
					(struct special){token->text, token->n, (int32_t)i, user};
			t->n_specials++;
		}
		if (!pass && !(t->specials = array_alloc(t->n_specials + 1, sizeof *t->specials)))
			return fail_memory(
				err, "special tokens", t->n_specials * sizeof *t->specials);
	}
	qsort(t->specials, t->n_specials, sizeof *t->specials, special_compare);
	uint32_t i = 0;
	for (unsigned byte = 0; byte <= 256; byte++) {
		while (i < t->n_specials && (unsigned char)t->specials[i].text[0] < byte)
			i++;
		t->first[byte] = i;
	}
	return LAP_OK;
}

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

/* The control token with this name, or -1. */
static int32_t control_find(const struct tokenizer *t, const char *name)
{
	size_t n = strlen(name);
	const struct special *s = special_find(t, name, n, true);
	return s && s->n == n && t->tokens[s->id].type == TOKEN_CONTROL ? s->id : -1;
}

static int id_compare(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return (x > y) - (x < y);
}

static enum lap_status ends_load(struct tokenizer *t, int32_t eom, struct lap_error *err)
{
	t->ends = array_alloc(3 + ARRAY_COUNT(control_names), sizeof *t->ends);
	if (!t->ends)
		return fail_memory(err, "the end tokens", sizeof *t->ends);
	/* In vocabularies with <|return|>, <|end|> closes one message of several. */
	bool has_return = control_find(t, "<|return|>") >= 0;
	for (size_t i = 0; i < ARRAY_COUNT(control_names); i++) {
		int32_t id = control_names[i].role == ROLE_CONTROL
			? -1
			: control_find(t, control_names[i].text);
		if (id < 0 || (has_return && strcmp(control_names[i].text, "<|end|>") == 0))
			continue;
		t->ends[t->n_ends++] = id;
		if (control_names[i].role == ROLE_TURN && t->info.eot < 0)
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
	info->bos = info->eos = info->eot = info->unknown = info->padding = -1;
	if (t->is_spm) { /* SentencePiece's own numbering, where the vocabulary follows it */
		info->bos = info->n_vocab > 1 && t->tokens[1].type == TOKEN_CONTROL ? 1 : -1;
		info->eos = info->n_vocab > 2 && t->tokens[2].type == TOKEN_CONTROL ? 2 : -1;
		info->unknown = t->tokens[0].type == TOKEN_UNKNOWN ? 0 : -1;
	}
	int32_t eom = -1;
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
	};
	info->add_bos = t->is_spm || pretokenizer_rule(t->pre)->add_bos;
	info->add_space_prefix = t->is_spm;
	const struct {
		const char *key;
		bool *value;
	} flags[] = {
		{"tokenizer.ggml.add_bos_token", &info->add_bos},
		{"tokenizer.ggml.add_eos_token", &info->add_eos},
		{"tokenizer.ggml.add_space_prefix", &info->add_space_prefix},
		{"tokenizer.ggml.remove_extra_whitespaces", &t->trim_spaces},
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
	if (!status)
		status = pretokenizer_create(name.data, name.n, true, &t->pre, err);
	if (status)
		return status;
	t->pre_name = array_alloc(name.n + 1, 1);
	if (!t->pre_name)
		return fail_memory(err, "the pre-tokenizer", name.n);
	memcpy(t->pre_name, name.data, name.n);
	t->info.pre = t->pre_name;
	t->ignore_merges = pretokenizer_rule(t->pre)->ignore_merges;
	return LAP_OK;
}

static enum lap_status model_load(struct tokenizer *t, const struct gguf *g, struct lap_error *err)
{
	static const char *const models[] = {"llama", "gpt2"};
	struct gguf_string name = {0};
	enum lap_status status = gguf_string(g, "tokenizer.ggml.model", &name, err);
	if (status)
		return status;
	if (!name.data)
		return fail(err, LAP_BAD_MODEL, "%s: tokenizer.ggml.model is missing", g->path);
	for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
		if (strlen(models[i]) == name.n && memcmp(models[i], name.data, name.n) == 0)
			t->info.model = models[i];
	}
	if (!t->info.model)
		return fail(err, LAP_BAD_MODEL,
			"%s: tokenizer model \"%.*s\" is not supported; supported: llama gpt2",
			g->path, (int)(name.n < 100 ? name.n : 100), name.data);
	t->is_spm = t->info.model == models[0];
	t->info.pre = "";
	return LAP_OK;
}

enum lap_status tokenizer_create(
	const struct gguf *gguf, struct tokenizer **tokenizer, struct lap_error *err)
{
	*tokenizer = NULL;
	struct tokenizer *t = calloc(1, sizeof *t);
	if (!t)
		return fail_memory(err, "the tokenizer", sizeof *t);
	enum lap_status status = model_load(t, gguf, err);
	if (!status)
		status = tokens_load(t, gguf, err);
	if (!status)
		status = pieces_load(t, err);
	if (!status && !t->is_spm)
		status = merges_load(t, gguf, err);
	if (!status && !t->is_spm)
		status = pre_load(t, gguf, err);
	if (!status)
		status = specials_load(t, err);
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
	free(t->tokens);
	free(t->bytes);
	free(t->pieces);
	free(t->merges);
	free(t->specials);
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

/* One call of tokenizer_encode: the tokens so far and memory that is used again and again. */
struct encoder {
	const struct tokenizer *t;
	int32_t *ids;
	size_t n_ids, ids_capacity;
	struct symbol *symbols;
	size_t n_symbols, symbols_capacity;
	struct candidate *heap; /* lowest key first */
	size_t n_heap, heap_capacity;
	struct text normal; /* llama: the stretch with its space prefix */
	struct words words; /* gpt2 */
	bool unknown_run;   /* the last token stands for bytes that the vocabulary cannot spell */
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

/* Bytes that no piece holds, as byte tokens, or else as the unknown token. */
static enum lap_status bytes_push(struct encoder *e, const char *bytes, size_t n)
{
	const struct tokenizer *t = e->t;
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < n && !status; i++) {
		unsigned char byte = (unsigned char)bytes[i];
		if (t->byte_ids[byte] >= 0) {
			status = id_push(e, t->byte_ids[byte]);
		} else if (t->info.unknown < 0) {
			status = fail(e->err, LAP_USAGE,
				"the vocabulary cannot spell the byte 0x%02X: it has neither a "
				"token for it "
				"nor an unknown token",
				byte);
		} else if (!e->unknown_run) {
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
	if (t->is_spm) {
		c.id = piece_find(t, text + a->start, c.n);
		if (c.id < 0)
			return LAP_OK;
		order = t->tokens[c.id].order;
	} else {
		const struct merge_slot *merge =
			a->id < 0 || b->id < 0 ? NULL : merge_slot(t, a->id, b->id);
		if (!merge || merge->left < 0)
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

/* A stretch of text as SPM sees it, in e->normal: prefix, underlines as spaces, extra spaces away. */
static enum lap_status spm_normalize(struct encoder *e, const char *text, size_t n)
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

static enum lap_status spm_encode(struct encoder *e, const char *text, size_t n)
{
	enum lap_status status = spm_normalize(e, text, n);
	const char *s = e->normal.data;
	e->n_symbols = 0;
	for (size_t i = 0; !status && i < e->normal.n;) {
		uint32_t code;
		unsigned length = utf8_decode(s + i, e->normal.n - i, &code);
		int32_t id = length ? piece_find(e->t, s + i, length) : -1;
		length += !length;
		status = symbol_push(e, i, length, id);
		i += length;
	}
	return status ? status : symbols_merge(e, s);
}

static enum lap_status bpe_encode(struct encoder *e, const char *text, size_t n)
{
	const struct tokenizer *t = e->t;
	enum lap_status status = pretokenizer_split(t->pre, text, n, &e->words, e->err);
	size_t begin = 0;
	for (size_t i = 0; i < e->words.n && !status; i++) {
		const char *word = text + begin;
		size_t length = e->words.ends[i] - begin;
		begin = e->words.ends[i];
		int32_t whole = t->ignore_merges ? piece_find(t, word, length) : -1;
		if (whole >= 0) {
			status = id_push(e, whole);
			continue;
		}
		e->n_symbols = 0;
		for (size_t j = 0; j < length && !status; j++)
			status = symbol_push(e, j, 1, t->byte_ids[(unsigned char)word[j]]);
		if (!status)
			status = symbols_merge(e, word);
	}
	return status;
}

/* The text between special tokens, and these. */
static enum lap_status text_encode(
	struct encoder *e, const char *text, size_t n_bytes, bool parse_special)
{
	enum lap_status status = LAP_OK;
	for (size_t at = 0; at < n_bytes && !status;) {
		const struct special *special = NULL;
		size_t begin = at;
		while (at < n_bytes && !special) {
			special = special_find(e->t, text + at, n_bytes - at, parse_special);
			at += !special;
		}
		if (at > begin)
			status = e->t->is_spm ? spm_encode(e, text + begin, at - begin)
					      : bpe_encode(e, text + begin, at - begin);
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
	if (!status && add_special && t->info.add_bos && t->info.bos >= 0)
		status = id_push(&e, t->info.bos);
	if (!status)
		status = text_encode(&e, text, n_bytes, parse_special);
	if (!status && add_special && t->info.add_eos && t->info.eos >= 0)
		status = id_push(&e, t->info.eos);
	free(e.symbols);
	free(e.heap);
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
	const struct token *piece = &t->tokens[token];
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
