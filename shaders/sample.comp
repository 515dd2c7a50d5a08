/* sample: the token after each row, from its logits; one workgroup for a row of the step.
 *
 * The same arithmetic as src/sampler.c, operation by operation, so that both choose the same token:
 * `precise` keeps products and sums apart, subnormal numbers count as 0, infinities and NaN are
 * recognised by their bits, and masses are summed as 64-bit integers in pairs of words.
 *
 * Nothing is sorted.  A truncation is a threshold on the ordered key of the logit, found eight bits
 * at a time from histograms; the draw is the same search over ids.  Once few enough candidates are
 * left they move to shared memory, and the passes that follow no longer read the vocabulary.  The best
 * tokens, where a sequence wants them, are found by the same searches in the whole vocabulary again. */
#extension GL_EXT_control_flow_attributes : require
#include "group.glsl"
#define MAX_LISTED   1024 /* candidates in shared memory, 8 bytes each */
#define SPECIAL_WORDS 256 /* so many that a token is rarely taken for one with a bias */
layout(local_size_x = LANES) in;
ARGS(sample_args);
layout(std430, set = 0, binding = 0) writeonly buffer result_buffer { sample_result results[]; };
layout(std430, set = 0, binding = 1) buffer scratch_buffer { uvec4 penalised[]; };
layout(std430, set = 0, binding = 2) writeonly buffer top_buffer { top_token tops[]; };
layout(std430, set = 0, binding = 3) readonly buffer logit_buffer { uvec4 logits[]; };
layout(std430, set = 0, binding = 4) readonly buffer sequence_buffer { sequence sequences[]; };
layout(std430, set = 0, binding = 5) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 6) readonly buffer history_buffer { uint history[]; };

/* Loops over the four of a quad: lavapipe ends every loop of a lane after 65,535 turns of all its loops
 * together, which the searches of a large vocabulary would reach. */
#define UNROLL [[unroll]]

#define SIGN_BIT      0x80000000u
#define INFINITY_BITS 0x7F800000u /* also the mask of the exponent */
#define FORBIDDEN     0xFF800000u /* -infinity */
#define NO_TOKEN      0xFFFFFFFFu

#define SELECT_COUNT 0 /* see enum select in src/sampler.c */
#define SELECT_MASS  1
#define SELECT_TOKEN 2
#define SELECT_TIE   3 /* lowest id first; tokens whose key is the threshold count 1 */
#define SHIFT_NONE   32

#define HAS_TOPS ((SPEC & SAMPLE_TOPS) != 0)

/* The searches that may be wanted, one after the other. */
#define STAGE_ALL   0 /* the mass of all tokens */
#define STAGE_TOP_K 1
#define STAGE_MASS  2 /* of what top k left, or at the temperature of the cuts */
#define STAGE_TOP_P 3
#define STAGE_KEPT  4 /* the mass that is drawn from */
#define STAGE_DRAW  5
#define STAGE_BEST  6 /* the threshold of the best tokens */
#define STAGE_TIES  7 /* the lowest ids at it */
#define N_STAGES    8

/* uint64: x the low word, y the high one. */
#define u64 uvec2

shared uint sum_low[256], sum_high[256]; /* amounts by digit; [0] also serves plain sums */
shared uint listed_id[MAX_LISTED], listed_logit[MAX_LISTED];
shared uint n_listed;
shared uint special[SPECIAL_WORDS]; /* a bit is set where a token with this id % bits has a bias or ban */
shared uint top_id[MAX_TOP], top_logit[MAX_TOP];
shared uint n_top_found;
shared uint any_error, best_key, best_id;
shared uint chosen_digit;
shared u64 chosen_above;

/* What the whole workgroup agrees on. */
uint lane;
uint row_base;    /* of this row in `logits` and `penalised`, in quads */
uint n_items;     /* the vocabulary, or the list once `listed` */
bool listed;
uint threshold;   /* a token stays when its key is at least this ... */
bool use_min_p;   /* ... and its distance at least log_min_p */
float log_min_p;
float inv_cut_temperature; /* of log_min_p */
float inv_temperature; /* of masses: that of the cuts while they are made */
uint best_logit;
bool any_wishes, use_mask;

/* Of the row's sequence, read once: a load in the loops below is a loop of its own on lavapipe. */
uint history_at, n_bias, n_banned;
float repeat_penalty, inv_repeat_penalty, frequency_penalty, presence_penalty;
bool has_penalties;

