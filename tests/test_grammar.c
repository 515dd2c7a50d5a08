/* Grammars: what they accept and refuse, masks against trying every token, errors with their places, and that
 * ambiguity, depth and limits stay bounded. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar.h"
#include "support.h"
#include "tokenizer.h"
#include "tokenizer_vectors.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static struct grammar *grammar_of(const char *gbnf, const struct grammar_limits *limits)
{
	struct lap_error err = {0};
	struct grammar *g;
	cr_assert_eq(grammar_create(gbnf, strlen(gbnf), limits, &g, &err), LAP_OK, "%s: %s", gbnf,
		err.text);
	return g;
}

/* Every byte as a token, then pieces of several bytes, whole characters and halves, a control token and an end. */
static const char *const more_pieces[] = {"ab", "abc", "bc", "a\"", "\"a", "\": ", "{\"", "\"}",
	"], [", "true", "tru", "12", "1.5", "\n\n", "  ", "é", "\xC3", "\xA9x", "x\xC3", "€",
	"\xE2\x82", "\x82\xAC", "\xF0\x9F\x98\x80", "\xF0\x9F", "\x98\x80", "a\xF0", "\xED\xA0",
	"\xC0\xAF", "ab" /* a second token of the same piece */};

enum { N_PIECES = 256 + ARRAY_COUNT(more_pieces), CONTROL = N_PIECES, END, N_VOCAB };

static struct grammar_vocabulary *byte_vocabulary(void)
{
	static char bytes[256];
	static struct grammar_piece pieces[N_VOCAB];
	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		pieces[i] = (struct grammar_piece){bytes + i, 1};
	}
	for (size_t i = 0; i < ARRAY_COUNT(more_pieces); i++)
		pieces[256 + i] = (struct grammar_piece){more_pieces[i], strlen(more_pieces[i])};
	pieces[END] = (struct grammar_piece){"ab", 2}; /* an end's piece does not count */
	int32_t end = END;
	struct grammar_vocabulary *v;
	struct lap_error err = {0};
	cr_assert_eq(grammar_vocabulary_create(pieces, N_VOCAB, &end, 1, &v, &err), LAP_OK, "%s",
		err.text);
	return v;
}

static struct grammar_state *state_of(const struct grammar *g, const struct grammar_vocabulary *v)
{
	struct grammar_state *s;
	struct lap_error err = {0};
	cr_assert_eq(grammar_state_create(g, v, &s, &err), LAP_OK, "%s", err.text);
	return s;
}

static struct grammar_state *clone_of(const struct grammar_state *s)
{
	struct grammar_state *clone;
	struct lap_error err = {0};
	cr_assert_eq(grammar_state_clone(s, &clone, &err), LAP_OK, "%s", err.text);
	return clone;
}

/* The mask, each bit compared with what happens when the token is tried, in [N_VOCAB]. */
static void check_mask(struct grammar_state *s, bool allowed[N_VOCAB])
{
	uint32_t mask[(N_VOCAB + 31) / 32], n_allowed, n = 0;
	struct lap_error err = {0};
	cr_assert_eq(grammar_state_mask(s, mask, &n_allowed, &err), LAP_OK, "%s", err.text);
	for (int32_t token = 0; token < N_VOCAB; token++) {
		struct grammar_state *clone = clone_of(s);
		enum lap_status status = grammar_state_accept(clone, token, &err);
		allowed[token] = mask[token / 32] >> (token % 32) & 1;
		cr_assert(status == LAP_OK || status == LAP_USAGE, "%s", err.text);
		cr_assert_eq(allowed[token], status == LAP_OK, "token %d: mask %d, tried %d", token,
			allowed[token], status == LAP_OK);
		n += allowed[token];
		grammar_state_destroy(clone);
	}
	cr_assert_eq(n, n_allowed);
	for (uint32_t bit = N_VOCAB; bit < 32 * ARRAY_COUNT(mask); bit++)
		cr_assert(!(mask[bit / 32] >> (bit % 32) & 1), "a bit behind the vocabulary");
	cr_assert_eq(allowed[END], grammar_state_is_complete(s));
	cr_assert(!allowed[CONTROL]);
}

