/* `lapilli man`: a manual page, made of the rows that make --help. */
#include "commands.h"
#include "console.h"

int command_man(const struct options *o)
{
	struct lap_error err;
	return options_man(o->page, stdout, &err) ? report(&err) : LAP_OK;
}
