/* What can be said of a grammar's code once: where a text can end, who calls whom first, which bytes nobody tells
 * apart; see grammar_code.h.  Knows no GBNF and no rule's name. */
#include <stdlib.h>
#include <string.h>

#include "grammar_code.h"

/* For each instruction those that depend on it: users[first[i]] up to users[first[i + 1]]. */
struct users {
	uint32_t *first, *at;
};

static unsigned depends_on(const struct grammar *g, uint32_t i, uint32_t on[2])
{
	const struct code *code = &g->code[i];
	switch (code->kind) {
	case CODE_SET:
		on[0] = i + 1;
		return 1;
	case CODE_SPLIT:
		on[0] = code->a;
		on[1] = code->b;
		return 2;
	case CODE_JUMP:
		on[0] = code->a;
		return 1;
	case CODE_CALL:
		on[0] = g->start[code->a];
		on[1] = i + 1;
		return 2;
	case CODE_ACCEPT:
	case CODE_RETURN:
		break;
	}
	return 0;
}

static bool users_find(const struct grammar *g, struct users *users)
{
	users->first = array_alloc(g->n_code + 2, sizeof *users->first);
	users->at = array_alloc(2 * (uint64_t)g->n_code + 1, sizeof *users->at);
	if (!users->first || !users->at)
		return false;
	uint32_t on[2];
	for (uint32_t i = 0; i < g->n_code; i++)
		for (unsigned k = depends_on(g, i, on); k-- > 0;)
			users->first[on[k] + 2]++;
	for (uint32_t i = 2; i < g->n_code + 2; i++)
		users->first[i] += users->first[i - 1];
	for (uint32_t i = 0; i < g->n_code; i++)
		for (unsigned k = depends_on(g, i, on); k-- > 0;)
			users->at[users->first[on[k] + 1]++] = i;
	return true;
}

/* Marks the instructions from which the end of the rule can be reached, with reading bytes (`reads`) or
 * without any.  `work` has room for all instructions. */
static void mark_ends(
	const struct grammar *g, const struct users *users, bool reads, bool *mark, uint32_t *work)
{
	uint32_t n_work = 0;
	for (uint32_t i = 0; i < g->n_code; i++)
		if (g->code[i].kind == CODE_RETURN || g->code[i].kind == CODE_ACCEPT) {
			mark[i] = true;
			work[n_work++] = i;
		}
	static const struct byte_set nothing;
	while (n_work) {
		uint32_t end = work[--n_work];
		for (uint32_t u = users->first[end]; u < users->first[end + 1]; u++) {
			uint32_t i = users->at[u];
			const struct code *code = &g->code[i];
			bool reaches = !mark[i];
			if (code->kind == CODE_SET)
				reaches = reaches && reads &&
					memcmp(&g->sets[code->a], &nothing, sizeof nothing) != 0;
			else if (code->kind == CODE_CALL)
				reaches = reaches && mark[g->start[code->a]] && mark[i + 1];
			if (reaches) {
				mark[i] = true;
				work[n_work++] = i;
			}
		}
	}
}

/* Which rules a rule may call before it has read a byte: calls[first[rule]] up to calls[first[rule + 1]]. */
struct calls {
	uint32_t *first, *at;
	uint32_t *n_callers; /* [n_rules] */
	bool *seen;          /* [n_code] */
};

static void calls_find(
	const struct grammar *g, const bool *empty, uint32_t *work, struct calls *calls)
{
	uint32_t n = 0;
	for (uint32_t rule = 0; rule < g->n_rules; rule++) {
		uint32_t n_work = 0;
		calls->first[rule] = n;
		work[n_work++] = g->start[rule];
		while (n_work) {
			uint32_t i = work[--n_work];
			const struct code *code = &g->code[i];
			if (calls->seen[i] || !g->live[i])
				continue;
			calls->seen[i] = true; /* no other rule has this instruction */
			if (code->kind == CODE_JUMP || code->kind == CODE_SPLIT)
				work[n_work++] = code->a;
			if (code->kind == CODE_SPLIT)
				work[n_work++] = code->b;
			if (code->kind != CODE_CALL)
				continue;
			calls->at[n++] = code->a;
			calls->n_callers[code->a]++;
			if (empty[g->start[code->a]])
				work[n_work++] = i + 1;
		}
	}
	calls->first[g->n_rules] = n;
}

/* Each rule that has a caller left goes up to one that has, too, and ends in a circle: a rule of it.  rank[]
 * becomes a caller of each. */
static uint32_t circle_find(struct grammar *g, const struct calls *calls)
{
	uint32_t rule = 0;
	for (uint32_t r = 0; r < g->n_rules; r++)
		if (calls->n_callers[r]) {
			rule = r;
			for (uint32_t c = calls->first[r]; c < calls->first[r + 1]; c++)
				g->rank[calls->at[c]] = r;
		}
	for (uint32_t i = 0; i < g->n_rules; i++)
		rule = g->rank[rule];
	return rule;
}

