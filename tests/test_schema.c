/* JSON schemas as grammars: texts that must be accepted and refused, bounds and dates against counting,
 * patterns against PCRE2, random texts that must be JSON, and refusals with their places. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <criterion/criterion.h>
#include <jansson.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema.h"
#include "support.h"

/* ---- helpers --------------------------------------------------------------------------------- */

struct matcher {
	struct grammar *g;
	struct grammar_vocabulary *v;
	struct grammar_state *start;
};

enum { END = 256, N_VOCAB };

static struct matcher matcher_of(const char *schema)
{
	static char bytes[256];
	struct grammar_piece pieces[N_VOCAB] = {{0}};
	struct matcher m;
	struct lap_error err = {0};
	int32_t end = END;
	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		pieces[i] = (struct grammar_piece){bytes + i, 1};
	}
	cr_assert_eq(schema_to_grammar(schema, strlen(schema), NULL, &m.g, &err), LAP_OK, "%s: %s",
		schema, err.text);
	cr_assert_eq(grammar_vocabulary_create(pieces, N_VOCAB, &end, 1, &m.v, &err), LAP_OK);
	cr_assert_eq(grammar_state_create(m.g, m.v, &m.start, &err), LAP_OK, "%s", err.text);
	return m;
}

static void matcher_free(struct matcher *m)
{
	grammar_state_destroy(m->start);
	grammar_vocabulary_destroy(m->v);
	grammar_destroy(m->g);
}

static bool fits(const struct matcher *m, const char *text)
{
	struct grammar_state *s;
	cr_assert_eq(grammar_state_clone(m->start, &s, NULL), LAP_OK);
	bool ok = grammar_state_accept_bytes(s, text, strlen(text), NULL) == LAP_OK &&
		grammar_state_is_complete(s);
	grammar_state_destroy(s);
	return ok;
}

/* ---- lists ----------------------------------------------------------------------------------- */

#define TREE                                                                                       \
	"{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{"     \
	"\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/" \
	"node\"}}},\"required\":[\"v\"]}}}"

