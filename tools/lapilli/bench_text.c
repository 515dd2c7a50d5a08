/* Texts to measure with: see bench.h. Words drawn by a fixed generator, the first of a list most often, as
 * in a language, and one in sixteen made up, as names and rare words are. */
#include <string.h>

#include "bench.h"

struct source {
	uint32_t state;
	struct text *out;
	bool ok;
};

static uint32_t draw(struct source *s, uint32_t n)
{
	s->state = s->state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)n * (s->state >> 8) >> 24);
}

static void put(struct source *s, const char *bytes, size_t n)
{
	s->ok = s->ok && text_append(s->out, bytes, n);
}

static void say_text(struct source *s, const char *text)
{
	put(s, text, strlen(text));
}

/* Lists are words between spaces; the end counts as one more. */
static uint32_t count(const char *list)
{
	uint32_t n = 1;
	for (; *list; list++)
		n += *list == ' ';
	return n;
}

/* Word i comes about as often as 1 / (i + 1). */
static void say_word(struct source *s, const char *list)
{
	uint32_t n = count(list), most = draw(s, n) + 1, i = draw(s, draw(s, most) + 1);
	for (; i > 0; i--)
		list += strcspn(list, " ") + 1;
	put(s, list, strcspn(list, " "));
}

static void say_name(struct source *s)
{
	static const char heads[] =
		"an be co du el fa gra ho in ja kel lo mi nor o pa qui re sa tha u vel wi";
	static const char tails[] = "r n l d na st ck ton mer ling sa th que ry vo ble gen son tic";
	for (uint32_t i = draw(s, 3) + 1; i > 0; i--) {
		say_word(s, heads);
		say_word(s, tails);
	}
}

static void say_number(struct source *s)
{
	s->ok = s->ok && text_printf(s->out, "%u", draw(s, 1u << draw(s, 24)));
}

static void say_character(struct source *s, uint32_t from, uint32_t to)
{
	char bytes[4];
	put(s, bytes, utf8_encode(from + draw(s, to - from), bytes));
}

static void capital(struct source *s, size_t at)
{
	if (s->ok && at < s->out->n && s->out->data[at] >= 'a' && s->out->data[at] <= 'z')
		s->out->data[at] = (char)(s->out->data[at] - 'a' + 'A');
}

static void prose_line(struct source *s)
{
	static const char words[] =
		"the of and to in a is that it was for on with as be at by this had not are but "
		"from or have an they which one you were all her she there would their we him "
		"been has when who will no more if out so up said what its about than into them "
		"can only other time new some could these two may first then do any like my now "
		"over such our man me even most made after also did many off before must well "
		"back through years much where your way down should because long each just state "
		"those people too little good world make very year still see work great here "
		"house morning garden letter window river mountain quiet evening winter stone "
		"answer question believe remember children without another against between "
		"nothing something perhaps however government different important development "
		"understanding responsibility neighbourhood extraordinary correspondence it's "
		"don't they're I've we'll she'd";
	uint32_t n = 5 + draw(s, 20);
	size_t start = s->out->n;
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			say_text(s, draw(s, 9) ? " " : draw(s, 8) ? ", " : " - ");
		size_t at = s->out->n;
		uint32_t kind = draw(s, 64);
		if (kind < 2)
			say_number(s);
		else if (kind < 6)
			say_name(s);
		else
			say_word(s, words);
		if (kind == 5)
			capital(s, at);
	}
	capital(s, start);
	say_text(s, draw(s, 12) ? ". " : draw(s, 2) ? "?\n" : "!\n\n");
}

static void code_line(struct source *s)
{
	static const char words[] =
		"i n x size data text count index result status value list node next buffer "
		"length error name type key offset first last state begin end total token";
	static const char *const forms[] = {"\t@ = @ + #;\n", "\tif (@ < @)\n\t\treturn @;\n",
		"\tfor (int @ = 0; @ < @; @++) {\n\t\t@[@] = @->@;\n\t}\n",
		"static int ~_@(struct @ *@, size_t @)\n{\n", "    self.@ = ~(@, @[\"@\"])\n",
		"\t/* the @ of @ */\n", "}\n\n", "def ~(@, @=None):\n    return [@ for @ in @]\n",
		"\tprintf(\"%s: %d\\n\", @, (int)@);\n", "#define ~ 0x#u\n"};
	for (const char *f = forms[draw(s, ARRAY_COUNT(forms))]; *f; f++)
		if (*f == '@')
			say_word(s, words);
		else if (*f == '~')
			say_name(s);
		else if (*f == '#')
			say_number(s);
		else
			put(s, f, 1);
}

