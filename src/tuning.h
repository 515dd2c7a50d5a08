/* What measurements of a device found: for each class of ops the values of the kernel's knobs that were fastest,
 * and values that computed wrong results there; how fast it reads memory; and which builds of kernels its driver
 * runs wrong.
 *
 * Owns the table and its text; does not know how anything is measured, nor where the text is kept.  A table may
 * be used from several threads. */
#ifndef LAPILLI_TUNING_H
#define LAPILLI_TUNING_H

#include <pthread.h>

#include "knobs.h"

/* Ops that one measurement stands for; sizes rounded up to powers of two. */
struct op_class {
	enum kernel kernel;
	enum weight weight;       /* 0 where the kernel has no formats */
	uint32_t outputs, inputs; /* extent along x; length of a sum, or size of a head */
	uint32_t rows; /* of the step: those that a workgroup takes, else the most that it has */
};

struct op_class op_class(const struct op *op);
bool op_class_same(const struct op_class *a, const struct op_class *b);

struct tuned {
	struct op_class of;
	uint32_t knobs[MAX_KNOBS];
	double seconds, usual_seconds; /* with these and without; 0 when broken */
	bool broken;                   /* with these values results are wrong: never used */
	char reason[160];              /* "" unless broken */
};

/* Builds of kernels that a device can do without, called as in the VARIANT rows of shaders/kernels.def. */
enum feature {
	FEATURE_SUBGROUP,
	FEATURE_TEXELS,  /* needs subgroup */
	FEATURE_SHUFFLE, /* needs texels */
	FEATURE_LONG,    /* needs shuffle */
	FEATURE_SHARED,
	FEATURE_DOT,
	FEATURE_COOPMAT,
	N_FEATURES
};

const char *feature_name(enum feature f);

struct tuning {
	pthread_mutex_t lock;
	struct tuned *items;
	uint32_t n, capacity;
	double bytes_per_second; /* at which kernels read the device's memory; 0: never measured */
	bool off[N_FEATURES];    /* kernels so built compute wrong results: never used */
	char why[N_FEATURES][160];
};

void tuning_init(struct tuning *t);
void tuning_free(struct tuning *t);

/* Whether the class was measured: *found is its winner. */
bool tuning_find(struct tuning *t, const struct op_class *of, struct tuned *found);

/* Whether the kernel computes wrong results with these values for weights of that format. */
bool tuning_is_broken(
	struct tuning *t, enum kernel kernel, enum weight weight, const uint32_t *knobs);

/* Adds a finding; a winner takes the place of the one before.  False: out of memory. */
bool tuning_put(struct tuning *t, const struct tuned *item);

/* Forgets all, or all but what is switched off. */
void tuning_clear(struct tuning *t);
void tuning_forget_speeds(struct tuning *t);

/* Whether the feature, or one that it needs, is switched off. */
bool tuning_is_off(struct tuning *t, enum feature f);

/* Switches a feature off, with one line that says why, or (NULL) on again. */
void tuning_switch(struct tuning *t, enum feature f, const char *why);

/* "texels shuffle": what was switched off, without what only needs it; "" when nothing is. */
void tuning_list_off(struct tuning *t, char *list, size_t n_bytes);

/* "matvec Q8_0 4096 x 4096 x 1: OUTPUTS=1 LANES=128 # 12.31 us, usual 14.02 us", or with "broken" before the
 * values and the reason behind; appended, without a newline.  False: out of memory. */
bool tuned_print(const struct tuned *item, struct text *text);

/* The text of a table, a line a finding, below a first line that says what wrote it: `key`.  Behind the findings
 * stand "memory: 25.310 GB/s" and lines as "off: texels # matvec q8_0 33 x 256: NMSE 0.5, limit 0.0005". */
bool tuning_print(struct tuning *t, const char *key, struct text *text);

/* Adds the findings of such a text.  NULL, or why nothing of it is used: another key, a line that is none, values
 * that knobs.def does not have. */
const char *tuning_parse(struct tuning *t, const char *key, const char *text);

#endif
