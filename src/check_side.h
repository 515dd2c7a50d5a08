/* One side of a case: a backend with the operands that a builder makes.  What check.c and the builders
 * of its kernels share.
 *
 * A builder creates operands, outputs first, and appends the op; it goes on when something failed
 * (s->status says what) until the op, which needs them all. */
#ifndef LAPILLI_CHECK_SIDE_H
#define LAPILLI_CHECK_SIDE_H

#include "check.h"

#define GUARD        256  /* bytes before and behind an operand; a legal offset of a view */
#define PATTERN      0xC5 /* bytes of an output before the run, and of its guards */
#define MAX_OPERANDS 24
#define MAX_CHUNKS   16
#define LIMIT_EXACT  0.0

/* Fields that a kernel does not have are 0. */
struct check_case {
	enum kernel kernel;
	uint32_t n_rows;      /* of the step */
	uint32_t n_out, n_in; /* n_in is rounded up to whole blocks of the format */
	uint32_t chunk;       /* rows of a chunk of the weights, or experts; 0: one chunk */
	uint32_t room;        /* rows that the plan has room for; 0: n_rows */
	uint32_t n_segments;  /* of a norm; 0: one */
	uint32_t n_used;      /* rows of activations per row of the step; 0: one */
	uint32_t n_expert;
	uint32_t activation;
	uint32_t n_head, n_head_kv, head_dim, n_rot;
	enum kv_type k, v;
	uint32_t pos;    /* of the first row (prefill, rope) or the longest (decode) */
	uint32_t window; /* of attention */
	uint32_t flags;
};

enum {
	SMALL = 1, /* also on slow devices */
	BIAS = 2,
	RESIDUAL = 4,
	NEOX = 8,
	SCALE = 16, /* of an embedding, product, norm, of experts' weights, of q by its position */
	ONLY_F32 = 64, /* one format is enough */
	SOFTCAP = 128,
	SINKS = 256,
	UNGATED = 512,
	BY_POS = 1024,
	X_PER_SLOT = 2048, /* of experts */
	OVER_ALL = 4096,   /* softmax over all experts */
	SHARED = 8192,
	SHARED_GATE = 16384,
	GATED = 32768,      /* a product, a norm, a convolution; queries that have gates */
	HEAD_NORMS = 65536, /* of q and k */
	SPARSE = 131072,    /* only those blocks of a state are kept that must be */
	V_NORM = 262144,    /* of heads of v, which begins where k does */
	Q_ONLY = 524288,    /* no k and v */
	INSIDE = 1048576    /* up begins in the middle of rows */
};

/* WORDS: every bit counts.  RESULT: struct sample_result, words but for the log-probability.  ROUTE: struct expert_route and struct
 * top_token, a word and a number.  Q8_0, Q4_0:
 * units of a cache; X_Q8: of x in 8 bits.  SCRATCH: only what lies beside it counts. */
enum form {
	FORM_INPUT,
	FORM_SCRATCH,
	FORM_F32,
	FORM_F16,
	FORM_Q8_0,
	FORM_Q4_0,
	FORM_X_Q8,
	FORM_WORDS,
	FORM_RESULT,
	FORM_ROUTE
};

struct operand {
	struct buffer *buffer;
	uint8_t *bytes;   /* with guards: before the run what it starts with, then what came back */
	uint64_t n_bytes; /* without */
	enum form form;
	double limit;
	uint64_t n_defined; /* bytes; what is beyond may be anything */
};

struct side {
	struct backend *b;
	const struct check_case *c;
	enum weight weight;
	struct lap_error *err;
	enum lap_status status; /* of the first thing that went wrong */
	uint64_t random;
	struct operand operands[MAX_OPERANDS];
	uint32_t n_operands;
	struct view chunks[MAX_CHUNKS];
	struct plan plan;
	double seconds;
};

/* Builds the operands and the plan of s->c for s->weight; side_free takes what came of it. */
void side_build(struct side *s);
void side_free(struct side *s);

