/* `lapilli info`: what a model file holds, what it would take of a device, and how fast that could decode;
 * no weights go there, so that this also answers for models that do not fit.
 *
 * Looks below the public header on purpose, for how fast the device reads memory. */
#include <string.h>

#include "commands.h"
#include "console.h"
#include "describe.h"
#include "engine.h"
#include "rates.h"
#include "source.h"

/* The tensors of one format. */
struct share {
	const char *format;
	uint32_t n_tensors;
	uint64_t n_bytes;
};

enum { MAX_SHARES = 64 }; /* GGUF knows fewer formats; more would be left out */

static size_t count_formats(const struct lap_model_info *m, struct share shares[MAX_SHARES])
{
	size_t n = 0;
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		size_t k = 0;
		while (k < n && strcmp(shares[k].format, m->tensors[i].format) != 0)
			k++;
		if (k == MAX_SHARES)
			continue;
		if (k == n)
			shares[n++] = (struct share){.format = m->tensors[i].format};
		shares[k].n_tensors++;
		shares[k].n_bytes += m->tensors[i].n_bytes;
	}
	return n;
}

static json_t *text_json(const char *text)
{
	return text ? json_bytes(text, strlen(text)) : json_null();
}

static json_t *tensor_json(const struct lap_tensor_info *tensor)
{
	json_t *dims = json_array();
	for (uint32_t k = 0; k < tensor->n_dims; k++)
		json_array_append_new(dims, json_integer((json_int_t)tensor->dims[k]));
	return json_pack("{s:o, s:s, s:o, s:I}", "name", text_json(tensor->name), "format",
		tensor->format, "dims", dims, "bytes", (json_int_t)tensor->n_bytes);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum lap_kv_type type;
} kv_types[] = {
	{"f16", LAP_KV_F16}, {"f32", LAP_KV_F32}, {"q8_0", LAP_KV_Q8_0}, {"q4_0", LAP_KV_Q4_0}};

static const uint32_t chunk_sizes[] = {32, 128, 512, 2048};

enum { N_KV_TYPES = ARRAY_COUNT(kv_types), N_CHUNK_SIZES = ARRAY_COUNT(chunk_sizes) };

/* The session of the options, and the same with other KV types and other chunks. A KV type that the
 * heads do not fit has no bytes. */
struct memory_plans {
	struct lap_memory_plan asked, by_type[N_KV_TYPES], by_chunk[N_CHUNK_SIZES];
};

static enum lap_status plan_memory(struct lap_model *model, const struct options *o,
	struct memory_plans *memory, struct lap_error *err)
{
	const struct lap_session_options asked = source_session(o);
	enum lap_status status = lap_session_memory(model, &asked, &memory->asked, err);
	for (size_t i = 0; i < N_KV_TYPES && !status; i++) {
		struct lap_session_options other = asked;
		other.type_k = other.type_v = kv_types[i].type;
		status = lap_session_memory(model, &other, &memory->by_type[i], err);
		if (status == LAP_USAGE) {
			memory->by_type[i] = (struct lap_memory_plan){0};
			status = LAP_OK;
		}
	}
	for (size_t i = 0; i < N_CHUNK_SIZES && !status; i++) {
		struct lap_session_options other = asked;
		other.n_batch = chunk_sizes[i];
		status = lap_session_memory(model, &other, &memory->by_chunk[i], err);
	}
	return status;
}

