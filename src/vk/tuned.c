/* Reading and writing the tuning file: see tuned.h. */
#include "tuned.h"

#include "cache.h"
#include "spirv.h"

/* One line. */
static bool print_key(const struct lap_device *d, struct text *key)
{
	return text_printf(key,
		"lapilli tuning 1: version %s, shaders %s, driver version %u, api %u, %.200s, "
		"%.200s",
		LAP_VERSION, spirv_hash(), (unsigned)d->driver_version, (unsigned)d->api_version,
		d->name, d->driver);
}

/* What another hand wrote into the file may be more than the device can run. */
static bool all_fit(const struct lap_device *d, const struct tuning *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (!knobs_fit(t->items[i].of.kernel, t->items[i].knobs, d->max_invocations,
			    d->subgroup_max, d->max_shared_bytes))
			return false;
	return true;
}

static void read_file(const struct lap_device *d, const struct log *log, struct tuning *t)
{
	struct text path = {0}, key = {0}, text = {0};
	struct lap_error err;
	if (print_key(d, &key) && cache_path(d, CACHE_TUNING, &path)) {
		const char *miss = file_read(path.data, &text, &err) ? err.text
			: !text.data                                 ? "it is empty"
				     : tuning_parse(t, key.data, text.data);
		if (!miss && !all_fit(d, t))
			miss = "it has values that the device cannot run";
		if (miss) {
			tuning_clear(t);
			log_line(log, LAP_LOG_DEBUG, "tuning: %s is not used: %s", path.data, miss);
		}
	}
	text_free(&path);
	text_free(&key);
	text_free(&text);
}

void tuned_open(struct vk *v)
{
	tuning_init(&v->tuning);
	v->base.tuning = &v->tuning;
	read_file(&v->info, &v->log, &v->tuning);
	if (!v->tuning_file)
		tuning_forget_speeds(&v->tuning);
	tuning_list_off(&v->tuning, v->info.switched_off, sizeof v->info.switched_off);
}

void tuned_list_off(struct lap_device *d)
{
	struct tuning tuning;
	tuning_init(&tuning);
	read_file(d, &(struct log){0}, &tuning);
	tuning_list_off(&tuning, d->switched_off, sizeof d->switched_off);
	tuning_free(&tuning);
}

void tuned_close(struct vk *v)
{
	if (v->base.tuning)
		tuning_free(&v->tuning);
}

enum lap_status tuned_save(struct backend *b, struct lap_error *err)
{
	struct vk *v = (struct vk *)b;
	struct text path = {0}, key = {0}, text = {0};
	enum lap_status status = LAP_OK;
	if (!v->tuning_file)
		return LAP_OK;
	if (!print_key(&v->info, &key) || !tuning_print(&v->tuning, key.data, &text))
		status = fail_memory(err, "the tuning file", text.n);
	else if (!cache_path(&v->info, CACHE_TUNING, &path))
		status = fail(err, LAP_IO,
			"the tuning has no place: neither XDG_CACHE_HOME nor HOME names a folder");
	else
		status = cache_write(path.data, text.data, text.n, err);
	text_free(&path);
	text_free(&key);
	text_free(&text);
	return status;
}
