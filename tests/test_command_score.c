/* `lapilli perplexity` and `lapilli compare` as a user runs them, on the CPU reference, beside values
 * worked out here; and what they are made of. */
#include <math.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>

#include "command.h"
#include "divergence.h"
#include "gguf_builder.h"
#include "logits_file.h"
#include "models.h"
#include "progress.h"
#include "score.h"

static double real_at(const json_t *json, const char *key)
{
	const json_t *value = json_object_get(json, key);
	cr_assert(json_is_number(value), "no number %s", key);
	return json_number_value(value);
}

/* ---- figures --------------------------------------------------------------------------------- */

Test(figures, mean_error_and_quantiles)
{
	struct figures f = {.n = 0};
	static const double values[] = {4, 1, 3, 2};
	cr_expect_eq(figures_quantile(&f, 0.5), 0);
	for (size_t i = 0; i < ARRAY_COUNT(values); i++)
		cr_assert(figures_add(&f, values[i]));
	cr_expect_float_eq(f.sample.mean, 2.5, 1e-12);
	/* variance 1.25 over 4, with one degree of freedom lost: sqrt(1.25 / 3) */
	cr_expect_float_eq(sample_error(&f.sample), sqrt(1.25 / 3), 1e-12);
	cr_expect_float_eq(figures_quantile(&f, 0), 1, 1e-6);
	cr_expect_float_eq(figures_quantile(&f, 0.5), 2.5, 1e-6);
	cr_expect_float_eq(figures_quantile(&f, 0.9), 3.7, 1e-6);
	cr_expect_float_eq(figures_quantile(&f, 1), 4, 1e-6);
	figures_free(&f);
}

/* p = 1/2, 1/4, 1/4 and q = 1/4, 1/2, 1/4: ln 2 / 4; and a second row in which both are equal. */
Test(figures, divergence)
{
	const float p[] = {1, 1 - (float)M_LN2, 1 - (float)M_LN2}, q[] = {0, (float)M_LN2, 0};
	const struct row base = {p, logits_log_sum(p, 3)}, row = {q, logits_log_sum(q, 3)};
	struct divergence d = {.kl = {.n = 0}};
	cr_assert(divergence_add(&d, &base, -INFINITY, &row, 3, 1));
	cr_expect_float_eq(d.kl.sample.mean, M_LN2 / 4, 1e-6);
	cr_expect_float_eq(d.base_nll.mean, log(4), 1e-6);
	cr_expect_float_eq(d.nll.mean, log(2), 1e-6);
	cr_expect_float_eq(d.ln_ratio.mean, -M_LN2, 1e-6);
	cr_expect_float_eq(d.change.sample.mean, 0.25, 1e-6);
	cr_expect_eq(d.same_top.mean, 0);
	cr_assert(divergence_add(&d, &base, -INFINITY, &base, 3, 0));
	cr_expect_float_eq(d.kl.sample.mean, M_LN2 / 8, 1e-6);
	cr_expect_float_eq(d.same_top.mean, 0.5, 1e-12);
	json_t *json = divergence_json(&d);
	cr_expect_float_eq(real_at(json, "kl_largest"), M_LN2 / 4, 1e-6);
	cr_expect_float_eq(real_at(json, "p_change_rms"), 0.25 / M_SQRT2, 1e-6);
	cr_expect_float_eq(real_at(json, "base_perplexity"), exp(1.5 * M_LN2), 1e-5);
	json_decref(json);
	divergence_free(&d);
}

Test(figures, progress_lines)
{
	char line[PROGRESS_BYTES];
	const struct progress bytes = {"quantizing", "B", true, false, 0, 0};
	const struct progress tokens = {"scoring", "tok", true, false, 0, 0};
	cr_expect_str_eq(progress_line(&bytes, 0x1p30, 0x1p32, 64, line),
		"quantizing [#######.......................]  25 %, 16.0 MiB/s, 3:12 left");
	cr_expect_str_eq(progress_line(&tokens, 512, 1024, 4, line),
		"scoring [###############...............]  50 %, 128.0 tok/s, 0:04 left");
	cr_expect_str_eq(progress_line(&tokens, 0, 1024, 0, line),
		"scoring [..............................]   0 %, 0.0 tok/s");
}

