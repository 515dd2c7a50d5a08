/* `lapilli version`: which program this is and how it was built. */
#include "commands.h"
#include "console.h"
#include "describe.h"

void describe_program(bool verbose)
{
	out_printf("lapilli %s\n", lap_version());
	if (verbose)
		out_printf("%sformats: %s\narchitectures: %s\n", lap_build_info(),
			lap_supported_formats(), lap_supported_architectures());
}

int command_version(const struct options *o)
{
	describe_program(o->verbose);
	return LAP_OK;
}
