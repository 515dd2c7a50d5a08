/* The command line: every row of options.def in every spelling, and what is said about mistakes. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "foreign.h"
#include "options.h"
#include "sampler_chain.h"
#include "sampling.h"
#include "support.h"

enum kind { FLAG, TEXT, INTEGER, NUMBER, CHOICE, IDS, TEXTS };
enum {
#define COMMAND(id, letter, arguments, help) letter = 1u << COMMAND_##id,
#include "options.def"
};

static const char *const commands[] = {
#define COMMAND(id, letter, arguments, help) #id,
#include "options.def"
};

static const struct row {
	const char *field;
	enum kind kind;
	const char *names, *value;
	unsigned commands;
	size_t offset;
	double from;
	const char *group;
} rows[] = {
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help) \
	{#field, kind, names, value, commands, offsetof(struct options, field), from, #group},
#include "options.def"
};

/* A value that each kind accepts and no default equals. */
static const char *const samples[] = {
	[FLAG] = NULL,
	[TEXT] = "some text",
	[INTEGER] = "7",
	[NUMBER] = NULL, /* 0.5, or where that is too small a little more than the smallest */
	[CHOICE] = NULL, /* the second word */
	[IDS] = "3,1,2",
	[TEXTS] = "a.b=int:1",
};

enum { MAX_ARGUMENTS = 32 };

/* Parses the words of `line`; a word "_" stands for an empty argument. */
static enum lap_status parse_line(const char *line, struct options *o, struct lap_error *err)
{
	static char words[16][512];
	static unsigned turn;
	char *copy = words[turn++ % 16];
	snprintf(copy, sizeof words[0], "%s", line);
	char *argv[MAX_ARGUMENTS + 1] = {"lapilli"}, *rest = NULL;
	int argc = 1;
	for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
		cr_assert(argc < MAX_ARGUMENTS);
		argv[argc++] = strcmp(w, "_") == 0 ? "" : w;
	}
	return options_parse(argc, argv, o, err);
}

/* A name may be that of several rows, if no command takes two of them. */
static bool has_name(const struct row *row, const char *bare)
{
	for (const char *at = row->names; *at; at += strspn(at, " |")) {
		at += strspn(at, "-");
		size_t n = strcspn(at, " |");
		if (n == strlen(bare) && !strncmp(at, bare, n))
			return true;
		at += n;
	}
	return false;
}

static unsigned takers_of(const char *bare)
{
	unsigned commands_with = 0;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
		if (has_name(&rows[i], bare))
			commands_with |= rows[i].commands;
	return commands_with;
}

static double sample_number(const struct row *row)
{
	return row->from > 0.5 ? row->from + 0.5 : 0.5;
}

static void write_sample(const struct row *row, char sample[32])
{
	if (row->kind == NUMBER)
		snprintf(sample, 32, "%g", sample_number(row));
	else if (row->kind == CHOICE) {
		const char *second = strchr(row->value, '|') + 1;
		snprintf(sample, 32, "%.*s", (int)strcspn(second, "|"), second);
	} else
		snprintf(sample, 32, "%s", samples[row->kind] ? samples[row->kind] : "");
}

static void expect_value(const struct row *row, const struct options *o, bool on, const char *how)
{
	const void *field = (const char *)o + row->offset;
	const struct id_list *ids = field;
	const struct text_list *texts = field;
	bool right = false;
	switch (row->kind) {
	case FLAG:
		right = *(const bool *)field == on;
		break;
	case TEXT:
		right = strcmp(*(const char *const *)field, samples[TEXT]) == 0;
		break;
	case INTEGER:
		right = *(const int64_t *)field == 7;
		break;
	case NUMBER:
		right = *(const double *)field == sample_number(row);
		break;
	case CHOICE:
		right = *(const int *)field == 1;
		break;
	case IDS:
		right = ids->n == 3 && ids->ids[0] == 3 && ids->ids[1] == 1 && ids->ids[2] == 2;
		break;
	case TEXTS:
		right = texts->n == 1 && strcmp(texts->texts[0], samples[TEXTS]) == 0;
		break;
	}
	cr_expect(right, "%s: %s has the wrong value", how, row->field);
}