/* What a bar that has been due for ten seconds writes to this stream. */
static size_t drawn_on(int stream, int from, char *text, size_t n)
{
	int saved = dup(STDERR_FILENO);
	cr_assert(saved >= 0 && dup2(stream, STDERR_FILENO) >= 0);
	struct progress p = progress_start("scoring", "tok");
	p.started -= 10;
	progress_show(&p, 1, 2);
	progress_show(&p, 2, 2); /* too soon */
	progress_clear(&p);
	dup2(saved, STDERR_FILENO);
	close(saved);
	size_t n_read = 0; /* a terminal hands on what it was given piece by piece */
	struct pollfd ready = {.fd = from, .events = POLLIN};
	while (n_read < n - 1 && poll(&ready, 1, 200) > 0 && ready.revents & POLLIN) {
		ssize_t more = read(from, text + n_read, n - 1 - n_read);
		if (more <= 0)
			break;
		n_read += (size_t)more;
	}
	text[n_read] = '\0';
	return n_read;
}

Test(figures, bars_are_for_terminals)
{
	int terminal[2], streams[2];
	char text[512];
	cr_assert(openpty(&terminal[0], &terminal[1], NULL, NULL, NULL) == 0 && pipe(streams) == 0);
	drawn_on(terminal[1], terminal[0], text, sizeof text);
	cr_expect(strncmp(text, "\rscoring [####", 14) == 0, "%s", text);
	cr_expect(strstr(text, " 50 %, 0.1 tok/s, 0:1"), "%s", text);
	cr_expect_null(strstr(text, "100 %"));
	cr_expect_str_eq(text + strlen(text) - 4, "\r\033[K", "%s", text);
	cr_assert_eq(fcntl(streams[0], F_SETFL, O_NONBLOCK), 0);
	cr_expect_eq(drawn_on(streams[1], streams[0], text, sizeof text), 0, "%s", text);
}

/* ---- perplexity ------------------------------------------------------------------------------ */

/* A model that knows nothing gives every token the probability 1 / n_vocab. */
Test(command_score, perplexity_of_a_uniform_model_is_its_vocabulary)
{
	struct builder *b = calloc(1, sizeof *b);
	builder_tiny_llama(b);
	struct text *output = &builder_get_tensor(b, "output.weight")->data;
	memset(output->data, 0, output->n);
	struct text file = builder_file(b);
	const char *model = write_scratch("uniform.gguf", file.data, file.n);
	const char *text = write_scratch("uniform.txt", "abababababababababab ababababab abab", 36);
	struct result r = run("perplexity", "-m", model, CPU, "-f", text, "-c", "8", "--json");
	json_t *json = parse_json(&r);
	cr_expect_float_eq(real_at(json, "perplexity"), 264, 1e-3);
	cr_expect_float_eq(real_at(json, "perplexity_error"), 0, 1e-3);
	json_decref(json);
	release(&r);

	/* and one whose weights are damaged is not said to have one */
	const float bad = NAN;
	memcpy(output->data, &bad, sizeof bad);
	struct text damaged = builder_file(b);
	model = write_scratch("nan.gguf", damaged.data, damaged.n);
	expect_failure(run("perplexity", "-m", model, CPU, "-f", text, "-c", "8", "--json"), 1,
		"are not numbers");
	expect_failure(run("compare", "-m", model, "-m", model, CPU, "-f", text, "-c", "8"), 1,
		"are not numbers");
	text_free(&damaged);
	text_free(&file);
	builder_free(b);
	free(b);
}

#define STORIES "models/stories260K-F32.gguf"
#define OTHER   "models/stories260K-Q4_0.gguf"

static const char *story(void)
{
	static const char text[] =
		"Once upon a time, there was a little dog named Max. Max liked to run and play in "
		"the big park. One day, Max saw a red ball under a tree. He wanted to play with "
		"the ball, but a cat was sitting on it. \"Can I play with the ball?\" asked Max. "
		"The cat smiled and said, \"Yes, let's play together!\" So they played all day.\n";
	return write_scratch("story.txt", text, sizeof text - 1);
}

