/* Opening a model: files, directory, tokenizer, shapes, device, weights, in this order, so that
 * whatever is wrong with a file is said before anything is uploaded. */
#include "engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_info.h"
#include "check_matrices.h"
#include "session_memory.h"

/* ---- progress ---- */

/* Bytes of weights that were looked at or uploaded, of those that will be. */
struct progress {
	const struct lap_model_options *options;
	uint64_t n_done, n_total;
};

static struct progress progress_start(
	const struct lap_model *m, const struct lap_model_options *options)
{
	struct progress p = {.options = options};
	bool uploads = !options->no_weights && !options->vocab_only;
	unsigned n_passes = (options->check_tensors ? 1u : 0u) + (uploads ? 1u : 0u);
	for (uint64_t i = 0; i < m->gguf->n_tensors; i++)
		p.n_total += n_passes * m->gguf->tensors[i].n_bytes;
	return p;
}

static enum lap_status progress_add(struct progress *p, uint64_t n_bytes, struct lap_error *err)
{
	const struct lap_model_options *o = p->options;
	p->n_done += n_bytes;
	if (o->progress && !o->progress(o->user, (double)p->n_done / (double)p->n_total))
		return fail(err, LAP_ERROR, "loading was stopped");
	return LAP_OK;
}

/* ---- check_tensors ---- */

/* What is wrong with the weights of a file: the first one, and how many of its tensor. */
struct damage {
	const struct gguf_tensor *tensor; /* NULL: nothing */
	uint64_t first, n_weights, n_tensors;
	float value;
};

static enum lap_status check_tensor(const struct gguf_tensor *t, struct damage *damage,
	struct progress *progress, struct lap_error *err)
{
	const struct weight_format *f = weight_format(t->weight);
	const uint64_t slice = 1 << 20; /* weights between two words on progress */
	uint64_t n_bad = 0, first = 0;
	float value = 0;
	enum lap_status status = LAP_OK;
	for (uint64_t i = 0; i < t->n_weights && !status; i += slice) {
		uint64_t n = t->n_weights - i < slice ? t->n_weights - i : slice, at = 0;
		const uint8_t *blocks = t->data + i / f->block_weights * f->block_bytes;
		float found = 0;
		uint64_t n_found = weight_not_finite(t->weight, blocks, n, &at, &found);
		if (n_found && !n_bad) {
			first = i + at;
			value = found;
		}
		n_bad += n_found;
		status = progress_add(progress, n / f->block_weights * f->block_bytes, err);
	}
	if (n_bad && damage->n_tensors++ == 0) {
		damage->tensor = t;
		damage->first = first;
		damage->value = value;
		damage->n_weights = n_bad;
	}
	return status;
}

static enum lap_status check_tensors(
	const struct lap_model *m, struct progress *progress, struct lap_error *err)
{
	const struct gguf *g = m->gguf;
	struct damage d = {0};
	enum lap_status status = LAP_OK;
	for (uint64_t i = 0; i < g->n_tensors && !status; i++)
		status = check_tensor(&g->tensors[i], &d, progress, err);
	if (status || !d.tensor)
		return status;
	typedef unsigned long long ull;
	return fail(err, LAP_BAD_MODEL,
		"%s: %.100s (%s) has %llu weights that are NaN or infinite, expected none; the "
		"first, "
		"%g, is in row %llu, column %llu; %llu of %llu tensors have such weights",
		g->path, d.tensor->name, weight_format(d.tensor->weight)->label, (ull)d.n_weights,
		(double)d.value, (ull)(d.first / d.tensor->dims[0]),
		(ull)(d.first % d.tensor->dims[0]), (ull)d.n_tensors, (ull)g->n_tensors);
}

/* ---- weights ---- */

struct upload {
	struct lap_model *m;
	struct progress *progress;
};

static bool keep_buffer(struct lap_model *m, struct buffer *buffer)
{
	if (m->n_buffers == m->capacity) {
		uint32_t capacity = m->capacity ? m->capacity * 2 : 64;
		struct buffer **buffers = realloc(m->buffers, capacity * sizeof(*buffers));
		if (!buffers)
			return false;
		m->buffers = buffers;
		m->capacity = capacity;
	}
	m->buffers[m->n_buffers++] = buffer;
	return true;
}

