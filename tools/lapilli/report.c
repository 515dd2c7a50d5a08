/* `lapilli report`: one block to paste where help is asked for. Names no file, folder, user or machine: what
 * is asked first of a fault is which program, system, device and kind of model had it.
 *
 * Looks below the public header on purpose, for what was tuned. */
#include <sys/utsname.h>
#include <unistd.h>

#include "commands.h"
#include "console.h"
#include "describe.h"
#include "engine.h"
#include "last_error.h"
#include "source.h"

static void print_system(void)
{
	struct utsname u;
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	out_printf("\nsystem\n");
	if (uname(&u) == 0)
		out_printf("   %s %s, %s\n", u.sysname, u.release, u.machine);
	out_printf("   %ld processors", sysconf(_SC_NPROCESSORS_ONLN));
	if (pages > 0 && page > 0)
		out_printf(", %s of memory", bytes_text((uint64_t)pages * (uint64_t)page));
	out_printf("\n");
}

static enum lap_status print_devices(struct lap_error *err)
{
	struct lap_device *devices;
	uint32_t n;
	enum lap_status status = lap_devices(&devices, &n, err);
	if (status)
		return status;
	out_printf("\ndevices\n%s", n ? "" : "   none\n");
	for (uint32_t i = 0; i < n; i++)
		describe_device(&devices[i], false, true); /* a uuid tells machines apart */
	lap_free(devices);
	char *layers;
	status = lap_layers(&layers, err);
	if (!status)
		describe_layers(layers);
	lap_free(layers);
	return status;
}

/* What was measured on the device that the model would run on. */
static enum lap_status print_tuning(const struct lap_model *model, struct lap_error *err)
{
	struct text text = {0};
	struct tuning *tuning = model->backend->tuning;
	if (tuning && !tuning_print(tuning, model->backend->name, &text))
		return fail_memory(err, "the list of what was tuned", text.n);
	out_printf("\ntuning\n%s", text.data ? text.data : "none\n");
	text_free(&text);
	return LAP_OK;
}

static void print_last_error(void)
{
	struct text line = {0};
	last_error_read(&line);
	out_printf("\nlast error\n   %s", line.data ? line.data : "none that is known\n");
	text_free(&line);
}

int command_report(const struct options *o)
{
	struct lap_model *model = NULL;
	struct lap_error err;
	out_printf("```\n");
	describe_program(true);
	print_system();
	enum lap_status status = print_devices(&err);
	if (!status)
		status = source_model(o, SOURCE_NO_WEIGHTS, &model, &err);
	if (!status) {
		out_printf("\nmodel%s\n", o->model ? "" : ": the one inside this program");
		describe_model(lap_model_info(model), false);
		status = print_tuning(model, &err);
	}
	lap_model_close(model);
	print_last_error();
	out_printf("```\n");
	out_flush();
	return status ? report(&err) : LAP_OK;
}
