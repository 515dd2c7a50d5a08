/* Models by name: caches of other programs, made here in a home of the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"
#include "locate.h"
#include "support.h"

static char home[512];

static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
	"XDG_CACHE_HOME", "LLAMA_CACHE", "OLLAMA_MODELS"};

static void setup(void)
{
	snprintf(home, sizeof home, "%s", scratch_path(""));
	size_t n = strlen(home);
	snprintf(home + n, sizeof home - n, "home-%ld", (long)getpid());
	cr_assert_eq(mkdir(home, 0700), 0);
	for (size_t i = 0; i < ARRAY_COUNT(variables); i++)
		unsetenv(variables[i]);
	setenv("HOME", home, 1);
	cr_assert_eq(chdir(home), 0);
}

TestSuite(locate, .init = setup);

/* The path of a file below the home, its folders made. */
static const char *below(const char *relative)
{
	static char paths[8][1024];
	static unsigned turn;
	char *path = paths[turn++ % 8];
	snprintf(path, sizeof paths[0], "%s/%s", home, relative);
	for (char *slash = path + strlen(home) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	return path;
}

static void put(const char *relative, const char *text)
{
	struct lap_error err;
	cr_assert_eq(file_write(below(relative), text, strlen(text), &err), LAP_OK, "%s", err.text);
}

/* Asks for a model and expects the file below the home; NULL: the name stays what it is. */
static void expect_file(const char *model, const char *repo, const char *file, const char *expected)
{
	struct text path = {0};
	struct lap_error err = {0};
	cr_expect_eq(locate_model(model, repo, file, &path, &err), LAP_OK, "%s: %s",
		model ? model : repo, err.text);
	cr_expect_eq(path.data != NULL, expected != NULL, "%s", path.data);
	if (path.data && expected)
		cr_expect_str_eq(path.data, below(expected));
	text_free(&path);
}

static void expect_none(const char *model, const char *repo, const char *file,
	enum lap_status status, const char *words)
{
	struct text path = {0};
	struct lap_error err = {0};
	cr_expect_eq(locate_model(model, repo, file, &path, &err), status, "%s: %s",
		model ? model : repo, path.data ? path.data : err.text);
	cr_expect(strstr(err.text, words), "\"%s\" is not in \"%s\"", words, err.text);
	cr_expect(!strchr(err.text, '\n') && !path.data);
	text_free(&path);
}

/* ---- files and folders ------------------------------------------------------------------------- */

Test(locate, files_that_exist_are_no_names)
{
	put("here/gemma3", "a file");
	put("gemma3", "a file");
	put(".cache/huggingface/hub/models--x--gemma3/snapshots/1/gemma3-Q4_0.gguf", "");
	expect_file("gemma3", NULL, NULL, NULL);
	expect_file("here/gemma3", NULL, NULL, NULL);
	expect_file(NULL, NULL, NULL, NULL);
	cr_assert_eq(unlink(below("gemma3")), 0);
	expect_file("gemma3", NULL, NULL,
		".cache/huggingface/hub/models--x--gemma3/snapshots/1/gemma3-Q4_0.gguf");
	/* paths, which whoever opens them refuses */
	static const char *const paths[] = {"./gemma3", "../gemma3", "/gemma3",
		"models/gemma3.gguf", "a b", "x//gemma3", "x/../gemma3", "gemma3:", "a/b/c/gemma3",
		"", "gemma3/"};
	for (size_t i = 0; i < ARRAY_COUNT(paths); i++)
		expect_file(paths[i], NULL, NULL, NULL);
}

Test(locate, folders)
{
	put("one/model.gguf", "");
	put("one/mmproj-model-f16.gguf", "");
	put("one/imatrix.gguf", "");
	put("one/README.md", "");
	put("one/deeper/other.gguf", "");
	expect_file(below("one"), NULL, NULL, "one/model.gguf");
	put("two/a-Q4_K_M.gguf", "");
	put("two/b-Q8_0.gguf", "");
	expect_none(
		"two", NULL, NULL, LAP_USAGE, "several files fit, expected one, name its path: a-");
	expect_none("two", NULL, NULL, LAP_USAGE, "a-Q4_K_M.gguf, b-Q8_0.gguf");
	put("parts/m-00002-of-00003.gguf", "");
	put("parts/m-00001-of-00003.gguf", "");
	put("parts/m-00003-of-00003.gguf", "");
	expect_file(below("parts"), NULL, NULL, "parts/m-00001-of-00003.gguf");
	put("none/mmproj.gguf", "");
	put("none/model.safetensors", "");
	expect_none("none", NULL, NULL, LAP_IO, "it is a directory without a GGUF file of a model");
}

/* ---- the Hugging Face hub ---------------------------------------------------------------------- */

#define HUB ".cache/huggingface/hub/models--bartowski--Qwen2.5-7B-GGUF/"

Test(locate, hub)
{
	put(HUB "refs/main", "abc123");
	put(HUB "snapshots/abc123/Qwen2.5-7B-IQ4_XS.gguf", "");
	put(HUB "snapshots/abc123/Qwen2.5-7B-Q4_0.gguf", "");
	put(HUB "snapshots/abc123/Qwen2.5-7B-Q5_K_L.gguf", "");
	put(HUB "snapshots/abc123/mmproj-Q4_K_M.gguf", "");
	put(HUB "snapshots/000000/Qwen2.5-7B-Q4_0.gguf", "");
	put(HUB "snapshots/000000/Qwen2.5-7B-Q8_0.gguf", "");
	const char *repo = "bartowski/Qwen2.5-7B-GGUF";
	expect_file(NULL, repo, NULL, HUB "snapshots/abc123/Qwen2.5-7B-Q4_0.gguf");
	expect_file(repo, NULL, NULL, HUB "snapshots/abc123/Qwen2.5-7B-Q4_0.gguf");
	expect_file("qwen2.5-7b", NULL, NULL, HUB "snapshots/abc123/Qwen2.5-7B-Q4_0.gguf");
	expect_file(NULL, "bartowski/Qwen2.5-7B-GGUF:latest", NULL,
		HUB "snapshots/abc123/Qwen2.5-7B-Q4_0.gguf");
	expect_file(NULL, "Bartowski/qwen2.5-7b-gguf:iq4_xs", NULL,
		HUB "snapshots/abc123/Qwen2.5-7B-IQ4_XS.gguf");
	expect_file(NULL, "bartowski/Qwen2.5-7B-GGUF:Q8_0", NULL,
		HUB "snapshots/000000/Qwen2.5-7B-Q8_0.gguf");
	expect_file(NULL, repo, "Qwen2.5-7B-Q5_K_L.gguf",
		HUB "snapshots/abc123/Qwen2.5-7B-Q5_K_L.gguf");
	expect_file(NULL, repo, "mmproj-Q4_K_M.gguf", HUB "snapshots/abc123/mmproj-Q4_K_M.gguf");
	expect_file(
		"Qwen2.5-7B-Q8_0.gguf", NULL, NULL, HUB "snapshots/000000/Qwen2.5-7B-Q8_0.gguf");
	/* whole words only: Q5_K is no Q5_K_L */
	expect_none(NULL, "bartowski/Qwen2.5-7B-GGUF:Q5_K", NULL, LAP_IO,
		"cannot find bartowski/Qwen2.5-7B-GGUF:Q5_K: of that model there are");
	expect_none(NULL, "bartowski/Qwen2.5-7B-GGUF:Q5_K", NULL, LAP_IO, "Qwen2.5-7B-Q5_K_L.gguf");
	expect_none(NULL, repo, "Qwen2.5-7B-Q5.gguf", LAP_IO, "of that model there are");
	expect_none(
		NULL, "qwen/Qwen2.5-7B-GGUF", NULL, LAP_IO, "no model of that name in the caches");
	put(HUB "snapshots/abc123/Qwen2.5-7B-Q4_K_M.gguf", "");
	expect_file(NULL, repo, NULL, HUB "snapshots/abc123/Qwen2.5-7B-Q4_K_M.gguf");
}

Test(locate, hub_with_folders_links_and_parts)
{
	put(HUB "blobs/1", "");
	put(HUB "blobs/2", "");
	put(HUB "refs/main", "abc\n");
	static const char *const links[][2] = {
		{"1", "Q4_K_M/q-Q4_K_M-00001-of-00002.gguf"},
		{"2", "Q4_K_M/q-Q4_K_M-00002-of-00002.gguf"},
		{"1", "BF16/q-00001-of-00002.gguf"},
		{"2", "BF16/q-00002-of-00002.gguf"},
		{"gone", "Q4_K_M/a-Q4_K_M.gguf"},
	};
	for (size_t i = 0; i < ARRAY_COUNT(links); i++) {
		char target[64], link[256];
		snprintf(target, sizeof target, "../../../blobs/%s", links[i][0]);
		snprintf(link, sizeof link, HUB "snapshots/abc/%s", links[i][1]);
		cr_assert_eq(symlink(target, below(link)), 0);
	}
	const char *repo = "bartowski/Qwen2.5-7B-GGUF";
	expect_file(NULL, repo, NULL, HUB "snapshots/abc/Q4_K_M/q-Q4_K_M-00001-of-00002.gguf");
	expect_file(NULL, "bartowski/Qwen2.5-7B-GGUF:bf16", NULL,
		HUB "snapshots/abc/BF16/q-00001-of-00002.gguf");
	expect_file(NULL, repo, "BF16/q-00002-of-00002.gguf",
		HUB "snapshots/abc/BF16/q-00002-of-00002.gguf");
}

Test(locate, several_are_listed)
{
	put(HUB "snapshots/1/q-Q5_0.gguf", "");
	put(HUB "snapshots/1/q-Q8_0.gguf", "");
	expect_none("Qwen2.5-7B", NULL, NULL, LAP_USAGE,
		"bartowski/Qwen2.5-7B-GGUF q-Q5_0.gguf, bartowski/Qwen2.5-7B-GGUF q-Q8_0.gguf");
	put(".cache/huggingface/hub/models--Qwen--Qwen2.5-7B-GGUF/snapshots/1/w-Q8_0.gguf", "");
	expect_none("Qwen2.5-7B:Q8_0", NULL, NULL, LAP_USAGE, "Qwen/Qwen2.5-7B-GGUF w-Q8_0.gguf");
	expect_file(NULL, "Qwen/Qwen2.5-7B-GGUF", NULL,
		".cache/huggingface/hub/models--Qwen--Qwen2.5-7B-GGUF/snapshots/1/w-Q8_0.gguf");
	put(HUB "snapshots/1/UD-q-Q8_0.gguf", "");
	expect_none(NULL, "bartowski/Qwen2.5-7B-GGUF:Q8_0", NULL, LAP_USAGE,
		"GGUF UD-q-Q8_0.gguf, bartowski/Qwen2.5-7B-GGUF q-Q8_0.gguf");
}

Test(locate, variables_move_the_hub)
{
	static const struct {
		const char *variable, *value, *file;
	} cases[] = {
		{"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub/models--a--b/snapshots/1/b.gguf"},
		{"HF_HOME", "hf", "hf/hub/models--a--b/snapshots/1/b.gguf"},
		{"HUGGINGFACE_HUB_CACHE", "old", "old/models--a--b/snapshots/1/b.gguf"},
		{"HF_HUB_CACHE", "new", "new/models--a--b/snapshots/1/b.gguf"},
	};
	put(".cache/huggingface/hub/models--a--b/snapshots/1/b.gguf", "");
	expect_file("a/b", NULL, NULL, ".cache/huggingface/hub/models--a--b/snapshots/1/b.gguf");
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) { /* each decides over those before it */
		put(cases[i].file, "");
		setenv(cases[i].variable, below(cases[i].value), 1);
		expect_file("a/b", NULL, NULL, cases[i].file);
	}
	cr_assert_eq(unlink(below(cases[3].file)), 0);
	expect_none("a/b", NULL, NULL, LAP_IO, "Hugging Face hub (");
	setenv("HF_HUB_CACHE", "", 1); /* empty is not set */
	expect_file("a/b", NULL, NULL, cases[2].file);
}

