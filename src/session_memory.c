/* Sizes of a session's buffers, their sums, and the context that fits: see session_memory.h. */
#include "session_memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "kv.h"
#include "parts.h"

#define DEFAULT_N_CTX   4096  /* tokens, where the model allows as many */
#define DEFAULT_N_BATCH 512   /* rows of a prefill step */
#define FEW_ROWS        64    /* of the other recording of prefill: two tiles of products */
#define MAX_ROWS        65535 /* of a step: workgroups along one axis of a dispatch */
#define LOGITS_N_BATCH  64    /* the same where every row gets logits: they are large */
#define BUFFER_UNIT     256   /* bytes that every buffer is rounded up to */
#define MIN_AHEAD       128   /* positions that decode may be ahead of what is known */

/* ---- shape ---- */

uint32_t model_window(const struct model *m)
{
	uint32_t window = 0;
	for (uint32_t il = 0; il < m->h.n_layer; il++)
		if (m->layers[il].window > window)
			window = m->layers[il].window;
	return window;
}

bool model_is_recurrent(const struct model *m)
{
	for (uint32_t il = 0; il < m->h.n_layer; il++)
		if (m->layers[il].mixer != MIXER_ATTENTION)
			return true;
	return false;
}

static uint32_t n_blocks_of(uint64_t n_positions)
{
	return (uint32_t)((n_positions + KV_BLOCK - 1) / KV_BLOCK);
}

/* n_pool positions are shared by all sequences, and each may have a block that is not full.  Of layers with
 * a window a sequence needs what a chunk writes and what its first row looks back to. */
static void shape_tables(struct lap_session *s)
{
	const struct hparams *h = &s->m->model->h;
	const uint32_t n_blocks = n_blocks_of(s->n_ctx), window = model_window(s->m->model);
	const uint32_t ahead = s->n_batch > MIN_AHEAD ? s->n_batch : MIN_AHEAD;
	s->n_full_blocks = n_blocks_of(s->n_pool) + s->n_seq - 1;
	if (window && window < s->n_ctx) {
		uint64_t n = (uint64_t)s->n_seq * (n_blocks_of((uint64_t)window + ahead) + 1);
		s->n_window_blocks = n < s->n_full_blocks ? (uint32_t)n : s->n_full_blocks;
	} else if (window)
		s->n_window_blocks = s->n_full_blocks;
	s->kv.full = (struct kv_shape){
		.n_head = h->n_head,
		.n_blocks = n_blocks,
		.n_ctx = s->n_ctx,
	};
	s->kv.window = s->kv.full;
	s->n_state_blocks = model_is_recurrent(s->m->model) ? s->n_seq * STATE_HELD : 0;
	s->kv.state.n_blocks = s->n_ctx / STATE_BLOCK + 1; /* with that behind the last position */
}

/* ---- steps ---- */

static void place(struct lap_session *s, struct prepared *p, uint32_t n_rows)
{
	const uint64_t n_bytes = sizeof(struct step_header) + n_rows * sizeof(struct step_row);
	const uint64_t sizes_bytes = MAX_SIZES * sizeof(struct dispatch_size);
	p->step_view = (struct view){.offset = s->steps.n_bytes, .n_bytes = n_bytes};
	p->sizes = (struct view){.offset = s->sizes.n_bytes, .n_bytes = sizes_bytes};
	s->steps.n_bytes += (n_bytes + BUFFER_UNIT - 1) / BUFFER_UNIT * BUFFER_UNIT;
	s->sizes.n_bytes += (sizes_bytes + BUFFER_UNIT - 1) / BUFFER_UNIT * BUFFER_UNIT;
}

/* All prepared plans share a buffer for their steps and one for their sizes; those of prefill share the step,
 * too.  One for few rows is worth recording where products are split by how many there are. */
