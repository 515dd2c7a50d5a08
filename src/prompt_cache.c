/* A sequence in a file: tokens with their keys and values, for another process to go on from.
 *
 * Owns the format: struct cache_header, int32 tokens[n_tokens], then for each layer that has keys and
 * values of its own its blocks in the order of the positions, K before V, and for each recurrent layer the block
 * of states that its next position is in, of the convolution before that of the delta rule; then XXH64 of all before.
 * Of layers with a window only blocks from first_window on are there.  Numbers are little-endian, as
 * everywhere in this project.  What a block looks like inside is the backends' affair: a file is good for
 * the device that wrote it. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kv.h"
#include "session.h"
#include "session_memory.h"

#define CACHE_MAGIC    "lapilliK"
#define CACHE_FORMAT   2
#define SAMPLE_BYTES   256 /* of the start and the end of a tensor that tell one model from another */
#define CHECKSUM_BYTES sizeof(uint64_t)

struct cache_header {
	char magic[8];
	uint32_t format;
	uint32_t n_tokens;
	uint64_t n_file_bytes;
	uint64_t model; /* see model_identity */
	uint32_t n_layer;
	uint32_t n_kv; /* elements of a position's keys in all layers */
	uint32_t type_k, type_v;
	uint32_t first_window; /* first block that layers with a window have */
	uint32_t window;       /* of those layers; 0: there are none */
	uint32_t q8;           /* products took activations in 8 bits */
	uint32_t reserved;
	char lapilli[16]; /* LAP_VERSION */
	char device[128]; /* the backend's name, cut to fit */
};

static_assert(sizeof(struct cache_header) == 8 + 2 * 4 + 2 * 8 + 8 * 4 + 16 + 128, "no holes");

/* ---- identity -------------------------------------------------------------------------------- */

static void add_number(XXH64_state_t *state, uint64_t number)
{
	XXH64_update(state, &number, sizeof(number));
}

static void add_bytes(XXH64_state_t *state, const void *bytes, uint64_t n_bytes)
{
	add_number(state, n_bytes);
	if (n_bytes)
		XXH64_update(state, bytes, (size_t)n_bytes);
}

static void add_key(XXH64_state_t *state, const struct gguf_kv *kv)
{
	add_bytes(state, kv->key, strlen(kv->key));
	add_number(state, kv->type);
	add_number(state, kv->n);
	for (uint64_t i = 0; i < kv->n; i++) {
		if (kv->strings) {
			add_bytes(state, kv->strings[i].data, kv->strings[i].n);
			continue;
		}
		const double number = gguf_number(kv, i);
		XXH64_update(state, &number, sizeof(number));
	}
}

static void add_tensor(XXH64_state_t *state, const struct gguf_tensor *t)
{
	const uint64_t n = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES;
	add_bytes(state, t->name, strlen(t->name));
	add_number(state, t->weight);
	for (uint32_t i = 0; i < t->n_dims; i++)
		add_number(state, t->dims[i]);
	add_bytes(state, t->data, n);
	add_bytes(state, t->data + t->n_bytes - n, n);
}

/* Of all keys, overridden ones as they are now, and of the tensors names, shapes and some bytes: models of
 * one family differ in those alone. */
static enum lap_status model_identity(
	const struct lap_model *m, uint64_t *identity, struct lap_error *err)
{
	XXH64_state_t *state = XXH64_createState();
	if (!state)
		return fail_memory(err, "a checksum", 1);
	XXH64_reset(state, 0);
	for (uint64_t i = 0; i < m->gguf->n_kv; i++)
		add_key(state, &m->gguf->kv[i]);
	for (uint64_t i = 0; i < m->gguf->n_tensors; i++)
		add_tensor(state, &m->gguf->tensors[i]);
	*identity = XXH64_digest(state);
	XXH64_freeState(state);
	return LAP_OK;
}

