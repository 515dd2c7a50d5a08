/* libFuzzer target: a grammar, or a schema when it starts with '{', and behind a NUL the way through it.
 *
 * The limits are small, so that a run is short: what they stop is no finding.  Masks must agree with every token
 * tried, and a whole text of a schema must be JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST_STEPS = 25, CHECKED_STEPS = 2 };

static const char *const pieces_of_several[] = {"ab", "\": ", "{\"", "\"}", "true", "12", "\n\n",
	"é", "\xC3", "\xE2\x82", "\x82\xAC", "\xF0\x9F\x98\x80", "\xED\xA0"};

enum { END = 256 + ARRAY_COUNT(pieces_of_several), N_VOCAB };

static const struct grammar_vocabulary *vocabulary(void)
{
	static struct grammar_vocabulary *v;
	static char bytes[256];
	struct grammar_piece pieces[N_VOCAB] = {{0}};
	int32_t end = END;
	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		pieces[i] = (struct grammar_piece){bytes + i, 1};
	}
	for (size_t i = 0; i < ARRAY_COUNT(pieces_of_several); i++)
		pieces[256 + i] =
			(struct grammar_piece){pieces_of_several[i], strlen(pieces_of_several[i])};
	if (!v && grammar_vocabulary_create(pieces, N_VOCAB, &end, 1, &v, NULL))
		abort();
	return v;
}

static void check_error(const struct lap_error *err)
{
	if (!err->text[0] || strchr(err->text, '\n'))
		abort();
}

static bool is_allowed(const uint32_t *mask, unsigned token)
{
	return mask[token / 32] >> (token % 32) & 1;
}

/* Each bit against an attempt, which may also end at a limit; what fails leaves the state as it was. */
static void check_mask(const struct grammar_state *s, const uint32_t *mask)
{
	struct grammar_state *clone = NULL;
	for (unsigned token = 0; token < N_VOCAB; token++) {
		if (!clone && grammar_state_clone(s, &clone, NULL))
			abort();
		enum lap_status status = grammar_state_accept(clone, (int32_t)token, NULL);
		if (status == (is_allowed(mask, token) ? LAP_USAGE : LAP_OK))
			abort();
		if (!status) {
			grammar_state_destroy(clone);
			clone = NULL;
		}
	}
	grammar_state_destroy(clone);
}

/* Goes where the bytes say, taken as how many of the allowed tokens to pass over. */
static void walk(const struct grammar *g, const uint8_t *way, size_t n_way, bool is_json)
{
	struct grammar_state *s;
	struct lap_error err = {0};
	if (grammar_state_create(g, vocabulary(), &s, &err)) {
		check_error(&err);
		return;
	}
	struct text text = {0};
	for (size_t step = 0; step < MOST_STEPS; step++) {
		uint32_t mask[(N_VOCAB + 31) / 32], n_allowed;
		if (grammar_state_mask(s, mask, &n_allowed, &err)) {
			check_error(&err);
			break;
		}
		if (step < CHECKED_STEPS)
			check_mask(s, mask);
		if (!n_allowed) /* every byte is a token, and rules without an end are not entered */
			abort();
		bool whole = is_allowed(mask, END);
		if (whole != grammar_state_is_complete(s))
			abort();
		if (whole && is_json) {
			json_t *value = json_loadb(text.n ? text.data : "", text.n,
				JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
			if (!value)
				abort();
			json_decref(value);
		}
		unsigned pass = step < n_way ? way[step] : (unsigned)(step * 7), token = 0;
		for (pass %= n_allowed; !is_allowed(mask, token) || pass-- > 0;)
			token++;
		if (token == END)
			break;
		if (grammar_state_accept(s, (int32_t)token, &err)) {
			check_error(&err);
			break;
		}
		char byte = (char)token;
		if (!text_append(&text, token < 256 ? &byte : pieces_of_several[token - 256],
			    token < 256 ? 1 : strlen(pieces_of_several[token - 256])))
			abort();
	}
	text_free(&text);
	grammar_state_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct grammar_limits limits = {.n_bytes = 1 << 16,
		.n_code = 5000,
		.n_repeat = 10000,
		.n_items = 500,
		.n_steps = 5000,
		.n_memory = 1 << 19};
	const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
	size_t n_text = nul ? (size_t)(nul - data) : n;
	const char *text = n ? (const char *)data : "";
	bool is_json = n_text && text[0] == '{';
	struct grammar *g;
	struct lap_error err = {0};
	enum lap_status status = is_json ? schema_to_grammar(text, n_text, &limits, &g, &err)
					 : grammar_create(text, n_text, &limits, &g, &err);
	if (status) {
		check_error(&err);
		if (g)
			abort();
		return 0;
	}
	walk(g, nul ? nul + 1 : NULL, nul ? n - n_text - 1 : 0, is_json);
	grammar_destroy(g);
	return 0;
}