static void shape_steps(struct lap_session *s)
{
	const uint32_t n_layer = s->m->model->h.n_layer;
	s->n_groups = (n_layer + GROUP_LAYERS - 1) / GROUP_LAYERS;
	if (s->n_groups > MAX_LAYER_GROUPS)
		s->n_groups = MAX_LAYER_GROUPS;
	s->n_few = s->m->backend->parts_bytes && s->n_batch > FEW_ROWS ? FEW_ROWS : 0;
	for (uint32_t bucket = 0; bucket < (s->n_few ? N_PREFILLS : 1); bucket++)
		for (uint32_t i = 0; i < s->n_groups; i++) {
			place(s, &s->prefill[bucket][i], bucket || i ? 0 : s->n_batch);
			s->prefill[bucket][i].step_view = s->prefill[0][0].step_view;
		}
	for (uint32_t kind = 0; kind < N_STEP_KINDS; kind++)
		for (uint32_t i = 0; 1u << i <= s->max_rows; i++)
			place(s, &s->decode[kind][i], 1u << i);
	place(s, &s->copy, MAX_COPIES);
	place(s, &s->shift, s->n_batch);
}

static bool is_quantised(enum lap_kv_type type)
{
	return type == LAP_KV_Q8_0 || type == LAP_KV_Q4_0;
}

/* Quantised rows of K and V are cut into units, which heads must fill. */
static enum lap_status check_kv_types(
	const struct model *m, const struct lap_session_options *o, struct lap_error *err)
{
	const bool quantised = is_quantised(o->type_k) || is_quantised(o->type_v);
	for (uint32_t il = 0; il < m->h.n_layer && quantised; il++)
		if (m->layers[il].head_dim % KV_UNIT)
			return fail(err, LAP_USAGE,
				"heads of %u elements cannot be kept as q8_0 or q4_0, expected a "
				"multiple of %u: use f16 or f32",
				(unsigned)m->layers[il].head_dim, (unsigned)KV_UNIT);
	return LAP_OK;
}

/* Rows of a step whose activations the backend can bind, at least 1, at most MAX_ROWS. */
static uint32_t rows_that_fit(const struct lap_session *s)
{
	struct activations a;
	struct activation_shape list[N_ACTIVATIONS];
	const uint64_t max_bytes = s->m->backend->max_buffer_bytes;
	activations_shape(&a, s->m->model, list);
	uint64_t n = MAX_ROWS;
	for (size_t i = 0; i < N_ACTIVATIONS; i++) {
		const struct activation_shape *shape = &list[i];
		uint64_t row_bytes = (uint64_t)shape->rows->stride * shape->per_row * sizeof(float);
		bool few = shape->rows == &a.logits && !s->logits_all;
		if (row_bytes && !few && n * row_bytes > max_bytes)
			n = max_bytes / row_bytes;
		if (row_bytes && n * shape->per_row > MAX_ROWS)
			n = MAX_ROWS / shape->per_row;
	}
	return n ? (uint32_t)n : 1;
}

/* Learned positions end where their table ends. */
static void limit_context(struct lap_session *s)
{
	const struct tensor *positions = &s->m->model->position_embd;
	if (positions->data && s->n_ctx > positions->n_rows)
		s->n_ctx = positions->n_rows;
}