/* What a matrix is split by: ROW_ALIGN rows, so that each chunk's outputs begin at a multiple of 256
 * bytes; experts stay whole. */
static uint32_t chunk_unit(const struct tensor *t)
{
	return t->n_experts ? t->n_rows / t->n_experts : ROW_ALIGN;
}

/* Whole units that fit in one view; 0: none does. */
static uint32_t rows_per_chunk(const struct tensor *t, uint64_t row_bytes, uint64_t max_bytes)
{
	uint32_t unit = chunk_unit(t);
	if (t->n_bytes + WEIGHT_PAD <= max_bytes)
		return t->n_rows;
	if (max_bytes < WEIGHT_PAD)
		return 0;
	return (uint32_t)((max_bytes - WEIGHT_PAD) / row_bytes / unit * unit);
}

/* What is uploaded as one: a tensor, or the parts of a merged one. */
struct source {
	const char *name;
	const struct tensor *parts[3]; /* they end at the first that is NULL or has no data */
};

static struct source source_of(const struct tensor *t)
{
	return (struct source){t->name, {t}};
}

static const struct tensor *source_part(const struct source *s, size_t i)
{
	return i < ARRAY_COUNT(s->parts) && s->parts[i] && s->parts[i]->data ? s->parts[i] : NULL;
}

/* All parts as one tensor, which has no bytes of its own. */
static struct tensor source_shape(const struct source *s)
{
	struct tensor t = *s->parts[0];
	const struct tensor *part;
	for (size_t i = 1; (part = source_part(s, i)); i++) {
		t.n_rows += t.n_rows > 1 ? part->n_rows : 0; /* of vectors the row gets longer */
		t.n_cols += t.n_rows > 1 ? 0 : part->n_cols;
		t.n_bytes += part->n_bytes;
	}
	return t;
}

/* Bytes first .. first + n_bytes - 1 of all parts, to the view. */
static enum lap_status write_source(struct upload *u, const struct source *s, uint64_t first,
	uint64_t n_bytes, struct view view, struct lap_error *err)
{
	struct backend *b = u->m->backend;
	enum lap_status status = LAP_OK;
	const struct tensor *part;
	for (size_t i = 0; !status && n_bytes && (part = source_part(s, i)); i++) {
		if (first >= part->n_bytes) {
			first -= part->n_bytes;
			continue;
		}
		uint64_t n = part->n_bytes - first < n_bytes ? part->n_bytes - first : n_bytes;
		status = b->ops->write(b, view, part->data + first, n, err);
		split_forget(&u->m->split, part->data + first, n);
		view.offset += n;
		view.n_bytes -= n;
		n_bytes -= n;
		first = 0;
	}
	return status;
}

static enum lap_status upload_chunk(struct upload *u, const struct source *s, uint64_t first,
	uint64_t n_bytes, struct view *view, struct lap_error *err)
{
	struct backend *b = u->m->backend;
	struct buffer *buffer = NULL;
	const uint8_t *bytes = s->parts[0]->data + first;
	bool aligned = (uintptr_t)bytes % sizeof(float) == 0;
	if (aligned && !source_part(s, 1))
		buffer = b->ops->buffer_import(b, bytes, n_bytes);
	*view = (struct view){buffer, 0, n_bytes};
	enum lap_status status = LAP_OK;
	if (!buffer) {
		status = b->ops->buffer_create(
			b, n_bytes + WEIGHT_PAD, MEMORY_DEVICE, s->name, &buffer, err);
		*view = (struct view){buffer, 0, n_bytes + WEIGHT_PAD};
		if (!status)
			status = write_source(u, s, first, n_bytes, *view, err);
	}
	if (buffer && !keep_buffer(u->m, buffer)) {
		b->ops->buffer_destroy(b, buffer);
		return fail_memory(err, s->name, sizeof(buffer));
	}
	return status ? status : progress_add(u->progress, n_bytes, err);
}