/* False when rules are left that call each other in a circle.  `queue` has room for all rules. */
static bool rules_rank(struct grammar *g, const struct calls *calls, uint32_t *queue)
{
	uint32_t n_ranked = 0, n_queue = 0;
	for (uint32_t rule = 0; rule < g->n_rules; rule++)
		if (!calls->n_callers[rule])
			queue[n_queue++] = rule;
	for (; n_ranked < n_queue; n_ranked++) {
		uint32_t rule = queue[n_ranked];
		g->rank[rule] = n_ranked;
		for (uint32_t c = calls->first[rule]; c < calls->first[rule + 1]; c++)
			if (!--calls->n_callers[calls->at[c]])
				queue[n_queue++] = calls->at[c];
	}
	return n_ranked == g->n_rules;
}

/* A rule that calls itself before it has read a byte is a fault; the others get their rank. */
static enum code_fault order_rules(
	struct grammar *g, const bool *empty, uint32_t *work, uint32_t *recursive)
{
	enum code_fault fault = CODE_NO_MEMORY;
	struct calls calls = {
		.first = array_alloc((uint64_t)g->n_rules + 1, sizeof *calls.first),
		.at = array_alloc(g->n_code, sizeof *calls.at),
		.n_callers = array_alloc(g->n_rules, sizeof *calls.n_callers),
		.seen = array_alloc(g->n_code, sizeof *calls.seen),
	};
	if (calls.first && calls.at && calls.n_callers && calls.seen) {
		calls_find(g, empty, work, &calls);
		fault = rules_rank(g, &calls, work) ? CODE_FINE : CODE_LEFT_RECURSIVE;
		if (fault)
			*recursive = circle_find(g, &calls);
	}
	free(calls.first);
	free(calls.at);
	free(calls.n_callers);
	free(calls.seen);
	return fault;
}

/* Where nothing but jumps stands before the end of the rule. */
static void mark_tails(struct grammar *g)
{
	for (uint32_t i = 0; i < g->n_code; i++) {
		uint32_t at = i, n = 0;
		while (g->code[at].kind == CODE_JUMP && n++ < 64)
			at = g->code[at].a;
		g->tail[i] = g->code[at].kind == CODE_RETURN;
	}
}

/* Splits the bytes by one set after the other; there are never more than 256 classes. */
static void find_classes(struct grammar *g)
{
	memset(g->class_of, 0, sizeof g->class_of);
	g->n_classes = 1;
	for (uint32_t s = 0; s < g->n_sets && g->n_classes < 256; s++) {
		int inside[256]; /* of a class's bytes those in the set move to a new class */
		uint32_t n_of[256] = {0}, n_inside[256] = {0};
		for (unsigned byte = 0; byte < 256; byte++) {
			n_of[g->class_of[byte]]++;
			n_inside[g->class_of[byte]] += byte_set_has(&g->sets[s], byte);
		}
		for (unsigned c = 0, n = g->n_classes; c < n; c++) {
			inside[c] = -1;
			if (n_inside[c] && n_inside[c] < n_of[c])
				inside[c] = (int)g->n_classes++;
		}
		for (unsigned byte = 0; byte < 256; byte++)
			if (byte_set_has(&g->sets[s], byte) && inside[g->class_of[byte]] >= 0)
				g->class_of[byte] = (uint8_t)inside[g->class_of[byte]];
	}
	for (unsigned byte = 0; byte < 256; byte++)
		g->example[g->class_of[byte]] = (uint8_t)byte;
}

enum code_fault code_analyse(struct grammar *g, uint32_t *recursive)
{
	enum code_fault fault = CODE_NO_MEMORY;
	struct users users = {0};
	g->live = array_alloc(g->n_code, sizeof *g->live);
	g->tail = array_alloc(g->n_code, sizeof *g->tail);
	g->rank = array_alloc(g->n_rules, sizeof *g->rank);
	bool *empty = array_alloc(g->n_code, sizeof *empty);
	uint32_t *work = array_alloc(2 * (uint64_t)g->n_code + 2, sizeof *work);
	if (g->live && g->tail && g->rank && empty && work && users_find(g, &users)) {
		mark_ends(g, &users, true, g->live, work);
		mark_ends(g, &users, false, empty, work);
		fault = g->live[g->start[0]] ? order_rules(g, empty, work, recursive)
					     : CODE_ENDLESS;
		mark_tails(g);
		find_classes(g);
	}
	free(users.first);
	free(users.at);
	free(empty);
	free(work);
	return fault;
}