enum lap_status session_shape(struct lap_session *s, struct lap_model *m,
	const struct lap_session_options *o, struct lap_error *err)
{
	if (!m->model)
		return fail(err, LAP_USAGE, "%s was opened for its vocabulary only", m->info.path);
	uint32_t n_ctx_train = m->model->h.n_ctx_train, n_layer = m->model->h.n_layer;
	enum lap_status status = check_kv_types(m->model, o, err);
	if (status)
		return status;
	s->m = m;
	s->n_seq = o->n_seq ? o->n_seq : 1;
	if (s->n_seq > MAX_SEQUENCES)
		return fail(err, LAP_USAGE, "%u sequences, expected at most %u", (unsigned)s->n_seq,
			(unsigned)MAX_SEQUENCES);
	if (o->n_draft >= MAX_STEP_ROWS)
		return fail(err, LAP_USAGE, "%u draft tokens, expected at most %u",
			(unsigned)o->n_draft, (unsigned)MAX_STEP_ROWS - 1);
	if (o->n_top > MAX_TOP)
		return fail(err, LAP_USAGE, "log-probabilities of %u tokens, expected at most %u",
			(unsigned)o->n_top, (unsigned)MAX_TOP);
	s->n_top = o->n_top < m->info.n_vocab ? o->n_top : m->info.n_vocab;
	s->max_rows = 1;
	while (s->max_rows < s->n_seq || s->max_rows < o->n_draft + 1)
		s->max_rows *= 2;
	s->n_ctx = o->n_ctx ? o->n_ctx : n_ctx_train < DEFAULT_N_CTX ? n_ctx_train : DEFAULT_N_CTX;
	s->n_pool = s->n_ctx;
	if (o->n_ctx_seq && o->n_ctx_seq < s->n_ctx)
		s->n_ctx = o->n_ctx_seq;
	limit_context(s);
	if (s->n_pool > (uint64_t)s->n_seq * s->n_ctx)
		s->n_pool = s->n_seq * s->n_ctx;
	s->n_batch = o->n_batch ? o->n_batch : DEFAULT_N_BATCH;
	s->logits_all = o->logits_all;
	s->q8_columns = o->activations == LAP_ACTIVATIONS_Q8 ? forward_q8_columns(m->model) : 0;
	if (s->logits_all && s->n_batch > LOGITS_N_BATCH)
		s->n_batch = LOGITS_N_BATCH;
	if (s->n_batch > s->n_ctx)
		s->n_batch = s->n_ctx;
	uint32_t n_fit = rows_that_fit(s);
	if (s->n_batch > n_fit)
		s->n_batch = n_fit;
	shape_tables(s);
	shape_steps(s);
	s->kv.layers = array_alloc(n_layer, sizeof(*s->kv.layers));
	s->kv.states = array_alloc(n_layer, sizeof(*s->kv.states));
	if (!s->kv.layers || !s->kv.states)
		return fail_memory(err, "the KV cache's list", n_layer * sizeof(*s->kv.layers));
	for (uint32_t il = 0; il < n_layer; il++) {
		s->kv.layers[il].k_type = (enum kv_type)o->type_k;
		s->kv.layers[il].v_type = (enum kv_type)o->type_v;
	}
	return LAP_OK;
}

/* ---- the list of buffers ---- */

struct visit {
	session_need_fn *fn;
	void *user;
	struct lap_error *err;
};

static enum lap_status visit_activations(struct lap_session *s, const struct visit *v)
{
	struct activation_shape list[N_ACTIVATIONS];
	activations_shape(&s->activations, s->m->model, list);
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < N_ACTIVATIONS && !status; i++) {
		struct rows *rows = list[i].rows;
		uint64_t n_rows = s->n_batch > s->max_rows ? s->n_batch : s->max_rows;
		if (rows == &s->activations.logits && !s->logits_all)
			n_rows = s->max_rows;
		n_rows *= list[i].per_row;
		const struct session_need need = {&rows->view,
			n_rows * rows->stride * sizeof(float), MEMORY_DEVICE, list[i].name,
			NEED_SCRATCH};
		if (rows->n)
			status = v->fn(v->user, &need, v->err);
	}
	return status;
}

/* Keeps no more than its window. */
static bool is_bounded(const struct lap_session *s, uint32_t il)
{
	return s->m->model->layers[il].window && s->n_window_blocks < s->n_full_blocks;
}

/* Bytes of one position's keys (i 0) or values (i 1); 0 for a layer that looks at another's. */
static uint64_t position_bytes(const struct lap_session *s, uint32_t il, uint32_t i)
{
	const struct kv_layer *l = &s->kv.layers[il];
	if (s->m->model->layers[il].kv_layer != il)
		return 0;
	return kv_bytes(i ? l->v_type : l->k_type, n_kv(&s->m->model->layers[il]));
}

static enum lap_status visit_kv(struct lap_session *s, const struct visit *v)
{
	enum lap_status status = LAP_OK;
	for (uint32_t il = 0; il < s->m->model->h.n_layer; il++)
		for (uint32_t i = 0; i < 2 && !status; i++) {
			struct kv_layer *l = &s->kv.layers[il];
			uint64_t n_positions = (uint64_t)KV_BLOCK *
				(s->m->model->layers[il].window ? s->n_window_blocks
								: s->n_full_blocks);
			const struct session_need need = {i ? &l->v : &l->k,
				n_positions * position_bytes(s, il, i), MEMORY_DEVICE,
				"a layer of the KV cache", NEED_KV};
			if (need.n_bytes)
				status = v->fn(v->user, &need, v->err);
		}
	return status;
}

