/* The state of recurrent layers: where the block of a position of a sequence lies.  See STATE_BLOCK in args.h.
 *
 * The includer defines TABLE_BINDING and has `args` with n_blocks. */
layout(std430, set = 0, binding = TABLE_BINDING) readonly buffer table_buffer { uint block_table[]; };

/* The block with the position, or STATE_NONE. */
uint state_block(uint seq, uint pos)
{
	return block_table[seq * args.n_blocks + pos / STATE_BLOCK];
}