/* The case on `b` n_runs times and once on `cpu`, with operands of these random numbers; as
 * check_run_knobs. */
enum lap_status side_check(struct backend *b, struct backend *cpu, const struct check_case *c,
	enum weight weight, uint64_t random, uint32_t n_runs, const uint32_t *knobs,
	struct check_result *result, struct lap_error *err);

/* Case i of check.h's numbering, 0 <= i < check_n_cases(), and its format of weights: check_cases.c. */
const struct check_case *case_find(uint32_t i, enum weight *weight);

/* n_in in whole blocks. */
uint32_t case_columns(const struct check_case *c, enum weight weight);

/* Positions up to the last of these rows: n_kv of a step. */
uint32_t case_positions(const struct step_row *rows, uint32_t n_rows);

uint32_t side_random_u32(struct side *s);
float side_random_float(struct side *s, float size); /* -size to size */

/* Memory on the host for an operand of n_bytes, `fill` everywhere; NULL when something failed. */
struct operand *operand_create(struct side *s, uint64_t n_bytes, int fill);

/* The operand on the device, in its guards. */
struct view operand_upload(struct side *s, struct operand *o, enum memory memory);

struct view side_output(struct side *s, uint64_t n_bytes, enum form form, double limit);

/* Rows of the step: as many as the plan has room for. */
uint32_t side_room(const struct side *s);

/* Rows of activations per row of the step. */
uint32_t side_n_used(const struct side *s);

/* Random activations, n_used rows for each row of the step; the padding of a row is 0, as a session
 * keeps it. */
struct rows input_slots(struct side *s, uint32_t n_used_rows, uint32_t n, float size);
struct rows input_rows(struct side *s, uint32_t n, float size);
struct rows output_slots(struct side *s, uint32_t n_used_rows, uint32_t n, double limit);
struct rows output_rows(struct side *s, uint32_t n, double limit);

/* Random blocks.  Scales are small, of either sign, and often subnormal; so are some plain halves. */
void random_blocks(struct side *s, enum weight weight, uint8_t *to, uint64_t n_bytes);

/* Random weights in chunks of rows_per_chunk rows; 0: one chunk. */
struct weights input_weights(struct side *s, enum weight weight, uint32_t n_rows, uint32_t n_cols,
	uint32_t rows_per_chunk, struct view *chunks);

/* A cache for sequences of n_blocks blocks; blocks are dealt in a scattered order. */
struct kv_shape input_table(struct side *s, uint32_t n_seq, uint32_t n_blocks);

enum form cache_form(enum kv_type type);

/* A rope table of n_rot / 2 pairs of this length and of any angle at each position. */
struct view input_turns(struct side *s, uint32_t n_positions, float length);

/* The step; rows (step_rows or what is as large) beyond n_rows are as a longer step left them. */
void input_step(struct side *s, const void *rows, uint32_t n_kv);

/* Builders of the kernels of a mixture of experts: check_experts.c. */
void build_moe_route(struct side *s, const struct step_row *rows);
void build_moe_tiles(struct side *s, const struct step_row *rows);
void build_expert_matmul(struct side *s, const struct step_row *rows);
void build_expert_sum(struct side *s, const struct step_row *rows);

/* Builders of what follows the logits: check_tail.c, check_beams.c. */
void build_sample(struct side *s, const struct step_row *rows);
void build_control(struct side *s, const struct step_row *rows);
void build_beam_select(struct side *s, const struct step_row *rows);

/* Builders of the kernels of recurrent layers: check_state.c. */
void build_conv(struct side *s, const struct step_row *rows);
void build_delta(struct side *s, const struct step_row *rows);

/* Builders of the kernels that move a KV cache: check_kv.c. */
void build_kv_copy(struct side *s, const struct step_row *rows);
void build_kv_shift(struct side *s, const struct step_row *rows);

#endif
