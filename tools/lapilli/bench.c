/* `lapilli bench`: how fast this machine is at one of the things in bench.h. */
#include "bench.h"

#include "commands.h"
#include "console.h"

int command_bench(const struct options *o)
{
	struct lap_error err = {0};
	enum lap_status status = o->tokenizer
		? bench_tokenizer(o, &err)
		: fail(&err, LAP_USAGE, "bench needs --tokenize, all that it measures so far");
	return status ? report(&err) : LAP_OK;
}
