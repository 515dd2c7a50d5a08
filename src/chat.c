/* Chats: messages to text by a template, and that text to tokens.
 *
 * Joins what does not know each other: the template, which knows no token, and the tokenizer. Owns where
 * bos_token and eos_token come from, and that a rendered chat begins with BOS once. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "template.h"

static size_t length(struct lap_text t)
{
	return t.text && !t.n_bytes ? strlen(t.text) : t.n_bytes;
}

static struct template_json json_of(struct lap_text t)
{
	return (struct template_json){t.text, length(t)};
}

/* A copy of what the caller gave, or else of the text of the model's token; NULL in *copy: neither. */
static enum lap_status special_text(const char *given, const struct lap_model *model, int32_t id,
	char **copy, struct lap_error *err)
{
	size_t n = given ? strlen(given) : 0;
	const char *text = given;
	if (!given && model && model->tokenizer) {
		text = tokenizer_piece(model->tokenizer, id, true, &n);
		text = n ? text : NULL;
	}
	*copy = text ? strndup(text, n) : NULL;
	return text && !*copy ? fail_memory(err, "a token's text", n) : LAP_OK;
}

/* Appends the rendering of a chat by the template to *out. */
static enum lap_status render(const struct lap_model *model, const struct lap_chat *chat,
	const struct template *t, struct text *out, struct lap_error *err)
{
	char *bos = NULL, *eos = NULL;
	enum lap_status status =
		special_text(chat->bos, model, model ? model->info.bos : -1, &bos, err);
	if (!status)
		status = special_text(chat->eos, model, model ? model->info.eos : -1, &eos, err);
	const struct template_input input = {
		.messages = json_of(chat->messages),
		.tools = json_of(chat->tools),
		.kwargs = json_of(chat->kwargs),
		.add_generation_prompt = !chat->no_generation_prompt,
		.bos = bos,
		.eos = eos,
		.now = chat->now,
	};
	if (!status)
		status = template_render(t, &input, out, err);
	free(bos);
	free(eos);
	return status;
}

enum lap_status lap_chat_render(const struct lap_model *model, const struct lap_chat *chat,
	char **text, size_t *n_bytes, struct lap_error *err)
{
	struct text out = {0};
	struct template *t = NULL;
	struct lap_text source = chat->chat_template;
	*text = NULL;
	*n_bytes = 0;
	if (!source.text && model)
		source = (struct lap_text){model->info.chat_template, 0};
	if (!source.text)
		return model
			? fail(err, LAP_ERROR, "%s has no chat template", model->info.path)
			: fail(err, LAP_USAGE, "a chat needs a template, its own or a model's");
	enum lap_status status = template_create(source.text, length(source), NULL, &t, err);
	if (!status && !text_append(&out, "", 0))
		status = fail_memory(err, "the rendered chat", 1);
	if (!status)
		status = render(model, chat, t, &out, err);
	template_destroy(t);
	if (status) {
		text_free(&out);
		return status;
	}
	*text = out.data;
	*n_bytes = out.n;
	return LAP_OK;
}

/* Puts a token before others. */
static enum lap_status put_first(int32_t token, int32_t **tokens, size_t *n, struct lap_error *err)
{
	int32_t *more = realloc(*tokens, (*n + 1) * sizeof *more);
	if (!more)
		return fail_memory(err, "tokens", (*n + 1) * sizeof *more);
	memmove(more + 1, more, *n * sizeof *more);
	more[0] = token;
	*tokens = more;
	++*n;
	return LAP_OK;
}

enum lap_status lap_chat_tokenize(const struct lap_model *model, const char *text, size_t n_bytes,
	int32_t **tokens, size_t *n, struct lap_error *err)
{
	const struct tokenizer *t;
	*tokens = NULL;
	*n = 0;
	enum lap_status status = engine_tokenizer(model, &t, err);
	if (status)
		return status;
	const struct tokenizer_info *info = tokenizer_info(t);
	size_t n_bos = 0;
	const char *bos = tokenizer_piece(t, info->bos, true, &n_bos);
	bool adds = info->add_bos && info->bos >= 0;
	/* The text is cut even where the vocabulary does not parse the token, for a BOS of type normal. */
	bool written = adds && n_bos && n_bytes >= n_bos && memcmp(text, bos, n_bos) == 0;
	if (!written)
		n_bos = 0;
	status = tokenizer_encode(t, text + n_bos, n_bytes - n_bos, false, true, tokens, n, err);
	if (!status && adds)
		status = put_first(info->bos, tokens, n, err);
	if (status) {
		free(*tokens);
		*tokens = NULL;
		*n = 0;
	}
	return status;
}
