/* Beam search without a model: which of the candidates go on, which are finished, when it is over.
 *
 * The rules are those of generate with num_beams and do_sample=False in Hugging Face transformers
 * (generation/utils.py, _beam_search; BeamSearchScorer in older versions).  Knows no sessions, and
 * not where candidates come from. */
#ifndef LAPILLI_BEAM_SCORER_H
#define LAPILLI_BEAM_SCORER_H

#include "args.h"
#include "base.h"

#define MAX_BEAMS MAX_BEAM_ROWS

struct beam_rules {
	uint32_t n_beams; /* 1 to MAX_BEAMS */
	float length_penalty;
	enum lap_early_stopping early_stopping;
	uint32_t n_most; /* tokens generated at most, at least 1 */
	const int32_t
		*ends; /* tokens that end a beam, [n_ends]; the caller's while the search lasts */
	size_t n_ends;
};

/* A sequence of generated tokens, as its last token and the sequence before it. */
struct beam_node {
	int32_t token;
	uint32_t before; /* index of a node; BEAM_ROOT: the prompt */
};
#define BEAM_ROOT UINT32_MAX

struct running_beam {
	uint32_t node;
	float log_prob; /* sum over its tokens */
};

struct finished_beam {
	uint32_t node, n; /* generated tokens, the one that ended it among them */
	float log_prob, score;
	enum lap_finish finish;
};

struct beam_scorer {
	struct beam_rules rules;
	struct beam_node *nodes;
	size_t n_nodes, capacity;
	uint32_t n_generated; /* tokens of a running beam */
	uint32_t n_running, n_finished;
	struct running_beam running[MAX_BEAMS];
	struct finished_beam finished[MAX_BEAMS]; /* best first; of equal ones the earlier */
	bool done;
};

/* One beam without tokens, whose log-probability is 0. */
void beam_scorer_init(struct beam_scorer *b, const struct beam_rules *rules);
void beam_scorer_free(struct beam_scorer *b); /* a zeroed one is allowed */

/* Candidates that a step must offer: the best so many of all running beams' continuations, fewer where
 * there are no more; enough too are those that are left of the best n_beams + n_ends of each beam. */
uint32_t beam_scorer_wanted(const struct beam_rules *rules);

/* One step: candidates[n], best first, row being the index of the running beam that each continues and
 * score the sum of its log-probabilities.  Afterwards beam i continues what was beam parents[i], with
 * the token of its node; where none goes on, or the search is over, `done` is set.  LAP_NO_MEMORY. */
enum lap_status beam_scorer_step(struct beam_scorer *b, const struct beam_candidate *candidates,
	uint32_t n, uint32_t parents[MAX_BEAMS], struct lap_error *err);

/* Ends before its time: what runs counts as finished, for this reason. */
void beam_scorer_end(struct beam_scorer *b, enum lap_finish why);

/* sum / n^length_penalty */
float beam_score(const struct beam_rules *rules, float log_prob, uint32_t n);

/* The tokens of a finished beam: tokens[n]. */
void beam_scorer_tokens(
	const struct beam_scorer *b, const struct finished_beam *beam, int32_t *tokens);

#endif