/* Floats of a row's partial attention, for the layer that needs most. */
static uint64_t partial_floats(const struct lap_session *s)
{
	const struct model *m = s->m->model;
	uint64_t largest = 0;
	for (uint32_t il = 0; il < m->h.n_layer; il++) {
		const struct layer *l = &m->layers[il];
		uint64_t n = (uint64_t)m->h.n_head * attention_slices(s->n_ctx, l->window) *
			(2 + l->head_dim);
		largest = n > largest ? n : largest;
	}
	return largest;
}

/* Room for the sums of all parts of the widest product, or as much as the backend uses. */
static uint64_t parts_bytes(const struct lap_session *s)
{
	struct activations a;
	struct activation_shape list[N_ACTIVATIONS];
	uint64_t widest = 0, most = s->m->backend->parts_bytes;
	activations_shape(&a, s->m->model, list);
	for (size_t i = 0; i < N_ACTIVATIONS; i++)
		if (list[i].rows != &a.logits && list[i].rows->stride > widest)
			widest = list[i].rows->stride;
	const uint64_t n_bytes = MAX_PARTS * s->n_batch * widest * sizeof(float);
	return n_bytes < most ? n_bytes : most;
}

static uint64_t rope_bytes(const struct lap_session *s, uint32_t n_rot)
{
	return (uint64_t)s->n_ctx * (n_rot / 2) * 2 * sizeof(float);
}

static enum lap_status visit_states(struct lap_session *s, const struct visit *v)
{
	enum lap_status status = LAP_OK;
	for (uint32_t il = 0; il < s->m->model->h.n_layer; il++) {
		const struct layer_state_bytes n = layer_state_bytes(s->m->model, il);
		struct layer_state *state = &s->kv.states[il];
		const struct session_need list[] = {
			{&state->conv, s->n_state_blocks * n.conv, MEMORY_DEVICE,
				"the convolution's state of a layer", NEED_STATE},
			{&state->delta, s->n_state_blocks * n.delta, MEMORY_DEVICE,
				"the state of a layer", NEED_STATE},
		};
		for (size_t i = 0; i < ARRAY_COUNT(list) && !status; i++)
			if (list[i].n_bytes)
				status = v->fn(v->user, &list[i], v->err);
	}
	return status;
}

