/* `lapilli logits`: the logits after each token of a list, as raw numbers for other programs. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "source.h"

static void to_little_endian(float *values, size_t n)
{
	const union {
		uint32_t word;
		uint8_t first;
	} probe = {1};
	if (probe.first == 1)
		return;
	for (size_t i = 0; i < n; i++) {
		uint32_t word;
		memcpy(&word, &values[i], sizeof word);
		word = word >> 24 | (word >> 8 & 0xFF00) | (word & 0xFF00) << 8 | word << 24;
		memcpy(&values[i], &word, sizeof word);
	}
}

static enum lap_status write_values(
	const char *path, float *values, size_t n, struct lap_error *err)
{
	to_little_endian(values, n);
	if (strcmp(path, "-") != 0)
		return file_write(path, values, n * sizeof *values, err);
	out_write(values, n * sizeof *values); /* console_close reports a failure */
	return LAP_OK;
}

int command_logits(const struct options *o)
{
	struct lap_error err = {0};
	if (o->tokens.n == 0) {
		fail(&err, LAP_USAGE, "logits needs --tokens IDS, as 1,2,3");
		return report(&err);
	}
	if (!o->output) {
		fail(&err, LAP_USAGE, "logits needs -o FILE (-: standard output)");
		return report(&err);
	}
	struct lap_model *model = NULL;
	struct lap_session *session = NULL;
	float *values = NULL;
	struct lap_session_options options = source_session(o);
	options.logits_all = true;
	enum lap_status status = source_model(o, SOURCE_MODEL, &model, &err);
	if (!status)
		status = lap_session_create(model, &options, &session, &err);
	if (!status) {
		size_t n_vocab = lap_model_info(model)->n_vocab;
		uint64_t n = 0; /* values */
		if (!size_mul(o->tokens.n, n_vocab, &n) ||
			!(values = array_alloc(n, sizeof *values)))
			status = fail_memory(&err, "the logits", n * sizeof *values);
		if (!status)
			status = lap_session_logits(
				session, o->tokens.ids, o->tokens.n, values, &err);
		if (!status)
			status = write_values(o->output, values, (size_t)n, &err);
	}
	free(values);
	lap_session_destroy(session);
	lap_model_close(model);
	return status ? report(&err) : LAP_OK;
}