static json_t *memory_json(const struct lap_model_info *m, const struct memory_plans *memory)
{
	const struct lap_memory_plan *p = &memory->asked;
	json_t *json = json_pack(
		"{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:b, s:I}", "device",
		text_json(m->device_name), "n_ctx", (json_int_t)p->n_ctx, "n_batch",
		(json_int_t)p->n_batch, "weight_bytes", (json_int_t)p->weight_bytes, "kv_bytes",
		(json_int_t)p->kv_bytes, "state_bytes", (json_int_t)p->state_bytes, "scratch_bytes",
		(json_int_t)p->scratch_bytes, "largest_buffer_bytes",
		(json_int_t)p->largest_buffer_bytes, "largest_buffer", p->largest_buffer,
		"max_buffer_bytes", (json_int_t)p->max_buffer_bytes, "available_bytes",
		(json_int_t)p->available_bytes, "fits", p->fits, "largest_n_ctx",
		(json_int_t)p->largest_n_ctx);
	json_t *types = json_array(), *chunks = json_array();
	for (size_t i = 0; i < N_KV_TYPES; i++)
		if (memory->by_type[i].n_ctx)
			json_array_append_new(types,
				json_pack("{s:s, s:I, s:I, s:I}", "type", kv_types[i].name,
					"bytes_per_1000_tokens",
					(json_int_t)(1000 * memory->by_type[i].kv_token_bytes),
					"kv_bytes", (json_int_t)memory->by_type[i].kv_bytes,
					"largest_n_ctx",
					(json_int_t)memory->by_type[i].largest_n_ctx));
	for (size_t i = 0; i < N_CHUNK_SIZES; i++)
		json_array_append_new(chunks,
			json_pack("{s:I, s:I}", "n_batch", (json_int_t)chunk_sizes[i],
				"scratch_bytes", (json_int_t)memory->by_chunk[i].scratch_bytes));
	json_object_set_new(json, "kv_types", types);
	json_object_set_new(json, "chunks", chunks);
	return json;
}

