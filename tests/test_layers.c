/* The house stands: no file includes from a floor above or beside its own, and the .def lists, shaders,
 * CPU kernels, decoders and op constructors name the same things. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "check.h"
#include "knobs.h"
#include "plan.h"
#include "support.h"
#include "weight.h"

/* ---- floors ------------------------------------------------------------------------------------ */

/* A file belongs to the room with the longest prefix of its path.  It may include files of its own room
 * and of lower floors; rooms on one floor do not know each other.  The first floor's contracts that
 * shaders share (args.h, the .def rows) are read from everywhere above. */
static const struct room {
	const char *prefix;
	int floor;
	const char *name;
} rooms[] = {
	{"tools/lapilli/", 70, "programs"},
	{"src/check_model.", 65, "check of a model"},
	{"src/profile.", 65, "profile"},
	{"src/session.", 60, "session"},
	{"src/session_memory.", 60, "session"},
	{"src/blocks.", 60, "session"},
	{"src/states.", 60, "session"},
	{"src/stops.", 60, "session"},
	{"src/trial.", 60, "session"},
	{"src/session_tune.", 60, "session"},
	{"src/request.", 60, "session"},
	{"src/draft.", 60, "session"},
	{"src/generate.", 60, "session"},
	{"src/engine.", 60, "session"},
	{"src/constraint.", 60, "session"},
	{"src/breakers.", 60, "session"},
	{"src/chat.", 60, "session"},
	{"src/beams.", 60, "session"},
	{"src/score.", 60, "session"},
	{"src/prompt_cache.", 60, "session"},
	{"src/check.", 50, "check"},
	{"src/rates.", 50, "check"},
	{"src/tune.", 50, "check"},
	{"src/plan_time.", 50, "check"},
	{"src/work.", 30, "plan"},
	{"src/check_", 50, "check"},
	{"src/forward.", 50, "forward"},
	{"src/cpu/", 40, "cpu"},
	{"src/vk/", 40, "vk"},
	{"shaders/", 40, "shaders"},
	{"src/backend.", 35, "backend interface"},
	{"src/plan.", 30, "plan"},
	{"src/knobs.", 30, "plan"},
	{"src/tuning.", 30, "plan"},
	{"shaders/kernels.def", 25, "kernels"},
	{"shaders/knobs.def", 25, "kernels"},
	{"src/model.", 20, "model"},
	{"src/arch.", 20, "model"},
	{"src/tokenizer.", 20, "text"},
	{"src/vocabulary.", 20, "text"},
	{"src/pretokenize.", 20, "text"},
	{"src/wordpiece.", 20, "text"},
	{"src/wordpiece_table.", 20, "text"},
	{"src/template", 20, "chat template"},
	{"src/sampler.", 20, "sampler"},
	{"src/sampler_", 20, "sampler"},
	{"src/grammar", 20, "grammar"},
	{"src/schema", 20, "grammar"},
	{"src/beam_scorer.", 20, "beam scorer"},
	{"src/gguf.", 10, "formats"},
	{"src/split.", 10, "formats"},
	{"src/weight.", 10, "formats"},
	{"src/kv.", 20, "cells of the KV cache"},
	{"src/weight_iq.", 10, "formats"},
	{"src/weight_encode", 10, "formats"},
	{"src/weight_fit.", 10, "formats"},
	{"src/gguf_write.", 10, "formats"},
	{"src/quantize", 20, "quantize"},
	{"shaders/codebooks.h", 10, "formats"},
	{"shaders/weights.def", 10, "formats"},
	{"shaders/args.h", 5, "arguments"},
	{"shaders/coop.h", 5, "arguments"},
	{"shaders/parts.h", 5, "arguments"},
	{"src/base.", 0, "base"},
	{"include/lapilli.h", 0, "base"},
	{"generated/", 0, "generated"},
};

static const struct room *room_of(const char *path)
{
	const struct room *best = NULL;
	for (size_t i = 0; i < ARRAY_COUNT(rooms); i++)
		if (!strncmp(path, rooms[i].prefix, strlen(rooms[i].prefix)) &&
			(!best || strlen(rooms[i].prefix) > strlen(best->prefix)))
			best = &rooms[i];
	return best;
}

static bool file_exists(const char *path)
{
	FILE *file = fopen(source_path(path), "r");
	if (file)
		fclose(file);
	return file != NULL;
}

