/* Lapilli: language models on any Vulkan GPU.
 *
 * A *model* is what a GGUF file says plus the device that holds its weights: immutable once open.
 * A *session* is one mutable timeline on a model: tokens so far, KV cache, recorded command buffers.
 *
 *     struct lap_error err;
 *     struct lap_model *model;
 *     struct lap_session *session;
 *     if (lap_model_open("model.gguf", NULL, &model, &err) ||
 *         lap_session_create(model, NULL, &session, &err))
 *             die(err.text);
 *
 * To be read from here to the end: devices, models, text, chats, sessions, generation, beam search, quantising,
 * about this build.  Whole programs are in docs/examples: generate, batch, score.
 *
 * Rules that hold for every function
 * - The library never exits, prints, or installs signal handlers.
 * - A function that can fail returns a status, 0 for success, and writes one line into *err (which
 *   may be NULL).  On failure nothing is left half-made and output pointers are set to NULL.
 * - Option structs may be NULL or zeroed: that means the documented defaults.
 * - Text is UTF-8.  Tokens are int32_t ids, 0 to n_vocab - 1.  Sizes are bytes, times are seconds.
 * - A model may be shared between threads; a session belongs to one thread at a time.
 *   lap_session_cancel alone may be called from anywhere, a signal handler included.
 */
#ifndef LAPILLI_H
#define LAPILLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAP_VERSION_MAJOR 0
#define LAP_VERSION_MINOR 1
#define LAP_VERSION_PATCH 0
#define LAP_VERSION       "0.1.0"

#define LAP_API __attribute__((visibility("default")))

/* What went wrong; also the exit status of the command. */
enum lap_status {
	LAP_OK = 0,
	LAP_ERROR = 1,       /* anything not listed below */
	LAP_USAGE = 2,       /* an argument is out of range or does not fit the model */
	LAP_INVALID = 3,     /* a kernel's result is outside its limit (validation) */
	LAP_NO_DEVICE = 4,   /* no device fits, or the one named does not exist */
	LAP_BAD_MODEL = 5,   /* the model file is malformed or of an unsupported kind */
	LAP_NO_MEMORY = 6,   /* host or device memory is out */
	LAP_DEVICE_LOST = 7, /* the device was lost; close the model and open it again */
	LAP_IO = 8,          /* a file cannot be opened, read or written */
};

struct lap_error {
	enum lap_status status;
	char text[1024]; /* one line, no newline at its end */
};

enum lap_log_level { LAP_LOG_ERROR, LAP_LOG_WARNING, LAP_LOG_INFO, LAP_LOG_DEBUG };

/* Receives one line (no newline) that a user should or may see. */
typedef void lap_log_fn(void *user, enum lap_log_level level, const char *line);

/* Memory that a function handed out with "release with lap_free". */
LAP_API void lap_free(void *memory);

/* ---- devices --------------------------------------------------------------------------------- */

enum lap_device_type { /* numbered as VkPhysicalDeviceType */
	LAP_DEVICE_OTHER = 0,
	LAP_DEVICE_INTEGRATED = 1,
	LAP_DEVICE_DISCRETE = 2,
	LAP_DEVICE_VIRTUAL = 3,
	LAP_DEVICE_CPU = 4,
};

/* What matters about a Vulkan device. */
struct lap_device {
	uint32_t index; /* its number in the list, as --device takes it */
	char name[256];
	char driver[256]; /* driver name and version text */
	uint8_t uuid[16]; /* VkPhysicalDeviceIDProperties::deviceUUID */
	uint8_t driver_uuid[16];
	uint32_t api_version; /* VK_MAKE_API_VERSION packing */
	uint32_t driver_version;
	uint32_t vendor_id, device_id;
	enum lap_device_type type;
	uint64_t memory_bytes;      /* largest device-local heap */
	uint64_t budget_bytes;      /* of it, what this process may use now; 0: not known */
	uint64_t max_storage_bytes; /* maxStorageBufferRange */
	uint64_t max_allocation_bytes;
	uint32_t max_shared_bytes; /* shared memory of a workgroup */
	uint32_t max_invocations;  /* of a workgroup */
	uint32_t subgroup_size, subgroup_min, subgroup_max;
	bool unified_memory; /* every device-local heap can be mapped */
	bool subgroup_arithmetic, subgroup_shuffle, float16, storage16, integer_dot,
		cooperative_matrix, timestamps;
	char refused[192]; /* why Lapilli cannot use it; "" when it can */
	/* Builds of kernels that `lapilli validate` found to compute wrong results here and that are no
	 * longer used, as "texels shuffle"; "": none. */
	char switched_off[64];
};