static enum lap_status upload_source(
	void *user, const struct source *s, struct weights *w, struct lap_error *err)
{
	struct upload *u = user;
	const struct tensor t = source_shape(s);
	uint64_t row_bytes = t.n_bytes / t.n_rows, max_bytes = u->m->backend->max_buffer_bytes;
	uint32_t per_chunk = rows_per_chunk(&t, row_bytes, max_bytes);
	if (per_chunk == 0)
		return fail(err, LAP_NO_MEMORY,
			"%s: %u rows of %llu bytes do not fit in the %llu bytes that %s can bind "
			"at "
			"once",
			s->name, (unsigned)chunk_unit(&t), (unsigned long long)row_bytes,
			(unsigned long long)max_bytes, u->m->backend->name);
	*w = (struct weights){
		.name = s->name,
		.weight = t.weight,
		.n_rows = t.n_rows,
		.n_cols = t.n_cols,
		.n_experts = t.n_experts,
		.rows_per_chunk = per_chunk,
		.n_chunks = (t.n_rows - 1) / per_chunk + 1,
	};
	w->chunks = array_alloc(w->n_chunks, sizeof(*w->chunks));
	if (!w->chunks)
		return fail_memory(err, s->name, w->n_chunks * sizeof(*w->chunks));
	for (uint32_t i = 0; i < w->n_chunks; i++) {
		uint64_t first = (uint64_t)i * per_chunk * row_bytes;
		uint64_t n_bytes = per_chunk * row_bytes;
		if (n_bytes > t.n_bytes - first)
			n_bytes = t.n_bytes - first;
		enum lap_status status = upload_chunk(u, s, first, n_bytes, &w->chunks[i], err);
		if (status)
			return status;
	}
	return LAP_OK;
}

/* Hands everything that a step reads to `fn`, with its place in *w where that is wanted; not LAP_OK stops. */
typedef enum lap_status weight_fn(
	void *user, const struct source *s, struct weights *w, struct lap_error *err);

static bool in_merged(
	const struct layer *l, const bool merges[N_MERGED], const struct tensor *tensor)
{
	for (enum merged i = 0; i < N_MERGED; i++) {
		const struct merged_parts m = merged_parts(l, i);
		for (size_t part = 0; merges[i] && part < ARRAY_COUNT(m.parts); part++)
			if (m.parts[part] == tensor)
				return true;
	}
	return false;
}

static enum lap_status each_layer_weight(const struct model *model, const struct layer *from,
	struct layer_weights *to, bool copies, weight_fn *fn, void *user, struct lap_error *err)
{
	bool merges[N_MERGED];
	for (enum merged i = 0; i < N_MERGED; i++)
		merges[i] = layer_merges(model, from, i, copies);
	enum lap_status status = LAP_OK;
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed)                            \
	if (!status && from->field.data && !in_merged(from, merges, &from->field)) { \
		const struct source source = source_of(&from->field);                \
		status = fn(user, &source, to ? &to->field : NULL, err);             \
	}
