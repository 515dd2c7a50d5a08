/* TILE rows of weights of a lane, given as the bytes at which they begin.
 *
 * They are read ahead with LP_SHUFFLE: on lavapipe a product's loads come one by one between much else, so that the
 * processor waits for each that is not in its cache; loads side by side it waits for once. */
#define CACHE_LINE 64

/* A unit of each. */
void rows_decode(uint rows[TILE], uint unit, out vec4 w[TILE][8])
{
	[[unroll]] for (uint i = 0; i < TILE; i++) {
		weight_decode(rows[i], unit, w[i]);
#ifdef WEIGHT_HAS_TAIL
		unit_mask(w[i], unit, args.n_in);
#endif
	}
}

/* Reads a word of every cache line of the rows; of n callers that share them this is number `share`.  Returns 0, which
 * the compiler cannot know, so that what was read is used. */
uint rows_touched(uint rows[TILE], uint share, uint n)
{
#ifdef LP_SHUFFLE
	uint at = share * CACHE_LINE, touched = 0;
	[[dont_unroll]] do {
		[[unroll]] for (uint i = 0; i < TILE; i++)
			touched |= quad((rows[i] + at) / 16).x;
		at += n * CACHE_LINE;
	} while (at < args.row_bytes);
	return args.n_out == 0 ? touched : 0;
#else
	return 0;
#endif
}