static void json_line(struct source *s)
{
	static const char keys[] = "id name type value city created updated tags price enabled "
				   "description parameters properties required";
	say_text(s, "{");
	for (uint32_t i = 3 + draw(s, 6); i > 0; i--) {
		say_text(s, "\"");
		say_word(s, keys);
		say_text(s, "\":");
		switch (draw(s, 4)) {
		case 0:
			say_number(s);
			break;
		case 1:
			say_text(s, draw(s, 2) ? "true" : "null");
			break;
		case 2:
			say_text(s, "[\"");
			say_name(s);
			say_text(s, "\",\"");
			say_name(s);
			say_text(s, "\"]");
			break;
		default:
			say_text(s, "\"");
			say_name(s);
			say_text(s, "\"");
		}
		say_text(s, i > 1 ? "," : "");
	}
	say_text(s, "}\n");
}

static void scripts_line(struct source *s)
{
	static const char *const lists[] = {
		"и в не на я что он с как это по но они мы было все она так его только за было "
		"человек время жизнь день работа вопрос страна правительство ответственность",
		"και το να του η της με που την από για ένα στο δεν είναι τα σε ο οι χρόνια "
		"άνθρωπος σήμερα κόσμος",
		"في من على أن إلى هذا التي كان لا ما عن مع هو ذلك بعد كل وقت يوم العالم الناس",
		"है के में की और को से का यह पर कि नहीं एक तो भी समय लोग दिन काम",
		"der die und in den von zu das mit sich des auf für ist im dem nicht über größer "
		"Straße Möglichkeiten Geschwindigkeitsbegrenzung"};
	const char *list = lists[draw(s, ARRAY_COUNT(lists))];
	for (uint32_t i = 6 + draw(s, 12); i > 0; i--) {
		say_word(s, list);
		say_text(s, i > 1 ? draw(s, 10) ? " " : ", " : ".\n");
	}
}

static void cjk_line(struct source *s)
{
	static const char *const lists[] = {"的 是 在 不 了 有 和 人 这 我们 中国 时间 一个 可以 "
					    "没有 问题 工作 今天 学习 世界 模型 语言 因为 所以 "
					    "发展 经济 社会 研究",
		"の は に を た が で て と し です ます これ それ 今日 時間 日本 言葉 世界 "
		"コンピュータ モデル 研究 ください",
		"은 는 이 가 을 를 에 의 한국 사람 시간 오늘 세계 모델 언어 문제 그리고 하지만 "
		"있습니다"};
	const uint32_t which = draw(s, ARRAY_COUNT(lists));
	for (uint32_t i = 8 + draw(s, 24); i > 0; i--) {
		if (draw(s, 16) == 0)
			say_character(
				s, which == 2 ? 0xAC00 : 0x4E00, which == 2 ? 0xD7A4 : 0x9000);
		else
			say_word(s, lists[which]);
		say_text(s, which == 2 && draw(s, 3) == 0 ? " " : draw(s, 12) ? "" : "，");
	}
	say_text(s, "。\n");
}

static const struct {
	const char *name;
	void (*line)(struct source *s);
} kinds[N_BENCH_KINDS] = {
	[BENCH_PROSE] = {"prose", prose_line},
	[BENCH_CODE] = {"code", code_line},
	[BENCH_JSON] = {"json", json_line},
	[BENCH_SCRIPTS] = {"scripts", scripts_line},
	[BENCH_CJK] = {"cjk", cjk_line},
};

const char *bench_kind_name(enum bench_kind kind)
{
	return kinds[kind].name;
}

bool bench_text(enum bench_kind kind, size_t n_bytes, struct text *out)
{
	struct source s = {.state = 1, .out = out, .ok = text_append(out, "", 0)};
	for (size_t start = out->n; s.ok && out->n - start < n_bytes;)
		kinds[kind].line(&s);
	return s.ok;
}
