/* Running a grammar over the bytes of a vocabulary: see grammar.h. */
#include <stdlib.h>
#include <string.h>

#include "grammar_code.h"

/* ---- the vocabulary -------------------------------------------------------------------------- */

/* A tree of the pieces' bytes, written in the order of the sorted pieces: a node, then all that is below it. */
struct trie_node {
	uint32_t end;   /* the first node that is not below this one */
	uint32_t token; /* ids from tokens[token] up to the next node's are spelled by this node */
	uint32_t where; /* depth << 8 | byte; the first byte of a piece has depth 1 */
};

struct grammar_vocabulary {
	uint32_t n_vocab, n_nodes, max_depth;
	struct trie_node *nodes; /* [n_nodes + 1] */
	uint32_t *tokens;
	size_t n_ends;
	uint32_t *ends;
	size_t *piece_at; /* [n_vocab + 1] */
	char *pieces;
};

struct sorted_piece {
	const char *bytes;
	size_t n;
	uint32_t id;
};

static int compare_pieces(const void *a, const void *b)
{
	const struct sorted_piece *x = a, *y = b;
	int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
	if (order || x->n != y->n)
		return order ? order : x->n < y->n ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* The pieces that may be drawn, sorted; the ends and the control tokens are left out. */
static uint32_t sort_pieces(const struct grammar_vocabulary *v, struct sorted_piece *sorted)
{
	uint32_t n = 0;
	for (uint32_t id = 0; id < v->n_vocab; id++) {
		size_t n_bytes = v->piece_at[id + 1] - v->piece_at[id];
		if (n_bytes)
			sorted[n++] =
				(struct sorted_piece){v->pieces + v->piece_at[id], n_bytes, id};
	}
	qsort(sorted, n, sizeof *sorted, compare_pieces);
	return n;
}

static size_t common_prefix(const struct sorted_piece *a, const struct sorted_piece *b)
{
	size_t i = 0;
	while (i < a->n && i < b->n && a->bytes[i] == b->bytes[i])
		i++;
	return i;
}

/* path[depth]: the open node of that depth. */
static void build_trie(
	struct grammar_vocabulary *v, const struct sorted_piece *sorted, uint32_t n, uint32_t *path)
{
	size_t depth = 0;
	for (uint32_t i = 0; i < n; i++) {
		size_t shared = i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0;
		for (; depth > shared; depth--)
			v->nodes[path[depth]].end = v->n_nodes;
		for (; depth < sorted[i].n; depth++) {
			path[depth + 1] = v->n_nodes;
			v->nodes[v->n_nodes++] = (struct trie_node){0, i,
				(uint32_t)(depth + 1) << 8 | (unsigned char)sorted[i].bytes[depth]};
		}
		v->tokens[i] = sorted[i].id;
	}
	for (; depth > 0; depth--)
		v->nodes[path[depth]].end = v->n_nodes;
	v->nodes[v->n_nodes] = (struct trie_node){v->n_nodes, n, 0};
}

static bool is_end(const struct grammar_vocabulary *v, uint32_t id)
{
	for (size_t i = 0; i < v->n_ends; i++)
		if (v->ends[i] == id)
			return true;
	return false;
}

static enum lap_status vocabulary_fill(
	struct grammar_vocabulary *v, const struct grammar_piece *pieces, struct lap_error *err)
{
	uint64_t n_bytes = 0, n_nodes = 1;
	uint32_t max_depth = 0;
	for (uint32_t id = 0; id < v->n_vocab; id++) {
		if (pieces[id].n >= 1 << 24)
			return fail(err, LAP_USAGE,
				"vocabulary: the piece of token %u has %llu bytes, expected less "
				"than 16 MiB",
				(unsigned)id, (unsigned long long)pieces[id].n);
		if (is_end(v, id))
			continue;
		n_bytes += pieces[id].n;
		max_depth = pieces[id].n > max_depth ? (uint32_t)pieces[id].n : max_depth;
	}
	if (n_bytes >= UINT32_MAX - 1)
		return fail(err, LAP_USAGE,
			"vocabulary: the pieces have %llu bytes, expected less than 4 GiB",
			(unsigned long long)n_bytes);
	v->max_depth = max_depth;
	v->piece_at = array_alloc((uint64_t)v->n_vocab + 1, sizeof *v->piece_at);
	v->pieces = array_alloc(n_bytes, 1);
	v->tokens = array_alloc(v->n_vocab, sizeof *v->tokens);
	struct sorted_piece *sorted = array_alloc(v->n_vocab, sizeof *sorted);
	uint32_t *path = array_alloc((uint64_t)max_depth + 1, sizeof *path);
	uint32_t n = 0;
	if (v->piece_at && v->pieces && sorted) {
		for (uint32_t id = 0; id < v->n_vocab; id++) {
			size_t n_piece = is_end(v, id) ? 0 : pieces[id].n;
			if (n_piece)
				memcpy(v->pieces + v->piece_at[id], pieces[id].bytes, n_piece);
			v->piece_at[id + 1] = v->piece_at[id] + n_piece;
		}
		n = sort_pieces(v, sorted);
		for (uint32_t i = 0; i < n; i++)
			n_nodes +=
				sorted[i].n - (i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0);
		v->nodes = array_alloc(n_nodes, sizeof *v->nodes);
	}
	enum lap_status status = LAP_OK;
	if (!v->nodes || !v->tokens || !path)
		status = fail_memory(
			err, "the vocabulary of a grammar", n_bytes + n_nodes * sizeof *v->nodes);
	else
		build_trie(v, sorted, n, path);
	free(sorted);
	free(path);
	return status;
}

enum lap_status grammar_vocabulary_create(const struct grammar_piece *pieces, uint32_t n_vocab,
	const int32_t *ends, size_t n_ends, struct grammar_vocabulary **vocabulary,
	struct lap_error *err)
{
	*vocabulary = NULL;
	for (size_t i = 0; i < n_ends; i++)
		if (ends[i] < 0 || (uint32_t)ends[i] >= n_vocab)
			return fail(err, LAP_USAGE,
				"vocabulary: found the end token %d, expected one of %u tokens",
				(int)ends[i], (unsigned)n_vocab);
	struct grammar_vocabulary *v = calloc(1, sizeof *v);
	uint32_t *copy = array_alloc(n_ends, sizeof *copy);
	if (!v || !copy) {
		free(v);
		free(copy);
		return fail_memory(err, "the vocabulary of a grammar", sizeof *v);
	}
	for (size_t i = 0; i < n_ends; i++)
		copy[i] = (uint32_t)ends[i];
	v->n_vocab = n_vocab;
	v->ends = copy;
	v->n_ends = n_ends;
	enum lap_status status = vocabulary_fill(v, pieces, err);
	if (status) {
		grammar_vocabulary_destroy(v);
		return status;
	}
	*vocabulary = v;
	return LAP_OK;
}

void grammar_vocabulary_destroy(struct grammar_vocabulary *v)
{
	if (!v)
		return;
	free(v->nodes);
	free(v->tokens);
	free(v->ends);
	free(v->piece_at);
	free(v->pieces);
	free(v);
}

/* ---- sets that are kept once ----------------------------------------------------------------- */

/* {instruction, frame}, the instruction in the upper half: where to go on and where to return to then. */
typedef uint64_t place;

static place place_of(uint32_t code, uint32_t frame)
{
	return (place)code << 32 | frame;
}

static uint32_t place_code(place p)
{
	return (uint32_t)(p >> 32);
}

static uint32_t place_frame(place p)
{
	return (uint32_t)p;
}

struct places {
	place *at;
	size_t n, capacity;
};

static bool places_add(struct places *p, place x)
{
	if (p->n == p->capacity) {
		size_t capacity = p->capacity ? p->capacity * 2 : 64;
		place *at = realloc(p->at, capacity * sizeof *at);
		if (!at)
			return false;
		p->at = at;
		p->capacity = capacity;
	}
	p->at[p->n++] = x;
	return true;
}

static int compare_places(const void *a, const void *b)
{
	place x = *(const place *)a, y = *(const place *)b;
	return x < y ? -1 : x > y;
}

/* Ascending, each once: the form in which sets are compared. */
static void places_tidy(struct places *p)
{
	size_t n = 0;
	if (p->n > 1)
		qsort(p->at, p->n, sizeof *p->at, compare_places);
	for (size_t i = 0; i < p->n; i++)
		if (!n || p->at[n - 1] != p->at[i])
			p->at[n++] = p->at[i];
	p->n = n;
}

struct set {
	size_t first; /* its places, in `all` */
	uint32_t n, hash;
};

/* Sets by number; equal sets have one number. */
struct sets {
	struct places all;
	struct set *at;
	uint32_t n, capacity;
	uint32_t *table, n_table; /* number + 1 */
};

static uint32_t places_hash(const place *p, size_t n)
{
	uint64_t hash = 0x9E3779B97F4A7C15u;
	for (size_t i = 0; i < n; i++) {
		hash = (hash ^ p[i]) * 0xFF51AFD7ED558CCDu;
		hash ^= hash >> 32;
	}
	return (uint32_t)hash;
}

static bool sets_grow(struct sets *s)
{
	if (s->n == s->capacity) {
		uint32_t capacity = s->capacity ? s->capacity * 2 : 64;
		struct set *at = realloc(s->at, capacity * sizeof *at);
		if (!at)
			return false;
		s->at = at;
		s->capacity = capacity;
	}
	if (s->n < s->n_table / 2)
		return true;
	uint32_t n_table = s->n_table ? s->n_table * 2 : 128;
	uint32_t *table = calloc(n_table, sizeof *table);
	if (!table)
		return false;
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t slot = s->at[i].hash & (n_table - 1);
		while (table[slot])
			slot = (slot + 1) & (n_table - 1);
		table[slot] = i + 1;
	}
	free(s->table);
	s->table = table;
	s->n_table = n_table;
	return true;
}