static enum lap_status visit_step(struct lap_session *s, const struct visit *v)
{
	const struct hparams *h = &s->m->model->h;
	struct step_buffers *sb = &s->step_buffers;
	const uint64_t max_rows = s->max_rows;
	const uint64_t n_rows = s->n_batch > max_rows ? s->n_batch : max_rows;
	const uint64_t n_slots = n_rows * h->n_expert_used;
	const uint64_t table_bytes = (uint64_t)s->n_seq * s->kv.full.n_blocks * sizeof(uint32_t);
	const uint64_t state_table_bytes = s->n_state_blocks
		? (uint64_t)s->n_seq * s->kv.state.n_blocks * sizeof(uint32_t)
		: 0;
	const bool local = s->m->model->arch->flags & ARCH_LOCAL_ROPE;
	const struct session_need list[] = {
		{&s->kv.full.table, table_bytes, MEMORY_SHARED, "the block table", NEED_SCRATCH},
		{&s->kv.window.table, table_bytes, MEMORY_SHARED, "the block table of windows",
			NEED_SCRATCH},
		{&s->kv.state.table, state_table_bytes, MEMORY_SHARED, "the table of states",
			NEED_SCRATCH},
		{&sb->partial, max_rows * partial_floats(s) * sizeof(float), MEMORY_DEVICE,
			"partial attention", NEED_SCRATCH},
		{&sb->rope, rope_bytes(s, h->n_rot), MEMORY_DEVICE, "the table of angles",
			NEED_SCRATCH},
		{&sb->rope_local, local ? rope_bytes(s, h->n_rot_swa) : 0, MEMORY_DEVICE,
			"the table of local angles", NEED_SCRATCH},
		{&sb->routes, n_slots * sizeof(struct expert_route), MEMORY_DEVICE, "routes",
			NEED_SCRATCH},
		{&sb->tiles, n_slots ? expert_tiles_bytes(h->n_expert, (uint32_t)n_slots) : 0,
			MEMORY_DEVICE, "experts' tiles", NEED_SCRATCH},
		{&sb->q8, quantized_bytes(s->q8_columns, n_rows), MEMORY_DEVICE,
			"activations in 8 bits", NEED_SCRATCH},
		{&sb->parts, parts_bytes(s), MEMORY_DEVICE, "sums of parts", NEED_SCRATCH},
		{&s->tail.results, max_rows * sizeof(struct sample_result), MEMORY_DEVICE,
			"sampled tokens", NEED_SCRATCH},
		{&s->tail.scratch, max_rows * s->activations.logits.stride * sizeof(float),
			MEMORY_DEVICE, "scaled logits", NEED_SCRATCH},
		{&s->tail.sequences, s->n_seq * sizeof(struct sequence), MEMORY_SHARED,
			"the sequences", NEED_SCRATCH},
		{&s->tail.ring, (uint64_t)s->n_seq * RING_ENTRIES * sizeof(struct ring_entry),
			MEMORY_SHARED, "the ring", NEED_SCRATCH},
		{&s->tail.tops,
			(uint64_t)s->n_seq * RING_ENTRIES * s->n_top * sizeof(struct top_token),
			MEMORY_SHARED, "the best tokens", NEED_SCRATCH},
		{&s->tail.choice,
			s->n_top ? sizeof(struct beam_choice) +
					max_rows * s->n_top * sizeof(struct beam_candidate)
				 : 0,
			MEMORY_SHARED, "candidates of beams", NEED_SCRATCH},
		{&s->tail.history,
			(uint64_t)s->n_seq * HISTORY_WORDS((uint64_t)s->n_ctx, h->n_vocab) *
				sizeof(uint32_t),
			MEMORY_DEVICE, "the history", NEED_SCRATCH},
		{&s->steps, s->steps.n_bytes, MEMORY_SHARED, "the steps", NEED_SCRATCH},
		{&s->sizes, s->sizes.n_bytes, MEMORY_SHARED, "the sizes of dispatches",
			NEED_SCRATCH},
	};
	enum lap_status status = LAP_OK;
	for (size_t i = 0; i < ARRAY_COUNT(list) && !status; i++)
		if (list[i].n_bytes) /* 0: the model has no use for it */
			status = v->fn(v->user, &list[i], v->err);
	return status;
}

enum lap_status session_each_buffer(
	struct lap_session *s, session_need_fn *fn, void *user, struct lap_error *err)
{
	const struct visit v = {fn, user, err};
	enum lap_status status = visit_activations(s, &v);
	if (!status)
		status = visit_kv(s, &v);
	if (!status)
		status = visit_states(s, &v);
	if (!status)
		status = visit_step(s, &v);
	return status;
}

/* ---- sums ---- */

static enum lap_status add_need(void *user, const struct session_need *need, struct lap_error *err)
{
	struct lap_memory_plan *plan = user;
	(void)err;
	uint64_t n_bytes = (need->n_bytes + BUFFER_UNIT - 1) / BUFFER_UNIT * BUFFER_UNIT;
	uint64_t *const sums[] = {[NEED_SCRATCH] = &plan->scratch_bytes,
		[NEED_KV] = &plan->kv_bytes,
		[NEED_STATE] = &plan->state_bytes};
	*sums[need->kind] += n_bytes;
	if (need->n_bytes > plan->largest_buffer_bytes) {
		plan->largest_buffer_bytes = need->n_bytes;
		plan->largest_buffer = need->label;
	}
	return LAP_OK;
}

