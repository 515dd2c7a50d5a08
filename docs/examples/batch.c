/* batch MODEL PROMPT...: continues several texts together, as many at a time as the session has sequences. */
#include <lapilli.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQ = 4, N_PREDICT = 12 };

/* A text that is written while others are, too. */
struct text {
	char bytes[1024];
	size_t n;
};

static bool append(void *user, const struct lap_token *token)
{
	struct text *text = user;
	if (token->n_bytes > sizeof text->bytes - text->n)
		return false;
	memcpy(text->bytes + text->n, token->text, token->n_bytes);
	text->n += token->n_bytes;
	return true;
}

int main(int argc, char **argv)
{
	const size_t n = argc > 2 ? (size_t)argc - 2 : 0;
	struct lap_error err;
	struct lap_model *model = NULL;
	struct lap_session *session = NULL;
	struct lap_request *requests = calloc(n + 1, sizeof *requests);
	struct text *texts = calloc(n + 1, sizeof *texts);
	int32_t **prompts = calloc(n + 1, sizeof *prompts);
	if (n == 0 || !requests || !texts || !prompts) {
		fprintf(stderr, "usage: batch MODEL PROMPT...\n");
		return LAP_USAGE;
	}

	/* Sequences share the KV cache: room for n_ctx tokens of all of them. */
	const struct lap_session_options sequences = {.n_seq = N_SEQ, .n_ctx = N_SEQ * 256};
	enum lap_status status = lap_model_open(argv[1], NULL, &model, &err);
	if (!status)
		status = lap_session_create(model, &sequences, &session, &err);

	/* A zeroed sampling is greedy: always the most likely token. */
	const struct lap_generate_options options = {.n_predict = N_PREDICT};
	for (size_t i = 0; i < n && !status; i++) {
		requests[i] = (struct lap_request){
			.options = &options, .on_token = append, .user = &texts[i]};
		status = lap_tokenize(model, argv[i + 2], strlen(argv[i + 2]), true, false,
			&prompts[i], &requests[i].n, &err);
		requests[i].prompt = prompts[i];
	}
	if (!status)
		status = lap_generate_batch(session, requests, n, &err);

	/* A request may fail alone: a prompt that is too long, say. */
	for (size_t i = 0; i < n && !status; i++)
		if (requests[i].status)
			printf("%s: %s\n", argv[i + 2], requests[i].error.text);
		else
			printf("%s%.*s\n", argv[i + 2], (int)texts[i].n, texts[i].bytes);
	if (status)
		fprintf(stderr, "%s\n", err.text);

	for (size_t i = 0; i < n; i++)
		lap_free(prompts[i]);
	free(prompts);
	free(texts);
	free(requests);
	lap_session_destroy(session);
	lap_model_close(model);
	return (int)status;
}
