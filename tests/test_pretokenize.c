/* Where texts are cut: the rows against cuts worked out by hand from the published patterns. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pretokenize.h"
#include "support.h"

static struct pretokenizer *make(const char *name, bool jit)
{
	struct pretokenizer *p;
	struct lap_error err = {0};
	cr_assert_eq(
		pretokenizer_create(name, strlen(name), jit, &p, &err), LAP_OK, "%s", err.text);
	return p;
}

static struct words split(const struct pretokenizer *p, const char *text, size_t n)
{
	struct words words = {0};
	struct lap_error err = {0};
	cr_assert_eq(pretokenizer_split(p, text, n, &words, &err), LAP_OK, "%s", err.text);
	for (size_t i = 0, end = 0; i < words.n; end = words.ends[i++])
		cr_assert_gt(words.ends[i], end);
	cr_assert_eq(words.n ? words.ends[words.n - 1] : 0, n);
	return words;
}

/* `expected` is the text with | at each cut. */
static void expect_cuts(const char *name, const char *text, const char *expected)
{
	for (int jit = 0; jit < 2; jit++) {
		struct pretokenizer *p = make(name, jit);
		struct words words = split(p, text, strlen(text));
		struct text found = {0};
		for (size_t i = 0, begin = 0; i < words.n; begin = words.ends[i++])
			cr_assert(text_printf(&found, "%s%.*s", i ? "|" : "",
				(int)(words.ends[i] - begin), text + begin));
		cr_expect_str_eq(found.data ? found.data : "", expected, "%s (jit %d): %s", name,
			jit, found.data ? found.data : "");
		text_free(&found);
		words_free(&words);
		pretokenizer_destroy(p);
	}
}

Test(pretokenize, gpt2)
{
	expect_cuts("gpt-2", "Hello world", "Hello| world");
	expect_cuts("gpt-2", "it's I'M don't've", "it|'s| I|'|M| don|'t|'ve");
	expect_cuts("gpt-2", "x  y\n\n z", "x| | y|\n\n| z");
	expect_cuts("gpt-2", "a 1234 b5!? c", "a| 1234| b|5|!?| c");
	expect_cuts("gpt-2", "a\tb \n", "a|\t|b| \n");
	expect_cuts("gpt-2", "", "");
}

Test(pretokenize, llama_bpe)
{
	expect_cuts("llama-bpe", "it's I'M", "it|'s| I|'M");
	expect_cuts("llama-bpe", "1234567", "123|456|7");
	expect_cuts("llama-bpe", "(word) \"x", "(word|)| \"|x");
	expect_cuts("llama-bpe", "a!!\n\nb", "a|!!\n\n|b");
	expect_cuts("llama-bpe", "a  \n  b", "a|  \n| | b");
	expect_cuts("llama-bpe", "\tword", "\tword");
	expect_cuts("llama-bpe", "end   ", "end|   ");
}

Test(pretokenize, qwen2)
{
	expect_cuts("qwen2", "1234", "1|2|3|4");
	expect_cuts("qwen2", "WE'LL x'", "WE|'LL| x|'");
	expect_cuts("deepseek-r1-qwen", "a12", "a|1|2");
}

Test(pretokenize, default_row)
{
	expect_cuts("default", "12345,x", "123|45|,|x");
	expect_cuts("default", "a+b it's $5", "a|+|b| it|'|s| |$|5");
	expect_cuts("default", "x 1234567 y", "x| |123|456|7| y");
}

Test(pretokenize, qwen35)
{
	/* A vowel sign is part of its word, where qwen2 cuts before it. */
	expect_cuts("qwen2", "\u0915\u093F\u0916", "\u0915|\u093F\u0916");
	expect_cuts("qwen35", "\u0915\u093F\u0916 x", "\u0915\u093F\u0916| x");
	expect_cuts("qwen35", "WE'LL 12 !\n", "WE|'LL| |1|2| !\n");
}