/* The number of a tidy set; false: out of memory. */
static bool sets_intern(struct sets *s, const place *places, size_t n, uint32_t *number)
{
	if (!sets_grow(s))
		return false;
	uint32_t hash = places_hash(places, n), slot = hash & (s->n_table - 1);
	for (; s->table[slot]; slot = (slot + 1) & (s->n_table - 1)) {
		const struct set *set = &s->at[s->table[slot] - 1];
		if (set->hash == hash && set->n == n &&
			(!n || !memcmp(s->all.at + set->first, places, n * sizeof *places))) {
			*number = s->table[slot] - 1;
			return true;
		}
	}
	size_t first = s->all.n;
	for (size_t i = 0; i < n; i++)
		if (!places_add(&s->all, places[i]))
			return false;
	s->at[s->n++] = (struct set){first, (uint32_t)n, hash};
	s->table[slot] = s->n;
	*number = s->n - 1;
	return true;
}

static uint64_t sets_memory(const struct sets *s)
{
	return s->all.capacity * sizeof(place) + s->capacity * sizeof(struct set) +
		s->n_table * sizeof(uint32_t);
}

static void sets_free(struct sets *s)
{
	free(s->all.at);
	free(s->at);
	free(s->table);
	*s = (struct sets){0};
}

/* ---- the automaton --------------------------------------------------------------------------- */

