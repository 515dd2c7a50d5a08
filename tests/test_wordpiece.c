/* The words of WordPiece, and its tables against the properties that PCRE2 knows. */
#include <criterion/criterion.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "support.h"
#include "wordpiece.h"

static void expect_words_of(const char *text, size_t n, const char *expected)
{
	struct text out = {0};
	cr_assert(text_append(&out, "", 0));
	cr_assert(wordpiece_words(text, n, &out));
	cr_expect_str_eq(
		out.data, expected, "%s: \"%s\", expected \"%s\"", text, out.data, expected);
	text_free(&out);
}

static void expect_words(const char *text, const char *expected)
{
	expect_words_of(text, strlen(text), expected);
}

Test(wordpiece, words)
{
	expect_words("", "");
	expect_words("  \n\t ", "");
	expect_words("Hello, World", " hello , world");
	expect_words("a\u00A0b\u3000c\u2028d", " a b c d");
	expect_words("don't!!x=$5", " don ' t ! ! x = $ 5");
	expect_words("\u4F60\u597Dab\u4E16", " \u4F60 \u597D ab \u4E16");
	expect_words("a\u20ACb", " a\u20ACb"); /* a symbol outside ASCII is a letter */
	expect_words("\u2581x", " \u2581x");
}

Test(wordpiece, letters)
{
	expect_words("\u00C9\u00E9e\u0301", " eee");
	expect_words("\u00D8\u0141\u00DF", " \u00F8\u0142\u00DF"); /* these have no decomposition */
	expect_words("\u0130\u1E9E", " i\u00DF");
	expect_words("\u03A9\u2126\u0391\u1F0D", " \u03C9\u03C9\u03B1\u03B1");
	expect_words("\u0401\u0419", " \u0435\u0438");
	expect_words("\uAC00\uD7A3\u1100", " \u1100\u1112\u1100");
	expect_words("\uF900", " \u8C48"); /* a compatibility ideograph is one too */
	expect_words("\u2260\u037E", " = ;");
	expect_words("\U00010400\U0001D15E", " \U00010428\U0001D157");
	expect_words("\uFB01\u01C4", " \uFB01\u01C6"); /* canonical only */
}

Test(wordpiece, dropped)
{
	expect_words("a\u200Bb\uFEFFc\u00ADd", " abcd");
	expect_words("\u0301\u0301", "");
	expect_words("\uE000\uFFFDx\x01\x7F", " x");
	expect_words_of("a\0b", 3, " ab");
	expect_words_of("a\xFF\xE6\xAD"
			"b\xC0",
		6, " ab");
	expect_words("\uFFFE", " \uFFFE"); /* unassigned */
}

/* What PCRE2 says of a character.  Later versions of Unicode than the tables' add none below LAST. */
static bool has_property(const char *pattern, const char *text, size_t n)
{
	static pcre2_code *code;
	static const char *compiled;
	int reason;
	PCRE2_SIZE at;
	if (compiled != pattern) {
		pcre2_code_free(code);
		code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
			PCRE2_UTF | PCRE2_UCP, &reason, &at, NULL);
		compiled = pattern;
		cr_assert(code);
	}
	pcre2_match_data *match = pcre2_match_data_create(1, NULL);
	bool found = pcre2_match(code, (PCRE2_SPTR)text, n, 0, 0, match, NULL) >= 0;
	pcre2_match_data_free(match);
	return found;
}

enum { LAST = 0x2E00 };

static void check_property(const char *pattern, const char *expected_between, unsigned least)
{
	unsigned n_checked = 0;
	for (uint32_t code = 1; code < LAST; code++) {
		char text[8] = "a";
		unsigned n = utf8_encode(code, text + 1);
		if (!has_property(pattern, text + 1, n))
			continue;
		text[1 + n] = 'b';
		struct text out = {0};
		cr_assert(wordpiece_words(text, n + 2, &out));
		/* The character itself, where it stays, is between the two letters. */
		size_t n_expected = strlen(expected_between);
		bool alone = *expected_between == '?';
		bool same = alone
			? out.n > 5 && !memcmp(out.data, " a ", 3) &&
				!memcmp(out.data + out.n - 2, " b", 2)
			: out.n == n_expected && !memcmp(out.data, expected_between, out.n);
		cr_expect(same, "U+%04X: \"%s\"", code, out.data);
		text_free(&out);
		n_checked++;
	}
	cr_expect_gt(n_checked, least, "%s: %u characters", pattern, n_checked);
}

Test(wordpiece, properties)
{
	check_property("^\\p{M}", " ab", 1000);
	check_property("^(?![\\t-\\r\\x{85}])[\\p{Cc}\\p{Cf}]", " ab", 70);
	check_property("^[\\t-\\r\\x{85}\\p{Z}]", " a b", 20);
	check_property("^(?:\\p{P}|[$+<=>^`|~])", "?", 300);
}

/* Small letters have none smaller: what comes out goes through unchanged. */
Test(wordpiece, idempotent)
{
	for (uint32_t code = 1; code < 0x110000; code++) {
		if (code >= 0xD800 && code < 0xE000)
			continue;
		char text[4];
		unsigned n = utf8_encode(code, text);
		struct text once = {0}, twice = {0};
		cr_assert(wordpiece_words(text, n, &once));
		cr_assert(wordpiece_words(once.data ? once.data : "", once.n, &twice));
		cr_expect(once.n == twice.n &&
				(once.n == 0 || !memcmp(once.data, twice.data, once.n)),
			"U+%04X: \"%s\", then \"%s\"", code, once.data, twice.data);
		text_free(&once);
		text_free(&twice);
	}
}

Test(wordpiece, linear)
{
	enum { n = 3000000 };
	static char text[n];
	memset(text, 'A', n);
	struct text out = {0};
	double start = clock_cpu_seconds();
	cr_assert(wordpiece_words(text, n, &out));
	cr_expect_lt(clock_cpu_seconds() - start, 3.0);
	cr_expect_eq(out.n, n + 1);
	text_free(&out);
}