Test(pretokenize, deepseek)
{
	expect_cuts("deepseek-llm", "Hi there, 12\n\nx", "Hi| there|,| |12|\n|\n|x");
	expect_cuts("deepseek-llm", "\u4F60\u597D\u3002ab", "\u4F60\u597D|\u3002|ab");
	expect_cuts("deepseek-llm", "a  ", "a|  ");
	expect_cuts("deepseek-llm", "\u4F60  \u4F60", "\u4F60|  |\u4F60");
	expect_cuts("deepseek-coder", "x1 23!!", "x|1| |2|3|!!");
	expect_cuts("deepseek-coder", "\u4F60a \u4F60", "\u4F60|a| |\u4F60");
}

Test(pretokenize, falcon)
{
	expect_cuts("falcon", "a`b 1234!", "a|`|b| |123|4|!");
	expect_cuts("falcon", "it's", "it|'|s");
}

Test(pretokenize, starcoder)
{
	expect_cuts("starcoder", "x 123 y", "x| |1|2|3| y");
	expect_cuts("smollm", "it's 4", "it|'s| |4");
	expect_cuts("refact", "a  b", "a| | b");
}

Test(pretokenize, names_of_gpt2)
{
	expect_cuts("mpt", "it's 1234", "it|'s| 1234");
	expect_cuts("olmo", "a  b", "a| | b");
	expect_cuts("stablelm2", "I'M 12", "I|'M| |1|2");
	expect_cuts("dbrx", "1234", "123|4");
}

/* Capitals begin a word; o200k hangs a suffix on it. */
Test(pretokenize, cased)
{
	expect_cuts("tekken", "helloWorld HTMLPage", "hello|World| HTMLPage");
	expect_cuts("tekken", "don't 12 a//\nb", "don|'t| |1|2| a|//\n|b");
	expect_cuts("gpt-4o", "helloWorld don't", "hello|World| don't");
	expect_cuts("gpt-4o", "1234 +/\n//x", "123|4| +/\n//|x");
	expect_cuts("gpt-4o", "ABC", "ABC");
}

/* Every character with the property White_Space is one, and U+180E and U+200B are none. */
Test(pretokenize, spaces)
{
	expect_cuts("gpt-2", "a\u00A0\u1680\u2003\u2028\u3000", "a|\u00A0\u1680\u2003\u2028\u3000");
	expect_cuts("gpt-2", "a\xC2\x85\v\f", "a|\xC2\x85\v\f");
	expect_cuts("gpt-2", "a \u180E!", "a| \u180E!");
	expect_cuts("gpt-2", "a \u200B!", "a| \u200B!");
	expect_cuts("gpt-2", "a \x1C!", "a| \x1C!");
}

/* A run of bytes that are no UTF-8 is a word, and the text ends before it and begins behind it. */
Test(pretokenize, invalid_utf8)
{
	expect_cuts("gpt-2", "ab\xFF\xC0 cd", "ab|\xFF\xC0| cd");
	expect_cuts("gpt-2", "a  \xE6", "a|  |\xE6"); /* not "a| | \xE6": spaces at an end */
	expect_cuts("qwen2", "\xED\xA0\x80", "\xED\xA0\x80");
	struct pretokenizer *p = make("qwen2", true);
	struct words words = split(p, "a\0b", 3);
	cr_expect(words.n == 2 && words.ends[0] == 1, "%zu words", words.n);
	words_free(&words);
	pretokenizer_destroy(p);
}

Test(pretokenize, names)
{
	size_t n;
	const struct pretokenizer_rule *rules = pretokenizer_rules(&n);
	cr_assert_gt(n, 0);
	for (size_t i = 0; i < n; i++) {
		const char *s = rules[i].names;
		for (size_t length; (length = strcspn(s, " ")) > 0;
			s += length + (s[length] == ' ')) {
			struct pretokenizer *p;
			cr_assert_eq(pretokenizer_create(s, length, true, &p, NULL), LAP_OK);
			cr_expect_eq(pretokenizer_rule(p), &rules[i], "%s is in two rows", s);
			pretokenizer_destroy(p);
		}
	}
	static const char *const unknown[] = {"", "gpt", "gpt-2 default", "llama-bpe ", "Qwen2"};
	for (size_t i = 0; i < ARRAY_COUNT(unknown); i++) {
		struct pretokenizer *p;
		struct lap_error err = {0};
		enum lap_status status =
			pretokenizer_create(unknown[i], strlen(unknown[i]), true, &p, &err);
		cr_expect_eq(status, LAP_BAD_MODEL, "\"%s\"", unknown[i]);
		cr_expect_null(p);
		for (size_t j = 0; j < n; j++)
			cr_expect_not_null(strstr(err.text, rules[j].names), "%s", err.text);
	}
}