static void print_memory(const struct lap_model_info *m, const struct memory_plans *memory)
{
	const struct lap_memory_plan *p = &memory->asked;
	out_printf("\nmemory on %s, of which %s can be used\n", m->device_name,
		p->available_bytes ? bytes_text(p->available_bytes) : "an unknown part");
	out_printf("  weights     %s\n", bytes_text(p->weight_bytes));
	out_printf("  KV cache    %s for %u tokens\n", bytes_text(p->kv_bytes), p->n_ctx);
	for (size_t i = 0; i < N_KV_TYPES; i++)
		if (memory->by_type[i].n_ctx)
			out_printf("    %-6s    %s for each 1000 tokens; the largest context that "
				   "fits: "
				   "%u\n",
				kv_types[i].name,
				bytes_text(1000 * memory->by_type[i].kv_token_bytes),
				memory->by_type[i].largest_n_ctx);
	if (p->state_bytes)
		out_printf("  state       %s for recurrent layers, whatever the context\n",
			bytes_text(p->state_bytes));
	out_printf("  scratch     %s\n", bytes_text(p->scratch_bytes));
	for (size_t i = 0; i < N_CHUNK_SIZES; i++)
		out_printf("    -b %-4u   %s\n", chunk_sizes[i],
			bytes_text(memory->by_chunk[i].scratch_bytes));
	out_printf("  largest buffer  %s, %s; the device can bind %s at once\n", p->largest_buffer,
		bytes_text(p->largest_buffer_bytes), bytes_text(p->max_buffer_bytes));
	out_printf("  fits        %s; the largest context with these options: %u tokens\n",
		p->fits ? "yes" : "no", p->largest_n_ctx);
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* A decode step reads the weights it uses and the KV cache once: no device is faster than its memory. */
struct decode {
	bool known;
	bool on_cpu;                  /* where computing takes longer than reading */
	double bytes_per_second;      /* of memory, as kernels read it */
	double empty_bytes;           /* that a step reads when the context is empty, */
	double full_bytes;            /* and when it is full */
	double empty_rate, full_rate; /* tokens a second, at most */
};

static struct decode predict_decode(
	const struct lap_model *model, const struct memory_plans *memory)
{
	const struct lap_memory_plan *p = &memory->asked;
	const struct lap_model_info *m = lap_model_info(model);
	struct decode d = {.on_cpu = !m->device || m->device->type == LAP_DEVICE_CPU,
		.empty_bytes = (double)m->step_bytes};
	struct lap_error err;
	if (!p->fits)
		return d;
	if (rates_reading(model->backend, &d.bytes_per_second, &err)) {
		say("notice: how fast the device reads memory is not known: %s", err.text);
		return d;
	}
	d.full_bytes = d.empty_bytes + (double)p->kv_bytes;
	d.empty_rate = per_second(d.bytes_per_second, d.empty_bytes);
	d.full_rate = per_second(d.bytes_per_second, d.full_bytes);
	d.known = d.bytes_per_second > 0 && d.empty_bytes > 0;
	return d;
}

static json_t *decode_json(const struct decode *d)
{
	if (!d->known)
		return json_null();
	return json_pack("{s:f, s:I, s:I, s:f, s:f}", "gb_per_second", d->bytes_per_second * 1e-9,
		"bytes_empty", (json_int_t)d->empty_bytes, "bytes_full", (json_int_t)d->full_bytes,
		"tok_per_second_empty", d->empty_rate, "tok_per_second_full", d->full_rate);
}

static void print_decode(const struct decode *d, uint32_t n_ctx)
{
	if (d->known)
		out_printf("  decode      at most about %.*f tok/s, %.*f when the context of %u is "
			   "full: %s and %s read per token at %.1f GB/s%s\n",
			d->empty_rate < 10, d->empty_rate, d->full_rate < 10, d->full_rate, n_ctx,
			bytes_text((uint64_t)d->empty_bytes), bytes_text((uint64_t)d->full_bytes),
			d->bytes_per_second * 1e-9,
			d->on_cpu ? "; less where a CPU computes more slowly than it reads" : "");
}

/* ---- the file -------------------------------------------------------------------------------- */

static json_t *info_json(const struct lap_model_info *m, const char *refused)
{
	json_t *json = json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "path", text_json(m->path),
		"name", text_json(m->name), "architecture", text_json(m->architecture),
		"gguf_version", (json_int_t)m->gguf_version, "files", (json_int_t)m->n_files,
		"file_bytes", (json_int_t)m->file_bytes, "parameters", (json_int_t)m->n_weights);
	json_t *hparams = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}",
		"n_vocab", (json_int_t)m->n_vocab, "n_ctx_train", (json_int_t)m->n_ctx_train,
		"n_layer", (json_int_t)m->n_layer, "n_embd", (json_int_t)m->n_embd, "n_ff",
		(json_int_t)m->n_ff, "n_head", (json_int_t)m->n_head, "n_head_kv",
		(json_int_t)m->n_head_kv, "head_dim", (json_int_t)m->head_dim, "n_rot",
		(json_int_t)m->n_rot, "rope_theta", (double)m->rope_theta, "rms_eps",
		(double)m->rms_eps);
	json_object_set_new(hparams, "n_expert", json_integer((json_int_t)m->n_expert));
	json_object_set_new(hparams, "n_expert_used", json_integer((json_int_t)m->n_expert_used));
	json_object_set_new(hparams, "n_window", json_integer((json_int_t)m->n_window));
	json_object_set_new(hparams, "n_recurrent", json_integer((json_int_t)m->n_recurrent));
	json_t *tokenizer = json_pack("{s:o, s:o, s:i, s:i, s:b, s:b, s:o}", "model",
		text_json(m->tokenizer), "pre", text_json(m->pre_tokenizer), "bos", m->bos, "eos",
		m->eos, "add_bos", m->add_bos, "add_eos", m->add_eos, "chat_template",
		text_json(m->chat_template));
	struct share shares[MAX_SHARES];
	size_t n_shares = count_formats(m, shares);
	json_t *formats = json_object();
	for (size_t i = 0; i < n_shares; i++)
		json_object_set_new(formats, shares[i].format,
			json_pack("{s:I, s:I}", "tensors", (json_int_t)shares[i].n_tensors, "bytes",
				(json_int_t)shares[i].n_bytes));
	json_t *tensors = json_array();
	for (uint32_t i = 0; i < m->n_tensors; i++)
		json_array_append_new(tensors, tensor_json(&m->tensors[i]));
	json_object_set_new(json, "refused", *refused ? text_json(refused) : json_null());
	json_object_set_new(json, "hparams", hparams);
	json_object_set_new(json, "tokenizer", tokenizer);
	json_object_set_new(json, "formats", formats);
	json_object_set_new(json, "tensors", tensors);
	return json;
}

static const char *known(const char *text)
{
	return text && *text ? text : "-";
}

static void print_file(const struct lap_model_info *m, const char *refused)
{
	out_printf("file          %s, ", m->path);
	if (m->n_files > 1)
		out_printf("with the other parts %u files, ", m->n_files);
	out_printf("%s, GGUF version %u\n", bytes_text(m->file_bytes), m->gguf_version);
	if (*refused)
		out_printf("cannot run    %s\n", refused);
	out_printf("name          %s\n", known(m->name));
}