#define MERGED(field, a, b, c)                                                               \
	if (!status && merges[MERGED_##field]) {                                             \
		const struct merged_parts m = merged_parts(from, MERGED_##field);            \
		const struct source source = {m.name, {m.parts[0], m.parts[1], m.parts[2]}}; \
		status = fn(user, &source, to ? &to->field : NULL, err);                     \
	}
#include "model.def"
	return status;
}

static enum lap_status each_weight(const struct lap_model *m, struct model_weights *w,
	weight_fn *fn, void *user, struct lap_error *err)
{
	const struct model *model = m->model;
	enum lap_status status = LAP_OK;
#define TENSOR(field, name, n_rows, n_cols, needed)                         \
	if (!status && model->field.data &&                                 \
		!(&model->field == &model->output && model->tied_output)) { \
		const struct source source = source_of(&model->field);      \
		status = fn(user, &source, w ? &w->field : NULL, err);      \
	}
#include "model.def"
	for (uint32_t il = 0; il < model->h.n_layer && !status; il++)
		status = each_layer_weight(model, &model->layers[il], w ? &w->layers[il] : NULL,
			m->merges, fn, user, err);
	return status;
}

static enum lap_status upload_weights(
	struct lap_model *m, struct progress *progress, struct lap_error *err)
{
	const struct model *model = m->model;
	struct upload u = {m, progress};
	m->weights.layers = array_alloc(model->h.n_layer, sizeof(*m->weights.layers));
	if (!m->weights.layers)
		return fail_memory(err, "the list of layers", model->h.n_layer);
	enum lap_status status = each_weight(m, &m->weights, upload_source, &u, err);
	if (!status && model->tied_output)
		m->weights.output = m->weights.token_embd;
	return status;
}

static enum lap_status add_bytes(
	void *user, const struct source *s, struct weights *w, struct lap_error *err)
{
	(void)w, (void)err;
	*(uint64_t *)user += source_shape(s).n_bytes + WEIGHT_PAD;
	return LAP_OK;
}

uint64_t engine_weight_bytes(const struct lap_model *m)
{
	uint64_t n_bytes = 0;
	each_weight(m, NULL, add_bytes, &n_bytes, NULL);
	return n_bytes;
}

enum lap_status engine_check_memory(struct lap_model *m, struct lap_error *err)
{
	const struct lap_session_options small = {.n_ctx = 512, .n_batch = 32};
	const double mib = 1 << 20;
	struct lap_memory_plan p;
	char advice[SESSION_ADVICE_BYTES], text[512];
	enum lap_status status = lap_session_memory(m, &small, &p, err);
	uint64_t n_bytes = p.weight_bytes + p.kv_bytes + p.state_bytes + p.scratch_bytes;
	if (status || !p.available_bytes || n_bytes <= p.available_bytes)
		return status;
	snprintf(text, sizeof(text),
		"the weights need %.1f MiB and a context of %u tokens %.1f MiB; %s has %.1f MiB; "
		"%s",
		(double)p.weight_bytes / mib, (unsigned)p.n_ctx,
		(double)(n_bytes - p.weight_bytes) / mib, m->backend->name,
		(double)p.available_bytes / mib, session_advice(m, &small, advice));
	bool is_cpu = !m->backend->device || m->backend->device->type == LAP_DEVICE_CPU;
	if (p.weight_bytes > p.available_bytes && !is_cpu)
		return fail(err, LAP_NO_MEMORY, "%s: %s", m->info.path, text);
	log_line(&m->log, LAP_LOG_WARNING, "%s", text);
	return LAP_OK;
}

/* An upload that memory was not enough for: what the whole model would need. */
static enum lap_status explain_upload(struct lap_model *m, struct lap_error *err)
{
	if (!err)
		return LAP_NO_MEMORY;
	const double mib = 1 << 20;
	const struct lap_error cause = *err;
	return fail(err, LAP_NO_MEMORY, "%.400s; all weights need %.1f MiB, %s has %.1f MiB",
		cause.text, (double)engine_weight_bytes(m) / mib, m->backend->name,
		(double)m->backend->ops->available(m->backend) / mib);
}

static void free_weights(struct lap_model *m)
{
	if (m->weights.layers)
		for (uint32_t il = 0; il < m->model->h.n_layer; il++) {
			struct layer_weights *l = &m->weights.layers[il];
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) free(l->field.chunks);
#define MERGED(field, a, b, c)                            free(l->field.chunks);
#include "model.def"
		}
	free(m->weights.layers);
	if (m->model && m->model->tied_output)
		m->weights.output.chunks = NULL; /* those of token_embd */
#define TENSOR(field, name, n_rows, n_cols, needed) free(m->weights.field.chunks);
#include "model.def"
	for (uint32_t i = 0; i < m->n_buffers; i++)
		m->backend->ops->buffer_destroy(m->backend, m->buffers[i]);
	free(m->buffers);
}

/* ---- what lap_model_info shows ---- */