/* One spelling of one option, given to one command. */
static void try_spelling(
	const struct row *row, unsigned command, const char *name, bool on, bool joined)
{
	char argument[128], sample[32];
	write_sample(row, sample);
	snprintf(
		argument, sizeof argument, "%s%s%s", name, joined ? "=" : "", joined ? sample : "");
	char program[] = "lapilli", word[32];
	snprintf(word, sizeof word, "%s", commands[command]);
	char *argv[] = {program, word, argument, row->kind == FLAG || joined ? NULL : sample, NULL};
	int argc = argv[3] ? 4 : 3;
	struct options o;
	struct lap_error err;
	enum lap_status status = options_parse(argc, argv, &o, &err);
	if (row->commands & 1u << command) {
		cr_expect(!status, "%s %s: %s", word, argument, err.text);
		if (!status)
			expect_value(row, &o, on, argument);
	} else {
		cr_expect_eq(status, LAP_USAGE, "%s takes %s", word, argument);
		cr_expect(status && strstr(err.text, "is no option of"), "%s", err.text);
	}
	options_release(&o);
}

/* Each name with one dash and two, with '_', with its value behind it and behind '=', in each command:
 * taken by the commands of its row, refused by the others. */
Test(options, every_spelling_of_every_row)
{
	unsigned n = 0;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		char names[256];
		snprintf(names, sizeof names, "%s", rows[i].names);
		bool on = true;
		char *rest = NULL;
		for (char *name = strtok_r(names, " ", &rest); name;
			name = strtok_r(NULL, " ", &rest)) {
			if (strcmp(name, "|") == 0) {
				on = false;
				continue;
			}
			const char *bare = name + strspn(name, "-");
			for (int form = 0; form < 4; form++) {
				char spelled[128];
				snprintf(spelled, sizeof spelled, "%s%s", form & 1 ? "--" : "-",
					bare);
				if (form & 1 && !bare[1])
					continue; /* one letter takes one dash */
				if (form & 2 && !strchr(bare, '-'))
					continue;
				for (char *c = spelled + 2; form & 2 && *c; c++)
					*c = *c == '-' ? '_' : *c;
				for (unsigned c = 0; c < N_COMMANDS; c++) {
					if (!(rows[i].commands & 1u << c) &&
						takers_of(bare) & 1u << c)
						continue; /* as another row's */
					try_spelling(&rows[i], c, spelled, on, false);
					if (rows[i].kind != FLAG)
						try_spelling(&rows[i], c, spelled, on, true);
					n++;
				}
			}
		}
	}
	cr_expect_gt(n, 500);
}

Test(options, names_are_unique)
{
	size_t n = 0;
	static char names[ARRAY_COUNT(rows)][256];
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		snprintf(names[i], sizeof names[i], "%s", rows[i].names);
		char *rest = NULL;
		for (char *w = strtok_r(names[i], " |", &rest); w;
			w = strtok_r(NULL, " |", &rest), n++) {
			w += strspn(w, "-");
			for (size_t k = 0; k < i; k++)
				cr_expect(!(rows[k].commands & rows[i].commands) ||
						!has_name(&rows[k], w),
					"%s is %s and %s", w, rows[k].field, rows[i].field);
		}
	}
	cr_expect_gt(n, 100);
}

Test(options, defaults_are_the_library_s)
{
	struct options o;
	cr_assert_eq(parse_line("", &o, NULL), LAP_OK);
	struct lap_sampling s = lap_sampling_default();
	cr_expect_eq((float)o.temperature, s.temperature);
	cr_expect_eq((int32_t)o.top_k, s.top_k);
	cr_expect_eq((float)o.top_p, s.top_p);
	cr_expect_eq((float)o.min_p, s.min_p);
	cr_expect_eq((float)o.repeat_penalty, s.repeat_penalty);
	cr_expect_eq((float)o.presence_penalty, s.presence_penalty);
	cr_expect_eq((float)o.frequency_penalty, s.frequency_penalty);
	cr_expect_eq((int32_t)o.repeat_last_n, s.repeat_last_n);
	cr_expect_eq(o.seed, -1);
	cr_expect_eq(s.seed, LAP_SEED_RANDOM);
	cr_expect_eq((float)o.typical_p, s.typical_p);
	cr_expect_eq(o.top_n_sigma, -1); /* off, as the library's 0 */
	cr_expect_eq(s.top_n_sigma, 0);
	cr_expect_eq((float)o.xtc_probability, s.xtc_probability);
	cr_expect_eq((float)o.xtc_threshold, s.xtc_threshold);
	cr_expect_eq((float)o.dry_multiplier, s.dry_multiplier);
	cr_expect_eq((float)o.dry_base, s.dry_base);
	cr_expect_eq((uint32_t)o.dry_allowed_length, s.dry_allowed_length);
	cr_expect_eq((int32_t)o.dry_penalty_last_n, s.dry_penalty_last_n);
	cr_expect_eq(o.mirostat, 0);
	cr_expect_eq((float)o.mirostat_tau, s.mirostat_tau);
	cr_expect_eq((float)o.mirostat_eta, s.mirostat_eta);
	cr_expect_eq((float)o.dynatemp_range, s.dynatemp_range);
	cr_expect_eq((float)o.dynatemp_exponent, s.dynatemp_exponent);
	cr_expect_null(o.samplers);
	cr_expect_eq(o.type_k, LAP_KV_F16);
	cr_expect_eq(o.activations, LAP_ACTIVATIONS_F32);
	cr_expect_eq(o.n_predict, -1);
	cr_expect_eq(o.command, COMMAND_generate);
	cr_expect(!o.command_named);
}