/* The mean of -ln p over the tokens first + 1 .. n_ctx - 1 of windows that begin every `step` tokens, by
 * the definition: BOS in place of the first token, logits from lap_session_logits. */
static double expected_nll(uint32_t n_ctx, uint32_t step, uint32_t first, uint32_t n_windows)
{
	struct lap_model *m = open_model(shared_path(STORIES), "cpu");
	struct lap_session *s = open_session(m,
		&(struct lap_session_options){.n_ctx = n_ctx,
			.type_k = LAP_KV_F32,
			.type_v = LAP_KV_F32,
			.logits_all = true});
	const struct lap_model_info *info = lap_model_info(m);
	size_t n_text, n;
	char *text = read_text(story(), &n_text);
	int32_t *tokens;
	struct lap_error err = {0};
	float *logits = malloc((size_t)n_ctx * info->n_vocab * sizeof *logits);
	cr_assert_eq(lap_tokenize(m, text, n_text, true, false, &tokens, &n, &err), LAP_OK);
	double sum = 0;
	cr_assert(info->add_bos && tokens[0] == info->bos);
	for (uint32_t w = 0; w < n_windows; w++) {
		int32_t *window = tokens + (size_t)w * step, own = window[0];
		cr_assert_leq((size_t)w * step + n_ctx, n);
		window[0] = info->bos;
		lap_session_clear(s);
		cr_assert_eq(lap_session_logits(s, window, n_ctx, logits, &err), LAP_OK);
		for (uint32_t i = first; i + 1 < n_ctx; i++) {
			const float *row = logits + (size_t)i * info->n_vocab;
			double total = 0;
			for (uint32_t k = 0; k < info->n_vocab; k++)
				total += exp((double)row[k]);
			sum += log(total) - (double)row[window[i + 1]];
		}
		window[0] = own;
	}
	free(logits);
	free(text);
	lap_free(tokens);
	lap_session_destroy(s);
	lap_model_close(m);
	return sum / (n_windows * (n_ctx - 1 - first));
}

/* Activations in 8 bits are not what f32 gives, and close to it; the base keeps f32.  Where no weights are
 * such numbers, a line says so. */
Test(command_score, activations_in_whole_numbers)
{
	SKIP_WITHOUT(OTHER);
	struct result r = run("compare", "-m", shared_path(OTHER), "-dev", "cpu", "-dev", "cpu",
		"--activations", "q8", "-f", story(), "-c", "32", "--chunks", "2", "--json");
	json_t *json = parse_json(&r);
	cr_expect_gt(real_at(json, "kl_median"), 1e-6);
	cr_expect_lt(real_at(json, "kl_largest"), 1e-2);
	json_decref(json);
	release(&r);
	r = run("generate", "-m", shared_path(STORIES), CPU, "--activations", "q8", "-p", "Once",
		"-n", "1");
	cr_expect_eq(r.status, 0);
	cr_expect(strstr(r.err, "activations stay f32"), "%s", r.err);
	release(&r);
}

Test(command_score, perplexity_by_its_definition)
{
	SKIP_WITHOUT(STORIES);
	const double nll = expected_nll(32, 32, 16, 3);
	struct result r = run("perplexity", "-m", shared_path(STORIES), CPU_EXACT, "-f", story(),
		"-c", "32", "--chunks", "3", "--json");
	json_t *json = parse_json(&r);
	const json_t *running = json_object_get(json, "running");
	cr_expect_float_eq(real_at(json, "nll"), nll, 1e-6);
	cr_expect_float_eq(real_at(json, "perplexity"), exp(nll), 1e-5);
	cr_expect_eq(number_at(json, "tokens", NULL), 3 * 15);
	cr_expect_eq(json_array_size(running), 3);
	cr_expect_float_eq(json_number_value(json_array_get(running, 2)), exp(nll), 1e-5);
	cr_expect_float_eq(json_number_value(json_array_get(running, 0)),
		exp(expected_nll(32, 32, 16, 1)), 1e-5);
	cr_expect(json_is_null(json_object_get(json, "kl")));
	json_decref(json);
	char final[64];
	snprintf(final, sizeof final, "\nFinal estimate: PPL = %.4f +/- 0.", exp(nll));
	release(&r);

	r = run("perplexity", "-m", shared_path(STORIES), CPU_EXACT, "-f", story(), "-c", "32",
		"--chunks", "3");
	cr_expect_eq(r.status, 0);
	cr_expect(strncmp(r.out, "[1]", 3) == 0 && strstr(r.out, ",[3]"), "%s", r.out);
	cr_expect(strstr(r.out, final), "%s, expected %s", r.out, final);
	cr_expect_str_eq(r.err, "");
	release(&r);
}

