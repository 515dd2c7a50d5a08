/* Options of llama.cpp: see foreign.h. */
#include "foreign.h"

#include <string.h>

#include "base.h"

static const char on_device[] = "the whole model is on the device that --device names";
static const char host[] = "the device computes, and the host needs one thread";
static const char loading[] = "weights go from the file to the device once";
static const char logging[] = "-v says more, and nothing else is logged";
static const char adapter[] = "adapters are not read: merge it into the model";
static const char texts[] = "models read texts alone here";
static const char framing[] = "a chat template frames messages: -cnv, or lapilli chat";
static const char rope[] = "the file says it: --override-kv changes what it says";
static const char network[] = "nothing is downloaded: -m FILE, or -hf for what is on this machine";

static const struct foreign table[] = {
	{"ngl gpu-layers n-gpu-layers", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"ngld gpu-layers-draft n-gpu-layers-draft", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"sm split-mode", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"ts tensor-split", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"mg main-gpu", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"ot override-tensor", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"ncmoe n-cpu-moe", FOREIGN_IGNORED, TAKES_ONE, on_device},
	{"cmoe cpu-moe", FOREIGN_IGNORED, TAKES_NONE, on_device},
	{"nkvo no-kv-offload kvo kv-offload", FOREIGN_IGNORED, TAKES_NONE, on_device},
	{"op-offload no-op-offload no-host", FOREIGN_IGNORED, TAKES_NONE, on_device},
	{"fit", FOREIGN_IGNORED, TAKES_WORD, on_device},
	{"t threads", FOREIGN_IGNORED, TAKES_ONE, host},
	{"tb threads-batch", FOREIGN_IGNORED, TAKES_ONE, host},
	{"C cpu-mask Cr cpu-range cpu-strict prio poll", FOREIGN_IGNORED, TAKES_ONE, host},
	{"Cb cpu-mask-batch Crb cpu-range-batch cpu-strict-batch prio-batch poll-batch",
		FOREIGN_IGNORED, TAKES_ONE, host},
	{"numa", FOREIGN_IGNORED, TAKES_ONE, host},
	{"mlock mmap no-mmap dio direct-io no-direct-io nr no-repack repack", FOREIGN_IGNORED,
		TAKES_NONE, loading},
	{"ub ubatch-size", FOREIGN_IGNORED, TAKES_ONE,
		"-b alone says how much is computed at once"},
	{"fa flash-attn", FOREIGN_IGNORED, TAKES_WORD, "attention is computed in one way"},
	{"cb cont-batching nocb no-cont-batching kvu kv-unified swa-full", FOREIGN_IGNORED,
		TAKES_NONE, "one cache holds what each sequence needs"},
	{"dt defrag-thold", FOREIGN_IGNORED, TAKES_ONE, "the cache is never in pieces"},
	{"warmup no-warmup", FOREIGN_IGNORED, TAKES_NONE, "shaders are kept compiled in a file"},
	{"perf no-perf show-timings no-show-timings log-disable log-prefix log-timestamps "
	 "log-verbose verbose-prompt simple-io offline",
		FOREIGN_IGNORED, TAKES_NONE, logging},
	{"lv verbosity log-verbosity log-file log-colors", FOREIGN_IGNORED, TAKES_ONE, logging},
	{"jinja", FOREIGN_IGNORED, TAKES_NONE, "templates are Jinja, and nothing else"},
	{"no-escape", FOREIGN_IGNORED, TAKES_NONE, "escapes are read with -e only"},
	{"no-context-shift", FOREIGN_IGNORED, TAKES_NONE,
		"--context-overflow shift alone does that"},
	{"draft-min draft-n-min draft-p-min", FOREIGN_IGNORED, TAKES_ONE,
		"--draft-max alone says how much is guessed"},

	{"context-shift", FOREIGN_REFUSED, TAKES_NONE, "--context-overflow shift does that"},
	{"no-jinja", FOREIGN_REFUSED, TAKES_NONE, "templates are Jinja, and nothing else"},
	{"chat-template", FOREIGN_REFUSED, TAKES_ONE, "--chat-template-file FILE gives one"},
	{"reasoning-budget reasoning-format think", FOREIGN_REFUSED, TAKES_ONE,
		"--chat-template-kwargs tells a template whether the model should think, and "
		"lapilli chat --no-reasoning shows none of it"},
	{"i interactive if interactive-first mli multiline-input", FOREIGN_REFUSED, TAKES_NONE,
		"lapilli chat is the conversation"},
	{"in-prefix in-suffix", FOREIGN_REFUSED, TAKES_ONE, framing},
	{"in-prefix-bos", FOREIGN_REFUSED, TAKES_NONE, framing},
	{"bf binary-file", FOREIGN_REFUSED, TAKES_ONE, "-f FILE takes a file byte for byte"},
	{"lora lora-scaled control-vector control-vector-scaled control-vector-layer-range",
		FOREIGN_REFUSED, TAKES_ONE, adapter},
	{"mm mmproj mmu mmproj-url image audio video", FOREIGN_REFUSED, TAKES_ONE, texts},
	{"rope-scaling rope-scale rope-freq-base rope-freq-scale yarn-orig-ctx yarn-ext-factor "
	 "yarn-attn-factor yarn-beta-slow yarn-beta-fast",
		FOREIGN_REFUSED, TAKES_ONE, rope},
	{"gan grp-attn-n gaw grp-attn-w", FOREIGN_REFUSED, TAKES_ONE,
		"the context is what --ctx-size says"},
	{"sampling-seq sampler-seq", FOREIGN_REFUSED, TAKES_ONE, "--samplers names the steps"},
	{"prompt-cache-all prompt-cache-ro", FOREIGN_REFUSED, TAKES_NONE,
		"--prompt-cache keeps what was computed as a prompt"},
	{"mu model-url dr docker-repo hft hf-token", FOREIGN_REFUSED, TAKES_ONE, network},
};

const struct foreign *foreign_find(const char *bare)
{
	const size_t n = strlen(bare);
	for (size_t i = 0; i < ARRAY_COUNT(table); i++)
		for (const char *at = table[i].names; *at; at += *at == ' ') {
			const size_t n_name = strcspn(at, " ");
			if (n && n == n_name && memcmp(at, bare, n) == 0)
				return &table[i];
			at += n_name;
		}
	return NULL;
}

bool foreign_takes(const struct foreign *option, const char *argument)
{
	static const char *const words[] = {"on", "off", "auto", "0", "1"};
	if (option->values != TAKES_WORD)
		return argument && option->values == TAKES_ONE;
	for (size_t i = 0; argument && i < ARRAY_COUNT(words); i++)
		if (strcmp(argument, words[i]) == 0)
			return true;
	return false;
}
