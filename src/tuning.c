/* Findings and their text: see tuning.h. */
#include "tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FINDINGS 65536 /* of a text that we wrote ourselves */

static uint32_t power_above(uint32_t n)
{
	uint32_t p = 1;
	while (p < n && p < 1u << 31)
		p *= 2;
	return n ? p : 0;
}

struct op_class op_class(const struct op *op)
{
	struct op_class c = {
		.kernel = op->kernel,
		.outputs = power_above(op->n_outputs),
		.rows = power_above(op->rows_per_group ? op->rows_per_group : op->max_rows),
	};
	switch (op->kernel) {
	case KERNEL_matvec:
	case KERNEL_matmul:
	case KERNEL_matvec_q8:
	case KERNEL_matmul_q8:
		c.inputs = power_above(op->args.matmul.n_in);
		break;
	case KERNEL_expert_matvec:
	case KERNEL_expert_matmul:
		c.inputs = power_above(op->args.expert_matmul.n_in);
		break;
	case KERNEL_attn_decode:
	case KERNEL_attn_reduce:
	case KERNEL_attn_prefill:
		c.inputs = power_above(op->args.attn_decode.head_dim);
		break;
	default:
		break;
	}
	if (kernel_info(op->kernel)->per_weight)
		c.weight = op->weight;
	return c;
}

bool op_class_same(const struct op_class *a, const struct op_class *b)
{
	return a->kernel == b->kernel && a->weight == b->weight && a->outputs == b->outputs &&
		a->inputs == b->inputs && a->rows == b->rows;
}

static bool same_knobs(const struct op_class *of, const uint32_t *a, const uint32_t *b)
{
	uint32_t n;
	kernel_knobs(of->kernel, &n);
	return memcmp(a, b, n * sizeof *a) == 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

void tuning_init(struct tuning *t)
{
	*t = (struct tuning){.items = NULL};
	pthread_mutex_init(&t->lock, NULL);
}

void tuning_free(struct tuning *t)
{
	free(t->items);
	pthread_mutex_destroy(&t->lock);
}

void tuning_forget_speeds(struct tuning *t)
{
	pthread_mutex_lock(&t->lock);
	t->n = 0;
	t->bytes_per_second = 0;
	pthread_mutex_unlock(&t->lock);
}

void tuning_clear(struct tuning *t)
{
	tuning_forget_speeds(t);
	for (uint32_t f = 0; f < N_FEATURES; f++)
		tuning_switch(t, (enum feature)f, NULL);
}

/* ---- features -------------------------------------------------------------------------------- */

/* Each needs those before it, back to the first of its family. */
static const struct {
	const char *name;
	enum feature first;
} features[N_FEATURES] = {
	[FEATURE_SUBGROUP] = {"subgroup", FEATURE_SUBGROUP},
	[FEATURE_TEXELS] = {"texels", FEATURE_SUBGROUP},
	[FEATURE_SHUFFLE] = {"shuffle", FEATURE_SUBGROUP},
	[FEATURE_LONG] = {"long", FEATURE_SUBGROUP},
	[FEATURE_SHARED] = {"shared", FEATURE_SHARED},
	[FEATURE_DOT] = {"dot", FEATURE_DOT},
	[FEATURE_COOPMAT] = {"coopmat", FEATURE_COOPMAT},
};

const char *feature_name(enum feature f)
{
	return features[f].name;
}

bool tuning_is_off(struct tuning *t, enum feature f)
{
	bool off = false;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = features[f].first; i <= f; i++)
		off |= t->off[i];
	pthread_mutex_unlock(&t->lock);
	return off;
}

void tuning_switch(struct tuning *t, enum feature f, const char *why)
{
	pthread_mutex_lock(&t->lock);
	t->off[f] = why != NULL;
	snprintf(t->why[f], sizeof t->why[f], "%s", why ? why : "");
	pthread_mutex_unlock(&t->lock);
}

void tuning_list_off(struct tuning *t, char *list, size_t n_bytes)
{
	size_t n = 0;
	list[0] = '\0';
	pthread_mutex_lock(&t->lock);
	for (uint32_t f = 0; f < N_FEATURES; f++)
		if (t->off[f] && n < n_bytes)
			n += (size_t)snprintf(
				list + n, n_bytes - n, "%s%s", n ? " " : "", features[f].name);
	pthread_mutex_unlock(&t->lock);
}

/* ---- findings -------------------------------------------------------------------------------- */

