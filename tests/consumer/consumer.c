/* A program of someone else's, built against the installed library. */
#include <lapilli.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct lap_error err;
	struct lap_model *model = NULL;
	const struct lap_model_options options = {.vocab_only = true};
	if (argc != 2 || strcmp(lap_version(), LAP_VERSION) != 0)
		return 2;
	if (lap_model_open(argv[1], &options, &model, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	printf("%s: %s\n", lap_version(), lap_model_info(model)->architecture);
	lap_model_close(model);
	return 0;
}
