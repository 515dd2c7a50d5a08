/* `lapilli info`: what a model file holds; its weights go to no device. */
#include <string.h>

#include "commands.h"
#include "console.h"
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

static json_t *info_json(const struct lap_model_info *m, const char *refused)
{
	json_t *json = json_pack("{s:o, s:o, s:o, s:I, s:I, s:I}", "path", text_json(m->path),
		"name", text_json(m->name), "architecture", text_json(m->architecture),
		"gguf_version", (json_int_t)m->gguf_version, "file_bytes",
		(json_int_t)m->file_bytes, "parameters", (json_int_t)m->n_weights);
	json_t *hparams = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}",
		"n_vocab", (json_int_t)m->n_vocab, "n_ctx_train", (json_int_t)m->n_ctx_train,
		"n_layer", (json_int_t)m->n_layer, "n_embd", (json_int_t)m->n_embd, "n_ff",
		(json_int_t)m->n_ff, "n_head", (json_int_t)m->n_head, "n_head_kv",
		(json_int_t)m->n_head_kv, "head_dim", (json_int_t)m->head_dim, "n_rot",
		(json_int_t)m->n_rot, "rope_theta", (double)m->rope_theta, "rms_eps",
		(double)m->rms_eps);
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

static void print_info(const struct lap_model_info *m, const char *refused, bool verbose)
{
	out_printf("file          %s, %s, GGUF version %u\n", m->path, bytes_text(m->file_bytes),
		m->gguf_version);
	if (*refused)
		out_printf("cannot run    %s\n", refused);
	out_printf("name          %s\n", known(m->name));
	out_printf("architecture  %s\n", known(m->architecture));
	if (m->n_layer) { /* a vocabulary alone has no shape */
		out_printf("layers        %u of width %u, feed-forward %u\n", m->n_layer, m->n_embd,
			m->n_ff);
		out_printf("attention     %u heads of %u, %u for keys and values\n", m->n_head,
			m->head_dim, m->n_head_kv);
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

/* Opens the file for the CPU, which maps the weights in place; a file that cannot run there may still
 * be read as a vocabulary, and *refused then says why it cannot run. */
static enum lap_status open_source(const struct options *o, struct lap_model **model,
	struct lap_error *refused, struct lap_error *err)
{
	struct options on_cpu = *o;
	on_cpu.device = "cpu";
	enum lap_status status = source_model(&on_cpu, false, model, refused);
	if (status == LAP_BAD_MODEL)
		return source_model(o, true, model, err);
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
	if (open_source(o, &model, &refused, &err))
		return report(&err);
	int status = LAP_OK;
	if (o->json)
		status = out_json(info_json(lap_model_info(model), refused.text));
	else
		print_info(lap_model_info(model), refused.text, o->verbose);
	lap_model_close(model);
	return status;
}