u64 add64(u64 a, u64 b)
{
	uint carry;
	uint low = uaddCarry(a.x, b.x, carry);
	return u64(low, a.y + b.y + carry);
}

bool less64(u64 a, u64 b)
{
	return a.y < b.y || (a.y == b.y && a.x < b.x);
}

u64 mul32(uint a, uint b)
{
	u64 product;
	umulExtended(a, b, product.y, product.x);
	return product;
}

/* ---- one token ---- */

/* Subnormal numbers and -0 become 0. */
uint tidy(uint bits)
{
	return (bits & INFINITY_BITS) == 0 ? 0u : bits;
}

uint tidy(float f)
{
	return tidy(floatBitsToUint(f));
}

uint ordered_key(uint bits)
{
	return (bits & SIGN_BIT) != 0 ? ~bits : bits | SIGN_BIT;
}

uint penalise(uint bits, uint token)
{
	bits = tidy(bits);
	if (!has_penalties || bits == FORBIDDEN)
		return bits;
	uint count = history[history_at + args.n_ctx + token];
	if (count == 0)
		return bits;
	float factor = (bits & SIGN_BIT) != 0 ? repeat_penalty : inv_repeat_penalty;
	precise float scaled = uintBitsToFloat(bits) * factor;
	precise float per_token = frequency_penalty * float(count);
	precise float subtract = per_token + presence_penalty;
	precise float logit = uintBitsToFloat(tidy(scaled)) - subtract;
	return tidy(logit);
}

bool is_no_logit(uint bits)
{
	return (bits & ~SIGN_BIT) > INFINITY_BITS || bits == INFINITY_BITS;
}

bool is_banned(uint token, uint seq)
{
	for (uint i = 0; i < n_banned; i++)
		if (sequences[seq].forbidden[i] == token)
			return true;
	return false;
}

uint biased(uint bits, uint token, uint seq)
{
	uint n = bits == FORBIDDEN ? 0 : n_bias;
	for (uint i = 0; i < n; i++) {
		if (sequences[seq].bias_token[i] != token)
			continue;
		uint bias = floatBitsToUint(sequences[seq].bias_value[i]);
		if (bias == FORBIDDEN)
			return FORBIDDEN;
		precise float sum = uintBitsToFloat(bits) + uintBitsToFloat(bias);
		return tidy(sum);
	}
	return bits;
}

/* The logit with penalties, bias, bans and mask; `error` is set where there is none. */
uint adjusted(uint bits, uint token, uint seq, inout bool error)
{
	bits = penalise(bits, token);
	error = error || is_no_logit(bits);
	if (!any_wishes)
		return bits;
	if (n_bias + n_banned != 0 &&
		(special[token / 32 % SPECIAL_WORDS] >> token % 32 & 1u) != 0) {
		bits = biased(bits, token, seq);
		error = error || is_no_logit(bits);
		if (is_banned(token, seq))
			return FORBIDDEN;
	}
	if (use_mask) {
		uint mask = history_at + args.n_ctx + args.n_vocab;
		if ((history[mask + token / 32] >> token % 32 & 1u) == 0)
			return FORBIDDEN;
	}
	return bits;
}

/* Notes which tokens have a bias or a ban. */
void special_set(uint seq)
{
	if (n_bias + n_banned == 0)
		return;
	for (uint i = lane; i < SPECIAL_WORDS; i += LANES)
		special[i] = 0;
	group_barrier();
	for (uint i = lane; i < n_bias + n_banned; i += LANES) {
		uint token = i < n_bias ? sequences[seq].bias_token[i]
					: sequences[seq].forbidden[i - n_bias];
		atomicOr(special[token / 32 % SPECIAL_WORDS], 1u << token % 32);
	}
	group_barrier();
}

/* Distance below the largest logit, over a temperature; not for forbidden tokens. */
float distance_of(uint bits, float inverse)
{
	precise float below = uintBitsToFloat(bits) - uintBitsToFloat(best_logit);
	precise float scaled = uintBitsToFloat(tidy(below)) * inverse;
	return uintBitsToFloat(tidy(scaled));
}