/* The header of a file that this session would write, but for what depends on the tokens. */
static enum lap_status header_of(
	const struct lap_session *s, struct cache_header *h, struct lap_error *err)
{
	const struct model *m = s->m->model;
	*h = (struct cache_header){
		.format = CACHE_FORMAT,
		.n_layer = m->h.n_layer,
		.type_k = s->kv.layers[0].k_type,
		.type_v = s->kv.layers[0].v_type,
		.window = model_window(m),
		.q8 = s->q8_columns != 0,
		.lapilli = LAP_VERSION,
	};
	for (uint32_t il = 0; il < m->h.n_layer; il++)
		h->n_kv += n_kv(&m->layers[il]);
	memcpy(h->magic, CACHE_MAGIC, sizeof(h->magic));
	strncpy(h->device, s->m->backend->name, sizeof(h->device) - 1);
	return model_identity(s->m, &h->model, err);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Keys or values of the positions from start on that lie one behind the other. */
struct run {
	struct view view;
	uint32_t n; /* positions */
};

static struct run run_at(const struct lap_session *s, const struct timeline *t, uint32_t il,
	bool values, uint32_t start)
{
	const struct kv_layer *layer = &s->kv.layers[il];
	const struct block_list *list = s->m->model->layers[il].window ? &t->window : &t->full;
	const uint64_t n_bytes =
		kv_bytes(values ? layer->v_type : layer->k_type, n_kv(&s->m->model->layers[il]));
	const uint32_t first = start / KV_BLOCK;
	uint32_t end = first + 1;
	while (end < list->n && list->table[end] == list->table[first] + end - first)
		end++;
	struct run run = {.view = values ? layer->v : layer->k, .n = end * KV_BLOCK - start};
	if (run.n > t->n_past - start)
		run.n = t->n_past - start;
	run.view.offset += ((uint64_t)list->table[first] * KV_BLOCK + start % KV_BLOCK) * n_bytes;
	run.view.n_bytes = run.n * n_bytes;
	return run;
}

/* The first position that the file has of a layer's keys and values; n_tokens for one that has none. */
static uint32_t first_position(
	const struct lap_session *s, const struct cache_header *h, uint32_t il)
{
	const struct layer *layer = &s->m->model->layers[il];
	if (layer->kv_layer != il)
		return h->n_tokens;
	return layer->window ? h->first_window * KV_BLOCK : 0;
}

static uint64_t file_bytes(const struct lap_session *s, const struct cache_header *h)
{
	uint64_t n = sizeof(*h) + (uint64_t)h->n_tokens * sizeof(int32_t) + CHECKSUM_BYTES;
	for (uint32_t il = 0; il < h->n_layer; il++) {
		const struct layer_state_bytes state = layer_state_bytes(s->m->model, il);
		const uint32_t n_row = n_kv(&s->m->model->layers[il]);
		n += (uint64_t)(h->n_tokens - first_position(s, h, il)) *
				(kv_bytes(h->type_k, n_row) + kv_bytes(h->type_v, n_row)) +
			state.conv + state.delta;
	}
	return n;
}

/* The blocks of a recurrent layer's states at the timeline's next position; n_bytes 0: it has none. */
struct state_blocks {
	struct view views[2];
};

static struct state_blocks states_of(
	const struct lap_session *s, const struct timeline *t, uint32_t il)
{
	const struct layer_state_bytes n = layer_state_bytes(s->m->model, il);
	struct state_blocks b = {{s->kv.states[il].conv, s->kv.states[il].delta}};
	const uint32_t block = t->states.table ? t->states.table[t->n_past / STATE_BLOCK] : 0;
	b.views[0].offset += block * n.conv;
	b.views[0].n_bytes = n.conv;
	b.views[1].offset += block * n.delta;
	b.views[1].n_bytes = n.delta;
	return b;
}

/* ---- saving ---------------------------------------------------------------------------------- */

struct writer {
	struct file_writer file;
	XXH64_state_t *state;
};

static void put(struct writer *w, const void *bytes, uint64_t n_bytes)
{
	XXH64_update(w->state, bytes, (size_t)n_bytes);
	file_append(&w->file, bytes, n_bytes);
}

static enum lap_status put_view(
	struct lap_session *s, struct view view, struct writer *w, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	void *bytes = malloc((size_t)view.n_bytes);
	if (!bytes)
		return fail_memory(err, "a part of the KV cache", view.n_bytes);
	enum lap_status status = b->ops->read(b, view, bytes, view.n_bytes, err);
	if (!status)
		put(w, bytes, view.n_bytes);
	free(bytes);
	return status;
}

static enum lap_status put_layer(struct lap_session *s, const struct timeline *t, uint32_t il,
	bool values, uint32_t start, struct writer *w, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	while (start < t->n_past && !status) {
		const struct run run = run_at(s, t, il, values, start);
		status = put_view(s, run.view, w, err);
		start += run.n;
	}
	return status;
}

static enum lap_status put_states(struct lap_session *s, const struct timeline *t, uint32_t il,
	struct writer *w, struct lap_error *err)
{
	const struct state_blocks blocks = states_of(s, t, il);
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(blocks.views) && !status; i++)
		if (blocks.views[i].n_bytes)
			status = put_view(s, blocks.views[i], w, err);
	return status;
}