/* Every Vulkan device, in the driver's order; one device behind two drivers counts once.  No Vulkan
 * on the machine is no failure: *n is 0.  Release with lap_free. */
LAP_API enum lap_status lap_devices(
	struct lap_device **devices, uint32_t *n, struct lap_error *err);

/* The names of Vulkan layers of this machine that may stand between a program and its drivers unasked, as overlays
 * and recorders do, with spaces between them; "" when there are none.  The Khronos group's and LunarG's are left
 * out: programs ask for those.  Release with lap_free. */
LAP_API enum lap_status lap_layers(char **names, struct lap_error *err);

/* ---- models ---------------------------------------------------------------------------------- */

struct lap_model;

/* Whether kernels are measured on the device when a session is created, to find how each runs fastest there.
 * What is found is kept in the cache folder, by device and driver; it never changes a result. */
enum lap_tune {
	LAP_TUNE_AUTO, /* QUICK, but on software devices, where it costs more than it gains, nothing */
	LAP_TUNE_OFF,   /* nothing is measured, and nothing that was measured before is used */
	LAP_TUNE_QUICK, /* what was never measured, in at most 3 seconds */
	LAP_TUNE_FULL,  /* everything, again; minutes */
};

struct lap_model_options {
	/* NULL or "": the best device (discrete > integrated > virtual > other > CPU type, then the
	 * larger memory).  "cpu": the plain C reference.  Else an index, a name or part of one, or a
	 * UUID in hexadecimal. */
	const char *device;
	bool vocab_only; /* tokenizer and header alone; no device, no weights */
	bool no_weights; /* all but the weights: for lap_session_memory, not for sessions */
	/* Look at every weight of the file before anything is computed: LAP_BAD_MODEL when one is a NaN
	 * or an infinity, with the tensor, the place and how many there are.  Reads the whole file. */
	bool check_tensors;
	/* Texts KEY=TYPE:VALUE that set or add keys of the file before they are read (LAP_USAGE when
	 * one is malformed); TYPE is int, float, bool or str. */
	const char *const *overrides;
	size_t n_overrides;
	uint64_t max_chunk_bytes; /* most bytes of a tensor bound at once; 0: the device's limit */
	bool no_pipeline_cache;   /* do not read or write the pipeline cache file */
	enum lap_tune tune;
	bool validation; /* load the Khronos validation layer; its words go to the log */
	lap_log_fn *log;
	/* Called while weights are checked and uploaded, `fraction` from 0 to 1; false stops (LAP_ERROR). */
	bool (*progress)(void *user, double fraction);
	void *user; /* for log and progress */
};

/* Opens a GGUF file (version 2 or 3), checks all of it, and uploads the weights.  The format:
 * github.com/ggml-org/ggml, docs/gguf.md.  Of a model that was split (NAME-00001-of-00003.gguf), any
 * part opens the whole: the others lie beside it, or beside what it links to.  Errors: LAP_IO, LAP_BAD_MODEL, LAP_NO_DEVICE,
 * LAP_NO_MEMORY, LAP_DEVICE_LOST.  Close after its sessions. */
LAP_API enum lap_status lap_model_open(const char *path, const struct lap_model_options *options,
	struct lap_model **model, struct lap_error *err);

/* The same from bytes in memory, which must stay until lap_model_close; `name` is for messages. */
LAP_API enum lap_status lap_model_open_memory(const void *bytes, uint64_t n_bytes, const char *name,
	const struct lap_model_options *options, struct lap_model **model, struct lap_error *err);

LAP_API void lap_model_close(struct lap_model *model); /* NULL is allowed */

struct lap_tensor_info {
	const char *name;
	const char *format; /* "Q8_0" */
	uint32_t n_dims;
	uint64_t dims[4]; /* as in the file: dims[0] is the length of a row */
	uint64_t n_bytes;
};

/* Valid until lap_model_close. */
struct lap_model_info {
	const char *path, *name, *architecture, *tokenizer, *pre_tokenizer;
	const char *chat_template; /* NULL when the file has none */
	uint32_t gguf_version;
	uint32_t n_vocab, n_ctx_train, n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_rot;
	uint32_t n_expert, n_expert_used; /* 0: no experts */
	uint32_t n_window;                /* positions that window layers see; 0: no such layers */
	uint32_t n_recurrent;             /* layers with a state instead of keys and values */
	float rope_theta, rms_eps;
	int32_t bos, eos; /* -1 when there is none */
	bool add_bos, add_eos;
	uint64_t n_weights;    /* parameters */
	uint64_t weight_bytes; /* of all tensors */
	uint64_t step_bytes;   /* of the weights that one decode step reads */
	uint64_t file_bytes;   /* of all files */
	uint32_t n_files;      /* 1, or the parts of a split model */
	uint32_t n_tensors;
	const struct lap_tensor_info *tensors;
	const struct lap_device *device; /* NULL for "cpu" and vocab_only */
	const char *device_name;         /* "cpu" or the Vulkan device's name; "" for vocab_only */
	uint64_t device_bytes;           /* device memory that the model holds */
	double load_seconds;
};

