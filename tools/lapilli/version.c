/* `lapilli version`: which program this is and how it was built. */
#include "commands.h"
#include "console.h"

int command_version(const struct options *o)
{
	out_printf("lapilli %s\n", lap_version());
	if (o->verbose)
		out_printf("%sformats: %s\narchitectures: %s\n", lap_build_info(),
			lap_supported_formats(), lap_supported_architectures());
	return LAP_OK;
}