#define UNKNOWN  UINT32_MAX /* a successor that nobody asked for yet */
#define DEAD     0u         /* the state without places */
#define BOTTOM   0u         /* the frame of root: it returns to CODE_ACCEPT */
#define IS_LOCAL (1u << 31) /* a frame of this closure, not numbered yet */
#define NONE     UINT32_MAX

/* A rule that was called at this byte: all its callers share the frame, so it runs once. */
struct local_frame {
	uint32_t rule, last_return; /* in `returns` */
	uint32_t number;
	bool returned; /* without having read a byte */
};

struct local_return {
	place place;
	uint32_t before; /* the frame's return before this one */
};

/* What the states of one grammar and vocabulary share.  It only grows; when it is too large, what no state
 * needs is dropped and will be computed again. */
struct automaton {
	const struct grammar *g;
	const struct grammar_vocabulary *v;
	struct grammar_state *users; /* a list through their `next` */
	struct sets frames, states;
	uint32_t *next; /* [states][classes] */
	uint32_t *
		*masks; /* [states]: NULL until asked for; the last word is how many bits are set */
	uint32_t n_room;   /* states that next and masks have room for */
	uint64_t n_memory; /* of the masks and next */
	uint64_t n_steps;  /* of this call */
	/* Scratch of a closure. */
	struct places work, reads, tidy;
	place *seen; /* open addressing, n_seen of n_seen_room (a power of two) */
	uint32_t n_seen, n_seen_room;
	struct local_frame *locals; /* [rules] */
	uint32_t *local_of;         /* [rules]: index of a local + 1 */
	uint32_t n_locals;
	uint32_t *order; /* [rules]: locals by rank */
	struct local_return *returns;
	uint32_t n_returns, n_returns_room;
	uint32_t *path; /* [max_depth + 1]: states on the way to a node of the trie */
	bool no_memory;
};

struct grammar_state {
	struct automaton *automaton;
	struct grammar_state *next, **link; /* `link` is what points here */
	uint32_t number;
	bool ended;
};

static uint64_t automaton_memory(const struct automaton *a)
{
	return sets_memory(&a->frames) + sets_memory(&a->states) + a->n_memory;
}