LAP_API const struct lap_model_info *lap_model_info(const struct lap_model *model);

/* ---- text ------------------------------------------------------------------------------------ */

/* Tokens of n_bytes of text, in *tokens (release with lap_free), their number in *n.
 * add_special: put BOS before and EOS behind, where the model asks for them.
 * parse_special: text that spells a control token ("<|eot_id|>") becomes that token.
 * Bytes that are no UTF-8 are kept: as byte tokens where the vocabulary has them, else as the
 * unknown token.  A text that spells BOS itself gets a second one in front of it: add_special is for
 * texts as people write them, lap_chat_tokenize for what a template rendered. */
LAP_API enum lap_status lap_tokenize(const struct lap_model *model, const char *text,
	size_t n_bytes, bool add_special, bool parse_special, int32_t **tokens, size_t *n,
	struct lap_error *err);

/* The bytes that tokens stand for, in *text (NUL-terminated, release with lap_free), *n_bytes long
 * (text may hold NULs).  Control tokens are left out unless `special`. */
LAP_API enum lap_status lap_detokenize(const struct lap_model *model, const int32_t *tokens,
	size_t n, bool special, char **text, size_t *n_bytes, struct lap_error *err);

/* What a token stands for inside a text (control tokens: what they are called), *n_bytes long and not
 * NUL-terminated, valid until lap_model_close.  It may be a part of a character.  NULL when the id is no
 * token, or the model has no tokenizer. */
LAP_API const char *lap_token_text(const struct lap_model *model, int32_t token, size_t *n_bytes);

/* True when the token ends a generation (EOS, end of turn, ...). */
LAP_API bool lap_token_is_end(const struct lap_model *model, int32_t token);

/* ---- chats ----------------------------------------------------------------------------------- */

/* Bytes that the caller keeps; a NULL text is none. */
struct lap_text {
	const char *text;
	size_t n_bytes; /* 0: up to the NUL at its end */
};

/* A chat and what its template is told.  Zeroed but for the messages: the model's template, as it is
 * used to ask for an answer. */
struct lap_chat {
	struct lap_text messages;      /* JSON: a list, or an object with "messages" and "tools" */
	struct lap_text tools;         /* JSON: a list, in place of the tools beside the messages */
	struct lap_text kwargs;        /* JSON: an object of more variables */
	struct lap_text chat_template; /* Jinja, as Hugging Face runs it; none: the model's */
	const char *bos, *eos; /* bos_token and eos_token; NULL: the texts of the model's tokens */
	bool no_generation_prompt; /* end behind the last message */
	const struct tm *now;      /* for strftime_now; NULL: the local time */
};

/* The chat as the text that the model was trained on, in *text (NUL-terminated, release with
 * lap_free), *n_bytes long (it may hold NULs).  model may be NULL when the chat has a template of its
 * own.  A template sees these inputs and nothing else, and its steps, memory and output are limited.
 * LAP_ERROR: the model has no template, a JSON text is none, the template fails (with line and column)
 * or raises an error (its own words alone).  Never half a text. */
LAP_API enum lap_status lap_chat_render(const struct lap_model *model, const struct lap_chat *chat,
	char **text, size_t *n_bytes, struct lap_error *err);

/* Tokens of a rendered chat, as lap_tokenize gives them: control tokens are parsed, there is no EOS
 * behind, and where the model wants a BOS there is one in front, whether the template wrote it or
 * not. */
LAP_API enum lap_status lap_chat_tokenize(const struct lap_model *model, const char *text,
	size_t n_bytes, int32_t **tokens, size_t *n, struct lap_error *err);

/* ---- sessions -------------------------------------------------------------------------------- */

struct lap_session;

/* Q8_0 and Q4_0: 9 and 5 bits an element, a scale for every 32; head sizes of whole 32s only. */
enum lap_kv_type { LAP_KV_F16 = 0, LAP_KV_F32 = 1, LAP_KV_Q8_0 = 2, LAP_KV_Q4_0 = 3 };