static enum lap_status put_all(struct lap_session *s, const struct timeline *t,
	const struct cache_header *h, struct writer *w, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	put(w, h, sizeof(*h));
	put(w, t->tokens, h->n_tokens * sizeof(*t->tokens));
	for (uint32_t il = 0; il < h->n_layer && !status; il++) {
		for (int values = 0; values < 2 && !status; values++)
			status = put_layer(s, t, il, values, first_position(s, h, il), w, err);
		if (!status)
			status = put_states(s, t, il, w, err);
	}
	const uint64_t sum = XXH64_digest(w->state);
	file_append(&w->file, &sum, sizeof(sum));
	return status;
}

enum lap_status lap_session_save(struct lap_session *s, const char *path, struct lap_error *err)
{
	struct timeline part = s->timelines[0]; /* its first tokens: those of prompts */
	struct cache_header h;
	struct lap_error unused;
	err = err ? err : &unused;
	part.n_past = part.n_prefill;
	if (part.n_past == 0)
		return fail(err, LAP_USAGE, "there is no prompt in the session to save");
	if (s->window.n_blocks &&
		part.window.first * KV_BLOCK > WINDOW_START(part.n_past, model_window(s->m->model)))
		return fail(err, LAP_USAGE,
			"the layers with a window have let go of the prompt of %u tokens: there "
			"is nothing to save",
			(unsigned)part.n_past);
	if (part.states.table && states_reach(&part.states, part.n_past) < part.n_past)
		return fail(err, LAP_USAGE,
			"the recurrent layers have let go of their state behind the prompt of %u "
			"tokens: there is nothing to save",
			(unsigned)part.n_past);
	enum lap_status status = header_of(s, &h, err);
	if (!status)
		status = session_copy_blocks(s, err);
	if (status)
		return status;
	h.n_tokens = part.n_past;
	h.first_window = part.window.first;
	h.n_file_bytes = file_bytes(s, &h);
	struct writer w = {.state = XXH64_createState()};
	if (!w.state)
		return fail_memory(err, "a checksum", 1);
	XXH64_reset(w.state, 0);
	status = file_create(path, &w.file, err);
	if (!status) {
		struct lap_error ignored;
		status = put_all(s, &part, &h, &w, err);
		enum lap_status closed = file_close(&w.file, !status, status ? &ignored : err);
		status = status ? status : closed;
	}
	XXH64_freeState(w.state);
	return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The bytes are what some session wrote; *h is their header. */
static enum lap_status check_file(const struct mapped_file *file, const char *path,
	struct cache_header *h, struct lap_error *err)
{
	const size_t n_least = sizeof(h->magic) + sizeof(h->format);
	uint64_t sum;
	*h = (struct cache_header){.n_tokens = 0};
	if (file->n_bytes)
		memcpy(h, file->data, file->n_bytes < sizeof(*h) ? file->n_bytes : sizeof(*h));
	if (file->n_bytes < n_least || memcmp(h->magic, CACHE_MAGIC, sizeof(h->magic)) != 0)
		return fail(err, LAP_IO, "%s is no prompt cache of Lapilli", path);
	if (h->format != CACHE_FORMAT)
		return fail(err, LAP_USAGE,
			"%s has format %u of prompt caches, expected %u: another version of "
			"Lapilli wrote it",
			path, (unsigned)h->format, (unsigned)CACHE_FORMAT);
	if (file->n_bytes < sizeof(*h) + CHECKSUM_BYTES || file->n_bytes != h->n_file_bytes)
		return fail(err, LAP_IO, "%s is damaged: it has %llu bytes, expected %llu", path,
			(unsigned long long)file->n_bytes, (unsigned long long)h->n_file_bytes);
	memcpy(&sum, file->data + file->n_bytes - CHECKSUM_BYTES, sizeof(sum));
	if (XXH64(file->data, (size_t)(file->n_bytes - CHECKSUM_BYTES), 0) != sum)
		return fail(
			err, LAP_IO, "%s is damaged: its checksum is not that of its bytes", path);
	return LAP_OK;
}

static const char *type_name(uint32_t type)
{
	static const char *const names[] = {[LAP_KV_F16] = "f16",
		[LAP_KV_F32] = "f32",
		[LAP_KV_Q8_0] = "q8_0",
		[LAP_KV_Q4_0] = "q4_0"};
	return type < ARRAY_COUNT(names) ? names[type] : "?";
}

/* Whether this session would have written the same, were its tokens the same. */
static enum lap_status check_fits(const struct lap_session *s, const char *path,
	const struct cache_header *h, const struct cache_header *own, struct lap_error *err)
{
	if (strncmp(h->lapilli, own->lapilli, sizeof(h->lapilli)) != 0)
		return fail(err, LAP_USAGE, "%s was written by Lapilli %.15s, this is %s", path,
			h->lapilli, own->lapilli);
	if (h->model != own->model || h->n_layer != own->n_layer || h->n_kv != own->n_kv ||
		h->window != own->window)
		return fail(err, LAP_USAGE, "%s was written with another model, or other overrides",
			path);
	if (strncmp(h->device, own->device, sizeof(h->device)) != 0)
		return fail(err, LAP_USAGE,
			"%s was computed by %.127s; by %s the numbers would differ", path,
			h->device, own->device);
	if (h->type_k != own->type_k || h->type_v != own->type_v)
		return fail(err, LAP_USAGE,
			"%s has keys as %s and values as %s, the session has %s and %s", path,
			type_name(h->type_k), type_name(h->type_v), type_name(own->type_k),
			type_name(own->type_v));
	if (h->q8 != own->q8)
		return fail(err, LAP_USAGE, "%s was computed with activations as %s, expected %s",
			path, h->q8 ? "q8" : "f32", own->q8 ? "q8" : "f32");
	if (h->n_tokens > s->n_ctx)
		return fail(err, LAP_USAGE, "%s has %u tokens, the context has room for %u", path,
			(unsigned)h->n_tokens, (unsigned)s->n_ctx);
	return LAP_OK;
}

/* What a checksum does not tell of a file that was made to deceive. */
static enum lap_status check_contents(const struct lap_session *s, const char *path,
	const struct cache_header *h, const int32_t *tokens, struct lap_error *err)
{
	const uint32_t window_start = h->window ? WINDOW_START(h->n_tokens, h->window) : 0;
	struct lap_error ignored;
	if (h->n_tokens == 0 || (uint64_t)h->first_window * KV_BLOCK > window_start ||
		file_bytes(s, h) != h->n_file_bytes ||
		session_check_tokens(s, tokens, h->n_tokens, &ignored))
		return fail(
			err, LAP_IO, "%s is damaged: its header is not that of its contents", path);
	return LAP_OK;
}

static enum lap_status take_layer(struct lap_session *s, const struct timeline *t, uint32_t il,
	bool values, uint32_t start, const uint8_t **from, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	enum lap_status status = LAP_OK;
	while (start < t->n_past && !status) {
		const struct run run = run_at(s, t, il, values, start);
		status = b->ops->write(b, run.view, *from, run.view.n_bytes, err);
		*from += run.view.n_bytes;
		start += run.n;
	}
	return status;
}

static enum lap_status take_states(struct lap_session *s, const struct timeline *t, uint32_t il,
	const uint8_t **from, struct lap_error *err)
{
	struct backend *b = s->m->backend;
	const struct state_blocks blocks = states_of(s, t, il);
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(blocks.views) && !status; i++) {
		const struct view view = blocks.views[i];
		if (view.n_bytes)
			status = b->ops->write(b, view, *from, view.n_bytes, err);
		*from += view.n_bytes;
	}
	return status;
}