/* Bytes one by one; true when all are accepted and the text is whole. */
static bool accepts(
	const struct grammar *g, const struct grammar_vocabulary *v, const char *text, size_t n)
{
	struct grammar_state *s = state_of(g, v);
	bool ok = true;
	for (size_t i = 0; i < n && ok; i++)
		ok = grammar_state_accept(s, (unsigned char)text[i], NULL) == LAP_OK;
	ok = ok && grammar_state_is_complete(s);
	/* The same at once: where bytes are cut makes no difference. */
	struct grammar_state *at_once = state_of(g, v);
	bool same = grammar_state_accept_bytes(at_once, text, n, NULL) == LAP_OK &&
		grammar_state_is_complete(at_once);
	cr_expect_eq(ok, same);
	grammar_state_destroy(s);
	grammar_state_destroy(at_once);
	return ok;
}

static const char json[] = /* as the examples of llama.cpp write it */
	"root   ::= object\n"
	"value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
	"object ::=\n"
	"  \"{\" ws (\n"
	"            string \":\" ws value\n"
	"    (\",\" ws string \":\" ws value)*\n"
	"  )? \"}\" ws\n"
	"array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
	"string ::=\n"
	"  \"\\\"\" (\n"
	"    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
	"    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n"
	"  )* \"\\\"\" ws\n"
	"number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
	"[1-9]{0,15})? ws\n"
	"ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

/* ---- what is accepted ------------------------------------------------------------------------ */

Test(grammar, accepts_its_texts)
{
	static const struct {
		const char *gbnf, *accepted[8], *refused[8];
	} cases[] = {
		{"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
		{"root ::= \"\"", {""}, {"a"}},
		{"root ::=", {""}, {"a"}},
		{"root ::= \"a\" | \"bc\" |", {"a", "bc", ""}, {"b", "abc"}},
		{"root ::= (\"a\" | \"b\") \"c\"", {"ac", "bc"}, {"a", "c", "abc"}},
		{"root ::= \"a\"*", {"", "a", "aaaa"}, {"b", "ab"}},
		{"root ::= \"ab\"+", {"ab", "ababab"}, {"", "a", "aba"}},
		{"root ::= \"a\"? \"b\"", {"b", "ab"}, {"a", "aab"}},
		{"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"}},
		{"root ::= \"ab\"{2}", {"abab"}, {"ab", "ababab"}},
		{"root ::= \"a\"{2,}", {"aa", "aaaaa"}, {"", "a"}},
		{"root ::= \"ab\"{1, 3}", {"ab", "abab", "ababab"}, {"", "abababab"}},
		{"root ::= \"a\"{0} \"b\"", {"b"}, {"ab"}},
		{"root ::= (\"a\"{2}){2}", {"aaaa"}, {"aaa", "aaaaa"}},
		{"root ::= (\"a\"*)* \"b\"", {"b", "aab"}, {"a"}},
		{"root ::= (\"a\"?){3}", {"", "a", "aa", "aaa"}, {"aaaa"}},
		{"root ::= \"a\"?? \"b\" +", {"b", "abb"}, {"aa"}},
		{"root ::= \"\\n\\t\\r\\\\\\\"\\x41\\u00e9\\U0001F600\\[\\]\"", {"\n\t\r\\\"Aé😀[]"},
			{"A"}},
		{"root ::= [a-c]", {"a", "b", "c"}, {"d", "", "ab"}},
		{"root ::= [a-]+", {"a-", "-"}, {"b"}},
		{"root ::= [^a-c]", {"d", "é", "😀", "\n"}, {"a", "", "\xC3", "\xFF"}},
		{"root ::= [\\]\\\\^]+", {"]", "\\^"}, {"["}},
		{"root ::= [α-ωé]", {"α", "λ", "ω", "é"}, {"Ω", "a", "è"}},
		{"root ::= [\\u0000-\\U0010FFFF]", {"a", "\x7F", "é", "\uFFFD", "😀"},
			{"\xED\xA0\x80" /* a surrogate */, "\xF4\x90\x80\x80", "\xC0\x80", "\x80"}},
		{"root ::= .{2}", {"ab", "é😀", "\n\n"}, {"a", "abc", "\xC3\xC3"}},
		{"root ::= a b\na ::= \"x\"\nb ::= a \"y\"", {"xxy"}, {"xy"}},
		{"# a comment\nroot ::= \"a\" # another\n  \"b\"\n  | \"c\"\n\n# end", {"ab", "c"},
			{"a"}},
		{"root ::= \"#\" [#]", {"##"}, {"#"}},
		{"a-1_B ::= \"x\"\nroot ::= a-1_B", {"x"}, {""}},
		{"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()", "())"}},
		{"root ::= \"a\" root | \"a\"", {"a", "aaaa"}, {"", "b"}},
		/* Not regular, and more than one way to read it. */
		{"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"",
			{"1", "1+(2+33)", "((4))"}, {"1+", "(1", "1)"}},
		{"root ::= a \"c\"\na ::= \"\" | \"b\" | b\nb ::= \"b\" | \"bb\" a",
			{"c", "bc", "bbbc"}, {"b"}},
		/* A rule without an end is never entered. */
		{"root ::= \"a\" | \"b\" x\nx ::= \"c\" x", {"a"}, {"b", "bc"}},
		{"root ::= \"a\" | [^\\x00-\\U0010FFFF] | \"b\" [^\\x00-\\U0010FFFF]", {"a"},
			{"b"}},
	};
	struct grammar_vocabulary *v = byte_vocabulary();
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct grammar *g = grammar_of(cases[i].gbnf, NULL);
		for (size_t k = 0; k < 8 && cases[i].accepted[k]; k++)
			cr_expect(accepts(g, v, cases[i].accepted[k], strlen(cases[i].accepted[k])),
				"%s\nrefuses \"%s\"", cases[i].gbnf, cases[i].accepted[k]);
		for (size_t k = 0; k < 8 && cases[i].refused[k]; k++)
			cr_expect(!accepts(g, v, cases[i].refused[k], strlen(cases[i].refused[k])),
				"%s\naccepts \"%s\"", cases[i].gbnf, cases[i].refused[k]);
		grammar_destroy(g);
	}
	grammar_vocabulary_destroy(v);
}

