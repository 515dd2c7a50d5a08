/* `lapilli tokenize`: texts into tokens and tokens into text. Only the vocabulary is read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "source.h"

/* The way -e reads it back: whole UTF-8 characters as they are, all else as \xHH. */
static void print_escaped(const char *bytes, size_t n_bytes)
{
	static const char letters[] = "nrt\\", characters[] = "\n\r\t\\";
	for (size_t i = 0; i < n_bytes;) {
		unsigned char byte = (unsigned char)bytes[i];
		uint32_t code = 0;
		unsigned n = utf8_decode(bytes + i, n_bytes - i, &code);
		const char *special = byte ? strchr(characters, byte) : NULL;
		if (special)
			out_printf("\\%c", letters[special - characters]);
		else if (n == 0 || code < 0x20 || code == 0x7F)
			out_printf("\\x%02x", byte);
		else
			out_write(bytes + i, n);
		i += n ? n : 1;
	}
}

static void print_piece(const struct lap_model *model, int32_t token)
{
	size_t n;
	const char *text = lap_token_text(model, token, &n);
	out_printf("%d\t", token);
	print_escaped(text, text ? n : 0);
	out_write("\n", 1);
}

static enum lap_status print_tokens(const struct options *o, const struct lap_model *model,
	const char *text, size_t n_bytes, struct lap_error *err)
{
	int32_t *ids;
	size_t n;
	enum lap_status status =
		lap_tokenize(model, text, n_bytes, o->bos, o->parse_special, &ids, &n, err);
	if (!status && o->ids)
		status = (enum lap_status)out_json(json_ids(ids, n));
	for (size_t i = 0; !status && !o->ids && i < n; i++)
		print_piece(model, ids[i]);
	lap_free(ids);
	return status;
}

static enum lap_status print_decoded(
	const struct options *o, const struct lap_model *model, struct lap_error *err)
{
	char *text;
	size_t n_bytes;
	enum lap_status status =
		lap_detokenize(model, o->decode.ids, o->decode.n, o->special, &text, &n_bytes, err);
	if (!status)
		out_write(text, n_bytes);
	lap_free(text);
	return status;
}

/* One line of --jsonl. */
static enum lap_status print_line(const struct options *o, const struct lap_model *model,
	const char *line, size_t n_bytes, size_t number, struct lap_error *err)
{
	json_error_t error;
	json_t *json = json_loadb(line, n_bytes, JSON_ALLOW_NUL, &error);
	if (!json)
		return fail(
			err, LAP_ERROR, "%s, line %zu: not JSON: %s", o->jsonl, number, error.text);
	enum lap_status status = LAP_OK;
	const json_t *text = json_object_get(json, "text");
	const json_t *parse_special = json_object_get(json, "parse_special");
	int32_t *ids = NULL;
	size_t n = 0;
	if (!json_is_string(text) || (parse_special && !json_is_boolean(parse_special)))
		status = fail(err, LAP_ERROR,
			"%s, line %zu: expected an object with a string \"text\" and, if wanted, "
			"true or false as \"parse_special\"",
			o->jsonl, number);
	if (!status)
		status = lap_tokenize(model, json_string_value(text), json_string_length(text),
			o->bos, parse_special ? json_is_true(parse_special) : o->parse_special,
			&ids, &n, err);
	if (!status)
		status = (enum lap_status)out_json(json_ids(ids, n));
	lap_free(ids);
	json_decref(json);
	return status;
}

static enum lap_status print_lines(
	const struct options *o, const struct lap_model *model, struct lap_error *err)
{
	bool is_stdin = strcmp(o->jsonl, "-") == 0;
	FILE *in = is_stdin ? stdin : fopen(o->jsonl, "rb");
	if (!in)
		return fail(err, LAP_IO, "cannot open %s: %s", o->jsonl, strerror(errno));
	enum lap_status status = LAP_OK;
	char *line = NULL;
	size_t capacity = 0;
	for (size_t number = 1; !status && out_flush(); number++) {
		errno = 0;
		ssize_t n = getline(&line, &capacity, in);
		if (n < 0 && !feof(in))
			status = fail(err, LAP_IO, "cannot read %s: %s", o->jsonl, strerror(errno));
		if (n < 0)
			break;
		if (strspn(line, " \t\r\n") < (size_t)n)
			status = print_line(o, model, line, (size_t)n, number, err);
	}
	free(line);
	if (!is_stdin)
		fclose(in);
	return status;
}

int command_tokenize(const struct options *o)
{
	struct lap_error err = {0};
	struct text text = {0};
	struct lap_model *model = NULL;
	bool given;
	enum lap_status status = source_text(o, &text, &given, &err);
	if (!status && given + (o->jsonl != NULL) + (o->decode.ids != NULL) != 1)
		status =
			fail(&err, LAP_USAGE, "tokenize needs one of -p, -f, --jsonl and --decode");
	if (!status)
		status = source_model(o, SOURCE_VOCABULARY, &model, &err);
	if (!status && o->jsonl)
		status = print_lines(o, model, &err);
	else if (!status && o->decode.ids)
		status = print_decoded(o, model, &err);
	else if (!status)
		status = print_tokens(o, model, text.data ? text.data : "", text.n, &err);
	lap_model_close(model);
	text_free(&text);
	return status ? report(&err) : LAP_OK;
}
