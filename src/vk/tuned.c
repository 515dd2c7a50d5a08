/* Reading and writing the tuning file: see tuned.h. */
#include "tuned.h"

#include "cache.h"
#include "spirv.h"

/* One line. */
static bool print_key(const struct vk *v, struct text *key)
{
	return text_printf(key,
		"lapilli tuning 1: version %s, shaders %s, driver version %u, api %u, %.200s, "
		"%.200s",
		LAP_VERSION, spirv_hash(), (unsigned)v->info.driver_version,
		(unsigned)v->info.api_version, v->info.name, v->info.driver);
}

/* What another hand wrote into the file may be more than the device can run. */
static bool all_fit(const struct vk *v)
{
	for (uint32_t i = 0; i < v->tuning.n; i++)
		if (!knobs_fit(v->tuning.items[i].of.kernel, v->tuning.items[i].knobs,
			    v->info.max_invocations, v->info.subgroup_max,
			    v->info.max_shared_bytes))
			return false;
	return true;
}

void tuned_open(struct vk *v)
{
	struct text path = {0}, key = {0}, text = {0};
	struct lap_error err = {.text = "no place for it"};
	tuning_init(&v->tuning);
	v->base.tuning = &v->tuning;
	if (v->tuning_file && print_key(v, &key) && cache_path(&v->info, CACHE_TUNING, &path)) {
		const char *miss = file_read(path.data, &text, &err) ? err.text
			: !text.data                                 ? "it is empty"
				     : tuning_parse(&v->tuning, key.data, text.data);
		if (!miss && !all_fit(v))
			miss = "it has values that the device cannot run";
		if (miss)
			tuning_clear(&v->tuning);
		if (miss)
			log_line(&v->log, LAP_LOG_DEBUG, "tuning: %s is not used: %s", path.data,
				miss);
	}
	text_free(&path);
	text_free(&key);
	text_free(&text);
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
	if (!print_key(v, &key) || !tuning_print(&v->tuning, key.data, &text))
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