Test(grammar, a_nul_is_a_character)
{
	struct grammar_vocabulary *v = byte_vocabulary();
	struct grammar *g = grammar_of("root ::= \"a\\x00\" [\\x00]", NULL);
	cr_expect(accepts(g, v, "a\0\0", 3));
	cr_expect(!accepts(g, v, "a\0", 2));
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
}

/* Each code point alone, against what a class says. */
Test(grammar, classes_are_exact)
{
	static const struct {
		const char *gbnf;
		uint32_t ranges[8]; /* first, last, ...; ends at 0, 0 */
		bool negated;
	} cases[] = {
		{"root ::= [\\x10-\\u0801]", {0x10, 0x801}, false},
		{"root ::= [^\\u0081-\\uABCD]", {0x81, 0xABCD}, true},
		{"root ::= [\\u07FF\\u0800\\uFFFF\\U00010000]", {0x7FF, 0x800, 0xFFFF, 0x10000},
			false},
		{"root ::= [\\U0001F5FB-\\U0001F64F\\u3041-\\u3096a-f]",
			{0x1F5FB, 0x1F64F, 0x3041, 0x3096, 'a', 'f'}, false},
		{"root ::= [^\\uD7FF\\uE000-\\uE0FF\\U000FFFFF-\\U0010FFFE]",
			{0xD7FF, 0xD7FF, 0xE000, 0xE0FF, 0xFFFFF, 0x10FFFE}, true},
	};
	struct grammar_vocabulary *v = byte_vocabulary();
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct grammar *g = grammar_of(cases[i].gbnf, NULL);
		struct grammar_state *start = state_of(g, v);
		for (uint32_t code = 1; code <= 0x10FFFF; code++) {
			bool in = false;
			for (unsigned r = 0; r < 8 && cases[i].ranges[r]; r += 2)
				in |= code >= cases[i].ranges[r] && code <= cases[i].ranges[r + 1];
			if (code >= 0xD800 && code < 0xE000)
				continue;
			char bytes[4];
			unsigned n = utf8_encode(code, bytes);
			struct grammar_state *s = clone_of(start);
			bool ok = grammar_state_accept_bytes(s, bytes, n, NULL) == LAP_OK;
			cr_assert_eq(ok, in != cases[i].negated, "%s: U+%04X", cases[i].gbnf, code);
			cr_assert(!ok || grammar_state_is_complete(s));
			grammar_state_destroy(s);
		}
		grammar_state_destroy(start);
		grammar_destroy(g);
	}
	grammar_vocabulary_destroy(v);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