/* What the parser lets through, the sampler takes: the ends of each range. */
Test(options, ranges_are_the_library_s)
{
	static const struct {
		size_t offset;
		double from, to;
	} ends[] = {
#define OPTION(field, kind, names, value, initial, from, to, commands, group, help) \
	{kind == NUMBER ? offsetof(struct options, field) : 0, from, to},
#include "options.def"
	};
	size_t n = 0;
	for (size_t i = 0; i < 2 * ARRAY_COUNT(ends); i++) {
		struct options o;
		struct lap_error err = {0};
		if (!ends[i / 2].offset)
			continue;
		cr_assert_eq(parse_line("", &o, NULL), LAP_OK);
		double *field = (double *)(void *)((char *)&o + ends[i / 2].offset);
		*field = i % 2 ? ends[i / 2].to : ends[i / 2].from;
		struct sampling s;
		struct sampler_chain *chain;
		cr_assert_eq(sampling_from_options(&o, &s, &err), LAP_OK, "%s", err.text);
		s.p.seed = 0;
		cr_expect_eq(
			sampler_chain_create(&s.p, 100, 64, &chain, &err), LAP_OK, "%s", err.text);
		sampler_chain_destroy(chain);
		sampling_release(&s);
		n++;
	}
	cr_expect_eq(n, 36);
}

Test(options, samplers)
{
	struct options o;
	struct sampling s;
	struct lap_error err = {0};
	cr_assert_eq(
		parse_line("--samplers llama.cpp --mirostat 2 --mirostat-ent 3 --mirostat-lr 0.2 "
			   "--typical 0.9 --top-nsigma 2 --xtc-probability 0.5 --dynatemp-range "
			   "0.25 --dry-multiplier 0.8 -l 7+1.5 --logit-bias 0-2e1 -l 9-inf",
			&o, NULL),
		LAP_OK);
	cr_assert_eq(sampling_from_options(&o, &s, &err), LAP_OK, "%s", err.text);
	cr_expect_str_eq(s.p.samplers, "llama.cpp");
	cr_expect_eq(s.p.mirostat, 2);
	cr_expect_eq(s.p.mirostat_tau, 3);
	cr_expect_eq(s.p.mirostat_eta, 0.2f);
	cr_expect_eq(s.p.typical_p, 0.9f);
	cr_expect_eq(s.p.top_n_sigma, 2);
	cr_expect_eq(s.p.xtc_probability, 0.5f);
	cr_expect_eq(s.p.xtc_threshold, 0.1f);
	cr_expect_eq(s.p.dynatemp_range, 0.25f);
	cr_expect_eq(s.p.dry_multiplier, 0.8f);
	cr_expect_null(s.p.dry_breakers);
	cr_assert_eq(s.p.n_logit_bias, 3);
	static const struct lap_logit_bias expected[] = {{7, 1.5f}, {0, -20}, {9, -INFINITY}};
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(s.p.logit_bias[i].token, expected[i].token);
		cr_expect_eq(s.p.logit_bias[i].bias, expected[i].bias);
	}
	sampling_release(&s);
	options_release(&o);
}