static void automaton_clear(struct automaton *a)
{
	for (uint32_t i = 0; i < a->states.n && a->masks; i++)
		free(a->masks[i]);
	free(a->masks);
	free(a->next);
	a->masks = NULL;
	a->next = NULL;
	a->n_room = 0;
	a->n_memory = 0;
	sets_free(&a->frames);
	sets_free(&a->states);
}

static void automaton_destroy(struct automaton *a)
{
	automaton_clear(a);
	free(a->work.at);
	free(a->reads.at);
	free(a->tidy.at);
	free(a->seen);
	free(a->locals);
	free(a->local_of);
	free(a->order);
	free(a->returns);
	free(a->path);
	free(a);
}

/* The number of a tidy set of places that read, with room for its successors. */
static bool state_intern(struct automaton *a, const place *places, size_t n, uint32_t *number)
{
	uint32_t n_classes = a->g->n_classes, n_before = a->states.n;
	if (a->states.n == a->n_room) {
		uint32_t room = a->n_room ? a->n_room * 2 : 64;
		uint32_t *next = realloc(a->next, (size_t)room * n_classes * sizeof *next);
		if (next)
			a->next = next;
		uint32_t **masks = realloc(a->masks, (size_t)room * sizeof *masks);
		if (masks)
			a->masks = masks;
		if (!next || !masks)
			return false;
		a->n_memory +=
			(uint64_t)(room - a->n_room) * (n_classes * sizeof *next + sizeof *masks);
		a->n_room = room;
	}
	if (!sets_intern(&a->states, places, n, number))
		return false;
	if (a->states.n > n_before) {
		memset(a->next + (size_t)*number * n_classes, 0xFF, n_classes * sizeof *a->next);
		a->masks[*number] = NULL;
	}
	return true;
}

/* True the first time a place is met in this closure. */
static bool see(struct automaton *a, place p)
{
	if (a->n_seen >= a->n_seen_room / 2) {
		uint32_t room = a->n_seen_room ? a->n_seen_room * 2 : 256;
		place *seen = malloc(room * sizeof *seen);
		if (!seen) {
			a->no_memory = true;
			return false;
		}
		memset(seen, 0xFF, room * sizeof *seen);
		for (uint32_t i = 0; i < a->n_seen_room; i++)
			if (a->seen[i] != UINT64_MAX) {
				uint32_t slot = places_hash(&a->seen[i], 1) & (room - 1);
				while (seen[slot] != UINT64_MAX)
					slot = (slot + 1) & (room - 1);
				seen[slot] = a->seen[i];
			}
		free(a->seen);
		a->seen = seen;
		a->n_seen_room = room;
	}
	uint32_t slot = places_hash(&p, 1) & (a->n_seen_room - 1);
	for (; a->seen[slot] != UINT64_MAX; slot = (slot + 1) & (a->n_seen_room - 1))
		if (a->seen[slot] == p)
			return false;
	a->seen[slot] = p;
	a->n_seen++;
	return true;
}

/* Goes to an instruction unless that leads nowhere or was done. */
static void visit(struct automaton *a, uint32_t code, uint32_t frame)
{
	place p = place_of(code, frame);
	if (a->g->live[code] && see(a, p) && !places_add(&a->work, p))
		a->no_memory = true;
}

static void add_return(struct automaton *a, struct local_frame *local, place back)
{
	if (a->n_returns == a->n_returns_room) {
		uint32_t room = a->n_returns_room ? a->n_returns_room * 2 : 64;
		struct local_return *returns = realloc(a->returns, room * sizeof *returns);
		if (!returns) {
			a->no_memory = true;
			return;
		}
		a->returns = returns;
		a->n_returns_room = room;
	}
	a->returns[a->n_returns] = (struct local_return){back, local->last_return};
	local->last_return = a->n_returns++;
}

static void call(struct automaton *a, uint32_t rule, uint32_t back, uint32_t frame)
{
	if (!a->local_of[rule]) {
		a->locals[a->n_locals++] = (struct local_frame){.rule = rule, .last_return = NONE};
		a->local_of[rule] = a->n_locals;
		visit(a, a->g->start[rule], IS_LOCAL | (a->n_locals - 1));
	}
	struct local_frame *local = &a->locals[a->local_of[rule] - 1];
	add_return(a, local, place_of(back, frame));
	if (local->returned)
		visit(a, back, frame);
}

static void return_from(struct automaton *a, uint32_t frame)
{
	if (frame & IS_LOCAL) {
		struct local_frame *local = &a->locals[frame & ~IS_LOCAL];
		local->returned = true;
		for (uint32_t r = local->last_return; r != NONE; r = a->returns[r].before)
			visit(a, place_code(a->returns[r].place), place_frame(a->returns[r].place));
		return;
	}
	struct set set = a->frames.at[frame];
	for (uint32_t i = 0; i < set.n; i++) {
		place back = a->frames.all.at[set.first + i];
		visit(a, place_code(back), place_frame(back));
	}
}