static const char *keep_string(struct lap_model *m, const char *data, uint64_t n)
{
	char *copy = malloc((size_t)n + 1);
	if (!copy)
		return "";
	memcpy(copy, data, (size_t)n);
	copy[n] = '\0';
	assert(m->n_strings < ARRAY_COUNT(m->strings));
	return m->strings[m->n_strings++] = copy;
}

static const char *string_of_key(struct lap_model *m, const char *key)
{
	struct gguf_string s = {0};
	if (gguf_string(m->gguf, key, &s, NULL) || !s.data)
		return NULL;
	return keep_string(m, s.data, s.n);
}

/* Bytes of a tensor that a decode step reads: of experts those that are used. */
static uint64_t bytes_read(const struct tensor *t, const struct hparams *h)
{
	return t->n_experts ? t->n_bytes / t->n_experts * h->n_expert_used : t->n_bytes;
}

/* Bytes of the weights that a decode step reads; of an embedding that is not the output matrix too,
 * one row. */
static uint64_t step_bytes(const struct model *m)
{
	uint64_t n = m->output_norm.n_bytes + m->output_norm_bias.n_bytes + m->output.n_bytes;
	n += m->token_embd.n_bytes / m->token_embd.n_rows + m->layer_proj.n_bytes;
	if (m->layer_embd.data)
		n += m->layer_embd.n_bytes / m->layer_embd.n_rows;
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) \
	n += bytes_read(&m->layers[il].field, &m->h);
#include "model.def"
	}
	return n;
}

static enum lap_status fill_info(struct lap_model *m, const char *path, struct lap_error *err)
{
	struct lap_model_info *info = &m->info;
	const struct gguf *g = m->gguf;
	info->path = keep_string(m, path, strlen(path));
	info->name = string_of_key(m, "general.name");
	info->architecture = string_of_key(m, "general.architecture");
	info->chat_template = string_of_key(m, "tokenizer.chat_template");
	info->tokenizer = m->tokenizer ? string_of_key(m, "tokenizer.ggml.model") : NULL;
	info->pre_tokenizer = string_of_key(m, "tokenizer.ggml.pre");
	info->gguf_version = g->version;
	info->n_files = m->split.n_files;
	info->file_bytes = g->n_file_bytes;
	info->bos = info->eos = -1;
	if (m->tokenizer) {
		const struct tokenizer_info *t = tokenizer_info(m->tokenizer);
		info->n_vocab = t->n_vocab;
		info->bos = t->bos;
		info->eos = t->eos;
		info->add_bos = t->add_bos;
		info->add_eos = t->add_eos;
	}
	m->tensors = array_alloc(g->n_tensors, sizeof(*m->tensors));
	if (!m->tensors)
		return fail_memory(err, "the list of tensors", g->n_tensors);
	info->n_tensors = (uint32_t)g->n_tensors;
	info->tensors = m->tensors;
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		m->tensors[i] = (struct lap_tensor_info){
			.name = t->name,
			.format = weight_format(t->weight)->label,
			.n_dims = t->n_dims,
			.dims = {t->dims[0], t->dims[1], t->dims[2], t->dims[3]},
			.n_bytes = t->n_bytes,
		};
		info->n_weights += t->n_weights;
		info->weight_bytes += t->n_bytes;
	}
	info->device_name = "";
	if (m->model) {
		const struct hparams *h = &m->model->h;
		info->n_vocab = h->n_vocab;
		info->n_ctx_train = h->n_ctx_train;
		info->n_layer = h->n_layer;
		info->n_embd = h->n_embd;
		info->n_ff = h->n_ff;
		info->n_head = h->n_head;
		info->n_head_kv = h->n_head_kv;
		info->head_dim = h->head_dim;
		info->n_rot = h->n_rot;
		info->rope_theta = h->rope_theta;
		info->rms_eps = m->model->arch->norm == ARCH_NORM_RMS ? h->rms_eps : h->norm_eps;
		info->n_expert = h->n_expert;
		info->n_expert_used = h->n_expert_used;
		for (uint32_t il = 0; il < h->n_layer; il++)
			info->n_recurrent += !attends(&m->model->layers[il]);
		info->n_window = m->model->arch->full_every ? h->n_swa : 0;
		info->step_bytes = step_bytes(m->model);
	}
	return LAP_OK;
}

