/* moe_tiles: the slots of a step by expert, in tiles of EXPERT_TILE.
 *
 * One workgroup: counts the slots of each expert, lays out tiles and lists by sums over the experts
 * before, then deals the slots in order, LANES at a time.  A slot's place among those of its expert is
 * the number of bits below its own in a mask of the lanes that hold that expert. */
#define LANES 128
layout(local_size_x = LANES) in;
ARGS(tiles_args);
layout(std430, set = 0, binding = 0) writeonly buffer tiles_buffer { uint tiles[]; };
layout(std430, set = 0, binding = 1) readonly buffer routes_buffer { expert_route routes[]; };
layout(std430, set = 0, binding = 2) readonly buffer step_buffer { step_header step_head; };

#define PER_LANE        (MAX_EXPERTS / LANES)
#define TILE_MASK_WORDS (LANES / 32)

shared uint next[MAX_EXPERTS]; /* the count, then where the expert's next slot goes */
shared uint masks[MAX_EXPERTS * TILE_MASK_WORDS];
shared uvec2 scan[LANES]; /* tiles, slots */

/* The sum over the lanes before this one; `total`: over all. */
uvec2 sum_before(uvec2 value, out uvec2 total)
{
	uint lane = gl_LocalInvocationID.x;
	scan[lane] = value;
	barrier();
	for (uint n = 1; n < LANES; n *= 2) {
		uvec2 before = lane >= n ? scan[lane - n] : uvec2(0);
		barrier();
		scan[lane] += before;
		barrier();
	}
	total = scan[LANES - 1];
	return scan[lane] - value;
}

void write_tile(uint tile, uint expert, uint first, uint n)
{
	tiles[3 * tile] = expert;
	tiles[3 * tile + 1] = first;
	tiles[3 * tile + 2] = n;
}

void lay_out()
{
	uint lane = gl_LocalInvocationID.x;
	uvec2 own = uvec2(0), total;
	for (uint k = 0; k < PER_LANE; k++) {
		uint n = next[lane * PER_LANE + k];
		own += uvec2((n + EXPERT_TILE - 1) / EXPERT_TILE, n);
	}
	uvec2 at = sum_before(own, total);
	for (uint k = 0; k < PER_LANE; k++) {
		uint expert = lane * PER_LANE + k, n = next[expert];
		next[expert] = at.y;
		for (uint i = 0; i < n; i += EXPERT_TILE)
			write_tile(at.x++, expert, at.y + i, min(n - i, EXPERT_TILE));
		at.y += n;
	}
	for (uint tile = total.x + lane; tile < args.n_tiles; tile += LANES)
		write_tile(tile, 0, 0, 0);
}

void deal(uint n_slots)
{
	uint lane = gl_LocalInvocationID.x, word = lane / 32, bit = 1u << lane % 32;
	for (uint first = 0; first < n_slots; first += LANES) {
		uint slot = first + lane;
		bool there = slot < n_slots;
		uint expert = there ? routes[slot].expert : 0;
		if (there)
			atomicOr(masks[expert * TILE_MASK_WORDS + word], bit);
		barrier();
		uint n_before = 0, n = 0;
		for (uint i = 0; i < TILE_MASK_WORDS; i++) {
			uint mask = masks[expert * TILE_MASK_WORDS + i];
			n += uint(bitCount(mask));
			n_before += uint(bitCount(i < word ? mask : i == word ? mask & bit - 1 : 0));
		}
		if (there)
			tiles[3 * args.n_tiles + next[expert] + n_before] = slot;
		barrier();
		if (there && n_before == 0) {
			next[expert] += n;
			for (uint i = 0; i < TILE_MASK_WORDS; i++)
				masks[expert * TILE_MASK_WORDS + i] = 0;
		}
		barrier();
	}
}

void main()
{
	uint lane = gl_LocalInvocationID.x, n_slots = step_head.n_rows * args.n_used;
	if (flat_group() != 0)
		return;
	for (uint i = lane; i < MAX_EXPERTS * TILE_MASK_WORDS; i += LANES)
		masks[i] = 0;
	for (uint i = lane; i < MAX_EXPERTS; i += LANES)
		next[i] = 0;
	barrier();
	for (uint slot = lane; slot < n_slots; slot += LANES)
		atomicAdd(next[routes[slot].expert], 1);
	barrier();
	lay_out();
	barrier();
	deal(n_slots);
}