/* ---- llama.cpp --------------------------------------------------------------------------------- */

#define FLAT ".cache/llama.cpp/"

Test(locate, llama_cpp)
{
	put(FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q4_K_M.gguf", "");
	put(FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q8_0.gguf", "");
	put(FLAT "ggml-org_gemma-3-4b-it-GGUF_mmproj-model-f16.gguf", "");
	put(FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q4_K_M.gguf.json", "{}");
	put(FLAT "unsloth_big_Q2_K_big-00001-of-00002.gguf", "");
	put(FLAT "unsloth_big_Q2_K_big-00002-of-00002.gguf", "");
	expect_file(NULL, "ggml-org/gemma-3-4b-it-GGUF", NULL,
		FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q4_K_M.gguf");
	expect_file(NULL, "ggml-org/gemma-3-4b-it-GGUF:q8_0", NULL,
		FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q8_0.gguf");
	expect_file("gemma-3-4b-it:Q8_0", NULL, NULL,
		FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q8_0.gguf");
	expect_file("gemma-3-4b-it-Q8_0.gguf", NULL, NULL,
		FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q8_0.gguf");
	expect_file(NULL, "unsloth/big", NULL, FLAT "unsloth_big_Q2_K_big-00001-of-00002.gguf");
	expect_file(NULL, "unsloth/big", "Q2_K/big-00002-of-00002.gguf",
		FLAT "unsloth_big_Q2_K_big-00002-of-00002.gguf");
	expect_none(NULL, "ggml-org/gemma-3-4b", NULL, LAP_IO, "llama.cpp (");
	/* what llama.cpp noted as the file of a tag */
	put(FLAT "manifest=ggml-org=gemma-3-4b-it-GGUF=latest.json",
		"{\"ggufFile\": {\"rfilename\": \"gemma-3-4b-it-Q8_0.gguf\"}}");
	expect_file(NULL, "ggml-org/gemma-3-4b-it-GGUF", NULL,
		FLAT "ggml-org_gemma-3-4b-it-GGUF_gemma-3-4b-it-Q8_0.gguf");
	put(FLAT "manifest=unsloth=big=mine.json",
		"{\"ggufFile\": {\"rfilename\": \"Q2_K/big-00001-of-00002.gguf\"}}");
	expect_file(
		NULL, "unsloth/big:mine", NULL, FLAT "unsloth_big_Q2_K_big-00001-of-00002.gguf");
	put(FLAT "manifest=unsloth=big=broken.json", "{\"ggufFile\": 3");
	put(FLAT "manifest=unsloth.json", "{}");
	expect_none(NULL, "unsloth/big:broken", NULL, LAP_IO, "of that model there are");
	put("moved/a_b_c.gguf", "");
	setenv("LLAMA_CACHE", below("moved"), 1);
	expect_file(NULL, "a/b", NULL, "moved/a_b_c.gguf");
	expect_none(NULL, "unsloth/big", NULL, LAP_IO, "moved)");
}

/* ---- ollama ------------------------------------------------------------------------------------ */

#define OLLAMA ".ollama/models/"

static void put_ollama(const char *name, const char *digest)
{
	struct text file = {0}, manifest = {0};
	cr_assert(text_printf(&file, OLLAMA "manifests/%s", name));
	cr_assert(text_printf(&manifest,
		"{\"layers\": ["
		"{\"mediaType\": \"application/vnd.ollama.image.license\", \"digest\": "
		"\"sha256:0\"},"
		"{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"%s\"}]}",
		digest));
	put(file.data, manifest.data);
	text_free(&file);
	text_free(&manifest);
}

Test(locate, ollama)
{
	put_ollama("registry.example/library/llama3.2/latest", "sha256:aa");
	put_ollama("registry.example/library/llama3.2/1b-instruct-q8_0", "sha256:bb");
	put_ollama("registry.example/someone/llama3.3/70b", "sha256:cc");
	put_ollama("hub.example/bartowski/Qwen-GGUF/Q4_K_M", "sha256:dd");
	expect_file("llama3.2", NULL, NULL, OLLAMA "blobs/sha256-aa");
	expect_file("llama3.2:latest", NULL, NULL, OLLAMA "blobs/sha256-aa");
	expect_file("Llama3.2:1b-instruct-Q8_0", NULL, NULL, OLLAMA "blobs/sha256-bb");
	expect_file("llama3.2:q8_0", NULL, NULL, OLLAMA "blobs/sha256-bb");
	expect_file("someone/llama3.3", NULL, NULL, OLLAMA "blobs/sha256-cc");
	expect_file("hub.example/bartowski/Qwen-GGUF:Q4_K_M", NULL, NULL, OLLAMA "blobs/sha256-dd");
	expect_file(NULL, "bartowski/Qwen-GGUF:q4_k_m", NULL, OLLAMA "blobs/sha256-dd");
	expect_none("other.example/bartowski/Qwen-GGUF:Q4_K_M", NULL, NULL, LAP_IO, "ollama (");
	expect_none("llama3.2:3b", NULL, NULL, LAP_IO,
		"of that model there are llama3.2 1b-instruct-q8_0, llama3.2 latest");
	expect_none("llama3", NULL, NULL, LAP_IO, "cannot find llama3: no such file");
	/* manifests that name no model, or one outside the folder */
	put(OLLAMA "manifests/registry.example/library/cloud/latest", "{\"layers\": []}");
	put(OLLAMA "manifests/registry.example/library/broken/latest", "{\"layers\": ");
	put_ollama("registry.example/library/evil/latest", "sha256:../../x");
	expect_none("cloud", NULL, NULL, LAP_IO, "no model of that name");
	expect_none("broken", NULL, NULL, LAP_IO, "no model of that name");
	expect_none("evil", NULL, NULL, LAP_IO, "no model of that name");
	setenv("OLLAMA_MODELS", below("elsewhere"), 1);
	expect_none("llama3.2", NULL, NULL, LAP_IO, "elsewhere)");
}

/* ---- LM Studio --------------------------------------------------------------------------------- */

Test(locate, lm_studio)
{
	put(".lmstudio/models/lmstudio-community/Phi-4-GGUF/phi-4-Q4_K_M.gguf", "");
	put(".cache/lm-studio/models/TheBloke/Mistral-7B-GGUF/mistral-7b.Q5_K_M.gguf", "");
	expect_file("phi-4", NULL, NULL,
		".lmstudio/models/lmstudio-community/Phi-4-GGUF/phi-4-Q4_K_M.gguf");
	expect_file(NULL, "TheBloke/Mistral-7B-GGUF:Q5_K_M", NULL,
		".cache/lm-studio/models/TheBloke/Mistral-7B-GGUF/mistral-7b.Q5_K_M.gguf");
	expect_file("mistral-7b.Q5_K_M.gguf", NULL, NULL,
		".cache/lm-studio/models/TheBloke/Mistral-7B-GGUF/mistral-7b.Q5_K_M.gguf");
}

/* ---- misses and mistakes ----------------------------------------------------------------------- */

Test(locate, a_miss_names_every_place)
{
	static const char *const places[] = {".cache/huggingface/hub", ".cache/llama.cpp",
		".ollama/models", ".lmstudio/models", ".cache/lm-studio/models"};
	expect_none(
		"qwen3:8b", NULL, NULL, LAP_IO, "cannot find qwen3:8b: no such file, and no model");
	for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
		char words[700];
		snprintf(words, sizeof words, "(%s/%s)", home, places[i]);
		expect_none("qwen3:8b", NULL, NULL, LAP_IO, words);
		expect_none(NULL, "Qwen/qwen3-GGUF:Q4_0", NULL, LAP_IO, words);
	}
	expect_none(
		NULL, "Qwen/qwen3", NULL, LAP_IO, "cannot find Qwen/qwen3: no model of that name");
	expect_none("qwen3", NULL, NULL, LAP_IO, "(/usr/share/ollama/.ollama/models)");
}

/* docs/files.md has the places of the message, and the variables. */
Test(locate, the_page_names_every_place)
{
	char *page = read_text(source_path("docs/files.md"), NULL);
	for (size_t i = 0; i < ARRAY_COUNT(variables); i++)
		cr_expect(strstr(page, variables[i]), "%s", variables[i]);
	struct text path = {0};
	struct lap_error err = {0};
	cr_assert_eq(locate_model("qwen3", NULL, NULL, &path, &err), LAP_IO);
	unsigned n_places = 0;
	for (char *open = err.text; (open = strchr(open, '(')); n_places++) {
		char *place = open + 1, *close = strchr(place, ')'), below_home[512];
		cr_assert(close);
		*close = '\0';
		bool at_home = strncmp(place, home, strlen(home)) == 0;
		snprintf(below_home, sizeof below_home, "%s%s", at_home ? "`~" : "`",
			place + (at_home ? strlen(home) : 0));
		cr_expect(strstr(page, below_home), "%s is not in docs/files.md", below_home);
		open = close + 1;
	}
	cr_expect_geq(n_places, 6);
	free(page);
}

Test(locate, options_that_do_not_go_together)
{
	expect_none("m.gguf", "a/b", NULL, LAP_USAGE, "-m and -hf both name the model");
	expect_none("m.gguf", NULL, "f.gguf", LAP_USAGE, "-m and -hf both name the model");
	expect_none(NULL, NULL, "f.gguf", LAP_USAGE, "-hff f.gguf: needs -hf");
	static const char *const bad[] = {
		"a", "a/", "/b", "a/b/c/d", "../b", "a/b:", "a/..", "a b/c", ""};
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		expect_none(NULL, bad[i], NULL, LAP_USAGE, "expected USER/REPO or USER/REPO:QUANT");
}