/* Where the compiler finds an include: beside the file, then along the include path. */
static void resolve(const char *from, const char *include, char path[512])
{
	static const char *const folders[] = {
		"include/", "src/", "shaders/", "tools/lapilli/", "tests/"};
	static const char *const generated[] = {"build_info.h", "spirv_keys.h"};
	const char *slash = strrchr(from, '/');
	snprintf(path, 512, "%.*s%s", slash ? (int)(slash - from + 1) : 0, from, include);
	for (size_t i = 0; i < ARRAY_COUNT(folders) && !file_exists(path); i++)
		snprintf(path, 512, "%s%s", folders[i], include);
	for (char *up; (up = strstr(path, "/../"));) { /* src/vk/../cpu/x.h is src/cpu/x.h */
		char *folder = up;
		while (folder > path && folder[-1] != '/')
			folder--;
		memmove(folder, up + 4, strlen(up + 4) + 1);
	}
	for (size_t i = 0; i < ARRAY_COUNT(generated); i++)
		if (!strcmp(include, generated[i]))
			snprintf(path, 512, "generated/%s", generated[i]);
}

/* True, with the reason in `why`, when `from` must not include `include`. */
static bool climbs(const char *from, const char *include, char why[512])
{
	char path[512];
	resolve(from, include, path);
	const struct room *room = room_of(from), *other = room_of(path);
	if (!room || !other) {
		snprintf(why, 512,
			"%.200s stands on no floor: add it to the table in test_layers.c",
			room ? path : from);
		return true;
	}
	snprintf(why, 512, "%.150s (floor %d, %s) includes %.150s (floor %d, %s)", from,
		room->floor, room->name, path, other->floor, other->name);
	return strcmp(room->name, other->name) != 0 && other->floor >= room->floor;
}

/* Calls `see` with the name of every #include "name" in the text. */
static void each_include(const char *text, void (*see)(void *user, const char *include), void *user)
{
	for (const char *line = text; line; line = strchr(line, '\n')) {
		char include[256];
		line += *line == '\n';
		if (sscanf(line, " # include \"%255[^\"]\"", include) == 1)
			see(user, include);
	}
}

struct walk {
	const char *file;
	unsigned n_files, n_includes;
};

static void check_include(void *user, const char *include)
{
	struct walk *walk = user;
	char why[512];
	walk->n_includes++;
	cr_expect(!climbs(walk->file, include, why), "%s", why);
}

/* Calls `see` with the name of every entry of a folder of the repository that ends in `ending`. */
static void each_file(const char *folder, const char *ending,
	void (*see)(void *user, const char *path, const char *name), void *user)
{
	DIR *dir = opendir(source_path(folder));
	cr_assert(dir, "cannot read %s", folder);
	for (struct dirent *entry; (entry = readdir(dir));) {
		size_t n = strlen(entry->d_name), tail = strlen(ending);
		char path[512];
		if (n < tail || strcmp(entry->d_name + n - tail, ending))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		see(user, path, entry->d_name);
	}
	closedir(dir);
}

static void check_file(void *user, const char *path, const char *name)
{
	(void)name;
	struct walk *walk = user;
	walk->file = path;
	walk->n_files++;
	char *text = read_text(source_path(path), NULL);
	each_include(text, check_include, walk);
	free(text);
}

Test(layers, no_include_climbs)
{
	static const char *const folders[] = {
		"src", "src/cpu", "src/vk", "tools/lapilli", "shaders", "shaders/weights"};
	static const char *const endings[] = {".c", ".h", ".def", ".comp", ".glsl"};
	struct walk walk = {0};
	for (size_t f = 0; f < ARRAY_COUNT(folders); f++)
		for (size_t e = 0; e < ARRAY_COUNT(endings); e++)
			each_file(folders[f], endings[e], check_file, &walk);
	cr_expect(walk.n_files > 40 && walk.n_includes > 60,
		"only %u files with %u includes were seen", walk.n_files, walk.n_includes);
}

static void count_climb(void *user, const char *include)
{
	char why[512];
	*(unsigned *)user += climbs("src/gguf.c", include, why);
}