/* -c 24 and a stride of 16: windows of 32 whose last 16 tokens are scored. */
Test(command_score, perplexity_with_a_stride)
{
	SKIP_WITHOUT(STORIES);
	struct result r = run("perplexity", "-m", shared_path(STORIES), CPU_EXACT, "-f", story(),
		"-c", "24", "--ppl-stride", "16", "--chunks", "4", "--json");
	json_t *json = parse_json(&r);
	cr_expect_eq(number_at(json, "n_ctx", NULL), 32);
	cr_expect_eq(number_at(json, "tokens", NULL), 4 * 16);
	cr_expect_float_eq(real_at(json, "nll"), expected_nll(32, 16, 15, 4), 1e-6);
	json_decref(json);
	release(&r);
}

/* ^C after the first of many windows: what there is, status 130, and no half of a file. */
Test(command_score, perplexity_interrupted)
{
	char base[512], out[4096];
	int streams[2];
	size_t n = 0;
	snprintf(base, sizeof base, "%s", scratch("interrupted.kld"));
	cr_assert_eq(pipe(streams), 0);
	const char *const argv[] = {program(), "perplexity", "-m",
		source_path("models/austen.gguf"), CPU, "-f", source_path("README.md"), "-c", "32",
		"--save-all-logits", base, NULL};
	const pid_t pid = start(argv, STDIN_FILENO, streams[1], STDERR_FILENO);
	close(streams[1]);
	for (ssize_t got; (got = read(streams[0], out + n, sizeof out - 1 - n)) > 0;) {
		if (n == 0)
			kill(pid, SIGINT);
		n += (size_t)got;
	}
	out[n] = '\0';
	close(streams[0]);
	cr_expect_eq(finish(pid), 130);
	cr_expect(
		strncmp(out, "[1]", 3) == 0 && strstr(out, "\nFinal estimate: PPL = "), "%s", out);
	cr_expect_neq(access(base, F_OK), 0);
}

/* ---- the file of probabilities --------------------------------------------------------------- */