static uint32_t frame_number(const struct automaton *a, uint32_t frame)
{
	return frame & IS_LOCAL ? a->locals[frame & ~IS_LOCAL].number : frame;
}

/* Numbers the frames of this closure, callers first: there is no left recursion, so the rank is an order.
 * A frame that would only return once more is left out, so lists written as recursion take no room. */
static bool number_locals(struct automaton *a)
{
	a->tidy.n = 0;
	for (uint32_t i = 0; i < a->n_locals; i++)
		if (!places_add(&a->tidy, (uint64_t)a->g->rank[a->locals[i].rule] << 32 | i))
			return false;
	places_tidy(&a->tidy);
	for (uint32_t i = 0; i < a->n_locals; i++)
		a->order[i] = (uint32_t)a->tidy.at[i];
	for (uint32_t i = 0; i < a->n_locals && a->n_steps <= a->g->limits.n_steps; i++) {
		struct local_frame *local = &a->locals[a->order[i]];
		a->tidy.n = 0;
		for (uint32_t r = local->last_return; r != NONE; r = a->returns[r].before) {
			uint32_t code = place_code(a->returns[r].place);
			uint32_t frame = frame_number(a, place_frame(a->returns[r].place));
			a->n_steps++;
			if (!a->g->tail[code]) {
				if (!places_add(&a->tidy, place_of(code, frame)))
					return false;
				continue;
			}
			struct set set = a->frames.at[frame];
			a->n_steps += set.n;
			if (a->n_steps > a->g->limits.n_steps)
				return true; /* what follows is refused for it */
			for (uint32_t k = 0; k < set.n; k++)
				if (!places_add(&a->tidy, a->frames.all.at[set.first + k]))
					return false;
		}
		places_tidy(&a->tidy);
		if (!sets_intern(&a->frames, a->tidy.at, a->tidy.n, &local->number))
			return false;
	}
	return true;
}

static void run_work(struct automaton *a)
{
	const struct grammar *g = a->g;
	while (a->work.n && !a->no_memory && a->n_steps <= g->limits.n_steps) {
		place p = a->work.at[--a->work.n];
		uint32_t at = place_code(p), frame = place_frame(p);
		const struct code *code = &g->code[at];
		a->n_steps++;
		switch (code->kind) {
		case CODE_ACCEPT:
		case CODE_SET:
			a->no_memory |= !places_add(&a->reads, p);
			break;
		case CODE_SPLIT:
			visit(a, code->b, frame);
			visit(a, code->a, frame);
			break;
		case CODE_JUMP:
			visit(a, code->a, frame);
			break;
		case CODE_CALL:
			call(a, code->a, at + 1, frame);
			break;
		case CODE_RETURN:
			return_from(a, frame);
			break;
		}
	}
}

static enum lap_status fail_steps(const struct automaton *a, struct lap_error *err)
{
	return fail(err, LAP_ERROR,
		"grammar: needs more than %llu steps for one token (is it ambiguous?)",
		(unsigned long long)a->g->limits.n_steps);
}

/* All that was visited, gone on until bytes are read: as a state. */
static enum lap_status close_state(struct automaton *a, uint32_t *state, struct lap_error *err)
{
	run_work(a);
	bool done = !a->work.n && !a->no_memory;
	enum lap_status status = LAP_OK;
	if (done && a->reads.n > a->g->limits.n_items) {
		status = fail(err, LAP_ERROR,
			"grammar: may be at %llu places at a time, expected at most %u",
			(unsigned long long)a->reads.n, (unsigned)a->g->limits.n_items);
	} else if (done && !number_locals(a)) {
		a->no_memory = true;
	} else if (a->n_steps > a->g->limits.n_steps) {
		status = fail_steps(a, err);
	} else if (done) {
		for (size_t i = 0; i < a->reads.n; i++) {
			place p = a->reads.at[i];
			a->reads.at[i] = place_of(place_code(p), frame_number(a, place_frame(p)));
		}
		places_tidy(&a->reads);
		if (!state_intern(a, a->reads.at, a->reads.n, state))
			a->no_memory = true;
	}
	if (a->no_memory)
		status = fail_memory(err, "the states of a grammar", automaton_memory(a));
	a->no_memory = false;
	a->work.n = a->reads.n = 0;
	for (uint32_t i = 0; i < a->n_locals; i++)
		a->local_of[a->locals[i].rule] = 0;
	a->n_locals = a->n_returns = 0;
	if (a->n_seen)
		memset(a->seen, 0xFF, a->n_seen_room * sizeof *a->seen);
	a->n_seen = 0;
	return status;
}