Test(options, logit_bias_is_refused)
{
	static const char *const bad[] = {"5", "5+", "+1", "5+x", "5+inf", "5-nan", "5+1x", "x+1",
		"-1+1", "5++1", "5-+1", "5+0x10", "5-infinity", "2147483648+1",
		"99999999999999999999+1", "5 +1", "5+1e99"};
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
		const char *text = bad[i];
		struct options o = {.logit_bias = {&text, 1}};
		struct sampling s;
		struct lap_error err = {0};
		cr_expect_eq(sampling_from_options(&o, &s, &err), LAP_USAGE, "%s", bad[i]);
		cr_expect(strstr(err.text, bad[i]) && strstr(err.text, "expected"), "%s", err.text);
		sampling_release(&s);
	}
}

Test(options, dry_breakers)
{
	const char *texts[] = {"\\n", "a\\x41"}, *none[] = {"none"};
	for (int escape = 0; escape < 2; escape++) {
		struct options o = {.dry_breakers = {texts, 2}, .escape = escape};
		struct sampling s;
		struct lap_error err = {0};
		cr_assert_eq(sampling_from_options(&o, &s, &err), LAP_OK, "%s", err.text);
		cr_assert_eq(s.p.n_dry_breakers, 2);
		cr_expect_str_eq(s.p.dry_breakers[0], escape ? "\n" : "\\n");
		cr_expect_str_eq(s.p.dry_breakers[1], escape ? "aA" : "a\\x41");
		sampling_release(&s);
		o.dry_breakers = (struct text_list){none, 1};
		cr_assert_eq(sampling_from_options(&o, &s, &err), LAP_OK, "%s", err.text);
		cr_expect_eq(s.p.n_dry_breakers, 0);
		cr_expect_not_null(s.p.dry_breakers);
		sampling_release(&s);
	}
}

Test(options, command_word)
{
	struct options o;
	for (unsigned c = 0; c < N_COMMANDS; c++) {
		cr_assert_eq(parse_line(commands[c], &o, NULL), LAP_OK);
		cr_expect_eq(o.command, c);
		cr_expect(o.command_named);
	}
	cr_assert_eq(parse_line("-m x.gguf -p hello", &o, NULL), LAP_OK);
	cr_expect_eq(o.command, COMMAND_generate);
	cr_expect_str_eq(o.model, "x.gguf");
	cr_expect_str_eq(o.prompt, "hello");
	options_release(&o);
}

Test(options, accepted_values)
{
	struct options o;
	struct lap_error err;
	cr_assert_eq(parse_line("-n -1 -s -1 --top-k=-1 --repeat-last-n -1", &o, &err), LAP_OK);
	cr_expect_eq(o.n_predict, -1);
	cr_expect_eq(o.top_k, -1);
	cr_expect_eq(o.seed, -1);
	options_release(&o);
	cr_assert_eq(parse_line("-s 9007199254740991 -n 2147483647", &o, &err), LAP_OK);
	cr_expect_eq(o.seed, 9007199254740991);
	cr_expect_eq(o.n_predict, INT32_MAX);
	options_release(&o);
	cr_assert_eq(parse_line("--temp 5e-1 -s 0 --presence-penalty 1.5", &o, &err), LAP_OK);
	cr_expect_eq(o.temperature, 0.5);
	cr_expect_eq(o.seed, 0);
	cr_expect_eq(o.presence_penalty, 1.5);
	/* an argument that looks like an option is a value where one is due */
	options_release(&o);
	cr_assert_eq(parse_line("-p --temp -p=a=b", &o, &err), LAP_OK);
	cr_expect_str_eq(o.prompt, "a=b");
	options_release(&o);
	cr_assert_eq(parse_line("-p -- -f -", &o, &err), LAP_OK);
	cr_expect_str_eq(o.prompt, "--");
	cr_expect_str_eq(o.file, "-");
	options_release(&o);
	cr_assert_eq(parse_line("-p _ --", &o, &err), LAP_OK);
	cr_expect_str_eq(o.prompt, "");
	options_release(&o);
	cr_assert_eq(parse_line("-p= -n 1 -n 2", &o, &err), LAP_OK);
	cr_expect_str_eq(o.prompt, "");
	cr_expect_eq(o.n_predict, 2, "the last counts");
	options_release(&o);
	cr_assert_eq(parse_line("--no-display-prompt --display-prompt", &o, &err), LAP_OK);
	cr_expect(o.display_prompt);
	options_release(&o);
	cr_assert_eq(parse_line("--display-prompt --no-display-prompt", &o, &err), LAP_OK);
	cr_expect(!o.display_prompt);
	options_release(&o);
}

