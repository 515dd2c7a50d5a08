/* The state folder: see state.h. */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Makes the folders above the file that are missing. */
static void make_folders(char *path)
{
	for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
		*slash = '\0';
		mkdir(path, S_IRWXU);
		*slash = '/';
	}
}

bool state_path(const char *name, struct text *path)
{
	const char *base = getenv("XDG_STATE_HOME"), *below = "";
	if (!base || base[0] != '/') { /* relative paths are to be ignored (XDG base directories) */
		base = getenv("HOME");
		below = "/.local/state";
	}
	if (!base || base[0] != '/' || !text_printf(path, "%s%s/lapilli/%s", base, below, name))
		return false;
	make_folders(path->data);
	return true;
}
