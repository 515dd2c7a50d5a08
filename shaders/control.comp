/* control: what follows from the sampled tokens: ring, history, stop rules, the next step's rows and
 * dispatch sizes.  One workgroup for the whole step; a lane takes whole rows.
 *
 * The same words as src/cpu/sample.c. */
#include "group.glsl"
layout(local_size_x = LANES) in;
ARGS(control_args);
layout(std430, set = 0, binding = 0) buffer step_buffer {
	step_header step_head;
	step_row step_rows[];
};
layout(std430, set = 0, binding = 1) buffer size_buffer { dispatch_size sizes[]; };
/* The host may set `cancel` while we run; nothing here writes that word.  Volatile is coherent too. */
layout(std430, set = 0, binding = 2) volatile buffer sequence_buffer {
	sequence sequences[];
};
layout(std430, set = 0, binding = 3) writeonly buffer ring_buffer { ring_entry ring[]; };
layout(std430, set = 0, binding = 4) buffer history_buffer { uint history[]; };
layout(std430, set = 0, binding = 5) readonly buffer result_buffer { sample_result results[]; };

shared uint n_kv, n_active;

void ring_append(uint seq, sample_result result)
{
	uint n_sampled = sequences[seq].n_sampled, n_left = sequences[seq].n_left;
	ring[seq * RING_ENTRIES + n_sampled % RING_ENTRIES] =
		ring_entry(result.token, result.log_prob, n_sampled + 1, result.error);
	sequences[seq].n_sampled = n_sampled + 1;
	sequences[seq].n_left = max(n_left, 1u) - 1;
	uint n_forbid_left = sequences[seq].n_forbid_left;
	if (n_forbid_left != 0 && n_forbid_left != 0xFFFFFFFFu)
		sequences[seq].n_forbid_left = n_forbid_left - 1;
	sequences[seq].error = result.error;
}

/* The token at `pos` joins the history; its counts stay those of the last repeat_last_n tokens. */
void history_append(uint seq, uint pos, uint token)
{
	uint tokens = seq * args.history_stride, counts = tokens + args.n_ctx;
	if (pos >= args.n_ctx)
		return;
	history[tokens + pos] = token;
	uint window = sequences[seq].repeat_last_n;
	if (window == 0)
		return;
	history[counts + token]++;
	if (pos >= window)
		history[counts + history[tokens + pos - window]]--;
}

bool sequence_ends(uint seq, uint token, uint pos)
{
	uint n_stop = sequences[seq].n_stop;
	for (uint i = 0; i < n_stop; i++)
		if (sequences[seq].stop[i] == token)
			return true;
	return sequences[seq].n_left == 0 || pos >= sequences[seq].n_ctx ||
		sequences[seq].cancel != 0;
}

/* Takes the row one step further; false when its sequence is done. */
bool row_advance(uint row)
{
	uint seq = step_rows[row].seq, pos = step_rows[row].pos + 1;
	if (sequences[seq].done != 0)
		return false;
	sample_result result = results[row];
	ring_append(seq, result);
	if (result.error == 0)
		history_append(seq, pos, result.token);
	if (result.error != 0 || sequence_ends(seq, result.token, pos)) {
		sequences[seq].done = 1;
		return false;
	}
	step_rows[row].token = result.token;
	step_rows[row].pos = pos;
	return true;
}

uint ceil_div(uint a, uint b)
{
	return a / b + (a % b != 0 ? 1 : 0);
}

/* As sizes_update in src/plan.c. */
void size_update(uint i, uint n_rows, uint kv, bool done)
{
	uvec3 size = uvec3(0);
	uint rule = sizes[i].rule, divisor = sizes[i].divisor, window = sizes[i].window;
	if (!done && sizes[i].groups_x != 0) { /* an unused entry has no groups */
		size = uvec3(sizes[i].groups_x, sizes[i].groups_y, 1);
		if (rule == SIZE_ROWS)
			size.z = ceil_div(n_rows * sizes[i].factor, divisor) + sizes[i].extra;
		if (rule == SIZE_KV)
			size.yz = uvec2(ceil_div(kv, divisor), n_rows);
		if (rule == SIZE_KV && window != 0) /* slices that a window can touch */
			size.y = min(size.y, ceil_div(window - 1, divisor) + 1);
	}
	sizes[i].x = size.x;
	sizes[i].y = size.y;
	sizes[i].z = size.z;
}

void main()
{
	if (flat_group() != 0 || gl_WorkGroupID.z != 0 || step_head.done != 0)
		return;
	uint lane = gl_LocalInvocationID.x, n_rows = step_head.n_rows;
	if (lane == 0)
		n_kv = n_active = 0;
	group_barrier();
	for (uint row = lane; row < n_rows; row += LANES) {
		if (row_advance(row))
			atomicAdd(n_active, 1);
		atomicMax(n_kv, step_rows[row].pos + 1);
	}
	group_barrier();
	bool done = n_active == 0;
	for (uint i = lane; i < args.n_sizes; i += LANES)
		size_update(i, n_rows, n_kv, done);
	if (lane == 0) {
		step_head.n_kv = n_kv;
		step_head.done = done ? 1 : 0;
	}
}
