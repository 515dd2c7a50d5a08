/* `lapilli bench`: how fast this machine is at one of the things in bench.h. */
#include "bench.h"

#include "commands.h"
#include "console.h"
#include "signals.h"

int command_bench(const struct options *o)
{
	struct lap_error err = {0};
	struct options own = *o;
	own.prompt = o->bench_prompt; /* with --tokenize a text */
	enum lap_status status = LAP_OK;
	interrupt_install();
	if (o->tokenizer)
		status = bench_tokenizer(&own, &err);
	else if (o->file)
		status = fail(&err, LAP_USAGE, "-f is for bench --tokenize, which measures texts");
	else if (o->kernel)
		status = bench_kernel(o, &err);
	else if (o->format || o->shape.n)
		status = fail(&err, LAP_USAGE,
			"--format and --shape are for bench --kernel, which is missing");
	else
		status = bench_speed(o, &err);
	if (interrupted() && (!status || status == LAP_ERROR))
		return interrupt_status();
	return status ? report(&err) : LAP_OK;
}