/* How products take what they multiply weights with.  Q8: each 32 elements as 8-bit integers with a scale, so
 * that products with weights that are such numbers too (Q8_0, Q4_0 .. Q5_1, Q2_K .. Q6_K, but not of experts) are
 * sums of integers: less exact, faster on devices that have an instruction for it. */
enum lap_activations { LAP_ACTIVATIONS_F32 = 0, LAP_ACTIVATIONS_Q8 = 1 };

struct lap_session_options {
	uint32_t
		n_ctx; /* tokens the KV cache can hold, of all sequences together; 0: the model's, at
	                     most 4096 */
	uint32_t n_ctx_seq; /* of them, tokens that one sequence can have; 0: all */
	uint32_t n_batch; /* most prompt tokens computed at once, fewer where the device cannot bind
	                     as many; 0: 512 */
	enum lap_kv_type type_k, type_v;
	enum lap_activations activations;
	uint32_t steps_per_submit; /* decode steps in one submit, at most 256; 0: chosen from
	                              measured time */
	uint32_t n_seq;            /* sequences at a time, at most 32; 0: 1 */
	uint32_t n_draft;          /* most tokens of a draft that one step verifies, at most 31 */
	uint32_t n_top;            /* most log-probabilities beside the drawn token's, at most 64 */
	double max_submit_seconds; /* what one submit to the device should last at most; 0: 0.045 in
	                              decode, 0.2 in prefill.  Drivers kill long ones. */
	bool logits_all; /* the prefill computes logits of every row: needed by lap_session_logits */
};

/* What a session with some options takes, and whether that fits beside the weights. */
struct lap_memory_plan {
	uint32_t n_ctx, n_batch; /* as the session would have them */
	uint64_t weight_bytes;   /* on the device, uploaded or not */
	uint64_t kv_bytes;       /* the KV cache for n_ctx tokens */
	uint64_t kv_token_bytes; /* of it, of one token more: layers with a window keep no more */
	uint64_t state_bytes; /* of recurrent layers, whatever n_ctx is; of each sequence as much */
	uint64_t scratch_bytes; /* activations, tables, sampling */
	uint64_t largest_buffer_bytes;
	const char *largest_buffer; /* what it holds */
	uint64_t max_buffer_bytes;  /* the device can bind at once */
	uint64_t available_bytes;   /* memory this process may use; 0: not known */
	bool fits;
	uint32_t largest_n_ctx; /* that would fit, up to what the model was trained on; 0: none */
};

/* The model may have been opened with no_weights.  Allocates nothing on the device.  The sums are those
 * of the buffers: drivers and blocks shared by buffers take somewhat more.  Errors: LAP_USAGE,
 * LAP_NO_MEMORY (host). */
LAP_API enum lap_status lap_session_memory(struct lap_model *model,
	const struct lap_session_options *options, struct lap_memory_plan *plan,
	struct lap_error *err);

/* Errors: LAP_USAGE (n_ctx beyond what the device can bind), LAP_NO_MEMORY, LAP_DEVICE_LOST. */
LAP_API enum lap_status lap_session_create(struct lap_model *model,
	const struct lap_session_options *options, struct lap_session **session,
	struct lap_error *err);
LAP_API void lap_session_destroy(struct lap_session *session); /* NULL is allowed */

/* Tokens that one sequence can have. */
LAP_API uint32_t lap_session_n_ctx(const struct lap_session *session);

/* Forgets all tokens. */
LAP_API void lap_session_clear(struct lap_session *session);

/* Writes to a file what the session holds of its first sequence and computed as a prompt: tokens, and their
 * keys and values.  By rename: a reader sees the old file or the new one.  LAP_USAGE when there is
 * nothing, LAP_IO. */
LAP_API enum lap_status lap_session_save(
	struct lap_session *session, const char *path, struct lap_error *err);

/* The first sequence becomes what such a file holds: a prompt that begins with its tokens is computed from
 * there on, and gives the same bytes as without the file.  Refused with one line, and the session as it
 * was: no such file, another format, damaged (LAP_IO); another version of Lapilli, another device,
 * another model or one opened with other overrides, other KV types, more tokens than n_ctx (LAP_USAGE).
 * When the device fails meanwhile the sequence is empty. */
LAP_API enum lap_status lap_session_load(
	struct lap_session *session, const char *path, struct lap_error *err);

/* Appends n tokens and writes the logits after each: logits[n][n_vocab], float32.  The session must
 * have been created with logits_all.  LAP_USAGE when they do not fit in n_ctx. */