Test(grammar, masks_are_what_can_be_accepted)
{
	static const char *const grammars[] = {json, "root ::= [^\"]* \"\\\"\" [a-cé€😀]+ | .",
		"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"ab\" | \"é\"",
		"root ::= s\ns ::= \"a\" | \"ab\" s? s | \"b\" [ab]{0,3}",
		"root ::= ([a-z]{1,3} \" \"?){2,5} \"\\n\"+",
		"root ::= (x y)*\nx ::= \"\" | [\\u00e0-\\u00ff]\ny ::= [ab] x | "
		"[\\U0001F600-\\U0001F64F]"};
	struct grammar_vocabulary *v = byte_vocabulary();
	uint32_t seed = 1;
	for (size_t i = 0; i < ARRAY_COUNT(grammars); i++) {
		struct grammar *g = grammar_of(grammars[i], NULL);
		for (unsigned walk = 0; walk < 20; walk++) {
			struct grammar_state *s = state_of(g, v);
			for (unsigned step = 0; step < 25; step++) {
				bool allowed[N_VOCAB];
				check_mask(s, allowed);
				uint32_t n = 0, pick;
				for (unsigned t = 0; t < N_VOCAB; t++)
					n += allowed[t] && t != END;
				if (!n) {
					cr_expect(allowed[END]);
					break;
				}
				pick = next_random(&seed) % n;
				int32_t token = 0;
				for (; !allowed[token] || pick-- > 0;)
					token++;
				cr_assert_eq(grammar_state_accept(s, token, NULL), LAP_OK);
			}
			grammar_state_destroy(s);
		}
		grammar_destroy(g);
	}
	grammar_vocabulary_destroy(v);
}

Test(grammar, half_characters_are_exact)
{
	struct grammar_vocabulary *v = byte_vocabulary();
	struct grammar *g = grammar_of("root ::= [\\u20A0-\\u20AB€] \"x\" | [à-ë] \"y\"", NULL);
	struct grammar_state *s = state_of(g, v), *euro;
	bool allowed[N_VOCAB];
	unsigned n = 0;
	check_mask(s, allowed);
	for (unsigned t = 0; t < N_VOCAB; t++)
		n += allowed[t];
	/* E2, C3 as bytes and pieces; "\xE2\x82", "€" and "é" as pieces. */
	cr_expect_eq(n, 6, "%u", n);
	euro = clone_of(s);
	cr_assert_eq(grammar_state_accept_bytes(euro, "\xE2\x82", 2, NULL), LAP_OK);
	check_mask(euro, allowed);
	for (unsigned byte = 0; byte < 256; byte++)
		cr_expect_eq(allowed[byte], byte >= 0xA0 && byte <= 0xAC, "%02X", byte);
	cr_expect(!grammar_state_is_complete(euro), "in the middle of a character");
	cr_assert_eq(grammar_state_accept_bytes(s, "\xC3", 1, NULL), LAP_OK);
	check_mask(s, allowed);
	for (unsigned byte = 0; byte < 256; byte++)
		cr_expect_eq(allowed[byte], byte >= 0xA0 && byte <= 0xAB, "%02X", byte);
	grammar_state_destroy(euro);
	grammar_state_destroy(s);
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
}

Test(grammar, behind_an_end_nothing_follows)
{
	struct grammar_vocabulary *v = byte_vocabulary();
	struct grammar *g = grammar_of("root ::= \"a\"+", NULL);
	struct grammar_state *s = state_of(g, v), *other;
	struct lap_error err = {0};
	bool allowed[N_VOCAB];
	cr_expect_eq(grammar_state_accept(s, END, &err), LAP_USAGE);
	cr_expect_str_eq(err.text, "grammar: the end token 286 is not allowed here");
	cr_assert_eq(grammar_state_accept(s, 'a', &err), LAP_OK);
	other = clone_of(s);
	cr_assert_eq(grammar_state_accept(s, END, &err), LAP_OK);
	check_mask(s, allowed);
	for (unsigned t = 0; t < N_VOCAB; t++)
		cr_expect_eq(allowed[t], t == END);
	cr_expect_eq(grammar_state_accept(s, 'a', &err), LAP_USAGE);
	cr_expect_eq(grammar_state_accept(other, 'a', &err), LAP_OK, "clones go their own way");
	cr_expect_eq(grammar_state_accept(other, N_VOCAB, &err), LAP_USAGE);
	cr_expect_eq(grammar_state_accept(other, -1, &err), LAP_USAGE);
	cr_expect_eq(grammar_state_accept(other, CONTROL, &err), LAP_USAGE);
	grammar_state_destroy(s);
	cr_expect_eq(grammar_state_accept(other, 'a', &err), LAP_OK, "%s", err.text);
	grammar_state_destroy(other);
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
}