/* The state behind a byte of the class: computed once. */
static enum lap_status successor(
	struct automaton *a, uint32_t state, unsigned class, uint32_t *next, struct lap_error *err)
{
	size_t slot = (size_t)state * a->g->n_classes + class;
	*next = a->next[slot];
	if (*next != UNKNOWN)
		return LAP_OK;
	struct set set = a->states.at[state];
	for (uint32_t i = 0; i < set.n; i++) {
		place p = a->states.all.at[set.first + i];
		const struct code *code = &a->g->code[place_code(p)];
		a->n_steps++;
		if (code->kind == CODE_SET &&
			byte_set_has(&a->g->sets[code->a], a->g->example[class]))
			visit(a, place_code(p) + 1, place_frame(p));
	}
	enum lap_status status = close_state(a, next, err);
	if (!status)
		a->next[slot] = *next;
	return status;
}

static bool state_is_whole(const struct automaton *a, uint32_t state)
{
	/* CODE_ACCEPT is instruction 0 and returns to frame 0: it comes first. */
	struct set set = a->states.at[state];
	return set.n && a->states.all.at[set.first] == place_of(0, BOTTOM);
}

/* The empty set as DEAD, the frame of root as BOTTOM. */
static bool automaton_begin(struct automaton *a)
{
	uint32_t number;
	place accept = place_of(0, BOTTOM);
	return state_intern(a, NULL, 0, &number) && sets_intern(&a->frames, &accept, 1, &number);
}

/* ---- dropping what no state needs ------------------------------------------------------------ */

/* A frame's number is larger than those it returns to (but for BOTTOM's own), so one pass down marks all that
 * is needed and one pass up copies it. */
static bool copy_needed(struct automaton *a, struct automaton *old)
{
	bool *needed = array_alloc(old->frames.n, sizeof *needed);
	uint32_t *number = array_alloc(old->frames.n, sizeof *number);
	bool ok = needed && number && automaton_begin(a);
	for (struct grammar_state *s = old->users; s && ok; s = s->next) {
		struct set set = old->states.at[s->number];
		for (uint32_t i = 0; i < set.n; i++)
			needed[place_frame(old->states.all.at[set.first + i])] = true;
	}
	for (uint32_t f = old->frames.n; ok && f-- > 0;)
		for (uint32_t i = 0; needed[f] && i < old->frames.at[f].n; i++)
			needed[place_frame(old->frames.all.at[old->frames.at[f].first + i])] = true;
	for (uint32_t f = 1; ok && f < old->frames.n; f++) {
		if (!needed[f])
			continue;
		struct set set = old->frames.at[f];
		a->tidy.n = 0;
		for (uint32_t i = 0; i < set.n && ok; i++) {
			place p = old->frames.all.at[set.first + i];
			ok = places_add(&a->tidy, place_of(place_code(p), number[place_frame(p)]));
		}
		places_tidy(&a->tidy);
		ok = ok && sets_intern(&a->frames, a->tidy.at, a->tidy.n, &number[f]);
	}
	/* The new numbers are written when nothing can fail any more: first into `next` of the old states. */
	for (struct grammar_state *s = old->users; s && ok; s = s->next) {
		struct set set = old->states.at[s->number];
		a->tidy.n = 0;
		for (uint32_t i = 0; i < set.n && ok; i++) {
			place p = old->states.all.at[set.first + i];
			ok = places_add(&a->tidy, place_of(place_code(p), number[place_frame(p)]));
		}
		places_tidy(&a->tidy);
		uint32_t new = DEAD;
		ok = ok && state_intern(a, a->tidy.at, a->tidy.n, &new);
		old->next[(size_t)s->number * old->g->n_classes] = new;
	}
	for (struct grammar_state *s = old->users; s && ok; s = s->next)
		s->number = old->next[(size_t)s->number * old->g->n_classes];
	free(needed);
	free(number);
	return ok;
}

