/* Models into other weight formats: reads a file, or the parts of one, tensor by tensor, and writes one.
 *
 * Owns the order of the work, its threads and the checks of what is read and written; formats are
 * weight_encode.h's, which tensor gets which is quantize_recipe.h's. Memory: a few MiB, whatever the model. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_write.h"
#include "quantize_recipe.h"
#include "split.h"
#include "weight_encode.h"

enum {
	PIECE = 1 << 16, /* weights that a thread takes at once: whole blocks of every format */
	SLICE = 64,      /* pieces that are written at once */
	MAX_THREADS = 64,
	COPIED = 16 << 20,       /* bytes of a tensor that stays, at once */
	QUANTIZATION_VERSION = 2 /* of the blocks, as ggml counts: since May 2023 */
};

static const float half_most = 65504; /* the largest of the type that scales have */

typedef unsigned long long ull; /* what printf's %llu takes */

struct job {
	const struct lap_quantize_options *options;
	const struct recipe *recipe;
	const struct gguf *g;
	enum weight *formats; /* [n_tensors], of the new file */
	struct file_writer writer;
	uint32_t n_threads;
	uint8_t *out; /* of a slice */
	float *x;     /* [n_threads][PIECE] */
	struct lap_quantize_step step;
	struct lap_quantize_result result;
};

/* A number that cannot go into the new file. */
struct bad_weight {
	uint64_t index; /* in its tensor */
	float value;
	bool found;
};

/* Pieces of one tensor that threads take the next of until there is none. */
struct slice {
	const struct job *job;
	const struct gguf_tensor *t;
	enum weight format;
	uint64_t first, n; /* weights */
	atomic_uint next, next_thread;
	struct bad_weight bad[SLICE]; /* of each piece */
};

/* ---- weights --------------------------------------------------------------------------------- */

static void encode_piece(struct slice *s, uint64_t piece, float *x)
{
	const struct weight_format *from = weight_format(s->t->weight),
				   *to = weight_format(s->format);
	const uint64_t at = piece * PIECE, first = s->first + at;
	const uint64_t n = s->n - at < PIECE ? s->n - at : PIECE;
	uint8_t *blocks = s->job->out + at / to->block_weights * to->block_bytes;
	struct bad_weight *bad = &s->bad[piece];
	float largest = 0;
	from->decode(s->t->data + first / from->block_weights * from->block_bytes, n, x);
	for (uint64_t i = 0; i < n && !bad->found; i++) {
		largest = fmaxf(largest, fabsf(x[i]));
		if (!isfinite(x[i]))
			*bad = (struct bad_weight){first + i, x[i], true};
	}
	if (bad->found)
		return;
	weight_encoder(s->format)(x, n, blocks);
	uint64_t i;
	float value;
	if (largest > half_most && weight_not_finite(s->format, blocks, n, &i, &value))
		*bad = (struct bad_weight){first + i, x[i], true};
}

static void *encode_some(void *argument)
{
	struct slice *s = argument;
	const uint64_t n_pieces = (s->n + PIECE - 1) / PIECE;
	float *x = s->job->x + (size_t)atomic_fetch_add(&s->next_thread, 1) * PIECE;
	for (unsigned i; (i = atomic_fetch_add(&s->next, 1)) < n_pieces;)
		encode_piece(s, i, x);
	return NULL;
}

/* This thread works, too, and does it all when no other can be started. */
static void encode_slice(struct slice *s)
{
	pthread_t threads[MAX_THREADS];
	uint32_t n_started = 0;
	while (n_started + 1 < s->job->n_threads && n_started * (uint64_t)PIECE < s->n &&
		pthread_create(&threads[n_started], NULL, encode_some, s) == 0)
		n_started++;
	encode_some(s);
	for (uint32_t i = 0; i < n_started; i++)
		pthread_join(threads[i], NULL);
}