/* Numbers of the format worked out by hand: of logits 0, -1, -20 the codes reach 16 down from the largest. */
Test(logits_file, bytes)
{
	struct lap_model *m = open_model(vector_path("golden/llama-freqs.gguf"), "cpu");
	const uint32_t n_vocab = lap_model_info(m)->n_vocab;
	int32_t tokens[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	const struct windows w = {.tokens = tokens, .n_tokens = 8, .n = 1, .n_ctx = 8, .first = 4};
	const char *path = scratch("by-hand.kld");
	struct logits_writer writer;
	struct lap_error err = {0};
	float *logits = calloc(n_vocab, sizeof *logits);
	cr_assert_eq(logits_file_create(path, &w, n_vocab, &writer, &err), LAP_OK, "%s", err.text);
	for (uint32_t i = 1; i < n_vocab; i++)
		logits[i] = i == 1 ? -1 : -20;
	const double log_sum = logits_log_sum(logits, n_vocab);
	for (int i = 0; i < 3; i++)
		logits_file_append(&writer, logits, log_sum);
	cr_assert_eq(logits_file_close(&writer, true, &err), LAP_OK, "%s", err.text);

	size_t n_bytes;
	uint8_t *bytes = (uint8_t *)read_text(path, &n_bytes);
	const size_t n_row = 8 + 2 * (size_t)(n_vocab + n_vocab % 2), head = 20 + 8 * 4;
	cr_assert_eq(n_bytes, head + 3 * n_row);
	const uint8_t start[] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_', 8, 0, 0, 0,
		(uint8_t)n_vocab, (uint8_t)(n_vocab >> 8), 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0,
		0};
	cr_expect(memcmp(bytes, start, sizeof start) == 0);
	float scale, least;
	memcpy(&scale, bytes + head, 4);
	memcpy(&least, bytes + head + 4, 4);
	cr_expect_float_eq(scale, 16.0f / 65535, 1e-9f);
	cr_expect_float_eq((double)least, -16 - log_sum, 1e-5);
	/* 65535, then 15/16 of it, then nothing */
	const uint8_t codes[] = {0xFF, 0xFF, 0xFF, 0xEF, 0, 0};
	cr_expect(memcmp(bytes + head + 8, codes, sizeof codes) == 0);

	struct logits_reader reader;
	cr_assert_eq(logits_file_open(path, m, &reader, &err), LAP_OK, "%s", err.text);
	const float *row = logits_file_row(&reader, 0, 2);
	cr_expect_float_eq((double)row[0], -log_sum, 1e-5);
	cr_expect_float_eq((double)row[1], -1 - log_sum, 16.0 / 65535);
	int32_t *back = logits_file_tokens(&reader);
	cr_expect(memcmp(back, tokens, sizeof tokens) == 0);
	free(back);
	logits_file_release(&reader);

	/* cut at every length of its head and around its end, and with wrong numbers */
	const size_t cuts[] = {0, 7, 19, 20, 51, head, n_bytes - 1};
	for (size_t i = 0; i < ARRAY_COUNT(cuts); i++) {
		cr_expect_eq(logits_file_open(
				     write_scratch("cut.kld", bytes, cuts[i]), m, &reader, &err),
			LAP_IO, "%zu bytes", cuts[i]);
	}
	for (size_t at = 8; at < 24; at += at == 19 ? 4 : 1) { /* the header, a token's sign */
		bytes[at] ^= 0x80;
		cr_expect_neq(logits_file_open(write_scratch("flipped.kld", bytes, n_bytes), m,
				      &reader, &err),
			LAP_OK, "byte %zu", at);
		bytes[at] ^= 0x80;
	}
	free(bytes);
	free(logits);
	lap_model_close(m);
}

/* What a model's own file says of it, and what another's does: the same as compare, but for the codes. */
Test(command_score, divergence_from_a_saved_base)
{
	SKIP_WITHOUT(OTHER);
	char base[512], stories[512], other_model[512];
	snprintf(base, sizeof base, "%s", scratch("base.kld"));
	snprintf(stories, sizeof stories, "%s", shared_path(STORIES));
	snprintf(other_model, sizeof other_model, "%s", shared_path(OTHER));
	struct result r = run("perplexity", "-m", stories, CPU, "-f", story(), "-c", "32",
		"--save-all-logits", base, "--json");
	json_t *saved = parse_json(&r);
	release(&r);
	r = run("perplexity", "-m", stories, CPU, "--kl-divergence-base", base, "--kl-divergence",
		"--json");
	json_t *own = parse_json(&r), *kl = json_object_get(own, "kl");
	release(&r);
	cr_expect_float_eq(real_at(own, "perplexity"), real_at(saved, "perplexity"), 1e-9);
	cr_expect_float_eq(real_at(kl, "base_perplexity"), real_at(saved, "perplexity"), 1e-3);
	cr_expect_float_eq(real_at(kl, "kl_divergence"), 0, 1e-5);
	cr_expect_eq(real_at(kl, "same_top"), 1);

	r = run("perplexity", "-m", other_model, CPU, "--kl-divergence-base", base,
		"--kl-divergence", "-f", story(), "--json");
	json_t *other = parse_json(&r), *beside = json_object_get(other, "kl");
	release(&r);
	r = run("compare", "-m", stories, "-m", other_model, CPU, "-f", story(), "-c", "32",
		"--json");
	json_t *compared = parse_json(&r);
	release(&r);
	cr_expect_gt(real_at(beside, "kl_divergence"), 0.001);
	cr_expect_float_eq(
		real_at(beside, "kl_divergence"), real_at(compared, "kl_divergence"), 1e-5);
	cr_expect_float_eq(real_at(beside, "same_top"), real_at(compared, "same_top"), 1e-9);
	cr_expect_float_eq(real_at(other, "perplexity"), real_at(compared, "perplexity"), 1e-9);
	cr_expect_float_eq(
		real_at(saved, "perplexity"), real_at(compared, "base_perplexity"), 1e-9);
	cr_expect_float_eq(real_at(compared, "ln_ratio"),
		log(real_at(other, "perplexity") / real_at(saved, "perplexity")), 1e-6);

	const char *else_text = write_scratch("else.txt",
		"The cat sat on the mat. The cat sat on "
		"the mat. The cat sat on the mat. The cat sat on the mat. The cat sat on the mat. "
		"The cat sat on the mat. The cat sat on the mat. The cat sat on the mat.",
		191);
	expect_failure(run("perplexity", "-m", stories, CPU, "--kl-divergence-base", base,
			       "--kl-divergence", "-f", else_text),
		2, "was not made of");
	expect_failure(run("perplexity", "-m", stories, CPU, "--kl-divergence-base", base,
			       "--kl-divergence", "-c", "64"),
		2, "have 32 tokens");
	expect_failure(run("perplexity", CPU, "--kl-divergence-base", base, "--kl-divergence"), 2,
		"only models with the same tokens");
	json_decref(saved);
	json_decref(own);
	json_decref(other);
	json_decref(compared);
}