Test(schema, accepts_what_it_should)
{
	static const struct {
		const char *schema, *accepted[9], *refused[9];
	} cases[] = {
		{"{}", {"1", "\"a\"", "null", "[1, {\"a\": []}]", "-1.5e+10", "{\"a\":1,\"b\":2}"},
			{"", "01", "[1,]", "{a:1}", "nul", "\"a", "+1", ".5"}},
		{"true", {"false", "{}"}, {"x"}},
		{"{\"type\":\"null\",\"title\":\"t\",\"x-mine\":3}", {"null"}, {"0", "nulll"}},
		{"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "1"}},
		{"{\"type\":\"integer\"}", {"0", "-1", "123"}, {"-0", "01", "1.0", "1e3", "\"1\""}},
		{"{\"type\":\"number\"}", {"0", "-0.5", "1e-3", "12.25"}, {"1.", "--1", "NaN"}},
		{"{\"type\":[\"string\",\"null\"]}", {"\"\"", "null"}, {"1"}},
		{"{\"type\":\"string\"}", {"\"\\u00e9é😀\\n\\\"\"", "\"\\uD7FF\""},
			{"\"\n\"", "\"\\x\"", "\"\\ud800\"", "\"a\"b\"", "\"\\u12\""}},
		{"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
			{"\"ab\"", "\"é😀\"", "\"\\\"\\u0041\\n\""},
			{"\"a\"", "\"abcd\"", "\"\\n\""}},
		{"{\"type\":\"string\",\"minLength\":1}", {"\"a\"", "\"abcdef\""}, {"\"\""}},
		{"{\"enum\":[1,\"a\\\"\\n\",null,[true],{\"k\":0.1}]}",
			{"1", "\"a\\\"\\n\"", "null", "[true]", "{\"k\": 0.1}"}, {"2", "\"a\""}},
		{"{\"enum\":[1,\"a\",2.5,2.0],\"type\":\"integer\"}", {"1", "2.0"},
			{"\"a\"", "2.5"}},
		{"{\"const\":\"é/\"}", {"\"é/\""}, {"\"e/\""}},
		{"{\"enum\":[1,2],\"const\":2}", {"2"}, {"1"}},
		{"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{"
		 "\"type\":"
		 "\"null\"},\"c\":true},\"required\":[\"b\"],\"additionalProperties\":false}",
			{"{\"b\":null}", "{\"a\":1,\"b\": null}", "{ \"b\":null , \"c\": [] }",
				"{\n\t\"a\": 1,\n\t\"b\": null,\n\t\"c\": \"x\"\n}"},
			{"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,}",
				"{,\"b\":null}", "{\"b\":null,\"d\":1}", "{\"a\":1.5,\"b\":null}"}},
		{"{\"properties\":{\"a\":{},\"b\":{}}}", {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
			{"{\"c\":1}", "1", "{\"a\":1 \"b\":2}"}},
		{"{\"properties\":{\"a\":false,\"b\":true}}", {"{}", "{\"b\":1}"}, {"{\"a\":1}"}},
		{"{\"type\":\"object\"}", {"{}", "{\"x\": 1, \"y\": {}}"}, {"[]"}},
		{"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
			{"{}", "{\"x\":1}", "{\"x\":1,\"\\n\":2}"}, {"{\"x\":\"\"}", "{\"x\":1,}"}},
		{"{\"properties\":{\"ab\":{\"type\":\"null\"},\"a\":{\"type\":\"null\"}},"
		 "\"additionalProperties\":{\"type\":\"integer\"}}",
			{"{\"ab\":null,\"a\":null,\"abc\":1,\"\":2,\"b\":3,\"é\":4}", "{\"ac\":1}",
				"{}"},
			{"{\"a\":1}", "{\"ab\":1}", "{\"b\":null}", "{\"\\u0061\":1}"}},
		{"{\"type\":\"object\",\"required\":[\"z\"]}", {"{\"z\":1}", "{\"z\":[]}"}, {"{}"}},
		{"{\"type\":\"array\"}", {"[]", "[ 1 , \"a\" ]"}, {"[,]", "{}"}},
		{"{\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
			{"[1,2]", "[1, 2, 3]"}, {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"}},
		{"{\"items\":{\"type\":\"integer\"},\"minItems\":1}", {"[1]", "[1,2,3,4,5]"},
			{"[]"}},
		{"{\"items\":{\"type\":\"integer\"},\"maxItems\":1}", {"[]", "[1]"}, {"[1,2]"}},
		{"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
		{"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
		{"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"items\":{"
		 "\"type\":"
		 "\"boolean\"},\"minItems\":1}",
			{"[1]", "[1,null]", "[1,null,true,false]"}, {"[]", "[null]", "[1,true]"}},
		{"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"items\":false,"
		 "\"minItems\":2}",
			{"[1,null]"}, {"[1]", "[1,null,1]"}},
		{"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{"
		 "\"type\":"
		 "\"null\"}}",
			{"[]", "[1]", "[1,null,null]"}, {"[null]", "[1,1]"}},
		{"{\"prefixItems\":[{\"type\":\"null\"}],\"minItems\":3}", {"[null,1,\"a\"]"},
			{"[null,1]"}},
		{"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"type\":"
		 "\"null\"}},"
		 "false]}",
			{"3", "[null]"}, {"\"a\"", "[1]"}},
		{"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":["
		 "\"a\"],"
		 "\"anyOf\":[{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]},"
		 "{\"properties\":{\"c\":{\"type\":\"null\"}},\"required\":[\"c\"]}]}",
			{"{\"a\":1,\"b\":null}", "{\"a\":1,\"c\":null}"},
			{"{\"a\":1}", "{\"b\":null}"}},
		{"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"type\":\"null\"}},"
		 "\"required\":[\"k\",\"v\"],\"type\":\"object\"},{\"properties\":{\"k\":{"
		 "\"const\":"
		 "\"y\"}},\"required\":[\"k\"],\"type\":\"object\"},{\"type\":\"string\"}]}",
			{"{\"k\":\"x\",\"v\":null}", "{\"k\":\"y\"}", "\"s\""},
			{"{\"k\":\"x\"}", "{\"k\":\"z\"}"}},
		{"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":1}},\"required\":[\"a\"]},{"
		 "\"properties\":"
		 "{\"a\":{\"type\":\"integer\",\"maximum\":3},\"b\":{\"type\":\"null\"}}}],"
		 "\"type\":"
		 "\"object\"}",
			{"{\"a\":1}", "{\"a\":3,\"b\":null}"},
			{"{\"a\":0}", "{\"a\":4}", "{\"b\":null}"}},
		{"{\"$ref\":\"#/definitions/a~1b%20c\",\"description\":\"d\",\"definitions\":{\"a/"
		 "b c\":"
		 "{\"type\":\"null\"}}}",
			{"null"}, {"1"}},
		{"{\"$ref\":\"#/$defs/"
		 "s\",\"maxLength\":2,\"$defs\":{\"s\":{\"type\":\"string\",\"minLength\":"
		 "1}}}",
			{"\"a\"", "\"ab\""}, {"\"\"", "\"abc\""}},
		{TREE, {"{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]},{\"v\":3}]}"},
			{"{\"kids\":[]}", "{\"v\":1,\"kids\":[1]}", "{\"v\":1,\"kids\":[{}]}"}},
		{"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]"}},
		{"{\"type\":\"string\",\"format\":\"uuid\"}",
			{"\"123e4567-e89b-12d3-a456-426614174000\""},
			{"\"123e4567e89b12d3a456426614174000\"",
				"\"123e4567-e89b-12d3-a456-42661417400g\""}},
		{"{\"type\":\"string\",\"format\":\"time\"}",
			{"\"23:59:59Z\"", "\"00:00:00.25+05:30\"", "\"12:00:00-23:59\""},
			{"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\"", "\"12:00Z\"",
				"\"12:00:00+24:00\""}},
		{"{\"format\":\"date-time\"}", {"\"2024-02-29T12:00:00Z\""},
			{"\"2023-02-29T12:00:00Z\"", "\"2024-02-29 12:00:00Z\""}},
		{"{\"type\":\"integer\",\"multipleOf\":1,\"minimum\":9.5,\"exclusiveMaximum\":12}",
			{"10", "11"}, {"9", "12"}},
		{"{\"type\":\"array\",\"uniqueItems\":false,\"items\":{\"type\":\"null\"}}",
			{"[null,null]"}, {"[1]"}},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct matcher m = matcher_of(cases[i].schema);
		for (size_t k = 0; k < 9 && cases[i].accepted[k]; k++)
			cr_expect(fits(&m, cases[i].accepted[k]), "%s\nrefuses %s", cases[i].schema,
				cases[i].accepted[k]);
		for (size_t k = 0; k < 9 && cases[i].refused[k]; k++)
			cr_expect(!fits(&m, cases[i].refused[k]), "%s\naccepts %s", cases[i].schema,
				cases[i].refused[k]);
		matcher_free(&m);
	}
}

/* ---- against counting ------------------------------------------------------------------------ */

Test(schema, integer_bounds_are_exact)
{
	static const int bounds[] = {
		-1234, -100, -99, -10, -9, -1, 0, 1, 7, 10, 19, 20, 99, 101, 999, 1000, 1019};
	for (size_t a = 0; a <= ARRAY_COUNT(bounds); a++)
		for (size_t b = 0; b <= ARRAY_COUNT(bounds); b++) {
			int low = a ? bounds[a - 1] : -5000, high = b ? bounds[b - 1] : 5000;
			char schema[200], text[32];
			int n = snprintf(schema, sizeof schema, "{\"type\":\"integer\"");
			if (a)
				n += snprintf(schema + n, sizeof schema - (size_t)n,
					",\"minimum\":%d", low);
			if (b)
				n += snprintf(schema + n, sizeof schema - (size_t)n,
					b % 2 ? ",\"maximum\":%d" : ",\"exclusiveMaximum\":%d",
					b % 2 ? high : high + 1);
			snprintf(schema + n, sizeof schema - (size_t)n, "}");
			if (low > high)
				continue;
			struct matcher m = matcher_of(schema);
			for (int i = -1300; i <= 1300; i++) {
				snprintf(text, sizeof text, "%d", i);
				cr_assert_eq(
					fits(&m, text), i >= low && i <= high, "%s: %d", schema, i);
			}
			matcher_free(&m);
		}
	struct matcher m = matcher_of("{\"type\":\"integer\",\"minimum\":-999999999999999,"
				      "\"maximum\":123456789012345}");
	cr_expect(fits(&m, "123456789012345") && !fits(&m, "123456789012346"));
	cr_expect(fits(&m, "-999999999999999") && !fits(&m, "-1000000000000000"));
	matcher_free(&m);
}

Test(schema, number_bounds_are_exact)
{
	static const int bounds[] = {-100, -12, -1, 0, 1, 9, 10, 105};
	for (unsigned kind = 0; kind < 9; kind++) /* none, inclusive, exclusive, on each side */
		for (size_t a = 0; a < ARRAY_COUNT(bounds); a++)
			for (size_t b = a; b < ARRAY_COUNT(bounds); b++) {
				static const char *const lows[] = {
					"", ",\"minimum\":%d", ",\"exclusiveMinimum\":%d"};
				static const char *const highs[] = {
					"", ",\"maximum\":%d", ",\"exclusiveMaximum\":%d"};
				char schema[200], part[64], text[32];
				unsigned low = kind % 3, high = kind / 3;
				if (!kind || (a == b && (low != 1 || high != 1)) || (!low && a) ||
					(!high && b != a))
					continue;
				snprintf(schema, sizeof schema, "{\"type\":\"number\"");
				const char *const formats[] = {lows[low], highs[high]};
				for (int side = 0; side < 2; side++) {
					const char *name = strchr(formats[side], '"');
					if (!name)
						continue;
					snprintf(part, sizeof part, ",%.*s:%d",
						(int)strcspn(name, ":"), name,
						bounds[side ? b : a]);
					strcat(schema, part);
				}
				strcat(schema, "}");
				struct matcher m = matcher_of(schema);
				for (int i = -11000; i <= 11000; i += i % 100 == 0 ? 1 : 33) {
					int whole = abs(i) / 100, rest = abs(i) % 100;
					snprintf(text, sizeof text,
						rest % 10 ? "%s%d.%02d" : "%s%d.%d",
						i < 0 ? "-" : "", whole,
						rest % 10 ? rest : rest / 10);
					bool ok = true;
					if (low)
						ok = low == 1 ? i >= 100 * bounds[a]
							      : i > 100 * bounds[a];
					if (high)
						ok = ok &&
							(high == 1 ? i <= 100 * bounds[b]
								   : i < 100 * bounds[b]);
					cr_assert_eq(fits(&m, text), ok, "%s: %s", schema, text);
				}
				matcher_free(&m);
			}
}

Test(schema, dates_are_those_of_the_calendar)
{
	struct matcher m = matcher_of("{\"type\":\"string\",\"format\":\"date\"}");
	static const int years[] = {
		1000, 1600, 1700, 1896, 1900, 1904, 2000, 2023, 2024, 2100, 9996, 9999};
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	for (size_t y = 0; y < ARRAY_COUNT(years); y++)
		for (int month = 0; month <= 13; month++)
			for (int day = 0; day <= 32; day++) {
				bool leap = years[y] % 4 == 0 &&
					(years[y] % 100 != 0 || years[y] % 400 == 0);
				bool ok = month >= 1 && month <= 12 && day >= 1 &&
					day <= days[month - 1] + (leap && month == 2);
				char text[64];
				snprintf(text, sizeof text, "\"%04d-%02d-%02d\"", years[y], month,
					day);
				cr_assert_eq(fits(&m, text), ok, "%s", text);
			}
	matcher_free(&m);
}

/* Every text of up to 5 of some characters, against another engine. */
Test(schema, patterns_mean_what_pcre2_says)
{
	static const char *const patterns[] = {"^a+$", "b", "^[a-c]{2,3}$", "\\d{2}$",
		"^(a|bc)?b.1$", "^\\w+-\\w$", "[^ab]", "^\\s$", "a|^b$", "^\\S+$", "(?:a|b)*c$",
		"^[^\\d]{1,2}$", "^$", "^a{0}b", "^[\\w-]+$", "^\\D$", "^.{3}$", "^(a+|b*?)1$",
		"^(?<x>ab)+$", "[b-]$", "^\\x61\\u0062", "^\\W\\w", "^[\\s\\d]+$", "",
		"a(b(c|1)){2,}"};
	static const char alphabet[] = "abc1 -";
	for (size_t i = 0; i < ARRAY_COUNT(patterns); i++) {
		char schema[200], text[16];
		json_t *string = json_string(patterns[i]);
		char *dumped = json_dumps(string, JSON_ENCODE_ANY);
		snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":%s}", dumped);
		free(dumped);
		json_decref(string);
		struct matcher m = matcher_of(schema);
		int error;
		PCRE2_SIZE offset;
		pcre2_code *code = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED,
			PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &error, &offset, NULL);
		cr_assert_not_null(code, "%s", patterns[i]);
		pcre2_match_data *found = pcre2_match_data_create_from_pattern(code, NULL);
		unsigned n_found = 0;
		for (unsigned n = 0; n <= 5; n++) {
			unsigned n_texts = 1;
			for (unsigned k = 0; k < n; k++)
				n_texts *= 6;
			for (unsigned t = 0; t < n_texts; t++) {
				unsigned rest = t;
				text[0] = '"';
				for (unsigned k = 0; k < n; k++, rest /= 6)
					text[1 + k] = alphabet[rest % 6];
				text[1 + n] = '"';
				text[2 + n] = '\0';
				bool matches = pcre2_match(code, (PCRE2_SPTR)text + 1, n, 0, 0,
						       found, NULL) > 0;
				n_found += matches;
				cr_assert_eq(fits(&m, text), matches, "%s: %s", patterns[i], text);
			}
		}
		cr_expect(n_found > 0, "%s", patterns[i]);
		pcre2_match_data_free(found);
		pcre2_code_free(code);
		matcher_free(&m);
	}
	struct matcher m = matcher_of("{\"pattern\":\"^[\\\"\\\\\\\\\\n\\u00e0-\\u00ff]$\"}");
	cr_expect(fits(&m, "\"\\\"\"") && fits(&m, "\"\\\\\"") && fits(&m, "\"\\n\"") &&
		fits(&m, "\"é\""));
	cr_expect(!fits(&m, "\"a\"") && !fits(&m, "\"\"\"") && !fits(&m, "\"\n\""));
	matcher_free(&m);
}

/* ---- what comes out is JSON ------------------------------------------------------------------ */

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* A text drawn by the masks; what closes something is preferred after a while.  Empty: no end was found. */
static struct text draw(const struct matcher *m, uint32_t *seed)
{
	struct text text = {0};
	struct grammar_state *s;
	struct lap_error err = {0};
	cr_assert_eq(grammar_state_clone(m->start, &s, &err), LAP_OK);
	cr_assert(text_append(&text, "", 0));
	for (unsigned step = 0; step < 2000; step++) {
		uint32_t mask[(N_VOCAB + 31) / 32], n;
		cr_assert_eq(grammar_state_mask(s, mask, &n, &err), LAP_OK, "%s", err.text);
		cr_assert(n > 0, "nothing may follow %s", text.data);
		bool whole = mask[END / 32] >> (END % 32) & 1;
		if (whole && (n == 1 || next_random(seed) % 3 == 0)) {
			grammar_state_destroy(s);
			return text;
		}
		static const char closing[] = "\"}]0";
		unsigned byte = (unsigned char)closing[next_random(seed) % 4];
		if (step < 100 || !(mask[byte / 32] >> (byte % 32) & 1)) {
			uint32_t pick = next_random(seed) % (n - whole);
			for (byte = 0; !(mask[byte / 32] >> (byte % 32) & 1) || pick-- > 0;)
				byte++;
		}
		char c = (char)byte;
		cr_assert_eq(grammar_state_accept(s, (int32_t)byte, &err), LAP_OK, "%s", err.text);
		cr_assert(text_append(&text, &c, 1));
	}
	grammar_state_destroy(s);
	text.n = 0;
	return text;
}

Test(schema, every_text_is_json)
{
	static const char *const schemas[] = {"{}", TREE,
		"{\"type\":\"string\",\"pattern\":\"[^a-z]\\\\s.$\"}",
		"{\"type\":\"object\",\"properties\":{\"a\\\"b\":{\"type\":\"number\",\"minimum\":-"
		"3,"
		"\"exclusiveMaximum\":1000},\"é\":{\"format\":\"date-time\"}},\"required\":[\"é\","
		"\"q\\nx\"],"
		"\"additionalProperties\":{\"type\":[\"string\",\"integer\"]}}",
		"{\"enum\":[1e300,0.1,-0.0,\"\\u0000\\u001f\\u007f\\u2028\",{\"a\":[null]}]}"};
	uint32_t seed = 3;
	for (size_t i = 0; i < ARRAY_COUNT(schemas); i++) {
		struct matcher m = matcher_of(schemas[i]);
		unsigned n_whole = 0;
		for (unsigned k = 0; k < 60; k++) {
			struct text text = draw(&m, &seed);
			json_error_t error;
			if (text.n) {
				json_t *value = json_loadb(text.data, text.n,
					JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
					&error);
				cr_expect_not_null(value, "%s\ngives %s: %s", schemas[i], text.data,
					error.text);
				json_decref(value);
				n_whole++;
			}
			text_free(&text);
		}
		cr_expect(n_whole > 20, "%s: %u", schemas[i], n_whole);
		matcher_free(&m);
	}
}

/* ---- refusals -------------------------------------------------------------------------------- */

Test(schema, refusals_name_the_place)
{
	static const struct {
		const char *schema, *message;
	} cases[] = {
		{"", "schema, line 1, column 0: "},
		{"{\"type\":\n \"x\",}", "schema, line 2, column "},
		{"{\"a\":1,\"a\":2}", "duplicate"},
		{"3", "schema, #: is no schema, expected an object or true"},
		{"false", "schema, #: false allows nothing"},
		{"{\"type\":\"text\"}", "schema, #: \"type\" is \"text\", expected null, boolean"},
		{"{\"not\":{}}", "schema, #: the keyword \"not\" is not supported"},
		{"{\"properties\":{\"a\":{\"items\":{\"if\":{}}}}}",
			"schema, #/properties/a/items: the keyword \"if\" is not supported"},
		{"{\"type\":\"object\",\"patternProperties\":{}}",
			"\"patternProperties\" is not supported"},
		{"{\"type\":\"object\",\"minProperties\":1}", "\"minProperties\" above the number"},
		{"{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\" is not supported"},
		{"{\"type\":\"array\",\"contains\":{}}", "\"contains\" is not supported"},
		{"{\"type\":\"integer\",\"multipleOf\":3}", "\"multipleOf\" is not supported"},
		{"{\"type\":\"number\",\"minimum\":0.5}",
			"a bound of a \"number\" is 0.5, expected a whole number"},
		{"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no integer is within"},
		{"{\"type\":\"number\",\"exclusiveMinimum\":3,\"maximum\":3}",
			"no number is within"},
		{"{\"type\":\"integer\",\"minimum\":1e18}",
			"\"minimum\" is 1e+18, expected a number below 1e15"},
		{"{\"type\":\"string\",\"format\":\"email\"}",
			"\"format\" is \"email\", expected date, time"},
		{"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}",
			"expects at least 3 and at most 2 characters"},
		{"{\"type\":\"string\",\"minLength\":-1}", "\"minLength\" is no count"},
		{"{\"type\":\"string\",\"minLength\":100000}", "\"minLength\" is above 65536"},
		{"{\"pattern\":\"a\",\"minLength\":1}",
			"\"pattern\" together with \"minLength\" is not supported"},
		{"{\"pattern\":\"(?=a)\"}",
			"schema, #: \"pattern\": groups that look ahead or behind are not "
			"supported (at byte 2)"},
		{"{\"pattern\":\"(a)\\\\1\"}", "the escape \\1 is not supported"},
		{"{\"pattern\":\"\\\\bword\"}", "the escape \\b is not supported"},
		{"{\"pattern\":\"a^\"}", "a ^ that is not at the end"},
		{"{\"pattern\":\"(a\"}", "a group without )"},
		{"{\"pattern\":\"a)\"}", "a ) without ("},
		{"{\"pattern\":\"*\"}", "a repetition of nothing"},
		{"{\"pattern\":\"[a\"}", "a class without ]"},
		{"{\"pattern\":\"[b-a]\"}", "a range without two ends"},
		{"{\"$ref\":\"other.json\"}",
			"\"$ref\" is \"other.json\", expected #/... within the schema"},
		{"{\"$ref\":\"#/$defs/x\"}", "\"$ref\": there is nothing at #/$defs/x"},
		{"{\"$ref\":\"#\"}", "root matches no text"},
		{"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "is left-recursive"},
		{"{\"allOf\":[{\"$ref\":\"#\"}]}", "it refers to itself"},
		{"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
			"root matches no text"},
		{"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
			"\"oneOf\": its schemas 0 and 1 may both fit"},
		{"{\"anyOf\":[false]}", "\"anyOf\" allows nothing"},
		{"{\"anyOf\":{}}", "\"anyOf\" is no array of schemas"},
		{"{\"enum\":[1],\"type\":\"string\"}", "\"enum\" allows no value"},
		{"{\"enum\":[1],\"minimum\":0}",
			"\"enum\" together with \"minimum\" is not supported"},
		{"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}",
			"no type fits all schemas"},
		{"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
			"\"allOf\": the keyword \"pattern\" stands in several schemas"},
		{"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{"
		 "\"properties\":{"
		 "\"b\":{}}}]}",
			"\"additionalProperties\" of one schema forbids or limits the property "
			"\"b\""},
		{"{\"properties\":{\"a\":false},\"required\":[\"a\"]}",
			"the property \"a\" is required and never"},
		{"{\"items\":false,\"minItems\":1}", "expects 1 items and allows 0"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_error err = {0};
		struct grammar *g;
		cr_expect_eq(
			schema_to_grammar(cases[i].schema, strlen(cases[i].schema), NULL, &g, &err),
			LAP_USAGE, "%s", cases[i].schema);
		cr_expect_null(g);
		cr_expect(strstr(err.text, cases[i].message), "%s\nfound    %s\nexpected %s",
			cases[i].schema, err.text, cases[i].message);
		cr_expect(!strchr(err.text, '\n'));
	}
	struct text deep = {0};
	for (unsigned i = 0; i < 1000; i++)
		text_printf(&deep, "{\"items\":");
	text_printf(&deep, "true");
	for (unsigned i = 0; i < 1000; i++)
		text_printf(&deep, "}");
	struct lap_error err = {0};
	struct text gbnf = {0};
	cr_expect_eq(schema_to_gbnf(deep.data, deep.n, &gbnf, &err), LAP_USAGE);
	cr_expect(strstr(err.text, "schemas nest deeper than 64"), "%s", err.text);
	cr_expect_eq(gbnf.n, 0);
	text_free(&deep);
}
