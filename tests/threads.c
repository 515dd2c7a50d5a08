/* threads MODEL DEVICE: sessions of one model in several threads, each made, used and destroyed in its own; the last
 * of a thread generates without an end, until the main thread cancels it.  For ThreadSanitizer (check-threads), under
 * which Criterion does not start.  Status 1 when a text is not that of the others. */
#include <lapilli.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_THREADS  3
#define N_TEXTS    4 /* of a thread */
#define TEXT_BYTES 1024

static struct lap_model *model;

struct worker {
	pthread_t thread;
	_Atomic(struct lap_session *) endless; /* while it generates */
	char texts[N_TEXTS][TEXT_BYTES];
};

static void check(enum lap_status status, const struct lap_error *err)
{
	if (!status)
		return;
	fprintf(stderr, "threads: %s\n", err->text);
	exit(1);
}

static bool append(void *text, const struct lap_token *token)
{
	size_t n = strlen(text);
	memcpy((char *)text + n, token->text, token->n_bytes);
	((char *)text)[n + token->n_bytes] = '\0';
	return n + token->n_bytes < TEXT_BYTES / 2;
}

/* To `text`; without one for as long as nobody cancels. */
static struct lap_session *generate(char *text, struct worker *w)
{
	const char *prompt = "It is a truth universally";
	struct lap_error err;
	struct lap_session *s;
	struct lap_generation result;
	int32_t *tokens;
	size_t n;
	struct lap_generate_options options = {
		.sampling = lap_sampling_default(),
		.n_predict = text ? 12 : INT64_MAX,
		.ignore_eos = true,
		.overflow = LAP_OVERFLOW_SHIFT,
	};
	options.sampling.seed = 1;
	check(lap_session_create(model, NULL, &s, &err), &err);
	check(lap_tokenize(model, prompt, strlen(prompt), true, false, &tokens, &n, &err), &err);
	if (!text)
		atomic_store(&w->endless, s);
	check(lap_generate(s, tokens, n, &options, text ? append : NULL, text, &result, &err),
		&err);
	if (!text)
		atomic_store(&w->endless, NULL);
	if (result.finish != (text ? LAP_FINISH_LENGTH : LAP_FINISH_CANCELLED)) {
		fprintf(stderr, "threads: ended for another reason: %d\n", (int)result.finish);
		exit(1);
	}
	lap_free(tokens);
	return s;
}

static void *work(void *user)
{
	struct worker *w = user;
	for (int i = 0; i < N_TEXTS; i++)
		lap_session_destroy(generate(w->texts[i], w));
	return generate(NULL, w);
}

/* A session that is cancelled before it generates goes on: so again, until it has ended. */
static void cancel(struct worker *w)
{
	const struct timespec shortly = {.tv_nsec = 1000000};
	struct lap_session *s;
	void *last;
	while (!(s = atomic_load(&w->endless)))
		nanosleep(&shortly, NULL);
	while (atomic_load(&w->endless)) {
		nanosleep(&shortly, NULL);
		lap_session_cancel(s);
	}
	pthread_join(w->thread, &last);
	lap_session_destroy(last);
}

int main(int argc, char **argv)
{
	static struct worker workers[N_THREADS];
	struct lap_error err;
	if (argc != 3) {
		fprintf(stderr, "usage: threads MODEL DEVICE\n");
		return LAP_USAGE;
	}
	check(lap_model_open(argv[1], &(struct lap_model_options){.device = argv[2]}, &model, &err),
		&err);
	for (int i = 0; i < N_THREADS; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return 1;
	for (int i = 0; i < N_THREADS; i++)
		cancel(&workers[i]);
	lap_model_close(model);
	for (int i = 0; i < N_THREADS * N_TEXTS; i++) {
		const char *text = workers[i / N_TEXTS].texts[i % N_TEXTS];
		if (!*text || strcmp(text, workers[0].texts[0]) != 0) {
			fprintf(stderr, "threads: \"%s\", elsewhere \"%s\"\n", text,
				workers[0].texts[0]);
			return 1;
		}
	}
	printf("%d texts in %d threads: %s\n", N_THREADS * N_TEXTS, N_THREADS, workers[0].texts[0]);
	return 0;
}
