/* Stop strings: found across tokens, held back until they cannot match, whatever the cut of the text. */
#include <criterion/criterion.h>
#include <string.h>

#include "stops.h"

/* Gives the pieces one by one; what is shown after each, and at the end, joined by '|'. */
static void feed(const char *const *strings, size_t n_strings, const char *const *pieces,
	size_t n_pieces, char *shown, bool *found)
{
	struct stops s = {.strings = strings, .n_strings = n_strings};
	struct text out = {0};
	*found = false;
	shown[0] = '\0';
	for (size_t i = 0; i < n_pieces && !*found; i++) {
		out.n = 0;
		bool hidden = pieces[i][0] == '~'; /* a control token */
		cr_assert(stops_add(
			&s, pieces[i] + hidden, strlen(pieces[i] + hidden), !hidden, &out, found));
		strncat(shown, out.data ? out.data : "", out.n);
		strcat(shown, "|");
	}
	out.n = 0;
	if (!*found)
		cr_assert(stops_finish(&s, &out));
	strncat(shown, out.data ? out.data : "", out.n);
	stops_free(&s);
	text_free(&out);
}

#define LIST(...) \
	((const char *const[]){__VA_ARGS__}), sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

static void expect(const char *const *strings, size_t n_strings, const char *const *pieces,
	size_t n_pieces, const char *expected, bool expected_found)
{
	char shown[256];
	bool found;
	feed(strings, n_strings, pieces, n_pieces, shown, &found);
	cr_expect_str_eq(shown, expected);
	cr_expect_eq(found, expected_found, "%s", expected);
}

/* OB-20: pieces [" L"," M"," N"," O"," P"," Q"," R"], stop "O P Q". */
Test(stops, across_tokens)
{
	expect(LIST("O P Q"), LIST(" L", " M", " N", " O", " P", " Q", " R"), " L| M| N| |||",
		true);
	expect(LIST("O P Q"), LIST(" L", " O", " P", " L", " R"), " L| ||O P L| R|", false);
	expect(LIST("O P Q"), LIST(" O", " P"), " ||O P", false);
	expect(LIST("O P Q"), LIST("xO P Qy"), "x|", true);
}

Test(stops, several)
{
	expect(LIST("aab", "b"), LIST("aaab"), "a|", true);
	expect(LIST("abcd", "bc"), LIST("abcd"), "a|", true);
	expect(LIST("abcd", "bc"), LIST("a", "b", "c", "d"), "||a|", true);
	expect(LIST("aaa"), LIST("aa", "b", "aa", "a"), "|aab|||", true);
	expect(LIST("\n\n"), LIST("x\n", "y\n\nz"), "x|\ny|", true);
}

/* A control token that a stop names matches although it is not shown. */
Test(stops, control_tokens)
{
	expect(LIST("<|end|>"), LIST("a", "~<|end|>"), "a||", true);
	expect(LIST("a<|end|>b"), LIST("a", "~<|end|>", "c"), "||ac|", false);
	expect(LIST("a<|end|>b"), LIST("xa", "~<|end|>", "b"), "x|||", true);
	expect(LIST("zz"), LIST("a", "~<|end|>", "b"), "a||b|", false);
}

/* Every cut of a text gives the same. */
Test(stops, any_cut)
{
	static const char *const strings[] = {"aba", "bb", "abac", "caa"};
	static const char text[] = "acabcaababbacaabaca";
	for (uint32_t cuts = 0; cuts < 1u << 18; cuts += 37) {
		char pieces[20][20] = {{0}}, whole[64] = "", shown[256];
		const char *list[20];
		size_t n = 0;
		for (size_t i = 0; text[i]; i++) {
			pieces[n][strlen(pieces[n])] = text[i];
			if (cuts >> i & 1)
				n++;
		}
		for (size_t i = 0; i <= n; i++)
			list[i] = pieces[i];
		for (size_t at = 0, first = cuts % 9; at < 1; at++) {
			bool found;
			feed(strings, 1 + first % 4, list, n + 1, shown, &found);
			size_t w = 0;
			for (const char *c = shown; *c; c++)
				if (*c != '|')
					whole[w++] = *c;
			whole[w] = '\0';
			/* by hand: the first end of a stop, then its earliest start */
			size_t end = strlen(text), start = end;
			for (size_t e = 1; e <= strlen(text) && start == strlen(text); e++)
				for (size_t i = 0; i < 1 + first % 4; i++) {
					size_t l = strlen(strings[i]);
					if (l <= e && memcmp(text + e - l, strings[i], l) == 0 &&
						e - l < start)
						start = e - l;
				}
			cr_assert_eq(strlen(whole), start, "cuts %x: \"%s\"", cuts, whole);
			cr_assert_eq(memcmp(whole, text, start), 0);
			cr_assert_eq(found, start < strlen(text));
		}
	}
}