static void expect_ids(const char *text, size_t n, const int32_t *ids)
{
	char program[] = "lapilli", command[] = "logits", name[] = "--tokens", copy[64];
	snprintf(copy, sizeof copy, "%s", text);
	char *argv[] = {program, command, name, copy, NULL};
	struct options o;
	struct lap_error err;
	cr_assert_eq(options_parse(4, argv, &o, &err), LAP_OK, "\"%s\": %s", text, err.text);
	cr_expect(o.tokens.ids != NULL);
	cr_expect(o.tokens.n == n && (n == 0 || !memcmp(o.tokens.ids, ids, n * sizeof *ids)),
		"\"%s\" gives %zu ids", text, o.tokens.n);
	options_release(&o);
	cr_expect(!o.tokens.ids && !o.tokens.n);
}

Test(options, a_list_gathers_all_its_values)
{
	struct options o;
	struct lap_error err;
	cr_assert_eq(parse_line("generate --override-kv a=int:1 -n 3 --override-kv=b=str:x=y:z", &o,
			     &err),
		LAP_OK, "%s", err.text);
	cr_assert_eq(o.override_kv.n, 2);
	cr_expect_str_eq(o.override_kv.texts[0], "a=int:1");
	cr_expect_str_eq(o.override_kv.texts[1], "b=str:x=y:z");
	options_release(&o);
	cr_expect_null(o.override_kv.texts);
}

Test(options, lists_of_ids)
{
	const int32_t ids[] = {1, 22, 2147483647};
	expect_ids("1,22,2147483647", 3, ids);
	expect_ids("1 22 2147483647", 3, ids);
	expect_ids(" [1, 22,\t2147483647] \n", 3, ids);
	expect_ids("1", 1, ids);
	expect_ids("", 0, NULL);
	expect_ids("[]", 0, NULL);
	static const char *const wrong[] = {"1,,2", "1,", ",1", "-1", "1,-2", "2147483648", "x",
		"1;2", "[1,2", "1,2]", "[1,]", "1.5", "1x", "99999999999999999999", "[[1]]"};
	for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
		char line[64];
		struct options o;
		struct lap_error err;
		snprintf(line, sizeof line, "tokenize --decode=%s", wrong[i]);
		cr_expect_eq(parse_line(line, &o, &err), LAP_USAGE, "accepts %s", wrong[i]);
		cr_expect(strstr(err.text, "--decode: found \""), "%s", err.text);
	}
}