/* A vocabulary that cannot spell what must follow: no bit, and no failure. */
Test(grammar, a_poor_vocabulary_allows_nothing)
{
	struct grammar_vocabulary *v;
	struct grammar_piece pieces[] = {{"a", 1}, {"b", 1}};
	struct lap_error err = {0};
	uint32_t mask = 7, n;
	cr_assert_eq(grammar_vocabulary_create(pieces, 2, NULL, 0, &v, &err), LAP_OK);
	struct grammar *g = grammar_of("root ::= \"ac\"", NULL);
	struct grammar_state *s = state_of(g, v);
	cr_assert_eq(grammar_state_mask(s, &mask, &n, &err), LAP_OK);
	cr_expect(mask == 1 && n == 1);
	cr_assert_eq(grammar_state_accept(s, 0, &err), LAP_OK);
	cr_assert_eq(grammar_state_mask(s, &mask, &n, &err), LAP_OK);
	cr_expect(mask == 0 && n == 0);
	grammar_state_destroy(s);
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
	int32_t end = 2;
	cr_expect_eq(grammar_vocabulary_create(pieces, 2, &end, 1, &v, &err), LAP_USAGE);
	cr_expect_str_eq(err.text, "vocabulary: found the end token 2, expected one of 2 tokens");
	cr_expect_null(v);
	pieces[0].n = 1 << 24; /* refused before it is read */
	cr_expect_eq(grammar_vocabulary_create(pieces, 2, NULL, 0, &v, &err), LAP_USAGE);
	/* None at all. */
	cr_assert_eq(grammar_vocabulary_create(NULL, 0, NULL, 0, &v, &err), LAP_OK, "%s", err.text);
	grammar_vocabulary_destroy(v);
}

/* ---- errors ---------------------------------------------------------------------------------- */