/* exp(distance) in units of 2^-31, rounded down: sampler_mass. */
uint mass_of(uint bits)
{
	if (bits == FORBIDDEN)
		return 0;
	precise float scaled = distance_of(bits, inv_temperature) * 1.44269504;
	float x = uintBitsToFloat(tidy(scaled));
	if (!(x >= -31.0))
		return 0;
	float whole = floor(x);
	precise float f = x - whole;
	precise float p = 0.000218892281 * f;
	p = p + 0.00124113797;
	p = p * f;
	p = p + 0.00967821479;
	p = p * f;
	p = p + 0.0554860458;
	p = p * f;
	p = p + 0.240228564;
	p = p * f;
	p = p + 0.693147123;
	p = p * f;
	p = p + 1.0;
	uint p_bits = floatBitsToUint(p);
	uint mantissa = (p_bits & 0x7FFFFFu) | 0x800000u;
	int shift = int(whole) + int(p_bits >> 23) - 127 + 8;
	return shift >= 0 ? mantissa << shift : mantissa >> -shift;
}

bool keeps(uint bits)
{
	if (ordered_key(bits) < threshold)
		return false;
	return !use_min_p ||
		(bits != FORBIDDEN && distance_of(bits, inv_cut_temperature) >= log_min_p);
}

/* ---- passes over the candidates ---- */

uvec4 quad_ids(uint quad)
{
	return 4 * quad + uvec4(0, 1, 2, 3);
}

/* Four at a time, for one wait for memory a turn: candidates 4 * quad to 4 * quad + 3. */
void load_quad(uint quad, out uvec4 id, out uvec4 bits)
{
	id = quad_ids(quad);
	if (!listed) {
		bits = penalised[row_base + quad];
		return;
	}
	uvec4 at = min(id, uvec4(n_items - 1));
	UNROLL for (uint c = 0; c < 4; c++) {
		id[c] = listed_id[at[c]];
		bits[c] = listed_logit[at[c]];
	}
}

uint select_amount(uint what, uint id, uint bits, out uint key)
{
	key = ordered_key(bits);
	if (HAS_TOPS && what == SELECT_TIE) {
		bool tie = key == threshold;
		key = ~id;
		return tie ? 1 : 0;
	}
	bool counts = what == SELECT_TOKEN ? keeps(bits) : key >= threshold;
	if (what == SELECT_TOKEN)
		key = ~id;
	if (!counts)
		return 0;
	return what == SELECT_COUNT ? 1 : mass_of(bits);
}

/* Shared sums are exact whatever the order: a word that wraps around carries once. */
void sum_add(uint digit, u64 amount)
{
	if (amount == u64(0))
		return;
	uint before = atomicAdd(sum_low[digit], amount.x);
	uint high = amount.y + (before + amount.x < before ? 1 : 0);
	if (high != 0)
		atomicAdd(sum_high[digit], high);
}

void sums_clear()
{
	group_barrier();
	for (uint i = lane; i < 256; i += LANES)
		sum_low[i] = sum_high[i] = 0;
	group_barrier();
}

/* Moves the tokens of at least this key to the list, if they fit. */
void list_candidates(uint least_key)
{
	if (listed)
		return;
	group_barrier();
	if (lane == 0)
		n_listed = 0;
	group_barrier();
	bool fits = true;
	for (uint quad = lane; quad * 4 < n_items && fits; quad += LANES) {
		uvec4 id = quad_ids(quad), bits = penalised[row_base + quad];
		uint left = 0; /* bit c: candidate c is to be listed */
		UNROLL for (uint c = 0; c < 4; c++)
			left |= ordered_key(bits[c]) >= least_key && quad * 4 + c < n_items ? 1u << c : 0;
		for (; left != 0; left &= left - 1) {
			uint c = findLSB(left), at = atomicAdd(n_listed, 1);
			fits = at < MAX_LISTED;
			if (!fits)
				break;
			listed_id[at] = id[c];
			listed_logit[at] = bits[c];
		}
	}
	group_barrier();
	listed = n_listed <= MAX_LISTED;
	if (listed)
		n_items = n_listed;
}

/* The digit at which the running sum from the top reaches `goal`, in chosen_digit, and what lies
 * above it. */
void choose_digit(u64 above, u64 goal)
{
	group_barrier();
	if (lane == 0) {
		uint digit = 255;
		while (digit > 0) {
			u64 next = add64(above, u64(sum_low[digit], sum_high[digit]));
			if (!less64(next, goal))
				break;
			above = next;
			digit--;
		}
		chosen_digit = digit;
		chosen_above = above;
	}
	group_barrier();
}