LAP_API enum lap_status lap_session_logits(struct lap_session *session, const int32_t *tokens,
	size_t n, float *logits, struct lap_error *err);

/* Receives the logits after the tokens first .. first + n - 1 of a list: logits[n][n_vocab], valid during
 * the call only.  False: no more are wanted, which is no failure. */
typedef bool lap_logits_fn(void *user, size_t first, size_t n, const float *logits);

/* The same in pieces of at most 64 rows, so that a long text needs no memory for all of its logits.  Those
 * after the tokens before `first` are computed and not handed out.  fn may use other sessions. */
LAP_API enum lap_status lap_session_each_logits(struct lap_session *session, const int32_t *tokens,
	size_t n, size_t first, lap_logits_fn *fn, void *user, struct lap_error *err);

/* Appends n tokens and writes how likely each was after those before it: log_probs[n - 1], natural
 * logarithms of the model's own probabilities, log_probs[i] of tokens[i + 1].  Their negative mean is the
 * loss of the text, and exp of that its perplexity.  As lap_session_logits; LAP_ERROR when the logits are
 * not numbers. */
LAP_API enum lap_status lap_session_score(struct lap_session *session, const int32_t *tokens,
	size_t n, float *log_probs, struct lap_error *err);

/* Stops the generation in progress after the step it is in.  Safe in a signal handler. */
LAP_API void lap_session_cancel(struct lap_session *session);

/* ---- generation ------------------------------------------------------------------------------ */

#define LAP_SEED_RANDOM UINT64_MAX

struct lap_logit_bias {
	int32_t token;
	float bias; /* added to the token's logit; -INFINITY: never drawn */
};

/* How the next token is drawn from the logits.  The steps that have something to do are taken in the
 * order of `samplers`; a step that it does not name is left out.
 *     NULL or ""   penalties;dry;temperature;top_n_sigma;top_k;top_p;min_p;typical_p;xtc
 *     "hf"         penalties;temperature;top_k;top_p;min_p  (Hugging Face's order)
 *     "llama.cpp"  penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature
 * What then stays is drawn by its probability.  A truncation keeps or drops tokens of one logit
 * together: ties at its threshold stay; greedy ties go to the lowest id.  Probabilities are those of
 * the tokens that stayed so far, at the temperature so far.  Every log-probability that a caller
 * sees is among all tokens after penalties, bias, DRY and temperature, before truncation.
 * Random numbers: Philox4x32-10 (Salmon et al. 2011), keyed by seed, counted by position.
 * Zeroed: greedy, without penalties. */
struct lap_sampling {
	float temperature; /* <= 0: greedy, whatever the order; logits are divided by it */
	int32_t top_k;     /* the k best; <= 0 or >= n_vocab: off (Fan et al. 2018) */
	/* The best that together reach this probability; >= 1: off; <= 0: only the best (Holtzman et al.
	 * 2019) */
	float top_p;
	/* Tokens with at least this share of the best one's probability; <= 0: off; >= 1: the best and
	 * its ties (Nguyen et al. 2024) */
	float min_p;
	/* 1e-6 to 1e6: positive logits are divided by it, others multiplied; 1 or 0: off (Keskar et al.
	 * 2019) */
	float repeat_penalty;
	float presence_penalty, frequency_penalty; /* subtracted once / per occurrence; 0: off */
	int32_t repeat_last_n; /* tokens the penalties look at; 0: none; -1: n_ctx */
	uint64_t seed;         /* LAP_SEED_RANDOM: drawn from the system and reported */

	const char *samplers; /* the order: names separated by ';', or one of the words above */
	/* Added behind the penalties where these come first, else before everything; a token named
	 * twice gets the sum. */
	const struct lap_logit_bias *logit_bias;
	size_t n_logit_bias;
	uint32_t min_keep; /* tokens that top_p, min_p, typical_p and xtc leave at least; 0: 1 */

	/* Tokens whose information -ln p is closest to the expected one, until they reach this
	 * probability; <= 0 or >= 1: off (Meister et al. 2022, locally typical sampling) */
	float typical_p;
	/* Logits within so many standard deviations of the largest; <= 0: off (Tang et al. 2024,
	 * top-n-sigma) */
	float top_n_sigma;
	/* Exclude top choices (p-e-w, oobabooga/text-generation-webui PR 6335): with this probability,
	 * of the tokens with a probability of at least the threshold only the least likely stays.
	 * Probability 0, or a threshold above 0.5: off */
	float xtc_probability, xtc_threshold;