Test(grammar, errors_name_line_and_column)
{
	static const struct {
		const char *gbnf, *message;
	} cases[] = {
		{"", "line 1, column 1: there is no rule \"root\""},
		{"a ::= \"x\"\n", "line 2, column 1: there is no rule \"root\""},
		{"root = \"a\"", "line 1, column 6: found '=', expected '::='"},
		{"root ::= \"a\"\n% ::= \"b\"",
			"line 2, column 1: found '%', expected an element, '|' or a new rule"},
		{"\"a\"", "line 1, column 1: found '\"', expected the name of a rule"},
		{"root ::= \"é\" %",
			"line 1, column 14: found '%', expected an element, '|' or a new rule"},
		{"root ::= \"a", "line 1, column 12: found the end, expected '\"'"},
		{"root ::= \"a\n\"", "line 1, column 12: found the end of the line, expected '\"'"},
		{"root ::= \"\\q\"", "line 1, column 12: found 'q', expected an escape"},
		{"root ::= \"\\x4g\"",
			"line 1, column 14: found 'g', expected a hexadecimal digit"},
		{"root ::= \"\\uD800\"", "line 1, column 11: U+D800 is no character"},
		{"root ::= \"\\U00110000\"", "line 1, column 11: U+110000 is no character"},
		{"root ::= [a", "line 1, column 12: found the end, expected ']'"},
		{"root ::= []", "line 1, column 10: the class is empty"},
		{"root ::= [b-a]", "line 1, column 11: the range ends before it starts"},
		{"root ::= [\xFF]", "line 1, column 11: found byte 0xFF, which is no UTF-8"},
		{"root ::= ( \"a\" | \"b\"",
			"line 1, column 21: found the end, expected '|', ')' or an element"},
		{"root ::= \"a\" )", "line 1, column 14: found ')', expected an element"},
		{"root ::= * \"a\"", "line 1, column 10: found '*', expected an element before it"},
		{"root ::= \"a\"{", "line 1, column 14: found the end, expected a number"},
		{"root ::= \"a\"{2", "line 1, column 15: found the end, expected ',' or '}'"},
		{"root ::= \"a\"{3,2}",
			"line 1, column 13: found {3,2}, expected the smaller number first"},
		{"root ::= \"a\"{99999999999}",
			"line 1, column 14: a repetition of more than 65536"},
		{"root ::= \"a\"*********",
			"line 1, column 21: more than 8 repetitions of one element"},
		{"root ::= \"x\"\n  | y z\nz ::= \"z\"",
			"line 2, column 5: the rule \"y\" is not defined"},
		{"root ::= \"x\"\nroot ::= \"y\"",
			"line 2, column 1: the rule \"root\" is defined a second time"},
		{"root ::= \"x\" root", "line 1, column 1: root matches no text"},
		{"root ::= a\na ::= a \"x\" | \"y\"",
			"line 2, column 1: the rule \"a\" is left-recursive"},
		{"root ::= \"x\" a\na ::= b | \"y\"\nb ::= (\"q\"* a)+", "is left-recursive"},
		{"root ::= ((root)?){2} \"x\"",
			"line 1, column 1: the rule \"root\" is left-recursive"},
		{"root ::= ((\"a\"{9999}){9999}){9999}\n", NULL /* adds up: 3 x 9999 */},
		{"root ::= \"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536} "
		 "\"a\"{65536} "
		 "\"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536} "
		 "\"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536} \"a\"{65536}",
			"compiles to more than 1048576 instructions"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_error err = {0};
		struct grammar *g = NULL;
		enum lap_status status =
			grammar_create(cases[i].gbnf, strlen(cases[i].gbnf), NULL, &g, &err);
		if (!cases[i].message) {
			cr_expect_eq(status, LAP_OK, "%s: %s", cases[i].gbnf, err.text);
			grammar_destroy(g);
			continue;
		}
		cr_expect_eq(status, LAP_USAGE, "%s", cases[i].gbnf);
		cr_expect_null(g);
		cr_expect(strstr(err.text, cases[i].message), "%s\nfound    %s\nexpected %s",
			cases[i].gbnf, err.text, cases[i].message);
	}
	struct text deep = {0};
	text_printf(&deep, "root ::= ");
	for (unsigned i = 0; i < 100000; i++)
		text_append(&deep, "(", 1);
	struct lap_error err = {0};
	struct grammar *g;
	cr_expect_eq(grammar_create(deep.data, deep.n, NULL, &g, &err), LAP_USAGE);
	cr_expect_str_eq(err.text, "grammar, line 1, column 210: groups nest deeper than 200");
	text_free(&deep);
	cr_expect_eq(grammar_create("root ::= \"a\"", 12, &(struct grammar_limits){.n_bytes = 11},
			     &g, &err),
		LAP_USAGE);
	cr_expect_str_eq(err.text, "grammar: has 12 bytes, expected at most 11");
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Two to the power of n ways to read a text: the room grows with its length. */
Test(grammar, ambiguity_stays_bounded)
{
	enum { N = 3000 };
	struct grammar_vocabulary *v = byte_vocabulary();
	const struct grammar_limits limits = {.n_memory = 16 << 20, .n_steps = 100000};
	struct grammar *g = grammar_of("root ::= \"a\" root \"b\" | \"a\" root [bc] | x\n"
				       "x ::= \"\" | \"d\"? \"d\"? x2\nx2 ::= \"\" | \"e\"",
		&limits);
	struct grammar_state *s = state_of(g, v);
	struct lap_error err = {0};
	uint32_t mask[(N_VOCAB + 31) / 32];
	for (unsigned i = 0; i < 2 * N; i++) {
		cr_assert_eq(
			grammar_state_mask(s, mask, NULL, &err), LAP_OK, "%u: %s", i, err.text);
		cr_assert_eq(grammar_state_accept(s, i < N ? 'a' : "bc"[i % 2], &err), LAP_OK,
			"%u: %s", i, err.text);
	}
	cr_expect(grammar_state_is_complete(s));
	cr_expect_eq(grammar_state_accept(s, 'b', NULL), LAP_USAGE, "all are closed");
	grammar_state_destroy(s);
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
}

/* What no sequence stands at is dropped, and the answers stay the same. */
Test(grammar, little_memory_changes_nothing)
{
	struct grammar_vocabulary *v = byte_vocabulary();
	const struct grammar_limits small = {.n_memory = 200 << 10};
	struct grammar *g[2] = {grammar_of(json, NULL), grammar_of(json, &small)};
	struct grammar_state *s[2][3];
	uint32_t seed = 7;
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < 3; i++)
			s[k][i] = i ? clone_of(s[k][0]) : state_of(g[k], v);
	for (unsigned step = 0; step < 4000; step++) {
		uint32_t mask[2][(N_VOCAB + 31) / 32], n[2];
		unsigned i = next_random(&seed) % 3;
		struct lap_error err = {0};
		for (unsigned k = 0; k < 2; k++)
			cr_assert_eq(grammar_state_mask(s[k][i], mask[k], &n[k], &err), LAP_OK,
				"%s", err.text);
		cr_assert(
			n[0] == n[1] && !memcmp(mask[0], mask[1], sizeof mask[0]), "step %u", step);
		if (grammar_state_is_complete(s[0][i])) {
			for (unsigned k = 0; k < 2; k++) { /* go on as a copy of another */
				grammar_state_destroy(s[k][i]);
				s[k][i] = clone_of(s[k][(i + 1) % 3]);
			}
			continue;
		}
		int32_t token;
		do
			token = (int32_t)(next_random(&seed) % 128);
		while (!(mask[0][token / 32] >> (token % 32) & 1) ||
			(token == '}' && next_random(&seed) % 4) ||
			(token == '[' && next_random(&seed) % 8));
		for (unsigned k = 0; k < 2; k++)
			cr_assert_eq(
				grammar_state_accept(s[k][i], token, &err), LAP_OK, "%s", err.text);
	}
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < 3; i++)
			grammar_state_destroy(s[k][i]);
		grammar_destroy(g[k]);
	}
	grammar_vocabulary_destroy(v);
}