/* Blocks of windows that the session's pool has no room for are passed over: nothing behind the file's
 * tokens sees them. */
static enum lap_status take_all(struct lap_session *s, const struct cache_header *h,
	const uint8_t *bytes, struct lap_error *err)
{
	struct timeline *t = &s->timelines[0];
	const uint32_t n_blocks = (h->n_tokens + KV_BLOCK - 1) / KV_BLOCK;
	uint32_t first_window = h->first_window;
	if (s->window.n_blocks && n_blocks - first_window > s->window.n_blocks)
		first_window = n_blocks - s->window.n_blocks;
	int32_t *tokens = array_alloc(h->n_tokens, sizeof(*tokens));
	if (!tokens)
		return fail_memory(err, "a prompt", h->n_tokens * sizeof(*tokens));
	memcpy(tokens, bytes, h->n_tokens * sizeof(*tokens));
	enum lap_status status = timeline_restore(s, t, tokens, h->n_tokens, first_window, err);
	free(tokens);
	bytes += h->n_tokens * sizeof(*tokens);
	for (uint32_t il = 0; il < h->n_layer && !status; il++) {
		const uint32_t first = first_position(s, h, il);
		const struct layer *layer = &s->m->model->layers[il];
		const bool window = layer->window && first < h->n_tokens;
		const uint32_t start = window ? first_window * KV_BLOCK : first;
		for (int values = 0; values < 2 && !status; values++) {
			const uint32_t type = values ? h->type_v : h->type_k;
			bytes += (start - first) * kv_bytes((enum kv_type)type, n_kv(layer));
			status = take_layer(s, t, il, values, start, &bytes, err);
		}
		if (!status)
			status = take_states(s, t, il, &bytes, err);
	}
	if (status)
		timeline_truncate(s, t, 0);
	return status;
}

enum lap_status lap_session_load(struct lap_session *s, const char *path, struct lap_error *err)
{
	struct mapped_file file;
	struct cache_header h, own;
	enum lap_status status = file_map(path, &file, err);
	if (status)
		return status;
	status = check_file(&file, path, &h, err);
	if (!status)
		status = header_of(s, &own, err);
	if (!status)
		status = check_fits(s, path, &h, &own, err);
	if (!status && file.n_bytes < sizeof(h) + h.n_tokens * sizeof(int32_t) + CHECKSUM_BYTES)
		status = fail(err, LAP_IO, "%s is damaged: no room for its %u tokens", path,
			(unsigned)h.n_tokens);
	if (!status)
		status = check_contents(
			s, path, &h, (const int32_t *)(const void *)(file.data + sizeof(h)), err);
	if (!status)
		status = session_copy_blocks(s, err);
	if (!status)
		status = take_all(s, &h, file.data + sizeof(h), err);
	file_unmap(&file);
	return status;
}