static struct tuned *winner(struct tuning *t, const struct op_class *of)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (!t->items[i].broken && op_class_same(&t->items[i].of, of))
			return &t->items[i];
	return NULL;
}

static bool is_broken(
	struct tuning *t, enum kernel kernel, enum weight weight, const uint32_t *knobs)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->items[i].broken && t->items[i].of.kernel == kernel &&
			t->items[i].of.weight == weight &&
			same_knobs(&t->items[i].of, t->items[i].knobs, knobs))
			return true;
	return false;
}

bool tuning_find(struct tuning *t, const struct op_class *of, struct tuned *found)
{
	pthread_mutex_lock(&t->lock);
	const struct tuned *item = winner(t, of);
	if (item)
		*found = *item;
	pthread_mutex_unlock(&t->lock);
	return item != NULL;
}

bool tuning_is_broken(
	struct tuning *t, enum kernel kernel, enum weight weight, const uint32_t *knobs)
{
	pthread_mutex_lock(&t->lock);
	bool broken = is_broken(t, kernel, weight, knobs);
	pthread_mutex_unlock(&t->lock);
	return broken;
}

bool tuning_put(struct tuning *t, const struct tuned *item)
{
	bool fits = true;
	pthread_mutex_lock(&t->lock);
	struct tuned *old = item->broken ? NULL : winner(t, &item->of);
	if (old) {
		*old = *item;
	} else if (!item->broken || !is_broken(t, item->of.kernel, item->of.weight, item->knobs)) {
		if (t->n == t->capacity) {
			uint32_t capacity = t->capacity ? 2 * t->capacity : 32;
			struct tuned *items = realloc(t->items, capacity * sizeof *items);
			fits = items != NULL;
			t->items = fits ? items : t->items;
			t->capacity = fits ? capacity : t->capacity;
		}
		if (fits)
			t->items[t->n++] = *item;
	}
	pthread_mutex_unlock(&t->lock);
	return fits;
}

/* ---- the text -------------------------------------------------------------------------------- */

static const char *label_of(const struct op_class *c)
{
	return kernel_info(c->kernel)->per_weight ? weight_format(c->weight)->label : "-";
}

bool tuned_print(const struct tuned *t, struct text *text)
{
	const struct op_class *c = &t->of;
	bool ok = text_printf(text, "%s %s %u x %u x %u: %s", kernel_info(c->kernel)->name,
			  label_of(c), (unsigned)c->outputs, (unsigned)c->inputs, (unsigned)c->rows,
			  t->broken ? "broken " : "") &&
		knobs_print(c->kernel, t->knobs, text);
	if (ok && t->broken)
		ok = text_printf(text, " # %s", t->reason);
	else if (ok && t->seconds > 0)
		ok = text_printf(text, " # %.2f us, usual %.2f us", 1e6 * t->seconds,
			1e6 * t->usual_seconds);
	return ok;
}

bool tuning_print(struct tuning *t, const char *key, struct text *text)
{
	bool ok = text_printf(text, "%s\n", key);
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->n && ok; i++)
		ok = tuned_print(&t->items[i], text) && text_printf(text, "\n");
	if (ok && t->bytes_per_second > 0)
		ok = text_printf(text, "memory: %.3f GB/s\n", 1e-9 * t->bytes_per_second);
	for (uint32_t f = 0; f < N_FEATURES && ok; f++)
		if (t->off[f])
			ok = text_printf(text, "off: %s # %s\n", features[f].name, t->why[f]);
	pthread_mutex_unlock(&t->lock);
	return ok;
}

static bool find_names(const char *kernel, const char *weight, struct op_class *c)
{
	uint32_t k = 0, w = 0;
	while (k < N_KERNELS && strcmp(kernel_info((enum kernel)k)->name, kernel) != 0)
		k++;
	if (k == N_KERNELS)
		return false;
	c->kernel = (enum kernel)k;
	if (!kernel_info(c->kernel)->per_weight)
		return strcmp(weight, "-") == 0;
	while (w < N_WEIGHTS && strcmp(weight_format((enum weight)w)->label, weight) != 0)
		w++;
	c->weight = (enum weight)w;
	return w < N_WEIGHTS;
}

/* "OUTPUTS=1 LANES=128": the kernel's knobs in their order, values that are in the list; returns where the
 * text goes on, NULL where it is none. */