	/* Don't repeat yourself (p-e-w, text-generation-webui PR 5677, as in llama.cpp): a token that
	 * would continue a repetition of the last n tokens, n >= allowed_length, loses multiplier *
	 * base^(n - allowed_length), for its longest such n, at most 1e30.  A repetition reaches back to
	 * the last breaker. */
	float dry_multiplier;            /* 0: off */
	float dry_base;                  /* >= 1; 0: 1.75 */
	uint32_t dry_allowed_length;     /* 0: 2 */
	int32_t dry_penalty_last_n;      /* tokens it looks at; 0: none; -1: n_ctx */
	const char *const *dry_breakers; /* texts; NULL: "\n" ":" "\"" "*" ... */
	size_t n_dry_breakers;           /* ... and with a pointer, 0: none at all */

	/* Mirostat 2 (Basu et al. 2020) in place of the truncations: tokens stay whose surprise -log2 p
	 * is at most mu; mu starts at 2 tau and is moved by eta times the distance of the drawn token's
	 * surprise (among those that stayed, as in llama.cpp) from tau. */
	uint32_t mirostat;                /* 0: off, or 2 */
	float mirostat_tau, mirostat_eta; /* bits, share; 0: 5 and 0.1 */

	/* Temperature by entropy, from temperature - range to temperature + range: min + (max - min) *
	 * (entropy / its largest value)^exponent (kalomaze, llama.cpp PR 4972).  Range 0: off */
	float dynatemp_range, dynatemp_exponent; /* exponent 0: 1 */
};

/* 0.8, 40, 0.95, 0.05, no penalties over 64 tokens, a random seed; of the rest the values that switch
 * it off, and beside them llama.cpp's: XTC threshold 0.1, DRY over n_ctx. */
LAP_API struct lap_sampling lap_sampling_default(void);

/* LENGTH: n_predict tokens, or a full context.  TIME: max_seconds. */
enum lap_finish { LAP_FINISH_STOP, LAP_FINISH_LENGTH, LAP_FINISH_CANCELLED, LAP_FINISH_TIME };

/* What happens when a sequence has n_ctx tokens and more are wanted.
 * STOP: it ends (LENGTH).  SHIFT: the first n_keep tokens stay, half of the rest is dropped and what is
 * behind moves up, its keys turned back (LAP_USAGE for models whose positions cannot be turned).
 * CROP: the model sees the last n_ctx tokens alone, from position 0, computed again for each further
 * token (as nanoGPT does). */
enum lap_overflow { LAP_OVERFLOW_STOP, LAP_OVERFLOW_SHIFT, LAP_OVERFLOW_CROP };

#define LAP_UNTIL_END  (-1) /* n_predict: until a token or string that stops, or a full context */
#define LAP_UNTIL_FULL (-2) /* until the context is full: tokens that end texts do not stop */

/* NULL stands for lap_sampling_default and n_predict -1. */
struct lap_generate_options {
	struct lap_sampling sampling;
	int64_t n_predict; /* tokens to generate; 0: none, the prompt alone is computed; or one of the
	                      above.  With LAP_OVERFLOW_SHIFT and _CROP a context is never full. */
	bool ignore_eos;   /* end-of-generation tokens do not stop */
	bool special;      /* control tokens appear in the text */
	uint32_t min_tokens; /* before so many are generated nothing that stops is drawn */
	const int32_t
		*stop_tokens; /* stop as the model's own end tokens do, at most 32 with those */
	size_t n_stop_tokens;
	const int32_t *banned; /* tokens that are never drawn, at most 32 */
	size_t n_banned;
	/* Strings that end the text and are no part of it, wherever they stand in the generated text, across
	 * tokens too; text that may be the start of one is held back.  One that spells control tokens
	 * matches them although they are not shown. */
	const char *const *stops;
	size_t n_stops;
	double max_seconds; /* 0: no limit */
	uint32_t n_top;     /* most likely tokens to report beside each drawn one; at most the
	                       session's n_top */
	/* What the text may be, one of the two: a grammar in GBNF, or a JSON schema (docs/generation.md).
	 * The text ends where the grammar does; a text that n_predict cuts off is a beginning of one. */
	const char *grammar;
	const char *json_schema;
	enum lap_overflow overflow;
	uint32_t n_keep; /* tokens from the start that LAP_OVERFLOW_SHIFT keeps */