void describe_model(const struct lap_model_info *m, bool verbose)
{
	out_printf("architecture  %s\n", known(m->architecture));
	if (m->n_layer) { /* a vocabulary alone has no shape */
		out_printf("layers        %u of width %u, feed-forward %u\n", m->n_layer, m->n_embd,
			m->n_ff);
		out_printf("attention     %u heads of %u, %u for keys and values\n", m->n_head,
			m->head_dim, m->n_head_kv);
		if (m->n_expert)
			out_printf("experts       %u, %u used for a token\n", m->n_expert,
				m->n_expert_used);
		if (m->n_window)
			out_printf("window        %u tokens\n", m->n_window);
		if (m->n_recurrent)
			out_printf("recurrent     %u layers, with a state in place of keys and "
				   "values\n",
				m->n_recurrent);
		out_printf(
			"rope          %u dimensions, theta %g\n", m->n_rot, (double)m->rope_theta);
		out_printf("rms epsilon   %g\n", (double)m->rms_eps);
		out_printf("context       %u tokens in training\n", m->n_ctx_train);
	}
	out_printf("tokenizer     %s", known(m->tokenizer));
	if (m->pre_tokenizer && *m->pre_tokenizer)
		out_printf(", pre-tokenizer %s", m->pre_tokenizer);
	out_printf("\nvocabulary    %u tokens, bos %d%s, eos %d%s\n", m->n_vocab, m->bos,
		m->add_bos ? " (added)" : "", m->eos, m->add_eos ? " (added)" : "");
	out_printf("chat          %s\n", m->chat_template ? "has a template" : "no template");
	out_printf("weights       %llu in %u tensors, %s\n", (unsigned long long)m->n_weights,
		m->n_tensors, bytes_text(m->weight_bytes));

	struct share shares[MAX_SHARES];
	size_t n_shares = count_formats(m, shares);
	for (size_t i = 0; i < n_shares; i++)
		out_printf("  %-10s  %u tensors, %s\n", shares[i].format, shares[i].n_tensors,
			bytes_text(shares[i].n_bytes));
	for (uint32_t i = 0; verbose && i < m->n_tensors; i++) {
		const struct lap_tensor_info *t = &m->tensors[i];
		out_printf("  %-32s %-6s", t->name, t->format);
		for (uint32_t k = 0; k < t->n_dims; k++)
			out_printf("%s%llu", k ? " x " : " ", (unsigned long long)t->dims[k]);
		out_printf(", %s\n", bytes_text(t->n_bytes));
	}
	if (verbose && m->chat_template)
		out_printf("\n%s\n", m->chat_template);
}

/* Opens the file without its weights, for the device asked for or, where there is none and none was
 * asked for, for the CPU. A file that cannot run may still be read as a vocabulary, and *refused then
 * says why it cannot. */
static enum lap_status open_source(const struct options *o, struct lap_model **model,
	struct lap_error *refused, struct lap_error *err)
{
	enum lap_status status = source_model(o, SOURCE_NO_WEIGHTS, model, refused);
	if (status == LAP_NO_DEVICE && !o->device) {
		struct options on_cpu = *o;
		on_cpu.device = "cpu";
		status = source_model(&on_cpu, SOURCE_NO_WEIGHTS, model, refused);
	}
	if (status == LAP_BAD_MODEL)
		return source_model(o, SOURCE_VOCABULARY, model, err);
	if (status)
		*err = *refused;
	else
		refused->text[0] = '\0';
	return status;
}

int command_info(const struct options *o)
{
	struct lap_model *model;
	struct lap_error err, refused;
	struct memory_plans memory;
	if (open_source(o, &model, &refused, &err))
		return report(&err);
	const struct lap_model_info *m = lap_model_info(model);
	const bool runs = !refused.text[0];
	struct decode decode = {.known = false};
	enum lap_status planned = runs ? plan_memory(model, o, &memory, &err) : LAP_OK;
	int status = LAP_OK;
	if (runs && !planned)
		decode = predict_decode(model, &memory);
	if (planned) {
		status = report(&err);
	} else if (o->json) {
		json_t *json = info_json(m, refused.text);
		json_object_set_new(json, "memory", runs ? memory_json(m, &memory) : json_null());
		json_object_set_new(json, "decode", decode_json(&decode));
		status = out_json(json);
	} else {
		print_file(m, refused.text);
		describe_model(m, o->verbose);
		if (runs) {
			print_memory(m, &memory);
			print_decode(&decode, memory.asked.n_ctx);
		}
	}
	lap_model_close(model);
	return status;
}