static enum lap_status collect(struct automaton *a, struct lap_error *err)
{
	struct automaton fresh = {.g = a->g, .v = a->v};
	bool ok = copy_needed(&fresh, a);
	free(fresh.tidy.at);
	fresh.tidy.at = NULL;
	if (!ok) {
		uint64_t n_bytes = automaton_memory(&fresh);
		automaton_clear(&fresh);
		/* Successors that the copy wrote over are asked for again. */
		for (struct grammar_state *s = a->users; s; s = s->next)
			a->next[(size_t)s->number * a->g->n_classes] = UNKNOWN;
		return fail_memory(err, "the states of a grammar", n_bytes);
	}
	automaton_clear(a);
	a->frames = fresh.frames;
	a->states = fresh.states;
	a->next = fresh.next;
	a->masks = fresh.masks;
	a->n_room = fresh.n_room;
	a->n_memory = fresh.n_memory;
	return LAP_OK;
}

/* Before a call: room for what it may compute. */
static enum lap_status make_room(struct automaton *a, struct lap_error *err)
{
	a->n_steps = 0;
	if (automaton_memory(a) <= a->g->limits.n_memory / 2)
		return LAP_OK;
	enum lap_status status = collect(a, err);
	if (!status && automaton_memory(a) > a->g->limits.n_memory / 2)
		status = fail(err, LAP_ERROR,
			"grammar: the states of the sequences take %llu bytes, expected at most "
			"%llu "
			"(does the text nest deeply?)",
			(unsigned long long)automaton_memory(a),
			(unsigned long long)a->g->limits.n_memory / 2);
	return status;
}

