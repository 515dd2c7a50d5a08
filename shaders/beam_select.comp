/* beam_select: the candidates of all beams in one list, best first, see args.h; one workgroup.
 *
 * There are few of them, so none is moved: each counts those that come before it. */
#extension GL_EXT_control_flow_attributes : require
#define LANES_SELECT 128
layout(local_size_x = LANES_SELECT) in;
ARGS(beam_select_args);
layout(std430, set = 0, binding = 0) writeonly buffer choice_buffer {
	beam_choice choice;
	beam_candidate best[];
};
layout(std430, set = 0, binding = 1) readonly buffer result_buffer { sample_result results[]; };
layout(std430, set = 0, binding = 2) readonly buffer top_buffer { top_token tops[]; };
layout(std430, set = 0, binding = 3) readonly buffer sequence_buffer { sequence sequences[]; };
layout(std430, set = 0, binding = 4) readonly buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};

#define SIGN_BIT 0x80000000u
#define NO_TOKEN 0xFFFFFFFFu

shared uint keys[MAX_BEAM_ROWS * MAX_TOP]; /* of candidates, larger is better; 0: there is none */
shared uint n_found, any_error;

top_token listed(uint i)
{
	uint seq = step_rows[i / args.n_top].seq;
	uint entry = seq * RING_ENTRIES + sequences[seq].n_sampled % RING_ENTRIES;
	return tops[entry * args.n_top + i % args.n_top];
}

bool is_forbidden(uint seq, uint token)
{
	uint n = sequences[seq].n_forbid_left != 0 ? sequences[seq].n_stop : 0;
	for (uint i = 0; i < n; i++)
		if (sequences[seq].stop[i] == token)
			return true;
	return false;
}

/* Of candidate i. */
float score_of(uint i)
{
	precise float score =
		sequences[step_rows[i / args.n_top].seq].beam_score + listed(i).log_prob;
	return score;
}

uint key_of(uint i)
{
	uint seq = step_rows[i / args.n_top].seq, at = i % args.n_top;
	uint token = at < sequences[seq].n_top ? listed(i).token : NO_TOKEN;
	if (token == NO_TOKEN || is_forbidden(seq, token))
		return 0;
	uint bits = floatBitsToUint(score_of(i));
	if (bits == SIGN_BIT) /* -0 */
		bits = 0;
	return (bits & SIGN_BIT) != 0 ? ~bits : bits | SIGN_BIT;
}

/* Candidate j comes before i, which has the same key. */
bool is_before(uint j, uint i)
{
	uint row_j = j / args.n_top, row_i = i / args.n_top;
	return row_j < row_i || (row_j == row_i && listed(j).token < listed(i).token);
}

void main()
{
	if (flat_group() != 0 || step_head.done != 0)
		return;
	uint lane = gl_LocalInvocationID.x, n_rows = min(step_head.n_rows, MAX_BEAM_ROWS);
	uint n = n_rows * args.n_top;
	if (lane == 0)
		n_found = any_error = 0;
	barrier();
	for (uint i = lane; i < n; i += LANES_SELECT)
		keys[i] = key_of(i);
	for (uint row = lane; row < n_rows; row += LANES_SELECT)
		if (results[row].error != 0)
			atomicOr(any_error, 1);
	barrier();
	for (uint i = lane; i < n; i += LANES_SELECT) {
		uint key = keys[i], rank = 0;
		if (key == 0)
			continue;
		/* Four a turn, as in sample.comp: lavapipe counts the turns of all loops. */
		for (uint first = 0; first < n; first += 4)
			[[unroll]] for (uint c = 0; c < 4; c++) {
				uint j = first + c;
				if (j < n && (keys[j] > key || (keys[j] == key && is_before(j, i))))
					rank++;
			}
		atomicAdd(n_found, 1);
		best[rank] = beam_candidate(i / args.n_top, listed(i).token, score_of(i), 0);
	}
	barrier();
	if (lane == 0) {
		choice.n = n_found;
		choice.error = any_error;
	}
}