/* ---- open and close ---- */

static enum lap_status open_backend(
	struct lap_model *m, const struct lap_model_options *options, struct lap_error *err)
{
	if (options->device && strcmp(options->device, "cpu") == 0) {
		enum lap_status status = cpu_open(&m->backend, err);
		uint64_t limit = options->max_chunk_bytes;
		if (!status && limit && limit < m->backend->max_buffer_bytes)
			m->backend->max_buffer_bytes = limit;
		return status;
	}
	struct vk_options vk = {
		.device = options->device,
		.max_chunk_bytes = options->max_chunk_bytes,
		.no_pipeline_cache = options->no_pipeline_cache,
		.no_tuning = options->tune == LAP_TUNE_OFF,
		.validation = options->validation,
		.log = m->log,
	};
	enum lap_status status = vk_open(&vk, &m->backend, err);
	return status ? status : check_matrices(m->backend, &m->log, err);
}

/* bytes NULL: of the file `path`. */
static enum lap_status open_parts(struct lap_model *m, const char *path, const void *bytes,
	uint64_t n_bytes, const struct lap_model_options *options, struct lap_error *err)
{
	double start = clock_seconds();
	m->log = (struct log){options->log, options->user};
	m->tune = options->tune;
	enum lap_status status = bytes ? split_open_memory(bytes, n_bytes, path, &m->split, err)
				       : split_open(path, &m->split, err);
	m->gguf = m->split.gguf;
	if (!status && options->n_overrides)
		status = gguf_override(m->gguf, options->overrides, options->n_overrides, err);
	if (!status && tokenizer_in(m->gguf))
		status = tokenizer_create(m->gguf, &m->tokenizer, err);
	if (!status && !options->vocab_only)
		status = model_create(m->gguf, &m->model, err);
	if (m->model && m->model->n_unused)
		log_line(&m->log, LAP_LOG_INFO,
			"%llu tensors of the file are not used, %s is the first",
			(unsigned long long)m->model->n_unused, m->model->unused);
	if (!status)
		status = fill_info(m, path, err);
	struct progress progress = {0};
	if (!status)
		progress = progress_start(m, options);
	if (!status && options->check_tensors)
		status = check_tensors(m, &progress, err);
	if (!status && !options->vocab_only) {
		status = open_backend(m, options, err);
		/* The reference that judges a device, and so cuts tensors as it does, lays them out alike. */
		m->merges =
			!status && m->backend && (m->backend->device || options->max_chunk_bytes);
		if (!status && !options->no_weights)
			status = engine_check_memory(m, err);
		if (!status && !options->no_weights) {
			status = upload_weights(m, &progress, err);
			if (status == LAP_NO_MEMORY)
				status = explain_upload(m, err);
		}
		if (!status) {
			m->info.device = m->backend->device;
			m->info.device_name = m->backend->name;
			m->info.device_bytes = m->backend->device_bytes;
		}
	}
	m->info.load_seconds = clock_seconds() - start;
	return status;
}

static enum lap_status open_model(const char *path, const void *bytes, uint64_t n_bytes,
	const struct lap_model_options *options, struct lap_model **model, struct lap_error *err)
{
	static const struct lap_model_options defaults;
	*model = NULL;
	struct lap_model *m = calloc(1, sizeof(*m));
	if (!m)
		return fail_memory(err, "a model", sizeof(*m));
	enum lap_status status =
		open_parts(m, path, bytes, n_bytes, options ? options : &defaults, err);
	if (status) {
		lap_model_close(m);
		return status;
	}
	*model = m;
	return LAP_OK;
}

enum lap_status lap_model_open(const char *path, const struct lap_model_options *options,
	struct lap_model **model, struct lap_error *err)
{
	return open_model(path, NULL, 0, options, model, err);
}