/* Everything of *plan but largest_n_ctx. */
static enum lap_status measure(struct lap_model *m, const struct lap_session_options *options,
	struct lap_memory_plan *plan, struct lap_error *err)
{
	struct backend *b = m->backend;
	struct lap_session *s = calloc(1, sizeof(*s));
	if (!s)
		return fail_memory(err, "a session", sizeof(*s));
	enum lap_status status = session_shape(s, m, options, err);
	*plan = (struct lap_memory_plan){0};
	if (!status)
		status = session_each_buffer(s, add_need, plan, err);
	if (!status) {
		plan->n_ctx = s->n_pool;
		plan->n_batch = s->n_batch;
		for (uint32_t il = 0; il < m->model->h.n_layer; il++)
			for (uint32_t i = 0; i < 2 && !is_bounded(s, il); i++)
				plan->kv_token_bytes += position_bytes(s, il, i);
		plan->weight_bytes = engine_weight_bytes(m);
		plan->max_buffer_bytes = b->max_buffer_bytes;
		plan->available_bytes = b->ops->available(b);
		uint64_t total = plan->weight_bytes + plan->kv_bytes + plan->state_bytes +
			plan->scratch_bytes;
		plan->fits = plan->largest_buffer_bytes <= plan->max_buffer_bytes &&
			(!plan->available_bytes || total <= plan->available_bytes);
	}
	free(s->kv.layers);
	free(s->kv.states);
	free(s);
	return status;
}

enum lap_status lap_session_memory(struct lap_model *m, const struct lap_session_options *options,
	struct lap_memory_plan *plan, struct lap_error *err)
{
	struct lap_session_options o = options ? *options : (struct lap_session_options){0};
	enum lap_status status = measure(m, &o, plan, err);
	if (status)
		return status;
	/* The largest context below `above` that fits; what fits, fits when it is shorter. */
	uint32_t fits = 0, above = m->model->h.n_ctx_train;
	above = (above < plan->n_ctx ? plan->n_ctx : above) + 1;
	while (above - fits > 1 && !status) {
		struct lap_memory_plan trial;
		o.n_ctx = fits + (above - fits) / 2;
		status = measure(m, &o, &trial, err);
		*(trial.fits ? &fits : &above) = o.n_ctx;
	}
	plan->largest_n_ctx = fits;
	return status;
}

/* The most sequences, fewer than asked for, that fit with all else as it was asked for; 0: none do. */
static uint32_t sequences_that_fit(struct lap_model *m, struct lap_session_options o)
{
	struct lap_memory_plan plan;
	while (o.n_seq > 1) {
		o.n_seq--;
		if (!measure(m, &o, &plan, NULL) && plan.fits)
			return o.n_seq;
	}
	return 0;
}

const char *session_advice(struct lap_model *m, const struct lap_session_options *options,
	char out[SESSION_ADVICE_BYTES])
{
	static const struct {
		enum lap_kv_type type;
		const char *text;
	} types[] = {{LAP_KV_Q8_0, " with -ctk q8_0 -ctv q8_0"},
		{LAP_KV_Q4_0, " with -ctk q4_0 -ctv q4_0"}};
	struct lap_session_options o = *options;
	struct lap_memory_plan plan;
	size_t n = 0;
	out[0] = '\0';
	for (size_t i = 0; i <= ARRAY_COUNT(types); i++) {
		if (i)
			o.type_k = o.type_v = types[i - 1].type;
		if (lap_session_memory(m, &o, &plan, NULL) || plan.largest_n_ctx == 0)
			continue;
		int more = snprintf(out + n, SESSION_ADVICE_BYTES - n, "%s-c %u%s",
			n ? ", or " : "what fits: ", (unsigned)plan.largest_n_ctx,
			i ? types[i - 1].text : "");
		n += more > 0 ? (size_t)more : 0;
	}
	if (n)
		return out;
	/* States of recurrent layers are as large whatever the context. */
	const uint32_t n_seq = sequences_that_fit(m, *options);
	snprintf(out, SESSION_ADVICE_BYTES,
		n_seq ? "what fits: %u at a time (-np %u)" : "no context fits", (unsigned)n_seq,
		(unsigned)n_seq);
	return out;
}