/* The amounts of all candidates whose digits above `shift` are those of `found`, by their digit there; with
 * SHIFT_NONE all of them, as digit 0. */
void add_up(uint what, int shift, uint found)
{
	/* Neighbours often share a digit: add them up before touching shared memory. */
	uint run_digit = 0;
	u64 run = u64(0);
	sums_clear();
	for (uint quad = lane; quad * 4 < n_items; quad += LANES) {
		uvec4 id, bits;
		load_quad(quad, id, bits);
		UNROLL for (uint c = 0; c < 4; c++) {
			uint key, amount = select_amount(what, id[c], bits[c], key);
			bool counts = amount != 0 && quad * 4 + c < n_items &&
				(shift >= 24 || (key ^ found) >> (shift + 8) == 0);
			uint digit = shift == SHIFT_NONE ? 0 : key >> shift & 255u;
			if (counts && digit != run_digit) {
				sum_add(run_digit, run);
				run_digit = digit;
				run = u64(0);
			}
			if (counts)
				run = add64(run, u64(amount, 0));
		}
	}
	sum_add(run_digit, run);
}

/* The largest key at which the amounts of all tokens ranked as high or higher reach `goal`; with `adds` nothing
 * is searched for, and `sum` is all of them. */
uint select_key(uint what, bool adds, u64 goal, out u64 sum)
{
	uint found = 0;
	u64 above = u64(0);
	[[dont_unroll]] for (int shift = adds ? SHIFT_NONE : 24; shift >= 0; shift -= 8) {
		if (what >= SELECT_TOKEN && shift < 32 && args.n_vocab - 1 >> shift == 0) {
			found |= 255u << shift; /* no id has this digit */
			continue;
		}
		add_up(what, shift, found);
		if (adds)
			break;
		choose_digit(above, goal);
		above = chosen_above;
		found |= chosen_digit << shift;
		if (shift == 16 && what < SELECT_TOKEN)
			list_candidates(max(found, threshold));
	}
	group_barrier();
	sum = u64(sum_low[0], sum_high[0]);
	return found;
}

/* ---- the draw ---- */

/* mass * share / 2^32, rounded up. */
u64 mass_share(u64 mass, uint share)
{
	u64 low = mul32(mass.x, share);
	u64 sum = add64(mul32(mass.y, share), u64(low.y, 0));
	return add64(sum, u64(low.x != 0 ? 1 : 0, 0));
}

/* (high * 2^32 + low) * n / 2^64, rounded down. */
u64 scale_random(uint high, uint low, u64 n)
{
	u64 a = mul32(high, n.x), b = mul32(low, n.y);
	u64 middle = u64(mul32(low, n.x).y, 0);
	middle = add64(add64(middle, u64(a.x, 0)), u64(b.x, 0));
	u64 sum = add64(mul32(high, n.y), u64(middle.y, 0));
	return add64(add64(sum, u64(a.y, 0)), u64(b.y, 0));
}

/* Philox4x32-10 (Salmon et al. 2011), its first two words. */
uvec2 philox(uint counter, uvec2 key)
{
	uvec4 c = uvec4(counter, 0, 0, 0);
	for (int i = 0; i < 10; i++) {
		u64 a = mul32(c.x, 0xD2511F53u), b = mul32(c.z, 0xCD9E8D57u);
		c = uvec4(b.y ^ c.y ^ key.x, b.x, a.y ^ c.w ^ key.y, a.x);
		key += uvec2(0x9E3779B9u, 0xBB67AE85u);
	}
	return c.xy;
}

/* The largest so far of a lane. */
struct best {
	uint key, id;
	bool error;
};

void note_best(uint bits, uint id, inout best mine)
{
	uint key = ordered_key(bits);
	if (key > mine.key) {
		mine.key = key;
		mine.id = id;
	}
}

/* Four logits to scratch, to which nothing is to be done. */
void take_quad(uint quad, inout best mine)
{
	uvec4 bits = logits[row_base + quad];
	UNROLL for (uint c = 0; c < 4; c++)
		if (quad * 4 + c < args.n_vocab) {
			bits[c] = tidy(bits[c]);
			mine.error = mine.error || is_no_logit(bits[c]);
			note_best(bits[c], quad * 4 + c, mine);
		}
	penalised[row_base + quad] = bits;
}

