/* generate MODEL PROMPT: continues a text, each piece as it comes. */
#include <lapilli.h>
#include <stdio.h>
#include <string.h>

static int report(const struct lap_error *err)
{
	fprintf(stderr, "%s\n", err->text);
	return (int)err->status;
}

/* Text comes in whole characters. False would end the generation. */
static bool print_token(void *user, const struct lap_token *token)
{
	(void)user;
	return fwrite(token->text, 1, token->n_bytes, stdout) == token->n_bytes &&
		fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
	struct lap_error err;
	struct lap_model *model = NULL;
	struct lap_session *session = NULL;
	int32_t *tokens = NULL;
	size_t n = 0;
	if (argc != 3) {
		fprintf(stderr, "usage: generate MODEL PROMPT\n");
		return LAP_USAGE;
	}

	/* A model without options goes to the best device; a session has the model's context. */
	enum lap_status status = lap_model_open(argv[1], NULL, &model, &err);
	if (!status)
		status = lap_session_create(model, NULL, &session, &err);
	if (!status)
		status = lap_tokenize(
			model, argv[2], strlen(argv[2]), true, false, &tokens, &n, &err);

	struct lap_generate_options options = {
		.sampling = lap_sampling_default(),
		.n_predict = 40,
	};
	options.sampling.seed = 1; /* the same text each time; LAP_SEED_RANDOM for another */
	struct lap_generation result;
	if (!status)
		status = lap_generate(
			session, tokens, n, &options, print_token, NULL, &result, &err);
	if (!status) {
		printf("\n");
		fprintf(stderr, "%zu tokens in %.2f s on %s\n", result.n_generated,
			result.decode_seconds, lap_model_info(model)->device_name);
	}

	lap_free(tokens);
	lap_session_destroy(session); /* before its model */
	lap_model_close(model);
	return status ? report(&err) : 0;
}