	/* Speculation: the tokens that come next are guessed, up to n_draft of them, and one step verifies
	 * them all (Leviathan et al. 2023, Chen et al. 2023).  What is generated is distributed as without;
	 * guesses that are certain (n-grams, a greedy draft) and temperature 0 give the very same tokens.
	 * Steps take turns with the host. */
	uint32_t n_draft; /* at most the session's n_draft; 0: no speculation */
	bool draft_ngram; /* guesses that the text repeats what followed its last tokens before */
	/* Of another model with the same vocabulary (LAP_USAGE says what differs), or of the same; with at
	 * least as many sequences as this one, and nobody else's while generating.  With draft_ngram it
	 * guesses where the text does not.  May be NULL. */
	struct lap_session *draft;
	const struct lap_sampling
		*draft_sampling; /* how the draft model draws; NULL: as the request.
	                                              Its seed is not used. */

	/* Told while the prompt is computed: n_done of the n tokens that were not there yet.  Gets the `user`
	 * of the request; false stops, as a token function does.  May be NULL. */
	bool (*on_prompt)(void *user, size_t n_done, size_t n);
};

/* Counters and times of one call. */
struct lap_generation {
	enum lap_finish finish;
	uint64_t seed; /* the one that was used */
	size_t n_prompt, n_generated;
	size_t n_reused;            /* prompt tokens already in the KV cache */
	double prefill_seconds;     /* prompt, up to and without the first token */
	double first_token_seconds; /* from the start of this sequence to its first token */
	double decode_seconds;      /* from the first token to the last */
	double host_cpu_seconds;    /* CPU time of this process */
	double host_thread_seconds; /* CPU time of the calling thread */
	uint32_t prefill_recordings, decode_recordings;    /* made by the session so far */
	uint32_t submits, prefill_submits, decode_submits; /* of this call */
	uint32_t waits;               /* of this call: how often the host waited for the device */
	uint32_t n_shifts;            /* how often the context was shifted or cropped */
	bool on_host;                 /* tokens were drawn by the host, one step a submit */
	size_t n_drafted, n_accepted; /* guesses that steps verified, and those that were right */
	uint64_t step_bytes;          /* weights and KV that the last decode step read */
	uint64_t device_bytes;        /* device memory held by model and session */
	size_t kv_tokens;             /* tokens of this sequence in the KV cache now */
};

struct lap_top {
	int32_t token;
	float log_prob;
};

/* A generated token with the text that became complete with it. */
struct lap_token {
	int32_t id;     /* -1: the last text, which was held back, without a token */
	float log_prob; /* among all tokens, after penalties, biases and temperature */
	const char
		*text; /* n_bytes, not NUL-terminated; whole UTF-8 characters only, but for what the
	                     model never completes, which comes last */
	size_t n_bytes;            /* may be 0 */
	const struct lap_top *top; /* the n_top best, largest first */
	uint32_t n_top;
};

/* False stops the generation.  What it is given is valid during the call only. */
typedef bool lap_token_fn(void *user, const struct lap_token *token);

/* Continues the session with a prompt: the longest common prefix of what the session holds is kept,
 * the rest is computed, then tokens are generated and handed to `on_token` (may be NULL).
 * LAP_USAGE when the prompt is empty or does not leave room in n_ctx; LAP_ERROR when the logits are
 * not numbers. */
LAP_API enum lap_status lap_generate(struct lap_session *session, const int32_t *prompt, size_t n,
	const struct lap_generate_options *options, lap_token_fn *on_token, void *user,
	struct lap_generation *result, struct lap_error *err);

/* One of several prompts.  The last three are results. */
struct lap_request {
	const int32_t *prompt;
	size_t n;
	const struct lap_generate_options *options; /* NULL: as lap_generate */
	lap_token_fn *on_token;                     /* may be NULL */
	void *user;
	struct lap_generation result;
	enum lap_status status; /* of this request alone */
	struct lap_error error;
};

/* Generates for all requests, as many at a time as the session has sequences: they join and leave between
 * steps, prompts are computed in turns with the steps of the others, and what is common to prompts is
 * computed once.  Each text is what the prompt gives alone, byte for byte.  A sequence for which the KV
 * cache has no room left fails alone (LAP_USAGE in its status); what is returned is the fault of all:
 * a device lost, memory of the host. */
LAP_API enum lap_status lap_generate_batch(
	struct lap_session *session, struct lap_request *requests, size_t n, struct lap_error *err);

/* ---- beam search ----------------------------------------------------------------------------- */

/* When a search is over: FALSE, when n_beams are finished and the best running beam, its score taken at its
 * length now, is no better than the worst of them.  TRUE, as soon as n_beams are finished.  NEVER, as FALSE,
 * but with a length penalty above 0 the running beam's score is taken at the most tokens it may get. */
enum lap_early_stopping {
	LAP_EARLY_STOPPING_FALSE,
	LAP_EARLY_STOPPING_TRUE,
	LAP_EARLY_STOPPING_NEVER,
};