/* Four adjusted logits: much code, so once instead of four times. */
void adjust_quad(uint quad, uint seq, inout best mine)
{
	uvec4 bits = logits[row_base + quad];
	[[dont_unroll]] for (uint c = 0; c < 4; c++) {
		uint id = quad * 4 + c, logit = bits.x;
		if (id < args.n_vocab) {
			logit = adjusted(logit, id, seq, mine.error);
			note_best(logit, id, mine);
		}
		bits = uvec4(bits.yzw, logit);
	}
	penalised[row_base + quad] = bits;
}

/* Adjusted logits to scratch; the largest, lowest id first; whether all of them are numbers. */
void find_best(uint seq)
{
	if (lane == 0) {
		any_error = 0;
		best_key = 0;
		best_id = 0xFFFFFFFFu;
	}
	group_barrier();
	best mine = best(0, 0, false);
	/* Two loops: lavapipe goes through the code of every branch, but not of a loop without turns. */
	uint n_quads = (args.n_vocab + 3) / 4;
	uint n_plain = any_wishes || has_penalties ? 0 : n_quads;
	for (uint quad = lane; quad < n_plain; quad += LANES)
		take_quad(quad, mine);
	for (uint quad = n_plain + lane; quad < n_quads; quad += LANES)
		adjust_quad(quad, seq, mine);
	if (mine.error)
		atomicOr(any_error, 1);
	atomicMax(best_key, mine.key);
	group_barrier();
	if (mine.key == best_key && lane * 4 < args.n_vocab)
		atomicMin(best_id, mine.id);
	group_barrier();
}

/* ---- the best tokens ---- */

/* Takes the tokens above the threshold, or those at it whose ~id is at least `least`. */
void top_take(bool ties, uint least)
{
	for (uint quad = lane; quad * 4 < n_items; quad += LANES) {
		uvec4 id, bits;
		load_quad(quad, id, bits);
		uint left = 0; /* bit c: candidate c is one */
		UNROLL for (uint c = 0; c < 4; c++) {
			uint key = ordered_key(bits[c]);
			bool takes = ties ? key == threshold && ~id[c] >= least : key > threshold;
			left |= takes && quad * 4 + c < n_items ? 1u << c : 0;
		}
		for (; left != 0; left &= left - 1) {
			uint c = findLSB(left), at = atomicAdd(n_top_found, 1);
			top_id[at] = id[c];
			top_logit[at] = bits[c];
		}
	}
	group_barrier();
}

/* Where the ring's entry of this step will be. */
uint top_begin(uint seq)
{
	return (seq * RING_ENTRIES + sequences[seq].n_sampled % RING_ENTRIES) * args.n_top;
}

void store_top(uint seq, float log_total)
{
	uint n = n_top_found, to = top_begin(seq);
	for (uint i = lane; i < args.n_top; i += LANES) {
		if (i >= n) {
			tops[to + i] = top_token(NO_TOKEN, 0.0);
			continue;
		}
		uint key = ordered_key(top_logit[i]), rank = 0;
		for (uint j = 0; j < n; j++) {
			uint other = ordered_key(top_logit[j]);
			if (other > key || (other == key && top_id[j] < top_id[i]))
				rank++;
		}
		tops[to + rank] = top_token(
			top_id[i], distance_of(top_logit[i], inv_temperature) - log_total);
	}
}

/* What a stage searches for, given the last mass; false: nothing, as the sequence's options are. */
bool stage_begin(uint stage, uint seq, uint n_top, u64 mass, out uint what, out u64 goal)
{
	uint top_k = sequences[seq].top_k, top_p = sequences[seq].top_p;
	bool draws = sequences[seq].greedy == 0, cuts = stage >= STAGE_TOP_K && stage <= STAGE_TOP_P;
	inv_temperature = cuts ? inv_cut_temperature : sequences[seq].inv_temperature;
	what = SELECT_MASS;
	goal = u64(0);
	switch (stage) {
	case STAGE_TOP_K:
		what = SELECT_COUNT;
		goal = u64(top_k, 0);
		return draws && top_k != 0;
	case STAGE_MASS:
		return draws && top_p != 0 &&
			(top_k != 0 || inv_cut_temperature != sequences[seq].inv_temperature);
	case STAGE_TOP_P:
		goal = mass_share(mass, top_p);
		return draws && top_p != 0;
	case STAGE_KEPT:
		what = SELECT_TOKEN;
		return draws;
	case STAGE_DRAW: {
		what = SELECT_TOKEN;
		uvec2 random = philox(step_rows[gl_WorkGroupID.z].pos + sequences[seq].draw_offset,
			uvec2(sequences[seq].seed_lo, sequences[seq].seed_hi));
		goal = add64(scale_random(random.x, random.y, mass), u64(1, 0));
		return draws;
	}
	case STAGE_BEST: /* in the whole vocabulary again */
		what = SELECT_COUNT;
		goal = u64(n_top, 0);
		listed = false;
		n_items = args.n_vocab;
		threshold = 0;
		n_top_found = 0;
		return n_top != 0;
	case STAGE_TIES:
		what = SELECT_TIE;
		goal = u64(n_top - n_top_found, 0);
		return n_top != 0 && threshold != ordered_key(FORBIDDEN);
	default:
		return true;
	}
}

