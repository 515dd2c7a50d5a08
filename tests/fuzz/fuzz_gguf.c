/* libFuzzer target: any bytes as a GGUF file and as a model.
 *
 * What gguf_open and model_create accept is then read as the rest of the program would, without one
 * more check: the first and last byte of everything they point to, and a row of each format. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint64_t sink; /* keeps the reads below alive */

static void touch(const void *bytes, uint64_t n)
{
	const uint8_t *b = bytes;
	if (n)
		sink += (uint64_t)b[0] + b[n - 1];
}

static void read_kv(const struct gguf *g, const struct gguf_kv *kv)
{
	if (gguf_find(g, kv->key) != kv)
		abort();
	char shown[GGUF_SHOW_BYTES];
	bool strings =
		kv->type == GGUF_STRING || (kv->type == GGUF_ARRAY && kv->element == GGUF_STRING);
	for (uint64_t i = 0; i < kv->n; i++) {
		if (strings) {
			touch(kv->strings[i].data, kv->strings[i].n);
			touch(gguf_show(kv->strings[i], shown), 1);
		} else {
			double value = gguf_number(kv, i);
			touch(&value, sizeof value);
		}
	}
	uint32_t u = 0;
	float f = 0;
	bool b = false;
	struct gguf_string s = {0};
	sink += (uint64_t)gguf_u32(g, kv->key, &u, NULL) +
		(uint64_t)gguf_f32(g, kv->key, &f, NULL) +
		(uint64_t)gguf_bool(g, kv->key, &b, NULL) +
		(uint64_t)gguf_string(g, kv->key, &s, NULL);
	touch(s.data, s.n);
}

static void read_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
	if (gguf_find_tensor(g, t->name) != t)
		abort();
	touch(t->data, t->n_bytes);
	float *row = t->dims[0] <= 4096 ? malloc(t->dims[0] * sizeof *row) : NULL;
	if (row) {
		weight_format(t->weight)->decode(t->data, t->dims[0], row);
		touch(row, t->dims[0] * sizeof *row);
	}
	free(row);
}

static void read_model(const struct model *m)
{
	const struct hparams *h = &m->h;
	touch(m->token_embd.data, m->token_embd.n_bytes);
	touch(m->output.data, m->output.n_bytes);
	for (uint32_t il = 0; il < h->n_layer; il++) {
		const struct layer *l = &m->layers[il];
#define LAYER_TENSOR(field, name, n_rows, n_cols, needed) \
	touch(l->field.data, l->field.data ? l->field.n_bytes : 0);
#include "model.def"
		if (l->head_dim == 0 || h->n_head % l->n_head_kv || l->n_rot > l->head_dim)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct lap_error err = {0};
	struct gguf *g = NULL;
	struct model *m = NULL;
	enum lap_status status = gguf_open(data, n, "fuzz", &g, &err);
	if (status && (status != LAP_BAD_MODEL || !err.text[0]))
		abort();
	if (status)
		return 0;
	for (uint64_t i = 0; i < g->n_kv; i++)
		read_kv(g, &g->kv[i]);
	for (uint64_t i = 0; i < g->n_tensors; i++)
		read_tensor(g, &g->tensors[i]);
	status = model_create(g, &m, &err);
	if (status && (status != LAP_BAD_MODEL || strchr(err.text, '\n')))
		abort();
	if (!status)
		read_model(m);
	model_destroy(m);
	gguf_close(g);
	return 0;
}