/* NULL stands for as many beams as the session has sequences, and a length penalty of 1. */
struct lap_beam_options {
	uint32_t n_beams; /* at most the session's n_seq, and with the tokens that end at most its
	                     n_top; 0: n_seq */
	float length_penalty; /* A in score = sum of log-probabilities / n^A, n counting the generated
	                         tokens and the one that ends them: 0 the sum, 1 the mean; larger
	                         ones favour longer texts, as sums are negative */
	enum lap_early_stopping early_stopping;
	uint32_t n_return;   /* results, at most n_beams; 0: 1 */
	int64_t n_predict;   /* tokens at most; 0 or LAP_UNTIL_END: what the context has room for */
	uint32_t min_tokens; /* before so many are generated no beam ends */
	bool ignore_eos;     /* the model's end tokens do not end a beam */
	/* They end a beam as the model's own end tokens do, at most 32 with those. */
	const int32_t *stop_tokens;
	size_t n_stop_tokens;
	double max_seconds; /* 0: no limit */
};

struct lap_beam {
	const int32_t *tokens; /* generated ones, that which ended the beam among them */
	size_t n;
	float log_prob, score;  /* the sum, and what it is ranked by */
	enum lap_finish finish; /* STOP: an end token */
};

/* Continues a prompt with the likeliest texts, as Hugging Face's generate does with num_beams and without
 * sampling: in each step the best continuations of all beams by the sum of their log-probabilities go on;
 * one that ends goes to the finished set when it is among the n_beams best of the step.  What still runs
 * at n_predict tokens is finished too.  Ties: the earlier beam, then the lower token.
 * *beams: n results, best first (fewer than n_return where fewer are finished), with their tokens
 * in one piece: release with lap_free.  `result` may be NULL.  Cancelled: the beams so far.
 * LAP_USAGE: a prompt or option out of range, no room in the KV cache for all beams; LAP_ERROR when the
 * logits are not numbers. */
LAP_API enum lap_status lap_beam_search(struct lap_session *session, const int32_t *prompt,
	size_t n, const struct lap_beam_options *options, struct lap_beam **beams, size_t *n_beams,
	struct lap_generation *result, struct lap_error *err);

/* ---- quantising ------------------------------------------------------------------------------ */

/* How far lap_quantize is. */
struct lap_quantize_step {
	const char *tensor, *from, *to;   /* its name, and formats as "F16", "Q4_K" */
	uint64_t done_bytes, total_bytes; /* of the tensors that are read */
};

/* NULL or zeroed: the mix that goes by the type's name, on all cores. */
struct lap_quantize_options {
	bool pure;             /* one format for all matrices, whatever their part in the model */
	bool allow_requantize; /* tensors that are quantised already are read, too */
	uint32_t n_threads;    /* 0: as many as the machine has cores; at most 64 */
	bool (*progress)(
		void *user, const struct lap_quantize_step *step); /* false stops: LAP_ERROR */
	void *user;
};

/* What was made. */
struct lap_quantize_result {
	uint64_t n_weights, bytes_before, bytes; /* of all tensors */
	uint32_t
		n_fallbacks; /* tensors whose rows are no whole blocks of the format meant for them */
};

/* Writes the model `in` (F32, F16 or BF16; of a split one any part) to the file `out`, by rename, its
 * matrices in the formats of `type`, a name out of lap_quantize_types (docs/quantize.md).  Vectors, norms and
 * routers stay as they are; so do all keys, but for general.file_type and general.quantization_version.
 * Errors: LAP_USAGE (no such type; a tensor that is quantised already, or a number that its format cannot
 * hold, by name), LAP_BAD_MODEL (see lap_model_open; a weight that is no number, by name), LAP_IO,
 * LAP_NO_MEMORY.  `result` may be NULL. */
LAP_API enum lap_status lap_quantize(const char *in, const char *out, const char *type,
	const struct lap_quantize_options *options, struct lap_quantize_result *result,
	struct lap_error *err);

/* "F32 F16 BF16 Q8_0 Q6_K ..." */
LAP_API const char *lap_quantize_types(void);

/* ---- about this build ------------------------------------------------------------------------ */

LAP_API const char *lap_version(void);
/* Lines "key: value": compiler, shader compiler, kernels built, optional variants built or not. */
LAP_API const char *lap_build_info(void);
/* Space-separated names, from the tables this build was made of. */
LAP_API const char *lap_supported_formats(void);
LAP_API const char *lap_supported_architectures(void);

#ifdef __cplusplus
}
#endif

#endif