/* Every refusal names the argument, and what was expected in its place. */
Test(options, mistakes)
{
	static const struct {
		const char *line, *argument, *expected;
	} cases[] = {
		{"--tempp 1", "--tempp", "nearest is --temp "},
		{"-temprature 1", "-temprature", "nearest is --temperature "},
		{"--top-q 1", "--top-q", "nearest is --top-"},
		{"--repaet-penalty 1", "--repaet-penalty", "nearest is --repeat-penalty "},
		{"--repeat 1", "--repeat", "nearest is --repeat-penalty "},
		{"--pred 1", "--pred", "nearest is --predict "},
		{"--m x", "--m", "nearest is -m "},
		{"---model x", "---model", "nearest is --model "},
		{"tokenize --idz", "--idz", "nearest is --ids "},
		{"--xyz=3", "--xyz=3", "unknown option"},
		{"-n", "-n", "needs a value: -n N"},
		{"-m x --temp", "--temp", "needs a value: --temp X"},
		{"-n -3", "-n: found \"-3\"", "a whole number from -2 to 2147483647"},
		{"-n -4", "-n: found \"-4\"", "a whole number from -2 to 2147483647"},
		{"--n_predict=1.5", "--n_predict: found \"1.5\"", "a whole number from -2"},
		{"-n 2147483648", "found \"2147483648\"", "to 2147483647"},
		{"-n 99999999999999999999", "found \"99999999999999999999\"", "to 2147483647"},
		{"-n _", "-n: found \"\"", "a whole number"},
		{"-n 1x", "-n: found \"1x\"", "a whole number"},
		{"-n +-1", "-n: found \"+-1\"", "a whole number"},
		{"-b 0", "-b: found \"0\"", "from 1 to"},
		{"-c -1", "-c: found \"-1\"", "from 0 to"},
		{"--temp -0.1", "--temp: found \"-0.1\"", "a number from 0 to 1000"},
		{"--temp 0,5", "--temp: found \"0,5\"", "a number from 0 to 1000"},
		{"--temp nan", "--temp: found \"nan\"", "a number from 0 to 1000"},
		{"--temp inf", "--temp: found \"inf\"", "a number from 0 to 1000"},
		{"--temp 0x1", "--temp: found \"0x1\"", "a number from 0 to 1000"},
		{"--temp 1e999", "--temp: found \"1e999\"", "a number from 0 to 1000"},
		{"--temp .", "--temp: found \".\"", "a number from 0 to 1000"},
		{"--temp=", "--temp: found \"\"", "a number from 0 to 1000"},
		{"--top-p 1.01", "--top-p: found \"1.01\"", "a number from 0 to 1"},
		{"--repeat-penalty 0", "--repeat-penalty: found \"0\"", "from 0.01 to 100"},
		{"-s -2", "-s: found \"-2\"", "from -1 to 9007199254740991"},
		{"-s 9007199254740992", "-s: found", "to 9007199254740991"},
		{"-ctk q9_0", "-ctk: found \"q9_0\"", "expected f16|f32|q8_0|q4_0"},
		{"-ctv f", "-ctv: found \"f\"", "expected f16|f32"},
		{"--json=1", "--json takes no value", "found \"1\""},
		{"--ids", "--ids is no option of generate", "but of tokenize"},
		{"tokenize -n 3", "-n is no option of tokenize", "but of generate"},
		{"devices -m x", "-m is no option of devices",
			"generate, chat, logits, tokenize, template, info"},
		{"genrate", "unknown command genrate", "nearest is generate"},
		{"hello", "unexpected argument \"hello\"", "behind -p"},
		{"-m x generate", "generate", "the command goes before"},
		{"generate logits", "logits", "the command goes before"},
		{"-- -n", "unexpected argument \"-n\"", "behind -p"},
		{"-", "unexpected argument \"-\"", "behind -p"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct options o;
		struct lap_error err = {0};
		cr_expect_eq(parse_line(cases[i].line, &o, &err), LAP_USAGE, "accepted: %s",
			cases[i].line);
		cr_expect_eq(err.status, LAP_USAGE);
		cr_expect(strstr(err.text, cases[i].argument), "%s: %s", cases[i].line, err.text);
		cr_expect(strstr(err.text, cases[i].expected), "%s: %s", cases[i].line, err.text);
		cr_expect(!strchr(err.text, '\n'), "%s: more than one line", cases[i].line);
	}
}

/* ---- the environment ------------------------------------------------------------------------- */

/* Each long name of each row as a variable, for a command that takes it; tasks have none. */
Test(options, variables_stand_for_options)
{
	unsigned n = 0;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		char names[256], sample[32], variable[128], word[64], *rest = NULL;
		const bool none = !strcmp(rows[i].group, "task") ||
			!strcmp(rows[i].field, "help") || !strcmp(rows[i].field, "version") ||
			!strcmp(rows[i].field, "list_devices");
		unsigned command = 0;
		while (!(rows[i].commands & 1u << command))
			command++;
		snprintf(names, sizeof names, "%s", rows[i].names);
		bool on = true;
		for (char *name = strtok_r(names, " ", &rest); name;
			name = strtok_r(NULL, " ", &rest)) {
			on = on && strcmp(name, "|") != 0;
			if (strncmp(name, "--", 2) != 0)
				continue;
			snprintf(variable, sizeof variable, "LAPILLI_%s", name + 2);
			for (char *c = variable; *c; c++)
				*c = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
			write_sample(&rows[i], sample);
			setenv(variable, rows[i].kind == FLAG ? "on" : sample, 1);
			snprintf(word, sizeof word, "%s", commands[command]);
			char program[] = "lapilli", *argv[] = {program, word, NULL};
			struct options o, plain;
			struct lap_error err;
			cr_assert_eq(options_parse(2, argv, &o, &err), LAP_OK, "%s: %s", variable,
				err.text);
			unsetenv(variable);
			cr_assert_eq(options_parse(2, argv, &plain, &err), LAP_OK);
			if (none)
				cr_expect(!memcmp((char *)&o + rows[i].offset,
						  (char *)&plain + rows[i].offset, sizeof(bool)),
					"%s is read", variable);
			else
				expect_value(&rows[i], &o, on, variable);
			options_release(&o);
			options_release(&plain);
			n++;
		}
	}
	cr_expect_gt(n, 80);
}

