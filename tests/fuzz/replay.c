/* Runs a fuzz target over the files and folders named: what a build without libFuzzer can do with the
 * corpus.  Prints how many inputs ran. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static unsigned n_inputs;

static void run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END)) {
		perror(path);
		exit(1);
	}
	long n = ftell(file);
	rewind(file);
	/* Exactly as long as the input, so that a sanitizer sees one byte too far. */
	uint8_t *bytes = malloc(n > 0 ? (size_t)n : 1);
	if (!bytes || fread(bytes, 1, (size_t)n, file) != (size_t)n) {
		perror(path);
		exit(1);
	}
	fclose(file);
	LLVMFuzzerTestOneInput(bytes, (size_t)n);
	free(bytes);
	n_inputs++;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		if (!dir) {
			run_file(argv[i]);
			continue;
		}
		for (struct dirent *entry; (entry = readdir(dir));) {
			char path[4096];
			if (entry->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
			run_file(path);
		}
		closedir(dir);
	}
	printf("%u inputs\n", n_inputs);
	return n_inputs ? 0 : 1;
}