/* What finds matches without asking the patterns finds theirs, whatever stands beside a word. */
Test(pretokenize, fast_and_reference_agree)
{
	static const char *const units[] = {"a", "b", "word", "It", "A", "HTML", " ", " ", "  ",
		"'", "'s", "'LL", "1", "23", "!", "(", "$", "\n", "\r\n", "\t", "_", "/", "\u00E9",
		"\u01C5", "\u0301", "\u4F60\u597D", "\uAC00", "\u3002", "\u00A0", "\u3000",
		"\u0660", "\u180E", "\xFF", "\U0001F600", "\u212A", "\u017F"};
	size_t n_rules;
	const struct pretokenizer_rule *rules = pretokenizer_rules(&n_rules);
	uint32_t seed = 1;
	for (size_t i = 0; i < n_rules; i++) {
		char name[32];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(rules[i].names, " "),
			rules[i].names);
		struct pretokenizer *fast = make(name, true), *reference = make(name, false);
		for (int j = 0; j < 4000; j++) {
			char text[256] = "";
			for (int k = j % 24; k >= 0; k--) {
				seed = seed * 1664525u + 1013904223u;
				strcat(text, units[(seed >> 16) % ARRAY_COUNT(units)]);
			}
			size_t n = strlen(text);
			struct words found = split(fast, text, n),
				     expected = split(reference, text, n);
			cr_expect(found.n == expected.n &&
					!memcmp(found.ends, expected.ends,
						found.n * sizeof *found.ends),
				"%s: \"%s\"", name, text);
			words_free(&found);
			words_free(&expected);
		}
		pretokenizer_destroy(fast);
		pretokenizer_destroy(reference);
	}
}

/* Long runs, on which a pattern that goes back over them would take hours; with and without code
 * made at run time, and with the same cuts. */
Test(pretokenize, long_runs)
{
	enum { n = 300000 };
	static const char *const units[] = {" ", "a", "\n", "!", "1", "'", " \n", "\t ", "\u4F60",
		"a ", "' ", "\xFF", "\u3000"};
	static char text[n + 1];
	size_t n_rules;
	const struct pretokenizer_rule *rules = pretokenizer_rules(&n_rules);
	for (size_t i = 0; i < n_rules * ARRAY_COUNT(units); i++) {
		const char *unit = units[i % ARRAY_COUNT(units)];
		size_t n_unit = strlen(unit), n_text = n - n % n_unit;
		for (size_t j = 0; j < n_text; j++)
			text[j] = unit[j % n_unit];
		text[n_text] = 'x'; /* so that \s+(?!\S) has to give one back */
		char name[32];
		const char *names = rules[i / ARRAY_COUNT(units)].names;
		snprintf(name, sizeof name, "%.*s", (int)strcspn(names, " "), names);
		struct words found[2];
		for (int jit = 0; jit < 2; jit++) {
			struct pretokenizer *p = make(name, jit);
			double start = clock_cpu_seconds();
			found[jit] = split(p, text, n_text + 1);
			double seconds = clock_cpu_seconds() - start;
			cr_expect_lt(seconds, 5.0, "%s, \"%s\", jit %d", name, unit, jit);
			pretokenizer_destroy(p);
		}
		cr_expect(found[0].n == found[1].n &&
				!memcmp(found[0].ends, found[1].ends, found[0].n * sizeof(size_t)),
			"%s, \"%s\"", name, unit);
		words_free(&found[0]);
		words_free(&found[1]);
	}
}
