/* score MODEL TEXT: how likely a model finds each token of a text, and the perplexity of all. */
#include <lapilli.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct lap_error err;
	struct lap_model *model = NULL;
	struct lap_session *session = NULL;
	int32_t *tokens = NULL;
	float *log_probs = NULL;
	size_t n = 0;
	if (argc != 3) {
		fprintf(stderr, "usage: score MODEL TEXT\n");
		return LAP_USAGE;
	}

	/* Scores need the logits after every token, which a session computes when it is told to. */
	const struct lap_session_options options = {.logits_all = true};
	enum lap_status status = lap_model_open(argv[1], NULL, &model, &err);
	if (!status)
		status = lap_session_create(model, &options, &session, &err);
	if (!status)
		status = lap_tokenize(
			model, argv[2], strlen(argv[2]), true, false, &tokens, &n, &err);
	if (!status && !(log_probs = calloc(n + 1, sizeof *log_probs))) {
		err.status = status = LAP_NO_MEMORY;
		strcpy(err.text, "out of memory");
	}

	/* The first token has nothing before it: n - 1 scores for n tokens. */
	if (!status)
		status = lap_session_score(session, tokens, n, log_probs, &err);
	double sum = 0;
	for (size_t i = 1; i < n && !status; i++) {
		size_t n_bytes = 0;
		const char *text = lap_token_text(model, tokens[i], &n_bytes);
		printf("%8.4f  %.*s\n", (double)log_probs[i - 1], (int)n_bytes, text ? text : "");
		sum -= (double)log_probs[i - 1];
	}
	if (!status && n > 1)
		printf("perplexity %.3f\n", exp(sum / (double)(n - 1)));
	if (status)
		fprintf(stderr, "%s\n", err.text);

	free(log_probs);
	lap_free(tokens);
	lap_session_destroy(session);
	lap_model_close(model);
	return (int)status;
}