/* ---- compare --------------------------------------------------------------------------------- */

/* One model on the reference and on the device: no more apart than their rounding. */
Test(command_score, compare_devices)
{
	struct result r = run("compare", "-m", vector_path("golden/llama-freqs.gguf"), CPU, "-f",
		source_path("LICENSE"), "-c", "32", "--chunks", "2", "--json");
	json_t *json = parse_json(&r);
	cr_expect_eq(real_at(json, "kl_divergence"), 0);
	cr_expect_eq(real_at(json, "same_top"), 1);
	cr_expect_eq(number_at(json, "tokens", NULL), 2 * 15);
	cr_expect_str_eq(
		json_string_value(json_object_get(json_object_get(json, "base"), "device")), "cpu");
	json_decref(json);
	release(&r);
	r = run("compare", "-m", vector_path("golden/llama-freqs.gguf"), "-f",
		source_path("LICENSE"), "-c", "32", "--chunks", "1");
	cr_expect_eq(r.status, 0, "%s", r.err);
	cr_expect(strstr(r.out, "gguf on cpu\n"), "%s", r.out);
	cr_expect(strstr(r.out, "\nKL divergence  "), "%s", r.out);
	cr_expect(strstr(r.out, "\nsame top       "), "%s", r.out);
	release(&r);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

Test(command_score, mistakes)
{
	const char *few = write_scratch("few.txt", "It is a truth", 13);
	expect_failure(run("perplexity", CPU), 2, "-f FILE");
	expect_failure(run("compare", CPU), 2, "-f FILE");
	expect_failure(run("perplexity", CPU, "-f", few), 2, "a window needs ");
	expect_failure(run("perplexity", CPU, "-f", few, "-c", "4"), 2, "at least 8");
	expect_failure(run("perplexity", CPU, "-f", few, "-c", "8", "--ppl-stride", "40"), 2,
		"--ppl-stride 40 is too long");
	expect_failure(run("perplexity", CPU, "-f", few, "--kl-divergence"), 2,
		"needs --kl-divergence-base");
	expect_failure(
		run("perplexity", CPU, "-f", few, "--kl-divergence-base", "x", "--ppl-stride", "8"),
		2, "do not go together");
	expect_failure(run("perplexity", CPU, "--kl-divergence-base", few, "--kl-divergence"), 8,
		"no file of --save-all-logits");
	expect_failure(run("perplexity", CPU, "-f", scratch("missing.txt")), 8, "missing.txt");
	expect_failure(
		run("compare", "-m", "a", "-m", "b", "-m", "c", "-f", few), 2, "-m: given 3 times");
	expect_failure(run("compare", "-m", vector_path("golden/llama-freqs.gguf"), "-m",
			       source_path("models/austen.gguf"), CPU, "-f", source_path("LICENSE"),
			       "-c", "32"),
		2, "only models with the same tokens");
}