static enum lap_status refuse(
	const struct slice *s, const struct bad_weight *bad, struct lap_error *err)
{
	if (!isfinite(bad->value))
		return fail(err, LAP_BAD_MODEL,
			"%s: weight %llu of %.100s is %g, expected a number: the file is damaged "
			"(info --check-tensors counts them)",
			s->job->g->path, (ull)bad->index, s->t->name, (double)bad->value);
	return fail(err, LAP_USAGE,
		"%s: weight %llu of %.100s is %g, which is too large for %s: BF16 has it",
		s->job->g->path, (ull)bad->index, s->t->name, (double)bad->value,
		weight_format(s->format)->label);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static enum lap_status advance(struct job *job, uint64_t n_bytes, struct lap_error *err)
{
	const struct lap_quantize_options *o = job->options;
	job->step.done_bytes += n_bytes;
	if (job->writer.error) /* said when the file is closed */
		return LAP_IO;
	if (o->progress && !o->progress(o->user, &job->step))
		return fail(err, LAP_ERROR, "stopped");
	return LAP_OK;
}

static enum lap_status copy_tensor(
	struct job *job, const struct gguf_tensor *t, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (uint64_t at = 0; at < t->n_bytes && !status; at += COPIED) {
		const uint64_t n = t->n_bytes - at < COPIED ? t->n_bytes - at : COPIED;
		file_append(&job->writer, t->data + at, n);
		status = advance(job, n, err);
	}
	return status;
}

static enum lap_status encode_tensor(
	struct job *job, const struct gguf_tensor *t, enum weight format, struct lap_error *err)
{
	const struct weight_format *from = weight_format(t->weight), *to = weight_format(format);
	enum lap_status status = LAP_OK;
	for (uint64_t first = 0; first < t->n_weights && !status; first += SLICE * PIECE) {
		struct slice s = {.job = job, .t = t, .format = format, .first = first};
		s.n = t->n_weights - first;
		s.n = s.n < SLICE * PIECE ? s.n : SLICE * PIECE;
		encode_slice(&s);
		for (unsigned i = 0; i < SLICE && !status; i++)
			if (s.bad[i].found)
				status = refuse(&s, &s.bad[i], err);
		if (status)
			break;
		file_append(&job->writer, job->out, s.n / to->block_weights * to->block_bytes);
		status = advance(job, s.n / from->block_weights * from->block_bytes, err);
	}
	return status;
}

static enum lap_status write_tensors(struct job *job, struct lap_error *err)
{
	enum lap_status status = LAP_OK;
	for (uint64_t i = 0; i < job->g->n_tensors && !status; i++) {
		const struct gguf_tensor *t = &job->g->tensors[i];
		const enum weight format = job->formats[i];
		uint64_t n_bytes = 0;
		gguf_tensor_bytes(t, format, &n_bytes); /* fits: the head is written */
		job->step.tensor = t->name;
		job->step.from = weight_format(t->weight)->label;
		job->step.to = weight_format(format)->label;
		status = format == t->weight ? copy_tensor(job, t, err)
					     : encode_tensor(job, t, format, err);
		gguf_write_padding(job->g, n_bytes, &job->writer);
		job->result.bytes += n_bytes;
	}
	return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool is_whole(enum weight weight)
{
	return weight_format(weight)->block_weights == 1;
}

static enum lap_status choose_formats(struct job *job, struct lap_error *err)
{
	const struct gguf *g = job->g;
	job->formats = array_alloc(g->n_tensors, sizeof *job->formats);
	if (!job->formats)
		return fail_memory(err, "the list of tensors", g->n_tensors * sizeof(enum weight));
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		bool fallback;
		job->formats[i] = recipe_choose(job->recipe, job->options->pure, g, t, &fallback);
		job->result.n_fallbacks += fallback;
		job->result.n_weights += t->n_weights;
		job->result.bytes_before += t->n_bytes;
		if (job->formats[i] != t->weight && !is_whole(t->weight) &&
			!job->options->allow_requantize)
			return fail(err, LAP_USAGE,
				"%s: %.100s is %s already, expected F32, F16 or BF16: what it has "
				"lost does not come back, so start from the original, or say "
				"--allow-requantize",
				g->path, t->name, weight_format(t->weight)->label);
	}
	job->step.total_bytes = job->result.bytes_before;
	return LAP_OK;
}

static enum lap_status allocate(struct job *job, struct lap_error *err)
{
	long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t n = job->options->n_threads;
	if (n == 0)
		n = n_cores < 1 ? 1 : (uint32_t)n_cores;
	job->n_threads = n < MAX_THREADS ? n : MAX_THREADS;
	const uint64_t n_x = (uint64_t)job->n_threads * PIECE,
		       n_out = SLICE * PIECE * sizeof(float);
	job->x = array_alloc(n_x, sizeof *job->x);
	job->out = array_alloc(n_out, 1);
	if (!job->x || !job->out)
		return fail_memory(err, "weights", n_x * sizeof *job->x + n_out);
	return LAP_OK;
}

/* The new file takes the place of nothing that is still read. */
static enum lap_status check_paths(const char *in, const char *out, struct lap_error *err)
{
	struct stat a, b;
	if (stat(in, &a) == 0 && stat(out, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		return fail(err, LAP_USAGE, "%s and %s are one file, expected two", in, out);
	return LAP_OK;
}

enum lap_status lap_quantize(const char *in, const char *out, const char *type,
	const struct lap_quantize_options *options, struct lap_quantize_result *result,
	struct lap_error *err)
{
	static const struct lap_quantize_options defaults;
	struct job job = {.options = options ? options : &defaults, .recipe = recipe_find(type)};
	struct split split = {.gguf = NULL};
	if (!job.recipe)
		return fail(err, LAP_USAGE,
			"\"%.40s\" is no type to quantize to, expected one of %s", type,
			recipe_names());
	enum lap_status status = check_paths(in, out, err);
	if (!status)
		status = split_open(in, &split, err);
	job.g = split.gguf;
	if (!status)
		status = choose_formats(&job, err);
	if (!status)
		status = allocate(&job, err);
	if (!status)
		status = file_create(out, &job.writer, err);
	if (!status) {
		const struct gguf_u32_key set[] = {
			{"general.quantization_version", QUANTIZATION_VERSION},
			{"general.file_type", job.recipe->file_type},
		};
		status = gguf_write_head(
			job.g, job.formats, set, ARRAY_COUNT(set), &job.writer, err);
		if (!status)
			status = write_tensors(&job, err);
		struct lap_error lost;
		const bool unwritten = job.writer.error != 0;
		const enum lap_status closed =
			file_close(&job.writer, !status, unwritten || !status ? err : &lost);
		status = unwritten || !status ? closed : status;
	}
	if (!status && result)
		*result = job.result;
	free(job.formats);
	free(job.x);
	free(job.out);
	split_close(&split);
	return status;
}

const char *lap_quantize_types(void)
{
	return recipe_names();
}
