/* Reading ahead, with LP_SHUFFLE: on lavapipe a product's loads come one by one between much else, so that the processor
 * waits for each that is not in its cache; loads side by side it waits for once. */
#define CACHE_LINE 64

/* Reads a word of every cache line of TILE rows of weights, which begin at these bytes; of n callers that share the
 * rows this is number `share`.  Returns 0, which the compiler cannot know, so that what was read is used. */
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