static const char *parse_knobs(const char *at, enum kernel kernel, uint32_t values[MAX_KNOBS])
{
	uint32_t n;
	const struct knob *knobs = kernel_knobs(kernel, &n);
	for (uint32_t i = 0; i < n; i++) {
		const size_t length = strlen(knobs[i].name);
		unsigned value;
		int end = 0;
		at += strspn(at, " ");
		if (strncmp(at, knobs[i].name, length) != 0 ||
			sscanf(at + length, "=%9u%n", &value, &end) != 1)
			return NULL;
		uint32_t v = 0;
		while (v < MAX_KNOB_VALUES && knobs[i].values[v] != value)
			v++;
		if (value == 0 || v == MAX_KNOB_VALUES)
			return NULL;
		values[i] = value;
		at += length + (size_t)end;
	}
	return n ? at : NULL;
}

static bool parse_line(const char *line, struct tuned *t)
{
	char kernel[32], weight[16];
	unsigned outputs, inputs, rows;
	int end = 0;
	*t = (struct tuned){.broken = false};
	if (sscanf(line, "%31s %15s %10u x %10u x %10u: %n", kernel, weight, &outputs, &inputs,
		    &rows, &end) != 5 ||
		end == 0 || !find_names(kernel, weight, &t->of))
		return false;
	t->of.outputs = outputs;
	t->of.inputs = inputs;
	t->of.rows = rows;
	const char *at = line + end;
	if (strncmp(at, "broken ", 7) == 0) {
		t->broken = true;
		at += 7;
	}
	at = parse_knobs(at, t->of.kernel, t->knobs);
	if (!at || (*at && strncmp(at, " # ", 3) != 0))
		return false;
	if (t->broken && *at)
		snprintf(t->reason, sizeof t->reason, "%s", at + 3);
	double us, usual;
	if (!t->broken && *at && sscanf(at, " # %lf us, usual %lf us", &us, &usual) == 2 &&
		us > 0 && us < 1e12 && usual > 0 && usual < 1e12) {
		t->seconds = 1e-6 * us;
		t->usual_seconds = 1e-6 * usual;
	}
	return true;
}

static bool parse_memory(const char *line, double *bytes_per_second)
{
	double rate;
	int end = 0;
	if (sscanf(line, "memory: %lf GB/s%n", &rate, &end) != 1 || end == 0 || line[end] ||
		!(rate > 0 && rate < 1e6))
		return false;
	*bytes_per_second = 1e9 * rate;
	return true;
}

static bool parse_off(const char *line, enum feature *feature, const char **why)
{
	for (uint32_t f = 0; f < N_FEATURES; f++) {
		const size_t n = strlen(features[f].name);
		if (strncmp(line, "off: ", 5) == 0 && strncmp(line + 5, features[f].name, n) == 0 &&
			strncmp(line + 5 + n, " # ", 3) == 0) {
			*feature = (enum feature)f;
			*why = line + 5 + n + 3;
			return true;
		}
	}
	return false;
}

/* NULL, or why the line is not taken; with `keep` false it is only looked at. */
static const char *take_line(struct tuning *t, const char *line, bool keep)
{
	struct tuned item;
	double rate;
	enum feature feature;
	const char *why;
	if (parse_memory(line, &rate)) {
		if (keep)
			t->bytes_per_second = rate;
	} else if (parse_off(line, &feature, &why)) {
		if (keep)
			tuning_switch(t, feature, why);
	} else if (!parse_line(line, &item)) {
		return "a line of it is none of ours";
	} else if (keep && !tuning_put(t, &item)) {
		return "memory is out";
	}
	return NULL;
}

const char *tuning_parse(struct tuning *t, const char *key, const char *text)
{
	const size_t n_key = strlen(key);
	if (strncmp(text, key, n_key) != 0 || text[n_key] != '\n')
		return "another device, driver, version or set of shaders wrote it";
	uint32_t n;
	for (int pass = 0; pass < 2; pass++) { /* nothing is taken of a text with a bad line */
		n = 0;
		for (const char *at = text + n_key + 1; *at;) {
			char line[320];
			const size_t length = strcspn(at, "\n");
			if (length >= sizeof line || n++ > MAX_FINDINGS)
				return "a line of it is none of ours";
			memcpy(line, at, length);
			line[length] = '\0';
			const char *miss = take_line(t, line, pass == 1);
			if (miss)
				return miss;
			at += length + (at[length] == '\n');
		}
	}
	return NULL;
}