Test(grammar, depth_and_lists)
{
	enum { N = 20000 };
	struct grammar_vocabulary *v = byte_vocabulary();
	struct lap_error err = {0};
	struct grammar *g = grammar_of("root ::= \"[\" (root (\",\" root)*)? \"]\"", NULL);
	struct grammar_state *s = state_of(g, v);
	for (unsigned i = 0; i < 2 * N; i++)
		cr_assert_eq(grammar_state_accept(s, i < N ? '[' : ']', &err), LAP_OK, "%u: %s", i,
			err.text);
	cr_expect(grammar_state_is_complete(s));
	grammar_state_destroy(s);
	grammar_destroy(g);
	/* A list written as recursion takes no room: 64 KiB for a million steps. */
	g = grammar_of("root ::= \"a\" more\nmore ::= \"\" | \",\" root",
		&(struct grammar_limits){.n_memory = 64 << 10});
	s = state_of(g, v);
	for (unsigned i = 0; i < 1000000; i++)
		cr_assert_eq(grammar_state_accept(s, "a,"[i % 2], &err), LAP_OK, "%s", err.text);
	grammar_state_destroy(s);
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
}

Test(grammar, limits_are_errors_of_their_own)
{
	struct grammar_vocabulary *v = byte_vocabulary();
	static const struct {
		const char *gbnf;
		struct grammar_limits limits;
		const char *message;
	} cases[] = {
		{"root ::= \"[\" root \"]\" | \"x\"", {.n_memory = 100 << 10},
			"does the text nest deeply?"},
		{"root ::= s\ns ::= \"[\" | \"[\" s s", {.n_steps = 2000}, "steps for one token"},
		{"root ::= \"[\" ([a] | [b] | [c] | [d])", {.n_items = 3},
			"places at a time, expected at most 3"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct grammar *g = grammar_of(cases[i].gbnf, &cases[i].limits);
		struct grammar_state *s = NULL;
		struct lap_error err = {0};
		enum lap_status status = grammar_state_create(g, v, &s, &err);
		for (unsigned n = 0; n < 100000 && !status; n++)
			status = grammar_state_accept(s, '[', &err);
		cr_expect_eq(status, LAP_ERROR, "%s: %s", cases[i].gbnf, err.text);
		cr_expect(strstr(err.text, cases[i].message), "%s", err.text);
		grammar_state_destroy(s);
		grammar_destroy(g);
	}
	grammar_vocabulary_destroy(v);
}

/* ---- real vocabularies ----------------------------------------------------------------------- */

/* The vocabulary of a tokenizer file: what a caller does with its own. */
static struct grammar_vocabulary *vocabulary_of(const struct tokenizer *t)
{
	uint32_t n = tokenizer_info(t)->n_vocab;
	struct grammar_piece *pieces = calloc(n, sizeof *pieces);
	for (uint32_t id = 0; id < n; id++)
		pieces[id].bytes = tokenizer_piece(t, (int32_t)id, false, &pieces[id].n);
	size_t n_ends;
	const int32_t *ends = tokenizer_ends(t, &n_ends);
	struct grammar_vocabulary *v;
	struct lap_error err = {0};
	cr_assert_eq(grammar_vocabulary_create(pieces, n, ends, n_ends, &v, &err), LAP_OK, "%s",
		err.text);
	free(pieces);
	return v;
}

/* A JSON text as the tokenizer cuts it: every token is in the mask before it; masks and tried tokens agree at
 * some places; and how long a mask takes. */
static void check_real(const char *file)
{
	static const char text[] =
		"{\"name\": \"Zoë Smith 😀\", \"list\": [1, 2.5, {\"deep\": [\"x\", null]}], "
		"\"more\": \"A longer text in a string, several words.\"}";
	char relative[512];
	snprintf(relative, sizeof relative, "tokenizers/%s", file);
	struct text bytes = read_shared(relative);
	struct lap_error err = {0};
	struct gguf *gguf;
	struct tokenizer *t;
	cr_assert_eq(gguf_open(bytes.data, bytes.n, file, &gguf, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(tokenizer_create(gguf, &t, &err), LAP_OK, "%s", err.text);
	gguf_close(gguf);
	text_free(&bytes);
	struct grammar_vocabulary *v = vocabulary_of(t);
	struct grammar *g = grammar_of(json, NULL);
	struct grammar_state *s = state_of(g, v);
	uint32_t n_vocab = tokenizer_info(t)->n_vocab, n_allowed;
	uint32_t *mask = calloc(n_vocab / 32 + 1, sizeof *mask);
	int32_t *ids;
	size_t n;
	cr_assert_eq(tokenizer_encode(t, text, strlen(text), false, false, &ids, &n, &err), LAP_OK);
	double seconds = 0, longest = 0;
	for (size_t i = 0; i < n; i++) {
		double start = clock_cpu_seconds();
		cr_assert_eq(grammar_state_mask(s, mask, &n_allowed, &err), LAP_OK, "%s", err.text);
		double took = clock_cpu_seconds() - start;
		seconds += took;
		longest = took > longest ? took : longest;
		size_t n_piece;
		const char *piece = tokenizer_piece(t, ids[i], false, &n_piece);
		if (i == 0 && n_piece &&
			piece[0] == ' ') { /* SentencePiece's space before a text */
			cr_assert_eq(grammar_state_accept_bytes(s, piece + 1, n_piece - 1, &err),
				LAP_OK);
			continue;
		}
		cr_assert(mask[ids[i] / 32] >> (ids[i] % 32) & 1, "%s: '%.*s' is not allowed", file,
			(int)n_piece, piece);
		for (uint32_t id = 0; i % 16 == 3 && id < n_vocab; id++) {
			struct grammar_state *clone = clone_of(s);
			bool ok = grammar_state_accept(clone, (int32_t)id, NULL) == LAP_OK;
			cr_assert_eq(ok, mask[id / 32] >> (id % 32) & 1, "%s: token %u", file, id);
			grammar_state_destroy(clone);
		}
		cr_assert_eq(grammar_state_accept(s, ids[i], &err), LAP_OK, "%s", err.text);
	}
	cr_expect(grammar_state_is_complete(s));
	/* Measured 0.2 ms on average and 1.2 ms at most for 150,000 tokens. */
	if (!test_small())
		cr_expect(seconds / (double)n < 0.01, "%s: %.3f ms a mask, at most %.3f ms", file,
			1e3 * seconds / (double)n, 1e3 * longest);
	free(mask);
	free(ids);
	grammar_state_destroy(s);
	grammar_destroy(g);
	grammar_vocabulary_destroy(v);
	tokenizer_destroy(t);
}

Test(grammar, real_vocabulary_gpt2)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-gpt-2.gguf");
	check_real("ggml-vocab-gpt-2.gguf");
}

Test(grammar, real_vocabulary_spm)
{
	SKIP_WITHOUT("tokenizers/ggml-vocab-llama-spm.gguf");
	check_real("ggml-vocab-llama-spm.gguf");
}

Test(grammar, real_vocabulary_qwen3)
{
	SKIP_WITHOUT("tokenizers/vocab-qwen3.gguf.xz");
	check_real("vocab-qwen3.gguf.xz");
}

Test(grammar, real_vocabulary_gemma3)
{
	SKIP_WITHOUT("tokenizers/vocab-gemma3.gguf.xz");
	check_real("vocab-gemma3.gguf.xz");
}