/* The command line goes before; a command passes over what it does not take; mistakes name the variable. */
Test(options, variables_give_way)
{
	struct options o;
	struct lap_error err;
	setenv("LAPILLI_TEMP", "0.25", 1);
	setenv("LAPILLI_STOP", "a", 1);
	setenv("LAPILLI_NO_DISPLAY_PROMPT", "on", 1);
	setenv("LAPILLI_TOP_K", "", 1);
	cr_assert_eq(parse_line("-n 1", &o, &err), LAP_OK, "%s", err.text);
	cr_expect(o.temperature == 0.25 && o.stop.n == 1 && !o.display_prompt && o.top_k == 40);
	options_release(&o);
	cr_assert_eq(parse_line("--temp 2 --stop b --stop c", &o, &err), LAP_OK, "%s", err.text);
	cr_expect(o.temperature == 2 && o.stop.n == 2 && !strcmp(o.stop.texts[0], "b"));
	options_release(&o);
	setenv("LAPILLI_TEMP", "hot", 1);
	cr_assert_eq(parse_line("tokenize -p a", &o, &err), LAP_OK, "%s", err.text);
	options_release(&o);
	cr_expect_eq(parse_line("-n 1", &o, &err), LAP_USAGE);
	cr_expect_str_eq(err.text, "LAPILLI_TEMP: found \"hot\", expected a number from 0 to 1000");
	setenv("LAPILLI_TEMP", "", 1);
	setenv("LAPILLI_IGNORE_EOS", "maybe", 1);
	cr_expect_eq(parse_line("-n 1", &o, &err), LAP_USAGE);
	cr_expect_str_eq(err.text, "LAPILLI_IGNORE_EOS: found \"maybe\", expected on or off");
}

/* ---- options of llama.cpp -------------------------------------------------------------------- */

Test(options, options_without_a_meaning_are_taken)
{
	static const char line[] =
		"-m x.gguf -p a -n 64 -ngl 99 -t 8 --threads=4 -fa -c 100 --flash-attn "
		"on --no-mmap --mlock -ub 256 --split_mode layer --temp 0";
	static const char *const warned[] = {"-ngl means nothing here: the whole model", "-t means",
		"--threads means", "-fa means", "--flash-attn means", "--no-mmap means",
		"--mlock means", "-ub means", "--split_mode means"};
	struct options o;
	struct lap_error err;
	cr_assert_eq(parse_line(line, &o, &err), LAP_OK, "%s", err.text);
	cr_expect(o.n_predict == 64 && o.n_ctx == 100 && o.temperature == 0);
	const char *at = o.warnings.data;
	for (size_t i = 0; i < ARRAY_COUNT(warned); i++) {
		cr_assert(at && !strncmp(at, warned[i], strlen(warned[i])), "%s is not at: %s",
			warned[i], at);
		at = strchr(at, '\n') + 1;
	}
	cr_expect_str_eq(at, "");
	options_release(&o);
	cr_assert_eq(parse_line("bench -ngl 99 -fa 1 -p 4", &o, &err), LAP_OK, "%s", err.text);
	options_release(&o);
	cr_expect_eq(parse_line("tokenize -ngl 99", &o, &err), LAP_USAGE);
}

Test(options, options_that_would_change_the_text_are_refused)
{
	static const char *const cases[][2] = {
		{"--lora x", "--lora is an option of llama.cpp that is not there: adapters"},
		{"--mmproj=x", "--mmproj is an option of llama.cpp that is not there: models read"},
		{"--rope_freq_base 1e6", "--override-kv changes"},
		{"--in-prefix a", "a chat template frames messages"},
		{"chat --chat-template chatml", "--chat-template-file FILE gives one"},
		{"-i", "lapilli chat is the conversation"},
		{"--context-shift", "--context-overflow shift does that"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct options o;
		struct lap_error err;
		cr_expect_eq(parse_line(cases[i][0], &o, &err), LAP_USAGE, "%s", cases[i][0]);
		cr_expect(strstr(err.text, cases[i][1]), "%s", err.text);
	}
}

/* A name of ours is never taken for one of theirs. */
Test(options, foreign_names_are_not_ours)
{
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		char names[256], *rest = NULL;
		if (!(rows[i].commands & (G | C | B)))
			continue;
		snprintf(names, sizeof names, "%s", rows[i].names);
		for (char *w = strtok_r(names, " |", &rest); w; w = strtok_r(NULL, " |", &rest))
			cr_expect(!foreign_find(w + strspn(w, "-")), "%s", w);
	}
}