enum lap_status lap_model_open_memory(const void *bytes, uint64_t n_bytes, const char *name,
	const struct lap_model_options *options, struct lap_model **model, struct lap_error *err)
{
	return open_model(name, bytes ? bytes : "", n_bytes, options, model, err);
}

void lap_model_close(struct lap_model *m)
{
	if (!m)
		return;
	free_weights(m);
	if (m->backend)
		m->backend->ops->close(m->backend);
	model_destroy(m->model);
	tokenizer_destroy(m->tokenizer);
	split_close(&m->split);
	for (uint32_t i = 0; i < m->n_strings; i++)
		free(m->strings[i]);
	free(m->tensors);
	free(m);
}

const struct lap_model_info *lap_model_info(const struct lap_model *model)
{
	return &model->info;
}

/* ---- text ---- */

enum lap_status engine_tokenizer(
	const struct lap_model *m, const struct tokenizer **tokenizer, struct lap_error *err)
{
	*tokenizer = m->tokenizer;
	if (m->tokenizer)
		return LAP_OK;
	enum lap_status status = model_check_kind(m->gguf, err);
	return status ? status
		      : fail(err, LAP_BAD_MODEL,
				"%s has no tokenizer: tokenizer.ggml.model is missing or "
				"\"none\", expected \"llama\", \"gpt2\" or \"bert\"",
				m->info.path);
}

enum lap_status lap_tokenize(const struct lap_model *model, const char *text, size_t n_bytes,
	bool add_special, bool parse_special, int32_t **tokens, size_t *n, struct lap_error *err)
{
	const struct tokenizer *t;
	*tokens = NULL;
	*n = 0;
	enum lap_status status = engine_tokenizer(model, &t, err);
	if (status)
		return status;
	return tokenizer_encode(t, text, n_bytes, add_special, parse_special, tokens, n, err);
}

enum lap_status lap_detokenize(const struct lap_model *model, const int32_t *tokens, size_t n,
	bool special, char **text, size_t *n_bytes, struct lap_error *err)
{
	const struct tokenizer *t;
	struct text out = {0};
	struct decoder d = {.special = special};
	*text = NULL;
	*n_bytes = 0;
	enum lap_status status = engine_tokenizer(model, &t, err);
	if (status)
		return status;
	bool ok = text_append(&out, "", 0);
	for (size_t i = 0; ok && i < n; i++) {
		if (tokens[i] < 0 || (uint32_t)tokens[i] >= model->info.n_vocab) {
			text_free(&out);
			return fail(err, LAP_USAGE, "token %d is not in the vocabulary of %u",
				(int)tokens[i], (unsigned)model->info.n_vocab);
		}
		ok = decoder_add(t, &d, tokens[i], &out);
	}
	if (!ok || !decoder_finish(&d, &out)) {
		text_free(&out);
		return fail_memory(err, "a text", n);
	}
	*text = out.data;
	*n_bytes = out.n;
	return LAP_OK;
}

const char *lap_token_text(const struct lap_model *model, int32_t token, size_t *n_bytes)
{
	*n_bytes = 0;
	if (!model->tokenizer || token < 0 || (uint32_t)token >= model->info.n_vocab)
		return NULL;
	return tokenizer_piece(model->tokenizer, token, true, n_bytes);
}

bool lap_token_is_end(const struct lap_model *model, int32_t token)
{
	return model->tokenizer && tokenizer_is_end(model->tokenizer, token);
}

/* ---- about this build ---- */

enum lap_status lap_devices(struct lap_device **devices, uint32_t *n, struct lap_error *err)
{
	return vk_devices(devices, n, err);
}

enum lap_status lap_layers(char **names, struct lap_error *err)
{
	return vk_layers(names, err);
}

void lap_free(void *memory)
{
	free(memory);
}

const char *lap_version(void)
{
	return LAP_VERSION;
}

const char *lap_build_info(void)
{
	return BUILD_INFO;
}

const char *lap_supported_formats(void)
{
	return weight_list();
}

const char *lap_supported_architectures(void)
{
	return arch_list();
}
