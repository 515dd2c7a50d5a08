/* From what a user calls a model to the path of its file: folders, and what other programs keep on this
 * machine.  Owns the layouts of their caches (the Hugging Face hub's, llama.cpp's, ollama's, LM Studio's),
 * where they lie, and which of several files is meant.  Never asks a network, and opens no model.
 *
 * A name is NAME[:TAG], USER/REPO[:QUANT], or HOST/USER/NAME[:TAG] as ollama has them; letters' case does not
 * count, and a "-GGUF" at the end of a repository may be left out where no user is given. */
#ifndef LAPILLI_LOCATE_H
#define LAPILLI_LOCATE_H

#include "base.h"

/* -m `model` or -hf `repo` with -hff `file`, each NULL when not given, as a path in *path; where the model
 * is a file, or a path that can be no name, or nothing is given, *path stays empty.  A split model is its
 * first part; files that go with a model (mmproj, imatrix) are passed over.  LAP_USAGE: options that do not
 * go together, or several files fit, which are listed.  LAP_IO: nothing fits: says what was looked for and
 * each place. */
enum lap_status locate_model(const char *model, const char *repo, const char *file,
	struct text *path, struct lap_error *err);

#endif