Test(options, very_long_argument)
{
	char *argument = malloc(100001), program[] = "lapilli";
	cr_assert(argument);
	memset(argument, 'a', 100000);
	argument[0] = argument[1] = '-';
	argument[100000] = '\0';
	char *argv[] = {program, argument, NULL};
	struct options o;
	struct lap_error err;
	cr_expect_eq(options_parse(2, argv, &o, &err), LAP_USAGE);
	argv[1] = argument + 2;
	cr_expect_eq(options_parse(2, argv, &o, &err), LAP_USAGE);
	free(argument);
}

static char *help_of(const char *line)
{
	struct options o;
	cr_assert_eq(parse_line(line, &o, NULL), LAP_OK);
	char *page;
	size_t n;
	FILE *out = open_memstream(&page, &n);
	options_help(&o, out);
	fclose(out);
	return page;
}

/* True when the word stands in the text with no name's character at either end. */
static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
		char before = at == text ? ' ' : at[-1], behind = at[n];
		if (!strchr("-_abcdefghijklmnopqrstuvwxyz", before) &&
			(!behind || !strchr("-_abcdefghijklmnopqrstuvwxyz", behind)))
			return true;
	}
	return false;
}

static void expect_names(const char *text, const struct row *row, const char *where)
{
	char names[256], *rest = NULL;
	snprintf(names, sizeof names, "%s", row->names);
	for (char *w = strtok_r(names, " |", &rest); w; w = strtok_r(NULL, " |", &rest))
		cr_expect(has_word(text, w), "%s does not show %s", where, w);
}

Test(options, help_shows_the_options_of_its_command)
{
	for (unsigned c = 0; c < N_COMMANDS; c++) {
		char line[64];
		snprintf(line, sizeof line, "%s --help", commands[c]);
		char *page = help_of(line);
		cr_expect(strstr(page, "130  interrupted"), "%s: no exit status", line);
		for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
			char last[256]; /* the long name, as the page starts or goes on with it */
			const char *space = strrchr(rows[i].names, ' ');
			snprintf(last, sizeof last, "%s", space ? space + 1 : rows[i].names);
			if (rows[i].commands & 1u << c)
				expect_names(page, &rows[i], line);
			else if (!(takers_of(last + strspn(last, "-")) & 1u << c) &&
				strcmp(last, "--help") != 0 && strcmp(last, "--json") != 0 &&
				strcmp(last, "--decode") != 0 && strcmp(last, "--device") != 0)
				cr_expect(!has_word(page, last), "%s shows %s", line, last);
		}
		for (const char *s = page; *s; s += strcspn(s, "\n") + 1)
			cr_expect_leq(strcspn(s, "\n"), 108, "%s: %.*s", line, 30, s);
		free(page);
	}
}

Test(options, help_of_the_program)
{
	char *page = help_of("--help");
	for (unsigned c = 0; c < N_COMMANDS; c++)
		cr_expect(has_word(page, commands[c]), "no %s", commands[c]);
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
		if (rows[i].commands & G)
			expect_names(page, &rows[i], "--help");
	cr_expect(strstr(page, "--top-k N"));
	cr_expect(strstr(page, "(default 0.95)"));
	cr_expect(strstr(page, "(default f16)"));
	free(page);
}

/* The README has a row for each command, with options that the command takes. */
Test(options, readme_shows_the_commands)
{
	char *readme = read_text(source_path("README.md"), NULL);
	size_t n_options = 0;
	for (unsigned c = 0; c < N_COMMANDS; c++) {
		char start[64];
		snprintf(start, sizeof start, "\n| `lapilli %s` |", commands[c]);
		char *line = strstr(readme, start);
		cr_assert(line, "README.md has no row for %s", commands[c]);
		line = strdup(line + strlen(start));
		line[strcspn(line, "\n")] = '\0';
		char *rest = NULL;
		for (char *w = strtok_r(line, " `,|", &rest); w;
			w = strtok_r(NULL, " `,|", &rest)) {
			bool known = w[0] != '-' || w[strspn(w, "-")] == '\0';
			n_options += !known;
			for (size_t i = 0; !known && i < ARRAY_COUNT(rows); i++)
				known = rows[i].commands & 1u << c && has_word(rows[i].names, w);
			cr_expect(known, "README.md gives %s the option %s", commands[c], w);
		}
		free(line);
	}
	cr_expect_gt(n_options, 10);
	free(readme);
}