/* The check itself: it sees what it should, and nothing else. */
Test(layers, a_climbing_include_is_seen)
{
	static const struct {
		const char *from, *include;
		bool climbs;
	} cases[] = {
		{"src/gguf.c", "session.h", true},
		{"src/gguf.c", "model.h", true},
		{"src/base.c", "weight.h", true},
		{"src/model.c", "tokenizer.h", true},
		{"src/tokenizer.c", "model.h", true},
		{"src/plan.c", "backend.h", true},
		{"src/cpu/backend.c", "vk/spirv.h", true},
		{"src/vk/spirv.c", "../cpu/kernels.h", true},
		{"src/vk/spirv.c", "forward.h", true},
		{"src/session.c", "options.h", true},
		{"src/nowhere.c", "base.h", true},
		{"src/gguf.c", "base.h", false},
		{"src/gguf.c", "weight.h", false},
		{"src/vk/backend.c", "backend.h", false},
		{"src/vk/spirv.c", "plan.h", false},
		{"src/session.c", "engine.h", false},
		{"src/engine.c", "build_info.h", false},
		{"tools/lapilli/main.c", "lapilli.h", false},
		{"shaders/matvec.comp", "args.h", false},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		char why[512];
		cr_expect_eq(climbs(cases[i].from, cases[i].include, why), cases[i].climbs,
			"%s: %s", cases[i].climbs ? "not seen" : "wrongly seen", why);
	}
	unsigned n = 0;
	each_include("#include <stdio.h>\n#include \"base.h\"\n  #  include \"session.h\"\n"
		     "/* #include \"engine.h\" */\n#include \"forward.h\"",
		count_climb, &n);
	cr_expect_eq(n, 2, "%u of 2 climbing lines were seen", n);
}

/* ---- rows -------------------------------------------------------------------------------------- */

static const struct kernel_info *kernel_named(const char *name, size_t length)
{
	for (unsigned k = 0; k < N_KERNELS; k++)
		if (strlen(kernel_info(k)->name) == length &&
			!strncmp(kernel_info(k)->name, name, length))
			return kernel_info(k);
	return NULL;
}

static void shader_has_a_row(void *user, const char *path, const char *name)
{
	(void)user;
	cr_expect(kernel_named(name, strlen(name) - strlen(".comp")),
		"%s has no row in kernels.def", path);
}

static void decoder_has_a_row(void *user, const char *path, const char *name)
{
	(void)user;
	size_t length = strlen(name) - strlen(".glsl");
	for (unsigned w = 0; w < N_WEIGHTS; w++)
		if (strlen(weight_format(w)->name) == length &&
			!strncmp(weight_format(w)->name, name, length))
			return;
	cr_expect(false, "%s has no row in weights.def", path);
}

static void append_file(void *user, const char *path, const char *name)
{
	(void)name;
	char *text = read_text(source_path(path), NULL);
	cr_assert(text_printf(user, "%s\n", text));
	free(text);
}

/* Whole words only: "cpu_matmul(" is not found in "cpu_matmul_x(", nor KERNEL_glu in KERNEL_glue. */
static bool mentions(const char *text, const char *word)
{
	for (const char *at = text; (at = strstr(at, word)); at++) {
		const char *end = at + strlen(word);
		bool starts =
			at == text || !(strchr("_", at[-1]) || (at[-1] >= 'a' && at[-1] <= 'z'));
		bool ends = !*end ||
			!(strchr("_", *end) || (*end >= 'a' && *end <= 'z') ||
				(*end >= '0' && *end <= '9'));
		if (starts && ends)
			return true;
	}
	return false;
}

Test(layers, kernels_match_their_rows)
{
	struct text cpu = {0};
	each_file("src/cpu", ".c", append_file, &cpu);
	char *plan = read_text(source_path("src/plan.c"), NULL);
	char *args = read_text(source_path("shaders/args.h"), NULL);
	char *rows = read_text(source_path("shaders/kernels.def"), NULL);
	for (unsigned k = 0; k < N_KERNELS; k++) {
		const char *name = kernel_info(k)->name;
		char word[128];
		snprintf(word, sizeof(word), "shaders/%s.comp", name);
		cr_expect(file_exists(word), "kernels.def names %s, %s is missing", name, word);
		snprintf(word, sizeof(word), "void cpu_%s(const struct op *", name);
		cr_expect(strstr(cpu.data, word), "src/cpu/ does not define cpu_%s", name);
		snprintf(word, sizeof(word), "KERNEL_%s", name);
		cr_expect(mentions(plan, word), "no constructor in src/plan.c appends %s", name);
	}
	each_file("shaders", ".comp", shader_has_a_row, NULL);
	bool checked[N_KERNELS] = {false};
	for (uint32_t i = 0; i < check_n_cases(); i++)
		checked[check_case_kernel(i)] = true;
	for (unsigned k = 0; k < N_KERNELS; k++)
		cr_expect(checked[k], "no case of src/check.c runs %s", kernel_info(k)->name);

	/* Kernels of the reference without a row. */
	for (const char *at = cpu.data; (at = strstr(at, "\nvoid cpu_")); at++) {
		const char *name = at + strlen("\nvoid cpu_");
		size_t length = strcspn(name, "(");
		if (!strncmp(name + length, "(const struct op *", 18))
			cr_expect(kernel_named(name, length), "cpu_%.*s has no row in kernels.def",
				(int)length, name);
	}

	/* Argument structs without a row. */
	for (const char *at = args; (at = strstr(at, "_args {")); at++) {
		const char *name = at;
		while (name > args && name[-1] != ' ')
			name--;
		char word[128];
		snprintf(word, sizeof(word), "%.*s_args", (int)(at - name), name);
		cr_expect(mentions(rows, word), "struct %s is in no row of kernels.def", word);
	}
	text_free(&cpu);
	free(plan);
	free(args);
	free(rows);
}