void main()
{
	uint row = gl_WorkGroupID.z;
	if (flat_group() != 0 || row >= step_head.n_rows || step_head.done != 0)
		return;
	uint seq = step_rows[row].seq, n_top = HAS_TOPS ? min(sequences[seq].n_top, args.n_top) : 0;
	lane = gl_LocalInvocationID.x;
	row_base = row * args.stride / 4;
	n_items = args.n_vocab;
	listed = false;
	threshold = 0;
	inv_temperature = sequences[seq].inv_temperature;
	inv_cut_temperature = sequences[seq].inv_cut_temperature;
	use_min_p = sequences[seq].use_min_p != 0;
	log_min_p = sequences[seq].log_min_p;

	history_at = seq * args.history_stride;
	has_penalties = sequences[seq].repeat_last_n != 0;
	repeat_penalty = sequences[seq].repeat_penalty;
	inv_repeat_penalty = sequences[seq].inv_repeat_penalty;
	frequency_penalty = sequences[seq].frequency_penalty;
	presence_penalty = sequences[seq].presence_penalty;
	n_bias = sequences[seq].n_bias;
	n_banned = sequences[seq].n_forbid_left != 0 ? sequences[seq].n_forbidden : 0;
	use_mask = sequences[seq].use_mask != 0;
	any_wishes = use_mask || n_bias + n_banned != 0;

	special_set(seq);
	find_best(seq);
	uint token = best_id;
	if (any_error != 0 || best_key == ordered_key(FORBIDDEN)) {
		if (lane == 0)
			results[row] = sample_result(0, 0.0, 1, 0);
		for (uint i = lane; n_top != 0 && i < args.n_top; i += LANES)
			tops[top_begin(seq) + i] = top_token(NO_TOKEN, 0.0);
		return;
	}
	best_logit = (best_key & SIGN_BIT) != 0 ? best_key ^ SIGN_BIT : ~best_key;

	/* One loop, for a function that is called in several places is compiled as often: seconds of it. */
	u64 mass = u64(0), mass_all = u64(0);
	[[dont_unroll]] for (uint stage = STAGE_ALL; stage < (HAS_TOPS ? N_STAGES : STAGE_BEST); stage++) {
		uint what;
		u64 goal, sum;
		if (!stage_begin(stage, seq, n_top, mass, what, goal))
			continue;
		bool adds = stage == STAGE_ALL || stage == STAGE_MASS || stage == STAGE_KEPT;
		uint found = select_key(what, adds, goal, sum);
		if (adds)
			mass = sum;
		if (stage == STAGE_ALL)
			mass_all = sum;
		if (stage == STAGE_TOP_K || stage == STAGE_TOP_P || stage == STAGE_BEST)
			threshold = found;
		if (stage == STAGE_DRAW)
			token = ~found;
		if (HAS_TOPS && stage >= STAGE_BEST) {
			threshold = max(threshold, ordered_key(FORBIDDEN));
			top_take(stage == STAGE_TIES, found);
		}
	}
	inv_temperature = sequences[seq].inv_temperature;
	float total = float(mass_all.y) * 4294967296.0 + float(mass_all.x);
	float log_total = log(total / 2147483648.0);
	if (lane == token / 4 % LANES) { /* the lane that wrote it to `penalised` */
		uint logit = penalised[row_base + token / 4][token % 4];
		results[row] = sample_result(
			token, distance_of(logit, inv_temperature) - log_total, 0, 0);
	}
	if (n_top != 0)
		store_top(seq, log_total);
}