static enum lap_status check_room(const struct automaton *a, struct lap_error *err)
{
	if (automaton_memory(a) <= a->g->limits.n_memory)
		return LAP_OK;
	return fail(err, LAP_ERROR,
		"grammar: one token takes more than %llu bytes of states (is it ambiguous?)",
		(unsigned long long)a->g->limits.n_memory / 2);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static uint32_t mask_words(const struct grammar_vocabulary *v)
{
	return (uint32_t)(((uint64_t)v->n_vocab + 31) / 32);
}

static uint32_t allow(uint32_t *mask, uint32_t id)
{
	uint32_t bit = 1u << (id % 32), before = mask[id / 32] & bit;
	mask[id / 32] |= bit;
	return !before;
}

static uint32_t allow_ends(const struct grammar_vocabulary *v, uint32_t *mask)
{
	uint32_t n = 0;
	for (size_t i = 0; i < v->n_ends; i++)
		n += allow(mask, v->ends[i]);
	return n;
}

/* Walks the trie with the automaton; below a byte that cannot follow nothing is looked at. */
static enum lap_status fill_mask(
	struct automaton *a, uint32_t state, uint32_t *mask, struct lap_error *err)
{
	const struct grammar_vocabulary *v = a->v;
	const struct trie_node *nodes = v->nodes;
	const uint8_t *class_of = a->g->class_of;
	const size_t n_classes = a->g->n_classes;
	uint32_t n_allowed = 0, *path = a->path;
	path[0] = state;
	for (uint32_t i = 0; i < v->n_nodes;) {
		const struct trie_node *node = &nodes[i];
		uint32_t depth = node->where >> 8, from = path[depth - 1];
		unsigned class = class_of[node->where & 0xFF];
		uint32_t next = a->next[from * n_classes + class];
		if (next == UNKNOWN) {
			enum lap_status status = successor(a, from, class, &next, err);
			status = status ? status : check_room(a, err);
			if (status)
				return status;
		}
		if (next == DEAD) {
			i = node->end;
			continue;
		}
		path[depth] = next;
		/* One token or none, without a branch that nobody can foretell; a node without has one below it. */
		uint32_t n_tokens = nodes[i + 1].token - node->token, id = v->tokens[node->token];
		mask[id / 32] |= (uint32_t)(n_tokens != 0) << (id % 32);
		n_allowed += n_tokens;
		for (uint32_t t = 1; t < n_tokens; t++) {
			id = v->tokens[node->token + t];
			mask[id / 32] |= 1u << (id % 32);
		}
		i++;
	}
	if (state_is_whole(a, state))
		n_allowed += allow_ends(v, mask);
	mask[mask_words(v)] = n_allowed;
	return LAP_OK;
}

enum lap_status grammar_state_mask(
	struct grammar_state *state, uint32_t *mask, uint32_t *n_allowed, struct lap_error *err)
{
	struct automaton *a = state->automaton;
	uint32_t n_words = mask_words(a->v), n = 0;
	if (state->ended) {
		memset(mask, 0, n_words * sizeof *mask);
		n = allow_ends(a->v, mask);
	} else {
		uint32_t *known = a->masks[state->number];
		if (!known) {
			enum lap_status status = make_room(a, err);
			if (status)
				return status;
			uint64_t n_bytes = ((uint64_t)n_words + 1) * sizeof *known;
			known = calloc((size_t)n_words + 1, sizeof *known);
			if (!known)
				return fail_memory(err, "the mask of a grammar", n_bytes);
			status = fill_mask(a, state->number, known, err);
			if (status) {
				free(known);
				return status;
			}
			a->masks[state->number] = known;
			a->n_memory += n_bytes;
		}
		memcpy(mask, known, n_words * sizeof *mask);
		n = known[n_words];
	}
	if (n_allowed)
		*n_allowed = n;
	return LAP_OK;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void state_link(struct grammar_state *s, struct automaton *a)
{
	s->automaton = a;
	s->next = a->users;
	s->link = &a->users;
	if (s->next)
		s->next->link = &s->next;
	a->users = s;
}

enum lap_status grammar_state_create(const struct grammar *g, const struct grammar_vocabulary *v,
	struct grammar_state **state, struct lap_error *err)
{
	*state = NULL;
	struct automaton *a = calloc(1, sizeof *a);
	struct grammar_state *s = calloc(1, sizeof *s);
	if (a) {
		a->g = g;
		a->v = v;
		a->locals = array_alloc(g->n_rules, sizeof *a->locals);
		a->local_of = array_alloc(g->n_rules, sizeof *a->local_of);
		a->order = array_alloc(g->n_rules, sizeof *a->order);
		a->path = array_alloc((uint64_t)v->max_depth + 1, sizeof *a->path);
	}
	enum lap_status status = LAP_OK;
	if (!a || !s || !a->locals || !a->local_of || !a->order || !a->path ||
		!automaton_begin(a)) {
		status =
			fail_memory(err, "the states of a grammar", g->n_rules * sizeof *a->locals);
	} else {
		call(a, 0, 0, BOTTOM);
		status = close_state(a, &s->number, err);
	}
	if (status) {
		free(s);
		if (a)
			automaton_destroy(a);
		return status;
	}
	state_link(s, a);
	*state = s;
	return LAP_OK;
}

enum lap_status grammar_state_clone(
	const struct grammar_state *state, struct grammar_state **clone, struct lap_error *err)
{
	*clone = calloc(1, sizeof **clone);
	if (!*clone)
		return fail_memory(err, "the state of a grammar", sizeof **clone);
	(*clone)->number = state->number;
	(*clone)->ended = state->ended;
	state_link(*clone, state->automaton);
	return LAP_OK;
}

void grammar_state_destroy(struct grammar_state *state)
{
	if (!state)
		return;
	*state->link = state->next;
	if (state->next)
		state->next->link = state->link;
	if (!state->automaton->users)
		automaton_destroy(state->automaton);
	free(state);
}

static enum lap_status fail_refused(struct lap_error *err, const char *what, long token)
{
	return fail(err, LAP_USAGE, "grammar: %s %ld is not allowed here", what, token);
}

enum lap_status grammar_state_accept_bytes(
	struct grammar_state *state, const void *bytes, size_t n, struct lap_error *err)
{
	struct automaton *a = state->automaton;
	enum lap_status status = make_room(a, err);
	uint32_t at = state->number;
	if (!status && state->ended && n)
		return fail_refused(err, "a byte behind the end,", ((const uint8_t *)bytes)[0]);
	for (size_t i = 0; i < n && !status; i++) {
		uint8_t byte = ((const uint8_t *)bytes)[i];
		status = successor(a, at, a->g->class_of[byte], &at, err);
		status = status ? status : check_room(a, err);
		if (!status && at == DEAD)
			status = fail_refused(err, "byte", byte);
	}
	if (!status)
		state->number = at;
	return status;
}

enum lap_status grammar_state_accept(
	struct grammar_state *state, int32_t token, struct lap_error *err)
{
	const struct grammar_vocabulary *v = state->automaton->v;
	if (token < 0 || (uint32_t)token >= v->n_vocab)
		return fail(err, LAP_USAGE, "grammar: found token %ld, expected one of %u",
			(long)token, (unsigned)v->n_vocab);
	if (is_end(v, (uint32_t)token)) {
		if (!grammar_state_is_complete(state))
			return fail_refused(err, "the end token", token);
		state->ended = true;
		return LAP_OK;
	}
	size_t at = v->piece_at[token], n = v->piece_at[token + 1] - at;
	struct lap_error ignored;
	enum lap_status status = !n || state->ended
		? LAP_USAGE
		: grammar_state_accept_bytes(state, v->pieces + at, n, err ? err : &ignored);
	return status == LAP_USAGE ? fail_refused(err, "token", token) : status;
}

bool grammar_state_is_complete(const struct grammar_state *state)
{
	return state_is_whole(state->automaton, state->number);
}