/* The shader of a kernel, with what it includes of shaders/. */
static void append_shader(struct text *all, const char *path);

static void append_include(void *all, const char *include)
{
	char path[512];
	snprintf(path, sizeof path, "shaders/%s", include);
	append_shader(all, path);
}

static void append_shader(struct text *all, const char *path)
{
	char *text = read_text(source_path(path), NULL);
	cr_assert(text_printf(all, "%s\n", text));
	each_include(text, append_include, all);
	free(text);
}

Test(layers, knobs_match_their_shaders)
{
	uint32_t n_seen = 0;
	for (uint32_t k = 0; k < N_KERNELS; k++) {
		uint32_t n;
		const struct knob *knobs = kernel_knobs((enum kernel)k, &n);
		struct text shader = {0};
		char path[128];
		snprintf(path, sizeof path, "shaders/%s.comp", kernel_info((enum kernel)k)->name);
		append_shader(&shader, path);
		cr_assert_leq(n, MAX_KNOBS);
		for (uint32_t i = 0; i < n; i++) {
			const struct knob *knob = &knobs[i];
			bool usual = false;
			cr_expect_eq(knob->kernel, k, "rows of %s stand apart", path);
			cr_expect((knob->id == 0) == (strcmp(knob->name, "OUTPUTS") == 0));
			cr_expect(knob->id == 0 || (knob->id >= 2 && knob->id < 10), "%s %s", path,
				knob->name);
			for (uint32_t j = 0; j < i; j++)
				cr_expect_neq(knobs[j].id, knob->id, "%s %s", path, knob->name);
			for (uint32_t v = 0; v < MAX_KNOB_VALUES; v++) {
				usual |= knob->values[v] == knob->usual;
				cr_expect(v == 0 || !knob->values[v] ||
						knob->values[v] > knob->values[v - 1],
					"%s %s", path, knob->name);
			}
			cr_expect(usual, "%s: the usual %s is not tried", path, knob->name);
			const char *word = knob->id ? knob->name : "OUTPUTS_PER_GROUP";
			cr_expect(strstr(shader.data, word), "%s does not use %s", path, word);
		}
		n_seen += n;
		text_free(&shader);
	}
	cr_expect_gt(n_seen, 0);
}

Test(layers, formats_match_their_rows)
{
	char *plain = read_text(source_path("src/weight.c"), NULL);
	char *looked_up = read_text(source_path("src/weight_iq.c"), NULL);
	for (unsigned w = 0; w < N_WEIGHTS; w++) {
		const char *name = weight_format(w)->name;
		char word[128];
		snprintf(word, sizeof(word), "shaders/weights/%s.glsl", name);
		cr_expect(file_exists(word), "weights.def names %s, %s is missing", name, word);
		snprintf(word, sizeof(word), "decode_%s", name);
		cr_expect(mentions(plain, word) != mentions(looked_up, word),
			"one of src/weight.c and src/weight_iq.c must define %s", word);
	}
	each_file("shaders/weights", ".glsl", decoder_has_a_row, NULL);
	free(plain);
	free(looked_up);
}

Test(layers, mentions_sees_whole_words)
{
	cr_expect(mentions("a cpu_glu(x)", "cpu_glu"));
	cr_expect(!mentions("a cpu_glue(x)", "cpu_glu"));
	cr_expect(!mentions("a my_cpu_glu(x)", "cpu_glu"));
	cr_expect(mentions("KERNEL_matmul_x KERNEL_matmul", "KERNEL_matmul"));
}
